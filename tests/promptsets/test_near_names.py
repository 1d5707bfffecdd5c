"""A slip in a record is told, where it would be passed over in silence."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest

from opensafeintent import ImportSettings, import_files
from opensafeintent.construction.seeds import read_seeds
from opensafeintent.errors import InputError
from opensafeintent.files import RowLimit
from opensafeintent.promptsets import load_dataset
from opensafeintent.promptsets.reading import read_table
from samples import dataset_file, json_lines, lines_of, made_dataset, prompt_set, read_recorded

GIVEN = prompt_set("a").to_json()
THRICE = dict.fromkeys(("benign", "dual_use", "malicious"), "Tell me.")


@pytest.mark.parametrize(
    ("slip", "message"),
    [
        ({"ID": "a"}, "field ID: is not known; did you mean 'id'?"),
        ({"languages": "de"}, "field languages: is not known; did you mean 'language'?"),
        ({"id": "a\nb"}, "field id: has several lines"),
        ({"prompts": THRICE}, "is also the dual_use and the malicious prompt"),
        ({"underlying_task": "\u200b\ufeff"}, "field underlying_task: is empty"),
    ],
)
def test_slips_of_a_prompt_set(tmp_path: Path, slip: dict[str, Any], message: str) -> None:
    record = {name: value for name, value in GIVEN.items() if name != "id"} | slip
    with pytest.raises(InputError) as error:
        load_dataset(str(json_lines(tmp_path / "x.jsonl", [record])))
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("slip", "meant"),
    [("harmSeverity", "harm_severity"), ("helpfullness", "helpfulness"), ("Mode", "mode")],
)
def test_slips_of_an_import(tmp_path: Path, slip: str, meant: str) -> None:
    record = {"id": "a", "variant": "benign", "response": "yes", slip: 1}
    with pytest.raises(InputError, match=f"field {slip}: is not known; did you mean '{meant}'"):
        read_recorded(json_lines(tmp_path / "x.jsonl", [record]))


@pytest.mark.parametrize("named_by", ["variant", "prompt"])
def test_a_slip_is_counted_over_all_models_of_a_table(tmp_path: Path, named_by: str) -> None:
    """One line for the heading, however many models the rows are of."""
    dataset = made_dataset(prompt_set("a"), prompt_set("b"))
    table = tmp_path / "theirs.csv"
    with table.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", named_by, "response", "model", "helpfulness_1", "Id"])
        for model in ("m", "n"):
            for line in lines_of(dataset):
                prompt = dataset.by_id[line["id"]].wordings()[line["variant"]]
                place = line["variant"] if named_by == "variant" else prompt
                writer.writerow([line["id"], place, "yes", model, 3, "x"])
    settings = ImportSettings(
        files=(table,), out=tmp_path / "run", dataset=dataset_file(tmp_path, dataset)
    )
    with pytest.raises(InputError) as error:
        import_files(settings)
    assert str(error.value) == (
        f"{table}:2, field helpfulness_1: is not known; did you mean 'helpfulness'? rename it to"
        " that, or to a name unlike it (and in 11 more records)"
    )
    table.write_text(table.read_text().replace("helpfulness_1", "rater_1"))
    notes = import_files(settings).notes
    assert any("not read:" in note and "rater_1" in note for note in notes)


@pytest.mark.parametrize(
    ("heading", "slip"),
    [
        ("id,variant,response,Model", "Model"),
        ("id,Variant,response,model", "Variant"),
        ("id,variant,Response,model", "Response"),
        ("id,Prompt,response,model", "Prompt"),
    ],
)
def test_no_field_of_a_table_is_passed_over_for_a_capital(
    tmp_path: Path, heading: str, slip: str
) -> None:
    table = tmp_path / "theirs.csv"
    table.write_text(f"{heading}\na,benign,yes,m\na,benign,no,n\n")
    dataset = dataset_file(tmp_path, made_dataset(prompt_set("a")))
    with pytest.raises(InputError) as error:
        import_files(ImportSettings(files=(table,), out=tmp_path / "run", dataset=dataset))
    assert str(error.value).startswith(
        f"{table}:2, field {slip}: is not known; did you mean '{slip.lower()}'?"
    )


def test_blanks_around_names_of_an_import_do_not_count(tmp_path: Path) -> None:
    table = tmp_path / "theirs.csv"
    rows = ("a ,benign,yes,m ,A1", " a, dual_use, yes ,m, A2 ")
    table.write_text("\n".join(("id,variant,response,model,mode", *rows)))
    dataset = dataset_file(tmp_path, made_dataset(prompt_set("a")))
    settings = ImportSettings(files=(table,), out=tmp_path / "run", dataset=dataset)
    import_files(settings)
    grades = read_table(tmp_path / "run" / "grades.csv.gz", "grades", RowLimit())
    assert [(row["model"], row["variant"], row["mode"]) for _, row in grades] == [
        ("m", "benign", "A1"),
        ("m", "dual_use", "A2"),
    ]


def test_rows_of_raters_are_no_epochs(tmp_path: Path) -> None:
    table = tmp_path / "theirs.csv"
    table.write_text('prompt,response,rater\n"a, kindly",yes,ana\n"a, kindly",yes,ben\n')
    dataset = dataset_file(tmp_path, made_dataset(prompt_set("a")))
    settings = ImportSettings(files=(table,), out=tmp_path / "run", dataset=dataset)
    with pytest.raises(InputError) as error:
        import_files(settings)
    assert str(error.value) == (
        f"{table}:3: has the response of {table}:2, and a field rater; expected a row for each"
        " response (--labelled of judge-check takes one for each rater)"
    )
    table.write_text(table.read_text().replace("yes,ben", "no,ben"))  # two responses
    import_files(settings)


def test_of_equally_near_names_the_first_number_is_meant(tmp_path: Path) -> None:
    core = {"benign": "Mend it.", "dual_use": "Open it.", "malicious": "Break it."}
    labels = {name: GIVEN[name] for name in ("harm_domain", "task_type", "underlying_task")}
    row = labels | core | {"dual_use_paraphrase": "Unlock it."}
    for taken, meant in ({}, 1), ({"dual_use_paraphrase_1": "Undo it."}, 2):
        with pytest.raises(InputError, match=f"did you mean 'dual_use_paraphrase_{meant}'"):
            load_dataset(str(json_lines(tmp_path / "x.jsonl", [row | taken])))


TABLE = {
    **{name: GIVEN[name] for name in ("harm_domain", "task_type", "underlying_task")},
    **{"benign": "Mend it.", "dual_use": "Open it.", "malicious": "Break it."},
}


@pytest.mark.parametrize(
    ("heading", "meant"),
    [
        ("paraphrase_1", "dual_use_paraphrase_1"),
        ("dual-use paraphrase 1", "dual_use_paraphrase_1"),
        ("Paraphrase 2", "dual_use_paraphrase_2"),
        ("paraphrases", "dual_use_paraphrase_1"),
        ("benign use", "dual_use_benign_use"),
        ("Misuse-Risk", "dual_use_misuse_risk"),
    ],
)
def test_a_heading_that_plainly_means_a_field_is_not_passed_over(
    tmp_path: Path, heading: str, meant: str
) -> None:
    row = TABLE | {heading: "Unlock it."}
    with pytest.raises(InputError, match=f"field {heading}: is not known; did you mean '{meant}'"):
        load_dataset(str(json_lines(tmp_path / "x.jsonl", [row])))


def test_every_wrong_heading_and_every_missing_one_is_named_at_once(tmp_path: Path) -> None:
    row = {name: text for name, text in TABLE.items() if name not in ("benign", "malicious")}
    row |= {"Benign": "Mend it.", "paraphrase 1": "Undo it.", "paraphrase 2": "Unlock it."}
    with pytest.raises(InputError) as error:
        load_dataset(str(json_lines(tmp_path / "x.jsonl", [row])))
    assert "x.jsonl:1: unknown fields: Benign (did you mean 'benign'?), p" in str(error.value)
    assert "(did you mean 'dual_use_paraphrase_2'?); lacks malicious" in str(error.value)


def test_other_fields_are_passed_over(tmp_path: Path) -> None:
    """Also one that is near a name, if that is there as well."""
    record = GIVEN | {"Id": "b", "comment": "ours", "sourced": "by hand"}
    assert load_dataset(str(json_lines(tmp_path / "x.jsonl", [record]))).prompt_sets[0].id == "a"


def test_a_slip_in_the_heading_of_seeds_is_told(tmp_path: Path) -> None:
    (tmp_path / "seeds.csv").write_text("Prompt\nMend it.\n")
    with pytest.raises(InputError, match=r"field Prompt: .*did you mean 'prompt'\?"):
        read_seeds(str(tmp_path / "seeds.csv"))
