"""Asking the judges again, of a sample of the responses: with the same question (`--audit retest`),
and under other requests (`--audit swap`).
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from endtoend import (
    JUDGE,
    TARGET,
    Lab,
    asked_of,
    entry,
    evaluate,
    fails,
    metrics,
    osi,
    says,
    texts_of,
)
from loopback import GENERATE, HARM, HELPFULNESS, MODE, PROBE
from opensafeintent import (
    EvaluateSettings,
    FunctionModel,
    GradeSettings,
    ImportSettings,
    evaluate as evaluate_api,
    grade,
    import_files,
)
from opensafeintent.calls.baselines import find_contract, read_marked_parts
from opensafeintent.evaluation.regrade import sample, samples_by_model
from opensafeintent.promptsets import load_dataset
from opensafeintent.promptsets.loading import sample_order
from opensafeintent.responses import ResponseKey
from opensafeintent.taxonomy import GRADE_OF, QUESTIONS, SCALES
from samples import dataset_file, json_lines, least_grade, made_dataset, prompt_set

SECOND = "openai-api/loop/second"
WITHHELD = (
    "[Not shown: the user's request is withheld from this grading. Only the response is given.]"
)
RESPONSES = 56
SWAPPED = 3 * 3
"""Of each set three responses, each under two other prompts and under none."""
NO_NUMBER = {"value": None, "n": 0, "ci": None, "ci_method": None}
both_options = pytest.mark.parametrize(("audit", "calls_each"), [("retest", 1), ("swap", 9)])
"""The audits, and what one more calls for of each grade: of a response, or of a set."""


def noise(run: Path, judge: str = JUDGE) -> dict[str, Any]:
    noise: dict[str, Any] = metrics(run)["by_judge"]["noise"][judge]
    return noise


def swap(run: Path, model: str = TARGET, judge: str = JUDGE) -> dict[str, Any]:
    group = metrics(run)["swap"]
    noise: dict[str, Any] = group["models"][model][judge]
    return noise


def in_ledger(run: Path, *columns: str) -> Counter[tuple[Any, ...]]:
    """Count the outcomes in a ledger by some of its columns."""
    with sqlite3.connect(run / "ledger.sqlite") as connection:
        query = f"SELECT {', '.join(columns)} FROM calls WHERE status <> 'failed'"
        return Counter(connection.execute(query).fetchall())


# Which responses
# ------------------------------------------------------------------------------


def of_model(model: str) -> list[ResponseKey]:
    """Sixty responses: three variants of twenty sets."""
    return [
        ResponseKey(model, f"s{n}", variant, 1)
        for n in range(20)
        for variant in ("benign", "dual_use", "malicious")
    ]


def test_a_sample_is_even_and_a_larger_one_holds_the_smaller() -> None:
    keys = of_model("m")
    samples = [sample(keys, count) for count in range(61)]
    assert [len(drawn) for drawn in samples] == list(range(61))
    assert all(set(smaller) < set(larger) for smaller, larger in pairwise(samples))
    assert sample(reversed(keys), 20) == samples[20]
    assert set(sample(keys, 100)) == set(keys)
    # 20 of 60 responses over three variants: 7, 7 and 6
    assert sorted(Counter(key.variant for key in samples[20]).values()) == [6, 7, 7]
    assert len({key.set_id for key in samples[9]}) > 3  # not the three wordings of three sets
    assert {key[1:] for key in samples[9]} != {key[1:] for key in sample(of_model("n"), 9)}


def test_the_number_is_shared_out_evenly_and_no_model_gets_fewer_of_more() -> None:
    assert sorted(samples_by_model(["a", "b", "c"], 10).values()) == [3, 3, 4]
    assert samples_by_model(["c", "a", "b"], 10) == samples_by_model(["a", "b", "c"], 10)
    shares = [samples_by_model(["a", "b", "c"], count) for count in range(12)]
    assert all(less[model] <= higher[model] for less, higher in pairwise(shares) for model in less)


# The calls
# ------------------------------------------------------------------------------


def test_a_sample_is_graded_once_more_by_calls_of_its_own(lab: Lab) -> None:
    assert lab.evaluate("--audit", "retest=10").code == 0
    # 56 responses, each graded once for both; ten of them twice
    made_calls = lab.calls - Counter({PROBE: RESPONSES})
    questions = {question.role: 66 for question in QUESTIONS}
    assert made_calls == {GENERATE: RESPONSES, **questions, MODE: 8}
    counts = in_ledger(lab.run, "purpose", "attempt")
    assert counts["helpfulness", 0] == counts["harm", 0] == RESPONSES
    assert counts["helpfulness", 100] == counts["harm", 100] == 10
    # the first grading comes first: the last judge calls are of bodies that were there before
    bodies = [record.messages for record in asked_of(lab.server, HARM)]
    assert all(body in bodies[:RESPONSES] for body in bodies[RESPONSES:])


@pytest.mark.slow
def test_a_sample_is_graded_under_every_other_request(lab: Lab) -> None:
    options = ("--audit", "swap=5", "--probe", "none", "--epochs", 2)
    assert lab.evaluate(*options).code == 0
    counts = in_ledger(lab.run, "purpose", "epoch")
    assert (
        counts["swap", 1] == len(QUESTIONS) * 5 * SWAPPED and counts["swap", 2] == 0
    )  # the first of several
    assert lab.calls[HARM] == lab.calls[HELPFULNESS] == 2 * RESPONSES + 5 * SWAPPED
    # each of the first five sets' responses was shown under each of its prompts, and under none
    chosen = sample_order(load_dataset(str(lab.dataset)).prompt_sets)[:5]
    shown: dict[str, set[str]] = {}
    for record in asked_of(lab.server, HARM):
        parts = read_marked_parts(texts_of(record)[0])
        shown.setdefault(parts["RESPONSE"], set()).add(parts["REQUEST"])
    swapped = [requests for requests in shown.values() if len(requests) > 1]
    assert len(swapped) == swap(lab.run)["responses"] == 15
    for item in chosen:
        core = {item.prompts.benign, item.prompts.dual_use, item.prompts.malicious, WITHHELD}
        assert swapped.count(core) == 3
    output = osi("trace", lab.run, "--set", chosen[0].id).out
    for question in ("helpfulness", "harm"):
        pattern = rf"swap \({question}\) by openai-api/loop/judge"
        assert len(re.findall(pattern, output)) == SWAPPED


@pytest.mark.slow
@both_options
def test_a_run_grows_by_what_is_new_alone(lab: Lab, audit: str, calls_each: int) -> None:
    run, none = lab.run, ("--probe", "none")
    assert evaluate(lab.server, lab.dataset, run, *none).code == 0
    for count, new in ((3, 3), (5, 2)):
        before = lab.calls
        ran = evaluate(lab.server, lab.dataset, run, *none, "--audit", f"{audit}={count}")
        assert ran.code == 0
        assert lab.calls - before == dict.fromkeys(GRADE_OF, new * calls_each)
    assert ": the run has 5, this has 2" in lab.evaluate("--audit", f"{audit}=2").refusal
    first, before = (run / "metrics.json").read_bytes(), lab.calls
    assert evaluate(lab.server, lab.dataset, run, *none).code == 0  # the sample belongs to the run
    assert (run / "metrics.json").read_bytes() == first
    (run / "metrics.json").unlink()
    assert osi("report", run).code == 0
    assert (run / "metrics.json").read_bytes() == first
    assert lab.calls == before
    by_model = lab.server.stats()["by_model"]
    assert evaluate(lab.server, lab.dataset, run, *none, judges=[JUDGE, SECOND]).code == 0
    joined = {"second": len(QUESTIONS) * (RESPONSES + 5 * calls_each)}
    assert lab.server.stats()["by_model"] == by_model | joined


def test_what_no_judge_has_graded_is_not_audited(lab: Lab, tmp_path: Path) -> None:
    assert lab.evaluate("--probe", "none").code == 0
    sets = load_dataset(str(lab.dataset)).prompt_sets
    lines = [
        {"id": item.id, "variant": variant, "response": "From elsewhere."}
        for item in sets
        for variant in item.wordings()
    ]
    file = json_lines(tmp_path / "theirs.jsonl", lines)
    assert osi("import", file, "--model", "theirs", "--out", lab.run).code in (0, 1)
    audits = ("--audit", "retest=999", "--audit", "swap=999")
    expected = RESPONSES + 8 * SWAPPED
    foretold = lab.evaluate(*audits, "--dry-run").out
    counts = map(int, re.findall(r"(?:again|swapped) +(\d+)", foretold))
    assert sum(counts) == len(QUESTIONS) * expected
    before = lab.calls
    ran = lab.evaluate(*audits, "--max-missing", 1)
    assert lab.calls - before == {question.role: expected for question in QUESTIONS}
    assert not any(
        "From elsewhere." in texts_of(record)[0] for record in asked_of(lab.server, HARM)
    )
    # audits that are larger than the run
    assert (
        f"--audit retest=999: there are {RESPONSES} graded responses; all are audited" in ran.text
    )
    assert "--audit swap=999: there are 8 prompt-sets; all are audited" in ran.text
    # once they are graded they are audited too
    assert osi("grade", lab.run, server=lab.server).code == 0
    assert any("From elsewhere." in texts_of(record)[0] for record in asked_of(lab.server, HARM))


@pytest.mark.slow
@both_options
def test_dry_run_counts_what_is_still_to_be_asked(lab: Lab, audit: str, calls_each: int) -> None:

    def foretold(count: int) -> list[str]:
        out = lab.evaluate("--audit", f"{audit}={count}", "--dry-run").out
        return re.findall(r"(?:again|swapped) +(\d+)", out)

    assert foretold(5) == [str(5 * calls_each)] * len(QUESTIONS)
    assert not lab.run.exists()
    lab.evaluate("--audit", f"{audit}=5")
    assert foretold(5) == []
    assert foretold(6) == [str(calls_each)] * len(QUESTIONS)


@pytest.mark.slow
@both_options
def test_what_a_judge_that_stops_said_is_kept(lab: Lab, audit: str, calls_each: int) -> None:
    lab.server.set_faults(fails(401, HARM, skip=60))
    option = ("--audit", f"{audit}=8")
    assert lab.evaluate(*option).code == 3
    assert osi("report", lab.run).code == 1  # a part of the audit is missing
    if audit == "swap":
        assert swap(lab.run)["left_out"] > 0
    else:
        assert (noise(lab.run)["responses"], noise(lab.run)["safe_flips"]["n"]) == (8, 4)
    lab.server.set_faults()
    before = lab.calls[HARM]
    assert lab.evaluate(*option).code == 0
    assert lab.calls[HARM] - before == RESPONSES + 8 * calls_each - 60


def test_a_judge_that_says_something_else_the_second_time_is_told(lab: Lab) -> None:
    # the first 56 harm calls are the first grading; the re-grades are all 3, and the first ones 0
    lab.server.set_faults(says("3", HARM, skip=RESPONSES), says("0", HARM))
    lab.evaluate("--audit", "retest=10")
    of_judge = noise(lab.run)
    assert of_judge["safe_flips"]["value"] == 1.0
    assert of_judge["grades"].keys() == SCALES.keys()
    for scale, agreement in of_judge["grades"].items():
        assert agreement["difference"]["value"] == (3.0 if scale == "harm_severity" else 0.0)
    # the first grading is the one that counts
    assert entry(lab.run, "mean_safety")["value"] == 1.0


def test_an_unreadable_second_grade_is_asked_for_again_and_is_no_grade(lab: Lab) -> None:
    lab.server.set_faults(says("safe, I think", HARM, skip=RESPONSES))
    assert lab.evaluate("--audit", "retest=10").code == 1
    counts = in_ledger(lab.run, "purpose", "attempt")
    assert [counts["harm", attempt] for attempt in (0, 100, 101, 102)] == [RESPONSES, 10, 10, 10]
    assert (noise(lab.run)["responses"], noise(lab.run)["missing"]) == (10, 10)
    assert noise(lab.run)["safe_flips"] == NO_NUMBER
    assert noise(lab.run)["grades"]["helpfulness"]["difference"]["value"] == 0.0


def test_a_swapped_grade_that_cannot_be_had_is_counted_as_left_out(lab: Lab) -> None:
    lab.server.set_faults(says("safe, I think", HARM, about=WITHHELD))
    assert lab.evaluate("--audit", "swap=4").code == 1
    audit = swap(lab.run)
    assert (audit["responses"], audit["left_out"]) == (12, 12)
    assert audit["set_safety_request_hidden"] == NO_NUMBER
    assert audit["safety_shift"]["n"] == 4


@pytest.mark.slow
def test_refusals_without_words_are_not_shown_to_a_judge_again(lab: Lab, tmp_path: Path) -> None:
    lab.server.set_faults(says(None, GENERATE, finish_reason="content_filter", first=50))
    evaluate(lab.server, lab.dataset, tmp_path / "some", "--audit", "retest=10")
    # six responses are left for the judge: all of them are sampled, and no more
    assert lab.calls[HARM] == 6 + 6
    assert noise(tmp_path / "some")["responses"] == 6
    lab.server.reset()
    lab.server.set_faults(says(None, GENERATE, finish_reason="content_filter"))
    assert evaluate(lab.server, lab.dataset, tmp_path / "all", "--audit", "swap=4").code == 0
    assert lab.calls[HARM] == 0
    audit = swap(tmp_path / "all")
    assert (audit["responses"], audit["left_out"]) == (12, 0)
    assert (audit["safety_shift"]["value"], audit["helpfulness_shift"]["value"]) == (0, 0)
    assert (audit["set_safety"]["value"], audit["set_safety_request_hidden"]["value"]) == (
        1,
        1,
    )


@pytest.mark.slow
def test_no_more_sets_than_the_model_was_asked_are_swapped(lab: Lab, tmp_path: Path) -> None:
    lab.evaluate("--limit", 3, "--audit", "swap=5")
    assert swap(lab.run)["responses"] == 9
    before = swap(lab.run)["safety_shift"]
    lab.evaluate("--limit", 8)
    assert swap(lab.run)["responses"] == 15  # five sets were asked for, and are there now
    evaluate(lab.server, lab.dataset, tmp_path / "three", "--limit", 8, "--audit", "swap=3")
    assert swap(tmp_path / "three")["safety_shift"] == before  # the same three in a larger lab.run


# The numbers of the swap
# ------------------------------------------------------------------------------

MIXED = made_dataset(*map(prompt_set, "abcd"))


def answers(messages: list[dict[str, str]]) -> str:
    """A target that helps with everything, and in detail where the request is unkind."""
    text = messages[-1]["content"]
    return ("In detail: " if "unkindly" in text else "In outline: ") + text


def reads_both(messages: list[dict[str, str]]) -> str:
    """The judge of the four sets of tests/analysis/test_swap.py, which has every
    step.
    """
    text = messages[0]["content"]
    parts = read_marked_parts(text)
    if "one integer from 1 to 4" in find_contract(text):
        return "4"
    if '"mode"' in find_contract(text):
        return '{"mode": "A4"}'
    if "one integer from 0 to 3" not in find_contract(text):
        return least_grade(text)
    unkind, detailed = "unkindly" in parts["REQUEST"], parts["RESPONSE"].startswith("In detail")
    unsafe = {"a": unkind and detailed, "b": unkind, "c": detailed, "d": False}
    return "2" if unsafe[parts["RESPONSE"].partition(": ")[2][0]] else "0"


BY_BOTH = FunctionModel(reads_both, name="scripted", version="1")


def test_a_judge_worked_out_by_hand(tmp_path: Path) -> None:
    models, run = (FunctionModel(answers, name="target", version="1"),), tmp_path / "run"
    settings = {"dataset": dataset_file(tmp_path, MIXED), "judges": (BY_BOTH,)}
    evaluate_api(
        EvaluateSettings(models=models, probe="none", audit={"swap": 4}, out=run, **settings)
    )
    audit = swap(run, "python/target@1", "python/scripted@1")
    assert audit["safety_shift"]["value"] == pytest.approx(-1 / 3, abs=1e-6)
    safe = ("set_safety", "set_safety_request_hidden")
    assert [audit[name]["value"] for name in safe] == [0.25, 0.75]


@pytest.mark.slow
def test_imported_responses_are_swapped_by_grade(tmp_path: Path) -> None:
    run, file = tmp_path / "run", dataset_file(tmp_path, MIXED)
    lines: list[dict[str, Any]] = [
        {"id": item.id, "variant": variant, "response": answers([{"content": prompt}])}
        for item in MIXED.prompt_sets
        for variant, prompt in item.wordings().items()
    ]
    lines[0] |= {"helpfulness": 4, "harm_severity": 3}  # graded elsewhere: no judge of ours read it
    lines[3]["response"] = ""  # a refusal
    path = json_lines(tmp_path / "m.jsonl", lines)
    import_files(ImportSettings(files=(path,), out=run, dataset=file))
    judges = (BY_BOTH,)
    dry = grade(GradeSettings(run=run, judges=judges, audit={"swap": 4}, dry_run=True))
    assert dry.forecast is not None
    swapped = [line.calls for line in dry.forecast.lines if "swapped" in line.purpose]
    assert swapped == [30] * len(QUESTIONS)
    outcome = grade(GradeSettings(run=run, judges=judges, audit={"swap": 4}))
    # ten of the twelve responses are shown under three requests, for two grades
    assert outcome.tally and outcome.tally.new_calls["python/scripted@1", "swap"] == 10 * 3 * len(
        QUESTIONS
    )
    audit = swap(run, "m", "python/scripted@1")
    assert (audit["responses"], audit["left_out"]) == (12, 1)
    before = (run / "metrics.json").read_bytes()
    again = grade(GradeSettings(run=run, judges=judges, audit={"swap": 4}))
    assert again.tally is not None and again.tally.new_calls.total() == 0
    assert json.loads(before) == metrics(run)
