"""`judge-check --labelled` over HTTP: what is asked, printed and kept, and what a report shows of it."""

from __future__ import annotations

import csv
import json
import re
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from endtoend import JUDGE, Ran, calls, evaluate, metrics, osi, says, some_sets, texts_of, total
from loopback import HARM, HELPFULNESS, MODE, LoopbackServer
from samples import json_lines

SECOND = "openai-api/loop/second"
FILE = "openai-api-loop-judge.json"


@pytest.fixture
def labels(tmp_path: Path) -> Path:
    """Forty responses to twenty prompts by three people: the first twelve are unsafe, and one
    person calls the next one unsafe too; one row has no label.
    """
    path = tmp_path / "labels.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["goal", "response", "unsafe_1", "unsafe_2", "unsafe_3", "group"])
        for index in range(40):
            unsafe = int(index < 12)
            text = f"{'HARMFUL' if index < 11 else 'FINE'} text {index}."
            people = [unsafe, unsafe, int(unsafe or index == 12)]
            writer.writerow([f"Goal {index % 20}", text, *people, "ab"[index % 2]])
        writer.writerow(["Goal", "Text", "", "", "", "a"])
    return path


def check(server: LoopbackServer, labels: Path, *options: object) -> Ran:
    """Compare a judge that calls texts with HARMFUL in them unsafe: it misses one of twelve."""
    server.set_faults(says("2", HARM, contains="HARMFUL"), says("0", HARM))
    command = ("judge-check", "--labelled", labels, "--map", "prompt=goal")
    out = ("--out", labels.parent / "check")
    return osi(*command, "--judge", JUDGE, *out, *options, server=server)


def kept(labels: Path, name: str = FILE) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((labels.parent / "check" / name).read_text())
    return content


def cost_of(folder: Path) -> dict[str, Any]:
    (item,) = json.loads((folder / "cost.json").read_text())["runs"]
    total_of: dict[str, Any] = item["total"]
    return total_of


def test_a_judge_is_compared_with_people_and_asked_for_harm_alone(
    server: LoopbackServer, labels: Path
) -> None:
    ran = check(server, labels)
    assert ran.code == 0, ran.err
    assert (calls(server)[HARM], total(server)) == (40, 40)
    assert "catches 11 of 12, 92 %" in ran.text and "false alarms 0 of 28, 0 %" in ran.text
    assert "40 labelled responses to 20 prompts by 3 raters: 12 unsafe, 28 safe, 0 ties" in ran.text
    assert "call it unsafe" not in ran.text and len(ran.out.splitlines()) < 10
    assert "note: labels.csv: 1 row without a label of harm left out" in ran.text
    assert "text 11" not in ran.out  # of the case
    verbose = check(server, labels, "--verbose")
    assert "labels.csv:13 (b): harm 0, and 3 of 3 call it unsafe" in verbose.text
    whole = verbose.out.splitlines()
    for lines in (ran.out.splitlines(), whole):  # two lines of verdict, last
        about, verdict = lines[-4:-2]
        assert about.startswith("labels.csv: 40 labelled responses")
        assert verdict.startswith(f"{JUDGE}: catches 11 of 12")
    assert any(line.startswith("  against the majority of the others") for line in whole[:-4])
    results, following = ran.out.splitlines()[-2:]
    assert results == f"Results in {labels.parent}/check: {FILE}"
    assert following == f"Next: opensafeintent report RUN --checks {labels.parent}/check"
    (result,) = kept(labels)["labels"]
    assert (result["catches"]["count"], result["catches"]["n"]) == (11, 12)
    assert (labels.parent / "check" / FILE).stat().st_mode & 0o077 == 0
    assert "text 11" not in json.dumps(kept(labels))
    server.reset()
    again = check(server, labels, "--include-unsafe", "--verbose")
    assert total(server) == 0
    assert "response: FINE text 11." in again.out
    assert "note: --include-unsafe: the files hold 1 labelled response with" in again.text
    assert "send them on" not in ran.text
    assert len(kept(labels)["labels"]) == 1


