"""Logs of Inspect AI, in and out: grades survive the way there and back."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import zipfile
from importlib.resources import files
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from endtoend import grades, osi
from endtoend import metrics as metrics_json
from interop.support import judge_says, quiet, run_task, said, scripted

pytest.importorskip("inspect_ai")
from inspect_ai import score
from inspect_ai.log import EvalLog, read_eval_log, write_eval_log
from inspect_ai.model import ChatMessage, GenerateConfig, ModelOutput, get_model

from opensafeintent import (
    EvaluateSettings,
    GradeSettings,
    ImportSettings,
    Outcome,
    evaluate,
    grade,
    import_files,
)
from opensafeintent.errors import InputError
from opensafeintent.interop.inspect.task import opensafeintent_sets
from opensafeintent.promptsets import load_dataset, sample_order

pytestmark = quiet
JUDGE = "baseline/judge"
CELLS = (("Cyber Compromise", 4), ("Fraud and Deception", 2))


def run_of(tmp_path: Path, *models: str, name: str = "run", **options: Any) -> Path:
    """Evaluate baselines, and return the run's folder."""
    settings = {"judges": (JUDGE,), "limit": 4} | options
    evaluate(
        EvaluateSettings(models=models or ("baseline/comply-all",), out=tmp_path / name, **settings)
    )
    return tmp_path / name


def brought(out: Path, *logs: Path, **options: Any) -> Outcome:
    return import_files(ImportSettings(files=logs, out=out, **options))


def path_of(log: EvalLog) -> Path:
    return Path(str(log.location))


# In
# ------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_log_of_the_task_is_imported_with_the_numbers_of_our_own_run(tmp_path: Path) -> None:
    (log,) = run_task(
        "opensafeintent/comply-all", tmp_path, parameters={"limit": 6, "modes": "core"}
    )
    run = run_of(tmp_path, limit=6, modes="core")
    outcome = brought(tmp_path / "in", path_of(log))
    assert outcome.exit_code == 0
    theirs, ours = metrics_json(tmp_path / "in"), metrics_json(run)
    assert theirs["models"] == ours["models"]  # under the name that the baseline has here
    assert grades(tmp_path / "in") == grades(run)
    texts = {row["response"] for row in recorded(tmp_path / "in")}
    assert any("Here is a complete answer" in text for text in texts)


def recorded(run: Path) -> list[dict[str, str]]:
    """Return the texts of imported responses, as the ledger has them."""
    from opensafeintent.calls.ledger import Ledger

    with Ledger(run / "ledger.sqlite", readonly=True) as ledger:
        return [
            {"variant": row.recorded.variant, "response": row.recorded.response or ""}
            for row in ledger.imports.rows()
        ]


@pytest.mark.slow
def test_logs_of_several_models_become_one_run(tmp_path: Path) -> None:
    logs = run_task(
        ["opensafeintent/comply-all", "opensafeintent/refuse-all"],
        tmp_path,
        parameters={"limit": 2},
    )
    brought(tmp_path / "in", *map(path_of, logs))
    assert set(metrics_json(tmp_path / "in")["models"]) == {
        "baseline/comply-all",
        "baseline/refuse-all",
    }
    assert osi("import", path_of(logs[0]), "--out", tmp_path / "other", "--model", "mine").code == 0
    assert set(metrics_json(tmp_path / "other")["models"]) == {"mine"}


@pytest.mark.slow
def test_a_log_in_the_json_format_is_read_as_well(tmp_path: Path) -> None:
    run_task("opensafeintent/comply-all", tmp_path, parameters={"limit": 2}, log_format="json")
    (path,) = (tmp_path / "logs").glob("*.json")
    brought(tmp_path / "in", path)
    assert grades(tmp_path / "in") == grades(run_of(tmp_path, limit=2))


def test_a_long_response_arrives_whole(tmp_path: Path) -> None:
    long = "A long answer. " * 3000
    with scripted(lambda *_: said(long)):
        (log,) = run_task("scripted/t", tmp_path, parameters={"limit": 1, "probe": "none"})
    brought(tmp_path / "in", path_of(log))
    assert {row["response"] for row in recorded(tmp_path / "in")} == {long}


