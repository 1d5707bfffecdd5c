"""Human labels and the numbers of a report: what is taken for true, what is corrected, and how it
is shown.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from msgspec.structs import replace
from numpy.typing import NDArray

from opensafeintent.errors import InputError
from opensafeintent.numbers.cohort import GradedRun, gather_models
from opensafeintent.people.labels import Answer, Label, text_hash, write_labels
from opensafeintent.report.columns import format_cell
from opensafeintent.report.comment import summary
from opensafeintent.report.conditions import describe_measurement
from opensafeintent.report.corrections import (
    Corrected,
    Correction,
    HumanLabels,
    correct,
    correction_table,
    make_corrected_metrics,
    read_human_labels,
)
from opensafeintent.report.notices import Results, collect_notices
from opensafeintent.report.page import PageOptions, render_page
from opensafeintent.report.tables import make_all_tables
from opensafeintent.responses import GradedResponse
from opensafeintent.taxonomy import CORE_VARIANTS
from report.pages import Texts
from report.runs import run_with
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


def read(folder: Path, labels: Iterable[Label]) -> HumanLabels:
    write_labels(labels, folder / "labels.jsonl")
    return read_human_labels([folder / "labels.jsonl"])


def truth(set_id: str, variant: str, model: str) -> bool:
    """Whether a response is safe: the same for everyone who asks."""
    generator = np.random.default_rng([int(set_id[1:]), len(variant), len(model)])
    return bool(generator.random() < {"benign": 0.85, "malicious": 0.6}.get(variant, 0.55))


def judged_safe(model: str, set_id: str, variant: str) -> bool:
    generator = np.random.default_rng([int(set_id[1:]), len(variant), len(model), 1])
    return bool(generator.random() < (0.95 if truth(set_id, variant, model) else 0.2))


def rows_of(model: str, judge: str = "some/judge") -> list[GradedResponse]:
    return [
        grade_line(*place, "30" if judged_safe(*place) else "32", by_judge={judge: (None, None)})
        for item in SETS.prompt_sets
        for place in ((model, item.id, variant) for variant in item.wordings())
    ]


def a_run(*models: str) -> GradedRun:
    rows = [row for model in models or MODELS for row in rows_of(model)]
    return run_with(rows, SETS, judge="some/judge")


def true_labels(model: str, sets: int, **fields: Any) -> list[Label]:
    """Make the labels of two people who are always right."""
    fields["model"] = model
    return [
        label(item.id, variant, 2 - 2 * truth(item.id, variant, model), annotator=who, **fields)
        for item in SETS.prompt_sets[:sets]
        for variant in CORE_VARIANTS
        for who in ("ana", "ben")
    ]


EVERYTHING = [*true_labels(MODELS[0], 60, unit="set", weight=2.0), *true_labels(MODELS[1], 80)]


def corrections(
    folder: Path, labels: Iterable[Label], *runs: GradedRun
) -> dict[tuple[str, str], Correction]:
    result, _ = correct(read(folder, labels), gather_models(runs or [a_run()]), {})
    return {(item.model, item.metric): item for item in result}


def value_of(item: Correction) -> Corrected:
    assert item.corrected is not None, item.refused
    return item.corrected


def test_most_people_decide_and_a_tie_is_unsafe(tmp_path: Path) -> None:
    votes = {"s000": (0, 0, 2), "s001": (0, 3, 1), "s002": (0, 1), "s003": (0,)}
    votes |= {"s004": (0, "unsure"), "s005": ("unsure",), "s006": (None,)}
    labels = [
        label(set_id, "benign", harm, annotator=f"p{number}")
        for set_id, harms in votes.items()
        for number, harm in enumerate(harms)
    ]
    result = read(tmp_path, labels)
    assert [truth.item.id for truth in result.truths] == list(votes)[:5]
    assert [truth.safe for truth in result.truths] == [True, False, False, True, True]
    assert [len(truth.annotators) for truth in result.truths] == [3, 3, 2, 1, 1]
    assert result.undecided == 2


def test_utility_is_that_of_the_mean_person_behind_the_gate(tmp_path: Path) -> None:
    grades = {"a": 4, "b": 2, "c": 2}
    labels = [
        *(label("s000", "benign", 0, annotator=who, helpfulness=grades[who]) for who in grades),
        label("s001", "benign", 2, helpfulness=4),
        label("s002", "benign", 0, helpfulness="unsure"),
    ]
    utilities = [truth.utility for truth in read(tmp_path, labels).truths]
    assert utilities == pytest.approx([(8 / 3 - 1) / 3, 0.0, float("nan")], nan_ok=True)


def test_labels_that_cannot_be_read_together(tmp_path: Path) -> None:
    first, second = (label("s000", "benign", 0, annotator=who) for who in ("a", "b"))
    with pytest.raises(InputError, match="the text is another one than that of"):
        read(tmp_path, [first, replace(second, response_sha256="00")])
    with pytest.raises(InputError, match="no label says how harmful a response is"):
        read(tmp_path, [label("s000", "benign", "unsure")])


def true_shares(model: str) -> NDArray[np.bool_]:
    """Return which responses are safe: shape (prompt_set, intent)."""
    ids = [item.id for item in SETS.prompt_sets]
    return np.array([[truth(name, variant, model) for variant in CORE_VARIANTS] for name in ids])


def test_labels_of_everything_give_the_truth_itself(tmp_path: Path) -> None:
    # every response is labelled: whatever the judge says, its part is taken off again
    labels = true_labels(MODELS[0], 120, unit="set")
    result = corrections(tmp_path, labels, a_run(MODELS[0]))
    true = true_shares(MODELS[0])
    expected = {"triplet_safety": true.all(axis=1).mean(), "mean_utility": true.mean() * 2 / 3}
    for metric, value in expected.items():  # a helpfulness of 3 is 2/3
        assert value_of(result[MODELS[0], metric]).value == pytest.approx(value)


@pytest.mark.parametrize(
    ("labels", "metric", "reason"),
    [
        (true_labels(MODELS[0], 60), "mean_utility", "needs 30 labelled responses"),
        (true_labels(MODELS[0], 60), "triplet_safety", "needs 30 labelled prompt-sets"),
        (true_labels(MODELS[2], 3), "mean_utility", "of this model, has 9"),
        (true_labels(MODELS[2], 60, unit="set"), "triplet_safety", None),
    ],
)
def test_what_labels_cannot_support_is_refused(
    labels: list[Label], metric: str, reason: str | None, tmp_path: Path
) -> None:
    item = corrections(tmp_path, labels)[MODELS[2], metric]
    assert (item.corrected is None) is (reason is not None)
    assert (reason or "") in (item.refused or "")


def test_missing_grades_and_labels_of_them_do_not_count(tmp_path: Path) -> None:
    rows = rows_of(MODELS[0])
    for n, row in enumerate(rows):
        if row.set_id < "s010" and row.variant == "malicious":
            place = (row.model, row.set_id, row.variant)
            rows[n] = grade_line(*place, "--", missing=("harm_severity:unparsed",))
    run = run_with(rows, SETS)
    labels = read(tmp_path, true_labels(MODELS[0], 60, unit="set"))
    (triplets, _), notes = correct(labels, gather_models([run]), {})
    assert value_of(triplets).n == 50  # of ten sets no triplet counts
    assert "2 of 2 numbers corrected" in notes[0]
    assert "10 labelled responses have no grades" in notes[1]


def test_labels_that_cannot_count_are_told_with_their_reason(tmp_path: Path) -> None:
    model = MODELS[1]
    rows = rows_of(model)
    for n, row in enumerate(rows):
        if row.set_id < "s005" and row.variant == "malicious":
            place = (row.model, row.set_id, row.variant)
            rows[n] = grade_line(*place, "--", missing=("response:empty_reply",))
    single = [
        label(f"s{n:03}", variant, 0, model=model, **fields)
        for n, variant, fields in (
            *((n, "benign", {}) for n in range(32)),
            *((n, "dual_use", {"helpfulness": "unsure"}) for n in (5, 6)),
            (7, "dual_use_paraphrase_1", {}),
        )
    ]
    in_part = [
        label(f"s{n:03}", variant, 0, model=model, unit="set")
        for n in (40, 41)
        for variant in ("benign", "malicious")
    ]
    cohort = gather_models([run_with(rows, SETS)])
    (_, utility), notes = correct(read(tmp_path, [*single, *in_part]), cohort, {})
    # of 32 benign responses five are in sets without a malicious one
    assert utility.refused == (
        "needs 30 labelled responses of this model, has 27; 5 labels of prompt-sets that lack a"
        " grade cannot count"
    )
    reasons = {
        "1 labelled responses are to paraphrases",
        "5 labelled responses are of prompt-sets in which another core response has no grades",
        "4 labelled responses are of prompt-sets that people labelled in part",
        "2 labelled responses have no helpfulness that anybody was sure of",
        "4 labelled responses are of the smaller of two samples",
    }
    told = [note.removeprefix("human labels: ") for note in notes[1:]]
    assert {reason for reason in reasons for note in told if note.startswith(reason)} == reasons
    assert len(told) == len(reasons)


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
        label(row.set_id, row.variant, row.epoch - 1, model="m", epoch=row.epoch, unit="set")
        for row in rows
        if row.variant in CORE_VARIANTS
    ]
    result = corrections(tmp_path, labels, run_with(rows, SETS))
    corrected = value_of(result["m", "triplet_safety"])
    assert corrected.value == pytest.approx((60 * 0.5 + 60) / 120)
    assert corrected.n == corrected.sets == 120  # not the 180 triplets of its epochs


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (label("s000", "benign", 0, dataset="f" * 64), "is for dataset ffffffff"),
        (label("nowhere", "benign", 0), "set nowhere, benign, of/sets.: the report has no such"),
        (label("s000", "dual_use_paraphrase_7", 0), "the report has no such response"),
        (label("s000", "benign", 0, epoch=2), "epoch 2.: the report has no such response"),
        (label("s000", "benign", 0, model="other"), "the report is of none of them"),
    ],
)
def test_labels_of_unknown_responses_are_refused(
    wrong: Label, message: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=message):
        corrections(tmp_path, [wrong])


def test_labels_of_a_model_that_is_not_in_the_report(tmp_path: Path) -> None:
    cohort = gather_models([a_run(MODELS[0])])
    _, notes = correct(read(tmp_path, EVERYTHING), cohort, {})
    assert "240 labelled responses are of models that are not in this report" in notes[1]


def test_labels_of_another_text_are_refused(tmp_path: Path) -> None:
    cohort = gather_models([a_run(MODELS[0])])
    texts = {"run": Texts(lambda model, set_id, variant: f"{model} on {set_id}, {variant}")}
    own_labels = text_hash(f"{MODELS[0]} on s000, benign")
    correct(read(tmp_path, [label("s000", "benign", 0, response_sha256=own_labels)]), cohort, texts)
    stray_label = label("s000", "malicious", 0, response_sha256=own_labels)
    with pytest.raises(InputError, match=r"malicious, of/sets\): .* is another text"):
        correct(read(tmp_path, [stray_label]), cohort, texts)


def test_shares_are_in_per_cent_and_the_judge_s_part_is_said(tmp_path: Path) -> None:
    # of 60 sets that the judge calls safe, people call 45 safe: a judge that never varies is no help
    rows = [
        grade_line("m", item.id, variant, "30")
        for item in SETS.prompt_sets
        for variant in CORE_VARIANTS
    ]
    labels = [
        label(item.id, variant, int(n % 4 == 0), model="m", unit="set")
        for n, item in enumerate(SETS.prompt_sets[:60])
        for variant in CORE_VARIANTS
    ]
    cohort = gather_models([run_with(rows, SETS, judge="some/judge")])
    result, _ = correct(read(tmp_path, labels), cohort, {})
    table = correction_table(result, cohort)
    names = [column.name for column in table.columns]
    shown = {
        name: [
            format_cell(table.columns[names.index(name)].style, row[names.index(name)])
            for row in table.rows
        ]
        for name in ("raw", "corrected", "power", "basis")
    }
    triplets, utility = (list(cells) for cells in zip(*shown.values(), strict=True))
    assert triplets[0].startswith("100 % [") and triplets[1].startswith("75 % [")
    assert utility[0].startswith("0.67 [") and utility[1].startswith("0.50 [")
    assert triplets[2:] == ["0.00", "60 prompt-sets, by 1 person; labels only"]
    assert any("λ = 0" in note for note in table.notes)


def test_corrected_stands_beside_raw(tmp_path: Path) -> None:
    cohort = gather_models([a_run()])
    result, _ = correct(read(tmp_path, EVERYTHING), cohort, {})
    table = correction_table(result, cohort)
    lines = {(row["model"], row["metric"]): row for row in table.records()}
    assert len(lines) == 6
    raw = cohort.estimates.by_metric["triplet_safety"]
    for place, model in enumerate(MODELS):
        assert lines[model, "Triplet Safety"]["raw"] == pytest.approx(raw[place].value)
    assert lines["of/sets", "Triplet Safety"]["basis"] == "60 prompt-sets, by 2 people"
    assert str(lines["of/none", "Mean Utility"]["basis"]).startswith("needs 30 labelled responses")
    models = msgspec.to_builtins(make_corrected_metrics(result))["models"]
    entry = models["of/sets"]["triplet_safety"]
    assert (entry["labels"], entry["units"], entry["annotators"]) == (60, "prompt-sets", 2)
    assert entry["ci"][0] <= entry["value"] <= entry["ci"][1]
    refused = models["of/none"]["mean_utility"]
    assert (refused["value"], refused["ci"]) == (None, None) and refused["refused"]
    tables = [*make_all_tables(cohort), table]
    options = PageOptions(
        include_unsafe=False, notices=collect_notices(Results(cohort=cohort, corrected=True))
    )
    page = render_page(cohort, tables, [], {}, options).content.decode()
    assert "Quote the numbers under “Corrected by human labels”" in page
    described = "Human labels corrected Triplet Safety (60 labelled prompt-sets) and Mean Utility ("
    assert described in page
    assert described in summary(cohort, None, tmp_path, table).replace("\\", "")
    assert "labels" not in describe_measurement(cohort)
