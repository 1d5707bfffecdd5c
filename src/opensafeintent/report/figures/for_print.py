"""Figures for print: without titles, as wide as one or two columns, in text of 7 points or more."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import cast

from opensafeintent.files import make_private_folder, write_private
from opensafeintent.report.figures.files import Figure, svg_of
from opensafeintent.report.figures.kit import Spec

PRINT = "print"
"""The folder of the drawings, in that of the figures."""

COLUMN_WIDTHS = (85.0, 175.0)
"""Millimetres of one column and of two."""

SMALLEST_TEXT = 7.0
"""Points."""

PRINT_FORMATS = ("svg", "pdf")

_FACTORS = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5)
"""By these, plots are made narrower until their text is large enough."""

_POINTS = 72 / 25.4
"""In a millimetre."""

_BOX = re.compile(r'<svg [^>]*?viewBox="0 0 ([\d.]+) ([\d.]+)"[^>]*>')
_MILLIMETRES = re.compile(r'(width|height)="([\d.]+)mm"')
_FONT_SIZE = re.compile(r'font-size="([\d.]+)px"')


def write_for_print(figures: Sequence[Figure], folder: Path) -> None:
    """Write the drawing of each figure into a folder as SVG and as PDF.

    Args:
        figures: of `all_figures`, drawn for print.
        folder: for the files, `print` in that of the figures.
    """
    import vl_convert

    make_private_folder(folder)
    for figure in figures:
        svg = print_svg(figure)
        write_private(folder / f"{figure.name}.svg", svg)
        write_private(folder / f"{figure.name}.pdf", vl_convert.svg_to_pdf(_in_points(svg)))


def print_svg(figure: Figure) -> str:
    """Return a drawing that is as wide as one column, if its text can be read there, or as two."""
    svg = ""
    for width in COLUMN_WIDTHS:
        for narrower in _narrower(figure.spec):
            svg = svg_of(narrower | {"padding": 1, "background": "transparent"})
            if smallest_text(svg, width) >= SMALLEST_TEXT:
                return _sized(svg, width)
    return _sized(svg, COLUMN_WIDTHS[-1])


def smallest_text(svg: str, width: float) -> float:
    """Return the points of the smallest text of a drawing that is some millimetres wide; without
    text, infinity.
    """
    box = _BOX.search(svg)
    assert box is not None
    pixels = min(map(float, _FONT_SIZE.findall(svg)), default=float("inf"))
    return pixels * width * _POINTS / float(box[1])


def _sized(svg: str, width: float) -> str:
    """Return a drawing with its width and height in millimetres."""
    box = _BOX.search(svg)
    assert box is not None
    height = width * float(box[2]) / float(box[1])
    tag = re.sub(r' (?:width|height)="[^"]*"', "", box[0])
    tag = tag.replace("<svg ", f'<svg width="{width:g}mm" height="{height:.2f}mm" ', 1)
    return svg[: box.start()] + tag + svg[box.end() :]


def _in_points(svg: str) -> str:
    """Return a drawing for the converter to PDF, which makes a point of each pixel."""
    return _MILLIMETRES.sub(
        lambda length: f'{length[1]}="{float(length[2]) * _POINTS:.3f}"', svg, count=2
    )


def _narrower(spec: Spec) -> Iterator[Spec]:
    """Yield a specification with plots of less and less width."""
    earlier: Spec | None = None
    for factor in _FACTORS:
        narrowed = cast("Spec", _narrowed(spec, factor))
        if narrowed != earlier:
            yield narrowed
        earlier = narrowed


def _narrowed(part: object, factor: float) -> object:
    """Return a part of a specification whose plots are narrower; those of a fixed height, whose
    labels have places of their own, stay as they are.
    """
    match part:
        case list():
            return [_narrowed(item, factor) for item in part]
        case {"layer": list(layers), "width": int(width), "height": dict(height), **rest}:
            new = round(width * factor)
            moved = [_moved(mark, width, new) for mark in layers]
            return {**rest, "layer": moved, "width": new, "height": height}
        case dict():
            return {key: _narrowed(value, factor) for key, value in part.items()}
        case _:
            return part


def _moved(part: object, width: int, new: int) -> object:
    """Return a part of a plot in which what stands at its right end follows this end.

    Args:
        part: of a specification.
        width: of the plot, pixels.
        new: its new width.
    """
    match part:
        case list():
            return [_moved(item, width, new) for item in part]
        case {"x": {"value": int() | float() as place}, **rest} if place > width / 2:
            return {**rest, "x": {"value": place - width + new}}
        case dict() if "values" not in part:
            return {key: _moved(value, width, new) for key, value in part.items()}
        case _:
            return part
