"""Rounds of stage 3: which topics' requests are asked for with the habits of which earlier ones.

A round is 42 topics in their order, and is told of the habits of the rounds before alone. What a
round was told is kept: a topic whose call failed, or that is added later, then changes nothing that
others were asked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import msgspec

from opensafeintent.construction.habits import ROUND, Habits, count_habits
from opensafeintent.construction.records import Draft, StageResult, Topic


class Round(msgspec.Struct, frozen=True, kw_only=True):
    """Some topics, and what was said of the habits of the rounds before."""

    topics: tuple[str, ...]
    """Ids."""
    habits: Habits


class Rounds:
    """The rounds of one build.

    Args:
        recorded: those that earlier runs began.
        save: keeps them; is called before the first call of a round.
    """

    def __init__(
        self,
        recorded: Sequence[Round] = (),
        save: Callable[[Sequence[Round]], None] = lambda _: None,
    ) -> None:
        self._rounds = list(recorded)
        self._save = save
        self._seen: set[str] = set()
        """Ids of this run's topics."""
        self._written: list[Draft] = []
        self._whole = True

    def of(self, topics: Sequence[Topic]) -> Iterator[tuple[Sequence[Topic], Habits]]:
        """Yield the topics of a round with the habits that it is told of; `add` what came of one
        round before the next is taken.
        """
        self._seen.update(topic.id for topic in topics)
        number_of = {
            topic_id: number for number, held in enumerate(self._rounds) for topic_id in held.topics
        }
        sizes = Counter(number_of.values())
        last = len(self._rounds) - 1
        if last < 0 or not self._seen.intersection(self._rounds[last].topics):
            last += 1
        for topic in topics:
            if topic.id not in number_of:
                last += sizes[last] >= ROUND
                number_of[topic.id] = last
                sizes[last] += 1
        for number in sorted({number_of[topic.id] for topic in topics}):
            members = [topic for topic in topics if number_of[topic.id] == number]
            yield members, self._enter(number, [topic.id for topic in members])

    def _enter(self, number: int, members: Sequence[str]) -> Habits:
        """Put topics into a round, and return what it is told."""
        if number == len(self._rounds):
            self._rounds.append(Round(topics=(), habits=count_habits(self._written)))
        held = self._rounds[number]
        if new := [topic_id for topic_id in dict.fromkeys(members) if topic_id not in held.topics]:
            self._rounds[number] = msgspec.structs.replace(held, topics=(*held.topics, *new))
            if self._whole:
                self._save(tuple(self._rounds))
        return held.habits

    def add(self, result: StageResult[Draft]) -> None:
        """Note what came of the round that was taken last."""
        self._written += result.kept
        if any(rejection.reason == "not_made" for rejection in result.rejected):
            self._whole = False  # what comes later is told too little, and is not asked in this run
