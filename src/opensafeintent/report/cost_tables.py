"""Costs of runs and builds, as a table and as `cost.json`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from datetime import date
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import msgspec

from opensafeintent.calls.costs import Spending, Spent
from opensafeintent.calls.prices import PriceList, Prices
from opensafeintent.calls.records import Purpose
from opensafeintent.calls.service_tiers import STANDARD
from opensafeintent.files import to_json
from opensafeintent.numbers.served_versions import describe_versions
from opensafeintent.report.columns import Column, Columns, Table
from opensafeintent.report.metrics_json import OtherModel
from opensafeintent.taxonomy import METRIC_GRADES, QUESTION_OF

ALL = "All"
"""Name of a line of sums."""

_ASKED_OF_MODELS: tuple[Purpose, ...] = ("generate", "probe")
"""Purposes of the calls that ask a model under test."""

PARTIAL = "partial sum"
"""Purpose of such a line that lacks models without a price."""


class Costs:
    """Costs of some runs, and their prices.

    Args:
        runs: by name.
        file: the user's prices, or those that the runs keep. Without any, the package is asked for
            those of the last call's day: the same ledger and package always give the same sum.

    Attributes:
        names: what tables call a model under test, by (run, model).
    """

    def __init__(self, runs: Mapping[str, Spent], file: Path | PriceList | None) -> None:
        self.runs = runs
        self.names: Mapping[tuple[str, str], str] = {}
        self.prices = Prices(file, self.days[1] if self.days else None)

    @property
    def days(self) -> tuple[date, date] | None:
        """The days of the first and the last call of all runs (UTC); None if there was none."""
        known = [spent.days for spent in self.runs.values() if spent.days]
        return (min(first for first, _ in known), max(last for _, last in known)) if known else None

    def name_model(self, run: str, model: str, purpose: str = "generate") -> str:
        """Return the name that tables have for a model that was called; a judge keeps its own."""
        own = purpose in _ASKED_OF_MODELS
        return self.names.get((run, model), model) if own else model

    @property
    def dollars(self) -> float | None:
        """The sum over all of them, as far as prices are known."""
        known_costs = [
            dollars
            for spent in self.runs.values()
            if (dollars := spent.dollars(self.prices)) is not None
        ]
        return sum(known_costs) if known_costs else None

    @property
    def paid(self) -> bool:
        """Whether any model was called that is paid for."""
        return any(spent.paid for spent in self.runs.values())

    def average_grades(self, judges: Collection[str]) -> float | None:
        """Return what a grade or a checklist by one of these judges has cost on average; None
        without any, or if a price is not known.
        """
        lines = [
            line
            for spent in self.runs.values()
            for line in spent.lines
            if line.model in judges and line.purpose in _GRADING
        ]
        dollars = [line.dollars(self.prices) for line in lines]
        calls = sum(line.calls for line in lines)
        known = [cost for cost in dollars if cost is not None]
        return sum(known) / calls if calls and len(known) == len(lines) else None

    @property
    def other_models(self) -> list[OtherModel]:
        """The replies that name another model than the one asked, for `metrics.json`."""
        replies_by_name = sum(
            (spent.other_models for spent in self.runs.values()), Counter[tuple[str, str]]()
        )
        return [
            OtherModel(model=model, served=served, replies=count)
            for (model, served), count in sorted(replies_by_name.items())
        ]

    @cached_property
    def models(self) -> list[str]:
        """Every model that was called, each once."""
        return list(dict.fromkeys(model for spent in self.runs.values() for model in spent.models))


_GRADING = {*(QUESTION_OF[grade].role for grade in METRIC_GRADES), "checklist"}
"""Purposes of the calls that a further judge takes."""


def dollars_text(dollars: float | None) -> str | None:
    """Return dollars for people: two decimals, and more below ten cents."""
    if dollars is None:
        return None
    return f"{dollars:,.{2 if dollars >= 0.1 or not dollars else 4 if dollars >= 0.001 else 6}f}"


class _CostRow(NamedTuple):
    run: str
    model: str
    line: Spending
    dollars: float | None
    partial: bool = False
    """Whether it is a sum that lacks models without a price."""

    def tokens(self, count: int) -> int | None:
        """Return a number of tokens, None if no reply says it."""
        return count if self.line.has_usage else None


def _cost_rows(costs: Costs) -> Iterator[_CostRow]:
    """Yield each run's calls by model and purpose, its sum last, and their costs."""
    for run, spent in costs.runs.items():
        for line in spent.lines:
            model = costs.name_model(run, line.model, line.purpose)
            yield _CostRow(run, model, line, line.dollars(costs.prices))
        if spent.lines:
            dollars = spent.dollars(costs.prices)
            partial = dollars is not None and bool(costs.prices.find_unpriced(spent.models))
            yield _CostRow(run, ALL, _sum(spent), dollars, partial)


