"""Models through Inspect AI's providers, behind our client: outcomes, retries, usage, errors."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path
from typing import Any, ClassVar
from unittest import mock

import pytest

from calls.support import holds, rows
from endtoend import environment, grades, osi
from interop.support import (
    Forbidden,
    Overloaded,
    Rejected,
    ServerError,
    UnknownModel,
    WrongKey,
    quiet,
    said,
    scripted,
)
from opensafeintent.calls.client import Client
from opensafeintent.calls.http import HttpSession
from opensafeintent.calls.ledger import Ledger
from opensafeintent.calls.records import Answered, Call, Failed, Outcome, Refused, Sampling, Usage
from opensafeintent.errors import InputError
from opensafeintent.interop.inspect.models import (
    model_identity,
    open_models,
    served_models,
    unset_lines,
)
from opensafeintent.messages import Message

pytest.importorskip("inspect_ai")
from inspect_ai.model import (
    ChatCompletionChoice,
    ChatMessage,
    ChatMessageAssistant,
    ContentImage,
    ContentReasoning,
    ContentText,
    GenerateConfig,
    ModelOutput,
    ModelUsage,
    StopDetails,
)
from inspect_ai.tool import ToolCall

NAME = "scripted/m"
pytestmark = quiet


def call_to(text: str = "Write a note about boats.", **fields: Any) -> Call:
    given: dict[str, Any] = {
        "model": NAME,
        "messages": (Message("user", (text,)),),
        "sampling": Sampling(max_tokens=50),
        "purpose": "generate",
    }
    return Call(**(given | fields))


def ask(path: Path, *calls: Call, names: Iterable[str] = (NAME,)) -> tuple[list[Outcome], Client]:
    """Make calls side by side through the client, as a run does."""

    async def run() -> tuple[list[Outcome], Client]:
        async with HttpSession() as http:
            with Ledger(path) as ledger:
                client = Client(ledger, open_models(names, http))
                return list(await asyncio.gather(*map(client.ask, calls or (call_to(),)))), client

    return asyncio.run(run())


# Outcomes
# ------------------------------------------------------------------------------


def test_an_answer_is_kept_and_found_again(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    with scripted(
        lambda *_: said(" A note. ", input_tokens=3, output_tokens=9, total_tokens=12)
    ) as provider:
        (first,), _ = ask(path)
        (again,), client = ask(path)
    assert (
        first
        == again
        == Answered(
            text="A note.", stop_reason="stop", usage=Usage(3, 9), served_model="served-model"
        )
    )
    assert len(provider.asked) == 1
    assert client.tally.reused_calls == 1


def test_reasoning_is_kept_but_not_graded_and_counted_once(tmp_path: Path) -> None:
    content = [ContentReasoning(reasoning="first I think"), ContentText(text="The note.")]
    # 9 output tokens of which 5 are reasoning: reasoning is output, and is not added a second time
    usage = ModelUsage(
        input_tokens=3,
        output_tokens=9,
        total_tokens=16,
        input_tokens_cache_read=4,
        reasoning_tokens=5,
    )
    output = ModelOutput(
        model="m",
        choices=[
            ChatCompletionChoice(message=ChatMessageAssistant(content=content), stop_reason="stop")
        ],
        usage=usage,
    )
    with scripted(lambda *_: output):
        (outcome,), _ = ask(tmp_path / "l.sqlite")
    assert outcome == Answered(
        text="The note.", stop_reason="stop", usage=Usage(3 + 4, 9), served_model="m"
    )
    assert holds(tmp_path / "l.sqlite", "first I think")


def test_a_content_filter_is_a_refusal(tmp_path: Path) -> None:
    with scripted(lambda *_: said("half an ans", "content_filter")):
        (outcome,), _ = ask(tmp_path / "l.sqlite")
    assert outcome == Refused(reason="content_filter", served_model="served-model")


class Filtered(Rejected):
    """What OpenAI's client raises when Azure's filter refuses: the fields are the error's own."""

    code = "content_filter"
    body: ClassVar[dict[str, Any]] = {
        "code": "content_filter",
        "innererror": {"code": "ResponsibleAIPolicyViolation"},
    }


