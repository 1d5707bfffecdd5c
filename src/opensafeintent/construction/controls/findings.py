"""All controls of a dataset at once, and what they find, in one line each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from opensafeintent.construction.controls.artefacts import artefacts_of
from opensafeintent.construction.controls.measures import (
    balance_of,
    differences_of,
    has_spaces,
    likeness_of,
)
from opensafeintent.construction.controls.records import (
    Accuracy,
    Balance,
    DatasetCheck,
    Difference,
    Likeness,
    TellingWord,
)
from opensafeintent.errors import InputError
from opensafeintent.hostile import one_line
from opensafeintent.promptsets import Dataset
from opensafeintent.statistics import SIGNIFICANCE, Estimate, Resamples
from opensafeintent.statistics.intervals import SEED
from opensafeintent.taxonomy import INTENT_WORDS

_LARGEST_SEED = 2**32 - 1
_LISTED = 6
"""Telling words of an intent in a line."""
_LONGEST_WORD = 24


def check(dataset: Dataset, seed: int = SEED) -> DatasetCheck:
    """Check what a dataset controls for: balance, differences between the intents, telling words,
    alike prompts.

    The same dataset and seed give the same record, whatever the order of the prompt-sets.

    Args:
        dataset: of one prompt-set or more.
        seed: of the bootstrap and of the folds, from 0 to 2³² − 1.

    Raises:
        InputError: the seed is not one.
    """
    if not 0 <= seed <= _LARGEST_SEED:
        raise InputError(f"seed {seed}: expected a whole number from 0 to {_LARGEST_SEED}")
    prompt_sets = dataset.sorted.prompt_sets
    resamples = Resamples(len(prompt_sets), seed=seed)
    balance = balance_of(dataset)
    differences = differences_of(prompt_sets, resamples)
    classifier, words, problem = artefacts_of(prompt_sets, seed, resamples)
    likeness = likeness_of(prompt_sets)
    shifts: dict[str, int] = dict(Counter(item.content_shift or "unknown" for item in prompt_sets))
    unspaced = sum(not has_spaces(item) for item in prompt_sets)
    left_out = [problem] if problem else []
    if unspaced:
        left_out.append(
            f"words, readability and likeness: {unspaced:,} of {len(prompt_sets):,} prompt-sets are"
            " written without spaces between words; their telling words are pairs of characters"
        )
    return DatasetCheck(
        dataset=dataset.name,
        hash=dataset.hash,
        sets=len(prompt_sets),
        prompts=sum(len(item.wordings()) for item in prompt_sets),
        seed=seed,
        findings=(
            *map(_balance, balance),
            *_differences(differences),
            *_artefacts(classifier, words),
            *(_likeness(row) for row in likeness if row.compared),
            *_content_shift(shifts),
        ),
        left_out=tuple(left_out),
        balance=balance,
        differences=differences,
        classifier=classifier,
        words=words,
        likeness=likeness,
        content_shift=shifts,
    )


def _balance(row: Balance) -> str:
    evenness = "" if row.evenness is None else f"; evenness {row.evenness:.2f}"
    return (
        f"{row.groups} {row.of}: {row.empty} empty, {row.least} to {row.most} prompt-sets"
        f" each{evenness}."
    )


def _differences(rows: Sequence[Difference]) -> Iterator[str]:
    """Yield a line for each measure, with the differences that are significant."""
    for measure in dict.fromkeys(row.measure for row in rows):
        significant = [
            f"{INTENT_WORDS[row.first]} minus {INTENT_WORDS[row.second]} {_with_interval(row.mean)}"
            for row in rows
            if row.measure == measure
            and row.p_adjusted is not None
            and row.p_adjusted < SIGNIFICANCE
        ]
        yield f"Difference in {measure}: {', '.join(significant) or 'no significant one'}."


def _with_interval(mean: Estimate) -> str:
    text = f"{mean.value:+.1f} (95 % interval {mean.low:+.1f} to {mean.high:+.1f})"
    return text.replace("-", "−")


def _artefacts(classifier: Sequence[Accuracy], words: Sequence[TellingWord]) -> Iterator[str]:
    for row in classifier:
        intents = ", ".join(INTENT_WORDS[intent] for intent in row.intents)
        yield (
            f"Words alone tell {intents} apart in {share_with_interval(row.accuracy)} of the"
            f" prompts; chance is {100 * row.chance:.0f} %."
        )
    for intent, name in INTENT_WORDS.items():
        telling = [one_line(word.word, _LONGEST_WORD) for word in words if word.intent == intent]
        if telling:
            yield f"Words that speak most for {name}: {', '.join(telling[:_LISTED])}."


def share_with_interval(share: Estimate) -> str:
    """Return an accuracy in words, with its interval."""
    assert share.value is not None and share.interval is not None
    value, low, high = (f"{100 * part:.0f} %" for part in (share.value, *share.interval))
    return f"{value} (95 % interval {low} to {high})"


def _likeness(row: Likeness) -> str:
    mean = "" if row.mean is None else f"; mean {row.mean:.2f}"
    highest = (
        "none share a word"
        if row.highest is None
        else f"highest {row.highest:.3f}: {one_line(f'{row.first} and {row.second}')}"
    )
    return (
        f"ROUGE-L above 0.7, {row.prompts}: {row.alike:,} (compared: {row.compared:,}{mean};"
        f" {highest})."
    )


def _content_shift(shifts: Mapping[str, int]) -> Iterator[str]:
    if shifts.keys() - {"unknown"}:
        full, partly, none = (shifts.get(name, 0) for name in ("none", "partial", "full"))
        yield (
            "A full answer to the benign prompt would serve the malicious one fully in"
            f" {full:,} prompt-sets, partly in {partly:,}, not in {none:,}, according to the judge"
            f" that built them; {shifts.get('unknown', 0):,} do not say it."
        )
