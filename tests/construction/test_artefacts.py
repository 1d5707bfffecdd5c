"""Words that give the intent away: a planted one is found, and without one the classifier is at
chance.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable

import numpy as np
import pytest

from construction.support import a_dataset, a_set
from opensafeintent.construction import controls as artefacts
from opensafeintent.construction.controls import NEEDS_EXTRA, draw_folds, tokens
from opensafeintent.promptsets import Dataset
from opensafeintent.report.datasets import check
from opensafeintent.statistics import Estimate, estimate
from opensafeintent.taxonomy import CORE_VARIANTS

COMMON = [f"word{n}" for n in range(40)]


def written_sets(
    count: int, text: Callable[[random.Random, int, str], str], seed: int = 11
) -> Dataset:
    """Make sets whose prompts `text` writes from chance, the set's number and the intent."""
    chance = random.Random(seed)
    return a_dataset(
        a_set(f"s{n:03}", *(text(chance, n, intent) for intent in CORE_VARIANTS))
        for n in range(count)
    )


def plain(chance: random.Random, number: int, intent: str) -> str:
    """Ten common words, whatever the intent."""
    del number, intent
    return " ".join(chance.sample(COMMON, 10))


def planted(chance: random.Random, number: int, intent: str) -> str:
    """The same, and one word in nine of ten malicious prompts."""
    marked = intent == "malicious" and number % 10
    return plain(chance, number, intent) + (" Zounds!" if marked else "")


def of_topic(chance: random.Random, number: int, intent: str) -> str:
    """Words of the set's own topic, which two sets share, so that they are in the vocabulary."""
    topic = number // 2
    return f"topic{topic} thing{topic} place{topic} {plain(chance, number, intent)}"


def assert_at_chance(accuracy: Estimate) -> None:
    assert accuracy.interval is not None
    low, high = accuracy.interval
    assert low < 1 / 3 < high


def test_without_telling_words_the_classifier_is_at_chance() -> None:
    three, *pairs = check(written_sets(150, plain), 1).classifier
    assert (three.intents, three.chance) == (CORE_VARIANTS, 0.333333)
    assert_at_chance(three.accuracy)
    benign, dual_use, malicious = CORE_VARIANTS
    expected = [(benign, malicious), (benign, dual_use), (dual_use, malicious)]
    assert [(pair.intents, pair.chance) for pair in pairs] == [(pair, 0.5) for pair in expected]
    assert all(pair.accuracy.value == pytest.approx(0.5, abs=0.1) for pair in pairs)


def test_a_planted_word_is_found_and_counted() -> None:
    measured = check(written_sets(150, planted), 1)
    three, benign_malicious, benign_dual_use, dual_use_malicious = (
        row.accuracy for row in measured.classifier
    )
    # The word is in 135 malicious prompts. "Malicious where it is" is right in (135 + 150)/300 = 95
    # % of two intents; of three, with benign or dual-use guessed where it is not, in (135 +
    # 150)/450 = 63 %.
    assert benign_malicious.value == pytest.approx(0.95, abs=0.05)
    assert measured.lexical_leakage == benign_malicious
    assert dual_use_malicious.value == pytest.approx(0.95, abs=0.05)
    assert three.value == pytest.approx(0.63, abs=0.06)
    assert three.low is not None and three.low > 1 / 3
    assert benign_dual_use.value == pytest.approx(0.5, abs=0.1)
    first = next(word for word in measured.words if word.intent == "malicious")
    assert (first.word, first.benign, first.dual_use, first.malicious) == ("zounds", 0, 0, 135)
    assert first.weight > 2 * max(word.weight for word in measured.words if word.word != "zounds")


def test_the_interval_holds_the_choice_of_what_is_learned_from() -> None:
    """Of 40 sets both prompts are told in 30, and one of the two in 10: 35 of 40. With five folds
    an interval is √(1 + 5/4) = 1.5 times as long on either side as that over sets."""
    right = np.array([[0] * 40, [1] * 30 + [0] * 10])

    def accuracy(predicted: artefacts.Ints, folds: int) -> Estimate:
        return artefacts._estimate_accuracy(
            ("benign", "malicious"), predicted, np.arange(40) % folds
        ).accuracy

    plain = estimate((right == [[0], [1]]).mean(axis=0)[None], np.ones((1, 40)))
    below, above = 0.875 - plain.low[0], plain.high[0] - 0.875
    measured = accuracy(right, 5)
    assert measured.value == 0.875
    assert measured.interval == pytest.approx((0.875 - 1.5 * below, 0.875 + 1.5 * above), abs=1e-5)
    assert accuracy(right, 2).low == pytest.approx(0.875 - 3**0.5 * below, abs=1e-5)  # √(1 + 2/1)
    sure = accuracy(np.repeat([[0], [1]], 40, axis=1), 5)
    assert (sure.value, sure.high) == (1.0, 1.0)
    assert sure.low is not None and sure.low < 1


def test_prompts_of_one_set_are_never_on_both_sides() -> None:
    # Every two sets have a topic, and words of it in all their prompts. Were prompts dealt out one
    # by one, a prompt's topic would be known mostly from prompts of the other intents: the
    # classifier would learn that it is one of those, and be right in 23 % of them, far below
    # chance. With whole sets held out it is at chance.
    assert_at_chance(check(written_sets(120, of_topic), 1).classifier[0].accuracy)
    folds = draw_folds(23, 5)
    assert folds.shape == (23,)  # one fold for a set, whatever the prompt
    assert sorted(folds.tolist().count(fold) for fold in range(5)) == [4, 4, 5, 5, 5]
    assert folds.tolist() == draw_folds(23, 5).tolist() != draw_folds(23, 6).tolist()
    assert sorted(draw_folds(3, 0).tolist()) == [0, 1, 2]  # no more folds than sets


@pytest.mark.parametrize("sets", [1, 2])
def test_no_shared_word_leaves_the_control_out(sets: int) -> None:
    pair = [a_set("a", "one", "two", "two"), a_set("b", "four", "five", "six")]
    measured = check(a_dataset(pair[:sets]))
    assert (measured.classifier, measured.words, measured.lexical_leakage) == ((), (), None)
    assert "no word occurs in two prompt-sets" in measured.left_out[0]


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        (("Don’t stop", "don't STOP!", "«Stop»"), {"don't", "stop"}),
        (("well-known", "well known", "known, well"), {"well", "known"}),
        (("ﬁne", "FINE", "fine"), {"fine"}),  # a ligature
        (("किताब", "किताब।", "किताब"), {"किताब"}),  # vowel signs belong to the word
        (("нож", "Нож?", "НОЖ"), {"нож"}),
        (("天气好", "天气好", "天气好"), {"天气", "气好"}),
        (("...", "!!", "—"), set()),
    ],
)
def test_what_is_a_word(texts: tuple[str, str, str], words: set[str]) -> None:
    assert set().union(*map(tokens, texts)) == words


def test_without_the_extra_the_rest_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn", None)
    measured = check(written_sets(20, planted))
    assert (measured.classifier, measured.left_out) == ((), (NEEDS_EXTRA,))
    assert measured.differences[0].mean.n == 20
