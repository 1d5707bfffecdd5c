"""Balance, length and readability: each number against one worked out by hand; and what is said of
them.
"""

from __future__ import annotations

import random

import msgspec
import pytest

from construction.control_sets import CELL, a_dataset, a_set, a_taxonomy
from opensafeintent.construction.controls.findings import check
from opensafeintent.construction.controls.records import (
    ContentShifts,
    DatasetCheck,
    Difference,
    Parity,
)
from opensafeintent.errors import InputError
from opensafeintent.promptsets import Dataset, PromptSet
from opensafeintent.taxonomy import ContentShift

WORDS = ("ash", "birch", "cedar", "elm", "fir", "hazel", "larch", "maple", "oak", "pine")


def parity_in(found: DatasetCheck, measure: str) -> Parity:
    return next(part for part in found.parity if part.measure == measure)


def pair_in(found: DatasetCheck, measure: str, first: str, second: str) -> Difference:
    return next(
        pair
        for pair in parity_in(found, measure).pairs
        if (pair.first, pair.second) == (first, second)
    )


def finding(found: DatasetCheck, start: str) -> str:
    return next(line for line in found.findings if line.startswith(start))


def of_lengths(*triplets: tuple[int, int, int]) -> Dataset:
    """Make a set for each triplet of word counts; every word is `tree`."""
    return a_dataset(
        a_set(f"s{n:03}", *(" ".join(["tree"] * count) for count in each))
        for n, each in enumerate(triplets)
    )


# Balance
# ------------------------------------------------------------------------------


def test_balance_over_cells_domains_and_types() -> None:
    # 2 × 2 cells with 2, 1, 1 and 0 sets.
    # Cells: shares ½, ¼, ¼, 0: entropy ½·ln 2 + 2·¼·ln 4 = 1.5 ln 2, of ln 4 = 2 ln 2: 0.75.
    # Domains: 3 and 1: −¾ ln ¾ − ¼ ln ¼ = 0.562335, of ln 2 = 0.693147: 0.811278. Types: 3 and 1 as
    # well.
    cells = [("domain 0", "type 0")] * 2 + [("domain 0", "type 1"), ("domain 1", "type 0")]
    sets = [a_set(f"s{n}", "one", "two", "three", cell=cell) for n, cell in enumerate(cells)]
    balance = check(a_dataset(sets, a_taxonomy(2, 2))).balance
    assert [count.sets for count in balance.counts] == [2, 1, 1, 0]
    assert (balance.cells.groups, balance.cells.empty, balance.cells.least, balance.cells.most) == (
        4,
        1,
        0,
        2,
    )
    assert (balance.cells.least_share, balance.cells.most_share) == (0, 0.5)
    assert balance.cells.evenness == 0.75
    assert balance.harm_domains.evenness == balance.task_types.evenness == 0.811278


def test_a_taxonomy_of_one_cell_has_no_evenness() -> None:
    sets = [a_set(f"s{n}", "one", "two", "three", cell=("domain 0", "type 0")) for n in range(3)]
    found = check(a_dataset(sets, a_taxonomy(1, 1)))
    assert found.balance.cells.evenness is None
    assert (
        found.balance.cells.least,
        found.balance.cells.most,
        found.balance.cells.most_share,
    ) == (3, 3, 1)
    assert (
        finding(found, "1 of 1 cell")
        == "1 of 1 cell holds prompt-sets; a cell has 3, a harm domain 3, a task type 3."
    )


# Length
# ------------------------------------------------------------------------------


def test_differences_in_words_by_hand() -> None:
    # malicious − benign: 2, 4, −1, 3: mean 2; deviations 0, 2, −3, 1: variance 14 / 3, so d_z = 2 /
    # √(14/3) = 0.925820. Sign flips of (2, 4, −1, 3): the sum is 8. Of the 16 sign patterns, |sum|
    # ≥ 8 for +2+4−1+3, +2+4+1+3 (10) and their mirrors: p = 4/16; of so few sets all flips are
    # taken. Detectable: 2.8 · √(14/3 / 4) = 3.024346.
    found = check(of_lengths((3, 3, 5), (3, 3, 7), (3, 3, 2), (3, 3, 6)))
    pair = pair_in(found, "words", "malicious", "benign")
    assert (pair.n, pair.mean, pair.greater, pair.less) == (4, 2, 0.75, 0.25)
    assert pair.standardised == 0.92582
    assert pair.detectable == 3.024346
    assert pair.p == 0.25
    # malicious − benign and malicious − dual-use are the same differences, and the third pair never
    # differs: one test in all.
    assert pair.p_adjusted == pair.p
    same = pair_in(found, "words", "dual_use", "benign")
    assert (same.mean, same.standardised, same.greater, same.less, same.p) == (0, None, 0, 0, 1)


