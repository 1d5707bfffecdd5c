"""Figures as files, and drawn for print."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from textwrap import wrap
from typing import Any, Literal, cast, get_args
from xml.etree import ElementTree

import msgspec

from opensafeintent.errors import InputError
from opensafeintent.files import make_private_folder, write_private
from opensafeintent.hostile import visible
from opensafeintent.numbers.metrics import Unit
from opensafeintent.report.columns import Section, Table
from opensafeintent.report.table_formats import to_csv

Spec = dict[str, Any]


Datum = dict[str, Any]
"""Both plain JSON."""


# Okabe and Ito, Color Universal Design (2008).
BLUE, SKY, GREEN = "#0072B2", "#56B4E9", "#009E73"


ORANGE, VERMILION, PURPLE = "#E69F00", "#D55E00", "#CC79A7"


GREY = "#808080"
"""In the middle between white and black."""


PALE = "#CFCFCF"
"""Between BLUE and VERMILION if they are opposites."""


SHAPES = ("circle", "square", "triangle-up", "diamond", "triangle-down", "cross")


FONT = "Liberation Sans, Arial, Helvetica, sans-serif"
"""Faces of the same widths, so that a figure is laid out alike everywhere."""


LAYOUT: Spec = {
    "background": "transparent",
    "font": FONT,
    "view": {"stroke": None},
    "axis": {
        "labelFontSize": 11,
        "titleFontSize": 11,
        "titleFontWeight": "normal",
        "labelLimit": 260,
        "domain": False,
        "gridColor": GREY,
        "gridOpacity": 0.3,
        "tickColor": GREY,
        "tickOpacity": 0.5,
    },
    "axisY": {"ticks": False, "labelPadding": 8, "grid": False},
    "axisX": {"tickSize": 4, "grid": True, "labelFlush": False},
    "legend": {
        "orient": "top",
        "title": None,
        "labelFontSize": 11,
        "symbolSize": 70,
        "labelLimit": 260,
        "columnPadding": 16,
    },
    "title": {"anchor": "start", "fontSize": 12, "fontWeight": "bold"},
    "header": {
        "labelFontSize": 11,
        "labelFontWeight": "bold",
        "labelAnchor": "start",
        "title": None,
        "labelLimit": 200,
    },
}
"""Configuration for every theme."""


def _theme(ink: str, quiet: str, background: str) -> Spec:
    return {
        "background": background,
        "axis": {"labelColor": ink, "titleColor": quiet},
        "legend": {"labelColor": ink},
        "title": {"color": ink, "subtitleColor": quiet},
        "header": {"labelColor": ink},
        "text": {"color": ink},
    }


THEMES = {
    "light": _theme("#1a1a1a", "#555555", "#ffffff"),
    "dark": _theme("#ececec", "#b0b0b0", "#16181c"),
}
"""Vega-Lite configurations to lay under a figure's own: the `config` of vega-embed and of
vl-convert.
"""


def data(rows: Sequence[Datum]) -> Spec:
    """Return data for a chart or a mark."""
    return {"data": {"values": list(rows)}}


def quantity(field: str, **more: object) -> Spec:
    """Return the encoding of a number."""
    return {"field": field, "type": "quantitative", **more}


def value_axis(span: tuple[float, float], unit: Unit, most: int = 6) -> Spec:
    """Return the scale and axis of a number: all of its span, with a tick at each end.

    Args:
        span: its least and greatest value, as of a metric.
        unit: of its values.
        most: parts that the ticks make, at most.
    """
    low, high = span
    step = next(step for step in (0.2, 0.5, 1.0, high - low) if (high - low) / step <= most)
    ticks = [round(low + step * index, 1) for index in range(round((high - low) / step) + 1)]
    form = "%" if unit == "share" else ".1f"
    return {"scale": {"domain": [low, high]}, "axis": {"values": ticks, "format": form}}


def nominal(field: str, **more: object) -> Spec:
    """Return the encoding of a name."""
    return {"field": field, "type": "nominal", **more}


def pixels(number: float) -> Spec:
    """Return a fixed place."""
    return {"value": number}


def mark(
    kind: str,
    encoding: Spec,
    *,
    where: str = "",
    rows: Sequence[Datum] | None = None,
    **look: object,
) -> Spec:
    """Return one mark; by default, text has the size of axis labels. Screen readers read its
    tooltip; without one it is hidden from them, because its numbers would be rounded by the axis.

    Args:
        kind: Vega-Lite's name of it.
        encoding: the field of each channel.
        where: an expression that a datum has to fulfil.
        rows: data of its own.
        look: Vega-Lite's properties of the mark.
    """
    spec: Spec = {} if rows is None else data(rows)
    if where:
        spec["transform"] = [{"filter": where}]
    usual: Spec = {"fontSize": 11} if kind == "text" else {}
    tips = [
        f"{json.dumps(tip['title'] + ': ')} + datum.{tip['field']}"
        for tip in encoding.get("tooltip", ())
    ]
    usual |= {"description": {"expr": " + '; ' + ".join(tips)}} if tips else {"aria": False}
    return spec | {"mark": {"type": kind, **usual, **look}, "encoding": encoding}


def layer(marks: Sequence[Spec], rows: Sequence[Datum], **more: object) -> Spec:
    """Return marks on top of one another."""
    return data(rows) | {"layer": list(marks)} | more


def across(charts: Sequence[Spec], spacing: int = 14) -> Spec:
    """Return charts beside one another."""
    return {"hconcat": list(charts), "spacing": spacing}


def down(charts: Sequence[Spec]) -> Spec:
    """Return charts below one another."""
    return {"vconcat": list(charts), "spacing": 22}


APART: Spec = {"resolve": {"scale": {"color": "independent", "shape": "independent"}}}
"""Charts side by side, each with colours and shapes of its own."""


def whole(text: str) -> Spec:
    """Return the title of a panel, over its plot."""
    return {"title": {"text": text, "frame": "group", "offset": 4}}


def empty(text: str = "nothing to show: no prompt-set has the grades that this needs") -> Spec:
    """Return a chart that says that there is none."""
    encoding = {"text": nominal("text"), "x": pixels(0)}
    return mark("text", encoding, rows=[{"text": text}], align="left", aria=True) | {
        "width": 400,
        "height": 20,
    }


def finish_chart(chart: Spec, title: str) -> Spec:
    """Return a chart as a complete specification with its look; the title is for screen readers."""
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
        **chart,
        "config": LAYOUT,
        "description": title,
    }


Format = Literal["svg", "pdf", "png"]


FIGURE_FORMATS: tuple[Format, ...] = get_args(Format)


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """A named figure."""

    name: str
    """Of its files."""
    title: str
    """Its content, as a heading."""
    section: Section | None
    """Of the page; None if it is in files alone."""
    caption: str
    """How to read it: the kind of intervals, and limitations."""
    notes: tuple[str, ...] = ()
    """Text above the drawing in a file: the sample, and the most important cautions."""
    table: Table
    """The numbers that are drawn."""
    spec: Spec
    """Vega-Lite, data inlined, no title.

    Neither background nor text has a colour: a theme gives them (`kit.THEMES`).
    """


_SCALE = 2


_ADDRESSES = 80 * 2**30
"""Bytes of address space, hardly any of which are ever used."""


_LINE = 100
"""Characters of a line under a title."""


_NUMBERED = re.compile(r'(?<=[#"])(clip|gradient_)(\d+)(?=[)"])')


def write_figures(
    figures: Sequence[Figure],
    folder: Path,
    formats: Collection[Format] = FIGURE_FORMATS,
    *,
    earlier: Path | None = None,
) -> None:
    """Write each figure into a folder in some formats, its numbers as `NAME.csv`, and all captions
    as `captions.md`.

    The same figure gives the same SVG, byte for byte. A PDF beside the same SVG is kept, because
    the converter writes its parts in a different order each time. A drawing in a format that is not
    requested is removed, because it would show other numbers.

    Args:
        figures: to draw.
        folder: for the files.
        formats: of the drawings.
        earlier: the folder of drawings that may be kept, if it is another.
    """
    make_private_folder(folder)
    for figure in figures:
        write_private(folder / f"{figure.name}.csv", to_csv(figure.table))
        for form in FIGURE_FORMATS:
            if form not in formats:
                (folder / f"{figure.name}.{form}").unlink(missing_ok=True)
        if formats:
            _draw(figure, folder, formats, earlier or folder)
    captions = (f"## {figure.name}\n\n**{figure.title}.** {figure.caption}\n" for figure in figures)
    write_private(folder / "captions.md", "\n".join(captions))


def _draw(figure: Figure, folder: Path, formats: Collection[Format], earlier: Path) -> None:
    import vl_convert

    svg = to_svg(figure)
    draw: dict[Format, Callable[[str], str | bytes]] = {
        "pdf": vl_convert.svg_to_pdf,
        "png": lambda svg: vl_convert.svg_to_png(svg, scale=_SCALE),
        "svg": lambda svg: svg,  # last: it vouches for the others
    }
    known = {form: earlier / f"{figure.name}.{form}" for form in draw}
    drawn = known["svg"].is_file() and known["svg"].read_bytes() == svg.encode()
    for form in (form for form in draw if form in formats):
        kept = drawn and known[form].is_file()
        if not kept or earlier != folder:
            write_private(
                folder / known[form].name, known[form].read_bytes() if kept else draw[form](svg)
            )


def to_svg(figure: Figure, prefix: str = "") -> str:
    """Return the drawing in its light theme; ids in it begin with a prefix, so that several
    drawings fit into one page.
    """
    return draw_svg(add_title(figure), prefix)


def draw_svg(spec: Spec, prefix: str = "") -> str:
    """Return the drawing of a specification in the light theme; see `to_svg`.

    Raises:
        InputError: the process may not reserve the addresses that the converter needs.
    """
    import vl_convert

    if sys.platform != "win32":
        from resource import RLIM_INFINITY, RLIMIT_AS, getrlimit

        # V8 ends the process if it is refused the addresses that it reserves
        if RLIM_INFINITY != (given := getrlimit(RLIMIT_AS)[0]) < _ADDRESSES:
            raise InputError(
                f"ulimit -v {given // 1024}: leaves too few addresses to draw figures; expected"
                f" {_ADDRESSES // 1024} or unlimited"
            )
    svg = vl_convert.vegalite_to_svg(cast("Spec", _visible(spec)), config=THEMES["light"])
    return _renumber(svg, prefix)


def add_title(figure: Figure) -> Spec:
    """Return the specification with its title and the most important cautions above it; every text
    in it can be drawn.
    """
    title = {
        "text": figure.title,
        "subtitle": [line for note in figure.notes for line in wrap(note, _LINE)],
        "anchor": "start",
        "fontSize": 14,
        "subtitlePadding": 4,
        "offset": 14,
    }
    look = {"title": title, "padding": 12, "background": THEMES["light"]["background"]}
    return cast("Spec", _visible(figure.spec | look))


def _visible(spec: object) -> object:
    """Return a specification whose texts can be drawn: the converter ends the process over some
    characters.
    """
    match spec:
        case str():
            return visible(spec)
        case dict():
            return {key: _visible(value) for key, value in spec.items()}
        case list() | tuple():
            return [_visible(value) for value in spec]
        case _:
            return spec


def _renumber(svg: str, prefix: str) -> str:
    """Number clips and gradients from 1: the renderer counts on from one drawing to the next."""
    seen: dict[str, str] = {}
    return _NUMBERED.sub(
        lambda found: prefix + found[1] + seen.setdefault(found[2], str(len(seen) + 1)), svg
    )


_SVG = "http://www.w3.org/2000/svg"


_KNOWN = frozenset(
    f"{{{_SVG}}}{tag}"
    for tag in ("svg", "g", "path", "rect", "line", "circle", "text", "tspan", "defs", "clipPath")
)


_REFERENCE = re.compile(r"url\(#([^)]*)\)")


def read_drawing(name: str, folder: Path) -> str:
    """Return the SVG of a figure that was written into a folder, for embedding in a page, without
    its background.

    A drawing is text and shapes: any other element, and any active attribute, is left out. Ids are
    the figure's own, so that several drawings fit into one page.
    """
    root = ElementTree.fromstring((folder / f"{name}.svg").read_text("utf-8"))
    background = root.find(f"{{{_SVG}}}rect")
    if background is not None:
        root.remove(background)
    _clean(root, name)
    root.attrib |= {"role": "group", "aria-roledescription": "figure"}
    return ElementTree.tostring(root, encoding="unicode")


def _clean(element: ElementTree.Element, name: str) -> None:
    element.tag = element.tag.rpartition("}")[2]  # within HTML no namespace is said
    for child in list(element):
        if child.tag in _KNOWN:
            _clean(child, name)
        else:
            element.remove(child)
    for key, value in list(element.attrib.items()):
        if key.startswith(("on", "{")) or key in ("href", "style"):
            del element.attrib[key]
        elif key == "id":
            element.set(key, f"{name}-{value}")
        else:
            element.set(key, _REFERENCE.sub(lambda found: f"url(#{name}-{found[1]})", value))


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
        figures: of `draw_all_figures`, drawn for print.
        folder: for the files, `print` in that of the figures.
    """
    import vl_convert

    make_private_folder(folder)
    for figure in figures:
        svg = print_svg(figure)
        write_private(folder / f"{figure.name}.svg", svg)
        write_private(folder / f"{figure.name}.pdf", vl_convert.svg_to_pdf(_convert_to_points(svg)))


