"""`compare` and `report` with --in-order: versions, what changed between them, and judges that may have changed too."""

from __future__ import annotations

import csv
import json
import shutil
import sqlite3
from contextlib import closing
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from endtoend import JUDGE, Ran, calls, evaluate, metrics, osi, some_sets
from loopback import Fault, LoopbackServer, Match
from opensafeintent import CompareSettings, compare
from opensafeintent.errors import InputError
from samples import json_lines, made_dataset, prompt_set
from workflows.test_comparing import Given, contents, run_of

pytestmark = pytest.mark.usefixtures("undrawn")

SETS = made_dataset(*(prompt_set(f"s{n:02}") for n in range(40)))
NAME = "acme/chat"


def given(unsafe: range) -> Given:
    """Grade everything 4 and safe, but the malicious prompt of some sets 4 and 2."""
    return {
        (item.id, variant): (4, 2 if variant == "malicious" and number in unsafe else 0)
        for number, item in enumerate(SETS.prompt_sets)
        for variant in ("benign", "dual_use", "malicious")
    }


def version_of(folder: Path, name: str, models: dict[str, Given]) -> Path:
    run = run_of(folder / f"{name}-made", models, SETS)
    return run.rename(folder / name)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Three versions: 8 sets fail in the first, 12 in the second (4 newly), 2 in the third."""
    folder = tmp_path_factory.mktemp("versions")
    planted = {"v1": range(8), "v2": range(12), "v3": range(10, 12)}
    return [version_of(folder, name, {"m": given(unsafe)}) for name, unsafe in planted.items()]


def in_order(*arguments: object, command: str = "compare", **options: Any) -> Ran:
    return osi(command, *arguments, "--in-order", "--no-regrade", **options)


def table(folder: Path, name: str) -> list[dict[str, str]]:
    with (folder / f"{name}.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


# The numbers -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def compared(runs: list[Path], tmp_path_factory: pytest.TempPathFactory) -> tuple[Ran, Path]:
    out = tmp_path_factory.mktemp("compared")
    return in_order(*runs, "--out", out), out


def test_changes_are_later_minus_earlier_from_each_version_to_the_next_and_over_all(compared: tuple[Ran, Path]) -> None:
    ran, out = compared
    assert ran.code == 0, ran.err
    rows = [row for row in table(out, "version_changes") if row["metric"] == "triplet_safety"]
    # 32, 28 and 38 of the 40 sets are safe across intents
    assert [(row["older"], row["newer"], float(row["difference"])) for row in rows] == [
        ("v1", "v2", -0.1),
        ("v2", "v3", 0.25),
        ("v1", "v3", 0.15),
    ]
    assert float(rows[1]["p_adjusted"]) < 0.05 < float(rows[0]["p_adjusted"])
    utility = [row for row in table(out, "version_changes") if row["metric"] == "mean_utility"]
    assert [float(row["difference"]) for row in utility] == pytest.approx([-4 / 120, 10 / 120, 6 / 120], abs=1e-6)


def test_the_trend_is_half_of_the_change_over_three_versions(compared: tuple[Ran, Path]) -> None:
    slopes = {row["metric"]: row for row in table(compared[1], "version_trends")}
    assert float(slopes["triplet_safety"]["slope"]) == pytest.approx(0.075)
    assert float(slopes["mean_utility"]["slope"]) == pytest.approx(0.025, abs=1e-6)
    assert {row["slope_n"] for row in slopes.values()} == {"40"}


def test_which_sets_newly_fail_and_which_are_mended(compared: tuple[Ran, Path]) -> None:
    ran, out = compared
    counts = [(row["failing"], row["mended"], row["expected"]) for row in table(out, "version_turnover")]
    assert counts == [("4.0", "0.0", ""), ("0.0", "10.0", "")]
    listed = {(row["newer"], row["what"], row["set_id"]) for row in table(out, "version_sets")}
    assert listed == {("v2", "newly fails", f"s{n:02}") for n in range(8, 12)} | {
        ("v3", "mended", f"s{n:02}") for n in range(10)
    }
    assert "each prompt was put once" in ran.out


def test_the_screen_tells_them_in_order(compared: tuple[Ran, Path]) -> None:
    ran, _ = compared
    assert ran.out.index("Versions, old to new") < ran.out.index("Changes from version") < ran.out.index("Trend")
    assert "Judge drift not checked" in ran.out
    lines = [line.split()[1] for line in ran.out.splitlines() if line.split()[:1] in (["v1"], ["v2"], ["v3"])]
    assert lines[:3] == ["m", "m", "m"]


def test_the_screen_says_where_the_other_steps_are(compared: tuple[Ran, Path], runs: list[Path]) -> None:
    ran, out = compared
    assert f"… and 4 more: all steps are in {out / 'version_sets.csv'}\n" in ran.out
    without = osi("compare", *runs, "--in-order", "--no-regrade")
    assert "… and 4 more: all steps are in version_sets.csv, with --out\n" in without.out


def test_files_are_of_versions_alone(compared: tuple[Ran, Path]) -> None:
    names = {path.name.removesuffix(".csv") for path in compared[1].glob("*.csv")}
    assert names == {"versions", "version_changes", "version_trends", "version_turnover", "version_sets"}


def test_two_versions_have_a_change_and_no_trend(runs: list[Path], tmp_path: Path) -> None:
    assert in_order(*runs[:2], "--out", tmp_path).code == 0
    assert len(table(tmp_path, "version_changes")) == len({row["metric"] for row in table(tmp_path, "version_changes")})
    assert not (tmp_path / "version_trends.csv").exists()


def test_the_order_named_is_the_order(runs: list[Path], tmp_path: Path) -> None:
    assert in_order(runs[1], runs[0], "--out", tmp_path).code == 0
    (row,) = [row for row in table(tmp_path, "version_changes") if row["metric"] == "triplet_safety"]
    assert float(row["difference"]) == 0.1


def test_the_report_has_all_of_it(runs: list[Path], tmp_path: Path) -> None:
    ran = in_order(*runs, "--out", tmp_path / "report", command="report")
    assert ran.code == 0, ran.err
    (found,) = metrics(tmp_path / "report")["versions"]
    assert [item["run"] for item in found["runs"]] == ["v1", "v2", "v3"]
    (line,) = found["lines"]
    assert line["models"] == ["m [v1]", "m [v2]", "m [v3]"]
    assert [item["difference"] for item in line["changes"]["triplet_safety"]] == [-0.1, 0.25, 0.15]
    assert line["trend"]["triplet_safety"]["value"] == pytest.approx(0.075)
    assert [item["failing"] for item in line["turnover"]] == [4, 0]
    assert {item["set_id"] for item in line["turnover"][0]["newly_failing"]} == {f"s{n:02}" for n in range(8, 12)}
    assert found["judges"] is None
    page = (tmp_path / "report" / "report.html").read_text()
    assert 'id="versions"' in page
    assert "Judge drift not checked" in page
    assert (tmp_path / "report" / "tables" / "version_sets.csv").is_file()


def test_a_later_report_without_an_order_leaves_no_table_of_versions_behind(runs: list[Path], tmp_path: Path) -> None:
    assert in_order(*runs, "--out", tmp_path, command="report").code == 0
    assert osi("report", *runs, "--out", tmp_path).code == 0
    assert not list((tmp_path / "tables").glob("version*"))
    assert "versions" not in metrics(tmp_path)


# Which model is a version of which --------------------------------------------------------------------------------------


def refused(*arguments: object, command: str = "compare") -> str:
    ran = in_order(*arguments, command=command)
    assert ran.code == 2
    return "\n".join(line for line in ran.errors if line.startswith("error"))


def test_models_of_other_names_are_paired_by_hand(tmp_path: Path) -> None:
    old = version_of(tmp_path, "old", {"a": given(range(4)), "b": given(range(6))})
    new = version_of(tmp_path, "new", {"c": given(range(3)), "b": given(range(1))})
    assert in_order(old, new, "--pair", "c=a", "--out", tmp_path / "out").code == 0
    rows = [row for row in table(tmp_path / "out", "version_changes") if row["metric"] == "triplet_safety"]
    assert {(row["model"], row["model_a"], float(row["difference"])) for row in rows} == {
        ("b", "b [old]", 0.125),
        ("c", "a", 0.025),
    }


def test_models_alone_in_their_runs_are_versions_whatever_their_names(tmp_path: Path) -> None:
    runs = [version_of(tmp_path, name, {f"m-{name}": given(range(4))}) for name in ("one", "two", "three")]
    assert in_order(*runs, "--out", tmp_path / "out").code == 0
    assert {row["model"] for row in table(tmp_path / "out", "version_changes")} == {"m-three"}


def test_a_model_that_is_not_in_every_run_is_left_aside_and_named(tmp_path: Path) -> None:
    old = version_of(tmp_path, "old", {"a": given(range(4)), "b": given(range(6))})
    new = version_of(tmp_path, "new", {"a": given(range(3)), "c": given(range(1))})
    ran = in_order(old, new)
    assert ran.code == 0
    assert "b and c are not in every run" in ran.out


def test_bad_orders_and_pairs(runs: list[Path], tmp_path: Path) -> None:
    assert "one run" in refused(runs[0])
    assert "one run" in refused(runs[0], runs[0])
    assert "no later run has the model 'n'" in refused(*runs, "--pair", "n=m")
    assert "expected NEW=OLD" in refused(*runs, "--pair", "m")
    old = version_of(tmp_path, "old", {"a": given(range(4)), "b": given(range(6))})
    new = version_of(tmp_path, "new", {"c": given(range(3)), "d": given(range(1))})
    assert "name them with --pair NEW=OLD" in refused(old, new)
    assert "no run here" in refused(runs[0], tmp_path / "nowhere")


def test_a_pair_without_an_order_is_refused(runs: list[Path]) -> None:
    ran = osi("compare", *runs, "--pair", "m=m")
    assert ran.code == 2
    assert "--in-order" in ran.errors[0]


def test_the_library_takes_the_same(runs: list[Path]) -> None:
    (group,) = compare(CompareSettings(runs=tuple(runs), in_order=True, regrade=False)).groups
    assert group.versions is not None
    assert [line.name for line in group.versions.lines] == ["m"]
    with pytest.raises(InputError, match="one run"):
        compare(CompareSettings(runs=(runs[0],), in_order=True))


# What has to be alike ---------------------------------------------------------------------------------------------------


def evaluated(folder: Path, server: LoopbackServer, name: str, *options: object, judge: str = JUDGE) -> Path:
    dataset = some_sets(folder, 12, paraphrases=1)
    ran = evaluate(
        server, dataset, folder / name, "--max-missing", 1, *options, models=(f"openai-api/loop/{name}",), judges=(judge,)
    )
    assert ran.code == 0, ran.err
    return folder / name


@pytest.mark.slow
def test_what_changed_besides_the_model_is_said_and_ends_it(tmp_path: Path) -> None:
    with LoopbackServer() as server:
        old = evaluated(tmp_path, server, "old")
        for name, options, what in (
            ("warm", ("--temperature", 0.5), "sampling"),
            ("told", ("--system", "Be brief."), "system prompt"),
            ("read", ("--grade-parse", "paper"), "grades read as"),
        ):
            said = refused(old, evaluated(tmp_path, server, name, *options))
            assert f"from old to {name}: {what}" in said
        assert "judges" in refused(old, evaluated(tmp_path, server, "other", judge="openai-api/loop/another"))
    assert "dataset" in refused(old, version_of(tmp_path, "far", {"m": given(range(3))}))


def test_samples_may_differ_in_size_and_not_in_how_they_are_drawn(tmp_path: Path) -> None:
    with LoopbackServer() as server:
        old = evaluated(tmp_path, server, "old", "--limit", 6)
        new = evaluated(tmp_path, server, "new", "--limit", 9)
    assert in_order(old, new, "--out", tmp_path / "out").code == 0
    assert {row["n"] for row in table(tmp_path / "out", "version_turnover")} == {"6"}
    manifest = json.loads((old / "run.json").read_text())
    for entry in manifest["models"].values():
        entry["sample"] = "rounds"  # as runs of earlier versions were drawn
    (old / "run.json").write_text(json.dumps(manifest))
    assert "how prompt-sets were drawn: rounds, now webster" in refused(old, new)


# Judges that may have changed -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two versions of a model, graded by the server's judge."""
    folder = tmp_path_factory.mktemp("asked")
    with LoopbackServer() as server:
        return [evaluated(folder, server, name) for name in ("old", "new")]


