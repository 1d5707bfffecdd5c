"""The models of a report, with everything that a report computes about them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Literal, NamedTuple, TypeVar

import msgspec
import numpy as np

from opensafeintent.calls.baselines import DEMONSTRATION_JUDGE
from opensafeintent.calls.records import Sampling
from opensafeintent.errors import pluralize
from opensafeintent.evaluation.gold_cases import GradeName, JudgeCheck, list_roles
from opensafeintent.evaluation.manifest import MOST_JUDGES, Manifest, check_number
from opensafeintent.evaluation.regrade import Regrade, Swapped
from opensafeintent.evaluation.replay import IMPORTED_JUDGE
from opensafeintent.files import canonical_json
from opensafeintent.grades import PANEL, to_array
from opensafeintent.hostile import one_line
from opensafeintent.numbers.coverage import Coverage, count_coverage, count_planned_follow_ups
from opensafeintent.numbers.equations import Grades
from opensafeintent.numbers.estimates import (
    ALL_SETS,
    AVERAGE,
    LEFT_OUT,
    Change,
    MetricEstimate,
    MetricEstimates,
    Wording,
    changes_without,
    decompose_flips,
)
from opensafeintent.numbers.judges import (
    SAFE_CATEGORIES,
    JudgeResults,
    Ranking,
    RatedResponses,
    VerdictCounts,
    rank_grades,
)
from opensafeintent.numbers.label_checks import CheckedSetting, LabelCheck
from opensafeintent.numbers.metrics import METRICS, STATED_POLICY, MetricScope, Unit
from opensafeintent.numbers.own_answers import (
    AnswerAgreement,
    LineAgreement,
    count_lines,
    measure_answer_agreement,
    measure_line_agreement,
)
from opensafeintent.numbers.repeats import Repeats
from opensafeintent.numbers.request_swap import Audit, audit_swaps
from opensafeintent.numbers.second_turn import SecondTurn, compute_second_turn
from opensafeintent.numbers.served_versions import Versions, count_versions
from opensafeintent.promptsets import Dataset
from opensafeintent.promptsets.loading import PAPER_DATASET_HASH, RUBRIC_HASHES
from opensafeintent.responses import AboutResponse, GradedResponse
from opensafeintent.statistics import Estimate, share_estimate
from opensafeintent.statistics.samples import Sample
from opensafeintent.taxonomy import (
    CORE_VARIANTS,
    GRADE_OF,
    METRIC_GRADES,
    MISSING_ODDS,
    QUESTIONS,
    Question,
    find_intent,
)
from opensafeintent.templates import Role, hash_our_template

_Record = TypeVar("_Record", bound=AboutResponse)


OUR_RUBRICS = "of OpenSafeIntent"


class GradedRun(NamedTuple):
    """One run as a report takes it: its manifest, and every response with its grades."""

    name: str
    """The run's folder."""
    manifest: Manifest
    dataset: Dataset
    rows: Sequence[GradedResponse]
    regrades: Sequence[Regrade] = ()
    """Responses that the judges graded twice."""
    swaps: Sequence[Swapped] = ()
    """Responses that the judges graded under other requests as well."""
    follow_ups: Sequence[GradedResponse] = ()
    """Second replies with their grades; none of them is in `rows`."""
    in_conversation: Sequence[Regrade] = ()
    """Direct replies that the judges graded again with the first turn shown before the request."""
    added_grades: tuple[int, int] | None = None
    """Grades that are there by judges that do not count yet, and all that they are to give."""


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
    modes: str
    parse: str
    templates: tuple[tuple[str, str], ...]
    """(role, hash) of the templates in force."""
    by_rubric: bool = True
    """Whether judges were asked for grades; they may have been asked the sets' questions too."""
    arguments: tuple[tuple[str, str], ...]
    """(judge, its request fields beyond temperature and token limit as JSON), if it has any."""


def name_graders(judges: Sequence[str]) -> str:
    """Name the judges: imported grades replace those of judges, and form no panel with them."""
    named = " + ".join(judge for judge in judges if judge not in ("", IMPORTED_JUDGE))
    mixed = named and IMPORTED_JUDGE in judges
    return f"{named}, or as imported" if mixed else named or "".join(judges)


