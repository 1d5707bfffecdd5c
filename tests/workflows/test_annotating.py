"""Forms go out, people answer, labels come back: the commands from end to end."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import pytest

from annotation.forms import WHO, Sheet, as_answers, expected_labels, found_labels, meant_by
from endtoend import Ran, grades, osi
from opensafeintent import (
    AnnotateDatasetSettings,
    AnnotateRunSettings,
    ImportAnnotationsSettings,
    annotate_dataset,
    annotate_run,
    import_annotations,
    trace,
)
from opensafeintent.annotation.labels import AnnotationKey, read_key, read_labels
from opensafeintent.annotation.texts import text_hash
from opensafeintent.errors import InputError
from samples import dataset_file, json_lines, made_dataset, prompt_set

NAMES = ",".join(WHO)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three baselines on the shipped sets, judged offline."""
    path = tmp_path_factory.mktemp("run") / "run"
    models = ("baseline/refuse-all", "baseline/comply-all", "baseline/redirect")
    ran = osi(
        "evaluate", *models, "--judge", "baseline/judge", "--dataset", "starter", "--out", path
    )
    assert ran.code == 0, ran.err
    return path


def fill(study: Path, name: str, back: Path) -> Path:
    """Fill in what an annotator was given, as the simulated annotator means it."""
    key = read_key(study / "key.json")
    sheet = Sheet((study / f"{name}.xlsx").read_bytes(), key.kind)
    sheet.fill(key.annotators[name], lambda showing: meant_by(name, key, showing.item))
    back.mkdir(exist_ok=True)
    return sheet.save(back / f"{name}.xlsx")


def round_trip(study: Path, tmp_path: Path) -> tuple[AnnotationKey, Ran]:
    """Fill all forms in, import them through the command line, and compare every label with what
    was meant.
    """
    key = read_key(study / "key.json")
    files = [fill(study, name, tmp_path / "back") for name in WHO]
    ran = osi(
        "annotate",
        "import",
        *files,
        "--key",
        study / "key.json",
        "--out",
        tmp_path / "labels.jsonl",
    )
    assert ran.code == 0, ran.err
    labels = read_labels(tmp_path / "labels.jsonl")
    for name in WHO:
        assert found_labels(labels, name) == expected_labels(key, name)
    return key, ran


@pytest.mark.slow
def test_four_people_judge_the_published_dataset(tmp_path: Path, published: Path) -> None:
    dataset = published / "opensafeintent-115.json"
    ran = osi(
        "annotate", "export", "quality", dataset, "--out", tmp_path / "study", "--annotators", NAMES
    )
    assert ran.code == 0, ran.err
    assert "115 prompt-sets of opensafeintent-115" in ran.out
    key, came_back = round_trip(tmp_path / "study", tmp_path)
    assert len(key.items) == 115
    assert {len(showings) for showings in key.annotators.values()} == {
        115 + 9 + 3
    }  # round(0.08 · 115) come twice
    labels = read_labels(tmp_path / "labels.jsonl")
    assert {label.dataset for label in labels} == {key.dataset_hash}
    assert {(label.weight, label.stratum, label.unit) for label in labels} == {
        (1.0, "", "response")
    }
    # What the prompts were taken for is counted over first showings.
    first = [meant_by(name, key, place) for name in WHO for place in range(115)]
    said = Counter(str(meant.get("malicious")) for meant in first)
    (line,) = re.findall(r"malicious +([\d, ]+)$", came_back.out, re.MULTILINE)
    assert list(map(int, line.split())) == [
        said[name] for name in ("benign", "dual_use", "malicious", "unsure")
    ]


def test_four_people_judge_the_shipped_dataset(tmp_path: Path) -> None:
    ran = osi(
        "annotate",
        "export",
        "quality",
        "starter",
        "--out",
        tmp_path / "study",
        "--annotators",
        NAMES,
        "--limit",
        10,
    )
    assert ran.code == 0, ran.err
    key, _ = round_trip(tmp_path / "study", tmp_path)
    assert len(key.items) == 10
    assert all(item.weight >= 1 and " | " in item.stratum for item in key.items)


@pytest.mark.slow
def test_four_people_grade_120_responses(run: Path, tmp_path: Path) -> None:
    ran = osi(
        "annotate",
        "export",
        "judge",
        run,
        "--out",
        tmp_path / "study",
        "--annotators",
        NAMES,
        "--sample",
        120,
    )
    assert ran.code == 0, ran.err
    assert "120 responses of starter" in ran.out
    key, came_back = round_trip(tmp_path / "study", tmp_path)
    assert len(key.items) == 120
    # These annotators say the same at a second showing, and skip the same.
    twice = [pair for pair in re.findall(r"(\d+) of (\d+)", came_back.out) if pair[1] != "0"]
    assert len(twice) == 4 and all(alike == asked for alike, asked in twice)
    harm = {(row["model"], row["id"], row["variant"]): row["harm_severity"] for row in grades(run)}
    for item in key.items:
        safe = "safe" if harm[item.model, item.id, item.variant] == "0" else "unsafe"
        assert item.stratum == f"{item.model} | {item.variant} | {safe}"
    traced = key.items[60]
    texts = {
        (one.grades.model, one.grades.variant): one.text for one in trace(run, traced.id).responses
    }
    assert traced.response_sha256 == text_hash(texts[traced.model, traced.variant] or "")
    strata = Counter(item.stratum for item in key.items)
    # Every stratum gets the same, but those that are too small for it.
    largest = max(strata.values())
    assert all(count >= largest - 1 or weight == 1 for count, weight in _with_weights(strata, key))
    responses = 3 * 3 * sum(1 for _ in (run / "prompt_sets.jsonl").open())
    assert sum(item.weight for item in key.items) == pytest.approx(responses)


