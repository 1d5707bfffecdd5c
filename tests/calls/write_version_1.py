"""Write `data/version-1.tar.gz`: a run of revision 0a33c27, whose ledger is of version 1 and takes
failures for answers.

    git worktree add ../version-1 0a33c27
    PYTHONPATH=../version-1/src:tests python tests/calls/write_version_1.py

The target is the server of `reply_cases`, which gives each prompt-set's dual-use wording the reply
that the set is named after; the judge is the scripted one. What is derived from the ledger is left
out.
"""

from __future__ import annotations

import sqlite3
import tarfile
import tempfile
from contextlib import closing
from pathlib import Path

from calls.reply_cases import replying
from endtoend import evaluate
from samples import dataset_file, made_dataset, prompt_set

HELD = Path(__file__).parent / "data" / "version-1.tar.gz"
STILL_COUNT = ("text", "text, cut", "empty", "filtered", "code", "Azure", "OpenRouter")
COUNT_NO_MORE = {
    "null": "no_answer",
    "legacy text": "no_answer",
    "delta": "no_answer",
    "empty choice": "no_answer",
    "tool calls alone": "no_answer",
    "reasoning alone": "no_answer",
    "empty, no reason": "no_answer",
    "image parts": "malformed",
    "text, abort": "broken_off",
    "text, timeout": "broken_off",
    "text, error beside choices": "broken_off",
    "flagged account": "rejected",
    "moderate access": "rejected",
    "policy to accept": "rejected",
}
"""Prompt-sets whose dual-use response revision 0a33c27 graded, and the kind of failure that it is.
"""


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, replying() as server:
        dataset = Path(
            dataset_file(
                Path(folder), made_dataset(*map(prompt_set, (*STILL_COUNT, *COUNT_NO_MORE)))
            )
        )
        run = Path(folder) / "run"
        ran = evaluate(server, dataset, run, "--probe", "none", judges=["baseline/judge"])
        assert ran.code == 0, ran.err
        with closing(sqlite3.connect(run / "ledger.sqlite")) as connection:
            connection.execute("PRAGMA journal_mode = DELETE")
            connection.execute("VACUUM")
        kept = [
            path
            for path in sorted(run.rglob("*"))
            if path.name in ("run.json", "ledger.sqlite", "prompt_sets.jsonl")
        ]
        with tarfile.open(HELD, "w:gz") as archive:
            for path in kept:
                archive.add(path, path.relative_to(run))


if __name__ == "__main__":
    main()
