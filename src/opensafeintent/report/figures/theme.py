"""How figures look: colours that are told apart without colour vision and stand out on white and on black."""

from __future__ import annotations

from typing import Any

__all__ = ["BLUE", "FONT", "GREEN", "GREY", "LAYOUT", "ORANGE", "PALE", "PURPLE", "SHAPES", "SKY", "THEMES", "VERMILION"]

# Okabe and Ito, Color Universal Design (2008).
BLUE, SKY, GREEN = "#0072B2", "#56B4E9", "#009E73"
ORANGE, VERMILION, PURPLE = "#E69F00", "#D55E00", "#CC79A7"
GREY = "#808080"
"""In the middle between white and black."""
PALE = "#CFCFCF"
"""Between BLUE and VERMILION where they are opposites."""

SHAPES = ("circle", "square", "triangle-up", "diamond", "triangle-down", "cross")

FONT = "Liberation Sans, Arial, Helvetica, sans-serif"
"""Faces of the same widths, so that a figure is laid out alike everywhere."""

LAYOUT: dict[str, Any] = {
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
    "legend": {"orient": "top", "title": None, "labelFontSize": 11, "symbolSize": 70, "labelLimit": 260, "columnPadding": 16},
    "title": {"anchor": "start", "fontSize": 12, "fontWeight": "bold"},
    "header": {"labelFontSize": 11, "labelFontWeight": "bold", "labelAnchor": "start", "title": None, "labelLimit": 200},
}
"""What holds in every theme."""


def _theme(ink: str, quiet: str, background: str) -> dict[str, Any]:
    return {
        "background": background,
        "axis": {"labelColor": ink, "titleColor": quiet},
        "legend": {"labelColor": ink},
        "title": {"color": ink, "subtitleColor": quiet},
        "header": {"labelColor": ink},
        "text": {"color": ink},
    }


THEMES = {"light": _theme("#1a1a1a", "#555555", "#ffffff"), "dark": _theme("#ececec", "#b0b0b0", "#16181c")}
"""Vega-Lite configurations to lay under a figure's own: the `config` of vega-embed and of vl-convert."""
