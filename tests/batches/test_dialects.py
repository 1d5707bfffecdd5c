"""The dialects of batches: the results are those of plain calls, whatever a provider does."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from batches.support import NAMES, ledger_rows, run_batch
from calls.support import rows
from endtoend import results
from loopback.batches import batch_server
from opensafeintent.batch.dialects import quote_id
from opensafeintent.batch.server import LostReply
from opensafeintent.taxonomy import QUESTIONS


@pytest.mark.slow
def test_a_run_in_batches_has_the_ledger_and_the_results_of_plain_calls(
    dataset: Path, plain: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    with batch_server() as server:
        ran = run_batch(server, dataset, run)
        assert ran.code == 0
        assert server.plain_calls <= 7  # one prompt proves each model, and probes are too few
    assert re.search(r"\n\d+ calls made(, \d duplicate requests? answered once)?\.", ran.out)
    assert results(run) == results(plain)
    assert ledger_rows(run) == ledger_rows(plain)


@pytest.mark.slow
@pytest.mark.parametrize("form", ["together", "mistral", "anthropic"])
def test_each_dialect_gives_the_results_of_plain_calls(
    form: str, dataset: Path, tmp_path: Path
) -> None:
    with batch_server(form) as server:
        assert run_batch(server, dataset, tmp_path / "plain", batch=False).code == 0
        assert run_batch(server, dataset, tmp_path / "run").code == 0
        assert server.creates == 2
    assert results(tmp_path / "run") == results(tmp_path / "plain")
    assert ledger_rows(tmp_path / "run") == ledger_rows(tmp_path / "plain")


FAULTS: dict[str, dict[str, Any]] = {
    "the reply to create is lost, and the list shows the batch late": {
        "lost_creates": (1, 2),
        "lists_before": 3,
    },
    "create is lost on its way": {"dropped_creates": (1,)},
    "files appear late": {"without_files": 3},
    "the queue is full after create": {"queue": 12},
    "some lines expire": {"expires": 0.3},
    "a batch expires without results and files": {"all_expire": True},
    "lines are repeated, unknown and damaged": {"twice": 0.3, "strange": True},
    "the state is unknown": {"odd_states": 3},
}


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_the_results_are_the_same_though(
    fault: str, dataset: Path, plain: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    with batch_server(**FAULTS[fault]) as server:
        ran = run_batch(server, dataset, run)
        assert (ran.code, server.asked_twice) == (0, []), ran
    assert (run / "metrics.json").read_bytes() == (plain / "metrics.json").read_bytes()
    lines = {
        "lines are repeated, unknown and damaged": "of unknown calls",
        "the queue is full after create": "the provider's queue is full; smaller batches follow",
        "some lines expire": "without a result",
    }
    assert lines.get(fault, "") in ran.err


@pytest.mark.slow
@pytest.mark.parametrize(
    "faults",
    [{"lost_creates": (1, 2), "lists_before": 2}, {"dropped_creates": (2,)}, {"expires": 0.3}],
    ids=lambda faults: next(iter(faults)),
)
def test_a_dialect_without_marks_finds_its_batches_by_their_results(
    faults: dict[str, Any], dataset: Path, tmp_path: Path
) -> None:
    with batch_server("anthropic", **faults) as server:
        ran = run_batch(server, dataset, tmp_path / "run")
        assert (ran.code, server.asked_twice) == (0, []), ran
        assert run_batch(server, dataset, tmp_path / "plain", batch=False).code == 0
    metrics = [(tmp_path / name / "metrics.json").read_bytes() for name in ("run", "plain")]
    assert metrics[0] == metrics[1]


@pytest.mark.slow
def test_ends_of_lines_within_a_reply_are_part_of_it(dataset: Path, tmp_path: Path) -> None:
    with batch_server(separators=True) as server:
        assert run_batch(server, dataset, tmp_path / "run").code == 0
        assert run_batch(server, dataset, tmp_path / "plain", batch=False).code == 0
    assert results(tmp_path / "run") == results(tmp_path / "plain")


@pytest.mark.slow
def test_a_filters_400_within_the_file_of_errors_is_a_refusal(
    dataset: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    with batch_server(refused=0.3) as server:
        assert run_batch(server, dataset, run, "--max-missing", "1").code == 0
    refused = rows(run / "ledger.sqlite", "purpose, status")
    assert ("generate", "refused") in refused
    assert all(status != "failed" for _, status in refused)


@pytest.mark.slow
def test_an_error_of_a_line_is_a_failure_that_is_not_asked_again(
    dataset: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    with batch_server("anthropic", refused=0.3) as server:
        assert run_batch(server, dataset, run).code == 1
        asked = server.plain_calls
    failed = [error for status, error in rows(run / "ledger.sqlite") if status == "failed"]
    assert failed
    assert all(error.startswith("rejected: 400") for error in failed)
    assert asked <= 7


@pytest.mark.slow
def test_a_field_that_a_model_refuses_is_left_out_of_all_lines(
    dataset: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    with batch_server(refuses="temperature") as server:
        ran = run_batch(server, dataset, run)
        assert (ran.code, server.creates) == (0, 2), ran
    assert "does not take temperature; it was asked without" in ran.out
    failed = [error for status, error in rows(run / "ledger.sqlite") if status == "failed"]
    # those of the judge's first calls, which are plain calls: each question, and the mode
    assert 1 <= len(failed) <= len(QUESTIONS) + 1


def test_the_providers_with_a_price_of_batches_are_those_with_a_dialect() -> None:
    from opensafeintent.batch.endpoints import DIALECTS
    from opensafeintent.calls.providers import ENDPOINTS

    assert {name for name, row in ENDPOINTS.items() if row.batch} == DIALECTS.keys()


def test_every_name_is_a_provider_of_the_table() -> None:
    from opensafeintent.batch.endpoints import DIALECTS, find_dialect

    assert all(find_dialect(f"{name}/m") for name in NAMES.values())
    assert {find_dialect(f"{name}/m") for name in ("openai", "openai-api/any")} == {
        DIALECTS["openai"]
    }
    assert find_dialect("ollama/m") is None


@pytest.mark.parametrize(
    "batch_id",
    ["", "a b", "a\nb", "a\u200bb", "..", "../files", "a/../b", "a\\..", "x" * 1001, None, 7],
)
def test_an_id_of_another_form_is_none(batch_id: object) -> None:
    with pytest.raises(LostReply, match="names no batch or file by an id"):
        quote_id(batch_id)


def test_an_id_is_one_segment_of_a_path() -> None:
    assert quote_id("gs://b/c?x=1#%2e") == "gs%3A%2F%2Fb%2Fc%3Fx%3D1%23%252e"
    assert quote_id("x" * 1000) == "x" * 1000
