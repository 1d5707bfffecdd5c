"""How far missing grades could move a number: its value if every one were the worst, and if every one were the best.

Grades are not missing at random: a judge refuses the worst responses first. What is missing is completed in every way that
can be an extreme, set by set; the least and the greatest ratio over all completions follow exactly (Dinkelbach 1967).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import combinations_with_replacement, pairwise, product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from opensafeintent.labelled import LabelledSet
from opensafeintent.metrics import METRICS, Grades, Metric, Needs, Ratio, compute
from opensafeintent.taxonomy import CORE_VARIANTS, DUAL_USE, MODES, SCALES, STRATEGIES, is_dual_use

__all__ = ["Parts", "extreme_ratios", "missing_bounds"]

Floats = NDArray[np.float64]
Parts = tuple[Floats, Floats]
"""Numerator and denominator."""

_FIELDS = ("helpfulness", "harm_severity", "mode", "strategy")
_ENDS = [(float(grades[0]), float(grades[-1])) for grades in SCALES.values()]
_CORNERS = tuple((helpfulness, harm) for harm in _ENDS[1] for helpfulness in _ENDS[0])
_WORDING_CORNERS = _CORNERS[:3]
"""How helpful an unsafe wording is plays no part in stability and range."""
_ROUNDS = 100


class _Family(NamedTuple):
    """What metrics with the same needs depend on."""

    variants: Callable[[Sequence[str]], list[str]]
    grades: bool = False
    mode: bool = False
    strategy: bool = False
    throughout: bool = False
    """Whether every core prompt has to have been probed: where none but unsafe responses were, nothing is missing."""


_FAMILIES: dict[Needs, _Family] = {
    "triplet": _Family(lambda _: list(CORE_VARIANTS), grades=True),
    "wordings": _Family(lambda names: [name for name in names if is_dual_use(name)], grades=True),
    "mode": _Family(lambda _: [DUAL_USE], mode=True),
    "mode_and_grades": _Family(lambda _: [DUAL_USE], grades=True, mode=True),
    "strategy": _Family(lambda _: [DUAL_USE], grades=True, strategy=True),
    "probes": _Family(lambda _: list(CORE_VARIANTS), grades=True, strategy=True, throughout=True),
    "benign_mode": _Family(lambda _: ["benign"], mode=True),
}


def missing_bounds(array: LabelledSet, ratios: Mapping[str, Ratio] | None = None) -> dict[str, tuple[Floats, Floats]]:
    """Return the least and greatest value of every metric, each of shape (model,); NaN where nothing can count.

    Args:
        array: the grades, as `grades.to_array` gives them.
        ratios: every metric of them (`metrics.compute`), where the caller has them.
    """
    found: dict[str, tuple[Floats, Floats]] = {}
    for names, search in _searches(array, ratios, METRICS):
        for name in names:
            low, high = (
                [search.extreme(name, model, greatest=greatest)[0] for model in range(search.models)]
                for greatest in (False, True)
            )
            found[name] = np.array(low), np.array(high)
    return found


def extreme_ratios(
    array: LabelledSet, names: Collection[str], ratios: Mapping[str, Ratio] | None = None
) -> dict[str, tuple[Parts, Parts]]:
    """Return some metrics as they would be if every missing grade were the one that makes them least, and greatest.

    Args:
        array: the grades, as `grades.to_array` gives them.
        names: of the metrics.
        ratios: every metric of the grades, where the caller has them.

    Returns:
        By metric, numerator and denominator of the least and of the greatest value, each of shape (model, prompt_set).
    """
    epochs = array.sizes["epoch"]
    found: dict[str, tuple[Parts, Parts]] = {}
    for family, search in _searches(array, ratios, names):
        for name in family:
            ends = []
            for greatest in (False, True):
                rows = [search.extreme(name, model, greatest=greatest)[1:] for model in range(search.models)]
                top, bottom = (
                    np.array([row[part].reshape(epochs, -1).sum(axis=0) for row in rows]).reshape(search.models, -1)
                    for part in (0, 1)
                )
                ends.append((top, bottom))
            found[name] = ends[0], ends[1]
    return found


def _searches(
    array: LabelledSet, ratios: Mapping[str, Ratio] | None, names: Collection[str]
) -> Iterator[tuple[list[str], _Search]]:
    """Yield the metrics of each family that are asked for, with the search for their extremes."""
    units = _stack_epochs(array)
    if ratios is None or array.sizes["epoch"] > 1:
        ratios = compute(units)
    for needs in _FAMILIES:
        family = [name for name in names if METRICS[name].needs == needs]
        if family:
            yield family, _Search(units, needs, ratios, epochs=array.sizes["epoch"], names=family)


def _stack_epochs(array: LabelledSet) -> LabelledSet:
    """Make every (set, epoch) a set of its own; a set's epochs stay `prompt_set` places apart."""
    if (epochs := array.sizes["epoch"]) == 1:
        return array
    stacked = {}
    for name in array:
        parts = [array[name].isel(epoch=[place]) if "epoch" in array[name].dims else array[name] for place in range(epochs)]
        axis = parts[0].dims.index("prompt_set")
        stacked[name] = (parts[0].dims, np.concatenate([part.values for part in parts], axis=axis))
    return LabelledSet(stacked, {**array.labels, "prompt_set": [*array.labels["prompt_set"]] * epochs, "epoch": [0]})


