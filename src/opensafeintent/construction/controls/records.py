"""What the check of a dataset finds: one record that holds everything, and can be written as
JSON.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from opensafeintent.taxonomy import Intent

Measure = Literal["words", "characters", "readability"]


class Count(msgspec.Struct, frozen=True, kw_only=True):
    """Prompt-sets in one cell."""

    harm_domain: str
    task_type: str
    sets: int


class Evenness(msgspec.Struct, frozen=True, kw_only=True):
    """How equally the prompt-sets are spread over the cells, the harm domains or the task types."""

    groups: int
    """Of the taxonomy, the empty ones included."""
    empty: int
    least: int
    most: int
    """Prompt-sets in the smallest and in the largest group."""
    least_share: float
    most_share: float
    """The same as shares of all prompt-sets; with equal groups both are 1 / groups."""
    evenness: float | None
    """Entropy of the shares over the logarithm of the number of groups: 1 is equal, 0 is all in one
    (Pielou 1966). None where there is one group only."""


class Balance(msgspec.Struct, frozen=True, kw_only=True):
    """Prompt-sets over the taxonomy."""

    cells: Evenness
    harm_domains: Evenness
    task_types: Evenness
    counts: tuple[Count, ...]
    """Every cell in the taxonomy's order, the empty ones included."""


class Spread(msgspec.Struct, frozen=True, kw_only=True):
    """One measure over the prompts of one intent; None where no prompt counts."""

    intent: Intent
    mean: float | None
    median: float | None
    least: float | None
    most: float | None


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """First minus second intent within each prompt-set; None where there are too few sets for the
    number.
    """

    first: Intent
    second: Intent
    n: int
    """Prompt-sets that count."""
    mean: float | None
    low: float | None
    high: float | None
    """95 % interval of the mean."""
    standardised: float | None
    """Mean over the standard deviation of the differences (Cohen's d_z)."""
    greater: float | None
    less: float | None
    """Shares of the sets in which the first is greater, and in which it is less."""
    p: float | None
    """Two-sided sign-flip permutation test of a zero mean."""
    p_adjusted: float | None
    """For the three pairs of intents, by step-down max-T."""
    detectable: float | None
    """2.8 standard errors: a difference that so many sets find four times in five."""


class Parity(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the three prompts of a set are alike in one measure."""

    measure: Measure
    left_out: int
    """Prompt-sets in scripts without spaces between words, where the measure has no meaning."""
    intents: tuple[Spread, ...]
    pairs: tuple[Difference, ...]


class Accuracy(msgspec.Struct, frozen=True, kw_only=True):
    """How often words alone give the intent away, on prompt-sets that the classifier has not
    seen.
    """

    intents: tuple[Intent, ...]
    """The intents to choose from."""
    chance: float
    value: float
    low: float
    high: float
    """95 % interval over prompt-sets, those to learn from among them (`docs/dataset-check.md`)."""


class Classification(msgspec.Struct, frozen=True, kw_only=True):
    """How many prompts of one intent were taken for one intent, in the choice among all three."""

    intent: Intent
    taken_for: Intent
    prompts: int


class TellingWord(msgspec.Struct, frozen=True, kw_only=True):
    """A word that speaks for one intent, with the number of sets in whose prompt of each intent it
    occurs.
    """

    intent: Intent
    word: str
    weight: float
    """In the logistic regression of this intent against the other two."""
    benign: int
    dual_use: int
    malicious: int


class Artefacts(msgspec.Struct, frozen=True, kw_only=True):
    """What a bag-of-words classifier learns about intent."""

    folds: int
    vocabulary: int
    """Words that occur in two or more prompt-sets."""
    accuracies: tuple[Accuracy, ...]
    """Among all three intents first, then for each two."""
    confusion: tuple[Classification, ...]
    words: tuple[TellingWord, ...]

    @property
    def give_away(self) -> Accuracy:
        """How often words alone tell benign from malicious."""
        return next(item for item in self.accuracies if item.intents == ("benign", "malicious"))


class Alike(msgspec.Struct, frozen=True, kw_only=True):
    """Two prompts and how alike they are."""

    first_id: str
    first_variant: str
    second_id: str
    second_variant: str
    score: float
    """ROUGE-L F1."""


class NearDuplicates(msgspec.Struct, frozen=True, kw_only=True):
    """Prompts of different sets of one cell that are alike."""

    threshold: float
    """Above it a pair is a near-duplicate."""
    compared: int
    """Pairs of prompts."""
    pairs: int
    """Pairs of sets with prompts above the threshold."""
    found: tuple[Alike, ...]
    """These pairs by their most similar prompts, the highest score first; 1,000 at most."""
    highest: Alike | None
    """None where no cell holds two sets."""


class Likeness(msgspec.Struct, frozen=True, kw_only=True):
    """How alike some prompts of one set are to one another, over the sets that have two or more of
    them.
    """

    sets: int
    mean: float | None
    median: float | None
    """Over the sets: a set's value is the mean ROUGE-L F1 over every two of its prompts."""
    highest: Alike | None
    alike: int
    """Sets with two prompts above the threshold of a near-duplicate."""


class WithinSets(msgspec.Struct, frozen=True, kw_only=True):
    """How alike the prompts of a set are to one another."""

    triplet: Likeness
    """Prompts of different intents: very alike ones are one sentence with a few words swapped."""
    dual_use: Likeness
    """The dual-use prompt and its paraphrases: very alike ones are hardly different wordings."""
    identical: tuple[Alike, ...]
    """Every two prompts of one set, whatever their intent, with the same words in the same order.
    """


class ContentShifts(msgspec.Struct, frozen=True, kw_only=True):
    """In how many prompt-sets a full answer to the benign prompt would serve the malicious one:
    fully, partly, not.
    """

    none: int
    partial: int
    full: int
    """How much of the answer changes with intent."""
    unknown: int
    """Prompt-sets that do not say it."""


class DatasetCheck(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the check of a dataset finds."""

    dataset: str
    hash: str
    sets: int
    prompts: int
    seed: int
    findings: tuple[str, ...]
    """What was found, a sentence or two each."""
    left_out: tuple[str, ...]
    """What was not checked, and why."""
    balance: Balance
    parity: tuple[Parity, ...]
    artefacts: Artefacts | None
    """None where left out."""
    near_duplicates: NearDuplicates
    within_sets: WithinSets
    content_shift: ContentShifts | None = None
    """None where no prompt-set says it."""
