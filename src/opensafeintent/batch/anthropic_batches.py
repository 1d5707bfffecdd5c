"""Anthropic's message batches: one request with all lines, and one stream of results."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from opensafeintent.batch.dialects import (
    BatchLimits,
    LineResult,
    NewBatch,
    Pages,
    RemoteBatch,
    check_id,
    make_next_page,
    quote_id,
    read_moment,
    state_name,
)
from opensafeintent.batch.server import BatchServer, reply_body, split_result
from opensafeintent.calls.protocols import dict_or_empty, token_count

_ROUTE = "/v1/messages/batches"
_STATUS = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "timeout_error": 504,
    "overloaded_error": 529,
}
"""HTTP statuses of errors, which a line of results does not have; any other is 500."""


class AnthropicBatches:
    """The dialect; see `BatchDialect`. A batch takes no mark, and its lines are not shown until it
    has ended.
    """

    limits = BatchLimits(lines=100_000, megabytes=256)
    uploads = False
    before, between, after = b'{"requests":[', b",", b"]}"

    def line(self, custom_id: str, fields: Mapping[str, Any]) -> bytes:
        """Return the request of a call."""
        return msgspec.json.encode({"custom_id": custom_id, "params": fields})

    async def upload(self, server: BatchServer, path: Path) -> str:
        """Upload nothing: there are no files."""
        raise AssertionError("this dialect has no files")

    async def create(self, server: BatchServer, new: NewBatch) -> RemoteBatch:
        """Create a batch with one request."""
        return _batch(await server.post_file(_ROUTE, new.path))

    async def find(self, server: BatchServer, batch_id: str) -> RemoteBatch:
        """Return the present state of a batch."""
        return _batch(await server.get(f"{_ROUTE}/{quote_id(batch_id)}"))

    async def list_batches(self, server: BatchServer, since: float) -> AsyncGenerator[RemoteBatch]:
        """Yield the batches of the account, the latest first."""
        pages = Pages(_ROUTE, {"limit": 1000}, make_next_page("after_id"))
        async for batch in pages.batches(server, _batch, since):
            yield batch

    def read(self, line: bytes) -> LineResult:
        """Read a line of results."""
        custom_id, fields = split_result(line)
        result = dict_or_empty(fields.get("result"))
        match result.get("type"):
            case "succeeded" if isinstance(message := result.get("message"), dict | str):
                return LineResult(custom_id, "reply", 200, reply_body(message))
            case "message":
                # some gateways have the message itself in the place of the result
                return LineResult(custom_id, "reply", 200, reply_body(result))
            case "expired":
                return LineResult(custom_id, "expired")
            case "canceled" | "cancelled":
                return LineResult(custom_id, "cancelled")
            case "errored":
                error = dict_or_empty(result.get("error"))
                inner = dict_or_empty(error.get("error")) or error
                status = _STATUS.get(str(inner.get("type")), 500)
                body = msgspec.json.encode({"type": "error", "error": inner}, enc_hook=str)
                return LineResult(custom_id, "reply", status, body)
        return LineResult(custom_id, "unreadable", body=line)

    async def cancel(self, server: BatchServer, batch_id: str) -> None:
        """Ask the provider to end a batch early."""
        await server.post(f"{_ROUTE}/{quote_id(batch_id)}/cancel", {})


def _batch(reply: Any) -> RemoteBatch:
    fields = dict_or_empty(reply)
    batch_id = check_id(fields.get("id"))
    status = state_name(fields.get("processing_status"))
    counts = dict_or_empty(fields.get("request_counts"))
    return RemoteBatch(
        id=batch_id,
        state="ended" if status == "ended" else "waiting",
        status=status,
        created=read_moment(fields.get("created_at")),
        total=sum(map(token_count, counts.values())) or None,
        answered=token_count(counts.get("succeeded")) if counts else None,
        # its address is ours to make: a reply's may be elsewhere, and requests have the key
        files={"results": f"{_ROUTE}/{quote_id(batch_id)}/results"} if status == "ended" else {},
    )
