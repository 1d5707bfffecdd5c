"""What does spreading over Ray cost, and what does it bring?

Starts a loopback server (a process of its own), runs `opensafeintent evaluate` against it alone and with `--ray local`, with
the same number of connections in all, and checks that both come to the same `metrics.json`. Prints seconds and calls a second
of each. Then merges the run's ledger into an empty one: rows a second.

    python benchmarks/spread.py [--sets 200] [--connections 200] [--latency 0.2] [--shards 2] [--repeats 3]

Machines are noisy: the median of the repeats counts. On one machine Ray can only lose: what it takes to start is the point.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from endtoend import some_sets  # noqa: E402
from loopback import LoopbackProcess  # noqa: E402


def run(server: LoopbackProcess, dataset: Path, out: Path, connections: int, *more: object) -> tuple[float, int]:
    """Evaluate into a new folder; return seconds and calls."""
    shutil.rmtree(out, ignore_errors=True)
    server.reset()
    command = [sys.executable, "-m", "opensafeintent", "evaluate", "openai-api/loopback/target"]
    command += ["--judge", "openai-api/loopback/judge", "--dataset", dataset, "--out", out, "--max-connections", connections]
    environment = os.environ | {"LOOPBACK_BASE_URL": server.base_url, "LOOPBACK_API_KEY": "none"}
    began = time.monotonic()
    subprocess.run([*map(str, command), *map(str, more)], env=environment, check=True, capture_output=True)
    return time.monotonic() - began, int(server.stats()["total"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", type=int, default=200)
    parser.add_argument("--connections", type=int, default=200)
    parser.add_argument("--latency", type=float, default=0.2)
    parser.add_argument("--shards", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    ways: dict[str, tuple[object, ...]] = {"alone": (), "--ray local": ("--ray", "local", "--shards", args.shards)}
    times: dict[str, list[float]] = {way: [] for way in ways}
    with tempfile.TemporaryDirectory() as name, LoopbackProcess(latency=args.latency) as server:
        folder = Path(name)
        dataset = some_sets(folder, args.sets)
        calls = 0
        for _ in range(args.repeats):
            for way, options in ways.items():
                seconds, calls = run(server, dataset, folder / way, args.connections, *options)
                times[way].append(seconds)
        first, second = ((folder / way / "metrics.json").read_bytes() for way in ways)
        assert first == second, "the two runs differ"
        print(f"{calls:,} calls, {args.connections} connections, {1000 * args.latency:.0f} ms; medians of {args.repeats}")
        for way in ways:
            median = statistics.median(times[way])
            print(f"{way:<14}{median:>8.2f} s{calls / median:>8,.0f} calls/s")
        from opensafeintent.calls.shards import merge_ledger

        began = time.process_time()
        added = merge_ledger(folder / "merged.sqlite", folder / "alone" / "ledger.sqlite")
        print(f"merging: {added.rows / (time.process_time() - began):,.0f} rows per second of CPU")


if __name__ == "__main__":
    main()
