"""No command reads more than it may of a file that a stranger sent."""

from __future__ import annotations

from pathlib import Path

import pytest

from endtoend import osi
from opensafeintent import load_dataset, write_dataset


@pytest.mark.parametrize(
    "command",
    [
        "dataset dedup sets.jsonl --out out.jsonl",
        "dataset convert sets.jsonl --out out.jsonl",
        "dataset check sets.jsonl",
        "import sets.jsonl --out out",
        "import responses.jsonl --dataset sets.jsonl --out out",
        "judge-check --labelled labels.csv --judge a/b --out out --dry-run",
    ],
)
def test_every_command_that_reads_data_has_a_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.chdir(tmp_path)
    sets = load_dataset("starter")
    write_dataset(sets, Path("sets.jsonl"))
    rows = "".join(f"Response {n},no\n" for n in range(len(sets)))
    Path("labels.csv").write_text(f"response,unsafe\n{rows}")
    Path("responses.jsonl").write_text('{"id": "a", "variant": "benign", "response": "One."}\n')
    ran = osi(*command.split(), "--max-rows", len(sets) - 1)
    (line,) = ran.errors
    assert ran.code == 2
    assert f": has more than {len(sets) - 1} rows; " in line and "--max-rows" in line
    assert not Path("out").exists() and not Path("out.jsonl").exists()
