"""A sample holds of each cell its share, and a larger one contains every smaller one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from statistics import mean, stdev

import pytest
from hypothesis import given, strategies as st

from opensafeintent import load_dataset
from opensafeintent.errors import InputError
from opensafeintent.files import sha256_hex
from opensafeintent.promptsets import PromptSet, draw_sets, sample_order, sample_sets
from samples import prompt_set


def of_cell(set_id: str, cell: tuple[str, str]) -> PromptSet:
    return prompt_set(set_id, domain=cell[0], task_type=cell[1])


PLACES = st.dictionaries(
    st.text("abcdef0123456789", min_size=1),
    st.tuples(st.sampled_from("PQR"), st.sampled_from("xy")),
)
SETS = PLACES.map(lambda places: [of_cell(set_id, cell) for set_id, cell in places.items()])
"""Sets with their own ids, spread unevenly over up to six cells."""


def ids(sets: tuple[PromptSet, ...]) -> list[str]:
    return [item.id for item in sets]


def widest(order: tuple[PromptSet, ...], of: Callable[[PromptSet], object]) -> float:
    """Return by how many sets any prefix has most too many or too few of anything."""
    whole, drawn, most = Counter(map(of, order)), Counter[object](), 0.0
    for n, item in enumerate(order, 1):
        drawn[of(item)] += 1
        off = (abs(drawn[name] - n * count / len(order)) for name, count in whole.items())
        most = max(most, *off)
    return most


def test_the_order_worked_by_hand() -> None:
    # a cell of four and one of two, which start half a set apart: u and u + ½ (or u − ½), so that
    # (r + start)/N_h are u/4, (1 + u)/4, … and (u + ½)/2, …
    cells = {f"a{n}": ("P", "x") for n in range(4)} | {f"b{n}": ("Q", "x") for n in range(2)}
    order = sample_order([of_cell(*entry) for entry in cells.items()])
    dataset = sha256_hex("\0".join(sorted(cells)))
    turns = sorted("PQ", key=lambda name: sha256_hex(dataset + name))
    first = int(dataset[:12], 16) / 16**12
    start = {name: (first + turn / 2) % 1 for turn, name in enumerate(turns)}
    places = [((n + start["P"]) / 4, "P") for n in range(4)]
    places += [((n + start["Q"]) / 2, "Q") for n in range(2)]
    assert [item.harm_domain for item in order] == [name for _, name in sorted(places)]
    of_p = [set_id for set_id in ids(order) if set_id.startswith("a")]
    assert of_p == sorted(of_p, key=sha256_hex)  # within a cell by the ids' hashes


def test_no_size_of_cell_comes_first() -> None:
    """Six cells of ten and 36 of one: in samples of many datasets, small cells have their share."""
    shares = []
    for dataset in range(200):
        cells = [(f"domain {n % 7}", f"type {n % 6}") for n in range(42)]
        sets = [
            of_cell(f"{dataset} {number} {member}", cell)
            for number, cell in enumerate(cells)
            for member in range(10 if number < 6 else 1)
        ]
        large = {item.id for item in sets if item.cell in cells[:6]}
        shares.append(sum(item.id in large for item in draw_sets(sets, 24)) / 24)
        assert abs(shares[-1] - 60 / 96) < 0.2
    error = stdev(shares) / 200**0.5
    assert abs(mean(shares) - 60 / 96) < 4 * error + 0.001  # 1.00 in the earlier order


@given(SETS, st.randoms(use_true_random=False))
def test_the_order_has_every_set_once_whatever_the_files(
    sets: list[PromptSet], random: object
) -> None:
    shuffled = sorted(sets, key=lambda _: random.random())  # type: ignore[attr-defined]
    order = sample_order(sets)
    assert sorted(ids(order)) == sorted(item.id for item in sets)
    assert order == sample_order(shuffled)


@given(SETS)
def test_what_a_prefix_has_of_a_cell_is_its_share_to_within_a_set(sets: list[PromptSet]) -> None:
    # (r − u)/N_h puts n_h within 1 of where the sequence stands; the ranks of the other cells add
    # less than one set
    order = sample_order(sets)
    assert not order or widest(order, lambda item: item.cell) < 2


def test_cells_that_tie_take_turns_over_domains_and_types() -> None:
    order = load_dataset("starter").prompt_sets  # one set a cell: everything ties
    assert widest(sample_order(order), lambda item: item.harm_domain) < 1.5
    assert widest(sample_order(order), lambda item: item.task_type) < 1.5


@given(SETS, st.integers(0, 40))
def test_a_sample_is_a_prefix_of_the_order(sets: list[PromptSet], limit: int) -> None:
    assert draw_sets(sets, limit) == sample_order(sets)[:limit]
    assert set(sample_sets(sets, limit)) == set(draw_sets(sets, limit))
    assert draw_sets(sets, None) == sample_order(sets)


def test_less_than_nothing_is_refused() -> None:
    with pytest.raises(InputError, match="--limit -1: expected 0 or more"):
        draw_sets((), -1)
