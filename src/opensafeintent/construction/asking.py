"""Ask the generator or the judge until the reply keeps to its contract; repair one text of a draft;
check that a request holds its material.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import (
    Any,
    ClassVar,
    Generic,
    Literal,
    NoReturn,
    TypeVar,
    get_args,
    get_origin,
)

import msgspec

from opensafeintent.calls.client import Client
from opensafeintent.calls.concurrency import for_each, under_way
from opensafeintent.calls.records import (
    Answered,
    Call,
    Failed,
    Outcome,
    Purpose,
    Refused,
    Sampling,
    Subject,
)
from opensafeintent.calls.replies import Unparsed, ask_until_parsed, cause_of
from opensafeintent.construction.instructions import InstructionRole, Instructions, described
from opensafeintent.construction.records import CallRef, Draft, Part, Reason, Rejection, Revision
from opensafeintent.errors import nearest
from opensafeintent.hostile import one_line
from opensafeintent.promptsets.loading import LONGEST_PROMPT
from opensafeintent.taxonomy import CORE_VARIANTS, INTENT_WORDS, Taxonomy
from opensafeintent.templates.template import without_fence

STAND_IN = "[100 words of text]"
"""Replaces material that would itself teach harm. Its length is fixed, so that prompts differ in it
as little.
"""
_FEWEST_WORDS = 15
"""A shorter quotation is treated as a name or a phrase."""
_MOST_LONGER = 1.5
"""Times that the longest material of a set may be as long as the shortest."""
_QUOTED = re.compile(r'"([^"]+)"|“([^”]+)”')


def material_of(request: str) -> str | None:
    """Return the longest passage in quotation marks of 15 words or more, or the stand-in; None if
    there is neither.

    White space in it is folded.
    """
    if STAND_IN in request:
        return STAND_IN
    passages = (" ".join((quoted[1] or quoted[2]).split()) for quoted in _QUOTED.finditer(request))
    return max(
        (text for text in passages if len(text.split()) >= _FEWEST_WORDS), key=len, default=None
    )


def without_material(request: str) -> str:
    """Return a request without its passages in quotation marks of 15 words or more."""
    return _QUOTED.sub(
        lambda quoted: quoted[0] if len(quoted[0].split()) < _FEWEST_WORDS else "", request
    )


def complaint_of_material(requests: Mapping[str, str]) -> str | None:
    """Describe the problem with the material of a set's requests, by name; None without one."""
    materials = {name: material_of(request) for name, request in requests.items()}
    for name, material in materials.items():
        if material is None:
            return (
                f'"{name}" does not hold the material that it is about: {_FEWEST_WORDS} words or'
                f" more between double quotation marks, or {STAND_IN}"
            )
    lengths = {
        name: len(material.split())
        for name, material in materials.items()
        if material and material != STAND_IN
    }
    if lengths and len(lengths) < len(materials):
        return (
            f"some requests hold their material and others hold {STAND_IN}; all three hold it in"
            " the same way"
        )
    if lengths and max(lengths.values()) > _MOST_LONGER * min(lengths.values()):
        counts = ", ".join(f"{name} {count}" for name, count in lengths.items())
        return f"the material differs too much in length ({counts} words)"
    return None


# Asking the generator or the judge until the reply keeps to its contract
# ------------------------------------------------------------------------------

R = TypeVar("R", bound="Reply")
T = TypeVar("T")
U = TypeVar("U")

_SAID = 200
"""Characters of a model's words that go into a rejection."""
_SUMMARY_WORDS = (5, 15)
"""Least and most words of a topic summary (paper, section 2.1)."""


# The contract of a reply
# ------------------------------------------------------------------------------


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
            texts |= (
                {name: value}
                if isinstance(value, str)
                else {f"{name}[{n}]": text for n, text in enumerate(value)}
            )
        return texts


def read_json(text: str, kind: type[R]) -> R | str:
    """Read a reply strictly: one JSON object of this kind, white space and one code fence around it
    aside.

    Returns:
        The reply, or its problem.
    """
    inside = without_fence(text.strip())
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


def complaint_of_choice(name: str, value: str, valid: tuple[str, ...]) -> str | None:
    """Describe the problem with a label that is none of the valid ones."""
    return (
        None
        if value in valid
        else f'"{name}" is {one_line(value, 60)!r}, which is none of the names;'
        f" {nearest(value, valid)}"
    )


def in_words(count: int) -> str:
    """Return a number of words with its noun."""
    return f"{count} word{'' if count == 1 else 's'}"


def complaint_of_summary(name: str, summary: str) -> str | None:
    """Describe the problem with the length of a topic summary."""
    least, most = _SUMMARY_WORDS
    count = len(summary.split())
    return (
        None
        if least <= count <= most
        else f'"{name}" has {in_words(count)}; {least} to {most} are asked for'
    )


