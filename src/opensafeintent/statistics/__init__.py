"""How sure a number is (docs/statistics.md): the prompt-set is the unit of everything here."""

from opensafeintent.statistics.comparisons import (
    Comparison,
    Difference,
    compare_models,
    mean_test,
    rank_intervals,
)
from opensafeintent.statistics.intervals import (
    CONFIDENCE,
    FEWEST_SETS,
    Estimate,
    Estimates,
    estimate,
    round_number,
    share_estimate,
    share_interval,
)

__all__ = [
    "CONFIDENCE",
    "FEWEST_SETS",
    "Comparison",
    "Difference",
    "Estimate",
    "Estimates",
    "compare_models",
    "estimate",
    "mean_test",
    "rank_intervals",
    "round_number",
    "share_estimate",
    "share_interval",
]
