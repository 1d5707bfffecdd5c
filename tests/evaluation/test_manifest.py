"""The folder of a run: what it refuses to mix, who may read it, and that results are made of it
alone.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from endtoend import (
    KEY,
    TARGET,
    Lab,
    calls,
    coverage,
    evaluate,
    finish,
    grades,
    metrics,
    osi,
    some_sets,
    start,
    total,
    values,
    wait_until,
)
from loopback import GENERATE, HARM, Fault, LoopbackProcess, LoopbackServer, Match

pytestmark = pytest.mark.usefixtures("undrawn")

DERIVED = ("metrics.json", "grades.csv.gz")


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    """Two sets: fourteen prompts."""
    return some_sets(tmp_path, 2)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run over the two sets."""
    folder = tmp_path_factory.mktemp("finished")
    with LoopbackServer() as server:
        assert evaluate(server, some_sets(folder, 2), folder / "run").code == 0
    return folder / "run"


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    """A copy of the finished run, to do with as one likes."""
    return Path(shutil.copytree(finished, tmp_path / "run"))


@pytest.fixture
def done(server: LoopbackServer, dataset: Path, run: Path) -> Lab:
    return Lab(server, dataset, run)


# What cannot be mixed
# ------------------------------------------------------------------------------


def contents(folder: Path) -> dict[Path, bytes]:
    """Return what is in a folder but its lock, which holds the minute."""
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != ".lock")
    return {path: path.read_bytes() for path in files}


@pytest.mark.parametrize(
    ("options", "differs"),
    [
        (["--temperature", 0.5], '"temperature":0.5'),
        (["--temperature", 0.5, "--dry-run"], '"temperature":0.5'),
        (["--max-tokens", 50], '"max_tokens":4096'),
        (["--system", "Be brief."], "Be brief."),
        (["--reasoning-effort", "low"], "low"),
        (["-M", "seed=7"], '"seed":7'),
        (["--preset", "paper-code"], "paper-code"),
        (["--judge-max-tokens", 9], '"max_tokens":9'),
        (["--ledger", "elsewhere.sqlite"], "elsewhere.sqlite"),
        (["--dataset", "starter"], "starter (42 sets"),
    ],
)
def test_other_settings_are_refused_and_what_differs_is_said(
    done: Lab, options: list[object], differs: str
) -> None:
    before = contents(done.run)
    ran = done.evaluate(*options)
    assert ran.code == 2
    (line,) = ran.errors
    assert all(part in line for part in (differs, str(done.run), "--out"))
    assert not done.calls
    assert contents(done.run) == before


def test_a_dataset_is_known_by_its_content_not_its_file(done: Lab) -> None:
    lines = done.dataset.read_text().splitlines()
    again = done.dataset.with_name("again.jsonl")
    again.write_text("\n".join(reversed(lines)))
    assert evaluate(done.server, again, done.run).code == 0
    assert not done.calls
    changed = done.dataset.with_name("changed.jsonl")
    changed.write_text("\n".join(lines).replace("?", "!", 1))
    ran = evaluate(done.server, changed, done.run)
    assert ran.code == 2 and "changed (2 sets" in ran.errors[0]


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("run.json", b"{"),
        ("run.json", b"[]"),
        ("run.json", b'{"schema": 99}'),
        ("prompt_sets.jsonl", b""),
        ("prompt_sets.jsonl", None),
        ("ledger.sqlite", b"not a database, but long enough to look at" * 50),
        ("ledger.sqlite", b"\xff"),
    ],
)
def test_damaged_folder_is_refused_in_one_line(done: Lab, file: str, content: bytes | None) -> None:
    path = done.run / file
    good = path.read_bytes()
    path.unlink()
    if content == b"\xff":  # damage within a ledger that begins well
        path.write_bytes(good[: 3 * 4096] + content * len(good[3 * 4096 :]))
    elif content is not None:
        path.write_bytes(content)
    for ran in (done.evaluate(), osi("report", done.run)):
        assert ran.code == 2 and file in ran.errors[0]
        assert len(ran.errors) == 1
    assert not done.calls


