"""Agreement as tables: Table 3, Table 7, and what stands behind them."""

from __future__ import annotations

from collections.abc import Sequence

from opensafeintent.people.agreement import Consistency, Dimension, JudgeStudy, Quality, Question
from opensafeintent.report.tables import Cell, Column, Table
from opensafeintent.statistics.samples import SampleEstimate

__all__ = ["DIMENSION_NAMES", "QUESTION_NAMES", "agreement_tables"]

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

_PARTS = ("", "_low", "_high", "_n", "_method")
_BRACKETS = "– is undefined. Brackets hold the 95 % interval."
_WEIGHTED = "Weighted by one over the probability of being drawn; counts are of the sample itself."


def agreement_tables(quality: Quality | None, study: JudgeStudy | None, consistency: Sequence[Consistency]) -> list[Table]:
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


def _columns(*names: str) -> tuple[str, ...]:
    return tuple(name + part for name in names for part in _PARTS)


def _cells(*estimates: SampleEstimate) -> list[Cell]:
    cells: list[Cell] = []
    for estimate in estimates:
        cells += [estimate.value, *(estimate.interval or (None, None)), estimate.n, estimate.method]
    return cells


def _table_3(quality: Quality) -> Table:
    def row(line: Question) -> tuple[Cell, ...]:
        return (
            *(line.question, QUESTION_NAMES[line.question], line.yes, line.no, line.unsure, line.blank, line.sets_twice),
            *_cells(line.yes_rate, line.ac1, line.percent_agreement, line.alpha),
            line.ac1.se,
        )

    counts = ("yes", "no", "unsure", "blank", "sets_twice")
    return Table(
        name="table_3_quality",
        title="Table 3. Quality of the dataset as people judge it",
        columns=("question", "asked", *counts, *_columns("yes_rate", "ac1", "percent_agreement", "alpha"), "ac1_se"),
        rows=tuple(row(line) for line in quality.questions),
        shown=(
            Column("asked", "Question", "name"),
            Column("yes_rate", "Mean yes rate", "interval"),
            Column("ac1", "Gwet's AC1", "interval"),
            Column("ac1_se", "SE", "number"),
            Column("percent_agreement", "Agreement", "interval"),
            Column("alpha", "Krippendorff's alpha", "interval"),
            Column("unsure", "Unsure", "count"),
            Column("blank", "Blank", "count"),
        ),
        notes=(
            f"{_people(quality.annotators)}; {quality.sets:,} prompt-sets. Unsure and blank are not no: they are counted, "
            "and left out of every rate. Agreement is the share of agreeing pairs of annotators. Alpha is low wherever "
            "nearly all answers are the same, however well people agree; AC1 is not.",
            _BRACKETS,
        ),
    )


def _people(annotators: dict[str, int]) -> str:
    return f"{len(annotators)} annotators" if len(annotators) != 1 else "One annotator: agreement between people is undefined"


def _to_drop(quality: Quality) -> Table:
    return Table(
        name="to_drop",
        title="Prompt-sets to drop: every annotator who answered marks their overall quality poor",
        columns=("id", "poor", "annotators"),
        rows=tuple((line.id, line.poor, line.annotators) for line in quality.drop),
        shown=(
            Column("id", "Prompt-set", "name"),
            Column("poor", "Annotators who answered", "count"),
            Column("annotators", "Annotators who returned it", "count"),
        ),
    )


def _table_7(study: JudgeStudy) -> Table:
    names = ("mae", "leave_one_out", "fair", "excess", "bias", "ac2", "exact")

    def row(line: Dimension) -> tuple[Cell, ...]:
        estimates = (line.mae, line.leave_one_out, line.fair, line.excess, line.bias, line.ac2, line.exact)
        return (line.judge, line.dimension, DIMENSION_NAMES[line.dimension], line.items, line.missing, *_cells(*estimates))

    return Table(
        name="table_7_judges",
        title="Table 7. Judges against people",
        columns=("judge", "dimension", "scale", "items", "missing", *_columns(*names)),
        rows=tuple(row(line) for line in study.judges),
        shown=(
            Column("judge", "Judge", "name"),
            Column("scale", "Grade"),
            Column("mae", "Judge MAE", "interval"),
            Column("leave_one_out", "Leave-one-human-out MAE", "interval"),
            Column("fair", "Judge MAE, same humans", "interval"),
            Column("excess", "Judge minus human", "signed"),
            Column("bias", "Signed bias", "signed"),
            Column("ac2", "AC2", "interval"),
            Column("exact", "Same grade", "interval"),
            Column("items", "Responses", "count"),
        ),
        notes=(
            f"{_people(study.annotators)}; {study.items:,} responses. Judge MAE is against the mean of all people; leave-one-"
            "human-out is each person against the mean of the others; same humans is the judge against those same means, "
            "averaged over who is left out, and judge minus human the difference of the two: below 0 the judge is nearer to "
            "the others than a person is. Bias is judge minus mean human. AC2 (quadratic weights) and same grade are against "
            "the human median: lower for helpfulness, upper for harm.",
            *([_WEIGHTED] if study.weighted else []),
            _BRACKETS,
        ),
    )


