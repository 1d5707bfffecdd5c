"""Any OpenAI-compatible chat-completions endpoint, over one keep-alive session."""

from __future__ import annotations

import asyncio
import re
import sys
import time
from collections import deque
from collections.abc import Iterable
from contextlib import AsyncExitStack, suppress
from email.utils import parsedate_to_datetime
from math import isfinite
from typing import TYPE_CHECKING, Any

from opensafeintent.calls.providers import Endpoint, proxy_for
from opensafeintent.calls.records import Attempt, Call, Failure, Refused, Replied
from opensafeintent.calls.replies import (
    LONGEST_ERROR,
    REFUSING,
    NotAnAnswer,
    error_of,
    is_filter,
    no_answer,
    read_reply,
)
from opensafeintent.files import canonical_json
from opensafeintent.hostile import one_line, without_user_info

if TYPE_CHECKING:
    import aiohttp

START = 16
"""Requests at once to an endpoint, at first."""
_CEILING = 1024
_GROWTH = 1.5
_PAYS = 1.05  # a higher limit has to bring at least this ratio of throughput to be kept
_HOLD = 8  # windows before a rise is tried again
_HALVE_EVERY = 1.0  # seconds: a burst of 429s is one piece of news


UNLIMITED = sys.maxsize
"""The fixed limit of a model that answers in this process, at once."""


class Limiter:
    """Slots of one endpoint, given in the order of asking, to urgent calls first.

    With `fixed` the number of slots is exactly that. Without, it starts low and rises as long as
    throughput rises with it; a rise that did not pay is taken back, and tried again after a while.
    It halves when the endpoint says that it is too much (429); a `Retry-After` closes the endpoint
    for that long.
    """

    def __init__(self, fixed: int | None = None) -> None:
        self.limit = fixed or START
        self.in_use = 0
        self._adaptive = fixed is None
        self._urgent: deque[asyncio.Future[None]] = deque()
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._closed_until = 0.0
        self._over = False
        self._last_cut = 0.0
        self._before: tuple[int, float] | None = None
        """Limit and throughput before the last rise."""
        self._hold = 0
        self._begin_window()

    async def acquire(self, *, urgent: bool = False) -> None:
        """Wait for a slot; who is urgent comes before who is not."""
        if self._over or (
            self.in_use < self.limit and not self._waiting and not self._urgent and not self._closed
        ):
            self.in_use += 1
            return
        slot: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        (self._urgent if urgent else self._waiting).append(slot)
        self._hand_out()
        try:
            await slot
        except asyncio.CancelledError:
            if (
                slot.done() and not slot.cancelled()
            ):  # the slot was handed over just as the waiter was cancelled
                self.release()
            raise

    def release(self) -> None:
        """Give a slot back."""
        self.in_use -= 1
        self._hand_out()

    def open(self) -> None:
        """Have nobody wait any more: all are let through, to learn that there is nothing more to
        do.
        """
        self._over = True
        self._hand_out()

    @property
    def _closed(self) -> bool:
        return self._closed_until > time.monotonic()

    def _hand_out(self) -> None:
        while (self._urgent or self._waiting) and (
            self._over or (self.in_use < self.limit and not self._closed)
        ):
            slot = (self._urgent or self._waiting).popleft()
            if not slot.done():
                self.in_use += 1
                slot.set_result(None)

    def _begin_window(self) -> None:
        self._done = 0
        self._was_full = True
        self._started = time.monotonic()

    def succeeded(self) -> None:
        """Note one answer; after each window of them, look whether the limit is right."""
        if not self._adaptive:
            return
        self._done += 1
        self._was_full = self._was_full and bool(self._urgent or self._waiting)
        if (
            self._done == self.limit
        ):  # what was asked under the old limit has come in by now: measure from here
            self._started = time.monotonic()
        elif self._done >= 2 * self.limit:
            if self._was_full:  # slots were the bottleneck: the rate tells what this limit brings
                self._adapt(self.limit / max(time.monotonic() - self._started, 1e-9))
            self._begin_window()
            self._hand_out()

    def _adapt(self, rate: float) -> None:
        if self._hold:
            self._hold -= 1
            return
        if self._before is not None and rate <= self._before[1] * _PAYS:
            self.limit = self._before[0]
            self._before, self._hold = None, _HOLD
        elif self.limit < _CEILING:
            self._before = (self.limit, rate)
            self.limit = min(max(int(self.limit * _GROWTH), self.limit + 1), _CEILING)
        else:
            self._before = None

    def throttled(self, retry_after: float | None) -> None:
        """Note a 429: halve the limit (once for what was in flight), and keep to the
        `Retry-After`.
        """
        now = time.monotonic()
        if retry_after:
            self._closed_until = max(self._closed_until, now + retry_after)
            asyncio.get_running_loop().call_later(retry_after + 0.001, self._hand_out)
        if self._adaptive and now - self._last_cut > _HALVE_EVERY:
            self.limit = max(self.limit // 2, 1)
            self._last_cut = now
            self._before, self._hold = None, _HOLD
            self._begin_window()


# Any OpenAI-compatible chat-completions endpoint, over one keep-alive session
# ------------------------------------------------------------------------------

ATTEMPT_SECONDS = 600.0
"""Deadline of one attempt; a long chain of reasoning takes minutes."""

# Prose may say which failure it was, or that a field is to be left out; what ends as a grade is
# told by fields alone.
_UNKNOWN_MODEL = re.compile(
    r"model_not_found|model_not_available|invalid_model|does not exist|unknown model", re.I
)
STRUCTURED = re.compile(
    r"(response|output)_(format|schema|config)|json_schema|structured.outputs?", re.I
)
"""What an error names where it is structured output that a model does not take."""
_NO_CREDIT = re.compile(
    r"insufficient_quota|insufficient balance|check your plan and billing details", re.I
)
_CONTENT = re.compile(
    r"moderation|usage (guidelines|polic)|safety_check|content.{0,40}(violat|polic|filter)", re.I
)
"""What a 403 says where it was one prompt that was not liked, and not the key."""
_ASTRIDE = 2**16
_MOST_READ = 2000
"""Characters of each field of an error that are looked through."""
_LONGEST_WAIT = 300.0
"""Seconds; a provider that asks for a longer wait gets this one."""
LONGEST_REPLY = 64 * 2**20
"""Bytes; a server that sends more is cut off."""
_RETRIED = ("unsupported_field", "rate_limited", "server")
"""Kinds of failure that another attempt may mend."""
FATAL = ("unauthorized", "no_credit", "unknown_model")
"""Kinds that every further call to the model would meet."""
_OPTIONAL_FIELDS = (
    "temperature",
    "reasoning_effort",
    "max_tokens",
    "max_completion_tokens",
    "response_format",
)
_OTHER_LIMIT_FIELD = {"max_tokens": "max_completion_tokens", "max_completion_tokens": "max_tokens"}


class HttpSession(AsyncExitStack):
    """The connections of one run: one session, and one limiter for each endpoint, shared by the
    models it serves. Whatever else the run has opened is closed with them.
    """

    def __init__(self, max_connections: int | None = None) -> None:
        super().__init__()
        self._max_connections = max_connections
        self._limiters: dict[str, Limiter] = {}
        self._session: aiohttp.ClientSession | None = None

    @property
    def session(self) -> aiohttp.ClientSession:
        """The session; a run that makes no call loads nothing for it."""
        if self._session is None:
            import aiohttp

            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=60, ttl_dns_cache=300),
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=ATTEMPT_SECONDS, sock_connect=30),
            )
            self.push_async_callback(self._session.close)
        return self._session

    def limiter(self, endpoint: str, fixed: int | None = None) -> Limiter:
        """Return the limiter of an endpoint; `fixed` is for one that does not adapt, and that the
        user set no number for.
        """
        return self._limiters.setdefault(endpoint, Limiter(self._max_connections or fixed))


