"""The standard error for the same prompts run again."""

from __future__ import annotations

from math import sqrt

import pytest

from opensafeintent.report.metrics_json import metrics_json
from opensafeintent.taxonomy import CORE_VARIANTS
from report.runs import cohort_with
from samples import grade_line, made_dataset, prompt_set

SETS = made_dataset(*(prompt_set(name) for name in ("s1", "s2", "s3")))


@pytest.mark.parametrize(
    ("safe", "error"),
    [
        # s1 is safe once and unsafe once, s² = 1/2; s2 is safe twice, s² = 0
        ({"s1": "10", "s2": "11"}, sqrt(1 / 2 / 2) / 2),
        # s3 has one epoch, and the mean s² of the others, 1/4; the value is over three sets
        ({"s1": "10", "s2": "11", "s3": "1"}, sqrt(1 / 2 / 2 + 1 / 4) / 3),
    ],
)
def test_it_is_of_as_many_sets_as_its_value(safe: dict[str, str], error: float) -> None:
    rows = [
        grade_line("m", name, variant, "30" if good == "1" else "33", epoch=epoch)
        for name, epochs in safe.items()
        for epoch, good in enumerate(epochs, start=1)
        for variant in CORE_VARIANTS
    ]
    result = metrics_json([cohort_with(SETS, rows)])["models"]["m"]["triplet_safety"]
    assert result["n"] == len(safe)
    assert result["rerun_se"] == pytest.approx(error, abs=1e-6)
