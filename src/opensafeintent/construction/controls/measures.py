"""What can be counted in a dataset: its balance, the parity of the three intents, and how alike its
prompts are.

Parity: the paper wants benign, dual-use and malicious prompts of the same specificity and
complexity (section 2, stage 3), so that a model reacts to intent and not to form. Both leave traces
that can be counted: how long a prompt is, and how long its words and sentences are.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import combinations, pairwise
from math import log
from statistics import mean, median

import numpy as np
from numpy.typing import NDArray

from opensafeintent.construction.controls.records import (
    Alike,
    Balance,
    Count,
    Difference,
    Evenness,
    Likeness,
    Measure,
    NearDuplicates,
    Parity,
    Spread,
    WithinSets,
)
from opensafeintent.construction.similarity.join import Item, similar_pairs
from opensafeintent.construction.similarity.rouge import PAPER_THRESHOLD, Threshold, overlap, words
from opensafeintent.promptsets import Dataset, PromptSet
from opensafeintent.statistics import Comparison, Resamples, compare_models, rounded
from opensafeintent.taxonomy import CORE_VARIANTS, Intent, is_dual_use

# Words, sentences and scripts
# ------------------------------------------------------------------------------

_WITHOUT_SPACES = (
    "\u0e00-\u0fff"  # Thai, Lao, Tibetan
    "\u1000-\u109f\u1780-\u17ff"  # Myanmar, Khmer
    "\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\uff66-\uff9f"  # Japanese syllables
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"  # Chinese characters
)
_UNSPACED = re.compile(f"[{_WITHOUT_SPACES}]")
_RUNS = re.compile(f"[{_WITHOUT_SPACES}]+|[^{_WITHOUT_SPACES}]+")
_MOST_UNSPACED = 0.25
"""Share of a set's letters: an English prompt may quote a Chinese phrase, a Japanese one name an
English product.
"""
_SENTENCE_END = re.compile(r"""[.!?…।؟]+["'”’»)\]]*(?=\s|$)|\n\s*\n""")


def has_spaces(prompt_set: PromptSet) -> bool:
    """Tell whether a set's triplet is in a script that puts spaces between words; the text decides,
    not `language`.
    """
    text = "".join(prompt_set.prompts.of(intent) for intent in CORE_VARIANTS)
    letters = sum(map(str.isalpha, text))
    return len(_UNSPACED.findall(text)) <= _MOST_UNSPACED * letters


def readability_index(text: str) -> float:
    """Return the Automated Readability Index, 4.71 · characters / words + 0.5 · words / sentences −
    21.43.

    It needs no syllables, only letters and digits, words between white space, and sentences, which
    end in a full stop, a question or an exclamation mark, or at an empty line (Smith and Senter,
    Automated Readability Index, AMRL-TR-66-220, 1967). Its unit is a school grade in the United
    States, for English prose; in other languages only differences between texts say something.

    Args:
        text: one with a word or more, in a script with spaces.
    """
    words = len(text.split())
    sentences = sum(any(map(str.isalnum, part)) for part in _SENTENCE_END.split(text)) or 1
    return 4.71 * sum(map(str.isalnum, text)) / words + 0.5 * words / sentences - 21.43


class _Separators(dict[int, str | None]):
    """What becomes of each character: letters, digits and their marks stay, the rest parts
    words.
    """

    def __missing__(self, code: int) -> str | None:
        char = chr(code)
        kind = unicodedata.category(char)
        kept = char if kind[0] in "LNM" or char == "'" else None if kind == "Cf" else " "
        self[code] = kept
        return kept


_separators = _Separators({ord("’"): "'"})


def tokens(text: str) -> set[str]:
    """Return the different words of a text, case and punctuation aside.

    In scripts without spaces every two neighbouring characters stand for a word.
    """
    found: set[str] = set()
    for word in unicodedata.normalize("NFKC", text).casefold().translate(_separators).split():
        for run in _RUNS.findall(word.strip("'")):
            if _UNSPACED.match(run) and len(run) > 1:
                found.update(run[start : start + 2] for start in range(len(run) - 1))
            else:
                found.add(run)
    return found


# Balance
# ------------------------------------------------------------------------------


def balance_of(dataset: Dataset) -> Balance:
    """Count the prompt-sets by cell, harm domain and task type."""
    taxonomy = dataset.taxonomy
    cells = Counter(prompt_set.cell for prompt_set in dataset.prompt_sets)
    domains = Counter(prompt_set.harm_domain for prompt_set in dataset.prompt_sets)
    types = Counter(prompt_set.task_type for prompt_set in dataset.prompt_sets)
    return Balance(
        cells=evenness_of([cells[cell] for cell in taxonomy.cells]),
        harm_domains=evenness_of([domains[name] for name in taxonomy.domain_names]),
        task_types=evenness_of([types[name] for name in taxonomy.type_names]),
        counts=tuple(
            Count(harm_domain=cell[0], task_type=cell[1], sets=cells[cell])
            for cell in taxonomy.cells
        ),
    )


