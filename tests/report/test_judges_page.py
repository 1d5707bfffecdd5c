"""What the page shows of several judges, in a real browser; and with one judge, nothing of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from report.judge_studies import JUDGES, random_panel
from report.pages import Opened, page_of
from report.studies import MODELS, random_study

PANEL_TABLES = ("judge_metrics", "judge_agreement", "judge_noise")


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[int, int], Path]:
    """By judges and models."""
    folder = tmp_path_factory.mktemp("judges")
    found = {}
    for judges, models in ((2, 12), (3, 4)):
        found[judges, models] = folder / f"{judges}-{models}.html"
        study = random_panel(JUDGES[:judges], MODELS[:models], 40, samples=30)
        found[judges, models].write_bytes(page_of(study))
    return found


@pytest.mark.parametrize(
    ("size", "width", "scheme"), [((2, 12), 390, "dark"), ((3, 4), 1300, "light")]
)
def test_section_of_several_judges(
    chromium: Any,
    pages: dict[tuple[int, int], Path],
    size: tuple[int, int],
    width: int,
    scheme: str,
) -> None:
    judges, _ = size
    viewport = {"width": width, "height": 900}
    with Opened(chromium, pages[size], viewport=viewport, color_scheme=scheme) as opened:
        page = opened.page
        for name in PANEL_TABLES:
            assert page.locator(f"#graders #table-{name} tbody tr").count() > 0
        between = page.locator("#table-judge_agreement tbody tr")
        assert between.count() == judges * (judges - 1) // 2 + (judges > 2)
        place = page.locator("#figure-fig_judges")
        place.scroll_into_view_if_needed()
        place.locator("svg").wait_for(state="attached")
        legend = page.locator("#figure-fig_judges svg").text_content()
        assert all(part in legend for part in ("panel", "gemini-3-flash"))
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert opened.errors == []


def test_only_the_panels_numbers_lead_to_prompt_sets(
    chromium: Any, pages: dict[tuple[int, int], Path]
) -> None:
    with Opened(chromium, pages[2, 12]) as opened:
        rows = opened.page.locator("#table-judge_metrics tbody tr")
        linked = {
            (rows.nth(n).locator("td").first.inner_text(), rows.nth(n).locator("a").count() > 0)
            for n in range(rows.count())
        }
    graders = (*JUDGES[:2], "judge_average")
    assert linked == {*((grader, False) for grader in graders), ("panel", True)}


def test_each_judges_grades_stand_beside_a_response_and_filter(
    chromium: Any, pages: dict[tuple[int, int], Path]
) -> None:
    with Opened(chromium, pages[3, 4]) as opened:
        opened.part("kind").select_option("judges_differ")
        entries = opened.part("list").locator(".entry")
        entries.first.wait_for()
        assert entries.count() == opened.part("list").locator(".entry:has(.split)").count()
        cards = opened.page.locator(".view .card")
        for card in (cards.nth(number) for number in range(cards.count())):
            lines = card.locator("ul.judges li").all_inner_texts()
            # NAME helpfulness H, harm S
            assert [line.split()[-5] for line in lines] == list(JUDGES)
            differ = len({line.endswith(" 0") for line in lines if not line.endswith("–")}) > 1
            assert ("they differ" in card.locator("p.judges").inner_text()) is differ
        assert opened.errors == []


def test_with_one_judge_the_page_has_no_such_section(chromium: Any, tmp_path: Path) -> None:
    path = tmp_path / "one.html"
    path.write_bytes(page_of(random_study(["google/gemini-3-flash"], 30, judge="openai/gpt-5.4")))
    with Opened(chromium, path) as opened:
        assert opened.page.locator("#graders, [id*=judge_]").count() == 0
        assert opened.page.locator('[data-part="split"]').is_hidden()
        assert opened.errors == []
