"""Settings of commands that read runs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta

from opensafeintent.errors import InputError
from opensafeintent.taxonomy import MAX_MISSING
from opensafeintent.workflows.settings.base import (
    CHECKED,
    CHECKS,
    HEADER,
    LABEL,
    MAX_MISSING_GRADES,
    PRICES,
    RUN_LEDGER,
    Arg,
    Confidence,
    Count,
    Data,
    Group,
    IncludeUnsafe,
    Opt,
    OutsideLedgers,
    RunsToRead,
    Settings,
    Share,
    settings_of,
)


class ImportSettings(Data, frozen=True, kw_only=True):
    """Files to import, and the run that takes them."""

    files: Annotated[tuple[Path, ...], Arg("Files with responses.", "FILE...")]
    out: Annotated[Path, Opt("Folder of the run.", metavar="RUN")]
    model: Annotated[
        str | None,
        Opt("Name of the model.  [default: from the file]", metavar="NAME"),
    ] = None
    dataset: Annotated[
        str | None,
        Opt(
            "Dataset of the prompts. The authors' files bring their own.",
            metavar="NAME",
            is_file=True,
        ),
    ] = None
    ledger: Annotated[Path | None, RUN_LEDGER] = None
    max_missing: Annotated[Share, MAX_MISSING_GRADES] = MAX_MISSING


class BatchesSettings(Settings, frozen=True, kw_only=True):
    """The run, build or judge check whose batches are shown."""

    run: Annotated[Path, Arg("Run, build or judge check.")]
    cancel: Annotated[bool, Opt("Cancel the batches under way that your key made.")] = False
    id: Annotated[
        tuple[str, ...],
        Opt(
            "Only the batch with this id. --cancel ends it even if another key made it."
            " Repeatable.",
            metavar="ID",
        ),
    ] = ()
    header: Annotated[tuple[str, ...], HEADER] = ()
    ledger: OutsideLedgers = ()


class Gating(Settings, frozen=True, kw_only=True):
    """Gates for the models of a report, and further outputs of the verdict."""

    fail_under: Annotated[
        tuple[str, ...],
        Opt(
            "Exit with 4 if a model is below X. Repeatable.", metavar="METRIC=X", group=Group.GATES
        ),
    ] = ()
    fail_over: Annotated[
        tuple[str, ...],
        Opt(
            "Exit with 4 if a model is above X. Repeatable.", metavar="METRIC=X", group=Group.GATES
        ),
    ] = ()
    fail_if_worse: Annotated[
        tuple[str, ...],
        Opt(
            "Exit with 4 if a model is worse than in --baseline by more than MARGIN. Repeatable.",
            metavar="METRIC=MARGIN",
            group=Group.GATES,
        ),
    ] = ()
    baseline: Annotated[
        Path | None,
        Opt("Earlier run with earlier versions of the models.", metavar="RUN", group=Group.GATES),
    ] = None
    pairs: Annotated[
        tuple[str, ...],
        Opt(
            "With --baseline: a model and its earlier version.",
            name="--pair",
            metavar="NEW=OLD",
            group=Group.GATES,
        ),
    ] = ()
    first_run: Annotated[
        bool,
        Opt(
            "There is no earlier run yet: leave --fail-if-worse and --pair out.", group=Group.GATES
        ),
    ] = False
    confidence: Annotated[
        Confidence,
        Opt(
            "Confidence level of the interval that decides a gate.", metavar="X", group=Group.GATES
        ),
    ] = 0.95
    since: Annotated[
        Annotated[datetime, Meta(tz=True)] | None,
        Opt(
            "A model is undecided if fewer than half of its first-turn replies were received since"
            " TIME.",
            metavar="TIME",
            group=Group.GATES,
        ),
    ] = None
    """With its zone. Imported models are exempt."""
    summary: Annotated[
        Path | None,
        Opt(
            "Write the verdict as Markdown, for a pull request or a CI step.",
            metavar="FILE",
            group=Group.GATES,
        ),
    ] = None
    junit: Annotated[
        Path | None, Opt("Write the verdict as JUnit XML.", metavar="FILE", group=Group.GATES)
    ] = None


class ReportSettings(Gating, frozen=True, kw_only=True):
    """Runs to report on, and the report's folder."""

    runs: RunsToRead
    out: Annotated[
        Path | None, Opt("Folder of the report.  [default: the run's own]", metavar="DIR")
    ] = None
    include_unsafe: IncludeUnsafe = False
    """On the page."""
    label: Annotated[tuple[str, ...], LABEL] = ()
    """In place of those that the runs keep."""
    human_labels: Annotated[
        tuple[Path, ...],
        Opt("Correct the metrics with these human labels. Repeatable.", metavar="FILE"),
    ] = ()
    """Of responses, as `annotate import` writes them."""
    checks: Annotated[Path, CHECKED] = CHECKS
    annex: Annotated[
        bool, Opt("Write annex.md for a safety report: EU code of practice, measure 7.3.")
    ] = False
    figures_for: Annotated[
        Literal["screen", "print"],
        Opt("With print: also draw the figures for one or two columns, in figures/print/."),
    ] = "screen"
    prices: Annotated[Path | None, PRICES] = None
    max_missing: Annotated[Share, MAX_MISSING_GRADES] = MAX_MISSING
    ledger: OutsideLedgers = ()


