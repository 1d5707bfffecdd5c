"""The flex tier: what is sent, what is served, and what each lack of capacity leads to."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from calls.support import KEY, rows, user_call
from loopback import Fault, LoopbackServer, Match
from opensafeintent.calls import http as http_module, service_tiers
from opensafeintent.calls.client import Client
from opensafeintent.calls.costs import Budget, Spending, sum_spent
from opensafeintent.calls.http import EndpointModel, HttpSession
from opensafeintent.calls.ledger import Ledger
from opensafeintent.calls.ledger_merge import merge_ledgers
from opensafeintent.calls.prices import Price, Prices
from opensafeintent.calls.providers import ENDPOINTS, resolve_endpoint
from opensafeintent.calls.records import Answered, Call, Failed, Outcome, Sampling, call_key
from opensafeintent.calls.service_tiers import FlexTier, find_served_tier, read_tier
from samples import json_file

MODEL = "openai/m"
FLEX = Match(has="service_tier")
LACKING = Fault(action="status", status=429, code="resource_unavailable", match=FLEX)


def flex_call(number: int = 0) -> Call:
    return user_call(f"Write note {number}.", model=MODEL)


def ask(
    ledger: Path,
    *faults: Fault,
    calls: int = 1,
    fallback: float | None = None,
    budget: Budget | None = None,
) -> tuple[list[Outcome], list[dict[str, Any]], Client]:
    """Ask one call after another at the flex tier; return outcomes and the bodies of requests."""

    async def run(server: LoopbackServer) -> tuple[list[Outcome], Client]:
        variables = {"OPENAI_BASE_URL": server.base_url, "OPENAI_API_KEY": KEY}
        endpoint = resolve_endpoint(MODEL, variables)
        async with HttpSession() as http:
            model = EndpointModel(MODEL, endpoint, http, flex=FlexTier(fallback))
            with Ledger(ledger) as opened:
                client = Client(opened, {MODEL: model}, budget)
                return [await client.ask(flex_call(number)) for number in range(calls)], client

    with LoopbackServer(faults=faults) as server:
        outcomes, client = asyncio.run(run(server))
        return outcomes, [record.body for record in server.requests], client


def tiers(ledger: Path) -> list[tuple[str, str]]:
    """Return the status and the tier of each attempt in a ledger."""
    return rows(ledger, "status, tier")


def test_the_tier_is_sent_and_stored_and_is_no_part_of_the_key(tmp_path: Path) -> None:
    ledger = tmp_path / "l"
    (outcome,), (sent,), _ = ask(ledger)
    assert isinstance(outcome, Answered) and sent["service_tier"] == "flex"
    assert tiers(ledger) == [("answered", "flex")]
    assert rows(ledger, "key") == [(call_key(flex_call(), MODEL),)]
    # a second ledger takes the tier over
    merge_ledgers([ledger], tmp_path / "merged")
    assert tiers(tmp_path / "merged") == [("answered", "flex")]


@pytest.mark.parametrize(
    ("fault", "tier"),
    [
        # the reply says what served it, whatever was asked for
        (Fault(action="completion", service_tier="default"), "standard"),
        (Fault(action="completion", service_tier="priority"), "priority"),
        # a reply without the field: Google's header, else the request
        (Fault(action="completion", service_tier=""), "flex"),
        (
            Fault(
                action="completion", service_tier="", headers={"X-Gemini-Service-Tier": "STANDARD"}
            ),
            "standard",
        ),
        # a reply without an answer is paid for too
        (Fault(action="completion", content=None, finish_reason="tool_calls"), "flex"),
    ],
)
def test_the_served_tier_is_recorded(fault: Fault, tier: str, tmp_path: Path) -> None:
    ask(tmp_path / "l", fault)
    assert {served for _, served in tiers(tmp_path / "l")} == {tier}


def test_a_text_of_a_reply_names_no_tier() -> None:
    text = json.dumps({"choices": [{"message": {"content": '{"service_tier": "flex"}'}}]})
    assert read_tier(text.encode()) is None
    assert find_served_tier(text.encode(), {}, None) == "standard"
    assert read_tier(b'{"usage": {"service_tier": "batch"}}') == "batch"  # Anthropic


@pytest.mark.slow
@pytest.mark.parametrize(
    "lacking",
    [
        LACKING,
        Fault(action="status", status=498, code="capacity_exceeded", match=FLEX),
        Fault(
            action="body",
            status=503,
            body=b'[{"error": {"code": 503, "message": "Busy.", "status": "UNAVAILABLE"}}]',
            match=FLEX,
        ),
    ],
)
def test_lack_of_capacity_waits_as_a_rate_limit(lacking: Fault, tmp_path: Path) -> None:
    twice = replace(lacking, match=Match(has="service_tier", first=2))
    # no retries: a rate limit is none
    (outcome,), sent, _ = ask(tmp_path / "l", twice, budget=Budget(max_retries=0))
    assert isinstance(outcome, Answered)
    assert [body["service_tier"] for body in sent] == ["flex"] * 3
    assert [status for status, _ in tiers(tmp_path / "l")] == ["failed", "failed", "answered"]
    assert rows(tmp_path / "l")[0][1].startswith("rate_limited: ")


def test_after_the_fallback_the_standard_tier_is_sent(tmp_path: Path) -> None:
    outcomes, sent, client = ask(tmp_path / "l", LACKING, calls=3, fallback=0.4)
    assert all(isinstance(outcome, Answered) for outcome in outcomes)
    # the first call waits; it is sent to the standard tier at once after the failure that is late
    # enough; the next calls try no other tier for a while
    asked = ["service_tier" in body for body in sent]
    waited = asked.index(False)
    assert 1 <= waited <= 3 and asked[waited:] == [False] * 3
    assert tiers(tmp_path / "l")[waited:] == [("answered", "standard")] * 3
    assert client.request_notes == [
        f"{MODEL}: 3 calls were sent at the standard tier, because the flex tier had no capacity"
        " (--wait-for)"
    ]
    assert client.tally.calls == len(sent)


def test_a_fallback_of_no_minutes_tries_each_call_at_both_tiers(tmp_path: Path) -> None:
    outcomes, sent, client = ask(tmp_path / "l", LACKING, calls=2, fallback=0.0)
    assert all(isinstance(outcome, Answered) for outcome in outcomes)
    assert ["service_tier" in body for body in sent] == [True, False] * 2
    assert [status for status, _ in tiers(tmp_path / "l")] == ["failed", "answered"] * 2
    assert (client.tally.new_calls.total(), client.tally.retries) == (2, 2)


@pytest.mark.slow
def test_no_fallback_without_a_limit_of_minutes(tmp_path: Path) -> None:
    (outcome,), sent, client = ask(tmp_path / "l", LACKING, budget=Budget(retry_seconds=1.2))
    assert isinstance(outcome, Failed) and all("service_tier" in body for body in sent)
    assert "rate limits for" in client.stopped_models[MODEL]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "outcome_kind"),
    [
        # limits of the account hold for every tier
        (Fault(action="status", status=429, match=Match(first=2)), ""),
        (
            Fault(
                action="body",
                status=429,
                body=b'{"error": {"status": "RESOURCE_EXHAUSTED", "code": 429}}',
                match=Match(first=2),
            ),
            "",
        ),
        (Fault(action="status", status=429, code="insufficient_quota"), "no_credit"),
        (Fault(action="status", status=500, match=Match(first=1)), ""),
    ],
)
def test_another_failure_is_no_reason_for_a_fallback(
    fault: Fault, outcome_kind: str, tmp_path: Path
) -> None:
    (outcome,), sent, client = ask(tmp_path / "l", fault, fallback=0.0)
    assert (outcome.kind if isinstance(outcome, Failed) else "") == outcome_kind
    assert all(body["service_tier"] == "flex" for body in sent) and client.request_notes == []


def test_a_model_without_the_tier_is_asked_without_it(tmp_path: Path) -> None:
    unsupported = Fault(
        action="status", status=400, code="unsupported_value", param="service_tier", match=FLEX
    )
    outcomes, sent, client = ask(tmp_path / "l", unsupported, calls=2)
    assert all(isinstance(outcome, Answered) for outcome in outcomes)
    assert ["service_tier" in body for body in sent] == [True, False, False]
    assert client.left_out == {MODEL: {"service_tier"}}
    assert client.request_notes == [f"{MODEL}: does not take service_tier; it was asked without"]
    assert tiers(tmp_path / "l")[1:] == [("answered", "standard")] * 2


def test_a_field_of_the_user_s_own_is_left_alone(tmp_path: Path) -> None:
    call = user_call(model=MODEL, sampling=Sampling(extra={"service_tier": "priority"}))

    async def run(server: LoopbackServer) -> None:
        variables = {"OPENAI_BASE_URL": server.base_url, "OPENAI_API_KEY": KEY}
        async with HttpSession() as http:
            endpoint = resolve_endpoint(MODEL, variables)
            await EndpointModel(MODEL, endpoint, http, flex=FlexTier(None)).attempt(call)

    with LoopbackServer() as server:
        asyncio.run(run(server))
        assert server.requests[0].body["service_tier"] == "priority"


def test_an_attempt_has_fifteen_minutes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert (http_module.FLEX_SECONDS, http_module.ATTEMPT_SECONDS) == (900.0, 600.0)
    monkeypatch.setattr(http_module, "FLEX_SECONDS", 0.2)
    silent = Fault(action="hang", seconds=30, match=Match(has="service_tier", first=1))
    (outcome,), sent, _ = ask(tmp_path / "l", silent)
    assert isinstance(outcome, Answered) and len(sent) == 2
    assert rows(tmp_path / "l")[0] == ("failed", rows(tmp_path / "l")[0][1])
    assert rows(tmp_path / "l")[0][1].startswith("connection: no answer from ")


def test_one_call_at_a_time_tries_the_tier_again(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(service_tiers.time, "monotonic", lambda: now)
    tier = FlexTier(60.0)
    assert tier.takes_next()
    tier.note_lack()
    now = 159.0
    assert tier.takes_next() and not tier.fell_back
    now = 161.0
    assert [tier.takes_next() for _ in range(3)] == [False] * 3
    now = 221.0  # two times the minutes after the first failure
    assert [tier.takes_next() for _ in range(3)] == [True, False, False]
    tier.note_lack()
    assert not tier.takes_next()
    tier.note_answer()
    assert tier.takes_next() and tier.fallbacks == 6


# Prices


def test_a_tier_has_the_price_of_the_list_or_the_documented_share() -> None:
    pytest.importorskip("genai_prices")
    prices = Prices()
    standard, flex = prices.of("openai/gpt-5.4"), prices.of("openai/gpt-5.4", "flex")
    assert (
        standard
        and flex
        and (flex.input, flex.output)
        == (
            standard.input / 2,
            standard.output / 2,
        )
    )
    assert prices.find_documentation("openai/gpt-5.4", "flex") is None
    gemini = prices.of("google/gemini-2.5-flash")
    assert gemini and prices.of("google/gemini-2.5-flash", "flex") == gemini.times(0.5)
    assert prices.find_documentation("google/gemini-2.5-flash", "flex") == ENDPOINTS["google"].flex
    batch = prices.of("anthropic/claude-sonnet-4-6", "batch")
    assert batch == Price(1.5, 7.5, 0.15, 1.875)
    # nobody documents another tier, and a tier of a baseline is free
    assert prices.of("google/gemini-2.5-flash", "other") == gemini
    assert prices.of("baseline/judge", "flex") == Price(0.0, 0.0)


def test_a_price_of_the_user_s_is_multiplied(tmp_path: Path) -> None:
    listed = {"openai/m": {"input": 2.0, "output": 8.0}, "groq/m": {"input": 1.0, "output": 1.0}}
    prices = Prices(json_file(tmp_path / "prices.json", listed))
    assert prices.of("openai/m", "flex") == Price(1.0, 4.0)
    # the same price, for more requests at once
    assert prices.of("groq/m", "flex") == Price(1.0, 1.0)
    assert prices.of("mistral/m", "flex") is None
    tokens = {("openai/m", "flex", "input"): 10**6, ("openai/m", "standard", "input"): 10**6}
    assert prices.cost(tokens) == 1.0 + 2.0


def test_the_ledger_s_costs_are_those_of_the_served_tiers(tmp_path: Path) -> None:
    prices = Prices(json_file(tmp_path / "p.json", {MODEL: {"input": 2.0, "output": 8.0}}))
    served = Fault(action="completion", service_tier="default", match=Match(first=1))
    ledger = tmp_path / "l"
    _, sent, client = ask(ledger, served, calls=2)
    with Ledger(ledger, readonly=True) as opened:
        flex, standard = sum_spent(opened).lines
    assert [line.service_tier for line in (flex, standard)] == ["flex", "standard"]

    def full(line: Spending) -> float:
        return (line.input_tokens * 2.0 + line.output_tokens * 8.0) / 1e6

    assert flex.dollars(prices) == pytest.approx(full(flex) / 2)
    assert flex.dollars(prices, tier="standard") == pytest.approx(full(flex))
    assert standard.dollars(prices) == pytest.approx(full(standard))
    assert prices.cost(client.tally.usage) == pytest.approx(full(flex) / 2 + full(standard))
    assert len(sent) == 2
