"""Rules of the source that no linter knows."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

REPO = Path(__file__).parents[1]
SOURCE = REPO / "src" / "opensafeintent"
TEXTS = {
    path.relative_to(SOURCE).as_posix(): path.read_text("utf-8") for path in SOURCE.rglob("*.py")
}
TREES = {Path(name): ast.parse(text) for name, text in TEXTS.items()}


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


MOST_LINES_OF_A_FUNCTION = 60
BANNER = re.compile(r"^\s*#\s*[-=#*~]{8,}", re.MULTILINE)


def test_no_function_is_longer_than_one_can_see_at_once() -> None:
    long = {
        f"{path}: {node.name}"
        for path, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (node.end_lineno or 0) - node.lineno >= MOST_LINES_OF_A_FUNCTION
    }
    assert long == set()


def test_a_module_has_one_topic_and_no_banner() -> None:
    assert {name for name, text in TEXTS.items() if BANNER.search(text)} == set()


WHOLE_COMMAND = re.compile(r"\b(?:opensafeintent|pip) [a-z-]+(?:(?!\. )[^,;:`])*")
FLAG = re.compile(r"(?<![\w-])--[a-z][a-z-]*")
WITH_FLAGS: set[str] = {
    # the flags that are not called as their settings, and one that a single command calls otherwise
    "errors.py: --judge",
    "errors.py: --map",
    "errors.py: --judge-arg",
    "errors.py: --pair",
    "errors.py: --set",
    "annotation/drawing.py: --model",
    # pages, tables and metrics.json speak the command line's language, as the documentation does
    "analysis/judge_checks.py: --check-judge",
    "calls/prices.py: --prices",
    "report/cohort_columns.py: --judge",
    "report/datasets.py: --taxonomy",
    "report/gates.py: --modes",
    "report/gates.py: --pair",
    "report/gates.py: --probe",
    "report/page_texts.py: --include-unsafe",
    "workflows/gates.py: --confidence",
    "workflows/gates.py: --fail-",
    # options of Inspect AI and of Ray
    "interop/inspect/grading.py: --model-role",
    "interop/ray/cluster.py: --address",
    "interop/ray/cluster.py: --skip-version-check",
}
"""Texts with flags below the command line: the list may only shrink."""


def texts_in(node: ast.AST) -> list[str]:
    """Return the strings below a node, without docstrings; X stands for a filled-in value."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return []
    if isinstance(node, ast.Constant):
        return [node.value] if isinstance(node.value, str) else []
    below = [text for child in ast.iter_child_nodes(node) for text in texts_in(child)]
    if isinstance(node, ast.JoinedStr):
        parts = (getattr(part, "value", "X") for part in node.values)
        return ["".join(part if isinstance(part, str) else "X" for part in parts)] + [
            text
            for part in node.values
            if isinstance(part, ast.FormattedValue)
            for text in texts_in(part)
        ]
    return below


def test_only_the_command_line_names_its_flags() -> None:
    """Everything else names a setting with `errors.option`; whole commands to copy are allowed."""
    named = {
        f"{path.as_posix()}: {flag}"
        for path, tree in TREES.items()
        if path.parts[0] != "cli"
        and path.parts[:2] not in (("workflows", "settings"), ("report", "printing"))
        for text in texts_in(tree)
        for flag in FLAG.findall(WHOLE_COMMAND.sub("", text))
    }
    assert named == WITH_FLAGS
