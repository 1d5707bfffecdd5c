"""What is said to have been paid is what the ledger holds, whatever ended the run before; limits;
what to expect.
"""

from __future__ import annotations

import json
import re
import signal
import sqlite3
import sys
import zlib
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from endtoend import JUDGE, TARGET, Ran, evaluate, finish, osi, some_sets, start, total, wait_until
from loopback import GENERATE, HARM, Fault, LoopbackProcess, LoopbackServer, Match
from opensafeintent.taxonomy import GRADE_OF
from samples import json_file

GENERATOR, CHECKER = "openai-api/loop/generator", "openai-api/loop/construction-judge"
PRICES = {TARGET: (2.5, 10.0), JUDGE: (0.4, 2.0), GENERATOR: (1.0, 1.0), CHECKER: (1.0, 1.0)}
UNANSWERED = Fault(action="completion", content=None, finish_reason="tool_calls")
FAULTS = (
    # replies without an answer are paid for; the call is asked again
    replace(UNANSWERED, match=Match(purpose=GENERATE, attempts=1, every=6)),
    Fault(action="status", match=Match(purpose=HARM, attempts=1, every=9), status=503),
    Fault(action="completion", match=Match(purpose=HARM, every=7), omit_usage=True),
)
COUNTS = ("calls", "failed", "without_usage", "input_tokens", "output_tokens")


@pytest.fixture
def prices(tmp_path: Path) -> Path:
    return priced(tmp_path, *PRICES)


def priced(folder: Path, *models: str) -> Path:
    """Write the prices of some models."""
    prices = {model: {"input": PRICES[model][0], "output": PRICES[model][1]} for model in models}
    return json_file(folder / "prices.json", prices)


def cost(folder: Path) -> Any:
    """Read what a folder says of one run's cost."""
    (run,) = json.loads((folder / "cost.json").read_text())["runs"]
    return run


def lines(folder: Path) -> dict[tuple[str, str], tuple[Any, ...]]:
    """Return calls, failed attempts, replies without usage, tokens and dollars by model and
    purpose.
    """
    return {
        (line["model"], line["purpose"]): (*(line[name] for name in COUNTS), line["dollars"])
        for line in cost(folder)["lines"]
    }


def by_hand(ledger: Path) -> dict[tuple[str, str], tuple[Any, ...]]:
    """The same from the replies themselves as they lie in the ledger, and by the prices above."""
    counts: dict[tuple[str, str], Counter[str]] = {}
    with closing(sqlite3.connect(ledger)) as connection:
        rows = connection.execute("SELECT model, purpose, status, response FROM calls").fetchall()
    for model, purpose, status, packed in rows:
        line = counts.setdefault((model, purpose), Counter())
        body = zlib.decompress(packed[1:]) if packed[:1] == b"z" else packed[5:]
        usage = json.loads(body or b"{}").get("usage")
        line["failed" if status == "failed" else "calls"] += 1
        line["without_usage"] += status != "failed" and usage is None
        line["input_tokens"] += usage["prompt_tokens"] if usage else 0
        line["output_tokens"] += usage["completion_tokens"] if usage else 0
    spent = {}
    for (model, purpose), line in counts.items():
        input_price, got = PRICES[model]
        dollars = (line["input_tokens"] * input_price + line["output_tokens"] * got) / 1e6
        spent[model, purpose] = (*(line[name] for name in COUNTS), pytest.approx(dollars))
    return spent


def dollars_in(run: Path) -> float:
    """Return what the replies in a run's ledger cost."""
    return float(sum(line[5].expected for line in by_hand(run / "ledger.sqlite").values()))


# From the ledger
# ------------------------------------------------------------------------------


