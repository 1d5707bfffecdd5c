"""`--header`: how it is read, and which model gets which header."""

from __future__ import annotations

import pytest

from opensafeintent import BuildSettings, EvaluateSettings, ReportSettings
from opensafeintent.calls.headers import Header, headers_by_model, parse_header, read_header_values
from opensafeintent.errors import InputError

GPT, LLAMA, JUDGE = "openai/gpt", "openai-api/lab/llama:70b", "anthropic/judge"
SECRET = "gw-canary-0123456789"


def refusal(*texts: str, tested: tuple[str, ...] = (GPT,), asked: tuple[str, ...] = ()) -> str:
    with pytest.raises(InputError) as raised:
        headers_by_model(texts, tested, {JUDGE}, {*tested, JUDGE, *asked})
    return str(raised.value)


@pytest.mark.parametrize(
    ("text", "header"),
    [
        ("X-Team=TEAM", Header("", "x-team", "TEAM")),
        ("openai/gpt:X-Team=_team2", Header("openai/gpt", "x-team", "_team2")),
        # a model's name may hold `:`, `/` and `=`
        ("openai-api/lab/llama:70b=q:X-A=B", Header("openai-api/lab/llama:70b=q", "x-a", "B")),
        ("X-!#$%&'*+-.^_`|~9=B", Header("", "x-!#$%&'*+-.^_`|~9", "B")),
    ],
)
def test_the_last_equals_sign_and_the_last_colon_before_it_separate(
    text: str, header: Header
) -> None:
    assert parse_header(text) == header


@pytest.mark.parametrize(
    "text",
    [
        *("", "=", "X-Key", "X-Key=", "=VARIABLE", ":X=", ":=V", "openai/gpt:=V", "X Key=V"),
        *(f"X-Key={SECRET}", f"X-Key=Bearer {SECRET}", f"X-Key={SECRET}=", f"X-Key={SECRET}=A"),
        *(f"X-Key: {SECRET}", "X-Ключ=V", "X-Key=V\n", "X\r\nY=V", "X-Key=$VARIABLE", "X\x00=V"),
    ],
)
def test_another_form_is_refused_and_not_shown_since_it_may_hold_a_value(text: str) -> None:
    with pytest.raises(InputError, match="never a value") as raised:
        EvaluateSettings(models=GPT, judges=JUDGE, header=[text])
    assert SECRET not in str(raised.value)


@pytest.mark.parametrize(
    "name",
    [
        *("Authorization", "aUTHORIZATION", "Proxy-Authorization", "Host", "Content-Type"),
        *("Content-Length", "content-anything", "Transfer-Encoding", "Connection", "Expect", "TE"),
        *("Accept-Encoding", "Upgrade"),
    ],
)
def test_headers_of_the_program_and_of_the_connection_are_refused(name: str) -> None:
    with pytest.raises(InputError, match=f"the program sets {name.lower()}"):
        parse_header(f"{name}=VARIABLE")
    with pytest.raises(InputError, match=f"the program sets {name.lower()}"):
        parse_header(f"{GPT}:{name}=VARIABLE")


def test_a_header_without_a_model_is_for_the_models_under_test_alone() -> None:
    texts = ("X-Team=TEAM", f"{JUDGE}:X-Canary=CANARY", f"{LLAMA}:X-TEAM=OTHER")
    tested = (GPT, LLAMA, "baseline/redirect", "python/mine@1")
    # of two for one model, the one that names it
    assert headers_by_model(texts, tested, {JUDGE}, {*tested, JUDGE}) == {
        GPT: {"x-team": "TEAM"},
        LLAMA: {"x-team": "OTHER"},
        JUDGE: {"x-canary": "CANARY"},
    }


def test_a_model_that_judges_too_gets_what_names_it_alone() -> None:
    assert "anthropic/judge judges too" in refusal("X-Team=T", tested=(GPT, JUDGE))
    both = ("X-Team=T", f"{JUDGE}:X-Team=T")
    assert headers_by_model(both, (GPT, JUDGE), {JUDGE}, {GPT, JUDGE}) == {
        GPT: {"x-team": "T"},
        JUDGE: {"x-team": "T"},
    }


