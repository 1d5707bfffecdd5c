"""The folder of a run or of a build: a manifest, and the ledger that it names."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection
from pathlib import Path
from typing import ClassVar, Protocol

from opensafeintent.calls.ledger import LEDGER
from opensafeintent.errors import InputError
from opensafeintent.files import inside, to_json, write_private
from opensafeintent.replacing import lock_folder, refuse


class _HasLedger(Protocol):
    @property
    def ledger(self) -> str:
        """Relative to the folder, or absolute if it is shared."""


def ledger_name(named: Path | None) -> str:
    """Return the ledger's entry in the manifest of a new folder."""
    return str(named.resolve()) if named else LEDGER


RUN_MANIFEST, BUILD_MANIFEST = "run.json", "build.json"

_HOLDERS = {RUN_MANIFEST: "a run", BUILD_MANIFEST: "a build"}


def refuse_folder_of_other_run(folder: Path, own: str = "") -> None:
    """Refuse to write into the folder of another run or build: it has files of the same names, and
    a reader takes every number there for its own.

    Args:
        folder: the folder that the user names.
        own: the manifest of the run or build that may be there.

    Raises:
        InputError: see above.
    """
    for manifest, holder in _HOLDERS.items():
        if manifest != own and (folder / manifest).is_file():
            raise InputError(
                f"--out {folder}: holds {holder} ({manifest}), whose results would be mixed with"
                " others; expected another folder"
            )


class LedgerFolder:
    """The common part of folders of runs and of builds.

    Args:
        path: the folder. Somebody else may have made it.
        ledgers: what the command names of ledgers outside such folders.
    """

    manifest_name: ClassVar[str]
    doing: ClassVar[str]
    """Activity of a process in it, for another's error: `evaluating into`."""

    def __init__(self, path: Path, ledgers: Path | Collection[Path] | None = None) -> None:
        self.path = path
        named = (ledgers,) if isinstance(ledgers, Path) else ledgers or ()
        self._named = {ledger.resolve() for ledger in named}

    @property
    def manifest_path(self) -> Path:
        """Path of the manifest."""
        return inside(self.path, self.manifest_name)

    def save(self, manifest: _HasLedger) -> None:
        """Write the manifest."""
        write_private(self.manifest_path, to_json(manifest, indent=2))

    def ledger_path(self, manifest: _HasLedger) -> Path:
        """Path of the ledger: in the folder, or one outside that the command names.

        Raises:
            InputError: it is outside the folder, and the command does not name it; or see `inside`.
        """
        path = self._path(manifest)
        if path.resolve() not in self._named and not self._holds(path):
            raise InputError(
                f"{self.path}: its ledger is outside the folder; if that is right, expected"
                f" --ledger {path}"
            )
        return path

    def _path(self, manifest: _HasLedger) -> Path:
        path = Path(manifest.ledger)
        return path if path.is_absolute() else inside(self.path, manifest.ledger)

    def _holds(self, path: Path) -> bool:
        return path.resolve().is_relative_to(self.path.resolve())

    def ledger_to_write(self, manifest: _HasLedger, named: Path | None) -> Path:
        """Path of the ledger, for a command that writes it.

        Args:
            manifest: of the folder; somebody else may have made it.
            named: the ledger that the command names.

        Raises:
            InputError: the command names another ledger than the folder has, or none and it is
                outside the folder; see also `inside`.
        """
        path = self._path(manifest)
        if path.resolve() != named.resolve() if named else not self._holds(path):
            what = f"its ledger is not {named}" if named else "its ledger is outside the folder"
            raise InputError(f"{self.path}: {what}; expected --ledger {path}, or a new --out")
        return path

    def lock(
        self, waiting: Callable[[str], object] = refuse
    ) -> contextlib.AbstractContextManager[None]:
        """Hold the folder for this process.

        Raises:
            InputError: it is of other work: a build's, and this is a run, or the reverse.
            Taken: another process holds it.
        """
        refuse_folder_of_other_run(self.path, self.manifest_name)
        return lock_folder(self.path, self.doing, waiting)
