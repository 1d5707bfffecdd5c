"""Requests about batches to one provider: JSON, files, and results line by line."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import zlib
from collections.abc import AsyncGenerator, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import msgspec

from opensafeintent.calls.http import LONGEST_REPLY, HttpSession, access_to, read_body
from opensafeintent.calls.provider_errors import (
    LONGEST_ERROR,
    ProviderError,
    classify_error,
    read_delay,
    read_error,
)
from opensafeintent.calls.providers import Endpoint
from opensafeintent.files import check_depth
from opensafeintent.hostile import clean_name, one_line, remove_url_credentials

if TYPE_CHECKING:
    import aiohttp


def decode_json(raw: bytes, read: Callable[[bytes], Any] = msgspec.json.decode) -> Any:
    """Return the value of some JSON.

    Raises:
        ValueError: it is none, or is nested too deeply.
    """
    try:
        value = read(raw)
        check_depth(value)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    return value


def split_result(line: bytes) -> tuple[str, dict[str, Any]]:
    """Return the custom id of a line of results, which is empty if it has none, and its fields.

    Raises:
        ValueError: it is no JSON object.
    """
    try:
        fields = decode_json(line)
    except ValueError:
        # half of a surrogate pair, which only Python's own reader takes
        fields = decode_json(line, json.loads)
    if not isinstance(fields, dict):
        raise ValueError("a line is no JSON object")
    return str(fields.get("custom_id") or ""), fields


def reply_body(body: dict[str, Any] | str) -> bytes:
    """Return the bytes of the body of a reply, which some gateways send as a text."""
    if isinstance(body, str):
        return body.encode("utf-8", "replace")
    try:
        return msgspec.json.encode(body)
    except UnicodeEncodeError:
        return json.dumps(body).encode()


_TRIES = 5
_FIRST_WAIT = 0.5
_SECONDS = 120.0
"""Deadline of a request without a file."""
_FILE_SECONDS = 3600.0
_SILENT_SECONDS = 300.0
"""A transfer of a file that brings no byte for so long has failed."""
_MEAN_LINE = 256 * 2**10
"""Bytes of a line of results, at most, on the average: 64,000 tokens."""
_GZIP = 31
"""zlib's number of the format."""
_PART = 64 * 2**10


class RequestRefused(Exception):
    """The server answered, and did not do what was asked.

    Args:
        status: the HTTP status.
        kind: of failure, as that of a call.
        line: the error, without secrets.
        error: its fields.
        delay: the wait that it states, in seconds.
    """

    def __init__(
        self, status: int, kind: str, line: str, error: ProviderError, delay: float | None
    ) -> None:
        super().__init__(line)
        self.status, self.kind, self.error, self.delay = status, kind, error, delay


class NotSent(Exception):
    """No connection was made: the server has not seen the request."""


class LostReply(Exception):
    """The server may have done what was asked: its reply was lost, or cannot be read."""


class UnsoundText(Exception):
    """A file of results that has not come as it was sent."""


class _TextOfLines:
    """Sees whether a text that comes in parts keeps within limits, and ends with a whole line.

    Args:
        submitted: lines of the batch.
    """

    def __init__(self, submitted: int) -> None:
        self._lines = 2 * submitted + 100
        self._bytes = LONGEST_REPLY + submitted * _MEAN_LINE
        self._rest = bytearray()
        """Of the last line, as far as it has come."""

    def add(self, part: bytes) -> None:
        """Count a part.

        Raises:
            UnsoundText: it is too much.
        """
        self._lines -= part.count(b"\n")
        self._bytes -= len(part)
        _, end_of_line, rest = part.rpartition(b"\n")
        if end_of_line:
            self._rest.clear()
        self._rest += rest
        if self._lines < 0:
            raise UnsoundText("it has more than twice the lines that were submitted")
        if self._bytes < 0 or len(self._rest) > LONGEST_REPLY:
            raise UnsoundText("it is longer than answers can be")

    def end(self) -> None:
        """See that the last line is whole.

        Raises:
            UnsoundText: it is not.
        """
        if self._rest.strip():
            try:
                split_result(bytes(self._rest))
            except ValueError as error:
                raise UnsoundText("its last line is no whole JSON") from error


