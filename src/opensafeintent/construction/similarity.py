"""Similar prompts: ROUGE-L by tokens, and finding pairs among many."""

from __future__ import annotations

import string
from collections import Counter, defaultdict
from collections.abc import Container, Hashable, Iterable, Iterator, Mapping
from fractions import Fraction
from itertools import chain
from pathlib import Path
from typing import Literal, NamedTuple, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray
from rapidfuzz.distance import LCSseq
from rapidfuzz.process import cpdist

from opensafeintent.errors import InputError
from opensafeintent.hostile import clean_for_display
from opensafeintent.promptsets import Dataset
from opensafeintent.taxonomy import CORE_VARIANTS

PAPER_THRESHOLD = Fraction(7, 10)
"""Prompts with a higher score are dropped (paper, section 3, stage 5)."""

_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


def words(text: str) -> list[str]:
    """Return the tokens that are compared: lower-cased, ASCII punctuation deleted, split on white
    space.
    """
    return text.lower().translate(_NO_PUNCTUATION).split()


class Overlap(msgspec.Struct, frozen=True):
    """How far the words of two texts agree in the same order."""

    lcs: int
    """Words in a longest common subsequence."""
    words: int
    """Words of the one text."""
    other_words: int
    """Words of the other."""

    @property
    def score(self) -> float:
        """ROUGE-L F1, 2·LCS/(n + m): the harmonic mean of LCS/n and LCS/m.

        It is 0 if neither text has a word.
        """
        total = self.words + self.other_words
        return 2 * self.lcs / total if total else 0.0


def overlap(text: str, other: str) -> Overlap:
    """Compare two texts exactly."""
    ids: dict[str, int] = {}  # a word's hash may collide
    first, second = (
        [ids.setdefault(word, len(ids)) for word in words(part)] for part in (text, other)
    )
    return Overlap(LCSseq.similarity(first, second), len(first), len(second))