class ChatModel:
    """One model behind one endpoint."""

    def __init__(self, name: str, endpoint: Endpoint, http: HttpSession) -> None:
        self.identity = name
        self.limiter = http.limiter(endpoint.base_url)
        self._endpoint = endpoint
        self._http = http
        self._url = f"{endpoint.base_url}/chat/completions"
        self._secrets = Secrets([endpoint.api_key or ""])
        self._limit_field = endpoint.limit_field
        self._unsupported: set[str] = set()
        self.notices: list[str] = []
        self._headers = {"Content-Type": "application/json"}
        if endpoint.api_key:
            self._headers["Authorization"] = f"Bearer {endpoint.api_key}"
        self._way: dict[str, Any] = {}
        if proxy := proxy_for(endpoint.base_url):
            self._way = {"proxy": proxy.address, "proxy_headers": proxy.headers}
            if not self._url.startswith(
                "https:"
            ):  # such a request goes to the proxy itself, which reads its headers
                self._headers |= proxy.headers

    async def attempt(self, call: Call) -> Attempt:
        """Make one request and say what came of it; nothing is raised but cancellation."""
        from aiohttp import ClientError

        structured = bool(call.sampling.json_schema)
        started = time.monotonic()
        try:
            async with self._http.session.post(
                self._url,
                data=canonical_json(self._body(call)),
                headers=self._headers,
                **self._way,
                allow_redirects=False,
            ) as response:
                status, headers = response.status, response.headers
                reply = await _body_of(response)
                if reply is None:
                    line = (
                        f"{status} from {self._endpoint.base_url}: a reply of more than"
                        f" {LONGEST_REPLY >> 20} MiB"
                    )
                    return Failure(kind="malformed", error=line, seconds=time.monotonic() - started)
                # of an error no more is kept, and no more is looked through: a key may stand
                # astride the cut
                reply = self._secrets.scrub_bytes(
                    reply if status == 200 else reply[: LONGEST_ERROR + _ASTRIDE]
                )
        except (ClientError, TimeoutError, OSError) as error:
            return Failure(
                kind="connection",
                error=(
                    f"no answer from {self._endpoint.base_url}:"
                    f" {self._scrub(str(error) or type(error).__name__)}"
                ),
                retry=True,
                seconds=time.monotonic() - started,
            )
        seconds = time.monotonic() - started
        if status == 200:
            try:
                return Replied(read_reply(reply), reply, seconds)
            except NotAnAnswer as error:
                return no_answer(error, reply, seconds)
            except ValueError as error:
                return self._unreadable(reply, str(error), seconds, structured=structured)
        return self._refusal_or_failure(
            status, reply, headers.get("Retry-After"), seconds, structured=structured
        )

    def _body(self, call: Call) -> dict[str, Any]:
        sampling = call.sampling
        structured = {
            "type": "json_schema",
            "json_schema": {"name": "reply", "strict": True, "schema": sampling.json_schema},
        }
        fields: dict[str, Any] = {
            "model": self._endpoint.model,
            "messages": [
                {"role": message.role, "content": message.content} for message in call.messages
            ],
            self._limit_field: sampling.max_tokens,
            "temperature": sampling.temperature,
            "reasoning_effort": sampling.reasoning_effort,
            "response_format": structured if sampling.json_schema else None,
        }
        taken = {
            name: value
            for name, value in fields.items()
            if value is not None and name not in self._unsupported
        }
        return taken | sampling.extra

    def _unreadable(
        self, reply: bytes, complaint: str, seconds: float, *, structured: bool
    ) -> Attempt:
        """A 200 that is no completion: an error in disguise (some gateways), or a broken reply."""
        if isinstance(code := error_of(reply).get("code"), int) and 400 <= code < 600:
            return self._refusal_or_failure(code, reply, None, seconds, structured=structured)
        return Failure(
            kind="malformed",
            error=self._scrub(complaint),
            retry=True,
            body=reply[:LONGEST_ERROR],
            seconds=seconds,
        )

    def _refusal_or_failure(
        self,
        status: int,
        reply: bytes,
        retry_after: str | None,
        seconds: float,
        *,
        structured: bool,
    ) -> Attempt:
        error = error_of(reply)
        told = " ".join(
            str(error[field])[:_MOST_READ]
            for field in ("code", "type", "message", "innererror", "metadata")
            if error.get(field)
        )
        message = self._scrub(
            str(error.get("message") or "") or reply[:LONGEST_ERROR].decode("utf-8", "replace")
        )
        if status in REFUSING and is_filter(error):
            return Replied(Refused(reason=one_line(message)), reply, seconds)
        adapted = status in (400, 422) and self._adapt(error, told, structured=structured)
        kind = "unsupported_field" if adapted else kind_of_error(status, told)
        variable = self._endpoint.key_variable
        hint = {
            "unauthorized": f" (check {variable})",
            "no_credit": f" (the account behind {variable})",
        }.get(kind, "")
        return Failure(
            kind=kind,
            error=f"{status} from {self._endpoint.base_url}: {message}{hint}",
            retry=kind in _RETRIED,
            fatal=kind in FATAL,
            throttled=kind == "rate_limited",
            retry_after=_seconds(retry_after) if kind in _RETRIED else None,
            body=reply[:LONGEST_ERROR],
            seconds=seconds,
        )

    def _adapt(self, error: dict[str, Any], told: str, *, structured: bool) -> bool:
        """Leave out, or rename, a field that this model does not take; tell whether anything
        changed.

        `structured` tells whether the request asked for structured output.

        Reasoning models refuse `temperature`, and newer ones take `max_completion_tokens` for
        `max_tokens`; both say so.
        """
        named = error.get("param") or next(
            (field for field in _OPTIONAL_FIELDS if f"'{field}'" in told), None
        )
        if structured and STRUCTURED.search(f"{named} {told}"):
            named = "response_format"  # servers without it say so in many ways
        elif named not in _OPTIONAL_FIELDS or not re.search(r"unsupported|not support", told, re.I):
            return False
        if named == self._limit_field and _OTHER_LIMIT_FIELD[named] not in self._unsupported:
            self._limit_field = _OTHER_LIMIT_FIELD[named]
        elif named not in self._unsupported:  # else another request found out first
            self.notices.append(f"{self.identity}: does not take {named}; it was asked without")
        self._unsupported.add(str(named))
        return True

    def _scrub(self, text: str) -> str:
        return one_line(without_user_info(self._secrets.scrub(text)), 300)


