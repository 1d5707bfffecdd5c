"""Limits of the calls that a command makes, and waiting for a file that another process holds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from opensafeintent.calls.budget import Budget, Tally
from opensafeintent.calls.costs import expected_cost
from opensafeintent.calls.models import is_local
from opensafeintent.calls.prices import BATCH, PriceList, Prices, way_of
from opensafeintent.calls.progress import Display
from opensafeintent.calls.providers import ENDPOINTS, is_in_process, row_of
from opensafeintent.calls.service_tiers import FLEX, NO_FLEX, STANDARD, FlexPlan
from opensafeintent.calls.shutdown import raise_if_interrupted
from opensafeintent.errors import InputError, nearest
from opensafeintent.evaluation.forecast import Forecast
from opensafeintent.locks import Taken
from opensafeintent.report.costs import dollars_text
from opensafeintent.workflows.settings import Calling


class Limits(Budget, frozen=True, kw_only=True):
    """Limits of concurrent calls, of all calls, and of their cost."""

    prices: Prices
    max_connections: int | None = None
    """Connections of one endpoint, exactly; adaptive by default."""

    @classmethod
    def of(cls, settings: Calling, prices: Path | PriceList | None = None) -> Limits:
        """Return the limits that settings name, with the prices read: those of the settings, or
        others.

        Raises:
            InputError: the file of prices cannot be read.
        """
        return cls(
            calls=settings.budget_calls,
            tokens=settings.budget_tokens,
            dollars=settings.budget_dollars,
            prices=Prices(prices or settings.prices),
            max_connections=settings.max_connections,
            max_retries=settings.max_retries,
            retry_seconds=settings.retry_for * 60,
        )

    def check_prices(self, models: Iterable[str]) -> None:
        """Check that every model that may be called has a price, if there is a budget in dollars.

        Raises:
            InputError: some have none.
        """
        if self.dollars is not None:
            self.prices.need(models)

    def spent(self, tally: Tally) -> float | None:
        """Return the dollars spent so far; None if no model that was called has a price."""
        paid = (model for model, *_ in tally.usage if not is_in_process(model))
        if not any(map(self.prices.of, paid)):
            return None
        return self.prices.cost(tally.usage)


def wait_or_refuse(settings: Calling, display: Display) -> Callable[[str], None]:
    """Return a function to call with the name of a ledger's or folder's holder (`files.held`); it
    shows the name, or raises `Taken`.
    """

    def wait(line: str) -> None:
        if not settings.wait:
            raise Taken(f"{line}; wait for it, or add --wait")
        raise_if_interrupted()
        display.stage(f"waiting: {line}")

    return wait


def flex_plan(settings: Calling, models: Iterable[str]) -> FlexPlan:
    """Return which models are asked at the flex tier, by the settings.

    Models that run in this process or on the user's own machines have no tiers and cost nothing:
    they are asked as usual.

    Args:
        settings: of the command.
        models: every model that the command may call.

    Raises:
        InputError: a model's provider has no flex tier, or a setting names another model.
    """
    if not settings.service_tier:
        return NO_FLEX
    paid = [name for name in models if not is_in_process(name) and not is_local(name)]
    asked: list[str] = []
    for text in settings.service_tier:
        model = text.rpartition(":")[0]
        if model and model not in paid:
            raise InputError(
                f"--service-tier {text}: no call goes to {model!r}; {nearest(model, paid)}"
            )
        asked += [model] if model else paid
    lacking = [name for name in dict.fromkeys(asked) if not ((row := row_of(name)) and row.flex)]
    if lacking:
        having = ", ".join(name for name, row in ENDPOINTS.items() if row.flex)
        raise InputError(
            f"--service-tier {FLEX}: the provider of {', '.join(lacking)} has no flex tier;"
            f" expected models of {having}, or --service-tier MODEL:{FLEX} for some of the models"
        )
    minutes = settings.flex_fallback
    return FlexPlan(frozenset(asked), None if minutes is None else minutes * 60)


def chosen_ways(settings: Calling, models: Iterable[str]) -> dict[str, str]:
    """Return the tier at which each model is asked that is not asked at the standard tier, by
    settings that `flex_plan` or `need_batches` have accepted.
    """
    named = {text.rpartition(":")[0] for text in settings.service_tier}
    chosen: dict[str, str] = {}
    for model in models:
        if settings.batch and way_of(model, BATCH):
            chosen[model] = BATCH
        elif named & {"", model} and way_of(model, FLEX):
            chosen[model] = FLEX
    return chosen


def beyond_budget(
    expected: Forecast, settings: Calling, kept: Path | PriceList | None = None
) -> Iterator[str]:
    """Yield a note for each budget that the calls to come exceed, by the prices of the settings, or
    others.
    """
    prices = Prices(kept or settings.prices)
    dollars = sum(
        expected_cost(line, prices, tier=expected.chosen.get(line.model, STANDARD)) or 0.0
        for line in expected.lines
    )
    calls = sum(line.calls for line in expected.lines)
    tokens = sum(line.input_tokens + line.output_tokens for line in expected.lines)
    for flag, most, amount, shown in (
        ("--budget-calls", settings.budget_calls, calls, f"{calls:,} calls"),
        ("--budget-tokens", settings.budget_tokens, tokens, f"{tokens:,} tokens"),
        ("--budget-dollars", settings.budget_dollars, dollars, f"{dollars_text(dollars)} dollars"),
    ):
        if most is not None and amount > most:
            yield (
                f"{flag} {most:.10g}: {shown} are expected; at the limit the command"
                " stops with exit code 3, and goes on if it is run again"
            )
