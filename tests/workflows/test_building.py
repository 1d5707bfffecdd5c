"""`build` from the command line: what it writes, what it refuses, how it ends."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from construction.support import UNSAFE
from endtoend import Ran, osi
from loopback import Fault, LoopbackServer, Match
from loopback.faults import faulty
from opensafeintent import BuildSettings, build
from opensafeintent.annotation.labels import Label, write_labels
from opensafeintent.construction.records import REASONS

pytestmark = pytest.mark.usefixtures("undrawn")

OFFLINE = ("--generator", "baseline/generator", "--judge", "baseline/construction-judge")
SERVED = (
    "--generator",
    "openai-api/loop/generator",
    "--judge",
    "openai-api/loop/construction-judge",
)


@pytest.fixture
def seeds(tmp_path: Path) -> Path:
    path = tmp_path / "seeds.jsonl"
    path.write_text("".join(json.dumps({"prompt": prompt}) + "\n" for prompt in UNSAFE))
    return path


def funnel(out: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((out / "funnel.json").read_text())
    return found


def records(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def error(ran: Ran) -> str:
    """The one line that a command ended with."""
    assert ran.code == 2, ran.out
    *progress, line = ran.errors
    assert all(re.match(r"\w+: \d+ in, \d+ kept", before) for before in progress)
    return line


@pytest.mark.slow
def test_the_real_seeds_become_a_dataset_that_validate_and_evaluate_take(
    tmp_path: Path, published: Path
) -> None:
    out = tmp_path / "build"
    ran = osi("build", published / "pku-seeds.jsonl", *OFFLINE, "--out", out, "--per-cell", 1)
    assert ran.code == 0, ran.err
    stages = funnel(out)
    assert [line["stage"] for line in stages] == [
        *("seeds", "metadata", "backfill", "triplets", "intents", "quality", "augmentation")
    ]
    assert stages[0] == {"stage": "seeds", "in": 23, "kept": 23, "rejected": {}}
    for line in stages:
        assert line["in"] == line["kept"] + sum(line["rejected"].values())
        assert set(line["rejected"]) <= set(REASONS)
    dataset = out / "dataset.jsonl"
    assert osi("dataset", "validate", dataset).code == 0
    sets = records(dataset)
    assert len({(item["harm_domain"], item["task_type"]) for item in sets}) == 42
    assert all(len(item["dual_use_paraphrases"]) == 4 for item in sets)
    models = ("baseline/refuse-all", "--judge", "baseline/judge")
    assert osi("evaluate", *models, "--dataset", dataset, "--out", tmp_path / "run").code == 0


@pytest.mark.slow
def test_every_set_leads_back_to_its_seed_its_calls_and_its_versions(
    tmp_path: Path, seeds: Path
) -> None:
    out = tmp_path / "build"
    generator = (
        "--generator",
        faulty("generator", "wrong-intent=0.7"),
        "--judge",
        "baseline/construction-judge",
    )
    assert osi("build", seeds, *generator, "--out", out, "--per-cell", 1).code == 0
    sets, origins = records(out / "dataset.jsonl"), records(out / "provenance.jsonl")
    assert [item["id"] for item in sets] == [item["id"] for item in origins]
    from_seeds = [item["topic"]["seed"] for item in origins if item["topic"]["seed"]]
    assert {seed["prompt"] for seed in from_seeds} <= set(UNSAFE)
    assert {seed["source"] for seed in from_seeds} == {"seeds.jsonl"}
    repaired = [item for item in origins if item["revisions"]]
    assert repaired
    for item in repaired:
        last = item["revisions"][-1]
        assert item["prompts"][last["variant"]] == last["after"]
    import sqlite3

    with sqlite3.connect(out / "ledger.sqlite") as ledger:
        known = {key.hex() for (key,) in ledger.execute("SELECT key FROM calls")}
    assert all({call["key"] for call in item["calls"]} <= known for item in origins)
    assert all(len(item["calls"]) >= 10 for item in origins)


def test_costs_cover_every_call(tmp_path: Path, seeds: Path) -> None:
    out = tmp_path / "build"
    ran = osi("build", seeds, *OFFLINE, "--out", out)
    made = int(next(line for line in ran.out.splitlines() if "calls made" in line).split()[0])
    costs = json.loads((out / "cost.json").read_text())["runs"][0]["lines"]
    assert sum(line["calls"] for line in costs) == made
    assert {line["purpose"] for line in costs} == {
        *(
            "metadata",
            "triplet",
            "intent",
            "quality",
            "paraphrase",
            "paraphrase_check",
            "annotation",
        )
    }
    assert all(line["input_tokens"] and line["output_tokens"] for line in costs)


@pytest.mark.slow
def test_a_dry_run_predicts_what_is_called(tmp_path: Path, seeds: Path) -> None:
    out = tmp_path / "build"
    arguments = ("build", seeds, *OFFLINE, "--out", out)
    dry = osi(*arguments, "--dry-run")
    assert dry.code == 0, dry.err
    assert not out.exists()
    assert "39 calls to make" in dry.out  # 3 seeds: 2 + 1 + 3 + 1 + 6 calls each
    assert "39 calls made" in osi(*arguments).out
    assert "0 calls to make" in osi(*arguments, "--dry-run").out
    # two more of each of 42 cells, less what is there: 3 seeds in one cell or more
    settings = BuildSettings(
        generator=OFFLINE[1], judge=OFFLINE[3], out=out, seeds=str(seeds), per_cell=2, dry_run=True
    )
    forecast = build(settings).forecast
    assert forecast is not None
    topics = next(line.calls for line in forecast.lines if line.purpose == "triplet")
    assert 2 * 42 - 3 <= topics <= 2 * 42 - 2
    made = build(
        BuildSettings(generator=OFFLINE[1], judge=OFFLINE[3], out=out, seeds=str(seeds), per_cell=2)
    ).tally
    assert made is not None
    assert made.made.total() == sum(line.calls for line in forecast.lines)


def test_stages_can_be_run_in_parts(tmp_path: Path, seeds: Path) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    osi("build", seeds, *OFFLINE, "--out", whole)
    ran = osi("build", seeds, *OFFLINE, "--out", parts, "--stages", "1-4")
    assert ran.code == 0
    assert "No dataset yet" in ran.out
    assert not (parts / "dataset.jsonl").exists()
    assert (parts / "stages" / "4-intents.kept.jsonl").exists()
    rest = osi("build", seeds, *OFFLINE, "--out", parts, "--stages", "5-6")
    assert "21 calls made" in rest.out  # 1 + 6 for each of three
    assert (parts / "dataset.jsonl").read_bytes() == (whole / "dataset.jsonl").read_bytes()
    waits = osi("build", seeds, *OFFLINE, "--out", tmp_path / "early", "--stages", "3-4")
    assert (
        "3 items wait for stages before 3, which --stages leaves out; run --stages 1-2" in waits.out
    )
    assert "0 calls made" in waits.out


def test_one_model_for_both_is_allowed_and_said_to_mean_little(tmp_path: Path, seeds: Path) -> None:
    with LoopbackServer() as server:
        both = ("--generator", "openai-api/loop/generator", "--judge", "openai-api/loop/generator")
        ran = osi(
            "build", seeds, *both, "--out", tmp_path / "build", "--stages", "1-1", server=server
        )
    assert ran.code == 0
    assert (
        "generator and judge are the same model (openai-api/loop/generator): that they agree means"
        " little" in " ".join(ran.out.split())
    )


def test_structured_output_is_asked_for_and_left_out_where_it_is_not_taken(
    tmp_path: Path, seeds: Path
) -> None:
    unsupported = Fault(
        action="status",
        status=400,
        code="unsupported_parameter",
        param="response_format",
        match=Match(has="response_format"),
    )
    with LoopbackServer() as server:
        osi("build", seeds, *SERVED, "--out", tmp_path / "a", "--stages", "1-1", server=server)
        asked = [record.body["response_format"] for record in server.requests]
        server.reset()
        osi(
            "build",
            seeds,
            *SERVED,
            "--out",
            tmp_path / "b",
            "--stages",
            "1-1",
            "--no-structured-output",
            server=server,
        )
        assert not any("response_format" in record.body for record in server.requests)
    schema = asked[0]["json_schema"]["schema"]
    assert schema["required"] == ["unsafe", "summary", "harm_domain", "task_type"]
    assert len(schema["properties"]["harm_domain"]["enum"]) == 7
    with LoopbackServer(faults=(unsupported,)) as server:
        ran = osi(
            "build", seeds, *SERVED, "--out", tmp_path / "c", "--stages", "1-1", server=server
        )
    assert ran.code == 0, ran.err
    assert (
        "openai-api/loop/generator: does not take response_format; it was asked without"
        in " ".join(ran.out.split())
    )
    assert funnel(tmp_path / "c") == funnel(tmp_path / "a")


def test_people_drop_what_all_of_them_call_poor(tmp_path: Path, seeds: Path) -> None:
    out = tmp_path / "build"
    osi("build", seeds, *OFFLINE, "--out", out)
    sets = records(out / "dataset.jsonl")
    opinions = {
        sets[0]["id"]: ("poor", "poor"),
        sets[1]["id"]: ("poor", "good"),
        sets[2]["id"]: ("good", "good"),
    }

    def label(set_id: str, annotator: str, answer: str) -> Label:
        answers: dict[str, str | int] = {"overall_quality": answer}
        return Label(
            kind="dataset_quality", annotator=annotator, dataset="x", id=set_id, answers=answers
        )

    labels = [
        label(set_id, name, answer)
        for set_id, both in opinions.items()
        for name, answer in zip("ab", both, strict=True)
    ]
    write_labels(labels, tmp_path / "labels.jsonl")
    ran = osi(
        "build",
        seeds,
        *OFFLINE,
        "--out",
        out,
        "--stages",
        "1-7",
        "--labels",
        tmp_path / "labels.jsonl",
    )
    assert ran.code == 0, ran.err
    assert [item["id"] for item in records(out / "dataset.jsonl")] == [sets[1]["id"], sets[2]["id"]]
    assert funnel(out)[-1] == {
        "stage": "people",
        "in": 3,
        "kept": 2,
        "rejected": {"all_say_poor": 1},
    }
    write_labels([label("not-there", "a", "good")], tmp_path / "labels.jsonl")
    refused = osi(
        "build",
        seeds,
        *OFFLINE,
        "--out",
        out,
        "--stages",
        "1-7",
        "--labels",
        tmp_path / "labels.jsonl",
    )
    assert "not-there" in error(refused)


def test_a_budget_stops_the_build_and_a_larger_one_goes_on(tmp_path: Path, seeds: Path) -> None:
    out = tmp_path / "build"
    stopped = osi("build", seeds, *OFFLINE, "--out", out, "--budget-calls", 15)
    assert stopped.code == 3
    assert "the budget of 15 calls is used up" in stopped.err
    assert not (out / "dataset.jsonl").exists()
    rest = osi("build", seeds, *OFFLINE, "--out", out)
    assert "24 calls made" in rest.out
    found = json.loads((out / "check" / "check.json").read_text())["classifier"][1]["accuracy"]
    low, high = (f"{100 * end:.0f} %" for end in found["ci"])
    assert (
        f"Give-away: words alone tell benign from malicious in {100 * found['value']:.0f} %"
        in rest.out
    )
    assert f"(95 % interval {low} to {high}); chance is 50 %." in " ".join(rest.out.split())


def test_a_wrong_key_ends_it_at_once(tmp_path: Path, seeds: Path) -> None:
    with LoopbackServer(api_key="another") as server:
        ran = osi("build", seeds, *SERVED, "--out", tmp_path / "build", server=server)
        assert server.stats()["total"] <= 6
    assert ran.code == 3
    assert "LOOP_API_KEY" in ran.errors[-1]


def test_calls_that_fail_leave_items_out_and_the_next_run_tries_again(
    tmp_path: Path, seeds: Path
) -> None:
    out = tmp_path / "build"
    with LoopbackServer(
        faults=(Fault(action="status", status=422, match=Match(contains="rob a bank")),)
    ) as server:
        ran = osi("build", seeds, *SERVED, "--out", out, "--stages", "1-1", server=server)
    assert ran.code == 1
    assert "1 items were left out because calls failed" in " ".join(ran.out.split())
    with LoopbackServer() as server:
        assert (
            osi("build", seeds, *SERVED, "--out", out, "--stages", "1-1", server=server).code == 0
        )
    assert funnel(out)[1]["kept"] == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "nothing to build from: name a file of SEEDS, or give --per-cell N"),
        (("--per-cell", "0"), "--per-cell 0: expected int >= 1"),
        (
            ("--per-cell", "1", "--stages", "4-2"),
            "--stages 4-2: expected FIRST-LAST, each from 1 to 7",
        ),
        (("--per-cell", "1", "--stages", "1-8"), "--stages 1-8: expected FIRST-LAST"),
        (("--per-cell", "1", "--stages", "all"), "--stages all: expected FIRST-LAST, such as 1-4"),
        (("none.jsonl",), "none.jsonl: cannot read"),
        (("--per-cell", "1", "--templates", "nowhere"), "nowhere: no such folder of templates"),
        (("--per-cell", "1", "--taxonomy", "nowhere"), "nowhere: cannot read"),
        (
            ("--per-cell", "1", "--labels", "x"),
            "--labels: is for stage 7, and --stages ends with 6",
        ),
    ],
)
def test_what_cannot_be_used_is_said_in_one_line(
    tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    assert message in error(osi("build", *arguments, *OFFLINE, "--out", tmp_path / "build"))
    assert not (tmp_path / "build").exists()


def test_a_folder_holds_one_build(tmp_path: Path, seeds: Path) -> None:
    out = tmp_path / "build"
    osi("build", seeds, *OFFLINE, "--out", out)
    before = (out / "dataset.jsonl").read_bytes()
    other = ("--generator", faulty("generator", "fenced"), "--judge", "baseline/construction-judge")
    assert "holds another build: generator: it has baseline/generator" in error(
        osi("build", seeds, *other, "--out", out)
    )
    assert "judge sampling" in error(
        osi("build", seeds, *OFFLINE, "--out", out, "--judge-max-tokens", 9)
    )
    assert (out / "dataset.jsonl").read_bytes() == before
    run = tmp_path / "run"
    osi("evaluate", "baseline/refuse-all", "--judge", "baseline/judge", "--limit", 1, "--out", run)
    assert "holds a run of evaluate" in error(osi("build", seeds, *OFFLINE, "--out", run))


def as_an_earlier_version_left_it(out: Path) -> None:
    """Its templates lack what is asked for now, and its taxonomy's definitions are others: both are
    texts of the calls.
    """
    manifest = json.loads((out / "build.json").read_text())
    manifest["templates"]["intent.md"] = (
        "+++\nid = 'osi-intent'\nversion = 1\ncontract = 'Reply.'\n+++\n{{request}}"
    )
    manifest["taxonomy"]["harm_domains"][0]["definition"] = "As it was."
    del manifest["taxonomy"]["task_types"][-1]["takes_material"]
    (out / "build.json").write_text(json.dumps(manifest))


def test_a_folder_that_an_earlier_version_began_goes_on_and_says_what_is_done_again(
    tmp_path: Path, seeds: Path
) -> None:
    out = tmp_path / "build"
    osi("build", seeds, *OFFLINE, "--out", out, "--stages", "1-5")
    as_an_earlier_version_left_it(out)
    again = osi("build", seeds, *OFFLINE, "--out", out)
    assert again.code == 0, again.err
    assert (
        "changed since the last run: intent.md, the taxonomy's definitions; what they are for"
        in " ".join(again.out.split())
    )
    assert len(records(out / "dataset.jsonl")) == 3
    assert "changed since" not in osi("build", seeds, *OFFLINE, "--out", out).out
    manifest = json.loads((out / "build.json").read_text())
    manifest["taxonomy"]["harm_domains"][0]["name"] = "Another"
    (out / "build.json").write_text(json.dumps(manifest))
    assert "holds another build: taxonomy; choose a new --out" in error(
        osi("build", seeds, *OFFLINE, "--out", out)
    )


def test_a_dataset_that_an_earlier_version_finished_is_not_built_over(
    tmp_path: Path, seeds: Path
) -> None:
    out = tmp_path / "build"
    osi("build", seeds, *OFFLINE, "--out", out)
    whole = (out / "dataset.jsonl").read_bytes()
    as_an_earlier_version_left_it(out)
    refused = error(osi("build", seeds, *OFFLINE, "--out", out))
    assert (
        "holds a dataset that was built with other texts than these: intent.md, the taxonomy's"
        " definitions;" in refused
    )
    assert (out / "dataset.jsonl").read_bytes() == whole
    (out / "dataset.jsonl").unlink()
    assert osi("build", seeds, *OFFLINE, "--out", out).code == 0
    assert (out / "dataset.jsonl").read_bytes() == whole


def test_a_template_of_an_earlier_version_is_refused_in_one_line(
    tmp_path: Path, seeds: Path
) -> None:
    templates = tmp_path / "templates"
    templates.mkdir()
    (templates / "intent.md").write_text(
        "+++\nid = 'mine'\nversion = 1\ncontract = '\"benign_use_plausible\","
        ' "misuse_risk_meaningful", "reason"\'\n+++\n{{request}}\n'
    )
    ran = osi("build", seeds, *OFFLINE, "--out", tmp_path / "build", "--templates", templates)
    assert (
        'intent.md: the contract does not ask for "leans"; a reply without it cannot be used'
        in error(ran)
    )


def test_a_taxonomy_with_one_domain(tmp_path: Path) -> None:
    taxonomy = tmp_path / "one.toml"
    taxonomy.write_text(
        'name = "one"\n[[harm_domains]]\nname = "Mischief"\ndefinition = "All of it."\n'
        '[[task_types]]\nname = "Explanation"\ndefinition = "How it works."\n'
    )
    out = tmp_path / "build"
    assert osi("build", *OFFLINE, "--per-cell", 3, "--taxonomy", taxonomy, "--out", out).code == 0
    assert len(records(out / "dataset.jsonl")) == 3
    assert osi("dataset", "validate", out / "dataset.jsonl", "--taxonomy", taxonomy).code == 0


GENERATOR_FAULTS = {
    "refusal": ("triplets", "refused"),
    "malformed": ("triplets", "malformed"),
    "wrong-intent": ("intents", "wrong_intent"),
    "unparallel": ("quality", "task_not_parallel"),
    "near-duplicate": ("quality", "duplicate"),
    "too-few-paraphrases": ("augmentation", "too_few_paraphrases"),
    "long-paraphrase": ("augmentation", "too_few_paraphrases"),
    "no-material": ("triplets", "malformed"),
}


@pytest.mark.slow
@pytest.mark.parametrize(("fault", "found"), GENERATOR_FAULTS.items())
def test_each_fault_of_the_scripted_generator_is_found_where_it_belongs(
    tmp_path: Path, fault: str, found: tuple[str, str]
) -> None:
    out = tmp_path / "build"
    share = 0.9 if fault == "no-material" else 0.6  # one task type in six has material
    models = (
        "--generator",
        faulty("generator", f"{fault}={share}"),
        "--judge",
        "baseline/construction-judge",
    )
    assert osi("build", *models, "--per-cell", 2, "--out", out).code == 0
    stage, reason = found
    rejected = {line["stage"]: line["rejected"] for line in funnel(out)}
    assert rejected[stage][reason] > 2
    assert all(set(reasons) <= {reason, "too_similar"} for reasons in rejected.values())


JUDGE_FAULTS = {
    "disagreement": ("metadata", "labels_disagree"),
    "invented-label": ("metadata", "malformed"),
    "never-agrees": ("intents", "wrong_intent"),
    "incoherent": ("augmentation", "not_coherent"),
}


@pytest.mark.parametrize(("fault", "found"), JUDGE_FAULTS.items())
def test_each_fault_of_the_scripted_judge_is_found_where_it_belongs(
    tmp_path: Path, seeds: Path, fault: str, found: tuple[str, str]
) -> None:
    out = tmp_path / "build"
    models = ("--generator", "baseline/generator", "--judge", faulty("construction-judge", fault))
    assert osi("build", seeds, *models, "--out", out).code == 0
    assert {line["stage"]: line["rejected"] for line in funnel(out)}[found[0]] == {found[1]: 3}
    assert not (out / "dataset.jsonl").exists()


def test_texts_that_a_fault_made_clumsy_or_leaning_are_mended(tmp_path: Path, seeds: Path) -> None:
    out = tmp_path / "build"
    models = (
        faulty("generator", "clumsy=0.5,leaning=0.5,leaning-task=0.5"),
        faulty("construction-judge", "doubted-label=0.5"),
    )
    assert (
        osi(
            "build",
            seeds,
            "--generator",
            models[0],
            "--judge",
            models[1],
            "--out",
            out,
            "--per-cell",
            1,
        ).code
        == 0
    )
    assert {reason for line in funnel(out) for reason in line["rejected"]} <= {"type_wrong"}
    whys = {
        revision["why"]
        for item in records(out / "provenance.jsonl")
        for revision in item["revisions"]
    }
    assert whys == {"leaning", "wording"}
    texts = (out / "dataset.jsonl").read_text()
    assert "good neighbour" not in texts
    assert "the asking of which" not in texts


def test_a_repair_that_bends_a_text_is_caught(tmp_path: Path, seeds: Path) -> None:
    out = tmp_path / "build"
    models = (
        "--generator",
        faulty("generator", "leaning,bent-repair"),
        "--judge",
        faulty("construction-judge"),
    )
    assert osi("build", seeds, *models, "--out", out).code == 0
    assert funnel(out)[-2]["rejected"] == {"repair_bent": 3}


def test_fences_are_no_fault(tmp_path: Path, seeds: Path) -> None:
    models = (
        "--generator",
        faulty("generator", "fenced"),
        "--judge",
        faulty("construction-judge", "fenced"),
    )
    osi("build", seeds, *models, "--out", tmp_path / "a")
    osi("build", seeds, *OFFLINE, "--out", tmp_path / "b")
    same = [
        [item["prompts"] for item in records(tmp_path / name / "dataset.jsonl")] for name in "ab"
    ]
    assert same[0] == same[1]
