"""Errors that a user can meet have one style: PLACE: what is wrong; what would be valid
(CONTRIBUTING.md).
"""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

import click

from opensafeintent.cli.commands import cli
from opensafeintent.errors import install_extra
from source import SOURCE, nodes

ERRORS = {"InputError", "Stopped", "JudgeFailed", "Problem"}
PYTHON = ("calls/python_models.py", "commands/notebooks.py")
"""What is called from Python alone says what it got in Python's words."""


def text_of(node: ast.expr) -> str | None:
    """Return what an expression says, with X for what is filled in; None where it is put together
    elsewhere.
    """
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(text_of(part) or "X" for part in parts)
        case ast.BinOp(op=ast.Add(), left=first, right=right):
            texts = text_of(first), text_of(right)
            return None if None in texts else "".join(map(str, texts))
    return None


@functools.cache
def errors() -> list[tuple[str, str, ast.expr]]:
    """Return (place in the source, text, expression) of every error that is written out there."""
    return [
        (f"{path}:{node.lineno}", text, argument)
        for path, node in nodes()
        if isinstance(node, ast.Call)
        and getattr(node.func, "id", getattr(node.func, "attr", "")) in ERRORS
        for argument in node.args
        if (text := text_of(argument)) is not None
    ]


def matching(pattern: str) -> list[tuple[str, str]]:
    return [(at, text) for at, text, _ in errors() if re.search(pattern, text)]


def test_every_error_names_its_place_first() -> None:
    # a place: an option, a file, a variable, what is lacking; then a colon. What is added to an
    # error has it already.
    placed = re.compile(r"[^.;?!]*?\S: \S|X(; |X$)")
    assert [(at, text) for at, text, _ in errors() if not placed.match(text)] == []


def test_one_function_says_how_an_extra_is_installed() -> None:
    """No package is published: a bare `pip install "opensafeintent[hf]"` fails everywhere."""
    writing = {
        str(path)
        for path, node in nodes()
        if isinstance(node, ast.Constant) and 'pip install "' in str(node.value)
    }
    assert writing == {"errors.py"}
    assert install_extra("hf").startswith('pip install ".[hf]"')


def test_an_error_is_one_sentence_without_an_end() -> None:
    assert matching(r"[.!?]$|[.?!] [A-Z]") == []


def test_what_is_wrong_begins_small_and_what_is_valid_is_expected() -> None:
    assert matching(r"\b([Ii]nvalid|[Ii]llegal|[Mm]ust|[Ss]hould|[Pp]lease|[Ee]rror)\b") == []
    names = "FunctionModel|Parquet|OpenDocument|UTF-8|NUL|Ray"
    assert matching(rf"^[^:]*: (?!{names})[A-Z][a-z]") == []


def test_no_option_is_its_own_value_and_place() -> None:
    # "--min-accuracy is 1.5; expected …" and "--min-accuracy: 1.5 is …" are both "--min-accuracy 1.5: expected …"
    assert matching(r"^--[a-z-]+ (is|are|belongs|sets|takes|goes|looks) ") == []
    assert matching(r"(--[a-z-]+): \1\b") == []


def test_no_python_type_is_shown() -> None:
    shown = [(at, ast.unparse(node).replace("type(error)", "")) for at, _, node in errors()]
    typed = [at for at, code in shown if "type(" in code]
    assert [at for at in typed if not at.startswith(PYTHON)] == []


FLAG = re.compile(r"(?<![\w-])--[a-z][a-z-]*[a-z](?![\w-])")
OF_OTHERS = {
    *(
        "--preset",
        "--action",
        "--model-role",
        "--no-score",
        "--output-file",
        "--scorer",
        "--task",
    ),  # Inspect
    *("--address", "--skip-version-check"),  # Ray
    *("--port", "--reasoning-parser", "--served-model-name"),  # vLLM
    *("--create-pr", "--repo-type"),  # hf upload
    *("--disable-gpu", "--no-sandbox"),  # Chromium
    "--upgrade",  # pip
}
"""Options of other programs, which our texts and pages name too."""


def all_flags() -> set[str]:
    """Return the flags of every option of every command."""
    flags = {"--help"}
    commands: list[click.Command] = [cli]
    while commands:
        command = commands.pop()
        if isinstance(command, click.Group):
            commands += command.commands.values()
        for parameter in command.get_params(click.Context(command)):
            flags.update(*(parameter.opts, parameter.secondary_opts))
    return flags


def test_an_option_that_a_text_or_a_page_names_is_one_of_a_command() -> None:
    """Texts for Python name it so too."""
    folders = (SOURCE, Path(__file__).parents[1] / "docs")
    named = {
        flag
        for folder in folders
        for path in folder.rglob("*")
        if path.suffix in (".py", ".md", ".jinja", ".html", ".js", ".ipynb")
        for flag in FLAG.findall(path.read_text("utf-8"))
    }
    assert len(named) > 80
    assert named - all_flags() == OF_OTHERS
