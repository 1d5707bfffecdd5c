"""The folder of shards inside a run's folder: what tasks on several machines and the process that sent them share."""

from __future__ import annotations

import contextlib
import secrets
import shutil
import socket
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from opensafeintent.calls.shards import Added, AttemptFiles, Spent, lost_calls, merge_ledger, settled
from opensafeintent.construction.records import Stage
from opensafeintent.errors import InputError
from opensafeintent.files import make_private_folder, read_json, write_private

__all__ = ["Job", "Merged", "Progress", "Report", "ShardsFolder"]


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """One shard of the work. What it is about stands in the run's folder."""

    name: str
    """Of the shard; its files begin with it."""
    run: str
    """The run's or the build's folder, absolute."""
    working_folder: str
    """Where the command was given: file names within models' names are relative to it."""
    token: str
    """Of the folder of shards: tells it from a folder that merely has its name."""
    version: str
    """Of the program that sends it."""
    kind: Literal["evaluate", "build"]
    models: tuple[str, ...]
    """All that it may ask."""
    max_connections: int | None = None
    """Connections of an endpoint that this task may hold."""
    most_calls: int | None = None
    """Requests of this shard, those of earlier attempts included; None is no limit."""
    most_tokens: int | None = None
    gpus: float = 0.0
    model: str = ""
    """The target, where it is an evaluation."""
    sets: tuple[str, ...] = ()
    """Ids of the prompt-sets to put to it."""
    epochs: int = 1
    stage: Stage = "metadata"
    """The stage, where it is a build."""
    items: tuple[int, int] = (0, 0)
    """The first of the stage's items, and the first that is no longer of this shard."""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """How a shard ended."""

    ended: Literal["done", "budget", "halted", "stopped", "unusable"]
    """`budget`: its part is used up. `stopped`: a model stopped. `unusable`: the node is not as it should be."""
    line: str = ""
    stopped: dict[str, str] = {}
    """Models that do not answer any more, each with its line."""
    last_errors: dict[str, str] = {}
    notices: tuple[str, ...] = ()
    reused: int = 0
    """Calls that were on record before the work was spread."""
    missing: int = 0
    """Grades that could not be had."""
    spent: Spent = Spent()


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """How far an attempt at a shard is; written to its file about once a second."""

    node: str
    process: int
    made: dict[str, int] = {}
    """Calls by purpose."""
    retries: int = 0
    reused: int = 0
    in_flight: int = 0
    refusals: int = 0
    missing: int = 0
    tokens: dict[str, tuple[int, int]] = {}
    """Input and output tokens by model."""
    items: int = 0
    """Items of a stage that are done."""


_SCHEMA = 1
_APPEARS_SECONDS = 10.0
"""Until a node sees a folder that was just made: network file systems take their time."""
_GONE_SECONDS = 30.0
"""Without one look at the folder that succeeds, before it counts as gone."""


class _Marker(msgspec.Struct, frozen=True, kw_only=True):
    """What the shards belong to."""

    schema: int = _SCHEMA
    token: str
    of: dict[str, str]
    """What cannot differ within one run, by what it is called."""
    shards: tuple[Annotated[str, msgspec.Meta(pattern=r"^[\w-]{1,60}$")], ...]
    """What their files begin with."""


class Merged(msgspec.Struct, kw_only=True):
    """What shards came to when they were merged."""

    added: Added = msgspec.field(default_factory=Added)
    lost: int = 0
    """Requests that were in flight when their worker was lost."""
    again: int = 0
    """How many of them were made again by then."""


