"""Any OpenAI-compatible chat-completions endpoint, over one keep-alive session, with a limiter for
each endpoint.
"""

from __future__ import annotations

import asyncio
import errno
import re
import select
import sys
import threading
import time
from contextlib import AsyncExitStack, suppress
from contextvars import ContextVar
from email.utils import parsedate_to_datetime
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from opensafeintent.calls.limiter import CEILING, Limiter
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
from opensafeintent.secrets import Secrets

if TYPE_CHECKING:
    import aiohttp

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
        return CEILING
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
