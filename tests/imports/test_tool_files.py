"""Files that promptfoo 0.121 and lm-evaluation-harness 0.4 wrote of our own starter prompts, with
the loopback server as the model; and tables of prompts and responses.
"""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, get_args

import pytest

from endtoend import grades, metrics
from imports.support import taken_in, texts
from opensafeintent import (
    GradeSettings,
    grade,
)
from opensafeintent.calls.records import stop_kind
from opensafeintent.errors import InputError
from opensafeintent.imports import known_formats
from opensafeintent.imports.content import StopWord, response_fields
from opensafeintent.promptsets.reading import FILE_FORMATS
from samples import dataset_file, json_file, json_lines, made_dataset, prompt_set

FILES = Path(__file__).parent / "tool_files"
PROMPTFOO = FILES / "promptfoo.json"
"""Two models, `--repeat 2`; and a call that failed, of another run of it."""
(LM_EVAL,) = FILES.glob("samples_*.jsonl")
SETS = {"6a816ebeb842", "d62888d7155f"}
INTENTS = {"benign", "dual_use", "malicious"}
DATASET = made_dataset(prompt_set("boats", 1, "Fraud and Deception"), prompt_set("trains"))


def changed(tmp_path: Path, path: Path, change: Any) -> Path:
    """Write a file of a tool with one of its records changed."""
    if path.suffix == ".jsonl":
        records = [json.loads(line) for line in path.read_text().splitlines()]
        change(records[0])
        return json_lines(tmp_path / "changed.jsonl", records)
    data = json.loads(path.read_text())
    change(data["results"]["results"][0])
    return json_file(tmp_path / "changed.json", data)


@pytest.mark.slow
def test_results_of_promptfoo_are_imported_and_graded(tmp_path: Path) -> None:
    run = tmp_path / "run"
    outcome = taken_in(run, PROMPTFOO)
    imported = texts(run)
    assert {(set_id, variant) for _, set_id, variant, _ in imported} == {
        (set_id, variant) for set_id in SETS for variant in INTENTS
    }
    tiny, other_model = "openai:chat:tiny-model", "other"
    assert sorted(epoch for model, *_, epoch in imported if model == tiny) == [1] * 6 + [2] * 6 + [
        3
    ]
    assert (
        sorted(epoch for model, *_, epoch in imported if model == other_model) == [1] * 3 + [2] * 3
    )
    assert [text for (*_, epoch), text in imported.items() if epoch == 3] == [None]
    assert any("1 response missing (failed)" in note for note in outcome.notes)
    (failed,) = [row for row in grades(run) if row["epoch"] == "3" and row["missing"]]
    assert failed["missing"] == "response:failed"
    grade(GradeSettings(run=run, judges=("baseline/judge",), max_missing=1))
    assert metrics(run)["models"][tiny]["triplet_safety"]["n"] == 2


@pytest.mark.slow
def test_results_a_line_are_the_same_as_the_file(tmp_path: Path) -> None:
    rows = json.loads(PROMPTFOO.read_text())["results"]["results"]
    taken_in(tmp_path / "lines", json_lines(tmp_path / "results.jsonl", rows))
    taken_in(tmp_path / "file", PROMPTFOO)
    assert texts(tmp_path / "lines") == texts(tmp_path / "file")


def test_samples_of_lm_eval_are_imported_and_graded(tmp_path: Path) -> None:
    run = tmp_path / "run"
    notes = taken_in(run, LM_EVAL).notes
    # a sample cannot name a model
    assert f"{LM_EVAL}: 6 prompts with several responses, read as epochs of one model" in notes
    assert {place: bool(text) for place, text in texts(run).items()} == {
        ("tiny-model", set_id, variant, epoch): True
        for set_id in SETS
        for variant in INTENTS
        for epoch in (1, 2)
    }
    grade(GradeSettings(run=run, judges=("baseline/judge",), max_missing=1))
    assert metrics(run)["models"]["tiny-model"]["mean_utility"]["n"] == 2


@pytest.mark.slow
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
        (PROMPTFOO, {"prompt": {"raw": "Hello"}, "vars": {}}, "results[0], field prompt: is no"),
        (PROMPTFOO, {"prompt": None}, "results[0], field prompt: is empty"),
        (PROMPTFOO, {"provider": None}, "results[0], field id: is empty"),
        (PROMPTFOO, {"response": "Yes."}, "results[0], field response: expected a JSON object"),
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