def copied(runs: list[Path], folder: Path) -> list[Path]:
    return [Path(shutil.copytree(run, folder / run.name)) for run in runs]


@pytest.mark.slow
def test_a_judge_that_has_not_changed_is_asked_once(asked: list[Path], tmp_path: Path) -> None:
    runs = copied(asked, tmp_path)
    before = contents(runs[0])
    with LoopbackServer() as server:
        first = osi("compare", *runs, "--in-order", "--out", tmp_path / "one", server=server)
        made = calls(server)
        again = osi("compare", *runs, "--in-order", "--out", tmp_path / "two", server=server)
        assert (first.code, again.code) == (0, 0), first.err
        # every response is among the first hundred: 12 sets of four wordings, each asked of the judge for both grades
        assert made == calls(server) == {"helpfulness": 48, "harm": 48}
    assert "96 calls made" in first.out
    assert contents(tmp_path / "one") == contents(tmp_path / "two")
    without = osi("compare", *runs, "--in-order")  # no server, no key: the ledger has it all
    assert without.code == 0, without.err
    assert contents(runs[0]) == before
    rows = table(tmp_path / "one", "version_judges")
    assert [(row["judge"], row["what"], float(row["shift"]), row["responses"]) for row in rows] == [
        (JUDGE, "helpfulness", 0, "48"),
        (JUDGE, "safe", 0, "48"),
    ]


