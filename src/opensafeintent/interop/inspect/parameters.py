"""The parameters of our task in Inspect AI and of its scorers, and how they are refused."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

# inspect-evals-lint: ignore[private_api_imports] -- it has no public name
from inspect_ai._util.error import PrerequisiteError

from opensafeintent.calls.records import Sampling
from opensafeintent.evaluation.pipeline import JudgePlan
from opensafeintent.taxonomy import ModesScope, ParseRule, ProbeScope

# The one error that Inspect AI shows as a line, without the place in the code.
Refusal = PrerequisiteError

Count = Annotated[int, msgspec.Meta(ge=1)]
Metrics = Literal["headline", "all"]
"""Which metrics Inspect AI shows."""


class ScorerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How responses are graded: the parameters that the scorers share."""

    rubrics: str | None = None
    modes: ModesScope = "dual_use"
    probe: ProbeScope = "unsafe"
    grade_parse: ParseRule = "strict"
    judge_max_tokens: Count = 2048

    def plan(self, judges: tuple[str, ...]) -> JudgePlan:
        """Return the plan of a run with these settings."""
        return JudgePlan(
            judges=judges,
            mode_judge=judges[0],
            modes=self.modes,
            probe=self.probe,
            parse=self.grade_parse,
            judge_sampling=Sampling(max_tokens=self.judge_max_tokens, temperature=0.0),
            target_sampling=Sampling(),
        )


class TaskSettings(ScorerSettings, frozen=True, kw_only=True):
    """All parameters of the task."""

    dataset: str
    limit: Count | None
    epochs: Count
    taxonomy: str | None
    max_rows: Count
    metrics: Metrics
    follow_ups: bool
