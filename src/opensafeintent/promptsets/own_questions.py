"""Questions of a prompt-set's own: yes-or-no questions about the responses to its prompts.

The questions that judges answer about every response are `taxonomy.QUESTIONS`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import msgspec

from opensafeintent.errors import find_repeated
from opensafeintent.files import sha256_hex
from opensafeintent.promptsets.fields import Record
from opensafeintent.promptsets.reading import read_each
from opensafeintent.taxonomy import CORE_VARIANTS, QUESTION_KINDS, Intent, QuestionKind

MOST_QUESTIONS = 30
"""Of one intent: a judge answers all of them in one call."""
_LONGEST_ID = 60
_ID = re.compile(r"[\w.-]+")
_COLUMN = re.compile(rf"({'|'.join(CORE_VARIANTS)})_({'|'.join(QUESTION_KINDS)})_(\d{{1,4}})")
COLUMNS = frozenset(
    f"{intent}_{kind}_{number}"
    for intent in CORE_VARIANTS
    for kind in QUESTION_KINDS
    for number in range(1, 1 + MOST_QUESTIONS)
)
"""Of a table: `malicious_must_not_1`."""


class OwnQuestion(msgspec.Struct, frozen=True):
    """A question about a response, to be answered with yes or no."""

    id: str
    """Unique among the questions of its intent."""
    text: str


class IntentQuestions(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The questions about the response to the prompt with one intent."""

    must: tuple[OwnQuestion, ...] = ()
    """Yes speaks for the model."""
    must_not: tuple[OwnQuestion, ...] = ()
    """Yes is harm."""

    def of(self, kind: QuestionKind) -> tuple[OwnQuestion, ...]:
        """Return the questions of one kind."""
        return self.must if kind == "must" else self.must_not

    @property
    def all(self) -> tuple[OwnQuestion, ...]:
        """The questions of both kinds."""
        return self.must + self.must_not


class OwnQuestions(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The questions of a prompt-set, by intent; an intent may have none."""

    benign: IntentQuestions | None = None
    dual_use: IntentQuestions | None = None
    malicious: IntentQuestions | None = None

    def of(self, intent: Intent) -> IntentQuestions | None:
        """Return the questions about the prompt with an intent; None if it has none."""
        questions: IntentQuestions | None = getattr(self, intent)
        return questions


def shuffle_own_questions(
    questions: IntentQuestions | None, set_id: str, variant: str
) -> dict[str, OwnQuestion]:
    """Return questions in the order in which judges and people see them, by the short ids `q1`,
    `q2`, … that they see in place of the set's: those say nothing of what is welcome. The order is
    drawn by set, so no question is always the first one.

    Args:
        questions: about a response; None if there are none.
        set_id: of the prompt-set.
        variant: of the response.
    """
    own = questions.all if questions else ()
    drawn = sorted(own, key=lambda one: sha256_hex("\0".join((set_id, variant, one.id))))
    return {f"q{number}": question for number, question in enumerate(drawn, start=1)}


def is_question_column(field: str) -> bool:
    """Tell whether a table's column holds questions."""
    return _COLUMN.fullmatch(field) is not None


def read_questions(record: Record) -> OwnQuestions | None:
    """Return the questions of a record that has them as an object, `questions`; None without.

    Raises:
        Problem: they are not valid.
    """
    if "questions" not in record:
        return None
    given = record.record("questions")
    given.check_known(CORE_VARIANTS, "intent")
    by_intent = read_each(
        {
            intent: partial(_read_intent, given, intent)
            for intent in CORE_VARIANTS
            if intent in given
        }
    )
    return OwnQuestions(**by_intent) if by_intent else None


def read_question_columns(record: Record) -> OwnQuestions | None:
    """Return the questions of a row of a table, of which each cell of a column such as
    `malicious_must_not_1` has one; None without. The id of a question is the column's end,
    `must_not_1`.

    Raises:
        Problem: they are not valid.
    """
    columns = sorted(
        (match[1], match[2], int(match[3]), field)
        for field in record.data
        if (match := _COLUMN.fullmatch(field)) and field in record
    )
    if not columns:
        return read_questions(record)
    if "questions" in record:
        record.fail("questions", f"is there beside {columns[0][-1]}; expected one of the two")
    texts = read_each({field: partial(record.text, field) for *_, field in columns})
    by_intent: dict[str, dict[str, list[OwnQuestion]]] = {}
    for intent, kind, number, field in columns:
        question = OwnQuestion(f"{kind}_{number}", texts[field].strip())
        by_intent.setdefault(intent, {}).setdefault(kind, []).append(question)
    return OwnQuestions(
        **{intent: _make_intent(record, intent, kinds) for intent, kinds in by_intent.items()}
    )


def _read_intent(questions: Record, intent: Intent) -> IntentQuestions:
    given = questions.record(intent)
    given.check_known(QUESTION_KINDS, "kind of question")
    kinds = read_each(
        {kind: partial(_read_list, given, kind) for kind in QUESTION_KINDS if kind in given}
    )
    return _make_intent(given, "must, must_not", kinds)


def _read_list(given: Record, kind: QuestionKind) -> list[OwnQuestion]:
    """Return the questions of a list, each a text or an object with id and text."""
    questions = []
    listed = given.data[kind]
    if not isinstance(listed, list):
        given.fail(kind, "expected a list of texts, or of objects with id and text")
    for number, item in enumerate(listed, start=1):
        place, own_id = f"{kind}[{number - 1}]", f"{kind}_{number}"
        if not isinstance(item, dict):
            questions.append(OwnQuestion(own_id, given.check_text(place, item).strip()))
            continue
        fields = Record(item, f"{given.location}, field {place}")
        fields.check_known(OwnQuestion.__struct_fields__, "field")
        questions.append(OwnQuestion(_read_id(fields) or own_id, fields.text("text").strip()))
    return questions


def _read_id(fields: Record) -> str | None:
    name: Any = fields.data.get("id")
    if isinstance(name, int) and not isinstance(name, bool):
        return str(name)
    own_id = fields.optional_name("id")
    if own_id and (len(own_id) > _LONGEST_ID or not _ID.fullmatch(own_id)):
        fields.fail(
            "id",
            f"expected letters, digits, '_', '-' and '.', {_LONGEST_ID} at most, without spaces",
        )
    return own_id


def _make_intent(
    record: Record, field: str, kinds: Mapping[str, Sequence[OwnQuestion]]
) -> IntentQuestions:
    """Return the questions of an intent, by kind; there must be some, each with an id of its own.
    `field` names them in errors.
    """
    number = sum(map(len, kinds.values()))
    if not 1 <= number <= MOST_QUESTIONS:
        record.fail(field, f"has {number} questions; expected 1 to {MOST_QUESTIONS} an intent")
    if twice := find_repeated(question.id for asked in kinds.values() for question in asked):
        record.fail(field, f"has the id {twice[0]!r} twice; ids are unique within an intent")
    return IntentQuestions(**{kind: tuple(asked) for kind, asked in kinds.items()})
