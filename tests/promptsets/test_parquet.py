"""Parquet from strangers: read a few rows at a time, within a limit, and refused in one line."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from opensafeintent import load_dataset, write_dataset
from opensafeintent.errors import InputError
from opensafeintent.files import RowLimit
from opensafeintent.promptsets.reading import read_records
from peaks import run
from promptsets.samples import FLAT

pa = pytest.importorskip("pyarrow")

import pyarrow.parquet as pq  # noqa: E402

GIGABYTE = 2**30
CHARACTERS = "500,000,000 characters"


def written(path: Path, table: Any, **options: Any) -> Path:
    pq.write_table(table, path, compression="zstd", **options)
    return path


def flat(count: int, **columns: Any) -> Any:
    """A table of the flat format: every text the same, but for the columns named."""
    columns_of_all = {field: pa.array([value] * count) for field, value in FLAT.items()}
    return pa.table({"id": pa.array([f"s{n}" for n in range(count)])} | columns_of_all | columns)


def refused(path: Path, **how: Any) -> str:
    with pytest.raises(InputError) as caught:
        load_dataset(str(path), **how)
    message = str(caught.value)
    assert message.startswith(str(path)) and "\n" not in message
    return message.removeprefix(str(path))


def repeated(text: str, count: int) -> Any:
    """A text so often, stored once."""
    return pa.DictionaryArray.from_arrays(pa.array([0] * count, pa.int32()), pa.array([text]))


def nulls(count: int) -> Any:
    """One row: a list of so many nulls."""
    return pa.ListArray.from_arrays(pa.array([0, count], pa.int32()), pa.nulls(count, pa.string()))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("table", "limit"),
    [
        # three million rows that are all the same, in less than 200 kB
        (lambda: flat(1).take(pa.array([0] * 3_000_000, pa.int32())), "250,000 rows"),
        # a prompt of 200,000 characters, 20,000 times: 4 GB of text
        (lambda: flat(20_000, prompt_benign=repeated("x" * 200_000, 20_000)), CHARACTERS),
        # one text of 50 MB, 400 times
        (lambda: flat(400, prompt_benign=repeated("x" * 5 * 10**7, 400)), CHARACTERS),
        (lambda: flat(1, dual_use_paraphrases=nulls(50_000_000)), CHARACTERS),
    ],
    ids=["rows", "texts", "one text", "nulls"],
)
def test_a_small_file_of_gigabytes_takes_none(tmp_path: Path, table: Any, limit: str) -> None:
    path = written(tmp_path / "bomb.parquet", table())
    assert path.stat().st_size < 2_000_000
    ran = run("dataset", "check", path)
    assert ran.code == 2
    error_text = ran.error_text.replace("\n", " ")
    assert f"error: {path}: " in error_text
    assert f"more than {limit}; " in error_text
    assert ran.peak < GIGABYTE


def test_what_may_be_read_can_be_raised(tmp_path: Path) -> None:
    path = written(tmp_path / "d.parquet", flat(30), row_group_size=7)
    assert "more than 29 rows" in refused(path, max_rows=29)
    assert len(load_dataset(str(path), max_rows=30).by_id) == 30


@pytest.mark.parametrize("name", ["d.jsonl", "d.json", "d.csv", "d.parquet"])
def test_every_format_has_the_same_limit(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    if name.endswith(".parquet"):
        written(path, pa.table({"a": ["1"] * 5}))
    else:
        rows = {"jsonl": '{"a": "1"}\n' * 5, "json": "[" + '{"a": "1"},' * 4 + "{}]"}
        path.write_text(rows.get(path.suffix[1:], "a\n" + "1\n" * 5))
    assert len(list(read_records(path, limit=RowLimit(5)))) == 5
    with pytest.raises(InputError, match=f"{name}: has more than 4 rows"):
        list(read_records(path, limit=RowLimit(4)))


def test_a_file_of_texts_that_is_longer_than_all_rows_may_be_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "d.jsonl").open("wb") as file:
        file.truncate(500_000_001)
    with pytest.raises(InputError, match=rf"d\.jsonl: holds more than {CHARACTERS}"):
        next(read_records(tmp_path / "d.jsonl"))


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (pa.array([3]), "expected a text, found a number"),
        (pa.array([None], pa.string()), "is empty; expected a text"),
        (pa.array([b"\xff"]), "expected a text, found bytes"),
        (pa.array([["x"]]), "expected a text, found a list"),
        (pa.array([{"x": "y"}]), "expected a text, found an object"),
        (pa.array([10**17], pa.timestamp("us")), "expected a text, found date"),
        (pa.array([[("a", "b")]], pa.map_(pa.string(), pa.string())), "found a list"),
    ],
)
def test_odd_types_are_named_by_row_and_field(tmp_path: Path, column: Any, expected: str) -> None:
    message = refused(written(tmp_path / "d.parquet", flat(1, prompt_benign=column)))
    assert message.startswith(", row 1, field prompt_benign: ")
    assert expected in message


def test_what_cannot_be_used_is_refused(tmp_path: Path) -> None:
    path, unreadable = tmp_path / "d.parquet", "cannot read as Parquet"
    for content in (b"PAR1 and no more PAR1", b""):
        path.write_bytes(content)
        assert unreadable in refused(path)
    date = flat(1, prompt_benign=pa.array([2**60], pa.timestamp("us")))
    twice = flat(1).append_column("prompt_benign", pa.array(["Another?"]))
    for table, fact in (
        (date, unreadable),
        (twice, "the column 'prompt_benign' is there twice"),
        (flat(0), "no prompt-sets in it"),
    ):
        assert fact in refused(written(path, table))


def test_without_the_extra_it_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("pyarrow", "pyarrow.parquet"):
        monkeypatch.setitem(sys.modules, module, None)
    (tmp_path / "d.parquet").write_bytes(b"PAR1")
    extra = r'pip install "\.\[parquet\]"'
    with pytest.raises(InputError, match=extra):
        load_dataset(str(tmp_path / "d.parquet"))
    with pytest.raises(InputError, match=extra):
        write_dataset(load_dataset("starter"), tmp_path / "o.parquet")


@pytest.mark.parametrize(
    "kind", [pa.dictionary(pa.int32(), pa.string()), pa.large_string(), pa.string_view()]
)
def test_a_text_is_a_text_however_it_is_stored(tmp_path: Path, kind: Any) -> None:
    table = flat(2)
    column = table.column_names.index("prompt_benign")
    stored = table.set_column(column, "prompt_benign", table["prompt_benign"].cast(kind))
    expected = load_dataset(str(written(tmp_path / "e.parquet", table)))
    assert load_dataset(str(written(tmp_path / "d.parquet", stored))).hash == expected.hash


def test_a_page_that_fails_its_checksum_is_refused(tmp_path: Path) -> None:
    path, plain = tmp_path / "d.parquet", {"compression": "none", "use_dictionary": False}
    pq.write_table(flat(3), path, write_page_checksum=True, **plain)
    text = FLAT["prompt_benign"].encode()
    path.write_bytes(path.read_bytes().replace(text, text.swapcase()))
    assert "cannot read as Parquet" in refused(path)


def test_names_of_classes_are_read_within_lists_and_structures(tmp_path: Path) -> None:
    classes = {"names": ["no", "yes"], "_type": "ClassLabel"}
    features = {
        "each": {"feature": classes, "_type": "List"},
        "all": {"feature": {"one": classes}, "_type": "Sequence"},  # a structure of lists
        "within": {"one": classes, "feature": {"dtype": "int64", "_type": "Value"}},
        "text": {"dtype": "string", "_type": "Value"},
    }
    rows = [{"each": [0, 1, None], "all": {"one": [1]}, "within": {"one": 1, "n": 1}, "text": "t"}]
    table = pa.Table.from_pylist(rows)

    def read(features: Any) -> Any:
        described = {"huggingface": json.dumps({"info": {"features": features}})}
        path = written(tmp_path / "classes.parquet", table.replace_schema_metadata(described))
        return [row for _, row in read_records(path)]

    assert read(features) == [
        {
            "each": ["no", "yes", None],
            "all": {"one": ["yes"]},
            "within": {"one": "yes", "n": 1},
            "text": "t",
        }
    ]
    for damaged in ([], {"each": []}, {"each": {"_type": "ClassLabel"}}, [{}], 1, None):
        assert read(damaged) == rows
    with pytest.raises(InputError, match="class 1 of a ClassLabel with 1 names"):
        read({"within": {"one": {"names": ["no"], "_type": "ClassLabel"}}})
