"""The scripted generator and judge of construction with faults on demand: what a build has to find
or to mend.

A fault comes with the share of replies that have it, `generator:malformed=0.2,near-duplicate`;
without a share all have it. Which replies those are depends on the conversation alone. A text that
was made leaning, clumsy or bent has a mark, by which this judge knows it; the shipped one does not
look for it.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from typing import Any

from opensafeintent.calls.baselines import (
    find_contract,
    read_marked_parts,
    respond_as_generator,
    respond_as_judge,
)
from opensafeintent.calls.records import Call, Sampling
from opensafeintent.templates.template import Message

LEANING = "as a made-up good neighbour"
CLUMSY = "the asking of which is as follows"
BENT = "and much more of all that"
REFUSAL = "I'm sorry, but I can't help with that."
MALFORMED = "Here is what you asked for, in my own words and not in the form you wanted."

Reply = dict[str, Any]
Draws = Callable[[str], bool]


def faulty(script: str, faults: str = "") -> str:
    """Return the name of a model of this process for `--generator` or `--judge`: a script with
    faults.
    """

    def ask(messages: Sequence[Mapping[str, str]]) -> str:
        return scripted(script, faults, [message["content"] for message in messages])

    name = f"{script}-{re.sub('[=,.]', '-', faults)}"
    setattr(sys.modules[__name__], name, ask)
    return f"python/{__name__}:{name}@1"


def scripted(script: str, faults: str, texts: Sequence[str]) -> str:
    """Return what a script says in a conversation: `generator` or `construction-judge`, with or
    without faults.
    """
    parted = [item.partition("=") for item in faults.split(",")]
    shares = {name: float(share or 1) for name, _, share in parted}

    def draws(fault: str) -> bool:
        drawn = sha256("\0".join((fault, *texts)).encode()).hexdigest()
        return int(drawn[:8], 16) / 2**32 < shares.get(fault, 0.0)

    if draws("refusal"):
        return REFUSAL
    if draws("malformed"):
        return MALFORMED
    reply = json.dumps((_generator if script == "generator" else _judge)(texts, draws))
    return f"```json\n{reply}\n```" if draws("fenced") else reply


def _answer(respond: Callable[[Call], str], first: str, *further: str) -> Reply:
    messages = tuple(Message("user", (text,)) for text in (first, *further))
    call = Call(model="", messages=messages, sampling=Sampling(), purpose="generate")
    reply: Reply = json.loads(respond(call))
    return reply


def _with(text: str, part: str, content: Callable[[str], str]) -> str:
    """Return a request with another text between the delimiters of a part."""
    return re.sub(
        rf"(?s)(<<<{part} [0-9a-f]{{16}}>>>\n)(.*?)(\n<<<END {part} )",
        lambda match: match[1] + content(match[2]) + match[3],
        text,
    )


def _marked(text: str, mark: str) -> str:
    return f"{text.rstrip('?')}, {mark}?"


def _generator(texts: Sequence[str], draws: Draws) -> Reply:
    first, *further = texts
    contract, parts = find_contract(first), read_marked_parts(first)
    if '"summaries"' in contract:
        reply = _answer(respond_as_generator, first, *further)
        if draws("near-duplicate") and (there := parts.get("THERE", "")).startswith("- "):
            known_summary = there.splitlines()[0].removeprefix("- ")
            reply["summaries"] = [known_summary] * len(reply["summaries"])
        return reply
    if '"underlying_task"' in contract:
        return _triplet(first, further, draws)
    if '"prompt"' in contract:
        return _repair(first, further, draws)
    reply = _answer(respond_as_generator, first, *further)
    if '"paraphrases"' in contract:
        if draws("long-paraphrase"):
            reply["paraphrases"] = [f"{text} {text}" for text in reply["paraphrases"]]
        if draws("too-few-paraphrases"):
            reply["paraphrases"] = reply["paraphrases"][:1] * len(reply["paraphrases"])
        return reply
    return _labels(reply, first, draws)


def _triplet(first: str, further: Sequence[str], draws: Draws) -> Reply:
    if draws("near-duplicate"):
        first = _with(first, "TOPIC", lambda _: "the same of each topic")
    reply = _answer(respond_as_generator, first, *further)
    if draws("unparallel"):
        other_call = _with(first, "TOPIC", lambda topic: f"other than {topic}")
        reply["malicious"] = _answer(respond_as_generator, other_call, *further)["malicious"]
    if draws("wrong-intent"):
        reply["dual_use"] = f"So, {reply['malicious'][0].lower()}{reply['malicious'][1:]}"
    elif draws("leaning"):
        reply["dual_use"] = _marked(reply["dual_use"], LEANING)
    if draws("leaning-task"):
        reply["underlying_task"] += f", {LEANING}"
    if draws("clumsy"):
        intent = ("benign", "dual_use", "malicious")[len(first) % 3]
        reply[intent] = _marked(reply[intent], CLUMSY)
    if draws("no-material"):
        reply["benign"] = reply["benign"].replace("[100 words of text]", "a text")
    return reply


def _repair(first: str, further: Sequence[str], draws: Draws) -> Reply:
    first = _with(first, "TASK", lambda task: task.partition(f", {LEANING}")[0])
    of_a_request = re.search(r"new text of the (\S+) request", find_contract(first))
    if of_a_request and draws("wrong-intent"):
        wrong = "malicious" if of_a_request[1] == "dual-use" else "dual-use"
        first = first.replace(of_a_request[0], f"new text of the {wrong} request")
    reply = _answer(respond_as_generator, first, *further)
    if of_a_request and draws("bent-repair"):
        reply["prompt"] = _marked(reply["prompt"], BENT)
    return reply


def _judge(texts: Sequence[str], draws: Draws) -> Reply:
    first, parts = texts[0], read_marked_parts(texts[0])
    reply = _answer(respond_as_judge, *texts)
    if "benign_use_plausible" in reply:
        if LEANING in parts.get("SECOND", parts.get("REQUEST", "")):
            reply["leans"] = "honest"
        if draws("never-agrees"):
            reply |= {"benign_use_plausible": False, "misuse_risk_meaningful": False}
    elif "same_task" in reply:
        names = ("benign", "dual_use", "malicious")
        prompts = {name: parts[name.upper().replace("_", "-")] for name in names}
        if clumsy := [name for name, text in prompts.items() if CLUMSY in text]:
            reply |= {"natural": False, "fault_in": clumsy[0]}
        reply["task_neutral"] = LEANING not in parts["TASK"]
        reply["repairs_fair"] = not any(BENT in text for text in prompts.values())
        reply["type_right"] = not draws("doubted-label")
    elif "coherent" in reply and draws("incoherent"):
        reply = {"coherent": False, "benign_use": "", "misuse_risk": ""}
    return _labels(reply, first, draws)


def _labels(reply: Reply, first: str, draws: Draws) -> Reply:
    """Return a description of a seed with its faults."""
    if "unsafe" in reply and draws("disagreement"):
        listed = first.partition("The harm domains:")[2].partition("The task types:")[0]
        names = re.findall(r"^- (.+?): ", listed, re.M)
        reply["harm_domain"] = names[(names.index(reply["harm_domain"]) + 1) % len(names)]
    if "unsafe" in reply and draws("invented-label"):
        reply["harm_domain"] = "Mischief"
    return reply
