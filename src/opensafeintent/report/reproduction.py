"""The commands that make a report again, as its page shows them."""

from __future__ import annotations

import msgspec


class Reproduction(msgspec.Struct, frozen=True, kw_only=True):
    """Commands for the folder of a page, each as a shell takes it."""

    evaluations: list[str]
    """They call the models of the runs again."""
    report: str
    """It makes the page from the stored responses."""
    notes: list[str]
    """The parts of the runs that no command makes again, a sentence each."""
