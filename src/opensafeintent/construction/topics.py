"""Stages 1 and 2: a topic, harm domain and task type for each unsafe seed; topics for cells that
have too few.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from math import ceil
from typing import ClassVar, TypeVar

import msgspec

from opensafeintent.calls.concurrency import side_by_side
from opensafeintent.calls.records import Purpose
from opensafeintent.construction.asking import (
    ModelRole,
    Reply,
    StageContext,
    Unusable,
    Usable,
    complaint_of_choice,
    complaint_of_summary,
    each,
)
from opensafeintent.construction.instructions import described
from opensafeintent.construction.records import Rejection, Seed, StageResult, Topic
from opensafeintent.construction.similarity import PAPER_THRESHOLD, CellIndex, Threshold
from opensafeintent.taxonomy import Category

M = TypeVar("M", bound="MetadataReply")


class MetadataReply(Reply, frozen=True):
    """A model's reading of a seed."""

    purpose: ClassVar[Purpose] = "metadata"
    filled = ("summary",)

    unsafe: bool
    summary: str
    harm_domain: str
    task_type: str


async def describe_seeds(context: StageContext, seeds: Sequence[Seed]) -> StageResult[Topic]:
    """Keep the seeds whose harm domain and task type two of three readings agree on, each with the
    generator's summary.

    Generator and judge read first. If they disagree, the judge reads once more, with the labels in
    reverse order and without the first readings, so that the reading differs at temperature 0 too.

    Source: paper, section 2.1, stage 1. The authors' code lets the judge only verify the
    generator's labels. Here, as in the paper, it writes its own without seeing the generator's.

    Raises:
        Stopped: see `each`.
    """

    async def describe(seed: Seed) -> Topic | Rejection:
        by_generator, by_judge = await side_by_side(
            *(
                read_labels(context, MetadataReply, by, seed.prompt, seed.id)
                for by in (context.generator, context.judge)
            )
        )
        calls = (*by_generator.calls, *by_judge.calls)
        for answer in (by_generator, by_judge):
            if isinstance(answer, Unusable):
                return Rejection.of(seed, answer.reason, answer.detail, calls=calls)
        assert isinstance(by_generator, Usable) and isinstance(by_judge, Usable)
        one, other = by_generator.reply, by_judge.reply
        if not one.unsafe and not other.unsafe:
            return Rejection.of(seed, "both_say_safe", calls=calls)
        readings = [one, other]
        if (one.harm_domain, one.task_type) != (other.harm_domain, other.task_type):
            again = await read_labels(
                context, MetadataReply, context.judge, seed.prompt, seed.id, turned=True
            )
            calls = (*calls, *again.calls)
            if isinstance(again, Unusable):
                return Rejection.of(seed, again.reason, again.detail, calls=calls)
            readings.append(again.reply)
        domain = _majority(reading.harm_domain for reading in readings)
        task_type = _majority(reading.task_type for reading in readings)
        if domain is None or task_type is None:
            names = ("generator", "judge", "judge again")
            labels = (
                f"{name}: {reading.harm_domain} / {reading.task_type}"
                for name, reading in zip(names, readings, strict=True)
            )
            return Rejection.of(seed, "labels_disagree", "; ".join(labels), calls=calls)
        return Topic(
            summary=" ".join(one.summary.split()),
            harm_domain=domain,
            task_type=task_type,
            seed=seed,
            calls=calls,
        )

    return StageResult.of("metadata", await each(context, seeds, describe))


def _majority(labels: Iterable[str]) -> str | None:
    """Return the label that two readings or more give; None if there is none."""
    label, count = Counter(labels).most_common(1)[0]
    return label if count > 1 else None


async def read_labels(
    context: StageContext,
    kind: type[M],
    by: ModelRole,
    request: str,
    about: str,
    *,
    turned: bool = False,
) -> Usable[M] | Unusable:
    """Ask a model for the labels of a request, without showing any.

    Args:
        context: templates and taxonomy.
        kind: of the reply, which names the call's purpose.
        by: the model.
        request: the text.
        about: id of the item, for tracing.
        turned: whether the labels are listed in the reverse order.
    """
    taxonomy = context.taxonomy

    def check(reply: MetadataReply) -> str | None:
        return (
            complaint_of_choice("harm_domain", reply.harm_domain, taxonomy.domain_names)
            or complaint_of_choice("task_type", reply.task_type, taxonomy.type_names)
            or complaint_of_summary("summary", reply.summary)
        )

    def listed(categories: Sequence[Category]) -> str:
        return "\n".join(
            f"- {described(category)}"
            for category in (reversed(categories) if turned else categories)
        )

    fills = {
        "request": request,
        "domains": listed(taxonomy.harm_domains),
        "types": listed(taxonomy.task_types),
    }
    choices = {"harm_domain": taxonomy.domain_names, "task_type": taxonomy.type_names}
    return await context.ask(
        kind, fills, about=about, by=by, epoch=2 if turned else 1, choices=choices, check=check
    )


# Stage 2
# ------------------------------------------------------------------------------
# For each cell with too few topics, the generator proposes more.

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
        Stopped: see `each`.
    """

    async def fill(cell: tuple[str, str]) -> list[Topic | Rejection]:
        topics_of_cell = [topic for topic in accepted if topic.cell == cell]
        return await _Cell(context, cell, topics_of_cell).fill(wanted[cell])

    return StageResult.of("backfill", chain.from_iterable(await each(context, list(wanted), fill)))


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
        made: list[Topic | Rejection] = []
        for number in range(1, ceil(wanted / BATCH) + EXTRA_ROUNDS + 1):
            missing = wanted - sum(isinstance(item, Topic) for item in made)
            if missing <= 0:
                break
            match await self._propose(min(BATCH, missing), number):
                case Unusable() as unusable:
                    made.append(
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
                        made.append(self._admit(topic))
        return made

    async def _propose(self, count: int, number: int) -> Usable[BackfillReply] | Unusable:
        def check(reply: BackfillReply) -> str | None:
            if len(reply.summaries) != count:
                return f'"summaries" holds {len(reply.summaries)}; {count} asked for'
            complaints = (complaint_of_summary(name, text) for name, text in reply.texts().items())
            return next((complaint for complaint in complaints if complaint), None)

        fills = {
            **self._context.labels(self._cell),
            "count": str(count),
            "there": "\n".join(f"- {summary}" for summary in self._summaries[-SHOWN:])
            or "(none yet)",
        }
        return await self._context.ask(
            BackfillReply, fills, about=" / ".join(self._cell), epoch=number, check=check
        )

    def _admit(self, topic: Topic) -> Topic | Rejection:
        if match := self._index.admit(topic.id, {"summary": topic.summary}):
            detail = f"ROUGE-L {match.overlap.score:.2f} to: {match.duplicate_prompt}"
            return Rejection.of(topic, "too_similar", detail, duplicate=match.duplicate)
        self._summaries.append(topic.summary)
        return topic
