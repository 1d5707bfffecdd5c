"""Stage 4: the judge says which intent each prompt has; wrong ones are repaired, one prompt at a time."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from opensafeintent.calls.draining import side_by_side
from opensafeintent.construction.asking import Reply, StageContext, Unusable, Usable, each
from opensafeintent.construction.records import Draft, Rejection, Revision, StageResult
from opensafeintent.taxonomy import CORE_VARIANTS, INTENT_WORDS, Intent
from opensafeintent.templates.instruction import Reading

__all__ = ["REPAIRS", "IntentReply", "RepairReply", "check_intents"]

REPAIRS = 3
"""Repairs of one prompt at most."""

_READINGS: dict[tuple[bool, bool], Reading] = {
    (True, False): "benign",
    (True, True): "dual_use",
    (False, True): "malicious",
    (False, False): "neither",
}


class IntentReply(Reply, frozen=True):
    """What the judge says of one prompt."""

    purpose = "intent"

    benign_use_plausible: bool
    misuse_risk_meaningful: bool
    reason: str

    @property
    def reading(self) -> Reading:
        """The intent that the two answers amount to (paper, section 2.1, stage 4)."""
        return _READINGS[self.benign_use_plausible, self.misuse_risk_meaningful]


class RepairReply(Reply, frozen=True):
    """The new text of a prompt."""

    purpose = "repair"
    asked_of = "generator"
    filled = ("prompt",)

    prompt: str = ""
    declined: str = ""


async def check_intents(context: StageContext, drafts: Sequence[Draft]) -> StageResult[Draft]:
    """Keep the drafts whose three prompts have the intents that they should have, after repairs where it takes them.

    The judge sees one prompt alone, without its label. A wrong prompt goes back to the generator with the reason, and only
    the new text is judged again; after `REPAIRS` repairs of one prompt the draft is dropped.

    Raises:
        Stopped: see `each`.
    """
    return StageResult.of("intents", await each(context, drafts, lambda draft: _Repair(context, draft).run()))


class _Repair:
    """One draft on its way to the right intents."""

    def __init__(self, context: StageContext, draft: Draft) -> None:
        self._context = context
        self._draft = draft
        self._said: dict[Intent, str] = {}
        """What the judge said of each prompt last."""

    async def run(self) -> Draft | Rejection:
        answers = await side_by_side(*(self._read(self._draft.prompts.of(intent)) for intent in CORE_VARIANTS))
        for intent, answer in zip(CORE_VARIANTS, answers, strict=True):
            self._note(intent, answer)
        self._draft = msgspec.structs.replace(self._draft, first_readings=self._draft.readings)
        for answer in answers:
            if isinstance(answer, Unusable):
                return self._reject(answer)
        for intent in CORE_VARIANTS:
            for _ in range(REPAIRS):
                if self._draft.readings[intent] == intent:
                    break
                if (unusable := await self._repair(intent)) is not None:
                    return self._reject(unusable)
            if (reading := self._draft.readings[intent]) != intent:
                detail = f"the {intent} prompt still reads as {reading} after {REPAIRS} repairs: {self._said[intent]}"
                return Rejection.of(self._draft, "wrong_intent", detail)
        return self._draft

    async def _repair(self, intent: Intent) -> Unusable | None:
        """Have one prompt rewritten and read again; return what kept that from being done."""
        draft, context = self._draft, self._context
        before, reading = draft.prompts.of(intent), draft.readings[intent]
        texts: dict[str, str] = {variant: draft.prompts.of(variant) for variant in CORE_VARIANTS}

        def check(reply: RepairReply) -> str | None:
            same = [variant for variant in CORE_VARIANTS if texts[variant].split() == reply.prompt.split()]
            return f"it is the {INTENT_WORDS[same[0]]} request as it was" if same else None

        fills = {
            **texts,
            "expected": INTENT_WORDS[intent],
            "reason": context.instructions.repair_reasons[intent][reading],
            "reader": self._said[intent],
            "task": draft.underlying_task,
            "type": context.labels(draft.topic.cell)["type"],
        }
        repaired = await context.ask(RepairReply, fills, about=draft.topic.id, check=check)
        draft = draft.with_calls(repaired.calls)
        if isinstance(repaired, Unusable):
            self._draft = draft
            return repaired
        after = repaired.reply.prompt.strip()
        revision = Revision(variant=intent, found=reading, said=self._said[intent], before=before, after=after)
        self._draft = msgspec.structs.replace(
            draft,
            prompts=msgspec.structs.replace(draft.prompts, **{intent: after}),
            revisions=(*draft.revisions, revision),
        )
        answer = await self._read(after)
        self._note(intent, answer)
        return answer if isinstance(answer, Unusable) else None

    async def _read(self, prompt: str) -> Usable[IntentReply] | Unusable:
        return await self._context.ask(IntentReply, {"request": prompt}, about=self._draft.topic.id)

    def _note(self, intent: Intent, answer: Usable[IntentReply] | Unusable) -> None:
        """Keep what the judge said of a prompt."""
        self._draft = self._draft.with_calls(answer.calls)
        if isinstance(answer, Usable):
            self._said[intent] = " ".join(answer.reply.reason.split())
            readings = {**self._draft.readings, intent: answer.reply.reading}
            self._draft = msgspec.structs.replace(self._draft, readings=readings)

    def _reject(self, unusable: Unusable) -> Rejection:
        return Rejection.of(self._draft, unusable.reason, unusable.detail)
