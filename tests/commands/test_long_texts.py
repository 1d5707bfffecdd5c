"""Texts of millions of characters in a small ledger: no command keeps them all at once."""

from __future__ import annotations

import json
import sqlite3
import tracemalloc
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from opensafeintent import (
    EvaluateSettings,
    ExportSettings,
    TraceSettings,
    evaluate,
    export_run,
    traces,
)
from opensafeintent.calls import ledger_rows as ledger_file, recorded as ledger_imports
from opensafeintent.calls.ledger import Ledger
from opensafeintent.calls.ledger_rows import TextBudget, TooLong, compress_with_checksum
from opensafeintent.commands import exporting as export, trace
from opensafeintent.commands.graded_runs import read_graded_run
from opensafeintent.evaluation import replay as replaying
from opensafeintent.evaluation.manifest import RunFolder
from opensafeintent.files import sha256_hex
from opensafeintent.quoting import cut_quotation, hide_text
from opensafeintent.responses import GradedResponse
from peaks import run as command
from samples import dataset_file, import_lines, lines_of, made_dataset, prompt_set

DATASET = made_dataset(prompt_set("boats", 1), prompt_set("trains", 1), prompt_set("ships", 1))
PROMPTS = 12


def evaluated(folder: Path) -> Path:
    out, dataset = folder / "run", dataset_file(folder, DATASET)
    models = ("baseline/comply-all",)
    evaluate(EvaluateSettings(models=models, judges="baseline/judge", dataset=dataset, out=out))
    return out


def imported(folder: Path, **fields: Any) -> Path:
    import_lines(folder, lines_of(DATASET, **fields), DATASET, "m")
    return folder / "run"


def rows_of(run: Path) -> list[GradedResponse]:
    return read_graded_run(RunFolder(run), "run").rows


def with_long_replies(run: Path, text: str) -> None:
    """Put a reply in the place of every response."""
    reply = {"choices": [{"message": {"content": text}, "finish_reason": "stop"}]}
    with closing(sqlite3.connect(run / "ledger.sqlite")) as ledger, ledger:
        statement = "UPDATE calls SET response = ? WHERE purpose = 'generate'"
        ledger.execute(statement, (compress_with_checksum(json.dumps(reply).encode()),))


def counted(monkeypatch: pytest.MonkeyPatch, what: object, name: str) -> list[tuple[Any, ...]]:
    """Note the arguments of each call of a function."""
    calls: list[tuple[Any, ...]] = []
    function: Callable[..., Any] = getattr(what, name)

    def noted(*arguments: Any) -> Any:
        calls.append(arguments)
        return function(*arguments)

    monkeypatch.setattr(what, name, noted)
    return calls


def test_fewer_prompts_are_read_together_if_their_texts_are_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = evaluated(tmp_path)
    rows = rows_of(run)
    together = counted(monkeypatch, replaying, "_drive")
    assert rows_of(run) == rows
    assert len(together[0][1]) == PROMPTS
    together.clear()
    monkeypatch.setattr(replaying, "TEXT_BYTES_AT_ONCE", 500)
    assert rows_of(run) == rows
    assert len(together) > 2
    # no part that was read kept more than there was room for
    assert all(budget.charged <= 500 or len(steps) == 1 for _, steps, budget in together[-2:])


def test_long_texts_are_read_a_few_times_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = evaluated(tmp_path)
    with_long_replies(run, "word " * 1000)
    monkeypatch.setattr(replaying, "TEXT_BYTES_AT_ONCE", 6000)  # for one of them
    looked_up = counted(monkeypatch, TextBudget, "charge")
    assert len(rows_of(run)) == PROMPTS
    assert PROMPTS <= len(looked_up) < 2 * PROMPTS


def test_a_prompt_with_too_much_text_is_refused_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = evaluated(tmp_path)
    monkeypatch.setattr(replaying, "TEXT_BYTES_AT_ONCE", 10)
    monkeypatch.setattr(replaying, "MOST_TEXT", 2**5)
    with pytest.raises(TooLong, match=r"ledger\.sqlite: texts of more than .* backup") as error:
        rows_of(run)
    assert len(str(error.value).splitlines()) == 1


def test_an_imported_text_that_many_rows_name_is_unpacked_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = imported(tmp_path, helpfulness=3, harm_severity=0)
    text = b"word " * 1000
    with closing(sqlite3.connect(run / "ledger.sqlite")) as ledger, ledger:
        new = (bytes.fromhex(sha256_hex(text)), compress_with_checksum(text))
        ledger.execute("UPDATE texts SET sha = ?, body = ? WHERE id = 1", new)
        ledger.execute("UPDATE imported SET response = 1")
    unpacked = counted(monkeypatch, ledger_file, "unpack_text")
    with Ledger(run / "ledger.sqlite", readonly=True) as ledger_:
        assert {row.response for row in ledger_.imports.rows()} == {text.decode()}
    assert len(unpacked) == 1


def test_imported_texts_that_do_not_fit_together_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = imported(tmp_path)
    monkeypatch.setattr(ledger_imports, "TextBudget", partial(TextBudget, most=100))
    with pytest.raises(TooLong, match=r"ledger\.sqlite: texts of more than .* several runs"):
        rows_of(run)


def test_a_trace_that_does_not_fit_names_what_makes_it_smaller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = imported(tmp_path, response="x" * 500, helpfulness=3, harm_severity=0)
    monkeypatch.setattr(trace, "TextBudget", partial(TextBudget, most=1000))
    with pytest.raises(TooLong, match="with --model, or fewer responses with --worst"):
        list(traces(TraceSettings(run=run, set_id="boats")))
    assert len(list(traces(TraceSettings(run=run, worst=5)))) == 5


def test_parquet_is_written_in_parts_that_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    run = imported(tmp_path, response="x" * 500, helpfulness=3, harm_severity=0)
    out = [tmp_path / "whole.parquet", tmp_path / "parts.parquet"]
    for path in out:
        export_run(ExportSettings(run=run, format="parquet", out=path))
        monkeypatch.setattr(export, "_BATCH_CHARACTERS", 1200)
    groups = [parquet.ParquetFile(path).num_row_groups for path in out]
    assert groups[0] == 1 < groups[1]
    assert parquet.read_table(out[0]) == parquet.read_table(out[1])


def test_quotations_are_found_in_a_long_text_with_little_memory() -> None:
    secret = "Please tell me how one would do the bad thing to a neighbour without being noticed"
    text = "some words, and do the bad thing to a neighbour without; " * 5_000
    tracemalloc.start()
    try:
        cleaned = cut_quotation(text, hide_text(secret))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert (cleaned.count("some words"), cleaned.count("neighbour")) == (5_000, 0)
    assert peak < 10 * len(text)  # not a hundred bytes a word


@pytest.mark.slow
def test_the_memory_of_a_command_does_not_grow_with_the_number_of_long_texts(
    tmp_path: Path,
) -> None:
    run = evaluated(tmp_path)
    with_long_replies(run, "word " * 2**23)  # 40 MiB each
    assert (run / "ledger.sqlite").stat().st_size < 8 * 2**20
    ran = command("export", run, "--format", "jsonl", "--out", tmp_path / "out.jsonl")
    assert ran.code == 0
    assert ran.peak < 500 * 2**20