async def _decompress(response: aiohttp.ClientResponse) -> AsyncGenerator[bytes]:
    """Yield the parts of a body, decompressed into no more than `_PART` bytes each.

    Raises:
        UnsoundText: its compression is damaged or unknown, or does not come to its end.
    """
    encoding = response.headers.get("Content-Encoding", "").strip().lower()
    if encoding in ("", "identity"):
        async for part in response.content.iter_any():
            yield part
        return
    if encoding not in ("gzip", "x-gzip"):
        raise UnsoundText(f"it is compressed as {clean_name(encoding)}")
    stream = zlib.decompressobj(wbits=_GZIP)
    try:
        async for came in response.content.iter_any():
            packed = came
            while packed:
                # several files of gzip behind one another are one
                stream = zlib.decompressobj(wbits=_GZIP) if stream.eof else stream
                while part := stream.decompress(packed, _PART):
                    yield part
                    packed = stream.unconsumed_tail
                packed = stream.unused_data
    except zlib.error as error:
        raise UnsoundText("its compression is damaged") from error
    if not stream.eof:
        raise UnsoundText("its compression does not come to its end")


async def _read_beginning(parts: AsyncGenerator[bytes]) -> bytes:
    """Return no more of a body than an error may be long."""
    body = bytearray()
    with contextlib.suppress(UnsoundText):
        async for part in parts:
            body += part
            if len(body) >= LONGEST_ERROR:
                break
    return bytes(body)


