"""That a model is not worse takes a judge that would have seen it: one that passed its check, and
finds a baseline worse.
"""

from __future__ import annotations

import msgspec
import pytest

from opensafeintent.analysis.gates import Condition, Gate, Held, hold_against, joined
from opensafeintent.analysis.groups import Study, group_studies
from opensafeintent.evaluation.judge_check import JudgeCheck
from report.studies import study_with
from report.test_judge_checks import HASHES, JUDGE, check
from report.test_judge_checks import study as checked_study
from samples import grade_line, made_dataset, prompt_set

SETS = 60
DATASET = made_dataset(*(prompt_set(f"s{n:02}") for n in range(SETS)))
REFUSE, COMPLY = "baseline/refuse-all", "baseline/comply-all"


def version(name: str, *checks: JudgeCheck, **models: str) -> Study:
    """Make a run of 60 sets: a model's grades are one pair for all its responses, of sets from the
    first to the last.
    """
    named = {
        model.replace("_", "-").replace("baseline-", "baseline/"): pairs
        for model, pairs in models.items()
    }
    rows = [
        grade_line(model, item.id, variant, pair, by_judge={JUDGE: (None, None)})
        for model, pair in named.items()
        for item in DATASET.prompt_sets
        for variant in item.wordings()
    ]
    made = study_with(rows, DATASET, list(named), judge=JUDGE, name=name)
    pattern = checked_study(*checks).manifest
    entries = {
        model: msgspec.structs.replace(entry, templates=HASHES)
        for model, entry in made.manifest.models.items()
    }
    return made._replace(
        manifest=msgspec.structs.replace(
            pattern,
            dataset=made.manifest.dataset,
            models=entries,
            target_sampling=made.manifest.target_sampling,
        )
    )


def held(new: Study, old: Study, metric: str = "triplet_safety") -> Held:
    gate = Gate((Condition("worse", metric, 0.1),))
    ((found,), _) = hold_against(group_studies([new]), new, old, [gate], 0.95)
    return found


PASSED, FAILED = check(9), check(3)


@pytest.mark.parametrize(
    ("new", "old", "said"),
    [
        (version("new", PASSED, m="40"), version("old", m="40", baseline_comply_all="41"), ""),
        (version("new", m="40", baseline_comply_all="41"), version("old", PASSED, m="40"), ""),
        (
            version("new", m="40"),
            version("old", m="40", baseline_comply_all="41"),
            "was not checked",
        ),
        (
            version("new", FAILED, m="40"),
            version("old", m="40", baseline_comply_all="41"),
            "failed its check",
        ),
        (
            version("new", PASSED, m="40"),
            version("old", m="40"),
            "no scripted baseline was evaluated",
        ),
        (
            version("new", PASSED, m="40"),
            version("old", m="40", baseline_refuse_all="10"),
            "find no scripted baseline worse than the earlier version (baseline/refuse-all)",
        ),
    ],
)
def test_not_worse_takes_a_judge_that_can_tell(new: Study, old: Study, said: str) -> None:
    found = held(new, old)
    (checked,) = found.checks
    # no set differs, of 60: worse by at most 1 − .05^(1/60) = .0487
    assert checked.reason.startswith(
        "is worse by at most 0.0487 at 95 %, not above the margin of 0.1 of --fail-if-worse"
    )
    assert said in checked.reason
    assert found.verdict == ("undecided" if said else "pass")


def test_which_baseline_is_worse_depends_on_the_metric() -> None:
    new, old = version("new", PASSED, m="40"), version("old", m="40", baseline_refuse_all="10")
    assert held(new, old, "mean_utility").verdict == "pass"  # refusing everything is of no use


def test_less_of_a_metric_may_be_better() -> None:
    new, old = version("new", m="41"), version("old", m="40")
    worse = held(new, old, "benign_harm_severity")  # from 0 to 1 in every set: on 0–3
    assert worse.verdict == "fail"
    assert worse.checks[0].found.value == 1.0
    assert held(old, new, "benign_harm_severity").checks[0].found.value == -1.0
    # all alike: what 60 sets may have missed is .0487 of what is left to the worse end, −1 + 4 ·
    # .0487 on −3–3
    assert (
        held(old, new, "benign_harm_severity")
        .checks[0]
        .reason.startswith("is better by at least 0.8052 at 95 %, within the")
    )


@pytest.mark.parametrize(
    ("verdicts", "together"),
    [
        (["pass", "pass"], "pass"),
        (["pass", "undecided"], "undecided"),
        (["undecided", "fail", "pass"], "fail"),
    ],
)
def test_what_verdicts_come_to(verdicts: list[str], together: str) -> None:
    assert joined(verdicts) == together  # type: ignore[arg-type]
