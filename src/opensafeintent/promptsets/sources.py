"""Which files are a dataset: of a folder, by its card, and of the Hugging Face hub."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec

from opensafeintent.errors import InputError
from opensafeintent.files import any_json
from opensafeintent.hostile import one_line, without_user_info
from opensafeintent.promptsets.reading import SUFFIXES, RowLimit, parquet_rows

CARD = "README.md"
TAXONOMY = "taxonomy.toml"
"""A dataset's own harm domains and task types, beside its card."""
_NOT_DATA = {"dataset_infos.json", "dataset_dict.json", "state.json", "croissant.json"}
_MOST_NAMED = 5

Shown = Callable[[str], str]
"""What a file is called, from its path within the folder."""


class DataFile(msgspec.Struct, frozen=True):
    """A file of records, and what locations and errors call it."""

    path: Path
    shown: str


class Origin(msgspec.Struct, frozen=True):
    """Where a dataset is read from: its files in order, and the taxonomy that lies beside them."""

    files: tuple[DataFile, ...]
    taxonomy: Path | None = None


def files_by_card(folder: Path, shown: Shown) -> Origin | None:
    """Return the files that the default configuration of a folder's card names; None where no card
    names any.

    The card is `README.md`, its `configs` in YAML as the hub defines them.

    Raises:
        InputError: the card cannot be read, has several configurations and no default, or names no
            file that is there.
    """
    location = shown(CARD)
    configs = _configs(folder / CARD, location)
    if not configs:
        return None
    config = _default(
        configs, location, lambda one: [shown(path) for path in _matching(folder, one, location)]
    )
    return _origin(folder, _matching(folder, config, location), shown)


def files_by_suffix(folder: Path, shown: Shown, chosen: str | None = None) -> Origin:
    """Return all data files of a folder, or those at or under one path of it; Parquet where there
    is any.

    Raises:
        InputError: there is none.
    """
    paths = [
        path
        for path in _data_files(folder)
        if chosen is None or PurePosixPath(path).is_relative_to(chosen)
    ]
    if not paths:
        raise InputError(
            f"{shown(chosen) if chosen else shown('')}: holds no {_listed(SUFFIXES)} file"
        )
    parquet = [path for path in paths if path.endswith(".parquet")]
    return _origin(folder, parquet or paths, shown)


def _origin(folder: Path, paths: Iterable[str], shown: Shown) -> Origin:
    taxonomy = folder / TAXONOMY
    files = tuple(DataFile(folder / path, shown(path)) for path in paths)
    return Origin(files, taxonomy if taxonomy.is_file() else None)


def _data_files(folder: Path) -> list[str]:
    paths = (path for path in folder.rglob("*") if _is_data(path))
    return sorted(path.relative_to(folder).as_posix() for path in paths)


def _is_data(path: Path) -> bool:
    return path.suffix in SUFFIXES and path.name not in _NOT_DATA and path.is_file()


def _listed(names: Iterable[str]) -> str:
    *most, last = names
    return f"{', '.join(most)} or {last}"


# The card
# ------------------------------------------------------------------------------


def _configs(card: Path, location: str) -> list[dict[str, Any]]:
    try:
        with card.open(encoding="utf-8-sig") as file:
            if file.readline().rstrip() != "---":
                return []
    except FileNotFoundError:
        return []
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{location}: cannot read the dataset card: {error}") from error
    try:
        from huggingface_hub import metadata_load
    except ImportError as error:
        raise InputError(
            f'{location}: reading a dataset card needs an extra: pip install "opensafeintent[hf]"'
        ) from error
    try:
        data = metadata_load(card)
    # the YAML reader's own errors, of a library that is not named among our dependencies
    except Exception as error:
        raise InputError(
            f"{location}: its first lines are not YAML: {one_line(str(error))}"
        ) from error
    configs = data.get("configs") if isinstance(data, dict) else None
    return (
        [config for config in configs if isinstance(config, dict)]
        if isinstance(configs, list)
        else []
    )


def _default(
    configs: list[dict[str, Any]], location: str, files_of: Callable[[dict[str, Any]], list[str]]
) -> dict[str, Any]:
    """Return the configuration that is read when none is named, by the hub's rule."""
    if len(configs) == 1:
        return configs[0]
    for config in configs:
        if config.get("default") is True or config.get("config_name") == "default":
            return config
    named = "; ".join(
        f"{one_line(str(one.get('config_name')), 60)}: {', '.join(files_of(one))}"
        for one in configs[:_MOST_NAMED]
    )
    raise InputError(
        f"{location}: names {len(configs)} configurations and no default; name a file of one"
        f" ({named})"
    )