def print_svg(figure: Figure) -> str:
    """Return a drawing that is as wide as one column, if its text can be read there, or as two."""
    svg = ""
    for width in COLUMN_WIDTHS:
        for narrower in _narrower(figure.spec):
            svg = draw_svg(narrower | {"padding": 1, "background": "transparent"})
            if smallest_text(svg, width) >= SMALLEST_TEXT:
                return _set_size(svg, width)
    return _set_size(svg, COLUMN_WIDTHS[-1])


def smallest_text(svg: str, width: float) -> float:
    """Return the points of the smallest text of a drawing that is some millimetres wide; without
    text, infinity.
    """
    box = _BOX.search(svg)
    assert box is not None
    pixels = min(map(float, _FONT_SIZE.findall(svg)), default=float("inf"))
    return pixels * width * _POINTS / float(box[1])


def _set_size(svg: str, width: float) -> str:
    """Return a drawing with its width and height in millimetres."""
    box = _BOX.search(svg)
    assert box is not None
    height = width * float(box[2]) / float(box[1])
    tag = re.sub(r' (?:width|height)="[^"]*"', "", box[0])
    tag = tag.replace("<svg ", f'<svg width="{width:g}mm" height="{height:.2f}mm" ', 1)
    return svg[: box.start()] + tag + svg[box.end() :]


