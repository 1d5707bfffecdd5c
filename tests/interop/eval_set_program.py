"""A program that runs our task as an `eval_set` of Inspect AI over slow models; a test interrupts
it half-way.

    python eval_set_program.py LOGS CALLS

Every request adds a line to CALLS: a hash of the model and of what it was asked.
"""

from __future__ import annotations

import asyncio
import hashlib
import sys
from pathlib import Path

from inspect_ai import eval_set
from inspect_ai.model import ChatMessage, GenerateConfig, ModelOutput, modelapi
from inspect_ai.tool import ToolChoice, ToolInfo

from opensafeintent.inspect.task import ScriptedAPI

SECONDS = 0.05


def note(line: str) -> None:
    with Path(sys.argv[2]).open("a") as calls:
        calls.write(line + "\n")


@modelapi(name="slow")
class Slow(ScriptedAPI):
    """A baseline that takes its time."""

    async def generate(
        self,
        input: list[ChatMessage],  # noqa: A002  # Inspect's own name for it
        tools: list[ToolInfo],
        tool_choice: ToolChoice,
        config: GenerateConfig,
    ) -> ModelOutput:
        asked = "\n".join([self.model_name, *(message.text for message in input)])
        note(hashlib.sha256(asked.encode()).hexdigest())
        await asyncio.sleep(SECONDS)
        return await super().generate(input, tools, tool_choice, config)


if __name__ == "__main__":
    done, _ = eval_set(
        "opensafeintent/opensafeintent",
        model=["slow/keyword-filter", "slow/comply-all"],
        model_roles={"grader": "slow/judge"},
        task_args={"limit": 2, "epochs": 2, "metrics": "all"},
        log_dir=sys.argv[1],
        **{"max_connections": 4, "max_samples": 4, "log_buffer": 1, "log_dir_allow_dirty": True},
        display="none",
    )
    sys.exit(0 if done else 1)
