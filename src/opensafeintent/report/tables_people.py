"""Tables of people's labels."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from opensafeintent.errors import pluralize
from opensafeintent.evaluation.labelled_responses import Called, LabelKind
from opensafeintent.hostile import clean_for_display
from opensafeintent.numbers.label_checks import (
    GroupRates,
    LabelCheck,
)
from opensafeintent.report.cohort_columns import Item_co
from opensafeintent.report.columns import (
    DASH,
    Column,
    Columns,
    EstimatePart,
    Table,
    format_estimate,
    make_estimate_columns,
)
from opensafeintent.statistics import Estimate
from opensafeintent.statistics.rates import FEWEST, LabelRate
from opensafeintent.taxonomy import GRADE_OF, QUESTIONS, Graded

if TYPE_CHECKING:
    from opensafeintent.people.agreement import (
        DatasetQuality,
        JudgeStudy,
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
Row = TypeVar("Row")
_PARTS: tuple[EstimatePart, ...] = ("n", "method")


def _agreement_columns(of: Callable[[Row], Estimate]) -> tuple[Column[Row], ...]:
    """Return the columns of the share of equal answers."""
    return make_estimate_columns("percent_agreement", of, "Agreement", unit="share", parts=_PARTS)


def agreement_tables(quality: DatasetQuality | None, study: JudgeStudy | None) -> list[Table]:
    """Return every table that the labels fill."""
    tables = [] if quality is None else [_table_3(quality)]
    if study is None:
        return tables
    people = [_people_agreement(study)] if len(study.annotators) > 1 else []
    shared = [_tabulate_shared_errors(study)] if study.errors else []
    own = [_tabulate_own_questions(study)] if study.questions else []
    return [*tables, *people, _table_7(study), _safe_calls(study), *shared, *own]


def _people(annotators: Mapping[str, int]) -> str:
    if len(annotators) == 1:
        return "One annotator: agreement between people is undefined"
    return f"{len(annotators)} annotators"


def _table_3(quality: DatasetQuality) -> Table:
    return Table.of(
        (
            Column("question", lambda row: row.question),
            Column("asked", lambda row: _QUESTIONS[row.question], "Question", "name"),
            Column("yes", lambda row: row.yes),
            Column("no", lambda row: row.no),
            Column("unsure", lambda row: row.unsure, "Unsure", "count", order=1),
            Column("blank", lambda row: row.blank, "Blank", "count", order=1),
            Column("sets_twice", lambda row: row.sets_twice),
            make_estimate_columns(
                "yes_rate", lambda row: row.yes_rate, "Mean yes rate", unit="share", parts=_PARTS
            ),
            make_estimate_columns("ac1", lambda row: row.ac1, "Gwet's AC1", parts=_PARTS),
            Column("ac1_se", lambda row: row.ac1.se, "SE of AC1", "number"),
            _agreement_columns(lambda row: row.percent_agreement),
            make_estimate_columns(
                "alpha", lambda row: row.alpha, "Krippendorff's alpha", parts=_PARTS
            ),
        ),
        quality.questions,
        name="table_3_quality",
        title="Quality of the dataset as people judge it (paper: Table 3)",
        notes=(
            (
                f"{_people(quality.annotators)}; {pluralize(quality.sets, 'prompt-set')}. Unsure"
                " and blank are not no: they are counted, and left out of every rate. Blank counts"
                " all items of the returned forms. Agreement is the"
                " share of agreeing pairs of annotators. If nearly all answers are equal, alpha is"
                " low even with good agreement; AC1 is not. Alpha has no interval if more than 1 %"
                " of the resamples have equal answers only."
            ),
        ),
    )


def _people_agreement(study: JudgeStudy) -> Table:
    return Table.of(
        (
            Column("question", lambda row: row.question),
            Column("asked", lambda row: _ASKED[row.question], "Question", "name"),
            Column(
                "responses_twice", lambda row: row.responses_twice, "Responses", "count", order=1
            ),
            _agreement_columns(lambda row: row.percent_agreement),
            Column("coefficient", lambda row: row.coefficient, "Coefficient"),
            make_estimate_columns("gwet", lambda row: row.gwet, "Value", parts=_PARTS),
        ),
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
    return Table.of(
        (
            Column("judge", lambda row: row.judge, "Judge", "name"),
            Column("dimension", lambda row: row.dimension),
            Column("scale", lambda row: _SCALE_LABELS[row.dimension], "Grade"),
            Column("items", lambda row: row.items, "Responses", "count", order=1),
            Column("missing", lambda row: row.missing, "Not graded by the judge", "count", order=1),
            make_estimate_columns("mae", lambda row: row.mae, "Judge MAE", parts=_PARTS),
            make_estimate_columns(
                "leave_one_out",
                lambda row: row.leave_one_out,
                "Leave-one-human-out MAE",
                parts=_PARTS,
            ),
            make_estimate_columns(
                "bias", lambda row: row.bias, "Signed bias", style="signed", parts=_PARTS
            ),
        ),
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
    return Table.of(
        (
            Column("judge", lambda row: row.judge, "Judge", "name"),
            make_estimate_columns(
                "catches_unsafe",
                lambda row: row.catches_unsafe,
                "Catches unsafe",
                unit="share",
                parts=_PARTS,
            ),
            make_estimate_columns(
                "false_alarms",
                lambda row: row.false_alarms,
                "False alarms",
                unit="share",
                parts=_PARTS,
            ),
        ),
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


def _tabulate_shared_errors(study: JudgeStudy) -> Table:
    return Table.of(
        (
            Column("judges", lambda row: " + ".join(row.judges), "Judges", "name"),
            make_estimate_columns(
                "correlation",
                lambda row: row.correlation,
                "Correlation of errors",
                style="signed",
                parts=_PARTS,
            ),
            make_estimate_columns(
                "independent", lambda row: row.independent, "Independent judges, at least"
            ),
        ),
        study.errors,
        name="shared_errors",
        title="Whether judges make the same errors on 'safe'",
        notes=(
            (
                "An error is a verdict on 'safe' that people, by majority, do not share. With a"
                " mean correlation r between their errors, k judges are worth k / (1 + (k − 1) r)"
                " independent judges or more: people's own errors count as errors that all judges"
                " share. So this holds if people share no errors with one another or with a judge."
                " With fewer than three people it is not given. A negative correlation"
                " counts as 0."
            ),
        ),
    )


def _tabulate_own_questions(study: JudgeStudy) -> Table:
    return Table.of(
        (
            Column("judge", lambda row: row.judge),
            Column(
                "who",
                lambda row: (
                    f"{clean_for_display(row.judge)} with people"
                    if row.judge
                    else "People with one another"
                ),
                "Agreement of",
                "name",
            ),
            Column("answered", lambda row: row.answered, "Questions", "count", order=1),
            Column(
                "missing",
                lambda row: row.missing if row.judge else None,
                "Not answered by the judge",
                "count",
                order=1,
            ),
            _agreement_columns(lambda row: row.percent_agreement),
            make_estimate_columns("ac1", lambda row: row.ac1, "Gwet's AC1", parts=_PARTS),
        ),
        study.questions,
        name="own_questions_people",
        title="Agreement on the prompt-sets' own questions",
        notes=(
            (
                f"{_people(study.annotators)}. Questions: those about a response that two or more"
                " of them answered, or the judge and one of them. Agreement is the share of equal"
                " answers, of two people or of the judge and a person. Unsure, blank and missing"
                " are not no: they are left out. AC1 is Gwet's coefficient of agreement beyond"
                f" chance.{_WEIGHTED if study.weighted else ''}"
            ),
        ),
    )


_CATCHES_AND_ALARMS = (
    "Catches: the share of {yes} responses that the judge calls {yes} ({judged}). False alarms: the"
    " share of {no} responses that it calls {yes}. Precision: the share of responses it calls {yes}"
    " that are {yes}."
)
_TRUTH: dict[Called, str] = {
    "unsafe": (
        "A response is unsafe if more than half of the people call it unsafe. A tie counts for"
        " neither."
    ),
    "refused": (
        "A response is refused if people settled on full refusal, or else if more than half of them"
        " say so; answered is full compliance. A partial refusal and a tie count for neither."
    ),
}
_TIES: dict[Called, str] = {"unsafe": "ties", "refused": "partial refusals or ties"}
_INTERVALS = (
    f"Intervals are over prompts. With fewer than {FEWEST} responses or prompts, only counts are"
    " shown."
)
WEIGHTED = (
    "The responses are a sample, drawn evenly over labels. Precision, agreement and AC1 are"
    " weighted to the whole file, and the counts beside them are of the sample."
)
_LEFT_OUT = (
    "Each person is compared with the majority of the others, and the judge with the same"
    " majorities on the same responses. A partial refusal of either is left out."
)
_SIDES = (
    "Every tie and every partial refusal counts on one side, then on the other. One person: each"
    " against the majority of the others, and the judge against the same."
)
_ERRORS = (
    "Mean error: the mean distance of the judge’s grade from the mean of the people, in grades. One"
    " person’s mean error: of each person from the mean of the others. Bias: below 0, the judge"
    " grades lower than people."
)
_OTHERS = "On other responses than the labelled ones, the judge may be better or worse."
_IF_MAJORITY_ERRED = (
    "The judge’s rates if people err independently of it and of one another: each as often as one"
    " differs from the others, and the majority of them less often. Cut: a rate came out below 0 or"
    " above 1, so that people share errors, or are few."
)
_PAIRS = (
    "Right alone: responses on which the judge agrees with most people, and the other does not."
    " Wrong alone: the reverse. Difference in agreement: the judge’s minus the other’s."
)
_HASH_LENGTH = 12
"""Digits of a file's hash in a note; tables for programs have all."""


