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
    WORDINGS,
    Lab,
    Ran,
    answering,
    answers_in,
    asked_of,
    coverage,
    evaluate,
    fails,
    finish,
    metrics,
    osi,
    probed,
    results,
    says,
    some_sets,
    start,
    total,
    unsafe_dual_use,
    wait_until,
)
from loopback import GENERATE, HARM, MODE, PROBE, LoopbackProcess, LoopbackServer
from opensafeintent.taxonomy import GRADE_OF, QUESTIONS

SECOND = "openai-api/loop/second"


@pytest.fixture
def done(lab: Lab) -> Lab:
    """A finished run over the eight sets."""
    assert lab.evaluate().code == 0
    return lab


# The same again, and a little more
# ------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_same_command_again_makes_no_call_and_changes_nothing(done: Lab) -> None:
    before, first = done.calls, results(done.run)
    written = {path: path.stat().st_mtime_ns for path in done.run.rglob("*") if path.is_file()}
    assert forecast_of(done.evaluate("--dry-run")) == {}
    assert written == {path: path.stat().st_mtime_ns for path in written}
    again = done.evaluate()
    assert again.code == 0
    assert not re.findall(r"(\d+) %", again.err)  # of no call there is no share
    assert "0 calls made" in again.out
    assert done.calls == before
    assert results(done.run) == first
    # the helpers would agree with anything if the server had recorded nothing
    assert len(asked_of(done.server, PROBE)) == len(unsafe_dual_use(done.server, done.dataset)) > 0


@pytest.mark.slow
def test_a_run_goes_on_without_the_file_of_its_prompt_sets(done: Lab) -> None:
    content, calls = done.dataset.read_bytes(), done.calls
    done.dataset.unlink()
    try:
        ran = done.evaluate()
        assert ran.code == 0 and done.calls == calls
        assert f"{done.dataset}: no such dataset" in ran.err
        assert "the run’s own prompt-sets are used" in ran.err
        other = evaluate(done.server, done.dataset.with_name("other.jsonl"), done.run).refusal
        own = f"{done.run} has prompt-sets of its own ({done.dataset.stem}): leave --dataset out"
        assert "other.jsonl: no such dataset" in other and own in other
    finally:
        done.dataset.write_bytes(content)


@pytest.mark.slow
def test_more_epochs_call_for_the_new_epoch_only(done: Lab) -> None:
    before = done.calls
    assert done.evaluate("--epochs", 2).code == 0
    # The server answers by content alone, so the second epoch is the first over again: as many
    # calls, probes included.
    assert done.calls - before == before
    assert metrics(done.run)["coverage"][TARGET]["planned"] == 2 * 56


@pytest.mark.slow
@pytest.mark.parametrize(("role", "purpose", "count"), [("harm", HARM, 56), ("reask", "none", 0)])
def test_in_a_new_run_an_edited_template_calls_for_what_uses_it_only(
    done: Lab, tmp_path: Path, role: str, purpose: str, count: int
) -> None:
    rubrics = tmp_path / "rubrics"
    rubrics.mkdir()
    ours = resources.files("opensafeintent.templates").joinpath(f"{role}.md").read_text("utf-8")
    (rubrics / f"{role}.md").write_text(ours.replace("\n+++\n", "\n+++\nThink first.\n", 1))
    before, probed_before = done.calls, set(probed(done.server, done.dataset))
    refused = done.evaluate("--rubrics", rubrics).refusal
    assert f"templates for {role} (--rubrics): the run has its own, this has others" in refused
    way_out = ("--ledger", done.run / "ledger.sqlite", "--rubrics", rubrics)
    for _ in range(2):
        ran = evaluate(done.server, done.dataset, tmp_path / "edited", *way_out)
        assert ran.code == 0
    made_calls = done.calls - before
    # other harm grades: other probes
    newly = unsafe_dual_use(done.server, done.dataset) - probed_before
    assert made_calls.pop(PROBE, 0) == (len(newly) if role == "harm" else 0)
    assert made_calls == ({purpose: count} if count else {})


@pytest.mark.slow
def test_added_judge_is_the_only_one_asked(done: Lab) -> None:
    before, probed_before = done.server.stats()["by_model"], set(probed(done.server, done.dataset))
    alone = done.evaluate("--mode-judge", JUDGE, judges=[SECOND])
    assert f"judges (--judge): the run has {JUDGE}, this has {SECOND}" in alone.refusal
    assert done.evaluate("--mode-judge", JUDGE, judges=[JUDGE, SECOND]).code == 0
    newly = unsafe_dual_use(done.server, done.dataset, "second") - probed_before
    asked = {"target": before["target"] + len(newly), "second": len(QUESTIONS) * 56}
    assert done.server.stats()["by_model"] == before | asked
    assert metrics(done.run)["judges"] == [JUDGE, SECOND]


