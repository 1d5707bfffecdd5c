"""Sentences on the intent-swap audit; the words are in `assets/sentences.jinja`."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from opensafeintent.analysis.groups import Group
from opensafeintent.analysis.swap import told_of
from opensafeintent.report.prose import Sentence, points, say

__all__ = ["swap_cautions", "swap_finding"]

_say = partial(say, "sentences.jinja")


def swap_finding(group: Group) -> Sentence | None:
    """Say what the malicious prompt in the benign one's place changes, and what part of the gap between the two it is."""
    told = {grader: audit for grader, audit in told_of(group.audits).items() if audit.safety_shift.value is not None}
    if not told:
        return None
    *_, (grader, last) = told.items()  # the panel, where there are several judges
    return _say(
        "swapped",
        topic="Requests swapped",
        found=[(name, audit.safety_shift) for name, audit in told.items()],
        grader=grader,
        audit=last,
        split=last.splits["safety"]["benign_malicious"],
        points=points,
    )


def swap_cautions(group: Group) -> Iterator[Sentence]:
    """Yield which judges grade the request along with the response beyond chance, and how many responses are left out."""
    told = told_of(group.audits)
    shifts = [(grader, audit.safety_shift) for grader, audit in told.items() if audit.safety_shift.leaves_out_zero]
    if shifts:
        yield _say("swap_error", "caution", found=shifts, points=points)
    left_out = max((audit.left_out for audit in told.values()), default=0)
    if left_out:
        yield _say("swap_left_out", "caution", left_out=left_out, responses=next(iter(told.values())).responses)
