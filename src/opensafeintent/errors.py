"""Errors that reach a user: one clear line each, and the exit code that goes with it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = ["InputError", "JudgeFailed", "OpenSafeIntentError", "Stopped", "nearest"]


class OpenSafeIntentError(Exception):
    """Base of every error that is the user's to mend; its text is complete by itself."""

    exit_code = 2


class InputError(OpenSafeIntentError):
    """Input that cannot be used: a file, a name, an option, a missing key (exit code 2)."""


class Stopped(OpenSafeIntentError):
    """Work ended by a provider or by a budget; what was done is kept (exit code 3)."""

    exit_code = 3


class JudgeFailed(OpenSafeIntentError):
    """A judge did not pass its check, so nothing was evaluated with it (exit code 4)."""

    exit_code = 4


def nearest(name: str, valid: Iterable[str], *, most: int = 3, shown: int = 45) -> str:
    """Return a phrase that names the valid names nearest to `name`, or the first `shown` of them when none is near."""
    names = list(valid)
    folded = {candidate.casefold(): candidate for candidate in names}
    close = [folded[hit] for hit in difflib.get_close_matches(name.casefold(), list(folded), n=most, cutoff=0.5)]
    if close:
        return "did you mean " + " or ".join(repr(candidate) for candidate in close) + "?"
    further = f", … ({len(names) - shown} more)" if len(names) > shown else ""
    return "valid: " + ", ".join(names[:shown]) + further
