"""Results of batches: each line becomes a row of the ledger, as the reply of a plain call does.

A file of results is *sound* if its download and its last line came to their ends. It is then stored
at once. A batch is *whole* if each call that was submitted has a line in a stored file; counts of
providers do not decide, because some are false. Until then its files are downloaded again and
again, and no call of it is submitted again. A file is *final* if the provider has it no more, or if
some downloads, minutes apart, hold the same calls: then what it holds is stored, and the calls
without a line are asked for again.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from opensafeintent.calls.client import Client
from opensafeintent.calls.left_out import UNSUPPORTED_FIELD
from opensafeintent.calls.prices import BATCH
from opensafeintent.calls.provider_errors import LONGEST_ERROR
from opensafeintent.calls.records import Attempt, Call, Failure, Replied
from opensafeintent.errors import counted
from opensafeintent.extensions.batches.dialects import LineResult, RemoteBatch
from opensafeintent.extensions.batches.models import BatchModel
from opensafeintent.extensions.batches.server import LostReply, NotSent, RequestRefused
from opensafeintent.extensions.batches.store import BatchStore, StoredBatch, is_apart
from opensafeintent.files import os_errors, written_beside

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


class Findings(msgspec.Struct):
    """What is known of the results of one batch."""

    answered: int = 0
    failed: int = 0
    unanswered: int = 0
    """Lines that expired, were cancelled, or have no result."""
    names_field: bool = False
    """Whether an error names a field that the model does not take."""
    awaited: str = ""
    """Why its files are to be read again; "" if the batch is done with."""
    nearer: bool = False
    """Whether the last download of a file was equal to the one before it."""
    seen: set[bytes] = set()
    """Keys of the calls whose line is stored."""
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
        first = next((each.first_malformed for each in odd if each.malformed), "")
        counts = {
            "failed": self.failed,
            "without a result": self.unanswered,
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


class _Fetched(NamedTuple):
    """How the download of a file ended."""

    end: Literal["came", "gone", "unknown"]
    fault: str


class Collector:
    """Reads results into the ledger.

    Args:
        client: stores and counts.
        store: the batches and their calls.
        read_again: whether a plan that follows takes each answer from the ledger, and counts it as
            reused.
    """

    def __init__(self, client: Client, store: BatchStore, *, read_again: bool) -> None:
        self._client = client
        self._store = store
        self._read_again = read_again
        self._findings: dict[int, Findings] = {}
        self._tries: Counter[bytes] = Counter()
        """Attempts without an answer, by key."""
        self._replies: Counter[bytes] = Counter()

    async def collect(
        self, model: BatchModel, batch: StoredBatch, remote: RemoteBatch, again: float
    ) -> Findings:
        """Store the results of a batch that has ended, as far as they can be had.

        Args:
            model: of the batch.
            batch: as it is stored.
            remote: as the provider describes it.
            again: seconds between two downloads of a file.

        Raises:
            InputError: the ledger or a file cannot be written.
        """
        findings = self._findings.setdefault(batch.id, Findings())
        findings.nearer = False
        # one that names no file is read as one whose file is empty
        files = remote.files or {"": ""}
        for name, path in files.items():
            last = self._store.downloads(batch, name)
            fresh = name in findings.read and last and not is_apart(last.at, again)
            if not (fresh or name in findings.final):
                await self._read(model, batch, (name, path), findings, again)
        keys = [key for key in self._store.keys(batch) if key not in findings.seen]
        lacking = self._unstored(keys)
        if lacking and not files.keys() <= findings.final:
            count = f"{len(lacking):,} of {counted(batch.lines, 'call')} without a result"
            findings.awaited = "; ".join([count, *findings.reasons])
            return findings
        findings.awaited = ""
        findings.answered += len(keys) - len(lacking)
        await self._store_unanswered(model, batch, remote, lacking, findings)
        # after this, nothing reads the batch again
        await self._client.ledger.catch_up()
        del self._findings[batch.id]
        return findings

    def _unstored(self, keys: list[bytes]) -> list[bytes]:
        """Return those of some keys without an outcome in the ledger."""
        lacking = list[bytes]()
        for start in range(0, len(keys), _AT_ONCE):
            some = keys[start : start + _AT_ONCE]
            stored = self._client.ledger.find_all(some)
            lacking += [key for key in some if key not in stored]
        return lacking

    async def _read(
        self,
        model: BatchModel,
        batch: StoredBatch,
        named: tuple[str, str],
        findings: Findings,
        again: float,
    ) -> None:
        """Download a file, and store it if it is sound, or final."""
        name, path = named
        new, kept = (self._store.file_of(batch, name + end) for end in ("-new", ""))
        new.unlink(missing_ok=True)
        end, fault = await self._fetch(model, batch, path, new)
        findings.faults |= {name: fault}
        if not fault:
            del findings.faults[name]
        if end == "unknown":
            return
        findings.read.add(name)
        findings.odd[name] = odd = Oddities()
        known = await self._take(model, batch, new, findings, odd, storing=not fault)
        content = sha256(b"".join(sorted(known))).digest()
        equal = self._store.note_download(batch, name, content, again).equal
        findings.nearer = findings.nearer or equal > 1
        if end == "gone" or equal >= DOWNLOADS:
            findings.final.add(name)
            # what an earlier download had is not there any more
            for file in (kept, new):
                await self._take(model, batch, file, findings, Oddities(), storing=True)
        elif fault:
            before = await self._take(model, batch, kept, findings, Oddities(), storing=False)
            if len(known) > len(before):
                new.replace(kept)

    async def _fetch(
        self, model: BatchModel, batch: StoredBatch, path: str, file: Path
    ) -> _Fetched:
        """Download a file of results."""
        if not path:
            return _Fetched("came", "the provider names no file with results")
        try:
            return _Fetched("came", await download(model, path, file, batch.lines))
        except RequestRefused as refused:
            if refused.status in GONE:
                return _Fetched("gone", str(refused))
            passing = refused.kind in ("server", "rate_limited") or refused.status in (401, 403)
            return _Fetched("unknown" if passing else "came", str(refused))
        except (LostReply, NotSent) as error:
            return _Fetched("unknown", str(error))

    async def _take(
        self,
        model: BatchModel,
        batch: StoredBatch,
        file: Path,
        findings: Findings,
        odd: Oddities,
        *,
        storing: bool,
    ) -> set[bytes]:
        """Read a downloaded file, and store its lines or not; count the odd ones, and return the
        keys of calls of the others.
        """
        ours, keys = set(self._store.keys(batch)), set[bytes]()
        results = dict[bytes, LineResult]()
        for number, result in enumerate(results_in(file, model), 1):
            if isinstance(result, str):
                odd.malformed += 1
                odd.first_malformed = odd.first_malformed or result
            elif (key := key_of(result)) not in ours:
                odd.unknown += 1
            elif key in keys:
                odd.twice += 1
            else:
                keys.add(key)
                results[key] = result
            if number % _AT_ONCE == 0:
                if storing:
                    await self._store_some(model, batch, results, findings)
                results.clear()
                # an interruption is to be heard
                await asyncio.sleep(0)
        if storing:
            await self._store_some(model, batch, results, findings)
        return keys

    async def _store_some(
        self,
        model: BatchModel,
        batch: StoredBatch,
        results: Mapping[bytes, LineResult],
        findings: Findings,
    ) -> None:
        # the first line of a call counts
        new = [key for key in results if key not in findings.seen]
        calls = self._store.find(batch, new) if new else {}
        # by an earlier process
        stored = self._client.ledger.find_all(list(calls))
        for key, call in calls.items():
            if key in stored:
                findings.answered += 1
            else:
                self._record_result(model, call, key, results[key], findings)
        findings.seen |= calls.keys()
        await self._client.ledger.catch_up(_AT_ONCE)

    def _record_result(
        self, model: BatchModel, call: Call, key: bytes, result: LineResult, findings: Findings
    ) -> None:
        match result.kind:
            case "reply":
                fields = model.model.fields_of(call, model.model.left_out)
                attempt, field = model.model.result_of(fields, result.status, result.body, {}, 0.0)
                if field is not None and isinstance(attempt, Failure):
                    findings.names_field = True
                    attempt = msgspec.structs.replace(attempt, kind=UNSUPPORTED_FIELD, retry=True)
            case "expired":
                attempt = _unanswered("the batch expired before this call was made")
            case "cancelled":
                attempt = _unanswered("the batch was cancelled before this call was made")
            case "unreadable":
                attempt = Failure(
                    kind="malformed",
                    error="the line of results holds neither a response nor an error",
                    retry=True,
                    replied=True,
                    body=result.body[:LONGEST_ERROR],
                )
        self._record(model, call, key, attempt, findings)

    def _record(
        self, model: BatchModel, call: Call, key: bytes, attempt: Attempt, findings: Findings
    ) -> None:
        """Store an attempt, and decide whether the call is tried again."""
        client = self._client
        attempt = client.record(call, key, msgspec.structs.replace(attempt, tier=BATCH))
        client.tally.new_calls[call.model, call.purpose] += 1
        if isinstance(attempt, Replied):
            findings.answered += 1
            client.tally.reused_calls -= self._read_again
            return
        if attempt.kind == _UNANSWERED:
            findings.unanswered += 1
        else:
            findings.failed += 1
        self._tries[key] += 1
        self._replies[key] += attempt.replied
        if attempt.fatal:
            line = f"{model.name}: stopped: {attempt.error}"
            client.stopped_models.setdefault(model.name, line)
        over = self._tries[key] >= TRIES or self._replies[key] >= _REPLIES
        if over or not attempt.retry:
            client.last_errors[model.name] = attempt.error
            client.final_failures.add(key)

    async def _store_unanswered(
        self,
        model: BatchModel,
        batch: StoredBatch,
        remote: RemoteBatch,
        lacking: list[bytes],
        findings: Findings,
    ) -> None:
        ended = f"the batch ended ({remote.status}) without a result of this call"
        attempt = _unanswered("; ".join([ended, *findings.reasons]))
        for start in range(0, len(lacking), _AT_ONCE):
            calls = self._store.find(batch, lacking[start : start + _AT_ONCE])
            for key, call in calls.items():
                self._record(model, call, key, attempt, findings)
            await self._client.ledger.catch_up(_AT_ONCE)

    def lines_of(self, batch: StoredBatch, findings: Findings) -> str:
        """Return a line about a batch that has ended."""
        odd = f"; {findings.line}" if findings.line else ""
        return (
            f"{batch.model}: batch {batch.remote} has ended,"
            f" {counted(findings.answered, 'answer')} of {batch.lines:,}{odd}"
        )


_UNANSWERED = "timeout"
"""The kind of failure that another run tries again."""


def _unanswered(line: str) -> Failure:
    return Failure(kind=_UNANSWERED, error=line, retry=True)


async def download(model: BatchModel, path: str, file: Path, submitted: int) -> str:
    """Download a file of results, and return why it is unsound; see `BatchServer.download`.

    Raises:
        RequestRefused, LostReply, NotSent, InputError: see there.
    """
    with written_beside(file, private=True) as opened:

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


def key_of(result: LineResult | str) -> bytes:
    """Return the key that the id of a line is; one that is none is kept as it is, and unknown."""
    custom_id = "" if isinstance(result, str) else result.custom_id
    try:
        return bytes.fromhex(custom_id)
    except ValueError:
        return custom_id.encode("utf-8", "replace")
