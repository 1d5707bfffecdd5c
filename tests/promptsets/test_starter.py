"""The shipped set keeps what it promises: one set a cell, alike in length, unlike in wording."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from statistics import mean

import pytest

from opensafeintent import PromptSet, load_dataset
from opensafeintent.construction.similarity import ComparedSet, Threshold, similar_pairs
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


def test_no_two_sets_are_worded_alike() -> None:
    # exact: `construction/test_similarity.py` compares it with plain dynamic programming
    items = [ComparedSet(item.id, "one cell", item.wordings()) for item in SETS]
    assert list(similar_pairs(items, Threshold.of("0.5"))) == []
