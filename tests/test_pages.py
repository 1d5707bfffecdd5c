"""Links, maths and lists of the pages. Words are left to the author."""

from __future__ import annotations

import json
import re
import runpy
from collections.abc import Iterator
from itertools import pairwise, takewhile
from pathlib import Path

import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token

from docs.reading import pages
from endtoend import REPO

PAGES = (
    *pages(),
    REPO / "docs/notebook.ipynb",
    *(
        REPO / f"{name}.md"
        for name in ("CONTRIBUTING", "SECURITY", "CHANGELOG", "benchmarks/README")
    ),
)
MATHS = re.compile(r"\$+[^$]*\$+")


def read(page: Path) -> str:
    """Return a page's Markdown; of a notebook, that of its cells."""
    text = page.read_text("utf-8")
    if page.suffix != ".ipynb":
        return text
    cells = json.loads(text)["cells"]
    return "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")


def with_maths(page: Path) -> Iterator[tuple[int, str]]:
    """Yield (line, text) of a page's paragraphs, items and cells with their maths, but without code,
    addresses and the dollars of prices.
    """
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


def test_tables_of_replies_are_those_of_the_code() -> None:
    """After a change: `make docs`."""
    code = runpy.run_path(str(REPO / "docs/_extensions/replies.py"))
    texts = [page.read_text("utf-8") for page in pages()]
    assert [text for text in texts if code["filled"](text) != text] == []
    placed = re.findall(r"<!-- table: (\S+) -->", "".join(texts))
    assert sorted(placed) == sorted(code["TABLES"])


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
