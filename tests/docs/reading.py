"""Pages as a reader meets them: blocks of commands, what they print, Python, and commands within
sentences.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

from endtoend import REPO

PROGRAMS = {
    *("opensafeintent", "osi", "pip", "make", "python", "python3", "export"),
    *("inspect", "inspect-evals-lint", "ray", "hf"),
}
"""What a line begins with that people are to type."""
_SHELL = frozenset(("bash", "console", "sh", "shell"))
_NOT_RUN = re.compile(r"<!-- not run: (\S.*?) -->")
_OUTPUT = re.compile(r"<!-- output -->")


def pages() -> list[Path]:
    """Return the README and every page of the docs."""
    return [REPO / "README.md", *sorted((REPO / "docs").glob("*.md"))]


@dataclass(frozen=True)
class Step:
    """One thing on a page that can be tried."""

    kind: str
    """`shell`, `output` of the shell block before it, `python`, or `inline`: a command within a
    sentence.
    """
    line: int
    text: str
    reason: str = ""
    """Why it is not run, from a comment that readers do not see."""

    @property
    def commands(self) -> list[str]:
        """The command lines: continued ones joined, comments and prompts left out."""
        joined = re.sub(r"\\\n\s*", "", self.text)
        lines = (line.strip().removeprefix("$ ") for line in joined.splitlines())
        return [line for line in lines if line and not line.startswith("#")]


def steps(page: Path) -> list[Step]:
    """Return what can be tried on a page, in its order."""
    return list(_steps(MarkdownIt("commonmark").enable("table").parse(page.read_text())))


def _steps(tokens: list[Token]) -> Iterator[Step]:
    comment, previous = "", ""
    for token in tokens:
        line = token.map[0] + 1 if token.map else 0
        if token.type == "html_block":
            comment = token.content
            continue
        if token.type in ("fence", "code_block"):
            kind = _kind_of(token, comment, previous)
            if kind:
                reason = _NOT_RUN.search(comment)
                yield Step(kind, line, token.content, reason[1] if reason else "")
            previous = kind
        elif token.type == "inline":
            yield from _inline(token, line)
            previous = ""
        if token.type not in ("paragraph_open", "inline"):
            comment = ""


def _kind_of(token: Token, comment: str, previous: str) -> str:
    language = token.info.split(" ")[0]
    if language == "python":
        return "python"
    first = token.content.split(maxsplit=1)[0] if token.content.strip() else ""
    if language in _SHELL or (language == "" and first in PROGRAMS):
        return "shell"
    if _OUTPUT.search(comment) or (language in ("", "text") and previous == "shell"):
        return "output"
    return ""


def _inline(token: Token, line: int) -> Iterator[Step]:
    """Find commands with an argument or more: `opensafeintent` alone is a name."""
    for child in token.children or []:
        text = " ".join(child.content.split())
        if child.type == "code_inline" and " " in text and text.split()[0] in PROGRAMS:
            yield Step("inline", line, text)
