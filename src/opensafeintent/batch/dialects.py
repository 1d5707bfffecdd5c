"""The interface of batches, which each dialect implements, and its records."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol
from urllib.parse import quote

import msgspec

from opensafeintent.batch.server import BatchServer, LostReply
from opensafeintent.calls.protocols import dict_or_empty
from opensafeintent.calls.provider_errors import ProviderError
from opensafeintent.hostile import clean_name

_LONGEST_ID = 1_000


def check_id(value: Any) -> str:
    """Return an id of a batch or a file, in the one form that is taken: up to 1,000 printable
    characters without blanks, no part of which between slashes is `.` or `..`. Gateways have ids of
    338 characters, and ids such as `gs://bucket/file`.

    Raises:
        LostReply: it is none.
    """
    if (
        not isinstance(value, str)
        or not 0 < len(value) <= _LONGEST_ID
        or not value.isprintable()
        or " " in value
        or {".", ".."} & set(re.split(r"[/\\]", value))
    ):
        raise LostReply("the reply names no batch or file by an id")
    return value


def quote_id(value: Any) -> str:
    """Return an id as one segment of a path: whatever it holds, it names nothing beside it.

    Raises:
        LostReply: it is none; see `check_id`.
    """
    return quote(check_id(value), safe="")


def state_name(value: Any) -> str:
    """Return the name of a state as it can be shown."""
    return clean_name(str(value or ""))


def read_moment(value: Any) -> float | None:
    """Return a time in seconds since 1970, from such a number or a date; None if it is neither."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    try:
        return datetime.fromisoformat(str(value)).timestamp()
    except (ValueError, OverflowError):
        return None


class BatchLimits(NamedTuple):
    """The most that one batch may have."""

    lines: int = 50_000
    megabytes: int = 200


class RemoteBatch(msgspec.Struct, frozen=True, kw_only=True):
    """A batch as its provider describes it."""

    id: str
    state: Literal["waiting", "ended", "failed"]
    """A state that no table has counts as waiting: a later program may know it."""
    status: str = ""
    """The state in the provider's words."""
    input_file: str = ""
    """Id of the uploaded file; "" if there is none."""
    created: float | None = None
    """Seconds since 1970; None if it is not known."""
    done: int | None = None
    """Lines with a result; None if the provider does not say."""
    total: int | None = None
    answered: int | None = None
    """Lines with an answer; None if the provider does not say."""
    files: dict[str, str] = {}
    """Paths of the files with results, by name: `answers` and `errors`, or `results`."""
    mark: str = ""
    """The mark that we gave it; "" if the provider keeps none."""
    error: ProviderError | None = None
    """The reason of a failure of the whole batch."""


class LineResult(NamedTuple):
    """The result of one line."""

    custom_id: str
    kind: Literal["reply", "expired", "cancelled", "unreadable"]
    status: int = 0
    """HTTP status of a reply."""
    body: bytes = b""
    """Of a reply: that of a plain call. Of a result in an unknown form: the line."""


class NewBatch(NamedTuple):
    """A batch that is about to be created."""

    model: str
    """The name that the server knows the model by."""
    path: Path
    """Its lines."""
    file: str
    """Id of the uploaded file; "" for a dialect without files."""
    mark: str


Query = dict[str, str | int]
_MOST_PAGES = 1_000


def make_next_page(name: str) -> Callable[[Query, Mapping[str, Any], str], Query | None]:
    """Return the step to the page after the last id of one, whose query has it under a name."""

    def find_next(query: Query, page: Mapping[str, Any], last: str) -> Query | None:
        more = page.get("has_more") is True
        return query | {name: str(page.get("last_id") or last)} if more else None

    return find_next


class Pages(NamedTuple):
    """The list of an account's batches, page by page."""

    route: str
    query: Query | None
    """Of the first page; None if one page has all batches."""
    following: Callable[[Query, Mapping[str, Any], str], Query | None]
    """Returns the query of the next page, from that of a page, the page and its last batch's id;
    None after the last page.
    """

    async def batches(
        self, server: BatchServer, batch_of: Callable[[Any], RemoteBatch], since: float = 0.0
    ) -> AsyncGenerator[RemoteBatch]:
        """Yield the batches that were created since a time, perhaps more.

        Args:
            server: has the list.
            batch_of: reads a batch.
            since: seconds since 1970; 0 for all.

        Raises:
            LostReply: a page is none, or the pages have no end.
        """
        query = self.query
        for _ in range(_MOST_PAGES):
            page = await server.get(self.route, query)
            rows = page if isinstance(page, list) else dict_or_empty(page).get("data")
            if not isinstance(rows, list):
                raise LostReply("the list of batches is none")
            batches = [batch_of(row) for row in rows]
            for batch in batches:
                yield batch
            if not batches or all((batch.created or since) < since for batch in batches):
                return
            query = query and self.following(query, dict_or_empty(page), batches[-1].id)
            if query is None:
                return
        raise LostReply("the list of batches has no end")


class BatchDialect(Protocol):
    """How a provider takes batches, and gives their results.

    Methods that use the server raise the errors of `BatchServer`.
    """

    limits: BatchLimits
    uploads: bool
    """Whether the lines are a file that is uploaded first."""
    before: bytes
    between: bytes
    after: bytes
    """Bytes around the lines of the file."""

    def line(self, custom_id: str, fields: Mapping[str, Any]) -> bytes:
        """Return the line of a call, without its end."""

    async def upload(self, server: BatchServer, path: Path) -> str:
        """Upload the lines; return the file's id."""

    async def create(self, server: BatchServer, new: NewBatch) -> RemoteBatch:
        """Create a batch with one request, which nothing repeats.

        Raises:
            LostReply: the batch may exist.
            RequestRefused, NotSent: it does not.
        """

    async def find(self, server: BatchServer, batch_id: str) -> RemoteBatch:
        """Return the present state of a batch."""

    def list_batches(self, server: BatchServer, since: float) -> AsyncGenerator[RemoteBatch]:
        """Yield the batches of the account, the latest first. Clocks differ: those from before a
        time may be left out only if neither a mark nor a file tells which batch is ours.
        """

    def read(self, line: bytes) -> LineResult:
        """Read a line of results.

        Raises:
            ValueError: it is no JSON object.
        """

    async def cancel(self, server: BatchServer, batch_id: str) -> None:
        """Ask the provider to end a batch early; results so far are kept."""
