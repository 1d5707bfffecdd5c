"""Files: read strictly or refused in one line; private to their user, and written whole or not at
all. Canonical JSON, which keys are made of.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import secrets
import shutil
import socket
import stat
import sys
import time
import tomllib
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from math import isfinite
from pathlib import Path
from typing import IO, Any, NoReturn, TypeVar

import msgspec

from opensafeintent.errors import InputError
from opensafeintent.hostile import one_line, unprintable

_encoder = msgspec.json.Encoder(order="sorted")


def canonical_json(value: Any) -> bytes:
    """Return `value` as JSON in one and only one form: keys sorted, no white space, UTF-8."""
    return _encoder.encode(value)


def sha256_hex(value: bytes | str) -> str:
    """Return the SHA-256 of bytes, or of a text in UTF-8, as 64 hexadecimal digits."""
    return hashlib.sha256(value.encode() if isinstance(value, str) else value).hexdigest()


# Files
# ------------------------------------------------------------------------------

T = TypeVar("T")
MOST_ROWS = 250_000
"""Prompt-sets, responses or seeds that are read unless more are allowed."""
_NO_TEXT = {
    b"\x1f\x8b": "packed by gzip",
    b"PK\x03\x04": "packed by zip",
    b"\xff\xfe": "UTF-16",
    b"\xfe\xff": "UTF-16",
}
"""First bytes of files of other kinds."""
_CAN_LOCK = sys.platform != "win32"
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


# Reading: everything that Python, TOML's and JSON's readers raise becomes an InputError here, and
# nowhere else


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


def read_text(path: Path, shown: str | None = None) -> str:
    """Read a text file in UTF-8.

    Raises:
        InputError: see `read_bytes` and `as_text`.
    """
    return as_text(read_bytes(path, shown), shown or str(path))


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
        raise _other(location, what, error) from error


def parse_toml(text: str, kind: type[T], location: str, what: str) -> T:
    """Read TOML as `kind`; `what` is its name in errors.

    Raises:
        InputError: it is something else; the text names the location.
    """
    try:
        return msgspec.convert(tomllib.loads(text), kind)
    except (ValueError, OverflowError, RecursionError) as error:
        raise _other(location, what, error) from error


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
        value = json.loads(
            text,
            parse_constant=_no_number if of_frames else _no_constant,
            parse_float=_whole_if_it_is if of_frames else _finite,
            parse_int=_within_64_bits,
            object_pairs_hook=_each_key_once,
        )
        _check_depth(value)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    return value


def _other(location: str, what: str, error: Exception) -> InputError:
    complaint = (
        "nested too deeply"
        if isinstance(error, RecursionError)
        # without Python's advice on how to lift its limit on digits
        else str(error).partition("; use sys.set_int_max_str_digits")[0]
    )
    return InputError(f"{location}: not {what}: {one_line(complaint, 400)}")


def _check_depth(value: Any) -> None:
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


def _each_key_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    if len(record) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the key {one_line(twice, 60)!r} appears twice in one object")
    return record


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _no_number(name: str) -> None:
    if name != "NaN":
        _no_constant(name)


def _whole_if_it_is(text: str) -> float | int:
    return whole_if_it_is(_finite(text))


def whole_if_it_is(number: float) -> float | int:
    """Return a number as a whole one if it is one: data frames write 3 as 3.0 if a cell of its
    column is empty.
    """
    return int(number) if number.is_integer() and abs(number) < _MOST_EXACT else number


_MOST_EXACT = 2**53


def _finite(text: str) -> float:
    if not isfinite(number := float(text)):
        raise ValueError(f"the number {one_line(text, 30)} is out of range")
    return number


def _within_64_bits(text: str) -> int:
    if len(text) > 20 or not -(2**63) <= (number := int(text)) < 2**64:
        raise ValueError(f"the number {one_line(text, 30)} is out of range")
    return number


# Writing


def make_private_folder(path: Path) -> None:
    """Create a folder that only its user can enter (0700); an existing one keeps its mode."""
    with os_errors(f"{path}: cannot create the folder"):
        if path.exists() and not path.is_dir():
            raise InputError(f"{path}: is a file; expected a folder")
        path.mkdir(parents=True, exist_ok=True, mode=0o700)


@contextlib.contextmanager
def written_beside(path: Path, *, private: bool = False) -> Iterator[IO[bytes]]:
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
            if _CAN_LOCK:
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
    if _CAN_LOCK:
        _remove_left(target.parent, re.compile(rf"{re.escape(start)}[0-9a-f]{{12}}"))
    while True:
        beside = target.with_name(start + secrets.token_hex(6))
        handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        if not _CAN_LOCK or _is_ours(handle, beside):
            return beside, handle
        os.close(handle)


def _remove_left(folder: Path, names: re.Pattern[str]) -> None:
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        left = [one for one in entries if names.fullmatch(one.name) and one.is_file()]
        for path in map(Path, left):
            with contextlib.suppress(OSError, InputError), path.open("r+b") as file:
                if take_lock(file, path):
                    path.unlink()


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
    with written_beside(path, private=True) as file:
        file.write(content.encode() if isinstance(content, str) else content)


# One process at a time
# ------------------------------------------------------------------------------

_LOOK_SECONDS = 0.5
"""Between two looks whether something is free."""


class Taken(InputError):
    """Another process holds a folder or a ledger."""


def refuse(line: str) -> None:
    """Refuse to wait."""
    raise Taken(f"{line}; wait for it")


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


@contextlib.contextmanager
def held(
    path: Path, lock: Path, doing: str, waiting: Callable[[str], object] = refuse
) -> Iterator[None]:
    """Hold a folder or a ledger for this process. The system releases it when the process ends,
    however it ends.

    Args:
        path: the folder or the ledger, for errors.
        lock: the file that is locked; it names the holder.
        doing: the activity of this process, for another's error: `writing this ledger`.
        waiting: called twice a second with a line that names the holder, while another process
            holds it. It may raise.

    Raises:
        Taken: another process holds it, and `waiting` is the default.
        InputError: it cannot be written or locked, or its name is also that of another file.
    """
    if not _CAN_LOCK:  # SQLite alone guards the ledger there
        yield
        return
    inside(lock.parent, lock.name)
    with os_errors(f"{path}: cannot write here"):
        handle = os.open(lock, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW, 0o600)
        file = os.fdopen(handle, "r+", errors="replace")
    with file:
        while not take_lock(file, path):
            file.seek(0)
            waiting(f"{path}: {one_line(file.read(400)) or f'another process is {doing}'}")
            time.sleep(_LOOK_SECONDS)
        if (names := os.fstat(file.fileno()).st_nlink) > 1:
            raise InputError(f"{lock}: has several names (hard links); expected one")
        if not names:
            raise InputError(f"{lock}: was removed meanwhile; type the command again")
        holder = (
            f"process {os.getpid()} on {socket.gethostname()} has been {doing} since"
            f" {datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
        )
        with contextlib.suppress(OSError):  # a full disk: the lock holds all the same
            os.ftruncate(file.fileno(), 0)
            os.pwrite(file.fileno(), holder.encode(), 0)
        yield


@contextlib.contextmanager
def locked_folder(
    path: Path,
    doing: str,
    waiting: Callable[[str], object] = refuse,
    *,
    lock_stays: bool = True,
) -> Iterator[None]:
    """Make a private folder and hold it for this process; results that were moved only in part are
    moved in full. If this made the folder and nothing was written, it is removed again.

    Args:
        path: the folder.
        doing: the activity of this process, for another's error: `evaluating into`.
        waiting: see `held`.
        lock_stays: whether the file of the lock stays in the folder, for those who wait for it.

    Raises:
        Taken, InputError: see `held`.
    """
    lock, new = path / ".lock", not path.exists()
    make_private_folder(path)
    with held(path, lock, f"{doing} this folder", waiting):
        finish_replacing(path)
        try:
            yield
        finally:
            with contextlib.suppress(OSError):  # another process wrote there since, or removed it
                unwritten = new and list(path.iterdir()) == [lock]  # an error came first
                if unwritten or not lock_stays:
                    lock.unlink()
                if unwritten:
                    path.rmdir()


# Several files at once
# ------------------------------------------------------------------------------

_STAGED = ".results-new"
_READY = ".ready"
_NOTE = "RESULTS-INCOMPLETE.txt"
_NOTE_TEXT = """\
The program was ended while it replaced the results in this folder. Some of these files may be of
the earlier state and some of the new one. Nothing is lost: the next command that writes results
into this folder, such as the same one again, finishes it and deletes this note.
"""


@contextlib.contextmanager
def replaced_together(
    folder: Path, obsolete: Callable[[], Iterable[Path]] = tuple
) -> Iterator[Path]:
    """Give a folder to write files into, which replace those of the same names in `folder` all
    together, or not at all.

    A set of files cannot be renamed in one step. The body writes them beside the folder; a failure
    there leaves no trace. Then a mark records that they are complete, and they are moved; the
    folder contains a note meanwhile. If the process dies during the move, mark and note remain, and
    the next process that holds the folder (`locked_folder`) moves the rest. Other files stay.

    Args:
        folder: an existing folder that this process holds.
        obsolete: called after the body has written: the files in `folder` to remove with the
            change; replaced files may be among them.

    Raises:
        InputError: the files cannot be written or moved.
    """
    staged = folder / _STAGED
    finish_replacing(folder)
    make_private_folder(staged)
    try:
        yield staged
        new = {str(path.relative_to(staged)) for path in _files_of(staged)}
        gone = sorted({str(path.relative_to(folder)) for path in obsolete()} - new)
        for name in (*new, *gone):
            _check_place(folder, name)
        write_private(staged / _NOTE, _NOTE_TEXT)
        write_private(staged / _READY, "\n".join(gone))
    except BaseException:  # an interruption too: the old files stay
        shutil.rmtree(staged, ignore_errors=True)
        raise
    finish_replacing(folder)


_LOOKS = 20
"""How often a command with results to write looks whether their folder is free."""


@contextlib.contextmanager
def written_together(
    folder: Path, obsolete: Callable[[], Iterable[Path]] = tuple
) -> Iterator[Path]:
    """Do the same with a folder that is made if it is missing, and held meanwhile. Nothing but the
    results stays in it.

    Raises:
        Taken: another process has held the folder for ten seconds.
        InputError: see `replaced_together`.
    """
    looks = iter(range(_LOOKS))

    def wait(line: str) -> None:
        if next(looks, None) is None:
            refuse(line)

    with (
        locked_folder(folder, "writing results into", wait, lock_stays=False),
        replaced_together(folder, obsolete) as new,
    ):
        yield new


def finish_replacing(folder: Path) -> None:
    """Move the complete files of an interrupted `replaced_together`, and remove the incomplete
    ones.

    Raises:
        InputError: a file cannot be moved.
    """
    staged = inside(folder, _STAGED)
    if not staged.is_dir() and not (folder / _NOTE).exists():
        return
    with os_errors(
        f"{folder}: cannot put the results in place (the same command goes on from there)"
    ):
        if (staged / _READY).exists():
            # every place is looked at before one is touched: the folder may come from elsewhere
            names = read_text(inside(staged, _READY)).split("\n")
            gone = [inside(folder, name) for name in names if name]
            kept = (str(path.relative_to(staged)) for path in _files_of(staged))
            moved = [
                (inside(staged, name), inside(folder, name))
                for name in kept
                if name not in (_READY, _NOTE)
            ]
            if (staged / _NOTE).exists():
                (staged / _NOTE).replace(folder / _NOTE)
            for path in gone:
                path.unlink(missing_ok=True)
            for path, target in moved:
                make_private_folder(target.parent)
                path.replace(target)
        shutil.rmtree(staged, ignore_errors=True)
        (folder / _NOTE).unlink(missing_ok=True)


def _files_of(folder: Path) -> list[Path]:
    """Return the files in a folder and below it, in the order of their names."""
    return sorted(path for path in folder.rglob("*") if not path.is_dir())


def _check_place(folder: Path, name: str) -> None:
    """Refuse to begin a change that would stop half-way."""
    path = inside(folder, name)
    if path.is_dir():
        raise InputError(f"{path}: is a folder; expected a file, or nothing")
    for parent in list(path.parents)[: len(Path(name).parts) - 1]:
        if parent.exists() and not parent.is_dir():
            raise InputError(f"{parent}: is a file; expected a folder")


def near(path: Path) -> Path:
    """Return a path as seen from the current folder, if it lies in there."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
