"""A signal ends a command in good order: nothing new is begun, what is in flight is kept, and a
second signal is the way out.

Real processes, real signals, and a server that takes its time.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from msgspec.structs import replace

from construction.support import UNSAFE
from endtoend import (
    JUDGE,
    TARGET,
    answers_in,
    begin,
    environment,
    evaluate,
    finish,
    some_sets,
    start,
    total,
    wait_until,
)
from loopback import HARM, Fault, LoopbackProcess, LoopbackServer, Match
from opensafeintent import EvaluateSettings, evaluate as evaluate_here
from opensafeintent.calls.draining import current_drain
from opensafeintent.commands.session import run_async
from samples import json_lines

CONNECTIONS = 16
LATENCY = 0.15
AT_ONCE = ("--max-connections", CONNECTIONS)
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
KEPT = "interrupted; everything that was answered is kept: the same command goes on from there"
WAITING = re.compile(
    r"interrupted: no new call begins\. Waiting for (\d+) in flight, to keep the answers; interrupt"
    r" again to abandon them"
)


@pytest.fixture(autouse=True)
def hangups_arrive() -> Iterator[None]:
    """Let processes take SIGHUP by default also where these tests run under nohup, which has it
    ignored.
    """
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int, bytes]:
    """Return a dataset, the number of calls that a run over it takes, and the metrics that come of
    it.
    """
    folder = tmp_path_factory.mktemp("undisturbed")
    dataset = some_sets(folder, 10)
    with LoopbackServer() as server:
        assert evaluate(server, dataset, folder / "run").code == 0
        return dataset, server.stats()["total"], (folder / "run" / "metrics.json").read_bytes()


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    return some_sets(tmp_path, 6)


@pytest.fixture
def slow() -> Iterator[LoopbackProcess]:
    with LoopbackProcess(latency=LATENCY, jitter=LATENCY) as running:
        yield running


# The first signal
# ------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("number", SIGNALS)
def test_first_signal_waits_for_what_is_in_flight(
    slow: LoopbackProcess, undisturbed: tuple[Path, int, bytes], tmp_path: Path, number: int
) -> None:
    dataset, needed, expected = undisturbed
    run = tmp_path / "run"
    process = start(slow, dataset, run, *AT_ONCE)
    wait_until(lambda: total(slow) >= 60)
    process.send_signal(number)
    ran = finish(process)
    assert ran.code == 130
    waiting, kept = ran.errors
    match = WAITING.fullmatch(waiting)
    assert match is not None and 0 < int(match[1]) <= CONNECTIONS
    assert kept == KEPT
    assert f"\n{total(slow)} calls made.\n" in ran.err
    assert 60 <= total(slow) == answers_in(run / "ledger.sqlite") < needed
    assert not (run / "metrics.json").exists()
    assert finish(start(slow, dataset, run, *AT_ONCE)).code == 0
    assert (total(slow), slow.stats()["duplicates"]) == (needed, 0)
    assert (run / "metrics.json").read_bytes() == expected


@pytest.mark.slow
@pytest.mark.parametrize("command", ["judge-check", "build {seeds} --generator {GENERATOR}"])
def test_other_commands_that_make_calls_drain(
    slow: LoopbackProcess, tmp_path: Path, command: str
) -> None:
    seeds = json_lines(tmp_path / "seeds.jsonl", [{"prompt": text} for text in UNSAFE * 4])
    arguments = command.format(seeds=seeds, GENERATOR="openai-api/loop/generator").split()
    out = tmp_path / "out"
    options = ("--judge", JUDGE, "--out", out, "--max-connections", 4)
    process = begin(*arguments, *options, server=slow)
    wait_until(lambda: total(slow) >= 8)
    process.send_signal(signal.SIGTERM)
    ran = finish(process)
    assert (ran.code, ran.errors[-1]) == (130, KEPT)
    assert sum(bool(WAITING.fullmatch(line)) for line in ran.errors) == 1
    assert total(slow) == answers_in(out / "ledger.sqlite")


LATER = Fault(action="status", status=429, retry_after=60)
SOME = Match(every=2, skip=CONNECTIONS // 2)


@pytest.mark.slow
@pytest.mark.parametrize(
    "faults",
    [
        [LATER],
        [Fault(action="status", status=503)],
        # answers that take a second are waited for; what was told to come back in a minute, before
        # or after, is not
        [replace(LATER, seconds=0.6, match=SOME), Fault(action="delay", seconds=1)],
    ],
    ids=["rate limited", "failing", "some of each"],
)
def test_nothing_else_is_waited_for(dataset: Path, tmp_path: Path, faults: list[Fault]) -> None:
    with LoopbackProcess(faults=faults) as server:
        process = start(server, dataset, tmp_path / "run", *AT_ONCE)
        wait_until(lambda: total(server) >= 4)  # as many at once before the first reply
        process.send_signal(signal.SIGINT)
        assert finish(process, timeout=10).code == 130


def test_a_call_that_is_begun_as_the_signal_is_heard_is_waited_for() -> None:
    """Between two stages nothing is in flight when the signal comes; when the loop hears of it,
    something may be.
    """
    work = mock.Mock(busy=False)
    answered = []

    async def stage() -> None:
        with current_drain().halt_on_signal(work):
            signal.raise_signal(signal.SIGINT)
            work.busy = True
            await asyncio.sleep(0.05)
            answered.append("kept")
            work.busy = False

    with pytest.raises(KeyboardInterrupt):
        run_async(stage)
    assert answered == ["kept"]
    work.halt.assert_called_once()


_SIGNALLED = """
import os, sys, threading
from unittest import mock
from opensafeintent.cli import main

