"""Intervals of ratios and of averages over models and strata, and Student's t."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import repeat
from math import atan, cos, isfinite, isnan, log, log1p, pi, sin, sqrt
from statistics import NormalDist, fmean
from typing import Any, NamedTuple, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

_MANY = 200
"""Degrees of freedom from which on the expansion in their inverse is exact to eight digits or more.
"""


@lru_cache(maxsize=4096)
def t_quantile(share: float, degrees: int) -> float:
    """Return the quantile of Student's t distribution, exact to about eight digits.

    Args:
        share: 0.5 or more, below 1.
        degrees: degrees of freedom, 1 or more.

    Source: Abramowitz and Stegun (1964), 26.7.3 and 26.7.4 for few degrees of freedom, 26.7.5 for
    many.
    """
    if degrees >= _MANY:
        return _expand_quantile(NormalDist().inv_cdf(share), degrees)
    low, high = 0.0, 1.0
    while t_within(high, degrees) < 2 * share - 1:
        high *= 2
    for _ in range(80):
        middle = (low + high) / 2
        if not low < middle < high:  # no number is between them
            break
        low, high = (middle, high) if t_within(middle, degrees) < 2 * share - 1 else (low, middle)
    return (low + high) / 2


def t_within(t: float, degrees: int) -> float:
    """Return the probability of a value between −t and t: a finite sum for whole degrees of
    freedom.
    """
    angle = atan(t / sqrt(degrees))
    square = cos(angle) ** 2
    odd = degrees % 2
    term = total = 1.0
    for step in range(2 + odd, degrees - 1, 2):
        term *= square * (step - 1) / step
        total += term
    if not odd:
        return sin(angle) * total if degrees > 0 else 0.0
    return 2 / pi * (angle + (sin(angle) * cos(angle) * total if degrees > 1 else 0.0))


def halve_until(reaches: Callable[[float], bool], tolerance: float) -> tuple[float, float]:
    """Return two numbers from 0 to 1, at most `tolerance` apart, between which a condition that
    holds from some number on begins to hold.
    """
    low, high = 0.0, 1.0
    while high - low > tolerance:
        middle = (low + high) / 2
        low, high = (low, middle) if reaches(middle) else (middle, high)
    return low, high


def _expand_quantile(x: float, degrees: int) -> float:
    terms = (
        (x**3 + x) / 4,
        (5 * x**5 + 16 * x**3 + 3 * x) / 96,
        (3 * x**7 + 19 * x**5 + 17 * x**3 - 15 * x) / 384,
        (79 * x**9 + 776 * x**7 + 1482 * x**5 - 1920 * x**3 - 945 * x) / 92160,
    )
    return x + sum(term / float(degrees) ** power for power, term in enumerate(terms, start=1))


Floats = NDArray[np.float64]
Parts = tuple[Floats, Floats]
"""Numerator and denominator."""

Units = NDArray[np.int64]
"""The number of the unit that each prompt-set belongs to, shape (prompt_set,): a family of sets, or
the set alone. None in its place if every set is alone.
"""


class Completed(NamedTuple):
    """A ratio whose missing values were filled in: arrays of shape (row, prompt_set)."""

    numerator: Floats
    denominator: Floats
    variance: Floats
    """What filling in adds to the variance of a set's numerator."""

    @classmethod
    def of(cls, parts: Parts | Completed) -> Completed:
        """Return a ratio that lacks nothing, or one that was completed, as it is."""
        return (
            parts if isinstance(parts, cls) else cls(parts[0], parts[1], np.zeros(parts[0].shape))
        )

    def take(self, rows: Any) -> Completed:
        """Return some rows."""
        return Completed(*(part[rows] for part in self))

    @property
    def value(self) -> Floats:
        """The ratio of each row, NaN if no set counts: shape (row,)."""
        with np.errstate(invalid="ignore", divide="ignore"):
            value: Floats = self.numerator.sum(axis=1) / self.denominator.sum(axis=1)
        return value

    @property
    def values(self) -> Completed:
        """The value of each set and its variance, in place of a numerator; 0 of one that does not
        count.
        """
        weights = np.where(self.denominator > 0, self.denominator, 1.0)
        return Completed(
            np.where(self.denominator > 0, self.numerator / weights, 0.0),
            self.denominator,
            self.variance / weights**2,
        )


