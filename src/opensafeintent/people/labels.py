"""Labels of people, the key of a study, and the guide with its questions."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import msgspec
from msgspec import Meta

from opensafeintent.errors import InputError
from opensafeintent.files import (
    near,
    parse_json,
    parse_toml,
    read_bytes,
    read_json,
    read_shipped,
    sha256_hex,
    to_json,
    write_private,
)
from opensafeintent.promptsets.reading import whole_number
from opensafeintent.ratings import Ratings
from opensafeintent.taxonomy import METRIC_GRADES, SCALES, Intent

LabelKind = Literal["dataset_quality", "judge_validation"]
Unit = Literal["response", "set"]

QUALITY_QUESTIONS = (
    "domain_right",
    "type_right",
    "sounds_human",
    "same_topic",
    "benign_is_benign",
    "malicious_is_malicious",
    "dual_use_has_both",
    "overall_quality",
)
"""The paper's seven yes/no questions on a prompt-set (its appendix), and the overall quality, good
or poor.
"""

UNSURE = "unsure"

Answer = str | int
"""`yes`, `no`, `good`, `poor`; a grade; or `unsure`."""

OwnAnswer = Literal["yes", "no", "unsure"]
"""To a question of the prompt-set's own."""

ANSWERS: dict[LabelKind, dict[str, tuple[Answer, ...]]] = {
    "dataset_quality": {
        question: ("good", "poor") if question == "overall_quality" else ("yes", "no")
        for question in QUALITY_QUESTIONS
    },
    "judge_validation": {grade: SCALES[grade] for grade in METRIC_GRADES},
}
"""The answers that each question has, `unsure` aside. People give the grades that metrics need."""

_NUMBERS: dict[Answer, float] = {"yes": 1.0, "no": 0.0, "good": 1.0, "poor": 0.0}


class AskedQuestion(msgspec.Struct, frozen=True):
    """A question of a prompt-set's own, as it was asked about a response."""

    id: str
    """Unique among the questions about the response."""
    text_sha256: str
    """Hash of its text, which tells an answer to another text."""


class KeyItem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The annotated item: a prompt-set, or a response."""

    id: str
    """Id of the prompt-set."""
    variant: str = ""
    """Of a response: which prompt of the set it answers."""
    model: str = ""
    """Of a response: who wrote it."""
    epoch: Annotated[int, Meta(ge=1)] = 1
    response_sha256: str = ""
    """Of a response: hash of its text, which tells a label of another text."""
    weight: Annotated[float, Meta(gt=0)] = 1.0
    """One over the probability with which the item was drawn into the sample."""
    stratum: str = ""
    """Its stratum, if the sample was stratified."""
    family: str = ""
    """The unit of the set if the dataset has families (`promptsets.find_units`): its sets were
    drawn together.
    """
    skipped: tuple[str, ...] = ()
    """Of a prompt-set: questions that are not asked about it, for it lacks what they are about."""
    questions: tuple[AskedQuestion, ...] = ()
    """Of a response: those of the prompt-set's own, in the order in which forms ask them."""


