"""What calls cost: tally and budget while they are made, and the costs by model and purpose."""

from __future__ import annotations

import time
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from statistics import median
from typing import NamedTuple, get_args

import msgspec

from opensafeintent.calls.ledger import Ledger
from opensafeintent.calls.ledger_rows import Attempts
from opensafeintent.calls.prices import Prices, find_way
from opensafeintent.calls.providers import is_another, is_in_process, parse_provider
from opensafeintent.calls.records import Answered, Call, Purpose, Refused, Usage
from opensafeintent.calls.service_tiers import BATCH, FLEX, STANDARD, Way
from opensafeintent.hostile import clean_name


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
    def done(self) -> int:
        """Calls made that are over: answered or failed."""
        return self.new_calls.total() - self.in_flight - self.abandoned

    def describe(self) -> str:
        """Return in words how many calls were made, and how many answers were there already."""
        made = self.new_calls.total()
        counts = {
            f"call{'' if made == 1 else 's'} made": made,
            "retry" if self.retries == 1 else "retries": self.retries,
            "taken from the ledger": self.reused_calls - self.duplicates,
            f"duplicate request{'' if self.duplicates == 1 else 's'} answered once": (
                self.duplicates
            ),
        }
        phrases = [f"{count:,} {what}" for what, count in counts.items() if count or "made" in what]
        return f"{', '.join(phrases)}."

    def began(self, call: Call, *, retry: bool) -> None:
        """Note a request."""
        self.in_flight += 1
        if retry:
            self.retries += 1
        else:
            self.new_calls[call.model, call.purpose] += 1

    def note_outcome(self, call: Call, outcome: Answered | Refused, tier: str = STANDARD) -> None:
        """Note an outcome."""
        self.answered_at = time.monotonic()
        self.refusals += isinstance(outcome, Refused)
        self.note_tokens(call, outcome.usage, tier)

    def note_tokens(self, call: Call, usage: Usage, tier: str) -> None:
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
    prices: Prices = msgspec.field(default_factory=Prices)
    """For counting dollars."""
    max_retries: int | None = None
    """Further attempts at a call that failed, rate limits aside; None is `_ATTEMPTS` in all."""
    retry_seconds: float | None = None
    """Deadline of one call, its retries and waits included; None is `_CALL_SECONDS`."""

    def check_prices(self, models: Iterable[str]) -> None:
        """Check that every model that may be called has a price, if there is a limit of dollars.

        Raises:
            InputError: some have none.
        """
        if self.dollars is not None:
            self.prices.need(models)

    def find_reached_limit(self, tally: Tally) -> str | None:
        """Say which limit is used up, if one is."""
        if self.calls is None and self.dollars is None:
            return None
        cost = self.prices.cost(tally.usage) if self.dollars else 0.0
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


class Spending(msgspec.Struct, kw_only=True):
    """Tokens of one model's calls for one purpose; every recorded attempt counts once, whichever
    run made it.
    """

    model: str
    purpose: str
    service_tier: str = STANDARD
    """The tier that served them."""
    calls: int = 0
    """Final replies: answers and refusals."""
    failed: int = 0
    """Attempts without an answer or a refusal; the tokens that their replies report are in the
    sums.
    """
    without_usage: int = 0
    """Final replies that report no number of tokens."""
    input_tokens: int = 0
    cached_tokens: int = 0
    """Input tokens that were read from a cache."""
    cache_write_tokens: int = 0
    """Input tokens that were written to one."""
    output_tokens: int = 0
    served: Counter[str] = msgspec.field(default_factory=Counter)
    """Replies by the model that they name."""

    @property
    def has_usage(self) -> bool:
        """Whether any reply reports its tokens, or there is none."""
        return self.without_usage < self.calls or not self.calls

    def dollars(
        self, prices: Prices, *, cached: bool = True, tier: str | None = None
    ) -> float | None:
        """Return their cost, or with `cached=False` that without any cache, or with `tier` that at
        another service tier; None if the model has no price.
        """
        if (price := prices.of(self.model, tier or self.service_tier)) is None:
            return None
        cache = (self.cached_tokens, self.cache_write_tokens) if cached else ()
        return price.of(self.input_tokens, self.output_tokens, *cache)

    def add(self, attempts: Attempts) -> None:
        """Count attempts."""
        if attempts.status == "failed":
            self.failed += attempts.number
        else:
            self.calls += attempts.number
            self.without_usage += attempts.without_usage
        self.input_tokens += attempts.input_tokens
        self.cached_tokens += attempts.cached_tokens
        self.cache_write_tokens += attempts.cache_write_tokens
        self.output_tokens += attempts.output_tokens
        if attempts.served_model:
            self.served[clean_name(attempts.served_model)] += attempts.number


