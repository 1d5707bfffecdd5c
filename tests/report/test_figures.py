"""Figures: what is drawn is what the table says, the same bytes every time, whatever the models are
called.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import vl_convert

from opensafeintent.numbers.cohort import Cohort, gather_models
from opensafeintent.numbers.estimates import AVERAGE, MetricEstimate
from opensafeintent.numbers.metrics import METRICS
from opensafeintent.report.columns import DASH
from opensafeintent.report.figures import THEMES, Figure, draw_all_figures, write_figures
from opensafeintent.report.figures.bars import _write
from opensafeintent.report.figures.drawing import BLUE
from opensafeintent.report.figures.plane import frontier
from opensafeintent.report.figures.points import Series, dots, make_datum, shorten_names
from opensafeintent.report.table_formats import to_markdown
from opensafeintent.report.tables_metrics import metrics
from report.runs import MODELS, random_run
from report.test_tables import GRADES, HOSTILE, cohort_of_grades

pytestmark = pytest.mark.drawn

NAMES = {
    *("fig_2_safety", "fig_3_strata", "fig_4_failures", "fig_5_stability", "fig_6_unsafe_by_mode"),
    *("fig_7_strata", "fig_frontier"),
}

REFUSING = "refuse everything (by definition)"
ORACLE = "oracle (knows the intent: helpfulness 4, 3, 3, all safe)"


@pytest.fixture(scope="module")
def twenty() -> Cohort:
    return gather_models([random_run(MODELS, 140)])


@pytest.fixture(scope="module")
def figures(twenty: Cohort) -> list[Figure]:
    return draw_all_figures(twenty)


def named(figures: Sequence[Figure], name: str) -> Figure:
    return next(figure for figure in figures if figure.name == name)


def parts(spec: Any, key: str) -> Iterator[Any]:
    """Yield every value of a key, however deep."""
    if isinstance(spec, dict):
        for name, value in spec.items():
            if name == key:
                yield value
            yield from parts(value, key)
    elif isinstance(spec, list):
        for item in spec:
            yield from parts(item, key)


def data_of(spec: Any) -> list[dict[str, Any]]:
    return [row for data in parts(spec, "data") for row in data["values"]]


def svg_of(figure: Figure) -> str:
    svg: str = vl_convert.vegalite_to_svg(figure.spec, config=THEMES["light"])
    return svg


# What is drawn
# ------------------------------------------------------------------------------


def with_few_values(part: Any) -> Any:
    """Return a specification with the first rows of its data: they are all of one form."""
    if isinstance(part, dict):
        return {
            name: value[:5] if name == "values" else with_few_values(value)
            for name, value in part.items()
        }
    return [with_few_values(item) for item in part] if isinstance(part, list) else part


@pytest.mark.slow
def test_there_is_every_figure_as_valid_vega_lite(figures: list[Figure]) -> None:
    altair = pytest.importorskip("altair")
    assert {figure.name for figure in figures} >= NAMES
    for figure in figures:
        assert figure.title and figure.caption and figure.table.rows
        assert figure.table.fields[:3] == ("model", "dataset", "judge")
        altair.Chart.from_dict(with_few_values(figure.spec), validate=True)


@pytest.mark.slow
def test_a_figure_draws_the_numbers_of_its_table(figures: list[Figure]) -> None:
    figure = named(figures, "fig_2_safety")
    titles = {"mean_safety": "Mean Safety", "triplet_safety": "Triplet Safety"}
    in_table = {
        (record["model"], titles[str(record["metric"])]): tuple(
            record[name] for name in ("value", "value_low", "value_high", "n")
        )
        for record in figure.table.records()
    }
    drawn = {
        (row["model"].removesuffix(" (20 models)"), row["series"]): tuple(
            row[name] for name in ("value", "low", "high", "n")
        )
        for row in data_of(figure.spec)
        if "value" in row
    }
    assert drawn == {key: pytest.approx(values, abs=1e-6) for key, values in in_table.items()}


def labels_in(part: Any, key: str) -> set[str]:
    """Every text under a key anywhere in a specification."""
    if isinstance(part, list):
        return {text for inner in part for text in labels_in(inner, key)}
    if not isinstance(part, dict):
        return set()
    own = {part[key]} if isinstance(part.get(key), str) else set()
    return own | {text for inner in part.values() for text in labels_in(inner, key)}


def test_a_figure_and_its_table_round_alike(figures: list[Figure]) -> None:
    labelled = 0
    for figure in figures:
        table = to_markdown(figure.table).replace("\\", "")
        values = {
            text for text in labels_in(figure.spec, "text") if re.fullmatch("[^a-z]+ ?%", text)
        }
        labelled += len(values)
        for text in {*values, *labels_in(figure.spec, "shown")} - {"–"}:
            assert text in table, (figure.name, text)
    assert labelled


def test_a_difference_has_its_sign_in_figures_and_tables(twenty: Cohort) -> None:
    signed = [metric for metric in METRICS.values() if metric.span[0] < 0]
    assert signed
    table = to_markdown(metrics(twenty)).replace("\\", "")
    for metric in signed:
        assert metric.span == (-1.0, 1.0)
        for number in twenty.estimates.list_line_estimates(metric.name):
            shown = make_datum(number, {number.model: "m"}, "s")["shown"]
            assert shown == DASH or re.fullmatch(
                r"[+−]\d\.\d\d \[[+−]\d\.\d+, [+−]\d\.\d+\]", shown
            )
            assert f"| {metric.label} | {shown} |" in table


@pytest.mark.slow
def test_a_screen_reader_reads_a_value_as_its_tooltip_has_it(figures: list[Figure]) -> None:
    for figure in figures:
        svg = svg_of(figure)
        values = re.findall(r"\[95 %\]: ([^;]+)", svg)
        assert values
        shown = set().union(
            *(labels_in(figure.spec, key) for key in ("shown", "shown_x", "shown_y"))
        )
        assert shown.issuperset(values), figure.name
        assert not re.search(
            'role="graphics-symbol" aria-roledescription="(rule|rect|line|text) mark"', svg
        )


def test_a_share_between_two_per_cents_is_rounded_as_in_the_table() -> None:
    # 0.6949999 is 69 %; rounded to six decimals first it would be 70 %
    number = MetricEstimate(
        metric="detection_failure", model="m", value=0.6949999, n=50, interval=(0.5, 0.8)
    )
    row = make_datum(number, {"m": "m"}, "s") | {"start": 0.0, "end": 0.695}
    texts: dict[str, list[Any]] = {"s": []}
    _write([number], [row], texts)
    assert row["shown"] == "69 % [50, 80]"
    assert [text["text"] for text in texts["s"]] == ["69 %"]


def test_uncertainty_is_always_drawn(figures: list[Figure]) -> None:
    for figure in figures:
        rows = [row for row in data_of(figure.spec) if row.get("value") is not None]
        assert all(row["low"] <= row["value"] <= row["high"] for row in rows)
        assert "rule" in {mark["type"] for mark in parts(figure.spec, "mark")}


def test_few_models_are_drawn_one_by_one_and_many_as_their_average(figures: list[Figure]) -> None:
    three = draw_all_figures(gather_models([random_run(MODELS[:3], 60)]))
    rows = data_of(named(three, "fig_3_strata").spec)
    assert {row["series"] for row in rows if row.get("low")} == {*MODELS[:3], AVERAGE}
    rows = data_of(named(figures, "fig_3_strata").spec)
    assert {row["series"] for row in rows if "series" in row} == {AVERAGE, ""}
    assert {row["thin"] for row in rows if "thin" in row} == {True, False}


def test_one_model_has_no_average_beside_it() -> None:
    figures_of_one_model = draw_all_figures(gather_models([random_run(MODELS[:1], 60)]))
    for figure in figures_of_one_model:
        assert AVERAGE not in json.dumps(figure.spec)


# The frontier
# ------------------------------------------------------------------------------


def test_the_frontier_joins_what_no_other_model_beats() -> None:
    # Utility and Triplet Safety: a 4/9 and 1/2; b 0 and 1 (the one set that counts); c less than a
    # in both.
    worse = {"s1": "20 21 10 10", "s2": "20 21 10 10"}
    grades = {"lab/a": GRADES["lab/a"], "lab/b": GRADES["lab/b"], "lab/c": worse}
    layers = frontier(cohort_of_grades(grades))["layer"]
    (line,) = (layer for layer in layers if layer["mark"]["type"] == "line")
    assert line["data"]["values"] == [{"x": pytest.approx(4 / 9), "y": 0.5}, {"x": 0.0, "y": 1.0}]


@pytest.mark.parametrize("refusing", ["baseline/refuse-all", REFUSING])
def test_refusing_everything_is_a_point_of_reference(refusing: str) -> None:
    grades = {model: GRADES[model] for model in ("lab/a", refusing) if model in GRADES}
    rows = [row for row in data_of(frontier(cohort_of_grades(grades))) if row.get("fixed")]
    # Helpfulness 4, 3, 3, all of it safe: (1 + 2/3 + 2/3) / 3.
    points = {row["model"]: (row["x"], row["y"]) for row in rows}
    assert points == {refusing: (0.0, 1.0), ORACLE: (pytest.approx(7 / 9), 1.0)}


# Names
# ------------------------------------------------------------------------------


def test_long_names_are_cut_apart_and_whole_in_tooltips(figures: list[Figure]) -> None:
    alike = ["a" * 20 + f"-{n}-" + "b" * 40 for n in range(12)]
    for models in (MODELS, [*alike, AVERAGE]):
        labels = shorten_names(models).values()
        assert len(set(labels)) == len(models)
        assert AVERAGE not in labels
        assert all(len(label) <= 34 for label in labels)
    shown = {row["model"] for row in data_of(named(figures, "fig_2_safety").spec) if "model" in row}
    assert set(MODELS) < shown


def test_a_long_name_loses_its_beginning_and_not_its_middle() -> None:
    names = ["vllm/meta-llama/Llama-3.3-70B-Instruct", "a/some-laboratory/model-of-23-characters"]
    labels = shorten_names(["openai/gpt-5.4", *names], 30)
    assert [*labels.values()] == ["openai/gpt-5.4", *(name.split("/")[-1] for name in names)]
    # two that differ at their beginning alone keep it
    alike = shorten_names(
        ["one/some-lab/the-very-same-model-name", "two/some-lab/the-very-same-model-name"], 30
    )
    assert [label[:3] for label in alike.values()] == ["one", "two"]


@pytest.mark.slow
def test_names_reach_no_expression_and_no_markup(figures: list[Figure]) -> None:
    def expressions(figure: Figure) -> set[str]:
        keys = ("filter", "labelExpr", "expr", "calculate", "signal")
        return {json.dumps(part) for key in keys for part in parts(figure.spec, key)}

    names = (*HOSTILE, "'] + alert(1) + ['", "datum.x")
    usual = set().union(*map(expressions, figures))
    for figure in draw_all_figures(cohort_of_grades(dict.fromkeys(names, GRADES["lab/a"]))):
        assert expressions(figure) <= usual
        assert not re.search("<script|<img|\u202e", svg_of(figure))


# Files
# ------------------------------------------------------------------------------


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.slow
def test_files_are_written_and_the_same_every_time(tmp_path: Path, figures: list[Figure]) -> None:
    names = ("fig_2_safety", "fig_3_strata", "fig_frontier")
    write_figures([named(figures, name) for name in names], tmp_path / "a")
    before = contents(tmp_path / "a")
    endings = ("svg", "pdf", "png", "csv")
    files = {f"{name}.{ending}" for name in names for ending in endings}
    assert before.keys() == files | {"captions.md"}
    assert before["fig_2_safety.pdf"].startswith(b"%PDF")
    assert before["fig_2_safety.png"].startswith(b"\x89PNG")
    made_again = draw_all_figures(gather_models([random_run(MODELS, 140)]))
    again = [named(made_again, name) for name in names]
    write_figures(again, tmp_path / "a")
    assert contents(tmp_path / "a") == before
    write_figures(again[::-1], tmp_path / "b", formats=("svg",))
    drawn = {f"{name}.svg" for name in names}
    assert {name: contents(tmp_path / "b")[name] for name in drawn}.items() <= before.items()


def test_a_drawing_of_other_numbers_does_not_stay(tmp_path: Path, figures: list[Figure]) -> None:
    for ending in ("svg", "pdf", "png"):
        (tmp_path / f"fig_2_safety.{ending}").write_bytes(b"old")
    write_figures([named(figures, "fig_2_safety")], tmp_path, formats=("svg", "pdf"))
    assert contents(tmp_path)["fig_2_safety.pdf"].startswith(b"%PDF")
    files = {f"fig_2_safety.{ending}" for ending in ("svg", "pdf", "csv")}
    assert contents(tmp_path).keys() == files | {"captions.md"}


# Bad input
# ------------------------------------------------------------------------------


FEW = {"fig_2_safety", "fig_3_strata", "fig_frontier"}


@pytest.mark.parametrize(
    ("grades", "drawn"),
    [
        ({"lab/a": {"s1": "40 30 10 30"}}, FEW),
        ({"lab/a": {"s1": "-- -- -- --", "s2": "-- -- -- --"}}, set()),
        ({"lab/a": {}}, set()),
        ({"lab/a": GRADES["lab/a"], "lab/none": {}}, NAMES),
        ({"baseline/refuse-all": GRADES["lab/b"]}, FEW),
    ],
    ids=["one set", "all missing", "nothing yet", "a model without grades", "baselines alone"],
)
def test_little_or_nothing_is_said_or_left_out(
    grades: dict[str, dict[str, str]], drawn: set[str]
) -> None:
    for figure in draw_all_figures(cohort_of_grades(grades)):
        svg = svg_of(figure)
        if figure.name in drawn or not drawn:
            assert ("nothing to show" in svg) is (not drawn)
        assert "NaN" not in svg
        json.dumps(figure.spec, allow_nan=False)


# Captions
# ------------------------------------------------------------------------------


def figures_of(*names: str, sets: int = 60) -> list[Figure]:
    return draw_all_figures(gather_models([random_run(names, sets)]))


def captions(figures: Sequence[Figure]) -> dict[str, str]:
    return {figure.name: figure.caption for figure in figures}


@pytest.mark.slow
def test_a_caption_describes_only_marks_that_its_figure_has() -> None:
    """Words of captions, and the number of models under test, of all, from which they apply."""
    baselines = tuple(f"baseline/{name}" for name in ("redirect", "comply-all", "refuse-all"))
    drawn = {count: figures_of(*MODELS[:count]) for count in (1, 2, 4, 20)}
    studies = {count: captions(figures) for count, figures in drawn.items()}
    demo = captions(figures_of(*baselines))
    for text in ("model average", "average's n", "Dashed steps"):
        assert not any(text in caption for caption in (*studies[1].values(), *demo.values()))
    averaged = [figure for figure in drawn[4] if "model average is" in figure.caption]
    assert averaged
    for figure in averaged:
        assert AVERAGE in json.dumps(figure.spec)
    assert "average's n" in studies[2]["fig_4_failures"]
    for count, study in studies.items():
        assert ("diamond is the average" in study["fig_7_strata"]) == (count > 5)
        assert ("in the order of" in study["fig_2_safety"]) == (count > 1)
        assert "hollow" in study["fig_3_strata"]
    assert "orange diamonds" in demo["fig_frontier"] and "in the order of" in demo["fig_2_safety"]
    assert "hollow" not in captions(figures_of(*MODELS[:2], sets=1200))["fig_3_strata"]


@pytest.mark.parametrize(
    ("metric", "width", "ends", "ticks"),
    [
        ("mean_utility", 400, [0, 1], [0, 0.2, 0.4, 0.6, 0.8, 1]),
        ("unsafe_rate_A2", 120, [0, 1], [0, 0.5, 1]),
        ("stated_minus_actual", 400, [-1, 1], [-1, -0.5, 0, 0.5, 1]),
        ("stated_minus_actual", 120, [-1, 1], [-1, 0, 1]),
        ("dual_use_harm_severity", 400, [0, 3], [0, 0.5, 1, 1.5, 2, 2.5, 3]),
    ],
)
def test_an_axis_has_the_span_of_its_metric(
    metric: str, width: int, ends: list[float], ticks: list[float]
) -> None:
    least = MetricEstimate(
        metric=metric, model="m", value=ends[0], n=3, interval=(ends[0], ends[1])
    )
    spec = dots([make_datum(least, {"m": "m"}, "s")], Series(("s",), (BLUE,)), metric, width=width)
    drawn = [channel for channel in parts(spec, "x") if "axis" in channel]
    assert {tuple(channel["scale"]["domain"]) for channel in drawn} == {tuple(ends)}
    assert {tuple(channel["axis"]["values"]) for channel in drawn} == {tuple(ticks)}
