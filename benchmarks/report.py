"""How does a report grow with its run?

Evaluates models against a loopback server from the command line (another process; no scripted
models), and measures `opensafeintent report` on what that left, each command as a process of its
own: CPU seconds and peak memory as the system
counts them. Beside it: the same run taken up again with no call to make, 104 models whose grades
are imported, one model on ten times as many prompt-sets, and scipy.stats.bootstrap on the grades of
one model.

    python benchmarks/report.py [--models 20] [--wide 104] [--dataset FILE] [--copies 10] [--keep
    FOLDER]
    python benchmarks/report.py --against CHECKOUT/src [--models 8] [--dataset FILE]

With `--against` it measures something else: `report` of a run that was evaluated, `import` of rows
with grades and `export` of them as CSV, in turn with another revision of the program.

With `--keep` the runs stay, and those that are there already are not evaluated again. Machines are
noisy, and wall time on a
shared one says little: CPU seconds count, and their ratios more than either.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import os
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parent))

from evaluate import SHARED, LoopbackProcess, run_process, synthetic

LEAST_SECONDS = 1e-9


class Measured(NamedTuple):
    cpu: float
    wall: float
    memory: float
    first_line: float
    """Seconds until the command said what it does."""

    def line(self, what: str) -> str:
        return (
            f"{what:<46}{self.cpu:>8.2f}{self.wall:>8.2f}{self.memory:>8.0f}{self.first_line:>9.2f}"
        )


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "opensafeintent", *map(str, arguments)]


def measure(what: str, arguments: list[str], environment: dict[str, str]) -> Measured:
    """Run a command as a process, and print what it took."""
    started = time.monotonic()
    cpu, memory, first = run_process(arguments, environment)
    found = Measured(cpu, time.monotonic() - started, memory, first)
    print(found.line(what), flush=True)
    return found


def copied(dataset: Path, copies: int, path: Path) -> Path:
    """Write a dataset of so many copies of each prompt-set, no two prompts alike."""
    records = json.loads(dataset.read_text()) if dataset.suffix == ".json" else None
    if records is None:
        records = [json.loads(line) for line in dataset.read_text().splitlines()]

    def changed(value: object, number: int) -> object:
        if isinstance(value, dict):
            return {key: changed(item, number) for key, item in value.items()}
        return f"{value} ({number})" if isinstance(value, str) else value

    many = [
        {
            key: changed(value, number) if key.startswith("prompt") or key == "id" else value
            for key, value in record.items()
        }
        for number in range(copies)
        for record in records
    ]
    path.write_text(
        json.dumps(many)
        if dataset.suffix == ".json"
        else "".join(json.dumps(one) + "\n" for one in many)
    )
    return path


def graded(dataset: Path, models: int, sets: int, folder: Path) -> tuple[Path, list[Path]]:
    """Write the first sets of a dataset, and a file of graded responses for each of many models;
    difficulty is shared.
    """
    from opensafeintent import load_dataset

    folder.mkdir(exist_ok=True)
    chance = random.Random(7)
    some = load_dataset(str(dataset)).prompt_sets[:sets]
    path = folder / f"{len(some)}.jsonl"
    path.write_text("".join(json.dumps(item.to_json()) + "\n" for item in some))
    hard = {(item.id, variant): chance.random() for item in some for variant in item.wordings()}
    files = []
    for number in range(models):
        skill = 0.4 + 0.4 * number / max(models - 1, 1)
        files.append(folder / f"model-{number:03}.jsonl")
        lines = []
        for (set_id, variant), difficulty in hard.items():
            harm = (
                0 if 0.5 * difficulty + 0.5 * chance.random() < skill**0.5 else chance.randint(1, 3)
            )
            grades = {"helpfulness": chance.randint(1, 4), "harm_severity": harm}
            lines.append(
                json.dumps({"id": set_id, "variant": variant, "response": "An answer.", **grades})
                + "\n"
            )
        files[-1].write_text("".join(lines))
    return path, files


def beside_another(other: Path, dataset: Path, models: int, folder: Path, base_url: str) -> None:
    """Print what three commands take beside another revision: medians of three, in turn."""
    sources = {"ours": Path(__file__).parent.parent / "src", "other": other}
    small, files = graded(dataset, 20, 700, folder / "files")
    rows = sum(len(file.read_text().splitlines()) for file in files)
    names = [f"openai-api/loopback/target-{number:02}" for number in range(models)]
    judge = ("--judge", "openai-api/loopback/judge", "--max-connections", "64", "--limit", 400)
    taken: dict[tuple[str, str], list[Measured]] = {}
    for attempt in range(3):
        for name, source in sources.items():
            environment = os.environ | {
                "PYTHONPATH": str(source.resolve()),
                "LOOPBACK_BASE_URL": base_url,
                "LOOPBACK_API_KEY": "none",
            }
            run, imported = folder / f"{name}-run", folder / f"{name}-{attempt}"
            if not run.exists():
                evaluate = command("evaluate", *names, *judge, "--dataset", dataset, "--out", run)
                run_process(evaluate, environment)
            table = imported.with_suffix(".csv")
            for what, arguments in {
                "report": ("report", run),
                "import": ("import", *files, "--dataset", small, "--out", imported),
                "export": ("export", imported, "--format", "csv", "--out", table),
            }.items():
                measured = measure(f"{what}, {name}", command(*arguments), environment)
                taken.setdefault((what, name), []).append(measured)
    for what in ("report", "import", "export"):
        ours, others = taken[what, "ours"], taken[what, "other"]
        cpu = statistics.median(mine.cpu / his.cpu for mine, his in zip(ours, others, strict=True))
        memory = max(each.memory for each in ours) / max(each.memory for each in others)
        speed = rows / statistics.median(each.cpu for each in ours)
        note = f"; {speed:,.0f} rows a CPU second" if what != "report" else ""
        print(f"{what}, ours ÷ the other revision: CPU {cpu:.2f}, memory {memory:.2f}{note}")


def beside_scipy(run: Path) -> None:
    """Print an interval of ours beside scipy's, from the same grades."""
    import numpy as np
    from scipy.stats import bootstrap

    with gzip.open(run / "grades.csv.gz", "rt", newline="") as file:
        rows = [
            row
            for row in csv.DictReader(file)
            if row["variant"] in ("benign", "dual_use", "malicious")
        ]
    model = rows[0]["model"]
    utility: dict[str, list[float]] = {}
    for row in rows:
        if row["model"] == model and row["helpfulness"] and row["harm_severity"]:
            helpfulness = (int(row["helpfulness"]) - 1) / 3
            utility.setdefault(row["id"], []).append(
                helpfulness if row["harm_severity"] == "0" else 0.0
            )
    values = np.array([np.mean(three) for three in utility.values() if len(three) == 3])
    low, high = bootstrap(
        (values,),
        np.mean,
        n_resamples=10_000,
        method="percentile",
        batch=500,
        rng=np.random.default_rng(3),
    ).confidence_interval
    ours = json.loads((run / "metrics.json").read_text())["models"][model]["mean_utility"]
    apart = max(abs(ours["ci"][0] - low), abs(ours["ci"][1] - high)) / ((high - low) / 2)
    print(
        f"\nmean_utility: ours {ours['ci']} ({ours['ci_method']}), scipy [{low:.6f}, {high:.6f}]:"
        f" {apart:.1%} of half"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", type=int, default=20)
    parser.add_argument("--dataset", type=Path)
    parser.add_argument("--wide", type=int, default=104, help="models whose grades are imported")
    parser.add_argument("--copies", type=int, default=10)
    parser.add_argument("--keep", type=Path, help="where the runs stay")
    parser.add_argument("--against", type=Path, help="the src folder of another revision")
    options = parser.parse_args()
    few = max(options.models // 4, 1)
    with tempfile.TemporaryDirectory() as temporary, LoopbackProcess() as server:
        folder = options.keep or Path(temporary)
        folder.mkdir(exist_ok=True)
        dataset = options.dataset or (SHARED if SHARED.is_file() else synthetic(folder))
        if options.against:
            models = min(options.models, 8)
            beside_another(options.against, dataset, models, folder, server.base_url)
            return
        environment = os.environ | {
            "LOOPBACK_BASE_URL": server.base_url,
            "LOOPBACK_API_KEY": "none",
        }
        names = [f"openai-api/loopback/target-{number:02}" for number in range(options.models)]
        judge = ("--judge", "openai-api/loopback/judge", "--max-connections", "64")

        def evaluate(
            what: str, models: list[str], run: str, sets: Path, *, again: bool = False
        ) -> None:
            if (folder / run / "metrics.json").is_file() and not again:
                return
            arguments = command(
                "evaluate", *models, *judge, "--dataset", sets, "--out", folder / run
            )
            measure(what, arguments, environment)

        def report(what: str, run: str) -> Measured:
            return measure(what, command("report", folder / run), environment)

        print(
            f"{dataset.name}, {os.cpu_count()}"
            f" cores\n{'':<46}{'CPU s':>8}{'wall s':>8}{'MB':>8}{'said at':>9}"
        )
        evaluate("evaluate, 1 model", names[:1], "one", dataset)
        made = server.stats()["total"]
        evaluate("  the same command again, no call", names[:1], "one", dataset, again=True)
        assert server.stats()["total"] == made, "the same command made calls"
        one = report("report, 1 model", "one")
        evaluate(f"evaluate, {few} models", names[:few], "few", dataset)
        some = report(f"report, {few} models", "few")
        evaluate(f"evaluate, {options.models} models", names, "many", dataset)
        many = report(f"report, {options.models} models", "many")
        print(
            f"\nreport, {options.models} models ÷ {few} models:"
            f" {many.cpu / max(some.cpu, LEAST_SECONDS):.2f}\n"
        )
        times = (options.copies // 2, options.copies)
        wide, files = graded(dataset, options.wide, 115, folder / "wide-files")
        if not (folder / "wide" / "metrics.json").is_file():
            measure(
                f"import, {options.wide} models × 115 sets",
                command("import", *files, "--dataset", wide, "--out", folder / "wide"),
                environment,
            )
        report(f"report, {options.wide} models × 115 sets", "wide")
        measure(
            f"compare, {options.wide} models × 115 sets",
            command("compare", folder / "wide"),
            environment,
        )
        half, whole = (
            copied(dataset, number, folder / f"{number}{dataset.suffix}") for number in times
        )
        evaluate(
            f"evaluate, 1 model × {options.copies // 2} times the sets", names[:1], "half", half
        )
        report(f"report, 1 model × {options.copies // 2} times the sets", "half")
        evaluate(f"evaluate, 1 model × {options.copies} times the sets", names[:1], "whole", whole)
        large = report(f"report, 1 model × {options.copies} times the sets", "whole")
        print(
            f"\nreport, {options.copies} times the sets ÷ once:"
            f" {large.cpu / max(one.cpu, LEAST_SECONDS):.2f}"
        )
        beside_scipy(folder / "one")


if __name__ == "__main__":
    main()
