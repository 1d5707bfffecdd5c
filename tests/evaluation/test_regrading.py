"""Grading a sample once more: which responses, how many calls, and that running again makes
none.
"""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

from endtoend import JUDGE, TARGET, asked_of, calls, evaluate, metrics, osi
from loopback import GENERATE, HARM, HELPFULNESS, MODE, PROBE, Fault, LoopbackServer, Match
from opensafeintent.evaluation.records import ResponseKey
from opensafeintent.evaluation.run import sample, samples_by_model

pytestmark = pytest.mark.usefixtures("undrawn")

SECOND = "openai-api/loop/second"
OTHER = "openai-api/loop/other"


def of_model(model: str) -> list[ResponseKey]:
    """Sixty responses: three variants of twenty sets."""
    return [
        ResponseKey(model, f"s{n}", variant, 1)
        for n in range(20)
        for variant in ("benign", "dual_use", "malicious")
    ]


KEYS = of_model("m")


# Which responses
# ------------------------------------------------------------------------------


def test_a_sample_has_as_many_of_each_variant_as_it_goes() -> None:
    # 20 of 60 responses over three variants: 7, 7 and 6
    counts = Counter(key.variant for key in sample(KEYS, 20))
    assert sorted(counts.values()) == [6, 7, 7]


def test_a_larger_sample_holds_the_smaller_one_whatever_the_order_of_the_responses() -> None:
    samples = [sample(KEYS, count) for count in range(61)]
    assert [len(drawn) for drawn in samples] == list(range(61))
    assert all(set(smaller) < set(larger) for smaller, larger in pairwise(samples))
    assert sample(reversed(KEYS), 20) == samples[20]


def test_models_are_sampled_apart_and_the_sets_at_random() -> None:
    first, second = sample(KEYS, 9), sample(of_model("n"), 9)
    assert {key[1:] for key in first} != {key[1:] for key in second}
    assert len({key.set_id for key in first}) > 3  # not the three wordings of three sets


def test_more_than_there_is_is_all_there_is() -> None:
    assert set(sample(KEYS, 100)) == set(KEYS)


def test_the_number_is_shared_out_evenly_and_no_model_gets_fewer_of_more() -> None:
    assert sorted(samples_by_model(["a", "b", "c"], 10).values()) == [3, 3, 4]
    assert samples_by_model(["c", "a", "b"], 10) == samples_by_model(["a", "b", "c"], 10)
    shares = [samples_by_model(["a", "b", "c"], count) for count in range(12)]
    assert all(less[model] <= more[model] for less, more in pairwise(shares) for model in less)


# The calls
# ------------------------------------------------------------------------------


def attempts(run: Path) -> Counter[tuple[str, int]]:
    with sqlite3.connect(run / "ledger.sqlite") as connection:
        return Counter(
            connection.execute(
                "SELECT purpose, attempt FROM calls WHERE status <> 'failed'"
            ).fetchall()
        )


