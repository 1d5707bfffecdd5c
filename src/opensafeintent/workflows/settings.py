"""Settings of commands. Each has a type, limits and its option, and is checked when it is made. No
heavy module is loaded for them: `--help` reads these records.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    Literal,
    NamedTuple,
    get_args,
    get_origin,
)

import msgspec
from msgspec import Meta

from opensafeintent.calls.records import Sampling
from opensafeintent.errors import InputError, nearest
from opensafeintent.files import MOST_ROWS
from opensafeintent.taxonomy import (
    MAX_MISSING,
    MIN_ACCURACY,
    MOST_EPOCHS,
    ModesScope,
    ParseRule,
    Preset,
    ProbeScope,
)

if TYPE_CHECKING:
    from opensafeintent.templates import Templates


class Opt(msgspec.Struct, frozen=True):
    """An option of the command line."""

    help: str
    metavar: str | None = None
    name: str = ""
    """With its dashes; made of the setting's own name by default."""
    is_file: bool = False
    """Whether the text may be a path."""


class Arg(msgspec.Struct, frozen=True):
    """An argument of the command line: it has a place and no name."""

    metavar: str | None = None
    is_file: bool = False
    """Whether the text may be a path."""


class Setting(NamedTuple):
    """One setting, as records declare it: `Annotated[type, limits, Opt(…)]`."""

    name: str
    kind: Any
    """Its type, with its limits."""
    default: object
    """`msgspec.NODEFAULT` if there is none."""
    shown: Opt | Arg | None
    """None if the command line does not have it."""
    group: str
    """The heading in the help of a command."""
    record: str

    def __str__(self) -> str:
        """Name the setting as an error does: by its option, if it has one."""
        if isinstance(self.shown, Opt):
            return self.shown.name or f"--{self.name.replace('_', '-')}"
        return f"{self.record}.{self.name}"


_WRITTEN = ("out", "summary", "junit")
"""Settings that name what a command writes."""


def _is_file(path: str | Path) -> bool:
    try:
        return Path(path).is_file()
    except (OSError, ValueError):  # a text that no file can have as its name
        return False


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a command, each checked for its type and limits when they are made.

    A text is accepted for a path, one text or path for a list of them, and a `FunctionModel` for a
    model's name.

    Raises:
        InputError: a value is of another type, beyond its limits, or no Unicode text; the text
            names the setting and the valid values.
    """

    groups: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """Its settings by the heading that they have in the help, in the order of the help; one that is
    not named is under "Options".
    """

    functions: Mapping[str, Any] = {}
    """Each `FunctionModel` of these settings, by the name that replaces it; noted when they are
    made.
    """

    def __post_init__(self) -> None:
        functions = dict(self.functions)
        for setting in settings_of(type(self)):
            value = _named(getattr(self, setting.name), setting, functions)
            if isinstance(value, str | os.PathLike) and is_list(setting.kind):
                value = (value,)
            try:
                value = msgspec.convert(value, setting.kind, dec_hook=self._path)
            except (msgspec.ValidationError, TypeError) as error:
                number = f" {value}" if isinstance(value, int | float) else ""
                raise InputError(f"{setting}{number}: {_in_words(str(error))}") from error
            if isinstance(value, str | Mapping):
                try:  # bytes of another encoding, in a text or in one of a mapping's
                    json.dumps(value, ensure_ascii=False).encode()
                except UnicodeEncodeError as error:
                    raise InputError(f"{setting}: is not valid Unicode text") from error
            msgspec.structs.force_setattr(self, setting.name, value)
        msgspec.structs.force_setattr(self, "functions", functions)
        self._spare_inputs()

    def _spare_inputs(self) -> None:
        """Refuse a file to write that is also one to read."""
        of = {setting.name: getattr(self, setting.name) for setting in settings_of(type(self))}
        written = {name: of.pop(name, None) for name in _WRITTEN}
        read = [
            one
            for value in of.values()
            for one in (value if isinstance(value, tuple) else (value,))
        ]
        for name, out in written.items():
            if out is None or not _is_file(out):
                continue
            for other in read:
                if isinstance(other, str | Path) and _is_file(other) and out.samefile(other):
                    raise InputError(
                        f"--{name} {out}: is a file that this command reads; choose another"
                    )

    @classmethod
    def _path(cls, kind: type[Any], value: Any) -> Any:
        assert kind is Path
        if isinstance(value, str | os.PathLike):
            return Path(value)
        if value is None:
            raise TypeError("is not given; Expected a path")
        raise TypeError(f"Expected a path or its text, got `{type(value).__name__}`")


@lru_cache(maxsize=32)
def settings_of(record: type[Settings]) -> tuple[Setting, ...]:
    """Return the settings of a record, those of its bases first; not the functions in them."""
    groups = record.groups.items()
    return tuple(
        Setting(
            name=field.name,
            kind=field.type,
            default=field.default
            if field.default_factory is msgspec.NODEFAULT
            else field.default_factory(),
            shown=next((one for one in get_args(field.type) if isinstance(one, Opt | Arg)), None),
            group=next((title for title, names in groups if field.name in names), "Options"),
            record=record.__name__,
        )
        for field in msgspec.structs.fields(record)
        if field.name != "functions"
    )


_BOUNDS = {"<=": "up to", ">=": "of at least", "<": "below", ">": "above"}


def _in_words(reason: str) -> str:
    """Return a reason of msgspec's; a limit in words: "expected a number up to 1"."""
    if beyond := re.fullmatch(r"Expected `(int|float)` ([<>]=?) (\S+).*", reason):
        kind, sign, limit = beyond.groups()
        number = "a number" if kind == "float" else "a whole number"
        return f"expected {number} {_BOUNDS[sign]} {limit.removesuffix('.0')}"
    return reason.replace("`", "").replace("Expected", "expected")


