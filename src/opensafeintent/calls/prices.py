"""What tokens cost, from a file that the user keeps: prices change faster than releases."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated

import msgspec

from opensafeintent.files import read_json

__all__ = ["Price", "cost_of", "read_prices", "unpriced"]


_FREE = ("baseline/", "replay/")


class Price(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Dollars for a million tokens."""

    input: Annotated[float, msgspec.Meta(ge=0)]
    output: Annotated[float, msgspec.Meta(ge=0)]


def read_prices(path: Path) -> dict[str, Price]:
    """Read a JSON file `{"provider/model": {"input": 2.5, "output": 10}}`, in dollars for a million tokens.

    Raises:
        InputError: it cannot be read, or is not of that form.
    """
    form = '{"provider/model": {"input": dollars, "output": dollars}} for a million tokens'
    return read_json(path, dict[str, Price], f"a price list ({form})")


def cost_of(tokens: Mapping[tuple[str, str], int], prices: Mapping[str, Price]) -> float:
    """Return what tokens by (model, `input` or `output`) cost; models without a price cost nothing."""
    total: float = sum(count * getattr(prices[model], kind) for (model, kind), count in tokens.items() if model in prices)
    return total / 1e6


def unpriced(models: Iterable[str], prices: Mapping[str, Price]) -> str:
    """Say which models have no price, those in this process aside, which cost nothing; empty where all have one."""
    lacking = sorted({model for model in models if model not in prices and not model.startswith(_FREE)})
    return f"no price is given for {', '.join(lacking)}: what it costs is not in the sum" if lacking else ""