def test_a_judge_of_help_is_compared_with_people_who_label_refusals(
    server: LoopbackServer, tmp_path: Path
) -> None:
    """Twelve answers, twelve refusals and two partial ones; the judge takes one refusal for an
    answer, and one person another. A report has the table.
    """
    full, none, part = "1_full_compliance", "2_full_refusal", "3_partial_refusal"
    labels = [full] * 12 + [none] * 12 + [part] * 2
    rows = [
        {
            "prompt": f"Goal {index}",
            "completion": f"{'NO' if index > 12 else 'FINE'} text {index}.",
            "annotation_1": label,
            "annotation_2": full if index == 20 else label,
            "final_label": label,
            "type": "ab"[index % 2],
        }
        for index, label in enumerate(labels)
    ]
    path, out = json_lines(tmp_path / "help.jsonl", rows), tmp_path / "check"
    server.set_faults(says("2", HELPFULNESS, contains="NO text"), says("4", HELPFULNESS))
    fields = {"response": "completion", "compliance": "final_label", "group": "type"}
    fields |= {"compliance_1": "annotation_1", "compliance_2": "annotation_2"}
    maps = [part for name, field in fields.items() for part in ("--map", f"{name}={field}")]
    command = ("judge-check", "--labelled", path, *maps, "--judge", JUDGE, "--out", out)
    foretold = osi(*command, "--dry-run", server=server)
    assert "labels: 37 answered, 35 refused, 6 partial" in foretold.text
    ran = osi(*command, "--verbose", server=server)
    assert ran.code == 0, ran.err
    assert (calls(server)[HELPFULNESS], total(server)) == (26, 26)
    assert "26 labelled responses to 26 prompts by 2 raters: 12 refused, 12 answered" in ran.text
    assert "12 answered, 2 partial" in ran.text
    assert f"{JUDGE}: catches 11 of 12, 92 %" in ran.text
    assert "help.jsonl:13 (a): helpfulness 4, and 2 of 2 call it refused" in ran.text
    assert "with every partial counted as refused: catches 13 of 14, 93 %" in ran.text
    assert "with every partial counted as answered: catches 11 of 12, 92 %" in ran.text
    assert "of the others: one person catches 22 of 23, 96 %" in ran.text
    run, page = tmp_path / "run", tmp_path / "page"
    assert evaluate(server, some_sets(tmp_path, 2), run).code == 0
    assert osi("report", run, "--out", page, "--checks", out).code == 0
    (row,) = csv.DictReader((page / "tables" / "judge_labels.csv").open())
    assert (row["called"], row["catches_count"], row["ties"]) == ("refused", "11", "2")
    sides = list(csv.DictReader((page / "tables" / "judge_labels_ties.csv").open()))
    assert [side["ties_as"] for side in sides] == ["answered"] * 3 + ["refused"] * 3
    html = " ".join((page / "report.html").read_text().split())
    assert "calls refused (helpfulness 1 or 2)" in html
    assert "Not checked against people on harm:" in html
    assert "2 people call 12 refused and 12 answered, and 2 are partial refusals or ties" in html


def test_what_a_file_lacks_is_one_error_before_any_call(
    server: LoopbackServer, labels: Path
) -> None:
    labels.write_text(labels.read_text().replace("FINE text 20.,0,", "FINE text 20.,perhaps,"))
    ran = check(server, labels)
    assert ran.refusal.startswith(f"error: {labels}:22, column unsafe_1: 'perhaps' is no label;")
    assert total(server) == 0
    refused = osi("judge-check", "--judge", JUDGE, "--sample", 9).refusal
    assert refused == "error: --sample: is for labelled responses; expected --labelled FILE too"


@pytest.mark.filterwarnings("error")
def test_a_judge_without_a_grade_fails_and_the_reason_is_no_label(
    server: LoopbackServer, labels: Path
) -> None:
    server.set_faults(says("I cannot", HARM, model="judge"), says("0", HARM))
    command = ("judge-check", "--labelled", labels, "--map", "prompt=goal", "--sample", 20)
    judges = ("--judge", JUDGE, "--judge", SECOND)
    ran = osi(*command, *judges, "--out", labels.parent / "check", server=server)
    assert ran.code == 4
    assert f"{JUDGE}: no grade of any response" in ran.text
    assert f"{SECOND}: catches 0 of 10" in ran.text
    (result,) = kept(labels)["labels"]
    assert result["catches"]["undefined"].startswith("no response was graded by the judge")


def test_rows_of_people_that_nobody_named_are_noticed(server: LoopbackServer, labels: Path) -> None:
    """Two people, a row each, and no field of people: every response would count twice."""
    rows = [{"response": f"Text {n}", "unsafe": "no", "who": who} for n in range(3) for who in "ab"]
    path = json_lines(labels.with_name("rows.jsonl"), rows)
    command = (
        "judge-check",
        "--labelled",
        path,
        "--judge",
        JUDGE,
        "--out",
        labels.parent / "check",
    )
    server.set_faults(says("0", HARM))
    named = "3 responses with the text of an earlier row; if each person has a row, name the field"
    assert f"{named} of people: --map rater=FIELD" in osi(*command, server=server).text
    ran = osi(*command, "--map", "rater=who", server=server)
    assert "earlier row" not in ran.text and "by 2 raters" in ran.text