def _named(value: Any, setting: Setting, functions: dict[str, Any]) -> Any:
    """Return a value with the functions in it by their names, and note these."""
    from opensafeintent.calls.models import FunctionModel

    if isinstance(value, FunctionModel):
        if functions.setdefault(value.identity, value).ask != value.ask:
            raise InputError(
                f"{setting}: two functions are called {value.identity}; give one of them another"
                " name or version"
            )
        return value.identity
    if isinstance(value, list | tuple):
        return tuple(_named(item, setting, functions) for item in value)
    if callable(value):
        name = getattr(value, "__name__", "f")
        raise InputError(
            f"{setting}: a bare function; expected"
            f' FunctionModel({name}, name="{name}", version="1")'
        )
    return value


def is_list(kind: Any) -> bool:
    """Whether a setting takes a list of values, perhaps among other things."""
    return get_origin(kind) is tuple or any(map(is_list, get_args(kind)))


# Settings of commands
# ------------------------------------------------------------------------------

_MAX_TOKENS = 4096
_PAPER_DATASET = "opensafeintent-115"
_NO_LIMIT = 1e12
_STAGES = 7
"""Of a build."""

Count = Annotated[int, Meta(ge=1)]
Temperature = Annotated[float, Meta(ge=0, le=_NO_LIMIT)]
Share = Annotated[float, Meta(ge=0, le=1)]
Confidence = Annotated[float, Meta(gt=0.5, lt=1)]
MaxMissing = Annotated[
    Share, Opt("Exit with 1 if a larger share of the grades is missing.", metavar="X")
]
MaxRows = Annotated[
    Count | None, Opt("Refuse files with more rows (prompt-sets, responses, seeds).", metavar="N")
]
TaxonomyFile = Annotated[
    Path | None, Opt("TOML file of harm domains and task types; replaces the paper's.")
]
PricesFile = Annotated[
    Path | None,
    Opt(
        'JSON prices in dollars per million tokens: {"openai/gpt-5.4": {"input": 2.5, "output":'
        " 10}}.  [default: genai-prices]",
        metavar="FILE",
    ),
]
RunsToRead = Annotated[tuple[Path, ...], Arg("RUN...")]
IncludeUnsafe = Annotated[bool, Opt("Show unsafe responses and malicious prompts.")]
Labels = Annotated[
    tuple[str, ...],
    Opt("Name of a model in tables and on the page. Repeatable.", metavar="MODEL=NAME"),
]
Arguments = Annotated[
    Mapping[str, Any],
    Opt("Extra request field, such as top_p=0.9. Repeatable.", name="-M", metavar="KEY=VALUE"),
]
JudgeArguments = Annotated[
    Mapping[str, Any],
    Opt(
        "Extra request field of the judges, or of one: MODEL:KEY=VALUE. Repeatable.",
        name="--judge-arg",
        metavar="KEY=VALUE",
    ),
]
Seed = Annotated[int, Meta(ge=0)]
RunLedger = Annotated[
    Path | None, Opt("Ledger shared by several runs.  [default: the run's own]", metavar="FILE")
]
"""One in the run's folder by default."""


class Data(Settings, frozen=True, kw_only=True):
    """How a dataset is read."""

    taxonomy: TaxonomyFile = None
    max_rows: MaxRows = MOST_ROWS
    """Of each file and of the dataset; None sets no limit."""


# Commands that make calls
# ------------------------------------------------------------------------------


