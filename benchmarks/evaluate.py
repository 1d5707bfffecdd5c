"""How close does `evaluate` come to what the network allows?

Starts a loopback server (another process, on another core where there is one), runs `opensafeintent
evaluate` against it, and beside it a bare aiohttp loop that sends the same number of requests.
Prints for each: calls a second, the ratio to the ideal (calls × latency ÷ connections), CPU seconds
per 1,000 calls and peak memory. With `--against` another revision of the program takes the bare
loop's place, in turn with this one. `--provider anthropic` takes Anthropic's protocol. With
`--questions` something else is measured: pairs judged by so many questions of their own, in turn with
triplets judged by rubric, and `report` of both.

    python benchmarks/evaluate.py [--dataset FILE] [--limit SETS] [--connections 200] [--latency
    0.2] [--repeats 3]
                                  [--provider anthropic] [--against CHECKOUT/src]
    python benchmarks/evaluate.py --questions 7 [--limit 500]

Machines are noisy: the median of the repeats counts, and the ratio to what runs in turn with it
more than either.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from loopback import LoopbackProcess  # noqa: E402

SHARED = ROOT.parent / "shared" / "data" / "opensafeintent-700.json"


class Measured(NamedTuple):
    calls: int
    wall: float
    cpu: float
    memory: float

    def line(self, what: str, latency: float, connections: int) -> str:
        ideal = self.calls * latency / connections
        return (
            f"{what:<22}{self.calls:>8,}{self.wall:>9.2f}{self.calls / self.wall:>10,.0f}{self.wall / ideal:>9.3f}"
            f"{1000 * self.cpu / self.calls:>10.3f}{self.memory:>9.0f}"
        )


def synthetic(folder: Path) -> Path:
    """A dataset of 700 sets made from the starter set, for where the published one is not at
    hand.
    """
    from opensafeintent import load_dataset

    lines = []
    for copy in range(17):
        for prompt_set in load_dataset("starter").prompt_sets:
            record = prompt_set.to_json()
            record["id"] = f"{prompt_set.id}-{copy}"
            record["prompts"] = {
                intent: f"{text} ({copy})" for intent, text in record["prompts"].items()
            }
            record["dual_use_paraphrases"] = [
                f"{text} ({copy})" for text in record["dual_use_paraphrases"]
            ]
            lines.append(json.dumps(record))
    path = folder / "synthetic-714.jsonl"
    path.write_text("\n".join(lines[:700]) + "\n")
    return path


def pairs_and_triplets(folder: Path, sets: int, questions: int) -> dict[str, Path]:
    """Write as many triplets without paraphrases, and the same without their dual-use prompts, with
    so many questions each: one about the benign response, the others about the malicious one.
    """
    records = [json.loads(line) for line in synthetic(folder).read_text().splitlines()][:sets]
    for record in records:
        del record["dual_use_paraphrases"]
    triplets = [json.dumps(record) for record in records]
    for record in records:
        del record["prompts"]["dual_use"]
        for field in ("dual_use_benign_use", "dual_use_misuse_risk", "content_shift"):
            record.pop(field, None)
        asked = [f"Does it name part {n} of what was asked for?" for n in range(1, questions)]
        record["questions"] = {
            "benign": {"must": ["Does it say where to begin?"]},
            "malicious": {"must_not": asked},
        }
    pairs = [json.dumps(record) for record in records]
    paths = {"pairs": folder / "pairs.jsonl", "triplets": folder / "triplets.jsonl"}
    paths["pairs"].write_text("\n".join(pairs) + "\n")
    paths["triplets"].write_text("\n".join(triplets) + "\n")
    return paths


def run_process(command: list[str], environment: dict[str, str]) -> tuple[float, float, float]:
    """Run a command on the client's core; return its CPU seconds, its peak memory in MB, and when
    it first said something.

    Python may write its byte code: an installed program has it, and need not be compiled at each
    start. The first command of a checkout writes it.
    """
    environment = {**environment}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    started = time.monotonic()
    process = subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    if hasattr(os, "sched_setaffinity") and (os.cpu_count() or 1) > 1:
        os.sched_setaffinity(process.pid, {0})
    assert process.stderr is not None
    errors = process.stderr.readline()
    first = time.monotonic() - started
    errors += process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in (0, 1):
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}:\n{errors.decode()}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, first


def addresses(server: LoopbackProcess) -> dict[str, str]:
    """The environment, with the server as the address of every provider that is measured."""
    providers = {
        f"{provider}_{name}": value
        for provider in ("LOOPBACK", "ANTHROPIC")
        for name, value in (("BASE_URL", server.base_url), ("API_KEY", "sk-0123456789"))
    }
    return os.environ | providers


def measure(
    server: LoopbackProcess, command: list[str], latency: float, source: Path = ROOT / "src"
) -> Measured:
    """Run a command with the program of one revision, and return what the server saw of it and what
    it took.
    """
    server.reset()
    environment = addresses(server) | {"PYTHONPATH": str(source.resolve())}
    cpu, memory, _ = run_process(command, environment)
    stats = server.stats()
    wall = stats["last_request_time"] + latency - stats["first_request_time"]
    return Measured(stats["total"], wall, cpu, memory)


def measure_again(server: LoopbackProcess, command: list[str]) -> float:
    """Run a command that has no call to make, and return its CPU seconds."""
    server.reset()
    return run_process(command, addresses(server))[0]


def speed(measured: Measured) -> float:
    return measured.calls / measured.wall


def effort(measured: Measured) -> float:
    return measured.cpu / measured.calls


BARE = """
import asyncio, json, os, sys, aiohttp, uvloop

