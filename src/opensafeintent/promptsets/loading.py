"""Read prompt-sets from any source: our JSONL, the authors' nested and flat files, CSV, Parquet,
the hub.

Validation happens here, at the edge: an error names file, line and field, and the valid values.
"""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Any

from opensafeintent.errors import InputError, did_you_mean
from opensafeintent.files import MOST_ROWS, os_errors
from opensafeintent.hostile import one_line
from opensafeintent.promptsets.fields import Record
from opensafeintent.promptsets.hub import fetch
from opensafeintent.promptsets.limits import RowLimit
from opensafeintent.promptsets.published import PUBLISHED, published_dataset
from opensafeintent.promptsets.reading import (
    LISTED,
    Problem,
    distinct_problems,
    read_records,
    stem_of,
)
from opensafeintent.promptsets.record import Dataset, PromptSet
from opensafeintent.promptsets.shapes import parse_prompt_set, shape_of, unread_fields
from opensafeintent.promptsets.sources import DataFile, Origin, files_by_card
from opensafeintent.taxonomy import (
    Taxonomy,
    default_taxonomy,
    load_taxonomy,
)


def read_dataset(
    name: str, taxonomy: Taxonomy | Path | None = None, max_rows: int | None = MOST_ROWS
) -> tuple[Dataset | None, list[str]]:
    """Read a dataset and list all its problems; the dataset is None if there are any.

    Args:
        name: `starter`, the path of a file or of a folder with a dataset card, or
            `hf:owner/name[@revision][#path]`.
        taxonomy: the labels that are valid, or the TOML file that has them; by default those of a
            `taxonomy.toml` beside the card, or the paper's.
        max_rows: prompt-sets that it may have; see `limits.RowLimit`. None sets no limit.

    Raises:
        InputError: there is nothing to read under that name, or more than `max_rows`.
    """
    chosen = load_taxonomy(taxonomy) if isinstance(taxonomy, Path) else taxonomy
    origin = origin_of(name)
    labels = chosen or (load_taxonomy(origin.taxonomy) if origin.taxonomy else default_taxonomy())
    rows, limit = _Rows(labels), RowLimit(max_rows)
    for file in origin.files:
        rows.add_file(file, limit)
    if len(rows.shapes) > 1:
        named = "; ".join(f"{shape} in {shown}" for shape, shown in rows.shapes.items())
        raise InputError(
            f"{name}: its files are in different formats, so more than one dataset ({named}); name"
            " one of them"
        )
    problems = rows.problems
    if not rows.prompt_sets and not problems:
        problems = [Problem(f"{name}: no prompt-sets in it; expected at least one")]
    if problems:
        return None, distinct_problems(problems)
    return Dataset(dataset_name(name), tuple(rows.prompt_sets), labels, tuple(rows.unread)), []


class _Rows:
    """The rows of a dataset's files, as far as they were read, and their problems."""

    def __init__(self, taxonomy: Taxonomy) -> None:
        self._taxonomy = taxonomy
        self._first: dict[str, tuple[str, PromptSet | None]] = {}
        """Each prompt-set with its location, by id; None for one with problems."""
        self.prompt_sets: list[PromptSet] = []
        self.problems: list[Problem] = []
        self.shapes: dict[str, str] = {}
        """The formats of the files, each with the first file that is in it."""
        self.unread: dict[str, None] = {}
        """Fields that are no part of a prompt-set, in their order."""

    def add_file(self, file: DataFile, limit: RowLimit) -> None:
        """Read the rows of a file; its first row tells its format."""
        try:
            for number, (location, data) in enumerate(read_records(file.path, file.shown, limit)):
                if not number and (shape := shape_of(data)):
                    self.shapes.setdefault(shape, file.shown)
                self._add(location, data)
        except Problem as problem:
            # a line that is not JSON: later lines cannot be trusted
            self.problems.append(problem)

    def _add(self, location: str, data: Any) -> None:
        try:
            record = Record(data, location)
        except Problem as problem:
            self.problems.append(problem)
            return
        prompt_set: PromptSet | None = None
        try:
            prompt_set = parse_prompt_set(record, self._taxonomy)
        except Problem as problem:
            self.problems += (problem, *problem.further)
        stated = data.get("id") if prompt_set is None else prompt_set.id
        if not (isinstance(stated, str) and stated):
            return
        if earlier := self._first.get(stated):
            self.problems.append(_repeated(record, stated, prompt_set, *earlier))
            return
        self._first[stated] = location, prompt_set
        if prompt_set is None:
            return
        self.prompt_sets.append(prompt_set)
        self.unread.update(dict.fromkeys(unread_fields(data)))


def _repeated(
    record: Record, set_id: str, prompt_set: PromptSet | None, first: str, earlier: PromptSet | None
) -> Problem:
    """Return the problem of a row whose id an earlier row has. An id that the file does not state
    was made from labels and prompts, so these are equal.
    """
    place = record.location
    if "id" in record:
        duplicate = f"duplicate id {one_line(set_id, 60)!r}, first at {first}; ids are unique"
        return Problem(f"{place}, field id: {duplicate}", place)
    same = "is identical to" if prompt_set == earlier else "has the labels and prompts of"
    return Problem(f"{place}: {same} {first}; expected each prompt-set once", place)


def load_dataset(
    name: str, taxonomy: Taxonomy | Path | None = None, max_rows: int | None = MOST_ROWS
) -> Dataset:
    """Read a dataset, or refuse it with the location of the first problem. The arguments are those
    of `read_dataset`.

    Raises:
        InputError: there is nothing under that name, something in it is not a valid prompt-set, or
            it has too many rows.
    """
    dataset, problems = read_dataset(name, taxonomy, max_rows)
    if dataset is None:
        first, *further = problems
        remaining = f" (and {len(further)} more; `dataset validate` lists all)" if further else ""
        raise InputError(first + remaining)
    return dataset


def dataset_name(name: str) -> str:
    """Return the name of a dataset: that of its file or folder; for a `dataset.jsonl`, as builds
    write it, that of its folder.
    """
    if name == "starter" or name in PUBLISHED or name.startswith("hf:"):
        return name
    path = Path(name)
    if path.is_dir():
        return path.resolve().name
    return path.resolve().parent.name if stem_of(path) == "dataset" else stem_of(path)


def origin_of(name: str) -> Origin:
    """Return the files of a dataset, and the taxonomy beside them.

    Raises:
        InputError: there is nothing under that name.
    """
    if name == "starter":
        path = Path(str(resources.files("opensafeintent").joinpath("data/starter.jsonl")))
        return Origin((DataFile(path, str(path)),))
    if name in PUBLISHED:
        return Origin((DataFile(published_dataset(name), name),))
    if name.startswith("hf:"):
        return fetch(name)
    path = Path(name)
    with os_errors(f"{one_line(name)}: cannot read"):
        exists = path.exists()
    if not exists:
        listed = ", ".join(f"'{published}'" for published in PUBLISHED)
        guess = did_you_mean(name, ["starter", *PUBLISHED])
        raise InputError(
            f"{one_line(name)}: no such dataset; {guess and guess + ' '}valid: 'starter',"
            f" {listed}, the path of a {LISTED} file or of a folder with a dataset card, or"
            " hf:owner/name[@revision][#path]"
        )
    if not path.is_dir():
        return Origin((DataFile(path, str(path)),))
    origin = files_by_card(path, lambda file: str(path / file))
    if origin is None:
        raise InputError(
            f"{name}: is a folder without a dataset card (README.md) that names its data; name the"
            f" {LISTED} file in it"
        )
    return origin
