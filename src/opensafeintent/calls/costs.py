"""Prices of tokens, from the user's file or the price list of the extra `[prices]`; and the tokens
of recorded calls.
"""

from __future__ import annotations

import importlib.metadata
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime
from functools import cached_property
from pathlib import Path
from statistics import median
from typing import Annotated, Any, NamedTuple, get_args

import msgspec

from opensafeintent.calls.ledger import Attempted, Ledger
from opensafeintent.calls.providers import (
    ENDPOINTS,
    FOREIGN,
    INSPECT_PROVIDERS,
    is_another,
    is_in_process,
    provider_of,
)
from opensafeintent.calls.records import Purpose
from opensafeintent.errors import InputError, install_extra
from opensafeintent.files import parse_json, read_bytes, sha256_hex
from opensafeintent.hostile import one_line, short_name

_PACKAGE = "genai-prices"
_NEEDS_EXTRA = install_extra("prices")
_FORM = (
    'a price list ({"provider/model": {"input": dollars, "output": dollars}} for a million tokens)'
)
_ENTRY = 'a price ({"input": dollars, "output": dollars} for a million tokens)'
_RENAMED = {"grok": "x-ai", "azureai": "azure", "bedrock": "aws", "moonshot": "moonshotai"}
"""Providers that the package calls otherwise than we do."""
_TOKENS = 1000
"""Of the request that the package is asked the price of: few enough for the rate of a prompt of
usual length.
"""


_Dollars = Annotated[float, msgspec.Meta(ge=0, le=1e9)]


