"""How far missing grades could move a number: each prompt-set that lacks something is completed
with the values of comparable responses, tilted by the odds that are allowed (docs/statistics.md).
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
from opensafeintent.numbers.metrics import METRICS, Metric, Needs, one_epoch_each
from opensafeintent.statistics.comparisons import Comparison
from opensafeintent.statistics.intervals import Completed, Floats
from opensafeintent.taxonomy import (
    CORE_VARIANTS,
    DUAL_USE,
    MISSING_ODDS,
    MODES,
    STRATEGIES,
    find_intent,
    find_question,
    is_dual_use,
)

ODDS = (1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0, 20.0, 30.0, 50.0, 100.0, 1000.0)
"""The odds at which it is tried whether a verdict still holds."""
FEWEST_DONORS = 10
"""Comparable responses that a completion needs before it compares in more."""

_RANDOM, _ODDS, _ANY = range(1, 1 + len(ASSUMPTIONS))
Flags = NDArray[np.bool_]
Field = Literal["grades", "mode", "strategy"]
_COLUMNS: dict[Field, tuple[int, ...]] = {"grades": (0, 1), "mode": (2,), "strategy": (3,)}
_FIELDS = ("helpfulness", "harm_severity", "mode", "strategy")
"""Columns of the values of a response."""

_GRADES = ((1.0, 3.0), (4.0, 0.0))
"""Helpfulness and harm severity: the worst, and the best."""
_CORNERS = (*_GRADES, (1.0, 0.0))
"""And safe without help: it may be an extreme of metrics that compare responses, or leave unsafe
ones out.
"""
_Triple = tuple[tuple[float, float], ...]
"""Of each intent; of wordings, of the first that is missing and of the others."""
_COUNTED = 1e-9
"""A completion in which a set counts goes before one in which it does not, if the value is the
same.
"""
_BETWEEN = ((2.0, 0.0), (3.0, 0.0))
"""Safe, with some help: between the corners, where a range may be least."""
_SAME_BOUND: list[_Triple] = [(grades,) * 3 for grades in _GRADES]
_Codes = tuple[int | None, tuple[int, ...] | None]
_MODES: list[_Codes] = [(place, None) for place in range(len(MODES))]


MOST_TURNED = 40
"""Models of which it is told at which odds a difference turns."""


def find_turning(alone: Flags, holds: Callable[[float], Flags]) -> Floats:
    """Return the greatest of `ODDS` up to which each verdict holds: 0 if it holds at none, infinity
    if at each; NaN if there is none.

    Args:
        alone: whether the interval alone gives a verdict that missing grades can move.
        holds: whether it holds at these odds: the same shape.
    """
    reached = np.where(alone, 0.0, np.nan)
    for odds in ODDS:
        if not alone.any():
            return reached
        alone = np.asarray(alone & holds(odds))
        reached[alone] = odds
    reached[alone] = inf
    return reached


Turning: TypeAlias = float | UnsetType | None
"""Odds at which a verdict turns, as they are stored: null if none does, unset if there is no
verdict that missing grades can move.
"""


def store_turning(odds: float | None) -> Turning:
    """Return odds of `find_turning` as they are stored."""
    if odds is None or isnan(odds):
        return UNSET
    return None if odds == inf else float(odds)


def read_turning(stored: Turning) -> float | None:
    """Return stored odds as numbers, infinity if none turns the verdict; None without one."""
    if isinstance(stored, UnsetType):
        return None
    return inf if stored is None else stored


def compare_at(compare: Callable[[float], Comparison], odds: float, moved: Flags) -> Comparison:
    """Return the differences of every two models, with the odds at which each turns; of more than
    `MOST_TURNED` models without these.

    Args:
        compare: the comparison at some odds of missing grades.
        odds: those in force.
        moved: whether missing grades can move a model's value, shape (model,).
    """
    comparison = compare(odds)
    if len(moved) > MOST_TURNED:
        return comparison
    shown = (comparison.low > 0) | (comparison.high < 0)
    alone = np.asarray(shown & (moved[:, None] | moved))
    return comparison._replace(turning_odds=find_turning(alone, lambda at: compare(at).claimed))


def find_moved(as_graded: Completed, *ends: Completed) -> Flags:
    """Tell for each model whether missing grades can move a value: shape (model,).

    Args:
        as_graded: of the models.
        ends: the same with missing grades.
    """
    same = [
        np.isclose(known, filled).all(axis=1)
        for end in ends
        for known, filled in zip(as_graded, end, strict=True)
        if not np.array_equal(known, filled)  # mostly they are
    ]
    return np.asarray(~np.all(same, axis=0)) if same else np.zeros(len(as_graded[0]), dtype=bool)


class Need(NamedTuple):
    """What metrics with the same needs are computed from."""

    name: str
    is_used: Callable[[str], bool]
    """Of a variant."""
    fields: tuple[Field, ...]
    extremes: tuple[list[_Triple], list[_Codes]]
    """Values that may be extremes: grades of each intent or wording; mode, and strategy of each
    intent.
    """


NEEDS: dict[Needs, Need] = {
    "triplet": Need(
        "triplet",
        CORE_VARIANTS.__contains__,
        ("grades",),
        (list(product(_CORNERS, _CORNERS, _GRADES)), [(None, None)]),
    ),
    "pair": Need(
        "pair",
        ("benign", "malicious").__contains__,
        ("grades",),
        ([(benign, benign, other) for benign, other in product(_CORNERS, _GRADES)], [(None, None)]),
    ),
    "triplet_in_order": Need(
        "triplet_in_order",
        CORE_VARIANTS.__contains__,
        ("grades",),
        (_SAME_BOUND, [(None, None)]),
    ),
    "wordings": Need(
        "wordings",
        is_dual_use,
        ("grades",),
        (
            [
                *((first, *(others,) * 2) for first, others in product(_CORNERS, repeat=2)),
                *((grades,) * 3 for grades in _BETWEEN),
            ],
            [(None, None)],
        ),
    ),
    "triplet_and_wordings": Need(
        "triplet_and_wordings",
        lambda variant: find_intent(variant) in CORE_VARIANTS,
        ("grades",),
        (_SAME_BOUND, [(None, None)]),
    ),
    "mode": Need("mode", DUAL_USE.__eq__, ("mode",), (_SAME_BOUND[:1], _MODES)),
    "mode_and_grades": Need(
        "mode_and_grades", DUAL_USE.__eq__, ("grades", "mode"), (_SAME_BOUND, _MODES)
    ),
    "strategy": Need(
        "strategy",
        DUAL_USE.__eq__,
        ("grades", "strategy"),
        (_SAME_BOUND, [(None, (place,) * 3) for place in range(len(STRATEGIES))]),
    ),
    "probes": Need(
        "probes",
        CORE_VARIANTS.__contains__,
        ("grades", "strategy"),
        (list(product(_GRADES, repeat=3)), [(None, (0, 1, 2)), (None, (2, 1, 0))]),
    ),
    "questions": Need(
        "questions",
        lambda variant: find_question(variant) is not None,
        ("grades",),
        (_SAME_BOUND, [(None, None)]),
    ),
    "benign_mode": Need("benign_mode", "benign".__eq__, ("mode",), (_SAME_BOUND[:1], _MODES)),
}


def need_replies(variant: str) -> Need:
    """Return the need of a share of the replies to one variant."""
    return Need(variant, variant.__eq__, ("grades",), (_SAME_BOUND, [(None, None)]))


class Equation(NamedTuple):
    """A number to complete."""

    of_sets: Callable[[Grades], Ratio]
    need: Need
    over_epochs: bool = False
    like: str = ""
    """Numbers with the same word here have the same donors: those that are alike in all of them.
    """


def make_equation(metric: Metric) -> Equation:
    """Return how a metric is completed."""
    return Equation(metric.of_sets, NEEDS[metric.needs], metric.over_epochs, metric.counted)


class Completions:
    """Metrics with their missing values filled in.

    Args:
        array: the grades, as `grades.to_array` gives them.
        equations: by name; by default every metric.
        ratios: the same of the grades.
        most_harm: the greatest harm severity that still counts as safe.
    """

    def __init__(
        self,
        array: LabelledSet,
        ratios: Mapping[str, Ratio],
        equations: Mapping[str, Equation] | None = None,
        most_harm: int = 0,
    ) -> None:
        self._array, self._ratios, self._most_harm = _mark_missing(array), ratios, most_harm
        self._equations = equations or {name: make_equation(METRICS[name]) for name in ratios}

    def extremes(self, odds: float = MISSING_ODDS) -> dict[str, tuple[Completed, Completed]]:
        """Return each metric with its missing values as they make it least, and greatest.

        Args:
            odds: how many times the odds of comparable responses a missing one may have, 1 or more.
        """
        return {name: self.complete(name, odds) for name in self._items}

    def complete(self, name: str, odds: float) -> tuple[Completed, Completed]:
        """Return a metric as `extremes` does."""
        item = self._items[name]
        return item.tilt(-1, odds), item.tilt(1, odds)

    @cached_property
    def outermost(self) -> dict[str, tuple[Completed, Completed]]:
        """Each metric at its least and greatest, whatever is missing and for whichever reason."""
        return {
            name: (item.take_extreme(-1), item.take_extreme(1))
            for name, item in self._items.items()
        }

    @cached_property
    def bounds(self) -> dict[str, tuple[Floats, Floats]]:
        """The values of `outermost`, shape (model,); NaN if nothing can count."""
        return {name: (low.value, high.value) for name, (low, high) in self.outermost.items()}

    @cached_property
    def _items(self) -> dict[str, _Completion]:
        items: dict[str, _Completion] = {}
        alike: dict[tuple[str, bool], dict[str, Equation]] = {}
        for name, item in self._equations.items():
            alike.setdefault((item.need.name, item.over_epochs), {})[name] = item
        for (_, over_epochs), equations in alike.items():
            need = next(iter(equations.values())).need
            used = [name for name in self._array.labels["variant"] if need.is_used(str(name))]
            array = self._array.sel(variant=used)
            array = array if over_epochs else one_epoch_each(array)
            items |= self._complete(array, need, equations)
        return {name: items[name] for name in self._equations}

    def _complete(
        self, array: LabelledSet, need: Need, equations: Mapping[str, Equation]
    ) -> dict[str, _Completion]:
        """Return the completions of metrics with the same need.

        Args:
            array: with each epoch of a model as a model of its own, or with all epochs.
            need, equations: theirs.
        """
        extremes = [Grades(done, self._most_harm) for done in _yield_extremes(array, need)]
        if not extremes:
            return {name: _Completion.of(self._ratios[name]) for name in equations}
        models = self._array.sizes["model"]
        rows = array.sizes["model"] // models
        grid = _Grid.read(array, need)
        donated = _donate(grid, rows, equations, self._most_harm)
        assumed = np.moveaxis(grid.assumed.reshape(models, rows, -1), 1, -1)
        items = {}
        for name, equation in equations.items():
            tops, bottoms = (
                np.moveaxis(part.reshape(len(extremes), models, rows, -1), 2, -1)
                for part in _stack([equation.of_sets(grades) for grades in extremes])
            )
            several = rows > 1
            epochs = self._count_epochs(equation, need, bottoms) if several else np.float64(1)
            items[name] = _Completion(
                tops / epochs,
                bottoms / epochs,
                assumed,
                self._ratios[name].value.values,
                donated[name].divide(np.broadcast_to(epochs, assumed.shape), rows),
            )
        return items

    def _count_epochs(self, equation: Equation, need: Need, bottoms: Floats) -> Floats:
        """Return how many epochs a set's parts are means over, shape (model, prompt_set, 1): those
        that are complete, which are the same ones in every completion. Their number is the sum of
        the epochs' denominators over that of all together.
        """
        whole = _stack(
            [
                equation.of_sets(Grades(done, self._most_harm))
                for done in _yield_extremes(self._array, need)
            ]
        )
        with np.errstate(invalid="ignore", divide="ignore"):
            epochs = np.nan_to_num(bottoms.sum(axis=-1) / whole[1]).max(axis=0)
        number: Floats = np.maximum(epochs, 1.0)[..., None]
        return number


@dataclass(frozen=True)
class _Donated:
    """Values that comparable sets give a set without one: arrays of shape (candidate,)."""

    place: NDArray[np.int64]
    """The set in the flattened array (row, prompt_set), or (model, prompt_set, epoch)."""
    tops: Floats
    bottoms: Floats
    count: Floats
    """The number of donors with it."""

    def divide(self, epochs: Floats, rows: int) -> _Donated:
        """Return parts of a set's mean over its epochs.

        Args:
            epochs: their number, shape (model, prompt_set, epoch).
            rows: how many rows of the grid a model has.
        """
        row, at = np.divmod(self.place, epochs.shape[1])
        model, epoch = np.divmod(row, rows)
        place = np.ravel_multi_index((model, at, epoch), epochs.shape)
        number = epochs[model, at, epoch]
        return _Donated(place, self.tops / number, self.bottoms / number, self.count)


@dataclass(frozen=True)
class _Completion:
    """A metric with its missing values at each extreme, and at the values of donors."""

    tops: Floats
    """Shape (extreme, model, prompt_set, epoch): an epoch's part of a set's mean."""
    bottoms: Floats
    assumed: NDArray[np.int8]
    """What is assumed of the part, 0 if nothing is missing: shape (model, prompt_set, epoch)."""
    value: Floats
    """Of the metric as graded, shape (model,)."""
    donated: _Donated | None

    @classmethod
    def of(cls, ratio: Ratio) -> _Completion:
        """Return a metric of which nothing is missing."""
        top, bottom = (part.values[None, ..., None] for part in ratio)
        return cls(top, bottom, np.zeros(top.shape[1:], dtype=np.int8), ratio.value.values, None)

    def take_extreme(self, sign: int) -> Completed:
        """Return it at its least (`sign` −1) or greatest (1), whatever is missing."""
        return _optimise(self.tops, self.bottoms, np.zeros(self.tops.shape[1:]), sign)

    @property
    def _value(self) -> Floats:
        return np.broadcast_to(self.value[:, None, None], self.assumed.shape).ravel()

    @cached_property
    def _ends(self) -> tuple[list[list[Floats]], Floats, Floats, Floats, Floats]:
        """Each part at its least and its greatest, as (numerator, denominator); v at either; v of
        each candidate, and where it lies between them, from 0 to 1. They depend on no odds.
        """
        assert self.donated is not None
        value, place = self._value, self.donated.place
        flat = [part.reshape(len(part), -1) for part in (self.tops, self.bottoms)]
        gains = flat[0] - value * flat[1]
        ends = []
        for sign in (-1, 1):
            which = (sign * gains + _COUNTED * flat[1]).argmax(axis=0)
            ends.append([part[which, np.arange(value.size)] for part in flat])
        low, high = (top - value * bottom for top, bottom in ends)
        span = np.where(high - low > 1e-12, high - low, 1.0)
        given = self.donated.tops - value[place] * self.donated.bottoms
        return ends, low, high, given, (given - low[place]) / span[place]

    def tilt(self, sign: int, odds: float) -> Completed:
        """Return it with its missing values as they make it least (`sign` −1) or greatest (1)."""
        donated = self.donated
        if donated is None:
            return self.take_extreme(sign)
        shape, value = self.assumed.shape, self._value
        (least, greatest), low, high, given, position = self._ends
        assumed = self.assumed.ravel()
        total = np.bincount(donated.place, donated.count, minlength=value.size)
        with np.errstate(over="ignore"):
            rate = np.where(assumed == _RANDOM, 0.0, sign * log(odds) if odds < inf else 0.0)
        tilted = donated.count * np.exp(rate[donated.place] * position)
        pseudo = [(assumed == _ODDS).astype(float), (assumed == _ODDS) * np.exp(rate)]
        parts = [
            np.bincount(donated.place, tilted * values, minlength=value.size)
            + sum(weight * end for weight, end in zip(pseudo, pair, strict=True))
            for values, pair in (
                (np.ones_like(given), (1.0, 1.0)),
                (donated.tops, (least[0], greatest[0])),
                (donated.bottoms, (least[1], greatest[1])),
                (given, (low, high)),
                (given**2, (low**2, high**2)),
            )
        ]
        free = (
            (assumed == _ANY)
            | ((assumed == _ODDS) & (odds == inf))
            | ((assumed > 0) & ((total == 0) | np.isnan(value)))
        ).reshape(shape)
        with np.errstate(invalid="ignore", divide="ignore"):
            top, bottom, mean, square = (part / parts[0] for part in parts[1:])
        filled = ((assumed > 0) & ~free.ravel()).reshape(shape)
        tops = np.where(filled, top.reshape(shape), self.tops)
        bottoms = np.where(filled, bottom.reshape(shape), self.bottoms)
        spread = np.where(filled, np.maximum(square - mean**2, 0.0).reshape(shape), 0.0)
        moved = ((assumed > 0) & (high - low > 1e-12)).reshape(shape).sum(axis=(1, 2))
        parts_in_all = (self.bottoms > 0).any(axis=0).sum(axis=(1, 2))
        share = parts_in_all / np.maximum(parts_in_all - moved, 1)
        return _optimise(tops, bottoms, spread * (1 + share)[:, None, None], sign)


def _optimise(tops: Floats, bottoms: Floats, variance: Floats, sign: int) -> Completed:
    """Choose an extreme of every set so that Σ top / Σ bottom is greatest (`sign` 1) or least (−1).

    That is Dinkelbach's iteration (Management Science 13, 1967): each step maximises top − value ·
    bottom, with the value so far.

    Args:
        tops, bottoms: each of shape (extreme, model, prompt_set, epoch).
        variance: shape (model, prompt_set, epoch).
        sign: the end of the range.
    """
    if len(tops) == 1:  # nothing to choose
        top, bottom = (np.ascontiguousarray(part[0]).sum(axis=2) for part in (tops, bottoms))
        return Completed(top, bottom, variance.sum(axis=2))
    shape = tops.shape[1:]
    tops, bottoms = (part.reshape(*part.shape[:2], -1) for part in (tops, bottoms))
    with np.errstate(invalid="ignore", divide="ignore"):
        value = (
            np.nan_to_num(sign * tops.sum(axis=2) / bottoms.sum(axis=2), nan=-np.inf).max(axis=0)
            * sign
        )
        value = np.where(np.isfinite(value), value, 0.0)
        while True:
            gains = sign * (tops - value[:, None] * bottoms) + _COUNTED * bottoms
            which = gains.argmax(axis=0)[None]
            top, bottom = (np.take_along_axis(part, which, axis=0)[0] for part in (tops, bottoms))
            better = np.nan_to_num(top.sum(axis=1) / bottom.sum(axis=1), nan=0.0)
            if not (sign * (better - value) > 1e-12).any():
                top, bottom = (part.reshape(shape).sum(axis=2) for part in (top, bottom))
                return Completed(top, bottom, variance.sum(axis=2))
            value = better


def _stack(ratios: Sequence[Ratio]) -> tuple[Floats, Floats]:
    """Return numerators and denominators: each of shape (ratio, model, prompt_set)."""
    tops, bottoms = (
        np.stack([getattr(ratio, part).values for ratio in ratios]) for part in Ratio._fields
    )
    return tops, bottoms


def _mark_missing(array: LabelledSet) -> LabelledSet:
    """Return grades in which a response that is missing lacks its mode, too, if the modes of its
    model and variant were asked for.
    """
    arrays = {name: (array[name].dims, array[name].values) for name in array}
    mode, grades = array["mode"], array["grades_missing"].values
    axes = tuple(mode.dims.index(name) for name in ("prompt_set", "epoch"))
    lacking, missing = np.isnan(mode.values), array["mode_missing"].values
    asked = (~lacking | (missing > 0)).any(axis=axes, keepdims=True)
    arrays["mode_missing"] = (mode.dims, np.maximum(missing, grades * (lacking & asked)))
    return LabelledSet(arrays, array.labels)


def _yield_extremes(array: LabelledSet, need: Need) -> Iterator[LabelledSet]:
    """Yield the grades with missing values filled in, in each way that may be an extreme; none if
    nothing is missing.
    """
    missing = {field: array[f"{field}_missing"].values for field in _COLUMNS}
    if not any(is_missing.any() for is_missing in missing.values()):
        return
    # an unsafe response is probed: if its grade is missing, so is the probe's strategy
    if need.name == "strategy":
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
    if need.name == "wordings":
        of_wordings = (missing["grades"] > 0) & (which == CORE_VARIANTS.index(DUAL_USE))
        which = np.minimum(of_wordings.cumsum(axis=dims.index("variant")), 2) // 2
    known = {name: array[name].values for name in _FIELDS}
    for name in ("helpfulness", "harm_severity"):
        alone = array[f"{name}_alone"].values
        known[name] = np.where(np.isnan(known[name]), alone, known[name])
    arrays = {name: (array[name].dims, array[name].values) for name in array}
    for grades, (mode, strategies) in product(*need.extremes):
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


class _Grid(NamedTuple):
    """The values that metrics with the same needs are computed from; a row is a model, or an epoch
    of one.
    """

    values: Floats
    """Shape (row, prompt_set, cell, field); NaN is missing. A cell is a variant, or an epoch of
    one.
    """
    missing: NDArray[np.bool_]
    """Whether a value was requested but not obtained: the same shape."""
    assumed: NDArray[np.int8]
    """The strictest assumption about what a set lacks, 0 if it lacks nothing: shape (row,
    prompt_set).
    """
    used: NDArray[np.bool_]
    """The fields that the metrics read: shape (field,)."""
    exists: NDArray[np.bool_]
    """Shape (prompt_set, variant)."""
    repeated: NDArray[np.bool_]
    """Whether a row's model has responses of an epoch: shape (row, epoch)."""
    strata: NDArray[np.int64]
    """The harm domain of each prompt-set, as a number."""
    variants: Sequence[str]
    epochs: int

    @classmethod
    def read(cls, array: LabelledSet, need: Need) -> _Grid:
        """Return the part of grades that is needed."""
        variants = [str(name) for name in array.labels["variant"] if need.is_used(str(name))]
        at = [list(array.labels["variant"]).index(name) for name in variants]
        epochs = array.sizes["epoch"]
        rows, sets = array.sizes["model"], array.sizes["prompt_set"]

        def take(name: str) -> NDArray[Any]:
            ordered = array[name].transpose("model", "prompt_set", "variant", "epoch").values
            return ordered[:, :, at].reshape(rows, sets, len(at) * epochs)

        values = np.stack([take(name) for name in _FIELDS], axis=-1)
        for column, name in enumerate(_FIELDS[:2]):
            known, alone = values[..., column], take(f"{name}_alone")
            values[..., column] = np.where(np.isnan(known), alone, known)
        by_field = np.zeros(values.shape, dtype=np.int8)
        for field in need.fields:
            mark = take(f"{field}_missing")
            for column in _COLUMNS[field]:
                by_field[..., column] = np.where(np.isnan(values[..., column]), mark, 0)
        if need.name == "strategy":  # an unsafe response is probed
            by_field[..., 3] = np.maximum(
                by_field[..., 3], take("grades_missing") * np.isnan(values[..., 3])
            )
        domains = array["harm_domain"].values
        return cls(
            values,
            by_field > 0,
            by_field.max(axis=(2, 3), initial=0),
            np.isin(range(len(_FIELDS)), [at for name in need.fields for at in _COLUMNS[name]]),
            array["exists"].values[:, at],
            array["repeated"].values,
            np.unique(domains, return_inverse=True)[1].reshape(-1),
            variants,
            epochs,
        )

    def compute(
        self,
        values: Floats,
        places: NDArray[np.int64],
        equations: Mapping[str, Equation],
        most_harm: int,
    ) -> dict[str, Floats]:
        """Return metrics of made prompt-sets: by name, numerators and denominators, shape (2, made
        set).

        Args:
            values: shape (made set, cell, field).
            places: what each is made of, in the flattened (row, prompt_set).
            equations: of the metrics.
            most_harm: the greatest harm severity that still counts as safe.
        """
        parts: dict[str, list[Floats]] = {name: [] for name in equations}
        rows, sets = np.divmod(places, len(self.exists))
        for start in range(0, len(values), _AT_ONCE):
            chunk = slice(start, start + _AT_ONCE)
            made = values[chunk]
            shaped = made.reshape(1, len(made), len(self.variants), self.epochs, len(_FIELDS))
            dims = ("model", "prompt_set", "variant", "epoch")
            counts = ~np.isnan(shaped[..., :2]).any(axis=-1)
            arrays: dict[str, tuple[Sequence[str], NDArray[np.generic]]] = {
                name: (
                    dims,
                    shaped[..., column]
                    if column > 1
                    else np.where(counts, shaped[..., column], np.nan),
                )
                for column, name in enumerate(_FIELDS)
            }
            arrays["exists"] = (("prompt_set", "variant"), self.exists[sets[chunk]])
            arrays["repeated"] = (("prompt_set", "epoch"), self.repeated[rows[chunk]])
            labels = {
                "model": [""],
                "prompt_set": range(len(made)),
                "variant": list(self.variants),
                "epoch": range(self.epochs),
            }
            grades = Grades(LabelledSet(arrays, labels), most_harm)
            for name, equation in equations.items():
                ratio = equation.of_sets(grades)
                parts[name].append(np.concatenate([part.values for part in ratio]))
        return {name: np.concatenate(chunks, axis=1) for name, chunks in parts.items()}


