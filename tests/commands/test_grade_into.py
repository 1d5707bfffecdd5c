"""Grading the responses of a run in a new run: `grade RUN --judge OLD --judge NEW --out DIR`."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from endtoend import JUDGE, TARGET, Lab, evaluate, fails, grades, metrics, osi, says, some_sets
from loopback import GENERATE, HARM, MODE, LoopbackServer
from opensafeintent import (
    EvaluateSettings,
    FunctionModel,
    GradeSettings,
    ImportSettings,
    evaluate as evaluate_api,
    grade,
    import_files,
)
from opensafeintent.errors import InputError
from opensafeintent.taxonomy import GRADE_OF
from samples import dataset_file, json_lines, least_grade, lines_of, made_dataset, prompt_set

NEW = f"{JUDGE}~lenient"
RESPONSES = 56
ASKED = len(GRADE_OF)
BOTH = ("--judge", JUDGE, "--judge", NEW)


@pytest.fixture
def lab(server: LoopbackServer, tmp_path: Path) -> Lab:
    """A run of eight sets that one judge graded."""
    lab = Lab(server, some_sets(tmp_path, 8), tmp_path / "run")
    assert lab.evaluate().code == 0
    return lab


def asked(lab: Lab) -> Counter[str]:
    return Counter(lab.server.stats()["by_model"])


def stored(run: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(run.glob("*")) if path.is_file()}


def harms(run: Path, column: str) -> list[str]:
    return [row[column] for row in grades(run)]


@pytest.mark.slow
def test_only_the_new_judge_is_asked_and_the_run_stays_as_it_is(lab: Lab, tmp_path: Path) -> None:
    out, before, run = tmp_path / "bridge", asked(lab), stored(lab.run)
    ran = osi("grade", lab.run, *BOTH, "--out", out, server=lab.server)
    assert ran.code == 0, ran.err
    assert asked(lab) - before == {"judge~lenient": ASKED * RESPONSES}
    assert stored(lab.run) == run
    assert f"{ASKED * RESPONSES} calls made" in ran.out
    assert "Of two different grades" in ran.out and "more harm or less help counts." in ran.out
    assert f"note: if {NEW} replaced {JUDGE}: Triplet Safety +" in ran.text
    assert harms(out, f"harm_severity[{JUDGE}]") == harms(lab.run, "harm_severity")
    assert harms(out, "mode") == harms(lab.run, "mode")
    old, new = (harms(out, f"harm_severity[{judge}]") for judge in (JUDGE, NEW))
    assert new == ["0" if harm == "1" else harm for harm in old] != old
    # the same command again makes no call, and neither does the report of a folder that was moved
    again = osi("grade", lab.run, *BOTH, "--out", out, server=lab.server)
    assert again.code == 0 and "0 calls made" in again.out
    moved = out.rename(tmp_path / "moved")
    lab.run.rename(tmp_path / "away")
    assert osi("report", moved).code == 0
    assert harms(moved, f"harm_severity[{NEW}]") == new


@pytest.mark.slow
def test_a_planted_shift_is_recovered_and_the_same_judge_has_no_excess(
    server: LoopbackServer, tmp_path: Path
) -> None:
    # the server's judges call a quarter of the responses unsafe, a third of them with harm 1, which
    # the lenient one calls safe: 1/12 more are safe, and (5/6)³ − (3/4)³ of the prompt-sets
    lab = Lab(server, some_sets(tmp_path, 40, paraphrases=0), tmp_path / "run")
    assert lab.evaluate("--modes", "dual_use", "--probe", "none").code == 0
    out, same = tmp_path / "bridge", f"{JUDGE}~same"
    judges = (*BOTH, "--judge", same)
    ran = osi("grade", lab.run, *judges, "--out", out, "--audit", "retest=60", server=server)
    assert ran.code == 0, ran.err
    shifts = {tuple(item["judges"]): item for item in metrics(out)["by_judge"]["shift"]}
    values = {item["metric"]: item for item in shifts[JUDGE, NEW]["metrics"]}
    for metric, planted in (("mean_safety", 1 / 12), ("triplet_safety", (5 / 6) ** 3 - 0.75**3)):
        low, high = values[metric]["ci"]
        assert low <= planted <= high and values[metric]["value"] > 0
    # the grades themselves say how many responses are newly safe, and none is newly unsafe
    harm = [(row[f"harm_severity[{JUDGE}]"], row[f"harm_severity[{NEW}]"]) for row in grades(out)]
    (sides,) = shifts[JUDGE, NEW]["sides"]
    assert sides["newly_safe"] == harm.count(("1", "0")) > 0 == sides["newly_unsafe"]
    retest = shifts[JUDGE, NEW]["retest"]
    assert (retest["responses"], retest["old_flips"]["value"]) == (60, 0)
    assert retest["excess_flips"]["value"] == retest["new_flips"]["value"] > 0
    # another name for the old judge
    assert {item["value"] for item in shifts[JUDGE, same]["metrics"]} == {0}
    assert shifts[JUDGE, same]["retest"]["excess_flips"]["value"] == 0
    assert all(
        item["same_within"] == item["least_margin"] for item in shifts[JUDGE, same]["metrics"]
    )
    assert (out / "tables" / "judge_shift.csv").is_file()
    assert osi("report", out).code == 0
    page = (out / "report.html").read_text("utf-8")
    assert page.count('id="judge_shift"') == 1
    assert page.count('id="table-judge_shift"') == 1


@pytest.mark.slow
def test_a_judge_of_an_earlier_command_is_asked_although_it_is_a_target_too(
    lab: Lab, tmp_path: Path
) -> None:
    out, target = tmp_path / "both", JUDGE.replace("judge", "target")
    command = ("grade", lab.run, "--out", out, "--judge", target)
    assert osi(*command, "--budget-calls", 9, server=lab.server).code == 3
    before = asked(lab)["target"]
    osi(*command, "--judge", NEW, server=lab.server)
    assert asked(lab)["target"] > before


@pytest.mark.slow
def test_a_judge_that_no_longer_exists_is_not_asked(lab: Lab, tmp_path: Path) -> None:
    lab.server.set_faults(fails(404, model="judge"))
    ran = osi("grade", lab.run, *BOTH, "--out", tmp_path / "bridge", server=lab.server)
    assert ran.code == 0, ran.err


@pytest.mark.slow
def test_dry_run_counts_the_new_judge_and_writes_nothing(lab: Lab, tmp_path: Path) -> None:
    out, before = tmp_path / "bridge", asked(lab)

    def counted(*options: object) -> list[tuple[str, str]]:
        ran = osi("grade", lab.run, *BOTH, "--out", out, *options, "--dry-run", server=lab.server)
        assert ran.code == 0, ran.err
        assert "assumed" not in ran.text  # the responses are there
        assert "two judges can be shown to agree on safety within" in ran.text
        return re.findall(r"(judge\S*) +(\w+(?:, again)?) +(\d+)", ran.out)

    new = [("judge~lenient", question, "56") for question in GRADE_OF]
    assert sorted(map(tuple, counted())) == sorted(new)
    again = {
        (judge, f"{what}, again", "10") for judge in ("judge", "judge~lenient") for what in GRADE_OF
    }
    assert set(counted("--audit", "retest=10")) == {*new, *again}
    assert not out.exists() and asked(lab) == before


@pytest.mark.slow
def test_the_old_judge_is_asked_again_now_and_not_read_from_the_run(
    server: LoopbackServer, tmp_path: Path
) -> None:
    lab = Lab(server, some_sets(tmp_path, 8), tmp_path / "run")
    assert lab.evaluate("--audit", "retest=12").code == 0
    before = asked(lab)
    options = ("--out", tmp_path / "bridge", "--audit", "retest=12")
    ran = osi("grade", lab.run, *BOTH, *options, server=server)
    assert ran.code == 0, ran.err
    assert asked(lab) - before == {"judge": ASKED * 12, "judge~lenient": ASKED * (RESPONSES + 12)}
    noise = metrics(tmp_path / "bridge")["by_judge"]["noise"]
    assert noise[JUDGE]["responses"] == 12 and noise[JUDGE]["safe_flips"]["value"] == 0


@pytest.mark.slow
def test_a_budget_ends_the_work_and_the_same_command_goes_on(lab: Lab, tmp_path: Path) -> None:
    out, before = tmp_path / "bridge", asked(lab)
    command = ("grade", lab.run, *BOTH, "--out", out)
    assert osi(*command, "--budget-calls", 30, server=lab.server).code == 3
    assert (asked(lab) - before).total() == 30
    dry = osi(*command, "--dry-run", server=lab.server).out
    assert (
        sum(int(count) for count in re.findall(r"judge~lenient +\w+ +(\d+)", dry))
        == ASKED * RESPONSES - 30
    )
    assert osi(*command, server=lab.server).code == 0
    assert asked(lab) - before == {"judge~lenient": ASKED * RESPONSES}


@pytest.mark.slow
def test_grades_that_the_run_lacks_stay_missing_and_are_not_asked_for(
    server: LoopbackServer, tmp_path: Path
) -> None:
    lab, out = Lab(server, some_sets(tmp_path, 8), tmp_path / "run"), tmp_path / "bridge"
    server.set_faults(fails(400, HARM, every=10), fails(400, GENERATE, first=3))
    assert lab.evaluate("--max-missing", 1).code == 0
    server.set_faults()
    before = asked(lab)
    command = ("grade", lab.run, *BOTH, "--out", out, "--max-missing", 1)
    ran = osi(*command, server=server)
    assert ran.code == 0, ran.err
    assert asked(lab) - before == {"judge~lenient": ASKED * (RESPONSES - 3)}
    assert "run again" not in ran.out
    old = harms(out, f"harm_severity[{JUDGE}]")
    assert old == harms(lab.run, "harm_severity") and old.count("") == 3 + 5


@pytest.mark.slow
def test_a_run_grows_by_models_and_by_a_third_judge(lab: Lab, tmp_path: Path) -> None:
    out, other, third = tmp_path / "bridge", "openai-api/loop/other", "openai-api/loop/third"
    command = ("grade", lab.run, "--out", out)
    assert osi(*command, *BOTH, server=lab.server).code == 0
    assert evaluate(lab.server, lab.dataset, lab.run, models=[other]).code == 0
    before = asked(lab)
    assert osi(*command, *BOTH, server=lab.server).code == 0
    assert asked(lab) - before == {"judge~lenient": ASKED * RESPONSES}
    assert set(metrics(out)["models"]) == {TARGET, other}
    of_three = osi(*command, *BOTH, "--judge", third, server=lab.server)
    assert of_three.code == 0 and "Of two different grades" not in of_three.out
    assert metrics(out)["judges"] == sorted([JUDGE, NEW, third])
    assert (asked(lab) - before)["third"] == 2 * ASKED * RESPONSES


@pytest.mark.slow
def test_a_misspelt_judge_does_not_stay(lab: Lab, tmp_path: Path) -> None:
    out, wrong = tmp_path / "bridge", "openai-api/loop/wrong"
    lab.server.set_faults(fails(404, model="wrong"))
    command = ("grade", lab.run, "--judge", JUDGE, "--out", out)
    assert osi(*command, "--judge", wrong, server=lab.server).code == 3
    assert osi(*command, "--judge", NEW, server=lab.server).code == 0
    assert metrics(out)["judges"] == sorted([JUDGE, NEW])


@pytest.mark.slow
def test_refusals(lab: Lab, tmp_path: Path) -> None:
    def refused(*options: object) -> str:
        return osi("grade", lab.run, *BOTH, *options, server=lab.server).refusal

    assert "is the run whose responses are graded" in refused("--out", lab.run)
    shared = lab.run / "ledger.sqlite"
    assert "is only read" in refused("--out", tmp_path / "new", "--ledger", shared)
    line = refused("--out", tmp_path / "new", "--judge-arg", "max_tokens=9")
    assert "so that only the judge changes" in line
    other = tmp_path / "other"
    assert evaluate(lab.server, some_sets(tmp_path, 3), other).code == 0
    assert "holds a run with other responses" in refused("--out", other)
    assert "--out DIR" in refused()
    assert not (tmp_path / "new").exists()


def test_a_cluster_is_refused(lab: Lab, tmp_path: Path) -> None:
    command = ("grade", lab.run, *BOTH, "--out", tmp_path / "new", "--ray", "local")
    assert "--ray" in osi(*command, server=lab.server).refusal


def says_by(name: str, harm: dict[str, str]) -> FunctionModel:
    def ask(messages: list[dict[str, str]]) -> str:
        text = messages[0]["content"]
        if "one integer from 1 to 4" in text:
            return "3"
        if '"mode"' in text:
            return '{"mode": "A4"}'
        if "one integer from 0 to 3" not in text:
            return least_grade(text)
        return next((grade for word, grade in harm.items() if word in text), "0")

    return FunctionModel(ask, name=name, version="1")


@pytest.mark.slow
def test_verdicts_of_the_run_s_guard_are_copied(server: LoopbackServer, tmp_path: Path) -> None:
    lab, out = Lab(server, some_sets(tmp_path, 8), tmp_path / "run"), tmp_path / "bridge"
    guard = "openai-api/loop/llama-guard-3"
    server.set_faults(says("safe", model="llama-guard-3"))
    assert lab.evaluate("--guard", guard).code == 0
    server.set_faults(fails(404, model="llama-guard-3"))
    before = asked(lab)
    for options in ((), ("--audit", "retest=5")):
        assert osi("grade", lab.run, *BOTH, "--out", out, *options, server=server).code == 0
        assert (asked(lab) - before)["llama-guard-3"] == 0
    assert harms(out, "guard") == harms(lab.run, "guard") == ["no"] * RESPONSES


@pytest.mark.slow
def test_probes_stay_with_the_grades_and_the_audit_with_its_judge(
    server: LoopbackServer, tmp_path: Path
) -> None:
    lab, out = Lab(server, some_sets(tmp_path, 8), tmp_path / "run"), tmp_path / "second-opinion"
    assert lab.evaluate("--follow-ups", "--audit", "turn=6").code == 0
    server.set_faults(says("safe", model="llama-guard-3"))
    before = asked(lab)
    guarded = ("--judge", JUDGE, "--guard", "openai-api/loop/llama-guard-3", "--out", out)
    ran = osi("grade", lab.run, *guarded, server=server)
    assert ran.code == 0 and (asked(lab) - before).keys() == {"llama-guard-3"}
    assert "not copied" not in ran.out + ran.err
    for name in ("probe.csv", "follow_ups.csv"):
        assert (out / "tables" / name).read_bytes() == (lab.run / "tables" / name).read_bytes()
    assert harms(out, "strategy") == harms(lab.run, "strategy")
    # a probe follows the panel's grades, and the model is not asked for one
    before, out = asked(lab), tmp_path / "bridge"
    for more in (("--dry-run",), ()):
        ran = osi("grade", lab.run, *BOTH, "--out", out, *more, server=server)
        assert ran.code == 0
        expected = "probes are not copied, because they follow the earlier grades"
        assert expected in " ".join((ran.out + ran.err).split())
    assert (asked(lab) - before).keys() == {"judge~lenient"}
    assert not (out / "tables" / "probe.csv").exists()
    assert set(harms(out, "strategy")) == {""}


@pytest.mark.slow
def test_imported_responses_and_judges_that_are_python(tmp_path: Path) -> None:
    dataset = made_dataset(*map(prompt_set, "abcd"))
    lines: list[dict[str, Any]] = [
        {"id": item.id, "variant": variant, "response": f"{variant} words"}
        for item in dataset.prompt_sets
        for variant in item.wordings()
    ]
    path = json_lines(tmp_path / "m.jsonl", lines)
    run, out = tmp_path / "run", tmp_path / "bridge"
    import_files(ImportSettings(files=(path,), out=run, dataset=dataset_file(tmp_path, dataset)))
    old, new = says_by("old", {"dual_use words": "2"}), says_by("new", {})
    grade(GradeSettings(run=run, judges=(old,)))
    settings = {"run": run, "judges": (old, new), "out": out, "audit": {"retest": 3}}
    dry = grade(GradeSettings(**settings, dry_run=True))
    assert dry.forecast is not None
    assert not any("probe" in note for note in dry.notes)
    assert not (run / "tables" / "probe.csv").exists()
    assert sum(line.calls for line in dry.forecast.lines) == ASKED * (len(lines) + 2 * 3)
    outcome = grade(GradeSettings(**settings))
    assert outcome.tally is not None
    assert outcome.tally.new_calls.total() == ASKED * (len(lines) + 2 * 3)
    means = {
        judge: values["mean_safety"]["value"]
        for judge, values in metrics(out)["by_judge"]["models"]["m"].items()
    }
    assert means["python/old@1"] == pytest.approx(2 / 3, abs=1e-6)
    assert means["python/new@1"] == 1
    # imported responses of the run itself are graded twice by the same option
    again = grade(GradeSettings(run=run, judges=(old,), audit={"retest": 5}))
    assert again.tally is not None and again.tally.new_calls.total() == ASKED * 5


@pytest.mark.slow
def test_imported_grades_stay_and_a_note_says_that_numbers_mix(tmp_path: Path) -> None:
    dataset = made_dataset(*map(prompt_set, "ab"))
    lines = lines_of(dataset)
    for line in lines[:2]:
        line |= {"helpfulness": 3, "harm_severity": 0}
    path, file = json_lines(tmp_path / "m.jsonl", lines), dataset_file(tmp_path, dataset)
    run, judges = tmp_path / "run", (says_by("new", {}),)
    outcomes = [
        import_files(ImportSettings(files=(path,), out=run, dataset=file)),
        grade(GradeSettings(run=run, judges=judges, out=tmp_path / "new")),
        grade(GradeSettings(run=run, judges=judges)),
    ]
    for outcome in outcomes:
        assert any("m: 2 of 6 responses came with" in said.text for said in outcome.notices)
    for name, some in (("graded", lines[:2]), ("bare", lines[2:])):
        path = json_lines(tmp_path / f"{name}.jsonl", some)
        alike = import_files(ImportSettings(files=(path,), out=tmp_path / name, dataset=file))
        assert not any(said.code == "mixed_grades" for said in alike.notices)


def test_a_run_without_a_response_that_judges_could_grade(tmp_path: Path) -> None:
    file = dataset_file(tmp_path, made_dataset(prompt_set("a")))
    line = {"id": "a", "variant": "benign", "response": "words"}
    graded = line | {"helpfulness": 3, "harm_severity": 0}
    path = json_lines(tmp_path / "m.jsonl", [graded])
    import_files(ImportSettings(files=(path,), out=tmp_path / "run", dataset=file))
    judges = (says_by("new", {}),)
    with pytest.raises(InputError, match="holds no response that a judge could grade"):
        grade(GradeSettings(run=tmp_path / "run", judges=judges, out=tmp_path / "out"))


@pytest.mark.slow
def test_templates_and_the_reading_of_grades_are_those_of_the_run(tmp_path: Path) -> None:
    file = dataset_file(tmp_path, made_dataset(*map(prompt_set, "ab")))
    old, new = says_by("old", {}), says_by("new", {})
    evaluate_api(
        EvaluateSettings(
            models="baseline/redirect",
            dataset=file,
            judges=(old,),
            modes="core",
            out=tmp_path / "run",
        )
    )
    outcome = grade(GradeSettings(run=tmp_path / "run", judges=(old, new), out=tmp_path / "bridge"))
    templates = [metrics(tmp_path / name)["templates"] for name in ("bridge", "run")]
    assert templates[0] == templates[1]
    assert outcome.tally is not None
    assert {(model, what) for model, what in outcome.tally.new_calls} == {
        ("python/new@1", question) for question in GRADE_OF
    }
    assert (MODE, "python/old@1") not in outcome.tally.new_calls


@pytest.mark.slow
def test_a_run_keeps_all_its_judges_and_the_judge_of_its_modes(lab: Lab, tmp_path: Path) -> None:
    out = tmp_path / "bridge"
    assert osi("grade", lab.run, *BOTH, "--out", out, server=lab.server).code == 0
    modes, before = harms(out, "mode_judge"), asked(lab)
    for run, command in (
        (out, ("grade", lab.run, "--judge", NEW, "--out", out)),
        (lab.run, ("evaluate", "--judge", NEW, "--out", lab.run)),
    ):
        assert (
            f"{run}: holds a run that cannot be mixed" in osi(*command, server=lab.server).refusal
        )
    other = osi("grade", lab.run, *BOTH, "--mode-judge", NEW, "--out", out, server=lab.server)
    assert f"judge of modes (--mode-judge): the run has {JUDGE}, this has {NEW}" in other.refusal
    assert osi("grade", lab.run, *BOTH, "--out", out, server=lab.server).code == 0
    assert harms(out, "mode_judge") == modes and asked(lab) == before
