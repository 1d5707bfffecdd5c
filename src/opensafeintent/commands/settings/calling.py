"""Settings of commands that make calls, and of their judges.

Settings of the judging of responses, and of `grade`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta

from opensafeintent.calls.records import Sampling
from opensafeintent.calls.service_tiers import FLEX
from opensafeintent.commands.settings.base import (
    CHECKS,
    HEADER,
    MAX_MISSING_GRADES,
    MAX_ROWS,
    NO_LIMIT,
    PRICES,
    RUN_LEDGER,
    Arg,
    Count,
    Group,
    Opt,
    Settings,
    Share,
)
from opensafeintent.errors import InputError, nearest
from opensafeintent.files import MOST_ROWS
from opensafeintent.taxonomy import MAX_MISSING, MIN_ACCURACY, GuardFormName, ModesScope, ParseRule

if TYPE_CHECKING:
    from opensafeintent.templates import Templates


MOST_SECONDS = 86_400.0
"""Of one request."""


class Calling(Settings, frozen=True, kw_only=True):
    """How many calls may be made at once and in all, and whether another process is waited for.

    Paths are absolute once they are made: a function that is called may change the folder.
    """

    wait: Annotated[
        bool,
        Opt(
            "Wait if another process holds the ledger, instead of exit code 2.", group=Group.BUDGET
        ),
    ] = False
    """Also for one that holds the folder."""
    max_connections: Annotated[
        Count | None,
        Opt(
            "Requests at once to one endpoint.  [default: adaptive]",
            metavar="N",
            group=Group.BUDGET,
        ),
    ] = None
    timeout: Annotated[
        Annotated[float, Meta(gt=0, le=MOST_SECONDS)] | None,
        Opt(
            "Give a request up after so long and try again.  [default: 600; flex tier: 900]",
            metavar="SECONDS",
            group=Group.BUDGET,
        ),
    ] = None
    header: Annotated[tuple[str, ...], HEADER] = ()
    """No part of a call's key. `calls.headers` reads it."""
    service_tier: Annotated[
        tuple[str, ...],
        Opt(
            "'flex': slower, for half the price at most providers that have it. MODEL:flex for"
            " one model; repeatable.",
            metavar="TIER",
            group=Group.BUDGET,
        ),
    ] = ()
    """No part of a call's key. `call_limits.flex_plan` finds the models."""
    flex_fallback: Annotated[
        Annotated[float, Meta(ge=0, le=NO_LIMIT)] | None,
        Opt(
            "If the flex tier has no capacity for so long, use the standard tier."
            "  [default: wait, see --retry-for]",
            metavar="MINUTES",
            group=Group.BUDGET,
        ),
    ] = None
    max_retries: Annotated[
        Annotated[int, Meta(ge=0, le=1000)],
        Opt(
            "Try a failed call up to N more times; rate limits (429) do not count.",
            metavar="N",
            group=Group.BUDGET,
        ),
    ] = 5
    retry_for: Annotated[
        Annotated[float, Meta(gt=0, le=NO_LIMIT)],
        Opt(
            "Wait out rate limits (429) for so long; a model without a reply in that time stops.",
            metavar="MINUTES",
            group=Group.BUDGET,
        ),
    ] = 30.0
    budget_calls: Annotated[
        Count | None, Opt("Stop after N calls.", metavar="N", group=Group.BUDGET)
    ] = None
    budget_tokens: Annotated[
        Count | None, Opt("Stop after N tokens.", metavar="N", group=Group.BUDGET)
    ] = None
    budget_dollars: Annotated[
        Annotated[float, Meta(gt=0, le=NO_LIMIT)] | None,
        Opt("Stop after X dollars. Every model needs a price.", metavar="X", group=Group.BUDGET),
    ] = None
    prices: Annotated[Path | None, PRICES.under(Group.BUDGET)] = None
    batch: Annotated[
        bool,
        Opt(
            "Make the calls in batches: half the price, results within a day.",
            group=Group.BUDGET,
        ),
    ] = False
    batch_wait: Annotated[
        Annotated[float, Meta(ge=0, le=NO_LIMIT)] | None,
        Opt(
            "Wait for batches so long, then exit with 3; they go on.  [default: until they end]",
            metavar="HOURS",
            group=Group.BUDGET,
        ),
    ] = None
    dry_run: Annotated[
        bool,
        Opt(
            "Print the expected calls, tokens and dollars; make no call.",
            group=Group.BUDGET,
            place=-3,
        ),
    ] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.header:
            from opensafeintent.calls.headers import parse_header

            for text in self.header:
                parse_header(text)
        self._refuse_secrets()
        for flag, name in (("-M", "extra"), ("--judge-arg", "judge_args")):
            _refuse_fields(flag, getattr(self, name, {}))
        if self.batch_wait is not None and not self.batch:
            raise InputError("--batch-wait: is for --batch, which is not given")
        if self.batch and self.service_tier:
            raise InputError(
                "--batch: has a price of its own, and --service-tier another; leave one out"
            )
        for text in self.service_tier:
            if text.rpartition(":")[2] != FLEX:
                raise InputError(f"--service-tier {text}: expected {FLEX}, or MODEL:{FLEX}")
        if self.flex_fallback is None:
            return
        if not self.service_tier:
            raise InputError(f"--flex-fallback: is for --service-tier {FLEX}, which is not given")
        if self.flex_fallback >= self.retry_for:
            raise InputError(
                f"--flex-fallback {self.flex_fallback:g}: expected fewer minutes than --retry-for"
                f" {self.retry_for:g}, after which the model stops"
            )

    @property
    def under_test(self) -> tuple[str, ...]:
        """The models that a header without a model's name is for."""
        return ()

    @classmethod
    def _path(cls, kind: type[Any], value: Any) -> Any:
        return super()._path(kind, value).absolute()


