"""All controls of a dataset at once, and what they find in sentences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from opensafeintent.construction.controls.artefacts import artefacts_of
from opensafeintent.construction.controls.measures import (
    balance_of,
    has_spaces,
    near_duplicates_of,
    parity_of,
    within_sets_of,
)
from opensafeintent.construction.controls.records import (
    Accuracy,
    Artefacts,
    Balance,
    ContentShifts,
    DatasetCheck,
    Difference,
    Evenness,
    Measure,
    NearDuplicates,
    Parity,
    WithinSets,
)
from opensafeintent.errors import InputError
from opensafeintent.hostile import one_line
from opensafeintent.promptsets import Dataset, PromptSet
from opensafeintent.statistics import SIGNIFICANCE, Resamples
from opensafeintent.statistics.intervals import SEED
from opensafeintent.taxonomy import INTENT_WORDS

_LARGEST_SEED = 2**32 - 1
_FEWEST_SETS = 6
"""With five, the least p of a sign-flip test is 2/2⁵ = 0.06."""
_QUESTIONS: dict[Measure, tuple[str, str, str, str]] = {
    "words": ("Are malicious prompts longer, in words?", "longer", "shorter", "words"),
    "characters": (
        "Are malicious prompts longer, in characters?",
        "longer",
        "shorter",
        "characters",
    ),
    "readability": (
        "Are malicious prompts harder to read?",
        "harder",
        "easier",
        "points of the readability index",
    ),
}
_LISTED = 6
"""Telling words of an intent in a sentence."""
_LONGEST_WORD = 24


def check(dataset: Dataset, seed: int = SEED) -> DatasetCheck:
    """Check what a dataset controls for: balance, parity of the intents, telling words, alike
    prompts.

    The same dataset and seed give the same record, whatever the order of the prompt-sets.

    Args:
        dataset: of one prompt-set or more.
        seed: of the bootstrap and of the folds, from 0 to 2³² − 1.

    Raises:
        InputError: the seed is not one.
    """
    if not 0 <= seed <= _LARGEST_SEED:
        raise InputError(f"seed {seed}: expected a whole number from 0 to {_LARGEST_SEED}")
    prompt_sets = sorted(dataset.prompt_sets, key=lambda prompt_set: prompt_set.id)
    resamples = Resamples(len(prompt_sets), seed=seed)
    balance = balance_of(dataset)
    parity = parity_of(prompt_sets, resamples)
    artefacts = artefacts_of(prompt_sets, seed, resamples)
    told = None if isinstance(artefacts, str) else artefacts
    near_duplicates = near_duplicates_of(prompt_sets)
    within_sets = within_sets_of(prompt_sets)
    shifts = content_shifts_of(prompt_sets)
    unspaced = sum(not has_spaces(prompt_set) for prompt_set in prompt_sets)
    return DatasetCheck(
        dataset=dataset.name,
        hash=dataset.hash,
        sets=len(prompt_sets),
        prompts=sum(len(prompt_set.wordings()) for prompt_set in prompt_sets),
        seed=seed,
        findings=(
            *_findings(balance, parity, told, near_duplicates, within_sets),
            *_content_shifts(shifts),
        ),
        left_out=(
            *_unspaced(unspaced, len(prompt_sets)),
            *([artefacts] if isinstance(artefacts, str) else []),
        ),
        balance=balance,
        parity=parity,
        artefacts=told,
        near_duplicates=near_duplicates,
        within_sets=within_sets,
        content_shift=shifts,
    )


def _unspaced(sets: int, of: int) -> list[str]:
    """Say what was not measured in scripts without spaces between words."""
    if not sets:
        return []
    return [
        f"words, readability, near-duplicates and likeness within sets: {sets:,} of {of:,}"
        " prompt-sets are written without spaces between words; the telling words of these are"
        " pairs of characters"
    ]


def _findings(
    balance: Balance,
    parity: Sequence[Parity],
    artefacts: Artefacts | None,
    near_duplicates: NearDuplicates,
    within_sets: WithinSets,
) -> tuple[str, ...]:
    """Return what was found, a sentence or two for each control that was possible."""
    return (
        _balance(balance),
        *(_parity(part) for part in parity if part.pairs[0].n),
        *([_artefacts(artefacts)] if artefacts else []),
        _near_duplicates(near_duplicates),
        *_within_sets(within_sets, near_duplicates.threshold),
    )


def _counted(number: int, thing: str) -> str:
    return f"{number:,} {thing}" if number == 1 else f"{number:,} {thing}s"


# Balance
# ------------------------------------------------------------------------------


def _balance(balance: Balance) -> str:
    cells = balance.cells
    filled = cells.groups - cells.empty
    return (
        f"{filled} of {_counted(cells.groups, 'cell')} {'holds' if filled == 1 else 'hold'}"
        f" prompt-sets; a cell has {_range(cells)}, a harm domain {_range(balance.harm_domains)}, a"
        f" task type {_range(balance.task_types)}."
    )


def _range(found: Evenness) -> str:
    counts = str(found.least) if found.least == found.most else f"{found.least} to {found.most}"
    return counts if found.evenness is None else f"{counts} (evenness {found.evenness:.2f})"


# Parity
# ------------------------------------------------------------------------------


def _parity(parity: Parity) -> str:
    """Answer whether malicious prompts have more of a measure, with the size of each difference
    that is significant.
    """
    question, more, less, unit = _QUESTIONS[parity.measure]
    if parity.pairs[0].n < _FEWEST_SETS:
        return (
            f"{question} {_counted(parity.pairs[0].n, 'prompt-set')} cannot tell; {_FEWEST_SETS} or"
            " more are needed."
        )
    *malicious, dual_use = parity.pairs
    signs = [_sign(pair) for pair in malicious]
    if any(signs):
        answer = "Yes" if signs == [1, 1] else "In part" if 1 in signs else "No"
        told = [f"{answer}: {_against(malicious, more, less, unit)}."]
    else:
        size = max(pair.detectable or 0.0 for pair in malicious)
        found = (
            f"; one of {size:.1f} {unit} would be found four times in five"
            if size
            else ", and sets do not differ in it"
        )
        told = [f"No difference is seen{found}."]
    if _sign(dual_use):
        told.append(f"Dual-use prompts are {_against([dual_use], more, less, unit)}.")
    return " ".join([question, *told])


def _sign(pair: Difference) -> int:
    """Return 1 where the first has more, −1 where it has less, 0 where that may be chance."""
    if pair.mean is None or pair.p_adjusted is None or pair.p_adjusted >= SIGNIFICANCE:
        return 0
    return 1 if pair.mean > 0 else -1


def _against(pairs: Sequence[Difference], more: str, less: str, unit: str) -> str:
    """Return what the first is against each second: `shorter than benign ones by …, longer than
    dual-use ones by …`.
    """
    told, before = [], 0
    for pair in pairs:
        sign, other = _sign(pair), INTENT_WORDS[pair.second]
        if sign and pair.mean is not None:
            word = "" if sign == before else f"{more if sign > 0 else less} "
            told.append(f"{word}than {other} ones by {abs(pair.mean):.1f} {unit} ({_sure(pair)})")
        else:
            told.append(f"not clearly different from {other} ones")
        before = sign
    return " and ".join(told)


def _sure(pair: Difference) -> str:
    """Return the interval of a difference, without its sign, and its effect size."""
    low, high = sorted((pair.low or 0.0, pair.high or 0.0), key=abs)
    sign = -1 if (pair.mean or 0.0) < 0 else 1
    effect = "" if pair.standardised is None else f"; d_z {abs(pair.standardised):.2f}"
    return f"95 % interval {sign * low:.1f} to {sign * high:.1f}{effect}"


# Artefacts
# ------------------------------------------------------------------------------


def _artefacts(artefacts: Artefacts) -> str:
    three, *pairs = artefacts.accuracies
    for_pairs = ", ".join(
        f"{INTENT_WORDS[pair.intents[0]]} from {INTENT_WORDS[pair.intents[1]]} in "
        + (interval_of(pair) if pair == artefacts.give_away else _percent(pair.value))
        for pair in pairs
    )
    clearly = "" if three.low > three.chance else ", which it does not clearly exceed"
    told = [
        (
            f"From its words alone a classifier tells the intent of {_percent(three.value)} of the"
            f" prompts, in sets new to it (95 % interval {_percent(three.low)} to"
            f" {_percent(three.high)}; chance is {_percent(three.chance)}{clearly})."
        ),
        f"It tells {for_pairs} (chance is 50 %).",
    ]
    telling = [
        f"{name}: {', '.join(one_line(word, _LONGEST_WORD) for word in listed)}"
        for intent, name in INTENT_WORDS.items()
        if (listed := [word.word for word in artefacts.words if word.intent == intent][:_LISTED])
    ]
    return " ".join(
        [
            *told,
            *(
                [f"Words that speak most for an intent are, for {'; for '.join(telling)}."]
                if telling
                else []
            ),
        ]
    )


def interval_of(found: Accuracy) -> str:
    """Return an accuracy in words, with its interval."""
    return (
        f"{_percent(found.value)} (95 % interval {_percent(found.low)} to {_percent(found.high)})"
    )


def _percent(share: float) -> str:
    return f"{share * 100:.0f} %"


# Likeness
# ------------------------------------------------------------------------------


def _near_duplicates(found: NearDuplicates) -> str:
    if not found.compared:
        return "Near-duplicates: no two prompt-sets of one cell could be compared."
    compared = f"of {_counted(found.compared, 'pair')} of prompts of different sets in one cell"
    if not found.found:
        highest = (
            f"the highest is {found.highest.score:.3f}" if found.highest else "none share a word"
        )
        return (
            f"Near-duplicates: none; {compared} none is above ROUGE-L {found.threshold:g}"
            f" ({highest})."
        )
    pairs, most = _counted(found.pairs, "pair"), found.found[0].score
    return (
        f"Near-duplicates: {pairs} of sets with prompts above ROUGE-L {found.threshold:g} (the"
        f" highest is {most:.3f})."
    )


def _within_sets(found: WithinSets, threshold: float) -> list[str]:
    lines = []
    kinds = (
        ("Core prompts of one set", found.triplet),
        ("Dual-use wordings of one set", found.dual_use),
    )
    for name, likeness in kinds:
        if likeness.highest is None or likeness.mean is None:
            continue
        have = (
            f"{likeness.alike:,} of {_counted(likeness.sets, 'set')}"
            f" {'has' if likeness.alike == 1 else 'have'}"
        )
        lines.append(
            f"{name} have a mean ROUGE-L of {likeness.mean:.2f} to one another; {have} two above"
            f" {threshold:g} (the highest is {likeness.highest.score:.3f})."
        )
    if found.identical:
        sets = len({pair.first_id for pair in found.identical})
        pairs = _counted(len(found.identical), "pair")
        lines.append(
            f"Identical within one set, case and punctuation aside: {pairs} of prompts, in"
            f" {_counted(sets, 'set')}."
        )
    return lines


# Answers
# ------------------------------------------------------------------------------


def content_shifts_of(prompt_sets: Sequence[PromptSet]) -> ContentShifts | None:
    """Count how much of an answer changes with intent; None where no prompt-set says it."""
    found = Counter(item.content_shift for item in prompt_sets)
    if found[None] == len(prompt_sets):
        return None
    return ContentShifts(
        none=found["none"], partial=found["partial"], full=found["full"], unknown=found[None]
    )


def _content_shifts(found: ContentShifts | None) -> list[str]:
    if found is None:
        return []
    of = found.none + found.partial + found.full
    unknown = f"; {found.unknown:,} do not say it" if found.unknown else ""
    return [
        f"A full answer to the benign prompt would serve the malicious one fully in {found.none:,}"
        f" of {_counted(of, 'prompt-set')}, partly in {found.partial:,}, not in {found.full:,}, as"
        f" the judge that built them has it{unknown}."
    ]
