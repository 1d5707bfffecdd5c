"""Datasets on the hub, from a hub of our own on the loopback."""

from __future__ import annotations

import csv
import gzip
import io
import json
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from endtoend import Ran
from opensafeintent import OpenSafeIntentError, load_dataset, write_dataset
from promptsets.fake_hub import COMMITS, REPO, FakeHub, hub_command
from promptsets.samples import FLAT, NESTED, lines, ours

NOWHERE = "http://127.0.0.1:9"
"""Port 9, "discard": nothing listens there."""
CARD = {"README.md": b"# A card", "dataset_infos.json": b"{}", "figure.png": b""}
TWO_FILES = CARD | {"data/train.jsonl": lines(ours(1)), "data/test.json": lines(ours(2))}


def convert(name: str, hub: str, folder: Path, **environment: str) -> Ran:
    """Run `dataset convert`."""
    out = str(folder / "o.jsonl")
    return hub_command(hub, folder, "dataset", "convert", name, "--out", out, **environment)


@pytest.fixture(autouse=True)
def _extra() -> None:
    pytest.importorskip("huggingface_hub")


def refusal(ran: Ran) -> str:
    """Return the one line that a command ended with."""
    assert ran.code == 2, ran.err
    assert "Traceback" not in ran.err
    return ran.err.rstrip("\n").split("\n")[-1]


def hash_of(folder: Path, *records: Mapping[str, object]) -> str:
    (folder / "expected.jsonl").write_bytes(lines(*records))
    return load_dataset(str(folder / "expected.jsonl")).hash


def served(files: Mapping[str, bytes], name: str, folder: Path) -> str:
    """Convert a dataset of a hub that has these files; return the hash of what was written."""
    with FakeHub({COMMITS["main"]: files, COMMITS["v1"]: {"d.jsonl": lines(ours(3))}}) as hub:
        ran = convert(name, hub.url, folder)
    assert ran.code == 0, ran.err
    return load_dataset(str(folder / "o.jsonl")).hash


@pytest.mark.slow
def test_all_data_files_of_a_revision_are_one_dataset(tmp_path: Path) -> None:
    expected = hash_of(tmp_path, ours(1), ours(2))
    assert served(TWO_FILES, f"hf:{REPO}", tmp_path) == expected
    assert served(TWO_FILES, f"hf:{REPO}@v1", tmp_path) == hash_of(tmp_path, ours(3))


