"""The settings of each command. Those that commands share are in `calling` and `base`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from msgspec import Meta

from opensafeintent.calls.records import Sampling
from opensafeintent.commands.settings.base import (
    CHECKED,
    CHECKS,
    EXTRA,
    HEADER,
    LABEL,
    MAX_MISSING_GRADES,
    MAX_ROWS,
    MAX_TOKENS,
    PRICES,
    REASONING_EFFORT,
    REPLY_TOKENS,
    RUN_LEDGER,
    TAXONOMY,
    TEMPERATURE,
    Arg,
    Confidence,
    Count,
    Data,
    Group,
    IncludeUnsafe,
    Opt,
    OutsideLedgers,
    RunsToRead,
    Seed,
    Settings,
    Share,
    Temperature,
    list_settings,
)
from opensafeintent.commands.settings.calling import Calling, Judges, Judging
from opensafeintent.errors import InputError
from opensafeintent.files import MOST_ROWS
from opensafeintent.taxonomy import (
    MAX_MISSING,
    MIN_ACCURACY,
    MISSING_ODDS,
    MOST_EPOCHS,
    ProbeScope,
)

if TYPE_CHECKING:
    from opensafeintent.templates import Templates


PAPER_DATASET = "opensafeintent-115"


class EvaluateSettings(Judging, frozen=True, kw_only=True):
    """The models and prompt-sets of an evaluation, its parameters, and the run's folder."""

    models: Annotated[
        tuple[str, ...], Arg("Models to evaluate, as PROVIDER/MODEL.", "[MODEL]...")
    ] = ()
    suite: Annotated[
        str | None,
        Opt(
            "List of models to evaluate: 'paper', or a TOML file.",
            metavar="NAME|FILE",
            is_file=True,
            group=Group.MODELS,
            of_run=False,
        ),
    ] = None
    dataset: Annotated[
        str | None,
        Opt(
            "'starter', 'opensafeintent-115', 'opensafeintent-700', a path, or"
            " hf:owner/name[@revision][#file].  [default: the run's, or starter]",
            is_file=True,
            group=Group.DATASET,
        ),
    ] = None
    taxonomy: Annotated[Path | None, TAXONOMY.put_under(Group.DATASET)] = None
    limit: Annotated[
        Count | None,
        Opt(
            "Evaluate the first N prompt-sets of a fixed order that has each cell in proportion.",
            metavar="N",
            group=Group.DATASET,
        ),
    ] = None
    out: Annotated[
        Path | None,
        Opt(
            "Folder of the run.  [default: runs/<dataset>]",
            metavar="RUN",
            group=Group.BUDGET,
            place=-2,
        ),
    ] = None
    epochs: Annotated[
        Annotated[int, Meta(ge=1, le=MOST_EPOCHS)] | None,
        Opt("Responses per prompt.  [default: 1]", metavar="N", group=Group.MODELS),
    ] = None
    temperature: Annotated[Temperature | None, TEMPERATURE.put_under(Group.MODELS)] = None
    max_tokens: Annotated[Count | None, REPLY_TOKENS.put_under(Group.MODELS)] = None
    system: Annotated[
        str | None,
        Opt("System prompt of the model under test.", metavar="TEXT", group=Group.MODELS),
    ] = None
    reasoning_effort: Annotated[str | None, REASONING_EFFORT.put_under(Group.MODELS)] = None
    extra: Annotated[Mapping[str, Any], EXTRA.put_under(Group.MODELS)] = {}
    as_paper: Annotated[
        bool,
        Opt(
            "Use the paper's dataset, rubrics, sampling, and judge (unless --judge is given).",
            group=Group.MODELS,
        ),
    ] = False
    """Its reading of grades as well."""
    label: Annotated[tuple[str, ...], LABEL.put_under(Group.MODELS)] = ()
    probe: Annotated[
        ProbeScope | None,
        Opt(
            "Prompts for which the model is asked for its own policy.  [default: unsafe]",
            group=Group.JUDGES,
            place=1,
        ),
    ] = None
    stop_when: Annotated[
        str | None,
        Opt(
            "Stop as soon as a sequential test has answered QUESTION: 'METRIC >= X', 'METRIC <= X'"
            " or 'MODEL better METRIC'.",
            metavar="QUESTION",
            group=Group.EXTRA,
            place=-1,
        ),
    ] = None
    confidence: Annotated[
        Confidence,
        Opt(
            "Confidence level of the answer to --stop-when.",
            metavar="X",
            group=Group.EXTRA,
            place=-1,
        ),
    ] = 0.95
    follow_ups: Annotated[
        bool,
        Opt(
            "Ask on after each reply to a dual-use prompt (three second turns a set).",
            group=Group.EXTRA,
            place=-1,
        ),
    ] = False
    ledger: Annotated[Path | None, RUN_LEDGER.put_under(Group.BUDGET, place=-1)] = None
    check_judge: Annotated[
        bool, Opt("Check the judges on gold cases first; stop if one fails.", group=Group.EXTRA)
    ] = False
    report: Annotated[
        bool,
        Opt(
            "Write the page and the figures too, like `report RUN`.",
            group=Group.EXTRA,
            of_run=False,
        ),
    ] = False

    def __post_init__(self) -> None:
        if self.as_paper:
            from opensafeintent.numbers.cohort import PAPER_JUDGE

            for field, value in (("dataset", PAPER_DATASET), ("judges", (PAPER_JUDGE,))):
                msgspec.structs.force_setattr(self, field, getattr(self, field) or value)
        super().__post_init__()
        if self.as_paper and self.temperature is not None:
            raise InputError("--as-paper: sets --temperature; leave one of them out")
        if self.report and self.dry_run:
            raise InputError("--report: is a page, and --dry-run writes nothing; leave one out")
        if self.stop_when is None and self.confidence != 0.95:
            raise InputError(f"--confidence {self.confidence:g}: is for --stop-when")
        budget = (self.budget_calls, self.budget_dollars)
        if self.stop_when is not None and any(limit is not None for limit in budget):
            raise InputError(
                "--stop-when: a budget could end the run before its question; leave one of them out"
            )

    def judge_templates(self) -> Templates:
        """Return the judge templates that are named, ours by default; as the paper, no question
        that it did not ask.

        Raises:
            InputError: the folder of rubrics cannot be used, or the paper's cannot be fetched.
        """
        from opensafeintent.promptsets.loading import RUBRIC_HASHES, fetch_published_rubrics
        from opensafeintent.templates import load_templates

        if not self.as_paper:
            return super().judge_templates()
        if self.rubrics is None:
            templates = load_templates(fetch_published_rubrics())
        else:
            templates = super().judge_templates()
            own = {str(template.role): template.hash for template in templates.all()}
            if others := [role for role, digest in RUBRIC_HASHES.items() if own[role] != digest]:
                raise InputError(
                    f"--rubrics {self.rubrics}: --as-paper takes the paper's rubrics, and these are"
                    f" others for {', '.join(others)}"
                )
        asked = (item for item in templates.questions if item.role in RUBRIC_HASHES)
        return msgspec.structs.replace(templates, questions=tuple(asked))

    @property
    def under_test(self) -> tuple[str, ...]:
        """Every model to evaluate, each once: those that are named, then the suite's.

        Raises:
            InputError: there is no such suite.
        """
        from opensafeintent.calls.model_names import load_suite

        suite = load_suite(self.suite).names if self.suite is not None else ()
        return tuple(dict.fromkeys((*self.models, *suite)))


