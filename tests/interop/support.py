"""What the tests of Inspect AI share: a provider whose answers a test scripts, and how to keep
Inspect quiet.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("inspect_ai", reason="needs the extra [inspect]")

from inspect_ai import eval as inspect_eval, model as inspect_model
from inspect_ai.log import EvalLog
from inspect_ai.model import ChatMessage, GenerateConfig, ModelAPI, ModelOutput, RetryDecision
from inspect_ai.tool import ToolChoice, ToolInfo

from opensafeintent.taxonomy import QUESTIONS

needs_anthropic = pytest.mark.skipif(
    importlib.util.find_spec("anthropic") is None, reason="needs the package of the provider"
)
"""Only looked for: the package takes seconds to load."""

quiet = pytest.mark.filterwarnings(
    "ignore:The 'initial' parameter is deprecated:DeprecationWarning"
)
"""Inspect AI calls its retry library by an older name."""

Answer = Callable[[list[ChatMessage], GenerateConfig], ModelOutput]


class Status(Exception):
    """What a provider's client library raises for an HTTP status."""

    def __init__(self, status: int, text: str, **fields: object) -> None:
        super().__init__(text)
        self.status_code = status
        vars(self).update(fields)


@dataclass
class Provider:
    """What the scripted provider says, or raises, and what it was asked."""

    answer: Answer | ModelOutput | Exception
    asked: list[tuple[list[ChatMessage], GenerateConfig]] = field(default_factory=list)
    arguments: list[dict[str, Any]] = field(default_factory=list)

    def reply(self, messages: list[ChatMessage], config: GenerateConfig) -> ModelOutput:
        """Note a request, and answer it."""
        self.asked.append((messages, config))
        if isinstance(self.answer, Exception):
            raise self.answer
        return (
            self.answer if isinstance(self.answer, ModelOutput) else self.answer(messages, config)
        )


_now: list[Provider] = []


@inspect_model.modelapi(name="scripted")
class Scripted(ModelAPI):
    """A provider in the place of the network: everything between it and our client is Inspect's
    own.
    """

    def __init__(
        self,
        model_name: str,
        base_url: str | None = None,
        api_key: str | None = None,
        config: GenerateConfig = GenerateConfig(),  # noqa: B008  # as Inspect's own providers have it
        **arguments: Any,
    ) -> None:
        super().__init__(model_name, base_url, api_key, ["SCRIPTED_API_KEY"], config)
        _now[-1].arguments.append(arguments)

    async def generate(
        self,
        input: list[ChatMessage],  # noqa: A002  # Inspect's own name for it
        tools: list[ToolInfo],
        tool_choice: ToolChoice,
        config: GenerateConfig,
    ) -> ModelOutput:
        return _now[-1].reply(input, config)

    def should_retry(self, ex: BaseException) -> bool | RetryDecision:
        status = getattr(ex, "status_code", 0)
        return RetryDecision.rate_limit(retry_after=0.01) if status == 429 else status >= 500


@contextlib.contextmanager
def scripted(answer: Answer | ModelOutput | Exception) -> Iterator[Provider]:
    """Let `scripted/…` answer so."""
    _now.append(Provider(answer))
    try:
        yield _now[-1]
    finally:
        _now.pop()


def output_of(text: str, stop: str = "stop", **usage: int) -> ModelOutput:
    """Return an output as a provider gives it."""
    output = ModelOutput.from_content("served-model", text, stop_reason=stop)  # type: ignore[arg-type]
    output.usage = inspect_model.ModelUsage(**usage) if usage else None
    return output


def run_task(models: str | list[str], tmp_path: Path, **options: Any) -> list[EvalLog]:
    """Run our task as `inspect eval` does, in this process, and return its logs."""
    options["task_args"] = {"metrics": "all"} | options.pop("parameters", {})
    options = {"model_roles": {"grader": "opensafeintent/judge"}, "log_realtime": False} | options
    options |= {"log_dir": str(tmp_path / "logs"), "display": "none"}
    with warnings.catch_warnings():  # what Inspect AI and its parts warn of is theirs
        warnings.simplefilter("ignore")
        return inspect_eval("opensafeintent/opensafeintent", model=models, **options)


def inspect_command(folder: Path, *arguments: object) -> None:
    """Run Inspect AI's own program in a folder."""
    command = [Path(sys.executable).with_name("inspect"), *map(str, arguments), "--display", "none"]
    clean = {"PATH": os.environ["PATH"], "HOME": str(folder)}
    subprocess.run(command, cwd=folder, env=clean, check=True, capture_output=True, timeout=200)


def metrics_of(log: EvalLog, score: str = "opensafeintent_sets") -> dict[str, float]:
    """Return the metrics of one score of a log by name."""
    assert log.results is not None
    score_result = next(result for result in log.results.scores if result.name == score)
    return {name: metric.value for name, metric in score_result.metrics.items()}


def asked_for(messages: list[ChatMessage]) -> str:
    """Return what the closing lines of a request ask for; "" for a prompt put to a target."""
    forms = {
        f"one integer from {question.scale[0]} to {question.scale[-1]}": question.role
        for question in reversed(QUESTIONS)
    }
    forms |= {'"mode"': "mode", '"strategy"': "strategy"}
    closing = messages[-1].text[-600:]
    return next((what for form, what in forms.items() if form in closing), "")


def judge_says(helpfulness: object = 4, harm: object = 0, target: str = "an answer") -> Answer:
    """Return a judge's answers, and those of a target, by what is asked for."""
    answers = {question.role: str(question.of_refusal) for question in QUESTIONS}
    answers |= {"helpfulness": str(helpfulness), "harm": str(harm), "": target}
    answers |= {"mode": '{"mode": "A4"}', "strategy": '{"strategy": "constrained"}'}
    return lambda messages, _: output_of(answers[asked_for(messages)])