class Blocked(Rejected):
    """An error of which only the prose has to do with a filter."""

    body: ClassVar[dict[str, Any]] = {"type": "error", "error": {"type": "invalid_request_error"}}


def of_an_error(text: str, stop: str, **fields: Any) -> ModelOutput:
    """Return an output as some providers make it of an error: its words for a text, and no
    usage.
    """
    output = said(text, stop)
    output.error = fields.pop("error", None)
    output.choices[0].stop_details = StopDetails(**fields) if fields else None
    return output


CALLED = [ToolCall(id="c", function="f", arguments={})]


def wrote(content: Any, stop: str, **fields: Any) -> ModelOutput:
    """Return an output with a message as given."""
    message = ChatMessageAssistant(content=content, **fields)
    return ModelOutput(
        model="m",
        choices=[ChatCompletionChoice(message=message, stop_reason=stop)],
        usage=ModelUsage(input_tokens=1),
    )


OUTCOMES: dict[str, tuple[str, ModelOutput | Exception]] = {
    "a filter's code": ("refused", Filtered("The response was filtered")),
    "a filter's words": ("rejected", Blocked("Output blocked by content_filter: content_policy")),
    "a filter, by its code": (
        "refused",
        of_an_error("No.", "content_filter", type="refusal", explanation="No."),
    ),
    "a filter, by a word": (
        "rejected",
        of_an_error(
            "It is blocked.", "content_filter", type="refusal", explanation="It is blocked."
        ),
    ),
    "a filter, by a phrase": (
        "rejected",
        of_an_error("Sorry.", "content_filter", error="content filtering policy"),
    ),
    "too long, which nobody wrote": (
        "rejected",
        of_an_error("The prompt is too long: 9 tokens", "model_length"),
    ),
    "empty": ("refused", wrote("", "stop")),
    "reasoning alone": ("refused", wrote([ContentReasoning(reasoning="plan")], "stop")),
    "tool calls alone": ("no_answer", wrote("", "tool_calls", tool_calls=CALLED)),
    "tool calls, stop": ("no_answer", wrote("", "stop", tool_calls=CALLED)),
    "empty, unknown reason": ("no_answer", wrote("", "unknown")),
    "an image alone": ("malformed", wrote([ContentImage(image="data:image/png;base64,")], "stop")),
}


@pytest.mark.parametrize("name", OUTCOMES)
def test_no_failure_is_an_answer_or_a_refusal(tmp_path: Path, name: str) -> None:
    expected, given = OUTCOMES[name]

    def answer(*_: object) -> ModelOutput:
        if isinstance(given, Exception):
            raise given
        return given

    call = call_to(sampling=Sampling())
    with scripted(answer) as provider, mock.patch("opensafeintent.calls.client._FIRST_WAIT", 0.001):
        (outcome,), _ = ask(tmp_path / "l.sqlite", call)
        again, _ = ask(tmp_path / "l.sqlite", call)
    if expected == "refused":
        assert isinstance(outcome, Refused) or outcome == Answered(
            text="", stop_reason="stop", usage=Usage(1, 0), served_model="m"
        )
        assert again == [outcome]  # and the ledger gives it back: its body says so too
        assert len(provider.asked) == 1
    else:
        assert isinstance(outcome, Failed)
        assert outcome.kind == expected
        assert outcome.attempts == (2 if expected in ("no_answer", "malformed") else 1)


