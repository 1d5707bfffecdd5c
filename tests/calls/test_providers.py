"""From a model's name to what answers for it."""

from __future__ import annotations

import re
from contextlib import nullcontext

import pytest

from opensafeintent.any_model import model_identity, open_models, served_models
from opensafeintent.calls.baselines import ScriptedModel
from opensafeintent.calls.http import EndpointModel, HttpSession
from opensafeintent.calls.protocols.anthropic import MESSAGES
from opensafeintent.calls.providers import (
    ENDPOINTS,
    INSPECT_PROVIDERS,
    Provider,
    is_another,
    name_variables,
    names_version,
    resolve_endpoint,
    unset,
)
from opensafeintent.errors import InputError

NO_ADDRESS = {
    "no-address": Provider(""),
    "no-address-local": Provider("", local=True),
    "no-address-messages": Provider("", protocol=MESSAGES),
}
"""Rows of providers whose address only the user knows."""


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, row in NO_ADDRESS.items():
        monkeypatch.setitem(ENDPOINTS, name, row)


@pytest.mark.parametrize("provider", [*ENDPOINTS, *NO_ADDRESS, "openai-api/my-lab"])
def test_every_provider_is_reached_at_its_own_address_or_the_users(provider: str) -> None:
    slug = provider.removeprefix("openai-api/")
    url, key = name_variables(slug)
    endpoint = resolve_endpoint(f"{provider}/m", {key: "k", url: "http://10.0.0.1:8000/v1/"})
    row = ENDPOINTS.get(slug, Provider(""))
    route = row.protocol.route("m")
    version = "" if route.startswith("/v1/") else "/v1"
    assert (endpoint.base_url, endpoint.model) == (f"http://10.0.0.1:8000{version}", "m")
    if not row.base_url:
        any_text = "" if slug in ENDPOINTS else "; any text, if the server takes none"
        example = f"http://localhost:8000{'' if re.match('/v[0-9]', route) else '/v1'}"
        set_url = f"set {url} to the server's base URL, such as {example}"
        set_both = set_url if row.local else f"{set_url}, and {key} to its key{any_text}"
        assert complaint_about(f"{provider}/m", {key: "k"}) == f"{provider}/m: {set_url}"
        assert complaint_about(f"{provider}/m", {}) == f"{provider}/m: {set_both}"
        served = {url: "http://10.0.0.1:8000/v1/"}
        if row.local:
            assert resolve_endpoint(f"{provider}/m", served).api_key is None
        else:
            no_key = f"{provider}/m: no key; set {key}{any_text}"
            assert complaint_about(f"{provider}/m", served) == no_key
        return
    usual = resolve_endpoint(f"{provider}/some/model", {key: "k"})
    assert (usual.model, usual.base_url) == ("some/model", row.base_url)
    assert (usual.api_key, usual.key_variable) == ("k", key)
    assert usual.base_url.startswith("http://localhost:" if usual.local else "https://")
    if usual.local:
        assert resolve_endpoint(f"{provider}/m", {}).api_key is None
        assert resolve_endpoint(f"openai-api/{provider}/m", {}).local
    else:
        with pytest.raises(InputError, match=f"{provider}/m: no key; set {key}"):
            resolve_endpoint(f"{provider}/m", {key: ""})


def complaint_about(name: str, environment: dict[str, str]) -> str:
    """Return the error that says why a model cannot be asked."""
    with pytest.raises(InputError) as refused:
        resolve_endpoint(name, environment)
    return str(refused.value)


NO_URLS = ("localhost:8000/v1", "ftp://a/v1", "https://", "http://[::1/v1", "http://host:port/v1")
WITH_PASSWORDS = (
    *("http://user:secret@host/v1", "htp://user:secret@host/v1", "user:secret@host/v1"),
    "http://user:sec/secret@host:port/v1",
)


@pytest.mark.parametrize("url", [*NO_URLS, *WITH_PASSWORDS])
def test_a_base_url_that_is_none_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(InputError, match=r"^VLLM_BASE_URL: ") as refused:
        resolve_endpoint("vllm/m", {"VLLM_BASE_URL": url})
    assert not re.search("secret|user:", str(refused.value))


@pytest.mark.parametrize("key", ["sk-1\n", "sk-1\r\n", " sk-1 "])
def test_white_space_around_a_key_is_taken_off(key: str) -> None:
    assert resolve_endpoint("openai/m", {"OPENAI_API_KEY": key}).api_key == "sk-1"
    with pytest.raises(InputError, match=r"^OPENAI_API_KEY: holds white space or char[^1]*$"):
        resolve_endpoint("openai/m", {"OPENAI_API_KEY": f"{key}sk-1"})


