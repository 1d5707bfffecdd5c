"""What calls came to in tokens, by model and purpose, and what further ones can be expected to:
from a ledger alone.
"""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from statistics import median
from typing import NamedTuple, get_args

import msgspec

from opensafeintent.calls.ledger import Attempted, Ledger
from opensafeintent.calls.prices import Prices
from opensafeintent.calls.providers import is_in_process, provider_of
from opensafeintent.calls.records import Purpose

_PURPOSES = get_args(Purpose)


class Spending(msgspec.Struct, kw_only=True):
    """What the calls of one model for one purpose came to; every attempt on record once, whichever
    run made it.
    """

    model: str
    purpose: str
    calls: int = 0
    """Replies that stand: answers and refusals."""
    failed: int = 0
    """Attempts that brought neither; what their replies say of tokens is in the sums."""
    without_usage: int = 0
    """Replies that stand and do not say how many tokens they took."""
    input_tokens: int = 0
    output_tokens: int = 0

    def dollars(self, prices: Prices) -> float | None:
        """Return what they cost; None where the model has no price."""
        price = prices.of(self.model)
        return None if price is None else price.of(self.input_tokens, self.output_tokens)

    def add(self, attempt: Attempted) -> None:
        """Count an attempt."""
        answered = attempt.status != "failed"
        self.calls += answered
        self.failed += not answered
        self.without_usage += answered and not attempt.input_tokens + attempt.output_tokens
        self.input_tokens += attempt.input_tokens
        self.output_tokens += attempt.output_tokens


class Spent(msgspec.Struct, frozen=True, kw_only=True):
    """What one run, or one build, came to."""

    lines: tuple[Spending, ...]
    """By model, in alphabetical order, and purpose."""
    shared: bool = False
    """Whether the ledger is one that other runs may use too: then these are the calls that this
    one's results rest on.
    """
    day: date | None = None
    """Of the last call (UTC); None where there was none."""

    @property
    def models(self) -> list[str]:
        """The models that were called, each once."""
        return list(dict.fromkeys(line.model for line in self.lines))

    @property
    def paid(self) -> bool:
        """Whether any of them is another than those in this process."""
        return not all(map(is_in_process, self.models))

    def dollars(self, prices: Prices) -> float | None:
        """Return the sum of what is known; None where somebody is paid and no price is."""
        if prices.lacking(self.models) and not prices.tells(self.models):
            return None
        return sum(line.dollars(prices) or 0.0 for line in self.lines)

    def silent(self) -> dict[str, int]:
        """Return, by model that is paid for, how many of its replies did not say how many tokens
        they took.
        """
        silent: Counter[str] = Counter()
        for line in self.lines:
            if line.without_usage and not is_in_process(line.model):
                silent[line.model] += line.without_usage
        return dict(silent)


def spent_of(ledger: Ledger, keys: Iterable[bytes] | None = None) -> Spent:
    """Add up the attempts on record.

    Args:
        ledger: where they are.
        keys: of the calls, in a ledger that others use too; None takes every row.

    Raises:
        InputError: the ledger is damaged.
    """
    lines: dict[tuple[str, str], Spending] = {}
    day: date | None = None
    for attempt in ledger.attempts(keys):
        key = (attempt.model, attempt.purpose)
        lines.setdefault(key, Spending(model=attempt.model, purpose=attempt.purpose)).add(attempt)
        day = max(day or date.min, attempt.created.date())
    return Spent(
        lines=tuple(
            sorted(lines.values(), key=lambda line: (line.model, _PURPOSES.index(line.purpose)))
        ),
        shared=keys is not None,
        day=day,
    )


# What to expect
# ------------------------------------------------------------------------------


class Seen(NamedTuple):
    """What the calls of one model for one purpose took on average, by a ledger."""

    calls: int
    """That said how many tokens they took."""
    input_tokens: float
    output_tokens: float
    seconds: float
    """The median."""


class ForecastLine(msgspec.Struct, frozen=True, kw_only=True):
    """Calls of one model for one purpose that are to come."""

    model: str
    purpose: str
    calls: int
    input_tokens: int
    output_tokens: int
    at_most: bool = False
    """An upper bound: how many there will be depends on the answers."""
    seen: int = 0
    """Calls on record whose mean the tokens are; 0 where they are reckoned from the length of
    texts.
    """
    seconds: float | None = None
    """Median of a call on record."""


def seen_in(ledger: Ledger) -> dict[tuple[str, str], Seen]:
    """Return what the replies in a ledger took, by model and purpose, as far as they say."""
    tokens: Counter[tuple[str, str, str]] = Counter()
    seconds: defaultdict[tuple[str, str], array[float]] = defaultdict(lambda: array("d"))
    for model, purpose, status, given, got, took, _ in ledger.attempts():
        if status != "failed" and given + got:
            tokens[model, purpose, "input"] += given
            tokens[model, purpose, "output"] += got
            seconds[model, purpose].append(took)
    return {
        key: Seen(
            len(took),
            tokens[*key, "input"] / len(took),
            tokens[*key, "output"] / len(took),
            median(took),
        )
        for key, took in seconds.items()
    }


def by_experience(line: ForecastLine, seen: Mapping[tuple[str, str], Seen]) -> ForecastLine:
    """Return a line with the tokens and seconds of such calls on record, where there are any."""
    found = seen.get((line.model, line.purpose.partition(",")[0]))
    if found is None:
        return line
    return msgspec.structs.replace(
        line,
        input_tokens=round(line.calls * found.input_tokens),
        output_tokens=round(line.calls * found.output_tokens),
        seen=found.calls,
        seconds=found.seconds,
    )


def expected_minutes(lines: Sequence[ForecastLine], connections: int) -> float | None:
    """Return how long calls can be expected to take, by those whose seconds are known; None where
    none are.

    Each provider has so many connections, and the slowest one sets the time.
    """
    by: defaultdict[str, float] = defaultdict(float)
    for line in lines:
        if line.seconds is not None and not is_in_process(line.model):
            by[provider_of(line.model)] += line.calls * line.seconds / connections / 60
    return max(by.values(), default=None)
