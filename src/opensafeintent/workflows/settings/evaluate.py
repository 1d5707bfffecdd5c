"""Settings of `evaluate`."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta

from opensafeintent.calls.records import Sampling
from opensafeintent.errors import InputError
from opensafeintent.files import MOST_ROWS, near
from opensafeintent.taxonomy import (
    MOST_EPOCHS,
    Preset,
    ProbeScope,
)
from opensafeintent.workflows.settings.base import (
    LABEL,
    MAX_ROWS,
    MAX_TOKENS,
    RUN_LEDGER,
    TAXONOMY,
    Arg,
    Confidence,
    Count,
    Group,
    Opt,
    Temperature,
)
from opensafeintent.workflows.settings.judging import Distributed

if TYPE_CHECKING:
    from opensafeintent.templates import Templates

PAPER_DATASET = "opensafeintent-115"


class _NotGiven(str):
    """A default that differs from the same text given by a user."""

    __slots__ = ()


_STARTER = _NotGiven("starter")


class EvaluateSettings(Distributed, frozen=True, kw_only=True):
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
        str,
        Opt(
            "'starter', 'opensafeintent-115', 'opensafeintent-700', a path, or"
            " hf:owner/name[@revision][#file].",
            is_file=True,
            group=Group.DATASET,
        ),
    ] = _STARTER
    taxonomy: Annotated[Path | None, TAXONOMY.under(Group.DATASET)] = None
    limit: Annotated[
        Count | None,
        Opt(
            "Evaluate the first N prompt-sets of a fixed order that has each cell in proportion.",
            metavar="N",
            group=Group.DATASET,
        ),
    ] = None
    max_rows: Annotated[Count | None, MAX_ROWS.under(Group.DATASET)] = MOST_ROWS
    """Of the dataset; None sets no limit."""
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
        Annotated[int, Meta(ge=1, le=MOST_EPOCHS)],
        Opt("Responses per prompt.", metavar="N", group=Group.MODELS),
    ] = 1
    temperature: Annotated[
        Temperature | None,
        Opt(
            "Sampling temperature of the model under test.  [default: its provider's]",
            metavar="X",
            group=Group.MODELS,
        ),
    ] = None
    max_tokens: Annotated[
        Count, Opt("Token limit of a response.", metavar="N", group=Group.MODELS)
    ] = MAX_TOKENS
    system: Annotated[
        str | None,
        Opt("System prompt of the model under test.", metavar="TEXT", group=Group.MODELS),
    ] = None
    reasoning_effort: Annotated[
        str | None,
        Opt(
            "Reasoning effort of the model under test, if it has one.",
            metavar="LEVEL",
            group=Group.MODELS,
        ),
    ] = None
    extra: Annotated[
        Mapping[str, Any],
        Opt(
            "Extra request field, such as top_p=0.9. Repeatable.",
            name="-M",
            metavar="KEY=VALUE",
            group=Group.MODELS,
        ),
    ] = {}
    preset: Annotated[
        Preset | None, Opt("Sampling of the paper's text, or of its code.", group=Group.MODELS)
    ] = None
    as_paper: Annotated[
        bool,
        Opt(
            "Use the paper's dataset, rubrics, sampling, and judge (unless --judge is given).",
            group=Group.MODELS,
            of_run=False,
        ),
    ] = False
    """Its reading of grades as well."""
    label: Annotated[tuple[str, ...], LABEL.under(Group.MODELS)] = ()
    probe: Annotated[
        ProbeScope,
        Opt(
            "Prompts for which the model is asked for its own policy.", group=Group.JUDGES, place=1
        ),
    ] = "unsafe"
    stop_when: Annotated[
        str | None,
        Opt(
            "Stop as soon as QUESTION is answered (sequential test).",
            metavar="QUESTION",
            group=Group.EXTRA,
            of_run=False,
            place=-1,
        ),
    ] = None
    """`METRIC >= X`, `METRIC <= X` or `MODEL better METRIC`."""
    fail_under: Annotated[
        tuple[str, ...],
        Opt(
            "With --dry-run: exit with 5 if no outcome can pass this gate.",
            metavar="METRIC=X",
            group=Group.DATASET,
            of_run=False,
        ),
    ] = ()
    """Of a report: too few prompt-sets are planned for it."""
    fail_over: Annotated[
        tuple[str, ...],
        Opt(
            "With --dry-run: exit with 5 if no outcome can pass this gate.",
            metavar="METRIC=X",
            group=Group.DATASET,
            of_run=False,
        ),
    ] = ()
    fail_if_worse: Annotated[
        tuple[str, ...],
        Opt(
            "With --dry-run and --first-run: print the margin that the prompt-sets can decide.",
            metavar="METRIC=MARGIN",
            group=Group.DATASET,
            of_run=False,
        ),
    ] = ()
    pairs: Annotated[
        tuple[str, ...],
        Opt(
            "With --dry-run and --fail-if-worse: as in the report.",
            name="--pair",
            metavar="NEW=OLD",
            group=Group.DATASET,
            of_run=False,
        ),
    ] = ()
    first_run: Annotated[
        bool,
        Opt(
            "With --dry-run: check --fail-if-worse without an earlier run.",
            group=Group.DATASET,
            of_run=False,
        ),
    ] = False
    confidence: Annotated[
        Confidence,
        Opt(
            "Confidence level of a gate, or of the answer to --stop-when.",
            metavar="X",
            group=Group.EXTRA,
            of_run=False,
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
    follow_up_audit: Annotated[
        Count | None,
        Opt(
            "Re-grade N direct replies, of all models together, with the first turn shown (needs"
            " --follow-ups).",
            metavar="N",
            group=Group.EXTRA,
            place=-1,
        ),
    ] = None
    """N of all models together, by each judge."""
    ledger: Annotated[Path | None, RUN_LEDGER.under(Group.BUDGET, place=-1)] = None
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
            self._set_as_paper()
        if isinstance(self.dataset, _NotGiven):
            msgspec.structs.force_setattr(self, "dataset", str(self.dataset))
        super().__post_init__()
        if self.report and self.dry_run:
            raise InputError("--report: is a page, and --dry-run writes nothing; leave one out")
        margins = {"--fail-if-worse": self.fail_if_worse, "--pair": self.pairs}
        gates = {"--fail-under": self.fail_under, "--fail-over": self.fail_over, **margins}
        if early := [flag for flag, texts in gates.items() if texts and not self.dry_run]:
            run = "RUN" if self.out is None else shlex.quote(str(near(self.out)))
            raise InputError(
                f"{early[0]}: is for --dry-run; after the run, `opensafeintent report {run}"
                f" {early[0]} …` decides the gate"
            )
        if any(margins.values()) and not self.first_run:
            raise InputError(
                "--fail-if-worse, --pair: a dry run has no earlier run; add --first-run"
            )
        if self.stop_when is None and not any(gates.values()) and self.confidence != 0.95:
            raise InputError(f"--confidence {self.confidence:g}: is for --stop-when and gates")
        if self.follow_up_audit is not None and not self.follow_ups:
            raise InputError("--follow-up-audit: is for --follow-ups, which is not given")
        budget = (self.budget_calls, self.budget_tokens, self.budget_dollars)
        if self.stop_when is not None and any(limit is not None for limit in budget):
            raise InputError(
                "--stop-when: a budget could end the run before its question; leave one of them out"
            )
        if self.preset and self.max_tokens != MAX_TOKENS:
            raise InputError(
                f"--preset {self.preset}: sets the token limit; leave --max-tokens out"
            )
        if not self.models and self.suite is None:
            raise InputError("no model to evaluate: name at least one, or a --suite")

    def _set_as_paper(self) -> None:
        """Set the paper's values, and refuse different ones."""
        from opensafeintent.analysis.paper import PAPER_JUDGE

        differs = {
            "--preset": self.preset not in (None, "paper"),
            "--temperature": self.temperature is not None,
            "--max-tokens": self.max_tokens != MAX_TOKENS,
        }
        if names := [flag for flag, is_other in differs.items() if is_other]:
            raise InputError(
                f"--as-paper: sets the values of {', '.join(names)}; leave one of them out"
            )
        values = {
            "dataset": PAPER_DATASET if isinstance(self.dataset, _NotGiven) else self.dataset,
            "preset": "paper",
            "grade_parse": "paper",
            "judges": self.judges or (PAPER_JUDGE,),
        }
        for field, value in values.items():
            msgspec.structs.force_setattr(self, field, value)

    def judge_templates(self) -> Templates:
        """Return the judge templates in force.

        Raises:
            InputError: the folder of rubrics cannot be used, or the paper's cannot be fetched.
        """
        from opensafeintent.promptsets.published import RUBRIC_HASHES, published_rubrics
        from opensafeintent.templates import load_templates

        if not self.as_paper:
            return super().judge_templates()
        if self.rubrics is None:
            return load_templates(published_rubrics())
        templates = super().judge_templates()
        own = {str(template.role): template.hash for template in templates.all()}
        if others := [role for role, digest in RUBRIC_HASHES.items() if own[role] != digest]:
            raise InputError(
                f"--rubrics {self.rubrics}: --as-paper takes the paper's rubrics, and these are"
                f" others for {', '.join(others)}"
            )
        return templates

    @property
    def targets(self) -> tuple[str, ...]:
        """Every model to evaluate, each once: those that are named, then the suite's.

        Raises:
            InputError: there is no such suite.
        """
        from opensafeintent.calls.suites import load_suite

        suite = load_suite(self.suite).names if self.suite is not None else ()
        return tuple(dict.fromkeys((*self.models, *suite)))

    @property
    def under_test(self) -> tuple[str, ...]:
        """The models that a header without a model's name is for."""
        return self.targets

    @property
    def _models_of_rubrics(self) -> tuple[str, ...]:
        return self.targets

    @property
    def target_sampling(self) -> Sampling:
        """How targets are sampled."""
        return Sampling(
            max_tokens=self.max_tokens,
            temperature=self.temperature,
            reasoning_effort=self.reasoning_effort,
            extra=dict(self.extra),
        )
