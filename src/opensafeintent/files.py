"""Files that are private to their user, and written whole or not at all."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from opensafeintent.errors import InputError

__all__ = ["locked_folder", "make_private_folder", "write_private"]


def make_private_folder(path: Path) -> None:
    """Create a folder that only its user can enter (0700); one that is there already keeps its mode.

    Raises:
        InputError: it cannot be created, or something else has its name.
    """
    try:
        if path.exists() and not path.is_dir():
            raise InputError(f"{path}: is a file; expected a folder")
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise InputError(f"{path}: cannot create the folder: {error.strerror or error}") from error


def write_private(path: Path, content: bytes | str) -> None:
    """Write a file that only its user can read (0600): first beside its place, then moved there.

    Raises:
        InputError: it cannot be written.
    """
    raw = content.encode() if isinstance(content, str) else content
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(raw)
            Path(temporary).replace(path)
        except BaseException:  # an interruption as well: nothing half-written stays
            Path(temporary).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise InputError(f"{path}: cannot write: {error.strerror or error}") from error


@contextlib.contextmanager
def locked_folder(path: Path, doing: str) -> Iterator[None]:
    """Make a private folder and keep it for this process.

    Args:
        path: the folder.
        doing: what another process would be doing, for the error: `evaluating into`.

    Raises:
        InputError: another process is at work in it, or it cannot be written.
    """
    make_private_folder(path)
    try:
        import fcntl
    except ImportError:  # not on Windows: SQLite alone guards the ledger there
        yield
        return
    try:
        file = os.fdopen(os.open(path / ".lock", os.O_CREAT | os.O_RDWR, 0o600), "w")
    except OSError as error:
        raise InputError(f"{path}: cannot write here: {error.strerror or error}") from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError) as error:  # EAGAIN or EACCES: taken
            raise InputError(f"{path}: another process is {doing} this folder; wait for it") from error
        except OSError as error:
            raise InputError(f"{path}: cannot be locked: {error.strerror or error}; choose one on another disk") from error
        yield
