"""A run as data frames and charts: the numbers of `metrics.json`, nothing unsafe unasked, a clear
word without an extra.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from msgspec.structs import replace

from endtoend import REPO, grades, metrics
from opensafeintent import Run, load_run
from opensafeintent.commands.notebooks import Drawing
from opensafeintent.errors import InputError
from opensafeintent.quoting import WITHHELD_WORDS
from opensafeintent.taxonomy import SCALES
from samples import import_lines, lines_of, made_dataset, prompt_set, without_drawing

pytestmark = pytest.mark.drawn

SECRET = "trains, unkindly, in words that are long enough"
TRAINS = replace(
    prompt_set("trains"), prompts=replace(prompt_set("trains").prompts, malicious=SECRET)
)
DATASET = made_dataset(prompt_set("boats", 1, "Fraud and Deception"), TRAINS)


def graded_lines(epoch: int = 1, **of_place: int | None) -> list[dict[str, Any]]:
    """Make a line for each prompt, helpfulness 3 and no harm; `boats_malicious=2` is a harm
    severity, None no grades.
    """
    lines = lines_of(DATASET, epoch=epoch)
    for line in lines:
        line["response"] += f"; {DATASET.by_id[line['id']].prompts.malicious}?"
        harm = of_place.get(f"{line['id']}_{line['variant']}", 0)
        if harm is not None:
            line |= {"helpfulness": 3, "harm_severity": harm}
    return lines


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two models whose grades were imported, one of them twice as often."""
    folder = tmp_path_factory.mktemp("frames")
    import_lines(folder, graded_lines(boats_malicious=2, trains_malicious=None), DATASET, "one")
    two_epochs = [*graded_lines(), *graded_lines(epoch=2, boats_dual_use=1)]
    import_lines(folder, two_epochs, DATASET, "two")
    return folder / "run"


@pytest.fixture(scope="module")
def run(folder: Path) -> Run:
    return load_run(folder)


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


def test_metrics_are_those_of_the_file(run: Run, folder: Path) -> None:
    content = metrics(folder)
    frame = run.metrics()
    of_models = [line for line in frame.itertuples() if line.kind != "average"]
    assert len(of_models) == sum(len(entries) for entries in content["models"].values())
    for line in of_models:
        expected = content["models"][line.model][line.metric]
        assert entry_of(line).items() <= expected.items(), (line.model, line.metric)
        assert plain(line.rerun_se) == expected.get("rerun_se")
    averages = [line for line in frame.itertuples() if line.kind == "average"]
    assert averages
    for line in averages:
        expected = content["model_average"][line.metric]
        assert entry_of(line).items() <= (expected | {"bounds": None}).items()
        assert (plain(line.models), plain(line.pooled)) == (expected["models"], expected["pooled"])


def test_strata_are_those_of_the_file(run: Run, folder: Path) -> None:
    strata = metrics(folder)["strata"]
    frame = run.metrics(strata=True)
    kinds = Counter[str]()
    for line in frame[frame.kind != "average"].itertuples():
        labels = {name: plain(getattr(line, name)) for name in ("harm_domain", "task_type")}
        named_labels = {name: label for name, label in labels.items() if label}
        kind = "cell" if len(named_labels) == 2 else next(iter(named_labels))
        expected = strata[kind][" | ".join(named_labels.values())][line.model][line.metric]
        assert entry_of(line).items() <= expected.items()
        kinds[kind] += 1
    for kind in ("harm_domain", "task_type", "cell"):
        models = [entries for part in strata[kind].values() for entries in part.values()]
        assert kinds[kind] == sum(map(len, models))
    cell = {"harm_domain": "Fraud and Deception", "task_type": "Explanation"}
    fraud = one_line(frame, model="one", metric="triplet_safety", **cell)
    assert (fraud.value, fraud.n) == (0, 1)


