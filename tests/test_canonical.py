"""One value has one canonical form, and one hash."""

from __future__ import annotations

import pytest

from opensafeintent.files import canonical_json, sha256_hex

# `printf '{"a":[1,"é"],"b":{"c":null,"d":true}}' | sha256sum`, and the published digests of "" and
# "abc" (FIPS 180-2)
JSON_DIGEST = "b5eaf5cf8c6dc0d95e744a9a8e4c86a48c78a321a99883366a7721a1f6e44164"


@pytest.mark.parametrize(
    "value",
    [{"a": [1, "é"], "b": {"c": None, "d": True}}, {"b": {"d": True, "c": None}, "a": (1, "é")}],
    ids=["sorted", "shuffled, a tuple"],
)
def test_key_order_does_not_change_the_form(value: object) -> None:
    assert canonical_json(value) == '{"a":[1,"é"],"b":{"c":null,"d":true}}'.encode()
    assert sha256_hex(canonical_json(value)) == JSON_DIGEST
