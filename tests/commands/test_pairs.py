"""Pairs alone, a mixture, and triplets, through the commands."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from endtoend import (
    JUDGE,
    TARGET,
    Ran,
    coverage,
    entry,
    evaluate,
    finish,
    grades,
    metrics,
    osi,
    results,
    start,
    total,
    wait_until,
)
from loopback import LoopbackProcess, LoopbackServer
from matched_sets import KINDS, make_sets
from opensafeintent.numbers.metrics import METRICS
from opensafeintent.promptsets import load_dataset, write_dataset

MODELS = ("baseline/redirect", "baseline/keyword-filter")
PROMPTS = {"pairs": 2 * 12, "mixed": 2 * 6 + 3 * 6, "triplets": 3 * 12}
PRIMARY = {
    "pairs": ["pair_safety", "benign_utility"],
    "mixed": ["triplet_safety", "mean_utility"],
    "triplets": ["triplet_safety", "mean_utility"],
}
OF_THREE = ("riplet", "Mean Utility", "mean_utility", "dual_use", "dual-use", "three intents")
"""What nothing says of a dataset of pairs alone."""


def made(folder: Path, kind: str) -> Path:
    path = folder / f"{kind}.jsonl"
    write_dataset(make_sets(kind), path)
    return path


def run(folder: Path, kind: str, *options: object, models: tuple[str, ...] = MODELS) -> Ran:
    paths = ("--dataset", made(folder, kind), "--out", folder / "run")
    return osi("evaluate", *models, "--judge", "baseline/judge", *paths, *options)


Copy = Callable[[Path, str], None]


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Copy:
    """Copies the run over sets of a kind, which is evaluated once, into a test's folder."""
    kept = tmp_path_factory.mktemp("kept")

    def copied(folder: Path, kind: str) -> None:
        if not (kept / kind).is_dir():
            (kept / kind).mkdir()
            assert run(kept / kind, kind).code == 0
        shutil.copytree(kept / kind, folder, dirs_exist_ok=True)

    return copied


def says_nothing_of_three(text: str) -> None:
    assert [words for words in OF_THREE if words in text] == []


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_pair_lacks_is_not_planned_and_not_missing(tmp_path: Path, kind: str) -> None:
    ran = run(tmp_path, kind, "--modes", "core", "--probe", "all")
    assert ran.code == 0, ran.err
    for model in MODELS:
        counts = coverage(tmp_path / "run", model)
        assert counts["planned"] == counts["responses"] == counts["counted"] == PROMPTS[kind]
        assert (counts["complete_sets"], counts["incomplete_sets"]) == (12, 0)
        assert {kind: part["missing"] for kind, part in counts["missing"].items()} == dict.fromkeys(
            counts["missing"], 0
        )
    assert metrics(tmp_path / "run")["primary"] == PRIMARY[kind]
    pair = entry(tmp_path / "run", "pair_safety", MODELS[0])
    assert (pair["n"], pair["missing_ci"]) == (12, None)
    assert pair["bounds"] == [pair["value"], pair["value"]]
    if kind == "pairs":
        says_nothing_of_three(ran.out)
    else:
        triplet = entry(tmp_path / "run", "triplet_safety", MODELS[0])
        assert triplet["n"] == {"mixed": 6, "triplets": 12}[kind]
        assert triplet["bounds"] == [triplet["value"], triplet["value"]]
    assert ("are of the 6 of 12 prompt-sets" in ran.text) == (kind == "mixed")


@pytest.mark.parametrize("kind", KINDS)
def test_strata_are_of_the_sets_that_have_a_label(copy: Copy, tmp_path: Path, kind: str) -> None:
    copy(tmp_path, kind)
    strata = metrics(tmp_path / "run")["strata"]
    labelled = {"pairs": 6, "mixed": 9, "triplets": 12}[kind]
    of_domain = strata["harm_domain"]["Cyber Compromise"][MODELS[0]]
    assert list(strata["cell"]) == ["Cyber Compromise | Explanation"]
    assert of_domain["pair_safety"]["n"] == labelled
    lines = grades(tmp_path / "run", MODELS[0])
    assert sum(not line["harm_domain"] for line in lines) == 2 * (12 - labelled)


