"""What a user says of judges, of an evaluation and of limits; checked when it is said."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from opensafeintent.analysis.coverage import MAX_MISSING
from opensafeintent.analysis.paper import PAPER_JUDGE
from opensafeintent.calls.client import Budget, Tally
from opensafeintent.calls.draining import heed
from opensafeintent.calls.models import load_suite
from opensafeintent.calls.prices import Prices
from opensafeintent.calls.progress import Display
from opensafeintent.calls.providers import is_in_process
from opensafeintent.calls.records import Sampling
from opensafeintent.errors import InputError
from opensafeintent.evaluation.judge_check import PASS_MARK
from opensafeintent.evaluation.manifest import MOST_EPOCHS, ModelEntry, Preset, RunFolder, hashes_of
from opensafeintent.evaluation.records import ModesScope, ProbeScope
from opensafeintent.files import Taken
from opensafeintent.hostile import name_safe
from opensafeintent.promptsets.loading import dataset_name
from opensafeintent.promptsets.published import published_rubrics
from opensafeintent.promptsets.reading import MOST_ROWS
from opensafeintent.templates import ParseRule, Templates, load_templates
from opensafeintent.workflows.reporting import check_share
from opensafeintent.workflows.typed import Settings

if TYPE_CHECKING:
    from opensafeintent.interop.ray import Cluster


_COUNTS = (
    *("limit", "per_cell", "epochs", "judge_samples", "swap"),
    *("max_connections", "max_tokens", "judge_max_tokens", "budget_calls", "budget_tokens"),
)
_MAX_TOKENS = 4096
_PAPER_DATASET = "opensafeintent-115"


def check_counts(settings: msgspec.Struct) -> None:
    """Refuse counts below 1, of those that settings of this kind have."""
    for name in _COUNTS:
        value = getattr(settings, name, None)
        if value is not None and value < 1:
            raise InputError(f"--{name.replace('_', '-')} {value}: expected at least 1")
    dollars = getattr(settings, "budget_dollars", None)
    if dollars is not None and not 0 < dollars < inf:
        raise InputError(f"--budget-dollars {dollars}: expected a number above 0")


def check_unicode(option: str, value: object) -> None:
    """Refuse a text, or texts in some value, with bytes of another encoding in it."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise InputError(f"{option}: is not valid Unicode text") from error


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """How many calls may be made at once and in all, and what they cost."""

    max_connections: int | None = None
    """Connections of one endpoint, exactly; adaptive by default."""
    budget: Budget = Budget()
    prices: Prices

    def spent(self, tally: Tally) -> float | None:
        """Return the dollars spent so far; None where no model that was called has a price."""
        known = any(self.prices.of(model) for model, _ in tally.tokens if not is_in_process(model))
        return self.prices.cost(tally.tokens) if known else None


class Limited:
    """What the settings of commands that make calls say of limits, and of waiting for another
    process.
    """

    __slots__ = ()

    wait: bool
    """Wait for another process that holds the ledger or the folder; else it is an error."""

    max_connections: int | None
    budget_calls: int | None
    budget_tokens: int | None
    budget_dollars: float | None
    prices: Path | None

    def limits(self) -> Limits:
        """Return the limits, with the prices read.

        Raises:
            InputError: the file of prices cannot be read.
        """
        prices = Prices(self.prices)
        budget = msgspec.structs.replace(self.budget, dollars=self.budget_dollars, prices=prices)
        return Limits(max_connections=self.max_connections, budget=budget, prices=prices)

    def check_budget(self, models: Iterable[str]) -> None:
        """See that there is a price of every model that may be called, where there is a budget in
        dollars.

        Raises:
            InputError: some have none, or the file of prices cannot be read.
        """
        if self.budget_dollars is not None:
            Prices(self.prices).need(models)

    @property
    def budget(self) -> Budget:
        """The most calls and tokens that may be asked for."""
        return Budget(calls=self.budget_calls, tokens=self.budget_tokens)

    def waiting(self, display: Display) -> Callable[[str], None]:
        """Return what is told who holds a ledger or a folder (`files.held`); it shows that, or
        raises `Taken`.
        """

        def told(line: str) -> None:
            if not self.wait:
                raise Taken(f"{line}; wait for it, or add --wait")
            heed()
            display.stage(f"waiting: {line}")

        return told


