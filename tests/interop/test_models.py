"""Models through Inspect AI's providers, behind our client: outcomes, retries, usage, errors."""

from __future__ import annotations

import asyncio
import os
from importlib import metadata
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from calls.support import holds, rows
from endtoend import begin, finish, grades
from interop.support import Answer, Provider, Status, output_of, quiet, scripted
from opensafeintent import EvaluateSettings, evaluate
from opensafeintent.any_model import describe_unset_variables, model_identity, open_models
from opensafeintent.calls.client import Client
from opensafeintent.calls.http import HttpSession
from opensafeintent.calls.ledger import Ledger
from opensafeintent.calls.records import Answered, Call, Failed, Outcome, Refused, Sampling, Usage
from opensafeintent.errors import InputError
from opensafeintent.templates.template import Message

pytest.importorskip("inspect_ai")
from inspect_ai import model as inspect
from inspect_ai.model import ChatMessage, ContentReasoning, GenerateConfig, ModelOutput, ModelUsage
from inspect_ai.tool import ToolCall

NAME = "scripted/m"
pytestmark = quiet


def call_to(text: str = "Write a note about boats.", **fields: Any) -> Call:
    call_fields = {
        "messages": (Message("user", (text,)),),
        "sampling": Sampling(max_tokens=50),
    } | fields
    return Call(model=NAME, purpose="generate", **call_fields)


def ask(
    path: Path, answer: Answer | ModelOutput | Exception, *calls: Call
) -> tuple[list[Outcome], Client, Provider]:
    """Make calls side by side through the client, as a run does."""

    async def run() -> tuple[list[Outcome], Client]:
        async with HttpSession() as http:
            with Ledger(path) as ledger:
                client = Client(ledger, open_models([NAME], http))
                return list(await asyncio.gather(*map(client.ask, calls or (call_to(),)))), client

    with scripted(answer) as provider, mock.patch("opensafeintent.calls.client._FIRST_WAIT", 0.001):
        return *asyncio.run(run()), provider


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    return tmp_path / "ledger.sqlite"


# Outcomes
# ------------------------------------------------------------------------------


def test_reasoning_is_kept_but_not_graded_and_counted_once(ledger: Path) -> None:
    reasoning = ContentReasoning(reasoning="first I think")
    output = wrote([reasoning, inspect.ContentText(text=" The note. ")], "stop")
    # 9 output tokens of which 5 are reasoning: reasoning is output, and is not added a second time
    used = {"input_tokens": 3, "output_tokens": 9, "input_tokens_cache_read": 4}
    output.usage = ModelUsage(**used, reasoning_tokens=5)
    (outcome,), _, _ = ask(ledger, output)
    expected = Answered(
        text="The note.", stop_reason="stop", usage=Usage(3 + 4, 9, 4), served_model="m"
    )
    assert outcome == expected
    assert holds(ledger, "first I think")
    again, client, provider = ask(ledger, output)
    assert (again, provider.asked, client.tally.reused_calls) == ([outcome], [], 1)


def wrote(content: Any, stop: Any, **fields: Any) -> ModelOutput:
    """Return an output with a message as given."""
    message = inspect.ChatMessageAssistant(content=content, **fields)
    choices = [inspect.ChatCompletionChoice(message=message, stop_reason=stop)]
    return ModelOutput(model="m", choices=choices, usage=ModelUsage(input_tokens=1))


def of_an_error(text: str, stop: str, error: str | None = None, **details: Any) -> ModelOutput:
    """Return an output as some providers make it of an error: its words for a text, and no
    usage.
    """
    output = output_of(text, stop)
    output.error = error
    output.choices[0].stop_details = inspect.StopDetails(**details) if details else None
    return output


CALLED = [ToolCall(id="c", function="f", arguments={})]
# what OpenAI's client raises when Azure's filter refuses: the fields are the error's own
FILTERED = {"code": "content_filter", "innererror": {"code": "ResponsibleAIPolicyViolation"}}
PROSE = {"type": "error", "error": {"type": "invalid_request_error"}}
EMPTY = Answered(text="", stop_reason="stop", usage=Usage(1, 0), served_model="m")
HALF = Answered(
    text="half an ans", stop_reason="content_filter", usage=Usage(1, 0), served_model="m"
)
TOLD: dict[str, Any] = {"type": "refusal", "explanation": "It is blocked."}

