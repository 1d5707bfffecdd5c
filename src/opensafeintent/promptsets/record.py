"""The record of a prompt-set: one task worded benignly, ambiguously and maliciously, with
paraphrases; the order that samples are prefixes of; writing prompt-sets.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from hashlib import sha256
from importlib import resources
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any
from uuid import NAMESPACE_URL, uuid5

import msgspec

from opensafeintent.errors import InputError, install_extra
from opensafeintent.files import canonical_json, os_errors, sha256_hex, written_beside
from opensafeintent.hostile import one_line
from opensafeintent.taxonomy import ContentShift, Intent, Taxonomy, paraphrase_variant

if TYPE_CHECKING:
    import pyarrow as pa


class Prompts(msgspec.Struct, frozen=True, kw_only=True):
    """The triplet: one prompt for each intent."""

    benign: str
    dual_use: str
    malicious: str

    def of(self, intent: Intent) -> str:
        """Return the prompt worded for `intent`."""
        text: str = getattr(self, intent)
        return text


class PromptSet(msgspec.Struct, frozen=True, kw_only=True):
    """One underlying task, one harm domain, one task type: the unit of evaluation (paper, section
    2).
    """

    id: str
    harm_domain: str
    task_type: str
    underlying_task: str
    prompts: Prompts
    dual_use_paraphrases: tuple[str, ...] = ()
    dual_use_benign_use: str | None = None
    dual_use_misuse_risk: str | None = None
    content_shift: ContentShift | None = None
    source: str | None = None
    language: str | None = None

    @property
    def cell(self) -> tuple[str, str]:
        """The set's (harm domain, task type)."""
        return self.harm_domain, self.task_type

    def wordings(self) -> dict[str, str]:
        """Return every prompt by its variant name: the triplet first, then the paraphrases."""
        return msgspec.structs.asdict(self.prompts) | {
            paraphrase_variant(n): text for n, text in enumerate(self.dual_use_paraphrases, start=1)
        }

    def to_json(self) -> dict[str, Any]:
        """Return the record in the form of our JSONL; missing fields are left out."""
        record: dict[str, Any] = msgspec.to_builtins(self)
        return {field: value for field, value in record.items() if value is not None}


def content_id(
    harm_domain: str, task_type: str, prompts: Prompts, paraphrases: tuple[str, ...]
) -> str:
    """Return a stable id from a set's labels and prompts: 12 hexadecimal digits of a SHA-256."""
    return sha256_hex(
        canonical_json([harm_domain, task_type, msgspec.to_builtins(prompts), list(paraphrases)])
    )[:12]


class Dataset:
    """Prompt-sets with the taxonomy that they are labelled in.

    Its identity is the SHA-256 of its canonical prompt-sets sorted by id, not of a file's bytes:
    the same sets in another order, format or file are the same dataset.
    """

    def __init__(
        self,
        name: str,
        prompt_sets: tuple[PromptSet, ...],
        taxonomy: Taxonomy,
        unread: tuple[str, ...] = (),
    ) -> None:
        self.name = name
        self.prompt_sets = prompt_sets
        self.taxonomy = taxonomy
        self.unread = unread
        """Fields of its file that are no part of a prompt-set."""

    def __len__(self) -> int:
        return len(self.prompt_sets)

    @cached_property
    def hash(self) -> str:
        """SHA-256 of the canonical prompt-sets sorted by id, in hexadecimal."""
        digest = sha256()
        before = b"["
        for prompt_set in self.sorted.prompt_sets:  # one by one: there may be many
            digest.update(before + canonical_json(prompt_set.to_json()))
            before = b","
        digest.update(b"]" if self.prompt_sets else b"[]")
        return digest.hexdigest()

    @cached_property
    def sorted(self) -> Dataset:
        """The dataset with its prompt-sets sorted by id: numbers are computed in this order, not in
        the file's.
        """
        return Dataset(
            self.name,
            tuple(sorted(self.prompt_sets, key=lambda prompt_set: prompt_set.id)),
            self.taxonomy,
        )

    @cached_property
    def by_id(self) -> dict[str, PromptSet]:
        """The prompt-sets by id."""
        return {prompt_set.id: prompt_set for prompt_set in self.prompt_sets}

    @cached_property
    def variants(self) -> tuple[str, ...]:
        """Every variant that at least one set has: the triplet, then the paraphrases in order."""
        longest = max(self.prompt_sets, key=lambda prompt_set: len(prompt_set.dual_use_paraphrases))
        return tuple(longest.wordings())


# Samples of prompt-sets
# ------------------------------------------------------------------------------
# One order of a dataset, so that every prefix is a proportional sample of it.

Cell = tuple[str, str]

ORDER = 2
"""The version of the order that a new run has; a run goes on with its own."""