def state_sampling(
    settings: EvaluateSettings | BuildSettings, before: Sampling | None = None
) -> Sampling:
    """Return how the models under test, or the generator, are sampled: as before, but for what the
    settings state.
    """
    sampling = before or Sampling(max_tokens=MAX_TOKENS)
    stated = {
        "max_tokens": settings.max_tokens,
        "temperature": settings.temperature,
        "reasoning_effort": settings.reasoning_effort,
        "extra": dict(settings.extra) or None,
    }
    changed = {name: value for name, value in stated.items() if value is not None}
    return msgspec.structs.replace(sampling, **changed)


class GradeSettings(Judging, frozen=True, kw_only=True):
    """Which run to grade, and how."""

    run: Annotated[Path, Arg("Run to grade.")]
    out: Annotated[
        Path | None,
        Opt(
            "Folder of a new run with the responses of RUN, graded by the judges that you name.",
            metavar="DIR",
            group=Group.BUDGET,
            place=-2,
        ),
    ] = None
    """None adds the grades to the run itself."""
    ledger: Annotated[Path | None, RUN_LEDGER.put_under(Group.BUDGET, place=-1)] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.out is None:
            return
        if self.out.resolve() == self.run.resolve():
            raise InputError(
                f"--out {self.out}: is the run whose responses are graded; expected another folder"
            )
        if self.ray is not None:
            raise InputError("--ray: is not for --out, whose calls are few; leave one out")


