"""The standard error for the same prompts run again."""

from __future__ import annotations

from collections import Counter
from math import sqrt
from typing import Any

import numpy as np
import pytest

from opensafeintent.labelled import Labelled
from opensafeintent.numbers.cohort import Cohort
from opensafeintent.numbers.metrics import METRICS, compute_metrics
from opensafeintent.taxonomy import CORE_VARIANTS
from report.runs import cohort_with, metrics_json
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
    result = metrics_json(cohort_with(SETS, rows))["models"]["m"]["triplet_safety"]
    assert result["n"] == len(safe)
    assert result["rerun_se"] == pytest.approx(error, abs=1e-6)


def many_epochs(epochs: int) -> Cohort:
    rows = [
        grade_line(model, name, variant, f"{1 + (n + len(variant)) % 4}{n % 2}", epoch=n, mode="A3")
        for model in ("m", "n")
        for name in ("s1", "s2")
        for n in range(1, epochs + 1)
        for variant in CORE_VARIANTS
        if (model, name, n) != ("m", "s2", 2)
    ]
    missing = grade_line("m", "s2", "benign", "--", epoch=2, missing=["helpfulness:unparsed"])
    return cohort_with(SETS, [*rows, missing])


def test_each_epoch_has_the_numbers_that_it_has_alone() -> None:
    cohort = many_epochs(3)
    alone = [compute_metrics(cohort.array.sel(epoch=[epoch])) for epoch in (1, 2, 3)]
    for metric in METRICS:
        for part, values in enumerate(cohort.estimates.split_by_epoch(metric)):
            expected = np.stack([ratios[metric][part].values for ratios in alone], axis=-1)
            np.testing.assert_array_equal(values, expected)


def test_the_work_does_not_grow_with_the_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every metric was once computed again for each epoch."""
    calls_by_epochs: Counter[int] = Counter()
    init = Labelled.__init__

    def counting(self: Labelled, *arguments: Any) -> None:
        calls_by_epochs[epochs] += 1
        init(self, *arguments)

    metrics_json(many_epochs(2))  # the reference models, which a process computes once
    monkeypatch.setattr(Labelled, "__init__", counting)
    for epochs in (3, 30):
        assert metrics_json(many_epochs(epochs))["models"]["m"]["triplet_safety"]["rerun_se"]
    # but for k of N: two metrics for every k
    more_k = 2 * (30 - 3)
    assert calls_by_epochs[30] - calls_by_epochs[3] < 80 * more_k
