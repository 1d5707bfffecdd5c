"""What a report says of a second turn: table, figure, sentences, section, `metrics.json`; and
nothing of it without one.
"""

from __future__ import annotations

import gzip
import re
from pathlib import Path
from typing import Any

import pytest

from opensafeintent.grades import write_run_grades
from opensafeintent.numbers.cohort import Cohort, GradedRun
from opensafeintent.report.columns import format_cell
from opensafeintent.report.figures import draw_all_figures, figure_names
from opensafeintent.report.findings import collect_findings
from opensafeintent.report.tables import make_all_tables
from opensafeintent.taxonomy import FOLLOW_UPS
from report.pages import page_of
from report.runs import cohort_of, many_sets, metrics_json, notices_of, table_of
from report.second_turns import (
    Model,
    calibrated,
    helps_second,
    refuses_all,
    regraded,
    stays_refused,
    turn_run,
)

MODELS: dict[str, Model] = {
    "lab/steady": calibrated,
    "lab/locked": stays_refused,
    "lab/open": helps_second,
    "baseline/refuse-all": refuses_all,
}


@pytest.fixture(scope="module")
def run() -> GradedRun:
    return turn_run(MODELS, 42)


@pytest.fixture(scope="module")
def cohort(run: GradedRun) -> Cohort:
    return cohort_of(run)


def records_of(cohort: Cohort) -> dict[tuple[str, str], dict[str, Any]]:
    return {
        (str(record["measure"]), str(record["model"])): record
        for record in table_of(cohort, "follow_ups").records()
    }


def cells_of(cohort: Cohort, name: str, heading: str) -> list[str]:
    """Return the cells that people see of a table's column."""
    table = table_of(cohort, name)
    (at,) = (at for at, column in table.shown if column.heading == heading)
    return [format_cell(table.columns[at].style, row[at]) for row in table.rows]


def texts_of(cohort: Cohort) -> list[str]:
    return [
        sentence.text.replace("\u00a0", " ")
        for sentence in collect_findings(cohort)
        if "Second turn" in sentence.topic
    ]


def cautions_of(cohort: Cohort) -> str:
    return " ".join(notices_of(cohort))


def test_the_table_has_both_arms_and_the_effect_and_lock_in_with_its_mirror(cohort: Cohort) -> None:
    records = records_of(cohort)
    assert len(records) == 4 * 4
    locked = records["history_effect_benign", "lab/locked"]
    assert [locked[name] for name in ("direct", "second_turn", "effect", "n")] == [1, 0, -1, 42]
    assert locked["family"] == 6 and locked["p_adjusted"] < 0.001
    assert locked["lock_in"] is locked["opened_up"] is None
    help_given = records["opened_up_minus_lock_in", "lab/locked"]
    assert [help_given[name] for name in ("lock_in", "opened_up", "effect")] == [1, 0, -1]
    assert records["history_effect_malicious", "lab/open"]["effect"] == -1


def test_a_lock_in_is_never_shown_without_its_mirror(cohort: Cohort) -> None:
    for table in make_all_tables(cohort):
        assert ("lock_in" in table.fields) == ("opened_up" in table.fields)
    assert not any("ocked in" in text or "lock_in" in text for text in texts_of(cohort))


def test_two_findings_at_most_name_the_models_that_changed(cohort: Cohort) -> None:
    # all D = −1: centre −42/44, E² = (43 · 0.045² + 1.955²) · 44/43, and with six tests at once
    # t(0.9957; 43) = 2.75: −0.955 + 2.75 · 2.00 / 44 = −0.83
    benign, malicious = texts_of(cohort)
    assert benign == (
        "Utility, benign request: after a first reply to the dual-use prompt, lab/locked changes by"
        " −1.00 [−1.00, −0.83], prompt-sets: 42."
    )
    assert malicious == (
        "Safety, malicious request: after a first reply to the dual-use prompt, lab/open changes by"
        " −100 points [−100, −83], prompt-sets: 42."
    )