@pytest.mark.slow
def test_after_two_interruptions_it_is_what_one_counts_by_hand(
    prices: Path, tmp_path: Path
) -> None:
    run, price_options = tmp_path / "run", ("--prices", prices)
    dataset = some_sets(tmp_path, 6)
    with LoopbackProcess(latency=0.05, faults=FAULTS) as server:
        for ending, requests, code in ((signal.SIGINT, 30, 130), (signal.SIGKILL, 70, -9)):
            process = start(server, dataset, run, *price_options, "--max-connections", 4)
            wait_until(lambda: total(server) >= requests)  # noqa: B023
            process.send_signal(ending)
            assert finish(process).code == code
        ran = finish(start(server, dataset, run, *price_options))
        assert ran.code == 0, ran.err
        expected = by_hand(run / "ledger.sqlite")
        assert lines(run) == expected
        silent = expected[JUDGE, "harm"][2]
        assert expected[TARGET, "generate"][1] > 0 < silent  # failed but paid for; silent
        sums = [sum(line[at] for line in expected.values()) for at in range(5)]
        whole = cost(run)["total"]
        assert [whole[name] for name in COUNTS] == sums
        assert whole["dollars"] == pytest.approx(dollars_in(run))
        assert re.search(rf"^All .*{whole['dollars']:.2f}\s*$", ran.out, re.MULTILINE)
        assert f"{JUDGE}: {silent} replies do not say how many tokens they took" in ran.text
        # asked again, nothing is called and nothing changes; a report says the same
        cost_before = (run / "cost.json").read_bytes()
        assert evaluate(server, dataset, run, *price_options).code == 0
        assert (run / "cost.json").read_bytes() == cost_before
    assert osi("report", run, *price_options).code == 0
    assert (run / "cost.json").read_bytes() == cost_before
    page = (run / "report.html").read_text()
    assert 'id="table-cost"' in page and "Prices: prices.json (sha256 " in page
    assert (run / "tables" / "cost.csv").is_file()


@pytest.mark.slow
def test_in_a_shared_ledger_only_the_run_s_own_calls_count(
    server: LoopbackServer, prices: Path, tmp_path: Path
) -> None:
    alone, big, small = (tmp_path / name for name in ("alone", "big", "small"))
    sets, price_options, shared = (
        some_sets(tmp_path, 2),
        ("--prices", prices),
        ("--ledger", tmp_path / "l"),
    )
    assert evaluate(server, sets, alone, *price_options).code == 0
    assert (
        evaluate(server, some_sets(tmp_path, 5), big, *price_options, *shared, "--epochs", 2).code
        == 0
    )
    ran = evaluate(server, sets, small, *price_options, *shared, "--audit", "retest=3")
    assert ran.code == 0
    assert (cost(alone)["ledger"], cost(small)["ledger"]) == ("own", "shared")
    expected = {
        # three responses graded once more
        key: line[0] + 3 * (key in {(JUDGE, role) for role in GRADE_OF})
        for key, line in lines(alone).items()
    }
    assert {key: line[0] for key, line in lines(small).items()} == expected
    assert lines(small)[TARGET, "generate"] == lines(alone)[TARGET, "generate"]
    assert "The ledger is shared: these are the calls that the results rest on" in ran.text
    # and of both in one report, each has its own
    both = ("report", alone, small, "--out", tmp_path / "both", *shared, *price_options)
    assert osi(*both).code == 0
    runs = json.loads((tmp_path / "both" / "cost.json").read_text())["runs"]
    assert [run["total"] for run in runs] == [cost(alone)["total"], cost(small)["total"]]