def test_a_sample_is_foretold_and_a_budget_ends_it(server: LoopbackServer, labels: Path) -> None:
    ran = check(server, labels, "--sample", 10, "--dry-run")
    assert ran.code == 0 and "At most 10 calls" in ran.out
    assert total(server) == 0 and not (labels.parent / "check").exists()
    stopped = check(server, labels, "--sample", 10, "--budget-calls", 4, "--max-connections", 1)
    assert (stopped.code, total(server)) == (3, 4)
    assert cost_of(labels.parent / "check")["calls"] == 4
    assert check(server, labels, "--sample", 10).code == 0
    assert total(server) == 10
    (result,) = kept(labels)["labels"]
    assert (result["source"]["yes"], result["source"]["no"]) == (5, 5)
    assert check(server, labels, "--sample", 20).code == 0
    assert total(server) == 20  # the ten are part of the twenty
    assert len(kept(labels)["labels"]) == 2


def test_rows_with_helpfulness_alone_are_left_out_for_want_of_a_label_of_harm(
    server: LoopbackServer, labels: Path
) -> None:
    lines = labels.read_text().replace("group", "helpfulness").splitlines()
    rows = [line.rpartition(",")[0] + ",3" for line in lines[1:]]
    labels.write_text("\n".join([lines[0], *rows]) + "\n")
    ran = check(server, labels, "--dry-run")
    assert "1 row without a label of harm left out" in ran.text
    # 12 rows are called unsafe by three people, one by one of three, 27 by none
    assert "note: labels.csv: labels: 83 safe, 37 unsafe" in ran.text


def test_a_sample_says_in_the_terminal_and_the_table_what_is_weighted(
    server: LoopbackServer, labels: Path, tmp_path: Path
) -> None:
    """The same judge on all responses and on a sample: the rows say which is which."""
    assert "weighted" not in check(server, labels).text
    assert "AC1 are weighted to the whole file" in check(server, labels, "--sample", 10).text
    run, page = tmp_path / "run", tmp_path / "page"
    assert evaluate(server, some_sets(tmp_path, 2), run).code == 0
    assert osi("report", run, "--out", page, "--checks", tmp_path / "check").code == 0
    rows = list(csv.DictReader((page / "tables" / "judge_labels.csv").open()))
    assert {row["labels_sample"] for row in rows} == {"all 40", "10 of 40"}


@pytest.mark.slow
def test_the_costs_of_a_folder_are_those_of_all_its_checks(
    server: LoopbackServer, labels: Path
) -> None:
    out = labels.parent / "check"
    stopped = osi("judge-check", "--judge", JUDGE, "--out", out, "--budget-calls", 4, server=server)
    assert stopped.code == 3 and cost_of(out)["calls"] == total(server)
    assert osi("judge-check", "--judge", JUDGE, "--out", out, server=server).code in (0, 4)
    gold = total(server)
    assert cost_of(out)["calls"] == gold > 40
    assert check(server, labels).code == 0
    assert cost_of(out)["calls"] == total(server) == gold + 40
    assert check(server, labels, "--ledger", out / "ledger.sqlite").code == 0
    assert cost_of(out)["calls"] == 40


def test_several_judges_and_their_panel_have_a_file_each(
    server: LoopbackServer, labels: Path
) -> None:
    ran = check(server, labels, "--judge", SECOND, "--verbose")
    assert ran.code == 0, ran.err
    assert "panel: catches 11 of 12" in ran.text
    assert f"against {SECOND}: right alone 0 times, wrong alone 0" in ran.text
    names = {path.name for path in (labels.parent / "check").glob("*.json")}
    assert names == {FILE, "openai-api-loop-second.json", "panel.json", "cost.json"}


def test_responses_without_prompts_are_graded_with_the_request_hidden(
    server: LoopbackServer, labels: Path
) -> None:
    rows = [row[1:] for row in csv.reader(labels.open())]
    with labels.open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    server.set_faults(says("0", HARM))
    out = ("--out", labels.parent / "check")
    ran = osi("judge-check", "--labelled", labels, "--judge", JUDGE, *out, server=server)
    assert ran.code == 0, ran.err
    assert "the user's request is withheld" in texts_of(server.requests[0])[-1]
    assert "judges grade the responses with the request hidden" in ran.text
    assert "labels.csv: 40 labelled responses by 3 raters: 12 unsafe" in ran.text
    assert kept(labels)["labels"][0]["source"]["prompts"] is None
    assert (calls(server)[HELPFULNESS], calls(server)[MODE]) == (0, 0)
    run, page = labels.parent / "run", labels.parent / "page"
    assert evaluate(server, some_sets(labels.parent, 2), run).code == 0
    assert osi("report", run, "--out", page, "--checks", labels.parent / "check").code == 0
    (row,) = csv.DictReader((page / "tables" / "judge_labels.csv").open())
    assert (row["prompts"], row["responses"], row["raters"]) == ("", "40", "3")


