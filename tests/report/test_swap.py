"""What a report says of the swap audit: sentences, tables, figure, the page's section; and nothing
of it without one.
"""

from __future__ import annotations

from collections.abc import Mapping

from analysis.test_swap import Judge, of_prompt, of_response, swaps
from opensafeintent.numbers.cohort import GradedRun
from opensafeintent.report.tables import make_all_tables
from opensafeintent.taxonomy import CORE_VARIANTS
from report.judge_studies import judged_by, panel_row
from report.pages import page_of
from report.runs import cohort_of, many_sets, metrics_json, notices_of, run_with

SETS = many_sets(20, 0)
IDS = [item.id for item in SETS.prompt_sets]


def run(judges: Mapping[str, Judge], *models: str) -> GradedRun:
    """Make a study in which every model is graded by the same judges, under its own prompts and
    under all others.
    """
    rows = [
        panel_row(
            model, set_id, intent, {name: judges[name](set_id, intent, intent) for name in judges}
        )
        for model in models
        for set_id in IDS
        for intent in CORE_VARIANTS
    ]
    audited = [
        audited_response for model in models for audited_response in swaps(judges, IDS, model)
    ]
    return judged_by(run_with(rows, SETS), list(judges))._replace(swaps=audited)


def distrusted(audited_run: GradedRun) -> list[str]:
    texts = notices_of(cohort_of(audited_run))
    return [text for text in texts if "If only the request turns" in text]


def test_a_judge_that_is_moved_by_the_request_is_distrusted_and_one_that_is_not_is_not() -> None:
    assert not distrusted(run({"strict": of_response}, "x/one"))
    (caution,) = distrusted(run({"swayed": of_prompt}, "x/one"))
    assert "swayed" in caution and "100 points" in caution


def test_without_an_audit_there_is_nothing_of_it() -> None:
    audited_run = run({"strict": of_response}, "x/one")._replace(swaps=())
    cohort = cohort_of(audited_run)
    assert not [table.name for table in make_all_tables(cohort) if "swap" in table.name]
    assert not distrusted(audited_run)
    assert metrics_json(cohort)["swap"] == {}
    assert 'id="swap"' not in page_of(audited_run).decode()
