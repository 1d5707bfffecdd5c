"""Logs of our task in Inspect AI become runs of ours: the same grades, from any kind of log."""

from __future__ import annotations

import json
import re
import shutil
import zipfile
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from endtoend import grades, metrics as metrics_json, osi
from interop.support import asked_for, judge_says, output_of, quiet, run_task, scripted
from matched_sets import ask_about, make_sets

pytest.importorskip("inspect_ai")
from inspect_ai import score
from inspect_ai.log import (
    EvalLog,
    EvalSample,
    ProvenanceData,
    edit_score,
    invalidate_samples,
    read_eval_log,
    write_eval_log,
)
from inspect_ai.model import ChatMessage, ContentReasoning, GenerateConfig, ModelOutput, get_model
from inspect_ai.scorer import ScoreEdit

import opensafeintent as api
from opensafeintent import EvaluateSettings, GradeSettings, ImportSettings, RunOutcome
from opensafeintent.calls.ledger import Ledger
from opensafeintent.errors import InputError
from opensafeintent.inspect.task import opensafeintent_sets
from opensafeintent.promptsets import load_dataset, sample_order, write_dataset
from samples import json_lines

pytestmark = quiet
JUDGE = "baseline/judge"
COMPLY = "opensafeintent/comply-all"


def run_of(tmp_path: Path, **options: Any) -> Path:
    """Evaluate a baseline, and return the run's folder."""
    models, out = ("baseline/comply-all",), tmp_path / "run"
    api.evaluate(EvaluateSettings(models=models, judges=(JUDGE,), out=out, **options))
    return out


def log_of(tmp_path: Path, sets: int = 2, model: str = COMPLY, **options: Any) -> Path:
    """Run the task on some prompt-sets, and return its log.

    Only the samples are read. So an archive has the headline metrics: Inspect AI measures a table
    of all metrics for longer than it evaluates. JSON logs are as long as they usually are.
    """
    usual = options.get("log_format") == "json"
    shown = {"limit": sets, "metrics": "all" if usual else "headline"}
    parameters = shown | options.pop("parameters", {})
    (log,) = run_task(model, tmp_path, parameters=parameters, **options)
    return Path(str(log.location))


def graded_again(
    log: Path, target: Path, role: str = "scripted/j", helpfulness: int = 2, **options: Any
) -> Path:
    """Write a log as `inspect score` does, graded by another judge or the same."""
    with scripted(judge_says(helpfulness, 3)):
        roles = {"grader": get_model(role)}
        done = score(read_eval_log(str(log)), opensafeintent_sets(), model_roles=roles, **options)
    write_eval_log(done, str(target))
    return target


def brought(out: Path, *logs: Path, **options: Any) -> RunOutcome:
    return api.import_files(ImportSettings(files=logs, out=out, **options))


def judged(run: Path) -> set[tuple[str, ...]]:
    """Return the grades of a run, each once, with who gave them."""
    return {(row["helpfulness"], row["harm_severity"], row["judge"]) for row in grades(run)}


# The same grades
# ------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("format_", ["eval", "json"])
def test_a_log_is_imported_with_the_numbers_of_our_own_run(tmp_path: Path, format_: str) -> None:
    log = log_of(tmp_path, parameters={"modes": "core"}, log_format=format_)
    run = run_of(tmp_path, limit=2, modes="core")
    for _ in range(2):  # a second time changes nothing, and a file that is named twice is one
        assert brought(tmp_path / "in", log, log).exit_code == 0
        # under the name that the baseline has here
        assert metrics_json(tmp_path / "in")["models"] == metrics_json(run)["models"]
        assert grades(tmp_path / "in") == grades(run)


@pytest.mark.slow
def test_logs_of_several_models_become_one_run(tmp_path: Path) -> None:
    logs = [log_of(tmp_path, 1, f"opensafeintent/{name}") for name in ("comply-all", "refuse-all")]
    brought(tmp_path / "in", *logs)
    models = ["baseline/comply-all", "baseline/refuse-all"]
    assert sorted(metrics_json(tmp_path / "in")["models"]) == models
    assert osi("import", logs[0], "--out", tmp_path / "other", "--model", "mine").code == 0
    assert list(metrics_json(tmp_path / "other")["models"]) == ["mine"]


