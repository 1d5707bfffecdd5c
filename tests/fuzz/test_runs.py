"""The files of a run and of a build: manifests, prompt-sets, shards."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from fuzz.contract import FUZZ, SLOW, attempt, write
from fuzz.faults import damaged, damaged_json, damaged_lines
from fuzz.runs import built, evaluated, read_run
from opensafeintent import BuildSettings, EvaluateSettings, build, evaluate
from opensafeintent.construction.folder import BuildFolder
from opensafeintent.evaluation.manifest import RunFolder
from opensafeintent.interop.ray.folder import ShardsFolder

MARKER = {"schema": 1, "token": "ab" * 16, "of": {"manifest": "x", "epochs": "1"}, "shards": ["0000-model", "0001-model"]}
PROGRESS = {"sequence": 1, "calls": 3, "done": 2}


@SLOW
@given(draw=st.data())
def test_manifest_of_a_run(place: Path, draw: st.DataObject) -> None:
    run = evaluated(place)
    path = run / "run.json"
    good = path.read_bytes()
    try:
        path.write_bytes(draw.draw(damaged_json(json.loads(good))))
        attempt("manifest of a run (JSON)", read_run, run, named="run")
    finally:
        path.write_bytes(good)


@SLOW
@given(draw=st.data())
def test_manifest_of_a_run_that_goes_on(place: Path, draw: st.DataObject) -> None:
    run = evaluated(place)
    path = run / "run.json"
    good = path.read_bytes()
    settings = EvaluateSettings(models=("baseline/redirect",), judges=("baseline/judge",), limit=1, out=run, dry_run=True)
    try:
        path.write_bytes(draw.draw(damaged_json(json.loads(good))))
        attempt("manifest of a run (JSON)", lambda _: evaluate(settings), run, named="run")
    finally:
        path.write_bytes(good)


@FUZZ
@given(draw=st.data())
def test_prompt_sets_of_a_run(place: Path, draw: st.DataObject) -> None:
    run = evaluated(place)
    path = run / "prompt_sets.jsonl"
    good = path.read_bytes()
    records = [json.loads(line) for line in good.splitlines()][:2]
    try:
        path.write_bytes(draw.draw(damaged_lines(records)))
        attempt("prompt-sets of a run (JSONL)", lambda path: RunFolder(path).load(), run, named="prompt_sets.jsonl")
    finally:
        path.write_bytes(good)


@SLOW
@given(draw=st.data())
def test_manifest_of_a_build(place: Path, draw: st.DataObject) -> None:
    out = built(place)
    path = out / "build.json"
    good = path.read_bytes()
    settings = BuildSettings(
        seeds=str(place / "seeds.jsonl"),
        out=out,
        generator="baseline/generator",
        judge="baseline/construction-judge",
        dry_run=True,
    )

    def read(_: Path) -> None:
        BuildFolder(out).load()
        build(settings)

    try:
        path.write_bytes(draw.draw(damaged_json(json.loads(good))))
        attempt("manifest of a build (JSON)", read, path)
    finally:
        path.write_bytes(good)


@FUZZ
@given(content=damaged_json(MARKER))
def test_marker_of_shards(tmp_path: Path, content: bytes) -> None:
    shards = tmp_path / "shards"
    shards.mkdir(exist_ok=True)
    write(shards / "shards.json", content)
    attempt(
        "shards of a run (JSON)",
        lambda run: ShardsFolder(run).take_up({"manifest": "x", "epochs": "1"}, run / "ledger.sqlite"),
        tmp_path,
        named="shards",
    )


@FUZZ
@given(control=damaged(b"openai/x: a key is wrong"), progress=damaged_json(PROGRESS))
def test_control_and_progress_of_shards(tmp_path: Path, control: bytes, progress: bytes) -> None:
    """What tasks and their driver tell one another is never an error: the next look may find it whole."""
    folder = ShardsFolder(tmp_path)
    if not folder.path.exists():
        folder.begin({"manifest": "x"}, ("0000-model",))
    write(folder.path / "control", control)
    write(folder.path / "0000-model.1.json", progress)

    def read(_: Path) -> None:
        folder.halted()
        folder.progress()

    assert attempt("control and progress of shards", read, tmp_path)


@FUZZ
@given(content=damaged(msgspec.msgpack.encode({"seeds": [{"prompt": "p", "source": "s", "place": "line 1"}]})))
def test_items_of_a_stage(tmp_path: Path, content: bytes) -> None:
    from opensafeintent.interop.ray.worker import read_items

    attempt("items of a stage (MessagePack)", read_items, write(tmp_path / "items.msgpack", content))


def test_what_is_damaged_is_good_before(place: Path) -> None:
    assert attempt("none", read_run, evaluated(place))
    assert BuildFolder(built(place)).load()
