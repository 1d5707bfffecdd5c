"""Balance, length, readability and similarity: each number against one worked out by hand."""

from __future__ import annotations

import random

import msgspec
import pytest

from construction.support import a_dataset, a_set, taxonomy
from opensafeintent.construction.controls import (
    DatasetCheck,
    IntentDifference,
    Similarity,
    readability_index,
)
from opensafeintent.errors import InputError
from opensafeintent.promptsets import Dataset
from opensafeintent.promptsets.cards import name_generated_source
from opensafeintent.report.datasets import check, mark_source
from opensafeintent.taxonomy import ContentShift

WORDS = ("ash", "birch", "cedar", "elm", "fir", "hazel", "larch", "maple", "oak", "pine")
ELSEWHERE = ("Fraud and Deception", "Planning and Procedure")


def difference(
    measured: DatasetCheck, measure: str, first: str = "malicious", second: str = "benign"
) -> IntentDifference:
    pair = (measure, first, second)
    return next(row for row in measured.differences if (row.measure, row.first, row.second) == pair)


def finding(measured: DatasetCheck, part: str) -> str:
    return next(line for line in measured.findings if part in line)


def of_lengths(*triplets: tuple[int, int, int]) -> Dataset:
    """Make a set for each triplet of word counts; every word is `tree`."""
    return a_dataset(
        a_set(f"s{n:03}", *(" ".join(["tree"] * count) for count in lengths))
        for n, lengths in enumerate(triplets)
    )


# Balance
# ------------------------------------------------------------------------------


def test_balance_over_cells_domains_and_types() -> None:
    # 2 × 2 cells with 2, 1, 1 and 0 sets.
    # Cells: shares ½, ¼, ¼, 0: entropy ½·ln 2 + 2·¼·ln 4 = 1.5 ln 2, of ln 4 = 2 ln 2: 0.75.
    # Domains: 3 and 1: −¾ ln ¾ − ¼ ln ¼ = 0.562335, of ln 2 = 0.693147: 0.811278. Types as well.
    cells = [("D", "t")] * 2 + [("D", "u"), ("E", "t")]
    sets = [a_set(f"s{n}", "one", "two", "three", cell=cell) for n, cell in enumerate(cells)]
    by_cell, by_domain, by_type = check(a_dataset(sets, taxonomy("DE", "tu"))).balance
    assert (by_cell.groups, by_cell.empty, by_cell.least, by_cell.most) == (4, 1, 0, 2)
    assert (by_cell.most_share, by_cell.evenness) == (0.5, 0.75)
    assert by_domain.evenness == by_type.evenness == 0.811278


def test_a_taxonomy_of_one_cell_has_no_evenness() -> None:
    sets = [a_set(f"s{n}", "one", "two", "three", cell=("D", "t")) for n in range(3)]
    measured = check(a_dataset(sets, taxonomy("D", "t")))
    row = measured.balance[0]
    assert (row.least, row.most, row.most_share, row.evenness) == (3, 3, 1, None)
    assert "evenness" not in finding(measured, "1 cells")


# Length and readability
# ------------------------------------------------------------------------------


def test_differences_in_words_by_hand() -> None:
    # malicious − benign: 2, 4, −1, 3: mean 2; deviations 0, 2, −3, 1: variance 14 / 3, so d_z = 2 /
    # √(14/3) = 0.925820. The standard error is √(14/3 / 4) = 1.080123.
    measured = check(of_lengths((3, 3, 5), (3, 3, 7), (3, 3, 2), (3, 3, 6)))
    row = difference(measured, "words")
    assert (row.mean.value, row.mean.n, row.greater, row.less) == (2, 4, 0.75, 0.25)
    assert row.standardised == 0.92582
    # t = 2 / 1.080123 = 1.851640 with 3 degrees of freedom, of which a share 2/π (θ + sin θ cos θ) is
    # within ±t, θ = atan(t/√3) = 0.818756: p = 1 − 2/π (0.818756 + 0.498888) = 0.161162. Of three
    # pairs, 1 − (1 − p)³ = 0.409752.
    assert row.p_unadjusted == pytest.approx(0.161162, abs=2e-6)
    assert row.p_adjusted == pytest.approx(0.409752, abs=6e-6)
    # Of three pairs, each has the confidence 0.95^(1/3); t has that share within ±4.826462.
    assert row.mean.interval == pytest.approx((2 - 5.213174, 2 + 5.213174), abs=1e-5)
    # and the power of 80 % takes 0.841621 standard errors more
    assert row.minimum_detectable_difference == pytest.approx(5.213174 + 0.909054, abs=1e-5)
    same = difference(measured, "words", "dual_use")
    shares = (same.greater, same.less, same.p_unadjusted)
    assert (same.mean.value, same.standardised, *shares) == (0, None, 0, 0, 1)


