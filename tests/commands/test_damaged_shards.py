"""Ledgers that shards of a killed run have left, with one of them damaged."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from endtoend import Ran, osi
from samples import dataset_file, made_dataset, prompt_set

DATASET = made_dataset(*(prompt_set(name, 1) for name in ("boats", "trains", "ships", "bikes")))


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return dataset_file(tmp_path_factory.mktemp("sets"), DATASET)


def evaluated(dataset: Path, out: Path, *options: object) -> Ran:
    models = ("baseline/comply-all", "baseline/refuse-all", "--judge", "baseline/judge")
    return osi("evaluate", *models, "--dataset", dataset, "--out", out, *options)


@pytest.mark.slow
def test_a_damaged_ledger_says_which_calls_it_had_and_the_way_on_works(
    dataset: Path, tmp_path: Path
) -> None:
    out, whole = tmp_path / "run", tmp_path / "whole"
    assert evaluated(dataset, whole).code == 0
    assert evaluated(dataset, out, "--limit", 1).code == 0
    grown = ("--limit", 100)
    bad, good = (out / "shards" / name for name in ("00000", "00001"))
    for shard in (bad, good):
        shard.mkdir(parents=True)
        shutil.copy(whole / "ledger.sqlite", shard)
    with (bad / "ledger.sqlite").open("r+b") as file:
        file.truncate(file.seek(0, 2) // 2)
    ran = evaluated(dataset, out, *grown)
    (error,) = ran.errors
    assert ran.code == 2
    assert str(bad / "ledger.sqlite") in error and "damaged" in error
    assert "baseline/comply-all " in error  # with the number of its calls
    assert f"move the folder {bad} out of {bad.parent} and run the same command again" in error
    assert good.exists() and bad.exists()

    bad.rename(tmp_path / "away")
    ran = evaluated(dataset, out, *grown)
    assert ran.code == 0 and " calls taken up" in ran.out + ran.err
    assert not (out / "shards").exists()
    for run in (out, whole):
        assert osi("report", run).code == 0
    same = [(run / "tables" / "metrics.csv").read_text() for run in (out, whole)]
    assert same[0] == same[1]


@pytest.mark.slow
@pytest.mark.parametrize("contents", [b"no database at all" * 300, b"SQLite format 3\0" * 300])
def test_a_file_that_is_no_ledger_any_more(dataset: Path, tmp_path: Path, contents: bytes) -> None:
    out = tmp_path / "run"
    assert evaluated(dataset, out, "--limit", 1).code == 0
    bad = out / "shards" / "00000" / "ledger.sqlite"
    bad.parent.mkdir(parents=True)
    bad.write_bytes(contents)
    ran = evaluated(dataset, out)
    assert ran.code == 2 and "no call can be counted" in ran.errors[0], ran.err
    shutil.rmtree(bad.parent)
    assert evaluated(dataset, out).code == 0
