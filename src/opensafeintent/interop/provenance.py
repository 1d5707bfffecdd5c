"""The origin of a dataset, as the card beside it states it: a card made from it says the same."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import msgspec

from opensafeintent.errors import InputError
from opensafeintent.files import read_text
from opensafeintent.markdown import Plain
from opensafeintent.promptsets.sources import CARD

_SECTION = re.compile(r"^## (.+)$", re.MULTILINE)
_WARNING = re.compile(r"(?:^> .*\n?)+", re.MULTILINE)
_TITLE = re.compile(r"\*\*.+?\*\*")
_OF_EVERY_CARD = ("**Handle with care.**",)
"""Warnings that the next card has by itself (`data/card/handle_with_care.md`)."""
_LICENSE = re.compile(r"^license: ([\w.-]+)$", re.MULTILINE)
_SEEDS_LICENCE = re.compile(r"PKU-SafeRLHF, a source of the seeds, is published under [\w .-]+\.")
_CARRIED = ("How it was made", "Checks", "Limits")
_ACTIVE = re.compile(r"<|(?<=\])(?=\()")
"""The beginning of HTML, and the middle of a link."""


class Provenance(msgspec.Struct, frozen=True, kw_only=True):
    """What a card states about the origin of its dataset, as Markdown without HTML or links."""

    warnings: Sequence[Plain] = ()
    """Each is a block of quoted lines, and none of every card."""
    sections: Sequence[tuple[Plain, Plain]] = ()
    """Heading and text."""
    synthetic: bool = False
    license: str | None = None
    """As the hub names it; None if none was chosen."""
    seeds_licence: Plain | None = None
    """A sentence on the licence of the seeds."""


def provenance_of(files: Sequence[Path], dataset_hash: str) -> Provenance:
    """Return what the card of a dataset states; nothing if no card names its hash.

    Args:
        files: of the dataset. The card is in the folder of the first, or in the folder above.
        dataset_hash: of the dataset, which its card names.
    """
    for folder in {path: None for file in files[:1] for path in (file.parent, file.parent.parent)}:
        try:
            card = read_text(folder / CARD)
        except InputError:
            continue  # there is none, or nobody can read it
        if dataset_hash in card:
            return _stated(card.replace("\r\n", "\n"))
    return Provenance()


def _stated(card: str) -> Provenance:
    _, _, rest = card.partition("---\n")
    front, _, body = rest.partition("\n---\n")
    parts = _SECTION.split(body)
    texts = dict(zip(parts[1::2], parts[2::2], strict=True))
    license_ = _LICENSE.search(front)
    seeds = _SEEDS_LICENCE.search(texts.get("Licence", ""))
    return Provenance(
        warnings=[
            _harmless(block)
            for block in _WARNING.findall(parts[0])
            if (title := _TITLE.search(block)) and title[0] not in _OF_EVERY_CARD
        ],
        sections=[(Plain(name), _harmless(texts[name])) for name in _CARRIED if name in texts],
        synthetic="\n- synthetic" in front,
        license=license_[1] if license_ and license_[1] != "other" else None,
        seeds_licence=Plain(seeds[0]) if seeds else None,
    )


def _harmless(text: str) -> Plain:
    """Return Markdown without HTML and without links; a card may come from somebody else."""
    return Plain(_ACTIVE.sub(lambda match: "&lt;" if match[0] else "\\", text.strip()))
