"""Figures with a point for each model between two metrics: safety against utility, and withholding
by intent.
"""

from __future__ import annotations

from collections.abc import Sequence

from opensafeintent.analysis.cohort import Cohort
from opensafeintent.analysis.reference_models import reference_values
from opensafeintent.metrics import METRICS, STATED_POLICY
from opensafeintent.report.figures.kit import GREY, VERMILION, Datum, Spec, empty, mark, quantity
from opensafeintent.report.figures.label_places import SIDE
from opensafeintent.report.figures.scatter import computed, positions, scatter, span_of

PRINT_SIDE = 300
"""Pixels of a side in a drawing for print."""


def frontier(cohort: Cohort, side: int = SIDE) -> Spec:
    """Draw Triplet Safety against Mean Utility: models, the frontier that they form, points of
    reference.
    """
    metrics = "mean_utility", "triplet_safety"
    rows = positions(cohort.estimates, *metrics)
    if not rows:
        return empty()
    x, y = map(reference_values, metrics)
    rows.append(
        computed(
            "oracle",
            "knows the intent: helpfulness 4, 3, 3, all safe",
            x.oracle,
            y.oracle,
        )
    )
    if not any(row["model"].startswith("baseline/refuse-all") for row in rows):
        rows.append(computed("refuse everything", "by definition", x.refuse_all, y.refuse_all))
    spans = [
        span_of(
            metric,
            min(row[f"low_{axis}"] for row in rows),
            max(row[f"high_{axis}"] for row in rows),
        )
        for axis, metric in zip("xy", metrics, strict=True)
    ]
    labels = [METRICS[metric].label for metric in metrics]
    steps = _steps([row for row in rows if not row["fixed"]])
    return scatter(rows, labels, spans, under=[steps], side=side)


def _steps(points: Sequence[Datum]) -> Spec:
    """Return the frontier: the models that no other beats in both, joined by steps."""
    best = [{"x": x, "y": y} for x, y in _unbeaten([(row["x"], row["y"]) for row in points])]
    return mark(
        "line",
        {"x": quantity("x"), "y": quantity("y"), "order": quantity("x")},
        rows=best,
        interpolate="step-before",
        color=VERMILION,
        strokeDash=[4, 3],
        strokeWidth=1.3,
    )


def has_steps(cohort: Cohort) -> bool:
    """Tell whether the frontier joins two models or more."""
    rows = positions(cohort.estimates, "mean_utility", "triplet_safety")
    return len({*_unbeaten([(row["x"], row["y"]) for row in rows if not row["fixed"]])}) > 1


def _unbeaten(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the points that no other one beats: at least as far in both, and elsewhere."""
    return [
        (x, y)
        for x, y in points
        if not any(
            other_x >= x and other_y >= y and (other_x, other_y) != (x, y)
            for other_x, other_y in points
        )
    ]


def stated_policy(cohort: Cohort, side: int = SIDE) -> Spec:
    """Draw how well stated policy and behaviour separate malicious from dual-use prompts."""
    rows = positions(cohort.estimates, STATED_POLICY.actual, STATED_POLICY.stated)
    if not rows:
        return empty()
    ends = [row[end] for row in rows for end in ("low_x", "low_y")]
    low, high = span = span_of(STATED_POLICY.stated, min(0.5, *ends), 1.0)
    at = {"x": quantity("x"), "y": quantity("y")}
    lines = ([(0.5, low), (0.5, high)], [(low, 0.5), (high, 0.5)])
    under = [
        mark(
            "line",
            at,
            rows=[{"x": x, "y": y} for x, y in line],
            color=GREY,
            opacity=0.5,
        )
        for line in lines
    ]
    labels = "Behaviour: less help for malicious prompts", "Stated policy: stricter for them"
    return scatter(rows, labels, (span, span), under=under, side=side)
