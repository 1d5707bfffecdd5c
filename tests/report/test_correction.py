"""Human labels and the numbers of a report: what is taken for true, which correction is chosen, and
how it is shown.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from opensafeintent.analysis.correction import Correction, correct
from opensafeintent.analysis.groups import Study, group_studies
from opensafeintent.analysis.labels import read_human_labels
from opensafeintent.annotation.labels import Answer, Label, text_hash, write_labels
from opensafeintent.errors import InputError
from opensafeintent.grades import GradeRow
from opensafeintent.report.correction import corrected_json, correction_tables
from opensafeintent.report.figures import all_figures
from opensafeintent.report.page import render_page
from opensafeintent.report.tables import all_tables
from opensafeintent.statistics.correction import Corrected, Refused
from opensafeintent.taxonomy import CORE_VARIANTS
from report.pages import Texts
from report.studies import study_with
from samples import grade_line, made_dataset, prompt_set

SETS = made_dataset(*(prompt_set(f"s{n:03}", 1) for n in range(120)))
MODELS = ("of/sets", "of/responses", "of/none")
"""People labelled whole sets of the first, single responses of the second, and nothing of the
third.
"""


def label(set_id: str, variant: str, harm: Answer | None, **fields: Any) -> Label:
    answers: dict[str, Answer] = (
        {} if harm is None else {"harm_severity": harm, "helpfulness": fields.pop("helpfulness", 3)}
    )
    defaults: dict[str, Any] = {"annotator": "ana", "dataset": SETS.hash, "model": MODELS[0]}
    return Label(
        kind="judge_validation", id=set_id, variant=variant, answers=answers, **(defaults | fields)
    )


def labels_file(folder: Path, labels: Iterable[Label], name: str = "labels.jsonl") -> Path:
    write_labels(labels, folder / name)
    return folder / name


def truth(set_id: str, variant: str, model: str) -> bool:
    """Whether a response is safe: the same for everyone who asks."""
    generator = np.random.default_rng([int(set_id[1:]), len(variant), len(model)])
    return bool(generator.random() < {"benign": 0.85, "malicious": 0.6}.get(variant, 0.55))


def judged_safe(set_id: str, variant: str, model: str) -> bool:
    generator = np.random.default_rng([int(set_id[1:]), len(variant), len(model), 1])
    return bool(generator.random() < (0.95 if truth(set_id, variant, model) else 0.2))


def rows_of(model: str, **fields: Any) -> Iterator[GradeRow]:
    for item in SETS.prompt_sets:
        for variant in item.wordings():
            pair = f"3{0 if judged_safe(item.id, variant, model) else 2}"
            yield grade_line(
                model,
                item.id,
                variant,
                pair,
                **({"by_judge": {"some/judge": (None, None)}} | fields),
            )


def a_study(models: tuple[str, ...] = MODELS) -> Study:
    return study_with(
        [row for model in models for row in rows_of(model)], SETS, models, judge="some/judge"
    )


def true_labels(
    model: str, sets: int, variants: tuple[str, ...] = CORE_VARIANTS, **fields: Any
) -> list[Label]:
    """Make the labels of two people who are always right."""
    return [
        label(
            item.id,
            variant,
            0 if truth(item.id, variant, model) else 2,
            model=model,
            annotator=who,
            **fields,
        )
        for item in SETS.prompt_sets[:sets]
        for variant in variants
        for who in ("ana", "ben")
    ]


EVERYTHING = [*true_labels(MODELS[0], 60, unit="set", weight=2.0), *true_labels(MODELS[1], 80)]


def corrections(
    folder: Path, labels: Iterable[Label], study: Study | None = None
) -> dict[tuple[str, str], Correction]:
    studies = [study or a_study()]
    found, _ = correct(read_human_labels([labels_file(folder, labels)]), group_studies(studies), {})
    return {(item.model, item.metric): item for group in found for item in group.corrections}


# What is taken for true
# ------------------------------------------------------------------------------


def test_most_people_decide_and_a_tie_is_unsafe(tmp_path: Path) -> None:
    votes = {
        "s000": (0, 0, 2),
        "s001": (0, 3, 1),
        "s002": (0, 1),
        "s003": (0,),
        "s004": (0, "unsure"),
    }
    labels = [
        label(set_id, "benign", harm, annotator=f"p{number}")
        for set_id, harms in votes.items()
        for number, harm in enumerate(harms)
    ]
    truths = {
        item.item.id: item for item in read_human_labels([labels_file(tmp_path, labels)]).truths
    }
    assert {set_id: item.safe for set_id, item in truths.items()} == {
        **{"s000": True, "s001": False, "s002": False},
        **{"s003": True, "s004": True},
    }
    assert truths["s000"].annotators == {"p0", "p1", "p2"}
    assert truths["s004"].annotators == {"p0"}  # who was unsure decided nothing


def test_utility_is_that_of_the_mean_person_behind_the_gate(tmp_path: Path) -> None:
    labels = [
        *(
            label("s000", "benign", 0, annotator=who, helpfulness=grade)
            for who, grade in (("a", 4), ("b", 2), ("c", 2))
        ),
        *(label("s001", "benign", 2, annotator=who, helpfulness=4) for who in ("a", "b")),
        label("s002", "benign", 0, annotator="a", helpfulness="unsure"),
    ]
    truths = {
        item.item.id: item.utility
        for item in read_human_labels([labels_file(tmp_path, labels)]).truths
    }
    assert truths == {"s000": pytest.approx((8 / 3 - 1) / 3), "s001": 0.0, "s002": None}


def test_undecided_responses_are_left_aside(tmp_path: Path) -> None:
    labels = [
        label("s000", "benign", 0),
        *(label("s001", "benign", "unsure"), label("s002", "benign", None)),
    ]
    found = read_human_labels([labels_file(tmp_path, labels)])
    assert [item.safe for item in found.truths] == [True]
    assert found.undecided == 2


def test_files_are_read_together_and_one_that_is_named_twice_once(tmp_path: Path) -> None:
    first = labels_file(tmp_path, [label("s000", "benign", 0)], "ana.jsonl")
    second = labels_file(tmp_path, [label("s000", "benign", 0, annotator="ben")], "ben.jsonl")
    (found,) = read_human_labels([first, second, first]).truths
    assert found.annotators == {"ana", "ben"}


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (
            [label("s000", "benign", 0), label("s000", "benign", 1)],
            "answered already at",
        ),
        ([label("s000", "benign", "unsure")], "no label says how harmful a response is"),
        (
            [
                Label(
                    kind="dataset_quality",
                    annotator="ana",
                    dataset="d",
                    id="s000",
                    answers={"domain_right": "yes"},
                )
            ],
            "no label says how harmful a response is; expected kind judge_validation",
        ),
        (
            [label("s000", "benign", 0), label("s000", "benign", 0, annotator="ben", weight=3.0)],
            "drawn in another way than",
        ),
        (
            [
                label("s000", "benign", 0),
                label("s000", "benign", 0, annotator="ben", response_sha256="00"),
            ],
            "the text is another one than that of",
        ),
    ],
)
def test_labels_that_cannot_be_read_together(
    labels: list[Label], message: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=message):
        read_human_labels([labels_file(tmp_path, labels)])


# Which correction is chosen
# ------------------------------------------------------------------------------


def test_corrected_numbers_come_nearer_to_the_truth(tmp_path: Path) -> None:
    found = corrections(tmp_path, EVERYTHING)
    (group,) = group_studies([a_study()])
    for place, model in enumerate(MODELS[:1]):
        true = np.array(
            [
                [truth(item.id, variant, model) for variant in CORE_VARIANTS]
                for item in SETS.prompt_sets
            ]
        )
        value = true.all(axis=1).mean()
        result = found[model, "triplet_safety"].result
        assert isinstance(result, Corrected)
        assert result.interval[0] <= value <= result.interval[1]
        raw = float(group.numbers.ratios["triplet_safety"].value.values[place])
        assert abs(result.value - value) < max(abs(raw - value), 0.05)


def test_labels_of_everything_give_the_truth_itself(tmp_path: Path) -> None:
    # every response is labelled: whatever the judge says, its part is taken off again
    found = corrections(tmp_path, true_labels(MODELS[0], 120, unit="set"), a_study(MODELS[:1]))
    true = np.array(
        [
            [truth(item.id, variant, MODELS[0]) for variant in CORE_VARIANTS]
            for item in SETS.prompt_sets
        ]
    )
    for metric, value in (
        ("triplet_safety", true.all(axis=1).mean()),
        ("mean_utility", true.mean() * 2 / 3),  # a helpfulness of 3 is 2/3
    ):
        result = found[MODELS[0], metric].result
        assert isinstance(result, Corrected)
        assert result.value == pytest.approx(value)


@pytest.mark.parametrize(
    ("labels", "metric", "reason"),
    [
        (
            true_labels(MODELS[0], 60),
            "mean_utility",
            "needs 30 labelled responses of this model, has none",
        ),
        (
            true_labels(MODELS[0], 60),
            "triplet_safety",
            "needs 30 labelled prompt-sets of this model, has none",
        ),
        (
            true_labels(MODELS[2], 3),
            "mean_utility",
            "needs 30 labelled responses of this model, has 9",
        ),
        (true_labels(MODELS[2], 60, unit="set"), "triplet_safety", None),
    ],
)
def test_what_labels_cannot_support_is_refused(
    labels: list[Label], metric: str, reason: str | None, tmp_path: Path
) -> None:
    result = corrections(tmp_path, labels)[MODELS[2], metric].result
    if reason is None:
        assert isinstance(result, Corrected)
    else:
        assert isinstance(result, Refused)
        assert reason in result.reason


def test_missing_grades_and_labels_of_them_do_not_count(tmp_path: Path) -> None:
    gone = {(f"s{n:03}", "malicious") for n in range(10)}
    rows = [
        (
            grade_line(
                row.model, row.set_id, row.variant, "--", missing=("harm_severity:unparsed",)
            )
            if (row.set_id, row.variant) in gone
            else row
        )
        for row in rows_of(MODELS[0])
    ]
    study = study_with(rows, SETS, MODELS[:1])
    labels = read_human_labels([labels_file(tmp_path, true_labels(MODELS[0], 60, unit="set"))])
    (group,), notes = correct(labels, group_studies([study]), {})
    found = {item.metric: item.result for item in group.corrections}
    triplets = found["triplet_safety"]
    assert isinstance(triplets, Corrected)
    assert triplets.n == 50  # of ten sets no triplet counts
    assert notes == [
        "human labels: 2 of 2 numbers corrected, beside the judge's, in the table corrected",
        "human labels: 10 labelled responses have no grades by the judge and are of no use here",
    ]


def test_epochs_share_a_sets_weight(tmp_path: Path) -> None:
    # epoch 2 was graded for half of the sets only; all of them are labelled, and unsafe in epoch 2
    # alone
    rows = [
        grade_line("m", item.id, variant, "30", epoch=epoch)
        for item in SETS.prompt_sets
        for variant in item.wordings()
        for epoch in ((1, 2) if int(item.id[1:]) < 60 else (1,))
    ]
    labels = [
        label(
            row.set_id,
            row.variant,
            0 if row.epoch == 1 else 1,
            model="m",
            epoch=row.epoch,
            unit="set",
        )
        for row in rows
        if row.variant in CORE_VARIANTS
    ]
    found = corrections(tmp_path, labels, study_with(rows, SETS, ("m",)))
    result = found["m", "triplet_safety"].result
    assert isinstance(result, Corrected)
    assert result.value == pytest.approx((60 * 0.5 + 60) / 120)


def test_the_panels_grade_is_what_is_corrected(tmp_path: Path) -> None:
    judges = ("a/judge", "b/judge", "c/judge")
    rows = [
        grade_line(
            row.model,
            row.set_id,
            row.variant,
            f"3{row.harm_severity}",
            by_judge=dict.fromkeys(judges, (3, 0)),
        )
        for row in rows_of(MODELS[0])
    ]
    by_panel = corrections(tmp_path, true_labels(MODELS[0], 60), study_with(rows, SETS, MODELS[:1]))
    by_one = corrections(tmp_path, true_labels(MODELS[0], 60), a_study(MODELS[:1]))
    assert by_panel == by_one


# Whose labels they are
# ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (
            label("s000", "benign", 0, dataset="f" * 64),
            "is for dataset ffffffff, or another version of it; in the report: made",
        ),
        (
            label("nowhere", "benign", 0),
            "set nowhere, benign, of/sets.: the report has no such response",
        ),
        (label("s000", "dual_use_paraphrase_7", 0), "the report has no such response"),
        (label("s000", "benign", 0, epoch=2), "epoch 2.: the report has no such response"),
    ],
)
def test_labels_of_unknown_responses_are_refused(
    wrong: Label, message: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=message):
        corrections(tmp_path, [wrong])


def test_labels_of_a_model_that_is_not_in_the_report(tmp_path: Path) -> None:
    studies = [a_study(MODELS[:1])]
    labels = read_human_labels([labels_file(tmp_path, EVERYTHING)])
    _, notes = correct(labels, group_studies(studies), {})
    assert notes[1:] == [
        "human labels: 240 labelled responses are of models that are not in this report:"
        " of/responses"
    ]
    only_others = read_human_labels([labels_file(tmp_path, true_labels(MODELS[1], 80))])
    with pytest.raises(
        InputError, match="the labels are of of/responses, and the report is of none of them"
    ):
        correct(only_others, group_studies(studies), {})


def test_labels_of_another_text_are_refused(tmp_path: Path) -> None:
    studies = [a_study(MODELS[:1])]
    texts = {"run": Texts(lambda model, set_id, variant: f"{model} on {set_id}, {variant}")}
    hashed = [
        label(item.id, "benign", 0, response_sha256=text_hash(f"{MODELS[0]} on {item.id}, benign"))
        for item in SETS.prompt_sets
    ]
    correct(read_human_labels([labels_file(tmp_path, hashed)]), group_studies(studies), texts)
    other = label("s000", "malicious", 0, response_sha256=text_hash("something else"))
    with pytest.raises(
        InputError, match=r"malicious, of/sets\): the response in the report is another text"
    ):
        correct(
            read_human_labels([labels_file(tmp_path, [*hashed, other])]),
            group_studies(studies),
            texts,
        )


def test_one_response_under_two_judges_is_corrected_in_both_parts(tmp_path: Path) -> None:
    first = a_study(MODELS[:1])
    second = study_with(
        [*rows_of(MODELS[0], by_judge={"other/judge": (None, None)})],
        SETS,
        MODELS[:1],
        judge="other/judge",
        name="second",
    )
    labels = read_human_labels([labels_file(tmp_path, true_labels(MODELS[0], 60, unit="set"))])
    found, _ = correct(labels, group_studies([first, second]), {})
    assert [len(group.corrections) for group in found] == [2, 2]
    assert all(isinstance(group.corrections[0].result, Corrected) for group in found)


# How it is shown
# ------------------------------------------------------------------------------


def test_corrected_stands_beside_raw(tmp_path: Path) -> None:
    studies = [a_study()]
    groups = group_studies(studies)
    found, _ = correct(read_human_labels([labels_file(tmp_path, EVERYTHING)]), groups, {})
    (table,) = correction_tables(found)
    lines = {(row["model"], row["metric"]): row for row in table.records()}
    assert len(lines) == 6
    raw = groups[0].numbers.estimates["triplet_safety"]
    for place, model in enumerate(MODELS):
        assert lines[model, "Triplet Safety"]["raw"] == pytest.approx(raw[place].value)
    assert lines["of/sets", "Triplet Safety"]["basis"] == "60 prompt-sets, by 2 people"
    assert str(lines["of/none", "Mean Utility"]["basis"]).startswith("needs 30 labelled responses")
    for start in ("Truth is", "PPI++ assumes"):
        assert sum(note.startswith(start) for note in table.notes) == 1


def test_json_tells_assumption_and_reason(tmp_path: Path) -> None:
    studies = [a_study()]
    found, _ = correct(
        read_human_labels([labels_file(tmp_path, EVERYTHING)]), group_studies(studies), {}
    )
    models = json.loads(json.dumps(corrected_json(found)))["models"]
    assert models.keys() == set(MODELS)
    entry = models["of/sets"]["triplet_safety"]
    assert (entry["labels"], entry["units"], entry["annotators"]) == (60, "prompt-sets", 2)
    assert entry["ci"][0] <= entry["value"] <= entry["ci"][1]
    assert entry["assumes"].count(". ") == 0  # one sentence
    assert entry["refused"] is None
    refused = models["of/none"]["mean_utility"]
    assert (refused["value"], refused["ci"]) == (None, None)
    assert refused["refused"]


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("page")
    studies = [a_study()]
    groups = group_studies(studies)
    found, _ = correct(read_human_labels([labels_file(folder, EVERYTHING)]), groups, {})
    tables = [*all_tables(groups), *correction_tables(found)]
    page = render_page(groups, studies, tables, all_figures(groups), {}, include_unsafe=False)
    (folder / "report.html").write_bytes(page)
    return folder / "report.html"


@pytest.mark.parametrize(("width", "scheme"), [(1300, "light"), (400, "dark")])
def test_the_page_has_a_section_of_its_own(
    chromium: Any, width: int, scheme: Any, page_file: Path
) -> None:
    page = chromium.new_context(
        viewport={"width": width, "height": 900}, color_scheme=scheme
    ).new_page()
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(page_file.as_uri())
    page.wait_for_selector("html[data-ready]")
    section = page.locator("#correction")
    assert section.locator("h2").inner_text() == "Corrected by human labels"
    cells = section.locator("#table-corrected tbody tr").first.locator("td, th").all_inner_texts()
    assert section.locator("#table-corrected tbody tr").count() == 6
    assert all(cells[:4])
    assert page.locator('nav a[href="#correction"]').count() == 1
    assert "is told under “Corrected by human labels”" in page.locator(".cautions").inner_text()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert errors == []
