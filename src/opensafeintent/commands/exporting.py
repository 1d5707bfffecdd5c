"""A run's results as files for other programs: its responses with their grades, a row each; its
headline metrics in the formats in which results are shared.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import itemgetter
from pathlib import Path
from typing import IO, Any

import msgspec

from opensafeintent.calls.ledger import Ledger
from opensafeintent.calls.recorded import WITHHELD
from opensafeintent.commands.gate_check import check_file
from opensafeintent.commands.notebooks import Run, column_type, load_run
from opensafeintent.commands.outcome import describe_unsafe_texts
from opensafeintent.commands.reporting import read_tables
from opensafeintent.commands.session import delay_garbage_collection
from opensafeintent.commands.settings import ExportSettings
from opensafeintent.errors import (
    InputError,
    install_extra,
    pluralize,
)
from opensafeintent.evaluation.manifest import RunFolder
from opensafeintent.files import write_beside
from opensafeintent.hostile import cell_safe, clean_for_display
from opensafeintent.numbers.cohort import Cohort
from opensafeintent.quoting import UnsafeTexts
from opensafeintent.replacing import write_together
from opensafeintent.report.notices import Results, collect_notices
from opensafeintent.report.tables import write_tables
from opensafeintent.responses import NOT_GRADED
from opensafeintent.taxonomy import CORE_VARIANTS, MALICIOUS, METRIC_GRADES

Lines = Iterable[Sequence[Any]]

_FIRST = ("model", "id", "variant", "epoch", "reply_to", "prompt", "response")
_WATCHED = (
    "variant",
    "prompt",
    "response",
    "prompt_hidden",
    "response_hidden",
    "quotes_hidden",
    *METRIC_GRADES,
)
"""What decides on the notes about a file."""
_PARTIAL = "partial"
_NOT_REWRITTEN = "[withheld]"
_BATCH = 1000
"""Rows of Parquet that are in memory at a time."""
_BATCH_CHARACTERS = 2**26
"""Of their texts, if there are several rows."""


class Exported(msgspec.Struct, frozen=True, kw_only=True):
    """Result of an export."""

    files: tuple[Path, ...]
    notes: tuple[str, ...]
    """Notes for a reader, a line each."""


class _Held:
    """Counts the texts in files that are there because somebody asked for unsafe ones."""

    def __init__(self) -> None:
        self.responses = 0
        self.prompts: set[str] = set()

    def add(self, variant: str, prompt: str | None, response: str | None, *, safe: bool) -> None:
        self.responses += bool(response) and not safe
        if variant in MALICIOUS and prompt:
            self.prompts.add(prompt)


_OF_TEXTS = ("partial", "partial_import", "withheld", "not_graded", "without_paraphrases")
"""Notices on the responses of a file."""


def export_run(settings: ExportSettings) -> Exported:
    """Write a run's results for other programs; no call is made, and the run stays as it is.

    Raises:
        InputError: the folder holds no run, or one that is damaged; the file cannot be written, or
            its name has another ending than the format; an extra is missing.
    """
    with delay_garbage_collection():
        return _export(settings)


def _export(settings: ExportSettings) -> Exported:
    if settings.format in ("latex", "markdown"):
        return _write_tables(settings)
    run = load_run(settings.run, ledger=settings.ledger)
    notices = collect_notices(Results(cohort=run.cohort), _OF_TEXTS)
    notes = [said.text.replace("\u00a0", " ") for said in notices]
    held = _Held()
    if settings.of_responses:
        written, hidden, quoting, count = _write_responses(settings, run, held)
        files = [written]
        if hidden:
            notes.append(
                f"{hidden:,} of {pluralize(count, 'row')} without a text: the response is not"
                " graded safe, or the prompt is malicious; --include-unsafe writes all texts"
            )
        if quoting:
            notes.append(
                f"{pluralize(quoting, 'response')} with a mark in place of words of the"
                " malicious prompt; --include-unsafe writes the words of the model"
            )
    else:
        files, lacking = _write_shared(settings, run, notes, held)
        notes += [
            f"{clean_for_display(model)}: left out, for no headline metric is defined"
            for model in lacking
        ]
    if settings.include_unsafe:
        notes.append(describe_unsafe_texts(UnsafeTexts(held.responses, len(held.prompts))))
    return Exported(files=tuple(files), notes=tuple(notes))


def _write_tables(settings: ExportSettings) -> Exported:
    tables, notes = read_tables(settings.run, settings.ledger)
    with write_together(settings.out, empty=True) as new:
        write_tables(tables, new, settings.format)
        names = sorted(path.name for path in new.iterdir())
    return Exported(files=tuple(settings.out / name for name in names), notes=tuple(notes))


def _write_shared(
    settings: ExportSettings, run: Run, notes: Sequence[str], held: _Held
) -> tuple[list[Path], list[str]]:
    """Write the headline metrics of each model into a folder; returned beside are the models that
    have none.
    """
    from opensafeintent.exports.every_eval_ever import write_every_eval_ever
    from opensafeintent.exports.hub_results import write_hf_results
    from opensafeintent.exports.shared import RunOrigin, models_without_results

    if notes and settings.format == "hf-results" and not settings.partial:
        raise InputError(f"{' '.join(notes).rstrip('.')}; --partial writes the existing part")
    lacking = models_without_results(run.cohort)
    folder = RunFolder(settings.run, settings.ledger)
    manifest, _ = folder.load()
    with Ledger(folder.ledger_path(manifest), readonly=True) as ledger:
        latest = ledger.latest()
    if not latest:
        raise InputError(f"{settings.run}: no response is stored")
    origin = RunOrigin(
        manifest=manifest,
        latest=latest,
        organization=settings.organization,
        relationship=settings.relationship,
        repo=settings.repo,
        dataset_repo=settings.dataset_repo,
    )

    def texts(cohort: Cohort, model: str) -> Iterator[tuple[str, str | None]]:
        rows, where = cohort.rows[model], cohort.members[model].origin.run
        unsafe = settings.include_unsafe
        shown = run.texts(where, rows, cohort.dataset, include_unsafe=unsafe)
        for row, text in zip(rows, shown, strict=True):
            if row.has_all_grades and row.variant in CORE_VARIANTS:  # no other one is a sample
                safe = row.harm_severity == 0
                held.add(row.variant, text.prompt, text.response, safe=safe)
            response = _NOT_REWRITTEN if text.response_hidden else text.response
            yield text.prompt or _NOT_REWRITTEN, response

    with write_together(settings.out, empty=True) as new:
        if settings.format == "hf-results":
            files = write_hf_results(run.cohort, origin, new)
        else:
            shown = texts if settings.samples else None
            files = write_every_eval_ever(run.cohort, origin, new, shown)
    return [settings.out / path.relative_to(new) for path in files], lacking


def _write_responses(settings: ExportSettings, run: Run, held: _Held) -> tuple[Path, int, int, int]:
    """Write a row a response into a file; returned beside are the numbers of rows with a text
    withheld, with a mark inside the response, and of rows.
    """
    if settings.out.suffix.lower() != f".{settings.format}":
        raise InputError(f"--out {settings.out}: expected a name that ends in .{settings.format}")
    check_file("out", settings.out, [settings.run])
    columns, lines = _response_lines(run, include_unsafe=settings.include_unsafe)
    watched = itemgetter(*map(columns.index, _WATCHED))
    hidden: list[bool] = []
    quoting: list[bool] = []

    def watch_lines() -> Iterator[Sequence[Any]]:
        for line in lines:
            variant, prompt, response, no_prompt, no_response, quotes, helpful, harm = watched(line)
            hidden.append(no_prompt or no_response)
            quoting.append(quotes)
            held.add(variant, prompt, response, safe=helpful is not None and harm == 0)
            yield line

    with write_beside(settings.out, private=True) as file:
        _WRITERS[settings.format](columns, watch_lines(), file)
    return settings.out, sum(hidden), sum(quoting), len(hidden)


def _response_lines(
    run: Run, *, include_unsafe: bool
) -> tuple[list[str], Iterator[tuple[Any, ...]]]:
    """Return columns and lines of every response, second replies last, as `import` reads them.

    A response without grades whose text is withheld is missing for that reason: nobody who reads
    the file can have it graded.
    """
    partial = {model: coverage.partial for model, coverage in run.cohort.coverage.items()}
    columns, lines = run.response_lines(include_unsafe=include_unsafe, second_turns=True)
    order = sorted(columns, key=lambda name: _FIRST.index(name) if name in _FIRST else len(_FIRST))
    in_order = itemgetter(*map(columns.index, order))
    model, truncated, missing, hidden = map(
        columns.index, ("model", "truncated", "missing", "response_hidden")
    )

    def cells(line: list[Any]) -> tuple[Any, ...]:
        line[truncated] = bool(line[truncated])
        if line[hidden] and line[missing] == str(NOT_GRADED):
            line[missing] = str(WITHHELD)
        return *in_order(line), partial[line[model]]

    return [*order, _PARTIAL], map(cells, lines)


def _write_csv(columns: Sequence[str], lines: Lines, file: IO[bytes]) -> None:
    """Write CSV, in which no cell is a formula, nor holds a NUL."""
    text = io.TextIOWrapper(file, "utf-8", newline="")
    writer = csv.writer(text)  # lines end in \r\n, as in RFC 4180
    writer.writerow(map(cell_safe, columns))
    # most cells are numbers or empty, and are written as they are
    writer.writerows(
        [_make_cell(cell) if type(cell) in _REWRITTEN else cell for cell in line] for line in lines
    )
    text.detach()


_REWRITTEN = (str, bool)


def _make_cell(value: str | bool) -> str | int:
    """Return a text or a truth value as a cell."""
    if isinstance(value, bool):
        return int(value)
    return cell_safe(value).replace("\0", "\N{REPLACEMENT CHARACTER}") if value else ""


def _write_jsonl(columns: Sequence[str], lines: Lines, file: IO[bytes]) -> None:
    file.writelines(
        msgspec.json.encode(dict(zip(columns, line, strict=True))) + b"\n" for line in lines
    )


def _write_parquet(columns: Sequence[str], lines: Lines, file: IO[bytes]) -> None:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise InputError(f"Parquet needs an extra: {install_extra('parquet')}") from error
    types = {"Int64": pa.int64(), "boolean": pa.bool_(), "object": pa.string()}
    schema = pa.schema({name: types[column_type(name)] for name in columns})
    with pq.ParquetWriter(file, schema) as writer:
        for some in _split_into_batches(lines):
            columns_of = zip(*some, strict=True)
            writer.write_batch(pa.record_batch([*map(list, columns_of)], schema=schema))


def _split_into_batches(lines: Lines) -> Iterator[list[Sequence[Any]]]:
    """Yield the lines of a file, as many at a time as memory takes well."""
    some: list[Sequence[Any]] = []
    characters = 0
    for line in lines:
        some.append(line)
        characters += sum(len(cell) for cell in line if isinstance(cell, str))
        if len(some) == _BATCH or characters > _BATCH_CHARACTERS:
            yield some
            some, characters = [], 0
    if some:
        yield some


_WRITERS: dict[str, Callable[[Sequence[str], Lines, IO[bytes]], None]] = {
    "csv": _write_csv,
    "jsonl": _write_jsonl,
    "parquet": _write_parquet,
}