class Label(KeyItem, frozen=True, kw_only=True, omit_defaults=True):
    """One annotator's answers about one prompt-set or one response."""

    kind: LabelKind
    annotator: Annotated[str, Meta(pattern=r"\S")]
    dataset: str
    """Hash of the dataset that was annotated."""
    answers: dict[str, Answer]
    """By question (see `ANSWERS`). Blank answers are absent; of an item that came back blank, all
    are.
    """
    own_answers: dict[str, OwnAnswer] = {}
    """To the prompt-set's own questions, by their ids. Blank answers are absent."""
    study: str = ""
    """Identity of the study; empty if none made the label."""
    unit: Unit = "response"
    """Whether single responses or whole prompt-sets were drawn."""
    note: str = ""

    @property
    def blank(self) -> bool:
        """Whether the item came back without an answer and without a note."""
        return not self.answers and not self.own_answers and not self.note

    @property
    def ratings(self) -> dict[str, float]:
        """The answers as numbers, by question, without those that are `unsure`."""
        numbers = {name: _NUMBERS.get(answer, answer) for name, answer in self.answers.items()}
        return {name: float(number) for name, number in numbers.items() if number != UNSURE}

    @property
    def own_ratings(self) -> dict[str, float]:
        """The answers to the prompt-set's own questions as numbers, without those that are
        `unsure`: 1 is yes.
        """
        return {
            name: _NUMBERS[answer] for name, answer in self.own_answers.items() if answer != UNSURE
        }

    def __post_init__(self) -> None:
        if (self.kind == "judge_validation") != bool(self.variant and self.model):
            raise ValueError("expected variant and model if the kind is judge_validation only")
        valid = ANSWERS[self.kind]
        for question, answer in self.answers.items():
            if question not in valid:
                raise ValueError(f"unknown question {question!r}; valid: {', '.join(valid)}")
            if answer not in (*valid[question], UNSURE):
                choices = ", ".join(map(str, (*valid[question], UNSURE)))
                raise ValueError(f"{question} is {answer!r}; valid: {choices}")
        asked = [question.id for question in self.questions]
        for question in self.own_answers:
            if question not in asked:
                raise ValueError(
                    f"own_answers has {question!r}, which is none of the label's questions; valid:"
                    f" {', '.join(asked)}"
                )


class AnnotatedItem(NamedTuple):
    """The subject of a label."""

    dataset: str
    """Hash."""
    id: str
    variant: str
    model: str
    epoch: int

    def __str__(self) -> str:
        if not self.variant:
            return f"set {self.id}"
        epoch_text = f", epoch {self.epoch}" if self.epoch != 1 else ""
        return f"set {self.id}, {self.variant}, {self.model}{epoch_text}"


class SourcedLabel(NamedTuple):
    """A label, and its line in the file."""

    line: str
    """`FILE, line N`."""
    label: Label

    @property
    def item(self) -> AnnotatedItem:
        """Its subject."""
        label = self.label
        return AnnotatedItem(label.dataset, label.id, label.variant, label.model, label.epoch)

    @property
    def drawn(self) -> tuple[float, Unit, str, str]:
        """How it was drawn: its weight, unit, stratum and family."""
        label = self.label
        return label.weight, label.unit, label.stratum, label.family

    def __str__(self) -> str:
        return f"{self.line} ({self.label.annotator} on {self.item})"


def text_hash(text: str) -> str:
    """Return the SHA-256 of a response's own text, lone surrogates and all."""
    return sha256_hex(text.encode("utf-8", "surrogatepass"))


def write_labels(labels: Iterable[Label], path: Path) -> None:
    """Write labels, a line each.

    Raises:
        InputError: the file cannot be written.
    """
    write_private(path, msgspec.json.Encoder(order="sorted").encode_lines(labels))


def read_labels(*paths: Path) -> list[SourcedLabel]:
    """Read files of labels; one that is named twice is read once.

    Raises:
        InputError: a file cannot be read or holds no labels, or a line is not a label; the text
            names the line.
    """
    sourced: list[SourcedLabel] = []
    for path in {path.resolve(): path for path in paths}.values():
        lines = {
            f"{path}, line {number}": line
            for number, line in enumerate(read_bytes(path).splitlines(), start=1)
            if line.strip()
        }
        if not lines:
            raise InputError(f"{path}: holds no labels")
        sourced += [
            SourcedLabel(name, parse_json(line, Label, name, "a label"))
            for name, line in lines.items()
        ]
    return sourced


