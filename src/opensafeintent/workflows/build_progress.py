"""How a build is going: each stage on the display as it runs, and on disk when it has ended."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from opensafeintent.calls.client import Tally
from opensafeintent.calls.models import Price, cost_of
from opensafeintent.calls.progress import Display, progress_line
from opensafeintent.construction.folder import BuildFolder
from opensafeintent.construction.pipeline import Watcher
from opensafeintent.construction.records import REASONS, Stage, StageResult

if TYPE_CHECKING:
    from opensafeintent.workflows.spreading.building import BuildSpreader

__all__ = ["BuildProgress", "stage_line"]


class BuildProgress(Watcher):
    """Shows how each stage goes, and writes it to disk when it has ended."""

    def __init__(self, folder: BuildFolder, display: Display, tally: Tally, prices: Mapping[str, Price]) -> None:
        self._folder = folder
        self._display = display
        self._tally = tally
        self._prices = prices
        self._stage: Stage = "seeds"
        self._items = self._done = 0
        self._pass = 1
        self.spreader: BuildSpreader | None = None

    def begins(self, stage: Stage, items: int, number: int) -> None:
        """Start counting."""
        self._stage, self._items, self._done, self._pass = stage, items, 0, number

    def finished(self) -> None:
        """Count an item."""
        self._done += 1

    def ends(self, result: StageResult[Any]) -> None:
        """Write the stage and show what it came to."""
        self._folder.write_stage(result)
        if result.count_in:
            self._display.note(stage_line(result, self._pass))

    def refresh(self) -> None:
        """Show the state of things."""
        cost = cost_of(self._tally.tokens, self._prices) if self._prices else None
        again = f" (pass {self._pass})" if self._pass > 1 else ""
        done = self._done or (self.spreader.items_done if self.spreader else 0)
        line = f"{self._stage}{again}: {done:,} of {self._items:,} · {progress_line(self._tally, None, cost)}"
        self._display.update(done, self._items, line)


def stage_line(result: StageResult[Any], number: int = 1) -> str:
    """Return what a stage kept and dropped, and why, as one line."""
    line = result.funnel_line()
    dropped = ", ".join(f"{count:,} {REASONS[reason]}" for reason, count in line["rejected"].items())
    again = f" after pass {number}" if number > 1 else ""
    return f"{result.stage}{again}: {line['in']:,} in, {line['kept']:,} kept" + (f"; dropped: {dropped}" if dropped else "")