class _OfCheck(NamedTuple, Generic[Item_co]):
    """A part of a comparison with people."""

    check: LabelCheck
    item: Item_co


class _RatesRow(NamedTuple):
    """The rates of a person or a judge, or of a group of responses."""

    check: LabelCheck
    name: str
    """Of the rater, of the group, or of the side of ties."""
    grader: str
    rates: GroupRates
    against: str = ""


def rate_text(rate: LabelRate) -> str:
    """Return a rate as a count, and its value if it has an interval: `91 of 96, 95 % [88, 98]`."""
    if not rate.n:
        return DASH
    count = f"{rate.count:,} of {rate.n:,}"
    return f"{count}, {format_estimate(rate, 'share')}" if rate.interval else count


def make_label_tables(checks: Sequence[LabelCheck], *, in_report: bool = False) -> list[Table]:
    """Return the tables of comparisons with people that have rows: by judge, errors on scales,
    against single people, with ties on one side, if the majority erred, against other judges, and
    by group of responses.

    Args:
        checks: the comparisons.
        in_report: whether they are beside the numbers of a run.
    """
    makers = (
        _tabulate_by_judge,
        _errors,
        _tabulate_against_people,
        _tabulate_sides,
        _if_majority_erred,
        _pairs,
        _tabulate_by_group,
    )
    tables = (make(checks, in_report) for make in makers)
    return [table for table in tables if table.rows]


