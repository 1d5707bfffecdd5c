"""Which prompt-sets a run asks about, and by what rule its sample grows."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import pytest

from endtoend import grades, osi
from opensafeintent import load_dataset
from opensafeintent.promptsets import PromptSet, drawn
from samples import dataset_file, made_dataset, prompt_set

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


# As many of every cell -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def uneven(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six prompt-sets: four of one cell, two of another."""
    places = [("Cyber Compromise", 4), ("Fraud and Deception", 2)]
    sets = [prompt_set(f"{domain[0]}{n}", domain=domain) for domain, count in places for n in range(count)]
    return Path(dataset_file(tmp_path_factory.mktemp("uneven"), made_dataset(*sets, name="uneven")))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--limit-per-cell", 0), "--limit-per-cell 0: expected at least 1"),
        (("--limit-per-cell", -1), "--limit-per-cell -1: expected at least 1"),
        (("--limit-per-cell", 1, "--limit", 1), "--limit, --limit-per-cell: both are given; expected one of them"),
        (("--limit-per-cell", "x"), "'x' is not a valid integer"),
    ],
)
def test_bad_values_are_refused(tmp_path: Path, options: tuple[object, ...], words: str) -> None:
    ran = osi("evaluate", "baseline/redirect", *ASKED, "--out", tmp_path / "run", *options)
    assert ran.code == 2
    assert words in " ".join(ran.errors)
    assert not (tmp_path / "run").exists()
