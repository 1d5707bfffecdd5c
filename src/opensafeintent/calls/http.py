"""Any OpenAI-compatible chat-completions endpoint, over one keep-alive session, with a limiter for
each endpoint.
"""

from __future__ import annotations

import asyncio
import errno
import os
import re
import select
import sys
import threading
import time
from array import array
from base64 import b64encode
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable
from contextlib import AsyncExitStack, suppress
from contextvars import ContextVar
from email.utils import parsedate_to_datetime
from functools import lru_cache
from html import unescape
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote
from weakref import WeakKeyDictionary

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
        self.notice = ""
        """Says that there are fewer slots than were asked for."""
        self._ceiling = _CEILING
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

    def bound(self, most: int) -> None:
        """Give no more slots than connections can be opened."""
        if not self._adaptive and self.limit > most:
            self.notice = (
                f"--max-connections: {most:,} to an endpoint at most: the limit of open files"
                " (ulimit -n) leaves no more"
            )
        self._ceiling = min(self._ceiling, most)
        self.limit = min(self.limit, most)

    def open(self) -> None:
        """End all waits: all are let through, to learn that there is nothing more to do."""
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
        ):  # requests under the old limit have ended by now: measure from here
            self._started = time.monotonic()
        elif self._done >= 2 * self.limit:
            if self._was_full:  # slots were the bottleneck: the rate shows the effect of this limit
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
        elif self.limit < self._ceiling:
            self._before = (self.limit, rate)
            self.limit = min(max(int(self.limit * _GROWTH), self.limit + 1), self._ceiling)
        else:
            self._before = None

    def throttled(self, retry_after: float | None) -> None:
        """Note a 429: halve the limit (once for all requests in flight), and obey `Retry-After`."""
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

# Prose may name the failure, or a field to leave out; only structured fields decide on grades.
_UNKNOWN_MODEL = re.compile(
    r"model_not_found|model_not_available|invalid_model|does not exist|unknown model", re.I
)
STRUCTURED = re.compile(
    r"(response|output)_(format|schema|config)|json_schema|structured.outputs?", re.I
)
"""Names of structured output in an error of a model that does not support it."""
_NO_CREDIT = re.compile(
    r"insufficient_quota|insufficient balance|check your plan and billing details", re.I
)
_CONTENT = re.compile(
    r"moderation|usage (guidelines|polic)|safety_check|content.{0,40}(violat|polic|filter)", re.I
)
"""Words of a 403 that refuses one prompt, and not the key."""
_ASTRIDE = 2**16
_MOST_READ = 2000
"""Characters of each field of an error that are looked through."""
_LONGEST_WAIT = 300.0
"""Seconds; a provider that asks for a longer wait gets this one."""
LONGEST_REPLY = 64 * 2**20
"""Bytes; a server that sends more is cut off."""
_RETRIED = ("unsupported_field", "rate_limited", "server")
"""Kinds of failure that another attempt may fix."""
FATAL = ("unauthorized", "no_credit", "unknown_model")
"""Kinds that every further call to the model would meet."""
_OPTIONAL_FIELDS = (
    "temperature",
    "reasoning_effort",
    "max_tokens",
    "max_completion_tokens",
    "response_format",
)
_REPLY_ID = re.compile(rb'"id"\s*:\s*"([^"]+)"')
_REPLIES_REMEMBERED = 1_000
"""By connection."""
_used: ContextVar[tuple[Any, dict[int, int]]] = ContextVar("used")
"""The connection of this task's last request, and the hashes of the replies on it, each with that
of its request.
"""
_OTHER_LIMIT_FIELD = {"max_tokens": "max_completion_tokens", "max_completion_tokens": "max_tokens"}


_OTHER_FILES = 32
"""Open files that connections leave to everything else."""


def _files_left() -> int:
    """Return how many connections this process can open, by its limit of open files."""
    try:
        import resource
    except ImportError:  # not on Windows
        return _CEILING
    files = Path("/dev/fd")
    in_use = len([*files.iterdir()]) if files.is_dir() else 0
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return (soft if soft >= 0 else sys.maxsize) - in_use - _OTHER_FILES


