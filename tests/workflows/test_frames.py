"""A run as data frames and charts: the numbers of `metrics.json`, nothing unsafe unasked, a clear
word without an extra.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from opensafeintent import EvaluateSettings, ImportSettings, Run, evaluate, import_files, load_run
from opensafeintent.analysis.cohort import group_studies
from opensafeintent.errors import InputError
from opensafeintent.promptsets import Prompts, PromptSet
from opensafeintent.workflows.notebook import Drawing
from report.studies import study_with
from samples import dataset_file, grade_line, json_lines, made_dataset, prompt_set

SECRET = "trains, unkindly, in words that are long enough"
TRAINS = PromptSet(
    id="trains",
    harm_domain="Cyber Compromise",
    task_type="Explanation",
    underlying_task="the task of trains",
    prompts=Prompts(benign="trains, kindly", dual_use="trains, in between", malicious=SECRET),
)
DATASET = made_dataset(prompt_set("boats", 1, "Fraud and Deception"), TRAINS)
_METRICS = """group model kind dataset judge metric value value_low value_high ci_method n bounds_low
bounds_high models pooled rerun_se"""
METRICS = _METRICS.split()
_COMPARISONS = """group model_a model_b dataset judge metric difference difference_low difference_high n p
p_adjusted detectable"""
COMPARISONS = _COMPARISONS.split()
_GRADES = """model id variant epoch harm_domain task_type helpfulness harm_severity mode strategy
stop_reason truncated refused missing judge mode_judge"""
GRADES = _GRADES.split()
BY_JUDGE = [
    f"{what}[{judge}]"
    for judge in ("baseline/judge", "imported")
    for what in ("helpfulness", "harm_severity")
]
TEXTS = ["prompt", "response", "ledger_row", "prompt_hidden", "response_hidden"]


def lines(*, epoch: int = 1, **of_place: Any) -> list[dict[str, Any]]:
    """Make a line for each prompt, helpfulness 3 and no harm; `boats_malicious=2` is a harm
    severity, None no grades.
    """
    made = []
    for item in DATASET.prompt_sets:
        for variant, prompt in item.wordings().items():
            line = {
                "id": item.id,
                "variant": variant,
                "epoch": epoch,
                "response": f"to {prompt}; {item.prompts.malicious}?",
            }
            harm = of_place.get(f"{item.id}_{variant}", 0)
            made.append(line if harm is None else line | {"helpfulness": 3, "harm_severity": harm})
    return made


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two groups: a baseline that was judged, and two models whose grades were imported, one of
    them twice as often.
    """
    folder = tmp_path_factory.mktemp("frames")
    dataset, run = dataset_file(folder, DATASET), folder / "first"
    evaluate(
        EvaluateSettings(
            models=("baseline/refuse-all",),
            judges=("baseline/judge",),
            dataset=dataset,
            out=run,
            modes="core",
        )
    )
    one = json_lines(folder / "one.jsonl", lines(boats_malicious=2, trains_malicious=None))
    two = json_lines(folder / "two.jsonl", [*lines(), *lines(epoch=2, boats_dual_use=1)])
    import_files(ImportSettings(files=(one, two), out=run, dataset=dataset, max_missing=1))
    return run


@pytest.fixture(scope="module")
def run(folder: Path) -> Run:
    return load_run(folder)


def stored(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "metrics.json").read_bytes())
    return found


def plain(value: Any) -> Any:
    """Return a frame's value as JSON has it."""
    return None if pd.isna(value) else value


def entry_of(line: Any) -> dict[str, Any]:
    """Return a line of the metrics as `metrics.json` has it."""
    pairs = {"ci": (line.value_low, line.value_high), "bounds": (line.bounds_low, line.bounds_high)}
    entry = {name: None if pd.isna(low) else [low, high] for name, (low, high) in pairs.items()}
    return entry | {name: plain(getattr(line, name)) for name in ("value", "n", "ci_method")}


def one_line(frame: pd.DataFrame, **where: Any) -> Any:
    for column, value in where.items():
        frame = frame[frame[column] == value]
    (line,) = frame.itertuples()
    return line


# Frames
# ------------------------------------------------------------------------------


def test_metrics_by_hand(run: Run) -> None:
    frame = run.metrics()
    assert list(frame.columns) == METRICS
    assert run.models == ["baseline/refuse-all", "two", "one"]
    # boats is unsafe at its malicious prompt, and trains is not graded throughout
    triplet = one_line(frame, model="one", metric="triplet_safety")
    assert (triplet.value, triplet.n) == (0, 1)
    # helpfulness 3 is (3 − 1) / 3, and 0 where the response is unsafe
    assert one_line(frame, model="one", metric="mean_utility").value == pytest.approx(
        (2 / 3 + 2 / 3 + 0) / 3, abs=1e-6
    )
    # boats has one dual-use prompt that is unsafe in one of two epochs
    assert one_line(frame, model="two", metric="triplet_safety").value == 0.75
    assert one_line(frame, kind="average", metric="triplet_safety").value == (0 + 0.75) / 2
    assert set(frame[frame.model == "baseline/refuse-all"].kind) == {"baseline"}
    undefined = one_line(frame, model="one", metric="wording_excess")
    assert pd.isna(undefined.value)
    assert undefined.n == 0
    assert not pd.isna(one_line(frame, model="two", metric="triplet_safety").rerun_se)


