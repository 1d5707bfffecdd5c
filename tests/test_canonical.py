"""One value has one canonical form, and one hash."""

from __future__ import annotations

import pytest

from opensafeintent.files import canonical_json, sha256_hex

# `printf '{"a":[1,"é"],"b":{"c":null,"d":true}}' | sha256sum`, and the published digests of "" and
# "abc" (FIPS 180-2)
JSON_DIGEST = "b5eaf5cf8c6dc0d95e744a9a8e4c86a48c78a321a99883366a7721a1f6e44164"
EMPTY_DIGEST = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
ABC_DIGEST = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


@pytest.mark.parametrize(
    "value",
    [{"a": [1, "é"], "b": {"c": None, "d": True}}, {"b": {"d": True, "c": None}, "a": (1, "é")}],
    ids=["sorted", "shuffled, a tuple"],
)
def test_key_order_does_not_change_the_form(value: object) -> None:
    assert canonical_json(value) == '{"a":[1,"é"],"b":{"c":null,"d":true}}'.encode()
    assert sha256_hex(canonical_json(value)) == JSON_DIGEST


@pytest.mark.parametrize(
    ("text", "digest"),
    [("", EMPTY_DIGEST), (b"", EMPTY_DIGEST), ("abc", ABC_DIGEST), (b"abc", ABC_DIGEST)],
)
def test_sha256_of_text_and_of_bytes(text: str | bytes, digest: str) -> None:
    assert sha256_hex(text) == digest
