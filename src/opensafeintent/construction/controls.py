"""Whether a dataset gives intents away: lengths, words, a classifier."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from fractions import Fraction
from itertools import chain, combinations
from math import log
from statistics import mean
from typing import Any, Literal, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from opensafeintent.construction.similarity import (
    PAPER_THRESHOLD,
    ComparedSet,
    Threshold,
    overlap,
    pairs_compared,
    similar_pairs,
)
from opensafeintent.errors import InputError, install_extra
from opensafeintent.promptsets import Dataset, PromptSet
from opensafeintent.statistics import Estimate, estimate, round_number, run_mean_test
from opensafeintent.statistics.intervals import METHOD, SEED
from opensafeintent.taxonomy import CORE_VARIANTS, DUAL_USE, Intent, is_dual_use

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
    """Tell whether a set's core prompts are in a script that puts spaces between words; the text
    decides, not `language`.
    """
    text = "".join(prompt_set.prompts.by_intent().values())
    return len(_UNSPACED.findall(text)) <= _MOST_UNSPACED * sum(map(str.isalpha, text))


def readability_index(text: str) -> float:
    """Return the Automated Readability Index, 4.71 · characters / words + 0.5 · words / sentences −
    21.43.

    It needs no syllables, only letters and digits, words between white space, and sentences (Smith
    and Senter, Automated Readability Index, AMRL-TR-66-220, 1967). A sentence ends in a full stop,
    a question or an exclamation mark, or at an empty line. The unit is a school grade in the United
    States, for English prose. In other languages only differences between texts are meaningful.

    Args:
        text: one with a word or more, in a script with spaces.
    """
    words = len(text.split())
    sentences = sum(any(map(str.isalnum, part)) for part in _SENTENCE_END.split(text)) or 1
    return 4.71 * sum(map(str.isalnum, text)) / words + 0.5 * words / sentences - 21.43


class _Separators(dict[int, str | None]):
    """Translation of characters: letters, digits and their marks stay, others separate words."""

    def __missing__(self, code: int) -> str | None:
        char, kind = chr(code), unicodedata.category(chr(code))
        separator = None if kind == "Cf" else " "
        return self.setdefault(code, char if kind[0] in "LNM" or char == "'" else separator)


_separators = _Separators({ord("’"): "'"})


def tokens(text: str) -> set[str]:
    """Return the different words of a text, case and punctuation aside.

    In scripts without spaces every two neighbouring characters count as a word.
    """
    words: set[str] = set()
    for word in unicodedata.normalize("NFKC", text).casefold().translate(_separators).split():
        for run in _RUNS.findall(word.strip("'")):
            if _UNSPACED.match(run) and len(run) > 1:
                words.update(run[start : start + 2] for start in range(len(run) - 1))
            else:
                words.add(run)
    return words


class Accuracy(msgspec.Struct, frozen=True, kw_only=True):
    """How often words alone give the intent away, on prompt-sets that the classifier has not
    seen.
    """

    intents: tuple[Intent, ...]
    """The intents to choose from."""
    chance: float
    accuracy: Estimate
    """Interval over prompt-sets, those to learn from among them (`docs/datasets.md`)."""


class TellingWord(msgspec.Struct, frozen=True, kw_only=True):
    """A word that speaks for one intent, with the number of sets in whose prompt of each intent it
    occurs.
    """

    intent: Intent
    word: str
    weight: float
    """In the logistic regression of this intent against the others."""
    benign: int
    dual_use: int | None
    """None if not every prompt-set has a dual-use prompt."""
    malicious: int


NEEDS_EXTRA = f"words that give the intent away: this needs an extra: {install_extra('check')}"

_FOLDS = 5
_CHOICES: tuple[tuple[Intent, ...], ...] = (
    CORE_VARIANTS,
    ("benign", "malicious"),
    ("benign", "dual_use"),
    ("dual_use", "malicious"),
)
_OF_ALL: tuple[Intent, ...] = ("benign", "malicious")
"""The intents that every prompt-set has a prompt of."""
_WORDS = 12
"""Predictive words listed for each intent."""
_FEWEST_FOR_ARTEFACTS = 3
_LEAST_SHARE = 0.01
"""A predictive word occurs in as many sets, and in this share of them: a rarer one predicts little.
"""

Ints = NDArray[np.int64]


def find_artefacts(
    prompt_sets: Sequence[PromptSet], seed: int
) -> tuple[tuple[Accuracy, ...], tuple[TellingWord, ...], str]:
    """Return how well words distinguish intents, and which do; or why that was left out.

    Args:
        prompt_sets: one or more.
        seed: of the choice of folds.
    """
    try:
        import sklearn  # noqa: F401
    except ImportError:
        return (), (), NEEDS_EXTRA
    vocabulary, features = _count_features(prompt_sets)
    if not vocabulary:
        return (), (), "words that give the intent away: no word occurs in two prompt-sets"
    triplets = np.array([not item.is_pair for item in prompt_sets])
    accuracies = []
    for choice in _CHOICES:
        members = np.flatnonzero(triplets | (DUAL_USE not in choice))
        if len(members) > 1:
            folds = draw_folds(len(members), seed)
            predicted = _cross_validate(features, choice, members, folds)
            accuracies.append(_estimate_accuracy(choice, predicted, folds))
    intents = CORE_VARIANTS if triplets.all() else _OF_ALL
    return tuple(accuracies), _find_telling_words(vocabulary, features, intents), ""


def draw_folds(sets: int, seed: int) -> Ints:
    """Return the fold of each prompt-set, seeded: five folds, or fewer for fewer sets; shape
    (prompt_set,).

    Sets are dealt out, not prompts, so the prompts of a set are never on both sides.
    """
    from sklearn.model_selection import KFold

    folds = np.empty(sets, dtype=np.int64)
    dealt = KFold(min(_FOLDS, sets), shuffle=True, random_state=seed).split(folds)
    for fold, (_, members) in enumerate(dealt):
        folds[members] = fold
    return folds


def _count_features(prompt_sets: Sequence[PromptSet]) -> tuple[list[str], Any]:
    """Return the words that occur in two sets or more, and which prompt has which.

    Returns:
        A sparse matrix of shape (intent × prompt_set, word): all benign prompts first, then
        dual-use, which are empty of pairs, then malicious. None without words.
    """
    from sklearn.feature_extraction.text import CountVectorizer

    tokens_of = [
        [tokens(prompt_set.prompts.by_intent().get(intent, "")) for prompt_set in prompt_sets]
        for intent in CORE_VARIANTS
    ]
    sets = Counter(word for triplet in zip(*tokens_of, strict=True) for word in set.union(*triplet))
    vocabulary = sorted(word for word, count in sets.items() if count > 1)
    if not vocabulary:
        return [], None
    counter = CountVectorizer(analyzer=list, vocabulary=vocabulary, dtype=np.float64)
    return vocabulary, counter.transform(chain(*tokens_of))


def _make_classifier() -> Any:
    """One-against-the-rest logistic regressions: liblinear is one thread and exact to the bit from
    run to run.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.multiclass import OneVsRestClassifier

    return OneVsRestClassifier(LogisticRegression(solver="liblinear", random_state=0))


