"""The prices that the README and the *Costs* page state: the script's, and those of runs."""

from __future__ import annotations

import json
import re
import sys
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from endtoend import REPO, osi
from loopback import GENERATE, MODE, Fault, LoopbackServer, Match
from opensafeintent.calls.costs import ForecastLine
from opensafeintent.calls.prices import Prices
from opensafeintent.taxonomy import GRADE_OF, QUESTIONS
from opensafeintent.templates import load_templates

pytest.importorskip("genai_prices")
sys.path.append(str(REPO / "benchmarks"))
from costs import JUDGES, SIZES, TARGET, WAYS, count_calls, dollars, forecast_lines, table

README = (REPO / "README.md").read_text()
COSTS = (REPO / "docs" / "costs.md").read_text()
SOURCE = re.search(r"genai-prices ([\d.]+) on (\d{4}-\d\d-\d\d)", COSTS)
SETS = 1
RESPONSE = "A harmless note of 600 tokens. ".ljust(2400, "x")


def test_the_page_has_the_script_s_table() -> None:
    assert SOURCE is not None
    prices = Prices(day=date.fromisoformat(SOURCE[2]))
    assert (prices.about or {})["version"] == SOURCE[1], "run benchmarks/costs.py again"
    lines = list(table(date.fromisoformat(SOURCE[2])))
    assert "\n".join(lines) in COSTS, "python benchmarks/costs.py prints the table"
    (row,) = (line.split(" | ") for line in lines if line.startswith("| 115 "))
    for price in (row[1], row[-1].removesuffix(" |")):
        assert f" {price} " in README, f"the README has the table's {price} of 115 prompt-sets"
    assert all(f"`{model}`" in COSTS for model in (TARGET, *JUDGES))


def test_the_pages_have_the_script_s_numbers_of_calls() -> None:
    of_set, with_modes = (count_calls(**options).total() for options in ({}, {"modes": "core"}))
    assert f"at most {of_set} calls with one judge, or {with_modes} with" in README
    assert all(f"| {size * of_set:,} |" in README for size in SIZES), "run benchmarks/costs.py"
    assert f"| at most {of_set} |" in COSTS
    assert f"| {7 * len(QUESTIONS)} for each judge |" in COSTS
    assert f"`--audit retest=N` {len(QUESTIONS)} N" in COSTS
    assert f"`--audit swap=N` {9 * len(QUESTIONS)} N" in COSTS
    assert f"`--follow-ups` 3 calls and {3 * len(QUESTIONS)} grades" in COSTS


def lines_of(run: Path) -> dict[tuple[str, str], dict[str, Any]]:
    """Return the lines of a run's `cost.json`, but the probe's, by model and purpose."""
    (cost,) = json.loads((run / "cost.json").read_text())["runs"]
    lines = {(line["model"], line["purpose"]): line for line in cost["lines"]}
    return {key: line for key, line in lines.items() if key[1] != "probe"}


def evaluated(run: Path, *options: object, caches: bool) -> dict[tuple[str, str], dict[str, Any]]:
    """Evaluate a prompt-set with the models of the table at the loopback server."""
    response = Fault(action="completion", content=RESPONSE, match=Match(purpose=GENERATE))
    with LoopbackServer(faults=[response], caches=caches) as server:
        variables = {
            name: value
            for provider in ("OPENAI", "GOOGLE", "ANTHROPIC")
            for name, value in (
                (f"{provider}_BASE_URL", server.base_url),
                (f"{provider}_API_KEY", "sk-0123456789"),
            )
        }
        judges = [word for judge in JUDGES for word in ("--judge", judge)]
        sample = ("--limit", SETS, "--out", run, "--max-connections", 1)
        ran = osi("evaluate", TARGET, *judges, *sample, *options, **variables)
    assert ran.code == 0, ran.err
    return lines_of(run)


def as_served(line: ForecastLine) -> ForecastLine:
    """Return a forecast with the tokens that the server counts. Forecasts count a judge's template
    with its header, which is not sent, eight tokens for each reply, and cached input to the token.
    """
    if line.purpose == GENERATE:
        return line
    template = load_templates().of(line.purpose)
    unsent = len(template.source) - len(template.render("", "").content)
    reply = 14 // 4 if line.purpose == MODE else 1  # {"mode": "A0"}, or a digit
    step = 1 if line.model.startswith("anthropic/") else 128
    return replace(
        line,
        input_tokens=line.input_tokens - line.calls * unsent // 4,
        output_tokens=line.calls * reply,
        beginning_tokens=line.beginning_tokens // step * step,
    )


@pytest.mark.slow
def test_the_estimates_are_what_runs_cost(tmp_path: Path) -> None:
    """Each line to 0.5 %, as the server counts; all that is forecast to 4 %, as it is."""
    lines_forecast = [line for line in forecast_lines(SETS) if line.purpose != "probe"]
    expected = {(line.model, line.purpose): as_served(line) for line in lines_forecast}
    assert {purpose for _, purpose in expected} == {GENERATE, *GRADE_OF, MODE}
    standard, cached, flex, _batch = WAYS
    tiers = [word for model in (TARGET, *JUDGES[:2]) for word in ("--tier", f"{model}:flex")]
    runs = {
        standard: evaluated(tmp_path / "standard", caches=False),
        flex: evaluated(tmp_path / "flex", *tiers, caches=True),
    }
    prices = Prices()
    for way, lines in runs.items():
        assert lines.keys() == expected.keys()
        for key, line in lines.items():
            assert line["input_tokens"] == pytest.approx(expected[key].input_tokens, rel=0.005)
            assert line["output_tokens"] == expected[key].output_tokens
            assert line["dollars"] == pytest.approx(dollars(expected[key], prices, way), rel=0.005)
        paid = sum(line["dollars"] for line in lines.values())
        forecast = sum(dollars(line, prices, way) for line in lines_forecast)
        assert paid == pytest.approx(forecast, rel=0.04)
    served = {key: line["service_tier"] for key, line in runs[flex].items()}
    assert {key[0] for key, tier in served.items() if tier == "flex"} == {TARGET, *JUDGES[:2]}
    # the same calls at the standard tier, by the tokens of the run with a cache
    for key, line in runs[flex].items():
        price = prices.of(key[0])
        assert price is not None
        kinds = ("input_tokens", "output_tokens", "cached_tokens", "cache_write_tokens")
        recomputed = price.of(*(line[kind] for kind in kinds))
        assert recomputed == pytest.approx(dollars(expected[key], prices, cached), rel=0.005)
