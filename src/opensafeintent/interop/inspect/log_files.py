"""Files of logs of Inspect AI: told from others, checked for their size, and read."""

from __future__ import annotations

import io
import re
import sys
import zipfile
from codecs import BOM_UTF8
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from opensafeintent.errors import InputError
from opensafeintent.hostile import one_line
from opensafeintent.promptsets.limits import RowLimit

if TYPE_CHECKING:
    from inspect_ai.log import EvalLog

_JSON_LOG = re.compile(
    rb'\s*\{\s*(?:"version":\s*\d+,\s*"status":\s*"'
    rb'|(?:"error":\s*(?:null|\{.*?\}),\s*)?"eval":\s*\{\s*"c)',
    re.DOTALL,
)
"""The beginning of a log as Inspect AI writes it, or with its keys sorted."""
_BEGINNING = 20_000
"""Bytes that the error of a log with sorted keys may take."""

_UNREAD = {"events", "events_data", "attachments", "store", "timelines", "messages"}
"""The large parts of a log, which are not read."""
_MOST_DEPTH = 200
"""Of objects and lists within each other."""
_MOST_MEMBER = 100_000_000
"""Bytes of one sample, unpacked."""
_MOST_FILE = 500_000_000
"""Bytes of a log that is one file of JSON, and characters of all texts that are read of any log."""
_MOST_TEXT = 30_000_000
"""Characters of one text: the time that reading it takes grows with their square."""
_BUFFER = 2**22


def is_inspect_log(path: Path) -> bool:
    """Tell a log, in either of Inspect AI's formats, from our own files and the authors'."""
    if path.suffix == ".eval":
        return True
    try:
        with path.open("rb") as file:
            start = file.read(_BEGINNING).removeprefix(BOM_UTF8)
            return path.suffix == ".json" and _JSON_LOG.match(start) is not None
    except OSError:
        return False


def read_log(path: Path, limit: RowLimit) -> EvalLog:
    """Read a log without the record of its calls, its task checked before anything large is
    read.
    """
    from inspect_ai.log import read_eval_log

    if not path.is_file():
        raise InputError(f"{path}: cannot read: no such file")
    try:
        _check(path, limit)
        source = _without_bom(path)
        header = read_eval_log(source, header_only=True)
        if header.eval.task.rpartition("/")[2] != "opensafeintent":
            task = one_line(header.eval.task, 80)
            raise InputError(
                f"{path}: is a log of the task {task!r}; expected one of"
                " opensafeintent/opensafeintent"
            )
        if not isinstance(source, str):
            source.seek(0)
        return read_eval_log(source, exclude_fields=_UNREAD if path.suffix == ".eval" else None)
    except InputError:
        raise
    except Exception as error:  # any error of Inspect AI about a file that is none of its logs
        raise InputError(
            f"{path}: is not a log of Inspect AI: {one_line(str(error) or type(error).__name__)}"
        ) from error


def _without_bom(path: Path) -> str | IO[bytes]:
    """Return what Inspect AI can read: the path, or for a file with a byte order mark its bytes
    without it.
    """
    with path.open("rb") as file:
        has_mark = file.read(len(BOM_UTF8)) == BOM_UTF8
        return io.BytesIO(file.read()) if has_mark else str(path)


def _check(path: Path, limit: RowLimit) -> None:
    """Refuse a file that would take endless time or memory to read: few bytes can unpack to more
    than a machine holds.

    Inspect AI finds other faults, at the same byte. The bytes after the fault are only unpacked
    here, because their size and checksum have to match the archive's.
    """
    import ijson

    characters = 0
    for name, allowed, size, member in _members(path, limit):
        if size > allowed:
            raise InputError(f"{name}: {size:,} bytes; expected at most {allowed:,}")
        start = member.tell()
        check = _ContentCheck(name, characters, lambda: limit.count(str(path)))
        try:
            check.read(ijson.basic_parse(member, buf_size=_BUFFER, use_float=True))
        except (ijson.JSONError, ValueError) as error:
            if "overflow" in str(error):
                # the parser in C ends at a whole number of more than 64 bits; Inspect AI goes on
                member.seek(start)
                _check_slowly(member, check)
            while member.read(_BUFFER):
                pass
        characters = check.characters


def _check_slowly(member: IO[bytes], check: _ContentCheck) -> None:
    """Check a part of a log with the parser in Python.

    Raises:
        InputError: it has a number that Python cannot read. The parser that Inspect AI uses does
            not survive one.
    """
    import ijson

    slow, most = ijson.get_backend("python"), sys.get_int_max_str_digits()
    try:
        check.read(slow.basic_parse(member, buf_size=_BUFFER))
    except (ijson.JSONError, ValueError) as error:
        if most and re.search(rf"\d{{{most + 1}}}", str(error)):
            raise InputError(
                f"{check.name}: a number of too many digits; expected at most {most:,}"
            ) from error


class _ContentCheck:
    """Refuses a part of a log that is nested too deeply, or has too much text.

    Args:
        name: of the part.
        before: characters of the texts before it.
        count: is called for each sample, once, however often the part is read.
    """

    def __init__(self, name: str, before: int, count: Callable[[], object]) -> None:
        self.name = name
        self.characters = self._before = before
        self._count = count
        self._counted = 0

    def read(self, events: Iterable[tuple[str, Any]]) -> None:
        """Check the part from its beginning.

        Raises:
            InputError: it cannot be used.
        """
        depth, key, samples = 0, "", 0
        self.characters = self._before
        for event, value in events:
            if event in ("start_map", "start_array"):
                depth += 1
                if (event, depth, key) == ("start_map", 3, "samples"):
                    samples += 1
                    if samples > self._counted:
                        self._counted = samples
                        self._count()
            elif event in ("end_map", "end_array"):
                depth -= 1
            elif event == "map_key" and depth == 1:
                key = value
            elif event == "string":
                self.characters += len(value) if key not in _UNREAD else 0
                if len(value) > _MOST_TEXT or self.characters > _MOST_FILE:
                    most = f"{_MOST_TEXT:,} characters, and of {_MOST_FILE:,} in a log"
                    raise InputError(
                        f"{self.name}: too much text; expected texts of at most {most}"
                    )
            if depth > _MOST_DEPTH:
                raise InputError(
                    f"{self.name}: nested too deeply; expected at most {_MOST_DEPTH} levels"
                )


def _members(path: Path, limit: RowLimit) -> Iterator[tuple[str, int, int, IO[bytes]]]:
    """Yield the parts of a log, the members of an archive or one file of JSON: name, bytes allowed,
    bytes, content. The samples of an archive are counted.
    """
    if path.suffix != ".eval":
        with path.open("rb") as file:
            if file.read(len(BOM_UTF8)) != BOM_UTF8:
                file.seek(0)
            yield str(path), _MOST_FILE, path.stat().st_size, file
        return
    with zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            if member.filename.startswith("samples/"):
                limit.count(str(path))
            with archive.open(member) as file:
                yield (
                    f"{path}, {one_line(member.filename, 80)}",
                    _MOST_MEMBER,
                    member.file_size,
                    file,
                )
