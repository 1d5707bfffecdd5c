"""The seven stages, one after the other: seeds in, a dataset out, every item that was dropped on record with its reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from math import ceil
from typing import Any, Protocol, TypeVar

import msgspec

from opensafeintent.construction.asking import Workshop
from opensafeintent.construction.augmentation import PARAPHRASES, augment
from opensafeintent.construction.backfill import BATCH, fill_cells
from opensafeintent.construction.intents import check_intents
from opensafeintent.construction.metadata import describe_seeds
from opensafeintent.construction.quality import Shelves, check_quality
from opensafeintent.construction.records import (
    STAGES,
    Draft,
    Reason,
    Rejection,
    Seed,
    Stage,
    StageResult,
    Topic,
    joined,
)
from opensafeintent.construction.triplets import write_triplets
from opensafeintent.taxonomy import Taxonomy

__all__ = [
    "PASSES",
    "Ahead",
    "BuildForecast",
    "Built",
    "Plan",
    "StageForecast",
    "Watcher",
    "ask_ahead",
    "build_sets",
    "forecast_build",
]

Item = TypeVar("Item")

PASSES = 3
"""Times that sparse cells are filled up: what a later stage drops is proposed anew."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What to build."""

    taxonomy: Taxonomy
    per_cell: int | None = None
    """Prompt-sets wanted of each cell; None builds from the seeds alone."""
    last_stage: int = 6
    """The stage after which to stop, from 1 to 7."""

    def reaches(self, stage: Stage) -> bool:
        """Tell whether a stage is to be run."""
        return STAGES.index(stage) < self.last_stage


class Built(msgspec.Struct, frozen=True, kw_only=True):
    """What the stages made, each over all passes."""

    seeds: StageResult[Seed]
    topics: tuple[StageResult[Topic], ...] = ()
    """Stages 1 and 2, as far as they were run."""
    drafts: tuple[StageResult[Draft], ...] = ()
    """Stages 3 to 7, as far as they were run."""

    @property
    def stages(self) -> tuple[StageResult[Seed] | StageResult[Topic] | StageResult[Draft], ...]:
        """Every stage that was run, in order."""
        return (self.seeds, *self.topics, *self.drafts)

    @property
    def finished(self) -> tuple[Draft, ...]:
        """What the last stage kept, as far as it is prompt-sets."""
        return self.drafts[-1].kept if self.drafts else ()

    def rejected_in(self, stage: Stage) -> tuple[Rejection, ...]:
        """Return what a stage dropped."""
        return next((result.rejected for result in self.stages if result.stage == stage), ())

    def rejected_for(self, reason: Reason) -> list[Rejection]:
        """Return what was dropped for a reason, in any stage."""
        return [rejection for result in self.stages for rejection in result.rejected if rejection.reason == reason]

    def reviewed(self, poor: Collection[str]) -> Built:
        """Return the build after stage 7.

        Args:
            poor: ids of the sets that every annotator who answered marked as poor in overall quality; they are dropped
                (paper, section 2.1, stage 7).
        """
        result = StageResult[Draft](
            stage="people",
            kept=tuple(draft for draft in self.finished if draft.id not in poor),
            rejected=tuple(Rejection(item=draft, reason="all_say_poor") for draft in self.finished if draft.id in poor),
        )
        return msgspec.structs.replace(self, drafts=(*self.drafts, result))


class Watcher:
    """Is told how a build goes; this one does nothing."""

    def begins(self, stage: Stage, items: int, number: int) -> None:
        """A stage begins with so many items, in the pass of that number."""

    def ends(self, result: StageResult[Any]) -> None:
        """A stage has ended; `result` covers all passes so far."""


class Ahead(Protocol):
    """Makes the calls of a stage elsewhere, before the stage itself is run."""

    async def __call__(self, workshop: Workshop, stage: Stage, items: Sequence[Any], accepted: Sequence[Topic]) -> Workshop:
        """Return the workshop to run the stage with: one that finds the calls on record.

        Args:
            workshop: that of the build.
            stage: the stage that comes next.
            items: what it works on; see `ask_ahead`.
            accepted: the topics so far.
        """
        ...


