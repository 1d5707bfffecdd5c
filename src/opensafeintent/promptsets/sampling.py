"""Which prompt-sets a sample holds: one order of a dataset, so that every prefix estimates what the whole does."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Literal

from opensafeintent.canonical import sha256_hex
from opensafeintent.errors import InputError
from opensafeintent.promptsets.record import PromptSet

__all__ = ["SampleRule", "drawn", "sample_order", "stratified_sample"]

Cell = tuple[str, str]

SampleRule = Literal["webster", "rounds"]
"""How a sample of N prompt-sets is drawn. `webster`: each cell by its share, the first N of `sample_order`. `rounds`: as
evenly over the cells as they allow, which was the only rule once; a small cell counts for more there than in the dataset."""


def sample_order(prompt_sets: Sequence[PromptSet]) -> tuple[PromptSet, ...]:
    """Return prompt-sets in the order in which samples take them: the first N are the sample of N, for any N.

    A prefix holds of each cell what its share of the dataset comes to, to within one set: sets are sorted by (r − ½)/N_h,
    where r is a set's rank within its cell by its id's hash and N_h the size of the cell. That is Webster's method of
    apportionment as a sequence (Balinski and Young, Fair Representation, 1982). Cells that tie take turns, so that harm
    domains and task types come evenly too, in an order that hashes of their names decide.
    """
    cells = _ranked(prompt_sets)
    domains, types = (_places(cell[part] for cell in cells) for part in (0, 1))
    turns = len(domains) * len(types)
    ordered = sorted(
        (
            (rank + 0.5) / len(members),
            (domains[cell[0]] * len(types) + types[cell[1]] * len(domains) + rank * _step(turns)) % turns,
            sha256_hex("\0".join(cell)),
            at,
        )
        for cell, members in cells.items()
        for rank, at in enumerate(members)
    )
    return tuple(prompt_sets[at] for *_, at in ordered)


def drawn(prompt_sets: Sequence[PromptSet], limit: int | None, rule: SampleRule = "webster") -> tuple[PromptSet, ...]:
    """Return the sample of `limit` sets by a rule, in the order of `sample_order`; None is all of them.

    The choice depends on the sets alone, not on their order, and a larger limit contains every smaller one: a run grows.
    """
    _check(limit)
    ordered = sample_order(prompt_sets)
    if limit is None or rule == "webster":
        return ordered[:limit]
    chosen = {prompt_set.id for prompt_set in stratified_sample(prompt_sets, limit)}
    return tuple(prompt_set for prompt_set in ordered if prompt_set.id in chosen)


def stratified_sample(prompt_sets: Sequence[PromptSet], limit: int | None) -> tuple[PromptSet, ...]:
    """Return `limit` sets, spread as evenly over the cells as the cells allow, in the dataset's order.

    The choice depends on the sets' ids alone, and a larger limit contains every smaller one.
    """
    _check(limit)
    if limit is None or limit >= len(prompt_sets):
        return tuple(prompt_sets)
    rounds = sorted(
        (rank, sha256_hex("\0".join(cell)), prompt_sets[at].id, at)
        for cell, members in _ranked(prompt_sets).items()
        for rank, at in enumerate(members)
    )
    return tuple(prompt_sets[at] for at in sorted(at for *_, at in rounds[:limit]))


def _check(limit: int | None) -> None:
    if limit is not None and limit < 0:
        raise InputError(f"a sample of {limit} prompt-sets; expected none or more")


def _ranked(prompt_sets: Sequence[PromptSet]) -> dict[Cell, list[int]]:
    """Return where the sets of each cell stand, in the order of their ids' hashes."""
    cells: defaultdict[Cell, list[int]] = defaultdict(list)
    for at in sorted(range(len(prompt_sets)), key=lambda at: sha256_hex(prompt_sets[at].id)):
        cells[prompt_sets[at].cell].append(at)
    return cells


def _places(names: Iterable[str]) -> dict[str, int]:
    """Return a place for each name, which no order in a file or an alphabet decides."""
    return {name: place for place, name in enumerate(sorted(set(names), key=sha256_hex))}


def _step(turns: int) -> int:
    """Return by how many turns each rank begins later than the one before: the golden section, so that none is favoured."""
    return round(turns * 0.6180339887)
