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
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from construction.test_resume import with_taxonomy
from endtoend import JUDGE, TARGET, Ran, begin, evaluate, finish, osi, some_sets, wait_until
from evaluation.examiner import judge
from loopback import GENERATE, HARM, Fault, LoopbackProcess, LoopbackServer, Match

pytestmark = pytest.mark.usefixtures("undrawn")

GENERATOR, CHECKER = "openai-api/loop/generator", "openai-api/loop/construction-judge"
PRICES = {TARGET: (2.5, 10.0), JUDGE: (0.4, 2.0), GENERATOR: (1.0, 1.0), CHECKER: (1.0, 1.0)}
FAULTS = (
    # replies without an answer are paid for; the call is asked again
    Fault(
        action="completion",
        match=Match(purpose=GENERATE, attempts=1, every=6),
        content=None,
        finish_reason="tool_calls",
    ),
    Fault(action="status", match=Match(purpose=HARM, attempts=1, every=9), status=503),
    Fault(action="completion", match=Match(purpose=HARM, every=7), omit_usage=True),
)
COUNTS = ("calls", "failed", "without_usage", "input_tokens", "output_tokens")


@pytest.fixture
def server() -> Iterator[LoopbackServer]:
    with LoopbackServer() as running:
        yield running


@pytest.fixture
def prices(tmp_path: Path) -> Path:
    return priced(tmp_path, *PRICES)


def priced(folder: Path, *models: str) -> Path:
    """Write the prices of some models."""
    path = folder / "prices.json"
    path.write_text(
        json.dumps(
            {model: dict(zip(("input", "output"), PRICES[model], strict=True)) for model in models}
        )
    )
    return path


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
    counts: defaultdict[tuple[str, str], dict[str, int]] = defaultdict(
        lambda: dict.fromkeys(COUNTS, 0)
    )
    with closing(sqlite3.connect(ledger)) as connection:
        rows = connection.execute("SELECT model, purpose, status, response FROM calls").fetchall()
    for model, purpose, status, packed in rows:
        line = counts[model, purpose]
        body = zlib.decompress(packed[1:]) if packed[:1] == b"z" else packed[5:]
        usage = json.loads(body or b"{}").get("usage")
        line["failed" if status == "failed" else "calls"] += 1
        line["without_usage"] += status != "failed" and usage is None
        line["input_tokens"] += usage["prompt_tokens"] if usage else 0
        line["output_tokens"] += usage["completion_tokens"] if usage else 0
    return {
        key: (
            *line.values(),
            pytest.approx((line["input_tokens"] * given + line["output_tokens"] * got) / 1e6),
        )
        for key, line in counts.items()
        for given, got in [PRICES[key[0]]]
    }


# From the ledger
# ------------------------------------------------------------------------------


@pytest.mark.slow
def test_after_two_interruptions_it_is_what_one_counts_by_hand(
    prices: Path, tmp_path: Path
) -> None:
    dataset, run = some_sets(tmp_path, 6), tmp_path / "run"
    command = (
        *f"evaluate {TARGET} --judge {JUDGE} --dataset {dataset} --out {run} --prices {prices}".split(),
    )
    with LoopbackProcess(latency=0.05, faults=FAULTS) as server:

        def interrupted(ending: signal.Signals, requests: int) -> Ran:
            process = begin(*command, "--max-connections", 4, server=server)
            wait_until(lambda: server.stats()["total"] >= requests)
            process.send_signal(ending)
            return finish(process)

        assert interrupted(signal.SIGINT, 30).code == 130
        assert interrupted(signal.SIGKILL, 70).code == -signal.SIGKILL
        ran = finish(begin(*command, server=server))
        assert ran.code == 0, ran.err
    expected = by_hand(run / "ledger.sqlite")
    assert lines(run) == expected
    assert (
        expected[TARGET, "generate"][1] > 0 < expected[JUDGE, "harm"][2]
    )  # failed but paid for; silent
    total = cost(run)["total"]
    assert [total[name] for name in COUNTS] == [
        sum(line[at] for line in expected.values()) for at in range(5)
    ]
    assert total["dollars"] == pytest.approx(sum(line[5].expected for line in expected.values()))
    assert (
        f"{total['dollars']:.2f}"
        in next(row for row in ran.out.splitlines() if row.startswith("All")).split()[-1]
    )
    silent = expected[JUDGE, "harm"][2]
    assert f"{JUDGE}: {silent} replies do not say how many tokens they took" in " ".join(
        ran.out.split()
    )
    # asked again, nothing is called and nothing changes; a report says the same
    told = (run / "cost.json").read_bytes()
    assert osi(*command, server=server).code == 0
    assert (run / "cost.json").read_bytes() == told
    assert osi("report", run, "--prices", prices).code == 0
    assert (run / "cost.json").read_bytes() == told
    page = (run / "report.html").read_text()
    assert 'id="table-cost"' in page and "Prices: prices.json (sha256 " in page
    assert (run / "tables" / "cost.csv").is_file()


