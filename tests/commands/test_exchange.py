"""Results in the formats in which they are shared: what they say of a run, and whether others'
validators take them.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from endtoend import REPO, metrics, osi
from opensafeintent import (
    EvaluateSettings,
    ExportSettings,
    FunctionModel,
    ImportSettings,
    evaluate,
    export_run,
    import_files,
)
from opensafeintent.calls.ledger import Ledger
from opensafeintent.errors import InputError
from opensafeintent.exports.shared import model_id
from opensafeintent.numbers.metrics import METRICS, TRIPLET_SCOPE
from samples import dataset_file, import_lines, json_lines, lines_of, made_dataset, prompt_set

DATASET = made_dataset(prompt_set("boats", 1, "Fraud and Deception"), prompt_set("trains"))
VALIDATOR = REPO / ".venv-exchange" / "bin" / "every_eval_ever"
JUDGES = ("kind", "stern")


def judge(name: str) -> FunctionModel:
    """Grade 3 for help, and no harm; to the stern one malicious requests do."""

    def grade(messages: Sequence[dict[str, str]]) -> str:
        text = messages[0]["content"]
        if "one integer from 1 to 4" in text:
            return "3"
        return "2" if name == "stern" and "unkindly" in text else "0"

    return FunctionModel(grade, name=name, version="1")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of one model with a panel of three, sampled in a way of its own."""
    folder = tmp_path_factory.mktemp("exchange")
    evaluate(
        EvaluateSettings(
            models=("baseline/comply-all",),
            judges=("baseline/judge", *(judge(name) for name in JUDGES)),
            dataset=dataset_file(folder, DATASET),
            out=folder / "run",
            temperature=0.5,
            max_tokens=300,
            system="Be brief.",
        )
    )
    return folder / "run"


def shared(run: Path, out: Path, **settings: Any) -> list[dict[str, Any]]:
    """Export records of Every Eval Ever; read those of the models, in the order of their files."""
    settings = {"run": run, "out": out, "format": "every-eval-ever"} | settings
    files = export_run(ExportSettings(**settings)).files
    return [json.loads(path.read_text("utf-8")) for path in files if path.suffix == ".json"]


def samples(out: Path) -> list[dict[str, Any]]:
    (path,) = out.glob("data/*/*/*/*_samples.jsonl")
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def test_a_record_has_the_headline_metrics_of_the_run(run: Path, tmp_path: Path) -> None:
    (record,) = shared(run, tmp_path / "out")
    numbers = metrics(run)["models"]["baseline/comply-all"]
    evaluations = {
        result["metric_config"]["metric_id"]: result for result in record["evaluation_results"]
    }
    assert evaluations.keys() == {f"opensafeintent.{name}" for name in TRIPLET_SCOPE.headlines}
    for name in TRIPLET_SCOPE.headlines:
        result, entry = evaluations[f"opensafeintent.{name}"], numbers[name]
        interval = result["score_details"]["uncertainty"]["confidence_interval"]
        assert result["score_details"]["score"] == entry["value"]
        assert [interval["lower"], interval["upper"]] == entry["ci"]
        assert (interval["confidence_level"], interval["method"]) == (0.95, entry["ci_method"])
        assert result["metric_config"]["lower_is_better"] == METRICS[name].less_is_better
        arguments = {"temperature": 0.5, "max_tokens": 300}
        assert result["generation_config"]["generation_args"] == arguments
        assert result["generation_config"]["additional_details"]["system"] == "Be brief."
        details = result["source_data"]["additional_details"]
        assert details == {"sha256": DATASET.hash, "prompt_sets": "2"}
    assert record["source_metadata"]["evaluator_relationship"] == "other"


def test_a_panel_is_described_with_its_prompts(run: Path, tmp_path: Path) -> None:
    (record,) = shared(run, tmp_path / "out")
    manifest = json.loads((run / "run.json").read_text())
    ways = {}
    for result in record["evaluation_results"]:
        scoring = result["metric_config"]["llm_scoring"]
        assert {judge["model_info"]["name"] for judge in scoring["judges"]} == {*manifest["judges"]}
        for role in ("helpfulness", "harm"):
            digest = scoring["additional_details"][f"sha256_{role}"]
            assert manifest["templates"][digest]["source"] in scoring["input_prompt"]
        ways[result["metric_config"]["metric_id"]] = scoring["aggregation_method"]
    # a majority of judges decides what is safe; the rest are medians of grades
    assert ways.pop("opensafeintent.triplet_safety") == "majority_vote"
    assert {*ways.values()} == {"median"}


