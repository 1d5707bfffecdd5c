"""The list of an export's files, by which the next export of the same run removes those that it
does not write. Files of other runs in the folder stay.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import msgspec

from opensafeintent.files import inside, read_text, seen_from, sha256_hex, to_json, write_private

LIST = ".exported"
"""Name of the list, in the folder of an export."""

_SAMPLES = "_samples.jsonl"

_OURS = re.compile(
    r"data/opensafeintent/[^/]+/[^/]+/[0-9a-f-]{36}(\.json|_samples\.jsonl)"
    r"|[^/]+/[^/]+/\.eval_results/opensafeintent\.yaml"
)
"""The files that exports write. A list may come from elsewhere: nothing else is removed."""


class EarlierExports:
    """The files of earlier exports into a folder.

    Args:
        folder: the folder of the export.
        run: the folder of the exported run.
        format_: the format of the export.

    Raises:
        InputError: the list is a link, or it cannot be read.
    """

    def __init__(self, folder: Path, run: Path, format_: str) -> None:
        self._folder = folder
        self._key = sha256_hex(f"{format_} {seen_from(folder, run)}")[:16]
        self._by_export: dict[str, list[str]] = {}
        listed = inside(folder, LIST)
        if listed.exists():
            try:
                self._by_export = msgspec.json.decode(read_text(listed), type=dict[str, list[str]])
            except msgspec.DecodeError:  # somebody changed it: the files stay, as without a list
                self._by_export = {}

    def write_list(self, names: Iterable[str], new: Path) -> None:
        """Write the list of all exports into `new`, a folder whose files replace those of the
        folder: this export has the files `names`.
        """
        by_export = self._by_export | {self._key: sorted(names)}
        write_private(new / LIST, to_json(by_export))

    def obsolete(self, names: Iterable[str]) -> list[Path]:
        """Return the files of the earlier export of this run, and samples of records that have no
        samples now; of the files `names`, which are written, too.

        Raises:
            InputError: a link is in the way of a file.
        """
        of_others = {
            name for key, listed in self._by_export.items() if key != self._key for name in listed
        }
        earlier = [
            name
            for name in self._by_export.get(self._key, [])
            if _OURS.fullmatch(name) and name not in of_others
        ]
        records = [name for name in names if name.endswith(".json")]
        samples = [name.removesuffix(".json") + _SAMPLES for name in records]
        return [inside(self._folder, name) for name in (*earlier, *samples)]
