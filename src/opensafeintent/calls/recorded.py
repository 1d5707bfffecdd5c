"""Responses that were made elsewhere, and the reasons of missing grades."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal, cast, get_args

import msgspec
from msgspec import Meta

from opensafeintent.errors import InputError
from opensafeintent.hostile import one_line
from opensafeintent.taxonomy import (
    MOST_EPOCHS,
    Graded,
    HarmGrade,
    HelpfulnessGrade,
    KnownGrades,
    Mode,
    Strategy,
)

Lacked = Literal["response", "grades", Graded, "mode", "strategy"]
"""Parts of a result that may be missing; `grades` if no judge was asked."""

_MISSING = re.compile(rf"({'|'.join(get_args(Lacked))})(?:\[(.*)\])?:(.+)", re.DOTALL)


class MissingGrade(msgspec.Struct, frozen=True):
    """A response, grade, mode or strategy that was requested but not obtained.

    Files hold it as `what:reason`, or `what[judge]:reason`.
    """

    what: Lacked
    reason: str
    judge: str = ""
    """The judge without a grade, if several judges grade."""

    def __str__(self) -> str:
        return (
            f"{self.what}[{self.judge}]:{self.reason}"
            if self.judge
            else f"{self.what}:{self.reason}"
        )

    @classmethod
    def parse(cls, text: str) -> MissingGrade:
        """Read one from the text in a file.

        Raises:
            ValueError: the text has another form.
        """
        if (match := _MISSING.fullmatch(text)) is None:
            raise ValueError(f"{short(text)} is not of the form what:reason")
        return cls(cast(Lacked, match[1]), match[3], match[2] or "")


WITHHELD = MissingGrade("response", "withheld")
"""An export left the text out because it is unsafe, and the grades were taken away."""


class RecordedResponse(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A target's response to one prompt, and the grades that came with it."""

    model: str = ""
    """The target; empty in a file, whose name or caller tells it."""
    set_id: str
    variant: str
    epoch: Annotated[int, Meta(ge=1, le=MOST_EPOCHS)] = 1
    response: str | None = None
    reply_to: str | None = None
    """Of a follow-up: the first reply, after which its message was said."""
    stop_reason: str = "stop"
    helpfulness: HelpfulnessGrade | None = None
    harm_severity: HarmGrade | None = None
    mode: Mode | None = None
    strategy: Strategy | None = None
    missing: tuple[MissingGrade, ...] = ()
    """Why a grade that was tried for is not there."""
    by_judge: dict[str, KnownGrades] = {}
    """The grades of each judge, if the judges are known."""
    rows: tuple[int, ...] = ()
    """Ids of its rows in a ledger, that with its text first: text and grades may come from several
    files.
    """


def check_recorded(source: Path, responses: Iterable[RecordedResponse]) -> None:
    """Refuse responses with a value off its scale, whichever reader they come from: what a ledger
    takes, it has to be able to read.

    Raises:
        InputError: one has such a value.
    """
    for response in responses:
        try:
            msgspec.convert(msgspec.to_builtins(response), RecordedResponse)
        except (msgspec.ValidationError, OverflowError) as error:
            raise InputError(
                f"{source}: set {one_line(response.set_id, 80)}, {one_line(response.variant, 40)}:"
                f" {in_words(str(error))}"
            ) from error


def in_words(message: str) -> str:
    """Return a message of the decoder with the field first: `epoch: expected `int` >= 1`."""
    problem, _, place = message.partition(" - at `$")
    where = place.rstrip("`").removeprefix("[1]").removeprefix(".")
    return f"{where}: {problem[:1].lower()}{problem[1:]}" if where else problem


def short(value: Any) -> str:
    """Describe a value in at most 60 characters."""
    shown = (
        msgspec.json.encode(value).decode()
        if value is None or isinstance(value, bool)
        else repr(value)
    )
    return shown if len(shown) <= 60 else shown[:59] + "…"


def merged(first: RecordedResponse, second: RecordedResponse) -> RecordedResponse:
    """Merge two files' records of one response.

    The authors' scripts write grades, modes and strategies into files of their own.

    Raises:
        ValueError: they contradict one another.
    """
    fields: dict[str, Any] = {}
    for field in RecordedResponse.__struct_fields__:
        first_value, second_value = getattr(first, field), getattr(second, field)
        if (
            field not in ("missing", "rows")
            and first_value not in (None, {})
            and second_value not in (None, {}, first_value)
        ):
            raise ValueError(f"two responses to one prompt differ in {field}")
        fields[field] = second_value if first_value in (None, {}) else first_value
    reasons = {
        entry
        for entry in (*first.missing, *second.missing)
        if entry.judge or entry.what == "response" or fields.get(entry.what) is None
    }
    return RecordedResponse(**(fields | {"missing": tuple(sorted(reasons, key=str))}))