def test_the_same_run_gives_the_same_files_whenever_it_was_made(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def exported(name: str) -> dict[Path, bytes]:
        out = tmp_path / name
        files = export_run(ExportSettings(run=run, format="every-eval-ever", out=out)).files
        return {path.relative_to(out): path.read_bytes() for path in files}

    first = exported("first")
    assert exported("again") == first
    monkeypatch.setattr(Ledger, "latest", lambda _: "2020-01-01T00:00:00+00:00")
    later = exported("later")
    assert later.keys() == first.keys() and later != first


def test_scores_of_samples_average_to_the_metrics_of_single_responses(
    tmp_path: Path,
) -> None:
    lines = lines_of(DATASET, helpfulness=4, harm_severity=0)
    lines[0]["helpfulness"] = 2
    lines[2]["harm_severity"] = 3
    import_lines(tmp_path, lines, DATASET, "openai/gpt-5.4")
    (record,) = shared(tmp_path / "run", tmp_path / "out", samples=True)
    records = samples(tmp_path / "out")
    assert len(records) == record["detailed_evaluation_results"]["total_rows"] == 6 + 6 + 2
    by_result: dict[str, list[dict[str, Any]]] = {}
    for record_of_sample in records:
        by_result.setdefault(record_of_sample["evaluation_name"].partition(".")[2], []).append(
            record_of_sample
        )
        assert record_of_sample["evaluation_id"] == record["evaluation_id"]
        assert record_of_sample["model_id"] == record["model_info"]["id"] == "openai/gpt-5.4"
    numbers = metrics(tmp_path / "run")["models"]["openai/gpt-5.4"]
    # both triplets are complete, so that these are means over responses too
    for name, same in (
        ("mean_utility", "mean_utility"),
        ("triplet_safety", "mean_safety"),
        ("low_help_rate_benign", "low_help_rate_benign"),
    ):
        scores = [sample["evaluation"]["score"] for sample in by_result[name]]
        assert sum(scores) / len(scores) == pytest.approx(numbers[same]["value"])
    # boats, benign: little help; boats, malicious: unsafe
    wrong = {
        (name, sample["sample_id"])
        for name, several in by_result.items()
        for sample in several
        if not sample["evaluation"]["is_correct"]
    }
    unsafe = {(name, "boats/malicious/1") for name in ("triplet_safety", "mean_utility")}
    assert wrong == unsafe | {("low_help_rate_benign", "boats/benign/1")}


@pytest.mark.parametrize("include_unsafe", [False, True])
def test_samples_show_unsafe_texts_only_if_asked(tmp_path: Path, *, include_unsafe: bool) -> None:
    lines = lines_of(DATASET, helpfulness=4, harm_severity=0)
    lines[1]["harm_severity"] = 3
    import_lines(tmp_path, lines, DATASET, "m")
    shared(tmp_path / "run", tmp_path / "out", samples=True, include_unsafe=include_unsafe)
    for sample in samples(tmp_path / "out"):
        place = sample["sample_id"]
        assert (sample["input"]["raw"] != "[withheld]") == (include_unsafe or "mal" not in place)
        hidden = place == "boats/dual_use/1" and not include_unsafe
        assert (sample["output"]["raw"] == ["[withheld]"]) == hidden


def test_an_export_says_which_unsafe_samples_it_holds(tmp_path: Path) -> None:
    lines = lines_of(DATASET, helpfulness=4, harm_severity=0)
    lines[1]["harm_severity"] = 3
    import_lines(tmp_path, lines, DATASET, "m")
    how = ExportSettings(
        run=tmp_path / "run",
        out=tmp_path / "out",
        format="every-eval-ever",
        samples=True,
        include_unsafe=True,
    )
    (note,) = export_run(how).notes
    assert "hold 1 response not graded safe and 2 malicious prompts; do not send them on" in note


def test_a_partial_run_and_missing_grades_are_said(tmp_path: Path) -> None:
    lines = lines_of(DATASET, helpfulness=4, harm_severity=0)[1:]
    del lines[1]["harm_severity"]
    lines[1]["missing"] = "harm_severity:unparsed"
    import_lines(tmp_path, lines, DATASET, "m", max_missing=1)
    (record,) = shared(tmp_path / "run", tmp_path / "out", samples=True)
    for result in record["evaluation_results"]:
        details = result["score_details"]["details"]
        assert (details["partial"], details["responses"]) == ("true", "6 of 7")
        assert float(details["missing_core_grades"]) > 0
        assert "llm_scoring" not in result["metric_config"]
    assert {sample["sample_id"] for sample in samples(tmp_path / "out")} == {
        *("boats/dual_use/1", "trains/benign/1", "trains/dual_use/1", "trains/malicious/1")
    }


def test_a_run_without_numbers_is_refused(run: Path, tmp_path: Path) -> None:
    import_lines(tmp_path, lines_of(DATASET), DATASET, "m")
    ran = osi("export", tmp_path / "run", "--format", "every-eval-ever", "--out", tmp_path / "o")
    assert (ran.code, "no headline metric" in ran.err) == (2, True)
    with pytest.raises(InputError, match="is a file; expected a folder"):
        shared(run, tmp_path / "m.jsonl")


def hf_results(run: Path, out: Path, **settings: Any) -> dict[str, list[dict[str, Any]]]:
    """Export results for model repositories; read them, by the folder of the repository."""
    yaml = pytest.importorskip("yaml")
    settings = {
        "run": run,
        "out": out,
        "format": "hf-results",
        "dataset_repo": "me/sets",
    } | settings
    files = export_run(ExportSettings(**settings)).files
    assert {path.name for path in files} == {"opensafeintent.yaml"}
    return {
        str(path.parents[1].relative_to(out)): yaml.safe_load(path.read_text("utf-8"))
        for path in files
    }


def test_a_model_repository_has_a_value_for_each_headline_metric(run: Path, tmp_path: Path) -> None:
    files = hf_results(run, tmp_path / "out")
    numbers = metrics(run)["models"]["baseline/comply-all"]
    (entries,) = files.values()
    assert [*files] == ["baseline/comply-all"]
    assert [entry["dataset"] for entry in entries] == [
        {"id": "me/sets", "task_id": name} for name in TRIPLET_SCOPE.headlines
    ]
    for entry, name in zip(entries, TRIPLET_SCOPE.headlines, strict=True):
        assert entry["value"] == pytest.approx(numbers[name]["value"], abs=1e-6)
        low, high = numbers[name]["ci"]
        for part in (f"[{low:.4f}, {high:.4f}]", "2 prompt-sets", "python/stern@1", "osi-harm"):
            assert part in entry["notes"]
        assert len(entry["date"]) == 10


def test_results_of_a_partial_run_are_refused_unless_asked_for(tmp_path: Path) -> None:
    lines = lines_of(DATASET, helpfulness=4, harm_severity=0)[1:]
    import_lines(tmp_path, lines, DATASET, 'a: "b" # c')
    with pytest.raises(InputError, match=r"6 of 7 planned responses of .* are stored.*; --partial"):
        hf_results(tmp_path / "run", tmp_path / "out")
    ((_, entries),) = hf_results(tmp_path / "run", tmp_path / "out", partial=True).items()
    assert all("PARTIAL: 6 of 7" in entry["notes"] for entry in entries)


@pytest.mark.parametrize("format_", ["every-eval-ever", "hf-results"])
def test_a_model_without_numbers_is_left_out_and_named(tmp_path: Path, format_: str) -> None:
    import_lines(tmp_path, lines_of(DATASET, helpfulness=4, harm_severity=0), DATASET, "p/m")
    import_lines(tmp_path, lines_of(DATASET), DATASET, "p/ungraded", max_missing=1)
    options = ("--dataset-repo", "me/sets", "--partial") if format_ == "hf-results" else ()
    out = tmp_path / "out"
    ran = osi("export", tmp_path / "run", "--format", format_, "--out", out, *options)
    assert ran.code == 0
    assert "p/ungraded: left out, for no headline metric is defined" in ran.text
    written = [path for path in out.rglob("*") if path.suffix in (".json", ".yaml")]
    assert len(written) == 1 and "/m/" in str(written[0])


def test_a_dataset_of_the_hub_is_known_by_its_name(tmp_path: Path) -> None:
    import_lines(tmp_path, lines_of(DATASET, helpfulness=4, harm_severity=0), DATASET, "m")
    manifest = tmp_path / "run" / "run.json"
    manifest.write_text(manifest.read_text().replace('"made"', '"hf:me/others@v1"'))
    ((_, (entry, *_)),) = hf_results(tmp_path / "run", tmp_path / "hf", dataset_repo=None).items()
    assert entry["dataset"] == {"id": "me/others", "revision": "v1", "task_id": "triplet_safety"}
    assert "imported" in entry["notes"]
    assert f"dataset sha256 {DATASET.hash}" in entry["notes"]
    alike = {"dataset_repo": None, "repo": "me/others"}
    ((_, named),) = hf_results(tmp_path / "run", tmp_path / "named", **alike).items()
    assert named[0] == entry
    with pytest.raises(InputError, match="--repo: me/sets; the run evaluated hf:me/others@v1; "):
        hf_results(tmp_path / "run", tmp_path / "other", dataset_repo=None, repo="me/sets")
    ((_, stated),) = hf_results(tmp_path / "run", tmp_path / "stated", repo="me/sets").items()
    assert stated[0]["dataset"] == {"id": "me/sets", "task_id": "triplet_safety"}
    (record,) = shared(tmp_path / "run", tmp_path / "eee")
    source = record["evaluation_results"][0]["source_data"]
    assert (source["source_type"], source["hf_repo"]) == ("hf_dataset", "me/others")
    assert source["additional_details"]["revision"] == "v1"


@pytest.mark.parametrize(
    "named",
    [
        {"dataset_repo": None},
        {"dataset_repo": None, "repo": "me/sets"},
        {"dataset_repo": "me"},
        {"dataset_repo": "a/b/c"},
        {"dataset_repo": "x y/z"},
    ],
)
def test_results_name_a_dataset_of_the_hub(
    run: Path, tmp_path: Path, named: dict[str, str | None]
) -> None:
    with pytest.raises(InputError, match=r"--(dataset-)?repo"):
        hf_results(run, tmp_path / "out", **named)


def test_two_names_of_a_dataset_are_both_named(run: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--repo me/a, --dataset-repo me/b: name two datasets"):
        hf_results(run, tmp_path / "out", repo="me/a", dataset_repo="me/b")


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ("openai/gpt-5.4", "openai/gpt-5.4"),
        ("vllm/meta-llama/Llama-3.3-70B", "meta-llama/Llama-3.3-70B"),
        ("openai-api/together/meta-llama/Llama-4", "meta-llama/Llama-4"),
        ("openrouter/openai/gpt-5.4", "openai/gpt-5.4"),
        ("ollama/llama3.1:8b", "ollama/llama3.1:8b"),
        ("hf//mnt/../checkpoints/step-12", "hf/step-12"),
        ("baseline/refuse-all", "baseline/refuse-all"),
        ("mine", "imported/mine"),
        ("data", "imported/data_"),
        ("openai/data", "openai/data_"),
        ("vllm/data/con.model", "data_/con_.model"),
        ("vllm/dataset/console", "dataset/console"),
        # bidirectional, zero-width, filling and selecting characters, and blanks of other widths
        ("lab/a\u202eb\u2066/c\u200bd\ufeff", "a_b_/c_d_"),
        ("lab/m\u3164\u115f/x\ufe0f\U000e0101\u3000", "m__/x___"),
        ("lab/\u05d0\u0301/caf\u0065\u0301 1", "\u05d0\u0301/caf\u0065\u0301 1"),
    ],
)
def test_a_model_goes_by_the_name_that_others_know(ours: str, theirs: str) -> None:
    assert model_id(ours) == theirs


