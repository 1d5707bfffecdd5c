"""Stage 2: for each cell with too few topics, the generator proposes more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from math import ceil

import msgspec

from opensafeintent.construction.asking import (
    Reply,
    StageContext,
    Unusable,
    Usable,
    find_fault_in_summary,
    process_items,
)
from opensafeintent.construction.items import Rejection, StageResult, Topic
from opensafeintent.construction.similarity import PAPER_THRESHOLD, CellIndex, Threshold

BATCH = 5
"""Summaries asked for at a time."""
EXTRA_ROUNDS = 3
"""Rounds beyond those that would do if every proposal were accepted."""
SHOWN = 60
"""Accepted summaries that are shown as negative examples, the latest ones."""


class Proposal(msgspec.Struct, frozen=True, kw_only=True):
    """A round of proposals without a usable reply."""

    harm_domain: str
    task_type: str
    round: int


class BackfillReply(Reply, frozen=True):
    """Summaries for a cell."""

    purpose = "backfill"
    asked_of = "generator"
    filled = ("summaries",)

    summaries: tuple[str, ...] = ()
    declined: str = ""


async def fill_cells(
    context: StageContext, wanted: Mapping[tuple[str, str], int], accepted: Sequence[Topic]
) -> StageResult[Topic]:
    """Return new topics for each cell; cells are filled side by side, rounds within one follow each
    other.

    Source: paper, section 2.1, stage 2. Batches are small, and later rounds have the accepted
    summaries as negative examples. A proposal with a ROUGE-L above 0.7 to an accepted summary of
    its cell is dropped.

    Args:
        context: models and templates.
        wanted: new topics by cell, one or more.
        accepted: topics accepted so far, of any cell, in order.

    Raises:
        Stopped: see `process_items`.
    """

    async def fill(cell: tuple[str, str]) -> list[Topic | Rejection]:
        topics_of_cell = [topic for topic in accepted if topic.cell == cell]
        return await _Cell(context, cell, topics_of_cell).fill(wanted[cell])

    return StageResult.of(
        "backfill", chain.from_iterable(await process_items(context, list(wanted), fill))
    )


class _Cell:
    """One cell on its way to enough topics."""

    def __init__(
        self, context: StageContext, cell: tuple[str, str], accepted: Sequence[Topic]
    ) -> None:
        self._context = context
        self._cell = cell
        self._summaries = [topic.summary for topic in accepted]
        self._index = CellIndex(Threshold(PAPER_THRESHOLD))
        for topic in accepted:
            self._index.add(topic.id, {"summary": topic.summary})

    async def fill(self, wanted: int) -> list[Topic | Rejection]:
        """Run rounds until there are enough topics, up to the limit; return the result of every
        proposal, in order.
        """
        domain, task_type = self._cell
        results: list[Topic | Rejection] = []
        for number in range(1, ceil(wanted / BATCH) + EXTRA_ROUNDS + 1):
            missing = wanted - sum(isinstance(item, Topic) for item in results)
            if missing <= 0:
                break
            match await self._propose(min(BATCH, missing), number):
                case Unusable() as unusable:
                    results.append(
                        unusable.reject(
                            Proposal(harm_domain=domain, task_type=task_type, round=number)
                        )
                    )
                    if unusable.reason in ("call_failed", "not_made"):
                        break  # the next round's request depends on this one
                case Usable(reply=reply, calls=calls):
                    for summary in (" ".join(text.split()) for text in reply.summaries):
                        topic = Topic(
                            summary=summary, harm_domain=domain, task_type=task_type, calls=calls
                        )
                        results.append(self._admit(topic))
        return results

    async def _propose(self, count: int, number: int) -> Usable[BackfillReply] | Unusable:
        def check(reply: BackfillReply) -> str | None:
            if len(reply.summaries) != count:
                return f'"summaries" holds {len(reply.summaries)}; {count} asked for'
            complaints = (find_fault_in_summary(name, text) for name, text in reply.texts().items())
            return next((complaint for complaint in complaints if complaint), None)

        fills = {
            **self._context.labels(self._cell),
            "count": str(count),
            "there": "\n".join(f"- {summary}" for summary in self._summaries[-SHOWN:])
            or "(none yet)",
        }
        return await self._context.ask(BackfillReply, fills, epoch=number, check=check)

    def _admit(self, topic: Topic) -> Topic | Rejection:
        if match := self._index.admit(topic.id, {"summary": topic.summary}):
            detail = f"ROUGE-L {match.overlap.score:.2f} to: {match.duplicate_prompt}"
            return Rejection.of(topic, "too_similar", detail, duplicate=match.duplicate)
        self._summaries.append(topic.summary)
        return topic
