"""Batches under load: seeded schedules of kills, and the memory of a million lines.

`python benchmarks/batches.py kills --seeds 200` begins a run for each seed, kills it between steps
that the seed draws, and begins it again until it ends. Every run has to end with the results of
plain calls, and no call may be made again while a batch may still answer it.

`python benchmarks/batches.py memory --lines 1000000` makes rounds of so many calls through a
loopback server in a process of its own, and prints the peak of this one.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from batches.killing import carry_through, plain_metrics, schedule
from endtoend import some_sets
from opensafeintent.any_model import open_models
from opensafeintent.batch import rounds as submitting
from opensafeintent.batch.endpoints import batch_models
from opensafeintent.batch.rounds import Batching
from opensafeintent.batch.store import BatchStore, store_path
from opensafeintent.calls.client import Client
from opensafeintent.calls.http import HttpSession
from opensafeintent.calls.ledger import Ledger
from opensafeintent.calls.progress import Display
from opensafeintent.calls.records import Call, Sampling
from opensafeintent.templates import load_templates

MODEL = "openai-api/loop/judge"
SERVER = """
import sys, time
from loopback.batches import batch_server
with batch_server(ids_alone=True, looks=0) as server:
    print(server.base_url, flush=True)
    time.sleep(1e6)
"""


def kills(seeds: int) -> None:
    """Carry each schedule through, and compare its results with those of plain calls."""
    started, plain = time.monotonic(), dict[tuple[str, bool], bytes]()
    forms, killed, wrong = Counter[str](), 0, list[int]()
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        dataset = some_sets(home, 2, paraphrases=2)
        for seed in range(seeds):
            plan = schedule(seed)
            key = plan.form, plan.faults["separators"]
            if key not in plain:
                run = home / f"plain-{key[0]}-{key[1]}"
                plain[key] = plain_metrics(plan.form, dataset, run, separators=key[1])
            ended = carry_through(plan, dataset, home / str(seed))
            forms[plan.form] += 1
            killed += ended.kills
            if ended.code or ended.asked_twice or ended.metrics != plain[key]:
                wrong.append(seed)
                print(f"seed {seed}: {plan}, {ended._replace(metrics=b'')}", flush=True)
    minutes = (time.monotonic() - started) / 60
    print(f"{seeds} schedules, {killed} kills, {dict(forms)}, {minutes:.1f} minutes")
    print("all as plain calls, none asked twice" if not wrong else f"wrong: {wrong}")
    sys.exit(bool(wrong))


def _calls(lines: int) -> Iterator[Call]:
    """Yield calls to a judge, as an evaluation makes them: three of each response."""
    templates = load_templates()
    asked = (templates.of("helpfulness"), templates.of("harm"), templates.mode)
    for number in range(lines):
        response = f"Response {number // 3}: " + "it goes on for some time. " * 80
        yield Call(
            model=MODEL,
            messages=(asked[number % 3].render(f"Request {number // 21}?", response),),
            sampling=Sampling(max_tokens=100, temperature=0.0),
            purpose=("helpfulness", "harm", "mode")[number % 3],
            epoch=number,
        )


async def _round(folder: Path, lines: int) -> int:
    async with HttpSession() as http:
        opened = open_models([MODEL], http)
        with Ledger(folder / "ledger.sqlite") as ledger:
            client = Client(ledger, opened)
            store = http.enter_context(BatchStore(store_path(ledger.path)))
            batching = Batching(client, batch_models(opened, http), store, Display())
            await batching.begin()
            await batching.make(_calls(lines))
            batches = len(store.batches("ended"))
    with Ledger(folder / "ledger.sqlite", readonly=True) as ledger:
        assert ledger.count() == lines, ledger.count()
    return batches


def memory(lines: int) -> None:
    """Make a round of calls, and print the peak of memory."""
    submitting.PACE = submitting.Pace(first_look=0.2, longest_look=0.5)
    tests = str(Path(__file__).resolve().parent.parent / "tests")
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, {tests!r})\n{SERVER}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        base_url = server.stdout.readline().strip()
        variables = {"LOOP_BASE_URL": base_url, "LOOP_API_KEY": "sk-loop-4f9a"}
        started = time.monotonic()
        try:
            with tempfile.TemporaryDirectory() as folder, mock.patch.dict("os.environ", variables):
                batches = asyncio.run(_round(Path(folder), lines))
                size = sum(file.stat().st_size for file in Path(folder).iterdir())
        finally:
            server.terminate()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    result = {"lines": lines, "batches": batches, "peak_mb": round(peak)}
    print(json.dumps(result | {"files_mb": size >> 20, "minutes": _minutes(started)}))


def _minutes(started: float) -> float:
    return round((time.monotonic() - started) / 60, 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("study", choices=["kills", "memory"])
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--lines", type=int, default=1_000_000)
    arguments = parser.parse_args()
    if arguments.study == "kills":
        kills(arguments.seeds)
    else:
        memory(arguments.lines)


if __name__ == "__main__":
    main()
