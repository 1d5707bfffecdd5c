"""Stage 1: from each unsafe seed, generator and judge independently write a topic summary, harm
domain and task type.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import ClassVar, TypeVar

from opensafeintent.calls.draining import side_by_side
from opensafeintent.calls.records import Purpose
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
from opensafeintent.taxonomy import Category
from opensafeintent.templates.instruction import described

M = TypeVar("M", bound="MetadataReply")


class MetadataReply(Reply, frozen=True):
    """What a model says of a seed."""

    purpose: ClassVar[Purpose] = "metadata"
    filled = ("summary",)

    unsafe: bool
    summary: str
    harm_domain: str
    task_type: str


async def describe_seeds(context: StageContext, seeds: Sequence[Seed]) -> StageResult[Topic]:
    """Keep the seeds whose harm domain and task type two of three readings agree on, each with the
    generator's summary.

    Generator and judge read first; where they part, the judge reads once more, with the labels in
    the reverse order and without what was said before, so that it is another reading at temperature
    0 as well.

    Source: paper, section 2.1, stage 1. The authors' code lets the judge only verify the
    generator's labels; here it writes its own, unseen by the other, as the paper has it.

    Raises:
        Stopped: see `each`.
    """

    async def describe(seed: Seed) -> Topic | Rejection:
        by_generator, by_judge = await side_by_side(
            *(
                read_labels(context, MetadataReply, by, seed.prompt, seed.id)
                for by in (context.generator, context.judge)
            )
        )
        calls = (*by_generator.calls, *by_judge.calls)
        for answer in (by_generator, by_judge):
            if isinstance(answer, Unusable):
                return Rejection.of(seed, answer.reason, answer.detail, calls=calls)
        assert isinstance(by_generator, Usable) and isinstance(by_judge, Usable)
        one, other = by_generator.reply, by_judge.reply
        if not one.unsafe and not other.unsafe:
            return Rejection.of(seed, "both_say_safe", calls=calls)
        readings = [one, other]
        if (one.harm_domain, one.task_type) != (other.harm_domain, other.task_type):
            again = await read_labels(
                context, MetadataReply, context.judge, seed.prompt, seed.id, turned=True
            )
            calls = (*calls, *again.calls)
            if isinstance(again, Unusable):
                return Rejection.of(seed, again.reason, again.detail, calls=calls)
            readings.append(again.reply)
        domain = _majority(reading.harm_domain for reading in readings)
        task_type = _majority(reading.task_type for reading in readings)
        if domain is None or task_type is None:
            names = zip(("generator", "judge", "judge again"), readings, strict=True)
            labels = (
                f"{name}: {reading.harm_domain} / {reading.task_type}" for name, reading in names
            )
            return Rejection.of(seed, "labels_disagree", "; ".join(labels), calls=calls)
        summary = " ".join(one.summary.split())
        return Topic(
            summary=summary, harm_domain=domain, task_type=task_type, seed=seed, calls=calls
        )

    return StageResult.of("metadata", await each(context, seeds, describe))


def _majority(labels: Iterable[str]) -> str | None:
    """Return the label that two readings or more give; None where there is none."""
    label, count = Counter(labels).most_common(1)[0]
    return label if count > 1 else None


async def read_labels(
    context: StageContext,
    kind: type[M],
    by: ModelRole,
    request: str,
    about: str,
    *,
    turned: bool = False,
) -> Usable[M] | Unusable:
    """Ask a model what a request is, with no label in view.

    Args:
        context: templates and taxonomy.
        kind: of the reply, which says what the call is for.
        by: who is asked.
        request: the text.
        about: id of the item, for tracing.
        turned: whether the labels are listed in the reverse order.
    """
    taxonomy = context.taxonomy

    def check(reply: MetadataReply) -> str | None:
        return (
            complaint_of_choice("harm_domain", reply.harm_domain, taxonomy.domain_names)
            or complaint_of_choice("task_type", reply.task_type, taxonomy.type_names)
            or complaint_of_summary("summary", reply.summary)
        )

    def listed(categories: Sequence[Category]) -> str:
        return "\n".join(
            f"- {described(category)}"
            for category in (reversed(categories) if turned else categories)
        )

    fills = {
        "request": request,
        "domains": listed(taxonomy.harm_domains),
        "types": listed(taxonomy.task_types),
    }
    choices = {"harm_domain": taxonomy.domain_names, "task_type": taxonomy.type_names}
    return await context.ask(
        kind, fills, about=about, by=by, epoch=2 if turned else 1, choices=choices, check=check
    )
