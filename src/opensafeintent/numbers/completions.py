"""How far missing grades could move a number (docs/statistics.md, Missing grades).

A prompt-set with a missing value (a recipient) is completed with the values of comparable
prompt-sets of the same model (donors). The donors' weights are tilted by the odds that
`--missing-odds` allows, once to make the metric least, and once to make it greatest. The turning
odds of a verdict are the greatest odds at which it still holds: a tipping point.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from math import inf, isnan, log
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from msgspec import UNSET, UnsetType
from numpy.typing import NDArray

from opensafeintent.evaluation.missing import ASSUMPTIONS
from opensafeintent.labelled import LabelledSet
from opensafeintent.numbers.equations import Grades, Ratio
from opensafeintent.numbers.metrics import METRICS, InputKind, Metric, split_epochs_into_models
from opensafeintent.statistics.comparisons import Comparison, are_significant, compare_models
from opensafeintent.statistics.intervals import Completed, Floats, Parts, Units, leave_out_zero
from opensafeintent.taxonomy import (
    CORE_VARIANTS,
    DUAL_USE,
    MODES,
    STRATEGIES,
    find_intent,
    find_own_question,
    is_dual_use,
)

TRIED_ODDS = (
    *(1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0),
    *(15.0, 20.0, 30.0, 50.0, 100.0, 1000.0),
)
"""The odds at which `find_turning_odds` tries whether a verdict still holds."""
FEWEST_DONORS = 10
"""With fewer donors, `_count_donors` drops one condition of likeness."""

_AT_RANDOM, _WITHIN_ODDS, _UNLIMITED = range(1, 1 + len(ASSUMPTIONS))
"""What is assumed of a missing value, as the arrays `grades_missing`, `mode_missing` and
`strategy_missing` number it: `random`, `odds` and `any` of `evaluation.missing.Assumption`.
"""
Flags = NDArray[np.bool_]
Field = Literal["grades", "mode", "strategy"]
"""What can be missing of a response; both grades are missing together."""
_COLUMNS_BY_FIELD: dict[Field, tuple[int, ...]] = {"grades": (0, 1), "mode": (2,), "strategy": (3,)}
_COLUMNS = ("helpfulness", "harm_severity", "mode", "strategy")
"""The values of a response, in the order of the last axis of `_ValueGrid.values`."""

_EXTREME_GRADES = ((1.0, 3.0), (4.0, 0.0))
"""(helpfulness, harm severity) of the worst response, and of the best."""
_CORNER_GRADES = (*_EXTREME_GRADES, (1.0, 0.0))
"""The extreme grades, and those of a safe response without help. With these, a metric that compares
responses, or leaves unsafe ones out, may be least or greatest.
"""
_GradeFill = tuple[tuple[float, float], ...]
"""Grades to put in the place of missing ones: (helpfulness, harm severity) of each intent. For the
input `wordings`: of the first wording with missing grades, then twice of the further ones.
"""
_TIE_BONUS = 1e-9
"""Weight of the denominator that decides between completions of equal value: the one in which the
set counts wins.
"""
_MIDDLE_GRADES = ((2.0, 0.0), (3.0, 0.0))
"""Grades of safe responses with some help, with which a range over wordings may be least."""
_UNIFORM_FILLS: list[_GradeFill] = [(grades,) * 3 for grades in _EXTREME_GRADES]
"""The worst grades for every intent, and the best."""
_LabelFill = tuple[int | None, tuple[int, ...] | None]
"""Labels to put in the place of missing ones: the index of the mode, and that of each intent's
strategy; None leaves them missing.
"""
_MODE_FILLS: list[_LabelFill] = [(place, None) for place in range(len(MODES))]


def find_turning_odds(alone: Flags, holds: Callable[[float], Flags]) -> Floats:
    """Return the turning odds of each verdict, the greatest of `TRIED_ODDS` up to which it holds: 0
    if it holds at none of them, infinity if at each; NaN without a verdict.

    Args:
        alone: whether the interval without missing grades gives a verdict, and missing grades can
            move it; of any shape.
        holds: returns whether each verdict holds at some odds: an array of that shape.
    """
    reached = np.where(alone, 0.0, np.nan)
    for odds in TRIED_ODDS:
        if not alone.any():
            return reached
        alone = np.asarray(alone & holds(odds))
        reached[alone] = odds
    reached[alone] = inf
    return reached


StoredOdds: TypeAlias = float | UnsetType | None
"""Turning odds in `metrics.json`: null if the verdict holds at all odds; left out if there is no
verdict, or missing grades cannot move it.
"""


def store_turning_odds(odds: float | None) -> StoredOdds:
    """Return the odds of `find_turning_odds` as `metrics.json` has them."""
    if odds is None or isnan(odds):
        return UNSET
    return None if odds == inf else float(odds)


def read_turning_odds(stored: StoredOdds) -> float | None:
    """Return odds of `metrics.json` as a number, infinity for null; None if they are left out."""
    if isinstance(stored, UnsetType):
        return None
    return inf if stored is None else stored


def compare_with_odds(
    parts: Parts,
    extremes: Callable[[float], Sequence[Completed]],
    odds: float,
    moved: Flags,
    *,
    max_difference: float,
    family: Sequence[bool],
    units: Units | None,
) -> Comparison:
    """Return the differences of every two models, with the odds at which each turns.

    Args:
        parts: of the models, as for `compare_models`.
        extremes: with missing grades as they make them least, and greatest, at some odds.
        odds: those in force.
        moved: whether missing grades can move a model's value, shape (model,).
        max_difference, family, units: as for `compare_models`.
    """
    comparison = compare_models(
        *parts, max_difference=max_difference, family=family, extremes=extremes(odds), units=units
    )
    shown = leave_out_zero(comparison.low, comparison.high)
    pairs = np.nonzero(np.triu(shown & (moved[:, None] | moved), 1))
    significant = np.ones(len(pairs[0]), dtype=bool)

    def holds(at: float) -> Flags:
        first, second = (side[significant] for side in pairs)
        significant[significant] = are_significant(
            comparison, extremes(at), (first, second), max_difference=max_difference, units=units
        )
        return significant

    turning = np.full(comparison.low.shape, np.nan)
    turning[pairs] = turning[pairs[::-1]] = find_turning_odds(significant.copy(), holds)
    return comparison._replace(turning_odds=turning)


def depend_on_missing(as_graded: Completed, *ends: Completed) -> Flags:
    """Tell for each model whether missing grades can move its metric: shape (model,).

    Args:
        as_graded: the metric without missing grades.
        ends: the metric with missing grades as they make it least, and greatest.
    """
    same = [
        np.isclose(known, filled).all(axis=1)
        for end in ends
        for known, filled in zip(as_graded, end, strict=True)
        if not np.array_equal(known, filled)  # mostly they are
    ]
    return np.asarray(~np.all(same, axis=0)) if same else np.zeros(len(as_graded[0]), dtype=bool)


class MetricInputs(NamedTuple):
    """What metrics of one kind of input are computed from."""

    name: str
    """The kind, an `InputKind`; or a variant (`make_variant_inputs`)."""
    uses_variant: Callable[[str], bool]
    """Tells whether the metrics read the responses to a variant."""
    fields: tuple[Field, ...]
    """What they read of a response."""
    candidate_fills: tuple[list[_GradeFill], list[_LabelFill]]
    """Fills of missing grades, and of missing labels. A metric is least with one of their
    combinations, and greatest with another.
    """


METRIC_INPUTS: dict[InputKind, MetricInputs] = {
    "triplet": MetricInputs(
        "triplet",
        CORE_VARIANTS.__contains__,
        ("grades",),
        (list(product(_CORNER_GRADES, _CORNER_GRADES, _EXTREME_GRADES)), [(None, None)]),
    ),
    "pair": MetricInputs(
        "pair",
        ("benign", "malicious").__contains__,
        ("grades",),
        (
            [(benign, benign, other) for benign, other in product(_CORNER_GRADES, _EXTREME_GRADES)],
            [(None, None)],
        ),
    ),
    "triplet_in_order": MetricInputs(
        "triplet_in_order",
        CORE_VARIANTS.__contains__,
        ("grades",),
        (_UNIFORM_FILLS, [(None, None)]),
    ),
    "wordings": MetricInputs(
        "wordings",
        is_dual_use,
        ("grades",),
        (
            [
                *((first, *(others,) * 2) for first, others in product(_CORNER_GRADES, repeat=2)),
                *((grades,) * 3 for grades in _MIDDLE_GRADES),
            ],
            [(None, None)],
        ),
    ),
    "triplet_and_wordings": MetricInputs(
        "triplet_and_wordings",
        lambda variant: find_intent(variant) in CORE_VARIANTS,
        ("grades",),
        (_UNIFORM_FILLS, [(None, None)]),
    ),
    "mode": MetricInputs("mode", DUAL_USE.__eq__, ("mode",), (_UNIFORM_FILLS[:1], _MODE_FILLS)),
    "mode_and_grades": MetricInputs(
        "mode_and_grades", DUAL_USE.__eq__, ("grades", "mode"), (_UNIFORM_FILLS, _MODE_FILLS)
    ),
    "strategy": MetricInputs(
        "strategy",
        DUAL_USE.__eq__,
        ("grades", "strategy"),
        (_UNIFORM_FILLS, [(None, (place,) * 3) for place in range(len(STRATEGIES))]),
    ),
    "probes": MetricInputs(
        "probes",
        CORE_VARIANTS.__contains__,
        ("grades", "strategy"),
        (list(product(_EXTREME_GRADES, repeat=3)), [(None, (0, 1, 2)), (None, (2, 1, 0))]),
    ),
    "questions": MetricInputs(
        "questions",
        lambda variant: find_own_question(variant) is not None,
        ("grades",),
        (_UNIFORM_FILLS, [(None, None)]),
    ),
    "benign_mode": MetricInputs(
        "benign_mode", "benign".__eq__, ("mode",), (_UNIFORM_FILLS[:1], _MODE_FILLS)
    ),
}


def make_variant_inputs(variant: str) -> MetricInputs:
    """Return the inputs of a mean over the replies to one variant."""
    return MetricInputs(variant, variant.__eq__, ("grades",), (_UNIFORM_FILLS, [(None, None)]))


class CompletionSpec(NamedTuple):
    """How a metric is computed from grades that are filled in."""

    compute_ratio: Callable[[Grades], Ratio]
    inputs: MetricInputs
    over_epochs: bool = False
    """Whether it takes all epochs of a set together (`Metric.over_epochs`)."""
    donor_group: str = ""
    """Metrics with the same text here share their donors: sets that are alike in each of them."""


def make_completion_spec(metric: Metric) -> CompletionSpec:
    """Return how a metric of a report is completed."""
    return CompletionSpec(
        metric.compute_ratio, METRIC_INPUTS[metric.inputs], metric.over_epochs, metric.epoch_count
    )


class Completions:
    """Metrics with their missing values filled in.

    Args:
        array: the grades, as `grades.to_array` gives them.
        ratios: the metrics as graded, by name.
        specs: how each is computed, by name; by default as `METRICS` says.
        max_safe_harm: the greatest harm severity that still counts as safe.
    """

    def __init__(
        self,
        array: LabelledSet,
        ratios: Mapping[str, Ratio],
        specs: Mapping[str, CompletionSpec] | None = None,
        max_safe_harm: int = 0,
    ) -> None:
        self._array = _mark_missing_modes(array)
        self._ratios, self._max_safe_harm = ratios, max_safe_harm
        self._specs = specs or {name: make_completion_spec(METRICS[name]) for name in ratios}

    def complete(self, name: str, odds: float) -> tuple[Completed, Completed]:
        """Return one metric with its missing values as they make it least, and greatest.

        Args:
            name: of the metric.
            odds: by how much the odds of a missing response may differ from those of comparable
                ones: a factor of 1 or more.
        """
        item = self._by_metric[name]
        return item.tilt(-1, odds), item.tilt(1, odds)

    @cached_property
    def unlimited_extremes(self) -> dict[str, tuple[Completed, Completed]]:
        """Each metric at its least and greatest if every missing value can be any value."""
        return {
            name: (item.find_extreme(-1), item.find_extreme(1))
            for name, item in self._by_metric.items()
        }

    @cached_property
    def bounds(self) -> dict[str, tuple[Floats, Floats]]:
        """The values of `unlimited_extremes`, shape (model,); NaN if nothing can count."""
        return {
            name: (low.value, high.value) for name, (low, high) in self.unlimited_extremes.items()
        }

    @cached_property
    def _by_metric(self) -> dict[str, _Completion]:
        items: dict[str, _Completion] = {}
        alike: dict[tuple[str, bool], dict[str, CompletionSpec]] = {}
        for name, item in self._specs.items():
            alike.setdefault((item.inputs.name, item.over_epochs), {})[name] = item
        for (_, over_epochs), specs in alike.items():
            inputs = next(iter(specs.values())).inputs
            used = [
                name for name in self._array.labels["variant"] if inputs.uses_variant(str(name))
            ]
            array = self._array.sel(variant=used)
            array = array if over_epochs else split_epochs_into_models(array)
            items |= self._complete_together(array, inputs, specs)
        return {name: items[name] for name in self._specs}

    def _complete_together(
        self, array: LabelledSet, inputs: MetricInputs, specs: Mapping[str, CompletionSpec]
    ) -> dict[str, _Completion]:
        """Return the completions of metrics with the same inputs.

        Args:
            array: the grades; with each epoch of a model as a model of its own, unless the metrics
                take all epochs together.
            inputs: what the metrics read.
            specs: the metrics, by name.
        """
        extremes = [
            Grades(done, self._max_safe_harm) for done in _yield_extreme_fills(array, inputs)
        ]
        if not extremes:
            return {name: _Completion.of(self._ratios[name]) for name in specs}
        models = self._array.sizes["model"]
        rows = array.sizes["model"] // models
        grid = _ValueGrid.from_array(array, inputs)
        donor_values = _collect_donor_values(grid, rows, specs, self._max_safe_harm)
        assumption = np.moveaxis(grid.assumption.reshape(models, rows, -1), 1, -1)
        items = {}
        for name, spec in specs.items():
            numerators, denominators = (
                np.moveaxis(part.reshape(len(extremes), models, rows, -1), 2, -1)
                for part in _stack_parts([spec.compute_ratio(grades) for grades in extremes])
            )
            several = rows > 1
            epochs = self._count_epochs(spec, inputs, denominators) if several else np.float64(1)
            items[name] = _Completion(
                numerators / epochs,
                denominators / epochs,
                assumption,
                self._ratios[name].value.values,
                donor_values[name].divide(np.broadcast_to(epochs, assumption.shape), rows),
            )
        return items

    def _count_epochs(
        self, spec: CompletionSpec, inputs: MetricInputs, denominators: Floats
    ) -> Floats:
        """Return the number of complete epochs of each set, over which numerator and denominator
        are means: shape (model, prompt_set, 1). Every completion has the same ones. The number is
        the sum of the epochs' denominators, over the denominator of all epochs together.
        """
        whole = _stack_parts(
            [
                spec.compute_ratio(Grades(done, self._max_safe_harm))
                for done in _yield_extreme_fills(self._array, inputs)
            ]
        )
        with np.errstate(invalid="ignore", divide="ignore"):
            epochs = np.nan_to_num(denominators.sum(axis=-1) / whole[1]).max(axis=0)
        number: Floats = np.maximum(epochs, 1.0)[..., None]
        return number


@dataclass(frozen=True)
class _DonorValues:
    """A metric's values in recipients, completed with the values of donors: arrays of shape
    (candidate,). A candidate is a recipient with one combination of donated values.
    """

    place: NDArray[np.int64]
    """The recipient, in the flattened (row, prompt_set), or (model, prompt_set, epoch)."""
    numerators: Floats
    denominators: Floats
    count: Floats
    """How many donors give this candidate."""

    def divide(self, epochs: Floats, rows: int) -> _DonorValues:
        """Return the parts that candidates are of a set's mean over its epochs.

        Args:
            epochs: their number, shape (model, prompt_set, epoch).
            rows: how many rows of the grid a model has.
        """
        row, at = np.divmod(self.place, epochs.shape[1])
        model, epoch = np.divmod(row, rows)
        place = np.ravel_multi_index((model, at, epoch), epochs.shape)
        number = epochs[model, at, epoch]
        return _DonorValues(place, self.numerators / number, self.denominators / number, self.count)


@dataclass(frozen=True)
class _Completion:
    """A metric with its missing values filled in: with each of the candidate fills, and with the
    values of donors.
    """

    numerators: Floats
    """With each fill, the part that an epoch is of a set's mean: shape (fill, model, prompt_set,
    epoch).
    """
    denominators: Floats
    assumption: NDArray[np.int8]
    """What is assumed of missing values, 0 if none is missing: shape (model, prompt_set, epoch)."""
    value: Floats
    """The metric as graded, shape (model,)."""
    donor_values: _DonorValues | None
    """None if nothing is missing."""

    @classmethod
    def of(cls, ratio: Ratio) -> _Completion:
        """Return the completion of a metric of which nothing is missing."""
        numerator, denominator = (part.values[None, ..., None] for part in ratio)
        return cls(
            numerator,
            denominator,
            np.zeros(numerator.shape[1:], dtype=np.int8),
            ratio.value.values,
            None,
        )

    def find_extreme(self, sign: int) -> Completed:
        """Return the metric at its least (`sign` −1) or greatest (1) if a missing value can be any
        value.
        """
        if self.donor_values is None:
            return self._as_graded
        return _optimise_ratio(
            self.numerators, self.denominators, np.zeros(self.numerators.shape[1:]), sign
        )

    @cached_property
    def _as_graded(self) -> Completed:
        """The metric of which nothing is missing: one for both ends and all odds."""
        top, bottom = (
            np.ascontiguousarray(part[0, ..., 0]) for part in (self.numerators, self.denominators)
        )
        return Completed.of((top, bottom))

    @property
    def _flat_value(self) -> Floats:
        """The metric as graded, for each of the flattened (model, prompt_set, epoch)."""
        return np.broadcast_to(self.value[:, None, None], self.assumption.shape).ravel()

    @cached_property
    def _extreme_parts(self) -> tuple[list[list[Floats]], Floats, Floats, Floats, Floats]:
        """What `tilt` needs at any odds: numerator and denominator of each part at its least and at
        its greatest; its v = numerator − metric × denominator at either; v of each candidate, and
        the candidate's position between the two, from 0 to 1.
        """
        assert self.donor_values is not None
        value, place = self._flat_value, self.donor_values.place
        flat = [part.reshape(len(part), -1) for part in (self.numerators, self.denominators)]
        gains = flat[0] - value * flat[1]
        ends = []
        for sign in (-1, 1):
            which = (sign * gains + _TIE_BONUS * flat[1]).argmax(axis=0)
            ends.append([part[which, np.arange(value.size)] for part in flat])
        low, high = (numerator - value * denominator for numerator, denominator in ends)
        span = np.where(high - low > 1e-12, high - low, 1.0)
        given = self.donor_values.numerators - value[place] * self.donor_values.denominators
        return ends, low, high, given, (given - low[place]) / span[place]

    def tilt(self, sign: int, odds: float) -> Completed:
        """Return the metric with its missing values as they make it least (`sign` −1) or greatest
        (1) at some odds. Each recipient is the mean of its candidates, weighted by their number of
        donors and tilted exponentially by their position.
        """
        donor_values = self.donor_values
        if donor_values is None:
            return self._as_graded
        shape, value = self.assumption.shape, self._flat_value
        (least, greatest), low, high, given, position = self._extreme_parts
        assumption = self.assumption.ravel()
        total = np.bincount(donor_values.place, donor_values.count, minlength=value.size)
        with np.errstate(over="ignore"):
            rate = np.where(assumption == _AT_RANDOM, 0.0, sign * log(odds) if odds < inf else 0.0)
        tilted = donor_values.count * np.exp(rate[donor_values.place] * position)
        pseudo = [
            (assumption == _WITHIN_ODDS).astype(float),
            (assumption == _WITHIN_ODDS) * np.exp(rate),
        ]
        parts = [
            np.bincount(donor_values.place, tilted * values, minlength=value.size)
            + sum(weight * end for weight, end in zip(pseudo, pair, strict=True))
            for values, pair in (
                (np.ones_like(given), (1.0, 1.0)),
                (donor_values.numerators, (least[0], greatest[0])),
                (donor_values.denominators, (least[1], greatest[1])),
                (given, (low, high)),
                (given**2, (low**2, high**2)),
            )
        ]
        free = (
            (assumption == _UNLIMITED)
            | ((assumption == _WITHIN_ODDS) & (odds == inf))
            | ((assumption > 0) & ((total == 0) | np.isnan(value)))
        ).reshape(shape)
        with np.errstate(invalid="ignore", divide="ignore"):
            numerator, denominator, mean, square = (part / parts[0] for part in parts[1:])
        filled = ((assumption > 0) & ~free.ravel()).reshape(shape)
        numerators = np.where(filled, numerator.reshape(shape), self.numerators)
        denominators = np.where(filled, denominator.reshape(shape), self.denominators)
        spread = np.where(filled, np.maximum(square - mean**2, 0.0).reshape(shape), 0.0)
        moved = ((assumption > 0) & (high - low > 1e-12)).reshape(shape).sum(axis=(1, 2))
        parts_in_all = (self.denominators > 0).any(axis=0).sum(axis=(1, 2))
        share = parts_in_all / np.maximum(parts_in_all - moved, 1)
        return _optimise_ratio(numerators, denominators, spread * (1 + share)[:, None, None], sign)


def _optimise_ratio(
    numerators: Floats, denominators: Floats, variance: Floats, sign: int
) -> Completed:
    """Choose a fill of every set so that Σ numerator / Σ denominator is greatest (`sign` 1) or
    least (−1).

    It is Dinkelbach's iteration (Management Science 13, 1967): each step maximises numerator −
    value × denominator, with the value of the step before.

    Args:
        numerators, denominators: each of shape (fill, model, prompt_set, epoch).
        variance: of the completed parts, shape (model, prompt_set, epoch).
        sign: 1 or −1.
    """
    shape = numerators.shape[1:]
    numerators, denominators = (
        part.reshape(*part.shape[:2], -1) for part in (numerators, denominators)
    )
    with np.errstate(invalid="ignore", divide="ignore"):
        value = (
            np.nan_to_num(
                sign * numerators.sum(axis=2) / denominators.sum(axis=2), nan=-np.inf
            ).max(axis=0)
            * sign
        )
        value = np.where(np.isfinite(value), value, 0.0)
        while True:
            gains = sign * (numerators - value[:, None] * denominators) + _TIE_BONUS * denominators
            which = gains.argmax(axis=0)[None]
            numerator, denominator = (
                np.take_along_axis(part, which, axis=0)[0] for part in (numerators, denominators)
            )
            better = np.nan_to_num(numerator.sum(axis=1) / denominator.sum(axis=1), nan=0.0)
            if not (sign * (better - value) > 1e-12).any():
                numerator, denominator = (
                    part.reshape(shape).sum(axis=2) for part in (numerator, denominator)
                )
                return Completed(numerator, denominator, variance.sum(axis=2))
            value = better


def _stack_parts(ratios: Sequence[Ratio]) -> tuple[Floats, Floats]:
    """Return numerators and denominators: each of shape (ratio, model, prompt_set)."""
    numerators, denominators = (
        np.stack([getattr(ratio, part).values for ratio in ratios]) for part in Ratio._fields
    )
    return numerators, denominators


def _mark_missing_modes(array: LabelledSet) -> LabelledSet:
    """Return the grades with a missing mode for each missing response, if judges were asked for the
    modes of its model and variant.
    """
    arrays = {name: (array[name].dims, array[name].values) for name in array}
    mode, grades = array["mode"], array["grades_missing"].values
    axes = tuple(mode.dims.index(name) for name in ("prompt_set", "epoch"))
    lacking, missing = np.isnan(mode.values), array["mode_missing"].values
    asked = (~lacking | (missing > 0)).any(axis=axes, keepdims=True)
    arrays["mode_missing"] = (mode.dims, np.maximum(missing, grades * (lacking & asked)))
    return LabelledSet(arrays, array.labels)


def _yield_extreme_fills(array: LabelledSet, inputs: MetricInputs) -> Iterator[LabelledSet]:
    """Yield the grades with missing values filled in, once for each of the candidate fills; nothing
    if no value is missing.
    """
    missing = {field: array[f"{field}_missing"].values for field in _COLUMNS_BY_FIELD}
    if not any(is_missing.any() for is_missing in missing.values()):
        return
    # an unsafe response is probed: if its grade is missing, so is the probe's strategy
    if inputs.name == "strategy":
        missing["strategy"] = np.maximum(
            missing["strategy"], missing["grades"] * np.isnan(array["strategy"].values)
        )
    dims = array["grades_missing"].dims
    intents = np.array(
        [
            CORE_VARIANTS.index(intent) if intent in CORE_VARIANTS else 0
            for intent in map(find_intent, map(str, array.labels["variant"]))
        ]
    )
    which = intents.reshape([-1 if dim == "variant" else 1 for dim in dims])
    if inputs.name == "wordings":
        of_wordings = (missing["grades"] > 0) & (which == CORE_VARIANTS.index(DUAL_USE))
        which = np.minimum(of_wordings.cumsum(axis=dims.index("variant")), 2) // 2
    known = {name: array[name].values for name in _COLUMNS}
    for name in ("helpfulness", "harm_severity"):
        alone = array[f"{name}_alone"].values
        known[name] = np.where(np.isnan(known[name]), alone, known[name])
    arrays = {name: (array[name].dims, array[name].values) for name in array}
    for grades, (mode, strategies) in product(*inputs.candidate_fills):
        fills: dict[str, tuple[Field, list[float] | None]] = {
            "helpfulness": ("grades", [helpfulness for helpfulness, _ in grades]),
            "harm_severity": ("grades", [harm for _, harm in grades]),
            "mode": ("mode", None if mode is None else [float(mode)] * 3),
            "strategy": (
                "strategy",
                None if strategies is None else [float(index) for index in strategies],
            ),
        }
        for name, (field, by_intent) in fills.items():
            if by_intent is not None:
                fill = (missing[field] > 0) & np.isnan(known[name])
                arrays[name] = (dims, np.where(fill, np.array(by_intent)[which], known[name]))
        yield LabelledSet(arrays, array.labels)


class _ValueGrid(NamedTuple):
    """The values that metrics with the same inputs are computed from. A row is one epoch of a
    model, and a slot a variant; for metrics that take all epochs together, a row is a model, and a
    slot one epoch of a variant.
    """

    values: Floats
    """Shape (row, prompt_set, slot, column), with the columns of `_COLUMNS`; NaN without a value.
    """
    missing: NDArray[np.bool_]
    """Whether a value was asked for but not obtained: shape (row, prompt_set, slot, column)."""
    assumption: NDArray[np.int8]
    """The strictest assumption about a set's missing values, 0 if none is missing: shape (row,
    prompt_set).
    """
    read_columns: NDArray[np.bool_]
    """Which columns the metrics read: shape (column,)."""
    exists: NDArray[np.bool_]
    """Whether a set has a variant: shape (prompt_set, variant)."""
    has_epoch: NDArray[np.bool_]
    """Whether a row's model has responses of an epoch: shape (row, epoch)."""
    strata: NDArray[np.int64]
    """The harm domain of each prompt-set, as a number: shape (prompt_set,)."""
    variants: Sequence[str]
    epochs: int

    @classmethod
    def from_array(cls, array: LabelledSet, inputs: MetricInputs) -> _ValueGrid:
        """Return the values that metrics with some inputs read."""
        variants = [str(name) for name in array.labels["variant"] if inputs.uses_variant(str(name))]
        indices = [list(array.labels["variant"]).index(name) for name in variants]
        epochs = array.sizes["epoch"]
        rows, sets = array.sizes["model"], array.sizes["prompt_set"]

        def take_flat(name: str) -> NDArray[Any]:
            ordered = array[name].transpose("model", "prompt_set", "variant", "epoch").values
            return ordered[:, :, indices].reshape(rows, sets, len(indices) * epochs)

        values = np.stack([take_flat(name) for name in _COLUMNS], axis=-1)
        for column, name in enumerate(_COLUMNS[:2]):
            known, alone = values[..., column], take_flat(f"{name}_alone")
            values[..., column] = np.where(np.isnan(known), alone, known)
        assumed_by_value = np.zeros(values.shape, dtype=np.int8)
        for field in inputs.fields:
            assumptions = take_flat(f"{field}_missing")
            for column in _COLUMNS_BY_FIELD[field]:
                assumed_by_value[..., column] = np.where(
                    np.isnan(values[..., column]), assumptions, 0
                )
        if inputs.name == "strategy":  # an unsafe response is probed
            assumed_by_value[..., 3] = np.maximum(
                assumed_by_value[..., 3], take_flat("grades_missing") * np.isnan(values[..., 3])
            )
        domains = array["harm_domain"].values
        return cls(
            values,
            assumed_by_value > 0,
            assumed_by_value.max(axis=(2, 3), initial=0),
            np.isin(
                range(len(_COLUMNS)),
                [column for name in inputs.fields for column in _COLUMNS_BY_FIELD[name]],
            ),
            array["exists"].values[:, indices],
            array["repeated"].values,
            np.unique(domains, return_inverse=True)[1].reshape(-1),
            variants,
            epochs,
        )

    def compute_made_sets(
        self,
        values: Floats,
        places: NDArray[np.int64],
        specs: Mapping[str, CompletionSpec],
        max_safe_harm: int,
    ) -> dict[str, Floats]:
        """Return the metrics of prompt-sets with values that are filled in (made sets), by name:
        numerators and denominators, shape (2, made set).

        Args:
            values: of the made sets, shape (made set, slot, column).
            places: the set that each is made of, in the flattened (row, prompt_set).
            specs: the metrics, by name.
            max_safe_harm: the greatest harm severity that still counts as safe.
        """
        parts: dict[str, list[Floats]] = {name: [] for name in specs}
        rows, sets = np.divmod(places, len(self.exists))
        for start in range(0, len(values), _SETS_PER_CHUNK):
            chunk = slice(start, start + _SETS_PER_CHUNK)
            made = values[chunk]
            shaped = made.reshape(1, len(made), len(self.variants), self.epochs, len(_COLUMNS))
            dims = ("model", "prompt_set", "variant", "epoch")
            counts = ~np.isnan(shaped[..., :2]).any(axis=-1)
            arrays: dict[str, tuple[Sequence[str], NDArray[np.generic]]] = {
                name: (
                    dims,
                    shaped[..., column]
                    if column > 1
                    else np.where(counts, shaped[..., column], np.nan),
                )
                for column, name in enumerate(_COLUMNS)
            }
            arrays["exists"] = (("prompt_set", "variant"), self.exists[sets[chunk]])
            arrays["repeated"] = (("prompt_set", "epoch"), self.has_epoch[rows[chunk]])
            labels = {
                "model": [""],
                "prompt_set": range(len(made)),
                "variant": list(self.variants),
                "epoch": range(self.epochs),
            }
            grades = Grades(LabelledSet(arrays, labels), max_safe_harm)
            for name, spec in specs.items():
                ratio = spec.compute_ratio(grades)
                parts[name].append(np.concatenate([part.values for part in ratio]))
        return {name: np.concatenate(chunks, axis=1) for name, chunks in parts.items()}


