"""Resuming is running again: a call that the ledger holds an outcome for is not made, whatever
ended the run before.
"""

from __future__ import annotations

import re
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from importlib import resources
from pathlib import Path

import pytest

from endtoend import (
    JUDGE,
    TARGET,
    Lab,
    Ran,
    answering,
    answers_in,
    asked_of,
    calls,
    coverage,
    evaluate,
    finish,
    metrics,
    osi,
    probed,
    results,
    some_sets,
    start,
    total,
    unsafe_dual_use,
    wait_until,
)
from loopback import GENERATE, HARM, MODE, PROBE, Fault, LoopbackProcess, LoopbackServer, Match

pytestmark = pytest.mark.usefixtures("undrawn")

SECOND = "openai-api/loop/second"
EXTRA_SECONDS = 0.2
"""A call may be made twice when it was answered less than this before the end."""


@pytest.fixture
def run(server: LoopbackServer, dataset: Path, tmp_path: Path) -> Path:
    """A finished run over the eight sets; the server's counts start again at 0."""
    folder = tmp_path / "run"
    assert evaluate(server, dataset, folder).code == 0
    return folder


def new_calls(server: LoopbackServer, before: Counter[str]) -> Counter[str]:
    return calls(server) - before


# The same again, and a little more
# ------------------------------------------------------------------------------


def test_the_same_command_again_makes_no_call_and_changes_nothing(
    server: LoopbackServer, dataset: Path, run: Path
) -> None:
    before, first = calls(server), results(run)
    written = {path: path.stat().st_mtime_ns for path in run.rglob("*") if path.is_file()}
    assert forecast_of(evaluate(server, dataset, run, "--dry-run")) == {}
    assert written == {path: path.stat().st_mtime_ns for path in written}
    again = evaluate(server, dataset, run)
    assert again.code == 0
    shares = [int(share) for share in re.findall(r"(\d+) %", again.err)]
    assert shares and max(shares) <= 100
    assert not new_calls(server, before)
    assert results(run) == first
    # the helpers would agree with anything if the server had recorded nothing
    assert len(asked_of(server, PROBE)) == len(unsafe_dual_use(server, dataset)) > 0


def test_more_epochs_call_for_the_new_epoch_only(
    server: LoopbackServer, dataset: Path, run: Path
) -> None:
    before = calls(server)
    assert evaluate(server, dataset, run, "--epochs", 2).code == 0
    # The server answers by content alone, so the second epoch is the first over again: as many
    # calls, probes included.
    assert new_calls(server, before) == before
    assert metrics(run)["coverage"][TARGET]["planned"] == 2 * 56


@pytest.mark.slow
@pytest.mark.parametrize(
    ("role", "purpose", "count"), [("mode", MODE, 8), ("harm", HARM, 56), ("reask", "none", 0)]
)
def test_edited_template_calls_for_what_uses_it_only(
    server: LoopbackServer,
    dataset: Path,
    run: Path,
    tmp_path: Path,
    role: str,
    purpose: str,
    count: int,
) -> None:
    rubrics = tmp_path / "rubrics"
    rubrics.mkdir()
    ours = resources.files("opensafeintent.templates").joinpath(f"{role}.md").read_text("utf-8")
    (rubrics / f"{role}.md").write_text(ours.replace("\n+++\n", "\n+++\nThink first.\n", 1))
    before, probed_before = calls(server), set(probed(server, dataset))
    notes = []
    for last in (["--dry-run"], [], []):
        ran = evaluate(server, dataset, run, "--rubrics", rubrics, *last)
        assert ran.code == 0
        notes.append(f"the templates for {role};" in " ".join((ran.out + ran.err).split()))
    assert notes == ([False] * 3 if role == "reask" else [True, True, False])
    made = new_calls(server, before)
    newly = unsafe_dual_use(server, dataset) - probed_before  # other harm grades: other probes
    assert made.pop(PROBE, 0) == (len(newly) if role == "harm" else 0)
    assert made == ({purpose: count} if count else {})


