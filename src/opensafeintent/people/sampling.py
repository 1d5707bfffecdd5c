"""Which responses people grade, with which probability, and in which order each of them meets the items."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from random import Random
from typing import TypeVar

import msgspec

from opensafeintent.errors import InputError
from opensafeintent.taxonomy import CORE_VARIANTS, DUAL_USE, is_dual_use

__all__ = ["Candidate", "Drawn", "allocate", "draw_responses", "draw_sets", "order_with_repeats"]

T = TypeVar("T")


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A response that could be shown to people: it has a text, and both of the judge's grades."""

    model: str
    set_id: str
    variant: str
    epoch: int
    safe: bool
    """By the judge, or by the panel of judges."""

    @property
    def intent(self) -> str:
        """The intent of its prompt; that of a paraphrase is dual-use."""
        return DUAL_USE if is_dual_use(self.variant) else self.variant


class Drawn(msgspec.Struct, frozen=True, kw_only=True):
    """A response in the sample."""

    candidate: Candidate
    weight: float
    """One over the probability with which it was drawn."""
    stratum: str


def draw_responses(candidates: Sequence[Candidate], sample: int, seed: int) -> list[Drawn]:
    """Draw single responses, stratified by model, intent and the judge's "safe".

    Every stratum gets the same number as far as it has that many, so that rare unsafe grades are seen often enough; the
    weights undo it.

    Raises:
        InputError: there are more strata than responses to draw: some would have no chance, and no weight could mend that.
    """
    strata: defaultdict[str, list[tuple[Candidate, ...]]] = defaultdict(list)
    for candidate in candidates:
        strata[_stratum(candidate.model, candidate.intent, candidate.safe)].append((candidate,))
    return _draw(strata, sample, seed, "responses")


def draw_sets(candidates: Sequence[Candidate], sample: int, seed: int) -> list[Drawn]:
    """Draw whole prompt-sets of a model: all three core responses of each, stratified by model and "all three safe".

    Args:
        candidates: sets of which a core response is missing are passed over.
        sample: sets to draw, each counted once for every model and epoch.
        seed: of the draw.

    Raises:
        InputError: as with `draw_responses`.
    """
    sets: defaultdict[tuple[str, str, int], dict[str, Candidate]] = defaultdict(dict)
    for candidate in candidates:
        sets[candidate.model, candidate.set_id, candidate.epoch][candidate.variant] = candidate
    strata: defaultdict[str, list[tuple[Candidate, ...]]] = defaultdict(list)
    for (model, _, _), found in sets.items():
        if all(variant in found for variant in CORE_VARIANTS):
            triplet = tuple(found[variant] for variant in CORE_VARIANTS)
            strata[_stratum(model, "set", all(candidate.safe for candidate in triplet))].append(triplet)
    return _draw(strata, sample, seed, "sets")


def _stratum(model: str, what: str, safe: bool) -> str:
    return f"{model} | {what} | {'safe' if safe else 'unsafe'}"


def _draw(strata: Mapping[str, Sequence[tuple[Candidate, ...]]], sample: int, seed: int, units: str) -> list[Drawn]:
    if not strata:
        raise InputError(f"nothing to sample: the run has no {units} with texts and grades of a judge")
    if sample < len(strata):
        raise InputError(
            f"--sample {sample}: there are {len(strata)} strata (model × intent × judged safe or not), and each needs one; "
            f"expected {len(strata)} or more, or fewer models with --model"
        )
    sizes = {stratum: len(members) for stratum, members in strata.items()}
    drawn = []
    for stratum, count in allocate(sizes, sample).items():
        members = sorted(strata[stratum], key=lambda unit: (unit[0].set_id, unit[0].variant, unit[0].epoch))
        for unit in Random(f"{seed}\0{stratum}").sample(members, count):
            weight = sizes[stratum] / count
            drawn += [Drawn(candidate=candidate, weight=weight, stratum=stratum) for candidate in unit]
    return sorted(
        drawn,
        key=lambda item: (item.candidate.model, item.candidate.set_id, item.candidate.variant, item.candidate.epoch),
    )


def allocate(sizes: Mapping[str, int], sample: int) -> dict[str, int]:
    """Share a sample out evenly over strata; what a small stratum cannot take goes to the others."""
    shares: dict[str, int] = {}
    left = min(sample, sum(sizes.values()))
    by_size = sorted(sizes, key=lambda stratum: (sizes[stratum], stratum))
    for place, stratum in enumerate(by_size):
        shares[stratum] = min(sizes[stratum], left // (len(by_size) - place))
        left -= shares[stratum]
    return dict(sorted(shares.items()))


def order_with_repeats(items: Sequence[T], repeat: float, random: Random) -> list[tuple[T, bool]]:
    """Return items in random order, a share of them twice: (item, whether this is its second showing).

    A second showing comes at least a quarter of the items after the first, so that it is not remembered; fewer than four
    items are never repeated. A share above zero repeats at least one.
    """
    first = list(items)
    random.shuffle(first)
    count = min(max(1, round(repeat * len(first))), len(first) // 2) if repeat and len(first) >= 4 else 0
    gap = max(2, len(first) // 4)
    repeated = sorted(random.sample(range(len(first) - gap), count))
    after: defaultdict[int, list[T]] = defaultdict(list)
    for place in repeated:
        after[random.randint(place + gap, len(first) - 1)].append(first[place])
    order: list[tuple[T, bool]] = []
    for place, item in enumerate(first):
        order.append((item, False))
        order += [(again, True) for again in after[place]]
    return order