_NAMES = ("model", "purpose", "service_tier", "served")
"""Fields of a line that are no sums."""


def _sum(spent: Spent) -> Spending:
    fields = [field for field in Spending.__struct_fields__ if field not in _NAMES]
    return Spending(
        model=ALL,
        purpose="",
        service_tier="",
        **{name: sum(getattr(line, name) for line in spent.lines) for name in fields},
    )


def other_model_notes(costs: Costs) -> Iterator[str]:
    """Yield how many replies name another model than the one asked, by run and model."""
    for run, spent in costs.runs.items():
        of = f" of {run}" if len(costs.runs) > 1 else ""
        for (model, served), count in sorted(spent.other_models.items()):
            replies = sum(line.calls for line in spent.lines if line.model == model)
            name = costs.name_model(run, model)
            yield f"{name}{of}: {count:,} of {replies:,} replies name another model, {served}."


def cost_notes(costs: Costs) -> Iterator[str]:
    """Yield notes on the sums: the source of prices, and calls without a price."""
    if costs.prices.tells(costs.models):
        yield costs.prices.basis
    yield "Equal requests are sent once: there can be fewer calls than responses."
    yield from _cache_notes(costs)
    yield from _tier_notes(costs)
    if costs.prices and (lacking := costs.prices.find_unpriced(costs.models)):
        yield f"No price is given for {', '.join(lacking)}: the sum is without it."
    yield from other_model_notes(costs)
    for run, spent in costs.runs.items():
        of = f" of {run}" if len(costs.runs) > 1 else ""
        for model, count in spent.silent().items():
            yield (
                f"{costs.name_model(run, model)}{of}: {count:,} replies do not say how many tokens"
                " they took, and are not in the sum."
            )
        if spent.shared:
            yield (
                f"The ledger{of} is shared: these are the calls that the results{of} rest on,"
                " whichever run made them."
            )


def _cache_notes(costs: Costs) -> Iterator[str]:
    """Yield how much input was read from a cache, by run, and how much that has saved."""
    for run, spent in costs.runs.items():
        total = _sum(spent)
        if total.cached_tokens + total.cache_write_tokens:
            of = f" of {run}" if len(costs.runs) > 1 else ""
            share = 100 * total.cached_tokens / total.input_tokens
            note = f"Cached input{of}: {share:.0f} % of the input tokens were read from a cache."
            paid, uncached = spent.dollars(costs.prices), spent.dollars(costs.prices, cached=False)
            if not (paid is None or uncached is None) and costs.prices.tells(spent.models):
                note += f" Without one the sum is {dollars_text(uncached)} dollars."
            yield note


