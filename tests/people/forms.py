"""Studies laid out from made-up texts, and annotators who fill their forms in by program."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from opensafeintent.people.labels import AnnotationKey, Answer, KeyItem, Label, LabelList, Showing
from opensafeintent.people.study import (
    PAGE_FORM,
    list_category_definitions,
    make_key_and_texts,
    make_quality_item,
    make_response_item,
    render_page,
    render_sheet,
)
from opensafeintent.promptsets import Dataset
from opensafeintent.promptsets.own_questions import OwnQuestion
from samples import made_dataset, prompt_set

ASKED = (
    (OwnQuestion("harm_severity", "Does it name the scanner?"), OwnQuestion("b", "=1+1, or not?")),
    (),
    (
        OwnQuestion("x", "Does it say <b>how</b>?"),
        OwnQuestion("y", "Does it say where,\nor when?"),
        OwnQuestion("z", "האם זה אומר מי?"),
    ),
)
"""Questions of the responses' own: two, none and three."""
WHO = ("ana", "ben", "cleo", "dmitri")
Meant = dict[str, str | int]
"""By field: what an annotator answers, by variant if it is about an intent."""
YES_NO = ("domain_right", "type_right", "sounds_human", "same_topic")
INTENTS = {
    "benign": "benign_is_benign",
    "malicious": "malicious_is_malicious",
    "dual_use": "dual_use_has_both",
}


class Study(NamedTuple):
    """A study that is laid out."""

    key: AnnotationKey
    texts: dict[str, list[tuple[str, ...]]]
    category_definitions: tuple[LabelList, ...] = ()

    def page(self, annotator: str = "ana") -> bytes:
        return render_page(self.key, annotator, self.texts[annotator], self.category_definitions)

    def sheet(self, annotator: str = "ana") -> Sheet:
        return Sheet(render_sheet(self.key, annotator, self.texts[annotator]))

    def codes(self, annotator: str = "ana") -> list[str]:
        return [showing.code for showing in self.key.annotators[annotator]]


def quality_study(dataset: Dataset, annotators: Sequence[str] = WHO) -> Study:
    items_with_texts = [make_quality_item(item, dataset) for item in dataset.prompt_sets]
    laid_out = make_key_and_texts("dataset_quality", dataset, items_with_texts, annotators)
    return Study(*laid_out, list_category_definitions(dataset.taxonomy))


def judge_study(
    responses: Sequence[str],
    annotators: Sequence[str] = WHO,
    prompt: str = "How does the Varo scanner work?",
    asked: Sequence[Sequence[OwnQuestion]] = (),
    **options: Any,
) -> Study:
    items_with_texts = [
        make_response_item(
            KeyItem(id=f"s{n}", variant="benign", model="some/model"), prompt, text, own
        )
        for n, (text, own) in enumerate(zip(responses, asked or [()] * len(responses), strict=True))
    ]
    dataset = made_dataset(prompt_set("s0"))
    return Study(
        *make_key_and_texts("judge_validation", dataset, items_with_texts, annotators, **options)
    )


def meant_by(annotator: str, key: AnnotationKey, index: int) -> Meant:
    """Return what a simulated annotator thinks of an item; now and then nothing, now and then
    `unsure`.
    """
    random = Random(f"{annotator} {index}")
    if key.kind == "judge_validation":
        meant: Meant = {
            "helpfulness": random.choice([1, 2, 3, 4, "unsure"]),
            "harm_severity": random.choice([0, 0, 1, 2, 3]),
        }
        for number, _ in enumerate(key.items[index].questions, start=1):
            meant[f"q{number}"] = random.choice(["yes", "no", "no", "unsure"])
    else:
        meant = {name: random.choice(["yes", "yes", "no", "unsure"]) for name in YES_NO}
        meant |= {name: random.choice([*INTENTS, "unsure"]) for name in INTENTS}
        meant["overall_quality"] = random.choice(["good", "poor"])
    return {name: value for name, value in meant.items() if random.random() >= 0.1}


