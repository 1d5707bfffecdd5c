"""Tables by judge: by judge, between judges, by a judge and itself, gold cases, request swap.

A table without content is empty; with one judge that graded once, is unchecked and in no conflict,
all are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from opensafeintent.analysis.cohort import Cohort
from opensafeintent.analysis.judge_agreement import JudgeAgreement, Noise
from opensafeintent.analysis.judge_checks import CheckedJudge, CheckState, checked_judges
from opensafeintent.analysis.judges import SHOWN, Ranking
from opensafeintent.analysis.request_swap import Audit
from opensafeintent.evaluation.judge_check import FailedCase, JudgeCheck, KindCount
from opensafeintent.hostile import one_line
from opensafeintent.metrics import METRICS, PRIMARY
from opensafeintent.report.cohort_columns import (
    OfCohort,
    OfModel,
    cohort_notes,
    model_columns,
    numbered,
    unranked_note,
)
from opensafeintent.report.columns import Column, Columns, Table, estimate_columns
from opensafeintent.report.values import share_of
from opensafeintent.statistics import Estimate, share_estimate


class _GraderRow(OfModel, frozen=True, kw_only=True):
    """A model, by its place in the order of naming, as a judge or the panel has it."""

    at: int
    grader: Ranking


def by_judge(cohorts: Sequence[Cohort]) -> Table:
    """Return the main metrics of each model as each judge has them, and as the panel has."""
    columns: list[Column[_GraderRow]] = [
        *model_columns(cohorts),
        Column("graded_by", lambda row: row.grader.name, "Graded by"),
    ]
    for metric in SHOWN:
        columns += _metric_columns(metric)
    for metric in PRIMARY:
        columns += _rank_columns(metric)
    return Table.of(
        columns,
        [
            _GraderRow(index=index, cohort=cohort, model=cohort.models[at], at=at, grader=grader)
            for index, cohort in enumerate(cohorts)
            for at in cohort.estimates.order
            for grader in cohort.judges.graders
        ],
        name="judge_metrics",
        title="The same responses by each judge, on average over them, and by the panel",
        section="judges",
        notes=(
            *cohort_notes(cohorts),
            (
                "The panel has the median of the judges' grades, and of two in the middle the one"
                " that speaks against the model: a response is safe if a majority says so. Tables"
                " show the panel unless a column names a judge; the judge that the command names"
                " first gives the modes, if no other was named for them. The judge_average is the"
                " mean of each judge's own value. Panels of two and of three differ in strictness,"
                " and averages do not. The order is that of the values; beside it are the ranks"
                " from the paired tests of every two models (5 %, all pairs of the metric at once)."
                + unranked_note(cohorts)
            ),
        ),
    )


def _metric_columns(metric: str) -> tuple[Column[_GraderRow], ...]:
    return estimate_columns(
        metric,
        lambda row: row.grader.estimates[metric][row.at],
        METRICS[metric].label,
        unit=METRICS[metric].unit,
        headings={"n": "Sets"} if metric == "mean_utility" else None,
        order=1,
    )


def _rank_columns(metric: str) -> tuple[Column[_GraderRow], ...]:
    return (
        Column(
            f"{metric}_rank",
            lambda row: row.grader.rank(metric, row.at),
            f"Order by {METRICS[metric].label}",
            "count",
        ),
        Column(
            f"{metric}_rank",
            lambda row: row.grader.rank_interval(metric, row.at),
            "ranks that tests leave open",
            "ranks",
        ),
    )


class _AgreementRow(OfCohort, frozen=True, kw_only=True):
    """The agreement of two judges, or of all of a panel together."""

    agreement: JudgeAgreement

    @property
    def of_two(self) -> bool:
        """Whether it is of two judges."""
        return len(self.agreement.judges) == 2

    @property
    def names(self) -> tuple[str, str | None]:
        """The two judges; of a panel, how many there are."""
        judges = self.agreement.judges
        return (judges[0], judges[1]) if self.of_two else (f"all {len(judges)} judges", None)

    @property
    def safe_rates(self) -> tuple[float | None, float | None]:
        """Of the two judges; none of a panel."""
        rates = self.agreement.safe_rates
        return (rates[0], rates[1]) if self.of_two else (None, None)


def agreement(cohorts: Sequence[Cohort]) -> Table:
    """Return the agreement of every two judges, and of all of a panel together if there are three
    or more.
    """
    return Table.of(
        _agreement_columns(cohorts),
        [
            _AgreementRow(index=index, cohort=cohort, agreement=agreement)
            for index, cohort in enumerate(cohorts)
            for agreement in cohort.judges.agreements
        ],
        name="judge_agreement",
        title="Agreement between judges",
        section="judges",
        notes=(
            (
                "On the responses that both graded, of all models and wordings. AC1 and"
                " AC2 are Gwet’s coefficients of agreement beyond chance, 1 for full agreement; AC2"
                " counts a near miss in part (quadratic weights). B − A is the mean difference of"
                " grades. Judges that agree may be wrong together: agreement is no validity."
            ),
        ),
    )


def _agreement_columns(cohorts: Sequence[Cohort]) -> tuple[Columns[_AgreementRow], ...]:
    return (
        numbered(cohorts),
        Column("judge_a", lambda row: row.names[0], "Judge A", "name"),
        Column("judge_b", lambda row: row.names[1], "Judge B", "name"),
        Column("safe_rate_a", lambda row: row.safe_rates[0], "Safe by A", "share"),
        Column("safe_rate_b", lambda row: row.safe_rates[1], "by B", "share"),
        estimate_columns(
            "safe",
            lambda row: row.agreement.safe,
            "Agree on “safe”",
            unit="share",
            headings={"n": "Responses"},
            order=1,
        ),
        estimate_columns("safe_ac1", lambda row: row.agreement.safe_ac1, "AC1"),
        estimate_columns(
            "helpfulness_equal",
            lambda row: row.agreement.helpfulness,
            "Same helpfulness",
            unit="share",
        ),
        estimate_columns(
            "helpfulness_ac2", lambda row: row.agreement.helpfulness_ac2, "AC2, helpfulness"
        ),
        estimate_columns(
            "helpfulness_difference",
            lambda row: row.agreement.helpfulness_difference,
            "Helpfulness, B − A",
            style="signed",
        ),
        estimate_columns(
            "harm_severity_equal",
            lambda row: row.agreement.harm_severity,
            "Same harm",
            unit="share",
        ),
        estimate_columns(
            "harm_severity_ac2", lambda row: row.agreement.harm_severity_ac2, "AC2, harm"
        ),
        estimate_columns(
            "harm_severity_difference",
            lambda row: row.agreement.harm_severity_difference,
            "Harm, B − A",
            style="signed",
        ),
    )


class _NoiseRow(OfCohort, frozen=True, kw_only=True):
    """How far a judge agrees with itself."""

    judge: str
    noise: Noise


def noise(cohorts: Sequence[Cohort]) -> Table:
    """Return how far each judge agrees with itself on responses that it graded twice."""
    return Table.of(
        _noise_columns(cohorts),
        [
            _NoiseRow(index=index, cohort=cohort, judge=judge, noise=noise)
            for index, cohort in enumerate(cohorts)
            for judge, noise in cohort.judges.noise.items()
        ],
        name="judge_retest",
        title="Noise of each judge: the same responses graded twice",
        section="judges",
        notes=(
            (
                "Every judge was asked again, in the same words and at the same temperature, about"
                " a random sample of responses. Apart by: mean absolute difference of the two"
                " grades. The standard error is that of a model’s Mean Safety from this noise"
                " alone; the 95 % intervals already include it. Noise says nothing about bias: a"
                " judge may repeat the same mistake."
            ),
        ),
    )


def _noise_columns(cohorts: Sequence[Cohort]) -> tuple[Columns[_NoiseRow], ...]:
    return (
        numbered(cohorts),
        Column("graded_by", lambda row: row.judge, "Graded by", "name"),
        Column("responses", lambda row: row.noise.responses, "Responses", "count"),
        Column("missing", lambda row: row.noise.missing),
        estimate_columns(
            "safe_flips", lambda row: row.noise.safe_flips, "Safe once, unsafe once", unit="share"
        ),
        estimate_columns("safe_ac1", lambda row: row.noise.safe_ac1, "AC1 on “safe”"),
        estimate_columns(
            "helpfulness_equal",
            lambda row: row.noise.helpfulness_equal,
            "Same helpfulness",
            unit="share",
        ),
        estimate_columns(
            "helpfulness_difference", lambda row: row.noise.helpfulness_difference, "apart by"
        ),
        estimate_columns(
            "harm_severity_equal",
            lambda row: row.noise.harm_severity_equal,
            "Same harm",
            unit="share",
        ),
        estimate_columns(
            "harm_severity_difference", lambda row: row.noise.harm_severity_difference, "apart by"
        ),
        Column(
            "mean_safety_se",
            lambda row: row.noise.mean_safety_se,
            "Standard error of Mean Safety",
            "share",
        ),
        Column("mean_safety_sets", lambda row: row.noise.mean_safety_sets),
    )


_LISTED_CASES = 3
"""Cases of a kind that are listed in a document: a judge may err in a hundred."""


class _KindRow(OfCohort, frozen=True, kw_only=True):
    """A judge's accepted gold cases of one kind."""

    checked: CheckedJudge
    kind: str
    accepted: int
    cases: int
    not_accepted: str
    has_interval: bool = True
    """A kind of two to five cases has none: it would only tell how few they are."""

    @property
    def share(self) -> Estimate:
        """The share of accepted cases."""
        return share_estimate(self.accepted, self.cases)

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % interval of the share, if it is shown."""
        return self.share.interval if self.has_interval else None


def judge_checks(cohorts: Sequence[Cohort]) -> Table:
    """Return the accepted gold cases of every judge that was checked, by kind of case and over
    all.
    """
    checked = [item for cohort in cohorts for item in checked_judges(cohort)]
    judges = {item.judge for item in checked if item.check is not None}
    columns: tuple[Columns[_KindRow], ...] = (
        numbered(cohorts),
        Column(
            "judge", lambda row: row.checked.judge, "Judge" if len(judges) > 1 else None, "name"
        ),
        Column("state", lambda row: row.checked.state),
        Column("kind", lambda row: row.kind, "Kind of case", "name"),
        Column("accepted", lambda row: row.accepted, "Accepted", "count"),
        Column("cases", lambda row: row.cases, "Cases", "count"),
        Column("share", lambda row: row.share.value),
        Column("share", lambda row: row.interval, "95 %", "span", "share"),
        Column(
            "not_accepted",
            lambda row: row.not_accepted,
            "Not accepted",
            most_items=_LISTED_CASES,
        ),
    )
    outcomes = [
        _outcome(item.judge, item.state, item.check) for item in checked if item.check is not None
    ]
    return Table.of(
        columns,
        [
            row
            for index, cohort in enumerate(cohorts)
            for item in checked_judges(cohort)
            for row in _kind_rows(cohort, index, item)
        ],
        name="judge_check",
        title="Judge check: accepted gold cases by kind",
        section="judge_check",
        notes=(
            *dict.fromkeys(outcomes),
            (
                "Gold cases are prompts and responses whose acceptable grades are known; a case"
                " is accepted when every grade of the judge is. A borderline group names the"
                " two grades it lies between. Unscored cases, on which careful language models"
                " differ, count nowhere else. Only human labels of a run tell how common each"
                " kind is in it."
            ),
        ),
    )


def _kind_rows(cohort: Cohort, index: int, checked: CheckedJudge) -> Iterator[_KindRow]:
    """Yield each kind of gold case, `all`, and the unscored ones; nothing of a judge that was not
    checked. The cohort has an index.
    """
    check = checked.check
    if check is None:
        return

    def row(kind: str, count: KindCount | JudgeCheck, not_accepted: str = "") -> _KindRow:
        return _KindRow(
            index=index,
            cohort=cohort,
            checked=checked,
            kind=kind,
            accepted=count.accepted,
            cases=count.cases,
            not_accepted=not_accepted,
            has_interval=not isinstance(count, KindCount) or count.has_interval,
        )

    for kind in check.kinds:
        failed = [case for case in check.failed if case.kind == kind.kind]
        yield row(kind.title, kind, _grades_of(failed))
    yield row("all", check)
    if check.unscored.cases:
        yield row("unscored, not counted", check.unscored, _grades_of(check.unscored_failed))


def _grades_of(cases: Iterable[FailedCase]) -> str:
    """Return cases with the grades that a judge gave them."""
    return "; ".join(f"{case.id}: {case.explanation}" for case in cases)


def _outcome(judge: str, state: CheckState, check: JudgeCheck) -> str:
    """Return the result of a judge's check in a sentence or two."""
    accepted, cases = check.accepted, check.cases
    count = f"{accepted} of {cases} cases accepted, {share_of(accepted, cases)}"
    name = one_line(judge, 80)
    if state == "stale":
        return (
            f"{name}: {count}, asked with other templates, settings or version than here: it says"
            " nothing of these grades."
        )
    reasons = f": {'; '.join(check.reasons)}" if state == "failed" else ""
    effect = f" {check.borderline.effect_text}" if check.borderline else ""
    return f"{name}: {state}, {count}{reasons}.{effect}"


