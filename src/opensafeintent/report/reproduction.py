"""The commands that make a report again, as its page shows them."""

from __future__ import annotations

import msgspec


class Reproduction(msgspec.Struct, frozen=True, kw_only=True):
    """Commands for the folder of a page, each as a shell takes it."""

    evaluations: list[str]
    """They call the models of the runs again."""
    report: str
    """It makes the page from the stored responses."""
    apart: bool = False
    """Whether the page is in a folder of its own, such as a copy to share: its commands read the
    folders of the runs, which need not be there.
    """
    notes: list[str]
    """The parts of the runs that no command makes again, a sentence each."""