def test_a_log_without_grades_gives_responses_to_grade(tmp_path: Path) -> None:
    (log,) = run_task("opensafeintent/comply-all", tmp_path, parameters={"limit": 2}, score=False)
    outcome = brought(tmp_path / "in", path_of(log))
    assert any("14 responses have no grades yet" in note for note in outcome.notes)
    grade(GradeSettings(run=tmp_path / "in", judges=(JUDGE,)))
    theirs, ours = grades(tmp_path / "in"), grades(run_of(tmp_path, limit=2, probe="none"))
    fields = ("id", "variant", "helpfulness", "harm_severity", "mode")
    assert [[row[field] for field in fields] for row in theirs] == [
        [row[field] for field in fields] for row in ours
    ]


def test_a_response_that_is_not_there_does_not_spoil_an_ungraded_log(tmp_path: Path) -> None:
    first = sample_order(load_dataset("starter").prompt_sets)[0]
    lines = [
        {"id": first.id, "variant": variant, "response": "No."}
        for variant in list(first.wordings())[:4]
    ]
    path = tmp_path / "mine.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    (log,) = run_task(f"opensafeintent/replay/{path}", tmp_path, limit=7, score=False)
    outcome = brought(tmp_path / "in", path_of(log))
    assert len(grades(tmp_path / "in")) == 4
    told = f"{path_of(log)}: samples with neither response nor grade, which are not imported: 3"
    assert told in outcome.notes


def test_a_log_that_lacks_prompts_says_so_and_its_sets_do_not_count(tmp_path: Path) -> None:
    (log,) = run_task("opensafeintent/comply-all", tmp_path, limit=9)
    outcome = brought(tmp_path / "in", path_of(log))
    # 9 of the 14 prompts of two sets; the second lacks its malicious prompt and its paraphrases
    assert (
        f"{path_of(log)}: lacks 5 responses of its sets; such sets may not count" in outcome.notes
    )
    assert (
        metrics_json(tmp_path / "in")["models"]["baseline/comply-all"]["triplet_safety"]["n"] == 1
    )


@pytest.mark.parametrize("go_on", [False, True])
def test_an_interrupted_log_gives_what_it_holds(tmp_path: Path, go_on: bool) -> None:
    harm_asked = iter(range(100))

    def answer(messages: list[ChatMessage], config: GenerateConfig) -> ModelOutput:
        if "one integer from 0 to 3" in messages[-1].text[-600:] and next(harm_asked) == 9:
            raise ValueError("gone")
        return judge_says()(messages, config)

    with scripted(answer):
        options: dict[str, Any] = {
            "model_roles": {"grader": "scripted/j"},
            "fail_on_error": not go_on,
            "max_samples": 1,
        }
        (log,) = run_task("opensafeintent/comply-all", tmp_path, parameters={"limit": 2}, **options)
    outcome = brought(tmp_path / "in", path_of(log))
    told = " ".join(outcome.notes)
    # the tenth response of 14 was the one in error, and the end of it all unless the evaluation was
    # to go on
    if go_on:
        assert len(grades(tmp_path / "in")) == 13
        assert "samples that ended in an error and are not imported: 1" in told
        assert "lacks 1 responses" in told
    else:
        assert len(grades(tmp_path / "in")) == 9
        assert "did not end (status: error); `inspect eval-retry` goes on from it" in told
        assert "lacks 5 responses" in told


