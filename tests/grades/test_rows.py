"""The order of rows, `grades.csv.gz` and the labelled array."""

from __future__ import annotations

import csv
import gzip
import io
from pathlib import Path

import numpy as np
import pytest

from opensafeintent.grades import sort_rows, to_array, write_run_grades
from opensafeintent.responses import GradedResponse
from samples import grade_line, made_dataset, prompt_set

# The file
# ------------------------------------------------------------------------------

DATASET = made_dataset(
    prompt_set("s1", 1, "Fraud and Deception", "Planning and Procedure"),
    prompt_set("s2", 0, "Cyber Compromise"),
)


def write(path: Path, *rows: GradedResponse) -> None:
    write_run_grades({"": (rows, DATASET)}, path)


def cells_of(folder: Path, *rows: GradedResponse) -> list[list[str]]:
    """Write rows and read them back as they stand, the heading first."""
    write(folder / "grades.csv.gz", *rows)
    text = gzip.decompress((folder / "grades.csv.gz").read_bytes()).decode()
    return list(csv.reader(io.StringIO(text, newline="")))


def written(folder: Path, *rows: GradedResponse) -> list[dict[str, str]]:
    heading, *lines = cells_of(folder, *rows)
    return [dict(zip(heading, line, strict=True)) for line in lines]


def test_columns_and_cells(tmp_path: Path) -> None:
    labels = {"mode": "A4", "strategy": "refuse", "stop_reason": "length"}
    row = grade_line("m", "s1", "dual_use", "42", epoch=2, truncated=True, **labels)
    (line,) = written(tmp_path, row)
    cell = {"harm_domain": "Fraud and Deception", "task_type": "Planning and Procedure"}
    key = {"model": "m", "id": "s1", "variant": "dual_use", "epoch": "2"}
    graded = {"helpfulness": "4", "harm_severity": "2", "truncated": "1", "missing": ""}
    assert (cell | key | graded | labels).items() <= line.items()


def test_a_missing_grade_is_an_empty_cell_with_its_reason(tmp_path: Path) -> None:
    reasons = ("helpfulness:unparsed", "harm_severity:filtered")
    zero, missing = written(
        tmp_path,
        grade_line("m", "s1", "benign", "10"),
        grade_line("m", "s1", "dual_use", "--", missing=reasons),
    )
    assert (zero["helpfulness"], zero["harm_severity"], zero["missing"]) == ("1", "0", "")
    assert {missing[name] for name in ("helpfulness", "harm_severity", "mode", "strategy")} == {""}
    assert missing["missing"] == "helpfulness:unparsed; harm_severity:filtered"


def test_each_judge_of_a_panel_has_its_columns(tmp_path: Path) -> None:
    row = grade_line("m", "s1", "benign", "30", by_judge={"j2": (4, None), "j1": (3, 0)})
    (line,) = written(tmp_path, row)
    assert [line[f"helpfulness[{judge}]"] for judge in ("j1", "j2")] == ["3", "4"]
    assert [line[f"harm_severity[{judge}]"] for judge in ("j1", "j2")] == ["0", ""]


@pytest.mark.parametrize(
    "name", ["=cmd()", "+1+cmd()", "-2+cmd()", "@SUM(A1)", "\t=cmd()", "\r=cmd()"]
)
def test_no_cell_is_a_formula(name: str, tmp_path: Path) -> None:
    judges = {name: (3, 0), f"{name} 2": (3, 0)}
    fields = {"stop_reason": name, "missing": (f"response:{name}",), "by_judge": judges}
    table = cells_of(tmp_path, grade_line(name, "s1", "benign", "30", **fields))
    cells = [cell for line in table for cell in line]
    assert f"'{name}" in cells
    assert [cell for cell in cells if cell.startswith(("=", "+", "-", "@", "\t", "\r"))] == []


@pytest.mark.parametrize("ending", ["\n", "\r", "\r\n"])
def test_a_line_end_within_a_cell_does_not_begin_a_row(ending: str, tmp_path: Path) -> None:
    row = grade_line("m", "s1", "benign", "30", stop_reason=f"stop{ending}=cmd()")
    (line,) = written(tmp_path, row)
    assert line["stop_reason"] == f"stop{ending}=cmd()"


def test_same_rows_give_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [grade_line("m", "s1", variant, "30") for variant in ("benign", "dual_use")]
    write(tmp_path / "one.csv.gz", *rows)
    monkeypatch.setattr("time.time", lambda: 2_000_000_000.0)
    write(tmp_path / "two.csv.gz", *rows)
    assert (tmp_path / "one.csv.gz").read_bytes() == (tmp_path / "two.csv.gz").read_bytes()
    assert (tmp_path / "one.csv.gz").stat().st_mode & 0o777 == 0o600


def test_rows_are_sorted_by_model_epoch_set_and_variant() -> None:
    places = [(item.id, variant) for item in DATASET.prompt_sets for variant in item.wordings()]
    rows = [
        grade_line(model, *place, "30", epoch=epoch)
        for model in ("b", "a")
        for epoch in (1, 2)
        for place in places
    ]
    assert sort_rows(reversed(rows), DATASET, ["b", "a"]) == rows


# The array
# ------------------------------------------------------------------------------


def test_array_is_labelled() -> None:
    row = grade_line("m", "s2", "dual_use", "42", epoch=3, mode="A2", strategy="refuse")
    array = to_array([row], DATASET, ["m", "n"])
    assert dict(array.sizes) == {"model": 2, "prompt_set": 2, "variant": 4, "epoch": 1}
    at = array.sel(model="m", prompt_set="s2", variant="dual_use", epoch=3)
    fields = ("helpfulness", "harm_severity", "mode", "strategy")
    assert [int(at[name]) for name in fields] == [4, 2, 2, 2]
    assert str(at.harm_domain.values) == "Cyber Compromise"
    assert int(array.helpfulness.notnull().values.sum()) == 1
    assert array.exists.sel(prompt_set="s2").values.tolist() == [True, True, True, False]
    assert array.exists.sel(prompt_set="s1").values.all()


@pytest.mark.parametrize("pair", ["4-", "-0", "--"])
def test_a_response_with_one_grade_does_not_count(pair: str) -> None:
    array = to_array([grade_line("m", "s1", "benign", pair, mode="A4")], DATASET, ["m"])
    at = array.sel(model="m", prompt_set="s1", variant="benign", epoch=1)
    assert np.isnan(at.helpfulness.values) and np.isnan(at.harm_severity.values)
    assert int(at["mode"]) == 4
