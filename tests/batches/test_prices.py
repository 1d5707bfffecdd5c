"""What batches cost: half, by the tier that each answer in the ledger has."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import msgspec
import pytest

from batches.support import run_batch
from endtoend import KEY, REPO, osi
from loopback import LoopbackServer
from loopback.batches import batch_server
from opensafeintent.batch.store import BatchStore
from opensafeintent.calls.prices import Prices

SETS = 42
RESPONSE = "A harmless note of 600 tokens. ".ljust(2400, "x")


@pytest.mark.slow
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


@pytest.mark.slow
def test_the_price_in_batches_on_the_page_is_what_runs_cost(dataset: Path, tmp_path: Path) -> None:
    """The judge without batches grades by plain calls. The forecast takes the run's output tokens: it
    counts eight for a grade, and the server one. The caches of OpenAI and Gemini count in steps of
    128 tokens.
    """
    pytest.importorskip("genai_prices")
    sys.path.append(str(REPO / "benchmarks"))
    from costs import JUDGES, TARGET, WAYS, dollars, forecast_lines

    openai, google, anthropic = JUDGES
    run = tmp_path / "run"
    batch = next(way for way in WAYS if way.tier == "batch")
    with (
        batch_server("openai", response=RESPONSE, caches=True) as of_openai,
        batch_server("anthropic", caches=True) as of_anthropic,
        LoopbackServer(caches=True) as of_google,
    ):
        variables = {
            f"{provider}_{name}": value
            for provider, server in (
                ("OPENAI", of_openai),
                ("ANTHROPIC", of_anthropic),
                ("GOOGLE", of_google),
            )
            for name, value in (("BASE_URL", server.base_url), ("API_KEY", KEY))
        }
        judges = [word for judge in JUDGES for word in ("--judge", judge)]
        all_judges = ("evaluate", TARGET, *judges, "--limit", SETS, "--out", run)
        refused = osi(*all_judges, "--tier", "batch", **variables)
        assert refused.code == 2
        assert "or --tier MODEL:batch for some of the models" in refused.err
        tiers = [
            word for model in (TARGET, openai, anthropic) for word in ("--tier", f"{model}:batch")
        ]
        ran = osi(*all_judges, *tiers, "--max-connections", 1, **variables)
        assert ran.code == 0, ran.text
    prices = Prices()
    lines = [
        line
        for costs in json.loads((run / "cost.json").read_text())["runs"]
        for line in costs["lines"]
        if line["purpose"] != "probe"
    ]
    expected = {(line.model, line.purpose): line for line in forecast_lines(SETS)}
    batched = {line["model"] for line in lines if line["service_tier"] == "batch"}
    assert batched == {TARGET, openai, anthropic}
    for line in lines:
        if line["service_tier"] == "batch" or line["model"] == google:
            forecast = expected[line["model"], line["purpose"]]
            output_tokens = round(line["output_tokens"] / line["calls"] * forecast.calls)
            forecast = msgspec.structs.replace(forecast, output_tokens=output_tokens)
            per_call = dollars(forecast, prices, batch) / forecast.calls
            assert line["dollars"] / line["calls"] == pytest.approx(per_call, rel=0.1), line


def test_a_file_of_batches_of_others_is_refused(tmp_path: Path) -> None:
    from opensafeintent.errors import InputError

    path = tmp_path / "ledger-batches.sqlite"
    with BatchStore(path) as store:
        store._connection.execute("CREATE TABLE more (what TEXT)")
    with pytest.raises(InputError, match="expected a file of batches of this version"):
        BatchStore(path)
