"""The shipped set keeps what it promises: one set a cell, alike in length, unlike in wording."""

from __future__ import annotations

import hashlib
import itertools
import json
import re
import string
from collections import Counter, defaultdict
from statistics import mean

import pytest

from opensafeintent import PromptSet, load_dataset
from opensafeintent.promptsets import Prompts

SETS = load_dataset("starter").prompt_sets


def by_id(prompt_set: PromptSet) -> str:
    return prompt_set.id


def test_one_set_a_cell_of_seven_prompts_each() -> None:
    assert len(SETS) == 42
    assert set(Counter(prompt_set.cell for prompt_set in SETS).values()) == {1}
    assert {len(set(prompt_set.wordings().values())) for prompt_set in SETS} == {
        7
    }  # 3 + 4, all different


def test_every_set_is_annotated_and_carries_the_canary() -> None:
    assert all(
        prompt_set.dual_use_benign_use and prompt_set.dual_use_misuse_risk for prompt_set in SETS
    )
    assert len({prompt_set.underlying_task for prompt_set in SETS}) == 42
    (source,) = {prompt_set.source for prompt_set in SETS}
    assert source is not None
    assert re.search(r"canary [0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$", source)
    assert {prompt_set.language for prompt_set in SETS} == {"en"}


def test_ids_are_unique_and_come_from_the_content() -> None:
    assert len({prompt_set.id for prompt_set in SETS}) == 42
    for item in SETS:
        prompts = {
            "benign": item.prompts.benign,
            "dual_use": item.prompts.dual_use,
            "malicious": item.prompts.malicious,
        }
        asked = [item.harm_domain, item.task_type, prompts, item.dual_use_paraphrases]
        text = json.dumps(asked, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
        assert item.id == hashlib.sha256(text.encode()).hexdigest()[:12]


@pytest.mark.parametrize("prompt_set", SETS, ids=by_id)
def test_the_three_intents_are_about_as_long(prompt_set: PromptSet) -> None:
    words = [
        len(getattr(prompt_set.prompts, intent).split()) for intent in Prompts.__struct_fields__
    ]
    assert max(abs(count / mean(words) - 1) for count in words) <= 0.25


# ROUGE-L: F1 = 2·LCS / (n + m) on lower-cased words without ASCII punctuation -----------------


def tokens(text: str) -> list[str]:
    return text.lower().translate(str.maketrans("", "", string.punctuation)).split()


def places(words: list[str]) -> dict[str, int]:
    """Return each word's places in `words`, as the bits of a number."""
    found: defaultdict[str, int] = defaultdict(int)
    for place, word in enumerate(words):
        found[word] |= 1 << place
    return found


def lcs_length(of: dict[str, int], size: int, words: list[str]) -> int:
    """Return the length of the longest common subsequence (Hyyrö 2004: the zeros left in one row of
    bits).
    """
    row = full = (1 << size) - 1
    for word in words:
        if here := row & of.get(word, 0):
            row = (row + here) | (row - here)
    return size - (row & full).bit_count()


@pytest.mark.parametrize(
    ("one", "other", "length"),
    [
        ("", "a b", 0),
        ("a b c", "a b c", 3),
        ("a b c", "c b a", 1),
        ("the police killed the gunman", "police kill the gunman", 3),  # police, the, gunman
        ("the gunman police killed", "the police killed the gunman", 3),  # the, police, killed
        ("a a a b", "b a a", 2),
    ],
)
def test_the_longest_common_subsequence(one: str, other: str, length: int) -> None:
    words = one.split()
    assert lcs_length(places(words), len(words), other.split()) == length


def test_no_two_sets_are_worded_alike() -> None:
    prompts = [
        (prompt_set.id, words, places(words))
        for prompt_set in SETS
        for words in map(tokens, prompt_set.wordings().values())
    ]
    compared = 0
    for (one, words, of), (other, others, _) in itertools.combinations(prompts, 2):
        if one != other:
            compared += 1
            # F1 > 0.5 in whole numbers: 2·LCS / (n + m) > 1 / 2
            assert 4 * lcs_length(of, len(words), others) <= len(words) + len(others), (one, other)
    assert compared == 42_189  # 42 · 41 / 2 pairs of sets, 7 · 7 pairs of prompts in each