@pytest.mark.slow
def test_copies_of_an_evaluation_are_one(tmp_path: Path) -> None:
    """`inspect score` writes a copy beside the log: the graded one counts, and of two that differ
    neither.
    """
    (log,) = run_task("opensafeintent/comply-all", tmp_path, parameters={"limit": 2}, score=False)
    bare, graded, otherwise = (
        path_of(log),
        tmp_path / "a-graded.eval",
        tmp_path / "graded-otherwise.eval",
    )
    for path, role in ((graded, "opensafeintent/judge"), (otherwise, "scripted/j")):
        with scripted(judge_says(2, 3)):
            write_eval_log(
                score(log, opensafeintent_sets(), model_roles={"grader": get_model(role)}),
                str(path),
            )
    brought(tmp_path / "graded", graded)
    expected = grades(tmp_path / "graded")
    assert {row["judge"] for row in expected} == {JUDGE}
    for number, paths in enumerate([(bare, graded), (graded, bare)]):
        outcome = brought(tmp_path / f"in-{number}", *paths)
        assert grades(tmp_path / f"in-{number}") == expected
        told = (
            f"{bare}: is the same evaluation as {graded}, which has its grades; nothing is taken"
            " from here"
        )
        assert told in outcome.notes
    with pytest.raises(
        InputError, match="are one evaluation, graded differently; name the one that is to count"
    ):
        brought(tmp_path / "none", graded, otherwise)
    assert not (tmp_path / "none").exists()


@pytest.mark.slow
def test_of_grades_that_were_appended_the_last_count(tmp_path: Path) -> None:
    (log,) = run_task("opensafeintent/comply-all", tmp_path, parameters={"limit": 1})
    for helpfulness in (3, 2):
        with scripted(judge_says(helpfulness, 3)):
            log = score(
                log,
                opensafeintent_sets(),
                action="append",
                model_roles={"grader": get_model("scripted/j")},
            )
    path = tmp_path / "appended.eval"
    write_eval_log(log, str(path))
    outcome = brought(tmp_path / "in", path)
    assert {
        (row["helpfulness"], row["harm_severity"], row["judge"]) for row in grades(tmp_path / "in")
    } == {("2", "3", "scripted/j")}
    assert f"{path}: was graded more than once; the last grades count" in outcome.notes


@pytest.mark.slow
def test_models_graded_by_other_templates_are_kept_apart(tmp_path: Path) -> None:
    rubrics = tmp_path / "rubrics"
    rubrics.mkdir()
    (rubrics / "harm.md").write_text(
        (files("opensafeintent.templates") / "harm.md").read_text() + "\nBe strict.\n"
    )
    ours = {"limit": 1}
    (first,) = run_task("opensafeintent/comply-all", tmp_path, parameters=ours)
    (other,) = run_task(
        "opensafeintent/redirect", tmp_path, parameters=ours | {"rubrics": str(rubrics)}
    )
    (again,) = run_task(
        "opensafeintent/comply-all", tmp_path, parameters=ours | {"rubrics": str(rubrics)}
    )
    brought(tmp_path / "in", path_of(first), path_of(other))
    groups = metrics_json(tmp_path / "in")["groups"]
    assert [list(group["templates"]) for group in groups] == [
        ["harm", "helpfulness", "mode", "reask", "strategy"]
    ] * 2
    assert groups[0]["templates"]["harm"] != groups[1]["templates"]["harm"]
    with pytest.raises(InputError, match="was graded with other judge templates than what is here"):
        brought(tmp_path / "in", path_of(again))


@pytest.mark.slow
def test_a_log_that_was_graded_again_brings_the_new_grades(tmp_path: Path) -> None:
    (log,) = run_task("opensafeintent/comply-all", tmp_path, parameters={"limit": 2})
    source, target = str(path_of(log)), tmp_path / "again.eval"
    scorer = [
        "--scorer",
        "opensafeintent/opensafeintent_sets",
        "-S",
        "modes=core",
        "--action",
        "overwrite",
    ]
    grader = [
        "--model-role",
        "grader=opensafeintent/judge",
        "--output-file",
        str(target),
        "--display",
        "none",
    ]
    program = Path(sys.executable).with_name("inspect")
    subprocess.run(
        [program, "score", source, *scorer, *grader],
        cwd=tmp_path,
        check=True,
        capture_output=True,
        timeout=100,
    )
    brought(tmp_path / "in", target)
    run = run_of(tmp_path, limit=2, modes="core")
    assert grades(tmp_path / "in") == grades(run)
    # another judge is asked, what the first one said is not taken for its answer
    with scripted(judge_says(2, 3)):
        again = score(
            log,
            opensafeintent_sets(),
            action="overwrite",
            model_roles={"grader": get_model("scripted/j")},
        )
    write_eval_log(again, str(target))
    brought(tmp_path / "other", target)
    assert {(row["helpfulness"], row["harm_severity"]) for row in grades(tmp_path / "other")} == {
        ("2", "3")
    }


