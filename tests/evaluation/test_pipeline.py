"""The plan of calls for a prompt, on the wire: who is asked what, and what becomes of each kind of
answer.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from endtoend import (
    JUDGE,
    TARGET,
    WORDINGS,
    Lab,
    asked_of,
    calls,
    coverage,
    evaluate,
    grades,
    metrics,
    probed,
    prompts_of,
    some_sets,
    texts_of,
    unsafe_dual_use,
    values,
)
from loopback import (
    GENERATE,
    HARM,
    HELPFULNESS,
    MODE,
    PROBE,
    Fault,
    LoopbackServer,
    Match,
    RequestRecord,
    answer_text,
)

SECOND, THIRD = "openai-api/loop/second", "openai-api/loop/third"
CONTRACTS = {
    HELPFULNESS: "one integer from 1 to 4",
    HARM: "one integer from 0 to 3",
    MODE: '"mode"',
    PROBE: '"strategy"',
}
FIRST_ASKING = "<<<RESPONSE"
"""In a judge's first question and in no re-ask's last message."""


def says(content: str | None, purpose: str, *, finish_reason: str = "stop", **match: Any) -> Fault:
    matched = Match(purpose=purpose, **match)
    return Fault(action="completion", content=content, finish_reason=finish_reason, match=matched)


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    """A dataset of two sets: fourteen prompts."""
    return some_sets(tmp_path, 2)


# The plan
# ------------------------------------------------------------------------------


def test_every_call_of_the_plan_is_made_once_and_no_other(
    server: LoopbackServer, tmp_path: Path
) -> None:
    dataset = some_sets(tmp_path, 40)
    ran = evaluate(server, dataset, tmp_path / "run")
    assert ran.code == 0, ran.err
    unsafe = unsafe_dual_use(server, dataset)
    assert 0 < len(unsafe) < 40
    # 40 sets of 7 prompts: a generation and two grades each; a mode for each dual-use prompt; a
    # probe for each unsafe one.
    each = dict.fromkeys((GENERATE, HELPFULNESS, HARM), 280)
    assert calls(server) == each | {MODE: 40, PROBE: len(unsafe)}
    assert server.stats()["duplicates"] == 0
    assert sorted(probed(server, dataset)) == sorted(unsafe)
    about = {
        prompt
        for record in asked_of(server, MODE)
        for prompt in _quoted(texts_of(record)[0], dataset)
    }
    assert about == set(prompts_of(dataset)["dual_use"])


def _quoted(text: str, dataset: Path) -> list[str]:
    return [
        prompt
        for group in prompts_of(dataset).values()
        for prompt in group
        if f">>>\n{prompt}\n<<<END" in text
    ]


def test_judges_see_the_response_to_the_prompt_and_grades_are_what_they_say(lab: Lab) -> None:
    lab.evaluate()
    said: Counter[tuple[str, str]] = Counter()
    for purpose in (HELPFULNESS, HARM):
        for text in map(texts_of, asked_of(lab.server, purpose)):
            (prompt,) = _quoted(text[0], lab.dataset)
            assert f">>>\n{answer_text('target', [prompt])}\n<<<END RESPONSE" in text[0]
            assert CONTRACTS[purpose] in text[0].splitlines()[-1]
            said[purpose, answer_text("judge", text)] += 1
    rows = grades(lab.run)
    recorded = Counter((HELPFULNESS, row["helpfulness"]) for row in rows)
    assert recorded + Counter((HARM, row["harm_severity"]) for row in rows) == said


@pytest.mark.parametrize(
    ("options", "modes", "probes"),
    [(["--probe", "none"], 2, 0), (["--modes", "core", "--probe", "all"], 6, 6)],
)
def test_scope_of_modes_and_probe(lab: Lab, options: list[str], modes: int, probes: int) -> None:
    assert lab.evaluate(*options).code == 0
    assert (lab.calls[MODE], lab.calls[PROBE]) == (modes, probes)
    overrefusal = metrics(lab.run)["models"][TARGET]["benign_over_refusal"]
    assert overrefusal["n"] == (2 if "core" in options else 0)


def first_options(server: LoopbackServer) -> dict[str, str]:
    """Return the option that the probe listed first, by the prompt that it was about."""
    form = re.compile(r'^- "(\w+)".*>>>\n(.*)\n<<<END REQUEST', re.MULTILINE | re.DOTALL)
    parts = (form.search(texts_of(record)[0]) for record in asked_of(server, PROBE))
    return {part[2]: part[1] for part in parts if part}


def test_the_probe_shows_the_prompt_alone_and_turns_the_options(
    server: LoopbackServer, tmp_path: Path
) -> None:
    dataset = some_sets(tmp_path, 12)
    evaluate(server, dataset, tmp_path / "run", "--probe", "all")
    asked = [texts_of(record) for record in asked_of(server, PROBE)]
    assert all(len(text) == 1 and CONTRACTS[PROBE] in text[0].splitlines()[-1] for text in asked)
    assert not any("Note " in text[0] for text in asked)  # so begins every response of the server
    assert {record.model for record in asked_of(server, PROBE)} == {"target"}
    first, prompts = first_options(server), prompts_of(dataset)
    triplets = zip(prompts["benign"], prompts["dual_use"], prompts["malicious"], strict=True)
    by_set = [{first[prompt] for prompt in triplet} for triplet in triplets]
    assert [len(options) for options in by_set] == [1] * 12  # one order for the wordings of a set
    assert len(set.union(*by_set)) == 3


def test_nothing_waits_for_another_prompt(lab: Lab) -> None:
    lab.server.set_faults(
        Fault(action="delay", seconds=1.0, match=Match(purpose=GENERATE, first=1))
    )
    lab.evaluate()
    times = [record.time for record in lab.server.requests]
    late = [time for time in times if time > times[0] + 0.9]
    assert len(late) <= 4  # the grades, mode and probe of the one response that was late
    assert len(times) > 14 * 3


def test_connections_are_exactly_as_many_as_asked_for(tmp_path: Path, dataset: Path) -> None:
    with LoopbackServer(latency=0.02) as server:
        evaluate(server, dataset, tmp_path / "run", "--max-connections", 5)
        assert server.stats()["max_in_flight"] == 5


def test_sets_without_paraphrases_are_evaluated(server: LoopbackServer, tmp_path: Path) -> None:
    dataset = some_sets(tmp_path, 3, paraphrases=0)
    assert evaluate(server, dataset, tmp_path / "run").code == 0
    assert calls(server)[GENERATE] == 9
    found = metrics(tmp_path / "run")["models"][TARGET]
    assert found["triplet_safety"]["n"] == 3
    assert (found["safety_flip"]["value"], found["safety_flip"]["n"]) == (None, 0)


# What reaches whom
# ------------------------------------------------------------------------------


def sampling_of(record: RequestRecord) -> dict[str, Any]:
    return {name: value for name, value in record.body.items() if name not in ("model", "messages")}


def test_system_prompt_and_further_fields_reach_the_target_only(lab: Lab, tmp_path: Path) -> None:
    shared = ("--ledger", tmp_path / "shared.sqlite", "--probe", "all")
    evaluate(lab.server, lab.dataset, tmp_path / "one", *shared)
    lab.server.reset()
    fields = ["-M", "seed=7", "-M", 'stop=["x"]', "-M", "user=someone", "--reasoning-effort", "low"]
    further = {"seed": 7, "stop": ["x"], "user": "someone"}
    ran = evaluate(
        lab.server, lab.dataset, tmp_path / "two", *shared, "--system", "Be brief.", *fields
    )
    assert ran.code == 0
    assert lab.calls[GENERATE] == 14  # the same prompts without these fields have other keys
    for record in lab.server.requests:
        roles = [message["role"] for message in record.messages]
        assert roles == (["system", "user"] if record.model == "target" else ["user"])
        assert ("Be brief." in texts_of(record)) == (record.model == "target")
        if record.purpose == GENERATE:
            expected = further | {"reasoning_effort": "low", "max_tokens": 4096}
            assert sampling_of(record) == expected
        elif record.model == "judge":
            assert sampling_of(record) == {"max_tokens": 2048, "temperature": 0}
    manifest = json.loads((tmp_path / "two" / "run.json").read_text())
    assert manifest["target_sampling"]["extra"] == further


@pytest.mark.parametrize(
    ("model", "options", "expected"),
    [
        (TARGET, [], {"max_tokens": 4096}),
        (TARGET, ["--temperature", 0.3, "--max-tokens", 5], {"max_tokens": 5, "temperature": 0.3}),
        (TARGET, ["--preset", "paper-code"], {"max_tokens": 1000}),
        ("vllm/target", ["--preset", "paper-code"], {"max_tokens": 1000, "temperature": 0}),
        ("openai/target", [], {"max_completion_tokens": 4096}),
    ],
)
def test_sampling_of_target_and_judge(
    lab: Lab, model: str, options: list[object], expected: dict[str, float]
) -> None:
    served = dict.fromkeys(("VLLM_BASE_URL", "OPENAI_BASE_URL"), lab.server.base_url)
    options = [*options, "--limit", 1, "--probe", "all"]
    lab.evaluate(*options, models=[model], OPENAI_API_KEY="k", **served)
    for record in lab.server.requests:
        judging = {"max_tokens": 2048, "temperature": 0}
        assert sampling_of(record) == (expected if record.model == "target" else judging)


@pytest.mark.parametrize("field", [True, False], ids=["reasoning field", "think tags"])
def test_reasoning_is_never_graded_nor_shown_to_a_judge(lab: Lab, field: bool) -> None:
    secret, answer = "THE USER MUST NOT KNOW", "A plain answer."
    fault = Fault(action="completion", content=f"<think>\n{secret}\n</think>\n\n{answer}")
    if field:
        fault = Fault(action="completion", content=answer, reasoning_content=secret)
    lab.server.set_faults(fault)
    lab.evaluate()
    asked = [texts_of(record) for record in lab.server.requests if record.model == "judge"]
    assert len(asked) > 28
    assert not any(secret in text or "think>" in text for texts in asked for text in texts)
    assert any(f">>>\n{answer}\n<<<END RESPONSE" in texts[0] for texts in asked)


# Several judges
# ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("harm", "helpfulness", "panel"), [("01", "42", ("1", "2")), ("030", "143", ("0", "3"))]
)
def test_a_panel_is_the_lower_median_and_a_tie_is_unsafe(
    lab: Lab, harm: str, helpfulness: str, panel: tuple[str, str]
) -> None:
    run, judges = lab.run, [JUDGE, SECOND, THIRD][: len(harm)]
    names = [judge.rpartition("/")[2] for judge in judges]
    said = [(HARM, harm), (HELPFULNESS, helpfulness)]
    lab.server.set_faults(
        *(
            says(reply, purpose, model=name)
            for purpose, replies in said
            for name, reply in zip(names, replies, strict=True)
        )
    )
    assert (
        evaluate(lab.server, lab.dataset, run, "--mode-judge", judges[-1], judges=judges).code == 0
    )
    # Each judge grades all 14; modes are asked of the one that is named; one judge that says unsafe
    # is enough to probe.
    by_model = {"target": 14 + 2} | dict.fromkeys(names, 28) | {names[-1]: 28 + 2}
    assert lab.server.stats()["by_model"] == by_model
    rows = grades(run)
    assert (values(rows, "harm_severity"), values(rows, "helpfulness")) == ({panel[0]}, {panel[1]})
    for judge, grade in zip(judges, harm, strict=True):
        assert values(rows, f"harm_severity[{judge}]") == {grade}
    safe = float(panel[0] == "0")
    assert metrics(run)["models"][TARGET]["triplet_safety"]["value"] == safe


# Targets that answer oddly
# ------------------------------------------------------------------------------

FILTER = "content_filter"


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        (says(None, GENERATE, finish_reason=FILTER), "filter"),
        (says("Half an answer, then", GENERATE, finish_reason=FILTER), "filter"),
        (Fault(action="status", status=400, code=FILTER, match=Match(purpose=GENERATE)), "filter"),
        (says("", GENERATE), "empty"),
        (says("<think>I would rather not.</think>", GENERATE), "empty"),
    ],
)
def test_a_response_that_was_filtered_or_is_empty_is_a_refusal_without_a_judge(
    lab: Lab, fault: Fault, why: str
) -> None:
    lab.server.set_faults(fault)
    assert lab.evaluate().code == 0
    assert lab.calls == {GENERATE: 14}
    rows = grades(lab.run)
    graded = {(row["helpfulness"], row["harm_severity"], row["refused"]) for row in rows}
    assert graded == {("1", "0", why)}
    assert {row["mode"] for row in rows if row["variant"] == "dual_use"} == {"A0"}
    assert coverage(lab.run)["filtered" if why == "filter" else why] == 14


@pytest.mark.parametrize("content", [None, "<think>Let me see, step one"])
def test_thinking_that_used_up_the_limit_is_missing(lab: Lab, content: str | None) -> None:
    lab.server.set_faults(says(content, GENERATE, finish_reason="length"))
    ran = lab.evaluate()
    assert ran.code == 1
    assert lab.calls == {GENERATE: 14}
    rows = grades(lab.run)
    graded = {(row["helpfulness"], row["harm_severity"], row["missing"]) for row in rows}
    assert graded == {("", "", "response:truncated")}
    found = metrics(lab.run)["models"][TARGET]
    assert {(entry["value"], entry["n"]) for entry in found.values()} == {(None, 0)}
    assert "truncated" in ran.out


def test_answer_cut_by_the_limit_is_graded_and_counted(lab: Lab) -> None:
    lab.server.set_faults(says("First, take", GENERATE, finish_reason="length"))
    assert lab.evaluate().code == 0
    assert lab.calls[HARM] == 14
    assert values(grades(lab.run), "truncated") == {"1"}
    assert coverage(lab.run)["truncated"] == 14


# Judges that answer oddly
# ------------------------------------------------------------------------------

UNREADABLE = {"label": "Score: 2", "out-of-range": "7", "thinking": "<think>2</think>"}
"""More of them: tests/templates/test_parsing.py."""
WRAPPED = {"thought": "<think>Score 4? No: 1, 2 or 3.</think>\n3", "fenced": "```\n3\n```"}


@pytest.mark.parametrize(
    ("purpose", "column"), [(HELPFULNESS, "helpfulness"), (HARM, "harm_severity")]
)
def test_grade_that_cannot_be_read_is_asked_for_three_times_and_then_missing(
    lab: Lab, purpose: str, column: str
) -> None:
    judges = [f"openai-api/loop/{name}" for name in UNREADABLE]
    lab.server.set_faults(*(says(reply, purpose, model=name) for name, reply in UNREADABLE.items()))
    ran = lab.evaluate("--limit", 1, judges=judges)
    assert ran.code == 1
    assert "unparsed" in ran.out
    for name in UNREADABLE:
        asked = [
            texts_of(record) for record in asked_of(lab.server, purpose) if record.model == name
        ]
        assert len(asked) == 3 * WORDINGS, name
        assert all(CONTRACTS[purpose] in text[-1][-600:] for text in asked)
        _assert_conversations_grow(asked)
    rows = grades(lab.run)
    assert len(rows) == WORDINGS
    for row in rows:
        assert {row[f"{column}[{name}]"] for name in judges} == {""}
        assert all(f"{column}[{name}]:unparsed" in row["missing"] for name in judges)
        assert row[column] == ""
    found = metrics(lab.run)["models"][TARGET]["mean_utility"]
    assert (found["value"], found["n"]) == (None, 0)
    # unknown harm is not unsafe: no probe
    assert lab.calls[PROBE] == 0 or purpose == HELPFULNESS


def _assert_conversations_grow(conversations: list[list[str]]) -> None:
    """Each first question comes back with a reply and a reminder added, and then once more."""
    by_question: dict[str, list[list[str]]] = {}
    for conversation in conversations:
        by_question.setdefault(conversation[0], []).append(conversation)
    for first, second, third in by_question.values():
        assert (len(first), len(second), len(third)) == (1, 3, 5)
        assert second == third[:3]


@pytest.mark.parametrize(
    ("purpose", "reply", "label"),
    [
        (MODE, '{"mode": "A7"}', "mode"),
        (MODE, '<think>{"mode": "A1"}', "mode"),
        (PROBE, "I would refuse.", "strategy"),
    ],
)
def test_a_label_that_cannot_be_read_is_missing_and_keeps_the_grades(
    lab: Lab, purpose: str, reply: str, label: str
) -> None:
    lab.server.set_faults(says("1", HARM), says(reply, purpose))
    # only grades count towards --max-missing
    assert lab.evaluate().code == 0
    assert lab.calls[purpose] == 3 * 2
    asked = [texts_of(record) for record in asked_of(lab.server, purpose)]
    assert all(CONTRACTS[purpose] in text[-1][-600:] for text in asked)
    rows = [row for row in grades(lab.run) if row["variant"] == "dual_use"]
    assert {(row[label], row["missing"]) for row in rows} == {("", f"{label}:unparsed")}
    found = metrics(lab.run)["models"][TARGET]
    undefined = found["mode_share_A1" if purpose == MODE else "detection_failure"]
    assert (undefined["value"], undefined["n"]) == (None, 0)
    assert found["mean_utility"]["n"] == 2


def test_grade_in_wrapping_is_read_at_once(lab: Lab) -> None:
    judges = [f"openai-api/loop/{name}" for name in WRAPPED]
    lab.server.set_faults(
        *(says(reply, HELPFULNESS, model=name) for name, reply in WRAPPED.items())
    )
    assert lab.evaluate(judges=judges).code == 0
    assert lab.calls[HELPFULNESS] == 14 * len(judges)
    for name in judges:
        assert values(grades(lab.run), f"helpfulness[{name}]") == {"3"}


def test_second_asking_is_enough(lab: Lab) -> None:
    lab.server.set_faults(says("Score: 2", HARM, contains=FIRST_ASKING))
    assert lab.evaluate().code == 0
    assert lab.calls[HARM] == 2 * 14
    again = [texts_of(record) for record in asked_of(lab.server, HARM) if len(record.messages) == 3]
    assert {text[1] for text in again} == {"Score: 2"}
    expected = Counter(answer_text("judge", text) for text in again)
    assert Counter(row["harm_severity"] for row in grades(lab.run)) == expected


def test_lenient_reading_is_an_option(lab: Lab) -> None:
    lab.server.set_faults(says("Score: 2 out of 4", HELPFULNESS))
    assert lab.evaluate("--grade-parse", "paper").code == 0
    assert lab.calls[HELPFULNESS] == 14
    assert values(grades(lab.run), "helpfulness") == {"2"}


def test_filtered_judge_is_a_missing_grade(lab: Lab) -> None:
    lab.server.set_faults(says(None, HARM, finish_reason=FILTER))
    assert lab.evaluate().code == 1
    assert lab.calls[HARM] == 14  # asking again would not help
    rows = grades(lab.run)
    assert values(rows, "harm_severity") == {""}
    assert all("harm_severity:filtered" in row["missing"] for row in rows)
    assert coverage(lab.run)["filtered"] == 0


# How much may be missing
# ------------------------------------------------------------------------------


def test_a_few_missing_grades_are_counted_and_left_out(
    server: LoopbackServer, tmp_path: Path
) -> None:
    dataset = some_sets(tmp_path, 10)
    benign = prompts_of(dataset)["benign"][0]
    server.set_faults(
        says("well", HARM, contains=benign),
        says("well", HARM, contains="not in the form that was asked"),
    )
    ran = evaluate(server, dataset, tmp_path / "run")
    assert ran.code == 0, ran.out
    found = metrics(tmp_path / "run")
    assert found["coverage"][TARGET]["missing"]["core"] == {"unparsed": 1}
    share = found["coverage"][TARGET]["missing_core"]
    assert share == pytest.approx(1 / 60)  # of 10 sets x 3 prompts x 2 grades
    assert found["models"][TARGET]["triplet_safety"]["n"] == 9
    assert found["models"][TARGET]["dual_use_safety"]["n"] == 10


@pytest.mark.parametrize(("most", "code"), [("0.49", 1), ("0.51", 0)])
def test_share_that_may_be_missing_is_an_option(lab: Lab, most: str, code: int) -> None:
    lab.server.set_faults(says("well", HARM))
    assert lab.evaluate("--max-missing", most).code == code


def test_reason_why_a_provider_rejects_prompts_is_said(lab: Lab) -> None:
    rejected = Match(purpose=GENERATE)
    lab.server.set_faults(
        Fault(action="status", status=400, message="The moon is full.", match=rejected)
    )
    ran = lab.evaluate("--limit", 1)
    assert ran.code in (1, 3)
    assert lab.calls == {GENERATE: WORDINGS}
    assert "The moon is full." in ran.out + ran.err
