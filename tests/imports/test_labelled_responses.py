"""Files of labelled responses: every form of labels, and one clear error for each that is none."""

from __future__ import annotations

import csv
import gzip
import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import openpyxl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from opensafeintent.errors import InputError
from opensafeintent.evaluation.labelled_responses import LabelledFile
from opensafeintent.imports.label_files import read_labelled
from samples import json_lines

Rows = Sequence[Mapping[str, Any]]


def csv_file(folder: Path, rows: Rows) -> Path:
    path = folder / "labels.csv"
    fields = dict.fromkeys(field for row in rows for field in row)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(fields))
        writer.writeheader()
        writer.writerows(rows)
    return path


def labels(file: LabelledFile) -> list[dict[str, bool | None]]:
    """Return what each person says of each response."""
    return [
        {who: bool(said["unsafe"]) if "unsafe" in said else None for who, said in item.items()}
        for item in file.ratings.by_item
    ]


def refused(path: Path, columns: Mapping[str, str] | None = None) -> list[str]:
    with pytest.raises(InputError) as error:
        read_labelled(path, columns)
    return [line.replace(str(path), path.name) for line in error.value.lines]


@pytest.mark.parametrize(
    ("yes", "no"),
    [("yes", "no"), ("TRUE", "False"), ("1", "0"), ("1.0", "0.0"), ("harmful", "unharmful")],
)
def test_yes_and_no_are_read_in_every_form(tmp_path: Path, yes: str, no: str) -> None:
    rows = [{"response": "A", "unsafe": yes}, {"response": "B", "unsafe": no}]
    assert labels(read_labelled(csv_file(tmp_path, rows))) == [{"": True}, {"": False}]


def test_a_table_and_lines_and_parquet_are_the_same(tmp_path: Path) -> None:
    rows = [
        {"prompt": "P", "response": "A", "harm": 2, "helpfulness": 4, "group": "g"},
        {"prompt": "P", "response": "B", "harm": 0, "helpfulness": None, "group": "h"},
    ]
    parquet = tmp_path / "labels.parquet"
    pq.write_table(pa.Table.from_pylist(rows), parquet)
    book = openpyxl.Workbook()
    for row in (list(rows[0]), *([*row.values()] for row in rows)):
        book.active.append(row)
    book.save(workbook := tmp_path / "labels.xlsx")
    packed = tmp_path / "labels.csv.gz"
    packed.write_bytes(gzip.compress(csv_file(tmp_path, rows).read_bytes()))
    lines = json_lines(tmp_path / "l.jsonl", rows)
    files = (csv_file(tmp_path, rows), lines, parquet, workbook, packed)
    read = [read_labelled(path) for path in files]
    plain = [
        [
            (i.prompt, i.response, i.group, said)
            for i, said in zip(f.responses, f.ratings.by_item, strict=True)
        ]
        for f in read
    ]
    assert all(other == plain[0] for other in plain)
    assert read[0].ratings.by_item[0] == {"": {"harm_severity": 2, "helpfulness": 4, "unsafe": 1}}
    assert read_labelled(parquet).grades == ("helpfulness", "harm_severity")


def test_raters_are_columns_or_rows(tmp_path: Path) -> None:
    columns = [{"response": "A", "unsafe_1": "yes", "unsafe_2": "no", "unsafe_3": ""}]
    rows = [
        {"response": "A", "unsafe": "yes", "rater": "ana"},
        {"response": "B", "unsafe": "no", "rater": "ana"},
        {"response": "A", "unsafe": "no", "rater": "ben"},
    ]
    assert labels(read_labelled(csv_file(tmp_path, columns))) == [{"1": True, "2": False}]
    file = read_labelled(csv_file(tmp_path, rows))
    assert labels(file) == [{"ana": True, "ben": False}, {"ana": False}]
    assert file.ratings.list_raters("unsafe") == ["ana", "ben"]


