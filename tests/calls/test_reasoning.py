"""Reasoning is taken off a text, whatever its marks; and nothing else is."""

from __future__ import annotations

import json
import time

import pytest

from opensafeintent.calls.protocols.anthropic import MESSAGES
from opensafeintent.calls.protocols.chat_completions import CHAT_COMPLETIONS
from opensafeintent.calls.reasoning import MARKS, Marks, cut_reasoning, unknown_mark
from opensafeintent.calls.records import Answered
from opensafeintent.calls.replies import read_reply, read_reply_reasoning

GOOD = "A good note."
FORMS = [marks for marks in MARKS if "…" not in marks.opening]


def of(form: str) -> list[Marks]:
    return [marks for marks in FORMS if marks.place == form]


@pytest.mark.parametrize("marks", FORMS, ids=lambda marks: marks.opening)
def test_every_form_is_taken_off(marks: Marks) -> None:
    for opening, closing in (marks[:2], (marks.opening.upper(), marks.closing.lower())):
        parted = cut_reasoning(f"{opening}\nplan\n{closing}\n{GOOD}")
        assert parted.text.strip() == GOOD
        assert (parted.reasoned, parted.ended, parted.unopened) == (True, True, False)


@pytest.mark.parametrize("marks", FORMS, ids=lambda marks: marks.opening)
def test_a_thought_that_a_limit_cut_leaves_no_text(marks: Marks) -> None:
    parted = cut_reasoning(f"{marks.opening}\na long pl", cut=True)
    assert (parted.text, parted.reasoned, parted.ended) == ("", True, False)
    # ordinary words are a thought only with both marks, or if a limit cut it
    uncut = cut_reasoning(f"{marks.opening}\na long pl")
    assert (uncut.text != "") == (marks.place == "pair")


@pytest.mark.parametrize("marks", FORMS, ids=lambda marks: marks.opening)
def test_a_closing_mark_alone_ends_what_the_chat_template_began(marks: Marks) -> None:
    parted = cut_reasoning(f"plan\n{marks.closing}\n{GOOD}")
    assert parted.unopened == ((marks.alone and marks.place != "pair") or marks.closing[0] == "[")
    assert (parted.text.strip() == GOOD) == parted.unopened


ORDINARY = [marks for marks in of("start") + of("pair") if marks.closing[0] != "["]


@pytest.mark.parametrize("marks", ORDINARY, ids=lambda marks: marks.opening)
def test_an_ordinary_tag_in_the_middle_of_a_text_stays(marks: Marks) -> None:
    text = f"Write {marks.opening} your words {marks.closing} so."
    assert cut_reasoning(text).text == text


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("no tags, 1 < 2", "no tags, 1 < 2"),
        ("<think>plan</think>answer", "answer"),
        ("<THINK>plan</Think>answer", "answer"),
        ("<think>line\nline\n</think>\nanswer", "answer"),
        ("<think>a</think>one<think>b</think>two", "onetwo"),
        ("<think>a <think>b</think> c</think>answer", "answer"),
        ("plan that never ends <think>and more", "plan that never ends"),
        ("<think>never ended, cut by the limit", ""),
        ("plan, its opening swallowed</think>answer", "answer"),
        ("plan</think>more plan</THINK>answer", "answer"),
        ("plan</think>answer<think>afterthought", "answer"),
        ("<think></think>", ""),
        ("<think:opensource>plan</think:opensource>answer", "answer"),
        ("<think time='3'>plan</think >answer", "answer"),
        ("<reasoning>plan</reasoning><answer>A</answer>", "A"),
        ("<think>plan</think>answer</answer>", "answer"),
        ("Here's my thought process: p\nHere’s my response: answer", "answer"),
        ("## Thinking\n\nplan\n\n## Final Response\n\nanswer", "answer"),
        # a mark that taking off a block brings about
        ("text</thi<think></think>nk>0", "text< /think>0"),
        ("a<thi<think>b</think>nk>c", "a< think>c"),
        ("<think>b</think>[<think></think>/THINK] 0", "[ /THINK] 0"),
        # the channels of gpt-oss
        (
            "<|channel|>analysis<|message|>p<|end|><|start|>assistant<|channel|>final<|message|>A",
            "A",
        ),
        ("p<|end|><|start|>assistant<|channel|>final<|message|>A<|return|>", "A"),
        ("assistantanalysisWe.assistantcommentary x assistantfinalA", "A"),
        ("assistantfinalA", "A"),
        ("analysis<|channel|>", "analysis"),
        # what is none
        ("a <thinker> and a <b>bold</b> word", "a <thinker> and a <b>bold</b> word"),
        ("analysis of the data: fine", "analysis of the data: fine"),
        ("Analysis: A assistant", "Analysis: A assistant"),
        ("Here is my answer: A", "Here is my answer: A"),
        ("## Thinking ahead\n\nText", "## Thinking ahead\n\nText"),
        ("[link](u) and [x]", "[link](u) and [x]"),
        ("<|end|>", "< |end|>"),
    ],
)
def test_thinking_is_taken_off(text: str, answer: str) -> None:
    assert cut_reasoning(text).text.strip() == answer


