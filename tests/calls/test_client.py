"""Calls through the ledger: once each, tried again where it helps, stopped where it does not."""

from __future__ import annotations

import asyncio
import random
import re
import socket
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from calls.support import (
    KEY,
    KEY_VARIABLE,
    MODEL,
    ask,
    ask_all,
    holds,
    open_client,
    statuses,
    user_call,
    user_calls,
)
from loopback import Fault, LoopbackServer, Match, answer_text
from opensafeintent.calls import client as module, limiter as limiter_module
from opensafeintent.calls.client import Client, ModelStopped
from opensafeintent.calls.costs import Budget
from opensafeintent.calls.ledger import Ledger
from opensafeintent.calls.records import Answered, Failed, Outcome
from opensafeintent.errors import Stopped


@pytest.fixture(autouse=True)
def seeded() -> None:
    """Waits between attempts have jitter."""
    random.seed(20)


@pytest.fixture
def ledger(path: Path) -> Iterator[Ledger]:
    with Ledger(path) as ledger:
        yield ledger


@pytest.fixture
def server() -> Iterator[LoopbackServer]:
    with LoopbackServer() as server:
        yield server


def status(number: int, **fields: Any) -> Fault:
    return Fault(action="status", status=number, **fields)


def texts_of(outcomes: Iterable[object]) -> list[str]:
    return [outcome.text for outcome in outcomes if isinstance(outcome, Answered)]


# Once each
# ------------------------------------------------------------------------------


def test_an_answer_is_recorded_and_never_asked_for_again(
    path: Path, server: LoopbackServer
) -> None:
    for _ in range(2):
        with Ledger(path) as ledger:
            expected = answer_text("m", ["Write a note about boats."])
            assert texts_of([ask(ledger, server.base_url)]) == [expected]
    assert server.stats()["total"] == 1
    assert statuses(path) == ["answered"]


def test_equal_calls_in_flight_are_made_once(path: Path, ledger: Ledger) -> None:
    with LoopbackServer(latency=0.05) as server:
        outcomes = ask_all(ledger, server.base_url, [user_call()] * 50 + [user_call(epoch=2)])
        assert server.stats()["total"] == 2
    assert len(set(texts_of(outcomes))) == 1
    ledger.close()
    assert statuses(path) == ["answered", "answered"]


def test_all_who_wait_for_a_call_get_its_failure(ledger: Ledger) -> None:
    too_long = status(400, code="context_length_exceeded", seconds=0.05)
    with LoopbackServer(faults=[too_long]) as server:
        outcomes = ask_all(ledger, server.base_url, [user_call()] * 5)
        assert server.stats()["total"] == 1
    assert [outcome.kind for outcome in outcomes if isinstance(outcome, Failed)] == ["rejected"] * 5


def test_who_waits_for_an_equal_call_is_not_cancelled_with_it(ledger: Ledger) -> None:
    async def run(base_url: str) -> None:
        async with open_client(ledger, base_url) as client:
            first, second = (asyncio.ensure_future(client.ask(user_call())) for _ in range(2))
            await asyncio.sleep(0.02)
            first.cancel()
            assert isinstance(await second, Answered)

    with LoopbackServer(latency=0.1) as server:
        asyncio.run(run(server.base_url))


def test_a_failed_call_is_tried_again_by_the_next_run(path: Path, server: LoopbackServer) -> None:
    server.set_faults(status(400, code="context_length_exceeded"))
    with Ledger(path) as ledger:
        assert isinstance(ask(ledger, server.base_url), Failed)
    server.set_faults()
    with Ledger(path) as ledger:
        assert isinstance(ask(ledger, server.base_url), Answered)
    assert statuses(path) == ["failed", "answered"]


def test_only_the_ledger_answers_for_an_identity(path: Path, server: LoopbackServer) -> None:
    with Ledger(path) as ledger:
        ask(ledger, server.base_url)
    with Ledger(path, readonly=True) as ledger:
        client = Client(ledger, {MODEL: MODEL})
        assert isinstance(asyncio.run(client.ask(user_call())), Answered)
        assert asyncio.run(client.ask(user_call("another"))) == Failed(
            kind="not_made", error="the call is not in the ledger"
        )


# Tried again
# ------------------------------------------------------------------------------


