"""Prices: the user's file, the price list of genai-prices, and neither."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from datetime import date, datetime
from decimal import Decimal
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from opensafeintent.calls.prices import Price, Prices, read_prices
from opensafeintent.calls.providers import ENDPOINTS
from opensafeintent.errors import InputError
from samples import json_file


def listed(folder: Path, prices: Mapping[str, tuple[float, float]]) -> Prices:
    """The prices of a file."""
    price_table = {
        model: {"input": input_price, "output": got} for model, (input_price, got) in prices.items()
    }
    return Prices(json_file(folder / "prices.json", price_table))


def test_cost_is_per_million_tokens(tmp_path: Path) -> None:
    tokens = {
        ("a", "standard", "input"): 2_000_000,
        ("a", "standard", "output"): 500_000,
        ("b", "standard", "input"): 10**9,
    }
    # 2 million at $2.50 and half a million at $10; b has no price.
    assert listed(tmp_path, {"a": (2.5, 10)}).cost(tokens) == 2 * 2.5 + 0.5 * 10
    assert listed(tmp_path, {}).cost({}) == 0.0


NO_PRICES = (
    *(b"5", b'{"input": 1}', b'{"input": "1", "output": 2}', b'{"input": true, "output": 2}'),
    *(b'{"input": 1, "output": 2, "cached": 3}', b'{"input": -1, "output": 2}'),
    b'{"input": 1e10, "output": 2}',
)
LISTED = b'{"openai/x": {"input": 1, "output": 2}, "a": %b}'


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"[]", r'prices\.json: not a price list \(\{"provider/model": '),
        (b'{"a\xff": {"input": 1, "output": 2}}', r"prices\.json:1: not UTF-8"),
        *((LISTED % entry, r'prices\.json: a: not a price \(\{"input": ') for entry in NO_PRICES),
    ],
)
def test_a_file_of_another_form_is_refused_with_the_right_one(
    tmp_path: Path, content: bytes, complaint: str
) -> None:
    file = tmp_path / "prices.json"
    file.write_bytes(content)
    with pytest.raises(InputError, match=complaint):
        read_prices(file)
    with pytest.raises(InputError, match="is a folder"):
        read_prices(tmp_path)


def test_a_file_is_all_that_counts_where_one_is_given(tmp_path: Path) -> None:
    prices = listed(tmp_path, {"openai/x": (1, 2), "baseline/judge": (3, 4)})
    assert prices.of("openai/x") == Price(1.0, 2.0)
    assert prices.of("openai/gpt-5.4") is None  # whatever else is installed knows of it
    assert prices.of("baseline/judge") == Price(3.0, 4.0)
    free = ("baseline/redirect", "replay/x.jsonl", "python/m:f@1")
    assert [prices.of(name) for name in free] == [Price(0.0, 0.0)] * 3
    names = ["openai/b", "openai/x", "openai/a", "openai/b", "baseline/redirect"]
    assert prices.find_unpriced(names) == ["openai/a", "openai/b"]
    assert prices.basis.startswith("Prices: prices.json (sha256 ")
    with pytest.raises(InputError, match=r"no price for openai/a: .*prices\.json has none"):
        prices.need(["openai/a", "openai/x"])


def test_without_the_extra_there_are_no_prices_and_one_way_to_have_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "genai_prices", None)  # installed or not
    prices = Prices()
    assert not prices and prices.about is None
    assert prices.of("openai/gpt-5.4") is None
    assert prices.of("baseline/judge") == Price(0.0, 0.0)
    assert prices.describe_unpriced(["openai/gpt-5.4"]) == []
    with pytest.raises(InputError, match=r"no price for openai/gpt-5\.4: .*\[prices\]"):
        prices.need(["openai/gpt-5.4"])


def stand_in(asked: list[tuple[str, str]]) -> ModuleType:
    """What stands for the package: two models of xAI, one of them cheaper at night, and a third
    that is paid by the image.
    """

    def calc_price(
        usage: Any, model_ref: str, *, provider_id: str, genai_request_timestamp: datetime
    ) -> SimpleNamespace:
        asked.append((provider_id, model_ref))
        night = Decimal(2) if 8 <= genai_request_timestamp.hour < 20 else Decimal(1)
        known_prices = {"day": Decimal("1.5"), "night": night, "pictures": Decimal(0)}
        if provider_id != "x-ai" or model_ref not in known_prices:
            raise LookupError
        price = known_prices[model_ref]
        mtok = None if model_ref == "pictures" else price
        return SimpleNamespace(
            input_price=price * usage.input_tokens / 1_000_000,
            output_price=4 * price * usage.output_tokens / 1_000_000,
            model_price=SimpleNamespace(input_mtok=mtok, output_mtok=mtok),
        )

    module: Any = ModuleType("genai_prices")
    module.__spec__ = ModuleSpec("genai_prices", None)
    module.Usage, module.calc_price = SimpleNamespace, calc_price
    return module


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """What the stand-in was asked."""
    asked: list[tuple[str, str]] = []
    data: Any = ModuleType("genai_prices.data")
    models = [SimpleNamespace(id=name) for name in ("day", "night", "pictures")]
    data.providers = [SimpleNamespace(id=name, models=models) for name in ("x-ai", "elsewhere")]
    monkeypatch.setitem(sys.modules, "genai_prices", stand_in(asked))
    monkeypatch.setitem(sys.modules, "genai_prices.data", data)
    monkeypatch.setattr("importlib.metadata.version", lambda _: "7.8.9")
    return asked


def test_the_package_is_asked_by_the_provider_that_a_name_says(
    asked: list[tuple[str, str]],
) -> None:
    prices = Prices(day=date(2026, 11, 20))
    assert prices.of("grok/day") == prices.of("inspect/grok/day") == Price(1.5, 6.0)
    assert prices.of("grok/night") == Price(2.0, 8.0)  # the highest of the day
    assert prices.of("grok/pictures") is None
    asked.clear()
    # nobody's name, a server of the user's own, and one that says nothing of who serves it
    assert prices.of("openai/day") is None
    assert prices.of("openai-api/x-ai/day") is None
    assert prices.of("grok/day") == Price(1.5, 6.0)
    assert set(asked) == {("openai", "day")}
    assert prices.basis == "Prices: genai-prices 7.8.9, as of 2026-11-20."


def test_the_package_itself_knows_models_by_our_names() -> None:
    pytest.importorskip("genai_prices")
    prices = Prices(day=date(2026, 11, 20))
    llama = "openrouter/meta-llama/llama-3.3-70b-instruct"
    for name in ("openai/gpt-4o", "anthropic/claude-sonnet-4-6", llama):
        price = prices.of(name)
        assert price is not None and 0 < price.input < price.output < 1000, name
    assert prices.of("openai/no-such-model-of-any-name") is None


def test_a_provider_has_the_name_of_the_price_list() -> None:
    """Without it, its models have no price, and nothing else fails: set `priced_as` in its row."""
    snapshot = pytest.importorskip("genai_prices.data_snapshot").get_snapshot()
    listed = {provider.id for provider in snapshot.providers}
    for name, row in ENDPOINTS.items():
        if not row.local:
            assert ((row.priced_as or name) in listed) is (row.priced_as is not None), name