def test_the_faults_of_all_samples_are_listed(tmp_path: Path) -> None:
    """The reading ended at the first one."""
    lines = [json.loads(line) for line in LM_EVAL.read_text().splitlines()]
    del lines[1]["resps"]
    lines[2]["arguments"] = lines[3]["arguments"] = {}
    path = json_lines(tmp_path / "m.jsonl", lines)
    with pytest.raises(InputError) as error:
        taken_in(tmp_path / "run", path)
    first, second = error.value.lines
    assert first.startswith(f"{path}:2, field resps: missing; expected texts")
    assert second.startswith(f"{path}:3, field arguments, field gen_args_0: missing; expected an")
    assert second.endswith("it has no fields (and in 1 more record)")


def test_the_faults_of_all_results_are_listed(tmp_path: Path) -> None:
    path = promptfoo_rows(
        tmp_path, result_of("Yes."), {"response": "Yes."}, result_of("No.") | {"prompt": None}
    )
    with pytest.raises(InputError) as error:
        taken_in(tmp_path / "run", path, dataset=dataset_file(tmp_path, DATASET))
    first, second = error.value.lines
    assert "results[1], field response: expected a JSON object" in first
    assert "results[2], field prompt: is empty; expected an object" in second


def test_the_prompt_of_a_sample_is_named_as_in_the_file_and_counts_once(tmp_path: Path) -> None:
    """The error named the field `prompt`, and counted each repeat as a further record."""
    arguments = {"gen_args_0": {"arg_0": "Hello"}}
    path = changed(tmp_path, LM_EVAL, lambda row: row.update(doc={}, arguments=arguments))
    with pytest.raises(InputError) as error:
        taken_in(tmp_path / "run", path)
    assert str(error.value) == f"{path}:1, field arguments: is no prompt of starter, to the letter"


@pytest.mark.slow
@pytest.mark.parametrize("output", [None, "", {"tool": 1}])
def test_a_response_without_text_is_missing_and_counted(tmp_path: Path, output: object) -> None:
    def emptied(row: dict[str, Any]) -> None:
        row["response"] = {"output": output}

    outcome = taken_in(tmp_path / "run", changed(tmp_path, PROMPTFOO, emptied))
    assert any("1 response missing (no_answer)" in note for note in outcome.notes)


def promptfoo_rows(tmp_path: Path, *rows: dict[str, Any]) -> Path:
    """Write results of promptfoo to the first prompts of the made dataset."""
    results = [
        {"provider": {"id": "m", "label": ""}, "prompt": {"raw": text}, "vars": {}, **row}
        for row, (*_, text) in zip(rows, prompts(), strict=False)
    ]
    return json_file(tmp_path / "foo.json", {"results": {"version": 3, "results": results}})


def result_of(output: object, **fields: Any) -> dict[str, Any]:
    return {"response": {"output": output, "finishReason": "stop", **fields}}


SENT = "A story in which someone asks it."


@pytest.mark.parametrize(
    "row",
    [
        result_of("Yes.", prompt=SENT),
        result_of("Yes.", prompt=[{"role": "user", "content": SENT}]),
        result_of(
            "Yes.", prompt=[{"role": "system", "content": "Hi"}, {"role": "user", "content": "?"}]
        ),
        result_of("Yes.", metadata={"redteamFinalPrompt": SENT}),
        result_of("Yes.") | {"metadata": {"redteamFinalPrompt": SENT}},
        result_of("Yes.", prompt=SENT) | {"vars": {"id": "boats", "variant": "benign"}},
        # that of another set
        result_of("Yes.", prompt="trains, kindly") | {"vars": {"id": "boats", "variant": "benign"}},
    ],
)
def test_a_row_that_was_sent_another_text_is_left_out_and_counted(
    tmp_path: Path, row: dict[str, Any]
) -> None:
    path = promptfoo_rows(tmp_path, row, result_of("No."))
    outcome = taken_in(tmp_path / "run", path, dataset=dataset_file(tmp_path, DATASET))
    assert list(texts(tmp_path / "run").values()) == ["No."]
    assert any("1 response left out: the model got another text" in note for note in outcome.notes)


