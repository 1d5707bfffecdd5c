"""ROUGE-L F1 of two texts on their words, and the decision "too similar"; both are exact."""

from __future__ import annotations

import string
from fractions import Fraction

import msgspec
from rapidfuzz.distance import LCSseq

from opensafeintent.errors import InputError
from opensafeintent.hostile import one_line

PAPER_THRESHOLD = Fraction(7, 10)
"""Prompts with a higher score are dropped (paper, section 3, stage 5)."""

_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


def words(text: str) -> list[str]:
    """Return the tokens that are compared: lower-cased, ASCII punctuation deleted, split on white
    space.
    """
    return text.lower().translate(_NO_PUNCTUATION).split()


class Overlap(msgspec.Struct, frozen=True):
    """How far the words of two texts agree in the same order."""

    lcs: int
    """Words in a longest common subsequence."""
    words: int
    """Words of the one text."""
    other_words: int
    """Words of the other."""

    @property
    def score(self) -> float:
        """ROUGE-L F1, 2·LCS/(n + m): the harmonic mean of LCS/n and LCS/m.

        It is 0 if neither text has a word.
        """
        total = self.words + self.other_words
        return 2 * self.lcs / total if total else 0.0


def overlap(text: str, other: str) -> Overlap:
    """Compare two texts exactly."""
    ids: dict[str, int] = {}  # a word's hash may collide
    first, second = (
        [ids.setdefault(word, len(ids)) for word in words(part)] for part in (text, other)
    )
    return Overlap(LCSseq.similarity(first, second), len(first), len(second))


class Threshold(msgspec.Struct, frozen=True):
    """From which score on two texts are too similar; decided in integers, so that a tie is a
    tie.
    """

    limit: Fraction
    inclusive: bool = False
    """Whether a score at the limit counts too (≥ in place of >)."""

    @classmethod
    def of(cls, limit: Fraction | float | str, *, inclusive: bool = False) -> Threshold:
        """Return the threshold that is written as `limit`: the float 0.7 and the text "0.7" are
        both 7/10 exactly.

        Raises:
            InputError: not a number above 0 and below 1; 1 itself is valid if `inclusive`.
        """
        exact = limit if isinstance(limit, Fraction) else _exact(str(limit))
        if exact is None or not 0 < exact <= 1 or (exact == 1 and not inclusive):
            raise InputError(
                f"threshold {one_line(str(limit), 60)}: expected a number above 0 and below 1, such"
                " as 0.7"
            )
        return cls(exact, inclusive)

    def needed(self, total: int) -> int:
        """Return the least LCS that counts, for two texts of `total` words together; 1 or more.

        With the limit p/q, F1 > p/q is 2q·LCS > p·(n + m): 20·LCS > 7·(n + m) for 0.7.
        """
        product, divisor = self.limit.numerator * total, 2 * self.limit.denominator
        return max(1, -(-product // divisor) if self.inclusive else product // divisor + 1)

    def met(self, pair: Overlap) -> bool:
        """Tell whether two texts are too similar."""
        return pair.lcs >= self.needed(pair.words + pair.other_words)


def _exact(text: str) -> Fraction | None:
    try:
        # a fraction would write out all digits of 1e999999999 or 1e-999999999
        return Fraction(text) if 0 < float(text) <= 1 else None
    except ValueError:
        return None
