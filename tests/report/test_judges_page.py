"""What the page shows of several judges, in a real browser; and with one judge, nothing of it."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import pytest

from report.judge_studies import JUDGES, random_panel
from report.pages import page_of
from report.studies import MODELS, random_study

SIZES = tuple(product((2, 3), (4, 12)))
"""Judges and models."""
PANEL_TABLES = ("judge_metrics", "judge_agreement", "judge_noise")


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[int, int], Path]:
    folder = tmp_path_factory.mktemp("judges")
    found = {}
    for judges, models in SIZES:
        found[judges, models] = folder / f"{judges}-{models}.html"
        study = random_panel(JUDGES[:judges], MODELS[:models], 40, samples=30)
        found[judges, models].write_bytes(page_of(study))
    return found


def opened(chromium: Any, path: Path, **context: Any) -> tuple[Any, list[str]]:
    page = chromium.new_context(**context).new_page()
    errors: list[str] = []
    page.on("console", lambda message: message.type == "error" and errors.append(message.text))
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(path.as_uri())
    page.wait_for_selector("html[data-ready]")
    return page, errors


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("width", "scheme"), [(1300, "light"), (390, "dark")])
def test_section_of_several_judges(
    chromium: Any,
    pages: dict[tuple[int, int], Path],
    size: tuple[int, int],
    width: int,
    scheme: str,
) -> None:
    judges, _ = size
    page, errors = opened(
        chromium, pages[size], viewport={"width": width, "height": 900}, color_scheme=scheme
    )
    section = page.locator("#graders")
    assert section.locator("h2").inner_text() == "Who graded"
    for name in PANEL_TABLES:
        assert section.locator(f"#table-{name} tbody tr").count() > 0
    assert page.locator("#table-judge_agreement tbody tr").count() == judges * (judges - 1) // 2 + (
        judges > 2
    )
    place = page.locator("#figure-fig_judges")
    place.scroll_into_view_if_needed()
    place.locator("svg").wait_for(state="attached")
    legend = page.locator("#figure-fig_judges svg").text_content()
    assert all(part in legend for part in ("panel", "gemini-3-flash"))
    assert page.evaluate(
        "document.documentElement.scrollWidth <= document.documentElement.clientWidth"
    )
    assert errors == []
    page.context.close()


def test_only_the_panels_numbers_lead_to_prompt_sets(
    chromium: Any, pages: dict[tuple[int, int], Path]
) -> None:
    page, _ = opened(chromium, pages[2, 4])
    rows = page.locator("#table-judge_metrics tbody tr")
    by_grader: dict[str, set[bool]] = {}
    for number in range(rows.count()):
        grader = rows.nth(number).locator("td").first.inner_text()
        by_grader.setdefault(grader, set()).add(rows.nth(number).locator("a").count() > 0)
    assert by_grader == {
        JUDGES[0]: {False},
        JUDGES[1]: {False},
        "judge_average": {False},
        "panel": {True},
    }
    page.context.close()


def test_what_was_found_names_the_judges(chromium: Any, pages: dict[tuple[int, int], Path]) -> None:
    page, _ = opened(chromium, pages[3, 4])
    topics = page.locator(".findings dt").all_inner_texts()
    assert [topic for topic in topics if "udge" in topic] == ["Several judges"]
    cautions = page.locator(".cautions li").all_inner_texts()
    assert len([text for text in cautions if "judges favour their own kind" in text]) == 3
    page.context.close()


def test_each_judges_grades_stand_beside_a_response_and_filter(
    chromium: Any, pages: dict[tuple[int, int], Path]
) -> None:
    page, errors = opened(chromium, pages[3, 4])
    page.select_option('[data-part="kind"]', "judges_differ")
    page.locator('[data-part="list"] .entry').first.wait_for()
    assert (
        page.locator('[data-part="list"] .entry').count()
        == page.locator('[data-part="list"] .entry:has(.split)').count()
    )
    cards = page.locator(".view .card")
    for card in (cards.nth(number) for number in range(cards.count())):
        lines = card.locator("ul.judges li").all_inner_texts()
        assert [line.split()[-5] for line in lines] == list(JUDGES)  # NAME helpfulness H, harm S
        differ = len({line.endswith(" 0") for line in lines if not line.endswith("–")}) > 1
        assert ("they differ" in card.locator("p.judges").inner_text()) is differ
    assert errors == []
    page.context.close()


def test_with_one_judge_and_no_conflict_the_page_has_no_such_section(
    chromium: Any, tmp_path: Path
) -> None:
    path = tmp_path / "one.html"
    path.write_bytes(
        page_of(random_study(["google/gemini-3-flash", "mistral/some"], 30, judge="openai/gpt-5.4"))
    )
    page, errors = opened(chromium, path)
    assert page.locator("#graders").count() == 0
    assert page.locator("[id*=judge_]").count() == 0
    assert page.locator('[data-part="split"]').is_hidden()
    assert not [
        topic for topic in page.locator(".findings dt").all_inner_texts() if "udge" in topic
    ]
    assert errors == []
    page.context.close()
