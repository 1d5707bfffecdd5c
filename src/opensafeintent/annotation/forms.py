"""What annotators are told, asked and given: the guide of each task, the page that works offline,
and the same questions as a CSV sheet.
"""

from __future__ import annotations

import csv
import io
import tomllib
from collections.abc import Sequence
from functools import cache
from importlib import resources

import msgspec

from opensafeintent import __version__
from opensafeintent.annotation.labels import AnnotationKey, Answer, LabelKind
from opensafeintent.canonical import sha256_hex
from opensafeintent.hostile import cell_safe, json_for_html, name_safe, page_script, security_policy


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """One valid answer."""

    value: str
    """As it is kept in a label; digits are kept as a number."""
    key: str
    """The key that gives this answer on the page."""
    label: str
    """As an annotator sees it, and types it."""
    meaning: str


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
        """Return the answer that a text or a number is, None if it is none.

        Case and surrounding white space do not count. Nothing else is guessed.
        """
        text = str(value).strip().casefold()
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
    """Practice items, which come before the others on the page."""


class Ask(msgspec.Struct, frozen=True):
    """A question put about one text."""

    field: str
    question: str


class Slot(msgspec.Struct, frozen=True):
    """One of an item's texts, and what is asked beside it."""

    label: str
    asks: tuple[Ask, ...] = ()


def _asked(*questions: str) -> tuple[Ask, ...]:
    return tuple(Ask(name, name) for name in questions)


_ON_SETS = ("domain_right", "type_right", "sounds_human", "same_topic", "overall_quality")
SLOTS: dict[LabelKind, tuple[Slot, ...]] = {
    "dataset_quality": (
        Slot("Prompt A", (Ask("intent_a", "intent"),)),
        Slot("Prompt B", (Ask("intent_b", "intent"),)),
        Slot("Prompt C", (Ask("intent_c", "intent"),)),
        Slot("Labels", _asked(*_ON_SETS)),
    ),
    "judge_validation": (
        Slot("Prompt"),
        Slot("Response", _asked("helpfulness", "harm_severity")),
    ),
}
"""The texts of an item in the order in which they are shown."""


def _asset(name: str) -> str:
    return resources.files("opensafeintent.annotation").joinpath(name).read_text("utf-8")


@cache
def guide_of(kind: LabelKind) -> Guide:
    """Return the guide to a task."""
    return msgspec.convert(tomllib.loads(_asset(f"guides/{kind}.toml")), Guide)


def questions_of(kind: LabelKind) -> dict[str, Question]:
    """Return everything that is asked about an item, by field, in order."""
    by_name = {question.name: question for question in guide_of(kind).questions}
    return {ask.field: by_name[ask.question] for slot in SLOTS[kind] for ask in slot.asks}


def words_hash(texts: Sequence[str]) -> str:
    """Return the hash that tells whether an item's texts came back as they went out.

    White space and apostrophes do not count: spreadsheet programs trim and re-break the one, and an
    apostrophe is what keeps a text from being a formula.
    """
    words = "".join("".join(texts).replace("'", "").split())
    return sha256_hex(words)[:16]


# The page
# ------------------------------------------------------------------------------

PAGE_FORM = "opensafeintent annotation 1"
"""What a file that a page saved says that it is."""
_SCRIPTS = ("answers.js", "views.js", "page.js")


def render_page(key: AnnotationKey, annotator: str, items: Sequence[tuple[str, ...]]) -> bytes:
    """Return an annotator's page as one HTML file; the same arguments give the same bytes.

    It loads and sends nothing: a content security policy allows its own script and style and
    nothing else. Texts are embedded as escaped JSON and shown as text.

    Args:
        key: of the study; of the items only codes and hashes go into the page.
        annotator: whose page it is.
        items: the texts of each of the annotator's items, one for each slot of the task.
    """
    from jinja2 import Environment, StrictUndefined

    guide = guide_of(key.kind)
    showings = zip(key.annotators[annotator], items, strict=True)
    data = {
        "form": PAGE_FORM,
        "study": key.study,
        "annotator": annotator,
        "file": name_safe(annotator),
        "dataset": f"{key.dataset} ({key.dataset_hash[:8]})",
        "guide": guide,
        "slots": SLOTS[key.kind],
        "items": [
            {"code": showing.code, "words": showing.words, "texts": texts}
            for showing, texts in showings
        ],
    }
    style = _asset("page_assets/page.css")
    script = page_script(_asset(f"page_assets/{name}") for name in _SCRIPTS)
    environment = Environment(autoescape=True, undefined=StrictUndefined)
    html: str = environment.from_string(_asset("page_assets/template.html")).render(
        title=guide.title,
        annotator=annotator,
        version=__version__,
        policy=security_policy(scripts=(script,), styles=(style,)),
        style=style,
        script=script,
        data=json_for_html(data).decode(),
    )
    return html.encode()


# The sheet
# ------------------------------------------------------------------------------


def sheet_columns(kind: LabelKind) -> list[str]:
    """Return the names of a sheet's columns; a heading may go on after a colon."""
    slots = (slot.label for slot in SLOTS[kind])
    return ["study", "annotator", "item", *slots, *questions_of(kind), "note"]


def render_sheet(key: AnnotationKey, annotator: str, items: Sequence[tuple[str, ...]]) -> bytes:
    """Return an annotator's sheet as CSV in UTF-8: a row an item, a column an answer. Its arguments
    are those of `render_page`; no text in it is a formula.
    """
    questions = questions_of(key.kind)
    file = io.StringIO(newline="")
    writer = csv.writer(file)
    writer.writerow(
        f"{name}: {questions[name].valid}" if name in questions else name
        for name in sheet_columns(key.kind)
    )
    for showing, texts in zip(key.annotators[annotator], items, strict=True):
        row = (key.study, annotator, showing.code, *texts, *("" for _ in questions), "")
        writer.writerow(map(cell_safe, row))
    return file.getvalue().encode("utf-8-sig")
