"""The plan of a run: what each of its models is asked, and how each response is graded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import le
from typing import Annotated, Any, NamedTuple

import msgspec

from opensafeintent.calls.models import is_local
from opensafeintent.calls.records import Sampling
from opensafeintent.errors import InputError
from opensafeintent.evaluation.pipeline import Grading, Guard
from opensafeintent.taxonomy import MOST_EPOCHS
from opensafeintent.templates import Role
from opensafeintent.templates.template import SecondTurnTexts

SHORT = 1000
"""Tokens of a response that the paper keeps short."""


class SwapPlan(msgspec.Struct, frozen=True, kw_only=True):
    """How much of every model is graded under other requests than its own: `evaluation.regrade`."""

    sets: Annotated[int, msgspec.Meta(ge=1)]
    """This number of first prompt-sets of `promptsets.sample_order` that a model was asked."""
    hidden: str
    """Text in place of the request if none is shown."""


class Plan(Grading, frozen=True, kw_only=True):
    """What a run asks each of its models, and how it has each response graded.

    A run has one plan. A later command may make it larger, and then for every model of the run:
    `extend_plan`.
    """

    limit: Annotated[int, msgspec.Meta(ge=1)] | None = None
    """Prompt-sets, the first ones of `promptsets.sample_order`; None is all of them."""
    epochs: Annotated[int, msgspec.Meta(ge=1, le=MOST_EPOCHS)] = 1
    target_sampling: Sampling | None = None
    """None until a model is called: imported responses were sampled elsewhere."""
    as_paper: bool = False
    """Whether models are sampled by the paper's rule: local ones greedily, with short responses."""
    system: str | None = None
    judge_samplings: Mapping[str, Sampling] = msgspec.field(default_factory=dict)
    """How each judge is sampled, by its name."""
    templates: Mapping[Role, str] = msgspec.field(default_factory=dict)
    """Hash of the template in force, by role."""
    second_turn: SecondTurnTexts | None = None
    """The texts of follow-ups; None if no model is asked on."""
    retest: Annotated[int, msgspec.Meta(ge=0)] = 0
    """Responses, of all models together, that each judge grades once more: `evaluation.regrade`."""
    turn_audit: Annotated[int, msgspec.Meta(ge=0)] = 0
    """Direct replies, of all models together, that each judge grades again with the first turn
    shown.
    """
    request_swap: SwapPlan | None = None
    """The audit of its judges by other requests."""

    @property
    def asks_again(self) -> bool:
        """Whether judges are asked again about some responses."""
        return bool(self.retest or self.turn_audit or self.request_swap)

    def find_sampling(self, model: str) -> Sampling:
        """Return how a model is sampled, as far as that is known."""
        sampling = self.target_sampling or Sampling()
        if not self.as_paper or not is_local(model):
            return sampling
        temperature = 0.0 if sampling.temperature is None else sampling.temperature
        return msgspec.structs.replace(sampling, max_tokens=SHORT, temperature=temperature)


class PlanChange(NamedTuple):
    """A part of a plan that a command would change."""

    field: str
    old: Any
    new: Any

    @property
    def texts(self) -> tuple[str, str, str]:
        """The part's name, and what it was and would be."""
        if self.field == "templates":
            roles = {*self.old, *self.new}
            other = sorted(role for role in roles if self.old.get(role) != self.new.get(role))
            return f"templates for {', '.join(other)}", "its own", "others"
        name = _NAMES.get(self.field, self.field)
        return name, _show_value(self.field, self.old), _show_value(self.field, self.new)

    def __str__(self) -> str:
        hint = " (name all of the run's, and further ones)" if self.field == "judges" else ""
        return "{}: the run has {}, this has {}".format(*self.texts) + hint

    @property
    def growth(self) -> str:
        """The change as a command makes it."""
        return "{}: {} → {}".format(*self.texts)


