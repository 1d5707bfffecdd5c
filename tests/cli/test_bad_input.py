"""What cannot be used is refused in one clear line, with the exit code that goes with it, before
anything is spent.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from endtoend import (
    JUDGE,
    KEY,
    TARGET,
    WORDINGS,
    Ran,
    begin,
    calls,
    coverage,
    entry,
    evaluate,
    fails,
    finish,
    grades,
    osi,
    some_sets,
    values,
)
from loopback import GENERATE, Fault, LoopbackServer, Match
from samples import import_lines, lines_of, made_dataset, prompt_set

FIRST_CONNECTIONS = 16
"""Requests that an endpoint gets at once before anything is known of it."""
REDIRECT = ["evaluate", "baseline/redirect"]
JUDGED = ["--judge", "baseline/judge"]


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    return some_sets(tmp_path, 6)


def refused(ran: Ran, *words: str) -> str:
    """Check that a command is refused in one line, which has these words."""
    (line,) = ran.errors
    assert ran.code == 2 and all(word in line for word in words), line
    return line


# Names and options
# ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("opena/gpt-5.4", "did you mean 'openai'"),
        ("vlm/x", "'vllm'"),
        ("baseline/refuse", "'baseline/refuse-all'"),
        ("baseline/judge@1", "did you mean 'baseline/judge'"),
        ("openai/", "provider/model"),
        ("openai-api/loop", "openai-api/<provider>/<model>"),
        ("openai-api/nowhere/x", "NOWHERE_BASE_URL"),
        ("openai/gpt-5.4", "OPENAI_API_KEY"),
        ("hf-inference-providers/x", "HF_TOKEN"),
        ("anthropic/claude-sonnet-4-6", "anthropic"),
        ("replay/none.jsonl", "`opensafeintent import` reads it, then `opensafeintent grade`"),
        ("openai-api/loop/\udcff", "not valid UTF-8"),
        ("openai-api/loop/\x01", "expected a printable name"),
        ("openai-api/loop/\uffff", "expected a printable name"),
    ],
)
def test_model_that_cannot_be_called(tmp_path: Path, model: str, words: str) -> None:
    for arguments in (
        ["evaluate", model, *JUDGED],
        [*REDIRECT, "--judge", model],
        [*REDIRECT, *JUDGED, "--mode-judge", model],
    ):
        ran = osi(*arguments, "--out", tmp_path / "run")
        refused(ran, model.rstrip("\udcff\x01\uffff"), words)
        assert not (tmp_path / "run" / "run.json").exists()


@pytest.mark.parametrize("key", [f"{KEY}\n", f"{KEY}\r", f" {KEY}", "a\nb", "ключ"])
def test_key_with_a_stray_character(
    server: LoopbackServer, dataset: Path, tmp_path: Path, key: str
) -> None:
    """What `$(< file)` or an editor leaves behind is taken off, or refused with the variable."""
    ran = evaluate(server, dataset, tmp_path / "run", "--limit", 1, LOOP_API_KEY=key)
    assert ran.code == 0 or KEY not in refused(ran, "LOOP_API_KEY")


@pytest.mark.parametrize(
    "url",
    [
        *("localhost:8000", "ftp://x/v1", "http://", "http://[::1/v1", "http://127.0.0.1:99999/v1"),
        "http://user:hunter2@{host}",
    ],
)
def test_base_url_that_cannot_be_used(server: LoopbackServer, tmp_path: Path, url: str) -> None:
    base_url = url.replace("{host}", server.base_url.removeprefix("http://"))
    ran = osi("evaluate", TARGET, *JUDGED, "--out", tmp_path / "run", LOOP_BASE_URL=base_url)
    assert "hunter2" not in refused(ran, "LOOP_BASE_URL")


def test_a_path_that_the_locale_cannot_read_says_what_to_set(tmp_path: Path) -> None:
    path = str(tmp_path / "café")
    ascii_only = {"LANG": "C", "LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    ran = finish(begin("report", path, **ascii_only))
    assert ran.code == 2
    assert "PYTHONUTF8=1" in ran.err and "not valid UTF-8" not in ran.err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--limit", 0], ["--limit"]),
        (["--max-connections", 0], ["--max-connections"]),
        (["--max-tokens", -1], ["--max-tokens"]),
        (["--max-missing", 2], ["--max-missing 2.0", "1"]),
        (["--budget-calls", -1], ["--budget-calls"]),
        (["--budget-dollars", "nan"], ["--budget-dollars nan"]),
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
        (["--rubrics", "none"], ["none"]),
        (["--ledger", "/dev/null/x"], ["/dev/null/x"]),
    ],
    ids=lambda value: ascii(" ".join(map(str, value))),
)
def test_unusable_options(tmp_path: Path, options: list[object], words: list[str]) -> None:
    limit = () if "--limit" in options else ("--limit", 1)
    refused(osi(*REDIRECT, *JUDGED, *limit, "--out", tmp_path / "run", *options), *words)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["evalute", "x"], "'evaluate'"),
        (["evaluate", *JUDGED], "no model to evaluate: name at least one, or a --suite"),
        (REDIRECT, "--judge"),
        ([*REDIRECT, *JUDGED, "--mode", "core"], "--modes"),
        ([*REDIRECT, *JUDGED, "--modes", "corr"], "core"),
        ([*REDIRECT, *JUDGED, "--limit", "ten"], "ten"),
        (["report"], "RUN"),
        (["dataset", "chek", "starter"], "'check'"),
        ([*REDIRECT, *JUDGED, "--max-missing", "2"], "2.0: expected a number up to 1"),
        (["export", "run", "--out", "it.csv"], "Missing option '--format'"),
        (["annotate", "export", "starter"], "expected a kind of sheet: quality, judge"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_usage_that_is_wrong_says_what_would_be_right(arguments: list[str], words: str) -> None:
    ran = osi(*arguments)
    assert ran.code == 2 and words in ran.err


def test_ledger_that_is_another_file(tmp_path: Path) -> None:
    thesis = tmp_path / "thesis.txt"
    thesis.write_text("mine, and long enough to be looked at\n" * 100)
    refused(osi(*REDIRECT, *JUDGED, "--ledger", thesis, "--out", tmp_path / "run"), "thesis.txt")
    assert thesis.read_text().startswith("mine")


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
    refused(osi(*arguments), *words)
    assert not (tmp_path / "none").exists()  # looking for a run does not make a folder,
    assert not (tmp_path / "x").exists()  # nor does an import of nothing


# Providers that will not answer
# ------------------------------------------------------------------------------


def test_wrong_key_stops_at_once(dataset: Path, tmp_path: Path) -> None:
    with LoopbackServer(api_key="another") as server:
        ran = evaluate(server, dataset, tmp_path / "run")
    (line,) = ran.errors
    assert ran.code == 3
    assert all(word in line for word in ("Incorrect API key", "LOOP_API_KEY", TARGET))
    assert (ran.out + ran.err).count("Incorrect API key") == 1
    assert KEY not in ran.out + ran.err
    assert calls(server).total() <= FIRST_CONNECTIONS


@pytest.mark.parametrize(("status", "sets"), [(401, 6), (401, 1), (403, 6), (404, 6)])
def test_judge_that_is_refused_stops_the_run(
    server: LoopbackServer, tmp_path: Path, status: int, sets: int
) -> None:
    dataset, run = some_sets(tmp_path, sets), tmp_path / "run"
    server.set_faults(fails(status, model="judge"))
    ran = evaluate(server, dataset, run)
    (line,) = ran.errors
    assert ran.code == 3 and f"{JUDGE}: stopped: {status} from " in line
    made_calls = calls(server)
    assert made_calls.total() - made_calls[GENERATE] <= 2 * FIRST_CONNECTIONS
    if status == 401:
        server.set_faults()
        assert evaluate(server, dataset, run).code == 0
        assert calls(server)[GENERATE] == sets * WORDINGS  # what the target had answered was kept


def test_stop_does_not_wait_for_calls_that_are_waiting_to_be_retried(
    server: LoopbackServer, dataset: Path, tmp_path: Path
) -> None:
    later = Match(purpose=GENERATE, first=1)
    server.set_faults(Fault(action="status", status=503, retry_after=20, match=later))
    judges, run = ["openai-api/second/judge"], tmp_path / "run"
    with LoopbackServer(api_key="another") as strict:
        began = time.monotonic()
        second = {"SECOND_BASE_URL": strict.base_url, "SECOND_API_KEY": "wrong"}
        assert evaluate(server, dataset, run, judges=judges, **second).code == 3
    assert time.monotonic() - began < 15


def test_dead_target_leaves_the_other_to_its_end(
    server: LoopbackServer, dataset: Path, tmp_path: Path
) -> None:
    server.set_faults(fails(404, model="gone"))
    run, gone_model = tmp_path / "run", "openai-api/loop/gone"
    ran = evaluate(server, dataset, run, models=[gone_model, TARGET])
    assert ran.code == 3 and gone_model in ran.errors[-1]
    assert coverage(run)["counted"] == 6 * WORDINGS
    assert [entry(run, "triplet_safety", name)["n"] for name in (TARGET, gone_model)] == [6, 0]
    assert values(grades(run, TARGET), "missing") == {""}
    assert server.stats()["by_model"]["gone"] <= FIRST_CONNECTIONS


# A value that is given twice
# ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("evaluate m/a --judge m/j --judge m/j", "--judge m/j: is given 2 times; expected it once"),
        ("evaluate m/a m/b m/a m/a --judge m/j", "m/a: is given 3 times; expected it once"),
        ("judge-check --judge m/j --judge m/j", "--judge m/j: is given 2 times; expected it once"),
        ("report run --human-labels l --human-labels ./l", "--human-labels l: is given 2 times"),
        ("evaluate m/a --judge m/j --dataset starter --dataset b", "--dataset: is given 2 times"),
        (
            "evaluate m/a --judge m/j --limit 3 --limit=3",
            "--limit: is given 2 times; expected one",
        ),
        ("dataset check starter --out a --out b", "--out: is given 2 times; expected one value"),
        ("evaluate m/a --judge m/j -M top_p=1 -M top_p=0.5", "-M top_p: is given twice"),
        ("report RUN --label m/a=A --label m/a=B", "the model has a name already; expected one"),
        (
            "report RUN --fail-under x=1 --confidence 0.9 --confidence 0.8",
            "--confidence: is given",
        ),
    ],
)
def test_what_is_given_twice_is_refused(line: str, message: str, tmp_path: Path) -> None:
    """It counted once, or the last one won, and nothing said so."""
    run = tmp_path / "run"
    if "RUN" in line:
        dataset = made_dataset(prompt_set("a"))
        import_lines(tmp_path, lines_of(dataset, response="Text."), dataset, "m/a")
    refused(osi(*(str(run) if word == "RUN" else word for word in line.split())), message)
