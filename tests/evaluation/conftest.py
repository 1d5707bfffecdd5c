"""A dataset that is soon evaluated, and a place to evaluate it into."""

from __future__ import annotations

from pathlib import Path

import pytest

from endtoend import Lab, some_sets
from loopback import LoopbackServer


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    """Eight sets: 56 prompts."""
    return some_sets(tmp_path, 8)


@pytest.fixture
def lab(server: LoopbackServer, dataset: Path, tmp_path: Path) -> Lab:
    return Lab(server, dataset, tmp_path / "run")