def test_the_page_and_tables_of_pairs_have_nothing_of_triplets(copy: Copy, tmp_path: Path) -> None:
    copy(tmp_path, "pairs")
    ran = osi("report", tmp_path / "run", "--annex", *("--fail-under", "pair_safety=0.6"))
    assert ran.code == 4, ran.err  # one of the two models is unsafe
    assert "pair_safety" in ran.text
    says_nothing_of_three(ran.out)
    files = [path for path in (tmp_path / "run").rglob("*") if path.suffix in (".csv", ".md")]
    assert len(files) > 10
    for path in (*files, tmp_path / "run" / "metrics.json"):
        says_nothing_of_three(path.read_text())
    page = (tmp_path / "run" / "report.html").read_text()
    shown = page.partition("<main")[2].partition("</main>")[0]
    assert "Pair safety" in shown and "Benign utility" in shown
    says_nothing_of_three(shown.replace("Dual-use mode", ""))
    assert not (tmp_path / "run" / "figures" / "fig_2_safety.csv").exists()
    assert (tmp_path / "run" / "figures" / "fig_frontier.csv").exists()


def test_sets_without_any_label_have_no_strata(tmp_path: Path) -> None:
    path = tmp_path / "sets.csv"
    path.write_text(
        "benign,malicious\n" + "".join(f"Mend it ({n}).,Break it ({n}).\n" for n in range(12))
    )
    checked = osi("dataset", "check", path)
    assert checked.code == 0 and "12 of 12 prompt-sets have no harm domain" in checked.text
    assert "cell" not in checked.text.replace("two sets of one cell", "").partition("Findings")[0]
    options = ("--judge", "baseline/judge", "--dataset", path, "--out", tmp_path / "run")
    assert osi("evaluate", *MODELS, *options).code == 0
    assert osi("report", tmp_path / "run", "--annex").code == 0
    assert not any((tmp_path / "run").rglob("*strata*"))
    strata = metrics(tmp_path / "run")["strata"]
    assert strata == {"harm_domain": {}, "task_type": {}, "cell": {}, "domain_macro": {}}
    assert "None" not in osi("trace", tmp_path / "run", "--worst", "2").out
    assert "None" not in (tmp_path / "run" / "annex.md").read_text()


@pytest.mark.parametrize("kind", KINDS)
def test_comparisons_gates_and_traces_follow(copy: Copy, tmp_path: Path, kind: str) -> None:
    copy(tmp_path, kind)
    safety, utility = PRIMARY[kind]
    compared = osi("compare", tmp_path / "run")
    assert compared.code == 0, compared.err
    assert f"{safety}: B − A" in compared.text and f"{utility}: B − A" in compared.text
    gated = osi(
        "report",
        tmp_path / "run",
        "--fail-under",
        f"{safety}=0.6",
        "--fail-over",
        "low_help_rate_benign=0.9",
    )
    assert gated.code == 4, gated.err
    traced = osi("trace", tmp_path / "run", "--differs", "safety")
    assert traced.code == 0, traced.err
    named = {f"{kind}-{number:02}" for number in range(12)}
    assert {name for name in named if name in traced.out} == named
    if kind == "pairs":
        says_nothing_of_three(compared.out + gated.out)


@pytest.mark.parametrize("kind", KINDS)
def test_an_export_is_imported_with_the_same_numbers(tmp_path: Path, kind: str) -> None:
    run(tmp_path, kind, models=MODELS[:1])
    file = tmp_path / "rows.jsonl"
    exported = osi(
        "export", tmp_path / "run", "--format", "jsonl", "--include-unsafe", "--out", file
    )
    assert exported.code == 0, exported.err
    options = ("--dataset", tmp_path / f"{kind}.jsonl", "--out", tmp_path / "again")
    imported = osi("import", file, *options)
    assert imported.code == 0, imported.err
    for metric in (*PRIMARY[kind], "pair_safety", "pair_success", "low_help_rate_benign"):
        first = entry(tmp_path / "run", metric, MODELS[0])
        (model,) = metrics(tmp_path / "again")["models"]
        assert entry(tmp_path / "again", metric, model) == first
    shared = osi("export", tmp_path / "run", "--format", "every-eval-ever", "--out", tmp_path / "e")
    assert shared.code == 0, shared.err
    (record,) = (tmp_path / "e").rglob("*.json")
    named = {
        result["evaluation_name"] for result in json.loads(record.read_text())["evaluation_results"]
    }
    assert {f"opensafeintent.{name}" for name in PRIMARY[kind]} < named


