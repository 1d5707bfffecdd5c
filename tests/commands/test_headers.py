"""`--header` and `--timeout` in commands: who gets them, what is stored, and what is a condition."""

from __future__ import annotations

import asyncio
import json
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import msgspec
import pytest

from calls.support import holds
from endtoend import JUDGE, KEY, TARGET, Ran, evaluate, osi, running, some_sets
from loopback import Fault, LoopbackServer, Match
from opensafeintent.batch.server import BatchServer
from opensafeintent.calls.http import HttpSession
from opensafeintent.calls.providers import resolve_endpoint

SECRET = "gw/canary+0123456789=="
TEAM = ("--header", "X-Gateway-Key=GATEWAY")


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    return some_sets(tmp_path, 1, paraphrases=1)


def run(server: LoopbackServer, dataset: Path, *options: object, **more: Any) -> Ran:
    """Evaluate into `run`."""
    variables = {"GATEWAY": SECRET, "OTHER": "canary-9876543210"} | more
    return evaluate(server, dataset, dataset.parent / "run", *options, **variables)


def sent(server: LoopbackServer, name: str = "X-Gateway-Key") -> dict[str, set[str | None]]:
    """Return the values of a header, by the server's name of the model."""
    values: dict[str, set[str | None]] = {}
    for record in server.requests:
        values.setdefault(record.model, set()).add(record.headers.get(name))
    return values


def test_a_header_goes_to_models_under_test_and_its_value_into_no_file(
    server: LoopbackServer, dataset: Path
) -> None:
    # the gateway quotes it in answers and errors
    quoting = Fault(action="completion", content=f"You sent {SECRET}.", match=Match(model="target"))
    failing = Fault(
        action="status", status=400, message=f"no {SECRET}", match=Match(model="target", first=1)
    )
    server.set_faults(failing, quoting)
    ran = run(server, dataset, *TEAM, "--max-missing", "1")
    assert ran.code == 0, ran.err
    assert sent(server) == {"target": {SECRET}, "judge": {None}}
    folder = dataset.parent / "run"
    stored = json.loads((folder / "run.json").read_text())
    assert stored["headers"] == {TARGET: {"x-gateway-key": "GATEWAY"}}
    assert holds(folder / "ledger.sqlite", "You sent ***.")
    assert not holds(folder / "ledger.sqlite", SECRET)
    texts = [path.read_bytes() for path in folder.rglob("*") if path.is_file()]
    assert not any(SECRET.encode() in text for text in texts)
    assert SECRET not in ran.out + ran.err


def test_a_judge_gets_the_header_that_names_it(server: LoopbackServer, dataset: Path) -> None:
    ran = run(server, dataset, *TEAM, "--header", f"{JUDGE}:X-Gateway-Key=OTHER")
    assert ran.code == 0, ran.err
    assert sent(server) == {"target": {SECRET}, "judge": {"canary-9876543210"}}


@pytest.mark.slow
def test_names_of_headers_are_conditions_of_a_run(server: LoopbackServer, dataset: Path) -> None:
    assert run(server, dataset, *TEAM, "--limit", "1").code == 0
    for other, now in (
        ((), "none"),
        (("--header", "X-Gateway-Key=OTHER"), "x-gateway-key=OTHER"),
        ((*TEAM, "--header", "X-Route=OTHER"), "x-gateway-key=GATEWAY, x-route=OTHER"),
    ):
        refusal = run(server, dataset, *other).refusal
        assert f"headers of {TARGET}: before x-gateway-key=GATEWAY, now {now}; give" in refusal
        assert "; give the same --header again, or choose a new --out" in refusal
    # another value is the same variable, and a model that joins has headers of its own
    assert run(server, dataset, *TEAM, GATEWAY="canary-another-value").code == 0
    joining = [TARGET, "openai-api/loop/second"]
    own = ("--header", f"{TARGET}:X-Gateway-Key=GATEWAY")
    assert run(server, dataset, *own, models=joining).code == 0
    assert sent(server)["second"] == {None}


@pytest.mark.slow
def test_a_judge_that_the_run_has_needs_its_header_again(
    server: LoopbackServer, dataset: Path
) -> None:
    header = ("--header", f"{JUDGE}:X-Gateway-Key=GATEWAY")
    assert run(server, dataset, *header).code == 0
    # the first judge grades the second model too, though the command does not name it
    joining = {"judges": [JUDGE, "openai-api/loop/judge2"]}
    second = {"models": ["openai-api/loop/second"]} | joining
    assert f"headers of {JUDGE}" in run(server, dataset, "--epochs", "2", **joining).refusal
    assert run(server, dataset, "--epochs", "2", *header, **joining).code == 0
    assert run(server, dataset, *header, **second).code == 0
    assert sent(server)["judge"] == {SECRET}


