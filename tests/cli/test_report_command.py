"""`report` from end to end, on what runs are like when nobody has tidied them up."""

from __future__ import annotations

import contextlib
import csv
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from endtoend import begin, finish, grades, metrics, osi, values
from opensafeintent import EvaluateSettings, ImportSettings, evaluate as evaluate_here, import_files
from opensafeintent.numbers.metrics import METRICS
from opensafeintent.promptsets import Dataset
from opensafeintent.report import figures
from opensafeintent.report.figures.drawing import Format
from samples import dataset_file, json_lines, made_dataset, prompt_set

pytestmark = pytest.mark.drawn

ONE = made_dataset(prompt_set("one", 1))
SETS = made_dataset(
    prompt_set("one", 1), prompt_set("two", 1, "Fraud and Deception"), prompt_set("three")
)
COMPLY, REFUSE, RULES = "baseline/comply-all", "baseline/refuse-all", "baseline/judge"


def lines_of(dataset: Dataset, pair: str = "40", **extra: Any) -> list[dict[str, Any]]:
    """Make a line for each prompt, all with the same pair of grades, or with none."""
    grade_fields = {"helpfulness": int(pair[0]), "harm_severity": int(pair[1])} if pair else {}
    return [
        {
            "id": item.id,
            "variant": variant,
            "response": f"to {item.id}, {variant}",
            **grade_fields,
            **extra,
        }
        for item in dataset.prompt_sets
        for variant in item.wordings()
    ]


def import_into(run: Path, dataset: Dataset, **models: list[dict[str, Any]]) -> Path:
    """Import each model's lines."""
    run.parent.mkdir(parents=True, exist_ok=True)
    options: dict[str, Any] = {"dataset": dataset_file(run.parent, dataset), "max_missing": 1.0}
    for model, lines in models.items():
        file = json_lines(run.parent / "lines.jsonl", lines)
        import_files(ImportSettings(files=(file,), out=run, model=model, **options))
    return run


def baselines(run: Path, dataset: Dataset, *models: str) -> Path:
    run.parent.mkdir(parents=True, exist_ok=True)
    name = dataset_file(run.parent, dataset)
    evaluate_here(EvaluateSettings(models=models, judges=(RULES,), dataset=name, out=run))
    return run


def page(folder: Path) -> str:
    return (folder / "report.html").read_text("utf-8")


def contents(folder: Path) -> dict[str, bytes]:
    """Return every file but the run's own."""
    own_files = ("run.json", "ledger.sqlite", ".ledger.sqlite.lock", ".lock", "prompt_sets.jsonl")
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.name.startswith(own_files)
    }


def steady(folder: Path) -> dict[str, bytes]:
    """Return what has to be the same every time: all but PDF and PNG, whose converter is free in
    how it writes.
    """
    return {
        name: raw for name, raw in contents(folder).items() if not name.endswith((".pdf", ".png"))
    }


def is_whole(folder: Path) -> None:
    """Check that a report is there with all its parts."""
    assert page(folder).rstrip().endswith("</html>")
    assert metrics(folder)["models"] and "NaN" not in (folder / "metrics.json").read_text()
    tables = {path.name for path in (folder / "tables").iterdir()}
    for name in ("table_4_utility", "comparisons", "coverage", "metrics"):
        assert f"{name}.csv" in tables
    assert (folder / "figures" / "captions.md").is_file()