class JudgeCheckSettings(Judges, frozen=True, kw_only=True):
    """The judges to check, the parameters of the calls, and the folder for the result."""

    min_accuracy: Annotated[
        Share,
        Opt(
            "Share of accepted cases that a judge needs to pass.",
            metavar="X",
            group=Group.JUDGES,
            place=2,
        ),
    ] = MIN_ACCURACY
    labelled: Annotated[
        Path | None,
        Opt(
            "Responses that people labelled: compare the judges with them, not with gold cases.",
            metavar="FILE",
            group=Group.DATASET,
        ),
    ] = None
    """CSV, JSON, JSON lines, Parquet or an Excel workbook."""
    columns: Annotated[
        Mapping[str, str],
        Opt(
            "Field of FILE to use for a name of ours: response, prompt, unsafe or safe (of several"
            " people unsafe_1, unsafe_2), harm, compliance or refused, helpfulness, rater, group,"
            " id. Repeatable.",
            name="--map",
            metavar="NAME=FIELD",
            group=Group.DATASET,
        ),
    ] = {}
    sample: Annotated[
        Count | None,
        Opt(
            "Draw N responses, evenly over labels.",
            metavar="N",
            group=Group.DATASET,
        ),
    ] = None
    max_rows: Annotated[Count | None, MAX_ROWS.put_under(Group.DATASET)] = MOST_ROWS
    """Of the labelled responses; None sets no limit."""
    include_unsafe: Annotated[
        bool, Opt("Keep the texts of responses that the judge gets wrong; --verbose shows them.")
    ] = False
    out: Annotated[Path, Opt("Folder of the results.", group=Group.BUDGET, place=-2)] = CHECKS
    ledger: Annotated[
        Path | None,
        Opt(
            "Ledger to use.  [default: in the folder of the result]",
            metavar="FILE",
            group=Group.BUDGET,
            place=-1,
        ),
    ] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.labelled is None:
            for flag, value in (("--map", self.columns), ("--sample", self.sample)):
                if value:
                    raise InputError(
                        f"{flag}: is for labelled responses; expected --labelled FILE too"
                    )
        elif self.min_accuracy != MIN_ACCURACY:
            raise InputError(
                f"--min-accuracy {self.min_accuracy}: is for gold cases; leave it out with"
                " --labelled"
            )

    @property
    def ledger_path(self) -> Path:
        """The ledger with the calls of the check."""
        return self.ledger or self.out / "ledger.sqlite"


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


MissingOdds = Annotated[
    Annotated[float, Meta(ge=1)],
    Opt(
        "A response that is missing for a reason of class odds is unsafe at up to X times the odds"
        " of comparable responses; inf allows any grade.",
        metavar="X",
    ),
]


