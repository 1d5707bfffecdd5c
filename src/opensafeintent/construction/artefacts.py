"""Predictive words: how well words alone distinguish the intents of a dataset, and which do.

A bag-of-words logistic regression is cross-validated with whole prompt-sets kept together. The
prompts of a set share their topic: with a set on both sides, the classifier would be tested on
known topics. A prompt has to express its intent, so accuracy is above chance in good sets too.
The predictive words show whether it rests on the request itself or on a stylistic artefact
(Gururangan et al., Annotation Artifacts in Natural Language Inference Data, NAACL 2018, of
classifiers that see half of the input).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from opensafeintent.construction.text_measures import tokens
from opensafeintent.errors import install_extra
from opensafeintent.promptsets import PromptSet
from opensafeintent.statistics import (
    Estimate,
    estimate,
    rounded,
)
from opensafeintent.statistics.intervals import METHOD
from opensafeintent.taxonomy import CORE_VARIANTS, Intent


class Accuracy(msgspec.Struct, frozen=True, kw_only=True):
    """How often words alone give the intent away, on prompt-sets that the classifier has not
    seen.
    """

    intents: tuple[Intent, ...]
    """The intents to choose from."""
    chance: float
    accuracy: Estimate
    """Interval over prompt-sets, those to learn from among them (`docs/check-a-dataset.md`)."""


class TellingWord(msgspec.Struct, frozen=True, kw_only=True):
    """A word that speaks for one intent, with the number of sets in whose prompt of each intent it
    occurs.
    """

    intent: Intent
    word: str
    weight: float
    """In the logistic regression of this intent against the other two."""
    benign: int
    dual_use: int
    malicious: int


NEEDS_EXTRA = f"words that give the intent away: this needs an extra: {install_extra('check')}"

_FOLDS = 5
_CHOICES: tuple[tuple[Intent, ...], ...] = (
    CORE_VARIANTS,
    ("benign", "malicious"),
    ("benign", "dual_use"),
    ("dual_use", "malicious"),
)
_WORDS = 12
"""Predictive words listed for each intent."""
_FEWEST_FOR_ARTEFACTS = 3
_LEAST_SHARE = 0.01
"""A predictive word occurs in as many sets, and in this share of them: a rarer one predicts little.
"""

Ints = NDArray[np.int64]


def artefacts_of(
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
    vocabulary, features = _features(prompt_sets)
    if not vocabulary:
        return (), (), "words that give the intent away: no word occurs in two prompt-sets"
    folds = folds_of(len(prompt_sets), seed)
    accuracies = tuple(
        _accuracy(choice, _cross_validate(features, choice, folds), folds) for choice in _CHOICES
    )
    return accuracies, _telling_words(vocabulary, features, len(prompt_sets)), ""


def folds_of(sets: int, seed: int) -> Ints:
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


def _features(prompt_sets: Sequence[PromptSet]) -> tuple[list[str], Any]:
    """Return the words that occur in two sets or more, and which prompt has which.

    Returns:
        A sparse matrix of shape (intent × prompt_set, word): all benign prompts first, then
        dual-use, then malicious.
    """
    from scipy.sparse import csr_array

    tokens_of = [
        [tokens(prompt_set.prompts.of(intent)) for prompt_set in prompt_sets]
        for intent in CORE_VARIANTS
    ]
    sets = Counter(word for triplet in zip(*tokens_of, strict=True) for word in set.union(*triplet))
    vocabulary = sorted(word for word, count in sets.items() if count > 1)
    column_of = {word: number for number, word in enumerate(vocabulary)}
    rows = [
        sorted(column_of[word] for word in words if word in column_of)
        for of_intent in tokens_of
        for words in of_intent
    ]
    starts = np.cumsum([0, *map(len, rows)], dtype=np.int32)  # liblinear takes no wider indices
    columns = np.fromiter(
        (column for row in rows for column in row), dtype=np.int32, count=int(starts[-1])
    )
    return vocabulary, csr_array(
        (np.ones(len(columns)), columns, starts), shape=(len(rows), len(vocabulary))
    )


def _classifier() -> Any:
    """One-against-the-rest logistic regressions: liblinear is one thread and exact to the bit from
    run to run.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.multiclass import OneVsRestClassifier

    return OneVsRestClassifier(LogisticRegression(solver="liblinear", random_state=0))


def _cross_validate(features: Any, choice: Sequence[Intent], folds: Ints) -> Ints:
    """Return the class that a classifier gives each prompt without having seen its set.

    Args:
        features: shape (intent × prompt_set, word).
        choice: the intents to choose from; prompts of others are left out.
        folds: shape (prompt_set,).

    Returns:
        Positions in `choice`, of shape (intent of the choice, prompt_set).
    """
    from sklearn.model_selection import PredefinedSplit, cross_val_predict

    sets = len(folds)
    rows = np.concatenate(
        [CORE_VARIANTS.index(intent) * sets + np.arange(sets) for intent in choice]
    )
    predicted: Ints = cross_val_predict(
        _classifier(),
        features[rows],
        np.repeat(np.arange(len(choice)), sets),
        cv=PredefinedSplit(np.tile(folds, len(choice))),
    )
    return predicted.reshape(len(choice), sets)


def _accuracy(choice: tuple[Intent, ...], predicted: Ints, folds: Ints) -> Accuracy:
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
            value=rounded(value),
            n=len(folds),
            interval=(rounded(low), rounded(high)),
            method=f"{METHOD}, widened for the choice of training sets",
        ),
    )


def _telling_words(vocabulary: Sequence[str], features: Any, sets: int) -> tuple[TellingWord, ...]:
    """Return the words that speak most for each intent, in a classifier of all sets.

    A word that speaks for an intent occurs more often in its prompts than in those of either other.
    """
    model = _classifier().fit(features, np.repeat(np.arange(len(CORE_VARIANTS)), sets))
    starts = range(0, features.shape[0], sets)
    counts = np.array([features[start : start + sets].sum(axis=0) for start in starts], np.int64)
    often = counts.max(axis=0) >= max(_FEWEST_FOR_ARTEFACTS, _LEAST_SHARE * sets)
    telling = []
    for index, intent in enumerate(CORE_VARIANTS):
        weights = model.estimators_[index].coef_[0]
        most_elsewhere = np.delete(counts, index, axis=0).max(axis=0)
        indices = np.flatnonzero(often & (weights > 0) & (counts[index] > most_elsewhere))
        ordered = sorted(
            indices.tolist(),
            key=lambda column: (-round(float(weights[column]), 6), vocabulary[column]),
        )
        for column in ordered[:_WORDS]:
            benign, dual_use, malicious = counts[:, column].tolist()
            telling.append(
                TellingWord(
                    intent=intent,
                    word=vocabulary[column],
                    weight=round(float(weights[column]), 6),
                    benign=benign,
                    dual_use=dual_use,
                    malicious=malicious,
                )
            )
    return tuple(telling)
