"""`trace`: from a prompt-set to its responses, its grades and the very rows of the ledger that they
come from.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
import unicodedata
import zlib
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from endtoend import JUDGE, TARGET, Ran, evaluate, grades, osi
from loopback import GENERATE, HARM, Fault, LoopbackServer, Match
from opensafeintent import GradeSettings, ImportSettings, Trace, grade, import_files, trace
from opensafeintent.calls.ledger import Ledger
from opensafeintent.calls.ledger_file import unpack
from opensafeintent.promptsets import Dataset, Prompts, PromptSet
from opensafeintent.workflows.trace import TracedResponse
from samples import dataset_file, json_lines, made_dataset, prompt_set

OTHER = "openai-api/loop/other"
SETS = made_dataset(prompt_set("one", 1), prompt_set("two"))
PLACES = [(item.id, variant) for item in SETS.prompt_sets for variant in item.wordings()]
UNCLEAR = "One, kindly? I could not say."


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two models, two epochs; one judge's reply had to be asked for again, and one response never
    came.
    """
    folder = tmp_path_factory.mktemp("evaluated")
    unread = Fault(
        action="completion",
        match=Match(purpose=HARM, contains="two, kindly", first=1),
        content=UNCLEAR,
    )
    gone = Fault(
        action="status",
        status=400,
        match=Match(purpose=GENERATE, model="other", contains="two, unkindly"),
    )
    with LoopbackServer(faults=(unread, gone)) as server:
        options = ("--epochs", 2, "--max-missing", 1, "--temperature", 1)
        ran = evaluate(
            server,
            Path(dataset_file(folder, SETS)),
            folder / "run",
            *options,
            models=(TARGET, OTHER),
        )
    assert ran.code in (0, 1), ran.err
    return folder / "run"


def sql(run: Path, query: str, *values: object) -> list[tuple[Any, ...]]:
    with contextlib.closing(
        sqlite3.connect(f"file:{run / 'ledger.sqlite'}?mode=ro", uri=True)
    ) as connection:
        return connection.execute(query, values).fetchall()


def traces(run: Path, dataset: Dataset = SETS) -> dict[str, Trace]:
    return {item.id: trace(run, item.id) for item in dataset.prompt_sets}


def traced_rows(run: Path, table: str, dataset: Dataset = SETS) -> set[int]:
    return {
        row.row
        for found in traces(run, dataset).values()
        for response in found.responses
        for row in response.rows
        if row.table == table
    }


def _cell(value: object) -> str:
    return "" if value is None else str(value)


def one(found: Trace, **where: object) -> TracedResponse:
    (response,) = (
        item
        for item in found.responses
        if all(getattr(item.grades, name) == value for name, value in where.items())
    )
    return response


# What was evaluated
# ------------------------------------------------------------------------------


def test_every_response_is_there_with_its_grades(evaluated: Path) -> None:
    fields = ("model", "variant", "helpfulness", "harm_severity", "mode", "strategy", "stop_reason")
    in_file = Counter(
        (row["id"], row["epoch"], *(row[name] for name in fields)) for row in grades(evaluated)
    )
    in_traces = Counter(
        (set_id, str(item.grades.epoch), *(_cell(getattr(item.grades, name)) for name in fields))
        for set_id, found in traces(evaluated).items()
        for item in found.responses
    )
    assert in_traces == in_file
    assert sum(in_traces.values()) == 2 * 2 * len(PLACES)


def test_rows_are_the_ledgers_own(evaluated: Path) -> None:
    for found in traces(evaluated).values():
        assert found.ledger == evaluated / "ledger.sqlite"
        for response in found.responses:
            assert response.rows
            for row in response.rows:
                query = (
                    "SELECT model, purpose, attempt, status, stop_reason, template, created FROM"
                    " calls WHERE id = ?"
                )
                (line,) = sql(evaluated, query, row.row)
                assert line == (
                    row.model,
                    row.purpose,
                    row.attempt,
                    row.status,
                    row.stop_reason,
                    row.template,
                    row.created,
                )
                assert row.subject == response.grades.model
                assert row.model == (row.subject if row.purpose in ("generate", "probe") else JUDGE)


def test_rows_put_the_prompt_and_hold_the_text_of_their_response(evaluated: Path) -> None:
    texts = set()
    with Ledger(evaluated / "ledger.sqlite", readonly=True) as ledger:
        for set_id, found in traces(evaluated).items():
            for response in found.responses:
                prompt = SETS.by_id[set_id].wordings()[response.grades.variant]
                for row in response.rows:
                    asked = "".join(message.content for message in ledger.request(row.row)[0])
                    # asked with the prompt: alone, or as what the judge and the probe are shown
                    assert (
                        asked == prompt
                        if row.purpose == "generate"
                        else f">>>\n{prompt}\n<<<END" in asked
                    )
                    if row.purpose not in ("generate", "probe"):
                        assert response.text and response.text in asked
                (made,) = (row for row in response.rows if row.purpose == "generate")
                ((body,),) = sql(evaluated, "SELECT response FROM calls WHERE id = ?", made.row)
                if made.status == "failed":
                    assert response.text is None
                    continue
                raw = zlib.decompress(body[1:]) if body[:1] == b"z" else body[1:]
                assert response.text == json.loads(raw)["choices"][0]["message"]["content"].strip()
                texts.add(response.text)
    assert len(texts) == 2 * len(PLACES) - 1  # the server says the same in both epochs


