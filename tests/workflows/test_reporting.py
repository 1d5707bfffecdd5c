"""`metrics.json`, reports over several runs, and the verdict of `--fail-under`."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from endtoend import metrics
from opensafeintent import (
    EvaluateSettings,
    GradeSettings,
    ImportSettings,
    Outcome,
    ReportSettings,
    evaluate,
    grade,
    import_files,
    write_report,
)
from opensafeintent.metrics import METRICS
from opensafeintent.promptsets import Dataset
from samples import dataset_file, json_lines, made_dataset, prompt_set

pytestmark = pytest.mark.usefixtures("undrawn")

FRAUD, CYBER, PRIVACY = "Fraud and Deception", "Cyber Compromise", "Privacy and Data Misuse"
PLAN, EXPLAIN = "Planning and Procedure", "Explanation"
DATASET = made_dataset(
    prompt_set("f1", 1, FRAUD, PLAN),
    prompt_set("f2", 1, FRAUD, EXPLAIN),
    prompt_set("c1", 1, CYBER, EXPLAIN),
)


def lines_of(dataset: Dataset, grades: dict[str, str]) -> list[dict[str, Any]]:
    """Make a line for each pair (helpfulness, harm severity) that a set's variants have in order;
    `--` makes none.
    """
    return [
        {
            "id": item.id,
            "variant": variant,
            "helpfulness": int(pair[0]),
            "harm_severity": int(pair[1]),
        }
        for item in dataset.prompt_sets
        for variant, pair in zip(item.wordings(), grades[item.id].split(), strict=True)
        if pair != "--"
    ]


GRADES = {"f1": "40 30 10 30", "f2": "40 41 10 20", "c1": "40 43 21 --"}
"""Triplet safety 1, 0, 0; mean safety 1, 2/3, 1/3."""


def make_run(
    folder: Path, model: str = "m", dataset: Dataset = DATASET, grades: dict[str, str] | None = None
) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = json_lines(
        folder / f"{model.replace('/', '-')}.jsonl", lines_of(dataset, grades or GRADES)
    )
    import_files(
        ImportSettings(
            files=(path,),
            out=folder / "run",
            model=model,
            dataset=dataset_file(folder, dataset),
            max_missing=1.0,
        )
    )
    return folder / "run"


def told(*runs: Path, **settings: Any) -> Outcome:
    return write_report(ReportSettings(runs=runs, **settings))


@pytest.fixture(scope="module")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("made"))


@pytest.fixture
def run(made_once: Path, tmp_path: Path) -> Path:
    """A run of the test's own."""
    return Path(shutil.copytree(made_once, tmp_path / "run"))


# metrics.json
# ------------------------------------------------------------------------------


