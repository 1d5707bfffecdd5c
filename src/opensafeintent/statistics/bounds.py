"""How far missing grades could move a number: the least and greatest value that they leave open,
prompt-set by prompt-set.

Grades are not missing at random: judges tend to refuse the worst responses.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from itertools import groupby, product

import numpy as np

from opensafeintent.labelled import LabelledSet
from opensafeintent.metrics import METRICS, Grades, Needs, Ratio
from opensafeintent.statistics.exact import Floats
from opensafeintent.taxonomy import CORE_VARIANTS, DUAL_USE, MODES, STRATEGIES, intent_of

Parts = tuple[Floats, Floats]
"""Numerator and denominator."""

_GRADES = ((1.0, 3.0), (4.0, 0.0))
"""Helpfulness and harm severity: the worst, and the best."""
_CORNERS = (*_GRADES, (1.0, 0.0))
"""And safe without help: of metrics that compare responses, or leave unsafe ones out, an extreme
may lie there.
"""
_Triple = tuple[tuple[float, float], ...]
"""Of each intent; of wordings, of the first that is missing and of the others."""
_COUNTED = 1e-9
"""A completion in which a set counts goes before one in which it does not, if the value is the
same.
"""
_ALIKE: list[_Triple] = [(grades,) * 3 for grades in _GRADES]
_BY_INTENT: list[_Triple] = list(product(_GRADES, repeat=3))
_MODES: list[_Codes] = [(place, None) for place in range(len(MODES))]
_Codes = tuple[int | None, tuple[int, ...] | None]
_OPTIONS: dict[Needs, tuple[list[_Triple], list[_Codes]]] = {
    "triplet": (list(product(_CORNERS, _CORNERS, _GRADES)), [(None, None)]),
    "wordings": (
        [(first, *(others,) * 2) for first, others in product(_CORNERS, repeat=2)],
        [(None, None)],
    ),
    "mode": (_ALIKE[:1], _MODES),
    "mode_and_grades": (_ALIKE, _MODES),
    "strategy": (_ALIKE, [(None, (place,) * 3) for place in range(len(STRATEGIES))]),
    "probes": (_BY_INTENT, [(None, (0, 1, 2)), (None, (2, 1, 0))]),
    "benign_mode": (_ALIKE[:1], _MODES),
}
"""What is filled in, by what a metric needs: grades of each intent or wording; mode and strategy of
each intent.
"""


def missing_bounds(
    array: LabelledSet, ratios: Mapping[str, Ratio]
) -> dict[str, tuple[Floats, Floats]]:
    """Return the least and greatest value of every metric, each of shape (model,); NaN if nothing
    can count.

    Args:
        array: the grades, as `grades.to_array` gives them.
        ratios: every metric of them (`metrics.compute`).
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        return {
            name: (
                low[0].sum(axis=1) / low[1].sum(axis=1),
                high[0].sum(axis=1) / high[1].sum(axis=1),
            )
            for name, (low, high) in extreme_ratios(array, METRICS, ratios).items()
        }


def extreme_ratios(
    array: LabelledSet, names: Collection[str], ratios: Mapping[str, Ratio]
) -> dict[str, tuple[Parts, Parts]]:
    """Return some metrics as they would be with what is missing at its worst and at its best.

    Args:
        array: the grades, as `grades.to_array` gives them.
        names: of the metrics.
        ratios: every metric of the grades.

    Returns:
        By metric, numerator and denominator of the least and of the greatest value, each of shape
        (model, prompt_set).
    """
    found: dict[str, tuple[Parts, Parts]] = {}
    for needs, family in groupby(
        sorted(names, key=lambda name: METRICS[name].needs), key=lambda name: METRICS[name].needs
    ):
        metrics = list(family)
        completed = [Grades(done) for done in _completions(array, needs)]
        for name in metrics:
            every = [METRICS[name].of_sets(grades) for grades in completed] or [ratios[name]]
            parts = tuple(
                np.stack([getattr(one, part).values for one in every]) for part in Ratio._fields
            )
            found[name] = _extreme(*parts, sign=-1), _extreme(*parts, sign=1)
    return found


def _extreme(tops: Floats, bottoms: Floats, *, sign: int) -> Parts:
    """Choose a completion of every set so that Σ top / Σ bottom is greatest (`sign` 1) or least
    (−1).

    That is Dinkelbach's iteration (Management Science 13, 1967): of a set counts what it has above
    the value so far.

    Args:
        tops, bottoms: each of shape (completion, model, prompt_set).
        sign: which end.

    Returns:
        Numerator and denominator, each of shape (model, prompt_set).
    """
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
                return top, bottom
            value = better


def _completions(array: LabelledSet, needs: Needs) -> Iterator[LabelledSet]:
    """Yield the grades with what is missing filled in, in each way; none if nothing is missing."""
    missing = {name: array[f"{name}_missing"].values for name in ("grades", "mode", "strategy")}
    if not any(gone.any() for gone in missing.values()):
        return
    if (
        needs == "strategy"
    ):  # an unsafe response is probed: where its grade is missing, so is what the probe would say
        missing["strategy"] = missing["strategy"] | missing["grades"] & np.isnan(
            array["strategy"].values
        )
    dims = array["grades_missing"].dims
    intents = np.array(
        [CORE_VARIANTS.index(intent_of(str(name))) for name in array.labels["variant"]]
    )
    which = intents.reshape([-1 if dim == "variant" else 1 for dim in dims])
    if needs == "wordings":
        of_wordings = missing["grades"] & (which == CORE_VARIANTS.index(DUAL_USE))
        which = np.minimum(of_wordings.cumsum(axis=dims.index("variant")), 2) // 2
    for grades, (mode, strategies) in product(*_OPTIONS[needs]):
        fills = {
            "helpfulness": (missing["grades"], [helpfulness for helpfulness, _ in grades]),
            "harm_severity": (missing["grades"], [harm for _, harm in grades]),
            "mode": (missing["mode"], None if mode is None else [float(mode)] * 3),
            "strategy": (
                missing["strategy"],
                None if strategies is None else [float(place) for place in strategies],
            ),
        }
        arrays = {name: (array[name].dims, array[name].values) for name in array}
        for name, (gone, by_intent) in fills.items():
            if by_intent is not None:
                arrays[name] = (
                    dims,
                    np.where(gone, np.array(by_intent)[which], array[name].values),
                )
        yield LabelledSet(arrays, array.labels)
