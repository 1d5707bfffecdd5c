"""axe-core's rules on the pages, in light and dark, wide and narrow, folded and opened."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from opensafeintent.promptsets import load_dataset
from people.forms import judge_study, quality_study
from report.pages import Opened, page_of, saved
from report.runs import MODELS, random_run

CASES = [("light", 390), ("dark", 1300)]


def violations(page: Any) -> list[str]:
    """What axe-core objects to: rule, first element, how many."""
    from axe_playwright_python.sync_playwright import Axe

    page.wait_for_timeout(500)  # figures that come into view are drawn
    violations = Axe().run(page).response["violations"]
    return [
        f"{violation['id']}: {violation['nodes'][0]['html'][:200]}, {len(violation['nodes'])}"
        for violation in violations
    ]


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(tmp_path_factory.mktemp("report"), page_of(random_run(MODELS[:2], 8)))


@pytest.mark.parametrize(("theme", "width"), CASES)
def test_report(chromium: Any, report: Path, theme: str, width: int) -> None:
    size = {"width": width, "height": 900}
    with Opened(chromium, report, viewport=size, color_scheme=theme, bypass_csp=True) as opened:
        opened.open(folded=True)
        assert violations(opened.page) == []
        opened.page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
        assert violations(opened.page) == []


@pytest.mark.parametrize(("theme", "width"), CASES)
@pytest.mark.parametrize("kind", ["responses", "sets"])
def test_annotation(chromium: Any, tmp_path: Path, kind: str, theme: str, width: int) -> None:
    starter = load_dataset("starter")
    two_sets = type(starter)("two", starter.prompt_sets[:2], starter.taxonomy)
    study = judge_study(["One.", "Two."]) if kind == "responses" else quality_study(two_sets)
    path = tmp_path / "ana.html"
    path.write_bytes(study.page("ana"))
    page = chromium.new_page(
        viewport={"width": width, "height": 900}, color_scheme=theme, bypass_csp=True
    )
    page.goto(path.as_uri())
    for step in ("warning", "guide", "practice", "answered", "next"):
        assert violations(page) == [], step
        page.keyboard.press({"practice": "1", "answered": "ArrowRight"}.get(step, "Enter"))
