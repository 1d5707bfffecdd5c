"""The page without its scripts: its tables say what the files of tables say, and nothing needs a
script to be read.
"""

from __future__ import annotations

import html
import itertools
import json
import re
import shlex
from datetime import date
from pathlib import Path

import pytest
from msgspec.structs import replace

from endtoend import osi
from opensafeintent import __version__
from opensafeintent.calls.records import Sampling
from opensafeintent.evaluation.manifest import StoredTemplate
from opensafeintent.evaluation.pipeline import Guard
from opensafeintent.numbers.cohort import gather_models
from opensafeintent.report.conditions import describe_measurement, list_conditions
from opensafeintent.report.figures import draw_all_figures, write_figures
from opensafeintent.report.metrics_json import make_metrics_file
from opensafeintent.report.page import PageOptions, render_page
from opensafeintent.report.tables import make_all_tables, write_tables
from opensafeintent.responses import KnownGrades, ServedVersion
from opensafeintent.taxonomy import GRADE_OF, QUESTIONS
from opensafeintent.templates import load_templates
from report.pages import page_of, saved
from report.runs import MODELS, changed, cohort_of, many_sets, random_run
from report.second_turns import calibrated, regraded, turn_run

pytestmark = pytest.mark.drawn


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report: the page, and the files of tables and figures beside it."""
    out = tmp_path_factory.mktemp("report")
    runs = [random_run(MODELS[:3], 40)]
    cohort = gather_models(runs)
    tables, figures = make_all_tables(cohort), draw_all_figures(cohort)
    write_tables(tables, out / "tables")
    write_figures(figures, out / "figures", ("svg",))
    parts, drawings = (cohort, tables, figures, {}), out / "figures"
    saved(out, render_page(*parts, PageOptions(include_unsafe=False, drawings=drawings)).content)
    return out


@pytest.mark.slow
def test_the_page_reads_without_scripts(out: Path) -> None:
    text = (out / "report.html").read_text("utf-8")
    for part in text.split("<figure ")[1:]:
        assert "<noscript><svg " in part.partition("</figure>")[0]
    drawn = {path.stem for path in (out / "figures").glob("*.svg")}
    on_page = set(re.findall('<figure id="figure-([^"]*)"', text))
    assert drawn - on_page == {"fig_7_strata"} and text.count("<noscript><svg ") == len(on_page)
    assert '<section id="utility">' in text and "Utility is helpfulness if the response" in text


@pytest.mark.parametrize("paraphrases", [0, 1])
def test_a_section_without_a_number_is_not_there(paraphrases: int) -> None:
    page = page_of(random_run(MODELS[:2], 20, paraphrases=paraphrases)).decode()
    assert ('<section id="stability">' in page) is bool(paraphrases)
    assert '<section id="strata">' in page and "figures/fig_3_strata.csv" in page
    assert 'id="numbers-fig_3_strata"' not in page and 'id="table-metrics"' not in page


@pytest.mark.slow
def test_the_page_says_how_to_reproduce_and_cite_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = ("baseline/comply-all", "baseline/redirect")
    options = ("--judge", "baseline/judge", "--limit", "6", "--out", str(tmp_path / "run"))
    assert osi("evaluate", *models, *options, "--report").code == 0
    monkeypatch.chdir(tmp_path / "run")
    text = html.unescape(Path("report.html").read_text("utf-8"))
    evaluate, report = re.findall('<code class="command">(opensafeintent [^<]*)', text)
    assert osi(*shlex.split(evaluate)[1:], "--out", "NEW").code == 0
    assert osi(*shlex.split(report)[1:]).code == 0
    first, again = (
        json.loads(Path(folder, "metrics.json").read_text("utf-8")) for folder in (".", "NEW")
    )
    assert first["models"] == again["models"]
    assert f"SHA-256 <code>{first['dataset']['hash']}<" in text
    readme = Path(__file__).parents[2].joinpath("README.md").read_text("utf-8")
    assert f"<pre>{readme.partition('```bibtex')[2].partition('```')[0].strip()}" in text


def test_the_page_describes_the_measurement_for_a_paper() -> None:
    run = random_run(("lab/a", "lab/<b>"), 12)
    cohort = gather_models([run])
    described = describe_measurement(cohort)
    graded = sum(row.has_all_grades for row in run.rows)
    for part in (
        "Models: lab/<b>, lab/a",
        f"12 prompt-sets of {run.dataset.name} (SHA-256 {run.dataset.hash[:16]}), each sent once.",
        f"Both grades exist for {graded:,} of {len(run.rows):,} responses",
        f"Computed by OpenSafeIntent {__version__}.",
    ):
        assert part in described
    page = page_of(run).decode()
    assert described in html.unescape(page) and "lab/<b>" not in page


def test_the_description_names_second_turns_audit_and_guard_of_a_run_that_has_them() -> None:
    dataset = many_sets(20, 0)
    run = turn_run({"a": calibrated, "b": calibrated}, dataset=dataset)
    plain = describe_measurement(cohort_of(run._replace(follow_ups=[])))
    assert not re.search("second|first turn|guard|abel", plain)
    guard = Guard(
        model="lab/guard", identity="g", form="yes-no", source="", sampling=Sampling(max_tokens=9)
    )
    verdicts = ("yes", "no", "missing:unparsed")
    rows = [
        replace(row, guard=verdict)
        for row, verdict in zip(run.rows, itertools.cycle(verdicts), strict=False)
    ]
    full = changed(run, guard=guard)._replace(
        rows=rows,
        follow_ups=[row for row in run.follow_ups if row.model == "a"][:50],
        in_conversation=regraded("a", dataset, lambda *_: "10"),
    )
    described = describe_measurement(cohort_of(full))
    for part in (
        "Each reply of a to a dual-use prompt was followed by a second message",
        "Both grades exist for 50 of 50 second replies; 10 more were planned.",
        "the judges graded 40 direct replies again with the first turn shown.",
        "A guard model, lab/guard, was asked",
        "a verdict on 80 of 120 responses.",
    ):
        assert part in described


def test_the_description_of_four_models_and_two_judges_has_200_words_for_two_questions() -> None:
    judges, served = ("openai/gpt-5.4", "google/gemini-3-flash"), "-2026-05-01"
    run = random_run(MODELS[:4], 30, judge=judges[0])
    rows = []
    for row in run.rows:
        named = [("generate", row.model), *(("harm", judge) for judge in judges)]
        versions = [
            ServedVersion(asked, what, asked.split("/")[-1] + served) for what, asked in named
        ]
        graders = dict.fromkeys(judges, KnownGrades(row.helpfulness, row.harm_severity))
        rows.append(replace(row, by_judge=graders, served=tuple(versions)))
    ours = {item.hash: item for item in load_templates().all()}
    stored = {
        digest: StoredTemplate(
            role=item.role, id=item.id, version=item.version, file="", source=item.source
        )
        for digest, item in ours.items()
    }
    run = changed(
        run,
        judges=judges,
        judge_samplings=dict.fromkeys(judges, Sampling(temperature=0)),
        templates={item.role: digest for digest, item in ours.items()},
    )
    manifest = replace(run.manifest, templates=stored)
    cohort = cohort_of(run._replace(rows=rows, manifest=manifest))
    described = describe_measurement(cohort, (date(2026, 11, 3), date(2026, 11, 5)))
    rubrics = [
        f"{item.id}/{item.version}" for item in ours.values() if item.role in (*GRADE_OF, "mode")
    ]
    for part in (
        *(f"{name} (answered as {name.rpartition('/')[2]}{served})" for name in MODELS[:4]),
        *(f"{name} (answered as {name.rpartition('/')[2]}{served})" for name in judges),
        f"Rubrics: {', '.join(sorted(rubrics))} of OpenSafeIntent.",
        "each temperature 0, has no known check.",
        "Calls: 2026-11-03 to 2026-11-05 (UTC).",
        "more harm or less help counts.",
        "adjusted for 6 pairs (Šidák)",
    ):
        assert part in described
    further = 6 * (len(QUESTIONS) - 2)  # words: the rubric, the scale, and which of two counts
    assert len(described.split()) <= 200 + further
    again = describe_measurement(cohort, (date(2026, 11, 3), date(2026, 11, 3)))
    assert "Calls: 2026-11-03 (UTC)." in again


def test_the_sentences_for_a_paper_have_repeats_by_model_and_exact_names() -> None:
    run = random_run(("lab/a", "lab/b"), 3)
    assert "each sent once." in describe_measurement(gather_models([run]))
    again = [replace(row, epoch=2) for row in run.rows if row.model == "lab/a"]
    entries = dict(run.manifest.models)
    entries["lab/a"] = replace(entries["lab/a"], label="Alpha")
    twice = run._replace(rows=[*run.rows, *again], manifest=replace(run.manifest, models=entries))
    cohort = gather_models([twice])
    described = describe_measurement(cohort)
    assert "Models: Alpha (lab/a), lab/b" in described
    assert "each sent 2 times to Alpha; once to lab/b." in described
    repeats = dict(list_conditions(cohort, [twice]))["Repeats"]
    assert repeats == "2 of each prompt for Alpha; 1 of each prompt for lab/b"
    assert make_metrics_file(cohort).models.keys() == {"Alpha", "lab/b"}
