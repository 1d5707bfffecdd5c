"""The price of evaluations of 42, 115 and 700 prompt-sets with three judges, in four ways, and the
numbers of calls with one judge that README.md and docs/costs.md name.

The tokens are those of a dry run on the starter set, in proportion to the number of prompt-sets; the
prices are genai-prices' of one day. A model whose provider does not offer a way has its standard
price there.

    python benchmarks/costs.py [--day 2026-11-27]
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import msgspec

from opensafeintent import EvaluateSettings, evaluate
from opensafeintent.calls.costs import ForecastLine, forecast_cost
from opensafeintent.calls.prices import Prices, find_way
from opensafeintent.calls.service_tiers import BATCH, FLEX, STANDARD

TARGET = "openai/gpt-5.4"
JUDGES = ("openai/gpt-5.4-mini", "google/gemini-2.5-flash", "anthropic/claude-sonnet-4-6")
SIZES = (42, 115, 700)
STARTER = 42
"""Prompt-sets of the starter set."""


class Way(NamedTuple):
    """One column of the table."""

    heading: str
    tier: str
    cached: bool


WAYS = (
    Way("standard", STANDARD, cached=False),
    Way("cached input", STANDARD, cached=True),
    Way("cached input, flex", FLEX, cached=True),
    Way("cached input, batch", BATCH, cached=True),
)


def forecast_lines(
    limit: int | None = None, judges: tuple[str, ...] = JUDGES, **options: Any
) -> tuple[ForecastLine, ...]:
    """Return the expected calls of the starter set, or of the first prompt-sets of its order; with
    options of `EvaluateSettings`.
    """
    with TemporaryDirectory() as folder:
        out = f"{folder}/run"
        settings = EvaluateSettings(
            models=(TARGET,), judges=judges, limit=limit, dry_run=True, out=out, **options
        )
        forecast = evaluate(settings).forecast
    assert forecast is not None
    return forecast.lines


def scaled(lines: Sequence[ForecastLine], factor: float) -> list[ForecastLine]:
    """Return the calls of another number of prompt-sets."""
    return [
        msgspec.structs.replace(
            line,
            calls=round(line.calls * factor),
            input_tokens=round(line.input_tokens * factor),
            output_tokens=round(line.output_tokens * factor),
        )
        for line in lines
    ]


def dollars(line: ForecastLine, prices: Prices, way: Way) -> float:
    """Return the expected cost of calls in a way, or at the standard tier if there is none."""
    tier = way.tier if find_way(line.model, way.tier) else STANDARD
    cost = forecast_cost(line, prices, cached=way.cached, tier=tier)
    assert cost is not None, f"{line.model} has no price"
    return cost


def table(day: date) -> Iterator[str]:
    """Yield the lines of the table, in Markdown."""
    prices, lines = Prices(day=day), forecast_lines()
    yield f"| Prompt-sets | {' | '.join(way.heading for way in WAYS)} |"
    yield f"|{'---|' * (1 + len(WAYS))}"
    for size in SIZES:
        of_size = scaled(lines, size / STARTER)
        costs = (sum(dollars(line, prices, way) for line in of_size) for way in WAYS)
        # the documentation would read a bare dollar sign as the beginning of a formula
        shown = " | ".join(f"\\${cost:,.2f}" for cost in costs)
        yield f"| {size} | {shown} |"


def count_calls(**options: Any) -> Counter[str]:
    """Return the calls for one prompt-set with one judge, by purpose."""
    lines = forecast_lines(limit=1, judges=JUDGES[:1], **options)
    return Counter({line.purpose: line.calls for line in lines})


def calls() -> Iterator[str]:
    """Yield the numbers of calls, a line each."""
    usual = count_calls()
    yield f"Calls for a prompt-set with one judge: {_list_calls(usual)}"
    further: dict[str, dict[str, Any]] = {
        "--modes core": {"modes": "core"},
        "--follow-ups": {"follow_ups": True},
        "--audit retest=1": {"audit": {"retest": 1}},
        "--audit swap=1": {"audit": {"swap": 1}},
    }
    for option, options in further.items():
        yield f"more with {option}: {_list_calls(count_calls(**options) - usual)}"
    for size in SIZES:
        yield f"{size} prompt-sets: {size * usual.total():,}"


def _list_calls(by_purpose: Counter[str]) -> str:
    parts = "; ".join(f"{purpose} {count}" for purpose, count in by_purpose.items())
    return f"{by_purpose.total()} ({parts})"


def main() -> None:
    """Print a table and its source, and the calls."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--day", type=date.fromisoformat, default=datetime.now(UTC).date())
    day = parser.parse_args().day
    print(*table(day), sep="\n")
    print(Prices(day=day).basis, *calls(), sep="\n")


if __name__ == "__main__":
    main()
