"""Datasets of the Hugging Face hub: `hf:owner/name[@revision][#path]` (extra `[hf]`)."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from opensafeintent.errors import InputError, install_extra
from opensafeintent.files import any_json
from opensafeintent.hostile import one_line, without_user_info
from opensafeintent.promptsets.fields import fields_found
from opensafeintent.promptsets.limits import RowLimit
from opensafeintent.promptsets.reading import SUFFIXES, parquet_rows
from opensafeintent.promptsets.sources import CARD, TAXONOMY, Origin, files_by_card, files_by_suffix

_NAME = re.compile(
    r"hf:(?P<repo>[\w.-]+/[\w.-]+)(@(?P<revision>[\w./-]+))?(#(?P<path>[^*?\[\]]*[^*?\[\]/]/?))?",
    re.ASCII,
)
_BLOCK = 2**20
"""Bytes asked for at a time when a file is streamed."""


def fetch(name: str) -> Origin:
    """Download a hub dataset's data files once, into the hub's own cache, and return the files of
    the dataset.

    Those are the file or folder after `#`; or the files of the default configuration of the
    dataset's card; or all data files, Parquet alone if there is any.

    Raises:
        InputError: the name is not of that form, the extra is missing, the hub cannot be reached,
            or it holds no data file.
    """
    repo, revision, chosen = _parts(name)
    whole = f"hf:{repo}" + (f"@{revision}" if revision else "")
    with _hub_errors(name, repo, revision):
        from huggingface_hub import snapshot_download
        from huggingface_hub.utils.tqdm import disable_progress_bars

        disable_progress_bars()
        wanted = (
            [chosen, f"{chosen}/*"] if chosen else [CARD, *(f"*{suffix}" for suffix in SUFFIXES)]
        )
        folder = Path(
            snapshot_download(
                repo,
                repo_type="dataset",
                revision=revision,
                allow_patterns=[*wanted, TAXONOMY],
            )
        )

    def shown(path: str) -> str:
        return f"{whole}#{path}" if path else whole

    return (not chosen and files_by_card(folder, shown)) or files_by_suffix(folder, shown, chosen)


def stream_rows(name: str, column: str, *, split: str, limit: RowLimit) -> Iterator[Any]:
    """Yield one column of a hub dataset, row by row, without downloading the other parts.

    Args:
        name: `hf:owner/name[@revision][#path]`.
        column: the field that is read; the others are passed over.
        split: only files with this word in their path are read, if there are any and the name has
            no path.
        limit: on rows and characters.

    Raises:
        InputError: as with `fetch`; a row has no such column; or the limit is exceeded.
    """
    repo, revision, chosen = _parts(name)
    with _hub_errors(name, repo, revision):
        from huggingface_hub import HfFileSystem

        files = HfFileSystem(skip_instance_cache=True)
        root = f"datasets/{repo}" + (f"@{revision}" if revision else "")
        paths = sorted(path for path in files.find(root) if path.endswith((".jsonl", ".parquet")))
        if chosen:
            below = f"{root}/{chosen}"
            paths = [path for path in paths if PurePosixPath(path).is_relative_to(below)]
        else:
            paths = [path for path in paths if split in path.removeprefix(root)] or paths
        if not paths:
            raise InputError(f"{name}: holds no .jsonl or .parquet file")
        for path in paths:
            with files.open(path, "rb", block_size=_BLOCK) as file:
                location = f"{name}, {path}"
                if path.endswith(".parquet"):
                    yield from (row[column] for row in parquet_rows(file, location, limit, column))
                else:
                    for value in _jsonl_column(file, column, location):
                        limit.count(location)
                        yield value


def _jsonl_column(file: Iterable[bytes], column: str, location: str) -> Iterator[Any]:
    for number, line in enumerate(file, start=1):
        if line.strip():
            fields = ""
            try:
                row = any_json(line.decode())
                fields = fields_found(row) if isinstance(row, dict) else ""
                yield row[column]
            except (ValueError, KeyError, TypeError) as error:
                raise InputError(
                    f"{location}, line {number}: expected a JSON object with the field"
                    f" {column!r}{fields}"
                ) from error


def _parts(name: str) -> tuple[str, str | None, str | None]:
    match = _NAME.fullmatch(name)
    if match is None or ".." in (match["path"] or "").split("/"):
        raise InputError(
            f"{name}: not a hub dataset; expected hf:owner/name or hf:owner/name@revision, and"
            " #path for one file of it"
        )
    return match["repo"], match["revision"], match["path"] and match["path"].rstrip("/")


@contextlib.contextmanager
def _hub_errors(name: str, repo: str, revision: str | None) -> Iterator[None]:
    """Turn an error of the hub's client into one clear line."""
    try:
        import huggingface_hub  # noqa: F401 -- else a missing package would be reported as its submodule
        from huggingface_hub.errors import (
            GatedRepoError,
            HFValidationError,
            LocalEntryNotFoundError,
            RepositoryNotFoundError,
            RevisionNotFoundError,
        )
    except ImportError as error:
        raise InputError(
            f"{name}: datasets on the hub need an extra: {install_extra('hf')}"
        ) from error
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        # of the client's HTTP library too, which is not always the same
        reason = one_line(without_user_info(str(error)))
        wanted = f"revision {revision!r} of the dataset" if revision else "the dataset"
        # a gated repository is one that is not found, too
        complaints = {
            HFValidationError: f"not a name that the hub allows: {reason}",
            RevisionNotFoundError: f"the hub has no revision {revision!r} of {repo}",
            GatedRepoError: f"access to {repo} is gated: ask for it on its page of the hub, then"
            " set HF_TOKEN to a token of yours",
            RepositoryNotFoundError: f"the hub has no dataset {repo}, or it needs a token"
            " (HF_TOKEN)",
            LocalEntryNotFoundError: f"cannot reach the hub, and {wanted} is not in its cache",
            Exception: f"the hub did not give the dataset: {reason}",
        }
        complaint = next(text for kind, text in complaints.items() if isinstance(error, kind))
        raise InputError(f"{name}: {complaint}") from error