class GateOptions(Settings, frozen=True, kw_only=True):
    """Gates, and the level that they are decided at."""

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
    k: Annotated[
        Annotated[int, Meta(ge=1, le=MOST_EPOCHS)] | None,
        Opt(
            "Epochs of a prompt-set that gates on safe_at_least_k and success_at_least_k count."
            "  [default: all]",
            metavar="K",
            group=Group.GATES,
        ),
    ] = None
    confidence: Annotated[
        Confidence,
        Opt(
            "Confidence level of the interval that decides a gate.", metavar="X", group=Group.GATES
        ),
    ] = 0.95
    missing_odds: MissingOdds = MISSING_ODDS


class Gating(GateOptions, frozen=True, kw_only=True):
    """Gates for the models of a report, and further outputs of the verdict."""

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


ExportFormat = Literal[
    "csv", "parquet", "jsonl", "latex", "markdown", "every-eval-ever", "hf-results"
]

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
        Opt("Responses (csv, parquet, jsonl), tables (latex, markdown), or shared results."),
    ]
    out: Annotated[
        Path, Opt("File to write; for tables and shared results, a folder.", metavar="PATH")
    ]
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
        for setting in list_settings(type(self)):
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
    missing_odds: MissingOdds = MISSING_ODDS
    ledger: OutsideLedgers = ()