CONFIDENCE = 0.95
SEED = 20260702
"""Of everything that is drawn at random."""
METHOD = "t-pseudo-observations"
"""Name of the interval of `estimate` in `ci_method`."""

FEWEST_JUDGES = 3
"""Judges whose spread says how far other judges would be: two leave one degree of freedom, with
which an interval is 13 standard errors to either side.
"""

FEWEST_SETS = 30
"""Prompt-sets: outputs that show a number from fewer sets mark it."""


def make_parts(values: Floats) -> Parts:
    """Return values of prompt-sets as numerator and denominator of a mean; one that is NaN does not
    count.
    """
    return np.nan_to_num(values), (~np.isnan(values)).astype(np.float64)


def index_units(names: Sequence[Hashable]) -> Units | None:
    """Return the units of prompt-sets from their names; None if no two have the same."""
    numbers, count = number_names(names)
    return None if count == len(names) else numbers


def number_names(names: Sequence[Hashable]) -> tuple[Units, int]:
    """Return the number of each name, from 0 in the order of their first place; and how many there
    are.
    """
    numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
    return np.array([numbers[name] for name in names], dtype=np.int64), len(numbers)


def sum_units(values: Floats, units: Units | None) -> Floats:
    """Return the sum over the prompt-sets of each unit: shape (…, prompt_set) becomes (…, unit)."""
    if units is None:
        return values
    order = np.argsort(units, kind="stable")
    starts = np.flatnonzero(np.diff(units[order], prepend=-1))
    return np.add.reduceat(values[..., order], starts, axis=-1)


def leave_out_zero(low: Floats, high: Floats) -> NDArray[np.bool_]:
    """Tell which intervals do not contain 0; one that is undefined does."""
    with np.errstate(invalid="ignore"):
        return np.asarray((low > 0) | (high < 0))


def round_number(number: float) -> float:
    """Return a number with six decimals: beyond them, the order in which a machine adds decides."""
    return round(float(number), 6) + 0.0


def round_defined(number: float) -> float | None:
    """Return a number with six decimals; None for NaN."""
    return None if isnan(number) else round_number(number)


def round_limits(low: float, high: float) -> tuple[float, float] | None:
    """Return the ends of an interval, rounded; None if it is undefined."""
    return None if isnan(low + high) else (round_number(low), round_number(high))


class Estimate(
    msgspec.Struct, frozen=True, kw_only=True, rename={"interval": "ci", "method": "ci_method"}
):
    """A number and how sure it is: the record that every result with an interval has, or is a kind
    of.

    In JSON its fields are `value`, `n`, `ci` and `ci_method`.
    """

    value: float | None
    """None if it is undefined."""
    n: int
    """How many prompt-sets (or responses, labels, items) are behind it."""
    interval: tuple[float, float] | None = None
    """95 %, rounded."""
    method: str | None = None
    """How the interval was computed."""

    @property
    def low(self) -> float | None:
        """The lower end of the interval."""
        return None if self.interval is None else self.interval[0]

    @property
    def high(self) -> float | None:
        """The upper end of the interval."""
        return None if self.interval is None else self.interval[1]

    @property
    def leaves_out_zero(self) -> bool:
        """Whether there is an interval without 0 in it."""
        return self.interval is not None and not self.interval[0] <= 0 <= self.interval[1]


_Kind = TypeVar("_Kind", bound=Estimate)


