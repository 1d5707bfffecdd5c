"""What the fuzz tests share: a place for runs that are made once, and the counts for `make
fuzz`.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from fuzz.contract import TRIED


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for what `runs` makes."""
    return tmp_path_factory.mktemp("fuzz")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A failing example may be too long for Hypothesis's taste."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(
                pytest.mark.filterwarnings("ignore::hypothesis.errors.HypothesisWarning")
            )


def pytest_sessionfinish() -> None:
    """Write down what was tried, where the campaign wants it."""
    if counts := os.environ.get("FUZZ_COUNTS"):
        Path(counts).write_text(
            json.dumps([[reader, end, count] for (reader, end), count in TRIED.items()])
        )