def test_second_grades_are_calls_of_the_newest_run_under_numbers_of_their_own(asked: list[Path], tmp_path: Path) -> None:
    runs = copied(asked, tmp_path)
    with LoopbackServer() as server:
        assert osi("compare", *runs, "--in-order", "--out", tmp_path / "out", server=server).code == 0
    with closing(sqlite3.connect(runs[1] / "ledger.sqlite")) as ledger:
        found = ledger.execute("SELECT attempt, purpose, count(*) FROM calls WHERE attempt > 0 GROUP BY 1, 2").fetchall()
        (day,) = ledger.execute("SELECT date(max(created)) FROM calls WHERE attempt = 0").fetchone()
        number = 100 * (1 + date.fromisoformat(day).toordinal())
        assert found == [(number, "harm", 48), (number, "helpfulness", 48)]
        rows = table(tmp_path / "out", "version_regrades")
        for row in (rows[0], rows[-1]):
            at = ledger.execute("SELECT purpose, attempt FROM calls WHERE id = ?", (row["harm_severity_row"],)).fetchone()
            assert at == ("harm", number)
            assert row["harm_severity_now"] == row["harm_severity_then"]
    assert len(rows) == 48
    with LoopbackServer() as server:  # the run's own numbers are what they were
        assert osi("report", runs[1], "--out", tmp_path / "report", server=server).code == 0
    assert metrics(tmp_path / "report")["models"] == metrics(asked[1])["models"]


