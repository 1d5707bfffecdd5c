"""What the results of a build are made from, and the numbers in it that more than one place needs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import PurePath
from typing import Literal, NamedTuple

import msgspec

from opensafeintent.calls.spending import Spending
from opensafeintent.construction.controls.measures import has_spaces
from opensafeintent.construction.controls.records import DatasetCheck
from opensafeintent.construction.folder import BuildManifest
from opensafeintent.construction.intents import PURPOSES_LEANT_TO, complaint_of_intent
from opensafeintent.construction.pipeline import Built
from opensafeintent.construction.records import PURPOSES, Draft, Seed, Stage, StageResult, Topic
from opensafeintent.construction.similarity.index import Match
from opensafeintent.construction.similarity.join import Item, nearest_sets
from opensafeintent.hostile import one_line
from opensafeintent.promptsets import Dataset
from opensafeintent.report.cost import Costs
from opensafeintent.report.table import Table
from opensafeintent.taxonomy import CORE_VARIANTS, DUAL_USE, INTENT_WORDS, Intent
from opensafeintent.templates.instruction import READINGS, Reading

__all__ = [
    "BINS",
    "READING_WORDS",
    "BuildResults",
    "CellCount",
    "Likeness",
    "Nearest",
    "Read",
    "Repaired",
    "Reviewed",
    "StageCount",
    "When",
    "likeness_of",
    "name_of_seeds",
    "stage_name",
    "stage_of",
]

When = Literal["first", "last"]

READING_WORDS = {**INTENT_WORDS, "neither": "neither"}
"""What a judge may take a prompt for, as people read it."""

_NAMES: dict[Stage, str] = {
    "seeds": "Seeds",
    "metadata": "1 Metadata",
    "backfill": "2 Back-fill",
    "triplets": "3 Triplets",
    "intents": "4 Intent check",
    "quality": "5 Quality, duplicates",
    "augmentation": "6 Augmentation",
    "people": "7 People",
}


def stage_name(stage: Stage) -> str:
    """Return a stage as people are shown it."""
    return _NAMES[stage]


class Reviewed(NamedTuple):
    """What people made of the dataset (stage 7)."""

    annotators: int
    sets: int
    """Prompt-sets of which at least one of them said whether they are good."""


class StageCount(NamedTuple):
    """What went through one stage."""

    stage: Stage
    count_in: int
    from_seeds: int
    """Kept items that go back to a seed."""
    proposed: int
    """Kept items that the generator proposed for a sparse cell."""
    dropped: int

    @property
    def kept(self) -> int:
        """Items that went on."""
        return self.from_seeds + self.proposed


class CellCount(NamedTuple):
    """The finished prompt-sets of one cell."""

    harm_domain: str
    task_type: str
    sets: int
    from_seeds: int


class Read(NamedTuple):
    """How many prompts written for one intent were read as having one."""

    when: When
    """As first written, or after the last repair."""
    expected: Intent
    found: Reading
    prompts: int
    share: float | None
    """Of the prompts written for that intent; None where there are none."""


class Repaired(NamedTuple):
    """What became of the prompts written for one intent."""

    intent: Intent
    prompts: int
    right_at_first: int
    repaired: int
    still_wrong: int
    repairs: int
    """Texts rewritten, those that were still wrong included."""
    leaned_at_first: int | None
    straightened: int | None
    still_leaning: int | None
    """Dual-use prompts that read as such and whose wording suggested a purpose; of these, those that are mended; and those
    that lean in the end. None of other intents."""


# How alike different sets are ----------------------------------------------------------------------------------------

BINS = 20
"""Of a histogram from 0 to 1."""
_MOST_PAIRS = 40_000_000
"""Pairs of prompts that are compared for it: some twenty seconds."""


class Nearest(msgspec.Struct, frozen=True, kw_only=True):
    """The most similar prompts of a set and of another one in its cell."""

    id: str
    variant: str
    twin: str
    twin_variant: str
    score: float
    """ROUGE-L F1."""


class Likeness(msgspec.Struct, frozen=True, kw_only=True):
    """The highest similarity of each set that shares its cell with another, the highest first."""

    core: tuple[Nearest, ...]
    """Among benign, dual-use and malicious prompts: what stage 5 decides on."""
    wordings: tuple[Nearest, ...]
    """Among all wordings, paraphrases included."""

    def histogram(self, nearest: Sequence[Nearest]) -> tuple[int, ...]:
        """Return the sets in each of `BINS` equally wide bins; a bin holds its lower edge, the last one 1 too."""
        found = Counter(min(int(round(item.score * BINS, 9)), BINS - 1) for item in nearest)
        return tuple(found[index] for index in range(BINS))


def likeness_of(dataset: Dataset) -> Likeness | None:
    """Compare all prompts of each cell; None where there are too many for that.

    ROUGE-L compares words between white space, so sets in scripts without it are left out.
    """
    items = [Item(item.id, item.cell, item.wordings()) for item in dataset.prompt_sets if has_spaces(item)]
    in_cell: Counter[object] = Counter()
    for item in items:
        in_cell[item.cell] += len(item.texts)
    if sum(number * number // 2 for number in in_cell.values()) > _MOST_PAIRS:
        return None
    core = [item._replace(texts={variant: item.texts[variant] for variant in CORE_VARIANTS}) for item in items]
    return Likeness(core=_nearest(core), wordings=_nearest(items))


def _nearest(items: Sequence[Item]) -> tuple[Nearest, ...]:
    found = [_of(owner, match) for owner, match in nearest_sets(items).items()]
    return tuple(sorted(found, key=lambda item: (-item.score, item.id, item.twin)))


def _of(owner: str, match: Match) -> Nearest:
    return Nearest(
        id=owner,
        variant=match.variant,
        twin=match.twin,
        twin_variant=match.twin_variant,
        score=round(match.overlap.score, 6),
    )


# All of it -----------------------------------------------------------------------------------------------------------


class BuildResults:
    """Everything that is known of a build when it has ended.

    Args:
        manifest: models, settings and templates.
        built: what every stage kept and dropped.
        spent: what its calls came to, by purpose and model.
        remarks: what the build says of itself, a line each.
        dataset: the prompt-sets, where the build came so far.
        check: what the controls found in them.
        check_tables: the same as tables.
        likeness: how alike different sets are; None where that was left out.
        reviewed: what people said, where they were asked.
    """

    def __init__(
        self,
        manifest: BuildManifest,
        built: Built,
        spent: Costs,
        *,
        remarks: Sequence[str] = (),
        dataset: Dataset | None = None,
        check: DatasetCheck | None = None,
        check_tables: Sequence[Table] = (),
        likeness: Likeness | None = None,
        reviewed: Reviewed | None = None,
    ) -> None:
        self.manifest = manifest
        self.built = built
        self.spent = spent
        self.remarks = remarks
        self.dataset = dataset
        self.check = check
        self.check_tables = {table.name: table for table in check_tables}
        self.likeness = likeness
        self.reviewed = reviewed

    @property
    def models(self) -> tuple[str, ...]:
        """The generator, and the judge where it is another model."""
        return tuple(dict.fromkeys((self.manifest.generator, self.manifest.judge)))

    @cached_property
    def costs(self) -> tuple[Spending, ...]:
        """What the calls of construction came to; others may have used the ledger for other ends."""
        known = {purpose for purposes in PURPOSES.values() for purpose in purposes}
        return tuple(line for spent in self.spent.runs.values() for line in spent.lines if line.purpose in known)

    @cached_property
    def stages(self) -> tuple[StageCount, ...]:
        """Every stage that was run, the reading of the seeds first."""
        return tuple(map(_count, self.built.stages))

    def stage(self, stage: Stage) -> StageCount | None:
        """Return one stage, where it was run."""
        return next((count for count in self.stages if count.stage == stage), None)

    @cached_property
    def cells(self) -> tuple[CellCount, ...]:
        """The finished prompt-sets by cell, in the taxonomy's order."""
        sets = Counter(draft.topic.cell for draft in self.built.finished)
        seeded = Counter(draft.topic.cell for draft in self.built.finished if draft.topic.seed)
        return tuple(CellCount(*cell, sets[cell], seeded[cell]) for cell in self.manifest.taxonomy.cells)

    @cached_property
    def readings(self) -> tuple[Read, ...]:
        """What the judge of intents found, of every draft that it read, the dropped ones included."""
        rows = []
        whens: tuple[When, ...] = ("first", "last")
        for when in whens:
            found = Counter(
                (intent, reading)
                for draft in self._read_drafts()
                for intent, reading in (draft.first_readings if when == "first" else draft.readings).items()
            )
            for intent in CORE_VARIANTS:
                of = sum(found[intent, reading] for reading in READINGS)
                rows += [
                    Read(when, intent, reading, number, number / of if of else None)
                    for reading in READINGS
                    for number in [found[intent, reading]]
                ]
        return tuple(rows)

    @cached_property
    def repaired(self) -> tuple[Repaired, ...]:
        """What repair came to, by intent."""
        drafts = list(self._read_drafts())
        return tuple(_repaired(intent, drafts) for intent in CORE_VARIANTS)

    def _read_drafts(self) -> Iterator[Draft]:
        for result in self.built.drafts:
            if result.stage == "intents":
                yield from result.kept
                yield from (rejection.item for rejection in result.rejected)