_GROUPS: dict[str, tuple[str, ...]] = {
    "Models and sampling": (
        "suite",
        "epochs",
        "temperature",
        "max_tokens",
        "system",
        "reasoning_effort",
        "extra",
        "preset",
        "as_paper",
        "label",
    ),
    "Judges": (
        "judges",
        "mode_judge",
        "judge_args",
        "judge_reasoning_effort",
        "judge_max_tokens",
        "judge_reasons",
        "modes",
        "probe",
        "rubrics",
        "grade_parse",
        "min_accuracy",
    ),
    "Dataset and sample": (
        "dataset",
        "taxonomy",
        "limit",
        "max_rows",
        "fail_under",
        "fail_over",
        "fail_if_worse",
        "pairs",
        "first_run",
    ),
    "Budget and execution": (
        "dry_run",
        "out",
        "ledger",
        "wait",
        "max_connections",
        "max_retries",
        "retry_for",
        "budget_calls",
        "budget_tokens",
        "budget_dollars",
        "prices",
        "max_missing",
    ),
    "Extra analyses": (
        "stop_when",
        "confidence",
        "judge_retest",
        "request_swap",
        "check_judge",
        "report",
    ),
    "Cluster (Ray)": ("ray", "shards", "gpus_per_model"),
}
"""The options of `evaluate` by their headings; other commands that make calls have some of them."""


class Calling(Settings, frozen=True, kw_only=True):
    """How many calls may be made at once and in all, and whether another process is waited for.

    Paths are absolute once they are made: a function that is called may change the folder.
    """

    groups = _GROUPS

    max_connections: Annotated[
        Count | None, Opt("Requests at once to one endpoint.  [default: adaptive]", metavar="N")
    ] = None
    max_retries: Annotated[
        Annotated[int, Meta(ge=0, le=1000)],
        Opt("Try a failed call up to N more times; rate limits (429) do not count.", metavar="N"),
    ] = 5
    retry_for: Annotated[
        Annotated[float, Meta(gt=0, le=_NO_LIMIT)],
        Opt(
            "Wait out rate limits (429) for so long; a model without a reply in that time stops.",
            metavar="MINUTES",
        ),
    ] = 30.0
    budget_calls: Annotated[Count | None, Opt("Stop after N calls.", metavar="N")] = None
    budget_tokens: Annotated[Count | None, Opt("Stop after N tokens.", metavar="N")] = None
    budget_dollars: Annotated[
        Annotated[float, Meta(gt=0, le=_NO_LIMIT)] | None,
        Opt("Stop after X dollars. Every model needs a price.", metavar="X"),
    ] = None
    prices: PricesFile = None
    wait: Annotated[
        bool, Opt("Wait if another process holds the ledger, instead of exit code 2.")
    ] = False
    """Also for one that holds the folder."""
    dry_run: Annotated[bool, Opt("Print the expected calls, tokens and dollars; make no call.")] = (
        False
    )

    @classmethod
    def _path(cls, kind: type[Any], value: Any) -> Any:
        return super()._path(kind, value).absolute()


class Judges(Calling, frozen=True, kw_only=True):
    """Which judges are asked, and how."""

    judges: Annotated[
        tuple[str, ...],
        Opt("Model that grades. Repeat for a panel.", name="--judge", metavar="MODEL"),
    ] = ()
    judge_args: JudgeArguments = {}
    judge_reasoning_effort: Annotated[
        str | None, Opt("Reasoning effort of the judges, if they have one.", metavar="LEVEL")
    ] = None
    judge_max_tokens: Annotated[Count, Opt("Token limit of a judge's reply.", metavar="N")] = 2048
    rubrics: Annotated[
        Path | None,
        Opt("Folder of judge templates that replace ours.", metavar="DIR"),
    ] = None
    judge_reasons: Annotated[
        bool, Opt("Ask judges for a reason before each grade (separate templates).")
    ] = False
    grade_parse: Annotated[
        ParseRule, Opt("How grades are read: 'paper' takes the first integer of a reply.")
    ] = "strict"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.judges:
            raise InputError("no judge: name at least one with --judge")
        if self.judge_reasons and self.grade_parse == "paper":
            raise InputError(
                "--judge-reasons: a reply is a JSON object, and --grade-parse paper takes its first"
                " integer; leave one out"
            )
        for name in self.judge_args:
            judge, colon, _ = name.rpartition(":")
            if colon and judge not in self.panel:
                raise InputError(
                    f"--judge-arg {name}: no judge {judge!r}; {nearest(judge, self.panel)}"
                )

    @property
    def panel(self) -> tuple[str, ...]:
        """Every judge that is named, each once."""
        return tuple(dict.fromkeys(self.judges))

    def judge_templates(self) -> Templates:
        """Return the judge templates in force.

        Raises:
            InputError: the folder of rubrics cannot be used, or reasons are asked for of files that
                cannot give them.
        """
        from opensafeintent.templates import load_templates

        return load_templates(self.rubrics, reasons=self.judge_reasons)

    @property
    def judge_sampling(self) -> Sampling:
        """How judges are sampled."""
        return Sampling(
            max_tokens=self.judge_max_tokens,
            temperature=0.0,
            reasoning_effort=self.judge_reasoning_effort,
            extra={name: value for name, value in self.judge_args.items() if ":" not in name},
        )

    @property
    def judge_samplings(self) -> dict[str, Sampling]:
        """How the judges that have arguments of their own are sampled, by name."""
        own: dict[str, dict[str, Any]] = {}
        for name, value in self.judge_args.items():
            judge, colon, field = name.rpartition(":")
            if colon:
                own.setdefault(judge, {})[field] = value
        common = self.judge_sampling
        return {
            judge: msgspec.structs.replace(common, extra=common.extra | fields)
            for judge, fields in own.items()
        }

    @property
    def samplings_of_panel(self) -> dict[str, Sampling]:
        """How each judge that is named is sampled."""
        own = self.judge_samplings
        return {judge: own.get(judge, self.judge_sampling) for judge in self.panel}