SOME_FILTER = {"type": "refusal", "explanation": "No."}
FILTER_CODE = Status(400, "It was filtered", code="content_filter", body=FILTERED)
FILTER_WORDS = Status(400, "Output blocked by content_filter", body=PROSE)
PHRASE = of_an_error("Sorry.", "content_filter", error="content filtering policy")
IMAGE = inspect.ContentImage(image="data:image/png;base64,")
OUTCOMES: dict[str, tuple[Any, ModelOutput | Exception]] = {
    "a filter": (Refused, output_of("half an ans", "content_filter")),
    "a filter's code": (Refused, FILTER_CODE),
    "a filter's words": ("rejected", FILTER_WORDS),
    "a filter, by its code": (Refused, of_an_error("No.", "content_filter", **SOME_FILTER)),
    "a filter, by a word": ("rejected", of_an_error("It is blocked.", "content_filter", **TOLD)),
    "a filter, by a phrase": ("rejected", PHRASE),
    "too long, which nobody wrote": ("rejected", of_an_error("Too long: 9 tokens", "model_length")),
    "empty": (EMPTY, wrote("", "stop")),
    "reasoning alone": ("reasoning_only", wrote([ContentReasoning(reasoning="plan")], "stop")),
    "hidden reasoning alone": (
        "reasoning_only",
        wrote([ContentReasoning(reasoning="x9", redacted=True)], "stop"),
    ),
    "a filter's half": (HALF, wrote("half an ans", "content_filter")),
    "tool calls alone": ("stop_reason:tool_calls", wrote("", "tool_calls", tool_calls=CALLED)),
    "tool calls, stop": ("no_answer", wrote("", "stop", tool_calls=CALLED)),
    "empty, unknown reason": ("no_answer", wrote("", "unknown")),
    "an image alone": ("malformed", wrote([IMAGE], "stop")),
    "no choices": ("malformed", ModelOutput(model="m", error="busy")),
    "a wrong key": ("unauthorized", Status(401, "invalid x-api-key")),
    "an unknown model": ("unknown_model", Status(404, "no such model")),
    "something else": ("provider", ValueError("cannot take this")),
    "a prompt that is not liked": ("forbidden", Status(403, "violates our usage guidelines")),
    "not about a schema": ("rejected", Status(400, "the json_schema is not to our liking")),
}


REPLIED = ("no_answer", "malformed", "reasoning_only", "stop_reason:tool_calls")


@pytest.mark.parametrize("name", OUTCOMES)
def test_no_failure_is_an_answer_or_a_refusal(ledger: Path, name: str) -> None:
    expected, completion = OUTCOMES[name]
    call = call_to(sampling=Sampling())
    (outcome,), client, provider = ask(ledger, completion, call)
    if isinstance(outcome, Failed):
        assert outcome.kind == expected
        assert (len(provider.asked) > 1) == (outcome.kind in REPLIED)
        stopped = outcome.kind in ("unauthorized", "unknown_model")
        line = {NAME: f"{NAME}: stopped: {outcome.error}"}
        assert client.stopped_models == (line if stopped else {})
        if outcome.kind == "unauthorized":
            assert outcome.error == "401: invalid x-api-key (check SCRIPTED_API_KEY)"
    else:
        assert outcome == expected or type(outcome) is expected
        # and the ledger gives it back: its body says so too
        again, _, asked = ask(ledger, completion, call)
        assert (again, asked.asked) == ([outcome], [])


@pytest.mark.parametrize(
    ("stop", "tokens", "reason"),
    [
        *(("max_tokens", 50, "length"), ("model_length", 50, "model_length"), ("stop", 50, "stop")),
        # a provider that does not say, below and at the limit of 50
        *(("unknown", 49, "stop"), ("unknown", 50, "length")),
    ],
)
def test_an_answer_cut_short_is_told(ledger: Path, stop: str, tokens: int, reason: str) -> None:
    (outcome,), _, _ = ask(
        ledger, output_of("text " * 10, stop, input_tokens=1, output_tokens=tokens)
    )
    assert isinstance(outcome, Answered)
    assert (outcome.stop_reason, outcome.truncated) == (reason, reason != "stop")


def test_a_short_answer_in_a_batch_that_reached_the_limit_was_not_cut(ledger: Path) -> None:
    (outcome,), _, _ = ask(ledger, output_of("3", "unknown", input_tokens=1, output_tokens=50))
    assert isinstance(outcome, Answered)
    assert not outcome.truncated


# Requests
# ------------------------------------------------------------------------------

