"""The plan of a run: what each of its models is asked, and how each response is graded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import le
from typing import Annotated, Any, NamedTuple

import msgspec

from opensafeintent.calls.model_names import is_local
from opensafeintent.calls.records import Sampling
from opensafeintent.errors import InputError
from opensafeintent.evaluation.pipeline import Grading
from opensafeintent.taxonomy import MOST_EPOCHS
from opensafeintent.templates.template import Role, SecondTurnTexts

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
    follow_ups: SecondTurnTexts | None = None
    """The texts of follow-ups; None if no model is asked on."""
    retest: Annotated[int, msgspec.Meta(ge=0)] = 0
    """Responses, of all models together, that each judge grades once more: `evaluation.regrade`."""
    turn: Annotated[int, msgspec.Meta(ge=0)] = 0
    """Direct replies, of all models together, that each judge grades again with the first turn
    shown.
    """
    swap: SwapPlan | None = None
    """The audit of its judges by other requests."""

    @property
    def asks_again(self) -> bool:
        """Whether judges are asked again about some responses."""
        return bool(self.retest or self.turn or self.swap)

    def find_sampling(self, model: str) -> Sampling:
        """Return how a model is sampled, as far as that is known."""
        sampling = self.target_sampling or Sampling()
        if not self.as_paper or not is_local(model):
            return sampling
        temperature = 0.0 if sampling.temperature is None else sampling.temperature
        return msgspec.structs.replace(sampling, max_tokens=SHORT, temperature=temperature)


def _show_json(value: Any) -> str:
    if value is None:
        return "none"
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _show_switch(value: object) -> str:
    return "on" if value else "off"


def _compare_steps(*steps: str) -> Callable[[str, str], bool]:
    """Return the function that tells whether the new value is the old one or a later step."""
    return lambda old, new: steps.index(old) <= steps.index(new)


class _Part(NamedTuple):
    """A part of a plan: what it is called, and how a command may change it."""

    name: str
    option: str = ""
    """That states it."""
    grows: Callable[[Any, Any], bool] = lambda _old, _new: False
    """Whether the new value is larger than the old one; any other change is refused."""
    may_begin: Callable[[Plan], bool] = lambda _plan: False
    """Whether it has not been used yet: nothing was called, or graded, by it."""
    show: Callable[[Any], str] = _show_json
    is_told: bool = True
    """Whether a command says that the part has grown."""
    hint: str = ""
    """What a refused command has to state."""


def _is_uncalled(plan: Plan) -> bool:
    return plan.target_sampling is None


def _is_ungraded(plan: Plan) -> bool:
    return not plan.judges


_PARTS: dict[str, _Part] = {
    "judges": _Part(
        "judges",
        "--judge",
        lambda old, new: {*old} <= {*new},
        show=lambda names: " + ".join(names) or "none",
        hint="name all of the run's, and further ones",
    ),
    "mode_judge": _Part(
        "judge of modes", "--mode-judge", may_begin=lambda plan: not plan.mode_judge
    ),
    "modes": _Part("modes", "--modes", _compare_steps("dual_use", "core")),
    "probe": _Part("probe", "--probe", _compare_steps("none", "unsafe", "all")),
    "judge_by": _Part(
        "judged by", "--judge-by", lambda _old, new: new == "both", may_begin=_is_ungraded
    ),
    "parse": _Part("reading of grades", may_begin=_is_ungraded),
    "guard": _Part(
        "guard",
        "--guard",
        lambda old, _: old is None,
        show=lambda guard: f"{guard.model} ({guard.form})" if guard else "none",
    ),
    "limit": _Part(
        "prompt-sets",
        "--limit",
        lambda old, new: new is None or (old is not None and old <= new),
        show=lambda limit: "all" if limit is None else f"{limit:,}",
    ),
    "epochs": _Part("epochs", "--epochs", le),
    "target_sampling": _Part(
        "sampling", "--temperature, --max-tokens, --reasoning-effort, -M", may_begin=_is_uncalled
    ),
    "as_paper": _Part(
        "the paper's sampling", "--as-paper", may_begin=_is_uncalled, show=_show_switch
    ),
    "system": _Part("system prompt", "--system", may_begin=_is_uncalled),
    "templates": _Part(
        "judge templates",
        "--rubrics",
        lambda old, new: old.items() <= new.items(),  # that of a checklist joins the others
        may_begin=_is_ungraded,
        is_told=False,  # the row of `judge_by` tells why it joins
    ),
    "follow_ups": _Part(
        "second turn", "--follow-ups", lambda old, _: old is None, show=_show_switch
    ),
    "retest": _Part("retested responses", "--audit retest=N", le),
    "turn": _Part("direct replies graded with the first turn", "--audit turn=N", le),
    "swap": _Part(
        "prompt-sets under swapped requests",
        "--audit swap=N",
        lambda old, new: new is not None and (old is None or old.sets <= new.sets),
        show=lambda swap: str(swap.sets) if swap else "none",
    ),
}
"""Every field of a plan, but the sampling of judges, which `extend_plan` compares by judge."""


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
        return self._part.name, self._part.show(self.old), self._part.show(self.new)

    @property
    def _part(self) -> _Part:
        return _PARTS[self.field] if self.field in _PARTS else _Part(self.field, "--judge-arg")

    def __str__(self) -> str:
        hint = f" ({self._part.hint})" if self._part.hint else ""
        option = f" ({self._part.option})" if self._part.option else ""
        name, old, new = self.texts
        return f"{name}{option}: the run has {old}, this has {new}{hint}"


class PlanRefused(InputError):
    """A command states a plan that a run cannot grow into."""

    def __init__(self, changes: list[PlanChange]) -> None:
        self.changes = changes
        super().__init__("; ".join(map(str, changes)))


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
        for change in _list_changes(plan, wanted)
        if not _PARTS[change.field].may_begin(plan)
        if not _PARTS[change.field].grows(change.old, change.new)
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
    return [
        "{}: {} → {}".format(*change.texts)
        for change in _list_changes(plan, grown)
        if _PARTS[change.field].is_told
        if not _PARTS[change.field].may_begin(plan)
    ]


def _list_changes(old: Plan, new: Plan) -> list[PlanChange]:
    """Return the parts in which two plans differ, the arguments of judges aside."""
    pairs = (PlanChange(field, getattr(old, field), getattr(new, field)) for field in _PARTS)
    return [
        change
        for change in pairs
        if change.old != change.new
        and not (change.field == "judges" and {*change.old} == {*change.new})
    ]
