"""A sample is spread over the cells, and a larger one contains every smaller one."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opensafeintent import load_dataset
from opensafeintent.promptsets import Prompts, PromptSet, stratified_sample

PROMPTS = Prompts(benign="a", dual_use="b", malicious="c")


def of_cell(set_id: str, cell: tuple[str, str]) -> PromptSet:
    return PromptSet(id=set_id, harm_domain=cell[0], task_type=cell[1], underlying_task="t", prompts=PROMPTS)


PLACES = st.dictionaries(st.text("abcdef0123456789", min_size=1), st.tuples(st.sampled_from("PQR"), st.sampled_from("xy")))
SETS = PLACES.map(lambda places: [of_cell(set_id, cell) for set_id, cell in places.items()])
"""Sets with their own ids, spread unevenly over up to six cells."""


def ids(sets: tuple[PromptSet, ...]) -> list[str]:
    return [prompt_set.id for prompt_set in sets]


@given(SETS, st.integers(0, 40))
def test_a_sample_has_the_size_asked_for_and_the_datasets_order(sets: list[PromptSet], limit: int) -> None:
    sample = stratified_sample(sets, limit)
    assert len(sample) == min(limit, len(sets))
    chosen = set(ids(sample))
    assert ids(sample) == [prompt_set.id for prompt_set in sets if prompt_set.id in chosen]


@given(SETS, st.integers(0, 40), st.integers(0, 40))
def test_a_larger_sample_contains_a_smaller_one(sets: list[PromptSet], one: int, other: int) -> None:
    small, large = sorted((one, other))
    assert set(ids(stratified_sample(sets, small))) <= set(ids(stratified_sample(sets, large)))


@given(SETS, st.integers(0, 40))
def test_no_cell_waits_while_another_gets_two_more(sets: list[PromptSet], limit: int) -> None:
    whole = Counter(prompt_set.cell for prompt_set in sets)
    sample = Counter(prompt_set.cell for prompt_set in stratified_sample(sets, limit))
    waiting = [sample[cell] for cell in whole if sample[cell] < whole[cell]]
    if waiting:  # a cell with sets left has at most one fewer than the fullest
        assert max(sample.values(), default=0) <= min(waiting) + 1


@given(SETS, st.integers(0, 40), st.randoms(use_true_random=False))
def test_the_order_of_the_file_does_not_matter(sets: list[PromptSet], limit: int, random: object) -> None:
    shuffled = sorted(sets, key=lambda _: random.random())  # type: ignore[attr-defined]
    assert set(ids(stratified_sample(sets, limit))) == set(ids(stratified_sample(shuffled, limit)))


@pytest.mark.parametrize("limit", [None, 42, 1000])
def test_no_limit_or_a_generous_one_is_everything(limit: int | None) -> None:
    sets = load_dataset("starter").prompt_sets
    assert stratified_sample(sets, limit) == sets


def test_42_of_the_published_sets_are_one_a_cell(published: Path) -> None:
    sample = stratified_sample(load_dataset(str(published / "opensafeintent-700.json")).prompt_sets, 42)
    assert set(Counter(prompt_set.cell for prompt_set in sample).values()) == {1}
    assert len({prompt_set.cell for prompt_set in sample}) == 42
