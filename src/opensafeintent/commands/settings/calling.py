"""Settings that commands share which make calls, or grade."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta

from opensafeintent.calls.records import Sampling
from opensafeintent.calls.service_tiers import BATCH, FLEX, STANDARD
from opensafeintent.commands.settings.base import (
    HEADER,
    MAX_MISSING_GRADES,
    NO_LIMIT,
    PRICES,
    Count,
    Group,
    Opt,
    Settings,
    Share,
)
from opensafeintent.errors import InputError, nearest
from opensafeintent.taxonomy import (
    MAX_MISSING,
    GuardFormName,
    JudgeBy,
    ModesScope,
)

if TYPE_CHECKING:
    from opensafeintent.templates import Templates


MOST_SECONDS = 86_400.0
"""Of one request."""
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
"""By the unit of a duration."""


class Calling(Settings, frozen=True, kw_only=True):
    """How many calls may be made at once and in all, whether another process is waited for, and how
    judges are sampled.

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
    tier: Annotated[
        tuple[str, ...],
        Opt(
            "'flex' (slower) or 'batch' (within a day): half the price at most providers that have"
            " it. MODEL:TIER for one model; repeatable.",
            metavar="TIER",
            group=Group.BUDGET,
        ),
    ] = ()
    """No part of a call's key."""
    wait_for: Annotated[
        str | None,
        Opt(
            "Wait so long (30m, 12h, 0): for batches, then exit with 3, and they go on; for"
            " capacity of the flex tier, then use the standard tier.  [default: until batches end;"
            " flex: see --retry-for]",
            metavar="DURATION",
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
    budget_dollars: Annotated[
        Annotated[float, Meta(gt=0, le=NO_LIMIT)] | None,
        Opt("Stop after X dollars. Every model needs a price.", metavar="X", group=Group.BUDGET),
    ] = None
    prices: Annotated[Path | None, PRICES.put_under(Group.BUDGET)] = None
    dry_run: Annotated[
        bool,
        Opt(
            "Print the expected calls, tokens and dollars; make no call.",
            group=Group.BUDGET,
            place=-3,
        ),
    ] = False
    judge_args: Annotated[
        Mapping[str, Any],
        Opt(
            "Request field of the judges, also max_tokens=N and reasoning_effort=LEVEL; of one:"
            " MODEL:KEY=VALUE. Repeatable.",
            name="--judge-arg",
            metavar="KEY=VALUE",
            group=Group.JUDGES,
        ),
    ] = {}

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.header:
            from opensafeintent.calls.headers import parse_header

            for text in self.header:
                parse_header(text)
        self._refuse_secrets()
        for flag, name in (("-M", "extra"), ("--judge-arg", "judge_args")):
            _refuse_fields(flag, getattr(self, name, {}))
        self._check_tiers()
        for name, value in self.judge_args.items():
            kind = _SAMPLING_ARGUMENTS.get(name.rpartition(":")[2])
            if kind is not None:
                self.convert(f"--judge-arg {name}", value, kind)

    def _check_tiers(self) -> None:
        """See that each model has one tier, and that there is something to wait for.

        Raises:
            InputError: see above.
        """
        for text in self.tier:
            if text.rpartition(":")[2] not in (FLEX, BATCH):
                raise InputError(
                    f"--tier {text}: expected {FLEX} or {BATCH}, or MODEL:{FLEX} or MODEL:{BATCH}"
                )
        if len(self._tiers) < len(self.tier):
            raise InputError(
                f"--tier {' '.join(self.tier)}: has two tiers for the same models; expected one,"
                " and MODEL:TIER for those that differ"
            )
        if (seconds := self.wait_seconds) is None:
            return
        if not self.tier:
            raise InputError("--wait-for: is for --tier, which is not given")
        if FLEX in self._tiers.values() and seconds >= 60 * self.retry_for:
            raise InputError(
                f"--wait-for {self.wait_for}: with {FLEX}, expected less than the minutes of"
                f" --retry-for {self.retry_for:g}, after which the model stops"
            )

    @property
    def _tiers(self) -> dict[str, str]:
        """The tiers that are stated, by model; that of all others under an empty name."""
        parts = (text.rpartition(":") for text in self.tier)
        return {model: tier for model, _, tier in parts}

    def find_tier(self, model: str) -> str:
        """Return the tier that is stated for a model, the standard one if none is."""
        return self._tiers.get(model) or self._tiers.get("", STANDARD)

    def models_at(self, tier: str, models: Collection[str]) -> list[str]:
        """Return those of the models of a command that are to be asked at a tier.

        Raises:
            InputError: the tier is stated for another model.
        """
        for name, stated in self._tiers.items():
            if name and stated == tier and name not in models:
                raise InputError(
                    f"--tier {name}:{tier}: no call goes to {name!r}; {nearest(name, models)}"
                )
        return [model for model in models if self.find_tier(model) == tier]

    @property
    def in_batches(self) -> bool:
        """Whether a model is to be asked in batches."""
        return BATCH in self._tiers.values()

    @property
    def wait_seconds(self) -> float | None:
        """How long batches, or capacity of the flex tier, are waited for.

        Raises:
            InputError: the text is no duration.
        """
        if self.wait_for is None:
            return None
        stated = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?)([smhd])|0", self.wait_for)
        if stated is None:
            raise InputError(
                f"--wait-for {self.wait_for}: expected a number and its unit, such as 30m or 12h,"
                " or 0"
            )
        return float(stated[1] or 0) * _SECONDS[stated[2] or "s"]

    @property
    def under_test(self) -> tuple[str, ...]:
        """The models that a header without a model's name is for."""
        return ()

    def choose_judge_sampling(self, judge: str, before: Sampling | None = None) -> Sampling:
        """Return how a judge is sampled: by the arguments that are stated; without any, as before,
        if it was asked before.
        """
        stated: dict[str, Any] = {}
        for name, value in self.judge_args.items():
            of, colon, field = name.rpartition(":")
            if not colon or of == judge:
                stated[field] = value
        if before is not None and not stated:
            return before
        own = {name: stated.pop(name) for name in _SAMPLING_ARGUMENTS if name in stated}
        return msgspec.structs.replace(_USUAL, **own, extra=stated)

    def check_judges(self, judges: Collection[str]) -> None:
        """See that there is a judge, and that each argument is for one of them.

        Raises:
            InputError: see above.
        """
        if not judges:
            raise InputError("no judge: name at least one with --judge")
        for name in self.judge_args:
            judge, colon, _ = name.rpartition(":")
            if colon and judge not in judges:
                raise InputError(
                    f"--judge-arg {name}: no judge {judge!r}; {nearest(judge, judges)}"
                )

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


JUDGE_TOKENS = 2048
_USUAL = Sampling(max_tokens=JUDGE_TOKENS, temperature=0.0)
_SAMPLING_ARGUMENTS: dict[str, Any] = {"max_tokens": Count, "reasoning_effort": str}
"""Arguments of judges that are no fields of a provider's own."""


def judge_arguments(sampling: Sampling) -> dict[str, Any]:
    """Return the arguments that have a judge sampled so."""
    own = {name: getattr(sampling, name) for name in _SAMPLING_ARGUMENTS}
    return {
        name: value for name, value in own.items() if value != getattr(_USUAL, name)
    } | sampling.extra


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
    rubrics: Annotated[
        str | None,
        Opt(
            "Folder of judge templates that replace ours, a run, whose templates are used, or"
            " 'reasons': ours with a reason before each grade.",
            metavar="DIR",
            is_file=True,
            group=Group.JUDGES,
            place=2,
        ),
    ] = None

    def __post_init__(self) -> None:
        if isinstance(self.rubrics, Path):
            msgspec.structs.force_setattr(self, "rubrics", str(self.rubrics))
        super().__post_init__()
        msgspec.structs.force_setattr(self, "judges", tuple(dict.fromkeys(self.judges)))
        if self.rubrics not in (None, REASONS):
            msgspec.structs.force_setattr(self, "rubrics", str(Path(self.rubrics or "").absolute()))

    def judge_templates(self) -> Templates:
        """Return the judge templates that are named, ours by default.

        Raises:
            InputError: the folder of rubrics cannot be used.
        """
        from opensafeintent.evaluation.manifest import RunFolder
        from opensafeintent.templates import load_templates

        if self.rubrics in (None, REASONS):
            return load_templates(reasons=self.rubrics == REASONS)
        folder = Path(self.rubrics or "")
        run = RunFolder(folder)
        return run.templates() if run.exists() else load_templates(folder)

    def samplings(self, judges: Iterable[str]) -> dict[str, Sampling]:
        """Return how each of some judges is sampled that were not asked before."""
        return {judge: self.choose_judge_sampling(judge) for judge in judges}


REASONS = "reasons"
"""Name of the built-in rubrics that ask for a reason."""


class Judging(Judges, frozen=True, kw_only=True):
    """Which judges grade responses, how, on which cluster, and when too many grades are missing."""

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
        ModesScope | None,
        Opt(
            "Prompts for which the assistance mode is judged.  [default: dual_use]",
            group=Group.JUDGES,
            place=1,
        ),
    ] = None
    judge_by: Annotated[
        JudgeBy | None,
        Opt(
            "What judges are asked: the rubrics, the dataset's own questions, or both."
            "  [default: rubric]",
            group=Group.JUDGES,
            place=1,
        ),
    ] = None
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
    audit: Annotated[
        Mapping[str, Any],
        Opt(
            "Re-grade N: retest=N (responses, once more), swap=N (prompt-sets, with another"
            " intent's request), turn=N (direct replies, with the first turn shown; needs"
            " --follow-ups). Repeatable.",
            metavar="NAME=N",
            group=Group.EXTRA,
            place=-1,
        ),
    ] = {}
    """N responses and replies of all models together, by each judge; N prompt-sets of each."""
    max_missing: Annotated[Share, MAX_MISSING_GRADES.put_under(Group.BUDGET)] = MAX_MISSING
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
        if self.guard is not None:
            self.choose_guard_form(self.guard)
        elif self.guard_form is not None:
            raise InputError(f"--guard-form {self.guard_form}: is for --guard, which is not given")
        for name, number in self.audit.items():
            if name not in AUDITS:
                raise InputError(f"--audit {name}: {nearest(name, AUDITS)}")
            self.convert(f"--audit {name}", number, Count)
        self._check_cluster()

    def _check_cluster(self) -> None:
        """See that the settings of a cluster go together, and with the others.

        Raises:
            InputError: see above.
        """
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
            if self.in_batches and getattr(self, name, None) is not None:
                raise InputError(
                    f"--tier {BATCH}: makes many calls at once and waits for all of them, which is"
                    f" not for --{name.replace('_', '-')}; leave one out"
                )
        if self.ray is not None:
            for name in ("budget-calls", "budget-dollars", "stop-when"):
                if getattr(self, name.replace("-", "_"), None) is not None:
                    raise InputError(
                        f"--{name}: is not for --ray, whose tasks do not know of one another; leave"
                        " one out"
                    )
            from opensafeintent.ray.cluster import check_address

            check_address(self.ray)

    def choose_guard_form(self, guard: str) -> GuardFormName:
        """Return how a guard model is asked and answers.

        Raises:
            InputError: no form is named, and the name of the model tells none.
        """
        from opensafeintent.templates.guards import guess_form

        return self.guard_form or guess_form(guard)

    @property
    def named(self) -> set[str]:
        """Every model that is named: under test, as a judge, or as the guard."""
        return {*self.under_test, *self.judges, *filter(None, (self.mode_judge, self.guard))}


AUDITS = ("retest", "swap", "turn")
"""Names of `--audit`."""
