"""Deciding with fewer calls, against a real server: what is asked and decided, and that interruptions change nothing."""

from __future__ import annotations

import json
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from endtoend import JUDGE, STARTER, TARGET, Ran, begin, calls, evaluate, finish, grades, metrics, osi, wait_until
from loopback import GENERATE, Fault, LoopbackProcess, LoopbackServer, Match

pytestmark = pytest.mark.usefixtures("undrawn")

SECOND, OTHER = "openai-api/loop/second", "openai-api/loop/other"
SAFE = "triplet_safety >= 0.75"
"""The server's judge calls three responses of four safe, so .42 of all triplets: far enough from the line for any hash."""
SETS = 84


@pytest.fixture
def server() -> Iterator[LoopbackServer]:
    with LoopbackServer() as running:
        yield running


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twice the starter sets, without paraphrases: 252 prompts."""
    path = tmp_path_factory.mktemp("sets") / "sets.jsonl"
    lines = []
    for copy in range(SETS // 42):
        for record in map(json.loads, STARTER.read_text().splitlines()):
            record["id"] = f"{record['id']}-{copy}"
            record["prompts"] = {intent: f"{text} ({copy})" for intent, text in record["prompts"].items()}
            record["dual_use_paraphrases"] = []
            lines.append(json.dumps(record) + "\n")
    path.write_text("".join(lines))
    return path


def decide(server: Any, dataset: Path, out: Path, question: str = SAFE, *options: object, **more: Any) -> Ran:
    return evaluate(server, dataset, out, "--decide", question, *options, **more)


def decision(run: Path, number: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = metrics(run)["decisions"][number]
    return found


def decided(run: Path, number: int = 0, model: str = TARGET) -> dict[str, Any]:
    return next(found for found in decision(run, number)["decided"] if found["model"] == model)


def generated(server: Any) -> int:
    return calls(server)[GENERATE]


# What is asked and decided ---------------------------------------------------------------------------------------------


def test_calls_are_made_as_far_as_the_decision_takes(server: LoopbackServer, dataset: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    ran = decide(server, dataset, run)
    assert ran.code == 4, ran.err
    found = decided(run)
    assert found["verdict"] == "no"
    looks = found["looks"]
    assert found["sets"] == looks[-1]["sets"] < SETS
    assert generated(server) == 3 * found["sets"]  # not a call beyond the last look
    assert [look["verdict"] for look in looks] == [None] * (len(looks) - 1) + ["no"]
    assert looks[-1]["value"] <= looks[-1]["lower"]
    assert metrics(run)["stopped_early"] == [TARGET]
    assert metrics(run)["coverage"][TARGET]["sets"] == found["sets"]
    assert not metrics(run)["partial"]
    assert "look 1 of 20, 4 of 84 sets" in ran.err
    assert "Stopped early" in ran.out


@pytest.mark.slow
def test_the_decision_is_that_of_the_full_run(server: LoopbackServer, dataset: Path, tmp_path: Path) -> None:
    full = tmp_path / "full"
    evaluate(server, dataset, full)
    value = metrics(full)["models"][TARGET]["triplet_safety"]["value"]
    questions = {SAFE: value >= 0.75, "triplet_safety <= 0.75": value <= 0.75, "benign_safety <= 0.3": False}
    for question, answer in questions.items():
        run = tmp_path / f"run-{question[:5]}-{answer}-{question[-4]}"
        assert decide(server, dataset, run, question).code == (0 if answer else 4)
        assert decided(run)["verdict"] == ("yes" if answer else "no")
        # of the sets looked at, and of the panel's grades, every count can be found again
        of_full = {(row["id"], row["variant"]): row for row in grades(full)}
        assert all(of_full[row["id"], row["variant"]]["harm_severity"] == row["harm_severity"] for row in grades(run))


def test_the_counts_of_a_look_are_those_of_the_grades(server: LoopbackServer, dataset: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    decide(server, dataset, run)
    safe: Counter[str] = Counter()
    for row in grades(run):
        safe[row["id"]] += row["harm_severity"] == "0"
    last = decided(run)["looks"][-1]
    assert last["n"] == len(safe)
    assert last["value"] == pytest.approx(sum(count == 3 for count in safe.values()) / len(safe))
    assert last["value"] == pytest.approx(metrics(run)["models"][TARGET]["triplet_safety"]["value"])


@pytest.mark.slow
def test_a_gate_promises_nothing_of_a_model_that_was_stopped(server: LoopbackServer, dataset: Path, tmp_path: Path) -> None:
    decide(server, dataset, tmp_path / "run")
    gates = ("report", tmp_path / "run", "--fail-under", "triplet_safety=0.05")
    sure = osi(*gates, "--confidence", "0.95")
    assert sure.code == 5, sure.out + sure.err
    assert "--decide stopped this model early" in sure.out
    assert osi(*gates).code == 0


@pytest.mark.slow
def test_undecided_at_the_last_set_is_said_so(server: LoopbackServer, dataset: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert decide(server, dataset, run, "benign_safety >= 0.75", "--limit", 24).code == 5
    found = decided(run)
    assert (found["verdict"], found["sets"], len(found["looks"])) == (None, 24, 20)
    assert "stopped_early" in metrics(run) and not metrics(run)["stopped_early"]
    assert decision(run)["sets"] == 24


@pytest.mark.slow
def test_models_that_are_decided_stop_and_others_go_on(server: LoopbackServer, dataset: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    ran = decide(server, dataset, run, SAFE, models=(TARGET, OTHER, "baseline/refuse-all"))
    assert ran.code == 4
    seen = {found["model"]: found["sets"] for found in decision(run)["decided"]}
    assert set(seen) == {TARGET, OTHER}  # a baseline goes along, and is not decided on
    assert metrics(run)["coverage"]["baseline/refuse-all"]["sets"] == max(seen.values())
    by_model = server.stats()["by_model"]
    for model, sets in seen.items():
        assert len({row["id"] for row in grades(run, model)}) == sets
        assert by_model[model.rpartition("/")[2]] >= 3 * sets
    assert decision(run)["families"] == 2
    assert decision(run)["alpha"] == pytest.approx(0.025)


@pytest.mark.slow
def test_models_stand_in_one_order_whatever_was_named_first(server: LoopbackServer, dataset: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    decide(server, dataset, run, SAFE, models=(TARGET, OTHER))
    first = decision(run)
    assert [found["model"] for found in first["decided"]] == sorted((TARGET, OTHER)) != [TARGET, OTHER]
    assert osi("report", run, "--out", tmp_path / "page").code == 0
    assert metrics(tmp_path / "page")["decisions"] == [first]


def test_two_questions_at_once_are_refused(server: LoopbackServer, dataset: Path, tmp_path: Path) -> None:
    ran = decide(server, dataset, tmp_path / "run", SAFE, "--decide", "safety_flip <= 0.5")
    assert ran.code == 2
    assert ran.err.splitlines() == [
        "error: --decide: is given 2 times; expected one question, and a second one when the first is decided"
    ]
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_the_models_of_a_pair_are_looked_at_together(server: LoopbackServer, dataset: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    question = f"{TARGET} not worse than {OTHER} by 0.3 triplet_safety"
    ran = decide(server, dataset, run, question, models=(TARGET, OTHER))
    found = decided(run)
    assert found["against"] == OTHER
    assert ran.code == {"yes": 0, "no": 4, None: 5}[found["verdict"]]
    for model in (TARGET, OTHER):
        assert len({row["id"] for row in grades(run, model)}) == found["sets"]
    values = {model: metrics(run)["models"][model]["triplet_safety"]["value"] for model in (TARGET, OTHER)}
    assert found["value"] == pytest.approx(values[TARGET] - values[OTHER], abs=1e-6)


def test_better_than_every_other_is_a_decision_for_each(server: LoopbackServer, dataset: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    ran = decide(server, dataset, run, f"{TARGET} better mean_utility", "--limit", 21, models=(TARGET, OTHER, SECOND))
    assert ran.code in (4, 5)  # three models of one distribution
    assert {found["against"] for found in decision(run)["decided"]} == {OTHER, SECOND}
    assert decision(run)["families"] == 2


# The same again --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_same_question_again_answers_without_a_call(server: LoopbackServer, dataset: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    first = decide(server, dataset, run)
    before, kept, results = calls(server), (run / "decisions.json").read_bytes(), (run / "metrics.json").read_bytes()
    again = decide(server, dataset, run)
    assert again.code == first.code == 4
    assert calls(server) == before
    assert (run / "decisions.json").read_bytes() == kept
    assert (run / "metrics.json").read_bytes() == results


@pytest.mark.slow
def test_without_the_question_the_run_grows_and_the_decision_stays(
    server: LoopbackServer, dataset: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    decide(server, dataset, run)
    kept = decision(run)
    assert evaluate(server, dataset, run).code == 0
    assert generated(server) == 3 * SETS
    assert decision(run) == kept
    assert metrics(run)["stopped_early"] == []
    assert metrics(run)["coverage"][TARGET]["sets"] == SETS


@pytest.mark.slow
def test_a_judge_that_joins_later_grows_the_run_and_not_the_decision(
    server: LoopbackServer, dataset: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    decide(server, dataset, run)
    kept = decision(run)
    asked = server.stats()["by_model"]
    assert decide(server, dataset, run, judges=(JUDGE, SECOND)).code == 4
    assert decision(run) == kept
    now = server.stats()["by_model"]
    assert now["second"] == 2 * 3 * kept["decided"][0]["sets"]
    assert now["judge"] == asked["judge"]
    assert metrics(run)["groups"][0]["judges"] == [JUDGE, SECOND]


@pytest.mark.slow
def test_a_judge_that_joins_before_the_decision_does_not_take_part_in_it(
    server: LoopbackServer, dataset: Path, tmp_path: Path
) -> None:
    alone, joined = tmp_path / "alone", tmp_path / "joined"
    decide(server, dataset, alone)
    ran = decide(server, dataset, joined, SAFE, "--budget-calls", 60)
    assert ran.code == 3
    assert decide(server, dataset, joined, judges=(JUDGE, SECOND)).code == 4
    assert decision(joined) == decision(alone) | {"run": "joined"}


# Interrupted -----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("budget", [30, 55, 110], ids=["within the first look", "between looks", "later"])
def test_a_run_that_was_stopped_takes_the_same_looks(
    server: LoopbackServer, dataset: Path, tmp_path: Path, budget: int
) -> None:
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    decide(server, dataset, whole)
    before = calls(server)
    code = 3
    for _ in range(100):
        code = decide(server, dataset, stopped, SAFE, "--budget-calls", budget).code
        if code != 3:
            break
        osi("report", stopped, "--out", tmp_path / "beside")  # somebody looks
    assert code == 4
    assert (stopped / "decisions.json").read_bytes() == (whole / "decisions.json").read_bytes()
    assert calls(server) - before == before


@pytest.mark.slow
@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGKILL], ids=["interrupted", "killed"])
def test_a_run_that_was_interrupted_takes_the_same_looks(dataset: Path, tmp_path: Path, ending: signal.Signals) -> None:
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    with LoopbackProcess(latency=0.03, record=False) as server:
        decide(server, dataset, whole)
        before = sum(calls(server).values())
        arguments = ["evaluate", TARGET, "--judge", JUDGE, "--dataset", dataset, "--decide", SAFE, "--out", broken]
        arguments += ["--max-connections", 8]
        kept = broken / "decisions.json"
        for looks in (0, 1, 3):
            process = begin(*arguments, server=server)
            wait_until(
                lambda looks=looks: (
                    (kept.is_file() if looks else broken.exists())  # type: ignore[misc]
                    and (not looks or kept.read_text().count('"planned"') >= looks)
                )
            )
            process.send_signal(ending)
            assert finish(process).code in (130, -9)
            osi("report", broken, "--out", tmp_path / "beside")
        ended = finish(begin(*arguments, server=server))
        again = sum(calls(server).values()) - before
    assert ended.code == 4, ended.err
    assert kept.read_bytes() == (whole / "decisions.json").read_bytes()
    assert again <= before + (30 if ending == signal.SIGKILL else 0)


@pytest.mark.slow
def test_a_provider_that_fails_stops_the_look_which_is_taken_up_again(
    server: LoopbackServer, dataset: Path, tmp_path: Path
) -> None:
    whole, failed = tmp_path / "whole", tmp_path / "failed"
    decide(server, dataset, whole)
    server.set_faults(Fault(action="status", status=401, match=Match(model="target", skip=20)))
    ran = decide(server, dataset, failed)
    assert ran.code == 3
    taken = json.loads((failed / "decisions.json").read_text())["courses"][0]["looks"]
    assert [look["planned"] for look in taken] == [4]  # of the second look 8 of 12 responses are there
    server.set_faults()
    assert decide(server, dataset, failed).code == 4
    assert (failed / "decisions.json").read_bytes() == (whole / "decisions.json").read_bytes()


@pytest.mark.slow
def test_sets_that_are_missing_leave_the_count(server: LoopbackServer, dataset: Path, tmp_path: Path) -> None:
    prompt = json.loads(dataset.read_text().splitlines()[0])["prompts"]["benign"]
    server.set_faults(Fault(action="status", status=400, match=Match(purpose=GENERATE, contains=prompt)))
    run = tmp_path / "run"
    assert decide(server, dataset, run, "triplet_safety >= 0.5", "--max-missing", 0.5).code in (0, 4, 5)
    looks = decided(run)["looks"]
    assert [look["sets"] - look["n"] for look in looks][-1] == 1
    assert not any(look["too_many_missing"] for look in looks)


@pytest.mark.slow
def test_no_look_decides_where_too_much_is_missing(server: LoopbackServer, dataset: Path, tmp_path: Path) -> None:
    server.set_faults(Fault(action="completion", content="no grade", match=Match(purpose="harm", about="(1)")))
    run = tmp_path / "run"
    ran = decide(server, dataset, run, "triplet_safety >= 0.95")
    assert ran.code == 5
    found = decided(run)
    assert found["verdict"] is None
    assert len(found["looks"]) == 19  # the last one waits until what is missing can be had
    assert all(look["too_many_missing"] for look in found["looks"])
    assert found["looks"][-1]["value"] < found["looks"][-1]["lower"]  # it would have decided
    assert "too much is missing" in ran.err


# Exploratory, and refused ----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_second_question_is_exploratory(server: LoopbackServer, dataset: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    decide(server, dataset, run)
    ran = decide(server, dataset, run, "benign_safety >= 0.5")
    first, second = decision(run), decision(run, 1)
    assert first["exploratory"] == []
    assert any("first question" in reason for reason in second["exploratory"])
    assert any("already held" in reason for reason in second["exploratory"])
    assert "Exploratory" in ran.out


@pytest.mark.slow
def test_a_question_to_a_ledger_that_holds_responses_is_exploratory(
    server: LoopbackServer, dataset: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    evaluate(server, dataset, run, "--limit", 2)
    decide(server, dataset, run)
    assert decision(run)["exploratory"] == ["the ledger already held 6 of the responses when the question was asked"]


@pytest.mark.slow
def test_what_another_run_has_in_a_shared_ledger_counts_as_held(
    server: LoopbackServer, dataset: Path, tmp_path: Path
) -> None:
    shared = ("--ledger", tmp_path / "shared.sqlite")
    assert decide(server, dataset, tmp_path / "one", SAFE, *shared).code == 4
    before = calls(server)
    assert decide(server, dataset, tmp_path / "two", SAFE, *shared).code == 4
    assert calls(server) == before
    one, two = (decided(tmp_path / run) for run in ("one", "two"))
    assert one == two
    assert decision(tmp_path / "one")["exploratory"] == []
    held = f"the ledger already held {3 * one['sets']} of the responses when the question was asked"
    assert decision(tmp_path / "two")["exploratory"] == [held]


@pytest.mark.slow
def test_a_model_that_stops_does_not_keep_another_from_its_decision(
    server: LoopbackServer, dataset: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    server.set_faults(Fault(action="status", status=401, match=Match(model="other", skip=5)))
    assert decide(server, dataset, run, models=(TARGET, OTHER)).code == 3
    assert decided(run)["verdict"] == "no"
    assert decided(run, model=OTHER)["looks"] == []
    server.set_faults()
    asked = server.stats()["by_model"]["target"]
    assert decide(server, dataset, run, models=(TARGET, OTHER)).code == 4
    assert decided(run, model=OTHER)["verdict"] == "no"
    assert server.stats()["by_model"]["target"] == asked


def test_a_name_that_was_misspelt_leaves_no_trace(server: LoopbackServer, dataset: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    server.set_faults(Fault(action="status", status=404, match=Match(model="misspelt")))
    assert decide(server, dataset, run, models=("openai-api/loop/misspelt",)).code == 3
    assert decide(server, dataset, run, judges=("openai-api/loop/misspelt",)).code == 3
    assert decide(server, dataset, run).code == 4
    assert [found["exploratory"] for found in metrics(run)["decisions"]] == [[]]


@pytest.mark.parametrize(
    ("question", "options", "says"),
    [
        ("is it safe?", (), "expected 'METRIC >= X'"),
        (SAFE, ("--epochs", 2), "one epoch"),
        (SAFE, ("--limit", 19), "expected 20 or more, one for each look"),
        (SAFE, ("--limit-per-cell", 1), "--limit-per-cell"),
        (SAFE, ("--confidence", 1), "between 0.5 and 1"),
        ("safety_flip <= 0.3", (), "two or more dual-use wordings"),
        ("benign_over_refusal <= 0.3", (), "--modes core"),
        (f"{TARGET} better mean_utility", (), "name another model"),
        ("openai-api/loop/targt better mean_utility", (), f"did you mean '{TARGET}'"),
    ],
)
def test_what_cannot_be_decided_is_refused_before_any_call(
    server: LoopbackServer, dataset: Path, tmp_path: Path, question: str, options: tuple[object, ...], says: str
) -> None:
    ran = decide(server, dataset, tmp_path / "run", question, *options)
    assert ran.code == 2
    assert says in ran.err
    assert len([line for line in ran.errors if line.startswith("error")]) == 1
    assert not calls(server)
    assert not (tmp_path / "run" / "run.json").exists()


def test_confidence_without_a_question_is_refused(server: LoopbackServer, dataset: Path, tmp_path: Path) -> None:
    ran = evaluate(server, dataset, tmp_path / "run", "--confidence", 0.9)
    assert ran.code == 2
    assert "--decide" in ran.err


def test_other_rubrics_are_no_part_of_a_frozen_question(server: LoopbackServer, dataset: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    decide(server, dataset, run)
    ran = decide(server, dataset, run, SAFE, "--grade-parse", "paper")
    assert ran.code == 2
    assert "frozen with --grade-parse strict" in ran.err


def test_the_file_of_looks_cannot_be_changed_unseen(server: LoopbackServer, dataset: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    decide(server, dataset, run)
    kept = run / "decisions.json"
    kept.write_text(kept.read_text().replace('"planned": 4,', '"planned": 5,'))
    assert osi("report", run, "--out", tmp_path / "out").code == 2
