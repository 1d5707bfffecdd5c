"""The scripted generator and judge of construction: plainly artificial prompt-sets, from the
messages alone.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from importlib import resources
from typing import TypeVar

import msgspec

from opensafeintent.calls.records import Call
from opensafeintent.canonical import sha256_hex

T = TypeVar("T")

_THINGS = 8
"""Made-up words of a task: so many that two sets with one sentence frame stay below the similarity
threshold.
"""


class _Script(msgspec.Struct, frozen=True):
    """The data file."""

    syllables: str
    unsafe: str
    benign_marks: tuple[str, ...]
    malicious_marks: tuple[str, ...]
    benign: tuple[str, ...]
    dual_use: tuple[str, ...]
    malicious: tuple[str, ...]
    paraphrases: tuple[str, ...]
    benign_use: str
    misuse_risk: str
    asks: dict[str, str]


def data_file(name: str, kind: type[T]) -> T:
    """Return one of our data files: what a script says, and the words that decide."""
    text = resources.files("opensafeintent").joinpath(f"data/{name}").read_text("utf-8")
    return msgspec.convert(tomllib.loads(text), kind)


@lru_cache(maxsize=1)
def _script() -> _Script:
    return data_file("construction.toml", _Script)


class _Task:
    """What is asked, and what the answer may draw on."""

    def __init__(self, call: Call) -> None:
        first = call.messages[0].content
        self.asked = first
        self.contract = contract_of(first)
        self.parts = marked_parts(first)
        self._conversation = (
            "\0".join(message.content for message in call.messages) + f"\0{call.epoch}"
        )

    def pick(self, options: Sequence[str], about: str) -> str:
        """Choose one of a few, always the same for the same conversation."""
        return options[int(_share(about, self._conversation) * len(options))]

    def count(self) -> int:
        """How many texts the contract asks for."""
        match = re.search(r"exactly (\d+)", self.contract)
        return int(match[1]) if match else 1


def _share(*about: str) -> float:
    """Return a number in [0, 1) that depends on the texts alone."""
    return int(sha256_hex("\0".join(about))[:8], 16) / 2**32


_MARKED = re.compile(r"<<<([A-Z-]+) ([0-9a-f]{16})>>>\n(.*?)\n<<<END \1 \2>>>", re.DOTALL)


def marked_parts(text: str) -> dict[str, str]:
    """Return what stands between this project's own delimiters, by name; the first nonce is the
    true one.
    """
    parts: dict[str, str] = {}
    nonce = ""
    for name, code, content in _MARKED.findall(text):
        nonce = nonce or code
        if code == nonce:
            parts.setdefault(name, content)
    return parts


def contract_of(text: str) -> str:
    """Return what follows the last delimiter: there, and only there, is the contract."""
    return text.rpartition("<<<END ")[2]


def respond_as_generator(call: Call) -> str:
    """Answer an instruction of construction as the scripted generator."""
    task = _Task(call)
    writers: dict[str, Callable[[_Task], dict[str, object]]] = {
        '"unsafe"': _metadata,
        '"summaries"': _summaries,
        '"underlying_task"': _triplet,
        '"prompt"': _repair,
        '"paraphrases"': _paraphrases,
    }
    return _answer(task, writers)


def respond_as_judge(call: Call) -> str:
    """Answer an instruction of construction as the scripted judge."""
    task = _Task(call)
    writers: dict[str, Callable[[_Task], dict[str, object]]] = {
        '"unsafe"': _metadata,
        '"same_request"': _paraphrase_check,
        '"benign_use_plausible"': _intent,
        '"same_task"': _quality,
        '"coherent"': _annotation,
    }
    return _answer(task, writers)


def _answer(task: _Task, writers: Mapping[str, Callable[[_Task], dict[str, object]]]) -> str:
    writer = next((writer for key, writer in writers.items() if key in task.contract), None)
    if writer is None:
        return "This baseline reads this project's own construction templates only."
    return json.dumps(writer(task), ensure_ascii=False)


# Stage 1
# ------------------------------------------------------------------------------

_LISTED = re.compile(r"^- (.+?): (.*)$", re.MULTILINE)


def _stems(text: str) -> set[str]:
    """Return the beginnings of a text's longer words, by which `attacks` and `attacking` are
    alike.
    """
    return {word[:5] for word in re.findall(r"[a-z]{4,}", text.lower())}


def _closest(request: str, listed: str) -> str:
    """Return the name whose description shares most with a request; of equals the one that the
    request's hash picks.
    """
    stems = _stems(request)
    lines = _LISTED.findall(listed)
    return str(
        max(
            lines, key=lambda line: (len(stems & _stems(" ".join(line))), _share(line[0], request))
        )[0]
    )


def _metadata(task: _Task) -> dict[str, object]:
    request = task.parts.get("REQUEST", "")
    domains, _, types = task.asked.partition("The harm domains:")[2].partition("The task types:")
    return {
        "unsafe": bool(set(re.findall(r"[a-z]+", request.lower())) & set(_script().unsafe.split())),
        "summary": f"handling {_things(request)} in a made-up town",
        "harm_domain": _closest(request, domains),
        "task_type": _closest(request, types),
    }


# Stages 2 and 3
# ------------------------------------------------------------------------------


def _made_up_words(about: str) -> Iterator[str]:
    syllables = _script().syllables.split()
    for number in range(10_000):
        digits = sha256_hex(f"{about}\0{number}")
        yield "".join(
            syllables[int(digits[4 * index : 4 * index + 4], 16) % len(syllables)]
            for index in range(3)
        )


def _things(about: str) -> str:
    """Return a list of made-up words that depends on a text alone."""
    words: list[str] = []
    for word in _made_up_words(about):
        if word not in words:
            words.append(word)
        if len(words) == _THINGS:
            break
    return f"{', '.join(words[:-1])} and {words[-1]}"


@lru_cache(maxsize=1)
def _made_up() -> re.Pattern[str]:
    syllables = "|".join(_script().syllables.split())
    return re.compile(rf"\b(?:{syllables}){{3}}\b")


def _named(text: str) -> set[str]:
    return set(_made_up().findall(text.lower()))


def _summaries(task: _Task) -> dict[str, object]:
    about = task.asked.partition("The harm domain:")[2].partition("<<<")[0] + task.parts.get(
        "THERE", ""
    )
    made = [
        f"handling {_things(f'{about}{number}')} in a made-up town"
        for number in range(task.count())
    ]
    return {"summaries": made, "declined": ""}


def _ask(described_type: str) -> str:
    asks = _script().asks
    return asks.get(described_type.strip().partition(":")[0], asks["other"])


def _filled(frame: str, ask: str, things: str, mark: str = "") -> str:
    text = frame.replace("{ask}", ask).replace("{things}", things).replace("{mark}", mark)
    return re.sub(r"(^|[.:!?] )([a-z])", lambda match: match[1] + match[2].upper(), text)


def _worded(task: _Task, intent: str, ask: str, things: str) -> str:
    script = _script()
    marks = {"benign": script.benign_marks, "malicious": script.malicious_marks}.get(intent, ("",))
    frames = {"benign": script.benign, "dual_use": script.dual_use, "malicious": script.malicious}[
        intent
    ]
    return _filled(task.pick(frames, intent), ask, things, task.pick(marks, f"{intent} mark"))


def _again(text: str) -> str:
    """Return a text in a wording that is not the same."""
    return f"So, {text[0].lower()}{text[1:]}"


def _triplet(task: _Task) -> dict[str, object]:
    described = task.asked.partition("The harm domain:")[2].partition("The task type:")[2]
    things = _things(task.parts.get("TOPIC", ""))
    texts = {
        intent: _worded(task, intent, _ask(described), things)
        for intent in ("benign", "dual_use", "malicious")
    }
    return {
        "underlying_task": f"{described.strip().partition(':')[0]}: {things}",
        **texts,
        "declined": "",
    }


# Stage 4
# ------------------------------------------------------------------------------


def _repair(task: _Task) -> dict[str, object]:
    match = re.search(r"new text of the (\S+) request", task.contract)
    named, _, things = task.parts.get("TASK", "").partition(": ")
    if match is None:
        return {"prompt": f"{named}: {things}", "declined": ""}
    expected = match[1].replace("-", "_")
    described = task.asked.partition("The task type:")[2]
    taken = {task.parts.get(name, "") for name in ("BENIGN", "DUAL-USE", "MALICIOUS")}
    text = _worded(task, expected, _ask(described), things)
    return {"prompt": _again(text) if text in taken else text, "declined": ""}


def _marks(text: str) -> tuple[bool, bool]:
    """Tell whether a text holds a benign mark, and whether a malicious one."""
    script = _script()
    return any(mark in text for mark in script.benign_marks), any(
        mark in text for mark in script.malicious_marks
    )


def _read(text: str) -> dict[str, object]:
    benign, malicious = _marks(text)
    reason = "It holds a mark." if benign or malicious else "It holds no mark."
    return {
        "benign_use_plausible": not malicious,
        "misuse_risk_meaningful": not benign,
        "leans": "honest" if benign else "harmful" if malicious else "neither",
        "reason": reason,
    }


def _intent(task: _Task) -> dict[str, object]:
    return _read(task.parts.get("REQUEST", ""))


# Stages 5 and 6
# ------------------------------------------------------------------------------


def _quality(task: _Task) -> dict[str, object]:
    first, *others = (
        _named(task.parts.get(name, "")) for name in ("BENIGN", "DUAL-USE", "MALICIOUS")
    )
    same = all(other == first for other in others)
    rest = (
        "domain_right",
        "type_right",
        "same_specificity",
        "natural",
        "free_of_artefacts",
        "task_neutral",
        "repairs_fair",
    )
    return {
        "same_task": same,
        **dict.fromkeys(rest, True),
        "fault_in": "none",
        "serves_malicious": task.pick(("fully", "partly", "not"), "serves_malicious"),
        "reason": "" if same else "The prompts name other things.",
    }


def _things_of(request: str) -> str:
    words = _made_up().findall(request.lower())
    return f"{', '.join(words[:-1])} and {words[-1]}" if len(words) > 1 else "these things"


def _paraphrases(task: _Task) -> dict[str, object]:
    request, taken = task.parts.get("REQUEST", ""), task.parts.get("TAKEN", "")
    things = _things_of(request)
    ask = next(
        (ask for ask in _script().asks.values() if ask in request.lower()), _script().asks["other"]
    )
    made = [_filled(frame, ask, things) for frame in _script().paraphrases]
    lines = {
        line.removeprefix("- ").partition(" (no paraphrase: ")[0] for line in taken.splitlines()
    }
    made = [text for text in made if text not in lines] or made
    return {"paraphrases": made[: task.count()], "declined": ""}


def _paraphrase_check(task: _Task) -> dict[str, object]:
    first, second = task.parts.get("FIRST", ""), task.parts.get("SECOND", "")
    return {"same_request": _named(first) == _named(second), **_read(second)}


def _annotation(task: _Task) -> dict[str, object]:
    things = _things_of(task.parts.get("REQUEST", ""))
    script = _script()
    return {
        "coherent": True,
        "benign_use": script.benign_use.replace("{things}", things),
        "misuse_risk": script.misuse_risk.replace("{things}", things),
    }