class JudgeCheckSettings(Judges, frozen=True, kw_only=True):
    """The judges to check, the parameters of the calls, and the folder for the result."""

    min_accuracy: Annotated[
        Share, Opt("Share of accepted cases that a judge needs to pass.", metavar="X")
    ] = MIN_ACCURACY
    out: Annotated[Path, Opt("Folder of the result.")] = Path("runs/judge-check")
    ledger: Annotated[
        Path | None,
        Opt("Ledger to use.  [default: in the folder of the result]", metavar="FILE"),
    ] = None


class Judging(Judges, frozen=True, kw_only=True):
    """Which judges grade responses, how, and when too many grades are missing."""

    mode_judge: Annotated[
        str | None,
        Opt("Model that judges assistance modes.  [default: the first --judge]", metavar="MODEL"),
    ] = None
    modes: Annotated[ModesScope, Opt("Prompts for which the assistance mode is judged.")] = (
        "dual_use"
    )
    request_swap: Annotated[
        Count | None,
        Opt(
            "Re-grade N prompt-sets with another intent's request, to measure judge bias.",
            metavar="N",
        ),
    ] = None
    """Under none too."""
    max_missing: MaxMissing = MAX_MISSING

    @property
    def panel(self) -> tuple[str, ...]:
        """Every judge that is named, each once."""
        return tuple(dict.fromkeys((*self.judges, *([self.mode_judge] if self.mode_judge else []))))


class Distributed(Judging, frozen=True, kw_only=True):
    """The cluster for the calls."""

    ray: Annotated[
        str | None,
        Opt("Make the calls on a Ray cluster: HOST:PORT, 'auto' or 'local'.", metavar="ADDRESS"),
    ] = None
    """All nodes share the run's folder."""
    shards: Annotated[
        Count | None,
        Opt("Tasks for each model.  [default: by the number of cores]", metavar="N"),
    ] = None
    gpus_per_model: Annotated[
        Annotated[float, Meta(ge=0, le=_NO_LIMIT)] | None,
        Opt("GPUs for each model with local weights.", metavar="X"),
    ] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        given = {"--shards": self.shards, "--gpus-per-model": self.gpus_per_model}
        for option, value in given.items():
            if value is not None and self.ray is None:
                raise InputError(f"{option}: is for --ray, which is not given")
        if (gpus := self.gpus_per_model) is not None and round(gpus, 0 if gpus > 1 else 4) != gpus:
            raise InputError(
                f"--gpus-per-model {gpus:g}: expected a whole number, or a part of one GPU with up"
                " to four decimals"
            )
        if self.ray is not None:
            from opensafeintent.interop.ray import check_address

            check_address(self.ray)
            for name in ("budget_calls", "budget_tokens", "budget_dollars", "stop_when"):
                if getattr(self, name, None) is not None:
                    raise InputError(
                        f"--{name.replace('_', '-')}: is not for --ray, whose tasks do not know of"
                        " one another; leave one out"
                    )


class GradeSettings(Distributed, frozen=True, kw_only=True):
    """Which run to grade, and how."""

    run: Annotated[Path, Arg()]
    ledger: RunLedger = None


