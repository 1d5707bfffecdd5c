"""Tables from strangers, mutated: each reader returns what is valid, or one line that names the
file.
"""

from __future__ import annotations

import io
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from annotation.forms import judge_study, page_file
from fuzz.contract import FUZZ, attempt
from opensafeintent.annotation.forms import render_sheet
from opensafeintent.annotation.importing import import_returns
from opensafeintent.annotation.labels import read_labels
from opensafeintent.construction.seeds import read_seeds
from opensafeintent.promptsets import load_dataset
from promptsets.samples import FLAT, NESTED, OURS

STUDY = judge_study([f"Response number {n} about the Varo scanner." for n in range(3)], ["ana"])
FORM = render_sheet(STUDY.key, "ana", STUDY.texts["ana"])
with tempfile.TemporaryDirectory() as _folder:
    PAGE = page_file(STUDY, Path(_folder) / "ana.json").read_bytes()
FIELDS = {field: value for field, value in FLAT.items() if isinstance(value, str)}
CSV = (
    "id,"
    + ",".join(FIELDS)
    + "\n"
    + "".join(f'{n},"' + '","'.join(FIELDS.values()) + '"\n' for n in range(3))
).encode()
SEEDS = b'prompt,note\r\n"One, and\r\nmore?",x\r\nTwo?,y\r\n"A ""third""?",\r\n'
JSON = json.dumps([OURS | {"id": "a"}, NESTED | {"id": "b"}, FLAT | {"id": "c"}]).encode()
LINES = b"".join(json.dumps(one).encode() + b"\n" for one in (OURS, FLAT | {"id": "x"}))
LABELS = (
    b'{"kind":"judge_validation","annotator":"ana","dataset":"d","id":"s","variant":"benign","model":"m","answers":{"helpfulness":3}}\n'
    * 2
)

TOKENS = st.sampled_from(
    [
        *(
            b"\0",
            b'"',
            b"'",
            b",",
            b"\n",
            b"\r",
            b"\xe2\x80\xa8",
            b"\xc2\x85",
            b"\x0b",
            b"\xef\xbb\xbf",
            b"\xff\xfe",
        ),
        *(
            b"\xed\xa0\x80",
            b"[" * 3_000,
            b"{",
            b"}",
            b"]",
            b":",
            b"1" * 5_000,
            b"1e999",
            b"NaN",
            b"null",
            b'"\\ud800"',
        ),
        *(b"\\", b"-1", b"<", b">", b"&x;", b"999999999", b"(1 of 99999)", b"A1:XFD1048576"),
    ]
)


@st.composite
def mutated(draw: Any, whole: bytes, most: int = 4) -> bytes:
    """Bytes that were flipped, cut out, doubled, moved or replaced by what readers stumble over."""
    raw = whole
    for _ in range(draw(st.integers(1, most))):
        start = draw(st.integers(0, len(raw)))
        end = min(len(raw), start + draw(st.integers(0, 40)))
        middle = draw(
            st.one_of(
                TOKENS,
                st.binary(max_size=4),
                st.just(b""),
                st.just(raw[start:end] * 2),
                st.just(raw[end : end + 80]),
            )
        )
        raw = raw[:start] + middle + raw[end:]
    return raw


def holds(read: Callable[[Path], object], name: str, raw: bytes) -> None:
    """Read a file of these bytes: it is valid, or refused with lines that each name it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(raw)
        attempt(f"{name}, mutated", read, path)


def returned(path: Path) -> object:
    return import_returns([path], STUDY.key)


def dataset(path: Path) -> object:
    return load_dataset(str(path)).hash


@FUZZ
@given(mutated(FORM))
def test_a_sheet_that_was_edited(raw: bytes) -> None:
    holds(returned, "ana.csv", raw)


@FUZZ
@given(mutated(PAGE))
def test_a_page_that_was_edited(raw: bytes) -> None:
    holds(returned, "ana.json", raw)


@FUZZ
@given(mutated(CSV))
def test_a_dataset_in_csv(raw: bytes) -> None:
    holds(dataset, "sets.csv", raw)


@FUZZ
@given(mutated(JSON))
def test_a_dataset_in_json(raw: bytes) -> None:
    holds(dataset, "sets.json", raw)


@FUZZ
@given(mutated(LINES))
def test_a_dataset_in_json_lines(raw: bytes) -> None:
    holds(dataset, "sets.jsonl", raw)


@FUZZ
@given(st.data(), st.sampled_from(["flat", "nested"]))
def test_a_dataset_in_parquet(data: st.DataObject, shape: str) -> None:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    file = io.BytesIO()
    rows = (
        [{"id": str(n), **FIELDS} for n in range(5)]
        if shape == "flat"
        else [OURS | {"id": str(n)} for n in range(5)]
    )
    pq.write_table(pa.Table.from_pylist(rows), file, row_group_size=3)
    holds(dataset, "sets.parquet", data.draw(mutated(file.getvalue())))


@FUZZ
@given(mutated(SEEDS))
def test_seeds_in_csv(raw: bytes) -> None:
    holds(lambda path: read_seeds(str(path)), "seeds.csv", raw)


@FUZZ
@given(mutated(b'{"prompt": "One?"}\n{"prompt": "Two?", "note": [1, {"a": null}]}\n'))
def test_seeds_in_json_lines(raw: bytes) -> None:
    holds(lambda path: read_seeds(str(path)), "seeds.jsonl", raw)


@FUZZ
@given(mutated(LABELS))
def test_labels(raw: bytes) -> None:
    holds(read_labels, "labels.jsonl", raw)


@FUZZ
@given(
    st.lists(
        st.text().filter(lambda text: "\0" not in text and text.strip()), min_size=1, max_size=8
    )
)
def test_seeds_that_a_program_wrote_as_csv_are_read_as_they_are(prompts: list[str]) -> None:
    """Python's own writer is the other program: every prompt comes back, and no other."""
    import csv

    file = io.StringIO(newline="")
    csv.writer(file, quoting=csv.QUOTE_ALL).writerows(
        [["prompt", "n"], *([text, n] for n, text in enumerate(prompts))]
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "seeds.csv"
        try:
            path.write_bytes(file.getvalue().encode())
        except UnicodeEncodeError:
            return
        found = read_seeds(str(path))
    assert found.count_in == len(prompts)
    distinct = dict.fromkeys(" ".join(text.split()).casefold() for text in prompts)
    assert [" ".join(seed.prompt.split()).casefold() for seed in found.kept] == [
        text for text in distinct if text
    ]
