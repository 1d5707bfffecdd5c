"""Coverage: the share of a model's plan that was completed, and what is missing of it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import NamedTuple

import msgspec

from opensafeintent.calls.recorded import WITHHELD
from opensafeintent.calls.records import stop_kind
from opensafeintent.evaluation.manifest import Manifest, list_prompts
from opensafeintent.evaluation.missing import KINDS, Kind, kinds_asked, yield_missing
from opensafeintent.evaluation.regrade import Regrade, Swapped
from opensafeintent.promptsets import Dataset, PromptSet
from opensafeintent.responses import NOT_GRADED, GradedResponse
from opensafeintent.taxonomy import (
    CORE_VARIANTS,
    FOLLOW_UPS,
    METRIC_GRADES,
    KnownGrades,
    find_intent,
)


class FirstAttempts(msgspec.Struct, frozen=True, kw_only=True):
    """Responses to one intent whose first attempt held reasoning and no text.

    Each was tried once more, which favours prompts that get an answer.
    """

    responses: int
    """Responses to the intent that are stored."""
    tried_again: int
    missing: int
    """Those of them that are missing all the same."""


class Unanswered(msgspec.Struct, frozen=True, kw_only=True):
    """The questions of one kind about a model's responses, and those without an answer."""

    asked: int
    """Responses that they were asked about; of grades, all that are stored."""
    missing: int
    """Those of them that lack an answer: one that lacks both grades counts once."""
    reasons: dict[str, int]
    """These by their first reason, as the column `missing` of `grades.csv.gz` has it; audits have
    no reasons.
    """


class Coverage(msgspec.Struct, frozen=True, kw_only=True):
    """The share of a model's plan that was completed."""

    sets: int
    """Prompt-sets planned; of an import, those with a response to each of their intents."""
    limit: int | None
    """How many were to be drawn, or are in the import; None for all of the dataset."""
    without_paraphrases: bool
    """Whether an import has no response to the paraphrases of its prompt-sets. They are not
    planned then.
    """
    complete_sets: int
    """Sets whose core responses all count, each epoch on its own."""
    incomplete_sets: int
    """Those that lack a grade, of stored responses."""
    planned: int
    """Responses planned, epochs included."""
    responses: int
    """Stored responses, those without a text included."""
    counted: int
    """Responses with both grades."""
    absent: float
    """Share of an evaluated model's planned responses that are not stored: the run was stopped,
    or is being written.
    """
    missing: dict[str, Unanswered]
    """By kind of question (`evaluation.missing.KINDS`): those that were asked."""
    not_graded: int
    """Responses that no judge was asked about."""
    filtered: int
    """Responses that the provider's content filter took whole: counted as refusals."""
    text_not_kept: int
    """Those that it took, with a text that was not stored: counted as refusals."""
    filtered_with_text: int
    """Responses that it cut: graded without the rest, since the user has them."""
    empty: int
    """Answers that ended by themselves without a word: counted as refusals."""
    truncated: int
    """Responses cut by the token limit, graded without the rest."""
    reasoning_only: dict[str, FirstAttempts]
    """By intent; empty if no attempt held reasoning alone."""
    unknown_stop_reasons: dict[str, int]
    """Graded responses by a stop reason that no table has."""
    unknown_marks: dict[str, int]
    """Graded responses by what they begin with, if it looks like a mark of reasoning that no table
    has.
    """

    @property
    def partial(self) -> bool:
        """Whether responses that were planned are not stored."""
        return self.responses < self.planned

    @property
    def core_sets(self) -> int:
        """Sets with a core response, complete or not, each epoch on its own."""
        return self.complete_sets + self.incomplete_sets

    @property
    def unit_of_sets(self) -> str:
        """What `core_sets` counts, in words."""
        return "prompt-sets" if self.core_sets <= self.sets else "prompt-sets × epochs"

    @property
    def can_resume(self) -> bool:
        """Whether the command that made the run brings responses that are not stored. An import
        brings those of its files alone.
        """
        return self.absent > 0

    @property
    def withheld(self) -> int:
        """Responses that an export left out because they are unsafe, without grades."""
        return sum(part.reasons.get(str(WITHHELD), 0) for part in self.missing.values())

    @property
    def lacking(self) -> dict[Kind, Unanswered]:
        """The kinds of questions of which an answer is missing."""
        return {kind: part for kind in KINDS if (part := self.missing.get(kind)) and part.missing}

    @property
    def lacks_grades(self) -> bool:
        """Whether a response lacks a grade."""
        return not self.lacking.keys().isdisjoint(("core", "paraphrase", "checklist"))

    def share(self, kind: Kind) -> float:
        """Return the share of responses that lack an answer of a kind; 0 if it was not asked."""
        part = self.missing.get(kind)
        return part.missing / part.asked if part else 0.0

    def list_beyond(self, most: float) -> list[Kind]:
        """Return the kinds of questions of which a larger share has no answer."""
        return [kind for kind in KINDS if self.share(kind) > most]


