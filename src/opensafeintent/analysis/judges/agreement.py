"""How far the judges of a panel agree with one another."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Literal
from weakref import WeakKeyDictionary

import msgspec
import numpy as np
from numpy.typing import NDArray

from opensafeintent.analysis.groups import Group
from opensafeintent.analysis.judges.graders import judges_of_panel
from opensafeintent.analysis.judges.values import GRADES, HARM_GRADES, SAFE, Ratings
from opensafeintent.statistics import Estimate, rounded
from opensafeintent.statistics.samples import Sample

__all__ = ["Agreement", "agreements"]

Floats = NDArray[np.float64]

Confusion = tuple[tuple[int, ...], ...]


class Agreement(msgspec.Struct, frozen=True, kw_only=True):
    """Two judges, or all of a panel, on the responses that they were both asked about."""

    judges: tuple[str, ...]
    safe: Estimate
    """Share of pairs of judges that agree whether a response is safe."""
    safe_ac1: Estimate
    helpfulness: Estimate
    """Share of pairs that give the same grade."""
    helpfulness_ac2: Estimate
    """Gwet's AC2 with quadratic weights."""
    harm_severity: Estimate
    harm_severity_ac2: Estimate
    safe_rates: tuple[float | None, ...]
    """Share of responses that each judge calls safe, in the order of `judges`."""
    helpfulness_difference: Estimate | None = None
    """Of two judges: mean of the first's grade less the second's."""
    harm_severity_difference: Estimate | None = None
    confusion: dict[Literal["helpfulness", "harm_severity", "safe"], Confusion] = {}
    """Of two judges: how often the first gave one grade (row) and the second another (column), from the lowest grade on."""


_KNOWN: WeakKeyDictionary[Group, list[Agreement]] = WeakKeyDictionary()


def agreements(group: Group) -> list[Agreement]:
    """Return the agreement of every two judges, and of all together where there are three or more.

    Responses that count as refusals without a judge are left aside: nobody was asked about them.
    """
    if group not in _KNOWN:
        _KNOWN[group] = _agreements(group)
    return _KNOWN[group]


def _agreements(group: Group) -> list[Agreement]:
    judges = judges_of_panel(group)
    rows = [row for found in group.rows.values() for row in found if not row.refused and len(row.by_judge) > 1]
    if not rows:
        return []
    sample = Sample([row.set_id for row in rows])
    pairs = np.array(
        [[row.by_judge.get(judge, (None, None)) for judge in judges] for row in rows], dtype=np.float64
    )  # None becomes NaN
    chosen = [*combinations(range(len(judges)), 2), *([tuple(range(len(judges)))] if len(judges) > 2 else [])]
    return [_agreement([judges[at] for at in who], sample, pairs[:, list(who)]) for who in chosen]


def _agreement(judges: Sequence[str], sample: Sample, pairs: Floats) -> Agreement:
    helpfulness, harm = (Ratings(sample, pairs[:, :, what]) for what in (0, 1))
    safe = Ratings(sample, _safe(pairs[:, :, 1]))
    two = len(judges) == 2
    return Agreement(
        judges=tuple(judges),
        safe=safe.agreement(SAFE),
        safe_ac1=safe.gwet(SAFE, "identity"),
        helpfulness=helpfulness.agreement(GRADES),
        helpfulness_ac2=helpfulness.gwet(GRADES, "quadratic"),
        harm_severity=harm.agreement(HARM_GRADES),
        harm_severity_ac2=harm.gwet(HARM_GRADES, "quadratic"),
        safe_rates=tuple(_mean(rated) for rated in safe.ratings.T),
        helpfulness_difference=helpfulness.difference(3.0) if two else None,
        harm_severity_difference=harm.difference(3.0) if two else None,
        confusion={
            "helpfulness": helpfulness.confusion(GRADES),
            "harm_severity": harm.confusion(HARM_GRADES),
            "safe": safe.confusion(SAFE),
        }
        if two
        else {},
    )


def _mean(values: Floats) -> float | None:
    there = values[~np.isnan(values)]
    return rounded(there.mean()) if len(there) else None


def _safe(harm: Floats) -> Floats:
    """Return 1 where a harm grade says safe, 0 where not, NaN where there is none."""
    return np.where(np.isnan(harm), np.nan, (harm == 0).astype(np.float64))
