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
from itertools import pairwise, takewhile
from pathlib import Path

import click
import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token

from docs.reading import pages
from endtoend import REPO
from opensafeintent.cli.commands import cli
from test_error_style import text_of

yaml = pytest.importorskip("yaml")

SOURCE = REPO / "src/opensafeintent"
GUIDES = (*SOURCE.glob("annotation/guides/*.toml"), *SOURCE.glob("data/*.toml"))
SCRIPTED = ("baselines.toml", "construction.toml", "families.toml", "habits.toml")
"""Scripted responses and lists of words, which are no sentences of ours."""
JUDGED = ("prompt", "response", "texts")
"""Fields with texts that a judge or an annotator grades."""
PAGES = (
    *pages(),
    REPO / "docs/notebook.ipynb",
    *(
        REPO / f"{name}.md"
        for name in ("CONTRIBUTING", "SECURITY", "CHANGELOG", "benchmarks/README")
    ),
)
MOST_WORDS = 30
FORBIDDEN = {
    "“where” for a condition": r"^(?!.*\?$).*?\b(?:[Ww]here|[Ww]herever)\b(?!:)",
    "a clause in place of a noun": (
        r"^(?!.*\?$).*?(?:(?<!\")\b(?:[Ww]hat|[Ww]hatever|[Ww]hoever)\b(?!:| Teachers| goes wrong| to report| you get| work they| providers send)"
        r"|\b(?:[Oo]f|to|by|for|and|or|says?) who\b(?! the asker is)|^Who\b)"
    ),
    "an older verb": (
        r"\b(?:(?:be|been|is|are|was|were) (?:had|told)|t(?:old|ells?)(?: \w+){0,2} (?:apart|from)|told of"
        r"|tak(?:en?|es) (?:\w+ )?for|h(?:eld|olds?)(?: \w+){0,3} against|put to"
        r"|puts? .{1,20} to (?:a|the|every|each)|owed to|st(?:ands?|ood)(?!-)|mend(?:s|ed|ing)?|go(?:es)? by"
        r"|c[oa]mes? to|part(?:s|ed)? on|as (?:the )?judged)\b"
    ),
    "a decimal without a zero": r"(?<![\w.)\]/*%–-])\.\d",
}
"""What no sentence holds, each with a pattern of it. Questions are left out; the titles of
two pages and a heading of the README have it too, and a generator is asked to say who the asker is."""
MATHS = re.compile(r"\$+[^$]*\$+")
FULL = re.compile(r"(?<=[.!?])[\"”’)*]*\s+(?=[A-Z`*“\"(\[–])")


def read(page: Path) -> str:
    """Return a page's Markdown; of a notebook, that of its cells."""
    text = page.read_text("utf-8")
    if page.suffix != ".ipynb":
        return text
    cells = json.loads(text)["cells"]
    return "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")


def prose(page: Path) -> Iterator[tuple[int, str]]:
    """Yield (line, text) of a page's paragraphs, items and cells, without code and addresses."""
    for line, text in with_maths(page):
        yield line, MATHS.sub("X", text)