@pytest.mark.parametrize(
    ("stop", "output_tokens", "reason", "truncated"),
    [
        ("max_tokens", 50, "length", True),
        ("model_length", 50, "model_length", True),
        (
            "unknown",
            49,
            "stop",
            False,
        ),  # a provider that does not say, below the limit of 50: nothing was cut
        ("unknown", 50, "length", True),
        ("stop", 50, "stop", False),
    ],
)
def test_an_answer_cut_by_the_limit_is_told(
    tmp_path: Path, stop: str, output_tokens: int, reason: str, truncated: bool
) -> None:
    with scripted(
        lambda *_: said("text", stop, input_tokens=1, output_tokens=output_tokens, total_tokens=1)
    ):
        (outcome,), _ = ask(tmp_path / "l.sqlite")
    assert isinstance(outcome, Answered)
    assert (outcome.stop_reason, outcome.truncated) == (reason, truncated)


SCHEMA = {
    "type": "object",
    "properties": {
        "topics": {"type": "array", "items": {"type": "string"}},
        "kind": {"type": "string", "enum": ["a", "b"]},
    },
    "required": ["topics", "kind"],
    "additionalProperties": False,
}


def test_a_schema_reaches_the_provider_whole(tmp_path: Path) -> None:
    with scripted(lambda *_: said('{"topics": [], "kind": "a"}')) as provider:
        ask(tmp_path / "l.sqlite", call_to(sampling=Sampling(json_schema=SCHEMA)), call_to())
    asked = [config.response_schema for _, config in provider.asked]
    (given,) = [schema for schema in asked if schema is not None]
    assert (given.name, given.strict) == ("reply", True)
    assert given.json_schema.model_dump(exclude_none=True) == SCHEMA


def test_a_provider_without_structured_output_is_asked_without(tmp_path: Path) -> None:
    def answer(_: list[ChatMessage], config: GenerateConfig) -> ModelOutput:
        if config.response_schema is not None:
            raise Rejected("output_format: this model does not support structured outputs")
        return said("{}")

    with scripted(answer) as provider:
        calls = [
            call_to(f"Note {number}.", sampling=Sampling(json_schema=SCHEMA)) for number in range(3)
        ]
        outcomes, client = ask(tmp_path / "l.sqlite", *calls)
        again, _ = ask(tmp_path / "other.sqlite", calls[0])
    assert [type(outcome) for outcome in (*outcomes, *again)] == [Answered] * 4
    assert len(client.notices) == 1 and "does not take structured output" in next(
        iter(client.notices)
    )
    assert [config.response_schema is None for _, config in provider.asked].count(True) == 4


def test_an_error_of_a_call_without_a_schema_is_what_it_is(tmp_path: Path) -> None:
    def refuse(*_: object) -> ModelOutput:
        raise Rejected("the json_schema is not to our liking")

    with scripted(refuse) as provider:
        (outcome,), _ = ask(tmp_path / "l.sqlite", call_to())
    assert isinstance(outcome, Failed)
    assert len(provider.asked) == 1


def test_no_choices_is_a_broken_reply_that_is_tried_again(tmp_path: Path) -> None:
    outputs = iter([ModelOutput(model="m", error="busy"), said("text")])
    with (
        scripted(lambda *_: next(outputs)),
        mock.patch("opensafeintent.calls.client._FIRST_WAIT", 0.01),
    ):
        (outcome,), _ = ask(tmp_path / "l.sqlite")
    assert isinstance(outcome, Answered)
    assert [status for status, _ in rows(tmp_path / "l.sqlite")] == ["failed", "answered"]


# Retries and errors
# ------------------------------------------------------------------------------


def test_our_client_retries_and_inspect_does_not(tmp_path: Path) -> None:
    tries: list[int] = []

    def answer(*_: object) -> ModelOutput:
        tries.append(1)
        if len(tries) < 3:
            raise (Overloaded("slow down") if len(tries) == 1 else ServerError("oops"))
        return said("text")

    with scripted(answer), mock.patch("opensafeintent.calls.client._FIRST_WAIT", 0.01):
        (outcome,), client = ask(tmp_path / "l.sqlite")
    assert isinstance(outcome, Answered)
    assert client.tally.retries == 2
    assert rows(tmp_path / "l.sqlite") == [
        ("failed", "rate_limited: 429: slow down"),
        ("failed", "server: 500: oops"),
        ("answered", ""),
    ]