def _convert_to_points(svg: str) -> str:
    """Return a drawing for the converter to PDF, which makes a point of each pixel."""
    return _MILLIMETRES.sub(
        lambda length: f'{length[1]}="{float(length[2]) * _POINTS:.3f}"', svg, count=2
    )


def _narrower(spec: Spec) -> Iterator[Spec]:
    """Yield a specification with plots of less and less width."""
    earlier: Spec | None = None
    for factor in _FACTORS:
        narrowed = cast("Spec", _narrow(spec, factor))
        if narrowed != earlier:
            yield narrowed
        earlier = narrowed


def _narrow(part: object, factor: float) -> object:
    """Return a part of a specification whose plots are narrower; those of a fixed height, whose
    labels have places of their own, stay as they are.
    """
    match part:
        case list():
            return [_narrow(item, factor) for item in part]
        case {"layer": list(layers), "width": int(width), "height": dict(height), **rest}:
            new = round(width * factor)
            moved = [_move_end(mark, width, new) for mark in layers]
            return {**rest, "layer": moved, "width": new, "height": height}
        case dict():
            return {key: _narrow(value, factor) for key, value in part.items()}
        case _:
            return part


def _move_end(part: object, width: int, new: int) -> object:
    """Return a part of a plot in which what stands at its right end follows this end.

    Args:
        part: of a specification.
        width: of the plot, pixels.
        new: its new width.
    """
    match part:
        case list():
            return [_move_end(item, width, new) for item in part]
        case {"x": {"value": int() | float() as place}, **rest} if place > width / 2:
            return {**rest, "x": {"value": place - width + new}}
        case dict() if "values" not in part:
            return {key: _move_end(value, width, new) for key, value in part.items()}
        case _:
            return part
