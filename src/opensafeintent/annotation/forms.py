"""The two forms that an annotator can get: a spreadsheet, or one page that works in a browser from
disk, by keyboard.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from datetime import datetime
from importlib import resources
from string import ascii_uppercase
from typing import Any

import msgspec

from opensafeintent import __version__
from opensafeintent.annotation.guide import SLOTS, Example, Question, asks_of, guide_of
from opensafeintent.annotation.labels import LabelKind, Showing
from opensafeintent.annotation.study import Packet, Shown
from opensafeintent.annotation.texts import lines_of, split_text
from opensafeintent.canonical import sha256_hex
from opensafeintent.hostile import json_for_html, page_script, security_policy

INSTRUCTIONS = "Instructions"
ITEMS = "Items"
PRACTICE = "Practice"
_SOLUTIONS = "Practice answers"
FIXED = ("No.", "Item", "Part", "Text")
"""Headings of the columns before the answers."""
NOTE = "Note"
IDENTITY = {"study": (3, 2), "annotator": (4, 2)}
"""Cells of the instructions that say whose form of which study this is: row and column, from 1."""

_TEXT_COLUMNS = 92
"""Characters that surely fit into a line of the text column."""
_PROSE_COLUMNS = 100
"""The same, of the instructions."""
_A_CHARACTER = 0.82
"""Width of such a character in a spreadsheet's own unit: more than the average letter takes."""
_MOST_LINES = 18
"""Of a text cell.

A row cannot be higher than 409 points, and one that fills the screen is hard to scroll past.
"""
_LINE = 14.5
"""Height of a line, in points.

Heights are set: not every program fits rows to their text when it opens a file.
"""
_PADDING = 9.0
_STEPS = (
    f"1. Read this page. 2. Answer the sheet “{PRACTICE}”, then compare with “{_SOLUTIONS}”. 3."
    f" Answer the sheet “{ITEMS}”, from top to bottom. 4. Save, and send this file back."
)
_CELLS = (
    "Answers go into the yellow cells only: choose from the list, or type. They turn green. Notes"
    " are free. Everything else is locked, and has to stay as it is."
)
_COMPARING = (
    "Where two answers are given, either can be defended. Where yours is another, read the reason,"
    " and the rules once more; leave your own answer as it is."
)
_MADE = datetime(2026, 1, 1)
"""No time of making: the same study gives the same files."""

_INK, _GREY, _RULE = "#1D1C1A", "#6B675F", "#D9D4C9"
_PAPER, _BAND, _HEAD = "#FFFFFF", "#F6F3EC", "#2F3B4C"
_OPEN, _DONE = "#FFF6D6", "#E4F1E4"


class Column(msgspec.Struct, frozen=True):
    """A column of answers: a question, whichever texts it is put about."""

    question: str
    heading: str
    hint: str

    @property
    def head(self) -> str:
        """The whole text of the heading's cell."""
        return f"{self.heading}\n{self.hint}"


def columns_of(kind: LabelKind) -> list[Column]:
    """Return the columns of answers, in order."""
    names = dict.fromkeys(ask.question for ask in asks_of(kind))
    questions = [guide_of(kind).question(name) for name in names]
    return [Column(question.name, question.heading, _hint(question)) for question in questions]


def _hint(question: Question) -> str:
    return " · ".join(choice.label for choice in question.choices)


def cell(row: int, column: int) -> str:
    """Return the name of a cell, such as B3, by row and column from 1; a form has fewer than 26
    columns.
    """
    return f"{ascii_uppercase[column - 1]}{row}"


def render_sheet(packet: Packet) -> bytes:
    """Return an annotator's workbook (.xlsx); the same packet gives the same bytes.

    Every text is written as a text, whatever it starts with; long ones go over several rows. Only
    answers and notes can be edited.
    """
    import xlsxwriter

    file = io.BytesIO()
    workbook = xlsxwriter.Workbook(
        file, {"in_memory": True, "strings_to_formulas": False, "strings_to_urls": False}
    )
    workbook.set_properties(
        {"title": packet.guide.title, "author": "OpenSafeIntent", "created": _MADE}
    )
    _Book(workbook, packet).write()
    workbook.close()
    return file.getvalue()