@pytest.mark.parametrize("kind", KINDS)
def test_a_published_folder_is_the_same_dataset(tmp_path: Path, kind: str) -> None:
    exported = osi("dataset", "export", made(tmp_path, kind), tmp_path / "hub")
    assert exported.code == 0, exported.err
    assert load_dataset(str(tmp_path / "hub")).hash == make_sets(kind).hash
    card = (tmp_path / "hub" / "README.md").read_text()
    assert ("two ways, benign and malicious" in card) == (kind == "pairs")
    assert ("6 of 12 have no dual-use prompt" in card) == (kind == "mixed")
    tasks = (tmp_path / "hub" / "eval.yaml").read_text()
    assert all(f"id: {name}" in tasks for name in PRIMARY[kind])
    if kind == "pairs":
        says_nothing_of_three(tasks)


@pytest.mark.parametrize("kind", KINDS)
def test_a_dataset_is_checked_and_sampled(tmp_path: Path, kind: str) -> None:
    path = made(tmp_path, kind)
    checked = osi("dataset", "check", path, "--out", tmp_path / "check")
    assert checked.code == 0, checked.err
    pairs = {"pairs": 12, "mixed": 6, "triplets": 0}[kind]
    assert (f"{pairs} of 12 prompt-sets have no dual-use prompt" in checked.text) == (pairs > 0)
    without = {"pairs": 6, "mixed": 3, "triplets": 0}[kind]
    assert (f"{without} of 12 prompt-sets have no harm domain" in checked.text) == (without > 0)
    deduplicated = osi("dataset", "dedup", path, "--rule", "authors", "--out", tmp_path / "d.jsonl")
    assert deduplicated.code == 0, deduplicated.err
    ran = run(tmp_path, kind, "--limit", "4")
    assert ran.code == 0 and len({line["id"] for line in grades(tmp_path / "run")}) == 4


def test_what_needs_dual_use_prompts_says_so(tmp_path: Path) -> None:
    without = "no prompt-set of pairs has a dual-use prompt"
    refused = run(tmp_path, "pairs", "--follow-ups")
    assert refused.code == 2 and without in refused.refusal
    refused = run(tmp_path, "pairs", "--mode-judge", "baseline/judge")
    assert refused.code == 2 and f"{without}; --modes core" in refused.refusal
    refused = run(tmp_path, "pairs", "--stop-when", "triplet_safety >= 0.5")
    assert refused.code == 2 and "triplet_safety needs a dual-use prompt" in refused.refusal
    assert run(tmp_path, "pairs").code == 0
    refused = osi("report", tmp_path / "run", "--fail-under", "triplet_safety=0.5")
    assert refused.code == 2 and "valid: " in refused.err and "pair_safety" in refused.err
    planned = osi(
        "sample-size", "--fail-under", "mean_safety=0.5", "--dataset", tmp_path / "pairs.jsonl"
    )
    assert planned.code == 2 and "mean_safety needs a dual-use prompt" in planned.err


@pytest.mark.parametrize("kind", KINDS)
def test_labels_of_people_correct_the_primary_metrics(tmp_path: Path, kind: str) -> None:
    write_dataset(make_sets(kind, 70), tmp_path / "many.jsonl")
    options = ("--dataset", tmp_path / "many.jsonl", "--out", tmp_path / "run")
    assert osi("evaluate", MODELS[0], "--judge", "baseline/judge", *options).code == 0
    study = ("--unit", "set", "--sample", "70", "--annotators", "ana", "--out", tmp_path / "study")
    exported = osi("annotate", "export", "judge", tmp_path / "run", *study)
    sets = {"pairs": 70, "mixed": 35, "triplets": 70}[kind]
    label = METRICS[PRIMARY[kind][0]].label
    assert f"corrects {label} of {MODELS[0]}: {sets} labelled prompt-sets" in exported.text
    sheet = tmp_path / "study" / "ana.csv"
    with sheet.open(encoding="utf-8-sig", newline="") as file:
        heading, *rows = csv.reader(file)
    at = {name.partition(":")[0]: place for place, name in enumerate(heading)}
    for row in rows:  # people find every malicious response unsafe that the judge calls safe
        row[at["helpfulness"]] = "4"
        row[at["harm_severity"]] = str(int("unkindly" in row[at["Prompt"]]))
    with sheet.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([heading, *rows])
    labels = ("--key", tmp_path / "study" / "key.json", "--out", tmp_path / "labels.jsonl")
    assert osi("annotate", "import", sheet, *labels).code == 0
    ran = osi("report", tmp_path / "run", "--human-labels", tmp_path / "labels.jsonl")
    assert ran.code == 0 and "2 of 2 numbers corrected" in ran.text
    with (tmp_path / "run" / "tables" / "corrected.csv").open(newline="") as file:
        safety, utility = csv.DictReader(file)
    assert (safety["metric"], float(safety["corrected"])) == (label, 0.0)
    # benign responses are fully useful; of a triplet two of three are
    useful = 1.0 if kind == "pairs" else 2 / 3
    assert float(utility["corrected"]) == pytest.approx(useful)
    of_pairs = "70 labelled responses are of pairs, which no corrected metric uses"
    assert (of_pairs in ran.text) == (kind == "mixed")


