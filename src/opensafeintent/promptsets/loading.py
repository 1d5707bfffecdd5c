"""Loading a dataset by its name, its path or its place on the hub; the published datasets."""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import NamedTuple

from opensafeintent.errors import InputError, did_you_mean
from opensafeintent.files import (
    CACHE,
    MOST_ROWS,
    RowLimit,
    find_cache,
    os_errors,
    sha256_hex,
    write_beside,
)
from opensafeintent.hostile import clean_for_display, one_line, remove_url_credentials
from opensafeintent.promptsets.fields import Record
from opensafeintent.promptsets.foreign import FOREIGN, join_foreign, make_taxonomy
from opensafeintent.promptsets.reading import (
    LISTED,
    Problem,
    distinct_problems,
    get_stem,
    read_records,
)
from opensafeintent.promptsets.record import Dataset, PromptSet, find_units
from opensafeintent.promptsets.shapes import (
    parse_prompt_set,
    recognize_shape,
    unread_fields,
)
from opensafeintent.promptsets.sources import (
    DataFile,
    Origin,
    fetch,
    files_by_card,
    find_twins,
    is_twin,
)
from opensafeintent.taxonomy import QUESTIONS, Taxonomy, default_taxonomy, load_taxonomy

Cell = tuple[str, str]


def sample_order(prompt_sets: Sequence[PromptSet]) -> tuple[PromptSet, ...]:
    """Return prompt-sets in the order in which samples take them: the first N are the sample of N,
    for any N.

    A prefix contains each cell in proportion to its share of the dataset, to within one set, and
    every set comes into a prefix with the same probability. Sets are sorted by (r − u_h)/N_h, with
    r a set's rank within its cell by its id's hash, and N_h the size of the cell: a systematic
    sample of each cell, with a start u_h that is uniform between 0 and 1 (Madow and Madow, Annals
    of Mathematical Statistics 15, 1944). The starts of the cells lie at equal distances, so that
    harm domains and task types come evenly too. Hashes of the dataset's ids decide where they begin
    and in which order the cells follow one another.

    Among triplets, the pairs of a cell are a cell of their own. A family (`find_units`) counts as
    one set, of the cell of its first set by hash; its sets follow one another.
    """
    dataset = sha256_hex("\0".join(sorted(item.id for item in prompt_sets)))
    unit_of = find_units(prompt_sets)
    by_hash = sorted(prompt_sets, key=lambda item: sha256_hex(item.id))
    cell_of: dict[str, Cell] = {}
    mixed = len({item.is_pair for item in prompt_sets}) > 1
    for prompt_set in by_hash:
        domain, task_type = prompt_set.cell
        of_pairs = "\0" if mixed and prompt_set.is_pair else ""
        cell_of.setdefault(unit_of[prompt_set.id], (domain, task_type + of_pairs))
    cells: defaultdict[Cell, list[str]] = defaultdict(list)
    for unit, cell in cell_of.items():
        cells[cell].append(unit)
    place = _make_place(cells, dataset)
    places = {
        unit: place(cell, rank)
        for cell, members in cells.items()
        for rank, unit in enumerate(members)
    }
    return tuple(sorted(by_hash, key=lambda item: places[unit_of[item.id]]))


_Place = Callable[[Cell, int], tuple[float, int]]
"""Where the unit of a rank, from 0, stands in the order, by its cell."""


def _make_place(cells: Mapping[Cell, Sequence[str]], dataset: str) -> _Place:
    domains, types = (_number_names((cell[part] for cell in cells), dataset) for part in (0, 1))

    def diagonal(cell: Cell) -> tuple[int, int]:
        """Any few cells that follow one another differ in domain and type."""
        domain, kind = domains[cell[0]], types[cell[1]]
        return (kind - domain) % len(types), domain

    turns = {cell: turn for turn, cell in enumerate(sorted(cells, key=diagonal))}
    first = int(dataset[:12], 16) / 16**12

    def place(cell: Cell, rank: int) -> tuple[float, int]:
        start = (first + turns[cell] / len(turns)) % 1
        return (rank + start) / len(cells[cell]), turns[cell]

    return place


def draw_sets(prompt_sets: Sequence[PromptSet], limit: int | None) -> tuple[PromptSet, ...]:
    """Return the first `limit` sets of `sample_order`; None is all of them.

    The choice depends on the sets alone, not on their order, and a larger limit contains every
    smaller one: a run grows.

    Raises:
        InputError: a negative limit.
    """
    if limit is not None and limit < 0:
        raise InputError(f"--limit {limit}: expected 0 or more")
    return sample_order(prompt_sets)[:limit]


