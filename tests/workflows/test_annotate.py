"""Forms go out, people answer, labels come back, agreement is told: the commands from end to end."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from annotation.forms import WHO, Sheet, expected_labels, filled, found_labels
from endtoend import JUDGE, TARGET, evaluate as finished_evaluation, grades, osi, some_sets
from loopback import HARM as HARM_PURPOSE, HELPFULNESS, Fault, LoopbackServer, Match
from opensafeintent import (
    Agreement,
    AgreementSettings,
    AnnotateDatasetSettings,
    AnnotateRunSettings,
    ImportAnnotationsSettings,
    ImportSettings,
    agreement,
    annotate_dataset,
    annotate_run,
    import_annotations,
    import_files,
    trace,
)
from opensafeintent.annotation.labels import (
    AnnotationKey,
    Label,
    read_key,
    read_labels,
    text_hash,
    write_labels,
)
from opensafeintent.errors import InputError
from opensafeintent.evaluation.manifest import RunFolder
from opensafeintent.evaluation.run import RunTexts
from samples import dataset_file, json_lines, made_dataset, prompt_set

NAMES = ",".join(WHO)


def fill(study: Path, name: str) -> Path:
    """Fill in the sheet that an annotator was given, where it is, as the simulated annotator means
    it.
    """
    path = study / f"{name}.csv"
    return filled(read_key(study / "key.json"), Sheet(path.read_bytes()), name, path)


def round_trip(study: Path, tmp_path: Path) -> AnnotationKey:
    """Fill all forms in, import them through the command line, and compare every label with what
    was meant.
    """
    key, out = read_key(study / "key.json"), tmp_path / "labels.jsonl"
    files = [fill(study, name) for name in WHO]
    ran = osi("annotate", "import", *files, "--key", study / "key.json", "--out", out)
    assert ran.code == 0, ran.err
    labels = [one.label for one in read_labels(out)]
    for name in WHO:
        assert found_labels(labels, name) == expected_labels(key, name)
        assert f"{name}: {len(key.items)} items, " in ran.out
    assert {label.dataset for label in labels} == {key.dataset_hash}
    return key


# Datasets
# ------------------------------------------------------------------------------


def test_four_people_judge_the_shipped_dataset(tmp_path: Path) -> None:
    study = tmp_path / "study"
    given = ("--out", study, "--annotators", NAMES, "--limit", 10)
    ran = osi("annotate", "export", "quality", "starter", *given)
    assert ran.code == 0, ran.err
    assert {path.name for path in study.iterdir()} == {
        "key.json",
        *(f"{name}.{suffix}" for name in WHO for suffix in ("csv", "html")),
    }
    assert {path.stat().st_mode & 0o777 for path in study.iterdir()} == {0o600}
    assert len(round_trip(study, tmp_path).items) == 10


def dataset_settings(out: Path, *names: str) -> AnnotateDatasetSettings:
    return AnnotateDatasetSettings(dataset="starter", out=out, annotators=names, limit=6)


def test_a_study_grows_and_no_form_is_written_over(tmp_path: Path) -> None:
    first = annotate_dataset(dataset_settings(tmp_path, "ana", "ben"))
    content = fill(tmp_path, "ana").read_bytes()
    second = annotate_dataset(dataset_settings(tmp_path, "ana", "cleo"))
    assert second.kept == [tmp_path / "ana.html", tmp_path / "ana.csv"]
    assert (tmp_path / "ana.csv").read_bytes() == content
    assert second.written == [tmp_path / "cleo.html", tmp_path / "cleo.csv"]
    assert list(second.key.annotators) == ["ana", "ben", "cleo"]
    assert first.key.annotators.items() <= second.key.annotators.items()
    with pytest.raises(InputError, match="cannot be told apart"):
        annotate_dataset(dataset_settings(tmp_path, "Ana"))


def test_a_folder_holds_one_study(tmp_path: Path) -> None:
    annotate_dataset(dataset_settings(tmp_path, "ana"))
    before = (tmp_path / "key.json").read_bytes()
    given = ("--out", tmp_path, "--annotators", "ana", "--limit", 7)
    ran = osi("annotate", "export", "quality", "starter", *given)
    assert ran.code == 2 and "belongs to another study" in ran.err and "--out DIR" in ran.err
    assert (tmp_path / "key.json").read_bytes() == before


def test_bad_answers_and_no_answers_write_nothing(tmp_path: Path) -> None:
    key = annotate_dataset(dataset_settings(tmp_path, "ana")).key
    path, out = tmp_path / "ana.csv", tmp_path / "labels.jsonl"
    given = ("--key", tmp_path / "key.json", "--out", out)
    ran = osi("annotate", "import", path, *given)
    assert ran.code == 2 and ": nothing is answered; expected" in ran.err
    sheet = Sheet(path.read_bytes())
    first, second = (showing.code for showing in key.annotators["ana"][:2])
    sheet.set(first, "overall_quality", "great")
    sheet.set(second, "same_topic", "=TRUE()")
    sheet.save(path)
    ran = osi("annotate", "import", path, *given)
    assert ran.code == 2
    assert [line.split(": ")[1] for line in ran.errors] == [
        f"{path}, item {first}, overall_quality",
        f"{path}, item {second}, same_topic",
    ]
    assert not out.exists()


# Responses
# ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def baselines(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three baselines on the shipped sets, judged offline."""
    path = tmp_path_factory.mktemp("run") / "run"
    models = ("baseline/refuse-all", "baseline/comply-all", "baseline/redirect")
    given = ("--judge", "baseline/judge", "--dataset", "starter", "--out", path)
    ran = osi("evaluate", *models, *given)
    assert ran.code == 0, ran.err
    return path


