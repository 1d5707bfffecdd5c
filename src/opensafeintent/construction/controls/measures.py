"""What can be counted in a dataset: its balance, differences between the three intents, and how
alike its prompts are.

Differences: the paper wants benign, dual-use and malicious prompts of the same specificity and
complexity (section 2, stage 3), so that a model reacts to intent and not to form. Both leave traces
that can be counted: how long a prompt is, and how long its words and sentences are.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import combinations
from math import log
from statistics import mean
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from opensafeintent.construction.controls.records import (
    Balance,
    Compared,
    Difference,
    Likeness,
    Measure,
)
from opensafeintent.construction.similarity.join import Item, similar_pairs
from opensafeintent.construction.similarity.rouge import PAPER_THRESHOLD, Threshold, overlap
from opensafeintent.promptsets import Dataset, PromptSet
from opensafeintent.statistics import Comparison, Estimate, Resamples, compare_models, rounded
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


def balance_of(dataset: Dataset) -> tuple[Balance, ...]:
    """Count the prompt-sets by cell, harm domain and task type."""
    taxonomy = dataset.taxonomy
    cells = Counter(item.cell for item in dataset.prompt_sets)
    domains = Counter(item.harm_domain for item in dataset.prompt_sets)
    types = Counter(item.task_type for item in dataset.prompt_sets)
    return (
        _balance("cells", [cells[cell] for cell in taxonomy.cells]),
        _balance("harm domains", [domains[name] for name in taxonomy.domain_names]),
        _balance("task types", [types[name] for name in taxonomy.type_names]),
    )


def _balance(of: Literal["cells", "harm domains", "task types"], counts: Sequence[int]) -> Balance:
    """Describe how equal some counts are: −Σ p ln p / ln k over the shares p of k groups (Pielou
    1966).

    Args:
        of: what the groups are.
        counts: prompt-sets in each group, 0 for an empty one; one or more prompt-sets in all.
    """
    total = sum(counts)
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


# Differences between the intents
# ------------------------------------------------------------------------------

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


def differences_of(
    prompt_sets: Sequence[PromptSet], resamples: Resamples
) -> tuple[Difference, ...]:
    """Compare every two intents, set by set, in words, characters and readability.

    Args:
        prompt_sets: one or more.
        resamples: bootstrap weights over as many sets.
    """
    spaced = np.array([has_spaces(item) for item in prompt_sets])
    values: dict[Measure, Floats] = {}
    scales: dict[Measure, float] = {}
    terms: dict[str, tuple[Floats, Floats]] = {}
    for measure, of in _MEASURES.items():
        counts = spaced if measure in _NEED_SPACES else np.ones_like(spaced)
        texts = [[of(item.prompts.of(intent)) for item in prompt_sets] for intent in CORE_VARIANTS]
        everywhere = np.array(texts, dtype=np.float64)
        values[measure] = everywhere[:, counts]
        # in units of the greatest difference within a set, all differences are in [−1, 1]
        scales[measure] = float(np.ptp(values[measure], axis=0).max(initial=0.0)) or 1.0
        weights = np.tile(counts.astype(np.float64), (len(CORE_VARIANTS), 1))
        terms[measure] = (everywhere / scales[measure] * counts, weights)
    compared = compare_models(terms, resamples)
    return tuple(
        _difference(measure, *pair, values[measure], compared[measure], scales[measure])
        for measure in _MEASURES
        for pair in _PAIRS
    )


def _difference(
    measure: Measure,
    first: Intent,
    second: Intent,
    values: Floats,
    compared: Comparison,
    scale: float,
) -> Difference:
    """Describe first minus second; `values` are of shape (intent, prompt_set)."""
    one, other = CORE_VARIANTS.index(first), CORE_VARIANTS.index(second)
    at = other, one  # a comparison is of the second minus the first
    differences = values[one] - values[other]
    n = len(differences)
    several = n > 1
    spread = float(differences.std(ddof=1)) if several else 0.0
    interval = (rounded(compared.low[at] * scale), rounded(compared.high[at] * scale))
    return Difference(
        measure=measure,
        first=first,
        second=second,
        mean=Estimate(
            value=rounded(differences.mean()) if n else None,
            n=n,
            interval=interval if several else None,
        ),
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


class _Pair(NamedTuple):
    """Two prompts and how alike they are; the least is the most alike pair, ties by id."""

    distance: float
    """Minus ROUGE-L F1, rounded."""
    first_id: str
    second_id: str
    first_variant: str
    second_variant: str


def likeness_of(prompt_sets: Sequence[PromptSet]) -> tuple[Likeness, ...]:
    """Return how alike prompts of two sets of a cell are, and prompts of one set.

    ROUGE-L compares words between white space, so sets in scripts without it are left out.
    """
    spaced = [item for item in prompt_sets if has_spaces(item)]
    return (
        _between_sets([Item(item.id, item.cell, item.wordings()) for item in spaced]),
        _within_sets("core prompts of a set", spaced, lambda variant: variant in CORE_VARIANTS),
        _within_sets("dual-use wordings of a set", spaced, is_dual_use),
    )


def _between_sets(items: Sequence[Item]) -> Likeness:
    in_cell: Counter[object] = Counter()
    within: Counter[object] = Counter()
    for item in items:
        in_cell[item.cell] += len(item.texts)
        within[item.cell] += len(item.texts) ** 2
    compared = sum((in_cell[cell] ** 2 - within[cell]) // 2 for cell in in_cell)
    alike = _pairs_above(items, PAPER_THRESHOLD)
    nearest = alike or next(
        filter(None, (_pairs_above(items, limit) for limit in _THRESHOLDS[1:])), []
    )
    sets = {(pair.first_id, pair.second_id) for pair in alike}
    return _likeness("two sets of one cell", compared, None, len(sets), nearest)


def _pairs_above(items: Sequence[Item], limit: Fraction) -> list[_Pair]:
    return [
        _Pair(-rounded(match.overlap.score), match.twin, later, match.twin_variant, match.variant)
        for later, match in similar_pairs(items, Threshold.of(limit))
    ]


def _within_sets(
    prompts: Compared, prompt_sets: Sequence[PromptSet], belongs: Callable[[str], bool]
) -> Likeness:
    limit = Threshold.of(PAPER_THRESHOLD)
    means, alike, pairs = [], 0, []
    for item in prompt_sets:
        wordings = {variant: text for variant, text in item.wordings().items() if belongs(variant)}
        overlaps = {
            (one, other): overlap(wordings[one], wordings[other])
            for one, other in combinations(wordings, 2)
        }
        if overlaps:
            means.append(mean(each.score for each in overlaps.values()))
            alike += any(map(limit.met, overlaps.values()))
            pairs += [
                _Pair(-rounded(each.score), item.id, item.id, *pair)
                for pair, each in overlaps.items()
            ]
    return _likeness(prompts, len(means), rounded(mean(means)) if means else None, alike, pairs)


def _likeness(
    prompts: Compared,
    compared: int,
    average: float | None,
    alike: int,
    pairs: Sequence[_Pair],
) -> Likeness:
    nearest = min(pairs, default=None)
    return Likeness(
        prompts=prompts,
        compared=compared,
        mean=average,
        alike=alike,
        highest=-nearest.distance if nearest else None,
        first=f"{nearest.first_id} {nearest.first_variant}" if nearest else None,
        second=f"{nearest.second_id} {nearest.second_variant}" if nearest else None,
    )
