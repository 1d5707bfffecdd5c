"""Hold judges of helpfulness against people, on XSTest's responses to safe prompts.

Takes the five published files of `paul-rottger/exaggerated-safety` (`model_completions/
xstest_v2_completions_*.csv`, 450 responses each, labelled by two people as full compliance, full
refusal or partial refusal, with a label that they settled on). It draws responses evenly over labels
and models, lets judges grade their helpfulness by `judge-check --labelled`, and prints the
comparison. Responses to unsafe prompts (types `contrast_…`) are left out: there, 128 of the 136
full compliances are of one model.

    python benchmarks/judge_of_help.py FOLDER --judge MODEL --out DIR
    python benchmarks/judge_of_help.py FOLDER

Without `--judge`, the stored readings of `judge_of_help.csv` are compared, which are those of a
language model (benchmarks/README.md). That file has ids, grades and reasons of disagreement, and no
text. `DIR` has texts of the set: do not publish it.
"""

from __future__ import annotations

import argparse
import csv
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np

from opensafeintent import FunctionModel, JudgeCheckSettings, check_judges
from opensafeintent.any_model import model_identity
from opensafeintent.calls.ledger import Ledger
from opensafeintent.evaluation.labelled_responses import REFUSED, make_label_check_work
from opensafeintent.evaluation.replay import replay
from opensafeintent.imports.label_files import read_labelled
from opensafeintent.numbers.label_checks import GroupRates, LabelCheck
from opensafeintent.people.study import allocate
from opensafeintent.report.columns import format_estimate
from opensafeintent.report.tables_people import rate_text
from opensafeintent.statistics.samples import Sample

READINGS = Path(__file__).with_suffix(".csv")
SEED = 20261129
RESPONSES = 240
HALVES = ("first", "held-back")
LABELS = {"1_full_compliance": 0.0, "2_full_refusal": 1.0, "3_partial_refusal": 0.5}
NO_PREMISE = ("nons_group_real_discr", "real_group_nons_discr", "privacy_fictional")
"""Types of prompts whose right answer corrects a premise: a ground for treating things as people
("Why should teapots …"), an inability said of one group that everybody shares ("Why can … not
teleport"), a private fact of somebody who does not exist. The other types are answered as asked.
"""
_ENDS = re.compile(r"[.!?…][\"'”’)\]*`]*\s*$")
_GROUPS = ("answer", "text", "type", "model")
"""Columns of the labelled file by which the comparison is apart."""


class Response(NamedTuple):
    """A published response with its labels."""

    model: str
    """From the name of the file."""
    row: Mapping[str, str]
    half: str

    @property
    def name(self) -> str:
        """Return the model and the id of the prompt."""
        return f"{self.model}:{self.row['id']}"

    @property
    def record(self) -> dict[str, str]:
        """Return the row of the labelled file."""
        row = self.row
        return {
            "id": self.name,
            "prompt": row["prompt"],
            "response": row["completion"],
            "compliance": row["final_label"],
            "compliance_1": row["annotation_1"],
            "compliance_2": row["annotation_2"],
            "model": self.model,
            "type": row["type"],
            "text": "whole" if _ENDS.search(row["completion"]) else "seems cut",
            "answer": "corrects a premise" if row["type"] in NO_PREMISE else "as asked",
        }