def test_four_people_grade_120_responses(baselines: Path, tmp_path: Path) -> None:
    study = tmp_path / "study"
    given = ("--out", study, "--annotators", NAMES, "--sample", 120)
    ran = osi("annotate", "export", "judge", baselines, *given)
    assert ran.code == 0, ran.err
    assert "120 responses of starter" in ran.out
    key = round_trip(study, tmp_path)
    harm = {
        (row["model"], row["id"], row["variant"]): row["harm_severity"] for row in grades(baselines)
    }
    for item in key.items:
        safe = "safe" if harm[item.model, item.id, item.variant] == "0" else "unsafe"
        assert item.stratum == f"{item.model} | {item.variant} | {safe}"
    traced = key.items[60]
    texts = {
        (one.grades.model, one.grades.variant): one.text
        for one in trace(baselines, traced.id).responses
    }
    assert traced.response_sha256 == text_hash(texts[traced.model, traced.variant] or "")
    strata = Counter(item.stratum for item in key.items)
    # Every stratum gets the same, but those that are too small for it.
    weights = {item.stratum: item.weight for item in key.items}
    largest = max(strata.values())
    assert all(count >= largest - 1 or weights[name] == 1 for name, count in strata.items())
    responses = 3 * 3 * sum(1 for _ in (baselines / "prompt_sets.jsonl").open())
    assert sum(item.weight for item in key.items) == pytest.approx(responses)


def test_whole_sets_are_graded_whole(baselines: Path, tmp_path: Path) -> None:
    model, out = "baseline/comply-all", tmp_path / "study"
    settings = AnnotateRunSettings(
        run=baselines, out=out, annotators=("ana",), sample=7, unit="set", models=(model,)
    )
    key = annotate_run(settings).key
    variants = Counter(item.variant for item in key.items)
    assert variants == {"benign": 7, "dual_use": 7, "malicious": 7}
    assert key.unit == "set" and {item.model for item in key.items} == {model}
    files, labels = (fill(out, "ana"),), tmp_path / "labels.jsonl"
    found = import_annotations(
        ImportAnnotationsSettings(files=files, key=out / "key.json", out=labels)
    )
    assert {label.unit for label in found.labels} == {"set"}
    assert {label.stratum.split(" | ")[1] for label in found.labels} == {"set"}