def _matching(folder: Path, config: dict[str, Any], location: str) -> list[str]:
    """Return the data files that a configuration's patterns match, in the order of the patterns."""
    below = config.get("data_dir")
    patterns = list(_patterns(config.get("data_files", "**/*")))
    if isinstance(below, str):
        patterns = [f"{below}/{pattern}" for pattern in patterns]
    matched: dict[str, None] = {}
    for pattern in patterns:
        if ".." in PurePosixPath(pattern).parts:
            raise InputError(
                f"{location}: names data files outside its folder: {one_line(pattern, 80)}"
            )
        try:
            paths = sorted(
                path.relative_to(folder).as_posix()
                for path in folder.glob(pattern)
                if _is_data(path)
            )
        except (ValueError, NotImplementedError, IndexError) as error:
            raise InputError(
                f"{location}: cannot find the data files {one_line(pattern, 80)!r}: {error}"
            ) from error
        matched |= dict.fromkeys(paths)
    if not matched:
        named = ", ".join(one_line(pattern, 80) for pattern in patterns) or "none"
        raise InputError(
            f"{location}: of the data files that it names ({named}) there is no {_listed(SUFFIXES)}"
            " file"
        )
    return list(matched)


def _patterns(data_files: Any) -> Iterator[str]:
    """Yield the patterns of `data_files` in any of the forms that the hub takes: a text, a list,
    splits with paths.
    """
    match data_files:
        case str():
            yield data_files
        case list():
            for item in data_files:
                yield from _patterns(item)
        case {"path": paths}:
            yield from _patterns(paths)
        case dict():
            for paths in data_files.values():
                yield from _patterns(paths)


# The hub: `hf:owner/name[@revision][#path]` (extra `[hf]`)
# -----------------------------------------------------------

_NAME = re.compile(
    r"hf:(?P<repo>[\w.-]+/[\w.-]+)(@(?P<revision>[\w./-]+))?(#(?P<path>[^*?\[\]]*[^*?\[\]/]/?))?",
    re.ASCII,
)
_BLOCK = 2**20
"""Bytes asked for at a time when a file is streamed."""


def fetch(name: str) -> Origin:
    """Download a hub dataset's data files once, into the hub's own cache, and return which of them
    are the dataset.

    Those are the file or folder after `#`; or what the default configuration of the dataset's card
    names; or all data files, Parquet standing for whatever lies beside it.

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
        patterns = [*wanted, TAXONOMY]
        folder = Path(
            snapshot_download(repo, repo_type="dataset", revision=revision, allow_patterns=patterns)
        )

    def shown(path: str) -> str:
        return f"{whole}#{path}" if path else whole

    by_card = None if chosen else files_by_card(folder, shown)
    return by_card or files_by_suffix(folder, shown, chosen)


def stream_rows(name: str, column: str, *, split: str, limit: RowLimit) -> Iterator[Any]:
    """Yield one column of a hub dataset, row by row, without downloading what is not read.

    Args:
        name: `hf:owner/name[@revision][#path]`.
        column: the field that is read; the others are passed over.
        split: only files with this word in their path are read, where there are any and none is
            chosen.
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
            paths = [
                path
                for path in paths
                if path == f"{root}/{chosen}" or path.startswith(f"{root}/{chosen}/")
            ]
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
            try:
                yield any_json(line.decode())[column]
            except (ValueError, KeyError, TypeError) as error:
                raise InputError(
                    f"{location}, line {number}: expected a JSON object with the field {column!r}"
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
        raise InputError(
            f'{name}: datasets on the hub need an extra: pip install "opensafeintent[hf]"'
        ) from error
    try:
        yield
    except InputError:
        raise
    except HFValidationError as error:
        raise InputError(
            f"{name}: not a name that the hub allows: {one_line(str(error))}"
        ) from error
    except RevisionNotFoundError as error:
        raise InputError(f"{name}: the hub has no revision {revision!r} of {repo}") from error
    except GatedRepoError as error:
        raise InputError(
            f"{name}: access to {repo} is gated: ask for it on its page of the hub, then set"
            " HF_TOKEN to a token of yours"
        ) from error
    except RepositoryNotFoundError as error:
        raise InputError(
            f"{name}: the hub has no dataset {repo}, or it needs a token (HF_TOKEN)"
        ) from error
    except LocalEntryNotFoundError as error:
        wanted = f"revision {revision!r} of the dataset" if revision else "the dataset"
        raise InputError(
            f"{name}: cannot reach the hub, and {wanted} is not in its cache"
        ) from error
    except (
        Exception
    ) as error:  # the hub's client lets its HTTP library's errors through, and changes that library
        raise InputError(
            f"{name}: the hub did not give the dataset: {one_line(without_user_info(str(error)))}"
        ) from error
