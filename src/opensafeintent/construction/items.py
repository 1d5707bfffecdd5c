"""Records of a build, and what an item has at each stage."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Generic, Literal, TypeVar, get_args

import msgspec

from opensafeintent.calls.records import Purpose
from opensafeintent.construction.instructions import Leaning, Reading
from opensafeintent.files import canonical_json, sha256_hex
from opensafeintent.promptsets.record import Prompts, PromptSet, content_id
from opensafeintent.taxonomy import ContentShift, Intent

Item = TypeVar("Item")

Stage = Literal[
    "seeds", "metadata", "backfill", "triplets", "intents", "quality", "augmentation", "people"
]
"""Reading the seeds, then the seven stages in order (paper, section 2.1)."""

STAGES: tuple[Stage, ...] = get_args(Stage)[1:]
"""The stages by their numbers, from 1."""

PURPOSES: dict[Stage, tuple[Purpose, ...]] = {
    "metadata": ("metadata",),
    "backfill": ("backfill",),
    "triplets": ("triplet",),
    "intents": ("intent", "repair"),
    "quality": ("quality", "relabel", "wording", "reread"),
    "augmentation": ("paraphrase", "paraphrase_check", "annotation"),
}
"""The purposes of each stage's calls."""

Reason = Literal[
    "empty",
    "too_long",
    "repeated",
    "refused",
    "malformed",
    "call_failed",
    "not_made",
    "labels_disagree",
    "both_say_safe",
    "too_similar",
    "wrong_intent",
    "leans",
    "low_risk",
    "task_not_parallel",
    "domain_wrong",
    "type_wrong",
    "specificity_differs",
    "unnatural",
    "artefacts",
    "task_leans",
    "repair_bent",
    "duplicate",
    "too_few_paraphrases",
    "not_coherent",
    "all_say_poor",
]

REASONS: dict[Reason, str] = {
    "empty": "holds no text",
    "too_long": "is longer than a prompt may be",
    "repeated": "is there already",
    "refused": "a model declined, or its provider did",
    "malformed": "no reply kept to the contract, re-asks included",
    "call_failed": "a call failed; the next run tries it again",
    "not_made": "a call was not made",
    "labels_disagree": (
        "generator and judge disagree on harm domain or task type, and a third reading agrees with"
        " neither"
    ),
    "both_say_safe": "generator and judge both say that the seed is safe",
    "too_similar": "ROUGE-L above the threshold to an accepted summary of the cell",
    "wrong_intent": "an intent is still wrong after the last repair",
    "leans": "the dual-use prompt still leans one way after the last repair",
    "low_risk": "a full answer holds no real risk, also after two repairs",
    "task_not_parallel": "the three prompts are not about the same task",
    "domain_wrong": "the harm domain does not fit",
    "type_wrong": "the task type does not fit",
    "specificity_differs": "the three prompts differ in specificity",
    "unnatural": "a prompt does not sound like a person's",
    "artefacts": "words give the intent away, or a sentence was copied with words exchanged",
    "task_leans": "the neutral task leans towards an honest or a harmful purpose",
    "repair_bent": "a repair made a request of another kind or reach",
    "duplicate": "a prompt is too similar to one of an earlier set of the cell",
    "too_few_paraphrases": "fewer paraphrases than wanted passed",
    "not_coherent": "benign use or misuse risk could not be coherently named",
    "all_say_poor": "every annotator marked the overall quality as poor",
}
"""Why an item is dropped, in words."""


class CallRef(msgspec.Struct, frozen=True):
    """A call that an item rests on."""

    purpose: str
    model: str
    key: str
    """The call's key in the ledger, in hexadecimal."""


class Seed(msgspec.Struct, frozen=True, kw_only=True):
    """One unsafe prompt to start from."""

    prompt: str
    source: str
    """The dataset or file that it comes from."""
    place: str
    """Its location in the source: a line or a row."""

    @property
    def id(self) -> str:
        """Twelve hexadecimal digits of the prompt's SHA-256."""
        return sha256_hex(self.prompt)[:12]


