"""Claims on the calls of a ledger that several runs write: a call that one of them is making, no other makes as well."""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import sqlite3
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum
from pathlib import Path
from typing import Any

import msgspec

from opensafeintent.errors import InputError
from opensafeintent.files import CAN_LOCK, os_errors, take_lock

__all__ = ["Claimed", "Claims", "Sharing", "in_use"]

_AT_ONCE = 500
"""Keys of one query; SQLite takes 999 values in every build."""

_TABLE = """
CREATE TABLE IF NOT EXISTS claims (
  key BLOB PRIMARY KEY,
  owner TEXT NOT NULL,
  host TEXT NOT NULL,
  pid INTEGER NOT NULL,
  begun TEXT NOT NULL,
  heartbeat REAL NOT NULL,
  batch TEXT
) WITHOUT ROWID
"""
_COLUMNS = "owner, host, pid, begun, heartbeat, batch"


class Sharing(msgspec.Struct, frozen=True, kw_only=True):
    """How the processes that share a ledger keep out of one another's way; times are in seconds."""

    heartbeat: float = 30.0
    """How often a process says that it is still at work on what it claimed."""
    expiry: float = 90.0
    """So long after its last heartbeat a claim counts no more."""
    look: float = 0.1
    """How often those who wait for another's calls are looked after, all of them together."""
    clock: Callable[[], float] = time.time


class Claimed(Enum):
    """What became of a claim."""

    OURS = "ours"
    """The call is ours to make."""
    STORED = "stored"
    """The ledger holds its outcome."""
    WOKEN = "woken"
    """Neither, but the asking side has news to look at."""


class Claims:
    """The claims table of one ledger, as one opening of the ledger uses it.

    A claim is held from before the first attempt at a call until its outcome is on record, or until the last attempt has
    failed. Nobody who holds one waits for another's: so no two processes wait for each other.

    Args:
        connection: to the ledger; methods that write expect a transaction to be open.
        sharing: times and clock.
    """

    def __init__(self, connection: sqlite3.Connection, sharing: Sharing) -> None:
        self._connection = connection
        self._sharing = sharing
        self._owner = secrets.token_hex(8)
        self._host = _this_host()
        self._pid = os.getpid()
        self._begun = _begun(self._pid) or ""
        self._held: set[bytes] = set()
        self._processes: dict[tuple[int, str], tuple[bool, float]] = {}
        self._next_heartbeat = time.monotonic() + sharing.heartbeat
        connection.execute(_TABLE)
        self._sweep()

    @property
    def pause(self) -> float | None:
        """Seconds until the next heartbeat; None while there is nothing to renew."""
        return max(self._next_heartbeat - time.monotonic(), 0.0) if self._held else None

    def take(self, key: bytes) -> Claimed | None:
        """Claim a call that nobody else is making and that has no outcome; None while somebody else is making it."""
        mine = (key, self._owner, self._host, self._pid, self._begun, self._sharing.clock())
        taken = self._connection.execute(
            "INSERT OR IGNORE INTO claims SELECT ?, ?, ?, ?, ?, ?, NULL "
            "WHERE NOT EXISTS (SELECT 1 FROM calls WHERE key = ? AND status <> 'failed')",
            (*mine, key),
        )
        if not taken.rowcount:
            row = self._connection.execute(f"SELECT {_COLUMNS} FROM claims WHERE key = ?", (key,)).fetchone()
            if self._connection.execute("SELECT 1 FROM calls WHERE key = ? AND status <> 'failed'", (key,)).fetchone():
                return Claimed.STORED
            if row[0] != self._owner and self._is_live(row):
                return None
            self._connection.execute("REPLACE INTO claims VALUES (?, ?, ?, ?, ?, ?, NULL)", mine)
        self._held.add(key)
        return Claimed.OURS

    def free(self, keys: Iterable[bytes]) -> None:
        """Give claims up."""
        held = [(key, self._owner) for key in keys if key in self._held]
        self._connection.executemany("DELETE FROM claims WHERE key = ? AND owner = ?", held)
        self._held.difference_update(key for key, _ in held)

    def free_all(self) -> None:
        """Give every claim up."""
        if self._held:
            self._connection.execute("DELETE FROM claims WHERE owner = ?", (self._owner,))
            self._held.clear()

    def renew(self) -> None:
        """Give a sign of life, where it is time for one."""
        if self.pause == 0.0:
            now = self._sharing.clock()
            self._connection.execute("UPDATE claims SET heartbeat = ? WHERE owner = ?", (now, self._owner))
            self._next_heartbeat = time.monotonic() + self._sharing.heartbeat

    def changed(self, keys: Sequence[bytes]) -> list[bytes]:
        """Return those of some keys, all claimed by others before, that are worth another try; needs no transaction."""
        live: set[bytes] = set()
        for start in range(0, len(keys), _AT_ONCE):
            some = keys[start : start + _AT_ONCE]
            query = f"SELECT {_COLUMNS}, key FROM claims WHERE key IN ({', '.join('?' * len(some))})"
            live.update(key for *row, key in self._connection.execute(query, some) if self._is_live(row))
        return [key for key in keys if key not in live]

    def _sweep(self) -> None:
        """Take away what dead processes have left."""
        owners = self._connection.execute(f"SELECT DISTINCT {_COLUMNS} FROM claims").fetchall()
        dead = {(row[0],) for row in owners if not self._is_live(row)}
        self._connection.executemany("DELETE FROM claims WHERE owner = ? AND batch IS NULL", dead)

    def _is_live(self, row: Sequence[Any]) -> bool:
        _, host, pid, begun, heartbeat, batch = row
        if batch is not None:  # whoever sent the batch need not wait for it
            return True
        if abs(self._sharing.clock() - heartbeat) > self._sharing.expiry:
            return False
        return host != self._host or self._is_running(pid, begun)

    def _is_running(self, pid: int, begun: str) -> bool:
        """Tell whether a process of this host is there; many claims are of few, each of them looked for once a while."""
        running, until = self._processes.get((pid, begun), (False, 0.0))
        if until < time.monotonic():
            running = _begun(pid) == begun
            self._processes[pid, begun] = (running, time.monotonic() + self._sharing.look)
        return running


