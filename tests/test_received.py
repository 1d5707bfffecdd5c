"""What somebody else made is read and never obeyed: run folders, ledgers, child processes."""

from __future__ import annotations

import ast
import contextlib
import importlib.metadata
import json
import os
import shutil
import sqlite3
import struct
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import source
from opensafeintent import replacing
from opensafeintent.commands.evaluate import evaluate
from opensafeintent.commands.settings import EvaluateSettings
from opensafeintent.errors import InputError
from opensafeintent.files import read_text
from opensafeintent.numbers.cohort import name_graders
from opensafeintent.promptsets.loading import fetch_published_dataset
from opensafeintent.promptsets.reading import read_records
from samples import dataset_file, exit_code, json_lines, made_dataset, prompt_set

REFUSE, JUDGE = "baseline/refuse-all", "baseline/judge"


@pytest.fixture(scope="module")
def sent_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that somebody else sends."""
    run = tmp_path_factory.mktemp("made") / "run"
    evaluate(EvaluateSettings(models=(REFUSE,), judges=(JUDGE,), limit=1, out=run))
    return run


@pytest.fixture
def received(sent_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it, in the folder that the user is in, beside files of the user's."""
    for folder in (tmp_path / "mine", tmp_path / "mine" / "sub"):
        folder.mkdir()
        (folder / "thesis.txt").write_text("precious")
    monkeypatch.chdir(tmp_path)
    return shutil.copytree(sent_run, tmp_path / "run")


def unhurt(folder: Path) -> bool:
    mine = folder / "mine"
    return [path.read_text() for path in sorted(mine.rglob("thesis.txt"))] == ["precious"] * 2


# Child processes
# ------------------------------------------------------------------------------


def test_no_python_is_started_that_looks_into_the_current_folder() -> None:
    """`-c` and `-m` put that folder first on the path, unless `-P` or `-I` is given."""
    nodes = [node for _, node in source.nodes()]
    starts = [
        [ast.unparse(item) for item in node.elts[:2]]
        for node in nodes
        if isinstance(node, ast.List | ast.Tuple)
        and node.elts
        and getattr(node.elts[0], "attr", "") == "executable"
    ]
    safe = [
        start
        for start in starts
        if start in (["sys.executable", "'-P'"], ["sys.executable", "'-I'"])
    ]
    named = [
        node for node in nodes if isinstance(node, ast.Attribute) and node.attr == "executable"
    ]
    assert len(named) == len(safe) > 0
    unsafe = {"system", "popen", "fork", "create_subprocess_shell"}
    calls = {
        ast.unparse(node.func)
        for node in nodes
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") in unsafe
    }
    assert not calls & {"os.system", "os.popen", "os.fork", "asyncio.create_subprocess_shell"}


@pytest.mark.slow
def test_a_page_is_made_with_no_code_of_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from opensafeintent.report.page import vega_script

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENSAFEINTENT_CACHE", str(tmp_path / "none"))
    (tmp_path / "vl_convert.py").write_text(
        "open('PWNED', 'w')\ndef javascript_bundle(script): return 'INJECTED'"
    )
    vega_script.cache_clear()
    assert "INJECTED" not in vega_script()
    assert not (tmp_path / "PWNED").exists()