@pytest.mark.slow
def test_larger_limit_grows_the_run_to_what_it_would_have_been(done: Lab, tmp_path: Path) -> None:
    done.server.reset()
    for limit, generated, code in ((3, 21, 0), (8, 56, 0), (5, 56, 2)):
        ran = evaluate(done.server, done.dataset, tmp_path / "grown", "--limit", limit)
        assert (ran.code, done.calls[GENERATE]) == (code, generated)
    assert done.server.stats()["duplicates"] == 0
    assert results(tmp_path / "grown") == results(done.run)


@pytest.mark.slow
def test_added_model_leaves_the_first_as_it_is(done: Lab) -> None:
    numbers, before = metrics(done.run)["models"][TARGET], done.server.stats()["by_model"]
    assert done.evaluate(models=["openai-api/loop/another"]).code == 0
    after = done.server.stats()["by_model"]
    assert after["target"] == before["target"]
    assert after["another"] >= 56
    assert metrics(done.run)["models"].keys() == {TARGET, "openai-api/loop/another"}
    for name, entry in metrics(done.run)["models"][TARGET].items():
        assert (entry["value"], entry["n"]) == (numbers[name]["value"], numbers[name]["n"])


def test_models_that_owe_no_call_need_no_key(server: LoopbackServer, tmp_path: Path) -> None:
    dataset, run = some_sets(tmp_path, 1, paraphrases=0), tmp_path / "run"
    gone = "openai-api/gone/target"
    keys = {"GONE_BASE_URL": server.base_url, "GONE_API_KEY": "once"}
    ran = evaluate(server, dataset, run, "--probe", "none", models=[gone], **keys)
    assert ran.code == 0, ran.err
    assert osi("evaluate", TARGET, "--out", run, server=server).code == 0
    panel = ("--judge", JUDGE, "--judge", SECOND)
    ran = osi("evaluate", gone, TARGET, *panel, "--out", run, server=server)
    assert ran.code == 0, ran.err
    # the two models say the same, which is graded once
    assert server.stats()["by_model"]["second"] == len(QUESTIONS) * 3
    more = osi("evaluate", gone, *panel, "--epochs", 2, "--out", run, server=server)
    assert f"{gone}: set GONE_BASE_URL" in more.refusal


@pytest.mark.slow
def test_failed_call_is_tried_again_by_the_next_run(lab: Lab) -> None:
    lab.server.set_faults(fails(400, HARM, every=4))
    assert lab.evaluate().code == 1
    lab.server.set_faults()
    before = lab.calls
    assert lab.evaluate().code == 0
    made_calls = lab.calls - before
    assert made_calls.keys() <= {HARM, PROBE}
    assert made_calls[HARM] == 56 // 4


@pytest.mark.slow
def test_responses_on_record_are_graded_though_their_target_answers_no_more(lab: Lab) -> None:
    lab.server.set_faults(fails(400, GENERATE, model="target", first=1))
    options = ("--max-connections", 1, "--mode-judge", JUDGE, "--probe", "none")
    assert lab.evaluate(*options).code == 0
    lab.server.set_faults(fails(401, model="target"))
    assert lab.evaluate(*options, judges=[JUDGE, SECOND]).code == 3
    assert lab.server.stats()["by_model"]["second"] == len(QUESTIONS) * 55


@pytest.mark.slow
def test_unreadable_reply_is_not_asked_for_again_by_the_next_run(lab: Lab) -> None:
    lab.server.set_faults(says("well", MODE))
    lab.evaluate()
    before = lab.calls
    lab.evaluate()
    assert before[MODE] == 3 * 8
    assert lab.calls == before


@pytest.mark.slow
def test_absurd_token_counts_lose_no_answer(tmp_path: Path) -> None:
    dataset = some_sets(tmp_path, 2, paraphrases=0)
    choice = '{"message": {"role": "assistant", "content": "2"}, "finish_reason": "stop"}'
    usage = f'{{"prompt_tokens": {10**30}, "completion_tokens": -5}}'
    with answering(f'{{"choices": [{choice}], "usage": {usage}}}'.encode()) as absurd:
        call_counts = []
        for _ in range(2):
            options = ("--probe", "none", "--max-missing", 1)  # 2 is no mode
            assert evaluate(absurd, dataset, tmp_path / "run", *options).code == 0
            call_counts.append(total(absurd))
    assert call_counts[0] == call_counts[1] > 0


# Stopped by a budget
# ------------------------------------------------------------------------------


