"""Many calls at once: what is in flight when one fails finishes, and the error is raised then."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from opensafeintent.calls.client import Client, ModelStopped, side_by_side, work_on_each
from opensafeintent.calls.ledger import Ledger
from opensafeintent.errors import Stopped


async def after(turns: int, result: int, ended: list[int]) -> int:
    """Return a number after so many turns of the loop; a negative one is an error."""
    for _ in range(turns):
        await asyncio.sleep(0)
    ended.append(result)
    if result < 0:
        raise LookupError(str(result))
    return result


def test_results_come_in_the_order_of_the_questions() -> None:
    ended: list[int] = []
    assert asyncio.run(
        side_by_side(after(9, 1, ended), after(1, 2, ended), after(5, 3, ended))
    ) == [1, 2, 3]
    assert ended == [2, 3, 1]
    assert asyncio.run(side_by_side()) == []


def test_an_error_is_raised_once_all_have_ended() -> None:
    ended: list[int] = []
    with pytest.raises(LookupError, match="-1"):
        asyncio.run(side_by_side(after(1, -1, ended), after(20, 2, ended)))
    assert ended == [-1, 2]


def results_of(
    folder: Path, items: list[int], at_once: int, ended: list[int], stops: int | None = None
) -> list[int]:
    async def work(item: int) -> int:
        if item == stops:
            raise ModelStopped("m", "m: stopped")
        return await after(abs(item), item, ended)

    async def run(client: Client) -> list[int]:
        try:
            return await work_on_each(client, items, work, at_once=at_once)
        except Stopped:
            with pytest.raises(Stopped, match="m: stopped"):
                client.raise_if_halted()
            raise

    with Ledger(folder / "ledger.sqlite") as ledger:
        return asyncio.run(run(Client(ledger, {})))


@pytest.mark.parametrize("at_once", [1, 3, 100])
def test_every_item_is_worked_on_and_results_keep_their_order(tmp_path: Path, at_once: int) -> None:
    ended: list[int] = []
    assert results_of(tmp_path, [5, 1, 4, 2, 3], at_once, ended) == [5, 1, 4, 2, 3]
    assert sorted(ended) == [1, 2, 3, 4, 5]
    assert results_of(tmp_path, [], at_once, ended) == []


def test_after_an_error_no_item_is_begun_and_those_in_flight_finish(tmp_path: Path) -> None:
    # Two at once: -3 fails while 40 is in flight; 1 and 2 are not begun.
    ended: list[int] = []
    with pytest.raises(LookupError, match="-3"):
        results_of(tmp_path, [-3, 40, 1, 2], 2, ended)
    assert ended == [-3, 40]


def test_a_model_that_answers_no_more_halts_the_client(tmp_path: Path) -> None:
    ended: list[int] = []
    with pytest.raises(Stopped, match="m: stopped"):
        results_of(tmp_path, [40, 7, 1, 2], 2, ended, stops=7)
    assert ended == [40]
