"""A guard model beside the judges: its calls, its verdicts, and what a run shows of them."""

from __future__ import annotations

import csv
import json
import re
from collections import Counter
from pathlib import Path

import pytest

from endtoend import JUDGE, TARGET, Lab, fails, grades, osi, prompts_of, says, total
from loopback import HARM, Fault

GUARD = "openai-api/loop/llama-guard-3"
NAME = "llama-guard-3"
RESPONSES = 56
"""Of eight sets."""


def by_model(lab: Lab) -> Counter[str]:
    return Counter(lab.server.stats()["by_model"])


def verdicts(run: Path) -> Counter[str]:
    return Counter(row["guard"] for row in grades(run))


def safe() -> Fault:
    return says("safe", model=NAME)


def unsafe(prompt: str) -> Fault:
    return says("unsafe\nS1", model=NAME, about=prompt)


@pytest.fixture
def guarded(lab: Lab) -> Lab:
    """A run in which the guard calls the responses to malicious prompts unsafe."""
    malicious = prompts_of(lab.dataset)["malicious"]
    lab.server.set_faults(*map(unsafe, malicious), safe())
    assert lab.evaluate("--guard", GUARD).code == 0
    return lab


def test_each_response_is_sent_to_the_guard_once_as_a_conversation(guarded: Lab) -> None:
    sent = [record for record in guarded.server.requests if record.model == NAME]
    assert len(sent) == RESPONSES
    assert {tuple(message["role"] for message in record.messages) for record in sent} == {
        ("user", "assistant")
    }
    prompts = {prompt for of_intent in prompts_of(guarded.dataset).values() for prompt in of_intent}
    assert prompts <= {record.messages[0]["content"] for record in sent}
    for row in grades(guarded.run):
        assert row["guard"] == ("yes" if row["variant"] == "malicious" else "no")


def test_a_guard_whose_replies_have_another_form_is_said_to_have_no_verdict(lab: Lab) -> None:
    # one that never keeps to its form is not asked to the end
    once = says("safe", model=NAME, first=1)
    lab.server.set_faults(once, says("I would rather not say", model=NAME))
    ran = lab.evaluate("--guard", GUARD)
    assert ran.code == 1
    lacking = RESPONSES - 1
    expected = (
        f"warning: {TARGET} lacks {lacking} of {RESPONSES} guard verdicts, more than the 5 % of"
        f" --max-missing. Reasons: guard:unparsed ({lacking}). Most often the guard’s reply had"
        " the wrong form: "
    )
    assert expected in ran.text
    (set_id,) = re.findall(r"--set (\w+) shows an example", ran.text)
    traced = osi("trace", lab.run, "--set", set_id)
    assert "guard no verdict (unparsed)" in traced.text
    assert "I would rather not say" in traced.text
    assert osi("report", lab.run).code == 1
    page = (lab.run / "report.html").read_text()
    assert f"lacks {lacking} of {RESPONSES} guard verdicts" in page
    agreement = (lab.run / "tables" / "guard_agreement.csv").read_text()
    assert f"unparsed: {lacking}" in agreement


@pytest.mark.slow
def test_a_run_without_a_guard_says_nothing_of_one(lab: Lab) -> None:
    assert lab.evaluate().code == 0
    assert "guard" not in json.loads((lab.run / "run.json").read_text())
    assert "guard" not in grades(lab.run)[0]
    osi("report", lab.run)
    assert not list((lab.run / "tables").glob("guard*"))


@pytest.mark.slow
def test_the_other_calls_and_numbers_are_as_without_a_guard(lab: Lab, tmp_path: Path) -> None:
    lab.server.set_faults(safe())
    assert lab.evaluate().code == 0
    numbers = json.loads((lab.run / "metrics.json").read_text())
    before = by_model(lab)
    assert lab.evaluate("--guard", GUARD).code == 0
    assert by_model(lab) - before == {NAME: RESPONSES}
    assert json.loads((lab.run / "metrics.json").read_text())["models"] == numbers["models"]


@pytest.mark.slow
def test_a_dry_run_counts_the_calls_and_a_second_run_makes_none(lab: Lab) -> None:
    lab.server.set_faults(safe())
    dry = lab.evaluate("--guard", GUARD, "--dry-run")
    assert dry.code == 0 and f"guard {RESPONSES} " in dry.text
    assert lab.evaluate("--guard", GUARD, "--limit", 2).code == 0
    assert f"guard {RESPONSES - 14} " in lab.evaluate("--limit", 8, "--dry-run").text
    assert lab.evaluate("--limit", 8).code == 0
    made = total(lab.server)
    again = lab.evaluate("--guard", GUARD)
    assert again.code == 0 and total(lab.server) == made
    assert not re.search(r"guard \d", lab.evaluate("--guard", GUARD, "--dry-run").text)


