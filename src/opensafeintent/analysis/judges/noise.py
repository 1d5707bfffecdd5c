"""How far a judge agrees with itself: what is left when the same response is put to it twice."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import sqrt

import msgspec
import numpy as np
from numpy.typing import NDArray

from opensafeintent.analysis.groups import Group
from opensafeintent.analysis.judges.graders import PANEL, Pair
from opensafeintent.analysis.judges.values import GRADES, HARM_GRADES, SAFE, Ratings
from opensafeintent.evaluation.records import JudgeGrades, Missing
from opensafeintent.evaluation.run import Regrade
from opensafeintent.grades import panel_grade
from opensafeintent.statistics import Estimate, rounded
from opensafeintent.statistics.samples import Sample
from opensafeintent.taxonomy import CORE_VARIANTS, is_dual_use

__all__ = ["Noise", "noise_of"]

Flags = NDArray[np.bool_]


class Noise(msgspec.Struct, frozen=True, kw_only=True):
    """One judge, or the panel, on responses that it graded twice."""

    responses: int
    """Put to it twice."""
    missing: int
    """Of those, without a second grade to compare, for helpfulness or harm."""
    helpfulness_equal: Estimate
    harm_severity_equal: Estimate
    helpfulness_difference: Estimate
    """Mean absolute difference of the two grades."""
    harm_severity_difference: Estimate
    safe_flips: Estimate
    """Share of responses that were safe once and unsafe once."""
    safe_ac1: Estimate
    mean_safety_se: float | None
    """Standard error of a model's Mean Safety from this alone."""
    mean_safety_sets: int
    """Prompt-sets that it is for: the median over models."""


def noise_of(group: Group) -> dict[str, Noise]:
    """Return the noise of each judge, and of the panel where there are several; empty where nothing was graded twice."""
    twice = [item for items in group.regrades.values() for item in items if item.again]
    judges = sorted({judge for item in twice for judge in item.again})
    if not twice:
        return {}
    sample = Sample([item.set_id for item in twice])
    found = {judge: _noise(group, twice, sample, _by(judge)) for judge in judges}
    if len(judges) > 1:
        found[PANEL] = _noise(group, twice, sample, _panel)
    return found


def _by(judge: str) -> Callable[[dict[str, JudgeGrades]], Pair]:
    return lambda grades: _pair(grades.get(judge))


def _pair(grades: JudgeGrades | None) -> Pair:
    if grades is None:
        return None, None
    helpfulness, harm = (
        None if isinstance(grade, Missing) else grade for grade in (grades.helpfulness, grades.harm_severity)
    )
    return helpfulness, harm


def _panel(grades: dict[str, JudgeGrades]) -> Pair:
    pairs = [_pair(one) for one in grades.values()]
    return panel_grade("helpfulness", [pair[0] for pair in pairs]), panel_grade("harm_severity", [pair[1] for pair in pairs])


def _noise(group: Group, twice: Sequence[Regrade], sample: Sample, pick: Callable[[dict[str, JudgeGrades]], Pair]) -> Noise:
    pairs = np.array([[pick(item.first), pick(item.again)] for item in twice], dtype=np.float64)  # None becomes NaN
    helpfulness, harm = (Ratings(sample, pairs[:, :, what]) for what in (0, 1))
    judged_safe = np.where(np.isnan(pairs[:, :, 1]), np.nan, (pairs[:, :, 1] == 0).astype(np.float64))
    safe = Ratings(sample, judged_safe)
    flips = np.asarray(judged_safe[:, 0] != judged_safe[:, 1])
    graded = np.asarray(~np.isnan(judged_safe).any(axis=1))
    n = int(np.median([found.n for found in group.numbers.estimates["mean_safety"]])) * group.array.sizes["epoch"]
    return Noise(
        responses=len(twice),
        missing=int(np.isnan(pairs).any(axis=(1, 2)).sum()),
        helpfulness_equal=helpfulness.agreement(GRADES),
        harm_severity_equal=harm.agreement(HARM_GRADES),
        helpfulness_difference=helpfulness.difference(3.0, absolute=True),
        harm_severity_difference=harm.difference(3.0, absolute=True),
        safe_flips=safe.difference(1.0, absolute=True),
        safe_ac1=safe.gwet(SAFE, "identity"),
        mean_safety_se=_standard_error([item.variant for item in twice], flips, graded, n),
        mean_safety_sets=n,
    )


def _standard_error(variants: Sequence[str], flips: Flags, graded: Flags, sets: int) -> float | None:
    """Return the standard error of Mean Safety over so many sets that comes from the judge alone.

    A grading is a draw: the variance within a response is half the mean squared difference of two of them (Bland and Altman,
    Measurement error, BMJ 313, 1996), which for safe or not is half the share of flips. Mean Safety averages one response of
    each intent t: √(Σ_t flips_t / 2 / (9 N)). None where an intent has no response that was graded twice.
    """
    total = 0.0
    for intent in CORE_VARIANTS:
        own = np.array([(is_dual_use(variant) if is_dual_use(intent) else variant == intent) for variant in variants])
        if not (own & graded).any():
            return None
        total += float(flips[own & graded].mean()) / 2
    return rounded(sqrt(total / 9 / sets)) if sets else None
