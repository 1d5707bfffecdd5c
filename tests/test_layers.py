"""Each part of the package imports only parts above it (docs/architecture.md)."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "src" / "opensafeintent"
FOUNDATIONS = ("errors", "canonical", "hostile", "files", "labelled", "messages")
"""Below everything: anything may import them, and they import one another only."""
LAYERS = (
    *("taxonomy", "promptsets", "templates", "calls", "evaluation", "grades", "metrics", "statistics"),
    *("construction", "people", "analysis", "report", "interop", "workflows", "cli"),
)
"""Section 8 from top to bottom."""
STRANGERS = {"construction", "evaluation", "people"}
"""These do not import one another, whatever their order."""
MODULES = sorted(path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py"))


def part_of(module: Path) -> str:
    return module.parts[0].removesuffix(".py")


def imported_parts(module: Path) -> Iterator[tuple[int, str]]:
    """Yield (line, part) for every import of the package by a module, those for the type checker included."""
    package = ["opensafeintent", *module.parts[:-1]]
    for node in ast.walk(ast.parse((PACKAGE / module).read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name.split(".") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            base = [*above, *(node.module.split(".") if node.module else [])]
            names = [[*base, alias.name] for alias in node.names]
        else:
            continue
        for name in names:
            if name[0] == "opensafeintent" and name[1:2] not in ([], ["__version__"]):
                yield node.lineno, name[1]


def may_import(part: str, other: str) -> bool:
    if other in (part, *FOUNDATIONS):
        return True
    if part in FOUNDATIONS or {part, other} <= STRANGERS or other not in LAYERS:
        return False
    return LAYERS.index(other) < LAYERS.index(part)


@pytest.mark.parametrize("module", MODULES, ids=str)
def test_module_imports_only_what_is_above_it(module: Path) -> None:
    part = part_of(module)
    if part == "__main__":
        assert {other for _, other in imported_parts(module)} == {"cli"}
    elif part != "__init__":  # the package itself hands everything on, lazily: tests/cli/test_imports.py
        wrong = [f"line {line}: imports {other}" for line, other in imported_parts(module) if not may_import(part, other)]
        assert not wrong


def test_every_module_lives_in_a_room_of_the_design() -> None:
    homeless = {part_of(module) for module in MODULES} - {*FOUNDATIONS, *LAYERS, "__init__", "__main__"}
    assert not homeless


@pytest.mark.parametrize(
    ("part", "other", "allowed"),
    [
        ("evaluation", "calls", True),
        ("calls", "evaluation", False),
        ("people", "evaluation", False),
        ("construction", "evaluation", False),
        ("errors", "taxonomy", False),
        ("taxonomy", "errors", True),
        ("report", "nowhere", False),
    ],
)
def test_the_rule_itself(part: str, other: str, allowed: bool) -> None:
    assert may_import(part, other) is allowed


def test_every_way_of_importing_is_seen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "calls").mkdir()
    module = Path("calls", "x.py")
    lines = ["import opensafeintent.cli.show", "from opensafeintent import people", "from .. import grades", "import json"]
    (tmp_path / module).write_text("\n".join([*lines, "def f():", "    from opensafeintent.report.tables import Table"]))
    monkeypatch.setattr("test_layers.PACKAGE", tmp_path)
    assert sorted(imported_parts(module)) == [(1, "cli"), (2, "people"), (3, "grades"), (6, "report")]
