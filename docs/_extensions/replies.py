"""The directive `replies`: one of the tables by which replies are read, from the code itself, read
again at every build.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar

from commands import paragraph
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from opensafeintent.calls.error_codes import (
    CAPACITY_CODES,
    FATAL_CODES,
    FILTER_CODES,
    WAITING_CODES,
)
from opensafeintent.calls.reasoning_marks import ANSWER_MARKS, CHANNELS, MARKS
from opensafeintent.calls.stop_reasons import STOP_REASONS
from opensafeintent.errors import for_command_line
from opensafeintent.evaluation.missing import MISSING_REASONS


class Code(tuple[str, ...]):
    """Names in one cell, each shown as code."""


Cell = str | Code
Rows = Iterable[Sequence[Cell]]


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directive."""
    app.add_directive("replies", RepliesDirective)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


_PLACES = {"anywhere": "anywhere", "start": "at the start", "pair": "at the start, both marks"}
_ENDS = {
    "end": "the model ended by itself",
    "cut": "a token limit cut the text",
    "refusal": "a filter, or the model’s own refusal",
    "break": "an error, a time limit, a cancellation",
    "pause": "the model waits for a tool",
    "none": "no reason",
}


def _marks() -> Rows:
    thought, _, answer = CHANNELS.partition("…")
    yield Code((thought,)), Code((answer,)), "at the start", "gpt-oss (OpenAI’s harmony form)"
    for one in MARKS:
        yield Code((one.opening,)), Code((one.closing,)), _PLACES[one.place], one.used_by


def _answers() -> Rows:
    return ([Code((begin,)), Code((end,))] for begin, end in ANSWER_MARKS)


def _stop_reasons() -> Rows:
    return ([Code(one.names), _ENDS[one.kind], one.source] for one in STOP_REASONS)


def _filters() -> Rows:
    return ([Code(one.names), one.source] for one in FILTER_CODES)


def _limits() -> Rows:
    for kind, table in FATAL_CODES.items():
        for one in table:
            yield Code(one.names), f"the model stops: {kind.replace('_', ' ')}", one.source
    for one in WAITING_CODES:
        yield Code(one.names), "the call waits", one.source
    for one in CAPACITY_CODES:
        yield Code(one.names), "the call waits, or goes to the standard tier", one.source


def _missing() -> Rows:
    for one in MISSING_REASONS:
        before = "…:" if one.lacking == "grade" else f"{one.lacking}:"
        yield (
            Code(f"{before}{name}" for name in one.names),
            one.meaning,
            for_command_line(one.advice(imported=one.of_imports)),
        )


class RepliesDirective(SphinxDirective):
    """One table; its argument names it."""

    required_arguments = 1
    tables: ClassVar[dict[str, tuple[tuple[str, ...], Callable[[], Rows]]]] = {
        "marks": (("a thought begins", "ends", "counted", "used by"), _marks),
        "answers": (("the answer begins", "ends"), _answers),
        "stop-reasons": (("reason", "meaning", "sent by"), _stop_reasons),
        "filters": (("code", "sent by"), _filters),
        "limits": (("code", "result", "sent by"), _limits),
        "missing": (("reason", "meaning", "what changes it"), _missing),
    }

    def run(self) -> list[nodes.Node]:
        """Return the table."""
        self.env.note_reread()  # the code's table may have changed although the page has not
        headings, rows = self.tables[self.arguments[0]]
        group = nodes.tgroup("", *(nodes.colspec() for _ in headings), cols=len(headings))
        group += nodes.thead("", _row(headings))
        group += nodes.tbody("", *map(_row, rows()))
        return [nodes.table("", group, classes=["replies"])]


def _row(cells: Sequence[Cell]) -> nodes.row:
    return nodes.row("", *(nodes.entry("", _shown(cell)) for cell in cells))


def _shown(cell: Cell) -> nodes.paragraph:
    if isinstance(cell, str):
        return paragraph(cell)
    parts = [part for name in cell for part in (nodes.Text(", "), nodes.literal("", name))]
    return nodes.paragraph("", "", *parts[1:])
