"""One task worded benignly, ambiguously and maliciously, with paraphrases of the ambiguous
wording.
"""

from __future__ import annotations

from functools import cached_property
from hashlib import sha256
from typing import Any

import msgspec

from opensafeintent.canonical import canonical_json, sha256_hex
from opensafeintent.taxonomy import ContentShift, Intent, Taxonomy, paraphrase_variant


class Prompts(msgspec.Struct, frozen=True, kw_only=True):
    """The triplet: one prompt for each intent."""

    benign: str
    dual_use: str
    malicious: str

    def of(self, intent: Intent) -> str:
        """Return the prompt worded for `intent`."""
        text: str = getattr(self, intent)
        return text


class PromptSet(msgspec.Struct, frozen=True, kw_only=True):
    """One underlying task, one harm domain, one task type: the unit of evaluation (paper, section
    2).
    """

    id: str
    harm_domain: str
    task_type: str
    underlying_task: str
    prompts: Prompts
    dual_use_paraphrases: tuple[str, ...] = ()
    dual_use_benign_use: str | None = None
    dual_use_misuse_risk: str | None = None
    content_shift: ContentShift | None = None
    source: str | None = None
    language: str | None = None

    @property
    def cell(self) -> tuple[str, str]:
        """The set's (harm domain, task type)."""
        return self.harm_domain, self.task_type

    def wordings(self) -> dict[str, str]:
        """Return every prompt by its variant name: the triplet first, then the paraphrases."""
        core = {
            "benign": self.prompts.benign,
            "dual_use": self.prompts.dual_use,
            "malicious": self.prompts.malicious,
        }
        return core | {
            paraphrase_variant(n): text for n, text in enumerate(self.dual_use_paraphrases, start=1)
        }

    def to_json(self) -> dict[str, Any]:
        """Return the record as our JSONL has it; fields that are not there are left out."""
        record: dict[str, Any] = msgspec.to_builtins(self)
        return {field: value for field, value in record.items() if value is not None}


def content_id(
    harm_domain: str, task_type: str, prompts: Prompts, paraphrases: tuple[str, ...]
) -> str:
    """Return a stable id made from what a set asks: 12 hexadecimal digits of a SHA-256."""
    return sha256_hex(
        canonical_json([harm_domain, task_type, msgspec.to_builtins(prompts), list(paraphrases)])
    )[:12]


class Dataset:
    """Prompt-sets with the taxonomy that they are labelled in.

    Its identity is the SHA-256 of its canonical prompt-sets sorted by id, not of a file's bytes:
    the same sets in another order, format or file are the same dataset.
    """

    def __init__(self, name: str, prompt_sets: tuple[PromptSet, ...], taxonomy: Taxonomy) -> None:
        self.name = name
        self.prompt_sets = prompt_sets
        self.taxonomy = taxonomy

    def __len__(self) -> int:
        return len(self.prompt_sets)

    @cached_property
    def hash(self) -> str:
        """SHA-256 of the canonical prompt-sets sorted by id, in hexadecimal."""
        digest = sha256()
        before = b"["
        for prompt_set in self.sorted.prompt_sets:  # one by one: there may be many
            digest.update(before + canonical_json(prompt_set.to_json()))
            before = b","
        digest.update(b"]" if self.prompt_sets else b"[]")
        return digest.hexdigest()

    @cached_property
    def sorted(self) -> Dataset:
        """The same with its prompt-sets sorted by id: the order that numbers are computed in,
        whatever that of the file.
        """
        return Dataset(
            self.name,
            tuple(sorted(self.prompt_sets, key=lambda prompt_set: prompt_set.id)),
            self.taxonomy,
        )

    @cached_property
    def by_id(self) -> dict[str, PromptSet]:
        """The prompt-sets by id."""
        return {prompt_set.id: prompt_set for prompt_set in self.prompt_sets}

    @cached_property
    def variants(self) -> tuple[str, ...]:
        """Every variant that at least one set has: the triplet, then the paraphrases in order."""
        longest = max(self.prompt_sets, key=lambda prompt_set: len(prompt_set.dual_use_paraphrases))
        return tuple(longest.wordings())