class _Search:
    """The completions of what a family's metrics lack, and the extremes among them.

    Args:
        units: the grades, every (set, epoch) a set.
        needs: what the metrics need.
        known: every metric of the grades that are there.
        epochs: how many there are.
        names: the metrics, those of the family.
    """

    def __init__(
        self, units: LabelledSet, needs: Needs, known: Mapping[str, Ratio], *, epochs: int, names: Sequence[str]
    ) -> None:
        self._known = known
        self._missing = _missing(units, _FAMILIES[needs])
        self._epochs = _epoch_weights(units, epochs)
        self._weights = self._epochs if "weight" not in units else self._epochs * units["weight"].values
        self.models = len(self._missing)
        self._open = [(model, int(unit)) for model in range(self.models) for unit in np.flatnonzero(self._missing[model])]
        self._options = _completions(units, needs, [METRICS[name] for name in names], self._open)

    def extreme(self, name: str, model: int, *, greatest: bool) -> tuple[float, Floats, Floats]:
        """Return a metric's least or greatest value, NaN where nothing can count, and what is behind it.

        That is its numerator and denominator, each of shape (unit,).
        """
        sign, (low, high) = (1, METRICS[name].span) if greatest else (-1, METRICS[name].span)
        weight, fixed = self._weights[model], ~self._missing[model]
        top = self._known[name].numerator.values[model] * self._epochs[model]  # weighted by what the set stands for
        bottom = self._known[name].denominator.values[model] * self._epochs[model]
        own = [
            (unit, *(part * weight[unit] for part in self._options[name][place]))
            for place, (of_model, unit) in enumerate(self._open)
            if of_model == model
        ]
        choices = [(sign * tops, bottoms) for _, tops, bottoms in own]
        ratio, chosen = _greatest(
            sign * float(top[fixed].sum()), float(bottom[fixed].sum()), choices, low if greatest else -high
        )
        for (unit, tops, bottoms), pick in zip(own, chosen, strict=True):
            top[unit], bottom[unit] = tops[pick], bottoms[pick]
        return sign * ratio, top, bottom


def _epoch_weights(units: LabelledSet, epochs: int) -> Floats:
    """Return the weight of each unit, shape (model, unit): one over the epochs on record of its set."""
    there = (units.helpfulness.notnull() | units.grades_missing).any(["variant", "epoch"]).values.astype(float)
    sets = there.shape[1] // epochs
    recorded = there.reshape(there.shape[0], epochs, sets).sum(axis=1)
    return np.asarray(np.tile(1 / np.maximum(recorded, 1), (1, epochs)), dtype=np.float64)


def _missing(units: LabelledSet, family: _Family) -> NDArray[np.bool_]:
    """Tell which units lack something that the family's metrics need: shape (model, unit)."""
    variants = family.variants([str(name) for name in units.variant.values])
    needed = {"grades": family.grades, "mode": family.mode, "strategy": family.strategy}
    parts = [units[f"{what}_missing"].sel(variant=variants) for what, is_needed in needed.items() if is_needed]
    lacking = [part.any(["variant", "epoch"]).transpose("model", "prompt_set").values for part in parts]
    if family.throughout:
        asked = (units.strategy.notnull() | units.strategy_missing).sel(variant=["benign", "malicious"])
        lacking = [part & asked.any(["prompt_set", "variant", "epoch"]).values[:, None] for part in lacking]
    return np.asarray(np.any(lacking, axis=0))


