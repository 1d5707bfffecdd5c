"""The program's source, read once for every test about it."""

from __future__ import annotations

import ast
import functools
import gc
from pathlib import Path

import opensafeintent

SOURCE = Path(opensafeintent.__file__).parent


@functools.cache
def texts() -> dict[str, str]:
    """Return the text of each module, by its place in the package."""
    paths = sorted(SOURCE.rglob("*.py"))
    return {path.relative_to(SOURCE).as_posix(): path.read_text("utf-8") for path in paths}


@functools.cache
def trees() -> dict[Path, ast.Module]:
    """Return the syntax tree of each module, by its place in the package."""
    gc.collect()  # what other tests left, which Python 3.11 cannot log while it parses (gh-106905)
    return {Path(name): ast.parse(text) for name, text in texts().items()}


@functools.cache
def nodes() -> list[tuple[Path, ast.AST]]:
    """Return every node of every tree, with the module's place."""
    return [(path, node) for path, tree in trees().items() for node in ast.walk(tree)]
