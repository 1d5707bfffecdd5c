"""The stages of a build, in order, and rounds of them."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from math import ceil
from typing import Any

import msgspec

from opensafeintent.calls.client import side_by_side
from opensafeintent.construction.asking import StageContext
from opensafeintent.construction.augmentation import PARAPHRASES, augment
from opensafeintent.construction.backfill import BATCH, fill_cells
from opensafeintent.construction.habits import ROUND, Habits, count_habits
from opensafeintent.construction.intents import check_intents
from opensafeintent.construction.items import (
    STAGES,
    Draft,
    Reason,
    Rejection,
    Seed,
    Stage,
    StageResult,
    Topic,
)
from opensafeintent.construction.metadata import describe_seeds
from opensafeintent.construction.quality import KeptPrompts, check_quality
from opensafeintent.construction.triplets import write_triplets
from opensafeintent.errors import NothingMade
from opensafeintent.promptsets import PromptSet
from opensafeintent.promptsets.loading import Cell
from opensafeintent.taxonomy import Taxonomy


class Round(msgspec.Struct, frozen=True, kw_only=True):
    """Some topics, and the account of the habits of the rounds before."""

    topics: tuple[str, ...]
    """Ids."""
    habits: Habits


class Rounds:
    """The rounds of one build.

    Args:
        recorded: those that earlier runs began.
        save: keeps them; is called before the first call of a round.
    """

    def __init__(
        self,
        recorded: Sequence[Round] = (),
        save: Callable[[Sequence[Round]], None] = lambda _: None,
    ) -> None:
        self._rounds = list(recorded)
        self._save = save
        self._topic_ids: set[str] = set()
        """Ids of this run's topics."""
        self._written: list[Draft] = []
        self._whole = True

    def of(self, topics: Sequence[Topic]) -> Iterator[tuple[Sequence[Topic], Habits]]:
        """Yield the topics of a round with the habits that it is shown; `add` a round's result
        before taking the next round.
        """
        self._topic_ids.update(topic.id for topic in topics)
        number_of = {
            topic_id: number
            for number, begun in enumerate(self._rounds)
            for topic_id in begun.topics
        }
        sizes = Counter(number_of.values())
        last = len(self._rounds) - 1
        if last < 0 or not self._topic_ids.intersection(self._rounds[last].topics):
            last += 1
        for topic in topics:
            if topic.id not in number_of:
                last += sizes[last] >= ROUND
                number_of[topic.id] = last
                sizes[last] += 1
        for number in sorted({number_of[topic.id] for topic in topics}):
            members = [topic for topic in topics if number_of[topic.id] == number]
            yield members, self._enter(number, [topic.id for topic in members])

    def _enter(self, number: int, members: Sequence[str]) -> Habits:
        """Put topics into a round, and return the habits that it is shown."""
        if number == len(self._rounds):
            self._rounds.append(Round(topics=(), habits=count_habits(self._written)))
        current = self._rounds[number]
        if new := [
            topic_id for topic_id in dict.fromkeys(members) if topic_id not in current.topics
        ]:
            self._rounds[number] = msgspec.structs.replace(current, topics=(*current.topics, *new))
            if self._whole:
                self._save(tuple(self._rounds))
        return current.habits

    def add(self, result: StageResult[Draft]) -> None:
        """Note the result of the round that was taken last."""
        self._written += result.kept
        if any(rejection.reason == "not_made" for rejection in result.rejected):
            # later rounds would see too few habits, and are not asked in this run
            self._whole = False


PASSES = 3
"""Passes that fill up sparse cells: topics dropped by a later stage are proposed again."""


class BuildPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The plan of a build."""

    per_cell: int | None = None
    """Prompt-sets wanted of each cell; None builds from the seeds alone."""
    last_stage: int = 6
    """The stage after which to stop, from 1 to 7."""

    def reaches(self, stage: Stage) -> bool:
        """Tell whether a stage is to be run."""
        return STAGES.index(stage) < self.last_stage

    def count_lacking(self, taxonomy: Taxonomy, present: Counter[Cell]) -> dict[Cell, int]:
        """Return how many topics or sets each cell lacks that lacks any."""
        if self.per_cell is None:
            return {}
        lacking = {cell: self.per_cell - present[cell] for cell in taxonomy.cells}
        return {cell: count for cell, count in lacking.items() if count > 0}


class Built(msgspec.Struct, frozen=True, kw_only=True):
    """The result of each stage over all passes."""

    seeds: StageResult[Seed]
    topics: tuple[StageResult[Topic], ...] = ()
    """Stages 1 and 2, as far as they were run."""
    drafts: tuple[StageResult[Draft], ...] = ()
    """Stages 3 to 7, as far as they were run."""
    nothing_made: str = ""
    """Why the build ended in the middle of a stage, which then has only the items that were
    finished. Empty if it did not.
    """

    @property
    def stages(self) -> tuple[StageResult[Seed] | StageResult[Topic] | StageResult[Draft], ...]:
        """Every stage that was run, in order."""
        return (self.seeds, *self.topics, *self.drafts)

    @property
    def finished(self) -> tuple[Draft, ...]:
        """The prompt-sets that the last stage kept."""
        return self.drafts[-1].kept if self.drafts else ()

    def list_sets(self, source: str) -> tuple[PromptSet, ...]:
        """Return the prompt-sets that the last stage kept. Several from one seed are a family.

        Args:
            source: their origin.
        """
        used = Counter(draft.topic.seed for draft in self.finished)
        families = {seed: f"seed {seed.id}" for seed, sets in used.items() if seed and sets > 1}
        return tuple(
            msgspec.structs.replace(
                draft.prompt_set(source),
                family=families.get(draft.topic.seed) if draft.topic.seed else None,
            )
            for draft in self.finished
        )

    def list_rejected_in(self, stage: Stage) -> tuple[Rejection, ...]:
        """Return the items that a stage dropped."""
        return next((result.rejected for result in self.stages if result.stage == stage), ())

    def list_rejected_for(self, reason: Reason) -> list[Rejection]:
        """Return the items that any stage dropped for a reason."""
        return [
            rejection
            for result in self.stages
            for rejection in result.rejected
            if rejection.reason == reason
        ]

    def drop_poor(self, poor: Collection[str]) -> Built:
        """Return the build after stage 7.

        Args:
            poor: ids of the sets that every annotator who answered marked as poor in overall
                quality; they are dropped (paper, section 2.1, stage 7).
        """
        reviewed = (
            Rejection(item=draft, reason="all_say_poor") if draft.id in poor else draft
            for draft in self.finished
        )
        result: StageResult[Draft] = StageResult.of("people", reviewed)
        return msgspec.structs.replace(self, drafts=(*self.drafts, result))


class Watcher:
    """Is called with a build's progress; this one does nothing."""

    def stage_begins(self, stage: Stage, items: int, number: int) -> None:
        """A stage begins with this number of items, in the pass of that number."""

    def item_finished(self, stage: Stage) -> None:
        """A stage is done with one more item; that may be before it begins for the others."""

    def stage_ended(self, result: StageResult[Any]) -> None:
        """A stage has ended; `result` covers all passes so far."""


async def build_sets(
    context: StageContext,
    seeds: StageResult[Seed],
    plan: BuildPlan,
    watcher: Watcher,
    rounds: Rounds | None = None,
) -> Built:
    """Run the stages of the plan.

    Back-filling asks for the missing topics of each cell's target. If later stages dropped some,
    the cell is filled up again: `PASSES` passes in all. Every pass goes through all stages, and
    duplicates are decided against all kept sets.

    A stage that drops each of its first items ends the build: `Built.nothing_made` says so.

    Args:
        context: models and templates.
        seeds: result of reading the seeds.
        plan: of the build.
        watcher: is called with the progress.
        rounds: of stage 3; None begins afresh.

    Raises:
        Stopped: a model does not answer any more, or a budget is used up. Answers so far are in the
            ledger.
        InputError: the ledger cannot be written.
    """
    build = _Build(context, plan, watcher, rounds or Rounds())
    try:
        await build.run_passes(seeds.kept)
    except NothingMade as ended:
        build.log_unfinished()
        return msgspec.structs.replace(build.make_built(seeds), nothing_made=str(ended))
    return build.make_built(seeds)


_FIRST = 50
"""Items of a stage, after which it goes on only if it has kept one."""
_LATER = ("call_failed", "not_made")
"""Why an item is dropped that another run may keep."""
_OF_TOPICS: tuple[Stage, ...] = ("metadata", "backfill")
_OF_DRAFTS: tuple[Stage, ...] = ("triplets", "intents", "quality", "augmentation")


