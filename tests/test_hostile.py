"""Model text is made harmless for terminals, spreadsheets and file names."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, strategies as st

from opensafeintent import hostile
from opensafeintent.hostile import (
    LINE,
    NAME,
    cell_safe,
    name_safe,
    one_line,
    remove_url_credentials,
    restore_cell,
    terminal_safe,
)
from opensafeintent.people.study import readable

ANY_TEXT = st.text(st.characters(codec=None))  # lone surrogates too


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain, héllo, 漢字, 🙂\nsecond line", "plain, héllo, 漢字, 🙂\nsecond line"),
        ("\x1b[2J", r"\u001b[2J"),  # clears a screen
        ("\x9b2J", r"\u009b2J"),  # the same, in one C1 character
        ("\x1b]8;;http://x\x07", r"\u001b]8;;http://x\u0007"),  # a hidden link
        ("safe\rfake", r"safe\u000dfake"),  # overwrites the line
        ("\x08\x7f\x00", r"\u0008\u007f\u0000"),
        ("a\u202eb\u2066c", r"a\u202eb\u2066c"),  # bidi override and isolate
        ("z\u200bw\ufeff", r"z\u200bw\ufeff"),  # zero width
        ("\ud800", r"\ud800"),  # cannot be printed at all
    ],
)
def test_what_reaches_a_terminal(text: str, expected: str) -> None:
    assert terminal_safe(text) == expected


def test_a_long_text_takes_one_look_at_each_of_its_characters(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks: list[str] = []

    def noted(char: str) -> bool:
        looks.append(char)
        return char == "\u2062"

    monkeypatch.setattr(hostile, "is_unseen", noted)
    text = "\u2062 and seven more words " * 10_000
    assert terminal_safe(text).count(r"\u2062") == readable(text).count("[U+2062]") == 10_000
    assert len(looks) <= 2 * len(set(text))


@given(ANY_TEXT)
def test_terminal_text_is_printable_and_stays_as_it_is(text: str) -> None:
    safe = terminal_safe(text)
    safe.encode()  # what cannot be encoded cannot be printed
    assert "\x1b" not in safe and terminal_safe(safe) == safe
    line = one_line(text, 20)
    assert len(line) <= 20 and len(line.splitlines()) <= 1


@pytest.mark.parametrize(
    ("text", "most", "expected"),
    [
        ("  two\n lines\t\x1b ", 200, r"two lines \u001b"),
        ("a\u2028b\x85c", 200, "a b c"),  # line separators that are not \n
        ("abcd", 4, "abcd"),
        ("abcde", 4, "abc…"),
        ("", 4, ""),
    ],
)
def test_one_line(text: str, most: int, expected: str) -> None:
    assert one_line(text, most) == expected


# the first characters that OWASP's ASVS 5.0 lists in 1.2.10 (= + - @, tab, NUL), and a carriage
# return
FORMULAS = (
    *("=1+1", '=HYPERLINK("http://x","y")', "+cmd|' /C calc'!A0", "-2+3+cmd|' /C calc'!A0"),
    *("@SUM(A1)", "\t=1+1", "\r=1+1", "\0=1+1", "-", "-- a signature", "-1 and a text", "+1e5x"),
    "-1.5\n=1+1",
)


@pytest.mark.parametrize("text", FORMULAS)
def test_a_formula_becomes_text_in_a_cell(text: str) -> None:
    assert cell_safe(text) == "'" + text


@pytest.mark.parametrize("text", [*FORMULAS, "'=1", "''=1", "'tis", "-1", "", "'", "'-1", "a = b"])
def test_a_cell_gives_back_its_text(text: str) -> None:
    assert restore_cell(cell_safe(text)) == text


@pytest.mark.parametrize(
    "text", ["", "a = b", "1+1", " text", "-1", "+7", "-1.5", "-1.5e-05", "'tis", "openai/gpt-5.4"]
)
def test_text_and_numbers_stay_as_they_are_in_a_cell(text: str) -> None:
    assert cell_safe(text) == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("openai/gpt-5.4", "openai-gpt-5.4"),
        ("../../etc/passwd", "etc-passwd"),
        ("..", "unnamed"),
        ("", "unnamed"),
        (".hidden", "hidden"),
        ("-rf", "rf"),
        ("C:\\a\x00b", "C-a-b"),
        ("名前 é", "名前-é"),
        ("a\u202eb\u200bc\u3164d\uffa0\u3000e", "a-b-c-d-e"),
        ("a" * 300, "a" * NAME),
    ],
)
def test_a_text_as_a_file_name(text: str, expected: str) -> None:
    assert name_safe(text) == expected


@given(ANY_TEXT)
def test_a_file_name_stays_in_its_folder(text: str) -> None:
    name = name_safe(text)
    assert 0 < len(name) <= NAME and name.isprintable()
    assert not set(name) & set('/\\:*?"<>| ') and name[0] not in ".-"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("no answer from http://user:secret@proxy:3128: x", "no answer from http://proxy:3128: x"),
        ("'https://se@cret@host/a?b=c@d', socks5://p@h", "'https://host/a?b=c@d', socks5://h"),
        ("to a@b.example about http://host/a@b", "to a@b.example about http://host/a@b"),
    ],
)
def test_no_url_keeps_its_user_info(text: str, expected: str) -> None:
    assert remove_url_credentials(text) == expected


@pytest.mark.parametrize(
    "text", [" " * 10**7 + "a" * 10**7, "a b " * 10**7, "\x1b" * 10**7, "\u202e \x1b" * 10**7]
)
def test_a_line_of_a_huge_text_is_cut_before_it_is_made_safe(text: str) -> None:
    started = time.process_time()
    assert len(one_line(text)) == LINE
    assert time.process_time() - started < 5  # character by character it takes ten and more
