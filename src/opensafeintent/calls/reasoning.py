"""A text without the reasoning in it.

Reasoning is never graded. Servers with a reasoning parser return it in a field of its own; others
leave it in the text, between marks.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import zip_longest
from typing import NamedTuple

from opensafeintent.calls.reasoning_marks import ANSWER_MARKS, MARKS


class Parted(NamedTuple):
    """A text without its reasoning, and what was found of it."""

    text: str
    reasoned: bool = False
    """Whether the text held reasoning."""
    ended: bool = True
    """Whether its last thought has an end."""
    unopened: bool = False
    """Whether a thought ended that no mark had opened."""


_FIRST_CHARACTERS = 4
"""So many are compared one by one; what follows is one alternative after another."""


def _pattern(mark: str) -> str:
    """Return the pattern of a mark: white space before its `>` does not count, nor do the
    attributes of `<think>`.
    """
    if mark == "<think>":
        return r"<think(?:\s[^<>]{0,4000})?>"
    if mark.endswith(":…>"):
        return re.escape(mark.removesuffix("…>")) + r"[^\s<>]{1,60}>"
    if mark.startswith("## "):
        return rf"{re.escape(mark)}(?=\s*$)"
    if mark.startswith("Here is"):
        return re.escape(mark).replace(r"Here\ is", "Here(?:'s|’s| is)")
    return re.sub(r"(?<=\w)>$", r"\\s*>", re.escape(mark))


def _tree(named: Mapping[str, str], depth: int = 0) -> str:
    """Return the pattern of several marks, each a group with its name. Their first characters are a
    tree, since a text may have a thousand tags that are none of them.
    """
    if depth == _FIRST_CHARACTERS or len(named) == 1:
        return "|".join(
            f"(?P<{name}>{_pattern(mark)[len(re.escape(mark[:depth])) :]})"
            for name, mark in named.items()
        )
    branches: dict[str, dict[str, str]] = {}
    for name, mark in named.items():
        branches.setdefault(mark[depth].lower(), {})[name] = mark
    return "|".join(
        f"{re.escape(first)}(?:{_tree(inner, depth + 1)})" for first, inner in branches.items()
    )


_BRACKETS = "<[◁"
"""Every mark that may be within a text begins with one of them."""
_NAMED = {
    f"{kind}{number}": mark
    for number, marks in enumerate(MARKS)
    for kind, mark in (("o", marks.opening), ("c", marks.closing))
}
_MARK = re.compile(
    _tree({name: mark for name, mark in _NAMED.items() if mark[0] in _BRACKETS}), re.IGNORECASE
)
_PHRASE = re.compile(
    "|".join(f"(?P<{name}>{_pattern(mark)})" for name, mark in _NAMED.items()),
    re.IGNORECASE | re.MULTILINE,
)
_START = re.compile(
    r"\s*(?:(?:assistant\s*)?(?:analysis|commentary)|assistantfinal"
    r"|here(?:['’]s| is| are) my|##|to=)",
    re.IGNORECASE,
)
"""No text without it, and without a bracket, has a mark: most texts end here."""
_ANSWERS = [
    (re.compile(_pattern(begin), re.IGNORECASE), re.compile(f"{_pattern(end)}$", re.IGNORECASE))
    for begin, end in ANSWER_MARKS
]
_LONGEST_MARK = 100


def without_reasoning(text: str, *, cut: bool = False) -> Parted:
    """Take the reasoning off a text: closed thoughts, one that never ended, and one whose opening
    mark is in the model's chat template.

    No mark that counts anywhere remains in the returned text: one that only appears after a thought
    within it was taken off is broken by a space. Otherwise a judge that quotes such a response
    would seem to have reasoned up to there, with the quotation as its reply.

    Args:
        text: a reply, or a response from a file.
        cut: whether a limit of tokens ended it.
    """
    phrased = _START.match(text) is not None
    if not phrased and not any(bracket in text for bracket in _BRACKETS):
        return Parted(text)
    parted = _without_channels(text) or Parted(text)
    inner = _without_marks(parted.text, _PHRASE if phrased else _MARK, cut=cut)
    reasoned = parted.reasoned or inner.reasoned
    answer = _without_answer_marks(inner.text.strip()) if reasoned else inner.text
    return Parted(answer, reasoned, parted.ended and inner.ended, parted.unopened or inner.unopened)


def thought_in(text: str) -> str:
    """Return the part of a text that `without_reasoning` takes off, with its marks; "" if there is
    none.
    """
    parted = without_reasoning(text)
    if not parted.reasoned:
        return ""
    answer, whole = parted.text.strip(), text.strip()
    return whole[: len(whole) - len(answer)].strip() if whole.endswith(answer) else whole


def _without_answer_marks(text: str) -> str:
    for begin, end in _ANSWERS:
        if (match := begin.match(text)) is not None:
            text = text[match.end() :].lstrip()
        if match is not None or begin.search(text) is None:
            last = end.search(text, max(len(text) - _LONGEST_MARK, 0))
            text = text[: last.start()].rstrip() if last else text
    return text


def _without_marks(text: str, mark: re.Pattern[str], *, cut: bool) -> Parted:
    kept: list[str] = []
    blank = True
    """Whether nothing but white space was kept."""
    end = begun = 0
    thinking: int | None = None
    """Index of the form of the thought that is open."""
    ordinary: set[int] = set()
    """Forms whose opening mark was met where it is an ordinary tag."""
    reasoned = unopened = False
    for match in mark.finditer(text):
        name = match.lastgroup or ""
        form = int(name[1:])
        if name[0] == "c" and thinking == form:
            thinking, reasoned = None, True
        elif thinking is not None:
            continue
        elif name[0] == "c":
            if not MARKS[form].alone or form in ordinary:
                continue
            kept.clear()  # everything so far was a thought
            blank = reasoned = unopened = True
        else:
            before = text[end : match.start()] if form not in ordinary else "x"
            if MARKS[form].place != "anywhere" and not (blank and not before.strip()):
                ordinary.add(form)
                continue
            kept.append(text[end : match.start()])
            blank = blank and not before.strip()
            thinking, begun = form, match.start()
        end = match.end()
    if thinking is not None and MARKS[thinking].place == "pair" and not cut:
        thinking, end = None, begun  # ordinary words, and no thought
    if thinking is None:
        kept.append(text[end:])
    return Parted(
        _MARK.sub(_broken, "".join(kept)),
        reasoned or thinking is not None,
        thinking is None,
        unopened,
    )


def _broken(match: re.Match[str]) -> str:
    """Return a mark that counts anywhere with a space in it, so that it counts no more."""
    if MARKS[int((match.lastgroup or "")[1:])].place != "anywhere":
        return match[0]
    return f"{match[0][0]} {match[0][1:]}"


_HEADER = re.compile(
    r"(?:<\|start\|>)?(?:assistant)?\s*<\|channel\|>\s*(?P<channel>\w+)"
    r"(?P<to>[^<\n]{0,200})(?:<\|constrain\|>[^<\n]{0,100})?(?:<\|message\|>)?"
)
_CHANNEL_END = re.compile(r"<\|(?:end|return|call|eot)\|>")
_TOKEN = re.compile(r"<\|(?:start|channel|message|constrain|end|return|call)\|>")
_PLAIN = re.compile(
    r"\s*(?:assistant)?\s*(?:analysis|commentary)(?P<thought>.*?)assistantfinal(?P<final>.*)",
    re.I | re.S,
)
_PLAIN_FINAL = re.compile(r"\s*assistantfinal\s*", re.I)
_PLAIN_THOUGHT = re.compile(r"\s*(?:assistant)?analysis(?=[A-Z\"'“(0-9])")


def _without_channels(text: str) -> Parted | None:
    """Return the final channel of a text in harmony's form, and the commentary for the user; None
    if the text is in another form.
    """
    if "<|channel|>" in text:
        return _final_of(text)
    if (match := _PLAIN.match(text)) is not None:
        return Parted(match["final"], reasoned=True)
    if (match := _PLAIN_FINAL.match(text)) is not None:
        return Parted(text[match.end() :])
    if _PLAIN_THOUGHT.match(text) is not None:
        return Parted("", reasoned=True, ended=False)
    return None


def _final_of(text: str) -> Parted:
    kept: list[str] = []
    reasoned = unopened = False
    ended = True
    headers = list(_HEADER.finditer(text))
    before = text[: headers[0].start()] if headers else text
    # the chat template opened the first channel
    if _TOKEN.sub("", before).strip():
        reasoned = unopened = bool(headers)
        kept += [] if headers else [before]
    for header, after in zip_longest(headers, headers[1:]):
        body = text[header.end() : after.start() if after else len(text)]
        end = _CHANNEL_END.search(body)
        content, after_end = (body[: end.start()], body[end.end() :]) if end else (body, "")
        shown = header["channel"] == "final" or (
            header["channel"] == "commentary" and "to=" not in header["to"]
        )
        if shown:
            # a final channel without its <|message|> has its first words in the header
            kept.append(header["to"] + content if "<|message|>" not in header[0] else content)
        else:
            reasoned = True
            ended = end is not None or after is not None
        kept.append(after_end)
    parts = (_TOKEN.sub("", part).strip() for part in kept)
    return Parted("\n\n".join(filter(None, parts)), reasoned, ended, unopened)
