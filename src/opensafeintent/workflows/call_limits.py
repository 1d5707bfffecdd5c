"""Limits of the calls that a command makes, and waiting for a file that another process holds."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from opensafeintent.calls.budget import Budget, Tally
from opensafeintent.calls.prices import Prices
from opensafeintent.calls.progress import Display
from opensafeintent.calls.providers import is_in_process
from opensafeintent.calls.shutdown import raise_if_interrupted
from opensafeintent.errors import option
from opensafeintent.locks import Taken
from opensafeintent.workflows.settings import Calling


class Limits(Budget, frozen=True, kw_only=True):
    """Limits of concurrent calls, of all calls, and of their cost."""

    prices: Prices
    max_connections: int | None = None
    """Connections of one endpoint, exactly; adaptive by default."""

    @classmethod
    def of(cls, settings: Calling) -> Limits:
        """Return the limits that settings name, with the prices read.

        Raises:
            InputError: the file of prices cannot be read.
        """
        return cls(
            calls=settings.budget_calls,
            tokens=settings.budget_tokens,
            dollars=settings.budget_dollars,
            prices=Prices(settings.prices),
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
        paid = (model for model, _ in tally.tokens if not is_in_process(model))
        if not any(map(self.prices.of, paid)):
            return None
        return self.prices.cost(tally.tokens | tally.cached)


def wait_or_refuse(settings: Calling, display: Display) -> Callable[[str], None]:
    """Return a function to call with the name of a ledger's or folder's holder (`files.held`); it
    shows the name, or raises `Taken`.
    """

    def wait(line: str) -> None:
        if not settings.wait:
            raise Taken(f"{line}; wait for it, or add {option('wait')}")
        raise_if_interrupted()
        display.stage(f"waiting: {line}")

    return wait
