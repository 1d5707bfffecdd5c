"""The folder of a run or of a build: a manifest, the ledger that it names, and one process at a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import ClassVar, Generic, Protocol, TypeVar

import msgspec

from opensafeintent.calls.ledger import Ledger, open_for_run
from opensafeintent.files import locked_folder, write_private

__all__ = ["LedgerFolder"]


class _HasLedger(Protocol):
    @property
    def ledger(self) -> str:
        """Relative to the folder, or absolute where it is shared."""
        ...


Manifest = TypeVar("Manifest", bound=_HasLedger)


class LedgerFolder(Generic[Manifest]):
    """What the folders of runs and of builds have in common."""

    manifest_name: ClassVar[str]
    doing: ClassVar[str]
    """What a process does in it, for the error of another: `evaluating into`."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def manifest_path(self) -> Path:
        """Where the manifest is."""
        return self.path / self.manifest_name

    def save(self, manifest: Manifest) -> None:
        """Write the manifest."""
        text = msgspec.json.format(msgspec.json.encode(manifest, order="sorted"), indent=2)
        write_private(self.manifest_path, text + b"\n")

    def ledger_path(self, manifest: Manifest) -> Path:
        """Where the ledger is."""
        return self.path / manifest.ledger

    def open_ledger(self, manifest: Manifest) -> AbstractContextManager[Ledger]:
        """Open the ledger for calls: the folder's own, or one that others may write too.

        Raises:
            InputError: see `open_for_run`.
        """
        return open_for_run(self.ledger_path(manifest), own=not Path(manifest.ledger).is_absolute())

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Keep the folder for this process.

        Raises:
            InputError: another process is at work in it.
        """
        with locked_folder(self.path, self.doing):
            yield
