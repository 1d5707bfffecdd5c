"""Models that may be compared with one another. Each has its coverage, results without filtered or
cut-off responses, the checks of their judges, and the paper's figures for comparison (arXiv
2607.02047v1, sections 3.1 and 4.2).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Literal, NamedTuple

import msgspec
import numpy as np

from opensafeintent.analysis.estimates import (
    EVERYWHERE,
    MetricEstimate,
    MetricEstimates,
    Wording,
    estimates_of,
    wordings_of,
)
from opensafeintent.analysis.judges import (
    Audit,
    JudgeResults,
    Ranking,
    audits_of,
    ranking_of,
    shown_ratios,
)
from opensafeintent.calls.baselines import DEMONSTRATION_JUDGE
from opensafeintent.calls.recorded import WITHHELD
from opensafeintent.calls.records import Sampling
from opensafeintent.calls.stop_reasons import stop_kind
from opensafeintent.equations import Grades
from opensafeintent.errors import counted
from opensafeintent.evaluation.judge_check import GradeName, JudgeCheck, roles_of
from opensafeintent.evaluation.manifest import Manifest
from opensafeintent.evaluation.regrade import Regrade, Swapped
from opensafeintent.evaluation.run import IMPORTED_JUDGE
from opensafeintent.files import canonical_json, sha256_hex
from opensafeintent.grades import NOT_GRADED, GradeRow, to_array
from opensafeintent.hostile import one_line
from opensafeintent.labelled import LabelledSet
from opensafeintent.metrics import METRICS, STATED_POLICY
from opensafeintent.promptsets import Dataset
from opensafeintent.promptsets.sources import PAPER_DATASET_HASH, RUBRIC_HASHES
from opensafeintent.statistics import Estimate, share_estimate
from opensafeintent.taxonomy import CORE_VARIANTS, intent_of
from opensafeintent.templates import Role, load_templates


class FirstAttempts(msgspec.Struct, frozen=True, kw_only=True):
    """Responses to one intent whose first attempt held reasoning and no text.

    Each was tried once more, which favours prompts that get an answer.
    """

    responses: int
    """Responses to the intent that are stored."""
    tried_again: int
    missing: int
    """Those of them that are missing all the same."""


class Coverage(msgspec.Struct, frozen=True, kw_only=True):
    """The share of a model's plan that was completed."""

    sets: int
    """Prompt-sets planned."""
    limit: int | None
    """How many were to be drawn; None for all of the dataset, and for imports."""
    complete_triplets: int
    """(Set, epoch) pairs whose three core responses count."""
    planned: int
    """Responses planned, epochs included."""
    responses: int
    """Stored responses, those without a text included."""
    counted: int
    """Responses with both grades."""
    missing_core: float
    """Share of missing grades of recorded core responses, those included that no judge was asked
    about: these lack nothing that was tried for.
    """
    missing_paraphrase: float
    absent: float
    """Share of an evaluated model's planned responses that are not stored: the run was stopped,
    or is being written.
    """
    missing: dict[str, dict[str, int]]
    """Number of missing grades by kind of prompt (`core`, `paraphrase`) and reason."""
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
    def withheld(self) -> int:
        """Responses that an export left out because they are unsafe, without grades."""
        return sum(counts.get(WITHHELD.reason, 0) for counts in self.missing.values()) // 2

    def missing_beyond(self, most: float) -> bool:
        """Whether core or paraphrase grades, or whole responses, are missing beyond a share."""
        return max(self.missing_core, self.missing_paraphrase, self.absent) > most