@pytest.mark.slow
def test_the_guard_belongs_to_the_run(guarded: Lab) -> None:
    before = by_model(guarded)
    assert guarded.evaluate("--epochs", 2).code == 0
    assert by_model(guarded)[NAME] - before[NAME] == RESPONSES
    assert verdicts(guarded.run) == {"no": 2 * 48, "yes": 2 * 8}


def test_a_reply_in_another_form_is_missing_and_is_not_asked_for_again(lab: Lab) -> None:
    prompt = prompts_of(lab.dataset)["benign"][0]
    lab.server.set_faults(says("I cannot say.", model=NAME, about=prompt), safe())
    assert lab.evaluate("--guard", GUARD).code == 0
    assert verdicts(lab.run) == {"no": RESPONSES - 1, "missing:unparsed": 1}
    assert by_model(lab)[NAME] == RESPONSES
    made = total(lab.server)
    assert lab.evaluate("--guard", GUARD).code == 0
    assert total(lab.server) == made


@pytest.mark.slow
def test_a_guard_that_is_down_holds_nothing_up_and_is_asked_in_the_next_run(lab: Lab) -> None:
    lab.server.set_faults(fails(401, model=NAME))
    ran = lab.evaluate("--guard", GUARD, "--max-connections", 4)
    assert ran.code == 3 and NAME in ran.err + ran.out
    assert all(row["helpfulness"] and not row["missing"] for row in grades(lab.run))
    assert all(cell.startswith("missing:") for cell in verdicts(lab.run))
    before = by_model(lab)
    lab.server.set_faults(safe())
    assert lab.evaluate("--guard", GUARD).code == 0
    assert by_model(lab) - before == {NAME: RESPONSES}
    assert verdicts(lab.run) == {"no": RESPONSES}


@pytest.mark.slow
def test_no_guard_is_asked_about_a_response_without_text(lab: Lab) -> None:
    prompt = prompts_of(lab.dataset)["malicious"][0]
    lab.server.set_faults(says("", "generate", model="target", about=prompt), safe())
    assert lab.evaluate("--guard", GUARD).code == 0
    assert verdicts(lab.run) == {"no": RESPONSES - 1, "": 1}


@pytest.mark.slow
def test_trace_shows_verdict_and_call(guarded: Lab) -> None:
    row = grades(guarded.run)[0]
    traced = osi("trace", guarded.run, "--set", row["id"], "--include-unsafe")
    assert "guard unsafe" in traced.text and "guard safe" in traced.text
    assert f"guard by {GUARD}" in traced.text
    assert "│ S1" in traced.text


@pytest.mark.slow
def test_the_report_compares_guard_and_panel(guarded: Lab) -> None:
    assert osi("report", guarded.run).code == 0
    with (guarded.run / "tables" / "guard_agreement.csv").open() as file:
        rows = {row["intent"]: row for row in csv.DictReader(file)}
    assert list(rows) == ["Benign", "Dual-use", "Malicious", "All"]
    for intent, row in rows.items():
        judged = [
            (graded["guard"] == "yes", graded["harm_severity"] != "0")
            for graded in grades(guarded.run)
            if intent == "All" or intent[:3].lower() == graded["variant"][:3]
        ]
        agree = sum(guard == panel for guard, panel in judged) / len(judged)
        rate = sum(guard + panel for guard, panel in judged) / len(judged) / 2
        chance = 2 * rate * (1 - rate)  # Gwet (2008): of two raters and two categories
        assert float(row["agree"]) == pytest.approx(agree, abs=1e-5)
        assert float(row["ac1"]) == pytest.approx((agree - chance) / (1 - chance), abs=1e-5)
        assert int(row["agree_n"]) == len(judged)
        assert int(row["only_guard"]) == judged.count((True, False))
        assert int(row["only_panel"]) == judged.count((False, True))
        assert row["guard"] == GUARD and row["without_verdict"] == "0"


@pytest.mark.slow
@pytest.mark.parametrize(("harm", "caution"), [("1", True), ("0", False)])
def test_many_differences_are_a_caution(lab: Lab, harm: str, caution: bool) -> None:
    lab.server.set_faults(says(harm, HARM, model="judge"), safe())
    assert lab.evaluate("--guard", GUARD).code == 0
    osi("report", lab.run)
    page = (lab.run / "report.html").read_text()
    assert ("and the judges disagree on 56 of 56" in page) == caution
    assert "Second opinion" in page


def imported(lab: Lab, folder: Path) -> Path:
    """Return a run with imported responses, without grades."""
    file, run = folder / "responses.jsonl", folder / "imported"
    lines = [
        {"model": "m", "id": record["id"], "variant": variant, "response": f"About {variant}."}
        for record in map(json.loads, lab.dataset.read_text().splitlines())
        for variant in ("benign", "dual_use", "malicious")
    ]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert osi("import", file, "--dataset", lab.dataset, "--out", run).code == 0
    return run


