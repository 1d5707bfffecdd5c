"""What annotators are given: guides, pages and sheets, which give no answer away."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path
from typing import Any

import pytest

from matched_sets import make_sets
from opensafeintent.errors import InputError
from opensafeintent.files import to_json
from opensafeintent.people.importing import import_returns
from opensafeintent.people.labels import (
    ANSWERS,
    QUALITY_QUESTIONS,
    SLOTS,
    Answers,
    LabelKind,
    SourcedLabel,
    get_guide,
    list_questions,
    text_hash,
    words_hash,
)
from opensafeintent.people.study import list_category_definitions, readable, render_guide
from opensafeintent.promptsets import load_dataset
from people.forms import ASKED, YES_NO, judge_study, page_file, quality_study

STARTER = load_dataset("starter")
KINDS: tuple[LabelKind, ...] = ("dataset_quality", "judge_validation")
HOSTILE = (
    '=HYPERLINK("http://x";"y")',
    "+1+1, @SUM(A1)",
    "'quoted\" and, commas\nand lines\r\nand\ttabs",
    "bidi \u202e, bell \u0007, line \u2028, lone \ud800",
    "word " * 20_000,
)


@pytest.mark.parametrize("kind", KINDS)
def test_guides_answer_every_question_with_a_valid_choice(kind: LabelKind) -> None:
    guide, questions = get_guide(kind), list_questions(kind)
    assert len(guide.examples) >= 2 and len(guide.calibration) == 3
    for example in (*guide.examples, *guide.calibration):
        assert len(example.texts) == len(SLOTS[kind]) and example.why
        assert example.answers.keys() == questions.keys()
        for field, accepted in example.answers.items():
            assert set(accepted) <= {choice.value for choice in questions[field].choices}
    for question in questions.values():
        keys = [choice.key for choice in question.choices]
        assert len(set(keys)) == len(keys) and question.read("unsure") == "unsure"
    if kind == "judge_validation":
        valid_answers = {field: question.valid for field, question in questions.items()}
        assert valid_answers == {
            "helpfulness": "1, 2, 3, 4, unsure",
            "harm_severity": "0, 1, 2, 3, unsure",
        }
        assert valid_answers.keys() == ANSWERS[kind].keys()


@pytest.mark.parametrize("kind", KINDS)
def test_the_guide_to_a_sheet_has_everything_that_a_page_has(kind: LabelKind) -> None:
    text, guide = html.unescape(render_guide(kind).decode()), get_guide(kind)
    whole = [guide.warning, *guide.intro, *guide.rules]
    whole += [choice.meaning for question in guide.questions for choice in question.choices]
    for example in (*guide.examples, *guide.calibration):
        whole += [*example.texts, example.why]
    assert [part for part in whole if part not in text] == []
    assert list_columns(text) == list(list_questions(kind))
    assert "<script" not in text and "script-src" in text


def list_columns(guide: str) -> list[str]:
    """Return the columns for answers that a guide names."""
    return ", ".join(re.findall(r"Column ([\w, ]+)<", guide)).split(", ")


def test_own_questions_are_in_the_sheet_and_its_guide() -> None:
    study = judge_study(["One.", "Two.", "Three."], asked=ASKED)
    sheet = study.sheet()
    texts = {showing.item: sheet.row(showing.code)[5] for showing in study.key.annotators["ana"]}
    assert texts == {
        0: "q1: Does it name the scanner?\nq2: =1+1, or not?",
        1: "",
        2: "q1: Does it say <b>how</b>?\nq2: Does it say where,\nor when?\nq3: האם זה אומר מי?",
    }
    guide = html.unescape(
        render_guide("judge_validation", most_own_questions=study.key.most_own_questions).decode()
    )
    assert list_columns(guide) == ["helpfulness", "harm_severity", "q1", "q2", "q3"]
    assert [heading.partition(":")[0] for heading in sheet.headings[3:]] == [
        *("Prompt", "Response", "Questions"),
        *(*list_columns(guide), "note"),
    ]
    other = judge_study(["One.", "Two.", "Three."], asked=(ASKED[0][::-1], *ASKED[1:]))
    assert other.key.study != study.key.study


def test_a_study_without_own_questions_has_nothing_of_them() -> None:
    study = judge_study(["One.", "Two."])
    assert study.sheet().headings == [
        *("study", "annotator", "item", "Prompt", "Response"),
        "helpfulness: 1 / 2 / 3 / 4 / unsure",
        "harm_severity: 0 / 1 / 2 / 3 / unsure",
        "note",
    ]
    data = json.loads(re.findall(r'id="data">(.*?)</script>', study.page().decode(), re.DOTALL)[0])
    assert [question["name"] for question in data["guide"]["questions"]] == [
        *("helpfulness", "harm_severity"),
    ]
    assert all(set(item) == {"code", "texts", "words"} for item in data["items"])
    assert b"questions" not in to_json(study.key)
    with_none = judge_study(["One.", "Two."], asked=((), ()))
    assert (with_none.key, with_none.page()) == (study.key, study.page())


def test_a_guide_has_all_labels_with_their_definitions() -> None:
    guide = html.unescape(
        render_guide("dataset_quality", list_category_definitions(STARTER.taxonomy)).decode()
    )
    for category in (*STARTER.taxonomy.harm_domains, *STARTER.taxonomy.task_types):
        assert category.name in guide and category.definition in guide


def test_nothing_gives_the_answer_away() -> None:
    study = quality_study(STARTER)
    sheet = "\n".join(",".join(row) for row in [study.sheet().headings, *study.sheet().rows])
    for form in (study.page().decode(), sheet):
        assert not any(item.id in form for item in STARTER.prompt_sets)
    data = json.loads(re.findall(r'id="data">(.*?)</script>', study.page().decode(), re.DOTALL)[0])
    assert all(set(item) == {"code", "texts", "words"} for item in data["items"])
    first = [study.key.annotators[name][0] for name in study.key.annotators]
    orders = {
        showing.order for name in study.key.annotators for showing in study.key.annotators[name]
    }
    assert len({showing.item for showing in first}) > 1 and len(orders) == 6
    graded = judge_study(["A response."] * 4)
    assert "some/model" not in graded.page().decode() + str(graded.sheet().rows)


def test_a_study_is_the_same_whoever_takes_part() -> None:
    alone, together = judge_study(["A.", "B."], ["ben"]), judge_study(["A.", "B."], ["ana", "ben"])
    assert alone.key.study == together.key.study
    assert alone.page("ben") == together.page("ben")
    assert alone.sheet("ben").rows == together.sheet("ben").rows
    assert judge_study(["A.", "C."], ["ben"]).key.study != alone.key.study
    assert judge_study(["A.", "B."], ["ben"], seed=1).key.study != alone.key.study


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\r\nb\rc\x0bd\u2028e", "a\nb\nc\nd\ne"),
        ("tab\there", "tab    here"),
        ("\x1b[31m\u202e\u200b\ue000\uffff\ud800", "[U+001B][31m[U+202E][U+200B][U+E000][U+FFFF][U+D800]"),
        ("👩\u200d💻 می\u200cخواهم", "👩\u200d💻 می\u200cخواهم"),
    ],
)  # fmt: skip
def test_what_cannot_be_seen_is_made_visible(text: str, shown: str) -> None:
    assert readable(text) == shown
    assert len(text_hash(text)) == 64


def test_no_text_of_a_sheet_is_a_formula_and_none_is_cut() -> None:
    study = judge_study(HOSTILE)
    for row, showing in zip(study.sheet().rows, study.key.annotators["ana"], strict=True):
        assert not any(cell.startswith(("=", "+", "@", "-")) for cell in row)
        assert words_hash(row[3:5]) == showing.words
        assert readable(HOSTILE[showing.item]) in (row[4], row[4][1:])


@pytest.mark.parametrize(
    "names",
    [["ana", "ana"], ["ana", " Ana "], ["Ana M.", "ana m"], ["é", "e\u0301"], ["a/b", "a:b"]],
)
def test_two_annotators_with_one_name_are_refused(names: list[str]) -> None:
    with pytest.raises(InputError, match="look alike"):
        judge_study(["A."], names)


@pytest.mark.parametrize(
    "names", [[], [""], ["ana", ""], ["an\x1b[31ma"], ["x" * 81], ["an\u202ea"], ["=ana"]]
)
def test_names_that_cannot_be_used_are_refused(names: list[str]) -> None:
    with pytest.raises(InputError, match="--annotators: ") as error:
        judge_study(["A."], names)
    assert "\x1b" not in str(error.value)


def test_nothing_to_annotate_is_refused() -> None:
    with pytest.raises(InputError, match="there are no items"):
        judge_study([])


def test_nothing_is_asked_about_what_a_pair_lacks(tmp_path: Path) -> None:
    dataset = make_sets("mixed")
    study = quality_study(dataset, ("ana",))
    data = json.loads(re.findall(r'id="data">(.*?)</script>', study.page().decode(), re.DOTALL)[0])
    by_code = {item["code"]: item for item in data["items"]}
    for showing in study.key.annotators["ana"]:
        prompt_set, item = dataset.prompt_sets[showing.item], by_code[showing.code]
        *prompts, labels = item["texts"]
        there = [prompt_set.prompts.of(intent) for intent in showing.order]
        assert prompts == [*there, *[""] * prompt_set.is_pair] and len(prompts) == 3
        skipped = [
            *(() if labels else ("domain_right", "type_right")),
            *(("intent_c",) if prompt_set.is_pair else ()),
        ]
        assert item.get("skipped", []) == skipped

    def answer(saved: dict[str, Any]) -> None:
        for item, showing in zip(saved["items"], study.key.annotators["ana"], strict=True):
            skipped = by_code[showing.code].get("skipped", [])
            intents = zip("abc", showing.order, strict=False)
            given = {f"intent_{letter}": intent for letter, intent in intents}
            given |= {name: "yes" for name in YES_NO if name not in skipped}
            item["answers"] = given | {"overall_quality": "good"}

    read = import_returns([page_file(study, tmp_path / "ana.json", answer)], study.key)
    (back,) = read.returns
    assert (back.complete, back.begun) == (12, 0)
    answers = Answers("dataset_quality", [SourcedLabel("", label) for label in read.labels])
    assert {name: answers.count(name, None) for name in QUALITY_QUESTIONS} == dict.fromkeys(
        QUALITY_QUESTIONS, 0
    )
    assert answers.count("dual_use_has_both", "yes") == 6
    assert answers.count("domain_right", "yes") == 9