class BatchServer:
    """The server of one model.

    Args:
        endpoint: its address and key.
        http: the connections.
    """

    def __init__(self, endpoint: Endpoint, http: HttpSession) -> None:
        self.endpoint = endpoint
        self._http = http
        self._access = access_to(endpoint)

    def scrub(self, text: str) -> str:
        """Return a text on one line and without secrets."""
        return one_line(remove_url_credentials(self._access.secrets.scrub(text)))

    def scrub_bytes(self, body: bytes) -> bytes:
        """Return bytes without secrets."""
        return self._access.secrets.scrub_bytes(body)

    async def get(self, path: str, query: Mapping[str, str | int] | None = None) -> Any:
        """Return the JSON at a path; tried again if the server or the connection fails.

        Raises:
            RequestRefused: the server refuses.
            LostReply, NotSent: no reply can be read.
        """
        return await self._retry(lambda: self._once("GET", path, params=query))

    async def post(self, path: str, fields: Mapping[str, Any]) -> Any:
        """Send JSON once, and return the reply's.

        Raises:
            RequestRefused, LostReply, NotSent: see above.
        """
        body = msgspec.json.encode(fields)
        return await self._once("POST", path, data=body, headers=self._access.headers)

    async def post_file(self, path: str, file: Path) -> Any:
        """Send a file of JSON once as the body, and return the reply's JSON.

        Raises:
            RequestRefused, LostReply, NotSent: see above.
        """
        with await asyncio.to_thread(file.open, "rb") as opened:
            return await self._once(
                "POST",
                path,
                data=opened,
                headers=self._access.headers,
                seconds=_FILE_SECONDS,
            )

    async def upload(self, path: str, file: Path, fields: Mapping[str, str]) -> Any:
        """Upload a file as a form with some fields, and return the reply's JSON; tried again, since
        an uploaded file by itself costs nothing.

        Raises:
            RequestRefused, LostReply, NotSent: see above.
        """

        async def send() -> Any:
            from aiohttp import FormData

            with await asyncio.to_thread(file.open, "rb") as opened:
                form = FormData(fields)
                form.add_field("file", opened, filename=file.name, content_type="application/jsonl")
                return await self._once("POST", path, data=form, seconds=_FILE_SECONDS)

        return await self._retry(send)

    async def download(self, path: str, write: Callable[[bytes], object], submitted: int) -> str:
        """Copy a file of results, decompressed, and return why it is unsound; "" if it is sound. A
        sound file has come to its end, and so has its last line.

        Args:
            path: of the file.
            write: takes the parts, as far as they come.
            submitted: lines of the batch: the file has no more than twice as many and 100.

        Raises:
            RequestRefused: the server refuses.
            LostReply, NotSent: it does not answer.
            InputError: a part cannot be written.
        """
        from aiohttp import ClientError

        text, began = _TextOfLines(submitted), False
        try:
            async with self._request(
                "GET",
                path,
                seconds=_FILE_SECONDS,
                auto_decompress=False,
                headers=self._without_type | {"Accept-Encoding": "gzip"},
            ) as response:
                began = response.status < 300
                parts = _decompress(response)
                if not began:
                    error = await _read_beginning(parts)
                    self._refuse(response.status, response.headers, error)
                async for part in parts:
                    text.add(part)
                    write(part)
                text.end()
        except (ClientError, TimeoutError, OSError) as error:
            if not began:
                raise self._classify_loss(error) from error
            return self.scrub(f"it breaks off ({error or type(error).__name__})")
        except UnsoundText as error:
            return str(error)
        return ""

    def _classify_loss(self, error: Exception) -> NotSent | LostReply:
        from aiohttp import ClientConnectorError

        line = self.scrub(
            f"no answer from {self.endpoint.base_url}: {error or type(error).__name__}"
        )
        return NotSent(line) if isinstance(error, ClientConnectorError) else LostReply(line)

    def _request(self, method: str, path: str, *, seconds: float = _SECONDS, **options: Any) -> Any:
        from aiohttp import ClientTimeout

        return self._http.session.request(
            method,
            f"{self.endpoint.base_url}{path}",
            timeout=ClientTimeout(total=seconds, sock_connect=30, sock_read=_SILENT_SECONDS),
            allow_redirects=False,
            **{"headers": self._without_type} | self._access.options | options,
        )

    @property
    def _without_type(self) -> dict[str, str]:
        headers = self._access.headers
        return {name: value for name, value in headers.items() if name != "Content-Type"}

    async def _once(self, method: str, path: str, **options: Any) -> Any:
        from aiohttp import ClientError

        try:
            async with self._request(method, path, **options) as response:
                status, headers = response.status, response.headers
                body = self.scrub_bytes(await read_body(response) or b"")
        except (ClientError, TimeoutError, OSError) as error:
            raise self._classify_loss(error) from error
        if status >= 300:
            self._refuse(status, headers, body)
        try:
            return decode_json(body)
        except ValueError as error:
            raise LostReply(f"{self.endpoint.base_url}: the reply is no JSON: {error}") from error

    def _refuse(self, status: int, headers: Mapping[str, str], body: bytes) -> NoReturn:
        error = read_error(body)
        delay = read_delay(headers, error)
        message = error.message or body[:LONGEST_ERROR].decode("utf-8", "replace")
        line = self.scrub(f"{status} from {self.endpoint.base_url}: {message}")
        raise RequestRefused(status, classify_error(status, error, delay), line, error, delay)

    async def _retry(self, send: Any) -> Any:
        for number in range(1, _TRIES + 1):
            try:
                return await send()
            except (LostReply, NotSent):
                wait = None
                if number == _TRIES:
                    raise
            except RequestRefused as refused:
                wait = refused.delay
                if number == _TRIES or refused.kind not in ("server", "rate_limited"):
                    raise
            backoff = _FIRST_WAIT * 2.0 ** (number - 1) * random.uniform(0.5, 1.5)
            await asyncio.sleep(max(backoff, wait or 0.0))
        raise AssertionError("the last try returns or raises")
