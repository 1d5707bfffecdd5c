"""What the page shows of several judges, in a real browser; and with one judge, nothing of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from report.judge_studies import JUDGES, random_panel
from report.pages import Opened, page_of, saved
from report.runs import MODELS

PANEL_TABLES = ("judge_metrics", "judge_agreement", "judge_retest")


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """By judges: two of twelve models, three of four."""
    return {
        judges: saved(
            tmp_path_factory.mktemp("judges"),
            page_of(random_panel(JUDGES[:judges], MODELS[:models], 40, samples=30)),
        )
        for judges, models in ((2, 12), (3, 4))
    }


@pytest.mark.parametrize(("judges", "width", "scheme"), [(2, 390, "dark"), (3, 1300, "light")])
def test_section_of_several_judges(
    chromium: Any, pages: dict[int, Path], judges: int, width: int, scheme: str
) -> None:
    viewport = {"width": width, "height": 900}
    with Opened(chromium, pages[judges], viewport=viewport, color_scheme=scheme) as opened:
        page = opened.page
        for name in PANEL_TABLES:
            assert page.locator(f"#judges #table-{name} tbody tr").count() > 0
        between = page.locator("#table-judge_agreement tbody tr")
        assert between.count() == judges * (judges - 1) // 2 + (judges > 2)
        place = page.locator("#figure-fig_judges")
        place.scroll_into_view_if_needed()
        place.locator("svg").wait_for(state="attached")
        legend = page.locator("#figure-fig_judges svg").text_content()
        assert all(part in legend for part in ("panel", "gemini-3-flash"))
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_each_judges_grades_stand_beside_a_response_and_filter(
    chromium: Any, pages: dict[int, Path]
) -> None:
    with Opened(chromium, pages[3]) as opened:
        opened.part("kind").select_option("judges_differ")
        entries = opened.part("list").locator(".entry")
        entries.first.wait_for()
        assert entries.count() == opened.part("list").locator(".entry:has(.split)").count()
        for card in opened.page.locator(".view .card").all():
            lines = card.locator("ul.judges li").all_inner_texts()
            # NAME helpfulness H, harm S
            assert [line.split()[-5] for line in lines] == list(JUDGES)
            differ = len({line.endswith(" 0") for line in lines if not line.endswith("–")}) > 1
            assert ("they differ" in card.locator("p.judges").inner_text()) is differ