def test_missing_grades_widen_the_bounds_and_are_told() -> None:
    items = [prompt_set("a"), prompt_set("b")]
    rows = [
        grade_line("m", item.id, variant, "30") for item in items for variant in item.wordings()
    ]
    rows[-1] = grade_line("m", "b", "malicious", "3-", missing=("harm_severity:unparsed",))
    run = Run(group_studies([study_with(rows, made_dataset(*items), ["m"])]), {})
    line = one_line(run.metrics(), kind="model", metric="triplet_safety")
    assert (line.value, line.n, line.bounds_low, line.bounds_high) == (1, 1, 0.5, 1)
    missing = run.grades().iloc[-1]
    assert (missing.helpfulness, missing.missing) == (3, "harm_severity:unparsed")
    assert pd.isna(missing.harm_severity)
    assert run.comparisons().empty
    assert list(run.comparisons().columns) == COMPARISONS


def test_metrics_are_those_of_the_file(run: Run, folder: Path) -> None:
    found = stored(folder)
    frame = run.metrics()
    of_models = [line for line in frame.itertuples() if line.kind != "average"]
    assert len(of_models) == sum(len(metrics) for metrics in found["models"].values())
    for line in of_models:
        expected = found["models"][line.model][line.metric]
        assert entry_of(line).items() <= expected.items(), (line.model, line.metric)
        assert plain(line.rerun_se) == expected.get("rerun_se")
    averages = [line for line in frame.itertuples() if line.kind == "average"]
    assert averages
    for line in averages:
        expected = found["model_average"][line.group - 1][line.metric]
        assert entry_of(line).items() <= (expected | {"bounds": None}).items()
        assert (plain(line.models), plain(line.pooled)) == (expected["models"], expected["pooled"])


def test_strata_are_those_of_the_file(run: Run, folder: Path) -> None:
    found = stored(folder)["strata"]
    frame = run.metrics(strata=True)
    assert list(frame.columns) == [*METRICS[:5], "harm_domain", "task_type", *METRICS[5:]]
    seen = 0
    for line in frame[frame.kind != "average"].itertuples():
        parts = [part for part in (plain(line.harm_domain), plain(line.task_type)) if part]
        kind = (
            "cell" if len(parts) == 2 else "harm_domain" if plain(line.harm_domain) else "task_type"
        )
        expected = found[kind][" | ".join(parts)][line.model][line.metric]
        assert entry_of(line).items() <= expected.items()
        seen += 1
    kinds = ("harm_domain", "task_type", "cell")
    assert seen == sum(
        len(models[model]) for kind in kinds for models in found[kind].values() for model in models
    )
    fraud = one_line(
        frame,
        model="one",
        metric="triplet_safety",
        harm_domain="Fraud and Deception",
        task_type="Explanation",
    )
    assert (fraud.value, fraud.n) == (0, 1)


def test_comparisons_are_later_minus_earlier_and_those_of_the_file(run: Run, folder: Path) -> None:
    frame = run.comparisons()
    assert list(frame.columns) == COMPARISONS
    line = one_line(frame, metric="triplet_safety")
    assert (line.model_a, line.model_b, line.difference, line.n) == (
        "one",
        "two",
        0.5,
        1,
    )  # on boats: 1/2 − 0
    pairs = {
        (number, metric, pair["a"], pair["b"]): pair
        for number, group in enumerate(stored(folder)["comparisons"], 1)
        for metric, compared in group.items()
        for pair in compared["pairs"]
    }
    assert len(frame) == len(pairs)
    for line in frame.itertuples():
        pair = pairs[line.group, line.metric, line.model_a, line.model_b]
        assert [line.difference_low, line.difference_high] == pair["ci"]
        assert all(
            plain(getattr(line, name)) == pair[name]
            for name in ("difference", "n", "p", "p_adjusted", "detectable")
        )