async def ask_ahead(
    workshop: Workshop, stage: Stage, items: Sequence[Any], accepted: Sequence[Topic], taxonomy: Taxonomy
) -> None:
    """Make the calls that a stage takes for some of its items; what comes of them is found in the ledger afterwards.

    Args:
        workshop: models and templates.
        stage: which.
        items: seeds, topics or drafts, as the stage has them; for back-filling (domain, task type, topics wanted).
        accepted: topics that those of back-filling must not resemble.
        taxonomy: what the labels are of.

    Raises:
        Stopped: see `construction.asking.each`.
    """
    match stage:
        case "metadata":
            await describe_seeds(workshop, items, taxonomy)
        case "backfill":
            await fill_cells(workshop, {(domain, kind): count for domain, kind, count in items}, accepted, taxonomy)
        case "triplets":
            await write_triplets(workshop, items, taxonomy)
        case "intents":
            await check_intents(workshop, items, taxonomy)
        case "quality":
            await check_quality(workshop, items, taxonomy, Shelves())  # who is a duplicate is decided over all of them
        case "augmentation":
            await augment(workshop, items)
        case _:
            raise ValueError(f"stage {stage} makes no calls")


async def build_sets(
    workshop: Workshop, seeds: StageResult[Seed], plan: Plan, watcher: Watcher, ahead: Ahead | None = None
) -> Built:
    """Run the stages that the plan has.

    Back-filling asks for what is missing of each cell's target; when later stages have dropped some, the cell is filled up
    again: `PASSES` passes in all. Every pass goes through all stages, and duplicates are decided against all that was kept.

    Raises:
        Stopped: a model does not answer any more, or a budget is used up. What was answered is in the ledger.
        InputError: the ledger cannot be written.
    """
    build = _Build(workshop, seeds, plan, watcher, ahead)
    topics = await build.describe()
    if plan.reaches("backfill"):
        for number in range(1, PASSES + 1):
            wanted = build.wanted(topics)
            if number > 1 and not wanted:
                break
            await build.through(await build.fill(wanted, topics, number), number)
            if not plan.reaches("triplets"):
                break
            topics = ()
    return build.built()


class _Build:
    """A build on its way, and its log."""

    def __init__(
        self, workshop: Workshop, seeds: StageResult[Seed], plan: Plan, watcher: Watcher, ahead: Ahead | None
    ) -> None:
        self._workshop = workshop
        self._ahead = ahead
        self._seeds = seeds
        self._plan = plan
        self._watcher = watcher
        self._shelves = Shelves()
        self._accepted: list[Topic] = []
        self._finished: list[Draft] = []
        self._topics: dict[Stage, StageResult[Topic]] = {}
        self._drafts: dict[Stage, StageResult[Draft]] = {}

    async def describe(self) -> tuple[Topic, ...]:
        """Stage 1."""
        self._watcher.begins("metadata", len(self._seeds.kept), 1)
        workshop = await self._ready("metadata", self._seeds.kept)
        described = await describe_seeds(workshop, self._seeds.kept, self._plan.taxonomy)
        self._accepted += described.kept
        return self._note(self._topics, described)

    def wanted(self, topics: Sequence[Topic]) -> dict[tuple[str, str], int]:
        """Return how many topics each cell lacks. What a failed call holds up is tried again by the next run, and counts."""
        if self._plan.per_cell is None:
            return {}
        there = Counter(topic.cell for topic in (*topics, *(draft.topic for draft in self._finished)))
        for result in self._drafts.values():
            for rejection in result.rejected:
                if rejection.reason in ("call_failed", "not_made"):
                    there[(rejection.item if isinstance(rejection.item, Topic) else rejection.item.topic).cell] += 1
        lacking = {cell: self._plan.per_cell - there[cell] for cell in self._plan.taxonomy.cells}
        return {cell: count for cell, count in lacking.items() if count > 0}

    async def fill(self, wanted: Mapping[tuple[str, str], int], topics: tuple[Topic, ...], number: int) -> tuple[Topic, ...]:
        """Stage 2; topics of stage 1 go through it as they are."""
        self._watcher.begins("backfill", len(wanted), number)
        workshop = await self._ready("backfill", [(*cell, count) for cell, count in wanted.items()])
        proposed = await fill_cells(workshop, wanted, self._accepted, self._plan.taxonomy)
        self._accepted += proposed.kept
        return self._note(self._topics, msgspec.structs.replace(proposed, kept=(*topics, *proposed.kept)))

    async def through(self, topics: Sequence[Topic], number: int) -> None:
        """Stages 3 to 6, as far as the plan goes."""
        taxonomy, begins = self._plan.taxonomy, self._watcher.begins
        drafts: tuple[Draft, ...] = ()
        if self._plan.reaches("triplets"):
            begins("triplets", len(topics), number)
            workshop = await self._ready("triplets", topics)
            drafts = self._note(self._drafts, await write_triplets(workshop, topics, taxonomy))
        if self._plan.reaches("intents"):
            begins("intents", len(drafts), number)
            workshop = await self._ready("intents", drafts)
            drafts = self._note(self._drafts, await check_intents(workshop, drafts, taxonomy))
        if self._plan.reaches("quality"):
            begins("quality", len(drafts), number)
            workshop = await self._ready("quality", drafts)
            drafts = self._note(self._drafts, await check_quality(workshop, drafts, taxonomy, self._shelves))
        if self._plan.reaches("augmentation"):
            begins("augmentation", len(drafts), number)
            workshop = await self._ready("augmentation", drafts)
            drafts = self._note(self._drafts, await augment(workshop, drafts))
        self._finished += drafts

    async def _ready(self, stage: Stage, items: Sequence[Any]) -> Workshop:
        """Return the workshop to run a stage with, its calls made ahead where that is wanted."""
        if self._ahead is None or not items:
            return self._workshop
        return await self._ahead(self._workshop, stage, items, self._accepted)

    def built(self) -> Built:
        """Return the log."""
        return Built(seeds=self._seeds, topics=tuple(self._topics.values()), drafts=tuple(self._drafts.values()))

    def _note(self, log: dict[Stage, StageResult[Item]], result: StageResult[Item]) -> tuple[Item, ...]:
        before = log.get(result.stage)
        log[result.stage] = joined([before, result], result.stage) if before else result
        self._watcher.ends(log[result.stage])
        return result.kept


