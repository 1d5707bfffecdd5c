"""Secrets are taken out of all that is stored or printed."""

from __future__ import annotations

import os
import re
from array import array
from base64 import b64encode
from bisect import bisect_right
from collections.abc import Iterable
from functools import lru_cache
from html import unescape
from urllib.parse import unquote

SHORTEST_KEY = 8
"""Shorter ones ("none", "x") are no secrets, and would be found in ordinary words."""
_LONGEST_WORD = 15
"""Letters of a variable's value that is a word and no secret: "disabled"."""

_MASK = b"***"
_LAYERS = 4
"""Of escapes within escapes: HTML in JSON in JSON."""
_SECRET = re.compile(
    r"KEY|TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|_PWD|CREDENTIAL|COOKIE|BEARER|AUTH(?!OR)", re.I
)
"""Words in the name of a variable whose value is a secret."""
_noted: set[str] = set()
"""Further variables whose values are secrets."""
_USER_INFO = re.compile(r"(?:^|://)([^\s/?#]*:[^\s/?#]*)@")


def note_secret(variable: str) -> None:
    """Count a variable's value as a secret, whatever the variable is called."""
    _noted.add(variable)


def is_word(value: str) -> bool:
    """Tell whether a value is a plain word: replies and errors may have it for another reason."""
    return value.isalpha() and len(value) <= _LONGEST_WORD


def secret_variable(text: str) -> str:
    """Return the variable whose value stands in a text as a secret; "" if there is none."""
    named = (name for name in sorted(os.environ) if _SECRET.search(name) or name in _noted)
    for name in named:
        value = os.environ[name].strip()
        if not is_word(value) and Secrets([value]).scrub(text) != text:
            return name
    return ""


def collect_secrets() -> Secrets:
    """Return the secrets in the environment: values of variables that are named like keys, or were
    noted, and the users and passwords in URLs.
    """
    values: list[str] = []
    for name, value in os.environ.items():
        if (_SECRET.search(name) or name in _noted) and not is_word(value):
            values.append(value.strip())
        if ("://" in value or "PROXY" in name.upper()) and (match := _USER_INFO.search(value)):
            user_info = unquote(match[1])
            values += [user_info, user_info.partition(":")[2]]
    return _secrets_of(tuple(values))


class Secrets:
    """Values that must not be quoted: as they are, in base64, and with any of their characters in
    the escapes of JSON, URLs and HTML.
    """

    def __init__(self, values: Iterable[str]) -> None:
        secrets = {value for value in values if len(value) >= SHORTEST_KEY}
        forms = secrets.union(*map(_encode_base64, secrets))
        self._forms = [form.encode("utf-8", "surrogateescape") for form in forms]
        chars = "".join(secrets)
        digit = "[0-9a-fA-F]"
        unit = f"u00[0-7]{digit}"
        if not chars.isascii():
            unit = rf"u[dD][89abAB]{digit}{{2}}\\u[dD]{digit}{{3}}|u{digit}{{4}}"
        quote = '"' if '"' in chars else ""
        escapes = (
            rf"\\(?:{unit}|[/\\{quote}])",
            f"%{digit}{{2}}",
            f"&(?:#[0-9]{{1,8}};?|#[xX]{digit}{{1,7}};?|[A-Za-z]{{2,20}};)",
        )
        self._begun = [re.compile(escape.encode()) for escape in escapes]
        """Each is looked for in every reply, which takes less time than all at once."""
        self._escape = re.compile("|".join(escapes).encode())

    def scrub(self, text: str) -> str:
        """Return a text without them."""
        return self.scrub_bytes(text.encode("utf-8", "surrogatepass")).decode(
            "utf-8", "surrogatepass"
        )

    def scrub_bytes(self, body: bytes) -> bytes:
        """Return a body without them."""
        if not self._forms or not (spans := self._find_spans(body, _LAYERS)):
            return body
        kept, end = bytearray(), 0
        for start, stop in sorted(spans):
            if start >= end:
                kept += body[end:start] + _MASK
            end = max(end, stop)
        return bytes(kept + body[end:])

    def _find_spans(self, body: bytes, layers: int) -> list[tuple[int, int]]:
        """Return their spans in a body, under at most this many layers of escapes."""
        spans = [
            match.span()
            for form in self._forms
            if form in body
            for match in re.finditer(re.escape(form), body)
        ]
        if not layers or not any(begun.search(body) for begun in self._begun):
            return spans
        decoded = self._escape.sub(lambda escape: _unescape(escape[0]), body)
        deeper = self._find_spans(decoded, layers - 1)
        if not deeper:  # of nearly every reply: where the escapes were is not asked then
            return spans
        # where each escape ends: in the decoded body, and in the body itself
        decoded_ends, sources = array("Q", [0]), array("Q", [0])
        for escape in self._escape.finditer(body):
            before = escape.start() - sources[-1]
            decoded_ends.append(decoded_ends[-1] + before + len(_unescape(escape[0])))
            sources.append(escape.end())

        def source(place: int) -> int:
            before = bisect_right(decoded_ends, place) - 1
            return sources[before] + place - decoded_ends[before]

        return spans + [(source(start), source(stop)) for start, stop in deeper]


_secrets_of = lru_cache(maxsize=4)(Secrets)


@lru_cache(maxsize=4096)
def _unescape(written: bytes) -> bytes:
    escape = written.decode()
    if escape[0] == "%":
        return bytes.fromhex(escape[1:])
    if escape[0] == "&":
        return unescape(escape).encode("utf-8", "surrogatepass")
    if "u" not in escape:
        return escape[-1:].encode()
    units = bytes.fromhex(escape.replace("\\u", ""))
    return units.decode("utf-16-be", "surrogatepass").encode("utf-8", "surrogatepass")


def _encode_base64(secret: str) -> set[str]:
    """Return a secret in base64 for each offset in the encoded text, without the characters that
    also hold neighbouring bytes.
    """
    raw = secret.encode("utf-8", "surrogateescape")
    forms: set[str] = set()
    for before, first in enumerate((0, 2, 3)):
        form = b64encode(bytes(before) + raw).decode()[first : (before + len(raw)) * 8 // 6]
        forms |= {form, form.replace("+", "-").replace("/", "_")}
    return forms