def _cross_validate(features: Any, choice: Sequence[Intent], members: Ints, folds: Ints) -> Ints:
    """Return the class that a classifier gives each prompt without having seen its set.

    Args:
        features: shape (intent × prompt_set, word).
        choice: the intents to choose from; prompts of others are left out.
        members: the prompt-sets that have them all.
        folds: of these.

    Returns:
        Positions in `choice`, of shape (intent of the choice, prompt_set).
    """
    from sklearn.model_selection import PredefinedSplit, cross_val_predict

    sets = features.shape[0] // len(CORE_VARIANTS)
    rows = np.concatenate([CORE_VARIANTS.index(intent) * sets + members for intent in choice])
    predicted: Ints = cross_val_predict(
        _make_classifier(),
        features[rows],
        np.repeat(np.arange(len(choice)), len(members)),
        cv=PredefinedSplit(np.tile(folds, len(choice))),
    )
    return predicted.reshape(len(choice), len(members))


def _estimate_accuracy(choice: tuple[Intent, ...], predicted: Ints, folds: Ints) -> Accuracy:
    """Return the accuracy with its interval over sets, widened for the choice of training sets.

    Of k folds the variance of the mean is (1/k + 1/(k − 1)) times that of a fold's accuracy, and
    not 1/k times it, because training sets overlap. Source: Nadeau and Bengio, Inference for
    the Generalization Error, Machine Learning 2003, equation 8. So either side of the interval is
    √(1 + k/(k − 1)) times as long: with five folds, half as long again.
    """
    correct = (predicted == np.arange(len(choice))[:, None]).mean(axis=0)[None]
    interval = estimate(correct, np.ones_like(correct))
    value, low, high = (float(part[0]) for part in (interval.value, interval.low, interval.high))
    number = int(folds.max()) + 1
    wider = (1 + number / (number - 1)) ** 0.5
    low, high = max(value - wider * (value - low), 0.0), min(value + wider * (high - value), 1.0)
    return Accuracy(
        intents=choice,
        chance=round(1 / len(choice), 6),
        accuracy=Estimate(
            value=round_number(value),
            n=len(folds),
            interval=(round_number(low), round_number(high)),
            method=f"{METHOD}, widened for the choice of training sets",
        ),
    )


