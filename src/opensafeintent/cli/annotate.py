"""The `annotate` commands."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

import opensafeintent
from opensafeintent.cli.options import command, say, say_next
from opensafeintent.errors import counted
from opensafeintent.hostile import one_line

if TYPE_CHECKING:
    from opensafeintent import ExportedStudy
    from opensafeintent.workflows.settings import (
        AnnotateDatasetSettings,
        AnnotateRunSettings,
        ImportAnnotationsSettings,
    )


class _Sheets(click.Group):
    """Kinds of sheet; another word is answered with all of them."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that is named first."""
        if args and args[0] not in self.commands and not ctx.resilient_parsing:
            ctx.fail(f"{args[0]!r}: expected a kind of sheet: {', '.join(self.commands)}.")
        return super().resolve_command(ctx, args)


@click.group("annotate")
def annotate_group() -> None:
    """Have colleagues check a dataset, or a judge's grades."""


@annotate_group.group("export", cls=_Sheets)
def annotate_export_group() -> None:
    """Write a page and a CSV sheet for each annotator."""


@command(
    annotate_export_group,
    "quality",
    "AnnotateDatasetSettings",
    "Forms on the quality of a dataset's prompt-sets.",
    (
        "opensafeintent annotate export quality starter --out study --annotators ana",
        "opensafeintent annotate export quality my.jsonl --out study --annotators a,b",
        "opensafeintent annotate export quality my.csv --out s --annotators a --limit 9",
    ),
)
def annotate_quality_command(settings: AnnotateDatasetSettings) -> None:
    """Write forms that ask whether DATASET is good: the paper's seven questions and overall quality
    for each prompt-set.
    """

    _show_export(opensafeintent.annotate_dataset(settings))


@command(
    annotate_export_group,
    "judge",
    "AnnotateRunSettings",
    "Forms on the grades of a run's responses.",
    (
        "opensafeintent annotate export judge RUN --out study --annotators ana,ben",
        "opensafeintent annotate export judge RUN --out s --annotators a,b --sample 60",
        "opensafeintent annotate export judge RUN --out s --annotators a,b --unit set",
    ),
)
def annotate_judge_command(settings: AnnotateRunSettings) -> None:
    """Write forms that ask whether the judge is right: helpfulness and harm of a sample of the
    responses in RUN.
    """

    _show_export(opensafeintent.annotate_run(settings))


@command(
    annotate_group,
    "import",
    "ImportAnnotationsSettings",
    "Turn returned pages and sheets into labels.",
    (
        "opensafeintent annotate import ana.json --key study/key.json --out l.jsonl",
        "opensafeintent annotate import back --key study/key.json --out l.jsonl",
    ),
)
def annotate_import_command(settings: ImportAnnotationsSettings) -> None:
    """Turn the files that annotators returned into labels: saved pages and sheets, or folders with
    them.

    Every answer is checked against the key. If any is wrong, all problems are listed by item and
    nothing is written.
    """

    imported = opensafeintent.import_annotations(settings)
    for form in imported.returns:
        say(
            f"{form.annotator}: {counted(form.items, 'item')}, {form.complete:,} complete,"
            f" {form.begun:,} begun; {counted(form.unsure, 'answer')} unsure"
        )
    blank = sum(label.blank for label in imported.labels)
    besides = f", and {counted(blank, 'item')} left blank" if blank else ""
    say(f"{settings.out}: {counted(len(imported.labels) - blank, 'label')}{besides}")
    on_responses = any(label.kind == "judge_validation" for label in imported.labels)
    of_run = ["--run", imported.run or "RUN"] if on_responses else []
    say_next("opensafeintent agreement", settings.out, *of_run)


def _show_export(study: ExportedStudy) -> None:
    key = study.key
    what = "prompt-set" if key.kind == "dataset_quality" else "response"
    say(
        f"Study {key.study}: {counted(len(key.items), what)} of {one_line(key.dataset)} (sha256"
        f" {key.dataset_hash[:8]})"
    )
    for reason, count in study.left_out.items():
        if count:
            say(f"note: not in the sample: {count:,} {reason}")
    for line in study.about_sample:
        say(f"note: this sample {line}")
    for path in study.written:
        say(f"  {path}")
    for path in study.kept:
        say(f"  {path}  (was there already; left as it is)")
    say(f"  {study.guide}  (goes with the sheets; the pages have it inside)")
    say(
        f"Hand each annotator a page, or a sheet with the guide. Keep {study.key_path} to yourself:"
        " it identifies every item. Put the files that come back into one folder."
    )
    say_next(
        "opensafeintent annotate import FOLDER --key", study.key_path, "--out", key.labels_file
    )
