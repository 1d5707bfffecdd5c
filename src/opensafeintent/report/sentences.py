"""Sentences of a report, and the templates of their words."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable
from functools import cache, partial
from typing import TYPE_CHECKING, Literal

import msgspec
from markupsafe import Markup, escape

from opensafeintent.errors import counted
from opensafeintent.grades import PANEL
from opensafeintent.hostile import one_line
from opensafeintent.rendering import page_environment
from opensafeintent.report import values

if TYPE_CHECKING:
    from jinja2 import Environment

PERCENT = "\u00a0%"


_NAMED = 3
"""So many models are named in a sentence; of more, the number is given."""


_BEFORE, _AFTER = "\x02", "\x03"
"""Around a name while a sentence is filled in: no name has them, as it is made safe for a line."""


Strength = Literal["finding", "caution", "warning"]


class Name(str):
    """A model's name within a sentence: made by others, and set apart from our words."""

    __slots__ = ()


class Sentence(msgspec.Struct, frozen=True):
    """One sentence or a few, in parts: our words as `str`, model names as `Name`."""

    parts: tuple[str, ...]
    strength: Strength = "finding"
    topic: str = ""
    """Its topic, in a word or two."""
    loud: bool = False
    """Whether it comes before everything else."""

    @property
    def text(self) -> str:
        """The sentence as plain text."""
        return "".join(self.parts)


def say(
    macro: str,
    strength: Strength = "finding",
    topic: str = "",
    *,
    loud: bool = False,
    **facts: object,
) -> Sentence:
    """Return a sentence.

    Args:
        macro: the one of `assets/sentences.jinja`. White space in its output is folded, and a
            number and its per cent sign stay on one line.
        strength, topic, loud: of the sentence.
        facts: the macro's arguments.
    """
    macros = environment().get_template("sentences.jinja").module
    text = re.sub(r"[ \n]+", " ", getattr(macros, macro)(**facts)).strip(" ")
    text = text.replace(" %", PERCENT)
    parts = re.split(f"({_BEFORE}[^{_AFTER}]*{_AFTER})", text)
    named = (Name(part[1:-1]) if part.startswith(_BEFORE) else part for part in parts if part)
    return Sentence(tuple(named), strength, topic, loud)


@cache
def environment() -> Environment:
    """Return the environment of all templates of the reports: text for HTML pages is escaped,
    sentences are plain text.
    """
    environment = page_environment("opensafeintent.report", "assets")
    environment.globals |= {"PERCENT": PERCENT, "PANEL": PANEL, "span": _span, "percent": percent}
    environment.filters |= {
        "names": _names,
        "percent": percent,
        "thousands": "{:,}".format,
        "counted": counted,
        "without": _without,
        "quoted": lambda text: shlex.quote(one_line(text, 1000)),
        "options": lambda text: Markup(
            re.sub(r"(--[\w-]+)", r"<code>\1</code>", str(escape(text)))
        ),
    }
    environment.tests["name"] = lambda part: isinstance(part, Name)
    return environment


def _without(text: str, parts: Iterable[str]) -> str:
    """Return a text without some parts of it; a part comes after those that it contains."""
    for part in parts:
        text = text.replace(part, "")
    return text.strip()


def _names(models: Iterable[str], most: int = _NAMED) -> str:
    return "".join(
        f"{_BEFORE}{part}{_AFTER}" if isinstance(part, Name) else part
        for part in listed(models, most)
    )


def _span(shown: Callable[[float], str], low: float, high: float) -> str:
    """Return an interval in words, its unit said once: `81.2 to 93.4 %`."""
    return f"{shown(low).split(PERCENT)[0].split(' point')[0]} to {shown(high)}"


def listed(models: Iterable[str], most: int = _NAMED) -> tuple[str, ...]:
    """Return models as parts of a sentence: `A, B and C`, or `A, B and 5 more`."""
    names = [Name(one_line(model, 80)) for model in models]
    first = names if len(names) <= most else names[: max(most - 1, 1)]
    further = len(names) - len(first)
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


def percent(value: float) -> str:
    """Return a share as tables have it, with a space that does not break."""
    return values.percent(value).replace(" %", PERCENT)


def points(value: float) -> str:
    """Return a difference of shares in points: 11 points, −0.4 points."""
    shown = percent(value).removesuffix(PERCENT)
    return f"{shown} {'point' if shown in ('1', '−1') else 'points'}"


distrust = partial(say, strength="caution")


warn = partial(say, strength="warning")
