"""Similarity is exact: against plain dynamic programming, at ties, at any scale, between different
sets only.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from fractions import Fraction
from itertools import combinations

import pytest
from hypothesis import given, settings, strategies as st

from opensafeintent.construction.similarity import (
    CellIndex,
    ComparedSet,
    IndexEntry,
    Match,
    Overlap,
    Threshold,
    duplicates,
    overlap,
    similar_pairs,
    words,
)
from opensafeintent.errors import InputError
from opensafeintent.taxonomy import CORE_VARIANTS

CELL = ("Cyber Compromise", "Explanation")


def plain_lcs(first: Sequence[str], second: Sequence[str]) -> int:
    """The textbook table, a row at a time: what everything here is compared with."""
    row = [0] * (len(second) + 1)
    for word in first:
        previous = row
        row = [0]
        for place, candidate in enumerate(second):
            longest = max(previous[place + 1], row[place])
            row.append(previous[place] + 1 if word == candidate else longest)
    return row[-1]


def plain_overlap(text: str, second: str) -> Overlap:
    first_words, second_words = words(text), words(second)
    return Overlap(plain_lcs(first_words, second_words), len(first_words), len(second_words))


def text_of(common: int, own_word: str, length: int) -> str:
    """`length` words: the first `common` are those of every such text, the rest belong to `own_word`
    alone.
    """
    words = [f"shared{n}" for n in range(common)] + [
        f"{own_word}{n}" for n in range(length - common)
    ]
    return " ".join(words)


def item(set_id: str, *texts: str, cell: object = CELL) -> ComparedSet:
    return ComparedSet(set_id, cell, {f"v{n}": text for n, text in enumerate(texts)})


def triplet(set_id: str, *texts: str, **paraphrases: str) -> ComparedSet:
    return ComparedSet(set_id, CELL, dict(zip(CORE_VARIANTS, texts, strict=True)) | paraphrases)


WORDS = [
    *("a", "a", "b", "c", "d", "E", "e!", "the", "don't", "x-ray", "…", "?!", "«naïve»", "ﬁre", "İ")
]
TEXTS = st.lists(st.sampled_from(WORDS), max_size=14).map(" ".join)
"""Short texts of few words, many of them repeated, some nothing but punctuation."""
THRESHOLDS = st.builds(
    lambda top, excess, inclusive: Threshold(Fraction(top, top + excess), inclusive),
    *(st.integers(1, 12), st.integers(1, 12), st.booleans()),
)


# words and scores
# ------------------------------------------------------------------------------


def test_words_are_lower_case_without_ascii_punctuation() -> None:
    assert words("Don't STOP, x-ray\tthe\n(thing)!") == ["dont", "stop", "xray", "the", "thing"]
    assert words("“Quoted” — naïve…") == ["“quoted”", "—", "naïve…"]
    assert words("one\u00a0two\u3000three") == ["one", "two", "three"]  # Unicode's white space
    assert words("") == words(" \n ") == words("?! -- ... ''") == []


def test_a_score_by_hand() -> None:
    # police killed the gunman / police kill the gunman: LCS "police the gunman" = 3 of 4 and 4
    # words, F1 = 6/8 (the worked example of Lin 2004, "ROUGE: A Package for Automatic Evaluation of
    # Summaries", section 3.1)
    assert overlap("Police killed the gunman.", "police kill the gunman") == Overlap(3, 4, 4)
    assert overlap("Police killed the gunman.", "police kill the gunman").score == 0.75
    # "the gunman kill police" keeps only two words in order: "the gunman", F1 = 4/8 (the same
    # example)
    assert overlap("police killed the gunman", "the gunman kill police").score == 0.5


def test_a_text_without_words_is_like_nothing() -> None:
    for first, second in (("", ""), ("?!", "?!"), ("", "a word"), ("...", "a word")):
        assert overlap(first, second).score == 0
        assert not Threshold.of("0.000001", inclusive=True).is_met(overlap(first, second))


@pytest.mark.slow
@given(st.one_of(TEXTS, st.text(max_size=40)), st.one_of(TEXTS, st.text(max_size=40)))
def test_overlap_is_that_of_the_plain_table(first: str, second: str) -> None:
    assert overlap(first, second) == plain_overlap(first, second)


# ties
# ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("common", "first_length", "second_length"),
    [
        *((7 * n // 10, n, n) for n in (10, 20, 30, 50, 70, 1000)),
        *((7, 9, 11), (7, 8, 12), (14, 17, 23), (21, 22, 38)),
    ],
)
def test_a_tie_at_the_threshold_is_kept_above_and_dropped_at(
    common: int, first_length: int, second_length: int
) -> None:
    # 2 · common / (one + other) is 7/10 exactly, which no float holds
    first, second = text_of(common, "one", first_length), text_of(common, "two", second_length)
    tie, above_tie, fewer = (
        Overlap(common + change, first_length, second_length) for change in (0, 1, -1)
    )
    assert overlap(first, second) == tie
    above, at = Threshold.of(0.7), Threshold.of(0.7, inclusive=True)
    assert [above.is_met(pair) for pair in (fewer, tie, above_tie)] == [False, False, True]
    assert [at.is_met(pair) for pair in (fewer, tie, above_tie)] == [False, True, True]
    sets = [item("first", first), item("second", second)]
    assert [len(list(similar_pairs(sets, threshold))) for threshold in (above, at)] == [0, 1]
    assert duplicates(sets) == {}
    nearer = [text_of(common + 1, "one", first_length), text_of(common + 1, "two", second_length)]
    assert [*duplicates([item("first", nearer[0]), item("second", nearer[1])])] == ["second"]


def test_a_tie_of_joined_triplets_is_dropped_by_the_authors_rule_only() -> None:
    # the prompts of 10 words share 7, so each pair and the joined triplets (21 of 30) score 7/10
    # exactly
    first, second = (
        triplet(name, *(text_of(7, f"{name}{part}", 10).replace("shared", part) for part in "bdm"))
        for name in ("first", "second")
    )
    assert duplicates([first, second], rule="paper") == {}
    rejected = duplicates([first, second], rule="authors")
    assert rejected["second"].overlap == Overlap(21, 30, 30)
    assert rejected["second"].prompt == "\n".join(second.texts.values())


@given(THRESHOLDS, TEXTS, TEXTS)
def test_decisions_are_those_of_exact_fractions(
    threshold: Threshold, first: str, second: str
) -> None:
    pair = overlap(first, second)
    total = pair.words + pair.other_words
    score = Fraction(2 * pair.lcs, total) if total else Fraction(0)
    at_limit = threshold.inclusive and score == threshold.limit
    assert threshold.is_met(pair) == (score > threshold.limit or at_limit)


def test_a_threshold_is_what_is_written_and_above_0_and_below_1() -> None:
    for written in ("0.7", 0.7, Fraction(7, 10), ".70", "7e-1"):
        assert Threshold.of(written).limit == Fraction(7, 10)
    numbers = ("0", 0.0, "-0.1", "1.01", 7, "1e999999999", "1e-999999999")
    for written in (*numbers, "nan", "inf", "high", "", "7/0"):
        with pytest.raises(InputError, match="expected a number above 0 and below 1"):
            Threshold.of(written)


def test_the_threshold_one_finds_equal_texts_or_nothing() -> None:
    with pytest.raises(InputError, match="threshold 1: expected"):
        Threshold.of(1)
    texts = {"first": "Equal words", "second": "equal, words!", "third": "equal words too"}
    sets = [item(name, text) for name, text in texts.items()]
    pairs = similar_pairs(sets, Threshold.of(1, inclusive=True))
    assert [owner for owner, _ in pairs] == ["second"]


# the join
# ------------------------------------------------------------------------------


def plain_pairs(sets: Sequence[ComparedSet], threshold: Threshold) -> list[tuple[str, Match]]:
    """Every pair, one by one."""
    pairs = []
    for earlier_set, later_set in combinations(sets, 2):
        for variant, text in earlier_set.texts.items():
            for later, later_text in later_set.texts.items():
                pair = plain_overlap(later_text, text)
                if earlier_set.cell == later_set.cell and threshold.is_met(pair):
                    duplicate = IndexEntry(earlier_set.id, variant, text)
                    pairs.append(
                        (later_set.id, Match.from_overlap(later, later_text, duplicate, pair))
                    )
    return pairs


def plain_duplicates(sets: Sequence[ComparedSet], threshold: Threshold) -> dict[str, Match]:
    kept: list[ComparedSet] = []
    dropped: dict[str, Match] = {}
    for candidate in sets:
        pairs = plain_pairs([*kept, candidate], threshold)
        matches = [match for owner, match in pairs if owner == candidate.id]
        if matches:
            # the highest; of equal ones the earliest set's first prompt, then the first of the
            # candidate's
            dropped[candidate.id] = max(matches, key=lambda match: match.overlap.score)
        else:
            kept.append(candidate)
    return dropped


def assert_all_pairs(sets: Sequence[ComparedSet], threshold: Threshold) -> None:
    pairs = sorted(similar_pairs(sets, threshold), key=repr)
    assert pairs == sorted(plain_pairs(sets, threshold), key=repr)


LIMITS = st.sampled_from(["0.5", "0.7", "0.9"]).map(Threshold.of)
SETS = st.lists(
    st.tuples(st.sampled_from("PQ"), st.lists(TEXTS, min_size=1, max_size=3)), max_size=9
).map(lambda drawn: [item(f"set{n}", *texts, cell=cell) for n, (cell, texts) in enumerate(drawn)])


@given(SETS, THRESHOLDS)
def test_the_join_finds_what_every_pair_shows(
    sets: list[ComparedSet], threshold: Threshold
) -> None:
    assert_all_pairs(sets, threshold)


def altered(generator: random.Random, base: Sequence[str], changes: int) -> list[str]:
    """Some words of `base` taken out, doubled, moved or exchanged."""
    changed = list(base)
    for _ in range(changes):
        place = generator.randrange(len(changed) or 1)
        word = changed.pop(place) if changed else "new"
        again = generator.choice(([], [word, word], [f"new{generator.randrange(50)}"]))
        changed[place:place] = again
        if not again:
            changed.insert(generator.randrange(len(changed) + 1), word)
    return changed


@pytest.mark.slow
@settings(max_examples=25)
@given(st.randoms(use_true_random=False), st.sampled_from([3, 30, 60, 120, 300, 700]), LIMITS)
def test_the_filter_loses_no_pair_of_any_length(
    generator: random.Random, length: int, limit: Threshold
) -> None:
    # variations of one text score all around the threshold, and texts of every length use every
    # fold of the parity sketch
    base = [f"word{generator.randrange(length)}" for _ in range(length)]
    sets = [
        item(f"set{n}", " ".join(altered(generator, base, generator.randrange(length))))
        for n in range(8 if length > 100 else 20)
    ]
    assert_all_pairs(sets, limit)


def test_many_prompts_are_compared_in_blocks_without_losing_any() -> None:
    # 3,000 texts in one cell; every tenth is followed, far behind, by a near-duplicate: 1 of its 20
    # words exchanged
    generator = random.Random(4)
    texts = [[f"w{generator.randrange(5000)}" for _ in range(20)] for _ in range(3000)]
    sets = [item(f"set{n}", " ".join(text)) for n, text in enumerate(texts)]
    tenth = range(0, 3000, 10)
    nearly = {n: " ".join([*texts[n][:7], "exchanged", *texts[n][8:]]) for n in tenth}
    sets += [item(f"late{n}", text) for n, text in nearly.items()]
    pairs = [(owner, match.duplicate) for owner, match in similar_pairs(sets, Threshold.of("0.7"))]
    assert sorted(pairs) == sorted((f"late{n}", f"set{n}") for n in tenth)


@pytest.mark.slow
def test_ten_thousand_equal_prompts_are_no_burden() -> None:
    texts = ("the same few words over and over", "and a second prompt")
    sets = [item(f"set{n}", *texts) for n in range(10_000)]
    began = time.process_time()
    rejected = duplicates(sets)
    assert len(rejected) == 9_999
    assert {match.duplicate for match in rejected.values()} == {"set0"}
    # 200 million pairs of sets; each is compared with the one that was kept
    assert time.process_time() - began < 10


# dropping sets
# ------------------------------------------------------------------------------


@given(SETS, THRESHOLDS.filter(lambda threshold: not threshold.inclusive))
def test_duplicates_are_those_found_one_by_one(
    sets: list[ComparedSet], threshold: Threshold
) -> None:
    assert duplicates(sets, threshold.limit) == plain_duplicates(sets, threshold)


def test_a_set_is_compared_with_kept_ones_only() -> None:
    # of 10 words, B shares 8 with A (0.8) and with C (0.8), A and C share 6 (0.6): B goes, so C has
    # no duplicate left
    a = "s0 s1 s2 s3 s4 s5 ab0 ab1 a0 a1"
    b = "s0 s1 s2 s3 s4 s5 ab0 ab1 bc0 bc1"
    c = "s0 s1 s2 s3 s4 s5 c0 c1 bc0 bc1"
    assert [overlap(*pair).score for pair in ((a, b), (b, c), (a, c))] == [0.8, 0.8, 0.6]
    assert [*duplicates([item("A", a), item("B", b), item("C", c)])] == ["B"]
    assert [*duplicates([item("B", b), item("A", a), item("C", c)])] == ["A", "C"]


def test_the_twin_is_the_most_similar_then_the_earliest() -> None:
    asked = text_of(10, "", 10)
    ten = {name: text_of(common, name, 10) for name, common in (("x", 8), ("y", 9), ("z", 9))}
    index = CellIndex(Threshold.of("0.7"))
    for name, text in ten.items():
        index.add(name, {"benign": text, "malicious": "nothing alike"})
    match = index.admit("new", {"dual_use": "quite another thing", "benign": asked})
    duplicate = IndexEntry("y", "benign", ten["y"])
    assert match == Match.from_overlap("benign", asked, duplicate, Overlap(9, 10, 10))
    assert match.overlap.score == 0.9
    assert index.admit("again", {"benign": asked}) == match  # what is refused is not added


def test_paraphrases_count_by_the_papers_rule_and_not_by_the_authors() -> None:
    wording = "a wording of the very same thing"
    first = triplet("one", "a b", "e f", "i j", dual_use_paraphrase_1=wording)
    second = triplet("two", "m n", "q r", "u v", dual_use_paraphrase_1=wording)
    assert duplicates([first, second])["two"].variant == "dual_use_paraphrase_1"
    assert duplicates([first, second], rule="authors") == {}
