"""`trace` over many prompt-sets: the worst, by domain and model, where judges differ; each judge's
grades and replies.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

from endtoend import evaluate as evaluate_at, grades, osi
from loopback import GENERATE, HARM, Fault, LoopbackServer, Match
from opensafeintent import (
    CompareSettings,
    EvaluateSettings,
    FunctionModel,
    TraceSettings,
    compare,
    evaluate,
    trace,
    traces,
)
from opensafeintent.calls.ledger import Ledger
from opensafeintent.cli.output import show_traces
from opensafeintent.commands.trace import TracedResponse
from opensafeintent.taxonomy import GRADE_OF
from samples import dataset_file, import_lines, least_grade, made_dataset, prompt_set

FRAUD = "Fraud and Deception"
CYBER = "Cyber Compromise"
SETS = made_dataset(
    *(prompt_set(name) for name in ("sa", "sb", "sc")), prompt_set("sd", domain=FRAUD)
)
GRADES = {
    # helpfulness and harm of the benign, dual-use and malicious response by judge a, then by judge
    # b; the panel of the two has harm 2 on the dual-use prompt of sc, as of sb, with less help on
    # the benign one
    "sa": ("40 40 10", "40 40 10"),
    "sb": ("30 42 10", "30 42 10"),
    "sc": ("20 40 10", "20 42 10"),
    "sd": ("40 40 13", "40 40 13"),
}
WAYS = ("kindly", "in between", "unkindly")
LONG = "The response says how it is done. 3, but not in the form that was asked for."


def judge(name: str, place: int) -> FunctionModel:
    """A judge that grades as written down, and says more than a grade where it is asked for harm in
    "sd" the first time.
    """

    def ask(messages: list[dict[str, str]]) -> str:
        asked, last = messages[0]["content"], messages[-1]["content"]
        set_id = next(name for name in GRADES if f"{name}, " in asked)
        variant = next(at for at, way in enumerate(WAYS) if f"{set_id}, {way}" in asked)
        if '"mode"' in last:
            return '{"mode": "A4"}'
        helpfulness, harm = GRADES[set_id][place].split()[variant]
        if "1 to 4" in last:
            return helpfulness
        if "0 to 3" not in last:
            return least_grade(last)
        return LONG if len(messages) == 1 and harm == "3" else harm

    return FunctionModel(ask, name=name, version="1")


def target(name: str) -> FunctionModel:
    def ask(messages: list[dict[str, str]]) -> str:
        return f"{name} on {messages[-1]['content']}"

    return FunctionModel(ask, name=name, version="1")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("graded")
    asked: dict[str, Any] = {"models": [target("m"), target("n")]}
    asked |= {"judges": [judge("a", 0), judge("b", 1)], "probe": "none"}
    settings = EvaluateSettings(**asked, dataset=dataset_file(folder, SETS), out=folder / "run")
    assert evaluate(settings).exit_code == 0
    return folder / "run"


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ({"domain": FRAUD}, "sd"),
        ({"differs": "judges"}, "sc"),
        ({"differs": "judges", "domain": FRAUD}, ""),
        ({"model": "python/m@1"}, "sa sb sc sd"),
        ({"set_id": "sb", "model": "python/m@1"}, "sb"),
        ({"set_id": "sb", "differs": "judges"}, ""),
        ({"set_id": ("sd", "sa")}, "sa sd"),
        ({"differs": "safety"}, ""),  # the two models answer alike,
    ],
)
def test_which_prompt_sets_are_traced(run: Path, choice: dict[str, Any], expected: str) -> None:
    traced = traces(TraceSettings(run=run, **choice))
    assert [item.prompt_set.id for item in traced] == expected.split()


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        # harm 3 by both models, then harm 2 by the panel, by model and then by set
        ({"worst": 6}, "m:sd n:sd m:sb m:sc n:sb n:sc"),
        ({"worst": 3}, "m:sd n:sd m:sb"),
        ({"worst": 2, "model": "python/n@1"}, "n:sd n:sb"),
        ({"worst": 3, "domain": CYBER}, "m:sb m:sc n:sb"),
        ({"worst": 9, "differs": "judges"}, "m:sc n:sc"),
    ],
)
def test_the_worst_responses_come_first_and_alone(
    run: Path, choice: dict[str, Any], expected: str
) -> None:
    traced = [
        (item.prompt_set.id, response.grades)
        for item in traces(TraceSettings(run=run, **choice))
        for response in item.responses
    ]
    assert [f"{grades.model[7]}:{name}" for name, grades in traced] == expected.split()
    harm = [grades.harm_severity or 0 for _, grades in traced]
    assert harm == sorted(harm, reverse=True) and min(harm) == 2


@pytest.mark.parametrize("terminal", [True, False])
def test_a_terminal_gets_a_screenful_of_the_worst(
    run: Path, terminal: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: terminal)
    monkeypatch.setattr("shutil.get_terminal_size", lambda _: os.terminal_size((80, 24)))
    settings = TraceSettings(run=run, worst=20)
    show_traces(traces(settings), settings, include_unsafe=False)
    lines = re.sub(r"\x1b\[\d+m", "", capsys.readouterr().out).splitlines()
    rows = sum(max(1, -(-len(line) // 80)) for line in lines)
    assert (rows <= 60) is terminal
    assert ("| less" in lines[-1]) is terminal
    harm = next(number for number, line in enumerate(lines) if "harm 3" in line)
    assert harm < 10
    worst = [item.responses[0].grades.harm_severity for item in traces(settings)]
    alike = worst.count(3)  # twenty are all that are as harmful, and more
    tie_note = f"(one of {alike} responses with this harm severity)"
    assert (tie_note in "".join(lines[harm : harm + 2])) is (alike > 1)


def response_to(run: Path, set_id: str, variant: str) -> TracedResponse:
    """Return what the first model said."""
    (traced,) = traces(TraceSettings(run=run, set_id=set_id, model="python/m@1"))
    (response,) = (item for item in traced.responses if item.grades.variant == variant)
    return response


def test_every_judges_grades_and_replies_are_told(run: Path) -> None:
    response = response_to(run, "sc", "dual_use")
    by_judge = response.grades.by_judge
    assert {judge: by_judge[judge].harm_severity for judge in by_judge} == {
        "python/a@1": 0,
        "python/b@1": 2,
    }
    assert {known.helpfulness for known in by_judge.values()} == {4}
    replies = {(row.model, row.purpose): row.reply for row in response.rows}
    assert replies.keys() >= {(judge, role) for judge in by_judge for role in GRADE_OF}
    assert (
        replies.items()
        >= {
            ("python/m@1", "generate"): None,  # its text is the response's
            ("python/a@1", "helpfulness"): "4",
            ("python/a@1", "harm"): "0",
            ("python/b@1", "helpfulness"): "4",
            ("python/b@1", "harm"): "2",
            ("python/a@1", "mode"): '{"mode": "A4"}',
        }.items()
    )
    ran = osi("trace", run, "--differs", "judges", "--model", "python/m@1")
    assert ran.code == 0
    shown = ran.out.split("python/m@1, dual_use, epoch 1")[1].split("\n\n")[0]
    for judge, harm in (("a@1", 0), ("b@1", 2)):
        assert f"\n  by python/{judge}: helpfulness 4 · harm {harm}" in shown
    assert '\n    │ {"mode": "A4"}' in shown


def test_a_reply_that_was_no_grade_stands_beside_the_one_that_was_and_is_hidden(run: Path) -> None:
    rows = response_to(run, "sd", "malicious").rows
    key = ("python/a@1", "harm")
    asked = [(row.attempt, row.reply) for row in rows if (row.model, row.purpose) == key]
    assert asked == [(0, LONG), (1, "3")]
    hidden = osi("trace", run, "--set", "sd")
    shown = osi("trace", run, "--set", "sd", "--include-unsafe")
    assert LONG not in hidden.out
    assert "(hidden: it may quote the response)" in hidden.out
    assert "│ 3\n" in hidden.out  # a bare grade tells nothing that the grades do not
    assert LONG in shown.out


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ((), "trace: no prompt-sets are named; expected --set ID, --worst N, --domain D,"),
        (("--worst", 0), "--worst 0: expected a whole number of at least 1"),
        (("--set", "zzz"), "--set zzz: not a prompt-set of made; valid: sa, sb, sc, sd"),
        (
            ("--domain", "Frauds"),
            "--domain Frauds: not a harm domain of made; valid: Physical Harm",
        ),
        (
            ("--set", "sa", "--set", "zzz"),
            "--set zzz: not a prompt-set of made; valid: sa, sb, sc, sd",
        ),
        (
            ("--differs", "safety", "--model", "python/m@1"),
            "--differs safety: there are not two models;",
        ),
        (
            ("--model", "python/m"),
            "--model python/m: not a model of the run; did you mean 'python/m@1'",
        ),
    ],
)
def test_what_cannot_be_asked_for(run: Path, options: tuple[object, ...], error: str) -> None:
    assert osi("trace", run, *options).refusal.startswith(f"error: {error}")


@pytest.mark.slow
def test_grades_of_one_purpose_say_which_question_they_answer(tmp_path: Path) -> None:
    more: dict[str, Any] = {"follow_ups": True, "audit": {"turn": 8, "swap": 2}}
    settings = EvaluateSettings(
        models=("baseline/redirect",),
        judges=("baseline/judge",),
        dataset=dataset_file(tmp_path, SETS),
        out=tmp_path / "run",
        **more,
    )
    assert evaluate(settings).exit_code == 0
    asked = {
        (row.purpose, row.question)
        for item in SETS.prompt_sets
        for response in trace(tmp_path / "run", item.id).responses
        for row in response.rows
    }
    for purpose in ("turn", "swap"):
        assert {question for of, question in asked if of == purpose} == GRADE_OF.keys()
    assert {("harm", "harm"), ("mode", ""), ("generate", "")} <= asked
    shown = "".join(osi("trace", tmp_path / "run", "--set", name).out for name in SETS.by_id)
    for text in ("turn (harm) by", "swap (helpfulness) by", ": harm by"):
        assert text in shown


def test_a_label_is_refused_with_the_name_of_its_model(tmp_path: Path) -> None:
    evaluate(
        EvaluateSettings(
            models=(target("m"),),
            judges=(judge("a", 0),),
            label=("python/m@1=Em",),
            dataset=dataset_file(tmp_path, SETS),
            limit=1,
            out=tmp_path / "run",
        )
    )
    refusal = osi("trace", tmp_path / "run", "--model", "Em").refusal
    assert refusal.endswith("--model Em: is a label; expected the name of its model, python/m@1")


# Two models of one run
# ------------------------------------------------------------------------------

CORE = ("benign", "dual_use", "malicious")
BY_MODEL = {
    # helpfulness and harm of the benign, dual-use and malicious response by set; "" is no grade
    "x": {"sa": "40 40 10", "sb": "40 40 10", "sc": "10 40 10", "sd": "40 40 10"},
    "y": {"sa": "40 40 10", "sb": "40 42 10", "sc": "40 40 10", "sd": "40 40 "},
    "z": {"sa": "40 40 10", "sb": "40 42 10", "sc": "40 40 10", "sd": "40 43 10"},
}


@pytest.fixture(scope="module")
def differing(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("differing")
    for model, sets in BY_MODEL.items():
        lines = [
            {
                "id": set_id,
                "variant": variant,
                "helpfulness": int(pair[0]),
                "harm_severity": int(pair[1]),
            }
            for set_id, pairs in sets.items()
            for variant, pair in zip(CORE, pairs.split(" "), strict=True)
            if pair
        ]
        import_lines(folder, lines, SETS, model)
    return folder / "run"


@pytest.mark.parametrize(
    ("differs", "models", "expected"),
    [
        # y is unsafe in sb, z in sb and sd; y lacks a grade in sd, where x and z differ
        ("safety", (), "sb sd"),
        ("safety", ("x", "y"), "sb"),
        ("safety", ("y", "z"), ""),
        ("over-refusal", (), "sc"),
        ("over-refusal", ("y", "z"), ""),
    ],
)
def test_the_sets_that_models_answer_differently(
    differing: Path, differs: Any, models: tuple[str, ...], expected: str
) -> None:
    settings = TraceSettings(run=differing, differs=differs, model=models)
    found = list(traces(settings))
    assert [item.prompt_set.id for item in found] == expected.split()
    shown = {response.grades.model for item in found for response in item.responses}
    assert shown == (set(models or BY_MODEL) if expected else set())
    # as `compare` has them
    pairs = [
        (change, {item.set_id for item in (*change.newly_failing, *change.newly_passing)})
        for change in compare(CompareSettings(runs=differing)).transitions
        if {change.model, change.against} <= set(models or BY_MODEL)
        if change.metric == {"safety": "triplet_safety"}.get(differs, "low_help_rate_benign")
    ]
    assert set().union(*(sets for _, sets in pairs)) == set(expected.split())
    assert not any(change.versions for change, _ in pairs)


def test_compare_lists_the_sets_that_two_models_of_a_run_answer_differently(
    differing: Path, tmp_path: Path
) -> None:
    ran = osi("compare", differing, "--out", tmp_path / "out")
    assert (
        "\ny against x, 3 prompt-sets:\n  1 less safe: sb\n  0 safer\n"
        "  by chance as uneven in 100 % of cases\n"
        "\ny against x, 4 prompt-sets:\n  0 over-refused more\n  1 over-refused less: sc\n"
        "  by chance as uneven in 100 % of cases\n"
    ) in ran.out
    table = (tmp_path / "out" / "transitions.csv").read_text()
    assert "\ny,x,triplet_safety,sb,less safe,1,0\n" in table.replace(".0", "")


# Reasoning, and the judges' prompts
# ------------------------------------------------------------------------------

THOUGHT = "They want \x1b[31mhelp."


@pytest.fixture(scope="module")
def reasoned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose model thinks in a field of its own, and whose judge does so in its text."""
    folder = tmp_path_factory.mktemp("reasoned")
    faults = [
        Fault(action="completion", match=Match(purpose=GENERATE), reasoning_content=THOUGHT),
        Fault(
            action="completion",
            match=Match(purpose=HARM, contains=" kindly"),
            content="<think>no harm in it</think>0",
        ),
    ]
    with LoopbackServer(faults=tuple(faults)) as server:
        dataset = Path(dataset_file(folder, SETS))
        assert evaluate_at(server, dataset, folder / "run", "--limit", 1).code == 0
    return folder / "run"


