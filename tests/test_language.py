"""The rules of language that a program can check, over all texts that people read: pages, templates of
pages and cards, annotators' guides, help, and the strings of the source.

Sentences have 30 words or fewer. No text has “where” for a condition, a clause in place of a noun, a verb
of the older style, or a decimal without a zero. Links lead to a file and a heading.
"""

from __future__ import annotations

import ast
import json
import re
import tomllib
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import click
import pytest
import yaml
from markdown_it import MarkdownIt

from docs.reading import pages
from endtoend import REPO
from opensafeintent.cli.commands import cli
from test_error_style import text_of

SOURCE = REPO / "src/opensafeintent"
GUIDES = (*SOURCE.glob("annotation/guides/*.toml"), *SOURCE.glob("data/*.toml"))
SCRIPTED = ("baselines.toml", "construction.toml", "families.toml", "habits.toml")
"""Scripted responses and lists of words, which are no sentences of ours."""
JUDGED = ("prompt", "response", "texts")
"""Fields with texts that a judge or an annotator grades."""
MOST_WORDS = 30
FORBIDDEN = {
    "“where” for a condition": r"\b(?:[Ww]here|[Ww]herever)\b(?!:|[^.?]*\?)",
    "a clause in place of a noun": (
        r"(?<!\")\b(?:[Ww]hat|[Ww]hatever|[Ww]hoever)\b(?!:| Teachers| goes wrong| to report| you get| work they|[^.?]*\?)"
        r"|\b(?:[Oo]f|to|by|for|and|or|says?) who\b(?! the asker is|[^.?]*\?)"
    ),
    "an older verb": (
        r"\b(?:(?:be|been|is|are|was|were) (?:had|told)|t(?:old|ells?)(?: \w+){0,2} (?:apart|from)|told of"
        r"|tak(?:en?|es) (?:\w+ )?for|h(?:eld|olds?)(?: \w+){0,3} against|put to"
        r"|puts? .{1,20} to (?:a|the|every|each)|owed to|st(?:ands?|ood)(?!-)|mend(?:s|ed|ing)?|go(?:es)? by"
        r"|c[oa]mes? to|part(?:s|ed)? on|as (?:the )?judged)\b"
    ),
    "a decimal without a zero": r"(?<![\w.)\]/*%–-])\.\d",
}
"""What no sentence holds, each with a pattern of it. A question may ask “where” and “what”; the titles of
two pages and a heading of the README have it too, and a generator is asked to say who the asker is."""
MATHS = re.compile(r"\$+[^$]*\$+")
FULL = re.compile(r"(?<=[.!?:])\s+(?=[A-Z`*“\"(\[–])")


def prose(page: Path) -> Iterator[tuple[int, str]]:
    """Yield (line, text) of a page's paragraphs, items and cells, without code and addresses."""
    for line, text in with_maths(page):
        yield line, MATHS.sub("X", text)


def with_maths(page: Path) -> Iterator[tuple[int, str]]:
    """Yield the same with its maths, but without the dollars of prices."""
    text = page.read_text("utf-8").replace(r"\$", "")
    for token in MarkdownIt("commonmark").enable("table").parse(text):
        if token.type == "inline" and token.children is not None:
            parts = (
                "CODE"
                if child.type == "code_inline"
                else ""
                if child.type == "image"
                else "\n"
                if child.type == "softbreak"
                else child.content
                for child in token.children
            )
            yield (token.map or [0])[0] + 1, "".join(parts)


def help_texts() -> Iterator[tuple[str, str]]:
    """Yield (place, text) of every command's and option's help."""

    def walk(command: click.Command, name: str) -> Iterator[tuple[str, str]]:
        yield name, command.help or ""
        yield from (
            (f"{name} {option.opts[0]}", option.help or "")
            for option in command.params
            if isinstance(option, click.Option)
        )
        if isinstance(command, click.Group):
            context = click.Context(command)
            for own in command.list_commands(context):
                if found := command.get_command(context, own):
                    yield from walk(found, f"{name} {own}".strip())

    yield from walk(cli, "")


