"""Prices of tokens, from the user's file or the price list of the extra `[prices]`."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, date, datetime
from functools import cached_property, partial
from pathlib import Path
from typing import Annotated, Any

import msgspec

from opensafeintent.calls.providers import (
    ENDPOINTS,
    FOREIGN,
    INSPECT_PROVIDERS,
    find_provider,
    is_in_process,
    parse_provider,
)
from opensafeintent.calls.service_tiers import BATCH, FLEX, STANDARD, Way
from opensafeintent.errors import InputError, install_extra
from opensafeintent.files import parse_json, read_bytes, sha256_hex
from opensafeintent.hostile import clean_for_display

_PACKAGE, _MODULE = "genai-prices", "genai_prices"
_NEEDS_EXTRA = install_extra("prices")
_FORM = (
    'a price list ({"provider/model": {"input": dollars, "output": dollars}} for a million tokens)'
)
_ENTRY = (
    'a price ({"input": dollars, "output": dollars} for a million tokens, and "cache_read" and'
    ' "cache_write" if cached input has other prices)'
)
_OF_INSPECT = {"azureai": "azure", "bedrock": "aws", "moonshot": "moonshotai"}
"""Providers of Inspect AI that the package calls otherwise; for those of the native client see
`Provider.priced_as`.
"""
_TOKENS = 1000
"""Of the request that the package is asked the price of: few enough for the rate of a prompt of
usual length.
"""


_SHOWN = 3
"""Names of a file of prices in a note."""

_Dollars = Annotated[float, msgspec.Meta(ge=0, le=1e9)]


class Price(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Dollars for a million tokens."""

    input: _Dollars
    output: _Dollars
    cache_read: _Dollars | None = None
    """Of input that is read from a cache; None if it costs as much as any."""
    cache_write: _Dollars | None = None
    """Of input that is written to a cache; None if it costs as much as any."""

    def of(
        self,
        input_tokens: float,
        output_tokens: float,
        cached_tokens: float = 0,
        cache_write_tokens: float = 0,
    ) -> float:
        """Return the cost of some tokens, in dollars.

        Args:
            input_tokens: all that were sent.
            output_tokens: all that were received.
            cached_tokens: those of the input that were read from a cache.
            cache_write_tokens: those of the input that were written to one.
        """
        read = self.input if self.cache_read is None else self.cache_read
        write = self.input if self.cache_write is None else self.cache_write
        uncached = input_tokens - cached_tokens - cache_write_tokens
        return (
            uncached * self.input
            + cached_tokens * read
            + cache_write_tokens * write
            + output_tokens * self.output
        ) / 1e6

    def times(self, factor: float) -> Price:
        """Return the price multiplied by a factor."""
        read, write = self.cache_read, self.cache_write
        return Price(
            self.input * factor,
            self.output * factor,
            None if read is None else read * factor,
            None if write is None else write * factor,
        )


_FREE = Price(0.0, 0.0)


def find_way(model: str, tier: str) -> Way | None:
    """Return how a model's provider documents a tier; None if it has none."""
    row = find_provider(model)
    return {FLEX: row.flex, BATCH: row.batch}.get(tier) if row else None


def _price_at(usage: Callable[..., Any], ask: Callable[[Any], Any]) -> Price | None:
    """Return the package's price at one hour; None if a model is not paid for by the token.

    Args:
        usage: makes the package's record of the tokens of a request.
        ask: returns the price of one.

    Raises:
        LookupError: the package has no such model.
    """
    calculation = ask(usage(input_tokens=_TOKENS, output_tokens=_TOKENS))
    rates = calculation.model_price
    if getattr(rates, "input_mtok", None) is None or getattr(rates, "output_mtok", None) is None:
        return None  # it is paid for by the image, the second or the request

    def dollars(price: Any) -> float:
        return float(price * 1_000_000 / _TOKENS)

    def ask_cached(kind: str) -> float | None:
        if getattr(rates, f"{kind}_mtok", None) is None:
            return None
        of_cached = ask(usage(input_tokens=_TOKENS, **{f"{kind}_tokens": _TOKENS}))
        return dollars(of_cached.input_price)

    return Price(
        dollars(calculation.input_price),
        dollars(calculation.output_price),
        ask_cached("cache_read"),
        ask_cached("cache_write"),
    )


