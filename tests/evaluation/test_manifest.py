"""The folder of a run: what it refuses to mix, who may read it, and that results are made of it
alone.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import stat
from pathlib import Path
from typing import Any

import pytest

from endtoend import (
    JUDGE,
    KEY,
    TARGET,
    begin,
    calls,
    coverage,
    evaluate,
    finish,
    grades,
    metrics,
    osi,
    some_sets,
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


# What cannot be mixed
# ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "differs"),
    [
        (["--temperature", 0.5], '"temperature":0.5'),
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
@pytest.mark.parametrize("dry", [False, True], ids=["run", "dry run"])
def test_other_settings_are_refused_and_what_differs_is_said(
    server: LoopbackServer, dataset: Path, run: Path, options: list[object], differs: str, dry: bool
) -> None:
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    ran = evaluate(server, dataset, run, *options, *(["--dry-run"] if dry else []))
    assert ran.code == 2
    (line,) = ran.errors
    assert differs in line
    assert str(run) in line
    assert "--out" in line
    assert server.stats()["total"] == 0
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before


def test_dataset_is_known_by_its_content_not_its_file(
    server: LoopbackServer, dataset: Path, run: Path
) -> None:
    again = dataset.with_name("other-name.jsonl")
    records = (
        json.loads(dataset.read_text())
        if dataset.suffix == ".json"
        else map(json.loads, dataset.open())
    )
    again.write_text("".join(json.dumps(record) + "\n" for record in reversed(list(records))))
    assert evaluate(server, again, run).code == 0
    assert server.stats()["total"] == 0


def test_one_prompt_changed_is_another_dataset(
    server: LoopbackServer, dataset: Path, run: Path
) -> None:
    changed = dataset.with_name(f"changed{dataset.suffix}")
    changed.write_text(dataset.read_text().replace("?", "!", 1))
    ran = evaluate(server, changed, run)
    assert ran.code == 2
    assert "changed (2 sets" in ran.errors[0]


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("run.json", b"{"),
        ("run.json", b"[]"),
        ("run.json", b'{"schema": 99}'),
        ("prompt_sets.jsonl", b""),
        ("prompt_sets.jsonl", None),
        ("ledger.sqlite", b"not a database, but long enough to look at" * 50),
    ],
)
def test_damaged_folder_is_refused_in_one_line(
    server: LoopbackServer, dataset: Path, run: Path, file: str, content: bytes | None
) -> None:
    if content is None:
        (run / file).unlink()
    else:
        (run / file).write_bytes(content)
    for ran in (evaluate(server, dataset, run), osi("report", run)):
        assert ran.code == 2
        (line,) = ran.errors
        assert file in line
    assert server.stats()["total"] == 0


def test_damage_within_the_ledger_is_refused_in_one_line(
    server: LoopbackServer, dataset: Path, run: Path
) -> None:
    ledger = run / "ledger.sqlite"
    raw = bytearray(ledger.read_bytes())
    raw[3 * 4096 :] = b"\xff" * len(raw[3 * 4096 :])
    ledger.write_bytes(raw)
    for ran in (evaluate(server, dataset, run), osi("report", run)):
        assert ran.code == 2
        assert "ledger.sqlite" in ran.errors[0]


# Names that were wrong at first
# ------------------------------------------------------------------------------


def test_misspelt_judge_does_not_spoil_the_folder(dataset: Path, tmp_path: Path) -> None:
    with LoopbackServer(models=["target", "judge"]) as server:
        assert (
            evaluate(server, dataset, tmp_path / "run", judges=["openai-api/loop/jugde"]).code == 3
        )
        ran = evaluate(server, dataset, tmp_path / "run")
    assert ran.code == 0, ran.out
    assert metrics(tmp_path / "run")["models"][TARGET]["triplet_safety"]["n"] == 2


@pytest.mark.slow
def test_misspelt_target_does_not_spoil_the_folder(dataset: Path, tmp_path: Path) -> None:
    with LoopbackServer(models=["target", "judge"]) as server:
        assert (
            evaluate(server, dataset, tmp_path / "run", models=["openai-api/loop/tagret"]).code == 3
        )
        assert evaluate(server, dataset, tmp_path / "run").code == 0
    assert metrics(tmp_path / "run")["partial"] is False
    assert osi("report", tmp_path / "run", "--fail-under", "mean_safety=0").code == 0


# Private, and written whole
# ------------------------------------------------------------------------------


def wide_open(folder: Path) -> dict[str, str]:
    """Return what others than its user could read or enter."""
    modes = {
        str(path.relative_to(folder.parent)): path.stat().st_mode
        for path in [folder, *folder.rglob("*")]
    }
    private = {True: 0o700, False: 0o600}
    return {
        name: oct(mode)
        for name, mode in modes.items()
        if stat.S_IMODE(mode) != private[stat.S_ISDIR(mode)]
    }


@pytest.mark.slow
def test_run_folder_is_private_while_it_grows_and_afterwards(dataset: Path, tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        with LoopbackProcess(latency=0.3) as server:
            options = [
                "--dataset",
                dataset,
                "--out",
                tmp_path / "run",
                "--ledger",
                tmp_path / "apart" / "shared.sqlite",
            ]
            process = begin("evaluate", TARGET, "--judge", JUDGE, *options, server=server)
            wait_until(lambda: server.stats()["total"] >= 14)
            assert (tmp_path / "apart" / "shared.sqlite-wal").exists()
            assert not wide_open(tmp_path / "run") | wide_open(tmp_path / "apart")
            assert finish(process).code == 0
    finally:
        os.umask(old)
    assert (tmp_path / "run" / "tables" / "coverage.csv").exists()
    assert not wide_open(tmp_path / "run") | wide_open(tmp_path / "apart")


def test_key_is_written_nowhere(server: LoopbackServer, dataset: Path, tmp_path: Path) -> None:
    echo = Fault(
        action="status",
        status=400,
        message=f"Not with {KEY}!",
        match=Match(purpose=GENERATE, every=2),
    )
    server.set_faults(
        echo, Fault(action="status", status=401, message=f"Bad {KEY}", match=Match(purpose=HARM))
    )
    ran = evaluate(server, dataset, tmp_path / "run")
    assert ran.code == 3
    assert KEY not in ran.out + ran.err
    holders = [
        path.name
        for path in (tmp_path / "run").rglob("*")
        if path.is_file() and KEY.encode() in path.read_bytes()
    ]
    assert not holders


@pytest.mark.skipif(
    not os.access("/sys", os.F_OK), reason="needs a folder that nobody can write to"
)
def test_folder_that_cannot_be_written_is_refused_before_any_call(
    server: LoopbackServer, dataset: Path
) -> None:
    for out in ("/sys", "/sys/run"):
        ran = evaluate(server, dataset, Path(out))
        assert ran.code == 2
        (line,) = ran.errors
        assert out in line
    assert server.stats()["total"] == 0


def test_read_only_run_can_be_reported_elsewhere_and_not_evaluated_into(
    server: LoopbackServer, dataset: Path, run: Path, tmp_path: Path
) -> None:
    for path in [*run.rglob("*"), run]:
        path.chmod(0o500 if path.is_dir() else 0o400)
    try:
        if os.access(run, os.W_OK):
            pytest.skip("this user writes everywhere")
        assert evaluate(server, dataset, run).code == 2
        assert server.stats()["total"] == 0
        assert osi("report", run).code == 2
        assert osi("report", run, "--out", tmp_path / "report").code == 0
    finally:
        for path in [run, *run.rglob("*")]:
            path.chmod(0o700)


@pytest.mark.usefixtures("unmeasured")
def test_full_disk_is_one_line_and_the_rest_is_made_later(
    server: LoopbackServer, dataset: Path, tmp_path: Path
) -> None:
    resource = pytest.importorskip("resource")
    server.set_faults(Fault(action="delay", seconds=0.1))
    options = [
        "evaluate",
        TARGET,
        "--judge",
        JUDGE,
        "--dataset",
        dataset,
        "--out",
        tmp_path / "run",
        "--max-connections",
        8,
    ]
    small = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(
        resource.RLIMIT_FSIZE, (60_000, small[1])
    )  # as large as a file may become: for the child
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        process = begin(*options, server=server)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, small)
        signal.signal(signal.SIGXFSZ, ignored)
    ran = finish(process)
    assert ran.code == 2, ran.err
    (line,) = ran.errors
    assert "ledger.sqlite" in line
    server.set_faults()
    assert evaluate(server, dataset, tmp_path / "run").code == 0


@pytest.mark.slow
def test_two_processes_do_not_share_a_folder(dataset: Path, tmp_path: Path) -> None:
    with LoopbackProcess(latency=0.3) as server:
        options = ["--dataset", dataset, "--out", tmp_path / "run"]
        first = begin("evaluate", TARGET, "--judge", JUDGE, *options, server=server)
        wait_until(lambda: server.stats()["total"] >= 1)
        second = evaluate(server, dataset, tmp_path / "run")
        assert second.code == 2
        (line,) = second.errors
        assert str(tmp_path / "run") in line
        assert f"process {first.pid} on " in line
        assert line.endswith("; wait for it, or add --wait")
        assert finish(first).code == 0
        assert server.stats()["duplicates"] == 0


# Made of the manifest and the ledger alone
# -----------------------------------------------------------------------------


def rebuilt(run: Path) -> dict[str, bytes]:
    """Delete all that is derived, let `report` make it again, and return it."""
    for name in DERIVED:
        (run / name).unlink()
    shutil.rmtree(run / "tables")
    osi("report", run)
    return derived(run)


def derived(run: Path) -> dict[str, bytes]:
    paths = [*(run / name for name in DERIVED), *(run / "tables").iterdir()]
    return {path.name: path.read_bytes() for path in paths}


def test_results_are_rebuilt_byte_for_byte(run: Path) -> None:
    before = derived(run)
    assert len(before) > 5
    assert rebuilt(run) == before


def test_order_of_models_does_not_change_when_results_are_rebuilt(
    server: LoopbackServer, dataset: Path, tmp_path: Path
) -> None:
    models = [f"openai-api/loop/{name}" for name in ("zebra", "ant", "mole")]
    assert evaluate(server, dataset, tmp_path / "run", models=models).code == 0
    before = derived(tmp_path / "run")
    assert rebuilt(tmp_path / "run") == before


def test_results_with_failures_are_rebuilt_byte_for_byte(
    server: LoopbackServer, dataset: Path, tmp_path: Path
) -> None:
    server.set_faults(
        Fault(action="status", status=400, message="Odd.", match=Match(purpose=GENERATE, every=5)),
        Fault(action="status", status=400, message="Odd.", match=Match(purpose=HARM, every=5)),
    )
    assert evaluate(server, dataset, tmp_path / "run").code == 1
    before = derived(tmp_path / "run")
    after = rebuilt(tmp_path / "run")
    assert (
        coverage(tmp_path / "run")["missing"]
        == json.loads(before["metrics.json"])["coverage"][TARGET]["missing"]
    )
    assert after == before


def test_report_ends_as_the_evaluation_did(
    server: LoopbackServer, dataset: Path, tmp_path: Path
) -> None:
    server.set_faults(
        Fault(action="status", status=400, message="Odd.", match=Match(purpose=GENERATE, every=5))
    )
    assert evaluate(server, dataset, tmp_path / "run").code == 1
    assert osi("report", tmp_path / "run").code == 1


# One judge, named everywhere
# ------------------------------------------------------------------------------


def test_demonstration_judge_of_modes_is_named_where_modes_are(
    server: LoopbackServer, dataset: Path, tmp_path: Path
) -> None:
    ran = evaluate(server, dataset, tmp_path / "run", "--mode-judge", "baseline/judge")
    assert ran.code == 0
    assert "baseline/judge" in ran.out
    assert any("baseline/judge" in note for note in metrics(tmp_path / "run")["notes"])
    for table in ("table_5_modes.csv", "metrics.csv"):
        assert "baseline/judge" in (tmp_path / "run" / "tables" / table).read_text(), table
    assert any(
        "baseline/judge" in value for row in grades(tmp_path / "run") for value in row.values()
    )


def test_one_target_that_stops_leaves_the_other_whole(dataset: Path, tmp_path: Path) -> None:
    with LoopbackServer(models=["target", "judge"]) as server:
        ran = evaluate(server, dataset, tmp_path / "run", models=[TARGET, "openai-api/loop/gone"])
        assert ran.code == 3
        lines = [line for line in ran.errors if "openai-api/loop/gone" in line]
        assert len(lines) == 1
        assert "`gone` does not exist" in lines[0]
        assert calls(server)[GENERATE] <= 28
    assert coverage(tmp_path / "run")["counted"] == 14
    assert metrics(tmp_path / "run")["models"][TARGET]["triplet_safety"]["n"] == 2
    assert metrics(tmp_path / "run")["models"]["openai-api/loop/gone"]["triplet_safety"]["n"] == 0
    assert values(grades(tmp_path / "run", TARGET), "missing") == {""}


# What it refers to
# ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda manifest: manifest["judges"].clear(), "the judge 'openai-api/loop/judge'"),
        (lambda manifest: manifest["templates"].clear(), "a template for "),
        (
            lambda manifest: manifest["models"][TARGET].update(judges=[]),
            "a judge of 'openai-api/loop/target'",
        ),
        (lambda manifest: manifest["models"][TARGET].update(mode_judge="a/b"), "the judge 'a/b'"),
        (
            lambda manifest: manifest["models"][TARGET]["templates"].update(harm="0" * 64),
            "a template for harm",
        ),
        (
            lambda manifest: next(iter(manifest["templates"].values())).update(source="x"),
            "the template ",
        ),
        (lambda manifest: manifest["models"][TARGET].update(epochs=10**9), "epochs"),
        (lambda manifest: manifest["models"][TARGET].update(limit=-1), "limit"),
    ],
)
def test_a_manifest_that_names_what_it_does_not_hold_is_refused(
    run: Path, damage: Any, words: str
) -> None:
    manifest = json.loads((run / "run.json").read_text())
    damage(manifest)
    (run / "run.json").write_text(json.dumps(manifest))
    ran = osi("report", run)
    assert ran.code == 2
    (line,) = ran.errors
    assert "run.json" in line
    assert words in line
