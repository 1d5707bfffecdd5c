"""`compare`: the table of pairs is what the library computes, and only what may be compared is."""

from __future__ import annotations

import csv
import random
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import binom, binomtest

from endtoend import Ran, osi
from opensafeintent import CompareSettings, ImportSettings, compare, import_files
from opensafeintent.analysis.estimates import COMPARED
from opensafeintent.promptsets import Dataset
from opensafeintent.statistics import Comparison, Resamples, compare_models, rank_intervals
from samples import dataset_file, json_lines, made_dataset, prompt_set

pytestmark = pytest.mark.usefixtures("undrawn")

SETS = made_dataset(*(prompt_set(f"s{n:02}", 1) for n in range(40)))
FEWER = made_dataset(*(prompt_set(f"t{n:02}") for n in range(4)), name="fewer")
CORE = ("benign", "dual_use", "malicious")

Given = dict[tuple[str, str], tuple[int, int]]
"""(Helpfulness, harm severity) by (set, variant)."""


def given(seed: int, unsafe: float, dataset: Dataset = SETS, missing: float = 0.05) -> Given:
    chance = random.Random(seed)
    return {
        (item.id, variant): (
            chance.randint(1, 4),
            chance.randint(1, 3) if chance.random() < unsafe else 0,
        )
        for item in dataset.prompt_sets
        for variant in item.wordings()
        if chance.random() >= missing
    }


def run_of(folder: Path, models: dict[str, Given], dataset: Dataset = SETS) -> Path:
    """Make a run, or add to it; the files' names are the models'."""
    folder.mkdir(parents=True, exist_ok=True)
    files = tuple(
        json_lines(
            folder / f"{model}.jsonl",
            (
                {"id": set_id, "variant": variant, "helpfulness": pair[0], "harm_severity": pair[1]}
                for (set_id, variant), pair in grades.items()
            ),
        )
        for model, grades in models.items()
    )
    import_files(
        ImportSettings(
            files=files, out=folder / "run", dataset=dataset_file(folder, dataset), max_missing=1.0
        )
    )
    return folder / "run"


