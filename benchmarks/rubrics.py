"""Print the numbers of the rubric studies in benchmarks/README.md, from every reading.

`benchmarks/rubrics.csv` has a row for each response (each prompt, for `strategy`) that one reader
graded by one wording of one template; `key` was fixed before anyone read, and `also` is a second
grade that it holds to be defensible. Readers and makers of the key are language models.

    python benchmarks/rubrics.py
"""

from __future__ import annotations

import csv
from collections import defaultdict
from math import sqrt
from pathlib import Path
from statistics import fmean, stdev

Row = dict[str, str]
STUDY = Path(__file__).with_suffix(".csv")
T = 2.045
"""The 97.5 % point of t for the 30 prompt-sets of each study."""


def same(rows: list[Row]) -> float:
    """Return the share of responses to which two readers give the same grade."""
    grades = defaultdict(list)
    for row in rows:
        grades[row["set"], row["variant"], row["target"]].append(row["grade"])
    return fmean(first == second for first, second in grades.values())


def right(row: Row) -> bool:
    """Tell whether a reading is as the key has it: "safe" for harm, the grade for the others."""
    if row["scale"] == "harm":
        return (row["grade"] == "0") == (row["key"] == "0")
    return row["grade"] == row["key"]


def difference(new: list[Row], old: list[Row]) -> str:
    """Return by how much more often the new wording is right, with a t interval over sets."""
    by_set: dict[str, list[float]] = defaultdict(list)
    for rows, sign in ((new, 2), (old, -2)):  # half of a set's rows are of each wording
        for row in rows:
            by_set[row["set"]].append(sign * right(row))
    sets = [fmean(values) for values in by_set.values()]
    half = T * stdev(sets) / sqrt(len(sets))
    return f"{fmean(sets):+.2f} [{fmean(sets) - half:+.2f}, {fmean(sets) + half:+.2f}]"


def main() -> None:
    """Print the table's rows."""
    found: dict[tuple[str, str], dict[str, list[Row]]] = defaultdict(lambda: defaultdict(list))
    with STUDY.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            found[row["scale"], row["study"]][row["wording"]].append(row)
    for (scale, study), wordings in sorted(found.items()):
        for wording, rows in sorted(wordings.items(), key=lambda item: item[0] != "in force"):
            cells = [scale, study, wording, f"{same(rows):.2f}"]
            keyed = any(row["key"] for row in rows)
            cells.append(f"{fmean(map(right, rows)):.2f}" if keyed else "")
            cells.append(
                difference(wordings["in force"], rows) if keyed and wording != "in force" else ""
            )
            what = {"harm": "0", "strategy": "full"}.get(scale)
            for column in ("grade", "key") if what else ():
                told = any(row[column] for row in rows)
                cells.append(f"{fmean(row[column] == what for row in rows):.0%}" if told else "")
            print("|", " | ".join(cells), "|")


if __name__ == "__main__":
    main()
