"""Put an instruction to the generator or the judge until the reply keeps to its contract, and work on many items at once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar

import msgspec

from opensafeintent.calls.client import Client
from opensafeintent.calls.draining import for_each
from opensafeintent.calls.records import Answered, Call, Failed, Purpose, Refused, Sampling, Subject
from opensafeintent.construction.records import CallRef, Reason, Rejection
from opensafeintent.construction.replies import Reply, json_schema, looks_like_refusal, read_json
from opensafeintent.hostile import one_line
from opensafeintent.messages import Message
from opensafeintent.templates.instruction import Instruction, Instructions

__all__ = ["Asked", "Asker", "Unusable", "Workshop", "each"]

REASKS = 2
_SAID = 200
"""Characters of a model's words that go into a rejection."""

R = TypeVar("R", bound=Reply)
T = TypeVar("T")
U = TypeVar("U")


class Asked(msgspec.Struct, Generic[R], frozen=True):
    """A reply that keeps to its contract, and the calls that it took."""

    reply: R
    calls: tuple[CallRef, ...]


class Unusable(msgspec.Struct, frozen=True):
    """No usable reply could be had."""

    reason: Reason
    detail: str
    calls: tuple[CallRef, ...]

    def reject(self, item: Any, calls: tuple[CallRef, ...] = ()) -> Rejection:
        """Return the rejection of an item that needed the reply. `calls` are those of the stage before this one."""
        return Rejection(item=item, reason=self.reason, detail=self.detail, calls=(*calls, *self.calls))


class Asker(msgspec.Struct, frozen=True, kw_only=True):
    """One of the two models, and how it is asked."""

    role: Literal["generator", "judge"]
    model: str
    sampling: Sampling


@dataclass(frozen=True)
class Workshop:
    """What every stage works with.

    Args:
        client: makes the calls.
        generator: the model that writes.
        judge: the model that checks.
        instructions: the templates.
        structured: whether providers are asked for structured output.
        at_once: items under way at the same time.
        finished: is told of each item that a stage is done with.
        archive, archived: see below.
    """

    client: Client
    generator: Asker
    judge: Asker
    instructions: Instructions
    structured: bool = True
    at_once: int = 512
    finished: Callable[[], None] = lambda: None
    archive: Client | None = None
    """Answers from the ledger alone, for what is not to be called anew."""
    archived: frozenset[Purpose] = frozenset()
    """What is not to be called anew: the purposes of stages before the first one that is to be run."""

    async def ask(
        self,
        asker: Asker,
        instruction: Instruction,
        fills: Mapping[str, str],
        kind: type[R],
        *,
        about: str,
        epoch: int = 1,
        choices: dict[str, tuple[str, ...]] | None = None,
        check: Callable[[R], str | None] = lambda _: None,
    ) -> Asked[R] | Unusable:
        """Ask once, and at most twice more with what was wrong with the reply.

        Args:
            asker: whom.
            instruction: what.
            fills: the instruction's places.
            kind: the reply's type.
            about: id of the item, for tracing.
            epoch: tells equal questions apart that are asked again on purpose.
            choices: valid texts by key, for structured output.
            check: says what else is wrong with a reply, or None.

        Raises:
            ModelStopped, Stopped: see `Client.ask`.
        """
        sampling = asker.sampling
        if self.structured:
            sampling = msgspec.structs.replace(sampling, json_schema=json_schema(kind, choices))
        client = self.archive if self.archive and instruction.role in self.archived else self.client
        messages: tuple[Message, ...] = (instruction.render(fills),)
        refs: tuple[CallRef, ...] = ()
        said = problem = ""
        for attempt in range(1 + REASKS):
            call = Call(
                model=asker.model,
                messages=messages,
                sampling=sampling,
                purpose=_purpose(instruction),
                epoch=epoch,
                attempt=attempt,
                template=instruction.name,
                template_hash=instruction.hash,
                subject=Subject(about, "", epoch),
            )
            refs = (*refs, CallRef(call.purpose, asker.model, client.key_of(call).hex()))
            match await client.ask(call):
                case Refused(reason=why):
                    return Unusable("refused", f"the {asker.role}'s provider: {why}", refs)
                case Failed(kind=kind_of_failure, error=error):
                    reason: Reason = "not_made" if kind_of_failure == "not_made" else "call_failed"
                    return Unusable(reason, f"{asker.model}: {kind_of_failure}: {error}", refs)
                case Answered(text=said):
                    reply = read_json(said, kind)
                    if not isinstance(reply, str) and reply.refusal.strip():
                        return Unusable("refused", f"the {asker.role}: {one_line(reply.refusal, _SAID)}", refs)
                    problem = reply if isinstance(reply, str) else check(reply) or ""
                    if not isinstance(reply, str) and not problem:
                        return Asked(reply, refs)
                    messages = (
                        *messages,
                        Message("assistant", (said or "(no reply)",)),
                        self._reminder(instruction, fills, problem),
                    )
        if looks_like_refusal(said):
            return Unusable("refused", f"the {asker.role}: {one_line(said, _SAID)}", refs)
        return Unusable("malformed", f"the {asker.role}'s last reply: {problem}", refs)

    def _reminder(self, instruction: Instruction, fills: Mapping[str, str], problem: str) -> Message:
        said = {"problem": f"{problem}.", "contract": instruction.closing(fills)}
        return self.instructions.reask.render(said)


def _purpose(instruction: Instruction) -> Purpose:
    assert instruction.role != "reask"  # it only ever follows another one
    return instruction.role


async def each(workshop: Workshop, items: Sequence[T], work: Callable[[T], Awaitable[U]]) -> list[U]:
    """Work on many items at once; return what came of each, in their order.

    When one ends with an error, those in flight are let finish and be recorded, and none is begun.

    Raises:
        Stopped: the generator or the judge does not answer any more, or a budget is used up.
        InputError: the ledger cannot be written.
    """

    async def finish(item: T) -> U:
        made = await work(item)
        workshop.finished()
        return made

    return await for_each(workshop.client, items, finish, at_once=workshop.at_once)
