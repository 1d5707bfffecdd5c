"""Locks on files and folders, and replacing several files together."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path

from opensafeintent.errors import InputError
from opensafeintent.files import (
    CAN_LOCK,
    inside,
    make_private_folder,
    os_errors,
    read_text,
    take_lock,
    write_private,
)
from opensafeintent.hostile import one_line

_LOOK_SECONDS = 0.5
"""Between two looks whether something is free."""


class Taken(InputError):
    """Another process holds a folder or a ledger."""


def refuse(line: str) -> None:
    """Refuse to wait."""
    raise Taken(f"{line}; wait for it")


@contextlib.contextmanager
def lock_held(
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
    if not CAN_LOCK:  # SQLite alone guards the ledger there
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


_LOCK = ".lock"

_STAGED = ".results-new"

_READY = ".ready"

_NOTE = "RESULTS-INCOMPLETE.txt"

_NOTE_TEXT = """\
The program was ended while it replaced the results in this folder. Some of these files may be of
the earlier state and some of the new one. Nothing is lost: the next command that writes results
into this folder, such as the same one again, finishes it and deletes this note.
"""


@contextlib.contextmanager
def lock_folder(
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
        waiting: see `lock_held`.
        lock_stays: whether the file of the lock stays in the folder, for those who wait for it.

    Raises:
        Taken, InputError: see `lock_held`.
    """
    lock, new = path / _LOCK, not path.exists()
    make_private_folder(path)
    with lock_held(path, lock, f"{doing} this folder", waiting):
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


@contextlib.contextmanager
def replace_together(
    folder: Path, obsolete: Callable[[], Iterable[Path]] = tuple
) -> Iterator[Path]:
    """Give a folder to write files into, which replace those of the same names in `folder` all
    together, or not at all.

    A set of files cannot be renamed in one step. The body writes them beside the folder; a failure
    there leaves no trace. Then a mark records that they are complete, and they are moved; the
    folder contains a note meanwhile. If the process dies during the move, mark and note remain, and
    the next process that holds the folder (`lock_folder`) moves the rest. Other files stay.

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
        new = {str(path.relative_to(staged)) for path in _list_files(staged)}
        removed = sorted({str(path.relative_to(folder)) for path in obsolete()} - new)
        for name in (*new, *removed):
            _check_place(folder, name)
        write_private(staged / _NOTE, _NOTE_TEXT)
        write_private(staged / _READY, "\n".join(removed))
    except BaseException:  # an interruption too: the old files stay
        shutil.rmtree(staged, ignore_errors=True)
        raise
    finish_replacing(folder)


_LOOKS = 20
"""How often a command with results to write looks whether their folder is free."""


@contextlib.contextmanager
def write_together(folder: Path, *, empty: bool = False) -> Iterator[Path]:
    """Do the same with a folder that is made if it is missing, and held meanwhile. Nothing but the
    results stays in it.

    Args:
        folder: see above.
        empty: whether to refuse a folder that holds anything.

    Raises:
        Taken: another process has held the folder for ten seconds.
        InputError: the folder is not empty; or see `replace_together`.
    """
    looks = iter(range(_LOOKS))

    def wait(line: str) -> None:
        if next(looks, None) is None:
            refuse(line)

    with lock_folder(folder, "writing results into", wait, lock_stays=False):
        if empty and any(path.name != _LOCK for path in folder.iterdir()):
            raise InputError(f"{folder}: holds files; expected a new folder, or an empty one")
        with replace_together(folder) as new:
            yield new


def finish_replacing(folder: Path) -> None:
    """Move the complete files of an interrupted `replace_together`, and remove the incomplete
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
            removed = [inside(folder, name) for name in names if name]
            kept = (str(path.relative_to(staged)) for path in _list_files(staged))
            moved = [
                (inside(staged, name), inside(folder, name))
                for name in kept
                if name not in (_READY, _NOTE)
            ]
            if (staged / _NOTE).exists():
                (staged / _NOTE).replace(folder / _NOTE)
            for path in removed:
                path.unlink(missing_ok=True)
            for parent in {path.parent for path in removed}:
                with contextlib.suppress(OSError):  # it holds other files
                    parent.rmdir()
            for path, target in moved:
                make_private_folder(target.parent)
                path.replace(target)
        shutil.rmtree(staged, ignore_errors=True)
        (folder / _NOTE).unlink(missing_ok=True)


def _list_files(folder: Path) -> list[Path]:
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