ExportFormat = Literal["csv", "parquet", "jsonl", "every-eval-ever", "hf-results"]

_WITH_RESPONSES: tuple[ExportFormat, ...] = ("csv", "parquet", "jsonl")
"""Formats with a row per response."""

_FORMATS_OF: dict[str, tuple[ExportFormat, ...]] = {
    "include_unsafe": (*_WITH_RESPONSES, "every-eval-ever"),
    "samples": ("every-eval-ever",),
    "organization": ("every-eval-ever",),
    "relationship": ("every-eval-ever",),
    "repo": ("hf-results",),
    "dataset_repo": ("hf-results",),
    "partial": ("hf-results",),
}
"""The formats that an option of `export` has an effect on; the others are for all."""


class ExportSettings(Settings, frozen=True, kw_only=True):
    """The run to export, the format, and the folder."""

    run: Annotated[Path, Arg("Run to export.")]
    format: Annotated[
        ExportFormat,
        Opt("One row per response (csv, parquet, jsonl), or shared results."),
    ]
    out: Annotated[Path, Opt("File to write; for shared results, a folder.", metavar="PATH")]
    include_unsafe: Annotated[
        bool,
        Opt(
            "With csv, parquet, jsonl or --samples: write unsafe responses and malicious prompts"
            " too."
        ),
    ] = False
    samples: Annotated[bool, Opt("With every-eval-ever: also write the responses and scores.")] = (
        False
    )
    organization: Annotated[
        str, Opt("With every-eval-ever: name of the evaluator.", metavar="NAME")
    ] = "unknown"
    relationship: Annotated[
        Literal["first_party", "third_party", "collaborative", "other"],
        Opt("With every-eval-ever: relationship of the evaluator to the models."),
    ] = "other"
    repo: Annotated[
        str | None,
        Opt(
            "With hf-results: refuse a run of another dataset on the hub. Never required.",
            metavar="OWNER/NAME",
        ),
    ] = None
    dataset_repo: Annotated[
        str | None,
        Opt(
            "With hf-results: state that this dataset on the hub has the run's prompt-sets."
            " Required if the run did not evaluate hf:OWNER/NAME.",
            metavar="OWNER/NAME",
        ),
    ] = None
    partial: Annotated[bool, Opt("With hf-results: write the results of an incomplete run.")] = (
        False
    )
    ledger: OutsideLedgers = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        for setting in settings_of(type(self)):
            formats = _FORMATS_OF.get(setting.name, (self.format,))
            if self.format not in formats and getattr(self, setting.name) != setting.default:
                raise InputError(
                    f"{setting.flag}: is for --format {_either(formats)}, and the format"
                    f" is {self.format}"
                )
        if self.include_unsafe and not (self.of_responses or self.samples):
            raise InputError(
                f"--include-unsafe: is for the texts of responses; with {self.format}, expected"
                " --samples too"
            )

    @property
    def of_responses(self) -> bool:
        """Whether the format has a row a response."""
        return self.format in _WITH_RESPONSES