_NO_FIELDS = {
    **dict.fromkeys(
        ("extra_headers", "default_headers", "headers"),
        "expected --header NAME=VARIABLE, which stores no value",
    ),
    **dict.fromkeys(("extra_body", "extra_query"), "expected the fields in it, each as KEY=VALUE"),
    **dict.fromkeys(("api_key", "authorization"), "expected a key in its provider's variable"),
}
"""Arguments of client libraries, which would go into the request's body and into the results."""


def _refuse_fields(flag: str, fields: Mapping[str, Any]) -> None:
    """Refuse fields that are no fields of a request.

    Raises:
        InputError: see above; the text does not quote the value.
    """
    for name in fields:
        field = name.rpartition(":")[2].lower().replace("-", "_")
        if hint := _NO_FIELDS.get(field):
            raise InputError(f"{flag} {name}: is no field of a request; {hint}")


class Judges(Calling, frozen=True, kw_only=True):
    """Which judges are asked, and how."""

    judges: Annotated[
        tuple[str, ...],
        Opt(
            "Model that grades. Repeat for a panel.",
            name="--judge",
            metavar="MODEL",
            group=Group.JUDGES,
            place=-2,
        ),
    ] = ()
    judge_args: Annotated[
        Mapping[str, Any],
        Opt(
            "Extra request field of the judges, or of one: MODEL:KEY=VALUE. Repeatable.",
            name="--judge-arg",
            metavar="KEY=VALUE",
            group=Group.JUDGES,
        ),
    ] = {}
    judge_reasoning_effort: Annotated[
        str | None,
        Opt(
            "Reasoning effort of the judges, if they have one.", metavar="LEVEL", group=Group.JUDGES
        ),
    ] = None
    judge_max_tokens: Annotated[
        Count, Opt("Token limit of a judge's reply.", metavar="N", group=Group.JUDGES)
    ] = 2048
    rubrics: Annotated[
        Path | None,
        Opt(
            "Folder of judge templates that replace ours, or a run, whose templates are used.",
            metavar="DIR",
            group=Group.JUDGES,
            place=2,
        ),
    ] = None
    judge_reasons: Annotated[
        bool,
        Opt("Ask judges for a reason before each grade (separate templates).", group=Group.JUDGES),
    ] = False
    grade_parse: Annotated[
        ParseRule,
        Opt(
            "How grades are read: 'paper' takes the first integer of a reply.",
            group=Group.JUDGES,
            place=2,
        ),
    ] = "strict"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.judges:
            raise InputError("no judge: name at least one with --judge")
        if self.judge_reasons and self.grade_parse == "paper":
            raise InputError(
                "--judge-reasons: a reply is a JSON object, and --grade-parse paper takes its"
                " first integer; leave one out"
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
        from opensafeintent.evaluation.manifest import RunFolder
        from opensafeintent.templates import load_templates

        if self.rubrics is not None and (run := RunFolder(self.rubrics)).exists():
            if self.judge_reasons:
                raise InputError(
                    f"--judge-reasons: --rubrics {self.rubrics} is a run, whose templates are used"
                    " as they are; leave one out"
                )
            return run.templates(self._models_of_rubrics)
        return load_templates(self.rubrics, reasons=self.judge_reasons)

    @property
    def _models_of_rubrics(self) -> tuple[str, ...]:
        """The models whose templates count if the rubrics are those of a run; all if there is
        none.
        """
        return ()

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
        arguments: dict[str, dict[str, Any]] = {}
        for name, value in self.judge_args.items():
            judge, colon, field = name.rpartition(":")
            if colon:
                arguments.setdefault(judge, {})[field] = value
        common = self.judge_sampling
        return {
            judge: msgspec.structs.replace(common, extra=common.extra | fields)
            for judge, fields in arguments.items()
        }

    @property
    def samplings_of_panel(self) -> dict[str, Sampling]:
        """How each judge that is named is sampled."""
        samplings = self.judge_samplings
        return {judge: samplings.get(judge, self.judge_sampling) for judge in self.panel}


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
            " people unsafe_1, unsafe_2), harm, helpfulness, rater, group, id. Repeatable.",
            name="--map",
            metavar="NAME=FIELD",
            group=Group.DATASET,
        ),
    ] = {}
    sample: Annotated[
        Count | None,
        Opt(
            "Draw N responses, evenly over safe and unsafe ones.",
            metavar="N",
            group=Group.DATASET,
        ),
    ] = None
    max_rows: Annotated[Count | None, MAX_ROWS.under(Group.DATASET)] = MOST_ROWS
    """Of the labelled responses; None sets no limit."""
    include_unsafe: Annotated[
        bool, Opt("Keep and show the texts of labelled responses that the judge gets wrong.")
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


class Judging(Judges, frozen=True, kw_only=True):
    """Which judges grade responses, how, and when too many grades are missing."""

    mode_judge: Annotated[
        str | None,
        Opt(
            "Model that judges assistance modes.  [default: the first --judge]",
            metavar="MODEL",
            group=Group.JUDGES,
            place=-1,
        ),
    ] = None
    modes: Annotated[
        ModesScope,
        Opt("Prompts for which the assistance mode is judged.", group=Group.JUDGES, place=1),
    ] = "dual_use"
    guard: Annotated[
        str | None,
        Opt(
            "Guard model to ask about each response, for a second opinion.",
            metavar="MODEL",
            group=Group.EXTRA,
        ),
    ] = None
    """It says safe or unsafe, which is no grade."""
    guard_form: Annotated[
        GuardFormName | None,
        Opt("How the guard is asked and answers.  [default: by its name]", group=Group.EXTRA),
    ] = None
    request_swap: Annotated[
        Count | None,
        Opt(
            "Re-grade N prompt-sets with another intent's request, to measure judge bias.",
            metavar="N",
            group=Group.EXTRA,
        ),
    ] = None
    """Under none too."""
    judge_retest: Annotated[
        Count | None,
        Opt(
            "Grade N responses, of all models together, twice (test-retest noise).",
            metavar="N",
            group=Group.EXTRA,
            place=-1,
        ),
    ] = None
    """N of all models together, by each judge."""
    max_missing: Annotated[Share, MAX_MISSING_GRADES.under(Group.BUDGET)] = MAX_MISSING

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.guard is not None:
            self.form_of_guard(self.guard)
        elif self.guard_form is not None:
            raise InputError(f"--guard-form {self.guard_form}: is for --guard, which is not given")

    def form_of_guard(self, guard: str) -> GuardFormName:
        """Return how a guard model is asked and answers.

        Raises:
            InputError: no form is named, and the name of the model tells none.
        """
        from opensafeintent.templates.guards import form_name_of

        return self.guard_form or form_name_of(guard)

    @property
    def guard_sampling(self) -> Sampling:
        """How the guard model is sampled."""
        return Sampling(max_tokens=self.judge_max_tokens, temperature=0.0)

    @property
    def panel(self) -> tuple[str, ...]:
        """Every judge that is named, each once."""
        judges = super().panel
        if self.mode_judge and self.mode_judge not in judges:
            return (*judges, self.mode_judge)
        return judges


class Distributed(Judging, frozen=True, kw_only=True):
    """The cluster for the calls."""

    ray: Annotated[
        str | None,
        Opt(
            "Make the calls on a Ray cluster: HOST:PORT, 'auto' or 'local'.",
            metavar="ADDRESS",
            group=Group.RAY,
        ),
    ] = None
    """All nodes share the run's folder."""
    shards: Annotated[
        Count | None,
        Opt(
            "Tasks for each model.  [default: by the number of cores]", metavar="N", group=Group.RAY
        ),
    ] = None
    gpus_per_model: Annotated[
        Annotated[float, Meta(ge=0, le=NO_LIMIT)] | None,
        Opt("GPUs for each model with local weights.", metavar="X", group=Group.RAY),
    ] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        of_cluster = {"--shards": self.shards, "--gpus-per-model": self.gpus_per_model}
        for flag, value in of_cluster.items():
            if value is not None and self.ray is None:
                raise InputError(f"{flag}: is for --ray, which is not given")
        if (gpus := self.gpus_per_model) is not None and round(gpus, 0 if gpus > 1 else 4) != gpus:
            raise InputError(
                f"--gpus-per-model {gpus:g}: expected a whole number, or a part of one GPU with up"
                " to four decimals"
            )
        for name in ("ray", "stop_when"):
            if self.batch and getattr(self, name, None) is not None:
                raise InputError(
                    "--batch: makes many calls at once and waits for all of them, which is not"
                    f" for --{name.replace('_', '-')}; leave one out"
                )
        if self.ray is not None:
            for name in ("budget-calls", "budget-tokens", "budget-dollars", "stop-when"):
                if getattr(self, name.replace("-", "_"), None) is not None:
                    raise InputError(
                        f"--{name}: is not for --ray, whose tasks do not know of one another; leave"
                        " one out"
                    )
            from opensafeintent.ray.cluster import check_address

            check_address(self.ray)


class GradeSettings(Distributed, frozen=True, kw_only=True):
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
    ledger: Annotated[Path | None, RUN_LEDGER.under(Group.BUDGET, place=-1)] = None

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
