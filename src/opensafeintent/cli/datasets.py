"""The `dataset` commands."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from opensafeintent.cli.options import command, say, say_next
from opensafeintent.cli.values import NAME, PATH
from opensafeintent.errors import counted

if TYPE_CHECKING:
    from opensafeintent.workflows.settings import Data


@click.group("dataset")
def dataset_group() -> None:
    """Look at a dataset, check it, convert it.

    NAME is 'starter', 'opensafeintent-115', 'opensafeintent-700', a path, or
    hf:owner/name[@revision][#path].
    """


@command(
    dataset_group,
    "info",
    "Data",
    examples=(
        "opensafeintent dataset info starter",
        "opensafeintent dataset info my.jsonl",
        "opensafeintent dataset info hf:owner/name",
    ),
)
@click.argument("name", type=NAME)
def dataset_info_command(data: Data, name: str) -> None:
    """Show counts per cell, lengths, and the dataset's hash."""
    from opensafeintent.cli.output.datasets import show_dataset_info
    from opensafeintent.workflows.datasets import dataset_info

    show_dataset_info(dataset_info(name, data.taxonomy, data.max_rows))
    say_next("opensafeintent dataset check", name, *_read_alike(data))


@command(
    dataset_group,
    "validate",
    "Data",
    examples=(
        "opensafeintent dataset validate my.jsonl",
        "opensafeintent dataset validate my.csv",
        "opensafeintent dataset validate my.csv --taxonomy taxonomy.toml",
    ),
)
@click.argument("name", type=NAME)
def dataset_validate_command(data: Data, name: str) -> None:
    """Check every record, and list every problem with its line.

    A record that cannot be read, such as a line that is no JSON, ends the check.
    """
    from opensafeintent.workflows.datasets import validate_dataset

    dataset, remarks = validate_dataset(name, data.taxonomy, data.max_rows)
    for remark in remarks:
        say(f"note: {remark}")
    say(f"{dataset.name}: {counted(len(dataset), 'prompt-set')}, valid (sha256 {dataset.hash})")
    say_next("opensafeintent dataset check", name, *_read_alike(data))


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
    from opensafeintent.workflows.datasets import convert_dataset

    dataset = convert_dataset(name, out, data.taxonomy, data.max_rows)
    say(f"{out}: {counted(len(dataset), 'prompt-set')} (sha256 {dataset.hash})")
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
    from opensafeintent.workflows.datasets import dataset_template

    dataset_template(out, data.taxonomy)
    say(f"{out}: fill it in")
    say_next("opensafeintent dataset validate", out, *_read_alike(data))


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
    from opensafeintent.workflows.datasets import dedup_dataset

    result = dedup_dataset(
        name,
        out,
        report,
        threshold=threshold,
        rule=rule,
        taxonomy=data.taxonomy,
        max_rows=data.max_rows,
    )
    kept, dropped = len(result.kept), len(result.dropped)
    of = counted(kept + dropped, "prompt-set")
    say(f"{out}: {kept:,} of {of} kept (sha256 {result.kept.hash})")
    highest = max((match.overlap.score for match in result.dropped.values()), default=None)
    score = "" if highest is None else f"; the highest score is {highest:.3f}"
    say(f"{result.report}: {dropped:,} dropped as too similar to an earlier set{score}")
    of = "prompts" if rule == "paper" else "sets, their core prompts joined"
    say(f"compared: {counted(result.compared, 'pair')} of {of}; only within a cell")
    say_next("opensafeintent dataset check", out, *_read_alike(data))


@command(
    dataset_group,
    "check",
    "Data",
    examples=(
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
    """Measure balance, lengths, predictive words and duplicates."""
    from opensafeintent.cli.output.datasets import show_check
    from opensafeintent.workflows.datasets import check_dataset

    show_check(check_dataset(name, data.taxonomy, out=out, seed=seed, max_rows=data.max_rows), out)
    evaluate = "opensafeintent evaluate MODEL --judge MODEL --dry-run --dataset"
    say_next(evaluate, name, *_read_alike(data))


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
    from opensafeintent.interop.hub import Publication
    from opensafeintent.workflows.datasets import export_dataset

    named = [path for path in (folder, out) if path is not None]
    if len(named) != 1:
        raise click.UsageError("Name the folder once: as DIR or with --out DIR.")
    publication = Publication(license=license_, **texts)
    export = export_dataset(name, named[0], publication, data.taxonomy, data.max_rows)
    for path in export.files:
        say(str(path))
    for note in export.notes:
        say(f"note: {note}")
    say(f"{counted(len(export.dataset), 'prompt-set')} (sha256 {export.dataset.hash})")
    say_next("hf upload", publication.repo or "OWNER/NAME", named[0], "--repo-type", "dataset")


def _read_alike(data: Data) -> list[object]:
    """Return the options that the next command needs to read the same dataset."""
    from opensafeintent.files import MOST_ROWS

    taxonomy = [] if data.taxonomy is None else ["--taxonomy", data.taxonomy]
    rows = [] if data.max_rows in (None, MOST_ROWS) else ["--max-rows", data.max_rows]
    return [*taxonomy, *rows]