def test_a_model_without_a_price_has_tokens_and_no_dollars(
    server: LoopbackServer, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    ran = evaluate(server, some_sets(tmp_path, 2), run, "--prices", priced(tmp_path, TARGET))
    for (model, _), line in lines(run).items():
        assert (line[5] is None) == (model == JUDGE) and line[3] > 0
    assert cost(run)["without_price"] == [JUDGE]
    known_dollars = sum(line[5] for (model, _), line in lines(run).items() if model == TARGET)
    assert cost(run)["total"]["dollars"] == pytest.approx(known_dollars)
    assert f"No price is given for {JUDGE}: the sum is without it." in ran.text


def test_without_prices_there_are_tokens(
    server: LoopbackServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "genai_prices", None)
    run, free = tmp_path / "run", tmp_path / "free"
    ran = evaluate(server, some_sets(tmp_path, 1), run)
    assert json.loads((run / "cost.json").read_text())["prices"] is None
    assert cost(run)["total"]["dollars"] is None and cost(run)["total"]["input_tokens"] > 0
    assert not {"Dollars", "prices", "Tokens in"} & set(ran.out.split())  # nobody asked for them
    baselines = {"models": ["baseline/redirect"], "judges": ["baseline/judge"]}
    ran = evaluate(server, some_sets(tmp_path, 1), free, **baselines)
    assert cost(free)["total"]["dollars"] == 0.0


@pytest.mark.slow
def test_later_commands_use_the_prices_that_a_run_keeps(
    server: LoopbackServer, prices: Path, tmp_path: Path
) -> None:
    run, other, sets = tmp_path / "run", tmp_path / "other", some_sets(tmp_path, 1)
    evaluate(server, sets, run, "--prices", prices)
    dollars = cost(run)["total"]["dollars"]
    before = (run / "cost.json").read_bytes()
    assert dollars > 0
    assert osi("report", run).code == 0
    assert (run / "cost.json").read_bytes() == before
    assert "dollars" in (run / "tables" / "cost.csv").read_text()
    evaluate(server, sets, run)
    assert (run / "cost.json").read_bytes() == before
    # so do a forecast and a budget
    more = evaluate(server, sets, run, "--epochs", 2, "--dry-run", "--budget-dollars", 1e-6)
    assert more.code == 0 and "--budget-dollars 1e-06: " in more.text
    cheaper = priced(tmp_path, TARGET)
    assert osi("report", run, "--prices", cheaper).code == 0
    assert cost(run)["without_price"] == [JUDGE]
    dear = json_file(tmp_path / "dear.json", {TARGET: {"input": 1e6, "output": 1e6}})
    assert osi("report", run, "--prices", dear).code == 0  # thousands of dollars
    # two files of prices are not put together
    evaluate(server, sets, other, "--prices", cheaper)
    ran = osi("report", run, other, "--out", tmp_path / "both")
    assert (
        "note: the runs do not keep the same prices, and none of them is used; --prices" in ran.text
    )


# Limits
# ------------------------------------------------------------------------------


def test_a_budget_in_dollars_needs_a_price_of_every_model(
    server: LoopbackServer, tmp_path: Path
) -> None:
    file = priced(tmp_path, TARGET, GENERATOR)
    options = ("--budget-dollars", 1, "--prices", file, "--out", tmp_path / "out")
    of_sets = f"--dataset {some_sets(tmp_path, 1)} --judge"
    for command in (
        f"evaluate {TARGET} baseline/redirect {of_sets} {JUDGE}",
        f"judge-check --judge {JUDGE}",
        f"build --generator {GENERATOR} --judge {JUDGE} --per-cell 1",
    ):
        for dry_run in ((), ("--dry-run",)):
            refusal = osi(*command.split(), *options, *dry_run, server=server).refusal
            assert f"--budget-dollars: no price for {JUDGE}: {file} has none" in refusal
    assert total(server) == 0
    free = osi(*f"evaluate baseline/redirect {of_sets} baseline/judge".split(), *options)
    assert free.code == 0


@pytest.mark.slow
def test_replies_without_an_answer_are_paid_for(
    server: LoopbackServer, prices: Path, tmp_path: Path
) -> None:
    server.set_faults(replace(UNANSWERED, match=Match(purpose=GENERATE)))
    limited = ("--prices", prices, "--max-connections", 1, "--budget-dollars", 0.001)
    stopped = evaluate(server, some_sets(tmp_path, 3), tmp_path / "run", *limited)
    assert stopped.code == 3 and "the budget of $0.001 is used up" in stopped.err
    (line,) = by_hand(tmp_path / "run" / "ledger.sqlite").values()
    assert line[0] == 0 < line[1] == total(server) < 10


# What to expect
# ------------------------------------------------------------------------------


def test_a_dry_run_says_that_a_budget_is_too_small(
    server: LoopbackServer, prices: Path, tmp_path: Path
) -> None:
    arguments = (some_sets(tmp_path, 1), tmp_path / "run", "--dry-run", "--prices", prices)
    budgets = {"calls": 3, "dollars": 0.0001}
    for name, most in budgets.items():
        ran = evaluate(server, *arguments, f"--budget-{name}", most)
        assert f"note: --budget-{name} {most}: " in ran.text and f"{name} are expected" in ran.text
    ample = evaluate(server, *arguments, "--budget-dollars", 100)
    assert "are expected" not in ample.text


def test_a_partial_sum_is_marked_and_the_file_s_other_names_are_given(
    server: LoopbackServer, tmp_path: Path
) -> None:
    file = priced(tmp_path, TARGET, GENERATOR)
    arguments = (some_sets(tmp_path, 1), tmp_path / "run", "--prices", file)
    expected = evaluate(server, *arguments, "--dry-run")
    (total_line,) = [line for line in expected.out.splitlines() if line.startswith("All ")]
    assert total_line.startswith("All ") and " partial sum " in total_line
    assert f"no call goes to {GENERATOR}, of which prices.json has a price" in " ".join(
        expected.text.replace(f"{tmp_path}/", "").split()
    )
    ran = evaluate(server, *arguments)
    (total_line,) = [line for line in ran.out.splitlines() if line.startswith("All ")]
    assert total_line.startswith("All ") and " partial sum " in total_line


def table(ran: Ran) -> dict[tuple[str, str], list[str]]:
    """Return the cells of each line of a forecast."""
    assert ran.code == 0, ran.err
    rows = [line.split() for line in ran.out.splitlines()]
    return {(row[0], row[1]): row[2:] for row in rows if row and row[0].startswith("openai-api/")}


def test_a_provider_that_answers_429_for_ever_ends_the_run_as_was_said(tmp_path: Path) -> None:
    limited = Fault(action="status", status=429, match=Match(model="target"))
    with LoopbackServer(faults=[limited]) as server:
        arguments = (some_sets(tmp_path, 1), tmp_path / "run", "--retry-for", "0.005")
        dry_run = evaluate(server, *arguments, "--dry-run")
        assert "0.005 minutes is stopped, and the run ends with exit code 3" in dry_run.text
        ended = evaluate(server, *arguments)
    assert ended.code == 3
    assert "--retry-for" in ended.err + ended.out


@pytest.mark.slow
def test_tokens_are_the_mean_of_calls_on_record_and_time_their_median(
    prices: Path, tmp_path: Path
) -> None:
    run, options = tmp_path / "run", ("--prices", prices, "--probe", "none")
    with LoopbackServer(latency=0.25) as server:
        sets = some_sets(tmp_path, 4)
        before = evaluate(server, sets, run, *options, "--limit", 2, "--dry-run")
        assert "in the ledger" not in before.out
        assert evaluate(server, sets, run, *options, "--limit", 2).code == 0
        larger = ("--limit", 4, "--max-connections", 2, "--dry-run")
        after = evaluate(server, sets, run, *options, *larger)
    calls, input_tokens, got, dollars, recorded = table(after)[TARGET, "generate"]
    line = lines(run)[TARGET, "generate"]
    assert (calls, recorded) == ("14", "14")
    assert (input_tokens, got) == (f"{line[3]:,}", f"{line[4]:,}")
    assert float(dollars) == pytest.approx(line[5], abs=0.00006)
    told_time = re.search(r"Estimated time: (\d+) s, by the median time of such calls", after.text)
    # 14 + 28 + 2 calls, two at once, of a quarter of a second each, and more where the machine is
    # busy
    assert told_time is not None and 5 <= int(told_time[1]) < 30


@pytest.mark.slow
def test_the_tokens_of_second_turns_are_foretold_from_the_stored_first_replies(
    tmp_path: Path,
) -> None:
    run, purposes = tmp_path / "run", ((TARGET, "generate"), (JUDGE, "helpfulness"))
    with LoopbackServer() as server:
        sets = some_sets(tmp_path, 6)
        direct = ("--probe", "none")
        assert evaluate(server, sets, run, *direct).code == 0
        before = lines(run)
        foretold = evaluate(server, sets, run, *direct, "--follow-ups", "--dry-run")
        assert evaluate(server, sets, run, *direct, "--follow-ups").code == 0
    after = lines(run)
    found = {
        (row[0], row[1].rstrip(",")): int(row[5].replace(",", ""))
        for row in map(str.split, foretold.out.splitlines())
        if row[2:4] == ["second", "turn"]
    }
    for place in purposes:
        taken = after[place][3] - before[place][3]
        assert found[place] == pytest.approx(taken, rel=0.1)