class EvaluateSettings(Distributed, frozen=True, kw_only=True):
    """The models and prompt-sets of an evaluation, its parameters, and the run's folder."""

    models: Annotated[tuple[str, ...], Arg("[MODEL]...")] = ()
    suite: Annotated[
        str | None,
        Opt(
            "List of models to evaluate: 'paper', or a TOML file.",
            metavar="NAME|FILE",
            is_file=True,
        ),
    ] = None
    dataset: Annotated[
        str,
        Opt(
            "'starter', 'opensafeintent-115', 'opensafeintent-700', a path, or"
            " hf:owner/name[@revision][#file].",
            is_file=True,
        ),
    ] = "starter"
    taxonomy: TaxonomyFile = None
    max_rows: MaxRows = MOST_ROWS
    """Of the dataset; None sets no limit."""
    out: Annotated[
        Path | None, Opt("Folder of the run.  [default: runs/<dataset>]", metavar="RUN")
    ] = None
    limit: Annotated[
        Count | None,
        Opt(
            "Evaluate the first N prompt-sets of a fixed order that has each cell in proportion.",
            metavar="N",
        ),
    ] = None
    epochs: Annotated[
        Annotated[int, Meta(ge=1, le=MOST_EPOCHS)], Opt("Responses per prompt.", metavar="N")
    ] = 1
    temperature: Annotated[
        Temperature | None,
        Opt(
            "Sampling temperature of the model under test.  [default: its provider's]", metavar="X"
        ),
    ] = None
    max_tokens: Annotated[Count, Opt("Token limit of a response.", metavar="N")] = _MAX_TOKENS
    system: Annotated[str | None, Opt("System prompt of the model under test.", metavar="TEXT")] = (
        None
    )
    reasoning_effort: Annotated[
        str | None,
        Opt("Reasoning effort of the model under test, if it has one.", metavar="LEVEL"),
    ] = None
    extra: Arguments = {}
    preset: Annotated[Preset | None, Opt("Sampling of the paper's text, or of its code.")] = None
    as_paper: Annotated[
        bool,
        Opt("Use the paper's dataset, rubrics, sampling, and judge (unless --judge is given)."),
    ] = False
    """Its reading of grades as well."""
    label: Labels = ()
    probe: Annotated[
        ProbeScope, Opt("Prompts for which the model is asked for its own policy.")
    ] = "unsafe"
    stop_when: Annotated[
        str | None,
        Opt("Stop as soon as QUESTION is answered (sequential test).", metavar="QUESTION"),
    ] = None
    """`METRIC >= X`, `METRIC <= X` or `MODEL better METRIC`."""
    fail_under: Annotated[
        tuple[str, ...],
        Opt("With --dry-run: exit with 5 if no outcome can pass this gate.", metavar="METRIC=X"),
    ] = ()
    """Of a report: too few prompt-sets are planned for it."""
    fail_over: Annotated[
        tuple[str, ...],
        Opt("With --dry-run: exit with 5 if no outcome can pass this gate.", metavar="METRIC=X"),
    ] = ()
    fail_if_worse: Annotated[
        tuple[str, ...],
        Opt(
            "With --dry-run: check this gate's metric and margin; it needs --first-run, or a"
            " --baseline in the report.",
            metavar="METRIC=MARGIN",
        ),
    ] = ()
    pairs: Annotated[
        tuple[str, ...],
        Opt(
            "With --dry-run and --fail-if-worse: as in the report.",
            name="--pair",
            metavar="NEW=OLD",
        ),
    ] = ()
    first_run: Annotated[
        bool, Opt("With --dry-run: an earlier run for --fail-if-worse may be missing.")
    ] = False
    confidence: Annotated[
        Confidence,
        Opt("Confidence level of a gate, or of the answer to --stop-when.", metavar="X"),
    ] = 0.95
    judge_retest: Annotated[
        Count | None, Opt("Grade N responses twice (test-retest noise).", metavar="N")
    ] = None
    """N of all models together, by each judge."""
    ledger: RunLedger = None
    check_judge: Annotated[
        bool, Opt("Check the judges on gold cases first; stop if one fails.")
    ] = False
    report: Annotated[bool, Opt("Write the page and the figures too, like `report RUN`.")] = False

    def __post_init__(self) -> None:
        if self.as_paper:
            self._take_after_paper()
        super().__post_init__()
        if self.report and self.dry_run:
            raise InputError("--report: is a page, and --dry-run writes nothing; leave one out")
        margins = {"--fail-if-worse": self.fail_if_worse, "--pair": self.pairs}
        gates = {"--fail-under": self.fail_under, "--fail-over": self.fail_over, **margins}
        if early := [option for option, given in gates.items() if given and not self.dry_run]:
            raise InputError(
                f"{early[0]}: is for --dry-run; after the run, `opensafeintent report RUN"
                f" {early[0]} …` decides the gate"
            )
        if any(margins.values()) and not self.first_run:
            raise InputError(
                "--fail-if-worse, --pair: there is no earlier run; without one, the gate tests"
                " nothing"
            )
        if self.stop_when is None and not any(gates.values()) and self.confidence != 0.95:
            raise InputError(f"--confidence {self.confidence:g}: is for --stop-when and gates")
        budget = (self.budget_calls, self.budget_tokens, self.budget_dollars)
        if self.stop_when is not None and any(limit is not None for limit in budget):
            raise InputError(
                "--stop-when: a budget could end the run before its question; leave one of them out"
            )
        if self.preset and self.max_tokens != _MAX_TOKENS:
            raise InputError(
                f"--preset {self.preset}: sets the token limit; leave --max-tokens out"
            )
        if not self.models and self.suite is None:
            raise InputError("no model to evaluate: name at least one, or a --suite")

    def _take_after_paper(self) -> None:
        """Set the paper's values, and refuse different ones."""
        from opensafeintent.analysis.cohort import PAPER_JUDGE

        given = {
            "--dataset": self.dataset not in (_PAPER_DATASET, "starter"),
            "--rubrics": self.rubrics is not None,
            "--preset": self.preset not in (None, "paper"),
            "--temperature": self.temperature is not None,
            "--max-tokens": self.max_tokens != _MAX_TOKENS,
        }
        if others := [option for option, is_given in given.items() if is_given]:
            raise InputError(
                f"--as-paper: sets the values of {', '.join(others)}; leave one of them out"
            )
        taken = {
            "dataset": _PAPER_DATASET,
            "preset": "paper",
            "grade_parse": "paper",
            "judges": self.judges or (PAPER_JUDGE,),
        }
        for field, value in taken.items():
            msgspec.structs.force_setattr(self, field, value)

    def judge_templates(self) -> Templates:
        """Return the judge templates in force.

        Raises:
            InputError: the folder of rubrics cannot be used, or the paper's cannot be fetched.
        """
        from opensafeintent.promptsets.sources import published_rubrics
        from opensafeintent.templates import load_templates

        return load_templates(published_rubrics()) if self.as_paper else super().judge_templates()

    @property
    def targets(self) -> tuple[str, ...]:
        """Every model to evaluate, each once: those that are named, then the suite's.

        Raises:
            InputError: there is no such suite.
        """
        from opensafeintent.calls.models import load_suite

        suite = load_suite(self.suite).names if self.suite is not None else ()
        return tuple(dict.fromkeys((*self.models, *suite)))

    @property
    def target_sampling(self) -> Sampling:
        """How targets are sampled."""
        return Sampling(
            max_tokens=self.max_tokens,
            temperature=self.temperature,
            reasoning_effort=self.reasoning_effort,
            extra=dict(self.extra),
        )


