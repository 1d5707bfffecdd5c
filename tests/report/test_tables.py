"""Tables: numbers checked by hand, and text from outside harmless in every format."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from rich.console import Console

from opensafeintent.analysis.cohort import Group, group_studies
from opensafeintent.analysis.estimates import AVERAGE
from opensafeintent.grades import GradeRow
from opensafeintent.metrics import METRICS
from opensafeintent.report.formats import (
    FORMATS,
    Cell,
    Column,
    Table,
    compact,
    estimate_columns,
    shortened,
    to_csv,
    to_latex,
    to_markdown,
    to_terminal,
)
from opensafeintent.report.metrics_json import metrics_json
from opensafeintent.report.tables import all_tables, write_tables
from opensafeintent.statistics import Estimate
from report.pages import group_with, rows_of as graded
from report.studies import many_sets, random_study, study_with
from samples import grade_line, made_dataset, prompt_set
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
STRATEGIES = {("lab/a", "s2"): "full"}


def rows_of(grades: dict[str, dict[str, str]] = GRADES, judge: str = "lab/judge") -> list[GradeRow]:
    return [
        grade_line(
            model,
            set_id,
            variant,
            pair,
            mode=MODES.get((model, set_id)) if variant == "dual_use" else None,
            strategy=STRATEGIES.get((model, set_id)) if variant == "dual_use" else None,
            missing=("harm_severity:unparsed",) if pair == "--" else (),
            by_judge={judge: (None, None)},
        )
        for model, sets in grades.items()
        for set_id, pairs in sets.items()
        for variant, pair in zip(DATASET.by_id[set_id].wordings(), pairs.split(), strict=True)
    ]


def groups_of(grades: dict[str, dict[str, str]] = GRADES, judge: str = "lab/judge") -> list[Group]:
    return group_studies([study_with(rows_of(grades, judge), DATASET, list(grades), judge=judge)])


def named(tables: Sequence[Table], name: str) -> Table:
    return next(table for table in tables if table.name == name)


@pytest.fixture(scope="module")
def tables() -> list[Table]:
    return all_tables(groups_of())


def by_model(table: Table, *columns: str) -> dict[Cell, tuple[Cell, ...]]:
    return {
        record["model"]: tuple(record[column] for column in columns) for record in table.records()
    }


# Numbers
# ------------------------------------------------------------------------------


def test_names_are_the_papers() -> None:
    assert [table.name for table in all_tables(groups_of())] == [
        *("table_1_domains", "table_2_task_types", "table_4_utility", "harm_threshold"),
        *("table_5_modes", "table_6_utility_range", "probe"),
        *("comparisons", "metrics", "strata", "grade_distributions", "coverage", "reference"),
    ]


def test_utility_is_ranked_and_averaged_without_baselines(tables: list[Table]) -> None:
    table = named(tables, "table_4_utility")
    found = by_model(table, "mean_utility", "mean_utility_n", "mean_utility_models")
    # a: s1 (1 + 2/3 + 0)/3 = 5/9, s2 (1 + 0 + 0)/3 = 1/3, mean 4/9. b: s1 alone counts, 0. Average
    # of the two: 2/9.
    assert list(found) == ["lab/a", "baseline/refuse-all", "lab/b", AVERAGE]
    assert found["lab/a"] == (pytest.approx(4 / 9), 2, None)
    assert found["lab/b"] == (0.0, 1, None)
    assert found[AVERAGE] == (pytest.approx(2 / 9), 2, 2)
    # Dual-use: 2/3 and 0. Worst case the same. Safe triplets: s1 of two. Safe responses: 5 of 6.
    # Raw helpfulness: (1 + 2/3 + 0)/3 = 5/9 and (1 + 1 + 0)/3 = 2/3, mean 11/18.
    columns = ("benign_utility", "dual_use_utility", "malicious_utility", "worst_case_utility")
    more = ("triplet_safety", "mean_safety", "mean_helpfulness")
    assert by_model(table, *columns, *more)["lab/a"] == pytest.approx(
        (1, 1 / 3, 0, 1 / 3, 1 / 2, 5 / 6, 11 / 18)
    )
    # b's dual-use response to s2 may have had a utility of 0 or of 1; that to s1 has 0.
    bounds = by_model(table, "dual_use_utility_bounds_low", "dual_use_utility_bounds_high")
    assert bounds["lab/b"] == pytest.approx((0, 1 / 2))
    assert bounds["lab/a"] == pytest.approx((1 / 3, 1 / 3))
    # nothing is significant
    ranks = by_model(table, "mean_utility_rank_low", "mean_utility_rank_high")
    assert ranks == dict.fromkeys(GRADES, (1, 3)) | {AVERAGE: (None, None)}


def test_modes_have_shares_and_unsafe_rates(tables: list[Table]) -> None:
    records = {(r["model"], r["mode"]): r for r in named(tables, "table_5_modes").records()}
    columns = ("share", "share_n", "unsafe_rate", "unsafe_rate_n")
    assert [records["lab/a", "A4"][column] for column in columns] == [0.5, 2, 1.0, 1]
    assert [records["lab/a", "A0"][column] for column in columns] == [0.0, 2, None, 0]
    # A4: half of a's responses and none of b's one: mean 1/4, pooled 1 of 3. Its unsafe rate exists
    # for a alone.
    average = records[AVERAGE, "A4"]
    columns = ("share", "share_pooled", "share_models", "unsafe_rate", "unsafe_rate_models")
    assert [average[column] for column in columns] == [0.25, pytest.approx(1 / 3), 2, 1.0, 1]


def test_stability_and_failures(tables: list[Table]) -> None:
    columns = ("stable_safe", "safety_flip", "utility_range", "utility_range_safe_only")
    found = by_model(named(tables, "table_6_utility_range"), *columns, "utility_range_n")
    # s1: both safe, the same help. s2: unsafe and safe, utility 0 and 0.
    assert found["lab/a"] == (0.5, 0.5, 0.0, 0.0, 2)
    columns = ("detection_failure", "execution_failure", "detection_failure_n")
    probe = by_model(named(tables, "probe"), *columns)
    assert (probe["lab/a"], probe["lab/b"]) == ((1.0, 0.0, 1), (None, None, 0))


def test_points_of_reference_stand_beside_the_numbers(tables: list[Table]) -> None:
    records = {
        record["metric"]: (record["oracle"], record["refuse_all"])
        for record in named(tables, "reference").records()
    }
    assert records["mean_utility"] == (pytest.approx(7 / 9), 0.0)  # (1 + 2/3 + 2/3) / 3
    assert records["triplet_safety"] == (1.0, 1.0)
    assert "detection_failure" not in records  # neither is ever unsafe


def test_comparisons_are_of_every_pair_and_metric(tables: list[Table]) -> None:
    records = named(tables, "comparisons").records()
    assert len(records) == 3 * 6
    (one,) = (
        [r[column] for column in ("difference", "n", "p", "p_adjusted", "detectable")]
        for r in records
        if (r["model_a"], r["model_b"], r["metric"]) == ("lab/a", "lab/b", "mean_utility")
    )
    # Only s1 counts for both: 0 − 5/9. Of the two sign flips of one difference both are as extreme:
    # p = 1.
    assert one == [pytest.approx(-5 / 9, abs=1e-6), 1, 1.0, 1.0, None]


def test_strata_hold_their_sets(tables: list[Table]) -> None:
    found = {
        (r["harm_domain"], r["task_type"]): (r["value"], r["n"])
        for r in named(tables, "strata").records()
        if (r["metric"], r["model"]) == ("mean_utility", "lab/a")
    }
    s1, s2 = (pytest.approx(5 / 9), 1), (pytest.approx(1 / 3), 1)
    assert found == {
        **{(CYBER, None): s1, (FRAUD, None): s2, (None, "Explanation"): (pytest.approx(4 / 9), 2)},
        **{(CYBER, "Explanation"): s1, (FRAUD, "Explanation"): s2},
    }


def test_distributions_count_grades(tables: list[Table]) -> None:
    found = {
        (r["model"], r["what"], r["grade"]): (r["responses"], r["n"], r["share"])
        for r in named(tables, "grade_distributions").records()
        if r["intent"] == "dual_use"
    }
    assert found["lab/a", "helpfulness", 3] == found["lab/a", "harm_severity", 1] == (1, 2, 0.5)
    assert found["lab/b", "helpfulness", 1] == (1, 1, 1.0)  # the other one has no grades
    assert found["lab/b", "helpfulness", 2] == (0, 1, 0.0)


def test_coverage_names_the_reasons(tables: list[Table]) -> None:
    found = by_model(
        named(tables, "coverage"), "planned", "counted", "complete_triplets", "reasons"
    )
    assert found["lab/b"] == (8, 7, 1, "core unparsed: 1")


# Where the line of harm is drawn
# ------------------------------------------------------------------------------


def test_a_ranking_that_hangs_on_the_line_of_harm() -> None:
    # `strict` is safe in 20 of 40 sets and unsafe with 2 in the others; `mild` is unsafe in 30,
    # with 1 each time.
    sets = many_sets(40, 0)
    pairs = {"strict": ("40 42 10", 20), "mild": ("40 41 10", 10)}
    rows = [
        row
        for model, (unsafe, safe) in pairs.items()
        for row in graded(
            model,
            sets,
            {
                item.id: "40 40 10" if n < safe else unsafe
                for n, item in enumerate(sets.prompt_sets)
            },
        )
    ]
    group = group_with(sets, rows)
    lenient = metrics_json([group])["safe_up_to_1"][0]
    assert lenient["ranks"]["triplet_safety"] == {"strict": 2, "mild": 1}
    assert [swap.models for swap in lenient["swaps"]["triplet_safety"]] == [("strict", "mild")]
    table = named(all_tables([group]), "harm_threshold")
    columns = ("triplet_safety", "triplet_safety_up_to_1")
    found = by_model(table, *columns, *(f"{column}_rank" for column in columns))
    assert found == {"strict": (0.5, 0.5, 1, 2), "mild": (0.25, 1.0, 2, 1)}


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
    dataset = made_dataset(
        *(prompt_set(name, len(line.paraphrases.split())) for name, line in ALPHA.items())
    )
    group = group_with(dataset, [*lines_of("alpha", ALPHA), *lines_of("beta", BETA)])
    assert [found.value for found in group.lenient.estimates[metric]] == pytest.approx(
        [alpha, beta]
    )


# The average over models
# ------------------------------------------------------------------------------


def test_an_average_over_one_model_has_its_interval() -> None:
    numbers = group_studies([random_study(["lab/only"], 60)])[0].numbers
    for metric in ("benign_safety", "mean_utility", "utility_range_safe_only"):
        average, one = numbers.averages[metric, (None, None)], numbers.overall["lab/only", metric]
        assert (average.value, average.interval) == (pytest.approx(one.value), one.interval)
        assert (average.n, average.method, average.models) == (one.n, one.method, 1)
        assert average.pooled == pytest.approx(one.value)


def test_an_average_over_alike_models_is_no_surer_than_one() -> None:
    grades = {f"lab/{n}": GRADES["lab/a"] for n in range(10)}
    ten = groups_of(grades)[0].numbers.averages["triplet_safety", (None, None)]
    one = groups_of({"lab/0": GRADES["lab/a"]})[0].numbers.averages["triplet_safety", (None, None)]
    assert ten.value == one.value == 0.5
    assert (ten.high or 0) - (ten.low or 0) > 0.9  # of two prompt-sets nothing is known


def test_there_is_no_average_over_baselines() -> None:
    tables = all_tables(groups_of({"baseline/refuse-all": GRADES["lab/b"]}))
    assert [r["model"] for r in named(tables, "table_4_utility").records()] == [
        "baseline/refuse-all"
    ]
    assert {r["model"] for r in named(tables, "table_5_modes").records()} == {"baseline/refuse-all"}


# Who judged
# ------------------------------------------------------------------------------


def test_the_demonstration_judge_is_named_in_every_table_and_file() -> None:
    for table in all_tables(groups_of(judge="baseline/judge")):
        if "dataset" in table.fields:
            assert {record["judge"] for record in table.records()} == {"baseline/judge"}
            assert all("baseline/judge" in FORMATS[ending](table) for ending in FORMATS)
            assert all("say nothing about" in FORMATS[ending](table) for ending in ("md", "tex"))
        else:
            assert table.name in ("table_1_domains", "table_2_task_types", "reference")


def test_groups_are_numbered_and_said() -> None:
    studies = [
        study_with(rows_of(judge=judge), DATASET, list(GRADES), judge=judge, name=judge)
        for judge in ("lab/judge", "baseline/judge")
    ]
    table = named(all_tables(group_studies(studies)), "table_4_utility")
    assert [record["group"] for record in table.records()] == [1] * 4 + [2] * 4
    assert compact(table).headings[:2] == ("Group", "Model")
    text = to_markdown(table)
    assert "Group 1: dataset made (2 prompt-sets), judge lab/judge." in text
    assert "Group 2: Graded by baseline/judge" in text


# For people
# ------------------------------------------------------------------------------


def estimate(value: float, low: float, high: float) -> Estimate:
    return Estimate(value=value, n=9, interval=(low, high))


X, Z = estimate(0.555, 0.5249, 0.6), estimate(-0.004, -0.2, 0.1)
STYLES = Table(
    name="styles",
    title="All styles",
    columns=(
        Column("model", "Model", "name"),
        *estimate_columns("x", "X"),
        Column("difference", "A − B", "signed"),
        Column("x", "Span", "span"),
        Column("p", "p", "p"),
        Column("unseen"),
        Column("share", "%", "share"),
        Column("n", "n", "count", order=-1),
    ),
    rows=[
        ("m", X, X, X.interval, 0.0004, 1234, 0.123, 1234),
        ("k", None, None, None, None, 0, None, 0),
        ("l", Z, Z, Z.interval, 0.05, 1, 1.0, 1),
    ],
    notes=("50 % of nothing.",),
)


def test_people_see_values_with_intervals_and_dashes() -> None:
    first, *others = compact(STYLES).rows
    assert " | ".join(first) == (
        "1,234 | m | 0.56 [0.52, 0.60] | +0.56 [+0.52, +0.60] | 0.52–0.60 | <0.001 | 12.3 %"
    )
    assert [" | ".join(row) for row in others] == [
        "0 | k | – | – | – | – | –",
        "1 | l | 0.00 [−0.20, 0.10] | +0.00 [−0.20, +0.10] | −0.20–0.10 | 0.050 | 100.0 %",
    ]


def test_csv_is_complete_and_numeric() -> None:
    assert to_csv(STYLES).splitlines() == [
        "model,x,x_low,x_high,x_n,difference,difference_low,difference_high,x_low,x_high,p,unseen,share,n",
        "m,0.555,0.5249,0.6,9,0.555,0.5249,0.6,0.5249,0.6,0.0004,1234,0.123,1234",
        "k,,,,,,,,,,,0,,0",
        "l,-0.004,-0.2,0.1,9,-0.004,-0.2,0.1,-0.2,0.1,0.05,1,1.0,1",
    ]


def test_markdown_is_a_table() -> None:
    lines = to_markdown(STYLES).splitlines()
    assert lines[2:5] == [
        "| n | Model | X | A − B | Span | p | % |",
        "|---:|:---|---:|---:|---:|---:|---:|",
        "| 1,234 | m | 0.56 [0.52, 0.60] | +0.56 [+0.52, +0.60] | 0.52–0.60 | <0.001 | 12.3 % |",
    ]
    assert lines[-1] == "*50 % of nothing.*"


def test_latex_is_a_booktabs_table() -> None:
    lines = to_latex(STYLES).splitlines()
    assert r"\begin{tabular}{rlrrrrr}" in lines
    assert r"n & Model & X & A $-$ B & Span & p & \% \\" in lines
    assert (
        r"1,234 & m & 0.56 [0.52, 0.60] & +0.56 [+0.52, +0.60] & 0.52--0.60 & $<$0.001 & 12.3 \% \\"
        in lines
    )
    assert [lines.count(rule) for rule in (r"\toprule", r"\midrule", r"\bottomrule")] == [1, 1, 1]
    assert r"50 \% of nothing.\par}" in lines


def test_a_long_table_breaks_over_pages_in_latex() -> None:
    rows = [(n,) for n in range(100)]
    text = to_latex(Table(name="long", title="Long", columns=(Column("x", "x"),), rows=rows))
    parts = (r"\begin{longtable}", r"\end{longtable}", r"\endhead", "tabular")
    assert [text.count(part) for part in parts] == [1, 1, 1, 0]


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
    return all_tables(groups_of(dict.fromkeys(HOSTILE, GRADES["lab/a"])))


def test_no_cell_of_a_csv_is_a_formula(hostile: list[Table]) -> None:
    for table in hostile:
        lines = list(csv.reader(io.StringIO(to_csv(table), newline="")))
        assert len({len(line) for line in lines}) == 1
        assert not [cell for line in lines for cell in line if cell.startswith(("=", "@", "+"))]
    cells = {
        cell
        for line in csv.reader(io.StringIO(to_csv(named(hostile, "coverage")), newline=""))
        for cell in line
    }
    assert {"'" + HOSTILE[0], *HOSTILE[1:]} <= cells  # and nothing else is changed


@pytest.mark.slow
def test_latex_shows_hostile_text_as_text(hostile: list[Table]) -> None:
    for table in hostile:
        text = to_latex(table)
        assert r"\input" not in text
        plain = re.sub(r"\\[\\{}$&#%_]", "", text)  # escaped characters
        body = plain[
            plain.index(r"\midrule") : (
                plain.index(r"\bottomrule") if r"\endhead" not in plain else None
            )
        ]
        assert plain.count("{") == plain.count("}")
        for line in body.splitlines():
            if " & " in line and not line.startswith("\\"):
                assert line.count("&") == len(compact(table).headings) - 1
                assert not line.startswith("[")


def test_markdown_shows_hostile_text_as_text(hostile: list[Table]) -> None:
    for table in hostile:
        lines = [line for line in to_markdown(table).splitlines() if line.startswith("|")]
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in lines}) == 1
        text = "\n".join(lines)
        assert not re.search(r"(?<!\\)[<`*]\w|(?<!\\)\]\(|https://|www\.", text)


def test_a_name_is_shortened_in_the_middle() -> None:
    assert shortened("lab/model", 9) == "lab/model"
    assert shortened("lab/family/model-12b", 10) == "lab…el-12b"
    assert len(shortened("x" * 500, 34)) == 34


# Files and bad input
# ------------------------------------------------------------------------------


def test_each_table_is_written_in_three_formats(tmp_path: Path, tables: list[Table]) -> None:
    write_tables(tables, tmp_path / "tables")
    before = {path.name: path.read_bytes() for path in (tmp_path / "tables").iterdir()}
    assert before.keys() == {
        f"{table.name}.{ending}" for table in tables for ending in ("csv", "md", "tex")
    }
    write_tables(all_tables(groups_of()), tmp_path / "tables")
    assert {path.name: path.read_bytes() for path in (tmp_path / "tables").iterdir()} == before


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
    tables = all_tables(groups_of(grades))
    write_tables(tables, tmp_path)
    for table in tables:
        assert not [
            cell
            for row in table.records()
            for cell in row.values()
            if isinstance(cell, float) and cell != cell
        ]
    assert "nan" not in "".join(
        path.read_text("utf-8") for path in tmp_path.iterdir()
    ).lower().replace("finan", "")


def test_names_and_headings_in_the_terminal_are_text_on_one_line() -> None:
    table = Table(
        name="t",
        title="T",
        columns=(
            Column("name", "[/who] [red]Name[/red]", "name"),
            Column("count", "[/of] \x1b[31msets", "count"),
        ),
        rows=[("ana\nnote: all is well [bold]", 3), ("ben", 4)],
    )
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(to_terminal(table))
    shown = [line.split() for line in console.export_text().splitlines()]
    assert not any(line[:1] == ["note:"] for line in shown)
    words = " ".join(word for line in shown for word in line)
    for part in ("[/who] [red]Name[/red]", "[/of]", "ana note: all is well [bold]"):
        assert part in words
    assert "\x1b" not in words


def test_the_long_table_has_every_metric_of_every_model(tables: list[Table]) -> None:
    table = named(tables, "metrics")
    assert len(table.rows) == (3 + 1) * len(METRICS)
    undefined = [r for r in table.records() if r["n"] == 0]
    assert undefined
    assert all(r["value"] is None and r["value_low"] is None for r in undefined)
