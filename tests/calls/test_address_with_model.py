"""A protocol whose address holds the model, and whose settings are inside other fields, defined and
registered here: a run is evaluated with it, and its replies are read back by its name.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from calls.support import attempt_against, rows, user_call
from endtoend import grades, osi, some_sets
from loopback.messages import MessagesServer, Reply, serving_paths
from opensafeintent.calls.ledger import Ledger
from opensafeintent.calls.ledger_merge import merge_ledgers
from opensafeintent.calls.outcomes import classify_message
from opensafeintent.calls.protocols import (
    dict_or_empty,
    list_settings,
    make_no_reply_error,
    merge_parts,
    read_served_model,
    token_count,
)
from opensafeintent.calls.providers import ENDPOINTS, Provider, resolve_endpoint
from opensafeintent.calls.reasoning import has_reasoning_beside
from opensafeintent.calls.records import (
    Answered,
    Attempt,
    Call,
    Failure,
    Refused,
    Replied,
    Sampling,
    Usage,
)
from opensafeintent.errors import InputError

NAME = "by-address/family/one two"
TEXT, THOUGHT, PLAN = "A good note.", "They may mean well.", "First a greeting."
INSIDE = {"temperature": "heat", "reasoning_effort": "effort"}
"""Usual names of settings, and the names of their fields in `sampling`."""


class ByAddress:
    """The protocol; see `WireProtocol`."""

    name = "by-address-1"
    reply_name = "candidate"

    def route(self, model: str) -> str:
        return f"/models/{model}:answer"

    def headers(self, api_key: str | None) -> dict[str, str]:
        return {"x-key": api_key} if api_key else {}

    def request(self, call: Call, model: str, left_out: Collection[str]) -> dict[str, Any]:
        renamed = {field: name for name, field in INSIDE.items()}
        settings = list_settings(call.sampling, left_out, renamed=renamed)
        limit = settings.pop("max_tokens", None)
        inside = {field: settings.pop(name) for name, field in INSIDE.items() if name in settings}
        return {
            "contents": [message.content for message in call.messages],
            **({"limits": {"tokens": limit}} if limit else {}),
            **({"sampling": inside} if inside else {}),
            **settings,  # those that it has no field for, and the user's own
        }

    def optional(self, fields: Mapping[str, Any]) -> Mapping[str, str]:
        inside = dict_or_empty(fields.get("sampling"))
        own = fields.keys() - {"contents", "limits", "sampling"}
        return {name: name for name in own} | {
            name: field for name, field in INSIDE.items() if field in inside
        }

    def join(self, parts: Sequence[Mapping[str, Any]], *, ended: bool) -> dict[str, Any]:
        return merge_parts(parts)

    def read(self, reply: Mapping[str, Any], body: bytes) -> Answered | Refused:
        if reply.keys().isdisjoint(("said", "ended")):
            raise make_no_reply_error(f"the reply is not a {self.reply_name}", reply)
        ended, tokens = reply.get("ended"), self.usage(reply)
        return classify_message(
            self.text(reply),
            ended if isinstance(ended, str) else "",
            tokens,
            read_served_model(reply, "build"),
            beside=lambda: has_reasoning_beside(self.beside(reply), {}),
            counts_nothing="read" in reply and tokens == Usage(),
        )

    def usage(self, reply: Mapping[str, Any]) -> Usage:
        counts = (token_count(reply.get(name)) for name in ("read", "wrote", "cachedCount"))
        return Usage(*counts)

    def text(self, reply: Mapping[str, Any]) -> str | None:
        said = reply.get("said")
        return said if isinstance(said, str) else None

    def beside(self, reply: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"reasoning": reply.get("thought")}


REPLY = {
    "said": f"<think>{PLAN}</think>{TEXT}",
    "thought": THOUGHT,
    "ended": "end",
    "build": "one two",
    "read": 9,
    "wrote": 4,
    "cachedCount": 3,
}
KEY = "a-long-key-1"


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ENDPOINTS, "by-address", Provider("", protocol=ByAddress()))


def variables(base_url: str) -> dict[str, str]:
    return {"BY_ADDRESS_BASE_URL": base_url, "BY_ADDRESS_API_KEY": KEY}


def test_the_base_url_ends_before_the_models_own_address() -> None:
    endpoint = resolve_endpoint(NAME, variables("http://h/v9/"))
    assert endpoint.url == "http://h/v9/models/family/one%20two:answer"
    with pytest.raises(InputError, match="a URL that ends before /models/family/one%20two:answer"):
        resolve_endpoint(NAME, variables(endpoint.url))


@pytest.mark.parametrize("version", ["/v1", "/v2", "/v1beta"])
@pytest.mark.parametrize("end", ["", "/"])
def test_a_version_stands_in_the_address_once(
    monkeypatch: pytest.MonkeyPatch, version: str, end: str
) -> None:
    monkeypatch.setattr(ByAddress, "route", lambda _, model: f"{version}/models/{model}:answer")
    for base_url in (f"http://h{end}", f"http://h{version}{end}"):
        endpoint = resolve_endpoint("by-address/m", variables(base_url))
        assert endpoint.url == f"http://h{version}/models/m:answer"
    other = resolve_endpoint("by-address/m", variables("http://h/v9"))
    assert other.url == f"http://h/v9{version}/models/m:answer"


CALL = user_call(
    model=NAME,
    sampling=Sampling(
        temperature=0.5,
        reasoning_effort="low",
        json_schema={"type": "object"},
        max_tokens=9,
        extra={"seed": 1},
    ),
)
SENT = {
    "contents": ["Write a note about boats."],
    "limits": {"tokens": 9},
    "sampling": {"heat": 0.5, "effort": "low"},
    "response_format": {"type": "object"},
    "seed": 1,
}


def problem(text: str, **fields: Any) -> dict[str, Any]:
    return {"error": {"message": text} | fields}


@pytest.mark.parametrize(
    ("error", "changed"),
    [
        (problem("sampling.heat: not supported"), {"sampling": {"effort": "low"}}),
        (problem("no", param="sampling.heat"), {"sampling": {"effort": "low"}}),
        (
            problem("heat is supported", details=[{"violations": [{"field": "effort"}]}]),
            {"sampling": {"heat": 0.5}},
        ),
        ({"detail": [{"loc": ["body", "sampling", "heat"]}]}, {"sampling": {"effort": "low"}}),
        (problem("sampling.effort: not supported"), {"sampling": {"heat": 0.5}}),
        (problem("unknown field response_format"), {"response_format": None}),
        (problem("unknown field seed"), {"seed": None}),
        (problem("a plan takes no effort"), {"sampling": {"heat": 0.5}}),
        (problem("no such word: effort"), {"sampling": {"heat": 0.5}}),
    ],
)
def test_a_setting_that_is_refused_is_left_out(
    error: dict[str, Any], changed: dict[str, Any]
) -> None:
    kept = {name: value for name, value in (SENT | changed).items() if value is not None}
    result, server = attempt(lambda body: (200, REPLY) if body == kept else (400, error))
    assert isinstance(result, Replied) and server.requests == [SENT, kept]


def test_a_name_inside_another_field_may_stand_for_a_setting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    named = {"temperature": ("sampling.heat", "warmth")}
    monkeypatch.setattr(ByAddress, "optional", lambda _, fields: named)
    for text, requests in (
        ("sampling.heat: not supported", 2),
        ("warmth: not supported", 2),
        ("heat: not supported", 1),
    ):
        _, server = attempt(lambda _, text=text: (400, problem(text)))  # type: ignore[misc]
        assert len(server.requests) == requests


def test_a_protocols_word_for_a_setting_is_no_word_of_another_protocol() -> None:
    result, server = attempt(lambda _: (400, problem("sampling.heat: not supported")), "vllm/m")
    assert isinstance(result, Failure) and len(server.requests) == 1


def test_the_limit_is_no_refused_setting() -> None:
    for text in ("these tokens are beyond the limits", "max_tokens must be greater than effort"):
        result, server = attempt(lambda _, text=text: (400, problem(text)))  # type: ignore[misc]
        assert isinstance(result, Failure) and server.requests == [SENT]


def attempt(reply: Reply, name: str = NAME) -> tuple[Attempt, MessagesServer]:
    """Make one attempt of `CALL`."""
    return attempt_against(
        reply, CALL, name, lambda base_url: variables(base_url) | {"VLLM_BASE_URL": base_url}
    )


def test_an_error_in_place_of_a_reply_is_shown() -> None:
    result, _ = attempt(lambda _: (200, {"error": {"message": "no such word: one two"}}))
    assert isinstance(result, Failure)
    assert result.error == ("the reply is not a candidate but an error: no such word: one two"), (
        result.error
    )


@pytest.mark.slow
@pytest.mark.parametrize("stream", [False, True])
def test_a_run_is_evaluated_read_again_traced_and_merged(tmp_path: Path, *, stream: bool) -> None:
    run, dataset = tmp_path / "run", some_sets(tmp_path, 1)

    def reply(path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any] | bytes]:
        if path != "/models/family/one%20two:answer" or not body.keys() <= SENT.keys():
            return 404, problem("no such address, or an unknown field")
        if not stream:
            return 200, REPLY
        return 200, b"".join(
            b"data: %s\n\n" % json.dumps({name: value}).encode() for name, value in REPLY.items()
        )

    def command(*words: object, server: MessagesServer) -> None:
        ran = osi(*words, **variables(server.base_url))
        assert ran.code == 0, ran

    options = ("--judge", "baseline/judge", "--probe", "none", "--dataset", dataset, "--out", run)
    with serving_paths(reply) as server:
        for _ in range(2):  # nothing is asked again
            command("evaluate", NAME, *options, server=server)
    assert len(server.paths) == len(grades(run))
    assert all(f"x-key: {KEY}" in headers for headers in server.headers)
    assert {row["helpfulness"] for row in grades(run)} <= set("1234")
    merged = tmp_path / "merged.sqlite"
    merge_ledgers([run / "ledger.sqlite"], merged)
    for file in (run / "ledger.sqlite", merged):
        own = [row for row in rows(file, "purpose, protocol") if row[0] == "generate"]
        assert own and {protocol for _, protocol in own} == {"by-address-1"}
        with Ledger(file, readonly=True) as ledger:
            assert {
                (
                    each.input_tokens / each.number,
                    each.output_tokens / each.number,
                    each.cached_tokens / each.number,
                )
                for each in ledger.attempts()
                if each.model == NAME
            } == {(9, 4, 3)}
    traced = osi("trace", run, "--worst", 1, "--include-unsafe")
    assert all(text in traced.text for text in (THOUGHT, PLAN, TEXT))
    assert ", protocol by-address-1, served version one two, 9 input and 4 output" in traced.text
