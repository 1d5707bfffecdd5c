"""What a figure is: a chart specification, and the table with its numbers."""

from __future__ import annotations

from typing import Any

import msgspec

from opensafeintent.report.tables.record import Table

__all__ = ["Figure"]


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """A named figure."""

    name: str
    """Of its files."""
    title: str
    """What is shown."""
    caption: str
    """How to read it: what the intervals are, what to distrust."""
    notes: tuple[str, ...] = ()
    """What stands above the drawing in a file: what was measured, and what a reader must not miss."""
    table: Table
    """The numbers that are drawn."""
    spec: dict[str, Any]
    """Vega-Lite, data inlined, no title. Neither background nor text has a colour: a theme gives them (`theme.THEMES`)."""