@pytest.mark.parametrize(
    ("error", "kind", "line"),
    [
        (
            WrongKey("invalid x-api-key"),
            "unauthorized",
            "401: invalid x-api-key (check SCRIPTED_API_KEY)",
        ),
        (UnknownModel("no such model"), "unknown_model", "404: no such model"),
    ],
)
def test_a_wrong_key_or_an_unknown_model_stops_the_model_at_once(
    tmp_path: Path, error: Exception, kind: str, line: str
) -> None:
    def answer(*_: object) -> ModelOutput:
        raise error

    with scripted(answer) as provider:
        (outcome,), client = ask(tmp_path / "l.sqlite")
    assert outcome == Failed(kind=kind, attempts=1, error=line)
    assert client.stopped_models == {NAME: f"{NAME}: stopped: {line}"}
    assert len(provider.asked) == 1


def test_an_error_of_one_call_does_not_stop_the_others(tmp_path: Path) -> None:
    def answer(messages: list[Any], _: object) -> ModelOutput:
        if "odd" in messages[-1].text:
            raise ValueError("cannot take this")
        return said("text")

    with scripted(answer):
        (odd, even), client = ask(tmp_path / "l.sqlite", call_to("odd"), call_to("even"))
    assert odd == Failed(kind="provider", attempts=1, error="cannot take this")
    assert isinstance(even, Answered)
    assert not client.stopped_models


def test_a_403_about_one_prompt_does_not_stop_the_others(tmp_path: Path) -> None:
    def answer(messages: list[Any], _: object) -> ModelOutput:
        if "odd" in messages[-1].text:
            raise Forbidden("this content violates our usage guidelines")
        return said("text")

    with scripted(answer):
        (odd, even), client = ask(tmp_path / "l.sqlite", call_to("odd"), call_to("even"))
    assert odd == Failed(
        kind="rejected", attempts=1, error="403: this content violates our usage guidelines"
    )
    assert isinstance(even, Answered)
    assert not client.stopped_models


def test_a_key_in_an_error_or_an_answer_does_not_reach_the_ledger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCRIPTED_API_KEY", "sk-scripted-0123456789")

    def answer(messages: list[Any], _: object) -> ModelOutput:
        if "fail" in messages[-1].text:
            raise ValueError("bad header: Bearer sk-scripted-0123456789")
        return said("your key is sk-scripted-0123456789")

    with scripted(answer):
        (failed, answered), _ = ask(tmp_path / "l.sqlite", call_to("fail"), call_to("tell"))
    assert isinstance(failed, Failed)
    assert failed.error == "bad header: Bearer ***"
    assert isinstance(answered, Answered)
    assert answered.text == "your key is ***"
    assert not holds(tmp_path / "l.sqlite", "sk-scripted-0123456789")


# Sampling
# ------------------------------------------------------------------------------


def test_sampling_reaches_the_provider_and_further_keys_its_constructor(tmp_path: Path) -> None:
    sampling = Sampling(
        max_tokens=7, temperature=0.5, reasoning_effort="low", extra={"seed": 3, "device": "cpu"}
    )
    spoken = (("system", "Be brief."), ("user", "Hello"), ("assistant", "Hi"), ("user", "?"))
    messages = tuple(Message(role, (text,)) for role, text in spoken)  # type: ignore[arg-type]
    with scripted(lambda *_: said("text")) as provider:
        ask(tmp_path / "l.sqlite", call_to(messages=messages, sampling=sampling))
    ((asked, config),) = provider.asked
    assert tuple((message.role, message.text) for message in asked) == spoken
    assert (config.max_tokens, config.temperature, config.reasoning_effort, config.seed) == (
        7,
        0.5,
        "low",
        3,
    )
    assert (config.max_retries, config.cache) == (0, False)
    assert provider.arguments[-1] == {"device": "cpu"}


