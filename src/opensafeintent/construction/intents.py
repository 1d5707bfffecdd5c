"""Stage 4: the judge says which intent each prompt has; wrong ones are repaired, one prompt at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from opensafeintent.calls.draining import side_by_side
from opensafeintent.construction.asking import Asked, Unusable, Workshop, each
from opensafeintent.construction.records import CallRef, Draft, Rejection, Revision, StageResult
from opensafeintent.construction.replies import IntentReply, RepairReply
from opensafeintent.taxonomy import CORE_VARIANTS, Intent, Taxonomy
from opensafeintent.templates.instruction import Reading, described

__all__ = ["REPAIRS", "check_intents", "reading_of"]

REPAIRS = 3
"""Repairs of one prompt at most."""

_WRITTEN: dict[Intent, str] = {"benign": "benign", "dual_use": "dual-use", "malicious": "malicious"}


def reading_of(reply: IntentReply) -> Reading:
    """Return the intent that the judge's two answers amount to (paper, section 2.1, stage 4)."""
    readings: dict[tuple[bool, bool], Reading] = {
        (True, False): "benign",
        (True, True): "dual_use",
        (False, True): "malicious",
        (False, False): "neither",
    }
    return readings[reply.benign_use_plausible, reply.misuse_risk_meaningful]


async def check_intents(workshop: Workshop, drafts: Sequence[Draft], taxonomy: Taxonomy) -> StageResult[Draft]:
    """Keep the drafts whose three prompts have the intents that they should have, after repairs where it takes them.

    The judge sees one prompt alone, without its label. A wrong prompt goes back to the generator with the reason, and only
    the new text is judged again; after `REPAIRS` repairs of one prompt the draft is dropped.

    Raises:
        Stopped: see `each`.
    """
    types = {category.name: described(category) for category in taxonomy.task_types}

    async def check(draft: Draft) -> Draft | Rejection:
        return await _Repair(workshop, draft, types[draft.topic.task_type]).run()

    made = await each(workshop, drafts, check)
    return StageResult(
        stage="intents",
        kept=tuple(item for item in made if isinstance(item, Draft)),
        rejected=tuple(item for item in made if isinstance(item, Rejection)),
    )


class _Repair:
    """One draft on its way to the right intents."""

    def __init__(self, workshop: Workshop, draft: Draft, task_type: str) -> None:
        self._workshop = workshop
        self._draft = draft
        self._type = task_type
        self._said: dict[Intent, str] = {}

    async def run(self) -> Draft | Rejection:
        answers = await side_by_side(*(self._read(self._draft.prompts.of(intent)) for intent in CORE_VARIANTS))
        readings: dict[Intent, Reading] = {}
        for intent, answer in zip(CORE_VARIANTS, answers, strict=True):
            self._keep(answer.calls)
            if isinstance(answer, Asked):
                self._note(readings, intent, answer.reply)
        self._draft = msgspec.structs.replace(self._draft, first_readings=dict(readings), readings=readings)
        for answer in answers:
            if isinstance(answer, Unusable):
                return self._reject(answer)
        for intent in CORE_VARIANTS:
            for _ in range(REPAIRS):
                if self._draft.readings[intent] == intent:
                    break
                if (nothing := await self._mend(intent)) is not None:
                    return self._reject(nothing)
            if self._draft.readings[intent] != intent:
                found = self._draft.readings[intent]
                detail = f"the {intent} prompt still reads as {found} after {REPAIRS} repairs: {self._said[intent]}"
                return Rejection(item=self._draft, reason="wrong_intent", detail=detail, calls=self._draft.calls)
        return self._draft

    async def _mend(self, intent: Intent) -> Unusable | None:
        """Have one prompt written anew and read again; return what kept that from being done."""
        draft, workshop = self._draft, self._workshop
        before, found = draft.prompts.of(intent), draft.readings[intent]
        texts: dict[str, str] = {variant: draft.prompts.of(variant) for variant in CORE_VARIANTS}

        def check(reply: RepairReply) -> str | None:
            same = [variant for variant in CORE_VARIANTS if texts[variant].split() == reply.prompt.split()]
            return f"it is the {_WRITTEN[same[0]]} request as it was" if same else None

        fills: Mapping[str, str] = {
            **texts,
            "expected": _WRITTEN[intent],
            "reason": workshop.instructions.repair_reasons[intent][found],
            "reader": self._said[intent],
            "task": draft.underlying_task,
            "type": self._type,
        }
        repaired = await workshop.ask(
            workshop.generator, workshop.instructions.repair, fills, RepairReply, about=draft.topic.id, check=check
        )
        self._keep(repaired.calls)
        if isinstance(repaired, Unusable):
            return repaired
        after = repaired.reply.prompt.strip()
        revision = Revision(variant=intent, found=found, said=self._said[intent], before=before, after=after)
        self._draft = msgspec.structs.replace(
            self._draft,
            prompts=msgspec.structs.replace(draft.prompts, **{intent: after}),
            revisions=(*draft.revisions, revision),
        )
        answer = await self._read(after)
        self._keep(answer.calls)
        if isinstance(answer, Unusable):
            return answer
        readings = dict(self._draft.readings)
        self._note(readings, intent, answer.reply)
        self._draft = msgspec.structs.replace(self._draft, readings=readings)
        return None

    async def _read(self, prompt: str) -> Asked[IntentReply] | Unusable:
        workshop = self._workshop
        fills = {"request": prompt}
        return await workshop.ask(
            workshop.judge, workshop.instructions.intent, fills, IntentReply, about=self._draft.topic.id
        )

    def _note(self, readings: dict[Intent, Reading], intent: Intent, reply: IntentReply) -> None:
        readings[intent] = reading_of(reply)
        self._said[intent] = " ".join(reply.reason.split())

    def _keep(self, calls: tuple[CallRef, ...]) -> None:
        self._draft = msgspec.structs.replace(self._draft, calls=(*self._draft.calls, *calls))

    def _reject(self, nothing: Unusable) -> Rejection:
        return Rejection(item=self._draft, reason=nothing.reason, detail=nothing.detail, calls=self._draft.calls)