def _either(names: Sequence[str]) -> str:
    """Return names as `a, b or c`."""
    *others, last = names
    return f"{', '.join(others)} or {last}" if others else last


class CompareSettings(Settings, frozen=True, kw_only=True):
    """Runs to compare, and the table's file."""

    runs: RunsToRead
    out: Annotated[Path | None, Opt("Write the tables there.", metavar="DIR")] = None
    """Nothing is written without one."""
    ledger: OutsideLedgers = ()


class SampleSizeSettings(Settings, frozen=True, kw_only=True):
    """Which difference is to be found, among how many models; or which margin a gate has.

    One of `difference` and `margin` is required.
    """

    difference: Annotated[
        Annotated[float, Meta(ge=0.001, lt=1)] | None,
        Opt("Difference between two models: 0.05 for five points.", metavar="X"),
    ] = None
    margin: Annotated[
        Annotated[float, Meta(ge=0.001, lt=1)] | None,
        Opt("Margin of --fail-if-worse: 0.05 for five points.", metavar="X"),
    ] = None
    """With it, `models` are each compared with their own earlier version."""
    pilot: Annotated[
        tuple[Path, ...],
        Opt(
            "Take the standard deviations from this run. Repeatable.  [default: 0.5, 0.35]",
            metavar="RUN",
        ),
    ] = ()
    """0.5 for shares and 0.35 for scores by default."""
    models: Annotated[
        Annotated[int, Meta(ge=1, le=1000)] | None,
        Opt("Number of models.  [default: 2 to compare, or 1 with --margin]", metavar="N"),
    ] = None
    judges: Annotated[
        Annotated[int, Meta(ge=1, le=100)] | None,
        Opt("Number of judges per response.  [default: the pilot's, or 1]", metavar="N"),
    ] = None
    ledger: OutsideLedgers = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.difference is None) == (self.margin is None):
            raise InputError("--difference, --margin: expected exactly one of them")
        if self.difference is not None and self.models == 1:
            raise InputError("--models 1: a difference is of two models or more")


Differing = Literal["judges", "safety", "over-refusal"]
"""Judges that differ on a response, or models that differ on a prompt-set."""


class TraceSettings(Settings, frozen=True, kw_only=True):
    """The prompt-sets of a run to trace: those that meet all choices.

    At least one choice is required.
    """

    run: Annotated[Path, Arg("Run to read.")]
    set_id: Annotated[
        tuple[str, ...],
        Opt(
            "Prompt-set with this id (column id of grades.csv.gz). Repeatable.",
            name="--set",
            metavar="ID",
        ),
    ] = ()
    worst: Annotated[
        Count | None,
        Opt(
            "The N worst responses, by the panel's harm severity.",
            metavar="N",
        ),
    ] = None
    domain: Annotated[str | None, Opt("Prompt-sets of this harm domain.", metavar="D")] = None
    model: Annotated[tuple[str, ...], Opt("Responses of this model. Repeatable.", metavar="M")] = ()
    """Only they count, and only they are returned."""
    differs: Annotated[
        Differing | None,
        Opt(
            "Prompt-sets with a response on whose safety judges disagree; or that models differ on,"
            " in safety for all three intents, or in over-refusal."
        ),
    ] = None
    judge_prompts: Annotated[bool, Opt("Also show each judge's prompt as it was sent.")] = False
    ledger: OutsideLedgers = ()
