"""Grade a sample of our task with the judges, questions and order of a run of ours.

The calls go to Inspect AI's models, and into its log.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import msgspec
from inspect_ai.model import GenerateConfig, Model, ModelOutput, get_model, model_roles
from inspect_ai.solver import TaskState

from opensafeintent.calls.outcomes import NotAnAnswer
from opensafeintent.calls.records import Answered, Call, Failed, Outcome, Refused, Sampling
from opensafeintent.calls.replies import read_reply
from opensafeintent.evaluation import pipeline
from opensafeintent.interop.inspect.outputs import (
    chat_messages,
    complaint_in,
    completion_of,
    first_reply_in,
    sampling_fields,
)
from opensafeintent.interop.inspect.parameters import Refusal, ScorerSettings
from opensafeintent.interop.inspect.second_turn import SECOND_MESSAGE
from opensafeintent.responses import GradedResponse
from opensafeintent.templates import Templates, load_templates
from opensafeintent.templates.second_turn import second_turn

GRADER = "grader"
"""The model role of the judge, or of the judges when it is bound to several."""


@lru_cache(maxsize=8)
def templates_of(rubrics: str | None) -> Templates:
    """Return the judge templates of a folder, or ours."""
    return load_templates(Path(rubrics) if rubrics else None)


def graders() -> dict[str, Model]:
    """Return the judges by name.

    Raises:
        Refusal: nobody has the role. Inspect AI would let the model under test grade itself.
    """
    bound = model_roles().get(GRADER)
    if not bound:
        raise Refusal(
            "opensafeintent needs a judge, and would be graded by the model under test without"
            f" one: name it with --model-role {GRADER}=provider/model"
        )
    return {str(model): model for model in (bound if isinstance(bound, list) else [bound])}


async def grades_of(state: TaskState, settings: ScorerSettings) -> GradedResponse:
    """Return the grades of a sample's response; the judges are asked once, however many scores are
    taken from it.
    """
    grades: dict[ScorerSettings, GradedResponse] = vars(state).setdefault(
        "_opensafeintent_grades", {}
    )
    if settings not in grades:
        judges = graders()
        plan = settings.plan(tuple(judges))
        asking = pipeline.Asking(
            _InspectCaller(state.output, judges).ask,
            _task_of(state),
            plan,
            templates_of(settings.rubrics),
        )
        grades[settings] = await asking.run()
    return grades[settings]


def _task_of(state: TaskState) -> pipeline.Task:
    """Return the task of a sample; with a second message, the conversation that it ends."""
    second = state.metadata.get(SECOND_MESSAGE)
    task = pipeline.Task(
        model=str(state.model),
        set_id=state.metadata["set_id"],
        variant=state.metadata["variant"],
        epoch=state.epoch,
        prompt=state.input_text,
    )
    if second is None:
        return task
    earlier = pipeline.Earlier(
        prompt=state.input_text, reply=first_reply_in(state.messages), texts=second_turn()
    )
    return msgspec.structs.replace(task, prompt=second, earlier=earlier)


class _InspectCaller:
    """Replaces our client: its calls go to Inspect AI's models, and into its log."""

    def __init__(self, output: ModelOutput, judges: dict[str, Model]) -> None:
        self._output = output
        self._judges = judges

    async def ask(self, call: Call) -> Outcome:
        """Return the existing response, or ask a judge, or ask the target for its strategy.

        A provider's exception is left to Inspect AI: it retries, or fails the sample, which a later
        run makes again.
        """
        if call.purpose == "generate":
            return _outcome_of(self._output)
        if call.purpose == "probe":
            model = (
                get_model()
            )  # inspect-evals-lint: ignore[get_model_location] -- the scorers call this
            config = GenerateConfig()
        else:
            model = self._judges[call.model]
            config = _judge_config(model, call.sampling)
        output = await model.generate(chat_messages(call), config=config)
        return _outcome_of(output, config.max_tokens)


def _judge_config(model: Model, sampling: Sampling) -> GenerateConfig:
    """Return our settings for a judge, unless the role's binding sets others."""
    set_already = model.config.model_dump(exclude_none=True)
    fields = sampling_fields(sampling, str(model).partition("/")[0])
    return GenerateConfig(
        **{name: value for name, value in fields.items() if name not in set_already}
    )


def _outcome_of(output: ModelOutput, max_tokens: int | None = None) -> Answered | Refused | Failed:
    if output.empty:
        return Failed(kind="not_recorded", error=output.error or "no response")
    if complaint := complaint_in(output):
        return Failed(kind="rejected", error=complaint)
    try:
        return read_reply(completion_of(output, max_tokens))
    except NotAnAnswer as wrong:
        return Failed(kind=wrong.kind, error=str(wrong))
