"""Samples of prompt-sets: one order of a dataset, so that every prefix is a proportional sample."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

from opensafeintent.errors import InputError
from opensafeintent.files import sha256_hex
from opensafeintent.promptsets.record import PromptSet

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
    """
    dataset = sha256_hex("\0".join(sorted(item.id for item in prompt_sets)))
    cells: defaultdict[Cell, list[PromptSet]] = defaultdict(list)
    for prompt_set in sorted(prompt_sets, key=lambda item: sha256_hex(item.id)):
        cells[prompt_set.cell].append(prompt_set)
    place = _place(cells, dataset)
    places = {
        member.id: place(cell, rank)
        for cell, members in cells.items()
        for rank, member in enumerate(members)
    }
    return tuple(sorted(prompt_sets, key=lambda item: places[item.id]))


_Place = Callable[[Cell, int], tuple[float, int]]
"""Where the set of a rank, from 0, stands in the order, by its cell."""


def _place(cells: Mapping[Cell, Sequence[PromptSet]], dataset: str) -> _Place:
    domains, types = (_numbered((cell[part] for cell in cells), dataset) for part in (0, 1))

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


def drawn(prompt_sets: Sequence[PromptSet], limit: int | None) -> tuple[PromptSet, ...]:
    """Return the first `limit` sets of `sample_order`; None is all of them.

    The choice depends on the sets alone, not on their order, and a larger limit contains every
    smaller one: a run grows.

    Raises:
        InputError: a negative limit.
    """
    if limit is not None and limit < 0:
        raise InputError(f"--limit {limit}: expected 0 or more")
    return sample_order(prompt_sets)[:limit]


def sampled(prompt_sets: Sequence[PromptSet], limit: int | None) -> tuple[PromptSet, ...]:
    """Return the sample of `limit` sets in the dataset's order; see `drawn`."""
    chosen = {prompt_set.id for prompt_set in drawn(prompt_sets, limit)}
    return tuple(prompt_set for prompt_set in prompt_sets if prompt_set.id in chosen)


def _numbered(names: Iterable[str], salt: str) -> dict[str, int]:
    """Return a number for each name, which no order in a file or an alphabet decides."""
    ordered = sorted(set(names), key=lambda name: sha256_hex(salt + name))
    return {name: number for number, name in enumerate(ordered)}