class _Build:
    """A build on its way, and its log."""

    def __init__(
        self, context: StageContext, plan: BuildPlan, watcher: Watcher, rounds: Rounds
    ) -> None:
        self._context = context
        self._plan = plan
        self._watcher = watcher
        self._rounds = rounds
        self._kept_prompts: KeptPrompts = {}
        self._accepted: list[Topic] = []
        self._finished: list[Draft] = []
        self._log: dict[Stage, StageResult[Any]] = {}
        self._kept_in: Counter[Stage] = Counter()
        self._dropped_in: Counter[Stage] = Counter()
        self._under_way: defaultdict[Stage, list[Any]] = defaultdict(list)
        """Results of items of a stage that has not ended in this pass."""

    async def run_passes(self, seeds: Sequence[Seed]) -> None:
        """Run every stage of the plan, in as many passes as it takes.

        Raises:
            NothingMade: see `_finish`.
        """
        topics = await self.run("metadata", seeds)
        if not self._plan.reaches("backfill"):
            return
        for number in range(1, PASSES + 1):
            wanted = self.count_wanted(topics)
            if number > 1 and not wanted:
                return
            topics = await self.run("backfill", wanted, number, before=topics)
            if not self._plan.reaches("triplets"):
                return
            await self.finish(topics, number)
            topics = ()

    async def run(
        self, stage: Stage, items: Collection[Any], number: int = 1, *, before: tuple[Any, ...] = ()
    ) -> tuple[Any, ...]:
        """Run a stage in the pass of that number, and return the kept items; the items `before`
        pass unchanged.
        """
        self._watcher.stage_begins(stage, len(items), number)
        self._under_way[stage] = list(before)
        result = await self._find_result(stage, items)
        if stage in _OF_TOPICS:
            self._accepted += result.kept
        return self._log_result(msgspec.structs.replace(result, kept=(*before, *result.kept)))

    async def _find_result(self, stage: Stage, items: Any) -> StageResult[Any]:
        context = self._make_context(stage)
        match stage:
            case "metadata":
                return await describe_seeds(context, items)
            case "backfill":
                return await fill_cells(context, items, self._accepted)
            case "intents":
                return await check_intents(context, items)
            case "quality":
                return await check_quality(context, items, self._kept_prompts)
            case _:
                return await augment(context, items)

    def _make_context(self, stage: Stage) -> StageContext:
        return replace(self._context, finished=lambda result: self._finish(stage, result))

    def _finish(self, stage: Stage, result: Any) -> None:
        """Count the result of an item.

        Raises:
            NothingMade: a stage has dropped each of its first items, and would drop the others too.
        """
        self._watcher.item_finished(stage)
        items = result if isinstance(result, list) else [result]
        self._under_way[stage] += items
        rejections = [item for item in items if isinstance(item, Rejection)]
        dropped = [rejection for rejection in rejections if rejection.reason not in _LATER]
        self._kept_in[stage] += len(items) - len(rejections)
        self._dropped_in[stage] += len(dropped)
        if dropped and self._dropped_in[stage] >= _FIRST and not self._kept_in[stage]:
            raise NothingMade(
                f"{stage}: each of the first {self._dropped_in[stage]} items was dropped, the last"
                f" as {dropped[-1].reason} ({dropped[-1].detail}); expected a model that does"
                " better, or other --templates; everything that was answered is kept"
            )

    def _log_result(self, result: StageResult[Any]) -> tuple[Any, ...]:
        stage = result.stage
        self._under_way.pop(stage, None)
        self._log[stage] = self._log[stage].then(result) if stage in self._log else result
        self._watcher.stage_ended(self._log[stage])
        return result.kept

    def log_unfinished(self) -> None:
        """Log the finished items of stages that were not brought to their end."""
        for stage, items in list(self._under_way.items()):
            self._log_result(StageResult.of(stage, items))

    async def finish(self, topics: tuple[Topic, ...], number: int) -> None:
        """Run stages 3 to 6, as far as the plan goes."""
        items = await self._write_drafts(topics, number)
        for stage in filter(self._plan.reaches, _OF_DRAFTS[2:]):
            items = await self.run(stage, items, number)
        self._finished += items

    async def _write_drafts(self, topics: tuple[Topic, ...], number: int) -> tuple[Any, ...]:
        """Run stage 3 in rounds, and stage 4 if the plan includes it: a round's intents are read
        while the next is written.
        """
        self._watcher.stage_begins("triplets", len(topics), number)
        written: list[StageResult[Any]] = []
        reading: list[asyncio.Future[StageResult[Any]]] = []
        try:
            for members, habits in self._rounds.of(topics):
                result = await write_triplets(self._make_context("triplets"), members, habits)
                written.append(result)
                self._rounds.add(result)
                if self._plan.reaches("intents"):
                    reading.append(asyncio.ensure_future(self._find_result("intents", result.kept)))
        except Exception:
            # items in progress end first, and their answers are kept
            await asyncio.gather(*reading, return_exceptions=True)
            raise
        drafts = self._log_result(_join_rounds("triplets", written, topics))
        if not self._plan.reaches("intents"):
            return drafts
        self._watcher.stage_begins("intents", len(drafts), number)
        return self._log_result(_join_rounds("intents", await side_by_side(*reading), topics))

    def count_wanted(self, topics: Sequence[Topic]) -> dict[Cell, int]:
        """Return the number of missing topics of each cell that lacks any.

        Topics with a failed call count, because the next run tries them again.
        """
        held_up = (
            rejection.item
            for stage in _OF_DRAFTS
            if stage in self._log
            for rejection in self._log[stage].rejected
            if rejection.reason in _LATER
        )
        present = Counter(_find_topic(item).cell for item in (*topics, *self._finished, *held_up))
        return self._plan.count_lacking(self._context.taxonomy, present)

    def make_built(self, seeds: StageResult[Seed]) -> Built:
        """Return the log."""
        topics, drafts = (
            tuple(self._log[stage] for stage in of if stage in self._log)
            for of in (_OF_TOPICS, _OF_DRAFTS)
        )
        return Built(seeds=seeds, topics=topics, drafts=drafts)


