"""`dataset check`: what it prints and writes, and what it finds in the published sets and in the
shipped one.
"""

from __future__ import annotations

import csv
import json
import re
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from endtoend import osi
from opensafeintent import check_dataset
from opensafeintent.promptsets import Prompts
from samples import dataset_file, made_dataset, prompt_set

HOSTILE = "\x1b]0;owned\x07=1+1"


def a_file(folder: Path, name: str = "made", count: int = 12) -> str:
    sets = [
        replace(
            prompt_set(f"s{n:02}"),
            prompts=Prompts(
                benign=f"Kindly tell me of the number {n}",
                dual_use=f"Tell me of the number {n}",
                malicious=f"Tell me {HOSTILE} of the number {n}, secretcode",
            ),
        )
        for n in range(count)
    ]
    return dataset_file(folder, made_dataset(*sets, name=name))


def test_the_command_prints_and_writes_the_same_and_shows_no_prompt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    path, out = a_file(tmp_path, "na_me"), tmp_path / "out"
    ran = osi("dataset", "check", path, "--out", out, "--seed", 5)
    assert ran.code == 0, ran.err
    record = json.loads((out / "check.json").read_bytes())
    assert (record["dataset"], record["sets"], record["seed"]) == ("na_me", 12, 5)
    # Tell me of the number N: 6 words; kindly: 7; the malicious one: 8.
    assert "malicious minus benign +1.0" in record["findings"][3]
    page = (out / "check.md").read_text("utf-8")
    assert page.startswith("# na\\_me: 12 prompt-sets, 36 prompts\n")
    assert f"Written to {out}: check.md, check.json, tables/" in ran.text
    for finding in record["findings"]:
        assert f"- {finding}" in page and finding in ran.text
    assert "\x1b" not in ran.out
    words = {row["word"]: row for row in rows(out, "words")}
    assert (words["secretcode"]["malicious"], words["secretcode"]["benign"]) == ("12", "0")
    first = rows(out, "differences")[0].items()
    assert {
        "measure": "words",
        "first": "malicious",
        "second": "benign",
        "mean": "1.0",
    }.items() <= first
    files = [file for file in out.rglob("*") if file.is_file()]
    assert len(files) == 2 + 9
    assert not [file for file in files if b"of the number" in file.read_bytes()]
    assert {file.stat().st_mode & 0o077 for file in files} == {0}
    again = check_dataset(path, out=tmp_path / "again", seed=5)
    # what Python prints is what the terminal prints
    printed = "\n".join(map(str.rstrip, ran.out.splitlines()))
    (following,) = [line for line in printed.split("\n") if line.startswith("Next: ")]
    assert printed == f"{replace(again, out=out)}\n{following}"
    for file in files:
        assert file.read_bytes() == (tmp_path / "again" / file.relative_to(out)).read_bytes()


@pytest.mark.parametrize("count", [1, 5, 9])
def test_of_few_sets_counts_are_given_and_no_interval(tmp_path: Path, count: int) -> None:
    path, out = a_file(tmp_path, count=count), tmp_path / "out"
    ran = osi("dataset", "check", path, "--out", out)
    assert ran.code == 0, ran.err
    findings = json.loads((out / "check.json").read_bytes())["findings"]
    assert findings[0].startswith(f"With {count} prompt-set") and "counts are given" in findings[0]
    # 6, 7 and 8 words: benign, dual-use, malicious (see above)
    words = next(line for line in findings if line.startswith("Difference in words"))
    assert f"malicious above benign in {count}, below in 0" in words
    assert not re.search(r"\[\W?\d", (out / "check.md").read_text() + ran.out)
    assert "Detectable" not in ran.out
    told = [line for line in findings if line.startswith("Words alone distinguish benign, mal")]
    assert all(re.search(rf" in \d+ of {2 * count} prompts; chance is 50 %", line) for line in told)
    assert bool(told) == (count > 1)


def rows(out: Path, name: str) -> list[dict[str, str]]:
    with (out / "tables" / f"{name}.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_without_the_extra_it_says_so_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "sklearn", None)
    ran = osi("dataset", "check", a_file(tmp_path), "--out", tmp_path / "out")
    assert ran.code == 0
    page = (tmp_path / "out" / "check.md").read_text("utf-8")
    for text in (ran.text, page):
        assert 'pip install ".[check]"' in text
        assert "Difference in words" in text
        assert "How often words alone tell" not in text


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
    given_arguments = (path if part == "FILE" else part for part in arguments)
    ran = osi("dataset", "check", path, *given_arguments)
    assert ran.code == 2 and complaint in ran.err
    assert "Traceback" not in ran.err


@pytest.mark.slow
def test_the_published_700(published: Path) -> None:
    checked = check_dataset(str(published / "opensafeintent-700.json")).controls
    two_sets, core, wordings = checked.similarity
    # 317,814 pairs of one cell, of which 700 · 7 · 6 / 2 = 14,700 within a set; the highest was
    # measured by another program.
    assert (two_sets.compared, two_sets.alike) == (317_814 - 14_700, 0)
    assert two_sets.highest is not None and round(two_sets.highest, 3) == 0.583
    assert (core.alike, wordings.alike) == (11, 17)  # a plain dynamic programme finds as many
    assert checked.balance[1].least == 22
    three = checked.classifier[0].accuracy.value
    assert three is not None and 0.84 < three < 0.91


def test_the_published_115_and_the_starter_set(published: Path) -> None:
    starter = check_dataset("starter").controls
    assert starter.balance[0].evenness == 1
    small = check_dataset(str(published / "opensafeintent-115.json")).controls
    assert small.balance[0].empty == 5
    three, of_starter = small.classifier[0].accuracy, starter.classifier[0].accuracy
    assert of_starter.value is not None and of_starter.value < 0.75
    assert three.low is not None and three.low > of_starter.value
