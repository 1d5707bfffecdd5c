"""Hand shards out to a cluster, within the run's ceilings and budgets, and gather what comes of them."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Collection, Sequence
from math import ceil
from typing import Protocol

import msgspec

from opensafeintent.calls.client import Budget, Tally
from opensafeintent.calls.draining import current_drain
from opensafeintent.calls.shards import Spent, spent_in
from opensafeintent.errors import InputError, OpenSafeIntentError, Stopped
from opensafeintent.interop.ray.folder import Job, Merged, Progress, Report, ShardsFolder

__all__ = ["Driver", "Ended", "Pool"]

_SECONDS = 0.5
"""Between looks at how far the shards are."""
_UNSEEN_SECONDS = 90.0
"""Until what shards recorded is to be seen here: so long a network file system may show a folder as it was."""


class Pool(Protocol):
    """What runs shards, each in a process of its own."""

    slots: int
    """Shards at once."""
    gpus: float
    """GPUs in all."""

    async def run(self, job: Job) -> Report:
        """Run one shard, again where its process is lost. Cancelled, it ends the shard's process."""
        ...


class Ended(msgspec.Struct, kw_only=True):
    """How the work ended, beyond what was recorded."""

    stopped: dict[str, str] = {}
    """Models that do not answer any more, each with its line."""
    last_errors: dict[str, str] = {}
    notices: dict[str, None] = {}
    """In the order of their coming, each once."""
    error: OpenSafeIntentError | None = None
    """What is wrong with a node or with the cluster."""
    unfinished: bool = False
    """Whether shards were left when the budget was used up."""