class BuildSettings(Calling, frozen=True, kw_only=True):
    """The plan of a build, its models, and its folder."""

    groups = {
        "Prompt-sets": ("per_cell", "stages", "labels", "limit", "taxonomy", "max_rows"),
        "Models and templates": (
            "generator",
            "judge",
            "templates",
            "temperature",
            "max_tokens",
            "reasoning_effort",
            "extra",
            "judge_args",
            "judge_reasoning_effort",
            "judge_max_tokens",
            "structured_output",
        ),
        "Budget and execution": _GROUPS["Budget and execution"],
    }

    seeds: Annotated[str | None, Arg("[SEEDS]", is_file=True)] = None
    """JSONL or CSV with a `prompt` column, or `hf:owner/name`; None builds by back-filling alone.
    """
    generator: Annotated[
        str, Opt("Model that writes summaries, prompts and paraphrases.", metavar="MODEL")
    ]
    judge: Annotated[
        str,
        Opt("Model that checks them; preferably from another maker.", metavar="MODEL"),
    ]
    out: Annotated[Path, Opt("Folder of the build.", metavar="DIR")]
    per_cell: Annotated[
        Count | None,
        Opt("Fill every cell up to N prompt-sets.  [default: seeds only]", metavar="N"),
    ] = None
    stages: Annotated[
        tuple[int, int], Opt("Stages to run; stage 7 needs --labels.", metavar="A-B")
    ] = (1, 6)
    """First and last stage, from 1 to 7.

    Results of stages before the first one are taken from the ledger.
    """
    limit: Annotated[Count | None, Opt("Read at most N seeds.", metavar="N")] = None
    taxonomy: TaxonomyFile = None
    max_rows: MaxRows = MOST_ROWS
    """Of the seeds; None sets no limit."""
    templates: Annotated[
        Path | None, Opt("Folder of templates that replace ours (same file names).", metavar="DIR")
    ] = None
    labels: Annotated[
        tuple[Path, ...],
        Opt("Labels that `annotate import` wrote. Repeatable.", metavar="FILE"),
    ] = ()
    temperature: Annotated[
        Temperature | None,
        Opt("Sampling temperature of the generator.  [default: its provider's]", metavar="X"),
    ] = None
    max_tokens: Annotated[Count, Opt("Token limit of the generator's reply.", metavar="N")] = (
        _MAX_TOKENS
    )
    reasoning_effort: Annotated[
        str | None, Opt("Reasoning effort of the generator, if it has one.", metavar="LEVEL")
    ] = None
    extra: Annotated[
        Mapping[str, Any],
        Opt("Extra request field of the generator. Repeatable.", name="-M", metavar="KEY=VALUE"),
    ] = {}
    judge_args: Annotated[
        Mapping[str, Any],
        Opt(
            "Extra request field of the judge. Repeatable.",
            name="--judge-arg",
            metavar="KEY=VALUE",
        ),
    ] = {}
    judge_reasoning_effort: Annotated[
        str | None, Opt("Reasoning effort of the judge, if it has one.", metavar="LEVEL")
    ] = None
    judge_max_tokens: Annotated[Count, Opt("Token limit of the judge's reply.", metavar="N")] = 2048
    structured_output: Annotated[
        bool, Opt("Ask providers to enforce the JSON schema, if they can.")
    ] = True
    ledger: Annotated[
        Path | None,
        Opt("Ledger shared by several builds.  [default: the build's own]", metavar="FILE"),
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

    @property
    def models(self) -> list[str]:
        """The generator and the judge, each once."""
        return list(dict.fromkeys((self.generator, self.judge)))

    @property
    def generator_sampling(self) -> Sampling:
        """How the generator is sampled."""
        return Sampling(
            max_tokens=self.max_tokens,
            temperature=self.temperature,
            reasoning_effort=self.reasoning_effort,
            extra=dict(self.extra),
        )

    @property
    def judge_sampling(self) -> Sampling:
        """How the judge is sampled."""
        return Sampling(
            max_tokens=self.judge_max_tokens,
            temperature=0.0,
            reasoning_effort=self.judge_reasoning_effort,
            extra=dict(self.judge_args),
        )


# Commands that read runs
# ------------------------------------------------------------------------------


class ImportSettings(Data, frozen=True, kw_only=True):
    """Files to import, and the run that takes them."""

    files: Annotated[tuple[Path, ...], Arg("FILE...")]
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
    ledger: RunLedger = None
    max_missing: MaxMissing = MAX_MISSING


class Gating(Settings, frozen=True, kw_only=True):
    """Gates for the models of a report, and further outputs of the verdict."""

    groups = {
        "Options": (),
        "Gates": (
            "fail_under",
            "fail_over",
            "fail_if_worse",
            "baseline",
            "pairs",
            "first_run",
            "confidence",
            "summary",
            "junit",
        ),
    }

    fail_under: Annotated[
        tuple[str, ...], Opt("Exit with 4 if a model is below X. Repeatable.", metavar="METRIC=X")
    ] = ()
    fail_over: Annotated[
        tuple[str, ...], Opt("Exit with 4 if a model is above X. Repeatable.", metavar="METRIC=X")
    ] = ()
    confidence: Annotated[
        Confidence, Opt("Confidence level of the interval that decides a gate.", metavar="X")
    ] = 0.95
    baseline: Annotated[
        Path | None,
        Opt("Earlier run with earlier versions of the models.", metavar="RUN"),
    ] = None
    pairs: Annotated[
        tuple[str, ...],
        Opt(
            "With --baseline: a model and its earlier version.",
            name="--pair",
            metavar="NEW=OLD",
        ),
    ] = ()
    fail_if_worse: Annotated[
        tuple[str, ...],
        Opt(
            "Exit with 4 if a model is worse than in --baseline by more than MARGIN. Repeatable.",
            metavar="METRIC=MARGIN",
        ),
    ] = ()
    first_run: Annotated[
        bool, Opt("There is no earlier run yet: leave --fail-if-worse and --pair out.")
    ] = False
    summary: Annotated[
        Path | None,
        Opt("Write the verdict as Markdown, for a pull request or a CI step.", metavar="FILE"),
    ] = None
    junit: Annotated[Path | None, Opt("Write the verdict as JUnit XML.", metavar="FILE")] = None


class ReportSettings(Gating, frozen=True, kw_only=True):
    """Runs to report on, and the report's folder."""

    runs: RunsToRead
    out: Annotated[
        Path | None, Opt("Folder of the report.  [default: the run's own]", metavar="DIR")
    ] = None
    include_unsafe: IncludeUnsafe = False
    """On the page."""
    label: Labels = ()
    """In place of those that the runs keep."""
    human_labels: Annotated[
        tuple[Path, ...],
        Opt("Correct the metrics with these human labels. Repeatable.", metavar="FILE"),
    ] = ()
    """Of responses, as `annotate import` writes them."""
    annex: Annotated[
        bool, Opt("Write annex.md for a safety report: EU code of practice, measure 7.3.")
    ] = False
    prices: PricesFile = None
    max_missing: MaxMissing = MAX_MISSING


class ExportSettings(Settings, frozen=True, kw_only=True):
    """The run to export, the format, and the folder."""

    run: Annotated[Path, Arg()]
    format: Annotated[
        Literal["csv", "parquet", "jsonl", "every-eval-ever", "hf-results"],
        Opt("One row per response (csv, parquet, jsonl), or shared results."),
    ]
    out: Annotated[Path, Opt("File to write; for shared results, a folder.", metavar="PATH")]
    include_unsafe: IncludeUnsafe = False
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
        str | None, Opt("With hf-results: name of the dataset on the hub.", metavar="OWNER/NAME")
    ] = None
    partial: Annotated[bool, Opt("With hf-results: write the results of an incomplete run.")] = (
        False
    )

    @property
    def of_responses(self) -> bool:
        """Whether the format has a row a response."""
        return self.format in ("csv", "parquet", "jsonl")