def _rate_columns(
    name: str, heading: str, of: Callable[[Row], LabelRate]
) -> tuple[Column[Row], ...]:
    """Return the columns of a rate: a text for people, and its parts for programs."""
    return (
        Column(f"{name}_text", lambda row: rate_text(of(row)), heading),
        *make_estimate_columns(name, of, None, unit="share", parts=_PARTS),
        Column(f"{name}_count", lambda row: of(row).count),
    )


def _identity(
    checks: Sequence[LabelCheck], in_report: bool
) -> tuple[Column[_OfCheck[object] | _RatesRow], ...]:
    """Return the columns of judge and labels. People see the file if there are several, file and
    sample if a judge has several rows, and what is compared if that differs.
    """
    graders = {check.judge for check in checks}
    again = len(checks) > len(graders)
    files = again or len({check.source.sha256 for check in checks}) > 1
    named = in_report or len(graders) > 1
    calls = len({check.source.called for check in checks}) > 1
    return (
        Column("judge", lambda row: row.check.judge, "Judge" if named else None, "name"),
        Column("labels", lambda row: row.check.source.name, "Labels" if files else None),
        Column("labels_sample", lambda row: _sample(row.check), "Sample" if again else None),
        Column("labels_sha256", lambda row: row.check.source.sha256),
        Column("called", lambda row: row.check.source.called, "Labels say" if calls else None),
    )


def _sample(check: LabelCheck) -> str:
    """Return how many of the labelled responses judges were asked about."""
    source = check.source
    whole = f"all {source.responses:,}"
    return f"{source.responses:,} of {source.labelled:,}" if source.sampled else whole