# Names that were wrong at first
# ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong", [{"judges": ["openai-api/loop/jugde"]}, {"models": ["openai-api/loop/tagret"]}]
)
def test_a_misspelt_name_does_not_spoil_the_folder(
    dataset: Path, tmp_path: Path, wrong: dict[str, list[str]]
) -> None:
    run = tmp_path / "run"
    with LoopbackServer(models=["target", "judge"]) as server:
        assert evaluate(server, dataset, run, **wrong).code == 3
        assert evaluate(server, dataset, run).code == 0
    assert metrics(run)["partial"] is False
    assert metrics(run)["models"][TARGET]["triplet_safety"]["n"] == 2
    assert osi("report", run, "--fail-under", "mean_safety=0").code == 0


# Private, and written whole
# ------------------------------------------------------------------------------


def wide_open(folder: Path) -> dict[Path, str]:
    """Return what others than its user could read or enter."""
    modes = {path: path.stat().st_mode for path in (folder, *folder.rglob("*"))}
    private = {True: 0o700, False: 0o600}
    return {
        path: oct(mode)
        for path, mode in modes.items()
        if stat.S_IMODE(mode) != private[stat.S_ISDIR(mode)]
    }


@pytest.mark.slow
def test_run_folder_is_private_while_it_grows_and_afterwards(dataset: Path, tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        with LoopbackProcess(latency=0.3) as server:
            ledger = tmp_path / "apart" / "shared.sqlite"
            process = start(server, dataset, tmp_path / "run", "--ledger", ledger)
            wait_until(lambda: total(server) >= 14)
            assert (tmp_path / "apart" / "shared.sqlite-wal").exists()
            assert not wide_open(tmp_path / "run") | wide_open(tmp_path / "apart")
            assert finish(process).code == 0
    finally:
        os.umask(old)
    assert (tmp_path / "run" / "tables" / "coverage.csv").exists()
    assert not wide_open(tmp_path / "run") | wide_open(tmp_path / "apart")


def test_key_is_written_nowhere(lab: Lab) -> None:
    some, harm = Match(purpose=GENERATE, every=2), Match(purpose=HARM)
    lab.server.set_faults(
        Fault(action="status", status=400, message=f"Not with {KEY}!", match=some),
        Fault(action="status", status=401, message=f"Bad {KEY}", match=harm),
    )
    ran = lab.evaluate()
    assert ran.code == 3
    assert KEY not in ran.out + ran.err
    held = contents(lab.run)
    assert [path for path, content in held.items() if KEY.encode() in content] == []


@pytest.mark.skipif(
    not os.access("/sys", os.F_OK), reason="needs a folder that nobody can write to"
)
def test_folder_that_cannot_be_written_is_refused_before_any_call(lab: Lab) -> None:
    for out in ("/sys", "/sys/run"):
        ran = evaluate(lab.server, lab.dataset, Path(out))
        assert ran.code == 2
        (line,) = ran.errors
        assert out in line
    assert not lab.calls


def test_read_only_run_can_be_reported_elsewhere_and_not_evaluated_into(
    done: Lab, tmp_path: Path
) -> None:
    for path in [*done.run.rglob("*"), done.run]:
        path.chmod(0o500 if path.is_dir() else 0o400)
    try:
        if os.access(done.run, os.W_OK):
            pytest.skip("this user writes everywhere")
        assert done.evaluate().code == 2
        assert not done.calls
        assert osi("report", done.run).code == 2
        assert osi("report", done.run, "--out", tmp_path / "report").code == 0
    finally:
        for path in [done.run, *done.run.rglob("*")]:
            path.chmod(0o700)


@pytest.mark.slow
def test_two_processes_do_not_share_a_folder(dataset: Path, tmp_path: Path) -> None:
    with LoopbackProcess(latency=0.3) as server:
        first = start(server, dataset, tmp_path / "run")
        wait_until(lambda: total(server) >= 1)
        second = evaluate(server, dataset, tmp_path / "run")
        assert second.code == 2
        (line,) = second.errors
        assert str(tmp_path / "run") in line and f"process {first.pid} on " in line
        assert line.endswith("; wait for it, or add --wait")
        assert finish(first).code == 0
        assert server.stats()["duplicates"] == 0


# Made of the manifest and the ledger alone
# -----------------------------------------------------------------------------


def derived(run: Path) -> dict[Path, bytes]:
    return {
        path: path.read_bytes() for path in (*map(run.joinpath, DERIVED), *run.glob("tables/*"))
    }


def test_results_with_failures_are_rebuilt_byte_for_byte_and_end_as_before(lab: Lab) -> None:
    matches = (Match(purpose=GENERATE, every=5), Match(purpose=HARM, every=5))
    lab.server.set_faults(
        *(Fault(action="status", status=400, message="Odd.", match=match) for match in matches)
    )
    models = [f"openai-api/loop/{name}" for name in ("zebra", "ant", "mole")]  # their order stays
    assert lab.evaluate(models=models).code == 1
    before = derived(lab.run)
    assert len(before) > 5 and coverage(lab.run, models[0])["missing"]["core"]
    for name in DERIVED:
        (lab.run / name).unlink()
    shutil.rmtree(lab.run / "tables")
    assert osi("report", lab.run).code == 1
    assert derived(lab.run) == before


# One judge, named everywhere
# ------------------------------------------------------------------------------


def test_demonstration_judge_of_modes_is_named_where_modes_are(lab: Lab) -> None:
    ran = lab.evaluate("--mode-judge", "baseline/judge")
    assert ran.code == 0
    assert "baseline/judge" in ran.out
    assert any("baseline/judge" in note for note in metrics(lab.run)["notes"])
    for table in ("table_5_modes.csv", "metrics.csv"):
        assert "baseline/judge" in (lab.run / "tables" / table).read_text(), table
    assert any("baseline/judge" in value for row in grades(lab.run) for value in row.values())


def test_one_target_that_stops_leaves_the_other_whole(dataset: Path, tmp_path: Path) -> None:
    with LoopbackServer(models=["target", "judge"]) as server:
        ran = evaluate(server, dataset, tmp_path / "run", models=[TARGET, "openai-api/loop/gone"])
        assert ran.code == 3
        (line,) = (line for line in ran.errors if "openai-api/loop/gone" in line)
        assert "`gone` does not exist" in line
        assert calls(server)[GENERATE] <= 28
    assert coverage(tmp_path / "run")["counted"] == 14
    assert metrics(tmp_path / "run")["models"][TARGET]["triplet_safety"]["n"] == 2
    assert metrics(tmp_path / "run")["models"]["openai-api/loop/gone"]["triplet_safety"]["n"] == 0
    assert values(grades(tmp_path / "run", TARGET), "missing") == {""}


# What it refers to
# ------------------------------------------------------------------------------


def of_target(**changes: Any) -> Callable[[dict[str, Any]], None]:
    return lambda manifest: manifest["models"][TARGET].update(changes)


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda manifest: manifest["judges"].clear(), "the judge 'openai-api/loop/judge'"),
        (lambda manifest: manifest["templates"].clear(), "a template for "),
        (of_target(judges=[]), "a judge of 'openai-api/loop/target'"),
        (of_target(mode_judge="a/b"), "the judge 'a/b'"),
        (of_target(templates={"harm": "0" * 64}), "a template for "),
        (of_target(epochs=10**9), "epochs"),
        (of_target(limit=-1), "limit"),
        (lambda manifest: next(iter(manifest["templates"].values())).update(source="x"), "the template "),
    ],
)  # fmt: skip
def test_a_manifest_that_names_what_it_does_not_hold_is_refused(
    run: Path, damage: Any, words: str
) -> None:
    manifest = json.loads((run / "run.json").read_text())
    damage(manifest)
    (run / "run.json").write_text(json.dumps(manifest))
    ran = osi("report", run)
    assert ran.code == 2
    (line,) = ran.errors
    assert "run.json" in line and words in line
