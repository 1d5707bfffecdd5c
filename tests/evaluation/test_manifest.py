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
    coverage,
    entry,
    evaluate,
    fails,
    finish,
    metrics,
    osi,
    some_sets,
    start,
    total,
    wait_until,
)
from loopback import GENERATE, HARM, LoopbackProcess, LoopbackServer
from opensafeintent.evaluation.plan import _PARTS, Plan


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
def done(server: LoopbackServer, dataset: Path, finished: Path, tmp_path: Path) -> Lab:
    """A copy of the finished run, to do with as one likes."""
    return Lab(server, dataset, Path(shutil.copytree(finished, tmp_path / "run")))


# What cannot be mixed
# ------------------------------------------------------------------------------


def contents(folder: Path) -> dict[Path, bytes]:
    """Return what is in a folder but its lock, which holds the minute."""
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != ".lock")
    return {path: path.read_bytes() for path in files}


@pytest.mark.parametrize(
    ("options", "differs"),
    [
        (["--temperature", 0.5, "--dry-run"], '"temperature":0.5'),
        (["--max-tokens", 50], '"max_tokens":4096'),
        (["--system", "Be brief."], "Be brief."),
        (["--reasoning-effort", "low"], "low"),
        (["-M", "seed=7"], '"seed":7'),
        (["--judge-arg", "max_tokens=9"], '"max_tokens":9'),
        (["--mode-judge", "openai-api/loop/other"], "judge of modes"),
        (["--ledger", "elsewhere.sqlite"], "elsewhere.sqlite"),
    ],
)
def test_other_settings_are_refused(done: Lab, options: list[object], differs: str) -> None:
    before = contents(done.run)
    other = "--dataset" in options
    ran = evaluate(done.server, Path("starter"), done.run) if other else done.evaluate(*options)
    (line,) = ran.errors
    assert ran.code == 2 and not done.calls
    assert all(part in line for part in (differs, str(done.run), "--out"))
    assert contents(done.run) == before


def test_another_dataset_is_refused(done: Lab) -> None:
    before = contents(done.run)
    ran = evaluate(done.server, Path("starter"), done.run)
    assert all(part in ran.refusal for part in ("starter (42 sets", str(done.run), "--out"))
    assert contents(done.run) == before


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
        (line,) = ran.errors
        assert ran.code == 2 and file in line
    assert not done.calls


# Names that were wrong at first
# ------------------------------------------------------------------------------


@pytest.mark.slow
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
    assert entry(run, "triplet_safety")["n"] == 2
    assert osi("report", run, "--fail-under", "mean_safety=0.01").code in (0, 5)


# Private, and written whole
# ------------------------------------------------------------------------------


def wide_open(folder: Path) -> dict[Path, str]:
    """Return what others than its user could read or enter."""
    modes = {path: path.stat().st_mode for path in (folder, *folder.rglob("*"))}
    return {
        path: oct(mode)
        for path, mode in modes.items()
        if stat.S_IMODE(mode) != (0o700 if stat.S_ISDIR(mode) else 0o600)
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
    lab.server.set_faults(
        fails(400, GENERATE, message=f"Not with {KEY}!", every=2),
        fails(401, HARM, message=f"Bad {KEY}"),
    )
    ran = lab.evaluate()
    assert ran.code == 3
    assert KEY not in ran.out + ran.err
    assert [path for path, content in contents(lab.run).items() if KEY.encode() in content] == []


def test_read_only_run_can_be_reported_elsewhere_alone(done: Lab, tmp_path: Path) -> None:
    for path in [*done.run.rglob("*"), done.run]:
        path.chmod(0o500 if path.is_dir() else 0o400)
    try:
        if os.access(done.run, os.W_OK):
            pytest.skip("this user writes everywhere")
        assert (done.evaluate().code, osi("report", done.run).code) == (2, 2)
        assert not done.calls
        assert osi("report", done.run, "--out", tmp_path / "report").code == 0
    finally:
        for path in [done.run, *done.run.rglob("*")]:
            path.chmod(0o700)


# Made of the manifest and the ledger alone
# -----------------------------------------------------------------------------


def derived(run: Path) -> dict[Path, bytes]:
    files = (run / "metrics.json", run / "grades.csv.gz", *run.glob("tables/*"))
    return {path: path.read_bytes() for path in files}


@pytest.mark.slow
def test_results_with_failures_are_rebuilt_byte_for_byte_and_end_as_before(lab: Lab) -> None:
    lab.server.set_faults(fails(400, GENERATE, every=5), fails(400, HARM, every=5))
    models = [f"openai-api/loop/{name}" for name in ("zebra", "ant", "mole")]  # their order stays
    assert lab.evaluate(models=models).code == 1
    before = derived(lab.run)
    # which models the faults meet depends on the order in which calls arrive
    assert len(before) > 5
    assert any(coverage(lab.run, model)["missing"]["core"] for model in models)
    for path in before:
        path.unlink()
    assert osi("report", lab.run).code == 1
    assert derived(lab.run) == before


# One judge, named everywhere
# ------------------------------------------------------------------------------


# What it refers to
# ------------------------------------------------------------------------------


def of_plan(**changes: Any) -> Callable[[dict[str, Any]], None]:
    return lambda manifest: manifest["plan"].update(changes)


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda manifest: manifest["judges"].clear(), "the judge 'openai-api/loop/judge'"),
        (lambda manifest: manifest["templates"].clear(), "a template for "),
        (of_plan(judges=[]), "a judge of 'openai-api/loop/target'"),
        (of_plan(mode_judge="a/b"), "the judge 'a/b'"),
        (of_plan(templates={"harm": "0" * 64}), "a template for "),
        (of_plan(epochs=10**9), "epochs"),
        (of_plan(limit=-1), "limit"),
        (lambda manifest: next(iter(manifest["templates"].values())).update(source="x"), "the template "),
    ],
)  # fmt: skip
def test_a_manifest_that_names_what_it_does_not_hold_is_refused(
    done: Lab, damage: Any, words: str
) -> None:
    manifest = json.loads((done.run / "run.json").read_text())
    damage(manifest)
    (done.run / "run.json").write_text(json.dumps(manifest))
    ran = osi("report", done.run)
    (line,) = ran.errors
    assert ran.code == 2 and "run.json" in line and words in line


@pytest.mark.parametrize(
    "command", ["report", "trace --worst 5", "export --format csv --out o.csv"]
)
@pytest.mark.parametrize(
    ("many", "words"),
    [
        (lambda entry: {"models": {f"m{n}": entry for n in range(501)}}, "names 501 models"),
        (lambda _: {"judges": {f"j{n}": "j" for n in range(101)}}, "names 101 judges"),
        (lambda entry: {"models": {"x" * 501: entry}}, "has 501 characters"),
    ],
    ids=["models", "judges", "name"],
)
def test_a_manifest_with_more_names_than_a_report_can_show_is_refused(
    done: Lab, monkeypatch: pytest.MonkeyPatch, many: Any, words: str, command: str
) -> None:
    """A hundred thousand models took every command more than 100 seconds."""
    monkeypatch.chdir(done.run.parent)
    manifest = json.loads((done.run / "run.json").read_text())
    manifest |= many(manifest["models"][TARGET])
    (done.run / "run.json").write_text(json.dumps(manifest))
    name, *options = command.split()
    (line,) = osi(name, done.run, *options).errors
    assert "run.json" in line and words in line
    assert not Path("o.csv").exists()


def test_each_part_of_a_plan_says_how_it_may_grow() -> None:
    assert {*_PARTS, "judge_samplings"} == {*Plan.__struct_fields__}
