"""Which prompt-sets a run asks about, and by what rule its sample grows."""

from __future__ import annotations

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


def test_a_limit_takes_the_first_sets_of_the_order(tmp_path: Path) -> None:
    sets = load_dataset("starter").prompt_sets
    evaluate(tmp_path, "--limit", 5)
    assert asked(tmp_path) == ids(drawn(sets, 5))
