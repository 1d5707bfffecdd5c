"""Settings of the judging of responses, and of `grade`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from msgspec import Meta

from opensafeintent.calls.records import Sampling
from opensafeintent.errors import InputError
from opensafeintent.taxonomy import (
    MAX_MISSING,
    GuardFormName,
    ModesScope,
)
from opensafeintent.workflows.settings.base import (
    MAX_MISSING_GRADES,
    NO_LIMIT,
    RUN_LEDGER,
    Arg,
    Count,
    Group,
    Opt,
    Share,
)
from opensafeintent.workflows.settings.calling import Judges


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
            from opensafeintent.interop.ray.cluster import check_address

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