def sample_sets(prompt_sets: Sequence[PromptSet], limit: int | None) -> tuple[PromptSet, ...]:
    """Return the sample of `limit` sets in the dataset's order; see `draw_sets`."""
    if limit is None:
        return tuple(prompt_sets)
    chosen = {prompt_set.id for prompt_set in draw_sets(prompt_sets, limit)}
    return tuple(prompt_set for prompt_set in prompt_sets if prompt_set.id in chosen)


def _number_names(names: Iterable[str], salt: str) -> dict[str, int]:
    """Return a number for each name, which no order in a file or an alphabet decides."""
    ordered = sorted(set(names), key=lambda name: sha256_hex(salt + name))
    return {name: number for number, name in enumerate(ordered)}


_SOURCE = "https://raw.githubusercontent.com/Uppaal/OpenSafeIntent"
_MIRROR = "OPENSAFEINTENT_MIRROR"
_PAPER = "f446cccaf78f4992c3fd3b6450c5d508b44dc096"
_LATER = "9706897bc9ffdb328446141b2a4568c98c70843e"
_LONGEST = 64 * 2**20
_SECONDS, _MOST_SECONDS = 60, 600
"""That a mirror may be silent, and that a file may take in all."""


class Published(NamedTuple):
    """A file of the authors' repository."""

    revision: str
    path: str
    sha256: str
    sets: int = 0
    """Prompt-sets in it, if it is a dataset."""

    @property
    def address(self) -> str:
        """Source of the download: the repository, or the mirror in `OPENSAFEINTENT_MIRROR`."""
        base = os.environ.get(_MIRROR, "").strip() or _SOURCE
        return f"{base.rstrip('/')}/{self.revision}/{self.path}"


PUBLISHED: dict[str, Published] = {
    "opensafeintent-115": Published(
        _PAPER,
        "dataset.json",
        "041bc87e89bdfe0ce7174cbd59875d97293e844d2bdd8d3ace748becdbdd508e",
        sets=115,
    ),
    "opensafeintent-700": Published(
        _LATER,
        "dataset.json",
        "ad9ed2e8f190638b03afd81b69a1350f866706db08bb837b84332c54d29fe7ff",
        sets=700,
    ),
}
"""The datasets by name: the paper's 115 prompt-sets, and the 700 of a later release."""
MOST_PUBLISHED = max(published.sets for published in PUBLISHED.values())
"""Prompt-sets of the largest of them."""

_RUBRICS = {
    "helpfulness.txt": "b9292beeab7512a54e68d16620444c6ad705fd5b529dc31bb3eae61b3b4a62da",
    "harmfulness.txt": "d638a0f13a6aa166923e1b0f669b57c7eea5cb1fa470b6a7687dcdf66fe6bd61",
    "assistance_level_classification.txt": (
        "9b0f79ca1813a5a389af143ca11257ab40eddfb20775c195fedf604a45714e8c"
    ),
    "intent_classification.txt": "9eea106593f3094ec517a3de041a2adcfdc3492069ed6f43c9dbde3accf8999a",
}

PAPER_DATASET_HASH = "07115b06c60f3efa78fd23deee956eac5c1bd8bf7799c9cc35f376fbc2441998"
"""Of the canonical prompt-sets of the 115."""

RUBRIC_HASHES: dict[str, str] = {
    **{
        question.role: _RUBRICS[question.authors_rubric]
        for question in QUESTIONS
        if question.authors_rubric
    },
    "mode": _RUBRICS["assistance_level_classification.txt"],
    "strategy": _RUBRICS["intent_classification.txt"],
}
"""By the role that each of the paper's rubrics has here."""


def fetch_published_dataset(name: str) -> Path:
    """Return the file of a published dataset, verified; it is fetched if the cache does not hold
    it.

    Raises:
        InputError: it cannot be fetched or kept, or differs from the published one.
    """
    return _fetch_verified(PUBLISHED[name], name, "a copy on disk can be named as --dataset")


def fetch_published_rubrics() -> Path:
    """Return the folder of the paper's rubrics, each verified; they are fetched if the cache does
    not hold them.

    Raises:
        InputError: one cannot be fetched or kept, or differs from the published one.
    """
    paths = [
        _fetch_verified(
            Published(_PAPER, f"prompts/metrics/{name}", digest),
            f"the paper's rubric {name}",
            "a copy on disk can be named as --rubrics",
        )
        for name, digest in _RUBRICS.items()
    ]
    for stranger in paths[0].parent.glob("*.md"):
        raise InputError(f"{stranger}: is none of the paper's rubrics; remove it")
    return paths[0].parent


