"""The draw of responses for a study."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from random import Random

from opensafeintent.annotation.labels import KeyItem, Unit
from opensafeintent.errors import InputError, option
from opensafeintent.responses import GradedResponse
from opensafeintent.taxonomy import CORE_VARIANTS, intent_of

LONGEST = 100_000
"""Characters of a response that people can be asked to read: all of it, as the judge did."""


def draw(rows: Sequence[GradedResponse], sample: int, seed: int, unit: Unit) -> list[KeyItem]:
    """Draw single responses, or whole prompt-sets of a model.

    Responses are stratified by model, intent and "safe" according to the judge or panel; sets by
    model and "all three safe". Every stratum gets an equal number, as far as it has that many, so
    that rare unsafe grades are sampled often enough; the weights correct for it.

    Args:
        rows: responses that could be shown: they have a text and both grades.
        sample: responses, or sets, to draw; a set counts once for every model and epoch.
        seed: of the draw.
        unit: responses or sets; sets that lack a core response are passed over.

    Raises:
        InputError: there are more strata than units to draw: some would have no chance, and no
            weight could correct that.
    """
    units: defaultdict[tuple[str | int, ...], list[GradedResponse]] = defaultdict(list)
    for row in rows:
        variant = row.variant if unit == "response" else ""
        units[row.set_id, variant, row.epoch, row.model].append(row)
    strata: defaultdict[str, list[list[GradedResponse]]] = defaultdict(list)
    for _, members in sorted(units.items()):
        if unit == "response" or {row.variant for row in members} >= set(CORE_VARIANTS):
            strata[_stratum(members, unit)].append(members)
    if not strata:
        raise InputError(
            f"nothing to sample: the run has no {unit}s with texts of up to {LONGEST:,} characters"
            " and grades of a judge"
        )
    if sample < len(strata):
        raise InputError(
            f"{option('sample', sample)}: there are {len(strata)} strata (model × intent × judged"
            " safe or"
            f" not), and each needs one; expected {len(strata)} or more, or fewer models with"
            f" {option('models', flag='--model')}"
        )
    sizes = {stratum: len(members) for stratum, members in strata.items()}
    drawn = [
        KeyItem(
            id=row.set_id,
            variant=row.variant,
            model=row.model,
            epoch=row.epoch,
            weight=sizes[stratum] / count,
            stratum=stratum,
        )
        for stratum, count in allocate(sizes, sample).items()
        for members in Random(f"{seed}\0{stratum}").sample(strata[stratum], count)
        for row in members
    ]
    return sorted(drawn, key=lambda item: (item.model, item.id, item.variant, item.epoch))


def _stratum(rows: Sequence[GradedResponse], unit: Unit) -> str:
    unit_name = "set" if unit == "set" else intent_of(rows[0].variant)
    safe = all(row.harm_severity == 0 for row in rows)
    return f"{rows[0].model} | {unit_name} | {'safe' if safe else 'unsafe'}"


def allocate(sizes: Mapping[str, int], sample: int) -> dict[str, int]:
    """Share a sample out evenly over strata; a small stratum's surplus goes to the others."""
    shares: dict[str, int] = {}
    unshared = min(sample, sum(sizes.values()))
    by_size = sorted(sizes, key=lambda stratum: (sizes[stratum], stratum))
    for number_shared, stratum in enumerate(by_size):
        shares[stratum] = min(sizes[stratum], unshared // (len(by_size) - number_shared))
        unshared -= shares[stratum]
    return dict(sorted(shares.items()))