@pytest.mark.slow
def test_budget_stops_and_the_rest_is_made_later(done: Lab, tmp_path: Path) -> None:
    undisturbed = done.calls
    done.server.reset()
    stopped = evaluate(done.server, done.dataset, tmp_path / "stopped", "--budget-calls", 60)
    assert stopped.code == 3
    assert len(stopped.errors) == 1 and "--budget-calls" in stopped.errors[0]
    assert total(done.server) < undisturbed.total()
    assert total(done.server) == 60
    assert evaluate(done.server, done.dataset, tmp_path / "stopped").code == 0
    assert done.calls == undisturbed
    assert results(tmp_path / "stopped") == results(done.run)


# Counted beforehand
# ------------------------------------------------------------------------------


def forecast_of(ran: Ran) -> dict[tuple[str, str], tuple[bool, int]]:
    """Read the table of a dry run: (upper bound or not, calls) by model and purpose."""
    purposes = "|".join((GENERATE, *GRADE_OF, MODE, PROBE))
    line = re.compile(rf"(\S+) +({purposes}) +(≤ )?([\d,]+) ")
    rows = [match.groups() for match in map(line.match, ran.out.splitlines()) if match]
    return {(row[0], row[1]): (row[2] is not None, int(row[3].replace(",", ""))) for row in rows}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("first", "options"),
    [
        ([], []),
        (["--limit", 3], ["--limit", 8]),
        ([], ["--epochs", 2, "--probe", "all", "--modes", "core"]),
        ([], ["--judge", SECOND, "--probe", "none"]),
        (["--probe", "all"], ["--judge", SECOND]),
    ],
    ids=["fresh", "begun", "more", "panel", "a judge joins"],
)
def test_dry_run_calls_nobody_and_foretells_what_happens(
    lab: Lab, tmp_path: Path, first: list[object], options: list[object]
) -> None:
    if first:
        lab.evaluate(*first)
    paths_before = set(tmp_path.rglob("*"))
    before = Counter((record.model, record.purpose) for record in lab.server.requests)
    dry = lab.evaluate(*options, "--dry-run")
    assert dry.code == 0
    assert total(lab.server) == before.total() and set(tmp_path.rglob("*")) == paths_before
    foretold = forecast_of(dry)
    assert foretold
    lab.evaluate(*options)
    made_calls = Counter((record.model, record.purpose) for record in lab.server.requests) - before
    assert {f"openai-api/loop/{model}" for model, _ in made_calls} == {
        model for model, _ in foretold
    }
    for (model, purpose), (at_most, count) in foretold.items():
        happened = made_calls.pop((model.removeprefix("openai-api/loop/"), purpose), 0)
        assert happened <= count if at_most else happened == count, (model, purpose)
    assert not made_calls


# Killed
# ------------------------------------------------------------------------------

LATENCY, CONNECTIONS = 0.05, 16
MORE_PER_KILL = CONNECTIONS + 0.2 * CONNECTIONS / LATENCY
"""Calls that may be made twice: those in flight, and what was answered in the last fifth of a second
(16 + 64).
"""
Undisturbed = tuple[Path, int, list[bytes]]
SWAP = ("--audit", "swap=4")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
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
    undisturbed: Undisturbed,
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
def test_a_run_can_be_looked_at_while_it_is_written_and_when_it_was_killed(
    slow: LoopbackProcess, undisturbed: Undisturbed, tmp_path: Path
) -> None:
    dataset, needed, _ = undisturbed
    run, look = tmp_path / "run", tmp_path / "look"
    process = start(slow, dataset, run, "--max-connections", CONNECTIONS, *SWAP)
    wait_until(lambda: total(slow) >= 40)
    process.send_signal(signal.SIGSTOP)
    is_partial(look, osi("report", run, "--out", look))
    process.kill()
    finish(process)
    made_count = total(slow)
    dry = forecast_of(evaluate(slow, dataset, run, "--dry-run"))
    left_count = sum(count for at_most, count in dry.values() if not at_most)
    probes, swaps = 12, len(QUESTIONS) * 36  # counted apart, and by another name
    assert (
        needed - made_count - probes - swaps
        <= left_count
        <= needed - made_count - swaps + MORE_PER_KILL
    )
    is_partial(run, osi("report", run))


def is_partial(folder: Path, ran: Ran) -> None:
    """Check that a report says that it is partial."""
    assert ran.code in (0, 1), ran.err  # 1: what was not asked for yet may count as missing
    there = coverage(folder)
    assert 0 < there["responses"] < there["planned"] == 12 * WORDINGS
    assert metrics(folder)["partial"] is True
    assert "warning: Partial: " in ran.out + ran.err
    page = (folder / "report.html").read_text("utf-8")
    assert re.search(r"Partial: \d+ of \d+ planned responses of .* were asked for", page)