def _find_telling_words(
    vocabulary: Sequence[str], features: Any, intents: Sequence[Intent]
) -> tuple[TellingWord, ...]:
    """Return the words that speak most for each intent, in a classifier of all sets.

    A word that speaks for an intent occurs more often in its prompts than in those of any other.
    """
    sets = features.shape[0] // len(CORE_VARIANTS)
    starts = [CORE_VARIANTS.index(intent) * sets for intent in intents]
    rows = np.concatenate([start + np.arange(sets) for start in starts])
    model = _make_classifier().fit(features[rows], np.repeat(np.arange(len(intents)), sets))
    in_sets = np.vstack([features[start : start + sets].sum(axis=0) for start in starts])
    counts = np.asarray(in_sets, np.int64)
    often = counts.max(axis=0) >= max(_FEWEST_FOR_ARTEFACTS, _LEAST_SHARE * sets)
    telling = []
    for index, intent in enumerate(intents):
        # of two classes, one regression tells the second from the first
        weights = (
            model.estimators_[index].coef_[0]
            if len(intents) > 2
            else model.estimators_[0].coef_[0] * (1 if index else -1)
        )
        most_elsewhere = np.delete(counts, index, axis=0).max(axis=0)
        indices = np.flatnonzero(often & (weights > 0) & (counts[index] > most_elsewhere))
        ordered = sorted(
            indices.tolist(),
            key=lambda column: (-round(float(weights[column]), 6), vocabulary[column]),
        )
        for column in ordered[:_WORDS]:
            count = dict(zip(intents, counts[:, column].tolist(), strict=True))
            telling.append(
                TellingWord(
                    intent=intent,
                    word=vocabulary[column],
                    weight=round(float(weights[column]), 6),
                    benign=count["benign"],
                    dual_use=count.get(DUAL_USE),
                    malicious=count["malicious"],
                )
            )
    return tuple(telling)


Measure = Literal["words", "characters", "readability"]
Compared = Literal["two sets of one cell", "core prompts of a set", "dual-use wordings of a set"]


_Group = Literal["cells", "harm domains", "task types"]


