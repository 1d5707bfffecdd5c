"""Figures for print: their width, and the size of their text."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from opensafeintent.numbers.cohort import gather_models
from opensafeintent.report.figures import (
    Figure,
    draw_all_figures,
    list_figure_files,
    write_for_print,
)
from opensafeintent.report.figures.drawing import (
    COLUMN_WIDTHS,
    PRINT,
    SMALLEST_TEXT,
    print_svg,
    smallest_text,
)
from report.runs import MODELS, random_run

pytestmark = pytest.mark.drawn

FEW = ("lab/a", "lab/b", "baseline/refuse-all")


def figures_of(models: tuple[str, ...]) -> list[Figure]:
    return draw_all_figures(gather_models([random_run(models, 60)]), for_print=True)


def width_of(svg: str) -> float:
    match = re.search(r'<svg width="([\d.]+)mm"', svg)
    assert match is not None
    return float(match[1])


@pytest.mark.slow
@pytest.mark.parametrize("models", [FEW, tuple(MODELS)], ids=["few", "twenty"])
def test_a_figure_fits_one_column_or_two_in_text_that_can_be_read(models: tuple[str, ...]) -> None:
    widths: dict[str, float] = {}
    for figure in figures_of(models):
        svg = print_svg(figure)
        widths[figure.name] = width_of(svg)
        assert smallest_text(svg, widths[figure.name]) >= SMALLEST_TEXT, figure.name
        assert figure.title not in re.sub(r"<[^>]*>", "", svg)
    assert set(widths.values()) <= set(COLUMN_WIDTHS)
    assert models != FEW or widths["fig_frontier"] == min(COLUMN_WIDTHS)


@pytest.mark.slow
def test_files_are_in_a_folder_of_their_own_and_as_wide_as_they_say(tmp_path: Path) -> None:
    figures = [of for of in figures_of(FEW) if of.name in ("fig_frontier", "fig_3_strata")]
    write_for_print(figures, tmp_path / PRINT)
    written = {f"{figure.name}.{ending}" for figure in figures for ending in ("svg", "pdf")}
    assert {path.name for path in list_figure_files(tmp_path)} == written
    for figure in figures:
        pdf = (tmp_path / PRINT / f"{figure.name}.pdf").read_bytes()
        box = re.search(rb"/MediaBox \[0 0 ([\d.]+) ([\d.]+)\]", pdf)
        assert box is not None
        millimetres = float(box[1]) / 72 * 25.4
        width = width_of((tmp_path / PRINT / f"{figure.name}.svg").read_text("utf-8"))
        assert millimetres == pytest.approx(width, abs=0.5)