def test_a_far_value_moves_no_other_row() -> None:
    """One malicious prompt with 400 more words changes nothing between the other two intents."""
    lengths = [(20 + n % 5, 21 + n % 3, 22 + n % 7) for n in range(30)]
    far = [(20, 21, 422), *lengths[1:]]
    before, after = (
        difference(check(of_lengths(*triplets)), "words", "dual_use") for triplets in (lengths, far)
    )
    assert before == after and before.mean.interval is not None


def test_constant_lengths_are_no_difference() -> None:
    row = difference(check(of_lengths(*[(7, 7, 7)] * 40)), "words")
    assert (
        row.mean.value,
        row.standardised,
        row.p_unadjusted,
        row.minimum_detectable_difference,
    ) == (
        0,
        None,
        1,
        None,
    )
    assert row.mean.interval is not None
    assert row.mean.interval == (0, 0)


def test_one_set_leaves_undefined_what_needs_several() -> None:
    measured = check(of_lengths((3, 4, 6)))
    row = difference(measured, "words")
    assert (row.mean.n, row.mean.value, row.mean.interval, row.greater) == (1, 3, None, 1)
    assert (
        row.standardised,
        row.p_unadjusted,
        row.p_adjusted,
        row.minimum_detectable_difference,
    ) == (None,) * 4
    assert measured.similarity[0].compared == 0


@pytest.mark.parametrize(
    ("text", "index"),
    [
        # 9 letters, 3 words, 1 sentence: 4.71 · 3 + 0.5 · 3 − 21.43 = −5.80
        ("The cat sat.", -5.8),
        # 18 letters, 6 words, 2 sentences: 4.71 · 3 + 0.5 · 3 − 21.43
        ('"The cat sat!" The dog ran?', -5.8),
        # The point in 1.5 ends no sentence: 10 letters and digits, 4 words, 1 sentence: 11.775 + 2
        # − 21.43
        ("Buy 1.5 of apu", -7.655),
        # An empty line does: 8 letters, 4 words, 2 sentences: 9.42 + 1 − 21.43
        ("ab cd\n\nef gh", -11.01),
        # Dots alone are one sentence: 0 letters, 1 word: 0 + 0.5 − 21.43
        ("...", -20.93),
        # Hindi ends sentences by a danda; vowel signs are no letters: 2 + 2 + 2 letters, 3 words, 1
        # sentence
        ("\u0915\u0930 \u0915\u0930 \u0915\u0930\u0964", 4.71 * 2 + 1.5 - 21.43),
    ],
)
def test_readability_is_the_published_index(text: str, index: float) -> None:
    assert readability_index(text) == pytest.approx(index)


def test_characters_and_readability_differ_where_words_do_not() -> None:
    # 2 characters more in each of 3 words: 6 characters, and 4.71 · 2 = 9.42 in readability
    sets = [a_set(f"s{n:02}", "aa bb cc", "aa bb cc", "aaaa bbbb cccc") for n in range(12)]
    measured = check(a_dataset(sets))
    values = {
        row.measure: row.mean.value for row in measured.differences if row.second == "dual_use"
    }
    assert values == {"words": 0, "characters": 6, "readability": 9.42}


# Languages
# ------------------------------------------------------------------------------

SPACED = {
    **{"今天天气很好": False, "Pythonでファイルを読むには": False, "สวัสดีครับ": False},
    **{"How is the word 天 read": True, "Как открыть дверь?": True, "문을 어떻게 여나요": True},
    "كيف أفتح الباب؟": True,
}
"""Chinese, Japanese, Thai; English, Russian, Korean, Arabic."""


@pytest.mark.parametrize(("text", "spaced"), SPACED.items())
def test_scripts_without_spaces_have_characters_only(text: str, spaced: bool) -> None:
    measured = check(a_dataset(a_set(name, text, text, text) for name in ("one", "two")))
    counts = {row.measure: row.mean.n for row in measured.differences}
    words = 2 if spaced else 0
    assert counts == {"words": words, "characters": 2, "readability": words}
    assert measured.similarity[1].compared == words
    unspaced = [line for line in measured.left_out if "2 of 2 prompt-sets have no spaces" in line]
    assert len(unspaced) == (not spaced)


# Alike prompts
# ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("other_wording", "alike", "highest"),
    [
        ("a b c d e f g x", 1, 14 / 15),  # LCS 7 of 7 and 8
        ("a b c w x y z", 0, 6 / 14),  # LCS 3 of 7 and 7: found far below the threshold
        ("a t u v w x y z", 0, 2 / 15),
        ("x y z", 0, None),
    ],
)
def test_prompts_of_two_sets_of_one_cell(
    other_wording: str, alike: int, highest: float | None
) -> None:
    # In another cell the same text does not count: 3 × 4 pairs of prompts of s1 and s2.
    sets = [
        a_set("s1", "a b c d e f g", "h", "i"),
        a_set("s2", "j", other_wording, "k", "l"),
        a_set("s3", "a b c d e f g", "m", "n", cell=ELSEWHERE),
    ]
    measured = check(a_dataset(sets))
    assert measured.similarity[0] == Similarity(
        prompts="two sets of one cell",
        compared=12,
        mean=None,
        alike=alike,
        highest=highest and round(highest, 6),
        first="s1 benign" if highest else None,
        second="s2 dual_use" if highest else None,
    )
    named = "s1 benign and s2 dual_use" if highest else "none share a word"
    assert "Sets of different cells are not compared." in finding(measured, "two sets of one cell")
    assert named in finding(measured, "two sets of one cell")