class ShardsFolder:
    """`shards/` of one run: there while work is spread, and after that only where it was interrupted.

    Holds `shards.json` (what the shards belong to), `control` (empty, or why tasks are to stop), `known.sqlite` (what the
    run's ledger had of the work before), and the files of every attempt at each shard (`calls.shards`).
    """

    def __init__(self, run: Path) -> None:
        self.path = run / "shards"
        self._seen = time.monotonic()

    @property
    def known(self) -> Path:
        """A ledger of what was known before."""
        return self.path / "known.sqlite"

    @property
    def items(self) -> Path:
        """The items of a stage that is spread."""
        return self.path / "items.msgpack"

    @property
    def _control(self) -> Path:
        return self.path / "control"

    def exists(self) -> bool:
        """Whether shards are there: an earlier run was interrupted."""
        return self.path.is_dir() and any(not path.name.startswith(".") for path in self.path.iterdir())

    def begin(self, of: Mapping[str, str], shards: tuple[str, ...]) -> str:
        """Make the folder; return the token that tells it from any other."""
        make_private_folder(self.path)
        token = secrets.token_hex(16)
        marker = _Marker(token=token, of=dict(of), shards=shards)
        self._write("shards.json", msgspec.json.format(msgspec.json.encode(marker, order="sorted"), indent=2) + b"\n")
        self._write("control", b"")
        return token

    def _write(self, name: str, content: bytes) -> None:
        write_private(self.path / name, content)

    def check(self, token: str) -> None:
        """See whether this is, on this machine too, the folder that shards are to be written to.

        Raises:
            InputError: it is not.
        """
        until = time.monotonic() + _APPEARS_SECONDS
        while self._token() != token:
            if time.monotonic() > until:
                raise InputError(f"{self.path}: is not to be seen; the folder of a run has to be one that all nodes share")
            time.sleep(0.5)

    def _token(self) -> str | None:
        with contextlib.suppress(InputError):
            return self._marker().token
        return None

    def halt(self, line: str) -> None:
        """Tell all tasks to begin no further call."""
        # written in place, and opened again for each look: so that a network file system shows it at once
        with contextlib.suppress(OSError):
            self._control.write_text(line, encoding="utf-8")

    def halted(self) -> str:
        """Return why tasks are to stop, or nothing. One look that fails is no reason: on a network a file may be away."""
        try:
            line = self._control.read_text("utf-8", errors="replace")
        except OSError as error:
            if time.monotonic() - self._seen < _GONE_SECONDS:
                return ""
            return f"{socket.gethostname()}: {self.path} cannot be seen any more: {error.strerror or error}"
        self._seen = time.monotonic()
        return line

    def progress(self) -> list[list[Progress]]:
        """Return, of each shard, how far every attempt at it is or was, in order, as far as it has said."""
        found: dict[str, list[Progress]] = {}
        names = (path.name.split(".") for path in self.path.glob("*.*.json"))
        for shard, number in sorted((shard, int(number)) for shard, number, _ in names if number.isdecimal()):
            # a file that is just being written reads as a broken one; the next look finds it whole
            with contextlib.suppress(InputError):
                path = AttemptFiles(self.path, shard, number).progress
                found.setdefault(shard, []).append(read_json(path, Progress, "progress"))
        return list(found.values())

    def take_up(self, of: Mapping[str, str], ledger: Path) -> Merged | None:
        """Merge what an interrupted run has left, if it has, and remove it.

        Raises:
            InputError: the shards are of another run, or cannot be read.
        """
        if not self.exists():
            return None
        marker = self._marker()
        differing = [name for name in {**marker.of, **of} if marker.of.get(name) != of.get(name)]
        if differing:
            there, here = ("; ".join(f"{name} {which.get(name)}" for name in differing) for which in (marker.of, of))
            raise InputError(
                f"{self.path}: holds shards of another run ({there}; this one has {here}); move the folder back to its run, "
                "or delete it"
            )
        return self.merge(ledger)

    def _marker(self) -> _Marker:
        path = self.path / "shards.json"
        if not path.exists():
            raise InputError(f"{self.path}: is no folder of shards (no shards.json); move it away")
        try:
            return read_json(path, _Marker, "what tells whose shards these are", schema=_SCHEMA)
        except InputError as error:
            raise InputError(f"{error}; restore it, or move {self.path} away") from error

    def merge(self, ledger: Path) -> Merged:
        """Put every shard into the run's ledger, then remove the folder. Merging twice adds nothing.

        Raises:
            InputError: a shard is damaged, and adds nothing, or the ledger cannot be written; the folder stays.
        """
        merged = Merged()
        for shard in self._marker().shards:
            with tempfile.TemporaryDirectory(prefix="opensafeintent-") as beside:
                for files in AttemptFiles.of(self.path, shard):
                    if files.ledger.exists():
                        merged.added.add(_merge(ledger, files.ledger, Path(beside)))
            lost, again = lost_calls(self.path, shard)
            merged.lost += lost
            merged.again += again
        self.remove()
        return merged

    def remove(self) -> None:
        """Take the folder away, its marker last: what is there of it is told from a stranger's until then."""
        with contextlib.suppress(OSError):
            for path in self.path.iterdir():
                if path.name != "shards.json":
                    path.unlink()
        shutil.rmtree(self.path, ignore_errors=True)


def _merge(ledger: Path, shard: Path, beside: Path) -> Added:
    try:
        return merge_ledger(ledger, settled(shard, beside))
    except InputError as error:
        raise InputError(f"{error}; where it is {shard} that is damaged, move it away to go on without its calls") from error