@pytest.mark.slow
@pytest.mark.parametrize("python", ["", "/nowhere/python", "false"])
def test_a_page_is_made_though_no_python_can_be_started(
    python: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from opensafeintent.report.page import vega_script

    script = vega_script()
    vega_script.cache_clear()
    monkeypatch.setenv("OPENSAFEINTENT_CACHE", str(tmp_path))
    monkeypatch.setattr(sys, "executable", python)
    assert vega_script() == script


def missing_package(name: str) -> str:
    raise importlib.metadata.PackageNotFoundError(name)


def test_the_script_of_charts_is_kept_and_made_again_if_it_is_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from opensafeintent.report import page

    made: list[str] = []

    def bundle() -> str:
        made.append("…")
        return "a = 1;\nb = 2;"

    def ask(folder: Path) -> int:
        monkeypatch.setenv("OPENSAFEINTENT_CACHE", str(folder))
        page.vega_script.cache_clear()
        assert page.vega_script() == "a = 1;\nb = 2;"
        return len(made)

    monkeypatch.setattr(page, "_bundle_vega", bundle)
    assert [ask(tmp_path / "cache") for _ in range(3)] == [1, 1, 1]
    (kept,) = (tmp_path / "cache").iterdir()
    assert kept.stat().st_mode & 0o077 == 0
    for damaged in (kept.read_bytes()[:-1], b"", b"\xff"):
        kept.write_bytes(damaged)
        before = len(made)
        assert [ask(tmp_path / "cache") for _ in range(2)] == [before + 1] * 2
    assert ask(kept) == ask(kept) - 1  # a file in place of the folder: it is not kept
    monkeypatch.setattr(importlib.metadata, "version", missing_package)
    assert ask(tmp_path / "cache") == ask(tmp_path / "cache") - 1
    page.vega_script.cache_clear()


# Run folders
# ------------------------------------------------------------------------------


def staged(*names: str) -> Callable[[Path, Path], None]:
    """Return what leaves results that are half in place, with names of files to take away."""

    def plant(run: Path, mine: Path) -> None:
        (run / ".results-new").mkdir()
        (run / ".results-new/.ready").write_text("\n".join(names).replace("MINE", str(mine)))

    return plant


def link(name: str, to: str, staging: bool = False) -> Callable[[Path, Path], None]:
    """Return what puts a link to something of the user's in the place of a file or folder."""

    def plant(run: Path, mine: Path) -> None:
        if staging:
            staged()(run, mine)
        path = run / name
        if path.is_dir():
            shutil.rmtree(path)
        path.unlink(missing_ok=True)
        path.symlink_to(mine / to)

    return plant


def hard_lock(run: Path, mine: Path) -> None:
    (run / ".lock").unlink(missing_ok=True)
    (run / ".lock").hardlink_to(mine / "thesis.txt")


def pipe(run: Path, mine: Path) -> None:
    (run / "run.json").unlink()
    os.mkfifo(run / "run.json")


def outer_ledger(run: Path, mine: Path) -> None:
    manifest = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps(manifest | {"ledger": "../mine/ledger.sqlite"}))


PLANTED = {
    "takes away above": staged("../mine/thesis.txt"),
    "takes away anywhere": staged("MINE/thesis.txt"),
    "takes away through a link": staged("report.html", "tables/../../mine/thesis.txt"),
    "takes away with NUL": staged("thesis\0.txt"),
    "lock": link(".lock", "thesis.txt"),
    "hard lock": hard_lock,
    "staging": link(".results-new", "sub"),
    "staged file": link(".results-new/metrics.json", "thesis.txt", staging=True),
    "mark": link(".results-new/.ready", "thesis.txt", staging=True),
    "tables": link("tables", "sub"),
    "manifest": link("run.json", "thesis.txt"),
    "prompt-sets": link("prompt_sets.jsonl", "thesis.txt"),
    "ledger": link("ledger.sqlite", "thesis.txt"),
    "ledger elsewhere": outer_ledger,
    "pipe": pipe,
}
SLOW = ("tables", "report")
"""Is seen when all is drawn."""


@pytest.mark.parametrize(
    ("name", "command"),
    [
        pytest.param(name, command, marks=[pytest.mark.slow] * ((name, command) == SLOW))
        for name in PLANTED
        for command in ("report", "evaluate")
    ],
)
def test_nothing_outside_a_received_run_is_touched(
    received: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    name: str,
    command: str,
) -> None:
    PLANTED[name](received, tmp_path / "mine")
    asked = ("evaluate", REFUSE, "--judge", JUDGE, "--limit", 1, "--out")
    assert exit_code(monkeypatch, *(("report",) if command == "report" else asked), received) == 2
    assert unhurt(tmp_path)
    assert len(list((tmp_path / "mine").rglob("*"))) == 3
    (line,) = (
        output_line
        for output_line in capsys.readouterr().err.splitlines()
        if output_line.startswith("error: ")
    )
    assert "expected" in line


