"""Stage 4: the judge says which intent each prompt has; wrong ones are repaired, one prompt at a
time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import msgspec

from opensafeintent.calls.draining import side_by_side
from opensafeintent.calls.records import Purpose
from opensafeintent.construction.asking import Reply, StageContext, Unusable, Usable, each
from opensafeintent.construction.records import Draft, Reason, Rejection, StageResult
from opensafeintent.construction.repairs import RepairReply, mended
from opensafeintent.taxonomy import CORE_VARIANTS, DUAL_USE, Intent
from opensafeintent.templates.instruction import Leaning, Reading

REPAIRS = 3
"""Repairs of one prompt at most."""

PURPOSES_LEANT_TO: dict[Leaning, str] = {
    "honest": "an honest purpose",
    "harmful": "a harmful purpose",
}

_READINGS: dict[tuple[bool, bool], Reading] = {
    (True, False): "benign",
    (True, True): "dual_use",
    (False, True): "malicious",
    (False, False): "neither",
}


class IntentReply(Reply, frozen=True):
    """What the judge says of one prompt."""

    purpose: ClassVar[Purpose] = "intent"

    benign_use_plausible: bool
    misuse_risk_meaningful: bool
    leans: Leaning
    reason: str

    @property
    def reading(self) -> Reading:
        """The intent that the first two answers amount to (paper, section 2.1, stage 4)."""
        return _READINGS[self.benign_use_plausible, self.misuse_risk_meaningful]


async def check_intents(context: StageContext, drafts: Sequence[Draft]) -> StageResult[Draft]:
    """Keep the drafts whose three prompts have the intents that they should have, after repairs
    where it takes them.

    The judge sees one prompt alone, without its label. A wrong prompt goes back to the generator
    with the reason, and only the new text is judged again; after `REPAIRS` repairs of one prompt
    the draft is dropped. A dual-use prompt is wrong as well where its wording leans towards an
    honest or a harmful purpose.

    Raises:
        Stopped: see `each`.
    """
    return StageResult.of(
        "intents", await each(context, drafts, lambda draft: _Repair(context, draft).run())
    )


class _Repair:
    """One draft on its way to the right intents."""

    def __init__(self, context: StageContext, draft: Draft) -> None:
        self._context = context
        self._draft = draft
        self._said: dict[Intent, str] = {}
        """What the judge said of each prompt last."""

    async def run(self) -> Draft | Rejection:
        answers = await side_by_side(
            *(self._read(self._draft.prompts.of(intent)) for intent in CORE_VARIANTS)
        )
        for intent, answer in zip(CORE_VARIANTS, answers, strict=True):
            self._note(intent, answer)
        draft = self._draft
        self._draft = msgspec.structs.replace(
            draft, first_readings=draft.readings, first_leaning=draft.leaning
        )
        for answer in answers:
            if isinstance(answer, Unusable):
                return self._reject(answer)
        for intent in CORE_VARIANTS:
            for _ in range(REPAIRS):
                if complaint_of_intent(self._draft, intent) is None:
                    break
                if (unusable := await self._repair(intent)) is not None:
                    return self._reject(unusable)
            if (found := complaint_of_intent(self._draft, intent)) is not None:
                reason, what = found
                detail = (
                    f"the {intent} prompt still {what} after {REPAIRS} repairs:"
                    f" {self._said[intent]}"
                )
                return Rejection.of(self._draft, reason, detail)
        return self._draft

    async def _repair(self, intent: Intent) -> Unusable | None:
        """Have one prompt rewritten and read again; return what kept that from being done."""
        context, draft = self._context, self._draft
        reading, leaning = draft.readings[intent], draft.leaning
        leans = reading == intent  # and all that can be wrong besides
        fault = leaning if leans and leaning else reading
        self._draft, unusable = await mended(
            context,
            draft,
            intent,
            RepairReply,
            why="leaning" if leans else "intent",
            reason=context.instructions.repair_reasons[intent][fault],
            said=self._said[intent],
        )
        if unusable is not None:
            return unusable
        answer = await self._read(self._draft.prompts.of(intent))
        self._note(intent, answer)
        return answer if isinstance(answer, Unusable) else None

    async def _read(self, prompt: str) -> Usable[IntentReply] | Unusable:
        return await self._context.ask(IntentReply, {"request": prompt}, about=self._draft.topic.id)

    def _note(self, intent: Intent, answer: Usable[IntentReply] | Unusable) -> None:
        """Keep what the judge said of a prompt."""
        self._draft = self._draft.with_calls(answer.calls)
        if isinstance(answer, Usable):
            self._said[intent] = " ".join(answer.reply.reason.split())
            self._draft = read_as(self._draft, intent, answer.reply)

    def _reject(self, unusable: Unusable) -> Rejection:
        return Rejection.of(self._draft, unusable.reason, unusable.detail)


def read_as(draft: Draft, intent: Intent, reply: IntentReply) -> Draft:
    """Return the draft with what the judge found in one of its prompts."""
    draft = msgspec.structs.replace(draft, readings={**draft.readings, intent: reply.reading})
    return msgspec.structs.replace(draft, leaning=reply.leans) if intent == DUAL_USE else draft


def complaint_of_intent(draft: Draft, intent: Intent) -> tuple[Reason, str] | None:
    """Say what is wrong with the intent that a prompt was read as, as a reason and in words; None
    where nothing is.
    """
    reading, leaning = draft.readings[intent], draft.leaning
    if reading != intent:
        return "wrong_intent", f"reads as {reading}"
    if intent == DUAL_USE and leaning in PURPOSES_LEANT_TO:
        return "leans", f"leans towards {PURPOSES_LEANT_TO[leaning]}"
    return None
