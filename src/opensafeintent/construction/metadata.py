"""Stage 1: a topic, a harm domain and a task type for each unsafe seed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import ClassVar, TypeVar

import msgspec

from opensafeintent.calls.client import side_by_side
from opensafeintent.calls.records import Purpose
from opensafeintent.construction.asking import (
    ModelRole,
    Reply,
    StageContext,
    Unusable,
    Usable,
    find_fault_in_choice,
    find_fault_in_summary,
    process_items,
)
from opensafeintent.construction.instructions import describe_category
from opensafeintent.construction.items import Rejection, Seed, StageResult, Topic
from opensafeintent.taxonomy import Category

M = TypeVar("M", bound="MetadataReply")


class MetadataReply(Reply, frozen=True):
    """A model's reading of a seed."""

    purpose: ClassVar[Purpose] = "metadata"
    filled = ("summary",)

    unsafe: bool
    summary: str
    harm_domain: str
    task_type: str


async def describe_seeds(context: StageContext, seeds: Sequence[Seed]) -> StageResult[Topic]:
    """Keep the seeds whose harm domain and task type two of three readings agree on, each with the
    generator's summary.

    Generator and judge read first. If they disagree, the judge reads once more, with the labels in
    reverse order and without the first readings, so that the reading differs at temperature 0 too.

    Source: paper, section 2.1, stage 1. The authors' code lets the judge only verify the
    generator's labels. Here, as in the paper, it writes its own without seeing the generator's.

    Raises:
        Stopped: see `process_items`.
    """

    async def describe(seed: Seed) -> Topic | Rejection:
        by_generator, by_judge = await side_by_side(
            *(
                read_labels(context, MetadataReply, by, seed.prompt)
                for by in (context.generator, context.judge)
            )
        )
        calls = (*by_generator.calls, *by_judge.calls)
        for answer in (by_generator, by_judge):
            if isinstance(answer, Unusable):
                return msgspec.structs.replace(answer.reject(seed), calls=calls)
        assert isinstance(by_generator, Usable) and isinstance(by_judge, Usable)
        first, second = by_generator.reply, by_judge.reply
        if not first.unsafe and not second.unsafe:
            return Rejection.of(seed, "both_say_safe", calls=calls)
        readings = [first, second]
        if (first.harm_domain, first.task_type) != (second.harm_domain, second.task_type):
            again = await read_labels(
                context, MetadataReply, context.judge, seed.prompt, turned=True
            )
            calls = (*calls, *again.calls)
            if isinstance(again, Unusable):
                return msgspec.structs.replace(again.reject(seed), calls=calls)
            readings.append(again.reply)
        domain = _majority(reading.harm_domain for reading in readings)
        task_type = _majority(reading.task_type for reading in readings)
        if domain is None or task_type is None:
            names = ("generator", "judge", "judge again")
            labels = (
                f"{name}: {reading.harm_domain} / {reading.task_type}"
                for name, reading in zip(names, readings, strict=True)
            )
            return Rejection.of(seed, "labels_disagree", "; ".join(labels), calls=calls)
        return Topic(
            summary=" ".join(first.summary.split()),
            harm_domain=domain,
            task_type=task_type,
            seed=seed,
            calls=calls,
        )

    return StageResult.of("metadata", await process_items(context, seeds, describe))


def _majority(labels: Iterable[str]) -> str | None:
    """Return the label that two readings or more give; None if there is none."""
    label, count = Counter(labels).most_common(1)[0]
    return label if count > 1 else None


async def read_labels(
    context: StageContext,
    kind: type[M],
    by: ModelRole,
    request: str,
    *,
    turned: bool = False,
) -> Usable[M] | Unusable:
    """Ask a model for the labels of a request, without showing any.

    Args:
        context: templates and taxonomy.
        kind: of the reply, which names the call's purpose.
        by: the model.
        request: the text.
        turned: whether the labels are listed in the reverse order.
    """
    taxonomy = context.taxonomy

    def check(reply: MetadataReply) -> str | None:
        return (
            find_fault_in_choice("harm_domain", reply.harm_domain, taxonomy.domain_names)
            or find_fault_in_choice("task_type", reply.task_type, taxonomy.type_names)
            or find_fault_in_summary("summary", reply.summary)
        )

    def list_categories(categories: Sequence[Category]) -> str:
        return "\n".join(
            f"- {describe_category(category)}"
            for category in (reversed(categories) if turned else categories)
        )

    fills = {
        "request": request,
        "domains": list_categories(taxonomy.harm_domains),
        "types": list_categories(taxonomy.task_types),
    }
    choices = {"harm_domain": taxonomy.domain_names, "task_type": taxonomy.type_names}
    return await context.ask(
        kind, fills, by=by, epoch=2 if turned else 1, choices=choices, check=check
    )