def test_one_column_beside_numbered_raters_is_a_grade_of_all_people(tmp_path: Path) -> None:
    """One column of helpfulness, or of harm, beside raters with numbers: their common grade, and
    no further call of safe or unsafe.
    """
    row = {"prompt": "P", "response": "A", "unsafe_1": "yes", "unsafe_2": "no"}
    file = read_labelled(csv_file(tmp_path, [row | {"helpfulness": 3, "harm": 2}]))
    assert file.ratings.list_raters("unsafe") == ["1", "2"]
    assert file.rated == ("helpfulness", "harm_severity")
    assert file.ratings.by_item[0][""] == {"harm_severity": 2, "helpfulness": 3}
    assert labels(file) == [{"1": True, "2": False, "": None}]


def test_a_rater_of_helpfulness_alone_is_read(tmp_path: Path) -> None:
    row = {"prompt": "P", "response": "A", "unsafe_1": "yes", "helpfulness_2": 4}
    rows = [
        {"prompt": "P", "response": "A", "unsafe": "yes", "helpfulness": "", "rater": "ana"},
        {"prompt": "P", "response": "A", "unsafe": "", "helpfulness": 4, "rater": "ben"},
    ]
    for given in ([row], rows):
        file = read_labelled(csv_file(tmp_path, given))
        assert (len(file.ratings.list_raters("unsafe")), file.unlabelled) == (1, 0)
        (said,) = file.ratings.by_item
        assert [numbers.get("helpfulness") for numbers in said.values()] == [None, 4]


def test_a_scale_without_any_label_is_not_asked_for(tmp_path: Path) -> None:
    row = {"prompt": "P", "response": "A", "unsafe": "yes", "helpfulness": ""}
    file = read_labelled(csv_file(tmp_path, [row]))
    assert (file.rated, file.grades) == ((), ("harm_severity",))


def test_names_of_the_file_are_mapped(tmp_path: Path) -> None:
    row = {"goal": "P", "output": "A", "human1": 1, "human2": 0, "unsafe": "", "judge": "x"}
    path = csv_file(tmp_path, [row])
    columns = {"prompt": "goal", "response": "output", "unsafe_1": "human1", "unsafe_2": "human2"}
    file = read_labelled(path, columns)
    assert labels(file) == [{"1": True, "2": False}]
    assert file.responses[0].prompt == "P"
    assert file.unread == ("unsafe", "judge")


def test_a_flag_of_safety_is_read_the_other_way_round(tmp_path: Path) -> None:
    rows: Rows = [
        {"response": "A", "is_safe": True},
        {"response": "B", "is_safe": "no"},
        {"response": "C", "is_safe": "unsafe"},  # a word means itself
        {"response": "D", "is_safe": "harmless"},
    ]
    read = labels(read_labelled(csv_file(tmp_path, rows), {"safe": "is_safe"}))
    assert read == [{"": False}, {"": True}, {"": True}, {"": False}]
    people = [{"response": "A", "safe_1": 1, "safe_2": 0}]
    assert labels(read_labelled(csv_file(tmp_path, people))) == [{"1": False, "2": True}]


@pytest.mark.parametrize(
    ("name", "field", "expected"),
    [
        *(
            ("unsafe", field, "safe")
            for field in (
                "safe",
                "is_safe",
                "isSafe",
                "IS_SAFE",
                "is_response_0_safe",
                "Harmless?",
                "response-unharmful",
                "not_harmful",
                "is_not_unsafe",
                "no harm",
                "nonharmful",
            )
        ),
        ("unsafe_2", "safe", "safe_2"),
        ("safe", "is_unsafe", "unsafe"),
        ("safe", "not_safe", "unsafe"),
        ("safe_1", "response_harm_label", "unsafe_1"),
        ("refused", "complied", "compliance"),
        ("refused_2", "is_not_refused", "compliance_2"),
        ("compliance", "response_refusal_label", "refused"),
    ],
)
def test_a_field_whose_name_says_the_opposite_is_refused(
    tmp_path: Path, name: str, field: str, expected: str
) -> None:
    path = csv_file(tmp_path, [{"response": "A", field: "1"}])
    (line,) = refused(path, {name: field})
    meant = expected.partition("_")[0]
    assert line == (
        f"--map {shlex.quote(f'{name}={field}')}: the name of the field says that a yes means"
        f" {meant}; expected --map {shlex.quote(f'{expected}={field}')}, or a field of another name"
    )


