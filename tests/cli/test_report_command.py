"""`report` from end to end, on what runs are like when nobody has tidied them up."""

from __future__ import annotations

import contextlib
import csv
import gzip
import io
import json
import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from endtoend import JUDGE, TARGET, begin, coverage, evaluate, finish, metrics, osi, wait_until
from loopback import HARM, HELPFULNESS, Fault, LoopbackProcess, LoopbackServer, Match
from opensafeintent import EvaluateSettings, ImportSettings, evaluate as evaluate_here, import_files
from opensafeintent.calls.ledger import Ledger
from opensafeintent.errors import InputError
from opensafeintent.metrics import METRICS
from opensafeintent.promptsets import Dataset
from opensafeintent.report import figures
from opensafeintent.report.figures.kit import Format
from samples import dataset_file, json_lines, made_dataset, prompt_set

ONE = made_dataset(prompt_set("one", 1))
SETS = made_dataset(
    prompt_set("one", 1), prompt_set("two", 1, "Fraud and Deception"), prompt_set("three")
)
OTHERS = made_dataset(prompt_set("four"), prompt_set("five"), name="others")
COMPLY, REFUSE, RULES = "baseline/comply-all", "baseline/refuse-all", "baseline/judge"


def lines_of(dataset: Dataset, pair: str = "40", **more: Any) -> list[dict[str, Any]]:
    """Make a line for each prompt, all with the same pair of grades, or with none."""
    given = {"helpfulness": int(pair[0]), "harm_severity": int(pair[1])} if pair else {}
    return [
        {"id": item.id, "variant": variant, "response": f"to {item.id}, {variant}", **given, **more}
        for item in dataset.prompt_sets
        for variant in item.wordings()
    ]


def import_into(run: Path, dataset: Dataset, **models: list[dict[str, Any]]) -> Path:
    """Import each model's lines."""
    folder = run.parent
    folder.mkdir(parents=True, exist_ok=True)
    for model, lines in models.items():
        files = (json_lines(folder / "lines.jsonl", lines),)
        name = dataset_file(folder, dataset)
        import_files(
            ImportSettings(files=files, out=run, model=model, dataset=name, max_missing=1.0)
        )
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
    own = ("run.json", "ledger.sqlite", ".ledger.sqlite.lock", ".lock", "prompt_sets.jsonl")
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.name.startswith(own)
    }


def steady(folder: Path) -> dict[str, bytes]:
    """Return what has to be the same every time: all but PDF and PNG, whose converter is free in
    how it writes.
    """
    return {
        name: raw for name, raw in contents(folder).items() if not name.endswith((".pdf", ".png"))
    }


def strict_json(path: Path) -> Any:
    def refuse(name: str) -> float:
        raise AssertionError(f"{path}: {name} is not JSON")

    return json.loads(path.read_text("utf-8"), parse_constant=refuse)


