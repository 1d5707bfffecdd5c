"""Words, sentences and scripts of a text, as the controls of a dataset measure them."""

from __future__ import annotations

import re
import unicodedata

from opensafeintent.promptsets import PromptSet
from opensafeintent.taxonomy import CORE_VARIANTS

_WITHOUT_SPACES = (
    "\u0e00-\u0fff"  # Thai, Lao, Tibetan
    "\u1000-\u109f\u1780-\u17ff"  # Myanmar, Khmer
    "\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\uff66-\uff9f"  # Japanese syllables
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"  # Chinese characters
)
_UNSPACED = re.compile(f"[{_WITHOUT_SPACES}]")
_RUNS = re.compile(f"[{_WITHOUT_SPACES}]+|[^{_WITHOUT_SPACES}]+")
_MOST_UNSPACED = 0.25
"""Share of a set's letters: an English prompt may quote a Chinese phrase, a Japanese one name an
English product.
"""
_SENTENCE_END = re.compile(r"""[.!?…।؟]+["'”’»)\]]*(?=\s|$)|\n\s*\n""")


def has_spaces(prompt_set: PromptSet) -> bool:
    """Tell whether a set's triplet is in a script that puts spaces between words; the text decides,
    not `language`.
    """
    text = "".join(prompt_set.prompts.of(intent) for intent in CORE_VARIANTS)
    return len(_UNSPACED.findall(text)) <= _MOST_UNSPACED * sum(map(str.isalpha, text))


def readability_index(text: str) -> float:
    """Return the Automated Readability Index, 4.71 · characters / words + 0.5 · words / sentences −
    21.43.

    It needs no syllables, only letters and digits, words between white space, and sentences (Smith
    and Senter, Automated Readability Index, AMRL-TR-66-220, 1967). A sentence ends in a full stop,
    a question or an exclamation mark, or at an empty line. The unit is a school grade in the United
    States, for English prose. In other languages only differences between texts are meaningful.

    Args:
        text: one with a word or more, in a script with spaces.
    """
    words = len(text.split())
    sentences = sum(any(map(str.isalnum, part)) for part in _SENTENCE_END.split(text)) or 1
    return 4.71 * sum(map(str.isalnum, text)) / words + 0.5 * words / sentences - 21.43


class _Separators(dict[int, str | None]):
    """Translation of characters: letters, digits and their marks stay, others separate words."""

    def __missing__(self, code: int) -> str | None:
        char = chr(code)
        kind = unicodedata.category(char)
        translation: str | None = " "
        if kind[0] in "LNM" or char == "'":
            translation = char
        elif kind == "Cf":
            translation = None
        self[code] = translation
        return translation


_separators = _Separators({ord("’"): "'"})


def tokens(text: str) -> set[str]:
    """Return the different words of a text, case and punctuation aside.

    In scripts without spaces every two neighbouring characters count as a word.
    """
    words: set[str] = set()
    for word in unicodedata.normalize("NFKC", text).casefold().translate(_separators).split():
        for run in _RUNS.findall(word.strip("'")):
            if _UNSPACED.match(run) and len(run) > 1:
                words.update(run[start : start + 2] for start in range(len(run) - 1))
            else:
                words.add(run)
    return words
