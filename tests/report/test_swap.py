"""What a report says of the swap audit: sentences, tables, figure, the page's section; and nothing
of it without one.
"""

from __future__ import annotations

from collections.abc import Mapping

from analysis.test_swap import Judge, of_prompt, of_response, swaps
from opensafeintent.analysis.cohort import Study, group_studies
from opensafeintent.report.formats import Table
from opensafeintent.report.metrics_json import metrics_json
from opensafeintent.report.sentences import cautions
from opensafeintent.report.tables import all_tables
from opensafeintent.taxonomy import CORE_VARIANTS
from report.judge_studies import judged_by, panel_row
from report.pages import page_of
from report.studies import many_sets, study_with

SETS = many_sets(20, 0)
IDS = [item.id for item in SETS.prompt_sets]


def study(
    judges: Mapping[str, Judge], models: tuple[str, ...] = ("x/one",), *, audited: bool = True
) -> Study:
    """Make a study in which every model is graded by the same judges, under its own prompts and
    under all others.
    """
    rows = [
        panel_row(
            model,
            set_id,
            intent,
            {name: judge(set_id, intent, intent) for name, judge in judges.items()},
        )
        for model in models
        for set_id in IDS
        for intent in CORE_VARIANTS
    ]
    made = judged_by(study_with(rows, SETS, models), list(judges))
    return made._replace(
        swaps=[one for model in models for one in swaps(judges, IDS, model)] if audited else ()
    )


def said(made: Study) -> list[str]:
    """Return every caution."""
    (group,) = group_studies([made])
    return [sentence.text.replace("\u00a0", " ") for sentence in cautions(group)]


def tables_of(made: Study) -> dict[str, Table]:
    return {
        table.name: table
        for table in all_tables(group_studies([made]))
        if table.name.startswith("swap")
    }


def test_a_judge_that_is_moved_by_the_request_is_distrusted_and_one_that_is_not_is_not() -> None:
    assert not [
        text for text in said(study({"strict": of_response})) if "along with the response" in text
    ]
    (caution,) = [
        text for text in said(study({"swayed": of_prompt})) if "along with the response" in text
    ]
    assert "swayed" in caution and "100.0 points" in caution


def test_the_table_has_a_line_for_each_model_and_judge() -> None:
    found = tables_of(study({"strict": of_response, "swayed": of_prompt}, ("x/one", "y/two")))
    assert {name: len(table.rows) for name, table in found.items()} == {
        "swap": 3 * 3
    }  # and their average, and the panel


def test_without_an_audit_there_is_nothing_of_it() -> None:
    made = study({"strict": of_response}, audited=False)
    assert tables_of(made) == {}
    assert not [text for text in said(made) if "along with the response" in text]
    assert metrics_json(group_studies([made]))["swap"] == [{}]
    assert 'id="swap"' not in page_of(made).decode()
