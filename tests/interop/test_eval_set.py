"""Our task in an `eval_set` of Inspect AI that is interrupted, or whose provider fails, and run
again.
"""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from endtoend import metrics, osi, wait_until

pytest.importorskip("inspect_ai")
from inspect_ai.log import EvalLog, list_eval_logs, read_eval_log

from interop.support import metrics_of
from opensafeintent.numbers.metrics import TRIPLET_SCOPE

pytestmark = pytest.mark.slow
PROGRAM = Path(__file__).with_name("eval_set_program.py")
MODELS = ("slow/comply-all", "slow/keyword-filter")
SAMPLES = 2 * 7 * 2
"""Sets, prompts of each, epochs."""
AT_ONCE = 2 * 4
"""Samples under way at the same time, over both models."""
CALLS_A_SAMPLE = 5
"""At most: a response, two grades, a mode, a probe."""


def begin(folder: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, PROGRAM, folder / "logs", folder / "calls"]
    clean = {"PATH": os.environ["PATH"], "HOME": str(folder)}
    out = subprocess.PIPE
    return subprocess.Popen(command, env=clean, stdout=out, stderr=subprocess.STDOUT)


def finished(folder: Path) -> dict[str, EvalLog]:
    """Run the set to its end; return the log of each model."""
    process = begin(folder)
    out, _ = process.communicate(timeout=300)
    assert process.returncode == 0, out.decode()
    logs = map(read_eval_log, list_eval_logs(str(folder / "logs")))
    done = [log for log in logs if log.status == "success"]
    assert sorted(log.eval.model for log in done) == sorted(MODELS)
    return {log.eval.model: log for log in done}


def calls(folder: Path) -> Counter[str]:
    path = folder / "calls"
    return Counter(path.read_text().split()) if path.exists() else Counter()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, EvalLog], Counter[str]]:
    """The same set, undisturbed."""
    folder = tmp_path_factory.mktemp("whole")
    return finished(folder), calls(folder)


def test_interrupted_set_goes_on_to_the_same_numbers(
    tmp_path: Path, whole: tuple[dict[str, EvalLog], Counter[str]]
) -> None:
    interruptions = (signal.SIGINT, signal.SIGKILL)
    for number, how in enumerate(interruptions, 1):
        process = begin(tmp_path)
        due = number * whole[1].total() // 3
        wait_until(lambda due=due: calls(tmp_path).total() > due, 60)
        process.send_signal(how)
        process.communicate(timeout=60)
        assert calls(tmp_path).total() < whole[1].total()
    logs = finished(tmp_path)
    for model, log in logs.items():
        assert log.samples is not None
        # every prompt once an epoch, those that earlier attempts had finished among them
        there = {(sample.id, sample.epoch) for sample in log.samples}
        assert len(there) == len(log.samples) == SAMPLES
        assert metrics_of(log) == pytest.approx(metrics_of(whole[0][model]), abs=0, nan_ok=True)
    assert set(calls(tmp_path)) == set(whole[1])
    # samples that were under way are begun again, and no other
    again = calls(tmp_path).total() - whole[1].total()
    assert 0 < again <= len(interruptions) * AT_ONCE * CALLS_A_SAMPLE
    # all logs, those that were broken off among them, are one evaluation of each model
    ran = osi("import", *(tmp_path / "logs").glob("*.eval"), "--out", tmp_path / "run")
    assert ran.code == 0, ran.err
    for model in MODELS:
        entries = metrics(tmp_path / "run")["models"][model]
        # what is null in metrics.json is NaN to Inspect AI
        values = {name: entries[name]["value"] for name in TRIPLET_SCOPE.metrics}
        ours = {name: math.nan if value is None else value for name, value in values.items()}
        theirs = metrics_of(logs[model])
        assert {name: theirs[name] for name in ours} == pytest.approx(ours, abs=0, nan_ok=True)
