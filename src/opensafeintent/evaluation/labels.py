"""The names that results show for the models of runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from opensafeintent.errors import InputError, nearest
from opensafeintent.evaluation.manifest import Manifest


def with_labels(manifests: Sequence[Manifest], labels: Sequence[str]) -> list[Manifest]:
    """Return manifests whose models have the names that results show, `MODEL=NAME` each.

    Raises:
        InputError: no run has the model, or two models would have one name.
    """
    names = {name: entry.label for manifest in manifests for name, entry in manifest.models.items()}
    labelled: set[str] = set()
    for text in labels:
        model, _, label = map(str.strip, text.partition("="))
        if model in labelled:
            raise InputError(f"--label {text}: the model has a name already; expected one")
        labelled.add(model)
        if not label:
            raise InputError(f"--label {text}: expected MODEL=NAME")
        if model not in names:
            raise InputError(f"--label {text}: no such model in the run; {nearest(model, names)}")
        if model.startswith("baseline/"):
            raise InputError(f"--label {text}: a baseline keeps its name")
        if label.startswith("baseline/"):  # gates, averages and findings leave those out
            raise InputError(f"--label {text}: a name of a baseline is for baselines")
        names[model] = label
    shown = Counter(label or name for name, label in names.items())
    if twice := [name for name, count in shown.items() if count > 1]:
        raise InputError(f"--label: two models would be called {twice[0]!r}; expected unlike names")
    return [
        msgspec.structs.replace(
            manifest,
            models={
                name: msgspec.structs.replace(entry, label=names[name])
                for name, entry in manifest.models.items()
            },
        )
        for manifest in manifests
    ]
