"""What `--help` tells somebody who has never seen the program."""

from __future__ import annotations

import csv
import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest

import opensafeintent
from endtoend import osi
from opensafeintent import FunctionModel
from opensafeintent.cli.commands import cli
from opensafeintent.taxonomy import QUESTIONS
from samples import dataset_file, made_dataset, prompt_set

_HEADINGS = [
    "Models and sampling",
    "Judges",
    "Dataset and sample",
    "Budget and execution",
    "Extra analyses",
    "Cluster (Ray)",
    "Options",
]


def every_command(
    command: click.Command = cli, path: str = ""
) -> Iterator[tuple[str, click.Command]]:
    yield path.strip(), command
    if isinstance(command, click.Group):
        for name, inner in command.commands.items():
            yield from every_command(inner, f"{path} {name}")


COMMANDS = dict(every_command())


def helped(path: str) -> str:
    return osi(*path.split(), "--help", COLUMNS="80").out


def sections(text: str) -> dict[str, str]:
    parts = re.split(r"^(\S[^\n]*):\n", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_options_stand_under_the_headings_of_what_they_are_about() -> None:
    help_sections = sections(helped("evaluate"))
    assert list(help_sections) == ["Examples", *_HEADINGS]
    assert re.findall(r"--[a-z][\w-]*", help_sections["Options"]) == ["--help"]
    assert "--dry-run" in help_sections["Budget and execution"]
    assert "--stop-when" in help_sections["Extra analyses"]
    for command in ("grade", "judge-check"):
        assert {"Judges", "Budget and execution"} <= sections(helped(command)).keys()


FEWER = {"models": 1, "demo": 2, "annotate import": 2, "dataset template": 2, "merge": 2}
"""Examples of the commands that have less than three uses."""


@pytest.mark.parametrize(
    "path", [path for path, command in COMMANDS.items() if not isinstance(command, click.Group)]
)
def test_examples_come_first_and_can_be_typed(path: str) -> None:
    text = helped(path)
    lines = sections(text)["Examples"].strip().splitlines()
    assert len(set(lines)) == FEWER.get(path, 3)
    assert text.index("Examples:") < text.index("Options:")
    for line in lines:
        program, *words = shlex.split(line)
        named, words = words[: len(path.split())], words[len(path.split()) :]
        assert (program, " ".join(named)) == ("opensafeintent", path)
        with COMMANDS[path].make_context(path, words):  # it parses them, and refuses what is wrong
            pass


def test_help_fits_a_terminal_and_no_summary_is_cut() -> None:
    for path in COMMANDS:
        text = helped(path)
        assert max(map(len, text.splitlines())) <= 80, path
        assert "...\n" not in sections(text).get("Commands", ""), path


def test_the_bare_program_says_what_to_type_first() -> None:
    ran = osi()
    assert ran.code == 0
    lines = ran.out.splitlines()
    assert len(lines) == 5 and max(map(len, lines)) <= 80
    assert "opensafeintent demo" in lines[1]


def test_help_is_in_short_sentences_with_if_for_conditions() -> None:
    for path, command in COMMANDS.items():
        with click.Context(command) as context:
            options = [
                option.help or ""
                for option in command.get_params(context)
                if isinstance(option, click.Option)
            ]
        for text in (command.help or "", *options):
            assert not re.search(r"\b[Ww]here\b", text), (path, text)
            sentences = re.split(r"[.?:;](?:\s+|$)|\n\n", text)
            assert max(len(sentence.split()) for sentence in sentences) <= 25, (path, text)


# What is misspelt
# ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "dataset", "meant"),
    [
        ("baseline/redirect", "startr", "'starter'"),
        ("python/mymodle:ask@1", "starter", "'mymodel'"),
        ("python/mymodel:aks@1", "starter", "'ask'"),
    ],
)
def test_a_name_that_is_misspelt_is_answered_with_what_may_be_meant(
    model: str, dataset: str, meant: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mymodel.py").write_text("def ask(messages):\n    return 'no'\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    ran = osi("evaluate", model, "--judge", "baseline/judge", "--dataset", dataset)
    assert ran.code == 2 and f"did you mean {meant}" in ran.err


def test_a_run_that_is_misspelt_is_answered_with_the_one_beside_it(tmp_path: Path) -> None:
    (tmp_path / "starter").mkdir()
    (tmp_path / "starter" / "run.json").touch()
    ran = osi("report", tmp_path / "startr")
    assert ran.code == 2 and f"did you mean '{tmp_path / 'starter'}'" in ran.err


# What is said of a run
# ------------------------------------------------------------------------------


def test_an_unparsable_judge_is_shown_with_a_reply_and_what_to_do(tmp_path: Path) -> None:
    reply = "I'd give this a 3 out of 4."
    judge = FunctionModel(lambda _: reply, name="wordy", version="1")
    outcome = opensafeintent.evaluate(
        opensafeintent.EvaluateSettings(
            models=("baseline/comply-all",), judges=(judge,), limit=1, out=tmp_path / "run"
        )
    )
    # the grades of the seven wordings of a set, and the mode of its dual-use response
    line, of_modes = (note for note in outcome.notes if note.startswith("judge python/wordy@1: "))
    grades = 7 * len(QUESTIONS)
    assert "1 of 1 mode" in of_modes and '{"mode": "A0"}, got "I' in of_modes
    for words in (
        f"{grades} of {grades} grades",
        "after 3 attempts",
        reply,
        "trace",
        "--judge-arg max_tokens",
    ):
        assert words in line


@pytest.mark.slow
def test_a_larger_limit_than_the_dataset_and_duplicates_are_said(tmp_path: Path) -> None:
    options = ("--judge", "baseline/judge", "--limit", 1000, "--out", tmp_path / "run")
    ran = osi("evaluate", "baseline/refuse-all", "baseline/redirect", *options)
    assert "--limit 1,000: starter has 42 prompt-sets; all are taken" in ran.err
    assert "taken from the ledger" not in ran.text
    assert "taken from the ledger" in osi("evaluate", "baseline/redirect", *options).text


def test_a_set_that_was_not_evaluated_is_said_to_be_one(tmp_path: Path) -> None:
    run = tmp_path / "run"
    options = ("--judge", "baseline/judge", "--limit", 1, "--out", run)
    assert osi("evaluate", "baseline/redirect", *options).code == 0
    ids = [item.id for item in opensafeintent.load_dataset("starter").prompt_sets]
    ran = [osi("trace", run, "--set", id_) for id_ in ids[:2]]
    assert [result.code for result in ran].count(2) >= 1
    assert any(
        "was not evaluated: the run has responses to 1 of 42" in result.err for result in ran
    )


@pytest.mark.slow
def test_labels_are_shown_in_place_of_names(tmp_path: Path) -> None:
    run = tmp_path / "run"
    models = [
        FunctionModel(lambda _: "No.", name=name, version="1")
        for name in ("long-name-of-one", "long-name-of-two")
    ]
    settings = opensafeintent.EvaluateSettings(
        models=models,  # type: ignore[arg-type]
        judges=("baseline/judge",),
        limit=2,
        out=run,
        label=("python/long-name-of-one@1=One",),
    )
    cohort = opensafeintent.evaluate(settings).results
    assert cohort.models == ["One", "python/long-name-of-two@1"]
    ran = osi("report", run, "--label", "python/long-name-of-two@1=Two", "--max-missing", 1)
    assert ran.code == 0 and "Two" in ran.out and "One" in ran.out and "long-name" not in ran.out
    page = (run / "report.html").read_text()
    assert "Two" in page
    # one model under one name in every table, and under its own where the label would lose it
    rows = [*csv.DictReader((run / "tables" / "cost.csv").read_text().splitlines())]
    assert {row["model"] for row in rows if row["purpose"] == "generate"} == {"One", "Two"}
    assert "long-name-of-two" in (run / "cost.json").read_text()
    same = osi("report", run, "--label", "python/long-name-of-two@1=One")
    assert same.code == 2 and "would be called 'One'" in same.err
    unknown = osi("report", run, "--label", "python/long-name-of-tow@1=Two")
    assert unknown.code == 2 and "did you mean 'python/long-name-of-two@1'" in unknown.err
    ran = osi("compare", run)
    assert "identical data, nothing tested" in ran.text


@pytest.mark.slow
@pytest.mark.parametrize("mild", ["a", "c"])
def test_a_verdict_that_hangs_on_mild_harm_says_so(tmp_path: Path, mild: str) -> None:
    sets = made_dataset(*(prompt_set(f"s{number}", 0) for number in range(20)))

    def answer(messages: list[dict[str, str]]) -> str:
        return "xsevere" if "s1" in messages[-1]["content"] else "safe"

    def grade(messages: list[dict[str, str]]) -> str:
        text = messages[-1]["content"]
        harm = 1 if "xmild" in text else 3 if "xsevere" in text else 0
        return "4" if "one integer from 1 to 4" in text else str(harm)

    def function(ask: Callable[[list[dict[str, str]]], str], name: str) -> FunctionModel:
        return FunctionModel(ask, name=name, version="1")

    settings = opensafeintent.EvaluateSettings(
        models=(function(lambda _: "xmild", mild), function(answer, "b")),  # type: ignore[arg-type]
        judges=(function(grade, "judge"),),  # type: ignore[arg-type]
        dataset=str(dataset_file(tmp_path, sets)),
        probe="none",
        max_missing=1,
        out=tmp_path / "run",
    )
    opensafeintent.evaluate(settings)
    output = osi("compare", tmp_path / "run").text
    # 10 sets of b are safe ("s1" is in the other 10 ids): b − the other is +50 points, or −50 if
    # harm 1 counts as safe, whichever name comes first
    assert re.search(
        rf"python/b@1 is safer than python/{mild}@1: Triplet Safety \+\d+.*"
        r"If harm 1 counts as safe, it is significantly the other way round: −\d+",
        output,
    )


# What a command ends with
# ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of one model on two prompt-sets, with its page."""
    folder = tmp_path_factory.mktemp("next") / "run"
    options = ("--judge", "baseline/judge", "--limit", 2, "--out", folder)
    assert osi("evaluate", "baseline/redirect", *options).code == 0
    return folder


@pytest.mark.parametrize(
    ("typed", "following"),
    [
        (
            "evaluate baseline/redirect --judge baseline/judge --dry-run --out OUT",
            "opensafeintent evaluate baseline/redirect --judge baseline/judge --out OUT",
        ),
        (
            "sample-size --limit 10 --fail-under triplet_safety=0.5 --confidence 0.9",
            "opensafeintent evaluate MODEL... --judge MODEL --dataset starter --dry-run --limit 10",
        ),
        ("report RUN --out OUT", "opensafeintent trace RUN --worst 5"),
        ("report RUN", "opensafeintent trace RUN --worst 5"),
        ("export RUN --format csv --out OUT.csv", "opensafeintent trace RUN --worst 5"),
        ("trace RUN --worst 1", "opensafeintent report RUN --open"),
        (
            "merge RUN/ledger.sqlite --out OUT",
            "opensafeintent evaluate MODEL --judge MODEL --dry-run --ledger OUT",
        ),
        (
            "judge-check --judge baseline/judge --out OUT",
            "opensafeintent judge-check --judge MODEL",
        ),
        ("dataset template OUT.csv", "opensafeintent dataset check OUT.csv"),
        (
            "dataset export starter OUT --repo me/mine",
            "hf upload me/mine OUT --repo-type dataset",
        ),
    ],
)
def test_the_last_line_is_the_next_command(
    typed: str, following: str, run: Path, tmp_path: Path
) -> None:
    if typed.startswith("dataset export"):
        pytest.importorskip("pyarrow")
    places = {"RUN": str(run), "OUT": str(tmp_path / "out")}
    typed, following = (
        re.sub("RUN|OUT", lambda at: places[at[0]], text) for text in (typed, following)
    )
    if typed.startswith("export"):  # whose page is there already
        osi("report", run)
    ran = osi(*typed.split())
    assert ran.code in (0, 4)
    assert ran.out.splitlines()[-1] == f"Next: {following}"
    program, *words = following.split()
    if program == "opensafeintent":
        command: click.Command = cli
        while isinstance(command, click.Group):
            command = command.commands[words.pop(0)]
        with command.make_context("next", words):  # it takes these options
            pass