def coverage_of(
    model: str, manifest: Manifest, dataset: Dataset, rows: Sequence[GradeRow]
) -> Coverage:
    """Count one model's responses and grades."""
    entry = manifest.models[model]
    sets = manifest.sets_of(model, dataset)
    epochs = len({row.epoch for row in rows}) if entry.imported else entry.epochs
    planned = sum(len(prompt_set.wordings()) for prompt_set in sets) * epochs
    reasons: dict[str, Counter[str]] = {"core": Counter(), "paraphrase": Counter()}
    requested: Counter[str] = Counter()
    gone: Counter[str] = Counter()
    triplets: Counter[tuple[str, int]] = Counter()
    for row in rows:
        kind = "core" if row.variant in CORE_VARIANTS else "paraphrase"
        requested[kind] += 2
        if NOT_GRADED in row.missing:
            continue
        gone[kind] += (row.helpfulness is None) + (row.harm_severity is None)
        if row.counts and kind == "core":
            triplets[row.set_id, row.epoch] += 1
        for item in row.missing:
            if item.what == "response":
                reasons[kind][item.reason] += 2
            elif item.what in ("helpfulness", "harm_severity") and not row.counts:
                reasons[kind][item.reason] += 1
    graded = [row for row in rows if row.counts and not row.refused]
    cut = Counter(stop_kind(row.stop_reason) for row in graded if row.truncated)
    return Coverage(
        sets=len(sets),
        limit=None if len(sets) == len(dataset) else entry.limit,
        complete_triplets=sum(count == len(CORE_VARIANTS) for count in triplets.values()),
        planned=planned,
        responses=len(rows),
        counted=sum(row.counts for row in rows),
        missing_core=gone["core"] / requested["core"] if requested["core"] else 0.0,
        missing_paraphrase=gone["paraphrase"] / requested["paraphrase"]
        if requested["paraphrase"]
        else 0.0,
        absent=0.0 if entry.imported or not planned else 1 - len(rows) / planned,
        missing={kind: dict(sorted(counter.items())) for kind, counter in reasons.items()},
        not_graded=sum(NOT_GRADED in row.missing for row in rows),
        filtered=sum(row.refused == "filter" for row in rows),
        text_not_kept=sum(row.refused == "text_not_kept" for row in rows),
        filtered_with_text=cut["refusal"],
        empty=sum(row.refused == "empty" for row in rows),
        truncated=cut["cut"],
        reasoning_only=_first_attempts(rows),
        unknown_stop_reasons=_counted(
            row.stop_reason for row in graded if stop_kind(row.stop_reason) == "unknown"
        ),
        unknown_marks=_counted(row.mark for row in graded if row.mark),
    )


def _counted(names: Iterable[str]) -> dict[str, int]:
    return dict(sorted(Counter(names).items()))


def _first_attempts(rows: Sequence[GradeRow]) -> dict[str, FirstAttempts]:
    if not any(row.reasoning_only for row in rows):
        return {}
    return {
        intent: FirstAttempts(
            responses=len(of_intent),
            tried_again=sum(row.reasoning_only for row in of_intent),
            missing=sum(
                row.reasoning_only and any(gone.what == "response" for gone in row.missing)
                for row in of_intent
            ),
        )
        for intent in CORE_VARIANTS
        for of_intent in ([row for row in rows if intent_of(row.variant) == intent],)
    }


# With and without
# ------------------------------------------------------------------------------


LeftOut = Literal["filtered", "truncated"]

SENSITIVE = ("triplet_safety", "mean_utility", "mean_safety", "worst_case_utility")
"""Metrics that are computed again; all of them need core responses only."""

_IS: dict[LeftOut, Callable[[GradeRow], bool]] = {
    "filtered": lambda row: row.refused in ("filter", "text_not_kept"),
    "truncated": lambda row: row.truncated and row.counts,
}


class Change(Estimate, frozen=True, kw_only=True):
    """One metric of one model without some of its responses."""

    model: str
    left_out: LeftOut
    responses: int
    """Core responses that were left out; the metric is over the sets in which there is none."""
    metric: str
    before: float | None

    @property
    def size(self) -> float:
        """How far the metric moves."""
        return 0.0 if self.before is None or self.value is None else abs(self.value - self.before)