_AT_ONCE = 200_000
"""Made prompt-sets whose metrics are computed together."""
_SIGNS = np.array([(1, 3, 0, 0), (4, 0, 4, 1), (1, 0, 2, 2), (3, 0, 3, 0)], dtype=float)
"""Values that stand in for missing ones, to see what the rest of a set is worth to a metric: sets
that give the same value with each of them are alike.
"""


class _Gap(NamedTuple):
    """The sets of one model that lack the same values, and those that have them."""

    lacking: NDArray[np.int64]
    """Places in the flattened (row, prompt_set)."""
    donors: NDArray[np.int64]
    cells: NDArray[np.bool_]
    """The missing values: shape (cell, field)."""
    vectors: Floats
    """Every combination of these values that donors have: shape (vector, value)."""
    which: NDArray[np.int64]
    """The combination of each donor."""
    first: NDArray[np.int64]
    """Places, as in `lacking`, of sets that are unlike in what is known."""
    known: NDArray[np.int64]
    """Which of these the sets, then the donors, are like."""
    own: NDArray[np.uint64]
    """A number for what is known of the responses that lack something: of the sets and donors."""
    stratum: NDArray[np.uint64]


def _find_gaps(grid: _Grid, rows: int) -> Iterator[_Gap]:
    sets = grid.values.shape[1]
    values = grid.values.reshape(-1, *grid.values.shape[2:])
    missing = grid.missing.reshape(len(values), -1)
    usable = ~np.isnan(values)
    # the strategy of a response that was not probed is part of its values
    usable[..., 3] |= usable[..., :2].all(axis=-1) & ~grid.missing.reshape(values.shape)[..., 3]
    for start in range(0, len(values), rows * sets):
        of_model = slice(start, start + rows * sets)
        lacks = missing[of_model].any(axis=1)
        _, first, pattern_of = np.unique(
            _number_rows(missing[of_model][lacks].astype(np.float64)),
            return_index=True,
            return_inverse=True,
        )
        patterns = missing[of_model][lacks][first]
        places = start + np.flatnonzero(lacks)
        for number, pattern in enumerate(patterns):
            cells = pattern.reshape(values.shape[1:])
            needed = usable[of_model][:, cells]
            if not cells[:, 0].any() and not cells[:, 1].any():
                needed = ~np.isnan(values[of_model][:, cells])
            donors = start + np.flatnonzero(needed.all(axis=1))
            given = values[donors][:, cells]
            _, first, which = np.unique(_number_rows(given), return_index=True, return_inverse=True)
            lacking = places[pattern_of.reshape(-1) == number]
            both = np.concatenate([lacking, donors])
            # what is known of the incomplete responses of each of these sets: a response that is
            # missing has no mode and was not probed
            near = ~np.isnan(values[lacking]).any(axis=0) & ~cells
            near &= np.asarray(cells.any(axis=1, keepdims=True))
            known = values[both][:, ~cells & grid.used], grid.exists[both % sets]
            _, at, alike = np.unique(
                _number_rows(np.concatenate(known, axis=1)), return_index=True, return_inverse=True
            )
            yield _Gap(
                lacking,
                donors,
                cells,
                given[first],
                which.reshape(-1),
                both[at],
                alike.reshape(-1),
                _number_rows(values[both][:, near]),
                _number_rows(grid.strata[both % sets, None].astype(np.float64)),
            )


