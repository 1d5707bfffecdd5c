"""The prompts that a target is asked: those of its prompt-sets, and messages of a second turn."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

from opensafeintent.evaluation.pipeline import Earlier, Task
from opensafeintent.promptsets.record import PromptSet
from opensafeintent.responses import ResponseKey
from opensafeintent.taxonomy import (
    DIRECT_TWINS,
    DUAL_USE,
    FOLLOW_UPS,
    FollowUp,
    is_dual_use,
    is_follow_up,
)
from opensafeintent.templates.second_turn import SecondTurnTexts


def tasks_of(
    model: str,
    prompt_sets: Iterable[PromptSet],
    epochs: int,
    second_turn: SecondTurnTexts | None = None,
) -> list[Task]:
    """Return a target's prompts, epoch by epoch and set by set, the longest chain of calls of a set
    first. The follow-ups of an epoch come after its other prompts, which hold the first replies.

    Args:
        model: the target.
        prompt_sets: of the prompts.
        epochs: responses to each prompt.
        second_turn: its texts; None if there are no follow-ups.
    """
    sets = list(prompt_sets)
    tasks: list[Task] = []
    for epoch in range(1, epochs + 1):
        tasks += (
            Task(model=model, set_id=prompt_set.id, variant=variant, epoch=epoch, prompt=prompt)
            for prompt_set in sets
            for variant, prompt in sorted(
                prompt_set.wordings().items(), key=lambda item: not is_dual_use(item[0])
            )
        )
        tasks += (
            task_of(ResponseKey(model, prompt_set.id, variant, epoch), prompt_set, second_turn)
            for prompt_set in (sets if second_turn else ())
            for variant in FOLLOW_UPS
        )
    return tasks


def task_of(key: ResponseKey, prompt_set: PromptSet, second_turn: SecondTurnTexts | None) -> Task:
    """Return the task of a response.

    Args:
        key: of the response.
        prompt_set: of its prompt.
        second_turn: the texts of a second turn; only a follow-up needs them.
    """
    if not is_follow_up(key.variant):
        return Task(**key._asdict(), prompt=prompt_set.wordings()[key.variant])
    assert second_turn is not None  # a run with follow-ups has their texts
    twin = DIRECT_TWINS[cast(FollowUp, key.variant)]
    return Task(
        **key._asdict(),
        prompt=second_turn.insist if twin == DUAL_USE else prompt_set.prompts.of(twin),
        earlier=Earlier(prompt=prompt_set.prompts.dual_use, texts=second_turn),
    )
