"""Drawing responses, and the order in which people meet them."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from opensafeintent.annotation.study import allocate, draw_responses, draw_sets, order_with_repeats
from opensafeintent.errors import InputError
from opensafeintent.grades import GradeRow
from samples import grade_line

CORE = ("benign", "dual_use", "malicious")


def candidates(sets: int, unsafe: int, models: tuple[str, ...] = ("m",)) -> list[GradeRow]:
    """Make core responses of which the first `unsafe` malicious ones of each model are unsafe."""
    return [
        grade_line(model, f"s{n}", variant, "41" if variant == "malicious" and n < unsafe else "40")
        for model in models
        for n in range(sets)
        for variant in CORE
    ]


@pytest.mark.parametrize(
    ("sizes", "sample", "shares"),
    [
        ({"a": 10, "b": 10}, 6, {"a": 3, "b": 3}),
        ({"a": 10, "b": 1}, 6, {"a": 5, "b": 1}),  # b can give one only; a takes the rest
        ({"a": 10, "b": 10, "c": 10}, 7, {"a": 2, "b": 2, "c": 3}),
        ({"a": 2, "b": 3}, 99, {"a": 2, "b": 3}),
    ],
)
def test_shares_are_even_as_far_as_strata_reach(
    sizes: dict[str, int], sample: int, shares: dict[str, int]
) -> None:
    assert allocate(sizes, sample) == shares


def test_weights_are_one_over_the_probability() -> None:
    drawn = draw_responses(candidates(20, 4), 12, seed=1)
    # Strata: benign 20, dual-use 20, malicious safe 16, malicious unsafe 4; three of each are
    # drawn.
    weights = {item.stratum: item.weight for item in drawn}
    assert weights == {
        "m | benign | safe": pytest.approx(20 / 3),
        "m | dual_use | safe": pytest.approx(20 / 3),
        "m | malicious | safe": pytest.approx(16 / 3),
        "m | malicious | unsafe": pytest.approx(4 / 3),
    }
    assert Counter(item.stratum for item in drawn) == dict.fromkeys(weights, 3)
    assert sum(item.weight for item in drawn) == pytest.approx(60)  # the responses that there are


def test_a_weighted_rate_is_unbiased() -> None:
    population = candidates(20, 4)
    rates = []
    for seed in range(300):
        drawn = draw_responses(population, 8, seed)
        # Who is counted depends on the set alone, and lies across the strata: 7 of 20 sets, so 21
        # of 60 responses.
        rates.append(sum(item.weight for item in drawn if int(item.id[1:]) % 3 == 0) / 60)
    assert sum(rates) / len(rates) == pytest.approx(21 / 60, abs=0.02)


def test_a_draw_repeats_and_a_seed_changes_it() -> None:
    population = candidates(30, 10)
    assert draw_responses(population, 12, 5) == draw_responses(population[::-1], 12, 5)
    assert draw_responses(population, 12, 5) != draw_responses(population, 12, 6)


def test_paraphrases_count_as_dual_use() -> None:
    extra = [grade_line("m", "s0", "dual_use_paraphrase_1", "40")]
    strata = {item.stratum for item in draw_responses([*candidates(3, 0), *extra], 10, 0)}
    assert strata == {f"m | {intent} | safe" for intent in CORE}


def test_a_stratum_without_a_chance_is_refused() -> None:
    with pytest.raises(InputError, match="--sample 3: there are 4 strata"):
        draw_responses(candidates(20, 4), 3, 0)
    with pytest.raises(InputError, match="nothing to sample"):
        draw_responses([], 3, 0)


def test_whole_sets_are_drawn_whole() -> None:
    population = [
        item for item in candidates(10, 2) if (item.set_id, item.variant) != ("s9", "benign")
    ]
    drawn = draw_sets(population, 4, 0)
    variants = Counter(item.id for item in drawn)
    assert set(variants.values()) == {3} and len(variants) == 4
    assert "s9" not in variants  # not whole
    # Strata: 2 unsafe sets, 7 safe ones; two of each are drawn.
    assert {item.stratum: item.weight for item in drawn} == {
        "m | set | safe": 3.5,
        "m | set | unsafe": 1.0,
    }


@pytest.mark.parametrize(
    ("count", "repeat", "repeats"),
    [(115, 0.08, 9), (120, 0.08, 10), (4, 0.08, 1), (3, 0.08, 0), (50, 0, 0)],
)
def test_a_share_is_met_twice_and_never_soon(count: int, repeat: float, repeats: int) -> None:
    for seed in range(20):
        order = order_with_repeats(range(count), repeat, Random(seed))
        assert sorted(item for item, again in order if not again) == list(range(count))
        places = {item: place for place, (item, again) in enumerate(order) if not again}
        second = {item: place for place, (item, again) in enumerate(order) if again}
        assert len(second) == sum(again for _, again in order) == repeats
        assert all(second[item] - places[item] > max(2, count // 4) for item in second)
