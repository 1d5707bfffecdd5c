"""What people say of prompt-sets and of the judge: Table 3, Table 7, and what stands behind
them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Literal, NamedTuple

from opensafeintent.annotation.judging import AnnotatorGrades, Dimension, JudgeStudy
from opensafeintent.annotation.quality import Consistency, Quality
from opensafeintent.report.table import Column, Get, Table, estimate_columns
from opensafeintent.report.tables.grouped import UNDEFINED

QUESTION_NAMES = {
    "domain_right": "Harm domain right",
    "type_right": "Task type right",
    "sounds_human": "Sounds human",
    "same_topic": "Same topic",
    "benign_is_benign": "Benign is benign",
    "malicious_is_malicious": "Malicious is malicious",
    "dual_use_has_both": "Dual-use has both uses",
    "overall_quality": "Overall quality good",
}
DIMENSION_NAMES = {"helpfulness": "Helpfulness (1–4)", "harm_severity": "Harm severity (0–3)"}

_WEIGHTED = "Weighted by one over the probability of being drawn; counts are of the sample itself."


def agreement_tables(
    quality: Quality | None, study: JudgeStudy | None, consistency: Sequence[Consistency]
) -> list[Table]:
    """Return every table that the labels fill."""
    tables = []
    if quality is not None:
        tables += [_table_3(quality), _to_drop(quality)]
    if study is not None:
        if study.judges:
            tables += [_table_7(study), _safe_calls(study)]
            tables += [_confusion(study, name) for name in DIMENSION_NAMES]
        tables += [_humans(study), _annotators(study)]
    if consistency:
        tables.append(_consistency(consistency))
    return tables


def _estimates(headings: Mapping[str, str]) -> Iterable[Column]:
    """Yield the columns of estimates of a record, with n and method; differences are signed."""
    for name, heading in headings.items():
        style: Literal["signed", "interval"] = (
            "signed" if name in ("bias", "excess") else "interval"
        )
        yield from estimate_columns(name, heading, style=style, parts=("n", "method"))


def _table_3(quality: Quality) -> Table:
    return Table(
        name="table_3_quality",
        title="Table 3. Quality of the dataset as people judge it",
        columns=(
            Column("question"),
            Column("asked", "Question", "name", lambda line: QUESTION_NAMES[line.question]),
            Column("yes", style="count"),
            Column("no", style="count"),
            Column("unsure", "Unsure", "count", order=1),
            Column("blank", "Blank", "count", order=1),
            Column("sets_twice", style="count"),
            *_estimates({"yes_rate": "Mean yes rate", "ac1": "Gwet's AC1"}),
            *_estimates({"percent_agreement": "Agreement", "alpha": "Krippendorff's alpha"}),
            Column("ac1_se", "SE", "number", attrgetter("ac1.se")),
        ),
        rows=quality.questions,
        notes=(
            (
                f"{_people(quality.annotators)}; {quality.sets:,} prompt-sets. Unsure and blank are"
                " not no: they are counted, and left out of every rate. Agreement is the share of"
                " agreeing pairs of annotators. Alpha is low wherever nearly all answers are the"
                " same, however well people agree; AC1 is not."
            ),
            UNDEFINED,
        ),
    )


def _people(annotators: dict[str, int]) -> str:
    return (
        f"{len(annotators)} annotators"
        if len(annotators) != 1
        else "One annotator: agreement between people is undefined"
    )


def _to_drop(quality: Quality) -> Table:
    return Table(
        name="to_drop",
        title="Prompt-sets to drop: every annotator who answered marks their overall quality poor",
        columns=(
            Column("id", "Prompt-set", "name"),
            Column("poor", "Annotators who answered", "count"),
            Column("annotators", "Annotators who returned it", "count"),
        ),
        rows=quality.drop,
    )


def _notes(study: JudgeStudy, *notes: str) -> tuple[str, ...]:
    return (*notes, *([_WEIGHTED] if study.weighted else []), UNDEFINED)


def _table_7(study: JudgeStudy) -> Table:
    return Table(
        name="table_7_judges",
        title="Table 7. Judges against people",
        columns=(
            Column("judge", "Judge", "name"),
            Column("dimension"),
            Column("scale", "Grade", get=lambda line: DIMENSION_NAMES[line.dimension]),
            Column("items", "Responses", "count", order=1),
            Column("missing"),
            *_estimates(
                {
                    "mae": "Judge MAE",
                    "leave_one_out": "Leave-one-human-out MAE",
                    "fair": "Judge MAE, same humans",
                }
            ),
            *_estimates(
                {
                    "excess": "Judge minus human",
                    "bias": "Signed bias",
                    "ac2": "AC2",
                    "exact": "Same grade",
                }
            ),
        ),
        rows=study.judges,
        notes=_notes(
            study,
            f"{_people(study.annotators)}; {study.items:,} responses. Judge MAE is against the mean"
            " of all people; leave-one-human-out is each person against the mean of the others;"
            " same humans is the judge against those same means, averaged over who is left out,"
            " and judge minus human the difference of the two: below 0 the judge is nearer to the"
            " others than a person is. Bias is judge minus mean human. AC2 (quadratic weights) and"
            " same grade are against the human median: lower for helpfulness, upper for harm.",
        ),
    )


def _safe_calls(study: JudgeStudy) -> Table:
    return Table(
        name="safe_calls",
        title="How far a judge can be trusted on 'safe'",
        columns=(
            Column("judge", "Judge", "name"),
            Column("intent", "Intent"),
            Column(
                "safe_judged_safe", "Safe, judged safe", "count", attrgetter("safe_safe"), order=1
            ),
            Column(
                "safe_judged_unsafe",
                "Safe, judged unsafe",
                "count",
                attrgetter("safe_unsafe"),
                order=1,
            ),
            Column(
                "unsafe_judged_safe",
                "Unsafe, judged safe",
                "count",
                attrgetter("unsafe_safe"),
                order=1,
            ),
            Column(
                "unsafe_judged_unsafe",
                "Unsafe, judged unsafe",
                "count",
                attrgetter("unsafe_unsafe"),
                order=1,
            ),
            *_estimates({"sensitivity": "Sensitivity", "specificity": "Specificity"}),
        ),
        rows=study.safe,
        notes=_notes(
            study,
            "Sensitivity: of the responses that are safe for people, the share that the judge calls"
            " safe. Specificity: of the unsafe ones, the share that it calls unsafe. People decide"
            " by majority, a tie being unsafe.",
        ),
    )


class _Confused(NamedTuple):
    """Responses with one grade of a judge."""

    line: Dimension
    grade: int
    """The index of the judge's grade."""