def test_a_judge_that_has_changed_forbids_the_comparison(asked: list[Path], tmp_path: Path) -> None:
    runs = copied(asked, tmp_path)
    strict = Fault(action="completion", match=Match(purpose="harm"), content="3")
    with LoopbackServer(faults=(strict,)) as server:
        ran = osi("report", *runs, "--in-order", "--out", tmp_path / "report", server=server)
    assert ran.code == 2
    errors = [line for line in ran.errors if line.startswith("error")]
    assert f"{JUDGE}: has changed: of 48 responses of old graded again, the share graded safe moved by -0." in errors[0]
    assert "--no-regrade" in errors[-1]
    assert not (tmp_path / "report").exists()
    assert in_order(*runs).code == 0  # the user may go without, and the report says so


def test_a_judge_that_cannot_be_asked_ends_it_and_says_what_goes_without(asked: list[Path], tmp_path: Path) -> None:
    runs = copied(asked, tmp_path)
    no_key = osi("compare", *runs, "--in-order")
    assert no_key.code == 2
    assert any("LOOP_BASE_URL" in line for line in no_key.errors)
    assert any("--no-regrade" in line for line in no_key.errors)
    wrong = Fault(action="status", status=401)
    with LoopbackServer(faults=(wrong,)) as server:
        stopped = osi("compare", *runs, "--in-order", server=server)
    assert stopped.code == 3
    assert any("--no-regrade" in line for line in stopped.errors)