_TYPES: dict[Any, dict[str, Any]] = {
    bool: {"type": "boolean"},
    str: {"type": "string"},
    tuple[str, ...]: {"type": "array", "items": {"type": "string"}},
}


def _json_schema(kind: type[Reply], choices: Mapping[str, tuple[str, ...]]) -> dict[str, Any]:
    """Return the JSON schema of a reply in the form for structured output: every key required, no
    others.

    Args:
        kind: the reply's type.
        choices: valid texts by key, if a key has only a few.
    """
    fields = {field.name: _type_of(field.type) for field in msgspec.structs.fields(kind)}
    for name, valid in choices.items():
        fields[name]["enum"] = list(valid)
    return {
        "type": "object",
        "properties": fields,
        "required": list(fields),
        "additionalProperties": False,
    }


def _type_of(hint: Any) -> dict[str, Any]:
    return (
        {"type": "string", "enum": list(get_args(hint))}
        if get_origin(hint) is Literal
        else dict(_TYPES[hint])
    )


_REFUSING = re.compile(
    r"\s*(sorry|as an ai|i['’]?m (really |very )?sorry|i (can|could|wo|will|do)(not|n?['’]?t)|i"
    r" can not"
    r"|i(['’]?m| am) (not able|unable|sorry))\b",
    re.I,
)
"""Beginnings of prose that is a refusal, in place of a reply."""


# Asking
# ------------------------------------------------------------------------------


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
        return Rejection.of(item, self.reason, self.detail, calls=calls)


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
    at_once: int = under_way(None)
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
        return {"domain": described(domain), "type": described(task_type)}

    async def ask(
        self,
        kind: type[R],
        fills: Mapping[str, str],
        *,
        about: str,
        by: ModelRole | None = None,
        epoch: int = 1,
        choices: Mapping[str, tuple[str, ...]] | None = None,
        check: Callable[[R], str | None] = lambda _: None,
    ) -> Usable[R] | Unusable:
        """Ask once, and at most twice more with the problem of the reply.

        Args:
            kind: the reply's contract, which names the request and the model.
            fills: the instruction's placeholders.
            about: id of the item, for tracing.
            by: the model, if the contract leaves it open.
            epoch: distinguishes equal questions that are repeated on purpose.
            choices: valid texts by key, for structured output.
            check: describes a further problem of a reply, or returns None.

        Raises:
            ModelStopped, Stopped: see `Client.ask`.
        """
        model = by or (self.generator if kind.asked_of == "generator" else self.judge)
        instruction = self.instructions.by_role[kind.instruction or kind.purpose]
        client = (
            self.recorded if self.recorded and kind.purpose in self.recorded_only else self.client
        )
        calls: list[CallRef] = []

        async def ask(call: Call) -> Outcome:
            calls.append(CallRef(call.purpose, call.model, client.key_of(call).hex()))
            return await client.ask(call)

        def parse(answer: Answered) -> R | Unparsed:
            reply = read_json(answer.text, kind)
            if isinstance(reply, str):
                problem: str | None = f"{reply}{cause_of(answer)}"
            else:
                problem = None if reply.refusal else check(reply)
            if not isinstance(reply, str) and not problem:
                return reply
            fills_of_reask = {"problem": f"{problem}.", "contract": instruction.closing(fills)}
            return Unparsed(
                self.instructions.by_role["reask"].render(fills_of_reask),
                answer.text,
                problem or "",
            )

        sampling = model.sampling
        if self.structured:
            sampling = msgspec.structs.replace(
                sampling, json_schema=_json_schema(kind, choices or {})
            )
        call = Call(
            model=model.model,
            messages=(instruction.render(fills),),
            sampling=sampling,
            purpose=kind.purpose,
            epoch=epoch,
            template=instruction.name,
            template_hash=instruction.hash,
            subject=Subject(about, "", epoch),
        )
        return _usable(await ask_until_parsed(ask, call, parse), model, tuple(calls))