def _tier_notes(costs: Costs) -> Iterator[str]:
    """Yield how many calls another tier than the standard one served, by run and tier, and how much
    that has saved; then the sources of prices that no list has.
    """
    documented: dict[str, None] = {}
    for run, spent in costs.runs.items():
        of = f" of {run}" if len(costs.runs) > 1 else ""
        total = sum(line.calls for line in spent.lines)
        standard, paid = spent.dollars(costs.prices, tier=STANDARD), spent.dollars(costs.prices)
        for tier in sorted({line.service_tier for line in spent.lines} - {STANDARD}):
            lines = [line for line in spent.lines if line.service_tier == tier]
            calls = sum(line.calls for line in lines)
            yield f"Service tier{of}: the {tier} tier answered {calls:,} of {total:,} calls."
            for line in lines:
                if way := costs.prices.find_documentation(line.model, tier):
                    documented[
                        f"No list has the {tier} price of {line.model}: it is {way.factor:g} × the"
                        f" standard price, as its provider documents ({way.source}, {way.checked})."
                    ] = None
        if standard is not None and paid is not None and round(standard - paid, 6) != 0:
            yield f"At the standard tier the sum{of} is {dollars_text(standard)} dollars."
    yield from documented


def cost_table(costs: Costs) -> Table:
    """Return the costs of runs by model and purpose, with sums."""
    rows = list(_cost_rows(costs))
    several, priced = len(costs.runs) > 1, costs.prices.tells(costs.models)
    any_failed = any(row.line.failed for row in rows)
    any_cached = any(row.line.cached_tokens for row in rows)
    columns: tuple[Columns[_CostRow], ...] = (
        Column("run", lambda row: row.run, "Run" if several else None),
        Column("model", lambda row: row.model, "Model", "name"),
        Column("purpose", lambda row: PARTIAL if row.partial else row.line.purpose, "Purpose"),
        Column(
            "service_tier",
            lambda row: row.line.service_tier,
            "Tier" if any(row.line.service_tier not in ("", STANDARD) for row in rows) else None,
        ),
        Column("calls", lambda row: row.line.calls, "Calls", "count"),
        Column(
            "failed",
            lambda row: row.line.failed,
            "Failed\nattempts" if any_failed else None,
            "count",
        ),
        Column("input_tokens", lambda row: row.tokens(row.line.input_tokens), "Tokens in", "count"),
        Column(
            "cached_tokens",
            lambda row: row.tokens(row.line.cached_tokens),
            "of them\ncached" if any_cached else None,
            "count",
        ),
        Column(
            "cache_write_tokens",
            lambda row: row.tokens(row.line.cache_write_tokens),
            "written\nto a cache" if any(row.line.cache_write_tokens for row in rows) else None,
            "count",
        ),
        Column(
            "output_tokens", lambda row: row.tokens(row.line.output_tokens), "Tokens out", "count"
        ),
        Column("dollars", lambda row: row.dollars, None, "number"),
        Column(
            "shown",
            lambda row: dollars_text(row.dollars),
            "Dollars" if priced else None,
            "number",
        ),
        Column(
            "served",
            lambda row: describe_versions(row.line.served),
            "Served version" if any(row.line.served for row in rows) else None,
        ),
    )
    return Table.of(
        columns,
        rows,
        name="cost",
        title="Calls by model and purpose, from the ledger",
        section="method",
        bold=frozenset(index for index, row in enumerate(rows) if row.model == ALL),
        notes=tuple(cost_notes(costs)),
    )


def make_cost_tables(costs: Costs | None) -> list[Table]:
    """Return that table, if any call was made."""
    return [cost_table(costs)] if costs is not None and costs.models else []


def encode_costs(costs: Costs) -> bytes:
    """Return `cost.json` (docs/outputs.md)."""

    def line_json(line: Spending, dollars: float | None) -> dict[str, object]:
        return {
            **msgspec.to_builtins(line),
            "dollars": None if dollars is None else round(dollars, 9),
        }

    runs = [
        {
            "run": run,
            "ledger": "shared" if spent.shared else "own",
            "lines": [line_json(line, line.dollars(costs.prices)) for line in spent.lines],
            "total": {
                name: value
                for name, value in line_json(_sum(spent), spent.dollars(costs.prices)).items()
                if name not in _NAMES
            },
            "without_price": costs.prices.find_unpriced(spent.models),
            "without_usage": spent.silent(),
        }
        for run, spent in costs.runs.items()
    ]
    content = {"schema": 1, "prices": costs.prices.about, "runs": runs}
    return to_json(content, sort_keys=False)