class Spread(NamedTuple):
    """Ratios with their standard errors, pseudo-observations counted: arrays of shape (row,)."""

    value: Floats
    """Σ numerator / Σ denominator, without pseudo-observations; NaN if no set counts."""
    n: NDArray[np.int64]
    """Prompt-sets that count."""
    centre: Floats
    """The ratio with the pseudo-observations: the middle of the interval."""
    error: Floats
    """The standard error of `centre`."""
    informative: Floats
    """How many sets of equal weight are as informative, pseudo-observations included."""
    deviation: Floats
    """The standard deviation of a unit's value, without pseudo-observations; NaN with one unit
    or none.
    """
    units: NDArray[np.int64]
    """Units that count."""

    @property
    def degrees(self) -> list[int]:
        """Degrees of freedom."""
        return [max(int(sets) - 1, 1) for sets in np.nan_to_num(self.informative).tolist()]

    def quantiles(self, confidence: float) -> Floats:
        """Return how many standard errors the interval reaches to either side: Student's t."""
        return np.array([t_quantile(0.5 + confidence / 2, degrees) for degrees in self.degrees])

    def p(self, against: float = 0.0) -> Floats:
        """Return the two-sided p value of the ratio being `against`: below 1 − confidence exactly
        if the interval at that confidence leaves `against` out.
        """
        distance = np.abs(self.centre - against) / self.error
        pairs = zip(distance.tolist(), self.degrees, strict=True)
        return np.array([1 - t_within(t, d) if isfinite(t) else np.nan for t, d in pairs])


class Design(NamedTuple):
    """How some prompt-sets were drawn from those of a run; arrays of shape (prompt_set,)."""

    strata: NDArray[np.int64]
    """The stratum that each was drawn from, two or more of each."""
    chances: Floats
    """The probability with which it was drawn."""


def compute_spread(
    numerator: Floats,
    denominator: Floats,
    span: Sequence[float] | Floats,
    design: Design | None = None,
    pseudo_weight: Floats | None = None,
    variance: Floats | None = None,
    units: Units | None = None,
) -> Spread:
    """Return Σ numerator / Σ denominator of each row with its standard error.

    Two pseudo-observations are added, one at each end of a set's span. Sets with equal values are
    then not certain, and few sets not too certain. For differences of shares that is Bonett and
    Price's proposal (Journal of Educational and Behavioral Statistics 37, 2012). For shares it is
    Agresti and Coull's (The American Statistician 52, 1998) with half as many pseudo-observations.

    The standard error of a ratio is that of its linear part (Woodruff, Journal of the American
    Statistical Association 66, 1971). A pseudo-observation weighs as much as the sets that
    count, Σc² / Σc of their denominators c. Sets of unequal weight count as Kish's effective number
    (Σc)² / Σc² (Survey Sampling, 1965). Sets of one family count as one, with the sums of their
    numerators and denominators.

    Args:
        numerator, denominator: shape (row, prompt_set).
        span: least and greatest value that a set can have, for all rows or, of shape (row, 2), for
            each.
        design: how the sets were drawn from a larger sample (`_two_phases`).
        pseudo_weight: of a pseudo-observation, shape (row,). If the weights follow from how sets
            were drawn or combined, it is that of the heaviest set that could have counted: a rare
            outcome in heavy sets may not have been drawn.
        variance: what is added to the variance of each numerator (`Completed`), shape (row,
            prompt_set).
        units: families of sets.
    """
    least, greatest = np.broadcast_to(np.asarray(span, dtype=float), (len(numerator), 2)).T
    n = (denominator > 0).sum(axis=1)
    numerator, denominator = sum_units(numerator, units), sum_units(denominator, units)
    counted = (denominator > 0).sum(axis=1)
    total, squares = denominator.sum(axis=1), (denominator**2).sum(axis=1)
    top = numerator.sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        value = top / total
        if pseudo_weight is None:
            pseudo_weight = squares / total
        total_weight = total + 2 * pseudo_weight
        centre = (top + pseudo_weight * (least + greatest)) / total_weight
        residuals = numerator - centre[:, None] * denominator
        squared = residuals**2 if design is None else _two_phases(residuals, design)
        added = 0.0 if variance is None else variance.sum(axis=1)
        sum_of_squares = squared.sum(axis=1) + added
        sum_of_squares += pseudo_weight**2 * ((least - centre) ** 2 + (greatest - centre) ** 2)
        informative = np.round(total_weight**2 / (squares + 2 * pseudo_weight**2), 9)
        error = np.sqrt(sum_of_squares * informative / (informative - 1)) / total_weight
        about_value = ((numerator - value[:, None] * denominator) ** 2).sum(axis=1) + added
        about_value = np.where(counted > 1, about_value, np.nan)
        deviation = np.sqrt(about_value / (counted - 1)) * counted / total
    value = np.where(n > 0, value, np.nan)
    return Spread(value, n, centre, error, informative, deviation, counted)