class _Book:
    """A workbook that is being written."""

    def __init__(self, workbook: Any, packet: Packet) -> None:
        self._workbook = workbook
        self._packet = packet
        self._guide = packet.guide
        self._slots = SLOTS[packet.kind]
        self._columns = columns_of(packet.kind)
        self._note = len(FIXED) + len(self._columns)
        self._formats: dict[tuple[tuple[str, Any], ...], Any] = {}

    def write(self) -> None:
        instructions = self._workbook.add_worksheet(INSTRUCTIONS)
        instructions.set_tab_color(_HEAD)
        self._table(PRACTICE, self._packet.calibration, "#B8860B")
        self._solutions()
        last = self._table(ITEMS, self._packet.items, "#2E7D32")
        self._instructions(instructions, last)

    def _format(self, **properties: Any) -> Any:
        base = {
            "font_name": "Arial",
            "font_size": 11,
            "font_color": _INK,
            "valign": "vcenter",
            "text_wrap": True,
        }
        made = base | properties
        key = tuple(sorted(made.items()))
        if key not in self._formats:
            self._formats[key] = self._workbook.add_format(made)
        return self._formats[key]

    # Instructions
    # ------------------------------------------------------------------------------

    def _instructions(self, sheet: Any, last: int) -> None:
        packet, guide = self._packet, self._guide
        rows = _Prose(self._format, sheet)
        rows.title(guide.title)
        rows.gap()
        rows.line("Study", packet.study)
        rows.line("Annotator", packet.annotator)
        rows.line("Dataset", packet.dataset)
        answers = f"{cell(2, len(FIXED) + 1)}:{cell(last + 1, self._note)}"
        asked = len(packet.items) * len(asks_of(packet.kind))
        rows.formula("Answered", f"=COUNTA({ITEMS}!{answers})", f'0" of {asked:,}"')
        rows.gap()
        rows.line("Before you start", guide.warning, background="#FBE9E0")
        rows.heading("What to do")
        for text in guide.intro:
            rows.line("", text)
        rows.line("", _STEPS)
        rows.line("", _CELLS)
        rows.heading("Questions and answers")
        for question in guide.questions:
            rows.line(question.heading, question.text)
            for choice in question.choices:
                if choice.meaning:
                    rows.line("", f"{choice.label}:  {choice.meaning}", indent=1)
            if not any(choice.meaning for choice in question.choices):
                rows.line("", _hint(question), indent=1)
        rows.heading("Rules")
        for rule in guide.rules:
            rows.line("", f"–  {rule}")
        for example in guide.examples:
            rows.heading(f"Worked example: {example.title}")
            self._example(rows, example, with_texts=True)
        self._finish(sheet, f"A1:B{rows.rows}")

    def _solutions(self) -> None:
        sheet = self._workbook.add_worksheet(_SOLUTIONS)
        sheet.set_tab_color("#B8860B")
        rows = _Prose(self._format, sheet)
        rows.title("Look here after you have answered the practice items")
        rows.gap()
        rows.line("", _COMPARING)
        for shown, example in zip(self._packet.calibration, self._guide.calibration, strict=True):
            rows.heading(f"Item {shown.number}")
            self._example(rows, example, with_texts=False)
        self._finish(sheet, f"A1:B{rows.rows}")

    def _example(self, rows: _Prose, example: Example, *, with_texts: bool) -> None:
        if with_texts:
            for slot, text in zip(self._slots, example.texts, strict=True):
                rows.line(slot.label, text)
        for slot in self._slots:
            for ask in slot.asks:
                question = self._guide.question(ask.question)
                labels = {choice.value: choice.label for choice in question.choices}
                name = (
                    question.heading if len(slot.asks) > 1 else f"{question.heading}, {slot.label}"
                )
                rows.line(
                    name,
                    " or ".join(labels[value] for value in example.answers[ask.field]),
                    bold=True,
                )
        rows.line("Why", example.why)

    # Items
    # ------------------------------------------------------------------------------

    def _table(self, name: str, items: Sequence[Shown], color: str) -> int:
        """Write practice items or items; return the last row."""
        sheet = self._workbook.add_worksheet(name)
        sheet.set_tab_color(color)
        self._head(sheet)
        row = 0
        for index, shown in enumerate(items):
            row = self._item(sheet, row, shown, _BAND if index % 2 else _PAPER)
        done = self._workbook.add_format({"bg_color": _DONE})
        sheet.conditional_format(
            1, len(FIXED), row, self._note - 1, {"type": "no_blanks", "format": done}
        )
        sheet.freeze_panes(1, 3)
        sheet.repeat_rows(0)
        self._finish(sheet, f"A1:{cell(row + 1, self._note + 1)}")
        return row

    def _head(self, sheet: Any) -> None:
        dark = {"bg_color": _HEAD, "font_color": _PAPER, "border": 1, "border_color": _HEAD}
        bold = self._format(**dark, bold=True)
        large = self._workbook.add_format(
            {"bold": True, "font_color": _PAPER, "font_name": "Arial", "font_size": 10}
        )
        small = self._workbook.add_format(
            {"font_color": "#CBD3DE", "font_name": "Arial", "font_size": 8}
        )
        beside = self._format(**dark, bold=True, align="left", indent=1)
        for column, heading in enumerate(FIXED):
            sheet.write_string(
                0,
                column,
                heading,
                self._format(**dark, bold=True, align="center") if column < 2 else beside,
            )
        for column, asked in enumerate(self._columns, start=len(FIXED)):
            sheet.write_rich_string(0, column, large, asked.heading, small, f"\n{asked.hint}", bold)
        sheet.write_string(0, self._note, NOTE, bold)
        sheet.set_row(0, 48)
        fixed = (5.5, 10.5, 13.0 if len(self._slots) > 2 else 18.5, _TEXT_COLUMNS * _A_CHARACTER)
        answers = (15.5 if len(asked.hint) > 30 else 13.0 for asked in self._columns)
        for column, width in enumerate((*fixed, *answers, 28)):
            sheet.set_column(column, column, width)

    def _item(self, sheet: Any, row: int, shown: Shown, paper: str) -> int:
        """Write one item below `row`; return its last row."""
        top = True
        for slot, text in zip(self._slots, shown.texts, strict=True):
            parts = split_text(text, _TEXT_COLUMNS, _MOST_LINES)
            for number, part in enumerate(parts, start=1):
                row += 1
                edge = {
                    "top": 2 if top else 4,
                    "top_color": _GREY if top else _RULE,
                    "bg_color": paper,
                }
                small = self._format(**edge, font_color=_GREY, font_size=9, align="center")
                sheet.write_number(row, 0, shown.number, small)
                sheet.write_string(row, 1, shown.code, small)
                shown_text = part.strip("\n").rstrip()
                label = (
                    slot.label if len(parts) == 1 else f"{slot.label} ({number} of {len(parts)})"
                )
                sheet.write_string(
                    row,
                    2,
                    label,
                    self._format(**edge, bold=True, font_size=9, align="left", indent=1),
                )
                # White space between two parts is shown by the step to the next row: an empty line
                # would say nothing more.
                lie = {"valign": "top"} if len(parts) > 1 else {}
                sheet.write_string(
                    row, 3, shown_text, self._format(**edge, align="left", indent=1, **lie)
                )
                sheet.set_row(row, max(2, lines_of(shown_text, _TEXT_COLUMNS)) * _LINE + _PADDING)
                asked = {ask.question for ask in slot.asks} if number == len(parts) else set()
                self._answers(sheet, row, asked, edge, note=bool(asked) and slot is self._slots[-1])
                top = False
        return row

    def _answers(
        self, sheet: Any, row: int, asked: set[str], edge: dict[str, Any], *, note: bool
    ) -> None:
        line = {name: edge[name] for name in ("top", "top_color")}
        closed = self._format(**edge)
        around = {
            "left": 1,
            "right": 1,
            "bottom": 1,
            "left_color": _RULE,
            "right_color": _RULE,
            "bottom_color": _RULE,
        }
        opened = {"bg_color": _OPEN, "locked": False} | line | around
        for at, column in enumerate(self._columns, start=len(FIXED)):
            if column.question not in asked:
                sheet.write_blank(row, at, None, closed)
                continue
            sheet.write_blank(row, at, None, self._format(**opened, align="center", bold=True))
            sheet.data_validation(
                row, at, row, at, self._choices(self._guide.question(column.question))
            )
        free = (
            self._format(**opened | {"bg_color": _PAPER}, font_size=9, num_format="@")
            if note
            else closed
        )
        sheet.write_blank(row, self._note, None, free)

    def _choices(self, question: Question) -> dict[str, Any]:
        values: list[Any] = [
            choice.answer if choice.value.isdigit() else choice.label for choice in question.choices
        ]
        return {
            "validate": "list",
            "source": values,
            "error_title": "Not one of the answers",
            "error_message": (
                f"Valid: {question.valid}. Leave the cell empty where you have not got to it."
            ),
        }

    def _finish(self, sheet: Any, area: str) -> None:
        sheet.hide_gridlines(2)
        sheet.protect("", {"format_columns": True, "format_rows": True})
        sheet.set_landscape()
        sheet.set_paper(9)
        sheet.set_margins(left=0.4, right=0.4, top=0.5, bottom=0.6)
        sheet.fit_to_pages(1, 0)
        sheet.print_area(area)
        sheet.set_footer("&L&8 " + self._packet.study + "&R&8&A, page &P of &N")
        sheet.set_zoom(100)


