"""How sure a number is (docs/statistics.md): the prompt-set is the unit of everything here."""

from opensafeintent.statistics.comparisons import Comparison, compare_models, holm, rank_intervals
from opensafeintent.statistics.intervals import Estimate, Estimates, Resamples, estimate, rounded, wilson

__all__ = [
    "Comparison",
    "Estimate",
    "Estimates",
    "Resamples",
    "compare_models",
    "estimate",
    "holm",
    "rank_intervals",
    "rounded",
    "wilson",
]
