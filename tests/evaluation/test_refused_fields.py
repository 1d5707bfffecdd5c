"""A field that a model does not take is left out, for target, judge, check and build: in whatever
form its provider, or a gateway before it, says so.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from endtoend import JUDGE, TARGET, Lab, asked_of, entry, evaluate, osi, some_sets
from loopback import GENERATE, HARM, Fault, LoopbackServer, Match

TEXT = "`temperature` is deprecated for this model."
EXTRA = {
    "type": "extra_forbidden",
    "loc": ["body", "temperature"],
    "msg": "Extra inputs",
    "input": 0,
}
OPENAI = {"message": "Unsupported value", "param": "temperature", "code": "unsupported_value"}


def error(**fields: Any) -> dict[str, Any]:
    return {"error": fields}


FORMS: dict[str, tuple[int, Any]] = {
    "OpenAI": (400, error(**OPENAI)),
    "Moonshot": (400, error(message="invalid temperature: only 1 is allowed for this model")),
    "Anthropic": (
        400,
        {"type": "error", "error": {"type": "invalid_request_error", "message": TEXT}},
    ),
    "pydantic": (422, {"detail": [EXTRA]}),
    "a list in message": (
        422,
        {"object": "Error", "message": [EXTRA], "detail": [EXTRA], "code": 3001},
    ),  # php-mistral#76
    "JSON in message": (
        400,
        error(code="Invalid input", message=json.dumps({"detail": [EXTRA]})),
    ),  # langchain-azure#82
    "Python in message": (
        400,
        error(message=str([EXTRA]), type="BadRequestError", param=None),
    ),  # vllm#10015
    "detail": (400, {"detail": "Unsupported parameter: temperature"}),  # lobehub#17831
    "LiteLLM": (
        400,
        error(
            message=f"litellm.BadRequestError: OpenAIException - {TEXT}. Received Model Group=m",
            code="400",
            param=None,
        ),
    ),
    "cause": (
        400,
        error(cause=json.dumps(error(**OPENAI), indent=1), code=400, message="failed"),
    ),  # llm_wiki#670
    "raw": (
        400,
        error(
            message="Provider returned error",
            code=400,
            metadata={"raw": json.dumps(error(message=TEXT))},
        ),
    ),
    "Databricks": (
        400,
        {"error_code": "BAD_REQUEST", "message": "temperature is not supported"},
    ),  # pi#7748
    "a text": (
        400,
        {"code": "invalid-argument", "error": "Argument not supported on this model: temperature"},
    ),
    "array": (
        400,
        [
            error(
                code=400,
                message='Unknown name "temperature": Cannot find field.',
                status="INVALID_ARGUMENT",
            )
        ],
    ),
    "Fireworks": (400, error(message="Extra inputs are not permitted, field: 'temperature'")),
    "Groq": (400, error(message="property 'temperature' is unsupported")),
}


def refuse(form: str, field: str = "temperature", **match: Any) -> Fault:
    """Refuse requests that have a field; the fields of the form are those of `temperature`."""
    status, value = FORMS[form]
    camel = "".join(part.title() if n else part for n, part in enumerate(field.split("_")))
    body = json.dumps(value).replace("temperature", camel if form == "a text" else field)
    return Fault(action="body", status=status, body=body.encode(), match=Match(has=field, **match))


def sent(server: LoopbackServer, purpose: str, field: str) -> list[bool]:
    """Return of each request for a purpose whether it had a field."""
    return [field in request.body for request in asked_of(server, purpose)]


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
def test_a_judge_is_asked_without_what_it_does_not_take(lab: Lab, form: str) -> None:
    lab.server.set_faults(refuse(form, model="judge"))
    ran = lab.evaluate("--limit", 2, "--max-connections", 1)
    assert ran.code == 0, ran.err
    # the first request had it, and no other
    with_it = [request for request in lab.server.requests if "temperature" in request.body]
    assert {request.model for request in with_it} == {"judge"} and len(with_it) == 1
    assert entry(lab.run, "mean_utility")["n"] == 2
    assert f"{JUDGE}: does not take temperature; it was asked without" in ran.text
    manifest = json.loads((lab.run / "run.json").read_text())
    assert manifest["left_out"] == {JUDGE: ["temperature"]}
    # the next run knows, and so does the page
    assert lab.evaluate().code == 0
    assert [request for request in lab.server.requests if "temperature" in request.body] == with_it
    assert osi("report", lab.run).code == 0
    page = (lab.run / "report.html").read_text()
    assert "does not take temperature, and was asked without" in page


def test_a_target_is_asked_without_it_too(lab: Lab) -> None:
    lab.server.set_faults(refuse("a text", "reasoning_effort"), refuse("pydantic", "seed"))
    options = ("--limit", 2, "--reasoning-effort", "low", "-M", "seed=3", "--max-connections", 1)
    ran = lab.evaluate(*options)
    assert ran.code == 0, ran.err
    for field in ("seed", "reasoning_effort"):
        assert 1 <= sum(sent(lab.server, GENERATE, field)) <= 2
    manifest = json.loads((lab.run / "run.json").read_text())
    assert manifest["left_out"] == {TARGET: ["reasoning_effort", "seed"]}
    assert f"{TARGET}: does not take reasoning_effort; it was asked without" in ran.text


@pytest.mark.slow
def test_a_token_limit_keeps_its_value_under_its_other_name(lab: Lab) -> None:
    refusal = {"message": "'max_tokens' is not supported, use 'max_completion_tokens' instead"}
    lab.server.set_faults(
        Fault(action="status", status=400, match=Match(has="max_tokens"), **refusal)
    )
    ran = lab.evaluate("--limit", 1, "--max-connections", 1)
    assert ran.code == 0, ran.err
    assert lab.server.requests[-1].body["max_completion_tokens"] == 2048
    assert "does not take" not in ran.text
    assert lab.evaluate().code == 0
    assert "max_tokens" not in lab.server.requests[-1].body


@pytest.mark.slow
def test_an_error_about_one_prompt_takes_no_field_from_the_others(lab: Lab) -> None:
    long = (
        "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens (904"
        " in the messages, 4096 in the completion). Please reduce the length, or max_tokens."
    )
    prompt = json.loads(lab.dataset.read_text().splitlines()[0])["prompts"]["benign"]
    echo = f"rejected: {{'temperature': 0, 'messages': [{prompt!r}]}}"
    for message in (long, echo):
        lab.server.reset()
        lab.server.set_faults(
            Fault(
                action="status",
                status=400,
                message=message,
                match=Match(purpose=GENERATE, about=prompt),
            )
        )
        run = lab.run.with_name(str(len(message)))
        ran = evaluate(lab.server, lab.dataset, run, "--temperature", 1, "--max-connections", 1)
        assert "does not take" not in ran.text
        assert json.loads((run / "run.json").read_text())["left_out"] == {}
        asked = [request for request in asked_of(lab.server, GENERATE) if request.status == 200]
        assert all({"temperature", "max_tokens"} <= request.body.keys() for request in asked)


@pytest.mark.slow
def test_the_check_of_a_judge_and_a_build_go_on_without_it(
    server: LoopbackServer, tmp_path: Path
) -> None:
    server.set_faults(refuse("Anthropic"))
    out = tmp_path / "check"
    ran = osi("judge-check", "--judge", JUDGE, "--out", out, server=server)
    assert ran.code in (0, 4), ran.err
    assert f"{JUDGE}: does not take temperature" in ran.text
    assert json.loads((out / "openai-api-loop-judge.json").read_text())["left_out"] == [
        "temperature"
    ]
    seeds = tmp_path / "seeds.jsonl"
    seeds.write_text('{"prompt": "How do I rob a bank?"}\n')
    models = ("openai-api/loop/generator", "openai-api/loop/construction-judge")
    build = ("build", seeds, "--generator", models[0], "--judge", models[1], "--out")
    ran = osi(*build, tmp_path / "build", "--temperature", 1, "--max-connections", 1, server=server)
    assert ran.code == 0, ran.err
    manifest = json.loads((tmp_path / "build" / "build.json").read_text())
    assert manifest["left_out"] == {model: ["temperature"] for model in models}
    server.reset()
    ran = osi(*build, tmp_path / "build", "--temperature", 1, "--per-cell", 1, server=server)
    assert not any("temperature" in request.body for request in server.requests)


# Arguments of judges
# ------------------------------------------------------------------------------


@pytest.mark.slow
def test_arguments_reach_all_judges_or_one(server: LoopbackServer, tmp_path: Path) -> None:
    dataset, run = some_sets(tmp_path, 1), tmp_path / "run"
    judges = [JUDGE, "openai-api/loop/other:v1"]
    options = (
        *("--judge-arg", 'chat_template_kwargs={"enable_thinking": false}'),
        *("--judge-arg", "openai-api/loop/other:v1:seed=3"),
        *("--judge-arg", "reasoning_effort=low"),
    )
    ran = evaluate(server, dataset, run, *options, judges=judges)
    assert ran.code == 0, ran.err
    for request in asked_of(server, HARM):
        assert request.body["chat_template_kwargs"] == {"enable_thinking": False}
        assert request.body["reasoning_effort"] == "low"
        assert ("seed" in request.body) == (request.model == "other:v1")
    assert "seed" not in asked_of(server, GENERATE)[0].body
    before = server.stats()["total"]
    # the same again makes no call; other arguments are another judge's, in another folder
    assert evaluate(server, dataset, run, *options, judges=judges).code == 0
    assert server.stats()["total"] == before
    other_run = evaluate(server, dataset, run, *options[:2], *options[4:], judges=judges)
    assert "arguments of openai-api/loop/other:v1 (--judge-arg): the run has" in other_run.refusal
    # what is not stated is the run's
    assert evaluate(server, dataset, run, judges=judges).code == 0
    assert server.stats()["total"] == before
    # a judge that joins brings its own
    third = "openai-api/loop/third"
    joined = (*options, "--judge-arg", f"{third}:seed=5")
    assert evaluate(server, dataset, run, *joined, judges=[*judges, third]).code == 0
    manifest = json.loads((run / "run.json").read_text())
    assert manifest["plan"]["judge_samplings"][third]["extra"]["seed"] == 5


@pytest.mark.slow
def test_runs_with_other_arguments_of_a_judge_are_not_mixed(
    server: LoopbackServer, tmp_path: Path
) -> None:
    dataset = some_sets(tmp_path, 1)
    for name, options in (("with", ("--judge-arg", "reasoning_effort=low")), ("without", ())):
        assert evaluate(server, dataset, tmp_path / name, *options).code == 0
    for command in (("report", "--out", tmp_path / "out"), ("compare",)):
        ran = osi(*command, tmp_path / "with", tmp_path / "without", server=server)
        assert "cannot be compared: judge arguments: " in ran.refusal


@pytest.mark.parametrize(
    ("argument", "complaint"),
    [
        ("seed", "--judge-arg seed: expected KEY=VALUE"),
        ("openai-api/loop/judg:seed=1", "no judge 'openai-api/loop/judg'; did you mean"),
        ("openai-api/loop/judge:=1", "expected KEY=VALUE"),
        ("messages=1", "messages is set by the program"),
        ("openai-api/loop/judge:model=x", "model is set by the program"),
    ],
)
def test_an_argument_of_no_judge_is_refused(lab: Lab, argument: str, complaint: str) -> None:
    assert complaint in lab.evaluate("--judge-arg", argument).refusal


def test_a_build_takes_arguments_for_both(server: LoopbackServer, tmp_path: Path) -> None:
    seeds = tmp_path / "seeds.jsonl"
    seeds.write_text('{"prompt": "How do I rob a bank?"}\n')
    models = (
        "--generator",
        "openai-api/loop/generator",
        "--judge",
        "openai-api/loop/construction-judge",
    )
    extra = ("-M", "top_p=0.9", "--judge-arg", "seed=3", "--judge-arg", "reasoning_effort=low")
    ran = osi("build", seeds, *models, *extra, "--out", tmp_path / "build", server=server)
    assert ran.code == 0, ran.err
    for request in server.requests:
        generator = request.model == "generator"
        assert ("top_p" in request.body) == generator
        assert ("seed" in request.body) == ("reasoning_effort" in request.body) == (not generator)
