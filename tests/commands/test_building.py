"""`build` from the command line: what it writes, what it refuses, how it ends."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from construction.support import UNSAFE
from construction.test_resume import with_taxonomy
from endtoend import Ran, osi
from loopback import Fault, LoopbackServer, Match
from loopback.faults import MALFORMED, faulty
from opensafeintent import BuildSettings, EvaluateSettings
from opensafeintent.commands.settings.by_command import state_sampling
from opensafeintent.construction.instructions import load_instructions
from opensafeintent.construction.items import REASONS, STAGES
from opensafeintent.errors import InputError
from opensafeintent.people.labels import Label, write_labels
from samples import json_lines

OFFLINE = ("--generator", "baseline/generator", "--judge", "baseline/construction-judge")
LOOP = "openai-api/loop"
SERVED = ("--generator", f"{LOOP}/generator", "--judge", f"{LOOP}/construction-judge")


def with_faults(generator: str = "", judge: str = "") -> tuple[str, ...]:
    """The options of scripted models with these faults."""
    named = faulty("generator", generator), faulty("construction-judge", judge)
    return ("--generator", named[0], "--judge", named[1])


@pytest.fixture
def seeds(tmp_path: Path) -> Path:
    return json_lines(tmp_path / "seeds.jsonl", [{"prompt": prompt} for prompt in UNSAFE])


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "build"


def funnel(out: Path) -> list[dict[str, Any]]:
    stages: list[dict[str, Any]] = json.loads((out / "funnel.json").read_text())
    return stages


def rejected(out: Path) -> dict[str, dict[str, int]]:
    """How many items each stage dropped, by reason."""
    return {line["stage"]: line["rejected"] for line in funnel(out)}


def records(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def built(*arguments: object, **variables: Any) -> Ran:
    """Build offline."""
    ran = osi("build", *arguments, *OFFLINE, **variables)
    assert ran.code in (0, 1), ran.err
    return ran


def error(ran: Ran) -> str:
    """The one line that a command ended with."""
    assert ran.code == 2, ran.out
    *progress, line = ran.errors
    assert all(re.match(r"\w+: \d+ in, \d+ kept", before) for before in progress)
    return line


@pytest.mark.slow
def test_the_real_seeds_become_a_dataset_that_validate_and_evaluate_take(
    out: Path, tmp_path: Path, published: Path
) -> None:
    ran = osi("build", published / "pku-seeds.jsonl", *OFFLINE, "--out", out, "--per-cell", 1)
    assert ran.code == 0, ran.err
    stages = funnel(out)
    assert stages[0] == {"stage": "seeds", "in": 23, "kept": 23, "rejected": {}}
    assert [line["stage"] for line in stages[1:]] == list(STAGES[:6])
    for line in stages:
        assert line["in"] == line["kept"] + sum(line["rejected"].values())
        assert set(line["rejected"]) <= set(REASONS)
    dataset = out / "dataset.jsonl"
    assert osi("dataset", "check", dataset).code == 0
    sets = records(dataset)
    assert len({(item["harm_domain"], item["task_type"]) for item in sets}) == 42
    assert all(len(item["dual_use_paraphrases"]) == 4 for item in sets)
    models = ("baseline/refuse-all", "--judge", "baseline/judge")
    assert osi("evaluate", *models, "--dataset", dataset, "--out", tmp_path / "run").code == 0


def test_stages_can_be_run_in_parts(out: Path, tmp_path: Path, seeds: Path) -> None:
    whole = tmp_path / "whole"
    assert "39 calls to make" in built(seeds, "--out", whole, "--dry-run").text
    assert not whole.exists()
    # 3 seeds: 2 + 1 + 3 + 1 + 6 calls each
    assert "39 calls made" in built(seeds, "--out", whole).text
    assert "No dataset yet" in built(seeds, "--out", out, "--stages", "1-4").text
    assert not (out / "dataset.jsonl").exists()
    assert (out / "stages" / "4-intents.kept.jsonl").exists()
    resumed = built(seeds, "--out", out, "--stages", "5-6")
    assert "21 calls made" in resumed.text  # 1 + 6 for each of three
    assert (out / "dataset.jsonl").read_bytes() == (whole / "dataset.jsonl").read_bytes()
    waits = built(seeds, "--out", tmp_path / "early", "--stages", "3-4").text
    assert "which --stages leaves out: 3 items" in waits and "--stages 1-2" in waits
    assert "0 calls made" in waits
    assert "which --stages leaves out" in (tmp_path / "early" / "build.md").read_text()


def test_structured_output_is_asked_for_and_left_out_if_it_is_not_taken(
    tmp_path: Path, seeds: Path
) -> None:
    code = {"code": "unsupported_parameter", "param": "response_format"}
    asked = Match(has="response_format")
    unsupported = Fault(action="status", status=400, match=asked, **code)
    stage_one = ("build", seeds, *SERVED, "--stages", "1-1")
    with LoopbackServer() as server:
        osi(*stage_one, "--out", tmp_path / "a", server=server)
        schema = server.requests[0].body["response_format"]["json_schema"]["schema"]
        server.reset()
        osi(*stage_one, "--out", tmp_path / "b", "--no-structured-output", server=server)
        assert not any("response_format" in record.body for record in server.requests)
    assert schema["required"] == ["unsafe", "summary", "harm_domain", "task_type"]
    assert len(schema["properties"]["harm_domain"]["enum"]) == 7
    with LoopbackServer(faults=(unsupported,)) as server:
        ran = osi(*stage_one, "--out", tmp_path / "c", server=server)
    assert "openai-api/loop/generator: does not take response_format" in ran.text
    assert funnel(tmp_path / "c") == funnel(tmp_path / "a")


OF_DATASET: dict[str, Any] = {"kind": "dataset_quality", "dataset": "x"}


def test_people_drop_what_all_of_them_call_poor(out: Path, tmp_path: Path, seeds: Path) -> None:
    osi("build", seeds, *OFFLINE, "--out", out)
    first_id, second_id, third = (item["id"] for item in records(out / "dataset.jsonl"))

    def stage_seven(*opinions: tuple[str, str, str]) -> Ran:
        labels = [
            Label(id=name, annotator=who, answers={"overall_quality": answer}, **OF_DATASET)
            for name, who, answer in opinions
        ]
        write_labels(labels, tmp_path / "labels.jsonl")
        people = ("--stages", "1-7", "--labels", tmp_path / "labels.jsonl")
        return osi("build", seeds, *OFFLINE, "--out", out, *people)

    ran = stage_seven(
        *((first_id, "ann", "poor"), (first_id, "bob", "poor"), (first_id, "cy", "unsure")),
        *((second_id, "ann", "poor"), (second_id, "bob", "good")),
    )
    assert ran.code == 0, ran.err
    assert [item["id"] for item in records(out / "dataset.jsonl")] == [second_id, third]
    assert rejected(out)["people"] == {"all_say_poor": 1}
    card = (out / "README.md").read_text()
    assert "2 annotators judged 2 prompt-sets; 1 dropped" in card
    assert "not-there" in error(stage_seven(("not-there", "ann", "good")))


def test_a_budget_stops_the_build_and_a_larger_one_goes_on(out: Path, seeds: Path) -> None:
    stopped = osi("build", seeds, *OFFLINE, "--out", out, "--budget-calls", 15)
    assert stopped.code == 3
    assert "the budget of 15 calls is used up" in stopped.err
    assert not (out / "dataset.jsonl").exists()
    assert "24 calls made" in built(seeds, "--out", out).text


def test_calls_that_fail_leave_items_out_and_the_next_run_tries_again(
    out: Path, seeds: Path
) -> None:
    fails = Fault(action="status", status=422, match=Match(contains="rob a bank"))
    arguments = ("build", seeds, *SERVED, "--out", out, "--stages", "1-1")
    with LoopbackServer(faults=(fails,)) as server:
        ran = osi(*arguments, server=server)
    assert ran.code == 1
    assert "1 item left out because calls failed" in ran.text
    with LoopbackServer() as server:
        assert osi(*arguments, server=server).code == 0
    assert funnel(out)[1]["kept"] == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("", "SEEDS, or give --per-cell N"),
        ("--per-cell 1 --stages 4-2", "--stages 4-2: expected FIRST-LAST, each from 1 to 7"),
        ("none.jsonl", "none.jsonl: cannot read"),
        ("--per-cell 1 --templates nowhere", "nowhere: no such folder of templates"),
        ("--per-cell 1 --taxonomy nowhere", "nowhere: cannot read"),
        ("--per-cell 1 --labels x", "--labels: is for stage 7, and --stages ends with 6"),
    ],
)
def test_what_cannot_be_used_is_said_in_one_line(out: Path, arguments: str, message: str) -> None:
    assert message in error(osi("build", *arguments.split(), *OFFLINE, "--out", out))
    assert not out.exists()


def test_a_folder_holds_one_build(out: Path, tmp_path: Path, seeds: Path) -> None:
    osi("build", seeds, *OFFLINE, "--out", out)
    before = (out / "dataset.jsonl").read_bytes()
    refused_run = osi("build", seeds, *with_faults("fenced"), "--out", out)
    assert "generator: it has baseline/generator" in error(refused_run)
    sampled = osi("build", seeds, *OFFLINE, "--out", out, "--judge-arg", "max_tokens=9")
    assert "judge sampling" in error(sampled)
    assert (out / "dataset.jsonl").read_bytes() == before
    run = tmp_path / "run"
    osi("evaluate", "baseline/refuse-all", "--judge", "baseline/judge", "--limit", 1, "--out", run)
    assert "holds a run (run.json)" in error(osi("build", seeds, *OFFLINE, "--out", run))


def test_generator_and_judge_are_sampled_as_in_an_evaluation(out: Path) -> None:
    models: dict[str, Any] = {"generator": "vllm/g", "judge": "vllm/j", "per_cell": 1}
    stated = {"max_tokens": 9, "reasoning_effort": "low", "vllm/j:top_p": 0.5}
    settings = BuildSettings(**models, out=out, judge_args=stated, extra={"top_p": 0.9})
    evaluation = EvaluateSettings(judges=(settings.judge,), judge_args=stated, extra={"top_p": 0.9})
    judge_sampling = settings.choose_judge_sampling(settings.judge)
    assert judge_sampling == evaluation.choose_judge_sampling(settings.judge)
    assert judge_sampling.max_tokens == 9
    assert judge_sampling.extra == {"top_p": 0.5}
    assert state_sampling(settings) == state_sampling(evaluation)
    with pytest.raises(InputError, match="--judge-arg other:top_p: no judge 'other'"):
        BuildSettings(**models, out=out, judge_args={"other:top_p": 0.5})
    with pytest.raises(InputError, match="--judge-arg max_tokens: expected int"):
        BuildSettings(**models, out=out, judge_args={"max_tokens": "many"})


def test_the_command_after_the_dropped_items_continues_a_build_with_all_its_options(
    out: Path, tmp_path: Path, seeds: Path
) -> None:
    """Its dry run, and the command itself, find nothing left to do."""
    taxonomy = with_taxonomy(tmp_path) / "taxonomy.toml"
    templates = tmp_path / "templates"
    templates.mkdir()
    shipped = load_instructions().sources()["intent.md"]
    (templates / "intent.md").write_text(shipped.replace("+++\nYou ", "+++\nNow you ", 1))
    options = ("--taxonomy", taxonomy, "--templates", templates, "--no-structured-output")
    options += ("--limit", 2, "--stages", "1-5", "--per-cell", 1, "--max-tokens", 999)
    options += ("-M", "seed=3", "--judge-arg", "top_p=0.5", "--judge-arg", "max_tokens=99")
    options += ("--ledger", tmp_path / "shared.sqlite")
    assert osi("build", seeds, *OFFLINE, *options, "--out", out).code == 0
    taxonomy.unlink()
    named = ("--ledger", tmp_path / "shared.sqlite")
    next_line = osi("trace", out, "--rejected", *named).out.splitlines()[-1]
    words = shlex.split(next_line.removeprefix("Next: opensafeintent "))
    assert osi(*words).code == 0 and words.pop() == "--dry-run"
    again = osi(*words)
    assert again.code == 0 and "0 calls made" in again.text, again.err


def test_a_dry_run_refuses_what_the_run_refuses(out: Path, tmp_path: Path, seeds: Path) -> None:
    taxonomy = with_taxonomy(tmp_path) / "taxonomy.toml"
    built(seeds, "--out", out, "--taxonomy", taxonomy, "--stages", "1-1")
    other = osi("build", seeds, *OFFLINE, "--out", out)
    assert "holds another build: taxonomy" in error(other)
    assert osi("build", seeds, *OFFLINE, "--out", out, "--dry-run").refusal == other.refusal
    unread = ("--taxonomy", taxonomy, "--stages", "1-7", "--labels", tmp_path / "none.jsonl")
    for further in ((), ("--dry-run",)):  # before any call
        assert (
            "none.jsonl" in osi("build", seeds, *OFFLINE, "--out", out, *unread, *further).refusal
        )


def change_manifest(out: Path, **labels: str) -> None:
    """Change a template and a definition, as if another version had begun the build; `labels` are
    changed in the taxonomy as well.
    """
    manifest = json.loads((out / "build.json").read_text())
    head = "id = 'osi-intent'\nversion = 1\ncontract = 'Reply.'"
    manifest["templates"]["intent.md"] = f"+++\n{head}\n+++\n{{{{request}}}}"
    manifest["taxonomy"]["harm_domains"][0] |= {"definition": "As it was."} | labels
    (out / "build.json").write_text(json.dumps(manifest))


@pytest.mark.slow
def test_texts_that_changed_are_named_and_what_they_are_for_is_done_again(
    out: Path, seeds: Path
) -> None:
    arguments = ("build", seeds, *OFFLINE, "--out", out)
    osi(*arguments, "--stages", "1-5")
    change_manifest(out)
    assert "since the last run: intent.md, the taxonomy's definitions;" in osi(*arguments).text
    whole = (out / "dataset.jsonl").read_bytes()
    assert len(records(out / "dataset.jsonl")) == 3
    assert "changed since" not in osi(*arguments).text
    change_manifest(out)  # a finished dataset is not built over
    assert "intent.md, the taxonomy's definitions;" in error(osi(*arguments))
    assert (out / "dataset.jsonl").read_bytes() == whole
    (out / "dataset.jsonl").unlink()
    assert osi(*arguments).code == 0
    assert (out / "dataset.jsonl").read_bytes() == whole
    change_manifest(out, name="Another")
    assert "holds another build: taxonomy" in error(osi(*arguments))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "stage", "reason"),
    [
        ("refusal", "triplets", "refused"),
        ("malformed", "triplets", "malformed"),
        ("wrong-intent", "intents", "wrong_intent"),
        ("unparallel", "quality", "task_not_parallel"),
        ("near-duplicate", "quality", "duplicate"),
        ("too-few-paraphrases", "augmentation", "too_few_paraphrases"),
        ("long-paraphrase", "augmentation", "too_few_paraphrases"),
        ("no-material", "triplets", "malformed"),
    ],
)
def test_each_fault_of_the_scripted_generator_is_found_where_it_belongs(
    out: Path, fault: str, stage: str, reason: str
) -> None:
    share = 0.9 if fault == "no-material" else 0.6  # one task type in six has material
    models = with_faults(f"{fault}={share}")
    per_cell = 2 if reason == "duplicate" else 1
    assert osi("build", *models, "--per-cell", per_cell, "--out", out).code == 0
    assert rejected(out)[stage][reason] > 2
    assert all(set(reasons) <= {reason, "too_similar"} for reasons in rejected(out).values())


@pytest.mark.parametrize(
    ("generator", "judge", "stage", "reason"),
    [
        ("", "disagreement", "metadata", "labels_disagree"),
        ("", "invented-label", "metadata", "malformed"),
        ("", "never-agrees", "intents", "wrong_intent"),
        ("", "incoherent", "augmentation", "not_coherent"),
        ("leaning,bent-repair", "", "quality", "repair_bent"),
    ],
)
def test_each_fault_of_a_scripted_model_is_found_where_it_belongs(
    out: Path, seeds: Path, generator: str, judge: str, stage: str, reason: str
) -> None:
    assert osi("build", seeds, *with_faults(generator, judge), "--out", out).code == 1
    assert rejected(out)[stage] == {reason: 3}
    assert not (out / "dataset.jsonl").exists()


def test_rejected_items_are_read_with_their_stage_reason_and_texts(out: Path, seeds: Path) -> None:
    assert osi("build", seeds, *with_faults(judge="never-agrees"), "--out", out).code == 1
    (dropped, *_), *_ = rejected = [records(path) for path in (out / "stages").glob("4-*.rej*")]
    assert len(rejected) == 1
    prompts, detail = dropped["item"]["prompts"], dropped["detail"]
    hidden = osi("trace", out, "--rejected")
    assert hidden.code == 0 and hidden.out.count("intents: wrong_intent") == 3
    text = " ".join(hidden.out.replace("│", "").split())
    assert detail in text and prompts["benign"] in text
    assert prompts["malicious"] not in text and "--rejected --include-unsafe" in text
    shown = osi("trace", out, "--rejected", "--include-unsafe")
    assert prompts["malicious"] in " ".join(shown.out.replace("│", "").split())
    assert "hidden" not in shown.out


def test_the_last_reply_behind_a_malformed_item_is_shown_on_demand(
    out: Path, tmp_path: Path
) -> None:
    seeds = json_lines(tmp_path / "seeds.jsonl", [{"prompt": UNSAFE[0]}])
    assert osi("build", seeds, *with_faults("malformed"), "--out", out).code == 1
    hidden = osi("trace", out, "--rejected").out
    assert "last reply:\n  (hidden: it may be unsafe) show it with: " in hidden
    assert MALFORMED not in hidden
    shown = osi("trace", out, "--rejected", "--include-unsafe").out
    assert f"last reply:\n  │ {MALFORMED}\n" in shown
    (out / "ledger.sqlite").unlink()
    without = osi("trace", out, "--rejected", "--include-unsafe")
    assert without.code == 0 and "last reply:\n" not in without.out


def test_a_rejected_seed_is_hidden_and_a_folder_without_a_build_refused(
    out: Path, tmp_path: Path
) -> None:
    seeds = json_lines(tmp_path / "seeds.jsonl", [{"prompt": UNSAFE[0]}] * 2)
    built(seeds, "--out", out)
    ran = osi("trace", out, "--rejected")
    assert "seeds: repeated" in ran.out and UNSAFE[0] not in ran.out
    assert UNSAFE[0] in osi("trace", out, "--rejected", "--include-unsafe").out
    assert "no build here" in osi("trace", tmp_path, "--rejected").refusal
    (tmp_path / "run.json").touch()
    assert "no build here" in osi("trace", tmp_path, "--rejected").refusal
    assert "no other choice" in osi("trace", out, "--rejected", "--worst", 1).err
    (out / "stages" / "0-seeds.rejected.jsonl").write_text('{"reason": "repeated", "item": 3}\n')
    assert "0-seeds.rejected.jsonl: is damaged" in osi("trace", out, "--rejected").refusal


@pytest.mark.slow
def test_texts_that_a_fault_made_clumsy_or_leaning_are_repaired(out: Path, seeds: Path) -> None:
    models = with_faults("clumsy=0.5,leaning=0.5,leaning-task=0.5", "doubted-label=0.5")
    assert osi("build", seeds, *models, "--out", out, "--per-cell", 1).code == 0
    assert {reason for reasons in rejected(out).values() for reason in reasons} <= {"type_wrong"}
    provenance = records(out / "provenance.jsonl")
    whys = {revision["why"] for item in provenance for revision in item["revisions"]}
    assert whys == {"leaning", "wording"}
    texts = (out / "dataset.jsonl").read_text()
    assert "good neighbour" not in texts
    assert "the asking of which" not in texts