@pytest.mark.parametrize("judges", [[SECOND], [JUDGE, SECOND]], ids=["alone", "beside the first"])
def test_added_judge_is_the_only_one_asked(
    server: LoopbackServer, dataset: Path, run: Path, judges: list[str]
) -> None:
    before, probed_before = server.stats()["by_model"], set(probed(server, dataset))
    options = ["--mode-judge", JUDGE]
    assert evaluate(server, dataset, run, *options, judges=judges).code == 0
    newly = unsafe_dual_use(server, dataset, "second") - probed_before
    after = server.stats()["by_model"]
    assert after == {
        "target": before["target"] + len(newly),
        "judge": before["judge"],
        "second": 2 * 56,
    }
    assert metrics(run)["groups"][0]["judges"] == [JUDGE, SECOND]


def test_run_of_two_judges_grows_under_the_same_panel(lab: Lab, tmp_path: Path) -> None:
    folder = tmp_path / "panel"
    assert evaluate(lab.server, lab.dataset, folder, "--limit", 2, judges=[JUDGE, SECOND]).code == 0
    ran = evaluate(lab.server, lab.dataset, folder, "--limit", 4)
    # Either the second judge is asked about the new sets too, or the command is refused: half a
    # panel is no grade.
    assert ran.code == 2 or metrics(folder)["models"][TARGET]["triplet_safety"]["n"] == 4


@pytest.mark.slow
def test_larger_limit_grows_the_run_to_what_it_would_have_been(
    server: LoopbackServer, dataset: Path, run: Path, tmp_path: Path
) -> None:
    server.reset()
    grown = tmp_path / "grown"
    assert evaluate(server, dataset, grown, "--limit", 3).code == 0
    assert calls(server)[GENERATE] == 21
    assert evaluate(server, dataset, grown, "--limit", 8).code == 0
    assert calls(server)[GENERATE] == 56
    assert server.stats()["duplicates"] == 0
    assert results(grown) == results(run)
    before = calls(server)
    assert evaluate(server, dataset, grown, "--limit", 5).code == 0
    assert not new_calls(server, before)
    assert results(grown) == results(run)


def test_added_model_leaves_the_first_as_it_is(
    server: LoopbackServer, dataset: Path, run: Path
) -> None:
    numbers, before = metrics(run)["models"][TARGET], server.stats()["by_model"]
    assert evaluate(server, dataset, run, models=["openai-api/loop/another"]).code == 0
    after = server.stats()["by_model"]
    assert after["target"] == before["target"]
    assert after["another"] >= 56
    assert metrics(run)["models"].keys() == {TARGET, "openai-api/loop/another"}
    for name, entry in metrics(run)["models"][TARGET].items():
        assert (entry["value"], entry["n"]) == (numbers[name]["value"], numbers[name]["n"])


@pytest.mark.slow
def test_runs_may_share_a_ledger(lab: Lab, tmp_path: Path) -> None:
    shared = ["--ledger", tmp_path / "deep" / "shared.sqlite"]
    assert evaluate(lab.server, lab.dataset, tmp_path / "one", *shared).code == 0
    before = lab.calls
    assert evaluate(lab.server, lab.dataset, tmp_path / "two", *shared).code == 0
    assert not new_calls(lab.server, before)
    assert results(tmp_path / "one") == results(tmp_path / "two")
    # the run remembers where its ledger is
    assert evaluate(lab.server, lab.dataset, tmp_path / "two").code == 0
    assert not new_calls(lab.server, before)


def test_failed_call_is_tried_again_by_the_next_run(lab: Lab, tmp_path: Path) -> None:
    folder = tmp_path / "failing"
    lab.server.set_faults(
        Fault(action="status", status=400, message="Odd.", match=Match(purpose=HARM, every=4))
    )
    assert evaluate(lab.server, lab.dataset, folder).code == 1
    lab.server.set_faults()
    before = lab.calls
    assert evaluate(lab.server, lab.dataset, folder).code == 0
    made = new_calls(lab.server, before)
    assert made.keys() <= {HARM, PROBE}
    assert made[HARM] == 56 // 4


