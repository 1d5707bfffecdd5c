"""The commands and their options. What is heavy is imported inside the command that needs it."""

from __future__ import annotations

from json import JSONDecodeError
from pathlib import Path
from typing import Any

import click

from opensafeintent.cli.building import build_command
from opensafeintent.cli.dataset import dataset_group
from opensafeintent.cli.judge import judge_check_command
from opensafeintent.cli.options import (
    DATA,
    DRY_RUN,
    GATES,
    JUDGING,
    LIMITS,
    MAX_MISSING,
    NAME,
    PATH,
    PRICES,
    RUNS,
    SPREADING,
    ledger_and_limits,
)
from opensafeintent.cli.people import agreement_command, annotate_group
from opensafeintent.errors import EXIT_CODES, EXIT_ORDER, InputError
from opensafeintent.hostile import terminal_safe


class Escaped(Exception):
    """Carries an error past click, which would take it for an interruption or for a reader that has
    gone; its cause.
    """


class _Program(click.Group):
    """The program, whose help ends with the exit codes."""

    def invoke(self, ctx: click.Context) -> Any:
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


@cli.command("demo")
@click.option(
    "--out", type=PATH, default=Path("runs/demo"), show_default=True, help="Folder of the run."
)
def demo_command(out: Path) -> int:
    """Evaluate the scripted baselines on the starter set. Needs no key and no network."""
    from opensafeintent.calls.progress import terminal_or_plain
    from opensafeintent.cli.show import show_outcome
    from opensafeintent.workflows.evaluating import demo

    return show_outcome(demo(out, terminal_or_plain()))


@cli.command("evaluate")
@click.argument("models", nargs=-1, metavar="[MODEL]...")
@JUDGING
@click.option(
    "--suite",
    type=NAME,
    metavar="NAME|FILE",
    help="Evaluate a list of models: 'paper', or a TOML file of yours.",
)
@click.option(
    "--dataset",
    type=NAME,
    default="starter",
    show_default=True,
    help=(
        "'starter', 'opensafeintent-115', 'opensafeintent-700', a path, or"
        " hf:owner/name[@revision][#file]."
    ),
)
@DATA
@click.option(
    "--out", type=PATH, metavar="RUN", help="Folder of the run.  [default: runs/<dataset>]"
)
@click.option(
    "--limit", type=int, metavar="N", help="A sample of N prompt-sets, each cell by its share."
)
@click.option("--epochs", type=int, default=1, show_default=True, help="Responses to each prompt.")
@click.option(
    "--temperature",
    type=float,
    help="Sampling temperature of the model under test.  [default: its provider's]",
)
@click.option(
    "--max-tokens", type=int, default=4096, show_default=True, help="Token limit of a response."
)
@click.option("--system", metavar="TEXT", help="System prompt of the model under test.")
@click.option(
    "--reasoning-effort",
    metavar="LEVEL",
    help="Reasoning effort of the model under test, where it has one.",
)
@click.option(
    "-M",
    "extra",
    multiple=True,
    metavar="KEY=VALUE",
    help="Further field of its requests (top_p=0.9); repeat.",
)
@click.option(
    "--preset",
    type=click.Choice(["paper", "paper-code"]),
    help="Sample as the paper says, or as its code does.",
)
@click.option(
    "--as-paper",
    is_flag=True,
    help="The paper's dataset, rubrics, sampling, and judge unless you name one.",
)
@click.option(
    "--probe",
    type=click.Choice(["unsafe", "all", "none"]),
    default="unsafe",
    show_default=True,
    help="Prompts whose appropriate strategy the model is asked for.",
)
@click.option(
    "--stop-when",
    metavar="QUESTION",
    help="Stop as soon as QUESTION is answered (sequential test).",
)
@click.option(
    "--confidence",
    type=float,
    default=0.95,
    show_default=True,
    help="Of the answer to --stop-when.",
)
@click.option(
    "--judge-samples",
    type=int,
    metavar="N",
    help="Grade N responses twice, to tell a judge's own noise.",
)
@ledger_and_limits("runs")
@click.option(
    "--check-judge",
    is_flag=True,
    help="Check the judges on anchor cases first; stop when one fails.",
)
@click.option(
    "--report", is_flag=True, help="Write the page and figures too, as `report RUN` does."
)
@SPREADING
@DRY_RUN
def evaluate_command(extra: tuple[str, ...], **options: Any) -> int:
    """Evaluate models on prompt-sets, with one judge or several.

    A model is named provider/model: openai/gpt-5.4, vllm/NAME, openai-api/PROVIDER/NAME,
    baseline/refuse-all. Run the same command again to go on where it stopped; run it with other
    models or judges to let the run grow.
    """
    from opensafeintent.calls.progress import terminal_or_plain
    from opensafeintent.cli.show import show_outcome
    from opensafeintent.workflows.evaluating import evaluate
    from opensafeintent.workflows.settings import EvaluateSettings

    settings = EvaluateSettings(extra=_key_values(extra), **options)
    if settings.dry_run:
        return show_outcome(evaluate(settings), prices=settings.prices)
    return show_outcome(evaluate(settings, terminal_or_plain()), page=settings.report)