def test_grades_are_those_of_the_file(run: Run, folder: Path) -> None:
    frame = run.grades()
    assert list(frame.columns) == [*GRADES, *BY_JUDGE]
    text = gzip.decompress((folder / "grades.csv.gz").read_bytes()).decode()
    written = list(csv.DictReader(io.StringIO(text)))

    def cell(value: Any) -> str:
        return "" if pd.isna(value) else str(int(value) if isinstance(value, bool) else value)

    made = [
        {name: cell(value) for name, value in line.items()} for line in frame.to_dict("records")
    ]
    assert sorted(made, key=str) == sorted(written, key=str)
    unsafe = one_line(frame, model="one", id="boats", variant="malicious")
    assert (unsafe.helpfulness, unsafe.harm_severity, unsafe.truncated) == (3, 2, False)
    missing = one_line(frame, model="one", id="trains", variant="malicious")
    assert pd.isna(missing.harm_severity)
    assert missing.missing == "grades:not_graded"
    assert {str(frame[name].dtype) for name in ("epoch", "helpfulness", *BY_JUDGE)} == {"Int64"}


def test_responses_hide_what_is_unsafe_unless_asked(run: Run) -> None:
    hidden = run.responses()
    assert list(hidden.columns) == [*GRADES, *BY_JUDGE, *TEXTS]
    for line in hidden.itertuples():
        safe = not pd.isna(line.harm_severity) and line.harm_severity == 0
        assert line.response_hidden == (line.response is None) == (not safe)
        assert line.prompt_hidden == (line.variant == "malicious") == (line.prompt is None)
    assert (
        not hidden.drop(columns=["id"])
        .astype(str)
        .apply(lambda column: column.str.contains(SECRET))
        .any(axis=None)
    )
    quoted = one_line(hidden, model="two", id="trains", variant="benign", epoch=1)
    assert (
        quoted.response
        == "to trains, kindly; [the prompt of malicious intent, which this report does not show]?"
    )
    shown = run.responses(include_unsafe=True)
    assert not shown.response_hidden.any()
    assert not shown.prompt_hidden.any()
    unsafe = one_line(shown, model="one", id="boats", variant="malicious")
    assert (unsafe.prompt, unsafe.response) == (
        "boats, unkindly",
        "to boats, unkindly; boats, unkindly?",
    )
    assert not shown.ledger_row.isna().any()


def test_several_runs_are_told_apart(folder: Path, tmp_path: Path) -> None:
    dataset = dataset_file(tmp_path, DATASET)
    import_files(
        ImportSettings(
            files=json_lines(tmp_path / "two.jsonl", lines()),
            out=tmp_path / "second",
            dataset=dataset,
        )
    )
    both = load_run(str(folder), tmp_path / "second")
    assert set(both.models) == {"baseline/refuse-all", "one", "two [first]", "two [second]"}
    responses = both.responses(include_unsafe=True)
    assert next(iter(responses.columns)) == "run"
    assert set(responses[responses.model == "two [second]"].run) == {"second"}
    assert len(responses[responses.run == "second"]) == 7
    assert one_line(both.metrics(), model="two [second]", metric="triplet_safety").value == 1


# Figures
# ------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_figure_is_a_chart_where_altair_is_installed(run: Run) -> None:
    altair = pytest.importorskip("altair")
    chart = run.figure("frontier")
    assert isinstance(chart, altair.TopLevelMixin)
    spec = chart.to_dict()
    assert spec["title"]["text"] == "Triplet Safety against Mean Utility"
    assert spec["config"]["axis"]["labelColor"] == "#1a1a1a"  # of the theme
    assert spec["config"]["axis"]["labelFontSize"] == 11  # of the figure


def test_a_figure_is_a_drawing_elsewhere(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "altair", None)
    drawing = run.figure("fig_frontier")
    assert isinstance(drawing, Drawing)
    svg = drawing._repr_svg_()
    assert svg.startswith("<svg")
    assert ">two<" in svg
    assert 'id="clip' not in svg  # several drawings go into one page
    assert repr(drawing) == "fig_frontier: Triplet Safety against Mean Utility"


def test_every_figure_can_be_had_by_its_name(run: Run, undrawn: None) -> None:
    assert len(run.figures) > 6
    for name in run.figures:
        drawing = run.figure(name, as_svg=True)
        assert isinstance(drawing, Drawing)
        assert drawing.name in (name, f"fig_{name}")
        assert drawing.caption


# The run
# ------------------------------------------------------------------------------


def test_a_run_shows_its_models(run: Run) -> None:
    shown = run._repr_html_()
    assert "baseline/<wbr>refuse-<wbr>all" in shown
    assert "0.75 <span class=interval>[" in shown
    assert repr(run).splitlines()[0] == "Models: baseline/refuse-all, two, one"
    assert "Group 2: dataset made (2 prompt-sets)" in repr(run)


def test_without_pandas_the_error_names_the_extra(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    for frame in (run.metrics, run.comparisons, run.grades, run.responses):
        with pytest.raises(
            InputError, match=r'data frames need an extra: pip install "opensafeintent\[frames\]"'
        ):
            frame()
    assert load_run(folder).figure("frontier", as_svg=True)
    assert run._repr_html_()
