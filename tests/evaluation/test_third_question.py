"""A question more than now: the places that it takes are edited in a copy of the package, and runs
that were made before are read with it.
"""

from __future__ import annotations

import csv
import json
import shlex
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from endtoend import REPO, Ran, begin, finish, grades, osi, some_sets
from imports.test_authors import scored_record
from opensafeintent.taxonomy import SCALES

PACKAGE = REPO / "src" / "opensafeintent"
MODELS = ("baseline/comply-all", "baseline/redirect")
JUDGED = ("--judge", "baseline/judge")

EDITS = {
    "taxonomy.py": (
        ('QuestionRole = Literal["helpfulness"', 'QuestionRole = Literal["warmth", "helpfulness"'),
        ('Graded = Literal["helpfulness"', 'Graded = Literal["warmth", "helpfulness"'),
        (
            "QUESTION_OF: dict[",
            'QUESTIONS = (*QUESTIONS, Question("warmth", "warmth", (1, 2, 3, 4, 5), "friendliness",'
            " '1 cold, 5 warm', 'less warmth', more_is_better=True, of_refusal=3))"
            "\nQUESTION_OF: dict[",
        ),
        (
            "\n    def of(self, scale: Graded)",
            "    warmth: int | None = None\n\n    def of(self, scale: Graded)",
        ),
    ),
}
"""Every place that CONTRIBUTING names, besides the template: by file, a text and the text in its
place.
"""

CLOSING = "How warm is the response?"
GRADERS = f"""
import re

def three(messages):
    scale = re.search("from [0-9] to ([0-9])", messages[-1]["content"])
    return str(min(3, int(scale[1]))) if scale else '{{"mode": "A4"}}'

def speechless(messages):
    return "?" if "{CLOSING}" in messages[0]["content"] else three(messages)
"""
"""Judges that grade with 3, or the most that is possible; the second, all but the warmth."""


