"""A run in batches that is killed between any two steps; `benchmarks/batches.py` has more seeds."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from batches.killing import carry_through, plain_metrics, schedule
from endtoend import some_sets


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("killed")


@cache
def _plain(folder: Path, dataset: Path, form: str, separators: bool) -> bytes:
    run = folder / f"{form}-{separators}"
    return plain_metrics(form, dataset, run, separators=separators)


@pytest.mark.parametrize(
    "seed",
    [*(7, 8), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(9, 24))],
)
def test_a_run_that_is_killed_anywhere_ends_as_one_with_plain_calls(
    seed: int, folder: Path, tmp_path: Path
) -> None:
    plan = schedule(seed)
    dataset = folder / "sets-2-2.jsonl"
    if not dataset.exists():
        some_sets(folder, 2, paraphrases=2)
    ended = carry_through(plan, dataset, tmp_path / "run")
    assert (ended.code, ended.asked_twice) == (0, []), plan
    separators = plan.faults["separators"]
    assert ended.metrics == _plain(folder, dataset, plan.form, separators), plan
