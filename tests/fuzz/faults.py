"""What is done to good files: bytes flipped, cut, doubled and spliced, and values put where they do
not belong.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from hypothesis import strategies as st

DEEP = 100_000
DIGITS = "9" * 5000
"""More than Python turns into a number by itself."""
LONG = "A" * 300_000

TEXTS = (
    *" \n\0\x01\x7f\x85\u2028\u202e\ufeff\ufffe\uffff\U0010ffffé名🙂",
    *("", "e\u0301", "\x1b[2J", "a\nerror: forged", "a,b;c\t'\"`", "%s%n{0}{{prompt}}$(id)"),
    *("=1+1", "<script>", "../../etc", "/dev/null", "nan", "-1", DIGITS, LONG),
)
"""Texts that are valid Unicode, and yet no friend of files, terminals, tables or pages."""

STRINGS = (
    *('"\\ud800"', '"a\\udfffb"', '"\\ud83d"', '"x"', '"0"', '"A0"'),
    *(json.dumps(text) for text in TEXTS),
)
LITERALS = (
    *("null", "true", "false", "0", "-1", "1.5", "1e999", "-1e999", "1e-999", "NaN", "Infinity"),
    *map(str, (2**31, 2**53, 2**63, 2**64, -(2**63) - 1)),
    *(DIGITS, f"-{DIGITS}", "-0.0", "[]", "{}", "[[]]", "[null]", '{"a": 1}', '["x", "x"]'),
    *("[" * DEEP, "[" * DEEP + "]" * DEEP, '{"a":' * DEEP + "1" + "}" * DEEP),
    "[" * 900 + "]" * 900,
    *STRINGS,
)
"""What may stand in place of a JSON value, right or wrong."""

TOKENS = (
    *(bytes([byte]) for byte in b"\xff\0\r\n\\\"'{}[],:=#."),
    *(b"\xed\xa0\x80", b"\xc0\xaf", b"\xf4\x90\x80\x80", b"\xef\xbb\xbf", b'"""', b"[["),
    *(b"\\ud800", b"\\u0000", b"a." * 2000, b"[a]\n" * 50, b"&x;", b"(1 of 99999)"),
    *(text.encode() for text in (*LITERALS, *TEXTS)),
)
"""What is spliced into bytes."""
TOML_VALUES = ("inf", "nan", "2024-02-30", "1979-05-27T07:32:00Z", "''''''", '"""', *LITERALS)
TOML_LINES = (
    *("a." * 500 + "a = 1", '"\\u0001" = 1', "a = 1", '"" = 1', "a.b = {c.d = 1}"),
    *("[x]", "[[x]]", "[" + "a." * 500 + "a]", '["\\n"]'),
)


@st.composite
def damaged(draw: st.DrawFn, content: bytes) -> bytes:
    """Draw a file with one to three faults in its bytes."""
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(content)))
        to = min(len(content), at + draw(st.sampled_from((1, 2, 8, 100, 5000))))
        match draw(st.sampled_from(("flip", "cut", "drop", "double", "splice", "replace"))):
            case "flip" if at < len(content):
                flipped = content[at] ^ (1 << draw(st.integers(0, 7)))
                content = content[:at] + bytes((flipped,)) + content[at + 1 :]
            case "cut":
                content = content[:at]
            case "drop":
                content = content[:at] + content[to:]
            case "double":
                content = content[:to] + content[at:]
            case "splice":
                content = content[:at] + draw(st.sampled_from(TOKENS)) + content[at:]
            case _:
                content = content[:at] + draw(st.sampled_from(TOKENS)) + content[to:]
    return content


def damaged_text(text: str) -> st.SearchStrategy[bytes]:
    """Draw a text file with faults in its bytes, or in another encoding."""
    encodings = ("utf-16", "utf-8-sig", "latin-1", "utf-32-be")
    encoded = st.sampled_from(encodings).map(lambda name: text.encode(name, "replace"))
    return st.one_of(damaged(text.encode()), damaged(text.encode()), encoded)