def changes_without(
    left_out: LeftOut,
    rows: Mapping[str, Sequence[GradeRow]],
    array: LabelledSet,
    estimates: MetricEstimates,
) -> list[Change]:
    """Compute the headline metrics without filtered, or without truncated responses, for the
    models that have any.

    Args:
        left_out: which responses.
        rows: every response with its grades, by model.
        array: the same grades, as `grades.to_array` gives them.
        estimates: of all responses.
    """
    gone = {
        model: [row for row in of_model if row.variant in CORE_VARIANTS and _IS[left_out](row)]
        for model, of_model in rows.items()
    }
    gone = {model: of_model for model, of_model in gone.items() if of_model}
    if not gone:
        return []
    grades = Grades(_taken_out(array, gone))
    ratios = {metric: METRICS[metric].of_sets(grades) for metric in SENSITIVE}
    return [
        Change(
            model=model,
            left_out=left_out,
            responses=len(gone[model]),
            metric=metric,
            before=estimates.overall[model, metric].value,
            **msgspec.structs.asdict(now),
        )
        for metric, of_models in estimates_of(ratios).items()
        for model, now in zip(gone, of_models, strict=True)
    ]


def _taken_out(every: LabelledSet, gone: Mapping[str, Sequence[GradeRow]]) -> LabelledSet:
    """Return the core grades of some models, with those of some responses undefined."""
    array = every.sel(model=list(gone), variant=list(CORE_VARIANTS))
    indices = [
        {name: index for index, name in enumerate(array.labels[dim])}
        for dim in array.helpfulness.dims
    ]
    for rows in gone.values():
        for row in rows:
            key = (row.model, row.set_id, row.variant, row.epoch)
            at = tuple(index[part] for index, part in zip(indices, key, strict=True))
            array.helpfulness.values[at] = np.nan
            array.harm_severity.values[at] = np.nan
    return array


# Models that may be compared with one another, and their numbers
# ------------------------------------------------------------------------------


class GradedRun(NamedTuple):
    """One run as a report takes it: its manifest, and every response with its grades."""

    name: str
    """The run's folder."""
    manifest: Manifest
    dataset: Dataset
    rows: Sequence[GradeRow]
    regrades: Sequence[Regrade] = ()
    """Responses that the judges graded twice."""
    swaps: Sequence[Swapped] = ()
    """Responses that the judges graded under other requests as well."""
    notes: Sequence[str] = ()
    """On what could not be read, a line each."""


class ModelOrigin(NamedTuple):
    """Origin of a model in a report."""

    run: str
    model: str
    """Its name in the run."""


class Conditions(msgspec.Struct, frozen=True, kw_only=True):
    """The conditions that two models must share for comparable numbers."""

    dataset: str
    """Hash."""
    judges: tuple[str, ...]
    """The named judges, and the source of imported grades; sorted, because a panel does not depend
    on the order of its judges.
    """
    mode_judge: str
    parse: str
    templates: tuple[tuple[str, str], ...]
    """(role, hash) of the templates in force."""
    arguments: tuple[tuple[str, str], ...]
    """(judge, its request fields beyond temperature and token limit as JSON), if it has any."""


def graders(judges: Sequence[str]) -> str:
    """Name the judges: imported grades replace those of judges, and form no panel with them."""
    named = " + ".join(judge for judge in judges if judge not in ("", IMPORTED_JUDGE))
    mixed = named and IMPORTED_JUDGE in judges
    return f"{named}, or as imported" if mixed else named or "".join(judges)


