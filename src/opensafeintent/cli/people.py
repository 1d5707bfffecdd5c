"""The commands with which people are asked, and their answers compared."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from opensafeintent.cli.options import command
from opensafeintent.hostile import one_line, terminal_safe

if TYPE_CHECKING:
    from opensafeintent.workflows.annotate import ExportedStudy
    from opensafeintent.workflows.settings import (
        AgreementSettings,
        AnnotateDatasetSettings,
        AnnotateRunSettings,
        ImportAnnotationsSettings,
    )


@click.group("annotate")
def annotate_group() -> None:
    """Have colleagues check a dataset, or a judge's grades."""


@annotate_group.group("export")
def annotate_export_group() -> None:
    """Write two forms for each annotator: a page that works from disk, and a CSV sheet."""


@command(annotate_export_group, "quality", "AnnotateDatasetSettings")
def annotate_quality_command(settings: AnnotateDatasetSettings) -> None:
    """Is DATASET good? The paper's seven questions and overall quality, of each prompt-set."""
    from opensafeintent.workflows.annotate import annotate_dataset

    _show_export(annotate_dataset(settings))


@command(annotate_export_group, "judge", "AnnotateRunSettings")
def annotate_judge_command(settings: AnnotateRunSettings) -> None:
    """Is the judge right? Helpfulness and harm of a sample of the responses in RUN."""
    from opensafeintent.workflows.annotate import annotate_run

    _show_export(annotate_run(settings))


@command(annotate_group, "import", "ImportAnnotationsSettings")
def annotate_import_command(settings: ImportAnnotationsSettings) -> None:
    """Turn what annotators sent back into labels: what pages saved, and sheets.

    Everything is checked against the key. What is wrong is listed with its item, and nothing is
    written then.
    """
    from opensafeintent.workflows.annotate import import_annotations

    imported = import_annotations(settings)
    for one in imported.returns:
        _say(
            f"{one.annotator}: {one.items:,} items, {one.complete:,} complete, {one.begun:,} begun;"
            f" {one.unsure:,} answers are unsure"
        )
    _say(f"{settings.out}: {len(imported.labels):,} labels")


def agreement_command(settings: AgreementSettings) -> None:
    """Tell how far people agree on a dataset, and how far a judge agrees with them.

    LABELS are files that `annotate import` wrote. From labels of prompt-sets: yes rates and
    agreement by question. From labels of responses: the judges of RUN against people.
    """
    from opensafeintent.cli.printing import new_console, print_table
    from opensafeintent.report.tables.agreement import agreement_tables
    from opensafeintent.workflows.annotate import agreement

    result = agreement(settings)
    console = new_console()
    for table in agreement_tables(result.quality, result.judges):
        console.print(table.title, style="bold")
        print_table(console, table, notes=True)
    if settings.out is not None:
        _say(f"Results: {settings.out}")


def _say(text: str) -> None:
    click.echo(terminal_safe(text))


def _show_export(study: ExportedStudy) -> None:
    key = study.key
    what = "prompt-sets" if key.kind == "dataset_quality" else "responses"
    _say(
        f"Study {key.study}: {len(key.items):,} {what} of {one_line(key.dataset)} (sha256"
        f" {key.dataset_hash[:8]})"
    )
    for reason, count in study.left_out.items():
        if count:
            _say(f"note: not in the sample: {count:,} {reason}")
    for path in study.written:
        _say(f"  {path}")
    for path in study.kept:
        _say(f"  {path}  (was there already; left as it is)")
    _say(
        f"Hand each annotator a page or a sheet, and keep {study.key_path} to yourself: it says"
        " what every item is."
    )
    _say(
        f"When they come back: opensafeintent annotate import FILE... --key {study.key_path} --out"
        " labels.jsonl"
    )
