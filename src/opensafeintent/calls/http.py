"""Requests over HTTP: connections, proxies, retries, and what a reply means."""

from __future__ import annotations

import asyncio
import errno
import os
import re
import select
import sys
import threading
import time
from base64 import b64encode
from collections.abc import Collection, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from contextvars import ContextVar
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies, proxy_bypass
from weakref import WeakKeyDictionary

import msgspec

from opensafeintent.calls.left_out import LeftOut, find_named_field
from opensafeintent.calls.limiter import CEILING, FEW, START, Limiter
from opensafeintent.calls.outcomes import NotAnAnswer, no_answer
from opensafeintent.calls.provider_errors import (
    FATAL,
    LONGEST_ERROR,
    REFUSING,
    classify_error,
    is_filter,
    lacks_capacity,
    read_delay,
    read_error,
)
from opensafeintent.calls.providers import Endpoint, Provider, find_provider
from opensafeintent.calls.records import Attempt, Call, Failure, Refused, Replied
from opensafeintent.calls.replies import read_reply
from opensafeintent.calls.service_tiers import (
    FIELD,
    FLEX,
    FLEX_SECONDS,
    STANDARD,
    FlexTier,
    find_served_tier,
    read_tier,
)
from opensafeintent.errors import InputError
from opensafeintent.files import canonical_json
from opensafeintent.hostile import one_line, remove_url_credentials
from opensafeintent.secrets import Secrets, is_word

if TYPE_CHECKING:
    import aiohttp


_LOOPBACK = re.compile(r"localhost|127(\.\d+){3}|::1")


def is_loopback(base_url: str) -> bool:
    """Tell whether an address is one of this machine."""
    return _LOOPBACK.fullmatch(urlsplit(base_url).hostname or "") is not None


class Proxy(NamedTuple):
    """Address of a proxy, and our credentials there."""

    address: str
    """Without user and password: errors of connections contain it."""
    headers: dict[str, str]
    """Our credentials at the proxy."""
    secrets: tuple[str, ...] = ()
    """Parts that must not be quoted: user and password together, and the password."""


def proxy_for(base_url: str) -> Proxy | None:
    """Return the proxy for an endpoint; looked up once, not for every request.

    Raises:
        InputError: it cannot be used. The text does not quote the variable: a password may be
            anywhere in it.
    """
    parts = urlsplit(base_url)
    host = parts.hostname
    if host is None or _LOOPBACK.fullmatch(host) or proxy_bypass(host):
        return None
    named = getproxies().get(parts.scheme)
    if not named:
        return None
    try:
        return _proxy_at(named.strip() if "://" in named else f"http://{named.strip()}")
    except ValueError:
        lower = f"{parts.scheme}_proxy"
        raise InputError(
            f"{lower if os.environ.get(lower) else lower.upper()}: is not the address of an HTTP"
            " proxy; expected one such as http://proxy.example:3128"
        ) from None


def _proxy_at(url: str) -> Proxy:
    """Return a proxy from its URL.

    Raises:
        ValueError: no proxy can be there.
    """
    address = urlsplit(url)
    host = (address.hostname or "").encode("idna")
    further = address.path.strip("/") or address.query or address.fragment
    if address.scheme not in ("http", "https") or not host or address.port == 0 or further:
        raise ValueError("no proxy can be there")
    user = unquote(address.username or "")
    if ":" in user or re.search(r"\s", url):
        raise ValueError("a name that ends within, or white space")
    location = f"{address.scheme}://{address.netloc.rpartition('@')[2]}"
    if address.username is None:
        return Proxy(location, {})
    password = unquote(address.password or "")
    credentials = f"{user}:{password}"
    encoded = b64encode(credentials.encode()).decode()
    headers = {"Proxy-Authorization": f"Basic {encoded}"}
    return Proxy(location, headers, (credentials, password))


ATTEMPT_SECONDS = 600.0
"""Deadline of one attempt; a long chain of reasoning takes minutes."""

