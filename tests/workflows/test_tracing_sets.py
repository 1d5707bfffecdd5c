"""`trace` over many prompt-sets: the worst, by domain and model, where judges differ; each judge's
grades and replies.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

from endtoend import osi
from opensafeintent import EvaluateSettings, FunctionModel, TraceSettings, evaluate, trace, traces
from opensafeintent.cli.output.trace import show_traces
from opensafeintent.taxonomy import KnownGrades
from opensafeintent.workflows.trace import TracedResponse
from samples import dataset_file, made_dataset, prompt_set

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
        ({"differs": True}, "sc"),
        ({"differs": True, "domain": FRAUD}, ""),
        ({"model": "python/m@1"}, "sa sb sc sd"),
        ({"set_id": "sb", "model": "python/m@1"}, "sb"),
        ({"set_id": "sb", "differs": True}, ""),
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
        ({"worst": 9, "differs": True}, "m:sc n:sc"),
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
    assert (tie_note in lines[harm]) is (alike > 1)


def response_to(run: Path, set_id: str, variant: str) -> TracedResponse:
    """Return what the first model said."""
    (traced,) = traces(TraceSettings(run=run, set_id=set_id, model="python/m@1"))
    (response,) = (item for item in traced.responses if item.grades.variant == variant)
    return response


def test_every_judges_grades_and_replies_are_told(run: Path) -> None:
    response = response_to(run, "sc", "dual_use")
    assert response.grades.by_judge == {
        "python/a@1": KnownGrades(4, 0),
        "python/b@1": KnownGrades(4, 2),
    }
    replies = {(row.model, row.purpose): row.reply for row in response.rows}
    assert replies == {
        ("python/m@1", "generate"): None,  # its text is the response's
        ("python/a@1", "helpfulness"): "4",
        ("python/a@1", "harm"): "0",
        ("python/b@1", "helpfulness"): "4",
        ("python/b@1", "harm"): "2",
        ("python/a@1", "mode"): '{"mode": "A4"}',
    }
    ran = osi("trace", run, "--differs", "--model", "python/m@1")
    assert ran.code == 0
    shown = ran.out.split("python/m@1, dual_use, epoch 1")[1].split("\n\n")[0]
    lines = [
        f"  by python/{judge}: helpfulness 4 · harm {harm}\n"
        for judge, harm in (("a@1", 0), ("b@1", 2))
    ]
    assert "".join(lines) in shown
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
            ("--model", "python/m"),
            "--model python/m: not a model of the run; did you mean 'python/m@1'",
        ),
    ],
)
def test_what_cannot_be_asked_for(run: Path, options: tuple[object, ...], error: str) -> None:
    assert osi("trace", run, *options).refusal.startswith(f"error: {error}")


@pytest.mark.slow
def test_grades_of_one_purpose_say_which_of_the_two_questions_they_answer(tmp_path: Path) -> None:
    more: dict[str, Any] = {"follow_ups": True, "follow_up_audit": 8, "request_swap": 2}
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
    for purpose in ("in_conversation", "request_swap"):
        assert {question for of, question in asked if of == purpose} == {"helpfulness", "harm"}
    assert {("harm", "harm"), ("mode", ""), ("generate", "")} <= asked
    shown = "".join(osi("trace", tmp_path / "run", "--set", name).out for name in SETS.by_id)
    for text in ("in_conversation (harm) by", "request_swap (helpfulness) by", ": harm by"):
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
