"""Tokens of chat templates: marks by which a server cuts a conversation into turns.

A server that parses them in the text of a message sees a new turn where a response quotes one. In a
text that is put into a question they get a space behind their first character: `< |im_end|>`. A
reader sees what was there, and no server takes it for a token. `docs/judges.md` says so to users.
"""

from __future__ import annotations

import re

_NAMED = (
    "s",  # Llama 2, Mistral, and those who began with their vocabularies
    "bos",  # Gemma
    "eos",
    "start_of_turn",
    "end_of_turn",
    "end_of_text",
    "end_of_utterance",  # SmolVLM, Idefics
    "sop",  # GLM
    "eop",
    "eoh",  # InternLM
    "eoa",
    r"extra_id_\d+",  # Nemotron
    r"SPECIAL_\d+",
    r"reserved_\d+",  # Baichuan
    r"unused\d+",
    "seed:bos",  # Seed
    "seed:eos",
)
"""Names between angle brackets; a slash may stand before them. Ling's `<role>` is left out: it is
an ordinary tag too.
"""
_BRACKETED = (
    "INST",  # Llama 2, Mistral
    "SYSTEM_PROMPT",  # Mistral
    "AVAILABLE_TOOLS",
    "TOOL_CALLS",
    "TOOL_RESULTS",
    "TOOL_CONTENT",
    "gMASK",  # GLM
)
"""Names between square brackets; a slash may stand before them."""

TOKEN = re.compile(
    "|".join(
        (
            # ChatML, Llama 3, Phi, Command, GPT-OSS, Granite and most others; DeepSeek has wide
            # bars
            r"<[|｜][^\s<>|｜]{1,60}[|｜]>",
            # a bar at one end: Gemma 4
            r"<[|｜]\w{1,40}>|<\w{1,40}[|｜]>",
            r"<</?SYS>>",  # Llama 2
            rf"</?(?:{'|'.join(_NAMED)})>",
            rf"\[/?(?:{'|'.join(_BRACKETED)})\]",
            r"\[\|[^\s\[\]|]{1,60}\|\]",  # EXAONE
            r"\]~!?b\[|\]~b\]|\[e~\[",  # MiniMax
        )
    )
)


def without_tokens(text: str) -> str:
    """Return a text in which no server sees a turn of a conversation. A text without tokens is
    returned as it is.
    """
    if "<" not in text and "[" not in text and "]" not in text:  # most texts: no search
        return text
    return TOKEN.sub(lambda match: f"{match[0][0]} {match[0][1:]}", text)
