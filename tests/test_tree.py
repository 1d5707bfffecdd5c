"""What keeps the code base small: sizes by folder, and rules that no linter knows."""

from __future__ import annotations

import ast
import tomllib
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest

REPO = Path(__file__).parents[1]
SOURCE = REPO / "src" / "opensafeintent"
TREES = {
    path.relative_to(SOURCE): ast.parse(path.read_text("utf-8")) for path in SOURCE.rglob("*.py")
}
LIMITS: dict[str, Any] = tomllib.loads((REPO / "pyproject.toml").read_text("utf-8"))["tool"][
    "opensafeintent"
]["size"]


def statements(tree: ast.Module) -> int:
    """Count statements, without docstrings."""
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.stmt)]
    return sum(
        not (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        )
        for node in nodes
    )


@cache
def by_folder() -> Counter[str]:
    sizes: Counter[str] = Counter()
    for path, tree in TREES.items():
        sizes[path.parts[0] if len(path.parts) > 1 else "."] += statements(tree)
    return sizes


def test_no_folder_grows_unnoticed() -> None:
    """A limit goes up only in a commit of its own, whose message says which user asked for it."""
    sizes = by_folder()
    assert sizes.keys() == LIMITS["statements"].keys()
    assert {name: size for name, size in sizes.items() if size > LIMITS["statements"][name]} == {}


@pytest.mark.optional
def test_limits_follow_the_code_down() -> None:
    spare = {name: limit - by_folder()[name] for name, limit in LIMITS["statements"].items()}
    assert {name: over for name, over in spare.items() if over > LIMITS["spare"]} == {}


def test_there_are_few_modules_and_none_is_tiny() -> None:
    assert len(TREES) <= LIMITS["files"]
    tiny = {
        str(path)
        for path, tree in TREES.items()
        if not path.name.startswith("__") and statements(tree) < LIMITS["smallest_module"]
    }
    assert tiny == set(LIMITS["small_modules"])


def test_only_packages_list_their_names() -> None:
    listing = {
        str(path)
        for path, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and node.id == "__all__" and path.name != "__init__.py"
    }
    assert listing == set()


def test_no_class_name_stands_twice() -> None:
    names = Counter(
        node.name
        for tree in TREES.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    )
    assert {name for name, count in names.items() if count > 1} == set()


def test_what_is_shown_is_typed() -> None:
    """Only specifications of figures, which are Vega-Lite's JSON, hold anything."""
    untyped = {
        f"{path}: {ast.unparse(node)}"
        for path, tree in TREES.items()
        if path.parts[0] in ("report", "cli")
        for node in tree.body
        for name in ast.walk(node)
        if isinstance(name, ast.Name) and name.id == "Any"
    }
    assert untyped == {
        "report/figures/kit.py: Spec = dict[str, Any]",
        "report/figures/kit.py: Datum = dict[str, Any]",
    }
