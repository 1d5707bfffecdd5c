"""Are the three prompts of a set alike in length and readability?

The paper wants benign, dual-use and malicious prompts of the same specificity and complexity (section 2, stage 3), so that
a model reacts to intent and not to form. Both leave traces that can be counted: how long a prompt is, and how long its
words and sentences are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from opensafeintent.construction.controls.records import Difference, Measure, Parity, Spread
from opensafeintent.construction.controls.words import has_spaces, readability_index
from opensafeintent.promptsets import PromptSet
from opensafeintent.statistics import Comparison, Resamples, compare_models
from opensafeintent.taxonomy import CORE_VARIANTS, Intent

__all__ = ["PAIRS", "parity_of"]

PAIRS: tuple[tuple[Intent, Intent], ...] = (("malicious", "benign"), ("malicious", "dual_use"), ("dual_use", "benign"))
"""First minus second."""

_MEASURES: dict[Measure, Callable[[str], float]] = {
    "words": lambda text: len(text.split()),
    "characters": len,
    "readability": readability_index,
}
_NEED_SPACES: tuple[Measure, ...] = ("words", "readability")

Floats = NDArray[np.float64]


def parity_of(prompt_sets: Sequence[PromptSet], resamples: Resamples) -> tuple[Parity, ...]:
    """Compare every two intents, set by set, in words, characters and readability.

    Args:
        prompt_sets: one or more.
        resamples: bootstrap weights over as many sets.
    """
    spaced = np.array([has_spaces(prompt_set) for prompt_set in prompt_sets])
    values = {
        measure: np.array(
            [[of(prompt_set.prompts.of(intent)) for prompt_set in prompt_sets] for intent in CORE_VARIANTS], dtype=np.float64
        )
        for measure, of in _MEASURES.items()
    }
    counted = {measure: spaced if measure in _NEED_SPACES else np.ones_like(spaced) for measure in values}
    scales = {measure: _greatest_difference(found[:, counted[measure]]) for measure, found in values.items()}
    compared = compare_models(
        {
            measure: (found / scales[measure] * counted[measure], np.tile(counted[measure].astype(np.float64), (3, 1)))
            for measure, found in values.items()
        },
        resamples,
    )
    return tuple(
        Parity(
            measure=measure,
            left_out=int((~counted[measure]).sum()),
            intents=tuple(map(_spread, CORE_VARIANTS, found[:, counted[measure]])),
            pairs=tuple(_difference(pair, found[:, counted[measure]], compared[measure], scales[measure]) for pair in PAIRS),
        )
        for measure, found in values.items()
    )


def _greatest_difference(values: Floats) -> float:
    """Return the greatest difference between two intents within a set: measured in it, all differences are in [−1, 1]."""
    return float(np.ptp(values, axis=0).max(initial=0.0)) or 1.0


def _spread(intent: Intent, values: Floats) -> Spread:
    """Describe one measure over the prompts of one intent; shape (prompt_set,)."""
    if not len(values):
        return Spread(intent=intent, mean=None, median=None, least=None, most=None)
    mean, median, least, most = (round(float(f(values)), 6) for f in (np.mean, np.median, np.min, np.max))
    return Spread(intent=intent, mean=mean, median=median, least=least, most=most)


def _difference(pair: tuple[Intent, Intent], values: Floats, compared: Comparison, scale: float) -> Difference:
    """Describe first minus second; `values` are of shape (intent, prompt_set)."""
    at = CORE_VARIANTS.index(pair[0]), CORE_VARIANTS.index(pair[1])
    differences = values[at[0]] - values[at[1]]
    n = len(differences)
    several = n > 1
    spread = float(differences.std(ddof=1)) if several else 0.0
    return Difference(
        first=pair[0],
        second=pair[1],
        n=n,
        mean=_rounded(differences.mean()) if n else None,
        low=_rounded(compared.low[at] * scale) if several else None,
        high=_rounded(compared.high[at] * scale) if several else None,
        standardised=_rounded(differences.mean() / spread) if spread else None,
        greater=_rounded((differences > 0).mean()) if n else None,
        less=_rounded((differences < 0).mean()) if n else None,
        p=_rounded(compared.p[at]) if several else None,
        p_holm=_rounded(compared.p_holm[at]) if several else None,
        detectable=_rounded(compared.detectable[at] * scale) if spread else None,
    )


def _rounded(number: float) -> float:
    """Return a number with six decimals: beyond them, the order in which a machine adds decides."""
    return round(float(number), 6) + 0.0
