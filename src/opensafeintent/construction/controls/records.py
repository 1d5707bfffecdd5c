"""What the check of a dataset finds: records that are the rows of its tables and of its JSON."""

from __future__ import annotations

from typing import Literal

import msgspec

from opensafeintent.statistics import Estimate
from opensafeintent.taxonomy import Intent

Measure = Literal["words", "characters", "readability"]
Compared = Literal["two sets of one cell", "core prompts of a set", "dual-use wordings of a set"]


class Balance(msgspec.Struct, frozen=True, kw_only=True):
    """How equally the prompt-sets are spread over one kind of group."""

    of: Literal["cells", "harm domains", "task types"]
    groups: int
    """Of the taxonomy, the empty ones included."""
    empty: int
    least: int
    most: int
    """Prompt-sets in the smallest and in the largest group."""
    most_share: float
    """The largest group as a share of all prompt-sets; with equal groups 1 / groups."""
    evenness: float | None
    """Entropy of the shares over the logarithm of the number of groups: 1 is equal, 0 is all in one
    (Pielou 1966). None if there is only one group."""


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """A measure of the first minus the second intent's prompt within each prompt-set; None if there
    are too few sets for the number.
    """

    measure: Measure
    first: Intent
    second: Intent
    mean: Estimate
    """Over the prompt-sets that count: sets in scripts without spaces have only characters."""
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


class Accuracy(msgspec.Struct, frozen=True, kw_only=True):
    """How often words alone give the intent away, on prompt-sets that the classifier has not
    seen.
    """

    intents: tuple[Intent, ...]
    """The intents to choose from."""
    chance: float
    accuracy: Estimate
    """Interval over prompt-sets, those to learn from among them (`docs/dataset-check.md`)."""


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


class Likeness(msgspec.Struct, frozen=True, kw_only=True):
    """How alike some prompts are, by ROUGE-L F1."""

    prompts: Compared
    compared: int
    """Pairs of prompts of two sets; for prompts of one set, the sets that have two or more."""
    mean: float | None
    """Over sets, of the mean of every two prompts; not computed for two sets."""
    alike: int
    """Pairs of sets, or sets, with two prompts above 0.7."""
    highest: float | None
    """None if no two prompts share a word."""
    first: str | None
    second: str | None
    """The two prompts with the highest score: set id and variant."""


class DatasetCheck(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the check of a dataset finds."""

    dataset: str
    hash: str
    sets: int
    prompts: int
    seed: int
    findings: tuple[str, ...]
    """One line for each control."""
    left_out: tuple[str, ...]
    """What was not checked, and why."""
    balance: tuple[Balance, ...]
    differences: tuple[Difference, ...]
    classifier: tuple[Accuracy, ...]
    """Among all three intents first, then for each two; empty if left out."""
    words: tuple[TellingWord, ...]
    likeness: tuple[Likeness, ...]
    content_shift: dict[str, int]
    """Prompt-sets by how much of a full answer changes with intent: `none`, `partial`, `full`, and
    `unknown` for sets that do not say it."""

    @property
    def give_away(self) -> Estimate | None:
        """How often words alone tell benign from malicious; None if that was left out."""
        pair = ("benign", "malicious")
        return next((row.accuracy for row in self.classifier if row.intents == pair), None)
