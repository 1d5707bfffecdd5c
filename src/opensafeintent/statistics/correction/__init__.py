"""Numbers corrected for what a judge gets wrong, from responses that people have labelled (docs/correction.md)."""

from opensafeintent.statistics.correction.from_rates import mean_from_rates, triplet_from_rates
from opensafeintent.statistics.correction.powered import FEWEST_LABELS, Sample, prediction_powered
from opensafeintent.statistics.correction.rates import FEWEST_OF_CLASS, JudgedLabels, Rates, judge_rates
from opensafeintent.statistics.correction.records import Corrected, Method, Refused

__all__ = [
    "FEWEST_LABELS",
    "FEWEST_OF_CLASS",
    "Corrected",
    "JudgedLabels",
    "Method",
    "Rates",
    "Refused",
    "Sample",
    "judge_rates",
    "mean_from_rates",
    "prediction_powered",
    "triplet_from_rates",
]
