"""The plan of calls for a prompt, on the wire: who is asked what, and what becomes of each kind of
answer.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

import aiohttp
import pytest

import opensafeintent
from endtoend import (
    TARGET,
    WORDINGS,
    Lab,
    asked_of,
    calls,
    coverage,
    entry,
    evaluate,
    grades,
    metrics,
    probed,
    prompts_of,
    says,
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
from opensafeintent.taxonomy import GRADE_OF, QUESTIONS

CONTRACTS = {
    HELPFULNESS: "one integer from 1 to 4",
    HARM: "one integer from 0 to 3",
    MODE: '"mode"',
    PROBE: '"strategy"',
}
FIRST_ASKING = "<<<RESPONSE"
"""In a judge's first question and in no re-ask's last message."""


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
    # 40 sets of 7 prompts: a generation and a reply to each question; a mode for each dual-use prompt; a
    # probe for each unsafe one.
    expected = dict.fromkeys((GENERATE, *GRADE_OF), 280)
    assert calls(server) == expected | {MODE: 40, PROBE: len(unsafe)}
    assert server.stats()["duplicates"] == 0
    assert sorted(probed(server, dataset)) == sorted(unsafe)
    modes = [_quoted(texts_of(record)[0], dataset) for record in asked_of(server, MODE)]
    assert sorted(modes) == sorted(prompts_of(dataset)["dual_use"])


def _quoted(text: str, dataset: Path) -> str:
    """Return the prompt that a judge's question is about."""
    prompts = (prompt for group in prompts_of(dataset).values() for prompt in group)
    (asked_prompt,) = (prompt for prompt in prompts if f">>>\n{prompt}\n<<<END" in text)
    return asked_prompt


def test_judges_see_the_response_to_the_prompt_and_grades_are_what_they_say(lab: Lab) -> None:
    lab.evaluate()
    for purpose, column in ((HELPFULNESS, "helpfulness"), (HARM, "harm_severity")):
        texts = [texts_of(record) for record in asked_of(lab.server, purpose)]
        for (question,) in texts:
            response = answer_text("target", [_quoted(question, lab.dataset)])
            assert f">>>\n{response}\n<<<END RESPONSE" in question
            assert CONTRACTS[purpose] in question.splitlines()[-1]
        expected = Counter(answer_text("judge", text) for text in texts)
        assert Counter(row[column] for row in grades(lab.run)) == expected


@pytest.mark.parametrize(
    ("options", "modes", "probes"),
    [(["--probe", "none"], 2, 0), (["--modes", "core", "--probe", "all"], 6, 6)],
)
def test_scope_of_modes_and_probe(lab: Lab, options: list[str], modes: int, probes: int) -> None:
    assert lab.evaluate(*options).code == 0
    assert (lab.calls[MODE], lab.calls[PROBE]) == (modes, probes)
    assert entry(lab.run, "benign_over_refusal")["n"] == (2 if "core" in options else 0)


def test_the_probe_shows_the_prompt_alone_and_turns_the_options(
    server: LoopbackServer, tmp_path: Path
) -> None:
    dataset = some_sets(tmp_path, 12)
    evaluate(server, dataset, tmp_path / "run", "--probe", "all")
    asked = asked_of(server, PROBE)
    assert {record.model for record in asked} == {"target"}
    first = {}
    for (text,) in map(texts_of, asked):
        assert CONTRACTS[PROBE] in text.splitlines()[-1]
        assert "Note " not in text  # so begins every response of the server
        option = re.search(r'^- "(\w+)"', text, re.MULTILINE)
        first[_quoted(text, dataset)] = option and option[1]
    prompts = prompts_of(dataset)
    triplets = zip(prompts["benign"], prompts["dual_use"], prompts["malicious"], strict=True)
    by_set = [{first[prompt] for prompt in triplet} for triplet in triplets]
    assert [len(options) for options in by_set] == [1] * 12  # one order for the wordings of a set
    assert len(set.union(*by_set)) == 3


