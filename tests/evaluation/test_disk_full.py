"""A ledger that cannot be written ends the asking at once, in one line, and loses no more than it
must.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from endtoend import (
    JUDGE,
    TARGET,
    Ran,
    answers_in,
    environment,
    evaluate,
    finish,
    some_sets,
    start,
    total,
    wait_until,
)
from loopback import LoopbackProcess

CONNECTIONS = 16
LIMIT = 300_000
"""Bytes that a file may have: a ledger of some 70 calls."""

_WITH_LIMIT = """
import resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv.pop(1)), resource.RLIM_INFINITY))
from opensafeintent.cli import main
main()
"""


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    return some_sets(tmp_path, 12)


def start_limited(
    server: LoopbackProcess, dataset: Path, run: Path, *options: object
) -> subprocess.Popen[str]:
    """Start `evaluate` where no file may grow beyond the limit, as on a full disk."""
    paths = ("--dataset", dataset, "--out", run, "--max-connections", CONNECTIONS)
    arguments = [LIMIT, "evaluate", TARGET, "--judge", JUDGE, *paths, *options]
    command = [sys.executable, "-c", _WITH_LIMIT, *map(str, arguments)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, env=environment(server), stdout=pipe, stderr=pipe, text=True)


def lost_in(ran: Ran, ledger: Path, why: str = ".*") -> int:
    """Return how many answers the one line of an ended run gives up."""
    (line,) = ran.errors
    form = rf"error: {re.escape(str(ledger))}: cannot write the ledger: {why}; .* made; (.*)"
    match = re.fullmatch(form, line)
    assert ran.code == 2 and match is not None, line
    if match[1] == "every answer that came is kept":
        return 0
    return int(match[1].removeprefix("answers that came and are lost: ").replace(",", ""))


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="no limit on the size of files")
@pytest.mark.parametrize("shared", [False, True], ids=["own", "shared"])
def test_a_full_disk_ends_the_asking_and_costs_what_did_not_fit(
    dataset: Path, tmp_path: Path, shared: bool
) -> None:
    run = tmp_path / "run"
    ledger = tmp_path / "shared.sqlite" if shared else run / "ledger.sqlite"
    options = ["--ledger", ledger] if shared else []
    with LoopbackProcess(latency=0.05) as server:
        ran = finish(start_limited(server, dataset, run, *options))
        lost = lost_in(ran, ledger, "(?:disk I/O error|database or disk is full)")
        made_calls, kept = total(server), answers_in(ledger)
        # every answer is stored, or is owned up to: those in flight, and those of the last write
        assert kept > 20 and 0 < lost <= 3 * CONNECTIONS
        assert kept + lost == made_calls
        assert evaluate(server, dataset, run, *options).code == 0
        assert total(server) == answers_in(ledger) + lost


def replace(ledger: Path) -> None:
    another = ledger.with_name("another")
    shutil.copyfile(ledger, another)
    another.replace(ledger)


FAULTS: dict[str, Callable[[Path], None]] = {
    "deleted": Path.unlink,
    "replaced": replace,
    "folder gone": lambda ledger: shutil.rmtree(ledger.parent),
}


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="open files cannot be deleted")
@pytest.mark.parametrize(
    ("name", "shared"),
    [("deleted", False), ("replaced", False), ("folder gone", False), ("deleted", True)],
)
def test_a_ledger_that_is_gone_ends_the_asking(
    dataset: Path, tmp_path: Path, name: str, shared: bool
) -> None:
    run = tmp_path / "run"
    ledger = tmp_path / "elsewhere" / "shared.sqlite" if shared else run / "ledger.sqlite"
    with LoopbackProcess(latency=0.05) as server:
        options = ("--ledger", ledger) if shared else ()
        process = start(server, dataset, run, "--max-connections", CONNECTIONS, *options)
        wait_until(lambda: total(server) >= 60)
        FAULTS[name](ledger)
        calls_before = total(server)
        lost = lost_in(finish(process), ledger, ".* deleted or replaced .*")
        assert calls_before - CONNECTIONS <= lost <= total(server) <= calls_before + 4 * CONNECTIONS
    assert not (run / "metrics.json").exists()


@pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() == 0, reason="to root no file is read-only"
)
def test_a_ledger_that_is_read_only_is_refused_before_anything_is_asked(
    dataset: Path, tmp_path: Path
) -> None:
    with LoopbackProcess() as server:
        assert evaluate(server, dataset, tmp_path / "run", "--limit", 1).code == 0
        made_calls = total(server)
        (tmp_path / "run" / "ledger.sqlite").chmod(0o444)
        ran = evaluate(server, dataset, tmp_path / "run")
        assert (ran.code, len(ran.errors)) == (2, 1)
        assert total(server) == made_calls
