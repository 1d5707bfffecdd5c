"""What calls may come to, and how another process that holds a file is waited for."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from opensafeintent.calls.client import Budget, Tally
from opensafeintent.calls.draining import heed
from opensafeintent.calls.prices import Prices
from opensafeintent.calls.progress import Display
from opensafeintent.calls.providers import is_in_process
from opensafeintent.files import Taken
from opensafeintent.workflows.settings import Calling


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """How many calls may be made at once and in all, and what they cost."""

    max_connections: int | None = None
    """Connections of one endpoint, exactly; adaptive by default."""
    budget: Budget
    prices: Prices

    @classmethod
    def of(cls, settings: Calling) -> Limits:
        """Return the limits that settings name, with the prices read.

        Raises:
            InputError: the file of prices cannot be read.
        """
        prices = Prices(settings.prices)
        budget = Budget(
            calls=settings.budget_calls,
            tokens=settings.budget_tokens,
            dollars=settings.budget_dollars,
            prices=prices,
        )
        return cls(max_connections=settings.max_connections, budget=budget, prices=prices)

    def check_prices(self, models: Iterable[str]) -> None:
        """See that there is a price of every model that may be called, where there is a budget in
        dollars.

        Raises:
            InputError: some have none.
        """
        if self.budget.dollars is not None:
            self.prices.need(models)

    def spent(self, tally: Tally) -> float | None:
        """Return the dollars spent so far; None where no model that was called has a price."""
        known = any(self.prices.of(model) for model, _ in tally.tokens if not is_in_process(model))
        return self.prices.cost(tally.tokens) if known else None


def wait_or_refuse(settings: Calling, display: Display) -> Callable[[str], None]:
    """Return what is told who holds a ledger or a folder (`files.held`); it shows that, or raises
    `Taken`.
    """

    def held(line: str) -> None:
        if not settings.wait:
            raise Taken(f"{line}; wait for it, or add --wait")
        heed()
        display.stage(f"waiting: {line}")

    return held
