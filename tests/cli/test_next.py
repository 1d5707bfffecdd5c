"""The line *Next:* of every command: the command that it suggests is run, and works."""

from __future__ import annotations

import csv
import re
import shlex
import shutil
import webbrowser
from pathlib import Path

import click
import pytest

from endtoend import REPO, osi
from opensafeintent.cli.commands import cli
from opensafeintent.people.labels import read_key
from people.forms import Sheet, filled

pytestmark = pytest.mark.usefixtures("patient")  # baseline/keyword-filter grades nothing
LINES = """\
demo --out OUT
evaluate baseline/redirect --judge baseline/judge --limit 2 --out OUT
evaluate baseline/redirect --judge baseline/judge --limit 2 --out OUT --report
evaluate baseline/redirect --judge baseline/judge --limit 40 --out OUT --dry-run
sample-size --fail-under triplet_safety=0.5 --fail-if-worse=mean_utility=0.5 --confidence=0.9 \
--limit 40
evaluate baseline/redirect --judge baseline/judge --dataset OWN.jsonl --taxonomy OWN.toml --out OUT
sample-size --difference 0.4 --pilot PILOT
import RESPONSES --dataset starter --out OUT
grade UNGRADED --judge baseline/judge --dry-run
grade UNGRADED --judge baseline/judge
grade RUN --judge baseline/judge --judge baseline/keyword-filter --out OUT --dry-run
grade RUN --judge baseline/judge --judge baseline/keyword-filter --out OUT
report RUN
report RUN --out OUT
report RUN RUN2 --out OUT
export RUN --format csv --out OUT.csv
export PAGED --format csv --out OUT.csv
export RUN --format every-eval-ever --out OUT
export RUN --format hf-results --dataset-repo me/sets --out OUT
compare RUN
compare RUN RUN2
sample-size --difference 0.4
trace RUN --worst 1
trace BUILD --rejected
trace OWNBUILD --rejected
build --per-cell 1 --generator baseline/generator --judge baseline/construction-judge --out OUT
build --per-cell 1 --generator baseline/generator --judge baseline/construction-judge --out OUT \
--dry-run
build --per-cell 1 --generator baseline/generator --judge baseline/construction-judge --out OUT \
--taxonomy OWN.toml
models
merge RUN/ledger.sqlite --out OUT
agreement QUALITY
agreement JUDGED --run RUN
judge-check --judge baseline/judge --out OUT
judge-check --judge baseline/judge --out OUT --dry-run
judge-check --judge baseline/judge --judge-arg baseline/judge:top_p=0.5 --judge-arg max_tokens=512 \
--rubrics reasons --out OUT
dataset check OWN.jsonl --taxonomy OWN.toml --max-rows 100
dataset convert OWN.jsonl --taxonomy OWN.toml --out OUT.jsonl
dataset template OUT.csv --taxonomy OWN.toml
dataset dedup OWN.jsonl --taxonomy OWN.toml --out OUT.jsonl
dataset check OWN.jsonl --taxonomy OWN.toml
dataset check starter
dataset export starter OUT --repo me/mine
annotate export quality OWN.jsonl --taxonomy OWN.toml --out OUT --annotators ana
annotate export judge RUN --out OUT --annotators ana --sample 6
annotate import STUDY/ana.csv --key STUDY/key.json --out OUT.jsonl
annotate import STUDY2/ana.csv --key STUDY2/key.json --out OUT.jsonl
"""
"""Every command, and each form of its last line."""


def test_every_command_is_here() -> None:
    def leaves(group: click.Group, path: str = "") -> set[str]:
        found: set[str] = set()
        for name, command in group.commands.items():
            inside = isinstance(command, click.Group)
            found |= leaves(command, f"{path}{name} ") if inside else {f"{path}{name}"}
        return found

    lines = LINES.splitlines()
    missing = [
        name
        for name in leaves(cli)
        if not any(line == name or line.startswith(f"{name} ") for line in lines)
    ]
    assert missing == ["batches"]  # the command to come back with is tested with the batches


