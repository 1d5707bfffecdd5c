"""A run as files for other programs: what stands in them, what is withheld, and what comes back."""

from __future__ import annotations

import csv
import json
import stat
from pathlib import Path
from typing import Any

import pytest

from endtoend import grades, metrics, osi
from opensafeintent import (
    EvaluateSettings,
    ExportSettings,
    GradeSettings,
    ImportSettings,
    evaluate,
    export_run,
    grade,
    import_files,
)
from opensafeintent.commands.settings.base import Opt, list_settings
from opensafeintent.errors import InputError
from opensafeintent.quoting import WITHHELD_WORDS
from samples import dataset_file, import_lines, lines_of, made_dataset, prompt_set

DATASET = made_dataset(prompt_set("boats", 1, "Fraud and Deception"), prompt_set("trains"))
"""Seven prompts: boats has one paraphrase, trains none."""
FORMATS = ("csv", "jsonl", "parquet")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two scripted models, one of which does harm."""
    folder = tmp_path_factory.mktemp("exporting")
    models = ("baseline/refuse-all", "baseline/comply-all")
    judges = ("baseline/judge", "baseline/comply-all")  # the second one's replies are no grades
    dataset, out = dataset_file(folder, DATASET), folder / "run"
    for model in models:  # a judge is stopped if 30 replies in one go are no grades
        evaluate(EvaluateSettings(models=model, judges=judges, dataset=dataset, out=out))
    return out


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that was imported with grades of every kind."""
    folder = tmp_path_factory.mktemp("imported")
    lines = lines_of(DATASET, helpfulness=3, harm_severity=0)
    ungraded, half, unsafe, *_ = lines
    del ungraded["helpfulness"], ungraded["harm_severity"], half["harm_severity"]
    half["missing"] = ["harm_severity:unparsed"]
    unsafe["harm_severity"] = 2
    half["response"] = "=a formula"
    import_lines(folder, lines, DATASET, "files")
    return folder / "run"


def exported(run: Path, out: Path, **settings: Any) -> list[dict[str, Any]]:
    """Export a run in the format of the file's ending, and read it."""
    path = out / f"out.{settings['format']}"
    assert export_run(ExportSettings(run=run, out=path, **settings)).files == (path,)
    if settings["format"] == "parquet":
        import pyarrow.parquet as pq

        rows: list[dict[str, Any]] = pq.read_table(path).to_pylist()
        return rows
    if settings["format"] == "csv":
        with path.open(newline="", encoding="utf-8") as file:
            return [
                {name: int(cell) if cell.isdigit() else cell or None for name, cell in row.items()}
                for row in csv.DictReader(file)
            ]
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def metrics_of(run: Path, *, bounds: bool) -> dict[str, Any]:
    """Return every metric of every model. A withheld response that nobody graded is missing, and so
    counts in the bounds; in the run it is one that nobody was asked to grade.
    """
    models: dict[str, Any] = metrics(run)["models"]
    if not bounds:
        for entry in (entry for numbers in models.values() for entry in numbers.values()):
            del entry["bounds"], entry["missing_ci"]
    return models


@pytest.mark.parametrize("format_", ["csv", "jsonl", "parquet"])
def test_a_row_a_response_with_grades_of_each_judge(
    run: Path, imported: Path, tmp_path: Path, format_: str
) -> None:
    for folder, count in ((run, 14), (imported, 7)):
        rows = exported(folder, tmp_path, format=format_, include_unsafe=True)
        graded = grades(folder)
        assert len(rows) == len(graded) == count
        assert list(rows[0])[:6] == ["model", "id", "variant", "epoch", "prompt", "response"]
        named = ("id", "variant", "helpfulness", "harm_severity", "mode", "missing", "judge")
        by_judge = [name for name in graded[0] if "[" in name]
        assert bool(by_judge) == (folder == run)  # a panel of two
        for row, line in zip(rows, graded, strict=True):
            assert row["prompt"] == DATASET.by_id[row["id"]].wordings()[row["variant"]]
            for name in (*named, *by_judge):
                assert str("" if row[name] is None else row[name]) == line[name]
        assert all(row["response"] for row in rows)
    assert stat.S_IMODE((tmp_path / f"out.{format_}").stat().st_mode) == 0o600