TOPICS = {"topics": {"type": "array", "items": {"type": "string"}}}
CLOSED = {"required": ["topics"], "additionalProperties": False}
SCHEMA: dict[str, Any] = {"type": "object", "properties": TOPICS} | CLOSED


def test_a_schema_reaches_the_provider_until_it_refuses_one(tmp_path: Path) -> None:
    structured = call_to(sampling=Sampling(json_schema=SCHEMA))
    _, _, provider = ask(tmp_path / "takes", output_of('{"topics": []}'), structured, call_to())
    schemas = [config.response_schema for _, config in provider.asked]
    (schema,) = filter(None, schemas)
    assert (schema.name, schema.strict) == ("reply", True)
    assert schema.json_schema.model_dump(exclude_none=True) == SCHEMA

    def refuse(_: list[ChatMessage], config: GenerateConfig) -> ModelOutput:
        if config.response_schema is not None:
            raise Status(400, "output_format: this model does not support structured outputs")
        return output_of("{}")

    calls = [call_to(f"Note {n}.", sampling=Sampling(json_schema=SCHEMA)) for n in range(3)]
    outcomes, client, _ = ask(tmp_path / "refuses", refuse, *calls)
    assert [type(outcome) for outcome in outcomes] == [Answered] * 3
    (notice,) = client.request_notes
    assert "response_format" in notice


def test_sampling_reaches_the_provider_and_further_keys_its_constructor(ledger: Path) -> None:
    extra = {"seed": 3, "device": "cpu"}
    sampling = Sampling(max_tokens=7, temperature=0.5, reasoning_effort="low", extra=extra)
    spoken = (("system", "Be brief."), ("user", "Hello"), ("assistant", "Hi"), ("user", "?"))
    messages = tuple(Message(role, (text,)) for role, text in spoken)  # type: ignore[arg-type]
    _, _, provider = ask(ledger, output_of("text"), call_to(messages=messages, sampling=sampling))
    ((asked, config),) = provider.asked
    assert tuple((message.role, message.text) for message in asked) == spoken
    sent = (config.max_tokens, config.temperature, config.reasoning_effort, config.seed)
    assert sent == (7, 0.5, "low", 3)
    assert (config.max_retries, config.cache) == (0, False)
    assert provider.arguments[-1] == {"device": "cpu"}


def test_a_setting_that_inspect_does_not_have_stops_the_model_with_a_line(ledger: Path) -> None:
    call = call_to(sampling=Sampling(reasoning_effort="banana"))
    (outcome,), client, provider = ask(ledger, output_of("text"), call)
    assert isinstance(outcome, Failed)
    assert "reasoning_effort" in client.stopped_models[NAME]
    assert not provider.asked


def test_our_client_retries_and_inspect_does_not(ledger: Path) -> None:
    errors = iter([Status(429, "slow down"), Status(500, "oops")])

    def answer(*_: object) -> ModelOutput:
        if (error := next(errors, None)) is not None:
            raise error
        return output_of("text")

    (outcome,), client, _ = ask(ledger, answer)
    assert isinstance(outcome, Answered)
    assert client.tally.retries == 2
    failed = [("failed", "rate_limited: 429: slow down"), ("failed", "server: 500: oops")]
    assert rows(ledger) == [*failed, ("answered", "")]


