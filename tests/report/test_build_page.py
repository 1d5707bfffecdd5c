"""What a build shows: its numbers, its page in a real browser, and its card."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import msgspec
import pytest

from opensafeintent.construction.pipeline import Built
from opensafeintent.construction.records import Rejection, StageResult
from opensafeintent.promptsets import Dataset
from opensafeintent.report.built import BuildResults, Reviewed, build_tables, canary_of, card, likeness_of
from opensafeintent.report.built.page import build_cautions, build_findings
from opensafeintent.report.built.record import Likeness, Nearest
from opensafeintent.report.figures.writing import drawing
from report.builds import HOSTILE, MODELS, built, draft, page_of, results, taxonomy, topic


def rows(of: BuildResults, name: str) -> list[dict[str, Any]]:
    return next(table for table in build_tables(of) if table.name == name).records()


# Numbers ---------------------------------------------------------------------------------------------------------------


def test_the_funnel_counts_what_goes_back_to_seeds_and_what_was_proposed() -> None:
    found = {
        row["stage"]: [row[key] for key in ("in", "from_seeds", "proposed", "dropped")] for row in rows(results(), "funnel")
    }
    assert found == {
        "seeds": [4, 3, 0, 1],  # one is empty
        "metadata": [3, 2, 0, 1],
        "backfill": [4, 2, 1, 1],  # two topics from seeds, two proposals, one of them too similar
        "triplets": [3, 2, 1, 0],
        "intents": [3, 2, 0, 1],  # the proposed one fails
        "quality": [2, 2, 0, 0],
        "augmentation": [2, 2, 0, 0],
    }
    dropped = [(row["stage"], row["reason"], row["items"]) for row in rows(results(), "dropped")]
    assert dropped == [
        *(("seeds", "empty", 1), ("metadata", "both_say_safe", 1), ("backfill", "too_similar", 1)),
        ("intents", "wrong_intent", 1),
    ]


def test_readings_before_and_after_repair_count_dropped_sets_too() -> None:
    found = {(row["when"], row["expected"], row["found"]): row["prompts"] for row in rows(results(), "readings")}
    wrong = {key: number for key, number in found.items() if key[1] != key[2] and number}
    assert wrong == {
        ("as first written", "dual-use", "benign"): 1,  # repaired
        ("as first written", "malicious", "neither"): 1,
        ("after the last repair", "malicious", "neither"): 1,
    }
    assert sum(found.values()) == 2 * 3 * 3  # before and after, three sets, three prompts
    assert [list(row.values()) for row in rows(results(), "repairs")] == [
        # intent, prompts, right at first, repaired, still wrong, leaned, straightened, still leaning, texts rewritten
        ["benign", 3, 3, 0, 0, None, None, None, 0],
        ["dual-use", 3, 2, 1, 0, 1, 1, 0, 1],
        ["malicious", 3, 2, 0, 1, None, None, None, 1],
    ]
    (told,) = [item.text for item in build_findings(results()) if item.topic == "Intent check"]
    assert told.replace("\xa0", " ").startswith(
        "As first written, 77.8 % of 9 prompts read as the intent that they were written for, but 1 of the dual-use ones "
        "leaned towards an honest or a harmful purpose. 2 repairs put 1 of the others right and 1 of those that leaned; 1 "
        "stayed wrong."
    )


def test_costs_are_told_by_stage_and_role() -> None:
    found = [(row["stage"], row["role"], row["calls"], row["dollars"]) for row in rows(results(), "costs")]
    assert found == [
        ("1 Metadata", "generator", 3, None),
        ("1 Metadata", "judge", 4, None),
        ("4 Intent check", "generator", 2, None),
    ]
    (sentence,) = [item.text for item in build_findings(results()) if item.topic == "Cost"]
    assert sentence.startswith("9 calls and 99 tokens, 50 tokens for each finished set")  # 99 / 2, rounded


def test_a_histogram_has_every_set_once_and_a_tie_at_seven_tenths_above_the_line() -> None:
    nearest = tuple(
        Nearest(id=str(n), variant="benign", twin="t", twin_variant="benign", score=score)
        for n, score in enumerate((1.0, 0.7, 0.699999, 0.05, 0.0))
    )
    bins = Likeness(core=nearest, wordings=nearest).histogram(nearest)
    assert {place: number for place, number in enumerate(bins) if number} == {0: 1, 1: 1, 13: 1, 14: 1, 19: 1}


def test_each_set_is_compared_with_the_others_of_its_cell() -> None:
    one, two, three = (draft(topic(n), n) for n in (1, 2, 3))
    far = draft(topic(4, "People"), 1)  # the same words, in another cell
    sets = tuple(item.prompt_set("test") for item in (one, two, three, far))
    found = likeness_of(Dataset("d", sets, taxonomy()))
    assert found is not None
    assert {item.id for item in found.core} == {one.id, two.id, three.id}


def test_an_unfinished_build_says_so_and_has_no_figures_of_a_dataset(tmp_path: Path) -> None:
    whole = built()
    begun = Built(seeds=whole.seeds, topics=whole.topics)
    found = results(begun)
    assert found.dataset is None
    loud = [sentence.text for sentence in build_cautions(found) if sentence.loud]
    assert any("There is no dataset yet" in text for text in loud)
    html = page_of(found, tmp_path).decode()
    assert "A build on its way" in html and 'id="sets"' not in html
    assert {path.stem for path in tmp_path.glob("*.svg")} == {"funnel", "dropped", "costs"}


def test_scripted_models_and_unasked_people_are_warned_of() -> None:
    found = results()
    found.manifest = msgspec.structs.replace(found.manifest, generator="baseline/generator")
    (loud,) = [sentence for sentence in build_cautions(found) if sentence.loud]
    assert "no model should be evaluated with it" in loud.text
    assert "Not for evaluation" in card(found, found.dataset)  # type: ignore[arg-type]
    assert any("People have not checked" in sentence.text for sentence in build_cautions(found))


# Drawings --------------------------------------------------------------------------------------------------------------


def test_a_drawing_keeps_shapes_and_text_alone(tmp_path: Path) -> None:
    tmp_path.joinpath("x.svg").write_text(
        '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" onload="a()"><rect fill="#fff"/>'
        '<script>a()</script><g style="x" clip-path="url(#clip1)"><clipPath id="clip1"/>'
        '<a href="javascript:a()"><text>no</text></a>'
        '<text onclick="a()" xlink:href="y" aria-label="&lt;b&gt;">&lt;b&gt; ns0:</text></g></svg>'
    )
    text = drawing("x", tmp_path)
    assert "a()" not in text and "style" not in text and "href" not in text and "<rect" not in text
    group = ElementTree.fromstring(text)[0]
    assert group.tag == "g" and group.get("clip-path") == "url(#x-clip1)" and group[0].get("id") == "x-clip1"
    assert group[1].text == "<b> ns0:" and group[1].get("aria-label") == "<b>"


# The page in a browser -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("build")
    path = folder / "build.html"
    path.write_bytes(page_of(results(), folder))
    return path


class Opened:
    """The page, and what it did."""

    def __init__(self, chromium: Any, path: Path, width: int = 1300) -> None:
        self.context = chromium.new_context(viewport={"width": width, "height": 900})
        self.page = self.context.new_page()
        self.requests: list[str] = []
        self.errors: list[str] = []
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("console", lambda message: message.type == "error" and self.errors.append(message.text))
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.goto(path.as_uri())
        self.page.wait_for_selector("html[data-ready]")


@pytest.fixture
def opened(chromium: Any, page_file: Path) -> Iterator[Opened]:
    opened = Opened(chromium, page_file)
    yield opened
    opened.context.close()


def test_the_page_asks_for_nothing_and_runs_nothing_but_its_own(opened: Opened, page_file: Path) -> None:
    for details in opened.page.locator("details").all():
        details.evaluate("element => element.open = true")
    opened.page.wait_for_timeout(100)
    assert opened.requests == [page_file.as_uri()]
    assert opened.errors == []
    assert opened.page.evaluate("window.hacked") is None
    assert "49" not in opened.page.locator("#sets").inner_text()  # {{ 7*7 }} stays text
    assert opened.page.locator("#sets").inner_text().count("{{ 7*7 }}") == 4  # two sets: their task, and their benign prompt


def test_malicious_prompts_seeds_and_earlier_texts_are_not_in_the_file(page_file: Path) -> None:
    html = page_file.read_text()
    assert "BENIGN-1" in html and "DUAL-2" in html and "PARAPHRASE-1" in html
    for hidden in ("MALICIOUS-", "SEED-", "BEFORE-", "BENIGN-3", "/home/somebody"):
        assert hidden not in html


def test_tables_are_built_and_figures_are_drawn(opened: Opened) -> None:
    assert opened.page.locator("figure svg").count() >= 6
    stages = opened.page.locator("#numbers-funnel")
    stages.locator("summary").click()
    stages.locator("tbody tr").first.wait_for()
    assert stages.locator("tbody tr").count() == 7
    assert opened.page.locator("#table-templates tbody tr").count() == 11


def test_a_mark_tells_its_numbers_to_the_pointer(opened: Opened) -> None:
    mark = opened.page.locator('#figure-funnel [role="graphics-symbol"][aria-label*="proposed"]').first
    mark.scroll_into_view_if_needed()
    mark.hover()
    assert opened.page.locator("#tip").inner_text() == "2 Back-fill: 1 kept, proposed to fill cells"


def test_search_finds_sets_by_their_words(opened: Opened) -> None:
    sets = opened.page.locator("details.set:visible")
    assert sets.count() == 2
    opened.page.fill("#find", "dual-2 TASK")
    assert sets.count() == 1
    assert opened.page.locator("#found").inner_text() == "1 of 2"
    opened.page.fill("#find", "malicious-1")
    assert sets.count() == 0


@pytest.mark.parametrize("width", [390, 1400])
def test_nothing_runs_over_the_side(chromium: Any, page_file: Path, width: int) -> None:
    opened = Opened(chromium, page_file, width)
    for details in opened.page.locator("details").all():
        details.evaluate("element => element.open = true")
    assert opened.page.evaluate("document.documentElement.scrollWidth") == width
    opened.context.close()


@pytest.mark.parametrize(("domains", "types"), [(1, 1), (3, 12), (24, 20)])
def test_the_map_of_cells_has_a_tile_for_each_cell(tmp_path: Path, domains: int, types: int) -> None:
    names = ["Money", *(f"Domain {n} {HOSTILE}" for n in range(1, domains))]
    kinds = ["Explanation", *(f"Type {n} {HOSTILE}" for n in range(1, types))]
    whole = built()
    only = Built(seeds=whole.seeds, drafts=whole.drafts[-1:])
    page_of(results(only, taxonomy(names, kinds)), tmp_path)
    root = ElementTree.parse(tmp_path / "coverage.svg")
    labels = [item.get("aria-label", "") for item in root.iter() if item.get("role") == "graphics-symbol"]
    tiles = [label for label in labels if re.search(r": \d+ sets?", label)]
    assert len(tiles) == domains * types
    assert sum(": 2 sets" in label for label in tiles) == 1  # both finished sets are in Money / Explanation


# The card --------------------------------------------------------------------------------------------------------------


def finished() -> tuple[BuildResults, Dataset]:
    found = results()
    assert found.dataset is not None
    return found, found.dataset


def test_the_front_matter_is_what_the_hub_reads() -> None:
    yaml = pytest.importorskip("yaml")
    text = card(*finished())
    _, front, _ = text.split("---\n", 2)
    read = yaml.safe_load(front)
    assert read["configs"] == [{"config_name": "default", "data_files": [{"split": "test", "path": "dataset.jsonl"}]}]
    assert read["license"] == "other" and read["language"] == ["en"] and read["size_categories"] == ["n<1K"]
    assert {"safety", "not-for-all-audiences"} <= set(read["tags"])


def test_names_from_outside_are_text_in_the_card() -> None:
    markdown = pytest.importorskip("markdown_it")
    found, dataset = finished()
    _, _, body = card(found, dataset).split("---\n", 2)
    html = markdown.MarkdownIt("commonmark", {"html": True}).enable("table").render(body)
    assert "<script" not in html and "<b>" not in html and "<i>" not in html and "<a " not in html
    for name in MODELS:
        assert name.replace("<", "&lt;").replace(">", "&gt;") in html
    assert "\u202e" not in body and "/home/somebody" not in body


def test_the_card_names_the_canary_of_every_record() -> None:
    found, dataset = finished()
    canary = canary_of("0" * 64)  # what the records of this test are marked with
    assert all(item.source and item.source.endswith(f"canary {canary}") for item in dataset.prompt_sets)
    assert canary in card(found, dataset)
    assert canary_of("1" * 64) != canary
    assert re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", canary)


def test_the_card_shows_no_prompt() -> None:
    text = card(*finished())
    for hidden in ("MALICIOUS-", "BENIGN-", "DUAL-", "SEED-", "BEFORE-"):
        assert hidden not in text


def test_the_card_says_what_people_did() -> None:
    whole = built()
    people: StageResult[Any] = StageResult(
        stage="people",
        kept=whole.finished[:1],
        rejected=(Rejection(item=whole.finished[1], reason="all_say_poor"),),
    )
    found = results(msgspec.structs.replace(whole, drafts=(*whole.drafts, people)), reviewed=Reviewed(3, 2))
    assert found.dataset is not None
    told = "3 annotators judged 2 prompt-sets of 2; 1 set that all of them called poor was dropped"
    assert told in card(found, found.dataset)
    assert [sentence.text for sentence in build_findings(found) if sentence.topic == "People"] == [f"{told}."]
    assert not any("People have not" in sentence.text for sentence in build_cautions(found))
