"""A real local engine behind the native client: `transformers serve` on tiny random weights (make
test-engine).
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from calls.support import rows
from endtoend import coverage, grades, osi

pytest.importorskip("torch", reason="needs torch and transformers: make test-engine")
pytest.importorskip("transformers", reason="needs torch and transformers: make test-engine")

LIMIT = 16


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """Serve the weights; yield the endpoint and the weights' folder, which is the model's name."""
    from tiny_weights import make_weights

    folder = tmp_path_factory.mktemp("weights")
    make_weights(folder)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [
        str(Path(sys.executable).with_name("transformers")),
        "serve",
        str(folder),
        "--port",
        str(port),
    ]
    variables = os.environ | {
        "HF_HUB_OFFLINE": "1",
        "HF_HOME": str(folder / "hf"),
        "HF_HUB_DISABLE_TELEMETRY": "1",
    }
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, env=variables, stdout=log, stderr=subprocess.STDOUT)
    try:
        deadline = time.monotonic() + 180
        while not _listens(port):
            assert process.poll() is None and time.monotonic() < deadline, (
                folder / "log"
            ).read_text()[-3000:]
            time.sleep(0.2)
        yield f"http://127.0.0.1:{port}/v1", folder
    finally:
        process.terminate()
        process.wait(30)


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.timeout(600)
def test_responses_token_counts_and_cut_output_arrive(
    engine: tuple[str, Path], tmp_path: Path
) -> None:
    url, folder = engine
    model = f"openai-api/engine/{folder}"
    out = tmp_path / "run"
    options = ("--limit", 2, "--max-tokens", LIMIT, "--max-connections", 4, "--max-missing", 1)
    endpoint = {"ENGINE_BASE_URL": url, "ENGINE_API_KEY": "none"}
    ran = osi("evaluate", model, "--judge", "baseline/judge", "--out", out, *options, **endpoint)
    assert ran.code == 0, ran.err
    told = rows(out / "ledger.sqlite", "purpose, status, stop_reason, input_tokens, output_tokens")
    generated = [row for row in told if row[0] == "generate"]
    assert len(generated) == 2 * 7
    assert {row[1] for row in generated} == {"answered"}
    assert all(row[3] > 20 for row in generated)  # a prompt of bytes has far more than 20
    assert {row[4] for row in generated} <= set(range(1, LIMIT + 1))
    cut = [row for row in generated if row[2] == "length"]
    assert cut  # random weights almost never end by themselves
    assert coverage(out, model)["truncated"] == len(cut)
    assert sum(row["stop_reason"] == "length" for row in grades(out)) == len(cut)
    again = osi("evaluate", model, "--judge", "baseline/judge", "--out", out, *options, **endpoint)
    assert "0 calls made" in again.out