class Topic(msgspec.Struct, frozen=True, kw_only=True):
    """An abstract topic summary with its labels (stages 1 and 2)."""

    summary: str
    harm_domain: str
    task_type: str
    seed: Seed | None = None
    """None if the generator proposed it for a sparse cell."""
    calls: tuple[CallRef, ...] = ()

    @property
    def id(self) -> str:
        """Twelve hexadecimal digits of a SHA-256 of the topic's content."""
        return sha256_hex(canonical_json([self.harm_domain, self.task_type, self.summary]))[:12]

    @property
    def cell(self) -> tuple[str, str]:
        """The topic's (harm domain, task type)."""
        return self.harm_domain, self.task_type


Part = Literal["benign", "dual_use", "malicious", "underlying_task"]
"""A text of a draft that can be repaired alone."""


class Revision(msgspec.Struct, frozen=True, kw_only=True):
    """One repair of one text (stages 4 and 5)."""

    variant: Part
    found: Reading | None
    """The intent that the judge had found in the text before; None of the task, which has none."""
    why: Literal["intent", "leaning", "wording"] = "intent"
    """The kind of problem."""
    said: str
    """The judge's words about it."""
    before: str
    after: str


class Draft(msgspec.Struct, frozen=True, kw_only=True):
    """A prompt-set on its way through stages 3 to 6."""

    topic: Topic
    underlying_task: str
    prompts: Prompts
    readings: dict[Intent, Reading] = {}
    """The intent that the judge last found in each prompt; `revisions` have earlier ones."""
    leaning: Leaning | None = None
    """Which way the dual-use prompt leaned at last."""
    revisions: tuple[Revision, ...] = ()
    paraphrases: tuple[str, ...] = ()
    benign_use: str = ""
    misuse_risk: str = ""
    content_shift: ContentShift | None = None
    calls: tuple[CallRef, ...] = ()

    @property
    def id(self) -> str:
        """The id that the finished prompt-set has."""
        return content_id(
            self.topic.harm_domain, self.topic.task_type, self.prompts, self.paraphrases
        )

    def text(self, part: Part) -> str:
        """Return one of the texts that can be repaired."""
        return self.underlying_task if part == "underlying_task" else self.prompts.of(part)

    def revise(self, revision: Revision) -> Draft:
        """Return the draft with a text in its new wording, and the record of the revision."""
        new: dict[str, Any] = {revision.variant: revision.after}
        if revision.variant != "underlying_task":
            new = {"prompts": msgspec.structs.replace(self.prompts, **new)}
        return msgspec.structs.replace(self, revisions=(*self.revisions, revision), **new)

    def prompt_set(self, source: str) -> PromptSet:
        """Return the prompt-set. `source` names its origin."""
        return PromptSet(
            id=self.id,
            harm_domain=self.topic.harm_domain,
            task_type=self.topic.task_type,
            underlying_task=self.underlying_task,
            prompts=self.prompts,
            dual_use_paraphrases=self.paraphrases,
            dual_use_benign_use=self.benign_use or None,
            dual_use_misuse_risk=self.misuse_risk or None,
            content_shift=self.content_shift,
            source=source,
            language="en",
        )


class Rejection(msgspec.Struct, frozen=True, kw_only=True):
    """An item that a stage dropped."""

    reason: Reason
    item: Any
    """The dropped item: a `Seed`, a `Topic` or a `Draft`; for a failed proposal, the request."""
    detail: str = ""
    duplicate: str = ""
    """Id of the item that is too similar, if that is the reason."""
    last_call: str = ""
    """Key of the last call whose reply was of no use, in hexadecimal; empty for other reasons."""
    calls: tuple[CallRef, ...] = ()
    """Calls that led to it, those behind the item included."""

    @classmethod
    def of(
        cls,
        item: Any,
        reason: Reason,
        detail: str = "",
        *,
        duplicate: str = "",
        last_call: str = "",
        calls: tuple[CallRef, ...] = (),
    ) -> Rejection:
        """Return the rejection of an item. `calls` are those that the item does not hold."""
        return cls(
            item=item,
            reason=reason,
            detail=detail,
            duplicate=duplicate,
            last_call=last_call,
            calls=(*getattr(item, "calls", ()), *calls),
        )


