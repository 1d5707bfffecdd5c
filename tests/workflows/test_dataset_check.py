"""`dataset check`: what it prints and writes, and what it finds in the published sets and in the
shipped one.
"""

from __future__ import annotations

import csv
import io
import json
import re
import sys
from pathlib import Path

import pytest
from rich.console import Console

from endtoend import osi
from opensafeintent import check_dataset
from opensafeintent.cli.show_check import show_check
from opensafeintent.promptsets import Dataset, Prompts, PromptSet
from opensafeintent.taxonomy import default_taxonomy
from samples import dataset_file

HOSTILE = "\x1b]0;owned\x07=1+1"


def a_file(folder: Path, name: str = "made", count: int = 12) -> str:
    sets = [
        PromptSet(
            id=f"s{n:02}",
            harm_domain="Cyber Compromise",
            task_type="Explanation",
            underlying_task="a task",
            prompts=Prompts(
                benign=f"Kindly tell me of the number {n}",
                dual_use=f"Tell me of the number {n}",
                malicious=f"Tell me {HOSTILE} of the number {n}, secretcode",
            ),
        )
        for n in range(count)
    ]
    return dataset_file(folder, Dataset(name, tuple(sets), default_taxonomy()))


def test_the_command_prints_tables_and_findings(tmp_path: Path) -> None:
    ran = osi("dataset", "check", a_file(tmp_path))
    assert ran.code == 0, ran.err
    assert ran.out.startswith("made: 12 prompt-sets, 36 prompts\nsha256 ")
    for part in (
        "Harm domains",
        "Differences between the intents",
        "How often words alone tell",
        "Speaks for",
        "Findings",
    ):
        assert part in ran.out
    # Tell me of the number N: 6 words; kindly: 7; the malicious one: 8.
    assert (
        "Are malicious prompts longer, in words? Yes: longer than benign ones by 1.0 words"
        in " ".join(ran.out.split())
    )
    assert "secretcode" in ran.out
    assert "\x1b" not in ran.out


def test_the_output_fits_eighty_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    monkeypatch.setattr(
        "opensafeintent.cli.show_check.new_console", lambda: Console(width=80, file=screen)
    )
    show_check(check_dataset("starter"), None)
    show_check(check_dataset(a_file(tmp_path)), None)
    lines = screen.getvalue().splitlines()
    assert max(len(line.rstrip()) for line in lines) <= 80
    assert re.search(
        r"^characters +malicious +dual_use ", screen.getvalue(), re.MULTILINE
    )  # not broken over lines


def test_what_is_written_says_the_same_and_shows_no_prompt(tmp_path: Path) -> None:
    path, out = a_file(tmp_path, "na_me"), tmp_path / "out"
    ran = osi("dataset", "check", path, "--out", out, "--seed", 5)
    assert ran.code == 0, ran.err
    assert f"Written to {out}: check.md, check.json, tables/" in ran.out
    record = json.loads((out / "check.json").read_bytes())
    assert (record["dataset"], record["sets"], record["seed"]) == ("na_me", 12, 5)
    page = (out / "check.md").read_text("utf-8")
    assert page.startswith("# na\\_me: 12 prompt-sets, 36 prompts\n")
    assert all(f"- {finding}" in page for finding in record["findings"])
    with (out / "tables" / "words.csv").open(newline="", encoding="utf-8") as file:
        words = {row["word"]: row for row in csv.DictReader(file)}
    assert (words["secretcode"]["malicious"], words["secretcode"]["benign"]) == ("12", "0")
    with (out / "tables" / "differences.csv").open(newline="", encoding="utf-8") as file:
        first = next(csv.DictReader(file))
    assert (first["measure"], first["first"], first["second"], first["mean"]) == (
        "words",
        "malicious",
        "benign",
        "1.0",
    )
    files = [file for file in out.rglob("*") if file.is_file()]
    assert len(files) == 2 + 3 * 9
    assert not [file for file in files if b"of the number" in file.read_bytes()]
    assert {file.stat().st_mode & 0o077 for file in files} == {0}


def test_the_same_bytes_again(tmp_path: Path) -> None:
    path = a_file(tmp_path)
    for name in ("one", "two"):
        check_dataset(path, out=tmp_path / name)
    for file in (tmp_path / "one").rglob("*.*"):
        assert (
            file.read_bytes()
            == (tmp_path / "two" / file.relative_to(tmp_path / "one")).read_bytes()
        )


def test_without_the_extra_it_says_so_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "sklearn", None)
    ran = osi("dataset", "check", a_file(tmp_path), "--out", tmp_path / "out")
    assert ran.code == 0
    assert 'pip install "opensafeintent[check]"' in " ".join(ran.out.split())
    assert "Differences between the intents" in ran.out
    assert "How often words alone tell" not in ran.out
    page = (tmp_path / "out" / "check.md").read_text("utf-8")
    assert (
        "Left out:\n\n- words that give the intent away: this needs an extra: pip install"
        ' "opensafeintent[check]"' in page
    )


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--seed", "-1"], "seed -1: expected a whole number from 0 to 4294967295"),
        (["--seed", "x"], "'x' is not a valid integer"),
        (["--out", "FILE"], "is a file; expected a folder"),
        (["--taxonomy", "FILE"], "not a taxonomy"),
    ],
)
def test_bad_input_is_one_line(tmp_path: Path, arguments: list[str], complaint: str) -> None:
    path = a_file(tmp_path)
    ran = osi("dataset", "check", path, *(path if part == "FILE" else part for part in arguments))
    assert ran.code == 2
    assert complaint in ran.err
    assert "Traceback" not in ran.err


def test_no_such_dataset(tmp_path: Path) -> None:
    ran = osi("dataset", "check", tmp_path / "nowhere.jsonl")
    assert (ran.code, len(ran.errors)) == (2, 1)
    assert "no such dataset" in ran.err


@pytest.mark.slow
def test_the_published_700(published: Path) -> None:
    found = check_dataset(str(published / "opensafeintent-700.json"))
    # 317,814 pairs of one cell, of which 700 · 7 · 6 / 2 = 14,700 within a set; the highest was
    # measured by another program.
    assert found.near_duplicates.compared == 317_814 - 14_700
    assert found.near_duplicates.found == ()
    assert found.near_duplicates.highest is not None
    assert round(found.near_duplicates.highest.score, 3) == 0.583
    assert found.within_sets.triplet.alike == 11  # a plain dynamic programme finds as many
    assert found.within_sets.dual_use.alike == 17
    assert found.balance.harm_domains.least == 22
    assert found.artefacts is not None
    assert 0.84 < found.artefacts.accuracies[0].value < 0.91


def test_the_published_115_and_the_starter_set(published: Path) -> None:
    starter = check_dataset("starter")
    assert starter.balance.cells.evenness == 1
    assert starter.artefacts is not None
    assert starter.artefacts.accuracies[0].value < 0.75
    small = check_dataset(str(published / "opensafeintent-115.json"))
    assert small.balance.cells.empty == 5
    assert small.artefacts is not None
    assert small.artefacts.accuracies[0].low > starter.artefacts.accuracies[0].value
