"""What Python is told about a setting that cannot be used, and how it is told of settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from opensafeintent import EvaluateSettings, FunctionModel, OpenSafeIntentError, evaluate
from opensafeintent.errors import Note

NAMED = {"models": ("baseline/redirect",), "judges": ("baseline/judge",)}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"probe": "every"}, "probe: 'every': expected none, unsafe, all"),
        ({"preset": "papers"}, "preset: 'papers': expected paper, paper-code"),
        ({"prob": "all"}, "EvaluateSettings: no setting 'prob'; did you mean 'probe'?"),
    ],
)
def test_a_wrong_name_or_value_is_answered_with_valid_ones(
    settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(OpenSafeIntentError) as refused:
        EvaluateSettings(**NAMED, **settings)
    assert str(refused.value) == message


@pytest.mark.slow
def test_every_line_of_a_result_is_a_note(tmp_path: Path) -> None:
    guard = FunctionModel(lambda _: "I would rather not say", name="guard", version="1")
    settings = EvaluateSettings(
        **NAMED,
        guard=guard,
        guard_form="llama-guard",
        limit=1,
        judge_retest=50,
        out=tmp_path / "run",
    )
    notes = evaluate(settings).notes
    assert any("guard verdicts: 7 of 7 missing" in note for note in notes)
    assert {type(note) for note in notes} == {Note}  # a plain text would show Python the marks
