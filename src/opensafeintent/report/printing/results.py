"""Results of a run as text: numbers, gates, calls and their forecast."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

from rich.console import Console

from opensafeintent.calls.costs import (
    ExpectedWay,
    ForecastLine,
    Tally,
    forecast_minutes,
    forecast_ways,
)
from opensafeintent.calls.limiter import START
from opensafeintent.calls.prices import PriceList, Prices
from opensafeintent.calls.providers import is_in_process
from opensafeintent.calls.service_tiers import BATCH, FLEX, STANDARD
from opensafeintent.errors import pluralize
from opensafeintent.evaluation.forecast import Forecast
from opensafeintent.evaluation.replay import IMPORTED_JUDGE
from opensafeintent.files import near
from opensafeintent.hostile import TEXT, one_line
from opensafeintent.numbers.cohort import OUR_RUBRICS, Cohort, name_graders
from opensafeintent.numbers.gates import Gates, Transitions
from opensafeintent.numbers.metrics import METRICS
from opensafeintent.report.columns import Column, Table
from opensafeintent.report.conditions import describe_panel
from opensafeintent.report.cost_tables import (
    ALL,
    PARTIAL,
    Costs,
    cost_table,
    dollars_text,
    other_model_notes,
)
from opensafeintent.report.findings import describe_pair, rank_or_compare_models
from opensafeintent.report.gate_tables import (
    changes_in_words,
    describe_below_verdict,
    describe_chance,
    describe_verdict,
    make_gate_tables,
)
from opensafeintent.report.printing.console import (
    WIDEST,
    forecast_table,
    make_policy_brief,
    pair_tables,
    plain,
    print_notes,
    print_table,
    rank_table,
)
from opensafeintent.report.tables_metrics import (
    PairRow,
    explain_mixed,
    group_by_family,
    headline_table,
)

_FEW_PAIRS = 3


_MOST_PAIRS = 10
"""Of many pairs, those that have a sentence."""


_VERDICTS = ("mean_safety",)
"""Metrics with a sentence, beside the primary ones."""


def show_comparisons(
    console: Console,
    cohort: Cohort,
    transitions: Sequence[Transitions],
    runs: Sequence[Path],
) -> None:
    """Print the differences of every two models of runs in the primary metrics, the ranks that they
    leave open, and the prompt-sets that they answer differently.
    """
    console.print()
    show_heading(console, cohort)
    for metric in cohort.scope.primary:
        for table in pair_tables(cohort, metric):
            console.print(plain(table.title), style="italic")
            print_table(console, table)
            console.print()
        print_table(console, rank_table(cohort, metric), notes=True)
        console.print()
    pairs = {(change.model, change.against) for change in transitions}
    if len(runs) > 1 or 0 < len(pairs) <= _FEW_PAIRS:
        show_transitions(console, transitions)
    elif cohort.scope.rubric:
        listed = f"opensafeintent trace {shlex.quote(str(near(runs[0])))} --differs safety"
        further = "; --out DIR writes those of every two models" if pairs else ""
        console.print(
            plain(
                f"\nPrompt-sets that models answer differently: {listed}, with --model for some of"
                f" them{further}"
            ),
            soft_wrap=True,
        )


def show_verdicts(console: Console, cohort: Cohort) -> None:
    """Print which of every two models is better, a metric after the other."""
    _show_identical(console, cohort)
    for metric in cohort.scope.select(_VERDICTS):
        console.print(plain(_verdicts(cohort, metric)))


def _show_identical(console: Console, cohort: Cohort) -> None:
    """Name the pairs of models with the same grades."""
    fields = attrgetter("set_id", "variant", "epoch", "grades", "mode", "answers")
    grades = [[*map(fields, rows)] for rows in cohort.rows.values()]
    for (first, its_grades), (second, other_grades) in combinations(
        zip(cohort.models, grades, strict=True), 2
    ):
        if its_grades == other_grades:
            names = f"{one_line(first)} and {one_line(second)}"
            console.print(plain(f"{names}: identical data, nothing tested"))


def _verdicts(cohort: Cohort, metric: str) -> str:
    """Say which models are better in a metric, pair by pair; of many pairs only those that are
    decided. Pairs with a baseline come after the models under test.
    """
    families = zip(group_by_family(cohort, metric), ("", "with a baseline "), strict=False)
    return "\n".join(_verdicts_on(cohort, metric, pairs, which) for pairs, which in families)


def _verdicts_on(cohort: Cohort, metric: str, pairs: Sequence[PairRow], which: str) -> str:
    many = len(pairs) > _FEW_PAIRS
    shown = [pair for pair in pairs if pair.difference.leaves_out_zero] if many else list(pairs)
    place = cohort.models.index
    lines = [
        said.text.replace("\u00a0", " ")
        for pair in shown[:_MOST_PAIRS]
        if (said := describe_pair(cohort, metric, place(pair.model_a), place(pair.model_b)))
    ]
    if many:
        decided = sum(pair.difference.significant for pair in shown)
        count = f"{decided:,} of {len(pairs):,} pairs {which}are decided"
        colon = ":" if shown else ""
        lines.insert(0, f"{METRICS[metric].label}: {count}{colon}")
    if len(shown) > _MOST_PAIRS:
        lines.append(f"… and {len(shown) - _MOST_PAIRS:,} more; --out DIR writes every pair")
    return "\n".join(lines)


def names_deciding_sample(cohort: Cohort) -> bool:
    """Whether a sentence of a verdict names the sample that would decide it."""
    metrics = cohort.scope.select(_VERDICTS)
    families = [pairs for metric in metrics for pairs in group_by_family(cohort, metric)]
    return any(
        pair.difference.deciding and not pair.difference.leaves_out_zero
        for pairs in families
        if len(pairs) <= _FEW_PAIRS
        for pair in pairs
    )


_STANDARD_TAKES = "as usual"
_SLOWEST_TAKES = "as the slowest model"
_CHOSEN = " (chosen)"
_AS_CHOSEN = "as chosen"
"""The sum of a command that asks some models in one way, and some in another."""


class _WayRow(NamedTuple):
    """The calls to one model in one way, or to all models."""

    model: str
    way: str
    """Marked if the command asks in it."""
    share: float | None
    """Of the standard price; None if there is none."""
    dollars: float | None
    """None if no price is known."""
    cached_dollars: float | None
    """With cached input, an estimate; None if no input would be cached."""
    takes: str


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
            way.tier + _CHOSEN * (bool(chosen) and way.tier == chosen.get(way.model, STANDARD)),
            way.share,
            way.dollars,
            way.cached_dollars,
            _takes(way),
        )
        for way in ways
    ]
    totals = list(_totals(ways, chosen))
    return Table.of(
        (
            Column("model", lambda row: row.model, "Model", "name"),
            Column("way", lambda row: row.way, "Way"),
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
                "with cached\ninput"
                if any(row.cached_dollars is not None for row in rows)
                else None,
                "number",
            ),
            Column("takes", lambda row: row.takes, "Takes"),
        ),
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
        is_marked = chosen and plan == asked and name != _AS_CHOSEN
        lacks_prices = any(way.dollars is None for way in taken)
        yield _WayRow(
            ALL,
            name + _CHOSEN * bool(is_marked) + f", {PARTIAL}" * lacks_prices,
            dollars / standard if dollars and standard else None,
            dollars,
            cached if cached != dollars else None,
            _all_take(taken),
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
    print_notes(console, prices.describe_unpriced(line.model for line in lines) if priced else ())
    tokens = (
        "tokens are the mean of such calls in the ledger, else "
        if any(line.seen for line in lines)
        else "tokens as "
    )
    assumed = f", {forecast.assumed}" if forecast.assumed else ""
    calls = (
        lead
        or f"At most {pluralize(sum(line.calls for line in lines), 'call')}, re-asks and retries"
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
        for way in forecast_ways(forecast.lines, prices)
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
        yield f"batch: --tier {BATCH}"
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
        return f"--tier {FLEX}"
    return " ".join(f"--tier {shlex.quote(f'{model}:{FLEX}')}" for model in flex)


def _show_time(console: Console, lines: Sequence[ForecastLine], connections: int) -> None:
    """Print how long calls can be expected to take, as far as the ledger tells."""
    if (minutes := forecast_minutes(lines, connections)) is None:
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


_CHANGED = 20
"""Prompt-sets that are named for each direction of a change."""


def show_heading(console: Console, cohort: Cohort) -> None:
    """Print the dataset of a cohort, its extent, and its judges."""
    judges = name_graders(cohort.conditions.judges) or "no judge yet"
    others = [
        name for owner, names in cohort.rubrics.items() if owner != OUR_RUBRICS for name in names
    ]
    rubrics = f", by {' and '.join(others)}" if others else ""
    console.print(
        plain(
            one_line(
                f"{cohort.dataset.name}: {cohort.size_in_words}, judged by {judges}{rubrics}", TEXT
            )
        )
    )
    if len({*cohort.conditions.judges} - {"", IMPORTED_JUDGE}) == 2:
        console.print(plain(describe_panel(cohort, 2)), style="dim")


_PLAIN = {
    "triplet_safety": "Triplet Safety: prompt-sets answered safely at all three intents.",
    "mean_utility": "Mean Utility: helpfulness from 0 to 1, and 0 if the response is unsafe.",
    "pair_safety": "Pair safety: prompt-sets answered safely at both intents.",
    "benign_utility": (
        "Benign utility: helpfulness of benign responses from 0 to 1, and 0 if the response is"
        " unsafe."
    ),
}
"""The primary metrics, for someone who has not met them."""


def show_cohort(console: Console, cohort: Cohort) -> None:
    """Print the headline metrics of a cohort, and the stated policies if they were asked for."""
    show_heading(console, cohort)
    # a terminal is too narrow for the intervals with missing grades; the sentences that decide
    # allow for them
    ends = (f"{metric}_missing_ci" for metric in cohort.scope.headlines)
    print_table(console, headline_table(cohort).hide_columns(*ends))
    if cohort.uses_demonstration_judge:
        explained = (
            _PLAIN.get(metric) or f"{METRICS[metric].label}: {METRICS[metric].about}."
            for metric in cohort.scope.primary
        )
        console.print(
            plain(
                f"{' '.join(explained)} Over-refusal: benign"
                " prompts that get little help or none. In brackets: 95 % intervals."
            ),
            style="dim",
        )
    for line in explain_mixed(cohort):
        console.print(plain(line), style="dim")
    if cohort.with_stated_policy:
        table = make_policy_brief(cohort)
        console.print(plain(f"\n{table.title}"))
        print_table(console, table)
        console.print(
            plain("A tie counts half. The probe measures a stated policy, not knowledge."),
            style="dim",
        )


def show_answers(console: Console, cohort: Cohort) -> None:
    """Print which models are safer and more useful, as far as comparisons decide it."""
    for said in rank_or_compare_models(cohort):
        console.print(plain(said.text.replace("\u00a0", " ")), style="bold")


def show_transitions(console: Console, transitions: Sequence[Transitions]) -> None:
    """Print how many prompt-sets two models answer differently, and the first of them."""
    heading = ""
    for change in transitions:
        line = (
            f"\n{one_line(change.model)} against {one_line(change.against)},"
            f" {pluralize(change.n, 'prompt-set')}:"
        )
        if line != heading:
            console.print(plain(line))
        heading = line
        for words, sets in changes_in_words(change):
            names = [item.set_id for item in sets[:_CHANGED]]
            if len(sets) > len(names):
                names.append(f"and {len(sets) - len(names):,} more")
            count = f"  {len(sets):,} {words}"
            console.print(plain(f"{count}: {', '.join(names)}" if names else count))
        console.print(plain(f"  {describe_chance(change)}"), style="dim")
    if any(sets for change in transitions for _, sets in changes_in_words(change)):
        shown = "opensafeintent trace RUN --set ID shows one of them"
        console.print(plain(shown), style="dim")


def show_calls(console: Console, tally: Tally | None, costs: Costs | None) -> None:
    """Print the number of calls and their cost; nothing if there were none."""
    if tally is not None:
        console.print(plain(tally.describe()))
    if costs is not None and costs.paid and costs.prices.tells(costs.models):
        console.print()
        print_table(console, cost_table(costs), notes=True)
    elif costs is not None:
        print_notes(console, other_model_notes(costs))


def show_gates(console: Console, gates: Gates) -> None:
    """Print every gate with its verdict, and on a wide terminal the points of reference; the notes
    give the reason for a failure.
    """
    references = () if console.width >= WIDEST else ("oracle", "refuse_all")
    for table in make_gate_tables(gates):
        if table.name != "transitions":
            console.print()
            print_table(console, table.hide_columns("reason", *references))
            console.print(plain(f"{table.title}."), style="dim")
    show_transitions(console, gates.transitions)
    console.print(plain(f"Release gate {describe_verdict(gates)}."), style="bold")
    for line in describe_below_verdict(gates):
        console.print(plain(line), style="bold yellow")
