"""`metrics.json`, reports over several runs, and the verdict of `--fail-under`."""

from __future__ import annotations

import csv
import shutil
from pathlib import Path
from typing import Any

import pytest

from endtoend import REPO, grades, metrics, osi, values
from opensafeintent import (
    EvaluateSettings,
    FunctionModel,
    GradeSettings,
    ReportSettings,
    RunOutcome,
    evaluate,
    grade,
    write_report,
)
from opensafeintent.errors import InputError
from opensafeintent.promptsets import Dataset
from samples import dataset_file, import_lines, lines_of, made_dataset, prompt_set

FRAUD, CYBER, PRIVACY = "Fraud and Deception", "Cyber Compromise", "Privacy and Data Misuse"
PLAN, EXPLAIN = "Planning and Procedure", "Explanation"
DATASET = made_dataset(
    prompt_set("f1", 1, FRAUD, PLAN),
    prompt_set("f2", 1, FRAUD, EXPLAIN),
    prompt_set("c1", 1, CYBER, EXPLAIN),
)


def graded_lines(dataset: Dataset, grades: dict[str, str], **fields: Any) -> list[dict[str, Any]]:
    """Make a line for each pair (helpfulness, harm severity) that a set's variants have in order;
    `--` makes none.
    """
    pairs = [pair for item in dataset.prompt_sets for pair in grades[item.id].split()]
    return [
        line | {"helpfulness": int(pair[0]), "harm_severity": int(pair[1])}
        for line, pair in zip(lines_of(dataset, **fields), pairs, strict=True)
        if pair != "--"
    ]


GRADES = {"f1": "40 30 10 30", "f2": "40 41 10 20", "c1": "40 43 21 --"}
"""Triplet safety 1, 0, 0; mean safety 1, 2/3, 1/3."""
BEST = dict.fromkeys(GRADES, "40 40 40 40")
NUMBERS = ("metrics.json", "grades.csv.gz")


def make_run(
    folder: Path, model: str = "m", dataset: Dataset = DATASET, grades: dict[str, str] = GRADES
) -> Path:
    import_lines(folder, graded_lines(dataset, grades), dataset, model)
    return folder / "run"


def report_of(*runs: Path, **settings: Any) -> RunOutcome:
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


def numbers(run: Path) -> list[bytes]:
    return [(run / name).read_bytes() for name in NUMBERS]


def value(entry: dict[str, Any]) -> tuple[Any, int]:
    """Return a metric's value, near enough, and its n."""
    return pytest.approx(entry["value"]), entry["n"]


