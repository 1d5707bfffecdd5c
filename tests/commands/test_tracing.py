"""`trace`: from a prompt-set to its responses, its grades and the very rows of the ledger that they
come from.
"""

from __future__ import annotations

import contextlib
import json
import shlex
import sqlite3
import unicodedata
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from endtoend import JUDGE, TARGET, evaluate, grades, osi
from loopback import GENERATE, HARM, Fault, LoopbackServer, Match
from opensafeintent import GradeSettings, Trace, grade, trace
from opensafeintent.calls import recorded as ledger_imports
from opensafeintent.calls.ledger import Ledger
from opensafeintent.calls.ledger_rows import decompress_and_check
from opensafeintent.commands.trace import TracedResponse
from opensafeintent.evaluation.manifest import RunFolder
from opensafeintent.evaluation.texts import RunTexts
from opensafeintent.promptsets import Dataset, Prompts
from opensafeintent.taxonomy import GRADE_OF, KnownGrades
from samples import dataset_file, import_lines, lines_of, made_dataset, prompt_set

OTHER = "openai-api/loop/other"
SETS = made_dataset(prompt_set("one", 1), prompt_set("two"))
UNCLEAR = "One, kindly? I could not say."


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two models, two epochs; one judge's reply had to be asked for again, and one response never
    came.
    """
    folder = tmp_path_factory.mktemp("evaluated")
    doubt = Match(purpose=HARM, contains="two, kindly", first=1)
    unread = Fault(action="completion", match=doubt, content=UNCLEAR)
    lost = Match(purpose=GENERATE, model="other", contains="two, unkindly")
    failing = Fault(action="status", status=400, match=lost)
    dataset, models = Path(dataset_file(folder, SETS)), (TARGET, OTHER)
    with LoopbackServer(faults=(unread, failing)) as server:
        options = ("--epochs", 2, "--max-missing", 1, "--temperature", 1)
        ran = evaluate(server, dataset, folder / "run", *options, models=models)
    assert ran.code in (0, 1), ran.err
    return folder / "run"


def sql(run: Path, query: str, *values: object) -> list[tuple[Any, ...]]:
    place = f"file:{run / 'ledger.sqlite'}?mode=ro"
    with contextlib.closing(sqlite3.connect(place, uri=True)) as connection:
        return connection.execute(query, values).fetchall()


def ids_in(run: Path, table: str) -> set[int]:
    return {number for (number,) in sql(run, f"SELECT id FROM {table}")}


def traces(run: Path) -> dict[str, Trace]:
    return {name: trace(run, name) for name in SETS.by_id}


def rows_of(responses: Iterable[TracedResponse], table: str) -> set[int]:
    return {row.row for item in responses for row in item.rows if row.table == table}


def _cell(value: object) -> str:
    return "" if value is None else str(value)


def response_where(trace_of_set: Trace, **where: object) -> TracedResponse:
    (response,) = (
        item
        for item in trace_of_set.responses
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
        for set_id, traced in traces(evaluated).items()
        for item in traced.responses
    )
    assert in_traces == in_file
    assert sum(in_traces.values()) == 2 * 2 * 7


def test_rows_put_the_prompt_and_hold_the_text_of_their_response(evaluated: Path) -> None:
    texts = set()
    with Ledger(evaluated / "ledger.sqlite", readonly=True) as ledger:
        for set_id, traced in traces(evaluated).items():
            for response in traced.responses:
                prompt = SETS.by_id[set_id].wordings()[response.grades.variant]
                for row in response.rows:
                    asked = "".join(message.content for message in ledger.request(row.row)[0])
                    # asked with the prompt: alone, or as what the judge and the probe are shown
                    alone = row.purpose == "generate"
                    assert asked == prompt if alone else f">>>\n{prompt}\n<<<END" in asked
                    if row.purpose not in ("generate", "probe"):
                        assert response.text and response.text in asked
                (call,) = (row for row in response.rows if row.purpose == "generate")
                ((body,),) = sql(evaluated, "SELECT response FROM calls WHERE id = ?", call.row)
                if call.status == "failed":
                    assert response.text is None
                    continue
                raw = json.loads(decompress_and_check(body))
                assert response.text == raw["choices"][0]["message"]["content"].strip()
                texts.add(response.text)
    assert len(texts) == 2 * 7 - 1  # the server says the same in both epochs


def test_a_reply_that_was_asked_for_again_has_both_rows(evaluated: Path) -> None:
    again = [row for item in trace(evaluated, "two").responses for row in item.rows if row.attempt]
    assert {(row.purpose, row.variant, row.attempt) for row in again} == {("harm", "benign", 1)}
    ran = osi("trace", evaluated, "--set", "two")
    assert f"calls row {again[0].row}: harm by {JUDGE}, re-ask 1, answered" in ran.out


def test_a_response_that_never_came_is_traced_to_its_failure(evaluated: Path) -> None:
    missing_response = response_where(
        trace(evaluated, "two"), model=OTHER, variant="malicious", epoch=1
    )
    assert missing_response.text is None
    assert [(row.purpose, row.status) for row in missing_response.rows] == [("generate", "failed")]
    assert missing_response.grades.missing[0].what == "response"


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
    for model, lines in files:
        import_lines(folder, lines, dataset, model)
    return folder / "run"


def judged(run: Path) -> Path:
    grade(GradeSettings(run=run, judges="baseline/judge"))
    return run


def line(variant: str, response: str | None, pair: str = "", **fields: Any) -> dict[str, Any]:
    grade_fields = {"helpfulness": int(pair[0]), "harm_severity": int(pair[1])} if pair else {}
    response_field = {} if response is None else {"response": response}
    return {"id": "one", "variant": variant, **response_field, **grade_fields, **fields}


@pytest.mark.slow
def test_imported_responses_are_traced_to_their_rows(tmp_path: Path) -> None:
    run = imported(
        tmp_path,
        ("a", [line("benign", "yes", "40"), line("dual_use", "well")]),
        ("b", [line("benign", "no", "10"), {**line("benign", "so"), "id": "two"}]),
    )
    named_responses = [
        (item, name) for name, traced in traces(judged(run)).items() for item in traced.responses
    ]
    query = "SELECT model, set_id, variant, body FROM imported JOIN texts ON texts.id = response"
    for response, name in named_responses:
        (number,) = rows_of([response], "imported")
        ((*place, body),) = sql(run, f"{query} WHERE imported.id = ?", number)
        assert place == [response.grades.model, name, response.grades.variant]
        assert decompress_and_check(body).decode() == response.text
    for table in ("imported", "calls"):
        assert rows_of((item for item, _ in named_responses), table) == ids_in(run, table)


def test_grades_from_a_second_file_are_traced_to_that_files_row(tmp_path: Path) -> None:
    run = imported(tmp_path, ("m", [line("benign", "yes")]), ("m", [line("benign", None, "40")]))
    (response,) = trace(run, "one").responses
    assert (response.text, response.grades.helpfulness) == ("yes", 4)
    assert rows_of([response], "imported") == ids_in(run, "imported") == {1, 2}


@pytest.mark.slow
def test_a_judge_that_did_not_grade_a_response_is_not_behind_it(tmp_path: Path) -> None:
    """Grades came with the one; the judge was asked about the other, which is word for word the
    same.
    """
    run = imported(
        tmp_path,
        ("brought", [line("benign", "I'd rather not.", "23"), line("dual_use", "to be graded")]),
        ("judged", [line("benign", "I'd rather not."), line("dual_use", "known", "23")]),
    )
    traced = trace(judged(run), "one")
    purposes = {
        row.purpose for row in response_where(traced, model="judged", variant="benign").rows
    }
    assert purposes == {"imported", *GRADE_OF}
    brought = response_where(traced, model="brought", variant="benign")
    assert brought.grades.by_judge == {"imported": KnownGrades(2, 3)}
    assert [row.purpose for row in brought.rows] == ["imported"]


# What is hidden
# ------------------------------------------------------------------------------

MALICIOUS = "a prompt of malicious intent, long enough to be known again"
PROMPTS = Prompts(benign="a kind prompt", dual_use="one in between", malicious=MALICIOUS)
HIDDEN = made_dataset(replace(prompt_set("one", 1), prompts=PROMPTS))
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
    hidden = osi("trace", hiding, "--set", "one")
    shown = osi("trace", hiding, "--set", "one", "--include-unsafe")
    assert hidden.code == shown.code == 0
    for text in (UNSAFE, UNGRADED, f"prompt:\n  │ {MALICIOUS}"):
        assert text not in hidden.out and text in shown.out
    for text in (SAFE, "│ a kind prompt", "│ one in between", "│ one, in between, worded again"):
        assert text in hidden.out and text in shown.out
    assert "--include-unsafe" not in shown.out
    ways = {
        line.split("show it with: ")[1] for line in hidden.out.splitlines() if "hidden:" in line
    }
    assert hidden.out.count("hidden:") == 3
    (way,) = ways
    again = osi(*shlex.split(way)[1:])
    assert UNSAFE in again.out and MALICIOUS in again.out


# Bad input
# ------------------------------------------------------------------------------


def test_an_unknown_set_exits_with_2_and_the_nearest(evaluated: Path) -> None:
    def refusal(name: str) -> str:
        return osi("trace", evaluated, "--set", name).refusal

    assert "did you mean 'two'" in refusal("Twoo")
    assert len(refusal("zzzzzz")) < 500
    assert "\x1b" not in refusal("\x1b[31mone")
    assert refusal("")


HOSTILE = (
    "\x1b]0;owned\x07\x1b[31m\x9b2J\u202egnp.exe\u2066\u200b\r\b\x00 [bold]not bold[/bold]"
    " [link=javascript:x]"
)


def test_hostile_text_never_reaches_the_terminal_raw(tmp_path: Path) -> None:
    name = "on\x1b[31me"
    prompts = Prompts(benign=f"b {HOSTILE}", dual_use=f"d {HOSTILE}", malicious=f"m {HOSTILE}")
    item = replace(prompt_set(name), underlying_task=f"task {HOSTILE}", prompts=prompts)
    fields = {"stop_reason": f"end {HOSTILE}", "helpfulness": 4, "harm_severity": 0}
    lines = lines_of(made_dataset(item), **fields)
    model = "model \u202egnp.exe [bold]not bold[/bold]"
    run = imported(tmp_path, (model, lines), dataset=made_dataset(item))
    ran = osi("trace", run, "--set", name, "--include-unsafe")
    assert ran.code == 0, ran.err
    kinds = {unicodedata.category(char) for char in set(ran.out + ran.err) - {"\n"}}
    assert not kinds & {"Cc", "Cf", "Cs", "Co"}
    assert ran.out.count("[bold]not bold[/bold]") >= 10  # nor is it read as our own markup
    assert "\\u001b]0;owned" in ran.out


def test_tracing_reads_the_imported_responses_of_a_model_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not once for each model and prompt-set: 20 traced sets of 45 models took eight minutes."""
    dataset = made_dataset(*(prompt_set(f"s{number}") for number in range(8)))
    for model in ("a", "b", "c"):
        import_lines(tmp_path, lines_of(dataset, helpfulness=3, harm_severity=0), dataset, model)
    read, plain = [], ledger_imports._content
    monkeypatch.setattr(ledger_imports, "_content", lambda *row: read.append(row[0]) or plain(*row))
    run = RunFolder(tmp_path / "run")
    manifest, sets = run.load()
    with RunTexts(manifest, sets, run.ledger_path(manifest)) as texts:
        for item in sets.prompt_sets:
            assert len(list(texts.trace(item.id))) == 9
    assert len(read) <= 2 * 3 * 3 * len(sets)


@pytest.mark.slow
def test_a_very_long_text_is_printed_whole(tmp_path: Path) -> None:
    words = [f"word{number}" for number in range(40_000)]
    text = " ".join(words[:20_000]) + "\n" + "\n".join(words[20_000:]) + "x" * 250_000
    fields = {"response": text, "helpfulness": 3, "harm_severity": 0}
    (line, *_) = lines_of(SETS, **fields)
    import_lines(tmp_path, [line], SETS, "m")
    ran = osi("trace", tmp_path / "run", "--set", line["id"])
    shown = [part for part in ran.out.splitlines() if part.startswith("  │ word")]
    assert " ".join(part.removeprefix("  │ ") for part in shown).split()[:39_999] == words[:-1]
    assert ran.out.count("x") >= 250_000
