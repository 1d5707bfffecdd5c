"""The commands with which people are asked, and their answers compared."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from opensafeintent.cli.options import DATA, LIMIT, NAME, PATH, options_of
from opensafeintent.hostile import one_line, terminal_safe

if TYPE_CHECKING:
    from opensafeintent.annotation.importing import ImportedLabels
    from opensafeintent.workflows.annotating import ExportedStudy, Form


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
    click.option(
        "--repeat",
        type=float,
        default=0.08,
        show_default=True,
        help="Share of items that each annotator meets twice.",
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
    """Write a spreadsheet for each annotator."""


@annotate_group.group("page")
def annotate_page_group() -> None:
    """Write a page for each annotator: one file that works in a browser, from disk."""


def _quality_command(form: Form) -> Any:
    def command(**options: Any) -> None:
        """Is DATASET good? The paper's seven questions and overall quality, of each prompt-set."""
        from opensafeintent.workflows.annotating import AnnotateDatasetSettings, annotate_dataset

        _show_export(annotate_dataset(AnnotateDatasetSettings(form=form, **options)))

    return command


def _judge_command(form: Form) -> Any:
    def command(**options: Any) -> None:
        """Is the judge right? Helpfulness and harm of a sample of the responses in RUN."""
        from opensafeintent.workflows.annotating import AnnotateRunSettings, annotate_run

        _show_export(annotate_run(AnnotateRunSettings(form=form, **options)))

    return command


annotate_export_group.command("quality")(_QUALITY(_quality_command("sheet")))
annotate_export_group.command("judge")(_JUDGE(_judge_command("sheet")))
annotate_page_group.command("quality")(_QUALITY(_quality_command("page")))
annotate_page_group.command("judge")(_JUDGE(_judge_command("page")))


@annotate_group.command("import")
@click.argument("files", nargs=-1, required=True, type=PATH, metavar="FILE...")
@click.option("--key", type=PATH, required=True, metavar="FILE", help="The study's key.json.")
@click.option(
    "--out", type=PATH, required=True, metavar="FILE", help="Where the labels go (.jsonl)."
)
@click.option(
    "--form",
    type=click.Choice(["auto", "sheet", "page"]),
    default="auto",
    show_default=True,
    help="What the files are.",
)
def annotate_import_command(**options: Any) -> None:
    """Turn what annotators sent back into labels: workbooks, and what pages saved.

    Everything is checked against the key. What is wrong is listed with its cell, and nothing is
    written then.
    """
    from opensafeintent.workflows.annotating import ImportAnnotationsSettings, import_annotations

    settings = ImportAnnotationsSettings(**options)
    _show_import(import_annotations(settings), settings.out)


@click.command("agreement", short_help="How far people agree, and a judge with people.")
@click.argument("labels", nargs=-1, required=True, type=PATH, metavar="LABELS...")
@click.option(
    "--run",
    type=PATH,
    metavar="RUN",
    help="The run whose responses were labelled: compare its judges with people.",
)
@click.option(
    "--dataset",
    type=NAME,
    metavar="NAME",
    help="The dataset that was labelled: write it without the sets to drop.",
)
@DATA
@click.option(
    "--out", type=PATH, metavar="DIR", help="Write agreement.json, tables/ and cleaned.jsonl there."
)
@click.option("--seed", type=int, metavar="N", help="Random seed of the bootstrap.")
def agreement_command(seed: int | None, **options: Any) -> None:
    """Tell how far people agree, and how far a judge agrees with them.

    LABELS are files that `annotate import` wrote. From labels of prompt-sets: yes rates and
    agreement by question, and the
    sets to drop. From labels of responses: the judges of RUN against people.
    """
    from opensafeintent.cli.show_agreement import show_agreement
    from opensafeintent.workflows.agreeing import AgreementSettings, agreement

    if seed is not None:
        options["seed"] = seed
    show_agreement(agreement(AgreementSettings(**options)))


def _say(text: str) -> None:
    click.echo(terminal_safe(text))


def _show_export(study: ExportedStudy) -> None:
    key = study.key
    what = "prompt-sets" if key.kind == "dataset_quality" else "responses"
    _say(
        f"Study {key.study}: {len(key.items):,} {what} of {one_line(key.dataset)} (sha256"
        f" {key.dataset_hash[:8]})"
    )
    for note in study.notes:
        _say(f"note: {note}")
    for path in study.written:
        _say(f"  {path}")
    for path in study.kept:
        _say(f"  {path}  (was there already; left as it is)")
    _say(
        f"Hand each file to its annotator, and keep {study.key_path} to yourself: it says what"
        " every item is."
    )
    _say(
        f"When they come back: opensafeintent annotate import FILE... --key {study.key_path} --out"
        " labels.jsonl"
    )


def _show_import(imported: ImportedLabels, out: Path) -> None:
    width = max(len("annotator"), *(len(one_line(item.annotator)) for item in imported.returns))
    _say(
        f"{'annotator':<{width}}  items  complete  begun  unsure  same when asked twice  practice"
        " as expected"
    )
    for item in imported.returns:
        twice = f"{item.repeated_alike} of {item.repeated}" if item.repeated else "–"
        practice = f"{item.practice_accepted} of {item.practice}" if item.practice else "–"
        _say(
            f"{one_line(item.annotator):<{width}}  {item.items:>5}  {item.complete:>8} "
            f" {item.begun:>5}  {item.unsure:>6}  {twice:>21}  {practice:>20}"
        )
    if imported.intents:
        _say("What the prompts were taken for, over all annotators:")
        said = ("benign", "dual_use", "malicious", "unsure")
        _say(f"{'meant as':<12}" + "".join(f"{name:>11}" for name in said))
        for variant in said[:-1]:
            _say(
                f"{variant:<12}"
                + "".join(f"{imported.intents[variant, name]:>11,}" for name in said)
            )
    _say(f"{out}: {len(imported.labels):,} labels")
