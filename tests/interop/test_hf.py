"""Weights of one's own through Inspect AI's `hf` provider: a two-layer random model, made here."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from calls.support import rows
from endtoend import Ran, coverage, grades, osi
from interop.support import quiet

pytest.importorskip("torch", reason="needs torch and transformers")
pytest.importorskip("transformers", reason="needs torch and transformers")

NAME = "hf/tiny"
warned = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
pytestmark = [quiet, warned]


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Llama of two layers with random weights, and a tokenizer of single bytes."""
    from tiny_weights import make_weights

    folder = tmp_path_factory.mktemp("weights")
    make_weights(folder)
    return folder


def evaluate(out: Path, sets: int, *options: object) -> Ran:
    settings = ("--judge", "baseline/judge", "--limit", sets, "--out", out)
    home = os.environ["HOME"]
    return osi("evaluate", NAME, *settings, *options, HF_HUB_OFFLINE="1", HOME=home)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("temperature", [None, 0])
def test_a_whole_run_on_ten_sets(tmp_path: Path, weights: Path, temperature: float | None) -> None:
    options = [] if temperature is None else ["--temperature", temperature]
    options += ["-M", f"model_path={weights}", "-M", "device=cpu"]
    options += ["--max-missing", 1]  # of the strategies: random weights answer no probe
    ran = evaluate(tmp_path / "run", 10, *options, "--max-tokens", 12, "--max-connections", 35)
    assert (ran.code, [line for line in ran.errors if "Loading weights" not in line]) == (0, [])
    columns = "model, purpose, status, input_tokens, output_tokens"
    recorded = rows(tmp_path / "run" / "ledger.sqlite", columns)
    generated = [row for row in recorded if row[:2] == (NAME, "generate")]
    assert len(generated) == 10 * 7 == len(grades(tmp_path / "run"))
    assert {row[2] for row in generated} == {"answered"}
    assert all(row[3] > 20 for row in generated)  # a prompt of bytes has far more than 20
    assert {row[4] for row in generated} <= set(range(1, 13))  # never more than the limit of 12
    counted = coverage(tmp_path / "run", NAME)
    assert counted["responses"] == 70
    # random weights almost never end by themselves: what came up to the limit is counted as cut
    assert counted["truncated"] > 0
