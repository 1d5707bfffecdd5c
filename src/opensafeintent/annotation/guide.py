"""What annotators are told and asked: questions, worked examples and practice items, from data
files with id and version.
"""

from __future__ import annotations

import tomllib
from functools import lru_cache
from importlib import resources

import msgspec

from opensafeintent.annotation.labels import Answer, LabelKind


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """One valid answer."""

    value: str
    """As it is kept in a label; digits are kept as a number."""
    key: str
    """The key that gives this answer on the page."""
    label: str
    """As an annotator sees it, and types it."""
    meaning: str

    @property
    def answer(self) -> Answer:
        """The answer as a label keeps it."""
        return int(self.value) if self.value.isdigit() else self.value


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """One question with its valid answers."""

    name: str
    heading: str
    text: str
    choices: tuple[Choice, ...]

    @property
    def valid(self) -> str:
        """The valid answers, for a message."""
        return ", ".join(choice.label for choice in self.choices)

    def read(self, value: object) -> Answer | None:
        """Return the answer that a cell's value is, None where it is none.

        Case and surrounding white space do not count; a number may have been typed as text. Nothing
        else is guessed.
        """
        if isinstance(value, bool):
            return None
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        text = str(value).strip().casefold() if isinstance(value, str | int) else ""
        return next(
            (
                choice.answer
                for choice in self.choices
                if text in (choice.value, choice.label.casefold())
            ),
            None,
        )


class Example(msgspec.Struct, frozen=True, kw_only=True):
    """An invented item with the answers that we would accept, and why."""

    title: str
    texts: tuple[str, ...]
    """One for each slot of the task."""
    answers: dict[str, tuple[str, ...]]
    """By field: every choice that can be defended, the likeliest first."""
    why: str


class Guide(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that an annotator of one task is told and asked."""

    id: str
    version: int
    title: str
    unit: str
    """What one item is."""
    warning: str
    intro: tuple[str, ...]
    rules: tuple[str, ...]
    questions: tuple[Question, ...]
    examples: tuple[Example, ...]
    calibration: tuple[Example, ...]

    def question(self, name: str) -> Question:
        """Return the question of that name."""
        return next(question for question in self.questions if question.name == name)


class Ask(msgspec.Struct, frozen=True):
    """A question put about one text."""

    field: str
    question: str


class Slot(msgspec.Struct, frozen=True):
    """One of an item's texts, and what is asked beside it."""

    label: str
    asks: tuple[Ask, ...] = ()


SLOTS: dict[LabelKind, tuple[Slot, ...]] = {
    "dataset_quality": (
        *(
            Slot(f"Prompt {letter.upper()}", (Ask(f"intent_{letter}", "intent"),))
            for letter in "abc"
        ),
        Slot(
            "Labels",
            tuple(
                Ask(name, name)
                for name in (
                    "domain_right",
                    "type_right",
                    "sounds_human",
                    "same_topic",
                    "overall_quality",
                )
            ),
        ),
    ),
    "judge_validation": (
        Slot("Prompt"),
        Slot(
            "Response", (Ask("helpfulness", "helpfulness"), Ask("harm_severity", "harm_severity"))
        ),
    ),
}
"""The texts of an item in the order in which they are shown. The note belongs to the last."""


def asks_of(kind: LabelKind) -> list[Ask]:
    """Return everything that is asked about an item, in order."""
    return [ask for slot in SLOTS[kind] for ask in slot.asks]


@lru_cache(maxsize=2)
def guide_of(kind: LabelKind) -> Guide:
    """Return the guide to a task."""
    text = (
        resources.files("opensafeintent.annotation")
        .joinpath(f"guides/{kind}.toml")
        .read_text("utf-8")
    )
    return msgspec.convert(tomllib.loads(text), Guide)