def _two_phases(residuals: Floats, design: Design) -> Floats:
    """Return the squared deviation of each set, shape (row, prompt_set), if a sample of sets was
    drawn from a larger one: that of the larger sample, and about the mean of the stratum for the
    sets that were not drawn (Särndal, Swensson and Wretman, Model Assisted Survey Sampling, 1992,
    section 9.3).
    """
    members = design.strata == np.unique(design.strata)[:, None]
    sizes = members.sum(axis=1)
    means = residuals @ members.T / sizes
    bessel_correction = sizes / np.maximum(sizes - 1, 1)
    within = (residuals - means @ members) ** 2 * (bessel_correction @ members)
    return np.asarray(design.chances * residuals**2 + (1 - design.chances) * within)


class Estimates(NamedTuple):
    """Values with intervals: arrays of shape (row,), a row for each model, or for each metric and
    model; NaN for a missing value.
    """

    value: Floats
    n: NDArray[np.int64]
    """Prompt-sets that count."""
    low: Floats
    high: Floats

    def records(self) -> list[Estimate]:
        """Return the estimate of each row."""
        return self.make_records(Estimate, repeat({}, len(self.n)))

    def make_records(
        self, kind: type[_Kind], fields: Iterable[Mapping[str, object]]
    ) -> list[_Kind]:
        """Return the estimate of each row as a kind of estimate with further fields.

        Args:
            kind: the record's type.
            fields: of each row, those that every estimate has aside.
        """
        rows = zip(*(part.tolist() for part in self), fields, strict=True)
        return [
            kind(
                value=None if isnan(value) else value,
                n=n,
                interval=round_limits(low, high),
                method=None if isnan(low) else METHOD,
                **more,
            )
            for value, n, low, high, more in rows
        ]

    def drop_intervals(self, rows: NDArray[np.bool_]) -> Estimates:
        """Return the same without the intervals of some rows."""
        low, high = (np.where(rows, np.nan, end) for end in (self.low, self.high))
        return self._replace(low=low, high=high)

    def drop_values(self, rows: NDArray[np.bool_]) -> Estimates:
        """Return the same without the values and intervals of some rows."""
        value = np.where(rows, np.nan, self.value)
        return self._replace(value=value).drop_intervals(rows)


def estimate(
    numerator: Floats,
    denominator: Floats,
    *,
    span: Sequence[float] | Floats = (0.0, 1.0),
    confidence: float = CONFIDENCE,
    design: Design | None = None,
    pseudo_weight: Floats | None = None,
    variance: Floats | None = None,
    units: Units | None = None,
) -> Estimates:
    """Return Σ numerator / Σ denominator of each row with an interval: the t interval over the
    prompt-sets and two pseudo-observations (`compute_spread`; docs/statistics.md).

    Args:
        numerator, denominator: shape (row, prompt_set); a set's value is numerator over
            denominator, and the denominator is its weight.
        span: least and greatest value that a set can have, for all rows or, of shape (row, 2), for
            each.
        confidence: above 0 and below 1.
        design, pseudo_weight, variance, units: as for `compute_spread`.
    """
    spread = compute_spread(numerator, denominator, span, design, pseudo_weight, variance, units)
    return compute_interval(spread, spread.quantiles(confidence), span)


def compute_interval(
    spread: Spread, quantiles: Floats, span: Sequence[float] | Floats
) -> Estimates:
    """Return the intervals that reach these numbers of standard errors to either side, within the
    span.
    """
    least, greatest = np.broadcast_to(np.asarray(span, dtype=float), (len(quantiles), 2)).T
    half = quantiles * spread.error
    low = np.minimum(np.maximum(spread.centre - half, least), spread.value)
    high = np.maximum(np.minimum(spread.centre + half, greatest), spread.value)
    return Estimates(spread.value, spread.n, low, high)


BETWEEN_JUDGES = "t-satterthwaite"
"""Name of the interval of `estimate_for_judges` in `ci_method`."""


