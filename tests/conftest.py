"""Settings that all tests share."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from hypothesis import settings

_PUBLISHED = Path(__file__).resolve().parents[2] / "shared" / "data"

settings.register_profile("opensafeintent", derandomize=True, deadline=None)
settings.load_profile("opensafeintent")

# A shell that starts something in the background has it ignore Ctrl-C, and so would every program that a test interrupts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def published() -> Path:
    """The folder of the authors' files, which are no part of the repository: what reads them skips where they are not."""
    if not _PUBLISHED.is_dir():
        pytest.skip("the published data is not at hand")
    return _PUBLISHED


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what reads the authors' files, so that `-m published` runs it alone."""
    for item in items:
        if "published" in getattr(item, "fixturenames", ()):
            item.add_marker("published")
