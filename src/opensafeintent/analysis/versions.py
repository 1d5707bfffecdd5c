"""What changed from one version of a model to the next: runs in the order that the user named, old to new.

Everything is paired over prompt-sets, and about these versions on other prompt-sets of the kind: about the next version it
says nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from opensafeintent.analysis.drift import Drift
from opensafeintent.analysis.groups import Group
from opensafeintent.analysis.numbers import COMPARED, comparisons_of
from opensafeintent.metrics import METRICS, PRIMARY, Ratio
from opensafeintent.statistics import Comparison, Difference, Estimate, Resamples, estimate, rounded

__all__ = [
    "TURNOVER",
    "Line",
    "Order",
    "SetChange",
    "Step",
    "Turnover",
    "Version",
    "Versions",
    "order_groups",
    "slopes",
    "steps_of",
    "turnover",
]

Floats = NDArray[np.float64]

TURNOVER = "triplet_safety"
"""The metric whose sets newly fail or are mended."""
_FEWEST_VERSIONS = 3
"""For a trend: of two versions the change says it all."""


class Version(msgspec.Struct, frozen=True, kw_only=True):
    """One run of the order, and when the calls behind it were made: days, as `YYYY-MM-DD` in UTC."""

    run: str
    first_call: str | None = None
    """None where nothing but an import is on record."""
    last_call: str | None = None


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """Runs named old to new, and which of their models are versions of one another."""

    versions: tuple[Version, ...]
    lines: tuple[tuple[str, ...], ...]
    """Models that are versions of one another, by their names in their runs, a name for each run."""
    left_aside: tuple[tuple[str, str], ...] = ()
    """(Run, model) of models that are not in every run."""
    drift: Drift | None = None
    """What became of old grades when they were given again; None where that was not asked for."""


class Step(NamedTuple):
    """From one version to a later one: places in the order."""

    older: int
    newer: int


def steps_of(versions: int) -> list[Step]:
    """Return every step from one version to the next, and from the first to the last where it is another."""
    steps = [Step(place, place + 1) for place in range(versions - 1)]
    return [*steps, Step(0, versions - 1)] if versions > 2 else steps


class SetChange(msgspec.Struct, frozen=True, kw_only=True):
    """A prompt-set that is safe across intents more often, or less often, than in the version before."""

    set_id: str
    before: float
    """Share of its repeats in which it was safe across intents: 0 or 1 with one repeat."""
    after: float


class Turnover(msgspec.Struct, frozen=True, kw_only=True):
    """Prompt-sets that newly fail, or are mended, from one version to the next.

    Counts are of one repeat against one: with p and q the shares of a set's repeats in which it was safe before and is now,
    p(1 − q) summed over sets newly fail and (1 − p)q are mended; with one repeat each these are whole sets.
    """

    n: int
    """Prompt-sets that count in both versions."""
    failing: float
    mended: float
    expected: float | None
    """As many would newly fail, and as many be mended, with nothing changed; None where neither version was repeated."""
    failing_excess: Estimate | None = None
    """`failing` less `expected`, in prompt-sets, of the sets that tell what to expect."""
    mended_excess: Estimate | None = None
    newly_failing: tuple[SetChange, ...] = ()
    """Those safe less often than before, the largest fall first."""
    newly_mended: tuple[SetChange, ...] = ()


class Line:
    """One model through its versions.

    Attributes:
        group: of the report, which holds every version of it.
        name: of the newest version, in its run.
        models: the versions as the report shows them, old to new.
        places: their indices in the group.
    """

    def __init__(self, group: Group, name: str, models: Sequence[str]) -> None:
        self.group = group
        self.name = name
        self.models = tuple(models)
        self.places = [group.models.index(model) for model in models]
        self.steps = steps_of(len(models))

    def _values(self, metric: str) -> tuple[Floats, Floats]:
        """Return numerator and denominator of its versions, each of shape (version, prompt_set)."""
        ratio = self.group.numbers.ratios[metric]
        return ratio.numerator.values[self.places], ratio.denominator.values[self.places]

    @cached_property
    def comparisons(self) -> dict[str, Comparison]:
        """Differences of every two versions, by metric: one family for each metric, all pairs of these versions."""
        found = {metric: self.group.numbers.ratios[metric] for metric in COMPARED}
        ratios = {
            metric: Ratio(ratio.numerator.isel(model=self.places), ratio.denominator.isel(model=self.places))
            for metric, ratio in found.items()
        }
        weights = self.group.numbers.weights
        picked = weights.picked(np.array(self.places), slice(None)) if weights else None
        return comparisons_of(ratios, self.group.numbers.resamples, picked)

    def change(self, metric: str, step: Step) -> Difference | None:
        """Return the later version's value minus the earlier one's; None where no prompt-set counts for both."""
        return self.comparisons[metric].pair(step.older, step.newer)

    @cached_property
    def trends(self) -> dict[str, Estimate]:
        """The slope per version of the primary metrics, from three versions on."""
        if len(self.models) < _FEWEST_VERSIONS:
            return {}
        return {metric: slope(*self._values(metric), METRICS[metric].span, self._resamples) for metric in PRIMARY}

    @cached_property
    def turnovers(self) -> list[Turnover]:
        """What newly fails and what is mended, of every version and the next."""
        shares, repeats = self._repeats()
        ids = [str(name) for name in self.group.array.labels["prompt_set"]]
        return [
            turnover((shares[old], repeats[old]), (shares[new], repeats[new]), ids, self._resamples)
            for old, new in pairwise(range(len(self.models)))
        ]

    def _repeats(self) -> tuple[Floats, Floats]:
        """Return the share of a set's repeats that are safe across intents, and their number: (version, prompt_set)."""
        parts = [ratios[TURNOVER] for ratios in self.group.numbers.by_epoch]
        safe = sum(np.where(part.numerator.values[self.places] > 0, 1.0, 0.0) for part in parts)
        there = sum(np.where(part.denominator.values[self.places] > 0, 1.0, 0.0) for part in parts)
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.where(there > 0, safe / there, np.nan), np.asarray(there, dtype=np.float64)

    @property
    def _resamples(self) -> Resamples:
        return self.group.numbers.resamples


