"""The part of a ledger that one worker writes, and what tells which of its calls were lost with it.

A shard is worked on by one process at a time. Each attempt at it has a ledger of its own, so that no two machines ever write
one file, and finds what was recorded before: what the run knew as it began, and what earlier attempts wrote.
"""

from __future__ import annotations

import os
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack, closing
from itertools import count, takewhile
from pathlib import Path
from typing import Self

import msgspec

from opensafeintent.calls.attempts import Attempt
from opensafeintent.calls.client import Model
from opensafeintent.calls.ledger import Ledger
from opensafeintent.calls.ledger_file import reading, typed
from opensafeintent.calls.merging import settled
from opensafeintent.calls.records import Answered, Call, Refused, call_key
from opensafeintent.errors import InputError

__all__ = ["AttemptFiles", "ShardLedger", "Spent", "lost_calls", "spent_in"]

_KEY_BYTES = 32


class AttemptFiles(msgspec.Struct, frozen=True):
    """The files of one attempt at a shard."""

    folder: Path
    shard: str
    number: int
    """From 1."""

    def _path(self, ending: str) -> Path:
        return self.folder / f"{self.shard}.{self.number}.{ending}"

    @property
    def ledger(self) -> Path:
        """Its ledger."""
        return self._path("sqlite")

    @property
    def begun(self) -> Path:
        """The keys of all attempts at calls that it began, 32 bytes each."""
        return self._path("begun")

    @property
    def progress(self) -> Path:
        """How far it says that it is."""
        return self._path("json")

    @classmethod
    def of(cls, folder: Path, shard: str) -> list[Self]:
        """Return every attempt at a shard so far, in order."""
        # by their names: on a network file system a list may lack what another machine has just made
        every = (cls(folder, shard, number) for number in count(1))
        return list(takewhile(lambda files: files.begun.exists(), every))

    @classmethod
    def begin(cls, folder: Path, shard: str) -> Self:
        """Return the files of a new attempt, which nobody else has."""
        for number in count(1):
            files = cls(folder, shard, number)
            try:
                os.close(os.open(files.begun, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
            except FileExistsError:
                continue
            except OSError as error:
                raise InputError(f"{folder}: cannot write here: {error.strerror or error}") from error
            return files
        raise AssertionError("counting does not end")


class ShardLedger(Ledger):
    """The ledger of one attempt, which also finds what is known from before.

    Args:
        files: of this attempt.
        known: ledgers that nobody writes any more.
    """

    def __init__(self, files: AttemptFiles, known: Sequence[Path] = ()) -> None:
        self.files = files
        self.found_earlier = 0
        """Outcomes that an earlier attempt at this shard had recorded."""
        earlier = [AttemptFiles(files.folder, files.shard, number).ledger for number in range(1, files.number)]
        with ExitStack() as stack:
            beside = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="opensafeintent-")))
            open_for_reading = [
                stack.enter_context(Ledger(settled(path, beside), readonly=True, missing_ok=True))
                for path in (*earlier, *known)
            ]
            self._earlier, self._known = open_for_reading[: len(earlier)], open_for_reading[len(earlier) :]
            self._begun = os.open(files.begun, os.O_WRONLY | os.O_APPEND)
            stack.callback(os.close, self._begun)
            super().__init__(files.ledger)
            self._stack = stack.pop_all()

    def find(self, key: bytes) -> Answered | Refused | None:
        """Return the outcome that satisfies a key, from here or from before."""
        if (outcome := super().find(key)) is not None:
            return outcome
        for ledger in self._earlier:
            if (outcome := ledger.find(key)) is not None:
                self.found_earlier += 1
                return outcome
        return next((found for ledger in self._known if (found := ledger.find(key)) is not None), None)

    def noted(self, model: Model) -> Model:
        """Return a model whose attempts are noted as they begin: what is begun and not recorded was lost."""
        return _Noted(model, self._begun)

    def close(self) -> None:
        """Write what is waiting, and close all files."""
        try:
            super().close()
        finally:
            self._stack.close()


class _Noted:
    """A model that leaves a note before each attempt."""

    def __init__(self, model: Model, notes: int) -> None:
        self.identity = model.identity
        self.limiter = model.limiter
        self._model = model
        self._notes = notes

    @property
    def notices(self) -> Sequence[str]:
        """What a reader of the results should know of how the model was asked."""
        return self._model.notices

    async def attempt(self, call: Call) -> Attempt:
        """Try once."""
        os.write(self._notes, call_key(call, self.identity))
        return await self._model.attempt(call)


class Spent(msgspec.Struct, frozen=True):
    """What a shard has taken so far, every attempt at it together."""

    calls: int = 0
    """Requests, retries included."""
    tokens: int = 0
    recorded: int = 0
    """Of the requests, those that are on record."""


def spent_in(folder: Path, shard: str) -> Spent:
    """Add up what the attempts at a shard have recorded, and the requests that were lost.

    Raises:
        InputError: a ledger among them is damaged.
    """
    calls = tokens = recorded = 0
    for files in AttemptFiles.of(folder, shard):
        begun, rows, spent = _counts(files)
        calls += max(begun.total(), rows.total())
        tokens += spent
        recorded += rows.total()
    return Spent(calls, tokens, recorded)


def lost_calls(folder: Path, shard: str) -> tuple[int, int]:
    """Return how many requests were begun and never recorded, and how many of them were made again by a later attempt.

    They were in flight when their process was lost, or answered in the twentieth of a second before.

    Raises:
        InputError: a ledger among them is damaged.
    """
    lost: Counter[bytes] = Counter()
    again = 0
    for files in AttemptFiles.of(folder, shard):
        begun, rows, _ = _counts(files)
        again += sum(min(number, lost[key]) for key, number in begun.items())
        lost -= begun
        lost += begun - rows
    return lost.total() + again, again


def _counts(files: AttemptFiles) -> tuple[Counter[bytes], Counter[bytes], int]:
    """Return the attempts that were begun and those that were recorded, by key, and the tokens of the latter."""
    notes = files.begun.read_bytes()
    begun = Counter(notes[at : at + _KEY_BYTES] for at in range(0, len(notes) - _KEY_BYTES + 1, _KEY_BYTES))
    if not files.ledger.exists() or files.ledger.stat().st_size == 0:
        return begun, Counter(), 0
    with tempfile.TemporaryDirectory(prefix="opensafeintent-") as beside:
        path = settled(files.ledger, Path(beside))
        with (
            reading(files.ledger),
            closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True)) as connection,
        ):
            found = connection.execute("SELECT key, input_tokens + output_tokens FROM calls").fetchall()
            rows = typed(found, list[tuple[bytes, int]])
    return begun, Counter(key for key, _ in rows), sum(tokens for _, tokens in rows)
