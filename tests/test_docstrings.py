"""The rules of language that a program can check, over the docstrings and comments of the source,
its data, scripts and page templates.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator

import pytest

from endtoend import REPO
from test_language import FORBIDDEN, FULL, too_long

SOURCE = REPO / "src/opensafeintent"
COMMENTS = {
    ".toml": re.compile(r"(?:^# [^\n]*\n)+", re.M),
    ".js": re.compile(r"/\*.*?\*/|// [^\n]*", re.S),
    ".css": re.compile(r"/\*.*?\*/", re.S),
    ".html": re.compile(r"\{#.*?#\}|<!--.*?-->", re.S),
    ".jinja": re.compile(r"\{#.*?#\}", re.S),
    ".md": re.compile(r"\{#.*?#\}|<!--.*?-->", re.S),
}
"""By ending of a file, the comments in it."""


def texts() -> Iterator[tuple[str, str]]:
    """Yield (place, text) of every docstring and comment."""
    for path in sorted(SOURCE.rglob("*.py")):
        source, name = path.read_text("utf-8"), path.relative_to(SOURCE)
        for node in ast.walk(ast.parse(source)):
            match node:
                case ast.Expr(value=ast.Constant(value=str(text)), lineno=line):
                    yield f"{name}:{line}", text
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type == tokenize.COMMENT:
                yield f"{name}:{token.start[0]}", token.string
    for path in sorted(SOURCE.rglob("*.*")):
        pattern = COMMENTS.get(path.suffix)
        if pattern and "templates" not in path.parts:
            yield from ((path.name, text) for text in pattern.findall(path.read_text("utf-8")))


PARTS = re.compile(r"\n\s*(?:# *)?\n|\n\s*(?:# )?(?=[-*] |[`\w, ]+: |\d\. )|-{20,}")
"""Paragraphs, items and fields, each of which begins a sentence."""
SENTENCES = [
    (place, sentence)
    for place, text in texts()
    for part in PARTS.split(text)
    for sentence in FULL.split(re.sub(r"`[^`]*`", "CODE", " ".join(part.split())))
]


@pytest.mark.parametrize("what", FORBIDDEN)
def test_no_docstring_holds(what: str) -> None:
    pattern = re.compile(FORBIDDEN[what])
    assert [f"{place}: {text}" for place, text in SENTENCES if pattern.search(text)] == []


def test_no_sentence_is_longer_than_thirty_words() -> None:
    assert [f"{place}: {text}" for place, text in SENTENCES if too_long(text)] == []