def templates() -> Iterator[tuple[str, str]]:
    """Yield (place, text) of what the templates of pages and cards say, without markup."""
    for path in sorted(SOURCE.rglob("*")):
        if path.suffix not in (".html", ".jinja", ".md") or "templates" in path.parts:
            continue
        text = re.sub(
            r"\A---\n.*?^---$|^```.*?^```$|\{#.*?#\}|<(script|style).*?</\1>|(?<=\]\()[^)]*",
            " ",
            path.read_text("utf-8"),
            flags=re.S | re.M,
        )
        text = re.sub(r"<code.*?</code>|`[^`]*`", "CODE", text, flags=re.S)
        for tag in re.findall(r"\{[{%].*?[%}]\}", text, re.S):
            yield from ((path.name, said) for said in re.findall(r'"(\S+ \S[^"]*)"', tag))
        text = re.sub(
            r"\{%.*?%\}|<[^>]*>|^\s*\(\"\w+\", \"[^\"]*\",|^[|>#-]| \| ",
            "\n\n",
            text,
            flags=re.S | re.M,
        )
        text = re.sub(r"\{\{.*?\}\}", "X", text, flags=re.S)
        for part in re.split(r"\n\s*\n|\",?\)?,?\n", text):
            yield path.name, part


def strings() -> Iterator[tuple[str, str]]:
    """Yield (place, text) of the strings of the source that may be sentences, without docstrings."""

    def walk(node: ast.AST, name: str) -> Iterator[tuple[str, str]]:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            return
        text = text_of(node) if isinstance(node, ast.expr) else None
        if text is not None and len(text.split()) > 2 and not text.startswith("CREATE TABLE"):
            yield from ((f"{name}:{node.lineno}", part) for part in re.split(r"\n(?=\s)", text))
        if text is None or isinstance(node, ast.JoinedStr):
            for child in ast.iter_child_nodes(node):
                if text is None or not isinstance(child, ast.Constant):
                    yield from walk(child, name)

    for path in sorted(SOURCE.rglob("*.py")):
        yield from walk(ast.parse(path.read_text("utf-8")), str(path.relative_to(SOURCE)))
    for path in sorted(SOURCE.rglob("*.js")):
        source = re.sub(r"^\s*(?://|/?\*).*$", "", path.read_text("utf-8"), flags=re.M)
        for literal in re.findall(r'"(?:[^"\\\n]|\\.)*"|`(?:[^`\\]|\\.)*`', source):
            if " " in literal:
                yield path.name, re.sub(r"\$\{[^{}]*\}", "X", literal[1:-1])


def values(data: object, only: str = "") -> Iterator[str]:
    """Yield the texts within lists and tables, or those of one field."""
    match data:
        case str(text) if not only:
            yield text
        case list(items):
            for item in items:
                yield from values(item, only)
        case dict(fields):
            for name, value in fields.items():
                if name not in JUDGED:
                    yield from values(value, "" if name == only else only)


def data() -> Iterator[tuple[str, str]]:
    """Yield (place, text) of guides, taxonomy, gold cases, the notebook, the action and the Inspect task."""
    for path in GUIDES:
        if path.name not in SCRIPTED:
            read = tomllib.loads(path.read_text("utf-8"))
            yield from ((path.name, text) for text in values(read))
    for path in (REPO / "action.yml", SOURCE / "interop/inspect/eval.yaml"):
        read = yaml.safe_load(path.read_text("utf-8"))
        yield from ((path.name, text) for text in values(read, "description"))
    for cell in json.loads((REPO / "docs/notebook.ipynb").read_text("utf-8"))["cells"]:
        if cell["cell_type"] == "markdown":
            yield "notebook.ipynb", re.sub(r"`[^`]*`", "CODE", "".join(cell["source"]))


