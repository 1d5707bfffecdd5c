"""Stylistic artefacts that reveal the intent: their frequency in each intent so far, and
instructions for the next requests.

Suppose benign requests always state a worthy role, and malicious ones never do: a reader could then
distinguish them without their content. The program counts openings, stated roles and named
settings. It asks the generator for the missing ones, so that no habit predicts an intent.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from typing import Literal, get_args

import msgspec

from opensafeintent.construction.items import Draft, cut_material
from opensafeintent.files import parse_toml, read_shipped, sha256_hex
from opensafeintent.taxonomy import CORE_VARIANTS, INTENT_WORDS, Intent

ROUND = 42
"""Topics of a round: their requests are asked for with the habits of the rounds before."""

Habit = Literal["role", "setting"]
"""The habits with phrases in `data/habits.toml`."""

_WORDING: dict[Habit, tuple[str, str, str]] = {
    "role": (
        "say who the asker is, or what work they are at",
        "says who the asker is",
        "does not say who the asker is",
    ),
    "setting": ("name a place or setting of work or study", "names a setting", "names no setting"),
}
"""By habit: its description, the instruction to have it, and the instruction not to have it."""
_FEWEST = 3
"""An opening of fewer requests is no habit."""
_LEAST_EXCESS = 0.03
"""An opening that one intent has more often than the mean of the three, by this share of its
requests, is one.
"""
_LISTED = 4
"""Openings of an intent in a request."""
_LONGEST_WORD = 20


class Habits(msgspec.Struct, frozen=True, kw_only=True):
    """How many requests have which habit, by intent."""

    requests: int = 0
    """Of each intent."""
    role: dict[Intent, int] = {}
    setting: dict[Intent, int] = {}
    openings: dict[Intent, dict[str, int]] = {}
    """First two words, of three requests or more, the most frequent first."""


@lru_cache(maxsize=1)
def _load_patterns() -> dict[Habit, re.Pattern[str]]:
    source = read_shipped("data/habits.toml")
    listed = parse_toml(source, dict[Habit, str], "habits.toml", "phrases by habit")
    return {
        habit: _compile_pattern(listed[habit].strip().splitlines()) for habit in get_args(Habit)
    }


def _compile_pattern(phrases: Sequence[str]) -> re.Pattern[str]:
    """Return a pattern for any of some phrases as whole words; `~` is any one word, and `a/b` is
    either.
    """
    either = [
        r"\s+".join(
            r"[\w'-]+" if word == "~" else f"(?:{'|'.join(map(re.escape, word.split('/')))})"
            for word in phrase.split()
        )
        for phrase in phrases
    ]
    return re.compile(rf"(?<![\w'])(?:{'|'.join(either)})(?![\w'])", re.IGNORECASE)


def has_habit(text: str, habit: Habit) -> bool:
    """Tell whether a text contains a phrase of a habit."""
    return _load_patterns()[habit].search(text.replace("’", "'")) is not None


def take_opening(text: str) -> str:
    """Return the first two words of a text in lower case, without punctuation."""
    words = re.findall(r"[^\W\d_]+(?:['-][^\W\d_]+)*", text.replace("’", "'").lower())
    return " ".join(word[:_LONGEST_WORD] for word in words[:2])


def count_habits(drafts: Sequence[Draft]) -> Habits:
    """Count the habits of the three prompts of some sets, the material that they quote aside."""
    texts = {
        intent: [cut_material(draft.prompts.of(intent)) for draft in drafts]
        for intent in CORE_VARIANTS
    }
    counts = {
        habit: {
            intent: sum(has_habit(text, habit) for text in texts[intent])
            for intent in CORE_VARIANTS
        }
        for habit in get_args(Habit)
    }
    openings = {}
    for intent in CORE_VARIANTS:
        counted = Counter(filter(None, map(take_opening, texts[intent])))
        frequent = (item for item in counted.items() if item[1] >= _FEWEST)
        openings[intent] = dict(sorted(frequent, key=lambda item: (-item[1], item[0])))
    return Habits(requests=len(drafts), openings=openings, **counts)


def habit_instructions(habits: Habits, topic_id: str) -> str:
    """Return the generator's account of the requests so far, and the instructions for those of one
    topic.

    Every intent is to reach the share of roles and settings that all have together. As many of the
    next `ROUND` requests as this takes are asked to have them, and the others are asked to do
    without. The topics' ids decide which topics these are.
    """
    if not habits.requests:
        return "Vary who asks and in which setting, in all three alike."
    lines = [f"Of {habits.requests} requests of each intent so far:"]
    lines += [
        f"- {_WORDING[habit][0]}: {_describe_counts(getattr(habits, habit))}"
        for habit in get_args(Habit)
        if any(getattr(habits, habit).values())
    ]
    begun = {intent: words for intent in CORE_VARIANTS if (words := _find_excess(habits, intent))}
    if begun:
        counts = (
            f"{INTENT_WORDS[intent]} "
            + ", ".join(f'"{word}" {habits.openings[intent][word]}' for word in words)
            for intent, words in begun.items()
        )
        lines.append(f"- begin more often than the others: {'; '.join(counts)}")
    asked = [
        f'- "{intent}": {"; ".join(wanted)}'
        for intent in CORE_VARIANTS
        if (wanted := _write_instructions(habits, intent, topic_id))
    ]
    return "\n".join([*lines, "", "Asked of this topic's:", *asked] if asked else lines)


def _describe_counts(counts: dict[Intent, int]) -> str:
    return ", ".join(f"{INTENT_WORDS[intent]} {counts[intent]}" for intent in CORE_VARIANTS)


def _write_instructions(habits: Habits, intent: Intent, topic_id: str) -> list[str]:
    instructions = []
    for habit in get_args(Habit):
        if any(getattr(habits, habit).values()):
            drawn = int(sha256_hex(f"{topic_id}\0{intent}\0{habit}")[:8], 16) / 2**32
            instructions.append(
                _WORDING[habit][1 if drawn < _compute_share(habits, habit, intent) else 2]
            )
    if avoided := _find_excess(habits, intent):
        instructions.append(f"does not begin with {_quote_words(avoided)}")
    elsewhere = [
        word
        for other_intent in CORE_VARIANTS
        if other_intent != intent
        for word in _find_excess(habits, other_intent)[:2]
    ]
    if borrowed := [word for word in dict.fromkeys(elsewhere) if word not in avoided]:
        instructions.append(f"may begin with {_quote_words(borrowed)}")
    return instructions


def _quote_words(words: Sequence[str]) -> str:
    return " or ".join(f'"{word}"' for word in words)


def _compute_share(habits: Habits, habit: Habit, intent: Intent) -> float:
    """Return the share of the next round's requests that should have a habit; outside [0, 1], all
    or none.
    """
    counts = getattr(habits, habit)
    of_all = sum(counts.values()) / (len(CORE_VARIANTS) * habits.requests)
    return float((of_all * (habits.requests + ROUND) - counts[intent]) / ROUND)


def _find_excess(habits: Habits, intent: Intent) -> list[str]:
    """Return the openings that an intent has clearly more often than the mean of the three, the
    clearest first.
    """
    counts = habits.openings

    def excess(word: str) -> float:
        return counts[intent][word] - sum(
            of_intent.get(word, 0) for of_intent in counts.values()
        ) / len(CORE_VARIANTS)

    least = max(_FEWEST - 1, _LEAST_EXCESS * habits.requests)
    return sorted(
        (word for word in counts[intent] if excess(word) >= least),
        key=lambda word: (-excess(word), word),
    )[:_LISTED]
