"""Reasoning in replies: the marks around it, the signs of it, and taking it off."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import zip_longest
from typing import Any, Literal, NamedTuple

import msgspec

Place = Literal["anywhere", "start", "pair"]
"""Which marks count.

- `anywhere`: a thought may begin anywhere, and its opening mark may be in the chat template, so
  that the text has the closing mark alone.
- `start`: ordinary tags as well, so a thought begins at the start of a text only.
- `pair`: ordinary words, so a thought begins at the start and has both marks, unless a limit cut
  the reply.
"""


class Marks(NamedTuple):
    """The marks of one form; letters in either case."""

    opening: str
    closing: str
    used_by: str
    place: Place = "anywhere"
    alone: bool = True
    """Whether a closing mark alone ends a thought that the chat template opened."""


MARKS = (
    Marks(
        "<think>",
        "</think>",
        "DeepSeek, Qwen3, QwQ, GLM, Kimi K2, MiniMax, Nemotron, Step, OLMo 3 and most others",
    ),
    Marks("<think:…>", "</think:…>", "Hunyuan 3 and 4 (vLLM: hy_v3_reasoning_parser)"),
    Marks("<thinking>", "</thinking>", "Apriel 1.5, Reflection, prompted models (Open WebUI)"),
    Marks("<budget:thinking>", "</budget:thinking>", "Claude behind gateways (LiteLLM)"),
    Marks("<seed:think>", "</seed:think>", "Seed-OSS (vLLM: seed_oss)"),
    Marks("<mm:think>", "</mm:think>", "MiniMax M3 (vLLM: minimax_m3_reasoning_parser)"),
    Marks("<longcat_think>", "</longcat_think>", "LongCat Flash (mlx-lm)"),
    Marks("<ifm|think>", "</ifm|think>", "K2 Horizon (vLLM: k2_horizon_reasoning_parser)"),
    Marks("<ifm|think_fast>", "</ifm|think_fast>", "K2 Horizon"),
    Marks("<ifm|think_faster>", "</ifm|think_faster>", "K2 Horizon"),
    Marks("[THINK]", "[/THINK]", "Magistral, Ministral 3 (vLLM: mistral; SGLang)"),
    Marks("◁think▷", "◁/think▷", "Kimi-VL, Kimi-Dev (SGLang)"),
    Marks("<|begin_of_thought|>", "<|end_of_thought|>", "Sky-T1, OpenThinker (Open WebUI)"),
    Marks("<|START_THINKING|>", "<|END_THINKING|>", "Command R7B, A (vLLM: cohere_command)"),
    Marks("<|inner_prefix|>", "<|inner_suffix|>", "Apertus (SGLang, llama.cpp)"),
    Marks("<|channel>thought", "<channel|>", "Gemma 4 (vLLM: gemma4; SGLang; Ollama)"),
    Marks("<|open|>think<|sep|>", "<|close|>think<|sep|>", "Kimi K3 (vLLM: kimi_k3)"),
    Marks("<|content_thinking|>", "<|end_message|>", "Inkling (vLLM, SGLang)", alone=False),
    Marks("<|plamo:begin_think:plamo|>", "<|plamo:end_think:plamo|>", "PLaMo 3 (vLLM: plamo3)"),
    Marks("<|think|>", "<|end|>", "Solar Open (llama.cpp)", alone=False),
    Marks("<|think:start|>", "<|think:end|>", "Solar Open 2, Solar Pro 4 (vLLM)"),
    Marks("[unused16]", "[unused17]", "openPangu (vLLM: pangu_reasoning_parser)"),
    Marks("<|im_start|>think", "<|im_start|>answer", "s1"),
    Marks("<|source_analysis_start|>", "<|source_analysis_end|>", "Pleias-RAG"),
    Marks("<thought>", "</thought>", "EXAONE Deep, Marco-o1 (Open WebUI)", "start"),
    Marks("<thoughts>", "</thoughts>", "prompted models", "start"),
    Marks("<reason>", "</reason>", "prompted models (Open WebUI)", "start"),
    Marks("<reasoning>", "</reasoning>", "prompted models (Open WebUI)", "start"),
    Marks("<antThinking>", "</antThinking>", "Claude", "start"),
    Marks("<analysis>", "</analysis>", "Keye-VL", "pair", alone=False),
    Marks("<SUMMARY>", "<CONCLUSION>", "LLaVA-CoT", "pair", alone=False),
    Marks("to=self<|message|>", "<|eom|>", "Muse (vLLM: muse_reasoning_parser)", "start", False),
    Marks(
        "Here is my thought process:",
        "Here is my response:",
        "Granite 3.2 (vLLM: granite_reasoning_parser); with Here's as well",
        "pair",
        alone=False,
    ),
    Marks("Here are my reasoning steps:", "[BEGIN FINAL RESPONSE]", "Apriel (llama.cpp)", "pair"),
    Marks("## Thinking", "## Final Response", "HuatuoGPT-o1", "pair", alone=False),
)
"""Pairs of marks. Those of the reasoning parsers of vLLM 0.33, SGLang 0.5.23, llama.cpp, Ollama,
LMDeploy and TensorRT-LLM are here, and those that Open WebUI and LiteLLM look for.
"""

CHANNELS = "<|channel|>analysis<|message|>…<|channel|>final<|message|>…"
"""The channels of gpt-oss (OpenAI's harmony form); without its special tokens,
`analysis…assistantfinal…`.
"""

ANSWER_MARKS = (
    ("<answer>", "</answer>"),
    ("<response>", "</response>"),
    ("<output>", "</output>"),
    ("<CONCLUSION>", "</CONCLUSION>"),
    ("<|START_RESPONSE|>", "<|END_RESPONSE|>"),
    ("<|START_TEXT|>", "<|END_TEXT|>"),
    ("<|begin_of_solution|>", "<|end_of_solution|>"),
    ("<|open|>response<|sep|>", "<|close|>response<|sep|>"),
    ("<|start|>assistant to=user<|message|>", "<|eot|>"),
    ("<|begin|>assistant<|content|>", "<|end|>"),
    ("<|content_text|>", "<|end_message|>"),
    ("<|answer_start|>", "<|answer_end|>"),
    ("[BEGIN FINAL RESPONSE]", "[END FINAL RESPONSE]"),
)
"""Marks around the answer that follows a thought; they are taken off with it."""


_ABOUT_THINKING = (
    "think|thought|reason|reflect|analy|scratch|ponder|deliberat|monolog|contemplat|cot|inner"
)
_UNKNOWN = re.compile(
    rf"\s*(?P<mark><\|?[\w:|. -]{{0,30}}(?:{_ABOUT_THINKING})[\w:|. -]{{0,30}}>"
    rf"|\[(?i:[\w ]{{0,30}}(?:{_ABOUT_THINKING})[\w ]{{0,30}})\](?!\()"
    rf"|◁[\w ]{{0,30}}▷"
    r"|thought(?=\n|\Z)|(?i:\**thinking(?: process)?:\**(?=\s)))",
    re.I,
)


def unknown_mark(text: str) -> str:
    """Return the mark that a text begins with, if it is of the form of a mark of reasoning and in
    no table; else "".
    """
    match = _UNKNOWN.match(text)
    return match["mark"] if match else ""


REASONING_ONLY = "reasoning_only"
"""Why a response is missing that holds reasoning and no text."""

REASONING_FIELDS = (
    "reasoning_content",
    "reasoning",
    "reasoning_details",
    "reasoning_items",
    "thinking",
    "thinking_blocks",
)
"""Fields of a message that hold reasoning: DeepSeek, vLLM, SGLang, Ollama, OpenRouter, LiteLLM."""

REASONING_BLOCKS = ("thinking", "redacted_thinking", "reasoning", "reasoning_content")
"""Types of blocks that hold reasoning: Anthropic, Mistral, Cohere, Bedrock."""

TOKEN_FIELDS = ("completion_tokens_details", "output_tokens_details")
"""Fields of a usage with a count of `REASONING_TOKENS`; SGLang has it in the usage itself."""

REASONING_TOKENS = ("reasoning_tokens", "thinking_tokens")
"""Counts of tokens of reasoning: of OpenAI and nearly every server, of Anthropic."""


def has_reasoning_beside(message: Mapping[str, Any], usage: Mapping[str, Any]) -> bool:
    """Tell whether a reply shows reasoning apart from its text: in a field, a block or a count of
    tokens.
    """
    if any(_find_reasoning(message)):
        return True
    details = (usage.get(name) for name in TOKEN_FIELDS)
    holders = (holder for holder in (usage, *details) if isinstance(holder, Mapping))
    counts = (holder.get(name) for holder in holders for name in REASONING_TOKENS)
    return any(isinstance(count, int | float) and count > 0 for count in counts)


def list_reasoning_beside(message: Mapping[str, Any]) -> list[str]:
    """Return the texts of the reasoning that a message holds apart from its text, each once."""
    found = _find_reasoning(message)
    return list(dict.fromkeys(text for value in found for text in _texts_in(value)))


def _find_reasoning(message: Mapping[str, Any]) -> list[object]:
    """Return the values of the fields, and the blocks, in which a message holds reasoning."""
    inner = message.get("provider_specific_fields")
    messages = (message, inner) if isinstance(inner, Mapping) else (message,)
    blocks = message.get("content")
    return [
        *(holder.get(name) for name in REASONING_FIELDS for holder in messages),
        *filter(is_reasoning, blocks if isinstance(blocks, list) else ()),
    ]


_TEXTS = ("text", "thinking", "reasoning", "reasoning_content", "content", "summary")
"""Fields of a block that hold its text, or further blocks."""
_DEEPEST = 5


def _texts_in(value: object, depth: int = 0) -> Iterator[str]:
    if isinstance(value, str):
        yield from filter(None, [value.strip()])
    elif depth < _DEEPEST:
        if isinstance(value, Mapping):
            inner = [value.get(name) for name in _TEXTS]
        else:
            inner = list(value) if isinstance(value, list) else []
        for item in inner:
            yield from _texts_in(item, depth + 1)


def is_reasoning(block: object) -> bool:
    """Tell whether a block of a message's content holds reasoning."""
    return isinstance(block, Mapping) and (
        block.get("type") in REASONING_BLOCKS or block.get("thought") is True
    )


class Parted(msgspec.Struct, frozen=True, gc=False):
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


def cut_reasoning(text: str, *, cut: bool = False) -> Parted:
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
    if not (phrased or "<" in text or "[" in text or "◁" in text):  # `_BRACKETS`
        return Parted(text)
    parted = _cut_channels(text) or Parted(text)
    inner = _cut_marked(parted.text, _PHRASE if phrased else _MARK, cut=cut)
    reasoned = parted.reasoned or inner.reasoned
    answer = _cut_answer_marks(inner.text.strip()) if reasoned else inner.text
    return Parted(answer, reasoned, parted.ended and inner.ended, parted.unopened or inner.unopened)


def find_thought(text: str) -> str:
    """Return the part of a text that `cut_reasoning` takes off, with its marks; "" if there is
    none.
    """
    parted = cut_reasoning(text)
    if not parted.reasoned:
        return ""
    answer, whole = parted.text.strip(), text.strip()
    return whole[: len(whole) - len(answer)].strip() if whole.endswith(answer) else whole


def _cut_answer_marks(text: str) -> str:
    for begin, end in _ANSWERS:
        if (match := begin.match(text)) is not None:
            text = text[match.end() :].lstrip()
        if match is not None or begin.search(text) is None:
            last = end.search(text, max(len(text) - _LONGEST_MARK, 0))
            text = text[: last.start()].rstrip() if last else text
    return text


def _cut_marked(text: str, mark: re.Pattern[str], *, cut: bool) -> Parted:
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
        _MARK.sub(_break_mark, "".join(kept)),
        reasoned or thinking is not None,
        thinking is None,
        unopened,
    )


def _break_mark(match: re.Match[str]) -> str:
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


def _cut_channels(text: str) -> Parted | None:
    """Return the final channel of a text in harmony's form, and the commentary for the user; None
    if the text is in another form.
    """
    if "<|channel|>" in text:
        return _part_final(text)
    if (match := _PLAIN.match(text)) is not None:
        return Parted(match["final"], reasoned=True)
    if (match := _PLAIN_FINAL.match(text)) is not None:
        return Parted(text[match.end() :])
    if _PLAIN_THOUGHT.match(text) is not None:
        return Parted("", reasoned=True, ended=False)
    return None


def _part_final(text: str) -> Parted:
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
