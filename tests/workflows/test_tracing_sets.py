"""`trace` over many prompt-sets: the worst, by domain and model, where judges differ; each judge's
grades and replies.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from endtoend import osi
from opensafeintent import EvaluateSettings, FunctionModel, TraceSettings, evaluate, traces
from samples import dataset_file, made_dataset, prompt_set

FRAUD = "Fraud and Deception"
SETS = made_dataset(
    *(
        prompt_set(name, domain=FRAUD if name == "sd" else "Cyber Compromise")
        for name in ("sa", "sb", "sc", "sd")
    )
)
GRADES = {
    # helpfulness and harm of the benign, dual-use and malicious response by judge a, then by judge
    # b
    "sa": ("40 40 10", "40 40 10"),
    "sb": ("30 42 10", "30 42 10"),
    "sc": (
        "20 40 10",
        "20 42 10",
    ),  # the panel of two: harm 2 on dual-use, as in sb, with less help on benign
    "sd": ("40 40 13", "40 40 13"),
}
LONG = "The response says how it is done. 3, but not in the form that was asked for."


def judge(name: str, place: int) -> FunctionModel:
    """A judge that grades as written down, and says more than a grade where it is asked for harm in
    "sd" the first time.
    """

    def ask(messages: list[dict[str, str]]) -> str:
        asked, last = messages[0]["content"], messages[-1]["content"]
        set_id = next(name for name in GRADES if f"{name}, " in asked)
        variant = next(
            at
            for at, way in enumerate(("kindly", "in between", "unkindly"))
            if f"{set_id}, {way}" in asked
        )
        if '"mode"' in last:
            return '{"mode": "A4"}'
        helpfulness, harm = GRADES[set_id][place].split()[variant]
        if "1 to 4" in last:
            return helpfulness
        return LONG if len(messages) == 1 and harm == "3" else harm

    return FunctionModel(ask, name=name, version="1")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("graded")
    targets: list[Any] = [FunctionModel(said(name), name=name, version="1") for name in ("m", "n")]
    judges: list[Any] = [judge("a", 0), judge("b", 1)]
    settings = {"dataset": dataset_file(folder, SETS), "probe": "none", "out": folder / "run"}
    assert evaluate(EvaluateSettings(models=targets, judges=judges, **settings)).exit_code == 0  # type: ignore[arg-type]
    return folder / "run"


def said(name: str) -> Callable[[list[dict[str, str]]], str]:
    return lambda messages: f"{name} on {messages[-1]['content']}"


def ids(run: Path, **choice: Any) -> list[str]:
    return [found.prompt_set.id for found in traces(TraceSettings(run=run, **choice))]


@pytest.mark.parametrize(
    ("choice", "found"),
    [
        (
            {"worst": 4},
            ["sd", "sc", "sb", "sa"],
        ),  # harm 3; harm 2 with helpfulness 2, then 3, on benign; harm 0
        ({"worst": 2}, ["sd", "sc"]),
        ({"worst": 9, "domain": "Cyber Compromise"}, ["sc", "sb", "sa"]),
        ({"domain": FRAUD}, ["sd"]),
        ({"differs": True}, ["sc"]),
        ({"differs": True, "domain": FRAUD}, []),
        ({"model": "python/m@1"}, ["sa", "sb", "sc", "sd"]),
        ({"set_id": "sb", "model": "python/m@1"}, ["sb"]),
        ({"set_id": "sb", "differs": True}, []),
    ],
)
def test_which_prompt_sets_are_traced(run: Path, choice: dict[str, Any], found: list[str]) -> None:
    assert ids(run, **choice) == found


def test_every_judges_grades_and_replies_are_told(run: Path) -> None:
    (found,) = traces(TraceSettings(run=run, set_id="sc"))
    (response,) = (
        item
        for item in found.responses
        if (item.grades.model, item.grades.variant) == ("python/m@1", "dual_use")
    )
    assert response.grades.by_judge == {"python/a@1": (4, 0), "python/b@1": (4, 2)}
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
    assert (
        "  by python/a@1: helpfulness 4 · harm 0\n  by python/b@1: helpfulness 4 · harm 2\n"
        in shown
    )
    assert '\n    │ {"mode": "A4"}' in shown


def test_a_reply_that_was_no_grade_stands_beside_the_one_that_was_and_is_hidden_with_its_response(
    run: Path,
) -> None:
    (found,) = traces(TraceSettings(run=run, set_id="sd", model="python/m@1"))
    (response,) = (item for item in found.responses if item.grades.variant == "malicious")
    asked = [
        (row.attempt, row.reply)
        for row in response.rows
        if (row.model, row.purpose) == ("python/a@1", "harm")
    ]
    assert asked == [(0, LONG), (1, "3")]
    hidden, shown = (
        osi("trace", run, "--set", "sd"),
        osi("trace", run, "--set", "sd", "--include-unsafe"),
    )
    assert LONG not in hidden.out
    assert "(--include-unsafe shows the reply)" in hidden.out
    assert "│ 3\n" in hidden.out  # a bare grade tells nothing that the grades do not
    assert LONG in shown.out


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (
            (),
            (
                "error: trace: no prompt-sets are named; expected --set ID, --worst N, --domain D,"
                " --model M or --differs"
            ),
        ),
        (("--worst", 0), "error: --worst 0: expected int >= 1"),
        (("--set", "zzz"), "error: --set zzz: not a prompt-set of made; valid: sa, sb, sc, sd"),
        (
            ("--domain", "Frauds"),
            "error: --domain Frauds: not a harm domain of made; valid: Physical Harm and Weapons, ",
        ),
        (
            ("--model", "python/m"),
            "error: --model python/m: not a model of the run; did you mean 'python/m@1' or ",
        ),
    ],
)
def test_what_cannot_be_asked_for(run: Path, options: tuple[object, ...], error: str) -> None:
    ran = osi("trace", run, *options)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(error)
