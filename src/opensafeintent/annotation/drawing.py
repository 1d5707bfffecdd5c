"""The draw of responses for a study."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from random import Random

from opensafeintent.annotation.labels import KeyItem, Unit
from opensafeintent.errors import InputError
from opensafeintent.responses import GradedResponse
from opensafeintent.taxonomy import CORE_VARIANTS, intent_of

LONGEST = 100_000
"""Characters of a response that people can be asked to read: all of it, as the judge did."""


def draw(rows: Sequence[GradedResponse], sample: int, seed: int, unit: Unit) -> list[KeyItem]:
    """Draw single responses, or whole prompt-sets of a model with all of their epochs.

    Responses are stratified by model, intent and "safe" according to the judge or panel; sets by
    model and "all three safe". Every model gets an equal number, and every stratum of a model, as
    far as it has that many. So each model has enough labels, and rare unsafe grades are sampled
    often enough; the weights correct for it.

    Args:
        rows: responses that could be shown: they have a text and both grades.
        sample: responses, or sets, to draw; a set counts once for every model.
        seed: of the draw.
        unit: responses or sets; an epoch of a set that lacks a core response is passed over.

    Raises:
        InputError: there are more strata than units to draw: some would have no chance, and no
            weight could correct that.
    """
    strata = _strata(rows, unit)
    if not strata:
        raise InputError(
            f"nothing to sample: the run has no {unit}s with texts of up to {LONGEST:,} characters"
            " and grades of a judge"
        )
    if sample < len(strata):
        raise InputError(
            f"--sample {sample}: there are {len(strata)} strata (model × intent × judged safe or"
            f" not), and each needs one; expected {len(strata)} or more, or fewer models with"
            " --model"
        )
    sizes = {stratum: len(members) for stratum, members in strata.items()}
    models = {stratum: members[0][0].model for stratum, members in strata.items()}
    shares = _by_model(sizes, models, sample)
    drawn = [
        KeyItem(
            id=row.set_id,
            variant=row.variant,
            model=row.model,
            epoch=row.epoch,
            weight=sizes[stratum] / count,
            stratum=stratum,
        )
        for stratum, count in shares.items()
        for members in Random(f"{seed}\0{stratum}").sample(strata[stratum], count)
        for row in members
    ]
    return sorted(drawn, key=lambda item: (item.model, item.id, item.variant, item.epoch))


def _strata(rows: Sequence[GradedResponse], unit: Unit) -> dict[str, list[list[GradedResponse]]]:
    """Return the units of each stratum, each with its responses."""
    whole = complete_sets(rows)
    units: defaultdict[tuple[str | int, ...], list[GradedResponse]] = defaultdict(list)
    for row in rows:
        if unit == "response":
            units[row.set_id, row.variant, row.epoch, row.model].append(row)
        elif (row.model, row.set_id, row.epoch) in whole:
            units[row.set_id, row.model].append(row)
    strata: defaultdict[str, list[list[GradedResponse]]] = defaultdict(list)
    for _, members in sorted(units.items()):
        strata[_stratum(members, unit)].append(members)
    return strata


def complete_sets(rows: Sequence[GradedResponse]) -> set[tuple[str, str, int]]:
    """Return the model, prompt-set and epoch of all core responses that are graded."""
    graded = Counter(
        (row.model, row.set_id, row.epoch)
        for row in rows
        if row.counts and row.variant in CORE_VARIANTS
    )
    return {place for place, count in graded.items() if count == len(CORE_VARIANTS)}


def _stratum(rows: Sequence[GradedResponse], unit: Unit) -> str:
    unit_name = "set" if unit == "set" else intent_of(rows[0].variant)
    safe = all(row.harm_severity == 0 for row in rows)
    return f"{rows[0].model} | {unit_name} | {'safe' if safe else 'unsafe'}"


def _by_model(sizes: Mapping[str, int], models: Mapping[str, str], sample: int) -> dict[str, int]:
    """Share a sample out evenly over models, and each model's part over its strata.

    A model whose part would be smaller than its number of strata gets one unit for each of them.

    Args:
        sizes: by stratum.
        models: by stratum.
        sample: units to share out, as many as strata or more.
    """
    of_model: defaultdict[str, dict[str, int]] = defaultdict(dict)
    for stratum, size in sizes.items():
        of_model[models[stratum]][stratum] = size
    rest = {model: sum(strata.values()) for model, strata in of_model.items()}
    least: dict[str, int] = {}
    while True:
        parts = allocate(rest, sample - sum(least.values()))
        short = [model for model, part in parts.items() if part < len(of_model[model])]
        if not short:
            break
        least |= {model: len(of_model[model]) for model in short}
        rest = {model: size for model, size in rest.items() if model not in least}
    return {
        stratum: share
        for model, part in sorted((least | parts).items())
        for stratum, share in allocate(of_model[model], part).items()
    }


def allocate(sizes: Mapping[str, int], sample: int) -> dict[str, int]:
    """Share a sample out evenly over strata; a small stratum's surplus goes to the others."""
    shares: dict[str, int] = {}
    unshared = min(sample, sum(sizes.values()))
    by_size = sorted(sizes, key=lambda stratum: (sizes[stratum], stratum))
    for number_shared, stratum in enumerate(by_size):
        shares[stratum] = min(sizes[stratum], unshared // (len(by_size) - number_shared))
        unshared -= shares[stratum]
    return dict(sorted(shares.items()))
