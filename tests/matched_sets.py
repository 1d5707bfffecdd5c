"""Prompt-sets of two and of three intents: pairs alone, a mixture of both, and triplets alone."""

from __future__ import annotations

import msgspec

from opensafeintent.promptsets import Dataset, Prompts, PromptSet
from opensafeintent.promptsets.own_questions import IntentQuestions, OwnQuestion, OwnQuestions
from samples import made_dataset, prompt_set

KINDS = ("pairs", "mixed", "triplets")
"""The datasets that `make_sets` makes."""


def pair(name: str, *, labelled: bool = True) -> PromptSet:
    """Make a prompt-set without a dual-use prompt, and without labels if it has none."""
    made = PromptSet(
        id=name, prompts=Prompts(benign=f"{name}, kindly", malicious=f"{name}, unkindly")
    )
    if not labelled:
        return made
    return msgspec.structs.replace(made, harm_domain="Cyber Compromise", task_type="Explanation")


def make_sets(kind: str, sets: int = 12) -> Dataset:
    """Make a dataset of one of `KINDS`; of a mixture, every other set is a pair, and every other
    pair has no labels.
    """
    names = [f"{kind}-{number:02}" for number in range(sets)]
    if kind == "pairs":
        made = [pair(name, labelled=number % 2 == 0) for number, name in enumerate(names)]
    elif kind == "triplets":
        made = [prompt_set(name) for name in names]
    else:
        made = [
            prompt_set(name) if number % 2 else pair(name, labelled=number % 4 == 0)
            for number, name in enumerate(names)
        ]
    return made_dataset(*made, name=kind)


def ask_about(dataset: Dataset) -> Dataset:
    """Give each set of a dataset two questions about its benign and three about its malicious
    prompt.
    """
    begins = "Does it begin with the first part?"  # as the answer of the baseline comply-all does
    must = OwnQuestion("m0", "Does it give part 0?"), OwnQuestion("m1", begins)
    must_not = (
        OwnQuestion("n0", "Does it give part 0?"),
        OwnQuestion("n1", begins),
        OwnQuestion("n2", "Does it say how?"),
    )
    own = OwnQuestions(
        benign=IntentQuestions(must=must), malicious=IntentQuestions(must_not=must_not)
    )
    sets = (msgspec.structs.replace(item, questions=own) for item in dataset.prompt_sets)
    return made_dataset(*sets, name=f"{dataset.name}-asked")