# The forecast ---------------------------------------------------------------------------------------------------------

_CALLS: dict[Stage, tuple[tuple[str, str, int], ...]] = {
    "metadata": (("generator", "metadata", 1), ("judge", "metadata", 1)),
    "triplets": (("generator", "triplet", 1),),
    "intents": (("judge", "intent", 3),),
    "quality": (("judge", "quality", 1),),
    "augmentation": (("generator", "paraphrase", 1), ("judge", "paraphrase_check", PARAPHRASES), ("judge", "annotation", 1)),
}
"""Calls of one item in each stage, where nothing has to be repaired or asked again: by whom, for what, how many."""


class StageForecast(msgspec.Struct, frozen=True, kw_only=True):
    """Calls to expect of one stage."""

    stage: Stage
    role: str
    """`generator` or `judge`."""
    purpose: str
    calls: int


class BuildForecast(msgspec.Struct, frozen=True, kw_only=True):
    """Calls to expect, those aside that the ledger already holds.

    Every item that is not known yet is taken to pass every stage, without repairs and re-asks; seeds whose labels are not
    known yet are taken to fill no cell that lacks topics.
    """

    lines: tuple[StageForecast, ...]


def forecast_build(built: Built, plan: Plan) -> BuildForecast:
    """Count the calls that a build still needs.

    Args:
        built: what comes of the stages with the ledger alone.
        plan: what is to be built.
    """
    lines: list[StageForecast] = []
    unknown = 0
    """Items that reach a stage and whose calls are not in the ledger."""
    for stage in STAGES[: min(plan.last_stage, 6)]:
        if stage == "backfill":
            batches, topics = _backfill(built, plan)
            unknown += topics
            lines += [StageForecast(stage=stage, role="generator", purpose="backfill", calls=batches)] if batches else []
            continue
        unknown += sum(rejection.reason == "not_made" for rejection in built.rejected_in(stage))
        lines += [
            StageForecast(stage=stage, role=role, purpose=purpose, calls=each * unknown)
            for role, purpose, each in _CALLS[stage]
            if unknown
        ]
    return BuildForecast(lines=tuple(lines))


def _backfill(built: Built, plan: Plan) -> tuple[int, int]:
    """Return the batches that cells still need, and the topics in them."""
    if plan.per_cell is None:
        return 0, 0
    there = dict.fromkeys(plan.taxonomy.cells, 0)
    for topic in built.topics[-1].kept if built.topics else ():
        there[topic.cell] += 1
    lacking = [plan.per_cell - count for count in there.values() if count < plan.per_cell]
    return sum(ceil(count / BATCH) for count in lacking), sum(lacking)
