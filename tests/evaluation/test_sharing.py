"""Runs on one ledger, one after the other: a second writer is refused or waits, and no call is paid
for twice.
"""

from __future__ import annotations

import random
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from endtoend import (
    TARGET,
    Process,
    answers_in,
    begin,
    evaluate,
    finish,
    metrics,
    osi,
    results,
    start,
    total,
    wait_until,
)
from loopback import LoopbackProcess, LoopbackServer

CONNECTIONS = 16
LAST_ANSWERS = 64
"""Answers of a fifth of a second, at some 360 a second: a kill may cost as many in `test_resume`.
"""


@pytest.fixture
def fickle() -> Iterator[LoopbackProcess]:
    """A server that never gives the same answer twice."""
    with LoopbackProcess(latency=0.03, jitter=0.03, fickle=True) as running:
        yield running


def start_waiting(server: LoopbackProcess, dataset: Path, run: Path) -> Process:
    return start(server, dataset, run, *shared(run), "--wait")


def shared(run: Path) -> tuple[object, ...]:
    return ("--ledger", run.parent / "shared.sqlite", "--max-connections", CONNECTIONS)


def start_behind(first: Process, server: LoopbackProcess, dataset: Path, run: Path) -> Process:
    """Start a second process and have the first one stand still until the second waits for it."""
    wait_until(lambda: total(server) >= 10)
    first.send_signal(signal.SIGSTOP)
    second = start_waiting(server, dataset, run)
    assert second.stderr is not None
    assert any("waiting: " in line for line in second.stderr)
    first.send_signal(signal.SIGCONT)
    return second


def ends_well(*processes: Process) -> None:
    for process in processes:
        ran = finish(process)
        assert ran.code == 0, ran.err


@pytest.mark.slow
def test_two_processes_add_a_model_each_to_one_run(dataset: Path, tmp_path: Path) -> None:
    run, added = tmp_path / "run", ("openai-api/loop/one", "openai-api/loop/two")
    with LoopbackServer() as server:
        assert evaluate(server, dataset, run, "--limit", 1).code == 0
        adding = ("--out", run, "--wait")
        ends_well(*[begin("evaluate", model, *adding, server=server) for model in added])
        assert answers_in(run / "ledger.sqlite") == total(server)
    assert metrics(run)["models"].keys() == {TARGET, *added}


@pytest.mark.slow
def test_a_second_writer_is_refused_and_a_reader_is_not(
    fickle: LoopbackProcess, dataset: Path, tmp_path: Path
) -> None:
    ledger = tmp_path / "shared.sqlite"
    before = tmp_path / "before"
    assert evaluate(fickle, dataset, before, *shared(before), "--limit", 1).code == 0
    first = start_waiting(fickle, dataset, tmp_path / "first")
    calls_before = total(fickle)
    wait_until(lambda: total(fickle) >= calls_before + 10)
    first.send_signal(signal.SIGSTOP)
    judged = ("--judge", "baseline/judge", "--out")
    options = (*judged, tmp_path / "second", "--ledger", ledger)
    for place, second in (
        (tmp_path / "first", ["evaluate", "baseline/redirect", *judged, tmp_path / "first"]),
        (ledger, ["evaluate", "baseline/redirect", *options]),
        (ledger, ["judge-check", *options]),
        (ledger, ["build", "--per-cell", 1, "--generator", "baseline/generator", *options]),
    ):
        ran = osi(*second)
        (line,) = ran.errors
        assert ran.code == 2 and line.startswith(f"error: {place}: "), line
        assert f"process {first.pid} on {socket.gethostname()} " in line and "--wait" in line
    for reader in (("report",), ("trace", "--worst", 1)):
        assert f"expected --ledger {ledger}" in osi(*reader, before).err
        ran = osi(*reader, before, "--ledger", ledger)
        assert ran.code == 0, ran.err
        assert f"--ledger {ledger}" in ran.out.splitlines()[-1]
    first.send_signal(signal.SIGCONT)
    ends_well(first)
    assert total(fickle) == answers_in(ledger)


@pytest.mark.slow
@pytest.mark.parametrize("names", [("one", "two"), ("one", "one")], ids=["ledger", "folder"])
def test_who_waits_takes_what_the_first_one_asked(
    fickle: LoopbackProcess, dataset: Path, tmp_path: Path, names: tuple[str, str]
) -> None:
    runs = [tmp_path / name for name in names]
    first = start_waiting(fickle, dataset, runs[0])
    second = start_behind(first, fickle, dataset, runs[1])
    ends_well(first, second)
    assert total(fickle) == answers_in(tmp_path / "shared.sqlite")
    assert results(runs[0]) == results(runs[1])


@pytest.mark.slow
@pytest.mark.parametrize("place", ["ledger", "folder"])
def test_one_interruption_ends_the_waiting(
    fickle: LoopbackProcess, dataset: Path, tmp_path: Path, place: str
) -> None:
    first = start_waiting(fickle, dataset, tmp_path / "first")
    second_run = tmp_path / ("second" if place == "ledger" else "first")
    second = start_behind(first, fickle, dataset, second_run)
    second.send_signal(signal.SIGINT)
    assert finish(second, 10).code == 130
    assert finish(first).code == 0


@pytest.mark.slow
def test_who_waits_goes_on_when_the_first_one_is_killed(
    fickle: LoopbackProcess, dataset: Path, tmp_path: Path
) -> None:
    killed = start_waiting(fickle, dataset, tmp_path / "killed")
    wait_until(lambda: total(fickle) >= 90)
    other_process = start_waiting(fickle, dataset, tmp_path / "other")
    killed.kill()
    assert finish(killed).code == -signal.SIGKILL
    ends_well(other_process)
    ends_well(start_waiting(fickle, dataset, tmp_path / "killed"))
    assert results(tmp_path / "killed") == results(tmp_path / "other")
    answers = answers_in(tmp_path / "shared.sqlite")
    assert answers <= total(fickle) <= answers + CONNECTIONS + LAST_ANSWERS


def ended(processes: list[Process]) -> bool:
    return all(process.poll() is not None for process in processes)


@pytest.mark.slow
def test_killed_at_random_moments_and_run_again(dataset: Path, tmp_path: Path) -> None:
    """Two runs on one ledger, each killed now and then, end as an undisturbed one does."""
    draw = random.Random(11)
    with LoopbackServer() as steady:
        assert evaluate(steady, dataset, tmp_path / "undisturbed").code == 0
        needed = total(steady)
    expected = (tmp_path / "undisturbed" / "metrics.json").read_bytes()
    with LoopbackProcess(latency=0.03, jitter=0.03) as server:
        runs = [tmp_path / "one", tmp_path / "two"]
        processes = [start_waiting(server, dataset, run) for run in runs]
        kills = 4
        for _ in range(kills):
            calls_before, extra = total(server), draw.randint(1, 40)
            least = calls_before + extra
            wait_until(lambda least=least: total(server) >= least or ended(processes))  # type: ignore[misc]
            which = draw.randrange(2)
            processes[which].kill()
            finish(processes[which])
            processes[which] = start_waiting(server, dataset, runs[which])
        ends_well(*processes)
        assert [(run / "metrics.json").read_bytes() for run in runs] == [expected] * 2
        assert total(server) <= needed + kills * (CONNECTIONS + LAST_ANSWERS)
    assert answers_in(tmp_path / "shared.sqlite") == needed
