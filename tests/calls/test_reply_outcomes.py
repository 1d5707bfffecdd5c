"""What every reply comes to: an answer, a refusal, or a failure that is never a grade.

`reply_cases` has the table.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from calls.reply_cases import CASES, GOOD, TWICE, replying
from calls.support import MODEL, ask_all, chat_model, open_client, rows, user_call
from endtoend import JUDGE, TARGET, Ran, answering, evaluate, grades, metrics, texts_of
from loopback import LoopbackServer
from opensafeintent.calls.http import HttpSession
from opensafeintent.calls.ledger import Ledger
from opensafeintent.calls.records import Answered, Attempt, Failed, Failure, Refused, Replied, Usage
from opensafeintent.calls.replies import ends_unopened_thought
from opensafeintent.taxonomy import SCALES
from samples import dataset_file, made_dataset, prompt_set

pytestmark = pytest.mark.usefixtures("quick_retries")


@pytest.fixture(scope="module")
def attempts() -> dict[str, Attempt]:
    """Attempt every case once."""

    async def run(base_url: str) -> list[Attempt]:
        async with HttpSession(16) as http:
            # a model for each: what one learns of the fields that are taken is nothing to the others
            calls = [user_call(f"{name}, in between") for name in CASES]
            return await asyncio.gather(
                *(chat_model(base_url, http).attempt(call) for call in calls)
            )

    with replying() as server:
        return dict(zip(CASES, asyncio.run(run(server.base_url)), strict=True))


def word_for(attempt: Attempt) -> str:
    match attempt:
        case Replied(outcome=Answered(text="", truncated=True)):
            return "truncated"
        case Replied(outcome=Answered(reasoning_only=True)):
            return "reasoning_only"
        case Replied(outcome=Refused() | Answered(text="")):
            return "refused"
        case Replied(outcome=Answered(text=text, truncated=cut)):
            assert text.startswith(GOOD.removesuffix("."))
            return "cut" if cut else "answered"
        case Failure(kind=kind):
            return kind
    raise AssertionError(attempt)


@pytest.mark.parametrize("name", CASES)
def test_what_a_reply_comes_to(attempts: dict[str, Attempt], name: str) -> None:
    assert word_for(attempts[name]) == CASES[name].outcome


def test_no_answer_beside_odd_fields_counts_tokens_that_cannot_be(
    attempts: dict[str, Attempt],
) -> None:
    for name, attempt in attempts.items():
        if name.startswith("usage is"):
            assert isinstance(attempt, Replied)
            assert attempt.outcome.usage == Usage(0, 0), name


def test_a_reply_without_an_answer_is_tried_twice_and_stops_no_model(tmp_path: Path) -> None:
    names = [name for name in CASES if b'"choices": [{' in CASES[name].body]
    names = [name for name in names if CASES[name].outcome in TWICE]
    assert 2 * len(names) > 20  # which in a row stop a model: they are none of those
    calls = [user_call(f"{name}, in between", epoch=epoch) for name in names for epoch in (1, 2)]
    calls += [user_call("text, abort, in between")]
    with replying() as server, Ledger(tmp_path / "ledger.sqlite") as ledger:
        outcomes = ask_all(ledger, server.base_url, calls)
        asked = Counter(texts_of(request)[0] for request in server.requests)
    assert asked.pop("text, abort, in between") == 6  # what broke off is no such reply
    assert set(asked.values()) == {4}  # two calls of each, twice
    assert [outcome.kind for outcome in outcomes[:-1] if isinstance(outcome, Failed)] == [
        CASES[name].outcome for name in names for _ in (1, 2)
    ]


def test_a_model_that_never_answers_is_not_a_silent_one(tmp_path: Path) -> None:
    path, error = tmp_path / "ledger.sqlite", "the reply holds no text (finish reason: stop)"

    async def run(base_url: str, ledger: Ledger) -> None:
        async with open_client(ledger, base_url) as client:
            outcome = await client.ask(user_call("null, in between"))
            assert outcome == Failed(kind="no_answer", error=error)
            client.stop_silent_models()
            assert client.stopped_models == {}

    with replying() as server, Ledger(path) as ledger:
        asyncio.run(run(server.base_url, ledger))
    assert rows(path) == [("failed", f"no_answer: {error}")] * 2
    with Ledger(path, readonly=True) as ledger:
        assert ledger.find_answering_models() == {MODEL}


# Through a whole run
# ------------------------------------------------------------------------------

NOT_OF_ONE_CALL = ("unauthorized", "no_credit", "unknown_model", "rate_limited")
"""They stop the model, or are waited out: a run has tests of its own for them."""


def evaluated(
    folder: Path, server: LoopbackServer, *names: str, **who: list[str]
) -> tuple[Ran, Path]:
    """Evaluate with a set of each name, whose dual-use wording gets the reply of that name."""
    dataset = Path(dataset_file(folder, made_dataset(*map(prompt_set, names))))
    options = ("--max-connections", 1, "--probe", "none")
    run = folder / "run"
    return evaluate(server, dataset, run, *options, **({"judges": ["baseline/judge"]} | who)), run


@pytest.mark.slow
def test_no_failure_is_a_grade(tmp_path: Path) -> None:
    # a model that ends thoughts that no mark opened is another one: see test_reasoning
    names = [
        name
        for name, case in CASES.items()
        if case.outcome not in NOT_OF_ONE_CALL and not ends_unopened_thought(case.body)
    ]
    with replying() as server:
        ran, run = evaluated(tmp_path, server, *names)
    assert ran.code == 1, ran.err  # more grades are missing than the 5 % that are let pass
    by_id = {row["id"]: row for row in grades(run) if row["variant"] == "dual_use"}
    beside = [row for row in grades(run) if row["variant"] != "dual_use"]
    assert all(row["helpfulness"] and not row["missing"] for row in beside)
    assert list(by_id) == names
    for name, row in by_id.items():
        outcome = CASES[name].outcome
        graded = (row["helpfulness"], row["harm_severity"], row["mode"])
        if outcome == "refused":
            assert (graded, row["missing"]) == (("1", "0", "A0"), ""), name
            assert row["refused"] in ("filter", "empty"), name
        elif outcome in ("answered", "cut"):
            assert "" not in graded and (row["refused"], row["missing"]) == ("", ""), name
        else:
            missing = (row["missing"], row["refused"])
            assert (graded, *missing) == (("", "", ""), f"response:{outcome}", ""), name


def test_a_wrong_key_ends_the_run_without_a_grade(tmp_path: Path) -> None:
    with answering(CASES["wrong key in an array"].body, 400) as server:
        ran, run = evaluated(tmp_path, server, "a note")
    assert ran.code == 3
    assert "check LOOP_API_KEY" in ran.err
    assert not (run / "grades.csv.gz").exists()


def test_a_403_without_a_code_stops_the_model_only_if_nothing_else_comes(tmp_path: Path) -> None:
    with replying() as server:
        ran, run = evaluated(tmp_path, server, "flagged account")
    assert ran.code == 1
    (row,) = (row for row in grades(run) if row["variant"] == "dual_use")
    assert row["missing"] == "response:forbidden"
    with answering(CASES["flagged account"].body, 403) as server:
        ran, run = evaluated(tmp_path / "all", server, *"abcdefgh")
        assert server.stats()["total"] <= 6
    assert ran.code == 3
    assert "check LOOP_API_KEY" in ran.err


def test_a_run_of_nothing_but_no_answers_is_missing_and_stays_in_the_run(tmp_path: Path) -> None:
    with answering(CASES["null"].body) as server:
        ran, run = evaluated(tmp_path, server, "a note")
        assert ran.code == 1, ran.err
        assert {row["missing"] for row in grades(run)} == {"response:no_answer"}
        # another model joins: the first one's missing grades are not dropped in silence
        ran, run = evaluated(tmp_path, server, "a note", models=["baseline/refuse-all"])
    assert ran.code == 1, ran.err
    assert {row["missing"] for row in grades(run, TARGET)} == {"response:no_answer"}
    assert metrics(run)["coverage"].keys() == {TARGET, "baseline/refuse-all"}


def test_a_judge_without_an_answer_is_a_missing_grade(tmp_path: Path) -> None:
    with answering(CASES["null"].body) as server:
        who = {"models": ["baseline/comply-all"], "judges": [JUDGE]}
        ran, run = evaluated(tmp_path, server, "a note", **who)
    assert ran.code == 1, ran.err
    (row,) = (row for row in grades(run) if row["variant"] == "dual_use")
    assert set(row["missing"].split("; ")) == {
        f"{what}:failed:no_answer" for what in (*SCALES, "mode")
    }
    assert (row["helpfulness"], row["harm_severity"]) == ("", "")