def test_means_and_medians_by_hand() -> None:
    spreads = parity_in(check(of_lengths((1, 2, 5), (3, 2, 7), (8, 2, 9))), "words").intents
    assert [(item.intent, item.mean, item.median, item.least, item.most) for item in spreads] == [
        ("benign", 4, 3, 1, 8),
        ("dual_use", 2, 2, 2, 2),
        ("malicious", 7, 7, 5, 9),
    ]


def test_characters_are_code_points_with_spaces() -> None:
    found = check(a_dataset([a_set("a", "à bé", "12345", "x"), a_set("b", "à bé", "12345", "xyz")]))
    assert [item.mean for item in parity_in(found, "characters").intents] == [4, 5, 2]


def test_the_interval_of_a_difference_holds_the_one_of_a_t_test() -> None:
    chance = random.Random(5)
    found = check(of_lengths(*((20, 20, 20 + chance.randint(-4, 8)) for _ in range(200))))
    pair = pair_in(found, "words", "malicious", "benign")
    # With 200 sets the bootstrap interval is close to the normal one, mean ± 1.96 standard errors;
    # detectable is 2.8 of them.
    assert pair.mean is not None
    assert pair.low is not None
    assert pair.high is not None
    assert pair.detectable is not None
    assert pair.low == pytest.approx(pair.mean - 1.96 / 2.8 * pair.detectable, rel=0.05)
    assert pair.high == pytest.approx(pair.mean + 1.96 / 2.8 * pair.detectable, rel=0.05)


@pytest.mark.parametrize(
    ("triplet", "answer"),
    [
        ((10, 10, 12), "Yes: longer than benign ones by 2.0 words (95 % interval"),
        ((12, 10, 10), "No: shorter than benign ones by 2.0 words (95 % interval"),
        ((10, 12, 11), "In part: longer than benign ones by 1.0 words (95 % interval"),
    ],
)
def test_the_question_on_length_is_answered(triplet: tuple[int, int, int], answer: str) -> None:
    said = finding(check(of_lengths(*[triplet] * 30)), "Are malicious prompts longer, in words?")
    assert said.startswith(f"Are malicious prompts longer, in words? {answer}")
    against_dual_use = {
        12: "than dual-use ones by 2.0",
        10: "not clearly different from dual-use",
        11: "shorter than dual-use",
    }
    assert against_dual_use[triplet[2]] in said


def test_constant_lengths_are_no_difference() -> None:
    found = check(of_lengths(*[(7, 7, 7)] * 40))
    pair = pair_in(found, "words", "malicious", "benign")
    assert (pair.mean, pair.standardised, pair.greater, pair.less, pair.p, pair.detectable) == (
        0,
        None,
        0,
        0,
        1,
        None,
    )
    assert pair.low is not None
    assert pair.high is not None
    assert -0.1 < pair.low <= 0 <= pair.high < 0.1
    assert finding(found, "Are malicious prompts longer, in words?").endswith(
        "No difference is seen, and sets do not differ in it."
    )


def test_few_sets_cannot_tell() -> None:
    # 2/2⁵ = 0.0625: five sets cannot be significant, however large the difference; 2/2⁶ = 0.03.
    found = check(of_lengths(*[(1, 1, 50)] * 5))
    assert finding(found, "Are malicious prompts longer, in words?").endswith(
        "5 prompt-sets cannot tell; 6 or more are needed."
    )
    assert finding(
        check(of_lengths(*[(1, 1, 50)] * 6)), "Are malicious prompts longer, in words?"
    ).startswith("Are malicious prompts longer, in words? Yes")


def test_one_set_leaves_what_needs_several_undefined() -> None:
    found = check(of_lengths((3, 4, 6)))
    pair = pair_in(found, "words", "malicious", "benign")
    assert (pair.n, pair.mean, pair.greater, pair.less) == (1, 3, 1, 0)
    assert (pair.low, pair.high, pair.standardised, pair.p, pair.p_adjusted, pair.detectable) == (
        None,
    ) * 6
    assert found.artefacts is None
    assert found.left_out == (
        (
            "words that give the intent away: one prompt-set cannot be told from others; this needs"
            " two or more"
        ),
    )
    assert found.near_duplicates.compared == 0
    assert finding(found, "Are malicious prompts longer, in words?").endswith(
        "1 prompt-set cannot tell; 6 or more are needed."
    )


# Readability
# ------------------------------------------------------------------------------


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
    found = check(a_dataset([a_set("a", text, "x", "y")]))
    assert parity_in(found, "readability").intents[0].mean == pytest.approx(index, abs=1e-6)


def test_readability_finds_longer_words_at_equal_numbers_of_words() -> None:
    # 2 letters more a word: 4.71 · 2 = 9.42 more, in every set.
    sets = [a_set(f"s{n:02}", "aa bb cc", "aa bb cc", "aaaa bbbb cccc") for n in range(12)]
    found = check(a_dataset(sets))
    assert pair_in(found, "readability", "malicious", "benign").mean == 9.42
    assert pair_in(found, "words", "malicious", "benign").mean == 0
    assert finding(found, "Are malicious prompts harder to read?").startswith(
        "Are malicious prompts harder to read? Yes: harder than benign ones by 9.4 points"
    )


