"""Words that give the intent away: a planted one is found, and without one the classifier is at
chance.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable

import numpy as np
import pytest

from construction.control_sets import a_dataset, a_set
from opensafeintent.construction.controls.artefacts import NEEDS_EXTRA, _accuracy, folds_of
from opensafeintent.construction.controls.findings import check
from opensafeintent.construction.controls.records import Artefacts
from opensafeintent.promptsets import Dataset
from opensafeintent.statistics import Resamples, estimate

COMMON = [f"word{n}" for n in range(40)]


def made(count: int, text: Callable[[random.Random, int, str], str], seed: int = 11) -> Dataset:
    """Make sets whose prompts `text` writes from a source of chance, the set's number and the
    intent.
    """
    chance = random.Random(seed)
    return a_dataset(
        a_set(
            f"s{n:03}", *(text(chance, n, intent) for intent in ("benign", "dual_use", "malicious"))
        )
        for n in range(count)
    )


def plain(chance: random.Random, number: int, intent: str) -> str:
    """Ten common words, whatever the intent."""
    del number, intent
    return " ".join(chance.sample(COMMON, 10))


def planted(chance: random.Random, number: int, intent: str) -> str:
    """The same, and one word in nine of ten malicious prompts."""
    told = intent == "malicious" and number % 10
    return plain(chance, number, intent) + (" Zounds!" if told else "")


def of_topic(chance: random.Random, number: int, intent: str) -> str:
    """Words of the set's own topic, which two sets share, so that they are in the vocabulary."""
    return (
        f"topic{number // 2} thing{number // 2} place{number // 2} {plain(chance, number, intent)}"
    )


def artefacts_in(dataset: Dataset, seed: int = 1) -> Artefacts:
    found = check(dataset, seed).artefacts
    assert found is not None
    return found


def test_without_telling_words_the_classifier_is_at_chance() -> None:
    three, *pairs = artefacts_in(made(150, plain)).accuracies
    assert three.intents == ("benign", "dual_use", "malicious")
    assert three.chance == 0.333333
    assert three.low < 1 / 3 < three.high
    assert [(pair.intents, pair.chance) for pair in pairs] == [
        (("benign", "malicious"), 0.5),
        (("benign", "dual_use"), 0.5),
        (("dual_use", "malicious"), 0.5),
    ]
    assert all(pair.value == pytest.approx(0.5, abs=0.1) for pair in pairs)


def test_chance_is_said_to_be_chance() -> None:
    (said,) = [
        line
        for line in check(made(150, plain), 1).findings
        if line.startswith("From its words alone")
    ]
    assert "; chance is 33 %, which it does not clearly exceed)" in said


def test_a_planted_word_is_found_and_counted() -> None:
    found = artefacts_in(made(150, planted))
    three, benign_malicious, benign_dual_use, dual_use_malicious = found.accuracies
    # The word is in 135 malicious prompts. "Malicious where it is" is right in (135 + 150)/300 = 95
    # % of two intents; of three, with benign or dual-use guessed where it is not, in (135 +
    # 150)/450 = 63 %.
    assert benign_malicious.value == pytest.approx(0.95, abs=0.05)
    assert dual_use_malicious.value == pytest.approx(0.95, abs=0.05)
    assert three.value == pytest.approx(0.63, abs=0.06)
    assert three.low > 1 / 3
    assert benign_dual_use.value == pytest.approx(0.5, abs=0.1)
    first = next(word for word in found.words if word.intent == "malicious")
    assert (first.word, first.benign, first.dual_use, first.malicious) == ("zounds", 0, 0, 135)
    assert first.weight > 2 * max(word.weight for word in found.words if word.word != "zounds")


def test_confusion_counts_every_prompt_once() -> None:
    found = artefacts_in(made(60, planted))
    assert len(found.confusion) == 9
    for intent in ("benign", "dual_use", "malicious"):
        assert sum(item.prompts for item in found.confusion if item.intent == intent) == 60
    right = sum(item.prompts for item in found.confusion if item.intent == item.taken_for)
    assert found.accuracies[0].value == pytest.approx(right / 180, abs=1e-6)


