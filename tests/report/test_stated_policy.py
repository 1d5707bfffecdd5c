"""Stated policy against behaviour in tables, figure, `metrics.json` and at the terminal."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from opensafeintent.numbers.cohort import Cohort
from opensafeintent.numbers.estimates import get_reference
from opensafeintent.numbers.metrics import METRICS, STATED_POLICY
from opensafeintent.report.figures import make_figure
from opensafeintent.report.printing.console import make_policy_brief
from opensafeintent.report.tables import make_all_tables
from opensafeintent.responses import GradedResponse
from opensafeintent.taxonomy import CORE_VARIANTS
from report.runs import cohort_with, many_sets, metrics_json, rows_of, table_of

SETS = many_sets(40, 0)


def probed(**models: tuple[tuple[str | None, ...], str]) -> Cohort:
    """Make a group of models, each with one strategy and one pair of grades an intent in all of the
    sets.
    """
    rows: list[GradedResponse] = []
    for model, (strategies, pairs) in models.items():
        by_intent = dict(zip(CORE_VARIANTS, strategies, strict=True))
        grades = dict.fromkeys((item.id for item in SETS.prompt_sets), pairs)
        for row in rows_of(model.replace("_", "/"), SETS, grades):
            rows.append(replace(row, strategy=by_intent[row.variant]))
    return cohort_with(SETS, rows)


@pytest.fixture(scope="module")
def cohort() -> Cohort:
    """One that knows and does not, one that does without saying it, one of which only dual-use
    prompts were probed.
    """
    return probed(
        lab_knows=(("full", "constrained", "refuse"), "40 41 43"),
        lab_does=(("full",) * 3, "40 30 10"),
        lab_asked_less=((None, "full", None), "40 41 10"),
    )


def test_the_table_and_the_terminal_have_both_rates_and_not_their_difference(
    cohort: Cohort,
) -> None:
    records = {record["model"]: record for record in table_of(cohort, "stated_policy").records()}
    rates = (STATED_POLICY.stated, STATED_POLICY.actual)
    assert {model: [record[name] for name in rates] for model, record in records.items()} == {
        "lab/knows": [1.0, 0.5],
        "lab/does": [0.5, 1.0],
        "lab/asked/less": [None, 1.0],
        "model average": [0.75, pytest.approx(2.5 / 3)],
    }
    # the oracle is right by definition and has 0.5 in doing: the difference ranks nobody
    assert STATED_POLICY.difference not in records["lab/knows"]
    assert get_reference(STATED_POLICY.actual).oracle == 0.5
    # 40 sets that are all alike may have missed some at the other end of the span
    difference = metrics_json(cohort)["models"]["lab/knows"][STATED_POLICY.difference]
    assert difference["value"] == 0.5 and difference["ci"][0] == pytest.approx(
        0.5 - 1.5 * (1 - 0.05 ** (1 / 40)), abs=0.01
    )
    assert records["model average"]["stated_policy_ordering_models"] == 2
    at_the_terminal = {
        (row["model"], row["stated"], row["actual"]) for row in make_policy_brief(cohort).records()
    }
    assert at_the_terminal == {("lab/knows", 1.0, 0.5), ("lab/does", 0.5, 1.0)}


def test_models_that_were_probed_are_compared_in_what_they_know(cohort: Cohort) -> None:
    pairs_found = metrics_json(cohort)["comparisons"]["stated_policy_ordering"]["pairs"]
    pairs = {(pair["a"], pair["b"]): pair["difference"] for pair in pairs_found}
    assert pairs == {("lab/does", "lab/knows"): 0.5}  # the third model was not asked


def test_where_only_unsafe_responses_were_probed_nothing_is_shown() -> None:
    cohort = probed(lab_asked_less=((None, "full", None), "40 41 10"))
    assert "stated_policy" not in {table.name for table in make_all_tables(cohort)}
    with pytest.raises(ValueError, match="not enough values"):
        make_figure(cohort, "fig_stated_policy")
    assert "stated_policy_ordering" not in metrics_json(cohort)["comparisons"]
    estimates = metrics_json(cohort)["models"]["lab/asked/less"]
    undefined = {
        "value": None,
        "n": 0,
        "ci": None,
        "ci_method": None,
        "bounds": None,
        "missing_ci": None,
    }
    needs_probes = [name for name, metric in METRICS.items() if metric.inputs == "probes"]
    assert [estimates[name] for name in needs_probes] == [undefined] * 2