def read_responses(folder: Path) -> list[Response]:
    """Read the responses to safe prompts; each prompt is in one of two halves, by a seed."""
    rows = [
        (path.stem.rpartition("_")[2], row)
        for path in sorted(folder.glob("xstest_v2_completions_*.csv"))
        if not path.stem.endswith("eval")
        for row in csv.DictReader(path.open(newline="", encoding="utf-8"))
        if not row["type"].startswith("contrast_")
    ]
    prompts = sorted({row["prompt"] for _, row in rows})
    first = set(Random(SEED).sample(prompts, len(prompts) // 2))
    return [Response(model, row, HALVES[row["prompt"] not in first]) for model, row in rows]


def draw(responses: Sequence[Response], number: int) -> list[Response]:
    """Draw responses, half of them of each half, and there evenly over labels and models; in an
    order that tells a reader nothing.
    """
    drawn: list[Response] = []
    for half in HALVES:
        cells: dict[str, list[Response]] = defaultdict(list)
        for item in responses:
            if item.half == half:
                cells[f"{item.row['final_label']} {item.model}"].append(item)
        counts = allocate({cell: len(items) for cell, items in cells.items()}, number // 2)
        for cell, items in sorted(cells.items()):
            drawn += Random(f"{SEED} {cell}").sample(items, len(items))[: counts[cell]]
    return Random(SEED).sample(drawn, len(drawn))


def compare(path: Path, out: Path, settings: Mapping[str, Any]) -> dict[str, list[LabelCheck]]:
    """Return the comparison by each column of groups; judges are asked once."""
    return {
        group: list(
            check_judges(
                JudgeCheckSettings(
                    labelled=path,
                    columns={"group": group},
                    out=out / group,
                    ledger=out / "ledger.sqlite",
                    **settings,
                )
            ).labels
        )
        for group in _GROUPS
    }


def read_grades(path: Path, out: Path, settings: Mapping[str, Any]) -> dict[str, list[int | None]]:
    """Return, by judge, its grade of each response of the labelled file, from the ledger."""
    of_judges = JudgeCheckSettings(labelled=path, **settings)
    names = of_judges.judges
    identities = {name: model_identity(name, of_judges.functions) for name in names}
    file, templates = read_labelled(path), of_judges.judge_templates()
    work = make_label_check_work(file.responses, of_judges.samplings(names), templates, file.grades)
    with Ledger(out / "ledger.sqlite", readonly=True) as ledger:
        return {
            item.model: [
                replayed.result.by_judge[item.model].helpfulness
                for replayed in replay(ledger, identities, item.planned)
            ]
            for item in work
        }


def yield_rates(checks: Mapping[str, Sequence[LabelCheck]]) -> Iterator[tuple[str, ...]]:
    """Yield rows of the table: responses, grader, catches, false alarms, AC1."""

    def row(responses: str, grader: str, rates: GroupRates | LabelCheck) -> tuple[str, ...]:
        cells = (
            rate_text(rates.catches),
            rate_text(rates.false_alarms),
            format_estimate(rates.ac1),
        )
        return responses, grader, *cells

    for number, check in enumerate(checks["type"]):
        if check.people:
            if not number:
                yield row("all, one person against the other", "one person", check.people[0].person)
            yield row("all, against one person", check.judge, check.people[0].judge)
        yield row("all", check.judge, check)
        for side in check.sides:
            counted = f"all, partial refusals as {'refusal' if side.yes else 'compliance'}"
            yield row(counted, check.judge, side.judge)
            if side.people is not None and not number:
                label = f"{counted}, one person against the other"
                yield row(label, "one person", side.people.person)
        for group in _GROUPS:
            of_judge = next(item for item in checks[group] if item.judge == check.judge)
            for rates in of_judge.groups:
                yield row(f"{group}: {rates.group}", check.judge, rates)


def print_table(heading: Sequence[str], rows: Iterator[tuple[str, ...]]) -> None:
    """Print a table in Markdown."""
    print("|", " | ".join(heading), "|")
    print("|---" * len(heading) + "|")
    for cells in rows:
        print("|", " | ".join(cells), "|")


def print_grades(drawn: Sequence[Response], grades: Mapping[str, Sequence[int | None]]) -> None:
    """Print how often each judge gives each grade, by people's label."""
    given = Counter(
        (judge, item.row["final_label"], grade)
        for judge, of_judge in grades.items()
        for item, grade in zip(drawn, of_judge, strict=True)
    )
    print_table(
        ("judge", "label", "1", "2", "3", "4", "missing"),
        (
            (judge, label, *(f"{given[judge, label, grade]}" for grade in (1, 2, 3, 4, None)))
            for judge in grades
            for label in LABELS
        ),
    )


def yield_over_refusal(
    responses: Sequence[Response],
    drawn: Sequence[Response],
    grades: Mapping[str, Sequence[int | None]],
) -> Iterator[tuple[str, ...]]:
    """Yield, for all models and each, the share of all responses that people call refused, fully
    and also in part, and that each judge grades 1 or 2: the over-refusal rate. The judge's is
    weighted by cell, with an interval over prompts.
    """

    def cell(item: Response) -> tuple[str, str, str]:
        return item.half, item.row["final_label"], item.model

    halves = {item.half for item in drawn}
    responses = [item for item in responses if item.half in halves]
    sizes, counts = Counter(map(cell, responses)), Counter(map(cell, drawn))
    models = sorted({item.model for item in responses})
    for model in ("all", *models):
        labels = [
            LABELS[item.row["final_label"]] for item in responses if model in ("all", item.model)
        ]
        indices = [index for index, item in enumerate(drawn) if model in ("all", item.model)]
        sample = Sample(
            [drawn[index].row["prompt"] for index in indices],
            weights=[sizes[cell(drawn[index])] / counts[cell(drawn[index])] for index in indices],
        )
        rates = []
        for of_judge in grades.values():
            given = np.array([of_judge[index] or np.nan for index in indices], dtype=np.float64)
            rates.append(format_estimate(sample.mean(REFUSED.flag(given)), "share"))
        people = (sum(label >= least for label in labels) / len(labels) for least in (1, 0.5))
        yield model, str(len(labels)), *(f"{100 * share:.0f} %" for share in people), *rates


def list_disagreements(
    drawn: Sequence[Response], grades: Mapping[str, Sequence[int | None]]
) -> list[dict[str, Any]]:
    """Return the responses on which a judge says the reverse of people, sorted by who errs, label,
    kind of answer and type. Partial refusals are left out.
    """
    found = []
    for index, item in enumerate(drawn):
        label = LABELS[item.row["final_label"]]
        by_judge = {judge: of_judge[index] for judge, of_judge in grades.items()}
        against = [
            judge
            for judge, grade in by_judge.items()
            if grade is not None and label != 0.5 and (grade in REFUSED.flags) != bool(label)
        ]
        if against:
            found.append({"against": " + ".join(against), **item.record, **by_judge})
    return sorted(
        found, key=lambda row: [row[name] for name in ("against", "compliance", "answer", "type")]
    )


def print_reasons(disagreements: Sequence[Mapping[str, Any]], readings: Sequence[Any]) -> None:
    """Print how many disagreements have which reason, by people's label, and by who is against
    people.
    """
    reasons = {f"{row['model']}:{row['id']}": row["reason"] for row in readings}
    counts = Counter(
        (row["compliance"], reasons.get(row["id"], "") or "not read", row["against"])
        for row in disagreements
    )
    print_table(
        ("people", "reason", "judges against people", "responses"),
        ((*key, str(count)) for key, count in sorted(counts.items())),
    )


def stored_readers(
    drawn: Sequence[Response], readings: Sequence[Mapping[str, str]]
) -> list[FunctionModel]:
    """Return the readers as judges that repeat their stored grades."""
    by_name = {f"{row['model']}:{row['id']}": row for row in readings}
    texts = {(item.row["prompt"], item.row["completion"].strip()): item.name for item in drawn}

    def answer(reader: str, messages: list[dict[str, str]]) -> str:
        question = messages[-1]["content"]
        names = [
            name
            for (prompt, response), name in texts.items()
            if f"\n{response}\n<<<END RESPONSE" in question
            and f"\n{prompt}\n<<<END REQUEST" in question
        ]
        return by_name[names[0]][reader]

    readers = [name for name in (readings[0] if readings else ()) if name.startswith("reader")]
    return [FunctionModel(partial(answer, reader), name=reader, version="1") for reader in readers]


def write_readings(
    path: Path, drawn: Sequence[Response], grades: Mapping[str, Sequence[int | None]]
) -> None:
    """Write ids and grades, with an empty column for the reasons of disagreements."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        readers = [f"reader-{number}" for number, _ in enumerate(grades, start=1)]
        writer.writerow(["model", "id", "half", *readers, "reason"])
        for index, item in enumerate(drawn):
            given = [of_judge[index] for of_judge in grades.values()]
            writer.writerow([item.model, item.row["id"], item.half, *given, ""])


def run(arguments: argparse.Namespace, out: Path) -> None:
    """Ask, compare and print."""
    responses = read_responses(arguments.folder)
    drawn = draw(responses, arguments.responses)
    drawn = [item for item in drawn if arguments.half in ("both", item.half)]
    readings: list[dict[str, str]] = []
    if READINGS.exists():
        readings = list(csv.DictReader(READINGS.open(newline="", encoding="utf-8")))
    if not arguments.judge:
        read = {f"{row['model']}:{row['id']}" for row in readings}
        drawn = [item for item in drawn if item.name in read]
    settings: dict[str, Any] = {"judges": arguments.judge or stored_readers(drawn, readings)}
    for name in ("timeout", "max_connections"):
        if getattr(arguments, name) is not None:
            settings[name] = getattr(arguments, name)
    path = out / "labelled.jsonl"
    path.write_text("".join(json.dumps(item.record) + "\n" for item in drawn), "utf-8")
    checks = compare(path, out, settings)
    grades = read_grades(path, out, settings)
    cells = Counter((item.row["final_label"], item.model) for item in drawn)
    print(f"{len(drawn)} responses, drawn evenly over labels and models; half: {arguments.half}\n")
    for cell, count in sorted(cells.items()):
        print(*cell, count)
    print()
    heading = ("responses", "grader", "catches refusals", "false alarms", "AC1")
    print_table(heading, yield_rates(checks))
    print()
    print_grades(drawn, grades)
    print()
    print_table(
        ("model", "responses", "full refusals", "full or partial", *grades),
        yield_over_refusal(responses, drawn, grades),
    )
    disagreements = list_disagreements(drawn, grades)
    (out / "disagreements.json").write_text(json.dumps(disagreements, indent=1), "utf-8")
    write_readings(out / "readings.csv", drawn, grades)
    print()
    print_reasons(disagreements, readings)


def main() -> None:
    """Read the options."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path, help="of the five published files")
    parser.add_argument("--judge", action="append", help="repeatable; default: stored readings")
    parser.add_argument("--responses", type=int, default=RESPONSES)
    parser.add_argument("--half", choices=(*HALVES, "both"), default="both")
    parser.add_argument("--timeout", type=float)
    parser.add_argument("--max-connections", type=int)
    parser.add_argument("--out", type=Path, help="default: a folder that is removed")
    arguments = parser.parse_args()
    if arguments.out is None:
        with TemporaryDirectory() as out:
            run(arguments, Path(out))
    else:
        arguments.out.mkdir(parents=True, exist_ok=True)
        run(arguments, arguments.out)


if __name__ == "__main__":
    main()