@pytest.mark.parametrize(
    "row",
    [
        result_of("Yes.", prompt="boats, kindly"),
        result_of("Yes.", prompt=" boats, kindly\n") | {"prompt": {"raw": "{{prompt}}"}},
        result_of("Yes.", prompt=[{"role": "user", "content": "boats, kindly"}]),
        result_of("Yes.", prompt="Sir: boats, kindly")
        | {"prompt": {"raw": "Sir: boats, kindly"}, "vars": {"id": "boats", "variant": "benign"}},
    ],
)
def test_a_row_whose_sent_text_is_the_prompt_is_a_response(
    tmp_path: Path, row: dict[str, Any]
) -> None:
    taken_in(
        tmp_path / "run", promptfoo_rows(tmp_path, row), dataset=dataset_file(tmp_path, DATASET)
    )
    assert texts(tmp_path / "run") == {("m", "boats", "benign", 1): "Yes."}


def test_a_file_of_rows_that_were_all_sent_another_text_is_refused(tmp_path: Path) -> None:
    path = promptfoo_rows(tmp_path, result_of("Yes.", prompt=SENT))
    with pytest.raises(
        InputError, match="the model got another text than each prompt, as by a template"
    ):
        taken_in(tmp_path / "run", path, dataset=dataset_file(tmp_path, DATASET))


@pytest.mark.parametrize(
    ("output", "fields", "expected"),
    [
        ("Thinking: They ask.\n\nYes.", {}, "Yes."),
        ("Thinking: They ask.\nSignature: Ab+/=\n\nYes.\n\nNo.", {}, "Yes.\n\nNo."),
        ("Thinking: A.\n\nB.\nSignature: Ab\n\nThinking: C\nSignature: D\n\nYes.", {}, "Yes."),
        ("Redacted Thinking: 0a9f\n\nYes.", {}, "Yes."),
        ("Thinking: A.\n\nB.\n\nYes.", {}, "reasoning_mixed"),
        ("Thinking: They ask.\n\n", {}, "reasoning_only"),
        ("Thinking: They ask.\nSignature: Ab", {}, "reasoning_only"),
        ("", {"reasoning": "They ask."}, "reasoning_only"),
        ("", {"tokenUsage": {"completionDetails": {"reasoning": 80}}}, "reasoning_only"),
        ("", {"tokenUsage": {"completionDetails": {"reasoning": 0}}}, ""),
        ("I was Thinking: a\n\nb", {}, "I was Thinking: a\n\nb"),
    ],
)
def test_the_thought_before_an_answer_of_promptfoo_is_taken_off(
    tmp_path: Path, output: str, fields: dict[str, Any], expected: str
) -> None:
    path = promptfoo_rows(tmp_path, result_of(output, **fields), result_of("No."))
    taken_in(tmp_path / "run", path, dataset=dataset_file(tmp_path, DATASET))
    (row, _) = grades(tmp_path / "run")
    text = texts(tmp_path / "run")["m", "boats", "benign", 1]
    missing = row["missing"].removeprefix("response:")
    assert (missing if text is None else text) == expected


@pytest.mark.parametrize(
    ("results", "words"),
    [
        ({}, "field results, field results: missing; expected a list of objects, as promptfoo"),
        ({"results": "x"}, "later writes it, found a text"),
        ({"results": ["x"]}, "field results, field results[0]: expected a JSON object, found a"),
    ],
)
def test_results_that_are_no_list_of_objects_are_named(
    tmp_path: Path, results: dict[str, Any], words: str
) -> None:
    path = json_file(tmp_path / "foo.json", {"results": results})
    with pytest.raises(InputError, match=re.escape(words)):
        taken_in(tmp_path / "run", path, dataset=dataset_file(tmp_path, DATASET))


@pytest.mark.parametrize("suffix", [".json", ".jsonl"])
def test_every_result_file_in_one_file_is_read(tmp_path: Path, suffix: str) -> None:
    """The first one was read, and the rest were lost without a word."""
    files = [
        json.loads(promptfoo_rows(tmp_path, result_of(text) | {"provider": name}).read_text())
        for name, text in (("one", "Yes."), ("two", "No."))
    ]
    lone_row = files[0]["results"]["results"][0] | {"provider": "three"}
    path = tmp_path / f"several{suffix}"
    records = [*files, lone_row]
    json_lines(path, records) if suffix == ".jsonl" else json_file(path, records)
    taken_in(tmp_path / "run", path, dataset=dataset_file(tmp_path, DATASET))
    assert texts(tmp_path / "run") == {
        ("one", "boats", "benign", 1): "Yes.",
        ("two", "boats", "benign", 1): "No.",
        ("three", "boats", "benign", 1): "Yes.",
    }


