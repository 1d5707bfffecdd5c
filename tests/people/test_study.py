"""Drawing responses: strata, weights, whole sets."""

from __future__ import annotations

from collections import Counter

import pytest

from opensafeintent.errors import InputError
from opensafeintent.people.labels import Unit
from opensafeintent.people.study import allocate, draw
from opensafeintent.responses import GradedResponse
from samples import grade_line

CORE = ("benign", "dual_use", "malicious")


def candidates(sets: int, unsafe: int, models: tuple[str, ...] = ("m",)) -> list[GradedResponse]:
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
    drawn = draw(candidates(20, 4), 12, 1, "response")
    # Strata: benign 20, dual-use 20, malicious safe 16, malicious unsafe 4; three of each are
    # drawn.
    weights = {item.stratum: item.weight for item in drawn}
    malicious = {"malicious | safe": 16, "malicious | unsafe": 4}
    expected = {"benign | safe": 20, "dual_use | safe": 20} | malicious
    assert weights == {f"m | {name}": pytest.approx(size / 3) for name, size in expected.items()}
    assert Counter(item.stratum for item in drawn) == dict.fromkeys(weights, 3)
    assert sum(item.weight for item in drawn) == pytest.approx(60)  # the responses that there are


@pytest.mark.parametrize("unit", ["response", "set"])
def test_models_have_equal_shares(unit: Unit) -> None:
    population = [*candidates(42, 2, ("few",)), *candidates(42, 20, ("many",))]
    drawn = draw(population, 60, 1, unit)
    of_model = Counter(
        (item.model, item.id, item.variant if unit == "response" else "") for item in drawn
    )
    assert Counter(model for model, *_ in of_model) == {"few": 30, "many": 30}
    # each stratum still stands for all of its units
    assert sum(item.weight for item in drawn) == pytest.approx(2 * 42 * 3)
    assert {item.stratum for item in drawn} == {
        item.stratum for item in draw(population, 99, 1, unit)
    }


def test_a_model_with_many_strata_has_one_of_each() -> None:
    # "few" has three strata, "many" four: seven units are just enough
    drawn = draw([*candidates(9, 0, ("few",)), *candidates(9, 4, ("many",))], 7, 1, "response")
    assert Counter(item.model for item in drawn) == {"few": 3, "many": 4}
    assert set(Counter(item.stratum for item in drawn).values()) == {1}


def test_a_draw_repeats_and_a_seed_changes_it() -> None:
    population = candidates(30, 10)
    assert draw(population, 12, 5, "response") == draw(population[::-1], 12, 5, "response")
    assert draw(population, 12, 5, "response") != draw(population, 12, 6, "response")


def test_paraphrases_count_as_dual_use() -> None:
    extra = [grade_line("m", "s0", "dual_use_paraphrase_1", "40")]
    strata = {item.stratum for item in draw([*candidates(3, 0), *extra], 10, 0, "response")}
    assert strata == {f"m | {intent} | safe" for intent in CORE}


def test_a_stratum_without_a_chance_is_refused() -> None:
    with pytest.raises(InputError, match="--sample 3: there are 4 strata"):
        draw(candidates(20, 4), 3, 0, "response")
    with pytest.raises(InputError, match="nothing to sample"):
        draw([], 3, 0, "set")


def test_whole_sets_are_drawn_whole() -> None:
    *population, _ = candidates(10, 2)
    drawn = draw(population, 4, 0, "set")
    variants = Counter(item.id for item in drawn)
    assert set(variants.values()) == {3} and len(variants) == 4
    assert "s9" not in variants  # its last response is not there
    # Strata: 2 unsafe sets, 7 safe ones; two of each are drawn.
    assert {item.stratum: item.weight for item in drawn} == {
        "m | set | safe": 3.5,
        "m | set | unsafe": 1.0,
    }


def test_a_set_is_drawn_once_with_all_of_its_epochs() -> None:
    population = [
        grade_line("m", f"s{n}", variant, "41" if (n, epoch) == (0, 3) else "40", epoch=epoch)
        for n in range(10)
        for epoch in (1, 2, 3)
        for variant in CORE
        if (n, epoch, variant) != (9, 2, "malicious")
    ]
    # the unsafe stratum is s0, which is unsafe in one epoch; of the nine others three are drawn
    drawn = draw(population, 4, 0, "set")
    assert len({item.id for item in drawn}) == 4
    assert {item.stratum: item.weight for item in drawn} == {
        "m | set | safe": 3.0,
        "m | set | unsafe": 1.0,
    }
    everything = Counter(item.id for item in draw(population, 99, 0, "set"))
    # three epochs of three responses; the second epoch of s9 lacks a response
    assert everything == {f"s{n}": 6 if n == 9 else 9 for n in range(10)}
