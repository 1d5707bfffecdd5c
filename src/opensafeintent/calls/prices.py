"""Prices of tokens, from the user's file or the price list of the extra `[prices]`."""

from __future__ import annotations

import importlib
import importlib.metadata
from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import msgspec

from opensafeintent.calls.providers import (
    ENDPOINTS,
    FOREIGN,
    INSPECT_PROVIDERS,
    is_in_process,
    provider_of,
)
from opensafeintent.errors import InputError, install_extra
from opensafeintent.files import parse_json, read_bytes, sha256_hex
from opensafeintent.hostile import one_line

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
        self._listed_by_user = read_prices(file) if file else {}
        self._looked_up: dict[str, Price | None] = dict(self._listed_by_user)

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
        if model not in self._looked_up:
            self._looked_up[model] = _FREE if is_in_process(model) else self._listed(model)
        return self._looked_up[model]

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
            of_tokens = (calculation.input_price, calculation.output_price)
            by_hour.append(Price(*(float(price * 1_000_000 / _TOKENS) for price in of_tokens)))
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
            self.of(model) not in (None, _FREE) or model in self._listed_by_user for model in models
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