class Versions:
    """What a report says of the versions in one of its groups."""

    def __init__(self, order: Order, lines: Sequence[Line]) -> None:
        self.order = order
        self.lines = lines

    def turned(self, line: Line) -> Iterator[tuple[Version, Version, Turnover]]:
        """Yield each version, the next, and what newly fails or is mended between them."""
        for (older, newer), found in zip(pairwise(self.order.versions), line.turnovers, strict=True):
            yield older, newer, found

    @property
    def repeated(self) -> bool:
        """Whether the repeats of any version tell what to expect from chance."""
        return any(found.expected is not None for line in self.lines for found in line.turnovers)


def order_groups(groups: Sequence[Group], order: Order) -> None:
    """Have each group of a report know which of its models are versions of one another."""
    for group in groups:
        shown = {tuple(origin): name for name, origin in group.origins.items()}
        lines = []
        for line in order.lines:
            places = [(version.run, model) for version, model in zip(order.versions, line, strict=True)]
            if all(place in shown for place in places):
                lines.append(Line(group, line[-1], [shown[place] for place in places]))
        if lines:
            group.versions = Versions(order, lines)


# The arithmetic --------------------------------------------------------------------------------------------------------


def slopes(versions: int) -> Floats:
    """Return what each version weighs in a slope per version, the least-squares line through equally spaced versions.

    Σ (v − v̄) y_v / Σ (v − v̄)²: of three versions −½, 0, ½.

    Returns:
        Shape (version,); they add up to 0.
    """
    places = np.arange(versions, dtype=np.float64) - (versions - 1) / 2
    return np.asarray(places / (places @ places), dtype=np.float64)


