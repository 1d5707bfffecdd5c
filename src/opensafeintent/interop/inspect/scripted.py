"""The baselines and recorded responses as models of Inspect AI: `--model
opensafeintent/refuse-all`, offline.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

# inspect-evals-lint: ignore[private_api_imports] -- it has no public name
from inspect_ai._util.error import PrerequisiteError
from inspect_ai.model import ChatMessage, GenerateConfig, ModelAPI, ModelOutput, ModelUsage
from inspect_ai.tool import ToolChoice, ToolInfo

from opensafeintent.calls.baselines import ScriptedModel
from opensafeintent.calls.models import ReplayModel
from opensafeintent.calls.records import Call, Failure, Replied, Sampling, Subject
from opensafeintent.errors import InputError
from opensafeintent.interop.inspect.conversion import model_output
from opensafeintent.messages import Message

# The one error that Inspect AI shows as a line, without the place in the code.
Refusal = PrerequisiteError
_subject: ContextVar[Subject | None] = ContextVar("subject", default=None)


class NotRecorded(RuntimeError):
    """Recorded responses were asked for something that they do not hold."""


@contextmanager
def asking_about(subject: Subject) -> Iterator[None]:
    """Say which response the calls within are to bring: recorded ones are found by set, variant and
    epoch, not by prompt.
    """
    token = _subject.set(subject)
    try:
        yield
    finally:
        _subject.reset(token)


class ScriptedAPI(ModelAPI):
    """A baseline by its name, or `replay/FILE`."""

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
        recorded = model_name.startswith("replay/")
        try:
            self._model = (
                ReplayModel(model_name) if recorded else ScriptedModel(f"baseline/{model_name}")
            )
        except InputError as error:
            raise Refusal(str(error)) from error

    async def generate(
        self,
        input: list[ChatMessage],  # noqa: A002  # Inspect's own name for it
        tools: list[ToolInfo],
        tool_choice: ToolChoice,
        config: GenerateConfig,
    ) -> ModelOutput:
        """Answer as the baseline does in a run of ours.

        Raises:
            NotRecorded: a file of responses has none for this prompt.
        """
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
            subject=_subject.get(),
        )
        match await self._model.attempt(call):
            case Failure(error=error):
                raise NotRecorded(error)
            case Replied(outcome=outcome):
                output = model_output(self._model.identity, outcome)
                output.usage = output.usage or ModelUsage()
                return output

    def connection_key(self) -> str:
        """Return the scope of its connections: its own."""
        return self.model_name
