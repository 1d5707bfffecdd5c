"""OpenAI's batches, and those of the providers that offer them alike: a file of lines, a batch made
of it, and files of results.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec

from opensafeintent.batch.dialects import (
    BatchLimits,
    LineResult,
    NewBatch,
    Pages,
    Query,
    RemoteBatch,
    check_id,
    make_next_page,
    quote_id,
    read_moment,
    state_name,
)
from opensafeintent.batch.server import BatchServer, reply_body, split_result
from opensafeintent.calls.protocols import dict_or_empty, token_count
from opensafeintent.calls.provider_errors import ProviderError, code_name, parse_error, read_error

_ENDED = (
    *("completed", "expired", "cancelled", "canceled"),
    *("success", "timeout_exceeded"),
)
"""States after which no further result follows, as `code_name` writes them: the second line has
Mistral's.
"""
_EXPIRED = ("batch_expired", "timeout_exceeded")
_ERRORS_SHOWN = 3
_CANCELLED = ("batch_cancelled", "batch_canceled", "request_cancelled")


class BatchForm(NamedTuple):
    """The points in which a provider's batches differ from OpenAI's."""

    purpose: str = "batch"
    """Of the uploaded file."""
    upload: str = "/files"
    route: str = "/batches"
    paging: Literal["cursor", "number", "none"] = "cursor"
    """Of the list: after an id, by the page's number, or all batches at once as a bare array."""
    url: str | None = "/v1/chat/completions"
    """Field of each line; None for lines of `custom_id` and `body` alone."""
    model_in_line: bool = True
    """False if the model is a field of the batch."""
    marked: bool = True
    """Whether a batch takes metadata."""
    limits: BatchLimits = BatchLimits()


_PAGE_SIZE = 100


def _next_number(query: Query, page: Mapping[str, Any], _: str) -> Query | None:
    """Return the query of the page with the next number; None if it was the last one."""
    number = int(query["page"]) + 1
    is_last = number * _PAGE_SIZE >= token_count(page.get("total"))
    return None if is_last else query | {"page": number}


_PAGES: Mapping[str, Callable[[str], Pages]] = {
    "cursor": lambda route: Pages(route, {"limit": _PAGE_SIZE}, make_next_page("after")),
    "number": lambda route: Pages(route, {"page": 0, "page_size": _PAGE_SIZE}, _next_number),
    "none": lambda route: Pages(route, None, make_next_page("after")),
}
"""The list of batches by the way in which it is paged; see `BatchForm.paging`."""


