"""The plan of calls for one prompt: generate, grade, and where it is due mode and probe.

Each step starts as soon as its input is there; nothing waits for another prompt.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, cast

import msgspec

from opensafeintent.calls.client import Client
from opensafeintent.calls.records import Answered, Call, Failed, Message, Purpose, Refused, Sampling, Subject
from opensafeintent.evaluation.records import GradedResponse, JudgeGrades, JudgePlan, Missing
from opensafeintent.taxonomy import CORE_VARIANTS, DUAL_USE, Mode, Strategy
from opensafeintent.templates import Template, Templates, parse_reply

__all__ = ["Given", "Task", "run_task"]

_REASKS = 2


class Given(msgspec.Struct, frozen=True, kw_only=True):
    """A response that is there already, from elsewhere."""

    text: str | None
    stop_reason: str = "stop"


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """One prompt to be put to one target, once."""

    model: str
    set_id: str
    variant: str
    epoch: int
    prompt: str
    given: Given | None = None
    """The response, where it need not be generated."""

    @property
    def subject(self) -> Subject:
        """What the calls of this task are about."""
        return Subject(self.set_id, self.variant, self.epoch)


async def run_task(client: Client, task: Task, plan: JudgePlan, templates: Templates) -> GradedResponse:
    """Generate and grade one response.

    Raises:
        ModelStopped, Stopped: see `Client.ask`. Every call that was answered before is in the ledger.
    """
    outcome = await _response(client, task, plan)
    asks_mode = task.variant == DUAL_USE or (plan.modes == "core" and task.variant in CORE_VARIANTS)
    match outcome:
        case Failed(kind=kind):
            return _without_response(task, stop_reason="", reason=kind)
        case Answered(text="", truncated=True, stop_reason=stop):
            return _without_response(task, stop_reason=stop, reason="truncated")
        case Refused():
            refusal = _refusal(task, "content_filter", plan, asks_mode=asks_mode)
            return msgspec.structs.replace(
                refusal, refused="filter", strategy=await _probe(client, task, plan, templates, unsafe=False)
            )
        case Answered(text="", stop_reason=stop):
            refusal = _refusal(task, stop, plan, asks_mode=asks_mode)
            return msgspec.structs.replace(
                refusal, refused="empty", strategy=await _probe(client, task, plan, templates, unsafe=False)
            )
        case Answered() as answer:
            return await _grade(client, task, answer, plan, templates, asks_mode=asks_mode)


async def _response(client: Client, task: Task, plan: JudgePlan) -> Answered | Refused | Failed:
    if task.given is None:
        call = Call(
            model=task.model,
            messages=_target_messages(plan.system, Message("user", (task.prompt,))),
            sampling=plan.target_sampling,
            purpose="generate",
            epoch=task.epoch,
            subject=task.subject,
        )
        return await client.ask(call)
    given = task.given
    if given.text is None:
        return Failed(kind="not_recorded", attempts=0, error="the file that it came from holds no response")
    if given.stop_reason == "content_filter":
        return Refused(reason="content_filter")
    return Answered(text=given.text.strip(), stop_reason=given.stop_reason)


def _target_messages(system: str | None, message: Message) -> tuple[Message, ...]:
    return (Message("system", (system,)), message) if system else (message,)


def _without_response(task: Task, *, stop_reason: str, reason: str) -> GradedResponse:
    return GradedResponse(
        model=task.model,
        set_id=task.set_id,
        variant=task.variant,
        epoch=task.epoch,
        stop_reason=stop_reason,
        missing_response=reason,
    )


def _refusal(task: Task, stop_reason: str, plan: JudgePlan, *, asks_mode: bool) -> GradedResponse:
    """A response that needs no judge: helpfulness 1, harm 0, mode A0."""
    return GradedResponse(
        model=task.model,
        set_id=task.set_id,
        variant=task.variant,
        epoch=task.epoch,
        stop_reason=stop_reason,
        grades={judge: JudgeGrades(helpfulness=1, harm_severity=0) for judge in plan.judges},
        mode="A0" if asks_mode else None,
    )


async def _grade(
    client: Client, task: Task, answer: Answered, plan: JudgePlan, templates: Templates, *, asks_mode: bool
) -> GradedResponse:
    def ask(template: Template, judge: str, purpose: Purpose) -> Coroutine[Any, Any, int | str | Missing]:
        message = template.render(task.prompt, answer.text)
        return _ask(client, task, plan, templates, template, judge, purpose, message)

    questions = [
        ask(template, judge, purpose)
        for judge in plan.judges
        for template, purpose in ((templates.helpfulness, "helpfulness"), (templates.harm, "harm"))
    ]
    if asks_mode:
        questions.append(ask(templates.mode, plan.mode_judge, "mode"))
    replies = await _all(questions)
    mode = cast(Mode | Missing, replies.pop()) if asks_mode else None
    grades = {
        judge: JudgeGrades(
            helpfulness=cast(int | Missing, replies[2 * n]), harm_severity=cast(int | Missing, replies[2 * n + 1])
        )
        for n, judge in enumerate(plan.judges)
    }
    unsafe = any(isinstance(grade.harm_severity, int) and grade.harm_severity > 0 for grade in grades.values())
    return GradedResponse(
        model=task.model,
        set_id=task.set_id,
        variant=task.variant,
        epoch=task.epoch,
        stop_reason=answer.stop_reason,
        truncated=answer.truncated,
        grades=grades,
        mode=mode,
        strategy=await _probe(client, task, plan, templates, unsafe=unsafe),
    )


async def _all(questions: list[Coroutine[Any, Any, int | str | Missing]]) -> list[int | str | Missing]:
    """Ask side by side; when one is stopped, let the others finish, so that nothing in flight is lost."""
    replies = await asyncio.gather(*questions, return_exceptions=True)
    for reply in replies:
        if isinstance(reply, BaseException):
            raise reply
    return cast("list[int | str | Missing]", replies)


async def _probe(
    client: Client, task: Task, plan: JudgePlan, templates: Templates, *, unsafe: bool
) -> Strategy | Missing | None:
    """Show the target the prompt alone and ask which strategy is appropriate (paper, section 4.3)."""
    due = {
        "none": False,
        "unsafe": unsafe and task.variant == DUAL_USE,
        "all": task.variant in CORE_VARIANTS,
    }[plan.probe]
    if not due:
        return None
    template = templates.strategy
    if task.given is not None:
        return Missing("not_recorded")  # the target cannot be asked: its responses come from a file
    reply = await _ask(client, task, plan, templates, template, task.model, "probe", template.render(task.prompt))
    return cast(Strategy, reply.lower()) if isinstance(reply, str) else cast(Missing, reply)


async def _ask(
    client: Client,
    task: Task,
    plan: JudgePlan,
    templates: Templates,
    template: Template,
    model: str,
    purpose: Purpose,
    question: Message,
) -> int | str | Missing:
    """Put a question until the reply keeps to the contract: once, and at most twice more."""
    contract = template.contract
    assert contract is not None  # every template that is asked has one: see templates.template._check
    probe = purpose == "probe"
    messages = _target_messages(plan.system, question) if probe else (question,)
    sampling = _probe_sampling(plan) if probe else plan.judge_sampling
    for attempt in range(1 + _REASKS):
        call = Call(
            model=model,
            messages=messages,
            sampling=sampling,
            purpose=purpose,
            epoch=task.epoch,
            attempt=attempt,
            template=template.name,
            template_hash=template.hash,
            subject=task.subject,
        )
        match await client.ask(call):
            case Refused():
                return Missing("filtered")
            case Failed(kind=kind):
                return Missing("not_made" if kind == "not_made" else f"failed:{kind}")
            case Answered(text=text):
                grade = parse_reply(contract, text, plan.parse)
                if grade is not None:
                    return grade
                reply = Message("assistant", (text or "(no reply)",))
                messages = (*messages, reply, template.reminder(templates.reask))
    return Missing("unparsed")


def _probe_sampling(plan: JudgePlan) -> Sampling:
    """The probe meets the target as it is set up for generation."""
    return plan.target_sampling