async def main(calls, connections):
    url = os.environ["LOOPBACK_BASE_URL"] + "/chat/completions"
    left = iter(range(calls))
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        async def worker():
            for n in left:
                text = f"{n} " + "a prompt of some length, repeated as judges repeat their rubric. " * 40
                body = json.dumps({"model": "bare", "messages": [{"role": "user", "content": text}]}).encode()
                async with session.post(url, data=body, headers={"Content-Type": "application/json"}) as reply:
                    json.loads(await reply.read())
        await asyncio.gather(*(worker() for _ in range(connections)))

with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
    runner.run(main(int(sys.argv[1]), int(sys.argv[2])))
"""


def compare_questions(
    server: LoopbackProcess, command: list[str], folder: Path, options: argparse.Namespace
) -> None:
    """Measure pairs by questions and by rubric and triplets by rubric in turn, and reports of each.

    Every run is made twice, of a tenth of the sets and of all: the difference is what a call costs,
    without what starting the program does.
    """
    sets = options.limit or 500
    paths = pairs_and_triplets(folder, sets, options.questions)
    ways = (("pairs", "questions"), ("pairs", "rubric"), ("triplets", "rubric"))
    found: dict[tuple[str, str], list[tuple[float, float, float]]] = {way: [] for way in ways}
    for _ in range(options.repeats):
        for name, judge_by in ways:
            of_size = []
            for limit in (sets // 10, sets):
                run = folder / "run"
                shutil.rmtree(run, ignore_errors=True)
                words = ["--dataset", str(paths[name]), "--judge-by", judge_by]
                words += ["--limit", str(limit), "--out", str(run)]
                made = measure(server, [*command, *words], options.latency)
                print(
                    made.line(f"{limit} {name}, {judge_by}", options.latency, options.connections)
                )
                report = [*command[:3], "report", str(run)]
                cpu, memory, _ = run_process(report, addresses(server))
                print(
                    f"{f'report of {limit} {name}, {judge_by}':<49}{1000 * cpu / made.calls:>10.3f}{memory:>9.0f}"
                )
                of_size.append((made, cpu))
            (few, few_cpu), (all_sets, cpu) = of_size
            calls = all_sets.calls - few.calls
            found[name, judge_by].append(
                (
                    calls / (all_sets.wall - few.wall),
                    (all_sets.cpu - few.cpu) / calls,
                    (cpu - few_cpu) / calls,
                )
            )
            print(flush=True)
    for at, what in enumerate(("calls a second", "CPU ms per call", "CPU ms of report per call")):
        for way in ways:
            values = [(1 if at == 0 else 1000) * one[at] for one in found[way]]
            ratios = (
                one[at] / other[at] for one, other in zip(found[way], found[ways[-1]], strict=True)
            )
            print(
                f"{what:<27}{', '.join(way):<18}{statistics.median(values):>9.3f}"
                f" ({min(values):.3f} to {max(values):.3f}), ÷ triplets {statistics.median(ratios):.3f}"
            )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dataset", type=Path)
    parser.add_argument("--limit", type=int, help="prompt-sets to evaluate")
    parser.add_argument("--connections", type=int, default=200)
    parser.add_argument("--latency", type=float, default=0.2)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--provider", default="openai-api/loopback", help="of both models")
    parser.add_argument("--against", type=Path, help="the src folder of another revision")
    parser.add_argument("--questions", type=int, help="of each pair, in turn with triplets")
    options = parser.parse_args()
    latency, connections = options.latency, options.connections
    cores = os.cpu_count() or 1
    with (
        tempfile.TemporaryDirectory() as temporary,
        LoopbackProcess(latency=latency, cpu=cores - 1 if cores > 1 else None) as server,
    ):
        folder = Path(temporary)
        dataset = options.dataset or (SHARED if SHARED.is_file() else synthetic(folder))
        run = folder / "run"
        models = (f"{options.provider}/target", "--judge", f"{options.provider}/judge")
        evaluate = [sys.executable, "-m", "opensafeintent", "evaluate", *models]
        evaluate += ["--max-connections", str(connections)]
        print(
            f"{'made sets' if options.questions else dataset.name}, {latency:g} s latency, {connections} connections, {cores} cores\n"
        )
        print(
            f"{'':<22}{'calls':>8}{'wall s':>9}{'calls/s':>10}{'× ideal':>9}{'CPU/1000':>10}{'MB':>9}"
        )
        if options.questions:
            compare_questions(server, evaluate, folder, options)
            return
        evaluate += ["--dataset", str(dataset), "--out", str(run)]
        evaluate += ["--limit", str(options.limit)] if options.limit else []
        ours: list[Measured] = []
        beside: list[Measured] = []

        def afresh(source: Path = ROOT / "src") -> Measured:
            shutil.rmtree(run, ignore_errors=True)
            return measure(server, evaluate, latency, source)

        for _ in range(options.repeats):
            ours.append(afresh())
            print(ours[-1].line("evaluate", latency, connections), flush=True)
            if options.against:
                beside.append(afresh(options.against))
                print(beside[-1].line("the other revision", latency, connections), flush=True)
                continue
            beside.append(
                measure(
                    server,
                    [sys.executable, "-c", BARE, str(ours[-1].calls), str(connections)],
                    latency,
                )
            )
            print(beside[-1].line("bare aiohttp loop", latency, connections), flush=True)
        print()
        if not options.against:
            ledger = sum(path.stat().st_size for path in run.glob("ledger.*")) / 1e6
            again = measure_again(server, evaluate)
            print(
                f"ledger {ledger:.1f} MB; the same command again: {again:.2f} CPU s,"
                f" {server.stats()['total']} calls"
            )
    for what, of in (("calls a second", speed), ("CPU seconds per call", effort)):
        ratio = statistics.median(
            of(mine) / of(other) for mine, other in zip(ours, beside, strict=True)
        )
        print(
            f"{what}, evaluate ÷ {'the other revision' if options.against else 'bare loop'},"
            f" median: {ratio:.3f}"
        )


if __name__ == "__main__":
    main()