def _donate(
    grid: _Grid,
    rows: int,
    equations: Mapping[str, Equation],
    most_harm: int,
) -> dict[str, _Donated]:
    """Return the values that comparable sets give each set that lacks something.

    Args:
        grid: the values.
        rows: how many rows a model has.
        equations: of the metrics.
        most_harm: the greatest harm severity that still counts as safe.
    """
    values = grid.values.reshape(-1, *grid.values.shape[2:])
    gaps = list(_find_gaps(grid, rows))
    if not gaps:
        none = np.zeros(0)
        return {name: _Donated(none.astype(np.int64), none, none, none) for name in equations}
    signs, filled = [], []
    for gap in gaps:
        signs.append(np.repeat(values[gap.first][None], len(_SIGNS), axis=0))
        signs[-1][:, :, gap.cells] = _SIGNS[:, None, np.nonzero(gap.cells)[1]]
        filled.append(np.repeat(values[gap.lacking], len(gap.vectors), axis=0))
        filled[-1][:, gap.cells] = np.tile(gap.vectors, (len(gap.lacking), 1))
    unlike = np.concatenate([gap.first for gap in gaps])
    of_signs = np.concatenate(signs, axis=1).reshape(-1, *values.shape[1:])
    places = [np.repeat(gap.lacking, len(gap.vectors)) for gap in gaps]
    computed = grid.compute(
        np.concatenate([of_signs, *filled]),
        np.concatenate([np.tile(unlike, len(_SIGNS)), *places]),
        equations,
        most_harm,
    )
    edges = np.cumsum([len(of_signs), *map(len, filled[:-1])])
    ends = np.cumsum([len(gap.first) for gap in gaps])[:-1]
    donated = {}
    worth: dict[str, list[Floats]] = {}
    for name, equation in equations.items():
        worth.setdefault(equation.like or name, []).append(computed[name][:, : edges[0]])
    for name, parts in computed.items():
        _, *of_filled = np.split(parts, edges, axis=1)
        together = np.concatenate(worth[equations[name].like or name])
        rest = np.split(_number_rows(together.reshape(-1, len(unlike)).T), ends)
        found = map(_count_donors, gaps, rest, of_filled)
        donated[name] = _Donated(*(np.concatenate(part) for part in zip(*found, strict=True)))
    return donated


