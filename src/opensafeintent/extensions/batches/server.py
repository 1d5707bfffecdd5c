"""Requests about batches to one provider: JSON, files, and results line by line."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path
from typing import Any, NoReturn

import msgspec

from opensafeintent.calls.error_codes import kind_of_error
from opensafeintent.calls.http import LONGEST_REPLY, HttpSession, access_to, body_of
from opensafeintent.calls.provider_errors import LONGEST_ERROR, ProviderError, read_error
from opensafeintent.calls.providers import Endpoint
from opensafeintent.calls.stated_wait import stated_delay
from opensafeintent.hostile import one_line, without_user_info

_TRIES = 5
_FIRST_WAIT = 0.5
_SECONDS = 120.0
"""Deadline of a request without a file."""
_FILE_SECONDS = 3600.0
_SILENT_SECONDS = 300.0
"""A transfer of a file that brings no byte for so long has failed."""


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
        return one_line(without_user_info(self._access.secrets.scrub(text)), 300)

    def scrub_bytes(self, body: bytes) -> bytes:
        """Return bytes without secrets."""
        return self._access.secrets.scrub_bytes(body)

    async def get(self, path: str, query: Mapping[str, str | int] | None = None) -> Any:
        """Return the JSON at a path; tried again if the server or the connection fails.

        Raises:
            RequestRefused: the server refuses.
            LostReply, NotSent: no reply can be read.
        """
        return await self._repeated(lambda: self._once("GET", path, params=query))

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

        return await self._repeated(send)

    async def lines(self, path: str) -> AsyncGenerator[bytes]:
        """Yield the lines of a text at a path, which end at a line feed and nothing else: JSON may
        hold other ends of lines within its strings.

        Raises:
            RequestRefused: the server refuses.
            LostReply, NotSent: the text could not be read to its end.
        """
        from aiohttp import ClientError

        rest = bytearray()
        try:
            async with self._request("GET", path, seconds=_FILE_SECONDS) as response:
                if response.status >= 300:
                    self._refuse(response.status, response.headers, await body_of(response) or b"")
                async for part in response.content.iter_any():
                    first, *others = part.split(b"\n")
                    rest += first
                    for other in others:
                        yield bytes(rest)
                        rest = bytearray(other)
                    if len(rest) > LONGEST_REPLY:
                        raise LostReply(f"{self._at(path)}: a line of more than 64 MiB")
        except (ClientError, TimeoutError, OSError) as error:
            raise self._lost(path, error) from error
        if rest.strip():
            yield bytes(rest)

    def _at(self, path: str) -> str:
        return f"{self.endpoint.base_url}{path}"

    def _lost(self, path: str, error: Exception) -> NotSent | LostReply:
        from aiohttp import ClientConnectorError

        line = self.scrub(f"no answer from {self._at(path)}: {error or type(error).__name__}")
        return NotSent(line) if isinstance(error, ClientConnectorError) else LostReply(line)

    def _request(self, method: str, path: str, *, seconds: float = _SECONDS, **options: Any) -> Any:
        from aiohttp import ClientTimeout

        return self._http.session.request(
            method,
            self._at(path),
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
                body = self.scrub_bytes(await body_of(response) or b"")
        except (ClientError, TimeoutError, OSError) as error:
            raise self._lost(path, error) from error
        if status >= 300:
            self._refuse(status, headers, body)
        try:
            return msgspec.json.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise LostReply(f"{self._at(path)}: the reply is no JSON: {error}") from error

    def _refuse(self, status: int, headers: Mapping[str, str], body: bytes) -> NoReturn:
        error = read_error(body)
        delay = stated_delay(headers, error)
        message = error.message or body[:LONGEST_ERROR].decode("utf-8", "replace")
        line = self.scrub(f"{status} from {self.endpoint.base_url}: {message}")
        raise RequestRefused(status, kind_of_error(status, error, delay), line, error, delay)

    async def _repeated(self, send: Any) -> Any:
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
