"""Controls of a dataset, measured: balance, differences between intents, predictive words, similar
prompts.

Differences: the paper wants benign, dual-use and malicious prompts of the same specificity and
complexity (section 2, stage 3), so that a model reacts to intent and not to form. Two measurable
traces of both are the length of a prompt, and that of its words and sentences.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from fractions import Fraction
from itertools import combinations
from math import log
from statistics import mean
from typing import Literal, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from opensafeintent.construction.artefacts import Accuracy, TellingWord, artefacts_of
from opensafeintent.construction.rouge import PAPER_THRESHOLD, Threshold, overlap
from opensafeintent.construction.similarity import ComparedSet, pairs_compared, similar_pairs
from opensafeintent.construction.text_measures import has_spaces, readability_index
from opensafeintent.errors import InputError
from opensafeintent.promptsets import Dataset, PromptSet
from opensafeintent.statistics import (
    Estimate,
    mean_test,
    rounded,
)
from opensafeintent.statistics.intervals import SEED
from opensafeintent.taxonomy import CORE_VARIANTS, Intent, is_dual_use

Measure = Literal["words", "characters", "readability"]
Compared = Literal["two sets of one cell", "core prompts of a set", "dual-use wordings of a set"]


class Balance(msgspec.Struct, frozen=True, kw_only=True):
    """How equally the prompt-sets are spread over one kind of group."""

    of: Literal["cells", "harm domains", "task types"]
    groups: int
    """Of the taxonomy, the empty ones included."""
    empty: int
    least: int
    most: int
    """Prompt-sets in the smallest and in the largest group."""
    most_share: float
    """The largest group as a share of all prompt-sets; with equal groups 1 / groups."""
    evenness: float | None
    """Entropy of the shares over the logarithm of the number of groups: 1 is equal, 0 is all in one
    (Pielou 1966). None if there is only one group."""


class IntentDifference(msgspec.Struct, frozen=True, kw_only=True):
    """A measure of the first minus the second intent's prompt within each prompt-set; None if there
    are too few sets for the number.
    """

    measure: Measure
    first: Intent
    second: Intent
    mean: Estimate
    """Over the prompt-sets that count: sets in scripts without spaces have only characters. The
    interval holds for the three pairs of intents at once.
    """
    standardised: float | None
    """Mean over the standard deviation of the differences (Cohen's d_z)."""
    greater: float | None
    less: float | None
    """Shares of the sets in which the first is greater, and in which it is less."""
    p_unadjusted: float | None
    """Two-sided, of a zero mean; of this pair on its own."""
    p_adjusted: float | None
    """For the three pairs of intents: below 0.05 if the interval leaves 0 out."""
    minimum_detectable_difference: float | None
    """A difference that this number of sets detects with a power of 80 %."""


class Similarity(msgspec.Struct, frozen=True, kw_only=True):
    """How alike some prompts are, by ROUGE-L F1."""

    prompts: Compared
    compared: int
    """Pairs of prompts of two sets; for prompts of one set, the sets that have two or more."""
    mean: float | None
    """Over sets, of the mean of every two prompts; not computed for two sets."""
    alike: int
    """Pairs of sets, or sets, with two prompts above 0.7."""
    highest: float | None
    """None if no two prompts share a word."""
    first: str | None
    second: str | None
    """The two prompts with the highest score: set id and variant."""


class DatasetCheck(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the check of a dataset finds."""

    dataset: str
    hash: str
    sets: int
    prompts: int
    seed: int
    findings: tuple[str, ...] = ()
    """One line for each control; `report.dataset_findings` writes them."""
    left_out: tuple[str, ...]
    """Checks that were not made, with reasons."""
    balance: tuple[Balance, ...]
    differences: tuple[IntentDifference, ...]
    classifier: tuple[Accuracy, ...]
    """Among all three intents first, then for each two; empty if left out."""
    words: tuple[TellingWord, ...]
    similarity: tuple[Similarity, ...]
    content_shift: dict[str, int]
    """Prompt-sets by how much of a full answer changes with intent: `none`, `partial`, `full`, and
    `unknown` for sets that do not say it."""

    @property
    def lexical_leakage(self) -> Estimate | None:
        """How often words alone distinguish benign from malicious; None if that was left out."""
        return next(
            (row.accuracy for row in self.classifier if row.intents == ("benign", "malicious")),
            None,
        )


_LARGEST_SEED = 2**32 - 1


def measure_controls(dataset: Dataset, seed: int = SEED) -> DatasetCheck:
    """Measure a dataset's controls: balance, differences between the intents, predictive words,
    similar prompts. The findings are left empty.

    The same dataset and seed give the same record, in any order of the prompt-sets.

    Args:
        dataset: of one prompt-set or more.
        seed: of the folds, from 0 to 2³² − 1.

    Raises:
        InputError: the seed is not one.
    """
    if not 0 <= seed <= _LARGEST_SEED:
        raise InputError(f"seed {seed}: expected a whole number from 0 to {_LARGEST_SEED}")
    prompt_sets = dataset.sorted.prompt_sets
    classifier, words, problem = artefacts_of(prompt_sets, seed)
    shifts: dict[str, int] = dict(Counter(item.content_shift or "unknown" for item in prompt_sets))
    unspaced = sum(not has_spaces(item) for item in prompt_sets)
    left_out = [problem] if problem else []
    if unspaced:
        left_out.append(
            f"words, readability and similarity: {unspaced:,} of {len(prompt_sets):,} prompt-sets"
            " have no spaces between words; their predictive words are pairs of characters"
        )
    return DatasetCheck(
        dataset=dataset.name,
        hash=dataset.hash,
        sets=len(prompt_sets),
        prompts=sum(len(item.wordings()) for item in prompt_sets),
        seed=seed,
        left_out=tuple(left_out),
        balance=balance_of(dataset),
        differences=differences_of(prompt_sets),
        classifier=classifier,
        words=words,
        similarity=similarity_of(prompt_sets),
        content_shift=shifts,
    )


def balance_of(dataset: Dataset) -> tuple[Balance, ...]:
    """Count the prompt-sets by cell, harm domain and task type."""
    taxonomy, sets = dataset.taxonomy, dataset.prompt_sets
    return (
        _balance("cells", taxonomy.cells, [item.cell for item in sets]),
        _balance("harm domains", taxonomy.domain_names, [item.harm_domain for item in sets]),
        _balance("task types", taxonomy.type_names, [item.task_type for item in sets]),
    )


def _balance(
    of: Literal["cells", "harm domains", "task types"],
    groups: Sequence[Hashable],
    labels: Sequence[Hashable],
) -> Balance:
    """Return the evenness of some counts: −Σ p ln p / ln k over the shares p of k groups (Pielou
    1966).

    Args:
        of: the kind of group.
        groups: all of them.
        labels: the group of each prompt-set, one or more.
    """
    total = len(labels)
    present = Counter(labels)
    counts = [present[group] for group in groups]
    entropy = -sum(count / total * log(count / total) for count in counts if count)
    return Balance(
        of=of,
        groups=len(counts),
        empty=sum(not count for count in counts),
        least=min(counts),
        most=max(counts),
        most_share=rounded(max(counts) / total),
        evenness=rounded(entropy / log(len(counts))) if len(counts) > 1 else None,
    )


_PAIRS: tuple[tuple[Intent, Intent], ...] = (
    ("malicious", "benign"),
    ("malicious", "dual_use"),
    ("dual_use", "benign"),
)
"""First minus second."""

_MEASURES: dict[Measure, Callable[[str], float]] = {
    "words": lambda text: len(text.split()),
    "characters": len,
    "readability": readability_index,
}
_NEED_SPACES: tuple[Measure, ...] = ("words", "readability")

Floats = NDArray[np.float64]


def differences_of(prompt_sets: Sequence[PromptSet]) -> tuple[IntentDifference, ...]:
    """Compare every two intents, set by set, in words, characters and readability.

    Args:
        prompt_sets: one or more.
    """
    spaced = [item for item in prompt_sets if has_spaces(item)]
    rows = []
    for measure, of in _MEASURES.items():
        counted = spaced if measure in _NEED_SPACES else prompt_sets
        for first, second in _PAIRS:
            differences = [
                of(item.prompts.of(first)) - of(item.prompts.of(second)) for item in counted
            ]
            rows.append(_difference(measure, first, second, np.array(differences)))
    return tuple(rows)


_DIGITS = 9
"""Decimals of a difference: further ones are errors of the machine's arithmetic."""


def _difference(
    measure: Measure, first: Intent, second: Intent, unrounded: Floats
) -> IntentDifference:
    """Describe first minus second; the differences have the shape (prompt_set,)."""
    differences = np.round(unrounded, _DIGITS)
    n = len(differences)
    spread = float(differences.std(ddof=1)) if n > 1 else 0.0
    tested = mean_test(differences, pairs=len(_PAIRS)) if n > 1 else None
    return IntentDifference(
        measure=measure,
        first=first,
        second=second,
        mean=Estimate(
            value=rounded(differences.mean()) if n else None,
            n=n,
            interval=(rounded(tested.low), rounded(tested.high)) if tested else None,
        ),
        standardised=rounded(differences.mean() / spread) if spread else None,
        greater=rounded((differences > 0).mean()) if n else None,
        less=rounded((differences < 0).mean()) if n else None,
        p_unadjusted=rounded(tested.p_unadjusted) if tested else None,
        p_adjusted=rounded(tested.p_adjusted) if tested else None,
        minimum_detectable_difference=(
            rounded(tested.minimum_detectable_difference) if tested and spread else None
        ),
    )


_THRESHOLDS = (
    PAPER_THRESHOLD,
    *(Fraction(percent, 100) for percent in (60, 50, 40, 30, 20, 10)),
    Fraction(1, 10**6),
)
"""The highest similarity is looked for from above: the join is the faster the higher its threshold.
"""


class _Pair(NamedTuple):
    """Two prompts and how alike they are; the least is the most alike pair, ties by id."""

    distance: float
    """Minus ROUGE-L F1, rounded."""
    first_id: str
    second_id: str
    first_variant: str
    second_variant: str


def similarity_of(prompt_sets: Sequence[PromptSet]) -> tuple[Similarity, ...]:
    """Return how alike prompts of two sets of a cell are, and prompts of one set.

    ROUGE-L compares words between white space, so sets in scripts without it are left out.
    """
    spaced = [item for item in prompt_sets if has_spaces(item)]
    return (
        _between_sets([ComparedSet(item.id, item.cell, item.wordings()) for item in spaced]),
        _within_sets("core prompts of a set", spaced, lambda variant: variant in CORE_VARIANTS),
        _within_sets("dual-use wordings of a set", spaced, is_dual_use),
    )


def _between_sets(items: Sequence[ComparedSet]) -> Similarity:
    alike = _pairs_above(items, PAPER_THRESHOLD)
    nearest = alike or next(
        filter(None, (_pairs_above(items, limit) for limit in _THRESHOLDS[1:])), []
    )
    sets = len({(pair.first_id, pair.second_id) for pair in alike})
    return _similarity("two sets of one cell", pairs_compared(items), None, sets, nearest)


def _pairs_above(items: Sequence[ComparedSet], limit: Fraction) -> list[_Pair]:
    return [
        _Pair(
            -rounded(match.overlap.score),
            match.duplicate,
            later,
            match.duplicate_variant,
            match.variant,
        )
        for later, match in similar_pairs(items, Threshold.of(limit))
    ]


def _within_sets(
    prompts: Compared, prompt_sets: Sequence[PromptSet], belongs: Callable[[str], bool]
) -> Similarity:
    limit = Threshold.of(PAPER_THRESHOLD)
    means, alike, pairs = [], 0, []
    for item in prompt_sets:
        wordings = {variant: text for variant, text in item.wordings().items() if belongs(variant)}
        overlaps = {
            (first, second): overlap(wordings[first], wordings[second])
            for first, second in combinations(wordings, 2)
        }
        if overlaps:
            means.append(mean(match.score for match in overlaps.values()))
            alike += any(map(limit.met, overlaps.values()))
            pairs += [
                _Pair(-rounded(match.score), item.id, item.id, *variants)
                for variants, match in overlaps.items()
            ]
    return _similarity(prompts, len(means), rounded(mean(means)) if means else None, alike, pairs)


def _similarity(
    prompts: Compared,
    compared: int,
    average: float | None,
    alike: int,
    pairs: Sequence[_Pair],
) -> Similarity:
    nearest = min(pairs, default=None)
    return Similarity(
        prompts=prompts,
        compared=compared,
        mean=average,
        alike=alike,
        highest=-nearest.distance if nearest else None,
        first=f"{nearest.first_id} {nearest.first_variant}" if nearest else None,
        second=f"{nearest.second_id} {nearest.second_variant}" if nearest else None,
    )
