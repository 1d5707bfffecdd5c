"""The guide of a study's form: its questions, with their answers, and worked examples."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from functools import cache
from importlib import resources

import msgspec

from opensafeintent.annotation.labels import Answer, LabelKind
from opensafeintent.files import sha256_hex
from opensafeintent.promptsets.reading import whole_number


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


def _asked(*questions: str) -> tuple[Ask, ...]:
    return tuple(Ask(name, name) for name in questions)


SLOTS: dict[LabelKind, tuple[Slot, ...]] = {
    "dataset_quality": (
        Slot("Prompt A", (Ask("intent_a", "intent"),)),
        Slot("Prompt B", (Ask("intent_b", "intent"),)),
        Slot("Prompt C", (Ask("intent_c", "intent"),)),
        Slot(
            "Labels",
            _asked("domain_right", "type_right", "sounds_human", "same_topic", "overall_quality"),
        ),
    ),
    "judge_validation": (
        Slot("Prompt"),
        Slot("Response", _asked("helpfulness", "harm_severity")),
    ),
}
"""The texts of an item in the order in which they are shown."""


def asset(name: str) -> str:
    """Return a file that this package ships."""
    return resources.files("opensafeintent.annotation").joinpath(name).read_text("utf-8")


@cache
def guide_of(kind: LabelKind) -> Guide:
    """Return the guide to a task."""
    return msgspec.convert(tomllib.loads(asset(f"guides/{kind}.toml")), Guide)


def questions_of(kind: LabelKind) -> dict[str, FormQuestion]:
    """Return everything that is asked about an item, by field, in order."""
    by_name = {question.name: question for question in guide_of(kind).questions}
    return {ask.field: by_name[ask.question] for slot in SLOTS[kind] for ask in slot.asks}


def words_hash(texts: Sequence[str]) -> str:
    """Return a hash that shows whether an item's texts came back unchanged.

    White space and apostrophes do not count: spreadsheet programs trim and re-break white space,
    and an apostrophe keeps a text from being a formula.
    """
    return sha256_hex("".join("".join(texts).replace("'", "").split()))[:16]
