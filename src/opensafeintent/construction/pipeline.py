"""The seven stages, one after the other: seeds in, a dataset out, every item that was dropped on record with its reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import msgspec

from opensafeintent.construction.asking import Workshop
from opensafeintent.construction.augmentation import augment
from opensafeintent.construction.backfill import fill_cells
from opensafeintent.construction.intents import check_intents
from opensafeintent.construction.metadata import describe_seeds
from opensafeintent.construction.people import drop_poor
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

__all__ = ["PASSES", "Ahead", "Built", "Plan", "Watcher", "ask_ahead", "build_sets"]

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
        """Return the build after stage 7: without the sets whose ids are in `poor`."""
        return msgspec.structs.replace(self, drafts=(*self.drafts, drop_poor(self.finished, poor)))


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
