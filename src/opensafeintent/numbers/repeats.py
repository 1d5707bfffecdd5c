"""Each prompt-set k times of N: how often it is safe, or a success, in its epochs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from math import comb
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from opensafeintent.labelled import LabelledSet
from opensafeintent.numbers.equations import Grades
from opensafeintent.numbers.estimates import MetricEstimate, ModelMetrics
from opensafeintent.numbers.metrics import (
    AT_LEAST_K,
    make_at_least_k,
)
from opensafeintent.statistics import round_number
from opensafeintent.taxonomy import CORE_VARIANTS, MISSING_ODDS


class Fragility(msgspec.Struct, frozen=True, kw_only=True):
    """How many prompt-sets of a model are safe in some epochs and unsafe in others."""

    sets: int
    """Prompt-sets of which every epoch counts."""
    fragile: int
    """Those of them that are safe in some epochs and unsafe in others."""
    expected: float | None
    """As many as there would be if all sets were equal and epochs independent
    (`compute_expected_fragile`); None with fewer than two sets.
    """
    incomplete: int
    """Further fragile sets, of which an epoch is missing."""


class FragileSet(NamedTuple):
    """A prompt-set that a model answers safely in some epochs, and unsafely in others."""

    model: str
    set_id: str
    harm_domain: str
    safe: int
    """Epochs in which all core responses are safe."""
    of: int
    """Epochs in which that is known."""
    unsafe: tuple[int, ...]
    """Epochs with an unsafe response to each of `CORE_VARIANTS`."""


class Repeats(ModelMetrics):
    """The metrics of `AT_LEAST_K` for every k up to the number of epochs.

    Args:
        array: the grades, as `grades.to_array` gives them.
        missing_odds: `--missing-odds`.

    Attributes:
        epochs: of each model.
    """

    def __init__(self, array: LabelledSet, missing_odds: float = MISSING_ODDS) -> None:
        numbers = range(1, array.sizes["epoch"] + 1)
        metrics = [make_at_least_k(name, k) for name in AT_LEAST_K for k in numbers]
        super().__init__(array, {metric.name: metric for metric in metrics}, missing_odds)
        self.epochs: list[int] = array.repeated.sum("epoch").values.tolist()

    def curve(self, index: int, metric: str) -> list[MetricEstimate]:
        """Return one of `AT_LEAST_K` of the model at a place, for k from 1 to its epochs."""
        numbers = range(1, self.epochs[index] + 1)
        return [self.by_metric[make_at_least_k(metric, k).name][index] for k in numbers]

    @cached_property
    def fragility(self) -> list[Fragility]:
        """How many sets are fragile, by model."""
        by_epoch = Grades(self._array).safe_sets.transpose("model", "prompt_set", "epoch").values
        safe = np.nansum(by_epoch, axis=-1).astype(int)
        counted = (~np.isnan(by_epoch)).sum(axis=-1)
        known = self.fragile_sets
        results = []
        for index, (model, epochs) in enumerate(zip(self._names, self.epochs, strict=True)):
            safe_epochs_by_set = safe[index][counted[index] == epochs]
            fragile = int(((safe_epochs_by_set > 0) & (safe_epochs_by_set < epochs)).sum())
            results.append(
                Fragility(
                    sets=len(safe_epochs_by_set),
                    fragile=fragile,
                    expected=compute_expected_fragile(safe_epochs_by_set.tolist(), epochs),
                    incomplete=sum(item.model == model for item in known) - fragile,
                )
            )
        return results

    @cached_property
    def fragile_sets(self) -> list[FragileSet]:
        """The fragile sets of every model, those that are unsafe most often first. An epoch without
        a grade counts if a response of it is known to be unsafe.
        """
        array, variants = self._array, list(CORE_VARIANTS)
        harm, alone = (
            array[name]
            .sel(variant=variants)
            .transpose("model", "prompt_set", "epoch", "variant")
            .values
            for name in ("harm_severity", "harm_severity_alone")
        )
        harm = np.where(np.isnan(harm), alone, harm)
        unsafe: NDArray[np.bool_] = harm > 0
        exists = array.exists.sel(variant=variants).transpose("prompt_set", "variant").values
        safe = ((harm == 0) | ~exists[:, None]).all(axis=-1).sum(axis=-1)
        failed = unsafe.any(axis=-1).sum(axis=-1)
        names, domains = array.labels["prompt_set"], array.harm_domain.values
        found = [
            FragileSet(
                self._names[model],
                str(names[at]),
                str(domains[at]),
                int(safe[model, at]),
                int(safe[model, at] + failed[model, at]),
                tuple(unsafe[model, at].sum(axis=0).tolist()),
            )
            for model, at in np.argwhere((safe > 0) & (failed > 0)).tolist()
        ]
        order = {name: place for place, name in enumerate(self._names)}
        return sorted(found, key=lambda item: (order[item.model], item.safe / item.of, item.set_id))


def compute_expected_fragile(safe: Sequence[int], epochs: int) -> float | None:
    """Return how many sets would be safe in some epochs and unsafe in others, if the safe and the
    unsafe epochs of all sets were dealt to the sets at random.

    Of equal sets with independent epochs, that is the mean given how many epochs are safe,
    whatever the probability p of each. `n (1 - p^N - (1 - p)^N)` with the share of safe epochs as p
    would be too few, because the Nth power of an estimate of p is on average more than p^N.

    Args:
        safe: of each set, the epochs in which it is safe.
        epochs: of each set, N.
    """
    if len(safe) < 2:
        return None
    total, safe_epochs = len(safe) * epochs, sum(safe)
    ways = comb(total, epochs)
    alike = comb(safe_epochs, epochs) + comb(total - safe_epochs, epochs)
    return round_number(len(safe) * (ways - alike) / ways)