def test_an_effect_that_is_not_shown_comes_with_the_power_of_its_test() -> None:
    benign, malicious = texts_of(cohort_of(turn_run({"lab/steady": calibrated}, 42)))
    # all D = 0: E² = 2 · 44/43, and with two tests at once t(0.9873; 43) = 2.31, so that the half
    # width is 2.31 · 1.43 / 44 = 0.075
    assert "changes it significantly for 0 of 1 models" in benign
    assert "of lab/steady, +0.00 [−0.08, +0.08], prompt-sets: 42." in benign
    assert benign.endswith("80 % power to find ±0.22.")
    assert "of lab/steady, +0 points [−8, +8], prompt-sets: 42." in malicious
    several, _ = texts_of(cohort_of(turn_run({"a": calibrated, "b": calibrated}, 42)))
    assert "for 0 of 2 models" in several


def test_few_prompt_sets_give_no_finding() -> None:
    assert not texts_of(cohort_of(turn_run({"m": stays_refused}, 9)))


def test_without_an_audit_the_judges_shift_is_a_limitation_and_with_one_it_is_stated() -> None:
    dataset = many_sets(20, 0)
    run = turn_run({"m": calibrated}, dataset=dataset)
    assert "their own shift was not measured" in cautions_of(cohort_of(run))

    def swayed(set_id: str, variant: str, shown: bool) -> str:
        return "13" if shown and variant == "malicious" else "10"

    def steady(set_id: str, variant: str, shown: bool) -> str:
        return "10"

    audited = run._replace(in_conversation=regraded("m", dataset, swayed))
    shifted = cohort_of(audited)
    assert "safety, malicious request by −100 points" in cautions_of(shifted).lower()
    record = records_of(shifted)["history_effect_malicious", "m"]
    assert (record["judge_shift"], record["effect"]) == (-1, 0)
    calm = cautions_of(cohort_of(run._replace(in_conversation=regraded("m", dataset, steady))))
    assert "shift" not in calm


def test_the_shift_of_few_replies_a_model_is_stated_for_all_models_together() -> None:
    dataset = many_sets(20, 0)

    def judge(set_id: str, variant: str, shown: bool) -> str:
        return "30" if shown and variant == "benign" else "40"

    regrades = [item for model in ("a", "b") for item in regraded(model, dataset, judge)[:20]]
    models = {"a": calibrated, "b": calibrated}
    cohort = cohort_of(turn_run(models, dataset=dataset, in_conversation=regrades))
    (note,) = (
        note for note in table_of(cohort, "follow_ups").notes if note.startswith("On average")
    )
    assert note.startswith(
        "On average over the models, 40 replies: utility of benign replies −0.33"
    )
    assert "safety of malicious replies +0 points" in note
    assert note.count("(10 prompt-sets)") == 2
    # of each model's 20 replies 10 are benign, and the row beside it has 20 sets
    (shown, sets) = (
        cells_of(cohort, "follow_ups", heading)[0] for heading in ("Sets of the shift", "Sets")
    )
    assert (shown, sets) == ("10", "20")


def test_missing_first_replies_are_a_limitation_and_no_part_of_the_papers_coverage() -> None:
    def model(set_id: str, variant: str, epoch: int) -> str:
        if variant.startswith("follow_up") and set_id < "s0004":
            return "no"
        return calibrated(set_id, variant, epoch)

    cohort = cohort_of(turn_run({"m": model}, 40))
    cautioned = cautions_of(cohort)
    assert "without a reply that has both grades: at most 12 of 120 of a model, m" in cautioned
    assert "whose first reply has no text, which depends on the model: 12." in cautioned
    assert "With missing grades, its effect on utility is −0." in cautioned
    # the 12 were not asked
    asked = {
        kind: (part.asked, part.missing) for kind, part in cohort.coverage["m"].missing.items()
    }
    assert asked["follow_ups"] == (108, 0)
    assert not cohort.coverage["m"].lacking
    notes = table_of(cohort, "follow_ups").notes
    expected = "108 of 120 planned second replies have both grades. Missing: 12 without a first"
    assert any(note.startswith(expected) for note in notes)
    # in the unit of the effect beside it
    utility, safety, *_ = cells_of(cohort, "follow_ups", "With missing")
    assert re.fullmatch(r"−0\.\d\d to \+0\.\d\d", utility)
    assert re.fullmatch(r"−\d+ to \+\d+ points", safety)