def pairs_in(folder: Path) -> list[dict[str, str]]:
    with (folder / "comparisons.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def compared(*runs: Path, out: Path) -> list[dict[str, str]]:
    ran = osi("compare", *runs, "--out", out)
    assert ran.code == 0, ran.err
    return pairs_in(out)


def names_in(rows: list[dict[str, str]]) -> set[str]:
    return {row[side] for row in rows for side in ("model_a", "model_b")}


MODELS = {"worst": given(1, 0.5), "middle": given(2, 0.25), "best": given(3, 0.02)}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_of(tmp_path_factory.mktemp("made"), MODELS)


@pytest.fixture(scope="module")
def shown(run: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Ran, Path]:
    """What `compare` prints, and the folder that it writes to."""
    out = tmp_path_factory.mktemp("out") / "pairs"
    return osi("compare", run, "--out", out), out


# The numbers
# ------------------------------------------------------------------------------


def per_set(metric: str, grades: Given) -> NDArray[np.float64]:
    """Compute a metric set by set from the lines alone; NaN where a core response has no grades."""
    values = []
    for item in SETS.prompt_sets:
        triplet = [grades.get((item.id, variant)) for variant in CORE]
        if None in triplet:
            values.append(np.nan)
            continue
        safe = [harm == 0 for _, harm in triplet]  # type: ignore[misc]
        utility = [(helpfulness - 1) / 3 * (harm == 0) for helpfulness, harm in triplet]  # type: ignore[misc]
        values.append(float(all(safe)) if metric == "triplet_safety" else sum(utility) / 3)
    return np.array(values)


def from_the_library(metric: str) -> Comparison:
    values = np.array([per_set(metric, grades) for grades in MODELS.values()])
    there = ~np.isnan(values)
    ratios = {metric: (np.where(there, values, 0.0), there.astype(float))}
    return compare_models(ratios, Resamples(len(SETS)), binary=("triplet_safety",))[metric]


@pytest.mark.parametrize("metric", ["triplet_safety", "mean_utility"])
def test_differences_intervals_and_p_are_the_librarys(metric: str, shown: tuple[Ran, Path]) -> None:
    expected, names = from_the_library(metric), list(MODELS)
    every = pairs_in(shown[1])
    assert len(every) == 3 * len(COMPARED)
    rows = [row for row in every if row["metric"] == metric]
    assert [(row["model_a"], row["model_b"]) for row in rows] == [
        ("best", "middle"),
        ("best", "worst"),
        ("middle", "worst"),
    ]
    for row in rows:
        a, b = names.index(row["model_a"]), names.index(row["model_b"])
        assert int(row["n"]) == expected.n[a, b] < len(SETS)
        fields = {
            "difference": expected.difference,
            "difference_low": expected.low,
            "difference_high": expected.high,
            "p": expected.p,
            "p_adjusted": expected.p_adjusted,
            "detectable": expected.detectable,
        }
        found = {name: float(row[name]) for name in fields}
        assert found == pytest.approx(
            {name: float(array[a, b]) for name, array in fields.items()}, abs=2e-6
        )


def test_triplet_safety_by_mcnemar_by_hand(shown: tuple[Ran, Path]) -> None:
    rows = [row for row in pairs_in(shown[1]) if row["metric"] == "triplet_safety"]
    for row in rows:
        first, second = (
            per_set("triplet_safety", MODELS[row[side]]) for side in ("model_a", "model_b")
        )
        both = ~np.isnan(first) & ~np.isnan(second)
        better, worse = int((first > second)[both].sum()), int((first < second)[both].sum())
        assert float(row["difference"]) == pytest.approx((worse - better) / both.sum(), abs=1e-6)
        exact, equally = (
            binomtest(better, better + worse).pvalue,
            binom.pmf(better, better + worse, 0.5),
        )
        assert float(row["p"]) == pytest.approx(exact - equally, abs=1e-6)
        assert float(row["p_adjusted"]) >= float(row["p"])


def test_the_screen_tells_the_same(shown: tuple[Ran, Path]) -> None:
    ran, out = shown
    for row in pairs_in(out):
        if row["metric"] not in ("triplet_safety", "mean_utility"):
            continue
        after = ran.out.split(f"{row['metric']}: ")[1].splitlines()
        models = [row["model_a"], row["model_b"]]
        line = next(line for line in after if line.split()[:2] == models)
        value, low, high = (
            f"{float(row[f'difference{end}']):+.2f}".replace("-", "−")
            for end in ("", "_low", "_high")
        )
        assert f"{value} [{low}, {high}]" in line
        p = float(row["p_adjusted"])
        assert (f"{p:.3f}" if p >= 0.001 else "<0.001") in line.split()
    lines = ran.out.split("triplet_safety: ")[1].split("Rank")[1].splitlines()
    for name, rank in zip(MODELS, rank_intervals(from_the_library("triplet_safety")), strict=True):
        assert rank is not None
        line = next(line.split() for line in lines if line.split()[:1] == [name])
        assert line[2:] == ["–".join(map(str, dict.fromkeys(rank)))]


# Where they go
# ------------------------------------------------------------------------------


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_the_table_is_written_in_every_format_where_out_says_and_nowhere_else(
    run: Path, shown: tuple[Ran, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran, out = shown
    assert contents(out).keys() == {f"comparisons.{ending}" for ending in ("csv", "md", "tex")}
    assert str(out / "comparisons.csv") in ran.out
    # a run that is named twice is one run, and gives the same bytes
    assert osi("compare", run, run, "--out", tmp_path / "again").code == 0
    assert contents(tmp_path / "again") == contents(out)
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    before = contents(run)
    assert osi("compare", run).code == 0
    assert contents(run) == before
    assert contents(here) == {}


# What may be compared
# ------------------------------------------------------------------------------


def refused(*arguments: object) -> str:
    ran = osi("compare", *arguments)
    assert ran.code == 2
    assert ran.out == ""
    (line,) = ran.errors
    return line


def test_two_runs_on_one_dataset(tmp_path: Path) -> None:
    first = run_of(tmp_path / "a", {"first": MODELS["worst"]})
    second = run_of(tmp_path / "b", {"second": MODELS["best"]})
    both = run_of(tmp_path / "c", {"first": MODELS["worst"], "second": MODELS["best"]})
    apart = compared(first, second, out=tmp_path / "apart")
    assert apart == compared(both, out=tmp_path / "together")
    assert names_in(apart) == {"first", "second"}


def test_sets_that_newly_fail_and_newly_pass_between_two_runs(tmp_path: Path) -> None:
    old, new = (run_of(tmp_path / name, {"m": MODELS[name]}) for name in ("middle", "worst"))
    outcome = compare(CompareSettings(runs=(old, new), out=tmp_path / "out"))

    def safe(grades: Given) -> dict[str, bool]:
        harms = {
            item.id: [grades.get((item.id, variant), (0, -1))[1] for variant in CORE]
            for item in SETS.prompt_sets
        }
        return {name: max(three) == 0 for name, three in harms.items() if min(three) >= 0}

    before, after = safe(MODELS["middle"]), safe(MODELS["worst"])
    both = before.keys() & after.keys()
    (found,) = outcome.transitions
    assert found.n == len(both)
    assert (
        {one.set_id for one in found.newly_failing}
        == {name for name in both if before[name] and not after[name]}
        != set()
    )
    assert {one.set_id for one in found.newly_passing} == {
        name for name in both if after[name] and not before[name]
    }
    with (tmp_path / "out" / "transitions.csv").open(newline="", encoding="utf-8") as file:
        assert len(list(csv.DictReader(file))) == len(found.newly_failing) + len(
            found.newly_passing
        )


def test_a_difference_is_the_later_runs_value_minus_the_earlier_ones(tmp_path: Path) -> None:
    best = run_of(tmp_path / "a", {"m": MODELS["best"]})
    worst = run_of(tmp_path / "b", {"k": MODELS["worst"]})
    forth = compared(best, worst, out=tmp_path / "1")
    back = compared(worst, best, out=tmp_path / "2")
    assert {(row["model_a"], row["model_b"]) for row in forth} == {("m", "k")}
    assert {(row["model_a"], row["model_b"]) for row in back} == {("k", "m")}
    for one, other in zip(forth, back, strict=True):
        assert (one["metric"], one["p"], one["n"]) == (other["metric"], other["p"], other["n"])
        assert float(one["difference"]) == -float(other["difference"])
        assert float(one["difference_low"]) == -float(other["difference_high"])
        if one["metric"] in ("triplet_safety", "mean_utility"):
            assert float(one["difference"]) < 0, "the worse one was named last"


def test_one_model_exits_with_2(tmp_path: Path) -> None:
    run = run_of(tmp_path, {"alone": MODELS["best"]})
    assert "nothing to compare" in refused(run, run, "--out", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_models_on_different_datasets_are_not_compared(tmp_path: Path) -> None:
    here = run_of(tmp_path / "a", {"m": MODELS["best"]})
    there = run_of(tmp_path / "b", {"n": given(5, 0.3, FEWER)}, FEWER)
    assert "dataset" in refused(here, there)
    run_of(tmp_path / "a", {"k": MODELS["worst"]})
    ran = osi("compare", here, there, "--out", tmp_path / "out")
    assert names_in(pairs_in(tmp_path / "out")) == {"m", "k"}
    assert "made: 40 prompt-sets" in ran.out
    # the two primary metrics of the one group that has a pair
    assert ran.out.count("second minus first") == 2


def test_models_without_a_set_in_common_have_no_numbers(tmp_path: Path) -> None:
    half = [
        {place: pair for place, pair in MODELS["best"].items() if (place[0] < "s20") is early}
        for early in (True, False)
    ]
    run = run_of(tmp_path, {"early": half[0], "late": half[1]})
    ran = osi("compare", run, "--out", tmp_path / "out")
    assert ran.code == 0
    assert "nan" not in ran.out.lower()
    assert pairs_in(tmp_path / "out") == []


def test_hostile_names_are_never_raw_on_the_terminal(tmp_path: Path) -> None:
    names = {"]0;owned\u200b": MODELS["best"], "\u202e[bold]b": MODELS["worst"]}
    ran = osi("compare", run_of(tmp_path, names))
    assert ran.code == 0
    assert not {"\u200b", "\u202e"} & set(ran.out)
    assert "[bold]b" in ran.out


def test_what_is_no_run_is_refused(tmp_path: Path, run: Path) -> None:
    assert "no run here" in refused(run, tmp_path / "nowhere")