@pytest.mark.slow
def test_same_input_gives_the_same_bytes(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = numbers(run)
    report_of(run, max_missing=1.0)
    assert numbers(run) == before
    report_of(run, out=tmp_path / "elsewhere")
    assert numbers(tmp_path / "elsewhere") == before
    monkeypatch.setattr("time.time", lambda: 2_000_000_000.0)
    assert numbers(make_run(tmp_path / "there")) == before


@pytest.mark.slow
def test_an_evaluated_run_is_rebuilt_byte_for_byte(tmp_path: Path) -> None:
    run, models = tmp_path / "run", ("baseline/keyword-filter", "baseline/comply-all")
    settings = {"limit": 12, "epochs": 2, "modes": "core"}
    evaluate(EvaluateSettings(models=models, judges="baseline/judge", out=run, **settings))
    before = numbers(run)
    for name in NUMBERS:
        (run / name).unlink()
    report_of(run)
    assert numbers(run) == before
    assert metrics(run)["models"].keys() == set(models)


def test_domain_macro_is_the_mean_over_domains_that_have_a_value(run: Path) -> None:
    macro = metrics(run)["strata"]["domain_macro"]["m"]
    # Fraud 5/6 over two sets, Cyber 1/3 over one: the macro average weighs them alike, the plain
    # one (2/3) does not.
    assert value(macro["mean_safety"]) == ((5 / 6 + 1 / 3) / 2, 2)
    assert macro["mean_safety"]["ci"] is None  # too few sets in a domain
    # A drop is defined in Fraud alone (f1: 1 − 2/3).
    assert value(macro["benign_to_dual_use_drop"]) == (1 / 3, 1)
    assert (macro["benign_over_refusal"]["value"], macro["benign_over_refusal"]["n"]) == (None, 0)


def test_domain_macro_has_an_interval_from_ten_sets_in_each_domain(tmp_path: Path) -> None:
    sets = [(f"{domain[0].lower()}{n}", domain) for domain in (FRAUD, CYBER) for n in range(10)]
    dataset = made_dataset(*(prompt_set(name, 0, domain, PLAN) for name, domain in sets))
    run = make_run(tmp_path, dataset=dataset, grades={name: "40 30 10" for name, _ in sets})
    macro = metrics(run)["strata"]["domain_macro"]["m"]["mean_safety"]
    assert (macro["value"], macro["n"], macro["ci"][1]) == (1.0, 2, 1.0)


# Several runs
# ------------------------------------------------------------------------------


def test_a_name_in_two_runs_of_one_dataset_gets_theirs(tmp_path: Path) -> None:
    report_of(
        make_run(tmp_path / "a"), make_run(tmp_path / "b", grades=BEST), out=tmp_path / "report"
    )
    models = metrics(tmp_path / "report")["models"]
    safety = sorted(entry["triplet_safety"]["value"] for entry in models.values())
    assert safety == pytest.approx([1 / 3, 1.0])


# --fail-under
# ------------------------------------------------------------------------------


@pytest.mark.slow
def test_too_many_missing_grades_do_not_hide_a_verdict(tmp_path: Path) -> None:
    lines = graded_lines(DATASET, GRADES, response="")
    for line in lines[:3]:  # f1's triplet is cut off before its first word
        del line["helpfulness"], line["harm_severity"]
        line["stop_reason"] = "length"
    import_lines(tmp_path, lines, DATASET)
    assert grade(GradeSettings(run=tmp_path / "run", judges="baseline/judge")).exit_code == 1
    outcome = report_of(tmp_path / "run", fail_under="triplet_safety=0.9")
    assert outcome.exit_code == 5
    assert any(said.code == "missing_beyond" for said in outcome.notices)


@pytest.mark.slow
def test_baselines_do_not_fail_a_release(tmp_path: Path) -> None:
    run, dataset = tmp_path / "run", dataset_file(tmp_path, DATASET)
    models = {"models": "baseline/refuse-all", "judges": "baseline/judge"}
    evaluate(EvaluateSettings(**models, dataset=dataset, out=run))
    report_of(run, fail_under="mean_utility=0.5")
    assert [item["model"] for item in metrics(run)["gates"]["results"]] == ["baseline/refuse-all"]
    judged = {"judges": "baseline/judge", "dataset": dataset, "out": run}
    other = FunctionModel(lambda _: "Here you are.", name="m", version="1")
    evaluate(EvaluateSettings(models=(other,), **judged))
    report_of(run, fail_under="mean_utility=0.5")
    assert "baseline/refuse-all" not in [item["model"] for item in metrics(run)["gates"]["results"]]


def test_a_label_takes_no_model_out_of_the_gates(run: Path) -> None:
    with pytest.raises(InputError, match="a name of a baseline is for baselines"):
        report_of(run, label=("m=baseline/x",))


def test_a_copy_tells_what_the_judges_were_asked(tmp_path: Path) -> None:
    run, copy = tmp_path / "run", tmp_path / "copy"
    rubrics = tmp_path / "rubrics"
    rubrics.mkdir()
    ours = REPO / "src" / "opensafeintent" / "templates"
    edited = (ours / "harm.md").read_text().replace('id = "osi-harm"', 'id = "lab-harm"')
    (rubrics / "harm.md").write_text(f"{edited}\n```\n# Not a heading \u202e\n")
    judge = ("--judge", "baseline/judge", "--judge-arg", "max_tokens=77")
    evaluate = ("evaluate", "baseline/redirect", *judge)
    assert osi(*evaluate, "--rubrics", rubrics, "--limit", 2, "--out", run).code == 0
    ran = osi("report", run, "--out", copy)
    assert ran.code == 0 and "figures/, judges.md, metrics.json" in ran.text
    page = " ".join((copy / "report.html").read_text().split())
    assert "<code>judges.md</code> has what the judges were asked" in page
    text = (copy / "judges.md").read_text()
    for source in (ours / "helpfulness.md", ours / "mode.md", ours / "reask.md"):
        assert all(f"    {line}\n" in text for line in source.read_text().splitlines())
    assert '"max\\_tokens":77' in text
    assert "lab-harm" in text and "Responses: graded by baseline/judge" in text
    # what is quoted stays in its block, and shows what cannot be seen
    assert "    # Not a heading \\u202e\n" in text
    assert str(tmp_path) not in text
    assert not {"run.json", "ledger.sqlite"} & {path.name for path in copy.iterdir()}
    imported = make_run(tmp_path / "imported")
    assert osi("report", imported, "--out", tmp_path / "other").code == 0
    assert not (tmp_path / "other" / "judges.md").exists()
    assert "judges.md" not in (tmp_path / "other" / "report.html").read_text()


# Names of models
# ------------------------------------------------------------------------------


def test_grades_and_tables_name_a_model_alike(tmp_path: Path) -> None:
    """Under a label, and where two runs have a name in common."""
    first_run, second_run = make_run(tmp_path / "a"), make_run(tmp_path / "b", grades=BEST)
    make_run(tmp_path / "b", "lab/n")
    report_of(first_run, second_run, out=tmp_path / "both", label=("lab/n=Ours, 2",))
    with (tmp_path / "both" / "tables" / "metrics.csv").open(newline="") as file:
        in_tables = {row["model"] for row in csv.DictReader(file)} - {"model average"}
    assert "Ours, 2" in in_tables and len(in_tables) == 3
    assert values(grades(tmp_path / "both"), "model") == in_tables
    assert metrics(tmp_path / "both")["models"].keys() == in_tables
