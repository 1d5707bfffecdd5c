"""A gate, and its result for a model."""

from __future__ import annotations

from datetime import datetime
from typing import Literal, NamedTuple

import msgspec

from opensafeintent.analysis.versions import Transitions
from opensafeintent.metrics import METRICS
from opensafeintent.statistics import Estimate
from opensafeintent.statistics.thresholds import Bounds, Side, Verdict

_SEVERITY: tuple[Verdict, ...] = ("pass", "undecided", "fail")

Kind = Literal["under", "over", "worse"]
_OPTIONS: dict[Kind, str] = {
    "under": "--fail-under",
    "over": "--fail-over",
    "worse": "--fail-if-worse",
}


class Gate(msgspec.Struct, frozen=True):
    """One metric and its limit: the least value, the most, or by how much it may have become
    worse.
    """

    kind: Kind
    metric: str
    limit: float

    @property
    def option(self) -> str:
        """The option that requests it."""
        return _OPTIONS[self.kind]

    @property
    def side(self) -> Side:
        """Whether the limit is the least or the most that the number may be."""
        return "least" if self.kind == "under" else "most"

    @property
    def text(self) -> str:
        """Its condition: `triplet_safety ≥ 80 %`."""
        if self.kind == "worse":
            return f"{self.metric} worse by {self.shown} at most"
        return f"{self.metric} {self.shown}"

    @property
    def shown(self) -> str:
        """The limit in the metric's unit: `≥ 80 %`, `≤ 0.4`, `25 points`."""
        sign = {"under": "≥ ", "over": "≤ ", "worse": ""}[self.kind]
        return f"{sign}{self.in_unit(self.limit)}"

    def in_unit(self, value: float, n: int | None = None) -> str:
        """Return a value in the metric's unit: in per cent, points or as a score.

        Args:
            value: the value, or a change of it.
            n: the number of prompt-sets, which determines the decimals; None shows all digits, for
                a limit that a user typed.
        """
        share = METRICS[self.metric].is_share
        if share:
            value *= 100
        if n is None:
            text = f"{round(value, 6) + 0.0:g}"
        else:
            decimals = 2
            if share:
                decimals = 1 if n >= 100 else 0
            text = f"{round(value, decimals) + 0.0:.{decimals}f}"
        text = text.replace("-", "−")
        if not share:
            return text
        return f"{text} points" if self.kind == "worse" else f"{text} %"

    def is_exact(self, epochs: int) -> bool:
        """Whether each prompt-set has the value 0 or 1."""
        return epochs == 1 and METRICS[self.metric].is_binary

    def meets(self, value: float) -> bool:
        """Tell whether a value is on the right side of the limit."""
        return value >= self.limit if self.side == "least" else value <= self.limit


class Received(NamedTuple):
    """How many of a model's first replies are of this pipeline."""

    new: int
    """Since `since`."""
    of: int
    since: datetime
    """In UTC."""

    @property
    def few(self) -> bool:
        """Whether they are too few for a verdict."""
        return not self.new or 2 * self.new < self.of


class GateResult(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a gate for one model of the report."""

    gate: Gate
    group: int
    """Index among the report's groups."""
    model: str
    against: str | None = None
    """Its earlier version, by the name in the earlier run."""
    confidence: float
    """Of the interval that decides."""
    pairs: int = 1
    """Of a change: the number of pairs of models compared together."""
    verdict: Verdict
    estimate: Estimate
    """The metric, or how it changed, later minus earlier."""
    family: tuple[float, float] | None = None
    """Of one of several pairs: the interval that holds for all of them at once, in which a failure
    has to lie.
    """
    deciding: int | None = None
    """Of an undecided one: about how many prompt-sets would decide, with a power of 80 %."""
    identical: bool = False
    """Whether responses and grades are those of the earlier version: nothing was tested."""
    worst_case: tuple[float, float] | None = None
    """The ends of the interval over all missing grades, and without them; None if none is missing.
    """
    compared: Bounds | None
    """The number that is compared with the limit: the metric, or how much worse it became; None
    without an earlier version.
    """
    unpaired: str | None = None
    """The earlier run, if it has no version of the model."""
    absent: int = 0
    """Planned responses that are not stored: the result is undecided until they are."""
    absent_of: str = "the run"
    """The run that lacks them."""
    unmeasured: Received | None = None
    """If fewer than half of the model's replies are new: the result is undecided."""


class Lacking(NamedTuple):
    """Answers about a model of which more are missing than --max-missing."""

    group: int
    """Index among the report's groups."""
    model: str
    text: str
    """`modes: 8 of 8 missing (unparsed: 8), more than the 5 % of --max-missing`."""


class Gates(msgspec.Struct, frozen=True, kw_only=True):
    """Results of every gate of a report for every model under test."""

    results: tuple[GateResult, ...]
    baseline: str | None = None
    """The earlier run."""
    untested: tuple[Gate, ...] = ()
    """Gates against an earlier run, of a report that has none."""
    lacking: tuple[Lacking, ...] = ()
    """With one or more, the report is incomplete whatever the results are."""
    warnings: tuple[str, ...] = ()
    """Lines that stand below the verdict: it is not wholly of this pipeline."""
    cautions: tuple[str, ...] = ()
    """Cautions about the gates themselves, a line each."""
    transitions: tuple[Transitions, ...] = ()
    """By model, the prompt-sets that newly fail and newly pass against the earlier run."""

    @property
    def verdict(self) -> Verdict:
        """The overall verdict: failed if any failed, else undecided if any is undecided."""
        return max((result.verdict for result in self.results), key=_SEVERITY.index, default="pass")

    @property
    def exit_code(self) -> int:
        """4 if one failed, else 5 if one is undecided."""
        return {"fail": 4, "undecided": 5, "pass": 0}[self.verdict]
