"""The three shapes of a prompt-set are one record, and a dataset is its content, not its file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from opensafeintent import OpenSafeIntentError, load_dataset, write_dataset
from opensafeintent.promptsets import Dataset
from promptsets.samples import FLAT, NESTED, OURS, PARAPHRASES, lines, ours, without


def load_bytes(path: Path, content: bytes) -> Dataset:
    path.write_bytes(content)
    return load_dataset(str(path))


@pytest.mark.parametrize("written", [OURS, NESTED, FLAT], ids=["ours", "nested", "flat"])
def test_the_three_formats_are_read_as_one(tmp_path: Path, written: dict[str, Any]) -> None:
    dataset = load_bytes(tmp_path / "d.json", json.dumps([written]).encode())
    (prompt_set,) = dataset.prompt_sets
    record = json.loads(json.dumps(prompt_set.to_json()))
    assert record == OURS | {"id": prompt_set.id}
    assert list(prompt_set.wordings().values()) == [*OURS["prompts"].values(), *PARAPHRASES]
    assert dataset.hash == load_bytes(tmp_path / "ours.jsonl", lines(OURS)).hash


OTHER = ours(2, id="b", language="fr", dual_use_paraphrases=[])
RECORDS = [ours(1, id="a"), OTHER, ours(3, id="c")]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("d.jsonl", lines(*reversed(RECORDS))),
        ("d.json", json.dumps(RECORDS, indent=2).encode()),
        ("d.json", lines(*RECORDS)),  # lines under the name of a list
        ("d.jsonl", json.dumps(RECORDS).encode()),  # a list under the name of lines
        ("d.jsonl", b"\xef\xbb\xbf" + lines(*RECORDS)),
        ("d.json", b"\xef\xbb\xbf" + json.dumps(RECORDS).encode()),
        ("d.jsonl", lines(*RECORDS).replace(b"\n", b"\r\n")),
        ("d.jsonl", lines(*RECORDS).replace(b"\n", b"\n\n \n").rstrip()),
        ("d.jsonl", lines(*RECORDS).decode("unicode_escape").encode()),
        ("D.JSONL", lines(*RECORDS)),
    ],
)
def test_a_dataset_is_its_content(tmp_path: Path, name: str, content: bytes) -> None:
    plain = load_bytes(tmp_path / "plain.jsonl", lines(*RECORDS))
    assert load_bytes(tmp_path / name, content).hash == plain.hash


@pytest.mark.parametrize(
    "changes",
    [
        *({"id": "a2"}, {"underlying_task": "another"}, {"dual_use_misuse_risk": "another"}),
        *({"dual_use_paraphrases": PARAPHRASES[::-1]}, {"dual_use_paraphrases": PARAPHRASES[:1]}),
        *({"content_shift": "none"}, {"harm_domain": "Fraud and Deception"}, {"language": "fr"}),
        {"prompts": ours(4)["prompts"]},
    ],
)
def test_another_content_is_another_dataset(tmp_path: Path, changes: dict[str, Any]) -> None:
    plain = load_bytes(tmp_path / "plain.jsonl", lines(RECORDS[0]))
    assert load_bytes(tmp_path / "other.jsonl", lines(RECORDS[0] | changes)).hash != plain.hash


@pytest.mark.parametrize("content_shift", ["partial", None])
def test_how_much_of_an_answer_changes_may_be_said(
    tmp_path: Path, content_shift: str | None
) -> None:
    path = tmp_path / "d.jsonl"
    (item,) = load_bytes(path, lines(ours(content_shift=content_shift))).prompt_sets
    assert item.content_shift == content_shift
    assert item.to_json().get("content_shift", None) == content_shift
    with pytest.raises(OpenSafeIntentError, match=r"field content_shift: .* partial, full"):
        load_bytes(path, lines(ours(content_shift="wide")))


def test_an_id_comes_from_what_a_set_asks(tmp_path: Path) -> None:
    records = [OURS, ours(1), OURS | {"id": "given"}, OURS | {"task_type": "Optimization"}]
    ids = [*load_bytes(tmp_path / "d.jsonl", lines(*records)).by_id]
    assert ids[2] == "given" and len(ids) == 4
    # the same questions in another format, with other annotations
    bare = without(FLAT, "source") | {"underlying_task": "told otherwise"}
    assert load_bytes(tmp_path / "flat.jsonl", lines(bare)).prompt_sets[0].id == ids[0]


def test_no_paraphrases_and_more_than_four(tmp_path: Path) -> None:
    bare = without(ours(1), "dual_use_paraphrases")
    content = lines(bare, ours(2, dual_use_paraphrases=None), ours(3, dual_use_paraphrases=[]))
    dataset = load_bytes(tmp_path / "d.jsonl", content)
    assert [item.dual_use_paraphrases for item in dataset.prompt_sets] == [(), (), ()]
    assert dataset.variants == ("benign", "dual_use", "malicious")

    six = [f"wording {n}" for n in range(1, 7)]
    dataset = load_bytes(tmp_path / "d.jsonl", lines(bare, ours(2, dual_use_paraphrases=six)))
    assert dataset.variants[3:] == tuple(f"dual_use_paraphrase_{n}" for n in range(1, 7))
    assert dataset.prompt_sets[1].wordings()["dual_use_paraphrase_6"] == "wording 6"


def test_parquet_and_back_is_the_same_dataset(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    bare = without(without(ours(1), "source"), "dual_use_paraphrases")
    odd = ours(2, underlying_task="Fünf\u2028Messer\r\n")
    dataset = load_bytes(tmp_path / "d.jsonl", lines(bare, odd))
    for name in ("one.jsonl", "two.parquet", "three.jsonl", "deeper/four.parquet"):
        write_dataset(dataset, tmp_path / name)
        again = load_dataset(str(tmp_path / name))
        assert again.hash == dataset.hash, name
        assert again.prompt_sets == dataset.prompt_sets, name
        dataset = again
    assert (tmp_path / "one.jsonl").read_bytes() == (tmp_path / "three.jsonl").read_bytes()


def test_a_file_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    valid = r"\.jsonl, \.parquet"
    refused = {"d.csv": valid, "d": valid, "d.json": valid, "file/d.jsonl": "cannot write"}
    for name, fact in refused.items():
        with pytest.raises(OpenSafeIntentError, match=fact):
            write_dataset(load_dataset("starter"), tmp_path / name)
    assert [file.name for file in tmp_path.iterdir()] == ["file"]


def test_the_published_text_is_read_to_the_letter(published: Path) -> None:
    raw = json.loads((published / "opensafeintent-700.json").read_text("utf-8"))
    sets = load_dataset(str(published / "opensafeintent-700.json")).prompt_sets
    for record, prompt_set in zip(raw, sets, strict=True):
        fields = ("benign", "dual_use", "malicious", *(f"dual_use_{n}" for n in range(2, 6)))
        texts = [record[f"prompt_{field}"] for field in fields]
        assert texts == list(prompt_set.wordings().values())
        assert record["underlying_task"] == prompt_set.underlying_task


def test_scored_files_of_one_dataset_are_one_dataset(tmp_path: Path, published: Path) -> None:
    records = json.loads((published / "scored-sample.json").read_text("utf-8"))
    fields = NESTED.keys()
    bare = [{field: record[field] for field in fields & record.keys()} for record in records]
    assert bare[0].keys() < records[0].keys()  # something was taken off: responses, grades
    scored = load_dataset(str(published / "scored-sample.json"))
    assert load_bytes(tmp_path / "bare.json", json.dumps(bare).encode()).hash == scored.hash
