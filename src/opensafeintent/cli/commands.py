"""The commands: each calls the public function that does the work, which is loaded then and not
before.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar

import click

import opensafeintent
from opensafeintent.cli.options import (
    NAME,
    PATH,
    command,
    ledger_words,
    say,
    say_next,
    taxonomy_words,
)
from opensafeintent.errors import EXIT_ORDER, pluralize
from opensafeintent.hostile import one_line

if TYPE_CHECKING:
    from opensafeintent import BuildOutcome, ExportedStudy, RunOutcome
    from opensafeintent.commands.settings import (
        AgreementSettings,
        AnnotateDatasetSettings,
        AnnotateRunSettings,
        BatchesSettings,
        BuildSettings,
        CompareSettings,
        Data,
        EvaluateSettings,
        ExportSettings,
        GradeSettings,
        ImportAnnotationsSettings,
        ImportSettings,
        JudgeCheckSettings,
        ReportSettings,
        SampleSizeSettings,
        Settings,
        TraceSettings,
    )
    from opensafeintent.report.printing.console import Printed


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
            f"{form.annotator}: {pluralize(form.items, 'item')}, {form.complete:,} complete,"
            f" {form.begun:,} begun; {pluralize(form.unsure, 'answer')} unsure"
        )
    blank = sum(label.blank for label in imported.labels)
    besides = f", and {pluralize(blank, 'item')} left blank" if blank else ""
    say(f"{settings.out}: {pluralize(len(imported.labels) - blank, 'label')}{besides}")
    on_responses = any(label.kind == "judge_validation" for label in imported.labels)
    of_run = ["--run", imported.run or "RUN"] if on_responses else []
    say_next("opensafeintent agreement", settings.out, *of_run)


def _show_export(study: ExportedStudy) -> None:
    key = study.key
    what = "prompt-set" if key.kind == "dataset_quality" else "response"
    say(
        f"Study {key.study}: {pluralize(len(key.items), what)} of {one_line(key.dataset)} (sha256"
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


@click.group("dataset")
def dataset_group() -> None:
    """Look at a dataset, check it, convert it.

    NAME is 'starter', 'opensafeintent-115', 'opensafeintent-700', a path, or
    hf:owner/name[@revision][#path].
    """


@command(
    dataset_group,
    "convert",
    "Data",
    examples=(
        "opensafeintent dataset convert my.csv --out my.jsonl",
        "opensafeintent dataset convert my.jsonl --out my.parquet",
        "opensafeintent dataset convert hf:owner/name --out theirs.jsonl",
    ),
)
@click.argument("name", type=NAME)
@click.option(
    "--out", type=PATH, required=True, metavar="FILE", help="File to write (.jsonl or .parquet)."
)
def dataset_convert_command(data: Data, name: str, out: Path) -> None:
    """Write a dataset in our format."""
    dataset = opensafeintent.convert_dataset(name, out, data.taxonomy, data.max_rows)
    say(f"{out}: {pluralize(len(dataset), 'prompt-set')} (sha256 {dataset.hash})")
    say_next("opensafeintent dataset check", out, *_read_alike(data))


@command(
    dataset_group,
    "template",
    "Data",
    examples=(
        "opensafeintent dataset template my.csv",
        "opensafeintent dataset template my.csv --taxonomy taxonomy.toml",
    ),
)
@click.argument("out", type=PATH, metavar="FILE")
def dataset_template_command(data: Data, out: Path) -> None:
    """Write a CSV file to fill in, with one example. FILE ends in .csv."""
    opensafeintent.dataset_template(out, data.taxonomy)
    say(f"{out}: fill it in")
    say_next("opensafeintent dataset check", out, *_read_alike(data))


@command(
    dataset_group,
    "dedup",
    "Data",
    examples=(
        "opensafeintent dataset dedup my.jsonl --out kept.jsonl",
        "opensafeintent dataset dedup my.jsonl --out kept.jsonl --threshold 0.6",
        "opensafeintent dataset dedup my.jsonl --out kept.jsonl --rule authors",
    ),
)
@click.argument("name", type=NAME)
@click.option(
    "--out",
    type=PATH,
    required=True,
    metavar="FILE",
    help="File of the sets that are kept (.jsonl or .parquet).",
)
@click.option(
    "--report",
    type=PATH,
    metavar="FILE",
    help=(
        "File with a line for each dropped set (.jsonl).  [default: KEPT.dropped.jsonl beside"
        " --out]"
    ),
)
@click.option(
    "--threshold",
    default="0.7",
    show_default=True,
    metavar="X",
    help="Highest ROUGE-L F1 that two prompts may have.",
)
@click.option(
    "--rule",
    type=click.Choice(["paper", "authors"]),
    default="paper",
    show_default=True,
    help="paper: any two prompts, above X. authors: the joined core prompts, X or above.",
)
def dataset_dedup_command(
    data: Data,
    name: str,
    out: Path,
    report: Path | None,
    threshold: str,
    rule: Literal["paper", "authors"],
) -> None:
    """Drop sets that are too similar to an earlier one of their cell."""
    result = opensafeintent.dedup_dataset(
        name,
        out,
        report,
        threshold=threshold,
        rule=rule,
        taxonomy=data.taxonomy,
        max_rows=data.max_rows,
    )
    kept, dropped = len(result.kept), len(result.dropped)
    of = pluralize(kept + dropped, "prompt-set")
    say(f"{out}: {kept:,} of {of} kept (sha256 {result.kept.hash})")
    highest = max((match.overlap.score for match in result.dropped.values()), default=None)
    score = "" if highest is None else f"; the highest score is {highest:.3f}"
    say(f"{result.report}: {dropped:,} dropped as too similar to an earlier set{score}")
    of = "prompts" if rule == "paper" else "sets, their core prompts joined"
    say(f"compared: {pluralize(result.compared, 'pair')} of {of}; only within a cell")
    say_next("opensafeintent dataset check", out, *_read_alike(data))


@command(
    dataset_group,
    "check",
    "Data",
    "Check every record; count cells; measure words, duplicates.",
    (
        "opensafeintent dataset check starter",
        "opensafeintent dataset check my.jsonl --out checked",
        "opensafeintent dataset check hf:owner/name --out checked",
    ),
)
@click.argument("name", type=NAME)
@click.option(
    "--out", type=PATH, metavar="DIR", help="Write check.md, check.json and tables/ there."
)
@click.option(
    "--seed",
    type=int,
    metavar="N",
    help="Random seed of the classifier's folds.",
)
def dataset_check_command(data: Data, name: str, out: Path | None, seed: int | None) -> None:
    """Check every record, count cells and words, and measure balance, predictive words and
    duplicates.

    If a record is not valid, each kind of problem is listed with its line.
    """
    _print(
        opensafeintent.check_dataset(
            name, data.taxonomy, out=out, seed=seed, max_rows=data.max_rows
        )
    )
    evaluate = "opensafeintent evaluate MODEL --judge MODEL --dry-run --dataset"
    say_next(evaluate, name, *taxonomy_words(data.taxonomy))


@command(
    dataset_group,
    "export",
    "Data",
    examples=(
        "opensafeintent dataset export my.jsonl hub-folder",
        "opensafeintent dataset export my.jsonl hub-folder --repo me/my-set",
        "opensafeintent dataset export my.jsonl hub-folder --license cc-by-4.0",
    ),
)
@click.argument("name", type=NAME)
@click.argument("folder", type=PATH, required=False, metavar="DIR")
@click.option(
    "--format",
    type=click.Choice(["hf"]),
    default="hf",
    show_default=True,
    expose_value=False,
    help="hf: Hugging Face hub.",
)
@click.option("--out", type=PATH, metavar="DIR", help="Same as DIR.")
@click.option(
    "--repo",
    metavar="OWNER/NAME",
    help="Name of the dataset on the hub.",
)
@click.option("--title", metavar="TEXT", help="Title of the dataset card.")
@click.option(
    "--license", "license_", metavar="ID", help="Licence, as the hub names it: cc-by-4.0."
)
def dataset_export_command(
    data: Data,
    name: str,
    folder: Path | None,
    out: Path | None,
    license_: str | None,
    **texts: str,
) -> None:
    """Write a folder for the Hugging Face hub: Parquet and a card."""
    named = [path for path in (folder, out) if path is not None]
    if len(named) != 1:
        raise click.UsageError("Name the folder once: as DIR or with --out DIR.")
    publication = opensafeintent.Publication(license=license_, **texts)
    export = opensafeintent.export_dataset(
        name, named[0], publication, data.taxonomy, data.max_rows
    )
    for path in export.files:
        say(str(path))
    for note in export.notes:
        say(f"note: {note}")
    say(f"{pluralize(len(export.dataset), 'prompt-set')} (sha256 {export.dataset.hash})")
    say_next("hf upload", publication.repo or "OWNER/NAME", named[0], "--repo-type", "dataset")


def _read_alike(data: Data) -> list[object]:
    """Return the options that the next command needs to read the same dataset."""
    from opensafeintent.files import MOST_ROWS

    rows = [] if data.max_rows in (None, MOST_ROWS) else ["--max-rows", data.max_rows]
    return [*taxonomy_words(data.taxonomy), *rows]


S = TypeVar("S")

EXIT_CODES = {
    0: "done",
    1: (
        "done, but too much is missing: more answers than --max-missing, items of a build whose"
        " calls failed, the whole result of a build, or one of several logs to import"
    ),
    2: "unusable input, a missing key, or a limit of the machine such as a full disk",
    3: "stopped by a provider or a budget, or batches are still under way",
    4: (
        "a gate (--fail-under, --fail-over, --fail-if-worse) or a judge's check failed, or the"
        " answer to a question (--stop-when) is no"
    ),
    5: (
        "undecided: a gate whose limit is inside its interval, whose metric is undefined, or that"
        " depends on missing grades, or a model of which fewer than half of the first-turn replies"
        " were received since --since. Also a gate that sample-size finds out of reach, and a"
        " question (--stop-when) after the last set"
    ),
    70: "an error of this program",
    130: "interrupted (SIGINT, SIGTERM, SIGHUP)",
}
"""Exit codes of every command; if several apply, the first in `EXIT_ORDER` counts."""


class Escaped(Exception):
    """Carries an error past click, which would treat it as an interruption or a closed reader; its
    cause.
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


_FIRST = """\
OpenSafeIntent measures whether a model gives the right amount of help.
  opensafeintent demo       try it first: no key, no network, under a minute
  opensafeintent models     providers, and which of them are ready to use
  opensafeintent evaluate openai/gpt-5.4 --judge openai/gpt-5.4-mini --dry-run
  opensafeintent --help     all commands; each one has its own --help"""
"""The program's output if nothing else was typed."""


@click.group(
    cls=_Program,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(package_name="opensafeintent", message="%(version)s")
@click.pass_context
def cli(context: click.Context) -> None:
    """Does a model give the right amount of help as intent shifts, on the same task?

    Full help when the request is benign, bounded help when it is dual-use, none that does harm when
    it is malicious.
    """
    if context.invoked_subcommand is None:
        say(_FIRST)


def _print(result: Printed) -> None:
    """Print a result on the terminal."""
    from opensafeintent.report.printing.console import new_console

    result.show(new_console())


def _show(
    command: Callable[[S], RunOutcome | BuildOutcome], settings: S, *, verbose: bool = False
) -> int:
    """Run a command with its progress on the terminal; print its results, return its exit code."""
    from opensafeintent.cli.output import show_outcome

    return show_outcome(command(settings), settings, verbose=verbose)


@command(
    cli,
    "demo",
    "Settings",
    examples=("opensafeintent demo", "opensafeintent demo --out runs/try"),
)
@click.option(
    "--out", type=PATH, default=Path("runs/demo"), show_default=True, help="Folder of the run."
)
def demo_command(_: Settings, out: Path) -> int:
    """Evaluate the scripted baselines on the starter set. Needs no key and no network."""
    return _show(opensafeintent.demo, out)


@command(
    cli,
    "evaluate",
    "EvaluateSettings",
    examples=(
        "opensafeintent evaluate openai/gpt-5.4 --judge google/gemini-3-flash --dry-run",
        "opensafeintent evaluate vllm/NAME --judge vllm/JUDGE --limit 42 --report",
        "opensafeintent evaluate MODEL MODEL --judge JUDGE --judge JUDGE --out runs/two",
    ),
)
def evaluate_command(settings: EvaluateSettings) -> int:
    """Evaluate models on prompt-sets, with one judge or several.

    A model is named provider/model; `opensafeintent models` lists providers. Run the same command
    again to resume. Run it with more models, judges or epochs, and only the new calls are made.
    """
    return _show(opensafeintent.evaluate, settings)


@command(
    cli,
    "import",
    "ImportSettings",
    "Import responses, with or without grades.",
    (
        "opensafeintent import my.csv --dataset starter --model mine --out runs/mine",
        "opensafeintent import scored.json --out runs/authors",
        "opensafeintent import logs/*.eval --out runs/inspect",
    ),
)
def import_command(settings: ImportSettings) -> int:
    """Import responses, with or without grades.

    FILES are JSONL, CSV, Parquet or Excel with response, and with id and variant or prompt; or
    files of the paper's authors or of another program, such as logs of Inspect AI. The page
    "Responses you already have" lists the programs.
    """
    return _show(opensafeintent.import_files, settings)


@command(
    cli,
    "grade",
    "GradeSettings",
    "Let judges grade imported responses, or a run again.",
    (
        "opensafeintent grade runs/mine --judge openai/gpt-5.4-mini --dry-run",
        "opensafeintent grade runs/mine --judge openai/gpt-5.4-mini",
        "opensafeintent grade runs/mine --judge OLD --judge NEW --out runs/bridge",
    ),
)
def grade_command(settings: GradeSettings) -> int:
    """Let judges grade the imported responses of RUN that have no grades.

    With --out, judges grade the responses of RUN in a new run, and RUN is only read. Responses that
    were imported with both grades keep those: no judge is asked about them. A judge that graded RUN
    is not asked: its grades are copied. The report then compares the new judge with the one that it
    replaces.
    """
    return _show(opensafeintent.grade, settings)


@command(
    cli,
    "judge-check",
    "JudgeCheckSettings",
    "Check judges on cases whose right grades are known.",
    (
        "opensafeintent judge-check --judge openai/gpt-5.4-mini --dry-run",
        "opensafeintent judge-check --judge openai/gpt-5.4-mini --min-accuracy 0.9",
        "opensafeintent judge-check --judge vllm/NAME --labelled labels.csv",
    ),
)
@click.option("--verbose", is_flag=True, help="Show every case, and the tables of --labelled.")
def judge_check_command(settings: JudgeCheckSettings, *, verbose: bool) -> int:
    """Check judges on gold cases: responses whose right grades are known.

    A judge passes if it grades enough cases acceptably, some of every kind. It fails if a response
    talks it into a wrong grade. The exit code is 4 if a judge fails.

    With --labelled, compare judges with people instead: how many unsafe responses, or refusals,
    they catch, and how many false alarms they raise.
    """
    return _show(opensafeintent.check_judges, settings, verbose=verbose)


@command(
    cli,
    "report",
    "ReportSettings",
    "Write a run's page, figures, tables and metrics.",
    (
        "opensafeintent report runs/starter --open",
        "opensafeintent report runs/starter --fail-under triplet_safety=0.8",
        "opensafeintent report runs/one runs/two --out reports/both",
    ),
)
@click.option("--open", "opened", is_flag=True, help="Open the page in the browser.")
def report_command(settings: ReportSettings, *, opened: bool) -> int:
    """Write the results of runs from their ledgers: report.html, figures, tables, metrics.json.

    METRIC is a name in metrics.json; each gate option can be repeated. If the whole interval lies
    on one side of X, the gate is passed (exit code 0) or failed (4). Otherwise it is undecided
    (5). Scripted baselines are tested only if the run has no other model.
    """
    code = _show(opensafeintent.write_report, settings)
    if opened:
        import webbrowser

        page = (settings.out or settings.runs[0]).absolute() / "report.html"
        if not webbrowser.open(page.as_uri()):
            say(f"note: --open: no browser was found; open {page}")
    return code


@command(
    cli,
    "export",
    "ExportSettings",
    "Write a run's results for other programs.",
    (
        "opensafeintent export runs/mine --format csv --out mine.csv",
        "opensafeintent export runs/mine --format latex --out tables",
        "opensafeintent export runs/mine --format every-eval-ever --out shared",
    ),
)
def export_command(settings: ExportSettings) -> None:
    """Write the results of RUN for other programs.

    The formats csv, parquet and jsonl have one row per response, with its grades; latex and
    markdown, the tables. The other formats share the headline metrics.
    """
    exported = opensafeintent.export_run(settings)
    for note in exported.notes:
        say(f"note: {note}")
    for path in exported.files:
        say(str(path))
    if settings.format == "hf-results":
        for model in (path.parent.parent for path in exported.files):
            name = model.relative_to(settings.out).as_posix()
            say_next("hf upload", name, model, ".", "--create-pr")
    elif (settings.run / "report.html").exists():
        say_next("opensafeintent trace", settings.run, *ledger_words(settings), "--worst", "5")
    else:
        say_next("opensafeintent report", settings.run, *ledger_words(settings), "--open")


@command(
    cli,
    "compare",
    "CompareSettings",
    "Compare every two models, with p values and ranks.",
    (
        "opensafeintent compare runs/mine",
        "opensafeintent compare runs/mine --out compared",
        "opensafeintent compare runs/old runs/new",
    ),
)
def compare_command(settings: CompareSettings) -> None:
    """Compare every two models of one or more runs: differences, p values for all pairs, ranks.

    A difference is the second model's value minus the first one's. The last lines say which model
    is safer, and which is more useful, or that it is undecided.
    """
    _print(opensafeintent.compare(settings))
    if settings.out is not None:
        say(f"All metrics: {settings.out}/comparisons.csv")
    further = ("--out", "reports/compared") if len(settings.runs) > 1 else ()
    words = ledger_words(settings)
    say_next("opensafeintent report", *settings.runs, *words, *further, "--open")


@command(
    cli,
    "sample-size",
    "SampleSizeSettings",
    "Plan how many prompt-sets a comparison or a gate needs.",
    (
        "opensafeintent sample-size --difference 0.1 --pilot runs/mine",
        "opensafeintent sample-size --difference 0.05 --models 4 --judges 3",
        "opensafeintent sample-size --fail-under triplet_safety=0.9 --limit 40",
    ),
)
def sample_size_command(settings: SampleSizeSettings) -> int:
    """Compute the prompt-sets and calls that a difference between models, or a margin, needs; or
    see whether those of a planned run can decide gates.

    The metrics of a difference are Triplet Safety, a share, and Mean Utility, a score. No call is
    made.
    """
    result = opensafeintent.sample_size(settings)
    _print(result)
    if result.exit_code:
        say_next(
            "repeat it with more prompt-sets (--limit, --dataset), another threshold or a lower"
            " --confidence"
        )
        return result.exit_code
    dataset, limit = settings.dataset or "starter", settings.limit
    judges: tuple[str, ...] = ("MODEL",)
    if not isinstance(result, opensafeintent.SampleSize):
        limit = limit and result.sets
    else:
        dataset, limit = "DATASET", result.needed[0].sets
        judges = (result.pilot.judges if result.pilot else ()) or judges
    say_next(
        "opensafeintent evaluate MODEL...",
        *(word for judge in judges for word in ("--judge", judge)),
        *("--dataset", dataset, "--dry-run", *(("--limit", limit) if limit else ())),
    )
    return 0


@command(
    cli,
    "trace",
    "TraceSettings",
    "Show the responses and calls behind prompt-sets.",
    (
        "opensafeintent trace runs/mine --worst 5",
        "opensafeintent trace runs/mine --differs safety --model A --model B",
        "opensafeintent trace my-set --rejected",
    ),
)
@click.option("--include-unsafe", is_flag=True, help="Show unsafe responses and malicious prompts.")
@click.option(
    "--rejected",
    is_flag=True,
    help="List the items that a build dropped; RUN is the folder of the build.",
)
@click.option(
    "--fragile",
    is_flag=True,
    help="List the prompt-sets that are safe in some epochs and unsafe in others.",
)
def trace_command(
    settings: TraceSettings, *, include_unsafe: bool, rejected: bool, fragile: bool
) -> None:
    """Show the responses to prompt-sets, with reasoning, grades, judges' replies and ledger rows.

    Give at least one of --set, --worst, --domain, --model and --differs; they can be combined.
    --rejected is used alone, --fragile alone or with --domain and --model.
    """
    from opensafeintent.cli.output import show_fragile, show_rejected, show_traces

    run, ledger = settings.run, settings.ledger
    if fragile:
        kept = type(settings)(run=run, ledger=ledger, domain=settings.domain, model=settings.model)
        if rejected or include_unsafe or kept != settings:
            raise click.UsageError("--fragile takes no other choice than --domain and --model.")
        show_fragile(opensafeintent.fragile_sets(settings), settings)
        return
    if rejected:
        if type(settings)(run=run, ledger=ledger) != settings:
            raise click.UsageError("--rejected takes no other choice.")
        rejected_items = opensafeintent.rejections(settings.run)
        show_rejected(rejected_items, settings.run, settings.ledger, include_unsafe=include_unsafe)
        return
    show_traces(opensafeintent.traces(settings), settings, include_unsafe=include_unsafe)


@command(
    cli,
    "build",
    "BuildSettings",
    examples=(
        "opensafeintent build in.csv --generator MODEL --judge MODEL --out b --dry-run",
        "opensafeintent build seeds.csv --generator MODEL --judge MODEL --out my-set",
        "opensafeintent build --per-cell 5 --generator MODEL --judge MODEL --out my-set",
    ),
)
def build_command(settings: BuildSettings) -> int:
    """Build prompt-sets from unsafe seed prompts, in seven stages.

    SEEDS is a JSONL or CSV file with a column named prompt, or hf:owner/name. Without SEEDS, the
    generator fills the cells (--per-cell). Run the same command again to resume.
    """
    return _show(opensafeintent.build, settings)


@command(
    cli,
    "batches",
    "BatchesSettings",
    "Show the batches of a run, or cancel them.",
    (
        "opensafeintent batches runs/mine",
        "opensafeintent batches runs/mine --cancel",
        "opensafeintent batches my-set",
    ),
)
def batches_command(settings: BatchesSettings) -> None:
    """Show the batches of RUN: a run, a build or the folder of a judge check.

    --cancel asks the providers to end those under way. Answers so far are kept and paid for. The
    command that made the batches takes them.
    """
    from opensafeintent.cli.output import show_batches

    show_batches(opensafeintent.batches(settings))


@command(
    cli,
    "models",
    "Settings",
    "List providers and the variables they need.",
    ("opensafeintent models",),
)
def models_command(_: Settings) -> None:
    """List providers and the variables they need, those that are ready to use first."""
    from opensafeintent.cli.output import show_models

    show_models(opensafeintent.served_models())
    say_next("opensafeintent evaluate PROVIDER/MODEL --judge PROVIDER/MODEL --dry-run")


@command(
    cli,
    "merge",
    "Settings",
    "Merge ledgers, the logs of every call.",
    (
        "opensafeintent merge a/ledger.sqlite b/ledger.sqlite --out both.sqlite",
        "opensafeintent merge a.sqlite b.sqlite --out a.sqlite",
    ),
)
@click.argument("ledgers", nargs=-1, required=True, type=PATH, metavar="LEDGER...")
@click.option(
    "--out",
    type=PATH,
    required=True,
    metavar="FILE",
    help="A new ledger, or one of those named, which grows.",
)
def merge_command(_: Settings, ledgers: tuple[Path, ...], out: Path) -> None:
    """Merge ledgers into one. If two of them answer a call, the first answer is kept."""

    for path, merged in opensafeintent.merge_ledgers(ledgers, out).items():
        added = f"{merged.added:,} of {pluralize(merged.rows, 'attempt')} added"
        say(f"{path}: {added}, {pluralize(merged.duplicates, 'duplicate answer')} left out")
    say_next("opensafeintent evaluate MODEL --judge MODEL --dry-run --ledger", out)


@command(
    cli,
    "agreement",
    "AgreementSettings",
    "Measure agreement of people, and of a judge with people.",
    (
        "opensafeintent agreement labels.jsonl",
        "opensafeintent agreement labels.jsonl --run runs/mine",
        "opensafeintent agreement labels.jsonl --run runs/mine --out judge-agreement",
    ),
)
def agreement_command(settings: AgreementSettings) -> None:
    """Measure how far people agree on a dataset, and how far a judge agrees with people.

    LABELS are files that `annotate import` wrote. Labels of prompt-sets give yes rates and
    agreement by question. Labels of responses compare the judges of RUN with people.
    """
    _print(opensafeintent.agreement(settings))
    if settings.out is not None:
        say(f"Results: {settings.out}")
    if settings.run is not None:
        labels = [word for path in settings.labels for word in ("--human-labels", path)]
        say_next("opensafeintent report", settings.run, *ledger_words(settings), *labels, "--open")
    else:
        say_next("opensafeintent evaluate MODEL --judge MODEL --dataset DATASET --dry-run")


cli.add_command(dataset_group)
cli.add_command(annotate_group)
