"""A command that is killed as it puts its results in place leaves earlier or new results, and
nothing that the same command does not clean up.
"""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from endtoend import environment, osi, some_sets
from opensafeintent.people.labels import read_key
from people.forms import Sheet, filled

pytestmark = pytest.mark.slow

_KILLED = """
import json, os, shutil, signal, sys
from opensafeintent.cli import main

sys.modules["sklearn"] = None  # its classifier takes seconds
moves = last = 0

def count(event, _):
    global moves
    if event == "os.rename":
        moves += 1
        if moves == last:
            os.kill(os.getpid(), signal.SIGKILL)

def run(folder):
    os.chdir(folder)
    try:
        main()
    except SystemExit as ended:
        return ended.code

def killed(folder, at):
    global moves, last
    if child := os.fork():
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    moves, last = 0, at
    os._exit(run(folder))

out = os.dup(1)
os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
sys.addaudithook(count)
here = os.getcwd()
shutil.copytree("start", "whole")
ended = {"whole": run("whole")}
os.chdir(here)
all_moves = moves
for at in {1, all_moves}:
    shutil.copytree("start", f"again-{at}")
    ended[f"left-{at}"] = killed(f"again-{at}", at)
    shutil.copytree(f"again-{at}", f"left-{at}")
    ended[f"again-{at}"] = killed(f"again-{at}", 0)
os.write(out, json.dumps(ended).encode())
"""
"""Runs a command in a copy of `start`: undisturbed, killed before its first and last move
of a file to its place, and again each time.
"""
_NOTE = "RESULTS-INCOMPLETE.txt"
_STEPWISE = (".lock", "ledger.sqlite")
"""Files that a command writes as it goes."""


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs, two datasets, and a study whose forms came back."""
    folder = tmp_path_factory.mktemp("inputs")
    models = ("baseline/refuse-all", "baseline/comply-all")
    for name, sets in (("old", 3), ("new", 4)):
        dataset = some_sets(folder, sets).rename(folder / f"{name}.jsonl")
        options = ("--judge", "baseline/judge", "--dataset", dataset, "--out", folder / name)
        assert osi("evaluate", *models, *options).code == 0
    study = folder / "study"
    options = ("--annotators", "ana,ben", "--sample", 12, "--out", study)
    assert osi("annotate", "export", "judge", folder / "new", *options).code == 0
    key = read_key(study / "key.json")
    for name in ("ana", "ben"):
        filled(key, Sheet((study / f"{name}.csv").read_bytes()), name, folder / f"{name}.csv")
        options = ("--key", study / "key.json", "--out", folder / f"{name}.jsonl")
        assert osi("annotate", "import", folder / f"{name}.csv", *options).code == 0
    return folder


def state(folder: Path) -> dict[str, bytes]:
    """Return the files of a folder by their place in it, but those written stepwise."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.name.endswith(_STEPWISE)
    }


@pytest.mark.parametrize(
    ("command", "names"),
    [
        ("compare NAME --out o", ("old", "new")),
        ("export NAME --format csv --out o.csv", ("old", "new")),
        ("dataset dedup NAME.jsonl --threshold 0.1 --out o.jsonl", ("old", "new")),
        ("dataset check NAME.jsonl --out o", ("old", "new")),
        ("annotate export quality new.jsonl --annotators NAME --out o", ("ana", "ben")),
        ("annotate import NAME --key study/key.json --out o.jsonl", ("ana.csv", "ana.csv ben.csv")),
        ("agreement NAME.jsonl --run new --out o", ("ana", "ben")),
        ("judge-check --judge baseline/judge --out o", ()),
        ("merge old/ledger.sqlite new/ledger.sqlite --out o.sqlite", ()),
    ],
)
def test_a_killed_command_leaves_all_or_nothing_and_goes_on(
    inputs: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    names: tuple[str, ...],
) -> None:
    start = Path(shutil.copytree(inputs, tmp_path / "start"))
    monkeypatch.chdir(start)
    monkeypatch.setitem(sys.modules, "sklearn", None)
    for name in names[:1]:  # results of another input are there already
        assert osi(*command.replace("NAME", name).split()).code == 0
    last = command.replace("NAME", "".join(names[1:])).split()
    program = (sys.executable, "-c", _KILLED, *last)
    ran = subprocess.run(program, env=environment(), cwd=tmp_path, capture_output=True, check=True)
    ended = json.loads(ran.stdout)
    before, whole = state(start), state(tmp_path / "whole")
    changed = [place for place in whole if before.get(place) != whole[place]]
    assert changed and ended["whole"] in (0, 4)
    for name, code in ended.items():
        contents = state(tmp_path / name)
        if name.startswith("left"):
            assert code == -signal.SIGKILL
            assert all(contents.get(place) in (before.get(place), whole[place]) for place in whole)
            new = [contents.get(place) == whole[place] for place in changed]
            # two files of dedup may lie in two folders
            assert all(new) or not any(new) or f"o/{_NOTE}" in contents or "dedup" in command
        else:
            assert (code, contents) == (ended["whole"], whole)
