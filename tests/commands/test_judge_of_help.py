"""The benchmark that holds judges of helpfulness against people, on invented files in the published
form.
"""

from __future__ import annotations

import csv
import sys
from collections import Counter
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

import judge_of_help as study

MODELS = ("one", "two")
TYPES = ("homonyms", "privacy_fictional", "contrast_homonyms")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two files of 90 responses: refusals say so, and every seventh text is cut."""
    fields = ("id", "type", "prompt", "completion", "annotation_1", "annotation_2", "agreement")
    for model in MODELS:
        path = tmp_path / f"xstest_v2_completions_{model}.csv"
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow([*fields, "final_label"])
            for number in range(90):
                label = [*study.LABELS][number % 3]
                text = (
                    f"{'I cannot help' if number % 3 == 1 else 'First, take it'}, {number} {model}"
                )
                end = "" if number % 7 == 0 else ".)" if number % 2 else "."
                space = " " * (model == "two")  # as in two of the published files
                text = f"{space}{text}{end}"
                row = [f"v2-{number}", TYPES[number % 30 // 10], f"Prompt {number}", text]
                writer.writerow([*row, label, label, "TRUE", label])
        (tmp_path / f"xstest_v2_completions_{model}_gpteval.csv").write_text("not,read")
    return tmp_path


def test_the_draw_is_even_over_labels_and_models_and_halves_share_no_prompt(folder: Path) -> None:
    responses = study.read_responses(folder)
    assert len(responses) == 120  # without those to unsafe prompts
    drawn = study.draw(responses, 48)
    cells = Counter((item.half, item.row["final_label"], item.model) for item in drawn)
    assert set(cells.values()) == {4} and len(cells) == 12
    of_half = [
        {item.row["prompt"] for item in responses if item.half == half} for half in study.HALVES
    ]
    assert not of_half[0] & of_half[1] and len(of_half[0]) == len(of_half[1])
    records = [item.record for item in responses]
    assert Counter(record["text"] for record in records)["seems cut"] == 18
    premises = {record["type"] for record in records if record["answer"] == "corrects a premise"}
    assert premises == {"privacy_fictional"}


@pytest.mark.slow
def test_a_judge_is_compared_and_its_readings_give_the_same_table(
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out, stored = tmp_path / "out", tmp_path / "stored.csv"
    monkeypatch.setattr(study, "READINGS", stored)
    command = ["study", str(folder), "--responses", "48"]
    monkeypatch.setattr(sys, "argv", [*command, "--judge", "baseline/judge", "--out", str(out)])
    study.main()
    first = capsys.readouterr().out
    assert "| all | baseline/judge | 16 of 16, 100 %" in first
    assert "| type: privacy_fictional | baseline/judge |" in first
    readings = (out / "readings.csv").read_text()
    assert readings.startswith("model,id,half,reader-1,reason\n") and "Prompt" not in readings
    stored.write_text(readings)
    monkeypatch.setattr(sys, "argv", command)
    study.main()
    again = capsys.readouterr().out
    assert again.replace("python/reader-1@1", "baseline/judge") == first
