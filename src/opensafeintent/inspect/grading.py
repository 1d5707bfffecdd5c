"""Grading inside Inspect AI: parameters, judges, second turns."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from inspect_ai._util.error import PrerequisiteError
from inspect_ai.model import (
    ChatMessageAssistant,
    ChatMessageUser,
    GenerateConfig,
    Model,
    ModelOutput,
    get_model,
    model_roles,
)
from inspect_ai.solver import Generate, Solver, TaskState, solver

from opensafeintent.calls.outcomes import NotAnAnswer
from opensafeintent.calls.reasoning import without_reasoning
from opensafeintent.calls.records import Answered, Call, Failed, Outcome, Refused, Sampling
from opensafeintent.calls.replies import read_reply
from opensafeintent.evaluation import pipeline
from opensafeintent.evaluation.pipeline import JudgePlan
from opensafeintent.inspect.outputs import (
    chat_messages,
    complaint_in,
    completion_of,
    first_reply_in,
    sampling_fields,
)
from opensafeintent.responses import GradedResponse
from opensafeintent.taxonomy import ModesScope, ParseRule, ProbeScope
from opensafeintent.templates import Templates, load_templates
from opensafeintent.templates.template import second_turn

# inspect-evals-lint: ignore[private_api_imports] -- it has no public name


# The one error that Inspect AI shows as a line, without the place in the code.
Refusal = PrerequisiteError

Count = Annotated[int, msgspec.Meta(ge=1)]
Metrics = Literal["headline", "all"]
"""Which metrics Inspect AI shows."""


class ScorerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How responses are graded: the parameters that the scorers share."""

    rubrics: str | None = None
    modes: ModesScope = "dual_use"
    probe: ProbeScope = "unsafe"
    grade_parse: ParseRule = "strict"
    judge_max_tokens: Count = 2048

    def plan(self, judges: tuple[str, ...]) -> JudgePlan:
        """Return the plan of a run with these settings."""
        return JudgePlan(
            judges=judges,
            mode_judge=judges[0],
            modes=self.modes,
            probe=self.probe,
            parse=self.grade_parse,
            judge_samplings=dict.fromkeys(
                judges, Sampling(max_tokens=self.judge_max_tokens, temperature=0.0)
            ),
            target_sampling=Sampling(),
        )


class TaskSettings(ScorerSettings, frozen=True, kw_only=True):
    """All parameters of the task."""

    dataset: str
    limit: Count | None
    epochs: Count
    taxonomy: str | None
    max_rows: Count
    metrics: Metrics
    follow_ups: bool


SECOND_MESSAGE = "second_message"
"""The field of a sample's metadata with what the user says after the first reply."""


@solver
def one_or_two_turns() -> Solver:
    """Generate the response; if the sample has a second message, go on with it after a first reply
    with text, whose reasoning is taken off.
    """

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        state = await generate(state)
        message = state.metadata.get(SECOND_MESSAGE)
        first_reply = without_reasoning(state.output.completion).text.strip()
        if message is None or not first_reply:
            return state
        state.messages[-1] = ChatMessageAssistant(content=first_reply)
        state.messages.append(ChatMessageUser(content=message))
        return await generate(state)

    return solve


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
