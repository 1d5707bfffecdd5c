"""Prompts of different prompt-sets of one cell against each other: sets to drop, pairs above a
threshold.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from fractions import Fraction
from typing import Literal, NamedTuple

from opensafeintent.construction.similarity.index import (
    CellIndex,
    Encoder,
    Entry,
    Match,
    SignatureIndex,
)
from opensafeintent.construction.similarity.rouge import PAPER_THRESHOLD, Overlap, Threshold
from opensafeintent.taxonomy import CORE_VARIANTS

Rule = Literal["paper", "authors"]
"""`paper`: every prompt against every prompt, above the threshold. `authors`: the three core
prompts joined by line ends against those of the other set, at the threshold or above, as the
authors' code does."""
_JOINED = "triplet"
"""The variant's name where the rule `authors` compares whole triplets."""

_TEXTS_AT_ONCE = 64


class Item(NamedTuple):
    """What is compared of one prompt-set."""

    id: str
    cell: Hashable
    """Only items of one cell are compared."""
    texts: Mapping[str, str]
    """The prompts by variant."""


def _by_cell(items: Iterable[Item]) -> dict[Hashable, list[Item]]:
    """Return the items of each cell, in the order given."""
    cells: dict[Hashable, list[Item]] = {}
    for item in items:
        cells.setdefault(item.cell, []).append(item)
    return cells


def duplicates(
    items: Iterable[Item], threshold: Fraction | float | str = PAPER_THRESHOLD, rule: Rule = "paper"
) -> dict[str, Match]:
    """Return the items that are too similar to an earlier one that is kept, by id: each with its
    most similar pair (paper, section 3, stage 5).

    Raises:
        InputError: the threshold is not a number above 0 and below 1.
        KeyError: a core prompt is not there, with the rule `authors`.
    """
    limit = Threshold.of(threshold, inclusive=rule == "authors")
    dropped: dict[str, Match] = {}
    for members in _by_cell(items).values():  # so that one index is in memory at a time
        index = CellIndex(limit)
        for item in members:
            match = index.admit(item.id, _compared(item.texts, rule))
            if match is not None:
                dropped[item.id] = match
    return dropped


def _compared(texts: Mapping[str, str], rule: Rule) -> Mapping[str, str]:
    return (
        texts
        if rule == "paper"
        else {_JOINED: "\n".join(texts[intent] for intent in CORE_VARIANTS)}
    )


def similar_pairs(items: Iterable[Item], threshold: Threshold) -> Iterator[tuple[str, Match]]:
    """Yield every pair of prompts of different items of one cell that is too similar: the later
    one's id, and the match.
    """
    for members in _by_cell(items).values():
        entries = [
            Entry(item.id, variant, text)
            for item in members
            for variant, text in item.texts.items()
        ]
        encoder, index = Encoder(), SignatureIndex(threshold)
        for start in range(0, len(entries), _TEXTS_AT_ONCE):
            encoded = encoder.encode(
                [entry.text for entry in entries[start : start + _TEXTS_AT_ONCE]]
            )
            index.add(encoded)
            for pairs in index.above(encoded):
                for row, earlier, lcs in zip(*(part.tolist() for part in pairs), strict=True):
                    later = start + row
                    if earlier < later and entries[earlier].owner != entries[later].owner:
                        owner, variant, text = entries[later]
                        overlap = Overlap(lcs, len(encoded.tokens[row]), index.length(earlier))
                        yield owner, Match.between(variant, text, entries[earlier], overlap)