def _fetch_verified(file: Published, what: str, from_disk: str) -> Path:
    kept = find_cache() / file.revision / file.path
    with os_errors(f"{kept}: cannot read"):
        if kept.is_file() and sha256_hex(kept.read_bytes()) == file.sha256:
            return kept
    content = _fetch_content(file, what, from_disk)
    if (digest := sha256_hex(content)) != file.sha256:
        raise InputError(
            f"{what}: {remove_url_credentials(file.address)} holds another file than was published:"
            f" its SHA-256 is {digest[:12]}…, expected {file.sha256[:12]}…; nothing was kept"
        )
    with os_errors(f"{kept}: cannot write ({CACHE} names another folder for the cache)"):
        kept.parent.mkdir(parents=True, exist_ok=True)
    with write_beside(kept) as file_kept:
        file_kept.write(content)
    return kept


def _fetch_content(file: Published, what: str, from_disk: str) -> bytes:
    from http.client import HTTPException
    from urllib.error import HTTPError
    from urllib.request import urlopen

    shown = remove_url_credentials(file.address)
    if not file.address.startswith(("https://", "http://")) or shown != file.address:
        raise InputError(
            f"{_MIRROR}: {one_line(shown)} is no address; expected one that begins with"
            " https:// or http:// and names no user"
        )
    offline = f"; {from_disk}, or {_MIRROR} names another server"
    try:
        content, until = b"", time.monotonic() + _MOST_SECONDS
        with urlopen(file.address, timeout=_SECONDS) as reply:
            while len(content) <= _LONGEST and (part := reply.read1(_LONGEST)):
                content += part
                if time.monotonic() > until:
                    raise TimeoutError(f"took more than {_MOST_SECONDS} seconds")
            due = reply.headers.get("Content-Length")
    except HTTPError as error:
        raise InputError(
            f"{what}: {shown} answered {error.code} {clean_for_display(str(error.reason))}{offline}"
        ) from error
    except (OSError, HTTPException, ValueError) as error:
        reason = remove_url_credentials(str(getattr(error, "reason", None) or error))
        raise InputError(f"{what}: cannot fetch {shown}: {one_line(reason)}{offline}") from error
    if len(content) > _LONGEST or (due is not None and due.isdigit() and len(content) != int(due)):
        raise InputError(
            f"{what}: {shown} gave {len(content):,} bytes of {due or 'too many'}; run again to"
            " fetch it whole"
        )
    return content


class NotAtHand(InputError):
    """There is no dataset under a name, or it cannot be fetched."""


def read_dataset(
    name: str, taxonomy: Taxonomy | Path | None = None, max_rows: int | None = MOST_ROWS
) -> tuple[Dataset | None, list[str]]:
    """Read a dataset and list all its problems; the dataset is None if there are any.

    Args:
        name: `starter`, the path of a file or of a folder with a dataset card, or
            `hf:owner/name[@revision][#path]`.
        taxonomy: the labels that are valid, or the TOML file that has them; by default those of a
            `taxonomy.toml` beside the card, or the paper's.
        max_rows: prompt-sets that it may have; see `files.RowLimit`. None sets no limit.

    Raises:
        NotAtHand: there is nothing to read under that name.
        InputError: it has more than `max_rows`.
    """
    chosen = load_taxonomy(taxonomy) if isinstance(taxonomy, Path) else taxonomy
    try:
        origin = find_origin(name)
    except InputError as error:
        raise NotAtHand(*error.lines) from error
    if chosen is None and origin.taxonomy:
        chosen = load_taxonomy(origin.taxonomy)
    rows, limit = _Rows(chosen), RowLimit(max_rows)
    for file in origin.files:
        rows.add_file(file, limit)
    if len(rows.shapes) > 1:
        named = "; ".join(f"{shape} in {shown}" for shape, shown in rows.shapes.items())
        raise InputError(
            f"{name}: its files are in different formats, so more than one dataset ({named}); name"
            " one of them"
        )
    rows.join()
    problems = rows.problems
    if not rows.prompt_sets and not problems:
        problems = [Problem(f"{name}: no prompt-sets in it; expected at least one")]
    if problems:
        return None, distinct_problems(problems)
    return rows.make_dataset(name), []


