"""Parts of charts (the look, the words of Vega-Lite, names that fit, rows of data, points with
whiskers), and figures as files.

Specifications are plain Vega-Lite. Text from outside (a model's name above all) goes into data and
axis domains only, never into an expression.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from textwrap import wrap
from typing import Any, Literal, NamedTuple, cast, get_args
from xml.etree import ElementTree

import msgspec

from opensafeintent.analysis.estimates import AVERAGE, MetricEstimate
from opensafeintent.errors import InputError
from opensafeintent.files import make_private_folder, write_private
from opensafeintent.hostile import terminal_safe, visible
from opensafeintent.metrics import METRICS
from opensafeintent.report.formats import (
    Section,
    Table,
    common_beginning,
    in_unit,
    interval,
    shortened,
    to_csv,
)

Spec = dict[str, Any]
Datum = dict[str, Any]
"""Both plain JSON."""


# The look: colours that differ without colour vision, and that contrast with white and black
# -------------------------

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


# Vega-Lite
# ------------------------------------------------------------------------------


def data(rows: Sequence[Datum]) -> Spec:
    """Return data for a chart or a mark."""
    return {"data": {"values": list(rows)}}


def quantity(field: str, **more: object) -> Spec:
    """Return the encoding of a number."""
    return {"field": field, "type": "quantitative", **more}


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
    """Return one mark; by default, text has the size of axis labels.

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
    size = {"fontSize": 11} if kind == "text" else {}
    return spec | {"mark": {"type": kind, **size, **look}, "encoding": encoding}


def layer(marks: Sequence[Spec], rows: Sequence[Datum], **more: object) -> Spec:
    """Return marks on top of one another."""
    return data(rows) | {"layer": list(marks)} | more


def across(charts: Sequence[Spec], spacing: int = 14) -> Spec:
    """Return charts beside one another."""
    return {"hconcat": list(charts), "spacing": spacing}


def down(charts: Sequence[Spec], spacing: int = 22) -> Spec:
    """Return charts below one another."""
    return {"vconcat": list(charts), "spacing": spacing}


APART: Spec = {"resolve": {"scale": {"color": "independent", "shape": "independent"}}}
"""Charts side by side, each with colours and shapes of its own."""


def whole(text: str) -> Spec:
    """Return the title of a panel, over its plot."""
    return {"title": {"text": text, "frame": "group", "offset": 4}}


def empty(text: str = "nothing to show: no prompt-set has the grades that this needs") -> Spec:
    """Return a chart that says that there is none."""
    encoding = {"text": nominal("text"), "x": pixels(0)}
    return mark("text", encoding, rows=[{"text": text}], align="left") | {
        "width": 400,
        "height": 20,
    }


def finished(chart: Spec, title: str) -> Spec:
    """Return a chart as a complete specification with its look; the title is for screen readers."""
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
        **chart,
        "config": LAYOUT,
        "description": title,
    }


# Data
# ------------------------------------------------------------------------------


_NAME = 34
"""Characters of a model's name beside a chart; all of it is in the tooltip."""


def labels_of(models: Sequence[str], most: int = _NAME) -> dict[str, str]:
    """Return a short name for each model, on one line, none twice; their common beginning goes."""
    labels: dict[str, str] = {}
    common = common_beginning(models)
    for model in models:
        flat = terminal_safe(" ".join(model.removeprefix(common).split()))
        label, number = shortened(flat, most), 1
        while label in (*labels.values(), AVERAGE):
            number += 1
            label = f"{shortened(flat, most - len(f' ({number})'))} ({number})"
        labels[model] = label
    return labels


def row_of(number: MetricEstimate, labels: Mapping[str, str], series: str) -> Datum:
    """Return a number as a chart takes it, and as a tooltip shows it."""
    average = number.models is not None
    return {
        "model": f"{AVERAGE} ({number.models} models)" if average else terminal_safe(number.model),
        "label": AVERAGE if average else labels[number.model],
        "series": series,
        "value": None if number.value is None else round(number.value, 6),
        "low": number.low,
        "high": number.high,
        "shown": interval(*in_unit(number.metric, (number.value, number.low, number.high))),
        "percent": METRICS[number.metric].is_share,
        "n": number.n,
        "thin": False,
    }


def tooltip(*more: tuple[str, str]) -> list[Spec]:
    """Return the fields of every tooltip: the model's whole name, the value with its interval, the
    prompt-sets behind it.
    """
    fields = (("model", "model"), *more, ("shown", "value [95 %]"), ("n", "prompt-sets"))
    return [nominal(field, title=title) for field, title in fields]


class Series(NamedTuple):
    """A dimension shown by colour and shape."""

    names: tuple[str, ...]
    colours: tuple[str, ...]
    shapes: tuple[str, ...] = SHAPES

    @property
    def colour(self) -> Spec:
        """The colour encoding; one series alone needs no legend."""
        return self._encoding(self.colours)

    @property
    def shape(self) -> Spec:
        """The shape encoding; its legend is merged with the colours'."""
        return self._encoding(self.shapes)

    @property
    def offset(self) -> Spec:
        """Several series side by side on the y axis."""
        if len(self.names) == 1:
            return {}
        return {"yOffset": nominal("series", scale={"domain": list(self.names)})}

    def _encoding(self, values: Sequence[str]) -> Spec:
        scale = {"domain": list(self.names), "range": list(values[: len(self.names)])}
        legend = {} if len(self.names) > 1 else {"legend": None}
        return nominal("series", scale=scale, title=None, **legend)


# Lines of points
# ------------------------------------------------------------------------------


