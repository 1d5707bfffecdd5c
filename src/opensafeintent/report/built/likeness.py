"""How alike the prompts of different sets are: each set's highest score, and how these are spread."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from opensafeintent.construction.controls.measures import has_spaces
from opensafeintent.construction.similarity.index import Match
from opensafeintent.construction.similarity.join import Item, nearest_sets
from opensafeintent.promptsets import Dataset
from opensafeintent.taxonomy import CORE_VARIANTS

__all__ = ["BINS", "Likeness", "Nearest", "likeness_of"]

BINS = 20
"""Of a histogram from 0 to 1."""
_MOST_PAIRS = 40_000_000
"""Pairs of prompts that are compared for it: some twenty seconds."""


class Nearest(msgspec.Struct, frozen=True, kw_only=True):
    """The most similar prompts of a set and of another one in its cell."""

    id: str
    variant: str
    twin: str
    twin_variant: str
    score: float
    """ROUGE-L F1."""


class Likeness(msgspec.Struct, frozen=True, kw_only=True):
    """The highest similarity of each set that shares its cell with another, the highest first."""

    core: tuple[Nearest, ...]
    """Among benign, dual-use and malicious prompts: what stage 5 decides on."""
    wordings: tuple[Nearest, ...]
    """Among all wordings, paraphrases included."""

    def histogram(self, nearest: Sequence[Nearest]) -> tuple[int, ...]:
        """Return the sets in each of `BINS` equally wide bins; a bin holds its lower edge, the last one 1 too."""
        found = Counter(min(int(round(item.score * BINS, 9)), BINS - 1) for item in nearest)
        return tuple(found[place] for place in range(BINS))


def likeness_of(dataset: Dataset) -> Likeness | None:
    """Compare all prompts of each cell; None where there are too many for that.

    ROUGE-L compares words between white space, so sets in scripts without it are left out.
    """
    items = [Item(item.id, item.cell, item.wordings()) for item in dataset.prompt_sets if has_spaces(item)]
    in_cell: Counter[object] = Counter()
    for item in items:
        in_cell[item.cell] += len(item.texts)
    if sum(number * number // 2 for number in in_cell.values()) > _MOST_PAIRS:
        return None
    core = [item._replace(texts={variant: item.texts[variant] for variant in CORE_VARIANTS}) for item in items]
    return Likeness(core=_nearest(core), wordings=_nearest(items))


def _nearest(items: Sequence[Item]) -> tuple[Nearest, ...]:
    found = [_of(owner, match) for owner, match in nearest_sets(items).items()]
    return tuple(sorted(found, key=lambda item: (-item.score, item.id, item.twin)))


def _of(owner: str, match: Match) -> Nearest:
    return Nearest(
        id=owner,
        variant=match.variant,
        twin=match.twin,
        twin_variant=match.twin_variant,
        score=round(match.overlap.score, 6),
    )