def sample_order(prompt_sets: Sequence[PromptSet], version: int = ORDER) -> tuple[PromptSet, ...]:
    """Return prompt-sets in the order in which samples take them: the first N are the sample of N,
    for any N.

    A prefix contains each cell in proportion to its share of the dataset, to within one set, and
    every set comes into a prefix with the same probability. Sets are sorted by (r − u_h)/N_h, with
    r a set's rank within its cell by its id's hash, and N_h the size of the cell: a systematic
    sample of each cell, with a start u_h that is uniform between 0 and 1 (Madow and Madow, Annals
    of Mathematical Statistics 15, 1944). The starts of the cells lie at equal distances, so that
    harm domains and task types come evenly too. Hashes of the dataset's ids decide where they begin
    and in which order the cells follow one another.

    Args:
        prompt_sets: all of a dataset.
        version: 2; or 1, in which every u_h was ½, so that large cells came before small ones.
    """
    dataset = sha256_hex("\0".join(sorted(item.id for item in prompt_sets)))
    cells: defaultdict[Cell, list[PromptSet]] = defaultdict(list)
    for prompt_set in sorted(prompt_sets, key=lambda item: sha256_hex(item.id)):
        cells[prompt_set.cell].append(prompt_set)
    place = _first_place(cells) if version == 1 else _place(cells, dataset)
    places = {
        member.id: place(cell, rank)
        for cell, members in cells.items()
        for rank, member in enumerate(members)
    }
    return tuple(sorted(prompt_sets, key=lambda item: places[item.id]))


_Place = Callable[[Cell, int], tuple[float, int, str]]
"""Where the set of a rank, from 0, stands in the order, by its cell."""


def _place(cells: Mapping[Cell, Sequence[PromptSet]], dataset: str) -> _Place:
    domains, types = (_numbered((cell[part] for cell in cells), dataset) for part in (0, 1))

    def diagonal(cell: Cell) -> tuple[int, int]:
        """Any few cells that follow one another differ in domain and type."""
        domain, kind = domains[cell[0]], types[cell[1]]
        return (kind - domain) % len(types), domain

    turns = {cell: turn for turn, cell in enumerate(sorted(cells, key=diagonal))}
    first = int(dataset[:12], 16) / 16**12

    def place(cell: Cell, rank: int) -> tuple[float, int, str]:
        start = (first + turns[cell] / len(turns)) % 1
        return (rank + start) / len(cells[cell]), turns[cell], ""

    return place


def _first_place(cells: Mapping[Cell, Sequence[PromptSet]]) -> _Place:
    domains, types = (_numbered(cell[part] for cell in cells) for part in (0, 1))
    turns = len(domains) * len(types)
    # each rank begins a golden section later than the one before: none is favoured
    step = round(turns * 0.6180339887)

    def place(cell: Cell, rank: int) -> tuple[float, int, str]:
        turn = domains[cell[0]] * len(types) + types[cell[1]] * len(domains)
        tied = (turn + rank * step) % turns
        return (rank + 0.5) / len(cells[cell]), tied, sha256_hex("\0".join(cell))

    return place


def drawn(
    prompt_sets: Sequence[PromptSet], limit: int | None, version: int = ORDER
) -> tuple[PromptSet, ...]:
    """Return the first `limit` sets of `sample_order`; None is all of them.

    The choice depends on the sets alone, not on their order, and a larger limit contains every
    smaller one: a run grows.

    Raises:
        InputError: a negative limit.
    """
    if limit is not None and limit < 0:
        raise InputError(f"--limit {limit}: expected 0 or more")
    return sample_order(prompt_sets, version)[:limit]


def sampled(
    prompt_sets: Sequence[PromptSet], limit: int | None, version: int = ORDER
) -> tuple[PromptSet, ...]:
    """Return the sample of `limit` sets in the dataset's order; see `drawn`."""
    chosen = {prompt_set.id for prompt_set in drawn(prompt_sets, limit, version)}
    return tuple(prompt_set for prompt_set in prompt_sets if prompt_set.id in chosen)


def _numbered(names: Iterable[str], salt: str = "") -> dict[str, int]:
    """Return a number for each name, which no order in a file or an alphabet decides."""
    ordered = sorted(set(names), key=lambda name: sha256_hex(salt + name))
    return {name: number for number, name in enumerate(ordered)}


# Write prompt-sets
# ------------------------------------------------------------------------------