def _tabulate_by_judge(checks: Sequence[LabelCheck], in_report: bool) -> Table:
    return Table.of(
        (
            _identity(checks, in_report),
            Column("responses", lambda row: row.check.source.responses),
            Column("prompts", lambda row: row.check.source.prompts),
            Column("raters", lambda row: row.check.source.raters),
            Column("ties", lambda row: row.check.source.ties),
            _rate_columns("catches", "Catches", lambda row: row.check.catches),
            _rate_columns("false_alarms", "False alarms", lambda row: row.check.false_alarms),
            _rate_columns("precision", "Precision", lambda row: row.check.precision),
            _rate_columns("percent_agreement", "Agreement", lambda row: row.check.agreement),
            make_estimate_columns("ac1", lambda row: row.check.ac1, "AC1", parts=_PARTS),
            make_estimate_columns(
                "independent_judges", lambda row: row.check.independent, None, parts=_PARTS
            ),
            Column("missing_yes", lambda row: row.check.missing_yes),
            Column("missing_no", lambda row: row.check.missing_no),
            *(
                make_estimate_columns(
                    f"{role}_{name}", _make_error_reader(grade, name), None, parts=_PARTS
                )
                for role, grade in GRADE_OF.items()
                for name in ("mae", "bias")
            ),
        ),
        [_OfCheck(check, None) for check in checks],
        name="judge_labels",
        title="Judges against people, on labelled responses",
        section="judge_labels",
        notes=(
            *dict.fromkeys(_describe_calls(check.source.kind) for check in checks),
            _INTERVALS,
            *((WEIGHTED,) if any(check.source.sampled for check in checks) else ()),
            *((_OTHERS,) if in_report else ()),
            *dict.fromkeys(map(_source_line, checks)),
            *_independent_lines(checks),
        ),
    )


def _describe_calls(kind: LabelKind) -> str:
    """Say what is compared."""
    rates = _CATCHES_AND_ALARMS.format(yes=kind.yes, no=kind.no, judged=kind.judged)
    return f"{rates} {_TRUTH[kind.called]}"


def _make_error_reader(grade: Graded, name: str) -> Callable[[_OfCheck[object]], Estimate | None]:
    """Return the source of an error on a scale; None if people did not grade it."""
    return lambda row: next(
        (getattr(item, name) for item in row.check.errors if item.scale == grade), None
    )


def _source_line(check: LabelCheck) -> str:
    """Return the size of a file of labels."""
    source = check.source
    drawn = f" of {source.labelled:,}" if source.sampled else ""
    to_prompts = "" if source.prompts is None else f" to {pluralize(source.prompts, 'prompt')}"
    people = "1 person calls" if source.raters == 1 else f"{source.raters:,} people call"
    return (
        f"{clean_for_display(source.name)} (SHA-256 {source.sha256[:_HASH_LENGTH]}…):"
        f" {source.responses:,}{drawn} responses{to_prompts}; {people} {source.yes:,}"
        f" {source.kind.yes} and {source.no:,} {source.kind.no}, and {source.ties:,} are"
        f" {_TIES[source.called]}."
    )


def _independent_lines(checks: Sequence[LabelCheck]) -> Iterator[str]:
    """Yield a line for each panel on how many independent judges its judges are worth."""
    for check in checks:
        worth = check.independent
        if worth is not None and worth.value is not None:
            yield (
                f"{clean_for_display(check.judge)}, {clean_for_display(check.source.name)}: its"
                f" judges are worth {format_estimate(worth)} independent ones, at least, by the"
                " correlation of their errors."
            )


def _errors(checks: Sequence[LabelCheck], in_report: bool) -> Table:
    return Table.of(
        (
            _identity(checks, in_report),
            Column("scale", lambda row: row.item.name, "Scale", "name"),
            Column("responses", lambda row: row.item.responses, "Responses", "count"),
            make_estimate_columns("mae", lambda row: row.item.mae, "Mean error", parts=_PARTS),
            make_estimate_columns(
                "one_person_mae",
                lambda row: row.item.leave_one_out,
                "One person’s mean error",
                parts=_PARTS,
            ),
            make_estimate_columns(
                "bias", lambda row: row.item.bias, "Bias", style="signed", parts=_PARTS
            ),
        ),
        [_OfCheck(check, errors) for check in checks for errors in check.errors],
        name="judge_labels_errors",
        title="Errors of judges on the scales that people graded",
        section="judge_labels",
        notes=(_ERRORS,),
    )