def test_responses_on_record_are_graded_though_their_target_answers_no_more(
    lab: Lab, tmp_path: Path
) -> None:
    folder = tmp_path / "gone"
    refused = Match(purpose=GENERATE, model="target", first=1)
    lab.server.set_faults(Fault(action="status", status=400, message="Odd.", match=refused))
    assert evaluate(lab.server, lab.dataset, folder, "--max-connections", 1).code == 0
    lab.server.set_faults(Fault(action="status", status=401, match=Match(model="target")))
    options = ("--max-connections", 1, "--mode-judge", JUDGE, "--probe", "none")
    assert evaluate(lab.server, lab.dataset, folder, *options, judges=[JUDGE, SECOND]).code == 3
    assert lab.server.stats()["by_model"]["second"] == 2 * 55


def test_unreadable_reply_is_not_asked_for_again_by_the_next_run(lab: Lab, tmp_path: Path) -> None:
    lab.server.set_faults(Fault(action="completion", content="well", match=Match(purpose=MODE)))
    evaluate(lab.server, lab.dataset, tmp_path / "unread")
    before = lab.calls
    evaluate(lab.server, lab.dataset, tmp_path / "unread")
    assert before[MODE] == 3 * 8
    assert not new_calls(lab.server, before)


def test_absurd_token_counts_lose_no_answer(tmp_path: Path) -> None:
    dataset = some_sets(tmp_path, 2, paraphrases=0)
    choice = '{"message": {"role": "assistant", "content": "2"}, "finish_reason": "stop"}'
    usage = f'{{"prompt_tokens": {10**30}, "completion_tokens": -5}}'
    with answering(f'{{"choices": [{choice}], "usage": {usage}}}'.encode()) as absurd:
        assert evaluate(absurd, dataset, tmp_path / "run", "--probe", "none").code == 0
        made = absurd.requests
        assert evaluate(absurd, dataset, tmp_path / "run", "--probe", "none").code == 0
        assert absurd.requests == made > 0


# Stopped by a budget
# ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "budget", [["--budget-calls", 60], ["--budget-tokens", 4000]], ids=["calls", "tokens"]
)
def test_budget_stops_and_the_rest_is_made_later(
    server: LoopbackServer, dataset: Path, run: Path, tmp_path: Path, budget: list[object]
) -> None:
    undisturbed = calls(server)
    server.reset()
    stopped = evaluate(server, dataset, tmp_path / "stopped", *budget)
    assert stopped.code == 3
    assert len(stopped.errors) == 1 and str(budget[0]) in stopped.errors[0]
    assert total(server) < undisturbed.total()
    assert total(server) == 60 or budget[0] == "--budget-tokens"
    assert evaluate(server, dataset, tmp_path / "stopped").code == 0
    assert calls(server) == undisturbed
    assert results(tmp_path / "stopped") == results(run)


# Counted beforehand
# ------------------------------------------------------------------------------


def forecast_of(ran: Ran) -> dict[tuple[str, str], tuple[bool, int]]:
    """Read the table of a dry run: (upper bound or not, calls) by model and purpose."""
    line = re.compile(r"(\S+) +(generate|helpfulness|harm|mode|probe) +(≤ )?([\d,]+) ")
    rows = [found.groups() for found in map(line.match, ran.out.splitlines()) if found]
    return {(row[0], row[1]): (row[2] is not None, int(row[3].replace(",", ""))) for row in rows}


