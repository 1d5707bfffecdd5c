"""Errors carry their exit code, and name what would have been valid."""

from __future__ import annotations

import pickle

import pytest

from opensafeintent.errors import (
    InputError,
    JudgeFailed,
    Note,
    OpenSafeIntentError,
    Stopped,
    as_notes,
    first_exit_code,
    for_command_line,
    nearest,
    option,
)

DOMAINS = ["Hate and Harassment", "Fraud and Deception", "Cyber Compromise"]


@pytest.mark.parametrize(
    ("kind", "code"), [(OpenSafeIntentError, 2), (InputError, 2), (Stopped, 3), (JudgeFailed, 4)]
)
def test_exit_codes_are_those_of_the_design(kind: type[OpenSafeIntentError], code: int) -> None:
    assert kind("what is wrong").exit_code == code


@pytest.mark.parametrize(
    ("codes", "counts"),
    [((), 0), ((1, 0), 1), ((1, 5), 5), ((5, 4, 1), 4), ((4, 3), 3), ((3, 2, 130), 130)],
)
def test_of_several_exit_codes_the_gravest_counts(codes: tuple[int, ...], counts: int) -> None:
    assert first_exit_code(*codes) == counts


@pytest.mark.parametrize(
    ("name", "phrase"),
    [
        ("Hate and Harrassment", "did you mean 'Hate and Harassment'?"),
        ("FRAUD AND DECEPTION", "did you mean 'Fraud and Deception'?"),
        ("cyber compromize", "did you mean 'Cyber Compromise'?"),
        ("zzz", "valid: Hate and Harassment, Fraud and Deception, Cyber Compromise"),
        ("", "valid: Hate and Harassment, Fraud and Deception, Cyber Compromise"),
    ],
)
def test_nearest_names_what_was_meant_or_everything(name: str, phrase: str) -> None:
    assert nearest(name, DOMAINS) == phrase


def test_a_name_that_looks_the_same_is_shown_in_escapes() -> None:
    """é is one character, or an e and an accent."""
    phrase = nearest("cafe\u0301", ["caf\u00e9", "tea"])
    assert phrase == r"did you mean 'caf\xe9'?"


def test_what_an_error_quotes_cannot_forge_a_line_or_command_a_terminal() -> None:
    text = str(InputError("set 'a\nerror: b\x1b[2J\u2028c': unknown"))
    assert text == r"set 'a error: b\u001b[2J\u2028c': unknown"
    assert str(InputError("one", "two")) == "one\ntwo"


def test_an_error_is_short_and_keeps_its_end() -> None:
    text = str(InputError("x.json: " + "A" * 300_000 + "; expected less"))
    assert len(text) < 2000
    assert text.startswith("x.json: AAA")
    assert text.endswith("AAA; expected less")


@pytest.mark.parametrize(
    ("marked", "in_python", "in_a_shell"),
    [
        (option("max_connections"), "max_connections", "--max-connections"),
        (option("max_connections", 200), "max_connections=200", "--max-connections 200"),
        (option("limit", 0), "limit=0", "--limit 0"),
        (option("include_unsafe", True), "include_unsafe=True", "--include-unsafe"),
        (option("judges"), "judges", "--judge"),
        (option("extra", "top_p=2"), "extra=top_p=2", "-M top_p=2"),
        (option("models", "a", flag="--model"), "models=a", "--model a"),
    ],
)
def test_an_error_names_a_setting_as_python_or_as_a_shell_does(
    marked: str, in_python: str, in_a_shell: str
) -> None:
    """Another error that quotes it, and a copy from another process, do so too."""
    error = InputError(f"{marked}: expected less", "a second line")
    wrapped = InputError(f"x.json: {error.marked}")
    assert str(error) == f"{in_python}: expected less\na second line"
    assert error.args == (f"{in_python}: expected less", "a second line")
    assert str(wrapped) == f"x.json: {in_python}: expected less a second line"
    for line in (error.lines[0], pickle.loads(pickle.dumps(error)).lines[0]):
        assert for_command_line(line) == f"{in_a_shell}: expected less"
    assert for_command_line(wrapped.marked) == f"x.json: {in_a_shell}: expected less a second line"

    note = Note(f"use a larger {marked}")
    assert note == f"use a larger {in_python}"
    for copy in (note, pickle.loads(pickle.dumps(note)), *as_notes([note], [note.marked])):
        assert copy == f"use a larger {in_python}"
        assert for_command_line(copy) == f"use a larger {in_a_shell}"


def test_foreign_text_that_looks_like_a_part_of_a_mark_is_shown_in_escapes() -> None:
    error = InputError(f"{option('out')} a\ufdd0b\ufdd2: taken")
    assert str(error) == r"out a\ufdd0b\ufdd2: taken"
    assert for_command_line(error.marked) == r"--out a\ufdd0b\ufdd2: taken"
    cut = InputError("x" * 1085 + option("max_connections") + "y" * 1000)
    assert str(cut).isprintable()