class _Prose:
    """A sheet of text in two columns: what it is about, and the text."""

    def __init__(self, form: Callable[..., Any], sheet: Any) -> None:
        self._form = form
        self._sheet = sheet
        self._row = -1
        sheet.set_column(0, 0, 26)
        sheet.set_column(1, 1, _PROSE_COLUMNS * _A_CHARACTER)

    def _next(self, height: float) -> int:
        self._row += 1
        self._sheet.set_row(self._row, height)
        return self._row

    @property
    def rows(self) -> int:
        """Rows so far."""
        return self._row + 1

    def title(self, text: str) -> None:
        row = self._next(32)
        self._sheet.write_string(row, 0, text, self._form(bold=True, font_size=18, text_wrap=False))

    def heading(self, text: str) -> None:
        self.gap()
        row = self._next(24)
        form = self._form(bold=True, font_size=13, text_wrap=False, bottom=1, bottom_color=_GREY)
        self._sheet.write_string(row, 0, text, form)
        self._sheet.write_blank(row, 1, None, form)

    def gap(self) -> None:
        self._next(10)

    def line(
        self, name: str, text: str, *, bold: bool = False, indent: int = 0, background: str = ""
    ) -> None:
        row = self._next(lines_of(text, _PROSE_COLUMNS - 4 * indent) * _LINE + 5)
        back = {"bg_color": background} if background else {}
        self._sheet.write_string(
            row, 0, name, self._form(font_color=_GREY, font_size=10, valign="top", **back)
        )
        self._sheet.write_string(
            row, 1, text, self._form(bold=bold, align="left", indent=indent, valign="top", **back)
        )

    def formula(self, name: str, formula: str, number: str) -> None:
        row = self._next(_LINE + 4)
        self._sheet.write_string(
            row, 0, name, self._form(font_color=_GREY, font_size=10, valign="top")
        )
        self._sheet.write_formula(
            row, 1, formula, self._form(num_format=number, align="left", valign="top"), 0
        )


