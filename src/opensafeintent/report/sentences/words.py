"""Sentences as parts: our words, and the names that others gave their models."""

from __future__ import annotations

from collections.abc import Iterable
from math import sqrt
from typing import Literal

import msgspec

from opensafeintent.hostile import one_line

__all__ = ["PERCENT", "Name", "Sentence", "listed", "percent", "precision_in_points", "score"]

PERCENT = "\u00a0%"
_NAMED = 3
"""So many models are named in a sentence; of more, the number is given."""


class Name(str):
    """A model's name within a sentence: made by others, and set apart from our words."""

    __slots__ = ()


class Sentence(msgspec.Struct, frozen=True):
    """One sentence, in parts: our words as `str`, model names as `Name`."""

    parts: tuple[str, ...]
    strength: Literal["finding", "caution", "warning"] = "finding"
    topic: str = ""
    """What it is about, in a word or two."""
    loud: bool = False
    """Whether it stands above everything else."""

    @property
    def text(self) -> str:
        """The sentence as plain text."""
        return "".join(self.parts)


def listed(models: Iterable[str], most: int = _NAMED) -> tuple[str, ...]:
    """Return models as parts of a sentence: `A, B and C`, or `A, B and 5 more`."""
    names = [Name(one_line(model, 80)) for model in models]
    named = names if len(names) <= most else names[: most - 1]
    rest = f"{len(names) - len(named)} more" if len(named) < len(names) else None
    parts: list[str] = []
    ends = len(named) + bool(rest)
    for place, part in enumerate((*named, *([rest] if rest else ()))):
        parts += ["" if place == 0 else " and " if place == ends - 1 else ", ", part]
    return tuple(part for part in parts if part)


def percent(value: float) -> str:
    """Return a share as people read it: 89.6 %, 4.8 %, 0.25 %, 100 %; the space does not break."""
    points = 100 * value
    return f"{f'{points:.2g}' if abs(points) < 0.95 else f'{points:.1f}'.removesuffix('.0')}{PERCENT}"


def score(value: float) -> str:
    """Return a score from 0 to 1 with two decimals."""
    return f"{value:.2f}"


def precision_in_points(sets: int) -> float:
    """Return the half-width of a 95 % interval of a share of 60 %, in points: about 9 for 115 sets, 3.6 for 700."""
    return 100 * 1.96 * sqrt(0.6 * 0.4 / sets)
