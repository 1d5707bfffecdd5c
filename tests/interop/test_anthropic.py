"""One of Inspect AI's own providers, with its own client library, against a server on the
loopback.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from calls.support import holds, rows
from endtoend import coverage, environment, grades, osi
from interop.messages_server import MessagesServer, message, problem, serving
from interop.support import quiet

pytest.importorskip("anthropic", reason="needs the package of the provider")

NAME = "anthropic/claude-served"
KEY = "sk-ant-0123456789abcdef"
pytestmark = [quiet, pytest.mark.filterwarnings("ignore::DeprecationWarning:anthropic")]


def evaluate(server: MessagesServer, out: Path, *options: object) -> Any:
    variables = {
        "ANTHROPIC_BASE_URL": server.base_url,
        "ANTHROPIC_API_KEY": KEY,
        "HOME": os.environ["HOME"],
    }
    with mock.patch("opensafeintent.calls.client._FIRST_WAIT", 0.01):
        return osi(
            "evaluate",
            NAME,
            "--judge",
            "baseline/judge",
            "--limit",
            2,
            "--out",
            out,
            *options,
            **variables,
        )


def test_a_run_over_the_messages_protocol(tmp_path: Path) -> None:
    with serving(
        lambda body: (200, message("I can't help with that.", thinking="let me think"))
    ) as server:
        ran = evaluate(
            server,
            tmp_path / "run",
            "--max-tokens",
            77,
            "--temperature",
            0.25,
            "--system",
            "Be brief.",
        )
    assert (ran.code, ran.errors) == (0, [])
    assert len(server.requests) == 14  # 2 sets of 7 prompts
    first = server.requests[0]
    assert (first["model"], first["max_tokens"]) == ("claude-served", 77)
    # what the provider leaves out of a request is told with the results
    assert "temperature" not in first
    assert f"note: {NAME}: anthropic models do not support the 'temperature' parameter" in " ".join(
        ran.out.split()
    )
    assert "Be brief." in str(first["system"])
    assert all(KEY in headers for headers in server.headers)
    ledger = tmp_path / "run" / "ledger.sqlite"
    kept = rows(ledger, "model, status, stop_reason, served_model, input_tokens, output_tokens")
    assert {row for row in kept if row[0] == NAME} == {
        (NAME, "answered", "stop", "claude-served", 10, 5)
    }
    assert holds(ledger, "let me think") and not holds(ledger, KEY)
    # the thinking is not graded: without it the answer is a bare refusal
    assert {row["mode"] for row in grades(tmp_path / "run") if row["variant"] == "dual_use"} == {
        "A0"
    }


def test_a_refusal_by_the_provider_counts_as_one(tmp_path: Path) -> None:
    with serving(lambda body: (200, message("", stop="refusal"))) as server:
        ran = evaluate(server, tmp_path / "run")
    assert ran.code == 0
    assert coverage(tmp_path / "run", NAME)["filtered"] == 14
    assert {row["stop_reason"] for row in grades(tmp_path / "run")} == {"content_filter"}


def test_an_answer_cut_by_the_limit_is_counted(tmp_path: Path) -> None:
    with serving(lambda body: (200, message("It goes on and", stop="max_tokens"))) as server:
        evaluate(server, tmp_path / "run")
    assert coverage(tmp_path / "run", NAME)["truncated"] == 14


@pytest.mark.parametrize(
    ("status", "kind", "told"),
    [
        (401, "authentication_error", "invalid x-api-key"),
        (404, "not_found_error", "model: claude-served"),
    ],
)
def test_a_wrong_key_or_model_ends_at_once(
    tmp_path: Path, status: int, kind: str, told: str
) -> None:
    with serving(lambda body: (status, problem(kind, told))) as server:
        ran = evaluate(server, tmp_path / "run", "--max-connections", 2)
    assert ran.code == 3
    (line,) = ran.errors
    assert line.startswith(f"error: {NAME}: stopped: ")
    assert str(status) in line and told in line
    assert status != 401 or "(check ANTHROPIC_API_KEY" in line
    assert len(server.requests) <= 2  # what was in flight, each tried once


def test_too_many_requests_are_waited_out_by_our_client_alone(tmp_path: Path) -> None:
    tries: list[int] = []

    def reply(body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        tries.append(1)
        return (
            (429, problem("rate_limit_error", "slow down"))
            if len(tries) <= 3
            else (200, message("Text."))
        )

    with serving(reply) as server:
        ran = evaluate(server, tmp_path / "run", "--max-connections", 1, "--probe", "none")
    assert ran.code == 0
    statuses = [
        status
        for status, error in rows(tmp_path / "run" / "ledger.sqlite")
        if "rate_limited" in error
    ]
    assert statuses == ["failed"] * 3  # every refusal is on record: none was retried out of sight
    assert len(server.requests) == 14 + 3


def test_the_environment_of_tests_names_no_key() -> None:
    assert "ANTHROPIC_API_KEY" not in environment()