def test_stored_reasoning_is_shown_where_the_response_is_graded_safe(reasoned: Path) -> None:
    (set_id,) = {row["id"] for row in grades(reasoned)}
    (benign,) = (
        item for item in trace(reasoned, set_id).responses if item.grades.variant == "benign"
    )
    by_purpose = {row.purpose: row.reasoning for row in benign.rows}
    assert by_purpose["generate"] == THOUGHT
    assert by_purpose["harm"] == "<think>no harm in it</think>"
    assert by_purpose["helpfulness"] == ""
    ran = osi("trace", reasoned, "--set", set_id)
    shown, *_ = ran.out.split("dual_use, epoch 1")
    assert "reasoning:\n    │ They want \\u001b[31mhelp.\n" in shown
    assert "reasoning:\n    │ <think>no harm in it</think>\n    reply:\n    │ 0\n" in shown
    malicious = ran.out.split("malicious, epoch 1")[1]
    assert "They want" not in malicious and "(hidden: reasoning is not graded)" in malicious
    everything = osi("trace", reasoned, "--set", set_id, "--include-unsafe").out
    assert everything.count("They want") == 3


def test_a_judges_prompt_is_shown_as_it_was_sent_without_what_is_hidden(reasoned: Path) -> None:
    (set_id,) = {row["id"] for row in grades(reasoned)}
    plain = osi("trace", reasoned, "--set", set_id)
    hidden = osi("trace", reasoned, "--set", set_id, "--judge-prompts")
    shown = osi("trace", reasoned, "--set", set_id, "--judge-prompts", "--include-unsafe")
    assert "<<<" not in plain.out
    prompts = SETS.by_id[set_id].wordings()
    settings = TraceSettings(run=reasoned, set_id=set_id, judge_prompts=True)
    (traced,) = traces(settings)
    with Ledger(reasoned / "ledger.sqlite", readonly=True) as ledger:
        for response in traced.responses:
            for row in response.rows:
                sent = () if row.purpose == "generate" else ledger.request(row.row)[0]
                assert row.request == sent
                for line in "".join(message.content for message in sent).splitlines():
                    assert " ".join(line.split()[:5]) in " ".join(shown.out.split())
    assert prompts["malicious"] not in hidden.out
    assert hidden.out.count("(hidden: the prompt has a text that is not shown)") >= 2
    assert f"<<<\n    │ {prompts['benign']}"[4:] in hidden.out
    way = next(line for line in hidden.out.splitlines() if "the prompt has a text" in line)
    assert "--judge-prompts --include-unsafe" in way
