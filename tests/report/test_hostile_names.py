"""Names that nobody would give: every figure and the page stand, and loading refuses what cannot be
shown.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from endtoend import osi
from opensafeintent.hostile import unprintable, visible
from opensafeintent.numbers.cohort import Cohort, GradedRun, gather_models
from opensafeintent.promptsets import Dataset
from opensafeintent.report.figures import draw_all_figures, write_figures
from opensafeintent.responses import GradedResponse
from opensafeintent.taxonomy import default_taxonomy
from report.pages import page_of
from report.runs import random_rows, run_with
from samples import json_lines, made_dataset, prompt_set

pytestmark = pytest.mark.drawn

NAMES = (
    *("start\u0001of heading", "not\ufffea character", "nor\uffffthis", "nor \ufdd0 this"),
    *("null\x00 within", "escape\x1b[31m", "long " * 2000, "two\nlines", "tab\tulator"),
    *("</script><script>alert(1)</script>", "datum.value * 2", "**bold** [x](y) | `z`"),
    *("{{ 7 * 7 }}", "right \u202eto left", "\u05e9\u05dc\u05d5\u05dd"),
    "\U0001f9ea\U0001f469\u200d\U0001f52c",
)


@pytest.fixture(scope="module")
def run() -> GradedRun:
    """Models, domains and types of these names: as a ledger from before they were refused may have
    them.
    """
    usual = default_taxonomy()
    domains = tuple(replace(usual.harm_domains[0], name=name) for name in NAMES)
    types = tuple(replace(usual.task_types[0], name=f"type {name}") for name in NAMES[:3])
    taxonomy = replace(usual, harm_domains=domains, task_types=types)
    named = [prompt_set(f"s{n:03}", 2, *cell) for n, cell in enumerate(taxonomy.cells)]
    graded = made_dataset(*(prompt_set(item.id, 2) for item in named))
    rows: list[GradedResponse] = []
    for n, name in enumerate(NAMES):
        rows += random_rows(name, graded, n, judge=NAMES[0], safe=0.5, helpful=0.3)
    return run_with(rows, Dataset("named", tuple(named), taxonomy), judge=NAMES[0])


@pytest.fixture(scope="module")
def cohort(run: GradedRun) -> Cohort:
    return gather_models([run])


@pytest.mark.slow
def test_every_figure_is_drawn(tmp_path: Path, cohort: Cohort) -> None:
    figures = draw_all_figures(cohort)
    write_figures(figures, tmp_path, formats=("svg", "pdf"))
    for figure in figures:
        assert (tmp_path / f"{figure.name}.pdf").stat().st_size > 1000
        drawn = (tmp_path / f"{figure.name}.svg").read_text("utf-8")
        assert unprintable(drawn.replace("\n", "").replace("\t", "")) is None
        assert "<script" not in drawn


@pytest.mark.slow
def test_half_of_a_surrogate_pair_is_drawn_as_its_number(tmp_path: Path, cohort: Cohort) -> None:
    figure, half = draw_all_figures(cohort)[0], "half \ud800 a pair"
    other_figure = replace(figure, spec=figure.spec | {"title": half}, notes=(half,))
    write_figures([other_figure], tmp_path, formats=("svg",))
    assert "half \\ud800 a pair" in (tmp_path / f"{figure.name}.svg").read_text("utf-8")


@pytest.mark.slow
def test_the_page_is_whole(run: GradedRun) -> None:
    page = page_of(run).decode()
    assert page.rstrip().endswith("</html>")
    assert "<script>alert(1)" not in page
    assert "data-sets" in page


def test_visible_text_keeps_what_can_be_shown() -> None:
    assert visible("na\u00efve \U0001f9ea\u200d") == "na\u00efve \U0001f9ea\u200d"
    assert visible("a\nb\tc") == "a\nb\tc"
    assert visible("a\u0001b\nc") == "a\\u0001b\nc"


@pytest.mark.parametrize("char", ["\u0001", "\u009f", "\ufffe", "\U0001ffff", "\n"])
def test_such_names_are_refused_where_they_are_read(tmp_path: Path, char: str) -> None:
    named, complaint = f"a{char}b", f"holds U+{ord(char):04X}"
    escaped = "".join(f"\\U{ord(letter):08X}" for letter in named)
    taxonomy = tmp_path / "taxonomy.toml"
    taxonomy.write_text(
        f'name = "t"\n[[harm_domains]]\nname = "{escaped}"\ndefinition = "d"\n'
        '[[task_types]]\nname = "Explanation"\ndefinition = "d"\n'
    )
    sets = json_lines(tmp_path / "sets.jsonl", [prompt_set("s").to_json() | {"id": named}])
    line = {"id": "s", "variant": "benign", "response": "r"}
    responses = json_lines(tmp_path / "responses.jsonl", [line])
    out = ("--out", tmp_path / "run")
    commands = {
        f"{taxonomy}: harm_domains": ("dataset", "check", sets, "--taxonomy", taxonomy),
        "model": ("evaluate", f"baseline/{named}", "--judge", "baseline/judge", *out),
        "--model": ("import", responses, "--model", named, "--dataset", "starter", *out),
    }
    for place, command in commands.items():
        ran = osi(*command)
        assert ran.code == 2, (command, ran)
        assert place in ran.err and complaint in ran.err
