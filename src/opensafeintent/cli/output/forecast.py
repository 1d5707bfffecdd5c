"""The calls, tokens, dollars and minutes that a dry run expects."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path

from rich.console import Console

from opensafeintent.calls.costs import ForecastLine, expected_cost, expected_minutes
from opensafeintent.calls.limiter import START
from opensafeintent.calls.prices import Prices
from opensafeintent.calls.providers import is_in_process
from opensafeintent.cli.options import say_next
from opensafeintent.cli.output.console import print_notes, print_table
from opensafeintent.cli.output.tables import forecast_table, plain
from opensafeintent.errors import counted
from opensafeintent.evaluation.forecast import Forecast
from opensafeintent.report.costs import dollars_text


def show_forecast(
    console: Console,
    forecast: Forecast,
    prices_path: Path | None,
    notes: Iterable[str],
    lead: str = "",
) -> None:
    """Print the calls and tokens to expect, the dollars if there are prices, and the time if the
    ledger has seconds; then the command that makes the calls.

    Args:
        console: the output.
        forecast: of the calls.
        prices_path: the user's file of prices.
        notes: for a reader, a line each.
        lead: the sentence on the number of calls, in place of the usual one.
    """
    prices, lines = Prices(prices_path), forecast.lines
    print_table(console, forecast_table(lines, prices))
    priced = prices.tells(line.model for line in lines)
    print_notes(console, prices.unpriced(line.model for line in lines) if priced else ())
    tokens = (
        "tokens are the mean of such calls in the ledger, else "
        if any(line.seen for line in lines)
        else "tokens as "
    )
    assumed = f", {forecast.assumed}" if forecast.assumed else ""
    calls = (
        lead
        or f"At most {counted(sum(line.calls for line in lines), 'call')}, re-asks and retries"
        " aside; "
    )
    console.print(plain(f"{calls}{tokens}four characters each{assumed}. None was made."))
    if not all(is_in_process(line.model) for line in lines):
        if priced:
            console.print(plain(prices.basis))
            print_notes(console, _cache_lines(lines, prices))
        _show_time(console, lines, forecast.connections or START)
    print_notes(console, notes)
    say_next("opensafeintent", *_with_calls(sys.argv[1:]))


def _with_calls(words: Sequence[str]) -> list[str]:
    """Return the words of a dry run without those that only a dry run has."""
    gates = ["--fail-under", "--fail-over", "--fail-if-worse", "--pair"]
    if "--stop-when" not in words:
        gates.append("--confidence")
    return [
        word
        for before, word in pairwise(["", *words])
        if word.partition("=")[0] not in ("--dry-run", "--first-run", *gates)
        and before not in gates
    ]


def _cache_lines(lines: Sequence[ForecastLine], prices: Prices) -> list[str]:
    """Return an estimate of the cost with cached input, a line, if it differs from that without."""
    full = sum(expected_cost(line, prices) or 0.0 for line in lines)
    cached = sum(expected_cost(line, prices, cached=True) or 0.0 for line in lines)
    if cached == full:
        return []
    return [
        f"with cached input some {dollars_text(cached)} dollars, without {dollars_text(full)}: an"
        " estimate by the documented rules of caching, if requests with the same long beginning"
        " follow within minutes"
    ]


def _show_time(console: Console, lines: Sequence[ForecastLine], connections: int) -> None:
    """Print how long calls can be expected to take, as far as the ledger tells."""
    if (minutes := expected_minutes(lines, connections)) is None:
        return
    unknown = [
        f"{line.model} ({line.purpose})"
        for line in lines
        if line.seconds is None and not is_in_process(line.model)
    ]
    lacking = f", without {', '.join(unknown)}, of which none is stored" if unknown else ""
    about = f"{minutes:,.0f} minutes" if minutes >= 1.5 else f"{max(60 * minutes, 1):,.0f} s"
    console.print(
        plain(
            f"Estimated time: {about}, by the median time of such calls in the ledger and"
            f" {connections} at once to a provider{lacking}."
        )
    )