class Balance(msgspec.Struct, frozen=True, kw_only=True):
    """How equally the prompt-sets are spread over one kind of group."""

    of: _Group
    groups: int
    """Of the taxonomy, the empty ones included; cells that can have prompt-sets (`Dataset.cells`).
    """
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
    interval holds for the pairs of intents at once.
    """
    standardised: float | None
    """Mean over the standard deviation of the differences (Cohen's d_z)."""
    greater: float | None
    less: float | None
    """Shares of the sets in which the first is greater, and in which it is less."""
    p_unadjusted: float | None
    """Two-sided, of a zero mean; of this pair on its own."""
    p_adjusted: float | None
    """For the pairs of intents: below 0.05 if the interval leaves 0 out."""
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
    """One line for each control; `report.datasets` writes them."""
    left_out: tuple[str, ...]
    """Checks that were not made, with reasons."""
    balance: tuple[Balance, ...]
    differences: tuple[IntentDifference, ...]
    classifier: tuple[Accuracy, ...]
    """Among all three intents first, then for each two, of the sets that have them; empty if left
    out.
    """
    words: tuple[TellingWord, ...]
    similarity: tuple[Similarity, ...]
    families: int
    """Families that the prompt-sets name."""
    like_families: tuple[tuple[str, ...], ...]
    """Ids of sets whose dual-use prompts, or benign ones of pairs, are near-duplicates and that
    name no common family, by group.
    """
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
    classifier, words, problem = find_artefacts(prompt_sets, seed)
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
        balance=count_balance(dataset),
        differences=compare_intents(prompt_sets),
        classifier=classifier,
        words=words,
        similarity=measure_similarity(prompt_sets),
        families=len({item.family for item in prompt_sets if item.family is not None}),
        like_families=find_like_families(prompt_sets),
        content_shift=shifts,
    )


def count_balance(dataset: Dataset) -> tuple[Balance, ...]:
    """Count the prompt-sets by cell, harm domain and task type, of those that have the label; what
    no set has is left out.
    """
    taxonomy, sets = dataset.taxonomy, dataset.prompt_sets
    counted: tuple[tuple[_Group, Sequence[Hashable], list[Hashable]], ...] = (
        ("cells", dataset.cells, [item.cell for item in sets if all(item.cell)]),
        ("harm domains", taxonomy.domain_names, [item.cell[0] for item in sets if item.cell[0]]),
        ("task types", taxonomy.type_names, [item.cell[1] for item in sets if item.cell[1]]),
    )
    return tuple(_measure_balance(*item) for item in counted if item[2])