_SETS_PER_CHUNK = 200_000
"""How many made sets `_ValueGrid.compute_made_sets` takes at once, to limit memory."""
_TRIAL_VALUES = np.array([(1, 3, 0, 0), (4, 0, 4, 1), (1, 0, 2, 2), (3, 0, 3, 0)], dtype=float)
"""Four responses, with the columns of `_COLUMNS`, that are put in the place of missing values. Two
sets whose metric is the same with each of the four have observed values of equal effect.
"""


class _MissingPattern(NamedTuple):
    """The prompt-sets of one model in which the same values are missing (recipients), and its sets
    that have these values (donors). Sets are indices into the flattened (row, prompt_set).
    """

    recipients: NDArray[np.int64]
    donors: NDArray[np.int64]
    missing: NDArray[np.bool_]
    """Which values are missing: shape (slot, column)."""
    combinations: Floats
    """Every combination of these values that a donor has: shape (combination, value)."""
    combination_of: NDArray[np.int64]
    """The combination of each donor."""
    class_examples: NDArray[np.int64]
    """One set of each class. The sets of a class are equal in every other value that is read."""
    class_of: NDArray[np.int64]
    """The class of each recipient, then of each donor."""
    observed_hashes: NDArray[np.uint64]
    """Of each recipient, then of each donor: a hash of the values that are known of the responses
    with missing ones.
    """
    stratum_hashes: NDArray[np.uint64]
    """Of each recipient, then of each donor: a hash of the harm domain."""