def slope(top: Floats, bottom: Floats, span: tuple[float, float], resamples: Resamples) -> Estimate:
    """Return the mean over prompt-sets of each set's own slope per version, over the sets that count in every version.

    Args:
        top, bottom: numerator and denominator, shape (version, prompt_set).
        span: least and greatest value of the metric.
        resamples: of as many prompt-sets.
    """
    weights = slopes(len(top))
    counted = (bottom > 0).all(axis=0)
    weight = np.where(counted, bottom.max(axis=0), 0.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        values = np.where(counted, top / bottom, 0.0)
    steepest = float(weights[weights > 0].sum()) * (span[1] - span[0])
    (found,) = estimate((weights @ values * weight)[None], weight[None], resamples, span=(-steepest, steepest)).records()
    return found


def turnover(
    before: tuple[Floats, Floats], after: tuple[Floats, Floats], ids: Sequence[str], resamples: Resamples
) -> Turnover:
    """Return which prompt-sets newly fail and which are mended, and how many would with nothing changed.

    If a set is safe with probability p in either version, one repeat of each disagree in one direction with probability
    p(1 − p). From E repeats of one version E/(E − 1) · p̂(1 − p̂) estimates that without bias: it is half the share of pairs
    of its repeats that disagree. The mean of both versions' is taken where both were repeated: a set that truly changed, from
    always safe to never, adds nothing to what chance explains. Over the sets that tell, it is scaled to all that count.

    Args:
        before, after: of either version, the share of each set's complete repeats in which it is safe, NaN where there is
            none, and their number: each of shape (prompt_set,).
        ids: of the prompt-sets.
        resamples: of as many.
    """
    (p, repeats_before), (q, repeats_after) = before, after
    both = (repeats_before > 0) & (repeats_after > 0)
    n = int(both.sum())
    failing, mended = (np.where(both, part, 0.0) for part in (np.nan_to_num(p * (1 - q)), np.nan_to_num((1 - p) * q)))
    noise, told = _noise((p, q), (repeats_before, repeats_after))
    told &= both
    noise = np.where(told, noise, 0.0)
    expected = float(noise.sum()) * n / int(told.sum()) if told.any() else None

    def excess(found: Floats) -> Estimate | None:  # of a set at most 1, at least −½: half of two repeats of one version
        if not told.any():
            return None
        rows = np.where(told, found - noise, 0.0)[None], told.astype(np.float64)[None]
        (mean,) = estimate(*rows, resamples, span=(-0.5, 1.0)).records()
        return _times(mean, n)

    changed = [
        SetChange(set_id=ids[place], before=rounded(p[place]), after=rounded(q[place]))
        for place in np.flatnonzero(both & (np.nan_to_num(p) != np.nan_to_num(q))).tolist()
    ]
    changed.sort(key=lambda found: (-abs(found.after - found.before), found.set_id))
    return Turnover(
        n=n,
        failing=rounded(failing.sum()),
        mended=rounded(mended.sum()),
        expected=None if expected is None else rounded(expected),
        failing_excess=excess(failing),
        mended_excess=excess(mended),
        newly_failing=tuple(found for found in changed if found.after < found.before),
        newly_mended=tuple(found for found in changed if found.after > found.before),
    )


def _noise(shares: tuple[Floats, Floats], repeats: tuple[Floats, Floats]) -> tuple[Floats, NDArray[np.bool_]]:
    """Return how often one repeat of a set is safe and another is not, over the versions that tell, and where one does."""
    found = np.zeros((2, len(shares[0])))
    told: NDArray[np.bool_] = np.array([count >= 2 for count in repeats])
    for place, (share, count) in enumerate(zip(shares, repeats, strict=True)):
        with np.errstate(invalid="ignore", divide="ignore"):
            found[place] = np.where(told[place], share * (1 - share) * count / (count - 1), 0.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.nan_to_num(found.sum(axis=0) / told.sum(axis=0)), told[0] | told[1]


def _times(found: Estimate, n: int) -> Estimate:
    """Return an estimate of a mean over n sets as one of their sum."""
    interval = None if found.interval is None else (rounded(found.interval[0] * n), rounded(found.interval[1] * n))
    value = None if found.value is None else rounded(found.value * n)
    return msgspec.structs.replace(found, value=value, interval=interval)
