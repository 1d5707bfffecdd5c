"""What calls would cost in each way that a provider offers: by model, and for all of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from opensafeintent.calls.costs import ExpectedWay
from opensafeintent.calls.prices import BATCH
from opensafeintent.calls.service_tiers import FLEX, STANDARD
from opensafeintent.report.columns import Column, Columns, Table
from opensafeintent.report.costs import ALL, PARTIAL, dollars_text

_STANDARD_TAKES = "as usual"
_SLOWEST_TAKES = "as the slowest model"
_AS_CHOSEN = "as chosen"
"""The sum of a command that asks some models in one way, and some in another."""


class _WayRow(NamedTuple):
    """The calls to one model in one way, or to all models."""

    model: str
    way: str
    is_chosen: bool
    share: float | None
    """Of the standard price; None if there is none."""
    dollars: float | None
    """None if no price is known."""
    cached_dollars: float | None
    """With cached input, an estimate; None if no input would be cached."""
    takes: str
    partial: bool = False
    """Whether it is a sum that lacks models without a price."""

    @property
    def way_text(self) -> str:
        """The way, and whether the command asks in it."""
        marked = self.is_chosen and self.way != _AS_CHOSEN
        way = f"{self.way} (chosen)" if marked else self.way
        return f"{way}, {PARTIAL}" if self.partial else way


def ways_table(ways: Sequence[ExpectedWay], chosen: Mapping[str, str]) -> Table:
    """Return what the calls would cost in each way, by model and, if there are several, in all.

    Args:
        ways: those of each model.
        chosen: by model, the tier at which the command asks; a model that is not named is asked at
            the standard tier.
    """
    rows = [
        _WayRow(
            way.model,
            way.tier,
            bool(chosen) and way.tier == chosen.get(way.model, STANDARD),
            way.share,
            way.dollars,
            way.cached_dollars,
            _takes(way),
        )
        for way in ways
    ]
    totals = list(_totals(ways, chosen))
    columns: tuple[Columns[_WayRow], ...] = (
        Column("model", lambda row: row.model, "Model", "name"),
        Column("way", lambda row: row.way_text, "Way"),
        Column(
            "share",
            lambda row: None if row.share is None else f"{100 * row.share:.0f} %",
            "Price",
            "number",
        ),
        Column(
            "dollars",
            lambda row: dollars_text(row.dollars),
            "Dollars" if any(row.dollars is not None for row in rows) else None,
            "number",
        ),
        Column(
            "cached_dollars",
            lambda row: dollars_text(row.cached_dollars),
            "with cached\ninput" if any(row.cached_dollars is not None for row in rows) else None,
            "number",
        ),
        Column("takes", lambda row: row.takes, "Takes"),
    )
    return Table.of(
        columns,
        [*rows, *totals],
        name="ways",
        title="Prices by the way in which each model is asked",
        bold=frozenset(range(len(rows), len(rows) + len(totals))),
    )


def _takes(way: ExpectedWay) -> str:
    return way.way.takes if way.way else _STANDARD_TAKES


def _totals(ways: Sequence[ExpectedWay], chosen: Mapping[str, str]) -> Iterator[_WayRow]:
    """Yield the sums over all models: at the standard tier, in each other way that any provider
    offers, and as the command asks, if that is none of these. One model, or models without a price,
    have no sums.
    """
    by_model: dict[str, dict[str, ExpectedWay]] = {}
    for way in ways:
        by_model.setdefault(way.model, {})[way.tier] = way
    standard = _dollars([tiers[STANDARD] for tiers in by_model.values()])
    if len(by_model) < 2 or standard is None:
        return
    asked = {model: chosen.get(model, STANDARD) for model in by_model}
    plans = {
        name: {model: tier if tier in tiers else STANDARD for model, tiers in by_model.items()}
        for tier, name in _plan_names(by_model).items()
    }
    if asked not in plans.values():
        plans[_AS_CHOSEN] = asked
    for name, plan in plans.items():
        taken = [by_model[model][tier] for model, tier in plan.items()]
        dollars = _dollars(taken)
        cached = _dollars(taken, cached=True)
        yield _WayRow(
            ALL,
            name,
            bool(chosen) and plan == asked,
            dollars / standard if dollars and standard else None,
            dollars,
            cached if cached != dollars else None,
            _all_take(taken),
            partial=any(way.dollars is None for way in taken),
        )


def _plan_names(by_model: Mapping[str, Mapping[str, ExpectedWay]]) -> dict[str, str]:
    """Return the tiers that any model has, each with its name as a way to ask all of them."""
    offering = {
        tier: sum(tier in tiers for tiers in by_model.values()) for tier in (STANDARD, FLEX, BATCH)
    }
    return {
        tier: tier if count == len(by_model) else f"{tier}, else {STANDARD}"
        for tier, count in offering.items()
        if count
    }


def _dollars(ways: Sequence[ExpectedWay], *, cached: bool = False) -> float | None:
    """Return the sum of the prices that are known; None if none is."""
    known = [
        way.cached_dollars if cached and way.cached_dollars is not None else way.dollars
        for way in ways
        if way.dollars is not None
    ]
    return sum(dollars for dollars in known if dollars is not None) if known else None


def _all_take(ways: Sequence[ExpectedWay]) -> str:
    """Return how long calls take in ways of the same kind; the slowest says it if they differ."""
    slower = {_takes(way) for way in ways} - {_STANDARD_TAKES}
    if len(slower) > 1:
        return _SLOWEST_TAKES
    return next(iter(slower), _STANDARD_TAKES)