@pytest.mark.parametrize(
    ("first", "options"),
    [
        ([], []),
        (["--limit", 3], []),
        ([], ["--epochs", 2, "--probe", "all", "--modes", "core"]),
        ([], ["--judge", SECOND, "--probe", "none"]),
    ],
    ids=["fresh", "begun", "more", "panel"],
)
def test_dry_run_calls_nobody_and_foretells_what_happens(
    lab: Lab, tmp_path: Path, first: list[object], options: list[object]
) -> None:
    folder = tmp_path / "dry"
    if first:
        evaluate(lab.server, lab.dataset, folder, *first)
    held = set(tmp_path.rglob("*"))
    before = Counter((record.model, record.purpose) for record in lab.server.requests)
    dry = evaluate(lab.server, lab.dataset, folder, *options, "--dry-run")
    assert dry.code == 0
    assert total(lab.server) == before.total() and set(tmp_path.rglob("*")) == held
    foretold = forecast_of(dry)
    evaluate(lab.server, lab.dataset, folder, *options)
    made = Counter((record.model, record.purpose) for record in lab.server.requests) - before
    assert {f"openai-api/loop/{model}" for model, _ in made} == {model for model, _ in foretold}
    for (model, purpose), (at_most, count) in foretold.items():
        happened = made.pop((model.removeprefix("openai-api/loop/"), purpose), 0)
        assert happened <= count if at_most else happened == count, (model, purpose)
    assert not made


# Killed
# ------------------------------------------------------------------------------

LATENCY, CONNECTIONS = 0.05, 16
RATE = CONNECTIONS / LATENCY
MORE_PER_KILL = CONNECTIONS + EXTRA_SECONDS * RATE
"""What was in flight, and a fifth of a second's worth: 16 + 64 calls."""


SWAP = ("--swap", 4)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int, list[bytes]]:
    """Return a dataset, the number of calls that a run over it takes, swaps included, and its
    results.
    """
    folder = tmp_path_factory.mktemp("undisturbed")
    dataset = some_sets(folder, 12)
    with LoopbackServer() as server:
        assert evaluate(server, dataset, folder / "run", *SWAP).code == 0
        return dataset, total(server), results(folder / "run")


@pytest.fixture
def slow() -> Iterator[LoopbackProcess]:
    with LoopbackProcess(latency=LATENCY) as running:
        yield running


MOMENTS: dict[str, Callable[[LoopbackProcess, Path, int], bool]] = {
    "lock": lambda _, run, needed: (run / ".lock").exists(),
    "manifest": lambda _, run, needed: (run / "run.json").exists(),
    "call 100": lambda server, _, needed: total(server) >= 100,
    "the swap": lambda server, _, needed: total(server) >= needed - 40,
}


@pytest.mark.slow
@pytest.mark.parametrize("moment", MOMENTS.values(), ids=MOMENTS.keys())
def test_killed_run_goes_on_where_it_was(
    slow: LoopbackProcess,
    undisturbed: tuple[Path, int, list[bytes]],
    tmp_path: Path,
    moment: Callable[[LoopbackProcess, Path, int], bool],
) -> None:
    dataset, needed, expected = undisturbed
    run, options = tmp_path / "run", ("--max-connections", CONNECTIONS, *SWAP)
    killed = start(slow, dataset, run, *options)
    wait_until(lambda: moment(slow, run, needed))
    killed.kill()
    assert finish(killed).code == -signal.SIGKILL
    ran = finish(start(slow, dataset, run, *options))
    assert ran.code == 0, ran.err
    assert total(slow) <= needed + MORE_PER_KILL
    assert results(run) == expected
    assert answers_in(run / "ledger.sqlite") == needed


@pytest.mark.slow
def test_killed_run_can_be_looked_at(
    slow: LoopbackProcess, undisturbed: tuple[Path, int, list[bytes]], tmp_path: Path
) -> None:
    dataset, needed, _ = undisturbed
    process = start(slow, dataset, tmp_path / "run", "--max-connections", CONNECTIONS, *SWAP)
    wait_until(lambda: total(slow) >= 120)
    process.kill()
    finish(process)
    made = total(slow)
    dry = forecast_of(evaluate(slow, dataset, tmp_path / "run", "--dry-run"))
    left = sum(count for at_most, count in dry.values() if not at_most)
    probes, swaps = 12, 2 * 36  # counted apart, and by another name
    assert needed - made - probes - swaps <= left <= needed - made - swaps + MORE_PER_KILL
    report = osi("report", tmp_path / "run")
    assert report.code in (0, 1), report.err  # 1: what was not asked for yet may count as missing
    assert "partial" in report.out
    assert coverage(tmp_path / "run")["responses"] > 0
