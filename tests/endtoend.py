"""What the end-to-end tests share: the command line in this process or one of its own, and how to
read a run.
"""

from __future__ import annotations

import contextlib
import csv
import functools
import gzip
import http.server
import io
import json
import os
import re
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol
from unittest import mock

import msgspec

from loaded_python import Forked
from loopback import (
    HARM,
    PROBE,
    Fault,
    LoopbackProcess,
    LoopbackServer,
    Match,
    RequestRecord,
    answer_text,
)
from opensafeintent.report.metrics_json import MetricsFile

REPO = Path(__file__).resolve().parent.parent
STARTER = REPO / "src" / "opensafeintent" / "data" / "starter.jsonl"

KEY = "sk-loop-4f9a"
TARGET = "openai-api/loop/target"
JUDGE = "openai-api/loop/judge"
WORDINGS = 7
"""Prompts of a shipped set: three intents, four paraphrases."""


_PROGRESS = re.compile(r" calls · |^[\d,]+ calls? made|^(reading .*|storing.*|estimating|drawing)$")


class Served(Protocol):
    """A server as far as the program needs it."""

    base_url: str


Server = LoopbackServer | LoopbackProcess
Process = subprocess.Popen[str] | Forked


@dataclass(frozen=True)
class Ran:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def errors(self) -> list[str]:
        """The lines on standard error, those of the progress display aside."""
        return [
            line for line in self.err.splitlines() if line.strip() and not _PROGRESS.search(line)
        ]

    @property
    def text(self) -> str:
        """What was printed, on one line."""
        return " ".join(self.out.split())

    @property
    def refusal(self) -> str:
        """The one line that it was refused with, nothing printed."""
        assert (self.code, self.out) == (2, ""), self
        (line,) = self.errors
        return line


def environment(server: Served | None = None, **variables: str) -> dict[str, str]:
    """Return an environment that names no provider but the server, as `loop`; modules of a given
    `PYTHONPATH` come before the package's.
    """
    own = str(REPO / "src")
    clean = {
        "PATH": os.environ["PATH"],
        "HOME": "/nonexistent",
        "PYTHONDONTWRITEBYTECODE": "1",  # one that is killed as it compiles would leave half a file
        "LANG": "C.UTF-8",
    }
    served = {"LOOP_BASE_URL": server.base_url, "LOOP_API_KEY": KEY} if server else {}
    passed_on = {
        name: value
        for name, value in os.environ.items()
        if name.startswith("COVERAGE_") or name == "OPENSAFEINTENT_CACHE"
    }
    given = variables.get("PYTHONPATH")
    paths = {"PYTHONPATH": os.pathsep.join((given, own)) if given else own}
    return clean | passed_on | served | variables | paths


