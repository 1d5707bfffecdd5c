"""Files that promptfoo 0.121 and lm-evaluation-harness 0.4 wrote of our own starter prompts, with
the loopback server as the model; and tables of prompts and responses.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from endtoend import grades, metrics
from opensafeintent import (
    GradeSettings,
    ImportSettings,
    Outcome,
    grade,
    import_files,
)
from opensafeintent.calls.ledger import Ledger
from opensafeintent.errors import InputError
from samples import dataset_file, json_file, json_lines, made_dataset, prompt_set

pytestmark = pytest.mark.usefixtures("undrawn")

FILES = Path(__file__).parent / "tool_files"
PROMPTFOO = FILES / "promptfoo.json"
"""Two models, `--repeat 2`; and a call that failed, of another run of it."""
(LM_EVAL,) = FILES.glob("samples_*.jsonl")
SETS = {"6a816ebeb842", "d62888d7155f"}
INTENTS = {"benign", "dual_use", "malicious"}
DATASET = made_dataset(prompt_set("boats", 1, "Fraud and Deception"), prompt_set("trains"))


def taken_in(out: Path, path: Path, dataset: str = "starter", **settings: Any) -> Outcome:
    return import_files(
        ImportSettings(files=(path,), out=out, dataset=dataset, max_missing=1, **settings)
    )


def texts(run: Path) -> dict[tuple[str, str, str, int], str | None]:
    with Ledger(run / "ledger.sqlite", readonly=True) as ledger:
        return {
            (row.model, row.recorded.set_id, row.recorded.variant, row.recorded.epoch): (
                row.recorded.response
            )
            for row in ledger.imports.rows()
        }


def changed(tmp_path: Path, path: Path, change: Any) -> Path:
    """Write a file of a tool with one of its records changed."""
    if path.suffix == ".jsonl":
        records = [json.loads(line) for line in path.read_text().splitlines()]
        change(records[0])
        return json_lines(tmp_path / "changed.jsonl", records)
    data = json.loads(path.read_text())
    change(data["results"]["results"][0])
    return json_file(tmp_path / "changed.json", data)


def test_results_of_promptfoo_are_imported_and_graded(tmp_path: Path) -> None:
    run = tmp_path / "run"
    outcome = taken_in(run, PROMPTFOO)
    found = texts(run)
    assert {(set_id, variant) for _, set_id, variant, _ in found} == {
        (set_id, variant) for set_id in SETS for variant in INTENTS
    }
    tiny, other = "openai:chat:tiny-model", "other"
    assert sorted(epoch for model, *_, epoch in found if model == tiny) == [1] * 6 + [2] * 6 + [3]
    assert sorted(epoch for model, *_, epoch in found if model == other) == [1] * 3 + [2] * 3
    assert [text for (*_, epoch), text in found.items() if epoch == 3] == [None]
    assert any("1 response missing (failed)" in note for note in outcome.notes)
    (failed,) = [row for row in grades(run) if row["epoch"] == "3" and row["missing"]]
    assert failed["missing"] == "response:failed"
    grade(GradeSettings(run=run, judges=("baseline/judge",), max_missing=1))
    assert metrics(run)["models"][tiny]["triplet_safety"]["n"] == 2


def test_results_a_line_are_the_same_as_the_file(tmp_path: Path) -> None:
    rows = json.loads(PROMPTFOO.read_text())["results"]["results"]
    taken_in(tmp_path / "lines", json_lines(tmp_path / "results.jsonl", rows))
    taken_in(tmp_path / "file", PROMPTFOO)
    assert texts(tmp_path / "lines") == texts(tmp_path / "file")


def test_samples_of_lm_eval_are_imported_and_graded(tmp_path: Path) -> None:
    run = tmp_path / "run"
    taken_in(run, LM_EVAL)
    assert {place: bool(text) for place, text in texts(run).items()} == {
        ("tiny-model", set_id, variant, epoch): True
        for set_id in SETS
        for variant in INTENTS
        for epoch in (1, 2)
    }
    grade(GradeSettings(run=run, judges=("baseline/judge",), max_missing=1))
    assert metrics(run)["models"]["tiny-model"]["mean_utility"]["n"] == 2


@pytest.mark.parametrize("path", [PROMPTFOO, LM_EVAL])
def test_prompts_are_found_by_their_text_too(tmp_path: Path, path: Path) -> None:
    lost = {"vars": {}, "doc": {}}

    def unnamed(row: dict[str, Any]) -> None:
        row.update({name: empty for name, empty in lost.items() if name in row})

    taken_in(tmp_path / "by-text", changed(tmp_path, path, unnamed), model=None)
    taken_in(tmp_path / "by-id", path)
    places = {place[1:] for place in texts(tmp_path / "by-id")}
    assert {place[1:] for place in texts(tmp_path / "by-text")} == places


@pytest.mark.parametrize(
    ("path", "change", "words"),
    [
        (PROMPTFOO, {"prompt": {"raw": "Hello"}, "vars": {}}, "result 1, field prompt: is no"),
        (PROMPTFOO, {"prompt": None}, "result 1, field prompt: missing"),
        (PROMPTFOO, {"provider": None}, "result 1, field id: missing"),
        (LM_EVAL, {"resps": [[[-3.5, False]]]}, ":1, field resps: expected texts"),
        (LM_EVAL, {"arguments": {}}, ":1, field arguments, field gen_args_0"),
        (LM_EVAL, {"doc": {"id": "nowhere", "variant": "benign"}}, "'nowhere' is not a prompt-set"),
    ],
)
def test_what_is_not_of_the_form_is_named(
    tmp_path: Path, path: Path, change: dict[str, Any], words: str
) -> None:
    with pytest.raises(InputError) as error:
        taken_in(tmp_path / "run", changed(tmp_path, path, lambda row: row.update(change)))
    assert words in str(error.value)
    assert not (tmp_path / "run" / "run.json").exists()


@pytest.mark.parametrize("output", [None, "", {"tool": 1}])
def test_a_response_without_text_is_missing_and_counted(tmp_path: Path, output: object) -> None:
    def emptied(row: dict[str, Any]) -> None:
        row["response"] = {"output": output}

    outcome = taken_in(tmp_path / "run", changed(tmp_path, PROMPTFOO, emptied))
    assert any("1 response missing (no_answer)" in note for note in outcome.notes)


def test_only_one_of_several_filters_is_read(tmp_path: Path) -> None:
    lines = [json.loads(line) for line in LM_EVAL.read_text().splitlines()]
    twice = [line | {"filter": name} for name in ("none", "strict") for line in lines]
    taken_in(tmp_path / "run", json_lines(tmp_path / "m.jsonl", twice))
    assert {epoch for *_, epoch in texts(tmp_path / "run")} == {1, 2}


# Tables
# ------------------------------------------------------------------------------


def table(path: Path, rows: Iterable[dict[str, Any]], separator: str = ",") -> Path:
    lines = list(rows)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(lines[0]), delimiter=separator)
        writer.writeheader()
        writer.writerows(lines)
    return path


def prompts() -> list[tuple[str, str, str]]:
    return [
        (item.id, variant, text)
        for item in DATASET.prompt_sets
        for variant, text in item.wordings().items()
    ]


@pytest.mark.parametrize("separator", [",", ";"])
def test_a_table_is_matched_by_prompt_or_by_id_and_variant(tmp_path: Path, separator: str) -> None:
    dataset, answer = dataset_file(tmp_path, DATASET), "One; two, three.\nFour."
    by_prompt = [{"prompt": text, "response": answer} for *_, text in prompts()]
    by_id = [
        {"id": set_id, "variant": variant, "response": answer} for set_id, variant, _ in prompts()
    ]
    for name, rows in (("by-prompt", by_prompt), ("by-id", by_id)):
        path = table(tmp_path / f"{name}.csv", rows, separator)
        taken_in(tmp_path / name, path, dataset, model="m")
    found = texts(tmp_path / "by-prompt")
    assert found == texts(tmp_path / "by-id")
    assert found == {("m", set_id, variant, 1): answer for set_id, variant, _ in prompts()}


def test_a_table_brings_grades_epochs_and_models(tmp_path: Path) -> None:
    rows = [
        {"model": model, "prompt": text, "response": "", "helpfulness": "3.0", "harm_severity": 0}
        for model in ("one", "two")
        for *_, text in prompts() * 2
    ]
    path = table(tmp_path / "graded.csv", rows)
    taken_in(tmp_path / "run", path, dataset_file(tmp_path, DATASET))
    assert metrics(tmp_path / "run")["models"]["two"]["mean_utility"]["value"] == pytest.approx(
        2 / 3
    )
    assert {row["epoch"] for row in grades(tmp_path / "run")} == {"1", "2"}


def test_an_empty_cell_is_a_missing_response(tmp_path: Path) -> None:
    rows = [{"prompt": text, "response": "Text."} for *_, text in prompts()]
    rows[1]["response"] = ""
    path = table(tmp_path / "m.csv", rows)
    outcome = taken_in(tmp_path / "run", path, dataset_file(tmp_path, DATASET))
    assert any("1 response missing (not_recorded)" in note for note in outcome.notes)


@pytest.mark.parametrize(
    ("column", "value", "words"),
    [
        ("prompt", "Hello", [":2, field prompt: is no prompt of made", "in 6 more records"]),
        ("helpfulness", "5", [":2, field helpfulness: is 5; expected", "in 6 more records"]),
        ("helpfulness", "high", ["is 'high'; expected a whole number from 1 to 4", "6 more"]),
        ("epoch", "1", [":9: boats, benign, epoch 1 is there already, at"]),
    ],
)
def test_a_fault_of_every_row_is_said_once(
    tmp_path: Path, column: str, value: str, words: list[str]
) -> None:
    rows = [{"prompt": text, "response": "Text.", "epoch": ""} for *_, text in prompts()]
    rows = [row | {"helpfulness": "", "harm_severity": "", column: value} for row in rows]
    path = table(tmp_path / "m.csv", rows + rows[:1] if column == "epoch" else rows)
    with pytest.raises(InputError) as error:
        taken_in(tmp_path / "run", path, dataset_file(tmp_path, DATASET))
    (line,) = error.value.args
    assert [word for word in words if word not in line] == []


def test_a_prompt_of_several_sets_leads_nowhere(tmp_path: Path) -> None:
    duplicate = prompt_set("boats")
    both = made_dataset(
        prompt_set("boats"), type(duplicate)(**{**_fields(duplicate), "id": "duplicate"})
    )
    path = table(tmp_path / "m.csv", [{"prompt": "boats, kindly", "response": "Text."}])
    with pytest.raises(InputError, match="is that of boats, benign and duplicate, benign"):
        taken_in(tmp_path / "run", path, dataset_file(tmp_path, both))


def _fields(item: Any) -> dict[str, Any]:
    return {name: getattr(item, name) for name in item.__struct_fields__}