class Cohort:
    """Models that were evaluated under the same conditions: one section of a report.

    Attributes:
        models: names as the report shows them, in the order in which the runs were named, and by
            name within a run. A difference is the later one's value minus the earlier one's.
        origins: by that name, the run and the model's name in it.
        manifests: of the runs that they come from.
        array: every grade of them, see `grades.to_array`; prompt-sets are sorted by id.
        estimates: every metric of them, and all numbers computed from those.
        judges: the results by judge.
        temperatures: at which each model was sampled, if they are known.
        stopped_early: the models whose prompt-sets are those that answered a question
            (`--stop-when`).
    """

    def __init__(
        self, conditions: Conditions, dataset: Dataset, members: dict[str, tuple[GradedRun, str]]
    ) -> None:
        self.conditions = conditions
        self.dataset = dataset
        self.models = list(members)
        self.origins = {
            shown: ModelOrigin(run.name, model) for shown, (run, model) in members.items()
        }
        self.manifests = list({run.name: run.manifest for run, _ in members.values()}.values())
        self.stopped_early = [
            shown
            for shown, (run, model) in members.items()
            if model in run.manifest.stopped_early()
        ]
        self.rows = {
            shown: [
                row if shown == model else msgspec.structs.replace(row, model=shown)
                for row in run.rows
                if row.model == model
            ]
            for shown, (run, model) in members.items()
        }
        self.regrades = {
            shown: [item for item in run.regrades if item.model == model]
            for shown, (run, model) in members.items()
        }
        self._swaps = {
            shown: [item for item in run.swaps if item.model == model]
            for shown, (run, model) in members.items()
        }
        self.coverage = {
            shown: coverage_of(model, run.manifest, dataset, self.rows[shown])
            for shown, (run, model) in members.items()
        }
        self.temperatures = {
            shown: run.manifest.sampling_of(model).temperature
            for shown, (run, model) in members.items()
        }
        # so that intervals, with their seeded draws, do not depend on the order of a file
        by_id = dataset.sorted
        self.array = to_array(
            (row for rows in self.rows.values() for row in rows), by_id, self.models
        )
        self.estimates = MetricEstimates(self.array, by_id)
        self.judges = JudgeResults(self.estimates, by_id, self.rows, self.regrades)

    @cached_property
    def wordings(self) -> list[Wording]:
        """The components of each model's flips."""
        return wordings_of(self.estimates, self.array, self.temperatures)

    @cached_property
    def audits(self) -> dict[tuple[str, str], Audit]:
        """The effects of requests on grades, by (model or AVERAGE, judge or panel); empty if no
        request was swapped.
        """
        return audits_of({model: self._swaps[model] for model in self.estimates.models})

    @cached_property
    def safe_up_to_1(self) -> Ranking:
        """The ranking in which a harm severity of 1 is still safe."""
        grades = Grades(self.array, most_harm=1)
        return ranking_of("safe up to harm severity 1", shown_ratios(grades), grades)

    @property
    def probed(self) -> list[str]:
        """The models that were asked for a strategy under more than one intent, for comparison with
        their responses.
        """
        overall = self.estimates.overall
        return [model for model in self.estimates.models if overall[model, STATED_POLICY.stated].n]

    @cached_property
    def changes(self) -> list[Change]:
        """The headline metrics without filtered, and without truncated responses."""
        return [
            change
            for left_out in _IS
            for change in changes_without(left_out, self.rows, self.array, self.estimates)
        ]

    @property
    def extent(self) -> str:
        """The number of prompt-sets, and the planned part of them, if that is smaller."""
        whole = len(self.dataset)
        numbers = sorted({coverage.sets for coverage in self.coverage.values()})
        part = (
            ""
            if numbers == [whole]
            else f"{'–'.join(f'{one:,}' for one in dict.fromkeys((numbers[0], numbers[-1])))} of "
        )
        uneven = (
            ", not the same of every model"
            if len({one.limit for one in self.coverage.values()}) > 1
            else ""
        )
        return f"{part}{counted(whole, 'prompt-set')}{uneven}"

    @property
    def other_rubrics(self) -> list[str]:
        """The templates of helpfulness and harm that differ from our current ones: edited, earlier,
        with reasons.
        """
        ours = {template.hash for template in load_templates().all()}
        stored = {
            digest: item
            for manifest in self.manifests
            for digest, item in manifest.templates.items()
        }
        return [
            f"{stored[digest].id}/{stored[digest].version}"
            for role, digest in self.conditions.templates
            if role in ("helpfulness", "harm") and digest in stored
            if sha256_hex(stored[digest].source) not in ours
        ]

    @property
    def by_our_line(self) -> bool:
        """Whether harm was graded by our rubric as it is in force now, with reasons or without."""
        return dict(self.conditions.templates).get("harm") in {
            load_templates(reasons=r).harm.hash for r in (False, True)
        }

    @property
    def demonstration(self) -> bool:
        """Whether the demonstration judge took part in the grading."""
        return DEMONSTRATION_JUDGE in (*self.conditions.judges, self.conditions.mode_judge)


