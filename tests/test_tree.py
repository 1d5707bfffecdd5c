"""Rules of the source that no linter knows."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

REPO = Path(__file__).parents[1]
SOURCE = REPO / "src" / "opensafeintent"
TREES = {
    path.relative_to(SOURCE): ast.parse(path.read_text("utf-8")) for path in SOURCE.rglob("*.py")
}


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