def evenness_of(counts: Sequence[int]) -> Evenness:
    """Describe how equal some counts are: −Σ p ln p / ln k over the shares p of k groups (Pielou
    1966).

    Args:
        counts: prompt-sets in each group, 0 for an empty one; one or more prompt-sets in all.
    """
    total = sum(counts)
    entropy = -sum(count / total * log(count / total) for count in counts if count)
    return Evenness(
        groups=len(counts),
        empty=sum(not count for count in counts),
        least=min(counts),
        most=max(counts),
        least_share=round(min(counts) / total, 6),
        most_share=round(max(counts) / total, 6),
        evenness=round(entropy / log(len(counts)), 6) + 0.0 if len(counts) > 1 else None,
    )


# Parity of the intents
# ------------------------------------------------------------------------------

PAIRS: tuple[tuple[Intent, Intent], ...] = (
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


def parity_of(prompt_sets: Sequence[PromptSet], resamples: Resamples) -> tuple[Parity, ...]:
    """Compare every two intents, set by set, in words, characters and readability.

    Args:
        prompt_sets: one or more.
        resamples: bootstrap weights over as many sets.
    """
    spaced = np.array([has_spaces(prompt_set) for prompt_set in prompt_sets])
    values = {
        measure: np.array(
            [
                [of(prompt_set.prompts.of(intent)) for prompt_set in prompt_sets]
                for intent in CORE_VARIANTS
            ],
            dtype=np.float64,
        )
        for measure, of in _MEASURES.items()
    }
    counted = {
        measure: spaced if measure in _NEED_SPACES else np.ones_like(spaced) for measure in values
    }
    scales = {
        measure: _greatest_difference(found[:, counted[measure]])
        for measure, found in values.items()
    }
    compared = compare_models(
        {
            measure: (
                found / scales[measure] * counted[measure],
                np.tile(counted[measure].astype(np.float64), (3, 1)),
            )
            for measure, found in values.items()
        },
        resamples,
    )
    return tuple(
        Parity(
            measure=measure,
            left_out=int((~counted[measure]).sum()),
            intents=tuple(map(_spread, CORE_VARIANTS, found[:, counted[measure]])),
            pairs=tuple(
                _difference(pair, found[:, counted[measure]], compared[measure], scales[measure])
                for pair in PAIRS
            ),
        )
        for measure, found in values.items()
    )


def _greatest_difference(values: Floats) -> float:
    """Return the greatest difference between two intents within a set: measured in it, all
    differences are in [−1, 1].
    """
    return float(np.ptp(values, axis=0).max(initial=0.0)) or 1.0


def _spread(intent: Intent, values: Floats) -> Spread:
    """Describe one measure over the prompts of one intent; shape (prompt_set,)."""
    if not len(values):
        return Spread(intent=intent, mean=None, median=None, least=None, most=None)
    mean, median, least, most = (
        round(float(f(values)), 6) for f in (np.mean, np.median, np.min, np.max)
    )
    return Spread(intent=intent, mean=mean, median=median, least=least, most=most)


def _difference(
    pair: tuple[Intent, Intent], values: Floats, compared: Comparison, scale: float
) -> Difference:
    """Describe first minus second; `values` are of shape (intent, prompt_set)."""
    first, second = map(CORE_VARIANTS.index, pair)
    at = second, first  # a comparison is of the second minus the first
    differences = values[first] - values[second]
    n = len(differences)
    several = n > 1
    spread = float(differences.std(ddof=1)) if several else 0.0
    return Difference(
        first=pair[0],
        second=pair[1],
        n=n,
        mean=rounded(differences.mean()) if n else None,
        low=rounded(compared.low[at] * scale) if several else None,
        high=rounded(compared.high[at] * scale) if several else None,
        standardised=rounded(differences.mean() / spread) if spread else None,
        greater=rounded((differences > 0).mean()) if n else None,
        less=rounded((differences < 0).mean()) if n else None,
        p=rounded(compared.p[at]) if several else None,
        p_adjusted=rounded(compared.p_adjusted[at]) if several else None,
        detectable=rounded(compared.detectable[at] * scale) if spread else None,
    )


# Alike prompts
# ------------------------------------------------------------------------------

_THRESHOLDS = (
    PAPER_THRESHOLD,
    *(Fraction(percent, 100) for percent in (60, 50, 40, 30, 20, 10)),
    Fraction(1, 10**6),
)
"""The highest similarity is looked for from above: the join is the faster the higher its threshold.
"""

_MOST_LISTED = 1_000
"""Pairs of sets: those of sets that one template wrote are as many as the square of their number.
"""


def near_duplicates_of(prompt_sets: Sequence[PromptSet]) -> NearDuplicates:
    """Return the prompts of different sets in one cell whose ROUGE-L is above 0.7, and the highest
    there is.

    ROUGE-L compares words between white space, so sets in scripts without it are not compared.
    """
    items = [Item(item.id, item.cell, item.wordings()) for item in prompt_sets if has_spaces(item)]
    found = _highest_of_two_sets(items, PAPER_THRESHOLD)
    higher = found or next(
        filter(None, (_highest_of_two_sets(items, limit) for limit in _THRESHOLDS[1:])), []
    )
    return NearDuplicates(
        threshold=float(PAPER_THRESHOLD),
        compared=_pairs(items),
        pairs=len(found),
        found=tuple(found[:_MOST_LISTED]),
        highest=higher[0] if higher else None,
    )


def _highest_of_two_sets(items: Sequence[Item], limit: Fraction) -> list[Alike]:
    """Return for every two sets with prompts above a threshold their most similar ones, the highest
    score first.
    """
    best: dict[tuple[str, str], Alike] = {}
    for later, match in similar_pairs(items, Threshold.of(limit)):
        alike = Alike(
            first_id=match.twin,
            first_variant=match.twin_variant,
            second_id=later,
            second_variant=match.variant,
            score=round(match.overlap.score, 6),
        )
        sets = match.twin, later
        if sets not in best or _rank(alike) < _rank(best[sets]):
            best[sets] = alike
    return sorted(best.values(), key=_rank)


def _rank(alike: Alike) -> tuple[float, str, str, str, str]:
    return -alike.score, alike.first_id, alike.second_id, alike.first_variant, alike.second_variant


def _pairs(items: Sequence[Item]) -> int:
    """Count the pairs of prompts of different sets in one cell."""
    in_cell: Counter[object] = Counter()
    within: Counter[object] = Counter()
    for item in items:
        in_cell[item.cell] += len(item.texts)
        within[item.cell] += len(item.texts) ** 2
    return sum((in_cell[cell] ** 2 - within[cell]) // 2 for cell in in_cell)


def within_sets_of(prompt_sets: Sequence[PromptSet]) -> WithinSets:
    """Return how alike the prompts of each set are, by ROUGE-L: across intents, and among the
    dual-use wordings.

    Sets in scripts without spaces count for identical prompts only.
    """
    spaced = [item for item in prompt_sets if has_spaces(item)]
    return WithinSets(
        triplet=_likeness(spaced, lambda variant: variant in CORE_VARIANTS),
        dual_use=_likeness(spaced, is_dual_use),
        identical=tuple(pair for item in prompt_sets for pair in _identical(item)),
    )


def _likeness(prompt_sets: Sequence[PromptSet], belongs: Callable[[str], bool]) -> Likeness:
    limit = Threshold.of(PAPER_THRESHOLD)
    means, alike, best = [], 0, []
    for item in prompt_sets:
        wordings = {variant: text for variant, text in item.wordings().items() if belongs(variant)}
        overlaps = {
            pair: overlap(wordings[pair[0]], wordings[pair[1]])
            for pair in combinations(wordings, 2)
        }
        if not overlaps:
            continue
        means.append(mean(found.score for found in overlaps.values()))
        alike += any(map(limit.met, overlaps.values()))
        one, other = max(overlaps, key=lambda pair: overlaps[pair].score)
        best.append(_within(item, one, other, overlaps[one, other].score))
    return Likeness(
        sets=len(means),
        mean=round(mean(means), 6) if means else None,
        median=round(median(means), 6) if means else None,
        highest=min(best, key=_rank) if best else None,
        alike=alike,
    )


def _within(item: PromptSet, one: str, other: str, score: float) -> Alike:
    return Alike(
        first_id=item.id,
        first_variant=one,
        second_id=item.id,
        second_variant=other,
        score=round(score, 6),
    )


def _identical(item: PromptSet) -> list[Alike]:
    """Return each prompt with the next one of the set that has the same words; a prompt without a
    word is taken as it is.
    """
    same: dict[tuple[str, ...], list[str]] = {}
    for variant, text in item.wordings().items():
        same.setdefault(tuple(words(text)) or (text,), []).append(variant)
    return [
        _within(item, one, other, 1.0)
        for variants in same.values()
        for one, other in pairwise(variants)
    ]
