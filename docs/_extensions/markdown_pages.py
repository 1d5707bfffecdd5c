"""Beside every HTML page its Markdown, and `llms.txt` (https://llmstxt.org), which lists the pages:
for programs that read the documentation.

Sources are Markdown already. Of the directives, files are put in, options and names are written
out, and figures and tables of contents are left out.
"""

from __future__ import annotations

import importlib
import inspect
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
from references import lead_to_the_evidence
from sphinx.application import Sphinx

from commands import list_contexts, list_options

_FENCE = re.compile(r"^```\{([\w-]+)\} ?(.*)\n((?:.*\n)*?)```$", re.MULTILINE)
_COMMENT = re.compile(r"<!--.*?-->\n?", re.DOTALL)
_ROLE = re.compile(r"\{py:\w+\}`~?([^`]+)`")
_OUTSIDE = re.compile(r"\[([^\]]+)\]\(\.\./[^)]+\)")
_CAPTIONED = re.compile(r"```\{toctree\}\n:hidden:\n:caption: (.+)\n\n((?:.+\n)+?)```")
START = "compare.md", "## Is B safer than A?"
"""The page and heading of what `llms.txt` begins with."""


def setup(app: Sphinx) -> dict[str, Any]:
    """Write the files once the pages are."""
    app.connect("build-finished", _write_pages)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _write_pages(app: Sphinx, failed: Exception | None) -> None:
    if failed or app.builder.format != "html":
        return
    source, out = Path(app.srcdir), Path(app.outdir)
    pages = {name: read_page(Path(app.env.doc2path(name))) for name in sorted(app.env.found_docs)}
    for name, text in pages.items():
        (out / f"{name}.md").write_text(text, "utf-8")
    captions = _CAPTIONED.findall((source / "index.md").read_text("utf-8"))
    (out / "llms.txt").write_text(write_contents(pages, captions), "utf-8")


def read_page(path: Path) -> str:
    """Return a page as Markdown that any reader shows."""
    if path.suffix == ".ipynb":
        return "\n\n".join(_yield_cells(json.loads(path.read_text("utf-8")))) + "\n"
    text = _FENCE.sub(lambda found: _expand(path, *found.groups()), path.read_text("utf-8"))
    text = _OUTSIDE.sub(r"\1", lead_to_the_evidence(text)).replace(".ipynb)", ".md)")
    text = _ROLE.sub(r"`\1`", _COMMENT.sub("", text))
    text = re.sub(r"\A---\n.*?\n---\n", "", text, flags=re.DOTALL)
    return re.sub(r"\n{3,}", "\n\n", text).lstrip()


def _expand(path: Path, directive: str, argument: str, body: str) -> str:
    match directive:
        case "include":
            return (path.parent / argument).read_text("utf-8").replace("](../docs/", "](")
        case "commands":
            return "\n\n".join(map(_describe_command, list_contexts()))
        case "eval-rst":
            return "\n".join(_yield_names(body))
        case "toctree" | "gallery":
            return ""
    raise ValueError(f"{path}: the directive {directive} has no Markdown")


def _describe_command(context: click.Context) -> str:
    """Return the section of one command, with all of its options."""
    usage = " ".join(context.command.get_usage(context).removeprefix("Usage: ").split())
    help_text = inspect.cleandoc(context.command.help or "")
    lines = [f"### {context.command_path}", "", f"    {usage}", "", help_text, ""]
    for title, rows in list_options(context):
        lines += [f"{title}:", "", *(f"- `{term}`: {text}" for term, text in rows), ""]
    return "\n".join(lines).rstrip()


def _yield_names(body: str) -> Iterator[str]:
    """Yield a line for each name of an API list, with the first sentence of its docstring."""
    module = "opensafeintent"
    for directive, name in re.findall(r"^\.\. (\w+):: (\S+)", body, re.MULTILINE):
        if directive == "currentmodule":
            module = name
            continue
        owner, _, last = name.rpartition(".")
        about = getattr(importlib.import_module(owner or module), last)
        first = " ".join((inspect.getdoc(about) or "").split("\n\n")[0].split())
        yield f"- `{last}`: {first}"


def _yield_cells(notebook: dict[str, Any]) -> Iterator[str]:
    """Yield the cells of a notebook, with the text that each printed."""
    for cell in notebook["cells"]:
        text = "".join(cell["source"])
        if cell["cell_type"] != "code":
            yield text
            continue
        yield f"```python\n{text}\n```"
        for output in cell["outputs"]:
            shown = output.get("text") or output.get("data", {}).get("text/plain") or []
            if shown:
                yield "```text\n" + "".join(shown).rstrip() + "\n```"


def write_contents(pages: dict[str, str], captions: list[tuple[str, str]]) -> str:
    """Return `llms.txt`: what the program is, the way to a first answer, and a list of all pages.

    Args:
        pages: the Markdown of each.
        captions: of the groups of pages, each with a page a line.
    """
    (file, heading) = START
    start = pages[file.removesuffix(".md")].partition(f"{heading}\n")[2].partition("\n## ")[0]
    lines = ["# OpenSafeIntent", "", f"> {_find_summary(pages['index'])}", ""]
    lines += [heading.removeprefix("## "), "", start.strip(), ""]
    for caption, names in captions:
        lines += [f"## {caption}", ""]
        lines += [_list_page(name, pages[name]) for name in names.split()] + [""]
    return "\n".join(lines)


def _list_page(name: str, text: str) -> str:
    title = (re.search(r"^# (.+)$", text, re.MULTILINE) or [name, name])[1]
    first = re.match(r".+?[.:](?= |$)", _find_summary(text))
    return f"- [{title}]({name}.md)" + (f": {first[0]}" if first else "")


def _find_summary(text: str) -> str:
    """Return the first paragraph of a page that is no heading, list, table or code, on one line and
    without links.
    """
    paragraphs = (" ".join(part.split()) for part in text.split("\n\n"))
    first = next((part for part in paragraphs if not re.match(r"$|[#|*>!\[-]|```", part)), "")
    return re.sub(r"\[([^\]]+)\]\([^)]*\)", r"\1", first)