def test_a_lock_that_becomes_a_link_after_the_look_is_not_followed(
    received: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link(".lock", "thesis.txt")(received, tmp_path / "mine")
    monkeypatch.setattr(replacing, "inside", lambda folder, name: folder / name)
    assert exit_code(monkeypatch, "report", received) == 2
    assert unhurt(tmp_path)


def test_shards_are_not_taken_up_through_a_link(
    received: Path, sent_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shard that was taken up is removed: the folder of the user's runs must not be one."""
    shutil.copytree(sent_run, tmp_path / "mine" / "earlier")
    (received / "shards").symlink_to(tmp_path / "mine")
    asked = ("evaluate", REFUSE, "--judge", JUDGE, "--limit", 1, "--out", received)
    assert exit_code(monkeypatch, *asked) == 2
    assert (tmp_path / "mine" / "earlier" / "ledger.sqlite").is_file()


def test_a_build_does_not_write_through_a_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "built"
    out.mkdir()
    (tmp_path / "thesis.txt").write_text("precious")
    (out / "build.md").symlink_to(tmp_path / "thesis.txt")
    models = ("--generator", "baseline/generator", "--judge", "baseline/construction-judge")
    command = ("build", *models, "--per-cell", 1, "--stages", "1-2", "--out", out)
    assert exit_code(monkeypatch, *command) == 2
    assert (tmp_path / "thesis.txt").read_text() == "precious"
    # without the link, the same command ends, and asks nothing again
    (out / "build.md").unlink()
    assert exit_code(monkeypatch, *command) in (0, 1)
    assert (out / "build.md").is_file()


def renamed(run: Path, old: str, new: str) -> None:
    """Have the manifest of a run and its ledger name something else."""
    (run / "run.json").write_text((run / "run.json").read_text().replace(old, new))
    if (run / "ledger.sqlite").is_file():
        with contextlib.closing(sqlite3.connect(run / "ledger.sqlite")) as connection, connection:
            connection.execute("UPDATE calls SET model = ? WHERE model = ?", (new, old))


def test_python_that_a_run_names_is_not_loaded(
    received: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "evil.py").write_text("open('PWNED', 'w')\ndef ask(messages): return '1'")
    monkeypatch.setattr(sys, "path", [*sys.path])
    renamed(received, JUDGE, "python/evil:ask@1")
    asked = ("evaluate", REFUSE, "--judge", JUDGE, "--limit", 2, "--out", received)
    for command in (asked, (*asked, "--dry-run"), ("compare", received)):
        exit_code(monkeypatch, *command)
        assert not (tmp_path / "PWNED").exists()
    assert exit_code(monkeypatch, *asked) == 2
    assert "the run has python/evil:ask@1, this has" in capsys.readouterr().err
    exit_code(monkeypatch, *asked, "--judge", "python/evil:ask@1")  # named: the user's own wish
    assert (tmp_path / "PWNED").exists()


@pytest.mark.parametrize("command", ["evaluate", "grade", "import"])
@pytest.mark.parametrize("inner", [False, True])
def test_a_ledger_elsewhere_is_written_only_if_the_command_names_it(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    command: str,
    inner: bool,
) -> None:
    """A path through the folder leads out of it too."""
    sets, run = dataset_file(tmp_path, made_dataset(prompt_set("a"))), tmp_path / "run"
    (tmp_path / "mine").mkdir()
    elsewhere = (run / ".." if inner else tmp_path) / "mine" / "ledger.sqlite"
    of_sets = ("--dataset", sets, "--out", run)
    bring = ("import", *of_sets, "--model", "m", graded(tmp_path / "x.jsonl", "harm_severity"))
    evaluated = ("evaluate", "baseline/comply-all", "--judge", JUDGE, *of_sets)
    exit_code(monkeypatch, *(evaluated if command == "evaluate" else bring))
    if command != "import":
        (run / "ledger.sqlite").rename(elsewhere)
    renamed(run, "ledger.sqlite", str(elsewhere))
    asked = {
        "evaluate": ("evaluate", REFUSE, "--judge", JUDGE, *of_sets),
        "grade": ("grade", run, "--judge", JUDGE),
        "import": bring,
    }[command]
    before = {path: path.read_bytes() for path in (tmp_path / "mine").iterdir()}
    capsys.readouterr()
    assert exit_code(monkeypatch, *asked) == 2
    assert f"expected --ledger {elsewhere}" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in (tmp_path / "mine").iterdir()} == before
    exit_code(monkeypatch, *asked, "--ledger", elsewhere)
    assert elsewhere.read_bytes() != before.get(elsewhere.resolve())


@pytest.fixture(scope="module")
def refused_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run over twelve sets."""
    folder = tmp_path_factory.mktemp("refused")
    sets = dataset_file(folder, made_dataset(*(prompt_set(f"s{n:02}") for n in range(12))))
    run = folder / "run"
    asked = {"models": (REFUSE,), "judges": (JUDGE,), "probe": "none"}
    evaluate(EvaluateSettings(dataset=sets, out=run, **asked))
    return run


@pytest.mark.parametrize(
    "command",
    [
        ("report", "RUN"),
        ("report", "RUN", "--out", "OUT"),
        ("report", "OWN", "--baseline", "RUN", "--fail-if-worse", "mean_utility=0.9"),
        ("compare", "RUN", "OWN"),
        ("trace", "RUN", "--worst", 1),
        ("export", "RUN", "--format", "jsonl", "--out", "OUT.jsonl"),
        ("export", "RUN", "--format", "every-eval-ever", "--out", "OUT"),
        ("annotate", "export", "judge", "RUN", "--sample", 3, "--annotators", "a", "--out", "OUT"),
        ("sample-size", "--difference", 0.1, "--pilot", "RUN"),
        ("batches", "RUN"),
        ("grade", "RUN", "--judge", JUDGE, "--out", "OUT", "--dry-run"),
    ],
    ids=lambda command: " ".join(map(str, command[:2])),
)
def test_a_ledger_outside_a_run_is_read_only_by_a_command_that_names_it(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    refused_run: Path,
    command: tuple[object, ...],
) -> None:
    places = {name: str(tmp_path / name.lower()) for name in ("RUN", "OWN", "OUT", "OUT.jsonl")}
    for name in ("RUN", "OWN"):
        shutil.copytree(refused_run, places[name])
    elsewhere = tmp_path / "mine.sqlite"
    run = Path(places["RUN"])
    (run / "ledger.sqlite").rename(elsewhere)
    renamed(run, '"ledger.sqlite"', f'"{elsewhere}"')
    words = [places.get(str(word), word) for word in command]
    files = [path for path in run.iterdir() if path.is_file() and path.name != ".lock"]
    before = {path: path.read_bytes() for path in files}
    capsys.readouterr()
    assert exit_code(monkeypatch, *words) == 2
    error = capsys.readouterr().err
    assert f"{run}: its ledger is outside the folder" in error
    assert f"expected --ledger {elsewhere}" in error
    assert {path: path.read_bytes() for path in before} == before
    other = (*words, "--ledger", tmp_path / "other.sqlite")
    assert exit_code(monkeypatch, *other) == 2
    code = exit_code(monkeypatch, *words, "--ledger", elsewhere)
    assert capsys.readouterr().err.count("outside the folder") == 1  # that of the other one
    # a share that never varies makes no pilot
    assert code in ((0, 1, 5) if command[0] != "sample-size" else (0, 2))


def test_each_command_asks_where_it_may_write() -> None:
    """No command opens the ledger that a manifest names for writing by itself."""
    opened = [
        ast.unparse(node)
        for _, node in source.nodes()
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Ledger"
    ]
    assert not [call for call in opened if ".ledger_path(" in call and "readonly=True" not in call]


# Ledgers
# ------------------------------------------------------------------------------

ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT"
FOREIGN = {
    "view": (
        "ALTER TABLE calls RENAME TO real",
        f"CREATE VIEW calls AS {ENDLESS} r.* FROM n, real r",
    ),
    "trigger": ("CREATE TRIGGER t AFTER INSERT ON calls BEGIN DELETE FROM calls; END",),
    "table": ("CREATE TABLE more (a)",),
    "index": ("DROP INDEX failures", "CREATE INDEX failures ON calls (hex(zeroblob(1000000000)))"),
    "less": ("DROP INDEX failures",),
}


@pytest.mark.parametrize("name", FOREIGN)
@pytest.mark.parametrize("command", ["report", "evaluate"])
def test_a_ledger_holds_our_tables_and_nothing_else(
    received: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    name: str,
    command: str,
) -> None:
    connection = sqlite3.connect(received / "ledger.sqlite")
    connection.execute("PRAGMA journal_mode = DELETE")
    for index in [*([] if name != "index" else ["DELETE FROM calls"]), *FOREIGN[name]]:
        connection.execute(index)
    connection.commit()
    connection.close()
    asked = ("evaluate", REFUSE, "--judge", JUDGE, "--limit", 1, "--out")
    assert exit_code(monkeypatch, *(("report",) if command == "report" else asked), received) == 2
    assert "expected the tables of a ledger and no other" in capsys.readouterr().err


def test_a_journal_that_names_another_file_is_refused(
    received: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """SQLite deletes the file that a journal names as its super-journal, once it is rolled back."""
    path, thesis = received / "ledger.sqlite", tmp_path / "mine" / "thesis.txt"
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = DELETE")
    connection.execute("PRAGMA cache_size = 1")
    connection.execute("BEGIN IMMEDIATE")
    for _ in range(100):  # more than the cache holds: the journal is on disk
        connection.execute("INSERT INTO texts (sha, body) VALUES (randomblob(32), zeroblob(9999))")
    content = {name: (received / name).read_bytes() for name in (path.name, f"{path.name}-journal")}
    connection.close()
    name, page = str(thesis).encode(), struct.unpack(">H", content[path.name][16:18])[0]
    sums = struct.pack(">II", len(name), sum(name))
    mark = bytes.fromhex("d9d505f920a163d7")
    record = struct.pack(">I", 0x40000000 // page + 1) + name + sums + mark
    path.write_bytes(content[path.name])
    path.with_name(f"{path.name}-journal").write_bytes(content[f"{path.name}-journal"] + record)
    asked = ("evaluate", REFUSE, "--judge", JUDGE, "--limit", 1, "--out", received)
    assert exit_code(monkeypatch, *asked) == 2
    assert unhurt(tmp_path)
    assert "names other files" in capsys.readouterr().err


# Models, files and places
# ------------------------------------------------------------------------------

UNFIT = {
    "no contract": "'Sure, here they are'",
    "declines": """'{"summaries": [], "declined": "I will not"}'""",
}


@pytest.mark.parametrize("says", UNFIT)
def test_a_build_that_makes_nothing_stops_paying_and_ends_with_1(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    says: str,
) -> None:
    """Of 42 cells, three passes and seven rounds each, no more is asked than shows that nothing
    will come.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    module = f"unfit_{says.replace(' ', '_')}"
    (tmp_path / f"{module}.py").write_text(f"def ask(messages): return {UNFIT[says]}")
    models = ("--generator", f"python/{module}:ask@1", "--judge", "baseline/construction-judge")
    asked = ("build", *models, "--per-cell", 1, "--out", "built")
    assert exit_code(monkeypatch, *asked, "--max-connections", 4) == 1
    printed = capsys.readouterr()
    assert "error: backfill: each of the first " in printed.err and "calls made." in printed.out
    with contextlib.closing(sqlite3.connect("built/ledger.sqlite")) as ledger:
        ((calls,),) = ledger.execute("SELECT count(*) FROM calls")
    assert calls < 3 * 100


def graded(path: Path, *grades: str) -> Path:
    """Write a file of one response with some of its grades."""
    record = {"id": "a", "variant": "benign", "response": "yes"} | dict.fromkeys(grades, 1)
    return json_lines(path, [record])


def test_half_of_the_grades_is_named_and_never_mixed_with_a_judges(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sets, run = dataset_file(tmp_path, made_dataset(prompt_set("a"))), tmp_path / "run"
    asked = ("import", "--dataset", sets, "--model", "m", "--out", run)
    exit_code(monkeypatch, *asked, graded(tmp_path / "harm.jsonl", "harm_severity"))
    printed = " ".join("".join(capsys.readouterr()).split())
    assert "1 response with a grade, but not both helpfulness and harm_severity" in printed
    exit_code(monkeypatch, "grade", run, "--judge", JUDGE)
    before = (run / "grades.csv.gz").read_bytes()
    exit_code(monkeypatch, *asked, tmp_path / "harm.jsonl")  # the same again changes nothing
    other_half = graded(tmp_path / "help.jsonl", "helpfulness")
    assert exit_code(monkeypatch, *asked, other_half) == 2
    assert "a judge has graded m, set a, benign" in capsys.readouterr().err
    assert (run / "grades.csv.gz").read_bytes() == before


def test_imported_grades_are_no_judge_of_a_panel() -> None:
    assert name_graders(("imported", JUDGE)) == f"{JUDGE}, or as imported"
    assert [name_graders(names) for names in ((), ("imported",), ("a", "b"))] == [
        "",
        "imported",
        "a + b",
    ]


def test_without_a_home_folder_the_cache_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", nowhere)
    for name in ("OPENSAFEINTENT_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(InputError, match="OPENSAFEINTENT_CACHE: is not set"):
        fetch_published_dataset("opensafeintent-115")


def test_too_small_a_limit_of_addresses_is_told_before_a_figure_is_drawn(
    received: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    resource = pytest.importorskip("resource")
    monkeypatch.setattr(resource, "getrlimit", lambda _: (3_000_000 * 1024, -1))
    assert exit_code(monkeypatch, "report", received) == 2
    assert "ulimit -v 3000000: leaves too few addresses" in capsys.readouterr().err
    assert not (received / ".results-new").exists()


@pytest.mark.parametrize(
    ("start", "kind"),
    [
        (b"\x1f\x8b\x08", "packed by gzip"),
        (b"PK\x03\x04", "packed by zip"),
        (b"\xff\xfea\0", "UTF-16"),
    ],
)
def test_a_file_of_another_kind_is_named(tmp_path: Path, start: bytes, kind: str) -> None:
    (tmp_path / "x.jsonl").write_bytes(start)
    with pytest.raises(InputError, match=rf"x\.jsonl: is {kind}; expected UTF-8"):
        read_text(tmp_path / "x.jsonl")


def test_two_marks_of_byte_order_are_no_part_of_a_column(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_bytes(b"\xef\xbb\xbf" * 2 + b"id,variant\na,benign\n")
    ((_, record),) = read_records(tmp_path / "x.csv")
    assert record == {"id": "a", "variant": "benign"}


@pytest.mark.parametrize("address", ["http://user:pw@127.0.0.1:9", "ftp://127.0.0.1"])
def test_a_mirror_is_an_address_without_a_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    monkeypatch.setenv("OPENSAFEINTENT_MIRROR", address)
    monkeypatch.setenv("OPENSAFEINTENT_CACHE", str(tmp_path))
    with pytest.raises(InputError, match="expected one that begins with https:// or") as raised:
        fetch_published_dataset("opensafeintent-115")
    assert "pw" not in str(raised.value)
