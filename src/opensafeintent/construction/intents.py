"""Stage 4: the judge says which intent each prompt has, and failing prompts are repaired one at a
time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import msgspec

from opensafeintent.calls.client import side_by_side
from opensafeintent.calls.records import Purpose
from opensafeintent.construction.asking import Reply, StageContext, process_items
from opensafeintent.construction.instructions import Leaning, Reading
from opensafeintent.construction.items import Draft, Reason, StageResult
from opensafeintent.construction.triplets import DraftWork, RepairReply
from opensafeintent.taxonomy import CORE_VARIANTS, DUAL_USE, Intent

REPAIRS = 3
"""Repairs of one prompt at most."""
RISK_REPAIRS = 2
"""Of these, for want of risk: a topic that has none after them is given up."""

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


_WITHOUT_RISK = [reading for (_, risk), reading in _READINGS.items() if not risk]


class IntentReply(Reply, frozen=True):
    """The judge's reading of one prompt."""

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
    """Keep the drafts whose three prompts have their intended intents, after repairs if necessary.

    The judge sees one prompt alone, without its label. A wrong prompt goes back to the generator
    with the reason, and only the new text is judged again. After `REPAIRS` repairs of one prompt
    the draft is dropped. A dual-use prompt is also wrong if its wording suggests an honest or a
    harmful purpose.

    Raises:
        Stopped: see `process_items`.
    """
    return StageResult.of(
        "intents", await process_items(context, drafts, lambda draft: _Repair(context, draft).run())
    )


class _Repair(DraftWork):
    """One draft on its way to the right intents."""

    def __init__(self, context: StageContext, draft: Draft) -> None:
        super().__init__(context, draft)
        self._objections: dict[Intent, str] = {}
        """The judge's last words about each prompt."""

    async def work(self) -> None:
        await self._read(*CORE_VARIANTS)
        for intent in CORE_VARIANTS:
            riskless = repairs = 0
            while (wrong := find_fault_in_intent(self.draft, intent)) is not None:
                reason, what = wrong
                if repairs == REPAIRS:
                    self.drop(
                        reason,
                        f"the {intent} prompt still {what} after {REPAIRS} repairs:"
                        f" {self._objections[intent]}",
                    )
                repairs += 1
                lacking = intent != "benign" and self.draft.readings[intent] in _WITHOUT_RISK
                riskless = riskless + 1 if lacking else 0
                if riskless > RISK_REPAIRS:
                    self.drop(
                        "low_risk",
                        f"no real risk in the {intent} prompt after {RISK_REPAIRS} repairs:"
                        f" {self._objections[intent]}",
                    )
                await self._repair_prompt(intent)

    async def _repair_prompt(self, intent: Intent) -> None:
        """Have one prompt rewritten and read again."""
        reading, leaning = self.draft.readings[intent], self.draft.leaning
        leans = reading == intent  # and all that can be wrong besides
        fault = leaning if leans and leaning else reading
        await self.repair(
            intent,
            RepairReply,
            why="leaning" if leans else "intent",
            reason=self.context.instructions.repair_reasons[intent][fault],
            objection=self._objections[intent],
        )
        await self._read(intent)

    async def _read(self, *intents: Intent) -> None:
        """Have the judge read some prompts, each alone, and keep its readings."""
        draft = self.draft
        answers = await side_by_side(
            *(
                self.context.ask(IntentReply, {"request": draft.prompts.of(intent)})
                for intent in intents
            )
        )
        for intent, reply in zip(intents, self.take(*answers), strict=True):
            self._objections[intent] = " ".join(reply.reason.split())
            self.draft = read_as(self.draft, intent, reply)


def read_as(draft: Draft, intent: Intent, reply: IntentReply) -> Draft:
    """Return the draft with the judge's reading of one of its prompts."""
    draft = msgspec.structs.replace(draft, readings={**draft.readings, intent: reply.reading})
    return msgspec.structs.replace(draft, leaning=reply.leans) if intent == DUAL_USE else draft


def find_fault_in_intent(draft: Draft, intent: Intent) -> tuple[Reason, str] | None:
    """Describe the problem with the judge's reading of a prompt's intent, as a reason and in words;
    None if there is none.
    """
    reading, leaning = draft.readings[intent], draft.leaning
    if reading != intent:
        return "wrong_intent", f"reads as {reading}"
    if intent == DUAL_USE and leaning in PURPOSES_LEANT_TO:
        return "leans", f"leans towards {PURPOSES_LEANT_TO[leaning]}"
    return None