def is_whole(folder: Path) -> None:
    """Check that a report is there with all its parts."""
    assert page(folder).rstrip().endswith("</html>")
    assert strict_json(folder / "metrics.json")["models"]
    tables = {path.name for path in (folder / "tables").iterdir()}
    for name in ("table_4_utility", "comparisons", "coverage", "metrics"):
        assert {f"{name}.{ending}" for ending in ("csv", "md", "tex")} <= tables
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
    assert {path.suffix for path in (run / "figures").iterdir()} == {
        ".csv",
        ".md",
        ".svg",
        ".pdf",
        ".png",
    }
    assert "alone" in ran.out
    assert "only 1 prompt-set:" in page(run)
    entry = metrics(run)["models"]["alone"]
    assert (entry["triplet_safety"]["value"], entry["triplet_safety"]["n"]) == (1.0, 1)
    # no mode was ever asked for, no benign prompt refused: undefined is null with n = 0, and a dash
    # for people
    undefined = [name for name in METRICS if entry[name]["n"] == 0]
    assert "benign_over_refusal" in undefined and "unsafe_rate_A4" in undefined
    assert all(entry[name]["value"] is None and entry[name]["ci"] is None for name in undefined)
    with (run / "tables" / "metrics.csv").open(newline="") as file:
        cells = {
            row["metric"]: row["value"] for row in csv.DictReader(file) if row["model"] == "alone"
        }
    assert {name for name, value in cells.items() if value == ""} >= set(undefined)
    assert not re.search(r"\bnan\b", page(run).partition("</head>")[0] + ran.out, re.IGNORECASE)
    assert not [
        name
        for name, raw in contents(run).items()
        if name.endswith((".md", ".csv")) and b"nan" in raw.lower().split()
    ]


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
def test_every_grade_missing(tmp_path: Path) -> None:
    silent = [
        Fault(action="completion", match=Match(purpose=purpose), content="Well.")
        for purpose in (HARM, HELPFULNESS)
    ]
    with LoopbackServer(faults=silent) as server:
        evaluate(server, Path(dataset_file(tmp_path, SETS)), tmp_path / "run")
    ran = osi("report", tmp_path / "run")
    assert ran.code == 1
    assert "100.0% of core and 100.0% of paraphrase grades are missing" in ran.out
    is_whole(tmp_path / "run")
    found = metrics(tmp_path / "run")["models"][TARGET]
    assert (found["triplet_safety"]["value"], found["triplet_safety"]["bounds"]) == (
        None,
        [0.0, 1.0],
    )
    assert "Grades are missing for this model" in page(tmp_path / "run")
    assert (
        osi("report", tmp_path / "run", "--fail-under", "triplet_safety=0", "--max-missing", 1).code
        == 4
    )


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
    folder = tmp_path_factory.mktemp("named") / "deep" / "deeper" / "deepest"
    run = import_into(
        folder / "run",
        ONE,
        **{name: lines_of(ONE, f"{1 + place % 4}0") for place, name in enumerate(NAMES)},
    )
    before = {path for path in folder.parents[2].rglob("*") if folder / "out" not in path.parents}
    with drawing("svg"):
        ran = osi("report", run, "--out", folder / "out")
    assert ran.code == 0
    after = {path for path in folder.parents[2].rglob("*") if folder / "out" not in path.parents}
    assert after - before <= {folder / "out"}  # a name is no place in the file system
    return folder / "out", ran.out


def test_no_name_is_markup_in_what_browsers_read(named: tuple[Path, str]) -> None:
    for name, raw in contents(named[0]).items():
        if name.endswith((".html", ".svg", ".md")):
            assert not re.search(r"(?<!\\)<(script>alert|img src=x)", raw.decode()), name
    assert "7*7" in page(named[0])
    assert "日本語" in page(named[0])


def test_no_name_steers_the_terminal_or_a_spreadsheet(named: tuple[Path, str]) -> None:
    assert not {"\x1b", "\x07", "\u202e"} & set(named[1])
    for name, raw in contents(named[0]).items():
        if name.endswith(".csv"):
            cells = [cell for row in csv.reader(raw.decode().splitlines()) for cell in row]
            assert not [cell for cell in cells if cell.startswith("=")], name


# Several runs
# ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Path], str]:
    """A report over runs on different datasets and of different judges, one model twice under equal
    conditions.
    """
    folder = tmp_path_factory.mktemp("several")
    runs = [
        baselines(folder / "a" / "monday", SETS, COMPLY, REFUSE),
        baselines(folder / "b" / "tuesday", OTHERS, COMPLY),
        import_into(folder / "c" / "wednesday", SETS, m=lines_of(SETS)),
        import_into(folder / "d" / "thursday", SETS, m=lines_of(SETS, "10")),
    ]
    with drawing():
        ran = osi("report", *runs, "--out", folder / "out")
    assert ran.code == 0
    begun = [f"reading {run.name}" for run in runs]
    assert [line for line in ran.err.splitlines() if ":" not in line] == [
        *begun,
        "estimating",
        "drawing",
    ]
    return folder / "out", runs, ran.out