class HttpSession(AsyncExitStack):
    """The connections of one run: one session, and one limiter for each endpoint, shared by its
    models. Other resources that the run opened are closed with them.
    """

    def __init__(self, max_connections: int | None = None) -> None:
        super().__init__()
        self._max_connections = max_connections
        self._limiters: dict[str, Limiter] = {}
        self._connecting: dict[str, Limiter] = {}
        """Those of them whose slots are connections."""
        self._room = _files_left()
        self._session: aiohttp.ClientSession | None = None
        self._doubted: set[bytes] = set()
        """Ids of replies that arrived for two requests."""
        self._aside: asyncio.AbstractEventLoop | None = None

    @property
    def aside(self) -> asyncio.AbstractEventLoop:
        """The loop of the user's async functions, in a thread of its own. A function that blocks
        it, stops it or cancels its tasks delays no other work, and the end of the run does not wait
        for it.
        """
        if self._aside is None:
            runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
            self._aside = loop = runner.get_loop()
            over = threading.Event()

            def run() -> None:
                with runner:
                    while not over.is_set():
                        with suppress(BaseException):  # anything a function does to the loop
                            loop.run_forever()

            threading.Thread(target=run, daemon=True).start()
            self.callback(loop.call_soon_threadsafe, loop.stop)
            self.callback(over.set)
        return self._aside

    @property
    def session(self) -> aiohttp.ClientSession:
        """The session; a run that makes no call loads nothing for it."""
        if self._session is None:
            import aiohttp

            heard: WeakKeyDictionary[Any, dict[int, int]] = WeakKeyDictionary()

            class Pool(aiohttp.TCPConnector):
                async def connect(self, *args: Any, **options: Any) -> aiohttp.connector.Connection:
                    """Return a connection without unread bytes, which would be read as the reply to
                    the next request.
                    """
                    connection = await super().connect(*args, **options)
                    while connection.protocol in heard and _has_unread(connection):
                        connection.close()
                        connection = await super().connect(*args, **options)
                    protocol = connection.protocol
                    _used.set((protocol, heard.setdefault(protocol, {})))
                    return connection

            self._session = aiohttp.ClientSession(
                connector=Pool(limit=0, keepalive_timeout=60, ttl_dns_cache=300),
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=ATTEMPT_SECONDS, sock_connect=30),
            )
            self.push_async_callback(self._session.close)
        return self._session

    def limiter(self, endpoint: str, fixed: int | None = None) -> Limiter:
        """Return the limiter of an endpoint; `fixed` is for one that does not adapt, and that the
        user set no number for.
        """
        shared = self._limiters.setdefault(endpoint, Limiter(self._max_connections or fixed))
        if fixed is None:
            self._connecting[endpoint] = shared
            for limiter in self._connecting.values():
                limiter.bound(max(self._room // len(self._connecting), 1))
        return shared

    def came_before(self, reply: bytes, request: int) -> bool:
        """Tell whether the reply to this task's last request already came on this connection, to
        another request.

        The connection is then closed, because each further reply on it belongs to another request
        as well. A reply without an id cannot be distinguished from one with equal text. An id that
        repeats on a new connection is one that the server gives to many replies.
        """
        protocol, heard = _used.get()
        if len(heard) >= _REPLIES_REMEMBERED:
            heard.clear()
        if heard.setdefault(hash(reply), request) == request:
            return False
        named = _REPLY_ID.search(reply)
        if named is None or named[1] in self._doubted:
            return False
        self._doubted.add(named[1])
        protocol.close()
        return True


class ChatModel:
    """One model behind one endpoint."""

    def __init__(self, name: str, endpoint: Endpoint, http: HttpSession) -> None:
        self.identity = name
        self.limiter = http.limiter(endpoint.base_url)
        self._endpoint = endpoint
        self._http = http
        self._url = f"{endpoint.base_url}/chat/completions"
        self._limit_field = endpoint.limit_field
        self._unsupported: set[str] = set()
        self.notices: list[str] = []
        self._headers = {"Content-Type": "application/json"}
        if endpoint.api_key:
            self._headers["Authorization"] = f"Bearer {endpoint.api_key}"
        self._way: dict[str, Any] = {}
        proxy = proxy_for(endpoint.base_url)
        self._secrets = Secrets([endpoint.api_key or "", *(proxy.secrets if proxy else ())])
        if proxy:
            self._way = {"proxy": proxy.address, "proxy_headers": proxy.headers}
            if not self._url.startswith(
                "https:"
            ):  # a request of this kind goes to the proxy itself, which reads its headers
                self._headers |= proxy.headers

    async def attempt(self, call: Call) -> Attempt:
        """Make one request and return its result; nothing is raised but cancellation."""
        from aiohttp import ClientError

        structured = bool(call.sampling.json_schema)
        body = canonical_json(self._body(call))
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
                answered = 200 <= status < 300
                reply = await _body_of(response)
                if reply is None:
                    line = (
                        f"{status} from {self._endpoint.base_url}: a reply of more than"
                        f" {LONGEST_REPLY >> 20} MiB"
                    )
                    return Failure(kind="malformed", error=line, seconds=time.monotonic() - started)
                # no more of an error is kept or searched: a key may lie across the cut
                reply = self._secrets.scrub_bytes(
                    reply if answered else reply[: LONGEST_ERROR + _ASTRIDE]
                )
                if self._http.came_before(reply, hash(body)):
                    raise ClientError("an earlier reply came again; the connection was closed")
        except (ClientError, TimeoutError, OSError) as error:
            full = getattr(error, "errno", None) in (errno.EMFILE, errno.ENFILE)
            return Failure(
                kind="open_files" if full else "connection",
                error=(
                    f"no answer from {self._endpoint.base_url}:"
                    f" {self._scrub(str(error) or type(error).__name__)}"
                ),
                retry=True,
                throttled=full,
                seconds=time.monotonic() - started,
            )
        seconds = time.monotonic() - started
        if answered:
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
        text = " ".join(
            str(error[field])[:_MOST_READ]
            for field in ("code", "type", "message", "innererror", "metadata")
            if error.get(field)
        )
        message = self._scrub(
            str(error.get("message") or "") or reply[:LONGEST_ERROR].decode("utf-8", "replace")
        )
        if status in REFUSING and is_filter(error):
            return Replied(Refused(reason=one_line(message)), reply, seconds)
        adapted = status in (400, 422) and self._adapt(error, text, structured=structured)
        kind = "unsupported_field" if adapted else kind_of_error(status, text)
        variable = self._endpoint.key_variable
        place, known = self._endpoint.base_url, self._endpoint.url_variable
        hint = {
            "unauthorized": f" (check {variable})",
            "no_credit": f" (the account behind {variable})",
        }.get(kind, "")
        if status == 404:
            hint = "" if _API_VERSION.search(place) else f" (does {known} lack /v1 at its end?)"
            place = self._url
        return Failure(
            kind=kind,
            error=f"{status} from {place}: {message}{hint}",
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

        Reasoning models refuse `temperature`, and newer ones expect `max_completion_tokens`, not
        `max_tokens`. Both say so.
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


_API_VERSION = re.compile(r"/v\d")
"""A part of the base URL of most servers."""


def kind_of_error(status: int, told: str) -> str:
    """Return the kind of failure, from the HTTP status of an error that no filter's field explains,
    and from its text.
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


def _has_unread(connection: Any) -> bool:
    """Tell whether a connection has unread bytes, here or in the system."""
    if connection.protocol.should_close or sys.platform == "win32":
        return bool(connection.protocol.should_close)
    poll = select.poll()
    poll.register(connection.transport.get_extra_info("socket").fileno(), select.POLLIN)
    return bool(poll.poll(0))


async def _body_of(response: aiohttp.ClientResponse) -> bytes | None:
    """Return the body; None if it is longer than any answer can be."""
    body = bytearray()
    async for part in response.content.iter_any():
        body += part
        if len(body) > LONGEST_REPLY:
            return None
    return bytes(body)


def bounded_wait(seconds: float) -> float | None:
    """Return the wait for a provider that requests so many seconds; None if it names no number."""
    return min(max(seconds, 0.0), _LONGEST_WAIT) if isfinite(seconds) else None


def _seconds(retry_after: str | None) -> float | None:
    """Read `Retry-After`: seconds, or a date. None if it is neither."""
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
    ):  # a hostile date has impossible years and zones
        return None


# Secrets are taken out of all that is stored or printed
# ------------------------------------------------------------------

SHORTEST_KEY = 8
"""Shorter ones ("none", "x") are no secrets, and would be found in ordinary words."""
_LONGEST_WORD = 15
"""Letters of a variable's value that is a word and no secret: "disabled"."""

_MASK = b"***"
_LAYERS = 4
"""Of escapes within escapes: HTML in JSON in JSON."""
_SECRET = re.compile(r"KEY|TOKEN|SECRET|PASSWORD|CREDENTIAL", re.I)
"""Words in the name of a variable whose value is a secret."""
_USER_INFO = re.compile(r"(?:^|://)([^\s/?#]*:[^\s/?#]*)@")


def known_secrets() -> Secrets:
    """Return the secrets in the environment: values of variables that are named like keys, and the
    users and passwords in URLs.
    """
    values: list[str] = []
    for name, value in os.environ.items():
        if _SECRET.search(name) and not (value.isalpha() and len(value) <= _LONGEST_WORD):
            values.append(value.strip())
        if ("://" in value or "PROXY" in name.upper()) and (match := _USER_INFO.search(value)):
            user_info = unquote(match[1])
            values += [user_info, user_info.partition(":")[2]]
    return _secrets_of(tuple(values))


class Secrets:
    """Values that must not be quoted: as they are, in base64, and with any of their characters in
    the escapes of JSON, URLs and HTML.
    """

    def __init__(self, values: Iterable[str]) -> None:
        secrets = {value for value in values if len(value) >= SHORTEST_KEY}
        forms = secrets.union(*map(_in_base64, secrets))
        self._forms = [form.encode("utf-8", "surrogateescape") for form in forms]
        chars = "".join(secrets)
        digit = "[0-9a-fA-F]"
        unit = f"u00[0-7]{digit}"
        if not chars.isascii():
            unit = rf"u[dD][89abAB]{digit}{{2}}\\u[dD]{digit}{{3}}|u{digit}{{4}}"
        quote = '"' if '"' in chars else ""
        escapes = (
            rf"\\(?:{unit}|[/\\{quote}])",
            f"%{digit}{{2}}",
            f"&(?:#[0-9]{{1,8}};?|#[xX]{digit}{{1,7}};?|[A-Za-z]{{2,20}};)",
        )
        self._begun = [re.compile(escape.encode()) for escape in escapes]
        """Each is looked for in every reply, which takes less time than all at once."""
        self._escape = re.compile("|".join(escapes).encode())

    def scrub(self, text: str) -> str:
        """Return a text without them."""
        return self.scrub_bytes(text.encode("utf-8", "surrogatepass")).decode(
            "utf-8", "surrogatepass"
        )

    def scrub_bytes(self, body: bytes) -> bytes:
        """Return a body without them."""
        if not self._forms or not (spans := self._spans(body, _LAYERS)):
            return body
        kept, end = bytearray(), 0
        for start, stop in sorted(spans):
            if start >= end:
                kept += body[end:start] + _MASK
            end = max(end, stop)
        return bytes(kept + body[end:])

    def _spans(self, body: bytes, layers: int) -> list[tuple[int, int]]:
        """Return their spans in a body, under at most this many layers of escapes."""
        spans = [
            match.span()
            for form in self._forms
            if form in body
            for match in re.finditer(re.escape(form), body)
        ]
        if not layers or not any(begun.search(body) for begun in self._begun):
            return spans
        plain = bytearray()
        ends, sources = array("Q", [0]), array("Q", [0])  # of each escape: there, and in the body
        for escape in self._escape.finditer(body):
            plain += body[sources[-1] : escape.start()] + _unescaped(escape[0].decode())
            ends.append(len(plain))
            sources.append(escape.end())

        def source(place: int) -> int:
            before = bisect_right(ends, place) - 1
            return sources[before] + place - ends[before]

        deeper = self._spans(bytes(plain + body[sources[-1] :]), layers - 1)
        return spans + [(source(start), source(stop)) for start, stop in deeper]


_secrets_of = lru_cache(maxsize=4)(Secrets)


def _unescaped(escape: str) -> bytes:
    if escape[0] == "%":
        return bytes.fromhex(escape[1:])
    if escape[0] == "&":
        return unescape(escape).encode("utf-8", "surrogatepass")
    if "u" not in escape:
        return escape[-1:].encode()
    units = bytes.fromhex(escape.replace("\\u", ""))
    return units.decode("utf-16-be", "surrogatepass").encode("utf-8", "surrogatepass")


def _in_base64(secret: str) -> set[str]:
    """Return a secret in base64 for each offset in the encoded text, without the characters that
    also hold neighbouring bytes.
    """
    raw = secret.encode("utf-8", "surrogateescape")
    forms: set[str] = set()
    for before, first in enumerate((0, 2, 3)):
        form = b64encode(bytes(before) + raw).decode()[first : (before + len(raw)) * 8 // 6]
        forms |= {form, form.replace("+", "-").replace("/", "_")}
    return forms
