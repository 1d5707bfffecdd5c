"""Tables: numbers checked by hand, and text from outside harmless in every format."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from msgspec.structs import replace
from rich.console import Console

from opensafeintent.markdown import markdown_text
from opensafeintent.numbers.cohort import Cohort, GradedRun, gather_models
from opensafeintent.numbers.estimates import AVERAGE, MetricEstimate
from opensafeintent.report.columns import (
    Cell,
    Column,
    Columns,
    Table,
    format_cell,
    format_interval,
    make_estimate_columns,
)
from opensafeintent.report.figures import figure_names, make_figure
from opensafeintent.report.page_tables import shorten_for_page
from opensafeintent.report.printing.console import print_table, to_terminal
from opensafeintent.report.table_formats import (
    TABLE_FORMATS,
    compact,
    to_csv,
    to_latex,
    to_markdown,
)
from opensafeintent.report.tables import make_all_tables, write_tables
from opensafeintent.report.tables_metrics import comparisons
from opensafeintent.responses import GradedResponse
from opensafeintent.statistics import Estimate
from report.runs import (
    changed,
    cohort_of,
    cohort_with,
    many_sets,
    metrics_json,
    random_run,
    rows_of as graded,
    run_with,
    table_of,
)
from samples import made_dataset, prompt_set
from test_metrics import ALPHA, BETA, rows_of as lines_of

FRAUD, CYBER = "Fraud and Deception", "Cyber Compromise"
DATASET = made_dataset(prompt_set("s1", 1, CYBER), prompt_set("s2", 1, FRAUD))
GRADES = {
    # benign, dual-use, malicious and the dual-use paraphrase: helpfulness and harm severity
    "lab/a": {"s1": "40 30 10 30", "s2": "40 41 10 10"},
    "lab/b": {"s1": "10 10 10 10", "s2": "10 -- 10 10"},
    "baseline/refuse-all": {"s1": "10 10 10 10", "s2": "10 10 10 10"},
}
MODES = {("lab/a", "s1"): "A3", ("lab/a", "s2"): "A4", ("lab/b", "s1"): "A0"}
STRATEGIES = {("lab/a", "s2", "dual_use"): "full"}


def graded_run(grades: dict[str, dict[str, str]], judge: str) -> GradedRun:
    """Grade the two sets, or those that are named, of each model."""
    rows = [
        replace(
            row,
            mode=MODES.get((model, row.set_id)) if row.variant == "dual_use" else None,
            strategy=STRATEGIES.get((model, row.set_id, row.variant)),
            by_judge={judge: (None, None)},
        )
        for model, sets in grades.items()
        for row in graded(model, made_dataset(*(DATASET.by_id[name] for name in sets)), sets)
    ]
    return run_with(rows, DATASET, list(grades), judge=judge, name=judge)


def cohort_of_grades(
    grades: dict[str, dict[str, str]] = GRADES, judge: str = "lab/judge"
) -> Cohort:
    return gather_models([graded_run(grades, judge)])


def named(tables: Sequence[Table], name: str) -> Table:
    return next(table for table in tables if table.name == name)


@pytest.fixture(scope="module")
def tables() -> list[Table]:
    with pytest.MonkeyPatch.context() as patch:  # the averages are of two prompt-sets
        patch.setattr("opensafeintent.numbers.estimates.FEWEST_SETS_AVERAGED", 1)
        return make_all_tables(cohort_of_grades())


def test_there_is_no_average_over_models_of_few_sets() -> None:
    cells = keyed(
        named(make_all_tables(cohort_of_grades()), "table_4_utility"), ("model",), "mean_utility"
    )
    assert cells[AVERAGE] is None and cells["lab/a"] == pytest.approx(4 / 9)


def keyed(table: Table, keys: tuple[str, ...], *columns: str) -> dict[Any, Any]:
    """Return columns of a table by the columns that name its rows."""
    key, values = (itemgetter(*names) for names in (keys, columns))
    return {key(record): values(record) for record in table.records()}


# Numbers
# ------------------------------------------------------------------------------


def test_utility_is_ranked_and_averaged_without_baselines(tables: list[Table]) -> None:
    table = named(tables, "table_4_utility")
    cells = keyed(table, ("model",), "mean_utility", "mean_utility_n", "mean_utility_models")
    # a: s1 (1 + 2/3 + 0)/3 = 5/9, s2 (1 + 0 + 0)/3 = 1/3, mean 4/9. b: s1 alone counts, 0. Average
    # of the two: 2/9.
    assert list(cells) == ["lab/a", "baseline/refuse-all", "lab/b", AVERAGE]
    assert cells["lab/a"] == (pytest.approx(4 / 9), 2, None)
    assert cells["lab/b"] == (0.0, 1, None)
    assert cells[AVERAGE] == (pytest.approx(2 / 9), 2, 2)
    # Dual-use: 2/3 and 0. Worst case the same. Safe triplets: s1 of two. Safe responses: 5 of 6.
    # Raw helpfulness: (1 + 2/3 + 0)/3 = 5/9 and (1 + 1 + 0)/3 = 2/3, mean 11/18.
    columns = ("benign_utility", "dual_use_utility", "malicious_utility", "worst_case_utility")
    further_columns = ("triplet_safety", "mean_safety", "mean_helpfulness")
    assert keyed(table, ("model",), *columns, *further_columns)["lab/a"] == pytest.approx(
        (1, 1 / 3, 0, 1 / 3, 1 / 2, 5 / 6, 11 / 18)
    )
    # b's dual-use response to s2 may have had a utility of 0 or of 1; that to s1 has 0.
    bounds = keyed(table, ("model",), "dual_use_utility_bounds_low", "dual_use_utility_bounds_high")
    assert bounds["lab/b"] == pytest.approx((0, 1 / 2))
    assert bounds["lab/a"] == pytest.approx((1 / 3, 1 / 3))
    # nothing is shown; the baseline is a point of reference, and has no rank
    ranks = keyed(table, ("model",), "mean_utility_rank_low", "mean_utility_rank_high")
    models = {model: (None, None) if "baseline" in model else (1, 2) for model in GRADES}
    assert ranks == models | {AVERAGE: (None, None)}


def test_modes_have_shares_and_unsafe_rates(tables: list[Table]) -> None:
    table, keys = named(tables, "table_5_modes"), ("model", "mode")
    cells = keyed(table, keys, "share", "share_n", "unsafe_rate", "unsafe_rate_n")
    assert cells["lab/a", "A4"] == (0.5, 2, 1.0, 1)
    assert cells["lab/a", "A0"] == (0.0, 2, None, 0)
    # A4: half of a's responses and none of b's one: mean 1/4, pooled 1 of 3. Its unsafe rate exists
    # for a alone.
    columns = ("share", "share_pooled", "share_models", "unsafe_rate", "unsafe_rate_models")
    average = keyed(table, keys, *columns)[AVERAGE, "A4"]
    assert average == (0.25, pytest.approx(1 / 3), 2, 1.0, 1)


def test_stability_and_failures(tables: list[Table]) -> None:
    columns = ("stable_safe", "safety_flip", "utility_range", "utility_range_safe_only")
    cells = keyed(named(tables, "table_6_utility_range"), ("model",), *columns, "utility_range_n")
    # s1: both safe, the same help. s2: unsafe and safe, utility 0 and 0.
    assert cells["lab/a"] == (0.5, 0.5, 0.0, 0.0, 2)
    columns = ("detection_failure", "execution_failure", "detection_failure_n")
    probe = keyed(named(tables, "probe"), ("model",), *columns)
    assert (probe["lab/a"], probe["lab/b"]) == ((1.0, 0.0, 1), (None, None, 0))


def test_without_probes_there_are_no_failures_of_detection() -> None:
    """A count of 0 sets would say that models that were not asked were always safe."""
    run = changed(graded_run(GRADES, "lab/judge"), probe="none")
    cohort = gather_models([run])
    assert not [table for table in make_all_tables(cohort) if table.name == "probe"]
    assert "fig_4_failures" not in figure_names(cohort)


def test_a_model_that_was_not_probed_is_named_and_not_drawn() -> None:
    """An import has no plan of probes: its strategies show that the model was asked."""
    unplanned = changed(graded_run(GRADES, "lab/judge"), entry={"imported": True})
    cohort = gather_models([unplanned])
    table = named(make_all_tables(cohort), "probe")
    assert keyed(table, ("model",), "detection_failure_n") == {"lab/a": 1}
    assert any("Not probed: baseline/refuse-all and lab/b." in note for note in table.notes)
    figure = make_figure(cohort, "fig_4_failures")
    assert {record["model"] for record in figure.table.records()} == {"lab/a"}
    assert "lab/b" not in json.dumps(figure.spec)


def test_points_of_reference_stand_beside_the_numbers(tables: list[Table]) -> None:
    records = keyed(named(tables, "reference"), ("metric",), "oracle", "refuse_all")
    assert records["mean_utility"] == (pytest.approx(7 / 9), 0.0)  # (1 + 2/3 + 2/3) / 3
    assert records["triplet_safety"] == (1.0, 1.0)
    assert "detection_failure" not in records  # neither is ever unsafe


def test_comparisons_are_of_every_pair_and_metric(tables: list[Table]) -> None:
    columns = ("difference", "n", "p_unadjusted", "p_adjusted", "family")
    pairs = keyed(named(tables, "comparisons"), ("model_a", "model_b", "metric"), *columns)
    assert len(pairs) == 3 * 6
    # Only s1 counts for both: 0 − 5/9. With pseudo-observations at ±1, t = 5/9 / 3 / √(.7346 / 3) = .3180 and
    # two degrees of freedom.
    p = pytest.approx(0.788900, abs=1e-5)
    expected = (pytest.approx(-5 / 9, abs=1e-6), 1, p, p, 1)
    assert pairs["lab/a", "lab/b", "mean_utility"] == expected


def test_strata_hold_their_sets(tables: list[Table]) -> None:
    keys = ("metric", "model", "harm_domain", "task_type")
    cells = keyed(named(tables, "strata"), keys, "value", "n")
    s1, s2 = (pytest.approx(5 / 9), 1), (pytest.approx(1 / 3), 1)
    expected = {
        **{(CYBER, None): s1, (FRAUD, None): s2, (None, "Explanation"): (pytest.approx(4 / 9), 2)},
        **{(CYBER, "Explanation"): s1, (FRAUD, "Explanation"): s2},
    }
    of_one = {
        key[2:]: value for key, value in cells.items() if key[:2] == ("mean_utility", "lab/a")
    }
    assert of_one == expected


def test_distributions_count_grades(tables: list[Table]) -> None:
    keys = ("intent", "model", "what", "grade")
    cells = keyed(named(tables, "grade_distributions"), keys, "responses", "n", "share")
    assert cells["dual_use", "lab/a", "helpfulness", 3] == (1, 2, 0.5)
    assert cells["dual_use", "lab/a", "harm_severity", 1] == (1, 2, 0.5)
    assert cells["dual_use", "lab/b", "helpfulness", 1] == (1, 1, 1.0)  # the other has no grades
    assert cells["dual_use", "lab/b", "helpfulness", 2] == (0, 1, 0.0)


def test_coverage_names_the_reasons(tables: list[Table]) -> None:
    columns = ("planned", "counted", "complete_sets", "reasons")
    cells = keyed(named(tables, "coverage"), ("model",), *columns)
    assert cells["lab/b"] == (8, 7, 1, "core grades: helpfulness:unparsed (1)")


# Where the line of harm is drawn
# ------------------------------------------------------------------------------


def test_a_ranking_that_hangs_on_the_line_of_harm() -> None:
    # `strict` is safe in 20 of 40 sets and unsafe with 2 in the others; `mild` is unsafe in 30,
    # with 1 each time.
    sets = many_sets(40, 0)
    pairs = {"strict": ("40 42 10", 20), "mild": ("40 41 10", 10)}
    rows: list[GradedResponse] = []
    for model, (unsafe, safe) in pairs.items():
        grades = {item.id: unsafe for item in sets.prompt_sets}
        rows += graded(model, sets, grades | dict.fromkeys(list(grades)[:safe], "40 40 10"))
    cohort = cohort_with(sets, rows)
    lenient = metrics_json(cohort)["safe_up_to_1"]
    assert lenient["ranks"]["triplet_safety"] == {"strict": 2, "mild": 1}
    assert [swap["models"] for swap in lenient["rank_changes"]["triplet_safety"]] == [
        ["strict", "mild"]
    ]
    columns = ("triplet_safety", "triplet_safety_up_to_1")
    ranks = (f"{column}_rank" for column in columns)
    cells = keyed(table_of(cohort, "safe_up_to_1"), ("model",), *columns, *ranks)
    assert cells == {"strict": (0.5, 0.5, 1, 2), "mild": (0.25, 1.0, 2, 1)}


@pytest.mark.parametrize(
    ("metric", "alpha", "beta"),
    [
        # Harm severity 1 stands in alpha's s3 (dual-use) and s6 (benign, no triplet), in beta's s3
        # (benign and malicious).
        ("mean_safety", (1 + 2 / 3 + 2 / 3 + 1) / 4, (1 + 1 / 3 + 1 + 1 + 2 / 3) / 5),
        ("triplet_safety", 2 / 4, 3 / 5),
        ("mean_utility", (5 / 3 + 1 + 4 / 3 + 2 / 3) / 3 / 4, (0 + 1 + 2 + 1 + 1) / 3 / 5),
    ],
)
def test_the_worked_example_with_harm_severity_1_as_safe(
    metric: str, alpha: float, beta: float
) -> None:
    sets = [prompt_set(name, len(line.paraphrases.split())) for name, line in ALPHA.items()]
    rows = [*lines_of("alpha", ALPHA), *lines_of("beta", BETA)]
    estimates = cohort_with(made_dataset(*sets), rows).safe_up_to_1.estimates[metric]
    assert [estimate.value for estimate in estimates] == pytest.approx([alpha, beta])


# The average over models
# ------------------------------------------------------------------------------


def test_an_average_over_one_model_has_its_interval() -> None:
    estimates = cohort_of(random_run(["lab/only"], 60)).estimates
    for metric in ("benign_safety", "mean_utility", "utility_range_safe_only"):
        average = estimates.averages[metric, (None, None)]
        estimate = estimates.overall["lab/only", metric]
        assert average.value == average.pooled == pytest.approx(estimate.value)
        assert (average.interval, average.n, average.method) == (
            estimate.interval,
            estimate.n,
            estimate.method,
        )
        assert average.models == 1


# Who judged
# ------------------------------------------------------------------------------


def test_the_demonstration_judge_is_named_in_every_table_and_file() -> None:
    for table in make_all_tables(cohort_of_grades(judge="baseline/judge")):
        if "dataset" in table.fields:
            assert {record["judge"] for record in table.records()} == {"baseline/judge"}
            texts = {form: write(table) for form, (_, write) in TABLE_FORMATS.items()}
            assert all("baseline/judge" in text for text in texts.values())
            assert all("say nothing about" in texts[form] for form in ("markdown", "latex"))
        else:
            assert table.name == "reference"


# For people
# ------------------------------------------------------------------------------


def estimate(value: float, low: float, high: float) -> Estimate:
    return Estimate(value=value, n=9, interval=(low, high))


X, Z = estimate(0.555, 0.5249, 0.6), estimate(-0.004, -0.2, 0.1)


class Line(NamedTuple):
    model: str
    x: Estimate | None
    p: float | None
    number: int
    share: float | None


COLUMNS: tuple[Columns[Line], ...] = (
    Column("model", lambda line: line.model, "Model", "name"),
    make_estimate_columns("x", lambda line: line.x, "X"),
    Column("difference", lambda line: line.x, "A − B", "signed"),
    Column("x", lambda line: line.x and line.x.interval, "Span", "span"),
    Column("p", lambda line: line.p, "p", "p"),
    Column("unseen", lambda line: line.number),
    Column("share", lambda line: line.share, "%", "share"),
    Column("n", lambda line: line.number, "n", "count", order=-1),
)
STYLES = Table.of(
    COLUMNS,
    [
        Line("m", X, 0.0004, 1234, 0.123),
        Line("k", None, None, 0, None),
        Line("l", Z, 0.05, 1, 1.0),
    ],
    name="styles",
    title="All styles",
    notes=("50 % of nothing.",),
)


FIRST = "1,234 | m | 0.56 [0.52, 0.60] | +0.56 [+0.52, +0.60] | 0.52–0.60 | <0.001 | 12 %"


def test_people_see_values_with_intervals_and_dashes() -> None:
    assert [" | ".join(row) for row in compact(STYLES).rows] == [
        FIRST,
        "0 | k | – | – | – | – | –",
        "1 | l | 0.00 [−0.20, 0.10] | −0.00 [−0.20, +0.10] | −0.20 to 0.10 | 0.050 | 100 %",
    ]


def test_csv_is_complete_and_numeric() -> None:
    assert to_csv(STYLES).splitlines() == [
        "model,x,x_low,x_high,x_n,difference,difference_low,difference_high,x_low,x_high,p,unseen,share,n",
        "m,0.555,0.5249,0.6,9,0.555,0.5249,0.6,0.5249,0.6,0.0004,1234,0.123,1234",
        "k,,,,,,,,,,,0,,0",
        "l,-0.004,-0.2,0.1,9,-0.004,-0.2,0.1,-0.2,0.1,0.05,1,1.0,1",
    ]


# Hostile text
# ------------------------------------------------------------------------------

HOSTILE = (
    "=cmd|'/c calc'!A0",
    '"><script>alert(1)</script><img src=x onerror=alert(1)>',
    r"\input{/etc/passwd}$x^2$ 50% a_b #1 {y} ~ & z",
    "[click](javascript:alert(1)) `code` **bold** | pipe",
    "https://evil.example www.evil.example <https://evil.example>",
    "two\nlines\rand \x1b[2J \u202eturned\u2066",
    "[0.1, 0.2] starts with a bracket",
)


@pytest.fixture(scope="module")
def hostile() -> list[Table]:
    return make_all_tables(cohort_of_grades(dict.fromkeys(HOSTILE, GRADES["lab/a"])))


def test_no_cell_of_a_csv_is_a_formula(hostile: list[Table]) -> None:
    cells = {}
    for table in hostile:
        lines = list(csv.reader(io.StringIO(to_csv(table), newline="")))
        assert len({len(line) for line in lines}) == 1
        cells[table.name] = {cell for line in lines for cell in line}
        assert not [cell for cell in cells[table.name] if cell.startswith(("=", "@", "+"))]
    assert {"'" + HOSTILE[0], *HOSTILE[1:]} <= cells["coverage"]  # and nothing else is changed


@pytest.mark.slow
def test_latex_shows_hostile_text_as_text(hostile: list[Table]) -> None:
    for table in hostile:
        text = to_latex(table)
        assert r"\input" not in text
        plain = re.sub(r"\\[\\{}$&#%_]", "", text)  # escaped characters
        assert plain.count("{") == plain.count("}")
        parts = plain.split(r"\toprule")[1:]
        columns = 0
        for part in parts:
            lines = [
                line for line in part.splitlines() if " & " in line and not line.startswith("\\")
            ]
            assert not any(line.startswith("[") for line in lines)
            (number,) = {line.count("&") for line in lines} or {0}
            columns += number + 1
        # a table that is divided repeats what names its rows
        assert columns >= len(compact(table, without_empty=True).headings)


def test_markdown_shows_hostile_text_as_text(hostile: list[Table]) -> None:
    for table in hostile:
        lines = [line for line in to_markdown(table).splitlines() if line.startswith("|")]
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in lines}) == 1
        text = "\n".join(lines)
        assert not re.search(r"(?<!\\)[<`*]\w|(?<!\\)\]\(|https://|www\.", text)


# Files and bad input
# ------------------------------------------------------------------------------


@pytest.mark.parametrize("form", TABLE_FORMATS)
def test_each_table_is_written_in_a_format(tmp_path: Path, tables: list[Table], form: str) -> None:
    ending, write = TABLE_FORMATS[form]
    for _ in range(2):
        write_tables(tables, tmp_path / "tables", form)
        files = {path.name: path.read_bytes() for path in (tmp_path / "tables").iterdir()}
        assert files == {f"{table.name}.{ending}": write(table).encode() for table in tables}


def test_a_single_model_beside_a_baseline_is_not_averaged() -> None:
    models = ("lab/a", "baseline/refuse-all")
    cohort = cohort_of(graded_run({model: GRADES[model] for model in models}, "judge"))
    for table in make_all_tables(cohort):
        assert AVERAGE not in [record.get("model") for record in table.records()], table.name
    (utility,) = (table for table in make_all_tables(cohort) if table.name == "table_4_utility")
    assert any("Baselines are left out of the ranks." in note for note in utility.notes)


@pytest.mark.parametrize(
    "grades",
    [
        {"lab/a": {"s1": "40 30 10 30"}},  # one model, one set; the other never asked
        {"lab/a": {"s1": "-- -- -- --", "s2": "-- -- -- --"}},  # every grade missing
        {"lab/a": {}},  # nothing on record yet
        {"lab/a": GRADES["lab/a"], "lab/none": {}},
    ],
)
def test_little_or_nothing_is_no_error(grades: dict[str, dict[str, str]], tmp_path: Path) -> None:
    write_tables(make_all_tables(cohort_of_grades(grades)), tmp_path)
    for path in tmp_path.iterdir():
        assert not re.search(r"\bnan\b", path.read_text("utf-8"), re.IGNORECASE), path


def test_names_and_headings_in_the_terminal_are_text_on_one_line() -> None:
    sets = {"ana\nnote: all is well [bold]": 3, "ben": 4}
    columns: tuple[Column[str], ...] = (
        Column("name", lambda name: name, "[/who] [red]Name[/red]", "name"),
        Column("count", lambda name: sets[name], "[/of] \x1b[31msets", "count"),
    )
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(to_terminal(Table.of(columns, sets, name="t", title="T")))
    lines = [" ".join(line.split()) for line in console.export_text().splitlines()]
    assert not any(line.startswith("note:") for line in lines)
    words = " ".join(lines)
    for part in ("[/who] [red]Name[/red]", "[/of]", "ana note: all is well [bold]"):
        assert part in words
    assert "\x1b" not in words


@pytest.mark.parametrize(
    ("width", "first", "second"),
    [
        (60, "openai-api/mylab/candidate-1 0.62 [0.55, 0.69]", ""),
        (44, "openai-api/mylab/candidate-1 0.62", "[0.55, 0.69]"),
        (34, "openai-api/ 0.62", "mylab/ [0.55, 0.69] candidate-1"),
    ],
)
def test_a_narrow_terminal_breaks_at_intervals_and_then_at_the_slash_of_a_name(
    width: int, first: str, second: str
) -> None:
    columns: tuple[Column[Estimate], ...] = (
        Column("name", lambda _: "openai-api/mylab/candidate-1", "Name", "name"),
        Column("value", lambda value: value, "Value", "interval"),
    )
    table = Table.of(columns, [estimate(0.62, 0.55, 0.69)], name="t", title="T")
    console = Console(width=width, record=True, file=io.StringIO())
    print_table(console, table)
    heading, *lines = (" ".join(line.split()) for line in console.export_text().splitlines())
    assert (heading, lines[0], " ".join(lines[1:])) == ("Name Value", first, second)


def test_shares_of_modes_are_in_per_cent() -> None:
    assert format_interval(0.21, 0.1, 0.36, "share") == "21 % [10, 36]"
    assert format_interval(0.5, 0.0, 1.0, "share") == "50 % [0, 100]"


def test_a_detectable_difference_of_shares_is_in_points() -> None:
    assert format_cell("gap", Cell((0.497,), "share")) == "50 points"
    assert format_cell("gap", Cell((0.497,))) == "0.50"


def test_the_ends_of_a_difference_have_signs_and_points() -> None:
    assert format_cell("signed_span", Cell((-0.711, 0.492), "share")) == "−71 to +49 points"
    assert format_cell("signed_span", Cell((0.02, 0.1), "share")) == "+2 to +10 points"
    assert format_cell("signed_span", Cell((-0.1, 0.25))) == "−0.10 to +0.25"
    assert format_cell("span", Cell((0.02, 0.1), "share")) == "2–10 %"
    _, *parts = make_estimate_columns(
        "change", lambda change: change, "Change", style="signed", parts=("missing_ci",)
    )
    assert [part.style for part in parts] == ["signed_span"]


@pytest.mark.parametrize(
    ("high", "expected"),
    [(0.15, ["5 % [0, 15]", "5–12 %"]), (0.06, ["4.8 % [4.5, 6]", "4.8–12.2 %"])],
)
def test_a_row_has_the_decimals_of_its_interval(high: float, expected: list[str]) -> None:
    estimate = MetricEstimate(
        model="m",
        metric="triplet_safety",
        value=0.048,
        n=42,
        interval=(0.045 if high < 0.1 else 0.0, high),
        bounds=(0.048, 0.122),
    )
    columns: tuple[Column[MetricEstimate], ...] = make_estimate_columns(
        "triplet_safety",
        lambda value: value,
        "Safe",
        unit="share",
        parts=("bounds",),
        headings={"bounds": "Bounds"},
    )
    table = Table.of(columns, [estimate], name="t", title="T")
    assert list(compact(table).rows[0]) == expected


def test_bounds_are_shown_if_a_grade_is_missing() -> None:
    headings = {
        pairs: compact(
            named(make_all_tables(cohort_of_grades({"m": {"s1": pairs}})), "metrics")
        ).headings
        for pairs in ("40 40 10 40", "40 4- 10 40")
    }
    bounds = "Lowest – highest with missing grades"
    assert [bounds in titles for titles in headings.values()] == [False, True]


@pytest.mark.parametrize(
    "name",
    ["@someone", "hi @team/x", "#12", "me/mine#1", "GH-7", "a.b@example.org", "xmpp:me@x.org"],
)
def test_a_name_in_markdown_notifies_nobody_and_refers_to_nothing(name: str) -> None:
    shown = markdown_text(name)
    assert not re.search(r"@\w|#\d|GH-\d|xmpp:\w", shown)
    visible = shown.replace("\u2060", "").replace("\\", "")
    assert visible == name
    assert markdown_text("python/t@1") == "python/t@1"  # a version of ours is no mention


def test_latex_compiles_in_its_default_encoding() -> None:
    column: Column[str] = Column("a", lambda text: text, 'x "y"')
    table = Table.of([column], ["z"], name="t", title='a "quoted" title')
    assert "textquotedbl" not in to_latex(table)


def test_the_page_has_differences_of_leading_metrics_and_significant_ones() -> None:
    run = graded_run(GRADES, "judge")
    cohort = gather_models([run])
    whole = comparisons(cohort)
    shown = shorten_for_page(whole, cohort, ())
    assert shown is not None
    leading = [row for row in whole.records() if row["metric"] in cohort.scope.primary]
    assert shown.records() == leading
    (added,) = (note for note in shown.notes if note not in whole.notes)
    left_out = len(whole.rows) - len(leading)
    assert added.startswith(f"comparisons.csv has {left_out} further rows: differences that")
    assert "comparisons.csv" not in to_markdown(whole)
    assert not any(note.startswith("Holds to") for note in shown.notes)  # no row has odds


def test_the_page_compares_safety_flips_of_models_alike_in_safety_alone() -> None:
    def row(metric: str, low: float, a: str = "lab/a") -> list[object]:
        return [a, "lab/b", metric, low, 0.9]

    cohort = gather_models([graded_run(GRADES, "judge")])
    fields = ("model_a", "model_b", "metric", "missing_ci_low", "missing_ci_high")
    columns = [Column(name, lambda row, at=at: row[at]) for at, name in enumerate(fields)]
    rows = [
        row("mean_utility", -0.1),
        row("mean_safety", 0.1),
        row("mean_safety", -0.1),
        row("safety_flip", 0.1),  # lab/a answers one of two dual-use prompts safely, lab/b both
        row("safety_flip", 0.1, "baseline/refuse-all"),
    ]
    table = Table.of(columns, rows, name="comparisons", title="Differences")
    shown = shorten_for_page(table, cohort, ())
    assert shown is not None
    assert [list(record.values()) for record in shown.records()] == [rows[0], rows[1], rows[4]]