class PriceList(msgspec.Struct, frozen=True, kw_only=True):
    """The prices of a user's file, which a run keeps."""

    source: str
    """Name of the file."""
    sha256: str
    prices: dict[str, Price]
    """By model."""


def read_prices(path: Path) -> PriceList:
    """Read a JSON file `{"provider/model": {"input": 2.5, "output": 10}}`, in dollars for a million
    tokens.

    Raises:
        InputError: it cannot be read, or is not of that form.
    """
    content = read_bytes(path)
    entries = parse_json(content, dict[str, msgspec.Raw], str(path), _FORM)
    prices = {
        name: parse_json(bytes(raw), Price, f"{path}: {clean_for_display(name)}", _ENTRY)
        for name, raw in entries.items()
    }
    return PriceList(source=path.name, sha256=sha256_hex(content), prices=prices)


class Prices:
    """Prices of each model's tokens, all from one source.

    If the user gives a file, it is the only source: a model that the file lacks has no price.
    Otherwise the source is genai-prices, if it is installed. Models in this process cost nothing,
    unless the file says otherwise.

    Args:
        file: the user's, or its content as a run keeps it.
        day: the date of the package's prices; today by default.

    Raises:
        InputError: the file cannot be used.
    """

    def __init__(self, file: Path | PriceList | None = None, day: date | None = None) -> None:
        self._file = read_prices(file) if isinstance(file, Path) else file
        self._place = file.source if isinstance(file, PriceList) else file or _PACKAGE
        self._day = day or datetime.now(UTC).date()
        self._listed_by_user = self._file.prices if self._file else {}
        self._looked_up: dict[tuple[str, str], Price | None] = {
            (model, STANDARD): price for model, price in self._listed_by_user.items()
        }
        self._by_factor: dict[tuple[str, str], Way] = {}

    @cached_property
    def _asks_package(self) -> bool:
        """Whether prices are the package's: there is no file, and it is installed. It takes a
        moment to import, and most runs name no model that it could know.
        """
        return self._file is None and importlib.util.find_spec(_MODULE) is not None

    def __bool__(self) -> bool:
        """Whether there is anything that could know a price."""
        return self._file is not None or self._asks_package

    @property
    def about(self) -> dict[str, str] | None:
        """Source of the prices, by field of `cost.json`; None if there are none."""
        if self._file:
            return {"source": self._file.source, "sha256": self._file.sha256}
        if not self._asks_package:
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

    @property
    def advice(self) -> str:
        """How to get dollars for models without a price, as a sentence."""
        if not self:
            return self.basis
        return f"No prices of these models: {self._place} has none; give --prices FILE."

    def of(self, model: str, tier: str = STANDARD) -> Price | None:
        """Return a model's price at a service tier; None if it is unknown.

        The package has prices of some tiers. Any other one is the standard price, times the factor
        that the provider documents, if there is one.
        """
        if (model, tier) not in self._looked_up:
            self._looked_up[model, tier] = self._find_price(model, tier)
        return self._looked_up[model, tier]

    def _find_price(self, model: str, tier: str) -> Price | None:
        if is_in_process(model):
            return self.of(model) if tier != STANDARD else _FREE
        return (
            self._find_listed_price(model, {})
            if tier == STANDARD
            else self._find_tier_price(model, tier)
        )

    def _find_tier_price(self, model: str, tier: str) -> Price | None:
        standard = self.of(model)
        context = {"processing": BATCH} if tier == BATCH else {"service_tier": tier}
        listed = self._find_listed_price(model, context)
        if listed not in (None, standard):
            return listed
        if standard is None or (way := find_way(model, tier)) is None:
            return standard
        self._by_factor[model, tier] = way
        return standard.times(way.factor)

    def find_documentation(self, model: str, tier: str) -> Way | None:
        """Return the documentation that a price at a tier rests on; None if it is from the list."""
        self.of(model, tier)
        return self._by_factor.get((model, tier))

    def _find_listed_price(self, model: str, context: Mapping[str, str]) -> Price | None:
        """Return the package's price of a model, by its name; None if it has none.

        A name of the generic provider does not identify the server. If a price depends on the hour,
        it is the highest of the day.

        Args:
            model: its name.
            context: how it is asked, in the package's words; empty is the standard.
        """
        prefix, _, name = model.removeprefix(FOREIGN).partition("/")
        if not (self._asks_package and (prefix in ENDPOINTS or prefix in INSPECT_PROVIDERS)):
            return None
        package = importlib.import_module(_MODULE)
        parsed = parse_provider(model)
        row = ENDPOINTS.get(parsed)
        provider = (row.priced_as if row else _OF_INSPECT.get(parsed)) or parsed
        by_hour = []
        for hour in range(24):
            at = datetime(self._day.year, self._day.month, self._day.day, hour, tzinfo=UTC)
            ask = partial(
                package.calc_price,
                model_ref=name,
                provider_id=provider,
                genai_request_timestamp=at,
                **({"price_context": context} if context else {}),
            )
            try:
                price = _price_at(package.Usage, ask)
            except LookupError:
                return None
            if price is None:
                return None
            by_hour.append(price)
        return max(by_hour, key=lambda price: price.input + price.output)

    def cost(self, tokens: Mapping[tuple[str, str, str], float]) -> float:
        """Return the cost of tokens by model, service tier and kind: `input`, `output`, and of the
        input those of kind `cache_read` and `cache_write`. Models without a price are left out.
        """
        kinds = ("input", "output", "cache_read", "cache_write")
        return sum(
            price.of(*(tokens.get((model, tier, kind), 0) for kind in kinds))
            for model, tier in sorted({(model, tier) for model, tier, _ in tokens})
            if (price := self.of(model, tier)) is not None
        )

    def tells(self, models: Iterable[str]) -> bool:
        """Tell whether prices were asked for, or one of some models has a price: that a baseline is
        free says nothing of the others.
        """
        return self._file is not None or any(
            self.of(model) not in (None, _FREE) or model in self._listed_by_user for model in models
        )

    def find_unpriced(self, models: Iterable[str]) -> list[str]:
        """Return the models without a price, each once, in alphabetical order."""
        return sorted({model for model in models if self.of(model) is None})

    def describe_unpriced(self, models: Iterable[str]) -> list[str]:
        """Name the models without a price, if there are prices at all: a line, or none."""
        called = list(models)
        if not self or not (lacking := self.find_unpriced(called)):
            return []
        line = f"no price is given for {', '.join(lacking)}: its cost is not in the sum"
        if unused := sorted(self._listed_by_user.keys() - set(called))[:_SHOWN]:
            names = ", ".join(clean_for_display(name) for name in unused)
            line += f"; no call goes to {names}, of which {self._place} has a price"
        return [line]

    def need(self, models: Iterable[str]) -> None:
        """See that every model has a price.

        Raises:
            InputError: some have none; the text names them and says how to give one.
        """
        if lacking := self.find_unpriced(models):
            where = f"{self._place} has none" if self else f"{_NEEDS_EXTRA} brings many"
            raise InputError(
                f"--budget-dollars: no price for {', '.join(lacking)}: {where}; "
                f"give one with --prices FILE, dollars a million tokens: "
                f'{{"{lacking[0]}": {{"input": 2.5, "output": 10}}}}'
            )