def test_helpfulness_of_all_people_beside_numbered_raters_is_compared_and_shown(
    server: LoopbackServer, labels: Path, tmp_path: Path
) -> None:
    """The judge gives helpfulness 3; people give 2 to 40 responses: the mean error is 1."""
    text = labels.read_text().replace("group", "helpfulness")
    labels.write_text(text.replace(",a\n", ",2\n").replace(",b\n", ",2\n"))
    server.set_faults(says("3", HELPFULNESS), says("2", HARM, contains="HARMFUL"), says("0", HARM))
    command = ("judge-check", "--labelled", labels, "--map", "prompt=goal", "--judge", JUDGE)
    ran = osi(*command, "--verbose", "--out", tmp_path / "check", server=server)
    assert ran.code == 0, ran.err
    assert (calls(server)[HELPFULNESS], calls(server)[HARM]) == (40, 40)
    assert re.search(r"helpfulness +40 +1\.00 .*– +\+1\.00", ran.out)
    assert "by 3 raters: 12 unsafe, 28 safe" in ran.text
    run = tmp_path / "run"
    assert evaluate(server, some_sets(tmp_path, 2), run).code == 0
    page = tmp_path / "page"
    assert osi("report", run, "--out", page, "--checks", tmp_path / "check").code == 0
    assert "Errors of judges on the scales" in (page / "report.html").read_text()
    (row,) = csv.DictReader((page / "tables" / "judge_labels_errors.csv").open())
    assert (row["scale"], float(row["mae"]), float(row["bias"])) == ("helpfulness", 1, 1)


def test_the_page_has_every_number_that_the_terminal_prints(
    server: LoopbackServer, labels: Path, tmp_path: Path
) -> None:
    """The second judge calls everything safe: the first is right alone on 11 responses."""
    run, page, out = tmp_path / "run", tmp_path / "page", tmp_path / "check"
    judges = ("--judge", SECOND)
    assert evaluate(server, some_sets(tmp_path, 2), run, *judges).code == 0
    server.set_faults(
        says("0", HARM, model="second"), says("2", HARM, contains="HARMFUL"), says("0", HARM)
    )
    command = ("judge-check", "--labelled", labels, "--map", "prompt=goal", "--judge", JUDGE)
    ran = osi(*command, *judges, "--verbose", "--out", out, server=server)
    assert osi("report", run, "--out", page, "--checks", out).code == 0
    html = " ".join((page / "report.html").read_text().split())
    pairs = list(csv.DictReader((page / "tables" / "judge_labels_pairs.csv").open()))
    first = next(row for row in pairs if row["judge"] == JUDGE)
    counts = first["other_judge"], first["right_alone"], first["wrong_alone"]
    assert counts == (SECOND, "11", "0")
    assert f"against {SECOND}: right alone 11 times, wrong alone 0" in ran.text
    majority = list(csv.DictReader((page / "tables" / "judge_labels_majority.csv").open()))
    of_first = next(row for row in majority if row["judge"] == JUDGE)
    erred = f"catches {100 * float(of_first['catches']):.0f} %"
    assert erred in ran.text[ran.text.index("if people err independently") :]
    worth = re.search(r"its judges are worth .* independent ones", ran.text)
    assert worth and worth[0] in html
    assert "if the majority erred" in html and "Right alone" in html
    assert f"(SHA-256 {sha256(labels.read_bytes()).hexdigest()[:12]}…)" in html
    assert "3 people call 12 unsafe and 28 safe" in html


@pytest.mark.slow
def test_a_report_shows_the_comparison_of_its_judge_with_equal_templates_only(
    server: LoopbackServer, labels: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    assert evaluate(server, some_sets(tmp_path, 2), run).code == 0
    assert check(server, labels).code == 0
    page = ("report", run, "--out", tmp_path / "page", "--checks", tmp_path / "check")
    ran = osi(*page)
    assert ran.code == 0, ran.err
    (found,) = metrics(tmp_path / "page")["judge_labels"]
    assert found["catches"]["count"] == 11
    html = (tmp_path / "page" / "report.html").read_text()
    assert "Judges against people" in html and "11 of 12" in html
    assert (
        "on labelled responses (“Judges against people”), and no number is corrected"
        in " ".join(html.split())
    )
    content = kept(labels)
    content["labels"][0]["members"][JUDGE]["setting"]["templates"]["harm"] = "another"
    (tmp_path / "check" / FILE).write_text(json.dumps(content))
    assert osi(*page).code == 0
    assert "judge_labels" not in metrics(tmp_path / "page")
    assert not (tmp_path / "page" / "tables" / "judge_labels.csv").exists()
    missing = osi("report", run, "--checks", tmp_path / "nowhere")
    assert missing.refusal == (
        f"error: --checks {tmp_path}/nowhere: no such folder; expected one of judge-check"
    )
