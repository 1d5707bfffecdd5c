"""Any OpenAI-compatible chat-completions endpoint, over one keep-alive session."""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AsyncExitStack, suppress
from email.utils import parsedate_to_datetime
from math import isfinite
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from opensafeintent.calls.limiter import Limiter
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
from opensafeintent.canonical import canonical_json
from opensafeintent.hostile import one_line, without_user_info

if TYPE_CHECKING:
    import aiohttp


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


class HttpSession:
    """The connections of one run: one session, and one limiter for each endpoint, shared by the
    models it serves.
    """

    def __init__(self, max_connections: int | None = None) -> None:
        self._max_connections = max_connections
        self._limiters: dict[str, Limiter] = {}
        self._session: aiohttp.ClientSession | None = None
        self._others = AsyncExitStack()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        async with self._others:
            if self._session is not None:
                await self._session.close()

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
        return self._session

    def limiter(self, endpoint: str, fixed: int | None = None) -> Limiter:
        """Return the limiter of an endpoint; `fixed` is for one that does not adapt, and that the
        user set no number for.
        """
        if endpoint not in self._limiters:
            self._limiters[endpoint] = Limiter(self._max_connections or fixed)
        return self._limiters[endpoint]

    def closing(self, close: Callable[[], Awaitable[None]]) -> None:
        """Have what another part has opened closed when the session ends."""
        self._others.push_async_callback(close)


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

        body = canonical_json(self._body(call))
        structured = bool(call.sampling.json_schema)
        started = time.monotonic()
        try:
            async with self._http.session.post(
                self._url,
                data=body,
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
        schema = {"name": "reply", "strict": True, "schema": sampling.json_schema}
        structured = {"type": "json_schema", "json_schema": schema}
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
        fields = {
            name: value
            for name, value in fields.items()
            if value is not None and name not in self._unsupported
        }
        return fields | sampling.extra

    def _unreadable(
        self, reply: bytes, complaint: str, seconds: float, *, structured: bool
    ) -> Attempt:
        """A 200 that is no completion: an error in disguise (some gateways), or a broken reply."""
        if isinstance(code := error_of(reply).get("code"), int) and 400 <= code < 600:
            return self._refusal_or_failure(code, reply, None, seconds, structured=structured)
        line = self._scrub(complaint)
        return Failure(
            kind="malformed", error=line, retry=True, body=reply[:LONGEST_ERROR], seconds=seconds
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
        fields = (
            error.get(field) for field in ("code", "type", "message", "innererror", "metadata")
        )
        told = " ".join(str(value)[:_MOST_READ] for value in fields if value)
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
            self._unsupported.add(named)
            self._limit_field = _OTHER_LIMIT_FIELD[named]
            return True
        if (
            named in self._unsupported
        ):  # another request found out first; this one was already on its way
            return True
        self._unsupported.add(str(named))
        self.notices.append(f"{self.identity}: does not take {named}; it was asked without")
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
