"""Rounds of batches: submit missing calls, wait, take the answers, submit what is left."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import time
from collections import Counter, defaultdict
from collections.abc import (
    AsyncIterator,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from hashlib import sha256
from pathlib import Path
from typing import ClassVar, Literal, NamedTuple

import msgspec

from opensafeintent.batch.dialects import LineResult, NewBatch, RemoteBatch
from opensafeintent.batch.endpoints import BatchModel
from opensafeintent.batch.server import LostReply, NotSent, RequestRefused
from opensafeintent.batch.store import BatchStore, StoredBatch, is_apart
from opensafeintent.calls.client import Client, ModelStopped, work_on_each
from opensafeintent.calls.left_out import UNSUPPORTED_FIELD
from opensafeintent.calls.progress import Display, refresh_display
from opensafeintent.calls.provider_errors import FATAL, LONGEST_ERROR, ProviderError, classify_error
from opensafeintent.calls.records import Attempt, Call, Failed, Failure, Outcome, Replied
from opensafeintent.calls.service_tiers import BATCH
from opensafeintent.errors import InputError, Stopped, pluralize
from opensafeintent.files import os_errors, write_beside

TRIES = 3
"""Batches in which a call is tried, at most, by one run."""
_REPLIES = 2
"""So many replies without an answer end a call."""
_AT_ONCE = 200
DOWNLOADS = 3
"""So many downloads that hold the same calls are final."""
GONE = (404, 410)
_NAMES = {"answers": "the file of answers", "errors": "the file of errors", "results": "the file"}


class Oddities(msgspec.Struct):
    """What the lines of one file are, beside results of calls."""

    unknown: int = 0
    """Lines about no call of the batch."""
    twice: int = 0
    malformed: int = 0
    first_malformed: str = ""


class _Fetched(NamedTuple):
    """How the download of a file ended."""

    end: Literal["came", "gone", "unknown"]
    fault: str


class BatchResults(msgspec.Struct, kw_only=True):
    """The results of one batch: they are downloaded until they are whole, and stored in the ledger.

    Args:
        client: stores and counts.
        store: the batches and their calls.
        model: of the batch.
        batch: as it is stored.
        tries: attempts without an answer, by key, of all batches of this run.
        replies: of these, the replies.
        read_again: whether a plan that follows takes each answer from the ledger, and counts it as
            reused.
    """

    client: Client
    store: BatchStore
    model: BatchModel
    batch: StoredBatch
    tries: Counter[bytes]
    replies: Counter[bytes]
    read_again: bool
    answered: int = 0
    none_answered: bool = False
    """Whether the provider says that no call of the batch was answered."""
    names_field: bool = False
    """Whether an error names a field that the model does not take."""
    awaited: str = ""
    """Why its files are to be read again; "" if the batch is done with."""
    nearer: bool = False
    """Whether the last download of a file was equal to the one before it."""
    seen: set[bytes] = set()
    """Keys of the calls whose line is stored."""
    unmet: dict[bytes, str] = {}
    """The kinds of failure of calls without an answer; a later line may yet be one."""
    read: set[str] = set()
    """Names of the files that this process has downloaded."""
    final: set[str] = set()
    faults: dict[str, str] = {}
    """Why files are unsound, by name."""
    odd: dict[str, Oddities] = {}
    """By file."""

    @property
    def line(self) -> str:
        """What is odd about them, and how many have no answer; "" if there is nothing."""
        odd = self.odd.values()
        # expired, cancelled, or without a line
        unanswered = sum(kind in (_UNANSWERED, _EXPIRED) for kind in self.unmet.values())
        first = next((each.first_malformed for each in odd if each.malformed), "")
        counts = {
            "failed": len(self.unmet) - unanswered,
            "without a result": unanswered,
            "of unknown calls": sum(each.unknown for each in odd),
            "repeated": sum(each.twice for each in odd),
            f"that cannot be read ({first})": sum(each.malformed for each in odd),
        }
        lines = [f"{count:,} {what}" for what, count in counts.items() if count]
        return "; ".join([f"lines: {', '.join(lines)}"] * bool(lines) + self.reasons)

    @property
    def reasons(self) -> list[str]:
        """Why files are unsound, for people."""
        return [
            f"{_NAMES[name]}: {fault}" if name else fault for name, fault in self.faults.items()
        ]

    def describe_batch(self) -> str:
        """Return a line about the batch, which has ended."""
        odd = f"; {self.line}" if self.line else ""
        return (
            f"{self.batch.model}: batch {self.batch.remote} has ended,"
            f" {pluralize(self.answered, 'answer')} of {self.batch.lines:,}{odd}"
        )

    async def collect(self, remote: RemoteBatch) -> None:
        """Store the results, as far as they can be had; `awaited` says why there may be more.

        Args:
            remote: the batch, which has ended, as the provider describes it.

        Raises:
            InputError: the ledger or a file cannot be written.
        """
        self.nearer, self.none_answered = False, remote.answered == 0
        # one that names no file is read as one whose file is empty
        files = remote.files or {"": ""}
        for name, path in files.items():
            last = self.store.downloads(self.batch, name)
            fresh = name in self.read and last and not is_apart(last.at, PACE.again)
            if not (fresh or name in self.final):
                await self._read(name, path)
        keys = [key for key in self.store.keys(self.batch) if key not in self.seen]
        lacking = self._find_unstored(keys)
        if lacking and not files.keys() <= self.final:
            count = f"{len(lacking):,} of {pluralize(self.batch.lines, 'call')} without a result"
            self.awaited = "; ".join([count, *self.reasons])
            return
        self.awaited = ""
        self.answered += len(keys) - len(lacking)
        await self._store_unanswered(remote, lacking)
        # after this, nothing reads the batch again
        await self.client.ledger.catch_up()

    def _find_unstored(self, keys: list[bytes]) -> list[bytes]:
        """Return those of some keys without an outcome in the ledger."""
        lacking = list[bytes]()
        for start in range(0, len(keys), _AT_ONCE):
            some = keys[start : start + _AT_ONCE]
            stored = self.client.ledger.find_all(some)
            lacking += [key for key in some if key not in stored]
        return lacking

    async def _read(self, name: str, path: str) -> None:
        """Download a file, and store it if it is sound, or final."""
        new, kept = (self.store.find_file(self.batch, name + end) for end in ("-new", ""))
        new.unlink(missing_ok=True)
        end, fault = await self._fetch(path, new)
        self.faults |= {name: fault}
        if not fault:
            del self.faults[name]
        if end == "unknown":
            return
        self.read.add(name)
        self.odd[name] = odd = Oddities()
        known = await self._take(new, odd, storing=not fault)
        content = sha256(b"".join(sorted(known))).digest()
        equal = self.store.note_download(self.batch, name, content, PACE.again).equal
        self.nearer = self.nearer or equal > 1
        if end == "gone" or equal >= DOWNLOADS:
            self.final.add(name)
            # what an earlier download had is not there any more
            for file in (kept, new):
                await self._take(file, Oddities(), storing=True)
        elif fault:
            before = await self._take(kept, Oddities(), storing=False)
            if len(known) > len(before):
                new.replace(kept)

    async def _fetch(self, path: str, file: Path) -> _Fetched:
        """Download a file of results."""
        if not path:
            return _Fetched("came", "the provider names no file with results")
        try:
            return _Fetched("came", await download(self.model, path, file, self.batch.lines))
        except RequestRefused as refused:
            return _Fetched("gone" if refused.status in GONE else "unknown", str(refused))
        except (LostReply, NotSent) as error:
            return _Fetched("unknown", str(error))

    async def _take(self, file: Path, odd: Oddities, *, storing: bool) -> set[bytes]:
        """Read a downloaded file, and store its lines or not; count the odd ones, and return the
        keys of calls of the others.
        """
        ours, keys = set(self.store.keys(self.batch)), set[bytes]()
        results = list[tuple[bytes, LineResult]]()
        for number, result in enumerate(results_in(file, self.model), 1):
            if isinstance(result, str):
                odd.malformed += 1
                odd.first_malformed = odd.first_malformed or result
            elif (key := read_line_key(result)) not in ours:
                odd.unknown += 1
            else:
                odd.twice += key in keys
                keys.add(key)
                results.append((key, result))
            if number % _AT_ONCE == 0:
                if storing:
                    await self._store_some(results)
                results.clear()
                # an interruption is to be heard
                await asyncio.sleep(0)
        if storing:
            await self._store_some(results)
        return keys

    async def _store_some(self, results: Sequence[tuple[bytes, LineResult]]) -> None:
        """Store some lines. The first answer of a call counts; without one, its first line."""
        keys = {key for key, _ in results if key not in self.seen or key in self.unmet}
        calls = self.store.find(self.batch, keys) if keys else {}
        # by an earlier process
        stored = self.client.ledger.find_all(list(calls.keys() - self.seen))
        for key, result in results:
            if key not in calls or (key in self.seen and key not in self.unmet):
                continue
            if key in stored:
                self.answered += 1
                self.seen.add(key)
                continue
            attempt = self._read_attempt(calls[key], result)
            if key not in self.unmet or isinstance(attempt, Replied):
                self.seen.add(key)
                self._record(calls[key], key, attempt)
        await self.client.ledger.catch_up(_AT_ONCE)

    def _read_attempt(self, call: Call, result: LineResult) -> Attempt:
        """Return what a line says of a call."""
        match result.kind:
            case "reply":
                model = self.model.model
                fields = model.build_fields(call, model.left_out)
                attempt, field = model.classify_reply(fields, result.status, result.body, {}, 0.0)
                if field is not None and isinstance(attempt, Failure):
                    self.names_field = True
                    attempt = msgspec.structs.replace(attempt, kind=UNSUPPORTED_FIELD, retry=True)
                return attempt
            case "expired":
                return _make_unanswered(
                    "the batch expired before this call was made", whole=self.none_answered
                )
            case "cancelled":
                return _make_unanswered("the batch was cancelled before this call was made")
            case "unreadable":
                return Failure(
                    kind="malformed",
                    error="the line of results holds neither a response nor an error",
                    retry=True,
                    replied=True,
                    body=result.body[:LONGEST_ERROR],
                )

    def _record(self, call: Call, key: bytes, attempt: Attempt) -> None:
        """Store an attempt, and decide whether the call is tried again."""
        client, name = self.client, self.model.name
        attempt = client.record(call, key, msgspec.structs.replace(attempt, tier=BATCH))
        client.tally.new_calls[call.model, call.purpose] += 1
        if isinstance(attempt, Replied):
            self.answered += 1
            self.unmet.pop(key, None)
            client.final_failures.discard(key)
            client.tally.reused_calls -= self.read_again
            return
        self.unmet[key] = attempt.kind
        self.tries[key] += 1
        self.replies[key] += attempt.replied
        if attempt.fatal:
            client.stopped_models.setdefault(name, f"{name}: stopped: {attempt.error}")
        over = self.tries[key] >= TRIES or self.replies[key] >= _REPLIES
        if over or not attempt.retry:
            client.last_errors[name] = attempt.error
            client.final_failures.add(key)

    async def _store_unanswered(self, remote: RemoteBatch, lacking: list[bytes]) -> None:
        ended = f"the batch ended ({remote.status}) without a result of this call"
        whole = self.none_answered and "expired" in remote.status.lower()
        attempt = _make_unanswered("; ".join([ended, *self.reasons]), whole=whole)
        for start in range(0, len(lacking), _AT_ONCE):
            calls = self.store.find(self.batch, lacking[start : start + _AT_ONCE])
            for key, call in calls.items():
                self._record(call, key, attempt)
            await self.client.ledger.catch_up(_AT_ONCE)


_UNANSWERED = "timeout"
"""The kind of failure of a call that its batch did not answer: long answers meet it more often."""
_EXPIRED = "expired"
"""That of a batch in which no call was answered, which knows nothing of the calls."""


def _make_unanswered(line: str, *, whole: bool = False) -> Failure:
    return Failure(kind=_EXPIRED if whole else _UNANSWERED, error=line, retry=True)


async def download(model: BatchModel, path: str, file: Path, submitted: int) -> str:
    """Download a file of results, and return why it is unsound; see `BatchServer.download`.

    Raises:
        RequestRefused, LostReply, NotSent, InputError: see there.
    """
    with write_beside(file, private=True) as opened:

        def write(part: bytes) -> None:
            with os_errors(f"{file}: cannot write"):
                opened.write(part)

        return await model.server.download(path, write, submitted)


def results_in(file: Path, model: BatchModel) -> Iterator[LineResult | str]:
    """Yield the results in a downloaded file; of a line that is none, the reason. Lines end at a
    line feed and nothing else: JSON may hold other ends of lines within its strings.
    """
    if not file.exists():
        return
    with file.open("rb") as lines:
        for line in lines:
            if line.strip():
                try:
                    yield model.dialect.read(model.server.scrub_bytes(line))
                except ValueError as error:
                    yield model.server.scrub(str(error))


def read_line_key(result: LineResult | str) -> bytes:
    """Return the key that the id of a line is; one that is none is kept as it is, and unknown."""
    custom_id = "" if isinstance(result, str) else result.custom_id
    try:
        return bytes.fromhex(custom_id)
    except ValueError:
        return custom_id.encode("utf-8", "replace")


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
    return bool(error.codes & _QUOTA_CODES) or classify_error(400, error) == "rate_limited"


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
        while self._store.count_staged(model.name) and self._has_room(model):
            try:
                self._client.check(model.name)
            except ModelStopped:
                self._store.unstage(model.name)
                return
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
            self._take_back(model, batch, refused)

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
            self._note_opened(batch, remote)

    def _note_opened(self, batch: StoredBatch, remote: RemoteBatch) -> None:
        self._store.advance(
            batch, "open", remote=remote.id, opened=time.time(), status=remote.status
        )
        self._note(f"{batch.model}: batch {remote.id} with {pluralize(batch.lines, 'call')}")

    def _take_back(self, model: BatchModel, batch: StoredBatch, refused: RequestRefused) -> None:
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
            raise make_no_batches_error(model, refused)
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
            f" {pluralize(most, 'call')}: {why}"
        )

    async def settle(self, model: BatchModel, batch: StoredBatch) -> None:
        """Find a batch whose creation is unclear in the provider's list, or create it again if it
        is in none for some minutes.

        Raises:
            Stopped: the list, or the results of a batch that may be it, cannot be read.
            InputError: the key is another one.
        """
        if not belongs_to_account(model, batch):
            raise make_other_account_error(model, batch)
        try:
            found = await self._find_remote(model, batch)
        except (LostReply, NotSent, RequestRefused) as error:
            raise Stopped(
                f"{model.name}: it cannot be found out whether a batch exists: {error}"
            ) from error
        if isinstance(found, RemoteBatch):
            self._note_opened(batch, found)
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
            self._take_back(model, batch, refused)
        except NotSent as error:
            raise Stopped(f"{model.name}: a batch cannot be submitted: {error}") from error
        finally:
            path.unlink(missing_ok=True)

    async def _find_remote(self, model: BatchModel, batch: StoredBatch) -> RemoteBatch | str:
        """Return the batch in the provider's list; "undecided" if one that has not ended may be it,
        or "nowhere".
        """
        known = {other.remote for other in self._store.batches()}
        since = batch.planned - _SINCE_SLACK
        undecided = False
        async with contextlib.aclosing(model.dialect.list_batches(model.server, since)) as listed:
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
            file = self._store.find_file(batch, name)
            try:
                fault = await download(model, path, file, batch.lines)
                keys = {read_line_key(result) for result in results_in(file, model)}
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


def make_no_batches_error(model: BatchModel, refused: RequestRefused) -> InputError:
    """Return the error of a server without batches."""
    return InputError(f"--tier batch: {model.name} has no batches ({refused}); leave it out")


def belongs_to_account(model: BatchModel, batch: StoredBatch) -> bool:
    """Tell whether a batch was made with a model's key and address."""
    return batch.account == model.account and batch.base_url == model.model.endpoint.base_url