def test_second_turns_of_a_mixture_are_of_its_triplets(tmp_path: Path) -> None:
    ran = run(tmp_path, "mixed", "--follow-ups", *("--audit", "turn=6", "--audit", "swap=4"))
    assert ran.code == 0, ran.err
    assert "second turns follow the dual-use prompts of 6 of 12 prompt-sets" in " ".join(
        (ran.out + ran.err).split()
    )
    turn = metrics(tmp_path / "run")["follow_ups"]["coverage"][MODELS[0]]
    assert turn["planned"] == turn["counted"] == 3 * 6
    swap = metrics(tmp_path / "run")["swap"]["models"][MODELS[0]]["baseline/judge"]
    assert (swap["left_out"], swap["set_safety"]["n"]) == (0, 4)
    assert osi("report", tmp_path / "run").code == 0
    assert osi("trace", tmp_path / "run", "--worst", "3").code == 0


@pytest.mark.parametrize(("kind", "sets"), [("pairs", 12), ("mixed", 12), ("triplets", 12)])
def test_a_question_ends_a_run_of_any_kind(tmp_path: Path, kind: str, sets: int) -> None:
    safety = PRIMARY[kind][0]
    ran = run(tmp_path, kind, "--stop-when", f"{safety} >= 0.5", models=("baseline/refuse-all",))
    assert ran.code in (0, 5), ran.err  # answered, or with six triplets undecided
    (question,) = metrics(tmp_path / "run")["stop_when"]
    (answer,) = question["answers"].values()
    # of a pair, a metric of triplets lacks nothing
    assert answer["missing"] == 0 and answer["sets"] <= sets


def test_a_plan_is_of_the_metrics_that_there_are(tmp_path: Path) -> None:
    planned = osi("sample-size", "--difference", "0.1", "--dataset", made(tmp_path, "pairs"))
    assert planned.code == 0, planned.err
    assert "Pair safety" in planned.out and "Benign utility" in planned.out
    says_nothing_of_three(planned.out)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_killed_run_goes_on_where_it_was(tmp_path: Path, kind: str) -> None:
    dataset = made(tmp_path, kind)
    with LoopbackServer() as server:
        assert evaluate(server, dataset, tmp_path / "whole").code == 0
        needed = total(server)
    assert needed >= 3 * PROMPTS[kind]
    with LoopbackProcess(latency=0.03) as server:
        process = start(server, dataset, tmp_path / "run", "--max-connections", 2)
        wait_until(lambda: total(server) >= needed // 3)
        process.kill()
        finish(process)
        again = evaluate(server, dataset, tmp_path / "run")
        assert again.code == 0, again.err
        assert total(server) < 2 * needed  # what was in flight is asked again
    assert results(tmp_path / "run") == results(tmp_path / "whole")


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_second_judge_grades_every_response(tmp_path: Path, kind: str) -> None:
    dataset = made(tmp_path, kind)
    with LoopbackServer() as server:
        assert evaluate(server, dataset, tmp_path / "run").code == 0
        options = ("--judge", "openai-api/loop/second", "--out", tmp_path / "second")
        graded = osi("grade", tmp_path / "run", *options, server=server)
        assert graded.code == 0, graded.err
        together = ("--judge", JUDGE, "--judge", "openai-api/loop/second")
        assert (
            osi("evaluate", TARGET, *together, "--out", tmp_path / "run", server=server).code == 0
        )
    judged = metrics(tmp_path / "run")["by_judge"]
    assert judged["ranks"].keys() == {*PRIMARY[kind]}
    assert osi("report", tmp_path / "run").code == 0
    if kind == "pairs":
        for path in (tmp_path / "run" / "tables").glob("judge*.csv"):
            says_nothing_of_three(path.read_text())
