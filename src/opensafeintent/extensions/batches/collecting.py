"""Results of batches: each line becomes a row of the ledger, as the reply of a plain call does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import msgspec

from opensafeintent.calls.client import Client
from opensafeintent.calls.left_out import UNSUPPORTED_FIELD
from opensafeintent.calls.prices import BATCH
from opensafeintent.calls.records import Attempt, Call, Failure, Replied
from opensafeintent.errors import counted
from opensafeintent.extensions.batches.dialects import LineResult, RemoteBatch
from opensafeintent.extensions.batches.models import BatchModel
from opensafeintent.extensions.batches.store import BatchStore, StoredBatch

TRIES = 3
"""Batches in which a call is tried, at most, by one run."""
_REPLIES = 2
"""So many replies without an answer end a call."""
_AT_ONCE = 200


class Findings(msgspec.Struct):
    """What the lines of one batch are, beside answers."""

    answered: int = 0
    failed: int = 0
    unanswered: int = 0
    """Lines that expired, were cancelled, or have no result."""
    unknown: int = 0
    """Lines about no call of the batch."""
    twice: int = 0
    malformed: int = 0
    first_malformed: str = ""
    names_field: bool = False
    """Whether an error names a field that the model does not take."""

    @property
    def line(self) -> str:
        """What is odd about them, and how many have no answer; "" if there is nothing."""
        counts = {
            "failed": self.failed,
            "without a result": self.unanswered,
            "of unknown calls": self.unknown,
            "repeated": self.twice,
            f"that cannot be read ({self.first_malformed})": self.malformed,
        }
        odd = [f"{count:,} {what}" for what, count in counts.items() if count]
        return f"lines: {', '.join(odd)}" if odd else ""


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
        self._tries: Counter[bytes] = Counter()
        """Attempts without an answer, by key."""
        self._replies: Counter[bytes] = Counter()

    async def collect(self, model: BatchModel, batch: StoredBatch, remote: RemoteBatch) -> Findings:
        """Store the result of every line of a batch that has ended.

        Raises:
            RequestRefused, LostReply, NotSent: the results cannot be read to their end; those so
                far are stored.
            InputError: the ledger cannot be written.
        """
        findings = Findings()
        results: dict[bytes, LineResult] = {}
        seen: set[bytes] = set()
        async for line in model.dialect.result_lines(model.server, remote):
            if not line.strip():
                continue
            try:
                result = model.dialect.read(model.server.scrub_bytes(line))
            except ValueError as error:
                findings.malformed += 1
                findings.first_malformed = findings.first_malformed or model.server.scrub(
                    str(error)
                )
                continue
            key = _key(result.custom_id)
            if key in seen:
                findings.twice += 1
                continue
            seen.add(key)
            results[key] = result
            if len(results) >= _AT_ONCE:
                await self._store_some(model, batch, results, findings)
                results = {}
        await self._store_some(model, batch, results, findings)
        await self._store_unanswered(model, batch, remote, seen, findings)
        # after this, nothing reads the batch again
        await self._client.ledger.catch_up()
        return findings

    async def _store_some(
        self,
        model: BatchModel,
        batch: StoredBatch,
        results: Mapping[bytes, LineResult],
        findings: Findings,
    ) -> None:
        calls = self._store.find(batch, list(results)) if results else {}
        findings.unknown += len(results) - len(calls)
        # of an earlier reading of the same results, which was ended in its midst
        stored = self._client.ledger.find_all(list(calls))
        for key, call in calls.items():
            if key in stored:
                findings.answered += 1
            else:
                self._take(model, call, key, results[key], findings)
        await self._client.ledger.catch_up(_AT_ONCE)

    def _take(
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
        seen: set[bytes],
        findings: Findings,
    ) -> None:
        attempt = _unanswered(f"the batch ended ({remote.status}) without a result of this call")
        left = [key for key in self._store.keys(batch) if key not in seen]
        for start in range(0, len(left), _AT_ONCE):
            keys = left[start : start + _AT_ONCE]
            stored = self._client.ledger.find_all(keys)
            for key, call in self._store.find(batch, keys).items():
                if key not in stored:
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


def _key(custom_id: str) -> bytes:
    """Return the key that an id is; one that is none is kept as it is, and unknown."""
    try:
        return bytes.fromhex(custom_id)
    except ValueError:
        return custom_id.encode()