def texts() -> list[tuple[str, str]]:
    """Return (place, text) of everything that is checked."""
    of_pages = [*pages(), REPO / "CONTRIBUTING.md", REPO / "SECURITY.md", REPO / "CHANGELOG.md"]
    found = [
        *(
            (f"{page.relative_to(REPO)}:{line}", text)
            for page in of_pages
            for line, text in prose(page)
        ),
        *help_texts(),
        *templates(),
        *strings(),
        *data(),
    ]
    return [(place, " ".join(text.split())) for place, text in found]


TEXTS = texts()


def test_no_sentence_is_longer_than_thirty_words() -> None:
    long = [
        f"{place}: {sentence}"
        for place, text in TEXTS
        for sentence in FULL.split(text)
        if len(re.findall(r"[A-Za-zÀ-ž]\S*", sentence)) > MOST_WORDS
    ]
    assert long == []


@pytest.mark.parametrize("what", FORBIDDEN)
def test_no_text_holds(what: str) -> None:
    pattern = re.compile(FORBIDDEN[what])
    assert [f"{place}: {text}" for place, text in TEXTS if pattern.search(text)] == []


def test_dollars_of_prices_are_escaped() -> None:
    """Two dollars are maths, so what stands between them is no words of a sentence."""
    wrong = [
        f"{page.name}:{line}: {maths}"
        for page in pages()
        for line, text in with_maths(page)
        for maths in MATHS.findall(text)
        if len(re.findall(r"(?<![\\a-zA-Z])[a-zA-Z]{3,}", maths)) >= 2
    ]
    assert wrong == []


def test_no_number_at_the_start_of_a_line_makes_a_list_of_a_sentence() -> None:
    wrong = []
    for page in pages():
        lines = page.read_text("utf-8").splitlines()
        for token in MarkdownIt("commonmark").parse("\n".join(lines)):
            if token.type == "ordered_list_open" and token.map and lines[token.map[0] - 1].strip():
                wrong.append(f"{page.name}:{token.map[0] + 1}: {lines[token.map[0]]}")
    assert wrong == []


def headings(page: Path) -> list[str]:
    """Return a page's headings as text, the title first."""
    tokens = MarkdownIt("commonmark").parse(page.read_text("utf-8"))
    return [
        "".join(child.content for child in after.children or ())
        for token, after in pairwise(tokens)
        if token.type == "heading_open"
    ]


def test_the_contents_name_pages_as_they_name_themselves() -> None:
    index = (REPO / "docs/index.md").read_text("utf-8")
    named = re.findall(
        r"^(?:(.+) <)?([a-z-]+)>?$",
        "\n".join(re.findall(r"```\{toctree\}.*?```", index, re.S)),
        re.M,
    )
    assert named
    for label, name in named:
        page = REPO / f"docs/{name}.md"
        if label and page.is_file():
            assert label == headings(page)[0]


def test_links_are_named_as_what_they_lead_to() -> None:
    """A link to a page, or to a heading of one, has its words; a symbol or a word in a sentence may
    be shorter, so only links that are a whole cell, item or sentence of their own are checked."""
    wrong = []
    for page in pages():
        for words, target, anchor in re.findall(
            r"\[([^\]`]+)\]\(([\w/-]+\.md)?(#[\w-]+)?\)", page.read_text("utf-8")
        ):
            path = (page.parent / target).resolve() if target else page
            if not path.is_file():
                wrong.append(f"{page.name}: {target} is not there")
                continue
            names = headings(path)
            slugs = {
                re.sub(r"[^\w\- ]", "", name.lower()).replace(" ", "-"): name for name in names
            }
            if anchor and anchor[1:] not in slugs:
                wrong.append(f"{page.name}: {target}{anchor} is not there")
            elif (
                words[:1].isupper()
                and not anchor
                and target
                and " ".join(words.split()) != names[0]
            ):
                wrong.append(f"{page.name}: “{words}” leads to “{names[0]}”")
    assert wrong == []