def _yield_patterns(grid: _ValueGrid, rows: int) -> Iterator[_MissingPattern]:
    """Yield the patterns of each model, which has `rows` rows of the grid."""
    sets = grid.values.shape[1]
    values = grid.values.reshape(-1, *grid.values.shape[2:])
    is_missing = grid.missing.reshape(len(values), -1)
    usable = ~np.isnan(values)
    # the strategy of a response that was not probed is part of its values
    usable[..., 3] |= usable[..., :2].all(axis=-1) & ~grid.missing.reshape(values.shape)[..., 3]
    for start in range(0, len(values), rows * sets):
        rows_of_model = slice(start, start + rows * sets)
        lacks_any = is_missing[rows_of_model].any(axis=1)
        _, first, mask_of = np.unique(
            _hash_rows(is_missing[rows_of_model][lacks_any].astype(np.float64)),
            return_index=True,
            return_inverse=True,
        )
        masks = is_missing[rows_of_model][lacks_any][first]
        places = start + np.flatnonzero(lacks_any)
        for number, mask in enumerate(masks):
            absent = mask.reshape(values.shape[1:])
            has_value = usable[rows_of_model][:, absent]
            if not absent[:, 0].any() and not absent[:, 1].any():
                has_value = ~np.isnan(values[rows_of_model][:, absent])
            donors = start + np.flatnonzero(has_value.all(axis=1))
            donated = values[donors][:, absent]
            _, first, combination_of = np.unique(
                _hash_rows(donated), return_index=True, return_inverse=True
            )
            recipients = places[mask_of.reshape(-1) == number]
            both = np.concatenate([recipients, donors])
            # what is known of the responses with missing values; one that is missing as a whole has
            # no mode and was not probed
            observed_beside = ~np.isnan(values[recipients]).any(axis=0) & ~absent
            observed_beside &= np.asarray(absent.any(axis=1, keepdims=True))
            observed = values[both][:, ~absent & grid.read_columns], grid.exists[both % sets]
            _, class_examples, class_of = np.unique(
                _hash_rows(np.concatenate(observed, axis=1)), return_index=True, return_inverse=True
            )
            yield _MissingPattern(
                recipients,
                donors,
                absent,
                donated[first],
                combination_of.reshape(-1),
                both[class_examples],
                class_of.reshape(-1),
                _hash_rows(values[both][:, observed_beside]),
                _hash_rows(grid.strata[both % sets, None].astype(np.float64)),
            )


