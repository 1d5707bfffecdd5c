"""From what came back to labels: everything is checked against the study's key, and nothing is
guessed.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from datetime import date, datetime, time, timedelta
from pathlib import Path

import msgspec

from opensafeintent.annotation.forms import ITEMS, PRACTICE, page_words
from opensafeintent.annotation.guide import SLOTS, asks_of, guide_of
from opensafeintent.annotation.labels import (
    UNSURE,
    AnnotationKey,
    Answer,
    Label,
    Showing,
    both_times,
)
from opensafeintent.annotation.returns import Formula, Returned, ReturnedItem, Value, read_return
from opensafeintent.errors import InputError
from opensafeintent.hostile import one_line

_INTENT_QUESTIONS = {
    "benign": "benign_is_benign",
    "dual_use": "dual_use_has_both",
    "malicious": "malicious_is_malicious",
}


class AnnotatorReturn(msgspec.Struct, frozen=True, kw_only=True):
    """How much of a form came back filled in."""

    annotator: str
    file: str
    items: int
    """Items in the form, second showings included."""
    complete: int
    """Items with every question answered."""
    begun: int
    """Items with some, not all."""
    unsure: int
    """Answers that are `unsure`."""
    repeated: int
    """Questions answered at a first and at a second showing, as `agreement` counts them: `unsure`
    is no answer.
    """
    repeated_alike: int
    """Of those, the ones that are the same."""
    practice: int
    """Answers to practice items."""
    practice_accepted: int
    """Of those, the ones that we would accept."""


class ImportedLabels(msgspec.Struct, frozen=True, kw_only=True):
    """What the returns of a study hold."""

    key: AnnotationKey
    labels: list[Label]
    """In the order of annotators and items in the key."""
    returns: list[AnnotatorReturn]
    intents: Counter[tuple[str, str]]
    """With dataset quality: (intended, said), over all first showings."""


def import_returns(paths: Sequence[Path], key: AnnotationKey, form: str = "auto") -> ImportedLabels:
    """Read what annotators sent back and turn it into labels.

    Raises:
        InputError: something is wrong; every problem stands on a line of its own, with its file and
            address.
    """
    problems: list[str] = []
    returned: dict[str, Returned] = {}
    for path in paths:
        try:
            one = read_return(path, form)
        except InputError as error:
            problems.append(str(error))
            continue
        problem = _not_of_study(one, key)
        if problem:
            problems.append(f"{path}: {problem}")
        elif one.annotator in returned:
            problems.append(
                f"{path}: is {one_line(one.annotator, 60)}'s, and so is"
                f" {returned[one.annotator].file}; expected one file an annotator"
            )
        else:
            returned[one.annotator] = one
    checks = [_Check(returned[name], key) for name in key.annotators if name in returned]
    problems += [f"{check.file}: {problem}" for check in checks for problem in check.problems]
    if problems:
        raise InputError(*problems)
    if not checks:
        raise InputError(
            "no files to import: expected the workbooks or .json files that annotators sent back"
        )
    return ImportedLabels(
        key=key,
        labels=[label for check in checks for label in check.labels()],
        returns=[check.summary() for check in checks],
        intents=sum((check.intents() for check in checks), Counter()),
    )


def _not_of_study(returned: Returned, key: AnnotationKey) -> str:
    """Say why a return cannot be of the key's study; empty where it can."""
    if returned.study != key.study:
        return (
            f"belongs to study {one_line(returned.study, 40) or '(none)'}, and the key to"
            f" {key.study} (dataset {key.dataset_hash[:8]}): it was made from another dataset"
            " version, sample or seed; expected the key.json that was written beside it"
        )
    if returned.annotator not in key.annotators:
        names = ", ".join(one_line(name, 60) for name in key.annotators)
        return f"annotator {one_line(returned.annotator, 60)!r} is not in the key; valid: {names}"
    return ""


