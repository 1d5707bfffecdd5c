"""From returns to labels: everything is checked against the study's key, and nothing is guessed."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Literal, cast

import msgspec

from opensafeintent.errors import InputError, find_repeated, pluralize
from opensafeintent.files import RowLimit, os_errors, parse_json, read_bytes
from opensafeintent.hostile import clean_for_display
from opensafeintent.people.labels import (
    ANSWERS,
    UNSURE,
    AnnotationKey,
    Answer,
    FormQuestion,
    KeyItem,
    Label,
    LabelKind,
    OwnAnswer,
    Showing,
    list_asked,
    list_questions,
    list_slots,
    read_labels,
    words_hash,
)
from opensafeintent.people.study import sheet_columns
from opensafeintent.promptsets.fields import fields_named
from opensafeintent.promptsets.reading import Problem, read_table

_MOST_BYTES = 100_000_000
"""A larger file is no form of ours."""
_INTENT_QUESTIONS = {
    "benign": "benign_is_benign",
    "dual_use": "dual_use_has_both",
    "malicious": "malicious_is_malicious",
}


class _SavedItem(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """An item as it came back; a blank answer is not there."""

    code: str
    words: str
    """`words_hash` of the texts."""
    answers: dict[str, object] = {}
    note: str = ""


class _Saved(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The content of a page's file; a sheet is read into the same form."""

    form: Literal["opensafeintent annotation 1"] = "opensafeintent annotation 1"
    study: str
    annotator: str
    items: list[_SavedItem]


class AnnotatorReturn(msgspec.Struct, frozen=True, kw_only=True):
    """How much of a form came back filled in."""

    annotator: str
    file: str
    items: int
    complete: int
    """Items with every question answered."""
    begun: int
    """Items with some, not all."""
    unsure: int
    """Answers that are `unsure`."""


