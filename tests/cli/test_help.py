"""What `--help` tells somebody who has never seen the program."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

import click
import pytest

from endtoend import osi
from opensafeintent.cli.commands import cli

_HEADINGS = [
    "Models and sampling",
    "Judges",
    "Dataset and sample",
    "Budget and execution",
    "Extra analyses",
    "Cluster (Ray)",
    "Options",
]


def every(command: click.Command = cli, path: str = "") -> Iterator[tuple[str, click.Command]]:
    yield path.strip(), command
    if isinstance(command, click.Group):
        for name, inner in command.commands.items():
            yield from every(inner, f"{path} {name}")


COMMANDS = dict(every())


def helped(path: str) -> str:
    return osi(*path.split(), "--help", COLUMNS="80").out


def sections(text: str) -> dict[str, str]:
    parts = re.split(r"^(\S[^\n]*):\n", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_options_stand_under_the_headings_of_what_they_are_about() -> None:
    found = sections(helped("evaluate"))
    assert list(found) == ["Examples", *_HEADINGS]
    assert re.findall(r"--[a-z][\w-]*", found["Options"]) == ["--help"]
    assert "--dry-run" in found["Budget and execution"]
    assert "--stop-when" in found["Extra analyses"]
    for command in ("grade", "judge-check"):
        assert {"Judges", "Budget and execution"} <= sections(helped(command)).keys()


@pytest.mark.parametrize("name", ["evaluate", "grade", "report"])
def test_three_examples_come_first_and_can_be_typed(name: str) -> None:
    text = helped(name)
    lines = sections(text)["Examples"].strip().splitlines()
    assert len(lines) == 3 and text.index("Examples:") < text.index("Options:")
    for line in lines:
        program, command, *words = shlex.split(line)
        assert (program, command) == ("opensafeintent", name)
        with COMMANDS[name].make_context(name, words) as context:
            assert context.params


def test_help_fits_a_terminal_and_no_summary_is_cut() -> None:
    for path in COMMANDS:
        text = helped(path)
        assert max(map(len, text.splitlines())) <= 80, path
        assert "...\n" not in sections(text).get("Commands", ""), path


def test_the_bare_program_says_what_to_type_first() -> None:
    ran = osi()
    assert ran.code == 0
    lines = ran.out.splitlines()
    assert len(lines) == 5 and max(map(len, lines)) <= 80
    assert "opensafeintent demo" in lines[1]


def test_help_is_in_short_sentences_with_if_for_conditions() -> None:
    for path, command in COMMANDS.items():
        with click.Context(command) as context:
            options = [
                option.help or ""
                for option in command.get_params(context)
                if isinstance(option, click.Option)
            ]
        for text in (command.help or "", *options):
            assert not re.search(r"\b[Ww]here\b", text), (path, text)
            sentences = re.split(r"[.?:;](?:\s+|$)|\n\n", text)
            assert max(len(sentence.split()) for sentence in sentences) <= 25, (path, text)