def test_results_without_a_provider_are_those_of_the_named_model(tmp_path: Path) -> None:
    path = promptfoo_rows(tmp_path, {"provider": None, **result_of("Yes.")})
    dataset = dataset_file(tmp_path, DATASET)
    taken_in(tmp_path / "run", path, dataset=dataset, model="openai/gpt-4")
    assert texts(tmp_path / "run") == {("openai/gpt-4", "boats", "benign", 1): "Yes."}


def test_a_null_among_the_responses_of_lm_eval_is_one_missing_response(tmp_path: Path) -> None:
    path = changed(tmp_path, LM_EVAL, lambda row: row.update(resps=[["Yes.", None]]))
    outcome = taken_in(tmp_path / "run", path)
    assert any("1 response missing (no_answer)" in note for note in outcome.notes)
    assert len(texts(tmp_path / "run")) == 12


def test_only_one_of_several_filters_is_read(tmp_path: Path) -> None:
    lines = [json.loads(line) for line in LM_EVAL.read_text().splitlines()]
    twice = [line | {"filter": name} for name in ("none", "strict") for line in lines]
    taken_in(tmp_path / "run", json_lines(tmp_path / "m.jsonl", twice))
    assert {epoch for *_, epoch in texts(tmp_path / "run")} == {1, 2}


def test_samples_of_another_task_with_other_filters_are_read_too(tmp_path: Path) -> None:
    """Those of a filter that the first line lacks were lost without a word."""
    lines = [json.loads(line) for line in LM_EVAL.read_text().splitlines()]
    half = len(lines) // 2
    tasks = [line | {"filter": "none"} for line in lines[:half]]
    tasks += [line | {"filter": name} for name in ("strict", "loose") for line in lines[half:]]
    taken_in(tmp_path / "parts", json_lines(tmp_path / "m.jsonl", tasks), model="m")
    taken_in(tmp_path / "whole", LM_EVAL, model="m")
    assert texts(tmp_path / "parts") == texts(tmp_path / "whole")


def test_a_sample_without_responses_is_named(tmp_path: Path) -> None:
    lines = [json.loads(line) for line in LM_EVAL.read_text().splitlines()]
    del lines[1]["resps"]
    with pytest.raises(InputError, match=r"m\.jsonl:2, field resps: missing; expected texts"):
        taken_in(tmp_path / "run", json_lines(tmp_path / "m.jsonl", lines))


def test_a_reader_cannot_pass_a_stop_word_of_another_vocabulary() -> None:
    words = {word: stop_kind(word) for word in get_args(StopWord)}
    kinds = {"": "none", "stop": "end", "length": "cut", "content_filter": "refusal"}
    assert words == kinds | {"error": "break"}
    with pytest.raises(ValueError, match="stop 'blocked': unknown word; valid: stop, length, "):
        response_fields("", "blocked")  # type: ignore[arg-type]


def test_no_text_is_an_empty_one_if_a_limit_or_a_filter_came_before_it() -> None:
    for ended in ("length", "content_filter"):
        assert response_fields(None, ended) == {"response": "", "stop_reason": ended}
    assert response_fields(None, provider_stop="SAFETY")["response"] == ""
    assert response_fields(None, "stop") == {"missing": ["response:no_answer"]}
    assert response_fields("", "error") == {"missing": ["response:failed"]}
    assert response_fields(None, "content_filter", reasoned=True)["response"] == ""
    assert response_fields(None, "length", reasoned=True) == {
        "missing": ["response:reasoning_only"]
    }


def test_the_page_has_a_row_for_each_format() -> None:
    page = (Path(__file__).parents[2] / "docs" / "import-responses.md").read_text()
    rows = [line for line in page.splitlines() if line.startswith("| ")]
    lacking = [
        name for name, *_ in known_formats.IMPORT_FORMATS if not any(name in row for row in rows)
    ]
    assert lacking == []


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
        taken_in(tmp_path / name, path, dataset=dataset, model="m")
    imported = texts(tmp_path / "by-prompt")
    assert imported == texts(tmp_path / "by-id")
    assert imported == {("m", set_id, variant, 1): answer for set_id, variant, _ in prompts()}


def test_a_table_brings_grades_epochs_and_models(tmp_path: Path) -> None:
    rows = [
        {"model": model, "prompt": text, "response": "", "helpfulness": "3.0", "harm_severity": 0}
        for model in ("one", "two")
        for *_, text in prompts() * 2
    ]
    path = table(tmp_path / "graded.csv", rows)
    taken_in(tmp_path / "run", path, dataset=dataset_file(tmp_path, DATASET))
    assert metrics(tmp_path / "run")["models"]["two"]["mean_utility"]["value"] == pytest.approx(
        2 / 3
    )
    assert {row["epoch"] for row in grades(tmp_path / "run")} == {"1", "2"}