_LONG_REPLY = 1 << 20
"""Bytes of a reply beyond which secrets are looked for in a thread of its own."""
_SECRET_MARGIN = 2**16
"""Bytes of an error that are searched beyond those that are kept: a secret may lie across the end.
"""
LONGEST_REPLY = 64 * 2**20
"""Bytes; a server that sends more is cut off."""
_RETRIED = ("rate_limited", "server")
"""Kinds of failure that another attempt may fix."""
_REPLY_IDS = re.compile(rb'"(?:(?:\w*_)?id|\w*I[dD])"\s*:\s*"?([^",}\s]+)')
"""Fields of a reply that may name it, whatever the protocol."""
_REPLIES_REMEMBERED = 1_000
"""By connection."""
_used: ContextVar[tuple[Any, dict[int, int]]] = ContextVar("used")
"""The connection of this task's last request, and the hashes of the replies on it, each with that
of its request.
"""
_OTHER_FILES = 32
"""Open files that connections leave to everything else."""


def _files_left() -> int:
    """Return how many connections this process can open, by its limit of open files."""
    try:
        import resource
    # Windows has no such module
    except ImportError:
        return CEILING
    files = Path("/dev/fd")
    in_use = len([*files.iterdir()]) if files.is_dir() else 0
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return (soft if soft >= 0 else sys.maxsize) - in_use - _OTHER_FILES