def kind_of_error(status: int, told: str) -> str:
    """Tell what failed, by the HTTP status of an error that no filter's field explains, and by what
    it says.
    """
    match status:
        case 403 if _CONTENT.search(told):
            return "rejected"
        case 401 | 403:
            return "unauthorized"
        case 402:
            return "no_credit"
        case 404:
            return "unknown_model"
        case 400 if _UNKNOWN_MODEL.search(told):
            return "unknown_model"
        case 429:
            return "no_credit" if _NO_CREDIT.search(told) else "rate_limited"
        case 408 | 409 | 425:
            return "server"
        case _:
            return "server" if status >= 500 else "rejected"


async def _body_of(response: aiohttp.ClientResponse) -> bytes | None:
    """Return the body; None where it is longer than any answer can be."""
    body = bytearray()
    async for part in response.content.iter_any():
        body += part
        if len(body) > LONGEST_REPLY:
            return None
    return bytes(body)


def bounded_wait(seconds: float) -> float | None:
    """Return how long to wait for a provider that asks for so many seconds; None where it asks for
    no number.
    """
    return min(max(seconds, 0.0), _LONGEST_WAIT) if isfinite(seconds) else None


def _seconds(retry_after: str | None) -> float | None:
    """Read `Retry-After`: seconds, or a date. None where it is neither."""
    if not retry_after or len(retry_after) > 100:
        return None
    with suppress(ValueError):
        return bounded_wait(float(retry_after))
    try:
        return bounded_wait(parsedate_to_datetime(retry_after).timestamp() - time.time())
    except (
        ValueError,
        OverflowError,
        TypeError,
        IndexError,
    ):  # as the years and zones of a hostile date have it
        return None


