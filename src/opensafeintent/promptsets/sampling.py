"""A sample of prompt-sets that keeps the balance over cells."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from opensafeintent.canonical import sha256_hex
from opensafeintent.errors import InputError
from opensafeintent.promptsets.record import PromptSet

__all__ = ["stratified_sample"]


def stratified_sample(prompt_sets: Sequence[PromptSet], limit: int | None) -> tuple[PromptSet, ...]:
    """Return `limit` sets, spread as evenly over the cells as the cells allow, in the dataset's order.

    The choice depends on the sets' ids alone, and a larger limit contains every smaller one, so that a run grows.
    """
    if limit is not None and limit < 0:
        raise InputError(f"a sample of {limit} prompt-sets; expected none or more")
    if limit is None or limit >= len(prompt_sets):
        return tuple(prompt_sets)
    cells: defaultdict[tuple[str, str], list[PromptSet]] = defaultdict(list)
    for prompt_set in sorted(prompt_sets, key=lambda item: sha256_hex(item.id)):
        cells[prompt_set.cell].append(prompt_set)
    rounds = sorted(
        (place, sha256_hex("\0".join(cell)), prompt_set.id)
        for cell, members in cells.items()
        for place, prompt_set in enumerate(members)
    )
    chosen = {set_id for _, _, set_id in rounds[:limit]}
    return tuple(prompt_set for prompt_set in prompt_sets if prompt_set.id in chosen)
