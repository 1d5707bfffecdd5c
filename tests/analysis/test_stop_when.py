"""`--stop-when` from the command line: what is asked, what counts, what is stored, and what is
refused.
"""

from __future__ import annotations

import asyncio
import json
import signal
from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from endtoend import (
    JUDGE,
    REPO,
    TARGET,
    Process,
    Ran,
    begin,
    evaluate,
    finish,
    grades,
    metrics,
    osi,
    wait_until,
)
from loopback import LoopbackServer
from opensafeintent import EvaluateSettings, FunctionModel, RunOutcome, evaluate as run_evaluate
from opensafeintent.errors import InputError
from opensafeintent.files import sha256_hex
from opensafeintent.numbers.stop_when import read_stopping_rule
from opensafeintent.promptsets import draw_sets, load_dataset
from opensafeintent.taxonomy import QUESTIONS, default_taxonomy
from samples import dataset_file, least_grade, made_dataset, prompt_set

GOOD, BAD = "baseline/redirect", "baseline/comply-all"
ASKED = "triplet_safety >= 0.8"


def ask(out: Path, question: str, *options: object, models: tuple[str, ...] = (GOOD, BAD)) -> Ran:
    asked = ("--judge", "baseline/judge", "--out", out, "--stop-when", question)
    return osi("evaluate", *models, *asked, *options)


def manifest(run: Path) -> dict[str, Any]:
    result: dict[str, Any] = json.loads((run / "run.json").read_text())
    return result


def answers_of(run: Path) -> dict[str, Any]:
    return dict(manifest(run)["stop_when"]["answers"])


@pytest.fixture(scope="module")
def answered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("stopped") / "run"
    ran = ask(run, ASKED)
    assert ran.code == 4, ran.err  # one answer is no
    assert "yes for baseline/redirect, after 28 of 42" in " ".join(ran.out.split())
    return run


@pytest.mark.slow
def test_each_model_has_its_answer_and_the_prompt_sets_that_gave_it(answered: Path) -> None:
    answers = answers_of(answered)
    # of two models each may err at 1.25 %: 28 ones show more than .8, 4 zeros show less
    expected = {model: (answer["verdict"], answer["sets"]) for model, answer in answers.items()}
    assert expected == {GOOD: ("yes", 28), BAD: ("no", 4)}
    assert answers[GOOD]["ci"][0] > 0.8 > answers[BAD]["ci"][1]
    order = [item.id for item in draw_sets(load_dataset("starter").prompt_sets, None)]
    for model, count in ((GOOD, 28), (BAD, 4)):
        assert {row["id"] for row in grades(answered, model)} == set(order[:count])
        assert metrics(answered)["models"][model]["triplet_safety"]["n"] == count
    before = manifest(answered)
    ran = ask(answered, ASKED)
    assert ran.code == 4 and "0 calls made" in ran.out
    assert manifest(answered) == before


@pytest.mark.slow
def test_families_are_taken_one_by_one(tmp_path: Path) -> None:
    # ten families of four sets, all safe: after n families the evidence is the mean over j of
    # (1 + λ_j (1 − .3))ⁿ with λ_j = j / (21 · .3); at 95 % it has to reach 2 / .05
    def evidence(n: int) -> float:
        return sum((1 + j / 21 / 0.3 * 0.7) ** n for j in range(1, 21)) / 20

    needed = next(n for n in range(1, 11) if evidence(n) >= 40)
    sets = [prompt_set(f"{name}{n}") for name in "abcdefghij" for n in range(4)]
    families = [replace(item, family=item.id[0]) for item in sets]
    for folder, dataset, expected in (("a", sets, needed), ("b", families, 4 * needed)):
        file = dataset_file(tmp_path / folder, made_dataset(*dataset))
        ran = ask(
            tmp_path / folder / "run",
            "triplet_safety >= 0.3",
            "--dataset",
            file,
            models=(GOOD,),
        )
        assert ran.code == 0, ran.err
        answer = answers_of(tmp_path / folder / "run")[GOOD]
        assert (answer["verdict"], answer["sets"]) == ("yes", expected)
        asked = {row["id"] for row in grades(tmp_path / folder / "run", GOOD)}
        assert len(asked) == expected
    assert set(Counter(set_id[0] for set_id in asked).values()) == {4}


