"""How sure a number is (docs/statistics.md): the prompt-set is the unit of everything here."""

from opensafeintent.statistics.comparisons import (
    SIGNIFICANCE,
    Comparison,
    Difference,
    compare_models,
    rank_intervals,
)
from opensafeintent.statistics.exact import CONFIDENCE, mid_p
from opensafeintent.statistics.intervals import (
    FEWEST_SETS,
    Estimate,
    Estimates,
    Resamples,
    estimate,
    rounded,
)

__all__ = [
    "CONFIDENCE",
    "FEWEST_SETS",
    "SIGNIFICANCE",
    "Comparison",
    "Difference",
    "Estimate",
    "Estimates",
    "Resamples",
    "compare_models",
    "estimate",
    "mid_p",
    "rank_intervals",
    "rounded",
]