class _Rows:
    """The rows of a dataset's files, as far as they were read, and their problems."""

    def __init__(self, taxonomy: Taxonomy | None) -> None:
        self._taxonomy = taxonomy
        """Whose labels are valid; None: the paper's, or of another benchmark its own."""
        self._foreign: dict[DataFile, list[Record]] = {}
        """Rows of another benchmark."""
        self._first: dict[str, tuple[str, PromptSet | None]] = {}
        """Each prompt-set with its location, by id; None for one with problems."""
        self.prompt_sets: list[PromptSet] = []
        self.problems: list[Problem] = []
        self.shapes: dict[str, str] = {}
        """The formats of the files, each with the first file that is in it."""
        self.unread: dict[str, None] = {}
        """Fields that are no part of a prompt-set, in their order."""
        self._left_out: tuple[str, ...] = ()

    def make_dataset(self, name: str) -> Dataset:
        """Return the dataset, if no row has a problem."""
        taxonomy = self._taxonomy or default_taxonomy()
        if self._foreign and self._taxonomy is None:
            domains = {item.harm_domain for item in self.prompt_sets if item.harm_domain}
            types = {item.task_type for item in self.prompt_sets if item.task_type}
            taxonomy = make_taxonomy(domains, types, taxonomy, name)
        sets, unread = tuple(self.prompt_sets), tuple(self.unread)
        return Dataset(dataset_name(name), sets, taxonomy, unread, self._left_out)

    def add_file(self, file: DataFile, limit: RowLimit) -> None:
        """Read the rows of a file; its first row tells its format."""
        shape: str | None = None
        try:
            for number, (location, data) in enumerate(read_records(file.path, file.shown, limit)):
                if not number and (shape := recognize_shape(data)):
                    self.shapes.setdefault(shape, file.shown)
                try:
                    record = Record(data, location)
                except Problem as problem:
                    self.problems.append(problem)
                    continue
                if shape in FOREIGN:
                    self._foreign.setdefault(file, []).append(record)
                else:
                    self._add(record, self._taxonomy or default_taxonomy())
        except Problem as problem:
            # a line that is not JSON: later lines cannot be trusted
            self.problems.append(problem)

    def join(self) -> None:
        """Make prompt-sets of the rows of another benchmark."""
        if not self._foreign or self.problems:
            return
        (shape,) = self.shapes
        try:
            joined = join_foreign(shape, self._foreign)
        except Problem as problem:
            self.problems += (problem, *problem.further)
            return
        self._left_out = joined.left_out
        for record in joined.records:
            self._add(record, self._taxonomy)

    def _add(self, record: Record, taxonomy: Taxonomy | None) -> None:
        """Add the prompt-set of a record, or its problems. Without a taxonomy any labels are
        valid.
        """
        prompt_set: PromptSet | None = None
        location = record.location
        try:
            prompt_set = parse_prompt_set(record, taxonomy)
        except Problem as problem:
            self.problems += (problem, *problem.further)
        stated = record.data.get("id") if prompt_set is None else prompt_set.id
        if not (isinstance(stated, str) and stated):
            return
        if earlier := self._first.get(stated):
            self.problems.append(_describe_repeated(record, stated, prompt_set, *earlier))
            return
        self._first[stated] = location, prompt_set
        if prompt_set is None:
            return
        self.prompt_sets.append(prompt_set)
        self.unread.update(dict.fromkeys(unread_fields(record.data)))


def _describe_repeated(
    record: Record, set_id: str, prompt_set: PromptSet | None, first: str, earlier: PromptSet | None
) -> Problem:
    """Return the problem of a row whose id an earlier row has. An id that the file does not state
    was made from labels and prompts, so these are equal.
    """
    place = record.location
    if "id" in record:
        duplicate = f"duplicate id {clean_for_display(set_id)!r}, first at {first}; ids are unique"
        return Problem(f"{place}, field {record.find_heading('id')}: {duplicate}", place)
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
        remaining = f" (and {len(further)} more; `dataset check` lists all)" if further else ""
        raise InputError(first + remaining)
    return dataset


def dataset_name(name: str) -> str:
    """Return the name of a dataset: that of its file or folder; for a `dataset.jsonl`, as builds
    write it, and a file that is half of a dataset, that of its folder.
    """
    if name == "starter" or name in PUBLISHED or name.startswith("hf:"):
        return name
    path = Path(name)
    if path.is_dir():
        return path.resolve().name
    by_folder = get_stem(path) == "dataset" or is_twin(path.name)
    return path.resolve().parent.name if by_folder else get_stem(path)


def find_origin(name: str) -> Origin:
    """Return the files of a dataset, and the taxonomy beside them.

    Raises:
        InputError: there is nothing under that name.
    """
    if name == "starter":
        path = Path(str(resources.files("opensafeintent").joinpath("data/starter.jsonl")))
        return Origin((DataFile(path, str(path)),))
    if name in PUBLISHED:
        return Origin((DataFile(fetch_published_dataset(name), name),))
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
        both = find_twins(path.parent, lambda file: str(path.parent / file), path.name)
        return (both if is_twin(path.name) else None) or Origin((DataFile(path, str(path)),))
    origin = find_twins(path, lambda file: str(path / file)) or files_by_card(
        path, lambda file: str(path / file)
    )
    if origin is None:
        raise InputError(
            f"{name}: is a folder without a dataset card (README.md) that names its data; name the"
            f" {LISTED} file in it"
        )
    return origin
