"""Settings of commands with which people are asked."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from opensafeintent.errors import InputError
from opensafeintent.files import MOST_ROWS
from opensafeintent.workflows.settings.base import (
    MAX_ROWS,
    TAXONOMY,
    Arg,
    Count,
    Opt,
    OutsideLedgers,
    Seed,
    Settings,
)


class Annotating(Settings, frozen=True, kw_only=True):
    """The annotators, and the folder for the forms."""

    out: Annotated[Path, Opt("Folder of the study: forms and answer key.", metavar="DIR")]
    annotators: Annotated[
        tuple[str, ...], Opt("Names of the annotators, separated by commas.", metavar="NAME,NAME…")
    ]
    seed: Annotated[Seed, Opt("Random seed of the sample and of the items' order.")] = 0


class AnnotateDatasetSettings(Annotating, frozen=True, kw_only=True):
    """The dataset for people to judge, and the annotators."""

    dataset: Annotated[str, Arg("Dataset whose prompts people judge.", is_file=True)]
    taxonomy: Annotated[Path | None, TAXONOMY] = None
    max_rows: Annotated[Count | None, MAX_ROWS] = MOST_ROWS
    """Of the dataset; None sets no limit."""
    limit: Annotated[
        Count | None, Opt("Sample of N prompt-sets, spread evenly over the cells.", metavar="N")
    ] = None


class AnnotateRunSettings(Annotating, frozen=True, kw_only=True):
    """The run whose responses people are to grade, the number of responses, and the annotators."""

    run: Annotated[Path, Arg("Run whose responses people grade.")]
    sample: Annotated[
        Count, Opt("Number of responses, or with --unit set of prompt-sets.", metavar="N")
    ] = 120
    unit: Annotated[
        Literal["response", "set"],
        Opt("Draw single responses, or all core responses of a set."),
    ] = "response"
    models: Annotated[
        tuple[str, ...],
        Opt(
            "Responses of this model. Repeatable.  [default: all]", name="--model", metavar="MODEL"
        ),
    ] = ()
    paraphrases: Annotated[bool, Opt("Sample from the responses to paraphrases too.")] = False
    ledger: OutsideLedgers = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.unit == "set" and self.paraphrases:
            raise InputError(
                "--paraphrases: goes with --unit response; a set is its three core prompts"
            )


class ImportAnnotationsSettings(Settings, frozen=True, kw_only=True):
    """Returned forms or folders of them, and the labels' file."""

    files: Annotated[tuple[Path, ...], Arg("Returned forms, or folders of them.", "FILE...")]
    key: Annotated[Path, Opt("The study's key.json.", metavar="FILE")]
    out: Annotated[Path, Opt("File of the labels (.jsonl).", metavar="FILE")]


class AgreementSettings(Settings, frozen=True, kw_only=True):
    """Labels to compare, a dataset or run to compare them with, and the folder for the results."""

    labels: Annotated[tuple[Path, ...], Arg("Files of labels.", "LABELS...")]
    run: Annotated[
        Path | None,
        Opt(
            "Run whose responses were labelled: compare its judges with people.",
            metavar="RUN",
        ),
    ] = None
    out: Annotated[Path | None, Opt("Write agreement.json and tables/ there.", metavar="DIR")] = (
        None
    )
    """Nothing is written without one."""
    seed: Annotated[Seed | None, Opt("Random seed of the bootstrap.", metavar="N")] = None
    """None is the one seed of all estimates."""
    ledger: OutsideLedgers = ()