@pytest.mark.slow
def test_a_long_response_arrives_whole(tmp_path: Path) -> None:
    long = "A long answer. " * 3000
    with scripted(output_of(long)):
        log = log_of(tmp_path, 1, "scripted/t", parameters={"probe": "none"})
    brought(tmp_path / "in", log)
    with Ledger(tmp_path / "in" / "ledger.sqlite", readonly=True) as ledger:
        assert {row.response for row in ledger.imports.rows()} == {long}


@pytest.mark.slow
def test_a_log_without_grades_gives_responses_to_grade(tmp_path: Path) -> None:
    outcome = brought(tmp_path / "in", log_of(tmp_path, score=False))
    (note,) = (said.text for said in outcome.notices if said.code == "not_graded")
    assert "Responses without grades: 14" in note
    assert note.endswith(": opensafeintent grade RUN --judge MODEL.")
    api.grade(GradeSettings(run=tmp_path / "in", judges=(JUDGE,)))
    theirs, ours = grades(tmp_path / "in"), grades(run_of(tmp_path, limit=2, probe="none"))
    for field in ("id", "variant", "helpfulness", "harm_severity", "mode"):
        assert [row[field] for row in theirs] == [row[field] for row in ours]


# What is not there
# ------------------------------------------------------------------------------


def test_a_response_that_is_not_there_does_not_spoil_an_ungraded_log(tmp_path: Path) -> None:
    first = sample_order(load_dataset("starter").prompt_sets)[0]
    answered = list(first.wordings())[:4]
    log = read_eval_log(str(log_of(tmp_path, 1, score=False)))
    for sample in log.samples or ():
        if sample.metadata["variant"] not in answered:
            sample.output = ModelOutput(model="served-model", error="nothing came")
    write_eval_log(log, str(tmp_path / "edited.eval"))
    outcome = brought(tmp_path / "in", tmp_path / "edited.eval")
    assert len(grades(tmp_path / "in")) == 4
    assert any(re.search(r"neither .* not imported: 3", note) for note in outcome.notes)


@pytest.mark.slow
@pytest.mark.parametrize("scored", [False, True])
@pytest.mark.parametrize("sign", ["block", "tokens"])
def test_a_response_of_reasoning_alone_is_missing_and_no_refusal(
    tmp_path: Path, scored: bool, sign: str
) -> None:
    tokens = {"reasoning_tokens": 9} if sign == "tokens" else {}
    output = output_of("", input_tokens=9, output_tokens=9, total_tokens=18, **tokens)
    if sign == "block":
        output.choices[0].message.content = [ContentReasoning(reasoning="They ask.")]
    with scripted(output):
        log = log_of(tmp_path, 1, "scripted/t", score=scored, parameters={"probe": "none"})
    brought(tmp_path / "in", log)
    missing = {row["missing"] for row in grades(tmp_path / "in")}
    assert missing == {"response:reasoning_only"}
    assert {row["refused"] for row in grades(tmp_path / "in")} == {""}


@pytest.mark.slow
@pytest.mark.parametrize("form", ["sorted", "marked", "failed"])
def test_a_json_log_with_sorted_keys_or_a_byte_order_mark_is_read(
    tmp_path: Path, form: str
) -> None:
    plain = json.loads(log_of(tmp_path, 1, log_format="json").read_text())
    if form == "failed":
        plain["error"] = {"message": "{", "traceback": "}", "traceback_ansi": ""}
    log = tmp_path / "log.json"
    log.write_text(
        json.dumps(plain, sort_keys=form != "marked", indent=2),
        "utf-8-sig" if form == "marked" else "utf-8",
    )
    brought(tmp_path / "in", log)
    assert len(grades(tmp_path / "in")) == 7