@pytest.mark.parametrize(
    ("texts", "more", "words"),
    [
        (["openai/gtp:X-A=V"], {}, "--header openai/gtp:x-a: no request goes to 'openai/gtp'; did"),
        (["gpt:X-A=V"], {}, "no request goes to 'gpt'"),
        (["X-A=V", "x-a=W"], {}, "x-a is stated twice"),
        (["X-A=V"], {"tested": ("baseline/redirect",)}, "no request goes to one"),
        (["X-A=V"], {"tested": ()}, "no request goes to one"),
        (["baseline/x:X-A=V"], {"asked": ("baseline/x",)}, "answers in this process"),
        (["bedrock/m:X-A=V"], {"asked": ("bedrock/m",)}, "is asked through Inspect AI"),
        (["X-A=V"], {"tested": ("inspect/vllm/m",)}, "is asked through Inspect AI"),
        ([f"{JUDGE}:x-api-key=V"], {}, f"the program sets x-api-key for {JUDGE}"),
        ([f"{JUDGE}:Anthropic-Version=V"], {}, f"the program sets anthropic-version for {JUDGE}"),
    ],
)
def test_what_could_have_no_effect_is_refused(
    texts: list[str], more: dict[str, tuple[str, ...]], words: str
) -> None:
    assert words in refusal(*texts, **more)


def test_a_gateway_may_have_its_key_where_anthropic_has_its_own() -> None:
    assert headers_by_model(["X-API-Key=V"], (GPT,), (), (GPT,)) == {GPT: {"x-api-key": "V"}}


@pytest.mark.parametrize("value", ["", "  ", "a\nb", "a\x7f", "schlüssel", "a\r\nX: y"])
def test_a_value_that_no_header_can_have_is_refused_and_not_shown(
    monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv("GATEWAY", value)
    with pytest.raises(InputError, match=r"openai/gpt: (no|the) value for the header x-a") as no:
        read_header_values(GPT, {"x-a": "GATEWAY"})
    assert not value.strip() or value not in str(no.value)


@pytest.mark.parametrize("setting", ["extra", "judge_args"])
@pytest.mark.parametrize(
    ("name", "hint"),
    [
        *((name, "header") for name in ("extra_headers", "Extra-Headers", "default_headers")),
        *((name, "KEY=VALUE") for name in ("extra_body", "extra_query")),
        ("api_key", "its provider's variable"),
    ],
)
def test_a_field_that_would_go_into_body_and_results_is_refused(
    setting: str, name: str, hint: str
) -> None:
    for key in (name, f"{JUDGE}:{name}") if setting == "judge_args" else (name,):
        with pytest.raises(InputError, match=f"is no field of a request; .*{hint}") as raised:
            EvaluateSettings(models=GPT, judges=JUDGE, **{setting: {key: {"X-Key": SECRET}}})
        assert SECRET not in str(raised.value)
    with pytest.raises(InputError, match="is no field of a request"):
        BuildSettings(generator=GPT, judge=JUDGE, out="x", per_cell=1, **{setting: {name: SECRET}})


@pytest.mark.parametrize("variable", ["LAB_API_KEY", "GATEWAY_PASSWD", "LAB_AUTH", "X_TEAM"])
@pytest.mark.parametrize(
    "settings",
    [
        {"system": f"The key is {SECRET}."},
        {"extra": {"user": [{"deep": f"a {SECRET}"}]}},
        {"judge_args": {"user": SECRET}},
        {"label": [f"{GPT}=My {SECRET}"]},
    ],
)
def test_the_value_of_a_secret_variable_in_a_text_that_is_stored_is_refused(
    monkeypatch: pytest.MonkeyPatch, variable: str, settings: dict[str, object]
) -> None:
    monkeypatch.setenv(variable, SECRET)
    settings = settings | {"models": GPT, "judges": JUDGE, "header": "X-Team=X_TEAM"}
    with pytest.raises(InputError, match=f"holds the value of {variable}") as raised:
        EvaluateSettings(**settings)
    assert SECRET not in str(raised.value)


def test_a_label_of_a_report_is_stored_too_and_a_word_is_no_secret(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LAB_TOKEN", SECRET)
    with pytest.raises(InputError, match="holds the value of LAB_TOKEN"):
        ReportSettings(runs="run", label=f"{GPT}={SECRET}")
    monkeypatch.setenv("LAB_TOKEN", "something")
    settings = EvaluateSettings(models=GPT, judges=JUDGE, system="Say something.")
    assert settings.system == "Say something."