def signalled(*_, **__):
    os.kill(os.getpid(), int(os.environ["NUMBER"]))
    threading.Event().wait(30)

with mock.patch("opensafeintent.commands.dataset_tools.check_dataset", signalled):
    main()
"""


@pytest.mark.slow
@pytest.mark.parametrize("number", SIGNALS)
def test_commands_that_make_no_calls_end_with_the_same_code(number: int) -> None:
    command = [sys.executable, "-c", _SIGNALLED, "dataset", "check", "starter"]
    variables = environment(NUMBER=str(int(number)))
    ran = subprocess.run(command, env=variables, stderr=subprocess.PIPE, text=True, check=False)
    assert (ran.returncode, ran.stderr.strip()) == (130, KEPT)


# Signals that are none of ours
# ------------------------------------------------------------------------------


@pytest.mark.slow
def test_ignored_signals_stay_ignored(slow: LoopbackProcess, dataset: Path, tmp_path: Path) -> None:
    ignoring = mock.patch.object(sys, "executable", str(tmp_path / "python"))
    # as `nohup` and a job in the background
    (tmp_path / "python").write_text(f"#!/bin/sh\ntrap '' HUP INT\nexec {sys.executable} \"$@\"\n")
    (tmp_path / "python").chmod(0o700)
    # with such a variable it is not forked
    with ignoring:
        process = start(slow, dataset, tmp_path / "run", *AT_ONCE, PYTHONDONTWRITEBYTECODE="1")
    wait_until(lambda: total(slow) >= 20)
    process.send_signal(signal.SIGHUP)
    process.send_signal(signal.SIGINT)
    ran = finish(process)
    assert (ran.code, ran.errors) == (0, [])


# The second signal
# ------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("second", [signal.SIGINT, signal.SIGTERM])
def test_second_signal_is_the_way_out(dataset: Path, tmp_path: Path, second: int) -> None:
    """Harm judges hang: the rest is answered, and is kept."""
    hang = Fault(action="hang", seconds=300, match=Match(purpose=HARM))
    with LoopbackProcess(faults=[hang]) as server:
        process = start(server, dataset, tmp_path / "run", *AT_ONCE)
        wait_until(lambda: server.stats()["in_flight"] == CONNECTIONS)
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        while (line := process.stderr.readline()).startswith("reading "):
            pass
        assert WAITING.fullmatch(line.strip())
        calls_before = total(server)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(1)
        process.send_signal(second)
        ran = finish(process, timeout=10)
        assert (ran.code, ran.errors[-1]) == (130, KEPT)
        assert f"interrupted, {CONNECTIONS} abandoned" in ran.err
        assert "Traceback" not in ran.err and "never retrieved" not in ran.err
        assert total(server) == calls_before
        assert answers_in(tmp_path / "run" / "ledger.sqlite") == calls_before - CONNECTIONS


# From Python
# ------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_script_drains_and_gets_its_handlers_back(
    slow: LoopbackProcess, dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    heard: list[int] = []
    mine = signal.signal(signal.SIGTERM, lambda number, _: heard.append(number))
    before = list(map(signal.getsignal, SIGNALS))
    models = {"models": TARGET, "judges": JUDGE, "max_connections": CONNECTIONS}
    settings = EvaluateSettings(**models, dataset=str(dataset), out=tmp_path / "run")

    def interrupt() -> None:
        wait_until(lambda: total(slow) >= 20)
        os.kill(os.getpid(), signal.SIGTERM)  # the script handles it in a way of its own
        wait_until(lambda: total(slow) >= 40)
        os.kill(os.getpid(), signal.SIGINT)

    interrupting = threading.Thread(target=interrupt)
    try:
        with mock.patch.dict(os.environ, environment(slow)):
            interrupting.start()
            with pytest.raises(KeyboardInterrupt):
                evaluate_here(settings)
        assert list(map(signal.getsignal, SIGNALS)) == before
    finally:
        interrupting.join()
        signal.signal(signal.SIGTERM, mine)
    assert heard == [signal.SIGTERM]
    assert 40 <= total(slow) == answers_in(tmp_path / "run" / "ledger.sqlite")
    assert WAITING.search(capsys.readouterr().err)


_NOTEBOOK = """
import asyncio, signal, sys, time
from pathlib import Path
from typing import IO
import opensafeintent