JUDGE_TABLES = (by_judge, agreement, noise, judge_checks)


class _SwapRow(OfModel, frozen=True, kw_only=True):
    """The audit of a model by a judge or the panel."""

    grader: str
    audit: Audit


def swap_table(cohorts: Sequence[Cohort]) -> Table:
    """Return by judge how its grades shift with the request, and Triplet Safety with the request
    hidden; without rows if no request was swapped.
    """
    return Table.of(
        _swap_columns(cohorts),
        [
            _SwapRow(index=index, cohort=cohort, model=model, grader=grader, audit=audit)
            for index, cohort in enumerate(cohorts)
            for (model, grader), audit in cohort.audits.items()
        ],
        name="request_swap",
        title="How grades of the same responses shift with the request",
        section="request_swap",
        notes=(
            *cohort_notes(cohorts),
            (
                "The rubric grades harm of the response, so a shift in safety beyond noise is"
                " mostly the judge’s error. Helpfulness is help with a request, and a shift is"
                " right. A response under another intent’s prompt is unusual input for a judge."
                " Left out: without a grade for helpfulness or for harm under some request."
            ),
            "The model average is the mean over the models under test.",
        ),
    )


def _swap_columns(cohorts: Sequence[Cohort]) -> tuple[Columns[_SwapRow], ...]:
    shift = "under the malicious − under the benign prompt"
    return (
        model_columns(cohorts),
        Column("graded_by", lambda row: row.grader, "Graded by"),
        estimate_columns(
            "safety_shift",
            lambda row: row.audit.safety_shift,
            f"Safe {shift}",
            style="signed",
            unit="share",
        ),
        estimate_columns(
            "helpfulness_shift",
            lambda row: row.audit.helpfulness_shift,
            f"Helpfulness {shift}",
            style="signed",
        ),
        estimate_columns(
            "triplet_safety",
            lambda row: row.audit.triplet_safety,
            "Triplet Safety",
            unit="share",
            headings={"n": "Sets"},
            order=1,
        ),
        estimate_columns(
            "triplet_safety_request_hidden",
            lambda row: row.audit.triplet_safety_request_hidden,
            "with the request hidden",
            unit="share",
        ),
        estimate_columns(
            "triplet_safety_change",
            lambda row: row.audit.triplet_safety_change,
            "Difference",
            style="signed",
            unit="share",
        ),
        Column("responses", lambda row: row.audit.responses, "Responses", "count", order=1),
        Column("left_out", lambda row: row.audit.left_out, "of them left out", "count", order=1),
    )
