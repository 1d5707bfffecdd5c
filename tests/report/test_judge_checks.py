"""What a report says of its judges' checks: that they hold, that they do not, or that there was
none.
"""

from __future__ import annotations

import csv
from importlib import resources
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from opensafeintent.calls.records import Sampling
from opensafeintent.evaluation.gold_cases import (
    Borderline,
    FailedCase,
    JudgeCheck,
    JudgeSetting,
    KindCount,
    WrongGrade,
)
from opensafeintent.numbers.cohort import Cohort, GradedRun, list_checked_judges
from opensafeintent.report.tables import make_all_tables
from opensafeintent.statistics import share_interval
from opensafeintent.templates import Templates, load_templates
from report.runs import changed, cohort_of, metrics_json, notices_of, rows_of, run_with, table_of
from samples import made_dataset, prompt_set

JUDGE = "some/judge"
HASHES = {"helpfulness": "h1", "harm": "h2", "mode": "h3", "reask": "h4", "strategy": "h5"}
DATASET = made_dataset(prompt_set("one"), prompt_set("two"))
FAILED = FailedCase(
    id="soup",
    kind="off-topic",
    wrong=(
        WrongGrade(grade="helpfulness", said=4, acceptable=(1,)),
        WrongGrade(grade="mode", said=None, missing="unparsed", acceptable=("A0", "A2")),
    ),
    why="an unrelated matter",
)


def checks_json(of: Cohort) -> Any:
    """Return what `metrics.json` says of the checks of a group's judges."""
    return metrics_json(of)["judge_checks"]


SAMPLING = Sampling(max_tokens=9, temperature=0)
SETTING = JudgeSetting(
    templates={role: digest for role, digest in HASHES.items() if role != "strategy"},  # type: ignore[misc]
    parse="strict",
    sampling=SAMPLING,
)


def check(accepted: int = 9, **fields: Any) -> JudgeCheck:
    """Make a check of ten cases of two kinds; `accepted` of the eight plain ones and the two
    off-topic ones.
    """
    defaults: dict[str, Any] = {
        **{"judge": JUDGE, "identity": f"{JUDGE}@1", "setting": SETTING, "gold_cases": "a"},
        **{"min_accuracy": 0.8, "grades": ("helpfulness", "harm_severity", "mode")},
        "kinds": (KindCount("plain", accepted - 1, 8), KindCount("off-topic", 1, 2)),
        "by_grade": {"helpfulness": accepted, "harm_severity": 10, "mode": 10},
        "failed": (FAILED,),
    }
    return JudgeCheck(**(defaults | fields))


def run(*checks: JudgeCheck, name: str = "run", model: str = "m", **hashes: str) -> GradedRun:
    rows = rows_of(model, DATASET, {"one": "40 40 10", "two": "40 31 10"})
    return changed(
        run_with(rows, DATASET, judge=JUDGE, name=name),
        entry={"templates": HASHES | hashes, "parse": "strict"},
        judges={JUDGE: f"{JUDGE}@1"},
        judge_samplings={JUDGE: SAMPLING},
        judge_checks=checks,
    )


def distrusted(of: Cohort) -> list[str]:
    return notices_of(of)


def state(*runs: GradedRun) -> str:
    (checked,) = list_checked_judges(cohort_of(*runs))
    return checked.state


def test_a_check_that_holds_is_no_caution() -> None:
    cohort = cohort_of(run(check()))
    assert [item.state for item in list_checked_judges(cohort)] == ["passed"]
    assert not any("check" in text and "people" not in text for text in distrusted(cohort))
    assert checks_json(cohort)[JUDGE]["ci"] == pytest.approx(share_interval(0.9, 10), abs=1e-6)


def test_no_check_is_said() -> None:
    assert any(
        text.startswith(f"No check on the gold cases is known: {JUDGE}.")
        for text in distrusted(cohort_of(run()))
    )
    assert checks_json(cohort_of(run())) == {JUDGE: {"state": "unchecked"}}
    assert not any(table.name == "judge_check" for table in make_all_tables(cohort_of(run())))


def test_a_failed_check_is_said_with_its_reasons() -> None:
    texts = distrusted(cohort_of(run(check(7))))  # 7 of 10 are fewer than 80 %
    (text,) = (text for text in texts if "failed the judge check" in text)
    assert "7 of 10 cases accepted: fewer accepted cases than 80 %." in text


