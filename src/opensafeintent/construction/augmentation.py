"""Stage 6: paraphrases of the dual-use prompt, and what it could be used for, rightly and wrongly."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from opensafeintent.calls.draining import side_by_side
from opensafeintent.construction.asking import Asked, Unusable, Workshop, each
from opensafeintent.construction.records import CallRef, Draft, Rejection, StageResult
from opensafeintent.construction.replies import AnnotationReply, ParaphraseCheckReply, ParaphraseReply
from opensafeintent.construction.similarity import words

__all__ = ["PARAPHRASES", "ROUNDS", "augment"]

PARAPHRASES = 4
"""Paraphrases of a set; with the prompt itself the paper's five wordings."""
ROUNDS = 3
"""Times that the generator is asked for those that are still missing."""


async def augment(workshop: Workshop, drafts: Sequence[Draft]) -> StageResult[Draft]:
    """Keep the drafts that get four paraphrases, each still dual-use, and both annotations.

    Source: paper, section 2.1, stage 6. Beyond the paper the judge also says whether a paraphrase asks for the same thing.

    Raises:
        Stopped: see `each`.
    """

    async def enrich(draft: Draft) -> Draft | Rejection:
        return await _Enrichment(workshop, draft).run()

    made = await each(workshop, drafts, enrich)
    return StageResult(
        stage="augmentation",
        kept=tuple(item for item in made if isinstance(item, Draft)),
        rejected=tuple(item for item in made if isinstance(item, Rejection)),
    )


class _Enrichment:
    """One draft on its way to paraphrases and annotations."""

    def __init__(self, workshop: Workshop, draft: Draft) -> None:
        self._workshop = workshop
        self._draft = draft
        self._asked = draft.prompts.dual_use
        self._seen = {_wording(self._asked)}
        self._refused: dict[str, str] = {}
        """What the judge had against a text."""
        self._paraphrases: list[str] = []

    async def run(self) -> Draft | Rejection:
        annotated, nothing = await side_by_side(self._annotate(), self._paraphrase())
        if isinstance(annotated, Asked):
            self._keep(annotated.calls)
        for failed in (annotated, nothing):
            if isinstance(failed, Unusable):
                return failed.reject(self._draft, self._draft.calls)
        assert isinstance(annotated, Asked)
        if len(self._paraphrases) < PARAPHRASES:
            refused = [f"{text!r}: {why}" for text, why in self._refused.items()]
            detail = f"{len(self._paraphrases)} of {PARAPHRASES} after {ROUNDS} rounds" + (
                f"; {refused[-1]}" if refused else ""
            )
            return Rejection(item=self._draft, reason="too_few_paraphrases", detail=detail, calls=self._draft.calls)
        reply = annotated.reply
        if not (reply.coherent and reply.benign_use.strip() and reply.misuse_risk.strip()):
            unnamed = [name for name in ("benign_use", "misuse_risk") if not getattr(reply, name).strip()]
            detail = f"not named: {', '.join(unnamed)}" if unnamed else "the judge calls them far-fetched"
            return Rejection(item=self._draft, reason="not_coherent", detail=detail, calls=self._draft.calls)
        return msgspec.structs.replace(
            self._draft,
            paraphrases=tuple(self._paraphrases),
            benign_use=" ".join(reply.benign_use.split()),
            misuse_risk=" ".join(reply.misuse_risk.split()),
        )

    async def _annotate(self) -> Asked[AnnotationReply] | Unusable:
        workshop = self._workshop
        fills = {"request": self._asked}
        return await workshop.ask(
            workshop.judge, workshop.instructions.annotation, fills, AnnotationReply, about=self._draft.topic.id
        )

    async def _paraphrase(self) -> Unusable | None:
        """Gather paraphrases that pass; return what kept that from being done."""
        for number in range(1, ROUNDS + 1):
            missing = PARAPHRASES - len(self._paraphrases)
            if not missing:
                return None
            proposed = await self._propose(missing, number)
            self._keep(proposed.calls)
            if isinstance(proposed, Unusable):
                return proposed
            new = {_wording(text): text.strip() for text in reversed(proposed.reply.paraphrases[:missing])}
            fresh = [text for wording, text in reversed(new.items()) if wording not in self._seen]
            verdicts = await side_by_side(*(self._check(text) for text in fresh))
            for text, verdict in zip(fresh, verdicts, strict=True):
                self._keep(verdict.calls)
                if isinstance(verdict, Unusable):
                    return verdict
                self._seen.add(_wording(text))
                if why := _complaint(verdict.reply):
                    self._refused[text] = why
                else:
                    self._paraphrases.append(text)
        return None

    async def _propose(self, count: int, number: int) -> Asked[ParaphraseReply] | Unusable:
        def check(reply: ParaphraseReply) -> str | None:
            return None if reply.paraphrases else f'"paraphrases" has no texts; {count} are asked for'

        taken = [f"- {text}" for text in self._paraphrases]
        taken += [f"- {text} (no paraphrase: {why})" for text, why in self._refused.items()]
        fills = {"request": self._asked, "count": str(count), "taken": "\n".join(taken) or "(none yet)"}
        workshop = self._workshop
        return await workshop.ask(
            workshop.generator,
            workshop.instructions.paraphrase,
            fills,
            ParaphraseReply,
            about=self._draft.topic.id,
            epoch=number,
            check=check,
        )

    async def _check(self, paraphrase: str) -> Asked[ParaphraseCheckReply] | Unusable:
        workshop = self._workshop
        fills = {"request": self._asked, "paraphrase": paraphrase}
        return await workshop.ask(
            workshop.judge, workshop.instructions.paraphrase_check, fills, ParaphraseCheckReply, about=self._draft.topic.id
        )

    def _keep(self, calls: tuple[CallRef, ...]) -> None:
        self._draft = msgspec.structs.replace(self._draft, calls=(*self._draft.calls, *calls))


def _wording(text: str) -> str:
    """Return a text as it is compared: two that differ in case or punctuation alone are one wording."""
    return " ".join(words(text))


def _complaint(reply: ParaphraseCheckReply) -> str:
    """Say what is wrong with a paraphrase; nothing, where it is one and is still dual-use."""
    if reply.same_request and reply.benign_use_plausible and reply.misuse_risk_meaningful:
        return ""
    failed = [name for name in ("same_request", "benign_use_plausible", "misuse_risk_meaningful") if not getattr(reply, name)]
    return f"not {', '.join(failed)}: {' '.join(reply.reason.split())}"
