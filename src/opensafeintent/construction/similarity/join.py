"""Prompts of different prompt-sets of one cell against each other: sets to drop, pairs above a
threshold, all scores.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from rapidfuzz.distance import LCSseq
from rapidfuzz.process import cdist

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


class Deduplicated(NamedTuple):
    """What became of each item."""

    kept: tuple[str, ...]
    """Ids, in the order given."""
    dropped: dict[str, Match]
    """By id, in the order given: the most similar pair with an earlier item that was kept."""


def _by_cell(items: Iterable[Item]) -> dict[Hashable, list[Item]]:
    """Return the items of each cell, in the order given."""
    cells: dict[Hashable, list[Item]] = {}
    for item in items:
        cells.setdefault(item.cell, []).append(item)
    return cells


def _entries_of(items: Iterable[Item]) -> list[Entry]:
    """Return every prompt of the items, in the order given."""
    return [Entry(item.id, variant, text) for item in items for variant, text in item.texts.items()]


def duplicates(
    items: Iterable[Item], threshold: Fraction | float | str = PAPER_THRESHOLD, rule: Rule = "paper"
) -> Deduplicated:
    """Keep every item that is not too similar to an earlier one that was kept (paper, section 3,
    stage 5).

    Raises:
        InputError: the threshold is not a number above 0 and below 1.
        KeyError: a core prompt is not there, with the rule `authors`.
    """
    limit = Threshold.of(threshold, inclusive=rule == "authors")
    listed = list(items)
    found: dict[str, Match] = {}
    for members in _by_cell(
        listed
    ).values():  # one after the other: a cell's index is gone before the next one's is made
        index = CellIndex(limit)
        for item in members:
            texts = _compared(item.texts, rule)
            match = index.closest(texts)
            if match is None:
                index.add(item.id, texts)
            else:
                found[item.id] = match
    return Deduplicated(
        tuple(item.id for item in listed if item.id not in found),
        {item.id: found[item.id] for item in listed if item.id in found},
    )


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
        entries = _entries_of(members)
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


# All scores
# ------------------------------------------------------------------------------

_PAIRS_AT_ONCE = 1 << 22


class _Block(NamedTuple):
    """Some prompts of a cell (rows: those from `start` on) against those from `start` to the cell's
    end (columns).
    """

    entries: Sequence[Entry]
    """All prompts of the cell."""
    lengths: NDArray[np.int64]
    """Their words, shape (prompt,)."""
    start: int
    lcs: NDArray[np.integer]
    """Words in a longest common subsequence, shape (row, column)."""
    compared: NDArray[np.bool_]
    """Whether the pair counts: of different owners, and not the mirror image of another; shape
    (row, column).
    """


def score_blocks(items: Iterable[Item]) -> Iterator[_Block]:
    """Yield the exact LCS of all pairs of prompts of one cell, in blocks of at most some million
    pairs.
    """
    for members in _by_cell(items).values():
        entries = _entries_of(members)
        tokens, lengths, _ = Encoder().encode([entry.text for entry in entries])
        numbers = {
            owner: number
            for number, owner in enumerate(dict.fromkeys(entry.owner for entry in entries))
        }
        owners = np.array([numbers[entry.owner] for entry in entries])
        kind = np.uint8 if lengths.max(initial=0) < 256 else np.int64
        step = max(1, _PAIRS_AT_ONCE // max(1, len(entries)))
        for start in range(0, len(entries), step):
            columns = tokens[start:]
            rows = (
                columns if step >= len(entries) else columns[:step]
            )  # the same list: half of the pairs are computed
            lcs = cdist(rows, columns, scorer=LCSseq.similarity, dtype=kind)
            compared = np.triu(owners[start : start + step, None] != owners[start:], 1)
            yield _Block(entries, lengths, start, lcs, compared)


def nearest_prompts(items: Iterable[Item]) -> dict[tuple[str, str], Match]:
    """Compare all prompts of each cell: for datasets of some thousand prompts, as the time grows
    with their square.

    Returns:
        By (id, variant), in the order given: the most similar prompt of another set of the cell,
        where there is one. Of equal scores the first.
    """
    nearest: dict[tuple[str, str], Match] = {}
    for block in score_blocks(items):
        if block.start == 0:
            best = _Nearest(block.entries)
        total = block.lengths[block.start :][: len(block.lcs), None] + block.lengths[block.start :]
        best.see(
            block, 2 * block.lcs.astype(np.int64) / np.maximum(total, 1)
        )  # two texts without a word have score 0
        if block.start + len(block.lcs) == len(block.entries):
            nearest |= best.matches(block.lengths)
    return nearest


def nearest_sets(items: Iterable[Item]) -> dict[str, Match]:
    """Return each set's most similar pair of prompts, by id; see `nearest_prompts`."""
    best: dict[str, Match] = {}
    for (owner, _), match in nearest_prompts(items).items():
        if owner not in best or match.overlap.score > best[owner].overlap.score:
            best[owner] = match
    return best


class _Nearest:
    """The most similar prompt of another owner, for each prompt of one cell."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        self._entries = entries
        self._score = np.full(len(entries), -1.0)
        self._twin = np.zeros(len(entries), dtype=np.intp)
        self._lcs = np.zeros(len(entries), dtype=np.int64)

    def see(self, block: _Block, score: NDArray[np.float64]) -> None:
        """Take in a block; of equal scores the earlier prompt stays, so columns, whose twins stand
        before them, go first.
        """
        score = np.where(block.compared, score, -1.0)
        rows, columns = (np.arange(block.start, block.start + size) for size in score.shape)
        self._update(columns, rows[score.argmax(axis=0)], score.max(axis=0), block)
        self._update(rows, columns[score.argmax(axis=1)], score.max(axis=1), block)

    def _update(
        self,
        prompts: NDArray[np.intp],
        twins: NDArray[np.intp],
        score: NDArray[np.float64],
        block: _Block,
    ) -> None:
        better = score > self._score[prompts]
        prompts, twins = prompts[better], twins[better]
        self._score[prompts], self._twin[prompts] = score[better], twins
        first, second = (
            np.minimum(prompts, twins) - block.start,
            np.maximum(prompts, twins) - block.start,
        )
        self._lcs[prompts] = block.lcs[first, second]

    def matches(self, lengths: NDArray[np.int64]) -> dict[tuple[str, str], Match]:
        """Return what was found, by (owner, variant)."""
        return {
            (entry.owner, entry.variant): Match.between(
                entry.variant,
                entry.text,
                self._entries[twin],
                Overlap(int(self._lcs[n]), int(lengths[n]), int(lengths[twin])),
            )
            for n, (entry, twin) in enumerate(zip(self._entries, self._twin.tolist(), strict=True))
            if self._score[n] >= 0
        }