class Driver:
    """Hands shards out and watches over them.

    Args:
        pool: runs them.
        shards: the folder that they write to.
        tally: shows the state of things as they run; `settle` puts what was recorded in its place.
        budget: of the whole run. It is never passed: every shard gets a part, and what one leaves goes to the next.
        max_connections: of an endpoint, over all shards that run at once; None lets each shard adapt.
        essential: models without which nothing goes on.
    """

    def __init__(
        self,
        pool: Pool,
        shards: ShardsFolder,
        tally: Tally,
        *,
        budget: Budget,
        max_connections: int | None = None,
        essential: Collection[str] = (),
    ) -> None:
        self.ended = Ended()
        self.items_done = 0
        self._pool, self._shards, self._tally = pool, shards, tally
        self._budget, self._max_connections, self._essential = budget, max_connections, set(essential)
        self._pending: deque[Job] = deque()
        self._running: dict[str, Job] = {}
        self._reports: dict[str, Report] = {}
        """Of the last attempt at each shard: it tells of the earlier ones as well."""
        self._changed = asyncio.Condition()
        self._over = False
        self._before = _copy(tally)

    async def run(self, jobs: Sequence[Job]) -> Ended:
        """Run all shards; what became of them is in the folder, and in what is returned.

        Cancelled, it ends the processes at once; what they had recorded stays.

        Raises:
            InputError: what was recorded does not come to be seen here; it stays in the folder.
        """
        lanes = max(1, min(len(jobs), self._pool.slots, self._max_connections or len(jobs)))
        before = self._before
        self._calls = _Purse(self._budget.calls, before.calls, lanes)
        self._tokens = _Purse(self._budget.tokens, before.tokens.total(), lanes)
        self._pending.extend(jobs)
        watching = asyncio.ensure_future(self._watch())
        workers = [asyncio.ensure_future(self._lane(number, lanes)) for number in range(lanes)]
        try:
            with current_drain().covering(self):
                await asyncio.gather(*workers)
        finally:
            watching.cancel()
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, watching, return_exceptions=True)
        await self._all_seen()
        self.ended.unfinished = bool(self._pending) and not self._over
        return self.ended

    async def _all_seen(self) -> None:
        """Wait until all that shards say they recorded is to be seen here, for the folder is removed once it is merged."""
        until = time.monotonic() + _UNSEEN_SECONDS
        for shard, report in self._reports.items():
            while (await asyncio.to_thread(spent_in, self._shards.path, shard)).recorded < report.spent.recorded:
                if time.monotonic() > until:
                    raise InputError(
                        f"{self._shards.path}: what shard {shard} recorded cannot all be seen here; run again to take it up"
                    )
                await asyncio.sleep(_SECONDS)

    async def _lane(self, number: int, lanes: int) -> None:
        """Run one shard after another, with this lane's part of the connections."""
        share = None
        if self._max_connections is not None:
            share = self._max_connections // lanes + (number < self._max_connections % lanes)
        while (job := await self._next()) is not None:
            calls, tokens = self._calls.take(), self._tokens.take()
            spent = self._reports[job.name].spent if job.name in self._reports else Spent()
            bounded = msgspec.structs.replace(
                job,
                max_connections=share,
                most_calls=None if calls is None else spent.calls + calls,
                most_tokens=None if tokens is None else spent.tokens + tokens,
            )
            try:
                report = await self._pool.run(bounded)
            except OpenSafeIntentError as error:
                self.ended.error = self.ended.error or error
                self._halt(str(error))
                report = Report(ended="halted", spent=spent)
            self._calls.give_back(calls, report.spent.calls - spent.calls)
            self._tokens.give_back(tokens, report.spent.tokens - spent.tokens)
            async with self._changed:
                self._note(job, report)
                self._changed.notify_all()

    async def _next(self) -> Job | None:
        """Return the next shard that there is room for; wait while all of the budget is handed out."""
        async with self._changed:
            while self._pending and not self._over:
                if self._calls.left > 0 and self._tokens.left > 0:
                    job = self._fitting()
                    if job is not None:  # else those that hold the GPUs go on with it
                        self._running[job.name] = job
                    return job
                if not self._running:
                    return None
                await self._changed.wait()
        return None

    def _fitting(self) -> Job | None:
        free = self._pool.gpus - sum(job.gpus for job in self._running.values())
        for job in self._pending:
            if job.gpus <= free:
                self._pending.remove(job)
                return job
        return None

    def _note(self, job: Job, report: Report) -> None:
        del self._running[job.name]
        self._reports[job.name] = report
        ended = self.ended
        for model, line in report.stopped.items():
            ended.stopped.setdefault(model, line)
        ended.last_errors |= report.last_errors
        ended.notices |= dict.fromkeys(report.notices)
        if report.ended == "unusable":
            ended.error = ended.error or InputError(report.line)
            self._halt(report.line)
        elif report.ended == "halted" and not self._over:  # and not by us
            ended.error = ended.error or Stopped(f"{report.line}; what was answered is kept, run again to go on")
            self._halt(report.line)
        elif gone := self._essential & set(ended.stopped):
            self._halt(ended.stopped[min(gone)])
        elif report.ended == "budget":
            self._pending.append(job)
        if job.model in ended.stopped:
            self._pending = deque(other for other in self._pending if other.model != job.model)

    @property
    def busy(self) -> bool:
        """Whether shards are under way."""
        return bool(self._running)

    def halt(self, reason: Stopped) -> None:
        """Have every shard finish what is in flight, and begin no other."""
        self._halt(str(reason))

    def _halt(self, line: str) -> None:
        if not self._over:
            self._over = True
            self._shards.halt(line)

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(_SECONDS)
            self._show(await asyncio.to_thread(self._shards.progress))

    def _show(self, shards: Sequence[Sequence[Progress]]) -> None:
        tally, before = self._tally, self._before
        made, tokens = before.made.copy(), before.tokens.copy()
        # what any attempt made counts; what it reuses, the last one counts again
        every, last = [said for attempts in shards for said in attempts], [attempts[-1] for attempts in shards]
        for attempt in every:
            for purpose, count in attempt.made.items():
                made["", purpose] += count
            for model, (given, got) in attempt.tokens.items():
                tokens[model, "input"] += given
                tokens[model, "output"] += got
        tally.made, tally.tokens = made, tokens
        tally.reused_calls = before.reused_calls + sum(shard.reused for shard in last)
        tally.retries = before.retries + sum(attempt.retries for attempt in every)
        tally.refusals = before.refusals + sum(shard.refusals for shard in last)
        tally.missing = before.missing + sum(shard.missing for shard in last)
        tally.in_flight = sum(shard.in_flight for shard in last)
        self.items_done = sum(shard.items for shard in last)

    def settle(self, merged: Merged) -> None:
        """Put what was recorded into the tally, in place of what shards said on their way."""
        tally, before, added = self._tally, self._before, merged.added
        tally.made, tally.tokens = before.made + added.made, before.tokens + added.tokens
        # requests that were lost or made twice are in no row, and were made all the same
        tally.retries = before.retries + added.retries + merged.lost + added.twice
        tally.answers = before.answers + added.answers
        tally.refusals = before.refusals + added.refusals
        tally.reused_calls = before.reused_calls + sum(report.reused for report in self._reports.values())
        tally.missing = before.missing + sum(report.missing for report in self._reports.values())
        tally.in_flight = 0


class _Purse:
    """A budget that is handed out in parts, and never passed."""

    def __init__(self, limit: int | None, spent: int, lanes: int) -> None:
        self.left: float = float("inf") if limit is None else max(limit - spent, 0)
        self._first = lanes

    def take(self) -> int | None:
        """Return a part: as much as every other lane at first, then all that was left over. None is no limit."""
        if self.left == float("inf"):
            return None
        part = ceil(self.left / max(self._first, 1))
        self._first -= 1
        self.left -= part
        return part

    def give_back(self, part: int | None, spent: int) -> None:
        """Take back what a shard did not use."""
        if part is not None:
            self.left += part - spent


def _copy(tally: Tally) -> Tally:
    copy = Tally()
    for name in ("retries", "answers", "refusals", "missing", "reused_calls"):
        setattr(copy, name, getattr(tally, name))
    copy.made, copy.tokens = tally.made.copy(), tally.tokens.copy()
    return copy
