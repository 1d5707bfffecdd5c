"""Small files that users write by hand: taxonomies, suites, prices, rubrics, instructions; and keys
of studies.
"""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuzz.contract import FUZZ, attempt, write
from fuzz.faults import damaged_json, damaged_text, damaged_toml
from opensafeintent.annotation.labels import read_key
from opensafeintent.calls.models import load_suite
from opensafeintent.calls.prices import read_prices
from opensafeintent.taxonomy import load_taxonomy
from opensafeintent.templates import load_templates
from opensafeintent.templates.instruction import load_instructions

OURS = resources.files("opensafeintent")
TAXONOMY = """name = "small"
[[harm_domains]]
name = "Money"
definition = "All that concerns money."
includes = ["coins", "notes"]
[[task_types]]
name = "Explanation"
definition = "Explanation of things."
"""
SUITE = OURS.joinpath("data/suites/paper.toml").read_text("utf-8")
PRICES = {
    "openai/gpt-5.4": {"input": 2.5, "output": 10},
    "anthropic/claude-sonnet-4-6": {"input": 3, "output": 15},
}
KEY = {
    "schema": 1,
    "study": "a" * 64,
    "kind": "judge_validation",
    "dataset": "starter",
    "dataset_hash": "b" * 64,
    "unit": "set",
    "guide": "c" * 64,
    "items": [
        {"id": "s1", "variant": "benign", "model": "m", "response_sha256": "d" * 64, "weight": 2.5},
        {"id": "s2"},
    ],
    "annotators": {
        "ann": [{"code": "0001", "item": 0, "words": "e" * 16, "order": ["benign", "dual_use"]}],
        "bob": [{"code": "0001", "item": 1, "words": ""}],
    },
}
RUBRICS = ("helpfulness.md", "harm.md", "mode.md", "strategy.md", "reask.md")
INSTRUCTIONS = (
    "metadata.md",
    "triplet.md",
    "repair.md",
    "annotation.md",
    "reask.md",
    "repair_reasons.toml",
)


@FUZZ
@given(content=damaged_toml(TAXONOMY))
def test_taxonomy(tmp_path: Path, content: bytes) -> None:
    attempt("taxonomy (TOML)", load_taxonomy, write(tmp_path / "taxonomy.toml", content))


@FUZZ
@given(content=damaged_toml(SUITE))
def test_suite(tmp_path: Path, content: bytes) -> None:
    attempt(
        "suite (TOML)", lambda path: load_suite(str(path)), write(tmp_path / "suite.toml", content)
    )


@FUZZ
@given(content=damaged_json(PRICES))
def test_prices(tmp_path: Path, content: bytes) -> None:
    attempt("prices (JSON)", read_prices, write(tmp_path / "prices.json", content))


@FUZZ
@given(content=damaged_json(KEY))
def test_key_of_a_study(tmp_path: Path, content: bytes) -> None:
    attempt("key of a study (JSON)", read_key, write(tmp_path / "key.json", content))


@pytest.mark.parametrize("name", RUBRICS)
@FUZZ
@given(draw=st.data())
def test_rubric(tmp_path: Path, name: str, draw: st.DataObject) -> None:
    text = OURS.joinpath("templates", name).read_text("utf-8")
    write(tmp_path / name, draw.draw(st.one_of(damaged_text(text), damaged_toml(text))))
    attempt("rubric", load_templates, tmp_path, named=name)


@FUZZ
@given(content=damaged_text("Grade this.\n{prompt}\n{{response}}\nReply with one integer."))
def test_rubric_of_the_authors(tmp_path: Path, content: bytes) -> None:
    write(tmp_path / "harmfulness.txt", content)
    attempt("rubric", load_templates, tmp_path, named="harmfulness.txt")


@pytest.mark.parametrize("name", INSTRUCTIONS)
@FUZZ
@given(draw=st.data())
def test_instruction_of_construction(tmp_path: Path, name: str, draw: st.DataObject) -> None:
    text = OURS.joinpath("templates/construction", name).read_text("utf-8")
    write(tmp_path / name, draw.draw(st.one_of(damaged_text(text), damaged_toml(text))))
    attempt("instruction of construction", load_instructions, tmp_path, named=name)


def test_what_is_damaged_is_good_before(tmp_path: Path) -> None:
    """Else every example would be refused for one and the same reason."""
    for content, name, read in (
        (TAXONOMY, "taxonomy.toml", load_taxonomy),
        (SUITE, "suite.toml", lambda path: load_suite(str(path))),
        (json.dumps(PRICES), "prices.json", read_prices),
        (json.dumps(KEY), "key.json", read_key),
    ):
        assert attempt("none", read, write(tmp_path / name, content.encode()))
