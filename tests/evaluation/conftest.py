"""A server to evaluate against, and a dataset that is soon evaluated."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from endtoend import Lab, some_sets
from loopback import LoopbackServer


@pytest.fixture
def server() -> Iterator[LoopbackServer]:
    with LoopbackServer() as running:
        yield running


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    """Eight sets: 56 prompts."""
    return some_sets(tmp_path, 8)


@pytest.fixture
def lab(server: LoopbackServer, dataset: Path, tmp_path: Path) -> Lab:
    return Lab(server, dataset, tmp_path / "run")