def _collect_donor_values(
    grid: _ValueGrid,
    rows: int,
    specs: Mapping[str, CompletionSpec],
    max_safe_harm: int,
) -> dict[str, _DonorValues]:
    """Return the donated values of each metric, by name.

    Args:
        grid: the values.
        rows: how many rows of the grid a model has.
        specs: the metrics, by name.
        max_safe_harm: the greatest harm severity that still counts as safe.
    """
    values = grid.values.reshape(-1, *grid.values.shape[2:])
    patterns = list(_yield_patterns(grid, rows))
    if not patterns:
        none = np.zeros(0)
        return {name: _DonorValues(none.astype(np.int64), none, none, none) for name in specs}
    trials_by_pattern, filled = [], []
    for pattern in patterns:
        trials_by_pattern.append(
            np.repeat(values[pattern.class_examples][None], len(_TRIAL_VALUES), axis=0)
        )
        trials_by_pattern[-1][:, :, pattern.missing] = _TRIAL_VALUES[
            :, None, np.nonzero(pattern.missing)[1]
        ]
        filled.append(np.repeat(values[pattern.recipients], len(pattern.combinations), axis=0))
        filled[-1][:, pattern.missing] = np.tile(pattern.combinations, (len(pattern.recipients), 1))
    examples = np.concatenate([pattern.class_examples for pattern in patterns])
    trials = np.concatenate(trials_by_pattern, axis=1).reshape(-1, *values.shape[1:])
    places = [np.repeat(pattern.recipients, len(pattern.combinations)) for pattern in patterns]
    computed = grid.compute_made_sets(
        np.concatenate([trials, *filled]),
        np.concatenate([np.tile(examples, len(_TRIAL_VALUES)), *places]),
        specs,
        max_safe_harm,
    )
    boundaries = np.cumsum([len(trials), *map(len, filled[:-1])])
    pattern_ends = np.cumsum([len(pattern.class_examples) for pattern in patterns])[:-1]
    donor_values = {}
    trial_results: dict[str, list[Floats]] = {}
    for name, spec in specs.items():
        trial_results.setdefault(spec.donor_group or name, []).append(
            computed[name][:, : boundaries[0]]
        )
    for name, parts in computed.items():
        _, *filled_by_pattern = np.split(parts, boundaries, axis=1)
        together = np.concatenate(trial_results[specs[name].donor_group or name])
        rest_hashes = np.split(_hash_rows(together.reshape(-1, len(examples)).T), pattern_ends)
        found = map(_count_donors, patterns, rest_hashes, filled_by_pattern)
        donor_values[name] = _DonorValues(
            *(np.concatenate(part) for part in zip(*found, strict=True))
        )
    return donor_values


