"""Gates against an earlier run: which direction is worse, and which judges are not known to see it."""

from __future__ import annotations

import msgspec
import pytest

from opensafeintent.analysis.cohort import Study, group_studies
from opensafeintent.analysis.gates import Gate, Gates, hold_against
from opensafeintent.evaluation.judge_check import JudgeCheck
from report.studies import study_with
from report.test_judge_checks import HASHES, JUDGE, check, study as checked_study
from samples import grade_line, made_dataset, prompt_set

SETS = 60
DATASET = made_dataset(*(prompt_set(f"s{n:02}") for n in range(SETS)))


def version(name: str, *checks: JudgeCheck, **models: str) -> Study:
    """Make a run of 60 sets: a model's grades are one pair for all its responses, of sets from the
    first to the last.
    """
    rows = [
        grade_line(model, item.id, variant, pair, by_judge={JUDGE: (None, None)})
        for model, pair in models.items()
        for item in DATASET.prompt_sets
        for variant in item.wordings()
    ]
    made = study_with(rows, DATASET, list(models), judge=JUDGE, name=name)
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


def against(new: Study, old: Study, metric: str = "triplet_safety") -> Gates:
    gates = [Gate("worse", metric, 0.1)]
    return hold_against(group_studies([new]), new, old, gates, 0.95)


@pytest.mark.parametrize(
    ("new", "old", "cautions"),
    [
        ((check(9),), (), []),
        ((), (check(9),), []),
        ((), (), ["was not checked"]),
        ((check(3),), (), ["failed its check"]),
    ],
)
def test_a_judge_that_may_not_see_it_is_a_caution(
    new: tuple[JudgeCheck, ...], old: tuple[JudgeCheck, ...], cautions: list[str]
) -> None:
    found = against(version("new", *new, m="40"), version("old", *old, m="40"))
    (result,) = found.results
    # no set differs, of 60: worse by at most 1 − .05^(1/60) = .0487
    assert result.verdict == "pass"
    assert result.estimate.high == pytest.approx(0.0487, abs=1e-4)
    assert len(found.cautions) == len(cautions)
    assert all(said in line for said, line in zip(cautions, found.cautions, strict=True))


def test_less_of_a_metric_may_be_better() -> None:
    new, old = version("new", m="41"), version("old", m="40")
    (worse,) = against(new, old, "benign_harm_severity").results
    assert (worse.verdict, worse.estimate.value) == ("fail", 1.0)  # from 0 to 1 in every set
    (better,) = against(old, new, "benign_harm_severity").results
    assert (better.verdict, better.estimate.value) == ("pass", -1.0)
    # all alike: what 60 sets may have missed is .0487 of what is left to the worse end, −1 + 4 ·
    # .0487 on −3–3
    assert better.estimate.high == pytest.approx(-0.8052, abs=1e-4)
