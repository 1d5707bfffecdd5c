"""What a run has done and spent so far, and how far it may go."""

from __future__ import annotations

import time
from collections import Counter

import msgspec

from opensafeintent.calls.records import Answered, Call, Refused

__all__ = ["Budget", "Tally"]


class Tally:
    """Counts that the progress display, budgets and the closing summary are made of."""

    def __init__(self) -> None:
        self.started = time.monotonic()
        self.made: Counter[tuple[str, str]] = Counter()
        """Calls made, retries not counted, by (model, purpose)."""
        self.reused_calls = 0
        self.retries = 0
        self.answers = 0
        self.refusals = 0
        self.missing = 0
        """Grades that could not be had."""
        self.in_flight = 0
        self.abandoned = 0
        """Requests that were not waited for to their end."""
        self.draining = False
        """Whether no call is begun any more, and those in flight are waited for."""
        self.tokens: Counter[tuple[str, str]] = Counter()
        """Tokens by (model, `input` or `output`)."""

    @property
    def calls(self) -> int:
        """Requests made so far, retries included."""
        return self.made.total() + self.retries

    @property
    def done(self) -> int:
        """Calls that are over: answered, failed, or taken from the ledger."""
        return self.made.total() + self.reused_calls - self.in_flight - self.abandoned

    def began(self, call: Call, *, retry: bool) -> None:
        """Note a request."""
        self.in_flight += 1
        if retry:
            self.retries += 1
        else:
            self.made[call.model, call.purpose] += 1

    def ended(self) -> None:
        """Note that a request is over, however it ended."""
        self.in_flight -= 1

    def finished(self, call: Call, outcome: Answered | Refused) -> None:
        """Note an outcome."""
        self.answers += 1
        self.refusals += isinstance(outcome, Refused)
        self.tokens[call.model, "input"] += outcome.usage.input_tokens
        self.tokens[call.model, "output"] += outcome.usage.output_tokens

    def reused(self, call: Call, outcome: Answered | Refused) -> None:
        """Note an outcome that the ledger held."""
        self.reused_calls += 1
        self.refusals += isinstance(outcome, Refused)


class Budget(msgspec.Struct, frozen=True, kw_only=True):
    """The most that a run may ask for; None is no limit."""

    calls: int | None = None
    tokens: int | None = None

    def reached(self, tally: Tally) -> str | None:
        """Say which limit is used up, if one is."""
        if self.calls is not None and tally.calls >= self.calls:
            return f"the budget of {self.calls:,} calls is used up; run again with a larger --budget-calls to go on"
        if self.tokens is not None and tally.tokens.total() >= self.tokens:
            return f"the budget of {self.tokens:,} tokens is used up; run again with a larger --budget-tokens to go on"
        return None