class OpenAIBatches:
    """The dialect; see `BatchDialect`.

    Args:
        form: the provider's differences.
    """

    uploads = True
    before, between, after = b"", b"\n", b"\n"

    def __init__(self, form: BatchForm | None = None) -> None:
        self._form = form = form or BatchForm()
        self.limits = form.limits

    def line(self, custom_id: str, fields: Mapping[str, Any]) -> bytes:
        """Return the line of a call."""
        form = self._form
        kept = {
            name: value for name, value in fields.items() if form.model_in_line or name != "model"
        }
        request = {} if form.url is None else {"method": "POST", "url": form.url}
        return msgspec.json.encode({"custom_id": custom_id, **request, "body": kept})

    async def upload(self, server: BatchServer, path: Path) -> str:
        """Upload the lines; return the file's id."""
        fields = {"purpose": self._form.purpose}
        if self._form.purpose != "batch":
            fields |= {"file_name": path.name, "file_type": "jsonl"}
        reply = dict_or_empty(await server.upload(self._form.upload, path, fields))
        return check_id(reply.get("id"))

    async def create(self, server: BatchServer, new: NewBatch) -> RemoteBatch:
        """Create a batch with one request."""
        form = self._form
        endpoint = "/v1/chat/completions"
        if form.model_in_line:
            fields: dict[str, Any] = {"input_file_id": new.file, "completion_window": "24h"}
        else:
            fields = {"input_files": [new.file], "model": new.model, "timeout_hours": 24}
        fields["endpoint"] = form.url or endpoint
        if form.marked:
            fields["metadata"] = {"opensafeintent": new.mark}
        reply = dict_or_empty(await server.post(form.route, fields))
        return self._batch(reply.get("job") or reply)

    async def find(self, server: BatchServer, batch_id: str) -> RemoteBatch:
        """Return the present state of a batch."""
        return self._batch(await server.get(f"{self._form.route}/{quote_id(batch_id)}"))

    async def list_batches(self, server: BatchServer, since: float) -> AsyncGenerator[RemoteBatch]:
        """Yield the batches of the account: the file tells which one is ours."""
        pages = _PAGES[self._form.paging](self._form.route)
        async for batch in pages.batches(server, self._batch):
            yield batch

    def read(self, line: bytes) -> LineResult:
        """Read a line of either file: an error may be in its place or in the response's body."""
        custom_id, fields = split_result(line)
        response = fields.get("response")
        if isinstance(response, str):
            response = {"body": response}
        response = dict_or_empty(response)
        error = fields.get("error") or {}
        codes = parse_error(error).codes if error else set()
        if codes & set(_EXPIRED):
            return LineResult(custom_id, "expired")
        if codes & set(_CANCELLED):
            return LineResult(custom_id, "cancelled")
        body, status = response.get("body"), response.get("status_code")
        if not body:
            # some gateways have the completion itself in its place, or beside the id
            body = next((held for held in (response, fields) if "choices" in held), None)
        if isinstance(body, dict | str):
            status = status if type(status) is int else 200
            return LineResult(custom_id, "reply", status, reply_body(body))
        if error:
            status = status if type(status) is int and status >= 400 else None
            problem = msgspec.json.encode({"error": error}, enc_hook=str)
            status = status or read_error(problem).status or 500
            return LineResult(custom_id, "reply", status, problem)
        return LineResult(custom_id, "unreadable", body=line)

    async def cancel(self, server: BatchServer, batch_id: str) -> None:
        """Ask the provider to end a batch early."""
        await server.post(f"{self._form.route}/{quote_id(batch_id)}/cancel", {})

    def _batch(self, reply: Any) -> RemoteBatch:
        fields = dict_or_empty(reply)
        batch_id = check_id(fields.get("id"))
        status = state_name(fields.get("status"))
        name = code_name(status)
        counts = dict_or_empty(fields.get("request_counts")) or {
            "total": fields.get("total_requests"),
            "completed": fields.get("succeeded_requests"),
            "failed": fields.get("failed_requests"),
        }
        total = token_count(counts.get("total")) or None
        succeeded = token_count(counts.get("completed"))
        done = succeeded + token_count(counts.get("failed"))
        inputs = fields.get("input_files")
        named = fields.get("input_file_id") or (inputs[:1] if isinstance(inputs, list) else [""])
        return RemoteBatch(
            id=batch_id,
            state="failed" if name == "failed" else "ended" if name in _ENDED else "waiting",
            status=status,
            input_file=str(named if isinstance(named, str) else "".join(map(str, named))),
            created=read_moment(fields.get("created_at")),
            done=done if total else None,
            total=total,
            answered=succeeded if total else None,
            files=_files(fields),
            mark=str(dict_or_empty(fields.get("metadata")).get("opensafeintent") or ""),
            error=_error(fields),
        )


def _files(fields: Mapping[str, Any]) -> dict[str, str]:
    """Return the paths of the files with results, as far as they are there."""
    named = {
        "answers": fields.get("output_file_id") or fields.get("output_file"),
        "errors": fields.get("error_file_id") or fields.get("error_file"),
    }
    return {name: f"/files/{quote_id(file)}/content" for name, file in named.items() if file}


def _error(fields: Mapping[str, Any]) -> ProviderError | None:
    errors = fields.get("errors")
    listed = errors.get("data") if isinstance(errors, dict) else errors
    found = listed or fields.get("error")
    if isinstance(found, list):
        return parse_error({"errors": found, "message": _sentence(found)})
    return parse_error(found) if found else None


def _sentence(errors: list[Any]) -> str:
    """Return what the checks of a file found, for people: the first errors with their lines."""
    parts = []
    for error in errors[:_ERRORS_SHOWN]:
        fields = dict_or_empty(error) or {"message": error}
        place = f"line {fields['line']}: " if fields.get("line") is not None else ""
        message, code = fields.get("message"), fields.get("code")
        beside = f" ({code})" if message and code else ""
        parts.append(f"{place}{message or code or 'an error without a text'}{beside}")
    more = len(errors) - _ERRORS_SHOWN
    return "; ".join([*parts, f"and {more:,} more"] if more > 0 else parts)
