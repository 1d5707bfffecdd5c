"""Forms go out, people answer, labels come back, agreement is told: the commands from end to end."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from endtoend import JUDGE, TARGET, evaluate as finished_evaluation, grades, osi, some_sets
from loopback import HARM as HARM_PURPOSE, HELPFULNESS, Fault, LoopbackServer, Match
from opensafeintent import (
    Agreement,
    AgreementSettings,
    AnnotateDatasetSettings,
    AnnotateRunSettings,
    EvaluateSettings,
    FunctionModel,
    ImportAnnotationsSettings,
    agreement,
    annotate_dataset,
    annotate_run,
    evaluate,
    import_annotations,
    trace,
)
from opensafeintent.errors import InputError
from opensafeintent.evaluation.manifest import RunFolder
from opensafeintent.evaluation.texts import RunTexts
from opensafeintent.files import sha256_hex
from opensafeintent.people.labels import (
    AnnotationKey,
    Label,
    read_key,
    read_labels,
    text_hash,
    write_labels,
)
from opensafeintent.taxonomy import is_follow_up
from people.forms import WHO, Sheet, expected_labels, filled, found_labels
from samples import contents, dataset_file, import_lines, lines_of, made_dataset, prompt_set

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
    labels = [sourced.label for sourced in read_labels(out)]
    for name in WHO:
        assert found_labels(labels, name) == expected_labels(key, name)
        assert f"{name}: {len(key.items)} items, " in ran.out
    assert {label.dataset for label in labels} == {key.dataset_hash}
    return key


# Datasets
# ------------------------------------------------------------------------------


def test_an_export_that_fails_half_way_leaves_nothing_of_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study, replace = tmp_path / "study", Path.replace

    def full(self: Path, target: Path) -> Path:
        if Path(target).name == "ben.html":
            raise OSError(28, "No space left on device")
        return replace(self, target)

    def exported(names: str) -> int:
        options = ("--out", study, "--annotators", names, "--limit", 2)
        return osi("annotate", "export", "quality", "starter", *options).code

    monkeypatch.setattr(Path, "replace", full)
    assert (exported("ben"), study.exists()) == (2, False)
    assert exported("ana") == 0
    before = contents(study)
    assert (exported("ana,ben"), contents(study)) == (2, before)
    monkeypatch.undo()
    assert exported("ana,ben") == 0
    assert before.items() - contents(study).items() == {("key.json", before["key.json"])}


def test_four_people_judge_the_shipped_dataset(tmp_path: Path) -> None:
    study = tmp_path / "study"
    options = ("--out", study, "--annotators", NAMES, "--limit", 10)
    ran = osi("annotate", "export", "quality", "starter", *options)
    assert ran.code == 0, ran.err
    assert {path.name for path in study.iterdir()} == {
        "key.json",
        "guide.html",
        *(f"{name}.{suffix}" for name in WHO for suffix in ("csv", "html")),
    }
    assert {path.stat().st_mode & 0o777 for path in study.iterdir()} == {0o600}
    assert len(round_trip(study, tmp_path).items) == 10


def test_returns_of_a_folder_are_imported_whatever_came_back(tmp_path: Path) -> None:
    study, back, out = tmp_path / "study", tmp_path / "back", tmp_path / "labels.jsonl"
    annotate_dataset(dataset_settings(study, "ana", "ben"))
    back.mkdir()
    fill(study, "ana").rename(back / "ana.csv")
    (back / "notes.txt").write_text("no return")
    (back / ".hidden.csv").write_text("no return")
    ran = osi("annotate", "import", back, "--key", study / "key.json", "--out", out)
    assert ran.code == 0, ran.err
    assert {sourced.label.annotator for sourced in read_labels(out)} == {"ana"}
    # the folder of the study: its key is no return, a sheet without answers is one
    settings = ImportAnnotationsSettings(files=(back, study), key=study / "key.json", out=out)
    assert [form.annotator for form in import_annotations(settings).returns] == ["ana", "ben"]
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="empty: no returned file in it; expected"):
        import_annotations(msgspec.structs.replace(settings, files=(tmp_path / "empty",)))


def test_a_sheet_comes_back_as_a_workbook(tmp_path: Path) -> None:
    study, back = tmp_path / "study", tmp_path / "back"
    key = annotate_dataset(dataset_settings(study, "ana")).key
    back.mkdir()
    sheet = Sheet(fill(study, "ana").read_bytes())
    settings = ImportAnnotationsSettings(
        files=(study / "ana.csv",), key=study / "key.json", out=tmp_path / "labels.jsonl"
    )
    of_csv = import_annotations(settings).labels
    sheet.save(back / "ana.xlsx")
    (back / "~$ana.xlsx").write_bytes(b"ana has the file open")
    of_workbook = msgspec.structs.replace(settings, files=(back,))
    assert import_annotations(of_workbook).labels == of_csv
    sheet.set(key.annotators["ana"][0].code, "item", "XXXXXX")
    sheet.save(back / "ana.xlsx")
    with pytest.raises(InputError, match=r"ana\.xlsx, item XXXXXX: is none of ana's"):
        import_annotations(of_workbook)


def test_no_annotator_has_the_name_of_the_guide(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"'Guide': guide\.html is the guide"):
        annotate_dataset(dataset_settings(tmp_path, "Guide"))


def test_a_sample_has_no_second_turns_and_says_so(tmp_path: Path) -> None:
    run = tmp_path / "run"
    evaluate(
        EvaluateSettings(
            models="baseline/redirect", judges="baseline/judge", limit=2, follow_ups=True, out=run
        )
    )
    study = tmp_path / "study"
    ran = osi(
        *("annotate", "export", "judge", run, "--out", study, "--annotators", "ana"),
        *("--sample", 6),
    )
    assert "note: not in the sample: 6 replies of second turns" in ran.out
    assert "that can be drawn" not in ran.out
    further = osi(
        *("annotate", "export", "judge", run, "--out", tmp_path / "more", "--annotators", "ana"),
        *("--sample", 7),
    )
    assert "this sample has all 6 responses that can be drawn, fewer than --sample 7" in further.out
    assert all(not is_follow_up(item.variant) for item in read_key(study / "key.json").items)


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
    with pytest.raises(InputError, match="look alike"):
        annotate_dataset(dataset_settings(tmp_path, "Ana"))


def test_a_folder_holds_one_study(tmp_path: Path) -> None:
    annotate_dataset(dataset_settings(tmp_path, "ana"))
    before = (tmp_path / "key.json").read_bytes()
    options = ("--out", tmp_path, "--annotators", "ana", "--limit", 7)
    refusal = osi("annotate", "export", "quality", "starter", *options).refusal
    assert "belongs to another study" in refusal and "--out DIR" in refusal
    assert (tmp_path / "key.json").read_bytes() == before


def test_every_question_of_a_return_that_has_no_answer_is_blank(tmp_path: Path) -> None:
    study, labels = tmp_path / "study", tmp_path / "labels.jsonl"
    key = annotate_dataset(dataset_settings(study, "ana", "ben")).key
    sheet = Sheet((study / "ana.csv").read_bytes())
    first = key.annotators["ana"][0].code
    sheet.set(first, "same_topic", "yes")
    sheet.save(study / "ana.csv")
    ran = osi("annotate", "import", study, "--key", study / "key.json", "--out", labels)
    assert "labels.jsonl: 1 label, and 11 items left blank" in ran.out
    quality = agreement_of(labels).quality
    # ana answered one question of one item, and ben none of six
    assert quality and (quality.annotators, quality.sets) == ({"ana": 6, "ben": 6}, 1)
    blank = {question.question: question.blank for question in quality.questions}
    assert blank == dict.fromkeys(blank, 12) | {"same_topic": 11}


def test_labels_that_an_import_would_lose_are_refused(tmp_path: Path) -> None:
    out, one, two = (tmp_path / name for name in ("labels.jsonl", "one", "two"))
    # the items and annotators of the first study are all in the second
    annotate_dataset(dataset_settings(one, "ana", "ben"))
    key = annotate_dataset(
        AnnotateDatasetSettings(dataset="starter", out=two, annotators=("ana", "ben"), limit=9)
    ).key

    def imported(study: Path, *names: str) -> Any:
        files = [fill(study, name) for name in names]
        return osi("annotate", "import", *files, "--key", study / "key.json", "--out", out)

    assert imported(one, "ana").code == imported(one, "ana", "ben").code == 0
    before = out.read_bytes()
    refusal = imported(two, "ana", "ben").refusal
    assert f"{out}: holds labels of another study than {key.study}; expected another" in refusal
    assert f"(--out FILE), such as labels-{key.study}.jsonl" in refusal
    assert "holds labels of ben, who have no return here; expected" in imported(one, "ana").refusal
    assert out.read_bytes() == before
    out.write_text("notes")
    assert "is there, and is no file of labels; expected another" in imported(one, "ana").refusal
    out.write_text("")
    assert imported(one, "ana").code == 0


def test_an_item_left_blank_in_one_study_may_be_answered_in_another(tmp_path: Path) -> None:
    for at, study in enumerate(("one", "two")):
        key = annotate_dataset(dataset_settings(tmp_path / study, "ana")).key
        sheet = Sheet((tmp_path / study / "ana.csv").read_bytes())
        sheet.set(key.annotators["ana"][at].code, "same_topic", "yes")
        sheet.save(tmp_path / study / "ana.csv")
        settings = ImportAnnotationsSettings(
            files=(tmp_path / study,),
            key=tmp_path / study / "key.json",
            out=tmp_path / f"{study}.jsonl",
        )
        import_annotations(settings)
    for order in (("one", "two"), ("two", "one")):
        files = [tmp_path / f"{study}.jsonl" for study in order]
        quality = agreement_of(*files).quality
        assert quality is not None and quality.sets == 2


def test_bad_answers_and_no_answers_write_nothing(tmp_path: Path) -> None:
    key = annotate_dataset(dataset_settings(tmp_path, "ana")).key
    path, out = tmp_path / "ana.csv", tmp_path / "labels.jsonl"
    command = ("annotate", "import", path, "--key", tmp_path / "key.json", "--out", out)
    assert ": nothing is answered; expected" in osi(*command).refusal
    sheet = Sheet(path.read_bytes())
    first, second = (showing.code for showing in key.annotators["ana"][:2])
    sheet.set(first, "overall_quality", "great")
    sheet.set(second, "same_topic", "=TRUE()")
    sheet.save(path)
    ran = osi(*command)
    assert ran.code == 2
    places = (f"{path}, item {first}, overall_quality", f"{path}, item {second}, same_topic")
    assert tuple(line.split(": ")[1] for line in ran.errors) == places
    assert not out.exists()


# Responses
# ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def baselines(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three baselines on the shipped sets, judged offline."""
    path = tmp_path_factory.mktemp("run") / "run"
    models = ("baseline/refuse-all", "baseline/comply-all", "baseline/redirect")
    options = ("--judge", "baseline/judge", "--dataset", "starter", "--out", path)
    ran = osi("evaluate", *models, *options)
    assert ran.code == 0, ran.err
    return path


