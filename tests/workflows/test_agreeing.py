"""`agreement`: labels against a dataset and a run, the files it writes, and what it prints and
refuses.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from endtoend import JUDGE, TARGET, some_sets
from endtoend import evaluate as finished_evaluation
from loopback import HARM as HARM_PURPOSE
from loopback import HELPFULNESS, Fault, LoopbackServer, Match
from opensafeintent import Agreement, AgreementSettings, ImportSettings, agreement, import_files
from opensafeintent.annotation.labels import Answer, Label, read_labels, write_labels
from opensafeintent.annotation.texts import text_hash
from opensafeintent.errors import InputError
from opensafeintent.evaluation.derive import RunTexts
from opensafeintent.evaluation.manifest import RunFolder
from opensafeintent.promptsets import load_dataset
from opensafeintent.taxonomy import load_taxonomy
from samples import dataset_file, exit_code, json_lines, made_dataset, prompt_set

DATASET = made_dataset(*(prompt_set(f"s{n}") for n in range(6)))
SECOND = "openai-api/loop/second"
VARIANTS = ("benign", "dual_use", "malicious")
HARM = (0, 1, 3)
"""What the judge says of the three variants of each set."""


def text_of(set_id: str, variant: str) -> str:
    return f"what is said to {variant} of {set_id}"


def make_run(folder: Path) -> Path:
    lines = [
        {
            "id": item.id,
            "variant": variant,
            "response": text_of(item.id, variant),
            "helpfulness": 3,
            "harm_severity": harm,
        }
        for item in DATASET.prompt_sets
        for variant, harm in zip(VARIANTS, HARM, strict=True)
    ]
    path = json_lines(folder / "m.jsonl", lines)
    import_files(
        ImportSettings(
            files=(path,), out=folder / "run", model="m", dataset=dataset_file(folder, DATASET)
        )
    )
    return folder / "run"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("run"))


def graded(
    annotator: str, set_id: str, variant: str, pair: tuple[int, int], **fields: Any
) -> Label:
    defaults: dict[str, Any] = {
        "model": "m",
        "response_sha256": text_hash(text_of(set_id, variant)),
        "dataset": DATASET.hash,
    }
    answers: dict[str, Answer] = {"helpfulness": pair[0], "harm_severity": pair[1]}
    return Label(
        kind="judge_validation",
        annotator=annotator,
        id=set_id,
        variant=variant,
        answers=answers,
        **(defaults | fields),
    )


def all_graded(annotator: str, pairs: Sequence[tuple[int, int]]) -> list[Label]:
    return [
        graded(annotator, item.id, variant, pair)
        for item in DATASET.prompt_sets
        for variant, pair in zip(VARIANTS, pairs, strict=True)
    ]


def judged(annotator: str, set_id: str, answer: str, *, dataset: str = DATASET.hash) -> Label:
    return Label(
        kind="dataset_quality",
        annotator=annotator,
        dataset=dataset,
        id=set_id,
        answers={"overall_quality": answer},
    )


def labels_file(folder: Path, labels: Sequence[Label], name: str = "labels.jsonl") -> Path:
    write_labels(labels, folder / name)
    return folder / name


def told(*paths: Path, **settings: Any) -> Agreement:
    return agreement(AgreementSettings(labels=paths, resamples=1000, **settings))


# The judges of a run
# ------------------------------------------------------------------------------


def test_a_judge_is_held_against_people(run: Path, tmp_path: Path) -> None:
    people = [
        *all_graded("a", [(3, 0), (3, 1), (3, 3)]),
        *all_graded("b", [(4, 0), (4, 0), (4, 3)]),
    ]
    found = told(labels_file(tmp_path, people), run=run).judges
    assert found is not None and [line.judge for line in found.judges] == ["imported"] * 2
    helpfulness, harm = found.judges
    # the judge's 3 against 3 and 4: error ½ below; a person is 1 from the other, and the judge 0 or
    # 1
    assert (helpfulness.mae.value, helpfulness.bias.value) == (0.5, -0.5)
    assert (helpfulness.leave_one_out.value, helpfulness.fair.value, helpfulness.excess.value) == (
        1.0,
        0.5,
        -0.5,
    )
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
    label = graded(
        "a",
        item.id,
        "benign",
        (3, 0),
        model=TARGET,
        dataset=sets.hash,
        response_sha256=text_hash(found.text),
    )
    study = told(labels_file(tmp_path, [label]), run=out).judges
    assert study is not None
    # the panel is the lower median of 4 and 2, and a tie on safe is unsafe
    bias = {(line.judge, line.dimension): line.bias.value for line in study.judges}
    assert bias == {
        **{(JUDGE, "helpfulness"): 1.0, (JUDGE, "harm_severity"): 0.0},
        **{(SECOND, "helpfulness"): -1.0, (SECOND, "harm_severity"): 1.0},
        **{("panel", "helpfulness"): -1.0, ("panel", "harm_severity"): 1.0},
    }


def test_labels_without_a_run_tell_of_people_alone(tmp_path: Path) -> None:
    found = told(
        labels_file(tmp_path, [*all_graded("a", [(3, 0)] * 3), *all_graded("b", [(4, 0)] * 3)])
    )
    assert found.judges is not None and found.judges.judges == ()
    assert found.judges.humans[0].leave_one_out.value == 1.0
    assert any("--run RUN" in note for note in found.notes)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"model": "other"}, "has no such response"),
        ({"id": "s9"}, "has no such response"),
        ({"epoch": 2}, "has no such response"),
        ({"variant": "dual_use_paraphrase_1"}, "has no such response"),
        ({"response_sha256": "0" * 64}, "was given for another text than the response in"),
        ({"response_sha256": ""}, "was given for another text than the response in"),
    ],
)
def test_labels_of_unknown_responses_are_refused_with_their_place(
    run: Path, tmp_path: Path, change: dict[str, Any], words: str
) -> None:
    good = graded("ana", "s1", "benign", (3, 0))
    path = labels_file(
        tmp_path, [good, msgspec.structs.replace(graded("ana", "s2", "benign", (3, 0)), **change)]
    )
    with pytest.raises(InputError) as refused:
        told(path, run=run)
    (line,) = str(refused.value).splitlines()
    assert line.startswith(f"{path}, label 2 (ana on set ") and words in line


def test_labels_of_another_dataset_than_the_run(run: Path, tmp_path: Path) -> None:
    path = labels_file(tmp_path, [graded("ana", "s1", "benign", (3, 0), dataset="e" * 64)])
    with pytest.raises(
        InputError,
        match=rf"label 1 \(ana on .*\): is for another dataset \(eeeeeeee\) than --run {run}",
    ):
        told(path, run=run)


def test_a_run_needs_labels_of_responses(run: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="none is of a response"):
        told(labels_file(tmp_path, [judged("a", "s1", "good")]), run=run)


def test_responses_without_grades(tmp_path: Path) -> None:
    line = {"id": "s1", "variant": "benign", "response": text_of("s1", "benign")}
    out = tmp_path / "run"
    files = (json_lines(tmp_path / "m.jsonl", [line]),)
    import_files(
        ImportSettings(
            files=files,
            out=out,
            model="m",
            dataset=dataset_file(tmp_path, DATASET),
            max_missing=1.0,
        )
    )
    found = told(labels_file(tmp_path, [graded("a", "s1", "benign", (3, 0))]), run=out)
    assert found.judges is not None and found.judges.judges == ()
    assert any(note.startswith("No judge has graded these responses") for note in found.notes)


# The dataset
# ------------------------------------------------------------------------------


def quality_labels() -> list[Label]:
    return [
        judged(
            name,
            item.id,
            "poor" if item.id in ("s2", "s4") or (item.id, name) == ("s1", "a") else "good",
        )
        for item in DATASET.prompt_sets
        for name in "ab"
    ]


def test_the_cleaned_dataset_is_the_rest(tmp_path: Path) -> None:
    out, name = tmp_path / "out", dataset_file(tmp_path, DATASET)
    found = told(labels_file(tmp_path, quality_labels()), dataset=name, out=out)
    assert found.quality is not None and [line.id for line in found.quality.drop] == ["s2", "s4"]
    cleaned = load_dataset(str(out / "cleaned.jsonl"))
    assert [item.id for item in cleaned.prompt_sets] == ["s0", "s1", "s3", "s5"]
    assert cleaned.prompt_sets[1] == DATASET.prompt_sets[1]
    assert found.written == (out / "agreement.json", out / "tables", out / "cleaned.jsonl")


def test_sets_without_labels_stay(tmp_path: Path) -> None:
    labels = [judged("a", "s0", "poor"), judged("b", "s0", "poor")]
    found = told(
        labels_file(tmp_path, labels), dataset=dataset_file(tmp_path, DATASET), out=tmp_path / "out"
    )
    assert len(load_dataset(str(tmp_path / "out" / "cleaned.jsonl"))) == 5
    assert "5 of 6 prompt-sets have no labels; they are not dropped." in found.notes


def test_an_earlier_cleaned_dataset_does_not_stay(tmp_path: Path) -> None:
    out, name = tmp_path / "out", dataset_file(tmp_path, DATASET)
    told(labels_file(tmp_path, quality_labels()), dataset=name, out=out)
    poor = [judged(who, item.id, "poor") for item in DATASET.prompt_sets for who in "ab"]
    found = told(labels_file(tmp_path, poor), dataset=name, out=out)
    assert not (out / "cleaned.jsonl").exists()
    assert "Every prompt-set is to be dropped: there is no cleaned dataset." in found.notes


def test_a_dataset_of_a_taxonomy_of_its_own(tmp_path: Path) -> None:
    parts = [
        f'[[{kind}]]\nname = "{name}"\ndefinition = "x"\n'
        for kind, name in (("harm_domains", "D"), ("task_types", "T"))
    ]
    (tmp_path / "own.toml").write_text('name = "own"\n' + "".join(parts))
    name = dataset_file(
        tmp_path, made_dataset(prompt_set("s0", 0, "D", "T"), prompt_set("s1", 0, "D", "T"))
    )
    own = load_dataset(name, load_taxonomy(tmp_path / "own.toml"))
    path = labels_file(
        tmp_path,
        [judged("a", "s0", "poor", dataset=own.hash), judged("b", "s0", "poor", dataset=own.hash)],
    )
    found = told(path, dataset=name, taxonomy=tmp_path / "own.toml", out=tmp_path / "out")
    assert found.quality is not None and [line.id for line in found.quality.drop] == ["s0"]
    assert (tmp_path / "out" / "cleaned.jsonl").read_text().count("\n") == 1


def test_labels_of_another_version_of_the_dataset(tmp_path: Path) -> None:
    path = labels_file(tmp_path, [judged("ana", "s1", "poor", dataset="e" * 64)])
    with pytest.raises(
        InputError,
        match=r"label 1 \(ana on set s1\): is for another dataset, or another version of it \(eeee",
    ):
        told(path, dataset=dataset_file(tmp_path, DATASET), out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


# What is written
# ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def written(run: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Path]]:
    """Results of both tasks, from a file each."""
    folder = tmp_path_factory.mktemp("written")
    people = [
        *all_graded("=ana", [(3, 0), (3, 1), (3, 3)]),
        *all_graded("ben", [(4, 0), (4, 0), (4, 3)]),
    ]
    again = [msgspec.structs.replace(label, repeat=True) for label in people[:2]]
    files = [
        labels_file(folder, quality_labels(), "quality.jsonl"),
        labels_file(folder, [*people, *again], "grades.jsonl"),
    ]
    told(*files, run=run, dataset=dataset_file(folder, DATASET), out=folder / "out")
    return folder / "out", files


def test_agreement_json_holds_every_number(written: tuple[Path, list[Path]]) -> None:
    raw = (written[0] / "agreement.json").read_bytes()
    assert b"NaN" not in raw
    found = json.loads(raw)
    assert (found["schema"], found["dataset"], found["resamples"]) == (1, DATASET.hash, 1000)
    quality = {line["question"]: line for line in found["quality"]["questions"]}
    # of twelve answers four and one are poor; s1 alone splits two annotators
    assert quality["overall_quality"]["yes_rate"]["value"] == pytest.approx(7 / 12, abs=1e-6)
    assert quality["overall_quality"]["percent_agreement"]["value"] == pytest.approx(
        5 / 6, abs=1e-6
    )
    assert quality["same_topic"]["yes_rate"] == {
        **{
            "value": None,
            "n": 0,
            "ci": None,
            "ci_method": None,
            "se": None,
            "undefined": "no answers",
        }
    }
    assert found["judges"]["judges"][0]["mae"]["value"] == 0.5
    assert found["consistency"][0]["share"] == 1.0
    assert "written" not in found


def test_tables_are_there_in_every_format(written: tuple[Path, list[Path]]) -> None:
    names = {path.stem for path in (written[0] / "tables").iterdir()}
    assert names == {
        *("table_3_quality", "to_drop", "table_7_judges", "safe_calls", "confusion_helpfulness"),
        *("confusion_harm_severity", "people", "annotators", "self_consistency"),
    }
    assert {path.suffix for path in (written[0] / "tables").iterdir()} == {".csv", ".md", ".tex"}
    text = (written[0] / "tables" / "table_7_judges.md").read_text()
    assert "Table 7" in text and "| imported | Helpfulness (1–4) | 0.50 [" in text


def rows_of(folder: Path, table: str) -> list[dict[str, str]]:
    with (folder / "tables" / f"{table}.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_csv_is_complete_and_no_cell_is_a_formula(written: tuple[Path, list[Path]]) -> None:
    judge = rows_of(written[0], "table_7_judges")[1]
    assert float(judge["mae"]) == pytest.approx(1 / 6)
    assert float(judge["mae_low"]) <= float(judge["mae"]) <= float(judge["mae_high"])
    assert judge["mae_n"] == "18"
    confusion = rows_of(written[0], "confusion_harm_severity")
    # the human grade is the upper of the two: as the judge has it
    assert [[row[f"human_{grade}"] for grade in range(4)] for row in confusion] == [
        *(["6", "0", "0", "0"], ["0", "6", "0", "0"], ["0", "0", "0", "0"], ["0", "0", "0", "6"])
    ]
    assert {row["annotator"] for row in rows_of(written[0], "annotators")} == {"'=ana", "ben"}


def test_same_labels_give_the_same_bytes_in_whatever_order(
    run: Path, written: tuple[Path, list[Path]], tmp_path: Path
) -> None:
    out, files = written
    labels = [label for path in files for label in read_labels(path)]
    by_person = [
        labels_file(
            tmp_path,
            [label for label in reversed(labels) if label.annotator == name],
            f"{number}.jsonl",
        )
        for number, name in enumerate(sorted({label.annotator for label in labels}))
    ]
    dataset = dataset_file(tmp_path, DATASET)
    told(*reversed(by_person), by_person[0], run=run, dataset=dataset, out=tmp_path / "out")
    first, second = (
        {
            path.relative_to(folder): path.read_bytes()
            for path in folder.rglob("*")
            if path.is_file()
        }
        for folder in (out, tmp_path / "out")
    )
    assert first == second


# The command
# ------------------------------------------------------------------------------


def test_the_command_prints_tables_and_notes(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    people = [
        *all_graded("ana\x1b[31m", [(3, 0), (3, 1), (3, 3)]),
        *all_graded("ben", [(4, 0), (4, 0), (4, 3)]),
    ]
    path = labels_file(tmp_path, [*people, *quality_labels()])
    assert (
        exit_code(
            monkeypatch, "agreement", path, "--run", run, "--out", tmp_path / "out", "--seed", 3
        )
        == 0
    )
    out = capsys.readouterr().out
    assert "Dataset quality: 6 prompt-sets (a 6, b 6)" in out
    assert (
        "To drop, 2: every annotator who answered marks the set poor: s2 (2 of 2), s4 (2 of 2)."
        in out
    )
    assert "Judge imported against people" in out
    assert re.search(r"^Judge MAE, same humans +0\.50 \[", out, re.MULTILINE)
    assert "note: The cleaned dataset needs the dataset that was labelled: --dataset NAME." in out
    assert "\x1b" not in out
    assert json.loads((tmp_path / "out" / "agreement.json").read_text())["seed"] == 3


def test_one_annotator_is_told_that_agreement_is_undefined(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = labels_file(tmp_path, [judged("ana", "s1", "good"), *all_graded("ana", [(3, 0)] * 3)])
    assert exit_code(monkeypatch, "agreement", path) == 0
    out = capsys.readouterr().out
    assert (
        "Only one annotator (ana) labelled dataset quality: agreement between people is undefined."
        in out
    )
    assert (
        "Only one annotator (ana) labelled responses: agreement between people is undefined." in out
    )
    assert "– is undefined: one annotator" in out
    assert "nan" not in out.lower()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["missing.jsonl"], "cannot read"),
        (["--seed", "-1"], "expected 0 or more"),
        (["--run", "nowhere"], "no run here"),
        (["--dataset", "nothing.jsonl"], "nothing.jsonl"),
    ],
)
def test_what_cannot_be_used_is_refused_in_one_line(
    arguments: list[str],
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = labels_file(tmp_path, all_graded("ana", [(3, 0)] * 3))
    assert exit_code(monkeypatch, "agreement", path, *arguments) == 2
    said = capsys.readouterr()
    assert said.out == "" and words in said.err and len(said.err.splitlines()) == 1