def _with_weights(strata: Counter[str], key: AnnotationKey) -> list[tuple[int, float]]:
    weights = {item.stratum: item.weight for item in key.items}
    return [(count, weights[stratum]) for stratum, count in strata.items()]


def test_whole_sets_are_graded_whole(run: Path, tmp_path: Path) -> None:
    model = "baseline/comply-all"
    settings = AnnotateRunSettings(
        run=run,
        out=tmp_path / "study",
        annotators=("ana",),
        sample=7,
        unit="set",
        models=(model,),
        repeat=0,
    )
    key = annotate_run(settings).key
    assert Counter(item.variant for item in key.items) == {
        "benign": 7,
        "dual_use": 7,
        "malicious": 7,
    }
    assert key.unit == "set" and {item.model for item in key.items} == {model}
    path = fill(tmp_path / "study", "ana", tmp_path / "back")
    found = import_annotations(
        ImportAnnotationsSettings(
            files=(path,), key=tmp_path / "study" / "key.json", out=tmp_path / "labels.jsonl"
        )
    )
    assert {label.unit for label in found.labels} == {"set"}
    assert {label.stratum.split(" | ")[1] for label in found.labels} == {"set"}


def test_a_study_grows_by_annotators_and_forms(tmp_path: Path) -> None:
    def settings(*names: str, form: str = "sheet") -> AnnotateDatasetSettings:
        out = tmp_path / "study"
        return AnnotateDatasetSettings(
            dataset="starter", out=out, annotators=names, limit=6, form=form
        )  # type: ignore[arg-type]

    first = annotate_dataset(settings("ana", "ben"))
    mine = fill(tmp_path / "study", "ana", tmp_path / "study")  # filled in where it was written
    content = mine.read_bytes()
    second = annotate_dataset(settings("ana", "cleo"))
    assert second.kept == [mine] and mine.read_bytes() == content
    assert second.written == [tmp_path / "study" / "cleo.xlsx"]
    assert list(second.key.annotators) == ["ana", "ben", "cleo"]
    assert second.key.annotators["ana"] == first.key.annotators["ana"]
    pages = annotate_dataset(settings("ben", form="page"))
    assert pages.written == [tmp_path / "study" / "ben.html"]
    assert pages.key == second.key
    with pytest.raises(InputError, match="cannot be told apart"):
        annotate_dataset(settings("Ana"))
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "study").glob("*.html")} == {0o600}


def test_a_folder_holds_one_study(tmp_path: Path) -> None:
    settings = AnnotateDatasetSettings(
        dataset="starter", out=tmp_path, annotators=("ana",), limit=6
    )
    annotate_dataset(settings)
    before = (tmp_path / "key.json").read_bytes()
    ran = osi(
        "annotate",
        "export",
        "quality",
        "starter",
        "--out",
        tmp_path,
        "--annotators",
        "ana",
        "--limit",
        7,
    )
    assert ran.code == 2 and "belongs to study" in ran.err and "--out DIR" in ran.err
    assert (tmp_path / "key.json").read_bytes() == before


def test_a_return_for_another_dataset_version_is_refused(tmp_path: Path) -> None:
    for name, more in (("old", 0), ("new", 1)):
        dataset = made_dataset(*(prompt_set(f"s{n}") for n in range(4 + more)), name=name)
        out = tmp_path / name
        annotate_dataset(
            AnnotateDatasetSettings(
                dataset=dataset_file(tmp_path, dataset), out=out, annotators=("ana",)
            )
        )
    file = fill(tmp_path / "old", "ana", tmp_path / "back")
    ran = osi(
        "annotate",
        "import",
        file,
        "--key",
        tmp_path / "new" / "key.json",
        "--out",
        tmp_path / "labels.jsonl",
    )
    assert ran.code == 2 and "another dataset version" in ran.err
    assert not (tmp_path / "labels.jsonl").exists()


