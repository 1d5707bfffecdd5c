"""The shipped set keeps what it promises: one set a cell, alike in length, unlike in wording."""

from __future__ import annotations

import hashlib
import json
from statistics import mean

from opensafeintent import load_dataset
from opensafeintent.construction.similarity import ComparedSet, Threshold, similar_pairs
from opensafeintent.taxonomy import CORE_VARIANTS

SETS = load_dataset("starter").prompt_sets


def test_one_set_a_cell_of_seven_prompts_each() -> None:
    assert len(SETS) == 42 == len({item.cell for item in SETS})
    assert {len(set(item.wordings().values())) for item in SETS} == {7}  # 3 + 4, all different


def test_ids_are_unique_and_come_from_the_content() -> None:
    assert len({prompt_set.id for prompt_set in SETS}) == 42
    for item in SETS:
        prompts = {intent: item.prompts.of(intent) for intent in CORE_VARIANTS}
        asked = [item.harm_domain, item.task_type, prompts, item.dual_use_paraphrases]
        text = json.dumps(asked, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
        assert item.id == hashlib.sha256(text.encode()).hexdigest()[:12]


def test_the_three_intents_are_about_as_long() -> None:
    for item in SETS:
        words = [len(item.prompts.of(intent).split()) for intent in CORE_VARIANTS]
        assert max(abs(count / mean(words) - 1) for count in words) <= 0.25, item.id


def test_no_two_sets_are_worded_alike() -> None:
    # exact: `construction/test_similarity.py` compares it with plain dynamic programming
    items = [ComparedSet(item.id, "one cell", item.wordings()) for item in SETS]
    assert list(similar_pairs(items, Threshold.of("0.5"))) == []
