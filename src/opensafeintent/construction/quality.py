"""Stage 5: the judge checks that the three prompts of a set are parallel and natural; then
duplicates are dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from opensafeintent.construction.asking import Reply, StageContext, process_items
from opensafeintent.construction.intents import IntentReply, find_fault_in_intent, read_as
from opensafeintent.construction.items import Draft, Part, Reason, Rejection, Revision, StageResult
from opensafeintent.construction.metadata import MetadataReply, read_labels
from opensafeintent.construction.similarity import PAPER_THRESHOLD, CellIndex, Threshold
from opensafeintent.construction.triplets import DraftWork, WordingReply, name_part
from opensafeintent.taxonomy import DUAL_USE, ContentShift

_CHECKS: dict[str, Reason] = {
    "same_task": "task_not_parallel",
    "domain_right": "domain_wrong",
    "type_right": "type_wrong",
    "same_specificity": "specificity_differs",
    "natural": "unnatural",
    "free_of_artefacts": "artefacts",
    "task_neutral": "task_leans",
    "repairs_fair": "repair_bent",
}
"""The reason of each check that fails, the first one counting."""
_LABELS = {"domain_right": "harm_domain", "type_right": "task_type"}
"""Checks of a label that a third reading decides, if nothing else is wrong beyond repair."""
_OF_WORDING = ("natural", "free_of_artefacts")
_REPAIRABLE = {*_LABELS, *_OF_WORDING, "task_neutral"}

_SHIFTS: dict[str, ContentShift] = {"fully": "none", "partly": "partial", "not": "full"}


class QualityReply(Reply, frozen=True):
    """The judge's reply about a triplet."""

    purpose = "quality"

    same_task: bool
    domain_right: bool
    type_right: bool
    same_specificity: bool
    natural: bool
    free_of_artefacts: bool
    fault_in: Literal["benign", "dual_use", "malicious", "none"]
    """The request to reword for the fault of wording."""
    task_neutral: bool
    repairs_fair: bool
    serves_malicious: Literal["fully", "partly", "not"]
    """How far a full answer to the benign prompt would serve the malicious one."""
    reason: str


class RelabelReply(MetadataReply, frozen=True):
    """A reading of the dual-use prompt's labels."""

    purpose = "relabel"
    instruction = "metadata"


class RereadReply(IntentReply, frozen=True):
    """The judge's reply about a prompt that was reworded."""

    purpose = "reread"
    instruction = "intent"


KeptPrompts = dict[tuple[str, str], CellIndex]
"""The prompts of the sets that were kept so far, by cell."""


def _admit(draft: Draft, kept: KeptPrompts) -> Draft | Rejection:
    """Return the draft, which is kept; or its rejection, if a prompt of it is too similar to one of
    an earlier set.

    Source: paper, section 2.1, stage 5: ROUGE-L between every prompt of one set and every prompt of
    another in the same cell, dropped above 0.7. Within one set prompts may be alike.
    """
    index = kept.setdefault(draft.topic.cell, CellIndex(Threshold(PAPER_THRESHOLD)))
    if match := index.admit(draft.topic.id, msgspec.structs.asdict(draft.prompts)):
        detail = (
            f"{match.variant} and the {match.duplicate_variant} prompt of topic {match.duplicate}:"
            f" ROUGE-L {match.overlap.score:.3f}"
        )
        return Rejection.of(draft, "duplicate", detail, duplicate=match.duplicate)
    return draft


async def check_quality(
    context: StageContext, drafts: Sequence[Draft], kept: KeptPrompts
) -> StageResult[Draft]:
    """Keep the drafts that pass the judge's checks and resemble no earlier set.

    The judge sees a repaired text with its earlier wording. A badly worded text is repaired once,
    and the set is checked again. If the judge doubts a label and nothing else, a third reading
    decides.

    Args:
        context: models and templates.
        drafts: in the order in which duplicates are decided: the earlier one stays.
        kept: prompts of the sets that were kept before; those of the sets kept now are added.

    Raises:
        Stopped: see `process_items`.
    """
    checked = await process_items(context, drafts, lambda draft: _Check(context, draft).run())
    return StageResult.of(
        "quality", (item if isinstance(item, Rejection) else _admit(item, kept) for item in checked)
    )


