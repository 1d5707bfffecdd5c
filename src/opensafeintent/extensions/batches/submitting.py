"""Making batches of calls: none is submitted twice, however the program ends."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import msgspec

from opensafeintent.calls.client import Client
from opensafeintent.calls.error_codes import FATAL, kind_of_error
from opensafeintent.calls.provider_errors import ProviderError
from opensafeintent.calls.records import Call
from opensafeintent.errors import InputError, Stopped, counted
from opensafeintent.extensions.batches.collecting import (
    DOWNLOADS,
    GONE,
    download,
    key_of,
    results_in,
)
from opensafeintent.extensions.batches.dialects import NewBatch, RemoteBatch
from opensafeintent.extensions.batches.models import BatchModel
from opensafeintent.extensions.batches.server import LostReply, NotSent, RequestRefused
from opensafeintent.extensions.batches.store import BatchStore, StoredBatch

_QUOTA_CODES = {"token_limit_exceeded"}
"""Codes of a full queue, which a provider may give after it has created a batch."""
_SINCE_SLACK = 86_400.0
"""Seconds by which clocks may differ, if nothing else tells which batch is ours."""
_LINES_AT_ONCE = 500


class Pace(msgspec.Struct, frozen=True, kw_only=True):
    """Waits, in seconds."""

    first_look: float = 5.0
    longest_look: float = 60.0
    """Between two looks at a batch; the wait grows from the first to this one."""
    unclear: float = 300.0
    """A batch whose creation is unclear is looked for in lists for so long."""
    again: float = 300.0
    """Between two downloads of a file of results that is not whole, or of a batch that is not."""
    quota: float = 60.0
    """Before smaller batches are tried; doubled at each further time."""
    unreadable: float = 1800.0
    """A provider that cannot be asked about a batch for so long ends the run."""


PACE = Pace()


def is_quota(error: ProviderError | None) -> bool:
    """Tell whether an error says that the provider's queue is full."""
    if error is None:
        return False
    return bool(error.codes & _QUOTA_CODES) or kind_of_error(400, error) == "rate_limited"


def input_path(store: BatchStore) -> Path:
    """Return the path of the lines of a batch that is being submitted. The next program removes a
    file that a killed one has left.
    """
    return store.path.with_name(f".{store.path.stem}.jsonl")