def _measure_balance(
    of: _Group,
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
        most_share=round_number(max(counts) / total),
        evenness=round_number(entropy / log(len(counts))) if len(counts) > 1 else None,
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


def compare_intents(prompt_sets: Sequence[PromptSet]) -> tuple[IntentDifference, ...]:
    """Compare every two intents, set by set, in words, characters and readability.

    Args:
        prompt_sets: one or more.
    """
    spaced = [item for item in prompt_sets if has_spaces(item)]
    any_triplet = not all(item.is_pair for item in prompt_sets)
    compared = [pair for pair in _PAIRS if any_triplet or DUAL_USE not in pair]
    rows = []
    for measure, of in _MEASURES.items():
        counted = spaced if measure in _NEED_SPACES else prompt_sets
        for first, second in compared:
            differences = [
                of(prompts[first]) - of(prompts[second])
                for prompts in (item.prompts.by_intent() for item in counted)
                if first in prompts and second in prompts
            ]
            rows.append(
                _describe_difference(measure, (first, second), np.array(differences), len(compared))
            )
    return tuple(rows)


_DIGITS = 9
"""Decimals of a difference: further ones are errors of the machine's arithmetic."""


def _describe_difference(
    measure: Measure, intents: tuple[Intent, Intent], unrounded: Floats, pairs: int
) -> IntentDifference:
    """Describe the first of two intents minus the second, one of so many pairs; the differences
    have the shape (prompt_set,).
    """
    differences = np.round(unrounded, _DIGITS)
    n = len(differences)
    spread = float(differences.std(ddof=1)) if n > 1 else 0.0
    tested = run_mean_test(differences, pairs=pairs) if n > 1 else None
    return IntentDifference(
        measure=measure,
        first=intents[0],
        second=intents[1],
        mean=Estimate(
            value=round_number(differences.mean()) if n else None,
            n=n,
            interval=(round_number(tested.low), round_number(tested.high)) if tested else None,
        ),
        standardised=round_number(differences.mean() / spread) if spread else None,
        greater=round_number((differences > 0).mean()) if n else None,
        less=round_number((differences < 0).mean()) if n else None,
        p_unadjusted=round_number(tested.p_unadjusted) if tested else None,
        p_adjusted=round_number(tested.p_adjusted) if tested else None,
        minimum_detectable_difference=(
            round_number(tested.minimum_detectable_difference) if tested and spread else None
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


def measure_similarity(prompt_sets: Sequence[PromptSet]) -> tuple[Similarity, ...]:
    """Return how alike prompts of two sets of a cell are, and prompts of one set.

    ROUGE-L compares words between white space, so sets in scripts without it are left out.
    """
    spaced = [item for item in prompt_sets if has_spaces(item)]
    pairs_alone = all(item.is_pair for item in prompt_sets)
    wordings = _compare_within_sets("dual-use wordings of a set", spaced, is_dual_use)
    return (
        _compare_sets([ComparedSet(item.id, item.cell, item.wordings()) for item in spaced]),
        _compare_within_sets(
            "core prompts of a set", spaced, lambda variant: variant in CORE_VARIANTS
        ),
        *(() if pairs_alone else (wordings,)),
    )


def find_like_families(prompt_sets: Sequence[PromptSet]) -> tuple[tuple[str, ...], ...]:
    """Return the ids of sets that look like a family, by group: the dual-use prompt of each, or the
    benign one of a pair, is too similar to that of another one, in any cell. Sets that name one
    family are left out, and sets without spaces between words.
    """
    family = {item.id: item.family for item in prompt_sets if has_spaces(item)}
    items = [
        ComparedSet(item.id, "", {DUAL_USE: item.prompts.dual_use or item.prompts.benign})
        for item in prompt_sets
        if item.id in family
    ]
    group = {item.id: {item.id} for item in items}
    for pair in _list_pairs_above(items, PAPER_THRESHOLD):
        first, second = group[pair.first_id], group[pair.second_id]
        named = family[pair.first_id]
        if first is not second and (named is None or named != family[pair.second_id]):
            first |= second
            group.update(dict.fromkeys(second, first))
    groups = {tuple(sorted(members)) for members in group.values() if len(members) > 1}
    return tuple(sorted(groups))


def _compare_sets(items: Sequence[ComparedSet]) -> Similarity:
    alike = _list_pairs_above(items, PAPER_THRESHOLD)
    nearest = alike or next(
        filter(None, (_list_pairs_above(items, limit) for limit in _THRESHOLDS[1:])), []
    )
    sets = len({(pair.first_id, pair.second_id) for pair in alike})
    return _describe_similarity("two sets of one cell", pairs_compared(items), None, sets, nearest)


def _list_pairs_above(items: Sequence[ComparedSet], limit: Fraction) -> list[_Pair]:
    return [
        _Pair(
            -round_number(match.overlap.score),
            match.duplicate,
            later,
            match.duplicate_variant,
            match.variant,
        )
        for later, match in similar_pairs(items, Threshold.of(limit))
    ]


def _compare_within_sets(
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
            alike += any(map(limit.is_met, overlaps.values()))
            pairs += [
                _Pair(-round_number(match.score), item.id, item.id, *variants)
                for variants, match in overlaps.items()
            ]
    return _describe_similarity(
        prompts, len(means), round_number(mean(means)) if means else None, alike, pairs
    )


def _describe_similarity(
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
