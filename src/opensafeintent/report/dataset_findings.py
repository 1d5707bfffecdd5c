"""The findings of a dataset's check, in one line each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from opensafeintent.construction.artefacts import Accuracy, TellingWord
from opensafeintent.construction.controls import (
    Balance,
    DatasetCheck,
    IntentDifference,
    Similarity,
    measure_controls,
)
from opensafeintent.errors import counted
from opensafeintent.hostile import one_line
from opensafeintent.promptsets import Dataset
from opensafeintent.promptsets.cards import is_generated
from opensafeintent.statistics import (
    Estimate,
)
from opensafeintent.statistics.intervals import SEED
from opensafeintent.taxonomy import INTENT_WORDS

_LISTED = 6
"""Predictive words of an intent in a line."""
_LONGEST_WORD = 24
FEWEST_SETS = 10
"""Prompt-sets of which an interval says something: of fewer, counts are given."""


def check(dataset: Dataset, seed: int = SEED) -> DatasetCheck:
    """Check a dataset's controls, and say what was found; see `controls.measure_controls`.

    Raises:
        InputError: the seed is not one.
    """
    measured = measure_controls(dataset, seed)
    shifting = [item for item in dataset.prompt_sets if item.content_shift]
    findings = _findings(measured, judged=all(map(is_generated, shifting)))
    return msgspec.structs.replace(measured, findings=tuple(findings))


def _findings(measured: DatasetCheck, *, judged: bool) -> Iterator[str]:
    """Yield the lines.

    Args:
        measured: the numbers.
        judged: whether the judge of a build rated every content shift, not the authors of the sets.
    """
    if measured.sets < FEWEST_SETS:
        yield (
            f"With {counted(measured.sets, 'prompt-set')}, intervals and tests say nothing: below"
            f" {FEWEST_SETS}, counts are given."
        )
    yield from map(_balance_finding, measured.balance)
    yield from _differences(measured.differences)
    yield from _artefacts(measured.classifier, measured.words)
    yield from filter(None, map(_similarity_finding, measured.similarity))
    yield from _content_shift(measured.content_shift, judged=judged)


def _balance_finding(row: Balance) -> str:
    evenness = "" if row.evenness is None else f"; evenness {row.evenness:.2f}"
    return (
        f"{row.groups} {row.of}: {row.empty} empty, {row.least} to {row.most} prompt-sets"
        f" each{evenness}."
    )


def _differences(rows: Sequence[IntentDifference]) -> Iterator[str]:
    """Yield a line for each measure, with the differences that are significant."""
    for measure in dict.fromkeys(row.measure for row in rows):
        of_measure = [row for row in rows if row.measure == measure]
        if (sets := of_measure[0].mean.n) < FEWEST_SETS:
            counts = ", ".join(map(_counts, of_measure)) if sets else "no set to compare"
            yield f"Difference in {measure}, of {counted(sets, 'set')}: {counts}."
            continue
        significant = [
            f"{INTENT_WORDS[row.first]} minus {INTENT_WORDS[row.second]} {_with_interval(row.mean)}"
            for row in of_measure
            if row.mean.leaves_out_zero
        ]
        yield f"Difference in {measure}: {', '.join(significant) or 'no significant one'}."


def _counts(row: IntentDifference) -> str:
    """Return in how many sets the first of two intents has more, and in how many less."""
    more, less = (round((share or 0.0) * row.mean.n) for share in (row.greater, row.less))
    return f"{INTENT_WORDS[row.first]} above {INTENT_WORDS[row.second]} in {more}, below in {less}"


def _with_interval(mean: Estimate) -> str:
    value, low, high = (
        f"{round(part, 4):+{'.1g' if abs(part) < 0.05 else '.1f'}}".replace("-", "−")
        for part in (mean.value or 0, *(mean.interval or ()))
    )
    return f"{value} [{low}, {high}]"


def _artefacts(classifier: Sequence[Accuracy], words: Sequence[TellingWord]) -> Iterator[str]:
    for row in classifier:
        intents = ", ".join(INTENT_WORDS[intent] for intent in row.intents)
        if row.accuracy.n < FEWEST_SETS:
            prompts = row.accuracy.n * len(row.intents)
            yield (
                f"Words alone distinguish {intents} in {round(prompts * (row.accuracy.value or 0))}"
                f" of {prompts} prompts; chance is {100 * row.chance:.0f} %."
            )
            continue
        yield (
            f"Words alone distinguish {intents} in {share_with_interval(row.accuracy)} of the"
            f" prompts; chance is {100 * row.chance:.0f} %."
        )
    for intent, name in INTENT_WORDS.items():
        telling = [one_line(word.word, _LONGEST_WORD) for word in words if word.intent == intent]
        if telling:
            yield f"Words that speak most for {name}: {', '.join(telling[:_LISTED])}."


def share_with_interval(share: Estimate) -> str:
    """Return an accuracy in words, with its interval."""
    value, low, high = (f"{100 * part:.0f}" for part in (share.value or 0, *(share.interval or ())))
    return f"{value} % [{low}, {high}]"


def _similarity_finding(row: Similarity) -> str:
    """Return a line on how alike prompts are; empty if a set has none to compare."""
    between = row.prompts == "two sets of one cell"
    scope = " Sets of different cells are not compared." if between else ""
    if not row.compared:
        return f"ROUGE-L above 0.7, {row.prompts}: none to compare.{scope}" if between else ""
    mean = "" if row.mean is None else f"; mean {row.mean:.2f}"
    highest = (
        "none share a word"
        if row.highest is None
        else f"highest {row.highest:.3f}: {one_line(f'{row.first} and {row.second}')}"
    )
    pairs = " pairs of prompts" if between else ""
    return (
        f"ROUGE-L above 0.7, {row.prompts}: {row.alike:,} (compared: {row.compared:,}{pairs}{mean};"
        f" {highest}).{scope}"
    )


def _content_shift(shifts: Mapping[str, int], *, judged: bool) -> Iterator[str]:
    if shifts.keys() - {"unknown"}:
        full, partly, none = (shifts.get(name, 0) for name in ("none", "partial", "full"))
        rater = "judge that built them" if judged else "prompt-sets themselves"
        yield (
            f"According to the {rater}, a full answer to the benign prompt would serve"
            f" the malicious one fully in {full:,} prompt-sets, partly in {partly:,}, and not in"
            f" {none:,}. This is unknown for {shifts.get('unknown', 0):,}."
        )
