"""Twenty models in one process, one of them dead and one of them slow: the others are not held
up.
"""

from __future__ import annotations

from pathlib import Path
from unittest import mock

import pytest

from endtoend import JUDGE, coverage, grades, metrics, osi, some_sets
from interop.support import quiet, said, scripted
from loopback import LoopbackServer

SETS = 2
PROMPTS = SETS * 7

pytestmark = quiet


@pytest.mark.slow
def test_a_dead_endpoint_and_a_slow_one_hold_nobody_up(tmp_path: Path) -> None:
    quick = [f"openai-api/loop/m{number}" for number in range(17)]
    dead, slow, foreign = "openai-api/dead/m", "openai-api/slow/m", "scripted/m"
    dataset = some_sets(tmp_path, SETS, paraphrases=4)
    options = ["--judge", JUDGE, "--dataset", dataset, "--out", tmp_path / "run", "--probe", "none"]
    with (
        LoopbackServer() as server,
        LoopbackServer(latency=0.5) as slow_server,
        scripted(lambda *_: said("I cannot help with that.")),
        mock.patch("opensafeintent.calls.client._FIRST_WAIT", 0.001),
    ):
        elsewhere = {"SLOW_BASE_URL": slow_server.base_url, "SLOW_API_KEY": "none"}
        elsewhere |= {"DEAD_BASE_URL": "http://127.0.0.1:1/v1", "DEAD_API_KEY": "none"}
        ran = osi("evaluate", *quick, dead, slow, foreign, *options, server=server, **elsewhere)
    # the others are complete, and the dead one is one line
    assert ran.code == 3
    (line,) = ran.errors
    assert line.startswith(f"error: {dead}: ") and "127.0.0.1:1" in line
    for model in (*quick, slow, foreign):
        assert coverage(tmp_path / "run", model)["counted"] == PROMPTS
    assert len(metrics(tmp_path / "run")["models"]) == 20
    assert {row["missing"] for row in grades(tmp_path / "run", dead)} <= {"response:connection"}
