"""Stage 5: the judge checks that the three prompts are parallel and natural; then duplicates are dropped."""

from __future__ import annotations

from collections.abc import Sequence

from opensafeintent.construction.asking import Reply, StageContext, Unusable, Usable, each
from opensafeintent.construction.records import Draft, Reason, Rejection, StageResult
from opensafeintent.construction.similarity.index import CellIndex
from opensafeintent.construction.similarity.rouge import PAPER_THRESHOLD, Threshold
from opensafeintent.taxonomy import CORE_VARIANTS

__all__ = ["KeptPrompts", "QualityReply", "check_quality"]

_CHECKS: dict[str, Reason] = {
    "same_task": "task_not_parallel",
    "domain_right": "domain_wrong",
    "type_right": "type_wrong",
    "same_specificity": "specificity_differs",
    "natural": "unnatural",
    "free_of_artefacts": "artefacts",
}
"""The reason of each check that fails, the first one counting."""


class QualityReply(Reply, frozen=True):
    """What the judge says of a triplet."""

    purpose = "quality"

    same_task: bool
    domain_right: bool
    type_right: bool
    same_specificity: bool
    natural: bool
    free_of_artefacts: bool
    reason: str


class KeptPrompts:
    """The prompts of the sets that were kept so far, by cell."""

    def __init__(self) -> None:
        self._cells: dict[tuple[str, str], CellIndex] = {}

    def admit(self, draft: Draft) -> Draft | Rejection:
        """Return the draft, which is kept; or its rejection, where a prompt of it is too similar to one of an earlier set.

        Source: paper, section 2.1, stage 5: ROUGE-L between every prompt of one set and every prompt of another in the same
        cell, dropped above 0.7. Within one set prompts may be alike.
        """
        index = self._cells.setdefault(draft.topic.cell, CellIndex(Threshold(PAPER_THRESHOLD)))
        texts = {str(intent): draft.prompts.of(intent) for intent in CORE_VARIANTS}
        if twin := index.closest(texts):
            detail = (
                f"{twin.variant} and the {twin.twin_variant} prompt of topic {twin.twin}: ROUGE-L {twin.overlap.score:.3f}"
            )
            return Rejection.of(draft, "duplicate", detail, twin=twin.twin)
        index.add(draft.topic.id, texts)
        return draft


async def check_quality(context: StageContext, drafts: Sequence[Draft], kept: KeptPrompts) -> StageResult[Draft]:
    """Keep the drafts that pass the judge's checks and resemble no earlier set.

    Args:
        context: models and templates.
        drafts: in the order in which duplicates are decided: the earlier one stays.
        kept: prompts of the sets that were kept before; those of the sets kept now are added.

    Raises:
        Stopped: see `each`.
    """

    async def check(draft: Draft) -> Draft | Rejection:
        fills = context.labels(draft.topic.cell) | {intent: draft.prompts.of(intent) for intent in CORE_VARIANTS}
        match await context.ask(QualityReply, fills, about=draft.topic.id):
            case Unusable() as unusable:
                return unusable.reject(draft)
            case Usable(reply=reply, calls=calls):
                draft = draft.with_calls(calls)
                failed = [name for name in _CHECKS if not getattr(reply, name)]
                if not failed:
                    return draft
                detail = f"not {', '.join(failed)}: {' '.join(reply.reason.split())}"
                return Rejection.of(draft, _CHECKS[failed[0]], detail)

    checked = await each(context, drafts, check)
    return StageResult.of("quality", (item if isinstance(item, Rejection) else kept.admit(item) for item in checked))
