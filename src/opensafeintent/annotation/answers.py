"""From files of labels to arrays of answers: one row an item, one column an annotator."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from opensafeintent.annotation.labels import (
    QUALITY_QUESTIONS,
    UNSURE,
    Answer,
    Label,
    LabelKind,
    read_labels,
)
from opensafeintent.errors import InputError
from opensafeintent.taxonomy import SCALES

EVERYONE = "all"
"""The name of a row over all annotators, questions or intents."""
_MOST_PROBLEMS = 10
_VALID: dict[LabelKind, dict[str, tuple[Answer, ...]]] = {
    "dataset_quality": {
        question: ("good", "poor") if question == "overall_quality" else ("yes", "no")
        for question in QUALITY_QUESTIONS
    },
    "judge_validation": {
        "helpfulness": SCALES["helpfulness"],
        "harm_severity": SCALES["harm_severity"],
    },
}

Floats = NDArray[np.float64]


class Item(NamedTuple):
    """What was asked about: a prompt-set, or with a variant one response."""

    id: str
    variant: str = ""
    model: str = ""
    epoch: int = 1

    def __str__(self) -> str:
        if not self.variant:
            return f"set {self.id}"
        again = f", epoch {self.epoch}" if self.epoch != 1 else ""
        return f"set {self.id}, {self.variant}, {self.model}{again}"


class SourcedLabel(NamedTuple):
    """A label with its source: the file, and its number there."""

    path: Path
    number: int
    label: Label

    @property
    def item(self) -> Item:
        """What it is about."""
        return Item(self.label.id, self.label.variant, self.label.model, self.label.epoch)

    def __str__(self) -> str:
        return f"{self.path}, label {self.number} ({self.label.annotator} on {self.item})"


class Answers:
    """The first answers of one kind of labels, with the items and annotators that they belong to.

    Attributes:
        kind: which task it was.
        items: sorted, so that results do not depend on the order of files.
        annotators: names, sorted.
        first: the labels that are no repeats, by item and annotator.
        repeats: the second showings, by item and annotator.
    """

    def __init__(self, kind: LabelKind, sourced: Iterable[SourcedLabel]) -> None:
        self.kind = kind
        self.sourced = [label for label in sourced if label.label.kind == kind]
        self.first: dict[tuple[Item, str], SourcedLabel] = {}
        self.repeats: dict[tuple[Item, str], SourcedLabel] = {}
        for one in self.sourced:
            of_showing = self.repeats if one.label.repeat else self.first
            key = (one.item, one.label.annotator)
            if key in of_showing:
                raise InputError(_twice(of_showing[key], one))
            of_showing[key] = one
        self.items = sorted({item for item, _ in self.first})
        self.annotators = sorted({annotator for _, annotator in self.first})

    def of(self, item: Item) -> list[Label]:
        """Return the labels of an item, an annotator after the other."""
        return [
            self.first[item, name].label for name in self.annotators if (item, name) in self.first
        ]

    def array(self, value_of: Callable[[Label], float]) -> Floats:
        """Return a number for each label, NaN where an annotator did not return the item: shape
        (item, annotator).
        """
        values = np.full((len(self.items), len(self.annotators)), np.nan)
        rows = {item: row for row, item in enumerate(self.items)}
        columns = {name: column for column, name in enumerate(self.annotators)}
        for (item, name), sourced in self.first.items():
            values[rows[item], columns[name]] = value_of(sourced.label)
        return values

    def returned(self) -> dict[str, int]:
        """Return how many items each annotator returned."""
        counts = Counter(name for _, name in self.first)
        return {name: counts[name] for name in self.annotators}

    def count(self, question: str, answer: Answer | None) -> int:
        """Return how often a question was answered so; None is blank."""
        return sum(sourced.label.answers.get(question) == answer for sourced in self.first.values())

    def undefined(self) -> str:
        """Say why there may be no agreement."""
        if len(self.annotators) < 2:
            return "one annotator"
        return "no item was answered by two annotators"


def read_all(paths: Sequence[Path]) -> list[SourcedLabel]:
    """Read files of labels.

    Raises:
        InputError: a file cannot be read; an answer is none that its question has; or the labels
            are of several datasets.
    """
    if not paths:
        raise InputError("no labels: name at least one file that annotate import wrote")
    sourced = [
        SourcedLabel(path, number, label)
        for path in paths
        for number, label in enumerate(read_labels(path), start=1)
    ]
    refuse([problem for one in sourced for problem in _problems(one)], "answers")
    datasets: dict[str, SourcedLabel] = {}
    for one in sourced:
        datasets.setdefault(one.label.dataset, one)
    if len(datasets) > 1:
        (a, first), (b, second) = list(datasets.items())[:2]
        raise InputError(
            f"{second}: is for another dataset ({b[:8]}) than {first} ({a[:8]}); only labels of one"
            " dataset can be put together"
        )
    return sourced


def refuse(problems: Sequence[str], what: str) -> None:
    """Refuse labels by the first of their problems; without any, do nothing.

    Raises:
        InputError: there is a problem.
    """
    if problems:
        more = len(problems) - _MOST_PROBLEMS
        raise InputError(
            *problems[:_MOST_PROBLEMS], *([f"… and {more} more such {what}"] if more > 0 else [])
        )


def gather(sourced: Sequence[SourcedLabel]) -> dict[LabelKind, Answers]:
    """Return the answers of each kind that there is.

    Raises:
        InputError: one annotator answered an item twice.
    """
    kinds: tuple[LabelKind, ...] = ("dataset_quality", "judge_validation")
    by_kind = {kind: Answers(kind, sourced) for kind in kinds}
    return {kind: answers for kind, answers in by_kind.items() if answers.first}


def _problems(sourced: SourcedLabel) -> Iterable[str]:
    label = sourced.label
    if not label.annotator.strip():
        yield f"{sourced}: has no annotator"
    if (label.kind == "judge_validation") != bool(label.variant and label.model):
        yield f"{sourced}: expected variant and model with judge_validation, and with that alone"
    if not label.weight > 0 or label.weight == float("inf"):
        yield f"{sourced}: weight {label.weight}; expected a number above 0"
    valid = _VALID[label.kind]
    for question, answer in label.answers.items():
        if question not in valid:
            yield f"{sourced}: unknown question {question!r}; valid: {', '.join(valid)}"
        elif answer != UNSURE and answer not in valid[question]:
            yield (
                f"{sourced}: {question} is {answer!r}; valid:"
                f" {', '.join(map(str, (*valid[question], UNSURE)))}"
            )


def _twice(first: SourcedLabel, second: SourcedLabel) -> str:
    name, what = second.label.annotator, "a second showing of " if second.label.repeat else ""
    files = f"{first.path}, labels {first.number} and {second.number}"
    if first.path != second.path:
        files = f"{first.path}, label {first.number}, and {second.path}, label {second.number}"
    return (
        f"{files}: annotator {name!r} answered {what}{second.item} twice; give two people two"
        " names, or leave out the return that is there twice"
    )


def answer_of(values: Mapping[Answer, float], question: str) -> Callable[[Label], float]:
    """Return a function from a label to the number that stands for its answer; NaN where it is
    unsure or blank.
    """

    def value_of(label: Label) -> float:
        answer = label.answers.get(question)
        return float("nan") if answer is None else values.get(answer, float("nan"))

    return value_of
