"""A report's numbers corrected by what people said of its responses (docs/correction.md)."""

from opensafeintent.analysis.correction.estimates import CORRECTED, CorrectedGroup, Correction, correct
from opensafeintent.analysis.correction.truths import HumanLabels, Truth, read_human_labels

__all__ = [
    "CORRECTED",
    "CorrectedGroup",
    "Correction",
    "HumanLabels",
    "Truth",
    "correct",
    "read_human_labels",
]
