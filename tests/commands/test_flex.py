"""`--tier flex`: where it is refused, and a run at two tiers with its costs."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from endtoend import Ran, osi, results, some_sets
from loopback import GENERATE, HELPFULNESS, Fault, LoopbackServer, Match
from opensafeintent.calls.providers import ENDPOINTS
from samples import json_file

TARGET, JUDGE = "openai/target", "openai/judge"
FLEX = ("--tier", "flex")


@pytest.fixture
def server() -> Iterator[LoopbackServer]:
    with LoopbackServer() as serving:
        yield serving


def run(server: LoopbackServer | None, *arguments: object) -> Ran:
    """Run a command with the server as OpenAI."""
    url = server.base_url if server else "http://localhost:1/v1"
    variables = {"OPENAI_BASE_URL": url, "OPENAI_API_KEY": "sk-flex-0123456789"}
    return osi(*arguments, **variables, ANTHROPIC_API_KEY="sk-ant-012345678")


def evaluate(server: LoopbackServer | None, dataset: Path, out: Path, *options: object) -> Ran:
    judging = ("--judge", JUDGE, "--dataset", dataset, "--out", out)
    return run(server, "evaluate", TARGET, *judging, *options)


@pytest.mark.slow
def test_a_run_at_two_tiers_is_one_run_and_each_tier_has_its_price(
    server: LoopbackServer, tmp_path: Path
) -> None:
    sets, prices = (
        some_sets(tmp_path, 2),
        json_file(
            tmp_path / "prices.json",
            {name: {"input": 2.0, "output": 8.0} for name in (TARGET, JUDGE)},
        ),
    )
    two, one = tmp_path / "two", tmp_path / "one"
    options = ("--prices", prices)
    assert evaluate(server, sets, two, "--limit", 1, *options).code == 0
    before = server.stats()["total"]
    assert not any("service_tier" in record.body for record in server.requests)
    ran = evaluate(server, sets, two, "--limit", 2, *options, *FLEX)
    assert ran.code == 0, ran.err
    added = server.requests[before:]
    assert {record.body["service_tier"] for record in added} == {"flex"}
    # the numbers are those of a run at one tier, which makes as many calls
    assert evaluate(server, sets, one, *options).code == 0
    price = rb'"dollars": "[\d.]+"'  # of a further judge, at the prices of either run
    assert [re.sub(price, b"", part) for part in results(two)] == [
        re.sub(price, b"", part) for part in results(one)
    ]
    assert server.stats()["total"] == 2 * (before + len(added))

    (cost,) = json.loads((two / "cost.json").read_text())["runs"]
    by_tier = dict.fromkeys(("standard", "flex"), 0.0)
    for line in cost["lines"]:
        full = (line["input_tokens"] * 2.0 + line["output_tokens"] * 8.0) / 1e6
        expected = full / 2 if line["service_tier"] == "flex" else full
        assert line["dollars"] == pytest.approx(expected)
        by_tier[line["service_tier"]] += line["calls"]
    assert by_tier == {"standard": before, "flex": len(added)}
    assert "service_tier" not in cost["total"]
    (alone,) = json.loads((one / "cost.json").read_text())["runs"]
    told = (
        f"Service tier: the flex tier answered {len(added)} of {before + len(added)} calls.",
        f"At the standard tier the sum is {alone['total']['dollars']:.2f} dollars.",
        "No list has the flex price of openai/judge: it is 0.5 × the standard price",
    )
    assert [line for line in told if line not in ran.text] == []
    assert "Tier" in ran.out


@pytest.mark.slow
def test_capacity_that_is_lacking_ends_at_the_standard_tier(tmp_path: Path) -> None:
    lacking = Fault(
        action="status",
        status=429,
        code="resource_unavailable",
        match=Match(has="service_tier", purpose=HELPFULNESS),
    )
    with LoopbackServer(faults=[lacking]) as server:
        fallback = ("--wait-for", "0.06s")
        ran = evaluate(server, some_sets(tmp_path, 1), tmp_path / "run", *FLEX, *fallback)
        assert ran.code == 0, ran.err
        tiers = {record.body.get("service_tier") for record in server.requests}
        assert tiers == {"flex", None}
    assert "sent at the standard tier, because the flex tier had no capacity" in ran.text
    assert "(--wait-for)" in ran.text


def test_one_model_of_a_mixed_panel_is_asked_at_the_tier(
    server: LoopbackServer, tmp_path: Path
) -> None:
    sets = some_sets(tmp_path, 1)
    options = ("--judge", "baseline/judge", "--tier", f"{TARGET}:flex")
    assert evaluate(server, sets, tmp_path / "run", *options).code == 0
    asked = {record.model: record.body.get("service_tier") for record in server.requests}
    assert asked == {"target": "flex", "judge": None}
    # a baseline has no tier, and costs nothing
    free = ("evaluate", TARGET, "--judge", "baseline/judge", "--dataset", sets)
    ran = run(server, *free, "--out", tmp_path / "free", *FLEX)
    assert ran.code == 0, ran.err
    assert {record.purpose for record in server.requests} >= {GENERATE}


CLAUDE = "anthropic/claude-x"


@pytest.mark.parametrize(
    "command",
    [
        f"evaluate {CLAUDE} --judge {JUDGE}",
        f"evaluate {TARGET} --judge {CLAUDE} --dry-run",
        f"judge-check --judge {CLAUDE}",
        f"judge-check --judge {CLAUDE} --dry-run",
        f"build --generator {TARGET} --judge {CLAUDE} --per-cell 1",
        "evaluate openai-api/lab/m --judge baseline/judge",
    ],
)
def test_a_provider_without_the_tier_is_refused_in_one_line(command: str, tmp_path: Path) -> None:
    model = CLAUDE if CLAUDE in command else "openai-api/lab/m"
    refusal = run(None, *command.split(), "--out", tmp_path / "out", *FLEX).refusal
    assert f"--tier flex: the provider of {model} has no flex tier; " in refusal
    assert "expected models of openai, google, groq, or --tier MODEL:flex" in refusal


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ("--tier fast", "--tier fast: expected flex or batch, or MODEL:flex or MODEL:batch"),
        ("--tier openai/targt:flex", "no call goes to 'openai/targt'; did you mean"),
        ("--wait-for 5m", "--wait-for: is for --tier, which is not given"),
        ("--tier flex --wait-for 5", "--wait-for 5: expected a number and its unit, such as 30m"),
        (
            "--tier flex --wait-for 30m",
            "--wait-for 30m: with flex, expected less than the minutes of --retry-for 30, after",
        ),
        ("--tier flex --tier batch", "--tier flex batch: has two tiers for the same models"),
        ("--tier openai/targt:batch", "no call goes to 'openai/targt'; did you mean"),
    ],
)
def test_settings_that_cannot_be_meant(options: str, complaint: str, tmp_path: Path) -> None:
    sets = some_sets(tmp_path, 1)
    ran = evaluate(None, sets, tmp_path / "run", *options.split(), "--dry-run")
    assert complaint in ran.refusal


def test_every_command_that_makes_calls_asks_at_the_tier(
    server: LoopbackServer, tmp_path: Path
) -> None:
    sets = some_sets(tmp_path, 1)
    record = json.loads(sets.read_text())
    rows = [{"id": record["id"], "variant": "benign", "response": "A long and harmless note."}]
    responses = tmp_path / "responses.jsonl"
    responses.write_text("".join(json.dumps(row) + "\n" for row in rows))
    imported = ("import", responses, "--model", "mine", "--dataset", sets, "--out", tmp_path / "i")
    assert run(server, *imported).code == 0
    for command in (
        ("grade", tmp_path / "i", "--judge", JUDGE),
        ("judge-check", "--judge", JUDGE, "--out", tmp_path / "j"),
        (
            *("build", "--generator", "openai/generator", "--judge", "openai/construction-judge"),
            *("--per-cell", 1, "--out", tmp_path / "b"),
        ),
    ):
        server.reset()
        ran = run(server, *command, *FLEX, "--budget-calls", 4)
        assert ran.code in (0, 3), ran.err
        assert {record.body["service_tier"] for record in server.requests} == {"flex"}


# What to expect


def ways(ran: Ran) -> dict[tuple[str, str], list[str]]:
    """Return the further cells of the table of ways, by model and way."""
    rows = [line.split() for line in ran.out.splitlines() if "/" in line]
    return {(row[0], row[1]): row[2:] for row in rows if row[1] in ("standard", "flex", "batch")}


def test_a_dry_run_says_the_price_of_each_way_and_how_long_it_takes(tmp_path: Path) -> None:
    cheap = {"input": 1.0, "output": 4.0, "cache_read": 0.1}
    prices = json_file(tmp_path / "prices.json", {TARGET: cheap, JUDGE: cheap, CLAUDE: cheap})
    sets = some_sets(tmp_path, 20)
    options = ("--judge", CLAUDE, "--prices", prices, "--dry-run")
    ran = evaluate(None, sets, tmp_path / "run", *options)
    assert ran.code == 0, ran.err
    shown = ways(ran)
    assert set(shown) == {
        *((model, way) for model in (TARGET, JUDGE) for way in ("standard", "flex", "batch")),
        *((CLAUDE, way) for way in ("standard", "batch")),
    }
    for (model, way), (percent, _, dollars, cached, *takes) in shown.items():
        full = float(shown[model, "standard"][2])
        share = 1.0 if way == "standard" else 0.5
        assert int(percent) == 100 * share
        assert float(dollars) == pytest.approx(full * share, abs=0.006)
        # a response has no long beginning that others share
        assert (cached == "–") == (model == TARGET)
        expected = {"standard": "as usual", "flex": "up to 15 minutes a call"}
        assert " ".join(takes) == expected.get(way, "up to 24 hours")
    # the first table has the standard price
    assert sum(float(shown[model, "standard"][2]) for model in (TARGET, JUDGE, CLAUDE)) == (
        pytest.approx(float(re.findall(r"^All .* ([\d.]+)$", ran.out, re.M)[0]), abs=0.02)
    )
    assert "as the provider documents it (2026-11): " in ran.text


def test_models_that_all_have_the_flex_tier_need_one_option(tmp_path: Path) -> None:
    cheap = {"input": 1.0, "output": 4.0}
    prices = json_file(tmp_path / "prices.json", {TARGET: cheap, JUDGE: cheap})
    ran = evaluate(None, some_sets(tmp_path, 2), tmp_path / "run", "--prices", prices, "--dry-run")
    assert "flex: --tier flex; not every model" in " ".join(ran.out.split())


def totals(ran: Ran) -> dict[str, list[str]]:
    """Return the sums of the table of ways, by way: share, dollars, with cached input."""
    found = re.findall(r"^All +(\D+?) +(\d+) % +([\d.]+) +([\d.–]+) ", ran.out, re.M)
    return {way: numbers for way, *numbers in found}


def test_a_dry_run_has_the_sum_of_each_way_and_marks_the_chosen_one(tmp_path: Path) -> None:
    cheap = {"input": 1.0, "output": 4.0, "cache_read": 0.1}
    prices = json_file(tmp_path / "prices.json", {TARGET: cheap, JUDGE: cheap, CLAUDE: cheap})
    options = ("--judge", CLAUDE, "--prices", prices, "--dry-run")
    sets = some_sets(tmp_path, 20)
    usual = evaluate(None, sets, tmp_path / "run", *options)
    assert "chosen" not in usual.out
    shown, sums = ways(usual), totals(usual)
    # Anthropic has no flex tier: its part has the standard price there
    assert list(sums) == ["standard", "flex, else standard", "batch"]
    of_way = {
        "standard": ("standard", "standard", "standard"),
        "flex, else standard": ("flex", "flex", "standard"),
        "batch": ("batch", "batch", "batch"),
    }
    for way, tiers in of_way.items():
        parts = [
            shown[model, tier] for model, tier in zip((TARGET, JUDGE, CLAUDE), tiers, strict=True)
        ]
        dollars = sum(float(part[2]) for part in parts)
        cached = sum(float(part[2] if part[3] == "–" else part[3]) for part in parts)
        assert float(sums[way][1]) == pytest.approx(dollars, abs=0.02)
        assert float(sums[way][2]) == pytest.approx(cached, abs=0.02)
        assert int(sums[way][0]) == pytest.approx(100 * dollars / float(sums["standard"][1]), abs=3)

    # "–" under cached input counts at the price without it, and a note says so
    assert "cached input, –: sums count such calls at the price without cache" in " ".join(
        usual.out.split()
    )
    named = f"--tier {TARGET}:flex --tier {JUDGE}:flex"
    assert f"flex: {named}; not every model" in " ".join(usual.out.split())
    taken = evaluate(None, sets, tmp_path / "run", *options, *named.split())
    assert totals(taken)["flex, else standard (chosen)"] == sums["flex, else standard"]
    refused = evaluate(None, sets, tmp_path / "run", *options, "--tier", "flex")
    assert refused.code == 2

    batch = evaluate(None, sets, tmp_path / "run", *options, "--tier", "batch")
    assert re.search(rf"^{CLAUDE} +batch \(chosen\)", batch.out, re.M)
    assert totals(batch)["batch (chosen)"] == sums["batch"]
    # the first table has the price of the command
    first, second = re.findall(r"^All .* ([\d.]+)$", batch.out, re.M)[:1], sums["batch"][1]
    assert first == [second] and "as chosen" in batch.out

    one = evaluate(None, sets, tmp_path / "run", *options, "--tier", f"{TARGET}:flex")
    assert re.search(rf"^{TARGET} +flex \(chosen\)", one.out, re.M)
    assert re.search(rf"^{JUDGE} +standard \(chosen\)", one.out, re.M)
    assert [way for way in totals(one) if "chosen" in way] == ["as chosen"]
    saved = float(shown[TARGET, "standard"][2]) - float(shown[TARGET, "flex"][2])
    dollars = float(totals(one)["as chosen"][1])
    assert dollars == pytest.approx(float(sums["standard"][1]) - saved, abs=0.02)


def test_a_dry_run_without_prices_says_how_to_get_dollars(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sets = some_sets(tmp_path, 1)
    listed = evaluate(None, sets, tmp_path / "run", "--dry-run")  # the list has no such models
    monkeypatch.setitem(sys.modules, "genai_prices", None)
    bare = evaluate(None, sets, tmp_path / "run", "--dry-run")
    for ran, advice in (
        (listed, "genai-prices has none; give --prices FILE."),
        (bare, "No prices: give --prices FILE, or pip install "),
    ):
        assert ran.code == 0 and advice in ran.text and "Dollars" not in ran.out
        assert ways(ran)[JUDGE, "flex"] == ["50", "%", "up", "to", "15", "minutes", "a", "call"]


def test_the_providers_with_a_price_of_batches_are_those_with_batches() -> None:
    from opensafeintent.batch.endpoints import DIALECTS

    assert {name for name, row in ENDPOINTS.items() if row.batch} == DIALECTS.keys()


def test_batches_have_a_price_and_an_option_only_if_the_command_would_take_them(
    tmp_path: Path,
) -> None:
    prices = {"input": 1.0, "output": 4.0}
    mistral, none = "mistral/a", "deepseek/b"
    file = json_file(tmp_path / "p.json", dict.fromkeys((TARGET, JUDGE, mistral, none), prices))
    sets = some_sets(tmp_path, 4)

    def dry(*options: object) -> Ran:
        return evaluate(None, sets, tmp_path / "run", "--prices", file, "--dry-run", *options)

    for options in (
        ("--judge", mistral),
        ("--judge", none),  # it has no batches
        ("--judge", mistral, "--mode-judge", none),
        ("--judge", mistral, "--guard", "ollama/guard"),  # it is asked by plain calls
        ("--judge", mistral, "--stop-when", "mean_safety >= 0.5"),
        ("--judge", mistral, "--ray", "local"),
    ):
        advised = "batch: --tier batch" in dry(*options).out
        assert advised == (dry(*options, "--tier", "batch").code == 0), options
        assert ("batch" in {tier for _, tier in ways(dry(*options))}) == advised, options
    assert "batch: --tier batch" in dry("--judge", mistral).out
