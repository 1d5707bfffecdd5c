"""One text of a draft goes back to the generator with what is wrong with it; the others stay as
they are.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from opensafeintent.calls.records import Purpose
from opensafeintent.construction.asking import Reply, StageContext, Unusable
from opensafeintent.construction.material import complaint_of_material
from opensafeintent.construction.records import Draft, Part, Revision
from opensafeintent.taxonomy import CORE_VARIANTS, INTENT_WORDS


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


async def mended(
    context: StageContext,
    draft: Draft,
    part: Part,
    kind: type[RepairReply],
    *,
    why: Literal["intent", "leaning", "wording"],
    reason: str,
    said: str,
) -> tuple[Draft, Unusable | None]:
    """Have one text rewritten.

    Args:
        context: models and templates.
        draft: what the text is of.
        part: which text.
        kind: of the reply, which says what the call is for.
        why: what is wrong with it, for the record.
        reason: what is wrong with it, in words.
        said: what the judge said of it.

    Returns:
        The draft with the new text and the calls behind it; and what kept that from being done, if
        something did.

    Raises:
        ModelStopped, Stopped: see `StageContext.ask`.
    """
    texts: dict[str, str] = {variant: draft.prompts.of(variant) for variant in CORE_VARIANTS}
    before = draft.text(part)
    material = part != "underlying_task" and takes_material(context, draft.topic.cell)

    def check(reply: RepairReply) -> str | None:
        for variant in CORE_VARIANTS:
            if texts[variant].split() == reply.prompt.split():
                return f"it is the {name_of(variant)} as it was"
        if before.split() == reply.prompt.split():
            return f"it is the {name_of(part)} as it was"
        return complaint_of_material({**texts, part: reply.prompt}) if material else None

    fills = {
        **texts,
        "text": name_of(part),
        "reason": reason,
        "reader": said,
        "task": draft.underlying_task,
        "type": context.labels(draft.topic.cell)["type"],
    }
    repaired = await context.ask(kind, fills, about=draft.topic.id, check=check)
    draft = draft.with_calls(repaired.calls)
    if isinstance(repaired, Unusable):
        return draft, repaired
    found = None if part == "underlying_task" else draft.readings.get(part)
    after = repaired.reply.prompt.strip()
    if part == "underlying_task":
        after = " ".join(after.split())
    return draft.revised(
        Revision(variant=part, found=found, why=why, said=said, before=before, after=after)
    ), None