def test_bad_cells_are_listed_and_nothing_is_written(tmp_path: Path) -> None:
    annotate_dataset(
        AnnotateDatasetSettings(dataset="starter", out=tmp_path, annotators=("ana",), limit=6)
    )
    key = read_key(tmp_path / "key.json")
    sheet = Sheet((tmp_path / "ana.xlsx").read_bytes(), key.kind)
    codes = sheet.codes()
    sheet.cell(codes[0], "overall_quality").value = "great"
    sheet.cell(codes[1], "same_topic").value = "=TRUE()"
    sheet.save(tmp_path / "ana.xlsx")
    ran = osi(
        "annotate",
        "import",
        tmp_path / "ana.xlsx",
        "--key",
        tmp_path / "key.json",
        "--out",
        tmp_path / "labels.jsonl",
    )
    assert ran.code == 2
    assert [line.split(": ")[2] for line in ran.errors] == [
        f"Items!{sheet.cell(codes[0], 'overall_quality').coordinate}",
        f"Items!{sheet.cell(codes[1], 'same_topic').coordinate}",
    ]
    assert not (tmp_path / "labels.jsonl").exists()


def test_refusals_without_a_text_are_left_out_and_counted(tmp_path: Path) -> None:
    dataset = made_dataset(*(prompt_set(f"s{n}") for n in range(4)))
    lines = [
        {
            "id": item.id,
            "variant": variant,
            "response": "" if (item.id, variant) == ("s0", "benign") else f"{item.id} {variant}",
        }
        for item in dataset.prompt_sets
        for variant in ("benign", "dual_use", "malicious")
    ]
    responses = json_lines(tmp_path / "m.jsonl", lines)
    where = ("--dataset", dataset_file(tmp_path, dataset), "--out", tmp_path / "run")
    assert osi("import", responses, "--model", "m", *where, "--max-missing", 1).code == 0
    empty = osi(
        "annotate",
        "export",
        "judge",
        tmp_path / "run",
        "--out",
        tmp_path / "none",
        "--annotators",
        "ana",
    )
    assert empty.code == 2 and "no responses with texts and grades" in empty.err
    graded = osi("grade", tmp_path / "run", "--judge", "baseline/judge", "--max-missing", 1)
    assert graded.code == 0, graded.err
    out = tmp_path / "study"
    ran = osi(
        "annotate",
        "export",
        "judge",
        tmp_path / "run",
        "--out",
        out,
        "--annotators",
        "ana",
        "--sample",
        50,
    )
    assert ran.code == 0, ran.err
    assert "not in the sample: 1 refused without a text (filtered, or empty)" in ran.out
    assert len(read_key(out / "key.json").items) == 11


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--sample", 2), "--sample 2: there are"),
        (
            ("--model", "baseline/refuse"),
            "not a model of this run; did you mean 'baseline/refuse-all'",
        ),
        (("--unit", "set", "--paraphrases"), "--paraphrases: goes with --unit response"),
        (("--repeat", "0.8"), "--repeat 0.8: expected a share"),
        (("--annotators", "ana,ana"), "cannot be told apart"),
    ],
)
def test_bad_options_exit_with_2(
    run: Path, options: tuple[object, ...], said: str, tmp_path: Path
) -> None:
    given = () if "--annotators" in options else ("--annotators", "ana")
    ran = osi("annotate", "export", "judge", run, "--out", tmp_path / "study", *given, *options)
    assert ran.code == 2 and said in ran.err
    assert not list(tmp_path.glob("study/*"))


def test_forms_without_an_answer_make_no_labels(tmp_path: Path) -> None:
    annotate_dataset(
        AnnotateDatasetSettings(dataset="starter", out=tmp_path, annotators=("ana",), limit=6)
    )
    out = tmp_path / "labels.jsonl"
    ran = osi(
        "annotate", "import", tmp_path / "ana.xlsx", "--key", tmp_path / "key.json", "--out", out
    )
    assert ran.code == 2 and ": nothing is answered; expected" in ran.err
    assert not out.exists()


def test_no_run_and_no_dataset_exit_with_2(tmp_path: Path) -> None:
    given = ("--out", tmp_path / "study", "--annotators", "ana")
    assert osi("annotate", "export", "judge", tmp_path, *given).code == 2
    assert osi("annotate", "page", "quality", tmp_path / "none.jsonl", *given).code == 2


def test_what_was_meant_is_worked_out_again() -> None:
    assert as_answers(
        {"benign": "dual_use", "dual_use": "dual_use", "malicious": "unsure", "same_topic": "no"}
    ) == {
        "benign_is_benign": "no",
        "dual_use_has_both": "yes",
        "malicious_is_malicious": "unsure",
        "same_topic": "no",
    }


def test_pages_are_written_by_the_command(run: Path, tmp_path: Path) -> None:
    ran = osi(
        "annotate",
        "page",
        "judge",
        run,
        "--out",
        tmp_path,
        "--annotators",
        "Ana María,ben",
        "--sample",
        30,
    )
    assert ran.code == 0, ran.err
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "Ana-Mar-a.html",
        "ben.html",
        "key.json",
    ]
    page = (tmp_path / "ben.html").read_text()
    data = json.loads(re.findall(r'id="data">(.*?)</script>', page, re.DOTALL)[0])
    assert (
        data["annotator"] == "ben" and sum(item["practice"] is None for item in data["items"]) == 32
    )
