"""Which files are a dataset: of a folder, or of the Hugging Face hub (extra `[hf]`).

A dataset of the hub is named `hf:owner/name[@revision][#path]`.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator
from fnmatch import fnmatchcase
from importlib import import_module
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec

from opensafeintent.errors import InputError, install_extra
from opensafeintent.files import RowLimit, any_json
from opensafeintent.hostile import clean_for_display, one_line, remove_url_credentials
from opensafeintent.promptsets.fields import fields_found
from opensafeintent.promptsets.reading import (
    FILE_FORMATS,
    LISTED,
    get_suffix,
    parquet_rows,
)

CARD = "README.md"
TAXONOMY = "taxonomy.toml"
"""A dataset's own harm domains and task types, beside its card."""
TWINS = ("harmful-behaviors.csv", "benign-behaviors.csv")
"""The files of JailbreakBench, each with one half of every pair."""
_TWIN_FOLDERS: tuple[str, ...] = ("", "data")
"""Where they are in its repository, and in a folder with the two alone."""
_NOT_DATA = {"dataset_infos.json", "dataset_dict.json", "state.json", "croissant.json"}
_MOST_NAMED = 5
_LONGEST_CARD = 2**20
"""Characters of a card's first lines."""
_DEEPEST_CARD = 50
_MOST_PATTERNS, _MOST_STARS = 1000, 3
"""Patterns of data files in a card, and `**` in one of them."""

Shown = Callable[[str], str]
"""A file's name in messages, from its path within the folder."""


class DataFile(msgspec.Struct, frozen=True):
    """A file of records, and its name in locations and errors."""

    path: Path
    shown: str


class Origin(msgspec.Struct, frozen=True):
    """Source of a dataset: its files in order, and the taxonomy beside them."""

    files: tuple[DataFile, ...]
    taxonomy: Path | None = None


def find_twins(folder: Path, shown: Shown, chosen: str | None = None) -> Origin | None:
    """Return the two files of JailbreakBench; None if a folder has not both.

    Args:
        folder: the folder, or that of its repository.
        shown: names a file in messages.
        chosen: a path in the folder: one of the two files, or the folder that they are in.
    """
    if chosen is None:
        places = _TWIN_FOLDERS
    else:
        places = (str(PurePosixPath(chosen).parent) if is_twin(chosen) else chosen,)
    for place in places:
        paths = [(PurePosixPath(place) / name).as_posix() for name in TWINS]
        if all((folder / path).is_file() for path in paths):
            return _make_origin(folder, paths, shown)
    return None


def is_twin(path: str) -> bool:
    """Tell whether a path is that of one of JailbreakBench's two files."""
    return PurePosixPath(path).name in TWINS


def files_by_card(folder: Path, shown: Shown) -> Origin | None:
    """Return the files that the default configuration of a folder's card names; None if no card
    names any.

    The card is `README.md`, its `configs` in YAML as the hub defines them.

    Raises:
        InputError: the card cannot be read, has several configurations and no default, or names no
            existing file.
    """
    location = shown(CARD)
    configs = _read_configs(folder / CARD, location)
    if not configs:
        return None
    config = _choose_config(
        configs,
        location,
        lambda config: [shown(path) for path in _list_matching(folder, config, location)],
    )
    return _make_origin(folder, _list_matching(folder, config, location), shown)


def files_by_suffix(folder: Path, shown: Shown, chosen: str | None = None) -> Origin:
    """Return all data files of a folder, or those at or under one path of it; Parquet if there is
    any.

    Raises:
        InputError: there is none.
    """
    below = [path.relative_to(folder) for path in folder.rglob("*") if _is_data(path)]
    paths = sorted(path.as_posix() for path in below if path.is_relative_to(chosen or ""))
    if not paths:
        raise InputError(f"{shown(chosen or '')}: holds no {LISTED} file")
    parquet = [path for path in paths if path.endswith(".parquet")]
    # a workbook beside other files is mostly about them
    others = [path for path in paths if not path.endswith(".xlsx")]
    return _make_origin(folder, parquet or others or paths, shown)


def _make_origin(folder: Path, paths: Iterable[str], shown: Shown) -> Origin:
    taxonomy = folder / TAXONOMY
    return Origin(
        tuple(DataFile(folder / path, shown(path)) for path in paths),
        taxonomy if taxonomy.is_file() else None,
    )


def _is_data(path: Path) -> bool:
    return get_suffix(path) in FILE_FORMATS and path.name not in _NOT_DATA and path.is_file()


def _read_configs(card: Path, location: str) -> list[dict[str, Any]]:
    try:
        with card.open(encoding="utf-8-sig") as file:
            if file.readline(_LONGEST_CARD).rstrip() != "---":
                return []
            text = file.read(_LONGEST_CARD)
    except FileNotFoundError:
        return []
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{location}: cannot read the dataset card: {error}") from error
    try:
        yaml = import_module("yaml")  # comes with the hub's client
    except ImportError as error:
        raise InputError(
            f"{location}: reading a dataset card needs an extra: {install_extra('hf')}; or name a"
            " file of the folder, such as dataset.jsonl"
        ) from error
    if (end := re.search(r"^---[ \t]*$", text, re.MULTILINE)) is None:
        if len(text) == _LONGEST_CARD:
            raise InputError(f"{location}: expected its first lines to end with ---")
        return []
    try:
        depth = 0
        # before any use: a few aliases expand to a billion values
        for token in yaml.scan(text[: end.start()]):
            kind = type(token).__name__
            depth += kind.endswith("StartToken") - kind.endswith("EndToken")
            if kind == "AliasToken" or depth > _DEEPEST_CARD:
                raise ValueError(
                    "expected every value written out, without *aliases, and few levels"
                )
        data = yaml.safe_load(text[: end.start()])
    except Exception as error:
        # PyYAML raises IndexError and KeyError for odd values, too
        raise InputError(
            f"{location}: its first lines are not YAML: {one_line(str(error))}"
        ) from error
    configs = data.get("configs") if isinstance(data, dict) else None
    if not isinstance(configs, list):
        return []
    return [config for config in configs if isinstance(config, dict)]


