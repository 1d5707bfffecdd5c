"""Figures as files: SVG, PDF and PNG from the specification that the page shows, on white and with their title."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from textwrap import wrap
from typing import Any, Literal, get_args

from opensafeintent.files import make_private_folder, write_private
from opensafeintent.hostile import visible
from opensafeintent.report.figures.record import Figure
from opensafeintent.report.figures.theme import THEMES
from opensafeintent.report.formats import to_csv

__all__ = ["FORMATS", "Format", "write_figures"]

Format = Literal["svg", "pdf", "png"]
FORMATS: tuple[Format, ...] = get_args(Format)

_SCALE = 2
_LINE = 100
"""Characters of a line under a title."""
_NUMBERED = re.compile(r'(?<=[#"])(clip|gradient_)(\d+)(?=[)"])')


def write_figures(
    figures: Sequence[Figure], folder: Path, formats: Collection[Format] = FORMATS, *, earlier: Path | None = None
) -> None:
    """Write each figure into a folder in some formats, its numbers as `NAME.csv`, and all captions as `captions.md`.

    The same figure gives the same SVG, byte for byte. A PDF beside the same SVG is kept (the converter writes its parts in
    a different order each time); a drawing in a format that is not asked for is removed, as it would show other numbers.

    Args:
        figures: what to draw.
        folder: where they go.
        formats: which drawings.
        earlier: the folder of drawings that may be kept, where it is another.
    """
    make_private_folder(folder)
    for figure in figures:
        write_private(folder / f"{figure.name}.csv", to_csv(figure.table))
        for form in FORMATS:
            if form not in formats:
                (folder / f"{figure.name}.{form}").unlink(missing_ok=True)
        if formats:
            _draw(figure, folder, formats, earlier or folder)
    captions = (f"## {figure.name}\n\n**{figure.title}.** {figure.caption}\n" for figure in figures)
    write_private(folder / "captions.md", "\n".join(captions))


def _draw(figure: Figure, folder: Path, formats: Collection[Format], earlier: Path) -> None:
    import vl_convert

    draw: dict[Format, Callable[[str], str | bytes]] = {
        "pdf": vl_convert.svg_to_pdf,
        "png": lambda svg: vl_convert.svg_to_png(svg, scale=_SCALE),
        "svg": lambda svg: svg,  # last: it vouches for the others
    }
    svg = _renumbered(vl_convert.vegalite_to_svg(_visible(_titled(figure)), config=THEMES["light"]))
    known = {form: earlier / f"{figure.name}.{form}" for form in draw}
    drawn = known["svg"].is_file() and known["svg"].read_bytes() == svg.encode()
    for form in (form for form in draw if form in formats):
        kept = drawn and known[form].is_file()
        if not kept or earlier != folder:
            write_private(folder / known[form].name, known[form].read_bytes() if kept else draw[form](svg))


def _titled(figure: Figure) -> dict[str, Any]:
    """Return the specification with its title and what a reader must not miss above it."""
    notes = [line for note in figure.notes for line in wrap(note, _LINE)]
    title = {"text": figure.title, "subtitle": notes, "anchor": "start", "fontSize": 14, "subtitlePadding": 4, "offset": 14}
    return figure.spec | {"title": title, "padding": 12, "background": THEMES["light"]["background"]}


def _visible(spec: Any) -> Any:
    """Return a specification whose texts can be drawn: the converter ends the process over some characters."""
    match spec:
        case str():
            return visible(spec)
        case dict():
            return {key: _visible(value) for key, value in spec.items()}
        case list() | tuple():
            return [_visible(value) for value in spec]
        case _:
            return spec


def _renumbered(svg: str) -> str:
    """Number clips and gradients from 1: the renderer counts on from one drawing to the next."""
    seen: dict[str, str] = {}
    return _NUMBERED.sub(lambda found: found[1] + seen.setdefault(found[2], str(len(seen) + 1)), svg)
