"""What a report says of the swap audit: sentences, tables, figure, the page's section; and nothing of it without one."""

from __future__ import annotations

import re
from collections.abc import Mapping

from analysis.test_swap import Judge, of_prompt, of_response, swaps
from opensafeintent.analysis.groups import Study, group_studies
from opensafeintent.report.figures import all_figures
from opensafeintent.report.metrics_json import metrics_json
from opensafeintent.report.sentences import cautions, findings
from opensafeintent.report.table import Table
from opensafeintent.report.tables import all_tables
from opensafeintent.taxonomy import CORE_VARIANTS
from report.judge_studies import judged_by, panel_row
from report.pages import page_of
from report.studies import many_sets, study_with

SETS = many_sets(20, 0)
IDS = [item.id for item in SETS.prompt_sets]


def study(judges: Mapping[str, Judge], models: tuple[str, ...] = ("x/one",), *, audited: bool = True) -> Study:
    """Make a study in which every model is graded by the same judges, under its own prompts and under all others."""
    rows = [
        panel_row(model, set_id, intent, {name: judge(set_id, intent, intent) for name, judge in judges.items()})
        for model in models
        for set_id in IDS
        for intent in CORE_VARIANTS
    ]
    made = judged_by(study_with(rows, SETS, models), list(judges))
    return made._replace(swaps=[one for model in models for one in swaps(judges, IDS, model)] if audited else ())


def said(made: Study) -> tuple[str, list[str]]:
    """Return the finding, empty where there is none, and every caution."""
    (group,) = group_studies([made])
    found = {sentence.topic: sentence.text for sentence in findings(group)}
    plain = [sentence.text.replace("\u00a0", " ") for sentence in cautions(group, group.changes)]
    return found.get("Requests swapped", "").replace("\u00a0", " "), plain


def tables_of(made: Study) -> dict[str, Table]:
    return {table.name: table for table in all_tables(group_studies([made])) if table.name.startswith("swap")}


def test_what_a_judge_makes_of_the_request_is_found_and_distrusted() -> None:
    finding, found = said(study({"strict": of_response, "swayed": of_prompt}))
    # strict is never moved; swayed calls everything unsafe under the malicious prompt, the panel two of three responses
    assert finding.startswith(
        "Shown the malicious prompt of a set in place of the benign one, strict calls the same responses safe as often ("
    )
    assert ", swayed 100.0 points less often (95 % interval −100.0 to " in finding
    assert " and the panel 66.7 points less often (95 % interval " in finding
    assert "With the request withheld, Triplet Safety by the panel is 0 % as well, on 20 prompt-sets." in finding
    assert finding.endswith(
        "Of its gap in safety from benign to malicious, −100.0 points, the response makes −50.0 points and the prompt "
        "−50.0 points."
    )
    (caution,) = (text for text in found if "along with the response" in text)
    assert caution == (
        "swayed and the panel grade the request along with the response. The rubric grades harm of the response alone: that "
        "safety changes by −100.0 points and −66.7 points where only the request turns from benign to malicious is error, "
        "and is in every difference in safety between intents."
    )


def test_a_judge_that_is_not_moved_is_not_distrusted_for_it() -> None:
    finding, found = said(study({"strict": of_response}))
    assert "strict calls the same responses safe as often" in finding
    assert "the response makes −100.0 points and the prompt 0.0 points" in finding
    assert not any("along with" in text or "other requests" in text for text in found)


def test_withholding_the_request_is_told_where_it_changes_triplet_safety() -> None:
    finding, _ = said(study({"swayed": of_prompt}))
    assert "Triplet Safety by swayed is 100 % in place of 0 %, on 20 prompt-sets." in finding


def test_responses_that_were_left_out_are_counted() -> None:
    def lacking(set_id: str, response: str, column: str) -> str:
        return "--" if set_id == IDS[0] and column == "withheld" else of_response(set_id, response, column)

    _, found = said(study({"strict": lacking}))
    assert (
        "3 of 60 responses that were graded under other requests lack a grade under one of them, and are left out of what "
        "needs it." in found
    )


def test_tables_have_a_line_for_each_model_judge_and_intent() -> None:
    made = study({"strict": of_response, "swayed": of_prompt}, ("x/one", "y/two"))
    found = tables_of(made)
    assert {name: len(table.rows) for name, table in found.items()} == {
        "swap": 3 * 3,  # two models and their average, by two judges and the panel
        "swap_grades": 9 * 2 * 3,
        "swap_splits": 9 * 2 * 3,
    }
    (line,) = (
        record
        for record in found["swap_splits"].records()
        if (record["model"], record["graded_by"], record["grade"]) == ("model average", "swayed", "helpfulness")
        and (record["earlier"], record["later"]) == ("Benign", "Dual-use")
    )
    assert (line["gap"], line["prompt"], line["response"], line["prompt_share"]) == (-0.333333, -0.333333, 0, 1)
    cells = [record for record in found["swap_grades"].records() if record["model"] == "x/one"]
    assert [
        (record["benign"], record["malicious"], record["withheld"])
        for record in cells
        if (record["graded_by"], record["grade"], record["response"]) == ("swayed", "safety", "Malicious")
    ] == [(1, 0, 1)]
    notes = " ".join(found["swap"].notes)
    for words in ("judge’s error", "the prompt is due its part", "unusual input", "responses quote the prompt"):
        assert words in notes


def test_the_page_has_a_section_with_the_figure_and_says_what_the_numbers_are_not() -> None:
    made = study({"strict": of_response, "swayed": of_prompt}, ("x/one", "y/two"))
    page = re.sub(r"\s+", " ", page_of(made).decode())
    assert 'id="swap"' in page
    assert 'id="figure-swap_splits"' in page
    section = page[page.index('id="swap"') :]
    assert "Mismatched pairs are unusual input, and responses quote the prompt that they answer" in section
    (figure,) = (figure for figure in all_figures(group_studies([made])) if figure.name == "swap_splits")
    rows = figure.spec["hconcat"][0]["data"]["values"]
    # of the average over the models, by each of three graders: three pairs, each with its gap and two parts
    assert len(rows) == 3 * 3 * 3
    by_prompt = [row["value"] for row in rows if row["series"] == "by the prompt" and row["label"].startswith("swayed: ")]
    assert by_prompt == [0, -100, -100]


def test_without_an_audit_there_is_nothing_of_it() -> None:
    made = study({"strict": of_response}, audited=False)
    assert tables_of(made) == {}
    assert said(made)[0] == ""
    assert metrics_json(group_studies([made]))["swap"] == [{}]
    assert 'id="swap"' not in page_of(made).decode()