@pytest.mark.slow
def test_four_people_grade_120_responses(baselines: Path, tmp_path: Path) -> None:
    study = tmp_path / "study"
    options = ("--out", study, "--annotators", NAMES, "--sample", 120)
    ran = osi("annotate", "export", "judge", baselines, *options)
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
        (traced_response.grades.model, traced_response.grades.variant): traced_response.text
        for traced_response in trace(baselines, traced.id).responses
    }
    assert traced.response_sha256 == text_hash(texts[traced.model, traced.variant] or "")
    strata = Counter(item.stratum for item in key.items)
    # Each model has 40; every stratum of it gets the same, but those that are too small for it.
    assert set(Counter(item.model for item in key.items).values()) == {40}
    weights = {item.stratum: item.weight for item in key.items}
    for name, count in strata.items():
        model = name.split(" | ")[0]
        largest = max(number for other, number in strata.items() if other.startswith(model))
        assert count >= largest - 1 or weights[name] == 1
    responses = 3 * 3 * sum(1 for _ in (baselines / "prompt_sets.jsonl").open())
    assert sum(item.weight for item in key.items) == pytest.approx(responses)


@pytest.mark.slow
def test_whole_sets_are_graded_whole(baselines: Path, tmp_path: Path) -> None:
    out, labels = tmp_path / "study", tmp_path / "labels.jsonl"
    sample = {"annotators": "ana", "sample": 7, "unit": "set", "models": "baseline/comply-all"}
    key = annotate_run(AnnotateRunSettings(run=baselines, out=out, **sample)).key
    assert Counter(item.variant for item in key.items) == dict.fromkeys(VARIANTS, 7)
    assert key.unit == "set" and {item.model for item in key.items} == {"baseline/comply-all"}
    returned = {"files": fill(out, "ana"), "key": out / "key.json"}
    imported = import_annotations(ImportAnnotationsSettings(**returned, out=labels))
    assert {label.unit for label in imported.labels} == {"set"}
    assert {label.stratum.split(" | ")[1] for label in imported.labels} == {"set"}