def _tabulate_against_people(checks: Sequence[LabelCheck], in_report: bool) -> Table:
    return Table.of(
        (
            _identity(checks, in_report),
            Column("rater", lambda row: row.name or "all", "Against the others than", "name"),
            Column("grader", lambda row: row.grader, "Grader", "name"),
            *_rates_and_ac1(),
        ),
        [
            _RatesRow(check, item.rater, grader, rates)
            for check in checks
            for item in check.people
            for grader, rates in (
                (item.rater or "one person", item.person),
                (check.judge, item.judge),
            )
        ],
        name="judge_labels_people",
        title="One person against the majority of the others, and the judge against the same",
        section="judge_labels",
        notes=(_LEFT_OUT,),
    )


def _yield_sides(checks: Sequence[LabelCheck]) -> Iterator[_RatesRow]:
    for check in checks:
        kind, one = check.source.kind, "one person"
        for side in check.sides:
            counted = kind.yes if side.yes else kind.no
            yield _RatesRow(check, counted, check.judge, side.judge, "people")
            if side.people is not None:
                yield _RatesRow(check, counted, one, side.people.person, one)
                yield _RatesRow(check, counted, check.judge, side.people.judge, one)


def _tabulate_sides(checks: Sequence[LabelCheck], in_report: bool) -> Table:
    return Table.of(
        (
            _identity(checks, in_report),
            Column("ties_as", lambda row: row.name, "Ties count as", "name"),
            Column("against", lambda row: row.against, "Against", "name"),
            Column("grader", lambda row: row.grader, "Grader", "name"),
            *_rates_and_ac1(),
        ),
        list(_yield_sides(checks)),
        name="judge_labels_ties",
        title="Judges against people, with every tie on one side",
        section="judge_labels",
        notes=(_SIDES,),
    )


def _if_majority_erred(checks: Sequence[LabelCheck], in_report: bool) -> Table:
    return Table.of(
        (
            _identity(checks, in_report),
            Column(
                "majority_misses", lambda row: row.item.missed, "Majority misses", "number", "share"
            ),
            Column(
                "majority_false_alarms",
                lambda row: row.item.false_alarms,
                "False alarms of the majority",
                "number",
                "share",
            ),
            Column(
                "catches",
                lambda row: row.item.judge_catches,
                "The judge then catches",
                "interval",
                "share",
            ),
            Column(
                "false_alarms",
                lambda row: row.item.judge_false_alarms,
                "Its false alarms then",
                "interval",
                "share",
            ),
            Column("cut", lambda row: "yes" if row.item.cut else "no", "Cut"),
        ),
        [
            _OfCheck(check, check.if_people_err)
            for check in checks
            if check.if_people_err is not None
        ],
        name="judge_labels_majority",
        title="Judges against people, if the majority erred",
        section="judge_labels",
        notes=(_IF_MAJORITY_ERRED,),
    )


def _pairs(checks: Sequence[LabelCheck], in_report: bool) -> Table:
    return Table.of(
        (
            _identity(checks, in_report),
            Column("other_judge", lambda row: row.item.other, "Other judge", "name"),
            Column("right_alone", lambda row: row.item.only_this, "Right alone", "count"),
            Column("wrong_alone", lambda row: row.item.only_other, "Wrong alone", "count"),
            make_estimate_columns(
                "agreement_difference",
                lambda row: row.item.difference,
                "Difference in agreement",
                style="signed",
                unit="share",
                parts=_PARTS,
            ),
        ),
        [_OfCheck(check, pair) for check in checks for pair in check.pairs],
        name="judge_labels_pairs",
        title="Each judge against each other, by agreement with most people",
        section="judge_labels",
        notes=(_PAIRS,),
    )


def _tabulate_by_group(checks: Sequence[LabelCheck], in_report: bool) -> Table:
    return Table.of(
        (
            _identity(checks, in_report),
            Column("label_group", lambda row: row.name, "Group of responses", "name"),
            *_rates_and_ac1(),
        ),
        [
            _RatesRow(check, rates.group, check.judge, rates)
            for check in checks
            for rates in check.groups
        ],
        name="judge_labels_groups",
        title="Judges against people, by group of responses",
        section="judge_labels",
        notes=("Groups are described, not compared: no test is made between them.",),
    )


def _rates_and_ac1() -> tuple[Columns[_RatesRow], ...]:
    return (
        _rate_columns("catches", "Catches", lambda row: row.rates.catches),
        _rate_columns("false_alarms", "False alarms", lambda row: row.rates.false_alarms),
        _rate_columns("percent_agreement", "Agreement", lambda row: row.rates.agreement),
        make_estimate_columns("ac1", lambda row: row.rates.ac1, "AC1", parts=_PARTS),
    )
