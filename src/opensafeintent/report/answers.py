"""The answer that a page begins with: which model is better, if a comparison decided it."""

from __future__ import annotations

from collections.abc import Iterator

from opensafeintent.analysis.cohort import Cohort
from opensafeintent.report.findings import FEWEST_SAID, PRIMARIES, contenders_of, in_order
from opensafeintent.report.sentences import Sentence, say


def answers(cohort: Cohort) -> list[Sentence]:
    """Return a sentence for each primary metric: which of two models is better, or the order of
    more of them as far as the comparisons decide it.
    """
    return [*_of_two(cohort), *_of_several(cohort)]


def _of_two(cohort: Cohort) -> Iterator[Sentence]:
    for metric, primary in PRIMARIES.items():
        order, comparison = contenders_of(cohort, metric), cohort.estimates.comparisons[metric]
        if len(order) != 2 or comparison.n[*order] < FEWEST_SAID:
            continue
        ahead, behind = in_order(comparison, order)
        low, high = (float(ends[behind, ahead]) for ends in (comparison.low, comparison.high))
        yield say(
            "answer_of_two",
            topic=primary.label,
            metric=metric,
            ahead=cohort.models[ahead],
            behind=cohort.models[behind],
            size=primary.difference(float(comparison.difference[behind, ahead])),
            low=_end(primary.difference(abs(low)), low),
            high=_end(primary.difference(abs(high)), high),
            sets=int(comparison.n[ahead, behind]),
            decided=bool(comparison.claimed[ahead, behind]),
        )


def _end(shown: str, value: float) -> str:
    """Return the end of an interval without its unit, with its sign."""
    return f"{'−' if value < 0 else ''}{shown.split(' point', maxsplit=1)[0]}"


def _of_several(cohort: Cohort) -> Iterator[Sentence]:
    for metric, primary in PRIMARIES.items():
        order, comparison = contenders_of(cohort, metric), cohort.estimates.comparisons[metric]
        if len(order) < 3:
            continue
        decided = [
            (
                cohort.models[model],
                [
                    cohort.models[other]
                    for other in order
                    if comparison.n[model, other] >= FEWEST_SAID
                    and comparison.worst_low[other, model] > 0
                ],
            )
            for model in order
        ]
        yield say(
            "answer_of_several",
            topic=primary.label,
            metric=metric,
            decided=[(model, others) for model, others in decided if others][:3],
            further=max(sum(bool(others) for _, others in decided) - 3, 0),
        )
