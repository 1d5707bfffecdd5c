"""Quotations of a text that is not shown: a mark takes their place in what is shown beside it."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

WITHHELD_WORDS = "[the prompt of malicious intent, which is not shown here]"
"""Takes the place of a prompt, or of a part of it."""
OF_REQUEST = "[words of the request]"
"""Takes the place of a part of a request in a provider's error."""

_SHORTEST = 24
"""Characters: a shorter text inside another does not count as a quotation."""
_STRETCH = 8
"""Words that quote a part of a text."""
_WORD = re.compile(r"\w+")


Stretch = tuple[str, ...]
"""Eight words in lower case, as they follow one another."""


class UnsafeTexts(NamedTuple):
    """Numbers of texts in files that are hidden unless somebody asks for them."""

    responses: int
    """Responses that are not graded safe."""
    prompts: int
    """Prompts of malicious intent."""


class Hidden(NamedTuple):
    """A text that is not shown."""

    whole: str = ""
    """Empty if nothing is hidden."""
    stretches: frozenset[Stretch] = frozenset()
    """Those of it that are shown nowhere."""
    mark: str = WITHHELD_WORDS
    shown: frozenset[str] = frozenset()
    """Texts that are shown beside it and do not quote it as a whole: they hold no stretch."""
    by_longest: Mapping[str, Sequence[Stretch]] = {}
    """The stretches by their longest word: few texts hold it, so few have to be read for more."""

    @classmethod
    def of(
        cls,
        whole: str,
        stretches: Iterable[Stretch],
        mark: str = WITHHELD_WORDS,
        shown: Iterable[str] = (),
    ) -> Hidden:
        """Return a text with its stretches that are shown nowhere; `shown` are the other texts."""
        found = frozenset(stretches)
        beside = frozenset(text for text in shown if whole not in text)
        by_longest: dict[str, list[Stretch]] = {}
        for words in found:
            by_longest.setdefault(max(words, key=len), []).append(words)
        return cls(whole, found, mark, beside, by_longest)


@lru_cache(maxsize=16)
def hide_text(text: str, shown: tuple[str, ...] = ()) -> Hidden:
    """Return a text that is not shown.

    Args:
        text: the text.
        shown: texts that are shown beside it, and may have words in common with it.
    """
    stretches = frozenset(_yield_stretches(text)).difference(*map(_yield_stretches, shown))
    return Hidden.of(text, stretches, shown=shown)


def hide_prompt(wordings: Mapping[str, str], *, include_unsafe: bool) -> Hidden:
    """Return the malicious prompt of a set, of which the wordings are given by variant."""
    if include_unsafe:
        return Hidden()
    other_texts = (text for variant, text in wordings.items() if variant != "malicious")
    return hide_text(wordings["malicious"], tuple(other_texts))


def cut_quotation(text: str, hidden: Hidden) -> str:
    """Take a text that is not shown out of one that quotes it: as a whole, or a stretch of eight
    words or more.
    """
    if len(hidden.whole) < _SHORTEST or text in hidden.shown:
        return text
    text = text.replace(hidden.whole, hidden.mark)
    folded = text.casefold()
    may_quote = any(
        all(word in folded for word in words)  # or as a part of another word
        for longest, stretches in hidden.by_longest.items()
        if longest in folded
        for words in stretches
    )
    if not may_quote:
        return text  # as most are
    starts: deque[int] = deque(maxlen=_STRETCH)
    names: deque[str] = deque(maxlen=_STRETCH)
    kept: list[str] = []
    end = 0
    """Of the last quotation."""
    for word in _WORD.finditer(text):
        starts.append(word.start())
        names.append(word[0].casefold())
        if tuple(names) in hidden.stretches:
            if not kept or starts[0] > end:
                kept.append(text[end : starts[0]])
            end = word.end()
    return hidden.mark.join([*kept, text[end:]])


def cut_request(error: str, request: str) -> str:
    """Take out of an error what it quotes of the request that it answers."""
    in_request = _space_words(request)
    quoted = (phrase for phrase in _yield_stretches(error) if f" {' '.join(phrase)} " in in_request)
    return cut_quotation(error, Hidden.of(request, quoted, OF_REQUEST))


def _yield_stretches(text: str) -> Iterator[Stretch]:
    """Yield every stretch of eight words of a text."""
    words = _fold_words(text)
    return zip(*(words[at:] for at in range(_STRETCH)), strict=False)


def _fold_words(text: str) -> list[str]:
    """Return the words of a text in lower case."""
    return list(map(str.casefold, _WORD.findall(text)))


def _space_words(text: str) -> str:
    """Return the words of a text, with a space around each."""
    return f" {' '.join(_fold_words(text))} "