_COUNTS = 40
"""Pixels for the numbers of prompt-sets beside a chart."""


def line_axis(rows: Sequence[Datum], names: int | None = None) -> Spec:
    """Return the y axis: a line for each label, in the order of the rows.

    Args:
        rows: with their `label`.
        names: pixels for the labels: as many as they need if None, none at all if 0.
    """
    axis: Spec | None = {}
    if names is not None:
        axis = {"minExtent": names, "maxExtent": names, "labelLimit": names} if names else None
    order = list(dict.fromkeys(row["label"] for row in rows))
    apart = {"domain": order, "paddingInner": 0.25 if len(rows) > len(order) else 0}
    return nominal("label", scale=apart, sort=None, title=None, axis=axis)


def dots(
    rows: Sequence[Datum],
    series: Series,
    *,
    width: int,
    title: str | None = None,
    step: int = 22,
    ticks: Sequence[float] = (0, 0.2, 0.4, 0.6, 0.8, 1),
    names: int | None = None,
    faint: Sequence[Datum] = (),
) -> Spec:
    """Return points with whiskers, a line for each label in the order of the rows.

    Args:
        rows: from `row_of`; those that are `thin` are drawn hollow.
        series: the dimension of the points of one line.
        width: in pixels, the column of counts aside.
        title: of the x axis.
        step: pixels a line.
        ticks: of the x axis.
        names: pixels for the lines' names, as in `line_axis`.
        faint: points without whiskers behind the others.
    """
    y = line_axis(rows, names)
    unit = "%" if all(row["percent"] for row in rows) else ".1f"
    x = {
        "scale": {"domain": [0, 1]},
        "title": title,
        "axis": {"values": list(ticks), "format": unit},
    }
    what = {"tooltip": tooltip(("series", "what")), "color": series.colour, "shape": series.shape}
    at = {"y": y, **series.offset}
    behind = {"x": quantity("value", **x), "y": y, "tooltip": tooltip()}
    sure = {"x": quantity("low", **x), "x2": {"field": "high"}, "color": series.colour}
    point = {"x": quantity("value", **x), **at, **what}
    marks = [
        band(rows, y),
        mark("circle", behind, rows=faint, size=26, opacity=0.5, color=GREY),
        mark("rule", sure | at, where="isValid(datum.low)", strokeWidth=2, strokeCap="round"),
        mark(
            "point",
            point,
            where="isValid(datum.value) && !datum.thin",
            filled=True,
            size=60,
            opacity=1,
        ),
        mark(
            "point",
            point,
            where="isValid(datum.value) && datum.thin",
            size=46,
            strokeWidth=1.8,
            opacity=1,
        ),
        *counts(rows, y, width),
    ]
    return layer(marks, rows, width=width, height={"step": step, "for": "position"})


def band(rows: Sequence[Datum], y: Spec) -> Spec:
    """Return a shade behind the line of the model average."""
    average = [{"label": AVERAGE}] if any(row["label"] == AVERAGE for row in rows) else []
    return mark("rect", {"y": y}, rows=average, color=GREY, opacity=0.15)


def counts(rows: Sequence[Datum], y: Spec, width: int) -> list[Spec]:
    """Return a column with the number of prompt-sets of each line, right of the chart."""
    once = {row["label"]: {"label": row["label"], "count": f"{row['n']:,}"} for row in rows}
    numbers = {"y": y, "x": pixels(width + _COUNTS), "text": nominal("count")}
    head = {"y": pixels(-8), "x": pixels(width + _COUNTS), "text": nominal("text")}
    return [
        mark("text", numbers, rows=list(once.values()), opacity=0.75, align="right"),
        mark("text", head, rows=[{"text": "n"}], fontStyle="italic", align="right"),
    ]


# Figures, and figures as files
# ------------------------------------------------------------------------------

Format = Literal["svg", "pdf", "png"]
FORMATS: tuple[Format, ...] = get_args(Format)


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """A named figure."""

    name: str
    """Of its files."""
    title: str
    """Its content, as a heading."""
    section: Section
    """Of the page."""
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
    formats: Collection[Format] = FORMATS,
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
        for form in FORMATS:
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
    import vl_convert

    if sys.platform != "win32":
        from resource import RLIM_INFINITY, RLIMIT_AS, getrlimit

        # V8 ends the process if it is refused the addresses that it reserves
        if RLIM_INFINITY != (given := getrlimit(RLIMIT_AS)[0]) < _ADDRESSES:
            raise InputError(
                f"ulimit -v {given // 1024}: leaves too few addresses to draw figures; expected"
                f" {_ADDRESSES // 1024} or unlimited"
            )
    return _renumbered(vl_convert.vegalite_to_svg(titled(figure), config=THEMES["light"]), prefix)


def titled(figure: Figure) -> Spec:
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


def _renumbered(svg: str, prefix: str) -> str:
    """Number clips and gradients from 1: the renderer counts on from one drawing to the next."""
    seen: dict[str, str] = {}
    return _NUMBERED.sub(
        lambda found: prefix + found[1] + seen.setdefault(found[2], str(len(seen) + 1)), svg
    )


# On the page
# ------------------------------------------------------------------------------

_SVG = "http://www.w3.org/2000/svg"
_KNOWN = frozenset(
    f"{{{_SVG}}}{tag}"
    for tag in ("svg", "g", "path", "rect", "line", "circle", "text", "tspan", "defs", "clipPath")
)
_REFERENCE = re.compile(r"url\(#([^)]*)\)")


def drawing(name: str, folder: Path) -> str:
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
