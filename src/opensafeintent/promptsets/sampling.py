"""Which prompt-sets a sample holds: one order of a dataset, so that every prefix estimates what the whole does."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Literal, NamedTuple

from opensafeintent.canonical import sha256_hex
from opensafeintent.errors import InputError
from opensafeintent.promptsets.record import PromptSet

__all__ = ["SampleRule", "cell_shares", "drawn", "sample_order", "sampled"]

Cell = tuple[str, str]

SampleRule = Literal["webster", "per_cell", "rounds"]
"""How a sample of N is drawn.

- `webster`: the first N prompt-sets of `sample_order`, of each cell its share.
- `per_cell`: N sets of every cell, or all where it has fewer; cells are then weighted by what they stand for.
- `rounds`: N sets in all, as evenly over the cells as they allow and not weighted. It was the only rule once; small cells
  count for more by it than they do in the dataset.
"""


class _Place(NamedTuple):
    """Where a prompt-set stands among the others."""

    rank: int
    """Within its cell, by its id's hash."""
    size: int
    """Of its cell."""
    turn: int
    """Its cell's among those that tie."""
    cell: str
    """Hash of its cell's name."""
    at: int
    """In the dataset."""


def sample_order(prompt_sets: Sequence[PromptSet]) -> tuple[PromptSet, ...]:
    """Return prompt-sets in the order in which samples take them: the first N are the sample of N, for any N.

    A prefix holds of each cell what its share of the dataset comes to, to about one set: sets are sorted by (r − ½)/N_h,
    where r is a set's rank within its cell by its id's hash and N_h the size of the cell. That is Webster's method of
    apportionment as a sequence (Balinski and Young, Fair Representation, 1982). Cells that tie take turns, so that harm
    domains and task types come evenly too, in an order that hashes of their names decide.
    """
    return _in_order(prompt_sets, lambda place: ((place.rank + 0.5) / place.size, place.turn, place.cell))


def drawn(prompt_sets: Sequence[PromptSet], limit: int | None, rule: SampleRule = "webster") -> tuple[PromptSet, ...]:
    """Return the sample of `limit` sets by a rule, in an order of which every prefix is such a sample; None is all of them.

    The choice depends on the sets alone, not on their order, and a larger limit contains every smaller one: a run grows.

    Raises:
        InputError: a negative limit.
    """
    if limit is not None and limit < 0:
        raise InputError(f"--limit {limit}: expected 0 or more")
    if limit is None or rule == "webster":
        return sample_order(prompt_sets)[:limit]
    if rule == "rounds":
        return _in_order(prompt_sets, lambda place: (place.rank, place.cell))[:limit]
    evenly = _in_order(prompt_sets, lambda place: (place.rank, place.turn, place.cell))
    return evenly[: sum(min(limit, size) for size in Counter(item.cell for item in prompt_sets).values())]


def sampled(prompt_sets: Sequence[PromptSet], limit: int | None, rule: SampleRule = "webster") -> tuple[PromptSet, ...]:
    """Return the sample of `limit` sets by a rule, in the dataset's order; see `drawn`."""
    chosen = {prompt_set.id for prompt_set in drawn(prompt_sets, limit, rule)}
    return tuple(prompt_set for prompt_set in prompt_sets if prompt_set.id in chosen)


def cell_shares(prompt_sets: Sequence[PromptSet], sample: Iterable[PromptSet]) -> dict[Cell, float]:
    """Return how many sets of its cell each set of a sample stands for, by cell: N_h/n_h of those that have any."""
    sizes = Counter(prompt_set.cell for prompt_set in prompt_sets)
    return {cell: sizes[cell] / count for cell, count in Counter(prompt_set.cell for prompt_set in sample).items()}


def _in_order(prompt_sets: Sequence[PromptSet], key: Callable[[_Place], tuple[float | str, ...]]) -> tuple[PromptSet, ...]:
    return tuple(prompt_sets[place.at] for place in sorted(_places(prompt_sets), key=key))


def _places(prompt_sets: Sequence[PromptSet]) -> Iterable[_Place]:
    """Yield the place of every set; those of one cell in the order of their ids' hashes."""
    cells: defaultdict[Cell, list[int]] = defaultdict(list)
    for at in sorted(range(len(prompt_sets)), key=lambda at: sha256_hex(prompt_sets[at].id)):
        cells[prompt_sets[at].cell].append(at)
    domains, types = (_numbered(cell[part] for cell in cells) for part in (0, 1))
    turns = len(domains) * len(types)
    step = round(turns * 0.6180339887)  # each rank begins a golden section later than the one before: none is favoured
    for cell, members in cells.items():
        turn = domains[cell[0]] * len(types) + types[cell[1]] * len(domains)
        name = sha256_hex("\0".join(cell))
        for rank, at in enumerate(members):
            yield _Place(rank, len(members), (turn + rank * step) % turns, name, at)


def _numbered(names: Iterable[str]) -> dict[str, int]:
    """Return a number for each name, which no order in a file or an alphabet decides."""
    return {name: number for number, name in enumerate(sorted(set(names), key=sha256_hex))}
