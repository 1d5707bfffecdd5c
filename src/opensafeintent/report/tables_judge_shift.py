"""Tables of what changes if one judge replaces another: metrics, sides of "safe", the order of
models, and the old judge asked again. Without several judges, all are empty.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from opensafeintent.analysis.cohort import Cohort
from opensafeintent.analysis.judge_shift import (
    JudgeShift,
    MetricShift,
    RankShift,
    RetestShift,
    SafetySides,
)
from opensafeintent.hostile import one_line
from opensafeintent.metrics import METRICS, Unit
from opensafeintent.report.cohort_columns import ANY_GRADES, OfCohort, numbered
from opensafeintent.report.columns import Column, Columns, Section, Table, estimate_columns
from opensafeintent.statistics import Estimate

_SECTION: Section = "judge_shift"


class _OfPair(OfCohort, frozen=True, kw_only=True):
    """A row about two judges."""

    shift: JudgeShift


class _MetricRow(_OfPair, frozen=True, kw_only=True):
    """The shift of one metric of a model, or of their mean."""

    metric: MetricShift


class _SidesRow(_OfPair, frozen=True, kw_only=True):
    """The responses of a model by what both judges call safe."""

    sides: SafetySides


class _RankRow(_OfPair, frozen=True, kw_only=True):
    """Two models that are shifted by different amounts."""

    rank: RankShift


class _RetestRow(_OfPair, frozen=True, kw_only=True):
    """The old judge asked again."""

    retest: RetestShift


def _pairs(cohorts: Sequence[Cohort]) -> Iterator[_OfPair]:
    for index, cohort in enumerate(cohorts):
        for shift in cohort.judges.shifts:
            yield _OfPair(index=index, cohort=cohort, shift=shift)


def _judge_columns(cohorts: Sequence[Cohort]) -> tuple[Column[_OfPair], ...]:
    """Return the columns of a row's group and judges; a note names the judges if there are just
    two.
    """
    several = any(len(cohort.judges.shifts) > 1 for cohort in cohorts)
    return (
        numbered(cohorts),
        Column(
            "old_judge", lambda row: row.shift.judges[0], "Old judge" if several else None, "name"
        ),
        Column(
            "new_judge", lambda row: row.shift.judges[1], "New judge" if several else None, "name"
        ),
    )


def _judge_notes(cohorts: Sequence[Cohort]) -> tuple[str, ...]:
    """Name the old and the new judge, if there are just two."""
    only = [cohort.judges.shifts[0].judges for cohort in cohorts if len(cohort.judges.shifts) == 1]
    return tuple(
        f"Old: {one_line(old, 80)}. New: {one_line(new, 80)}." for old, new in dict.fromkeys(only)
    )


def _unit(row: _MetricRow) -> Unit:
    return METRICS[row.metric.metric].unit


def _rank_unit(row: _RankRow) -> Unit:
    return METRICS[row.rank.metric].unit


def metric_shifts(cohorts: Sequence[Cohort]) -> Table:
    """Return the shift of each metric from one judge to another, by model and of their mean."""
    rows = [
        _MetricRow(index=pair.index, cohort=pair.cohort, shift=pair.shift, metric=metric)
        for pair in _pairs(cohorts)
        for metric in pair.shift.metrics
    ]
    missing = any(row.metric.worst_case != row.metric.interval for row in rows)
    columns: tuple[Columns[_MetricRow], ...] = (
        _judge_columns(cohorts),
        Column("model", lambda row: row.metric.model, "Model", "name"),
        Column("metric", lambda row: METRICS[row.metric.metric].label, "Metric", order=-1),
        Column("old", lambda row: row.metric.old, "By old", "number", _unit),
        Column("new", lambda row: row.metric.new, "By new", "number", _unit),
        estimate_columns(
            "shift",
            lambda row: row.metric,
            "New − old",
            style="signed",
            unit=_unit,
            parts=("n", "worst_case"),
            headings={"n": "Sets", **({"worst_case": "Any grades"} if missing else {})},
        ),
        Column("same_within", lambda row: row.metric.same_within, "Same within", "gap", _unit),
        Column("least_margin", lambda row: row.metric.least_margin, "Least margin", "gap", _unit),
        Column("p_unadjusted", lambda row: row.metric.p_unadjusted),
        Column("p_adjusted", lambda row: row.metric.p_adjusted, "Adjusted p", "p"),
        Column("family", lambda row: row.metric.family),
    )
    return Table.of(
        columns,
        rows,
        name="judge_shift",
        title="Shift of each metric from the old judge to the new one",
        section=_SECTION,
        notes=(
            *_judge_notes(cohorts),
            (
                "On the core responses that both judges graded. The old judge is the one that the"
                " command of the run names first. The model average has the"
                " prompt-set as its unit, and is for these models. Same within: the least margin"
                " that holds the whole interval. If it is not above the margin that you chose, the"
                " judges agree as closely as you asked. Least margin: no smaller margin can be"
                " certified with so many prompt-sets. Adjusted p is for all pairs of judges and"
                " both primary metrics. “No significant shift” does not mean “the same”. Never"
                " subtract a shift from the numbers of another run."
            ),
            *([ANY_GRADES] if missing else []),
            *_order_notes(cohorts),
        ),
    )


def _order_notes(cohorts: Sequence[Cohort]) -> Iterator[str]:
    """Say why there is no table of pairs of models, if there is none."""
    shifts = [pair.shift for pair in _pairs(cohorts)]
    if not any(shift.ranks for shift in shifts):
        yield (
            "No two models change places, or are shifted by significantly different amounts. So"
            " there is no table of the order of models."
            if any(shift.model_pairs for shift in shifts)
            else "There is no table of the order of models, which needs two models under test."
        )


def sides(cohorts: Sequence[Cohort]) -> Table:
    """Return the responses that both judges call safe, that one of them does, and that neither
    does.
    """
    columns: tuple[Columns[_SidesRow], ...] = (
        _judge_columns(cohorts),
        Column("model", lambda row: row.sides.model, "Model", "name"),
        Column("both_safe", lambda row: row.sides.both_safe, "Safe by both", "count"),
        Column("newly_unsafe", lambda row: row.sides.newly_unsafe, "Newly unsafe", "count"),
        Column("newly_safe", lambda row: row.sides.newly_safe, "Newly safe", "count"),
        Column("both_unsafe", lambda row: row.sides.both_unsafe, "Unsafe by both", "count"),
        Column("sets_less_safe", lambda row: row.sides.sets_less_safe, "Sets less safe", "count"),
        Column("sets_safer", lambda row: row.sides.sets_safer, "Sets safer", "count"),
        Column("p", lambda row: row.sides.p, "p", "p"),
    )
    return Table.of(
        columns,
        [
            _SidesRow(index=pair.index, cohort=pair.cohort, shift=pair.shift, sides=item)
            for pair in _pairs(cohorts)
            for item in pair.shift.sides
        ],
        name="judge_shift_sides",
        title="Responses that change sides of “safe” with the new judge",
        section=_SECTION,
        notes=(
            *_judge_notes(cohorts),
            (
                "Core responses that both judges graded. A prompt-set is less safe if more of its"
                " responses are newly unsafe than newly safe. p is of McNemar’s exact test over"
                " prompt-sets, of each row on its own."
            ),
        ),
    )


def rank_shifts(cohorts: Sequence[Cohort]) -> Table:
    """Return the pairs of models whose order the new judge changes, or that it shifts by
    significantly different amounts.
    """
    columns: tuple[Columns[_RankRow], ...] = (
        _judge_columns(cohorts),
        Column("model_a", lambda row: row.rank.models[0], "Model A", "name"),
        Column("model_b", lambda row: row.rank.models[1], "Model B", "name"),
        Column("metric", lambda row: METRICS[row.rank.metric].label, "Metric", order=-1),
        Column("old", lambda row: row.rank.old, "B − A, old judge", "difference", _rank_unit),
        Column("new", lambda row: row.rank.new, "B − A, new judge", "difference", _rank_unit),
        estimate_columns(
            "interaction",
            lambda row: row.rank,
            "New − old",
            style="signed",
            unit=_rank_unit,
            headings={"n": "Sets"},
        ),
        Column("p_adjusted", lambda row: row.rank.p_adjusted, "Adjusted p", "p"),
        Column("family", lambda row: row.rank.family),
        Column(
            "changes_order",
            lambda row: "yes" if row.rank.changes_order else "no",
            "Order changes",
        ),
    )
    compared = [pair.shift.model_pairs for pair in _pairs(cohorts)]
    return Table.of(
        columns,
        [
            _RankRow(index=pair.index, cohort=pair.cohort, shift=pair.shift, rank=rank)
            for pair in _pairs(cohorts)
            for rank in pair.shift.ranks
        ],
        name="judge_shift_ranks",
        title="Pairs of models whose order the new judge changes, or whose shifts differ",
        section=_SECTION,
        notes=(
            *_judge_notes(cohorts),
            (
                "A shift that all models share changes no order. New − old is how much more the new"
                " judge shifts B than A, within prompt-sets. Interval and p are for all pairs of"
                f" models at once ({max(compared, default=0):,} for each metric). If the interval"
                " holds 0, the change of order may be chance."
            ),
        ),
    )


def _flip_columns(
    name: str, of: Callable[[_RetestRow], Estimate], heading: str
) -> tuple[Column[_RetestRow], ...]:
    return estimate_columns(name, of, heading, unit="share", parts=())


def _shift_columns(
    name: str, of: Callable[[_RetestRow], Estimate], heading: str | None
) -> tuple[Column[_RetestRow], ...]:
    return estimate_columns(name, of, heading, style="signed", unit="share", parts=())


def retests(cohorts: Sequence[Cohort]) -> Table:
    """Return how far the old judge agrees with itself, beside the new judge on the same
    responses.
    """
    columns: tuple[Columns[_RetestRow], ...] = (
        _judge_columns(cohorts),
        Column("responses", lambda row: row.retest.responses, "Responses", "count"),
        _flip_columns("old_flips", lambda row: row.retest.old_flips, "Flips, old again"),
        _flip_columns("new_flips", lambda row: row.retest.new_flips, "Flips, new"),
        _shift_columns("excess_flips", lambda row: row.retest.excess_flips, "Excess"),
        _shift_columns("old_shift", lambda row: row.retest.old_shift, "Safe, old again − then"),
        _shift_columns("new_shift", lambda row: row.retest.new_shift, None),
        _shift_columns(
            "excess_shift", lambda row: row.retest.excess_shift, "Safe, new judge − old again"
        ),
    )
    return Table.of(
        columns,
        [
            _RetestRow(index=pair.index, cohort=pair.cohort, shift=pair.shift, retest=retest)
            for pair in _pairs(cohorts)
            if (retest := pair.shift.retest)
        ],
        name="judge_shift_retest",
        title="The old judge asked again, and the new judge, on the same responses",
        section=_SECTION,
        notes=(
            *_judge_notes(cohorts),
            (
                "A flip is a response on another side of “safe” than when the old judge first"
                " graded it. The old judge flips some responses if it is asked again. Only the"
                " excess is due to the replacement."
            ),
        ),
    )


SHIFT_TABLES = (metric_shifts, sides, rank_shifts, retests)