class Answers:
    """The labels of one kind, with the items and annotators that they belong to.

    Attributes:
        labels: by item and annotator, without those of items that came back blank.
        left_blank: items without any label.
        items: sorted, so that results do not depend on the order of files.
        annotators: names, sorted.
        ratings: the answers as numbers, by item, annotator and question.

    Raises:
        InputError: one annotator answered an item twice, or two labels of it disagree on its text,
            or on how it was drawn.
    """

    def __init__(self, kind: LabelKind, sourced: Iterable[SourcedLabel]) -> None:
        returned: dict[tuple[AnnotatedItem, str], SourcedLabel] = {}
        for entry in sourced:
            key = (entry.item, entry.label.annotator)
            if entry.label.kind != kind:
                continue
            earlier = returned.get(key)
            if earlier and not earlier.label.blank:
                if entry.label.blank:
                    continue
                raise InputError(
                    f"{entry}: answered already at {earlier.line}; give two people two names, or"
                    " leave out the return that is there twice"
                )
            returned[key] = entry
        self.labels = {key: entry for key, entry in returned.items() if not entry.label.blank}
        self._blank = [entry for entry in returned.values() if entry.label.blank]
        self._returned = Counter(name for _, name in returned)
        self.items = sorted({item for item, _ in self.labels})
        self.left_blank = {item for item, _ in returned}.difference(self.items)
        self.annotators = sorted({annotator for _, annotator in self.labels})
        for item in self.items:
            first, *further = self.labels_of(item)
            for label in further:
                if label.label.response_sha256 != first.label.response_sha256:
                    raise InputError(f"{label}: the text is another one than that of {first}")
                if label.drawn != first.drawn:
                    raise InputError(
                        f"{label}: drawn in another way than {first}; weight, unit and stratum"
                        " of a response have to be the same in all labels"
                    )
        self.ratings = Ratings(
            [
                {entry.label.annotator: entry.label.ratings for entry in self.labels_of(item)}
                for item in self.items
            ],
            weights=[self.labels_of(item)[0].label.weight for item in self.items],
        )

    def labels_of(self, item: AnnotatedItem) -> list[SourcedLabel]:
        """Return the labels of an item, in the order of the annotators."""
        return [self.labels[item, name] for name in self.annotators if (item, name) in self.labels]

    def count_returned(self) -> dict[str, int]:
        """Return how many items each annotator returned, blank ones too."""
        return dict(sorted(self._returned.items()))

    def count(self, question: str, answer: Answer | None) -> int:
        """Return how often a question was answered so; None is blank, in all items returned that it
        was asked about.
        """
        asked = [*self.labels.values(), *(self._blank if answer is None else ())]
        return sum(
            sourced.label.answers.get(question) == answer and question not in sourced.label.skipped
            for sourced in asked
        )

    def explain_undefined(self) -> str:
        """Say why there may be no agreement."""
        if len(self._returned) < 2:
            return "one annotator"
        return "no item was answered by two annotators"


_SCHEMA = 1
KEY_FILE = "key.json"
"""Its file in the folder of a study."""


