"""The batches of a run, for people, and their end before time."""

from __future__ import annotations

import time
from typing import NamedTuple

from opensafeintent.calls.http import HttpSession
from opensafeintent.calls.providers import resolve_endpoint
from opensafeintent.errors import InputError
from opensafeintent.extensions.batches.dialects import BatchDialect
from opensafeintent.extensions.batches.models import dialect_of
from opensafeintent.extensions.batches.server import (
    BatchServer,
    LostReply,
    NotSent,
    RequestRefused,
)
from opensafeintent.extensions.batches.store import BatchStore, StoredBatch


class BatchLine(NamedTuple):
    """One batch."""

    model: str
    batch: str
    """Its id at the provider; "" if it is not known."""
    state: str
    """In the provider's words, if it could be asked."""
    calls: int
    done: int | None
    """Calls with a result; None if the provider does not say."""
    age: str
    """Since its first step, or until its end."""
    note: str


async def overview(store: BatchStore, *, cancel: bool) -> list[BatchLine]:
    """Return a line about each batch, the oldest first; those under way are asked about.

    Args:
        store: the batches.
        cancel: whether the providers are asked to end those under way.
    """
    async with HttpSession() as http:
        return [await _line(batch, http, cancel=cancel) for batch in store.batches()]


async def _line(batch: StoredBatch, http: HttpSession, *, cancel: bool) -> BatchLine:
    state, done, note = batch.status or batch.state, None, batch.note
    if batch.state == "ended":
        done = batch.answered
    elif batch.state == "open":
        try:
            dialect, server = _asked(batch, http)
            if cancel:
                await dialect.cancel(server, batch.remote)
                note = "its end was requested"
            remote = await dialect.find(server, batch.remote)
            state, done = remote.status, remote.done
        except (InputError, RequestRefused, LostReply, NotSent) as error:
            note = f"cannot be asked about: {error}"
    elif cancel or batch.state == "submitting":
        note = "it is unclear whether it exists; the command that made it finds out"
    age = _age((batch.ended or time.time()) - batch.planned)
    return BatchLine(batch.model, batch.remote, state, batch.lines, done, age, note)


def _asked(batch: StoredBatch, http: HttpSession) -> tuple[BatchDialect, BatchServer]:
    """Return the dialect and the server of a batch.

    Raises:
        InputError: its provider has no batches any more, or a variable is not set.
    """
    dialect = dialect_of(batch.model)
    if dialect is None:
        raise InputError(f"{batch.model}: has no batches")
    return dialect, BatchServer(resolve_endpoint(batch.model), http)


def _age(seconds: float) -> str:
    minutes = max(seconds, 0.0) / 60
    return f"{minutes:.0f} min" if minutes < 100 else f"{minutes / 60:.1f} h"