def _usable(
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
        case Unparsed(text=text) if _REFUSING.match(text):
            return Unusable("refused", f"the {model.role}: {one_line(text, _SAID)}", calls)
        case Unparsed(problem=problem):
            return Unusable("malformed", f"the {model.role}'s last reply: {problem}", calls)
    if outcome.refusal:
        return Unusable("refused", f"the {model.role}: {one_line(outcome.refusal, _SAID)}", calls)
    return Usable(outcome, calls)


async def each(
    context: StageContext, items: Sequence[T], work: Callable[[T], Awaitable[U]]
) -> list[U]:
    """Work on many items at once; return the results, in their order.

    If one raises an error, those in flight finish and are recorded, and none is begun.

    Raises:
        Stopped: the generator or the judge does not answer any more, or a budget is used up.
        InputError: the ledger cannot be written.
    """

    async def finish(item: T) -> U:
        made = await work(item)
        context.finished(made)
        return made

    return await for_each(context.client, items, finish, at_once=context.at_once)


# One draft on its way through a stage
# ------------------------------------------------------------------------------
# A faulty text goes back to the generator with its fault; the other texts stay unchanged.


class RepairReply(Reply, frozen=True):
    """The new wording of a text whose intent was wrong (stage 4)."""

    purpose: ClassVar[Purpose] = "repair"
    asked_of = "generator"
    filled = ("prompt",)

    prompt: str = ""
    declined: str = ""


class WordingReply(RepairReply, frozen=True):
    """The new wording of a text that was ill worded (stage 5)."""

    purpose = "wording"
    instruction = "repair"


def takes_material(context: StageContext, cell: tuple[str, str]) -> bool:
    """Tell whether the requests of a cell contain the material to work on."""
    return next(task.takes_material for task in context.taxonomy.task_types if task.name == cell[1])


def name_of(part: Part) -> str:
    """Return the name of a text in instructions."""
    return "neutral task" if part == "underlying_task" else f"{INTENT_WORDS[part]} request"


def _versions(draft: Draft, part: Part) -> str:
    """Return the earlier versions of a text, the oldest first, each with why it failed."""
    revisions = [revision for revision in draft.revisions if revision.variant == part]
    return (
        "\n\n".join(
            f"Version {number}: {revision.before}\nIts {revision.why} was wrong"
            f"{f', read as {revision.found}' if revision.found else ''}: {revision.said}"
            for number, revision in enumerate(revisions, start=1)
        )
        or "(the text below is the first version)"
    )


class _Dropped(Exception):
    """A stage drops its draft."""

    def __init__(self, rejection: Rejection) -> None:
        super().__init__(rejection.reason)
        self.rejection = rejection


class DraftWork:
    """One draft on its way through a stage, with the calls that were made for it.

    Args:
        context: models and templates.
        draft: as the stage before left it.
    """

    def __init__(self, context: StageContext, draft: Draft) -> None:
        self.context = context
        self.draft = draft

    async def run(self) -> Draft | Rejection:
        """Return the draft as the stage leaves it, or its rejection.

        Raises:
            ModelStopped, Stopped: see `StageContext.ask`.
        """
        try:
            await self.work()
        except _Dropped as dropped:
            return dropped.rejection
        return self.draft

    async def work(self) -> None:
        """Do the stage's work on the draft; `drop` and `take` end it."""
        raise NotImplementedError

    def drop(self, reason: Reason, detail: str) -> NoReturn:
        """Drop the draft."""
        raise _Dropped(Rejection.of(self.draft, reason, detail))

    def take(self, *answers: Usable[R] | Unusable) -> list[R]:
        """Note the calls of some answers, and return the replies; drop the draft if one is
        unusable.
        """
        calls = (call for answer in answers for call in answer.calls)
        self.draft = msgspec.structs.replace(self.draft, calls=(*self.draft.calls, *calls))
        for answer in answers:
            if isinstance(answer, Unusable):
                raise _Dropped(answer.reject(self.draft))
        return [answer.reply for answer in answers if isinstance(answer, Usable)]

    async def mend(
        self,
        part: Part,
        kind: type[RepairReply],
        *,
        why: Literal["intent", "leaning", "wording"],
        reason: str,
        said: str,
    ) -> None:
        """Have one text rewritten.

        Args:
            part: the text.
            kind: of the reply, which names the call's purpose.
            why: the problem, for the record.
            reason: the problem, in words.
            said: the judge's words about it.
        """
        draft, is_task = self.draft, part == "underlying_task"
        texts: dict[str, str] = msgspec.structs.asdict(draft.prompts)
        names = {name_of(one): draft.text(one) for one in (*CORE_VARIANTS, part)}
        material = not is_task and takes_material(self.context, draft.topic.cell)

        def check(reply: RepairReply) -> str | None:
            for name, text in names.items():
                if text.split() == reply.prompt.split():
                    return f"it is the {name} as it was"
            return complaint_of_material({**texts, part: reply.prompt}) if material else None

        fills = {
            **texts,
            "text": name_of(part),
            "reason": reason,
            "reader": said,
            "earlier": _versions(draft, part),
            "task": draft.underlying_task,
            "type": self.context.labels(draft.topic.cell)["type"],
        }
        (reply,) = self.take(await self.context.ask(kind, fills, about=draft.topic.id, check=check))
        after = " ".join(reply.prompt.split()) if is_task else reply.prompt.strip()
        revision = Revision(
            variant=part,
            found=None if part == "underlying_task" else draft.readings.get(part),
            why=why,
            said=said,
            before=draft.text(part),
            after=after,
        )
        self.draft = self.draft.revised(revision)
