"""Which model is the earlier version of which."""

from __future__ import annotations

import pytest

from opensafeintent.calls.records import Sampling
from opensafeintent.errors import InputError
from opensafeintent.numbers.cohort import GradedRun
from opensafeintent.numbers.gates import list_treatment_changes, match_earlier_versions
from report.runs import changed, run_with
from samples import made_dataset, prompt_set

REFUSE, COMPLY = "baseline/refuse-all", "baseline/comply-all"


@pytest.mark.parametrize(
    ("old", "new", "pairs", "result"),
    [
        ([REFUSE, "a", "b"], ["b", "a", "c", REFUSE], [], {"b": "b", "a": "a", REFUSE: REFUSE}),
        # the only model of each run is the same, whatever it is called
        ([REFUSE, "m-1"], ["m-2", REFUSE, COMPLY], [], {"m-2": "m-1", REFUSE: REFUSE}),
        ([REFUSE, COMPLY], [COMPLY], [], {COMPLY: COMPLY}),
        ([REFUSE], [COMPLY], [], {COMPLY: REFUSE}),  # so is a baseline with nothing beside it
        # named pairs come first, and one version may have two successors
        (["a", "b"], ["a", "c"], ["a=b", "c=b"], {"a": "b", "c": "b"}),
        (["a1", "b"], ["a2", "c"], ["a2=a1"], {"a2": "a1"}),  # what is left is not guessed at
        (["b", "x"], ["c=1", "x"], ["c=1=b"], {"c=1": "b", "x": "x"}),
    ],
)
def test_earlier_versions(
    old: list[str], new: list[str], pairs: list[str], result: dict[str, str]
) -> None:
    assert list(match_earlier_versions(old, new, pairs).items()) == list(result.items())


@pytest.mark.parametrize(
    ("old", "new", "pairs", "message"),
    [
        (["a", "b"], ["c", "d"], [], "name them with --pair NEW=OLD"),
        ([REFUSE], ["a", REFUSE], [], "none of 'a' is known"),
        (["a", "b"], ["a", "b"], ["b=a", "b=b"], "--pair b=b: 'b' has another earlier version"),
        (["a"], ["c"], ["c"], "expected NEW=OLD"),
        (["a"], ["c"], ["=a"], "expected NEW=OLD"),
        (["a"], ["c"], ["q=a"], "the later run ('c')"),
        (["a"], ["c"], ["c=q"], "the earlier ('a')"),
        (["b", "t=b"], ["s=t", "s"], ["s=t=b"], "in one reading"),
    ],
)
def test_what_cannot_be_paired_is_told(
    old: list[str], new: list[str], pairs: list[str], message: str
) -> None:
    with pytest.raises(InputError) as caught:
        match_earlier_versions(old, new, pairs)
    assert message in str(caught.value) and "\n" not in str(caught.value)


STUDY = changed(
    run_with([], made_dataset(prompt_set("one")), ["m"], judge="lab/judge"),
    judges={"lab/judge": "lab/judge@1"},
)
OTHER = run_with([], made_dataset(prompt_set("two"), name="other")).manifest.dataset
HASHES = (STUDY.dataset.hash[:16], OTHER.hash[:16])
SAMPLED = {"target_sampling": Sampling(temperature=0.5), "system": "be kind"}


@pytest.mark.parametrize(
    ("new", "message"),
    [
        (STUDY, []),
        (changed(STUDY, entry={"limit": 5, "epochs": 3, "identity": "newer"}), []),
        (changed(STUDY, dataset=OTHER), ["dataset: made {}, now other {}".format(*HASHES)]),
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
            changed(STUDY, **SAMPLED),
            ['sampling: {}, now {"temperature":0.5}', "system prompt: none, now be kind"],
        ),
    ],
)
def test_what_else_changed_between_two_versions_is_named(
    new: GradedRun, message: list[str]
) -> None:
    assert list_treatment_changes(STUDY, new) == message
