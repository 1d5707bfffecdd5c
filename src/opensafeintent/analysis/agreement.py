"""How far judges agree with one another, and each with itself when the same response is put to it
twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from math import sqrt

import msgspec
import numpy as np
from numpy.typing import NDArray

from opensafeintent.evaluation.again import Regrade
from opensafeintent.evaluation.records import JudgeGrades, Missing
from opensafeintent.grades import GradeRow, panel_grade
from opensafeintent.statistics import Estimate, rounded
from opensafeintent.statistics.agreement import RatingCounts, Scheme
from opensafeintent.statistics.samples import Sample
from opensafeintent.taxonomy import CORE_VARIANTS, SCALES, intent_of

PANEL = "panel"
"""What tables and figures call the panel of all judges."""

GRADES, HARM_GRADES = SCALES["helpfulness"], SCALES["harm_severity"]
SAFE = (0, 1)

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Pair = tuple[int | None, int | None]
"""Helpfulness and harm severity of one response."""


class Ratings:
    """Ratings of responses, those that one rater alone has rated left aside.

    Args:
        sample: the responses, with their prompt-sets as units.
        ratings: shape (response, rater), NaN where there is none.
    """

    def __init__(self, sample: Sample, ratings: Floats) -> None:
        twice = (~np.isnan(ratings)).sum(axis=1) > 1
        self.ratings = np.where(twice[:, None], ratings, np.nan)
        self._sample = sample

    def agreement(self, categories: Sequence[int]) -> Estimate:
        """Return the share of pairs of ratings that are the same."""
        return plain_estimate(
            self._sample.mean(RatingCounts.of(self.ratings, categories).pairwise(), "score")
        )

    def gwet(self, categories: Sequence[int], scheme: Scheme) -> Estimate:
        """Return Gwet's AC1 (`identity`) or AC2 (`quadratic`)."""
        return plain_estimate(self._sample.gwet(RatingCounts.of(self.ratings, categories), scheme))

    def difference(self, categories: Sequence[int], *, absolute: bool = False) -> Estimate:
        """Return the mean of the second rater's rating less the first's, or of how far they are
        apart.

        Args:
            categories: every rating that there can be, in order.
            absolute: whether the sign is left out.
        """
        differences, greatest = (
            self.ratings[:, 1] - self.ratings[:, 0],
            float(categories[-1] - categories[0]),
        )
        if absolute:
            return plain_estimate(self._sample.mean(np.abs(differences), "score", greatest))
        return plain_estimate(self._sample.mean(differences, "difference", greatest))


def plain_estimate(found: Estimate) -> Estimate:
    """Return an estimate as `metrics.json` has it."""
    value = None if found.value is None else rounded(found.value)
    return Estimate(value=value, n=found.n, interval=found.interval, method=found.method)


# Between judges
# ------------------------------------------------------------------------------


class JudgeAgreement(msgspec.Struct, frozen=True, kw_only=True):
    """Two judges, or all of a panel, on the responses that they were both asked about."""

    judges: tuple[str, ...]
    safe: Estimate
    """Share of pairs of judges that agree on whether a response is safe."""
    safe_ac1: Estimate
    helpfulness: Estimate
    """Share of pairs that give the same grade."""
    helpfulness_ac2: Estimate
    """Gwet's AC2 with quadratic weights."""
    harm_severity: Estimate
    harm_severity_ac2: Estimate
    safe_rates: tuple[float | None, ...]
    """Share of responses that each judge calls safe, in the order of `judges`."""
    helpfulness_difference: Estimate | None = None
    """Of two judges: mean of the second's grade less the first's."""
    harm_severity_difference: Estimate | None = None


def agreements_of(rows: Iterable[GradeRow], judges: Sequence[str]) -> list[JudgeAgreement]:
    """Return the agreement of every two judges, and of all together where there are three or more.

    Responses that count as refusals without a judge are left aside: nobody was asked about them.
    """
    rows = sorted(
        (row for row in rows if not row.refused and len(row.by_judge) > 1),
        key=lambda row: row.set_id,
    )
    if not rows:
        return []
    sample = Sample([row.set_id for row in rows])
    pairs = np.array(
        [[row.by_judge.get(judge, (None, None)) for judge in judges] for row in rows],
        dtype=np.float64,
    )  # None becomes NaN
    chosen = [
        *combinations(range(len(judges)), 2),
        *([tuple(range(len(judges)))] if len(judges) > 2 else []),
    ]
    return [
        _agreement([judges[index] for index in who], sample, pairs[:, list(who)]) for who in chosen
    ]


def judges_differ(row: GradeRow) -> bool:
    """Tell whether judges differ on "safe", as their agreement has it: those without a grade of
    harm are left aside.
    """
    return len({harm == 0 for _, harm in row.by_judge.values() if harm is not None}) > 1


