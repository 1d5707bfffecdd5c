"""What a report says of its judges' checks: that they hold, that they do not, or that there was
none.
"""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import msgspec
import pytest

from opensafeintent.analysis.cohort import Group, Study, checked_judges, group_studies
from opensafeintent.calls.records import Sampling
from opensafeintent.evaluation.judge_check import (
    AnchorSetting,
    AtTheLine,
    FailedCase,
    JudgeCheck,
    KindCount,
    WrongGrade,
)
from opensafeintent.report.metrics_json import metrics_json
from opensafeintent.report.sentences import cautions
from opensafeintent.report.tables import all_tables
from opensafeintent.templates import Templates, load_templates
from opensafeintent.templates.template import CURRENT
from report.pages import Opened, page_of, rows_of
from report.studies import study_with
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


def checks_json(of: Group) -> Any:
    """Return what `metrics.json` says of the checks of a group's judges."""
    return metrics_json([of])["groups"][0]["judge_checks"]


def check(accepted: int = 9, **fields: Any) -> JudgeCheck:
    """Make a check of ten cases of two kinds; `accepted` of the eight plain ones and the two
    off-topic ones.
    """
    roles = {role: digest for role, digest in HASHES.items() if role != "strategy"}
    defaults: dict[str, Any] = {
        "judge": JUDGE,
        "identity": f"{JUDGE}@1",
        "setting": AnchorSetting(
            templates=roles, parse="strict", sampling=Sampling(max_tokens=9, temperature=0)
        ),  # type: ignore[arg-type]
        "anchors": "a",
        "pass_mark": 0.8,
        "grades": ("helpfulness", "harm_severity", "mode"),
        "kinds": (KindCount("plain", accepted - 1, 8), KindCount("off-topic", 1, 2)),
        "by_grade": {"helpfulness": accepted, "harm_severity": 10, "mode": 10},
        "failed": (FAILED,),
    }
    return JudgeCheck(**(defaults | fields))


def study(*checks: JudgeCheck, name: str = "run", model: str = "m", parse: str = "strict") -> Study:
    made = study_with(
        rows_of(model, DATASET, {"one": "40 40 10", "two": "40 31 10"}),
        DATASET,
        [model],
        judge=JUDGE,
        name=name,
    )
    entry = msgspec.structs.replace(made.manifest.models[model], templates=HASHES, parse=parse)
    manifest = msgspec.structs.replace(
        made.manifest,
        models={model: entry},
        judges={JUDGE: f"{JUDGE}@1"},
        judge_sampling=Sampling(max_tokens=9, temperature=0),
        judge_checks=checks,
    )
    return made._replace(manifest=manifest)


def group(*studies: Study) -> Group:
    (found,) = group_studies(studies)
    return found


def distrusted(of: Group) -> list[str]:
    return [sentence.text for sentence in cautions(of)]


def state(*studies: Study) -> str:
    (found,) = checked_judges(group(*studies))
    return found.state


def test_a_check_that_holds_is_no_caution() -> None:
    found = group(study(check()))
    assert [item.state for item in checked_judges(found)] == ["passed"]
    assert not any("check" in text and "people" not in text for text in distrusted(found))
    # mid-P, 9 of 10: p¹⁰ + 5 p⁹ (1 − p) is .005705 + .019294 = .025 at p = .59652, and .975 at p =
    # .995
    assert checks_json(found)[JUDGE]["ci"] == pytest.approx([0.596524, 0.994999], abs=2e-6)


def test_no_check_is_said() -> None:
    assert any(
        text.startswith(f"{JUDGE} was not checked on the anchor cases")
        for text in distrusted(group(study()))
    )
    assert checks_json(group(study())) == {JUDGE: {"state": "unchecked"}}
    assert not any(table.name == "judge_check" for table in all_tables([group(study())]))


def test_a_failed_check_is_said_with_its_reasons() -> None:
    found = group(study(check(7)))  # 7 of 10 are fewer than 80 %
    (text,) = (text for text in distrusted(found) if "failed the judge check" in text)
    assert (
        text == f"{JUDGE} failed the judge check, 7 of 10 cases accepted: fewer accepted cases than"
        " 80 %."
    )


OTHER = AnchorSetting(
    templates={**HASHES, "harm": "new"},
    parse="strict",
    sampling=Sampling(max_tokens=9, temperature=0),
)  # type: ignore[dict-item]


SAMPLING = Sampling(max_tokens=10, temperature=0)


@pytest.mark.parametrize(
    "stale",
    [
        check(setting=OTHER),
        check(setting=msgspec.structs.replace(check().setting, parse="paper")),
        check(setting=msgspec.structs.replace(check().setting, sampling=SAMPLING)),
        check(identity=f"{JUDGE}@2"),
        check(grades=("mode",)),
        check(grades=("helpfulness", "harm_severity")),
    ],
    ids=["templates", "parse", "sampling", "identity", "modes only", "no modes"],
)
def test_a_check_of_another_setting_does_not_hold(stale: JudgeCheck) -> None:
    assert state(study(stale)) == "stale"
    said = "with other templates or settings than those in force"
    assert any(said in text for text in distrusted(group(study(stale))))
    assert state(study(check(), stale)) == state(study(stale, check())) == "passed"


