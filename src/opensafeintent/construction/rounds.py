"""The rounds of stage 3: 42 topics each, in their order.

In each round the generator sees the habits of the rounds before alone. A round's instructions are
kept. So a topic whose call failed, or that is added later, changes no other request.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import msgspec

from opensafeintent.construction.habits import ROUND, Habits, count_habits
from opensafeintent.construction.records import (
    Draft,
    StageResult,
    Topic,
)


class Round(msgspec.Struct, frozen=True, kw_only=True):
    """Some topics, and the account of the habits of the rounds before."""

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
        self._topic_ids: set[str] = set()
        """Ids of this run's topics."""
        self._written: list[Draft] = []
        self._whole = True

    def of(self, topics: Sequence[Topic]) -> Iterator[tuple[Sequence[Topic], Habits]]:
        """Yield the topics of a round with the habits that it is shown; `add` a round's result
        before taking the next round.
        """
        self._topic_ids.update(topic.id for topic in topics)
        number_of = {
            topic_id: number
            for number, begun in enumerate(self._rounds)
            for topic_id in begun.topics
        }
        sizes = Counter(number_of.values())
        last = len(self._rounds) - 1
        if last < 0 or not self._topic_ids.intersection(self._rounds[last].topics):
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
        """Put topics into a round, and return the habits that it is shown."""
        if number == len(self._rounds):
            self._rounds.append(Round(topics=(), habits=count_habits(self._written)))
        current = self._rounds[number]
        if new := [
            topic_id for topic_id in dict.fromkeys(members) if topic_id not in current.topics
        ]:
            self._rounds[number] = msgspec.structs.replace(current, topics=(*current.topics, *new))
            if self._whole:
                self._save(tuple(self._rounds))
        return current.habits

    def add(self, result: StageResult[Draft]) -> None:
        """Note the result of the round that was taken last."""
        self._written += result.kept
        if any(rejection.reason == "not_made" for rejection in result.rejected):
            # later rounds would see too few habits, and are not asked in this run
            self._whole = False
