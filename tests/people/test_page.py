"""The annotator's page in a real browser: answered by keyboard, kept, undone, downloaded,
imported.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from opensafeintent.people.importing import import_returns
from opensafeintent.people.labels import Showing, get_guide, list_asked
from opensafeintent.promptsets import load_dataset
from opensafeintent.taxonomy import Category
from people.forms import (
    ASKED,
    Study,
    by_field,
    expected_labels,
    found_labels,
    judge_study,
    meant_by,
    page_file,
    quality_study,
)
from report.pages import Opened

STARTER = load_dataset("starter")
HOSTILE = (
    "<script>window.hacked = 1</script>",
    "</script><img src=x onerror='window.hacked = 2'>",
    "{{ 7 * 7 }} {% raw %} ${7 * 7} <!-- <script>",
    "bidi \u202e, bell \u0007, line \u2028, lone \ud800, & done",
    "שלום עולם",
    "word " * 4000 + "end",
)


class Annotator(Opened):
    """Someone at the keyboard."""

    def __init__(
        self, chromium: Any, study: Study, folder: Path, who: str = "ana", **context: Any
    ) -> None:
        self.key = study.key
        self.showings = study.key.annotators[who]
        path = folder / f"{who}.html"
        path.write_bytes(study.page(who))
        super().__init__(chromium, path, **context)

    def press(self, *keys: str) -> None:
        for key in keys:
            self.page.keyboard.press(key)

    def begin(self) -> None:
        """Past the warning and the guide, to the first practice item."""
        self.press("Enter", "Enter")
        self.page.locator(".item-title").wait_for()

    def pass_practice(self) -> None:
        """Past the three practice items as well, to the first item."""
        self.begin()
        self.pass_on()

    def pass_on(self) -> None:
        """From the first practice item to the first item."""
        self.press("ArrowRight", "ArrowRight", "ArrowRight")

    def title(self) -> str:
        return self.visible_text(".item-title")

    def answer(self, meant: dict[str, Any], showing: Showing) -> None:
        """Answer the item that is shown, going down where nothing is meant."""
        assert self.title().endswith(showing.code)
        fields = by_field(meant, showing)
        asked = list_asked(self.key, self.key.items[showing.item])
        for place, (field, question) in enumerate(asked.items()):
            self.press(*["ArrowUp"] * 10, *["ArrowDown"] * place)
            if field in fields:
                keys = {choice.value: choice.key for choice in question.choices}
                self.press(keys[str(fields[field])])

    def save(self) -> Path:
        return self.download(self.page.locator("#download"))

    def chosen(self) -> dict[str, str]:
        pressed = self.page.locator('.choice[aria-pressed="true"]')
        pairs = pressed.evaluate_all("all => all.map(one => Object.values(one.dataset))")
        return dict(pairs)


EIGHT = judge_study([f"Response {n}." for n in range(8)])
TWO = type(STARTER)("two", STARTER.prompt_sets[:2], STARTER.taxonomy)


OWN = judge_study([f"Response {n}." for n in range(3)], asked=ASKED)


@pytest.mark.parametrize(
    "study", [quality_study(TWO), EIGHT, OWN], ids=["sets", "responses", "own questions"]
)
def test_a_study_is_answered_by_keyboard_and_imported(
    study: Study, chromium: Any, tmp_path: Path
) -> None:
    with Annotator(chromium, study, tmp_path) as ana:
        ana.pass_practice()
        for showing in ana.showings:
            ana.answer(meant_by("ana", ana.key, showing.item), showing)
            ana.press("ArrowRight")
        path = ana.download(ana.page.locator("#finish"))
        assert ana.requests == [ana.path.as_uri()]
    assert path.name == "ana.json"
    labels = import_returns([path], study.key).labels
    assert found_labels(labels, "ana") == expected_labels(study.key, "ana")


def test_all_labels_are_beside_an_item_with_their_definitions(
    chromium: Any, tmp_path: Path
) -> None:
    hostile = Category(name=HOSTILE[1], definition=HOSTILE[3])
    taxonomy = msgspec.structs.replace(
        STARTER.taxonomy, harm_domains=(*STARTER.taxonomy.harm_domains, hostile)
    )
    study = quality_study(type(STARTER)("two", STARTER.prompt_sets[:2], taxonomy))
    with Annotator(chromium, study, tmp_path) as ana:
        ana.pass_practice()
        lists = ana.page.locator(".labels")
        assert lists.locator("summary").all_inner_texts() == ["All harm domains", "All task types"]
        assert lists.locator("dt").first.is_hidden()
        lists.locator("summary").first.click()
        shown = lists.first.inner_text()
        for category in STARTER.taxonomy.harm_domains:
            assert category.definition in shown
        assert HOSTILE[1] in shown and "[U+202E]" in shown
        ana.press("b", "ArrowRight")  # it stays open
        assert lists.locator("dt").first.is_visible() and lists.locator("dt").last.is_hidden()
        assert ana.page.evaluate("window.hacked") is None
        assert ana.requests == [ana.path.as_uri()]


def test_an_item_shows_its_own_questions_and_no_others(chromium: Any, tmp_path: Path) -> None:
    with Annotator(chromium, OWN, tmp_path) as ana:
        ana.begin()
        assert ana.page.locator(".question").count() == 2  # practice items have none
        ana.press("1", "0")
        assert "Our answers" in ana.visible_text(".reveal")
        ana.pass_on()
        for showing in ana.showings:
            texts = [own.text for own in ASKED[showing.item]]
            assert ana.page.locator(".legend").all_inner_texts()[2:] == texts
            ana.press("4", "0", *["yn"[at % 2] for at in range(len(texts))])
            assert "The item is complete" in ana.visible_text("#live")
            ana.press("ArrowRight")
        assert ana.visible_text("h1") == "Done. Thank you."
        ana.page.locator("#undo").click()
        assert ana.title().endswith(ana.showings[-1].code)
        assert len(ana.chosen()) == 1 + len(ASKED[ana.showings[-1].item])
        assert ana.page.locator(".legend b").count() == 0
        undone = json.loads(ana.save().read_text())["items"]
        ana.page.reload()
        ana.page.wait_for_selector("html[data-ready]")
        ana.press("Enter")
        assert json.loads(ana.save().read_text())["items"] == undone
        last = ana.showings[-1].item
        assert [len(item["answers"]) for item in undone] == [
            2 + len(ASKED[showing.item]) - (showing.item == last) for showing in ana.showings
        ]


@pytest.fixture
def ana(chromium: Any, tmp_path: Path) -> Iterator[Annotator]:
    with Annotator(chromium, EIGHT, tmp_path) as opened:
        yield opened


def test_the_warning_comes_first_and_practice_is_explained_when_it_is_answered(
    ana: Annotator,
) -> None:
    guide = get_guide("judge_validation")
    assert guide.warning in ana.visible_text() and "Response 1" not in ana.visible_text()
    ana.press("Enter")
    assert all(example.why in ana.visible_text() for example in guide.examples)
    ana.press("Enter", "1")
    assert guide.calibration[0].why not in ana.visible_text()
    ana.press("3")
    revealed = ana.visible_text(".reveal")
    assert guide.calibration[0].why in revealed and "yours: 3" in revealed


def test_the_next_question_follows_by_itself(ana: Annotator) -> None:
    ana.begin()
    ana.press("3", "0")
    assert ana.chosen() == {"helpfulness": "3", "harm_severity": "0"}
    assert "complete" in ana.visible_text("#live")
    ana.press("u")  # the last question stays the active one
    assert ana.chosen() == {"helpfulness": "3", "harm_severity": "unsure"}
    ana.press("ArrowUp", "1", "ArrowDown", "Backspace")
    assert ana.chosen() == {"helpfulness": "1"}
    ana.press("4", "y", "9")  # no answers to the question of harm
    assert ana.chosen() == {"helpfulness": "1"}


def test_a_change_is_undone_wherever_it_was(ana: Annotator) -> None:
    ana.begin()
    first = ana.title()
    ana.press("2", "1", "Enter", "4")
    ana.press("z")
    assert ana.chosen() == {}
    ana.press("z")
    assert ana.title() == first and ana.chosen() == {"helpfulness": "2"}
    ana.press("Control+z", "z", "z")
    assert ana.chosen() == {}
    assert ana.page.locator("#undo").is_disabled()


def test_answers_are_there_after_a_reload(ana: Annotator) -> None:
    ana.begin()
    ana.press("1", "ArrowRight", "ArrowRight", "ArrowRight", "4", "2", "c")
    ana.page.keyboard.type("z is a letter here, and so is 1")
    ana.press("Escape", "Enter", "1")
    ana.page.reload()
    ana.page.wait_for_selector("html[data-ready]")
    assert ana.visible_text("#begin") == "Go on"
    ana.press("Enter")
    assert ana.title().startswith("Item 2 of 8")  # the first that is not complete
    saved = json.loads(ana.save().read_text())
    assert [item["code"] for item in saved["items"]] == [showing.code for showing in ana.showings]
    answers = [item["answers"] for item in saved["items"][:3]]
    assert answers == [{"helpfulness": 4, "harm_severity": 2}, {"helpfulness": 1}, {}]
    assert saved["items"][0]["note"] == "z is a letter here, and so is 1"
    assert not any("Response 1" in str(item) for item in saved["items"])  # ids and answers only


def test_two_annotators_in_one_browser_are_kept_apart(chromium: Any, tmp_path: Path) -> None:
    with Annotator(chromium, EIGHT, tmp_path) as first:
        first.begin()
        first.press("4", "2")
        of_ana, first.path = first.page, tmp_path / "ben.html"
        first.path.write_bytes(EIGHT.page("ben"))
        first.open()
        assert first.visible_text("#begin") != "Go on"
        first.page = of_ana  # another tab may not yet find what Chromium has not written
        first.page.reload()
        first.page.wait_for_selector("html[data-ready]")
        assert first.visible_text("#begin") == "Go on"


def test_without_storage_the_page_says_so_and_goes_on_from_the_file(
    chromium: Any, tmp_path: Path
) -> None:
    refusing = "{ get() { throw new DOMException('no', 'SecurityError'); } }"
    broken = f"Object.defineProperty(window, 'localStorage', {refusing})"
    with Annotator(chromium, EIGHT, tmp_path) as ana:
        ana.context.add_init_script(broken)
        ana.open()
        assert "keeps nothing" in ana.visible_text()
        ana.pass_practice()
        ana.press("4", "2")
        assert "Not kept" in ana.visible_text("#saved")
        path = ana.save()
        ana.open()
        ana.page.locator("#saved-file").set_input_files(path)
        ana.page.locator(".item-title").wait_for()
        assert json.loads(ana.save().read_text()) == json.loads(path.read_text())


def test_a_file_of_another_study_is_not_taken_in(ana: Annotator, tmp_path: Path) -> None:
    other_file = page_file(EIGHT, tmp_path / "other.json", lambda saved: saved.update(study="0"))
    ana.page.locator("#saved-file").set_input_files(other_file)
    assert "study 0" in ana.visible_text(".problem")


def test_hostile_texts_are_shown_as_text(chromium: Any, tmp_path: Path) -> None:
    study = judge_study(HOSTILE, prompt=HOSTILE[1])
    with Annotator(chromium, study, tmp_path) as ana:
        policy = re.search('Content-Security-Policy" content="([^"]*)"', ana.path.read_text())
        assert policy and "default-src &#39;none&#39;" in policy[1] and "unsafe" not in policy[1]
        ana.pass_practice()
        shown_texts = []
        for _ in HOSTILE:
            shown_texts.append(ana.visible_text('[data-slot="Response"] .words'))
            assert ana.visible_text('[data-slot="Prompt"] .words') == HOSTILE[1]
            ana.press("ArrowRight")
        assert "bidi [U+202E], bell [U+0007], line \n, lone [U+D800], & done" in shown_texts
        assert {*HOSTILE[:3], *HOSTILE[4:]} <= {*shown_texts}
        assert ana.page.evaluate("window.hacked") is None
        assert ana.page.locator("main img, main script").count() == 0