NO_NAMES = ("gpt-5", "", "/m", "openai/", "openai-api/lab/", "openai-api//m", "openai-api/l b/m")


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        *((name, "is not a model name") for name in NO_NAMES),
        ("http://h:8000/v1", "^http://h:8000/v1: is the address of a server; name the model vllm/"),
        ("http://user:secret@h/v1", "^…@h/v1: is the address of a server"),
        ("opnai/m", "unknown provider 'opnai'; did you mean 'openai'"),
        (
            "qqqqqqqq/m",
            "name the model openai-api/qqqqqqqq/m and set QQQQQQQQ_BASE_URL and QQQQQQQQ_API_KEY",
        ),
        *((f"{name}/m", f"'{name}' is .*only through Inspect AI") for name in INSPECT_PROVIDERS),
    ],
)
def test_a_name_that_cannot_be_asked_is_refused(name: str, complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        resolve_endpoint(name, {})


def test_models_are_opened_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_BASE_URL", "http://127.0.0.1:1/v1")
    models = open_models(["vllm/m", "baseline/judge"], HttpSession())
    assert [type(model) for model in models.values()] == [EndpointModel, ScriptedModel]
    identities = [model.identity.split("@")[0] for model in models.values()]
    assert identities == ["vllm/m", "baseline/judge"]
    with pytest.raises(
        InputError, match="baseline/juge: unknown baseline; did you mean 'baseline/judge'"
    ):
        open_models(["baseline/juge"], HttpSession())


def test_a_file_of_responses_is_no_model() -> None:
    complaint = "replay/mine.jsonl: .*`opensafeintent import` reads it, then `opensafeintent grade`"
    for open_it in (lambda name: open_models([name], HttpSession()), model_identity):
        with pytest.raises(InputError, match=complaint):
            open_it("replay/mine.jsonl")


def test_the_list_of_models_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.setenv("GROQ_API_KEY", "gsk-secret")
    served = {line.name: line for line in served_models()}
    names = (
        *("openai/MODEL", "groq/MODEL", "vllm/MODEL"),
        *("no-address/MODEL", "no-address-local/MODEL"),
    )
    assert [(served[name].needs, served[name].lacking) for name in names] == [
        (("OPENAI_API_KEY",), ("OPENAI_API_KEY",)),
        (("GROQ_API_KEY",), ()),
        ((), ()),
        (both := ("NO_ADDRESS_BASE_URL", "NO_ADDRESS_API_KEY"), both),
        (alone := ("NO_ADDRESS_LOCAL_BASE_URL",), alone),
    ]
    assert served["no-address/MODEL"].about == "the address in NO_ADDRESS_BASE_URL"
    assert "gsk-secret" not in repr(served)


@pytest.mark.parametrize(
    ("name", "environment", "lacking"),
    [
        ("openai/m", {}, ("OPENAI_API_KEY",)),
        ("openai/m", {"OPENAI_API_KEY": "  "}, ("OPENAI_API_KEY",)),
        ("openai/m", {"OPENAI_API_KEY": "k"}, ()),
        ("hf-inference-providers/m", {}, ("HF_TOKEN",)),
        ("vllm/m", {}, ()),
        ("no-address/m", {}, ("NO_ADDRESS_BASE_URL", "NO_ADDRESS_API_KEY")),
        ("no-address/m", {"NO_ADDRESS_API_KEY": "k"}, ("NO_ADDRESS_BASE_URL",)),
        ("no-address-local/m", {}, ("NO_ADDRESS_LOCAL_BASE_URL",)),
        ("openai-api/my-lab/m", {}, ("MY_LAB_BASE_URL", "MY_LAB_API_KEY")),
        ("openai-api/my-lab/m", {"MY_LAB_BASE_URL": "http://10.0.0.1/v1"}, ("MY_LAB_API_KEY",)),
    ],
)
def test_what_is_not_set_is_what_calls_would_be_refused_for(
    name: str, environment: dict[str, str], lacking: tuple[str, ...]
) -> None:
    assert unset(name, environment) == lacking
    with pytest.raises(InputError, match=lacking[0]) if lacking else nullcontext():
        resolve_endpoint(name, environment)


@pytest.mark.parametrize(
    ("asked", "served", "another"),
    [
        ("openai/gpt-5.4", "", False),
        ("openai/gpt-5.4", "gpt-5.4-2026-03-01", False),
        ("openai/gpt-5.4-20260301", "gpt-5.4-2026-03-01", False),
        ("openai/gpt-5.4-2026-03-01", "gpt-5.4", False),
        ("openai/gpt-5.4-2026-03-01", "gpt-5.4-2026-05-01", True),
        ("openai/gpt-5.4", "gpt-5.4-mini", True),
        ("openai/gpt-5.4", "gpt-5", True),
        ("openrouter/anthropic/claude-sonnet-4.5", "claude-sonnet-4-5-20250929", False),
        ("openrouter/anthropic/claude-sonnet-4.5", "claude-haiku-4-5-20251001", True),
        ("together/meta-llama/Llama-3-70b", "llama-3-70b", False),
        ("together/meta-llama/Llama-3-70b", "llama-3-8b", True),
        ("mistral/mistral-small-latest", "mistral-small-2506", False),
        ("ollama/qwen3", "qwen3:latest", False),
        ("lab/model-2", "model-2-2026-05", False),
        ("lab/model-2-2026-04", "model-2-2026-05", True),
        ("cohere/command-r", "command-r-08-2024", False),
        ("python/judge:ask@1", "somebody", False),
    ],
)
def test_an_alias_is_not_another_model(asked: str, served: str, another: bool) -> None:
    assert is_another(asked, served) == another


@pytest.mark.parametrize(
    ("name", "tells"),
    [("lab/judge-001", True), ("lab/judge-2026-01-15", True), ("lab/judge", False)],
)
def test_a_name_with_a_date_or_a_number_tells_its_version(name: str, tells: bool) -> None:
    assert names_version(name) == tells