def _choose_config(
    configs: list[dict[str, Any]], location: str, files_of: Callable[[dict[str, Any]], list[str]]
) -> dict[str, Any]:
    """Return the configuration that is read when none is named, by the hub's rule."""
    for config in configs:
        chosen = config.get("default") is True or config.get("config_name") == "default"
        if chosen or len(configs) == 1:
            return config
    named = "; ".join(
        f"{_read_name(config)}: {', '.join(files_of(config))}" for config in configs[:_MOST_NAMED]
    )
    raise InputError(
        f"{location}: names {len(configs)} configurations and no default; name a file of one"
        f" ({named})"
    )


def _read_name(config: dict[str, Any]) -> str:
    name = config.get("config_name")
    return clean_for_display(name) if isinstance(name, str) else "no name"


def _list_matching(folder: Path, config: dict[str, Any], location: str) -> list[str]:
    """Return the data files that a configuration's patterns match, in the order of the patterns."""
    below = config.get("data_dir")
    patterns = list(islice(_yield_patterns(config.get("data_files", "**/*")), _MOST_PATTERNS + 1))
    if len(patterns) > _MOST_PATTERNS or any(
        pattern.count("**") > _MOST_STARS for pattern in patterns
    ):
        raise InputError(
            f"{location}: expected at most {_MOST_PATTERNS:,} patterns of data files, with"
            f" {_MOST_STARS} ** in each"
        )
    if isinstance(below, str):
        patterns = [f"{below}/{pattern}" for pattern in patterns]
    # one walk that follows no link of a folder: a link to itself would multiply with each `*/`
    below_it = sorted(path.relative_to(folder) for path in folder.rglob("*") if _is_data(path))
    matched: dict[str, None] = {}
    for pattern in patterns:
        parts = PurePosixPath(pattern).parts
        if ".." in parts or pattern.startswith("/"):
            raise InputError(
                f"{location}: names data files outside its folder: {clean_for_display(pattern)}"
            )
        matched |= {path.as_posix(): None for path in below_it if _matches(path.parts, parts)}
    if not matched:
        named = ", ".join(clean_for_display(pattern) for pattern in patterns) or "none"
        raise InputError(
            f"{location}: of the data files that it names ({named}) there is no {LISTED} file"
        )
    return list(matched)


def _matches(path: tuple[str, ...], pattern: tuple[str, ...]) -> bool:
    """Whether a path matches a pattern, part by part; `**` matches any number of folders."""
    if not pattern:
        return not path
    if pattern[0] == "**":
        return any(_matches(path[n:], pattern[1:]) for n in range(len(path) + 1))
    fits = bool(path) and fnmatchcase(path[0], pattern[0])
    return fits and _matches(path[1:], pattern[1:])


def _yield_patterns(data_files: Any) -> Iterator[str]:
    """Yield the patterns of `data_files` in any of the forms that the hub takes: a text, a list,
    splits with paths.
    """
    match data_files:
        case str():
            yield data_files
        case list():
            for item in data_files:
                yield from _yield_patterns(item)
        case {"path": paths}:
            yield from _yield_patterns(paths)
        case dict():
            for paths in data_files.values():
                yield from _yield_patterns(paths)


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
    repo, revision, chosen = _split_name(name)
    whole = f"hf:{repo}" + (f"@{revision}" if revision else "")
    with _hub_errors(name, repo, revision):
        from huggingface_hub import snapshot_download
        from huggingface_hub.utils.tqdm import disable_progress_bars

        disable_progress_bars()
        wanted = (
            [chosen, f"{chosen}/*"]
            if chosen
            else [CARD, *(f"*{suffix}" for suffix in FILE_FORMATS)]
        )
        if chosen and is_twin(chosen):
            wanted += [str(PurePosixPath(chosen).with_name(name)) for name in TWINS]
        folder = Path(
            snapshot_download(
                repo,
                repo_type="dataset",
                revision=revision,
                allow_patterns=[*wanted, TAXONOMY],
            )
        )

    def show_path(path: str) -> str:
        return f"{whole}#{path}" if path else whole

    return (
        find_twins(folder, show_path, chosen)
        or (not chosen and files_by_card(folder, show_path))
        or files_by_suffix(folder, show_path, chosen)
    )


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
    repo, revision, chosen = _split_name(name)
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
                    for value in _stream_column(file, column, location):
                        limit.count(location)
                        yield value


def _stream_column(file: Iterable[bytes], column: str, location: str) -> Iterator[Any]:
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


def _split_name(name: str) -> tuple[str, str | None, str | None]:
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
        reason = one_line(remove_url_credentials(str(error)))
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
