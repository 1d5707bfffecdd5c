"""A second turn in our task of Inspect AI.

A sample of it asks for a first reply of its own and goes on from that. Samples are independent
there, so the reply to the dual-use prompt is drawn once more for each of them.
"""

from __future__ import annotations

from inspect_ai.model import ChatMessageAssistant, ChatMessageUser
from inspect_ai.solver import Generate, Solver, TaskState, solver

from opensafeintent.calls.reasoning import without_reasoning

SECOND_MESSAGE = "second_message"
"""The field of a sample's metadata with what the user says after the first reply."""


@solver
def one_or_two_turns() -> Solver:
    """Generate the response; if the sample has a second message, go on with it after a first reply
    with text, whose reasoning is taken off.
    """

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        state = await generate(state)
        message = state.metadata.get(SECOND_MESSAGE)
        first_reply = without_reasoning(state.output.completion).text.strip()
        if message is None or not first_reply:
            return state
        state.messages[-1] = ChatMessageAssistant(content=first_reply)
        state.messages.append(ChatMessageUser(content=message))
        return await generate(state)

    return solve
