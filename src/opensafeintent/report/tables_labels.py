"""Tables of human labels: of prompt-sets, and of judges against people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from opensafeintent.errors import counted
from opensafeintent.report.columns import Column, Columns, Part, Table, estimate_columns
from opensafeintent.taxonomy import QUESTIONS

if TYPE_CHECKING:
    from opensafeintent.annotation.agreement import (
        AgreementQuestion,
        Dimension,
        JudgeStudy,
        PeopleAgreement,
        Quality,
        SafeCall,
        SharedErrors,
    )

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


_WEIGHTED = (
    " The sample is stratified: numbers are weighted by one over the probability of being drawn,"
    " counts are not."
)
_SCALE_LABELS: dict[str, str] = {
    question.grade: f"{question.label.capitalize()} ({question.scale[0]}–{question.scale[-1]})"
    for question in QUESTIONS
}
_ASKED = {"safe": "Safe (harm severity 0)", **_SCALE_LABELS}


def agreement_tables(quality: Quality | None, study: JudgeStudy | None) -> list[Table]:
    """Return every table that the labels fill."""
    tables = [] if quality is None else [_table_3(quality)]
    if study is None:
        return tables
    people = [_people_agreement(study)] if len(study.annotators) > 1 else []
    shared = [_shared_errors(study)] if study.errors else []
    return [*tables, *people, _table_7(study), _safe_calls(study), *shared]


def _people(annotators: Mapping[str, int]) -> str:
    if len(annotators) == 1:
        return "One annotator: agreement between people is undefined"
    return f"{len(annotators)} annotators"


def _table_3(quality: Quality) -> Table:
    parts: tuple[Part, ...] = ("n", "method")
    columns: tuple[Columns[AgreementQuestion], ...] = (
        Column("question", lambda row: row.question),
        Column("asked", lambda row: _QUESTIONS[row.question], "Question", "name"),
        Column("yes", lambda row: row.yes),
        Column("no", lambda row: row.no),
        Column("unsure", lambda row: row.unsure, "Unsure", "count", order=1),
        Column("blank", lambda row: row.blank, "Blank", "count", order=1),
        Column("sets_twice", lambda row: row.sets_twice),
        estimate_columns(
            "yes_rate", lambda row: row.yes_rate, "Mean yes rate", unit="share", parts=parts
        ),
        estimate_columns("ac1", lambda row: row.ac1, "Gwet's AC1", parts=parts),
        Column("ac1_se", lambda row: row.ac1.se, "SE of AC1", "number"),
        estimate_columns(
            "percent_agreement",
            lambda row: row.percent_agreement,
            "Agreement",
            unit="share",
            parts=parts,
        ),
        estimate_columns("alpha", lambda row: row.alpha, "Krippendorff's alpha", parts=parts),
    )
    return Table.of(
        columns,
        quality.questions,
        name="table_3_quality",
        title="Quality of the dataset as people judge it (paper: Table 3)",
        notes=(
            (
                f"{_people(quality.annotators)}; {counted(quality.sets, 'prompt-set')}. Unsure and"
                " blank are not no: they are counted, and left out of every rate. Blank counts all"
                " items of the returned forms. Agreement is the"
                " share of agreeing pairs of annotators. If nearly all answers are equal, alpha is"
                " low even with good agreement; AC1 is not. Alpha has no interval if more than 1 %"
                " of the resamples have equal answers only."
            ),
        ),
    )


def _people_agreement(study: JudgeStudy) -> Table:
    parts: tuple[Part, ...] = ("n", "method")
    columns: tuple[Columns[PeopleAgreement], ...] = (
        Column("question", lambda row: row.question),
        Column("asked", lambda row: _ASKED[row.question], "Question", "name"),
        Column("responses_twice", lambda row: row.responses_twice, "Responses", "count", order=1),
        estimate_columns(
            "percent_agreement",
            lambda row: row.percent_agreement,
            "Agreement",
            unit="share",
            parts=parts,
        ),
        Column("coefficient", lambda row: row.coefficient, "Coefficient"),
        estimate_columns("gwet", lambda row: row.gwet, "Value", parts=parts),
    )
    return Table.of(
        columns,
        study.people,
        name="people_agreement",
        title="Agreement of people with one another, on responses",
        notes=(
            (
                f"{_people(study.annotators)}. Responses: those that two or more of them graded."
                " Agreement is the share of agreeing pairs of annotators; unsure and blank are left"
                " out. AC1 and AC2 are Gwet's coefficients of agreement beyond chance, 1 for full"
                " agreement; in AC2 near grades agree in part."
                f"{_WEIGHTED if study.weighted else ''}"
            ),
        ),
    )


def _table_7(study: JudgeStudy) -> Table:
    resampled = "whole prompt-sets" if study.unit == "set" else "single responses"
    sampling = f"Intervals resample {resampled}."
    if study.weighted:
        sampling += _WEIGHTED
    parts: tuple[Part, ...] = ("n", "method")
    columns: tuple[Columns[Dimension], ...] = (
        Column("judge", lambda row: row.judge, "Judge", "name"),
        Column("dimension", lambda row: row.dimension),
        Column("scale", lambda row: _SCALE_LABELS[row.dimension], "Grade"),
        Column("items", lambda row: row.items, "Responses", "count", order=1),
        Column("missing", lambda row: row.missing, "Not graded by the judge", "count", order=1),
        estimate_columns("mae", lambda row: row.mae, "Judge MAE", parts=parts),
        estimate_columns(
            "leave_one_out", lambda row: row.leave_one_out, "Leave-one-human-out MAE", parts=parts
        ),
        estimate_columns("bias", lambda row: row.bias, "Signed bias", style="signed", parts=parts),
    )
    return Table.of(
        columns,
        study.judges,
        name="table_7_judges",
        title="Judges against people (paper: Table 7)",
        notes=(
            (
                f"{_people(study.annotators)}; {study.items:,} responses. Judge MAE is against the"
                " mean of all people; leave-one-human-out is each person against the mean of the"
                f" others. Bias is judge minus mean human. {sampling}"
            ),
        ),
    )


def _safe_calls(study: JudgeStudy) -> Table:
    parts: tuple[Part, ...] = ("n", "method")
    columns: tuple[Columns[SafeCall], ...] = (
        Column("judge", lambda row: row.judge, "Judge", "name"),
        estimate_columns(
            "catches_unsafe",
            lambda row: row.catches_unsafe,
            "Catches unsafe",
            unit="share",
            parts=parts,
        ),
        estimate_columns(
            "false_alarms", lambda row: row.false_alarms, "False alarms", unit="share", parts=parts
        ),
    )
    return Table.of(
        columns,
        study.safe,
        name="safe_calls",
        title="How far a judge can be trusted on 'safe'",
        notes=(
            (
                "Catches unsafe: of the responses that are unsafe for people, the share that the"
                " judge calls unsafe. False alarms: of the safe ones, the share that it calls"
                " unsafe. People decide by majority, a tie being unsafe."
            ),
        ),
    )


def _shared_errors(study: JudgeStudy) -> Table:
    columns: tuple[Columns[SharedErrors], ...] = (
        Column("judges", lambda row: " + ".join(row.judges), "Judges", "name"),
        estimate_columns(
            "correlation",
            lambda row: row.correlation,
            "Correlation of errors",
            style="signed",
            parts=("n", "method"),
        ),
        estimate_columns(
            "independent", lambda row: row.independent, "Independent judges, at least"
        ),
    )
    return Table.of(
        columns,
        study.errors,
        name="shared_errors",
        title="Whether judges make the same errors on 'safe'",
        notes=(
            (
                "An error is a verdict on 'safe' that people, by majority, do not share. With a"
                " mean correlation r between their errors, k judges are worth k / (1 + (k − 1) r)"
                " independent judges or more: people's own errors count as errors that all judges"
                " share. With fewer than three people it is not given. A negative correlation"
                " counts as 0."
            ),
        ),
    )
