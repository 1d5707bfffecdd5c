"""Which prompt-sets a run asks about, and by what rule its sample grows."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import pytest

from endtoend import grades, osi
from opensafeintent import load_dataset
from opensafeintent.promptsets import PromptSet, drawn

pytestmark = pytest.mark.usefixtures("undrawn")

ASKED = ("--judge", "baseline/judge")


def ids(sets: Iterable[PromptSet]) -> set[str]:
    return {prompt_set.id for prompt_set in sets}


def evaluate(run: Path, *options: object, model: str = "baseline/redirect") -> None:
    assert osi("evaluate", model, *ASKED, "--out", run, *options).code == 0


def asked(run: Path, model: str = "baseline/redirect") -> set[str]:
    return {row["id"] for row in grades(run, model)}


def forget_the_rule(run: Path) -> None:
    """Make a manifest what it was when there was one rule alone."""
    manifest = json.loads((run / "run.json").read_text())
    for entry in manifest["models"].values():
        del entry["sample"]
    (run / "run.json").write_text(json.dumps(manifest))


def test_a_limit_takes_the_first_sets_of_the_order(tmp_path: Path) -> None:
    sets = load_dataset("starter").prompt_sets
    evaluate(tmp_path, "--limit", 5)
    assert asked(tmp_path) == ids(drawn(sets, 5))
    assert json.loads((tmp_path / "run.json").read_text())["models"]["baseline/redirect"]["sample"] == "webster"


def test_an_old_run_grows_by_the_rule_that_it_was_drawn_by(tmp_path: Path) -> None:
    sets = load_dataset("starter").prompt_sets
    assert ids(drawn(sets, 5, "rounds")) != ids(drawn(sets, 5))
    evaluate(tmp_path, "--limit", 1)
    forget_the_rule(tmp_path)
    evaluate(tmp_path, "--limit", 5)
    assert asked(tmp_path) == ids(drawn(sets, 5, "rounds"))
    evaluate(tmp_path, "--limit", 5, model="baseline/refuse-all")  # what joins it is asked about the same sets
    assert asked(tmp_path, "baseline/refuse-all") == ids(drawn(sets, 5, "rounds"))
    evaluate(tmp_path)
    assert asked(tmp_path) == ids(sets)
