"""One process at a time in a folder or a file."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

from opensafeintent.errors import InputError
from opensafeintent.files import CAN_LOCK, inside, os_errors, take_lock
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