class Spent(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens and cost of one run, or one build."""

    lines: tuple[Spending, ...]
    """By model, in alphabetical order, purpose and service tier."""
    shared: bool = False
    """Whether the ledger is one that other runs may use too: then these are the calls that this
    one's results rest on.
    """
    days: tuple[date, date] | None = None
    """Of the first and the last call (UTC); None if there was none."""

    @property
    def models(self) -> list[str]:
        """The models that were called, each once."""
        return list(dict.fromkeys(line.model for line in self.lines))

    @property
    def other_models(self) -> Counter[tuple[str, str]]:
        """Replies by the model that was asked and the other one that they name."""
        others: Counter[tuple[str, str]] = Counter()
        for line in self.lines:
            for name, count in line.served.items():
                if is_another(line.model, name):
                    others[line.model, name] += count
        return others

    @property
    def paid(self) -> bool:
        """Whether any of them is another than those in this process."""
        return not all(map(is_in_process, self.models))

    def dollars(
        self, prices: Prices, *, cached: bool = True, tier: str | None = None
    ) -> float | None:
        """Return the sum of known costs, or with `cached=False` that without any cache, or with
        `tier` that at one service tier; None if a model is paid for and no price is known.
        """
        if prices.find_unpriced(self.models) and not prices.tells(self.models):
            return None
        return sum(line.dollars(prices, cached=cached, tier=tier) or 0.0 for line in self.lines)

    def silent(self) -> dict[str, int]:
        """Return, by model that is paid for, how many of its replies did not say how many tokens
        they took.
        """
        silent: Counter[str] = Counter()
        for line in self.lines:
            if line.without_usage and not is_in_process(line.model):
                silent[line.model] += line.without_usage
        return dict(silent)


def sum_spent(ledger: Ledger, keys: Iterable[bytes] | None = None) -> Spent:
    """Add up the recorded attempts.

    Args:
        ledger: holds the attempts.
        keys: of the calls, in a ledger that others use too; None takes every row.

    Raises:
        InputError: the ledger is damaged.
    """
    lines: dict[tuple[str, str, str], Spending] = {}
    days: list[date] = []
    for attempts in ledger.attempts(keys):
        place = attempts.model, attempts.purpose, attempts.tier
        if (line := lines.get(place)) is None:
            model, purpose, tier = place
            line = lines[place] = Spending(model=model, purpose=purpose, service_tier=tier)
        line.add(attempts)
        days += [attempts.earliest.date(), attempts.latest.date()]
    return Spent(
        lines=tuple(
            sorted(
                lines.values(),
                key=lambda line: (
                    line.model,
                    get_args(Purpose).index(line.purpose),
                    line.service_tier,
                ),
            )
        ),
        shared=keys is not None,
        days=(min(days), max(days)) if days else None,
    )


class Experience(NamedTuple):
    """Mean tokens and seconds of one model's calls for one purpose, from a ledger."""

    calls: int
    """That said how many tokens they took."""
    input_tokens: float
    output_tokens: float
    seconds: float | None
    """The median; None if all calls were made in batches, whose time is none of a call's."""


class ForecastLine(msgspec.Struct, frozen=True, kw_only=True):
    """Calls of one model for one purpose that are to come."""

    model: str
    purpose: str
    calls: int
    input_tokens: int
    output_tokens: int
    beginning_tokens: int = 0
    """Of the text that each of these calls begins with."""
    further_tokens: int = 0
    """Of first turns, in the input: stored calls for the purpose may be without one."""
    at_most: bool = False
    """An upper bound: how many there will be depends on the answers."""
    seen: int = 0
    """Recorded calls behind the means; 0 if the tokens are estimated from the length of texts."""
    seconds: float | None = None
    """Median of a stored call."""


def experience_in(ledger: Ledger) -> dict[tuple[str, str], Experience]:
    """Return the tokens of the replies in a ledger, by model and purpose, as far as they are
    reported.
    """
    spent: defaultdict[tuple[str, str], list[Attempts]] = defaultdict(list)
    seconds: defaultdict[tuple[str, str], array[float]] = defaultdict(lambda: array("d"))
    for attempts in ledger.attempts():
        if attempts.status != "failed" and attempts.number > attempts.without_usage:
            spent[attempts.model, attempts.purpose].append(attempts)
    for model, purpose, lasted in ledger.seconds():
        seconds[model, purpose].append(lasted)
    experiences = {}
    for place, parts in spent.items():
        count = sum(part.number - part.without_usage for part in parts)
        experiences[place] = Experience(
            count,
            sum(part.input_tokens for part in parts) / count,
            sum(part.output_tokens for part in parts) / count,
            median(seconds[place]) if seconds[place] else None,
        )
    return experiences


def apply_experience(
    line: ForecastLine, experiences: Mapping[tuple[str, str], Experience]
) -> ForecastLine:
    """Return a line with the tokens and seconds of such recorded calls, if there are any."""
    record = experiences.get((line.model, line.purpose.partition(",")[0]))
    if record is None:
        return line
    return msgspec.structs.replace(
        line,
        input_tokens=round(line.calls * record.input_tokens) + line.further_tokens,
        output_tokens=round(line.calls * record.output_tokens),
        seen=record.calls,
        seconds=record.seconds,
    )


_LEAST_CACHED = 1024
_LEAST_CACHED_OF = {"claude-haiku-4-5": 4096}
"""Tokens of an equal beginning from which on providers cache it, as they document it."""


def forecast_cost(
    line: ForecastLine, prices: Prices, *, cached: bool = False, tier: str = STANDARD
) -> float | None:
    """Return the expected cost of calls to come, in dollars; None if the model has no price.

    Args:
        line: the calls.
        prices: of the models.
        cached: estimate by the documented rules of caching: the first call writes the beginning
            that all share, and each other one reads it, if it is long enough and cached input has
            a price of its own.
        tier: the service tier.
    """
    if (price := prices.of(line.model, tier)) is None:
        return None
    least = next(
        (tokens for name, tokens in _LEAST_CACHED_OF.items() if name in line.model), _LEAST_CACHED
    )
    if not cached or line.beginning_tokens < least or price.cache_read is None or not line.calls:
        return price.of(line.input_tokens, line.output_tokens)
    written = line.beginning_tokens
    read = min((line.calls - 1) * written, line.input_tokens - written)
    return price.of(line.input_tokens, line.output_tokens, max(read, 0), written)


class ExpectedWay(NamedTuple):
    """What the calls to one model would cost in one way."""

    model: str
    tier: str
    """The service tier, or `batch`."""
    dollars: float | None
    """None if the model has no price."""
    cached_dollars: float | None
    """With cached input, an estimate; None if no input would be cached."""
    share: float
    """Of the standard price."""
    way: Way | None
    """As its provider documents it; None for the standard tier."""
    listed: bool
    """Whether the price list has the price of this way."""


def forecast_ways(lines: Sequence[ForecastLine], prices: Prices) -> list[ExpectedWay]:
    """Return the expected costs of calls to come, for each model that is paid for and each way that
    its provider offers: the standard tier, the flex tier, batches.
    """
    ways: list[ExpectedWay] = []
    for model in dict.fromkeys(line.model for line in lines if not is_in_process(line.model)):
        own = [line for line in lines if line.model == model]
        standard = _forecast_sum(own, prices, STANDARD)
        for tier in (STANDARD, FLEX, BATCH):
            way = find_way(model, tier)
            if way is None and tier != STANDARD:
                continue
            dollars = _forecast_sum(own, prices, tier)
            cached = _forecast_sum(own, prices, tier, cached=True)
            ways.append(
                ExpectedWay(
                    model,
                    tier,
                    dollars,
                    cached if cached != dollars else None,
                    dollars / standard if dollars and standard else (way.factor if way else 1.0),
                    way,
                    prices.find_documentation(model, tier) is None,
                )
            )
    return ways


def _forecast_sum(
    lines: Sequence[ForecastLine], prices: Prices, tier: str, *, cached: bool = False
) -> float | None:
    """Return the expected cost of calls to one model; None if it has no price."""
    costs = [forecast_cost(line, prices, cached=cached, tier=tier) for line in lines]
    known = [cost for cost in costs if cost is not None]
    return sum(known) if known else None


def forecast_minutes(lines: Sequence[ForecastLine], connections: int) -> float | None:
    """Return the expected duration of calls, from those with known seconds; None if none are known.

    Each provider has this number of connections, and the slowest provider sets the time.
    """
    by: defaultdict[str, float] = defaultdict(float)
    for line in lines:
        if line.seconds is not None and not is_in_process(line.model):
            by[parse_provider(line.model)] += line.calls * line.seconds / connections / 60
    return max(by.values(), default=None)
