"""Paths that cannot be used: one line, code 2, whichever command they are given to; no traceback,
no hang.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from endtoend import osi

PLACES = {
    "evaluate --out": "evaluate baseline/redirect --judge baseline/judge --limit 1 --out @",
    "evaluate --dataset": "evaluate baseline/redirect --judge baseline/judge --out out --dataset @",
    "evaluate --ledger": "evaluate baseline/redirect --judge baseline/judge --limit 1 --out out --ledger @",
    "evaluate --rubrics": "evaluate baseline/redirect --judge baseline/judge --out out --rubrics @",
    "evaluate --prices": "evaluate baseline/redirect --judge baseline/judge --out out --prices @",
    "evaluate --suite": "evaluate --judge baseline/judge --out out --suite @",
    "import FILE": "import @ --out out",
    "import --out": "import responses.jsonl --dataset starter --model m --out @",
    "grade RUN": "grade @ --judge baseline/judge",
    "report RUN": "report @",
    "trace RUN": "trace @ --set x",
    "judge-check --out": "judge-check --judge baseline/judge --out @",
    "dataset check": "dataset check @",
    "dataset convert": "dataset convert @ --out out.jsonl",
    "dataset dedup": "dataset dedup @ --out out.jsonl --report report.jsonl",
    "build SEEDS": "build @ --generator baseline/generator --judge baseline/judge --out out",
    "build --out": "build seeds.jsonl --generator baseline/generator --judge baseline/judge --out @",
    "annotate export": "annotate export quality @ --annotators ana --out out",
    "annotate import": "annotate import @ --key key.json --out labels.jsonl",
    "annotate import --key": "annotate import sheet.csv --key @ --out labels.jsonl",
    "agreement LABELS": "agreement @",
}
"""A command, with @ where the path goes."""
FOLDERS = {name for name in PLACES if name.endswith(("--out", "RUN", "--rubrics"))}
"""Where a folder is expected: a folder itself is not the wrong kind of thing there."""


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return, by what is odd about it, a path."""
    folder = tmp_path_factory.mktemp("odd")
    os.mkfifo(folder / "fifo")
    (folder / "loop").symlink_to(folder / "loop")
    (folder / "file").write_text("{}\n")
    (folder / "empty").mkdir()
    locked = folder / "locked"
    locked.mkdir()
    locked.chmod(0)
    return {
        "empty": "",
        "pipe": str(folder / "fifo"),
        "device": "/dev/null",
        "loop of links": str(folder / "loop"),
        "too long": "x" * 5000,
        "NUL": "a\0b",
        "no UTF-8": os.fsdecode(b"caf\xe9"),
        "below a file": str(folder / "file" / "below"),
        "no rights": str(locked / "inside"),
        "a folder": str(folder / "empty"),
    }


@pytest.mark.parametrize("name", PLACES)
def test_a_path_that_cannot_be_used(
    odd: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for what, path in odd.items():
        if (what == "a folder" and name in FOLDERS) or (what == "no rights" and os.geteuid() == 0):
            continue
        ran = osi(*(part.replace("@", path) for part in PLACES[name].split()))
        assert ran.code == 2 and len(ran.errors) == 1, (what, ran)
        assert ran.errors[0].startswith("error: ") and "bug of" not in ran.errors[0], (what, ran)
        assert not (tmp_path / "metrics.json").exists(), what
