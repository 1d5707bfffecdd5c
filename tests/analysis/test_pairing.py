"""Which model is the earlier version of which."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from opensafeintent.analysis.groups import Study
from opensafeintent.analysis.pairing import Pair, pair_models, read_pairs, what_changed
from opensafeintent.calls.records import Sampling
from opensafeintent.errors import InputError
from report.studies import study_with
from samples import made_dataset, prompt_set

REFUSE, COMPLY = "baseline/refuse-all", "baseline/comply-all"


def test_models_of_one_name_belong_together_in_the_order_of_the_later_run() -> None:
    found = pair_models([REFUSE, "a", "b", "gone"], ["b", "a", "come", REFUSE])
    assert found == (Pair("b", "b"), Pair("a", "a"), Pair(REFUSE, REFUSE))


def test_the_only_model_of_each_run_is_the_same_whatever_it_is_called() -> None:
    found = pair_models([REFUSE, "lab/model-1"], ["lab/model-2", REFUSE, COMPLY])
    assert found == (Pair("lab/model-1", "lab/model-2"), Pair(REFUSE, REFUSE))


def test_baselines_are_paired_where_there_is_nothing_else() -> None:
    assert pair_models([REFUSE, COMPLY], [COMPLY]) == (Pair(COMPLY, COMPLY),)


def test_pairs_that_are_named_come_first_and_one_version_may_have_two_successors() -> None:
    found = pair_models(["a", "b"], ["a", "c"], [Pair("b", "a"), Pair("b", "c")])
    assert found == (Pair("b", "a"), Pair("b", "c"))


def test_what_is_left_over_is_not_guessed_at() -> None:
    found = pair_models(["a1", "b"], ["a2", "c"], [Pair("a1", "a2")])
    assert found == (Pair("a1", "a2"),)


@pytest.mark.parametrize(
    ("old", "new", "named", "said"),
    [
        (["a", "b"], ["c", "d"], [], "name them with --pair NEW=OLD"),
        ([REFUSE], ["a", REFUSE], [], "'a' and 'baseline/refuse-all'; name them"),
        (
            ["a", "b"],
            ["a", "b"],
            [Pair("a", "b"), Pair("b", "b")],
            "'b' has two earlier versions, 'a', 'b'",
        ),
        (
            ["lab/one", "b"],
            ["a"],
            [Pair("lab/oen", "a")],
            "the earlier run has no model 'lab/oen'; did you mean 'lab/one'",
        ),
        (
            ["a"],
            ["lab/two"],
            [Pair("a", "lab/tow")],
            "the later run has no model 'lab/tow'; did you mean 'lab/two'",
        ),
    ],
)
def test_what_cannot_be_paired_is_told(
    old: list[str], new: list[str], named: list[Pair], said: str
) -> None:
    with pytest.raises(InputError) as caught:
        pair_models(old, new, named)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_pairs_are_read_with_equals_signs_in_names() -> None:
    assert read_pairs(["c=1=b", "x=x"], ["b", "x"], ["c=1", "x"]) == [
        Pair("b", "c=1"),
        Pair("x", "x"),
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("b", "expected NEW=OLD"),
        ("=a", "expected NEW=OLD"),
        ("b=", "expected NEW=OLD"),
        ("q=b", "the later run has no model 'q'; valid: c, s=t, s"),
        ("c=q", "the earlier run has no model 'q'"),
        ("s=t=b", "can be read in 2 ways"),
    ],
)
def test_a_pair_that_fits_nowhere_is_told(text: str, said: str) -> None:
    with pytest.raises(InputError) as caught:
        read_pairs([text], ["b", "t=b"], ["c", "s=t", "s"])
    assert str(caught.value).startswith("--pair")
    assert said in str(caught.value)


def changed(study: Study, *, entry: dict[str, Any] | None = None, **fields: Any) -> Study:
    """Return a run whose manifest, or whose model's entry, is another."""
    models = {"m": msgspec.structs.replace(study.manifest.models["m"], **(entry or {}))}
    return study._replace(manifest=msgspec.structs.replace(study.manifest, models=models, **fields))


STUDY = changed(
    study_with([], made_dataset(prompt_set("one")), ["m"], judge="lab/judge"),
    judges={"lab/judge": "lab/judge@1"},
)
OTHER = study_with(
    [], made_dataset(prompt_set("two"), name="other"), ["m"], judge="lab/judge"
).manifest.dataset


@pytest.mark.parametrize(
    ("new", "said"),
    [
        (STUDY, []),
        (changed(STUDY, entry={"limit": 5, "epochs": 3, "identity": "newer"}), []),
        (
            changed(STUDY, dataset=OTHER),
            [f"dataset: made {STUDY.dataset.hash[:8]}, now other {OTHER.hash[:8]}"],
        ),
        (
            changed(STUDY, entry={"judges": ("lab/judge", "b")}),
            ["judges: lab/judge, now b + lab/judge"],
        ),
        (changed(STUDY, entry={"mode_judge": ""}), ["judge of modes: lab/judge, now none"]),
        (
            changed(STUDY, judges={"lab/judge": "lab/judge@2"}),
            ["who serves lab/judge: lab/judge@1, now lab/judge@2"],
        ),
        (
            changed(STUDY, entry={"templates": {"harm": "ab", "mode": "c"}}),
            ["judge templates: harm, mode"],
        ),
        (changed(STUDY, entry={"parse": "paper"}), ["grades read as: strict, now paper"]),
        (
            changed(
                STUDY,
                target_sampling=Sampling(temperature=0.5),
                system="be kind",
                judge_sampling=None,
            ),
            [
                'sampling: {}, now {"temperature":0.5}',
                'system prompt: none, now "be kind"',
                "judge sampling: {}, now none",
            ],
        ),
    ],
)
def test_what_else_changed_between_two_versions_is_named(new: Study, said: list[str]) -> None:
    assert what_changed(STUDY, new, Pair("m", "m")) == said
