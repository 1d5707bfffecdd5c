"""Errors carry their exit code, and name what would have been valid."""

from __future__ import annotations

import pickle

import pytest

from opensafeintent.errors import (
    InputError,
    JudgeFailed,
    OpenSafeIntentError,
    Stopped,
    first_exit_code,
    nearest,
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
    assert len(text) < 2010
    assert text.startswith("x.json: AAA")
    assert text.endswith("AAA; expected less")


def test_a_copy_from_another_process_says_the_same() -> None:
    error = InputError("--limit 0: expected more", "a second line")
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    assert str(InputError(f"x.json: {error}")) == f"x.json: {error.lines[0]} a second line"
