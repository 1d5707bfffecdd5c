"""The commands with which people are asked, and their answers compared."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from opensafeintent.cli.options import DATA, LIMIT, NAME, PATH, options_of
from opensafeintent.hostile import one_line, terminal_safe

if TYPE_CHECKING:
    from opensafeintent.workflows.annotate import ExportedStudy


_FORMS = options_of(
    click.option(
        "--out",
        type=PATH,
        required=True,
        metavar="DIR",
        help="Folder of the study: forms, and its key.",
    ),
    click.option(
        "--annotators",
        required=True,
        metavar="NAME,NAME…",
        help="Who takes part, separated by commas.",
        callback=lambda _context, _option, text: tuple(text.split(",")),
    ),
    click.option(
        "--seed",
        type=int,
        default=0,
        show_default=True,
        help="Random seed of the sample and of the items' order.",
    ),
)
_QUALITY = options_of(
    click.argument("dataset", type=NAME, metavar="DATASET"),
    DATA,
    LIMIT,
    _FORMS,
)
_JUDGE = options_of(
    click.argument("run", type=PATH, metavar="RUN"),
    click.option(
        "--sample",
        type=int,
        default=120,
        show_default=True,
        metavar="N",
        help="Responses to draw; with --unit set, prompt-sets.",
    ),
    click.option(
        "--unit",
        type=click.Choice(["response", "set"]),
        default="response",
        show_default=True,
        help="Draw single responses, or all core responses of a set.",
    ),
    click.option(
        "--model",
        "models",
        multiple=True,
        metavar="MODEL",
        help="Whose responses; repeat.  [default: every model's]",
    ),
    click.option(
        "--paraphrases", is_flag=True, help="Draw from the responses to paraphrases as well."
    ),
    _FORMS,
)


@click.group("annotate")
def annotate_group() -> None:
    """Have colleagues check a dataset, or a judge's grades."""


@annotate_group.group("export")
def annotate_export_group() -> None:
    """Write two forms for each annotator: a page that works from disk, and a CSV sheet."""


@annotate_export_group.command("quality")
@_QUALITY
def annotate_quality_command(**options: Any) -> None:
    """Is DATASET good? The paper's seven questions and overall quality, of each prompt-set."""
    from opensafeintent.workflows.annotate import AnnotateDatasetSettings, annotate_dataset

    _show_export(annotate_dataset(AnnotateDatasetSettings(**options)))


@annotate_export_group.command("judge")
@_JUDGE
def annotate_judge_command(**options: Any) -> None:
    """Is the judge right? Helpfulness and harm of a sample of the responses in RUN."""
    from opensafeintent.workflows.annotate import AnnotateRunSettings, annotate_run

    _show_export(annotate_run(AnnotateRunSettings(**options)))


@annotate_group.command("import")
@click.argument("files", nargs=-1, required=True, type=PATH, metavar="FILE...")
@click.option("--key", type=PATH, required=True, metavar="FILE", help="The study's key.json.")
@click.option(
    "--out", type=PATH, required=True, metavar="FILE", help="Where the labels go (.jsonl)."
)
def annotate_import_command(**options: Any) -> None:
    """Turn what annotators sent back into labels: what pages saved, and sheets.

    Everything is checked against the key. What is wrong is listed with its item, and nothing is
    written then.
    """
    from opensafeintent.workflows.annotate import ImportAnnotationsSettings, import_annotations

    settings = ImportAnnotationsSettings(**options)
    imported = import_annotations(settings)
    for one in imported.returns:
        _say(
            f"{one.annotator}: {one.items:,} items, {one.complete:,} complete, {one.begun:,} begun;"
            f" {one.unsure:,} answers are unsure"
        )
    _say(f"{settings.out}: {len(imported.labels):,} labels")


@click.command("agreement", short_help="How far people agree, and a judge with people.")
@click.argument("labels", nargs=-1, required=True, type=PATH, metavar="LABELS...")
@click.option(
    "--run",
    type=PATH,
    metavar="RUN",
    help="The run whose responses were labelled: compare its judges with people.",
)
@click.option("--out", type=PATH, metavar="DIR", help="Write agreement.json and tables/ there.")
@click.option("--seed", type=int, metavar="N", help="Random seed of the bootstrap.")
def agreement_command(seed: int | None, **options: Any) -> None:
    """Tell how far people agree on a dataset, and how far a judge agrees with them.

    LABELS are files that `annotate import` wrote. From labels of prompt-sets: yes rates and
    agreement by question. From labels of responses: the judges of RUN against people.
    """
    from opensafeintent.cli.printing import new_console, print_table
    from opensafeintent.report.tables.agreement import agreement_tables
    from opensafeintent.workflows.annotate import AgreementSettings, agreement

    if seed is not None:
        options["seed"] = seed
    settings = AgreementSettings(**options)
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
