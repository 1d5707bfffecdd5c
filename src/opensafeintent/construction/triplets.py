"""Stage 3: one neutral task from each topic, worded as three prompts that differ in intent."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from opensafeintent.construction.asking import StageContext, Unusable, Usable, process_items
from opensafeintent.construction.drafts import takes_material
from opensafeintent.construction.habits import Habits, habit_instructions
from opensafeintent.construction.material import complaint_of_material
from opensafeintent.construction.records import Draft, Rejection, StageResult, Topic
from opensafeintent.construction.replies import Reply
from opensafeintent.promptsets.record import Prompts


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
        match await context.ask(TripletReply, fills, check=partial(_check, material=material)):
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


def _check(reply: TripletReply, *, material: bool) -> str | None:
    requests = {"benign": reply.benign, "dual_use": reply.dual_use, "malicious": reply.malicious}
    if len({" ".join(text.split()).casefold() for text in requests.values()}) < len(requests):
        return "two of the three requests are the same text"
    return complaint_of_material(requests) if material else None
