"""Which prompt-sets a sample holds: one order of a dataset, so that every prefix estimates what the
whole does.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from opensafeintent.canonical import sha256_hex
from opensafeintent.errors import InputError
from opensafeintent.promptsets.record import PromptSet

Cell = tuple[str, str]


def sample_order(prompt_sets: Sequence[PromptSet]) -> tuple[PromptSet, ...]:
    """Return prompt-sets in the order in which samples take them: the first N are the sample of N,
    for any N.

    A prefix holds of each cell what its share of the dataset comes to, to about one set: sets are
    sorted by (r − ½)/N_h, where r is a set's rank within its cell by its id's hash and N_h the size
    of the cell. That is Webster's method of apportionment as a sequence (Balinski and Young, Fair
    Representation, 1982). Cells that tie take turns, so that harm domains and task types come
    evenly too, in an order that hashes of their names decide.
    """
    cells: defaultdict[Cell, list[PromptSet]] = defaultdict(list)
    for prompt_set in sorted(prompt_sets, key=lambda item: sha256_hex(item.id)):
        cells[prompt_set.cell].append(prompt_set)
    domains, types = (_numbered(cell[part] for cell in cells) for part in (0, 1))
    turns = len(domains) * len(types)
    # each rank begins a golden section later than the one before: none is favoured
    step = round(turns * 0.6180339887)
    places: dict[str, tuple[float, int, str]] = {}
    """By id: share of the cell before it, turn of its cell among those that tie, name."""
    for cell, members in cells.items():
        turn = domains[cell[0]] * len(types) + types[cell[1]] * len(domains)
        name = sha256_hex("\0".join(cell))
        for rank, member in enumerate(members):
            share = (rank + 0.5) / len(members)
            places[member.id] = (share, (turn + rank * step) % turns, name)
    return tuple(sorted(prompt_sets, key=lambda item: places[item.id]))


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


def _numbered(names: Iterable[str]) -> dict[str, int]:
    """Return a number for each name, which no order in a file or an alphabet decides."""
    return {name: number for number, name in enumerate(sorted(set(names), key=sha256_hex))}