def test_a_model_that_never_answered_may_get_a_header(
    server: LoopbackServer, dataset: Path
) -> None:
    server.set_faults(Fault(action="status", status=401, match=Match(model="target")))
    assert run(server, dataset).code == 3
    server.set_faults()
    assert run(server, dataset, *TEAM).code == 0


def test_a_variable_that_is_not_set_is_named_by_its_header(
    server: LoopbackServer, dataset: Path
) -> None:
    header = ("--header", "X-Gateway-Key=NOT_THERE")
    assert (
        f"{TARGET}: no value for the header x-gateway-key" in run(server, dataset, *header).refusal
    )
    ran = run(server, dataset, *header, "--dry-run")
    assert f"the variable of the header x-gateway-key is not set: {TARGET}" in ran.text
    assert not (dataset.parent / "run").exists()


@pytest.mark.slow
def test_grade_check_and_build_send_headers(server: LoopbackServer, dataset: Path) -> None:
    run_folder = dataset.parent / "run"
    variables = {"GATEWAY": SECRET}
    assert run(server, dataset).code == 0
    server.reset()
    own = ("--header", f"{JUDGE}2:X-Gateway-Key=GATEWAY", "--judge", f"{JUDGE}2")
    grading = ("grade", run_folder, "--out", dataset.parent / "graded")
    assert osi(*grading, *own, server=server, **variables).code == 0
    assert sent(server) == {"judge2": {SECRET}}
    no = osi(*grading, *own[2:], *TEAM, server=server, **variables)
    assert no.code == 2 and "no request goes to one" in no.err

    server.reset()
    checking = ("judge-check", "--out", dataset.parent / "check", *own)
    assert osi(*checking, server=server, **variables).code == 4
    assert sent(server) == {"judge2": {SECRET}}
    failing = ("evaluate", TARGET, *own, "--check-judge", "--out", dataset.parent / "checked")
    failed = osi(*failing, "--dataset", dataset, server=server, **variables)
    # the command that shows the cases has the header as well
    assert f"--header {JUDGE}2:X-Gateway-Key=GATEWAY" in failed.err

    server.reset()
    build = ("build", "--per-cell", "1", "--stages", "1-2", "--out", dataset.parent / "build")
    makers = ("--generator", TARGET, "--judge", JUDGE)
    osi(*build, *makers, *TEAM, server=server, **variables)
    assert sent(server)["target"] == {SECRET}
    manifest = json.loads((dataset.parent / "build" / "build.json").read_text())
    assert manifest["headers"] == {TARGET: {"x-gateway-key": "GATEWAY"}}
    assert f"headers of {TARGET}" in osi(*build, *makers, server=server).refusal


class _Other(ThreadingHTTPServer):
    """Answers every request in one way, and notes the headers that came."""

    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.seen: list[str | None] = []
        self.answer = (status, headers, body)

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"


class _Handler(BaseHTTPRequestHandler):
    server: _Other

    def do_POST(self) -> None:
        self.server.seen.append(self.headers.get("X-Gateway-Key"))
        self.rfile.read(int(self.headers["Content-Length"]))
        status, headers, body = self.server.answer
        self.send_response(status)
        for name, value in (headers | {"Content-Length": str(len(body))}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


def test_a_header_follows_no_redirect(server: LoopbackServer, dataset: Path) -> None:
    redirecting = _Other(307, {"Location": f"{server.base_url}/chat/completions"}, b"")
    with running(redirecting):
        url = redirecting.base_url
        run(server, dataset, *TEAM, "--max-retries", "0", LOOP_BASE_URL=url)
    assert SECRET in redirecting.seen
    assert server.requests == []


def test_requests_about_batches_have_the_headers_and_their_ids_no_secret() -> None:
    other = _Other(200, {}, json.dumps({"id": SECRET, "key": KEY, "state": "open"}).encode())
    endpoint = resolve_endpoint(TARGET, {"LOOP_BASE_URL": other.base_url, "LOOP_API_KEY": KEY})
    endpoint = msgspec.structs.replace(endpoint, headers={"x-gateway-key": SECRET})

    async def create() -> Any:
        async with HttpSession() as http:
            return await BatchServer(endpoint, http).post("/batches", {})

    with running(other):
        assert asyncio.run(create()) == {"id": "***", "key": "***", "state": "open"}
    assert other.seen == [SECRET]


@pytest.mark.slow
def test_a_request_is_given_up_after_the_timeout(server: LoopbackServer, dataset: Path) -> None:
    hanging = Fault(action="hang", seconds=30, match=Match(model="target", first=1))
    server.set_faults(hanging)
    started = time.monotonic()
    ran = run(server, dataset, "--timeout", "0.5", "--max-retries", "0", "--max-missing", "1")
    assert (ran.code, time.monotonic() - started < 15) == (0, True), ran.err
    assert holds(dataset.parent / "run" / "ledger.sqlite", "none in 0.5 seconds")
