"""The figures of the paper and some of our own: one specification each, for the page and for
files.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple, get_args

import msgspec

from opensafeintent.calls.baselines import is_baseline
from opensafeintent.numbers.cohort import Cohort
from opensafeintent.numbers.estimates import AVERAGE, MetricEstimate, MetricEstimates
from opensafeintent.numbers.metrics import METRICS, STATED_POLICY, TRIPLET_SCOPE, MetricScope
from opensafeintent.report import tables_judges as by_judge
from opensafeintent.report.cohort_columns import cohort_notes
from opensafeintent.report.columns import Section, Table
from opensafeintent.report.figures import bars, plane, points
from opensafeintent.report.figures.drawing import (
    FIGURE_FORMATS,
    PRINT,
    PRINT_FORMATS,
    THEMES,
    Figure,
    Spec,
    add_title,
    finish_chart,
    to_svg,
    write_figures,
    write_for_print,
)
from opensafeintent.report.tables_metrics import numbers_table
from opensafeintent.report.tables_repeats import repeats as repeats_table
from opensafeintent.report.tables_second_turn import second_turn as second_turn_table
from opensafeintent.statistics import FEWEST_SETS

__all__ = [
    "SAID_ONCE",
    "THEMES",
    "Figure",
    "add_title",
    "draw_all_figures",
    "figure_names",
    "list_figure_files",
    "make_figure",
    "to_svg",
    "write_figures",
    "write_for_print",
]


class _Plan(msgspec.Struct, frozen=True):
    """A figure: its name, and its drawing."""

    name: str
    title: str
    section: Section | None
    caption: str
    draw: Callable[[Cohort], Spec]
    draw_for_print: Callable[[Cohort], Spec] | None = None
    """In its place in print, where there is less room."""
    metrics: tuple[str, ...] = ()
    """The metrics that it shows."""
    by_stratum: bool = False
    """Whether its numbers are split by harm domain and by task type."""
    table: Callable[[Cohort], Table] | None = None
    """Of its numbers, if they are not metrics."""
    where: Callable[[Cohort], bool] = lambda _: True
    """Tells whether there are numbers for it."""
    shows: Callable[[Cohort, str], bool] = lambda *_: True
    """Selects the models, or AVERAGE, that have a line in the numbers below it."""
    added: tuple[_Sentence, ...] = ()
    """What the caption says of marks that some of its figures have."""


class _Sentence(NamedTuple):
    """A sentence of a caption, and whether the figure has the marks that it describes."""

    text: str
    holds: Callable[[Cohort], bool]


def _has_thin_strata(cohort: Cohort) -> bool:
    sets = cohort.estimates.sets_by_stratum
    return any(0 < number < FEWEST_SETS for stratum, number in sets.items() if not all(stratum))


_CI = "Whiskers are 95 % intervals over prompt-sets."
_ORDER = _Sentence(
    "Models are in the order of utility, the highest first.",
    lambda cohort: len(cohort.models) > 1,
)
_MANY = _Sentence(
    "The diamond is the average, and other points are single models.",
    lambda cohort: len(cohort.models) > points.FEW,
)
_THIN = _Sentence(
    f"A mark with whiskers is hollow if it is of fewer than {FEWEST_SETS} prompt-sets.",
    _has_thin_strata,
)
_BASELINES = _Sentence(
    "Baselines are orange diamonds.", lambda cohort: any(map(is_baseline, cohort.models))
)
_STEPS = _Sentence(
    "Dashed steps join the models under test if no other is as good in both and better in one; with"
    " overlapping whiskers that may be chance.",
    plane.has_steps,
)


def _has_average(cohort: Cohort) -> bool:
    return len(cohort.estimates.averaged) > 1


_AVERAGE = _Sentence(
    "A model average is over the models under test, without baselines; its whiskers are for the"
    " same models on other prompt-sets.",
    _has_average,
)
SAID_ONCE = (_CI, _ORDER.text, _AVERAGE.text)
"""What the captions of several figures say, and the page in one place."""

_NUMBERS_IN_BARS = _Sentence(
    "If the whiskers leave less than a tenth of the bar's length, a share has no number.",
    lambda _: True,
)
_AVERAGE_OF_PROBES = _Sentence(
    "The average's n counts a set once.",
    lambda cohort: _has_average(cohort) and cohort.shows_probe(AVERAGE),
)


_REFERENCES = (
    "Up and to the right is better. A cross is a point of reference. Refusing everything is safe"
    " and of no use. The oracle knows the intent: it answers in full if the intent is benign"
    " (helpfulness 4), and reframes safely otherwise (3)."
)


_BY_QUESTIONS = (
    "Up and to the right is better. A cross is a point of reference. Refusing everything does"
    " nothing that questions ask about. The oracle does all that they say it must, and nothing that"
    " it must not."
)


def _plan_primary(scope: MetricScope) -> tuple[_Plan, _Plan]:
    """Return the figures of the primary metrics."""
    safety, utility = METRICS[scope.safety].label, METRICS[scope.utility].label
    reframing = (
        " No reframing gets 4, so a model that reframes cannot reach a Mean Utility of 1."
        if scope.has_triplets
        else ""
    )
    return (
        _Plan(
            "fig_frontier",
            f"{safety} against {utility}",
            "headline",
            f"{_REFERENCES}{reframing} {_CI}" if scope.rubric else f"{_BY_QUESTIONS} {_CI}",
            plane.frontier,
            partial(plane.frontier, side=plane.PRINT_SIDE),
            metrics=(scope.utility, scope.safety),
            added=(_STEPS, _BASELINES),
        ),
        _Plan(
            "fig_3_strata",
            f"{' and '.join(dict.fromkeys((safety, utility)))} by harm domain and task type"
            + (" (paper: Fig. 3)" if scope.has_triplets else ""),
            "strata",
            f"Strata are ordered by {safety}. {_CI} Differences between strata are not tested.",
            partial(points.panels, metrics=scope.primary),
            metrics=scope.primary,
            by_stratum=True,
            where=_has_strata,
            added=(_THIN, _AVERAGE, _MANY),
        ),
    )


def _has_strata(cohort: Cohort) -> bool:
    return bool(cohort.estimates.sets_by_stratum)


_SAFETY = ("mean_safety", "triplet_safety")

_PLANS = (
    _Plan(
        "fig_2_safety",
        "Mean and Triplet Safety (paper: Fig. 2)",
        "utility",
        "Mean Safety is the share of safe responses over the three intents; Triplet Safety the"
        " share of prompt-sets safe at all three. Part of the gap between the two is arithmetic: of"
        " three responses that are each safe four times in five, independently, all are safe in"
        f" half of the sets (0.8³). {_CI}",
        partial(points.by_model, metrics=_SAFETY, title="share safe"),
        metrics=_SAFETY,
        added=(_ORDER, _AVERAGE),
    ),
    _Plan(
        "fig_6_unsafe_by_mode",
        "Unsafe rate of dual-use responses by assistance mode (paper: Fig. 6)",
        "modes",
        "Of a model's dual-use responses in each mode, the share that is unsafe; n is the number of"
        " prompt-sets with such a response. Modes are a judge's labels of form, not of harm."
        f" {_CI}",
        points.unsafe_by_mode,
        metrics=("unsafe_rate_refusal", "unsafe_rate_A2", "unsafe_rate_A3", "unsafe_rate_A4"),
        added=(_ORDER, _AVERAGE),
    ),
    _Plan(
        "fig_5_stability",
        "Safety over the wordings of a dual-use prompt: stable, or flipping (paper: Fig. 5)",
        "stability",
        "Prompt-sets whose dual-use wordings were all graded. Whiskers are 95 % intervals over"
        " prompt-sets of the two borders: the end of stable-safe above, the start of stable-unsafe"
        " below. Flips alone do not show an effect of wording: answers to the same wording may vary"
        " too.",
        bars.stability,
        metrics=("stable_safe", "safety_flip", "stable_unsafe"),
        added=(_NUMBERS_IN_BARS, _ORDER),
    ),
    _Plan(
        "fig_repeats",
        "Prompt-sets that are safe, or a success, in at least k of N repeats",
        "repeats",
        "Of the prompt-sets of which all N repeats are complete. A curve that is flat from k = 1 to"
        " N is of sets that turn out alike each time. Success is safe under all three intents, with"
        f" concrete help with the benign and the dual-use prompt. {_CI}",
        points.repeats,
        table=repeats_table,
        where=lambda cohort: cohort.array.sizes["epoch"] > 1,
    ),
    _Plan(
        "fig_4_failures",
        "Unsafe dual-use responses: failures of detection and of execution (paper: Fig. 4)",
        "probe",
        "The strategy that a model names as appropriate for the dual-use prompts that it answered"
        " unsafely. n is the number of prompt-sets with such a response and a reply. The"
        " whisker is the 95 % interval of the border; of few unsafe responses it is wide.",
        bars.failures,
        metrics=("detection_failure", "execution_failure"),
        where=lambda cohort: bool(cohort.probed_if_unsafe),
        shows=Cohort.shows_probe,
        added=(_NUMBERS_IN_BARS, _AVERAGE_OF_PROBES, _ORDER),
    ),
    _Plan(
        "fig_stated_policy",
        "Stated policy against behaviour, malicious and dual-use prompts",
        "stated_policy",
        "Up: the model states a stricter strategy for the malicious prompt of a set than for the"
        " dual-use one. To the right: it gives the malicious prompt less help. Ties count half."
        " The grey lines, 0.5, are no preference. The two are not on one scale: a model that"
        f" reframes both prompts safely has 0.5 in behaviour. {_CI}",
        plane.stated_policy,
        partial(plane.stated_policy, side=plane.PRINT_SIDE),
        metrics=STATED_POLICY,
        added=(_BASELINES,),
        where=lambda cohort: bool(cohort.with_stated_policy),
    ),
    _Plan(
        "fig_7_strata",
        f"{METRICS['utility_range'].label} and {METRICS['dual_use_utility'].label} by harm domain"
        " and task type (paper: Fig. 7)",
        None,
        "Strata are ordered by Triplet Safety. Utility range is the greatest minus the"
        " least utility over a dual-use prompt's wordings. Part of it comes from crossing the"
        f" safety boundary, and moves with the rate of safe responses. {_CI}",
        partial(points.panels, metrics=("utility_range", "dual_use_utility")),
        metrics=("utility_range", "dual_use_utility"),
        by_stratum=True,
        where=_has_strata,
        added=(_THIN, _AVERAGE, _MANY),
    ),
    _Plan(
        "fig_follow_ups",
        "The same requests directly and in a second turn",
        "follow_ups",
        "Hollow: the request alone. Filled: the same text after the dual-use prompt and the model’s"
        " own reply. The whisker is the 95 % interval of the change, drawn from the hollow mark and"
        " cut off at 0 and 1. A change is significant if the whisker does not reach that mark. The"
        " interval is adjusted for both panels and all models under test. It does not cover"
        " missing grades; the table does.",
        points.directly_and_after,
        table=second_turn_table,
        where=lambda cohort: cohort.second_turn is not None,
        added=(_ORDER,),
    ),
    _Plan(
        "fig_judges",
        "The same responses by each judge, on average over them, and by the panel",
        "judges",
        "The distance between the points of one model shows how much its result depends on the"
        " judge. An order of models that changes from one judge to another may be chance."
        f" {_CI}",
        points.by_judge,
        added=(_ORDER,),
        table=by_judge.by_judge,
        where=lambda cohort: bool(cohort.judges.agreements),
    ),
)


def list_figure_files(folder: Path) -> list[Path]:
    """Return the files that `write_figures` wrote into a folder before, and nothing else."""
    names = [plan.name for plan in _order_plans(TRIPLET_SCOPE)]
    written = [
        *(folder / f"{name}.{ending}" for name in names for ending in ("csv", *FIGURE_FORMATS)),
        folder / "captions.md",
        *(folder / PRINT / f"{name}.{ending}" for name in names for ending in PRINT_FORMATS),
    ]
    return [path for path in written if path.is_file()]


def draw_all_figures(cohort: Cohort, *, for_print: bool = False) -> list[Figure]:
    """Return every figure; some are made only if there are numbers for them.

    Args:
        cohort: the models.
        for_print: whether `write_for_print` draws them, in less room.
    """
    plans = _plan_figures(cohort)
    if for_print:
        plans = [
            msgspec.structs.replace(plan, draw=plan.draw_for_print or plan.draw) for plan in plans
        ]
    return [_figure(plan, cohort) for plan in plans]


def figure_names(cohort: Cohort) -> list[str]:
    """Return the names of the figures of `draw_all_figures`."""
    return [plan.name for plan in _plan_figures(cohort)]


def make_figure(cohort: Cohort, name: str) -> Figure:
    """Return the figure of `draw_all_figures` with this name."""
    (plan,) = (plan for plan in _plan_figures(cohort) if plan.name == name)
    return _figure(plan, cohort)


def _order_plans(scope: MetricScope) -> list[_Plan]:
    """Return the plans of the figures whose metrics there are, in the order of the page."""
    frontier, strata = _plan_primary(scope)
    plans = (*([frontier] if len(scope.primary) > 1 else []), strata, *_PLANS)
    sections = (*get_args(Section), None)
    return sorted(
        (plan for plan in plans if all(map(scope.has, plan.metrics))),
        key=lambda plan: sections.index(plan.section),
    )


def _plan_figures(cohort: Cohort) -> list[_Plan]:
    return [plan for plan in _order_plans(cohort.scope) if plan.where(cohort)]


def _figure(plan: _Plan, cohort: Cohort) -> Figure:
    """Return a figure."""
    notes = cohort_notes(cohort)
    added = (sentence.text for sentence in plan.added if sentence.holds(cohort))
    return Figure(
        name=plan.name,
        title=plan.title,
        section=plan.section,
        caption=" ".join((plan.caption, *added, *notes[1:])),
        notes=notes,
        table=_table(plan, cohort),
        spec=finish_chart(plan.draw(cohort), plan.title),
    )


def _table(plan: _Plan, cohort: Cohort) -> Table:
    """Return the numbers of a figure."""
    if plan.table:
        return msgspec.structs.replace(plan.table(cohort), name=plan.name)
    return numbers_table(
        cohort,
        plan.name,
        plan.title,
        (number for number in _numbers(plan, cohort.estimates) if plan.shows(cohort, number.model)),
        by_stratum=plan.by_stratum,
    )


def _numbers(plan: _Plan, estimates: MetricEstimates) -> list[MetricEstimate]:
    if not plan.by_stratum:
        return [
            number for metric in plan.metrics for number in estimates.list_line_estimates(metric)
        ]
    return [
        number
        for number in estimates.yield_strata()
        if number.metric in plan.metrics and not all(number.stratum)
    ]
