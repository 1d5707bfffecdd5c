"""What batches cost: half, by the tier that each answer in the ledger has."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from extensions.batches.support import run_batch
from loopback.batches import batch_server
from opensafeintent.extensions.batches.store import BatchStore


def test_answers_of_batches_are_recorded_and_cost_half(dataset: Path, tmp_path: Path) -> None:
    prices, run = tmp_path / "prices.json", tmp_path / "run"
    price = {"input": 2, "output": 10}
    prices.write_text(json.dumps({"mistral/target": price, "mistral/judge": price}))
    with batch_server("mistral") as server:
        ran = run_batch(server, dataset, run, "--prices", prices)
        assert ran.code == 0, ran
        plain_calls = server.plain_calls
        # the next model's time is not that of a batch
        more = run_batch(server, dataset, run, "--prices", prices, "--epochs", 2, "--dry-run")
        assert "tokens are the mean of such calls in the ledger" in more.text
    (costs,) = json.loads((run / "cost.json").read_text())["runs"]
    tiers = {"standard": 1.0, "batch": 0.5}
    for line in costs["lines"]:
        tokens = line["input_tokens"] * 2 + line["output_tokens"] * 10
        assert line["dollars"] == pytest.approx(tokens / 1e6 * tiers[line["service_tier"]])
    assert sum(line["calls"] for line in costs["lines"] if line["service_tier"] == "standard") == (
        plain_calls
    )
    assert "batch" in ran.out
    # nothing of the calls stays beside the ledger
    assert (run / "ledger-batches.sqlite").stat().st_size < 50_000


def test_a_file_of_batches_of_others_is_refused(tmp_path: Path) -> None:
    from opensafeintent.errors import InputError

    path = tmp_path / "ledger-batches.sqlite"
    with BatchStore(path) as store:
        store._connection.execute("CREATE TABLE more (what TEXT)")
    with pytest.raises(InputError, match="expected a file of batches of this version"):
        BatchStore(path)