def _key_values(pairs: tuple[str, ...]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals or not key:
            raise InputError(f"-M {pair}: expected KEY=VALUE")
        if key in ("model", "messages", "stream", "n"):
            raise InputError(f"-M {pair}: {key} is set by the program")
        found[key] = _json_or_text(pair, text)
    return found


def _json_or_text(pair: str, text: str) -> Any:
    from opensafeintent.files import any_json

    try:
        return any_json(text)
    except JSONDecodeError:  # a text that needs no quotes
        return text
    except ValueError as error:
        raise InputError(f"-M {pair}: not a value that a request can hold: {error}") from error


@cli.command("import", short_help="Import responses, with or without grades.")
@click.argument("files", nargs=-1, required=True, type=PATH, metavar="FILE...")
@click.option("--out", type=PATH, required=True, metavar="RUN", help="Folder of the run.")
@click.option(
    "--model", metavar="NAME", help="Name of the model.  [default: the file's; a log's own]"
)
@click.option(
    "--dataset",
    type=NAME,
    metavar="NAME",
    help="What the responses are to; the authors' files bring their prompt-sets.",
)
@DATA
@MAX_MISSING
def import_command(**options: Any) -> int:
    """Import responses, with or without grades: the authors' files, logs of Inspect AI, JSONL of
    id, variant, response.
    """
    from opensafeintent.cli.show import show_outcome
    from opensafeintent.workflows.importing import ImportSettings, import_files

    return show_outcome(import_files(ImportSettings(**options)))


@cli.command("grade", short_help="Let judges grade imported responses.")
@click.argument("run", type=PATH)
@JUDGING
@LIMITS
@SPREADING
@DRY_RUN
def grade_command(**options: Any) -> int:
    """Let judges grade the imported responses of RUN that have no grades."""
    from opensafeintent.calls.progress import terminal_or_plain
    from opensafeintent.cli.show import show_outcome
    from opensafeintent.workflows.judging import grade
    from opensafeintent.workflows.settings import GradeSettings

    settings = GradeSettings(**options)
    return show_outcome(
        grade(settings, None if settings.dry_run else terminal_or_plain()), prices=settings.prices
    )


@cli.command("report", short_help="Rebuild a run's results: page, figures, tables, metrics.")
@RUNS
@click.option(
    "--out", type=PATH, metavar="DIR", help="Folder of the report.  [default: the run's own]"
)
@click.option(
    "--include-unsafe",
    is_flag=True,
    help="Show unsafe responses and malicious prompts on the page.",
)
@click.option(
    "--human-labels",
    multiple=True,
    type=PATH,
    metavar="FILE",
    help="Correct by these labels of people; repeat.",
)
@GATES
@PRICES
@MAX_MISSING
def report_command(**options: Any) -> int:
    """Rebuild the results of runs from their ledgers: report.html, figures, tables, metrics.json.

    Gates: METRIC is a name in metrics.json. "METRIC=X and METRIC=Y" is one gate that asks for both;
    a repeated option is a gate of its own. Without --confidence the estimate is held against X,
    with it the end of the interval. An undefined metric fails. Baselines are held against a gate
    only where there is no other model.
    """
    from opensafeintent.calls.progress import terminal_or_plain
    from opensafeintent.cli.show import show_outcome
    from opensafeintent.workflows.reporting import ReportSettings, write_report

    return show_outcome(write_report(ReportSettings(**options), terminal_or_plain()), page=True)


@cli.command("compare", short_help="Compare every two models, with p values and ranks.")
@RUNS
@click.option("--out", type=PATH, metavar="DIR", help="Write the tables there.")
def compare_command(**options: Any) -> int:
    """Compare every two models: second minus first as named, p adjusted for all pairs, ranks."""
    from opensafeintent.calls.progress import terminal_or_plain
    from opensafeintent.cli.show import show_comparisons
    from opensafeintent.workflows.reporting import CompareSettings, compare

    show_comparisons(compare(CompareSettings(**options), terminal_or_plain()))
    return 0


@cli.command("trace", short_help="Show the responses and calls behind prompt-sets.")
@click.argument("run", type=PATH)
@click.option("--set", "set_id", metavar="ID", help="Id of the prompt-set, as in grades.csv.gz.")
@click.option(
    "--worst",
    type=int,
    metavar="N",
    help=(
        "N prompt-sets: highest harm by the panel first, then lowest helpfulness on benign,"
        " then id."
    ),
)
@click.option("--domain", metavar="D", help="Prompt-sets of this harm domain.")
@click.option("--model", metavar="M", help="Responses of this model.")
@click.option(
    "--differs",
    is_flag=True,
    help="Prompt-sets with a response that is safe by one judge and unsafe by another.",
)
@click.option("--include-unsafe", is_flag=True, help="Show unsafe responses and malicious prompts.")
def trace_command(include_unsafe: bool, **options: Any) -> None:
    """Show what a run holds of prompt-sets: responses, each judge's grades and replies, and the
    ledger rows behind them.

    One of --set, --worst, --domain, --model and --differs is due; of several, all have to hold.
    """
    from opensafeintent.cli.show import show_traces
    from opensafeintent.workflows.tracing import TraceSettings, traces

    show_traces(traces(TraceSettings(**options)), include_unsafe=include_unsafe)


@cli.command("models", short_help="List what can be named as a model, and what each needs.")
def models_command() -> None:
    """List what can be named as a model, which variables each needs, and which are set."""
    from opensafeintent.cli.show import show_models
    from opensafeintent.interop.inspect.models import served_models

    show_models(served_models())


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
    from opensafeintent.calls.merging import merge_ledgers

    for path, merged in merge_ledgers(ledgers, out).items():
        added = f"{merged.added:,} of {merged.rows:,} attempts added"
        answers = "answer" if merged.duplicates == 1 else "answers"
        click.echo(
            terminal_safe(f"{path}: {added}, {merged.duplicates:,} duplicate {answers} left out")
        )


for _command in (
    build_command,
    dataset_group,
    judge_check_command,
    agreement_command,
    annotate_group,
):
    cli.add_command(_command)