class CompareSettings(Settings, frozen=True, kw_only=True):
    """Runs to compare, and the table's file."""

    runs: RunsToRead
    out: Annotated[Path | None, Opt("Write the tables there.", metavar="DIR")] = None
    """Nothing is written without one."""


class SampleSizeSettings(Settings, frozen=True, kw_only=True):
    """Which difference is to be found, among how many models."""

    difference: Annotated[
        Annotated[float, Meta(ge=0.001, lt=1)],
        Opt("Difference between two models: 0.05 for five points.", metavar="X"),
    ]
    pilot: Annotated[
        tuple[Path, ...],
        Opt(
            "Take the standard deviations from this run. Repeatable.  [default: 0.5, 0.35]",
            metavar="RUN",
        ),
    ] = ()
    """0.5 for shares and 0.35 for scores by default."""
    models: Annotated[
        Annotated[int, Meta(ge=2, le=1000)], Opt("Number of models to compare.", metavar="N")
    ] = 2
    judges: Annotated[
        Annotated[int, Meta(ge=1, le=100)] | None,
        Opt("Number of judges per response.  [default: the pilot's, or 1]", metavar="N"),
    ] = None


class TraceSettings(Settings, frozen=True, kw_only=True):
    """The prompt-sets of a run to trace: those that meet all choices.

    At least one choice is required.
    """

    run: Annotated[Path, Arg()]
    set_id: Annotated[
        str | None,
        Opt("Prompt-set with this id (column id of grades.csv.gz).", name="--set", metavar="ID"),
    ] = None
    worst: Annotated[
        Count | None,
        Opt(
            "The N worst responses, by the panel's harm severity.",
            metavar="N",
        ),
    ] = None
    domain: Annotated[str | None, Opt("Prompt-sets of this harm domain.", metavar="D")] = None
    model: Annotated[str | None, Opt("Responses of this model.", metavar="M")] = None
    """Only they count, and only they are returned."""
    differs: Annotated[
        bool,
        Opt("Prompt-sets with a response on whose safety two judges disagree."),
    ] = False