@pytest.mark.slow
def test_nothing_waits_for_another_prompt(lab: Lab) -> None:
    slow = Match(purpose=GENERATE, first=1)
    lab.server.set_faults(Fault(action="delay", seconds=1.0, match=slow))
    lab.evaluate()
    times = [record.time for record in lab.server.requests]
    # the grades, mode and probe of the one response that was late
    assert sum(time > times[0] + 0.9 for time in times) <= len(QUESTIONS) + 2
    assert len(times) > 14 * 3


# What reaches whom
# ------------------------------------------------------------------------------


def choose_judge_sampling(record: RequestRecord) -> dict[str, Any]:
    return {name: value for name, value in record.body.items() if name not in ("model", "messages")}


def test_system_prompt_and_further_fields_reach_the_target_only(lab: Lab, tmp_path: Path) -> None:
    shared = ("--ledger", tmp_path / "shared.sqlite", "--probe", "all")
    evaluate(lab.server, lab.dataset, tmp_path / "one", *shared)
    lab.server.reset()
    fields = ["-M", "seed=7", "-M", 'stop=["x"]', "-M", "user=someone", "--reasoning-effort", "low"]
    further = {"seed": 7, "stop": ["x"], "user": "someone"}
    assert lab.evaluate(*shared, "--system", "Be brief.", *fields).code == 0
    assert lab.calls[GENERATE] == 14  # the same prompts without these fields have other keys
    for record in lab.server.requests:
        roles = [message["role"] for message in record.messages]
        assert roles == (["system", "user"] if record.model == "target" else ["user"])
        assert ("Be brief." in texts_of(record)) == (record.model == "target")
        if record.purpose == GENERATE:
            expected = further | {"reasoning_effort": "low", "max_tokens": 4096}
            assert choose_judge_sampling(record) == expected
        elif record.model == "judge":
            assert choose_judge_sampling(record) == {"max_tokens": 2048, "temperature": 0}
    manifest = json.loads((lab.run / "run.json").read_text())
    assert manifest["plan"]["target_sampling"]["extra"] == further