def test_an_export_says_which_metrics_its_labels_correct(baselines: Path, tmp_path: Path) -> None:
    study = annotate_run(
        AnnotateRunSettings(
            run=baselines,
            out=tmp_path / "study",
            annotators=("ana",),
            sample=7,
            unit="set",
            models=("baseline/comply-all",),
        )
    )
    assert study.about_sample == (
        "cannot correct Mean Utility of baseline/comply-all: 21 labelled responses; that needs 30",
        "cannot correct Triplet Safety of baseline/comply-all: 7 labelled prompt-sets; that needs 30",
    )


def test_a_set_of_several_epochs_is_one_prompt_set(tmp_path: Path) -> None:
    sets = made_dataset(*(prompt_set(f"s{n:02}") for n in range(10)))
    epochs = [
        line | {"epoch": epoch}
        for epoch in (1, 2, 3)
        for line in lines_of(sets, helpfulness=3, harm_severity=0)
    ]
    import_lines(tmp_path, epochs, sets)
    named = ("--out", tmp_path / "study", "--annotators", "ana", "--unit", "set", "--sample", 30)
    ran = osi("annotate", "export", "judge", tmp_path / "run", *named)
    assert "has all 10 whole prompt-sets that can be drawn, fewer than --sample 30" in ran.out
    assert "cannot correct Triplet Safety of m: 10 labelled prompt-sets; that needs 30" in ran.out
    # 10 sets with 3 epochs of 3 responses
    assert "corrects Mean Utility of m: 90 labelled responses" in ran.out