@pytest.mark.slow
def test_importing_a_log_again_changes_nothing(tmp_path: Path) -> None:
    (log,) = run_task("opensafeintent/comply-all", tmp_path, parameters={"limit": 2})
    for _ in range(2):
        outcome = brought(tmp_path / "in", path_of(log), path_of(log))
        assert not [note for note in outcome.notes if "retry" in note]
        assert len(grades(tmp_path / "in")) == 14


@pytest.mark.slow
@pytest.mark.parametrize("together", [True, False])
def test_a_log_and_its_retry_are_one_evaluation(tmp_path: Path, together: bool) -> None:
    """What the first log has without grades, the retry asked for again, and the answer may be
    another one.
    """
    (first,) = run_task("opensafeintent/comply-all", tmp_path, parameters={"limit": 2})
    retry = read_eval_log(str(path_of(first)))
    assert first.samples is not None and retry.samples is not None
    first.samples = first.samples[:9]
    if together:
        first.samples[8].scores = None
        first.samples[8].output = said("half an answer, cut off")
    retry.eval.eval_id, retry.eval.created = "another", "2099-01-01T00:00:00+02:00"
    paths = [tmp_path / "b-first.eval", tmp_path / "a-retry.eval"]
    for log, path in zip((first, retry), paths, strict=True):
        write_eval_log(log, str(path))
    outcome = (
        brought(tmp_path / "in", *paths)
        if together
        else [brought(tmp_path / "in", path) for path in paths][-1]
    )
    brought(tmp_path / "alone", paths[1])
    assert grades(tmp_path / "in") == grades(tmp_path / "alone")
    told = [note for note in outcome.notes if "are taken from its retry" in note]
    assert told == (
        [f"{paths[0]}: 9 of its responses are taken from its retry, {paths[1]}"] if together else []
    )