def estimate_for_judges(
    spread: Spread, by_judge: Floats, span: Sequence[float] | Floats
) -> list[Estimate]:
    """Return the mean over judges with its interval for other prompt-sets and other judges like
    these: the variance between judges is added to that over prompt-sets.

    V = V_sets + S²/k with the sample variance S² of the k judges' values; the degrees of freedom
    are Satterthwaite's, V² / (V_sets² / ν + (S²/k)² / (k − 1)), rounded down (Biometrics Bulletin
    2, 1946).

    Args:
        spread: of the mean over judges (`average_models`), shape (row,).
        by_judge: the value by each judge, NaN if it has none: shape (judge, row).
        span: least and greatest value that a set can have, for all rows or, of shape (row, 2), for
            each.

    Returns:
        An estimate of each row, without an interval if fewer than `FEWEST_JUDGES` have a value.
    """
    judges = (~np.isnan(by_judge)).sum(axis=0)
    enough = judges >= FEWEST_JUDGES
    values = np.where(enough, by_judge, 0.0)
    judges = np.where(enough, judges, FEWEST_JUDGES)
    between = np.nanvar(values, axis=0) / (judges - 1)
    within = spread.error**2
    with np.errstate(invalid="ignore"):
        degrees = (within + between) ** 2 / (
            within**2 / np.array(spread.degrees) + between**2 / (judges - 1)
        )
    quantiles = np.array(
        [t_quantile(0.5 + CONFIDENCE / 2, max(int(of), 1)) for of in np.nan_to_num(degrees)]
    )
    widened = spread._replace(error=np.sqrt(within + between))
    estimates = compute_interval(widened, quantiles, span).drop_intervals(~enough)
    return [
        msgspec.structs.replace(record, method=BETWEEN_JUDGES) if record.interval else record
        for record in estimates.records()
    ]