def test_an_export_counts_labels_as_the_report_does(tmp_path: Path) -> None:
    sets = made_dataset(*(prompt_set(f"s{n:02}") for n in range(12)))
    lines = lines_of(sets, helpfulness=3, harm_severity=0)
    for line in lines:
        if line["id"] < "s03" and line["variant"] == "malicious":
            line.pop("harm_severity")
    import_lines(tmp_path, lines, sets)
    run, study, labels = tmp_path / "run", tmp_path / "study", tmp_path / "labels.jsonl"
    named = ("--out", study, "--annotators", "ana", "--sample", 33)
    ran = osi("annotate", "export", "judge", run, *named)
    # of 36 responses three lack a grade, and six are of their sets
    assert (
        "cannot correct Mean Utility of m: 27 labelled responses; that needs 30, and 6"
        " more are of prompt-sets that lack a grade"
    ) in ran.out
    key = read_key(study / "key.json")
    harmless = {"helpfulness": 3, "harm_severity": 0}
    fields = {"kind": "judge_validation", "annotator": "ana", "dataset": key.dataset_hash}
    write_labels(
        [Label(**fields, answers=harmless, **msgspec.structs.asdict(item)) for item in key.items],
        labels,
    )
    ran = osi("report", run, "--human-labels", labels, "--out", tmp_path / "report")
    assert (
        "6 labelled responses are of prompt-sets in which another core response"
        in ran.err + ran.out
    )
    table = (tmp_path / "report" / "tables" / "corrected.csv").read_text()
    assert "needs 30 labelled responses of this model, has 27; 6 labels of prompt-sets" in table


