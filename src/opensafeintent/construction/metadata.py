"""Stage 1: from each unsafe seed, generator and judge independently write a topic summary, harm domain and task type."""

from __future__ import annotations

from collections.abc import Sequence

from opensafeintent.calls.draining import side_by_side
from opensafeintent.construction.asking import Asked, Asker, Unusable, Workshop, each
from opensafeintent.construction.records import Rejection, Seed, StageResult, Topic
from opensafeintent.construction.replies import MetadataReply, complaint_of_choice, complaint_of_summary
from opensafeintent.taxonomy import Taxonomy
from opensafeintent.templates.instruction import described

__all__ = ["describe_seeds"]


async def describe_seeds(workshop: Workshop, seeds: Sequence[Seed], taxonomy: Taxonomy) -> StageResult[Topic]:
    """Keep the seeds on whose labels generator and judge agree, each as a topic with the generator's summary.

    Source: paper, section 2.1, stage 1. The authors' code lets the judge only verify the generator's labels; here it writes
    its own, unseen by the other, as the paper has it.

    Raises:
        Stopped: see `each`.
    """

    async def describe(seed: Seed) -> Topic | Rejection:
        by_generator, by_judge = await side_by_side(
            _ask(workshop, workshop.generator, seed, taxonomy), _ask(workshop, workshop.judge, seed, taxonomy)
        )
        calls = (*by_generator.calls, *by_judge.calls)
        for answer in (by_generator, by_judge):
            if isinstance(answer, Unusable):
                return Rejection(item=seed, reason=answer.reason, detail=answer.detail, calls=calls)
        assert isinstance(by_generator, Asked) and isinstance(by_judge, Asked)
        one, other = by_generator.reply, by_judge.reply
        if not one.unsafe and not other.unsafe:
            return Rejection(item=seed, reason="both_say_safe", calls=calls)
        if (one.harm_domain, one.task_type) != (other.harm_domain, other.task_type):
            labels = [f"{reply.harm_domain} / {reply.task_type}" for reply in (one, other)]
            detail = f"generator: {labels[0]}; judge: {labels[1]}"
            return Rejection(item=seed, reason="labels_disagree", detail=detail, calls=calls)
        return Topic(
            summary=" ".join(one.summary.split()),
            harm_domain=one.harm_domain,
            task_type=one.task_type,
            seed=seed,
            calls=calls,
        )

    made = await each(workshop, seeds, describe)
    return StageResult(
        stage="metadata",
        kept=tuple(item for item in made if isinstance(item, Topic)),
        rejected=tuple(item for item in made if isinstance(item, Rejection)),
    )


async def _ask(workshop: Workshop, asker: Asker, seed: Seed, taxonomy: Taxonomy) -> Asked[MetadataReply] | Unusable:
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
    instruction = workshop.instructions.metadata
    return await workshop.ask(asker, instruction, fills, MetadataReply, about=seed.id, choices=choices, check=check)