class Threshold(msgspec.Struct, frozen=True):
    """From which score on two texts are too similar; decided in integers, so that a tie is a
    tie.
    """

    limit: Fraction
    inclusive: bool = False
    """Whether a score at the limit counts too (≥ in place of >)."""

    @classmethod
    def of(cls, limit: Fraction | float | str, *, inclusive: bool = False) -> Threshold:
        """Return the threshold that is written as `limit`: the float 0.7 and the text "0.7" are
        both 7/10 exactly.

        Raises:
            InputError: not a number above 0 and below 1; 1 itself is valid if `inclusive`.
        """
        exact = limit if isinstance(limit, Fraction) else _parse_exactly(str(limit))
        if exact is None or not 0 < exact <= 1 or (exact == 1 and not inclusive):
            raise InputError(
                f"threshold {clean_for_display(str(limit))}: expected a number above 0 and below 1,"
                " such as 0.7"
            )
        return cls(exact, inclusive)

    def compute_least_lcs(self, total: int) -> int:
        """Return the least LCS that counts, for two texts of `total` words together; 1 or more.

        With the limit p/q, F1 > p/q is 2q·LCS > p·(n + m): 20·LCS > 7·(n + m) for 0.7.
        """
        product, divisor = self.limit.numerator * total, 2 * self.limit.denominator
        return max(1, -(-product // divisor) if self.inclusive else product // divisor + 1)

    def is_met(self, pair: Overlap) -> bool:
        """Tell whether two texts are too similar."""
        return pair.lcs >= self.compute_least_lcs(pair.words + pair.other_words)


def _parse_exactly(text: str) -> Fraction | None:
    try:
        # a fraction would write out all digits of 1e999999999 or 1e-999999999
        return Fraction(text) if 0 < float(text) <= 1 else None
    except ValueError:
        return None


Number = TypeVar("Number", bound=np.generic)

_FOLDS = (1, 2, 4, 8, 16)
"""Lengths of a parity sketch and its folds, in words of 64 bits."""
_BITS = 64 * _FOLDS[-1]
_CELLS_AT_ONCE = 1 << 16
"""Pairs scanned in one step: half a megabyte of 64-bit words, which stays in a core's cache."""
_PAIRS_AT_ONCE = 1 << 15
"""Pairs compared exactly in one step."""
_MIX, _AGAIN = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD6E8FEB86659FD93)
"""Odd multipliers that spread small numbers over 64 bits; any would do, a poor one only lets more
pairs pass.
"""


class Encoded(NamedTuple):
    """Texts as numbers."""

    tokens: list[list[int]]
    lengths: NDArray[np.int64]
    """Words, shape (text,)."""
    parity_sketches: NDArray[np.uint64]
    """A sketch for each text, shape (16, text): every occurrence of a word flips one of 1024 bits.

    The sketches of two texts differ in at most n + m − 2·LCS bits. A pair whose sketches differ in
    more bits than a similar pair can is dropped without a comparison.
    """


class Encoder:
    """Numbers for words, the same for every text that one encoder sees."""

    def __init__(self) -> None:
        self._numbers: defaultdict[str, int] = defaultdict()
        self._numbers.default_factory = self._numbers.__len__  # a new word gets the next number

    def encode(self, texts: list[str]) -> Encoded:
        """Return texts as numbers, with their parity sketches."""
        tokens = [list(map(self._numbers.__getitem__, words(text))) for text in texts]
        lengths = np.fromiter(map(len, tokens), np.int64, len(tokens))
        return Encoded(tokens, lengths, _compute_parity_sketches(tokens, lengths))


def _compute_parity_sketches(
    tokens: list[list[int]], lengths: NDArray[np.int64]
) -> NDArray[np.uint64]:
    total = int(lengths.sum())
    texts = np.repeat(np.arange(len(tokens), dtype=np.uint64), lengths)
    keys = np.sort((texts << 32) | np.fromiter(chain.from_iterable(tokens), np.uint64, total))
    positions = np.arange(total)
    first = np.ones(total, dtype=bool)
    first[1:] = keys[1:] != keys[:-1]
    occurrences = positions - np.maximum.accumulate(np.where(first, positions, 0))
    mixed = ((keys & 0xFFFFFFFF) + (occurrences.astype(np.uint64) << 32) + 1) * _MIX
    bit_positions = ((mixed ^ (mixed >> 29)) * _AGAIN) >> np.uint64(64 - (_BITS.bit_length() - 1))
    parity_sketches = np.zeros((_FOLDS[-1], len(tokens)), dtype=np.uint64)
    # keys are sorted by text first, as `texts` is
    np.bitwise_xor.at(
        parity_sketches.reshape(-1),
        (bit_positions >> 6) * len(tokens) + texts,
        np.uint64(1) << (bit_positions & 63),
    )
    return parity_sketches


def _folds(parity_sketches: NDArray[np.uint64]) -> list[NDArray[np.uint64]]:
    """Return folded parity sketches of 1, 2, 4, 8 and 16 words, each of shape (words, text)."""
    folds = [parity_sketches]
    while len(folds[0]) > 1:
        half = len(folds[0]) // 2
        folds.insert(0, folds[0][:half] ^ folds[0][half:])
    return folds


class ParitySketchIndex:
    """Texts that others are compared with; it grows."""

    def __init__(self, threshold: Threshold) -> None:
        self._threshold = threshold
        self._least_lcs_by_total: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self._tokens: list[list[int]] = []
        self._lengths: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self._allowed_differing_bits: NDArray[np.uint16] = np.zeros(0, dtype=np.uint16)
        self._folds: list[NDArray[np.uint64]] = [
            np.zeros((size, 0), dtype=np.uint64) for size in _FOLDS
        ]

    def __len__(self) -> int:
        return len(self._tokens)

    def length(self, column: int) -> int:
        """Return how many words a text of the index has."""
        return len(self._tokens[column])

    def add(self, texts: Encoded) -> None:
        """Append texts."""
        start, stop = len(self), len(self) + len(texts.tokens)
        if stop > len(self._lengths):
            room = max(64, 2 * stop)
            self._lengths = _grow(self._lengths, room)
            self._allowed_differing_bits = _grow(self._allowed_differing_bits, room)
            self._folds = [_grow(old, room) for old in self._folds]
        self._lengths[start:stop] = texts.lengths
        self._allowed_differing_bits[start:stop] = self._compute_allowed_differing_bits(
            texts.lengths
        )
        for fold, added in zip(self._folds, _folds(texts.parity_sketches), strict=True):
            fold[:, start:stop] = added
        self._tokens += texts.tokens

    def _compute_allowed_differing_bits(self, lengths: NDArray[np.int64]) -> NDArray[np.uint16]:
        """Return each text's share of the bits in which a pair may differ: (1 − limit)·n, rounded
        down.

        A pair's whole is at most the sum of both shares and 1. More than 20,000 bits is as good as
        any number.
        """
        limit = self._threshold.limit
        return np.array(
            [
                min((limit.denominator - limit.numerator) * n // limit.denominator, 20_000)
                for n in lengths.tolist()
            ],
            dtype=np.uint16,
        )

    def above(self, texts: Encoded) -> Iterator[tuple[int, int, int]]:
        """Yield (row, column, LCS) for each pair of one of `texts` (the row) and one of the index
        (the column) that is too similar.
        """
        if not len(self) or not len(texts.tokens):
            return
        total = int(texts.lengths.max()) + int(self._lengths[: len(self)].max())
        if total >= len(self._least_lcs_by_total):
            self._least_lcs_by_total = np.array(
                [self._threshold.compute_least_lcs(n) for n in range(2 * total + 1)], dtype=np.int64
            )
        waiting: list[tuple[NDArray[np.intp], NDArray[np.intp]]] = []
        for rows, columns in self._candidates(texts):
            waiting.append((rows, columns))
            if sum(len(rows) for rows, _ in waiting) >= _PAIRS_AT_ONCE:
                yield from self._compare_waiting(texts, waiting)
                waiting = []
        if waiting:
            yield from self._compare_waiting(texts, waiting)

    def _candidates(self, texts: Encoded) -> Iterator[tuple[NDArray[np.intp], NDArray[np.intp]]]:
        bits = min(2 * int(texts.lengths.max()), _BITS)  # two a word or more distinguish texts
        fold_index = next(n for n, size in enumerate(_FOLDS) if 64 * size >= bits)
        folded = _folds(texts.parity_sketches)[fold_index]
        allowed = self._compute_allowed_differing_bits(texts.lengths) + np.uint16(1)
        height = len(texts.tokens)
        step = max(1, _CELLS_AT_ONCE // height)
        for start in range(0, len(self), step):
            stop = min(start + step, len(self))
            differing = _count_differing_bits(folded, self._folds[fold_index][:, start:stop])
            passing = np.flatnonzero(
                differing <= allowed[:, None] + self._allowed_differing_bits[start:stop]
            )
            if len(passing):
                rows, columns = np.divmod(passing, stop - start)
                columns += start
                possible = self._possible(texts, rows, columns)
                if possible.any():
                    yield rows[possible], columns[possible]

    def _possible(
        self, texts: Encoded, rows: NDArray[np.intp], columns: NDArray[np.intp]
    ) -> NDArray[np.bool_]:
        """Tell which pairs may be too similar by their lengths and whole parity sketches."""
        row_lengths, column_lengths = texts.lengths[rows], self._lengths[columns]
        least_lcs = self._least_lcs_by_total[row_lengths + column_lengths]
        differing = np.bitwise_count(
            texts.parity_sketches[:, rows] ^ self._folds[-1][:, columns]
        ).sum(axis=0, dtype=np.int64)
        possible: NDArray[np.bool_] = (least_lcs <= np.minimum(row_lengths, column_lengths)) & (
            differing <= row_lengths + column_lengths - 2 * least_lcs
        )
        return possible

    def _compare_waiting(
        self, texts: Encoded, waiting: list[tuple[NDArray[np.intp], NDArray[np.intp]]]
    ) -> Iterator[tuple[int, int, int]]:
        rows, columns = (np.concatenate(part) for part in zip(*waiting, strict=True))
        lcs = cpdist(
            [texts.tokens[row] for row in rows.tolist()],
            [self._tokens[column] for column in columns.tolist()],
            scorer=LCSseq.similarity,
            dtype=np.int64,
        )
        similar = lcs >= self._least_lcs_by_total[texts.lengths[rows] + self._lengths[columns]]
        return zip(*(part[similar].tolist() for part in (rows, columns, lcs)), strict=True)


def _grow(old: NDArray[Number], room: int) -> NDArray[Number]:
    new: NDArray[Number] = np.zeros((*old.shape[:-1], room), dtype=old.dtype)
    new[..., : old.shape[-1]] = old
    return new


def _count_differing_bits(
    rows: NDArray[np.uint64], columns: NDArray[np.uint64]
) -> NDArray[np.uint16]:
    """Return in how many bits each row's parity sketch differs from each column's, shape (row,
    column).
    """
    bits = np.zeros((rows.shape[1], columns.shape[1]), dtype=np.uint16)
    for row, column in zip(rows, columns, strict=True):
        bits += np.bitwise_count(row[:, None] ^ column)
    return bits


class IndexEntry(NamedTuple):
    """One prompt, and whose it is."""

    item_id: str
    variant: str
    text: str


class Match(msgspec.Struct, frozen=True, kw_only=True):
    """A prompt, and one of another owner that it was compared with: its duplicate."""

    variant: str
    prompt: str
    duplicate: str
    """The duplicate's owner: the id of a prompt-set or a summary."""
    duplicate_variant: str
    duplicate_prompt: str
    overlap: Overlap

    @classmethod
    def from_overlap(
        cls, variant: str, prompt: str, duplicate: IndexEntry, overlap: Overlap
    ) -> Match:
        """Return a match with the prompt `duplicate`."""
        return cls(
            variant=variant,
            prompt=prompt,
            duplicate=duplicate.item_id,
            duplicate_variant=duplicate.variant,
            duplicate_prompt=duplicate.text,
            overlap=overlap,
        )


class CellIndex:
    """The prompts admitted to one cell so far, each with its item's id and its variant."""

    def __init__(self, threshold: Threshold) -> None:
        self._encoder = Encoder()
        self._sketch_index = ParitySketchIndex(threshold)
        self._entries: list[IndexEntry] = []

    def add(self, item_id: str, texts: Mapping[str, str]) -> None:
        """Add an item's texts, by variant."""
        self._append(item_id, texts, self._encoder.encode(list(texts.values())))

    def admit(self, item_id: str, texts: Mapping[str, str]) -> Match | None:
        """Add an item's texts, by variant, unless one is too similar to a text of the index: then
        return the most similar pair.

        Of equal scores the text that was added first counts, then the first of `texts`.
        """
        encoded = self._encoder.encode(list(texts.values()))
        match = self._closest(texts, encoded)
        if match is None:
            self._append(item_id, texts, encoded)
        return match

    def _append(self, item_id: str, texts: Mapping[str, str], encoded: Encoded) -> None:
        self._sketch_index.add(encoded)
        self._entries += [IndexEntry(item_id, variant, text) for variant, text in texts.items()]

    def _closest(self, texts: Mapping[str, str], encoded: Encoded) -> Match | None:
        pairs = [
            (Overlap(lcs, len(encoded.tokens[row]), self._sketch_index.length(column)), column, row)
            for row, column, lcs in self._sketch_index.above(encoded)
        ]
        if not pairs:
            return None
        overlap, column, row = min(pairs, key=lambda pair: (-pair[0].score, *pair[1:]))
        variant, text = list(texts.items())[row]
        return Match.from_overlap(variant, text, self._entries[column], overlap)


Rule = Literal["paper", "authors"]
"""`paper`: every prompt against every prompt, above the threshold. `authors`: the three core
prompts joined by line ends against those of the other set, at the threshold or above, as the
authors' code does."""

_TEXTS_AT_ONCE = 64


class ComparedSet(NamedTuple):
    """The parts of a prompt-set that are compared."""

    id: str
    cell: Hashable
    """Only items of one cell are compared."""
    texts: Mapping[str, str]
    """The prompts by variant."""


def _group_by_cell(items: Iterable[ComparedSet]) -> dict[Hashable, list[ComparedSet]]:
    """Return the items of each cell, in the order given."""
    cells: dict[Hashable, list[ComparedSet]] = {}
    for item in items:
        cells.setdefault(item.cell, []).append(item)
    return cells


def duplicates(
    items: Iterable[ComparedSet],
    threshold: Fraction | float | str = PAPER_THRESHOLD,
    rule: Rule = "paper",
) -> dict[str, Match]:
    """Return the items that are too similar to an earlier one that is kept, by id: each with its
    most similar pair (paper, section 3, stage 5).

    Raises:
        InputError: the threshold is not a number above 0 and below 1.
    """
    limit = Threshold.of(threshold, inclusive=rule == "authors")
    dropped: dict[str, Match] = {}
    # so that one index is in memory at a time
    for members in _group_by_cell(items).values():
        index = CellIndex(limit)
        for item in members:
            texts = item.texts
            if rule == "authors":
                core = (texts[intent] for intent in CORE_VARIANTS if intent in texts)
                texts = {"core": "\n".join(core)}
            if match := index.admit(item.id, texts):
                dropped[item.id] = match
    return dropped


def pairs_compared(items: Iterable[ComparedSet], dropped: Container[str] = ()) -> int:
    """Count the pairs of prompts of different items of one cell, as far as the earlier item was not
    dropped.
    """
    kept: Counter[Hashable] = Counter()
    pairs = 0
    for item in items:
        pairs += len(item.texts) * kept[item.cell]
        if item.id not in dropped:
            kept[item.cell] += len(item.texts)
    return pairs


def similar_pairs(
    items: Iterable[ComparedSet], threshold: Threshold
) -> Iterator[tuple[str, Match]]:
    """Yield every pair of prompts of different items of one cell that is too similar: the later
    one's id, and the match.
    """
    for members in _group_by_cell(items).values():
        entries = [
            IndexEntry(item.id, variant, text)
            for item in members
            for variant, text in item.texts.items()
        ]
        encoder, index = Encoder(), ParitySketchIndex(threshold)
        for start in range(0, len(entries), _TEXTS_AT_ONCE):
            encoded = encoder.encode(
                [entry.text for entry in entries[start : start + _TEXTS_AT_ONCE]]
            )
            index.add(encoded)
            for row, earlier, lcs in index.above(encoded):
                item_id, variant, text = entries[start + row]
                if earlier < start + row and entries[earlier].item_id != item_id:
                    overlap = Overlap(lcs, len(encoded.tokens[row]), index.length(earlier))
                    yield item_id, Match.from_overlap(variant, text, entries[earlier], overlap)


class Deduplication(msgspec.Struct, frozen=True, kw_only=True):
    """Result of `dataset dedup`."""

    kept: Dataset
    dropped: dict[str, Match]
    """By the id of the set, in the dataset's order: its most similar pair with an earlier set."""
    report: Path
    """The file with a line on each of them."""
    compared: int
    """Pairs of prompts of two sets that were compared, only within a cell; with the rule `authors`,
    pairs of sets.
    """
