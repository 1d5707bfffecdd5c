"""The formats of files of responses: a new one is a module and a line of `IMPORT_FORMATS`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from opensafeintent.calls.progress import Display
from opensafeintent.errors import InputError
from opensafeintent.files import RowLimit
from opensafeintent.hostile import clean_for_display
from opensafeintent.imports import authors, lm_eval, ours, promptfoo
from opensafeintent.imports.content import FileContent, LocatedRecord, show_progress
from opensafeintent.inspect.logs import (
    InspectLog,
    is_inspect_log,
    read_inspect_log,
    sort_out_logs,
)
from opensafeintent.promptsets.fields import fields_found
from opensafeintent.promptsets.reading import Problem, read_records
from opensafeintent.taxonomy import Taxonomy


class ImportFormat(NamedTuple):
    """A format whose files are lists of records."""

    name: str
    form: str
    """The fields by which it is recognised, for an error."""
    recognises: Callable[[Sequence[LocatedRecord]], bool]
    """Tells it by the records of a file, of which there is one or more."""
    read: Callable[[Sequence[LocatedRecord], Path, Taxonomy], list[FileContent]]


IMPORT_FORMATS = (
    ImportFormat("promptfoo", "results, or promptIdx", promptfoo.recognises, promptfoo.read),
    ImportFormat("lm-evaluation-harness", "resps, arguments", lm_eval.recognises, lm_eval.read),
    ImportFormat(
        "the paper's authors",
        "model_responses or response_scores_…",
        authors.recognises,
        authors.read,
    ),
)
"""Those of others."""
_OURS = ImportFormat(
    "ours", "id, variant, response; or prompt, response", ours.recognises, ours.read
)


def read_files(
    paths: Sequence[Path], taxonomy: Taxonomy, max_rows: int | None, display: Display
) -> tuple[list[FileContent], list[str]]:
    """Read every file, of records or a log of Inspect AI; returned beside are the complaints about
    logs that cannot be used.

    Raises:
        InputError: a file cannot be used, or none of the logs.
    """
    read: list[FileContent] = []
    logs: list[InspectLog] = []
    failed: list[InputError] = []
    for path in paths:
        if not is_inspect_log(path):
            read += _read_records(path, taxonomy, max_rows, display)
            continue
        display.stage(f"reading {clean_for_display(path.name)}")
        try:
            logs.append(read_inspect_log(path, max_rows))
        except InputError as error:
            failed.append(error)
    lines = [line for error in failed for line in error.lines]
    if failed and not logs:
        raise InputError(*lines)
    read += [
        FileContent(path=log.path, responses=log.responses, log=log) for log in sort_out_logs(logs)
    ]
    return read, [f"not imported: {line}" for line in lines]


def _read_records(
    path: Path, taxonomy: Taxonomy, max_rows: int | None, display: Display
) -> list[FileContent]:
    """Read a file of records, the responses of each model apart.

    Raises:
        InputError: it cannot be read, is of no format, or a record in it is not usable.
    """
    stage = f"reading {clean_for_display(path.name)}"
    try:
        rows = read_records(path, limit=RowLimit(max_rows))
        records = list(show_progress(rows, display, stage, "rows"))
        if not records:
            raise InputError(f"{path}: no responses in it")
        for format_ in (*IMPORT_FORMATS, _OURS):
            if format_.recognises(records):
                contents = format_.read(records, path, taxonomy)
                # one record may hold many
                responses = sum(len(content.unplaced_records) for content in contents)
                if not any(content.responses or content.unplaced_records for content in contents):
                    raise InputError(f"{path}: no responses in it")
                RowLimit(max_rows).check(str(path), rows=responses)
                return contents
    except Problem as problem:
        raise InputError(str(problem)) from problem
    forms = "; ".join(f"of {format_.name} ({format_.form})" for format_ in (*IMPORT_FORMATS, _OURS))
    raise InputError(f"{path}: expected a file {forms}{fields_found(records[0][1])}")
