"""Batches on the command line: refusals, waiting, interruption, the list and the cancellation."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from batches.support import run_batch, served
from endtoend import (
    JUDGE,
    TARGET,
    begin,
    evaluate,
    fails,
    finish,
    grades,
    osi,
    results,
    some_sets,
    wait_until,
)
from loopback import GENERATE, HARM, LoopbackServer
from loopback.batches import batch_server
from matched_sets import KINDS, ask_about, make_sets
from opensafeintent.batch.store import BatchStore
from opensafeintent.promptsets import write_dataset


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (("--tier", "batch", "--ray", "local"), "--tier batch: makes many calls at once and waits"),
        (
            ("--tier", "batch", "--stop-when", "mean_safety >= 0.5"),
            "is not for --stop-when; leave one out",
        ),
        (
            ("--tier", "batch", "--judge", "ollama/m"),
            "--tier batch: no batches for ollama/m; expected models",
        ),
        (("--tier", "batch", "--judge", "deepseek/m", "--dry-run"), "no batches for deepseek/m"),
    ],
)
def test_what_batches_are_not_for_is_refused_in_a_line(
    options: tuple[str, ...], error: str, dataset: Path, tmp_path: Path
) -> None:
    paths = ("--dataset", dataset, "--out", tmp_path / "run")
    ran = osi("evaluate", TARGET, "--judge", JUDGE, *paths, *options)
    assert error in ran.refusal


def test_a_server_without_batches_is_refused_before_the_first_call(
    dataset: Path, tmp_path: Path
) -> None:
    from loopback import LoopbackServer

    with LoopbackServer() as server:
        paths = ("--dataset", dataset, "--out", tmp_path / "run")
        ran = osi("evaluate", TARGET, "--judge", JUDGE, *paths, "--tier", "batch", server=server)
        assert ran.code == 2
        assert f"--tier batch: {TARGET} has no batches (404" in ran.err
        assert server.stats()["total"] == 0


def test_a_judge_that_is_not_there_ends_the_run_before_the_first_batch(
    dataset: Path, tmp_path: Path
) -> None:
    with batch_server(unknown_model="judge") as server:
        ran = run_batch(server, dataset, tmp_path / "run")
        assert (ran.code, server.creates) == (3, 0)
        assert "openai-api/loop/judge: stopped: 404" in ran.err


@pytest.mark.slow
@pytest.mark.parametrize("guard", ["openai-api/loop/llama-guard", "vllm/llama-guard"])
def test_a_guard_is_asked_in_batches_or_by_plain_calls(
    dataset: Path, tmp_path: Path, guard: str
) -> None:
    run = tmp_path / "run"
    with batch_server() as server:
        options = ("--guard", guard, "--tier", "batch", "--max-missing", 1)
        paths = ("--dataset", dataset, "--out", run)
        local = {"VLLM_BASE_URL": server.base_url}
        ran = osi("evaluate", TARGET, "--judge", JUDGE, *paths, *options, server=server, **local)
        assert ran.code == 0, ran
        assert {row["guard"][:7] for row in grades(run)} == {"missing"}  # it answers other texts
        again = osi("evaluate", TARGET, "--judge", JUDGE, *paths, *options, server=server, **local)
        assert again.code == 0 and " 0 calls made" in f" {again.text}"


def test_a_single_model_is_asked_in_batches(dataset: Path, plain: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    judge, target = ("--tier", f"{JUDGE}:batch"), ("--tier", f"{TARGET}:batch")
    with batch_server(looks=10**9) as server:
        assert run_batch(server, dataset, run, *judge, "--wait-for", "0", batch=False).code == 3
        # the judge's batch is under way: plain calls to it would be paid for twice
        other = run_batch(server, dataset, run, *target, batch=False)
        assert "batches that are under way: 1; expected --tier batch" in other.refusal
        server.faults.looks = 0
        assert run_batch(server, dataset, run, *judge, batch=False).code == 0
        assert server.asked_twice == []
    (costs,) = json.loads((run / "cost.json").read_text())["runs"]
    tiers = {(line["model"], line["service_tier"]) for line in costs["lines"]}
    assert {tier for model, tier in tiers if model == TARGET} == {"standard"}
    assert (JUDGE, "batch") in tiers
    assert results(run) == results(plain)


@pytest.mark.slow
def test_when_the_wait_is_over_the_same_command_takes_the_results(
    dataset: Path, plain: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    with batch_server(looks=10**9) as server:
        ran = run_batch(server, dataset, run, "--wait-for", "0")
        assert ran.code == 3
        assert "error: --wait-for: the time is over; batches: 1 under way, 0 of 20 calls" in ran.err
        assert ran.out.startswith("Next: opensafeintent evaluate ")
        assert run_batch(server, dataset, run, "--wait-for", "0").code == 3
        assert server.creates == 1
        plainly = run_batch(server, dataset, run, batch=False)
        assert plainly.code == 2
        assert "batches that are under way: 1; expected --tier batch" in plainly.err
        server.faults.looks = 0
        assert run_batch(server, dataset, run).code == 0
        assert server.asked_twice == []
    assert results(run) == results(plain)


@pytest.mark.slow
def test_an_interruption_leaves_the_batches_and_says_how_to_come_back(
    dataset: Path, plain: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    with batch_server(looks=10**9) as server:
        models = (TARGET, "--judge", JUDGE, "--tier", "batch")
        process = begin("evaluate", *models, "--dataset", dataset, "--out", run, **served(server))
        wait_until(lambda: server.creates > 0 and _opened(run))
        process.send_signal(signal.SIGINT)
        ran = finish(process)
        assert ran.code == 130
        assert "batches that go on at their providers: 1" in ran.err
        assert ran.out.startswith("Next: opensafeintent evaluate ")
        server.faults.looks = 0
        assert run_batch(server, dataset, run).code == 0
        assert server.asked_twice == []
    assert results(run) == results(plain)


def _opened(run: Path) -> bool:
    path = run / "ledger-batches.sqlite"
    if not path.exists():
        return False
    try:
        with BatchStore(path, readonly=True) as store:
            return bool(store.batches("open"))
    except Exception:  # it is just being made
        return False


@pytest.mark.slow
def test_the_batches_of_a_run_are_listed_and_cancelled(
    dataset: Path, plain: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    with batch_server(looks=10**9) as server:
        assert osi("batches", plain).out == "No batches.\n"
        assert run_batch(server, dataset, run, "--wait-for", "0").code == 3
        listed = osi("batches", run, **served(server))
        assert listed.code == 0
        assert "batch_1" in listed.text
        assert "in_progress" in listed.text
        cancelled = osi("batches", run, "--cancel", **served(server))
        assert "cancelled" in cancelled.text
        server.faults.looks = 0
        ran = run_batch(server, dataset, run)
        assert ran.code == 0
        assert server.asked_twice == []
    assert (run / "metrics.json").read_bytes() == (plain / "metrics.json").read_bytes()


def test_another_key_does_not_see_a_batch_and_it_is_not_gone(dataset: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    with batch_server(looks=10**9) as server:
        assert run_batch(server, dataset, run, "--wait-for", "0").code == 3
        ran = run_batch(server, dataset, run, key="sk-loop-of-somebody-else")
        assert ran.code == 2
        assert (
            "LOOP_API_KEY: batch batch_1 of openai-api/loop/target is not of this account"
            in ran.err
        )
        assert server.creates == 1


def test_a_list_that_cannot_be_read_ends_the_run(dataset: Path, tmp_path: Path) -> None:
    with batch_server(unreadable_list=True) as server:
        ran = run_batch(server, dataset, tmp_path / "run")
        assert ran.code == 3
        assert "its batches cannot be listed: the list of batches is none" in ran.err
        assert server.creates == 0


@pytest.mark.parametrize(
    "command", [pytest.param("judge-check", marks=pytest.mark.slow), "grade", "replace", "build"]
)
def test_other_commands_that_call_take_batches_too(command: str, tmp_path: Path) -> None:
    with batch_server() as server:
        outcomes = [
            _COMMANDS[command](
                tmp_path / mode, served(server), ["--tier", "batch"] * (mode == "batch")
            )
            for mode in ("plain", "batch")
        ]
        assert outcomes[0] == outcomes[1]
        assert server.creates > 0
        assert server.asked_twice == []


def _judge_check(folder: Path, variables: dict[str, str], flags: list[str]) -> dict[str, bytes]:
    ran = osi("judge-check", "--judge", JUDGE, "--out", folder, *flags, **variables)
    assert ran.code == 4, ran
    results = {path.name: path.read_bytes() for path in folder.glob("*.json")}
    # batches cost less
    del results["cost.json"]
    assert results
    return results


def _grade(folder: Path, variables: dict[str, str], flags: list[str]) -> list[bytes]:
    run = folder / "run"
    folder.mkdir()
    source = folder / "responses.jsonl"
    source.write_text(_responses())
    imported = osi("import", source, "--model", "theirs", "--dataset", "starter", "--out", run)
    assert imported.code == 0, imported
    ran = osi("grade", run, "--judge", JUDGE, *flags, **variables)
    assert ran.code in (0, 1), ran
    return results(run)


def _replace(folder: Path, variables: dict[str, str], flags: list[str]) -> list[bytes]:
    """Have a new judge grade a run, some of whose responses and old grades are missing."""
    run = folder.parent / "run"
    if not run.exists():  # the same one for both ways
        with LoopbackServer() as server:
            server.set_faults(fails(400, GENERATE, first=3), fails(400, HARM, every=9))
            dataset = some_sets(folder.parent, 6)
            assert evaluate(server, dataset, run, "--max-missing", 1).code == 0
    out = folder / "bridge"
    judges = ("--judge", JUDGE, "--judge", f"{JUDGE}~lenient")
    ran = osi("grade", run, *judges, "--out", out, "--max-missing", 1, *flags, **variables)
    assert ran.code == 0, ran
    return results(out)


def _responses() -> str:
    import json

    from endtoend import STARTER

    lines = []
    for text in STARTER.read_text().splitlines():
        set_id = json.loads(text)["id"]
        for variant in ("benign", "dual_use", "malicious"):
            record = {"id": set_id, "variant": variant, "response": f"For {set_id}: {variant}."}
            lines.append(json.dumps(record) + "\n")
    return "".join(lines)


def _build(folder: Path, variables: dict[str, str], flags: list[str]) -> bytes:
    models = (
        "--generator",
        "openai-api/loop/generator",
        "--judge",
        "openai-api/loop/construction-judge",
    )
    options = ("--per-cell", 1, "--stages", "1-4", "--out", folder, *flags)
    ran = osi("build", *models, *options, **variables)
    assert ran.code == 0, ran
    return (folder / "stages" / "4-intents.kept.jsonl").read_bytes()


_COMMANDS: dict[str, Callable[[Path, dict[str, str], list[str]], object]] = {
    "judge-check": _judge_check,
    "grade": _grade,
    "replace": _replace,
    "build": _build,
}


@pytest.mark.slow
def test_second_turns_go_in_a_round_behind_their_first_replies(
    dataset: Path, tmp_path: Path
) -> None:
    turn = ("--follow-ups", "--audit", "turn=4")
    with batch_server() as server:
        assert run_batch(server, dataset, tmp_path / "plain", *turn, batch=False).code == 0
    with batch_server() as server:
        assert run_batch(server, dataset, tmp_path / "run", *turn).code == 0
    assert results(tmp_path / "run") == results(tmp_path / "plain")


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_pairs_are_asked_in_batches_with_the_same_results(tmp_path: Path, kind: str) -> None:
    dataset = tmp_path / f"{kind}.jsonl"
    write_dataset(make_sets(kind, 6), dataset)
    with LoopbackServer() as server:
        assert evaluate(server, dataset, tmp_path / "plain").code == 0
    with batch_server() as server:
        ran = run_batch(server, dataset, tmp_path / "run")
        assert (ran.code, server.asked_twice) == (0, []), ran
    assert results(tmp_path / "run") == results(tmp_path / "plain")


@pytest.mark.slow
@pytest.mark.parametrize("judge_by", ["questions", "both"])
def test_questions_are_asked_in_batches_with_the_same_results(
    tmp_path: Path, judge_by: str
) -> None:
    dataset = tmp_path / "asked.jsonl"
    write_dataset(ask_about(make_sets("mixed", 6)), dataset)
    asked = ("--judge-by", judge_by)
    with LoopbackServer() as server:
        assert evaluate(server, dataset, tmp_path / "plain", *asked).code == 0
    with batch_server() as server:
        ran = run_batch(server, dataset, tmp_path / "run", *asked)
        assert (ran.code, server.asked_twice) == (0, []), ran
    assert results(tmp_path / "run") == results(tmp_path / "plain")
