"""One draft on its way through a stage: a text of it goes back to the generator with what is wrong
with it, and the others stay as they are.
"""

from __future__ import annotations

from typing import ClassVar, Literal, NoReturn, TypeVar

from opensafeintent.calls.records import Purpose
from opensafeintent.construction.asking import Reply, StageContext, Unusable, Usable
from opensafeintent.construction.material import complaint_of_material
from opensafeintent.construction.records import Draft, Part, Reason, Rejection, Revision
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
    """Tell whether the requests of a cell hold what is to be worked on."""
    return next(task.takes_material for task in context.taxonomy.task_types if task.name == cell[1])


def name_of(part: Part) -> str:
    """Return what a text is called in instructions."""
    return "neutral task" if part == "underlying_task" else f"{INTENT_WORDS[part]} request"


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
        """Do what the stage does with the draft; `drop` and `take` end it."""
        raise NotImplementedError

    def drop(self, reason: Reason, detail: str) -> NoReturn:
        """Drop the draft."""
        raise _Dropped(Rejection.of(self.draft, reason, detail))

    def take(self, *answers: Usable[R] | Unusable) -> list[R]:
        """Note the calls of some answers, and return the replies; drop the draft if one is
        unusable.
        """
        self.draft = self.draft.with_calls(call for answer in answers for call in answer.calls)
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
            part: which text.
            kind: of the reply, which says what the call is for.
            why: what is wrong with it, for the record.
            reason: what is wrong with it, in words.
            said: what the judge said of it.
        """
        draft, is_task = self.draft, part == "underlying_task"
        texts: dict[str, str] = {variant: draft.prompts.of(variant) for variant in CORE_VARIANTS}
        names: dict[str, str] = {name_of(variant): draft.text(variant) for variant in CORE_VARIANTS}
        before = draft.text(part)
        names[name_of(part)] = before
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
            "task": draft.underlying_task,
            "type": self.context.labels(draft.topic.cell)["type"],
        }
        (reply,) = self.take(await self.context.ask(kind, fills, about=draft.topic.id, check=check))
        after = " ".join(reply.prompt.split()) if is_task else reply.prompt.strip()
        found = None if part == "underlying_task" else draft.readings.get(part)
        revision = Revision(
            variant=part, found=found, why=why, said=said, before=before, after=after
        )
        self.draft = self.draft.revised(revision)