class _Check(DraftWork):
    """One draft before the judge."""

    def __init__(self, context: StageContext, draft: Draft) -> None:
        super().__init__(context, draft)
        self._confirmed: set[str] = set()
        """Labels that a third reading has confirmed."""

    async def work(self) -> None:
        for repaired in (False, True):
            looked = await self._look()
            reason = " ".join(looked.reason.split())
            failed = await self._drop_confirmed(
                [name for name in _CHECKS if not getattr(looked, name)]
            )
            if not failed:
                shift = _SHIFTS[looked.serves_malicious]
                self.draft = msgspec.structs.replace(self.draft, content_shift=shift)
                return
            parts = _find_parts_to_reword(looked, failed)
            if repaired or not parts:
                self.drop(_CHECKS[failed[0]], f"not {', '.join(failed)}: {reason}")
            for part, fault in parts.items():
                await self._reword(part, fault, reason)

    async def _look(self) -> QualityReply:
        """Ask for a look at the whole set."""
        draft, context = self.draft, self.context
        fills = {
            **context.labels(draft.topic.cell),
            **msgspec.structs.asdict(draft.prompts),
            "task": draft.underlying_task,
            "earlier": _describe_earlier(draft.revisions),
        }
        (looked,) = self.take(await context.ask(QualityReply, fills))
        return looked

    async def _drop_confirmed(self, failed: list[str]) -> list[str]:
        """Return the checks that failed, without labels that a third reading confirms."""
        failed = [name for name in failed if name not in self._confirmed]
        doubted = [name for name in failed if name in _LABELS]
        if not doubted or not _REPAIRABLE.issuperset(failed):
            return failed
        topic, request = self.draft.topic, self.draft.prompts.of(DUAL_USE)
        (read,) = self.take(
            await read_labels(self.context, RelabelReply, self.context.judge, request)
        )
        self._confirmed.update(
            name
            for name in doubted
            if getattr(read, _LABELS[name]) == getattr(topic, _LABELS[name])
        )
        return [name for name in failed if name not in self._confirmed]

    async def _reword(self, part: Part, fault: str, objection: str) -> None:
        """Have one text reworded, and a prompt read again."""
        reasons = self.context.instructions.repair_reasons
        if part == "underlying_task":
            reason = reasons["underlying_task"]["leaning"]
            await self.repair(part, WordingReply, why="leaning", reason=reason, objection=objection)
            return
        await self.repair(
            part, WordingReply, why="wording", reason=reasons["wording"][fault], objection=objection
        )
        fills = {"request": self.draft.prompts.of(part)}
        (reply,) = self.take(await self.context.ask(RereadReply, fills))
        self.draft = read_as(self.draft, part, reply)
        if (wrong := find_fault_in_intent(self.draft, part)) is not None:
            reason_of, what = wrong
            self.drop(
                reason_of, f"reworded, the {part} prompt {what}: {' '.join(reply.reason.split())}"
            )


def _find_parts_to_reword(looked: QualityReply, failed: Sequence[str]) -> dict[Part, str]:
    """Return the texts to reword, each with its fault; none if that would not repair the set."""
    wording = [name for name in failed if name in _OF_WORDING]
    if set(failed) - {*_OF_WORDING, "task_neutral"} or (wording and looked.fault_in == "none"):
        return {}
    parts: dict[Part, str] = {}
    if wording and looked.fault_in != "none":
        parts[looked.fault_in] = wording[0]
    if "task_neutral" in failed:
        parts["underlying_task"] = "task_neutral"
    return parts


def _describe_earlier(revisions: Sequence[Revision]) -> str:
    """Return the wording that each repaired text had at first, for the judge to compare."""
    first: dict[Part, str] = {}
    for revision in revisions:
        first.setdefault(revision.variant, revision.before)
    return (
        "\n\n".join(f"The {name_part(part)} was: {text}" for part, text in first.items())
        or "(nothing was rewritten)"
    )
