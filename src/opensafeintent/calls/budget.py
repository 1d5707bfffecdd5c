"""What a run has used so far, and the most that it may use."""

from __future__ import annotations

import time
from collections import Counter

import msgspec

from opensafeintent.calls.prices import Prices
from opensafeintent.calls.records import Answered, Call, Refused, Usage
from opensafeintent.calls.service_tiers import STANDARD


class Tally:
    """Counts that the progress display, budgets and the closing summary are made of."""

    def __init__(self) -> None:
        self.started = time.monotonic()
        self.new_calls: Counter[tuple[str, str]] = Counter()
        """Calls made, retries not counted, by (model, purpose)."""
        self.reused_calls = 0
        self.duplicates = 0
        """Those of them whose answer this process had obtained itself, for an equal call."""
        self.retries = 0
        self.refusals = 0
        self.missing = 0
        """Grades that were requested but not obtained."""
        self.in_flight = 0
        self.answered_at = self.started
        """When the last answer came, by `time.monotonic`."""
        self.abandoned = 0
        """Requests that were not waited for to their end."""
        self.draining = False
        """Whether no call is begun any more, and those in flight are waited for."""
        self.usage: Counter[tuple[str, str, str]] = Counter()
        """Tokens by model, service tier and kind: `input`, `output`, and those of the input that
        are of kind `cache_read` or `cache_write`.
        """

    @property
    def calls(self) -> int:
        """Requests made so far, retries included."""
        return self.new_calls.total() + self.retries

    @property
    def tokens(self) -> Counter[tuple[str, str]]:
        """Tokens by model and kind, `input` or `output`."""
        tokens: Counter[tuple[str, str]] = Counter()
        for (model, _, kind), count in self.usage.items():
            if kind in ("input", "output"):
                tokens[model, kind] += count
        return tokens

    @property
    def done(self) -> int:
        """Calls that are over: answered, failed, or taken from the ledger."""
        return self.new_calls.total() + self.reused_calls - self.in_flight - self.abandoned

    def began(self, call: Call, *, retry: bool) -> None:
        """Note a request."""
        self.in_flight += 1
        if retry:
            self.retries += 1
        else:
            self.new_calls[call.model, call.purpose] += 1

    def finished(self, call: Call, outcome: Answered | Refused, tier: str = STANDARD) -> None:
        """Note an outcome."""
        self.answered_at = time.monotonic()
        self.refusals += isinstance(outcome, Refused)
        self.paid(call, outcome.usage, tier)

    def paid(self, call: Call, usage: Usage, tier: str = STANDARD) -> None:
        """Note the tokens of a reply, of one that is no answer too."""
        self.usage[call.model, tier, "input"] += usage.input_tokens
        self.usage[call.model, tier, "output"] += usage.output_tokens
        if usage.cached_tokens or usage.cache_write_tokens:
            self.usage[call.model, tier, "cache_read"] += usage.cached_tokens
            self.usage[call.model, tier, "cache_write"] += usage.cache_write_tokens

    def add(self, other: Tally) -> None:
        """Note everything that another tally counted."""
        for name in (
            "new_calls",
            "reused_calls",
            "duplicates",
            "retries",
            "refusals",
            "missing",
            "abandoned",
            "usage",
        ):
            setattr(self, name, getattr(self, name) + getattr(other, name))


class Budget(msgspec.Struct, frozen=True, kw_only=True):
    """The most that a run may ask for, None being no limit; and how long a call is tried again."""

    calls: int | None = None
    dollars: float | None = None
    prices: Prices | None = None
    """Prices for counting dollars."""
    max_retries: int | None = None
    """Further attempts at a call that failed, rate limits aside; None is `_ATTEMPTS` in all."""
    retry_seconds: float | None = None
    """Deadline of one call, its retries and waits included; None is `_CALL_SECONDS`."""

    def reached(self, tally: Tally) -> str | None:
        """Say which limit is used up, if one is."""
        cost = self.prices.cost(tally.usage) if self.dollars and self.prices else 0.0
        for limit, used, form, flag in (
            (self.calls, tally.calls, "{:,} calls", "--budget-calls"),
            (self.dollars, cost, "${:,.10g}", "--budget-dollars"),
        ):
            if limit is not None and used >= limit:
                return (
                    f"the budget of {form.format(limit)} is used up ({flag}), which is"
                    " of one command; run again to go on"
                )
        return None