@st.composite
def damaged_json(draw: st.DrawFn, value: Any) -> bytes:
    """Draw JSON in which something stands where it does not belong, or is not there, or is there
    twice; or broken bytes.
    """
    if draw(st.integers(0, 3)) == 0:
        return draw(damaged_text(json.dumps(value, ensure_ascii=False)))
    value = json.loads(json.dumps(value))
    replaced: dict[str, str] = {}
    for number in range(draw(st.integers(1, 2))):
        path = draw(st.sampled_from(list(_paths(value)) or [()]))
        mark = f"@@{number}@@"
        fault = draw(st.sampled_from(("value", "value", "value", "drop", "more", "key", "twice")))
        value = _changed(value, path, fault, mark)
        literal = draw(st.sampled_from(LITERALS))
        replaced[json.dumps(mark)] = literal
        replaced[json.dumps(f"{mark} twice")] = f'"twice": {literal}, "twice"'
        replaced[json.dumps(f"{mark} key")] = draw(st.sampled_from(STRINGS))
    text = json.dumps(value, ensure_ascii=draw(st.booleans()))
    for mark, literal in replaced.items():
        text = text.replace(mark, literal)
    return text.encode()


@st.composite
def damaged_lines(draw: st.DrawFn, records: Sequence[Any]) -> bytes:
    """Draw JSON lines of which one is damaged, or stands twice, or has a stranger beside it."""
    lines = [json.dumps(record, ensure_ascii=False).encode() for record in records]
    at = draw(st.integers(0, len(lines) - 1))
    match draw(st.sampled_from(("damage", "damage", "damage", "bytes", "twice", "stranger"))):
        case "damage":
            lines[at] = draw(damaged_json(records[at]))
        case "bytes":
            return draw(damaged(b"\n".join(lines) + b"\n"))
        case "twice":
            lines.insert(at, lines[at])
        case _:
            lines.insert(at, draw(st.sampled_from(LITERALS)).encode())
    return b"\n".join(lines) + b"\n"


@st.composite
def damaged_toml(draw: st.DrawFn, text: str) -> bytes:
    """Draw TOML of which a line has another value, is missing, or stands twice; or broken bytes."""
    if draw(st.integers(0, 2)) == 0:
        return draw(damaged_text(text))
    lines = text.split("\n")
    at = draw(st.integers(0, len(lines) - 1))
    match draw(st.sampled_from(("value", "value", "value", "drop", "twice", "more", "more"))):
        case "value":
            lines[at] = f"{lines[at].partition('=')[0]}= {draw(st.sampled_from(TOML_VALUES))}"
        case "drop":
            del lines[at]
        case "twice":
            lines.insert(at, lines[at])
        case _:
            lines.insert(at, draw(st.sampled_from(TOML_LINES)))
    return "\n".join(lines).encode()


def _paths(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    if path:
        yield path
    items: Iterator[tuple[str | int, Any]] = iter(())
    if isinstance(value, dict):
        items = iter(value.items())
    elif isinstance(value, list):
        items = iter(enumerate(value))
    for key, inner in items:
        yield from _paths(inner, (*path, key))


def _changed(value: Any, path: tuple[str | int, ...], fault: str, mark: str) -> Any:
    if not path:
        return mark
    *above, last = path
    inner = value
    for key in above:
        inner = inner[key]
    if fault == "drop":
        del inner[last]
    elif fault == "more" and isinstance(inner, list):
        inner.append(mark)
    elif fault == "more":
        inner["unheard_of"] = mark
    elif fault == "key" and isinstance(inner, dict):
        inner[f"{mark} key"] = inner.pop(last)
    elif fault == "twice" and isinstance(inner, dict):
        inner[f"{mark} twice"] = inner[last]
    else:
        inner[last] = mark
    return value