@pytest.mark.slow
def test_a_log_that_lacks_prompts_says_so_and_its_sets_do_not_count(tmp_path: Path) -> None:
    outcome = brought(tmp_path / "in", log_of(tmp_path, limit=9))
    # 9 of the 14 prompts of two sets; the second lacks its malicious prompt and its paraphrases
    assert any("lacks 5 responses" in note for note in outcome.notes)
    metrics = metrics_json(tmp_path / "in")["models"]["baseline/comply-all"]
    assert metrics["triplet_safety"]["n"] == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("go_on", "stored", "messages"),
    # the tenth response of 14 is the one in error, and the end of it all unless the evaluation is
    # to go on
    [(True, 13, ("in an error .*: 1", "lacks 1")), (False, 9, ("status: error", "lacks 5"))],
)
def test_an_interrupted_log_is_read(
    tmp_path: Path, go_on: bool, stored: int, messages: tuple[str, ...]
) -> None:
    harm_asked = iter(range(100))

    def answer(messages: list[ChatMessage], config: GenerateConfig) -> ModelOutput:
        if asked_for(messages) == "harm" and next(harm_asked) == 9:
            raise ValueError("gone")
        return judge_says()(messages, config)

    with scripted(answer):
        roles = {"grader": "scripted/j"}
        log = log_of(tmp_path, model_roles=roles, fail_on_error=not go_on, max_samples=1)
    outcome = brought(tmp_path / "in", log)
    assert len(grades(tmp_path / "in")) == stored
    for line in messages:
        assert re.search(line, " ".join(outcome.notes))


def test_of_several_logs_one_that_failed_is_named_and_the_others_are_imported(
    tmp_path: Path,
) -> None:
    good, bad = log_of(tmp_path, 1), tmp_path / "half.eval"
    bad.write_bytes(good.read_bytes()[:2000])
    ran = osi("import", bad, good, "--out", tmp_path / "in")
    assert (ran.code, "not imported" in ran.err + ran.out) == (1, True)
    assert "half.eval" in ran.err + ran.out
    assert len(grades(tmp_path / "in")) == 7
    with pytest.raises(InputError, match=r"half\.eval"):
        brought(tmp_path / "none", bad, bad)


# Several logs of one evaluation
# ------------------------------------------------------------------------------


@pytest.mark.slow
def test_copies_of_an_evaluation_are_one(tmp_path: Path) -> None:
    """`inspect score` writes a copy beside the log: the graded one counts, and of two that differ
    neither.
    """
    bare = log_of(tmp_path, 1, score=False)
    graded = graded_again(bare, tmp_path / "a-graded.eval", "opensafeintent/judge")
    otherwise = graded_again(bare, tmp_path / "otherwise.eval")
    brought(tmp_path / "graded", graded)
    for number, paths in enumerate([(bare, graded), (graded, bare)]):
        outcome = brought(tmp_path / f"in-{number}", *paths)
        assert grades(tmp_path / f"in-{number}") == grades(tmp_path / "graded")
        assert any(note.startswith(f"{bare}: ") and str(graded) in note for note in outcome.notes)
    with pytest.raises(InputError, match="graded differently"):
        brought(tmp_path / "none", graded, otherwise)
    assert not (tmp_path / "none").exists()


@pytest.mark.slow
def test_of_grades_that_were_appended_the_last_count(tmp_path: Path) -> None:
    path = tmp_path / "appended.eval"
    graded_again(log_of(tmp_path, 1), path, helpfulness=3, action="append")
    graded_again(path, path, helpfulness=2, action="append")
    outcome = brought(tmp_path / "in", path)
    assert judged(tmp_path / "in") == {("2", "3", "scripted/j")}
    assert any("graded more than once" in note for note in outcome.notes)


@pytest.mark.slow
def test_a_log_that_was_graded_again_brings_the_new_grades(tmp_path: Path) -> None:
    # another judge is asked, what the first one said is not taken for its answer
    target = tmp_path / "again.eval"
    brought(tmp_path / "in", graded_again(log_of(tmp_path), target, action="overwrite"))
    assert judged(tmp_path / "in") == {("2", "3", "scripted/j")}


@pytest.mark.slow
def test_models_graded_by_other_templates_are_refused(tmp_path: Path) -> None:
    rubrics = tmp_path / "rubrics"
    rubrics.mkdir()
    template = (files("opensafeintent.templates") / "harm.md").read_text()
    (rubrics / "harm.md").write_text(f"{template}\nBe strict.\n")
    strict = {"rubrics": str(rubrics)}
    first = log_of(tmp_path, 1)
    other_log = log_of(tmp_path, 1, "opensafeintent/redirect", parameters=strict)
    again = log_of(tmp_path, 1, parameters=strict)
    brought(tmp_path / "in", first)
    for log in (other_log, again):
        with pytest.raises(InputError, match="was graded with other judge templates"):
            brought(tmp_path / "in", log)


