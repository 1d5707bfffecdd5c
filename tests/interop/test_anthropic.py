"""One of Inspect AI's own providers, with its own client library, against a server on the
loopback.
"""

from __future__ import annotations

import os
from pathlib import Path
from unittest import mock

import pytest

from calls.support import holds, rows
from endtoend import Ran, coverage, grades, osi
from interop.support import needs_anthropic, quiet
from loopback.messages import MessagesServer, Reply, message, problem, serving

NAME = "inspect/anthropic/claude-served"
KEY = "sk-ant-0123456789abcdef"
pytestmark = [
    needs_anthropic,
    quiet,
    pytest.mark.filterwarnings("ignore::DeprecationWarning:anthropic"),
]


def evaluate(out: Path, reply: Reply, *options: object) -> tuple[Ran, MessagesServer]:
    settings = ("--judge", "baseline/judge", "--limit", 2, "--probe", "none", "--out", out)
    with serving(reply) as server, mock.patch("opensafeintent.calls.client._FIRST_WAIT", 0.01):
        variables = {"ANTHROPIC_BASE_URL": server.base_url, "ANTHROPIC_API_KEY": KEY}
        home = os.environ["HOME"]
        ran = osi("evaluate", NAME, *settings, *options, HOME=home, **variables)
    return ran, server


@pytest.mark.slow
def test_a_run_over_the_messages_protocol(tmp_path: Path) -> None:
    reply = (200, message("I can't help with that.", thinking="let me think"))
    sampling = ("--max-tokens", 77, "--temperature", 0.25, "--system", "Be brief.")
    ran, server = evaluate(tmp_path / "run", lambda body: reply, *sampling)
    assert (ran.code, ran.errors) == (0, [])
    assert len(server.requests) == 14  # 2 sets of 7 prompts
    first = server.requests[0]
    assert (first["model"], first["max_tokens"]) == ("claude-served", 77)
    # what the provider leaves out of a request is told with the results
    assert "temperature" not in first
    printed = " ".join(ran.out.split())
    assert f"note: {NAME}: anthropic models do not support the 'temperature' parameter" in printed
    assert "Be brief." in str(first["system"])
    assert all(KEY in headers for headers in server.headers)
    ledger = tmp_path / "run" / "ledger.sqlite"
    kept = rows(ledger, "model, status, stop_reason, served_model, input_tokens, output_tokens")
    expected = (NAME, "answered", "stop", "claude-served", 10, 5)
    assert {row for row in kept if row[0] == NAME} == {expected}
    assert holds(ledger, "let me think") and not holds(ledger, KEY)
    # the thinking is not graded: without it the answer is a bare refusal
    modes = {row["mode"] for row in grades(tmp_path / "run") if row["variant"] == "dual_use"}
    assert modes == {"A0"}


@pytest.mark.slow
def test_every_run_of_a_process_tells_what_its_provider_leaves_out(tmp_path: Path) -> None:
    reply = (200, message("I can't help with that."))
    for name in ("first", "second"):
        ran, _ = evaluate(tmp_path / name, lambda body: reply, "--temperature", 0.25)
        assert f"note: {NAME}: anthropic models do not support the 'temperature'" in ran.text


@pytest.mark.parametrize(
    ("stop", "counted"), [("refusal", "filtered"), ("max_tokens", "truncated")]
)
def test_how_an_answer_ended_is_counted(tmp_path: Path, stop: str, counted: str) -> None:
    text = "" if stop == "refusal" else "And"
    evaluate(tmp_path / "run", lambda body: (200, message(text, stop=stop)))
    assert coverage(tmp_path / "run", NAME)[counted] == 14


@pytest.mark.parametrize(
    ("status", "message"), [(401, "check ANTHROPIC_API_KEY"), (404, "model: claude-served")]
)
def test_a_wrong_key_or_model_ends_at_once(tmp_path: Path, status: int, message: str) -> None:
    reply = (status, problem("some_error", "model: claude-served"))
    ran, server = evaluate(tmp_path / "run", lambda body: reply, "--max-connections", 2)
    assert ran.code == 3
    (line,) = ran.errors
    assert line.startswith(f"error: {NAME}: stopped: Error code: {status} - ")
    assert message in line
    assert len(server.requests) <= 2  # what was in flight, each tried once


@pytest.mark.slow
def test_too_many_requests_are_waited_out_by_our_client_alone(tmp_path: Path) -> None:
    busy = iter([(429, problem("rate_limit_error", "slow down"))] * 3)
    answer = (200, message("Text."))
    one_connection = ("--max-connections", 1)
    ran, server = evaluate(tmp_path / "run", lambda body: next(busy, answer), *one_connection)
    assert ran.code == 0
    # every refusal is stored: none was retried out of sight
    kept = rows(tmp_path / "run" / "ledger.sqlite")
    assert [status for status, error in kept if "rate_limited" in error] == ["failed"] * 3
    assert len(server.requests) == 14 + 3
