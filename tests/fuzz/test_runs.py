"""The files of a run and of a build: manifests and prompt-sets."""

from __future__ import annotations

import json
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from fuzz.contract import FUZZ, SLOW, attempt
from fuzz.faults import damaged_json, damaged_lines
from fuzz.runs import built, evaluated, read_run
from opensafeintent import BuildSettings, EvaluateSettings, build, evaluate
from opensafeintent.construction.folder import BuildFolder
from opensafeintent.evaluation.manifest import RunFolder


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
    settings = EvaluateSettings(
        models=("baseline/redirect",), judges=("baseline/judge",), limit=1, out=run, dry_run=True
    )
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
        attempt(
            "prompt-sets of a run (JSONL)",
            lambda path: RunFolder(path).load(),
            run,
            named="prompt_sets.jsonl",
        )
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


def test_what_is_damaged_is_good_before(place: Path) -> None:
    assert attempt("none", read_run, evaluated(place))
    assert BuildFolder(built(place)).load()