def _count_donors(
    gap: _Gap, rest: NDArray[np.uint64], filled: Floats
) -> tuple[NDArray[np.int64], Floats, Floats, Floats]:
    """Return place, numerator, denominator and number of donors of each value that a set may get.

    Args:
        gap: the sets without these values, and those with them.
        rest: a number for what the rest of each set of `first` is worth to a metric.
        filled: what it is with each combination of values, shape (2, set × combination).
    """
    lacking, vectors = len(gap.lacking), len(gap.vectors)
    rest = rest[gap.known]
    counts = np.zeros((lacking, vectors))
    open_ = np.arange(lacking)
    for level in (gap.own ^ rest ^ gap.stratum, gap.own ^ rest, gap.own, np.zeros_like(rest)):
        keys, key_of = np.unique(level[:lacking][open_], return_inverse=True)
        at = np.minimum(np.searchsorted(keys, level[lacking:]), len(keys) - 1)
        alike = keys[at] == level[lacking:]
        numbers = (at * vectors + gap.which)[alike]
        by_key = np.bincount(numbers, minlength=keys.size * vectors).reshape(keys.size, vectors)
        enough = (by_key.sum(axis=1) >= FEWEST_DONORS) | (not level.any())
        counts[open_] = by_key[key_of] * enough[key_of, None]
        open_ = open_[~enough[key_of]]
        if not open_.size:
            break
    top, bottom = filled.reshape(2, lacking, -1)
    at, vector = np.nonzero(counts)
    return gap.lacking[at], top[at, vector], bottom[at, vector], counts[at, vector]


def _number_rows(rows: Floats) -> NDArray[np.uint64]:
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