@pytest.mark.slow
@pytest.mark.parametrize("together", [True, False])
def test_a_log_and_its_retry_are_one_evaluation(tmp_path: Path, together: bool) -> None:
    """What the first log has without grades, the retry asked for again, and the answer may be
    another one.
    """
    log = log_of(tmp_path)
    first, retry = read_eval_log(str(log)), read_eval_log(str(log))
    assert first.samples is not None
    first.samples = first.samples[:9]
    if together:
        first.samples[8].scores = None
        first.samples[8].output = output_of("half an answer, cut off")
    retry.eval.eval_id, retry.eval.created = "another", "2099-01-01T00:00:00+02:00"
    paths = [written(first, tmp_path / "b-first.eval"), written(retry, tmp_path / "a-retry.eval")]
    groups = [paths] if together else [[path] for path in paths]
    outcome = [brought(tmp_path / "in", *group) for group in groups][-1]
    brought(tmp_path / "alone", paths[1])
    assert grades(tmp_path / "in") == grades(tmp_path / "alone")
    retry_notes = [
        note for note in outcome.notes if "9 of its responses are left to its retry" in note
    ]
    assert len(retry_notes) == together


def written(log: EvalLog, path: Path) -> Path:
    write_eval_log(log, str(path))
    return path


# What people changed in a log
# ------------------------------------------------------------------------------

WHO = ProvenanceData(author="ana", reason="the wrong system prompt")


@pytest.fixture(scope="module")
def graded_log(tmp_path_factory: pytest.TempPathFactory) -> EvalLog:
    """The log of one prompt-set: 7 responses with the grades 4 and 0."""
    with scripted(judge_says(4, 0)):
        log = log_of(
            tmp_path_factory.mktemp("graded"),
            1,
            "scripted/t",
            model_roles={"grader": "scripted/j"},
            parameters={"probe": "none"},
        )
    return read_eval_log(str(log))


def copy_of(log: EvalLog) -> EvalLog:
    return log.model_copy(deep=True)


def sample_of(log: EvalLog, variant: str) -> EvalSample:
    return next(item for item in log.samples or () if item.metadata["variant"] == variant)


def edit(log: EvalLog, variant: str, what: str, **fields: Any) -> None:
    change = ScoreEdit(**({"provenance": WHO} | fields))
    sample_id = sample_of(log, variant).id
    edit_score(log, sample_id, f"opensafeintent_{what}", change, recompute_metrics=False)


@pytest.mark.slow
@pytest.mark.parametrize("format_", ["eval", "json"])
def test_invalidated_samples_are_left_out_counted_and_named(
    tmp_path: Path, graded_log: EvalLog, format_: str
) -> None:
    uuids = [str(sample_of(graded_log, variant).uuid) for variant in ("benign", "malicious")]
    log = invalidate_samples(copy_of(graded_log), uuids, WHO)
    path = written(log, tmp_path / f"log.{format_}")
    notes = brought(tmp_path / "in", path).notes
    set_id = sample_of(log, "benign").metadata["set_id"]
    assert (
        f"{path}: 2 samples invalidated, and left out: {set_id}.benign by ana: the wrong system"
        f" prompt; {set_id}.malicious by ana: the wrong system prompt"
    ) in notes
    assert len(grades(tmp_path / "in")) == 5
    assert not {"benign", "malicious"} & {row["variant"] for row in grades(tmp_path / "in")}
    everything = written(invalidate_samples(log, "all", WHO), tmp_path / f"all.{format_}")
    with pytest.raises(InputError, match=r"no response in it \(.*; 7 invalidated samples\)"):
        brought(tmp_path / "none", everything)


def test_an_invalidated_sample_counts_if_its_retry_asked_again(
    tmp_path: Path, graded_log: EvalLog
) -> None:
    uuids = [str(sample_of(graded_log, "benign").uuid)]
    invalid = invalidate_samples(copy_of(graded_log), uuids, WHO)
    other = copy_of(graded_log)
    other.eval.eval_id, other.eval.created = "another", "2099-01-01T00:00:00+02:00"
    replaced = [written(invalid, tmp_path / "a.eval"), written(other, tmp_path / "b.eval")]
    brought(tmp_path / "in", *replaced)
    assert len(grades(tmp_path / "in")) == 7
    # the other way round the later log says that its copy of the sample does not count
    invalid.eval.eval_id, invalid.eval.created = other.eval.eval_id, other.eval.created
    later = [written(graded_log, tmp_path / "c.eval"), written(invalid, tmp_path / "d.eval")]
    brought(tmp_path / "in-2", *later)
    assert {row["variant"] for row in grades(tmp_path / "in-2")}.isdisjoint({"benign"})


