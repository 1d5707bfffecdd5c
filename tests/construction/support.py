"""What the tests of construction share: a build with models that answer as a test wants."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from opensafeintent.calls.client import Client
from opensafeintent.calls.http import UNLIMITED, Limiter
from opensafeintent.calls.ledger import Ledger
from opensafeintent.calls.records import Answered, Attempt, Call, Refused, Replied, Sampling
from opensafeintent.calls.scripted import respond_as_generator, respond_as_judge
from opensafeintent.construction.asking import ModelRole, StageContext
from opensafeintent.construction.pipeline import BuildPlan, Built, Watcher, build_sets
from opensafeintent.construction.records import Seed, StageResult
from opensafeintent.files import canonical_json
from opensafeintent.taxonomy import Category, Taxonomy
from opensafeintent.templates.template import Instructions, load_instructions

Answer = Callable[[Call], "str | None"]
"""What a model says to a call; None leaves it to the scripted model."""


def taxonomy(
    domains: Sequence[str] = ("Money", "People"),
    types: Sequence[str] = ("Explanation", "Troubleshooting"),
) -> Taxonomy:
    """A small taxonomy."""
    return Taxonomy(
        name="small",
        harm_domains=tuple(
            Category(name=name, definition=f"All that concerns {name.lower()}.") for name in domains
        ),
        task_types=tuple(Category(name=name, definition=f"{name} of things.") for name in types),
    )


ONE_CELL = taxonomy(("Money",), ("Explanation",))


class FakeModel:
    """Answers as a test says, and otherwise as the scripted model of its role does."""

    limiter = Limiter(UNLIMITED)
    notices: Sequence[str] = ()

    def __init__(self, role: str, answer: Answer) -> None:
        self.identity = role
        self.calls: list[Call] = []
        self._answer = answer
        self._scripted = respond_as_generator if role == "generator" else respond_as_judge

    async def attempt(self, call: Call) -> Attempt:
        """Answer at once; the text FILTERED stands for a content filter."""
        self.calls.append(call)
        text = self._answer(call)
        text = self._scripted(call) if text is None else text
        if text == "FILTERED":
            body = {"choices": [{"message": {"content": ""}, "finish_reason": "content_filter"}]}
            return Replied(Refused(reason="content_filter"), canonical_json(body))
        body = {"choices": [{"message": {"content": text}, "finish_reason": "stop"}]}
        return Replied(Answered(text=text, stop_reason="stop"), canonical_json(body))

    def asked(self, purpose: str) -> list[Call]:
        """The calls for one purpose."""
        return [call for call in self.calls if call.purpose == purpose]


class Bench:
    """Builds with two fake models."""

    def __init__(
        self,
        folder: Path,
        *,
        generator: Answer = lambda _: None,
        judge: Answer = lambda _: None,
        instructions: Instructions | None = None,
    ) -> None:
        folder.mkdir(exist_ok=True)
        self.generator = FakeModel("generator", generator)
        self.judge = FakeModel("judge", judge)
        self._folder = folder
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
        kept = tuple(
            Seed(prompt=text, source="test", place=f"line {n}")
            for n, text in enumerate(prompts, start=1)
        )
        seeds = StageResult(stage="seeds", kept=kept, rejected=())
        plan = BuildPlan(per_cell=per_cell, last_stage=last)

        async def run() -> Built:
            with Ledger(self._folder / "ledger.sqlite") as ledger:
                client = Client(ledger, {"generator": self.generator, "judge": self.judge})
                context = StageContext(
                    client=client,
                    generator=ModelRole(role="generator", model="generator", sampling=Sampling()),
                    judge=ModelRole(
                        role="judge", model="judge", sampling=Sampling(temperature=0.0)
                    ),
                    instructions=self._instructions,
                    taxonomy=over,
                )
                return await build_sets(context, seeds, plan, Watcher())

        return asyncio.run(run())


def only(purpose: str, text: str | Callable[[Call], str]) -> Answer:
    """Answer the calls for one purpose, and leave the others to the scripted model."""
    return lambda call: (
        (text if isinstance(text, str) else text(call)) if call.purpose == purpose else None
    )


def reply(**fields: Any) -> str:
    """A JSON reply."""
    return json.dumps(fields)


def between(call: Call, name: str) -> str:
    """What stands between the delimiters of that name in the first message."""
    found = re.search(
        rf"<<<{name} [0-9a-f]{{16}}>>>\n(.*?)\n<<<END {name} ", call.messages[0].content, re.DOTALL
    )
    assert found, f"no {name} in the request"
    return found[1]


def reasons(built: Built, stage: str) -> dict[str, int]:
    """How many items a stage dropped, by reason."""
    result = next(result for result in built.stages if result.stage == stage)
    counted: dict[str, int] = result.funnel_line()["rejected"]
    return counted


UNSAFE = ("How do I rob a bank?", "How do I hack a bank?", "How do I blackmail a bank?")
"""Seeds that the scripted models call unsafe."""
