"""Knowing and doing in tables, figure, sentence, `metrics.json` and at the terminal."""

from __future__ import annotations

from typing import Any

import pytest

from opensafeintent.analysis.groups import Group
from opensafeintent.metrics import METRICS
from opensafeintent.report.beyond import beyond
from opensafeintent.report.figures import figure_of
from opensafeintent.report.metrics_json import metrics_json
from opensafeintent.report.tables import all_tables
from opensafeintent.report.tables.brief import knowing
from opensafeintent.taxonomy import CORE_VARIANTS
from report.pages import group_with
from report.studies import many_sets
from samples import grade_line

SETS = many_sets(40, 0)
ALL = ("full", "constrained", "refuse")


def probed(**models: tuple[tuple[str | None, ...], str]) -> Group:
    """Make a group of models, each with one strategy and one pair of grades an intent in all of the
    sets.
    """
    rows = [
        grade_line(model.replace("_", "/"), item.id, variant, pair, strategy=strategy)
        for model, (strategies, pairs) in models.items()
        for item in SETS.prompt_sets
        for variant, pair, strategy in zip(CORE_VARIANTS, pairs.split(), strategies, strict=True)
    ]
    return group_with(SETS, rows)


@pytest.fixture(scope="module")
def group() -> Group:
    """One that knows and does not, one that does without saying it, one of which only dual-use
    prompts were probed.
    """
    return probed(
        lab_knows=(ALL, "40 41 43"),
        lab_does=(("full",) * 3, "40 30 10"),
        lab_asked_less=((None, "full", None), "40 41 10"),
    )


def lines(group: Group, name: str) -> dict[str, dict[str, Any]]:
    (table,) = (table for table in all_tables([group]) if table.name == name)
    return {str(record["model"]): record for record in table.records()}


def test_the_table_has_words_and_deeds(group: Group) -> None:
    found = lines(group, "knowing")
    knows, does, less = (found[f"lab/{model}"] for model in ("knows", "does", "asked/less"))
    names = (
        "intent_discrimination",
        "intent_sensitivity_dual_use_malicious",
        "knowing_minus_doing",
    )
    assert [knows[name] for name in names] == [1.0, 0.5, 0.5]
    assert [does[name] for name in names] == [0.5, 1.0, -0.5]
    assert [less[name] for name in names] == [None, 1.0, None]
    # 40 sets that are all alike: at most 1 − .05^(1/40) = 7.2 % of others were missed, at the other
    # end of the span.
    assert knows["knowing_minus_doing_low"] == pytest.approx(
        0.5 - 1.5 * (1 - 0.05 ** (1 / 40)), abs=1e-6
    )
    assert found["model average"]["knowing_minus_doing"] == 0.0
    assert found["model average"]["knowing_minus_doing_models"] == 2
    (shown,) = (table for table in all_tables([group]) if table.name == "knowing")
    headings = [column.heading for _, column in shown.shown]
    assert headings[1:4] == [
        "Knowing",
        "Doing",
        "Knowing − doing",
    ]


def test_models_that_were_probed_are_compared_in_what_they_know(group: Group) -> None:
    found = metrics_json([group])["comparisons"][0]["intent_discrimination"]["pairs"]
    pairs = {(pair["a"], pair["b"]): pair["difference"] for pair in found}
    assert pairs == {("lab/does", "lab/knows"): 0.5}  # the third model was not asked


def test_where_only_unsafe_responses_were_probed_nothing_is_shown() -> None:
    group = probed(lab_asked_less=((None, "full", None), "40 41 10"))
    assert not {"knowing", "unsafe_given"} & {table.name for table in all_tables([group])}
    with pytest.raises(ValueError, match="not enough values"):
        figure_of([group], "fig_knowing")
    assert "Knowing and doing" not in [sentence.topic for sentence in beyond(group)]
    found = metrics_json([group])["models"]["lab/asked/less"]
    undefined = {"value": None, "n": 0, "ci": None, "ci_method": None, "bounds": None}
    assert "intent_discrimination" not in metrics_json([group])["comparisons"][0]
    assert all(
        found[name] == undefined for name, metric in METRICS.items() if metric.needs == "probes"
    )


def test_the_figure_has_words_up_and_deeds_to_the_right(group: Group) -> None:
    figure = figure_of([group], "fig_knowing")
    points = [row for row in figure.spec["data"]["values"] if "shown_x" in row]
    assert {row["model"]: (row["x"], row["y"]) for row in points} == {
        "lab/knows": (0.5, 1.0),
        "lab/does": (1.0, 0.5),
    }
    assert {record["metric"] for record in figure.table.records()} == {
        *("intent_discrimination", "intent_sensitivity_dual_use_malicious", "knowing_minus_doing")
    }


def test_the_sentence_names_the_widest_gap_and_counts_those_beyond_chance() -> None:
    group = probed(
        lab_knows=(ALL, "40 41 43"),
        lab_does=(("full",) * 3, "40 30 30"),
        lab_both=(ALL, "40 30 10"),
        baseline_x=(ALL, "40 40 40"),
    )
    (text,) = (sentence.text for sentence in beyond(group) if sentence.topic == "Knowing and doing")
    assert (
        text.replace("\u00a0", " ")
        == "Shown the prompts alone, lab/knows tells malicious from dual-use ones at 1.00 by the"
        " strategy that it calls for, and at 0.50 by the help that it gives, where 0.5 is not at"
        " all and 1 always: it knows more than it does, by 0.50 (knowing minus doing, 95 %"
        " interval 0.39 to 0.54). Of 3 models 1 knows more than it does and none do more than"
        " they say, by more than chance explains. This is a stated policy, not knowledge."
    )


def test_the_terminal_has_a_line_for_each_model_that_was_probed(group: Group) -> None:
    records = knowing(group).records()
    assert {
        (record["model"], record["difference"], record["difference_n"]) for record in records
    } == {*(("lab/knows", 0.5, 40), ("lab/does", -0.5, 40))}