class StageResult(msgspec.Struct, Generic[Item], frozen=True, kw_only=True):
    """The result of a stage: every item is kept, or rejected with its reason."""

    stage: Stage
    kept: tuple[Item, ...]
    rejected: tuple[Rejection, ...]

    @classmethod
    def of(cls, stage: Stage, results: Iterable[Item | Rejection]) -> StageResult[Item]:
        """Sort the results of the items, in their order."""
        items = list(results)
        return cls(
            stage=stage,
            kept=tuple(item for item in items if not isinstance(item, Rejection)),
            rejected=tuple(item for item in items if isinstance(item, Rejection)),
        )

    def then(self, later: StageResult[Item]) -> StageResult[Item]:
        """Return this pass of a stage and a later one as one result."""
        return StageResult(
            stage=self.stage,
            kept=(*self.kept, *later.kept),
            rejected=(*self.rejected, *later.rejected),
        )

    @property
    def count_in(self) -> int:
        """How many items went in."""
        return len(self.kept) + len(self.rejected)

    def funnel_line(self) -> dict[str, Any]:
        """Return the stage's line of `funnel.json`."""
        reasons = Counter(rejection.reason for rejection in self.rejected)
        return {
            "stage": self.stage,
            "in": self.count_in,
            "kept": len(self.kept),
            "rejected": dict(sorted(reasons.items())),
        }

    def why_dropped(self) -> str:
        """Return how many items were dropped for which reasons, in words; empty if none were."""
        reasons = self.funnel_line()["rejected"]
        return "; ".join(f"{count:,} {REASONS[reason]}" for reason, count in reasons.items())


STAND_IN = "[100 words of text]"
"""Replaces material that would itself teach harm. Its length is fixed, so that prompts differ in it
as little.
"""
_FEWEST_WORDS = 15
"""A shorter quotation is treated as a name or a phrase."""
_MOST_LONGER = 1.5
"""Times that the longest material of a set may be as long as the shortest."""
_QUOTED = re.compile(r'"([^"]+)"|“([^”]+)”')


def find_material(request: str) -> str | None:
    """Return the longest passage in quotation marks of 15 words or more, or the stand-in; None if
    there is neither.

    White space in it is folded.
    """
    if STAND_IN in request:
        return STAND_IN
    passages = (" ".join((quoted[1] or quoted[2]).split()) for quoted in _QUOTED.finditer(request))
    return max(
        (text for text in passages if len(text.split()) >= _FEWEST_WORDS), key=len, default=None
    )


def cut_material(request: str) -> str:
    """Return a request without its passages in quotation marks of 15 words or more."""
    return _QUOTED.sub(
        lambda quoted: quoted[0] if len(quoted[0].split()) < _FEWEST_WORDS else "", request
    )


def find_fault_in_material(requests: Mapping[str, str]) -> str | None:
    """Describe the problem with the material of a set's requests, by name; None without one."""
    materials = {name: find_material(request) for name, request in requests.items()}
    for name, material in materials.items():
        if material is None:
            return (
                f'"{name}" does not hold the material that it is about: {_FEWEST_WORDS} words or'
                f" more between double quotation marks, or {STAND_IN}"
            )
    lengths = {
        name: len(material.split())
        for name, material in materials.items()
        if material and material != STAND_IN
    }
    if lengths and len(lengths) < len(materials):
        return (
            f"some requests hold their material and others hold {STAND_IN}; all three hold it in"
            " the same way"
        )
    if lengths and max(lengths.values()) > _MOST_LONGER * min(lengths.values()):
        counts = ", ".join(f"{name} {count}" for name, count in lengths.items())
        return f"the material differs too much in length ({counts} words)"
    return None