class ImportedLabels(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a study's returns."""

    labels: list[Label]
    """In the order of annotators and items in the key; those of blank items have no answers."""
    returns: list[AnnotatorReturn]
    run: Path | None = None
    """Whose responses were labelled; None for a dataset, or if the run is not there any more."""


def import_returns(paths: Sequence[Path], key: AnnotationKey) -> ImportedLabels:
    """Read annotators' returns, pages' JSON or sheets as CSV or a workbook, and turn them into
    labels.

    Raises:
        InputError: there are problems; each has a line of its own, with its file and item.
    """
    problems: list[str] = []
    returned: dict[str, tuple[list[Label], AnnotatorReturn]] = {}
    for path in paths:
        try:
            saved = _read_return(path, key)
        except InputError as error:
            problems.append(str(error))
            continue
        name = saved.annotator
        if name in returned:
            problems.append(
                f"{path}: is {name}'s, and so is {returned[name][1].file}; expected one file an"
                " annotator"
            )
        else:
            returned[name] = _check_return(path, saved, key, problems)
    if problems:
        raise InputError(*problems)
    in_order = [returned[name] for name in key.annotators if name in returned]
    return ImportedLabels(
        labels=[label for labels, _ in in_order for label in labels],
        returns=[summary for _, summary in in_order],
    )


def check_replaced(path: Path, key: AnnotationKey, returns: Sequence[AnnotatorReturn]) -> None:
    """Check that a file of labels, if it is there, holds nothing that an import would lose.

    Args:
        path: the file that the import writes.
        key: of the study.
        returns: of its annotators; their earlier labels may be replaced.

    Raises:
        InputError: the file holds something else than labels of the study, or those of an annotator
            who has no return.
    """
    if not path.is_file() or not path.stat().st_size:
        return
    other_file = "expected another file (--out FILE)"
    try:
        there = [sourced.label for sourced in read_labels(path)]
    except InputError as error:
        raise InputError(f"{path}: is there, and is no file of labels; {other_file}") from error
    if any(label.study != key.study for label in there):
        raise InputError(
            f"{path}: holds labels of another study than {key.study}; {other_file}, such as"
            f" {key.labels_file}"
        )
    returned = {form.annotator for form in returns}
    lost = sorted({label.annotator for label in there if not label.blank} - returned)
    if lost:
        raise InputError(
            f"{path}: holds labels of {', '.join(lost)}, who have no return here; expected all"
            f" returns of the study, or {other_file.removeprefix('expected ')}"
        )


def _read_return(path: Path, key: AnnotationKey) -> _Saved:
    """Read a returned file of the key's study.

    Raises:
        InputError: it cannot be read, is neither form, or belongs to another annotator or study.
    """
    with os_errors(f"{path}: cannot read"):
        size = path.stat().st_size
    if size > _MOST_BYTES:
        raise InputError(f"{path}: {size:,} bytes; a form of ours is never so large")
    raw = read_bytes(path)
    if raw.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{"):
        saved = parse_json(raw, _Saved, str(path), "a file saved by a page of annotate export")
    else:
        saved = _read_sheet(path, key)
    if saved.study != key.study:
        raise InputError(
            f"{path}: belongs to study {clean_for_display(saved.study)!r}, and the key to"
            f" {key.study} (dataset {key.dataset_hash[:8]}): it was made from another dataset"
            " version, sample or seed; expected the key.json that was written beside it"
        )
    if saved.annotator not in key.annotators:
        raise InputError(
            f"{path}: annotator {clean_for_display(saved.annotator)!r} is not in the key; valid:"
            f" {', '.join(key.annotators)}"
        )
    return saved


def _read_sheet(path: Path, key: AnnotationKey) -> _Saved:
    """Read a sheet; its rows and columns may have another order.

    Raises:
        InputError: it is no CSV or workbook, has other columns, or rows of several annotators.
    """
    columns, questions = (
        sheet_columns(key.kind, key.most_own_questions),
        list_questions(key.kind, key.most_own_questions),
    )
    slots = list_slots(key.kind, key.most_own_questions)
    owners: set[tuple[str, str]] = set()
    items: list[_SavedItem] = []
    try:
        for _, row in read_table(path, str(path), RowLimit()):
            names = [heading.partition(":")[0].strip() for heading in row]
            if twice := find_repeated(names):
                raise InputError(f"{path}: two columns are called {clean_for_display(twice[0])!r}")
            cells = dict(zip(names, row.values(), strict=True))
            if sorted(cells) != sorted(columns):
                raise InputError(
                    f"{path}: is neither a page's .json nor a sheet of this task; expected CSV with"
                    f" commas, or .xlsx, and the columns {', '.join(columns)}"
                    f"{_other_columns(cells, columns)}"
                )
            if any(cells.values()):
                owners.add((cells["study"].strip(), cells["annotator"].strip()))
                items.append(
                    _SavedItem(
                        code=cells["item"].strip(),
                        words=words_hash([cells[slot.label] for slot in slots]),
                        answers={name: cells[name] for name in questions if cells[name].strip()},
                        note=cells["note"],
                    )
                )
    except Problem as problem:
        raise InputError(str(problem)) from problem
    if len(owners) != 1:
        raise InputError(f"{path}: expected the rows of one annotator in one study")
    ((study, annotator),) = owners
    return _Saved(study=study, annotator=annotator, items=items)


def _other_columns(there: Collection[str], needed: Collection[str]) -> str:
    """Return which columns a file lacks, and which it has besides, for a message."""
    lacking = [name for name in needed if name not in there]
    more = [name for name in there if name not in needed]
    return (f"; it lacks {', '.join(lacking)}" if lacking else "") + (
        f"; it has besides {fields_named(more)}" if more else ""
    )


def _check_return(
    path: Path, saved: _Saved, key: AnnotationKey, problems: list[str]
) -> tuple[list[Label], AnnotatorReturn]:
    """Check a return against the key: add its faults to `problems`, and return its labels in the
    key's order.
    """
    showings = {showing.code: showing for showing in key.annotators[saved.annotator]}
    answers: dict[str, dict[str, Answer]] = {}
    notes: dict[str, str] = {}
    for item in saved.items:
        location = f"{path}, item {clean_for_display(item.code)}"
        if item.code not in showings:
            problems.append(f"{location}: is none of {saved.annotator}'s in this study")
        elif item.code in answers:
            problems.append(f"{location}: is there twice")
        else:
            if item.words != showings[item.code].words:
                problems.append(f"{location}: its texts were changed; expected them as they were")
            asked = list_asked(key, key.items[showings[item.code].item])
            answers[item.code] = _valid_answers(item, asked, location, problems)
            notes[item.code] = item.note.strip()
    missing = [code for code in showings if code not in answers]
    if missing:
        problems.append(
            f"{path}: lacks {pluralize(len(missing), 'item')}, such as {missing[0]}; expected"
            " every item, those left blank as well"
        )
    labels = [
        Label(
            kind=key.kind,
            annotator=saved.annotator,
            dataset=key.dataset_hash,
            **msgspec.structs.asdict(key.items[showing.item]),
            answers=_answer_questions(answers.get(code, {}), showing, key.kind),
            own_answers=_answer_own(answers.get(code, {}), key.items[showing.item]),
            study=key.study,
            unit=key.unit,
            note=notes.get(code, ""),
        )
        for code, showing in sorted(showings.items(), key=lambda pair: pair[1].item)
    ]
    begun = sum(len(of_item) > 0 for of_item in answers.values())
    complete = sum(
        len(of_item) == len(list_asked(key, key.items[showings[code].item]))
        for code, of_item in answers.items()
    )
    return labels, AnnotatorReturn(
        annotator=saved.annotator,
        file=str(path),
        items=len(showings),
        complete=complete,
        begun=begun - complete,
        unsure=sum(list(of_item.values()).count(UNSURE) for of_item in answers.values()),
    )


def _valid_answers(
    item: _SavedItem, questions: dict[str, FormQuestion], location: str, problems: list[str]
) -> dict[str, Answer]:
    """Return the answers by field; invalid ones, and those to questions that are not asked about
    the item, are added to `problems`.
    """
    valid: dict[str, Answer] = {}
    for field, value in item.answers.items():
        if field not in questions:
            problems.append(
                f"{location}: {clean_for_display(field)!r} is not a question about it; valid:"
                f" {', '.join(questions)}"
            )
        elif (answer := questions[field].read(value)) is None:
            problems.append(
                f"{location}, {field}: {clean_for_display(str(value))!r} is not an answer; valid:"
                f" {questions[field].valid}, or blank"
            )
        else:
            valid[field] = answer
    return valid


def _answer_own(answers: dict[str, Answer], item: KeyItem) -> dict[str, OwnAnswer]:
    """Return the answers to the questions of an item's own, by their ids."""
    fields = {f"q{number}": own.id for number, own in enumerate(item.questions, start=1)}
    return {
        own_id: cast(OwnAnswer, answers[name]) for name, own_id in fields.items() if name in answers
    }


def _answer_questions(
    answers: dict[str, Answer], showing: Showing, kind: LabelKind
) -> dict[str, Answer]:
    """Return the answers to the questions of the task. Those about prompts A, B and C become the
    paper's questions: is the benign prompt benign, and so on.
    """
    labelled = {name: answers[name] for name in ANSWERS[kind] if name in answers}
    for intent, letter in zip(showing.order, "abc", strict=False):
        chosen = answers.get(f"intent_{letter}")
        if chosen is not None:
            answer = UNSURE if chosen == UNSURE else "yes" if chosen == intent else "no"
            labelled[_INTENT_QUESTIONS[intent]] = answer
    return labelled