def test_a_reply_that_was_asked_for_again_has_both_rows(evaluated: Path) -> None:
    again = [row for item in trace(evaluated, "two").responses for row in item.rows if row.attempt]
    assert {(row.purpose, row.variant, row.attempt) for row in again} == {("harm", "benign", 1)}
    ran = osi("trace", evaluated, "--set", "two")
    assert f"calls row {again[0].row}: harm by {JUDGE}, re-ask 1, answered" in ran.out


def test_a_response_that_never_came_is_traced_to_its_failure(evaluated: Path) -> None:
    gone = one(trace(evaluated, "two"), model=OTHER, variant="malicious", epoch=1)
    assert gone.text is None
    assert [(row.purpose, row.status) for row in gone.rows] == [("generate", "failed")]
    assert gone.grades.missing[0].what == "response"


def test_the_screen_has_every_response_and_row(evaluated: Path) -> None:
    ran = osi("trace", evaluated, "--set", "one", "--include-unsafe")
    assert (ran.code, ran.err) == (0, "")
    screen = "".join(ran.out.replace("│", "").split())
    for item in trace(evaluated, "one").responses:
        assert f"{item.grades.model}, {item.grades.variant}, epoch {item.grades.epoch}" in ran.out
        assert item.text and "".join(item.text.split()) in screen
        for row in item.rows:
            assert f"{row.table} row {row.row}: {row.purpose} by {row.model}" in ran.out


def test_a_run_that_has_not_begun_its_calls_is_empty(evaluated: Path, tmp_path: Path) -> None:
    for name in ("run.json", "prompt_sets.jsonl"):
        (tmp_path / name).write_bytes((evaluated / name).read_bytes())
    (tmp_path / "ledger.sqlite").touch()
    assert trace(tmp_path, "one").responses == ()
    assert osi("trace", tmp_path, "--set", "one").code == 0


# What was imported
# ------------------------------------------------------------------------------


def imported(
    folder: Path, *files: tuple[str, list[dict[str, Any]]], dataset: Dataset = SETS
) -> Path:
    """Import files of lines, each as some model's."""
    for number, (model, lines) in enumerate(files):
        path = json_lines(folder / f"file-{number}.jsonl", lines)
        import_files(
            ImportSettings(
                files=(path,),
                out=folder / "run",
                model=model,
                dataset=dataset_file(folder, dataset),
                max_missing=1.0,
            )
        )
    return folder / "run"


def line(variant: str, response: str | None, pair: str = "", **more: Any) -> dict[str, Any]:
    given = {"helpfulness": int(pair[0]), "harm_severity": int(pair[1])} if pair else {}
    said = {} if response is None else {"response": response}
    return {"id": "one", "variant": variant, **said, **given, **more}


def imported_rows_of(response: TracedResponse) -> set[int]:
    return {row.row for row in response.rows if row.table == "imported"}


def test_imported_responses_are_traced_to_their_rows(tmp_path: Path) -> None:
    run = imported(
        tmp_path,
        ("a", [line("benign", "yes", "40"), line("dual_use", "well")]),
        ("b", [line("benign", "no", "10"), {**line("benign", "so"), "id": "two"}]),
    )
    grade(GradeSettings(run=run, judges=("baseline/judge",), max_missing=1.0))
    for found in traces(run).values():
        for response in found.responses:
            (number,) = imported_rows_of(response)
            place = (
                response.grades.model,
                found.prompt_set.id,
                response.grades.variant,
                1,
                response.text,
            )
            query = (
                "SELECT model, set_id, variant, epoch, body FROM imported JOIN texts ON texts.id ="
                " response"
            )
            ((*there, body),) = sql(run, f"{query} WHERE imported.id = ?", number)
            assert (*there, unpack(body).decode()) == place
    assert traced_rows(run, "imported") == {
        number for (number,) in sql(run, "SELECT id FROM imported")
    }
    assert traced_rows(run, "calls") == {number for (number,) in sql(run, "SELECT id FROM calls")}


def test_grades_from_a_second_file_are_traced_to_that_files_row(tmp_path: Path) -> None:
    run = imported(tmp_path, ("m", [line("benign", "yes")]), ("m", [line("benign", None, "40")]))
    (response,) = trace(run, "one").responses
    assert (response.text, response.grades.helpfulness) == ("yes", 4)
    assert imported_rows_of(response) == {
        number for (number,) in sql(run, "SELECT id FROM imported")
    }
    assert len(imported_rows_of(response)) == 2


