"""Cached input: from a provider's reply to the ledger, `cost.json`, the page and the dry run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from calls.support import rows
from endtoend import osi
from loopback.messages import message, serving
from opensafeintent.calls.costs import ForecastLine, forecast_cost
from opensafeintent.calls.prices import Price, Prices
from opensafeintent.calls.protocols.chat_completions import CHAT_COMPLETIONS
from opensafeintent.calls.records import Usage
from opensafeintent.calls.replies import usage_in
from samples import json_file

JUDGE = "anthropic/claude-judge"
PRICE = {"input": 3.0, "output": 15.0, "cache_read": 0.3, "cache_write": 3.75}


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        ({}, (0, 0)),
        # OpenAI, Gemini, Mistral, Groq, xAI, vLLM, SGLang
        ({"prompt_tokens_details": {"cached_tokens": 64}}, (64, 0)),
        ({"prompt_tokens_details": {"cached_tokens": 64, "cache_write_tokens": 8}}, (64, 8)),
        # LiteLLM
        ({"prompt_tokens_details": {"cached_tokens": 0, "cache_creation_tokens": 9}}, (0, 9)),
        ({"cache_read_input_tokens": 60, "cache_creation_input_tokens": 5}, (60, 5)),
        ({"prompt_cache_hit_tokens": 32, "prompt_cache_miss_tokens": 68}, (32, 0)),  # DeepSeek
        ({"cached_tokens": 16}, (16, 0)),  # Moonshot, Together
        ({"prompt_tokens_details": None, "cached_tokens": "x"}, (0, 0)),
        # never more than the input
        ({"prompt_tokens_details": {"cached_tokens": 1000, "cache_write_tokens": 1}}, (100, 0)),
    ],
)
def test_every_form_of_usage(usage: dict[str, Any], expected: tuple[int, int]) -> None:
    counts = {"prompt_tokens": 100, "completion_tokens": 7} | usage
    body = {"choices": [{"message": {"content": "x"}, "finish_reason": "stop"}], "usage": counts}
    assert usage_in(json.dumps(body).encode(), CHAT_COMPLETIONS) == Usage(100, 7, *expected)


@pytest.mark.slow
def test_from_a_reply_to_the_costs(tmp_path: Path) -> None:
    """Each call of the judge sends 10 + 1,200 + 30 tokens; 1,200 are read from a cache and 30
    written, and 5 come back: (10 × 3 + 1,200 × 0.3 + 30 × 3.75 + 5 × 15) / 10⁶ dollars.
    """
    usage = {"cache_read_input_tokens": 1200, "cache_creation_input_tokens": 30}

    def reply(body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        text = str(body["messages"][0]["content"])
        grade = "1" if "from 1 to 4" in text else "0"
        return 200, message('{"mode": "A3"}' if '"mode"' in text[-400:] else grade, **usage)

    run, prices = tmp_path / "run", json_file(tmp_path / "prices.json", {JUDGE: PRICE})
    options = ("--judge", JUDGE, "--limit", 2, "--out", run, "--prices", prices)
    with serving(reply) as server:
        variables = {"ANTHROPIC_BASE_URL": server.base_url, "ANTHROPIC_API_KEY": "sk-ant-01234567"}
        ran = osi("evaluate", "baseline/comply-all", *options, **variables)
    assert ran.code == 0, ran.err
    marked = [body["messages"][0]["content"][0] for body in server.requests]
    assert all(block["cache_control"] == {"type": "ephemeral"} for block in marked)
    kept = rows(run / "ledger.sqlite", "model, input_tokens, output_tokens")
    assert {row[1:] for row in kept if row[0] == JUDGE} == {(1240, 5)}
    (cost,) = json.loads((run / "cost.json").read_text())["runs"]
    calls = len(server.requests)
    by_judge = [line for line in cost["lines"] if line["model"] == JUDGE]
    assert sum(line["calls"] for line in by_judge) == calls
    for line in by_judge:
        counts = ("input_tokens", "cached_tokens", "cache_write_tokens", "output_tokens")
        expected = [line["calls"] * tokens for tokens in (1240, 1200, 30, 5)]
        assert [line[name] for name in counts] == expected
    each = (10 * 3 + 1200 * 0.3 + 30 * 3.75 + 5 * 15) / 1e6
    assert cost["total"]["dollars"] == pytest.approx(calls * each)
    assert cost["total"]["cached_tokens"] == 1200 * calls
    osi("report", run, "--prices", prices)
    page = (run / "report.html").read_text()
    told = f"Without one the sum is {calls * (1240 * 3 + 5 * 15) / 1e6:.2f} dollars."
    assert "of the input tokens were read from a cache" in page and told in page


def test_a_budget_counts_cached_input_at_its_price(tmp_path: Path) -> None:
    prices = Prices(json_file(tmp_path / "prices.json", {"a/m": PRICE, "a/n": {**PRICE}}))
    counts = {("a/m", "input"): 1000, ("a/m", "cache_read"): 900, ("a/n", "output"): 100}
    tokens = {(model, "standard", kind): count for (model, kind), count in counts.items()}
    assert prices.cost(tokens) == pytest.approx((100 * 3 + 900 * 0.3 + 100 * 15) / 1e6)
    assert Price(2.0, 4.0).of(10, 1, 5, 5) == Price(2.0, 4.0).of(10, 1)


def test_the_estimate_keeps_to_the_documented_rules(tmp_path: Path) -> None:
    names = ("anthropic/claude-sonnet-4-6", "anthropic/claude-haiku-4-5-20251001")
    listed = dict.fromkeys(names, PRICE) | {"openai/x": {"input": 3.0, "output": 15.0}}
    prices = Prices(json_file(tmp_path / "prices.json", listed))

    def cost(model: str, beginning: int, calls: int = 10) -> float | None:
        line = ForecastLine(
            model=model,
            purpose="helpfulness",
            calls=calls,
            input_tokens=2000 * calls,
            output_tokens=0,
            beginning_tokens=beginning,
        )
        return forecast_cost(line, prices, cached=True)

    full = 20_000 * 3 / 1e6
    sonnet, haiku = names
    # one call writes 1,100 tokens, nine read them; 900 of each are no part of it
    cached = (9_000 * 3 + 9 * 1100 * 0.3 + 1100 * 3.75) / 1e6
    assert cost(sonnet, 1100) == pytest.approx(cached)
    # shorter than the least, longer for this model; without a price of cached input; unknown
    for model, beginning in ((sonnet, 1023), (haiku, 1100), ("openai/x", 1100)):
        assert cost(model, beginning) == pytest.approx(full)
    assert cost("openai/y", 1100) is None
    assert cost(sonnet, 1100, calls=0) == 0.0


def test_a_dry_run_says_the_price_with_a_cache_and_without(tmp_path: Path) -> None:
    prices = json_file(tmp_path / "prices.json", {JUDGE: PRICE})
    ran = osi("evaluate", "baseline/comply-all", "--judge", JUDGE, "--dry-run", "--prices", prices)
    assert ran.code == 0, ran.err
    told = " ".join(ran.out.split())
    assert "with cached" in told and "an estimate by the documented rules of caching" in told
