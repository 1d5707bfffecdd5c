"""The commands and their options: each calls the public function that does the work, which is
loaded then and not before.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

import opensafeintent
from opensafeintent.cli.datasets import build_command, dataset_group
from opensafeintent.cli.options import PATH, command
from opensafeintent.errors import EXIT_CODES, EXIT_ORDER
from opensafeintent.hostile import one_line, terminal_safe

if TYPE_CHECKING:
    from opensafeintent import ExportedStudy, Outcome
    from opensafeintent.calls.client import Display
    from opensafeintent.workflows.settings import (
        AgreementSettings,
        AnnotateDatasetSettings,
        AnnotateRunSettings,
        CompareSettings,
        EvaluateSettings,
        ExportSettings,
        GradeSettings,
        ImportAnnotationsSettings,
        ImportSettings,
        JudgeCheckSettings,
        ReportSettings,
        SampleSizeSettings,
        TraceSettings,
    )

S = TypeVar("S")


@click.group("annotate")
def annotate_group() -> None:
    """Have colleagues check a dataset, or a judge's grades."""


@annotate_group.group("export")
def annotate_export_group() -> None:
    """Write two forms for each annotator: a page that works from disk, and a CSV sheet."""


@command(annotate_export_group, "quality", "AnnotateDatasetSettings")
def annotate_quality_command(settings: AnnotateDatasetSettings) -> None:
    """Is DATASET good? The paper's seven questions and overall quality, of each prompt-set."""

    _show_export(opensafeintent.annotate_dataset(settings))


@command(annotate_export_group, "judge", "AnnotateRunSettings")
def annotate_judge_command(settings: AnnotateRunSettings) -> None:
    """Is the judge right? Helpfulness and harm of a sample of the responses in RUN."""

    _show_export(opensafeintent.annotate_run(settings))


@command(annotate_group, "import", "ImportAnnotationsSettings")
def annotate_import_command(settings: ImportAnnotationsSettings) -> None:
    """Turn what annotators sent back into labels: what pages saved, and sheets.

    Everything is checked against the key. What is wrong is listed with its item, and nothing is
    written then.
    """

    imported = opensafeintent.import_annotations(settings)
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
    from opensafeintent.cli.show import new_console, print_table
    from opensafeintent.report.tables_judges import agreement_tables

    result = opensafeintent.agreement(settings)
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


# The commands and their options
# ------------------------------------------------------------------------------


class Escaped(Exception):
    """Carries an error past click, which would take it for an interruption or for a reader that has
    gone; its cause.
    """


