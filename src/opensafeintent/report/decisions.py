"""Decisions in words and for programs: each look as it is taken, and what came of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from opensafeintent.analysis.decisions import Course, KeptLook
from opensafeintent.analysis.groups import Group
from opensafeintent.statistics.decisions import Look

__all__ = [
    "INTERVAL_NOTE",
    "STOPPED_NOTE",
    "asked_of",
    "boundaries_text",
    "decisions_json",
    "look_line",
    "shown_estimate",
    "verdict_text",
    "verdict_word",
]


INTERVAL_NOTE = (
    "Brackets hold the repeated interval: it holds at every look, whenever one stops, with as much confidence in each "
    "direction as the decision."
)
STOPPED_NOTE = (
    "A run that stops where its numbers are extreme overstates them: but for the decision and its interval, every number of "
    "these models is of the sets it took, and leans towards the verdict."
)


def look_line(course: Course) -> str:
    """Say in a line what the last look of a decision showed, what would have decided it, and what is left."""
    design, seen = course.design, course.seen
    if not course.looks:
        return f"no look yet at {course.match}"
    look = course.looks[-1]
    where = f"look {len(course.looks)} of {len(design.looks)}, {seen:,} of {design.sets:,} sets"
    return f"{where}: {course.match}: {shown_estimate(course, look)}; {boundaries_text(course, look)}; {verdict_text(course)}"


def shown_estimate(course: Course, look: Look) -> str:
    """Return the value so far with its repeated interval."""
    metric = course.question.metric
    if look.estimate is None or look.interval is None:
        return f"{metric} undefined"
    sign = "+" if course.question.paired else ""
    low, high = look.interval
    what = f"difference of {metric}" if course.question.paired else metric
    return f"{what} {look.estimate:{sign}.3f} [{low:{sign}.3f}, {high:{sign}.3f}]"


def boundaries_text(course: Course, look: Look) -> str:
    """Say what would have decided a look: for a model the share, for a pair the standardised difference."""
    ends = (("at most", look.lower), ("at least", look.upper))
    lower, upper = (None if end is None else f"{word} {end:.3f}" for word, end in ends)
    low, high = ("yes", "no") if course.design.less_is_better else ("no", "yes")
    told = [f"{word}: {end}" for word, end in ((high, upper), (low, lower)) if end is not None]
    if not told:
        return "nothing could decide it yet"
    what = "" if not course.question.paired or look.statistic is None else f"Z {look.statistic:+.2f}, "
    return what + ", ".join(told)


def verdict_text(course: Course) -> str:
    """Say what is decided, and how many prompt-sets that leaves or saves."""
    left = course.design.sets - course.seen
    match course.verdict:
        case None if course.looks and course.looks[-1].too_many_missing:
            return f"too much is missing to decide, {left:,} sets left"
        case None:
            return f"undecided, {left:,} sets left" if left else "undecided, no sets left"
        case verdict:
            return f"{verdict}, {left:,} sets saved"


def verdict_word(course: Course) -> str:
    """Return what was decided in a word or two."""
    return course.verdict or ("undecided" if course.over else "not yet decided")


# For programs -----------------------------------------------------------------------------------------------------------


def asked_of(groups: Iterable[Group]) -> dict[tuple[str, str], list[Course]]:
    """Return the decisions about some models by the question they belong to: its run, and `Frozen.id`."""
    asked: dict[tuple[str, str], list[Course]] = {}
    for run, course in (decision for group in groups for decision in group.decisions):
        asked.setdefault((run, course.frozen.id), []).append(course)
    return asked


def decisions_json(groups: Sequence[Group]) -> dict[str, Any]:
    """Return what `metrics.json` says of decisions, `decisions` and `stopped_early`; nothing where none was to be made."""
    asked = asked_of(groups)
    if not asked:
        return {}
    stopped = sorted(model for group in groups for model in group.stopped_early)
    return {
        "decisions": [_question_json(run, courses) for (run, _), courses in asked.items()],
        "stopped_early": stopped,
    }


def _question_json(run: str, courses: Sequence[Course]) -> dict[str, Any]:
    frozen, design, question = courses[0].frozen, courses[0].design, courses[0].question
    entry = next(iter(frozen.models.values()))
    return {
        "run": run,
        "question": frozen.question,
        "metric": question.metric,
        "kind": question.kind,
        "threshold": question.threshold,
        "margin": question.margin,
        "confidence": frozen.confidence,
        "families": frozen.families,
        "alpha": design.alpha,
        "sets": frozen.sets,
        "looks": design.looks,
        "epochs": entry.epochs,
        "judges": entry.judges,
        "mode_judge": entry.mode_judge,
        "grade_parse": entry.parse,
        "templates": entry.templates,
        "exploratory": frozen.exploratory,
        "decided": [_course_json(course) for course in courses],
    }


def _course_json(course: Course) -> dict[str, Any]:
    last = course.looks[-1] if course.looks else None
    return {
        "model": course.match.model,
        "against": course.match.against,
        "verdict": course.verdict,
        "sets": course.seen,
        "n": last.n if last else 0,
        "value": last.estimate if last else None,
        "ci": last.interval if last else None,
        "looks": [_look_json(look) for look in course.looks],
    }


def _look_json(look: KeptLook) -> dict[str, Any]:
    return {
        "sets": look.planned,
        "n": look.n,
        "value": look.estimate,
        "ci": look.interval,
        "statistic": look.statistic,
        "lower": look.lower,
        "upper": look.upper,
        "spent_low": look.spent_low,
        "spent_high": look.spent_high,
        "too_many_missing": look.too_many_missing,
        "verdict": look.verdict,
    }