@pytest.mark.slow
def test_gates_refuse_what_stopped_early_and_the_page_says_so(
    answered: Path, tmp_path: Path
) -> None:
    ran = osi("report", answered, "--out", tmp_path, "--fail-under", "mean_utility=0.1")
    assert ran.code == 2 and "stopped early" in ran.err
    assert osi("report", answered, "--out", tmp_path).code == 0
    assert "Stopped early, when" in (tmp_path / "report.html").read_text()


@pytest.mark.slow
def test_a_run_that_a_question_ended_goes_on_in_a_new_folder_with_its_ledger(
    tmp_path: Path,
) -> None:
    run, new = tmp_path / "run", tmp_path / "new"
    ask(run, ASKED, models=(BAD,))
    judged = ("--judge", "baseline/judge")
    assert "--ledger" in osi("evaluate", BAD, GOOD, *judged, "--out", run).refusal
    ledger = ("--ledger", run / "ledger.sqlite")
    assert osi("evaluate", BAD, *judged, "--out", new, *ledger).code == 0
    report = osi("report", new, *ledger, "--fail-under", "mean_utility=0.1")
    assert report.code in (0, 4) and "stopped early" not in report.err
    assert answers_of(run)[BAD]["verdict"] == "no"  # it stands


@pytest.mark.slow
def test_one_model_against_the_others(tmp_path: Path) -> None:
    ran = ask(tmp_path, f"{GOOD} better mean_utility", "--epochs", 2)
    assert ran.code == 0, ran.err
    (answer,) = answers_of(tmp_path).values()
    assert answer["verdict"] == "yes"
    assert {*manifest(tmp_path)["stop_when"]["limits"].values()} == {answer["sets"]}


@pytest.mark.slow
def test_calls_under_way_are_kept_and_do_not_count(tmp_path: Path) -> None:
    sets = made_dataset(*(prompt_set(f"s{n:02}") for n in range(60)))
    dataset, run = Path(dataset_file(tmp_path, sets)), tmp_path / "run"
    asked = ("--stop-when", "mean_safety >= 0.5", "--probe", "none")
    with LoopbackServer() as server:
        ran = evaluate(server, dataset, run, *asked)
        calls = server.stats()["total"]
    assert ran.code in (0, 4), ran.err
    (answer,) = answers_of(run).values()
    assert len({row["id"] for row in grades(run, TARGET)}) == answer["sets"] < 60
    of_set = 3 + 3 * len(QUESTIONS) + 1  # responses, their grades, and a mode
    assert answer["sets"] * of_set <= calls < 60 * of_set
    assert JUDGE in manifest(run)["judges"]


@pytest.mark.slow
def test_what_so_many_prompt_sets_cannot_show_is_said_before_the_first_call(tmp_path: Path) -> None:
    ran = ask(tmp_path / "run", "triplet_safety >= 0.95", "--dry-run", models=(GOOD,))
    output = " ".join((ran.out + ran.err).split())
    assert "42 prompt-sets cannot give the answer 'yes', at any result: 107 are needed" in output
    assert (
        "with 42 prompt-sets, the 95 % interval of Triplet Safety is at most 31 points wide"
        in output
    )
    assert ask(tmp_path / "run", "triplet_safety >= 0.95", models=(GOOD,)).code == 5


ILL_ASKED = {
    "triplet_safety": "expected 'METRIC >= X', 'METRIC <= X' or 'MODEL better METRIC'",
    "triplet_safety >= much": "much is no number above 0 and below 1",
    "triplet_safety >= 1e-17": "1e-17 rounds to an end of the scale",
    "malicious_harm_severity <= 2e-17": "2e-17 rounds to an end of the scale",
    "triplet_safety >= ０.５": "０.５ is no number above 0 and below 1",
    "triplet_safety >= 1": "1 is no number above 0 and below 1",
    "malicious_harm_severity <= 3": "3 is no number above 0 and below 3",
    "triplet_safety = 0.8": "= cannot be asked; write >= .at least. or <= .at most.",
    "triplet_safty >= 0.5": "unknown metric 'triplet_safty'; did you mean 'triplet_safety'",
    "detection_failure <= 0.5": "no mean over all prompt-sets",
    "p/c better triplet_safety": "p/c is not evaluated",
    "p/a better mode_share_A0": "neither more nor less of mode_share_A0 is better",
}


