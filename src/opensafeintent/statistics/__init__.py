"""How sure a number is (docs/statistics.md): the prompt-set is the unit of everything here."""

from opensafeintent.statistics.comparisons import (
    Comparison,
    Difference,
    compare_models,
    compute_rank_intervals,
    run_mean_test,
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
    "compute_rank_intervals",
    "estimate",
    "round_number",
    "run_mean_test",
    "share_estimate",
    "share_interval",
]
