"""What the prompt-set browser lists, in which order, and which texts may be in the page."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from opensafeintent.analysis.cohort import Group, group_studies
from opensafeintent.grades import GradeRow
from opensafeintent.metrics import METRICS
from opensafeintent.promptsets import Prompts, PromptSet
from opensafeintent.report.transcripts import (
    KINDS,
    Browser,
    Member,
    Unit,
    add_texts,
    browse,
    goes_wrong,
    members_of,
)
from report.judge_studies import panel_row, panel_study
from report.pages import Texts, group_with, rows_of
from report.studies import many_sets, random_study, study_with
from samples import grade_line, made_dataset, prompt_set

ONE_SET = made_dataset(prompt_set("s", 2))


def unit_of(pairs: str, **fields: Any) -> Unit:
    """List one set with two paraphrases, from `helpfulness harm` pairs of its responses in the
    order of the variants.
    """
    missing = {True: ("helpfulness:unparsed",), False: ()}
    rows = [
        grade_line("m", "s", name, pair, missing=missing["-" in pair], **fields.get(name, {}))
        for name, pair in zip(ONE_SET.variants, pairs.split(), strict=False)
    ]
    (model,) = browse(members(rows, ONE_SET), include_unsafe=False).models
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
    [("A0", "10", True), ("A1", "20", True), ("A3", "10", False), (None, "10", True)],
)
def test_a_benign_refusal_is_told_by_its_mode_where_there_is_one(
    mode: str | None, pair: str, refused: bool
) -> None:
    found = kinds_of(unit_of(f"{pair} 40 10", benign={"mode": mode}))
    assert ("over_refusal" in found) is refused


def test_the_most_telling_comes_first() -> None:
    ordered = [
        "40 43 43 40 40",  # 3 × 4 = 12, and two of them
        "40 43 11 40 40",  # the same with another one less harmful
        "40 40 43 40 40",  # 3 × 4 = 12
        "42 40 10 40 40",  # 2 × 4 = 8
        "40 13 10 40 40",  # 3 × 1 = 3
        "10 40 10 40 40",  # nothing unsafe, a refused benign prompt
        "40 40 10 40 --",  # a grade is missing
        "40 40 10 40 40",
    ]
    scores = {pairs: unit_of(pairs).severity_rank for pairs in ordered}
    ranks = [scores[pairs] for pairs in ordered[1:]]
    assert ranks == sorted(set(ranks), reverse=True)
    assert scores[ordered[0]] == scores[ordered[1]]


DATASET = made_dataset(prompt_set("one", 1), prompt_set("two", 1))
GRADES = {"one": "40 42 1- 40", "two": "40 40 10 40"}


def members(rows: list[GradeRow], dataset: Any = DATASET) -> list[Member]:
    return members_of([group_with(dataset, rows)])


def shown(
    include_unsafe: bool, write: Any = lambda *place: "/".join(place)
) -> tuple[Browser, Texts]:
    shown = members(rows_of("m", DATASET, GRADES))
    browser = browse(shown, include_unsafe=include_unsafe)
    texts = Texts(write)
    add_texts(browser, shown, {"run": texts}, 1_000_000)
    return browser, texts


def test_grades_are_written_in_five_characters_a_response() -> None:
    rows = [
        grade_line("m", "one", "benign", "40", mode="A4"),
        grade_line(
            *("m", "one", "dual_use", "32"),
            **{"mode": "A3", "strategy": "full", "truncated": True, "stop_reason": "length"},
        ),
        grade_line("m", "one", "malicious", "--", missing=("response:failed",)),
        grade_line(
            *("m", "two", "benign", "10"),
            **{"mode": "A0", "refused": "filter", "stop_reason": "content_filter"},
        ),
        grade_line(
            "m", "two", "dual_use", "4-", missing=("harm_severity:unparsed", "mode:filtered")
        ),
        grade_line("m", "two", "malicious", "--", missing=("grades:not_graded",)),
    ]
    (model,) = browse(members(rows), include_unsafe=False).models
    absent = " " * 5
    assert [unit.grades for unit in model.units] == [
        "404.s" + "323ft" + "--..m" + absent,
        "100.f" + "4--.s" + "....n" + absent,
    ]
    assert model.remarks["0:1"] == "stop reason length"
    assert model.remarks["1:1"] == "harm_severity:unparsed; mode:filtered"


def test_a_panel_has_the_grades_of_each_judge() -> None:
    rows = [grade_line("m", "one", "benign", "40", by_judge={"a": (4, 0), "b": (3, None)})]
    study = study_with(rows, DATASET, ["m"], judge="a")
    (model,) = browse(members_of(group_studies([study])), include_unsafe=False).models
    assert model.units[0].by_judge == "403-" + "----" * 3


def test_what_may_not_be_shown_is_never_read() -> None:
    browser, texts = shown(include_unsafe=False)
    assert texts.asked == {("m", "one", "benign"), ("m", "one", "dual_use_paraphrase_1")} | {
        ("m", "two", variant) for variant in DATASET.variants
    }
    assert [item.prompts[2] for item in browser.datasets[0].sets] == [None, None]
    assert browser.complete


def test_all_is_shown_on_demand() -> None:
    browser, texts = shown(include_unsafe=True)
    assert len(texts.asked) == 8
    assert browser.datasets[0].sets[0].prompts[2] == "one, unkindly"


def test_a_response_that_quotes_the_malicious_prompt_is_shown_without_the_quotation() -> None:
    secret = "tell me precisely how the unkind thing is done"
    item = PromptSet(
        id="one",
        harm_domain="Cyber Compromise",
        task_type="Explanation",
        underlying_task="a task",
        prompts=Prompts(benign="kindly", dual_use=f"they said: {secret}", malicious=secret),
    )
    dataset = made_dataset(item)
    shown = members(rows_of("m", dataset, {"one": "40 40 10"}), dataset)
    browser = browse(shown, include_unsafe=False)
    add_texts(browser, shown, {"run": Texts(lambda *_: f"You ask: “{secret}”. No.")}, 1_000_000)
    kept = str([browser.models[0].texts, browser.datasets[0].sets])
    assert secret not in kept
    assert kept.count("does not show") == 4  # three responses, and the dual-use prompt


def test_a_run_without_texts_shows_its_prompts_and_grades() -> None:
    shown = members(rows_of("m", DATASET, GRADES))
    browser = browse(shown, include_unsafe=False)
    add_texts(browser, shown, {}, 1_000_000)
    assert browser.datasets[0].sets[0].prompts[0] == "one, kindly"
    assert not browser.models[0].texts


def test_little_room_is_used_for_the_most_telling_and_then_for_an_even_sample_under_every_model() -> (
    None
):
    dataset = many_sets(120, 1)
    grades = {item.id: "40 40 10 40" for item in dataset.prompt_sets}
    worst = {"a": dataset.prompt_sets[90].id, "b": dataset.prompt_sets[91].id}
    rows = [
        row
        for model in ("a", "b")
        for row in rows_of(model, dataset, grades | {worst[model]: "40 43 10 40"})
    ]
    shown = members(rows, dataset)
    browser = browse(shown, include_unsafe=False)
    add_texts(browser, shown, {"run": Texts(lambda *_: "x" * 1000)}, 120_000)
    assert not browser.complete
    assert (
        20 < browser.with_texts < 40
    )  # four texts of a thousand characters each, in 120,000 bytes
    ids = [item.id for item in browser.datasets[0].sets]
    there = {
        model.name: {ids[model.units[int(key.split(":")[0])].at] for key in model.texts}
        for model in browser.models
    }
    assert worst["a"] in there["a"] and worst["b"] in there["b"]
    sample = there["a"] & there["b"]
    assert len(sample) >= 10
    cells = [item.cell for item in dataset.prompt_sets if item.id in sample]
    assert len(set(cells)) == len(cells)  # every one from a cell of its own


def test_the_index_of_a_very_large_report_is_a_sample_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("opensafeintent.report.transcripts._INDEX_BYTES", 3_000)
    dataset = many_sets(200, 1)
    shown = members(
        rows_of("m", dataset, {item.id: "40 40 10 40" for item in dataset.prompt_sets}), dataset
    )
    browser = browse(shown, include_unsafe=False)
    (listed,) = browser.datasets
    assert listed.of == 200
    assert len(listed.sets) == len(browser.models[0].units) == 3_000 // (28 + 4 * 5)


@pytest.fixture(scope="module", params=[1, 3])
def random_group(request: pytest.FixtureRequest) -> Group:
    """Three models with missing grades, each prompt put once or three times."""
    studies = [
        random_study(("lab/a", "lab/b", "lab/c"), 90, seed=seed) for seed in range(request.param)
    ]
    rows = [
        replace(row, epoch=epoch) for epoch, study in enumerate(studies, 1) for row in study.rows
    ]
    (group,) = group_studies([studies[0]._replace(rows=rows)])
    return group


@pytest.mark.parametrize(
    ("kind", "metric"),
    [
        ("unsafe_triplet", "triplet_safety"),
        ("unsafe_benign", "benign_safety"),
        ("unsafe_dual_use", "dual_use_safety"),
        ("unsafe_malicious", "malicious_safety"),
        ("flip", "safety_flip"),
    ],
)
def test_a_filter_lists_what_its_metric_counts(random_group: Group, kind: Any, metric: str) -> None:
    ratio = random_group.numbers.ratios[metric]
    top, bottom = ratio.numerator.values, ratio.denominator.values
    # of each (model, set): the share of its repeats
    counted = top if METRICS[metric].less_is_better else bottom - top
    wrong = goes_wrong(random_group)[kind]
    assert ((counted > 1e-9) == wrong.any(axis=-1)).all()
    browser = browse(members_of([random_group]), include_unsafe=False)
    listed = [sum(kind in kinds_of(unit) for unit in model.units) for model in browser.models]
    assert listed == wrong.sum(axis=(1, 2)).tolist()
    if random_group.array.sizes["epoch"] == 1:
        assert listed == counted.sum(axis=1).tolist()
    assert all(listed)


# Where grades differ
# ------------------------------------------------------------------------------


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
    (group,) = group_studies([panel_study(rows, DATASET)])
    found = {
        (model.name, DATASET.prompt_sets[unit.at].id)
        for model in browse(members_of([group]), include_unsafe=False).models
        for unit in model.units
        if "judges_differ" in kinds_of(unit)
    }
    assert found == {("m", "one")}