def _count(result: StageResult[Seed] | StageResult[Topic] | StageResult[Draft]) -> StageCount:
    from_seeds = sum(_goes_back_to_a_seed(item) for item in result.kept)
    return StageCount(result.stage, result.count_in, from_seeds, len(result.kept) - from_seeds, len(result.rejected))


def _goes_back_to_a_seed(item: Seed | Topic | Draft) -> bool:
    match item:
        case Seed():
            return True
        case Topic(seed=seed):
            return seed is not None
        case Draft(topic=topic):
            return topic.seed is not None


def _repaired(intent: Intent, drafts: Sequence[Draft]) -> Repaired:
    read = [draft for draft in drafts if intent in draft.first_readings]
    right = sum(draft.first_readings[intent] == intent for draft in read)
    wrong = sum(draft.readings[intent] != intent for draft in read)
    repairs = sum(revision.variant == intent for draft in read for revision in draft.revisions)
    leaning: tuple[int | None, ...] = (None, None, None)
    if intent == DUAL_USE:
        first = [
            draft for draft in read if draft.first_readings[intent] == intent and draft.first_leaning in PURPOSES_LEANT_TO
        ]
        mended = sum(complaint_of_intent(draft, intent) is None for draft in first)
        last = sum(draft.readings[intent] == intent and draft.leaning in PURPOSES_LEANT_TO for draft in read)
        leaning = (len(first), mended, last)
    return Repaired(intent, len(read), right, len(read) - right - wrong, wrong, repairs, *leaning)


def stage_of(purpose: str) -> Stage:
    """Return the stage that calls are for."""
    return next(stage for stage, purposes in PURPOSES.items() if purpose in purposes)


def name_of_seeds(seeds: str | None) -> str:
    """Return what the seeds are called, without the folder that they lie in."""
    if seeds is None:
        return "none"
    return one_line(seeds.removeprefix("hf:") if seeds.startswith("hf:") else PurePath(seeds).name, 80)
