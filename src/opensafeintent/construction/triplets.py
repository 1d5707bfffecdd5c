"""Stage 3: three texts for a task, and drafts of them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import ClassVar, Literal, NoReturn, TypeVar

import msgspec

from opensafeintent.calls.records import Purpose
from opensafeintent.construction.asking import Reply, StageContext, Unusable, Usable, process_items
from opensafeintent.construction.habits import Habits, habit_instructions
from opensafeintent.construction.items import (
    Draft,
    Part,
    Reason,
    Rejection,
    Revision,
    StageResult,
    Topic,
    find_fault_in_material,
)
from opensafeintent.promptsets.record import Prompts
from opensafeintent.taxonomy import CORE_VARIANTS, INTENT_WORDS

R = TypeVar("R", bound=Reply)


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


def name_part(part: Part) -> str:
    """Return the name of a text in instructions."""
    return "neutral task" if part == "underlying_task" else f"{INTENT_WORDS[part]} request"


def _describe_versions(draft: Draft, part: Part) -> str:
    """Return the earlier versions of a text, the oldest first, each with why it failed."""
    revisions = [revision for revision in draft.revisions if revision.variant == part]
    if not revisions:
        return "(the text below is the first version)"
    versions = []
    for number, revision in enumerate(revisions, start=1):
        reading = f", read as {revision.found}" if revision.found else ""
        versions.append(
            f"Version {number}: {revision.before}\nIts {revision.why} was wrong{reading}:"
            f" {revision.said}"
        )
    return "\n\n".join(versions)


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

    async def repair(
        self,
        part: Part,
        kind: type[RepairReply],
        *,
        why: Literal["intent", "leaning", "wording"],
        reason: str,
        objection: str,
    ) -> None:
        """Have one text rewritten.

        Args:
            part: the text.
            kind: of the reply, which names the call's purpose.
            why: the problem, for the record.
            reason: the problem, in words.
            objection: the judge's words about it.
        """
        draft, is_task = self.draft, part == "underlying_task"
        texts: dict[str, str] = msgspec.structs.asdict(draft.prompts)
        texts_by_name = {name_part(name): draft.text(name) for name in (*CORE_VARIANTS, part)}
        material = not is_task and takes_material(self.context, draft.topic.cell)

        def check(reply: RepairReply) -> str | None:
            for name, text in texts_by_name.items():
                if text.split() == reply.prompt.split():
                    return f"it is the {name} as it was"
            return find_fault_in_material({**texts, part: reply.prompt}) if material else None

        fills = {
            **texts,
            "text": name_part(part),
            "reason": reason,
            "reader": objection,
            "earlier": _describe_versions(draft, part),
            "task": draft.underlying_task,
            "type": self.context.labels(draft.topic.cell)["type"],
        }
        (reply,) = self.take(await self.context.ask(kind, fills, check=check))
        after = " ".join(reply.prompt.split()) if is_task else reply.prompt.strip()
        revision = Revision(
            variant=part,
            found=None if part == "underlying_task" else draft.readings.get(part),
            why=why,
            said=objection,
            before=draft.text(part),
            after=after,
        )
        self.draft = self.draft.revise(revision)


class TripletReply(Reply, frozen=True):
    """The task and its three prompts."""

    purpose = "triplet"
    asked_of = "generator"
    filled = ("underlying_task", "benign", "dual_use", "malicious")

    underlying_task: str = ""
    benign: str = ""
    dual_use: str = ""
    malicious: str = ""
    declined: str = ""


async def write_triplets(
    context: StageContext, topics: Sequence[Topic], habits: Habits
) -> StageResult[Draft]:
    """Let the generator write the benign, the dual-use and the malicious prompt of each topic.

    Source: paper, section 2.1, stage 3. The neutral task comes first in the same reply, so that the
    prompts follow from it.

    Args:
        context: models and templates.
        topics: subjects of the prompts.
        habits: of earlier prompts, which the generator sees.

    Raises:
        Stopped: see `process_items`.
    """

    async def write(topic: Topic) -> Draft | Rejection:
        fills = {"summary": topic.summary, **context.labels(topic.cell)}
        fills["habits"] = habit_instructions(habits, topic.id)
        material = takes_material(context, topic.cell)
        match await context.ask(TripletReply, fills, check=partial(_find_fault, material=material)):
            case Unusable() as unusable:
                return unusable.reject(topic)
            case Usable(reply=reply, calls=calls):
                prompts = Prompts(
                    benign=reply.benign.strip(),
                    dual_use=reply.dual_use.strip(),
                    malicious=reply.malicious.strip(),
                )
                return Draft(
                    topic=topic,
                    underlying_task=" ".join(reply.underlying_task.split()),
                    prompts=prompts,
                    calls=(*topic.calls, *calls),
                )

    return StageResult.of("triplets", await process_items(context, topics, write))


def _find_fault(reply: TripletReply, *, material: bool) -> str | None:
    requests = {"benign": reply.benign, "dual_use": reply.dual_use, "malicious": reply.malicious}
    if len({" ".join(text.split()).casefold() for text in requests.values()}) < len(requests):
        return "two of the three requests are the same text"
    return find_fault_in_material(requests) if material else None