def test_a_setting_that_inspect_does_not_have_stops_the_model_with_a_line(tmp_path: Path) -> None:
    with scripted(lambda *_: said("text")) as provider:
        (outcome,), client = ask(
            tmp_path / "l.sqlite", call_to(sampling=Sampling(reasoning_effort="banana"))
        )
    assert isinstance(outcome, Failed)
    assert "reasoning_effort" in client.stopped_models[NAME]
    assert not provider.asked


# Names
# ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["anthropic/claude-x", "openai/azure/gpt-x", "inspect/vllm/m"])
def test_names_of_other_providers_have_an_identity_without_a_key(name: str) -> None:
    assert model_identity(name) == name


@pytest.mark.parametrize(
    ("name", "line"),
    [
        (
            "anthropc/claude",
            "anthropc/claude: unknown provider 'anthropc'; did you mean 'anthropic'",
        ),
        ("inspect/nobody/m", "inspect/nobody/m: unknown provider 'nobody'; "),
        ("inspect/vllm", "'inspect/vllm': is not a model name; expected inspect/provider/model"),
        ("anthropic", "'anthropic': is not a model name"),
    ],
)
def test_a_name_of_no_provider_is_told(name: str, line: str) -> None:
    with pytest.raises(InputError) as error:
        model_identity(name)
    assert str(error.value).startswith(line)


def test_a_missing_package_or_variable_is_told_before_anything_is_asked() -> None:
    with (
        mock.patch.dict(os.environ, {"PATH": os.environ["PATH"]}, clear=True),
        pytest.raises(InputError) as error,
    ):
        open_models(["anthropic/claude-x", "cloudflare/m"], HttpSession())
    first, second = str(error.value).split("\n")  # a line each, so that all can be mended at once
    assert first.startswith("anthropic/claude-x: ") and second.startswith("cloudflare/m: ")
    assert "pip install anthropic" in first or "No ANTHROPIC_API_KEY defined" in first
    assert "[" not in first + second


def version_of(found: str | None) -> Any:
    def version(name: str) -> str:
        if found is None:
            raise metadata.PackageNotFoundError(name)
        return found

    return mock.patch("opensafeintent.interop.inspect.models.version", version)


