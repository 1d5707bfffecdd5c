"""Forms of guard models, which were trained to say whether a response is unsafe: data files, one a
form, with how it is asked and how its reply is read.
"""

from __future__ import annotations

import re
from functools import lru_cache
from importlib import resources
from typing import Literal, get_args

import msgspec

from opensafeintent.errors import InputError, option
from opensafeintent.files import sha256_hex
from opensafeintent.taxonomy import GuardFormName, GuardVerdict
from opensafeintent.templates.contracts import without_fence
from opensafeintent.templates.template import (
    Message,
    TemplateFile,
    check_placeholders,
    filled,
    placeholders,
    split_header,
)

FORM_NAMES: tuple[GuardFormName, ...] = get_args(GuardFormName)

_WORD = re.compile(r"[a-z]+")
_CATEGORIES = re.compile(r"[\s:,;.*]*(?:[a-z]{1,2}\d+[\s,;.*]*)*")
"""The rest of a line behind a verdict: codes such as S1, or nothing."""


class _FormHeader(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    id: str
    version: int
    names: tuple[str, ...]
    sends: Literal["conversation", "prompt"]
    label: str = ""
    safe: tuple[str, ...]
    unsafe: tuple[str, ...]
    explains: bool = False


class GuardForm(TemplateFile, frozen=True, kw_only=True):
    """How a family of guard models is asked, and how its replies are read."""

    names: tuple[str, ...]
    """Parts of the models' names, in lower case and without other characters than letters and
    digits.
    """
    conversation: bool
    """Whether request and response are sent as two messages, for the chat template of the guard;
    otherwise they fill the body.
    """
    label: str
    """The words before the colon of the line with the verdict; empty if a line is the verdict."""
    safe: tuple[str, ...]
    """Verdicts in lower case."""
    unsafe: tuple[str, ...]
    explains: bool
    """Whether words may follow the verdict on the first line."""

    def messages(self, prompt: str, response: str) -> tuple[Message, ...]:
        """Return the request about a response. No response can hold the delimiter that ends it."""
        if self.conversation:
            return Message("user", (prompt,)), Message("assistant", (response,))
        nonce = sha256_hex("\0".join((self.hash, prompt, response)))[:16]
        fills = {"prompt": prompt, "response": response, "nonce": nonce}
        return (Message("user", filled(self.body, fills)),)

    def read(self, reply: str) -> GuardVerdict | None:
        """Return whether a reply calls the response unsafe; None if it does not say so in the form,
        or says both.

        A thought, white space, marks of emphasis and the names of categories may be around the
        verdict.
        """
        text = without_fence(reply.strip()).lower()
        verdicts = set(map(self._verdict, self._labelled(text) if self.label else _lines(text)))
        if self.label:
            return verdicts.pop() if len(verdicts) == 1 else None
        if self.explains and (first := _WORD.match(text.lstrip("*_ \"'"))):
            verdicts.add(self._verdict(first[0]))
        verdicts.discard(None)
        return verdicts.pop() if len(verdicts) == 1 else None

    def _labelled(self, text: str) -> list[str]:
        """Return the words behind the label, wherever it is."""
        label = re.escape(self.label.lower())
        return re.findall(rf"\b{label}\b[\s*_]*:[\s*_\"']*([a-z]+)", text)

    def _verdict(self, word: str) -> GuardVerdict | None:
        if word in self.unsafe:
            return "yes"
        return "no" if word in self.safe else None


def _lines(text: str) -> list[str]:
    """Return the first word of each line that holds a word and codes of categories alone."""
    words = []
    for line in text.splitlines():
        bare = line.strip(" \t*_\"'")
        word = _WORD.match(bare)
        if word and _CATEGORIES.fullmatch(bare[word.end() :]):
            words.append(word[0])
    return words


@lru_cache(maxsize=8)
def parse_form(name: str, source: str) -> GuardForm:
    """Read a form from its file's text.

    Raises:
        InputError: the header is not valid, or a place for request or response is missing.
    """
    file = f"{name}.md"
    header, body = split_header(file, source, _FormHeader)
    if header.sends == "prompt":
        check_placeholders(file, {"prompt", "response", "nonce"}, placeholders(body))
    return GuardForm(
        id=header.id,
        version=header.version,
        source=source,
        hash=sha256_hex(source),
        body=body,
        names=header.names,
        conversation=header.sends == "conversation",
        label=header.label,
        safe=header.safe,
        unsafe=header.unsafe,
        explains=header.explains,
    )


def load_form(name: GuardFormName) -> GuardForm:
    """Return one of our forms."""
    folder = resources.files("opensafeintent.templates").joinpath("guards")
    return parse_form(name, folder.joinpath(f"{name}.md").read_text("utf-8"))


def form_name_of(model: str) -> GuardFormName:
    """Return the name of the form that a guard model's name tells.

    Raises:
        InputError: it tells none.
    """
    letters = re.sub(r"[^a-z0-9]", "", model.lower())
    for name in FORM_NAMES:
        if any(part in letters for part in load_form(name).names):
            return name
    raise InputError(
        f"{option('guard', model)}: the name tells no form of a guard; expected"
        f" {option('guard_form')} with one of {', '.join(FORM_NAMES)}"
    )
