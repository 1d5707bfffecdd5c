"""The tables by which replies are read, and those of the questions to judges and of the notices,
from the code itself, written into the pages of the folder above: `make docs`. A table is between
two comments, `<!-- table: NAME -->` and `<!-- end -->`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from opensafeintent.calls.provider_errors import FILTER_CODES
from opensafeintent.calls.reasoning import CHANNELS, MARKS, Place
from opensafeintent.calls.records import STOP_REASONS
from opensafeintent.evaluation.missing import MISSING_REASONS
from opensafeintent.report.notices import LEVELS, NOTICES
from opensafeintent.taxonomy import QUESTIONS, Question


class Code(tuple[str, ...]):
    """Names in one cell, each shown as code."""


Cell = str | Code
Rows = Iterable[Sequence[Cell]]


_ENDS = {
    "end": (
        "the model ended by itself",
        "graded",
        "refusal, or missing (`reasoning_only`) beside reasoning",
    ),
    "cut": ("a token limit cut the text", "graded, counted as cut", "missing: `truncated`"),
    "refusal": (
        "a filter, or the model’s own refusal",
        "graded, counted as cut by a filter",
        "refusal",
    ),
    "break": (
        "an error, a time limit, a cancellation",
        "tried again; else missing: `broken_off`",
        "the same",
    ),
    "pause": ("the model waits for a tool", "graded", "missing: `stop_reason:NAME`"),
    "none": ("no reason", "graded", "missing: `no_answer`"),
}
"""What each kind of stop reason means, and what becomes of a reply with text and of one without."""

_PLACES: dict[Place, str] = {
    "anywhere": "anywhere",
    "start": "at the start of a text",
    "pair": "at the start, with its closing mark",
}


def _marks() -> Rows:
    channels = CHANNELS.partition("…")[0]
    for place, counts in _PLACES.items():
        openings = [one.opening for one in MARKS if one.place == place]
        yield counts, Code([channels, *openings] if place == "anywhere" else openings)


def _stop_reasons() -> Rows:
    for kind, (meaning, with_text, without_text) in _ENDS.items():
        names = (name for one in STOP_REASONS if one.kind == kind for name in one.names)
        yield meaning, with_text, without_text, Code(names)


def _filters() -> Rows:
    return ([Code(one.names), one.source] for one in FILTER_CODES)


def _missing() -> Rows:
    for one in MISSING_REASONS:
        before = "…:" if one.lacking == "grade" else f"{one.lacking}:"
        yield (
            Code(f"{before}{name}" for name in one.names),
            one.meaning,
            one.assumed,
            one.advice(imported=one.of_imports),
        )


def _questions() -> Rows:
    for one in QUESTIONS:
        least, greatest = one.scale[0], one.scale[-1]
        yield (
            Code((one.grade,)),
            one.ends,
            "more" if one.more_is_better else "less",
            _median(one, *one.scale[:2]),
            _median(one, least, least, greatest),
            f"{one.of_refusal}",
            Code((f"{one.role}.md",)),
            Code((one.authors_rubric,)) if one.authors_rubric else "–",
        )


def _median(question: Question, *grades: int) -> str:
    return f"{', '.join(map(str, grades))} → {question.median(grades)}"


def _notices() -> Rows:
    for level in LEVELS:
        for row in NOTICES:
            if row.level == level:
                yield Code((row.code,)), row.level, " ".join(row.text.split("\n"))


TABLES: dict[str, tuple[tuple[str, ...], Callable[[], Rows]]] = {
    "marks": (("counts", "a thought begins"), _marks),
    "stop-reasons": (("meaning", "with text", "without text", "reasons"), _stop_reasons),
    "filters": (("code", "sent by"), _filters),
    "missing": (("reason", "meaning", "assumed", "what changes it"), _missing),
    "questions": (
        (
            "grade",
            "from, to",
            "better",
            "a panel of two",
            "a panel of three",
            "of a refusal",
            "template",
            "the authors' file",
        ),
        _questions,
    ),
    "notices": (("code", "level", "text"), _notices),
}
_PLACE = re.compile(r"(<!-- table: (\S+) -->\n\n)(?:.*?\n\n)??(<!-- end -->)", re.DOTALL)


def filled(page: str) -> str:
    """Return a page with its tables as the code has them."""
    return _PLACE.sub(lambda place: f"{place[1]}{_table(*TABLES[place[2]])}\n{place[3]}", page)


def _table(headings: Sequence[str], rows: Callable[[], Rows]) -> str:
    lines = [headings, ["---"] * len(headings), *rows()]
    return "".join(f"| {' | '.join(map(_shown, cells))} |\n" for cells in lines)


def _shown(cell: Cell) -> str:
    """Return a cell in Markdown; options in it are code."""
    if isinstance(cell, Code):
        text = ", ".join(f"`{name}`" for name in cell)
    else:
        text = re.sub(r"(`[^`]+`)|(?<![\w-])(--[a-z][\w-]*)", _as_code, cell)
    return text.replace("|", "\\|")


def _as_code(match: re.Match[str]) -> str:
    return match[1] or f"`{match[2]}`"


if __name__ == "__main__":
    for path in Path(__file__).parents[1].glob("*.md"):
        if (new := filled(old := path.read_text("utf-8"))) != old:
            path.write_text(new, "utf-8")
