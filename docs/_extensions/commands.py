"""The directive `commands`: what `--help` prints of every command, laid out as a page, read again
at every build.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import click
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from opensafeintent.cli.commands import cli

_NAME = "opensafeintent"


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directive."""
    app.add_directive("commands", CommandsDirective)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


class CommandsDirective(SphinxDirective):
    """A section for the program and each of its commands, those of groups included."""

    def run(self) -> list[nodes.Node]:
        """Return the sections."""
        self.env.note_reread()  # the commands may have changed although the page has not
        return [self._section(context) for context in list_contexts()]

    def _section(self, context: click.Context) -> nodes.section:
        path = context.command_path
        short = path.removeprefix(f"{_NAME} ")
        section = nodes.section(
            "",
            nodes.title("", "", nodes.literal("", short)),
            ids=[nodes.make_id(short)],
            names=[short],
        )
        self.state.document.note_explicit_target(section)
        usage = context.command.get_usage(context).removeprefix("Usage: ")
        section += nodes.literal_block("", re.sub(r"\s+", " ", usage), language="none")
        section += [paragraph(text) for text in _paragraphs(context.command.help or "")]
        section += _options(context)
        return section


def list_contexts() -> list[click.Context]:
    """Return the program and each of its commands, those of groups included."""
    return list(_contexts(click.Context(cli, info_name=_NAME)))


def _contexts(context: click.Context) -> Iterator[click.Context]:
    yield context
    if isinstance(context.command, click.Group):
        for name in context.command.list_commands(context):
            command = context.command.get_command(context, name)
            if command is not None and not command.hidden:
                yield from _contexts(click.Context(command, parent=context, info_name=name))


def _paragraphs(text: str) -> list[str]:
    return [
        " ".join(paragraph.split())
        for paragraph in re.split(r"\n\s*\n", text.strip())
        if paragraph.strip()
    ]


def paragraph(text: str) -> nodes.paragraph:
    """Return a paragraph in which what stands between backticks, and options, are code."""
    pieces = re.split(r"`([^`]+)`|(?<![\w-])(--[a-z][\w-]*)", text)
    parts = [
        nodes.Text(piece) if place % 3 == 0 else nodes.literal("", piece)
        for place, piece in enumerate(pieces)
        if piece
    ]
    return nodes.paragraph("", "", *parts)


class _Recorder(click.HelpFormatter):
    """Keeps the groups of options that `--help` prints, in place of writing them."""

    def __init__(self) -> None:
        super().__init__()
        self.groups: list[tuple[str, list[tuple[str, str]]]] = []

    @contextmanager
    def section(self, name: str) -> Iterator[None]:
        self.groups.append((name, []))
        yield

    def write_dl(self, rows: Sequence[tuple[str, str]], *_: object, **__: object) -> None:
        self.groups[-1][1].extend(rows)


def list_options(context: click.Context) -> list[tuple[str, list[tuple[str, str]]]]:
    """Return the options by their groups of `--help`, as the program names and explains them."""
    recorder = _Recorder()
    context.command.format_options(context, recorder)
    groups = [(title, rows) for title, rows in recorder.groups if title != "Commands"]
    return [
        (title, [(term, " ".join(text.split())) for term, text in rows if _is_shown(term, text)])
        for title, rows in groups
    ]


def _is_shown(term: str, text: str) -> bool:
    return bool(text) and "--help" not in term


def _options(context: click.Context) -> list[nodes.Node]:
    found: list[nodes.Node] = []
    groups = list_options(context)
    for title, rows in groups:
        items = [
            nodes.definition_list_item(
                "",
                nodes.term("", "", nodes.literal("", term)),
                nodes.definition("", paragraph(text)),
            )
            for term, text in rows
        ]
        if items and len(groups) > 1:
            found.append(nodes.rubric("", title))
        if items:
            found.append(nodes.definition_list("", *items, classes=["options"]))
    return found
