"""What each prompt-set stands for, where cells were not sampled by their shares."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["SetWeights"]

Floats = NDArray[np.float64]
Places = NDArray[np.intp] | NDArray[np.bool_]


class SetWeights(NamedTuple):
    """How many prompt-sets each set stands for: N_h/n_h, where of a cell's N_h sets n_h were drawn."""

    drawn: Floats
    """By each model's sample, whatever its rule; 0 in cells that it has no set of; shape (model, prompt_set)."""
    per_cell: NDArray[np.bool_]
    """Models whose sample has equally many sets of every cell: only their numbers are weighted; shape (model,)."""

    @property
    def own(self) -> Floats:
        """What a set weighs in a model's own numbers: shape (model, prompt_set)."""
        return np.where(self.per_cell[:, None], self.drawn, 1.0)

    @property
    def alike(self) -> NDArray[np.bool_]:
        """Prompt-sets that stand for as many in the sample of every model: shape (prompt_set,)."""
        same: NDArray[np.bool_] = (self.drawn == self.drawn[:1]).all(axis=0)
        return same & self.per_cell.all()

    def of_pairs(self, first: Places, second: Places) -> Floats:
        """Return what a set weighs in comparisons of two models, one or both of them weighted: shape (pair, prompt_set).

        Samples are nested: of a cell both models have the sets of the smaller sample, and these stand for the cell.
        """
        weighted = self.per_cell[first] | self.per_cell[second]
        return np.where(weighted[:, None], np.maximum(self.drawn[first], self.drawn[second]), 1.0)

    def picked(self, models: Places | slice, sets: Places | slice) -> SetWeights:
        """Return those of some models and prompt-sets, in this order."""
        return SetWeights(self.drawn[models][:, sets], self.per_cell[models])
