"""Datasets on the Hugging Face hub: `hf:owner/name[@revision]` (extra `[hf]`)."""

from __future__ import annotations

import re
from pathlib import Path

from opensafeintent.errors import InputError
from opensafeintent.hostile import one_line

__all__ = ["fetch"]

_NAME = re.compile(r"hf:(?P<repo>[\w.-]+/[\w.-]+)(@(?P<revision>[\w./-]+))?", re.ASCII)
_SUFFIXES = (".jsonl", ".json", ".parquet")
_NOT_DATA = {"dataset_infos.json", "dataset_dict.json", "state.json", "croissant.json"}


def fetch(name: str) -> list[Path]:
    """Download a hub dataset's data files once, into the hub's own cache, and return their paths in order.

    Raises:
        InputError: the name is not of that form, the extra is missing, the hub cannot be reached, or it holds no data file.
    """
    match = _NAME.fullmatch(name)
    if match is None:
        raise InputError(f"{name}: not a hub dataset; expected hf:owner/name or hf:owner/name@revision")
    try:
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import (
            HFValidationError,
            LocalEntryNotFoundError,
            RepositoryNotFoundError,
            RevisionNotFoundError,
        )
        from huggingface_hub.utils.tqdm import disable_progress_bars
    except ImportError as error:
        raise InputError(f'{name}: datasets on the hub need an extra: pip install "opensafeintent[hf]"') from error
    disable_progress_bars()
    repo, revision = match["repo"], match["revision"]
    try:
        folder = Path(
            snapshot_download(
                repo, repo_type="dataset", revision=revision, allow_patterns=[f"*{suffix}" for suffix in _SUFFIXES]
            )
        )
    except HFValidationError as error:
        raise InputError(f"{name}: not a name that the hub allows: {one_line(str(error))}") from error
    except RevisionNotFoundError as error:
        raise InputError(f"{name}: the hub has no revision {revision!r} of {repo}") from error
    except RepositoryNotFoundError as error:
        raise InputError(f"{name}: the hub has no dataset {repo}, or it needs a token (HF_TOKEN)") from error
    except LocalEntryNotFoundError as error:
        raise InputError(f"{name}: cannot reach the hub, and the dataset is not in its cache") from error
    except Exception as error:  # the hub's client lets its HTTP library's errors through, and changes that library
        raise InputError(f"{name}: the hub did not give the dataset: {one_line(str(error))}") from error
    files = sorted(path for path in folder.rglob("*") if path.suffix in _SUFFIXES and path.name not in _NOT_DATA)
    parquet = [path for path in files if path.suffix == ".parquet"]
    if not files:
        raise InputError(f"{name}: holds no .jsonl, .json or .parquet file")
    return parquet or files