def osi(*arguments: object, server: Served | None = None, **variables: str) -> Ran:
    """Run the command line in this process."""
    from opensafeintent.cli import main

    out, err = io.StringIO(), io.StringIO()
    code: object = None
    with (
        mock.patch.dict(os.environ, environment(server, **variables), clear=True),
        mock.patch.object(sys, "argv", ["opensafeintent", *map(str, arguments)]),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            main()
        except SystemExit as ended:
            code = ended.code
    assert isinstance(code, int)
    return Ran(code, out.getvalue(), err.getvalue())


def begin(*arguments: object, server: Served | None = None, **variables: str) -> Process:
    """Start the command line in a process of its own, forked from one that has loaded the program
    unless a variable decides on how Python starts or the process is measured.
    """
    words, env = [*map(str, arguments)], environment(server, **variables)
    if not any(
        name.startswith(("PYTHON", "LC_", "LANG", "SSL_")) for name in variables
    ) and not any(name.startswith("COVERAGE_") for name in env):
        return Forked(words, env)
    return subprocess.Popen(
        [sys.executable, "-m", "opensafeintent", *words],
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def start(server: Served, dataset: Path, out: Path, *options: object, **variables: str) -> Process:
    """Start `evaluate` in a process of its own."""
    paths = ("--dataset", dataset, "--out", out)
    return begin("evaluate", TARGET, "--judge", JUDGE, *paths, *options, server=server, **variables)


def finish(process: Process, timeout: float = 60) -> Ran:
    """Wait for a process that `begin` started."""
    out, err = process.communicate(timeout=timeout)
    return Ran(process.returncode, out, err)


def says(
    content: str | None, purpose: str | None = None, *, finish_reason: str = "stop", **match: Any
) -> Fault:
    """Return what makes the server say one thing, whenever it is asked for one purpose."""
    matched = Match(purpose=purpose, **match)
    return Fault(action="completion", content=content, finish_reason=finish_reason, match=matched)


def fails(
    status: int, purpose: str | None = None, *, message: str | None = None, **match: Any
) -> Fault:
    """Return what makes the server answer with an HTTP error."""
    matched = Match(purpose=purpose, **match)
    return Fault(action="status", status=status, message=message, match=matched)


def answering(body: bytes, status: int = 200) -> LoopbackServer:
    """Serve one and the same body for every request: for replies that no well-behaved server would
    give.
    """
    return LoopbackServer(faults=[Fault(action="body", status=status, body=body)])


@contextlib.contextmanager
def running(server: http.server.HTTPServer) -> Iterator[None]:
    """Have a server answer, in a thread of its own, until the block ends."""
    serve = functools.partial(server.serve_forever, poll_interval=0.01)
    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()


def wait_until(condition: Callable[[], bool], seconds: float = 20) -> None:
    """Wait for something to become true."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.005)


def some_sets(folder: Path, count: int = 40, *, paraphrases: int | None = None) -> Path:
    """Write the first sets of the starter set, with all of their paraphrases or the first of
    them.
    """
    path = folder / f"sets-{count}-{paraphrases}.jsonl"
    records = [json.loads(line) for line in STARTER.read_text().splitlines()[:count]]
    for record in records:
        record["dual_use_paraphrases"] = record["dual_use_paraphrases"][:paraphrases]
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def prompts_of(dataset: Path) -> dict[str, list[str]]:
    """Return the texts of a dataset that `some_sets` wrote, by intent; paraphrases count as
    `paraphrase`.
    """
    prompts: dict[str, list[str]] = {
        "benign": [],
        "dual_use": [],
        "malicious": [],
        "paraphrase": [],
    }
    for record in map(json.loads, dataset.read_text().splitlines()):
        for intent in ("benign", "dual_use", "malicious"):
            prompts[intent].append(record["prompts"][intent])
        prompts["paraphrase"] += record["dual_use_paraphrases"]
    return prompts


def calls(server: Server) -> Counter[str]:
    """Return the requests that a server has had, by purpose."""
    return Counter(server.stats()["by_purpose"])


def total(server: Server) -> int:
    """Return how many requests a server has had."""
    count: int = server.stats()["total"]
    return count


def answers_in(ledger: Path) -> int:
    """Return how many outcomes a ledger holds."""
    with contextlib.closing(sqlite3.connect(ledger)) as connection:
        rows = connection.execute("SELECT count(*) FROM calls WHERE status <> 'failed'")
        count: int = rows.fetchone()[0]
    return count


def results(run: Path) -> list[bytes]:
    """Return what a run's numbers are stored in."""
    return [(run / name).read_bytes() for name in ("grades.csv.gz", "metrics.json")]


def asked_of(server: Server, purpose: str) -> list[RequestRecord]:
    """Return the requests for one purpose, in order of arrival."""
    return [record for record in server.requests if record.purpose == purpose]


def texts_of(record: RequestRecord) -> list[str]:
    """Return the messages of a request."""
    return [message["content"] for message in record.messages]


def metrics(run: Path) -> dict[str, Any]:
    """Read `metrics.json`, which has to be as its schema says."""
    text = (run / "metrics.json").read_text()
    msgspec.json.decode(text, type=MetricsFile)
    content: dict[str, Any] = json.loads(text)
    return content


def coverage(run: Path, model: str = TARGET) -> dict[str, Any]:
    """Return what `metrics.json` says of what is there of a model."""
    of_model: dict[str, Any] = metrics(run)["coverage"][model]
    return of_model


def entry(run: Path, metric: str, model: str = TARGET) -> dict[str, Any]:
    """Return what `metrics.json` says of a model's metric."""
    of_metric: dict[str, Any] = metrics(run)["models"][model][metric]
    return of_metric


def grades(run: Path, model: str | None = None) -> list[dict[str, str]]:
    """Read `grades.csv.gz`, all of it or one model's rows."""
    with gzip.open(run / "grades.csv.gz", "rt", newline="") as file:
        return [row for row in csv.DictReader(file) if model in (None, row["model"])]


def values(rows: Iterable[Mapping[str, str]], field: str) -> set[str]:
    """Return the different values that a column holds."""
    return {row[field] for row in rows}


def evaluate(
    server: Served,
    dataset: Path,
    out: Path,
    *options: object,
    models: Iterable[str] = (TARGET,),
    judges: Iterable[str] = (JUDGE,),
    **variables: str,
) -> Ran:
    """Run `evaluate` in this process."""
    judging = [option for judge in judges for option in ("--judge", judge)]
    paths = ("--dataset", dataset, "--out", out)
    return osi("evaluate", *models, *judging, *paths, *options, server=server, **variables)


@dataclass(frozen=True)
class Lab:
    """A server, a dataset, and the folder of a run over it."""

    server: LoopbackServer
    dataset: Path
    run: Path

    def evaluate(self, *options: object, **more_options: Any) -> Ran:
        return evaluate(self.server, self.dataset, self.run, *options, **more_options)

    @property
    def calls(self) -> Counter[str]:
        return calls(self.server)


def unsafe_dual_use(server: Server, dataset: Path, judge: str = "judge") -> set[str]:
    """Return the dual-use prompts whose response the server's judge called unsafe, from what it was
    asked alone.
    """
    harmful = [
        texts_of(record)[0]
        for record in asked_of(server, HARM)
        if record.model == judge and answer_text(judge, texts_of(record)) != "0"
    ]
    return {
        prompt
        for prompt in prompts_of(dataset)["dual_use"]
        if any(_quotes(text, prompt) for text in harmful)
    }


def probed(server: Server, dataset: Path) -> list[str]:
    """Return the dual-use prompts that the probe was about, in order of arrival."""
    asked = [texts_of(record)[-1] for record in asked_of(server, PROBE)]
    return [
        prompt
        for text in asked
        for prompt in prompts_of(dataset)["dual_use"]
        if _quotes(text, prompt)
    ]


def _quotes(text: str, prompt: str) -> bool:
    return f">>>\n{prompt}\n<<<END REQUEST" in text