def test_a_tie_at_the_threshold_is_not_above_it_and_two_sets_count_once() -> None:
    # Ten words each, seven in common: 14/20 = 0.7; 8 in common are 0.8, in two prompts of the sets.
    sets = [
        a_set("s1", "a b c d e f g 1 2 3", "h", "i"),
        a_set("s2", "a b c d e f g 4 5 6", "j k l m n o p q 1 2", "r s t u v w x y 1 2"),
    ]
    assert check(a_dataset(sets)).similarity[0].alike == 0
    sets.append(a_set("s3", "z", "j k l m n o p q 3 4", "r s t u v w x y 3 4"))
    assert check(a_dataset(sets)).similarity[0].alike == 1


def test_likeness_of_the_prompts_of_a_set() -> None:
    # Dual-use wordings of s1: `a b c d`, `a b c x`, `a b y z`: LCS 3, 2 and 2 of 4 and 4: 0.75,
    # 0.5, 0.5: mean 0.583333. Of s2: `a b` and `c d`: 0. Mean over sets 0.291667. s3 has one
    # wording: it does not count. Its core prompts share nine of ten words: 0.9.
    text = "how do i open the door of the house {}"
    sets = [
        a_set("s1", "one two", "a b c d", "three four", "a b c x", "a b y z"),
        a_set("s2", "five six", "a b", "seven eight", "c d"),
        a_set("s3", *(text.format(word) for word in ("kindly", "quickly", "unseen"))),
    ]
    _, core, wordings = check(a_dataset(sets)).similarity
    assert (wordings.compared, wordings.mean, wordings.alike) == (2, 0.291667, 1)
    assert (wordings.first, wordings.second) == ("s1 dual_use", "s1 dual_use_paraphrase_1")
    assert (core.compared, core.mean, core.alike, core.highest) == (3, 0.3, 1, 0.9)


# The record
# ------------------------------------------------------------------------------


def test_the_record_repeats_under_its_seed_in_any_order_and_is_read_back() -> None:
    chance = random.Random(3)
    texts = ([" ".join(chance.choices(WORDS, k=6)) for _ in range(4)] for _ in range(40))
    sets = [a_set(f"s{n:03}", *four) for n, four in enumerate(texts)]
    first, again = check(a_dataset(sets), 7), check(a_dataset(reversed(sets)), 7)
    assert first == again
    assert msgspec.json.decode(msgspec.json.encode(first), type=DatasetCheck) == first
    assert check(a_dataset(sets), 8) != first


def test_a_seed_out_of_range_is_refused() -> None:
    for seed in (-1, 2**32):
        with pytest.raises(InputError, match=f"seed {seed}: expected .* 4294967295"):
            check(of_lengths((1, 1, 1)), seed)


def test_content_shift_is_counted_where_it_is_said() -> None:
    shifts: tuple[ContentShift | None, ...] = ("none", "none", "partial", "full", None)
    plain = of_lengths(*[(5, 5, 5)] * 5)
    sets = (
        msgspec.structs.replace(item, content_shift=shift)
        for item, shift in zip(plain.prompt_sets, shifts, strict=True)
    )
    measured = check(a_dataset(sets))
    assert measured.content_shift == {"none": 2, "partial": 1, "full": 1, "unknown": 1}
    assert "fully in 2 prompt-sets, partly in 1, and not in 1" in finding(measured, "full answer")
    assert "According to the prompt-sets themselves, a full" in finding(measured, "full answer")
    assert len(check(plain).findings) == len(measured.findings) - 1


def test_a_judge_is_named_only_if_all_sets_state_a_build() -> None:
    marked = mark_source(name_generated_source("some/generator"), "a" * 64)
    (item,) = of_lengths((5, 5, 5)).prompt_sets
    built = msgspec.structs.replace(item, id="built", content_shift="full", source=marked)
    by_hand = msgspec.structs.replace(item, content_shift="none", source="generated by hand")
    of_build = check(a_dataset([built, item]))  # the other has no content shift
    assert "According to the judge that built them" in finding(of_build, "full answer")
    mixed = check(a_dataset([built, by_hand]))
    assert "According to the prompt-sets themselves" in finding(mixed, "full answer")
