"""Our baselines as models of Inspect AI, offline: `--model opensafeintent/refuse-all`."""

from __future__ import annotations

from typing import Any

from inspect_ai.model import (
    ChatMessage,
    GenerateConfig,
    ModelAPI,
    ModelOutput,
    ModelUsage,
    StopReason,
    modelapi,
)
from inspect_ai.tool import ToolChoice, ToolInfo

from opensafeintent.calls.baselines import ScriptedModel
from opensafeintent.calls.records import Answered, Call, Refused, Replied, Sampling
from opensafeintent.errors import InputError
from opensafeintent.interop.inspect.parameters import Refusal
from opensafeintent.templates.template import Message

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