class Price(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Dollars for a million tokens."""

    input: _Dollars
    output: _Dollars

    def of(self, input_tokens: float, output_tokens: float) -> float:
        """Return the cost of some tokens, in dollars."""
        return (input_tokens * self.input + output_tokens * self.output) / 1e6


_FREE = Price(0.0, 0.0)


def read_prices(path: Path) -> dict[str, Price]:
    """Read a JSON file `{"provider/model": {"input": 2.5, "output": 10}}`, in dollars for a million
    tokens.

    Raises:
        InputError: it cannot be read, or is not of that form.
    """
    entries = parse_json(read_bytes(path), dict[str, msgspec.Raw], str(path), _FORM)
    return {
        name: parse_json(bytes(raw), Price, f"{path}: {one_line(name, 100)}", _ENTRY)
        for name, raw in entries.items()
    }


class Prices:
    """Prices of each model's tokens, all from one source.

    If the user gives a file, it is the only source: a model that the file lacks has no price.
    Otherwise the source is genai-prices, if it is installed. Models in this process cost nothing,
    unless the file says otherwise.

    Args:
        file: the user's.
        day: the date of the package's prices; today by default.

    Raises:
        InputError: the file cannot be used.
    """

    def __init__(self, file: Path | None = None, day: date | None = None) -> None:
        self._file = file
        self._day = day or datetime.now(UTC).date()
        self._given = read_prices(file) if file else {}
        self._known: dict[str, Price | None] = dict(self._given)

    @cached_property
    def _package(self) -> Any:
        """The package, if there is no file; None if it is not installed."""
        try:
            return None if self._file else importlib.import_module("genai_prices")
        except ImportError:
            return None

    def __bool__(self) -> bool:
        """Whether there is anything that could know a price."""
        return self._file is not None or self._package is not None

    @property
    def about(self) -> dict[str, str] | None:
        """Source of the prices, by field of `cost.json`; None if there are none."""
        if self._file:
            return {"source": self._file.name, "sha256": sha256_hex(read_bytes(self._file))}
        if self._package is None:
            return None
        return {
            "source": _PACKAGE,
            "version": importlib.metadata.version(_PACKAGE),
            "date": self._day.isoformat(),
        }

    @property
    def basis(self) -> str:
        """The source as a sentence; without one, instructions to get prices."""
        match self.about:
            case {"source": source, "sha256": digest}:
                return f"Prices: {source} (sha256 {digest[:12]})."
            case {"source": source, "version": version, "date": day}:
                return f"Prices: {source} {version}, as of {day}."
        return f"No prices: give --prices FILE, or {_NEEDS_EXTRA}."

    def of(self, model: str) -> Price | None:
        """Return a model's price; None if it is unknown."""
        if model not in self._known:
            self._known[model] = _FREE if is_in_process(model) else self._listed(model)
        return self._known[model]

    def _listed(self, model: str) -> Price | None:
        """Return the package's price of a model, by its name; None if it has none.

        A name of the generic provider does not identify the server. If a price depends on the hour,
        it is the highest of the day.
        """
        package = self._package
        prefix, _, name = model.removeprefix(FOREIGN).partition("/")
        if package is None or not (prefix in ENDPOINTS or prefix in INSPECT_PROVIDERS):
            return None
        provider = _RENAMED.get(provider_of(model), provider_of(model))
        usage, by_hour = package.Usage(input_tokens=_TOKENS, output_tokens=_TOKENS), []
        for hour in range(24):
            at = datetime(self._day.year, self._day.month, self._day.day, hour, tzinfo=UTC)
            try:
                calculation = package.calc_price(
                    usage, name, provider_id=provider, genai_request_timestamp=at
                )
            except LookupError:
                return None
            rates = calculation.model_price
            if (
                getattr(rates, "input_mtok", None) is None
                or getattr(rates, "output_mtok", None) is None
            ):
                return None  # it is paid for by the image, the second or the request
            each = (calculation.input_price, calculation.output_price)
            by_hour.append(Price(*(float(price * 1_000_000 / _TOKENS) for price in each)))
        return max(by_hour, key=lambda price: price.input + price.output)

    def cost(self, tokens: Mapping[tuple[str, str], float]) -> float:
        """Return the cost of tokens by (model, `input` or `output`); models without a price are
        left out.
        """
        priced = ((self.of(model), kind, count) for (model, kind), count in tokens.items())
        return (
            sum(
                count * float(getattr(price, kind))
                for price, kind, count in priced
                if price is not None
            )
            / 1e6
        )

    def tells(self, models: Iterable[str]) -> bool:
        """Tell whether prices were asked for, or one of some models has a price: that a baseline is
        free says nothing of the others.
        """
        return self._file is not None or any(
            self.of(model) not in (None, _FREE) or model in self._given for model in models
        )

    def lacking(self, models: Iterable[str]) -> list[str]:
        """Return the models without a price, each once, in alphabetical order."""
        return sorted({model for model in models if self.of(model) is None})

    def unpriced(self, models: Iterable[str]) -> list[str]:
        """Name the models without a price, if there are prices at all: a line, or none."""
        lacking = self.lacking(models) if self else []
        return (
            [f"no price is given for {', '.join(lacking)}: its cost is not in the sum"]
            if lacking
            else []
        )

    def need(self, models: Iterable[str]) -> None:
        """See that every model has a price.

        Raises:
            InputError: some have none; the text names them and says how to give one.
        """
        if lacking := self.lacking(models):
            where = f"{self._file or _PACKAGE} has none" if self else f"{_NEEDS_EXTRA} brings many"
            raise InputError(
                f"--budget-dollars: no price for {', '.join(lacking)}: {where}; "
                "give one with --prices FILE, dollars a million tokens: "
                f'{{"{lacking[0]}": {{"input": 2.5, "output": 10}}}}'
            )


# Tokens of calls, by model and purpose, and the expected tokens of further calls
# ------------------------------------------------------------------------------


class Spending(msgspec.Struct, kw_only=True):
    """Tokens of one model's calls for one purpose; every recorded attempt counts once, whichever
    run made it.
    """

    model: str
    purpose: str
    calls: int = 0
    """Final replies: answers and refusals."""
    failed: int = 0
    """Attempts without an answer or a refusal; the tokens that their replies report are in the
    sums.
    """
    without_usage: int = 0
    """Final replies that report no number of tokens."""
    input_tokens: int = 0
    output_tokens: int = 0

    @property
    def has_usage(self) -> bool:
        """Whether any reply reports its tokens, or there is none."""
        return self.without_usage < self.calls or not self.calls

    def dollars(self, prices: Prices) -> float | None:
        """Return their cost; None if the model has no price."""
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
    """Tokens and cost of one run, or one build."""

    lines: tuple[Spending, ...]
    """By model, in alphabetical order, and purpose."""
    shared: bool = False
    """Whether the ledger is one that other runs may use too: then these are the calls that this
    one's results rest on.
    """
    day: date | None = None
    """Of the last call (UTC); None if there was none."""
    others: Counter[tuple[str, str]] = msgspec.field(default_factory=Counter)
    """Replies by the model that was asked and the other one that they name."""

    @property
    def models(self) -> list[str]:
        """The models that were called, each once."""
        return list(dict.fromkeys(line.model for line in self.lines))

    @property
    def paid(self) -> bool:
        """Whether any of them is another than those in this process."""
        return not all(map(is_in_process, self.models))

    def dollars(self, prices: Prices) -> float | None:
        """Return the sum of known costs; None if a model is paid for and no price is known."""
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
    """Add up the recorded attempts.

    Args:
        ledger: holds the attempts.
        keys: of the calls, in a ledger that others use too; None takes every row.

    Raises:
        InputError: the ledger is damaged.
    """
    lines: dict[tuple[str, str], Spending] = {}
    day: date | None = None
    others: Counter[tuple[str, str]] = Counter()
    for attempt in ledger.attempts(keys):
        line = Spending(model=attempt.model, purpose=attempt.purpose)
        lines.setdefault((line.model, line.purpose), line).add(attempt)
        day = max(day or date.min, attempt.created.date())
        if is_another(attempt.model, attempt.served_model):
            others[attempt.model, short_name(attempt.served_model)] += 1
    return Spent(
        lines=tuple(
            sorted(
                lines.values(), key=lambda line: (line.model, get_args(Purpose).index(line.purpose))
            )
        ),
        shared=keys is not None,
        day=day,
        others=others,
    )


# Forecast
# ------------------------------------------------------------------------------


class Seen(NamedTuple):
    """Mean tokens and seconds of one model's calls for one purpose, from a ledger."""

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
    """Recorded calls behind the means; 0 if the tokens are estimated from the length of texts."""
    seconds: float | None = None
    """Median of a stored call."""


def seen_in(ledger: Ledger) -> dict[tuple[str, str], Seen]:
    """Return the tokens of the replies in a ledger, by model and purpose, as far as they are
    reported.
    """
    tokens: Counter[tuple[str, str, str]] = Counter()
    seconds: defaultdict[tuple[str, str], array[float]] = defaultdict(lambda: array("d"))
    for model, purpose, status, given, got, took, *_ in ledger.attempts():
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
    """Return a line with the tokens and seconds of such recorded calls, if there are any."""
    record = seen.get((line.model, line.purpose.partition(",")[0]))
    if record is None:
        return line
    return msgspec.structs.replace(
        line,
        input_tokens=round(line.calls * record.input_tokens),
        output_tokens=round(line.calls * record.output_tokens),
        seen=record.calls,
        seconds=record.seconds,
    )


def expected_minutes(lines: Sequence[ForecastLine], connections: int) -> float | None:
    """Return the expected duration of calls, from those with known seconds; None if none are known.

    Each provider has this number of connections, and the slowest provider sets the time.
    """
    by: defaultdict[str, float] = defaultdict(float)
    for line in lines:
        if line.seconds is not None and not is_in_process(line.model):
            by[provider_of(line.model)] += line.calls * line.seconds / connections / 60
    return max(by.values(), default=None)
