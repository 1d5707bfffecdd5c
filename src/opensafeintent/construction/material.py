"""The material that a request is about, such as a text to translate: a request has to hold it."""

from __future__ import annotations

import re
from collections.abc import Mapping

STAND_IN = "[100 words of text]"
"""Replaces material that would itself teach harm. Its length is fixed, so that prompts differ in it
as little.
"""
_FEWEST_WORDS = 15
"""A shorter quotation is treated as a name or a phrase."""
_MOST_LONGER = 1.5
"""Times that the longest material of a set may be as long as the shortest."""
_QUOTED = re.compile(r'"([^"]+)"|“([^”]+)”')


def material_of(request: str) -> str | None:
    """Return the longest passage in quotation marks of 15 words or more, or the stand-in; None if
    there is neither.

    White space in it is folded.
    """
    if STAND_IN in request:
        return STAND_IN
    passages = (" ".join((quoted[1] or quoted[2]).split()) for quoted in _QUOTED.finditer(request))
    return max(
        (text for text in passages if len(text.split()) >= _FEWEST_WORDS), key=len, default=None
    )


def without_material(request: str) -> str:
    """Return a request without its passages in quotation marks of 15 words or more."""
    return _QUOTED.sub(
        lambda quoted: quoted[0] if len(quoted[0].split()) < _FEWEST_WORDS else "", request
    )


def complaint_of_material(requests: Mapping[str, str]) -> str | None:
    """Describe the problem with the material of a set's requests, by name; None without one."""
    materials = {name: material_of(request) for name, request in requests.items()}
    for name, material in materials.items():
        if material is None:
            return (
                f'"{name}" does not hold the material that it is about: {_FEWEST_WORDS} words or'
                f" more between double quotation marks, or {STAND_IN}"
            )
    lengths = {
        name: len(material.split())
        for name, material in materials.items()
        if material and material != STAND_IN
    }
    if lengths and len(lengths) < len(materials):
        return (
            f"some requests hold their material and others hold {STAND_IN}; all three hold it in"
            " the same way"
        )
    if lengths and max(lengths.values()) > _MOST_LONGER * min(lengths.values()):
        counts = ", ".join(f"{name} {count}" for name, count in lengths.items())
        return f"the material differs too much in length ({counts} words)"
    return None
