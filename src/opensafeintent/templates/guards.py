"""Forms of guard models, which were trained to say whether a response is unsafe: data files, one a
form, with how it is asked and how its reply is read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Literal, get_args

from opensafeintent.errors import InputError
from opensafeintent.files import read_shipped, sha256_hex
from opensafeintent.taxonomy import GuardFormName, GuardVerdict
from opensafeintent.templates.contracts import cut_fence
from opensafeintent.templates.template import (
    TOKEN,
    Message,
    TemplateFile,
    check_placeholders,
    cut_tokens,
    fill_text,
    placeholders,
    read_template,
)

FORM_NAMES: tuple[GuardFormName, ...] = get_args(GuardFormName)

_MARKS = " \t*_\"'`>#"
"""White space, emphasis, quotation."""
_BETWEEN = r"[\s:,;.*_()\[\]–—-]*"
_CATEGORIES = re.compile(rf"{_BETWEEN}(?:[a-z]{{1,2}}\d+{_BETWEEN})+")
"""Codes of categories, such as S1."""


class GuardForm(TemplateFile, frozen=True, kw_only=True):
    """How a family of guard models is asked, and how its replies are read."""

    names: tuple[str, ...]
    """Parts of the models' names, in lower case and without other characters than letters and
    digits.
    """
    sends: Literal["conversation", "prompt"]
    label: str = ""
    """The words before the colon of the line with the verdict; empty if a line is the verdict."""
    safe: tuple[str, ...]
    """Verdicts in lower case."""
    unsafe: tuple[str, ...]
    explains: bool = False
    """Whether words may follow the verdict on the first line."""

    @property
    def conversation(self) -> bool:
        """Whether request and response are sent as two messages, for the chat template of the
        guard; otherwise they fill the body.
        """
        return self.sends == "conversation"

    def messages(
        self, prompt: str, response: str, before: Iterable[Message] = ()
    ) -> tuple[Message, ...]:
        """Return the request about a response. No response can hold the delimiter that ends it, or
        a token of a chat template.

        Args:
            prompt: the request.
            response: the response to it.
            before: the messages before the request, for a form that sends a conversation.
        """
        if self.conversation:
            turns = (*before, Message("user", (prompt,)), Message("assistant", (response,)))
            return tuple(Message(turn.role, (cut_tokens(turn.content),)) for turn in turns)
        nonce = sha256_hex("\0".join((self.hash, prompt, response)))[:16]
        fills = {"prompt": prompt, "response": response, "nonce": nonce}
        return (Message("user", fill_text(self.body, fills)),)

    def read(self, reply: str) -> GuardVerdict | None:
        """Return whether a reply calls the response unsafe; None if it does not say so in the form,
        or says both.

        A thought, white space, marks of emphasis, tokens of a chat template and the codes of
        categories may be around the verdict; categories make none of a verdict that is safe.
        """
        text = cut_fence(TOKEN.sub("\n", reply).strip()).lower()
        if self.label:
            found = [self._read_verdict(value) for value in self._find_labelled(text)]
            return found[0] if len(set(found)) == 1 else None
        lines = [line.strip(_MARKS) for line in text.splitlines()]
        verdicts = set(map(self._read_verdict, lines)) - {None}
        if self.explains and (first := re.match(r"[a-z]+", text.lstrip(_MARKS))):
            verdicts |= {self._read_verdict(first[0])} - {None}
        if verdicts and self.explains:
            verdicts |= self._find_standing_alone(text)
        if "no" in verdicts and any(map(_CATEGORIES.fullmatch, lines)):
            return None
        return verdicts.pop() if len(verdicts) == 1 else None

    def _find_labelled(self, text: str) -> list[str]:
        """Return what follows the label where it begins a line or follows another label's verdict,
        up to the end of the line or the next label.
        """
        before = "|".join(map(re.escape, (*self.safe, *self.unsafe)))
        start = rf"(?:^[ \t*_>#•-]*(?:\d+[.)][ \t]*)?|\b(?:{before})[.,;*_]*\s+)"
        another = rf"\s[*_]*(?!(?:{before})\b)[a-z]+(?: [a-z]+)?[*_]*:"
        value = rf"[\s*_]*:[*_]*(.*?)(?=$|{another})"
        return re.findall(start + re.escape(self.label.lower()) + value, text, re.MULTILINE)

    def _read_verdict(self, text: str) -> GuardVerdict | None:
        """Return the verdict that a text is, alone or, if it is unsafe, with categories."""
        match = re.match(r"[a-z]+", bare := text.strip(_MARKS))
        if match is None:
            return None
        rest = bare[match.end() :]
        if match[0] in self.unsafe:
            return "yes" if not rest.strip(_MARKS + ".:,;") or _CATEGORIES.fullmatch(rest) else None
        return "no" if match[0] in self.safe and not rest.strip(_MARKS + ".:,;") else None

    def _find_standing_alone(self, text: str) -> set[GuardVerdict | None]:
        """Return the verdicts of all words that are one. *No* before another word is none: it
        denies what that names (*no warning*).
        """
        words = re.findall(r"\b(?:no(?![\s'’-]*[a-z])|(?!no\b)[a-z]+)\b", text)
        return set(map(self._read_verdict, words)) - {None}


@lru_cache(maxsize=8)
def parse_form(name: str, source: str) -> GuardForm:
    """Read a form from its file's text.

    Raises:
        InputError: the header is not valid, or a place for request or response is missing.
    """
    file = f"{name}.md"
    form = read_template(GuardForm, file, source)
    if not form.conversation:
        check_placeholders(file, {"prompt", "response", "nonce"}, placeholders(form.body))
    return form


def load_form(name: GuardFormName) -> GuardForm:
    """Return one of our forms."""
    return parse_form(name, read_shipped(f"templates/guards/{name}.md"))


def guess_form(model: str) -> GuardFormName:
    """Return the name of the form that a guard model's name tells.

    Raises:
        InputError: it tells none.
    """
    letters = re.sub(r"[^a-z0-9]", "", model.lower())
    for name in FORM_NAMES:
        if any(part in letters for part in load_form(name).names):
            return name
    raise InputError(
        f"--guard {model}: the name tells no form of a guard; expected --guard-form with one of"
        f" {', '.join(FORM_NAMES)}"
    )