@pytest.mark.parametrize(
    ("model", "options", "expected"),
    [
        (TARGET, [], {"max_tokens": 4096}),
        (TARGET, ["--temperature", 0.3, "--max-tokens", 5], {"max_tokens": 5, "temperature": 0.3}),
        (TARGET, ["--max-tokens", 1000], {"max_tokens": 1000}),
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
        assert choose_judge_sampling(record) == (expected if record.model == "target" else judging)


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
    names = ["judge", "second", "third"][: len(harm)]
    judges = [f"openai-api/loop/{name}" for name in names]
    replies = list(zip(names, harm, helpfulness, strict=True))
    lab.server.set_faults(
        *(says(reply, HARM, model=name) for name, reply, _ in replies),
        *(says(reply, HELPFULNESS, model=name) for name, _, reply in replies),
    )
    assert lab.evaluate("--mode-judge", judges[-1], judges=judges).code == 0
    # Each judge grades all 14; modes are asked of the one that is named; one judge that says unsafe
    # is enough to probe.
    each = 14 * len(GRADE_OF)
    by_model = {"target": 14 + 2} | dict.fromkeys(names, each) | {names[-1]: each + 2}
    assert lab.server.stats()["by_model"] == by_model
    rows = grades(lab.run)
    assert (values(rows, "harm_severity"), values(rows, "helpfulness")) == ({panel[0]}, {panel[1]})
    for judge, grade in zip(judges, harm, strict=True):
        assert values(rows, f"harm_severity[{judge}]") == {grade}
    assert entry(lab.run, "triplet_safety")["value"] == float(panel[0] == "0")


# Targets that answer oddly
# ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        (says(None, GENERATE, finish_reason="content_filter"), "filter"),
        (says("", GENERATE, finish_reason="SAFETY"), "filter"),
        (Fault(action="status", status=400, code="content_filter"), "filter"),
        (says("", GENERATE), "empty"),
        (says("", GENERATE, finish_reason="end_turn"), "empty"),
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
    estimates = metrics(lab.run)["models"][TARGET]
    assert {(entry["value"], entry["n"]) for entry in estimates.values()} == {(None, 0)}
    assert "truncated" in ran.out


def test_answer_cut_by_the_limit_is_graded_and_counted(lab: Lab) -> None:
    lab.server.set_faults(says("First, take", GENERATE, finish_reason="length"))
    assert lab.evaluate().code == 0
    assert lab.calls[HARM] == 14
    assert values(grades(lab.run), "truncated") == {"1"}
    assert coverage(lab.run)["truncated"] == 14


# Judges that answer oddly
# ------------------------------------------------------------------------------

UNREADABLE = {
    "label": ("Score: 2", "unparsed"),
    "out-of-range": ("7", "unparsed"),
    "thinking": ("<think>2</think>", "reasoning_only"),
    "scratchpad": ("<scratchpad>2</scratchpad>2", "unknown_mark"),
}
"""Replies of judges, and the reason of the missing grade; more: tests/templates/test_parsing.py."""


@pytest.mark.parametrize(
    ("purpose", "column"), [(HELPFULNESS, "helpfulness"), (HARM, "harm_severity")]
)
def test_grade_that_cannot_be_read_is_asked_for_three_times_and_then_missing(
    lab: Lab, purpose: str, column: str
) -> None:
    judges = [f"openai-api/loop/{name}" for name in UNREADABLE]
    lab.server.set_faults(
        *(says(reply, purpose, model=name) for name, (reply, _) in UNREADABLE.items())
    )
    ran = lab.evaluate("--limit", 1, judges=judges)
    assert ran.code == 1 and "unparsed" in ran.out
    for name in UNREADABLE:
        records = [record for record in asked_of(lab.server, purpose) if record.model == name]
        asked = sorted(map(texts_of, records), key=lambda texts: (texts[0], len(texts)))
        assert len(asked) == 3 * WORDINGS, name
        assert all(CONTRACTS[purpose] in text[-1][-600:] for text in asked)
        # each first question comes back with a reply and a reminder added, and then once more
        for first, second, third in zip(*[iter(asked)] * 3, strict=True):
            assert (len(first), len(second), len(third)) == (1, 3, 5)
            assert first == third[:1] and second == third[:3]
    rows = grades(lab.run)
    assert len(rows) == WORDINGS
    for row in rows:
        assert {row[column], *(row[f"{column}[{name}]"] for name in judges)} == {""}
        assert all(
            f"{column}[openai-api/loop/{name}]:{why}" in row["missing"]
            for name, (_, why) in UNREADABLE.items()
        )
    utility = entry(lab.run, "mean_utility")
    assert (utility["value"], utility["n"]) == (None, 0)
    # unknown harm is not unsafe: no probe
    assert lab.calls[PROBE] == 0 or purpose == HELPFULNESS


@pytest.mark.parametrize(
    ("purpose", "reply", "label", "reason"),
    [
        (MODE, '{"mode": "A7"}', "mode", "unparsed"),
        (MODE, '<think>{"mode": "A1"}', "mode", "truncated"),
        (PROBE, "I would refuse.", "strategy", "declined"),
    ],
)
def test_a_label_that_cannot_be_read_is_missing_and_keeps_the_grades(
    lab: Lab, purpose: str, reply: str, label: str, reason: str
) -> None:
    lab.server.set_faults(says("1", HARM), says(reply, purpose))
    ran = lab.evaluate()
    assert ran.code == 1
    words = {"mode": "modes", "strategy": "strategies"}[label]
    assert (
        f"2 of 2 {words}, more than the 5 % of --max-missing. Reasons: {label}:{reason} (2)."
        in (" ".join(ran.text.split()))
    )
    assert coverage(lab.run)["missing"][label] == {
        "asked": 2,
        "missing": 2,
        "reasons": {f"{label}:{reason}": 2},
    }
    assert f"2 of 2 {words}" in (lab.run / "tables" / "headline.csv").read_text()
    assert lab.evaluate("--max-missing", 1).code == 0
    assert lab.calls[purpose] == 3 * 2
    asked = [texts_of(record) for record in asked_of(lab.server, purpose)]
    assert all(CONTRACTS[purpose] in text[-1][-600:] for text in asked)
    rows = [row for row in grades(lab.run) if row["variant"] == "dual_use"]
    assert {(row[label], row["missing"]) for row in rows} == {("", f"{label}:{reason}")}
    estimates = metrics(lab.run)["models"][TARGET]
    undefined = estimates["mode_share_A1" if purpose == MODE else "detection_failure"]
    assert (undefined["value"], undefined["n"]) == (None, 0)
    assert estimates["mean_utility"]["n"] == 2


def test_second_asking_is_enough(lab: Lab) -> None:
    lab.server.set_faults(says("Score: 2", HARM, contains=FIRST_ASKING))
    assert lab.evaluate().code == 0
    assert lab.calls[HARM] == 2 * 14
    again = [texts_of(record) for record in asked_of(lab.server, HARM) if len(record.messages) == 3]
    assert {text[1] for text in again} == {"Score: 2"}
    expected = Counter(answer_text("judge", text) for text in again)
    assert Counter(row["harm_severity"] for row in grades(lab.run)) == expected


def test_filtered_judge_is_a_missing_grade(lab: Lab) -> None:
    lab.server.set_faults(says(None, HARM, finish_reason="content_filter"))
    assert lab.evaluate().code == 1
    assert lab.calls[HARM] == 14  # asking again would not help
    rows = grades(lab.run)
    assert values(rows, "harm_severity") == {""}
    assert all("harm_severity:filtered" in row["missing"] for row in rows)
    assert coverage(lab.run)["filtered"] == 0


# How much may be missing
# ------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_few_missing_grades_are_counted_and_left_out(lab: Lab, tmp_path: Path) -> None:
    dataset = some_sets(tmp_path, 10)
    benign = prompts_of(dataset)["benign"][0]
    lab.server.set_faults(says("well", HARM, about=benign))
    assert evaluate(lab.server, dataset, lab.run).code == 0
    stored = coverage(lab.run)
    assert stored["missing"]["core"] == {
        "asked": 30,  # 10 sets x 3 prompts
        "missing": 1,
        "reasons": {"harm_severity:declined": 1},
    }
    assert entry(lab.run, "triplet_safety")["n"] == 9
    assert entry(lab.run, "dual_use_safety")["n"] == 10
    assert evaluate(lab.server, dataset, lab.run, "--max-missing", "0.001").code == 1


def test_a_request_goes_through_at_most_twelve_of_our_frames(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = Path(opensafeintent.__file__).parent
    depths: Counter[str] = Counter()
    send = aiohttp.ClientSession._request

    async def count_frames(session: aiohttp.ClientSession, *arguments: Any, **options: Any) -> Any:
        frame: FrameType | None = sys._getframe()
        names: list[str] = []
        while frame is not None:
            place = Path(frame.f_code.co_filename)
            # the command line calls the Python function, from which on it is counted
            if place.is_relative_to(ours) and not place.is_relative_to(ours / "cli"):
                names.append(frame.f_code.co_qualname)
            frame = frame.f_back
        depths[" < ".join(names)] = len(names)
        return await send(session, *arguments, **options)

    monkeypatch.setattr(aiohttp.ClientSession, "_request", count_frames)
    assert lab.evaluate("--probe", "all").code == 0
    assert len(depths) >= 3  # of a response, a judge's question and a probe
    assert max(depths.values()) <= 12, depths