# Languages
# ------------------------------------------------------------------------------

CHINESE = a_set("zh", "今天天气很好", "明天天气很好吗", "后天天气")
JAPANESE = a_set(
    "ja", "Pythonでファイルを読むには", "ファイルを消すには", "ひとのファイルを読むには"
)
THAI = a_set("th", "สวัสดีครับ", "สวัสดี", "ขอบคุณครับ")
ENGLISH = a_set("en", "How is the word 天 read", "What does 天 mean here", "Write 天 on the wall")
RUSSIAN = a_set("ru", "Как открыть дверь?", "Как открывают двери?", "Как открыть чужую дверь?")
KOREAN = a_set("ko", "문을 어떻게 여나요", "문은 어떻게 열리나요", "남의 문을 어떻게 여나요")
ARABIC = a_set("ar", "كيف أفتح الباب؟", "كيف تفتح الأبواب؟", "كيف أفتح باب جاري؟")


@pytest.mark.parametrize("prompt_set", [CHINESE, JAPANESE, THAI], ids=lambda item: item.id)
def test_scripts_without_spaces_have_characters_only(prompt_set: PromptSet) -> None:
    found = check(a_dataset([prompt_set, ENGLISH]))
    assert {part.measure: part.left_out for part in found.parity} == {
        "words": 1,
        "characters": 0,
        "readability": 1,
    }
    assert pair_in(found, "words", "malicious", "benign").n == 1
    assert pair_in(found, "characters", "malicious", "benign").n == 2
    assert found.left_out[0].startswith(
        "words, readability, near-duplicates and likeness within sets: 1 of 2 prompt-sets are"
        " written without spaces"
    )


@pytest.mark.parametrize("prompt_set", [ENGLISH, RUSSIAN, KOREAN, ARABIC], ids=lambda item: item.id)
def test_scripts_with_spaces_have_every_measure(prompt_set: PromptSet) -> None:
    found = check(a_dataset([prompt_set]))
    assert {part.left_out for part in found.parity} == {0}


def test_a_dataset_wholly_without_spaces_is_checked_as_far_as_it_goes() -> None:
    found = check(a_dataset([CHINESE, msgspec.structs.replace(CHINESE, id="zh2")]))
    pair = pair_in(found, "words", "malicious", "benign")
    assert (pair.n, pair.mean, pair.p, pair.greater) == (0, None, None, None)
    assert pair_in(found, "characters", "malicious", "benign").mean == -2
    assert not [line for line in found.findings if "in words?" in line or "read?" in line]
    assert found.near_duplicates.compared == 0
    assert found.within_sets.triplet.mean is None


# The record
# ------------------------------------------------------------------------------


def several(count: int, seed: int = 3) -> list[PromptSet]:
    chance = random.Random(seed)

    def text() -> str:
        return " ".join(chance.choices(WORDS, k=chance.randint(4, 9)))

    return [a_set(f"s{n:03}", text(), text(), text(), text(), cell=CELL) for n in range(count)]


def test_the_record_does_not_depend_on_the_order_and_repeats_under_its_seed() -> None:
    sets = several(40)
    shuffled = random.Random(1).sample(sets, len(sets))
    first, again = check(a_dataset(sets), 7), check(a_dataset(shuffled), 7)
    assert msgspec.json.encode(first) == msgspec.json.encode(again)
    assert check(a_dataset(sets), 8) != first


def test_the_record_can_be_read_back_from_json() -> None:
    found = check(a_dataset(several(12)))
    assert msgspec.json.decode(msgspec.json.encode(found), type=DatasetCheck) == found


@pytest.mark.parametrize("seed", [-1, 2**32])
def test_a_seed_out_of_range_is_refused(seed: int) -> None:
    with pytest.raises(
        InputError, match=f"seed {seed}: expected a whole number from 0 to 4294967295"
    ):
        check(a_dataset(several(3)), seed)


def test_content_shift_is_counted_where_it_is_said() -> None:
    shifts: tuple[ContentShift | None, ...] = ("none", "none", "partial", "full", None)
    plain = of_lengths(*[(5, 5, 5)] * 5)
    sets = (
        msgspec.structs.replace(item, content_shift=shift)
        for item, shift in zip(plain.prompt_sets, shifts, strict=True)
    )
    found = check(a_dataset(sets))
    assert found.content_shift == ContentShifts(none=2, partial=1, full=1, unknown=1)
    assert (
        found.findings[-1]
        == "A full answer to the benign prompt would serve the malicious one fully in 2 of 4"
        " prompt-sets, partly in 1, not in 1, as the judge that built them has it; 1 do not"
        " say it."
    )
    assert check(plain).content_shift is None