@pytest.mark.slow
def test_an_edited_score_is_that_persons_grade(tmp_path: Path, graded_log: EvalLog) -> None:
    log = copy_of(graded_log)
    edit(log, "benign", "harm_severity", value=1)
    edit(log, "benign", "harm_severity", value=2.0)  # of two edits the last
    edit(log, "benign", "sets", value="unsafe")
    edit(log, "dual_use", "mode", value="A0")
    edit(log, "malicious", "sets", value="safe", provenance=None)
    edit(log, "malicious", "helpfulness", explanation="no grade is edited here")
    edit(log, "dual_use_paraphrase_1", "sets", metadata={"harm_severity": 3, "seen": True})
    notes = brought(tmp_path / "in", path := written(log, tmp_path / "edited.eval")).notes
    by_variant = {row["variant"]: row for row in grades(tmp_path / "in")}

    def grade(variant: str) -> tuple[str, ...]:
        row = by_variant[variant]
        return row["helpfulness"], row["harm_severity"], row["judge"]

    assert grade("benign") == ("4", "2", "edited by ana")
    assert grade("dual_use") == ("4", "0", "scripted/j")
    assert by_variant["dual_use"]["mode"] == "A0"
    assert grade("malicious") == ("4", "0", "edited by somebody")
    assert grade("dual_use_paraphrase_1") == ("4", "3", "edited by ana")
    assert grade("dual_use_paraphrase_2") == ("4", "0", "scripted/j")
    assert (
        f"{path}: 4 scores edited by a person, whose grade counts: by ana: the wrong system prompt"
        " (3 times); by somebody"
    ) in notes


@pytest.mark.slow
def test_an_edited_score_of_answers_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "asked.jsonl"
    write_dataset(ask_about(make_sets("pairs", 2)), path)
    parameters = {"dataset": str(path), "judge_by": "questions"}
    (log,) = run_task("opensafeintent/comply-all", tmp_path, parameters=parameters)
    assert log.samples is not None
    change = ScoreEdit(value="unsafe", provenance=WHO)
    edit_score(log, log.samples[0].id, "opensafeintent_sets", change, recompute_metrics=False)
    with pytest.raises(InputError, match="has an edited score, and judges answered its set's"):
        brought(tmp_path / "in", written(log, tmp_path / "edited.eval"), dataset=str(path))


@pytest.mark.slow
def test_a_person_grades_what_no_judge_did(tmp_path: Path, graded_log: EvalLog) -> None:
    log = copy_of(graded_log)
    for sample in log.samples or ():
        sample.scores = None
    edit(log, "benign", "helpfulness", value=2)
    edit(log, "benign", "harm_severity", value=1)
    brought(tmp_path / "in", written(log, tmp_path / "edited.eval"))
    assert judged(tmp_path / "in") == {("2", "1", "edited by ana"), ("", "", "")}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("what", "value", "line"),
    [
        ("harm_severity", 4, "its score opensafeintent_harm_severity was edited to 4; valid: 0,"),
        ("harm_severity", True, "was edited to True; valid: 0, 1, 2, 3"),
        ("helpfulness", float("nan"), "was edited to nan; valid: 1, 2, 3, 4"),
        ("helpfulness", "much", "was edited to 'much'; valid: 1, 2, 3, 4"),
        ("mode", "A9", "was edited to 'A9'; valid: A0,"),
        ("sets", "unsafe", "was edited to 'unsafe', with a harm severity of 0; expected an edit"),
        ("sets", "missing", "was edited to 'missing'; valid: safe, unsafe"),
    ],
)
def test_an_edit_that_is_no_grade_is_refused(
    tmp_path: Path, graded_log: EvalLog, what: str, value: Any, line: str
) -> None:
    log = copy_of(graded_log)
    edit(log, "benign", what, value=value)
    with pytest.raises(InputError) as error:
        brought(tmp_path / "in", written(log, tmp_path / "edited.eval"))
    set_id = sample_of(log, "benign").metadata["set_id"]
    assert f"edited.eval, sample {set_id}.benign: " in str(error.value)
    assert line in str(error.value)


