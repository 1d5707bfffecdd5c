"""Our evaluation as a task of Inspect AI, with our baselines as its models."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from inspect_ai import Task, task
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.log import HeadlineMetric
from inspect_ai.model import (
    ChatMessage,
    GenerateConfig,
    ModelAPI,
    ModelOutput,
    ModelUsage,
    StopReason,
    modelapi,
)
from inspect_ai.solver import generate
from inspect_ai.tool import ToolChoice, ToolInfo

from opensafeintent import __version__
from opensafeintent.calls.baselines import ScriptedModel
from opensafeintent.calls.records import Answered, Call, Refused, Replied, Sampling
from opensafeintent.errors import InputError
from opensafeintent.evaluation.manifest import hash_templates, list_prompts, make_task
from opensafeintent.files import MOST_ROWS
from opensafeintent.inspect.scorers import (
    SCORERS,
    SECOND_MESSAGE,
    Metrics,
    Refusal,
    ScorerSettings,
    TaskSettings,
    choose_templates,
    graders,
    one_or_two_turns,
)
from opensafeintent.promptsets import Dataset, PromptSet, draw_sets, load_dataset
from opensafeintent.responses import ResponseKey
from opensafeintent.taxonomy import (
    FOLLOW_UPS,
    JudgeBy,
    ModesScope,
    ParseRule,
    ProbeScope,
    find_intent,
    is_dual_use,
)
from opensafeintent.templates.template import Message, second_turn

_STOP: dict[str, StopReason] = {
    "stop": "stop",
    "length": "max_tokens",
    "max_tokens": "max_tokens",
    "model_length": "model_length",
    "content_filter": "content_filter",
}


class ScriptedAPI(ModelAPI):
    """A baseline by its name."""

    def __init__(
        self,
        model_name: str,
        base_url: str | None = None,
        api_key: str | None = None,
        config: GenerateConfig = GenerateConfig(),  # noqa: B008  # as Inspect's own providers have it
        **arguments: Any,
    ) -> None:
        super().__init__(model_name, base_url, api_key, [], config)
        if arguments:
            raise Refusal(
                f"opensafeintent/{model_name} takes no arguments, but was given"
                f" {', '.join(arguments)}"
            )
        try:
            self._model = ScriptedModel(f"baseline/{model_name}")
        except InputError as error:
            raise Refusal(str(error)) from error

    async def generate(
        self,
        input: list[ChatMessage],  # noqa: A002  # Inspect's own name for it
        tools: list[ToolInfo],
        tool_choice: ToolChoice,
        config: GenerateConfig,
    ) -> ModelOutput:
        """Answer as the baseline does in a run of ours."""
        messages = tuple(
            Message(message.role, (message.text,))
            for message in input
            if message.role in ("system", "user", "assistant")
        )
        call = Call(
            model=self.model_name,
            messages=messages,
            sampling=Sampling(),
            purpose="generate",
        )
        attempt = await self._model.attempt(call)
        assert isinstance(attempt, Replied)
        match attempt.outcome:
            case Refused(served_model=served, reason=reason):
                output = ModelOutput.from_content(served, "", "content_filter", reason)
            case Answered(served_model=served, text=text, stop_reason=stop):
                output = ModelOutput.from_content(served, text, _STOP.get(stop, "unknown"))
        usage = attempt.outcome.usage
        total = usage.input_tokens + usage.output_tokens
        output.usage = ModelUsage(
            input_tokens=usage.input_tokens, output_tokens=usage.output_tokens, total_tokens=total
        )
        return output


modelapi(name="opensafeintent")(ScriptedAPI)


VERSION = "1-A"
"""Before the dash the version of the results, after it that of the interface, as in the register of
Inspect evals.
"""

_MAX_TOKENS = 4096


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
    metrics: Metrics = "headline",
    follow_ups: bool = False,
    judge_by: JudgeBy = "rubric",
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
        metrics: shown of the score `opensafeintent_sets`, `headline` or `all`.
        follow_ups: three second turns a set, each after a first reply of its own; no metric that
            Inspect AI shows includes them, `import` reads them.
        judge_by: what judges are asked: `rubric`, the dataset's own `questions`, or `both`. With
            `questions`, prompts without one are not sent.

    Raises:
        Refusal: a parameter or a file is not usable, or no model has the role `grader`.
    """
    graders()  # refused here, before a response is paid for
    settings = _check_parameters(
        dataset=dataset,
        limit=limit,
        epochs=epochs,
        rubrics=rubrics,
        modes=modes,
        probe=probe,
        grade_parse=grade_parse,
        judge_max_tokens=judge_max_tokens,
        taxonomy=taxonomy,
        max_rows=max_rows,
        metrics=metrics,
        follow_ups=follow_ups,
        judge_by=judge_by,
    )
    return _task(settings)