def write_dataset(dataset: Dataset, path: Path) -> None:
    """Write a dataset to `path`, whole or not at all; its suffix names the format: `.jsonl` or
    `.parquet`.

    Raises:
        InputError: another suffix, a missing extra, or a path that cannot be written.
    """
    writers = {".jsonl": _write_jsonl, ".parquet": _write_parquet}
    if path.suffix not in writers:
        raise InputError(f"{path}: cannot tell the format; valid suffixes: {', '.join(writers)}")
    with os_errors(f"{path}: cannot write"):
        path.parent.mkdir(parents=True, exist_ok=True)
    with written_beside(path) as file:
        writers[path.suffix](dataset, file)


def _write_jsonl(dataset: Dataset, file: IO[bytes]) -> None:
    for prompt_set in dataset.prompt_sets:
        file.write(json.dumps(prompt_set.to_json(), ensure_ascii=False).encode() + b"\n")


def _write_parquet(dataset: Dataset, file: IO[bytes]) -> None:
    table = prompt_set_table(dataset)
    import pyarrow.parquet as pq

    pq.write_table(table, file)


def prompt_set_table(dataset: Dataset) -> pa.Table:
    """Return a dataset as an Arrow table in our format, a row a prompt-set.

    Raises:
        InputError: the extra `[parquet]` is missing.
    """
    try:
        import pyarrow as pa
    except ImportError as error:
        raise InputError(f"Parquet needs an extra: {install_extra('parquet')}") from error
    text = pa.string()
    schema = pa.schema(
        {
            "id": text,
            "harm_domain": text,
            "task_type": text,
            "underlying_task": text,
            "prompts": pa.struct({"benign": text, "dual_use": text, "malicious": text}),
            "dual_use_paraphrases": pa.list_(text),
            "dual_use_benign_use": text,
            "dual_use_misuse_risk": text,
            "content_shift": text,
            "source": text,
            "language": text,
        }
    )
    return pa.Table.from_pylist([item.to_json() for item in dataset.prompt_sets], schema=schema)


# Cards: their common parts, and text from outside in them
# ------------------------------------------------

_SIZES = (
    (1_000, "n<1K"),
    (10_000, "1K<n<10K"),
    (100_000, "10K<n<100K"),
    (1_000_000, "100K<n<1M"),
    (10_000_000, "1M<n<10M"),
)
"""The hub's names for numbers of rows."""
_MARKUP = re.compile(r"([\\`*_{}\[\]<>|#~&!$@])|(?<=:)(?=//)|(?<=www)(?=\.)")
"""Markup within a line of Markdown, addresses included."""
_NOT_IN_YAML = re.compile("[\ufffe\uffff]")
_CANARY = re.compile(r"\bcanary (?P<guid>[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12})\b")
_LONGEST = 2_000


class Plain(str):
    """A text that needs no escaping in a card: ours, or escaped already."""

    __slots__ = ()


def canary_of(dataset_hash: str) -> str:
    """Return the GUID by which a dataset is found in a training corpus; it is made from the
    dataset's hash.
    """
    return str(uuid5(NAMESPACE_URL, f"opensafeintent:dataset:{dataset_hash}"))


def canary_in(dataset: Dataset) -> str | None:
    """Return the canary that every record carries in its `source`; None if there is none, or more
    than one.
    """
    canaries = {
        match["guid"] if (match := _CANARY.search(item.source or "")) else None
        for item in dataset.prompt_sets
    }
    return canaries.pop() if len(canaries) == 1 else None


def markdown_text(text: str, most: int = _LONGEST) -> Plain:
    """Return a text as Markdown shows it: on one line and without markup."""
    return Plain(_MARKUP.sub(lambda match: "\\" + match.group(), one_line(text, most)))


def yaml_text(text: str, most: int = _LONGEST) -> Plain:
    """Return a text as a quoted YAML scalar on one line."""
    quoted = json.dumps(one_line(text, most), ensure_ascii=False)
    return Plain(_NOT_IN_YAML.sub(lambda match: f"\\u{ord(match.group()):04x}", quoted))


def size_category(rows: int) -> Plain:
    """Return the hub's name for a number of rows."""
    return Plain(next((name for most, name in _SIZES if rows < most), "n>10M"))


def render_card(template: str, values: Mapping[str, object]) -> str:
    """Fill a card's template, which may include the parts that all cards share (`purpose.md`, …).

    Values that are not `Plain` are escaped: text from outside is no markup in a card.
    """
    from jinja2 import Environment, FunctionLoader, StrictUndefined

    environment = Environment(
        loader=FunctionLoader(lambda name: template if name == "card" else _part(name)),
        autoescape=False,  # it is Markdown; `finalize` escapes text from outside
        undefined=StrictUndefined,
        keep_trailing_newline=True,
        finalize=lambda value: value if isinstance(value, Plain) else markdown_text(str(value)),
    )
    return environment.get_template("card").render(**values)


def _part(name: str) -> str:
    return resources.files("opensafeintent").joinpath(f"data/card/{name}").read_text("utf-8")