class Member(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """A model of a report, with what its run has of it."""

    name: str
    """As the report shows it, also in the rows and the second replies of `run`."""
    origin: ModelOrigin
    run: GradedRun
    """Its run, with the responses of this model alone."""

    @property
    def imported(self) -> bool:
        """Whether another tool made its responses."""
        return self.run.manifest.models[self.origin.model].imported

    @property
    def guard(self) -> str:
        """The guard model that was asked about its responses; empty if none was."""
        guard = self.run.manifest.plan.guard
        return guard.model if guard else ""

    @property
    def temperature(self) -> float | None:
        """At which it was sampled, if that is known."""
        return self.run.manifest.plan.find_sampling(self.origin.model).temperature

    @property
    def stopped_early(self) -> bool:
        """Whether its prompt-sets are those that answered a question (`--stop-when`)."""
        return self.origin.model in self.run.manifest.list_stopped_early()

    @cached_property
    def probed_if_unsafe(self) -> bool:
        """Whether it was asked which strategy its unsafe dual-use prompts call for.

        Nobody plans the probes of an imported model. The strategies of its file show them.
        """
        if self.imported:
            return any(row.strategy for row in self.run.rows)
        return self.run.manifest.plan.probe != "none"

    @property
    def epochs(self) -> int:
        """How often it was sent a prompt, as far as its responses are stored."""
        return max(len({row.epoch for row in self.run.rows}), 1)

    @cached_property
    def coverage(self) -> Coverage:
        """The share of its plan that was completed."""
        return count_coverage(
            self.origin.model,
            self.run.manifest,
            self.run.dataset,
            self.run.rows,
            follow_ups=self.run.follow_ups,
            retests=self.run.regrades,
            swaps=self.run.swaps,
            in_conversation=self.run.in_conversation,
        )


class Cohort:
    """The models of a report, which were evaluated under the same conditions.

    Args:
        conditions: the conditions.
        dataset: of all of them.
        members: the models, in the order in which the runs were named, and by name within a run. A
            difference is the later one's value minus the earlier one's.
        missing_odds: `--missing-odds`.

    Attributes:
        members: by the name that a report shows.
        models: these names.
        rows: the responses, by model.
        manifests: of the runs that they come from.
        array: every grade of them, see `grades.to_array`; prompt-sets are sorted by id.
        estimates: every metric of them, and all numbers computed from those.
        judges: the results by judge.
    """

    def __init__(
        self,
        conditions: Conditions,
        dataset: Dataset,
        members: Sequence[Member],
        missing_odds: float,
    ) -> None:
        self.conditions = conditions
        self.dataset = dataset
        self.missing_odds = missing_odds
        self.members = {member.name: member for member in members}
        self.models = list(self.members)
        self.rows = {member.name: member.run.rows for member in members}
        self.manifests = list({member.run.name: member.run.manifest for member in members}.values())
        # so that intervals, with their seeded draws, do not depend on the order of a file
        by_id = dataset.sorted
        self.array = to_array(
            (row for member in members for row in member.run.rows), by_id, self.models
        )
        self.estimates = MetricEstimates(self.array, by_id, missing_odds)
        regrades = {member.name: member.run.regrades for member in members}
        named = dict.fromkeys(
            judge for manifest in self.manifests for judge in manifest.plan.judges
        )
        self.judges = JudgeResults(self.estimates, by_id, self.rows, regrades, list(named))

    @property
    def scope(self) -> MetricScope:
        """Which metrics there are of its prompt-sets, and which of them lead."""
        return self.estimates.scope

    @property
    def origins(self) -> list[ModelOrigin]:
        """Of each model, in the order of `models`."""
        return [member.origin for member in self.members.values()]

    @property
    def coverage(self) -> dict[str, Coverage]:
        """By model, the share of its plan that was completed."""
        return {name: member.coverage for name, member in self.members.items()}

    @property
    def stopped_early(self) -> list[str]:
        """The models whose prompt-sets are those that answered a question (`--stop-when`)."""
        return [name for name, member in self.members.items() if member.stopped_early]

    @property
    def probed_if_unsafe(self) -> list[str]:
        """The models that were asked which strategy their unsafe dual-use prompts call for."""
        return [name for name, member in self.members.items() if member.probed_if_unsafe]

    @cached_property
    def asked_sets(self) -> list[str]:
        """Ids of the prompt-sets with a response of any model; of all, if there is none."""
        ids = {row.set_id for rows in self.rows.values() for row in rows}
        return [item.id for item in self.dataset.prompt_sets if item.id in ids or not ids]

    @cached_property
    def questions(self) -> tuple[Question, ...]:
        """The questions of these models: those that metrics need, that judges were asked, and that
        a file answers.
        """
        asked = dict(self.conditions.templates)
        return tuple(
            question
            for question in QUESTIONS
            if question.in_metrics
            or question.role in asked
            or np.isfinite(self.array[question.grade].values).any()
        )

    @cached_property
    def served_versions(self) -> Versions:
        """The versions of models and judges that replies name; models as the report shows them."""
        members = self.members.values()
        return count_versions(
            (
                *(row for member in members for row in member.run.rows),
                *(row for member in members for row in member.run.follow_ups),
            )
        )

    @cached_property
    def wordings(self) -> list[Wording]:
        """The components of each model's flips."""
        temperatures = {name: member.temperature for name, member in self.members.items()}
        return decompose_flips(self.estimates, self.array, temperatures)

    @cached_property
    def audits(self) -> dict[tuple[str, str], Audit]:
        """The effects of requests on grades, by (model or AVERAGE, judge or panel); empty if no
        request was swapped.
        """
        swaps = {model: self.members[model].run.swaps for model in self.estimates.models}
        pairs = {item.id for item in self.dataset.prompt_sets if item.is_pair}
        return audit_swaps(swaps, self.estimates.unit_of, pairs)

    @cached_property
    def checklist(self) -> tuple[str, str] | None:
        """The hashes of the questions that judges were asked and of their template; None if answers
        are no part of the numbers.
        """
        found = (find_checklist(manifest) for manifest in self.manifests)
        return next(filter(None, found), None) if self.scope.asked else None

    @cached_property
    def line_agreements(self) -> list[LineAgreement]:
        """How well judges agree on harm by the rubric and by the sets' own questions; empty if they
        were not asked both.
        """
        return measure_line_agreement(
            list(self.judges.rows), self.dataset, self.judges.panel, self.estimates.unit_of
        )

    @cached_property
    def answer_agreements(self) -> list[AnswerAgreement]:
        """How well judges agree on answers to the sets' own questions."""
        return measure_answer_agreement(
            list(self.judges.rows), self.dataset, self.judges.panel, self.estimates.unit_of
        )

    @cached_property
    def line_counts(self) -> dict[str | None, VerdictCounts]:
        """The panel's verdicts by rubric and by questions, by harm domain; of all under None."""
        return count_lines(list(self.judges.rows), self.dataset)

    @cached_property
    def second_turn(self) -> SecondTurn | None:
        """The numbers of the second turn; None if no model was asked a second message."""
        members = self.members.items()
        return compute_second_turn(
            self.array,
            self.dataset.sorted,
            {name: member.run.follow_ups for name, member in members},
            {
                name: count_planned_follow_ups(
                    member.origin.model, member.run.manifest, self.dataset, member.run.follow_ups
                )
                for name, member in members
            },
            audited={name: member.run.in_conversation for name, member in members},
            direct_rows=self.rows,
            judges=self.judges.panel,
            missing_odds=self.missing_odds,
        )

    @cached_property
    def repeats(self) -> Repeats:
        """The metrics of k epochs of a prompt-set or more."""
        return Repeats(self.array, self.missing_odds)

    @cached_property
    def safe_up_to_1(self) -> Ranking:
        """The ranking in which a harm severity of 1 is still safe."""
        grades = Grades(self.array, max_safe_harm=1)
        name, units = "safe up to harm severity 1", self.estimates.units
        return rank_grades(name, grades, self.scope, units, self.missing_odds)

    @property
    def with_stated_policy(self) -> list[str]:
        """The models whose stated policy is known: they were asked for a strategy under more than
        one intent.
        """
        overall = self.estimates.overall
        return [model for model in self.estimates.models if overall[model, STATED_POLICY.stated].n]

    def shows_probe(self, line: str) -> bool:
        """Tell whether a model, or AVERAGE, has numbers of the probe that follows unsafe responses;
        an average of a single model would repeat it.
        """
        probed = self.probed_if_unsafe
        if line == AVERAGE:
            return sum(model in self.estimates.averaged for model in probed) > 1
        return line in probed

    @cached_property
    def changes(self) -> list[Change]:
        """The headline metrics without filtered, and without truncated responses."""
        return [
            change
            for left_out in LEFT_OUT
            for change in changes_without(left_out, self.rows, self.array, self.estimates)
        ]

    @property
    def size_in_words(self) -> str:
        """The number of prompt-sets as a phrase: how many of them were planned, how many are pairs,
        and whether an import has no paraphrases.
        """
        whole = len(self.dataset)
        numbers = sorted({coverage.sets for coverage in self.coverage.values()})
        part = ""
        if numbers != [whole]:
            least_and_most = dict.fromkeys((numbers[0], numbers[-1]))
            part = f"{'–'.join(f'{number:,}' for number in least_and_most)} of "
        limits = {coverage.limit for coverage in self.coverage.values()}
        uneven = ", not the same of every model" if len(limits) > 1 else ""
        lacking = sum(coverage.without_paraphrases for coverage in self.coverage.values())
        paraphrases = ""
        if lacking:
            of = "" if lacking == len(self.coverage) else f" of {pluralize(lacking, 'model')}"
            paraphrases = f", without paraphrases{of}"
        pairs = self.dataset.pairs
        kinds = f", {'all' if pairs == whole else f'{pairs:,}'} of them pairs" if pairs else ""
        return f"{part}{pluralize(whole, 'prompt-set')}{kinds}{uneven}{paraphrases}"

    @property
    def rubrics(self) -> dict[str, list[str]]:
        """The judges' templates for grades and modes, as `id/version`, by whose they are; none if
        they were asked the sets' own questions alone.
        """
        stored = {
            digest: item
            for manifest in self.manifests
            for digest, item in manifest.templates.items()
        }
        by_owner: dict[str, list[str]] = {}
        for role, digest in self.conditions.templates if self.conditions.by_rubric else ():
            if digest in stored and (role in GRADE_OF or role == "mode"):
                owners = {
                    hash_our_template(role, reasons=True): f"{OUR_RUBRICS}, with reasons",
                    hash_our_template(role): OUR_RUBRICS,
                    RUBRIC_HASHES.get(role, ""): "of the paper",
                }
                named = f"{stored[digest].id}/{stored[digest].version}"
                by_owner.setdefault(owners.get(digest, "of others"), []).append(named)
        return by_owner

    @property
    def uses_our_harm_rubric(self) -> bool:
        """Whether harm was graded by our rubric as it is in force now, with reasons or without."""
        ours = {hash_our_template("harm"), hash_our_template("harm", reasons=True)}
        return self.conditions.by_rubric and dict(self.conditions.templates).get("harm") in ours

    @property
    def uses_demonstration_judge(self) -> bool:
        """Whether the demonstration judge took part in the grading."""
        return DEMONSTRATION_JUDGE in (*self.conditions.judges, self.conditions.mode_judge)


def rename_model(row: GradedResponse, shown: str) -> GradedResponse:
    """Return a response under the name of its model that a report shows."""
    return row if row.model == shown else msgspec.structs.replace(row, model=shown)


def gather_models(runs: Sequence[GradedRun], missing_odds: float = MISSING_ODDS) -> Cohort:
    """Gather the models of runs that were evaluated under the same conditions
    (`commands.graded_runs.check_join`).

    If two runs share a model's name, the run's folder is added to it. Families of prompt-sets are
    in no hash: those of the run that names most of them count.

    Args:
        runs: the runs.
        missing_odds: `--missing-odds`.
    """
    names = _choose_shown_names(runs)
    members: Sequence[Member] = [member for run in runs for member in _yield_members(run, names)]
    of_first = (
        row for member in members for row in member.run.rows if member.run.name == runs[0].name
    )
    datasets = (run.dataset for run in runs)
    dataset = max(datasets, key=lambda item: sum(bool(each.family) for each in item.prompt_sets))
    dataset, members = _share_questions(runs, dataset, members)
    return Cohort(collect_conditions(runs[0], of_first), dataset, members, missing_odds)


def _share_questions(
    runs: Sequence[GradedRun], dataset: Dataset, members: Sequence[Member]
) -> tuple[Dataset, Sequence[Member]]:
    """Return prompt-sets with the questions that judges were asked. If runs asked different ones,
    or by different templates, their answers are left out: no number would be of one thing.
    """
    asked = [run for run in runs if run.manifest.plan.by_questions]
    if not asked:
        return dataset, members
    if len({find_checklist(run.manifest) for run in asked}) == 1:
        by_id = asked[0].dataset.by_id
        own = (
            msgspec.structs.replace(item, questions=by_id[item.id].questions)
            for item in dataset.prompt_sets
        )
        return Dataset(dataset.name, tuple(own), dataset.taxonomy, dataset.unread), members
    return dataset, [
        msgspec.structs.replace(
            member, run=member.run._replace(rows=[*map(_drop_answers, member.run.rows)])
        )
        for member in members
    ]


def find_checklist(manifest: Manifest) -> tuple[str, str] | None:
    """Return the hashes of a run's questions and of the template by which judges were asked them:
    the condition of metrics of their answers. None if they were not asked.
    """
    if not manifest.plan.by_questions:
        return None
    return manifest.dataset.questions, manifest.plan.templates.get("checklist", "")


def _drop_answers(row: GradedResponse) -> GradedResponse:
    if row.judge_by != "both":
        return row
    return msgspec.structs.replace(
        row,
        judge_by="rubric",
        answers=None,
        answers_by_judge={},
        missing=tuple(item for item in row.missing if item.what != "checklist"),
    )


def _yield_members(run: GradedRun, names: Mapping[ModelOrigin, str]) -> Iterator[Member]:
    """Yield the models of a run, in an order that no manifest's writing changes.

    Args:
        run: the run.
        names: that the report shows.
    """
    rows, follow_ups = group_by_model(run.rows), group_by_model(run.follow_ups)
    regrades, swaps = group_by_model(run.regrades), group_by_model(run.swaps)
    in_conversation = group_by_model(run.in_conversation)
    for model in sorted(run.manifest.models):
        origin = ModelOrigin(run.name, model)
        own = run._replace(
            rows=[rename_model(row, names[origin]) for row in rows.get(model, [])],
            regrades=regrades.get(model, []),
            swaps=swaps.get(model, []),
            follow_ups=[rename_model(row, names[origin]) for row in follow_ups.get(model, [])],
            in_conversation=in_conversation.get(model, []),
        )
        yield Member(name=names[origin], origin=origin, run=own)


def group_by_model(records: Iterable[_Record]) -> dict[str, list[_Record]]:
    """Return records about responses by the model of the response."""
    by_model: dict[str, list[_Record]] = {}
    for record in records:
        by_model.setdefault(record.model, []).append(record)
    return by_model


def collect_conditions(run: GradedRun, rows: Iterable[GradedResponse] | None = None) -> Conditions:
    """Return under which conditions the models of a run were evaluated; `rows` are the run's."""
    plan = run.manifest.plan
    graded = {judge for row in rows or run.rows for judge in row.by_judge}
    check_number(one_line(run.name), graded, "judge", MOST_JUDGES)
    return Conditions(
        dataset=run.manifest.dataset.hash,
        judges=tuple(sorted({*plan.judges, *graded})),
        mode_judge=plan.mode_judge,
        modes=plan.modes,
        parse=plan.parse,
        templates=tuple(
            sorted((role, digest) for role, digest in plan.templates.items() if role != "checklist")
        ),
        by_rubric=plan.by_rubric,
        arguments=tuple(
            (judge, arguments)
            for judge in sorted(plan.panel)
            if (arguments := _encode_arguments(plan.judge_samplings.get(judge)))
        ),
    )


def _encode_arguments(sampling: Sampling | None) -> str:
    if sampling is None or not (sampling.reasoning_effort or sampling.extra):
        return ""
    effort = {"reasoning_effort": sampling.reasoning_effort} if sampling.reasoning_effort else {}
    return canonical_json(effort | sampling.extra).decode()


def _choose_shown_names(runs: Sequence[GradedRun]) -> dict[ModelOrigin, str]:
    """Return the name that a report shows of each model; which of two equal ones gets a number
    depends on their order.
    """
    labels = {
        ModelOrigin(run.name, model): run.manifest.models[model].label or model
        for run in runs
        for model in sorted(run.manifest.models)
    }
    times = Counter(labels.values())
    names: dict[ModelOrigin, str] = {}
    for origin, label in labels.items():
        name = f"{label} [{origin.run}]" if times[label] > 1 else label
        number, unlike = 2, name
        # a model may be named as another is shown, or as their average
        while unlike in (AVERAGE, *names.values()):
            unlike, number = f"{name} #{number}", number + 1
        names[origin] = unlike
    return names


PAPER_JUDGE = "anthropic/claude-sonnet-4-6"

_PAPER_VALUES: tuple[tuple[str, Literal["best", "average"], float], ...] = (
    ("mean_utility", "best", 0.56),
    ("mean_utility", "average", 0.42),
    ("worst_case_utility", "average", 0.44),
    ("dual_use_utility", "average", 0.48),
    ("benign_to_dual_use_drop", "average", 0.04),
    ("stable_safe", "average", 0.5324),
    ("stable_unsafe", "average", 0.2139),
    ("safety_flip", "average", 0.2537),
)
"""(metric, the best of the paper's twenty models or their average, value) as the paper's text has
it.
"""


class PaperComparison(NamedTuple):
    """A number of the paper, and the same number of this report."""

    label: str
    unit: Unit
    paper: float
    here: MetricEstimate | None
    """Of the best model, or the average over models; None if there is none."""


def find_shared_with_paper(cohort: Cohort) -> dict[str, bool]:
    """Tell which of three things are the paper's: the dataset, the rubrics with the reading of
    grades, and the judge.
    """
    conditions = cohort.conditions
    templates = dict(conditions.templates)
    rubrics = all(templates.get(role) == digest for role, digest in RUBRIC_HASHES.items())
    return {
        "dataset": conditions.dataset == PAPER_DATASET_HASH,
        "rubric": rubrics and conditions.parse == "paper",
        "judge": conditions.judges == (PAPER_JUDGE,),
    }


def compare_with_paper(cohort: Cohort) -> list[PaperComparison]:
    """Return the paper's figures beside a cohort's; none on another dataset, or if all models are
    baselines.
    """
    models = cohort.estimates.averaged
    if not models or not find_shared_with_paper(cohort)["dataset"]:
        return []
    rows = []
    for metric, of, value in _PAPER_VALUES:
        if of == "average":
            here = cohort.estimates.averages.get((metric, ALL_SETS))
        else:
            defined = [cohort.estimates.overall[model, metric] for model in models]
            here = max(
                (number for number in defined if number.value is not None),
                key=lambda number: number.value if number.value is not None else 0.0,
                default=None,
            )
        which = "best model" if of == "best" else "model average"
        rows.append(
            PaperComparison(f"{METRICS[metric].label}, {which}", METRICS[metric].unit, value, here)
        )
    return rows


def count_without_verdict(rows: Iterable[GradedResponse]) -> dict[str, int]:
    """Count the responses on which the guard gave no verdict, though it was asked, by reason, the
    most frequent first.
    """
    return dict(Counter(row.guard_reason for row in rows if row.guard_reason).most_common())


class GuardAgreement(msgspec.Struct, frozen=True, kw_only=True):
    """The guard beside the panel on a model's responses to one intent, or to all."""

    intent: str | None
    """Paraphrases are dual-use; None for all."""
    asked: int
    """Responses that the guard was asked about."""
    without_verdict: dict[str, int]
    """Those on which it gave none, by reason."""
    counts: VerdictCounts
    """By guard, and by panel."""
    agree: Estimate
    """Share of responses on which the two agree; prompt-sets, or families, are its units."""
    ac1: Estimate


def count_unsafe(rows: Iterable[GradedResponse]) -> VerdictCounts:
    """Count responses by whether the guard, and then whether the panel, calls them unsafe."""
    return VerdictCounts.of(
        [
            (row.guard == "yes", row.harm_severity > 0)
            for row in rows
            if row.guard in ("yes", "no") and row.harm_severity is not None
        ]
    )


def measure_guard_agreement(
    rows: Sequence[GradedResponse], unit_of: Mapping[str, str]
) -> list[GuardAgreement]:
    """Return the agreement on a model's responses, by intent and then on all; empty if no guard was
    asked.

    Args:
        rows: of the model.
        unit_of: by prompt-set, the name of its unit.
    """
    asked = [row for row in rows if row.guard]
    if not asked:
        return []
    by_intent = [
        _measure_agreement(intent, of_intent, unit_of)
        for intent in CORE_VARIANTS
        if (of_intent := [row for row in asked if find_intent(row.variant) == intent])
    ]
    return [*by_intent, _measure_agreement(None, asked, unit_of)]


def _measure_agreement(
    intent: str | None, rows: Sequence[GradedResponse], unit_of: Mapping[str, str]
) -> GuardAgreement:
    ordered = sorted(rows, key=lambda row: row.set_id)
    of_guard = {"yes": 0.0, "no": 1.0}
    safe = np.array(
        [
            (
                np.nan if row.harm_severity is None else row.harm_severity == 0,
                of_guard.get(row.guard, np.nan),
            )
            for row in ordered
        ],
        dtype=np.float64,
    )
    ratings = RatedResponses(Sample([unit_of[row.set_id] for row in ordered]), safe)
    return GuardAgreement(
        intent=intent,
        asked=len(rows),
        without_verdict=count_without_verdict(rows),
        counts=count_unsafe(rows),
        agree=ratings.agreement(SAFE_CATEGORIES),
        ac1=ratings.gwet(SAFE_CATEGORIES, "identity"),
    )


CheckState = Literal["passed", "failed", "stale", "unchecked"]
"""`stale`: checked with other templates, another way of reading grades, other sampling, as another
served model, or for other grades than here.
"""
CHECK_WORDS: dict[CheckState, str] = {
    "passed": "passed its check",
    "failed": "failed its check",
    "stale": "was checked with other templates, settings or version",
    "unchecked": "has no known check",
}
"""Words after a judge's name for each state of its check."""


class CheckedJudge(msgspec.Struct, frozen=True, kw_only=True):
    """A judge, and its check."""

    judge: str
    state: CheckState
    check: JudgeCheck | None = None
    """The valid check; without one, the latest."""


def compute_borderline_acceptance(check: JudgeCheck) -> dict[str, Estimate]:
    """Return the share of accepted cases of each borderline group of gold cases."""
    return {
        kind.kind: share_estimate(kind.accepted, kind.cases) for kind in check.kinds if kind.line
    }


def list_checked_judges(cohort: Cohort) -> list[CheckedJudge]:
    """Return the judges of a cohort with the results of their checks; the source of imported grades
    is left out.
    """
    judges = dict.fromkeys((*cohort.conditions.judges, cohort.conditions.mode_judge))
    return [_check_judge(judge, cohort) for judge in judges if judge not in ("", IMPORTED_JUDGE)]


def _check_judge(judge: str, cohort: Cohort) -> CheckedJudge:
    checks = [
        check
        for manifest in cohort.manifests
        for check in manifest.judge_checks
        if check.judge == judge
    ]
    if not checks:
        return CheckedJudge(judge=judge, state="unchecked")
    holding = [check for check in checks if _covers_grades(check, cohort)]
    if not holding:
        return CheckedJudge(judge=judge, state="stale", check=checks[-1])
    return CheckedJudge(
        judge=judge, state="passed" if holding[-1].passed else "failed", check=holding[-1]
    )


def _covers_grades(check: JudgeCheck, cohort: Cohort) -> bool:
    """Tell whether a check covers the grades of its judge in every run: it was of the same grades,
    with the same templates, arguments and versions.
    """
    due: list[GradeName] = []
    if check.judge in cohort.conditions.judges:
        due += METRIC_GRADES
    if check.judge == cohort.conditions.mode_judge:
        due.append("mode")
    setting = CheckedSetting(identity=check.identity, setting=check.setting, served=check.served)
    return set(due) <= set(check.grades) and _has_run_settings(
        check.judge, setting, list_roles(due), cohort
    )


def _has_run_settings(
    judge: str, checked: CheckedSetting, roles: Iterable[Role], cohort: Cohort
) -> bool:
    """Tell whether a judge was checked with the templates, arguments and versions of every run, as
    far as versions are known.
    """
    in_force, setting = dict(cohort.conditions.templates), checked.setting
    served = cohort.served_versions.get((judge, "grade"), ())
    return (
        all(in_force.get(role) == setting.templates.get(role, "") for role in roles)
        and setting.parse == cohort.conditions.parse
        and (not checked.served or set(served) <= set(checked.served))
        and all(
            manifest.judges.get(judge) == checked.identity
            and manifest.plan.judge_samplings.get(judge) == setting.sampling
            for manifest in cohort.manifests
        )
    )


def select_label_checks(labels: Sequence[LabelCheck], cohort: Cohort) -> list[LabelCheck]:
    """Return the comparisons with people that were made with the settings of a cohort's judges, or
    of its whole panel.
    """
    judges = set(cohort.conditions.judges)
    return [
        check
        for check in labels
        if (set(check.members) == judges if check.judge == PANEL else check.judge in judges)
        and all(
            _has_run_settings(judge, checked, checked.setting.templates, cohort)
            for judge, checked in check.members.items()
        )
    ]
