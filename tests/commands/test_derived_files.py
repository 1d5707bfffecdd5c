"""What is derived from a run is of one state of its ledger, and replaced together or not at all."""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from endtoend import REPO, environment, grades, metrics, osi, values
from opensafeintent import replacing

BASELINES = ("baseline/refuse-all", "baseline/comply-all")
_NOTE = "RESULTS-INCOMPLETE.txt"


def evaluated(out: Path, *models: str, limit: int = 6) -> str:
    """Evaluate baselines, and return what the command says."""
    ran = osi("evaluate", *models, "--judge", "baseline/judge", "--limit", limit, "--out", out)
    assert ran.code in (0, 1), ran
    return ran.out + ran.err


def models_in(table: Path) -> set[str]:
    with table.open(newline="") as file:
        return {row["model"] for row in csv.DictReader(file)} - {"model average"}


def models_of(out: Path) -> dict[str, set[str]]:
    """Return the models that each kind of derived file in a folder knows of."""
    models_by_file = {
        "metrics": set(metrics(out)["models"]),
        "grades": values(grades(out), "model"),
    }
    models_by_file["tables"] = models_in(out / "tables" / "metrics.csv")
    if (out / "figures").is_dir():
        models_by_file["figures"] = models_in(out / "figures" / "fig_2_safety.csv")
    if (out / "report.html").exists():
        page = (out / "report.html").read_text("utf-8")
        listed = re.search(r'id="data-sets">(.*?)</script>', page, re.DOTALL)
        assert listed
        models_by_file["page"] = {model["name"] for model in json.loads(listed[1])["models"]}
    return models_by_file


def agree(out: Path) -> set[str]:
    """Check that all derived files of a folder are of one state, and return its models."""
    models_by_file = models_of(out)
    assert len({frozenset(models) for models in models_by_file.values()}) == 1, models_by_file
    return models_by_file["metrics"]