@pytest.mark.parametrize(
    "field",
    [
        "unsafe",
        "is_unsafe",
        "isUnsafe",
        "not_safe",
        "harmful",
        "jailbroken",
        "safe_or_unsafe",
        "safety_violation",
        "response_harm_label",
        "human_majority",
        "safeguarded",
        "not_harmless",
    ],
)
def test_a_field_whose_name_does_not_is_mapped(tmp_path: Path, field: str) -> None:
    path = csv_file(tmp_path, [{"response": "A", field: "1"}])
    assert labels(read_labelled(path, {"unsafe": field})) == [{"": True}]


def test_a_class_label_is_read_by_its_own_names(tmp_path: Path) -> None:
    # as Hugging Face datasets 5.2 describe their columns; here 0 is unsafe
    classes = {"names": ["unsafe", "safe"], "_type": "ClassLabel"}
    described = json.dumps({"info": {"features": {"label": classes}}})
    table = pa.table({"response": ["A", "B", "C"], "label": [0, 1, -1]})
    path = tmp_path / "labels.parquet"
    pq.write_table(table.replace_schema_metadata({"huggingface": described}), path)
    file = read_labelled(path, {"unsafe": "label"})
    assert (labels(file), file.unlabelled) == ([{"": True}, {"": False}], 1)
    pq.write_table(table.replace_schema_metadata({"huggingface": "{"}), path)
    assert refused(path, {"unsafe": "label"}) == [
        f"labels.parquet, row 3, column label: '-1' is no label; expected {VALID}"
    ]


@pytest.mark.parametrize(
    ("column", "full", "partial", "none"),
    [
        ("compliance", "1_full_compliance", "3_partial_refusal", "2_full_refusal"),
        ("compliance", "Full compliance", "partial-refusal", "full_refusal"),
        ("refused", "compliance", "partial_refusal", "refusal"),
        ("refused", "no", "", "yes"),
        ("compliance", "True", "n/a", "False"),
    ],
)
def test_labels_of_refusal_are_read_in_every_form(
    tmp_path: Path, column: str, full: str, partial: str, none: str
) -> None:
    rows: Rows = [
        {"prompt": "P", "response": "A", column: label} for label in (full, partial, none)
    ]
    file = read_labelled(csv_file(tmp_path, rows))
    read = [said[""]["refused"] for said in file.ratings.by_item]
    assert (read, file.unlabelled) == (([0, 1], 1) if partial in ("", "n/a") else ([0, 0.5, 1], 0))
    assert (file.called, file.grades) == ("refused", ("helpfulness",))


def test_a_published_file_of_two_people_and_what_they_settled_on(tmp_path: Path) -> None:
    """The columns of XSTest's files of responses; the one column is no third person's."""
    row = {"id": "v2-1", "type": "homonyms", "prompt": "P", "completion": "A", "agreement": "FALSE"}
    labels = ("1_full_compliance", "2_full_refusal", "3_partial_refusal")
    row |= dict(zip(("annotation_1", "annotation_2", "final_label"), labels, strict=True))
    columns = {"response": "completion", "group": "type", "compliance": "final_label"}
    columns |= {f"compliance_{number}": f"annotation_{number}" for number in (1, 2)}
    file = read_labelled(csv_file(tmp_path, [row]), columns)
    (said,) = file.ratings.by_item
    assert said == {"": {"refused": 0.5}, "1": {"refused": 0}, "2": {"refused": 1}}
    assert (file.responses[0].group, file.unread) == ("homonyms", ("agreement",))


def test_of_two_kinds_of_labels_the_mapped_one_is_read(tmp_path: Path) -> None:
    row = {"prompt": "P", "response": "A", "unsafe": "yes", "refusal": "no"}
    file = read_labelled(csv_file(tmp_path, [row]), {"refused": "refusal"})
    assert (file.called, file.ratings.by_item) == ("refused", [{"": {"refused": 0}}])
    assert file.unread == ("unsafe",)


def test_rows_without_a_label_are_left_out_and_counted(tmp_path: Path) -> None:
    rows = [
        {"prompt": "P", "response": "A", "unsafe": "yes"},
        {"prompt": "P", "response": "", "unsafe": ""},
        {"prompt": "P", "response": "B", "unsafe": "N/A"},
    ]
    file = read_labelled(csv_file(tmp_path, rows))
    assert (len(file.responses), file.unlabelled) == (1, 2)


def test_an_id_tells_equal_texts_apart(tmp_path: Path) -> None:
    rows = [
        {"id": name, "response": "No.", "unsafe": "no", "rater": rater}
        for name in ("one", "two")
        for rater in ("ana", "ben")
    ]
    assert labels(read_labelled(csv_file(tmp_path, rows))) == [{"ana": False, "ben": False}] * 2
    without = [{key: value for key, value in row.items() if key != "id"} for row in rows]
    assert refused(csv_file(tmp_path, without))[0] == (
        "labels.csv:4, column rater: 'ana' labels a response twice, at labels.csv:2 too; expected"
        " one row of the two, or a field id for responses with equal texts"
    )


VALID = "yes or no, true or false, 1 or 0, unsafe or safe, harmful or unharmful"


@pytest.mark.parametrize(
    ("rows", "columns", "line"),
    [
        (
            [{"response": "A", "unsafe": "yes"}, {"response": "B", "unsafe": "maybe"}],
            {},
            f"labels.csv:3, column unsafe: 'maybe' is no label; expected {VALID}",
        ),
        (
            [{"response": "A", "harm": "4"}],
            {},
            "labels.csv:2, column harm: '4' is no label; expected a whole number, 0 to 3",
        ),
        (
            [{"response": "A", "prompt": "P", "harm": 0, "helpfulness": 0}],
            {},
            "labels.csv:2, column helpfulness: '0' is no label; expected a whole number, 1 to 4",
        ),
        (
            [{"response": "", "bad": "1"}],
            {"unsafe": "bad"},
            "labels.csv:2, column response: is empty; expected the labelled text",
        ),
        (
            [{"response": "A", "unsafe": "no", "rater": ""}],
            {},
            "labels.csv:2, column rater: is empty; expected the name of the rater",
        ),
        (
            [{"response": "A", "unsafe": "yes", "harm_1": 0, "harm_2": 1}],
            {},
            "labels.csv: unsafe is a label of all people, and harm_1 of one; expected unsafe_1 and"
            " so on, or only one of the two, chosen with --map unsafe=FIELD",
        ),
        (
            [{"prompt": "P", "response": "A", "unsafe": "", "helpfulness": 4}],
            {},
            "labels.csv: no row says whether it is unsafe; expected a label in unsafe, safe or harm",
        ),
        (
            [{"text": "A", "unsafe": "no"}],
            {},
            "labels.csv: no field response; expected it, or --map response=FIELD; its fields: text,"
            " unsafe",
        ),
        (
            [{"response": "A", "label": "no"}],
            {},
            "labels.csv: no field with labels; expected unsafe or safe (yes or no), harm (0 to 3),"
            " compliance (1_full_compliance and so on) or refused (yes or no), or --map"
            " unsafe=FIELD (safe=FIELD if a yes means safe), of several people --map unsafe_1=FIELD"
            " and so on; its fields: response, label",
        ),
        (
            [{"prompt": "P", "response": "A", "compliance": "4_none"}],
            {},
            "labels.csv:2, column compliance: '4_none' is no label; expected yes or no, true or"
            " false, 1 or 0, 1_full_compliance, 2_full_refusal or 3_partial_refusal",
        ),
        (
            [{"response": "A", "compliance": "1_full_compliance"}],
            {},
            "labels.csv: has compliance and no prompt, without which no judge can grade it;"
            " expected a field prompt, or --map prompt=FIELD",
        ),
        (
            [{"prompt": "P", "response": "A", "refused": "no", "harm": 0}],
            {},
            "labels.csv: harm is a label of safety, and refused of refusal; expected one of the"
            " two, chosen with --map unsafe=FIELD or --map compliance=FIELD",
        ),
        (
            [{"prompt": "P", "response": "A", "refused": "no", "compliance": "yes"}],
            {},
            "labels.csv: refused and compliance are both labels of refused; expected one, chosen"
            " with --map refused=FIELD",
        ),
        (
            [{"response": "A", "unsafe": ""}],
            {},
            "labels.csv: no row has a label; expected one in unsafe",
        ),
        (
            [{"response": "A", "unsafe": "no"}],
            {"unsafe": "human"},
            "--map unsafe=human: labels.csv has no such field; valid: response, unsafe",
        ),
        (
            [{"response": "A", "unsafe": "no"}],
            {"unsave": "unsafe"},
            "--map unsave=unsafe: unknown name 'unsave'; did you mean 'unsafe' or 'unsafe_2' or"
            " 'unsafe_1'?",
        ),
        (
            [{"response": "A", "unsafe": "no", "unsafe_1": "no"}],
            {},
            "labels.csv: unsafe and unsafe_1 are both labels of unsafe; expected one rater or"
            " numbered ones, chosen with --map unsafe=FIELD",
        ),
        (
            [{"response": "A", "safe": "no", "unsafe": "no"}],
            {},
            "labels.csv: safe and unsafe are both labels of unsafe; expected one, chosen with --map unsafe=FIELD",
        ),
        (
            [{"response": "A", "human": "no"}],
            {"safe": "human", "unsafe": "human"},
            "labels.csv: human and human are both labels of unsafe; expected one, chosen with --map unsafe=FIELD",
        ),
        (
            [{"response": "A", "unsafe_1": "no", "rater": "ana"}],
            {},
            "labels.csv: names raters in rows (rater) and in columns (unsafe_1); expected one of"
            " the two",
        ),
        (
            [{"response": "A", "harm": 0, "helpfulness": 4}],
            {},
            "labels.csv: has helpfulness and no prompt, without which no judge can grade it;"
            " expected a field prompt, or --map prompt=FIELD",
        ),
    ],
)
def test_an_error_names_the_row_and_the_column(
    tmp_path: Path, rows: Rows, columns: Mapping[str, str], line: str
) -> None:
    assert refused(csv_file(tmp_path, rows), columns) == [line]


