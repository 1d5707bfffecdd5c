"""What came back from an annotator, in whichever form, before anything of it is believed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec

from opensafeintent.errors import InputError

__all__ = ["MOST_BYTES", "Formula", "Returned", "ReturnedItem", "Value", "read_return"]

MOST_BYTES = 100_000_000
"""A larger file is no form of ours."""


class Formula(msgspec.Struct, frozen=True):
    """A cell that holds a formula, whatever that comes to."""

    text: str


Value = object
"""What a cell holds: a text, a number, a truth value, a date, a `Formula`, or nothing."""


class ReturnedItem(msgspec.Struct, kw_only=True):
    """One item as it came back, each thing with the address at which it stands."""

    address: str
    code: str
    words: dict[str, tuple[str, str]] = {}
    """By slot: the address, and the hash of the text (`texts.words_hash`)."""
    answers: dict[str, tuple[str, Value]] = {}
    """By field: the address, and what stands there. A blank is not there."""
    note: tuple[str, Value] | None = None


class Returned(msgspec.Struct, kw_only=True):
    """A file as it came back."""

    file: str
    study: str
    annotator: str
    items: list[ReturnedItem] = []
    problems: list[str] = []
    """What is wrong with the file by itself, a line each, without the file's name."""


def read_return(path: Path, form: str = "auto") -> Returned:
    """Read a file that an annotator sent back.

    Args:
        path: an `.xlsx` workbook, or the `.json` that the page saves.
        form: `sheet`, `page`, or `auto` to go by the file's first bytes.

    Raises:
        InputError: the file cannot be read, or is neither form.
    """
    try:
        size = path.stat().st_size
        raw = path.read_bytes() if size <= MOST_BYTES else b""
    except OSError as error:
        raise InputError(f"{path}: cannot read: {error.strerror or error}") from error
    if size > MOST_BYTES:
        raise InputError(f"{path}: {size:,} bytes; a form of ours is never so large")
    return _reader(path, raw, form)(path, raw)


def _reader(path: Path, raw: bytes, form: str) -> Callable[[Path, bytes], Returned]:
    from opensafeintent.people.reading_pages import read_page
    from opensafeintent.people.reading_sheets import read_sheet
    from opensafeintent.people.workbooks import WORKBOOK_STARTS

    if form == "sheet" or (form == "auto" and (raw.startswith(WORKBOOK_STARTS) or not raw)):
        return read_sheet
    if form == "page" or (form == "auto" and raw.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{")):
        return read_page
    raise InputError(
        f"{path}: neither an .xlsx workbook nor the .json of a page; expected the file as the annotator saved it, not a copy "
        "in another format"
    )
