"""Files: read strictly and within limits, or refused in one line; private to their user, and
written whole or not at all. Canonical JSON, which keys are made of.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import secrets
import stat
import sys
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache, lru_cache
from importlib import resources
from math import isfinite
from pathlib import Path
from typing import IO, Any, NoReturn, TypeVar

import msgspec

from opensafeintent.errors import InputError, find_repeated
from opensafeintent.hostile import clean_for_display, one_line, unprintable

_encoder = msgspec.json.Encoder(order="sorted")


def canonical_json(value: Any) -> bytes:
    """Return `value` as JSON in one and only one form: keys sorted, no white space, UTF-8."""
    return _encoder.encode(value)


def to_json(value: object, *, indent: int = 1, sort_keys: bool = True) -> bytes:
    """Return a value as JSON for a file that people may read; the same value gives the same bytes.

    Args:
        value: a record, or plain values.
        indent: spaces of each level.
        sort_keys: whether keys are sorted; otherwise they are in the order of the value.
    """
    encoded = msgspec.json.encode(value, order="sorted" if sort_keys else None)
    return msgspec.json.format(encoded, indent=indent) + b"\n"


def sha256_hex(value: bytes | str) -> str:
    """Return the SHA-256 of bytes, or of a text in UTF-8, as 64 hexadecimal digits."""
    return hashlib.sha256(value.encode() if isinstance(value, str) else value).hexdigest()


T = TypeVar("T")

MOST_ROWS = 250_000
"""Prompt-sets, responses or seeds that are read unless more are allowed."""

_CHARACTERS_A_ROW = 2_000
"""On average, of as many rows as may be read; but 500 million characters always.