def test_what_is_taken_off_is_taken_off_whole() -> None:
    # so that a judge that quotes a response cannot seem to have reasoned up to there
    for marks in of("anywhere"):
        broken = f"{marks.closing[:2]}<think></think>{marks.closing[2:]}"
        once = cut_reasoning(f"harmful {broken} 0").text
        assert cut_reasoning(once).text == once
        assert "harmful" in once


@pytest.mark.parametrize(
    ("text", "mark"),
    [
        ("<scratchpad>plan</scratchpad>A", "<scratchpad>"),
        ("<inner_monologue>plan", "<inner_monologue>"),
        ("[REASONING] plan", "[REASONING]"),
        ("<|cot_start|>plan", "<|cot_start|>"),
        ("◁plan▷x", "◁plan▷"),
        ("thought\nThe answer is 42.", "thought"),  # ollama#17626
        ("Thinking: plan\n\nA", "Thinking:"),
        ("**Thinking Process:** plan", "**Thinking Process:**"),
        ("<html>", ""),
        ("[Name], hello", ""),
        ("[rethink](https://example.org)", ""),
        ("Thinking about it, no.", ""),
        ("thoughtful", ""),
        (GOOD, ""),
    ],
)
def test_a_mark_that_nobody_told_of_is_named(text: str, mark: str) -> None:
    assert unknown_mark(text) == mark


HOSTILE = {
    "openings": "<think>" * 100_000,
    "closings": "</think>" * 100_000,
    "ordinary openings": "x <reason> " * 100_000,
    "thoughts": "<reason></reason>" * 100_000,
    "white space": "<think></think>" + " " * 1_000_000 + "x",
    "brackets": "<" * 500_000 + "[" * 500_000,
    "attributes": "<think " * 100_000,
    "channels": "<|channel|>analysis<|message|>" * 50_000,
    "words": "analysisX" + "assistantfina" * 50_000,
    "answers": "<think></think>" + "<answer>" * 50_000 + "</answer>" * 50_000,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_thinking_is_taken_off_in_linear_time(name: str) -> None:
    # Model text is hostile: a megabyte of marks must not hold up every other call.
    started = time.process_time()
    cut_reasoning(HOSTILE[name], cut=True)
    unknown_mark(HOSTILE[name])
    assert time.process_time() - started < 2


def chat(**message: object) -> bytes:
    return json.dumps({"choices": [{"message": message}]}).encode()


DEEP: object = "x"
for _ in range(900):
    DEEP = [DEEP]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (chat(content="4"), ""),
        (chat(content="4", reasoning_content=" one "), "one"),
        # OpenRouter sends one thought twice; an encrypted one has no text
        (
            chat(
                content="4",
                reasoning="one",
                reasoning_details=[
                    {"type": "reasoning.text", "text": "one", "signature": "c2ln"},
                    {"type": "reasoning.encrypted", "data": "ZGF0YQ"},
                ],
            ),
            "one",
        ),
        # Mistral
        (
            chat(
                content=[
                    {"type": "thinking", "thinking": [{"type": "text", "text": "one"}]},
                    {"type": "text", "text": "4"},
                ]
            ),
            "one",
        ),
        (chat(content="one</think>4"), "one</think>"),
        (chat(content="<think>one</think>4", reasoning="two"), "two\n\n<think>one</think>"),
        # Anthropic
        (
            json.dumps(
                {
                    "type": "message",
                    "content": [
                        {"type": "thinking", "thinking": "one", "signature": "c2ln"},
                        {"type": "redacted_thinking", "data": "ZGF0YQ"},
                        {"type": "text", "text": "4"},
                    ],
                }
            ).encode(),
            "one",
        ),
        (chat(content="4", reasoning=DEEP), ""),
        (chat(content=None, reasoning={"text": 7}), ""),
        (b'{"choices": [null]}', ""),
        (b"<html>", ""),
        (b"", ""),
    ],
)
def test_the_reasoning_of_a_stored_reply(body: bytes, expected: str) -> None:
    assert read_reply_reasoning(body, CHAT_COMPLETIONS) == expected


THOUGHT = "<think>plan</think>"
BLOCKS = [{"type": "text", "text": f"{THOUGHT}{GOOD}"}]
MARKED = {
    "chat completion": (chat(content=f"{THOUGHT}{GOOD}"), CHAT_COMPLETIONS),
    "blocks of a chat completion": (chat(content=BLOCKS), CHAT_COMPLETIONS),
    "second choice of two": (
        json.dumps(
            {
                "choices": [
                    {"index": 1, "message": {"content": "Another."}},
                    {"index": 0, "message": {"content": f"{THOUGHT}{GOOD}"}},
                ]
            }
        ).encode(),
        CHAT_COMPLETIONS,
    ),
    "message": (json.dumps({"type": "message", "content": BLOCKS}).encode(), MESSAGES),
}


@pytest.mark.parametrize("name", MARKED)
def test_the_thought_that_a_stored_reply_is_read_without_is_shown(name: str) -> None:
    body, protocol = MARKED[name]
    answer = read_reply(body, protocol)
    assert isinstance(answer, Answered) and answer.text == GOOD and answer.reasoned
    assert read_reply_reasoning(body, protocol) == THOUGHT
