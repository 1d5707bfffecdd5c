"""The benchmark as a task of Inspect AI."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, TypeVar

import msgspec
from inspect_ai import Task, task
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.log import HeadlineMetric
from inspect_ai.model import GenerateConfig, ModelOutput
from inspect_ai.solver import Generate, Solver, TaskState, solver

from opensafeintent import __version__
from opensafeintent.errors import InputError
from opensafeintent.evaluation.manifest import hashes_of
from opensafeintent.evaluation.records import ModesScope, ProbeScope
from opensafeintent.interop.inspect.scorers import (
    SCORERS,
    Grading,
    graders,
    subject_of,
    templates_for,
)
from opensafeintent.interop.inspect.scripted import NotRecorded, Refusal, asking_about
from opensafeintent.promptsets import Dataset, PromptSet, drawn, load_dataset
from opensafeintent.promptsets.reading import MOST_ROWS
from opensafeintent.taxonomy import CORE_VARIANTS
from opensafeintent.templates import ParseRule, Role

NAME = "opensafeintent/opensafeintent"
VERSION = "1-A"
"""Before the dash what makes results comparable, after it the interface, as the register of Inspect
evals has it.
"""
_MAX_TOKENS = 4096
Parameters = TypeVar("Parameters", bound=msgspec.Struct)


@task
def opensafeintent(
    dataset: str = "starter",
    limit: int | None = None,
    epochs: int = 1,
    rubrics: str | None = None,
    modes: ModesScope = "dual_use",
    probe: ProbeScope = "unsafe",
    grade_parse: ParseRule = "strict",
    judge_max_tokens: int = 2048,
    taxonomy: str | None = None,
    max_rows: int = MOST_ROWS,
) -> Task:
    """OpenSafeIntent: does a model give the right amount of help as intent shifts, on the same
    task?

    The judge is the model role `grader`, which has to be bound; bound to several models, they are a
    panel.

    Args:
        dataset: `starter`, a path, or `hf:owner/name[@revision]`.
        limit: a sample of so many prompt-sets, each cell by its share (`--limit` of Inspect AI
            counts prompts).
        epochs: responses to each prompt.
        rubrics: a folder of judge templates in place of ours.
        modes: prompts whose assistance mode is judged, `dual_use` or `core`.
        probe: prompts whose appropriate strategy the model is asked for, `unsafe`, `all` or `none`.
        grade_parse: how grades are read, `strict` or `paper`.
        judge_max_tokens: token limit of a judge's reply.
        taxonomy: a TOML file of harm domains and task types in place of the paper's.
        max_rows: prompt-sets that the dataset may have.
    """
    graders()  # refused here, before a response is paid for
    grading = _checked(
        Grading(
            rubrics=rubrics,
            modes=modes,
            probe=probe,
            grade_parse=grade_parse,
            judge_max_tokens=judge_max_tokens,
        )
    )
    _checked(
        _Extent(dataset=dataset, limit=limit, epochs=epochs, taxonomy=taxonomy, max_rows=max_rows)
    )
    try:
        sets = load_dataset(dataset, Path(taxonomy) if taxonomy else None, max_rows)
        chosen = drawn(sets.prompt_sets, limit)
    except InputError as error:
        raise Refusal(str(error)) from error
    settings = msgspec.to_builtins(grading)
    return Task(
        dataset=MemoryDataset(_samples(sets, chosen), name=sets.name),
        solver=respond(),
        scorer=[make(**settings) for make in SCORERS],
        config=GenerateConfig(max_tokens=_MAX_TOKENS),
        epochs=epochs,
        version=VERSION,
        metadata=task_metadata(sets, hashes_of(templates_for(rubrics)), grade_parse)
        | {"limit": limit},
        headline_metric=HeadlineMetric(metric="triplet_safety"),
    )


_Count = Annotated[int, msgspec.Meta(ge=1)]


class _Extent(msgspec.Struct, frozen=True):
    """The parameters that say what is evaluated."""

    dataset: str
    limit: _Count | None
    epochs: _Count
    taxonomy: str | None
    max_rows: _Count


def _checked(parameters: Parameters) -> Parameters:
    """Refuse parameters that are not valid; the command line of Inspect AI lets any text
    through.
    """
    try:
        return msgspec.convert(msgspec.to_builtins(parameters), type(parameters))
    except msgspec.ValidationError as error:
        raise Refusal(f"opensafeintent: a task parameter is not valid: {error}") from error


@solver
def respond() -> Solver:
    """Put the prompt to the model; a response that a file of recorded ones lacks is missing, and no
    error.
    """

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        try:
            with asking_about(subject_of(state)):
                return await generate(state)
        except NotRecorded as error:
            state.output = ModelOutput(model=str(state.model), error=str(error))
            return state

    return solve


def task_metadata(
    dataset: Dataset, templates: Mapping[Role, str], parse: ParseRule
) -> dict[str, object]:
    """Return what a log says of the evaluation besides Inspect AI's own; `templates` are hashes."""
    return {
        "opensafeintent": __version__,
        "dataset": dataset.name,
        "dataset_hash": dataset.hash,
        "prompt_sets": len(dataset),
        "templates": dict(templates),
        "grade_parse": parse,
    }


def sample_id(set_id: str, variant: str) -> str:
    """Return the id of one prompt's sample."""
    return f"{set_id}.{variant}"


def sample_metadata(
    prompt_set: PromptSet, variant: str, position: int, sets: int
) -> dict[str, object]:
    """Return what a sample's metadata says of its prompt.

    Args:
        prompt_set: the set that it belongs to.
        variant: which of its prompts it is.
        position: where the set stands among its dataset's, sorted by id, from 0.
        sets: how many sets the dataset has.
    """
    return {
        "set_id": prompt_set.id,
        "variant": variant,
        "intent": variant if variant in CORE_VARIANTS else "dual_use",
        "harm_domain": prompt_set.harm_domain,
        "task_type": prompt_set.task_type,
        "wordings": len(prompt_set.dual_use_paraphrases) + 1,
        "position": position,
        "sets": sets,
    }


def _samples(dataset: Dataset, chosen: tuple[PromptSet, ...]) -> list[Sample]:
    """Return a sample for each prompt, set by set: a limit cuts through one set at most."""
    positions = {
        prompt_set.id: position for position, prompt_set in enumerate(dataset.sorted.prompt_sets)
    }
    return [
        Sample(
            id=sample_id(prompt_set.id, variant),
            input=prompt,
            metadata=sample_metadata(prompt_set, variant, positions[prompt_set.id], len(dataset)),
        )
        for prompt_set in chosen
        for variant, prompt in prompt_set.wordings().items()
    ]