def test_the_interval_holds_the_choice_of_what_is_learned_from() -> None:
    """Of 40 sets both prompts are told in 30, and one of the two in 10: 35 of 40. With five folds
    an interval is √(1 + 5/4) = 1.5 times as long on either side as that over sets."""
    right = np.array([[0] * 40, [1] * 30 + [0] * 10])
    resamples = Resamples(40, seed=1)
    plain = estimate((right == [[0], [1]]).mean(axis=0)[None], np.ones((1, 40)), resamples)
    found = _accuracy(("benign", "malicious"), right, np.arange(40) % 5, resamples)
    assert found.value == 0.875
    assert found.value - found.low == pytest.approx(1.5 * (0.875 - plain.low[0]), abs=1e-5)
    assert found.high - found.value == pytest.approx(1.5 * (plain.high[0] - 0.875), abs=1e-5)
    two = _accuracy(("benign", "malicious"), right, np.arange(40) % 2, resamples)  # √(1 + 2/1)
    assert found.value - found.low == pytest.approx(1.5 / 3**0.5 * (two.value - two.low), abs=1e-5)
    sure = _accuracy(
        ("benign", "malicious"), np.repeat([[0], [1]], 40, axis=1), np.arange(40) % 5, resamples
    )
    assert (sure.value, sure.high) == (1.0, 1.0)
    assert sure.low < 1


def test_prompts_of_one_set_are_never_on_both_sides() -> None:
    # Every two sets have a topic, and words of it in all their prompts. Were prompts dealt out one
    # by one, a prompt's topic would be known mostly from prompts of the other intents: the
    # classifier would learn that it is one of those, and be right in 23 % of them, far below
    # chance. With whole sets held out it is at chance.
    three = artefacts_in(made(120, of_topic)).accuracies[0]
    assert three.low < 1 / 3 < three.high
    folds = folds_of(23, 5)
    assert folds.shape == (23,)  # one fold for a set, whatever the prompt
    assert sorted(folds.tolist().count(fold) for fold in range(5)) == [4, 4, 5, 5, 5]
    assert folds.tolist() == folds_of(23, 5).tolist() != folds_of(23, 6).tolist()
    assert sorted(folds_of(3, 0).tolist()) == [0, 1, 2]  # no more folds than sets


def test_a_word_of_one_set_is_no_word_of_the_vocabulary() -> None:
    # `alpha` is in three prompts of one set, `beta` in two sets.
    sets = [a_set("a", "alpha beta", "alpha", "alpha"), a_set("b", "beta", "gamma", "delta")]
    assert artefacts_in(a_dataset(sets)).vocabulary == 1


def test_no_shared_word_leaves_the_control_out() -> None:
    found = check(a_dataset([a_set("a", "one", "two", "three"), a_set("b", "four", "five", "six")]))
    assert found.artefacts is None
    assert found.left_out == ("words that give the intent away: no word occurs in two prompt-sets",)


def test_two_sets_are_enough_to_try() -> None:
    found = artefacts_in(
        a_dataset(
            [a_set("a", "go well", "go", "go badly"), a_set("b", "do well", "go", "do badly")]
        )
    )
    assert found.folds == 2
    assert found.accuracies[0].low < found.accuracies[0].high


@pytest.mark.parametrize(
    ("texts", "vocabulary"),
    [
        (
            ("Don’t stop", "don't STOP!", "«Stop»"),
            2,
        ),  # don't, stop: either apostrophe, any case and marks
        (("well-known", "well known", "known, well"), 2),
        (("ﬁne", "FINE", "fine"), 1),  # a ligature
        (("किताब", "किताब।", "किताब"), 1),  # vowel signs belong to the word
        (("нож", "Нож?", "НОЖ"), 1),
        (("天气好", "天气好", "天气好"), 2),  # 天气, 气好
        (("...", "!!", "—"), None),
    ],
)
def test_what_is_a_word(texts: tuple[str, str, str], vocabulary: int | None) -> None:
    found = check(a_dataset([a_set("a", *texts), a_set("b", *texts)])).artefacts
    assert (found.vocabulary if found else None) == vocabulary


def test_without_the_extra_the_rest_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn", None)
    found = check(made(20, planted))
    assert found.artefacts is None
    assert found.left_out == (NEEDS_EXTRA,)
    assert 'pip install "opensafeintent[check]"' in NEEDS_EXTRA
    assert found.parity[0].pairs[0].n == 20
    assert len(found.findings) == 6  # balance, three measures, near-duplicates, core prompts