class Showing(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One item as one annotator meets it."""

    code: str
    """Its name in the form; the code reveals nothing to its reader."""
    item: Annotated[int, Meta(ge=0)]
    """Position in the key's items."""
    words: str
    """Hash of the texts as they are shown: see `guide.words_hash`."""
    order: tuple[Intent, ...] = ()
    """With dataset quality: the variants behind A, B and C."""


class AnnotationKey(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that an import needs to know about a study."""

    schema: int = _SCHEMA
    study: str
    """Identity of the study: of its task, items, texts and seed, but not of its annotators."""
    kind: LabelKind
    dataset: str
    """The dataset's name."""
    dataset_hash: str
    run: str = ""
    """With judge validation: the run's folder, seen from the key's; else empty."""
    unit: Unit = "response"
    guide: str
    """`ID@VERSION`."""
    items: tuple[KeyItem, ...]
    annotators: dict[str, tuple[Showing, ...]]
    """By annotator, in the order of the form."""

    @property
    def labels_file(self) -> str:
        """A name for the file of the study's labels that no other study has."""
        return f"labels-{self.study}.jsonl"

    @property
    def most_own_questions(self) -> int:
        """The most questions of a prompt-set's own that an item has."""
        return max((len(item.questions) for item in self.items), default=0)

    def __post_init__(self) -> None:
        for name, showings in self.annotators.items():
            if any(showing.item >= len(self.items) for showing in showings):
                raise ValueError(f"{name} is shown an item that the key does not have")


def find_run(key: AnnotationKey, path: Path) -> Path | None:
    """Return the run whose responses a study shows; None if the key names none that is still there.

    Args:
        key: of the study.
        path: its file.
    """
    run = near(Path(os.path.normpath(path.absolute().parent / key.run)))
    return run if key.run and (run / "run.json").is_file() else None


def write_key(key: AnnotationKey, path: Path) -> None:
    """Write a key, for its owner's eyes only.

    Raises:
        InputError: it cannot be written.
    """
    write_private(path, to_json(key))


def read_key(path: Path) -> AnnotationKey:
    """Read a key.

    Raises:
        InputError: the file cannot be read, or is not a key of this version.
    """
    return read_json(
        path,
        AnnotationKey,
        "the key of a study (key.json, which annotate export wrote)",
        schema=_SCHEMA,
    )


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """One valid answer."""

    value: str
    """As it is kept in a label; digits are kept as a number."""
    key: str
    """The key that gives this answer on the page."""
    label: str
    """As an annotator sees it, and types it."""
    meaning: str


class FormQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """One question with its valid answers."""

    name: str
    heading: str
    text: str
    choices: tuple[Choice, ...]

    @property
    def valid(self) -> str:
        """The valid answers, for a message."""
        return ", ".join(choice.label for choice in self.choices)

    def labels(self, values: Sequence[str]) -> list[str]:
        """Return the labels of some choices, which are given by their values."""
        return [
            choice.label for value in values for choice in self.choices if choice.value == value
        ]

    def read(self, value: object) -> Answer | None:
        """Return the answer that a text or a number is, None if it is none.

        Case, surrounding white space and the decimal of 3.0 do not count. Nothing else is guessed.
        """
        whole = whole_number(value) if isinstance(value, str) else None
        text = str(value if whole is None else whole).strip().casefold()
        for choice in self.choices:
            if type(value) in (str, int) and text in (choice.value, choice.label.casefold()):
                return int(choice.value) if choice.value.isdigit() else choice.value
        return None


class Example(msgspec.Struct, frozen=True, kw_only=True):
    """An invented item with the answers that we would accept, and why."""

    title: str
    texts: tuple[str, ...]
    """One for each slot of the task."""
    answers: dict[str, tuple[str, ...]]
    """By field: every choice that can be defended, the likeliest first."""
    why: str


class LabelList(msgspec.Struct, frozen=True, kw_only=True):
    """The labels of one kind that a prompt-set can have."""

    heading: str
    labels: tuple[tuple[str, str], ...]
    """Names with definitions."""


class Guide(msgspec.Struct, frozen=True, kw_only=True):
    """The instructions and questions for an annotator of one task."""

    id: str
    version: int
    title: str
    unit: str
    """The kind of item."""
    warning: str
    intro: tuple[str, ...]
    rules: tuple[str, ...]
    questions: tuple[FormQuestion, ...]
    examples: tuple[Example, ...]
    calibration: tuple[Example, ...]
    """Practice items, which come before the others on the page."""


class Ask(msgspec.Struct, frozen=True):
    """A question put about one text."""

    field: str
    question: str


class Slot(msgspec.Struct, frozen=True):
    """One of an item's texts, and the questions beside it."""

    label: str
    asks: tuple[Ask, ...] = ()


def _make_asks(*questions: str) -> tuple[Ask, ...]:
    return tuple(Ask(name, name) for name in questions)


SLOTS: dict[LabelKind, tuple[Slot, ...]] = {
    "dataset_quality": (
        Slot("Prompt A", (Ask("intent_a", "intent"),)),
        Slot("Prompt B", (Ask("intent_b", "intent"),)),
        Slot("Prompt C", (Ask("intent_c", "intent"),)),
        Slot(
            "Labels",
            _make_asks(
                "domain_right", "type_right", "sounds_human", "same_topic", "overall_quality"
            ),
        ),
    ),
    "judge_validation": (
        Slot("Prompt"),
        Slot("Response", _make_asks(*METRIC_GRADES)),
    ),
}
"""The texts of an item in the order in which they are shown."""


def asset(name: str) -> str:
    """Return a file of forms and guides that is shipped with us."""
    return read_shipped(f"people/{name}")


class _OwnGuide(msgspec.Struct, frozen=True, kw_only=True):
    """What a guide has besides if items have questions of their own."""

    rule: str
    question: FormQuestion
    """In place of each of them."""


@cache
def get_guide(kind: LabelKind, *, has_own_questions: bool = False) -> Guide:
    """Return the guide to a task.

    Args:
        kind: of the task.
        has_own_questions: whether items have questions of a prompt-set's own.
    """
    guide = parse_toml(asset(f"guides/{kind}.toml"), Guide, kind, "a guide")
    if not has_own_questions:
        return guide
    source = asset("guides/own_questions.toml")
    more = parse_toml(source, _OwnGuide, "own_questions.toml", "the part of a guide")
    return msgspec.structs.replace(
        guide, rules=(*guide.rules, more.rule), questions=(*guide.questions, more.question)
    )


OWN = "own"
"""Name of the question that stands for every question of a prompt-set's own."""


def list_slots(kind: LabelKind, most_own_questions: int = 0) -> tuple[Slot, ...]:
    """Return the texts of an item in the order in which they are shown.

    Args:
        kind: of the task.
        most_own_questions: the most questions of a prompt-set's own that an item has. They are
            asked about the last text, and are a text of their own after it.
    """
    *first, last = SLOTS[kind]
    if not most_own_questions:
        return (*first, last)
    asks = (Ask(f"q{number}", OWN) for number in range(1, most_own_questions + 1))
    return (*first, Slot(last.label, (*last.asks, *asks)), Slot("Questions"))


def list_questions(kind: LabelKind, most_own_questions: int = 0) -> dict[str, FormQuestion]:
    """Return everything that is asked about items, by field, in order; the arguments are those of
    `list_slots`.
    """
    by_name = {
        question.name: question
        for question in get_guide(kind, has_own_questions=most_own_questions > 0).questions
    }
    return {
        ask.field: by_name[ask.question]
        for slot in list_slots(kind, most_own_questions)
        for ask in slot.asks
    }


def list_skipped(key: AnnotationKey, item: KeyItem) -> list[str]:
    """Return the fields of a study's forms that are not asked about one item, for it lacks what
    they are about: of a pair, the intent of a third prompt.
    """
    fields = ["intent_c" if name == "dual_use_has_both" else name for name in item.skipped]
    return [
        *fields,
        *(f"q{number}" for number in range(len(item.questions) + 1, key.most_own_questions + 1)),
    ]


def list_asked(key: AnnotationKey, item: KeyItem) -> dict[str, FormQuestion]:
    """Return what is asked about one item, by field, in order."""
    questions, skipped = list_questions(key.kind, key.most_own_questions), list_skipped(key, item)
    return {field: asked for field, asked in questions.items() if field not in skipped}


def words_hash(texts: Sequence[str]) -> str:
    """Return a hash that shows whether an item's texts came back unchanged.

    White space and apostrophes do not count: spreadsheet programs trim and re-break white space,
    and an apostrophe keeps a text from being a formula.
    """
    return sha256_hex("".join("".join(texts).replace("'", "").split()))[:16]