def count_coverage(
    model: str,
    manifest: Manifest,
    dataset: Dataset,
    rows: Sequence[GradedResponse],
    *,
    follow_ups: Sequence[GradedResponse],
    retests: Sequence[Regrade],
    swaps: Sequence[Swapped],
    in_conversation: Sequence[Regrade],
) -> Coverage:
    """Count one model's responses, and the answers to every question about them.

    Args:
        model, manifest: of the run.
        dataset: its prompt-sets.
        rows: the model's responses.
        follow_ups: its second replies.
        retests, swaps, in_conversation: its responses that judges graded again.
    """
    entry = manifest.models[model]
    epochs = len({row.epoch for row in rows}) if entry.imported else manifest.plan.epochs
    only_asked_about = not manifest.plan.by_rubric
    sets, limit = manifest.list_sets(model, dataset), manifest.find_limit(model)
    plan = _PlannedPrompts(sets, len(sets), limit or len(sets), False, only_asked_about)
    if entry.imported and manifest.plan.by_rubric:
        plan = _infer_plan(rows, epochs, dataset) or plan
    planned = plan.prompts * epochs
    core = _count_core_responses(rows)
    core_counted = _count_core_responses(row for row in rows if row.has_all_grades)
    intents = _count_core_prompts(dataset, only_asked_about=only_asked_about)
    alike = _group_alike(rows)
    graded = [(row, n) for row, n in alike if row.has_all_grades and not row.refusal_reason]
    cut = _count_names((stop_kind(row.stop_reason), n) for row, n in graded if row.truncated)
    refused = _count_names((row.refusal_reason, number) for row, number in alike)
    return Coverage(
        sets=plan.complete,
        limit=None if len(plan.sets) == len(dataset) else plan.limit,
        without_paraphrases=plan.without_paraphrases,
        complete_sets=sum(count == intents[item] for (item, _), count in core_counted.items()),
        incomplete_sets=sum(count > core_counted[place] for place, count in core.items()),
        planned=planned,
        responses=len(rows),
        counted=sum(number for row, number in alike if row.has_all_grades),
        absent=0.0 if entry.imported or not planned else 1 - len(rows) / planned,
        missing=_count_unanswered((*alike, *_group_alike(follow_ups)))
        | _count_unaudited(retests, swaps, in_conversation),
        not_graded=sum(number for row, number in alike if NOT_GRADED in row.missing),
        filtered=refused.get("filter", 0),
        text_not_kept=refused.get("text_not_kept", 0),
        filtered_with_text=cut.get("refusal", 0),
        empty=refused.get("empty", 0),
        truncated=cut.get("cut", 0),
        reasoning_only=_count_first_attempts(alike),
        unknown_stop_reasons=_count_names(
            (row.stop_reason, n) for row, n in graded if stop_kind(row.stop_reason) == "unknown"
        ),
        unknown_marks=_count_names((row.mark, n) for row, n in graded if row.mark),
    )


def _count_core_responses(rows: Iterable[GradedResponse]) -> Counter[tuple[str, int]]:
    """Count responses to core prompts by prompt-set and epoch."""
    return Counter((row.set_id, row.epoch) for row in rows if row.variant in CORE_VARIANTS)


class _PlannedPrompts(NamedTuple):
    """The prompts that a model was to answer."""

    sets: tuple[PromptSet, ...]
    complete: int
    """Prompt-sets that count as evaluated: of an import, those with all their intents."""
    limit: int
    without_paraphrases: bool
    only_asked_about: bool = False
    """Whether prompts without questions of the set's own are not sent."""

    @property
    def prompts(self) -> int:
        """The number of prompts in one epoch."""
        return sum(
            len(
                item.prompts.by_intent()
                if self.without_paraphrases
                else list_prompts(item, only_asked_about=self.only_asked_about)
            )
            for item in self.sets
        )


def _count_core_prompts(dataset: Dataset, *, only_asked_about: bool) -> dict[str, int]:
    """Return how many prompts of its intents are sent of each set, by its id."""
    return {
        item.id: len({*list_prompts(item, only_asked_about=only_asked_about)} & {*CORE_VARIANTS})
        for item in dataset.prompt_sets
    }


