"""How sure a number is (docs/statistics.md): the prompt-set is the unit of everything here."""

from opensafeintent.statistics.comparisons import Comparison, compare_models, holm, rank_intervals
from opensafeintent.statistics.intervals import Estimates, Resamples, estimate, wilson

__all__ = [
    "Comparison",
    "Estimates",
    "Resamples",
    "compare_models",
    "estimate",
    "holm",
    "rank_intervals",
    "wilson",
]
