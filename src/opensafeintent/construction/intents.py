"""Stage 4: the judge says which intent each prompt has; wrong ones are repaired, one prompt at a
time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import msgspec

from opensafeintent.calls.draining import side_by_side
from opensafeintent.calls.records import Purpose
from opensafeintent.construction.asking import Reply, StageContext, each
from opensafeintent.construction.records import Draft, Reason, StageResult
from opensafeintent.construction.repairs import DraftWork, RepairReply
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


class _Repair(DraftWork):
    """One draft on its way to the right intents."""

    def __init__(self, context: StageContext, draft: Draft) -> None:
        super().__init__(context, draft)
        self._said: dict[Intent, str] = {}
        """What the judge said of each prompt last."""

    async def work(self) -> None:
        await self._read(*CORE_VARIANTS)
        for intent in CORE_VARIANTS:
            for _ in range(REPAIRS):
                if complaint_of_intent(self.draft, intent) is None:
                    break
                await self._repair(intent)
            if (wrong := complaint_of_intent(self.draft, intent)) is not None:
                reason, what = wrong
                said = self._said[intent]
                self.drop(
                    reason, f"the {intent} prompt still {what} after {REPAIRS} repairs: {said}"
                )

    async def _repair(self, intent: Intent) -> None:
        """Have one prompt rewritten and read again."""
        reading, leaning = self.draft.readings[intent], self.draft.leaning
        leans = reading == intent  # and all that can be wrong besides
        fault = leaning if leans and leaning else reading
        await self.mend(
            intent,
            RepairReply,
            why="leaning" if leans else "intent",
            reason=self.context.instructions.repair_reasons[intent][fault],
            said=self._said[intent],
        )
        await self._read(intent)

    async def _read(self, *intents: Intent) -> None:
        """Have the judge read some prompts, each alone, and keep what it says."""
        draft = self.draft
        answers = await side_by_side(
            *(
                self.context.ask(
                    IntentReply, {"request": draft.prompts.of(intent)}, about=draft.topic.id
                )
                for intent in intents
            )
        )
        for intent, reply in zip(intents, self.take(*answers), strict=True):
            self._said[intent] = " ".join(reply.reason.split())
            self.draft = read_as(self.draft, intent, reply)


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
