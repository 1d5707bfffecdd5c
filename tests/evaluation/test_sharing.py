"""Runs at once on one ledger: each reports what the ledger holds, and no call is paid for twice."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from endtoend import JUDGE, TARGET, begin, evaluate, finish, osi, some_sets, wait_until
from loopback import LoopbackProcess

CONNECTIONS = 16


@pytest.fixture
def fickle() -> Iterator[LoopbackProcess]:
    """A server that never gives the same answer twice."""
    with LoopbackProcess(latency=0.03, jitter=0.03, fickle=True) as running:
        yield running


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    return some_sets(tmp_path, 12)


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


def reports_what_the_ledger_holds(run: Path) -> bool:
    before = {name: (run / name).read_bytes() for name in ("grades.csv.gz", "metrics.json")}
    again = run.with_name(f"{run.name}-again")
    assert osi("report", run, "--out", again).code == 0
    return (
        before["metrics.json"] == (again / "metrics.json").read_bytes()
        and before["grades.csv.gz"] == (again / "grades.csv.gz").read_bytes()
    )


@pytest.mark.parametrize("count", [2, 3])
def test_runs_at_once_agree_with_their_ledger_and_pay_once(
    fickle: LoopbackProcess, dataset: Path, tmp_path: Path, count: int
) -> None:
    runs = [tmp_path / f"run-{number}" for number in range(count)]
    for process in [start(fickle, dataset, run) for run in runs]:
        ran = finish(process)
        assert ran.code == 0, ran.err
    assert total(fickle) == answers_in(tmp_path / "shared.sqlite")
    assert all(reports_what_the_ledger_holds(run) for run in runs)
    assert len({(run / "metrics.json").read_bytes() for run in runs}) == 1