def _agreement(judges: Sequence[str], sample: Sample, pairs: Floats) -> JudgeAgreement:
    helpfulness, harm = (Ratings(sample, pairs[:, :, what]) for what in (0, 1))
    safe = Ratings(sample, _safe(pairs[:, :, 1]))
    two = len(judges) == 2
    return JudgeAgreement(
        judges=tuple(judges),
        safe=safe.agreement(SAFE),
        safe_ac1=safe.gwet(SAFE, "identity"),
        helpfulness=helpfulness.agreement(GRADES),
        helpfulness_ac2=helpfulness.gwet(GRADES, "quadratic"),
        harm_severity=harm.agreement(HARM_GRADES),
        harm_severity_ac2=harm.gwet(HARM_GRADES, "quadratic"),
        safe_rates=tuple(_mean(rated) for rated in safe.ratings.T),
        helpfulness_difference=helpfulness.difference(GRADES) if two else None,
        harm_severity_difference=harm.difference(HARM_GRADES) if two else None,
    )


def _mean(values: Floats) -> float | None:
    there = values[~np.isnan(values)]
    return rounded(there.mean()) if len(there) else None


def _safe(harm: Floats) -> Floats:
    """Return 1 where a harm grade says safe, 0 where not, NaN where there is none."""
    return np.where(np.isnan(harm), np.nan, (harm == 0).astype(np.float64))


# Of a judge with itself
# ------------------------------------------------------------------------------


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


def noise_of(regrades: Iterable[Regrade], sets: int = 0) -> dict[str, Noise]:
    """Return the noise of each judge, and of the panel where there are several; empty where nothing
    was graded twice.

    Args:
        regrades: responses that were put to the judges twice.
        sets: prompt-sets, epochs included, for which the standard error of Mean Safety is told;
            none without any.
    """
    twice = sorted((item for item in regrades if item.again), key=lambda item: item.set_id)
    judges = sorted({judge for item in twice for judge in item.again})
    if not twice:
        return {}
    sample = Sample([item.set_id for item in twice])
    graders = (*judges, *([PANEL] if len(judges) > 1 else []))
    return {grader: _noise(twice, sample, grader, sets) for grader in graders}


def graded_by(grader: str, grades: Mapping[str, JudgeGrades]) -> Pair:
    """Return what one judge gave, or the panel of all of them; a missing grade is None."""
    if grader == PANEL:
        pairs = [graded_by(judge, grades) for judge in grades]
        return (
            panel_grade("helpfulness", [helpfulness for helpfulness, _ in pairs]),
            panel_grade("harm_severity", [harm for _, harm in pairs]),
        )
    if grader not in grades:
        return None, None
    own = grades[grader]
    return (
        None if isinstance(own.helpfulness, Missing) else own.helpfulness,
        None if isinstance(own.harm_severity, Missing) else own.harm_severity,
    )


def _noise(twice: Sequence[Regrade], sample: Sample, grader: str, sets: int) -> Noise:
    pairs = np.array(
        [[graded_by(grader, item.first), graded_by(grader, item.again)] for item in twice],
        dtype=np.float64,
    )  # None becomes NaN
    helpfulness, harm = (Ratings(sample, pairs[:, :, what]) for what in (0, 1))
    judged_safe = _safe(pairs[:, :, 1])
    safe = Ratings(sample, judged_safe)
    flips = np.asarray(judged_safe[:, 0] != judged_safe[:, 1])
    graded = np.asarray(~np.isnan(judged_safe).any(axis=1))
    return Noise(
        responses=len(twice),
        missing=int(np.isnan(pairs).any(axis=(1, 2)).sum()),
        helpfulness_equal=helpfulness.agreement(GRADES),
        harm_severity_equal=harm.agreement(HARM_GRADES),
        helpfulness_difference=helpfulness.difference(GRADES, absolute=True),
        harm_severity_difference=harm.difference(HARM_GRADES, absolute=True),
        safe_flips=safe.difference(SAFE, absolute=True),
        safe_ac1=safe.gwet(SAFE, "identity"),
        mean_safety_se=_standard_error([item.variant for item in twice], flips, graded, sets),
        mean_safety_sets=sets,
    )


def _standard_error(
    variants: Sequence[str], flips: Flags, graded: Flags, sets: int
) -> float | None:
    """Return the standard error of Mean Safety over so many sets that comes from the judge alone.

    A grading is a draw: the variance within a response is half the mean squared difference of two
    of them (Bland and Altman, Measurement error, BMJ 313, 1996), which for safe or not is half the
    share of flips. Mean Safety averages one response of
    each intent t: √(Σ_t flips_t / 2 / (9 N)). None where an intent has no response that was graded
    twice.
    """
    total = 0.0
    for intent in CORE_VARIANTS:
        own = np.array([intent_of(variant) == intent for variant in variants])
        if not (own & graded).any():
            return None
        total += float(flips[own & graded].mean()) / 2
    return rounded(sqrt(total / 9 / sets)) if sets else None
