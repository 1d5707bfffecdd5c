"""Prompt-sets for tests of controls: only the texts differ from one to the next."""

from __future__ import annotations

from collections.abc import Iterable

from opensafeintent.promptsets import Dataset, Prompts, PromptSet
from opensafeintent.taxonomy import Category, Taxonomy, default_taxonomy

CELL = ("Cyber Compromise", "Explanation")


def a_set(
    name: str,
    benign: str,
    dual_use: str,
    malicious: str,
    *paraphrases: str,
    cell: tuple[str, str] = CELL,
) -> PromptSet:
    return PromptSet(
        id=name,
        harm_domain=cell[0],
        task_type=cell[1],
        underlying_task="a task",
        prompts=Prompts(benign=benign, dual_use=dual_use, malicious=malicious),
        dual_use_paraphrases=paraphrases,
    )


def a_dataset(prompt_sets: Iterable[PromptSet], taxonomy: Taxonomy | None = None) -> Dataset:
    return Dataset("made", tuple(prompt_sets), taxonomy or default_taxonomy())


def a_taxonomy(domains: int, types: int) -> Taxonomy:
    return Taxonomy(
        name="made",
        harm_domains=tuple(
            Category(name=f"domain {n}", definition="made up") for n in range(domains)
        ),
        task_types=tuple(Category(name=f"type {n}", definition="made up") for n in range(types)),
    )
