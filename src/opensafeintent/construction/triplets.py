"""Stage 3: from each topic one neutral task, worded as three prompts that differ in intent alone."""

from __future__ import annotations

from collections.abc import Sequence

from opensafeintent.construction.asking import Reply, StageContext, Unusable, Usable, each
from opensafeintent.construction.records import Draft, Rejection, StageResult, Topic
from opensafeintent.promptsets.record import Prompts

__all__ = ["TripletReply", "write_triplets"]


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


async def write_triplets(context: StageContext, topics: Sequence[Topic]) -> StageResult[Draft]:
    """Let the generator write the benign, the dual-use and the malicious prompt of each topic.

    Source: paper, section 2.1, stage 3. The neutral task comes first in the same reply, so that the prompts follow from it.

    Raises:
        Stopped: see `each`.
    """

    async def write(topic: Topic) -> Draft | Rejection:
        fills = {"summary": topic.summary, **context.labels(topic.cell)}
        match await context.ask(TripletReply, fills, about=topic.id, check=_check):
            case Unusable() as unusable:
                return unusable.reject(topic)
            case Usable(reply=reply, calls=calls):
                prompts = Prompts(
                    benign=reply.benign.strip(), dual_use=reply.dual_use.strip(), malicious=reply.malicious.strip()
                )
                task = " ".join(reply.underlying_task.split())
                return Draft(topic=topic, underlying_task=task, prompts=prompts, calls=(*topic.calls, *calls))

    return StageResult.of("triplets", await each(context, topics, write))


def _check(reply: TripletReply) -> str | None:
    prompts = {" ".join(text.split()).casefold() for text in (reply.benign, reply.dual_use, reply.malicious)}
    return None if len(prompts) == 3 else "two of the three requests are the same text"
