"""Count the statements (docstrings aside) and the lines of a tree of Python, by folder: `make size`."""

from __future__ import annotations

import ast
import sys
from collections import Counter
from pathlib import Path


def is_docstring(node: ast.stmt) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def main(root: Path) -> None:
    statements: Counter[str] = Counter()
    lines: Counter[str] = Counter()
    files: Counter[str] = Counter()
    for path in sorted(root.rglob("*.py")):
        text = path.read_text("utf-8")
        folder = str(path.parent.relative_to(root)).partition("/")[0]
        nodes = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.stmt))
        statements[folder] += sum(not is_docstring(node) for node in nodes)
        lines[folder] += text.count("\n")
        files[folder] += 1
    print(f"{'folder':16}{'statements':>12}{'lines':>10}{'files':>8}")
    for folder in sorted(files):
        print(f"{folder:16}{statements[folder]:12,}{lines[folder]:10,}{files[folder]:8}")
    print(f"{'all':16}{statements.total():12,}{lines.total():10,}{files.total():8}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "src/opensafeintent"))
