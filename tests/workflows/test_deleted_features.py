"""Features that can be deleted from an installation: what needs them is refused in one line."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from endtoend import osi
from samples import json_lines

EVALUATE = ("evaluate", "baseline/redirect", "--judge", "baseline/judge", "--limit", 2)


@pytest.mark.parametrize(
    ("feature", "options", "named"),
    [
        ("extensions.stop_when", ("--stop-when", "triplet_safety >= 0.5"), "--stop-when"),
        ("extensions.batches.models", ("--batch",), "--batch"),
        ("interop.ray.cluster", ("--ray", "auto"), "--ray"),
    ],
)
def test_an_option_of_evaluate(
    feature: str,
    options: tuple[str, ...],
    named: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, f"opensafeintent.{feature}", None)
    refusal = osi(*EVALUATE, *options, "--out", tmp_path / "run").refusal
    assert refusal == f"error: {named}: is not part of this installation"


def test_options_of_other_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for feature in ("extensions.annex", "extensions.correction", "interop.exchange.earlier"):
        monkeypatch.setitem(sys.modules, f"opensafeintent.{feature}", None)
    monkeypatch.setitem(sys.modules, "opensafeintent.interop.hub", None)
    run = tmp_path / "run"
    assert osi(*EVALUATE, "--out", run).code == 0
    commands = {
        "--annex": ("report", run, "--annex"),
        "--human-labels": ("report", run, "--human-labels", json_lines(tmp_path / "l.jsonl", [{}])),
        "--format every-eval-ever": ("export", run, "--format", "every-eval-ever", "--out", "x"),
        "dataset export": ("dataset", "export", "starter", tmp_path / "folder"),
    }
    for what, command in commands.items():
        assert osi(*command).refusal == f"error: {what}: is not part of this installation"