@pytest.mark.parametrize("format_", FORMATS)
def test_unsafe_texts_are_withheld_unasked(
    run: Path, imported: Path, tmp_path: Path, format_: str
) -> None:
    rows = [row for folder in (run, imported) for row in exported(folder, tmp_path, format=format_)]
    for row in rows:
        assert (row["prompt"] is None) == row["prompt_hidden"] == (row["variant"] == "malicious")
        safe = row["helpfulness"] is not None and row["harm_severity"] == 0
        assert (row["response"] is None) == row["response_hidden"] == (not safe)


@pytest.mark.slow
@pytest.mark.parametrize("format_", FORMATS)
@pytest.mark.parametrize("include_unsafe", [False, True])
def test_what_was_exported_comes_back_with_the_same_metrics(
    imported: Path, tmp_path: Path, format_: str, *, include_unsafe: bool
) -> None:
    run = imported
    exported(run, tmp_path, format=format_, include_unsafe=include_unsafe)
    again = tmp_path / "again"
    rows = exported(run, tmp_path, format="jsonl", include_unsafe=include_unsafe)
    files, dataset = (tmp_path / f"out.{format_}",), dataset_file(tmp_path, DATASET)
    import_files(ImportSettings(files=files, out=again, dataset=dataset, max_missing=1))
    assert metrics_of(again, bounds=include_unsafe) == metrics_of(run, bounds=include_unsafe)
    back = exported(again, tmp_path, format="jsonl", include_unsafe=True)
    texts = {(row["model"], row["id"], row["variant"]): row["response"] for row in rows}
    assert {(row["model"], row["id"], row["variant"]): row["response"] for row in back} == texts
    assert back[0]["missing"] == ("grades:not_graded" if include_unsafe else "response:withheld")


def test_a_response_with_a_mark_says_so_at_both_doors(tmp_path: Path) -> None:
    dataset = made_dataset(prompt_set("a harbour with many boats"))
    lines = lines_of(dataset, helpfulness=3, harm_severity=0)
    lines[0]["response"] = "You asked: a harbour with many boats, unkindly. No."
    import_lines(tmp_path, lines, dataset, "files")
    run, out = tmp_path / "run", tmp_path / "out.jsonl"
    notes = export_run(ExportSettings(run=run, out=out, format="jsonl")).notes
    assert any(
        "2 responses with a mark in place of words of the malicious" in note for note in notes
    )
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    marked = [row for row in rows if row["quotes_hidden"]]
    assert marked[0]["response"] == f"You asked: {WITHHELD_WORDS}. No." and len(marked) == 2
    settings = ImportSettings(
        files=(out,), out=tmp_path / "again", dataset=dataset_file(tmp_path, dataset)
    )
    back = import_files(settings).notes
    assert any("2 responses with a mark in place" in note for note in back)
    assert not any("not read" in note for note in back)  # we wrote every column ourselves


def _ungraded(path: Path, *, blank: bool) -> None:
    """Take the grades out of an exported file: the cells alone, or the columns too."""
    names = ("helpfulness", "harm_severity", "strategy", "judge")
    if path.suffix == ".parquet":
        import pyarrow.parquet as pq

        table = pq.read_table(path)
        kept = [name for name in table.column_names if not name.startswith(names)]
        pq.write_table(table.select(kept), path)
        return
    if path.suffix == ".jsonl":
        rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    else:
        with path.open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
    cut = [
        {
            name: "" if path.suffix == ".csv" and name.startswith(names) else cell
            for name, cell in row.items()
            if blank or not name.startswith(names)
        }
        for row in rows
    ]
    if path.suffix == ".jsonl":
        for row in cut:
            row.update({name: None for name in row if name.startswith(names)})
        path.write_text("\n".join(map(json.dumps, cut)) + "\n", "utf-8")
        return
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(cut[0]))
        writer.writeheader()
        writer.writerows(cut)