def test_in_a_shared_ledger_only_the_run_s_own_calls_count(
    server: LoopbackServer, prices: Path, tmp_path: Path
) -> None:
    shared, sets, more = tmp_path / "shared.sqlite", some_sets(tmp_path, 2), ("--prices", prices)
    assert evaluate(server, sets, tmp_path / "alone", *more).code == 0
    assert (
        evaluate(
            server,
            some_sets(tmp_path, 5),
            tmp_path / "big",
            *more,
            "--ledger",
            shared,
            "--epochs",
            2,
        ).code
        == 0
    )
    ran = evaluate(
        server, sets, tmp_path / "small", *more, "--ledger", shared, "--judge-samples", 3
    )
    assert ran.code == 0
    assert (cost(tmp_path / "alone")["ledger"], cost(tmp_path / "small")["ledger"]) == (
        "own",
        "shared",
    )
    alone, small = lines(tmp_path / "alone"), lines(tmp_path / "small")
    for purpose in ("helpfulness", "harm"):  # three responses graded once more
        assert small[JUDGE, purpose][0] == alone[JUDGE, purpose][0] + 3
        del small[JUDGE, purpose], alone[JUDGE, purpose]
    assert small == alone
    assert "The ledger is shared: these are the calls that the results rest on" in " ".join(
        ran.out.split()
    )
    # and of both in one report, each has its own
    assert (
        osi(
            "report", tmp_path / "alone", tmp_path / "small", "--out", tmp_path / "both", *more
        ).code
        == 0
    )
    runs = json.loads((tmp_path / "both" / "cost.json").read_text())["runs"]
    assert [run["total"] for run in runs] == [
        cost(tmp_path / name)["total"] for name in ("alone", "small")
    ]


