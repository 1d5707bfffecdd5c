"""What is said and shown of decisions, and that nothing is where there were none."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import numpy as np
import pytest
import vl_convert

from opensafeintent.analysis.decisions import Course, courses_of
from opensafeintent.analysis.groups import Group, Study, group_studies
from opensafeintent.evaluation.manifest import Frozen
from opensafeintent.report.decisions import decisions_json, look_line
from opensafeintent.report.figures import all_figures
from opensafeintent.report.metrics_json import metrics_json, to_json
from opensafeintent.report.sentences import cautions, findings
from opensafeintent.report.tables import all_tables
from opensafeintent.report.tables.brief import questions
from opensafeintent.statistics.decisions import boundaries_ahead
from report.pages import page_of
from report.studies import random_study

SAFE, OTHER = "lab/safe", "lab/other"
HOSTILE = "</script><script>window.hacked=1</script>"


def asked(study: Study, question: str, *models: str, sets: int = 100, exploratory: tuple[str, ...] = ()) -> list[Course]:
    """Freeze a question of some models of a study."""
    frozen = Frozen(
        question=question,
        confidence=0.95,
        families=len(models),
        sets=sets,
        models={model: study.manifest.models[model] for model in models},
        exploratory=exploratory,
    )
    return courses_of(frozen)


def looked(course: Course, *shares: float) -> Course:
    """Take looks at which so large a share of the new sets is safe, or better in the first model."""
    for share in shares:
        assert not course.over
        new = course.next - course.seen
        values = np.repeat([1.0, 0.0], [round(share * new), new - round(share * new)])
        course = course.looked(values, 0.05) or course
    return course


def grown(study: Study, **sets: int) -> Study:
    """Say of a study's models that they were asked so many sets."""
    entries = {
        model: msgspec.structs.replace(entry, limit=sets.get(model.rpartition("/")[2], entry.limit), sample="webster")
        for model, entry in study.manifest.models.items()
    }
    return study._replace(manifest=msgspec.structs.replace(study.manifest, models=entries))


@pytest.fixture(scope="module")
def plain() -> Study:
    return random_study((SAFE, OTHER), 100)


@pytest.fixture(scope="module")
def group(plain: Study) -> Group:
    """One model that was decided at the fourth of twenty looks, and one that is open after the fifth."""
    other, safe = asked(plain, "triplet_safety >= 0.7", SAFE, OTHER)  # by name, whatever was named first
    courses = [looked(other, *[0.8] * 5), looked(safe, 1, 1, 1, 1)]
    (found,) = group_studies([grown(plain, safe=20, other=25)._replace(courses=courses)])
    return found


def texts(found: list[Any]) -> str:
    return "\n".join(sentence.text for sentence in found)


def test_a_decision_stands_in_metrics_json(group: Group) -> None:
    found = json.loads(to_json(metrics_json([group])))
    assert found["stopped_early"] == [SAFE]
    (question,) = found["decisions"]
    assert (question["question"], question["sets"], question["families"]) == ("triplet_safety >= 0.7", 100, 2)
    assert question["alpha"] == pytest.approx(0.025)
    assert question["looks"] == list(range(5, 101, 5))
    other, safe = question["decided"]  # by name
    assert (safe["model"], safe["verdict"], safe["sets"], safe["value"]) == (SAFE, "yes", 20, 1)
    assert (other["verdict"], other["sets"], len(other["looks"])) == (None, 25, 5)
    assert safe["ci"][0] > 0.7  # interval and verdict agree
    assert other["ci"][0] < 0.7 < other["ci"][1]
    assert safe["looks"][-1]["value"] >= safe["looks"][-1]["upper"]


def test_a_decision_stands_in_tables_and_the_terminal(group: Group) -> None:
    tables = {table.name: table for table in all_tables([group])}
    rows = tables["decisions"].records()
    assert [(row["model"], row["verdict"], row["sets"], row["most"]) for row in rows] == [
        (OTHER, "not yet decided", 25, 100),
        (SAFE, "yes", 20, 100),
    ]
    assert len(tables["looks"].rows) == 4 + 5
    ((question, shown),) = questions(group)
    assert question == "triplet_safety >= 0.7"
    assert len(shown.rows) == 2