def test_comparisons_are_later_minus_earlier_and_those_of_the_file(run: Run, folder: Path) -> None:
    frame = run.comparisons()
    line = one_line(frame, metric="triplet_safety")
    # on boats: 1/2 − 0
    assert (line.model_a, line.model_b, line.difference, line.n) == ("one", "two", 0.5, 1)
    pairs = {
        (metric, pair["a"], pair["b"]): pair
        for metric, compared in metrics(folder)["comparisons"].items()
        for pair in compared["pairs"]
    }
    assert len(frame) == len(pairs)
    for line in frame.itertuples():
        pair = pairs[line.metric, line.model_a, line.model_b]
        assert [line.difference_low, line.difference_high] == pair["ci"]
        assert all(
            plain(getattr(line, name)) == pair[name]
            for name in ("difference", "n", "p_adjusted", "minimum_detectable_difference")
        )


def test_grades_are_those_of_the_file(run: Run, folder: Path) -> None:
    frame = run.grades()

    def cell(value: Any) -> str:
        return "" if pd.isna(value) else str(int(value) if isinstance(value, bool) else value)

    frame_rows = [
        {name: cell(value) for name, value in line.items()} for line in frame.to_dict("records")
    ]
    assert sorted(frame_rows, key=str) == sorted(grades(folder), key=str)
    unsafe = one_line(frame, model="one", id="boats", variant="malicious")
    assert (unsafe.helpfulness, unsafe.harm_severity, unsafe.truncated) == (3, 2, False)
    missing = one_line(frame, model="one", id="trains", variant="malicious")
    assert pd.isna(missing.harm_severity) and missing.missing == "grades:not_graded"
    assert {str(frame[name].dtype) for name in ("epoch", "helpfulness")} == {"Int64"}


def test_responses_hide_what_is_unsafe_unless_asked(run: Run) -> None:
    hidden = run.responses()
    for line in hidden.itertuples():
        safe = not pd.isna(line.harm_severity) and line.harm_severity == 0
        assert line.response_hidden == (line.response is None) == (not safe)
        assert line.prompt_hidden == (line.variant == "malicious") == (line.prompt is None)
    assert SECRET not in hidden.drop(columns=["id"]).to_csv()
    quoted = one_line(hidden, model="two", id="trains", variant="benign", epoch=1)
    assert quoted.response == f"to trains, kindly; {WITHHELD_WORDS}?" and quoted.quotes_hidden
    shown = run.responses(include_unsafe=True)
    assert (
        not shown.quotes_hidden.any()
        and not shown.response_hidden.any()
        and not shown.prompt_hidden.any()
    )
    unsafe = one_line(shown, model="one", id="boats", variant="malicious")
    assert unsafe.prompt == "boats, unkindly"
    assert unsafe.response == "to boats, unkindly; boats, unkindly?"
    assert not shown.ledger_row.isna().any()


def test_several_runs_are_told_apart(folder: Path, tmp_path: Path) -> None:
    import_lines(tmp_path, graded_lines(), DATASET, "two")
    second = (tmp_path / "run").rename(tmp_path / "second")
    both_runs = load_run(str(folder), second)
    assert set(both_runs.models) == {"one", "two [run]", "two [second]"}
    responses = both_runs.responses(include_unsafe=True)
    assert next(iter(responses.columns)) == "run"
    assert set(responses[responses.model == "two [second]"].run) == {"second"}
    assert len(responses[responses.run == "second"]) == 7
    assert one_line(both_runs.metrics(), model="two [second]", metric="triplet_safety").value == 1


TEXTS = {
    *("run", "model", "model_a", "model_b", "kind", "dataset", "judge", "metric", "ci_method"),
    *("id", "variant", "harm_domain", "task_type", "mode", "strategy", "mode_judge", "guard"),
    *("stop_reason", "refused", "missing", "prompt", "response"),
}
"""Columns of texts: every other one is of numbers, or of true and false."""


def frames_of(run: Run) -> dict[str, pd.DataFrame]:
    """Return every frame of a run by its name."""
    return {
        "metrics": run.metrics(),
        "strata": run.metrics(strata=True),
        "comparisons": run.comparisons(),
        "grades": run.grades(),
        "responses": run.responses(),
    }


