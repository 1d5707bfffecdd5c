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


# As many of every cell -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def uneven(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six prompt-sets: four of one cell, two of another."""
    places = [("Cyber Compromise", 4), ("Fraud and Deception", 2)]
    sets = [prompt_set(f"{domain[0]}{n}", domain=domain) for domain, count in places for n in range(count)]
    return Path(dataset_file(tmp_path_factory.mktemp("uneven"), made_dataset(*sets, name="uneven")))


def test_a_sample_per_cell_grows_and_then_is_everything(uneven: Path, tmp_path: Path) -> None:
    sets = load_dataset(str(uneven)).prompt_sets
    run = tmp_path / "run"
    for options, n in ((("--limit-per-cell", 1), 2), (("--limit-per-cell", 3), 5), (("--limit-per-cell", 2), 5), ((), 6)):
        evaluate(run, "--dataset", uneven, *options)
        assert len(asked(run)) == n
        found = json.loads((run / "metrics.json").read_text())
        assert found["groups"][0]["weighted"] == ([] if n == 6 else ["baseline/redirect"])
    assert asked(run) == ids(sets)
    evaluate(tmp_path / "whole", "--dataset", uneven)
    assert (run / "metrics.json").read_bytes() == (tmp_path / "whole" / "metrics.json").read_bytes()


@pytest.mark.parametrize(("first", "then"), [("--limit", "--limit-per-cell"), ("--limit-per-cell", "--limit")])
def test_a_sample_does_not_grow_by_the_other_option(uneven: Path, tmp_path: Path, first: str, then: str) -> None:
    evaluate(tmp_path, "--dataset", uneven, first, 1)
    ran = osi("evaluate", "baseline/redirect", *ASKED, "--out", tmp_path, "--dataset", uneven, then, 2)
    assert ran.code == 2
    (line,) = ran.errors
    assert f"the run has {first} 1, this is {then} 2" in line
    evaluate(tmp_path, "--dataset", uneven, then, 2, model="baseline/refuse-all")  # another model may have another sample


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


def test_a_dry_run_counts_the_sets_of_every_cell(uneven: Path, tmp_path: Path) -> None:
    options = ("--dataset", uneven, "--limit-per-cell", 1, "--dry-run", "--probe", "none")
    ran = osi("evaluate", "baseline/redirect", *ASKED, "--out", tmp_path / "run", *options)
    assert ran.code == 0
    # 2 sets of 3 prompts: 6 responses, 6 × 2 grades, and a mode for each dual-use one
    assert "At most 20 calls" in ran.out
