"""The calls with which judges grade responses that exist already."""

from __future__ import annotations

from collections.abc import Sequence

from opensafeintent.calls.client import Client
from opensafeintent.calls.concurrency import under_way
from opensafeintent.calls.progress import Display, shown
from opensafeintent.evaluation.forecast import expected_calls
from opensafeintent.evaluation.pipeline import ModelWork
from opensafeintent.evaluation.run import run_work
from opensafeintent.responses import GradedResponse
from opensafeintent.workflows.call_limits import Limits


async def graded_work(
    client: Client, work: Sequence[ModelWork], display: Display, limits: Limits
) -> list[GradedResponse]:
    """Make the calls of a check, and return the graded responses in no particular order.

    Raises:
        Stopped: a judge does not answer any more, or a budget is used up.
    """
    graded: list[GradedResponse] = []
    total = expected_calls(work)
    async with shown(display, client, lambda: total, lambda: limits.spent(client.tally)):
        await run_work(client, work, at_once=under_way(limits.max_connections), done=graded.append)
    return graded