def test_an_empty_cell_is_a_missing_response(tmp_path: Path) -> None:
    rows = [{"prompt": text, "response": "Text."} for *_, text in prompts()]
    rows[1]["response"] = ""
    path = table(tmp_path / "m.csv", rows)
    outcome = taken_in(tmp_path / "run", path, dataset=dataset_file(tmp_path, DATASET))
    assert any("1 response missing (not_recorded)" in note for note in outcome.notes)


def test_an_error_names_the_columns_of_the_file_and_no_others(tmp_path: Path) -> None:
    """A reader that fills in the reason of an empty response listed it among the columns."""
    dataset = dataset_file(tmp_path, DATASET)
    row = {"variant": "benign", "response": ""}
    with pytest.raises(InputError) as error:
        taken_in(tmp_path / "run", table(tmp_path / "a.csv", [row]), dataset=dataset)
    line = f"{tmp_path / 'a.csv'}:2, field id: missing; expected a text; its fields: "
    assert str(error.value) == f"{line}variant, response"
    with pytest.raises(InputError) as error:
        taken_in(tmp_path / "run", table(tmp_path / "b.csv", [row | {"id": ""}]), dataset=dataset)
    assert str(error.value) == f"{tmp_path / 'b.csv'}:2, field id: is empty; expected a text"
    rows = [{"prompt": text, "variant": "", "response": "Text."} for *_, text in prompts()]
    rows[1]["prompt"] = ""
    with pytest.raises(InputError) as error:
        taken_in(tmp_path / "run", table(tmp_path / "c.csv", rows), dataset=dataset)
    assert str(error.value) == f"{tmp_path / 'c.csv'}:3, field prompt: is empty; expected a text"
    with pytest.raises(InputError) as error:
        taken_in(
            tmp_path / "run",
            table(tmp_path / "d.csv", [{"prompt": "x", "say": "y"}]),
            dataset=dataset,
        )
    assert "expected a field 'response', or both grades" in str(error.value)
    assert str(error.value).endswith("; its fields: prompt, say")


def test_a_format_is_a_row_of_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [{"prompt": text, "response": "Text."} for *_, text in prompts()]
    rows[1]["response"] = ""
    path = table(tmp_path / "m.tsv", rows, separator="\t")
    dataset = dataset_file(tmp_path, DATASET)
    with pytest.raises(InputError, match=r"is a \.tsv file; expected \.jsonl, "):
        taken_in(tmp_path / "run", path, dataset=dataset)
    monkeypatch.setitem(FILE_FORMATS, ".tsv", FILE_FORMATS[".csv"])
    outcome = taken_in(tmp_path / "run", path, dataset=dataset)
    assert any("1 response missing (not_recorded)" in note for note in outcome.notes)


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
def test_what_data_frames_write_is_read_the_same_in_every_format(
    tmp_path: Path, suffix: str
) -> None:
    rows = [
        {"prompt": text, "response": "Text.", "helpfulness": 3.0, "harm_severity": 0.0}
        for *_, text in prompts()
    ]
    rows[0] |= {"helpfulness": math.nan, "harm_severity": math.nan}
    path = tmp_path / f"m{suffix}"
    match suffix:
        case ".csv":
            table(path, rows)
        case ".jsonl":
            path.write_text("\n".join(map(json.dumps, rows)))
        case _:
            arrow = pytest.importorskip("pyarrow")
            pytest.importorskip("pyarrow.parquet").write_table(arrow.Table.from_pylist(rows), path)
    taken_in(tmp_path / "run", path, dataset=dataset_file(tmp_path, DATASET))
    assert [row["helpfulness"] for row in grades(tmp_path / "run")] == [""] + ["3"] * 6
    assert grades(tmp_path / "run")[0]["missing"] == "grades:not_graded"


@pytest.mark.parametrize("suffix", [".csv", ".jsonl"])
def test_a_table_without_responses_is_refused_with_its_columns(tmp_path: Path, suffix: str) -> None:
    rows = [{"prompt": text, "answer": "Text.", "score": 3} for *_, text in prompts()]
    path = tmp_path / f"m{suffix}"
    if suffix == ".csv":
        table(path, rows)
    else:
        json_lines(path, rows)
    with pytest.raises(InputError, match=r"no response in it; .*its fields: prompt, answer, score"):
        taken_in(tmp_path / "run", path, dataset=dataset_file(tmp_path, DATASET))