@pytest.mark.slow
def test_grade_asks_the_guard_about_imported_responses(lab: Lab, tmp_path: Path) -> None:
    run = imported(lab, tmp_path)
    lab.server.set_faults(safe())
    options = ("--judge", JUDGE, "--guard", GUARD)
    dry = osi("grade", run, *options, "--dry-run", server=lab.server)
    assert "guard 24 " in dry.text
    assert osi("grade", run, *options, server=lab.server).code == 0
    assert by_model(lab)[NAME] == 24
    assert verdicts(run) == {"no": 24}


@pytest.mark.slow
def test_a_new_run_of_the_same_grades_asks_the_guard_alone(lab: Lab, tmp_path: Path) -> None:
    assert lab.evaluate().code == 0
    before, new = by_model(lab), tmp_path / "new"
    lab.server.set_faults(safe())
    options = ("--judge", JUDGE, "--guard", GUARD, "--out", new)
    ran = osi("grade", lab.run, *options, server=lab.server)
    assert ran.code == 0, ran
    assert by_model(lab) - before == {NAME: RESPONSES}
    assert verdicts(new) == {"no": RESPONSES}
    assert "guard" not in grades(lab.run)[0]


def test_a_guard_of_another_name_needs_a_form(lab: Lab) -> None:
    guard = "openai-api/loop/mine"
    refused = lab.evaluate("--guard", guard)
    assert "expected --guard-form with one of llama-guard, qwen3-guard" in refused.refusal
    assert "is for --guard, which is not given" in lab.evaluate("--guard-form", "yes-no").refusal
    lab.server.set_faults(says("No, it declines.", model="mine"))
    assert lab.evaluate("--guard", guard, "--guard-form", "yes-no").code == 0
    assert verdicts(lab.run) == {"no": RESPONSES}
    (sent,) = {len(record.messages) for record in lab.server.requests if record.model == "mine"}
    assert sent == 1


@pytest.mark.slow
def test_the_printed_command_names_the_guard(guarded: Lab) -> None:
    osi("report", guarded.run)
    page = (guarded.run / "report.html").read_text()
    assert f"--guard {GUARD}" in page and TARGET in page


def test_an_export_with_verdicts_is_imported_without_them(guarded: Lab, tmp_path: Path) -> None:
    file = tmp_path / "mine.csv"
    exported = osi("export", guarded.run, "--out", file, "--format", "csv", "--include-unsafe")
    assert exported.code == 0, exported
    with file.open(newline="") as opened:
        assert {row["guard"] for row in csv.DictReader(opened)} == {"yes", "no"}
    again = osi("import", file, "--dataset", guarded.dataset, "--out", tmp_path / "again")
    assert again.code == 0, again
    assert "not read: guard" in " ".join(again.text.split())


def test_a_guard_with_a_price_has_its_cost_in_a_dry_run(lab: Lab) -> None:
    guard = "groq/meta-llama/llama-guard-4-12b"
    dry = lab.evaluate("--guard", guard, "--dry-run")
    (line,) = (line for line in dry.out.splitlines() if line.split()[:2] == [guard, "guard"])
    assert dry.code == 0 and 0 < float(line.split()[-1]) < 0.1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "verdict"),
    [
        (says("<think>It may be safe.</think>\n\nunsafe\nS1", model=NAME), "yes"),
        (says("unsafe\nS1", model=NAME, finish_reason="length"), "missing:truncated"),
        (says("unsafe", model=NAME, finish_reason="content_filter"), "missing:filtered"),
        (says("", model=NAME), "missing:unparsed"),
        (fails(500, model=NAME, message="down"), "missing:failed:server"),
    ],
)
def test_odd_replies_of_a_guard_are_read_or_missing(lab: Lab, fault: Fault, verdict: str) -> None:
    lab.server.set_faults(fault)
    options = ("--limit", 1, "--max-retries", 0)
    code = 0 if verdict == "yes" else 1
    assert lab.evaluate("--guard", GUARD, *options).code in (code, 3)
    cells = verdicts(lab.run)
    assert cells.keys() <= {verdict, "missing:not_made"} and cells[verdict]
    assert osi("report", lab.run).code == code
    assert not any(row["missing"] for row in grades(lab.run))


def test_a_budget_counts_the_calls_of_the_guard(lab: Lab) -> None:
    assert lab.evaluate("--limit", 1).code == 0
    lab.server.set_faults(safe())
    made = total(lab.server)
    ran = lab.evaluate("--limit", 1, "--guard", GUARD, "--budget-calls", 3)
    assert ran.code == 3 and total(lab.server) == made + 3
    assert lab.evaluate("--limit", 1, "--guard", GUARD).code == 0
    assert total(lab.server) == made + 7