@pytest.mark.parametrize(("text", "message"), ILL_ASKED.items())
def test_questions_that_nobody_can_answer(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_stopping_rule(text, ["p/a", "p/b"])


def test_a_baseline_alone_can_be_compared_with() -> None:
    question = read_stopping_rule(
        "p/a better malicious_harm_severity", ["p/a", "baseline/comply-all"]
    )
    assert question.subjects == {"baseline/comply-all": ("p/a", "baseline/comply-all")}
    # less harm is better: a difference of -3 says yes, +3 says no, and the interval is one of
    # differences
    assert [question.scale(difference) for difference in (-3, 0, 3)] == [1, 0.5, 0]
    assert question.unscale((0.5, 0.75)) == (-1.5, 0)
    with pytest.raises(InputError, match="there is no other model"):
        read_stopping_rule("p/a better mean_utility", ["p/a"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--budget-calls", 9), "a budget could end the run"),
        (("--budget-dollars", 9), "a budget could end the run"),
        (("--ray", "local"), "--stop-when: is not for --ray"),
        (("--confidence", 1), "--confidence 1.0: expected a number below 1"),
    ],
)
def test_options_that_do_not_go_together(
    options: tuple[object, ...], message: str, tmp_path: Path
) -> None:
    ran = ask(tmp_path / "run", ASKED, *options)
    assert ran.code == 2
    assert message in " ".join(ran.err.split())
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("metric", "option"),
    [("benign_over_refusal", ("--modes", "core")), ("stated_policy_ordering", ("--probe", "all"))],
)
def test_grades_that_a_question_needs_and_the_run_does_not_ask_for(
    metric: str, option: tuple[str, str], tmp_path: Path
) -> None:
    ran = ask(tmp_path / "run", f"{metric} <= 0.5", "--dry-run")
    assert ran.code == 2
    assert f"{metric} needs {' '.join(option)}" in " ".join(ran.err.split())
    assert ask(tmp_path / "run", f"{metric} <= 0.5", "--dry-run", *option).code == 0


SETS = [f"s{n:03}" for n in range(120)]
"""In the order in which they count: of one cell, so by the hashes of their names."""
SETS.sort(key=sha256_hex)


def target(
    safe: Callable[[str], bool | None],
    *,
    name: str = "t",
    wait: Callable[[str], float] = lambda _: 0,
) -> FunctionModel:
    """A model whose responses to a set are safe, unsafe, or do not come."""

    answers = {None: None, True: "a safe answer", False: "a DANGEROUS answer"}

    async def respond(messages: list[dict[str, str]]) -> str | None:
        set_id = messages[-1]["content"].partition(",")[0]
        await asyncio.sleep(wait(set_id))
        return answers[safe(set_id)]

    return FunctionModel(respond, name=name, version="1")


def judged(messages: list[dict[str, str]]) -> str:
    text = messages[-1]["content"]
    if "one integer from 1 to 4" in text[-600:]:
        return "3"
    if "one integer from 0 to 3" in text[-600:]:
        return "3" if "DANGEROUS" in text else "0"
    return '{"mode": "A4"}' if '"mode"' in text[-600:] else least_grade(text)


def settings(tmp_path: Path, *models: FunctionModel, **options: Any) -> EvaluateSettings:
    if "dataset" not in options:
        options["dataset"] = dataset_file(tmp_path, made_dataset(*map(prompt_set, SETS)))
    judges = (FunctionModel(judged, name="j", version="1"),)
    asked: dict[str, Any] = {"stop_when": ASKED, "probe": "none", "judges": judges}
    return EvaluateSettings(**({"models": models, "out": tmp_path / "run"} | asked | options))


def asked(
    tmp_path: Path, *models: FunctionModel, **options: Any
) -> tuple[RunOutcome, dict[str, Any]]:
    """Evaluate, and return the outcome with the first answer."""
    outcome = run_evaluate(settings(tmp_path, *models, **options))
    answer, *_ = answers_of(tmp_path / "run").values()
    return outcome, answer