def test_refusals_without_a_text_are_left_out_and_counted(tmp_path: Path) -> None:
    lines = [
        {
            "id": item.id,
            "variant": variant,
            "response": "" if (item.id, variant) == ("s0", "benign") else f"{item.id} {variant}",
        }
        for item in DATASET.prompt_sets
        for variant in VARIANTS
    ]
    run, out = tmp_path / "run", tmp_path / "study"
    responses = json_lines(tmp_path / "m.jsonl", lines)
    where = ("--dataset", dataset_file(tmp_path, DATASET), "--out", run)
    assert osi("import", responses, "--model", "m", *where, "--max-missing", 1).code == 0
    given = ("--out", out, "--annotators", "ana", "--sample", 50)
    empty = osi("annotate", "export", "judge", run, *given)
    assert empty.code == 2 and "no responses with texts and grades" in empty.err
    graded = osi("grade", run, "--judge", "baseline/judge", "--max-missing", 1)
    assert graded.code == 0, graded.err
    ran = osi("annotate", "export", "judge", run, *given)
    assert ran.code == 0, ran.err
    assert "not in the sample: 1 refused without a text (filtered, or empty)" in ran.out
    assert len(read_key(out / "key.json").items) == 17


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--sample", 2), "--sample 2: there are"),
        (
            ("--model", "baseline/refuse"),
            "not a model of this run; did you mean 'baseline/refuse-all'",
        ),
        (("--unit", "set", "--paraphrases"), "--paraphrases: goes with --unit response"),
        (("--annotators", "ana,ana"), "cannot be told apart"),
    ],
)
def test_bad_options_exit_with_2(
    baselines: Path, options: tuple[object, ...], said: str, tmp_path: Path
) -> None:
    given = () if "--annotators" in options else ("--annotators", "ana")
    out = tmp_path / "study"
    ran = osi("annotate", "export", "judge", baselines, "--out", out, *given, *options)
    assert ran.code == 2 and said in ran.err
    assert not list(out.glob("*"))


# Agreement
# ------------------------------------------------------------------------------

DATASET = made_dataset(*(prompt_set(f"s{n}") for n in range(6)))
SECOND = "openai-api/loop/second"
VARIANTS = ("benign", "dual_use", "malicious")
HARM = (0, 1, 3)
"""What the judge says of the three variants of each set."""


def text_of(set_id: str, variant: str) -> str:
    return f"what is said to {variant} of {set_id}"


def imported_run(folder: Path, **grades_of: Any) -> Path:
    """Make a run of given responses."""
    lines = [
        {"id": item.id, "variant": variant, "response": text_of(item.id, variant)}
        | ({"helpfulness": 3, "harm_severity": harm} if grades_of.get("graded", True) else {})
        for item in DATASET.prompt_sets
        for variant, harm in zip(VARIANTS, HARM, strict=True)
    ]
    files, dataset = (json_lines(folder / "m.jsonl", lines),), dataset_file(folder, DATASET)
    out = folder / "run"
    import_files(ImportSettings(files=files, out=out, model="m", dataset=dataset, max_missing=1.0))
    return out


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return imported_run(tmp_path_factory.mktemp("run"))


def graded(
    annotator: str, set_id: str, variant: str, pair: tuple[int, int], **fields: Any
) -> Label:
    defaults: dict[str, Any] = {
        "model": "m",
        "response_sha256": text_hash(text_of(set_id, variant)),
        "dataset": DATASET.hash,
    }
    return Label(
        kind="judge_validation",
        annotator=annotator,
        id=set_id,
        variant=variant,
        answers={"helpfulness": pair[0], "harm_severity": pair[1]},
        **(defaults | fields),
    )


def all_graded(annotator: str, pairs: Sequence[tuple[int, int]]) -> list[Label]:
    return [
        graded(annotator, item.id, variant, pair)
        for item in DATASET.prompt_sets
        for variant, pair in zip(VARIANTS, pairs, strict=True)
    ]