def _this_host() -> str:
    """Return what tells the processes of one running system apart from those of others, containers of one name included."""
    parts = [socket.gethostname()]
    with contextlib.suppress(OSError):
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text().strip())
    with contextlib.suppress(OSError):
        parts.append(str(Path("/proc/self/ns/pid").readlink()))
    return " ".join(parts)


def _begun(pid: int) -> str | None:
    """Return when a process began, in a form that tells it from later ones of the same number; None when it is gone."""
    if not Path("/proc/self/stat").exists():
        return _exists(pid)
    try:
        # the command's name, in brackets, may hold anything
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    except OSError:
        return ""
    state, begun = fields[0], fields[19]
    return None if state in (b"Z", b"X") else begun.decode()


def _exists(pid: int) -> str | None:
    """Where a process does not tell when it began: the empty text as long as there is one, and expiry does the rest."""
    if sys.platform != "win32":
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return None
        except OSError:
            pass
    return ""


@contextlib.contextmanager
def in_use(path: Path, *, alone: bool) -> Iterator[bool]:
    """Mark a ledger as in use, and say whether this process has it to itself.

    A run has the ledger of its own folder to itself, and makes no claims. Others that want to write it (`--ledger`) have to
    wait; where such others are at work already, the run shares the ledger with them.

    Args:
        path: the ledger.
        alone: whether to have it alone, if that can be.

    Raises:
        InputError: another process has it to itself.
    """
    if not CAN_LOCK:
        yield alone
        return
    with os_errors(f"{path}: cannot open the ledger"):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        file_path = path.resolve()  # under whatever name it was given
        file = os.fdopen(os.open(file_path.with_name(f".{file_path.name}.lock"), os.O_CREAT | os.O_RDWR, 0o600), "w")
    with file:
        for shared in (False, True) if alone else (True,):
            if take_lock(file, path, shared=shared):
                yield not shared
                return
        raise InputError(f"{path}: a run has this ledger to itself until it ends: wait for it, or begin it with --ledger too")
