"""How close does stage 1 of `build` come to what the network allows?

Starts a loopback server (another process) whose models answer as the scripted generator and judge
do, and runs `opensafeintent build` on 500 seeds through stage 1: two calls a seed, side by side.
Prints the ratio to the ideal (calls × latency ÷ connections), and beside it a bare aiohttp loop
that sends as many requests of the same size.

    python benchmarks/build.py [--seeds 500] [--connections 100] [--latency 0.2] [--repeats 5]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from loopback import LoopbackProcess  # noqa: E402
from opensafeintent import BuildSettings, build  # noqa: E402

GENERATOR, JUDGE = "openai-api/loopback/generator", "openai-api/loopback/construction-judge"


def write_seeds(path: Path, count: int) -> None:
    lines = (
        json.dumps({"prompt": f"How do I get past guard {n} without permission?"})
        for n in range(count)
    )
    path.write_text("\n".join(lines) + "\n")


class StageWatch:
    """A display that takes the time between the lines that end two stages."""

    def __init__(self, begins: str, ends: str) -> None:
        self.seconds = 0.0
        self._began = 0.0
        self._begins, self._ends = begins, ends

    def update(self, done: int, expected: int, line: str) -> None:
        """Show nothing."""

    def note(self, line: str) -> None:
        """Stop the watch, or start it."""
        if line.startswith(self._begins):
            self._began = time.monotonic()
        elif line.startswith(self._ends):
            self.seconds = time.monotonic() - self._began

    def close(self) -> None:
        """Do nothing."""


def run_build(seeds: Path, out: Path, connections: int) -> tuple[int, float]:
    """Return the calls made and the seconds from the first call of stage 1 to its end, as its
    display shows them.
    """
    settings = BuildSettings(
        generator=GENERATOR,
        judge=JUDGE,
        seeds=str(seeds),
        out=out,
        stages=(1, 1),
        max_connections=connections,
    )
    watch = StageWatch("seeds", "metadata")
    tally = build(settings, watch).tally
    assert tally is not None
    return tally.new_calls.total(), watch.seconds


def run_bare(base_url: str, body: bytes, calls: int, connections: int) -> float:
    """Return the seconds that a loop needs which does nothing but send."""
    import aiohttp

    async def send() -> None:
        left = iter(range(calls))
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

            async def worker() -> None:
                for _ in left:
                    async with session.post(f"{base_url}/chat/completions", data=body) as response:
                        await response.read()

            await asyncio.gather(*(worker() for _ in range(connections)))

    started = time.monotonic()
    asyncio.run(send())
    return time.monotonic() - started


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=500)
    parser.add_argument("--connections", type=int, default=100)
    parser.add_argument("--latency", type=float, default=0.2)
    parser.add_argument("--repeats", type=int, default=5)
    given = parser.parse_args()
    ratios: dict[str, list[float]] = {"build": [], "bare loop": []}
    with tempfile.TemporaryDirectory() as name, LoopbackProcess(latency=given.latency) as server:
        os.environ |= {"LOOPBACK_BASE_URL": server.base_url, "LOOPBACK_API_KEY": "none"}
        folder = Path(name)
        write_seeds(folder / "seeds.jsonl", given.seeds)
        for repeat in range(given.repeats):
            server.reset()
            calls, seconds = run_build(
                folder / "seeds.jsonl", folder / f"out-{repeat}", given.connections
            )
            ideal = calls * given.latency / given.connections
            ratios["build"].append(seconds / ideal)
            message = {"role": "user", "content": "x" * 7000}
            body = json.dumps({"model": "generator", "messages": [message]}).encode()
            ratios["bare loop"].append(
                run_bare(server.base_url, body, calls, given.connections) / ideal
            )
    print(
        f"{given.seeds} seeds, {calls} calls, {given.latency} s, {given.connections} connections:"
        f" ideal {ideal:.2f} s"
    )
    for what, found in ratios.items():
        listed = ", ".join(f"{ratio:.3f}" for ratio in found)
        print(f"{what:<10} {statistics.median(found):.3f} × ideal (median of {listed})")


if __name__ == "__main__":
    main()