def _show_value(field: str, value: Any) -> str:
    if isinstance(value, tuple):
        return " + ".join(value) or "none"
    if isinstance(value, bool):
        return "on" if value else "off"
    if field == "limit":
        return "all" if value is None else f"{value:,}"
    if value is None:
        return "none"
    if isinstance(value, SecondTurnTexts):
        return "on"
    if isinstance(value, SwapPlan):
        return str(value.sets)
    if isinstance(value, Guard):
        return f"{value.model} ({value.form})"
    return msgspec.json.encode(value).decode() if not isinstance(value, str) else value


class PlanRefused(InputError):
    """A command states a plan that a run cannot grow into."""

    def __init__(self, changes: list[PlanChange]) -> None:
        self.changes = changes
        super().__init__("; ".join(map(str, changes)))


def _may_begin(plan: Plan, field: str) -> bool:
    """Tell whether a part of a plan has not been used yet: nothing was called, or graded, by it."""
    if field in ("target_sampling", "as_paper", "system"):
        return plan.target_sampling is None
    return field in ("templates", "parse", "mode_judge") and not plan.judges


_STEPS = {"modes": ("dual_use", "core"), "probe": ("none", "unsafe", "all")}

_LARGER: dict[str, Callable[[Any, Any], bool]] = {
    "judges": lambda old, new: {*old} <= {*new},
    "limit": lambda old, new: new is None or (old is not None and old <= new),
    "epochs": le,
    "retest": le,
    "turn_audit": le,
    "request_swap": lambda old, new: new is not None and (old is None or old.sets <= new.sets),
    "second_turn": lambda old, _: old is None,
    "guard": lambda old, _: old is None,
    "modes": lambda old, new: _STEPS["modes"].index(old) <= _STEPS["modes"].index(new),
    "probe": lambda old, new: _STEPS["probe"].index(old) <= _STEPS["probe"].index(new),
}
"""Whether a new value of a part is larger than the old one; any other change is refused."""


def extend_plan(plan: Plan, wanted: Plan) -> Plan:
    """Return the plan of a run as a command makes it larger.

    Args:
        plan: of the run.
        wanted: the same with what the command states in it.

    Raises:
        PlanRefused: the command changes a part, or makes one smaller; it has every such change.
    """
    refused = [
        change
        for change in _changes(plan, wanted)
        if not _may_begin(plan, change.field)
        if not _LARGER.get(change.field, lambda *_: False)(change.old, change.new)
    ]
    for judge in plan.panel:
        old, new = plan.judge_samplings.get(judge), wanted.judge_samplings.get(judge)
        if new is not None and old != new:
            refused.append(PlanChange(f"arguments of {judge}", old, new))
    if refused:
        raise PlanRefused(refused)
    added = [judge for judge in wanted.judges if judge not in plan.judges]
    return msgspec.structs.replace(
        wanted,
        judges=(*plan.judges, *added),
        judge_samplings={**plan.judge_samplings, **wanted.judge_samplings},
    )


def describe_growth(plan: Plan, grown: Plan) -> list[str]:
    """Return what a plan has grown by, a text for each part."""
    return [change.growth for change in _changes(plan, grown) if not _may_begin(plan, change.field)]


_NAMES = {
    "judges": "judges",
    "mode_judge": "judge of modes",
    "target_sampling": "sampling",
    "as_paper": "the paper's sampling",
    "system": "system prompt",
    "limit": "prompt-sets",
    "parse": "reading of grades",
    "templates": "judge templates",
    "second_turn": "second turn",
    "retest": "retested responses",
    "turn_audit": "direct replies graded with the first turn",
    "request_swap": "prompt-sets under swapped requests",
}


def _changes(old: Plan, new: Plan) -> list[PlanChange]:
    """Return the parts in which two plans differ, the arguments of judges aside."""
    pairs = (
        PlanChange(field, getattr(old, field), getattr(new, field))
        for field in Plan.__struct_fields__
        if field != "judge_samplings"
    )
    return [
        change
        for change in pairs
        if change.old != change.new
        and not (change.field == "judges" and {*change.old} == {*change.new})
    ]
