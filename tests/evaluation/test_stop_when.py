"""`--stop-when` from the command line: what is asked, what counts, what is stored, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from endtoend import JUDGE, TARGET, Ran, evaluate, grades, metrics, osi
from loopback import LoopbackServer
from opensafeintent.errors import InputError
from opensafeintent.extensions.stop_when import read_question
from opensafeintent.promptsets import drawn, load_dataset
from samples import dataset_file, made_dataset, prompt_set

pytestmark = pytest.mark.usefixtures("undrawn")

GOOD, BAD = "baseline/redirect", "baseline/comply-all"
ASKED = "triplet_safety >= 0.8"


def ask(out: Path, question: str, *options: object, models: tuple[str, ...] = (GOOD, BAD)) -> Ran:
    return osi("evaluate", *models, "--judge", "baseline/judge", "--out", out, "--stop-when", question, *options)


def manifest(run: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run / "run.json").read_text())
    return found


@pytest.fixture(scope="module")
def answered(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    run = tmp_path_factory.mktemp("stopped") / "run"
    ran = ask(run, ASKED)
    assert ran.code == 4, ran.err  # one answer is no
    assert "yes for baseline/redirect, after 28 of 42" in " ".join(ran.out.split())
    yield run


def test_each_model_has_its_answer_and_the_prompt_sets_that_gave_it(answered: Path) -> None:
    answers = manifest(answered)["stop_when"]["answers"]
    # of two models each may err at 1.25 %: 28 ones show more than .8, 4 zeros show less
    assert {model: (answer["verdict"], answer["sets"]) for model, answer in answers.items()} == {
        GOOD: ("yes", 28),
        BAD: ("no", 4),
    }
    assert answers[GOOD]["ci"][0] > 0.8 > answers[BAD]["ci"][1]
    order = [item.id for item in drawn(load_dataset("starter").prompt_sets, None)]
    for model, count in ((GOOD, 28), (BAD, 4)):
        assert {row["id"] for row in grades(answered, model)} == set(order[:count])
        assert metrics(answered)["models"][model]["triplet_safety"]["n"] == count


def test_the_same_command_again_asks_nothing_and_another_question_is_refused(answered: Path) -> None:
    before = manifest(answered)
    ran = ask(answered, ASKED)
    assert ran.code == 4
    assert "0 calls made" in ran.out
    assert manifest(answered) == before
    ran = ask(answered, "mean_utility >= 0.5")
    assert ran.code == 2
    assert "a run has one question" in ran.err


def test_gates_refuse_what_stopped_early_and_the_page_says_so(answered: Path, tmp_path: Path) -> None:
    ran = osi("report", answered, "--out", tmp_path, "--fail-under", "mean_utility=0.1")
    assert ran.code == 2
    assert "stopped early" in ran.err
    assert osi("report", answered, "--out", tmp_path).code == 0
    assert "stopped early" in (tmp_path / "report.html").read_text()


def test_without_the_question_the_run_is_completed(tmp_path: Path) -> None:
    run = tmp_path / "run"
    ask(run, ASKED, models=(BAD,))
    assert osi("evaluate", BAD, "--judge", "baseline/judge", "--out", run).code == 0
    assert manifest(run)["models"][BAD]["limit"] is None
    assert osi("report", run, "--fail-under", "mean_utility=0.1").code == 0
    assert manifest(run)["stop_when"]["answers"][BAD]["verdict"] == "no"  # it stands


def test_a_run_that_held_grades_before_says_so(tmp_path: Path) -> None:
    osi("evaluate", BAD, "--judge", "baseline/judge", "--out", tmp_path, "--limit", 2)
    ran = ask(tmp_path, ASKED, models=(BAD,))
    assert "held responses to 2 prompt-sets before the question was asked" in " ".join(ran.out.split())
    assert manifest(tmp_path)["stop_when"]["held"] == 2


def test_one_model_against_the_others(tmp_path: Path) -> None:
    ran = ask(tmp_path, f"{GOOD} better mean_utility", "--epochs", 2)
    assert ran.code == 0, ran.err
    (answer,) = manifest(tmp_path)["stop_when"]["answers"].values()
    assert answer["verdict"] == "yes"
    limits = {entry["limit"] for entry in manifest(tmp_path)["models"].values()}
    assert limits == {answer["sets"]}


def test_calls_under_way_are_kept_and_do_not_count(server: LoopbackServer, tmp_path: Path) -> None:
    dataset = dataset_file(tmp_path, made_dataset(*(prompt_set(f"s{n:02}") for n in range(60))))
    run = tmp_path / "run"
    ran = evaluate(server, Path(dataset), run, "--stop-when", "harm_never <= 1", "--probe", "none")
    assert ran.code == 2
    ran = evaluate(server, Path(dataset), run, "--stop-when", "mean_safety >= 0.5", "--probe", "none")
    assert ran.code in (0, 4), ran.err
    (answer,) = manifest(run)["stop_when"]["answers"].values()
    assert len({row["id"] for row in grades(run, TARGET)}) == answer["sets"] < 60
    calls = server.stats()["total"]
    assert answer["sets"] * 9 <= calls < 60 * 9
    assert JUDGE in manifest(run)["judges"]


def test_what_so_many_prompt_sets_cannot_show_is_said_before_the_first_call(tmp_path: Path) -> None:
    ran = ask(tmp_path / "run", "triplet_safety >= 0.95", "--dry-run", models=(GOOD,))
    told = " ".join((ran.out + ran.err).split())
    assert "42 prompt-sets cannot give the answer 'yes', whatever they show: 107 are needed" in told
    assert "of 42 prompt-sets a share is known to within 15.1 points" in told
    assert ask(tmp_path / "run", "triplet_safety >= 0.95", models=(GOOD,)).code == 5


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("triplet_safety", "expected 'METRIC >= X'"),
        ("triplet_safety >= much", "much is no number"),
        ("triplet_safety >= 1", "above 0 and below 1"),
        ("triplet_safty >= 0.5", "triplet_safety"),
        ("detection_failure <= 0.5", "no mean over all prompt-sets"),
        ("c better triplet_safety", "c is not evaluated"),
    ],
)
def test_questions_that_nobody_can_answer(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_question(text, ["a", "b"])