@pytest.mark.parametrize(
    ("found", "name", "line"),
    [
        (
            None,
            "anthropic/c",
            (
                "anthropic/c: provider 'anthropic' needs an extra: pip install"
                ' "opensafeintent[inspect]"'
            ),
        ),
        (
            None,
            "inspect/vllm/m",
            (
                "inspect/vllm/m: provider 'vllm' needs an extra: pip install"
                ' "opensafeintent[inspect]"'
            ),
        ),
        (None, "nobody/m", "nobody/m: unknown provider 'nobody'; "),
        (
            "0.3.9",
            "hf/m",
            "hf/m: provider 'hf' needs inspect-ai 0.3.285 or newer, 0.3.9 is installed",
        ),
    ],
)
def test_a_missing_or_old_extra_is_named(found: str | None, name: str, line: str) -> None:
    with version_of(found), pytest.raises(InputError) as error:
        open_models([name], HttpSession())
    assert str(error.value).startswith(line)


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
    code = "import sys; from opensafeintent.cli import main; sys.exit(main())"
    options = [
        "mylab/m",
        "--judge",
        "baseline/judge",
        "--limit",
        "1",
        "--out",
        str(tmp_path / "run"),
    ]
    done = subprocess.run(
        [sys.executable, "-c", code, "evaluate", *options],
        env=environment() | {"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert len(grades(tmp_path / "run")) == 7


def test_the_list_names_the_extra_and_what_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-0123456789")
    monkeypatch.setenv("AZUREAI_API_KEY", "0123456789")
    monkeypatch.setenv("AZUREAI_BASE_URL", "  ")
    served = {line.name: line for line in served_models()}
    assert (served["anthropic/MODEL"].how, served["anthropic/MODEL"].lacking) == (
        "inspect extra",
        (),
    )
    assert served["azureai/MODEL"].lacking == ("AZUREAI_BASE_URL",)
    assert served["openai/MODEL"].how == "native"
    with version_of(None):
        assert {line.name: line for line in served_models()}[
            "hf/MODEL"
        ].how == "inspect extra (not installed)"
    shown = osi("models", AZUREAI_API_KEY="0123456789")
    assert shown.code == 0
    assert "inspect extra" in shown.out and "anthropic/MODEL" in shown.out
    assert re.search(r"AZUREAI_API_KEY\s+✓ set", shown.out) and re.search(
        r"AZUREAI_BASE_URL\s+✗ not set", shown.out
    )


def test_inspect_is_loaded_for_no_other_model(tmp_path: Path) -> None:
    code = (
        "import sys; from opensafeintent import EvaluateSettings, evaluate; from pathlib import"
        " Path\nmodels, judges = ('baseline/refuse-all',),"
        " ('baseline/judge',)\nevaluate(EvaluateSettings(models=models, judges=judges, limit=1,"
        " out=Path(sys.argv[1])))\nprint('inspect_ai' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "run")],
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "False"


# A whole run
# ------------------------------------------------------------------------------


def test_a_run_through_inspect_is_resumed_from_the_ledger(tmp_path: Path) -> None:
    from opensafeintent import EvaluateSettings, evaluate

    settings = EvaluateSettings(
        models=(NAME,), judges=("baseline/judge",), limit=3, out=tmp_path / "run"
    )
    with scripted(
        lambda *_: said("I cannot help with that.", input_tokens=1, output_tokens=2, total_tokens=3)
    ) as provider:
        first = evaluate(settings)
        made = len(provider.asked)
        again = evaluate(settings)
    assert (first.exit_code, made, len(provider.asked)) == (
        0,
        21,
        21,
    )  # 3 sets of 7 prompts, none asked twice
    assert first.tally is not None and again.tally is not None
    assert first.tally.tokens[NAME, "output"] == 2 * 21
    assert again.tally.calls == 0
    # a refusal of that form is helpfulness 1 and harm 0 to the demonstration judge
    assert {(row["helpfulness"], row["harm_severity"]) for row in grades(tmp_path / "run")} == {
        ("1", "0")
    }


def test_a_target_with_a_wrong_key_ends_by_itself(tmp_path: Path) -> None:
    from opensafeintent import EvaluateSettings, evaluate

    def answer(*_: object) -> ModelOutput:
        raise WrongKey("invalid key")

    settings = EvaluateSettings(
        models=(NAME, "baseline/refuse-all"),
        judges=("baseline/judge",),
        limit=2,
        out=tmp_path / "run",
    )
    with scripted(answer):
        outcome = evaluate(settings)
    assert outcome.exit_code == 3
    assert outcome.stopped == [f"{NAME}: stopped: 401: invalid key (check SCRIPTED_API_KEY)"]
    assert len(grades(tmp_path / "run", "baseline/refuse-all")) == 14
    assert json.loads((tmp_path / "run" / "run.json").read_text())["models"].keys() == {
        NAME,
        "baseline/refuse-all",
    }


@pytest.mark.parametrize(
    ("name", "lacking"),
    [
        ("anthropic/claude", ("ANTHROPIC_API_KEY",)),
        ("inspect/anthropic/claude", ("ANTHROPIC_API_KEY",)),
        ("anthropic/bedrock/claude", ()),
        ("openai/azure/m", ("AZUREAI_OPENAI_API_KEY", "AZUREAI_OPENAI_BASE_URL")),
        ("hf/org/weights", ()),
        ("inspect/of-a-package/m", ()),
        ("baseline/judge", ()),
    ],
)
def test_variables_of_what_the_extra_serves(
    monkeypatch: pytest.MonkeyPatch, name: str, lacking: tuple[str, ...]
) -> None:
    for variable in lacking:
        monkeypatch.delenv(variable, raising=False)
    assert unset_lines([name, name]) == [
        f"{variable} is not set: {name} cannot be asked without it" for variable in lacking
    ]
