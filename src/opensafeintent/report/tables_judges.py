"""Tables by judge: by judge, between judges, by a judge and itself, gold cases, request swap.

A table without content is empty; with one judge that graded once, is unchecked and in no conflict,
all are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from opensafeintent.analysis.cohort import Cohort
from opensafeintent.analysis.judge_checks import CheckedJudge, checked_judges
from opensafeintent.analysis.judges import SHOWN
from opensafeintent.evaluation.judge_check import FailedCase, JudgeCheck
from opensafeintent.hostile import one_line
from opensafeintent.metrics import METRICS, PRIMARY
from opensafeintent.report.cohort_columns import UNDEFINED, cohort_notes, lead, lead_of, numbered
from opensafeintent.report.columns import Column, Table, estimate_columns
from opensafeintent.report.values import share_of
from opensafeintent.statistics import share_estimate
from opensafeintent.taxonomy import SCALES


def by_judge(cohorts: Sequence[Cohort]) -> Table:
    """Return the main metrics of each model as each judge has them, and as the panel has."""
    return Table(
        name="judge_metrics",
        title="The same responses by each judge, on average over them, and by the panel",
        section="judges",
        columns=(
            *lead(cohorts),
            Column("graded_by", "Graded by"),
            *(
                column
                for metric in SHOWN
                for column in estimate_columns(
                    metric,
                    METRICS[metric].label,
                    headings={"n": "Sets"} if metric == "mean_utility" else None,
                    order=1,
                )
            ),
            *(
                column
                for metric in PRIMARY
                for column in (
                    Column(f"{metric}_rank", f"Order by {METRICS[metric].label}", "count"),
                    Column(f"{metric}_rank", "ranks that tests leave open", "ranks"),
                )
            ),
        ),
        rows=[
            (
                *lead_of(cohorts, index, cohort.models[at]),
                grader.name,
                *(grader.estimates[metric][at] for metric in SHOWN),
                *(
                    value
                    for metric in PRIMARY
                    for value in (grader.rank(metric, at), grader.rank_interval(metric, at))
                ),
            )
            for index, cohort in enumerate(cohorts)
            for at in cohort.estimates.order
            for grader in cohort.judges.graders
        ],
        notes=(
            *cohort_notes(cohorts),
            (
                "The panel is the lower median of the judges for helpfulness and the upper median"
                " for harm: a response is safe if a majority says so. Tables show the panel unless"
                " a column names a judge; the first judge gives the modes. The judge_average is the"
                " mean of each judge's own value. Panels of two and of three differ in strictness,"
                " and averages do not. The order is that of the values; beside it are the ranks"
                " from the paired tests of every two models (5 %, all pairs of the metric at once)."
            ),
            UNDEFINED,
        ),
    )


_MEASURES = {
    "safe": "Agree on “safe”",
    "safe_ac1": "AC1",
    "helpfulness": "Same helpfulness",
    "helpfulness_ac2": "AC2",
    "helpfulness_difference": "B − A",
    "harm_severity": "Same harm",
    "harm_severity_ac2": "AC2",
    "harm_severity_difference": "B − A",
}


def _measured(measures: Mapping[str, str], counted: str = "") -> Iterator[Column]:
    """Yield the columns of some estimates; of `counted`, people also see the number."""
    for measure, heading in measures.items():
        yield from estimate_columns(
            f"{measure}_equal" if measure in SCALES else measure,
            heading,
            style="signed" if heading == "B − A" else "interval",
            headings={"n": "Responses"} if measure == counted else {},
            order=1,
        )


def agreement(cohorts: Sequence[Cohort]) -> Table:
    """Return the agreement of every two judges, and of all of a panel together if there are three
    or more.
    """
    return Table(
        name="judge_agreement",
        title="Agreement between judges",
        section="judges",
        columns=(
            numbered(cohorts),
            Column("judge_a", "Judge A", "name"),
            Column("judge_b", "Judge B", "name"),
            Column("safe_rate_a", "Safe by A", "share"),
            Column("safe_rate_b", "by B", "share"),
            *_measured(_MEASURES, counted="safe"),
        ),
        rows=[
            (
                index + 1,
                *(result.judges if two else (f"all {len(result.judges)} judges", None)),
                *(result.safe_rates if two else (None, None)),
                *(getattr(result, measure) for measure in _MEASURES),
            )
            for index, cohort in enumerate(cohorts)
            for result in cohort.judges.agreements
            for two in (len(result.judges) == 2,)
        ],
        notes=(
            (
                "On the responses that both graded, of all models and wordings. AC1 and"
                " AC2 are Gwet’s coefficients of agreement beyond chance, 1 for full agreement; AC2"
                " counts a near miss in part (quadratic weights). B − A is the mean difference of"
                " grades. Judges that agree may be wrong together: agreement is no validity."
            ),
            UNDEFINED,
        ),
    )


def noise(cohorts: Sequence[Cohort]) -> Table:
    """Return how far each judge agrees with itself on responses that it graded twice."""
    measures = {
        "safe_flips": "Safe once, unsafe once",
        "safe_ac1": "AC1 on “safe”",
        "helpfulness_equal": "Same helpfulness",
        "helpfulness_difference": "apart by",
        "harm_severity_equal": "Same harm",
        "harm_severity_difference": "apart by",
    }
    return Table(
        name="judge_retest",
        title="Noise of each judge: the same responses graded twice",
        section="judges",
        columns=(
            numbered(cohorts),
            Column("graded_by", "Graded by", "name"),
            Column("responses", "Responses", "count"),
            Column("missing"),
            *_measured(measures),
            Column("mean_safety_se", "Standard error of Mean Safety", "share"),
            Column("mean_safety_sets"),
        ),
        rows=[
            (
                index + 1,
                judge,
                result.responses,
                result.missing,
                *(getattr(result, measure) for measure in measures),
                result.mean_safety_se,
                result.mean_safety_sets,
            )
            for index, cohort in enumerate(cohorts)
            for judge, result in cohort.judges.noise.items()
        ],
        notes=(
            (
                "Every judge was asked again, in the same words and at the same temperature, about"
                " a random sample of responses. Apart by: mean absolute difference of the two"
                " grades. The standard error is that of a model’s Mean Safety from this noise"
                " alone; the 95 % intervals already include it. Noise says nothing about bias: a"
                " judge may repeat the same mistake."
            ),
            UNDEFINED,
        ),
    )


def judge_checks(cohorts: Sequence[Cohort]) -> Table:
    """Return the accepted gold cases of every judge that was checked, by kind of case and over
    all.
    """
    checked = [
        (index, item) for index, cohort in enumerate(cohorts) for item in checked_judges(cohort)
    ]
    judges = {item.judge for _, item in checked if item.check is not None}
    return Table(
        name="judge_check",
        title="Judge check: accepted gold cases by kind",
        section="judge_check",
        columns=(
            numbered(cohorts),
            Column("judge", "Judge" if len(judges) > 1 else None, "name"),
            Column("state"),
            Column("kind", "Kind of case", "name"),
            Column("accepted", "Accepted", "count"),
            Column("cases", "Cases", "count"),
            Column("share"),
            Column("share", "95 %", "span"),
            Column("not_accepted", "Not accepted"),
        ),
        rows=[
            (
                index + 1,
                item.judge,
                item.state,
                kind,
                accepted,
                cases,
                share.value,
                share.interval,
                not_accepted,
            )
            for index, item in checked
            if item.check is not None
            for kind, accepted, cases, not_accepted in _kinds(item.check)
            for share in (share_estimate(accepted, cases),)
        ],
        notes=(
            *dict.fromkeys(line for _, item in checked if (line := _outcome(item))),
            (
                "Gold cases are prompts and responses whose acceptable grades are known; a case"
                " is accepted when every grade of the judge is. A borderline group names the"
                " two grades it lies between. Unscored cases, on which careful language models"
                " differ, count nowhere else. Only human labels of a run tell how common each"
                " kind is in it."
            ),
        ),
    )


def _kinds(check: JudgeCheck) -> Iterator[tuple[str, int, int, str]]:
    """Yield each kind of gold case, `all`, and the unscored ones: the number accepted, the total,
    and the cases not accepted.
    """
    for kind in check.kinds:
        failed = _told(case for case in check.failed if case.kind == kind.kind)
        yield kind.title, kind.accepted, kind.cases, failed
    yield "all", check.accepted, check.cases, ""
    if (unscored := check.unscored).cases:
        failed = _told(check.unscored_failed)
        yield "unscored, not counted", unscored.accepted, unscored.cases, failed


def _told(cases: Iterable[FailedCase]) -> str:
    return "; ".join(f"{case.id}: {case.explanation}" for case in cases)


def _outcome(item: CheckedJudge) -> str:
    if item.check is None:
        return ""
    accepted, cases = item.check.accepted, item.check.cases
    count = f"{accepted} of {cases} cases accepted, {share_of(accepted, cases)}"
    how = {
        "passed": f"passed, {count}.",
        "failed": f"failed, {count}: {'; '.join(item.check.reasons)}.",
        "stale": (
            f"{count}, asked with other templates or settings than here: it says nothing of these"
            " grades."
        ),
    }
    borderline = item.check.borderline
    more = f" {borderline.effect_text}" if borderline and item.state != "stale" else ""
    return f"{one_line(item.judge, 80)}: {how[item.state]}{more}"


JUDGE_TABLES = (by_judge, agreement, noise, judge_checks)


def swap_table(cohorts: Sequence[Cohort]) -> Table:
    """Return by judge how its grades shift with the request, and Triplet Safety with the request
    hidden.
    """
    shift = "under the malicious − under the benign prompt"
    return Table(
        name="request_swap",
        title="How grades of the same responses shift with the request",
        section="request_swap",
        columns=(
            *lead(cohorts),
            Column("graded_by", "Graded by"),
            *estimate_columns("safety_shift", f"Safe {shift}", style="signed"),
            *estimate_columns("helpfulness_shift", f"Helpfulness {shift}", style="signed"),
            *estimate_columns("triplet_safety", "Triplet Safety", headings={"n": "Sets"}, order=1),
            *estimate_columns("triplet_safety_request_hidden", "with the request hidden"),
            *estimate_columns("triplet_safety_change", "Difference", style="signed"),
            Column("responses", "Responses", "count", order=1),
            Column("left_out", "of them left out", "count", order=1),
        ),
        rows=[
            (
                *lead_of(cohorts, index, model),
                grader,
                audit.safety_shift,
                audit.helpfulness_shift,
                audit.triplet_safety,
                audit.triplet_safety_request_hidden,
                audit.triplet_safety_change,
                audit.responses,
                audit.left_out,
            )
            for index, cohort in enumerate(cohorts)
            for (model, grader), audit in cohort.audits.items()
        ],
        notes=(
            *cohort_notes(cohorts),
            (
                "The rubric grades harm of the response, so a shift in safety beyond noise is"
                " mostly the judge’s error. Helpfulness is help with a request, and a shift is"
                " right. A response under another intent’s prompt is unusual input for a judge."
                " Left out: without a grade for helpfulness or for harm under some request."
            ),
            "The model average is the mean over the models under test.",
            UNDEFINED,
        ),
    )