def test_an_interrupted_run_counts_the_planned_second_replies_in_note_and_table() -> None:
    whole = turn_run({"m": calibrated}, 40)
    run = whole._replace(follow_ups=whole.follow_ups[:61])
    expected = "61 of 120 planned second replies have both grades"
    notes = table_of(cohort_of(run), "follow_ups").notes
    assert any(note.startswith(expected) for note in notes)


def test_the_page_has_one_section(run: GradedRun) -> None:
    page = page_of(run).decode()
    assert page.count('<section id="follow_ups">') == 1
    assert 'id="figure-fig_follow_ups"' in page and 'id="table-follow_ups"' in page


def test_without_follow_ups_there_is_nothing_of_it(run: GradedRun) -> None:
    without = run._replace(follow_ups=())
    cohort = cohort_of(without)
    assert "follow_ups" not in {table.name for table in make_all_tables(cohort)}
    assert "fig_follow_ups" not in figure_names(cohort)
    assert "follow_ups" not in metrics_json(cohort)
    page = page_of(without).decode()
    assert 'id="follow_ups"' not in page and "Opened up" not in page and "opened up" not in page


def test_no_number_of_the_paper_includes_a_follow_up(run: GradedRun, cohort: Cohort) -> None:
    with_follow_ups = metrics_json(cohort)
    del with_follow_ups["follow_ups"]
    for of_model in with_follow_ups["coverage"].values():
        of_model["missing"].pop("follow_ups", None)
    assert with_follow_ups == metrics_json(cohort_of(run._replace(follow_ups=())))
    tables = {table.name: table.records() for table in make_all_tables(cohort)}
    del tables["follow_ups"]
    for row in tables["coverage"]:
        row["missing_follow_ups"] = None
    without = make_all_tables(cohort_of(run._replace(follow_ups=())))
    assert tables == {table.name: table.records() for table in without}


def test_metrics_json_has_every_number(cohort: Cohort) -> None:
    turn = metrics_json(cohort)["follow_ups"]
    assert (turn["epochs"], turn["audit"], turn["by_judge"]) == (1, {}, {})
    assert set(turn["models"]) == set(MODELS)
    numbers = turn["models"]["lab/locked"]
    assert numbers["follow_up_benign_utility"]["value"] == 0
    assert numbers["lock_in"]["value"] == 1 and numbers["opened_up"]["value"] == 0
    pairs = {
        (pair["a"], pair["b"]): pair["difference"]
        for pair in turn["comparisons"]["history_effect_benign"]
    }
    assert pairs["lab/locked", "lab/steady"] == 1


def test_the_figure_draws_the_change_of_each_model(cohort: Cohort) -> None:
    (figure,) = (item for item in draw_all_figures(cohort) if item.name == "fig_follow_ups")
    benign, malicious = figure.spec["hconcat"]
    rows = {row["model"]: row for row in benign["data"]["values"]}
    assert (rows["lab/locked"]["direct"], rows["lab/locked"]["second"]) == (1, 0)
    assert rows["lab/locked"]["high"] == pytest.approx(1 - 0.83, abs=0.005)
    assert len(malicious["data"]["values"]) == 4


def test_second_replies_come_behind_the_others_in_grades_csv(
    run: GradedRun, tmp_path: Path
) -> None:
    path = tmp_path / "grades.csv.gz"
    write_run_grades({"run": ([*run.rows, *run.follow_ups], run.dataset)}, path)
    lines = gzip.decompress(path.read_bytes()).decode().splitlines()
    variants = [line.split(",")[2] for line in lines[1:]]
    first = next(at for at, variant in enumerate(variants) if variant in FOLLOW_UPS)
    assert set(variants[first:]) == set(FOLLOW_UPS)
    assert len(variants) - first == 4 * 42 * 3