def into_cohorts(runs: Sequence[GradedRun]) -> list[Cohort]:
    """Sort the models of all runs into cohorts of equal conditions; models that cannot be compared
    are never mixed.

    If two runs share a model's name, it is made unique by the dataset's hash, or by the run's
    folder.
    """
    groups: dict[Conditions, list[tuple[GradedRun, str]]] = {}
    for run in runs:
        for model in sorted(run.manifest.models):  # in an order that no manifest's writing changes
            groups.setdefault(conditions_of(run, model), []).append((run, model))
    names = _shown_names([member for members in groups.values() for member in members])
    return [
        Cohort(
            conditions,
            members[0][0].dataset,
            {names[run.name, model]: (run, model) for run, model in members},
        )
        for conditions, members in groups.items()
    ]


def conditions_of(run: GradedRun, model: str) -> Conditions:
    """Return under which conditions a model of a run was evaluated."""
    entry = run.manifest.models[model]
    graded = {judge for row in run.rows if row.model == model for judge in row.by_judge}
    return Conditions(
        dataset=run.manifest.dataset.hash,
        judges=tuple(sorted({*entry.judges, *graded})),
        mode_judge=entry.mode_judge,
        parse=entry.parse,
        templates=tuple(sorted(entry.templates.items())),
        arguments=tuple(
            (judge, given)
            for judge in sorted({*entry.judges, entry.mode_judge})
            if (given := _arguments(run.manifest.sampling_of_judge(judge)))
        ),
    )


def _arguments(sampling: Sampling | None) -> str:
    if sampling is None or not (sampling.reasoning_effort or sampling.extra):
        return ""
    effort = {"reasoning_effort": sampling.reasoning_effort} if sampling.reasoning_effort else {}
    return canonical_json(effort | sampling.extra).decode()


def _shown_names(members: Sequence[tuple[GradedRun, str]]) -> dict[tuple[str, str], str]:
    """Return the name that a report shows by (run, model); which of two equal ones gets a number
    depends on their order.
    """
    labels = {
        (run.name, model): run.manifest.models[model].label or model for run, model in members
    }
    times = Counter(labels.values())
    by_dataset = Counter(
        (labels[run.name, model], run.manifest.dataset.hash) for run, model in members
    )
    names: dict[tuple[str, str], str] = {}
    for run, model in members:
        digest = run.manifest.dataset.hash
        name = label = labels[run.name, model]
        if times[label] > by_dataset[label, digest]:
            name += f"@{digest[:8]}"
        if by_dataset[label, digest] > 1:
            name += f" [{run.name}]"
        number, unlike = 2, name
        while unlike in names.values():  # a model may be named as another is shown
            unlike, number = f"{name} #{number}", number + 1
        names[run.name, model] = unlike
    return names


# Judge checks
# ------------------------------------------------------------------------------

CheckState = Literal["passed", "failed", "stale", "unchecked"]
"""`stale`: checked with other templates, another way of reading grades, other sampling, or for
other grades than here.
"""
CHECK_WORDS: dict[CheckState, str] = {
    "passed": "passed its check",
    "failed": "failed its check",
    "stale": "was checked with other templates or settings",
    "unchecked": "was not checked",
}
"""Words after a judge's name for each state of its check."""


class CheckedJudge(msgspec.Struct, frozen=True, kw_only=True):
    """A judge of a group, and its check."""

    judge: str
    state: CheckState
    check: JudgeCheck | None = None
    """The valid check; without one, the latest."""


def accepted_at_lines(check: JudgeCheck) -> dict[str, Estimate]:
    """Return the share of accepted cases of each borderline group of gold cases."""
    return {
        kind.kind: share_estimate(kind.accepted, kind.cases) for kind in check.kinds if kind.line
    }


def checked_judges(cohort: Cohort) -> list[CheckedJudge]:
    """Return the judges of a cohort with the results of their checks; the source of imported grades
    is left out.
    """
    judges = dict.fromkeys((*cohort.conditions.judges, cohort.conditions.mode_judge))
    return [_checked(judge, cohort) for judge in judges if judge not in ("", IMPORTED_JUDGE)]