@pytest.mark.slow
@pytest.mark.parametrize("blank", [False, True])
@pytest.mark.parametrize("format_", FORMATS)
def test_withheld_responses_without_grades_are_missing_and_warned_of(
    tmp_path: Path, format_: str, *, blank: bool
) -> None:
    """Exactly the unsafe ones are gone: without them the model would look safe."""
    lines = lines_of(DATASET, helpfulness=3, harm_severity=0)
    lines[0]["harm_severity"] = lines[1]["harm_severity"] = 2
    import_lines(tmp_path, lines, DATASET)
    out = tmp_path / f"out.{format_}"
    exported(tmp_path / "run", tmp_path, format=format_)
    _ungraded(out, blank=blank)
    again, dataset = tmp_path / "again", dataset_file(tmp_path, DATASET)
    import_files(ImportSettings(files=(out,), out=again, dataset=dataset, max_missing=0.05))
    outcome = grade(GradeSettings(run=again, judges=("baseline/judge",)))
    notices = {said.code: said.text for said in outcome.notices}
    assert "withheld because they are unsafe: 2, of m" in notices["withheld"]
    assert "m lacks 2 of 6 core grades" in notices["missing_beyond"]
    assert "response:withheld (2)" in notices["missing_beyond"]
    coverage = metrics(again)["coverage"]["m"]
    core = {"asked": 6, "missing": 2, "reasons": {"response:withheld": 2}}
    assert coverage["missing"]["core"] == core
    assert metrics(again)["models"]["m"]["triplet_safety"]["bounds"][0] < 1
    assert outcome.notices[1].code == "withheld" and outcome.notices[1].is_banner


def test_a_withheld_response_with_one_grade_is_refused(tmp_path: Path) -> None:
    """Its other grade, which somebody removed, is not guessed."""
    lines = lines_of(DATASET, helpfulness=3, harm_severity=2)
    import_lines(tmp_path, lines, DATASET)
    exported(tmp_path / "run", tmp_path, format="csv")
    table = tmp_path / "out.csv"
    with table.open(newline="", encoding="utf-8") as file:
        rows = [row | {"harm_severity": ""} for row in csv.DictReader(file)]
    with table.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    again, dataset = tmp_path / "again", dataset_file(tmp_path, DATASET)
    with pytest.raises(InputError, match=r"out\.csv:2, field response: .*both grades"):
        import_files(ImportSettings(files=(table,), out=again, dataset=dataset))


