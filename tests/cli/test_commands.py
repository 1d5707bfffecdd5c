"""Each command as a user meets it: what it prints, what it writes, how it ends."""

from __future__ import annotations

import asyncio
import csv
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest

import opensafeintent
from endtoend import (
    JUDGE,
    KEY,
    STARTER,
    TARGET,
    environment,
    evaluate,
    grades,
    metrics,
    osi,
    some_sets,
    values,
)
from loopback import GENERATE, HARM, Fault, LoopbackServer, Match

pty = pytest.importorskip("pty")

STEERING = "\x1b]0;"
HOSTILE = f"{STEERING}owned\x07"
"""Sets a terminal's title."""
JUDGED_BY_RULES = "baseline/judge"

pytestmark = pytest.mark.usefixtures("undrawn")


@pytest.fixture
def server() -> Iterator[LoopbackServer]:
    with LoopbackServer() as running:
        yield running


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder and the screen of one demonstration."""
    folder = tmp_path_factory.mktemp("demo") / "run"
    began = time.monotonic()
    ran = osi("demo", "--out", folder)
    assert ran.code == 0
    assert time.monotonic() - began < 15
    return folder, ran.out


# demo
# ------------------------------------------------------------------------------


def by_model(run: Path, metric: str) -> dict[str, float]:
    return {
        name.removeprefix("baseline/"): found[metric]["value"]
        for name, found in metrics(run)["models"].items()
    }


def test_demo_shows_why_each_number_is_needed(demo: tuple[Path, str]) -> None:
    triplet, utility, help_ = (
        by_model(demo[0], name) for name in ("triplet_safety", "mean_utility", "mean_helpfulness")
    )
    assert triplet["refuse-all"] == 1
    assert [name for name, value in utility.items() if value == min(utility.values())] == [
        "refuse-all"
    ]
    assert [name for name, value in triplet.items() if value == min(triplet.values())] == [
        "comply-all"
    ]
    assert [name for name, value in help_.items() if value == max(help_.values())] == ["comply-all"]
    assert [name for name, value in utility.items() if value == max(utility.values())] == [
        "redirect"
    ]


def test_demo_ranks_by_mean_utility_on_screen(demo: tuple[Path, str]) -> None:
    folder, screen = demo
    shown = [
        line.split()[0].removeprefix("baseline/")
        for line in screen.splitlines()
        if line.startswith("baseline/")
    ]
    utility = by_model(folder, "mean_utility")
    assert shown == sorted(utility, key=lambda name: -utility[name])
    assert f"{utility['redirect']:.2f}" in screen


def test_demo_names_its_judge_in_everything(demo: tuple[Path, str]) -> None:
    folder, screen = demo
    assert screen.count(JUDGED_BY_RULES) >= 2  # above the table, and in the warning below it
    assert any(JUDGED_BY_RULES in note for note in metrics(folder)["notes"])
    tables = sorted((folder / "tables").glob("*.csv"))
    assert tables
    for table in tables:
        with table.open(newline="") as file:
            rows = list(csv.DictReader(file))
        assert rows or table.name == "comparisons.csv", table.name
        if table.name in (
            "reference.csv",
            "cost.csv",
        ):  # what an oracle would have, and what calls cost, is nobody's grade
            continue
        judged = [
            row for row in rows if "taxonomy" not in row
        ]  # nor are definitions of domains and types
        assert all(any(JUDGED_BY_RULES in cell for cell in row.values()) for row in judged), (
            table.name
        )
    assert values(grades(folder), "judge") == {JUDGED_BY_RULES}


def test_demo_again_is_the_same_demo(demo: tuple[Path, str]) -> None:
    folder, screen = demo
    before = (folder / "metrics.json").read_bytes()
    again = osi("demo", "--out", folder)
    assert "\n0 calls made" in again.out
    assert again.out.splitlines()[:8] == screen.splitlines()[:8]
    assert (folder / "metrics.json").read_bytes() == before


def test_folders_have_names_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    dataset = some_sets(tmp_path, 2, paraphrases=1).rename(tmp_path / "mine.jsonl")
    assert (
        osi("evaluate", "baseline/redirect", "--judge", JUDGED_BY_RULES, "--dataset", dataset).code
        == 0
    )
    assert (tmp_path / "runs" / "mine" / "metrics.json").is_file()


# What a terminal is given
# ------------------------------------------------------------------------------


def on_terminal(*arguments: object, server: LoopbackServer | None = None) -> tuple[int, str]:
    """Run a command whose output and errors go to one terminal; return its exit code and all that
    the terminal got.
    """
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "opensafeintent", *map(str, arguments)]
    variables = environment(server, TERM="xterm-256color")
    process = subprocess.Popen(
        command, env=variables, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    screen = b""
    try:
        while piece := os.read(ours, 65536):
            screen += piece
    except OSError:  # how Linux says that the other end has gone
        pass
    os.close(ours)
    return process.wait(timeout=60), screen.decode()


def test_live_display_counts_calls(server: LoopbackServer, tmp_path: Path) -> None:
    dataset = some_sets(tmp_path, 2, paraphrases=1)
    options = ["--dataset", dataset, "--out", tmp_path / "run"]
    code, screen = on_terminal("evaluate", TARGET, "--judge", JUDGE, *options, server=server)
    assert code == 0
    made = server.stats()["total"]
    assert f"{made} of {made} calls" in screen
    assert "tokens" in screen


def test_what_a_server_says_cannot_steer_the_terminal(
    server: LoopbackServer, tmp_path: Path
) -> None:
    server.set_faults(
        Fault(
            action="completion",
            content=HOSTILE,
            finish_reason=HOSTILE,
            match=Match(purpose=GENERATE, first=3),
        ),
        Fault(
            action="status",
            status=404,
            message=f"None{HOSTILE}\nsuch.",
            match=Match(purpose=GENERATE),
        ),
    )
    options = ["--dataset", some_sets(tmp_path, 2, paraphrases=1), "--out", tmp_path / "run"]
    code, screen = on_terminal("evaluate", TARGET, "--judge", JUDGE, *options, server=server)
    assert code == 3
    assert "such." in screen
    assert STEERING not in screen


@pytest.mark.slow
def test_a_models_name_cannot_steer_the_terminal(server: LoopbackServer, tmp_path: Path) -> None:
    name = "openai-api/loop/evil\u202egnp"
    options = ["--judge", JUDGE, "--dataset", some_sets(tmp_path, 2, paraphrases=1)]
    code, screen = on_terminal("evaluate", name, *options, "--out", tmp_path / "one", server=server)
    assert (code, "\u202e" in screen) == (0, False)
    code, screen = on_terminal(
        "evaluate", f"{name}{HOSTILE}", *options, "--out", tmp_path / "none", server=server
    )
    assert (code, STEERING in screen, "U+001B" in screen) == (2, False, True)
    server.set_faults(Fault(action="status", status=404))
    code, screen = on_terminal("evaluate", name, *options, "--out", tmp_path / "two", server=server)
    assert (code, "\u202e" in screen) == (3, False)


@pytest.mark.parametrize("command", ["info", "validate"])
def test_a_dataset_cannot_steer_the_terminal(tmp_path: Path, command: str) -> None:
    record = json.loads(STARTER.read_text().splitlines()[0])
    record |= {"id": f"x{HOSTILE}", "language": HOSTILE, "dual_use_paraphrases": []}
    path = tmp_path / f"name{HOSTILE}.jsonl"
    path.write_text(json.dumps(record) + "\n")
    code, screen = on_terminal("dataset", command, path)
    assert code == 0
    assert STEERING not in screen


def test_formulas_do_not_reach_a_spreadsheet(server: LoopbackServer, tmp_path: Path) -> None:
    formula = '=HYPERLINK("http://x","y")'
    server.set_faults(
        Fault(
            action="completion",
            content=formula,
            finish_reason=formula,
            match=Match(purpose=GENERATE),
        )
    )
    dataset = some_sets(tmp_path, 2, paraphrases=0)
    assert evaluate(server, dataset, tmp_path / "run").code == 0
    assert values(grades(tmp_path / "run"), "stop_reason") == {"'" + formula}
    ids = {row["id"] for row in grades(tmp_path / "run")}
    responses = tmp_path / "responses.jsonl"
    lines = [
        {"id": name, "variant": "benign", "helpfulness": 3, "harm_severity": 0} for name in ids
    ]
    responses.write_text("".join(json.dumps(line) + "\n" for line in lines))
    imported = tmp_path / "imported"
    osi("import", responses, "--out", imported, "--model", formula, "--dataset", dataset)
    files = [imported / "grades.csv.gz", *(imported / "tables").glob("*.csv")]
    assert values(grades(imported), "model") == {"'" + formula}
    for table in files[1:]:
        with table.open(newline="") as file:
            assert not [
                cell for row in csv.reader(file) for cell in row if cell.startswith(("=", "@", "+"))
            ]


# report
# ------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("thresholds", "code"),
    [
        (["triplet_safety=0.04"], 0),
        (["triplet_safety=0.04", "mean_utility=0.9"], 4),
        (["mean_helpfulness=1"], 4),
    ],
)
def test_release_gate(
    demo: tuple[Path, str], tmp_path: Path, thresholds: list[str], code: int
) -> None:
    gates = [option for threshold in thresholds for option in ("--fail-under", threshold)]
    ran = osi("report", demo[0], "--out", tmp_path / "report", *gates)
    assert ran.code == code
    assert (tmp_path / "report" / "metrics.json").is_file()
    if code == 4:
        metric, least = thresholds[-1].split("=")
        flat = " ".join(ran.out.split())
        assert f"baseline/refuse-all: {metric} is 0.0000, below the {least}" in flat


def test_release_gate_leaves_baselines_aside(server: LoopbackServer, tmp_path: Path) -> None:
    dataset = some_sets(tmp_path, 2, paraphrases=0)
    evaluate(server, dataset, tmp_path / "run", models=[TARGET, "baseline/refuse-all"])
    value = metrics(tmp_path / "run")["models"][TARGET]["mean_utility"]["value"]
    assert value > 0
    gate = ["--fail-under", f"mean_utility={value / 2}"]  # refuse-all has 0
    assert osi("report", tmp_path / "run", *gate).code == 0


@pytest.mark.slow
def test_evaluate_writes_the_page_where_it_is_asked_to(
    server: LoopbackServer, tmp_path: Path
) -> None:
    dataset, run = some_sets(tmp_path, 2, paraphrases=1), tmp_path / "run"
    ran = evaluate(server, dataset, run, "--report")
    assert ran.code == 0
    assert f"Results in {run}: report.html, figures/" in ran.out
    assert "opensafeintent report" not in ran.out  # it is there already
    assert "calls made" in ran.out
    written = {
        name: (run / name).read_bytes() for name in ("report.html", "metrics.json", "grades.csv.gz")
    }
    assert osi("report", run).code == 0
    assert {name: (run / name).read_bytes() for name in written} == written  # what `report` writes
    again = evaluate(server, dataset, run, "--report")
    assert "removed" not in again.out
    assert (run / "report.html").read_bytes() == written["report.html"]
    assert "removed" in evaluate(server, dataset, run).out


def test_a_page_with_the_evaluation_ends_as_the_evaluation_does(
    server: LoopbackServer, tmp_path: Path
) -> None:
    dataset = some_sets(tmp_path, 2, paraphrases=1)
    server.set_faults(Fault(action="completion", content="none", match=Match(purpose=HARM)))
    ran = evaluate(server, dataset, tmp_path / "missing", "--report")
    assert (ran.code, (tmp_path / "missing" / "report.html").is_file()) == (1, True)
    assert " ".join(ran.out.split()).count("of --max-missing") == 1
    server.set_faults(Fault(action="status", status=404, match=Match(purpose=GENERATE)))
    stopped = evaluate(
        server, dataset, tmp_path / "stopped", "--report", models=[TARGET, "baseline/refuse-all"]
    )
    assert (stopped.code, (tmp_path / "stopped" / "report.html").is_file()) == (3, True)
    assert stopped.errors


def test_no_page_of_what_is_not_evaluated(server: LoopbackServer, tmp_path: Path) -> None:
    ran = evaluate(server, some_sets(tmp_path, 2), tmp_path / "run", "--report", "--dry-run")
    assert ran.code == 2
    assert ran.errors == ["error: --report: is a page, and --dry-run writes nothing; leave one out"]


@pytest.mark.slow
def test_report_over_runs_keeps_them_apart(demo: tuple[Path, str], tmp_path: Path) -> None:
    dataset = some_sets(tmp_path, 2, paraphrases=1)
    osi(
        "evaluate",
        "baseline/redirect",
        "--judge",
        JUDGED_BY_RULES,
        "--dataset",
        dataset,
        "--out",
        tmp_path / "two",
    )
    ran = osi("report", demo[0], tmp_path / "two", "--out", tmp_path / "report")
    assert ran.code == 0
    found = metrics(tmp_path / "report")
    again = [name for name in found["models"] if name.startswith("baseline/redirect")]
    hashes = {group["dataset"]["hash"][:8] for group in found["groups"]}
    assert sorted(again) == sorted(f"baseline/redirect@{digest}" for digest in hashes)
    assert osi("report", demo[0], tmp_path / "two").code == 2  # where to?


# models, dataset
# ------------------------------------------------------------------------------


def test_models_lists_variables_and_what_is_set() -> None:
    ran = osi("models", OPENAI_API_KEY=KEY)
    assert ran.code == 0
    lines = {line.split()[0]: line for line in ran.out.splitlines() if "/" in line.split(" ")[0]}
    assert "OPENAI_API_KEY ✓ set" in lines["openai/MODEL"]
    assert "GROQ_API_KEY ✗ not set" in lines["groq/MODEL"]
    assert "P_BASE_URL P_API_KEY" in " ".join(lines["openai-api/P/MODEL"].split())
    assert {"baseline/refuse-all", "baseline/judge", "replay/FILE", "vllm/MODEL"} <= lines.keys()
    assert "VLLM_BASE_URL" in ran.out
    assert KEY not in ran.out


def test_dataset_info_counts_cells() -> None:
    ran = osi("dataset", "info", "starter")
    assert ran.code == 0
    assert "42 prompt-sets, 294 prompts, 42 cells" in ran.out
    assert f"sha256 {opensafeintent.load_dataset('starter').hash}" in ran.out
    for name in ("Cyber Compromise", "Hazardous Agent Use", "Troubleshooting", "Optimization"):
        assert name in ran.out


def test_dataset_info_of_the_published_sets(published: Path) -> None:
    assert (
        "700 prompt-sets, 4,900 prompts, 42 cells"
        in osi("dataset", "info", published / "opensafeintent-700.json").out
    )
    assert (
        "115 prompt-sets, 805 prompts"
        in osi("dataset", "info", published / "opensafeintent-115.json").out
    )


def test_dataset_validate_lists_every_problem_with_its_place(tmp_path: Path) -> None:
    records = [json.loads(line) for line in STARTER.read_text().splitlines()[:4]]
    del records[0]["prompts"]["malicious"]
    records[1]["harm_domain"] = "Cyber Compromize"
    records[3]["prompts"]["benign"] = " "
    path = tmp_path / "bad.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    ran = osi("dataset", "validate", path)
    assert ran.code == 2
    assert len(ran.errors) == 3
    for line, (number, words) in zip(
        ran.errors, [(1, "malicious"), (2, "Cyber Compromise"), (4, "benign")], strict=True
    ):
        assert f"{path}:{number}" in line
        assert words in line
    assert osi("dataset", "validate", "starter").code == 0


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_dataset_convert_keeps_the_dataset(tmp_path: Path, suffix: str) -> None:
    if suffix == "parquet":
        pytest.importorskip("pyarrow")
    source, out = some_sets(tmp_path, 5), tmp_path / f"converted.{suffix}"
    assert osi("dataset", "convert", source, "--out", out).code == 0
    before, after = opensafeintent.load_dataset(str(source)), opensafeintent.load_dataset(str(out))
    assert before.prompt_sets == after.prompt_sets
    assert before.hash == after.hash


_TAXONOMY = """
name = "Two by one"
[[harm_domains]]
name = "Trouble"
definition = "Any."
[[harm_domains]]
name = "Mischief"
definition = "Some."
[[task_types]]
name = "Task"
definition = "Any."
"""


def test_dataset_may_bring_its_own_taxonomy(tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text(_TAXONOMY)
    records = [json.loads(line) for line in STARTER.read_text().splitlines()[:2]]
    for record, domain in zip(records, ("Trouble", "Mischief"), strict=True):
        record |= {"harm_domain": domain, "task_type": "Task", "language": "de"}
    dataset = tmp_path / "own.jsonl"
    dataset.write_text("".join(json.dumps(record) + "\n" for record in records))
    own = ["--taxonomy", tmp_path / "own.toml"]
    assert "Mischief" in osi("dataset", "info", dataset, *own).out
    assert osi("dataset", "validate", dataset).code == 2
    run = tmp_path / "run"
    ran = osi(
        "evaluate",
        "baseline/redirect",
        "--judge",
        JUDGED_BY_RULES,
        "--dataset",
        dataset,
        *own,
        "--out",
        run,
    )
    assert ran.code == 0
    assert metrics(run)["strata"]["harm_domain"].keys() == {"Trouble", "Mischief"}
    assert osi("report", run).code == 0  # the run remembers its taxonomy


def test_dry_run_shows_what_it_would_cost(tmp_path: Path) -> None:
    prices = tmp_path / "prices.json"
    prices.write_text('{"baseline/redirect": {"input": 0, "output": 1e6}}')
    dataset = some_sets(tmp_path, 2, paraphrases=0)
    options = ["--dataset", dataset, "--prices", prices, "--probe", "none", "--dry-run"]
    ran = osi("evaluate", "baseline/redirect", "--judge", JUDGED_BY_RULES, *options)
    (line,) = [line for line in ran.out.splitlines() if " generate " in line]
    # 2 sets x 3 prompts, a response taken as 600 tokens, at a dollar a token
    assert line.split()[2] == "6"
    assert line.split()[-2:] == ["3,600", "3,600.00"]


def test_dry_run_names_what_is_not_set(tmp_path: Path) -> None:
    dataset, models = (
        some_sets(tmp_path, 2, paraphrases=0),
        ["openai/a", "openai/b", "openai-api/my-lab/c", "vllm/d"],
    )
    judges = ["--judge", "mistral/e", "--judge", JUDGED_BY_RULES]
    command = [
        "evaluate",
        *models,
        "baseline/redirect",
        *judges,
        "--dataset",
        dataset,
        "--out",
        tmp_path / "run",
        "--dry-run",
    ]
    ran = osi(*command, MY_LAB_BASE_URL="http://127.0.0.1:9/v1", MISTRAL_API_KEY=" ")
    assert ran.code == 0
    assert [
        line for line in " ".join(ran.out.split()).split("note: ")[1:] if "not set" in line
    ] == [
        "OPENAI_API_KEY is not set: openai/a, openai/b cannot be asked without it ",
        "MY_LAB_API_KEY is not set: openai-api/my-lab/c cannot be asked without it ",
        "MISTRAL_API_KEY is not set: mistral/e cannot be asked without it",
    ]
    keys = {
        "OPENAI_API_KEY": KEY,
        "MY_LAB_BASE_URL": "http://127.0.0.1:9/v1",
        "MY_LAB_API_KEY": KEY,
        "MISTRAL_API_KEY": KEY,
    }
    assert "not set" not in osi(*command, **keys).out
    build = [
        "build",
        "--generator",
        "openai/a",
        "--judge",
        "openai/a",
        "--per-cell",
        1,
        "--out",
        tmp_path / "built",
    ]
    built = osi(*build, "--dry-run")
    assert (built.code, built.out.count("OPENAI_API_KEY is not set: openai/a cannot")) == (0, 1)


def test_a_model_without_a_price_is_not_free(tmp_path: Path) -> None:
    prices = tmp_path / "prices.json"
    prices.write_text('{"openai-api/loop/a": {"input": 0, "output": 1e6}}')
    given = [
        "--dataset",
        some_sets(tmp_path, 2, paraphrases=0),
        "--prices",
        prices,
        "--probe",
        "none",
        "--dry-run",
    ]
    models = ["openai-api/loop/a", "openai-api/loop/b", "baseline/redirect"]
    endpoint = {"LOOP_BASE_URL": "http://127.0.0.1:9/v1", "LOOP_API_KEY": "none-at-all"}
    ran = osi("evaluate", *models, "--judge", "openai-api/loop/c", *given, **endpoint)
    assert ran.code == 0, ran.err
    rows = [line.split() for line in ran.out.splitlines()]
    dollars = {
        (row[0], row[1]): row[-1]
        for row in rows
        if row and row[0].startswith(("openai-api", "baseline"))
    }
    # 6 responses of 600 tokens at a dollar each; what runs in this process costs nothing; the
    # others are not known
    assert dollars == {
        ("openai-api/loop/a", "generate"): "3,600.00",
        ("openai-api/loop/b", "generate"): "–",
        ("baseline/redirect", "generate"): "0.00",
        ("openai-api/loop/c", "helpfulness"): "–",
        ("openai-api/loop/c", "harm"): "–",
        ("openai-api/loop/c", "mode"): "–",
    }
    (total,) = [row for row in rows if row[:1] == ["All"]]
    assert total[-1] == "3,600.00"
    told = (
        "no price is given for openai-api/loop/b, openai-api/loop/c: what it costs is not in"
        " the sum"
    )
    assert told in " ".join(ran.out.split())


def test_a_part_of_a_dataset_is_said_to_be_one(demo: tuple[Path, str], tmp_path: Path) -> None:
    assert "starter: 42 prompt-sets, judged by" in demo[1]
    ran = osi(
        "evaluate",
        "baseline/redirect",
        "--judge",
        JUDGED_BY_RULES,
        "--limit",
        5,
        "--out",
        tmp_path / "run",
    )
    assert "starter: 5 of 42 prompt-sets, judged by" in ran.out


def test_a_page_that_went_out_of_date_is_said_to_be_gone(tmp_path: Path) -> None:
    command = [
        "evaluate",
        "baseline/redirect",
        "--judge",
        JUDGED_BY_RULES,
        "--limit",
        2,
        "--out",
        tmp_path / "run",
    ]
    assert "was removed" not in osi(*command).out
    assert osi("report", tmp_path / "run").code == 0
    assert f"note: the earlier {tmp_path}/run/report.html was removed" in " ".join(
        osi(*command).out.split()
    )
    assert not (tmp_path / "run" / "report.html").exists()


def test_a_built_dataset_goes_by_its_folders_name(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "dataset.jsonl").write_bytes(Path(some_sets(tmp_path, 2, paraphrases=0)).read_bytes())
    assert "mine: 2 prompt-sets, valid" in osi("dataset", "validate", folder / "dataset.jsonl").out


# The program
# ------------------------------------------------------------------------------


def test_help_names_every_command_and_exit_code() -> None:
    ran = osi("-h")
    assert ran.code == 0
    for command in ("demo", "evaluate", "import", "grade", "report", "models", "dataset"):
        assert f"\n  {command} " in ran.out
    for code in (
        "0 done",
        "2 unusable",
        "3 stopped",
        "4 not met",
        "5 undecided",
        "130 interrupted",
    ):
        assert code in " ".join(ran.out.split())
    assert osi("--version").out.strip() == opensafeintent.__version__


def test_reader_that_goes_away_is_no_error() -> None:
    command = [sys.executable, "-m", "opensafeintent", "models"]
    with subprocess.Popen(
        command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == ""


# The Python API
# ------------------------------------------------------------------------------


def test_python_api_works_within_a_running_loop(server: LoopbackServer, tmp_path: Path) -> None:
    dataset = some_sets(tmp_path, 2, paraphrases=1)
    settings = opensafeintent.EvaluateSettings(
        models=(TARGET,), judges=(JUDGE,), dataset=str(dataset), out=tmp_path / "run"
    )

    async def notebook() -> opensafeintent.Outcome:
        return opensafeintent.evaluate(settings)

    with mock.patch.dict(os.environ, environment(server)):
        outcome = asyncio.run(notebook())
    assert outcome.exit_code == 0
    assert outcome.tally is not None
    assert outcome.tally.calls == server.stats()["total"] > 0
    assert (tmp_path / "run" / "metrics.json").is_file()


def test_python_api_raises_what_the_command_line_prints(
    server: LoopbackServer, tmp_path: Path
) -> None:
    settings = opensafeintent.EvaluateSettings(
        models=("opena/x",), judges=(JUDGE,), out=tmp_path / "run"
    )
    with mock.patch.dict(os.environ, environment(server)):
        with pytest.raises(
            opensafeintent.OpenSafeIntentError, match="did you mean 'openai'"
        ) as raised:
            opensafeintent.evaluate(settings)
        assert raised.value.exit_code == 2
