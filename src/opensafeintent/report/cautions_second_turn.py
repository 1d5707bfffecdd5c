"""Limitations of the second turn of a run, in sentences; the words are in
`assets/sentences.jinja`.
"""

from __future__ import annotations

from collections.abc import Iterator

from opensafeintent.analysis.cohort import Cohort
from opensafeintent.analysis.estimates import AVERAGE
from opensafeintent.analysis.second_turn import PRIMARY_MEASURES, SecondTurn
from opensafeintent.calls.baselines import contenders
from opensafeintent.report.findings import FEWEST_SAID
from opensafeintent.report.sentences import Sentence, distrust
from opensafeintent.report.values import interval, number

_MISSING_SHARE = 0.02
"""Of a model's second replies: from here on, missing grades are a limitation."""


def second_turn_cautions(cohort: Cohort) -> Iterator[Sentence]:
    """Yield the limitations of the second turn; none without one."""
    if turn := cohort.second_turn:
        yield from _of_judges(turn)
        yield from _of_missing_replies(turn)


def _of_judges(turn: SecondTurn) -> Iterator[Sentence]:
    """Say that the judges' own shift was not measured, or that there is one."""
    if not turn.audits:
        yield distrust("second_turn_unaudited")
        return
    audit = turn.audits.get(AVERAGE) or next(iter(turn.audits.values()))
    shifts = []
    for measure in PRIMARY_MEASURES:
        shift = audit.of(measure.direct)
        if shift.n >= FEWEST_SAID and shift.leaves_out_zero:
            text = interval(shift.value, shift.low, shift.high, measure.unit, signed=True)
            shifts.append((measure.label, text))
    if shifts:
        yield distrust("second_turn_shift", shifts=shifts)


def _of_missing_replies(turn: SecondTurn) -> Iterator[Sentence]:
    """Say how many second replies of a model under test lack grades, and what that leaves open."""
    shares = {model: turn.coverage[model].lacking_share for model in contenders(turn.models)}
    lacking = [model for model, share in shares.items() if share >= _MISSING_SHARE]
    if not lacking:
        return
    worst = max(lacking, key=lambda model: shares[model])
    effects = {
        measure: turn.numbers[worst][measure.effect].worst_case for measure in PRIMARY_MEASURES
    }
    yield distrust(
        "second_turn_missing",
        model=worst,
        share=shares[worst],
        no_first_reply=turn.coverage[worst].no_first_reply,
        lacking=len(lacking),
        effects=[
            (
                "safety" if measure.unit == "share" else "utility",
                *(number(end, measure.unit, signed=True) for end in ends),
            )
            for measure, ends in effects.items()
            if ends
        ],
    )
