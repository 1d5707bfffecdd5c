"""The work of a run in parts for tasks, and the models that tasks can ask."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from opensafeintent.calls.providers import PREFIX, loads_weights
from opensafeintent.errors import InputError
from opensafeintent.evaluation.pipeline import ModelWork, Task


def models_asked(work: ModelWork) -> set[str]:
    """Return the models that some work asks."""
    targets = [] if all(task.given for task in work.tasks) else [work.model]
    return {*targets, *_judges_of(work)}


def loads_its_weights(work: ModelWork) -> bool:
    """Tell whether a task with this work loads the weights of its model."""
    return work.model in models_asked(work) and loads_weights(work.model)


def check_models(work: Sequence[ModelWork]) -> None:
    """Refuse models that tasks cannot ask.

    Raises:
        InputError: there is one among them.
    """
    for name in sorted({name for item in work for name in models_asked(item)}):
        if name.startswith(PREFIX):
            raise InputError(
                f"--ray: {name} is a function in this process, which no other can call; leave"
                " --ray out"
            )
    for judge in sorted({judge for item in work for judge in _judges_of(item)}):
        if loads_weights(judge):
            raise InputError(
                f"--ray: every task asks the judge, and {judge} would be loaded by each of them;"
                " serve it (vllm serve …) and name it vllm/NAME, or leave --ray out"
            )


def _judges_of(work: ModelWork) -> set[str]:
    """Return the models that some work asks about responses: the judges, and the guard."""
    guard = [work.plan.guard.model] if work.plan.guard else []
    return {*work.plan.judges, work.plan.mode_judge, *guard}


def parts_of(work: Sequence[ModelWork], count: int) -> list[ModelWork]:
    """Cut each model's prompt-sets into this number of parts. Models with weights to load come
    first and whole, because weights are loaded once; the others come in turn.
    """
    parts: dict[tuple[bool, int, int], list[Task]] = {}
    for index, item in enumerate(work):
        whole = loads_its_weights(item)
        shards: dict[str, int] = {}
        for task in item.tasks:
            shard = shards.setdefault(task.set_id, 0 if whole else len(shards) % count)
            parts.setdefault((not whole, shard, index), []).append(task)
    return [
        msgspec.structs.replace(work[key[-1]], tasks=tasks) for key, tasks in sorted(parts.items())
    ]
