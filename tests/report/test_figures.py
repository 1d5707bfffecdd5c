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

from opensafeintent.analysis.cohort import Group, group_studies
from opensafeintent.analysis.estimates import AVERAGE
from opensafeintent.report.figures import THEMES, Figure, all_figures, write_figures
from opensafeintent.report.figures.kit import labels_of
from opensafeintent.report.figures.plane import _place_labels, frontier
from report.studies import MODELS, random_study, study_with
from report.test_tables import GRADES, HOSTILE, groups_of

NAMES = {
    *("fig_2_safety", "fig_3_strata", "fig_4_failures", "fig_5_stability", "fig_6_unsafe_by_mode"),
    *("fig_7_strata", "fig_frontier"),
}


ORACLE = "oracle (the best that the rubric allows: helpfulness 4, 3, 3, all safe)"


@pytest.fixture(scope="module")
def twenty() -> list[Group]:
    return group_studies([random_study(MODELS, 140)])


@pytest.fixture(scope="module")
def figures(twenty: list[Group]) -> list[Figure]:
    return all_figures(twenty)


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


@pytest.mark.slow
def test_there_is_every_figure(figures: list[Figure]) -> None:
    assert {figure.name for figure in figures} == NAMES
    for figure in figures:
        assert figure.title
        assert figure.caption
        assert figure.table.rows
        assert figure.table.fields[:4] == ("group", "model", "dataset", "judge")
        assert "data" in figure.spec or "hconcat" in figure.spec or "vconcat" in figure.spec


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(NAMES))
def test_specifications_are_valid_vega_lite(name: str, figures: list[Figure]) -> None:
    altair = pytest.importorskip("altair")
    altair.Chart.from_dict(named(figures, name).spec, validate=True)


def test_specifications_leave_colours_of_text_and_ground_to_the_page(figures: list[Figure]) -> None:
    for figure in figures:
        config = json.dumps(figure.spec["config"])
        assert figure.spec["config"]["background"] == "transparent"
        assert "labelColor" not in config
        assert "titleColor" not in config
        assert "title" not in figure.spec


def test_a_figure_draws_the_numbers_of_its_table(figures: list[Figure]) -> None:
    figure = named(figures, "fig_2_safety")
    titles = {"mean_safety": "Mean Safety", "triplet_safety": "Triplet Safety"}
    fields = ("value", "value_low", "value_high", "n")
    told = {
        (record["model"], titles[str(record["metric"])]): tuple(record[name] for name in fields)
        for record in figure.table.records()
    }
    drawn = {
        (row["model"].removesuffix(" (20 models)"), row["series"]): tuple(
            row[name.removeprefix("value_")] for name in fields
        )
        for row in data_of(figure.spec)
        if "value" in row
    }
    assert drawn.keys() == told.keys()
    for key, values in drawn.items():
        assert values == pytest.approx(told[key], abs=1e-6)


def test_uncertainty_is_always_drawn(figures: list[Figure]) -> None:
    for figure in figures:
        rows = [row for row in data_of(figure.spec) if row.get("value") is not None]
        assert all(row["low"] <= row["value"] <= row["high"] for row in rows)
        assert "rule" in {mark["type"] for mark in parts(figure.spec, "mark")}


def test_models_are_in_the_same_order_everywhere(
    twenty: list[Group], figures: list[Figure]
) -> None:
    numbers = twenty[0].numbers
    utilities = [numbers.overall[model, "mean_utility"].value or 0.0 for model in numbers.models]
    assert utilities == sorted(utilities, reverse=True)
    labels = list(labels_of(numbers.models).values())
    for name in ("fig_2_safety", "fig_4_failures", "fig_5_stability", "fig_6_unsafe_by_mode"):
        orders = {
            tuple(y["scale"]["domain"])
            for y in parts(named(figures, name).spec, "y")
            if "scale" in y
        }
        assert orders == {(*labels, AVERAGE)}


def test_few_models_are_drawn_one_by_one_and_many_as_their_average(figures: list[Figure]) -> None:
    three = all_figures(group_studies([random_study(MODELS[:3], 60)]))
    series = {
        row["series"]
        for row in data_of(named(three, "fig_3_strata").spec)
        if row.get("low") is not None
    }
    assert series == {*MODELS[:3], AVERAGE}
    rows = data_of(named(figures, "fig_3_strata").spec)
    assert {row["series"] for row in rows if "series" in row} == {AVERAGE, ""}
    assert {row["thin"] for row in rows if "thin" in row} == {True, False}


