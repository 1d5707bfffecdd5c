"""Prompt-sets in every format that is read, dataset cards, seeds, and what is fetched from the
hub.
"""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuzz.contract import FUZZ, attempt, write
from fuzz.faults import TEXTS, damaged, damaged_json, damaged_lines, damaged_text
from opensafeintent.construction.seeds import read_seeds
from opensafeintent.promptsets import load_dataset
from opensafeintent.promptsets.sources import _jsonl_column
from promptsets.samples import FLAT, NESTED, ours

CELLS = [
    {key: value if isinstance(value, str) else json.dumps(value) for key, value in FLAT.items()}
    | {"id": str(n)}
    for n in range(3)
]
SEEDS = [{"prompt": "how to pick a lock", "source": "x"}, {"prompt": "how to break a window"}]
CARD = """---
license: mit
configs:
- config_name: default
  data_files:
  - split: train
    path: "*.jsonl"
---
# Sets
"""


def load(path: Path) -> None:
    """Read a dataset as every command does, and do what every command does with it."""
    dataset = load_dataset(str(path))
    assert dataset.hash
    for prompt_set in dataset.prompt_sets:
        json.dumps(prompt_set.to_json()).encode()


def as_csv(records: list[dict[str, str]]) -> str:
    text = io.StringIO(newline="")
    rows = csv.DictWriter(text, records[0])
    rows.writeheader()
    rows.writerows(records)
    return text.getvalue()


@FUZZ
@given(content=damaged_lines([ours(n) for n in range(3)]))
def test_our_lines(tmp_path: Path, content: bytes) -> None:
    attempt("prompt-sets, ours (JSONL)", load, write(tmp_path / "sets.jsonl", content))


@FUZZ
@given(content=damaged_json([NESTED, NESTED | {"id": "other"}]))
def test_nested(tmp_path: Path, content: bytes) -> None:
    attempt("prompt-sets, the authors' nested (JSON)", load, write(tmp_path / "sets.json", content))


@FUZZ
@given(content=damaged_json([FLAT, FLAT | {"id": "other"}]))
def test_flat(tmp_path: Path, content: bytes) -> None:
    attempt("prompt-sets, the authors' flat (JSON)", load, write(tmp_path / "sets.json", content))


@FUZZ
@given(content=damaged_text(as_csv(CELLS)))
def test_csv(tmp_path: Path, content: bytes) -> None:
    attempt("prompt-sets (CSV)", load, write(tmp_path / "sets.csv", content))


@FUZZ
@given(draw=st.data())
def test_parquet(tmp_path: Path, draw: st.DataObject) -> None:
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    good = io.BytesIO()
    parquet.write_table(pa.Table.from_pylist([FLAT | {"id": "1"}, FLAT | {"id": "2"}]), good)
    content = draw.draw(damaged(good.getvalue()))
    attempt("prompt-sets (Parquet)", load, write(tmp_path / "sets.parquet", content))


@FUZZ
@given(content=damaged_text(CARD))
def test_card(tmp_path: Path, content: bytes) -> None:
    pytest.importorskip("huggingface_hub")
    write(tmp_path / "sets.jsonl", json.dumps(ours(1)).encode())
    write(tmp_path / "README.md", content)
    attempt("dataset card (YAML)", load, tmp_path)


@FUZZ
@given(content=st.one_of(damaged_lines(SEEDS), damaged_lines([ours(1)])))
def test_seeds_in_lines(tmp_path: Path, content: bytes) -> None:
    attempt("seeds (JSONL)", seeds, write(tmp_path / "seeds.jsonl", content))


@FUZZ
@given(content=damaged_text(as_csv([{"prompt": item["prompt"], "source": "x"} for item in SEEDS])))
def test_seeds_in_csv(tmp_path: Path, content: bytes) -> None:
    attempt("seeds (CSV)", seeds, write(tmp_path / "seeds.csv", content))


def seeds(path: Path) -> None:
    """Read seeds; what is kept goes into requests, and so has to be text that can be sent."""
    for seed in read_seeds(str(path)).kept:
        seed.prompt.encode()


@FUZZ
@given(content=damaged_lines(SEEDS))
def test_lines_from_the_hub(tmp_path: Path, content: bytes) -> None:
    def read(path: Path) -> None:
        with path.open("rb") as file:
            list(_jsonl_column(file, "prompt", str(path)))

    attempt("rows from the hub (JSONL)", read, write(tmp_path / "rows.jsonl", content))


@FUZZ
@given(
    name=st.one_of(st.sampled_from(TEXTS), st.text(max_size=50)),
    start=st.sampled_from(("", "hf:", "hf:a/b#", "hf:a/b@")),
)
def test_name_of_a_dataset(name: str, start: str) -> None:
    """A name that leads nowhere; nothing is asked of the hub for one that it does not allow."""
    from opensafeintent.promptsets.sources import _parts

    def read(_: Path) -> Any:
        return _parts(start + name) if start else load_dataset(name + ".jsonl")

    attempt("name of a dataset", read, Path(), named="")


def test_what_is_damaged_is_good_before(tmp_path: Path) -> None:
    for name, content in {
        "a.jsonl": "\n".join(json.dumps(ours(n)) for n in range(3)),
        "b.json": json.dumps([NESTED, NESTED | {"id": "other"}]),
        "c.json": json.dumps([FLAT, FLAT | {"id": "other"}]),
        "d.csv": as_csv(CELLS),
    }.items():
        assert attempt("none", load, write(tmp_path / name, content.encode()))
    assert attempt(
        "none",
        seeds,
        write(tmp_path / "seeds.csv", as_csv([{"prompt": "a lock", "source": "x"}]).encode()),
    )
