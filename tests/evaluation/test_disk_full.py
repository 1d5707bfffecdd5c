"""A ledger that cannot be written ends the asking at once, in one line, and loses no more than it
must. On a full disk it loses nothing.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from endtoend import (
    Ran,
    answers_in,
    evaluate,
    finish,
    some_sets,
    start,
    total,
    wait_until,
)
from loopback import LoopbackProcess
from opensafeintent.calls.ledger_writer import RESERVED_BYTES

CONNECTIONS = 16
ROOT = hasattr(os, "geteuid") and os.geteuid() == 0


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    return some_sets(tmp_path, 12)


@contextlib.contextmanager
def small_disk(place: Path, kib: int) -> Iterator[Path]:
    """Mount a disk of so many KiB."""
    mount = ("mount", "-t", "tmpfs", "-o", f"size={kib}k", "tmpfs", str(place))
    place.mkdir()
    if not ROOT or subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("only root can mount a small disk")
    try:
        yield place
    finally:
        subprocess.run(("umount", str(place)), check=True)


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
@pytest.mark.parametrize("kib", [256, 384])
def test_a_disk_without_room_for_the_last_answers_is_refused_before_the_first_call(
    dataset: Path, tmp_path: Path, kib: int
) -> None:
    with small_disk(tmp_path / "disk", kib) as disk, LoopbackProcess() as server:
        ran = evaluate(server, dataset, disk / "run")
        assert total(server) == 0
        assert sorted(path.name for path in disk.rglob(".*room")) == []
    (line,) = ran.errors
    assert ran.code == 2 and "ledger" in line and "o space left" in line


@pytest.mark.slow
@pytest.mark.parametrize("latency", [0.0, 0.05])
@pytest.mark.parametrize("kib", [256, 384])
def test_a_disk_that_runs_full_costs_no_answer(
    dataset: Path, tmp_path: Path, kib: int, latency: float
) -> None:
    size = RESERVED_BYTES // 1024 + kib
    with small_disk(tmp_path / "disk", size) as disk, LoopbackProcess(latency=latency) as server:
        run, options = disk / "run", ("--max-connections", CONNECTIONS)
        ran = evaluate(server, dataset, run, *options)
        ledger = run / "ledger.sqlite"
        assert lost_in(ran, ledger, "(?:disk I/O error|database or disk is full)") == 0
        assert 20 < answers_in(ledger) == total(server)
        larger = ("mount", "-o", f"remount,size={2 * size}k", str(disk))
        subprocess.run(larger, check=True)
        assert evaluate(server, dataset, run, *options).code == 0
        assert total(server) == answers_in(ledger)
        assert not [*run.glob(".*room")]


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


@pytest.mark.skipif(ROOT or not hasattr(os, "geteuid"), reason="to root no file is read-only")
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
