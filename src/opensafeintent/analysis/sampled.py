"""What prompt-sets weigh in the numbers of models that were asked about equally many sets of every cell."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from opensafeintent.evaluation.manifest import Manifest
from opensafeintent.promptsets import Dataset, cell_shares
from opensafeintent.statistics.weights import SetWeights

__all__ = ["weights_of"]


def weights_of(members: Sequence[tuple[Manifest, str]], dataset: Dataset) -> SetWeights | None:
    """Return what prompt-sets weigh; None where they all weigh the same.

    Args:
        members: the manifest of each model's run, and its name there.
        dataset: of all of them.
    """
    per_cell = np.array([manifest.models[model].sample == "per_cell" for manifest, model in members])
    if not per_cell.any():
        return None
    drawn = np.empty((len(members), len(dataset)))
    for row, (manifest, model) in zip(drawn, members, strict=True):
        shares = cell_shares(dataset.prompt_sets, manifest.sets_of(model, dataset))
        row[:] = [shares.get(prompt_set.cell, 0.0) for prompt_set in dataset.prompt_sets]
    found = SetWeights(drawn, per_cell)
    return None if (found.own == 1).all() else found
