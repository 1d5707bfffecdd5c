"""The fuzz tests, over and over with new seeds until the time is up: `make fuzz`, or this file with
`--minutes 5`.

Each test runs in a process of its own, so that one that hangs or dies takes nothing with it. A
failure is printed with the command that shows it again, and the others go on; the exit code is 1
when anything failed. At the end stands how many examples each reader was given, and how many of
them it read or refused.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
PYTEST = (sys.executable, "-m", "pytest", "-n", "0")
MOST_LINES = 25
"""Of a failure's output; examples are long."""
MOST_SECONDS = 900
"""For one test with one seed."""


def main() -> int:
    """Run until the time is up, and say what was tried."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60, help="how long to go on (default: 60)")
    parser.add_argument("--examples", type=int, default=300, help="of one test (default: 300)")
    parser.add_argument("tests", nargs="*", default=[str(HERE)], help="what to run (default: all)")
    arguments = parser.parse_args()
    until = time.monotonic() + 60 * arguments.minutes
    tests = _collected(arguments.tests)
    counts: Counter[tuple[str, str]] = Counter()
    failed: dict[str, str] = {}
    turns = 0
    with contextlib.suppress(KeyboardInterrupt):  # what was tried until then is told all the same
        while time.monotonic() < until:
            if turns % len(tests) == 0:
                random.shuffle(tests)
            test, seed = tests[turns % len(tests)], random.randrange(2**32)
            turns += 1
            tried, complaint = _run(test, seed, arguments.examples)
            counts += tried
            if complaint:
                prefix = f"FUZZ_EXAMPLES={arguments.examples} {sys.executable}"
                again = f"{prefix} -m pytest -n 0 --hypothesis-seed={seed} '{test}'"
                failed.setdefault(test, again)
                print(f"FAILED {test}\n  again: {again}\n{complaint}\n", flush=True)
    _report(counts, failed, turns)
    return 1 if failed else 0


def _collected(names: list[str]) -> list[str]:
    command = [*PYTEST, "-o", "addopts=", "--collect-only", "-q", *names]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    lines = listed.stdout.splitlines()
    tests = [line for line in lines if "::" in line and "good_before" not in line]
    if not tests:
        sys.exit(f"no tests found:\n{listed.stdout}{listed.stderr}")
    return tests


def _run(test: str, seed: int, examples: int) -> tuple[Counter[tuple[str, str]], str]:
    """Run one test with one seed; return what was tried, and what went wrong, or nothing."""
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        counts = Path(folder) / "counts.json"
        options = (f"--basetemp={folder}/pytest", f"--hypothesis-seed={seed}", test)
        command = [*PYTEST, "-p", "no:cacheprovider", "--tb=short", f"--timeout={MOST_SECONDS}"]
        variables = os.environ | {"FUZZ_EXAMPLES": str(examples), "FUZZ_COUNTS": str(counts)}
        output_options: dict[str, Any] = {"capture_output": True, "text": True, "errors": "replace"}
        limit = 2 * MOST_SECONDS
        try:
            ran = subprocess.run(
                [*command, *options],
                cwd=ROOT,
                env=variables,
                timeout=limit,
                check=False,
                **output_options,
            )
        except subprocess.TimeoutExpired:
            return Counter(), f"  did not end in {limit} seconds"
        counted = json.loads(counts.read_text()) if counts.exists() else []
        tried = Counter({(reader, end): count for reader, end, count in counted})
        if ran.returncode in (0, 5):
            return tried, ""
        telling = re.compile(r"E  |\S+:\d+: in |FAILED|Fatal")
        lines = [line for line in (ran.stdout + ran.stderr).splitlines() if telling.match(line)]
        complaint = "\n".join(f"  {line[:300]}" for line in lines[-MOST_LINES:])
        return tried, complaint or f"  ended with {ran.returncode}"


def _report(counts: Counter[tuple[str, str]], failed: dict[str, str], turns: int) -> None:
    print(f"\n{'reader':50} {'tried':>9} {'read':>9} {'refused':>9}")
    for reader in sorted({reader for reader, _ in counts}):
        read, refused = counts[reader, "read"], counts[reader, "refused"]
        print(f"{reader:50} {read + refused:9,} {read:9,} {refused:9,}")
    print(f"{'together':50} {counts.total():9,} in {turns} runs; tests that failed: {len(failed)}")
    print("\n".join(f"  {again}" for again in failed.values()))


if __name__ == "__main__":
    sys.exit(main())