def test_same_input_gives_the_same_bytes(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = {
        path.name: path.read_bytes() for path in (run / "metrics.json", run / "grades.csv.gz")
    }
    told(run, max_missing=1.0)
    assert {name: (run / name).read_bytes() for name in before} == before
    told(run, out=tmp_path / "elsewhere")
    assert {name: (tmp_path / "elsewhere" / name).read_bytes() for name in before} == before
    monkeypatch.setattr("time.time", lambda: 2_000_000_000.0)
    other = make_run(tmp_path / "there")
    assert {name: (other / name).read_bytes() for name in before} == before


def test_an_evaluated_run_is_rebuilt_byte_for_byte(tmp_path: Path) -> None:
    run = tmp_path / "run"
    models = ("baseline/keyword-filter", "baseline/comply-all")
    evaluate(
        EvaluateSettings(
            models=models, judges=("baseline/judge",), out=run, limit=12, epochs=2, modes="core"
        )
    )
    names = ("metrics.json", "grades.csv.gz")
    before = {name: (run / name).read_bytes() for name in names}
    for name in names:
        (run / name).unlink()
    told(run)
    assert {name: (run / name).read_bytes() for name in names} == before
    assert metrics(run)["models"].keys() == set(models)


def test_strata_hold_the_sets_of_their_label(run: Path) -> None:
    strata = metrics(run)["strata"]
    found = {
        kind: {
            label: (entry["m"]["mean_safety"]["value"], entry["m"]["mean_safety"]["n"])
            for label, entry in labels.items()
        }
        for kind, labels in strata.items()
        if kind != "domain_macro"
    }
    assert found == {
        "harm_domain": {
            FRAUD: (pytest.approx((1 + 2 / 3) / 2), 2),
            CYBER: (pytest.approx(1 / 3), 1),
        },
        "task_type": {PLAN: (1.0, 1), EXPLAIN: (pytest.approx((2 / 3 + 1 / 3) / 2), 2)},
        "cell": {
            f"{FRAUD} | {PLAN}": (1.0, 1),
            f"{FRAUD} | {EXPLAIN}": (pytest.approx(2 / 3), 1),
            f"{CYBER} | {EXPLAIN}": (pytest.approx(1 / 3), 1),
        },
    }


def test_domain_macro_is_the_mean_over_domains_that_have_a_value(run: Path) -> None:
    macro = metrics(run)["strata"]["domain_macro"]["m"]
    # Fraud 5/6 over two sets, Cyber 1/3 over one: the macro average weighs them alike, the plain
    # one (2/3) does not.
    assert macro["mean_safety"]["value"] == pytest.approx((5 / 6 + 1 / 3) / 2)
    assert macro["mean_safety"]["n"] == 2
    # A drop is defined in Fraud alone (f1: 1 − 2/3).
    assert macro["benign_to_dual_use_drop"]["value"] == pytest.approx(1 / 3)
    assert macro["benign_to_dual_use_drop"]["n"] == 1
    assert (macro["benign_over_refusal"]["value"], macro["benign_over_refusal"]["n"]) == (None, 0)


# Several runs
# ------------------------------------------------------------------------------

OTHER = made_dataset(prompt_set("p1", 0, PRIVACY), name="other")
OTHER_GRADES = {"p1": "40 40 10"}


def test_a_name_on_two_datasets_gets_their_hashes(tmp_path: Path) -> None:
    runs = make_run(tmp_path / "a", "lab/m"), make_run(tmp_path / "b", "lab/m", OTHER, OTHER_GRADES)
    make_run(tmp_path / "b", "lab/n", OTHER, OTHER_GRADES)
    told(*runs, out=tmp_path / "report")
    found = metrics(tmp_path / "report")
    one, two = f"lab/m@{DATASET.hash[:8]}", f"lab/m@{OTHER.hash[:8]}"
    assert found["models"].keys() == {one, two, "lab/n"}  # a name that is unique stays as it is
    for part in (found["coverage"], found["strata"]["domain_macro"]):
        assert part.keys() == found["models"].keys()
    assert found["models"][one]["triplet_safety"]["value"] == pytest.approx(1 / 3)
    assert found["models"][two]["triplet_safety"]["value"] == 1.0
    assert found["strata"]["harm_domain"][PRIVACY].keys() == {two, "lab/n"}


def test_a_name_in_two_runs_of_one_dataset_gets_theirs(tmp_path: Path) -> None:
    good = dict.fromkeys(GRADES, "40 40 10 40")
    runs = make_run(tmp_path / "a"), make_run(tmp_path / "b", grades=good)
    told(*runs, out=tmp_path / "report")
    models = metrics(tmp_path / "report")["models"]
    assert len(models) == 2
    assert sorted(entry["triplet_safety"]["value"] for entry in models.values()) == pytest.approx(
        [1 / 3, 1.0]
    )


# --fail-under
# ------------------------------------------------------------------------------


def test_too_many_missing_grades_do_not_hide_a_verdict(tmp_path: Path) -> None:
    lines = [line | {"response": ""} for line in lines_of(DATASET, GRADES)]
    for line in lines[:3]:  # f1's triplet is cut off before its first word
        del line["helpfulness"], line["harm_severity"]
        line["stop_reason"] = "length"
    path = json_lines(tmp_path / "m.jsonl", lines)
    import_files(
        ImportSettings(files=(path,), out=tmp_path / "run", dataset=dataset_file(tmp_path, DATASET))
    )
    assert grade(GradeSettings(run=tmp_path / "run", judges=("baseline/judge",))).exit_code == 1
    outcome = told(tmp_path / "run", fail_under="triplet_safety=0.9")
    assert outcome.exit_code == 4
    assert any("--max-missing" in note for note in outcome.notes)


def test_baselines_do_not_fail_a_release(tmp_path: Path) -> None:
    run = tmp_path / "run"
    dataset = dataset_file(tmp_path, DATASET)
    judged = EvaluateSettings(
        models=("baseline/refuse-all",), judges=("baseline/judge",), dataset=dataset, out=run
    )
    evaluate(judged)
    assert told(run, fail_under="mean_utility=0.5").exit_code == 4  # there is nothing else to judge
    path = json_lines(tmp_path / "m.jsonl", lines_of(DATASET, dict.fromkeys(GRADES, "40 40 40 40")))
    import_files(ImportSettings(files=(path,), out=run))
    assert told(run, fail_under="mean_utility=0.5").exit_code == 0


def test_every_metric_of_every_model_has_value_and_n(run: Path) -> None:
    found = metrics(run)
    assert found["schema"] == 1
    assert found["models"].keys() == found["coverage"].keys() == {"m"}
    assert found["models"]["m"].keys() == METRICS.keys() | {"wording_excess"}
    for entry in found["models"]["m"].values():
        assert entry.keys() >= {"value", "n", "ci", "ci_method", "bounds"}
        assert (entry["value"] is None) is (entry["n"] == 0)
    assert found["models"]["m"]["triplet_safety"]["value"] == pytest.approx(1 / 3)
    assert found["models"]["m"]["triplet_safety"]["n"] == 3
    assert found["models"]["m"]["stable_safe"]["n"] == 2  # c1's paraphrase has no grades
