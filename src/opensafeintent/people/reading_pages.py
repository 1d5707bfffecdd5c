"""Reading the answers that an annotator's page saved."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from opensafeintent.errors import InputError
from opensafeintent.hostile import one_line
from opensafeintent.people.returns import Returned, ReturnedItem, Value

__all__ = ["PAGE_FORM", "read_page"]

PAGE_FORM = "opensafeintent annotation 1"
"""What a saved file says that it is."""


_MOST_BYTES = 20_000_000
"""An item takes some 200."""


class _SavedItem(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    code: str
    words: str
    """The hashes of its texts, joined: what the page was made with."""
    answers: dict[str, object] = {}
    note: str = ""


class _Saved(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    form: str
    study: str
    annotator: str
    items: list[_SavedItem]


def read_page(path: Path, raw: bytes) -> Returned:
    """Read the JSON that a page saved.

    Raises:
        InputError: it is not such a file.
    """
    if len(raw) > _MOST_BYTES:
        raise InputError(f"{path}: {len(raw):,} bytes; what a page saves has at most {_MOST_BYTES:,}")
    try:
        saved = msgspec.json.decode(raw.removeprefix(b"\xef\xbb\xbf"), type=_Saved)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        what = "nested too deeply" if isinstance(error, RecursionError) else one_line(str(error))
        raise InputError(f"{path}: not what a page of annotate page saves: {what}") from error
    if saved.form != PAGE_FORM:
        raise InputError(f"{path}: form {one_line(saved.form, 60)!r}; this program reads {PAGE_FORM!r}")
    returned = Returned(file=str(path), study=saved.study, annotator=saved.annotator)
    for place, item in enumerate(saved.items):
        address = f"items[{place}]"
        returned.items.append(
            ReturnedItem(
                address=address,
                code=item.code,
                words={"": (address, item.words)},
                answers=_answers(item.answers, address),
                note=(f"{address}.note", item.note) if item.note.strip() else None,
            )
        )
    return returned


def _answers(answers: Mapping[str, object], address: str) -> dict[str, tuple[str, Value]]:
    return {
        field: (f"{address}.answers.{field}", value)
        for field, value in answers.items()
        if value is not None and not (isinstance(value, str) and not value.strip())
    }