class _Check:
    """One annotator's return, held against the key."""

    def __init__(self, returned: Returned, key: AnnotationKey) -> None:
        self.file = returned.file
        self.problems = list(returned.problems)
        self._returned = returned
        self._key = key
        self._guide = guide_of(key.kind)
        self._showings = {showing.code: showing for showing in key.annotators[returned.annotator]}
        self._answers: dict[str, dict[str, Answer]] = {}
        self._notes: dict[str, str] = {}
        if returned.items or not returned.problems:
            self._check()

    def _check(self) -> None:
        addresses: dict[str, str] = {}
        for item in self._returned.items:
            showing = self._showings.get(item.code)
            if showing is None:
                self.problems.append(
                    f"{item.address}: item {one_line(item.code, 20)!r} is not one of"
                    f" {self._returned.annotator}'s in this study; expected the ids as they were"
                )
                continue
            if item.code in addresses:
                self.problems.append(
                    f"{item.address}: item {item.code} is there twice, here and at"
                    f" {addresses[item.code]}"
                )
                continue
            addresses[item.code] = item.address
            self._check_texts(item, showing)
            self._answers[item.code] = dict(self._valid_answers(item))
            self._notes[item.code] = self._valid_note(item)
        rows: Counter[str] = Counter()
        for code, showing in self._showings.items():
            sheet = PRACTICE if showing.calibration else ITEMS
            rows[sheet] += 1
            if code not in self._answers:
                self.problems.append(
                    f"{sheet}, No. {rows[sheet]}: item {code} is not there any more; expected every"
                    " row, those left blank as well"
                )

    def _check_texts(self, item: ReturnedItem, showing: Showing) -> None:
        if "" in item.words:
            address, words = item.words[""]
            if words != page_words(showing):
                self.problems.append(
                    f"{address}: item {item.code}: its texts are not those of the study; expected"
                    " its own page"
                )
            return
        for slot, words in zip(SLOTS[self._key.kind], showing.words, strict=True):
            if slot.label not in item.words:
                self.problems.append(
                    f"{item.address}: item {item.code}: rows of {slot.label} are missing; expected"
                    " every row as it was"
                )
            elif item.words[slot.label][1] != words:
                self.problems.append(
                    f"{item.words[slot.label][0]}: the text was changed; expected {slot.label} of"
                    f" item {item.code} as it was"
                )

    def _valid_answers(self, item: ReturnedItem) -> Iterator[tuple[str, Answer]]:
        asks = {ask.field: ask for ask in asks_of(self._key.kind)}
        for field, (address, value) in item.answers.items():
            if field not in asks:
                self.problems.append(
                    f"{address}: {one_line(field, 40)!r} is not a question; valid:"
                    f" {', '.join(asks)}"
                )
                continue
            question = self._guide.question(asks[field].question)
            if isinstance(value, Formula):
                self.problems.append(
                    f"{address}: the formula {one_line(value.text, 40)!r}; expected the answer"
                    f" itself: {question.valid}"
                )
                continue
            answer = question.read(value)
            if answer is None:
                self.problems.append(
                    f"{address}: {_seen(value)} is not an answer; valid: {question.valid}, or blank"
                )
            else:
                yield field, answer

    def _valid_note(self, item: ReturnedItem) -> str:
        if item.note is None:
            return ""
        address, value = item.note
        if isinstance(value, Formula):
            self.problems.append(
                f"{address}: the formula {one_line(value.text, 40)!r}; expected a note in words"
            )
            return ""
        return str(value).strip()

    # Labels
    # ------------------------------------------------------------------------------

    def labels(self) -> Iterator[Label]:
        """Yield the labels in the key's order; an item with neither answer nor note has none."""
        ordered = sorted(
            (showing for showing in self._showings.values() if not showing.calibration),
            key=lambda showing: (showing.repeat, showing.item),
        )
        for showing in ordered:
            answers = self._answers[showing.code]
            if self._key.kind == "dataset_quality":
                answers = _quality(answers, showing)
            if answers or self._notes[showing.code]:
                yield self._label(showing, answers)

    def _label(self, showing: Showing, answers: dict[str, Answer]) -> Label:
        return Label(
            kind=self._key.kind,
            annotator=self._returned.annotator,
            dataset=self._key.dataset_hash,
            **msgspec.structs.asdict(self._key.items[showing.item]),
            answers=answers,
            repeat=showing.repeat,
            unit=self._key.unit,
            note=self._notes[showing.code],
        )

    def intents(self) -> Counter[tuple[str, str]]:
        """Count (intended, said) over the first showings."""
        return Counter(
            (variant, str(self._answers[showing.code][field]))
            for showing in self._showings.values()
            if not showing.repeat and not showing.calibration
            for variant, field in _intent_fields(showing)
            if field in self._answers[showing.code]
        )

    def summary(self) -> AnnotatorReturn:
        """Return how much was answered, and how alike where something was asked twice."""
        fields = len(asks_of(self._key.kind))
        items = [showing for showing in self._showings.values() if not showing.calibration]
        given = [self._answers[showing.code] for showing in items]
        shown: dict[tuple[str, str, str, int], dict[bool, Label]] = defaultdict(dict)
        for label in self.labels():
            shown[label.id, label.variant, label.model, label.epoch][label.repeat] = label
        pairs = [
            pair
            for twice in shown.values()
            if True in twice
            for pair in both_times(twice.get(False), twice[True])
        ]
        practice = [
            str(answer) in self._guide.calibration[showing.item].answers[field]
            for showing in self._showings.values()
            if showing.calibration
            for field, answer in self._answers[showing.code].items()
        ]
        return AnnotatorReturn(
            annotator=self._returned.annotator,
            file=self._returned.file,
            items=len(items),
            complete=sum(len(answers) == fields for answers in given),
            begun=sum(0 < len(answers) < fields for answers in given),
            unsure=sum(answer == UNSURE for answers in given for answer in answers.values()),
            repeated=len(pairs),
            repeated_alike=sum(one == other for _, one, other in pairs),
            practice=len(practice),
            practice_accepted=sum(practice),
        )


def _intent_fields(showing: Showing) -> Iterator[tuple[str, str]]:
    """Yield (variant, field) for the three prompts as they were shown."""
    for variant, letter in zip(showing.order, "abc", strict=False):
        yield variant, f"intent_{letter}"


def _quality(answers: dict[str, Answer], showing: Showing) -> dict[str, Answer]:
    """Turn what was said of A, B and C into the paper's questions: is the benign prompt benign, and
    so on.
    """
    derived = {
        field: answer for field, answer in answers.items() if not field.startswith("intent_")
    }
    for variant, field in _intent_fields(showing):
        if field in answers:
            said = answers[field]
            derived[_INTENT_QUESTIONS[variant]] = (
                UNSURE if said == UNSURE else "yes" if said == variant else "no"
            )
    return derived


_KINDS: dict[type, str] = {
    datetime: "a date",
    date: "a date",
    time: "a time",
    timedelta: "a time",
    list: "a list",
    dict: "an object",
}
"""What a workbook's cell or a page's file may hold besides text and numbers."""


def _seen(value: Value) -> str:
    if isinstance(value, str | int | float):
        return repr(one_line(str(value), 40))
    return f"{one_line(str(value), 40)!r} ({_KINDS.get(type(value), 'no text')})"
