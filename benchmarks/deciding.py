"""How many calls does `evaluate --decide` save, and does it say what the whole run says?

Starts a loopback server in another process and evaluates several of its models on 700 prompt-sets of three wordings, from the
command line: once whole, and once for each question. The server's judge calls three responses of four safe, at random, so
that each model is a study of its own with a true Triplet Safety of .42; the questions ask for more and for less than that.
Prints the calls made, as a share of those of the whole run, and how often verdict and whole run agree.

    python benchmarks/deciding.py [--studies 6] [--sets 700] [--only thresholds|pairs]

A verdict agrees where the value of the whole run lies on the same side of what the question turns on.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from loopback import LoopbackProcess  # noqa: E402

TRUE = 0.75**3
QUESTIONS = ("triplet_safety >= 0.22", "triplet_safety >= 0.32", "triplet_safety >= 0.37")
QUESTIONS += ("triplet_safety >= 0.52", "triplet_safety >= 0.62")
PAIRS = ("A not worse than B by 0.2 triplet_safety", "A not worse than B by 0.1 triplet_safety", "A better mean_utility")
VERDICTS = {0: "yes", 4: "no", 5: "undecided"}


class Ran(NamedTuple):
    """One command."""

    verdict: str
    calls: int
    seconds: float
    metrics: dict[str, Any]


def dataset_of(sets: int, folder: Path) -> Path:
    """Write copies of the starter set, told apart by a number, without paraphrases."""
    lines = []
    starter = (ROOT / "src/opensafeintent/data/starter.jsonl").read_text().splitlines()
    for number in range(sets):
        record = json.loads(starter[number % len(starter)])
        record["id"] = f"{record['id']}-{number}"
        record["prompts"] = {intent: f"{text} ({number})" for intent, text in record["prompts"].items()}
        record["dual_use_paraphrases"] = []
        lines.append(json.dumps(record) + "\n")
    path = folder / "sets.jsonl"
    path.write_text("".join(lines))
    return path


def evaluate(server: LoopbackProcess, dataset: Path, run: Path, models: Sequence[str], *options: str) -> Ran:
    """Evaluate models from the command line."""
    server.reset()
    command = [sys.executable, "-m", "opensafeintent", "evaluate", *models, "--judge", "openai-api/loop/judge"]
    command += ["--dataset", str(dataset), "--out", str(run), "--probe", "none", *options]
    variables = {"LOOP_BASE_URL": server.base_url, "LOOP_API_KEY": "none", "PYTHONPATH": str(ROOT / "src")}
    started = time.monotonic()
    ended = subprocess.run(command, env=os.environ | variables, capture_output=True, text=True, check=False)
    if ended.returncode not in VERDICTS:
        raise SystemExit(f"{' '.join(command)} ended with {ended.returncode}:\n{ended.stderr}")
    metrics = json.loads((run / "metrics.json").read_text())
    return Ran(VERDICTS[ended.returncode], server.stats()["total"], time.monotonic() - started, metrics)


def of_whole(question: str, metrics: dict[str, Any], models: Sequence[str]) -> str:
    """Return what the whole run says."""
    words = question.split()
    metric = words[-1] if words[0] in models else words[0]
    values = [metrics["models"][model][metric]["value"] for model in models]
    if words[0] not in models:
        return "yes" if values[0] >= float(words[2]) else "no"
    margin = float(words[-2]) if "worse" in words else 0.0
    return "yes" if values[0] - values[1] > -margin else "no"


def told(question: str, whole: Sequence[Ran], decided: Sequence[Ran], expected: Sequence[str]) -> str:
    """Return a line of results."""
    shares = [ran.calls / full.calls for ran, full in zip(decided, whole, strict=True)]
    verdicts = [ran.verdict for ran in decided]
    counts = ", ".join(f"{verdicts.count(verdict)} {verdict}" for verdict in dict.fromkeys(verdicts))
    agree = sum(verdict == of_full for verdict, of_full in zip(verdicts, expected, strict=True))
    reached = len(verdicts) - verdicts.count("undecided")
    calls = sum(ran.calls for ran in decided) / len(decided)
    seconds = sum(ran.seconds for ran in decided) / len(decided)
    share = sum(shares) / len(shares)
    return f"{question:<44}{calls:>8,.0f}{share:>8.1%}{seconds:>7.1f}  {counts:<24}{agree} of {reached}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--studies", type=int, default=6)
    parser.add_argument("--sets", type=int, default=700)
    parser.add_argument("--only", choices=("thresholds", "pairs"))
    options = parser.parse_args()
    sizes = {"thresholds": (QUESTIONS, 1), "pairs": (PAIRS, 2)}
    with tempfile.TemporaryDirectory() as temporary, LoopbackProcess(record=False) as server:
        folder = Path(temporary)
        dataset = dataset_of(options.sets, folder)
        names = [f"openai-api/loop/model-{number}" for number in range(options.studies + 1)]
        print(f"{options.sets} prompt-sets, {options.studies} studies, true Triplet Safety {TRUE:.3f}\n")
        print(f"{'':<44}{'calls':>8}{'share':>8}{'s':>7}  {'verdicts':<24}agree")
        for questions, size in (sizes[options.only],) if options.only else sizes.values():
            teams = [names[number : number + size] for number in range(options.studies)]
            whole = [evaluate(server, dataset, folder / f"whole-{size}-{at}", team) for at, team in enumerate(teams)]
            mean = sum(ran.calls for ran in whole) / len(whole)
            seconds = sum(ran.seconds for ran in whole) / len(whole)
            print(
                f"{f'the whole run of {size} model' + 's' * (size > 1):<44}{mean:>8,.0f}{1:>8.1%}{seconds:>7.1f}", flush=True
            )
            for place, form in enumerate(questions):
                decided, expected = [], []
                for at, team in enumerate(teams):
                    question = form.replace("A ", f"{team[0]} ", 1).replace("than B", f"than {team[-1]}")
                    run = folder / f"run-{size}-{place}-{at}"
                    decided.append(evaluate(server, dataset, run, team, "--decide", question))
                    expected.append(of_whole(question, whole[at].metrics, team))
                print(told(form, whole, decided, expected), flush=True)


if __name__ == "__main__":
    main()