def _count_donors(
    pattern: _MissingPattern, rest_hashes: NDArray[np.uint64], filled: Floats
) -> tuple[NDArray[np.int64], Floats, Floats, Floats]:
    """Return place, numerator, denominator and number of donors of each candidate.

    A recipient takes the donors that are like it in the observed values of the incomplete
    responses, in the effect of the rest of the set, and in the harm domain. If they are fewer than
    `FEWEST_DONORS`, the last of these conditions is dropped, then the next.

    Args:
        pattern: recipients and donors.
        rest_hashes: of each class, a hash of its metrics with the four trial values.
        filled: numerator and denominator of each recipient with each combination of donated values,
            shape (2, recipient × combination).
    """
    recipients, combinations = len(pattern.recipients), len(pattern.combinations)
    rest_hashes = rest_hashes[pattern.class_of]
    counts = np.zeros((recipients, combinations))
    unmatched = np.arange(recipients)
    for similarity in (
        pattern.observed_hashes ^ rest_hashes ^ pattern.stratum_hashes,
        pattern.observed_hashes ^ rest_hashes,
        pattern.observed_hashes,
        np.zeros_like(rest_hashes),
    ):
        keys, key_of = np.unique(similarity[:recipients][unmatched], return_inverse=True)
        at = np.minimum(np.searchsorted(keys, similarity[recipients:]), len(keys) - 1)
        is_donor_of_key = keys[at] == similarity[recipients:]
        numbers = (at * combinations + pattern.combination_of)[is_donor_of_key]
        by_key = np.bincount(numbers, minlength=keys.size * combinations).reshape(
            keys.size, combinations
        )
        enough = (by_key.sum(axis=1) >= FEWEST_DONORS) | (not similarity.any())
        counts[unmatched] = by_key[key_of] * enough[key_of, None]
        unmatched = unmatched[~enough[key_of]]
        if not unmatched.size:
            break
    numerator, denominator = filled.reshape(2, recipients, -1)
    at, combination = np.nonzero(counts)
    return (
        pattern.recipients[at],
        numerator[at, combination],
        denominator[at, combination],
        counts[at, combination],
    )


def _hash_rows(rows: Floats) -> NDArray[np.uint64]:
    """Return a number for each row, the same for equal rows: a hash of the values in steps of
    10⁻⁶.
    """
    whole = np.round(np.nan_to_num(rows, nan=-9.0) * 1e6).astype(np.int64).astype(np.uint64)
    factors = np.random.default_rng(rows.shape[1]).integers(
        1, 2**63, size=rows.shape[1], dtype=np.uint64
    )
    number = whole @ (2 * factors + np.uint64(1))
    mixed: NDArray[np.uint64] = (number ^ (number >> np.uint64(29))) * np.uint64(0x9E3779B97F4A7C15)
    return mixed