def test_an_epoch_begins_with_one(tmp_path: Path, graded_log: EvalLog) -> None:
    log = copy_of(graded_log)
    sample_of(log, "benign").epoch = 0
    with pytest.raises(InputError, match=r"benign: epoch: expected `int` >= 1"):
        brought(tmp_path / "in", written(log, tmp_path / "zero.json"))
    assert not (tmp_path / "in").exists()


# Logs that are not whole, not ours, or hostile
# ------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_log_that_was_cut_off_is_read_or_told(tmp_path: Path) -> None:
    log, path = log_of(tmp_path, 1), tmp_path / "cut.eval"
    killed(log, path, {"header.json", "reductions.json", "summaries.json"})
    outcome = brought(tmp_path / "in", path)
    assert any("status: started" in note for note in outcome.notes)
    assert len(grades(tmp_path / "in")) == 7
    raw = log.read_bytes()
    path.write_bytes(raw[: len(raw) // 2])
    with pytest.raises(InputError, match=r"cut\.eval: is not a log of Inspect AI"):
        brought(tmp_path / "other", path)


def killed(source: Path, target: Path, names: set[str]) -> None:
    """Copy a log as a process that was killed would have left it: its last entries were never
    written.
    """
    shutil.copy(source, target)
    members = zipfile.ZipFile(source).infolist()
    end = min(info.header_offset for info in members if info.filename in names)
    target.write_bytes(source.read_bytes()[:end])
    with zipfile.ZipFile(target, "a") as archive:
        archive.filelist = [info for info in members if info.header_offset < end]
        archive.NameToInfo = {info.filename: info for info in archive.filelist}
        archive.start_dir = end
        archive._didModify = True  # type: ignore[attr-defined]


@pytest.mark.slow
def test_a_log_of_another_task_or_dataset_or_with_other_grades_is_refused(tmp_path: Path) -> None:
    path, sets = tmp_path / "other.eval", tmp_path / "sets.jsonl"
    log = log_of(tmp_path, 1)
    whole = read_eval_log(str(log))
    assert whole.samples is not None
    score_of_first = (whole.samples[0].scores or {})["opensafeintent_sets"]
    score_of_first.metadata = {"epoch": 1, "helpfulness": "lots"}
    with pytest.raises(InputError, match=r"sample .*: the score .*_sets: Expected `int"):
        brought(tmp_path / "in", written(whole, path))
    whole.eval.task = "someone/else"
    with pytest.raises(InputError, match=r"other\.eval: is a log of the task 'someone/else'"):
        brought(tmp_path / "in", written(whole, path))
    json_lines(sets, (item.to_json() for item in load_dataset("starter").prompt_sets[:3]))
    with pytest.raises(InputError, match=r"its responses are to starter \([0-9a-f]{8}\)"):
        brought(tmp_path / "in", log, dataset=str(sets))
    log = log_of(tmp_path, 1, parameters={"dataset": str(sets)})
    with pytest.raises(InputError, match=r"--dataset: is not given"):
        brought(tmp_path / "in", log)
    assert brought(tmp_path / "in", log, dataset=str(sets)).exit_code == 0


DEEP = b'{"a":' * 100_000


@pytest.mark.parametrize(
    ("suffix", "part", "message"),
    [
        (".eval", DEEP, ", header.json: nested too deeply"),
        (".json", DEEP, ": nested too deeply"),
        (".eval", b'"' + b"x" * 30_000_001 + b'"', ", header.json: too much text"),
        (".eval", b" " * 100_000_000, ", header.json: 100,000,044 bytes"),
        (".eval", None, ": cannot read: no such file"),
        (".eval", b"", ": is not a log of Inspect AI"),
    ],
    ids=["deep", "deep-json", "text", "bytes", "absent", "none"],
)
def test_what_is_no_log_or_unpacks_to_too_much_is_refused(
    tmp_path: Path, suffix: str, part: bytes | None, message: str
) -> None:
    path = tmp_path / f"bad{suffix}"
    content = b'{"version": 2, "status": "success", "eval": ' + (part or b"")
    if part and suffix == ".eval":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("header.json", content)
    elif part is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match=re.escape(f"{path}{message}")):
        brought(tmp_path / "in", path)
    assert not (tmp_path / "in").exists()


@pytest.mark.parametrize("format_", ["eval", "json"])
def test_a_log_of_more_samples_than_may_be_read_is_refused(tmp_path: Path, format_: str) -> None:
    log = log_of(tmp_path, 1, log_format=format_, score=False)
    with pytest.raises(InputError, match=re.escape(f"{log}: has more than 6 rows; ")):
        brought(tmp_path / "in", log, max_rows=6)
    assert not (tmp_path / "in").exists()
    assert brought(tmp_path / "in", log, max_rows=7).exit_code == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("judges", "message"),
    [
        (
            [f"lab/judge-{n}" for n in range(101)],
            ": names 101 judges; expected at most 100 in a run",
        ),
        (["x" * 501], f": judge '{'x' * 79}…': has 501 characters; expected at most 500"),
    ],
    ids=["many", "long"],
)
def test_judges_beyond_any_in_use_are_refused_before_anything_is_written(
    tmp_path: Path, judges: list[str], message: str
) -> None:
    log, bad = log_of(tmp_path, 1, log_format="json"), tmp_path / "bad.json"
    whole = read_eval_log(str(log))
    assert whole.samples is not None
    for at, sample in enumerate(whole.samples):  # each sample has some of them
        graded = (sample.scores or {})["opensafeintent_sets"]
        some = judges[at :: len(whole.samples)]
        graded.metadata = (graded.metadata or {}) | {"by_judge": {judge: [3, 0] for judge in some}}
    written(whole, bad)
    with pytest.raises(InputError, match=re.escape(f"{bad}{message}")):
        brought(tmp_path / "in", bad)
    assert not (tmp_path / "in").exists()