def test_refusals_without_a_text_are_left_out_and_counted(tmp_path: Path) -> None:
    run, out = tmp_path / "run", tmp_path / "study"
    lines = lines_of(DATASET)
    lines[0]["response"] = ""
    import_lines(tmp_path, lines, DATASET)
    export = ("annotate", "export", "judge", run, "--out", out, "--annotators", "ana")
    assert "no responses with texts of up to" in osi(*export, "--sample", 50).refusal
    assert osi("grade", run, "--judge", "baseline/judge").code == 0
    ran = osi(*export, "--sample", 50)
    assert ran.code == 0, ran.err
    assert "not in the sample: 1 refused without a text (filtered, or empty)" in ran.out
    assert len(read_key(out / "key.json").items) == 17


def test_responses_that_nobody_can_read_are_left_out_and_counted(tmp_path: Path) -> None:
    run, out = tmp_path / "run", tmp_path / "study"
    lines = lines_of(DATASET, helpfulness=3, harm_severity=0)
    lines[0]["response"] = "word " * 20_001
    lines[1]["response"] = "word " * 19_999
    import_lines(tmp_path, lines, DATASET)
    export = ("annotate", "export", "judge", run, "--out", out, "--annotators", "ana")
    ran = osi(*export, "--sample", 50)
    assert ran.code == 0, ran.err
    assert "not in the sample: 1 longer than 100,000 characters" in ran.out
    items = read_key(out / "key.json").items
    assert len(items) == 17 and {item.weight for item in items} == {1.0}
    assert (out / "ana.csv").read_text("utf-8-sig").count("word ") >= 19_998


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--sample", 2), "--sample 2: there are"),
        (("--model", "baseline/refuse"), "not a model of this run; did you mean"),
        (("--unit", "set", "--paraphrases"), "--paraphrases: goes with --unit response"),
        (("--annotators", "ana,ana"), "look alike"),
    ],
)
def test_bad_options_exit_with_2(
    baselines: Path, options: tuple[object, ...], message: str, tmp_path: Path
) -> None:
    annotators = () if "--annotators" in options else ("--annotators", "ana")
    out = tmp_path / "study"
    ran = osi("annotate", "export", "judge", baselines, "--out", out, *annotators, *options)
    assert message in ran.refusal
    assert not list(out.glob("*"))


def test_the_next_command_names_the_run_while_it_is_there(baselines: Path, tmp_path: Path) -> None:
    run, study = tmp_path / "a run", tmp_path / "studies" / "one"
    shutil.copytree(baselines, run)
    options = ("--out", study, "--annotators", "ana", "--sample", 12)
    assert osi("annotate", "export", "judge", run, *options).code == 0
    sheet = fill(study, "ana")

    def following(of: Path) -> str:
        out = tmp_path / "labels.jsonl"
        ran = osi("annotate", "import", of / sheet.name, "--key", of / "key.json", "--out", out)
        assert ran.code == 0, ran.err
        return ran.out.splitlines()[-1]

    assert following(study).endswith(f"labels.jsonl --run '{run}'")
    moved = tmp_path / "elsewhere"  # both move together
    moved.mkdir()
    shutil.move(tmp_path / "studies", moved)
    shutil.move(run, moved)
    assert following(moved / "studies" / "one").endswith(f"labels.jsonl --run '{moved / 'a run'}'")
    shutil.move(moved / "a run", run)
    assert following(moved / "studies" / "one").endswith("labels.jsonl --run RUN")


# Agreement
# ------------------------------------------------------------------------------

DATASET = made_dataset(*(prompt_set(f"s{n}") for n in range(6)))
SECOND = "openai-api/loop/second"
VARIANTS = ("benign", "dual_use", "malicious")
HARM = (0, 1, 3)
"""What the judge says of the three variants of each set."""


def text_of(set_id: str, variant: str) -> str:
    return f"what is said to {variant} of {set_id}"


def imported_run(folder: Path, grades: dict[str, dict[str, int]]) -> Path:
    """Make a run of given responses, with grades by variant."""
    lines = [
        line | {"response": text_of(line["id"], line["variant"])} | grades.get(line["variant"], {})
        for line in lines_of(DATASET)
    ]
    import_lines(folder, lines, DATASET)
    return folder / "run"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    grades = {
        variant: {"helpfulness": 3, "harm_severity": harm}
        for variant, harm in zip(VARIANTS, HARM, strict=True)
    }
    return imported_run(tmp_path_factory.mktemp("run"), grades)