PEOPLE = [
    *all_graded("=ana\x1b[31m", [(3, 0), (3, 1), (3, 3)]),
    *all_graded("ben", [(4, 0), (4, 0), (4, 3)]),
]


def judged(annotator: str, set_id: str, answer: str, dataset: str = DATASET.hash) -> Label:
    return Label(
        kind="dataset_quality",
        annotator=annotator,
        dataset=dataset,
        id=set_id,
        answers={"overall_quality": answer},
    )


def quality_labels() -> list[Label]:
    poor = {("s1", "a"), ("s2", "a"), ("s2", "b"), ("s4", "a"), ("s4", "b")}
    return [
        judged(name, item.id, "poor" if (item.id, name) in poor else "good")
        for item in DATASET.prompt_sets
        for name in "ab"
    ]


def labels_file(folder: Path, labels: Sequence[Label], name: str = "labels.jsonl") -> Path:
    write_labels(labels, folder / name)
    return folder / name


def told(*paths: Path, **settings: Any) -> Agreement:
    return agreement(AgreementSettings(labels=paths, **settings))


def test_a_judge_is_held_against_people(run: Path, tmp_path: Path) -> None:
    found = told(labels_file(tmp_path, PEOPLE), run=run).judges
    assert found is not None and [line.judge for line in found.judges] == ["imported"] * 2
    helpfulness, harm = found.judges
    # the judge's 3 against 3 and 4: error ½ below; a person is 1 from the other
    assert (helpfulness.mae.value, helpfulness.bias.value) == (0.5, -0.5)
    assert helpfulness.leave_one_out.value == 1.0
    # harm differs on the dual-use prompt alone, 1 and 0: the judge's 1 is ½ above on one response
    # in three
    assert (harm.mae.value, harm.bias.value) == (pytest.approx(1 / 6), pytest.approx(1 / 6))
    # a tie is unsafe: the judge calls every response as people do
    assert (found.safe[0].sensitivity.value, found.safe[0].specificity.value) == (1.0, 1.0)


def test_several_judges_and_their_panel(tmp_path: Path) -> None:
    dataset, out = some_sets(tmp_path, 2), tmp_path / "run"
    says = [
        Fault(action="completion", content=content, match=Match(purpose=purpose, model=model))
        for model, purpose, content in (
            *(("judge", HELPFULNESS, "4"), ("judge", HARM_PURPOSE, "0")),
            *(("second", HELPFULNESS, "2"), ("second", HARM_PURPOSE, "1")),
        )
    ]
    with LoopbackServer(faults=says) as server:
        assert finished_evaluation(server, dataset, out, "--judge", SECOND).code == 0
    manifest, sets = RunFolder(out).load()
    item = sets.prompt_sets[0]
    with RunTexts(manifest, sets, out / "ledger.sqlite") as texts:
        found = texts.find(TARGET, item.id, "benign")
    assert found is not None
    fields = {"model": TARGET, "dataset": sets.hash, "response_sha256": text_hash(found.text)}
    label = graded("a", item.id, "benign", (3, 0), **fields)
    study = told(labels_file(tmp_path, [label]), run=out).judges
    assert study is not None
    # the panel is the lower median of 4 and 2, and a tie on safe is unsafe
    bias = {(line.judge, line.dimension): line.bias.value for line in study.judges}
    assert bias == {
        **{(JUDGE, "helpfulness"): 1.0, (JUDGE, "harm_severity"): 0.0},
        **{(SECOND, "helpfulness"): -1.0, (SECOND, "harm_severity"): 1.0},
        **{("panel", "helpfulness"): -1.0, ("panel", "harm_severity"): 1.0},
    }


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"model": "other"}, "has no such response"),
        ({"id": "s9"}, "has no such response"),
        ({"epoch": 2}, "has no such response"),
        ({"variant": "dual_use_paraphrase_1"}, "has no such response"),
        ({"response_sha256": "0" * 64}, "was given for another text than"),
        ({"response_sha256": ""}, "was given for another text than"),
        ({"dataset": "e" * 64}, "is for another dataset (eeeeeeee) than "),
    ],
)
def test_labels_of_something_else_are_refused_with_their_line(
    run: Path, tmp_path: Path, change: dict[str, Any], words: str
) -> None:
    good, other = (graded("ana", set_id, "benign", (3, 0)) for set_id in ("s1", "s2"))
    path = labels_file(tmp_path, [good, msgspec.structs.replace(other, **change)])
    with pytest.raises(InputError) as refused:
        told(path, run=run)
    (line,) = str(refused.value).splitlines()
    assert line.startswith(f"{path}, line 2 (ana on set ") and words in line


