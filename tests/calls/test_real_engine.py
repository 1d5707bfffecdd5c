"""A real local engine behind the native client: `transformers serve` on small real weights, as the
model under test and as its judge (make test-engine).
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from calls.support import rows
from endtoend import Ran, coverage, grades, osi
from opensafeintent.evaluation.manifest import RunFolder
from opensafeintent.evaluation.texts import RunTexts
from opensafeintent.taxonomy import SCALES
from samples import dataset_file, made_dataset, prompt_set
from small_weights import PACKAGE, small_weights

pytest.importorskip("torch", reason="needs torch and transformers: make test-engine")
pytest.importorskip("transformers", reason="needs torch and transformers: make test-engine")
if find_spec(PACKAGE) is None:
    pytest.skip("needs real weights: make test-engine", allow_module_level=True)

LIMIT = 40
SET = prompt_set("boats", paraphrases=0)


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """Serve the weights; yield the endpoint and the weights' folder, which is the model's name."""
    folder = tmp_path_factory.mktemp("weights")
    small_weights(folder)
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


def evaluated(engine: tuple[str, Path], out: Path, judge: str, *options: object) -> Ran:
    url, folder = engine
    endpoint = {"ENGINE_BASE_URL": url, "ENGINE_API_KEY": "none"}
    options = ("--judge", judge, "--out", out, "--max-connections", 2, "--max-missing", 1, *options)
    return osi("evaluate", f"openai-api/engine/{folder}", *options, **endpoint)


@pytest.mark.timeout(600)
def test_responses_stop_reasons_and_token_counts_arrive(
    engine: tuple[str, Path], tmp_path: Path
) -> None:
    model, out = f"openai-api/engine/{engine[1]}", tmp_path / "run"
    options = ("--limit", 2, "--max-tokens", LIMIT)
    ran = evaluated(engine, out, "baseline/judge", *options)
    assert ran.code == 0, ran.err
    recorded = rows(
        out / "ledger.sqlite", "purpose, status, stop_reason, input_tokens, output_tokens"
    )
    generated = [row for row in recorded if row[0] == "generate"]
    assert len(generated) == 2 * 7
    assert {row[1] for row in generated} == {"answered"}
    assert all(row[3] > 20 for row in generated)
    for _, _, stop, _, tokens in generated:
        assert (stop, tokens) == ("length", LIMIT) or (stop == "stop" and 1 <= tokens <= LIMIT)
    cut = [row for row in generated if row[2] == "length"]
    assert cut  # an answer to a question about methods takes more than 40 tokens
    assert coverage(out, model)["truncated"] == len(cut)
    assert sum(row["stop_reason"] == "length" for row in grades(out)) == len(cut)
    assert all(len(text.split()) > 5 for text in responses(out))  # words, and no bytes at random
    assert "0 calls made" in evaluated(engine, out, "baseline/judge", *options).out


@pytest.mark.timeout(600)
def test_a_short_answer_ends_by_itself(engine: tuple[str, Path], tmp_path: Path) -> None:
    out = tmp_path / "run"
    dataset = dataset_file(tmp_path, made_dataset(SET))
    options = ("--dataset", dataset, "--system", "Answer in one word: yes or no.")
    ran = evaluated(engine, out, "baseline/judge", *options, "--max-tokens", 400)
    assert ran.code == 0, ran.err
    assert "stop" in {row["stop_reason"] for row in grades(out)}


@pytest.mark.timeout(900)
def test_a_judge_keeps_the_form_or_is_asked_three_times(
    engine: tuple[str, Path], tmp_path: Path
) -> None:
    judge, out = f"openai-api/engine/{engine[1]}", tmp_path / "run"
    dataset = dataset_file(tmp_path, made_dataset(SET))
    options = ("--dataset", dataset, "--max-tokens", LIMIT, "--judge-arg", "max_tokens=8")
    ran = evaluated(engine, out, judge, *options, "--probe", "none")
    assert ran.code == 0, ran.err
    recorded = rows(out / "ledger.sqlite", "purpose, status, attempt, stop_reason, output_tokens")
    judged = [row for row in recorded if row[0] in ("helpfulness", "harm")]
    assert {row[1] for row in judged} == {"answered"}
    assert all(row[3] in ("stop", "length") and 1 <= row[4] <= 8 for row in judged)
    reasons = [reason for row in grades(out) for reason in row["missing"].split(";")]
    missing = [reason for reason in map(str.strip, reasons) if reason.startswith(tuple(SCALES))]
    grades_given = [row[what] for row in grades(out) for what in SCALES if row[what]]
    assert len(grades_given) + len(missing) == 3 * 2
    assert {reason.partition(":")[2] for reason in missing} <= {"unparsed", "truncated"}
    # each question is asked once, and twice more if its replies break the form
    assert [row[2] for row in judged].count(0) == 3 * 2
    assert len(missing) <= [row[2] for row in judged].count(2)
    assert max(row[2] for row in judged) <= 2


def responses(run: Path) -> list[str]:
    with RunTexts(*RunFolder(run).load(), run / "ledger.sqlite") as texts:
        texts_found = [texts.find(row["model"], row["id"], row["variant"]) for row in grades(run)]
    return [text.text for text in texts_found if text is not None]
