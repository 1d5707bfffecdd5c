"""The calls, tokens, dollars and minutes that a dry run expects."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from rich.console import Console

from opensafeintent.calls.costs import (
    ExpectedWay,
    ForecastLine,
    expected_minutes,
    expected_ways,
)
from opensafeintent.calls.limiter import START
from opensafeintent.calls.prices import BATCH, PriceList, Prices
from opensafeintent.calls.providers import is_in_process
from opensafeintent.calls.service_tiers import FLEX
from opensafeintent.errors import counted
from opensafeintent.evaluation.forecast import Forecast
from opensafeintent.report.printing.console import print_notes, print_table
from opensafeintent.report.printing.tables import forecast_table, plain
from opensafeintent.report.printing.ways import ways_table


def show_forecast(
    console: Console,
    forecast: Forecast,
    kept_or_named: Path | PriceList | None,
    notes: Iterable[str],
    lead: str = "",
) -> None:
    """Print the calls and tokens to expect, the dollars of each way to ask if there are prices, and
    the time if the ledger has seconds.

    Args:
        console: the output.
        forecast: of the calls.
        kept_or_named: the user's file of prices, or its content as a run keeps it.
        notes: for a reader, a line each.
        lead: the sentence on the number of calls, in place of the usual one.
    """
    prices, lines = Prices(kept_or_named), forecast.lines
    print_table(console, forecast_table(lines, prices, forecast.chosen))
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
        console.print(plain(prices.basis if priced else prices.advice))
        _show_ways(console, forecast, prices)
        _show_time(console, lines, forecast.connections or START)
    print_notes(console, notes)


def _show_ways(console: Console, forecast: Forecast, prices: Prices) -> None:
    """Print the price of each way to ask each model, and how long it may take."""
    ways = [
        way
        for way in expected_ways(forecast.lines, prices)
        if way.tier != BATCH or forecast.batches
    ]
    if not any(way.way or way.cached_dollars is not None for way in ways):
        return
    print_table(console, ways_table(ways, forecast.chosen))
    print_notes(console, _notes_on(ways))


def _notes_on(ways: Sequence[ExpectedWay]) -> Iterator[str]:
    """Yield what the prices of the ways rest on, and how to ask in one of them, a line each."""
    if any(way.cached_dollars is not None for way in ways):
        yield (
            "cached input: an estimate by the documented rules of caching, if requests with the"
            " same long beginning follow within minutes"
        )
        if any(way.cached_dollars is None for way in ways):
            yield "cached input, –: sums count such calls at the price without cache"
    if any(way.tier == FLEX for way in ways):
        yield f"flex: {_flex_options(ways)}; not every model of these providers has the tier"
    if any(way.tier == BATCH for way in ways):
        yield "batch: --batch"
    unlisted = [way for way in ways if way.way and not (way.listed and way.dollars is not None)]
    if unlisted:
        named = ", ".join(dict.fromkeys(f"{way.model} ({way.tier})" for way in unlisted))
        checked = max(way.way.checked for way in unlisted if way.way)
        yield f"share of the standard price as the provider documents it ({checked}): {named}"


def _flex_options(ways: Sequence[ExpectedWay]) -> str:
    """Return the options that ask at the flex tier each model whose provider has it. The option
    without a model is refused if one of the paid models has no such tier.
    """
    models = {way.model for way in ways}
    flex = [way.model for way in ways if way.tier == FLEX]
    if models == set(flex):
        return f"--service-tier {FLEX}"
    return " ".join(f"--service-tier {shlex.quote(f'{model}:{FLEX}')}" for model in flex)


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