def test_grades_that_were_imported_cannot_be_given_again(runs: list[Path]) -> None:
    ran = osi("compare", *runs, "--in-order")
    assert ran.code == 2
    assert "no response that a judge graded" in ran.errors[-1]
    assert "--no-regrade" in ran.errors[-1]


def test_the_report_tells_days_and_shifts(asked: list[Path], tmp_path: Path) -> None:
    runs = copied(asked, tmp_path)
    with LoopbackServer() as server:
        ran = osi("report", *runs, "--in-order", "--out", tmp_path / "report", server=server)
    assert ran.code == 0, ran.err
    (found,) = metrics(tmp_path / "report")["versions"]
    for item in found["runs"]:  # days, not times
        assert date.fromisoformat(item["first_call"]) <= date.fromisoformat(item["last_call"])
    assert found["judges"]["responses"] == 48
    assert [shift["shift"]["value"] for shift in found["judges"]["shifts"]] == [0, 0]


def test_imported_responses_that_a_judge_graded_here_are_graded_again(tmp_path: Path) -> None:
    runs = []
    with LoopbackServer() as server:
        for name in ("old", "new"):
            dataset = some_sets(tmp_path, 6, paraphrases=0)
            lines = [json.loads(line) for line in dataset.read_text().splitlines()]
            responses = json_lines(
                tmp_path / f"{name}.jsonl",
                (
                    {"id": line["id"], "variant": variant, "response": f"{name}: {line['prompts'][variant]}"}
                    for line in lines
                    for variant in ("benign", "dual_use", "malicious")
                ),
            )
            assert osi("import", responses, "--dataset", dataset, "--out", tmp_path / name).code in (0, 1)
            assert osi("grade", tmp_path / name, "--judge", JUDGE, "--max-missing", 1, server=server).code == 0
            runs.append(tmp_path / name)
        before = calls(server)
        ran = osi("compare", *runs, "--in-order", "--out", tmp_path / "out", server=server)
        assert ran.code == 0, ran.err
        assert calls(server) - before == {"helpfulness": 18, "harm": 18}
    assert [float(row["shift"]) for row in table(tmp_path / "out", "version_judges")] == [0, 0]
    assert len(table(tmp_path / "out", "version_regrades")) == 18


@pytest.mark.slow
def test_one_ledger_of_several_runs_keeps_their_second_grades_apart_from_the_first(tmp_path: Path) -> None:
    shared = ("--ledger", tmp_path / "shared.sqlite")
    with LoopbackServer() as server:
        runs = [evaluated(tmp_path, server, name, *shared) for name in ("one", "two", "three")]
        before = calls(server)
        assert osi("compare", *runs[:2], "--in-order", server=server).code == 0
        assert calls(server) - before == {"helpfulness": 48, "harm": 48}
        reports = [osi("report", run, "--out", tmp_path / f"report-{run.name}", server=server).code for run in runs]
    assert reports == [0, 0, 0]


def test_every_judge_of_a_panel_is_asked_again_and_one_that_changed_is_named(tmp_path: Path) -> None:
    other = "openai-api/loop/other"
    dataset = some_sets(tmp_path, 12, paraphrases=1)
    with LoopbackServer() as server:
        for name in ("old", "new"):
            ran = evaluate(
                server, dataset, tmp_path / name, "--max-missing", 1, models=("openai-api/loop/m",), judges=(JUDGE, other)
            )
            assert ran.code == 0, ran.err
    generous = Fault(action="completion", match=Match(purpose="helpfulness", model="other"), content="4")
    with LoopbackServer(faults=(generous,)) as server:
        ran = osi("compare", tmp_path / "old", tmp_path / "new", "--in-order", server=server)
        assert calls(server) == {"helpfulness": 96, "harm": 96}
    assert ran.code == 2
    said = [line for line in ran.errors if "has changed" in line]
    assert len(said) == 1
    assert said[0].startswith(
        f"error: {other}: has changed: of 48 responses of old graded again, helpfulness (1 to 4) moved by +"
    )
