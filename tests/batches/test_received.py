"""A folder of somebody else's: the file beside its ledger sends no request that it chose."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from endtoend import Ran, osi
from opensafeintent.batch.store import BatchStore
from opensafeintent.files import sha256_hex

MODEL, KEY = "openai-api/loop/target", "sk-loop-of-mine-alone"
MINE = sha256_hex(KEY)[:16]


class Recorder(ThreadingHTTPServer):
    """Answers every request with a batch, and keeps what was asked."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answering)
        self.asked: list[tuple[str, str]] = []
        self.gateway: list[str | None] = []
        """A header of each request."""

    @property
    def variables(self) -> dict[str, str]:
        return {"LOOP_BASE_URL": self.url, "LOOP_API_KEY": KEY}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"


class Answering(BaseHTTPRequestHandler):
    server: Recorder

    def _answer(self) -> None:
        self.server.asked.append((self.command, self.path))
        self.server.gateway.append(self.headers.get("X-Gateway-Key"))
        body = b'{"id": "batch_1", "status": "in_progress", "created_at": 1}'
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = _answer  # noqa: N815

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Recorder]:
    with Recorder() as recorder:
        threading.Thread(target=recorder.serve_forever, daemon=True).start()
        yield recorder
        recorder.shutdown()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("theirs") / "run"
    models = ("baseline/redirect", "--judge", "baseline/judge")
    assert osi("evaluate", *models, "--limit", 1, "--out", folder).code == 0
    return folder


def with_batch(
    run: Path, remote: str, base_url: str, account: str = MINE, model: str = MODEL
) -> Path:
    """Put the file of a batch under way beside the ledger of a run."""
    path = run / "ledger-batches.sqlite"
    path.unlink(missing_ok=True)
    with BatchStore(path) as store:
        batch = store.plan(model, base_url, account, "mark", [])
        store.advance(batch, "open", remote=remote, opened=1.0)
    return path


def batches(run: Path, server: Recorder, *options: object) -> Ran:
    return osi("batches", run, *options, COLUMNS="400", **server.variables)


@pytest.mark.parametrize(
    ("remote", "segment"),
    [
        ("../fine_tuning/jobs/ft-1", None),
        ("..", None),
        ("a\\..\\b", None),
        ("batch 1", None),
        ("batch\n1", None),
        ("b" * 1001, None),
        ("b" * 1000, "b" * 1000),
        ("x?y=/../z", None),
        ("x?y=1", "x%3Fy=1"),
        ("x#y", "x%23y"),
        ("%2e%2e/fine_tuning", "%252e%252e%2Ffine_tuning"),
        ("gs://bucket/file", "gs:%2F%2Fbucket%2Ffile"),
        ("batch_1", "batch_1"),
    ],
)
def test_an_id_is_one_segment_of_a_path_or_no_request(
    run: Path, server: Recorder, remote: str, segment: str | None
) -> None:
    with_batch(run, remote, server.url)
    assert batches(run, server, "--cancel").code == 0
    path = f"/v1/batches/{segment}"
    expected = [("POST", f"{path}/cancel"), ("GET", path)] if segment else []
    assert server.asked == expected


def test_only_a_batch_of_this_key_is_cancelled_unless_its_id_is_typed(
    run: Path, server: Recorder
) -> None:
    with_batch(run, "batch_1", server.url, account="0" * 16)
    ran = batches(run, server, "--cancel")
    assert ran.code == 0
    assert "not cancelled: another key made it" in ran.text and "--id ID" in ran.text
    assert server.asked == [("GET", "/v1/batches/batch_1")]
    typed = batches(run, server, "--cancel", "--id", "batch_1")
    assert "its end was requested" in typed.text
    assert ("POST", "/v1/batches/batch_1/cancel") in server.asked
    unknown = batches(run, server, "--cancel", "--id", "batch_2")
    assert unknown.refusal == "error: --id batch_2: did you mean 'batch_1'?"


def test_a_gateway_gets_its_header(run: Path, server: Recorder) -> None:
    with_batch(run, "batch_1", server.url)
    header = ("--header", f"{MODEL}:X-Gateway-Key=GATEWAY")
    ran = osi("batches", run, *header, GATEWAY="of-mine-alone", **server.variables)
    assert ran.code == 0 and "of-mine-alone" not in ran.text
    assert server.gateway == ["of-mine-alone"]
    other = ("--header", "vllm/m:X-Gateway-Key=GATEWAY")
    assert "no request goes to" in osi("batches", run, *other, **server.variables).refusal
    assert len(server.asked) == 1


def test_a_batch_of_another_address_is_not_asked_about(run: Path, server: Recorder) -> None:
    with_batch(run, "batch_1", "https://elsewhere.example/v1")
    for options in ((), ("--cancel",), ("--cancel", "--id", "batch_1")):
        ran = batches(run, server, *options)
        assert ran.code == 0 and "it was made at https://elsewhere.example/v1" in ran.text
    assert server.asked == []


def test_the_file_of_batches_is_whole_even_if_somebody_reads_it(run: Path, tmp_path: Path) -> None:
    with_batch(run, "batch_1", "https://elsewhere.example/v1")
    path, copy = run / "ledger-batches.sqlite", tmp_path / "copy.sqlite"
    with BatchStore(path, readonly=True):
        with BatchStore(path) as store:
            store.plan(MODEL, "https://elsewhere.example/v1", MINE, "mark", [])
        copy.write_bytes(path.read_bytes())
    with BatchStore(copy, readonly=True) as store:
        assert len(store.batches()) == 2


@pytest.mark.parametrize("name", ["ledger-batches.sqlite", "ledger-batches.sqlite-wal"])
def test_a_link_to_the_batches_of_another_run_is_refused(
    run: Path, server: Recorder, name: str, tmp_path: Path
) -> None:
    mine, theirs = tmp_path / "mine", tmp_path / "theirs"
    for folder in (mine, theirs):
        shutil.copytree(run, folder)
        with_batch(folder, "batch_1", server.url)
    (mine / "ledger-batches.sqlite-wal").touch()
    (theirs / name).unlink(missing_ok=True)
    (theirs / name).symlink_to(mine / name)
    assert "link" in batches(theirs, server, "--cancel").refusal
    assert server.asked == []
