"""Which response of the report a human label is of."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from opensafeintent.analysis.correction.truths import HumanLabels, Truth
from opensafeintent.analysis.groups import Group, Origin, TextSource
from opensafeintent.errors import InputError
from opensafeintent.hostile import one_line
from opensafeintent.people.texts import text_hash

__all__ = ["Match", "match"]


class Match(NamedTuple):
    """Labels by the response that they are of."""

    found: dict[str, list[Truth]]
    """By model, as the report shows it."""
    aside: dict[str, int]
    """Labelled responses of models that are not in the report."""


def match(labels: HumanLabels, groups: Sequence[Group], texts: Mapping[str, TextSource]) -> Match:
    """Find the response of each label.

    One response may be in several parts of a report, graded by different judges: its label counts in all of them.

    Args:
        labels: what people said.
        groups: the models of the report.
        texts: by run; a label of a text that is not the response's is found out where the run is there.

    Raises:
        InputError: a label is of another dataset, of a response that is not there, or of another text; or no label is of a
            model in the report.
    """
    datasets = {group.dataset.hash: group.dataset for group in groups}
    rows = {
        (name, row.set_id, row.variant, row.epoch)
        for group in groups
        for name, of_model in group.rows.items()
        for row in of_model
    }
    members: defaultdict[tuple[str, str], list[tuple[str, Origin]]] = defaultdict(list)
    for group in groups:
        for name, origin in group.origins.items():
            members[group.dataset.hash, origin.model].append((name, origin))
    found: dict[str, list[Truth]] = {}
    aside: Counter[str] = Counter()
    for truth in labels.truths:
        if truth.dataset not in datasets:
            known = ", ".join(f"{data.name} ({digest[:8]})" for digest, data in datasets.items())
            raise InputError(
                f"{truth.source}: is for dataset {truth.dataset[:8]}, or another version of it; in the report: {known}"
            )
        candidates = members.get((truth.dataset, truth.item.model))
        if candidates is None:
            aside[truth.item.model] += 1
            continue
        there = [(name, origin) for name, origin in candidates if (name, *_place(truth)) in rows]
        if not there:
            raise InputError(f"{truth.source}: the report has no such response")
        same = [name for name, origin in there if _is_its_text(truth, origin, texts)]
        if not same:
            raise InputError(
                f"{truth.source}: the response in the report is another text than the one that was labelled; "
                "expected the run that the sheets were made from"
            )
        for name in same:
            found.setdefault(name, []).append(truth)
    if not found:
        models = ", ".join(one_line(model, 60) for model in aside)
        raise InputError(f"--human-labels: the labels are of {models}, and the report is of none of them")
    return Match(found, dict(aside))


def _place(truth: Truth) -> tuple[str, str, int]:
    return truth.item.id, truth.item.variant, truth.item.epoch


def _is_its_text(truth: Truth, origin: Origin, texts: Mapping[str, TextSource]) -> bool:
    if not truth.response_sha256 or origin.run not in texts:
        return True
    text = texts[origin.run].find(origin.model, *_place(truth))
    return text is not None and text_hash(text.text) == truth.response_sha256