A prompt-set with paraphrases has 2,000.
"""


class RowLimit:
    """The remaining rows and characters, over all files of a dataset.

    Args:
        rows: rows at most; characters at most are 2,000 times as many, or 500 million if that is
            more. None sets no limit.
    """

    def __init__(self, rows: int | None = MOST_ROWS) -> None:
        self.most = rows
        self.most_characters = None if rows is None else max(rows, MOST_ROWS) * _CHARACTERS_A_ROW
        self._rows = 0
        self._characters = 0

    def count(self, name: str, characters: int = 0) -> None:
        """Count a row that was read of the file `name`.

        Raises:
            InputError: it is one too many.
        """
        self._rows += 1
        self._characters += characters
        self.check(name, self._rows, self._characters)

    def check(self, name: str, rows: int = 0, characters: int = 0) -> None:
        """Refuse a file that says it has more than may be read.

        Raises:
            InputError: it has.
        """
        if self.most is not None and rows > self.most:
            raise InputError(
                f"{name}: has more than {self.most:,} rows; expected fewer, or a larger --max-rows"
                " in a command that has it"
            )
        if self.most_characters is not None and characters > self.most_characters:
            raise InputError(
                f"{name}: holds more than {self.most_characters:,} characters; expected fewer, or"
                f" a larger --max-rows: {_CHARACTERS_A_ROW:,} are allowed for each row"
            )


def refuse_repeated(columns: list[str], name: str) -> None:
    """Refuse a table with two columns of one name.

    Raises:
        InputError: it has.
    """
    if twice := find_repeated(columns):
        raise InputError(f"{name}: the column {clean_for_display(twice[0])!r} is there twice")


_NO_TEXT = {
    b"\x1f\x8b": "packed by gzip",
    b"PK\x03\x04": "packed by zip",
    b"\xff\xfe": "UTF-16",
    b"\xfe\xff": "UTF-16",
}
"""First bytes of files of other kinds."""

CAN_LOCK = sys.platform != "win32"
_DEEPEST = 100
"""Levels of JSON within JSON; deeper JSON cannot be written again."""


@contextlib.contextmanager
def os_errors(refused: str) -> Iterator[None]:
    """Turn a refusal of the system into an error of one line: `refused` (`FILE: cannot write`), and
    the reason.

    Raises:
        InputError: the system refused an operation.
    """
    try:
        yield
    except OSError as error:
        raise InputError(f"{refused}: {error.strerror or error}") from error


def read_bytes(path: Path, shown: str | None = None) -> bytes:
    """Read a file.

    Args:
        path: the file.
        shown: its name in errors; its path by default.

    Raises:
        InputError: it cannot be read.
    """
    try:
        return path.read_bytes()
    except IsADirectoryError as error:
        raise InputError(f"{shown or path}: is a folder; expected a file") from error
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        raise InputError(
            f"{shown or path}: cannot read: {getattr(error, 'strerror', None) or error}"
        ) from error


def as_text(raw: bytes, location: str) -> str:
    """Return bytes as the UTF-8 that they have to be, byte order marks taken off.

    Raises:
        InputError: they are not UTF-8; the text names the line.
    """
    for start, is_of in _NO_TEXT.items():
        if raw.startswith(start):
            raise InputError(f"{location}: is {is_of}; expected UTF-8")
    try:
        return raw.decode().lstrip("\ufeff")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise InputError(
            f"{location}:{line}: not UTF-8 (byte 0x{raw[error.start]:02x}); save the file as UTF-8"
        ) from error


def inside(folder: Path, name: str) -> Path:
    """Return the path of a file or folder within a folder that others may have made.

    Args:
        folder: the user named it; it may be a link itself.
        name: relative to it; others may have chosen it.

    Raises:
        InputError: the name leads out of the folder, or a link, a pipe or a device is in its way.
    """
    path, parts = folder, Path(name).parts
    if not parts or Path(name).is_absolute() or ".." in parts or unprintable(name):
        raise InputError(f"{folder}: names {one_line(name)!r}; expected the name of a file in it")
    for part in parts:
        path /= part
        with os_errors(f"{path}: cannot read"), contextlib.suppress(FileNotFoundError):
            if stat.S_IFMT(path.lstat().st_mode) not in (stat.S_IFREG, stat.S_IFDIR):
                raise InputError(f"{path}: is a link or a device; expected a file or a folder")
    return path


def relative_path_from(folder: Path, path: Path) -> str:
    """Return a path as it is from a folder; whole if they are on two drives."""
    try:
        return Path(os.path.relpath(path.absolute(), folder.absolute())).as_posix()
    except ValueError:
        return path.absolute().as_posix()


def read_text(path: Path, shown: str | None = None) -> str:
    """Read a text file in UTF-8.

    Raises:
        InputError: see `read_bytes` and `as_text`.
    """
    return as_text(read_bytes(path, shown), shown or str(path))


def read_shipped(name: str) -> str:
    """Return the text of a file that this package ships, by its path within the package."""
    return resources.files("opensafeintent").joinpath(name).read_text("utf-8")


def read_json(path: Path, kind: type[T], what: str, *, schema: int | None = None) -> T:
    """Read a JSON file.

    Args:
        path: the file.
        kind: the type of its content.
        what: the type's name in errors: `a price list (…)`.
        schema: the number under `schema` in files of this program.

    Raises:
        InputError: it cannot be read, or holds something else, or is of another schema.
    """
    return parse_json(read_bytes(path), kind, str(path), what, schema=schema)


def parse_json(
    raw: bytes, kind: type[T], location: str, what: str, *, schema: int | None = None
) -> T:
    """Read JSON; see `read_json`.

    Raises:
        InputError: it is something else than `kind`, or of another schema, or has a key twice; the
            text names the location.
    """
    text = as_text(raw, location)
    try:
        value: Any = msgspec.json.decode(text, type=Any if schema is not None else kind)
        any_json(text)  # of a key that is there twice, the decoder takes the last value
        if schema is None:
            return value  # type: ignore[no-any-return]
        if isinstance(value, dict) and value.get("schema", schema) != schema:
            raise InputError(f"{location}: schema {value['schema']}; this program reads {schema}")
        return msgspec.convert(value, kind)
    except (ValueError, OverflowError, RecursionError) as error:
        raise _unreadable_value(location, what, error) from error


def parse_toml(
    text: str, kind: type[T], location: str, what: str, known: Mapping[str, Any] = {}
) -> T:
    """Read TOML as `kind`.

    Args:
        text: the TOML.
        kind: the type of its content.
        location: where it is from, for errors.
        what: the type's name in errors.
        known: further fields of the record, which the text must not have.

    Raises:
        InputError: it is something else; the text names the location.
    """
    try:
        given = tomllib.loads(text)
        if clash := sorted(given.keys() & known.keys()):
            raise ValueError(f"Object contains unknown field `{clash[0]}`")
        return msgspec.convert(given | {**known}, kind)
    except (ValueError, OverflowError, RecursionError) as error:
        raise _unreadable_value(location, what, error) from error


@cache
def _decoder(*, of_frames: bool) -> json.JSONDecoder:
    return json.JSONDecoder(
        parse_constant=lambda name: None if of_frames and name == "NaN" else _refuse_constant(name),
        parse_float=(lambda text: whole_if_it_is(_parse_finite(text)))
        if of_frames
        else _parse_finite,
        parse_int=_parse_64_bits,
        object_pairs_hook=_refuse_repeated_keys,
    )


def any_json(text: str, *, of_frames: bool = False) -> Any:
    """Read JSON as Python objects, strictly: no key twice in one object, no NaN, no number out of
    range, no endless nesting.

    Args:
        text: the JSON.
        of_frames: whether a data frame may have written it: NaN is then null, and a whole number
            may have a decimal.

    Raises:
        ValueError: it is not JSON; the text says why.
    """
    try:
        value = _decoder(of_frames=of_frames).decode(text)
        if text.count("{") + text.count("[") >= _DEEPEST:  # with fewer it cannot be
            check_depth(value)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    return value


def _unreadable_value(location: str, what: str, error: Exception) -> InputError:
    complaint = (
        "nested too deeply"
        if isinstance(error, RecursionError)
        # without Python's advice on how to lift its limit on digits
        else str(error).partition("; use sys.set_int_max_str_digits")[0]
    )
    return InputError(f"{location}: not {what}: {one_line(complaint)}")


def check_depth(value: Any) -> None:
    """See that decoded JSON is not nested too deeply for what follows.

    Raises:
        RecursionError: it is.
    """
    level: list[Any] = [value]
    for _ in range(_DEEPEST):
        level = [
            inner
            for item in level
            if isinstance(item, dict | list)
            for inner in (item.values() if isinstance(item, dict) else item)
        ]
        if not level:
            return
    raise RecursionError


def _refuse_repeated_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    if len(record) < len(pairs):
        twice = find_repeated(key for key, _ in pairs)
        raise ValueError(f"the key {clean_for_display(twice[0])!r} appears twice in one object")
    return record


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def whole_if_it_is(number: float) -> float | int:
    """Return a number as a whole one if it is one: data frames write 3 as 3.0 if a cell of its
    column is empty.
    """
    return int(number) if number.is_integer() and abs(number) < _MOST_EXACT else number


_MOST_EXACT = 2**53


def _parse_finite(text: str) -> float:
    if not isfinite(number := float(text)):
        raise ValueError(f"the number {clean_for_display(text)} is out of range")
    return number


@lru_cache(maxsize=1024)
def _parse_64_bits(text: str) -> int:
    if len(text) > 20 or not -(2**63) <= (number := int(text)) < 2**64:
        raise ValueError(f"the number {clean_for_display(text)} is out of range")
    return number


def make_private_folder(path: Path) -> None:
    """Create a folder that only its user can enter (0700); an existing one keeps its mode."""
    with os_errors(f"{path}: cannot create the folder"):
        if path.exists() and not path.is_dir():
            raise InputError(f"{path}: is a file; expected a folder")
        path.mkdir(parents=True, exist_ok=True, mode=0o700)


CACHE = "OPENSAFEINTENT_CACHE"
"""The variable with the folder that is kept for later runs."""


def find_cache() -> Path:
    """Return the folder that files are kept in: `OPENSAFEINTENT_CACHE`, or one in the user's own
    cache.
    """
    if named := os.environ.get(CACHE, "").strip():
        return Path(named)
    try:
        users = os.environ.get("XDG_CACHE_HOME", "").strip() or Path.home() / ".cache"
    except RuntimeError as error:
        # neither HOME nor an entry among the system's users
        raise InputError(f"{CACHE}: is not set; without a home folder, expected one") from error
    return Path(users, "opensafeintent")


@contextlib.contextmanager
def write_beside(path: Path, *, private: bool = False) -> Iterator[IO[bytes]]:
    """Open a file that replaces the one at `path` when it is complete; the old one stays until
    then.

    Args:
        path: the file's final path.
        private: only its user can read it (0600), and it replaces a link; otherwise it replaces the
            file that a link leads to, and keeps the mode of an existing file. A new one has the
            mode of new files.

    Raises:
        InputError: it cannot be written.
    """
    with os_errors(f"{path}: cannot write"):
        target = path if private else Path(os.path.realpath(path))
        if target.exists() and not target.is_file():  # a device would be replaced by a file
            raise InputError(f"{path}: is not a file; expected one, or a new name")
        beside, handle = _open_beside(target, 0o600 if private else 0o666)
        with contextlib.ExitStack() as until_moved:
            if CAN_LOCK:
                until_moved.callback(os.close, os.dup(handle))  # keeps the lock
            try:
                with os.fdopen(handle, "wb") as file:
                    yield file
                if not private and target.exists():
                    beside.chmod(stat.S_IMODE(target.stat().st_mode))
                beside.replace(target)
            except BaseException:  # an interruption as well: nothing half-written stays
                beside.unlink(missing_ok=True)
                raise


def _open_beside(target: Path, mode: int) -> tuple[Path, int]:
    """Create a file beside another, and remove those that killed processes left: a locked one has a
    writer.
    """
    start = f".{target.name[:40]}."
    if CAN_LOCK:
        _remove_left(target.parent, re.compile(rf"{re.escape(start)}[0-9a-f]{{12}}"))
    while True:
        beside = target.with_name(start + secrets.token_hex(6))
        handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        if not CAN_LOCK or _is_ours(handle, beside):
            return beside, handle
        os.close(handle)


def _remove_left(folder: Path, names: re.Pattern[str]) -> None:
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        leftovers = [entry for entry in entries if names.fullmatch(entry.name) and entry.is_file()]
        for path in map(Path, leftovers):
            with contextlib.suppress(OSError, InputError), path.open("r+b") as file:
                if take_lock(file, path):
                    path.unlink()


def take_lock(file: IO[Any] | int, path: Path) -> bool:
    """Lock an open file until it is closed; return whether that could be done.

    Raises:
        InputError: files cannot be locked there; the text names `path`.
    """
    import fcntl

    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):  # EAGAIN or EACCES: taken
        return False
    except OSError as error:
        raise InputError(
            f"{path}: cannot be locked: {error.strerror or error}; choose one on another disk"
        ) from error
    return True


def _is_ours(handle: int, path: Path) -> bool:
    """Lock a new file; return whether no other process has taken it for one that was left."""
    try:
        return take_lock(handle, path) and os.fstat(handle).st_nlink > 0
    except InputError:  # a disk without locks: nothing is removed there
        return True


def write_private(path: Path, content: bytes | str) -> None:
    """Write a file that only its user can read (0600), whole or not at all.

    Raises:
        InputError: it cannot be written.
    """
    with write_beside(path, private=True) as file:
        file.write(content.encode() if isinstance(content, str) else content)


def near(path: Path) -> Path:
    """Return a path as seen from the current folder, if it lies in there."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
