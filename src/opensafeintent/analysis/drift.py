"""Has a judge of one name changed? What it says today of responses that it graded before."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import msgspec
import numpy as np

from opensafeintent.evaluation.records import JudgeGrades
from opensafeintent.evaluation.run import Regrade
from opensafeintent.statistics import CONFIDENCE, Estimate, rounded
from opensafeintent.statistics.flips import flip_interval

__all__ = ["Drift", "SecondGrades", "Shift", "drift_of"]


_METHOD = "sign-flip"


class SecondGrades(Regrade, frozen=True, kw_only=True):
    """One old response, with its grades on record and those of today."""

    rows: dict[str, tuple[int | None, int | None]] = msgspec.field(default_factory=dict)
    """By judge, the rows in the ledger that helpfulness and harm of today come from."""


class Shift(msgspec.Struct, frozen=True, kw_only=True):
    """How a judge's grades of the same responses differ: today's minus those on record."""

    judge: str
    what: str
    """`helpfulness`, raw from 1 to 4, or `safe`, the share of responses graded safe."""
    responses: int
    """Those with a grade both times."""
    shift: Estimate
    """`n` counts prompt-sets."""

    @property
    def beyond(self) -> bool:
        """Whether the interval leaves out 0: the judge has changed."""
        return self.shift.leaves_out_zero


class Drift(msgspec.Struct, frozen=True, kw_only=True):
    """What became of old grades when they were given again."""

    run: str
    """Whose responses they were: the oldest run of the order."""
    kept: str
    """In the ledger of which run the second grades are: the newest."""
    responses: int
    confidence: float
    """Of each interval: together they hold at 95 %."""
    shifts: tuple[Shift, ...]
    grades: tuple[SecondGrades, ...] = ()
    """What the shifts are of."""

    @property
    def changed(self) -> list[Shift]:
        """The shifts beyond their intervals."""
        return [shift for shift in self.shifts if shift.beyond]


def drift_of(regrades: Sequence[SecondGrades], judges: Sequence[str], *, run: str, kept: str) -> Drift:
    """Return how far each judge has shifted, the prompt-set as the unit.

    The grades of a judge that has not changed may be exchanged, then for now, and that is what the intervals suppose: judges
    that have not changed are told changed in 5 % of checks at most, since each interval is at 1 − .05 / (2 × judges).

    Args:
        regrades: responses with the grades on record and those of today.
        judges: who gave them.
        run, kept: see `Drift`.
    """
    confidence = 1 - (1 - CONFIDENCE) / (2 * max(len(judges), 1))
    shifts = tuple(
        _shift(regrades, judge, what, widest, value, confidence)
        for judge in judges
        for what, widest, value in (("helpfulness", 3.0, _helpfulness), ("safe", 1.0, _safe))
    )
    return Drift(run=run, kept=kept, responses=len(regrades), confidence=confidence, shifts=shifts, grades=tuple(regrades))


def _shift(
    regrades: Iterable[Regrade],
    judge: str,
    what: str,
    widest: float,
    value: Callable[[JudgeGrades], float | None],
    confidence: float,
) -> Shift:
    by_set: dict[str, list[float]] = {}
    for item in regrades:
        pair = [value(grades[judge]) if judge in grades else None for grades in (item.first, item.again)]
        if pair[0] is not None and pair[1] is not None:
            by_set.setdefault(item.set_id, []).append(pair[1] - pair[0])
    if not by_set:
        return Shift(judge=judge, what=what, responses=0, shift=Estimate(value=None, n=0))
    sums = np.array([sum(found) for _, found in sorted(by_set.items())], dtype=np.float64)
    counts = np.array([len(found) for _, found in sorted(by_set.items())], dtype=np.float64)
    moved = any(change for found in by_set.values() for change in found)
    shift = Estimate(value=rounded(sums.sum() / counts.sum()), n=len(by_set))
    if moved:  # where no grade did, flipping signs tells nothing of how far it could have
        low, high = flip_interval(sums, counts, widest, confidence)
        shift = Estimate(value=shift.value, n=shift.n, interval=(rounded(low), rounded(high)), method=_METHOD)
    return Shift(judge=judge, what=what, responses=int(counts.sum()), shift=shift)


def _helpfulness(grades: JudgeGrades) -> float | None:
    return float(grades.helpfulness) if isinstance(grades.helpfulness, int) else None


def _safe(grades: JudgeGrades) -> float | None:
    return float(grades.harm_severity == 0) if isinstance(grades.harm_severity, int) else None