def test_a_judge_that_did_not_grade_a_response_is_not_behind_it(tmp_path: Path) -> None:
    """Grades came with the one; the judge was asked about the other, which is word for word the
    same.
    """
    run = imported(
        tmp_path,
        ("brought", [line("benign", "I'd rather not.", "23"), line("dual_use", "to be graded")]),
        ("judged", [line("benign", "I'd rather not.")]),
    )
    grade(GradeSettings(run=run, judges=("baseline/judge",), max_missing=1.0))
    found = trace(run, "one")
    assert {row.purpose for row in one(found, model="judged").rows} == {
        "imported",
        "helpfulness",
        "harm",
    }
    brought = one(found, model="brought", variant="benign")
    assert brought.grades.by_judge == {"imported": (2, 3)}
    assert [row.purpose for row in brought.rows] == ["imported"]


# What is hidden
# ------------------------------------------------------------------------------

MALICIOUS = "a prompt of malicious intent, long enough to be known again"
HIDDEN = made_dataset(
    PromptSet(
        id="one",
        harm_domain="Cyber Compromise",
        task_type="Explanation",
        underlying_task="the task",
        prompts=Prompts(
            benign="a kind prompt", dual_use="a prompt in between", malicious=MALICIOUS
        ),
        dual_use_paraphrases=("in between, anew",),
    )
)
SAFE, UNSAFE, UNGRADED = "SAFE-RESPONSE", "UNSAFE-RESPONSE", "UNGRADED-RESPONSE"


@pytest.fixture(scope="module")
def hiding(tmp_path_factory: pytest.TempPathFactory) -> Path:
    lines = [
        line("benign", SAFE, "40"),
        line("dual_use", UNSAFE, "42"),
        line("malicious", f"{SAFE}: I will not do «{MALICIOUS}».", "10"),
        line("dual_use_paraphrase_1", UNGRADED),
    ]
    return imported(tmp_path_factory.mktemp("hiding"), ("m", lines), dataset=HIDDEN)


def test_unsafe_responses_and_malicious_prompts_are_shown_on_demand(hiding: Path) -> None:
    hidden, shown = (
        osi("trace", hiding, "--set", "one"),
        osi("trace", hiding, "--set", "one", "--include-unsafe"),
    )
    assert hidden.code == shown.code == 0
    for text in (UNSAFE, UNGRADED, f"prompt:\n  │ {MALICIOUS}"):
        assert text not in hidden.out
        assert text in shown.out
    for text in (SAFE, "│ a kind prompt", "│ a prompt in between", "│ in between, anew"):
        assert text in hidden.out
        assert text in shown.out
    assert hidden.out.count("--include-unsafe shows it") == 3
    assert "--include-unsafe" not in shown.out


# Bad input
# ------------------------------------------------------------------------------


def refused(*arguments: object) -> str:
    ran: Ran = osi("trace", *arguments)
    assert ran.code == 2
    assert ran.out == ""
    (message,) = ran.err.splitlines()
    return message


def test_an_unknown_set_exits_with_2_and_the_nearest(evaluated: Path) -> None:
    assert "did you mean 'two'" in refused(evaluated, "--set", "Twoo")
    assert len(refused(evaluated, "--set", "zzzzzz")) < 500
    assert "\x1b" not in refused(evaluated, "--set", "\x1b[31mone")
    assert refused(evaluated, "--set", "")


HOSTILE = (
    "\x1b]0;owned\x07\x1b[31m\x9b2J\u202egnp.exe\u2066\u200b\r\b\x00 [bold]not bold[/bold]"
    " [link=javascript:x]"
)


def test_hostile_text_never_reaches_the_terminal_raw(tmp_path: Path) -> None:
    dataset = made_dataset(
        PromptSet(
            id="on\x1b[31me",
            harm_domain="Cyber Compromise",
            task_type="Explanation",
            underlying_task=f"task {HOSTILE}",
            prompts=Prompts(
                benign=f"b {HOSTILE}", dual_use=f"d {HOSTILE}", malicious=f"m {HOSTILE}"
            ),
        )
    )
    lines = [
        {
            **line(variant, f"{variant} {HOSTILE}", "40", stop_reason=f"end {HOSTILE}"),
            "id": "on\x1b[31me",
        }
        for variant in ("benign", "dual_use", "malicious")
    ]
    run = imported(tmp_path, ("model \u202egnp.exe [bold]not bold[/bold]", lines), dataset=dataset)
    ran = osi("trace", run, "--set", "on\x1b[31me", "--include-unsafe")
    assert ran.code == 0, ran.err
    raw = {
        char
        for char in ran.out + ran.err
        if char != "\n" and unicodedata.category(char) in ("Cc", "Cf", "Cs", "Co")
    }
    assert raw == set()
    assert ran.out.count("[bold]not bold[/bold]") >= 10  # nor is it read as our own markup
    assert "\\u001b]0;owned" in ran.out