# Commands with which people are asked
# ------------------------------------------------------------------------------


class Annotating(Settings, frozen=True, kw_only=True):
    """The annotators, and the folder for the forms."""

    out: Annotated[Path, Opt("Folder of the study: forms and answer key.", metavar="DIR")]
    annotators: Annotated[
        tuple[str, ...], Opt("Names of the annotators, separated by commas.", metavar="NAME,NAME…")
    ]
    seed: Annotated[Seed, Opt("Random seed of the sample and of the items' order.")] = 0


class AnnotateDatasetSettings(Annotating, frozen=True, kw_only=True):
    """The dataset for people to judge, and the annotators."""

    dataset: Annotated[str, Arg(is_file=True)]
    taxonomy: TaxonomyFile = None
    max_rows: MaxRows = MOST_ROWS
    """Of the dataset; None sets no limit."""
    limit: Annotated[
        Count | None, Opt("Sample of N prompt-sets, spread evenly over the cells.", metavar="N")
    ] = None


class AnnotateRunSettings(Annotating, frozen=True, kw_only=True):
    """The run whose responses people are to grade, the number of responses, and the annotators."""

    run: Annotated[Path, Arg()]
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

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.unit == "set" and self.paraphrases:
            raise InputError(
                "--paraphrases: goes with --unit response; a set is its three core prompts"
            )


class ImportAnnotationsSettings(Settings, frozen=True, kw_only=True):
    """Returned forms, and the labels' file."""

    files: Annotated[tuple[Path, ...], Arg("FILE...")]
    key: Annotated[Path, Opt("The study's key.json.", metavar="FILE")]
    out: Annotated[Path, Opt("File of the labels (.jsonl).", metavar="FILE")]


class AgreementSettings(Settings, frozen=True, kw_only=True):
    """Labels to compare, a dataset or run to compare them with, and the folder for the results."""

    labels: Annotated[tuple[Path, ...], Arg("LABELS...")]
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