# The page
# ------------------------------------------------------------------------------

PAGE_FORM = "opensafeintent annotation 1"
"""What a file that a page saved says that it is."""
_SCRIPTS = ("answers.js", "views.js", "page.js")


def page_words(showing: Showing) -> str:
    """Return what a page says of an item's texts: the hashes of all of them in one."""
    return sha256_hex(" ".join(showing.words))[:16]


def render_page(packet: Packet, showings: Sequence[Showing]) -> bytes:
    """Return an annotator's page as one HTML file; the same packet gives the same bytes.

    It loads and sends nothing: a content security policy allows its own script and style and
    nothing else. Texts are embedded as escaped JSON and shown as text.

    Args:
        packet: what the annotator sees.
        showings: the same items in the study's key; only the hashes of their texts go into the
            page.
    """
    from jinja2 import Environment, FunctionLoader, StrictUndefined

    style = _asset("page.css")
    script = page_script(map(_asset, _SCRIPTS))
    environment = Environment(
        loader=FunctionLoader(_asset),
        autoescape=True,
        undefined=StrictUndefined,
        keep_trailing_newline=True,
    )
    html: str = environment.get_template("template.html").render(
        title=packet.guide.title,
        annotator=packet.annotator,
        version=__version__,
        policy=security_policy(scripts=(script,), styles=(style,)),
        style=style,
        script=script,
        data=json_for_html(_data(packet, showings)).decode(),
    )
    return html.encode()


def _asset(name: str) -> str:
    return (
        resources.files("opensafeintent.annotation")
        .joinpath(f"page_assets/{name}")
        .read_text("utf-8")
    )


def _data(packet: Packet, showings: Sequence[Showing]) -> dict[str, Any]:
    guide = packet.guide
    words = {showing.code: page_words(showing) for showing in showings}
    practice = [{"answers": example.answers, "why": example.why} for example in guide.calibration]
    items = [
        *zip(packet.calibration, practice, strict=True),
        *((shown, None) for shown in packet.items),
    ]
    return {
        "form": PAGE_FORM,
        "study": packet.study,
        "annotator": packet.annotator,
        "file": packet.file_name,
        "dataset": packet.dataset,
        "title": guide.title,
        "unit": guide.unit,
        "warning": guide.warning,
        "intro": guide.intro,
        "rules": guide.rules,
        "questions": guide.questions,
        "examples": guide.examples,
        "slots": SLOTS[packet.kind],
        "items": [
            {
                "code": shown.code,
                "number": shown.number,
                "texts": shown.texts,
                "words": words[shown.code],
                "practice": example,
            }
            for shown, example in items
        ],
    }
