"""Responses and grades from elsewhere are refused with their file, line and field, and then nothing
is imported.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from opensafeintent import ImportSettings, OpenSafeIntentError, import_files
from promptsets.samples import NESTED, lines, ours

VARIANTS = ["benign_prompt", "dual_use_prompt", "malicious_prompt"]


def of_all(value: Any) -> dict[str, Any]:
    return {**dict.fromkeys(VARIANTS, value), "dual_use_paraphrases": [value, value]}


SCORED: dict[str, Any] = {
    **NESTED,
    "model_responses": of_all("Text."),
    "response_scores_helpfulness": of_all(3),
    "response_scores_harmfulness": of_all(0),
    "dual_use_assistance_level": {"a_level": "A4"},
}
"""An authors' scored record."""


def response(**changes: Any) -> dict[str, Any]:
    graded = {"id": "a", "variant": "benign", "response": "Text.", "helpfulness": 3}
    return graded | {"harm_severity": 0} | changes


def complaint_about(tmp_path: Path, name: str, content: bytes) -> str:
    """Import a file, and return the one line that it is refused with, from the file's name on."""
    (tmp_path / "sets.jsonl").write_bytes(lines(ours(1, id="a")))
    (tmp_path / name).write_bytes(content)
    dataset = str(tmp_path / "sets.jsonl") if name.endswith(".jsonl") else None
    settings = ImportSettings(files=(tmp_path / name,), out=tmp_path / "run", dataset=dataset)
    with pytest.raises(OpenSafeIntentError) as caught:
        import_files(settings)
    message = str(caught.value)
    assert message.startswith(str(tmp_path / name))
    assert len(message) < len(str(tmp_path)) + 600
    assert not (tmp_path / "run" / "run.json").exists()
    return message.removeprefix(str(tmp_path / name))


@pytest.mark.parametrize(
    ("field", "value", "fact"),
    [
        ("helpfulness", "3", "is '3'; expected a whole number from 1 to 4"),
        ("helpfulness", 5, "is 5;"),
        ("helpfulness", 2.5, "is 2.5;"),
        ("helpfulness", True, "is true;"),
        ("helpfulness", "9" * 10_000, "expected a whole number from 1 to 4"),
        ("harm_severity", -1, "is -1; expected a whole number from 0 to 3"),
        ("epoch", "1", "expected a whole number"),
        ("mode", "a2", "did you mean 'A2'"),
        ("strategy", "FULL", "did you mean 'full'"),
        ("variant", "bening", "did you mean 'benign'?"),
        ("variant", "dual_use_paraphrase_0", "unknown variant"),
        ("id", None, "is empty; expected a text"),
        ("response", ["Text."] * 1000, "expected a text"),
        ("response", "Text \ud800.", "surrogate"),
    ],
)
def test_a_bad_line_of_ours_is_named(tmp_path: Path, field: str, value: object, fact: str) -> None:
    content = lines(response(), response(variant="dual_use") | {field: value})
    message = complaint_about(tmp_path, "r.jsonl", content)
    assert message.startswith(f":2, field {field}")
    assert fact in message


@pytest.mark.parametrize(
    ("content", "fact"),
    [
        (lines(response(), ["a", "benign"]), ":2: expected a JSON object, found a list"),
        (lines(response(), response()), ":2: a, benign, epoch 1 is there already"),
        (lines(response(), {"id": "a", "variant": "dual_use"}), ":2, field response: missing"),
        (lines(response()) + b'{"id": "a", "helpf', ":2: not valid JSON: "),
        (lines(response(id="b")), ": 'b' is not a prompt-set of sets; valid: a"),
        (lines(response(variant="dual_use_paraphrase_3")), ": set a has no dual_use_paraphrase_3"),
        (b"", ": no responses in it"),
        (b'{"results": {"version": 3, "results": []}}', ": no responses in it"),
    ],
)
def test_a_bad_file_of_ours_is_named(tmp_path: Path, content: bytes, fact: str) -> None:
    assert complaint_about(tmp_path, "r.jsonl", content).startswith(fact)


HELPFULNESS, HARM = "response_scores_helpfulness", "response_scores_harmfulness"


@pytest.mark.parametrize(
    ("field", "value", "fact"),
    [
        (HELPFULNESS, {"benign_prompt": "3"}, "is '3'; expected a whole number from 0 to 4"),
        (HARM, {"malicious_prompt": 4}, "malicious: is 4; expected a whole number from 0 to 3"),
        (HARM, {"malicious_prompt": 1.5}, "is 1.5;"),
        (HARM, {"dual_use_paraphrases": [0, "2"]}, "dual_use_paraphrase_2: is '2';"),
        (HARM, {"dual_use_paraphrases": [0]}, "is a list of 1; expected a list of 2"),
        ("model_responses", {"benign_prompt": 7}, "model_responses, benign: is 7"),
        ("model_responses", {"benign_prompt": "\ud800"}, "surrogate"),
        ("dual_use_assistance_level", {"a_level": "A5"}, "did you mean 'A4'"),
        ("dual_use_intent_classification", {"strategy": "MAYBE"}, "FULL, CONSTRAINED"),
        ("response_score_failures", [{"prompt": "bening_prompt"}], "mean 'benign_prompt'"),
        ("response_score_failures", [{"prompt": "dual_use_paraphrases[2]"}], "unknown prompt"),
        ("response_score_failures", ["benign_prompt"], "response_score_failures[0]: expected"),
    ],
)
def test_a_bad_record_of_authors_is_named(
    tmp_path: Path, field: str, value: object, fact: str
) -> None:
    good = {"generated_prompts": {variant: f"another {variant}" for variant in VARIANTS}}
    content = json.dumps([SCORED | good, SCORED | {field: value}]).encode()
    message = complaint_about(tmp_path, "s.json", content)
    assert message.startswith(", item 2, ")
    assert fact in message