class HttpSession(AsyncExitStack):
    """The connections of one run: one session, and one limiter for each endpoint, shared by its
    models. Other resources that the run opened are closed with them.

    Args:
        max_connections: requests at once to one endpoint; adaptive by default.
        timeout: seconds after which a request is given up, if the user set them.
    """

    def __init__(self, max_connections: int | None = None, timeout: float | None = None) -> None:
        super().__init__()
        self.timeout = timeout
        self._max_connections = max_connections
        self._limiters: dict[str, Limiter] = {}
        self._connecting: dict[str, Limiter] = {}
        """Those of them whose slots are connections."""
        self._room = _files_left()
        self._session: aiohttp.ClientSession | None = None
        self._doubted: set[bytes] = set()
        """Ids of replies that arrived for two requests."""
        self._function_loop: asyncio.AbstractEventLoop | None = None

    @property
    def attempt_seconds(self) -> float:
        """Seconds after which a request is given up."""
        return self.timeout or ATTEMPT_SECONDS

    @property
    def function_loop(self) -> asyncio.AbstractEventLoop:
        """The loop of the user's async functions, in a thread of its own. A function that blocks
        it, stops it or cancels its tasks delays no other work, and the end of the run does not wait
        for it.
        """
        if self._function_loop is None:
            runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
            self._function_loop = loop = runner.get_loop()
            over = threading.Event()

            def run() -> None:
                with runner:
                    while not over.is_set():
                        with suppress(BaseException):  # anything a function does to the loop
                            loop.run_forever()

            threading.Thread(target=run, daemon=True).start()
            self.callback(loop.call_soon_threadsafe, loop.stop)
            self.callback(over.set)
        return self._function_loop

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
                timeout=_deadline(self.attempt_seconds),
            )
            self.push_async_callback(self._session.close)
        return self._session

    def limiter(
        self, endpoint: str, default_limit: int | None = None, start: int = START
    ) -> Limiter:
        """Return the limiter of an endpoint.

        Args:
            endpoint: its address, or another name.
            default_limit: requests at once to one that does not adapt, if the user set no number.
            start: requests at once to one that adapts, at first.
        """
        shared = self._limiters.setdefault(
            endpoint, Limiter(self._max_connections or default_limit, start)
        )
        if default_limit is None:
            self._connecting[endpoint] = shared
            for limiter in self._connecting.values():
                limiter.limit_slots(max(self._room // len(self._connecting), 1))
        return shared

    def came_before(self, reply: bytes, request: int) -> bool:
        """Tell whether the reply to this task's last request already came on this connection, to
        another request.

        The connection is then closed, because each further reply on it belongs to another request
        as well. A reply without an id cannot be distinguished from one with equal text. If all ids
        in a reply repeat on a new connection, the server gives them to many replies.
        """
        protocol, heard = _used.get()
        if len(heard) >= _REPLIES_REMEMBERED:
            heard.clear()
        if heard.setdefault(hash(reply), request) == request:
            return False
        ids = _REPLY_IDS.findall(reply)
        if self._doubted.issuperset(ids):
            return False
        self._doubted.update(ids)
        protocol.close()
        return True


class Access(NamedTuple):
    """What every request to an endpoint has."""

    headers: dict[str, str]
    options: dict[str, Any]
    """Of aiohttp's request: the proxy."""
    secrets: Secrets
    """Texts that no reply or error may show."""


def access_to(endpoint: Endpoint) -> Access:
    """Return the headers of an endpoint's requests, with its key, and the proxy on the way."""
    headers = {"Content-Type": "application/json"}
    headers |= endpoint.protocol.headers(endpoint.api_key) | endpoint.headers
    proxy = proxy_for(endpoint.base_url)
    added = (value for value in endpoint.headers.values() if not is_word(value))
    secrets = Secrets([endpoint.api_key or "", *added, *(proxy.secrets if proxy else ())])
    if proxy is None:
        return Access(headers, {}, secrets)
    # a request without TLS goes to the proxy itself, which reads its headers
    if not endpoint.base_url.startswith("https:"):
        headers |= proxy.headers
    return Access(headers, {"proxy": proxy.address, "proxy_headers": proxy.headers}, secrets)


class EndpointModel:
    """One model behind one endpoint.

    Args:
        name: the model.
        endpoint: its address and key.
        http: the connections.
        left_out: fields that an earlier run found out that the model does not take.
        flex: its flex tier, if it is asked there.
    """

    def __init__(
        self,
        name: str,
        endpoint: Endpoint,
        http: HttpSession,
        left_out: Collection[str] = (),
        flex: FlexTier | None = None,
    ) -> None:
        self.identity = name
        self._flex = flex
        local = endpoint.local or is_loopback(endpoint.base_url)
        self.limiter = http.limiter(endpoint.base_url, start=FEW if local else START)
        self._left_out = LeftOut(left_out)
        self.endpoint = endpoint
        self._http = http
        self._protocol = endpoint.protocol
        self._url = endpoint.url
        self._headers, self._proxy_options, self._secrets = access_to(endpoint)

    @property
    def left_out(self) -> Collection[str]:
        """Fields of a request that it turned out not to take."""
        return self._left_out.fields

    @property
    def request_notes(self) -> Sequence[str]:
        """Notes on its requests for a reader of the results."""
        notice = self._flex.notice(self.identity) if self._flex else ""
        return [notice] if notice else []

    async def attempt(self, call: Call) -> Attempt:
        """Make one request and return its result, or a few, as fields turn out not to be taken or
        the flex tier has had no capacity for too long; nothing is raised but cancellation.
        """
        left_out = self._left_out
        tier = FLEX if self._flex is not None and self._asks_flex(call, self._flex) else ""
        refused: tuple[Failure, ...] = ()
        while True:
            if left_out.trials:
                await left_out.wait_for_trials()
            result, field = await self._request(call, tier, left_out.fields)
            if field is not None:
                again = partial(self._request, call, tier)
                result = await left_out.ask_without(field, result, again)
            if not tier or not self._falls_back(result):
                break
            assert isinstance(result, Failure)
            refused = (*result.refused, msgspec.structs.replace(result, refused=()))
            tier = ""
        if refused:
            result = msgspec.structs.replace(result, refused=(*refused, *result.refused))
        return result

    def _asks_flex(self, call: Call, flex: FlexTier) -> bool:
        """Tell whether a call is sent at the flex tier first."""
        named = FIELD in call.sampling.extra or FIELD in self._left_out.fields
        return not named and flex.takes_next()

    def _falls_back(self, result: Attempt) -> bool:
        """Note the result of a call at the flex tier; tell whether it goes to the standard tier."""
        assert self._flex is not None
        if isinstance(result, Replied) or result.replied:
            self._flex.note_answer()
        elif result.no_capacity:
            self._flex.note_lack()
            if self._flex.fell_back:
                self._flex.fallbacks += 1
                return True
        return False

    def build_fields(self, call: Call, left_out: Collection[str]) -> dict[str, Any]:
        """Return the fields of a call's request, without some that the model does not take."""
        return self._protocol.request(call, self.endpoint.model, left_out)

    async def _request(
        self, call: Call, tier: str, left_out: Collection[str]
    ) -> tuple[Attempt, str | None]:
        """Make a request; return the result, and the field that it names as not taken."""
        import aiohttp

        fields = self.build_fields(call, left_out)
        if tier and FIELD not in left_out:
            fields[FIELD] = tier
        body = canonical_json(fields)
        seconds_at_most = self._http.attempt_seconds
        if fields.get(FIELD) == FLEX:
            seconds_at_most = self._http.timeout or FLEX_SECONDS
        started = time.monotonic()
        try:
            async with self._http.session.post(
                self._url,
                data=body,
                headers=self._headers,
                timeout=_deadline(seconds_at_most),
                **self._proxy_options,
                allow_redirects=False,
            ) as response:
                status, headers = response.status, response.headers
                answered = 200 <= status < 300
                reply = await read_body(response)
                if reply is None:
                    line = (
                        f"{status} from {self.endpoint.base_url}: a reply of more than"
                        f" {LONGEST_REPLY >> 20} MiB"
                    )
                    seconds = time.monotonic() - started
                    return Failure(kind="malformed", error=line, seconds=seconds), None
                # no more of an error is kept or searched: a key may lie across the cut
                whole = reply if answered else reply[: LONGEST_ERROR + _SECRET_MARGIN]
                scrub = self._secrets.scrub_bytes
                # a long one beside the others: it can take seconds
                long = len(whole) > _LONG_REPLY
                reply = await asyncio.to_thread(scrub, whole) if long else scrub(whole)
                if self._http.came_before(reply, hash(body)):
                    raise aiohttp.ClientError(
                        "an earlier reply came again; the connection was closed"
                    )
        except aiohttp.ClientConnectorCertificateError as error:
            line = (
                f"no answer from {self.endpoint.base_url}: {self._scrub(str(error))}; if the"
                " certificate is right, SSL_CERT_FILE names a file with that of its authority"
            )
            seconds = time.monotonic() - started
            return Failure(kind="certificate", error=line, fatal=True, seconds=seconds), None
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            seconds = time.monotonic() - started
            return self._classify_no_reply(error, seconds, seconds_at_most), None
        return self.classify_reply(fields, status, reply, headers, time.monotonic() - started)

    def classify_reply(
        self,
        fields: Mapping[str, Any],
        status: int,
        reply: bytes,
        headers: Mapping[str, str],
        seconds: float,
    ) -> tuple[Attempt, str | None]:
        """Return the result that a reply is, and the field that it names as not taken.

        Args:
            fields: of the request.
            status: the HTTP status.
            reply: the body, without secrets.
            headers: of the reply.
            seconds: from the request to the reply.
        """
        field: str | None = None
        attempt: Attempt
        protocol = self._protocol
        if 200 <= status < 300:
            tier = find_served_tier(reply, headers, fields.get(FIELD))
            try:
                outcome = read_reply(reply, protocol)
                return Replied(outcome, reply, seconds, tier=tier, protocol=protocol.name), None
            except NotAnAnswer as error:
                attempt = no_answer(error, reply, seconds)
            except ValueError as error:
                attempt, field = self._unreadable(fields, reply, str(error), seconds)
        else:
            tier = read_tier(reply) or STANDARD
            attempt, field = self._classify_failure(fields, status, reply, headers, seconds)
        return msgspec.structs.replace(attempt, protocol=protocol.name, tier=tier), field

    def _classify_no_reply(self, error: Exception, seconds: float, most: float) -> Failure:
        """Return the failure of a request that got no reply in at most so many seconds."""
        late = f"none in {most:g} seconds" if isinstance(error, TimeoutError) else ""
        full = getattr(error, "errno", None) in (errno.EMFILE, errno.ENFILE)
        return Failure(
            kind="open_files" if full else "connection",
            error=(
                f"no answer from {self.endpoint.base_url}:"
                f" {self._scrub(str(error) or late or type(error).__name__)}"
            ),
            retry=True,
            throttled=full,
            slow=isinstance(error, TimeoutError),
            seconds=seconds,
        )

    def _unreadable(
        self, fields: Mapping[str, Any], reply: bytes, complaint: str, seconds: float
    ) -> tuple[Attempt, str | None]:
        """A 200 that is no completion: an error in disguise (some gateways), or a broken reply."""
        error = read_error(reply)
        status = error.status or 200
        if status >= 400 or classify_error(status, error) != "rejected":
            return self._classify_failure(fields, status, reply, {}, seconds)
        failure = Failure(
            kind="malformed",
            error=self._scrub(complaint),
            retry=True,
            body=reply[:LONGEST_ERROR],
            seconds=seconds,
        )
        return failure, None

    def _classify_failure(
        self,
        fields: Mapping[str, Any],
        status: int,
        reply: bytes,
        headers: Mapping[str, str],
        seconds: float,
    ) -> tuple[Attempt, str | None]:
        """Return the refusal or the failure that an error is, and the field that it names as not
        taken.
        """
        error = read_error(reply)
        message = self._scrub(error.message or reply[:LONGEST_ERROR].decode("utf-8", "replace"))
        if status in REFUSING and is_filter(error):
            return Replied(Refused(reason=one_line(message)), reply, seconds), None
        delay = read_delay(headers, error)
        kind = classify_error(status, error, delay)
        no_capacity = fields.get(FIELD) == FLEX and lacks_capacity(status, error, kind)
        if no_capacity:
            kind = "rate_limited"
        retry = kind in _RETRIED
        failure = Failure(
            kind=kind,
            error=f"{status} from {self._place(status)}: {message}"
            f"{self._hint(kind, status, message)}",
            retry=retry,
            fatal=kind in FATAL,
            throttled=kind == "rate_limited",
            slow=status in _TOO_SLOW,
            no_capacity=no_capacity,
            retry_after=delay if retry else None,
            body=reply[:LONGEST_ERROR],
            seconds=seconds,
        )
        return failure, find_named_field(status, error, self._protocol.optional(fields))

    def _place(self, status: int) -> str:
        return self._url if status == 404 else self.endpoint.base_url

    def _hint(self, kind: str, status: int, message: str) -> str:
        """Return advice for a kind of failure, in brackets; "" if there is none."""
        variable = self.endpoint.key_variable
        if status == 404:
            named = re.search(rf"(?<!\w){re.escape(self.endpoint.model)}(?!\w)", message)
            return "" if named else self._hint_at_address()
        match kind:
            case "unauthorized" | "forbidden":
                return f" (check {variable})"
            case "no_credit":
                return f" (the account behind {variable})"
        return ""

    def _hint_at_address(self) -> str:
        """Return advice on a base URL that may be wrong; "" if it is the provider's own."""
        base_url, row = self.endpoint.base_url, find_provider(self.identity)
        if row is not None and base_url == row.base_url:
            return ""
        path = (row or Provider("")).path
        perhaps = "" if _API_VERSION.search(self._url) else f", perhaps {base_url}{path}"
        return (
            f" (is {self.endpoint.url_variable} right? expected the server's address up to"
            f" {self._url.removeprefix(base_url)}{perhaps})"
        )

    def _scrub(self, text: str) -> str:
        return one_line(remove_url_credentials(self._secrets.scrub(text)))


_API_VERSION = re.compile(r"/v\d")
"""A part of the base URL of most servers."""
_TOO_SLOW = (408, 504, 524)
"""Statuses of a server, or one before it, that waited too long."""


@lru_cache(maxsize=8)
def _deadline(seconds: float) -> aiohttp.ClientTimeout:
    """Return the limits of one attempt of so many seconds."""
    import aiohttp

    return aiohttp.ClientTimeout(total=seconds, sock_connect=30)


def _has_unread(connection: Any) -> bool:
    """Tell whether a connection has unread bytes, here or in the system."""
    if connection.protocol.should_close or sys.platform == "win32":
        return bool(connection.protocol.should_close)
    poll = select.poll()
    poll.register(connection.transport.get_extra_info("socket").fileno(), select.POLLIN)
    return bool(poll.poll(0))


async def read_body(response: aiohttp.ClientResponse) -> bytes | None:
    """Return the body; None if it is longer than any answer can be."""
    content, body = response.content, bytearray()
    while not content.at_eof() or content.exception() is not None:  # which reading raises
        body += await content.readany()
        if len(body) > LONGEST_REPLY:
            return None
    return bytes(body)