OTHER = replace(SETTING, templates=SETTING.templates | {"harm": "new"})
LONGER = Sampling(max_tokens=10, temperature=0)


@pytest.mark.parametrize(
    "stale",
    [
        check(setting=OTHER),
        check(setting=replace(SETTING, parse="paper")),
        check(setting=replace(SETTING, sampling=LONGER)),
        check(identity=f"{JUDGE}@2"),
        check(grades=("mode",)),
        check(grades=("helpfulness", "harm_severity")),
    ],
    ids=["templates", "parse", "sampling", "identity", "modes only", "no modes"],
)
def test_a_check_of_another_setting_does_not_hold(stale: JudgeCheck) -> None:
    assert state(run(stale)) == "stale"
    message = "with other templates, settings or version, so that the check does not cover these"
    assert any(message in text for text in distrusted(cohort_of(run(stale))))
    assert state(run(check(), stale)) == state(run(stale, check())) == "passed"


def test_a_check_of_one_run_holds_for_another_run_of_the_same_setting() -> None:
    other_run = run(name="second", model="n")
    assert state(run(check()), other_run) == "passed"
    assert state(run(check()), changed(other_run, judge_samplings={JUDGE: LONGER})) == "stale"


def test_groups_borderline_and_unscored_cases_are_shown_apart() -> None:
    line = Borderline(safe=5, safe_called_unsafe=1, unsafe=5, unsafe_called_safe=0)
    judge_check = check(
        kinds=(KindCount("plain", 8, 8), KindCount("factual", 1, 2, "harm 0 or 1")),
        unscored=KindCount("unscored", 0, 1),
        unscored_failed=(replace(FAILED, id="quiet", kind="plain"),),
        borderline=line,
    )
    cohort = cohort_of(run(judge_check))
    table = table_of(cohort, "judge_check")
    rows = {row["kind"]: row for row in table.records()}
    assert list(rows) == ["plain", "factual (harm 0 or 1)", "all", "unscored, not counted"]
    assert rows["all"]["cases"] == 10
    # as on the terminal, a kind has no interval: it has two to five cases
    assert [row["share_low"] is None for row in rows.values()] == [True, False, False, True]
    assert rows["unscored, not counted"]["not_accepted"].startswith("quiet: helpfulness 4, not 1")
    assert "If 10 % of a run’s responses are such safe cases" in table.notes[0]
    summary = msgspec.json.decode(msgspec.json.encode(checks_json(cohort)))[JUDGE]
    assert summary["groups"] == {
        "factual": {"value": 0.5, "n": 2, "ci": [0.0, 1.0], "ci_method": "t-pseudo-observations"}
    }
    assert summary["unscored"] == [0, 1]
    assert summary["borderline"] == msgspec.to_builtins(line)


# Where the shipped rubric draws its line
# -------------------------------------------------------------------------------

READINGS = Path(__file__).parents[2] / "benchmarks" / "rubrics.csv"


def test_where_our_line_of_harm_lies_is_told_as_it_was_measured(tmp_path: Path) -> None:
    read = csv.DictReader(READINGS.read_text("utf-8").splitlines())
    rows = [row for row in read if (row["scale"], row["wording"]) == ("harm", "in force")]

    def safe(who: str) -> list[float]:
        """Return the shares that are safe, study by study."""
        studies = [[row[who] == "0" for row in rows if row["study"] == n] for n in "123"]
        return [100 * sum(of) / len(of) for of in studies]

    ours, theirs = safe("grade"), safe("key")
    apart = max(abs(a - b) for a, b in zip(ours, theirs, strict=True))
    facts = (f"{sum(ours) / 3:.0f}% of", f"{sum(theirs) / 3:.0f}% by", f"by {apart:.0f} points")

    def sentences_of(templates: Templates) -> list[str]:
        texts = distrusted(cohort_of(run(harm=templates.of("harm").hash)))
        return [text.replace(" %", "%") for text in texts if "harm rubric" in text]

    for templates in (load_templates(), load_templates(reasons=True)):
        (text,) = sentences_of(templates)
        assert all(fact in text for fact in facts) and "language models" in text
    rubric = resources.files("opensafeintent.templates").joinpath("harm.md").read_text("utf-8")
    (tmp_path / "harm.md").write_text(rubric.replace("You grade", "Please grade"))
    assert not sentences_of(load_templates(tmp_path))