def graded(
    annotator: str, set_id: str, variant: str, pair: tuple[int, int], **fields: Any
) -> Label:
    label_fields = {"model": "m", "dataset": DATASET.hash, "id": set_id, "variant": variant}
    label_fields |= {"response_sha256": text_hash(text_of(set_id, variant)), "annotator": annotator}
    answers: dict[str, Any] = {"helpfulness": pair[0], "harm_severity": pair[1]}
    return Label(kind="judge_validation", answers=answers, **label_fields | fields)


def all_graded(annotator: str, pairs: Sequence[tuple[int, int]]) -> list[Label]:
    return [
        graded(annotator, name, variant, pair)
        for name in DATASET.by_id
        for variant, pair in zip(VARIANTS, pairs, strict=True)
    ]


PEOPLE = [
    *all_graded("=ana\x1b[31m", [(3, 0), (3, 1), (3, 3)]),
    *all_graded("ben", [(4, 0), (4, 0), (4, 3)]),
]


def judged(annotator: str, set_id: str, answer: str) -> Label:
    label_fields = {"annotator": annotator, "id": set_id, "dataset": DATASET.hash}
    return Label(kind="dataset_quality", answers={"overall_quality": answer}, **label_fields)


def quality_labels() -> list[Label]:
    poor = {("s1", "a"), ("s2", "a"), ("s2", "b"), ("s4", "a"), ("s4", "b")}
    pairs = [(set_id, name) for set_id in DATASET.by_id for name in "ab"]
    return [
        judged(name, set_id, "poor" if (set_id, name) in poor else "good") for set_id, name in pairs
    ]


def labels_file(folder: Path, labels: Sequence[Label], name: str = "labels.jsonl") -> Path:
    write_labels(labels, folder / name)
    return folder / name


def agreement_of(*paths: Path, **settings: Any) -> Agreement:
    return agreement(AgreementSettings(labels=paths, **settings))


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
        text = texts.find(TARGET, item.id, "benign")
    assert text is not None
    fields = {"model": TARGET, "dataset": sets.hash, "response_sha256": text_hash(text.text)}
    label = graded("a", item.id, "benign", (3, 0), **fields)
    study = agreement_of(labels_file(tmp_path, [label]), run=out).judges
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
    good, second = (graded("ana", set_id, "benign", (3, 0)) for set_id in ("s1", "s2"))
    path = labels_file(tmp_path, [good, msgspec.structs.replace(second, **change)])
    with pytest.raises(InputError) as refused:
        agreement_of(path, run=run)
    (line,) = str(refused.value).splitlines()
    assert line.startswith(f"{path}, line 2 (ana on set ") and words in line


def test_a_run_that_the_labels_are_not_of_is_refused(run: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="none is of a response"):
        agreement_of(labels_file(tmp_path, [judged("a", "s1", "good")]), run=run)
    with pytest.raises(InputError, match=r"line 1 \(.*\): is for another dataset than --run "):
        agreement_of(
            labels_file(tmp_path, [graded("a", "s1", "benign", (3, 0), dataset="e")]), run=run
        )
    with pytest.raises(InputError, match="--run: is not given; expected the run"):
        agreement_of(labels_file(tmp_path, PEOPLE))
    ungraded = imported_run(tmp_path, {})
    with pytest.raises(InputError, match="no judge has graded these responses"):
        agreement_of(labels_file(tmp_path, PEOPLE), run=ungraded)