def test_export_says_how_many_texts_it_withheld(run: Path, tmp_path: Path) -> None:
    ran = osi("export", run, "--format", "jsonl", "--out", tmp_path / "out.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    hidden = sum(row["prompt_hidden"] or row["response_hidden"] for row in rows)
    assert f"{hidden} of 14 rows without a text" in ran.out and "--include-unsafe" in ran.out
    notes = osi(
        *("export", run, "--format", "csv", "--out", tmp_path / "all.csv", "--include-unsafe")
    ).out
    assert "rows without a text" not in notes and "send" not in ran.out
    # of a model's seven responses: all that comply with a malicious prompt, or lack a grade
    unsafe = sum(row["response_hidden"] for row in rows)
    held = f"the files hold {unsafe} responses not graded safe and 2 malicious prompts"
    assert unsafe and f"note: --include-unsafe: {held}; do not send them on" in " ".join(
        notes.split()
    )


def test_an_export_without_out_names_it(run: Path) -> None:
    ran = osi("export", run, "--format", "csv")
    assert ran.code == 2 and "Missing option '--out'" in ran.err


def test_several_models_of_a_file_cannot_have_one_name(run: Path, tmp_path: Path) -> None:
    exported(run, tmp_path, format="jsonl")
    with pytest.raises(InputError, match="names several models"):
        import_files(
            ImportSettings(
                files=(tmp_path / "out.jsonl",),
                out=tmp_path / "again",
                dataset=dataset_file(tmp_path, DATASET),
                model="one",
            )
        )


def test_a_partial_run_is_marked_in_each_row(run: Path, tmp_path: Path) -> None:
    assert not any(row["partial"] for row in exported(run, tmp_path, format="jsonl"))
    import_lines(tmp_path, lines_of(DATASET, helpfulness=3, harm_severity=0)[1:], DATASET, "part")
    ran = osi("export", tmp_path / "run", "--format", "jsonl", "--out", tmp_path / "part.jsonl")
    assert "6 of 7 planned responses of part are stored" in ran.out
    lines = (tmp_path / "part.jsonl").read_text().splitlines()
    assert [json.loads(line)["partial"] for line in lines] == [True] * 6


@pytest.mark.parametrize("format_", ["csv", "jsonl"])
def test_an_import_of_a_partial_run_says_so(tmp_path: Path, format_: str) -> None:
    """The copy takes its plan from the rows that are there, so it cannot tell by itself."""
    lines = lines_of(DATASET, helpfulness=3, harm_severity=0)
    import_lines(tmp_path, lines[1:], DATASET, "part")
    import_lines(tmp_path, lines, DATASET, "whole")
    exported(tmp_path / "run", tmp_path, format=format_)
    files, dataset = (tmp_path / f"out.{format_}",), dataset_file(tmp_path, DATASET)
    outcome = import_files(ImportSettings(files=files, out=tmp_path / "again", dataset=dataset))
    told = [note for note in outcome.notes if "incomplete run" in note]
    assert len(told) == 1 and "incomplete run of part:" in told[0]


def test_grades_of_an_export_that_an_import_does_not_read_are_named(
    run: Path, tmp_path: Path
) -> None:
    """The panel's grades are read, and those of each judge are not."""
    exported(run, tmp_path, format="jsonl")
    settings = ImportSettings(
        files=(tmp_path / "out.jsonl",), out=tmp_path / "x", dataset=dataset_file(tmp_path, DATASET)
    )
    unread = [note for note in import_files(settings).notes if "not read" in note]
    assert len(unread) == 1
    assert "not read: helpfulness[baseline/comply-all], harm_severity[baseline/comp" in unread[0]


def test_no_cell_of_csv_is_a_formula(tmp_path: Path) -> None:
    lines = lines_of(DATASET, helpfulness=3, harm_severity=0)
    lines[0]["response"] = "=1+1\0"
    import_lines(tmp_path, lines, DATASET, "sums")
    row = exported(tmp_path / "run", tmp_path, format="csv")[0]
    assert row["response"] == "'=1+1\N{REPLACEMENT CHARACTER}"


def test_a_file_that_cannot_be_written_is_refused(run: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    refused = {
        tmp_path / "out.txt": "ends in .csv",
        tmp_path / "file" / "out.csv": "is a file",
    }
    for out, message in refused.items():
        with pytest.raises(InputError, match=message):
            export_run(ExportSettings(run=run, format="csv", out=out))
    with pytest.raises(InputError, match="no run here"):
        export_run(ExportSettings(run=tmp_path, format="csv", out=tmp_path / "out.csv"))


@pytest.mark.parametrize(
    ("format_", "options", "message"),
    [
        (
            "csv",
            {"samples": True},
            "--samples: is for --format every-eval-ever, and the format is csv",
        ),
        ("jsonl", {"organization": "x"}, "--organization: is for --format every-eval-ever"),
        ("parquet", {"relationship": "first_party"}, "--relationship: is for"),
        ("csv", {"dataset_repo": "me/x"}, "--dataset-repo: is for --format hf-results"),
        ("every-eval-ever", {"repo": "me/x"}, "--repo: is for --format hf-results"),
        ("every-eval-ever", {"partial": True}, "--partial: is for --format hf-results"),
        ("hf-results", {"include_unsafe": True}, "is for --format csv, parquet, jsonl or every"),
        ("hf-results", {"samples": True}, "--samples: is for --format every-eval-ever"),
        ("every-eval-ever", {"include_unsafe": True}, "expected --samples too"),
    ],
)
def test_an_option_of_another_format_is_refused(
    tmp_path: Path, format_: str, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        ExportSettings(run=tmp_path, out=tmp_path / "out", format=format_, **options)


def test_the_help_names_the_format_that_an_option_is_for() -> None:
    """Options that have an effect in every format do not."""
    of_all = {"run", "format", "out", "ledger"}
    for setting in list_settings(ExportSettings):
        shown = setting.shown
        named = isinstance(shown, Opt) and shown.help.startswith("With ")
        assert named == (setting.name not in of_all), setting.name


@pytest.mark.parametrize(("form", "ending"), [("latex", "tex"), ("markdown", "md")])
def test_every_table_of_a_run_is_written_for_people(tmp_path: Path, form: Any, ending: str) -> None:
    run = tmp_path / "run"
    models = ("baseline/redirect", "baseline/comply-all", "--judge", "baseline/judge")
    assert osi("evaluate", *models, "--limit", 4, "--out", run).code == 0
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    out = tmp_path / "tables"
    files = export_run(ExportSettings(run=run, format=form, out=out)).files
    assert {path.suffix for path in run.glob("tables/*")} == {".csv"}
    assert {path.stem for path in files} == {path.stem for path in run.glob("tables/*")}
    assert set(files) == set(out.glob(f"*.{ending}")) == set(out.iterdir())
    assert "Triplet Safety" in (out / f"headline.{ending}").read_text("utf-8")
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before
    with pytest.raises(InputError, match="--samples: is for --format every-eval-ever"):
        ExportSettings(run=run, format=form, out=out, samples=True)