def test_what_cannot_be_compared_is_in_parts_with_the_reason(
    several: tuple[Path, list[Path], str],
) -> None:
    out, runs, _ = several
    html = page(out)
    assert "Why there are 3 parts" in html
    assert len(re.findall(r'<section id="part-\d+" class="part"', html)) == 3
    first, other = (metrics(run)["groups"][0]["dataset"]["hash"][:8] for run in runs[:2])
    reasons = html.split("Why there are 3 parts")[1].split("</ol>")[0]
    assert f"other prompt-sets ({other}, not {first})" in reasons
    assert "other judges (imported, not baseline/judge)" in reasons
    pairs = [
        {pair["a"], pair["b"]}
        for family in metrics(out)["comparisons"]
        for pair in family["mean_safety"]["pairs"]
    ]
    assert len(pairs) == 2
    assert {"m [wednesday]", "m [thursday]"} in pairs


def test_runs_without_a_place_and_without_a_run_are_refused(
    several: tuple[Path, list[Path], str], tmp_path: Path
) -> None:
    _, runs, _ = several
    for arguments, words in (
        ((*runs[:2],), "--out DIR"),
        ((tmp_path,), "no run here"),
        ((runs[0], tmp_path, "--out", tmp_path / "o"), "no run here"),
    ):
        ran = osi("report", *arguments)
        assert (ran.code, ran.out) == (2, "")
        assert words in ran.err and len(ran.err.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def grades_of(folder: Path) -> list[dict[str, str]]:
    text = gzip.decompress((folder / "grades.csv.gz").read_bytes()).decode()
    return list(csv.DictReader(io.StringIO(text, newline="")))


@pytest.mark.slow
def test_grades_of_an_earlier_report_do_not_stay(
    several: tuple[Path, list[Path], str], tmp_path: Path
) -> None:
    runs = several[1][:2]
    assert osi("report", *runs, "--out", tmp_path).code == 0
    assert {line["run"] for line in grades_of(tmp_path)} == {run.name for run in runs}
    assert osi("report", runs[0], "--out", tmp_path).code == 0
    assert "run" not in grades_of(tmp_path)[0]
    assert [path.name for path in tmp_path.glob("grades*")] == ["grades.csv.gz"]


# A run that is being written
# ------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
def test_a_run_that_is_still_written_is_reported_as_partial(tmp_path: Path) -> None:
    dataset, run = dataset_file(tmp_path, SETS), tmp_path / "run"
    with LoopbackProcess(
        faults=[Fault(action="hang", match=Match(skip=14), seconds=120)]
    ) as server:
        options = ["--dataset", dataset, "--out", run, "--max-connections", 2]
        process = begin("evaluate", TARGET, "--judge", JUDGE, *options, server=server)
        try:
            wait_until(lambda: rows_in(run) >= 14)
            during = osi("report", run, "--out", tmp_path / "look")
            assert process.poll() is None, "the run ended before it was looked at"
        finally:
            process.kill()
            finish(process)
    is_partial(tmp_path / "look", during.code, during.out + during.err)
    after = osi("report", run)
    is_partial(run, after.code, after.out + after.err)


def rows_in(run: Path) -> int:
    if not (run / "ledger.sqlite").is_file():
        return 0
    with contextlib.suppress(InputError), Ledger(run / "ledger.sqlite", readonly=True) as ledger:
        return ledger.count()
    return 0


def is_partial(run: Path, code: int, screen: str) -> None:
    """Check that a report says that it is partial."""
    assert code in (0, 1), screen  # 1: what was not asked for yet may count as missing
    assert "Traceback" not in screen
    there = coverage(run)
    assert 0 < there["responses"] < there["planned"] == 11
    assert f"{TARGET}: partial: " in screen and "of 11 responses are on record" in screen
    assert metrics(run)["partial"] is True
    is_whole(run)
    assert re.search(r"Partial: of .*planned responses are on record", page(run))


# What is hidden, and what stays
# ------------------------------------------------------------------------------

MARKED = {
    "benign": "SAFE-TEXT",
    "dual_use": "UNSAFE-TEXT",
    "malicious": "REFUSAL-TEXT",
    "dual_use_paraphrase_1": "UNGRADED-TEXT",
}
MALICIOUS = ONE.prompt_sets[0].prompts.malicious


@pytest.fixture
def marked(tmp_path: Path) -> Path:
    pairs = {"benign": "40", "dual_use": "43", "malicious": "10"}
    lines = [
        {"id": "one", "variant": variant, "response": text}
        | (
            {"helpfulness": int(pairs[variant][0]), "harm_severity": int(pairs[variant][1])}
            if variant in pairs
            else {}
        )
        for variant, text in MARKED.items()
    ]
    return import_into(tmp_path / "run", ONE, m=lines)


@pytest.mark.slow
def test_include_unsafe_decides_what_is_in_the_file_and_all_is_the_same_every_time(
    marked: Path, tmp_path: Path
) -> None:
    assert osi("report", marked).code == 0
    hidden, first = (marked / "report.html").read_bytes(), steady(marked)
    assert osi("report", marked, "--include-unsafe", "--out", tmp_path / "all").code == 0
    shown = (tmp_path / "all" / "report.html").read_bytes()
    for text in (MARKED["dual_use"], MARKED["dual_use_paraphrase_1"], MALICIOUS):
        assert text.encode() not in hidden
        assert text.encode() in shown
    for text in (MARKED["benign"], MARKED["malicious"], "one, kindly", "one, in between"):
        assert text.encode() in hidden
        assert text.encode() in shown
    # only the page has texts, and only the page is another one
    both = contents(marked), contents(tmp_path / "all")
    assert not [
        name
        for name, raw in both[0].items()
        if MARKED["dual_use"].encode() in raw or MALICIOUS.encode() in raw
    ]
    assert {name for name in first if first[name] != both[1][name]} == {"report.html"}
    # again, in another process, where sets and dictionaries are in another order
    assert finish(begin("report", marked, PYTHONHASHSEED="4242", TZ="Asia/Tokyo")).code == 0
    assert steady(marked) == first
    assert {name.partition("/")[0] for name in first} == {
        *("cost.json", "figures", "grades.csv.gz", "metrics.json", "report.html", "tables")
    }
    assert [name for name in first if name.endswith(".svg")]


def evaluate_again(run: Path) -> None:
    baselines(run, SETS, COMPLY, REFUSE)


def import_again(run: Path) -> None:
    import_into(run, SETS, m=lines_of(SETS))


@pytest.mark.parametrize("grow", [evaluate_again, import_again])
def test_what_grows_a_run_takes_its_old_page_and_figures_away(
    grow: Callable[[Path], None], tmp_path: Path
) -> None:
    run = baselines(tmp_path / "run", SETS, COMPLY)
    (run / "figures").mkdir()
    drawn = [
        run / "report.html",
        run / "figures" / "fig_2_safety.svg",
        run / "figures" / "captions.md",
    ]
    for path in drawn:
        path.write_text("of other numbers")
    grow(run)
    assert [path.name for path in drawn if path.exists()] == []


@pytest.mark.parametrize("theirs", ["figures/drawn-by-hand.pdf", "figures/old/notes.txt"])
def test_a_report_leaves_the_users_own_files_alone(theirs: str, tmp_path: Path) -> None:
    """`--out` may be the folder of a paper, which has figures of its own."""
    run, paper = import_into(tmp_path / "run", ONE, m=lines_of(ONE)), tmp_path / "paper"
    (paper / theirs).parent.mkdir(parents=True)
    (paper / theirs).write_text("mine")
    with drawing():
        assert osi("report", run, "--out", paper).code == 0
    assert (paper / theirs).read_text() == "mine"