def test_a_key_that_is_told_does_not_reach_the_ledger(
    ledger: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCRIPTED_API_KEY", "sk-scripted-0123456789")

    def answer(messages: list[ChatMessage], _: object) -> ModelOutput:
        if "fail" in messages[-1].text:
            raise ValueError("bad header: Bearer sk-scripted-0123456789")
        return output_of("your key is sk-scripted-0123456789")

    (failed, answered), _, _ = ask(ledger, answer, call_to("fail"), call_to("tell"))
    assert isinstance(failed, Failed) and failed.error == "bad header: Bearer ***"
    assert isinstance(answered, Answered) and answered.text == "your key is ***"
    assert not holds(ledger, "sk-scripted-0123456789")


# Names
# ------------------------------------------------------------------------------


EXTRA = 'pip install ".[inspect]"'


@pytest.mark.parametrize(
    ("installed", "name", "message"),
    [
        ("9.9.9", "anthropc/claude", "unknown provider 'anthropc'; did you mean 'anthropic'"),
        ("9.9.9", "inspect/nobody/m", "unknown provider 'nobody'"),
        ("9.9.9", "inspect/vllm", "expected inspect/provider/model"),
        ("9.9.9", "anthropic", "is not a model name"),
        (None, "anthropic/bedrock/c", EXTRA),
        (None, "google/vertex/c", EXTRA),
        (None, "inspect/vllm/m", EXTRA),
        (None, "nobody/m", "unknown provider 'nobody'"),
        ("0.3.9", "hf/m", "needs inspect-ai 0.3.285 or newer, 0.3.9 is installed"),
    ],
)
def test_a_name_that_nobody_serves_is_told(installed: str | None, name: str, message: str) -> None:
    with version_of(installed), pytest.raises(InputError) as error:
        model_identity(name)
    assert name in str(error.value) and message in str(error.value)


def version_of(installed: str | None) -> Any:
    missing = metadata.PackageNotFoundError()
    version = mock.Mock(return_value=installed, side_effect=None if installed else missing)
    return mock.patch("opensafeintent.inspect.inspect_providers.version", version)


def test_every_missing_package_and_variable_is_told_before_anything_is_asked() -> None:
    bare = mock.patch.dict(os.environ, {"PATH": os.environ["PATH"]}, clear=True)
    with bare, pytest.raises(InputError) as error:
        open_models(["inspect/anthropic/claude-x", "cloudflare/m"], HttpSession())
    first, second = str(error.value).split("\n")
    assert first.startswith("inspect/anthropic/claude-x: ") and second.startswith("cloudflare/m: ")
    assert "pip install anthropic" in first or "No ANTHROPIC_API_KEY defined" in first
    assert "[" not in first + second  # Inspect's markup


@pytest.mark.slow
def test_a_provider_that_a_package_registers_is_found(tmp_path: Path) -> None:
    """As Inspect AI's own command finds it: by the package's entry point."""
    info = tmp_path / "mylab-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mylab\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[inspect_ai]\nmylab = mylab_provider\n")
    (tmp_path / "mylab_provider.py").write_text(
        "from inspect_ai.model import ModelAPI, ModelOutput, modelapi\n"
        "@modelapi(name='mylab')\n"
        "class MyLab(ModelAPI):\n"
        "    async def generate(self, input, tools, tool_choice, config):\n"
        "        return ModelOutput.from_content('mylab', 'No.')\n"
    )
    options = ("--judge", "baseline/judge", "--limit", 1, "--out", tmp_path / "run")
    options += ("--probe", "none")
    done = finish(begin("evaluate", "mylab/m", *options, PYTHONPATH=str(tmp_path)))
    assert done.code == 0, done.err
    assert len(grades(tmp_path / "run")) == 7


def test_variables_of_what_the_extra_serves() -> None:
    azure = ("AZUREAI_OPENAI_API_KEY", "AZUREAI_OPENAI_BASE_URL")
    served = {"anthropic/claude": ("ANTHROPIC_API_KEY",), "openai/azure/m": azure}
    served["google/gemini"] = ("GOOGLE_API_KEY",)
    served["anthropic/azure/claude"] = (
        "AZUREAI_ANTHROPIC_API_KEY",
        "AZUREAI_ANTHROPIC_BASE_URL",
    )
    unserved = ("anthropic/bedrock/claude", "google/vertex/gemini", "hf/org/weights")
    unserved += ("inspect/of-a-package/m",)
    with mock.patch.dict(os.environ, {"PATH": os.environ["PATH"]}, clear=True):
        for name in (*served, *unserved, "baseline/judge"):
            lines = describe_unset_variables([name, name])
            assert [line.split()[0] for line in lines] == [*served.get(name, ())]
            assert all(f" {name} " in line for line in lines)


# A whole run
# ------------------------------------------------------------------------------


def test_a_run_through_inspect_is_resumed_from_the_ledger(tmp_path: Path) -> None:
    judges = ("baseline/judge",)
    settings = EvaluateSettings(models=(NAME,), judges=judges, limit=3, out=tmp_path / "run")
    output = output_of("I cannot help with that.", input_tokens=1, output_tokens=2, total_tokens=3)
    with scripted(output) as provider:
        first, again = evaluate(settings), evaluate(settings)
    assert first.exit_code == 0
    assert len(provider.asked) == 21  # 3 sets of 7 prompts, none asked twice
    assert first.tally is not None and again.tally is not None
    assert first.tally.usage[NAME, "standard", "output"] == 2 * 21
    assert again.tally.calls == 0
    # a refusal of that form is helpfulness 1 and harm 0 to the demonstration judge
    graded = {(row["helpfulness"], row["harm_severity"]) for row in grades(tmp_path / "run")}
    assert graded == {("1", "0")}