def test_a_run_that_the_labels_are_not_of_is_refused(run: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="none is of a response"):
        told(labels_file(tmp_path, [judged("a", "s1", "good")]), run=run)
    with pytest.raises(InputError, match=r"line 1 \(.*\): is for another dataset than --run"):
        told(labels_file(tmp_path, [graded("a", "s1", "benign", (3, 0), dataset="e")]), run=run)
    with pytest.raises(InputError, match="--run: expected the run whose responses"):
        told(labels_file(tmp_path, PEOPLE))
    ungraded = imported_run(tmp_path, graded=False)
    with pytest.raises(InputError, match="no judge has graded these responses"):
        told(labels_file(tmp_path, PEOPLE), run=ungraded)


@pytest.fixture(scope="module")
def written(run: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Path]]:
    """Results of both tasks, from a file each."""
    folder = tmp_path_factory.mktemp("written")
    files = [
        labels_file(folder, quality_labels(), "quality.jsonl"),
        labels_file(folder, PEOPLE, "grades.jsonl"),
    ]
    told(*files, run=run, out=folder / "out")
    return folder / "out", files


def test_agreement_json_holds_every_number(written: tuple[Path, list[Path]]) -> None:
    raw = (written[0] / "agreement.json").read_bytes()
    assert b"NaN" not in raw
    found = json.loads(raw)
    assert (found["schema"], found["dataset"]) == (1, DATASET.hash)
    quality = {line["question"]: line for line in found["quality"]["questions"]}
    # of twelve answers four and one are poor; s1 alone splits two annotators
    overall = quality["overall_quality"]
    assert overall["yes_rate"]["value"] == round(7 / 12, 6)
    assert overall["percent_agreement"]["value"] == round(5 / 6, 6)
    nothing = {"value": None, "n": 0, "ci": None, "ci_method": None, "se": None}
    assert quality["same_topic"]["yes_rate"] == nothing | {"undefined": "no answers"}
    assert found["judges"]["judges"][0]["mae"]["value"] == 0.5


def test_the_command_prints_the_tables(run: Path, tmp_path: Path) -> None:
    path, out = labels_file(tmp_path, [*PEOPLE, *quality_labels()]), tmp_path / "out"
    ran = osi("agreement", path, "--run", run, "--out", out, "--seed", 3)
    assert ran.code == 0, ran.err
    for words in ("Table 3", "Table 7", "Sensitivity", "0.50 [", "Gwet's AC1", f"Results: {out}"):
        assert words in ran.out
    assert "\x1b" not in ran.out
    assert json.loads((out / "agreement.json").read_text())["seed"] == 3


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["missing.jsonl"], "cannot read"),
        (["--seed", "-1"], "--seed -1: expected int >= 0"),
        (["--run", "nowhere"], "no run here"),
    ],
)
def test_what_cannot_be_used_is_refused_in_one_line(
    arguments: list[str], words: str, tmp_path: Path
) -> None:
    ran = osi("agreement", labels_file(tmp_path, PEOPLE), *arguments)
    assert ran.code == 2 and ran.out == ""
    (line,) = ran.errors
    assert words in line
