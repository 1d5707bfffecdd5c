"""Batches without the waits that a provider of real ones deserves."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from batches.support import hasten
from endtoend import evaluate, some_sets
from loopback.batches import batch_server


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    hasten(monkeypatch.setattr)


@pytest.fixture(scope="package")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three prompt-sets, seven prompts each."""
    return some_sets(tmp_path_factory.mktemp("data"), 3)


@pytest.fixture(scope="package")
def plain(tmp_path_factory: pytest.TempPathFactory, dataset: Path) -> Iterator[Path]:
    """A run with plain calls."""
    run = tmp_path_factory.mktemp("plain") / "run"
    with batch_server() as server:
        assert evaluate(server, dataset, run).code == 0
    yield run