@pytest.fixture(scope="module")
def grown(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose results are of one model, and whose ledger and manifest know two."""
    out = tmp_path_factory.mktemp("grown") / "run"
    evaluated(out, BASELINES[0])
    assert osi("report", out).code == 0
    earlier = out.parent / "earlier"
    shutil.copytree(out, earlier)
    evaluated(out, *BASELINES)
    for name in ("metrics.json", "grades.csv.gz", "report.html"):
        shutil.copy(earlier / name, out / name)
    for name in ("tables", "figures"):
        shutil.rmtree(out / name, ignore_errors=True)
        shutil.copytree(earlier / name, out / name)
    (out / "tables" / "mine.txt").write_text("a file of the user")
    assert agree(out) == {BASELINES[0]}
    return out


_ENDED_AT_A_MOVE = """
import os, pathlib, signal, sys
from opensafeintent.cli import main
from samples import without_drawing
left = int(sys.argv.pop(1))
move = pathlib.Path.replace
def replace(self, target):
    global left
    moved = move(self, target)
    left -= 1
    if not left:
        os.kill(os.getpid(), signal.SIGKILL)
    return moved
pathlib.Path.replace = replace
with without_drawing():
    main()
"""


@pytest.fixture
def out(grown: Path, tmp_path: Path) -> Path:
    """Such a run of the test's own."""
    return Path(shutil.copytree(grown, tmp_path / "run"))


@pytest.mark.slow
@pytest.mark.parametrize("moves", [20, 101, 150])
def test_a_process_that_is_killed_leaves_one_set_or_the_other(out: Path, moves: int) -> None:
    command = [sys.executable, "-c", _ENDED_AT_A_MOVE, str(moves), "report", str(out)]
    env = environment(PYTHONPATH=os.pathsep.join(sys.path))
    subprocess.run(command, env=env, capture_output=True, cwd=REPO, check=False)
    is_moving = (out / _NOTE).exists()
    if is_moving:  # it was moving: who keeps the folder next goes on
        with replacing.lock_folder(out, "looking into"):
            pass
    assert agree(out) in ({BASELINES[0]}, set(BASELINES))
    assert not is_moving or agree(out) == set(BASELINES)
    assert not (out / _NOTE).exists()
    assert (out / "tables" / "mine.txt").read_text() == "a file of the user"
    assert osi("report", out).code == 0
    assert agree(out) == set(BASELINES)
    hidden = {path.name for path in out.iterdir() if path.name.startswith(".")}
    assert hidden <= {".lock", ".ledger.sqlite.lock"}


@pytest.mark.slow
@pytest.mark.parametrize("failing", ["metrics.json", "report.html", ".ready"])
def test_a_full_disk_leaves_the_earlier_set(
    out: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    def files_of() -> dict[Path, bytes]:
        files = (path for path in out.rglob("*") if path.is_file() and path.name != ".lock")
        return {path: path.read_bytes() for path in files}

    before, replace = files_of(), Path.replace

    def full(self: Path, target: Path) -> Path:
        if Path(target).name == failing:
            raise OSError(28, "No space left on device")
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", full)
    ran = osi("report", out)
    assert ran.code == 2
    assert "No space left on device" in ran.err
    assert files_of() == before


def test_a_report_beside_an_evaluation_is_refused_or_put_elsewhere(
    tmp_path: Path, grown: Path
) -> None:
    with replacing.lock_folder(grown, "evaluating into"):
        refused = osi("report", grown)
        elsewhere = osi("report", grown, "--out", tmp_path / "look")
    assert refused.code == 2
    assert f"error: {grown}: process {os.getpid()} on " in refused.errors[-1]
    assert " has been evaluating into this folder since " in refused.errors[-1]
    assert elsewhere.code == 0
    assert agree(tmp_path / "look") == set(BASELINES)
    assert not (tmp_path / "look" / ".lock").exists() and (grown / ".lock").exists()
    with replacing.lock_folder(tmp_path / "look", "writing a report into"):
        twice = osi("report", grown, "--out", tmp_path / "look")
    assert twice.code == 2
    assert " has been writing a report into this folder since " in twice.err


def test_what_stands_in_the_way_is_said_before_anything_is_moved(out: Path) -> None:
    (out / "metrics.json").unlink()
    (out / "metrics.json").mkdir()
    ran = osi("report", out)
    assert ran.code == 2
    assert f"{out / 'metrics.json'}: is a folder; expected a file" in ran.err
    assert (out / "report.html").exists()
    assert not (out / _NOTE).exists()


def test_a_page_that_shows_the_same_numbers_stays(tmp_path: Path) -> None:
    out = tmp_path / "run"
    evaluated(out, BASELINES[0])
    assert osi("report", out).code == 0
    page = (out / "report.html").read_bytes()
    assert "out of date" not in evaluated(out, BASELINES[0])
    assert (out / "report.html").read_bytes() == page
    assert any((out / "figures").glob("*.svg"))
    assert "out of date" in evaluated(out, *BASELINES)
    assert not (out / "report.html").exists() and not (out / "figures").exists()


@pytest.mark.parametrize(
    "command",
    [
        ("report", "{own}"),
        ("report", "{own}", "{other}"),
        ("compare", "{own}", "{other}"),
        ("judge-check", "--judge", "baseline/judge"),
        ("judge-check", "--judge", "baseline/judge", "--dry-run"),
        ("build", "--per-cell", "1", "--generator", "baseline/generator", "--judge", "mock/judge"),
    ],
)
def test_no_command_writes_results_into_another_run(
    two: Mapping[str, Path], command: Sequence[str]
) -> None:
    before = content_of(two["other"])
    refused = osi(*(word.format_map(two) for word in command), "--out", two["other"])
    assert "holds a run (run.json)" in refused.refusal
    assert content_of(two["other"]) == before


def test_a_run_is_no_place_for_a_build_nor_a_build_for_a_run(tmp_path: Path) -> None:
    (tmp_path / "build.json").write_text("{}")
    for words in (
        ("evaluate", *BASELINES, "--judge", "baseline/judge", "--limit", 1),
        ("judge-check", "--judge", "baseline/judge"),
    ):
        assert "holds a build (build.json)" in osi(*words, "--out", tmp_path).refusal
    assert [path.name for path in tmp_path.iterdir()] == ["build.json"]


@pytest.mark.slow
def test_a_report_may_name_the_run_itself(two: Mapping[str, Path]) -> None:
    same = two["own"].parent / "other" / ".." / "own"
    assert osi("report", two["own"], "--out", same).code == 0


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Two runs."""
    folder = tmp_path_factory.mktemp("two")
    for name, model in zip(("own", "other"), BASELINES, strict=True):
        evaluated(folder / name, model, limit=3)
    return {name: folder / name for name in ("own", "other")}


def content_of(folder: Path) -> dict[str, bytes]:
    """Return the files of a folder."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }
