"""Files of results that are damaged, late or gone: no answer is paid for twice while it may be read,
and every run ends with the results of plain calls.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from batches.support import hasten, run_batch, served
from calls.support import holds
from endtoend import Ran, osi, some_sets
from loopback.batches import LIMIT, BatchHttpServer, batch_server
from loopback.damage import DAMAGE

FOREVER = 10**9
FILE = {"openai": "out", "together": "out", "mistral": "out", "anthropic": "all"}
"""The file with the answers, by form."""
FAST = (("openai", "gzip, cut"), ("anthropic", "cut at a line's end"))
SOUND = sorted(name for name in DAMAGE if name.startswith("sound"))
TWICE = sorted(DAMAGE.keys() - {"404", "410", *SOUND})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("damaged")


@pytest.fixture
def small(folder: Path) -> Path:
    """Two prompt-sets of two wordings."""
    path = folder / "sets-2-2.jsonl"
    return path if path.exists() else some_sets(folder, 2, paraphrases=2)


@cache
def _plain(form: str, dataset: Path) -> bytes:
    run = dataset.parent / f"plain-{form}"
    with batch_server(form) as server:
        assert run_batch(server, dataset, run, batch=False).code == 0
    return (run / "metrics.json").read_bytes()


def _ran(server: BatchHttpServer, dataset: Path, run: Path, *options: object) -> Ran:
    """Run to the end; the results are those of plain calls, and no answer was asked for twice."""
    ran = run_batch(server, dataset, run, *options)
    assert (ran.code, server.asked_twice) == (0, []), ran
    assert (run / "metrics.json").read_bytes() == _plain(server.form, dataset)
    assert list(run.glob(".*.jsonl")) == []
    return ran


@pytest.mark.parametrize(
    ("form", "damage"),
    [
        pytest.param(form, damage, marks=[pytest.mark.slow] * ((form, damage) not in FAST))
        for form in ("openai", "anthropic")
        for damage in TWICE
        # a dozen seconds
        if (form, damage) != ("anthropic", "one line without end")
    ],
)
def test_a_file_that_is_damaged_is_read_again_and_not_paid_for_again(
    form: str, damage: str, small: Path, tmp_path: Path
) -> None:
    with batch_server(form, damage={FILE[form]: damage}, damaged=2) as server:
        ran = _ran(server, small, tmp_path / "run")
        # one batch of the target and one of the judge
        assert server.creates == 2
        assert set(server.downloads.values()) == {3}
    assert "cannot be read to its end" in ran.err
    ledger = tmp_path / "run" / "ledger.sqlite"
    assert (holds(ledger, "Note "), holds(ledger, "Nota ")) == (True, False)


@pytest.mark.slow
@pytest.mark.parametrize("form", ["openai", "anthropic"])
@pytest.mark.parametrize("damage", SOUND)
def test_a_file_that_is_sound_in_an_odd_form_is_read_once(
    form: str, damage: str, small: Path, tmp_path: Path
) -> None:
    with batch_server(form, damage={FILE[form]: damage}) as server:
        ran = _ran(server, small, tmp_path / "run")
        assert (server.creates, set(server.downloads.values())) == (2, {1})
    assert "cannot be read to its end" not in ran.err


FINAL = {
    "cut at a line's end": "without a result",
    "cut within a line": "the file{}: its last line is no whole JSON",
    "gzip, cut": "the file{}: its compression does not come to its end",
    "HTML": "without a result",
    "empty": "without a result",
    "an error with 200": "without a result",
    "nested lines": "that cannot be read (nested too deeply)",
    "404": "the file{}: 404 from http://127.0.0.1",
    "410": "the file{}: 410 from http://127.0.0.1",
}


@pytest.mark.slow
@pytest.mark.parametrize("form", ["openai", "anthropic"])
@pytest.mark.parametrize("damage", FINAL)
def test_a_file_that_stays_damaged_is_final_and_the_rest_is_asked_for_again(
    form: str, damage: str, small: Path, tmp_path: Path
) -> None:
    faults = {"damage": {FILE[form]: damage}, "damaged": FOREVER, "damaged_batches": 1}
    with batch_server(form, **faults) as server:
        ran = _ran(server, small, tmp_path / "run")
        assert server.creates >= 2
        name = f"{FILE[form]}-batch_1"
        assert server.downloads[name] == (1 if damage in ("404", "410") else 3)
    expected = FINAL[damage].format(" of answers" if form == "openai" else "")
    ended = next(line for line in ran.err.splitlines() if "batch_1 has ended" in line)
    assert expected in ended


@pytest.mark.slow
@pytest.mark.parametrize("form", ["openai", "mistral"])
@pytest.mark.parametrize("damage", ["404", "503", "HTML", "empty"])
def test_a_file_of_errors_that_is_not_there_hinders_nothing_if_all_answers_are(
    form: str, damage: str, small: Path, tmp_path: Path
) -> None:
    with batch_server(form, damage={"err": damage}, damaged=FOREVER) as server:
        ran = _ran(server, small, tmp_path / "run")
        assert server.creates == 2
    assert "cannot be read to its end" not in ran.err


@pytest.mark.slow
def test_good_answers_are_stored_before_the_file_of_errors_is_read(
    small: Path, tmp_path: Path
) -> None:
    """The errors are never to be had, and the answers only once."""
    run = tmp_path / "run"
    faults: dict[str, Any] = {"damage": {"err": "503"}, "damaged": FOREVER, "expires": 0.4}
    with batch_server(**faults) as server:
        stopped = run_batch(server, small, run)
        assert (stopped.code, server.asked_twice) == (3, [])
        assert "or its results cannot be read" in stopped.err
        assert "the file of errors: 503" in stopped.err
        server.faults.damage = {"err": "404", "out": "410"}
        server.faults.damaged_batches = 1
        _ran(server, small, run)


@pytest.mark.slow
@pytest.mark.parametrize("form", ["openai", "anthropic"])
def test_what_an_earlier_process_read_of_a_damaged_file_is_not_lost_when_the_file_is(
    form: str, small: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    damage = {FILE[form]: "cut within a line"}
    with batch_server(form, damage=damage, damaged=FOREVER, damaged_batches=1, looks=0) as server:
        assert run_batch(server, small, run, "--wait-for", "0").code == 3
        assert server.creates == 1
        # from now on: the first half of its lines is not asked for again
        half = len(server.batches["batch_1"].lines) // 2
        server.faults.damage = {FILE[form]: "404"}
        ran = run_batch(server, small, run)
        assert ran.code == 0
    assert f"batch_1 has ended, {half} answers of" in ran.err
    assert (run / "metrics.json").read_bytes() == _plain(form, small)


@pytest.mark.slow
@pytest.mark.parametrize("form", ["openai", "together", "anthropic"])
def test_three_equal_downloads_may_be_those_of_three_processes(
    form: str, small: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    faults = {"damage": {FILE[form]: "HTML"}, "damaged": FOREVER, "damaged_batches": 1, "looks": 0}
    with batch_server(form, **faults) as server:
        for _ in range(2):
            assert run_batch(server, small, run, "--wait-for", "0").code == 3
        assert server.creates == 1
        _ran(server, small, run)
        assert server.downloads[f"{FILE[form]}-batch_1"] == 3


@pytest.mark.slow
@pytest.mark.parametrize("form", ["openai", "anthropic"])
def test_downloads_at_short_intervals_are_not_three(
    form: str, small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hasten(monkeypatch.setattr, again=60.0)
    run = tmp_path / "run"
    with batch_server(form, damage={FILE[form]: "empty"}, damaged=FOREVER, looks=0) as server:
        for _ in range(5):
            assert run_batch(server, small, run, "--wait-for", "0").code == 3
        assert server.creates == 1
        assert server.downloads.total() == 5
        # within one process it waits
        server.downloads.clear()
        assert run_batch(server, small, run).code == 3
        assert (server.creates, server.downloads.total()) == (1, 1)


@pytest.mark.slow
@pytest.mark.parametrize("form", ["openai", "together", "mistral"])
def test_a_file_of_answers_that_never_comes_is_final_too(
    form: str, small: Path, tmp_path: Path
) -> None:
    with batch_server(form, without_output=True, damaged_batches=1) as server:
        ran = _ran(server, small, tmp_path / "run")
    assert "the provider names no file with results" in ran.err
    assert server.creates >= 2


@pytest.mark.slow
@pytest.mark.parametrize("form", ["openai", "anthropic"])
def test_lines_that_expired_and_are_in_no_file_are_asked_for_again(
    form: str, small: Path, tmp_path: Path
) -> None:
    with batch_server(form, expires=0.5, silent=True) as server:
        ran = _ran(server, small, tmp_path / "run")
    assert "without a result" in ran.err


@pytest.mark.slow
@pytest.mark.parametrize("form", ["openai", "anthropic"])
@pytest.mark.parametrize(
    ("faults", "kind"), [({"all_expire": True}, "expired"), ({"expires": 0.5}, "timeout")]
)
def test_a_batch_that_expired_as_a_whole_knows_nothing_of_its_calls(
    form: str, faults: dict[str, Any], kind: str, small: Path, tmp_path: Path
) -> None:
    with batch_server(form, **faults) as server:
        _ran(server, small, tmp_path / "run")
    with closing(sqlite3.connect(tmp_path / "run" / "ledger.sqlite")) as ledger:
        rows = ledger.execute("SELECT DISTINCT error FROM calls WHERE status = 'failed'")
        assert {error.partition(":")[0] for (error,) in rows} == {kind}


@pytest.mark.slow
@pytest.mark.parametrize("form", ["openai", "together", "mistral", "anthropic"])
@pytest.mark.parametrize("lines", ["text", "itself"])
def test_a_reply_is_read_in_each_place_where_gateways_put_it(
    form: str, lines: str, small: Path, tmp_path: Path
) -> None:
    with batch_server(form, form_of_lines=lines) as server:
        _ran(server, small, tmp_path / "run")
        assert server.creates == 2


@pytest.mark.slow
def test_an_answer_counts_although_an_error_of_its_call_came_first(
    small: Path, tmp_path: Path
) -> None:
    with batch_server("anthropic", errors_first=True) as server:
        _ran(server, small, tmp_path / "run")
        assert server.creates == 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("form", "ids"),
    [("openai", "long"), ("together", "gs"), ("mistral", "long"), ("anthropic", "gs")],
)
def test_ids_of_gateways_are_taken_and_quoted(
    form: str, ids: str, small: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    with batch_server(form, ids=ids, lost_creates=(2,), looks=2) as server:
        assert run_batch(server, small, run, "--wait-for", "0").code == 3
        listed = osi("batches", run, **served(server))
        assert next(iter(server.batches))[:12] in listed.text
        assert "cannot be asked" not in listed.text
        _ran(server, small, run)
        assert server.creates == 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("form", "clock"),
    [
        *(("openai", -900.0), ("openai", 50_000.0), ("together", 900.0), ("mistral", -50_000.0)),
        *(("anthropic", clock) for clock in (-900.0, 900.0, -50_000.0, 50_000.0)),
    ],
)
def test_a_batch_whose_reply_was_lost_is_found_whatever_the_clocks_say(
    form: str, clock: float, small: Path, tmp_path: Path
) -> None:
    with batch_server(form, clock=clock, lost_creates=(1,)) as server:
        _ran(server, small, tmp_path / "run")
        assert server.creates == 2


@pytest.mark.slow
@pytest.mark.parametrize("damage", ["empty", "gzip with a wrong sum", "404"])
def test_a_batch_without_a_mark_whose_reply_and_results_are_lost_is_made_again(
    damage: str, small: Path, tmp_path: Path
) -> None:
    faults = {"damage": {"all": damage}, "damaged": FOREVER, "damaged_batches": 1}
    with batch_server("anthropic", lost_creates=(1,), **faults) as server:
        _ran(server, small, tmp_path / "run")
        assert server.creates == 3


@pytest.mark.slow
def test_results_that_cannot_be_read_for_a_moment_say_nothing_about_whose_they_are(
    small: Path, tmp_path: Path
) -> None:
    faults = {"damage": {"all": "503"}, "damaged": 3}
    with batch_server("anthropic", lost_creates=(1, 2), **faults) as server:
        _ran(server, small, tmp_path / "run")
        assert server.creates == 2


def test_a_mark_is_looked_for_without_a_look_at_any_clock(small: Path, tmp_path: Path) -> None:
    with batch_server(clock=-(10.0**9), lost_creates=(1, 2)) as server:
        _ran(server, small, tmp_path / "run")
        assert server.creates == 2


@pytest.mark.slow
@pytest.mark.parametrize("form", ["openai", "anthropic"])
@pytest.mark.parametrize("what", ["get", "list", "create"])
def test_json_that_is_nested_too_deeply_is_no_reply(
    form: str, what: str, small: Path, tmp_path: Path
) -> None:
    with batch_server(form, deep={what: 2}) as server:
        _ran(server, small, tmp_path / "run")
        assert server.creates == 2


@pytest.mark.parametrize("what", ["get", "list"])
def test_json_that_is_always_nested_too_deeply_ends_the_run_in_a_line(
    what: str, small: Path, tmp_path: Path
) -> None:
    with batch_server(deep={what: FOREVER}) as server:
        ran = run_batch(server, small, tmp_path / "run")
        assert ran.code == 3
        assert "the reply is no JSON: nested too deeply" in ran.err
        assert server.asked_twice == []


def test_a_batch_that_is_gone_is_said_to_be_with_what_to_do(small: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    with batch_server(vanishes=FOREVER) as server:
        ran = run_batch(server, small, run)
        assert (ran.code, server.creates) == (3, 1)
        said = (
            "openai-api/loop/target: its provider has batch batch_1 no more (404, with the key that"
            " made it), and the answers to 9 calls are lost; to ask for them again, at their price,"
            f" delete {run / 'ledger-batches.sqlite'}"
        )
        assert said in ran.err
        server.faults.vanishes = 0
        (run / "ledger-batches.sqlite").unlink()
        assert run_batch(server, small, run).code == 0
    assert (run / "metrics.json").read_bytes() == _plain("openai", small)


def test_a_batch_that_is_not_there_for_a_moment_is_not_gone(small: Path, tmp_path: Path) -> None:
    with batch_server(vanishes=1) as server:
        _ran(server, small, tmp_path / "run")
        assert server.creates == 2


def test_what_the_check_of_a_file_found_is_said_in_a_line(small: Path, tmp_path: Path) -> None:
    with batch_server(invalid=True) as server:
        ran = run_batch(server, small, tmp_path / "run")
    assert ran.code == 3
    assert (
        "batch batch_1 has failed: line 3: The body has no messages. (invalid_body); duplicate_id;"
        " the file is not as it should be; and 1 more" in ran.err
    )


def test_a_gateways_own_limit_is_shown_in_its_words(small: Path, tmp_path: Path) -> None:
    with batch_server(limited=1) as server:
        ran = _ran(server, small, tmp_path / "run")
    assert f"of at most 4 calls: 429 from {server.base_url}: {LIMIT}" in ran.err