class SampleSizeSettings(GateOptions, frozen=True, kw_only=True):
    """Which difference is to be found, among how many models; which margin a gate has; or which
    gates a number of prompt-sets is to decide.

    One of the three is required.
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
            "Take standard deviations and missing grades from this run. Repeatable.  [default:"
            " 0.5, 0.35, none]",
            metavar="RUN",
        ),
    ] = ()
    """0.5 for shares and 0.35 for scores by default, and no grade is missing."""
    models: Annotated[
        Annotated[int, Meta(ge=1, le=1000)] | None,
        Opt("Number of models.  [default: 2 to compare, or 1 with --margin]", metavar="N"),
    ] = None
    judges: Annotated[
        Annotated[int, Meta(ge=1, le=100)] | None,
        Opt("Number of judges per response.  [default: the pilot's, or 1]", metavar="N"),
    ] = None
    dataset: Annotated[
        str | None,
        Opt(
            "Dataset of the planned run.  [default: starter]",
            metavar="NAME",
            is_file=True,
        ),
    ] = None
    """Its prompts tell which metrics there are."""
    taxonomy: Annotated[Path | None, TAXONOMY] = None
    limit: Annotated[
        Count | None, Opt("Prompt-sets of it.  [default: all]", metavar="N", group=Group.GATES)
    ] = None
    epochs: Annotated[
        Annotated[int, Meta(ge=1, le=MOST_EPOCHS)] | None,
        Opt("Responses per prompt.  [default: 1]", metavar="N", group=Group.GATES),
    ] = None
    ledger: OutsideLedgers = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        gates = bool(self.fail_under or self.fail_over or self.fail_if_worse)
        if [self.difference is not None, self.margin is not None, gates].count(True) != 1:
            raise InputError(
                "--difference, --margin, gates (--fail-under, --fail-over, --fail-if-worse):"
                " expected exactly one of them"
            )
        if self.difference is not None and self.models == 1:
            raise InputError("--models 1: a difference is of two models or more")
        others: Sequence[str] = ("limit", "epochs", "confidence", "k")
        what = "gates"
        if gates:
            others, what = ("models", "judges"), "--difference or --margin"
        for setting in list_settings(type(self)):
            if setting.name in others and getattr(self, setting.name) != setting.default:
                raise InputError(f"{setting.flag}: is for {what}; leave it out")


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
            "The N worst responses, by the panel's harm severity; without one, by must-not"
            " questions that are hit.",
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
            " in safety for all intents, or in over-refusal. By questions alone: on an answer, in"
            " the must-not questions, or in the must questions."
        ),
    ] = None
    judge_prompts: Annotated[bool, Opt("Also show each judge's prompt as it was sent.")] = False
    ledger: OutsideLedgers = ()


_STAGES = 7


class BuildSettings(Calling, frozen=True, kw_only=True):
    """The plan of a build, its models, and its folder."""

    seeds: Annotated[
        str | None,
        Arg("JSONL or CSV with a `prompt` column, or hf:owner/name.", "[SEEDS]", is_file=True),
    ] = None
    """None builds by back-filling alone."""
    generator: Annotated[
        str,
        Opt(
            "Model that writes summaries, prompts and paraphrases.",
            metavar="MODEL",
            group=Group.BUILDING,
        ),
    ]
    judge: Annotated[
        str,
        Opt(
            "Model that checks them; preferably from another maker.",
            metavar="MODEL",
            group=Group.JUDGES,
            place=-1,
        ),
    ]
    out: Annotated[Path, Opt("Folder of the build.", metavar="DIR", group=Group.BUDGET, place=-2)]
    per_cell: Annotated[
        Count | None,
        Opt(
            "Fill every cell up to N prompt-sets.  [default: seeds only]",
            metavar="N",
            group=Group.PROMPT_SETS,
        ),
    ] = None
    stages: Annotated[
        tuple[int, int],
        Opt("Stages to run; stage 7 needs --labels.", metavar="A-B", group=Group.PROMPT_SETS),
    ] = (1, 6)
    """First and last stage, from 1 to 7.

    Results of stages before the first one are taken from the ledger.
    """
    labels: Annotated[
        tuple[Path, ...],
        Opt(
            "Labels that `annotate import` wrote. Repeatable.",
            metavar="FILE",
            group=Group.PROMPT_SETS,
        ),
    ] = ()
    limit: Annotated[
        Count | None, Opt("Read at most N seeds.", metavar="N", group=Group.PROMPT_SETS)
    ] = None
    taxonomy: Annotated[Path | None, TAXONOMY.put_under(Group.PROMPT_SETS)] = None
    templates: Annotated[
        Path | None,
        Opt(
            "Folder of templates that replace ours (same file names), or of a build that has them.",
            metavar="DIR",
            group=Group.BUILDING,
        ),
    ] = None
    temperature: Annotated[Temperature | None, TEMPERATURE.put_under(Group.BUILDING)] = None
    max_tokens: Annotated[Count | None, REPLY_TOKENS.put_under(Group.BUILDING)] = None
    reasoning_effort: Annotated[str | None, REASONING_EFFORT.put_under(Group.BUILDING)] = None
    extra: Annotated[Mapping[str, Any], EXTRA.put_under(Group.BUILDING)] = {}
    structured_output: Annotated[
        bool, Opt("Ask providers to enforce the JSON schema, if they can.", group=Group.BUILDING)
    ] = True
    ledger: Annotated[
        Path | None,
        Opt(
            "Ledger shared by several builds.  [default: the build's own]",
            metavar="FILE",
            group=Group.BUDGET,
            place=-1,
        ),
    ] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.seeds is None and self.per_cell is None:
            raise InputError(
                "nothing to build from: name a file of SEEDS, or give --per-cell N to fill the"
                " cells without any"
            )
        first, last = self.stages
        if not 1 <= first <= last <= _STAGES:
            raise InputError(
                f"--stages {first}-{last}: expected FIRST-LAST, each from 1 to {_STAGES}"
            )
        if self.labels and last < _STAGES:
            raise InputError(f"--labels: is for stage 7, and --stages ends with {last}")
        self.check_judges((self.judge,))

    @property
    def models(self) -> list[str]:
        """The generator and the judge, each once."""
        return list(dict.fromkeys((self.generator, self.judge)))

    @property
    def under_test(self) -> tuple[str, ...]:
        """The model that a header without a model's name is for: the generator."""
        return (self.generator,)


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
