"""What results owe to who graded: by judge, between judges, by a judge and itself, without
conflicts of interest, and how the judges did on the anchor cases.

Each table is empty where it has nothing to tell; with one judge that graded once, is unchecked and
in no conflict, all are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from opensafeintent.analysis.groups import CheckedJudge, Group, checked_judges
from opensafeintent.analysis.judges import SHOWN
from opensafeintent.evaluation.judge_check import FailedCase, JudgeCheck
from opensafeintent.hostile import one_line
from opensafeintent.metrics import METRICS, PRIMARY
from opensafeintent.report.table import Column, Table, estimate_columns
from opensafeintent.report.tables.grouped import UNDEFINED, group_notes, lead, lead_of, numbered
from opensafeintent.statistics import mid_p

# By judge
# ------------------------------------------------------------------------------


def by_judge(groups: Sequence[Group]) -> Table:
    """Return the main metrics of each model as each judge has them, and as the panel has."""
    return Table(
        name="judge_metrics",
        title="The same responses by each judge, on average over them, and by the panel",
        section="graders",
        columns=(
            *lead(groups),
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
                    Column(f"{metric}_rank", f"Rank by {METRICS[metric].label}", "count"),
                    Column(f"{metric}_rank", "tests leave open", "ranks"),
                )
            ),
        ),
        rows=[
            (
                *lead_of(groups, index, group.models[place]),
                grader.name,
                *(grader.estimates[metric][place] for metric in SHOWN),
                *(
                    value
                    for metric in PRIMARY
                    for value in (grader.rank(metric, place), grader.rank_interval(metric, place))
                ),
            )
            for index, group in enumerate(groups)
            for place in group.numbers.order
            for grader in group.judges.graders
        ],
        notes=(
            *group_notes(groups),
            (
                "The panel is the lower median of the judges for helpfulness and the upper median"
                " for harm: a response is safe where a majority says so. All other tables show the"
                " panel. judge_average is the mean of each judge's own value: panels of two and of"
                " three differ in how strict they are, averages do not. A rank is the place of the"
                " value; beside it is what the paired tests of every two models leave open (5 %,"
                " all pairs of the metric at once)."
            ),
            UNDEFINED,
        ),
    )


# Between judges
# ------------------------------------------------------------------------------

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
    """Yield the columns of some estimates; of `counted` people are shown how many responses it is
    of.
    """
    for measure, heading in measures.items():
        yield from estimate_columns(
            measure,
            heading,
            style="signed" if heading == "B − A" else "interval",
            headings={"n": "Responses"} if measure == counted else {},
            order=1,
        )


def agreement(groups: Sequence[Group]) -> Table:
    """Return how far every two judges agree, and all of a panel together where there are three or
    more.
    """
    return Table(
        name="judge_agreement",
        title="Agreement between judges",
        section="graders",
        columns=(
            numbered(groups),
            Column("judge_a", "Judge A", "name"),
            Column("judge_b", "Judge B", "name"),
            Column("safe_rate_a", "Safe by A", "share"),
            Column("safe_rate_b", "by B", "share"),
            *_measured(_MEASURES, counted="safe"),
        ),
        rows=[
            (
                index + 1,
                *(found.judges if two else (f"all {len(found.judges)} judges", None)),
                *(found.safe_rates if two else (None, None)),
                *(getattr(found, measure) for measure in _MEASURES),
            )
            for index, group in enumerate(groups)
            for found in group.judges.agreements
            for two in (len(found.judges) == 2,)
        ],
        notes=(
            (
                "On the responses that both were asked about, of all models and wordings. AC1 and"
                " AC2 are Gwet’s coefficients of agreement beyond chance, 1 where all is agreed;"
                " AC2 counts a near miss in part (quadratic weights). B − A is the mean difference"
                " of grades. Judges that agree may be wrong together: agreement is no validity."
            ),
            UNDEFINED,
        ),
    )


# By a judge and itself
# ------------------------------------------------------------------------------


def noise(groups: Sequence[Group]) -> Table:
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
        name="judge_noise",
        title="The judge’s own noise: the same responses graded twice",
        section="graders",
        columns=(
            numbered(groups),
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
                found.responses,
                found.missing,
                *(getattr(found, measure) for measure in measures),
                found.mean_safety_se,
                found.mean_safety_sets,
            )
            for index, group in enumerate(groups)
            for judge, found in group.judges.noise.items()
        ],
        notes=(
            (
                "Every judge was asked again, in the same words and at the same temperature, about"
                " a random sample of responses. Apart by: mean absolute difference of the two"
                " grades. The standard error is what such chance alone adds to a model’s Mean"
                " Safety; it is within the 95 % intervals already, not on top of them. Noise says"
                " nothing of bias: a judge may repeat the same mistake."
            ),
            UNDEFINED,
        ),
    )


# Anchor cases
# ------------------------------------------------------------------------------


def judge_checks(groups: Sequence[Group]) -> Table:
    """Return the accepted anchor cases of every judge that was checked, by kind of case and over
    all.
    """
    checked = [
        (index, item) for index, group in enumerate(groups) for item in checked_judges(group)
    ]
    judges = {item.judge for _, item in checked if item.check is not None}
    return Table(
        name="judge_check",
        title="Judge check: accepted anchor cases by kind",
        section="judges",
        columns=(
            numbered(groups),
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
                accepted / cases,
                mid_p(accepted, cases),
                not_accepted,
            )
            for index, item in checked
            if item.check is not None
            for kind, accepted, cases, not_accepted in _kinds(item.check)
        ],
        notes=(
            *dict.fromkeys(line for _, item in checked if (line := _outcome(item))),
            (
                "Anchor cases are prompts and responses whose acceptable grades are known; a case"
                " is accepted when every grade of the judge is. Behind a group of cases at the line"
                " between two grades stands that line; contested cases, on which careful readers"
                " part, count nowhere else. The interval is mid-P. How many responses of a run are"
                " of a kind, and so what a weakness does to its numbers, only labels of that run"
                " tell."
            ),
        ),
    )


def _kinds(check: JudgeCheck) -> Iterator[tuple[str, int, int, str]]:
    """Yield each kind of anchor case, `all`, and those that count nowhere: how many were accepted,
    of how many, and what was not.
    """
    for kind in check.kinds:
        failed = _told(case for case in check.failed if case.kind == kind.kind)
        yield kind.title, kind.accepted, kind.cases, failed
    yield "all", check.accepted, check.cases, ""
    if (contested := check.contested).cases:
        failed = _told(check.contested_failed)
        yield "contested, not counted", contested.accepted, contested.cases, failed


def _told(cases: Iterable[FailedCase]) -> str:
    return "; ".join(f"{case.id}: {case.told}" for case in cases)


def _outcome(item: CheckedJudge) -> str:
    if item.check is None:
        return ""
    low, high = item.interval
    count = (
        f"{item.check.accepted} of {item.check.cases} cases accepted [{100 * low:.0f},"
        f" {100 * high:.0f} %]"
    )
    how = {
        "passed": f"passed, {count}.",
        "failed": f"failed, {count}: {'; '.join(item.check.reasons)}.",
        "stale": (
            f"{count}, asked with other templates or settings than here: it says nothing of these"
            " grades."
        ),
    }
    at_the_line = item.check.at_the_line
    more = f" {at_the_line.told}" if at_the_line and item.state != "stale" else ""
    return f"{one_line(item.judge, 80)}: {how[item.state]}{more}"


JUDGE_TABLES = (by_judge, agreement, noise, judge_checks)
