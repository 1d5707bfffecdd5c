"""Datasets on the Hugging Face hub: `hf:owner/name[@revision][#path]` (extra `[hf]`)."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from opensafeintent.errors import InputError
from opensafeintent.files import any_json
from opensafeintent.hostile import one_line, without_user_info
from opensafeintent.promptsets.limits import RowLimit
from opensafeintent.promptsets.origins import CARD, TAXONOMY, Origin, files_by_card, files_by_suffix
from opensafeintent.promptsets.parquet import parquet_rows
from opensafeintent.promptsets.reading import SUFFIXES

__all__ = ["fetch", "stream_rows"]

_NAME = re.compile(r"hf:(?P<repo>[\w.-]+/[\w.-]+)(@(?P<revision>[\w./-]+))?(#(?P<path>[^*?\[\]]*[^*?\[\]/]/?))?", re.ASCII)
_BLOCK = 2**20
"""Bytes asked for at a time when a file is streamed."""


def fetch(name: str) -> Origin:
    """Download a hub dataset's data files once, into the hub's own cache, and return which of them are the dataset.

    Those are the file or folder after `#`; or what the default configuration of the dataset's card names; or all data files,
    Parquet standing for whatever lies beside it.

    Raises:
        InputError: the name is not of that form, the extra is missing, the hub cannot be reached, or it holds no data file.
    """
    repo, revision, chosen = _parts(name)
    whole = f"hf:{repo}" + (f"@{revision}" if revision else "")
    with _hub_errors(name, repo, revision):
        from huggingface_hub import snapshot_download
        from huggingface_hub.utils.tqdm import disable_progress_bars

        disable_progress_bars()
        wanted = [chosen, f"{chosen}/*"] if chosen else [CARD, *(f"*{suffix}" for suffix in SUFFIXES)]
        patterns = [*wanted, TAXONOMY]
        folder = Path(snapshot_download(repo, repo_type="dataset", revision=revision, allow_patterns=patterns))

    def shown(path: str) -> str:
        return f"{whole}#{path}" if path else whole

    by_card = None if chosen else files_by_card(folder, shown)
    return by_card or files_by_suffix(folder, shown, chosen)


def stream_rows(name: str, column: str, *, split: str, limit: RowLimit) -> Iterator[Any]:
    """Yield one column of a hub dataset, row by row, without downloading what is not read.

    Args:
        name: `hf:owner/name[@revision][#path]`.
        column: the field that is read; the others are passed over.
        split: only files with this word in their path are read, where there are any and none is chosen.
        limit: what may be read.

    Raises:
        InputError: as with `fetch`; a row has no such column; or there is more than the limit.
    """
    repo, revision, chosen = _parts(name)
    with _hub_errors(name, repo, revision):
        from huggingface_hub import HfFileSystem

        files = HfFileSystem(skip_instance_cache=True)
        root = f"datasets/{repo}" + (f"@{revision}" if revision else "")
        paths = sorted(path for path in files.find(root) if path.endswith((".jsonl", ".parquet")))
        if chosen:
            paths = [path for path in paths if path == f"{root}/{chosen}" or path.startswith(f"{root}/{chosen}/")]
        else:
            paths = [path for path in paths if split in path.removeprefix(root)] or paths
        if not paths:
            raise InputError(f"{name}: holds no .jsonl or .parquet file")
        for path in paths:
            with files.open(path, "rb", block_size=_BLOCK) as file:
                place = f"{name}, {path}"
                if path.endswith(".parquet"):
                    yield from (row[column] for row in parquet_rows(file, place, limit, column))
                else:
                    for value in _jsonl_column(file, column, place):
                        limit.count(place)
                        yield value


def _jsonl_column(file: Iterable[bytes], column: str, place: str) -> Iterator[Any]:
    for number, line in enumerate(file, start=1):
        if line.strip():
            try:
                yield any_json(line.decode())[column]
            except (ValueError, KeyError, TypeError) as error:
                raise InputError(f"{place}, line {number}: expected a JSON object with the field {column!r}") from error


def _parts(name: str) -> tuple[str, str | None, str | None]:
    match = _NAME.fullmatch(name)
    if match is None or ".." in (match["path"] or "").split("/"):
        raise InputError(
            f"{name}: not a hub dataset; expected hf:owner/name or hf:owner/name@revision, and #path for one file of it"
        )
    return match["repo"], match["revision"], match["path"] and match["path"].rstrip("/")


@contextlib.contextmanager
def _hub_errors(name: str, repo: str, revision: str | None) -> Iterator[None]:
    """Turn what the hub's client raises into one clear line."""
    try:
        import huggingface_hub  # noqa: F401 -- where it is missing, its parts would be named in its place
        from huggingface_hub.errors import (
            GatedRepoError,
            HFValidationError,
            LocalEntryNotFoundError,
            RepositoryNotFoundError,
            RevisionNotFoundError,
        )
    except ImportError as error:
        raise InputError(f'{name}: datasets on the hub need an extra: pip install "opensafeintent[hf]"') from error
    try:
        yield
    except InputError:
        raise
    except HFValidationError as error:
        raise InputError(f"{name}: not a name that the hub allows: {one_line(str(error))}") from error
    except RevisionNotFoundError as error:
        raise InputError(f"{name}: the hub has no revision {revision!r} of {repo}") from error
    except GatedRepoError as error:
        raise InputError(
            f"{name}: access to {repo} is gated: ask for it on its page of the hub, then set HF_TOKEN to a token of yours"
        ) from error
    except RepositoryNotFoundError as error:
        raise InputError(f"{name}: the hub has no dataset {repo}, or it needs a token (HF_TOKEN)") from error
    except LocalEntryNotFoundError as error:
        wanted = f"revision {revision!r} of the dataset" if revision else "the dataset"
        raise InputError(f"{name}: cannot reach the hub, and {wanted} is not in its cache") from error
    except Exception as error:  # the hub's client lets its HTTP library's errors through, and changes that library
        raise InputError(f"{name}: the hub did not give the dataset: {one_line(without_user_info(str(error)))}") from error