def make_other_account_error(model: BatchModel, batch: StoredBatch) -> InputError:
    """Return the error of a batch that was made with another key or at another address."""
    name = f"batch {batch.remote}" if batch.remote else f"a batch of {batch.lines:,} calls"
    variable = model.model.endpoint.key_variable
    return InputError(
        f"{variable}: {name} of {model.name} is not of this account; expected the key and the"
        f" address that it was made with ({batch.base_url})"
    )


def describe_age(seconds: float) -> str:
    """Return the age of a batch, for people."""
    minutes = max(seconds, 0.0) / 60
    return f"{minutes:.0f} min" if minutes < 100 else f"{minutes / 60:.1f} h"


HANDFUL = 20
"""So many calls of a model go as plain calls, if they are no model's first ones."""
_STAGED_AT_ONCE = 500
_PLAIN_AT_ONCE = 512
_ALERT_SECONDS = 0.25


class BatchesWaiting(Stopped):
    """The time to wait for batches is over; they go on at their providers (exit code 3)."""


class Batching:
    """Makes rounds of calls through batches, and waits for their results.

    Args:
        client: makes plain calls, and stores all results.
        models: those that are asked in batches, by name.
        store: of the batches.
        display: shows how they are going.
        seconds: to wait for them in all; None waits until they end.
    """

    read_again: ClassVar[bool] = True
    """Whether a plan that follows takes each answer from the ledger."""

    def __init__(
        self,
        client: Client,
        models: Mapping[str, BatchModel],
        store: BatchStore,
        display: Display,
        seconds: float | None = None,
    ) -> None:
        self.client = client
        self._models = models
        self._store = store
        self._display = display
        self._submitter = Submitter(client, store, display.note)
        self._results: dict[int, BatchResults] = {}
        """Of the batches whose results are not all stored."""
        self._tries: Counter[bytes] = Counter()
        self._replies: Counter[bytes] = Counter()
        self._until = None if seconds is None else time.monotonic() + seconds
        self._proven: set[str] = set()
        """Models that have answered a call with the settings of this run."""
        self._remote: dict[int, RemoteBatch] = {}
        """The last that was seen of each batch."""
        self._unreadable_since: dict[int, float] = {}
        self._vanished: dict[int, str] = {}
        """A line about each batch that its provider has no more."""

    async def begin(self) -> None:
        """See that every model has batches, and take up those that an earlier run has left.

        Raises:
            InputError: a model has none, its key is not valid, or a batch is another account's.
            Stopped: a provider cannot be asked.
        """
        input_path(self._store).unlink(missing_ok=True)
        self._store.remove_files()
        for batch in self._store.batches("planned"):
            self._store.give_back(batch)
        self._store.unstage()
        for model in self._models.values():
            self._proven |= {
                batch.model
                for batch in self._store.batches("ended", model=model.name)
                if batch.answered
            }
            try:
                async with contextlib.aclosing(
                    model.dialect.list_batches(model.server, time.time())
                ) as listed:
                    await anext(listed, None)
            except RequestRefused as refused:
                if refused.status in (404, 405):
                    raise make_no_batches_error(model, refused) from refused
                raise Stopped(f"{model.name}: its batches cannot be listed: {refused}") from refused
            except (LostReply, NotSent) as error:
                raise Stopped(f"{model.name}: its batches cannot be listed: {error}") from error
        await self.complete()

    @contextlib.asynccontextmanager
    async def show_progress(self) -> AsyncIterator[None]:
        """Show how the batches are going while the body runs; say if any is left under way.

        Raises:
            Interrupted: the process was asked to end while plain calls were in flight.
        """
        try:
            async with refresh_display(
                self._display, lambda: self._display.stage(self.line), self.client
            ):
                yield
        except BaseException:  # whatever ends it, batches may go on
            self.note_left()
            raise

    def note_left(self) -> None:
        """Show how many batches go on at their providers, if any does."""
        if left := len(self._list_under_way()):
            self._display.note(
                f"batches that go on at their providers: {left:,}; the same command takes their"
                " results"
            )

    async def make(self, calls: Iterable[Call]) -> bool:
        """Make a round of calls, but for those with an outcome and those whose failure is final;
        tell whether there was any.

        Raises:
            BatchesWaiting: the time to wait is over.
            Stopped: a provider or a budget ended the work.
            InputError: a file cannot be written, or a key is another one.
        """
        client = self.client
        any_made = False
        staged: dict[bytes, Call] = {}
        direct: dict[bytes, Call] = {}
        for call in calls:
            key = client.compute_key(call)
            if call.model in client.stopped_models or key in client.final_failures:
                continue
            group = staged if call.model in self._models else direct
            group[key] = call
            if len(group) >= _STAGED_AT_ONCE:
                any_made = await self._take(staged, direct) or any_made
        any_made = await self._take(staged, direct) or any_made
        for model in self._models.values():
            await self._prove(model)
            await self._few_as_plain_calls(model)
        await self.complete()
        return any_made

    async def _take(self, staged: dict[bytes, Call], direct: dict[bytes, Call]) -> bool:
        """Keep some calls for batches, and make those of this process."""
        found = self.client.ledger.find_all([*staged, *direct])
        new = self._store.stage((key, call) for key, call in staged.items() if key not in found)
        now = [call for key, call in direct.items() if key not in found]
        await self.make_plainly(now)
        staged.clear()
        direct.clear()
        # an interruption is to be heard
        await asyncio.sleep(0)
        return bool(new or now)

    async def make_plainly(self, calls: Sequence[Call]) -> None:
        """Make some calls as plain calls."""

        async def ask(call: Call) -> None:
            with contextlib.suppress(ModelStopped):
                await self.ask_plainly(call)

        await work_on_each(self.client, calls, ask, at_once=_PLAIN_AT_ONCE)
        await self.client.ledger.catch_up()

    async def ask_plainly(self, call: Call) -> Outcome:
        """Make a plain call whose outcome a plan that follows takes from the ledger.

        Raises:
            ModelStopped, Stopped, InputError: see `Client.ask`.
        """
        client = self.client
        before = client.tally.reused_calls
        outcome = await client.ask(call)
        if isinstance(outcome, Failed):
            client.final_failures.add(client.compute_key(call))
        elif client.tally.reused_calls == before:
            # that plan counts it as a duplicate
            client.tally.reused_calls -= 1
            client.tally.duplicates -= 1
        return outcome

    def are_proven(self, names: Iterable[str]) -> bool:
        """Tell whether each of some models has answered, or is not asked in batches."""
        return all(name in self._proven or name not in self._models for name in names)

    def note_proven(self, *names: str) -> None:
        """Note that some models have answered with the settings of this run."""
        self._proven.update(names)

    async def _prove(self, model: BatchModel) -> None:
        """Make one call of a model as a plain call: a wrong name or a field that the model does not
        take shows before thousands of lines fail for it.
        """
        if model.name in self._proven:
            return
        first = next(self._store.calls(model.name), None)
        if first is None:
            return
        await self.make_plainly([first[1]])
        self._store.unstage_call(first[0])
        if model.name in self.client.stopped_models:
            self._store.unstage(model.name)
        self._proven.add(model.name)

    async def _few_as_plain_calls(self, model: BatchModel) -> None:
        """Make a handful of calls as plain calls: a batch may take a day."""
        count = self._store.count_staged(model.name)
        if not 0 < count <= HANDFUL or not self._store.batches(model=model.name):
            return
        self._display.note(
            f"{model.name}: {pluralize(count, 'call')} made as plain calls, too few for a batch"
        )
        await self.make_plainly([call for _, call in list(self._store.calls(model.name))])
        self._store.unstage(model.name)

    async def complete(self) -> None:
        """Submit all staged calls, and wait until every batch of these models has ended.

        Raises:
            BatchesWaiting, Stopped, InputError: see `make`.
        """
        wait = PACE.first_look
        while True:
            for model in self._models.values():
                await self._submitter.submit(model)
            under_way = self._list_under_way()
            for batch in under_way:
                await self._look(self._models[batch.model], batch)
            waiting = any(self._store.count_staged(name) for name in self._models)
            if not waiting and not self._list_under_way():
                return
            if not waiting and self._vanished.keys() >= {
                batch.id for batch in self._list_under_way()
            }:
                raise Stopped("; ".join(self._vanished.values()))
            if len(self._list_under_way()) < len(under_way):
                continue
            await self._sleep(wait)
            wait = min(1.5 * wait, PACE.longest_look)

    def _list_under_way(self) -> list[StoredBatch]:
        return [
            batch
            for batch in self._store.batches("uploaded", "submitting", "open")
            if batch.model in self._models
        ]

    async def _sleep(self, seconds: float) -> None:
        """Wait, unless the time is over or the run was halted.

        Raises:
            BatchesWaiting, Stopped: see `make`.
        """
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            self.client.raise_if_halted()
            if self._until is not None and time.monotonic() >= self._until:
                raise BatchesWaiting(
                    f"--wait-for: the time is over; {self.line}; the same command goes on from"
                    " there"
                )
            await asyncio.sleep(min(left, _ALERT_SECONDS))

    @property
    def line(self) -> str:
        """How the batches under way are going: counts if the provider gives them, and age."""
        under_way = self._list_under_way()
        if not under_way:
            return "batches: planning the next round"
        lines = sum(batch.lines for batch in under_way)
        seen = [self._remote[batch.id] for batch in under_way if batch.id in self._remote]
        counts = [remote.done for remote in seen if remote.done is not None]
        ended = f"{sum(counts):,} of " if counts else ""
        begun = min((batch.planned for batch in under_way), default=time.time())
        age = describe_age(time.time() - begun)
        return f"batches: {len(under_way):,} under way, {ended}{lines:,} calls, {age}"

    async def _look(self, model: BatchModel, batch: StoredBatch) -> None:
        """Ask about a batch, and store its results if it has ended.

        Raises:
            Stopped: the provider cannot be asked, or the batch has failed as a whole.
            InputError: it is another account's, or a file cannot be written.
        """
        if batch.state != "open":
            await self._submitter.settle(model, batch)
            return
        try:
            remote = await model.dialect.find(model.server, batch.remote)
        except RequestRefused as refused:
            self._note_refused(model, batch, refused)
            return
        except (LostReply, NotSent) as error:
            self._note_unreadable(batch, str(error))
            return
        self._vanished.pop(batch.id, None)
        self._remote[batch.id] = remote
        if remote.state == "waiting" or await self._end(model, batch, remote):
            self._unreadable_since.pop(batch.id, None)

    def _note_refused(self, model: BatchModel, batch: StoredBatch, refused: RequestRefused) -> None:
        """Note that a provider does not tell about a batch.

        Raises:
            Stopped: it does not take the key that made the batch.
            InputError: the key is another one.
        """
        if refused.status in (401, 403, 404, 410):
            if not belongs_to_account(model, batch):
                raise make_other_account_error(model, batch) from refused
            if refused.status in (401, 403):
                raise Stopped(
                    f"{model.name}: batch {batch.remote} cannot be asked about: {refused}; check"
                    f" {model.model.endpoint.key_variable}"
                ) from refused
            again = PACE.again
            if self._store.note_download(batch, "", b"no batch", again).equal >= DOWNLOADS:
                self._vanished[batch.id] = (
                    f"{model.name}: its provider has batch {batch.remote} no more"
                    f" ({refused.status}, with the key that made it), and the answers to"
                    f" {pluralize(batch.lines, 'call')} are lost; to ask for them again, at their"
                    f" price, delete {self._store.path}"
                )
                return
        self._note_unreadable(batch, str(refused))

    def _note_unreadable(self, batch: StoredBatch, why: str, *, nearer: bool = False) -> None:
        """Note that a batch or its results cannot be read to the end, and say so once.

        Args:
            batch: the batch.
            why: it cannot be read.
            nearer: whether it is nearer to an end, however long it takes.

        Raises:
            Stopped: it has been so for too long.
        """
        since = self._unreadable_since.get(batch.id)
        if since is None:
            self._display.note(
                f"{batch.model}: batch {batch.remote} cannot be read to its end: {why}; it is read"
                " again, and none of its calls is made again meanwhile"
            )
        if since is None or nearer:
            self._unreadable_since[batch.id] = since = time.monotonic()
        if time.monotonic() > since + PACE.unreadable:
            raise Stopped(
                f"{batch.model}: batch {batch.remote} or its results cannot be read: {why}; the"
                " same command reads them again"
            )

    async def _end(self, model: BatchModel, batch: StoredBatch, remote: RemoteBatch) -> bool:
        """Store the results of a batch that has ended; return whether no more is to come.

        Raises:
            Stopped: it has failed as a whole.
        """
        if remote.state == "failed" and not remote.files:
            why = remote.error.message or remote.error.text if remote.error else remote.status
            line = model.server.scrub(why)
            if is_quota(remote.error):
                self._store.give_back(batch)
                self._submitter.queue_was_full(model, batch, line)
                return True
            self._store.end(batch, status=remote.status, note=line)
            raise Stopped(f"{model.name}: batch {batch.remote} has failed: {line}")
        if (results := self._results.get(batch.id)) is None:
            results = self._results[batch.id] = BatchResults(
                client=self.client,
                store=self._store,
                model=model,
                batch=batch,
                tries=self._tries,
                replies=self._replies,
                read_again=self.read_again,
            )
        await results.collect(remote)
        if results.awaited:
            self._note_unreadable(batch, results.awaited, nearer=results.nearer)
            return False
        del self._results[batch.id]
        self._store.end(batch, status=remote.status, answered=results.answered, note=results.line)
        self._store.remove_files()
        self._display.note(results.describe_batch())
        if results.names_field:
            self._proven.discard(model.name)
        return True