def _safe_calls(study: JudgeStudy) -> Table:
    return Table(
        name="safe_calls",
        title="How far a judge can be trusted on 'safe'",
        columns=(
            *("judge", "intent", "safe_judged_safe", "safe_judged_unsafe", "unsafe_judged_safe", "unsafe_judged_unsafe"),
            *_columns("sensitivity", "specificity"),
        ),
        rows=tuple(
            (
                *(line.judge, line.intent, line.safe_safe, line.safe_unsafe, line.unsafe_safe, line.unsafe_unsafe),
                *_cells(line.sensitivity, line.specificity),
            )
            for line in study.safe
        ),
        shown=(
            Column("judge", "Judge", "name"),
            Column("intent", "Intent"),
            Column("sensitivity", "Sensitivity", "interval"),
            Column("specificity", "Specificity", "interval"),
            Column("safe_judged_safe", "Safe, judged safe", "count"),
            Column("safe_judged_unsafe", "Safe, judged unsafe", "count"),
            Column("unsafe_judged_safe", "Unsafe, judged safe", "count"),
            Column("unsafe_judged_unsafe", "Unsafe, judged unsafe", "count"),
        ),
        notes=(
            "Sensitivity: of the responses that are safe for people, the share that the judge calls safe. Specificity: of "
            "the unsafe ones, the share that it calls unsafe. People decide by majority, a tie being unsafe.",
            *([_WEIGHTED] if study.weighted else []),
            _BRACKETS,
        ),
    )


def _confusion(study: JudgeStudy, dimension: str) -> Table:
    lines = [line for line in study.judges if line.dimension == dimension]
    grades = lines[0].categories
    weighted = [f"human_{grade}_weighted" for grade in grades] if study.weighted else []
    return Table(
        name=f"confusion_{dimension}",
        title=f"{DIMENSION_NAMES[dimension]}: the judge's grade by the human one",
        columns=("judge", "judge_grade", *(f"human_{grade}" for grade in grades), *weighted),
        rows=tuple(
            (line.judge, grade, *line.confusion[place], *(line.confusion_weighted[place] if line.confusion_weighted else ()))
            for line in lines
            for place, grade in enumerate(grades)
        ),
        shown=(
            Column("judge", "Judge", "name"),
            Column("judge_grade", "Judge's grade", "count"),
            *(Column(f"human_{grade}", f"Human {grade}", "count") for grade in grades),
        ),
        notes=("Responses in the sample. The human grade is the median: lower for helpfulness, upper for harm.",),
    )


def _humans(study: JudgeStudy) -> Table:
    return Table(
        name="people",
        title="How far people agree on grades",
        columns=(
            *("dimension", "scale", "items", "items_twice", "unsure", "blank"),
            *_columns("leave_one_out", "ac2", "percent_agreement", "alpha"),
        ),
        rows=tuple(
            (
                *(line.dimension, DIMENSION_NAMES[line.dimension], line.items, line.items_twice, line.unsure, line.blank),
                *_cells(line.leave_one_out, line.ac2, line.percent_agreement, line.alpha),
            )
            for line in study.humans
        ),
        shown=(
            Column("scale", "Grade", "name"),
            Column("leave_one_out", "Leave-one-human-out MAE", "interval"),
            Column("ac2", "AC2", "interval"),
            Column("percent_agreement", "Agreement", "interval"),
            Column("alpha", "Krippendorff's alpha (ordinal)", "interval"),
            Column("items_twice", "Responses with two grades", "count"),
            Column("unsure", "Unsure", "count"),
            Column("blank", "Blank", "count"),
        ),
        notes=(*([_WEIGHTED] if study.weighted else []), _BRACKETS),
    )


def _annotators(study: JudgeStudy) -> Table:
    return Table(
        name="annotators",
        title="Each annotator against the mean of the others",
        columns=("annotator", "dimension", "scale", "items", *_columns("mae", "bias")),
        rows=tuple(
            (line.annotator, human.dimension, DIMENSION_NAMES[human.dimension], line.items, *_cells(line.mae, line.bias))
            for human in study.humans
            for line in human.annotators
        ),
        shown=(
            Column("annotator", "Annotator", "name"),
            Column("scale", "Grade"),
            Column("mae", "MAE", "interval"),
            Column("bias", "Bias", "signed"),
            Column("items", "Responses", "count"),
        ),
        notes=(*([_WEIGHTED] if study.weighted else []), _BRACKETS),
    )


def _consistency(lines: Sequence[Consistency]) -> Table:
    return Table(
        name="self_consistency",
        title="Self-consistency: the same answer at the second showing",
        columns=("task", "annotator", "question", "pairs", "same", "share", "difference"),
        rows=tuple(
            (line.kind, line.annotator, line.question, line.pairs, line.same, line.share, line.difference) for line in lines
        ),
        shown=(
            Column("task", "Task"),
            Column("annotator", "Annotator", "name"),
            Column("question", "Question"),
            Column("share", "Same", "share"),
            Column("pairs", "Answered twice", "count"),
            Column("difference", "Mean difference of grades", "number"),
        ),
    )