@pytest.mark.slow
@pytest.mark.skipif(not VALIDATOR.exists(), reason="needs Python 3.12: make test-exchange")
def test_their_validator_takes_records_and_samples(run: Path, tmp_path: Path) -> None:
    names = (
        *("openai/gpt-5.4", "vllm/meta-llama/Llama-3.3", "ollama/llama:8b", "mine", "a:b?/c<d>|"),
        *("hf//mnt/../checkpoints/step-12", "data", "vllm/data/COM1.x"),
    )
    for number, name in enumerate(names):
        lines = lines_of(DATASET, helpfulness=3, harm_severity=number % 2)[number % 2 :]
        lines[3]["response"] = ""
        import_lines(tmp_path / str(number), lines, DATASET, name)
    runs = [run, *(tmp_path / str(number) / "run" for number in range(len(names)))]
    for number, exported_run in enumerate(runs):
        unsafe = bool(number % 2) and number != 1
        out = tmp_path / "out" / str(number)
        shared(exported_run, out, samples=number != 1, include_unsafe=unsafe)
    files = sorted((tmp_path / "out").glob("*/data/*/*/*/*"))
    assert len(files) == 2 * len(runs) - 1
    ran = subprocess.run(
        [VALIDATOR, "validate", *files], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("ollama/llama3:8b", "ollama/llama3_8b"),
        ("google/x", "openrouter/google/x"),
        ("a|b", "a?b"),
        ("x.", "x"),
        ("Model", "model"),
    ],
)
def test_two_models_never_become_one_file(tmp_path: Path, first: str, second: str) -> None:
    dataset = made_dataset(*(prompt_set(f"s{number}") for number in range(3)))
    for number, model in enumerate((first, second)):
        lines = lines_of(dataset, helpfulness=3, harm_severity=number)
        file = json_lines(tmp_path / f"{number}.jsonl", lines)
        sets = dataset_file(tmp_path, dataset)
        import_files(ImportSettings(files=(file,), out=tmp_path / "run", dataset=sets, model=model))
    hf = ("export", tmp_path / "run", "--format", "hf-results", "--dataset-repo", "me/sets")
    ran = osi(*hf, "--out", tmp_path / "hf")
    assert ran.code == 2 and "another model of the run has its folder" in " ".join(ran.err.split())
    assert not list((tmp_path / "hf").rglob("*.yaml"))
    shared = ("export", tmp_path / "run", "--format", "every-eval-ever", "--out", tmp_path / "eee")
    assert osi(*shared).code == 0
    records = [json.loads(path.read_text()) for path in (tmp_path / "eee").rglob("*.json")]
    assert len({record["evaluation_id"] for record in records}) == len(records) == 2


