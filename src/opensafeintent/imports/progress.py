"""How far the reading of a file is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

from opensafeintent.calls.progress import Display

T = TypeVar("T")

_STEP = 1000
"""Records from one line of progress to the next."""


def with_progress(records: Iterable[T], screen: Display, stage: str, what: str) -> Iterator[T]:
    """Yield records, and show how many there were."""
    screen.stage(stage)
    for number, record in enumerate(records, start=1):
        if number % _STEP == 0:
            screen.stage(f"{stage}: {number:,} {what}")
        yield record