def test_parquet_stands_for_the_same_rows_as_json_beside_it(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    for name in ("d.parquet", "d.jsonl"):
        write_dataset(load_dataset("starter"), tmp_path / name)
    files = {name: (tmp_path / name).read_bytes() for name in ("d.parquet", "d.jsonl")}
    assert served(files, f"hf:{REPO}", tmp_path) == load_dataset("starter").hash


@pytest.mark.slow
def test_what_was_fetched_once_is_there_without_a_network(tmp_path: Path) -> None:
    served(TWO_FILES, f"hf:{REPO}", tmp_path)
    (tmp_path / "o.jsonl").unlink()
    for offline in ({}, {"HF_HUB_OFFLINE": "1"}):
        assert convert(f"hf:{REPO}", NOWHERE, tmp_path, **offline).code == 0
        assert len(load_dataset(str(tmp_path / "o.jsonl"))) == 2
    error_text = refusal(convert(f"hf:{REPO}@v1", NOWHERE, tmp_path))
    assert "cannot reach the hub" in error_text and "revision 'v1'" in error_text


@pytest.mark.parametrize(
    ("name", "fact"),
    [
        ("hf:someone/else", "no dataset someone/else, or it needs a token (HF_TOKEN)"),
        (f"hf:{REPO}@v9", f"no revision 'v9' of {REPO}"),
        (f"hf:{REPO}@v1", "holds no .jsonl, .json, .parquet, .csv or .xlsx file"),
        (f"hf:{REPO}", f"hf:{REPO}#d.jsonl:1, field prompts: missing"),
    ],
)
def test_what_the_hub_does_not_have(tmp_path: Path, name: str, fact: str) -> None:
    with FakeHub({COMMITS["main"]: {"d.jsonl": b'{"a": 1}'}, COMMITS["v1"]: CARD}) as hub:
        assert fact in refusal(convert(name, hub.url, tmp_path))


@pytest.mark.parametrize(("how", "fact"), [("gated", "HF_TOKEN"), ("drops", f"hf:{REPO}: ")])
def test_a_hub_that_does_not_give_is_one_clear_line(tmp_path: Path, how: str, fact: str) -> None:
    with FakeHub({COMMITS["main"]: TWO_FILES}, **{how: True}) as hub:
        assert fact in refusal(convert(f"hf:{REPO}", hub.url, tmp_path))


# Which files
# ------------------------------------------------------------------------------

BOTH = {
    "sets-700.json": json.dumps([FLAT]).encode(),
    "nested/sets-115.json": json.dumps([NESTED | {"id": "b"}]).encode(),
}


@pytest.mark.slow
def test_two_formats_are_two_datasets_and_one_has_to_be_named(tmp_path: Path) -> None:
    with FakeHub({COMMITS["main"]: BOTH}) as hub:
        error_text = refusal(convert(f"hf:{REPO}", hub.url, tmp_path))
        for place in ("nested format in hf:{}#nested/sets-115", "flat format in hf:{}#sets-700"):
            assert place.format(REPO) in error_text
        nested = NESTED | {"id": "b"}
        for chosen, record in (("sets-700.json", FLAT), ("nested", nested), ("nested/", nested)):
            assert convert(f"hf:{REPO}@main#{chosen}", hub.url, tmp_path).code == 0
            assert load_dataset(str(tmp_path / "o.jsonl")).hash == hash_of(tmp_path, record)
        absent = refusal(convert(f"hf:{REPO}#sets-7.json", hub.url, tmp_path))
    assert "#sets-7.json: holds no .jsonl" in absent


@pytest.mark.slow
def test_one_file_alone_is_fetched_and_never_taken_for_the_whole(tmp_path: Path) -> None:
    with FakeHub({COMMITS["main"]: TWO_FILES}) as hub:
        assert convert(f"hf:{REPO}#data/test.json", hub.url, tmp_path).code == 0
    assert set(hub.fetched) == {"data/test.json"}
    assert convert(f"hf:{REPO}#data/test.json", NOWHERE, tmp_path).code == 0
    assert "is not in its cache" in refusal(convert(f"hf:{REPO}", NOWHERE, tmp_path))


def card(configs: object) -> bytes:
    """Return a dataset card that names these configurations: JSON is YAML too."""
    return b"---\nconfigs: " + json.dumps(configs).encode() + b"\n---\n# A card\n"


OF_SPLIT = [{"split": "test", "path": ["data/*.jsonl"]}]
CARDS = [
    [
        {"config_name": "a", "data_files": "b.json"},
        {"config_name": "x", "default": True, "data_files": "data/t*.jsonl"},
    ],
    [{"config_name": "default", "data_files": OF_SPLIT}, {"config_name": "a"}],
    [{"config_name": "only", "data_dir": "data"}],
    [{"config_name": "only", "data_files": {"train": "**/train.jsonl"}}],
]


@pytest.mark.parametrize("configs", CARDS)
def test_the_card_says_which_files_are_the_dataset(tmp_path: Path, configs: object) -> None:
    files = {"README.md": card(configs), "data/train.jsonl": lines(ours(1))}
    files |= {"b.json": lines(ours(2)), "c.parquet": b"no"}
    assert served(files, f"hf:{REPO}", tmp_path) == hash_of(tmp_path, ours(1))


TWO_CONFIGS = [{"config_name": name, "data_files": f"{name}.json"} for name in "ab"]


@pytest.mark.parametrize(
    ("readme", "complaint"),
    [
        (card(TWO_CONFIGS), "no default; name a file of one (a: {}/a.json; b: {}/b.json)"),
        (card([{"data_files": "c*.json"}]), "(c*.json) there is no .jsonl, .json"),
        (card([{"data_files": "../a.json"}]), "outside its folder: ../a.json"),
        (card([{"data_files": "/etc/a.json"}]), "names data files outside its folder: /etc/a.json"),
        (b"---\nconfigs: [\n---\n", "not YAML"),
    ],
)
def test_a_card_that_names_no_file_is_refused(
    tmp_path: Path, readme: bytes, complaint: str
) -> None:
    (tmp_path / "README.md").write_bytes(readme)
    for name in ("a.json", "b.json"):
        (tmp_path / name).write_bytes(lines(ours(1)))
    with pytest.raises(OpenSafeIntentError) as caught:
        load_dataset(str(tmp_path))
    assert f"{tmp_path}/README.md: " in str(caught.value)
    assert complaint.format(tmp_path, tmp_path) in str(caught.value)


def test_csv_of_the_flat_format(tmp_path: Path) -> None:
    flat = FLAT | {"prompt_dual_use": 'Two lines,\nand "quotes"'}
    file = io.StringIO()
    writer = csv.DictWriter(file, [*flat, "prompt_dual_use_4"])
    writer.writeheader()
    writer.writerow(flat)  # an empty cell: there is no fourth wording
    files = {"sets.csv": file.getvalue().encode()}
    assert served(files, f"hf:{REPO}", tmp_path) == hash_of(tmp_path, flat)


@pytest.mark.parametrize(
    ("text", "fact"),
    [
        ("prompt_benign,prompt_benign\na,b\n", ": the column 'prompt_benign' is there twice"),
        ("prompt_benign,id\na,b,c\n", ":2: has 3 cells, and the header names 2"),
        ('prompt_benign\n"a\n', ":2: cannot read as CSV from here (unexpected end of data)"),
        ("prompt_benign,id\r\n\r\na\r\n", ":3: has 1 cell, and the header names 2"),
        ('prompt_benign\n"a\n\nb"c\n', ":2: cannot read as CSV from here (','"),
        ("prompt_benign\na\n\0\n", ":3: holds a NUL character"),
        ("", ": no prompt-sets in it"),
    ],
)
def test_a_broken_csv_file_is_refused(tmp_path: Path, text: str, fact: str) -> None:
    (tmp_path / "sets.csv").write_text(text)
    with pytest.raises(OpenSafeIntentError) as caught:
        load_dataset(str(tmp_path / "sets.csv"))
    assert f"sets.csv{fact}" in str(caught.value)


# Names
# ------------------------------------------------------------------------------


BAD_NAMES = (
    *("hf:", "hf:name", "hf:a/b/c", "hf:a/b@", "hf:a b/c", "hf:a/b#", "hf:a/b#x/../y", "hf:a/b#*"),
    *("hf:é/sets", "hf:../..", "hf:some--one/sets", "hf:-a/b", "hf:a/b.git", "hf:a/" + "b" * 97),
)


@pytest.mark.parametrize("name", BAD_NAMES)
def test_a_name_that_the_hub_does_not_allow_is_refused(name: str) -> None:
    with pytest.raises(OpenSafeIntentError, match=r"^hf:.*: not a "):
        load_dataset(name)


def test_without_the_extra_the_hub_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(OpenSafeIntentError, match=r'pip install "\.\[hf\]"'):
        load_dataset(f"hf:{REPO}")


def test_a_workbook_beside_data_is_no_part_of_it(tmp_path: Path) -> None:
    files = {"sets.jsonl.gz": gzip.compress(json.dumps(ours()).encode()), "notes.xlsx": b"PK"}
    with FakeHub({COMMITS["main"]: files}) as hub:
        ran = convert(f"hf:{REPO}", hub.url, tmp_path)
    assert ran.code == 0, ran.err