def as_answers(meant: Meant, item: KeyItem) -> dict[str, Answer]:
    """Return what the labels must say, worked out a second time: an intent is right when the
    intended one was said. Answers to questions of the item's own are under `own ID`.
    """
    answers: dict[str, Answer] = {}
    for name, value in meant.items():
        if name[0] == "q" and name[1:].isdigit():
            answers[f"own {item.questions[int(name[1:]) - 1].id}"] = value
            continue
        if name in INTENTS:
            answers[INTENTS[name]] = "unsure" if value == "unsure" else ("no", "yes")[value == name]
        else:
            answers[name] = value
    return answers


def by_field(meant: Meant, showing: Showing) -> dict[str, Any]:
    """Return the answers as the form asks for them: the prompts are A, B and C."""
    fields = dict(meant)
    for letter, variant in zip("abc", showing.order, strict=False):
        if variant in fields:
            fields[f"intent_{letter}"] = fields.pop(variant)
    return fields


class Sheet:
    """An annotator's sheet, opened in a spreadsheet program."""

    def __init__(self, raw: bytes) -> None:
        self.headings, *self.rows = csv.reader(io.StringIO(raw.decode("utf-8-sig"), newline=""))

    def column(self, name: str) -> int:
        return [heading.partition(":")[0] for heading in self.headings].index(name)

    def row(self, code: str) -> list[str]:
        return next(row for row in self.rows if row[2] == code)

    def set(self, code: str, name: str, value: object) -> None:
        self.row(code)[self.column(name)] = str(value)

    def add(self, heading: str) -> None:
        """Add a column of ones."""
        self.headings.append(heading)
        self.rows = [[*row, "1"] for row in self.rows]

    def fill(self, showings: Sequence[Showing], meant: Callable[[Showing], Meant]) -> Sheet:
        """Answer every item; `dual_use` is typed as the heading has it."""
        for showing in showings:
            for field, value in by_field(meant(showing), showing).items():
                self.set(showing.code, field, "dual-use" if value == "dual_use" else value)
        return self

    def save(self, path: Path, delimiter: str = ",") -> Path:
        rows = [self.headings, *self.rows]
        if path.suffix == ".xlsx":
            import openpyxl

            book = openpyxl.Workbook()
            for row in rows:
                # a program makes numbers of digits; Excel's own line break is LF
                book.active.append(int(cell) if cell.isdigit() else cell or None for cell in row)
            book.save(path)
            return path
        with path.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file, delimiter=delimiter).writerows(rows)
        return path


def filled(key: AnnotationKey, sheet: Sheet, annotator: str, path: Path) -> Path:
    """Fill a sheet in as the simulated annotator means it."""
    showings = key.annotators[annotator]
    return sheet.fill(showings, lambda showing: meant_by(annotator, key, showing.item)).save(path)


def page_file(
    study: Study, path: Path, change: Callable[[dict[str, Any]], object] = lambda _: None
) -> Path:
    """Write what ana's page would save, nothing answered but what `change` adds."""
    saved: dict[str, Any] = {
        "form": PAGE_FORM,
        "study": study.key.study,
        "annotator": "ana",
        "items": [
            {"code": showing.code, "words": showing.words, "answers": {}}
            for showing in study.key.annotators["ana"]
        ],
    }
    change(saved)
    path.write_text(json.dumps(saved), encoding="utf-8")
    return path


Answered = dict[tuple[str, str, str, int], dict[str, Answer]]
"""Answers by set, variant, model and epoch."""


def expected_labels(key: AnnotationKey, annotator: str) -> Answered:
    """What the annotator's labels must be."""
    answers_by_response = {}
    for place, item in enumerate(key.items):
        if answers := as_answers(meant_by(annotator, key, place), item):
            answers_by_response[item.id, item.variant, item.model, item.epoch] = answers
    return answers_by_response


def found_labels(labels: Sequence[Label], annotator: str) -> Answered:
    mine = [label for label in labels if label.annotator == annotator and not label.blank]
    answers_by_response = {
        (label.id, label.variant, label.model, label.epoch): label.answers
        | {f"own {name}": answer for name, answer in label.own_answers.items()}
        for label in mine
    }
    assert len(answers_by_response) == len(mine)
    return answers_by_response