def _join_rounds(
    stage: Stage, parts: Sequence[StageResult[Any]], topics: Sequence[Topic]
) -> StageResult[Any]:
    """Return the results of some rounds as one, in the order of its topics."""
    position = {topic: number for number, topic in enumerate(topics)}
    return StageResult(
        stage=stage,
        kept=tuple(
            sorted(
                (item for part in parts for item in part.kept),
                key=lambda item: position[_find_topic(item)],
            )
        ),
        rejected=tuple(
            sorted(
                (rejection for part in parts for rejection in part.rejected),
                key=lambda rejection: position[_find_topic(rejection.item)],
            )
        ),
    )


def _find_topic(item: Topic | Draft) -> Topic:
    return item if isinstance(item, Topic) else item.topic


Asked = tuple[str, str]
"""`generator` or `judge`, and the purpose of a call."""

_CALLS: dict[Stage, dict[Asked, int]] = {
    "metadata": {("generator", "metadata"): 1, ("judge", "metadata"): 1},
    "triplets": {("generator", "triplet"): 1},
    "intents": {("judge", "intent"): 3},
    "quality": {("judge", "quality"): 1},
    "augmentation": {
        ("generator", "paraphrase"): 1,
        ("judge", "paraphrase_check"): PARAPHRASES,
        ("judge", "annotation"): 1,
    },
}
"""Calls of one item in each stage, if nothing has to be repaired or asked again."""


def forecast_build(built: Built, plan: BuildPlan, taxonomy: Taxonomy) -> dict[Asked, int]:
    """Count the calls that a build still needs and the ledger does not hold, stage by stage.

    It assumes that every unknown item passes every stage, without repairs and re-asks, and that
    seeds without known labels fill no cell that lacks topics.

    Args:
        built: the result of the stages with the ledger alone.
        plan: of the build.
        taxonomy: of the cells.
    """
    expected: dict[Asked, int] = {}
    unknown = 0
    """Items that reach a stage and whose calls are not in the ledger."""
    for stage in STAGES[: min(plan.last_stage, 6)]:
        if stage == "backfill":
            present = Counter(topic.cell for topic in built.topics[-1].kept)
            lacking = plan.count_lacking(taxonomy, present).values()
            unknown += sum(lacking)
            expected["generator", "backfill"] = sum(ceil(count / BATCH) for count in lacking)
        else:
            unknown += sum(
                rejection.reason == "not_made" for rejection in built.list_rejected_in(stage)
            )
            expected |= {call: per_item * unknown for call, per_item in _CALLS[stage].items()}
    return {call: calls for call, calls in expected.items() if calls}
