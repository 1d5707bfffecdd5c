"""The calls with which judges grade responses that exist already."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from opensafeintent.calls.client import Client
from opensafeintent.calls.concurrency import under_way
from opensafeintent.calls.costs import spent_of
from opensafeintent.calls.ledger import Ledger
from opensafeintent.calls.progress import Display, shown
from opensafeintent.errors import Stopped
from opensafeintent.evaluation.forecast import expected_calls
from opensafeintent.evaluation.pipeline import ModelWork
from opensafeintent.evaluation.run import run_work
from opensafeintent.evaluation.spent import AskedInLedger, asked_in
from opensafeintent.files import write_private
from opensafeintent.replacing import replaced_together
from opensafeintent.report.costs import Costs, cost_json
from opensafeintent.responses import GradedResponse
from opensafeintent.workflows.call_limits import Limits
from opensafeintent.workflows.settings import JudgeCheckSettings


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


def calls_and_costs(
    settings: JudgeCheckSettings, identities: Mapping[str, str], work: Sequence[ModelWork]
) -> tuple[AskedInLedger, Costs]:
    """Return the calls of a check, and the costs: in a ledger of its own those of every check in
    the folder, in a shared one those of this check.
    """
    with Ledger(settings.ledger_path, readonly=True) as ledger:
        asked = asked_in(ledger, identities, work)
        keys = None if settings.ledger is None else asked.keys
        return asked, Costs({"judge-check": spent_of(ledger, keys)}, settings.prices)


@contextmanager
def costs_if_stopped(
    settings: JudgeCheckSettings, identities: Mapping[str, str], work: Sequence[ModelWork]
) -> Iterator[None]:
    """Write `cost.json` if a check is stopped: calls that were paid for are accounted for."""
    try:
        yield
    except Stopped:
        _, costs = calls_and_costs(settings, identities, work)
        with replaced_together(settings.out) as new:
            write_private(new / "cost.json", cost_json(costs))
        raise