@pytest.mark.slow
def test_what_may_pass_is_tried_again_after_a_wait(path: Path, ledger: Ledger) -> None:
    def once(name: str, **fields: Any) -> Fault:
        return Fault(match=Match(contains=name, attempts=1), **fields)

    broken = [
        once("500", action="status", status=500),
        *(once(name, action=name) for name in ("drop", "truncate", "malformed")),
        once("page", action="body", status=200, body=b"<html>Bad gateway</html>"),
        once("broken off", action="completion", content="", finish_reason="error"),
        once("nothing", action="body", status=200, body=b'{"choices": []}'),
    ]
    names = [fault.match.contains or "" for fault in broken]
    with LoopbackServer(faults=broken) as server:
        outcomes = ask_all(ledger, server.base_url, map(user_call, names))
        came: dict[str, list[float]] = {name: [] for name in names}
        for request in server.requests:
            came[request.messages[-1]["content"]].append(request.time)
    assert texts_of(outcomes) == [answer_text("m", [name]) for name in names]
    # The first wait is half a second, give or take half of it.
    assert min(second - first for first, second in came.values()) >= 0.25
    ledger.close()
    assert sorted(statuses(path)) == ["answered"] * 7 + ["failed"] * 7


def test_a_call_has_a_deadline(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_CALL_SECONDS", 0.2)
    with LoopbackServer(faults=[status(429)]) as server:
        outcome = ask(ledger, server.base_url)
        assert isinstance(outcome, Failed) and outcome.kind == "rate_limited"
        assert server.stats()["total"] == 1  # the next attempt would have been later than that


def test_a_model_that_only_says_429_is_stopped(ledger: Ledger) -> None:
    with LoopbackServer(faults=[status(429)]) as server:
        budget = Budget(retry_seconds=0.2)
        results, client = ask_in_turn(ledger, server.base_url, 3, budget=budget)
        assert server.stats()["total"] == 1
    assert [type(result) for result in results] == [Failed, ModelStopped, ModelStopped]
    assert "--retry-for" in client.stopped_models[MODEL]


@pytest.mark.slow
def test_a_rate_limit_of_one_call_does_not_stop_a_model_that_replies(ledger: Ledger) -> None:
    faults = [status(429, match=Match(contains="limited"))]
    with LoopbackServer(faults=faults) as server:
        calls = [user_call("limited"), *user_calls(3)]
        budget = Budget(retry_seconds=1.5)
        outcomes = ask_all(ledger, server.base_url, calls, budget=budget)
    assert Counter(map(type, outcomes)) == {Failed: 1, Answered: 3}


@pytest.mark.parametrize("retries", [0, 2])
def test_a_failed_call_is_tried_as_often_as_was_asked(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, retries: int
) -> None:
    monkeypatch.setattr(module, "_FIRST_WAIT", 0.01)
    with LoopbackServer(faults=[status(500)]) as server:
        budget = Budget(max_retries=retries)
        (outcome,) = ask_all(ledger, server.base_url, user_calls(1), budget=budget)
        assert isinstance(outcome, Failed)
        assert server.stats()["total"] == 1 + retries


@pytest.mark.slow
def test_rate_limits_do_not_use_up_the_attempts(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_ATTEMPTS", 2)
    # A rate limit, waited out; then the first of two attempts that may fail, and the second.
    faults = [status(429, match=Match(first=1)), status(500, match=Match(first=1))]
    with LoopbackServer(faults=faults) as server:
        assert isinstance(ask(ledger, server.base_url), Answered)


@pytest.mark.slow
@pytest.mark.parametrize("number", [429, 503])
def test_retry_after_is_kept_to(ledger: Ledger, number: int) -> None:
    # without it, the first wait is 0.75 s at the most
    with LoopbackServer(faults=[status(number, retry_after=0.9, match=Match(first=1))]) as server:
        assert isinstance(ask(ledger, server.base_url), Answered)
        first, second = (request.time for request in server.requests)
    assert second - first >= 0.9


# As many at once as is right
# ------------------------------------------------------------------------------


@pytest.mark.slow
def test_fixed_connections_are_reached_and_never_exceeded(ledger: Ledger) -> None:
    faults = [status(500, match=Match(first=2)), status(429, match=Match(first=2))]
    with LoopbackServer(latency=0.02, faults=faults) as server:
        outcomes = ask_all(ledger, server.base_url, user_calls(60), max_connections=5)
        assert server.stats()["max_in_flight"] == 5
    assert len(texts_of(outcomes)) == 60


def test_a_wait_between_attempts_holds_no_connection(ledger: Ledger) -> None:
    fault = status(503, retry_after=60, match=Match(contains="note 0"))
    with LoopbackServer(faults=[fault]) as server:

        async def run() -> None:
            async with open_client(ledger, server.base_url, max_connections=1) as client:
                waiting = asyncio.ensure_future(client.ask(user_calls(1)[0]))
                await asyncio.sleep(0.1)
                # the one connection is free during the minute of waiting
                await asyncio.wait_for(asyncio.gather(*map(client.ask, user_calls(5)[1:])), 30)
                waiting.cancel()

        asyncio.run(run())


@pytest.mark.slow
def test_a_rate_limited_endpoint_answers_everything_in_the_end(path: Path, ledger: Ledger) -> None:
    with LoopbackServer(latency=0.02, rate_limit=12) as server:
        outcomes = ask_all(ledger, server.base_url, user_calls(150))
        assert server.stats()["duplicates"] == 0
    assert len(texts_of(outcomes)) == 150
    ledger.close()
    assert statuses(path).count("answered") == 150


# Stopped
# ------------------------------------------------------------------------------


def ask_in_turn(
    ledger: Ledger, base_url: str, count: int, **options: Any
) -> tuple[list[Outcome | BaseException], Client]:
    """Make calls one after another."""

    async def run() -> tuple[list[Outcome | BaseException], Client]:
        results: list[Outcome | BaseException] = []
        async with open_client(ledger, base_url, **options) as client:
            for call in user_calls(count):
                results += await asyncio.gather(client.ask(call), return_exceptions=True)
        return results, client

    return asyncio.run(run())


@pytest.mark.parametrize(
    ("fault", "named"),
    [
        (status(401), KEY_VARIABLE),
        (status(429, code="insufficient_quota"), KEY_VARIABLE),
        (status(404), MODEL),
    ],
)
def test_what_will_not_pass_stops_the_model_with_one_clear_line(
    ledger: Ledger, fault: Fault, named: str
) -> None:
    with LoopbackServer(faults=[fault]) as server:
        (first, second, third), client = ask_in_turn(ledger, server.base_url, 3)
        assert server.stats()["total"] == 1
    assert isinstance(first, Failed) and isinstance(third, ModelStopped)
    assert isinstance(second, ModelStopped)
    assert (second.model, str(second)) == (MODEL, client.stopped_models[MODEL])
    assert re.fullmatch(f"{MODEL}: stopped: .+", str(second)) and named in str(second)


@pytest.mark.slow
def test_a_wrong_key_does_not_fail_ten_thousand_times(ledger: Ledger) -> None:
    with LoopbackServer(api_key="another", latency=0.01) as server:
        outcomes = ask_all(ledger, server.base_url, user_calls(500))
        assert server.stats()["total"] <= 16  # what was in flight when the first answer came
    assert Counter(map(type, outcomes))[ModelStopped] >= 484


PERMANENT = {
    "no credit": (400, "Your credit balance is too low."),
    "a disabled account": (400, "This organization has been disabled."),
    "a limit of use": (400, "You have reached your specified API usage limits."),
    "an unknown model": (400, "There is no model of this name."),
    "a country": (403, "Your country is not supported."),
    "an entity": (422, "The account cannot be processed."),
}


@pytest.mark.parametrize("name", PERMANENT)
def test_what_never_passes_ends_after_a_few_calls_whatever_its_words(
    ledger: Ledger, name: str
) -> None:
    number, message = PERMANENT[name]
    fault = status(number, type="invalid_request_error", message=message, seconds=0.02)
    with LoopbackServer(faults=[fault]) as server:
        outcomes = ask_all(ledger, server.base_url, user_calls(300))
        # four at once at first; the first two that end let two others begin
        assert server.stats()["total"] <= 6
    kinds = Counter(map(type, outcomes))
    assert kinds[Failed] <= 6 and kinds[ModelStopped] >= 294


@pytest.mark.slow
def test_credit_that_ends_within_a_run_costs_what_was_on_its_way(ledger: Ledger) -> None:
    ended = status(400, message="Your credit balance is too low.", match=Match(skip=100))
    with LoopbackServer(faults=[ended], latency=0.02) as server:
        outcomes = ask_all(ledger, server.base_url, user_calls(400), max_connections=8)
        # eight on their way, and those that began while the last answers and the first refusals came
        assert server.stats()["total"] <= 100 + 4 * 8
    assert len(texts_of(outcomes)) == 100


def test_rejections_of_single_requests_stop_nothing(ledger: Ledger) -> None:
    """Every third request is rejected, at once; the others take their time."""
    calls = user_calls(60)
    rejected = [
        status(400, code="invalid_prompt", match=Match(contains=call.messages[0].content))
        for call in calls[::3]
    ]
    with LoopbackServer(faults=rejected, latency=0.05) as server:
        outcomes = ask_all(ledger, server.base_url, calls)
    assert Counter(map(type, outcomes)) == {Failed: 20, Answered: 40}


def test_different_rejections_in_a_row_stop_nothing(ledger: Ledger) -> None:
    calls = user_calls(10)
    codes = ["invalid_prompt", "context_length_exceeded"] * 5
    rejected = [
        status(400, code=code, match=Match(contains=call.messages[0].content))
        for call, code in zip(calls, codes, strict=True)
    ]
    with LoopbackServer(faults=rejected) as server:
        results, client = ask_in_turn(ledger, server.base_url, 10)
    assert Counter(map(type, results)) == {Failed: 10} and client.stopped_models == {}


def test_calls_that_were_rejected_between_answers_stop_no_later_run(
    path: Path, server: LoopbackServer
) -> None:
    # notes 0 to 9 are rejected, then note 10 is answered: the model is well
    rejected = status(400, code="invalid_prompt", match=Match(first=10))
    server.set_faults(rejected)
    with Ledger(path) as ledger:
        in_turn = [
            result
            for part in (user_calls(4), user_calls(8)[4:], user_calls(11)[8:])
            for result in ask_all(ledger, server.base_url, part)
        ]
    assert [type(result) for result in in_turn] == [Failed] * 10 + [Answered]
    server.set_faults(status(400, code="invalid_prompt"))
    with Ledger(path) as ledger:
        outcomes = ask_all(ledger, server.base_url, user_calls(11))
    assert [type(outcome) for outcome in outcomes] == [Failed] * 10 + [Answered]


@pytest.mark.slow
def test_a_limit_that_states_no_wait_is_asked_about_a_few_times(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limiter_module, "_FIRST_INTERVAL", 0.01)
    monkeypatch.setattr(module, "_FIRST_WAIT", 0.01)
    fault = status(429, type="rate_limit_error", message="Extra usage is required.")
    with LoopbackServer(faults=[fault]) as server:
        outcomes = ask_all(ledger, server.base_url, user_calls(300), budget=Budget(retry_seconds=1))
        # four at first; then one after .01, .02, .04, .08, .16 and .32 seconds
        assert server.stats()["total"] <= 12
    assert Counter(map(type, outcomes))[ModelStopped] >= 296


@pytest.mark.slow
def test_a_limit_that_states_no_wait_and_passes_is_waited_out(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limiter_module, "_FIRST_INTERVAL", 0.01)
    with LoopbackServer(faults=[status(429, match=Match(first=8))]) as server:
        outcomes = ask_all(ledger, server.base_url, user_calls(50))
    assert len(texts_of(outcomes)) == 50


def test_a_dead_endpoint_stops_after_twenty_calls(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_ATTEMPTS", 1)
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        base_url = f"http://127.0.0.1:{nobody.getsockname()[1]}/v1"
        results, client = ask_in_turn(ledger, base_url, 30)
    assert [type(result) for result in results] == [Failed] * 20 + [ModelStopped] * 10
    assert base_url in client.stopped_models[MODEL]
    assert client.tally.calls == 20


def test_an_answer_between_failures_keeps_a_model_going(ledger: Ledger) -> None:
    fault = status(400, code="context_length_exceeded", match=Match(skip=1, every=2))
    with LoopbackServer(faults=[fault]) as server:
        results, client = ask_in_turn(ledger, server.base_url, 60)
        assert server.stats()["total"] == 60
    # The first is answered; of the 59 after it, the second, fourth, ... fifty-eighth fail.
    assert Counter(map(type, results))[Failed] == 29
    assert client.stopped_models == {}


def test_what_is_in_the_ledger_is_found_after_the_model_stopped(
    ledger: Ledger, server: LoopbackServer
) -> None:
    async def run() -> None:
        async with open_client(ledger, server.base_url) as client:
            await client.ask(user_call("known"))
            server.set_faults(status(401))
            await client.ask(user_call("unknown"))
            assert MODEL in client.stopped_models
            assert isinstance(await client.ask(user_call("known")), Answered)

    asyncio.run(run())


# Budgets
# ------------------------------------------------------------------------------


def test_a_budget_of_calls_is_never_exceeded_and_what_was_answered_is_kept(
    path: Path, server: LoopbackServer
) -> None:
    with Ledger(path) as ledger:
        outcomes = ask_all(ledger, server.base_url, user_calls(50), budget=Budget(calls=20))
    assert server.stats()["total"] == 20
    stopped = [str(outcome) for outcome in outcomes if isinstance(outcome, Stopped)]
    assert len(stopped) == 30 and "the budget of 20 calls is used up" in stopped[0]
    assert statuses(path) == ["answered"] * 20
    with Ledger(path) as ledger:  # the next run pays for the rest alone
        outcomes = ask_all(ledger, server.base_url, user_calls(50), budget=Budget(calls=30))
    assert len(texts_of(outcomes)) == server.stats()["total"] == 50


def test_a_halt_lets_calls_in_flight_finish(path: Path, ledger: Ledger) -> None:
    async def run(base_url: str) -> list[Outcome | BaseException]:
        async with open_client(ledger, base_url, max_connections=4) as client:
            asking = asyncio.gather(*map(client.ask, user_calls(10)), return_exceptions=True)
            await asyncio.sleep(0.1)
            client.halt(Stopped("enough"))
            client.halt(Stopped("a later reason"))
            return await asking

    with LoopbackServer(latency=0.3) as server:
        outcomes = asyncio.run(run(server.base_url))
        assert server.stats()["total"] == len(texts_of(outcomes)) == 4
    assert [str(outcome) for outcome in outcomes if isinstance(outcome, Stopped)] == ["enough"] * 6
    ledger.close()
    assert statuses(path) == ["answered"] * 4


@pytest.mark.slow
def test_the_tally_counts_what_was_done(ledger: Ledger) -> None:
    async def run(base_url: str) -> Client:
        async with open_client(ledger, base_url) as client:
            harm = user_call("c", purpose="harm")
            for call in (*map(user_call, "aab"), harm, user_call("d")):
                await client.ask(call)
            return client

    faults = [
        status(500, match=Match(contains="b", first=1)),
        Fault(action="completion", content="12345678", match=Match(contains="c")),
        status(400, code="content_filter", match=Match(contains="d")),
        Fault(action="completion", content="x" * 40, match=Match(has="model")),
    ]
    with LoopbackServer(faults=faults) as server:
        tally = asyncio.run(run(server.base_url)).tally
    assert tally.new_calls == {(MODEL, "generate"): 3, (MODEL, "harm"): 1}
    assert (tally.reused_calls, tally.retries, tally.refusals, tally.in_flight) == (1, 1, 1, 0)
    assert tally.calls == 5
    # The server counts four characters a token, and one at least: a question each for a, b and c;
    # 40, 40 and 8 characters.
    tokens = {kind: tally.usage[MODEL, "standard", kind] for kind in ("input", "output")}
    assert tokens == {"input": 3, "output": 10 + 10 + 2}


# Secrets
# ------------------------------------------------------------------------------


ECHOES = (
    *(status(number) for number in (200, 400, 401, 500)),
    *(status(400, code="content_filter"), Fault(action="completion")),
)


@pytest.mark.parametrize("padding", ["", "x" * 400])
@pytest.mark.parametrize("fault", ECHOES, ids=repr)
def test_an_echoed_key_is_nowhere(
    path: Path, ledger: Ledger, monkeypatch: pytest.MonkeyPatch, fault: Fault, padding: str
) -> None:
    # Longer replies are compressed in the ledger; that hides a key from grep, and from nobody else.
    monkeypatch.setattr(module, "_ATTEMPTS", 1)
    leaking_text = f"Your key: {KEY}\x1b[31m\n{padding}"
    with LoopbackServer(
        faults=[replace(fault, message=leaking_text, content=leaking_text)]
    ) as server:
        (outcome,), client = ask_in_turn(ledger, server.base_url, 1)
        assert server.requests[0].headers["Authorization"] == f"Bearer {KEY}"
    assert KEY not in repr(outcome) + "".join(client.stopped_models.values())
    if isinstance(outcome, Failed):
        assert "***" in outcome.error and "\x1b" not in outcome.error and "\n" not in outcome.error
    ledger.close()
    assert holds(path, "Your key")
    assert not holds(path, KEY)
