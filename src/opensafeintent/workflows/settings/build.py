"""Settings of `build`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from opensafeintent.calls.records import Sampling
from opensafeintent.errors import InputError
from opensafeintent.files import MOST_ROWS
from opensafeintent.workflows.settings.base import (
    MAX_ROWS,
    MAX_TOKENS,
    TAXONOMY,
    Arg,
    Count,
    Group,
    Opt,
    Temperature,
)
from opensafeintent.workflows.settings.calling import Calling

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
            group=Group.BUILDING,
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
    taxonomy: Annotated[Path | None, TAXONOMY.under(Group.PROMPT_SETS)] = None
    max_rows: Annotated[Count | None, MAX_ROWS.under(Group.PROMPT_SETS)] = MOST_ROWS
    """Of the seeds; None sets no limit."""
    templates: Annotated[
        Path | None,
        Opt(
            "Folder of templates that replace ours (same file names), or of a build that has them.",
            metavar="DIR",
            group=Group.BUILDING,
        ),
    ] = None
    temperature: Annotated[
        Temperature | None,
        Opt(
            "Sampling temperature of the generator.  [default: its provider's]",
            metavar="X",
            group=Group.BUILDING,
        ),
    ] = None
    max_tokens: Annotated[
        Count, Opt("Token limit of the generator's reply.", metavar="N", group=Group.BUILDING)
    ] = MAX_TOKENS
    reasoning_effort: Annotated[
        str | None,
        Opt(
            "Reasoning effort of the generator, if it has one.",
            metavar="LEVEL",
            group=Group.BUILDING,
        ),
    ] = None
    extra: Annotated[
        Mapping[str, Any],
        Opt(
            "Extra request field of the generator. Repeatable.",
            name="-M",
            metavar="KEY=VALUE",
            group=Group.BUILDING,
        ),
    ] = {}
    judge_args: Annotated[
        Mapping[str, Any],
        Opt(
            "Extra request field of the judge. Repeatable.",
            name="--judge-arg",
            metavar="KEY=VALUE",
            group=Group.BUILDING,
        ),
    ] = {}
    judge_reasoning_effort: Annotated[
        str | None,
        Opt("Reasoning effort of the judge, if it has one.", metavar="LEVEL", group=Group.BUILDING),
    ] = None
    judge_max_tokens: Annotated[
        Count, Opt("Token limit of the judge's reply.", metavar="N", group=Group.BUILDING)
    ] = 2048
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

    @property
    def models(self) -> list[str]:
        """The generator and the judge, each once."""
        return list(dict.fromkeys((self.generator, self.judge)))

    @property
    def under_test(self) -> tuple[str, ...]:
        """The model that a header without a model's name is for: the generator."""
        return (self.generator,)

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