class Judges(Settings, frozen=True, kw_only=True):
    """Which judges are asked, and how."""

    judges: tuple[str, ...]
    rubrics: Path | None = None
    """A folder with judge templates in place of ours, or `shipped:N`, ours of an earlier version.
    """
    judge_reasons: bool = False
    """Whether judges give a reason before each grade of helpfulness and harm."""
    grade_parse: ParseRule = "strict"
    judge_max_tokens: int = 2048
    max_connections: int | None = None
    """Connections of one endpoint, exactly; adaptive by default."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_counts(self)
        if not self.judges:
            raise InputError("no judge: name at least one with --judge")
        if self.judge_reasons and self.grade_parse == "paper":
            raise InputError(
                "--judge-reasons: a reply is a JSON object, and --grade-parse paper takes its first"
                " integer; leave one out"
            )

    def judge_templates(self) -> Templates:
        """Return the judge templates in force.

        Raises:
            InputError: the folder of rubrics cannot be used, or reasons are asked for of files that
                cannot give them.
        """
        return load_templates(self.rubrics, reasons=self.judge_reasons)

    @property
    def judge_sampling(self) -> Sampling:
        """How judges are sampled."""
        return Sampling(max_tokens=self.judge_max_tokens, temperature=0.0)


class JudgeCheckSettings(Judges, Limited, frozen=True, kw_only=True):
    """Which judges to check, how they are asked, and where the result goes."""

    out: Path = Path("runs/judge-check")
    ledger: Path | None = None
    """A ledger that is shared with runs; one in the folder of results by default."""
    pass_mark: float = PASS_MARK
    """Least share of accepted cases."""
    budget_calls: int | None = None
    budget_tokens: int | None = None
    budget_dollars: float | None = None
    prices: Path | None = None
    wait: bool = False
    dry_run: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.pass_mark <= 1:
            raise InputError(f"--pass {self.pass_mark}: expected a share from 0 to 1")


class Judging(Judges, frozen=True, kw_only=True):
    """Which judges grade responses, how, and when too many grades are missing."""

    mode_judge: str | None = None
    """The first judge by default."""
    modes: ModesScope = "dual_use"
    swap: int | None = None
    """Of how many prompt-sets each model's responses are graded under the other intents' requests,
    and under none.
    """
    max_missing: float = MAX_MISSING
    ray: str | None = None
    """Spread the calls over a Ray cluster: HOST:PORT of its head, `auto`, or `local`; all nodes
    share the run's folder.
    """
    shards: int | None = None
    """Parts of each model's prompt-sets on the cluster."""
    gpus_per_model: float | None = None
    """For a model whose weights a task of the cluster loads."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_share(self.max_missing)
        self._check_cluster()

    def _check_cluster(self) -> None:
        """Refuse options that a cluster cannot keep."""
        of_cluster = {"--shards": (self.shards, 1), "--gpus-per-model": (self.gpus_per_model, 0)}
        for option, (value, least) in of_cluster.items():
            if value is not None and self.ray is None:
                raise InputError(f"{option}: is for --ray, which is not given")
            if value is not None and not least <= value < inf:
                raise InputError(f"{option} {value}: expected a number from {least}")
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
                    option = f"--{name.replace('_', '-')}"
                    raise InputError(
                        f"{option}: is not for --ray, whose tasks do not know of one another; leave"
                        " one out"
                    )

    @property
    def cluster(self) -> Cluster | None:
        """The cluster that makes the calls, if one does."""
        if self.ray is None:
            return None
        from opensafeintent.interop.ray import Cluster

        return Cluster(
            address=self.ray,
            shards=self.shards,
            gpus_per_model=self.gpus_per_model,
            max_connections=self.max_connections,
        )

    @property
    def panel(self) -> tuple[str, ...]:
        """Every judge that is named, each once."""
        return tuple(dict.fromkeys((*self.judges, *([self.mode_judge] if self.mode_judge else []))))

    def entry(self, identity: str, templates: Templates, **how: Any) -> ModelEntry:
        """Return what the manifest says of a target whose responses are graded so; `how` is what
        else it says.
        """
        return ModelEntry(
            identity=identity,
            judges=tuple(dict.fromkeys(self.judges)),
            mode_judge=self.mode_judge or self.judges[0],
            modes=self.modes,
            parse=self.grade_parse,
            templates=hashes_of(templates),
            **how,
        )


class GradeSettings(Judging, Limited, frozen=True, kw_only=True):
    """Which run to grade, and how."""

    run: Path
    budget_calls: int | None = None
    budget_tokens: int | None = None
    budget_dollars: float | None = None
    prices: Path | None = None
    wait: bool = False
    dry_run: bool = False


class EvaluateSettings(Judging, Limited, frozen=True, kw_only=True):
    """What to evaluate, how, and where the run is kept."""

    models: tuple[str, ...] = ()
    suite: str | None = None
    """Further models: a suite of ours by its name, or a file of the same form."""
    dataset: str = "starter"
    taxonomy: Path | None = None
    max_rows: int | None = MOST_ROWS
    """Of the dataset; None sets no limit."""
    out: Path | None = None
    """`runs/<dataset>` by default."""
    limit: int | None = None
    """Prompt-sets in all, each cell by its share; all by default."""
    epochs: int = 1
    temperature: float | None = None
    max_tokens: int = _MAX_TOKENS
    system: str | None = None
    reasoning_effort: str | None = None
    extra: Mapping[str, Any] = {}
    """Further fields of the target's requests."""
    judge_samples: int | None = None
    """How many responses, of all models together, each judge grades once more: how far it agrees
    with itself.
    """
    stop_when: str | None = None
    """Ask no more once a question is answered: `METRIC >= X`, `METRIC <= X` or `MODEL better
    METRIC`.
    """
    confidence: float = 0.95
    """Of the answer."""
    preset: Preset | None = None
    probe: ProbeScope = "unsafe"
    ledger: Path | None = None
    """A ledger that several runs share; one in the run's folder by default."""
    budget_calls: int | None = None
    budget_tokens: int | None = None
    budget_dollars: float | None = None
    prices: Path | None = None
    wait: bool = False
    check_judge: bool = False
    """Put the anchor cases to the judges first, and stop when one fails."""
    dry_run: bool = False
    report: bool = False
    """Write the page and figures as well, as `report` does."""
    as_paper: bool = False
    """As the paper does: its dataset, rubrics and reading of grades, its sampling, and its judge
    unless others are named.
    """

    def __post_init__(self) -> None:
        if self.as_paper:
            self._take_after_paper()
        super().__post_init__()
        check_counts(self)
        if self.report and self.dry_run:
            raise InputError("--report: is a page, and --dry-run writes nothing; leave one out")
        if self.epochs > MOST_EPOCHS:
            raise InputError(f"--epochs {self.epochs}: expected at most {MOST_EPOCHS:,}")
        if self.temperature is not None and not 0 <= self.temperature < inf:
            raise InputError(f"--temperature {self.temperature}: expected a number from 0")
        if not 0.5 < self.confidence < 1 or (self.stop_when is None and self.confidence != 0.95):
            raise InputError(
                f"--confidence {self.confidence:g}: expected a number above 0.5 and below 1, with"
                " --stop-when"
            )
        if self.stop_when is not None and (
            self.budget != Budget() or self.budget_dollars is not None
        ):
            raise InputError(
                "--stop-when: a budget could end the run before its question; leave one of them out"
            )
        if self.preset and self.max_tokens != _MAX_TOKENS:
            raise InputError(
                f"--preset {self.preset}: sets the token limit; leave --max-tokens out"
            )
        for option, text in (
            ("--system", self.system),
            ("--reasoning-effort", self.reasoning_effort),
            ("-M", self.extra),
        ):
            check_unicode(option, text)
        if not self.models and self.suite is None:
            raise InputError("no model to evaluate: name at least one, or a --suite")

    def _take_after_paper(self) -> None:
        """Set what the paper sets, and refuse what would differ from it."""
        given = {
            "--dataset": self.dataset not in (_PAPER_DATASET, "starter"),
            "--rubrics": self.rubrics is not None,
            "--preset": self.preset not in (None, "paper"),
            "--temperature": self.temperature is not None,
            "--max-tokens": self.max_tokens != _MAX_TOKENS,
        }
        if others := [option for option, is_given in given.items() if is_given]:
            raise InputError(
                f"--as-paper: sets what {', '.join(others)} would; leave one of them out"
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
        return load_templates(published_rubrics()) if self.as_paper else super().judge_templates()

    @property
    def targets(self) -> tuple[str, ...]:
        """Every model to evaluate, each once: those that are named, then the suite's.

        Raises:
            InputError: there is no such suite.
        """
        return tuple(
            dict.fromkeys(
                (*self.models, *(load_suite(self.suite).names if self.suite is not None else ()))
            )
        )

    @property
    def folder(self) -> RunFolder:
        """The run's folder."""
        return RunFolder(self.out or Path("runs") / name_safe(dataset_name(self.dataset)))

    @property
    def target_sampling(self) -> Sampling:
        """How targets are sampled."""
        return Sampling(
            max_tokens=self.max_tokens,
            temperature=self.temperature,
            reasoning_effort=self.reasoning_effort,
            extra=dict(self.extra),
        )