def test_columns_that_are_not_read_are_named(tmp_path: Path) -> None:
    rows = [
        {"prompt": text, "response": "Text.", "temperature": 1, "harm_domain": "x", "reviewer": ""}
        for *_, text in prompts()
    ]
    path = table(tmp_path / "m.csv", rows)
    outcome = taken_in(tmp_path / "run", path, dataset=dataset_file(tmp_path, DATASET))
    assert f"{path}: not read: temperature, reviewer" in outcome.notes


def test_a_heading_is_checked_by_the_table_and_not_by_each_row(tmp_path: Path) -> None:
    rows = [
        {"prompt": text, "response": "", "responses": "Text.", "helpfulness": 1, "harm_severity": 0}
        for *_, text in prompts()
    ]
    outcome = taken_in(
        tmp_path / "run", table(tmp_path / "m.csv", rows), dataset=dataset_file(tmp_path, DATASET)
    )
    assert any(note.endswith("not read: responses") for note in outcome.notes)


def test_what_spreadsheet_programs_leave_is_passed_over(tmp_path: Path) -> None:
    rows = "".join(f"\ufeff;;\n{text} ;Text.;\n" for *_, text in prompts()).replace("\ufeff", "")
    path = tmp_path / "m.csv"
    path.write_text(f"sep=;\n;;\nprompt; response ;\n{rows};;\n", encoding="utf-8-sig")
    taken_in(tmp_path / "run", path, dataset=dataset_file(tmp_path, DATASET))
    assert list(texts(tmp_path / "run").values()) == ["Text."] * 7


def test_a_long_response_is_read(tmp_path: Path) -> None:
    long = "word " * 60_000
    rows = [{"prompt": text, "response": long} for *_, text in prompts()]
    taken_in(
        tmp_path / "run", table(tmp_path / "m.csv", rows), dataset=dataset_file(tmp_path, DATASET)
    )
    assert set(texts(tmp_path / "run").values()) == {long}


@pytest.mark.parametrize(
    ("column", "value", "words"),
    [
        ("prompt", "Hello", [":2, field prompt: is no prompt of made", "in 6 more records"]),
        ("helpfulness", "5", [":2, field helpfulness: is 5; expected", "in 6 more records"]),
        ("helpfulness", "３", ["is '３'; expected a whole number from 1 to 4", "6 more"]),
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
        taken_in(tmp_path / "run", path, dataset=dataset_file(tmp_path, DATASET))
    (line,) = error.value.args
    assert [word for word in words if word not in line] == []


def test_a_prompt_of_several_sets_leads_nowhere(tmp_path: Path) -> None:
    duplicate = prompt_set("boats")
    two_sets = made_dataset(
        prompt_set("boats"), type(duplicate)(**{**_fields(duplicate), "id": "duplicate"})
    )
    path = table(tmp_path / "m.csv", [{"prompt": "boats, kindly", "response": "Text."}])
    with pytest.raises(InputError, match="is that of boats, benign and duplicate, benign"):
        taken_in(tmp_path / "run", path, dataset=dataset_file(tmp_path, two_sets))


def _fields(item: Any) -> dict[str, Any]:
    return {name: getattr(item, name) for name in item.__struct_fields__}


# Large files
# ------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [PROMPTFOO, LM_EVAL], ids=["promptfoo", "lm-eval"])
def test_the_responses_within_one_record_count_as_rows(tmp_path: Path, path: Path) -> None:
    with pytest.raises(InputError, match=re.escape(f"{path}: has more than 9 rows; ")):
        taken_in(tmp_path / "run", path, max_rows=9)
    assert not (tmp_path / "run").exists()


def test_a_model_of_lm_eval_with_a_name_beyond_any_in_use_is_refused(tmp_path: Path) -> None:
    samples = tmp_path / LM_EVAL.name
    samples.write_bytes(LM_EVAL.read_bytes())
    (results,) = FILES.glob("results_*.json")
    json_file(tmp_path / results.name, {"model_name": "x" * 10**7})
    with pytest.raises(InputError, match=r"samples_.*: model 'x+…': has 10,000,000 characters"):
        taken_in(tmp_path / "run", samples)
    assert not (tmp_path / "run").exists()