@pytest.mark.slow
@pytest.mark.parametrize("cut", ["header", "half"])
def test_a_log_that_was_cut_off_is_read_or_told(tmp_path: Path, cut: str) -> None:
    (log,) = run_task("opensafeintent/comply-all", tmp_path, limit=7)
    path = tmp_path / "cut.eval"
    if cut == "half":
        raw = path_of(log).read_bytes()
        path.write_bytes(raw[: len(raw) // 2])
        with pytest.raises(InputError, match=r"cut\.eval: is not a log of Inspect AI"):
            brought(tmp_path / "in", path)
        return
    copy_without(path_of(log), path, {"header.json", "reductions.json", "summaries.json"})
    outcome = brought(tmp_path / "in", path)
    assert any("status: started" in note for note in outcome.notes)
    assert len(grades(tmp_path / "in")) == 7


def copy_without(source: Path, target: Path, names: set[str]) -> None:
    """Copy a log as a process that was killed would have left it: its last entries were never
    written.
    """
    import shutil

    shutil.copy(source, target)
    with zipfile.ZipFile(source) as archive:
        kept = [info for info in archive.infolist() if info.filename not in names]
    raw = source.read_bytes()
    end = min(
        info.header_offset for info in zipfile.ZipFile(source).infolist() if info.filename in names
    )
    with target.open("wb") as file:
        file.write(raw[:end])
    with zipfile.ZipFile(target, "a") as archive:
        archive.filelist = [info for info in kept if info.header_offset < end]
        archive.NameToInfo = {info.filename: info for info in archive.filelist}
        archive.start_dir = end
        archive._didModify = True  # type: ignore[attr-defined]


@pytest.mark.slow
def test_a_log_of_another_task_or_of_another_dataset_is_refused(tmp_path: Path) -> None:
    (log,) = run_task("opensafeintent/comply-all", tmp_path, limit=7)
    other = read_eval_log(str(path_of(log)))
    other.eval.task = "someone/else"
    write_eval_log(other, str(tmp_path / "other.eval"))
    with pytest.raises(
        InputError,
        match=r"other\.eval: is a log of the task 'someone/else'; expected one of opensafeintent",
    ):
        brought(tmp_path / "in", tmp_path / "other.eval")
    sets = tmp_path / "sets.jsonl"
    starter = load_dataset("starter").prompt_sets
    sets.write_text("".join(json.dumps(item.to_json()) + "\n" for item in starter[:3]))
    with pytest.raises(
        InputError, match=r"its responses are to starter \([0-9a-f]{8}\), this is sets \("
    ):
        brought(tmp_path / "in", path_of(log), dataset=str(sets))
    (log,) = run_task(
        "opensafeintent/comply-all", tmp_path, limit=7, parameters={"dataset": str(sets)}
    )
    with pytest.raises(
        InputError, match=r"--dataset: is not given; expected that of the log's task \(sets\)"
    ):
        brought(tmp_path / "in", path_of(log))
    assert brought(tmp_path / "in", path_of(log), dataset=str(sets)).exit_code == 0


@pytest.mark.parametrize(
    ("content", "line"),
    [(b"no log", "is not a log of Inspect AI"), (None, "cannot read: no such file")],
)
def test_a_file_that_is_no_log_is_refused(tmp_path: Path, content: bytes | None, line: str) -> None:
    path = tmp_path / "x.eval"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match=line):
        brought(tmp_path / "in", path)
    assert not (tmp_path / "in").exists()


@pytest.mark.parametrize(
    ("suffix", "part", "line"),
    [
        (
            ".eval",
            b'{"a":' * 100_000,
            ", header.json: nested too deeply; expected at most 200 levels",
        ),
        (".json", b'{"a":' * 100_000, ": nested too deeply; expected at most 200 levels"),
        (
            ".eval",
            b'"' + b"x" * 30_000_001 + b'"',
            ", header.json: too much text; expected texts of at most 30,000,000 char",
        ),
        (
            ".eval",
            b" " * 100_000_000,
            ", header.json: 100,000,044 bytes; expected at most 100,000,000",
        ),
    ],
    ids=["deep", "deep-json", "text", "bytes"],
)
def test_what_unpacks_to_more_than_a_log_of_ours_is_refused(
    tmp_path: Path, suffix: str, part: bytes, line: str
) -> None:
    path = tmp_path / f"bad{suffix}"
    content = b'{"version": 2, "status": "success", "eval": ' + part
    if suffix == ".json":
        path.write_bytes(content)
    else:
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("header.json", content)
    with pytest.raises(InputError, match=re.escape(f"{path}{line}")):
        brought(tmp_path / "in", path)


@pytest.mark.slow
def test_grades_that_were_tampered_with_are_refused(tmp_path: Path) -> None:
    (log,) = run_task("opensafeintent/comply-all", tmp_path, limit=7)
    whole = read_eval_log(str(path_of(log)))
    assert whole.samples is not None
    (whole.samples[0].scores or {})["opensafeintent_sets"].metadata = {
        "epoch": 1,
        "helpfulness": "lots",
    }
    write_eval_log(whole, str(tmp_path / "bad.eval"))
    with pytest.raises(
        InputError,
        match=r"bad\.eval, sample .*: the score opensafeintent_sets: Expected `int \| null`",
    ):
        brought(tmp_path / "in", tmp_path / "bad.eval")


def test_without_the_extra_a_log_names_it(tmp_path: Path) -> None:
    from importlib import metadata

    (tmp_path / "x.eval").write_bytes(b"")
    absent = mock.Mock(side_effect=metadata.PackageNotFoundError)
    with mock.patch("opensafeintent.interop.inspect.models.version", absent):
        ran = osi("import", tmp_path / "x.eval", "--out", tmp_path / "in")
        assert ran.code == 2
        assert 'needs an extra: pip install "opensafeintent[inspect]"' in ran.err
