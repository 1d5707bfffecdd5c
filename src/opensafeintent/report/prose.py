"""Sentences: their words are templates (`assets/*.jinja`), and the names of models are set apart
from our words.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import cache
from math import sqrt
from typing import TYPE_CHECKING, Literal

import msgspec

from opensafeintent.analysis.agreement import PANEL
from opensafeintent.hostile import one_line

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
    """What it is about, in a word or two."""
    loud: bool = False
    """Whether it stands above everything else."""

    @property
    def text(self) -> str:
        """The sentence as plain text."""
        return "".join(self.parts)


def say(
    file: str,
    macro: str,
    strength: Strength = "finding",
    topic: str = "",
    *,
    loud: bool = False,
    **facts: object,
) -> Sentence:
    """Return a sentence.

    Args:
        file: the template of its words, among the assets.
        macro: the one in it. White space in what it gives is folded.
        strength, topic, loud: of the sentence.
        facts: the macro's arguments.
    """
    text = re.sub(
        r"[ \n]+", " ", getattr(environment().get_template(file).module, macro)(**facts)
    ).strip(" ")
    parts = re.split(f"({_BEFORE}[^{_AFTER}]*{_AFTER})", text)
    named = (Name(part[1:-1]) if part.startswith(_BEFORE) else part for part in parts if part)
    return Sentence(tuple(named), strength, topic, loud)


@cache
def environment() -> Environment:
    """Return what fills every template of the reports: what goes into the HTML of pages is escaped,
    sentences are text.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("opensafeintent.report", "assets"),
        autoescape=lambda name: name is not None and name.endswith(".html"),
        undefined=StrictUndefined,
        keep_trailing_newline=True,
    )
    environment.globals |= {"PERCENT": PERCENT, "PANEL": PANEL, "span": _span, "percent": percent}
    environment.filters |= {
        "names": _names,
        "percent": percent,
        "thousands": "{:,}".format,
        "counted": counted,
    }
    environment.tests["name"] = lambda part: isinstance(part, Name)
    return environment


def _names(models: Iterable[str]) -> str:
    return "".join(
        f"{_BEFORE}{part}{_AFTER}" if isinstance(part, Name) else part for part in listed(models)
    )


def _span(shown: Callable[[float], str], low: float, high: float) -> str:
    """Return an interval in words, its unit said once: `81.2 to 93.4 %`."""
    return f"{shown(low).removesuffix(PERCENT).removesuffix(' points')} to {shown(high)}"


def listed(models: Iterable[str], most: int = _NAMED) -> tuple[str, ...]:
    """Return models as parts of a sentence: `A, B and C`, or `A, B and 5 more`."""
    names = [Name(one_line(model, 80)) for model in models]
    named: list[str] = (
        [*names] if len(names) <= most else [*names[: most - 1], f"{len(names) - most + 1} more"]
    )
    between = [*[", "] * (len(named) - 2), " and "]
    return tuple(
        part
        for pair in zip(named, [*between[: len(named) - 1], ""], strict=True)
        for part in pair
        if part
    )


def counted(number: int, thing: str) -> str:
    """Return a number with its noun: `1 seed`, `2 seeds`."""
    return f"{number:,} {thing}" if number == 1 else f"{number:,} {thing}s"


def percent(value: float) -> str:
    """Return a share as people read it: 89.6 %, 4.8 %, 0.25 %, 100 %; the space does not break."""
    value *= 100
    shown = f"{value:.2g}" if abs(value) < 0.95 else f"{value:.1f}".removesuffix(".0")
    return f"{shown.replace('-', '−')}{PERCENT}"


def points(value: float) -> str:
    """Return a difference of shares in points: 11.3 points, −0.4 points."""
    return f"{100 * value:.1f} points".replace("-", "−")


def score(value: float) -> str:
    """Return a score with two decimals."""
    return f"{value:.2f}".replace("-", "−")


def precision_in_points(sets: int) -> float:
    """Return the half-width of a 95 % interval of a share of 60 %, in points: about 9 for 115 sets,
    3.6 for 700.
    """
    return 100 * 1.96 * sqrt(0.6 * 0.4 / sets)