def _check_parameters(**parameters: object) -> TaskSettings:
    """Return the parameters as settings; the command line of Inspect AI lets any text through.

    Raises:
        Refusal: one is not valid, or is about grades, and judges are asked for none.
    """
    try:
        settings = msgspec.convert(parameters, TaskSettings)
    except msgspec.ValidationError as error:
        raise Refusal(f"opensafeintent: a task parameter is not valid: {error}") from error
    about_grades = {"modes": "dual_use", "probe": "unsafe", "follow_ups": False}
    if settings.judge_by == "questions":
        for name, usual in about_grades.items():
            if getattr(settings, name) != usual:
                raise Refusal(
                    f"opensafeintent: {name} is about grades by rubric, and judge_by=questions asks"
                    " for none; expected judge_by=both"
                )
    return settings


def _task(settings: TaskSettings) -> Task:
    """Return the task with these settings.

    Raises:
        Refusal: a file is not usable.
    """
    taxonomy = Path(settings.taxonomy) if settings.taxonomy else None
    try:
        dataset = load_dataset(settings.dataset, taxonomy, settings.max_rows)
        prompt_sets = draw_sets(dataset.prompt_sets, settings.limit)
        own = dataset.questions_hash
        templates = hash_templates(choose_templates(settings.rubrics), checklist=bool(own))
    except InputError as error:
        raise Refusal(str(error)) from error
    if settings.judge_by != "rubric" and not own:
        raise Refusal(
            f"opensafeintent: judge_by={settings.judge_by}: {dataset.shown} has no questions of its"
            " own; expected a dataset with them, or judge_by=rubric"
        )
    by_rubric = settings.judge_by != "questions"
    # arrays, which no other task needs
    from opensafeintent.numbers.metrics import find_scope, list_question_groups

    scope = find_scope(dataset)._replace(rubric=by_rubric, asked=list_question_groups(dataset))
    grading = {name: getattr(settings, name) for name in ScorerSettings.__struct_fields__}
    return Task(
        dataset=MemoryDataset(_samples(dataset, prompt_sets, settings), name=dataset.name),
        solver=one_or_two_turns() if settings.follow_ups else generate(),
        scorer=[make(**grading) for make in (SCORERS if by_rubric else SCORERS[:1])],
        config=GenerateConfig(max_tokens=_MAX_TOKENS),
        epochs=settings.epochs,
        version=VERSION,
        metadata={
            "opensafeintent": __version__,
            "dataset": dataset.name,
            "dataset_hash": dataset.hash,
            "questions": own,
            "prompt_sets": len(dataset),
            "templates": dict(templates),
            "grade_parse": settings.grade_parse,
            "limit": settings.limit,
        },
        headline_metric=HeadlineMetric(metric=scope.safety),
    )


def _samples(
    dataset: Dataset, prompt_sets: Sequence[PromptSet], settings: TaskSettings
) -> list[Sample]:
    """Return a sample for each prompt, set by set: a limit cuts through one set at most."""
    second = second_turn() if settings.follow_ups else None
    of_questions = settings.judge_by == "questions"
    positions = {
        prompt_set.id: position for position, prompt_set in enumerate(dataset.sorted.prompt_sets)
    }
    return [
        Sample(
            id=f"{prompt_set.id}.{task.variant}",
            input=task.earlier.prompt if task.earlier else task.prompt,
            metadata={
                "set_id": prompt_set.id,
                "unit": dataset.units[prompt_set.id],
                "variant": task.variant,
                "intent": find_intent(task.variant),
                "harm_domain": prompt_set.harm_domain,
                "task_type": prompt_set.task_type,
                "wordings": sum(map(is_dual_use, prompt_set.wordings())),
                "sent": len(sent),
                # the set's position in its dataset, sorted by id
                "position": positions[prompt_set.id],
                "sets": len(dataset),
                "metrics": settings.metrics,
                **({"questions": msgspec.to_builtins(own)} if own is not None else {}),
                **({SECOND_MESSAGE: task.prompt} if task.earlier else {}),
            },
        )
        for prompt_set in prompt_sets
        for own in (prompt_set.questions,)
        for sent in (list_prompts(prompt_set, only_asked_about=of_questions),)
        for variant in (
            *sent,
            *(FOLLOW_UPS if second and not prompt_set.is_pair else ()),
        )
        for task in (make_task(ResponseKey("", prompt_set.id, variant, 1), prompt_set, second),)
    ]
