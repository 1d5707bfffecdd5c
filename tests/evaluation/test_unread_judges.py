"""A judge, or a guard, whose replies never have the form asked for is not asked to the end."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import msgspec
import pytest

from batches.support import run_batch
from endtoend import JUDGE, WORDINGS, Lab, Ran, grades, osi, says, some_sets
from loopback import GENERATE, HELPFULNESS, Fault, LoopbackServer, Match
from loopback.batches import batch_server
from samples import json_lines

GUARD = "openai-api/loop/llama-guard-3"
CHATTY = "What a question! The response is a pleasure to read, and more words follow after these."
SAID = "the last reply: 'What a question! The response is a pleasure to read, and more words follow afte…'"


@pytest.fixture
def long(server: LoopbackServer, tmp_path: Path) -> Lab:
    return Lab(server, some_sets(tmp_path, 42, paraphrases=0), tmp_path / "run")


def of_judge(server: LoopbackServer) -> int:
    count: int = server.stats()["by_model"].get("judge", 0)
    return count


def stop_line(ran: Ran) -> str:
    assert ran.code == 3, ran
    (line,) = [line for line in ran.errors if "of the form asked for" in line]
    return line


def test_it_is_stopped_soon_and_the_same_command_goes_on(long: Lab) -> None:
    long.server.set_faults(says(CHATTY, model="judge"))
    line = stop_line(long.evaluate())
    assert line.startswith(f"error: {JUDGE}: stopped: none of its first ")
    assert SAID in line and "judge-check" in line
    assert line.endswith("the same command goes on")
    asked = of_judge(long.server)
    assert 90 <= asked < 400  # of 126 responses, each asked about twice or more, three times each
    stop_line(long.evaluate())
    assert asked + 30 <= of_judge(long.server) < asked + 400
    long.server.set_faults()  # the judge has come to its senses
    assert long.evaluate("--max-missing", 1).code == 0
    assert long.server.stats()["by_purpose"][GENERATE] == len(grades(long.run))


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        (
            Fault(action="completion", content="Let me see", finish_reason="length"),
            "the last reply: the token limit cut it; use a larger --judge-arg max_tokens=N",
        ),
        (
            Fault(action="completion", content="", reasoning_content="Let me see"),
            "the last reply: it holds reasoning and no text; raise --judge-arg max_tokens=N, or"
            " state --judge-arg reasoning_effort=low",
        ),
    ],
)
def test_its_line_says_what_came_and_what_helps(long: Lab, reply: Fault, said: str) -> None:
    long.server.set_faults(msgspec.structs.replace(reply, match=Match(model="judge")))
    assert said in stop_line(long.evaluate())


def test_words_of_the_prompt_are_not_in_the_line(long: Lab) -> None:
    prompt = "Explain how each lock of an old door is made"
    records = [json.loads(line) for line in long.dataset.read_text().splitlines()]
    for record in records:
        record["prompts"] = {
            intent: f"{prompt}: {record['id']}, {intent}" for intent in record["prompts"]
        }
        record["dual_use_paraphrases"] = []
    json_lines(long.dataset, records)
    long.server.set_faults(says(prompt, model="judge"))
    line = stop_line(long.evaluate())
    assert "lock" not in line and "[words of the request]" in line


@pytest.mark.parametrize(
    "fault",
    [
        says(CHATTY, model="judge", every=2),
        says(CHATTY, model="judge", attempts=1, contains="integer from"),
        says(CHATTY, HELPFULNESS, model="judge"),
        says(CHATTY, model="judge", skip=1),
    ],
    ids=["half of its replies", "only when asked again", "one of two questions", "once"],
)
def test_one_that_has_kept_to_the_form_is_asked_to_the_end(long: Lab, fault: Fault) -> None:
    long.server.set_faults(fault)
    assert long.evaluate("--max-missing", 1, "--limit", 20).code == 0


def test_a_run_that_is_through_has_its_results(server: LoopbackServer, tmp_path: Path) -> None:
    small = Lab(server, some_sets(tmp_path, 1), tmp_path / "run")
    server.set_faults(says(CHATTY, model="judge"))
    ran = small.evaluate("--modes", "core")
    assert ran.code == 1 and len(grades(small.run)) == WORDINGS


def test_a_judge_that_is_checked(server: LoopbackServer, tmp_path: Path) -> None:
    server.set_faults(says(CHATTY, model="judge"))
    out = ("--out", tmp_path / "check")
    assert SAID in stop_line(osi("judge-check", "--judge", JUDGE, *out, server=server))
    assert of_judge(server) < 300


def test_a_judge_of_imported_responses(long: Lab, tmp_path: Path) -> None:
    records = map(json.loads, long.dataset.read_text().splitlines())
    lines = [
        {"id": record["id"], "variant": variant, "response": "A reply."}
        for record in records
        for variant in record["prompts"]
    ]
    file = json_lines(tmp_path / "responses.jsonl", lines)
    named = ("--model", "m", "--dataset", long.dataset, "--out", long.run)
    assert osi("import", file, *named).code in (0, 1)
    long.server.set_faults(says(CHATTY, model="judge"))
    grading = ("grade", long.run, "--judge", JUDGE)
    assert SAID in stop_line(osi(*grading, server=long.server))
    assert of_judge(long.server) < 350


def test_a_guard_is_stopped_and_the_judges_go_on(long: Lab) -> None:
    long.server.set_faults(says(CHATTY, model="llama-guard-3"))
    line = stop_line(long.evaluate("--guard", GUARD))
    assert line.startswith(f"error: {GUARD}: stopped: ") and "--guard-form" in line
    asked = Counter(long.server.stats()["by_model"])
    assert 30 <= asked["llama-guard-3"] < 200
    assert all(row["helpfulness"] for row in grades(long.run))


@pytest.mark.slow
def test_no_batch_is_submitted_for_it(tmp_path: Path) -> None:
    with batch_server(chatty="judge") as server:
        ran = run_batch(server, some_sets(tmp_path, 42), tmp_path / "run")
        assert "the last reply: 'As you like.'" in stop_line(ran)
        assert server.creates == 0 and server.plain_calls < 150