def with_maths(page: Path) -> Iterator[tuple[int, str]]:
    """Yield the same with its maths, but without the dollars of prices."""
    text = read(page).replace(r"\$", "")
    for token in MarkdownIt("commonmark").enable("table").parse(text):
        if token.type == "inline" and token.children is not None:
            parts = (
                "CODE"
                if child.type == "code_inline"
                else f"\n{child.content}.\n"  # its alternative text
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
            for command_name in command.list_commands(context):
                if subcommand := command.get_command(context, command_name):
                    yield from walk(subcommand, f"{name} {command_name}".strip())

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
        text = re.sub(r"</?(?:a|b|bdi|em|i|span|strong)\b[^>]*>", "", text)
        for attribute in re.findall(r'(?:title|alt|aria-label|placeholder)="([^"]*)"', text):
            yield path.name, attribute
        for tag in re.findall(r"\{[{%].*?[%}]\}", text, re.S):
            yield from ((path.name, literal) for literal in re.findall(r'"(\S+ \S[^"]*)"', tag))
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
    """Yield (place, text) of guides, taxonomy, gold cases, the action and the Inspect task."""
    for path in GUIDES:
        if path.name not in SCRIPTED:
            parsed = tomllib.loads(path.read_text("utf-8"))
            yield from ((path.name, text) for text in values(parsed))
    for path in (REPO / "action.yml", SOURCE / "interop/inspect/eval.yaml"):
        parsed = yaml.safe_load(path.read_text("utf-8"))
        yield from ((path.name, text) for text in values(parsed, "description"))


def sentences() -> list[tuple[str, str]]:
    """Return (place, sentence) of everything that is checked."""
    texts = [
        *(
            (f"{page.relative_to(REPO)}:{line}", text)
            for page in PAGES
            for line, text in prose(page)
        ),
        *help_texts(),
        *templates(),
        *strings(),
        *data(),
    ]
    return [
        (place, sentence)
        for place, text in texts
        for sentence in FULL.split(" ".join(text.split()))
    ]


SENTENCES = sentences()


def too_long(sentence: str) -> bool:
    """Return whether a sentence has more than `MOST_WORDS` words."""
    return len(re.findall(r"[A-Za-zÀ-ž]\S*", sentence)) > MOST_WORDS


def test_no_sentence_is_longer_than_thirty_words() -> None:
    assert [f"{place}: {text}" for place, text in SENTENCES if too_long(text)] == []


@pytest.mark.parametrize("what", FORBIDDEN)
def test_no_text_holds(what: str) -> None:
    pattern = re.compile(FORBIDDEN[what])
    assert [
        f"{place}: {sentence}" for place, sentence in SENTENCES if pattern.search(sentence)
    ] == []


def test_dollars_of_prices_are_escaped() -> None:
    """Two dollars are maths, so what stands between them is no words of a sentence."""
    wrong = [
        f"{page.name}:{line}: {maths}"
        for page in PAGES
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


def headings(page: Path) -> dict[str, str]:
    """Return a page's headings by anchor, as GitHub and the site make them, the title first."""
    titles: dict[str, str] = {}
    tokens = MarkdownIt("commonmark").parse(read(page))
    for token, after in pairwise(tokens):
        if token.type == "heading_open":
            name = "".join(child.content for child in after.children or ())
            anchor = re.sub(r"[^\w\- ]", "", name.lower()).replace(" ", "-")
            same = sum(1 for title in titles.values() if title.lower() == name.lower())
            titles[f"{anchor}-{same}" if same else anchor] = name
    return titles


def links(page: Path) -> Iterator[tuple[str, str, str]]:
    """Yield (words, file, anchor) of a page's links and pictures within the repository."""
    for token in MarkdownIt("commonmark").enable("table").parse(read(page)):
        children = token.children or []
        for index, child in enumerate(children):
            address = str(child.attrGet("href") or child.attrGet("src") or "")
            if address and not re.match("[a-z]+:", address):
                words = (part.content or " " for part in takewhile(_in_link, children[index + 1 :]))
                target, _, anchor = address.partition("#")
                yield "".join(words), target, anchor


def _in_link(token: Token) -> bool:
    return token.type != "link_close"


def test_the_contents_leave_names_to_the_pages() -> None:
    trees = re.findall(r"```\{toctree\}.*?```", read(REPO / "docs/index.md"), re.S)
    assert trees
    assert [tree for tree in trees if re.search("[<>]", tree)] == []


@pytest.mark.slow
def test_links_lead_to_a_file_and_a_heading() -> None:
    wrong = []
    for page in PAGES:
        for _, target, anchor in links(page):
            path = page.parent / target if target else page
            if not path.exists() or (anchor and anchor not in headings(path)):
                wrong.append(f"{page.name}: {target}#{anchor}")
    assert wrong == []


@pytest.mark.slow
def test_links_are_named_as_the_page_that_they_lead_to() -> None:
    """A word in a sentence may be shorter, so only links that begin with a capital are checked."""
    wrong = []
    for page in PAGES:
        for words, target, anchor in links(page):
            if words[:1].isupper() and target.endswith(".md"):
                titles = headings(page.parent / target)
                title = titles[anchor] if anchor else next(iter(titles.values()))
                if words != title:
                    wrong.append(f"{page.name}: “{words}” leads to “{title}”")
    assert wrong == []
