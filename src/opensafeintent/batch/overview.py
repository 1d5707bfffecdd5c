"""The batches of a run, for people, and their end before time."""

from __future__ import annotations

import time
from collections.abc import Collection
from typing import NamedTuple

import msgspec

from opensafeintent.batch.dialects import BatchDialect
from opensafeintent.batch.endpoints import account_of, dialect_of
from opensafeintent.batch.server import BatchServer, LostReply, NotSent, RequestRefused
from opensafeintent.batch.store import BatchStore, StoredBatch
from opensafeintent.calls.headers import NO_HEADERS, Headers, values_of
from opensafeintent.calls.http import HttpSession
from opensafeintent.calls.providers import resolve_endpoint
from opensafeintent.errors import InputError, nearest
from opensafeintent.hostile import one_line


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


async def overview(
    store: BatchStore, *, cancel: bool, ids: Collection[str], headers: Headers = NO_HEADERS
) -> list[BatchLine]:
    """Return a line about each batch, the oldest first; those under way are asked about.

    Args:
        store: the batches. Others may have made the file: a request goes to the address that this
            process has for the model alone.
        cancel: whether the providers are asked to end those under way that this key made.
        ids: of the batches that the lines are about; these are ended whoever made them. All if
            there are none.
        headers: of the requests about each model's batches.

    Raises:
        InputError: there is no batch of one of the ids.
    """
    batches = store.batches()
    known = [batch.remote for batch in batches if batch.remote]
    for name in ids:
        if name not in known:
            raise InputError(f"--id {one_line(name, 100)}: {nearest(name, known)}")
    async with HttpSession() as http:
        return [
            await _line(batch, http, headers, cancel=cancel, named=batch.remote in ids)
            for batch in batches
            if not ids or batch.remote in ids
        ]


async def _line(
    batch: StoredBatch, http: HttpSession, headers: Headers, *, cancel: bool, named: bool
) -> BatchLine:
    state, done, note = batch.status or batch.state, None, batch.note
    if batch.state == "ended":
        done = batch.answered
    elif batch.state == "open":
        try:
            dialect, server = _asked(batch, http, headers)
            if not cancel:
                pass
            elif named or batch.account == account_of(server.endpoint):
                await dialect.cancel(server, batch.remote)
                note = "its end was requested"
            else:
                note = (
                    "not cancelled: another key made it, or the file is not yours; if you know"
                    " this batch: --cancel --id ID"
                )
            remote = await dialect.find(server, batch.remote)
            state, done = remote.status, remote.done
        except (InputError, RequestRefused, LostReply, NotSent) as error:
            note = f"cannot be asked about: {error}"
    elif cancel or batch.state == "submitting":
        note = "it is unclear whether it exists; the command that made it finds out"
    age = _age((batch.ended or time.time()) - batch.planned)
    return BatchLine(batch.model, batch.remote, state, batch.lines, done, age, note)


def _asked(
    batch: StoredBatch, http: HttpSession, headers: Headers
) -> tuple[BatchDialect, BatchServer]:
    """Return the dialect and the server of a batch.

    Raises:
        InputError: its provider has no batches any more, a variable is not set, or the batch was
            made at another address.
    """
    dialect = dialect_of(batch.model)
    if dialect is None:
        raise InputError(f"{batch.model}: has no batches")
    added = values_of(batch.model, headers.get(batch.model, {}))
    endpoint = msgspec.structs.replace(resolve_endpoint(batch.model), headers=added)
    if batch.base_url != endpoint.base_url:
        raise InputError(
            f"{batch.model}: it was made at {one_line(batch.base_url, 200)}, and is not asked about"
            f" at {endpoint.base_url}"
        )
    return dialect, BatchServer(endpoint, http)


def _age(seconds: float) -> str:
    minutes = max(seconds, 0.0) / 60
    return f"{minutes:.0f} min" if minutes < 100 else f"{minutes / 60:.1f} h"
