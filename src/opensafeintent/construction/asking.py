"""Asking the generator and the judge of a build, and reading what they reply."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Literal, TypeVar, get_args, get_origin

import msgspec

from opensafeintent.calls.client import Client, choose_concurrency, work_on_each
from opensafeintent.calls.outcomes import Unparsed, ask_until_parsed, describe_cause
from opensafeintent.calls.records import Answered, Call, Failed, Outcome, Purpose, Refused, Sampling
from opensafeintent.construction.instructions import (
    Instruction,
    InstructionRole,
    Instructions,
    describe_category,
)
from opensafeintent.construction.items import CallRef, Reason, Rejection
from opensafeintent.errors import nearest
from opensafeintent.hostile import clean_for_display, one_line
from opensafeintent.promptsets.fields import LONGEST_PROMPT
from opensafeintent.taxonomy import Taxonomy
from opensafeintent.templates.contracts import cut_fence

R = TypeVar("R", bound="Reply")

_SUMMARY_WORDS = (5, 15)
"""Least and most words of a topic summary (paper, section 2.1)."""


class Reply(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A JSON contract; a reply may hold `declined`: the model's reason for not doing the task."""

    purpose: ClassVar[Purpose]
    """The purpose of the request."""
    instruction: ClassVar[InstructionRole | None] = None
    """The template of the request; None if it has the purpose's name."""
    asked_of: ClassVar[Literal["generator", "judge"]] = "judge"
    filled: ClassVar[tuple[str, ...]] = ()
    """Names of the fields whose texts have to hold something."""

    @property
    def refusal(self) -> str:
        """The model's reason for declining; empty if it did not decline."""
        return getattr(self, "declined", "").strip()

    def texts(self) -> dict[str, str]:
        """Return the texts that have to hold something, by a name for errors."""
        texts: dict[str, str] = {}
        for name in self.filled:
            value = getattr(self, name)
            if isinstance(value, str):
                texts[name] = value
            else:
                texts |= {f"{name}[{n}]": text for n, text in enumerate(value)}
        return texts


def read_object(text: str, kind: type[R]) -> R | str:
    """Read a reply strictly: one JSON object of this kind, white space and one code fence around it
    aside.

    Returns:
        The reply, or its problem.
    """
    inside = cut_fence(text.strip())
    try:
        reply = msgspec.json.decode(inside, type=kind)
    except msgspec.ValidationError as error:
        return f"the JSON object is not of the form asked for: {one_line(str(error))}"
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return "it is not one JSON object and nothing else"
    if reply.refusal:
        return reply
    for name, content in reply.texts().items():
        if not content.strip():
            return f'"{name}" holds no text'
        if len(content) > LONGEST_PROMPT:
            return (
                f'"{name}" has {len(content):,} characters; at most {LONGEST_PROMPT:,} are accepted'
            )
    return reply


def find_fault_in_choice(name: str, value: str, valid: tuple[str, ...]) -> str | None:
    """Describe the problem with a label that is none of the valid ones."""
    return (
        None
        if value in valid
        else f'"{name}" is {clean_for_display(value)!r}, which is none of the names;'
        f" {nearest(value, valid)}"
    )


def count_in_words(count: int) -> str:
    """Return a number of words with its noun."""
    return f"{count} word{'' if count == 1 else 's'}"


def find_fault_in_summary(name: str, summary: str) -> str | None:
    """Describe the problem with the length of a topic summary."""
    least, most = _SUMMARY_WORDS
    count = len(summary.split())
    return (
        None
        if least <= count <= most
        else f'"{name}" has {count_in_words(count)}; {least} to {most} are asked for'
    )


_TYPES: dict[Any, dict[str, Any]] = {
    bool: {"type": "boolean"},
    str: {"type": "string"},
    tuple[str, ...]: {"type": "array", "items": {"type": "string"}},
}


def json_schema(kind: type[Reply], choices: Mapping[str, tuple[str, ...]]) -> dict[str, Any]:
    """Return the JSON schema of a reply in the form for structured output: every key required, no
    others.

    Args:
        kind: the reply's type.
        choices: valid texts by key, if a key has only a few.
    """
    fields = {
        field.name: (
            {"type": "string", "enum": list(get_args(field.type))}
            if get_origin(field.type) is Literal
            else dict(_TYPES[field.type])
        )
        for field in msgspec.structs.fields(kind)
    }
    for name, valid in choices.items():
        fields[name]["enum"] = list(valid)
    return {
        "type": "object",
        "properties": fields,
        "required": list(fields),
        "additionalProperties": False,
    }


T = TypeVar("T")
U = TypeVar("U")

_REFUSING = re.compile(
    r"\s*(sorry|as an ai|i['’]?m (really |very )?sorry|i (can|could|wo|will|do)(not|n?['’]?t)|i"
    r" can not"
    r"|i(['’]?m| am) (not able|unable|sorry))\b",
    re.I,
)
"""Beginnings of prose that is a refusal, in place of a reply."""


class Usable(msgspec.Struct, Generic[R], frozen=True):
    """A reply that keeps to its contract, and the calls that it took."""

    reply: R
    calls: tuple[CallRef, ...]


class Unusable(msgspec.Struct, frozen=True):
    """No usable reply was obtained."""

    reason: Reason
    detail: str
    calls: tuple[CallRef, ...]

    def reject(self, item: Any) -> Rejection:
        """Return the rejection of an item that needed the reply."""
        calls = tuple(call for call in self.calls if call not in getattr(item, "calls", ()))
        last_call = self.calls[-1].key
        return Rejection.of(item, self.reason, self.detail, last_call=last_call, calls=calls)