# Keys are taken out of whatever a server sends back
# ------------------------------------------------------------------

SHORTEST_KEY = 8
"""Shorter ones ("none", "x") are no secrets, and would be found in ordinary words."""

_MASK = b"***"
_SHORT = '/"\\'
"""Characters that JSON escapes by a backslash alone."""


class Secrets:
    """Values that must not be quoted: as they are, and as JSON may write them, each character
    escaped or not.
    """

    def __init__(self, values: Iterable[str]) -> None:
        secrets = sorted(
            {value for value in values if len(value) >= SHORTEST_KEY}, key=len, reverse=True
        )
        self._raw = [value.encode("utf-8", "surrogateescape") for value in secrets]
        self._begun = re.compile(
            _any_escape(set("".join(secrets))).encode("utf-8", "surrogateescape")
        )
        """Whether any of their characters is there in escapes: this is looked for in every reply,
        and hardly ever found.
        """
        pattern = "|".join("".join(map(_in_json, value)) for value in secrets)
        self._escaped = re.compile(pattern.encode("utf-8", "surrogateescape"))

    def scrub(self, text: str) -> str:
        """Return a text without them."""
        return self.scrub_bytes(text.encode("utf-8", "surrogatepass")).decode(
            "utf-8", "surrogatepass"
        )

    def scrub_bytes(self, body: bytes) -> bytes:
        """Return a body without them."""
        if self._raw and self._begun.search(body):
            body = self._escaped.sub(_MASK, body)
        for value in self._raw:
            body = body.replace(value, _MASK)
        return body


def _any_escape(chars: set[str]) -> str:
    """Return a pattern for any of these characters in escapes."""
    codes = sorted({"".join(map(_digit, digits)) for char in chars for digits in _codes(char)})
    short = [re.escape(char) for char in sorted(chars) if char in _SHORT]
    return rf"\\(?:u(?:{'|'.join(codes)}){''.join(f'|{char}' for char in short)})"


def _in_json(char: str) -> str:
    """Return a pattern for a character as it stands in JSON, also in JSON that a string of JSON
    holds.
    """
    code = "".join(r"\\+u" + "".join(map(_digit, digits)) for digits in _codes(char))
    plain = (r"\\*" if char in _SHORT else "") + re.escape(char)
    return f"(?:{code}|{plain})"


def _codes(char: str) -> list[str]:
    units = char.encode("utf-16-be", "surrogatepass")
    return [units[at : at + 2].hex() for at in range(0, len(units), 2)]


def _digit(digit: str) -> str:
    return digit if digit.isdigit() else f"[{digit}{digit.upper()}]"