def _infer_plan(
    rows: Sequence[GradedResponse], epochs: int, dataset: Dataset
) -> _PlannedPrompts | None:
    """Return the plan that imported responses suggest: the prompts of their prompt-sets, without
    the paraphrases if the responses have none. None if no prompt-set has a response to each intent
    in each epoch: then all of the dataset is planned.
    """
    core = Counter(row.set_id for row in rows if row.variant in CORE_VARIANTS)
    answered = {row.set_id for row in rows}
    sets = tuple(item for item in dataset.prompt_sets if item.id in answered)
    complete = sum(core[item.id] == len(item.prompts.by_intent()) * epochs for item in sets)
    has_paraphrases = any(item.dual_use_paraphrases for item in sets)
    lacks_all = has_paraphrases and core.total() == len(rows)
    return (
        _PlannedPrompts(sets, complete, len(sets), without_paraphrases=lacks_all)
        if complete
        else None
    )


def count_planned_follow_ups(
    model: str, manifest: Manifest, dataset: Dataset, rows: Sequence[GradedResponse]
) -> int:
    """Return how many second replies of a model were planned: of an imported one, those that are
    stored, which are its rows.
    """
    if manifest.models[model].imported:
        return len(rows)
    follow_ups = len(FOLLOW_UPS) if manifest.plan.follow_ups else 0
    sets = sum(not item.is_pair for item in manifest.list_sets(model, dataset))
    return sets * manifest.plan.epochs * follow_ups


_get_shape = attrgetter(
    "variant",
    "missing",
    "mode",
    "mode_judge",
    "strategy",
    "guard",
    "judge_by",
    "grades",
    "refusal_reason",
    "truncated",
    "stop_reason",
    "mark",
    "reasoning_only",
    "has_all_grades",
)
"""Returns what coverage counts of a response, its place, judges and answers aside."""

_Alike = tuple[GradedResponse, int]
"""A response, and how many responses count as it does."""


def _group_alike(rows: Sequence[GradedResponse]) -> list[_Alike]:
    """Return a response of each shape, since most responses of a model have one of a few."""
    by_shape: defaultdict[tuple[object, ...], list[GradedResponse]] = defaultdict(list)
    for row in rows:
        by_shape[*_get_shape(row), len(row.by_judge) > 1, row.answers is None].append(row)
    return [(alike[-1], len(alike)) for alike in by_shape.values()]


def _count_unanswered(alike: Iterable[_Alike]) -> dict[str, Unanswered]:
    asked: Counter[Kind] = Counter()
    reasons: dict[Kind, Counter[str]] = {kind: Counter() for kind in KINDS}
    for row, number in alike:
        for kind in kinds_asked(row):
            asked[kind] += number
        first: dict[Kind, str] = {}
        for part in yield_missing(row):
            first.setdefault(part.kind, f"{part.what}:{part.reason}")
        for kind, reason in first.items():
            reasons[kind][reason] += number
    return {
        kind: Unanswered(
            asked=asked[kind],
            missing=reasons[kind].total(),
            reasons=dict(sorted(reasons[kind].items())),
        )
        for kind in KINDS
        if asked[kind]
    }


def _count_unaudited(
    retests: Iterable[Regrade], swaps: Iterable[Swapped], in_conversation: Iterable[Regrade]
) -> dict[str, Unanswered]:
    """Count the responses that judges were to grade again; one without a text was not asked about,
    and one under its own request is none of the audit.
    """
    swapped = (
        [grades for column, grades in item.grades.items() if column != item.variant]
        for item in swaps
    )
    graded: dict[Kind, Iterable[list[dict[str, KnownGrades]]]] = {
        "retest": ([item.again] for item in retests if item.again),
        "swap": (columns for columns in swapped if columns),
        "turn": ([item.again] for item in in_conversation if item.again),
    }
    answered = {
        kind: [
            _has_grades(known for by_judge in columns for known in by_judge.values())
            for columns in items
        ]
        for kind, items in graded.items()
    }
    return {
        kind: Unanswered(asked=len(items), missing=items.count(False), reasons={})
        for kind, items in answered.items()
        if items
    }


def _has_grades(grades: Iterable[KnownGrades]) -> bool:
    return all(known.of(what) is not None for known in grades for what in METRIC_GRADES)


def _count_names(names: Iterable[tuple[str, int]]) -> dict[str, int]:
    """Return the sum of the numbers beside each name, by name."""
    sums: Counter[str] = Counter()
    for name, number in names:
        sums[name] += number
    return dict(sorted(sums.items()))


def _count_first_attempts(alike: Sequence[_Alike]) -> dict[str, FirstAttempts]:
    if not any(row.reasoning_only for row, _ in alike):
        return {}
    attempts: dict[str, FirstAttempts] = {}
    for intent in CORE_VARIANTS:
        responses = [(row, number) for row, number in alike if find_intent(row.variant) == intent]
        again = [(row, number) for row, number in responses if row.reasoning_only]
        attempts[intent] = FirstAttempts(
            responses=sum(number for _, number in responses),
            tried_again=sum(number for _, number in again),
            missing=sum(
                number
                for row, number in again
                if any(item.what == "response" for item in row.missing)
            ),
        )
    return attempts
