"""What tokens cost."""

from __future__ import annotations

from pathlib import Path

import pytest

from opensafeintent.calls.prices import Price, cost_of, read_prices
from opensafeintent.errors import InputError


def test_prices_are_read(tmp_path: Path) -> None:
    file = tmp_path / "prices.json"
    file.write_text('{"openai/x": {"input": 2.5, "output": 10}, "vllm/y": {"input": 0, "output": 0}}')
    assert read_prices(file) == {"openai/x": Price(2.5, 10.0), "vllm/y": Price(0.0, 0.0)}


def test_cost_is_per_million_tokens() -> None:
    tokens = {("a", "input"): 2_000_000, ("a", "output"): 500_000, ("b", "input"): 10**9}
    # 2 million at $2.50 and half a million at $10; b has no price.
    assert cost_of(tokens, {"a": Price(2.5, 10.0)}) == 2 * 2.5 + 0.5 * 10
    assert cost_of({}, {}) == 0.0


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"not json",
        b'{"a": 5}',
        b'{"a": {"input": 1}}',
        b'{"a": {"input": "1", "output": 2}}',
        b'{"a": {"input": 1, "output": null}}',
        b'{"a": {"input": 1, "output": 2, "cached": 3}}',
        b'{"a": {"input": -1, "output": 2}}',
        b'{"a\xff": {"input": 1, "output": 2}}',
        b'{"a": {"input": 1e999, "output": 2}}',
    ],
)
def test_a_file_of_another_form_is_refused_with_the_right_one(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "prices.json"
    file.write_bytes(content)
    with pytest.raises(InputError, match=r'prices\.json(: not a price list \(\{"provider/model": |:1: not UTF-8)'):
        read_prices(file)


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "nowhere.json"):
        with pytest.raises(InputError, match="cannot read"):
            read_prices(path)
