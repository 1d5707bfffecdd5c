"""What the flips of a model are made of, from grades to `metrics.json`, tables, figure and
sentences.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from opensafeintent.calls.records import Sampling
from opensafeintent.numbers.cohort import Cohort
from opensafeintent.report.findings import collect_findings
from report.runs import changed, cohort_of, metrics_json, run_with
from samples import grade_line, made_dataset, prompt_set


def graded(epochs: Mapping[str, Sequence[str]], temperature: float | None = None) -> Cohort:
    dataset = made_dataset(*(prompt_set(name, paraphrases=2) for name in epochs))
    wordings = ("dual_use", "dual_use_paraphrase_1", "dual_use_paraphrase_2")
    rows = [
        grade_line("m", name, variant, f"3{harm}", epoch=epoch)
        for name, grades in epochs.items()
        for epoch, harms in enumerate(grades, start=1)
        for variant, harm in zip(wordings, harms, strict=True)
    ]
    sampling = Sampling(temperature=temperature)
    return cohort_of(changed(run_with(rows, dataset), target_sampling=sampling))


BY_HAND = {"s1": ("003", "033"), "s2": ("000", "000"), "s3": ("030", "300")}


def entry(cohort: Cohort, name: str) -> dict[str, Any]:
    result: dict[str, Any] = metrics_json(cohort)["models"]["m"][name]
    return result


def test_the_example_of_the_docs() -> None:
    cohort = graded(BY_HAND)
    excess = entry(cohort, "paraphrase_effect")
    assert (excess["value"], excess["n"]) == (pytest.approx(1 / 18), 3)
    assert (excess["between"], excess["within"]) == (pytest.approx(7 / 18), pytest.approx(1 / 3))
    assert excess["unknown"] is None


def test_epochs_that_never_differ_leave_the_wording_alone() -> None:
    # s1: two of three pairs of wordings differ, whatever the epoch; s2: none
    excess = entry(graded({"s1": ("003", "003"), "s2": ("000", "000")}), "paraphrase_effect")
    assert (excess["value"], excess["within"]) == (pytest.approx(1 / 3), 0)
    # the span of two epochs and three wordings is −1/2 to 2·1·2/(3·2)
    assert excess["ci"][0] >= -0.5 and excess["ci"][1] == pytest.approx(2 / 3, abs=1e-6)


@pytest.mark.parametrize(
    ("epochs", "temperature", "why"),
    [
        ({"s1": ("003",), "s2": ("000",)}, None, "one epoch"),
        ({"s1": ("003", "---"), "s2": ("000", "0-0")}, None, "one epoch"),
        ({"s1": ("0--", "---"), "s2": ("00-", "0-0")}, None, "no wordings"),
        (BY_HAND, 0.0, "temperature 0"),
    ],
)
def test_where_nothing_can_be_known_it_says_why(
    epochs: Mapping[str, Sequence[str]], temperature: float | None, why: str
) -> None:
    cohort = graded(epochs, temperature)
    result = entry(cohort, "paraphrase_effect")
    assert (result["value"], result["n"], result["ci"], result["unknown"]) == (None, 0, None, why)
    assert not any(
        "owed to the wording for" in sentence.text for sentence in collect_findings(cohort)
    )