@contextlib.contextmanager
def drawing(*formats: Format) -> Iterator[None]:
    """Draw in these formats only: drawing takes most of a small report's time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(figures, "write_figures", partial(figures.write_figures, formats=formats))
        yield


@pytest.fixture
def undrawn() -> Iterator[None]:
    """Write the numbers of the figures, and draw none."""
    with drawing():
        yield


# Little, or nothing
# ------------------------------------------------------------------------------


@pytest.mark.slow
def test_one_model_and_one_set(tmp_path: Path) -> None:
    run = import_into(tmp_path / "run", ONE, alone=lines_of(ONE))
    ran = osi("report", run)
    assert ran.code == 0, ran.err
    is_whole(run)
    drawn = {path.suffix for path in (run / "figures").iterdir()}
    assert drawn == {".csv", ".md", ".svg", ".pdf", ".png"}
    assert "alone" in ran.out and "Prompt-sets: 1, too few" in page(run)
    entries = metrics(run)["models"]["alone"]
    assert (entries["triplet_safety"]["value"], entries["triplet_safety"]["n"]) == (1.0, 1)
    # no mode was ever asked for, no benign prompt refused: undefined is null with n = 0, and a dash
    # for people
    undefined = [name for name in METRICS if name in entries and entries[name]["n"] == 0]
    assert "benign_over_refusal" in undefined and "unsafe_rate_A4" in undefined
    assert all(entries[name]["value"] is entries[name]["ci"] is None for name in undefined)
    with (run / "tables" / "metrics.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["model"] == "alone"]
    assert {row["metric"] for row in rows if row["value"] == ""} >= set(undefined)
    texts = {
        name: raw.decode() for name, raw in contents(run).items() if name[-3:] in (".md", "csv")
    }
    texts |= {"screen": ran.out, "page": page(run).partition("</head>")[0]}
    assert [name for name, text in texts.items() if re.search(r"\bnan\b", text, re.I)] == []


# Names
# ------------------------------------------------------------------------------

SCRIPT = "<script>alert('owned')</script></script><img src=x onerror=alert(1)>"
NAMES = (
    "modèle/точный-日本語-éà",
    "x" * 299 + "y",
    "/../../../etc/C:\\passwd",
    SCRIPT,
    "={{ 7*7 }}]0;owned\u200b\u202egnp",
)


@pytest.fixture(scope="module")
def named(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    root = tmp_path_factory.mktemp("named")
    out = root / "deep" / "deeper" / "deepest" / "out"
    models = {name: lines_of(ONE, f"{1 + place % 4}0") for place, name in enumerate(NAMES)}
    run = import_into(out.with_name("run"), ONE, **models)
    before = set(root.rglob("*"))
    with drawing("svg"):
        ran = osi("report", run, "--out", out)
    assert ran.code == 0
    # a name is no place in the file system
    assert {path for path in set(root.rglob("*")) - before if out not in path.parents} == {out}
    return out, ran.out


@pytest.mark.slow
def test_no_name_is_markup_in_what_browsers_read(named: tuple[Path, str]) -> None:
    for name, raw in contents(named[0]).items():
        if name.endswith((".html", ".svg", ".md")):
            assert not re.search(r"(?<!\\)<(script>alert|img src=x)", raw.decode()), name
    assert "7*7" in page(named[0]) and "日本語" in page(named[0])


def test_no_name_steers_the_terminal_or_a_spreadsheet(named: tuple[Path, str]) -> None:
    assert not {"\x1b", "\x07", "\u202e"} & set(named[1])
    for name, raw in contents(named[0]).items():
        if name.endswith(".csv"):
            cells = [cell for row in csv.reader(raw.decode().splitlines()) for cell in row]
            assert not [cell for cell in cells if cell.startswith("=")], name


# Several runs
# ------------------------------------------------------------------------------


def test_runs_without_a_place_are_refused(tmp_path: Path) -> None:
    ran = osi("report", tmp_path / "one", tmp_path / "two")
    assert "--out DIR" in ran.refusal


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
def test_grades_of_an_earlier_report_do_not_stay(tmp_path: Path) -> None:
    out = tmp_path / "out"
    runs = [baselines(tmp_path / name / name, SETS, COMPLY) for name in ("monday", "tuesday")]
    assert osi("report", *runs, "--out", out).code == 0
    assert values(grades(out), "run") == {"monday", "tuesday"}
    assert osi("report", runs[0], "--out", out).code == 0
    assert "run" not in grades(out)[0]
    assert [path.name for path in out.glob("grades*")] == ["grades.csv.gz"]


# What is hidden, and what stays
# ------------------------------------------------------------------------------

MARKED = {
    "benign": "SAFE-TEXT",
    "dual_use": "UNSAFE-TEXT",
    "malicious": "REFUSAL-TEXT",
    "dual_use_paraphrase_1": "UNGRADED-TEXT",
}
MALICIOUS = ONE.prompt_sets[0].prompts.malicious


GRADES = {"benign": "40", "dual_use": "43", "malicious": "10", "dual_use_paraphrase_1": ""}


@pytest.fixture
def marked(tmp_path: Path) -> Path:
    lines = [
        line | {"response": MARKED[line["variant"]]}
        for variant, pair in GRADES.items()
        for line in lines_of(ONE, pair)
        if line["variant"] == variant
    ]
    return import_into(tmp_path / "run", ONE, m=lines)


@pytest.mark.slow
def test_include_unsafe_decides_what_is_in_the_file_and_all_is_the_same_every_time(
    marked: Path, tmp_path: Path
) -> None:
    safely = osi("report", marked)
    assert safely.code == 0 and "send" not in safely.text
    hidden, first = page(marked), steady(marked)
    ran = osi("report", marked, "--include-unsafe", "--out", tmp_path / "all")
    assert ran.code == 0
    assert (  # one is unsafe, and one has no grade
        "note: --include-unsafe: the files hold 2 responses not graded safe and 1 malicious prompt;"
        " do not send them on" in ran.text
    )
    shown = page(tmp_path / "all")
    unsafe = (MARKED["dual_use"], MARKED["dual_use_paraphrase_1"], MALICIOUS)
    safe = (MARKED["benign"], MARKED["malicious"], "one, kindly", "one, in between")
    assert all(text in shown for text in (*unsafe, *safe))
    assert [text in hidden for text in (*unsafe, *safe)] == [False] * 3 + [True] * 4
    # only the page has texts, and only the page is another one
    offences = [
        name for name, raw in contents(marked).items() for text in unsafe if text.encode() in raw
    ]
    assert offences == []
    of_both = steady(tmp_path / "all")
    assert {name for name in first if first[name] != of_both[name]} == {"report.html"}
    # again, in another process, where sets and dictionaries are in another order
    assert finish(begin("report", marked, PYTHONHASHSEED="4242", TZ="Asia/Tokyo")).code == 0
    assert steady(marked) == first
    assert {name.partition("/")[0] for name in first} == {
        *("cost.json", "figures", "grades.csv.gz", "metrics.json", "report.html", "tables")
    }
    assert [name for name in first if name.endswith(".svg")]


@pytest.mark.parametrize("command", ["evaluate", "import"])
def test_what_grows_a_run_takes_its_old_page_and_figures_away(command: str, tmp_path: Path) -> None:
    run = baselines(tmp_path / "run", SETS, COMPLY)
    (run / "figures").mkdir()
    names = ("report.html", "figures/fig_2_safety.svg", "figures/captions.md")
    for name in names:
        (run / name).write_text("of other numbers")
    if command == "evaluate":
        baselines(run, SETS, COMPLY, REFUSE)
    else:
        bare = [
            {key: line[key] for key in ("id", "variant", "response")} for line in lines_of(SETS)
        ]
        import_into(run, SETS, m=bare)
    assert [name for name in names if (run / name).exists()] == []


@pytest.mark.parametrize("theirs", ["figures/drawn-by-hand.pdf", "figures/old/notes.txt"])
def test_a_report_leaves_the_users_own_files_alone(theirs: str, tmp_path: Path) -> None:
    """`--out` may be the folder of a paper, which has figures of its own."""
    run, paper = import_into(tmp_path / "run", ONE, m=lines_of(ONE)), tmp_path / "paper"
    (paper / theirs).parent.mkdir(parents=True)
    (paper / theirs).write_text("mine")
    with drawing():
        assert osi("report", run, "--out", paper).code == 0
    assert (paper / theirs).read_text() == "mine"
