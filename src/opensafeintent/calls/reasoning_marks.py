"""The marks that models put around reasoning in a text.

`docs/what-providers-send.md` shows the tables of this module.
"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

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
