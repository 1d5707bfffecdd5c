"""Each prompt-set k times of N, from the command line: tables, `metrics.json`, gates, `trace`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from endtoend import metrics, osi
from opensafeintent import ReportSettings, TraceSettings, fragile_sets, write_report
from opensafeintent.commands.graded_runs import read_graded_run
from opensafeintent.evaluation.manifest import RunFolder
from opensafeintent.numbers.cohort import gather_models
from opensafeintent.report.figures import make_figure
from opensafeintent.statistics.intervals import exact_share_interval
from samples import import_lines, lines_of, made_dataset, prompt_set

FRAUD = "Fraud and Deception"
SETS = 40
DATASET = made_dataset(
    *(prompt_set(f"s{at:02}", domain=FRAUD if at < 5 else "Cyber Compromise") for at in range(SETS))
)


def repeated(outcomes: list[str]) -> list[dict[str, Any]]:
    """Make responses: for each set and epoch, `+` is safe, `d` has an unsafe response to the
    dual-use prompt and `m` to the malicious one.
    """
    lines = []
    for epoch in range(len(outcomes[0])):
        fails = {f"s{at:02}": outcome[epoch] for at, outcome in enumerate(outcomes)}
        for line in lines_of(DATASET, helpfulness=4, epoch=epoch + 1):
            unsafe = {"d": "dual_use", "m": "malicious"}.get(fails[line["id"]])
            line["harm_severity"] = int(line["variant"] == unsafe)
            lines.append(line)
    return lines


OUTCOMES = [*["++d"] * 3, *["+dm"] * 2, *["+++"] * 33, *["ddd"] * 2]
"""Safe at least once, twice and three times: 38, 36 and 33 of 40 sets."""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("repeats")
    import_lines(folder, repeated(OUTCOMES), DATASET)
    return folder / "run"


def report(run: Path, **settings: Any) -> dict[str, Any]:
    write_report(ReportSettings(runs=(run,), max_missing=1.0, **settings))
    return metrics(run)


def test_the_page_and_the_files_have_the_curve(run: Path) -> None:
    found = report(run)["repeats"]["m"]
    assert found["repeats"] == 3
    for metric in ("safe_at_least_k", "success_at_least_k"):
        assert [item["value"] for item in found[metric]] == [38 / 40, 36 / 40, 33 / 40]
    # of 120 repeats 38 + 36 + 33 = 107 are safe; k = N is the metric without a k
    assert (
        found["safe_at_least_k"][-1]["ci"] == metrics(run)["models"]["m"]["safe_at_least_k"]["ci"]
    )
    assert (found["fragile"]["sets"], found["fragile"]["fragile"]) == (40, 5)
    alike = 107 * 106 * 105 + 13 * 12 * 11
    assert found["fragile"]["expected"] == pytest.approx(
        40 * (1 - alike / (120 * 119 * 118)), abs=1e-6
    )
    lines = (run / "tables/repeats.csv").read_text().splitlines()
    assert [line.split(",")[3:6] for line in lines[1:]] == [
        ["1", "3", "0.95"],
        ["2", "3", "0.9"],
        ["3", "3", "0.825"],
    ]
    assert "Each set, k times of N" in (run / "report.html").read_text()
    assert (run / "figures/fig_repeats.svg").exists()


def test_the_figure_draws_the_curve(run: Path) -> None:
    cohort = gather_models([read_graded_run(RunFolder(run), "run")])
    (panel,) = make_figure(cohort, "fig_repeats").spec["vconcat"][0]["hconcat"]
    drawn = [(row["series"], row["k"], row["value"]) for row in panel["data"]["values"]]
    values = list(enumerate((38 / 40, 36 / 40, 33 / 40), start=1))
    assert drawn == [(name, *value) for name in ("safe", "success") for value in values]


def test_one_response_a_prompt_has_no_curve(tmp_path: Path) -> None:
    import_lines(tmp_path, repeated(["+"] * SETS), DATASET)
    assert "repeats" not in report(tmp_path / "run")
    assert not (tmp_path / "run/tables/repeats.csv").exists()
    assert "k times of N" not in (tmp_path / "run/report.html").read_text()


@pytest.mark.parametrize(
    ("options", "code", "k", "share"),
    [
        ("--fail-under safe_at_least_k=0.75 --k 2", 0, 2, 36 / 40),
        ("--fail-under safe_at_least_k=0.75", 5, 3, 33 / 40),
        ("--fail-under success_at_least_k=0.97 --k 3", 4, 3, 33 / 40),
        ("--fail-under safe_at_least_k=0.75 --fail-under mean_utility=0.2 --k 1", 0, 1, 38 / 40),
    ],
)
def test_a_gate_on_k_epochs(options: str, code: int, k: int, share: float, run: Path) -> None:
    """Each set is 0 or 1 whatever the number of epochs, so the interval is the exact one."""
    done = osi("report", run, *options.split())
    assert done.code == code
    result = metrics(run)["gates"]["results"][0]
    assert (result["k"], result["value"]) == (k, share)
    assert result["ci_method"] == "clopper-pearson"
    low, high = exact_share_interval(round(share * SETS), SETS)
    assert result["ci"] == pytest.approx([low, high], abs=1e-6)
    assert f"(k = {k})" in result["gate"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--fail-under triplet_safety=0.8 --k 2", "--k 2: no gate counts epochs"),
        ("--k 2", "--k 2: no gate counts epochs"),
        ("--fail-under safe_at_least_k=0.8 --k 4", "--k 4: m has 3 epochs; expected at most 3"),
        ("--fail-under safe_at_least_k=0.8 --k 0", "--k"),
    ],
)
def test_a_k_that_says_nothing_is_refused(options: str, message: str, run: Path) -> None:
    assert message in osi("report", run, *options.split()).refusal


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--fail-under safe_at_least_k=0.8 --epochs 3 --k 4", "the plan has 3 epochs"),
        ("--fail-under triplet_safety=0.8 --epochs 3 --k 2", "no gate counts epochs"),
        ("--difference 0.1 --k 2", "--k: is for gates; leave it out"),
    ],
)
def test_a_plan_refuses_it_before_the_first_call(options: str, message: str) -> None:
    assert message in osi("sample-size", *options.split()).refusal


def test_a_plan_of_k_epochs_needs_as_many_sets_as_of_one() -> None:
    plan = osi(
        "sample-size", *["--fail-under", "safe_at_least_k=0.95", "--epochs", "5", "--k", "4"]
    )
    assert plan.code == 5  # 42 sets; a share of one epoch needs 72 too
    assert "72" in plan.out
    assert "--fail-under safe_at_least_k=0.95 --k 4" in plan.out


def test_versions_with_unlike_epochs_are_not_compared(run: Path, tmp_path: Path) -> None:
    import_lines(tmp_path, repeated([outcome[:2] for outcome in OUTCOMES]), DATASET)
    gate = ("--baseline", tmp_path / "run", "--fail-if-worse", "safe_at_least_k=0.2")
    assert "k of more epochs is another metric" in osi("report", run, *gate).refusal
    assert osi("report", run, *gate[:2], "--fail-if-worse", "triplet_safety=0.3").code == 0


def test_a_change_is_of_the_same_k(run: Path, tmp_path: Path) -> None:
    worse = ["+dd" if outcome == "+++" else outcome for outcome in OUTCOMES]
    import_lines(tmp_path, repeated(worse), DATASET)
    gate = ("--baseline", run, "--fail-if-worse", "safe_at_least_k=0.3", "--k")
    assert osi("report", tmp_path / "run", *gate, "1").code == 0
    assert osi("report", tmp_path / "run", *gate, "2").code == 4
    assert metrics(tmp_path / "run")["gates"]["results"][0]["value"] == pytest.approx(-33 / 40)


# trace --fragile
# ------------------------------------------------------------------------------


def test_fragile_sets_are_listed(run: Path) -> None:
    listed = osi("trace", run, "--fragile").out
    assert "5 fragile prompt-sets" in listed
    lines = [line.split() for line in listed.splitlines() if line.startswith("s0")]
    assert [line[0] for line in lines] == ["s03", "s04", "s00", "s01", "s02"]
    assert "1 of 3" in listed
    assert "dual-use 1, malicious 1" in listed
    (found, *_) = fragile_sets(TraceSettings(run=run, domain=FRAUD))
    assert (found.set_id, found.safe, found.of, found.unsafe) == ("s03", 1, 3, (0, 1, 1))
    assert fragile_sets(TraceSettings(run=run, domain="Hate and Harassment")) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--worst 3", "no other choice than --domain and --model"),
        ("--rejected", "no other choice than --domain and --model"),
        ("--model x", "not a model of the run"),
    ],
)
def test_fragile_goes_with_few_choices(options: str, message: str, run: Path) -> None:
    assert message in osi("trace", run, "--fragile", *options.split()).err


def test_one_response_a_prompt_is_never_fragile(tmp_path: Path) -> None:
    import_lines(tmp_path, repeated(["+"] * SETS), DATASET)
    assert (
        "expected a run with --epochs 2 or more"
        in osi("trace", tmp_path / "run", "--fragile").refusal
    )
