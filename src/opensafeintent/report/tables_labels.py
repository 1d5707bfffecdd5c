"""Tables of human labels: of prompt-sets, and of judges against people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from opensafeintent.errors import counted
from opensafeintent.report.cohort_columns import UNDEFINED
from opensafeintent.report.columns import Column, Table, estimate_columns

if TYPE_CHECKING:
    from opensafeintent.annotation.agreement import JudgeStudy, Quality

_QUESTIONS = {
    "domain_right": "Harm domain right",
    "type_right": "Task type right",
    "sounds_human": "Sounds human",
    "same_topic": "Same topic",
    "benign_is_benign": "Benign is benign",
    "malicious_is_malicious": "Malicious is malicious",
    "dual_use_has_both": "Dual-use has both uses",
    "overall_quality": "Overall quality good",
}


_SCALE_LABELS = {"helpfulness": "Helpfulness (1–4)", "harm_severity": "Harm severity (0–3)"}


def agreement_tables(quality: Quality | None, study: JudgeStudy | None) -> list[Table]:
    """Return every table that the labels fill."""
    tables = [] if quality is None else [_table_3(quality)]
    if study is None:
        return tables
    shared = [_shared_errors(study)] if study.errors else []
    return [*tables, _table_7(study), _safe_calls(study), *shared]


def _estimates(**headings: str) -> tuple[Column, ...]:
    """Return the columns of estimates of a record, with n and method."""
    columns = (
        estimate_columns(name, heading, parts=("n", "method")) for name, heading in headings.items()
    )
    return tuple(column for of_one in columns for column in of_one)


def _people(annotators: Mapping[str, int]) -> str:
    if len(annotators) == 1:
        return "One annotator: agreement between people is undefined"
    return f"{len(annotators)} annotators"


def _table_3(quality: Quality) -> Table:
    return Table(
        name="table_3_quality",
        title="Quality of the dataset as people judge it (paper: Table 3)",
        columns=(
            Column("question"),
            Column("asked", "Question", "name"),
            Column("yes", style="count"),
            Column("no", style="count"),
            Column("unsure", "Unsure", "count", order=1),
            Column("blank", "Blank", "count", order=1),
            Column("sets_twice", style="count"),
            *_estimates(
                yes_rate="Mean yes rate",
                ac1="Gwet's AC1",
                percent_agreement="Agreement",
                alpha="Krippendorff's alpha",
            ),
            Column("ac1_se", "SE", "number"),
        ),
        rows=[
            (
                question.question,
                _QUESTIONS[question.question],
                question.yes,
                question.no,
                question.unsure,
                question.blank,
                question.sets_twice,
                question.yes_rate,
                question.ac1,
                question.percent_agreement,
                question.alpha,
                question.ac1.se,
            )
            for question in quality.questions
        ],
        notes=(
            (
                f"{_people(quality.annotators)}; {counted(quality.sets, 'prompt-set')}. Unsure and"
                " blank are not no: they are counted, and left out of every rate. Agreement is the"
                " share of agreeing pairs of annotators. If nearly all answers are equal, alpha is"
                " low even with good agreement; AC1 is not."
            ),
            UNDEFINED,
        ),
    )


def _table_7(study: JudgeStudy) -> Table:
    drawn = "whole prompt-sets" if study.unit == "set" else "single responses"
    weighted = (
        " The sample is stratified: numbers are weighted by one over the probability of being"
        " drawn, counts are not."
    )
    return Table(
        name="table_7_judges",
        title="Judges against people (paper: Table 7)",
        columns=(
            Column("judge", "Judge", "name"),
            Column("dimension"),
            Column("scale", "Grade"),
            Column("items", "Responses", "count", order=1),
            Column("missing", "Not graded by the judge", "count", order=1),
            *_estimates(mae="Judge MAE", leave_one_out="Leave-one-human-out MAE"),
            *estimate_columns("bias", "Signed bias", style="signed", parts=("n", "method")),
        ),
        rows=[
            (
                judge.judge,
                judge.dimension,
                _SCALE_LABELS[judge.dimension],
                judge.items,
                judge.missing,
                judge.mae,
                judge.leave_one_out,
                judge.bias,
            )
            for judge in study.judges
        ],
        notes=(
            (
                f"{_people(study.annotators)}; {study.items:,} responses. Judge MAE is against the"
                " mean of all people; leave-one-human-out is each person against the mean of the"
                " others. Bias is judge minus mean human. Intervals resample"
                f" {drawn}.{weighted if study.weighted else ''}"
            ),
            UNDEFINED,
        ),
    )


def _safe_calls(study: JudgeStudy) -> Table:
    return Table(
        name="safe_calls",
        title="How far a judge can be trusted on 'safe'",
        columns=(
            Column("judge", "Judge", "name"),
            *_estimates(sensitivity="Sensitivity", specificity="Specificity"),
        ),
        rows=[(safe.judge, safe.sensitivity, safe.specificity) for safe in study.safe],
        notes=(
            (
                "Sensitivity: of the responses that are safe for people, the share that the judge"
                " calls safe. Specificity: of the unsafe ones, the share that it calls unsafe."
                " People decide by majority, a tie being unsafe."
            ),
            UNDEFINED,
        ),
    )


def _shared_errors(study: JudgeStudy) -> Table:
    return Table(
        name="shared_errors",
        title="Whether judges make the same errors on 'safe'",
        columns=(
            Column("judges", "Judges", "name"),
            *estimate_columns(
                "correlation", "Correlation of errors", style="signed", parts=("n", "method")
            ),
            *estimate_columns("independent", "Independent judges, at least"),
        ),
        rows=[
            (" + ".join(shared.judges), shared.correlation, shared.independent)
            for shared in study.errors
        ],
        notes=(
            (
                "An error is a verdict on 'safe' that people, by majority, do not share. With a"
                " mean correlation r between their errors, k judges are worth k / (1 + (k − 1) r)"
                " independent judges or more: people's own errors count as errors that all judges"
                " share. With fewer than three people it is not given. A negative correlation"
                " counts as 0."
            ),
            UNDEFINED,
        ),
    )
