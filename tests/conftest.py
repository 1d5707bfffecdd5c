"""Settings that all tests share."""

from __future__ import annotations

import functools
import gc
import importlib.metadata
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import msgspec
import pytest
from hypothesis import settings

from loopback import LoopbackServer
from samples import without_drawing

_CHROMIUM = Path("/usr/bin/chromium")
_PUBLISHED = Path(__file__).resolve().parents[2] / "shared" / "data"

settings.register_profile("opensafeintent", derandomize=True, deadline=None)
settings.load_profile("opensafeintent")

# Inspect AI looks through all that is installed, a second's work, for each evaluation.
importlib.metadata.packages_distributions = functools.cache(
    importlib.metadata.packages_distributions
)

# A shell that starts something in the background has it ignore Ctrl-C, and so would every program
# that a test interrupts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def without_bytecode() -> None:
    """Processes that tests start write none: one that is killed, or runs out of space, would leave
    half a file for the next.
    """
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """What is kept for later runs is kept for later tests, and not in the user's own cache."""
    base = tmp_path_factory.getbasetemp()
    is_worker = "PYTEST_XDIST_WORKER" in os.environ
    os.environ["OPENSAFEINTENT_CACHE"] = str((base.parent if is_worker else base) / "cache")


@pytest.fixture(scope="session", autouse=True)
def metrics_as_in_the_schema() -> Iterator[None]:
    """Whatever a test is about, a `metrics.json` that this process writes has the types of its
    schema. One that a process of its own writes is checked when `endtoend.metrics` reads it.
    """
    from opensafeintent.commands import reporting as report
    from opensafeintent.report.metrics_json import MetricsFile

    decoder, to_json = msgspec.json.Decoder(MetricsFile), report.to_json

    def checked(value: object) -> bytes:
        written = to_json(value)
        decoder.decode(written)
        return written

    with mock.patch.object(report, "to_json", checked):
        yield


@pytest.fixture(scope="session")
def published() -> Path:
    """The folder of the authors' files, which are no part of the repository: what reads them skips
    where they are not.
    """
    if not _PUBLISHED.is_dir():
        pytest.skip("the published data is not at hand")
    return _PUBLISHED


@pytest.fixture
def server() -> Iterator[LoopbackServer]:
    with LoopbackServer() as running:
        yield running


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """Debian's Chromium, driven by Playwright; its pages and contexts are closed with it.

    While it is open, nothing in this process can start an event loop of its own.
    """
    if not _CHROMIUM.exists():
        pytest.skip("no Chromium here")
    playwright_api = pytest.importorskip("playwright.sync_api", reason="make .venv/.dev")
    quiet = ("--disable-background-networking", "--disable-component-update", "--no-first-run")
    with playwright_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=_CHROMIUM, args=["--no-sandbox", "--disable-gpu", *quiet]
        )
        yield browser
        browser.close()


@pytest.fixture
def unmeasured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes that a test starts are not measured for coverage, which loads modules and writes
    files of its own.
    """
    for name in [name for name in os.environ if name.startswith("COVERAGE_")]:
        monkeypatch.delenv(name)


@pytest.fixture(scope="module", autouse=True)
def without_pictures(request: pytest.FixtureRequest) -> Iterator[None]:
    """Nothing is drawn, unless the module is marked `drawn`: pictures take most of a report's time."""
    if request.node.get_closest_marker("drawn"):
        yield
        return
    with without_drawing():
        yield


@pytest.fixture(scope="module")
def patient() -> Iterator[None]:
    """A judge that never answers in the form asked for is asked to the end."""
    from opensafeintent.calls import client

    with mock.patch.object(client, "_FORMLESS_QUESTIONS", 10**9):
        yield


_MARKED = {"published": "published", "chromium": "slow"}
"""What uses a fixture has a marker of its own: `-m published` runs what reads the authors' files,
alone.
"""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests by the fixtures that they use."""
    for item in items:
        for fixture in _MARKED.keys() & getattr(item, "fixturenames", ()):
            item.add_marker(_MARKED[fixture])


def pytest_collection_finish() -> None:
    """What is loaded by now stays to the end: no search for garbage needs to look at it."""
    gc.freeze()