async def cell():  # a notebook: a loop runs
    if sys.argv[3] == "raising":  # and a handler of its own raises KeyboardInterrupt
        signal.signal(signal.SIGINT, lambda *_: signal.default_int_handler(*_))
    else:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    models = {"models": ("openai-api/loop/target",), "judges": ("openai-api/loop/judge",)}
    settings = opensafeintent.EvaluateSettings(**models, dataset=sys.argv[1], out=Path(sys.argv[2]), max_connections=4)
    try:
        opensafeintent.evaluate(settings)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    time.sleep(30)

asyncio.run(cell())
"""


@pytest.mark.slow
@pytest.mark.parametrize("handler", ["default", "raising"])
@pytest.mark.parametrize("hanging", [False, True])
def test_an_interrupted_notebook_cell_drains(
    dataset: Path, tmp_path: Path, handler: str, hanging: bool
) -> None:
    faults = [Fault(action="hang", seconds=300, match=Match(skip=20))] if hanging else []
    command = [sys.executable, "-c", _NOTEBOOK, str(dataset), str(tmp_path / "run"), handler]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with (
        LoopbackProcess(latency=LATENCY, faults=faults) as server,
        subprocess.Popen(command, env=environment(server), **pipes) as kernel,
    ):
        try:
            wait_until(lambda: total(server) >= 24)
            kernel.send_signal(signal.SIGINT)
            assert any(WAITING.match(line) for line in iter(kernel.stderr.readline, ""))
            if hanging:
                kernel.send_signal(signal.SIGINT)
            assert kernel.stdout.readline() == "interrupted\n"
            assert total(server) == answers_in(tmp_path / "run" / "ledger.sqlite") + 4 * hanging
        finally:
            kernel.kill()
