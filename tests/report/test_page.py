"""The page in a real browser: what it shows, what it hides, and that it keeps to itself."""

from __future__ import annotations

import csv
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from msgspec.structs import replace

from endtoend import osi
from opensafeintent.grades import worst_first
from opensafeintent.numbers.cohort import GradedRun, gather_models
from opensafeintent.promptsets import Prompts, PromptSet
from opensafeintent.report.figures import figure_names
from opensafeintent.report.page_tables import shorten_for_page
from opensafeintent.report.table_formats import to_csv
from opensafeintent.report.tables import make_all_tables
from report.pages import Opened, Texts, page_of, saved
from report.runs import MODELS, random_run, rows_of, run_with
from samples import grade_line, made_dataset, prompt_set

pytestmark = pytest.mark.drawn

HOSTILE = (
    "<script>window.hacked = 1</script>",
    "</script><img src=x onerror='window.hacked = 2'>",
    "[click](javascript:window.hacked=3) <a href='javascript:window.hacked=3'>here</a>",
    "{{ 7 * 7 }} {% raw %} ${7 * 7} <!-- <script>",
    "safe \u202eesrever\u202c \u200b\u0007 \u2028 & done",
    "=cmd|' /C calc'!A0",
)
VISIBLE = {ord(char): f"U+{ord(char):04X}" for char in "\u202e\u202c\u200b\u0007\u2028"}
HOSTILE_MODELS = (
    "<b>evil</b>/</script><script>window.hacked=4</script>",
    "{{ 7*7 }}/\u202elivE",
    "=SUM(A1)/--plain",
)

SETS = made_dataset(
    *(
        PromptSet(
            id=f"set-{n}",
            harm_domain=("Cyber Compromise", "Fraud and Deception")[n % 2],
            task_type="Explanation",
            underlying_task=f"task {n} {HOSTILE[n]}",
            prompts=Prompts(
                benign=f"BENIGN-PROMPT-{n} {HOSTILE[n]}",
                dual_use=f"DUAL-PROMPT-{n}",
                malicious=f"MALICIOUS-PROMPT-{n} which nobody may see",
            ),
            dual_use_paraphrases=(f"PARAPHRASE-{n}",),
        )
        for n in range(6)
    )
)
GRADES = {
    "set-0": "40 40 10 40",
    "set-1": "40 43 10 30",  # unsafe on dual-use, and a flip
    "set-2": "10 30 10 30",  # a refused benign prompt
    "set-3": "40 32 41 42",  # unsafe under two intents, stable unsafe
    "set-4": "40 -- 10 40",  # no grades on dual-use
    "set-5": "41 40 10 40",  # unsafe on benign
}
"""Helpfulness and harm severity of benign, dual-use, malicious, and one paraphrase of dual-use."""


def written(model: str, set_id: str, variant: str) -> str:
    number = int(set_id.removeprefix("set-"))
    return f"RESPONSE<{HOSTILE_MODELS.index(model)} {number} {variant}> {HOSTILE[number]}"


def hostile_run() -> GradedRun:
    strategies = {("set-1", "dual_use"): "full", ("set-3", "dual_use"): "refuse"}
    rows = [row for model in HOSTILE_MODELS for row in rows_of(model, SETS, GRADES)]
    for number, row in enumerate(rows):
        if strategy := strategies.get((row.set_id, row.variant)):
            rows[number] = replace(row, strategy=strategy, mode="A4")
    return run_with(rows, SETS, judge="some/judge")


@pytest.fixture(scope="module")
def page_bytes() -> bytes:
    return page_of(hostile_run(), texts=Texts(written))