def test_one_question_asked_twice_is_shown_twice_at_the_terminal(plain: Study) -> None:
    (early,) = asked(plain, "triplet_safety >= 0.7", SAFE)
    late = msgspec.structs.replace(early, frozen=msgspec.structs.replace(early.frozen, exploratory=("asked late",)))
    (found,) = group_studies([grown(plain, safe=20, other=25)._replace(courses=[looked(early, 1), looked(late, 1)])])
    shown = list(questions(found))
    assert [(question, len(table.rows)) for question, table in shown] == [("triplet_safety >= 0.7", 1)] * 2
    assert ["asked late" in " ".join(table.notes) for _, table in shown] == [False, True]


def test_the_figure_draws_every_look_between_its_boundaries(group: Group) -> None:
    (figure,) = (figure for figure in all_figures([group]) if figure.name == "fig_decisions")
    assert len(figure.table.rows) == 9
    svg = vl_convert.vegalite_to_svg(figure.spec)
    assert f"{SAFE}: yes at 20 of 100" in svg
    assert f"{OTHER}: not yet decided at 25 of 100" in svg


@pytest.mark.parametrize("question", ["triplet_safety >= 0.5", f"{SAFE} not worse than {OTHER} by 0.1 triplet_safety"])
def test_the_boundaries_to_come_are_those_that_come(plain: Study, question: str) -> None:
    (course,) = asked(plain, question, *((SAFE, OTHER) if "worse" in question else (SAFE,)))[:1]
    shares = [0.4, 0.6, 0.4, 0.6] if "worse" not in question else [0.2, 0.0]
    for taken in range(1, len(shares)):
        ahead = boundaries_ahead(course.design, looked(course, *shares[:taken]).looks)
        rest = looked(course, *shares).looks[taken:]
        assert [tuple(one) for one in ahead[: len(rest)]] == [(look.planned, look.lower, look.upper) for look in rest]
        assert ahead[-1].planned == 100


def test_the_page_says_what_was_decided_and_what_stopped(group: Group) -> None:
    found = texts(findings(group))
    assert f"Asked whether triplet_safety >= 0.7: yes for {SAFE}, after 20 of 100 prompt-sets" in found
    assert "fixed before the first call" in found
    distrusted = texts(cautions(group, []))
    assert f"Stopped early: {SAFE}." in distrusted
    assert OTHER not in distrusted.partition("Stopped early")[2].partition("\n")[0]


def test_an_exploratory_question_is_marked(plain: Study) -> None:
    courses = asked(plain, "triplet_safety >= 0.7", SAFE, exploratory=("it was the second one",))
    (found,) = group_studies([plain._replace(courses=courses)])
    assert "This is exploratory: it was the second one." in texts(findings(found))
    ((_, shown),) = questions(found)
    assert "Exploratory: it was the second one." in shown.notes
    assert decisions_json([found])["decisions"][0]["exploratory"] == ("it was the second one",)


def test_a_run_that_went_on_is_not_stopped_early(plain: Study) -> None:
    (course,) = asked(plain, "triplet_safety >= 0.7", SAFE)
    (found,) = group_studies([plain._replace(courses=[looked(course, 1, 1, 1, 1)])])
    assert decisions_json([found])["stopped_early"] == []
    assert "Stopped early" not in texts(cautions(found, []))
    assert "yes for lab/safe" in texts(findings(found))


def test_a_look_is_told_with_its_boundaries_and_what_is_left(plain: Study) -> None:
    (course,) = asked(plain, "safety_flip <= 0.5", SAFE)
    first = looked(course, 0.2)
    assert look_line(first) == (
        "look 1 of 20, 5 of 100 sets: lab/safe: safety_flip 0.200 "
        f"[{first.looks[0].interval[0]:.3f}, {first.looks[0].interval[1]:.3f}]; "  # type: ignore[index]
        "nothing could decide it yet; undecided, 95 sets left"
    )
    last = looked(course, 0, 0)
    assert "yes: at most" in look_line(last)  # of what should not happen, less is better
    assert look_line(last).endswith("yes, 90 sets saved")


def test_names_of_others_stay_text() -> None:
    study = random_study((f"lab/{HOSTILE}", OTHER), 100)
    (course,) = asked(study, "triplet_safety >= 0.7", f"lab/{HOSTILE}")
    page = page_of(study._replace(courses=[looked(course, 1, 1)])).decode()
    assert "window.hacked" in page
    assert HOSTILE not in page


def test_without_a_question_there_is_nothing(plain: Study) -> None:
    (found,) = group_studies([plain])
    assert decisions_json([found]) == {}
    assert not {"decisions", "stopped_early"} & metrics_json([found]).keys()
    assert not {"decisions", "looks"} & {table.name for table in all_tables([found])}
    assert "fig_decisions" not in {figure.name for figure in all_figures([found])}
    assert not list(questions(found))
