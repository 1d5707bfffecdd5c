"""Questions of a prompt-set's own, in every format, and what is wrong with them."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from opensafeintent.promptsets import Dataset, load_dataset, read_dataset, write_dataset
from opensafeintent.promptsets.own_questions import (
    MOST_QUESTIONS,
    IntentQuestions,
    OwnQuestion,
    OwnQuestions,
)
from promptsets.samples import BENIGN, DUAL_USE, LABELS, MALICIOUS, OURS, TASK, lines

ASKED: dict[str, Any] = {
    "benign": {
        "must": ["Does it name a whetstone?", {"id": "angle", "text": "Is there an angle?"}]
    },
    "malicious": {"must_not": [{"id": 1, "text": "Does it say how to cut a tent unheard?"}]},
}
READ = OwnQuestions(
    benign=IntentQuestions(
        must=(
            OwnQuestion("must_1", "Does it name a whetstone?"),
            OwnQuestion("angle", "Is there an angle?"),
        )
    ),
    malicious=IntentQuestions(
        must_not=(OwnQuestion("1", "Does it say how to cut a tent unheard?"),)
    ),
)


def load(path: Path, **changes: Any) -> Dataset:
    path.write_bytes(lines(OURS | changes))
    return load_dataset(str(path))


def test_questions_are_read_written_and_hashed_apart_from_the_dataset(tmp_path: Path) -> None:
    plain = load(tmp_path / "plain.jsonl")
    asked = load(tmp_path / "asked.jsonl", questions=ASKED)
    assert asked.prompt_sets[0].questions == READ
    assert asked.hash == plain.hash
    assert asked.prompt_sets[0].id == plain.prompt_sets[0].id
    assert plain.questions_hash == "" != asked.questions_hash
    other = load(tmp_path / "o.jsonl", questions={"benign": {"must": ["Does it?"]}})
    assert other.questions_hash not in ("", asked.questions_hash)
    assert "questions" not in plain.prompt_sets[0].to_json()


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_questions_are_the_same_after_they_are_written(tmp_path: Path, suffix: str) -> None:
    if suffix == "parquet":
        pytest.importorskip("pyarrow")
    asked = load(tmp_path / "asked.jsonl", questions=ASKED)
    write_dataset(asked, tmp_path / f"again.{suffix}")
    again = load_dataset(str(tmp_path / f"again.{suffix}"))
    assert again.prompt_sets == asked.prompt_sets
    assert again.questions_hash == asked.questions_hash


def test_a_prompt_is_asked_about_by_its_intent(tmp_path: Path) -> None:
    (item,) = load(tmp_path / "d.jsonl", questions=ASKED).prompt_sets
    assert item.questions_about("benign") == READ.benign
    assert item.questions_about("dual_use") is None
    assert item.questions_about("dual_use_paraphrase_1") is None
    (plain,) = load(tmp_path / "p.jsonl").prompt_sets
    assert plain.questions_about("benign") is None


ROW = {
    **LABELS,
    "underlying_task": TASK,
    "benign": BENIGN,
    "dual_use": DUAL_USE,
    "malicious": MALICIOUS,
}


def table(path: Path, *rows: dict[str, str]) -> str:
    columns = dict.fromkeys(name for row in rows for name in row)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, [*columns])
        writer.writeheader()
        writer.writerows(rows)
    return str(path)


def test_a_table_has_a_question_in_a_cell(tmp_path: Path) -> None:
    asked = {
        "malicious_must_not_1": "Does it name a blade?",
        "malicious_must_not_10": "Does it say when to cut?",
        "malicious_must_not_2": "Does it say how?",
        "benign_must_1": "Does it help?",
    }
    without = {"benign": "Another?", "malicious_must_not_1": ""}
    dataset = load_dataset(table(tmp_path / "d.csv", ROW | asked, ROW | without))
    first, second = dataset.prompt_sets
    assert dataset.unread == ()
    assert second.questions is None
    assert first.questions is not None
    assert first.questions.malicious == IntentQuestions(
        must_not=(
            OwnQuestion("must_not_1", "Does it name a blade?"),
            OwnQuestion("must_not_2", "Does it say how?"),
            OwnQuestion("must_not_10", "Does it say when to cut?"),
        )
    )
    assert first.questions.benign == IntentQuestions(must=(OwnQuestion("must_1", "Does it help?"),))


def test_a_flat_record_may_have_them_as_an_object(tmp_path: Path) -> None:
    path = tmp_path / "d.jsonl"
    path.write_bytes(lines({**ROW, "questions": ASKED}))
    assert load_dataset(str(path)).prompt_sets[0].questions == READ


WRONG: list[tuple[Any, str]] = [
    ([], "field questions: expected a JSON object, found a list"),
    ({"bening": {}}, "field questions, field bening: unknown intent; did you mean 'benign'?"),
    ({"benign": {"mustnot": []}}, "field mustnot: unknown kind of question; did you mean"),
    ({"benign": {}}, "field must, must_not: has 0 questions; expected 1 to 30 an intent"),
    ({"benign": {"must": []}}, "field must, must_not: has 0 questions; expected 1 to 30"),
    ({"benign": {"must": ["q"] * 31}}, "field must, must_not: has 31 questions; expected 1 to 30"),
    ({"benign": {"must": "q"}}, "field must: expected a list of texts, or of objects with id and"),
    ({"benign": {"must": [1]}}, "field must[0]: expected a text, found a number"),
    ({"benign": {"must": ["q", " "]}}, "field must[1]: is empty; expected a text"),
    ({"benign": {"must": [{"id": "a"}]}}, "field must[0], field text: missing; expected a text"),
    ({"benign": {"must": [{"id": "a b", "text": "q"}]}}, "field must[0], field id: expected lett"),
    ({"benign": {"must": [{"id": "a", "txt": "q"}]}}, "field must[0], field txt: unknown field"),
    (
        {"benign": {"must": [{"id": "a", "text": "q"}], "must_not": [{"id": "a", "text": "r"}]}},
        "field must, must_not: has the id 'a' twice; ids are unique within an intent",
    ),
]


@pytest.mark.parametrize(("questions", "complaint"), WRONG)
def test_a_fault_is_one_line_with_its_place(tmp_path: Path, questions: Any, complaint: str) -> None:
    path = tmp_path / "d.jsonl"
    path.write_bytes(lines(OURS | {"questions": questions}))
    dataset, problems = read_dataset(str(path))
    assert dataset is None
    (problem,) = problems
    assert problem.startswith(f"{path}:1, field questions"), problem
    assert complaint in problem


def test_a_pair_has_no_questions_about_a_prompt_that_it_lacks(tmp_path: Path) -> None:
    pair = {key: text for key, text in OURS["prompts"].items() if key != "dual_use"}
    record = {"prompts": pair, "questions": {"dual_use": {"must": ["Does it help?"]}}}
    path = tmp_path / "d.jsonl"
    path.write_bytes(lines(record))
    _, problems = read_dataset(str(path))
    assert problems == [
        f"{path}:1, field questions: has some about dual_use, and there is no such prompt"
    ]


def test_faults_of_a_table_name_the_column(tmp_path: Path) -> None:
    many = {f"benign_must_{n}": "q" for n in range(1, MOST_QUESTIONS + 2)}
    _, problems = read_dataset(table(tmp_path / "many.csv", ROW | many))
    assert problems == [
        f"{tmp_path / 'many.csv'}:2, field benign: has 31 questions; expected 1 to 30 an intent"
    ]
    _, problems = read_dataset(table(tmp_path / "n.csv", ROW | {"malicious_mustnot_2": "q"}))
    assert "did you mean 'malicious_must_not_2'?" in problems[0]
    path = tmp_path / "both.jsonl"
    path.write_bytes(lines({**ROW, "questions": ASKED, "benign_must_1": "q"}))
    _, problems = read_dataset(str(path))
    assert problems == [
        f"{path}:1, field questions: is there beside benign_must_1; expected one of the two"
    ]


def test_the_same_questions_in_json_and_in_a_table_are_the_same(tmp_path: Path) -> None:
    asked = {"malicious": {"must_not": ["One?", "Two?"]}}
    columns = {"malicious_must_not_1": "One?", "malicious_must_not_2": "Two?", "id": "a"}
    (tmp_path / "d.json").write_text(json.dumps([{**ROW, "questions": asked, "id": "a"}]))
    in_json = load_dataset(str(tmp_path / "d.json"))
    in_csv = load_dataset(table(tmp_path / "d.csv", ROW | columns))
    assert in_json.questions_hash == in_csv.questions_hash
    assert in_json.hash == in_csv.hash