@pytest.fixture(scope="module")
def page_file(page_bytes: bytes, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(tmp_path_factory.mktemp("page"), page_bytes)


@pytest.fixture
def opened(chromium: Any, page_file: Path) -> Iterator[Opened]:
    with Opened(chromium, page_file) as opened:
        yield opened


# It keeps to itself
# ------------------------------------------------------------------------------


def test_opens_from_a_file_and_asks_for_nothing_else(opened: Opened, page_file: Path) -> None:
    figures = opened.page.locator("figure")
    in_files_alone = {"fig_7_strata"}
    expected = {*figure_names(gather_models([hostile_run()]))} - in_files_alone
    assert figures.count() == len(expected) > 1
    for number in range(figures.count()):
        figures.nth(number).locator("svg").wait_for(state="attached")
    assert figures.first.get_attribute("data-name") == "fig_frontier"
    opened.page.mouse.wheel(0, 20_000)
    opened.page.wait_for_timeout(300)
    assert opened.requests == [page_file.as_uri()]


def test_the_policy_allows_our_scripts_and_no_others(opened: Opened, page_bytes: bytes) -> None:
    policy = re.search(rb'http-equiv="Content-Security-Policy" content="([^"]*)"', page_bytes)
    assert policy and b"default-src &#39;none&#39;" in policy[1] and b"unsafe" not in policy[1]
    opened.page.evaluate("""() => {
          const script = document.createElement("script");
          script.textContent = "window.hacked = 5";
          document.body.append(script);
          const image = "<img src='https://example.invalid/x.png' onerror='window.hacked = 6'>";
          document.body.insertAdjacentHTML("beforeend", image);
        }""")
    opened.page.wait_for_timeout(200)
    assert opened.page.evaluate("() => window.hacked") is None
    assert all("Content Security Policy" in error for error in opened.errors)
    for kind in ("script-src", "img-src"):
        assert any(kind in error for error in opened.errors)
    opened.errors.clear()


def test_hostile_texts_and_names_are_shown_as_text(opened: Opened) -> None:
    for number, text in enumerate(HOSTILE):
        shown = opened.show(f"set-{number}").inner_text()
        assert f"BENIGN-PROMPT-{number} {text.translate(VISIBLE)}" in shown
    names = opened.column("table-table_4_utility", 1)
    assert {HOSTILE_MODELS[0], "{{ 7*7 }}/U+202ElivE"} < {*names}
    assert "\u202e" not in opened.visible_text("#results-summary")
    assert opened.page.evaluate("() => window.hacked") is None
    markup = "a[href^='javascript' i], #sets img, main script, main b"
    assert opened.page.locator(markup).count() == 0


# What is hidden
# ------------------------------------------------------------------------------

UNSAFE = {
    *(("set-1", "dual_use"), ("set-3", "dual_use"), ("set-3", "malicious")),
    *(("set-3", "dual_use_paraphrase_1"), ("set-4", "dual_use"), ("set-5", "benign")),
}
"""Graded harmful in GRADES, or not graded."""


def test_unsafe_responses_and_malicious_prompts_are_not_in_the_file(
    opened: Opened, page_bytes: bytes
) -> None:
    text = page_bytes.decode()
    assert "MALICIOUS-PROMPT" not in text
    assert "BENIGN-PROMPT-5" in text
    for number, item in enumerate(SETS.prompt_sets):
        for variant in SETS.variants:
            response = f"RESPONSE\\u003c0 {number} {variant}\\u003e"
            assert (response in text) is ((item.id, variant) not in UNSAFE), response
    cards = opened.show("set-3").locator("article")
    assert "The prompt of malicious intent is not in this file." in cards.nth(2).inner_text()
    assert "A response graded unsafe is not in this file." in cards.nth(1).inner_text()


def test_include_unsafe_shows_them_and_says_so(chromium: Any, tmp_path: Path) -> None:
    path = saved(tmp_path, page_of(hostile_run(), texts=Texts(written), include_unsafe=True))
    assert path.read_text().count("MALICIOUS-PROMPT") == len(SETS)
    with Opened(chromium, path, "#set=set-3") as opened:
        assert "Do not publish it" in opened.visible_text(".masthead")
        shown = opened.part("view").inner_text()
        assert "MALICIOUS-PROMPT-3" in shown and "3 malicious>" in shown


# Tables
# ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def many_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page of six models with different numbers."""
    return saved(tmp_path_factory.mktemp("many"), page_of(random_run(MODELS[:6], 60)))


def test_a_table_is_sorted_by_its_buttons(chromium: Any, many_file: Path) -> None:
    with Opened(chromium, many_file) as opened:
        heads = opened.page.locator("#table-table_4_utility thead th")
        assert heads.nth(1).get_attribute("aria-sort") == "none"
        averages = set()
        for order in ("descending", "ascending"):
            heads.nth(1).locator("button").click()
            assert heads.nth(1).get_attribute("aria-sort") == order
            *values, average = opened.column("table-table_4_utility", 2)
            numbers = [float(value.split(" ")[0]) for value in values]
            assert numbers == sorted(numbers, reverse=order == "descending")
            averages.add(average)  # last in any order: it is not one of the models
        assert len(averages) == 1
        heads.nth(0).locator("button").press("Enter")
        names = opened.column("table-table_4_utility", 1)[:-1]
        assert names == sorted(names, key=str.lower)


def test_a_table_is_downloaded_as_the_csv_file_has_it(chromium: Any, page_file: Path) -> None:
    cohort = gather_models([hostile_run()])
    expected = {
        table.name: to_csv(shorten_for_page(table, cohort, ()) or table)
        for table in make_all_tables(cohort)
    }
    with Opened(chromium, page_file) as opened:
        for name in ("table_4_utility", "coverage", "comparisons"):
            table = opened.page.locator(f"#table-{name}")
            path = opened.download(table.get_by_role("button", name="Download CSV"))
            assert path.name == f"{name}.csv"
            assert rounded(path.read_text()) == rounded(expected[name])
        assert all(url.startswith(("file:", "blob:")) for url in opened.requests)


def test_a_long_table_is_downloaded_as_the_page_has_it(chromium: Any, tmp_path: Path) -> None:
    """It is on the page once; each interval has a column of its own."""
    run = random_run(MODELS, 20)
    cohort = gather_models([run])
    (full,) = (table for table in make_all_tables(cohort) if table.name == "comparisons")
    table = shorten_for_page(full, cohort, ())
    assert table is not None
    assert len(table.rows) > 200
    with Opened(chromium, saved(tmp_path, page_of(run))) as opened:
        assert f"The first 200 of {len(table.rows):,} lines" in opened.path.read_text("utf-8")
        held = opened.page.locator("#table-comparisons")
        path = opened.download(held.get_by_role("button", name="Download CSV"))
    lines = list(csv.DictReader(path.read_text().splitlines()))
    first = table.fields.index("model_a")
    assert [line["model_a"] for line in lines] == [row[first].fields[0] for row in table.rows]
    assert any(
        key.endswith(" interval") and line[key].startswith("[") for line in lines for key in line
    )


def rounded(text: str) -> list[str]:
    """Return lines with their numbers at five decimals: a page has six."""
    number = r"-?\d+(\.\d+)?(e-?\d+)?"
    return re.sub(number, lambda match: f"{float(match[0]):.5f}", text).splitlines()


def test_a_figure_names_its_file_and_has_its_drawing_and_its_values_under_the_pointer(
    chromium: Any, many_file: Path
) -> None:
    with Opened(chromium, many_file) as opened:
        figure = opened.page.locator("#figure-fig_2_safety")
        assert "figures/fig_2_safety.csv" in figure.inner_text()
        figure.locator("svg").wait_for()
        path = opened.download(figure.get_by_role("button", name="Download SVG"))
        assert path.read_text().startswith("<svg")
        figure.scroll_into_view_if_needed()
        figure.locator("svg .mark-symbol path").first.hover(force=True)
        opened.page.locator("#tip:not([hidden])").wait_for()
        assert "model" in opened.page.locator("#tip").inner_text()


# The prompt-set browser
# ------------------------------------------------------------------------------


def test_the_browser_filters_by_kind_of_failure(opened: Opened) -> None:
    opened.part("model").select_option(index=1)
    lists = {
        # harm 3, 2, 1, and 0 by id
        "": ["set-1", "set-3", "set-5", "set-0", "set-2", "set-4"],
        "unsafe_triplet": ["set-1", "set-3", "set-5"],
        "unsafe_malicious": ["set-3"],
        "over_refusal": ["set-2"],
        "missing": ["set-4"],
        "flip": ["set-1"],
    }
    for kind, sets in lists.items():
        opened.part("kind").select_option(kind)
        assert opened.listed() == sets
        assert f"{len(sets)} of 6 prompt-sets" in opened.count()
    opened.part("model").select_option("")
    assert opened.listed() == ["set-1"] * 3
    assert "3 of 18 entries (a prompt-set for each model)" in opened.count()


def test_the_worst_sets_come_first_as_trace_has_them(opened: Opened) -> None:
    opened.part("model").select_option("")
    rows = [row for model in HOSTILE_MODELS for row in rows_of(model, SETS, GRADES)]
    by_unit = dict.fromkeys((row.model, row.set_id) for row in sorted(rows, key=worst_first))
    assert opened.listed() == [set_id for _, set_id in by_unit]


def test_the_browser_filters_by_stratum_mode_and_words(opened: Opened) -> None:
    opened.part("model").select_option(index=2)
    opened.part("domain").select_option("Fraud and Deception")
    assert sorted(opened.listed()) == ["set-1", "set-3", "set-5"]
    opened.part("mode").select_option("4")
    assert sorted(opened.listed()) == ["set-1", "set-3"]
    opened.part("q").fill("task 3")
    assert opened.listed() == ["set-3"]
    opened.page.get_by_role("button", name="Clear filters").click()
    assert len(opened.listed()) == 6
    opened.part("order").select_option("dataset")
    assert opened.listed() == [f"set-{n}" for n in range(6)]
    opened.part("order").select_option("utility")
    # utility over the triplet: set-2 (0 + 2/3 + 0) / 3; then set-1, set-3 and set-5 with 1/3 each,
    # in the dataset's order
    assert opened.listed()[:4] == ["set-2", "set-1", "set-3", "set-5"]


def test_a_set_is_shown_with_its_grades_and_the_command_behind_them(opened: Opened) -> None:
    view = opened.show("set-2")
    headings = view.locator("article h4").all_inner_texts()
    assert [heading.split("\n")[-1] for heading in headings] == [
        *("Benign", "Dual-use", "Malicious", "Paraphrase 1")
    ]
    benign = view.locator("article").first.inner_text()
    assert "BENIGN-PROMPT-2" in benign and "RESPONSE<0 2 benign>" in benign
    assert re.search(r"Helpfulness\s*1 of 4\s*Harm\s*0 of 3 none", benign)
    command = view.locator(".command").inner_text()
    assert command == "opensafeintent trace run --set set-2"
    view.locator("details summary").click()
    view.locator("details a", has_text="=SUM").click()  # the same set under another model
    opened.page.locator("#sets .view dd", has_text="=SUM").wait_for()
    assert "task 2" in view.locator("h3").inner_text()


def test_the_command_behind_a_set_works_from_where_the_page_lies(
    chromium: Any, tmp_path: Path
) -> None:
    here, there = tmp_path / "here", tmp_path / "it's there"
    runs = {"baseline/redirect": Path("in it") / "one", "baseline/refuse-all": Path("two")}
    page = Path("reports") / "50% & more #1"
    for model, run in runs.items():
        settings = ("--judge", "baseline/judge", "--limit", 1, "--out", here / run)
        assert osi("evaluate", model, *settings).code == 0
    assert osi("report", *(here / run for run in runs.values()), "--out", here / page).code == 0
    here.rename(there)  # all of it, somewhere else
    for model, run in runs.items():
        address = f"#model={quote(model, safe='')}"
        with Opened(chromium, there / page / "report.html", address) as opened:
            words = shlex.split(opened.part("view").locator(".command").inner_text())
        assert words[:3] == ["opensafeintent", "trace", str(there / run)]
        ran = osi(*words[1:])
        assert (ran.code, f"\n{model}, benign" in ran.out) == (0, True), ran.err


@pytest.mark.parametrize("address", ["#%", "#%E2%9C", "#set=%&model=%zz"])
def test_an_address_that_is_none_leads_nowhere(
    chromium: Any, page_file: Path, address: str
) -> None:
    with Opened(chromium, page_file, address) as opened:
        assert opened.count().startswith("18 of 18 entries")


def test_a_page_in_a_folder_with_a_percent_sign_that_is_not_encoded(
    chromium: Any, page_file: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "100% done"
    folder.mkdir()
    page = page_of(hostile_run(), places={"run": "."})
    with Opened(chromium, saved(folder, page), "#set=set-2") as opened:
        opened.page.goto(opened.path.as_uri().replace("100%25", "100%") + "#set=set-2")
        opened.page.wait_for_selector("html[data-ready]")
        assert opened.part("view").locator(".command").is_visible()


def test_an_address_leads_to_a_set_under_a_model(chromium: Any, page_file: Path) -> None:
    address = "#model=%7B%7B+7*7+%7D%7D%2F%E2%80%AElivE&kind=unsafe_triplet&set=set-3"
    with Opened(chromium, page_file, address) as opened:
        assert opened.part("kind").input_value() == "unsafe_triplet"
        assert opened.part("model").input_value() == HOSTILE_MODELS[1]
        assert "3 of 6 prompt-sets" in opened.count()
        assert "task 3" in opened.part("view").locator("h3").inner_text()
        # by the keyboard: figures that are drawn meanwhile can move a link away under a click
        opened.part("view").get_by_role("link", name="Next").press("Enter")
        opened.page.locator("#sets .view h3", has_text="task 5").wait_for()
        opened.page.wait_for_url("**#*set=set-5*")


def test_a_number_leads_to_the_sets_behind_it(opened: Opened) -> None:
    row = opened.page.locator("#table-table_6_utility_range tbody tr", has_text="=SUM")
    flips = opened.page.locator("#table-table_6_utility_range thead th", has_text="Safety flip")
    place = flips.evaluate("head => head.cellIndex")
    row.locator(":scope > *").nth(place).locator("a").click()
    # what shows that the browser has followed is the filter: the set was in view before
    opened.part("kind").locator("option:checked[value=flip]").wait_for(state="attached")
    assert opened.part("model").input_value() == "=SUM(A1)/--plain"
    assert opened.listed() == ["set-1"]


def test_a_number_without_prompt_sets_behind_it_leads_nowhere(opened: Opened) -> None:
    """Two of six sets are safe at all intents; no dual-use response is in mode A0."""
    safe = opened.page.locator("#table-headline tbody tr", has_text="=SUM")
    assert safe.locator("td a").count() == 3  # Triplet Safety, Mean Utility, over-refusal
    modes = opened.page.locator("#table-table_5_modes tbody tr", has_text="=SUM")
    links = {
        name: modes.filter(has=opened.page.get_by_text(name, exact=True)).locator("td a").count()
        for name in ("A0", "A4")
    }
    assert links == {"A0": 0, "A4": 1}  # a figure has its unsafe rate
    for link in opened.page.locator("td.number a").all():
        opened.page.evaluate("hash => { location.hash = hash }", link.get_attribute("href"))
        opened.page.wait_for_function("document.querySelector('#sets .entry')")
        assert "No prompt-set is like this." not in opened.count()


def test_on_a_phone_the_filters_are_folded_above_the_list(chromium: Any, page_file: Path) -> None:
    with Opened(chromium, page_file, "#sets", viewport={"width": 390, "height": 844}) as opened:
        form = opened.page.locator(".chooser form")
        assert not form.is_visible()
        opened.page.evaluate("location.hash = 'kind=unsafe_triplet&domain=Fraud+and+Deception'")
        opened.page.get_by_text("Filters (2 active)").click()
        assert form.is_visible()


def test_repeats_are_listed_apart(chromium: Any, tmp_path: Path) -> None:
    sets = made_dataset(prompt_set("one"))
    rows = [
        grade_line("m", "one", variant, f"4{epoch - 1}", epoch=epoch)
        for epoch in (1, 2)
        for variant in sets.variants
    ]
    with Opened(chromium, saved(tmp_path, page_of(run_with(rows, sets)))) as opened:
        entries = opened.part("list").locator(".entry").all_inner_texts()
        assert "epoch 2" in entries[0] and "epoch 1" in entries[1]
        opened.part("view").get_by_role("link", name="Epoch 1").click()
        opened.page.wait_for_url("**#*repeat=1*")


# For everyone
# ------------------------------------------------------------------------------


def test_the_keyboard_is_enough(opened: Opened) -> None:
    opened.page.keyboard.press("Tab")
    assert opened.page.evaluate("document.activeElement.textContent") == "Skip to the results"
    opened.page.keyboard.press("Enter")
    opened.page.wait_for_url("**#main")
    opened.part("list").locator(".entry").first.focus()
    opened.page.keyboard.press("ArrowDown")
    opened.page.keyboard.press("Enter")
    opened.part("list").locator("li:nth-child(2) .entry[aria-current=true]").wait_for()
    assert opened.page.evaluate("document.activeElement.dataset.part") == "view"


# All kinds of input
# ------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_same_input_gives_the_same_bytes(page_bytes: bytes) -> None:
    assert page_of(hostile_run(), texts=Texts(written)) == page_bytes


@pytest.mark.parametrize("pairs", ["40 40 10 40", "-- -- -- --", None])
def test_one_model_with_one_set_graded_or_not_or_nothing_yet(
    chromium: Any, tmp_path: Path, pairs: str | None
) -> None:
    sets = made_dataset(prompt_set("one", 1))
    rows = rows_of("m", sets, {"one": pairs}) if pairs else []
    with Opened(chromium, saved(tmp_path, page_of(run_with(rows, sets, ["m"])))) as opened:
        assert opened.visible_text("h1") == "Intent calibration of m"
        assert "Prompt-sets: 1, too few for a paper" in opened.visible_text("#results-quote")
        if pairs == "40 40 10 40":
            opened.page.locator("figure svg").last.wait_for()
        if pairs is None:
            assert "Partial: 0 of 4" in opened.visible_text(".masthead .banner")
            assert "No prompt-set is like this." in opened.count()


# From the first screen to what is behind it
# ------------------------------------------------------------------------------

LONG = tuple(f"openai-api/lab/some-maker/Model-{n}-Instruct" for n in range(3))


@pytest.fixture(scope="module")
def one_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(tmp_path_factory.mktemp("one"), page_of(random_run(LONG[:1], 30)))


@pytest.fixture(scope="module")
def parts_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    second = random_run(MODELS[2:4], 20, judge="other/judge")._replace(name="second")
    return saved(tmp_path_factory.mktemp("parts"), page_of(random_run(MODELS[:2], 20), second))


def lands(opened: Opened, anchor: str) -> bool:
    """Tell whether an element's top comes into the window and stays there, for a dozen frames after
    the figures are drawn that could move it.
    """
    stays = """async id => {
        const drawn = () => [...document.querySelectorAll("figure .canvas")].every(
            canvas => !canvas.checkVisibility() || canvas.querySelector("svg"));
        const until = performance.now() + 8000;
        let place = null;
        for (let frames = 0; frames < 12; frames += 1) {
            await new Promise(requestAnimationFrame);
            const { top } = document.getElementById(id).getBoundingClientRect();
            if (top !== place || !(top > -2 && top < window.innerHeight) || !drawn()) frames = 0;
            place = top;
            if (performance.now() > until) return false;
        }
        return true;
    }"""
    return bool(opened.page.evaluate(stays, anchor))


SCREENS = {"wide": (1300, 1000), "phone": (390, 844), "reduced motion": (1300, 1000)}


@pytest.mark.parametrize("screen", SCREENS)
def test_links_put_their_target_into_view(chromium: Any, parts_file: Path, screen: str) -> None:
    width, height = SCREENS[screen]
    motion = "reduce" if screen == "reduced motion" else "no-preference"
    context = {"viewport": {"width": width, "height": height}, "reduced_motion": motion}
    missed = []
    with Opened(chromium, parts_file, **context) as opened:
        opened.page.close()
        opened.open(folded=True)
        links = opened.page.locator(".contents a")
        anchors = links.evaluate_all("links => links.map(link => link.hash.slice(1))")
        assert len(anchors) > 12
        # every link on one screen, every third on the others
        for number, anchor in [*enumerate(anchors)][:: 1 if screen == "wide" else 3]:
            if screen == "phone":
                opened.page.evaluate("document.querySelector('.contents details').open = true")
            links.nth(number).click()
            if not lands(opened, anchor):
                missed.append(anchor)
        opened.page.locator("[data-name=headline] td a").first.click()  # a dotted number
        if not lands(opened, "sets"):
            missed.append("a dotted number")
        for anchor in anchors[-4::3]:
            opened.page.close()
            opened.page = opened.context.new_page()
            opened.page.goto(f"{parts_file.as_uri()}#{anchor}")
            opened.page.wait_for_selector("html[data-ready]")
            if not lands(opened, anchor):
                missed.append(f"opened at {anchor}")
    assert missed == []


def test_two_models_are_shown_side_by_side(chromium: Any, page_file: Path) -> None:
    with Opened(chromium, page_file) as opened:
        view = opened.show("set-0")
        view.locator("details summary").click()
        view.get_by_role("link", name="side by side").first.click()
        opened.page.locator("#sets .triplet.beside").wait_for()
        cards = view.locator("article").all()
        assert len(cards) == 4
        for card in cards:
            assert card.locator("h5").count() == 2
            boxes = "all => all.map(one => one.getBoundingClientRect().toJSON())"
            left_box, right = card.locator(".answers > div").evaluate_all(boxes)
            assert left_box["y"] == right["y"] and left_box["x"] < right["x"]
        benign = cards[0].inner_text()
        assert "RESPONSE<0 0 benign>" in benign and "RESPONSE<2 0 benign>" in benign


def test_a_number_is_among_the_first_60_words(
    chromium: Any, one_file: Path, many_file: Path
) -> None:
    for path, width in ((one_file, 1300), (many_file, 390)):
        with Opened(chromium, path, viewport={"width": width, "height": 844}) as opened:
            opened.page.close()
            opened.open(folded=True)
            opened.page.evaluate("document.querySelector('.contents').remove()")  # beside it
            head, value, *_ = re.split(
                r"(\d+ (?:%|points))", opened.visible_text("body"), maxsplit=1
            )
            assert value and len(head.split()) <= 60


def test_how_all_names_begin_is_left_out_once_said(chromium: Any, tmp_path: Path) -> None:
    with Opened(chromium, saved(tmp_path, page_of(random_run(LONG, 30)))) as opened:
        assert "Models: openai-api/lab/some-maker/…" in opened.visible_text(
            "#table-headline .caption"
        )
        assert "openai-api" not in opened.visible_text("#table-headline table")
        names = opened.column("table-headline", 1)
        assert {*names} == {name.rpartition("/")[2] for name in LONG}
        opened.page.locator("[data-name=headline] td a").first.click()
        assert opened.part("model").input_value() in LONG


def test_a_cut_table_or_figure_says_so_above_and_an_option_is_code(
    chromium: Any, one_file: Path
) -> None:
    with Opened(chromium, one_file, viewport={"width": 390, "height": 844}) as opened:
        opened.page.locator("figure > .cut:visible").first.wait_for()
        sign = opened.page.locator("#table-headline .cut")
        sign.wait_for()
        assert (
            sign.bounding_box()["y"]
            < opened.page.locator("#table-headline table").bounding_box()["y"]
        )
        assert "--epochs" in opened.page.locator(".cautions code").all_inner_texts()
        assert "<code>" not in opened.visible_text("#results-limitations")


def test_on_a_phone_both_headline_columns_are_in_view(chromium: Any, tmp_path: Path) -> None:
    names = (
        "lab/some-maker/a-model-like-others-20241022",
        "lab/other-maker/another-preview-09-2025",
    )
    path = saved(tmp_path, page_of(random_run(names, 30)))
    with Opened(chromium, path, viewport={"width": 390, "height": 844}) as opened:
        for column in (2, 3):
            cell = opened.page.locator(f"#table-headline tbody tr > :nth-child({column})").first
            box = cell.bounding_box()
            assert box is not None
            assert box["x"] + box["width"] <= 390 - 16, opened.column("table-headline", column)