def test_the_strategy_template_is_no_part_of_a_check() -> None:
    """It is put to the target, not to a judge."""
    checked = study(check())
    entry = msgspec.structs.replace(
        checked.manifest.models["m"], templates={**HASHES, "strategy": "another"}
    )
    manifest = msgspec.structs.replace(checked.manifest, models={"m": entry})
    assert state(checked._replace(manifest=manifest)) == "passed"


def test_a_check_of_one_run_holds_for_another_run_of_the_same_setting() -> None:
    assert state(study(check()), study(name="second", model="n")) == "passed"
    other = study(name="second", model="n")
    sampling = msgspec.structs.replace(other.manifest, judge_sampling=SAMPLING)
    assert state(study(check()), other._replace(manifest=sampling)) == "stale"


def test_the_table_tells_what_was_not_accepted() -> None:
    (table,) = (
        table for table in all_tables([group(study(check()))]) if table.name == "judge_check"
    )
    told = "soup: helpfulness 4, not 1; mode missing (unparsed), not A0 or A2"
    rows = [
        (row["kind"], row["accepted"], row["cases"], row["not_accepted"]) for row in table.records()
    ]
    assert rows == [("plain", 8, 8, ""), ("off-topic", 1, 2, told), ("all", 9, 10, "")]
    assert table.notes[0] == f"{JUDGE}: passed, 9 of 10 cases accepted [60, 99 %]."


def test_groups_at_the_line_and_contested_cases_are_shown_apart() -> None:
    contested = msgspec.structs.replace(FAILED, id="quiet", kind="plain")
    line = AtTheLine(safe=5, safe_called_unsafe=1, unsafe=5, unsafe_called_safe=0)
    found = group(
        study(
            check(
                kinds=(KindCount("plain", 8, 8), KindCount("knowledge", 1, 2, "harm 0 or 1")),
                contested=KindCount("contested", 0, 1),
                contested_failed=(contested,),
                at_the_line=line,
            )
        )
    )
    (table,) = (table for table in all_tables([found]) if table.name == "judge_check")
    rows = {row["kind"]: row for row in table.records()}
    assert list(rows) == ["plain", "knowledge (harm 0 or 1)", "all", "contested, not counted"]
    assert rows["all"]["cases"] == 10
    assert rows["contested, not counted"]["not_accepted"].startswith("quiet: helpfulness 4, not 1")
    assert "If 10 % of a run’s responses were like the former" in table.notes[0]
    told = msgspec.json.decode(msgspec.json.encode(checks_json(found)))[JUDGE]
    # mid-P, 1 of 2: the upper tail with the count taken half is p² + p (1 − p) = p, so its ends are
    # .025 and .975
    assert told["groups"] == {
        "knowledge": {"value": 0.5, "n": 2, "ci": [0.025, 0.975], "ci_method": "mid-p"}
    }
    assert told["contested"] == [0, 1]
    assert told["at_the_line"] == msgspec.to_builtins(line)


@pytest.mark.parametrize(
    ("checks", "fact"),
    [
        ((), "not checked"),
        ((check(),), "passed, 9 of 10 anchor cases (60 to 99 %)"),
        ((check(7),), "failed, 7 of 10 anchor cases (38 to 92 %)"),
        ((check(setting=OTHER),), "not with these templates and settings"),
    ],
    ids=["none", "passed", "failed", "stale"],
)
def test_the_page_shows_the_check(
    chromium: Any, tmp_path: Path, checks: tuple[JudgeCheck, ...], fact: str
) -> None:
    path = tmp_path / "report.html"
    path.write_bytes(page_of(study(*checks)))
    with Opened(chromium, path) as opened:
        facts = opened.page.locator("dl.facts").first.inner_text().splitlines()
        assert facts[facts.index("Judge check") + 1] == fact
        assert opened.page.locator("#table-judge_check").count() == bool(checks)


# Where the shipped rubric draws its line
# -------------------------------------------------------------------------------

READINGS = Path(__file__).parents[2] / "benchmarks" / "rubrics.csv"


def graded_by(templates: Templates) -> Group:
    made = study()
    entry = msgspec.structs.replace(
        made.manifest.models["m"], templates={**HASHES, "harm": templates.harm.hash}
    )
    return group(
        made._replace(manifest=msgspec.structs.replace(made.manifest, models={"m": entry}))
    )


def test_where_our_line_of_harm_lies_is_told_as_it_was_measured() -> None:
    read = csv.DictReader(READINGS.read_text("utf-8").splitlines())
    rows = [row for row in read if (row["scale"], row["wording"]) == ("harm", str(CURRENT))]
    readers, key = (sum(row[who] == "0" for row in rows) / len(rows) for who in ("grade", "key"))
    measured = (
        f"of {len(rows) // 2} responses to dual-use prompts, readers called {readers:.0%} safe by"
        f" it, and by those definitions {key:.0%} are"
    )
    for templates in (load_templates(), load_templates(reasons=True)):
        (text,) = (text for text in distrusted(graded_by(templates)) if "line of harm" in text)
        assert measured.replace("%", "\N{NO-BREAK SPACE}%") in text
    earlier = graded_by(load_templates(Path("shipped:1")))
    assert not any(
        "line of harm" in text for text in [*distrusted(earlier), *distrusted(group(study()))]
    )