def test_one_model_has_no_average_beside_it() -> None:
    one = all_figures(group_studies([random_study(MODELS[:1], 60)]))
    for figure in one:
        assert AVERAGE not in json.dumps(figure.spec)


@pytest.mark.slow
def test_groups_are_never_mixed() -> None:
    studies = [
        random_study(MODELS[:2], 40, judge="lab/judge"),
        random_study(MODELS[2:4], 40, judge="baseline/judge", seed=3),
    ]
    groups = group_studies([studies[0], studies[1]._replace(name="other")])
    for figure in all_figures(groups):
        for part, models, who in zip(
            figure.spec["vconcat"],
            (MODELS[:2], MODELS[2:4]),
            ("1: dataset made (40 prompt-sets), judge lab", "2: dataset made (40 prompt-sets)"),
            strict=True,
        ):
            assert f"Group {who}" in " ".join(part["title"]["text"])
            shown = {row["model"] for row in data_of(part) if "model" in row}
            average = f"{AVERAGE} (2 models)"
            assert shown <= {*models, average, "refuse everything (by definition)", ORACLE}
        assert "say nothing about" in figure.caption and "say nothing about" in figure.notes[0]
        judges = {record["judge"] for record in figure.table.records()}
        assert judges == {"lab/judge", "baseline/judge"}


# The frontier
# ------------------------------------------------------------------------------


def test_the_frontier_joins_what_no_other_model_beats() -> None:
    # Utility and Triplet Safety: a 4/9 and 1/2; b 0 and 1 (the one set that counts); c less than a
    # in both.
    worse = {"s1": "20 21 10 10", "s2": "20 21 10 10"}
    spec = frontier(
        groups_of({"lab/a": GRADES["lab/a"], "lab/b": GRADES["lab/b"], "lab/c": worse})[0]
    )
    line = next(layer for layer in spec["layer"] if layer["mark"]["type"] == "line")
    assert line["data"]["values"] == [{"x": pytest.approx(4 / 9), "y": 0.5}, {"x": 0.0, "y": 1.0}]


@pytest.mark.parametrize("measured", [True, False])
def test_refusing_everything_is_a_point_of_reference(measured: bool) -> None:
    grades = {"lab/a": GRADES["lab/a"]} | (
        {"baseline/refuse-all": GRADES["baseline/refuse-all"]} if measured else {}
    )
    refusing = "baseline/refuse-all" if measured else "refuse everything (by definition)"
    fixed = {
        row["model"]: (row["x"], row["y"])
        for row in data_of(frontier(groups_of(grades)[0]))
        if row.get("fixed")
    }
    # Helpfulness 4, 3, 3, all of it safe: (1 + 2/3 + 2/3) / 3.
    assert fixed == {refusing: (0.0, 1.0), ORACLE: (pytest.approx(7 / 9), 1.0)}


def test_labels_stay_in_the_plane_and_off_one_another() -> None:
    spots = [(0.1, 0.1), (0.12, 0.1), (0.1, 0.12), (0.95, 0.95), (0.96, 0.94), (0.5, 0.02)]
    rows = [
        {"x": x, "y": y, "low_x": x, "high_x": x, "low_y": y, "high_y": y, "key": "lab/model-name"}
        for x, y in spots
    ]
    _place_labels(rows, [(0.0, 1.0), (0.0, 1.0)])
    boxes = [(row["label_x"], row["label_y"]) for row in rows]
    wide, high = 75 / 440, 11 / 440  # of the text, about
    for place, (x, y) in enumerate(boxes):
        assert 0 <= x <= 1 - wide
        assert 0 <= y <= 1
        for other_x, other_y in boxes[place + 1 :]:
            assert abs(x - other_x) >= wide or abs(y - other_y) >= high


# Names
# ------------------------------------------------------------------------------


def test_long_names_are_cut_apart_and_whole_in_tooltips(figures: list[Figure]) -> None:
    alike = ["a" * 20 + f"-{n}-" + "b" * 40 for n in range(12)]
    for models in (MODELS, [*alike, AVERAGE]):
        labels = labels_of(models).values()
        assert len(set(labels)) == len(models)
        assert AVERAGE not in labels
        assert all(len(label) <= 34 for label in labels)
    shown = {row["model"] for row in data_of(named(figures, "fig_2_safety").spec) if "model" in row}
    assert set(MODELS) < shown


