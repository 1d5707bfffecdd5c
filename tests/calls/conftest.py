"""The place of a ledger, and attempts without a wait."""

from __future__ import annotations

from pathlib import Path

import pytest

from opensafeintent.calls import client as client_module


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.sqlite"


@pytest.fixture
def quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first wait before another attempt is short."""
    monkeypatch.setattr(client_module, "_FIRST_WAIT", 0.001)