def test_a_sample_is_graded_once_more_by_calls_of_its_own(
    server: LoopbackServer, dataset: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    assert evaluate(server, dataset, run, "--judge-samples", 10).code == 0
    made = calls(server)
    # 56 responses, each graded once for both; ten of them twice
    assert made - Counter({PROBE: 56}) == {GENERATE: 56, HELPFULNESS: 66, HARM: 66, MODE: 8}
    found = attempts(run)
    assert found["helpfulness", 0] == found["harm", 0] == 56
    assert found["helpfulness", 100] == found["harm", 100] == 10
    # the first grading comes first: the last twenty judge calls are the re-grades, of bodies that
    # were there before
    bodies = [record.messages for record in asked_of(server, HARM)]
    assert all(body in bodies[:56] for body in bodies[56:])


@pytest.mark.slow
def test_running_again_and_reporting_make_no_call_and_give_the_same(
    server: LoopbackServer, dataset: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    evaluate(server, dataset, run, "--judge-samples", 10)
    before, first = calls(server), (run / "metrics.json").read_bytes()
    assert json.loads(first)["judges"][0]["noise"][JUDGE]["responses"] == 10
    assert evaluate(server, dataset, run, "--judge-samples", 10).code == 0
    assert (run / "metrics.json").read_bytes() == first
    assert evaluate(server, dataset, run).code == 0  # the sample belongs to the run
    assert (run / "metrics.json").read_bytes() == first
    (run / "metrics.json").unlink()
    assert osi("report", run).code == 0
    assert (run / "metrics.json").read_bytes() == first
    assert calls(server) == before


def test_a_larger_number_asks_for_the_difference_only(
    server: LoopbackServer, dataset: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    evaluate(server, dataset, run, "--judge-samples", 10)
    before = calls(server)
    assert evaluate(server, dataset, run, "--judge-samples", 25).code == 0
    assert calls(server) - before == {HELPFULNESS: 15, HARM: 15}
    before = calls(server)
    assert evaluate(server, dataset, run, "--judge-samples", 5).code == 0
    assert calls(server) == before
    assert metrics(run)["judges"][0]["noise"][JUDGE]["responses"] == 25


def test_every_judge_of_the_panel_and_every_model_takes_part(
    server: LoopbackServer, dataset: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    evaluate(
        server, dataset, run, "--judge-samples", 9, models=[TARGET, OTHER], judges=[JUDGE, SECOND]
    )
    # 2 models × 56 responses once, nine of the 112 twice, by each of two judges
    assert calls(server)[HARM] == 2 * (112 + 9)
    noise = metrics(run)["judges"][0]["noise"]
    assert {judge: noise[judge]["responses"] for judge in (JUDGE, SECOND)} == {JUDGE: 9, SECOND: 9}
    manifest = json.loads((run / "run.json").read_text())
    assert sorted(entry["judge_samples"] for entry in manifest["models"].values()) == [4, 5]


def test_an_added_judge_grades_the_sample_twice_as_well(
    server: LoopbackServer, dataset: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    evaluate(server, dataset, run, "--judge-samples", 10, "--probe", "none")
    before = server.stats()["by_model"]
    assert evaluate(server, dataset, run, "--probe", "none", judges=[JUDGE, SECOND]).code == 0
    assert server.stats()["by_model"] == before | {"second": 2 * (56 + 10)}


def test_a_judge_that_says_something_else_the_second_time_is_told(
    server: LoopbackServer, dataset: Path, tmp_path: Path
) -> None:
    # the first 56 harm calls are the first grading; the re-grades are all answered 3, and the first
    # ones all 0
    server.set_faults(
        Fault(action="completion", content="3", match=Match(purpose=HARM, skip=56)),
        Fault(action="completion", content="0", match=Match(purpose=HARM)),
    )
    run = tmp_path / "run"
    evaluate(server, dataset, run, "--judge-samples", 10)
    noise = metrics(run)["judges"][0]["noise"][JUDGE]
    assert noise["safe_flips"]["value"] == 1.0
    assert noise["harm_severity_difference"]["value"] == 3.0
    assert noise["helpfulness_difference"]["value"] == 0.0
    # the first grading is the one that counts
    assert metrics(run)["models"][TARGET]["mean_safety"]["value"] == 1.0


def test_an_unreadable_second_grade_is_asked_for_again_and_is_no_grade(
    server: LoopbackServer, dataset: Path, tmp_path: Path
) -> None:
    server.set_faults(
        Fault(action="completion", content="safe, I think", match=Match(purpose=HARM, skip=56))
    )
    run = tmp_path / "run"
    assert evaluate(server, dataset, run, "--judge-samples", 10).code == 0
    found = attempts(run)
    assert [found["harm", attempt] for attempt in (0, 100, 101, 102)] == [56, 10, 10, 10]
    noise = metrics(run)["judges"][0]["noise"][JUDGE]
    assert (noise["responses"], noise["missing"]) == (10, 10)
    assert noise["safe_flips"] == {"value": None, "n": 0, "ci": None, "ci_method": None}
    assert noise["helpfulness_difference"]["value"] == 0.0


def test_refusals_that_no_judge_saw_are_not_sampled(
    server: LoopbackServer, dataset: Path, tmp_path: Path
) -> None:
    server.set_faults(
        Fault(
            action="completion",
            content=None,
            finish_reason="content_filter",
            match=Match(purpose=GENERATE, first=50),
        )
    )
    run = tmp_path / "run"
    evaluate(server, dataset, run, "--judge-samples", 10)
    # six responses are left for the judge: all of them are sampled, and no more
    assert calls(server)[HARM] == 6 + 6
    assert metrics(run)["judges"][0]["noise"][JUDGE]["responses"] == 6


def test_dry_run_counts_what_is_still_to_be_asked(
    server: LoopbackServer, dataset: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    told = evaluate(server, dataset, run, "--judge-samples", 10, "--dry-run").out
    assert [line.split()[-3] for line in told.splitlines() if "again" in line] == ["10", "10"]
    assert not run.exists()
    evaluate(server, dataset, run, "--judge-samples", 10)
    assert "again" not in evaluate(server, dataset, run, "--judge-samples", 10, "--dry-run").out
    more = evaluate(server, dataset, run, "--judge-samples", 12, "--dry-run").out
    assert [line.split()[3] for line in more.splitlines() if "again" in line] == ["2", "2"]


def test_a_judge_that_stops_ends_the_run_and_what_it_said_is_kept(
    server: LoopbackServer, dataset: Path, tmp_path: Path
) -> None:
    server.set_faults(Fault(action="status", status=401, match=Match(purpose=HARM, skip=60)))
    run = tmp_path / "run"
    assert evaluate(server, dataset, run, "--judge-samples", 20).code == 3
    assert osi("report", run).code == 0
    noise = metrics(run)["judges"][0]["noise"][JUDGE]
    assert noise["responses"] == 20
    assert noise["safe_flips"]["n"] == 4
    server.set_faults()
    assert evaluate(server, dataset, run, "--judge-samples", 20).code == 0
    assert metrics(run)["judges"][0]["noise"][JUDGE]["safe_flips"]["n"] == 20


@pytest.mark.parametrize("count", [0, -3])
def test_a_number_below_one_is_refused(
    server: LoopbackServer, dataset: Path, tmp_path: Path, count: int
) -> None:
    ran = evaluate(server, dataset, tmp_path / "run", "--judge-samples", count)
    assert (ran.code, ran.errors) == (2, [f"error: --judge-samples {count}: expected at least 1"])