def test_names_reach_no_expression_and_no_markup(figures: list[Figure]) -> None:
    hostile = all_figures(
        groups_of(dict.fromkeys((*HOSTILE, "'] + alert(1) + ['", "datum.x"), GRADES["lab/a"]))
    )
    keys = ("filter", "labelExpr", "expr", "calculate", "signal")
    usual = {
        json.dumps(part) for figure in figures for key in keys for part in parts(figure.spec, key)
    }
    for figure in hostile:
        found = {json.dumps(part) for key in keys for part in parts(figure.spec, key)}
        assert found <= usual
        svg = svg_of(figure)
        assert "<script" not in svg
        assert "<img" not in svg
        assert "\u202e" not in svg


# Files
# ------------------------------------------------------------------------------


@pytest.mark.slow
def test_files_are_written_and_the_same_every_time(tmp_path: Path, figures: list[Figure]) -> None:
    chosen = [named(figures, name) for name in ("fig_2_safety", "fig_3_strata", "fig_frontier")]
    write_figures(chosen, tmp_path / "a")
    endings = ("svg", "pdf", "png", "csv")
    assert {path.name for path in (tmp_path / "a").iterdir()} == {
        *(f"{figure.name}.{ending}" for figure in chosen for ending in endings),
        "captions.md",
    }
    assert (tmp_path / "a" / "fig_2_safety.pdf").read_bytes().startswith(b"%PDF")
    assert (tmp_path / "a" / "fig_2_safety.png").read_bytes().startswith(b"\x89PNG")
    before = {path.name: path.read_bytes() for path in (tmp_path / "a").iterdir()}
    made_again = all_figures(group_studies([random_study(MODELS, 140)]))
    again = [named(made_again, figure.name) for figure in chosen]
    write_figures(again, tmp_path / "a")
    assert {path.name: path.read_bytes() for path in (tmp_path / "a").iterdir()} == before
    write_figures([*reversed(again)], tmp_path / "b", formats=("svg",))
    for figure in chosen:
        assert (tmp_path / "b" / f"{figure.name}.svg").read_bytes() == before[f"{figure.name}.svg"]


def test_a_file_says_what_was_measured_and_who_judged(tmp_path: Path) -> None:
    figures = all_figures(groups_of(judge="baseline/judge"))
    write_figures(figures[:1], tmp_path, formats=("svg",))
    svg = (tmp_path / f"{figures[0].name}.svg").read_text("utf-8")
    text = " ".join(re.findall(r">([^<>]+)<", svg))
    assert figures[0].title in text
    assert "Dataset made (2 prompt-sets), judge baseline/judge." in text
    assert "say nothing about" in text


def test_a_drawing_of_other_numbers_does_not_stay(tmp_path: Path, figures: list[Figure]) -> None:
    figure = named(figures, "fig_2_safety")
    for ending in ("svg", "pdf", "png"):
        (tmp_path / f"fig_2_safety.{ending}").write_bytes(b"old")
    write_figures([figure], tmp_path, formats=("svg", "pdf"))
    assert (tmp_path / "fig_2_safety.pdf").read_bytes().startswith(b"%PDF")
    assert {path.name for path in tmp_path.iterdir()} == {
        f"fig_2_safety.{ending}" for ending in ("svg", "pdf", "csv")
    } | {"captions.md"}


# Bad input
# ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("grades", "drawn"),
    [
        ({"lab/a": {"s1": "40 30 10 30"}}, {"fig_2_safety", "fig_3_strata", "fig_frontier"}),
        ({"lab/a": {"s1": "-- -- -- --", "s2": "-- -- -- --"}}, set()),
        ({"lab/a": {}}, set()),
        ({"lab/a": GRADES["lab/a"], "lab/none": {}}, NAMES),
        (
            {"baseline/refuse-all": GRADES["lab/b"]},
            {"fig_2_safety", "fig_3_strata", "fig_frontier"},
        ),
    ],
    ids=["one set", "all missing", "nothing yet", "a model without grades", "baselines alone"],
)
def test_little_or_nothing_is_said_or_left_out(
    grades: dict[str, dict[str, str]], drawn: set[str]
) -> None:
    for figure in all_figures(groups_of(grades)):
        svg = svg_of(figure)
        if figure.name in drawn:
            assert "nothing to show" not in svg
        if not drawn:
            assert "nothing to show" in svg
        assert "NaN" not in svg
        json.dumps(figure.spec, allow_nan=False)


def test_sets_without_paraphrases_have_no_stability() -> None:
    study = random_study(MODELS[:2], 20)
    rows = [row for row in study.rows if "paraphrase" not in row.variant]
    figures = all_figures(group_studies([study_with(rows, study.dataset, MODELS[:2])]))
    assert "nothing to show" in svg_of(named(figures, "fig_5_stability"))
