"""Grade a response inside Inspect AI with the judges, questions and order of a run of ours."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Annotated
from weakref import WeakKeyDictionary

import msgspec
from inspect_ai.model import GenerateConfig, Model, ModelOutput, get_model, model_roles
from inspect_ai.solver import TaskState

from opensafeintent.calls.records import Answered, Call, Failed, Outcome, Refused, Sampling, Subject
from opensafeintent.calls.replies import NotAnAnswer, read_reply
from opensafeintent.errors import InputError
from opensafeintent.evaluation.pipeline import Task, run_task
from opensafeintent.evaluation.records import GradedResponse, JudgePlan, ModesScope, ProbeScope
from opensafeintent.grades import GradeRow, grade_row
from opensafeintent.interop.inspect.models import chat_messages, complaint_in, completion_of, sampling_fields
from opensafeintent.interop.inspect.provider import NotRecorded
from opensafeintent.interop.inspect.refusal import Refusal
from opensafeintent.templates import ParseRule, Templates, load_templates

__all__ = ["GRADER", "Grading", "graders", "grades_of", "subject_of", "templates_for"]

GRADER = "grader"
"""The model role of the judge, or of the judges when it is bound to several."""


class Grading(msgspec.Struct, frozen=True, kw_only=True):
    """How responses are graded: the parameters that the scorers share."""

    rubrics: str | None = None
    modes: ModesScope = "dual_use"
    probe: ProbeScope = "unsafe"
    grade_parse: ParseRule = "strict"
    judge_max_tokens: Annotated[int, msgspec.Meta(ge=1)] = 2048

    def plan(self, judges: tuple[str, ...]) -> JudgePlan:
        """Return the plan of a run with these settings."""
        return JudgePlan(
            judges=judges,
            mode_judge=judges[0],
            modes=self.modes,
            probe=self.probe,
            parse=self.grade_parse,
            judge_sampling=Sampling(max_tokens=self.judge_max_tokens, temperature=0.0),
            target_sampling=Sampling(),
        )


@lru_cache(maxsize=8)
def templates_for(rubrics: str | None) -> Templates:
    """Return the judge templates.

    Raises:
        Refusal: the folder of rubrics cannot be used.
    """
    try:
        return load_templates(Path(rubrics) if rubrics else None)
    except InputError as error:
        raise Refusal(str(error)) from error


def graders() -> dict[str, Model]:
    """Return the judges by name.

    Raises:
        Refusal: nobody has the role. Inspect AI would let the model under test grade itself.
    """
    bound = model_roles().get(GRADER)
    if not bound:
        raise Refusal(
            "opensafeintent needs a judge, and would be graded by the model under test without one: "
            f"name it with --model-role {GRADER}=provider/model"
        )
    return {str(model): model for model in (bound if isinstance(bound, list) else [bound])}


def subject_of(state: TaskState) -> Subject:
    """Return which response a sample is to bring."""
    return Subject(state.metadata["set_id"], state.metadata["variant"], state.epoch)


_graded: WeakKeyDictionary[TaskState, dict[Grading, GradeRow]] = WeakKeyDictionary()


async def grades_of(state: TaskState, grading: Grading) -> GradeRow:
    """Return the grades of a sample's response; the judges are asked once, however many scores are taken from it."""
    known = _graded.setdefault(state, {})
    if grading not in known:
        known[grading] = await _grade(state, grading)
    return known[grading]


async def _grade(state: TaskState, grading: Grading) -> GradeRow:
    judges = graders()
    plan = grading.plan(tuple(judges))
    subject = subject_of(state)
    task = Task(
        model=str(state.model),
        set_id=subject.set_id,
        variant=subject.variant,
        epoch=subject.epoch,
        prompt=state.input_text,
    )
    graded: GradedResponse = await run_task(_Asked(state.output, judges), task, plan, templates_for(grading.rubrics))
    return grade_row(graded, plan.mode_judge)


class _Asked:
    """Stands in the place of our client: what it asks for goes to Inspect AI's models, and into its log."""

    def __init__(self, output: ModelOutput, judges: dict[str, Model]) -> None:
        self._output = output
        self._judges = judges

    async def ask(self, call: Call) -> Outcome:
        """Return the response that is there, or ask a judge, or ask the target for its strategy.

        What a provider raises is left to Inspect AI: it retries, or fails the sample, which a later run makes anew.
        """
        if call.purpose == "generate":
            return _outcome(self._output)
        if call.purpose == "probe":
            model = get_model()  # inspect-evals-lint: ignore[get_model_location] -- the scorers call this
            config = GenerateConfig()
        else:
            model = self._judges[call.model]
            config = _judge_config(model, call.sampling)
        try:
            return _outcome(await model.generate(chat_messages(call), config=config), config.max_tokens)
        except NotRecorded as error:
            return Failed(kind="not_recorded", attempts=1, error=str(error))


def _judge_config(model: Model, sampling: Sampling) -> GenerateConfig:
    """Return our settings for a judge, where whoever bound it to its role has said nothing else."""
    set_already = model.config.model_dump(exclude_none=True)
    provider = str(model).partition("/")[0]
    fields = sampling_fields(sampling, provider)
    return GenerateConfig(**{name: value for name, value in fields.items() if name not in set_already})


def _outcome(output: ModelOutput, max_tokens: int | None = None) -> Answered | Refused | Failed:
    if output.empty:
        return Failed(kind="not_recorded", attempts=0, error=output.error or "no response")
    if complaint := complaint_in(output):
        return Failed(kind="rejected", attempts=1, error=complaint)
    try:
        return read_reply(completion_of(output, max_tokens))
    except NotAnAnswer as wrong:
        return Failed(kind=wrong.kind, attempts=1, error=str(wrong))
