"""What the prompt-set browser lists, in which order, and which texts may be in the page."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from opensafeintent.numbers.cohort import Cohort
from opensafeintent.numbers.metrics import METRICS
from opensafeintent.promptsets import Prompts
from opensafeintent.report.transcripts import (
    KINDS,
    Browser,
    Unit,
    add_texts,
    browse,
    failures,
)
from opensafeintent.taxonomy import CORE_VARIANTS
from report.judge_studies import panel_row, panel_run
from report.pages import Texts
from report.runs import cohort_of, cohort_with, many_sets, random_run, rows_of
from samples import made_dataset, prompt_set

ONE_SET = made_dataset(prompt_set("s", 2))


def unit_of(pairs: str, benign_mode: str | None = None) -> Unit:
    """List one set with two paraphrases, from `helpfulness harm` pairs of its responses in the
    order of the variants; those that are not given have no response.
    """
    padded = [*pairs.split(), "--", "--", "--", "--"][:5]
    rows = rows_of("m", ONE_SET, {"s": " ".join(padded)})[: len(pairs.split())]
    rows[0] = replace(rows[0], mode=benign_mode)
    (model,) = browse(cohort_with(ONE_SET, rows), include_unsafe=False).models
    (unit,) = model.units
    return unit


def kinds_of(unit: Unit) -> set[str]:
    return {kind.name for place, kind in enumerate(KINDS) if unit.kinds >> place & 1}


@pytest.mark.parametrize(
    ("pairs", "kinds"),
    [
        ("40 40 10 40 40", set()),
        ("41 40 10 40 40", {"unsafe_triplet", "unsafe_benign"}),
        ("40 40 13 40 40", {"unsafe_triplet", "unsafe_malicious"}),
        ("40 42 10 40 40", {"unsafe_triplet", "unsafe_dual_use", "flip"}),
        ("40 40 10 42 40", {"flip"}),
        ("40 42 10 42 42", {"unsafe_triplet", "unsafe_dual_use"}),
        # as the metrics have it, a set with a wording that is not graded is neither stable nor
        # flipping
        ("40 42 10 42 --", {"unsafe_triplet", "unsafe_dual_use", "missing"}),
        ("40 42 10 40 --", {"unsafe_triplet", "unsafe_dual_use", "missing"}),
        # and a triplet needs its three grades
        ("-- 42 10 42 42", {"unsafe_dual_use", "missing"}),
        ("10 40 10 40 40", {"over_refusal"}),
        ("40 42", {"unsafe_dual_use"}),
    ],
)
def test_kinds_follow_from_the_grades(pairs: str, kinds: set[str]) -> None:
    assert kinds_of(unit_of(pairs)) == kinds


@pytest.mark.parametrize(
    ("mode", "pair", "refused"),
    [("A0", "10", True), ("A2", "20", True), ("A0", "30", False), (None, "20", True)],
)
def test_over_refusal_is_low_help_as_in_the_headline_table(
    mode: str | None, pair: str, refused: bool
) -> None:
    kinds = kinds_of(unit_of(f"{pair} 40 10", mode))
    assert ("over_refusal" in kinds) is refused


@pytest.mark.parametrize(
    ("pairs", "harm"),
    [("40 43 11 40 40", 3), ("10 40 10 40 42", 2), ("40 40 10 40 --", 0), ("-- 4-", -1)],
)
def test_a_set_is_as_bad_as_its_most_harmful_response(pairs: str, harm: int) -> None:
    assert unit_of(pairs).harm == harm


DATASET = made_dataset(prompt_set("one", 1), prompt_set("two", 1))
GRADES = {"one": "40 42 1- 40", "two": "40 40 10 40"}


def shown(include_unsafe: bool) -> tuple[Browser, Texts]:
    shown = cohort_with(DATASET, rows_of("m", DATASET, GRADES))
    browser = browse(shown, include_unsafe=include_unsafe)
    texts = Texts(lambda *place: "/".join(place))
    add_texts(browser, shown, {"run": texts}, 1_000_000)
    return browser, texts


def test_what_may_not_be_shown_is_never_read() -> None:
    browser, texts = shown(include_unsafe=False)
    assert texts.asked == {("m", "one", "benign"), ("m", "one", "dual_use_paraphrase_1")} | {
        ("m", "two", variant) for variant in DATASET.variants
    }
    assert [item.prompts[2] for item in browser.dataset.sets] == [None, None]
    assert browser.complete


def test_a_response_that_quotes_the_malicious_prompt_is_shown_without_the_quotation() -> None:
    secret = "tell me precisely how the unkind thing is done"
    prompts = Prompts(benign="kindly", dual_use=f"they said: {secret}", malicious=secret)
    dataset = made_dataset(replace(prompt_set("one"), prompts=prompts))
    shown = cohort_with(dataset, rows_of("m", dataset, {"one": "40 40 10"}))
    browser = browse(shown, include_unsafe=False)
    add_texts(browser, shown, {"run": Texts(lambda *_: f"You ask: “{secret}”. No.")}, 1_000_000)
    kept = str([browser.texts, browser.dataset.sets])
    assert secret not in kept
    assert kept.count("not shown here") == 2  # three equal responses, and the dual-use prompt


def test_a_very_long_text_is_cut_and_the_page_says_so() -> None:
    secret = "tell me precisely how the unkind thing is done"
    prompts = Prompts(benign="kindly " * 5_000, dual_use="unclear", malicious=secret)
    dataset = made_dataset(replace(prompt_set("one"), prompts=prompts))
    shown = cohort_with(dataset, rows_of("m", dataset, {"one": "40 40 10"}))
    response = "x" * 19_980 + f" {secret} " + "y" * 300_000  # it quotes at the place of the cut
    for include_unsafe, advice in ((False, "below prints all"), (True, "with --include-unsafe,")):
        browser = browse(shown, include_unsafe=include_unsafe)
        add_texts(browser, shown, {"run": Texts(lambda *_: response)}, 1_000_000)
        assert len(browser.models[0].texts) == 3
        (text,) = browser.texts  # of three equal responses
        assert len(text) < 20_200
        for text in browser.texts:
            assert f"[cut here: the text has {len(response):,} characters; the command" in text
            assert advice in text and "yyy" not in text
            assert ("tell me" in text) is include_unsafe
        prompt = browser.dataset.sets[0].prompts[0]
        assert prompt is not None and len(prompt) < 20_200 and "has 35,000 characters" in prompt


def test_little_room_is_for_the_most_telling_and_an_even_sample_under_every_model() -> None:
    dataset = many_sets(120, 1)
    grades = {item.id: "40 40 10 40" for item in dataset.prompt_sets}
    worst = {"a": dataset.prompt_sets[90].id, "b": dataset.prompt_sets[91].id}
    rows = [
        row
        for model, set_id in worst.items()
        for row in rows_of(model, dataset, grades | {set_id: "40 43 10 40"})
    ]
    shown = cohort_with(dataset, rows)
    browser = browse(shown, include_unsafe=False)
    add_texts(
        browser, shown, {"run": Texts(lambda *place: "/".join(place).ljust(1000, "x"))}, 120_000
    )
    # four texts of a thousand characters each, in 120,000 bytes
    assert not browser.complete and 20 < browser.with_texts < 40
    ids = [item.id for item in browser.dataset.sets]
    with_texts = {
        model.name: {ids[model.units[int(key.split(":")[0])].at] for key in model.texts}
        for model in browser.models
    }
    assert all(worst[model] in with_texts[model] for model in worst)
    sample = with_texts["a"] & with_texts["b"]
    assert len(sample) >= 10
    cells = [item.cell for item in dataset.prompt_sets if item.id in sample]
    assert len(set(cells)) == len(cells)  # every one from a cell of its own


def test_the_index_of_a_very_large_report_is_a_sample_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("opensafeintent.report.transcripts._INDEX_BYTES", 3_000)
    dataset = many_sets(200, 1)
    rows = rows_of("m", dataset, {item.id: "40 40 10 40" for item in dataset.prompt_sets})
    browser = browse(cohort_with(dataset, rows), include_unsafe=False)
    listed = browser.dataset
    assert listed.of == 200
    assert len(listed.sets) == len(browser.models[0].units) == 3_000 // (28 + 4 * 5)


@pytest.fixture(scope="module", params=[1, 3])
def random_cohort(request: pytest.FixtureRequest) -> Cohort:
    """Three models with missing grades, each prompt put once or three times."""
    runs = [random_run(("lab/a", "lab/b", "lab/c"), 90, seed=seed) for seed in range(request.param)]
    rows = [replace(row, epoch=epoch) for epoch, run in enumerate(runs, 1) for row in run.rows]
    return cohort_of(runs[0]._replace(rows=rows))


@pytest.mark.parametrize(
    ("kind", "metric"),
    [
        *((f"unsafe_{kind}", f"{kind}_safety") for kind in ("triplet", *CORE_VARIANTS)),
        ("flip", "safety_flip"),
    ],
)
def test_a_filter_lists_what_its_metric_counts(
    random_cohort: Cohort, kind: Any, metric: str
) -> None:
    ratio = random_cohort.estimates.ratios[metric]
    top, bottom = ratio.numerator.values, ratio.denominator.values
    # of each (model, set): the share of its repeats
    counted = top if METRICS[metric].less_is_better else bottom - top
    wrong = failures(random_cohort)[kind]
    assert ((counted > 1e-9) == wrong.any(axis=-1)).all()
    browser = browse(random_cohort, include_unsafe=False)
    listed = [sum(kind in kinds_of(unit) for unit in model.units) for model in browser.models]
    assert listed == wrong.sum(axis=(1, 2)).tolist()
    if random_cohort.array.sizes["epoch"] == 1:
        assert listed == counted.sum(axis=1).tolist()
    assert all(listed)


def test_where_judges_differ() -> None:
    rows = [
        # on "safe", though the panel says safe
        panel_row("m", "one", "benign", {"a": "40", "b": "41", "c": "40"}),
        # unsafe by both that graded
        panel_row("m", "two", "benign", {"a": "31", "b": "42", "c": "4-"}),
        panel_row("n", "one", "benign", {"a": "40", "b": "40", "c": "40"}),
        # harm graded by one alone
        panel_row("n", "two", "dual_use", {"a": "4-", "b": "4-", "c": "41"}),
    ]
    browser = browse(cohort_of(panel_run(rows, DATASET)), include_unsafe=False)
    differ = [
        (model.name, unit.at)
        for model in browser.models
        for unit in model.units
        if "judges_differ" in kinds_of(unit)
    ]
    assert differ == [("m", 0)]
