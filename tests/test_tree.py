"""Rules of the source that no linter knows."""

from __future__ import annotations

import ast
import importlib.util
import re
from collections import Counter
from pathlib import Path

import pytest

from source import nodes, texts, trees

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"


def test_only_packages_list_their_names() -> None:
    listing = {
        str(path)
        for path, node in nodes()
        if isinstance(node, ast.Name) and node.id == "__all__" and path.name != "__init__.py"
    }
    assert listing == set()


def test_no_class_name_stands_twice() -> None:
    names = Counter(node.name for _, node in nodes() if isinstance(node, ast.ClassDef))
    assert {name for name, count in names.items() if count > 1} == set()


def test_what_is_shown_is_typed() -> None:
    """Only specifications of figures, which are Vega-Lite's JSON, hold anything."""
    untyped = {
        f"{path}: {ast.unparse(node)}"
        for path, tree in trees().items()
        if path.parts[0] in ("report", "cli")
        for node in tree.body
        for name in ast.walk(node)
        if isinstance(name, ast.Name) and name.id == "Any"
    }
    assert untyped == {
        "report/figures/drawing.py: Spec = dict[str, Any]",
        "report/figures/drawing.py: Datum = dict[str, Any]",
    }


MOST_LINES_OF_A_FUNCTION = 60
BANNER = re.compile(r"^\s*#\s*[-=#*~]{8,}", re.MULTILINE)


def test_no_function_is_longer_than_one_can_see_at_once() -> None:
    long = {
        f"{path}: {node.name}"
        for path, node in nodes()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (node.end_lineno or 0) - node.lineno >= MOST_LINES_OF_A_FUNCTION
    }
    assert long == set()


def test_a_module_has_one_topic_and_no_banner() -> None:
    assert {name for name, text in texts().items() if BANNER.search(text)} == set()


def test_benchmarks_import_names_that_exist() -> None:
    """No other test runs most of them, and a rename would pass them by."""
    if not BENCHMARKS.is_dir():
        pytest.skip("a copy of the tests alone")
    imports = [
        (path.name, node.module, alias.name)
        for path in BENCHMARKS.glob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("opensafeintent")
        for alias in node.names
    ]
    lacking = {
        f"{file}: {module}.{name}"
        for file, module, name in imports
        if not hasattr(importlib.import_module(str(module)), name)
        and importlib.util.find_spec(f"{module}.{name}") is None
    }
    assert len(imports) > 50 and lacking == set()