class Submitter:
    """Makes batches of staged calls, and finds those whose creation is unclear.

    Args:
        client: knows which models are stopped, and the budget.
        store: the batches and calls.
        note: shows a line.
    """

    def __init__(self, client: Client, store: BatchStore, note: Callable[[str], object]) -> None:
        self._client = client
        self._store = store
        self._note = note
        self._most: dict[str, int] = {}
        """Lines of a batch, by model, after the queue was full."""
        self._not_before: defaultdict[str, float] = defaultdict(float)
        self._full: Counter[str] = Counter()
        """How often the queue was full, by model."""
        self._unreadable_since: dict[int, float] = {}
        """Since when results that may be those of a batch cannot be read."""

    async def submit(self, model: BatchModel) -> None:
        """Make batches of all staged calls of a model, or none if the queue is still full.

        Raises:
            Stopped: the provider refuses the batch, or a budget is used up.
            InputError: the provider has no batches.
        """
        while self._store.staged(model.name) and self._has_room(model):
            if model.name in self._client.stopped_models:
                self._store.unstage(model.name)
                return
            self._client.check(model.name)
            path = input_path(self._store)
            try:
                keys = await self._write(
                    path, model, self._store.calls(model.name), self._most.get(model.name)
                )
                endpoint, mark = model.model.endpoint, secrets.token_hex(8)
                batch = self._store.plan(model.name, endpoint.base_url, model.account, mark, keys)
                await self._send(model, batch, path)
            finally:
                path.unlink(missing_ok=True)

    def _has_room(self, model: BatchModel) -> bool:
        """Whether a further batch may be tried: after the queue was full, one at a time."""
        if time.monotonic() < self._not_before[model.name]:
            return False
        under_way = self._store.batches("submitting", "open", model=model.name)
        return not (self._full[model.name] and under_way)

    async def _write(
        self,
        path: Path,
        model: BatchModel,
        calls: Iterable[tuple[bytes, Call]],
        most: int | None = None,
    ) -> list[bytes]:
        """Write the lines of a batch, as many as its limits allow; return their keys."""
        dialect, keys = model.dialect, list[bytes]()
        most = min(dialect.limits.lines, most or dialect.limits.lines)
        room = dialect.limits.megabytes * 10**6 - len(dialect.before) - len(dialect.after)
        with _private_file(path) as write:
            write(dialect.before)
            for key, call in calls:
                line = model.line(key, call)
                room -= len(line) + len(dialect.between)
                if keys and (len(keys) >= most or room < 0):
                    break
                write(dialect.between * bool(keys) + line)
                keys.append(key)
                if len(keys) % _LINES_AT_ONCE == 0:
                    # an interruption is to be heard
                    await asyncio.sleep(0)
            write(dialect.after)
        return keys

    async def _send(self, model: BatchModel, batch: StoredBatch, path: Path) -> None:
        """Upload the lines of a new batch, and create it."""
        try:
            if model.dialect.uploads:
                file = await model.dialect.upload(model.server, path)
                batch = self._store.advance(batch, "uploaded", file=file)
            await self._create(model, batch, path)
        except (LostReply, NotSent) as error:
            # the upload: without a batch it is nothing
            self._store.give_back(batch)
            raise Stopped(f"{model.name}: a batch cannot be submitted: {error}") from error
        except RequestRefused as refused:
            self._refused(model, batch, refused)

    async def _create(self, model: BatchModel, batch: StoredBatch, path: Path) -> None:
        """Create a batch; if the reply is lost, it stays unclear.

        Raises:
            RequestRefused, NotSent: there is no batch.
        """
        batch = self._store.advance(batch, "submitting", tried=time.time())
        new = NewBatch(model.model.endpoint.model, path, batch.file, batch.mark)
        try:
            remote = await model.dialect.create(model.server, new)
        except RequestRefused as refused:
            # a gateway that gives up may have passed the request on
            if refused.status < 500 and refused.status != 408:
                raise
            self._note(f"{model.name}: it is unclear whether a batch was created: {refused}")
        except LostReply as error:
            self._note(f"{model.name}: it is unclear whether a batch was created: {error}")
        else:
            self._opened(batch, remote)

    def _opened(self, batch: StoredBatch, remote: RemoteBatch) -> None:
        self._store.advance(
            batch, "open", remote=remote.id, opened=time.time(), status=remote.status
        )
        self._note(f"{batch.model}: batch {remote.id} with {counted(batch.lines, 'call')}")

    def _refused(self, model: BatchModel, batch: StoredBatch, refused: RequestRefused) -> None:
        """Take back a batch that the provider has refused.

        Raises:
            Stopped, InputError: nothing else would help.
        """
        self._store.give_back(batch)
        if is_quota(refused.error) or refused.kind == "rate_limited":
            self.queue_was_full(model, batch, str(refused), refused.delay)
            return
        if refused.kind in FATAL and refused.status != 404:
            self._client.stopped_models.setdefault(model.name, f"{model.name}: stopped: {refused}")
            self._store.unstage(model.name)
            return
        if refused.status in (404, 405):
            raise no_batches(model, refused)
        raise Stopped(f"{model.name}: a batch was refused: {refused}")

    def queue_was_full(
        self, model: BatchModel, batch: StoredBatch, why: str, delay: float | None = None
    ) -> None:
        """Make the next batches of a model smaller, and make them later.

        Args:
            model: of the batch.
            batch: there was no room for it.
            why: in the provider's words.
            delay: that the provider asks for, in seconds.

        Raises:
            Stopped: not even one line fits.
        """
        if batch.lines == 1:
            raise Stopped(f"{model.name}: the provider's queue has no room for one call: {why}")
        self._full[model.name] += 1
        self._most[model.name] = most = max(batch.lines // 2, 1)
        wait = max(PACE.quota * 2.0 ** min(self._full[model.name] - 1, 5), delay or 0.0)
        self._not_before[model.name] = time.monotonic() + wait
        self._note(
            f"{model.name}: the provider's queue is full; smaller batches follow, of at most"
            f" {counted(most, 'call')}: {why}"
        )

    async def settle(self, model: BatchModel, batch: StoredBatch) -> None:
        """Find a batch whose creation is unclear in the provider's list, or create it again if it
        is in none for some minutes.

        Raises:
            Stopped: the list, or the results of a batch that may be it, cannot be read.
            InputError: the key is another one.
        """
        if not is_of_account(model, batch):
            raise other_account(model, batch)
        try:
            found = await self._found(model, batch)
        except (LostReply, NotSent, RequestRefused) as error:
            raise Stopped(
                f"{model.name}: it cannot be found out whether a batch exists: {error}"
            ) from error
        if isinstance(found, RemoteBatch):
            self._opened(batch, found)
            return
        undecided = found == "undecided"
        if undecided or (batch.tried and time.time() < batch.tried + PACE.unclear):
            return
        path = input_path(self._store)
        try:
            if not model.dialect.uploads:
                await self._write(path, model, self._store.calls(model.name, batch.id))
            await self._create(model, batch, path)
        except RequestRefused as refused:
            self._refused(model, batch, refused)
        except NotSent as error:
            raise Stopped(f"{model.name}: a batch cannot be submitted: {error}") from error
        finally:
            path.unlink(missing_ok=True)

    async def _found(self, model: BatchModel, batch: StoredBatch) -> RemoteBatch | str:
        """Return the batch in the provider's list; "undecided" if one that has not ended may be it,
        or "nowhere".
        """
        known = {other.remote for other in self._store.batches()}
        since = batch.planned - _SINCE_SLACK
        undecided = False
        async with contextlib.aclosing(model.dialect.listed(model.server, since)) as listed:
            async for remote in listed:
                if remote.id in known:
                    continue
                if batch.file:
                    if remote.input_file == batch.file or remote.mark == batch.mark:
                        return remote
                elif remote.total in (None, batch.lines) and (remote.created or since) >= since:
                    holds = await self._holds_ours(model, batch, remote)
                    if holds:
                        return remote
                    undecided = undecided or holds is None
        return "undecided" if undecided else "nowhere"

    async def _holds_ours(
        self, model: BatchModel, batch: StoredBatch, remote: RemoteBatch
    ) -> bool | None:
        """Tell whether the results of a batch are about calls of ours; None if it has none that can
        be read yet. If they stay so, nothing is lost by calling it another's.
        """
        if remote.state == "waiting":
            return None
        ours = set(self._store.keys(batch))
        for name, path in remote.files.items():
            file = self._store.file_of(batch, name)
            try:
                fault = await download(model, path, file, batch.lines)
                keys = {key_of(result) for result in results_in(file, model)}
            except (LostReply, NotSent, RequestRefused) as error:
                if isinstance(error, RequestRefused) and error.status in GONE:
                    return False
                since = self._unreadable_since.setdefault(batch.id, time.monotonic())
                if time.monotonic() > since + PACE.unreadable:
                    raise
                return None
            finally:
                file.unlink(missing_ok=True)
            if keys & ours:
                return True
            if fault or not keys:
                seen = self._store.note_download(batch, remote.id, b"", PACE.again)
                return False if seen.equal >= DOWNLOADS else None
        return False


@contextlib.contextmanager
def _private_file(path: Path) -> Iterator[Callable[[bytes], object]]:
    """Write a file that only its owner can read."""
    number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(number, "wb") as file:
        yield file.write


def no_batches(model: BatchModel, refused: RequestRefused) -> InputError:
    """Return the error of a server without batches."""
    return InputError(f"--batch: {model.name} has no batches ({refused}); leave it out")


def is_of_account(model: BatchModel, batch: StoredBatch) -> bool:
    """Tell whether a batch was made with a model's key and address."""
    return batch.account == model.account and batch.base_url == model.model.endpoint.base_url


def other_account(model: BatchModel, batch: StoredBatch) -> InputError:
    """Return the error of a batch that was made with another key or at another address."""
    name = f"batch {batch.remote}" if batch.remote else f"a batch of {batch.lines:,} calls"
    variable = model.model.endpoint.key_variable
    return InputError(
        f"{variable}: {name} of {model.name} is not of this account; expected the key and the"
        f" address that it was made with ({batch.base_url})"
    )
