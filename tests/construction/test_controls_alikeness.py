"""Near-duplicates between sets, and how alike the prompts of one set are."""

from __future__ import annotations

import pytest

from construction.control_sets import a_dataset, a_set
from opensafeintent.construction.controls.findings import check
from opensafeintent.construction.controls.records import Alike

ELSEWHERE = ("Fraud and Deception", "Planning and Procedure")


def alike(first: str, variant: str, second: str, other: str, score: float) -> Alike:
    return Alike(
        first_id=first, first_variant=variant, second_id=second, second_variant=other, score=score
    )


def test_near_duplicates_of_different_sets_in_one_cell() -> None:
    # `a b c d e` against `a b c d x`: LCS 4 of 5 and 5: 8/10 = 0.8. In another cell the same text
    # does not count.
    sets = [
        a_set("s1", "a b c d e", "f g h i j", "k l m n o"),
        a_set("s2", "p q r s t", "a b c d x", "u v w y z"),
        a_set("s3", "a b c d e", "1 2 3 4 5", "6 7 8 9 0", cell=ELSEWHERE),
    ]
    found = check(a_dataset(sets)).near_duplicates
    assert found.compared == 9  # 3 × 3 prompts of s1 and s2
    assert found.found == (alike("s1", "benign", "s2", "dual_use", 0.8),)
    assert found.highest == found.found[0]
    assert found.threshold == 0.7


def test_a_pair_of_sets_is_told_once_by_its_most_similar_prompts() -> None:
    # benign: LCS 4 of 5 and 5, 0.8; dual-use the same words, 1.0; malicious: nothing.
    sets = [a_set("s1", "a b c d e", "f g h i", "k l"), a_set("s2", "a b c d x", "f g h i", "m n")]
    found = check(a_dataset(sets)).near_duplicates
    assert found.found == (alike("s1", "dual_use", "s2", "dual_use", 1.0),)


def test_only_the_thousand_most_similar_pairs_are_listed() -> None:
    # 46 sets with the same benign prompt: 46 · 45 / 2 = 1,035 pairs.
    sets = [a_set(f"s{n:02}", "one and the same", f"left{n}", f"right{n}") for n in range(46)]
    found = check(a_dataset(sets)).near_duplicates
    assert (found.pairs, len(found.found)) == (1_035, 1_000)
    assert len({(pair.first_id, pair.second_id) for pair in found.found}) == 1_000


def test_a_tie_at_the_threshold_is_no_near_duplicate() -> None:
    # Ten words each, seven in common: 14/20 = 0.7, and not above it.
    sets = [
        a_set("s1", "a b c d e f g 1 2 3", "h", "i"),
        a_set("s2", "a b c d e f g 4 5 6", "j", "k"),
    ]
    found = check(a_dataset(sets))
    assert found.near_duplicates.found == ()
    assert found.near_duplicates.highest == alike("s1", "benign", "s2", "benign", 0.7)
    assert (
        "Near-duplicates: none; of 9 pairs of prompts of different sets in one cell none is above"
        " ROUGE-L 0.7 (the highest is 0.700)." in found.findings
    )


@pytest.mark.parametrize(
    ("other", "score"),
    [
        ("a b c w x y z", 6 / 14),  # 3 of 7 and 7
        ("a t u v w x y z", 2 / 15),  # 1 of 7 and 8
    ],
)
def test_the_highest_is_found_far_below_the_threshold(other: str, score: float) -> None:
    found = check(
        a_dataset([a_set("s1", "a b c d e f g", "h", "i"), a_set("s2", other, "j", "k")])
    ).near_duplicates
    assert found.found == ()
    assert found.highest == alike("s1", "benign", "s2", "benign", round(score, 6))


def test_no_word_in_common_has_no_highest() -> None:
    found = check(a_dataset([a_set("s1", "a", "b", "c"), a_set("s2", "d", "e", "f")]))
    assert found.near_duplicates.highest is None
    assert "(none share a word)" in next(
        line for line in found.findings if line.startswith("Near-duplicates")
    )


def test_pairs_are_counted_by_cell_over_all_wordings() -> None:
    # Wordings 3, 4 and 5 in one cell: 3·4 + 3·5 + 4·5 = 47; the fourth set is alone in its cell.
    sets = [
        a_set("s1", "a", "b", "c"),
        a_set("s2", "d", "e", "f", "g"),
        a_set("s3", "h", "i", "j", "k", "l"),
        a_set("s4", "m", "n", "o", cell=ELSEWHERE),
    ]
    assert check(a_dataset(sets)).near_duplicates.compared == 47


def test_likeness_of_the_wordings_of_a_set() -> None:
    # Dual-use wordings of s1: `a b c d`, `a b c x`, `a b y z`: LCS 3, 2 and 2 of 4 and 4: 0.75,
    # 0.5, 0.5: mean 0.583333. Of s2: `a b` and `c d`: 0. Mean over sets 0.291667, the median of two
    # as well. s3 has one wording: it does not count.
    sets = [
        a_set("s1", "one two", "a b c d", "three four", "a b c x", "a b y z"),
        a_set("s2", "five six", "a b", "seven eight", "c d"),
        a_set("s3", "nine", "ten", "eleven", cell=ELSEWHERE),
    ]
    found = check(a_dataset(sets)).within_sets
    assert (found.dual_use.sets, found.dual_use.mean, found.dual_use.median) == (
        2,
        0.291667,
        0.291667,
    )
    assert found.dual_use.highest == alike("s1", "dual_use", "s1", "dual_use_paraphrase_1", 0.75)
    assert found.dual_use.alike == 1
    assert (found.triplet.sets, found.triplet.mean, found.triplet.alike) == (3, 0, 0)
    assert found.identical == ()


def test_a_word_swap_is_seen_across_intents() -> None:
    # Nine of ten words the same, in the same place: LCS 9 of 10 and 10: 0.9 for each two of the
    # three.
    text = "how do i open the door of the house {}"
    found = check(
        a_dataset([a_set("s1", *(text.format(word) for word in ("kindly", "quickly", "unseen")))])
    ).within_sets
    assert (found.triplet.mean, found.triplet.alike) == (0.9, 1)


def test_identical_wordings_are_flagged_case_and_punctuation_aside() -> None:
    sets = [
        a_set("s1", "Open it.", "Shut it!", "Leave it.", "shut it", "SHUT IT?", "Shut them"),
        a_set("s2", "今天天气", "今天天气", "明天天气"),
        a_set("s3", "?", "!", "."),  # no words: alike only if the same
    ]
    found = check(a_dataset(sets))
    assert found.within_sets.identical == (
        alike("s1", "dual_use", "s1", "dual_use_paraphrase_1", 1.0),
        alike("s1", "dual_use_paraphrase_1", "s1", "dual_use_paraphrase_2", 1.0),
        alike("s2", "benign", "s2", "dual_use", 1.0),
    )
    assert (
        "Identical within one set, case and punctuation aside: 3 pairs of prompts, in 2 sets."
        in found.findings
    )
