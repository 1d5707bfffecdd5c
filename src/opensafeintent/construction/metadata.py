"""Stage 1: from each unsafe seed, generator and judge independently write a topic summary, harm domain and task type."""

from __future__ import annotations

from collections.abc import Sequence

from opensafeintent.calls.draining import side_by_side
from opensafeintent.construction.asking import (
    ModelRole,
    Reply,
    StageContext,
    Unusable,
    Usable,
    complaint_of_choice,
    complaint_of_summary,
    each,
)
from opensafeintent.construction.records import Rejection, Seed, StageResult, Topic
from opensafeintent.templates.instruction import described

__all__ = ["MetadataReply", "describe_seeds"]


class MetadataReply(Reply, frozen=True):
    """What a model says of a seed."""

    purpose = "metadata"
    filled = ("summary",)

    unsafe: bool
    summary: str
    harm_domain: str
    task_type: str


async def describe_seeds(context: StageContext, seeds: Sequence[Seed]) -> StageResult[Topic]:
    """Keep the seeds on whose labels generator and judge agree, each as a topic with the generator's summary.

    Source: paper, section 2.1, stage 1. The authors' code lets the judge only verify the generator's labels; here it writes
    its own, unseen by the other, as the paper has it.

    Raises:
        Stopped: see `each`.
    """

    async def describe(seed: Seed) -> Topic | Rejection:
        by_generator, by_judge = await side_by_side(
            _ask(context, context.generator, seed), _ask(context, context.judge, seed)
        )
        calls = (*by_generator.calls, *by_judge.calls)
        for answer in (by_generator, by_judge):
            if isinstance(answer, Unusable):
                return Rejection.of(seed, answer.reason, answer.detail, calls=calls)
        assert isinstance(by_generator, Usable) and isinstance(by_judge, Usable)
        one, other = by_generator.reply, by_judge.reply
        if not one.unsafe and not other.unsafe:
            return Rejection.of(seed, "both_say_safe", calls=calls)
        if (one.harm_domain, one.task_type) != (other.harm_domain, other.task_type):
            labels = [f"{reply.harm_domain} / {reply.task_type}" for reply in (one, other)]
            return Rejection.of(seed, "labels_disagree", f"generator: {labels[0]}; judge: {labels[1]}", calls=calls)
        summary = " ".join(one.summary.split())
        return Topic(summary=summary, harm_domain=one.harm_domain, task_type=one.task_type, seed=seed, calls=calls)

    return StageResult.of("metadata", await each(context, seeds, describe))


async def _ask(context: StageContext, by: ModelRole, seed: Seed) -> Usable[MetadataReply] | Unusable:
    taxonomy = context.taxonomy

    def check(reply: MetadataReply) -> str | None:
        return (
            complaint_of_choice("harm_domain", reply.harm_domain, taxonomy.domain_names)
            or complaint_of_choice("task_type", reply.task_type, taxonomy.type_names)
            or complaint_of_summary("summary", reply.summary)
        )

    fills = {
        "request": seed.prompt,
        "domains": "\n".join(f"- {described(domain)}" for domain in taxonomy.harm_domains),
        "types": "\n".join(f"- {described(task)}" for task in taxonomy.task_types),
    }
    choices = {"harm_domain": taxonomy.domain_names, "task_type": taxonomy.type_names}
    return await context.ask(MetadataReply, fills, about=seed.id, by=by, choices=choices, check=check)