def test_the_same_fault_is_one_line(tmp_path: Path) -> None:
    rows: Iterable[Mapping[str, Any]] = [{"response": "A", "unsafe": "?"}] * 500
    (line,) = refused(json_lines(tmp_path / "labels.jsonl", rows))
    assert line.startswith("labels.jsonl:1, field unsafe: '?' is no label;")
    assert line.endswith("(and in 499 more records)")


@pytest.mark.parametrize(
    ("fields", "suggested"),
    [
        (["is_safe"], "--map safe=is_safe"),
        (["is_harmful"], "--map unsafe=is_harmful"),
        (["is_safe_1", "is_safe_2"], "--map safe_1=is_safe_1 --map safe_2=is_safe_2"),
        (["Is it safe?"], "--map 'safe=Is it safe?'"),
        (["is_safe", "guard says unsafe"], "--map safe=is_safe"),
    ],
)
def test_the_option_that_is_suggested_has_the_direction_of_the_heading(
    tmp_path: Path, fields: list[str], suggested: str
) -> None:
    (line,) = refused(csv_file(tmp_path, [{"response": "A", **dict.fromkeys(fields, "yes")}]))
    assert f" or {suggested}; its fields: response" in line


@pytest.mark.parametrize(
    ("field", "meant"), [("Rater", "rater"), ("Prompt", "prompt"), ("Unsafe_2", "unsafe_2")]
)
def test_a_name_that_is_nearly_ours_is_refused(tmp_path: Path, field: str, meant: str) -> None:
    path = csv_file(tmp_path, [{"response": "A", "unsafe_1": "yes", field: "no"}])
    (line,) = refused(path)
    assert line.startswith(f"labels.csv, field {field}: is not known; did you mean '{meant}'?")
    if field != "Unsafe_2":  # what is mapped has its name from there
        read_labelled(path, {meant if field == "Prompt" else "group": field})


def test_blanks_around_a_name_do_not_count(tmp_path: Path) -> None:
    rows = [
        {"id": " a", "response": " A ", "unsafe": " yes ", "rater": "ana "},
        {"id": "a ", "response": " A ", "unsafe": "no", "rater": " ben"},
    ]
    file = read_labelled(csv_file(tmp_path, rows))
    assert file.ratings.raters == ("ana", "ben")
    assert [item.response for item in file.responses] == [" A "]
