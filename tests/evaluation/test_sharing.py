"""Runs at once on one ledger: each reports what the ledger holds, and no call is paid for twice."""

from __future__ import annotations

import random
import signal
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from endtoend import JUDGE, TARGET, begin, evaluate, finish, osi, some_sets, wait_until
from loopback import LoopbackProcess, LoopbackServer

pytestmark = pytest.mark.usefixtures("undrawn")

CONNECTIONS = 16
LAST_ANSWERS = 64
"""What comes in within a fifth of a second, at some 360 answers a second: as much as a kill may cost in `test_resume`."""


@pytest.fixture
def fickle() -> Iterator[LoopbackProcess]:
    """A server that never gives the same answer twice."""
    with LoopbackProcess(latency=0.03, jitter=0.03, fickle=True) as running:
        yield running


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    return some_sets(tmp_path, 8)


def start(server: LoopbackProcess, dataset: Path, run: Path, *options: object) -> subprocess.Popen[str]:
    shared = ["--ledger", run.parent / "shared.sqlite", "--max-connections", CONNECTIONS]
    return begin("evaluate", TARGET, "--judge", JUDGE, "--dataset", dataset, "--out", run, *shared, *options, server=server)


def total(server: LoopbackProcess) -> int:
    calls: int = server.stats()["total"]
    return calls


def answers_in(ledger: Path) -> int:
    with closing(sqlite3.connect(ledger)) as connection:
        count: int = connection.execute("SELECT count(*) FROM calls WHERE status <> 'failed'").fetchone()[0]
        assert connection.execute("SELECT count(*) FROM claims").fetchone() == (0,)
    return count


def results(run: Path) -> list[bytes]:
    return [(run / name).read_bytes() for name in ("grades.csv.gz", "metrics.json")]


def report_what_the_ledger_holds(*runs: Path) -> bool:
    """Tell whether runs of one model over one dataset say what `report` makes of their ledger afterwards."""
    again = runs[0].with_name("again")
    assert osi("report", runs[0], "--out", again).code == 0
    return all(results(run) == results(again) for run in runs)


@pytest.mark.slow
def test_runs_at_once_agree_with_their_ledger_and_pay_once(fickle: LoopbackProcess, dataset: Path, tmp_path: Path) -> None:
    runs = [tmp_path / name for name in ("one", "two", "three")]
    for process in [start(fickle, dataset, run) for run in runs]:
        ran = finish(process)
        assert ran.code == 0, ran.err
    assert report_what_the_ledger_holds(*runs)
    assert total(fickle) == answers_in(tmp_path / "shared.sqlite")


@pytest.mark.slow
def test_one_of_two_killed_leaves_its_claims_to_the_other(fickle: LoopbackProcess, dataset: Path, tmp_path: Path) -> None:
    runs = [tmp_path / "killed", tmp_path / "other"]
    killed, other = (start(fickle, dataset, run) for run in runs)
    wait_until(lambda: total(fickle) >= 90)
    killed.kill()
    assert finish(killed).code == -signal.SIGKILL
    ran = finish(other, timeout=30)  # claims would expire after 90 s
    assert ran.code == 0, ran.err
    ran = finish(start(fickle, dataset, runs[0]))
    assert ran.code == 0, ran.err
    assert report_what_the_ledger_holds(*runs)
    answers = answers_in(tmp_path / "shared.sqlite")
    assert answers <= total(fickle) <= answers + CONNECTIONS + LAST_ANSWERS


@pytest.mark.slow
def test_killed_at_random_moments_and_run_again(dataset: Path, tmp_path: Path) -> None:
    """Two runs on one ledger, each killed now and then, end as an undisturbed one does."""
    draw = random.Random(11)
    with LoopbackServer() as steady:
        assert evaluate(steady, dataset, tmp_path / "undisturbed").code == 0
        needed, expected = steady.stats()["total"], (tmp_path / "undisturbed" / "metrics.json").read_bytes()
    with LoopbackProcess(latency=0.03, jitter=0.03) as server:
        runs = [tmp_path / "one", tmp_path / "two"]
        processes = [start(server, dataset, run) for run in runs]
        kills = 4
        for _ in range(kills):
            seen, more = total(server), draw.randint(1, 40)
            wait_until(lambda least=seen + more: total(server) >= least or all(each.poll() is not None for each in processes))  # type: ignore[misc]
            which = draw.randrange(2)
            processes[which].kill()
            finish(processes[which])
            processes[which] = start(server, dataset, runs[which])
        for process, run in zip(processes, runs, strict=True):
            ran = finish(process)
            assert ran.code == 0, ran.err
            assert (run / "metrics.json").read_bytes() == expected
        assert total(server) <= needed + kills * (CONNECTIONS + LAST_ANSWERS)
    assert answers_in(tmp_path / "shared.sqlite") == needed


@pytest.mark.slow
def test_a_run_has_the_ledger_of_its_own_folder_to_itself(dataset: Path, tmp_path: Path) -> None:
    own = tmp_path / "own" / "ledger.sqlite"
    with LoopbackProcess(latency=0.05, fickle=True) as server:
        common = ["evaluate", TARGET, "--judge", JUDGE, "--dataset", dataset, "--max-connections", 4]
        process = begin(*common, "--out", own.parent, server=server)
        wait_until(lambda: total(server) >= 10)
        for command in (
            [*common, "--out", tmp_path / "other", "--ledger", own],
            ["judge-check", "--judge", JUDGE, "--out", tmp_path / "check", "--ledger", own],
        ):
            ran = osi(*command, server=server)
            assert ran.code == 2
            assert ran.errors == [
                f"error: {own}: a run has this ledger to itself until it ends: wait for it, or begin it with --ledger too"
            ]
        process.kill()
        finish(process)
        # who finds others at work on it shares it with them
        sharer = begin(*common, "--out", tmp_path / "other", "--ledger", own, server=server)
        seen = total(server)
        wait_until(lambda: total(server) >= seen + 10)
        owner = begin(*common, "--out", own.parent, server=server)
        for process in (sharer, owner):
            ran = finish(process)
            assert ran.code == 0, ran.err
        assert report_what_the_ledger_holds(own.parent, tmp_path / "other")
        assert answers_in(own) <= total(server) <= answers_in(own) + 4 + LAST_ANSWERS
