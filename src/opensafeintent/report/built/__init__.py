"""What a finished build shows: tables, figures, `build.html`, and the dataset card."""

from opensafeintent.report.built.figures import FIGURE_FILES, build_figures
from opensafeintent.report.built.page import canary_of, card, marked_source, render_build_page
from opensafeintent.report.built.record import BuildResults, Likeness, Reviewed, likeness_of
from opensafeintent.report.built.tables import TABLE_NAMES, build_tables

__all__ = [
    "FIGURE_FILES",
    "TABLE_NAMES",
    "BuildResults",
    "Likeness",
    "Reviewed",
    "build_figures",
    "build_tables",
    "canary_of",
    "card",
    "likeness_of",
    "marked_source",
    "render_build_page",
]