def done(*words: object) -> None:
    ran = osi(*words)
    assert ran.code in (0, 1), ran.err


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The files that the commands are given, by the word for them."""
    folder = tmp_path_factory.mktemp("next")
    run, second, build = folder / "run", folder / "run2", folder / "build"
    own_build = folder / "own-build"
    pilot, paged = folder / "pilot", folder / "paged"
    for path, models, limit in (
        (run, ("redirect", "comply-all"), 2),
        (second, ("refuse-all",), 2),
        (pilot, ("redirect", "keyword-filter"), 20),
    ):
        options = ("--judge", "baseline/judge", "--limit", limit, "--out", path)
        done("evaluate", *(f"baseline/{model}" for model in models), *options)
    shutil.copytree(second, paged)
    done("report", paged)
    taxonomy = REPO / "src" / "opensafeintent" / "data" / "taxonomy.toml"
    (folder / "own.toml").write_text(
        re.sub(r'(?m)^name = "', 'name = "Own ', taxonomy.read_text("utf-8")), "utf-8"
    )
    starter = folder / "starter.jsonl"
    done("dataset", "convert", "starter", "--out", starter)
    own = re.sub('"(harm_domain|task_type)": ?"', r"\g<0>Own ", starter.read_text("utf-8"))
    (folder / "own.jsonl").write_text(own, "utf-8")
    responses = folder / "responses.csv"
    done("export", second, "--format", "csv", "--out", responses, "--include-unsafe")
    kept = ("model", "id", "variant", "response")
    with responses.open(encoding="utf-8", newline="") as file:
        rows = [{name: row[name] for name in kept} for row in csv.DictReader(file)]
    with responses.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, kept)
        writer.writeheader()
        writer.writerows(row | {"model": "mine"} for row in rows)
    done("import", responses, "--dataset", "starter", "--out", folder / "ungraded")
    options = ("--generator", "baseline/generator", "--judge", "baseline/construction-judge")
    done("build", "--per-cell", 1, *options, "--out", build)
    done("build", "--per-cell", 1, *options, "--out", own_build, "--taxonomy", folder / "own.toml")
    (folder / "seeds.csv").write_text("prompt\nhow to do a bad thing with a machine\n")
    for name, export in (
        ("study", ("quality", "starter", "--limit", 2)),
        ("study2", ("judge", run, "--sample", 6)),
    ):
        study = folder / name
        done("annotate", "export", *export, "--out", study, "--annotators", "ana")
        sheet = study / "ana.csv"
        filled(read_key(study / "key.json"), Sheet(sheet.read_bytes()), "ana", sheet)
        key = ("--key", study / "key.json", "--out", folder / f"{name}.jsonl")
        done("annotate", "import", sheet, *key)
    return {
        "RUN": str(run),
        "RUN2": str(second),
        "PILOT": str(pilot),
        "PAGED": str(paged),
        "BUILD": str(build),
        "OWNBUILD": str(own_build),
        "OWN.jsonl": str(folder / "own.jsonl"),
        "OWN.toml": str(folder / "own.toml"),
        "RESPONSES": str(responses),
        "UNGRADED": str(folder / "ungraded"),
        "SEEDS": str(folder / "seeds.csv"),
        "STUDY": str(folder / "study"),
        "STUDY2": str(folder / "study2"),
        "QUALITY": str(folder / "study.jsonl"),
        "JUDGED": str(folder / "study2.jsonl"),
        "DATASET": "starter",
        "MODEL...": "baseline/comply-all",
    }


def completed(following: str, places: dict[str, str]) -> list[str]:
    """The words of a suggested command, with a value in the place of each word in capitals."""
    words = shlex.split(following)
    for index, word in enumerate(words):
        option = words[index - 1]
        if word in ("MODEL", "PROVIDER/MODEL"):
            judges = {"--judge": "baseline/judge", "--generator": "baseline/generator"}
            words[index] = judges.get(option, "baseline/comply-all")
            if "build" in words and option == "--judge":
                words[index] = "baseline/construction-judge"
        elif word == "FOLDER" and "annotate" in words:
            key = Path(words[words.index("--key") + 1])
            words[index] = str(key.with_name("ana.csv"))
        else:
            words[index] = places.get(word, word)
    return words


@pytest.mark.slow
@pytest.mark.parametrize("line", LINES.splitlines())
def test_the_suggested_command_works(
    line: str, places: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(webbrowser, "open", lambda address: True)
    named = places | {"OUT": str(tmp_path / "out")}
    words = [place(word, named) for word in line.split()]
    ran = osi(*words)
    assert ran.code in (0, 1, 4), ran.err
    last = [text for text in ran.out.splitlines() if text.startswith("Next: ")]
    assert last and ran.out.splitlines()[-len(last) :] == last
    assert len(last) == 1 or line.startswith("export"), "one command, or one for each model"
    assert not {"RUN", "SEEDS", "OWNER/NAME"} & {*last[0].split()}, "the command knows the value"
    if "--judge" in words and ran.code != 4:  # after a check that failed, another judge is chosen
        assert "--judge MODEL" not in last[0], "the command knows the judge"
    program, *following = completed(last[0].removeprefix("Next: "), places)
    if program != "opensafeintent":
        assert (program, following[0]) == ("hf", "upload")
        if words[0] == "export":
            repo, folder, *ending = following[1:]
            assert (repo, ending) == ("baseline/comply-all", [".", "--create-pr"])
            assert (Path(folder) / ".eval_results" / "opensafeintent.yaml").is_file()
        else:
            assert following[-2:] == ["--repo-type", "dataset"]
        return
    if following[:2] == ["annotate", "import"]:
        study = Path(following[following.index("--key") + 1]).parent
        sheet = study / "ana.csv"
        filled(read_key(study / "key.json"), Sheet(sheet.read_bytes()), "ana", sheet)
    if words[:2] == ["dataset", "template"]:
        return  # it is to be filled in first
    after = osi(*following)
    assert after.code in (0, 1, 4), f"{last[0]}\n{after.err}"


def place(word: str, named: dict[str, str]) -> str:
    """The file that a word stands for, or one that begins with its name: RUN/ledger.sqlite."""
    stem, rest = re.fullmatch(r"([A-Z]*\d?)(.*)", word).groups()  # type: ignore[union-attr]
    return named.get(word) or named.get(stem, stem) + rest


@pytest.mark.slow
def test_a_refusal_of_fewer_judges_first_offers_to_grow_the_run_that_has_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    judges = ("--judge", "baseline/judge", "--judge", "baseline/keyword-filter")
    for name, options in (("small", judges[:2]), ("large", judges)):
        done("evaluate", "baseline/redirect", *options, "--limit", 2, "--out", name)
    for runs in (("small", "large"), ("large", "small")):
        refusal = osi("report", *runs, "--out", "both").refusal
        grown, graded = re.findall(r"`opensafeintent (.*?)`", refusal)
        assert grown == shlex.join(("evaluate", "--out", "small", *judges))
        assert graded.startswith(f"grade {runs[0]} --out NEW ")
    done(*shlex.split(grown))
    assert osi("report", *runs, "--out", "both").code in (0, 1)


OTHERWISE = (
    ("--judge", "baseline/keyword-filter"),
    ("--judge", "baseline/judge", "--judge", "baseline/keyword-filter"),
    ("--judge", "baseline/judge", "--mode-judge", "baseline/keyword-filter"),
    ("--judge", "baseline/judge", "--rubrics", "reasons"),
    ("--judge", "baseline/keyword-filter", "--judge-arg", "max_tokens=99"),
)
"""Judges of a second run that differ from those of RUN."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "options"),
    [*(("compare", options) for options in OTHERWISE), ("baseline", OTHERWISE[0])],
)
def test_a_refusal_of_other_judges_names_a_command_that_makes_the_runs_comparable(
    how: str,
    options: tuple[object, ...],
    places: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    later, first = tmp_path / "a later run", places["RUN"]
    done("evaluate", "baseline/redirect", *options, "--limit", 2, "--out", later)

    def compared(old: object) -> tuple[object, ...]:
        if how == "compare":
            return ("compare", old, later)
        return ("report", later, "--baseline", old, "--fail-if-worse", "triplet_safety=0.3")

    refusal = osi(*compared(first)).refusal
    *_, suggested = re.findall(r"`opensafeintent (.*?)`", refusal)
    assert f"grades the responses of {Path(first).name} in the later way" in refusal
    words = shlex.split(suggested)
    assert osi(*words, "--dry-run").code == 0
    graded = osi(*words)
    assert graded.code in (0, 1), graded.err
    assert osi(*compared("NEW")).code in (0, 1, 4, 5)