class _Program(click.Group):
    """The program, whose help ends with the exit codes."""

    def invoke(self, ctx: click.Context) -> object:
        """Run the command.

        Raises:
            Escaped: see above.
        """
        try:
            return super().invoke(ctx)
        except (EOFError, OSError) as error:
            raise Escaped from error

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the exit codes."""
        with formatter.section(
            f"Exit codes, the first that applies of {', '.join(map(str, EXIT_ORDER))}"
        ):
            formatter.write_dl([(str(code), meaning) for code, meaning in EXIT_CODES.items()])


@click.group(
    cls=_Program, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(package_name="opensafeintent", message="%(version)s")
def cli() -> None:
    """Does a model give the right amount of help as intent shifts, on the same task?

    Full help when the request is benign, bounded help when it is dual-use, none that does harm when
    it is malicious.
    """


def _show(command: Callable[[S, Display], Outcome], settings: S) -> int:
    """Run a command with its progress on the terminal; print what it found, give its exit code."""
    from opensafeintent.calls.client import terminal_or_plain
    from opensafeintent.cli.show import show_outcome

    return show_outcome(command(settings, terminal_or_plain()))


@cli.command("demo")
@click.option(
    "--out", type=PATH, default=Path("runs/demo"), show_default=True, help="Folder of the run."
)
def demo_command(out: Path) -> int:
    """Evaluate the scripted baselines on the starter set. Needs no key and no network."""
    return _show(opensafeintent.demo, out)


@command(cli, "evaluate", "EvaluateSettings")
def evaluate_command(settings: EvaluateSettings) -> int:
    """Evaluate models on prompt-sets, with one judge or several.

    A model is named provider/model: openai/gpt-5.4, vllm/NAME, openai-api/PROVIDER/NAME,
    baseline/refuse-all. Run the same command again to go on where it stopped; run it with other
    models or judges to let the run grow.
    """
    return _show(opensafeintent.evaluate, settings)


@command(cli, "import", "ImportSettings", "Import responses, with or without grades.")
def import_command(settings: ImportSettings) -> int:
    """Import responses, with or without grades: the authors' files, logs of Inspect AI, JSONL of
    id, variant, response.
    """
    from opensafeintent.cli.show import show_outcome

    return show_outcome(opensafeintent.import_files(settings))


@command(cli, "grade", "GradeSettings", "Let judges grade imported responses.")
def grade_command(settings: GradeSettings) -> int:
    """Let judges grade the imported responses of RUN that have no grades."""
    return _show(opensafeintent.grade, settings)


@command(
    cli, "judge-check", "JudgeCheckSettings", "Check judges on cases whose right grades are known."
)
def judge_check_command(settings: JudgeCheckSettings) -> int:
    """Check judges on gold cases: responses whose right grades are known.

    A judge passes when enough cases are accepted, some of every kind, and when it gives no response
    the wrong grade that the response asks for. Exits with 4 when a judge fails.
    """
    return _show(opensafeintent.check_judges, settings)


@command(
    cli, "report", "ReportSettings", "Rebuild a run's results: page, figures, tables, metrics."
)
def report_command(settings: ReportSettings) -> int:
    """Rebuild the results of runs from their ledgers: report.html, figures, tables, metrics.json.

    Gates: METRIC is a name in metrics.json; a repeated option is one more gate. A gate is passed
    (0) or failed (4) if the whole interval lies on that side of X, else undecided (5). Baselines
    are tested only if there is no other model.
    """
    return _show(opensafeintent.write_report, settings)


@command(cli, "export", "ExportSettings", "Write a run's results for other programs.")
def export_command(settings: ExportSettings) -> None:
    """Write the results of RUN for other programs: responses with their grades, a row each, or the
    headline metrics in a format in which results are shared.
    """
    exported = opensafeintent.export_run(settings)
    for note in exported.notes:
        _say(f"note: {note}")
    for path in exported.files:
        _say(str(path))


@command(cli, "compare", "CompareSettings", "Compare every two models, with p values and ranks.")
def compare_command(settings: CompareSettings) -> None:
    """Compare every two models: second minus first as named, p adjusted for all pairs, ranks."""
    from opensafeintent.calls.client import terminal_or_plain
    from opensafeintent.cli.show import show_comparisons

    show_comparisons(opensafeintent.compare(settings, terminal_or_plain()))


@command(cli, "sample-size", "SampleSizeSettings", "How many prompt-sets a difference takes.")
def sample_size_command(settings: SampleSizeSettings) -> None:
    """Tell how many prompt-sets and calls it takes to find a difference of two models, and how
    precise so many are.

    The metrics are Triplet Safety, a share, and Mean Utility, a score. No call is made.
    """
    from opensafeintent.cli.show import new_console, print_table

    console = new_console()
    for table in opensafeintent.sample_size(settings).tables:
        console.print(f"\n{table.title}", style="bold")
        print_table(console, table, notes=True)


@command(cli, "trace", "TraceSettings", "Show the responses and calls behind prompt-sets.")
@click.option("--include-unsafe", is_flag=True, help="Show unsafe responses and malicious prompts.")
@click.option(
    "--rejected", is_flag=True, help="Items that a build dropped; RUN is the folder of the build."
)
def trace_command(settings: TraceSettings, *, include_unsafe: bool, rejected: bool) -> None:
    """Show what a run holds of prompt-sets: responses, each judge's grades and replies, and the
    ledger rows behind them.

    One of --set, --worst, --domain, --model and --differs is due; of several, all have to hold.
    --rejected stands alone.
    """
    from opensafeintent.cli.show import show_rejected, show_traces

    if rejected:
        if type(settings)(run=settings.run) != settings:
            raise click.UsageError("--rejected takes no other choice.")
        found = opensafeintent.rejections(settings.run)
        show_rejected(found, settings.run, include_unsafe=include_unsafe)
        return
    show_traces(opensafeintent.traces(settings), settings, include_unsafe=include_unsafe)


@cli.command("models", short_help="List what can be named as a model, and what each needs.")
def models_command() -> None:
    """List what can be named as a model, which variables each needs, and which are set."""
    from opensafeintent.cli.show import new_console, print_table
    from opensafeintent.report.tables import served

    print_table(new_console(), served(opensafeintent.served_models()))


@cli.group("ledger")
def ledger_group() -> None:
    """Work on ledgers, the records of calls."""


@ledger_group.command("merge")
@click.argument("ledgers", nargs=-1, required=True, type=PATH, metavar="LEDGER...")
@click.option(
    "--out",
    type=PATH,
    required=True,
    metavar="FILE",
    help="A new ledger, or one of those named, which grows.",
)
def ledger_merge_command(ledgers: tuple[Path, ...], out: Path) -> None:
    """Merge ledgers into one. If two of them answer a call, the first answer stands."""

    for path, merged in opensafeintent.merge_ledgers(ledgers, out).items():
        added = f"{merged.added:,} of {merged.rows:,} attempts added"
        answers = "answer" if merged.duplicates == 1 else "answers"
        _say(f"{path}: {added}, {merged.duplicates:,} duplicate {answers} left out")


command(cli, "build", "BuildSettings")(build_command)
command(cli, "agreement", "AgreementSettings", "How far people agree, and a judge with people.")(
    agreement_command
)
cli.add_command(dataset_group)
cli.add_command(annotate_group)