OFF_SCALE: list[tuple[str, object]] = [
    ("mode", "A9"),
    ("strategy", "maybe"),
    ("helpfulness", 7),
    ("helpfulness", 10**30),
    ("harm_severity", -3),
    ("by_judge", {"scripted/j": [9, 0]}),
    ("epoch", -1),
    ("epoch", 2**62),
    ("missing", ["nonsense:unparsed"]),
]


@pytest.mark.slow
def test_a_value_off_its_scale_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    good, again, bad = log_of(tmp_path, 1), tmp_path / "again.eval", tmp_path / "bad.json"
    run = tmp_path / "in"
    assert brought(run, good).exit_code == 0
    before = grades(run)
    graded_again(good, again)
    for field, value in OFF_SCALE:
        whole = read_eval_log(str(again))
        assert whole.samples is not None
        sample = whole.samples[-1]
        if field == "epoch":
            sample.epoch = value  # type: ignore[assignment]
        else:
            for name, score in (sample.scores or {}).items():
                if name.startswith("opensafeintent_sets"):
                    score.metadata = (score.metadata or {}) | {field: value}
        for out in (run, tmp_path / "new"):
            with pytest.raises(InputError):
                brought(out, written(whole, bad), model="bad")
    assert not (tmp_path / "new").exists()
    assert osi("report", run).code == 0
    assert grades(run) == before


@pytest.mark.slow
@pytest.mark.parametrize("digits", [25, 5_000])
def test_a_number_of_many_digits_is_told_in_one_line(tmp_path: Path, digits: int) -> None:
    log = log_of(tmp_path, 1, log_format="json")
    text = log.read_text("utf-8")
    assert '"helpfulness": ' in text
    log.write_text(re.sub(r'"helpfulness": \d', f'"helpfulness": {"7" * digits}', text), "utf-8")
    ran = osi("import", log, "--out", tmp_path / "in")
    assert ran.code == 2, ran.err
    assert len(ran.err.splitlines()) <= 3 and not (tmp_path / "in").exists()


@pytest.mark.slow
@pytest.mark.parametrize("digits", [25, 5_000])
def test_a_number_of_many_digits_at_the_beginning_ends_no_process(
    tmp_path: Path, digits: int
) -> None:
    # Inspect AI reads the beginning with a parser in C, which does not survive the longer one.
    log = log_of(tmp_path, 1, log_format="json")
    text = log.read_text("utf-8")
    many = f'"status": "success", "many": {"7" * digits},'
    assert '"status": "success",' in text
    log.write_text(text.replace('"status": "success",', many, 1), "utf-8")
    ran = osi("import", log, "--out", tmp_path / "in")
    if digits < 4_300:
        assert ran.code == 0, ran.err
    else:
        assert ran.code == 2 and "a number of too many digits" in ran.err
        assert len(ran.err.splitlines()) <= 3