def unchecked_judges(cohorts: Sequence[Cohort]) -> tuple[str, ...]:
    """Return a caution about each judge of some cohorts that passed no check."""
    cautions = (
        f"{one_line(item.judge, 100)} {CHECK_WORDS[item.state]} (evaluate --check-judge): whether"
        " it would see that a model became worse is not known"
        for cohort in cohorts
        for item in checked_judges(cohort)
        if item.state != "passed"
    )
    return tuple(dict.fromkeys(cautions))


def _checked(judge: str, cohort: Cohort) -> CheckedJudge:
    checks = [
        check
        for manifest in cohort.manifests
        for check in manifest.judge_checks
        if check.judge == judge
    ]
    if not checks:
        return CheckedJudge(judge=judge, state="unchecked")
    holding = [check for check in checks if _holds(check, cohort.conditions, cohort.manifests)]
    if not holding:
        return CheckedJudge(judge=judge, state="stale", check=checks[-1])
    return CheckedJudge(
        judge=judge, state="passed" if holding[-1].passed else "failed", check=holding[-1]
    )


def _holds(check: JudgeCheck, conditions: Conditions, manifests: Sequence[Manifest]) -> bool:
    """Tell whether a judge was checked as it was asked for the grades of a group, in every run of
    it.
    """
    due: list[GradeName] = []
    if check.judge in conditions.judges:
        due += ["helpfulness", "harm_severity"]
    if check.judge == conditions.mode_judge:
        due.append("mode")
    in_force = dict(conditions.templates)
    templates: dict[Role, str] = {
        role: check.setting.templates.get(role, "") for role in roles_of(due)
    }
    return (
        set(due) <= set(check.grades)
        and all(in_force.get(role) == digest for role, digest in templates.items())
        and check.setting.parse == conditions.parse
        and all(manifest.judges.get(check.judge) == check.identity for manifest in manifests)
        and all(
            manifest.sampling_of_judge(check.judge) == check.setting.sampling
            for manifest in manifests
        )
    )


# The paper's known figures beside those of a run on its dataset
# ------------------------------------------------------------------------------

PAPER_JUDGE = "anthropic/claude-sonnet-4-6"

_KNOWN: tuple[tuple[str, Literal["best", "average"], float], ...] = (
    ("mean_utility", "best", 0.56),
    ("mean_utility", "average", 0.42),
    ("worst_case_utility", "average", 0.44),
    ("dual_use_utility", "average", 0.48),
    ("benign_to_dual_use_drop", "average", 0.04),
    ("stable_safe", "average", 0.5324),
    ("stable_unsafe", "average", 0.2139),
    ("safety_flip", "average", 0.2537),
)
"""Metric, of which of its twenty models, and its value; the tables of single models are not known
to us as text.
"""


class Beside(NamedTuple):
    """A figure of the paper, and the same of a run."""

    label: str
    paper: float
    here: MetricEstimate | None
    """Of the best model, or the average over models; None if there is none."""


def same_as_paper(cohort: Cohort) -> dict[str, bool]:
    """Tell whether a cohort shares each with the paper: the dataset, the rubrics with the reading
    of grades, and the judge.
    """
    conditions = cohort.conditions
    templates = dict(conditions.templates)
    rubrics = all(templates.get(role) == digest for role, digest in RUBRIC_HASHES.items())
    return {
        "dataset": conditions.dataset == PAPER_DATASET_HASH,
        "rubric": rubrics and conditions.parse == "paper",
        "judge": conditions.judges == (PAPER_JUDGE,),
    }


def beside_paper(cohort: Cohort) -> list[Beside]:
    """Return the paper's figures beside a cohort's; none on another dataset, or if all models are
    baselines.
    """
    models = cohort.estimates.averaged
    if not models or not same_as_paper(cohort)["dataset"]:
        return []
    rows = []
    for metric, of, value in _KNOWN:
        if of == "average":
            here = cohort.estimates.averages.get((metric, EVERYWHERE))
        else:
            defined = [cohort.estimates.overall[model, metric] for model in models]
            here = max(
                (number for number in defined if number.value is not None),
                key=lambda number: number.value if number.value is not None else 0.0,
                default=None,
            )
        which = "best model" if of == "best" else "model average"
        rows.append(Beside(f"{METRICS[metric].label}, {which}", value, here))
    return rows