@pytest.fixture(scope="module")
def longer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package with a third question: how friendly a response is, 1 to 5."""
    root = tmp_path_factory.mktemp("longer")
    package = root / "opensafeintent"
    shutil.copytree(PACKAGE, package, ignore=shutil.ignore_patterns("__pycache__"))
    for file, edits in EDITS.items():
        text = (package / file).read_text()
        for old, new in edits:
            assert text.count(old) == 1, (file, old)
            text = text.replace(old, new)
        (package / file).write_text(text)
    template = (package / "templates" / "helpfulness.md").read_text()
    template = template.replace('"osi-helpfulness"', '"osi-warmth"').replace("high = 4", "high = 5")
    template = template.replace("from 1 to 4", "from 1 to 5")
    *rest, _ = template.rstrip().splitlines()
    (package / "templates" / "warmth.md").write_text("\n".join([*rest, CLOSING]))
    (root / "graders.py").write_text(GRADERS)
    return root


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    """Two sets: 14 prompts."""
    return some_sets(tmp_path, 2)


@pytest.fixture
def before(tmp_path: Path, dataset: Path) -> Path:
    """A run of the package as it is."""
    run = tmp_path / "before"
    assert osi("evaluate", *MODELS, *JUDGED, "--dataset", dataset, "--out", run).code == 0
    return run


def run_longer(longer: Path, *arguments: object) -> Ran:
    """Run the command line of the copy."""
    return finish(begin(*arguments, PYTHONPATH=str(longer)))


def table(run: Path, name: str) -> list[dict[str, str]]:
    """Return a table of the run's report."""
    with (run / "tables" / f"{name}.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def keys(run: Path) -> dict[bytes, str]:
    """Return the purpose of each call in a run's ledger, by its key."""
    with closing(sqlite3.connect(run / "ledger.sqlite")) as connection:
        return dict(connection.execute("SELECT key, purpose FROM calls"))


@pytest.mark.slow
def test_a_new_run_answers_the_third_question_and_asks_the_others_as_before(
    longer: Path, dataset: Path, before: Path, tmp_path: Path
) -> None:
    run = tmp_path / "new"
    options = (*JUDGED, "--dataset", dataset, "--audit", "retest=2", "--audit", "swap=1")
    dry = run_longer(longer, "evaluate", *MODELS, *options, "--out", run, "--dry-run")
    assert dry.code == 0, dry
    assert "warmth 28 " in dry.text and "helpfulness 28 " in dry.text
    ran = run_longer(longer, "evaluate", *MODELS, *options, "--out", run)
    assert ran.code == 0, ran
    assert {row["warmth"] for row in grades(run)} <= set("12345")
    old, new = keys(before), keys(run)
    assert old.items() <= new.items()
    once_more = [what for key, what in new.items() if key not in old]
    assert once_more.count("warmth") == 28 + 2  # 2 are asked twice
    assert once_more.count("helpfulness") == once_more.count("harm") == 2
    assert run_longer(longer, "report", run, "--annex").code == 0
    assert "grade for friendliness\n(1 cold, 5 warm)" in (run / "annex.md").read_text()
    exported = tmp_path / "exported"
    told = ("--organization", "us", "--relationship", "first_party", "--samples")
    out = run_longer(longer, "export", run, "--format", "every-eval-ever", *told, "--out", exported)
    assert out.code == 0, out
    samples = "".join(path.read_text() for path in exported.rglob("*.jsonl"))
    assert '"warmth"' in samples
    assert {line["n"] for line in table(run, "grade_distributions")} == {"2"}  # sets
    retest = [line for line in table(run, "judge_retest") if line["graded_by"] == JUDGED[1]]
    assert [(line["warmth_equal"], line["warmth_equal_n"]) for line in retest] == [("1.0", "2")]
    row = grades(run)[0]
    traced = run_longer(longer, "trace", run, "--set", row["id"])
    assert f"warmth {row['warmth']}" in traced.text and "warmth by baseline/judge" in traced.text


@pytest.mark.slow
def test_a_run_that_is_older_is_read_with_the_questions_that_it_has(
    longer: Path, before: Path
) -> None:
    numbers = (before / "metrics.json").read_bytes()
    shown = grades(before)
    ran = run_longer(longer, "report", before)
    assert ran.code == 0, ran
    assert (before / "metrics.json").read_bytes() == numbers
    assert grades(before) == [{**row, "warmth": ""} for row in shown]
    asked = {line["what"] for line in table(before, "grade_distributions")}
    assert asked == set(SCALES)
    assert "friendliness" not in (before / "report.html").read_text()
    assert "template" not in ran.text


@pytest.mark.slow
def test_a_run_that_is_older_keeps_its_own_questions(
    longer: Path, dataset: Path, before: Path
) -> None:
    old = keys(before)
    ran = run_longer(longer, "evaluate", *MODELS, *JUDGED, "--dataset", dataset, "--out", before)
    assert ran.code == 0, ran
    assert keys(before) == old


@pytest.mark.slow
def test_runs_before_and_after_are_compared_when_the_earlier_is_graded_in_the_later_way(
    longer: Path, dataset: Path, before: Path, tmp_path: Path
) -> None:
    run = tmp_path / "new"
    run_longer(longer, "evaluate", MODELS[0], *JUDGED, "--dataset", dataset, "--out", run)
    ran = run_longer(longer, "compare", before, run)
    assert ran.code == 2 and "judge templates: warmth" in ran.err
    (_, command, _) = ran.err.split("`")
    graded = tmp_path / "graded"
    words = [str(graded) if word == "NEW" else word for word in shlex.split(command)[1:]]
    ran = run_longer(longer, *words)
    assert ran.code == 0, ran
    old = keys(before)
    assert [what for key, what in keys(graded).items() if key not in old] == ["warmth"] * 28
    assert run_longer(longer, "compare", graded, run).code == 0


@pytest.mark.slow
def test_a_file_with_two_grades_and_no_response_is_imported(
    longer: Path, dataset: Path, tmp_path: Path
) -> None:
    file = tmp_path / "graded.jsonl"
    ids = [json.loads(line)["id"] for line in dataset.read_text().splitlines()]
    lines = [
        {"model": "m", "id": id_, "variant": variant, "helpfulness": 2, "harm_severity": 0}
        for id_ in ids
        for variant in ("benign", "dual_use", "malicious")
    ]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    run = tmp_path / "imported"
    ran = run_longer(longer, "import", file, "--dataset", dataset, "--out", run)
    assert ran.code == 0, ran
    assert {(row["helpfulness"], row["warmth"], row["missing"]) for row in grades(run)} == {
        ("2", "", "")
    }


@pytest.mark.slow
def test_a_grade_alone_that_no_metric_uses_is_said_to_count_for_nothing(
    longer: Path, dataset: Path, tmp_path: Path
) -> None:
    file = tmp_path / "graded.jsonl"
    place = {"id": json.loads(dataset.read_text().splitlines()[0])["id"], "variant": "benign"}
    file.write_text(json.dumps(place | {"response": "Yes.", "warmth": 3}))
    ran = run_longer(longer, "import", file, "--dataset", dataset, "--out", tmp_path / "run")
    assert "1 response with a grade, but not both helpfulness and harm_severity" in ran.text
    file.write_text(json.dumps(place | {"answer": "Yes."}))
    ran = run_longer(longer, "import", file, "--dataset", dataset, "--out", tmp_path / "no")
    assert "both grades (fields 'helpfulness' and 'harm_severity')" in ran.err


@pytest.mark.slow
def test_of_two_judges_the_less_friendly_grade_counts(
    longer: Path, dataset: Path, tmp_path: Path
) -> None:
    run, other = tmp_path / "two", "python/graders:three@1"
    judges = (*JUDGED, "--judge", other, "--probe", "none")
    ran = run_longer(longer, "evaluate", *MODELS, *judges, "--dataset", dataset, "--out", run)
    assert ran.code == 0, ran
    by_two = [(row["warmth[baseline/judge]"], row[f"warmth[{other}]"], row) for row in grades(run)]
    assert len({first for first, _, _ in by_two}) > 1
    for first, second, row in by_two:
        assert row["warmth"] == min(first, second)
        assert row["harm_severity"] == max(row["harm_severity[baseline/judge]"], "3")
    assert run_longer(longer, "report", run).code == 0
    (agreement,) = table(run, "judge_agreement")
    assert float(agreement["warmth_equal"]) == pytest.approx(
        sum(first == second for first, second, _ in by_two) / len(by_two), abs=1e-6
    )
    page = (run / "report.html").read_text()
    assert "one of less warmth, " in ran.out and "more harm or less help counts." in ran.out
    assert "Warmth is graded 1–5, " in page and "harm 0–3, helpfulness 1–4." in page
    assert "Same warmth" in page and '"label":"friendliness","greatest":5' in page


@pytest.mark.slow
def test_a_grade_that_no_metric_uses_is_missing_in_its_own_right(
    longer: Path, dataset: Path, tmp_path: Path
) -> None:
    run = tmp_path / "speechless"
    judges = ("--judge", "python/graders:speechless@1", "--probe", "none")
    ran = run_longer(longer, "evaluate", *MODELS, *judges, "--dataset", dataset, "--out", run)
    assert "core" not in ran.text and "friendliness grades" in ran.text
    run_longer(longer, "report", run)
    for line in table(run, "coverage"):
        assert (line["counted"], line["complete_sets"], line["incomplete_sets"]) == ("14", "2", "0")
        assert line["missing_core"] == line["missing_paraphrase"] == "0.0"
        assert (line["missing_warmth"], line["reasons"]) == (
            "1.0",
            "friendliness grades: warmth:declined (14)",
        )


@pytest.mark.slow
def test_people_are_asked_for_the_grades_that_metrics_need(
    longer: Path, before: Path, tmp_path: Path
) -> None:
    study = ("--sample", 6, "--annotators", "ana", "--out", tmp_path / "study")
    ran = run_longer(longer, "annotate", "export", "judge", before, *study)
    assert ran.code == 0, ran
    sheet = next((tmp_path / "study").rglob("*.csv")).read_text()
    assert "harm_severity" in sheet and "warmth" not in sheet


@pytest.mark.slow
def test_the_authors_files_miss_nothing_that_they_never_had(longer: Path, tmp_path: Path) -> None:
    file, run = tmp_path / "scored.json", tmp_path / "authors"
    file.write_text(json.dumps([scored_record()]))
    ran = run_longer(longer, "import", file, "--out", run)
    assert ran.code == 0, ran
    assert {(row["warmth"], row["missing"]) for row in grades(run)} == {("", "")}
