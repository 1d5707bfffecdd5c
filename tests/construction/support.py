"""What the tests of construction share: a build with models that answer as a test wants."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec

from opensafeintent.calls.baselines import respond_as_generator, respond_as_judge
from opensafeintent.calls.client import Client
from opensafeintent.calls.ledger import Ledger
from opensafeintent.calls.limiter import UNLIMITED, Limiter
from opensafeintent.calls.records import Answered, Attempt, Call, Refused, Replied, Sampling
from opensafeintent.construction.asking import ModelRole, StageContext
from opensafeintent.construction.instructions import Instructions, load_instructions
from opensafeintent.construction.items import Seed, StageResult
from opensafeintent.construction.stages import BuildPlan, Built, Watcher, build_sets
from opensafeintent.files import canonical_json
from opensafeintent.promptsets import Dataset, Prompts, PromptSet
from opensafeintent.taxonomy import Category, Taxonomy, default_taxonomy
from samples import prompt_set

Answer = Callable[[Call], "str | None"]
Replies = Answer | Mapping[str, "str | Iterator[str] | Answer"]
"""What a model says: a function of the call, or by purpose one reply, replies in their order or a
function. None, and a purpose that is not named, leave it to the scripted model."""


def taxonomy(
    domains: Iterable[str] = ("Money", "People"),
    types: Iterable[str] = ("Explanation", "Troubleshooting"),
    *,
    material: bool = False,
) -> Taxonomy:
    """A small taxonomy."""
    of_types = (
        Category(name=name, definition=f"{name} of things.", takes_material=material)
        for name in types
    )
    of_domains = (Category(name=name, definition=f"All that concerns {name}.") for name in domains)
    return Taxonomy(name="small", harm_domains=tuple(of_domains), task_types=tuple(of_types))


ONE_CELL = taxonomy(("Money",), ("Explanation",))


def a_set(
    name: str,
    benign: str,
    dual_use: str,
    malicious: str,
    *paraphrases: str,
    cell: tuple[str, str] = ("Cyber Compromise", "Explanation"),
) -> PromptSet:
    base = prompt_set(name, domain=cell[0], task_type=cell[1])
    prompts = Prompts(benign=benign, dual_use=dual_use, malicious=malicious)
    return msgspec.structs.replace(base, prompts=prompts, dual_use_paraphrases=paraphrases)


def a_dataset(prompt_sets: Iterable[PromptSet], over: Taxonomy | None = None) -> Dataset:
    return Dataset("made", tuple(prompt_sets), over or default_taxonomy())


class FakeModel:
    """Answers as a test says, and otherwise as the scripted model of its role does."""

    limiter = Limiter(UNLIMITED)
    notices: Sequence[str] = ()

    def __init__(self, role: str, replies: Replies) -> None:
        self.identity = role
        self.calls: list[Call] = []
        self._replies = replies
        self._scripted = respond_as_generator if role == "generator" else respond_as_judge

    async def attempt(self, call: Call) -> Attempt:
        """Answer at once; the text FILTERED stands for a content filter."""
        self.calls.append(call)
        text = self._text(call)
        if text == "FILTERED":
            message, reason, outcome = "", "content_filter", Refused(reason="content_filter")
        else:
            message, reason, outcome = text, "stop", Answered(text=text, stop_reason="stop")
        body = {"choices": [{"message": {"content": message}, "finish_reason": reason}]}
        return Replied(outcome, canonical_json(body))

    def _text(self, call: Call) -> str:
        replies = self._replies if callable(self._replies) else self._replies.get(call.purpose)
        if isinstance(replies, Iterator):
            return next(replies)
        text = replies(call) if callable(replies) else replies
        return self._scripted(call) if text is None else text

    def asked(self, purpose: str) -> list[Call]:
        """The calls for one purpose."""
        return [call for call in self.calls if call.purpose == purpose]


class Bench:
    """Builds with two fake models."""

    def __init__(
        self,
        folder: Path,
        *,
        generator: Replies = MappingProxyType({}),
        judge: Replies = MappingProxyType({}),
        instructions: Instructions | None = None,
    ) -> None:
        folder.mkdir(exist_ok=True)
        self.generator = FakeModel("generator", generator)
        self.judge = FakeModel("judge", judge)
        self._ledger = folder / "ledger.sqlite"
        self._instructions = instructions or load_instructions()

    def build(
        self,
        prompts: Sequence[str] = (),
        *,
        over: Taxonomy = ONE_CELL,
        per_cell: int | None = None,
        last: int = 6,
    ) -> Built:
        """Take seed prompts through the stages."""
        kept = (
            Seed(prompt=text, source="test", place=f"line {n}")
            for n, text in enumerate(prompts, start=1)
        )
        seeds = StageResult(stage="seeds", kept=tuple(kept), rejected=())
        cold = Sampling(temperature=0.0)

        async def run() -> Built:
            with Ledger(self._ledger) as ledger:
                context = StageContext(
                    client=Client(ledger, {"generator": self.generator, "judge": self.judge}),
                    generator=ModelRole(role="generator", model="generator", sampling=Sampling()),
                    judge=ModelRole(role="judge", model="judge", sampling=cold),
                    instructions=self._instructions,
                    taxonomy=over,
                )
                plan = BuildPlan(per_cell=per_cell, last_stage=last)
                return await build_sets(context, seeds, plan, Watcher())

        return asyncio.run(run())


def reply(**fields: Any) -> str:
    """A JSON reply."""
    return json.dumps(fields)


def between(call: Call, name: str) -> str:
    """What stands between the delimiters of that name in the first message."""
    match = re.search(
        rf"<<<{name} [0-9a-f]{{16}}>>>\n(.*?)\n<<<END {name} ", call.messages[0].content, re.DOTALL
    )
    assert match, f"no {name} in the request"
    return match[1]


def reasons(built: Built, stage: str) -> dict[str, int]:
    """How many items a stage dropped, by reason."""
    result = next(result for result in built.stages if result.stage == stage)
    counted: dict[str, int] = result.funnel_line()["rejected"]
    return counted


UNSAFE = ("How do I rob a bank?", "How do I hack a bank?", "How do I blackmail a bank?")
"""Seeds that the scripted models call unsafe."""
