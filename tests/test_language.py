"""The rules of language that a program can check, over docs, README, page templates, help and errors.

Sentences of 30 words or fewer, none that begins with "Where", no verbs of an older dialect, decimals
with a zero; links are named as the headings that they lead to.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import click
import pytest
from markdown_it import MarkdownIt

from docs.reading import pages
from endtoend import REPO
from opensafeintent.cli.commands import cli
from test_error_style import ALL as ERRORS

REPORT = REPO / "src/opensafeintent/report/assets"
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
    "a decimal without a zero": r"(?<![\w.)\]/*–-])\.\d",
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
    """Yield (place, text) of what the report's templates say, without markup."""
    for path in sorted((*REPORT.glob("*.html"), *REPORT.glob("*.jinja"))):
        text = re.sub(
            r"\{#.*?#\}|<code.*?</code>|<script.*?</script>",
            " ",
            path.read_text("utf-8"),
            flags=re.S,
        )
        text = re.sub(
            r"\{%.*?%\}|<[^>]*>|^\s*\(\"\w+\", \"[^\"]*\",", "\n\n", text, flags=re.S | re.M
        )
        text = re.sub(r"\{\{.*?\}\}", "X", text, flags=re.S)
        for part in re.split(r"\n\s*\n|\",?\)?,?\n", text):
            yield path.name, part


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
        *((place, text) for place, text, _ in ERRORS),
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
