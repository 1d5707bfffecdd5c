"""Stage 6: four paraphrases of the dual-use prompt, and its legitimate and harmful uses."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, floor

import msgspec

from opensafeintent.calls.client import side_by_side
from opensafeintent.construction.asking import (
    Reply,
    StageContext,
    Unusable,
    Usable,
    count_in_words,
    process_items,
)
from opensafeintent.construction.instructions import Leaning
from opensafeintent.construction.intents import PURPOSES_LEANT_TO
from opensafeintent.construction.items import Draft, StageResult, find_material
from opensafeintent.construction.similarity import words
from opensafeintent.construction.triplets import DraftWork, takes_material

PARAPHRASES = 4
"""Paraphrases of a set; with the prompt itself the paper's five wordings."""
ROUNDS = 3
"""Times that the generator is asked for those that are still missing."""
LENGTHS = (2 / 3, 3 / 2)
"""Least and most words of a paraphrase, as shares of the prompt's, material aside: 98.4 % of the
2,800 published ones lie between."""


class ParaphraseReply(Reply, frozen=True):
    """Paraphrases of the dual-use prompt."""

    purpose = "paraphrase"
    asked_of = "generator"
    filled = ("paraphrases",)

    paraphrases: tuple[str, ...] = ()
    declined: str = ""


class ParaphraseCheckReply(Reply, frozen=True):
    """The judge's reply about one paraphrase."""

    purpose = "paraphrase_check"

    same_request: bool
    benign_use_plausible: bool
    misuse_risk_meaningful: bool
    leans: Leaning
    reason: str


class AnnotationReply(Reply, frozen=True):
    """The judge's reply about the dual-use prompt."""

    purpose = "annotation"

    coherent: bool
    benign_use: str
    misuse_risk: str


async def augment(context: StageContext, drafts: Sequence[Draft]) -> StageResult[Draft]:
    """Keep the drafts that get four paraphrases, each still dual-use, and both annotations.

    Source: paper, section 2.1, stage 6. Beyond the paper, a paraphrase must be about as long as the
    prompt and contain its material. The judge also says whether it asks for the same thing and
    suggests neither intent.

    Raises:
        Stopped: see `process_items`.
    """
    return StageResult.of(
        "augmentation",
        await process_items(context, drafts, lambda draft: _Augmentation(context, draft).run()),
    )


class _Augmentation(DraftWork):
    """One draft on its way to paraphrases and annotations."""

    def __init__(self, context: StageContext, draft: Draft) -> None:
        super().__init__(context, draft)
        self._prompt = draft.prompts.of("dual_use")
        self._material = (
            find_material(self._prompt) if takes_material(context, draft.topic.cell) else None
        )
        self._known_wordings = {_fold_wording(self._prompt)}
        self._refused: dict[str, str] = {}
        """The judge's objection to a text."""
        self._paraphrases: list[str] = []

    async def work(self) -> None:
        fills = {"request": self._prompt}
        annotated, unusable = await side_by_side(
            self.context.ask(AnnotationReply, fills), self._paraphrase()
        )
        assert annotated is not None
        (reply,) = self.take(annotated)
        if unusable is not None:
            self.take(unusable)
        if len(self._paraphrases) < PARAPHRASES:
            refused = [f"; {text!r}: {why}" for text, why in self._refused.items()]
            detail = f"{len(self._paraphrases)} of {PARAPHRASES} after {ROUNDS} rounds"
            self.drop("too_few_paraphrases", detail + "".join(refused[-1:]))
        texts = {"benign_use": reply.benign_use, "misuse_risk": reply.misuse_risk}
        if unnamed := [name for name, text in texts.items() if not text.strip()]:
            self.drop("not_coherent", f"not named: {', '.join(unnamed)}")
        if not reply.coherent:
            self.drop("not_coherent", "the judge calls them far-fetched")
        self.draft = msgspec.structs.replace(
            self.draft,
            paraphrases=tuple(self._paraphrases),
            benign_use=" ".join(reply.benign_use.split()),
            misuse_risk=" ".join(reply.misuse_risk.split()),
        )

    async def _paraphrase(self) -> Unusable | None:
        """Gather paraphrases that pass; return the obstacle, if there is one."""
        for number in range(1, ROUNDS + 1):
            missing = PARAPHRASES - len(self._paraphrases)
            if not missing:
                return None
            proposed = await self._propose(missing, number)
            if isinstance(proposed, Unusable):
                return proposed
            self.take(proposed)
            new = {
                _fold_wording(text): text.strip()
                for text in reversed(proposed.reply.paraphrases[:missing])
            }
            fresh = [
                text
                for wording, text in reversed(new.items())
                if wording not in self._known_wordings
            ]
            complaints = {text: self._find_fault_in_form(text) for text in fresh}
            self._refused |= {text: why for text, why in complaints.items() if why}
            fresh = [text for text in fresh if not complaints[text]]
            verdicts = await side_by_side(
                *(
                    self.context.ask(
                        ParaphraseCheckReply,
                        {"request": self._prompt, "paraphrase": text},
                    )
                    for text in fresh
                )
            )
            for text, verdict in zip(fresh, verdicts, strict=True):
                if isinstance(verdict, Unusable):
                    return verdict
                self.take(verdict)
                self._known_wordings.add(_fold_wording(text))
                if why := _find_fault_in_sense(verdict.reply):
                    self._refused[text] = why
                else:
                    self._paraphrases.append(text)
        return None

    async def _propose(self, count: int, number: int) -> Usable[ParaphraseReply] | Unusable:
        def check(reply: ParaphraseReply) -> str | None:
            return None if reply.paraphrases else f'"paraphrases" is empty; {count} asked for'

        earlier = [f"- {text}" for text in self._paraphrases]
        earlier += [f"- {text} (no paraphrase: {why})" for text, why in self._refused.items()]
        fills = {
            "request": self._prompt,
            "count": str(count),
            "taken": "\n".join(earlier) or "(none yet)",
        }
        return await self.context.ask(ParaphraseReply, fills, epoch=number, check=check)

    def _find_fault_in_form(self, paraphrase: str) -> str:
        """Describe a problem of a paraphrase that needs no judge; empty if there is none."""
        material = self._material
        if material and material not in " ".join(paraphrase.split()):
            return "it does not hold the material word for word"
        of, count = _count_words(self._prompt, material), _count_words(paraphrase, material)
        least, most = ceil(LENGTHS[0] * of), floor(LENGTHS[1] * of)
        if least <= count <= most:
            return ""
        return f"it has {count_in_words(count)}; {least} to {most} are about as long as the request"


def _count_words(text: str, material: str | None) -> int:
    """Count the words of a request, those of its material aside."""
    return len(text.split()) - len((material or "").split())


def _fold_wording(text: str) -> str:
    """Return a text as it is compared: two that differ in case or punctuation alone are one
    wording.
    """
    return " ".join(words(text))


def _find_fault_in_sense(reply: ParaphraseCheckReply) -> str:
    """Describe the problem of a paraphrase; empty if it is one and is still dual-use."""
    reason = " ".join(reply.reason.split())
    failed = [
        name
        for name in ("same_request", "benign_use_plausible", "misuse_risk_meaningful")
        if not getattr(reply, name)
    ]
    if failed:
        return f"not {', '.join(failed)}: {reason}"
    return (
        ""
        if reply.leans == "neither"
        else f"it leans towards {PURPOSES_LEANT_TO[reply.leans]}: {reason}"
    )