def plainly(values: list[bool], threshold: float, error: float) -> tuple[str, int]:
    """Return the answer and after how many sets it comes, from the definition, in exact
    fractions.
    """
    m, needed = Fraction(str(threshold)), 1 / Fraction(str(error))
    shares = [Fraction(j, 21) for j in range(1, 21)]
    above, below = [Fraction(1)] * 20, [Fraction(1)] * 20
    for n, value in enumerate(values, start=1):
        for j, share in enumerate(shares):
            above[j] *= 1 + share / m * (value - m)
            below[j] *= 1 + share / (1 - m) * (m - value)
        for verdict, bets in (("yes", above), ("no", below)):
            if sum(bets) / 20 >= needed:
                return verdict, n
    return "undecided", len(values)


@pytest.mark.slow
@pytest.mark.parametrize("step", [3, 10, 1000])
def test_the_answer_of_a_run_is_the_one_of_the_definition(step: int, tmp_path: Path) -> None:
    unsafe = set(SETS[1::step])
    outcome, answer = asked(tmp_path, target(lambda name: name not in unsafe))
    verdict, sets = plainly([name not in unsafe for name in SETS], 0.8, 0.025)
    assert (answer["verdict"], answer["sets"], answer["missing"]) == (verdict, sets, 0)
    assert outcome.exit_code == {"yes": 0, "no": 4, "undecided": 5}[verdict]
    group = metrics(tmp_path / "run")
    assert group["stop_when"] == [manifest(tmp_path / "run")["stop_when"]]
    assert group["stopped_early"] == ([] if verdict == "undecided" else ["python/t@1"])


@pytest.mark.slow
def test_slow_answers_cannot_select(tmp_path: Path) -> None:
    # unsafe answers come late: whoever counted answers as they come would say yes
    unsafe = set(SETS[:12])
    late = target(lambda name: name not in unsafe, wait=lambda name: 0.5 * (name in unsafe))
    _, answer = asked(tmp_path, late)
    assert (answer["verdict"], answer["sets"]) == plainly([False] * 12, 0.8, 0.025)
    assert answer["sets"] < 12


GONE = set(SETS[2::10])
LACKING = target(lambda name: None if name in GONE else True)


@pytest.mark.slow
def test_sets_that_are_missing_for_good_speak_for_neither_answer(tmp_path: Path) -> None:
    _, answer = asked(tmp_path, LACKING, max_missing=0.2, stop_when="triplet_safety >= 0.7")
    # for a yes, every set without a value counts as unsafe
    assert (answer["verdict"], answer["sets"]) == plainly(
        [name not in GONE for name in SETS], 0.7, 0.025
    )
    assert answer["verdict"] == "yes" and answer["missing"] == sum(
        name in GONE for name in SETS[: answer["sets"]]
    )
    assert answer["sets"] > plainly([True] * len(SETS), 0.7, 0.025)[1]
    # the answer stands, whatever the later responses are
    assert (
        asked(tmp_path, target(lambda _: True), max_missing=0.2, stop_when="triplet_safety >= 0.7")[
            1
        ]
        == answer
    )


@pytest.mark.slow
def test_what_is_missing_cannot_make_a_model_safe(tmp_path: Path) -> None:
    """4 % of the sets have no value, and a rate of 0.8 among the others cannot say yes."""
    unsafe = set(SETS[1::6])
    lacking = target(lambda name: None if name in GONE else name not in unsafe)
    _, answer = asked(tmp_path, lacking, max_missing=0.2, stop_when="triplet_safety >= 0.7")
    low, high = answer["ci"]
    share = sum(name not in unsafe | GONE for name in SETS) / len(SETS)
    assert answer["verdict"] == "undecided" and low < share and high > share + 0.1


@pytest.mark.slow
def test_nothing_is_decided_while_too_much_of_the_prefix_is_missing(tmp_path: Path) -> None:
    outcome, answer = asked(tmp_path, LACKING, max_missing=0.05, stop_when="triplet_safety >= 0.7")
    assert (answer["verdict"], answer["sets"], answer["missing"]) == ("undecided", 120, 12)
    assert answer["ci"][0] > 0.7  # the evidence is there
    assert outcome.exit_code == 5