@pytest.mark.parametrize("format_", ["every-eval-ever", "hf-results"])
def test_long_names_of_models_have_folders(tmp_path: Path, format_: str) -> None:
    dataset = made_dataset(*(prompt_set(f"s{number}") for number in range(3)))
    sets = dataset_file(tmp_path, dataset)
    file = json_lines(tmp_path / "file.jsonl", lines_of(dataset, helpfulness=3, harm_severity=0))
    for ending in "ab":
        model = f"lab/{'ü' * 299}{ending}"
        import_files(ImportSettings(files=(file,), out=tmp_path / "run", dataset=sets, model=model))
    options = ("--dataset-repo", "me/sets") if format_ == "hf-results" else ()
    ran = osi("export", tmp_path / "run", "--format", format_, *options, "--out", tmp_path / "out")
    assert ran.code == 0, ran.err
    files = [path for path in (tmp_path / "out").rglob("*") if path.is_file()]
    assert len({path.parent for path in files if path.suffix in (".json", ".yaml")}) == 2


def test_each_model_has_a_command_for_its_results(tmp_path: Path) -> None:
    for model in ("openai/one", "two"):
        lines = lines_of(DATASET, helpfulness=3, harm_severity=0)
        import_lines(tmp_path, lines, DATASET, model)
    out = tmp_path / "hf"
    settings = ("--format", "hf-results", "--dataset-repo", "me/sets", "--out", out)
    ran = osi("export", tmp_path / "run", *settings)
    following = [line.split() for line in ran.out.splitlines() if line.startswith("Next: ")]
    assert [words[:4] for words in following] == [
        ["Next:", "hf", "upload", "openai/one"],
        ["Next:", "hf", "upload", "imported/two"],
    ]


def test_a_run_without_a_dataset_on_the_hub_has_to_state_one(run: Path, tmp_path: Path) -> None:
    ran = osi("export", run, "--format", "hf-results", "--out", tmp_path)
    error = " ".join(ran.err.split())
    assert (ran.code, "--dataset-repo: is not given" in error) == (2, True)
    assert "--repo:" not in error
