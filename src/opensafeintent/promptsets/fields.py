"""The fields of one row, each read with a check: an error names file, line and field, and the valid
values."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from difflib import SequenceMatcher, get_close_matches
from functools import lru_cache, partial
from itertools import islice
from typing import Any, NoReturn, TypeVar
from unicodedata import category

import msgspec

from opensafeintent.errors import InputError, nearest
from opensafeintent.hostile import clean_for_display
from opensafeintent.promptsets.reading import (
    MOST_LISTED,
    Problem,
    distinct_problems,
    read_each,
)

T = TypeVar("T")
Name = TypeVar("Name", bound=str)

LONGEST_PROMPT = 200_000
"""Characters; beyond every context window in use, and a sign of a broken file."""

_NEAR = 0.93
"""Similarity of two field names (`difflib`'s ratio) above which one is treated as a misspelling."""
_REMEDY = "to that, or to a name unlike it"
_MOST_MISSPELT = 20
"""Misspelt fields that are looked for: in a hostile record, each takes long to find."""
_APART = re.compile(r"[_\W]+")
"""Characters that only set the words of a name apart."""
_MOST_FIELDS = 8
"""Fields that an error names."""


class Record:
    """A JSON object with its location, whose fields are read with a check.

    Args:
        data: the object.
        location: its place, for messages.
        headings: the file's names of fields that are renamed in `data`, by the new names.
    """

    def __init__(self, data: Any, location: str, headings: Mapping[str, str] | None = None) -> None:
        if not isinstance(data, dict):
            raise Problem(f"{location}: expected a JSON object, found {_kind(data)}", location)
        self.data: dict[str, Any] = data
        self.location = location
        self._headings = headings or {}

    def __contains__(self, field: str) -> bool:
        return self.data.get(field) is not None

    def fail(self, field: str, complaint: str) -> NoReturn:
        """Raise the problem that `field` has."""
        name = clean_for_display(self.find_heading(field))
        raise Problem(f"{self.location}, field {name}: {complaint}", self.location)

    def find_heading(self, field: str) -> str:
        """Return the file's name of a field."""
        return self._headings.get(field, field)

    def fields_found(self) -> str:
        """Return which fields the file has, for a message."""
        return fields_found([*map(self.find_heading, self.data)])

    def fail_absent(self, field: str, expected: str) -> NoReturn:
        """Raise the problem that `field` has no value: it is empty, or not one of the fields."""
        if field in self.data:
            self.fail(field, f"is empty; expected {expected}")
        self.fail(field, f"missing; expected {expected}{self.fields_found()}")

    def text(self, field: str) -> str:
        """Return a text that has to be there."""
        value = self.data.get(field)
        if value is None:
            self.fail_absent(field, "a text")
        return self.check_text(field, value)

    def text_or_empty(self, field: str) -> str:
        """Return a text that has to be there and may be empty, such as a response."""
        value, expected = self.data.get(field), "a text, which may be empty"
        if value is None:
            self.fail_absent(field, expected)
        if not isinstance(value, str):
            self.fail(field, f"is {short(value)}; expected {expected}")
        return self.check_unicode(field, value)

    def whole_number(self, field: str, low: int, high: int) -> int:
        """Return a whole number that has to be there, from `low` to `high`."""
        value = self.data.get(field)
        if value is None:
            self.fail_absent(field, f"a whole number from {low} to {high}")
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            self.fail(field, f"is {short(value)}; expected a whole number from {low} to {high}")
        return value

    def name(self, field: str) -> str:
        """Return a name that has to be there, without white space at its ends."""
        return self.text(field).strip()

    def optional_name(self, field: str) -> str | None:
        """Return a name that may be left out, null or blank, without white space at its ends."""
        value = self.data.get(field)
        if isinstance(value, str) and not value.strip():
            return None
        return self.name(field) if field in self else None

    def optional_text(self, field: str) -> str | None:
        """Return a text that may be left out, null or empty."""
        value = self.data.get(field)
        return self.check_text(field, value) if value not in (None, "") else None

    def check_text(self, field: str, value: Any) -> str:
        """Return `value` if it is a usable text."""
        if not isinstance(value, str):
            self.fail(field, f"expected a text, found {_kind(value)}")
        if not value[:1].isalnum() and all(
            char.isspace() or category(char) == "Cf" for char in value
        ):
            self.fail(field, "is empty; expected a text")
        if len(value) > LONGEST_PROMPT:
            self.fail(
                field, f"has {len(value):,} characters; at most {LONGEST_PROMPT:,} are accepted"
            )
        return self.check_unicode(field, value)

    def check_unicode(self, field: str, value: str) -> str:
        """Return a text that can be written as UTF-8."""
        try:
            value.encode()
        except UnicodeEncodeError:
            self.fail(field, "holds half of a surrogate pair, which is not valid Unicode text")
        return value

    def check_names(
        self, valid: Collection[str], *, required: Collection[str] = (), prefix: str = ""
    ) -> None:
        """Refuse fields whose names are nearly valid ones that the record lacks, all at once.

        Args:
            valid: names of fields.
            required: those that every record has; the error also names the missing ones.
            prefix: beginning of valid names that a field may have left out.
        """
        if not required and self.data.keys() <= frozenset(valid):  # as most
            return
        misspelt = _misspelt(frozenset(self.data), frozenset(valid), prefix)
        lacking = [name for name in required if name not in {*self.data, *misspelt.values()}]
        if len(misspelt) == 1 and not lacking:
            for field, meant in misspelt.items():
                self.fail(field, f"is not known; did you mean {meant!r}? rename it {_REMEDY}")
        if misspelt:
            guesses = ", ".join(
                f"{clean_for_display(field)} (did you mean {meant!r}?)"
                for field, meant in misspelt.items()
            )
            missing = f"; lacks {', '.join(lacking)}" if lacking else ""
            raise Problem(
                f"{self.location}: unknown fields: {guesses}{missing}; rename each {_REMEDY}",
                self.location,
            )

    def check_known(self, valid: Collection[str], what: str) -> None:
        """Refuse a field that is none of `valid`; `what` is what a field is."""
        if unknown := sorted(set(self.data) - {*valid}):
            self.fail(unknown[0], f"unknown {what}; {nearest(unknown[0][:60], tuple(valid))}")

    def with_names_corrected(self, valid: Collection[str], prefix: str = "") -> Record:
        """Return the record with nearly valid names as `check_names` guesses them."""
        meant = _misspelt(frozenset(self.data), frozenset(valid), prefix)
        data = {meant.get(field, field): value for field, value in self.data.items()}
        return Record(data, self.location, {name: field for field, name in meant.items()})

    def texts(self, field: str) -> tuple[str, ...]:
        """Return a list of texts that may be left out."""
        value = self.data.get(field)
        if value is None:
            return ()
        if not isinstance(value, list):
            self.fail(field, f"expected a list of texts, found {_kind(value)}")
        names = (f"{field}[{n}]" for n in range(len(value)))
        readers = {
            name: partial(self.check_text, name, item)
            for name, item in zip(names, value, strict=True)
        }
        return tuple(read_each(readers).values())

    def record(self, field: str) -> Record:
        """Return an object that has to be there."""
        if field not in self:
            self.fail_absent(field, "an object")
        return Record(self.data[field], f"{self.location}, field {field}")

    def records(self, field: str, hint: str = "") -> list[Record]:
        """Return the objects of a list that has to be there; an error ends in the hint."""
        return [Record(item, place) for place, item in self.located(field, hint)]

    def located(self, field: str, hint: str = "") -> list[tuple[str, object]]:
        """Return the items of a list of objects that has to be there, each with its place, as
        `read_each_record` takes them, which lists all that are no objects too.
        """
        if field not in self:
            self.fail_absent(field, f"a list of objects{hint}")
        value = self.data[field]
        if not isinstance(value, list):
            self.fail(field, f"expected a list of objects{hint}, found {_kind(value)}")
        place = f"{self.location}, field {field}"
        return [(f"{place}[{n}]", item) for n, item in enumerate(value)]

    def optional_choice(self, field: str, valid: Iterable[Name], hint: str = "") -> Name | None:
        """Return a name that may be left out, null or blank, else is one of `valid`; an error ends
        in the hint.
        """
        return self.choice(field, valid, hint) if self.optional_name(field) else None

    def choice(self, field: str, valid: Iterable[Name], hint: str = "") -> Name:
        """Return a name that is one of `valid`; an error ends in the hint."""
        value, names = self.name(field), tuple(valid)
        chosen = next((name for name in names if name == value), None)
        if chosen is None:
            self.fail(
                field,
                f"unknown {field.replace('_', ' ')} {clean_for_display(value)!r};"
                f" {nearest(value, names)}{hint}",
            )
        return chosen


class FaultyRecords(InputError):
    """Records that have problems; it lists those of all of them."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__(*distinct_problems(problems, MOST_LISTED))
        self.problems = problems


def read_each_record(
    records: Iterable[tuple[str, object]],
    read: Callable[[Record], T],
    headings: Mapping[str, str] | None = None,
) -> list[T]:
    """Return what `read` makes of each record of a file.

    Args:
        records: the records, each with its location.
        read: reads one of them, or raises the Problem that it has. Of a list within the record it
            may call this function again.
        headings: see `Record`.

    Raises:
        FaultyRecords: records have problems; it lists those of all records.
    """
    values: list[T] = []
    problems: list[Problem] = []
    try:
        for location, data in records:
            try:
                values.append(read(Record(data, location, headings)))
            except Problem as problem:
                problems += (problem, *problem.further)
            except FaultyRecords as faulty:  # of a list within it
                problems += faulty.problems
    except Problem as problem:  # a line that is not JSON: later lines cannot be trusted
        problems.append(problem)
    if problems:
        raise FaultyRecords(problems)
    return values


@lru_cache(maxsize=64)
def _misspelt(fields: frozenset[str], valid: frozenset[str], prefix: str) -> dict[str, str]:
    """Return the fields whose names are nearly valid ones that are not there, each with that one.
    A file's records mostly have the same fields. Of very many, the first ones are returned.
    """
    lacking = {_fold_name(name): name for name in valid - fields}
    misspelt: dict[str, str] = {}
    for field in sorted(fields - valid):
        if len(misspelt) == _MOST_MISSPELT:
            break
        similarity = {
            name: SequenceMatcher(None, name, folded).ratio()
            for folded in {_fold_name(field), _fold_name(prefix + field)}
            for name in get_close_matches(folded, lacking, n=len(lacking) or 1, cutoff=_NEAR)
        }
        if similarity:
            # of equally similar names, such as those with a number, the lowest is meant
            nearest_name = min(similarity, key=lambda name: (-similarity[name], len(name), name))
            misspelt[field] = lacking.pop(nearest_name)
    return misspelt


def _fold_name(name: str) -> str:
    return _APART.sub("", name[:60].casefold())


def short(value: Any) -> str:
    """Describe a value in the width of a name."""
    shown = (
        msgspec.json.encode(value).decode()
        if value is None or isinstance(value, bool)
        else repr(value)
    )
    return clean_for_display(shown)


def _kind(value: Any) -> str:
    kinds = {
        dict: "an object",
        list: "a list",
        str: "a text",
        bool: "true or false",
        int: "a number",
        float: "a number",
    }
    return "null" if value is None else kinds.get(type(value), type(value).__name__)


def fields_found(fields: Collection[str]) -> str:
    """Return which fields a record has, for a message."""
    return f"; its fields: {fields_named(fields)}" if fields else "; it has no fields"


def fields_named(fields: Collection[str]) -> str:
    """Return the first few names of fields."""
    named = [clean_for_display(str(field)) for field in islice(fields, _MOST_FIELDS)]
    return ", ".join(named) + (", …" if len(fields) > _MOST_FIELDS else "")