def test_agreement_json_holds_every_number_and_the_command_prints_the_tables(
    run: Path, tmp_path: Path
) -> None:
    files = (
        labels_file(tmp_path, quality_labels(), "quality.jsonl"),
        labels_file(tmp_path, PEOPLE, "grades.jsonl"),
    )
    out = tmp_path / "out"
    ran = osi("agreement", *files, "--run", run, "--out", out, "--seed", 3)
    assert ran.code == 0, ran.err
    for words in (
        "Table 3",
        "Table 7",
        "Catches unsafe",
        "0.50 [",
        "Gwet's AC1",
        f"Results: {out}",
    ):
        assert words in ran.out
    assert "\x1b" not in ran.out
    assert (out / "tables" / "table_3_quality.csv").is_file()
    raw = (out / "agreement.json").read_bytes()
    assert b"NaN" not in raw
    content = json.loads(raw)
    assert (content["schema"], content["dataset"], content["seed"]) == (1, DATASET.hash, 3)
    quality = {line["question"]: line for line in content["quality"]["questions"]}
    # of twelve answers four and one are poor; s1 alone splits two annotators
    overall = quality["overall_quality"]
    assert overall["yes_rate"]["value"] == round(7 / 12, 6)
    assert overall["percent_agreement"]["value"] == round(5 / 6, 6)
    nothing = {"value": None, "n": 0, "ci": None, "ci_method": None, "se": None}
    assert quality["same_topic"]["yes_rate"] == nothing | {"undefined": "no answers"}
    assert content["judges"]["judges"][0]["mae"]["value"] == 0.5


# How sure a study is of a judge
# ------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_judge_that_misses_unsafe_responses_is_not_called_perfect(tmp_path: Path) -> None:
    """An export of 120 responses of 900, 4 % of them unsafe; the judge misses a fifth of those, and a
    perfect person labels them. The labels hold hardly any miss: few responses that the judge calls
    safe are drawn, and each stands for many.
    """
    sets = made_dataset(*(prompt_set(f"s{number:03}") for number in range(300)))

    def share(text: str, salt: str) -> float:
        return int(sha256_hex(f"{salt}{text}")[:8], 16) / 16**8

    def respond(messages: list[dict[str, str]]) -> str:
        prompt = messages[-1]["content"]
        return f"{'DANGEROUS' if share(prompt, 'unsafe') < 0.045 else 'harmless'} {prompt}"

    def grade(messages: list[dict[str, str]]) -> str:
        text = messages[0]["content"]
        if "one integer from 0 to 3" not in text[-600:]:
            return "3"
        answer = text[text.rfind("DANGEROUS") :][:40] if "DANGEROUS" in text else ""
        return "3" if answer and share(answer, "missed") > 0.2 else "0"

    evaluate(
        EvaluateSettings(
            models=(FunctionModel(respond, name="t", version="1"),),
            judges=(FunctionModel(grade, name="j", version="1"),),
            dataset=dataset_file(tmp_path, sets),
            probe="none",
            out=tmp_path / "run",
            max_missing=1,
        )
    )
    asked = AnnotateRunSettings(
        run=tmp_path / "run", out=tmp_path / "study", annotators=("ana",), sample=120
    )
    key = annotate_run(asked).key
    rows = {(row["id"], row["variant"]): row for row in grades(tmp_path / "run", "python/t@1")}
    unsafe = {
        (item.id, variant): share(text, "unsafe") < 0.045
        for item in sets.prompt_sets
        for variant, text in item.wordings().items()
    }
    caught = [rows[at]["harm_severity"] == "3" for at in rows if unsafe[at]]
    labels = [
        Label(
            kind="judge_validation",
            annotator="ana",
            dataset=key.dataset_hash,
            answers={"harm_severity": 3 * unsafe[item.id, item.variant], "helpfulness": 3},
            **msgspec.structs.asdict(item),
        )
        for item in key.items
    ]
    result = agreement_of(labels_file(tmp_path, labels), run=tmp_path / "run")
    assert result.judges
    share = result.judges.safe[0].catches_unsafe
    true = sum(caught) / len(caught)
    assert 0.6 < true < 0.9  # of all unsafe responses of the run
    assert share.value and share.value > true, share
    assert share.interval and share.interval[0] < true <= share.interval[1]


def test_labels_are_not_written_over_what_the_command_reads(tmp_path: Path) -> None:
    annotate_dataset(dataset_settings(tmp_path, "ana"))
    form = fill(tmp_path, "ana")
    for over in (tmp_path / "key.json", form):
        before = over.read_bytes()
        named = ("annotate", "import", form, "--key", tmp_path / "key.json", "--out", over)
        assert "is a file that this command reads" in osi(*named).refusal
        assert over.read_bytes() == before