class ModelRole(msgspec.Struct, frozen=True, kw_only=True):
    """One of the two models, and how it is asked."""

    role: Literal["generator", "judge"]
    model: str
    sampling: Sampling


@dataclass(frozen=True)
class StageContext:
    """The resources of every stage.

    Args:
        client: makes the calls.
        generator: the model that writes.
        judge: the model that checks.
        instructions: the templates.
        taxonomy: source of the labels.
        structured: whether providers are asked for structured output.
        at_once: items in progress at the same time.
        finished: is called with each item's result when its stage ends.
        recorded: answers from the ledger alone, for the purposes in `recorded_only`.
        recorded_only: purposes of stages before the first one to run: their calls are not made.
    """

    client: Client
    generator: ModelRole
    judge: ModelRole
    instructions: Instructions
    taxonomy: Taxonomy
    structured: bool = True
    at_once: int = choose_concurrency(None)
    finished: Callable[[Any], None] = lambda _: None
    recorded: Client | None = None
    recorded_only: frozenset[Purpose] = frozenset()

    def labels(self, cell: tuple[str, str]) -> dict[str, str]:
        """Return a cell's harm domain and task type as instructions show them, as `domain` and
        `type`.
        """
        domain = next(
            category for category in self.taxonomy.harm_domains if category.name == cell[0]
        )
        task_type = next(
            category for category in self.taxonomy.task_types if category.name == cell[1]
        )
        return {"domain": describe_category(domain), "type": describe_category(task_type)}

    async def ask(
        self,
        kind: type[R],
        fills: Mapping[str, str],
        *,
        by: ModelRole | None = None,
        epoch: int = 1,
        choices: Mapping[str, tuple[str, ...]] | None = None,
        check: Callable[[R], str | None] = lambda _: None,
    ) -> Usable[R] | Unusable:
        """Ask once, and at most twice more with the problem of the reply.

        Args:
            kind: the reply's contract, which names the request and the model.
            fills: the instruction's placeholders.
            by: the model, if the contract leaves it open.
            epoch: distinguishes equal questions that are repeated on purpose.
            choices: valid texts by key, for structured output.
            check: describes a further problem of a reply, or returns None.

        Raises:
            ModelStopped, Stopped: see `Client.ask`.
        """
        model = by or (self.generator if kind.asked_of == "generator" else self.judge)
        client = (
            self.recorded if self.recorded and kind.purpose in self.recorded_only else self.client
        )
        call = self._call(kind, fills, model, epoch, choices or {})
        calls: list[CallRef] = []

        async def ask(call: Call) -> Outcome:
            calls.append(CallRef(call.purpose, call.model, client.compute_key(call).hex()))
            return await client.ask(call)

        def parse(answer: Answered) -> R | Unparsed:
            reply = read_object(answer.text, kind)
            problem: str | None
            if isinstance(reply, str):
                problem = f"{reply}{describe_cause(answer)}"
            elif reply.refusal or not (problem := check(reply)):
                return reply
            fills_of_reask = {
                "problem": f"{problem}.",
                "contract": self._instruction(kind).fill_contract(fills),
            }
            reask = self.instructions.by_role["reask"].render(fills_of_reask)
            return Unparsed(reask, answer, problem)

        outcome = await ask_until_parsed(ask, call, parse)
        return _sort_outcome(outcome, model, tuple(calls))

    def _call(
        self,
        kind: type[Reply],
        fills: Mapping[str, str],
        model: ModelRole,
        epoch: int,
        choices: Mapping[str, tuple[str, ...]],
    ) -> Call:
        """Return the first request for a reply; the arguments are those of `ask`."""
        instruction = self._instruction(kind)
        sampling = model.sampling
        if self.structured:
            sampling = msgspec.structs.replace(sampling, json_schema=json_schema(kind, choices))
        return Call(
            model=model.model,
            messages=(instruction.render(fills),),
            sampling=sampling,
            purpose=kind.purpose,
            epoch=epoch,
            template=instruction.name,
            template_hash=instruction.hash,
        )

    def _instruction(self, kind: type[Reply]) -> Instruction:
        """Return the template of the request for a reply."""
        return self.instructions.by_role[kind.instruction or kind.purpose]


def _sort_outcome(
    outcome: R | Unparsed | Refused | Failed, model: ModelRole, calls: tuple[CallRef, ...]
) -> Usable[R] | Unusable:
    match outcome:
        case Refused(reason=why):
            return Unusable("refused", f"the {model.role}'s provider: {why}", calls)
        case Failed(kind=kind, error=error):
            return Unusable(
                "not_made" if kind == "not_made" else "call_failed",
                f"{model.model}: {kind}: {error}",
                calls,
            )
        case Unparsed(answer=Answered(text=text)) if _REFUSING.match(text):
            return Unusable("refused", f"the {model.role}: {one_line(text)}", calls)
        case Unparsed(problem=problem):
            return Unusable("malformed", f"the {model.role}'s last reply: {problem}", calls)
    if outcome.refusal:
        return Unusable("refused", f"the {model.role}: {one_line(outcome.refusal)}", calls)
    return Usable(outcome, calls)


async def process_items(
    context: StageContext, items: Sequence[T], work: Callable[[T], Awaitable[U]]
) -> list[U]:
    """Work on many items at once; return the results, in their order.

    If one raises an error, those in flight finish and are recorded, and none is begun.

    Raises:
        Stopped: the generator or the judge does not answer any more, or a budget is used up.
        InputError: the ledger cannot be written.
    """

    async def finish(item: T) -> U:
        result = await work(item)
        context.finished(result)
        return result

    return await work_on_each(context.client, items, finish, at_once=context.at_once)
