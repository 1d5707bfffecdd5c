"""What cannot be used is refused in one clear line, with the exit code that goes with it, before
anything is spent.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from endtoend import (
    JUDGE,
    KEY,
    TARGET,
    WORDINGS,
    Ran,
    calls,
    coverage,
    evaluate,
    metrics,
    osi,
    some_sets,
)
from loopback import GENERATE, Fault, LoopbackServer, Match

FIRST_CONNECTIONS = 16
"""Requests that an endpoint gets at once before anything is known of it."""
REDIRECT = ["evaluate", "baseline/redirect"]
JUDGED = ["--judge", "baseline/judge"]


@pytest.fixture
def server() -> Iterator[LoopbackServer]:
    with LoopbackServer() as running:
        yield running


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    return some_sets(tmp_path, 6)


def only_line(ran: Ran) -> str:
    (line,) = ran.errors
    assert "Traceback" not in line
    return line


# Names and options
# ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("opena/gpt-5.4", "did you mean 'openai'"),
        ("vlm/x", "'vllm'"),
        ("baseline/refuse", "'refuse-all'"),
        ("baseline/nothing-like-it", "refuse-all, comply-all"),
        ("gpt-5.4", "provider/model"),
        ("openai/", "provider/model"),
        ("openai-api/loop", "openai-api/<provider>/<model>"),
        ("openai-api/nowhere/x", "NOWHERE_BASE_URL"),
        ("openai/gpt-5.4", "OPENAI_API_KEY"),
        ("hf-inference-providers/x", "HF_TOKEN"),
        ("anthropic/claude-sonnet-4-6", "anthropic"),
        ("replay/none.jsonl", "none.jsonl"),
        ("openai-api/loop/\udcff", "not valid UTF-8"),
        ("openai-api/loop/\x01", "expected a printable name"),
        ("openai-api/loop/\uffff", "expected a printable name"),
    ],
)
@pytest.mark.parametrize("role", ["target", "judge", "mode judge"])
def test_model_that_cannot_be_called(tmp_path: Path, model: str, words: str, role: str) -> None:
    arguments = {
        "target": ["evaluate", model, *JUDGED],
        "judge": [*REDIRECT, "--judge", model],
        "mode judge": [*REDIRECT, *JUDGED, "--mode-judge", model],
    }[role]
    ran = osi(*arguments, "--out", tmp_path / "run")
    assert ran.code == 2
    line = only_line(ran)
    assert model.rstrip("\udcff\x01\uffff") in line
    assert words in line
    assert not (tmp_path / "run" / "run.json").exists()


@pytest.mark.parametrize("key", [f"{KEY}\n", f"{KEY}\r", f" {KEY}", "a\nb", "ключ"])
def test_key_with_a_stray_character(
    server: LoopbackServer, dataset: Path, tmp_path: Path, key: str
) -> None:
    """What `$(< file)` or an editor leaves behind is either taken off, or refused with the
    variable's name.
    """
    ran = evaluate(server, dataset, tmp_path / "run", "--limit", 1, LOOP_API_KEY=key)
    assert ran.code in (0, 2)
    if ran.code == 2:
        assert all("LOOP_API_KEY" in line for line in ran.errors)
        assert KEY not in ran.err


@pytest.mark.parametrize(
    "url",
    [
        "localhost:8000",
        "ftp://x/v1",
        "http://",
        "http://[::1/v1",
        "http://user:hunter2@{host}",
        "http://127.0.0.1:99999/v1",
    ],
)
def test_base_url_that_cannot_be_used(
    server: LoopbackServer, dataset: Path, tmp_path: Path, url: str
) -> None:
    given = url.replace("{host}", server.base_url.removeprefix("http://"))
    ran = evaluate(
        server, dataset, tmp_path / "run", "--limit", 1, "--dry-run", LOOP_BASE_URL=given
    )
    assert ran.code == 2
    assert "LOOP_BASE_URL" in only_line(ran)
    assert "hunter2" not in ran.err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--limit", 0], ["--limit"]),
        (["--epochs", 0], ["--epochs"]),
        (["--max-connections", 0], ["--max-connections"]),
        (["--max-tokens", -1], ["--max-tokens"]),
        (["--judge-max-tokens", 0], ["--judge-max-tokens"]),
        (["--max-missing", 2], ["--max-missing 2.0", "1"]),
        (["--budget-calls", -1], ["--budget-calls"]),
        (["--budget-dollars", "nan"], ["--budget-dollars nan"]),
        (["--budget-dollars", "inf"], ["--budget-dollars inf"]),
        (["--report", "--dry-run"], ["--report"]),
        (["--temperature", "nan"], ["--temperature"]),
        (["--system", "\udcff"], ["--system"]),  # a byte that is not UTF-8, as a shell hands it on
        (["--ledger", "\udcff"], ["--ledger"]),
        (["-M", "k=\udcff"], ["-M"]),
        (["-M", "seed"], ["-M", "KEY=VALUE"]),
        (["-M", "seed=" + "9" * 5000], ["-M", "out of range"]),
        (["-M", "x=1e999"], ["-M", "out of range"]),
        (["-M", "x=" + "[" * 900 + "]" * 900], ["-M", "nested too deeply"]),
        (["-M", "=7"], ["-M", "KEY=VALUE"]),
        (["-M", "messages=[]"], ["-M", "messages"]),
        (["-M", "bias=NaN"], ["-M", "bias"]),
        (["--dataset", "stater"], ["stater", "'starter'"]),
        (["--dataset", "/"], ["/", "folder"]),
        (["--taxonomy", "none.toml"], ["none.toml"]),
        (["--rubrics", "none"], ["none"]),
        (["--prices", "none.json"], ["none.json"]),
        (["--ledger", "/dev/null/x"], ["/dev/null/x"]),
    ],
    ids=lambda value: ascii(" ".join(map(str, value))),
)
def test_option_that_cannot_be_used(
    tmp_path: Path, options: list[object], words: list[str]
) -> None:
    ran = osi(*REDIRECT, *JUDGED, "--limit", 1, "--out", tmp_path / "run", *options)
    assert ran.code == 2
    assert all(word in only_line(ran) for word in words)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "Usage"),
        (["evalute", "x"], "'evaluate'"),
        (
            ["evaluate", "--judge", "baseline/judge"],
            "no model to evaluate: name at least one, or a --suite",
        ),
        (REDIRECT, "--judge"),
        ([*REDIRECT, *JUDGED, "--mode", "core"], "--modes"),
        ([*REDIRECT, *JUDGED, "--modes", "corr"], "core"),
        ([*REDIRECT, *JUDGED, "--limit", "ten"], "ten"),
        (["report"], "RUN"),
        (["dataset", "inform", "starter"], "'info'"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_usage_that_is_wrong_says_what_would_be_right(arguments: list[str], words: str) -> None:
    ran = osi(*arguments)
    assert ran.code == 2
    assert words in ran.err


def test_place_that_is_taken_by_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    for out in (tmp_path / "file", tmp_path / "file" / "run"):
        ran = osi(*REDIRECT, *JUDGED, "--out", out)
        assert ran.code == 2
        assert str(out) in only_line(ran)
    assert (tmp_path / "file").read_text() == "mine"


def test_ledger_that_is_another_file(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine, and long enough to be looked at\n" * 100)
    ran = osi(*REDIRECT, *JUDGED, "--ledger", tmp_path / "thesis.txt", "--out", tmp_path / "run")
    assert ran.code == 2
    assert "thesis.txt" in only_line(ran)
    assert (tmp_path / "thesis.txt").read_text().startswith("mine")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["report", "none"], ["none", "no run"]),
        (["grade", "none", *JUDGED], ["none", "no run"]),
        (["report", "none", "--fail-under", "triplet_saftey=1"], ["'triplet_safety'"]),
        (["report", "none", "--fail-under", "triplet_safety"], ["METRIC=X"]),
        (["report", "none", "--fail-under", "triplet_safety=high"], ["METRIC=X"]),
        (["import", "none.jsonl", "--out", "x"], ["none.jsonl"]),
        (["dataset", "convert", "starter", "--out", "x.csv"], [".jsonl", ".parquet"]),
    ],
)
def test_other_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], words: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    ran = osi(*arguments)
    assert ran.code == 2
    assert all(word in only_line(ran) for word in words)
    assert not (tmp_path / "none").exists()  # looking for a run does not make a folder,
    assert not (tmp_path / "x").exists()  # nor does an import of nothing


# Providers that will not answer
# ------------------------------------------------------------------------------


def test_wrong_key_stops_at_once(dataset: Path, tmp_path: Path) -> None:
    with LoopbackServer(api_key="another") as server:
        ran = evaluate(server, dataset, tmp_path / "run")
        assert ran.code == 3
        line = ran.errors[-1]
        assert "Incorrect API key" in line
        assert "LOOP_API_KEY" in line
        assert TARGET in line
        assert KEY not in ran.out + ran.err
        assert calls(server).total() <= FIRST_CONNECTIONS


@pytest.mark.parametrize(
    ("model", "sets"),
    [("target", 6), ("judge", 6), ("judge", 1)],
    ids=["target", "judge", "judge at the very end"],
)
def test_reason_is_said_once(server: LoopbackServer, tmp_path: Path, model: str, sets: int) -> None:
    server.set_faults(Fault(action="status", status=401, match=Match(model=model)))
    ran = evaluate(server, some_sets(tmp_path, sets), tmp_path / "run")
    assert ran.code == 3
    assert (ran.out + ran.err).count("Incorrect API key") == 1
    assert f"openai-api/loop/{model}" in only_line(ran)


@pytest.mark.parametrize("status", [401, 403, 404])
def test_judge_that_is_refused_stops_the_run(
    server: LoopbackServer, dataset: Path, tmp_path: Path, status: int
) -> None:
    server.set_faults(Fault(action="status", status=status, match=Match(model="judge")))
    ran = evaluate(server, dataset, tmp_path / "run")
    assert ran.code == 3
    assert JUDGE in ran.errors[-1]
    assert str(status) in ran.errors[-1]
    made = calls(server)
    assert made.total() - made[GENERATE] <= 2 * FIRST_CONNECTIONS
    if status == 401:
        server.set_faults()
        assert evaluate(server, dataset, tmp_path / "run").code == 0
        assert calls(server)[GENERATE] == 6 * WORDINGS  # what the target had answered was kept


def test_stop_does_not_wait_for_calls_that_are_waiting_to_be_retried(
    server: LoopbackServer, dataset: Path, tmp_path: Path
) -> None:
    server.set_faults(
        Fault(action="status", status=503, retry_after=6, match=Match(purpose=GENERATE, first=1))
    )
    with LoopbackServer(api_key="another") as strict:
        began = time.monotonic()
        second = {"SECOND_BASE_URL": strict.base_url, "SECOND_API_KEY": "wrong"}
        ran = evaluate(
            server, dataset, tmp_path / "run", judges=["openai-api/second/judge"], **second
        )
        assert ran.code == 3
        assert time.monotonic() - began < 4


def test_dead_target_leaves_the_other_to_its_end(
    server: LoopbackServer, dataset: Path, tmp_path: Path
) -> None:
    server.set_faults(Fault(action="status", status=404, match=Match(model="gone")))
    ran = evaluate(server, dataset, tmp_path / "run", models=["openai-api/loop/gone", TARGET])
    assert ran.code == 3
    assert "openai-api/loop/gone" in ran.errors[-1]
    assert coverage(tmp_path / "run")["counted"] == 6 * WORDINGS
    assert metrics(tmp_path / "run")["models"][TARGET]["triplet_safety"]["n"] == 6
    assert server.stats()["by_model"]["gone"] <= FIRST_CONNECTIONS
