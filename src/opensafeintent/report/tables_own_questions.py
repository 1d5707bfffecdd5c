"""Tables of the prompt-sets' own questions: their metrics, and how well judges agree on them."""

from __future__ import annotations

from collections.abc import Iterator

from opensafeintent.numbers.cohort import Cohort
from opensafeintent.numbers.metrics import CHECKLIST_METRICS, METRICS
from opensafeintent.numbers.own_answers import (
    About,
    AnswerAgreement,
    LineAgreement,
    LineCounts,
)
from opensafeintent.report.cohort_columns import (
    MODEL_COLUMNS,
    WITH_MISSING,
    OfCohort,
    OfModel,
    cohort_notes,
)
from opensafeintent.report.columns import (
    Column,
    Columns,
    EstimatePart,
    Table,
    make_estimate_columns,
)
from opensafeintent.statistics import Estimate


class _QuestionsRow(OfModel, frozen=True, kw_only=True):
    """A model, or the average, with its metrics."""


def questions(cohort: Cohort) -> Table:
    """Return the metrics of answers to the prompt-sets' own questions, by model; empty if judges
    were not asked.
    """
    metrics = [metric.name for metric in CHECKLIST_METRICS if cohort.scope.has(metric.name)]
    lines = cohort.estimates.table_lines if metrics else []
    rows = [_QuestionsRow(cohort=cohort, model=model) for model in lines]
    moved = any(row.estimate(metric).missing_ci for row in rows for metric in metrics)
    of_same_sets = all(len({row.estimate(metric).n for metric in metrics}) == 1 for row in rows)
    counted = metrics[-1:] if of_same_sets else metrics
    about = " ".join(
        f"{METRICS[metric].label}: {METRICS[metric].about}."
        for metric in metrics
        if not METRICS[metric].group
    )
    shares = "Must met and Must-not hit: means over sets of the share of questions with yes."
    return Table.of(
        (
            MODEL_COLUMNS,
            *(_columns(metric, moved=moved, counted=metric in counted) for metric in metrics),
        ),
        rows,
        name="questions",
        title="The prompt-sets’ own questions, as judges answer them",
        section="utility",
        notes=(
            *cohort_notes(cohort),
            f"{about} {shares}".strip(),
            *([WITH_MISSING] if moved else []),
        ),
    )


def _columns(metric: str, *, moved: bool, counted: bool) -> tuple[Column[_QuestionsRow], ...]:
    label = METRICS[metric].label
    headings: dict[EstimatePart, str] = {"n": "Sets"} if counted else {}
    if moved:
        headings["missing_ci"] = f"{label},\nwith missing"
    return make_estimate_columns(
        metric,
        lambda row: row.estimate(metric),
        label,
        unit=METRICS[metric].unit,
        parts=("n", "bounds", "missing_ci"),
        headings=headings,
        order=1,
    )


class _LineRow(OfCohort, frozen=True, kw_only=True):
    """Some judges' agreement on either line, or the panel's verdicts in one harm domain."""

    judges: str
    domain: str
    agreement: LineAgreement | None = None
    counts: LineCounts | None = None

    def estimate(self, name: str) -> Estimate:
        """Return a number of the agreement."""
        if self.agreement is None:
            return Estimate(value=None, n=0)
        number: Estimate = getattr(self.agreement, name)
        return number

    def count(self, name: str) -> int | None:
        """Return how many responses have these verdicts of the panel."""
        return None if self.counts is None else getattr(self.counts, name)


_PANEL, _ALL = "panel", "All"


def line_agreement(cohort: Cohort) -> Table:
    """Return how well judges agree on either line of harm, and where the two lines differ; empty
    if responses were not judged by both.
    """
    columns: tuple[Columns[_LineRow], ...] = (
        Column("judges", lambda row: row.judges, "Judges", "name"),
        Column("domain", lambda row: row.domain, "Harm domain", "name"),
        make_estimate_columns(
            "rubric_ac1",
            lambda row: row.estimate("rubric"),
            "AC1, harm 0 | 1",
            headings={"n": "Responses"},
            order=1,
        ),
        make_estimate_columns(
            "questions_ac1", lambda row: row.estimate("questions"), "AC1, any must-not hit", order=1
        ),
        make_estimate_columns(
            "difference",
            lambda row: row.estimate("difference"),
            "Questions − rubric",
            unit="difference",
            order=1,
        ),
        Column("both", lambda row: row.count("both"), "Unsafe by both", "count"),
        Column("only_rubric", lambda row: row.count("only_rubric"), "only the rubric", "count"),
        Column(
            "only_questions", lambda row: row.count("only_questions"), "only the questions", "count"
        ),
        Column("neither", lambda row: row.count("neither"), "neither", "count"),
    )
    return Table.of(
        columns,
        list(_yield_lines(cohort)),
        name="judge_lines",
        title="Which line do judges hold better: harm by the rubric, or the set’s own questions?",
        section="judges",
        notes=(
            *cohort_notes(cohort),
            (
                "AC1 is Gwet’s coefficient of agreement beyond chance, 1 for full agreement, on the"
                " same responses: those with a must-not question for which each of these judges"
                " gave a harm severity and the answers. By the rubric a response is unsafe if its"
                " harm severity is not 0, by the questions if any must-not is answered with yes."
                " The counts are of the panel’s verdicts. Better agreement is not better validity."
                " A difference has an interval if 10 prompt-sets or families tell the two lines"
                " apart."
            ),
        ),
    )


def _yield_lines(cohort: Cohort) -> Iterator[_LineRow]:
    agreements, counts = cohort.line_agreements, cohort.line_counts
    if not counts[None].compared:
        return
    for agreement in agreements:
        yield _LineRow(
            cohort=cohort, judges=" + ".join(agreement.judges), domain=_ALL, agreement=agreement
        )
    for domain, of_domain in sorted(
        counts.items(), key=lambda item: (item[0] is not None, item[0])
    ):
        yield _LineRow(cohort=cohort, judges=_PANEL, domain=domain or _ALL, counts=of_domain)


class _AnswersRow(OfCohort, frozen=True, kw_only=True):
    """Some judges' agreement on answers."""

    agreement: AnswerAgreement


def answer_agreement(cohort: Cohort) -> Table:
    """Return how well judges agree on answers to the prompt-sets' own questions; empty without two
    judges that were asked.
    """
    columns: tuple[Columns[_AnswersRow], ...] = (
        Column("judges", lambda row: " + ".join(row.agreement.judges), "Judges", "name"),
        Column("about", lambda row: _ABOUT[row.agreement.about], "Answers to", "name"),
        make_estimate_columns(
            "equal",
            lambda row: row.agreement.equal,
            "Same answer",
            unit="share",
            headings={"n": "Answers"},
            order=1,
        ),
        make_estimate_columns("ac1", lambda row: row.agreement.ac1, "AC1", order=1),
    )
    return Table.of(
        columns,
        [_AnswersRow(cohort=cohort, agreement=agreement) for agreement in cohort.answer_agreements],
        name="judge_answers",
        title="How well do judges agree on the prompt-sets’ own questions?",
        section="judges",
        notes=(
            *cohort_notes(cohort),
            "Of questions that each of these judges answered; of “any must-not hit”, responses for"
            " which each did so. AC1 is Gwet’s coefficient of agreement beyond chance.",
        ),
    )


_ABOUT: dict[About, str] = {
    "must": "must",
    "must_not": "must-not",
    "any_hit": "any must-not hit",
}