@pytest.fixture(scope="module")
def with_missing(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Three models: `one` lacks the harm of one response, the others lack nothing."""
    folder = tmp_path_factory.mktemp("missing")
    half = graded_lines()
    del half[0]["harm_severity"]
    half[0]["missing"] = ["harm_severity:unparsed"]
    import_lines(folder, half, DATASET, "one", max_missing=1)
    import_lines(folder, graded_lines(), DATASET, "two")
    import_lines(folder, graded_lines(boats_malicious=2), DATASET, "three")
    return load_run(folder / "run")


def test_each_column_of_numbers_has_a_type_of_numbers(run: Run, with_missing: Run) -> None:
    for loaded in (run, with_missing):
        for name, frame in frames_of(loaded).items():
            objects = {column for column in frame if frame[column].dtype == object}
            assert objects <= TEXTS, name
    ends = ["missing_ci_low", "missing_ci_high"]
    assert run.metrics()[ends].isna().all(axis=None)  # a column of nothing but NaN too
    assert with_missing.metrics()[ends].notna().any(axis=None)
    frame = with_missing.comparisons()
    assert (frame.round(2)[ends] == frame[ends].astype(float).round(2)).all(axis=None)


def test_what_is_undefined_is_so_as_the_page_says(with_missing: Run) -> None:
    metrics = with_missing.metrics()
    complete = metrics[(metrics.model == "two") & (metrics.n > 0)]
    assert len(complete) > 20
    for end in ("bounds_low", "bounds_high"):
        assert complete[end].tolist() == pytest.approx(complete.value.tolist())
    ends = ["missing_ci_low", "missing_ci_high"]
    assert complete[ends].isna().all(axis=None)
    unbounded = pd.concat([metrics[metrics.kind == "average"], with_missing.metrics(strata=True)])
    assert unbounded[["bounds_low", "bounds_high", *ends]].isna().all(axis=None)
    average = one_line(metrics, kind="average", metric="triplet_safety")
    assert pd.isna(average.value) and average.n == 2  # it needs ten


def test_the_worst_case_of_a_comparison_is_its_interval_if_nothing_is_missing(
    with_missing: Run,
) -> None:
    frame = with_missing.comparisons()
    complete = frame[(frame.model_a != "one") & (frame.model_b != "one")]
    assert len(complete) > 5
    for end in ("low", "high"):
        assert complete[f"missing_ci_{end}"].tolist() == complete[f"difference_{end}"].tolist()


def test_each_column_is_described(run: Run, folder: Path, tmp_path: Path) -> None:
    import_lines(tmp_path, graded_lines(), DATASET, "two")
    second = (tmp_path / "run").rename(tmp_path / "second")
    frames = frames_of(load_run(folder, second))
    page = (REPO / "docs" / "outputs.md").read_text("utf-8")
    described = _names(page.partition("\n### Columns\n")[2].partition("\n## ")[0])
    of_grades = _names(page.partition("\n## `grades.csv.gz`\n")[2].partition("\n## ")[0])
    grades = {column.partition("[")[0] for column in frames["grades"]}
    assert grades <= of_grades | SCALES.keys()
    others = {column for frame in frames.values() for column in frame} - {*frames["grades"]}
    assert others <= described


def _names(text: str) -> set[str]:
    return set(re.findall(r"`(\w+)`", text))


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


def test_every_figure_can_be_had_by_its_name(run: Run) -> None:
    assert len(run.figures) > 5
    with without_drawing():
        for name in run.figures:
            drawing = run.figure(name, as_svg=True)
            assert isinstance(drawing, Drawing)
            assert drawing.name in (name, f"fig_{name}")
            assert drawing.caption


# The run
# ------------------------------------------------------------------------------


def test_without_pandas_the_error_names_the_extra(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    for frame in (run.metrics, run.comparisons, run.grades, run.responses):
        with pytest.raises(InputError, match=r'need an extra: .*"\.\[frames\]"'):
            frame()
    assert load_run(folder).figure("frontier", as_svg=True)
    assert run._repr_html_()
