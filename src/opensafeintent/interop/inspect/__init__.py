"""Inspect AI, both ways: its providers behind our client, our evaluation as one of its tasks, and
logs.

Nothing is loaded before it is asked for: most of what is here is used where Inspect AI is not
installed.
"""

from __future__ import annotations

from typing import Any

__all__ = ["opensafeintent"]


def __getattr__(name: str) -> Any:
    if name != "opensafeintent":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from opensafeintent.interop.inspect.task import opensafeintent

    return opensafeintent
