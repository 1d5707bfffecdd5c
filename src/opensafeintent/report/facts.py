"""Facts with types, and the texts that say them.

A name in a fact stays a name: each target (page, Markdown, terminal, JSON) sets it apart, escapes
and cuts it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from string import Formatter
from typing import Literal, NamedTuple, TypeAlias

import msgspec

from opensafeintent.hostile import clean_for_display
from opensafeintent.numbers.metrics import METRICS, Unit
from opensafeintent.report.columns import Cell, format_cell, format_interval
from opensafeintent.statistics import Estimate

PERCENT = "\u00a0%"

_NAMED = 3
"""So many names are in a text; of more, the number is given."""

_FACTS = 5
"""So many facts of one kind are in a text; the others are in `metrics.json`."""

_BEFORE, _AFTER = "\x02", "\x03"
"""Around a name while a text is filled in: no name has them, as it is made safe for a line."""

Level = Literal["finding", "warning", "caution", "note"]


class Name(str):
    """A name within a text: made by others, and set apart from our words."""

    __slots__ = ()


class Names(tuple[str, ...]):
    """Names of models, judges and anything else that others named."""

    __slots__ = ()

    @classmethod
    def of(cls, *names: str) -> Names:
        """Return names."""
        return cls(names)


class MetricName(str):
    """A metric by its name, shown by its label."""

    __slots__ = ()


class PartOf(NamedTuple):
    """A part of a number: `5 of 9`."""

    part: int
    of: int


class Counts(dict[str, int]):
    """Numbers by a name that others gave: `length (5), stop (2)`."""


class Value(msgspec.Struct, frozen=True):
    """A number with its interval, or an interval alone."""

    value: float | None
    unit: Unit = "score"
    ci: tuple[float, float] | None = None
    signed: bool = False
    is_gap: bool = False
    """Whether it is the size of a difference."""

    @classmethod
    def of(cls, estimate: Estimate, unit: Unit, *, signed: bool = False) -> Value:
        """Return the value of an estimate."""
        return cls(estimate.value, unit, estimate.interval, signed)

    def __str__(self) -> str:
        if self.value is None and self.ci is not None:
            return format_cell("signed_span" if self.signed else "span", Cell(self.ci, self.unit))
        if self.is_gap:
            return format_cell("gap", Cell((self.value,), self.unit))
        low, high = self.ci or (None, None)
        return format_interval(self.value, low, high, self.unit, signed=self.signed)


Fact: TypeAlias = str | int | float | Names | PartOf | Counts | Value | None
Facts: TypeAlias = Mapping[str, Fact]
JsonFact: TypeAlias = str | int | float | list[str] | dict[str, int | float | str | list[float]]
"""A fact in `metrics.json`: names are a list, a ratio and a value are objects."""


class Statement(msgspec.Struct, frozen=True):
    """A text with the facts that it states. It is in parts: our words as `str`, names as `Name`."""

    code: str
    level: Level
    facts: tuple[Facts, ...]
    parts: tuple[str, ...]
    topic: str = ""
    """In a word or two."""
    is_banner: bool = False
    """Whether the page has it above everything else."""

    @property
    def text(self) -> str:
        """The text without marks of names."""
        return "".join(self.parts)


def make_statement(
    code: str,
    level: Level,
    form: str,
    facts: Sequence[Facts],
    remedy: str = "",
    *,
    topic: str = "",
    is_banner: bool = False,
) -> Statement:
    """Fill facts into a text.

    Args:
        code, level: of the text.
        form: a format string for each of the facts, a sentence a line. A sentence with a field that
            the facts lack, or that is empty, is left out.
        facts: one or more.
        remedy: what the reader can do, said once, with the first of the facts.
        topic: of the text, with the first of the facts.
        is_banner: whether the page has it above everything else.
    """
    sentences = [_fill_form(form, one) for one in facts[:_FACTS]]
    if len(facts) > _FACTS:
        sentences.append(f"{len(facts) - _FACTS:,} more: see notices in metrics.json.")
    sentences.append(_fill_form(remedy, facts[0]))
    filled = " ".join(filter(None, sentences)).replace(" %", PERCENT)
    parts = re.split(f"({_BEFORE}[^{_AFTER}]*{_AFTER})", filled)
    named = (Name(part[1:-1]) if part.startswith(_BEFORE) else part for part in parts if part)
    shown_topic = re.sub(f"[{_BEFORE}{_AFTER}]", "", _fill_form(topic, facts[0]))
    return Statement(code, level, tuple(facts), tuple(named), shown_topic, is_banner)


def _fill_form(form: str, facts: Facts) -> str:
    shown = {
        name: _show_fact(fact) for name, fact in facts.items() if fact not in (None, "", (), {})
    }
    return " ".join(
        line.format_map(shown) for line in form.split("\n") if _fields(line) <= shown.keys()
    )


@cache
def _fields(line: str) -> frozenset[str]:
    return frozenset(name for _, name, _, _ in Formatter().parse(line) if name)


def _show_fact(fact: Fact) -> str:
    match fact:
        case Names():
            return "".join(
                f"{_BEFORE}{part}{_AFTER}" if isinstance(part, Name) else part
                for part in list_parts(fact)
            )
        case Counts():
            ordered = sorted(fact.items(), key=lambda item: (-item[1], item[0]))
            texts = [
                f"{_BEFORE}{clean_for_display(name)}{_AFTER} ({count:,})"
                for name, count in ordered[:_NAMED]
            ]
            further = len(ordered) - len(texts)
            return ", ".join([*texts, *([f"{further:,} more"] if further else [])])
        case MetricName():
            return METRICS[fact].label
        case PartOf(part, of):
            return f"{part:,} of {of:,}"
        case int():
            return f"{fact:,}"
        case _:
            return str(fact)


def list_parts(names: Iterable[str], most: int = _NAMED) -> tuple[str, ...]:
    """Return names as parts of a sentence: `A, B and C`, or `A, B and 5 more`."""
    shown = [Name(clean_for_display(name)) for name in names]
    first = shown if len(shown) <= most else shown[: max(most - 1, 1)]
    further = len(shown) - len(first)
    named: list[str] = list(first)
    if further:
        named.append(f"{further} more")
    between = [*[", "] * (len(named) - 2), " and "]
    return tuple(
        part
        for pair in zip(named, [*between[: len(named) - 1], ""], strict=True)
        for part in pair
        if part
    )


def facts_as_json(facts: Facts) -> dict[str, JsonFact]:
    """Return facts as `metrics.json` has them, names word for word."""
    return {name: _as_json(fact) for name, fact in facts.items() if fact is not None}


def _as_json(fact: Fact) -> JsonFact:
    match fact:
        case PartOf():
            return fact._asdict()
        case Names():
            return list(fact)
        case Counts():
            return dict(fact)
        case Value():
            shown: dict[str, int | float | str | list[float]] = {"unit": fact.unit}
            if fact.value is not None:
                shown["value"] = fact.value
            if fact.ci is not None:
                shown["ci"] = list(fact.ci)
            return shown
        case None:
            return ""
        case MetricName():
            return str(fact)
        case _:
            return fact