def test_a_model_without_a_price_has_tokens_and_no_dollars(
    server: LoopbackServer, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    ran = evaluate(server, some_sets(tmp_path, 2), run, "--prices", priced(tmp_path, TARGET))
    found = lines(run)
    assert all(
        (line[5] is None) == (model == JUDGE) and line[3] > 0 for (model, _), line in found.items()
    )
    assert cost(run)["without_price"] == [JUDGE]
    known = sum(line[5] for (model, _), line in found.items() if model == TARGET)
    assert cost(run)["total"]["dollars"] == pytest.approx(known)
    assert f"No price is given for {JUDGE}: the sum is without it." in " ".join(ran.out.split())


def test_without_prices_there_are_tokens(
    server: LoopbackServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "genai_prices", None)
    run = tmp_path / "run"
    ran = evaluate(server, some_sets(tmp_path, 1), run)
    assert json.loads((run / "cost.json").read_text())["prices"] is None
    assert cost(run)["total"]["dollars"] is None and cost(run)["total"]["input_tokens"] > 0
    assert 'No prices: give --prices FILE, or pip install "opensafeintent[prices]".' in " ".join(
        ran.out.split()
    )
    free = osi(
        *f"evaluate baseline/redirect --judge baseline/judge --limit 1 --out {tmp_path / 'free'}".split()
    )
    assert cost(tmp_path / "free")["total"]["dollars"] == 0.0
    assert "No prices" not in free.out  # there is nothing to tell


def test_grading_checking_and_building_say_what_they_cost(
    server: LoopbackServer, prices: Path, tmp_path: Path
) -> None:
    server.set_faults(*judge())
    checked = osi(
        *f"judge-check --judge {JUDGE} --out {tmp_path / 'check'} --prices {prices}".split(),
        server=server,
    )
    assert lines(tmp_path / "check") == by_hand(tmp_path / "check" / "ledger.sqlite")
    shared = ("--ledger", tmp_path / "check" / "ledger.sqlite")
    osi(
        *f"judge-check --judge {JUDGE} --out {tmp_path / 'again'} --prices {prices}".split(),
        *shared,
        server=server,
    )
    assert lines(tmp_path / "again") == lines(tmp_path / "check")
    build = (
        *f"build --generator {GENERATOR} --judge {CHECKER} --per-cell 1 --prices {prices}".split(),
    )
    taxonomy = with_taxonomy(tmp_path) / "taxonomy.toml"
    built = osi(*build, "--taxonomy", taxonomy, "--out", tmp_path / "built", server=server)
    assert built.code == 0, built.err
    assert lines(tmp_path / "built") == by_hand(tmp_path / "built" / "ledger.sqlite")
    own = osi(
        *build,
        *f"--taxonomy {taxonomy} --out {tmp_path / 'other'} --ledger {tmp_path / 'l.sqlite'}".split(),
        server=server,
    )
    assert own.code == 0 and lines(tmp_path / "other") == lines(tmp_path / "built")
    for ran in (checked, built):
        assert any(line.startswith("All") for line in ran.out.splitlines())


# Limits
# ------------------------------------------------------------------------------


def test_a_budget_in_dollars_needs_a_price_of_every_model(
    server: LoopbackServer, tmp_path: Path
) -> None:
    file, sets, budget = (
        priced(tmp_path, TARGET, GENERATOR),
        some_sets(tmp_path, 1),
        ("--budget-dollars", 1),
    )
    for command in (
        (
            *f"evaluate {TARGET} baseline/redirect --dataset {sets} --judge {JUDGE} --out {tmp_path / 'run'}".split(),
        ),
        ("judge-check", "--judge", JUDGE, "--out", tmp_path / "check"),
        (
            *f"build --generator {GENERATOR} --judge {JUDGE} --per-cell 1 --out {tmp_path / 'build'}".split(),
        ),
    ):
        ran = osi(*command, *budget, "--prices", file, server=server)
        assert ran.code == 2
        (line,) = ran.errors
        assert line.startswith(
            f"error: --budget-dollars: no price for {JUDGE}: {file} has none; give one with"
            " --prices FILE"
        )
    assert server.stats()["total"] == 0
    free = osi(
        *f"evaluate baseline/redirect --dataset {sets} --judge baseline/judge".split(),
        *budget,
        "--out",
        tmp_path / "f",
    )
    assert free.code == 0


def test_it_stops_as_other_budgets_do_and_goes_on(
    server: LoopbackServer, prices: Path, tmp_path: Path
) -> None:
    sets, run = some_sets(tmp_path, 3), tmp_path / "run"
    limited = ("--prices", prices, "--max-connections", 1, "--budget-dollars", 0.005)
    stopped = evaluate(server, sets, run, *limited)
    assert stopped.code == 3
    assert (
        "the budget of $0.005 is used up; run again with a larger --budget-dollars to go on"
        in stopped.err
    )
    spent = sum(line[5].expected for line in by_hand(run / "ledger.sqlite").values())
    assert 0.005 <= spent < 0.01
    assert (
        evaluate(server, sets, run, *limited).code == 3
    )  # a budget of this command's own, as of calls and tokens
    assert (
        sum(line[5].expected for line in by_hand(run / "ledger.sqlite").values()) >= spent + 0.005
    )
    assert evaluate(server, sets, run, "--prices", prices, "--budget-dollars", 5).code == 0


@pytest.mark.parametrize(
    ("option", "amount", "shown"),
    [("--budget-dollars", 0.001, "$0.001"), ("--budget-tokens", 400, "400 tokens")],
)
def test_replies_without_an_answer_are_paid_for(
    server: LoopbackServer, prices: Path, tmp_path: Path, option: str, amount: float, shown: str
) -> None:
    server.set_faults(
        Fault(
            action="completion",
            match=Match(purpose=GENERATE),
            content=None,
            finish_reason="tool_calls",
        )
    )
    limited = ("--prices", prices, "--max-connections", 1, option, amount)
    stopped = evaluate(server, some_sets(tmp_path, 3), tmp_path / "run", *limited)
    assert stopped.code == 3 and f"the budget of {shown} is used up" in stopped.err
    (line,) = by_hand(tmp_path / "run" / "ledger.sqlite").values()
    assert line[0] == 0 < line[1] == server.stats()["total"] < 10


# What to expect
# ------------------------------------------------------------------------------


def table(ran: Ran) -> dict[tuple[str, str], list[str]]:
    """Return the cells of each line of a forecast."""
    assert ran.code == 0, ran.err
    rows = [line.split() for line in ran.out.splitlines()]
    return {(row[0], row[1]): row[2:] for row in rows if row and row[0].startswith("openai-api/")}


def test_tokens_are_the_mean_of_calls_on_record_and_time_their_median(
    prices: Path, tmp_path: Path
) -> None:
    run, more = tmp_path / "run", ("--prices", prices, "--probe", "none")
    with LoopbackServer(latency=0.25) as server:
        one = some_sets(tmp_path, 4)
        before = evaluate(server, one, run, *more, "--limit", 2, "--dry-run")
        assert "on record" not in before.out
        assert evaluate(server, one, run, *more, "--limit", 2).code == 0
        after = evaluate(server, one, run, *more, "--max-connections", 2, "--dry-run")
    calls, given, got, dollars, seen = table(after)[TARGET, "generate"]
    told = lines(run)[TARGET, "generate"]
    assert (calls, seen) == ("14", "14")
    assert (given, got) == (f"{told[3]:,}", f"{told[4]:,}")
    assert float(dollars) == pytest.approx(told[5], abs=0.00006)
    told_time = re.search(
        r"Estimated time: (\d+) s, by the median time of such calls on record and 2 at once to a"
        r" provider\.",
        " ".join(after.out.split()),
    )
    # 14 + 28 + 2 calls, two at once, of a quarter of a second each, and more where the machine is
    # busy
    assert told_time is not None and 5 <= int(told_time[1]) < 30