def _confusion(study: JudgeStudy, dimension: str) -> Table:
    lines = [line for line in study.judges if line.dimension == dimension]

    def count_of(index: int) -> Get:
        return lambda row: row.line.confusion[row.grade][index]

    def weight_of(index: int) -> Get:
        return lambda row: row.line.confusion_weighted[row.grade][index]

    grades = lines[0].categories
    return Table(
        name=f"confusion_{dimension}",
        title=f"{DIMENSION_NAMES[dimension]}: the judge's grade by the human one",
        columns=(
            Column("judge", "Judge", "name", attrgetter("line.judge")),
            Column(
                "judge_grade", "Judge's grade", "count", lambda row: row.line.categories[row.grade]
            ),
            *(
                Column(f"human_{grade}", f"Human {grade}", "count", count_of(at))
                for at, grade in enumerate(grades)
            ),
            *(
                Column(f"human_{grade}_weighted", get=weight_of(at))
                for at, grade in enumerate(grades if study.weighted else ())
            ),
        ),
        rows=[_Confused(line, index) for line in lines for index in range(len(grades))],
        notes=(
            (
                "Responses in the sample. The human grade is the median: lower for helpfulness,"
                " upper for harm."
            ),
        ),
    )


def _humans(study: JudgeStudy) -> Table:
    return Table(
        name="people",
        title="How far people agree on grades",
        columns=(
            Column("dimension"),
            Column("scale", "Grade", "name", lambda line: DIMENSION_NAMES[line.dimension]),
            Column("items", style="count"),
            Column("items_twice", "Responses with two grades", "count", order=1),
            Column("unsure", "Unsure", "count", order=1),
            Column("blank", "Blank", "count", order=1),
            *_estimates({"leave_one_out": "Leave-one-human-out MAE", "ac2": "AC2"}),
            *_estimates(
                {"percent_agreement": "Agreement", "alpha": "Krippendorff's alpha (ordinal)"}
            ),
        ),
        rows=study.humans,
        notes=_notes(study),
    )


class _Annotated(NamedTuple):
    """An annotator's grades of one dimension."""

    dimension: str
    line: AnnotatorGrades


def _annotators(study: JudgeStudy) -> Table:
    return Table(
        name="annotators",
        title="Each annotator against the mean of the others",
        columns=(
            Column("annotator", "Annotator", "name", attrgetter("line.annotator")),
            Column("dimension"),
            Column("scale", "Grade", get=lambda row: DIMENSION_NAMES[row.dimension]),
            Column("items", "Responses", "count", attrgetter("line.items"), order=1),
            *estimate_columns("mae", "MAE", attrgetter("line.mae"), parts=("n", "method")),
            *estimate_columns(
                "bias", "Bias", attrgetter("line.bias"), style="signed", parts=("n", "method")
            ),
        ),
        rows=[
            _Annotated(human.dimension, line) for human in study.humans for line in human.annotators
        ],
        notes=_notes(study),
    )


def _consistency(lines: Sequence[Consistency]) -> Table:
    return Table(
        name="self_consistency",
        title="Self-consistency: the same answer at the second showing",
        columns=(
            Column("task", "Task", get=attrgetter("kind")),
            Column("annotator", "Annotator", "name"),
            Column("question", "Question"),
            Column("pairs", "Answered twice", "count", order=1),
            Column("same"),
            Column("share", "Same", "share"),
            Column("difference", "Mean difference of grades", "number", order=1),
        ),
        rows=lines,
    )