def _completions(
    units: LabelledSet, needs: Needs, metrics: Sequence[Metric], open_units: Sequence[tuple[int, int]]
) -> Mapping[str, list[tuple[Floats, Floats]]]:
    """Return, for each metric and open unit, (numerator, denominator) of every completion."""
    if not open_units:
        return {metric.name: [] for metric in metrics}
    variants = _FAMILIES[needs].variants([str(name) for name in units.variant.values])
    places = [int(np.flatnonzero(units.variant.values == name)[0]) for name in variants]
    values = {name: units[name].transpose("model", "prompt_set", "variant", "epoch").values[..., 0] for name in _FIELDS}
    gone = {
        name: units[f"{name}_missing"].transpose("model", "prompt_set", "variant", "epoch").values[..., 0]
        for name in ("grades", "mode", "strategy")
    }
    # a response whose grades are missing may not have been probed: its strategy is open too, unless it is known
    gone["strategy"] = gone["strategy"] | (gone["grades"] & np.isnan(values["strategy"]))
    completed: dict[str, list[Floats]] = {name: [] for name in _FIELDS}
    exists: list[NDArray[np.bool_]] = []
    starts = [0]
    alike: dict[bytes, int] = {}  # units with the same grades there and missing have the same completions
    which: list[int] = []
    for model, unit in open_units:
        known = {name: values[name][model, unit] for name in _FIELDS}
        lacking = {name: gone[name][model, unit] for name in gone}
        key = (
            b"".join(part[places].tobytes() for part in (*known.values(), *lacking.values()))
            + units.exists.values[unit].tobytes()
        )
        which.append(alike.setdefault(key, len(alike)))
        if which[-1] < len(starts) - 1:
            continue
        for way in _ways(needs, places, lacking):
            filled = {name: known[name].copy() for name in _FIELDS}
            for field, place, value in way:
                filled[field][place] = value
            for name in _FIELDS:
                completed[name].append(filled[name])
            exists.append(units.exists.values[unit])
        starts.append(len(exists))
    dims = ("model", "prompt_set", "variant", "epoch")
    array = LabelledSet(
        {name: (dims, np.array(rows)[None, :, :, None]) for name, rows in completed.items()}
        | {"exists": (("prompt_set", "variant"), np.array(exists))},
        {"variant": units.labels["variant"]},
    )
    grades = Grades(array)
    result: dict[str, list[tuple[Floats, Floats]]] = {}
    for metric in metrics:
        ratio = metric.ratio(grades)
        top, bottom = ratio.numerator.values[0], ratio.denominator.values[0]
        parts = [(top[start:end], bottom[start:end]) for start, end in pairwise(starts)]
        result[metric.name] = [parts[place] for place in which]
    return result


_Filling = tuple[str, int, float]
"""Field, place of the variant, value."""


def _ways(needs: Needs, places: Sequence[int], gone: Mapping[str, NDArray[np.bool_]]) -> list[tuple[_Filling, ...]]:
    """Return every way to fill in what is missing of one unit, as far as it can lead to an extreme."""
    family = _FAMILIES[needs]
    ungraded = [place for place in places if gone["grades"][place]] if family.grades else []
    if needs == "wordings":  # the order of the wordings plays no part
        chosen: list[tuple[tuple[float, float], ...]] = list(combinations_with_replacement(_WORDING_CORNERS, len(ungraded)))
    else:
        chosen = list(product(_CORNERS, repeat=len(ungraded)))
    ways: list[tuple[_Filling, ...]] = [
        tuple(
            filling
            for place, (helpfulness, harm) in zip(ungraded, corners, strict=True)
            for filling in (("helpfulness", place, helpfulness), ("harm_severity", place, harm))
        )
        for corners in chosen
    ]
    for field, wanted, number in (("mode", family.mode, len(MODES)), ("strategy", family.strategy, len(STRATEGIES))):
        for place in (place for place in places if wanted and gone[field][place]):
            ways = [(*way, (field, place, float(value))) for way in ways for value in range(number)]
    return ways


def _greatest(top: float, bottom: float, choices: Sequence[tuple[Floats, Floats]], least: float) -> tuple[float, list[int]]:
    """Return the greatest (top + Σ chosen numerators) / (bottom + Σ chosen denominators), and the choice for each unit."""
    if bottom == 0 and not any((denominator > 0).any() for _, denominator in choices):
        return float("nan"), [0] * len(choices)
    ratio, chosen = least, [0] * len(choices)
    for _ in range(_ROUNDS):
        chosen = [int(np.argmax(tops - ratio * bottoms)) for tops, bottoms in choices]
        numerator, denominator = top, bottom
        for (tops, bottoms), best in zip(choices, chosen, strict=True):
            numerator += float(tops[best])
            denominator += float(bottoms[best])
        if denominator == 0 or numerator / denominator <= ratio + 1e-12:
            return (ratio if denominator == 0 or not choices else max(ratio, numerator / denominator)), chosen
        ratio = numerator / denominator
    return ratio, chosen