def share_interval(share: float, n: float, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Return the interval of a share of `n` independent answers; neither has to be a whole
    number of answers.
    """
    centre = (share * n + 1) / (n + 2)
    sum_of_squares = n * share * (1 - centre) ** 2 + n * (1 - share) * centre**2
    sum_of_squares += (1 - centre) ** 2 + centre**2
    half = sqrt(sum_of_squares / (n + 1) / (n + 2))
    half *= t_quantile(0.5 + confidence / 2, max(int(n + 1), 1))
    return max(min(centre - half, share), 0.0), min(max(centre + half, share), 1.0)


def exact_share_interval(count: int, n: int, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Return the interval of a share of `count` of `n` independent answers that covers it with this
    probability or more, whatever it is (Clopper and Pearson, Biometrika 26, 1934).
    """
    share = (1 - confidence) / 2
    low = _least_chance(count, n, share) if count else 0.0
    high = 1 - _least_chance(n - count, n, share) if count < n else 1.0
    return low, high


def _least_chance(count: int, n: int, share: float) -> float:
    """Return the chance of an answer with which `count` or more of `n` come in a share of cases."""
    _, high = halve_until(lambda chance: compute_upper_tail(count, n, chance) >= share, 1e-12)
    return high


def compute_upper_tail(count: int, n: int, chance: float) -> float:
    """Return the probability of `count` or more of `n` independent answers, each with a chance
    above 0 and below 1.
    """
    return float(tails(n, chance)[count])


def tails(n: int, chance: float) -> Floats:
    """Return the probability of 0 or more, 1 or more, … n or more of `n` independent answers.

    Args:
        chance: of each, above 0 and below 1.
    """
    ratios = np.log(np.arange(n, 0, -1) / np.arange(1, n + 1)) + log(chance) - log1p(-chance)
    logarithms = n * log1p(-chance) + np.concatenate([[0.0], np.cumsum(ratios)])
    return np.minimum(np.exp(np.logaddexp.accumulate(logarithms[::-1])[::-1]), 1.0)


def share_estimate(count: int, n: int) -> Estimate:
    """Return the share of `count` of `n` independent answers, with its interval."""
    low, high = share_interval(count / n, n)
    return Estimate(
        value=round_number(count / n),
        n=n,
        interval=(round_number(low), round_number(high)),
        method=METHOD,
    )


def half_width(sets: int) -> float:
    """Return the greatest ± of the 95 % interval of a share of this number of prompt-sets."""
    return t_quantile(0.5 + CONFIDENCE / 2, sets + 1) / 2 / sqrt(sets + 1)


class Averaged(NamedTuple):
    """A mean of ratios as one: Σ numerator / Σ denominator is the mean, and has its spread."""

    numerator: Floats
    denominator: Floats
    parts: int
    """Ratios that are defined, of which it is the mean."""


def average_models(numerator: Floats, denominator: Floats) -> Averaged:
    """Return the mean over the models that have a value, prompt-set by prompt-set.

    If every set counts for every model, a set's value is its mean over the models. If some are
    missing, each model still weighs the same in the mean. A set then counts as much as it does for
    the models together.

    Args:
        numerator, denominator: shape (model, prompt_set).

    Returns:
        Arrays of shape (prompt_set,).
    """
    total = denominator.sum(axis=1)
    defined = total > 0
    top, bottom, total = numerator[defined], denominator[defined], total[defined]
    if not len(total):
        return Averaged(np.zeros(numerator.shape[1]), np.zeros(numerator.shape[1]), 0)
    if (bottom == bottom[0]).all():
        return Averaged(top.mean(axis=0), bottom[0], len(total))
    values = top.sum(axis=1) / total
    # the mean of the values, which varies like the mean of the models' residuals
    scale = float((bottom > 0).any(axis=0).sum()) / len(total) / total[:, None]
    weights = (bottom * scale).sum(axis=0)
    added = ((top - values[:, None] * bottom) * scale).sum(axis=0)
    added -= weights * (added.sum() / weights.sum())
    return Averaged(added + float(values.mean()) * weights, weights, len(total))


def average_completed(models: Completed) -> Completed:
    """Return the mean over models of a ratio with filled-in values (`average_models`), and the
    variance that filling in adds to it: arrays of shape (prompt_set,).
    """
    top, bottom, variance = models
    mean = average_models(top, bottom)
    total = bottom.sum(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        scale = np.where(
            total > 0, (bottom > 0).any(axis=0).sum() / max(mean.parts, 1) / total, 0.0
        )
    added: Floats = (variance * scale[:, None] ** 2).sum(axis=0)
    return Completed(mean.numerator, mean.denominator, added)


def mean_over(
    parts: Sequence[Estimate], fewest: int = 0, correlations: Floats | None = None
) -> Estimate:
    """Return the mean of estimates, each weighing the same; `n` is their number.

    Its interval combines the distances d of their limits, √Σᵢⱼ rᵢⱼ dᵢ dⱼ / number (MOVER: Zou and
    Donner, Statistics in Medicine 27, 2008; with correlations: Zou, Psychological Methods 12,
    2007). There is none if a part has none, or an `n` below `fewest`.

    Args:
        parts: the estimates.
        fewest: units that each needs for an interval.
        correlations: r, shape (part, part); independent by default.
    """
    if not parts:
        return Estimate(value=None, n=0)
    values = [part.value or 0.0 for part in parts]
    mean = fmean(values)
    estimate = Estimate(value=mean, n=len(parts))
    intervals = [part.interval for part in parts if part.interval and part.n >= fewest]
    if len(intervals) < len(parts):
        return estimate
    distances = np.abs(np.array(intervals) - np.array(values)[:, None])
    related = np.eye(len(parts)) if correlations is None else correlations
    down, up = (sqrt(side @ related @ side) / len(parts) for side in distances.T)
    interval = round_number(mean - down), round_number(mean + up)
    return msgspec.structs.replace(estimate, interval=interval, method="mover")


def correlate_parts(parts: Sequence[Parts], units: Units) -> Floats:
    """Return how ratios over different prompt-sets correlate because they share families: shape
    (ratio, ratio). Below 0 it is 0, so that no interval is narrower than of independent ones.

    Args:
        parts: numerator and denominator of each ratio, 0 of a set of another: shape (prompt_set,).
        units: families of prompt-sets.
    """
    residuals = np.stack(
        [sum_units(top - top.sum() / bottom.sum() * bottom, units) for top, bottom in parts]
    )
    lengths = np.sqrt((residuals**2).sum(axis=1, keepdims=True))
    scaled = np.divide(residuals, lengths, out=np.zeros_like(residuals), where=lengths > 1e-12)
    related: Floats = np.maximum(scaled @ scaled.T, 0.0)
    np.fill_diagonal(related, 1.0)
    return related