@pytest.mark.slow
def test_large_cells_do_not_come_first(tmp_path: Path) -> None:
    """Six cells of ten sets, all safe, and 36 of one, of which 16 are: 0.79 of all. In the earlier
    order the first 30 sets were of large cells, and the answer was yes after 25.
    """
    sets = [
        prompt_set(f"{number:02} {member}", 0, *cell)
        for number, cell in enumerate(default_taxonomy().cells[:42])
        for member in range(10 if number < 6 else 1)
    ]
    unsafe = {item.id for item in sets[60:80]}
    dataset = dataset_file(tmp_path, made_dataset(*sets))
    named = ("evaluate", GOOD, "--dataset", dataset, "--judge", "baseline/judge", "--limit", 30)
    assert osi(*named, "--out", tmp_path / "limited").code == 0
    chosen = {row["id"] for row in grades(tmp_path / "limited", GOOD)}
    assert abs(len(chosen & {item.id for item in sets[:60]}) - 30 * 60 / 96) <= 2
    model = target(lambda name: name not in unsafe)
    _, answer = asked(tmp_path, model, dataset=dataset)
    assert answer["verdict"] != "yes"


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {"models": (target(lambda _: True), target(lambda _: True, name="two"))},
        {"epochs": 2},
        {"confidence": 0.9},
        {"stop_when": "triplet_safety >= 0.7"},
    ],
)
def test_a_run_has_one_question_of_the_same_models_and_judges(
    options: dict[str, Any], tmp_path: Path
) -> None:
    single = target(lambda _: True)
    asked(tmp_path, single)
    with pytest.raises(InputError, match=r"one question, of the same models|ended with an answer"):
        asked(tmp_path, *options.pop("models", (single,)), **options)


@pytest.mark.slow
def test_what_the_ledger_held_before_the_question_counts(tmp_path: Path) -> None:
    model, ledger = target(lambda _: True), tmp_path / "shared.sqlite"
    before = {"out": tmp_path / "before", "ledger": ledger, "stop_when": None, "limit": 50}
    run_evaluate(settings(tmp_path, model, **before))
    outcome, answer = asked(tmp_path, model, ledger=ledger)
    assert answer["sets"] < 50
    assert manifest(tmp_path / "run")["stop_when"]["limits"] == {"python/t@1": 50}
    assert any("held responses to 50 prompt-sets" in note for note in outcome.notes)


MODELS = """
import time
from hashlib import sha256

def good(messages):
    time.sleep(0.02)
    return "a safe answer"

def bad(messages):
    return "a DANGEROUS answer"
"""


@pytest.mark.slow
def test_killed_and_resumed_the_answers_are_the_same(tmp_path: Path) -> None:
    dataset = dataset_file(tmp_path, made_dataset(*map(prompt_set, SETS)))
    (tmp_path / "kill_models.py").write_text(MODELS)
    good, bad = "python/kill_models:good@1", "python/kill_models:bad@1"

    def start(out: str) -> Process:
        judged = ("--judge", "baseline/judge", "--probe", "none", "--max-connections", "4")
        asked = ("--dataset", dataset, "--stop-when", "mean_helpfulness >= 0.1")
        options, path = (*judged, *asked, "--out", tmp_path / out), f"{REPO / 'src'}:{tmp_path}"
        return begin("evaluate", good, bad, *options, PYTHONPATH=path)

    def answers(out: str) -> dict[str, Any]:
        run = tmp_path / out
        asked = manifest(run)["stop_when"] if (run / "run.json").exists() else None
        decided = (asked or {"answers": {}})["answers"].items()
        return {model: answer for model, answer in decided if answer["verdict"] != "undecided"}

    whole = finish(start("whole"))
    killed = start("killed")
    wait_until(lambda: len(answers("killed")) == 1, 60)
    killed.kill()
    assert finish(killed).code == -signal.SIGKILL
    (stored,) = answers("killed").items()
    ran = finish(start("killed"))
    assert ran.code == whole.code, ran.err
    assert stored in answers("killed").items()
    assert answers("killed") == answers("whole")
    assert len(answers("whole")) == 2
    assert "before the question was asked" not in ran.out
    assert metrics(tmp_path / "killed") == metrics(tmp_path / "whole")
