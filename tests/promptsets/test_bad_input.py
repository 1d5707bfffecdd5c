"""Bad input is refused with its file, line and field, and with what would be valid."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opensafeintent import OpenSafeIntentError, load_dataset, validate_dataset, write_dataset
from promptsets.samples import FLAT, NESTED, OURS, PARAPHRASES, lines, ours, without

DOMAIN, TYPE = "Hate and Harrassment", "Explaination"
PROMPTS = OURS["prompts"]


def complaint_about(path: Path, content: bytes) -> str:
    """Write a file, load it, and return the one line that it is refused with."""
    path.write_bytes(content)
    with pytest.raises(OpenSafeIntentError) as caught:
        load_dataset(str(path))
    assert caught.value.exit_code == 2
    message = str(caught.value)
    assert message.startswith(str(path))
    assert "\n" not in message
    assert len(message) < len(str(path)) + 600
    return message.removeprefix(str(path))


@pytest.mark.parametrize(
    ("bad", "field", "complaint"),
    [
        (
            ours(harm_domain=DOMAIN),
            "harm_domain",
            "'Hate and Harrassment'; did you mean 'Hate and Harassment'",
        ),
        (
            ours(task_type=TYPE),
            "task_type",
            "unknown task type 'Explaination'; did you mean 'Explanation' or",
        ),
        (
            ours(task_type="zzz"),
            "task_type",
            "valid: Explanation, Recommendation and Selection, Planning and Procedure",
        ),
        (ours(harm_domain=""), "harm_domain", "is empty; expected a text"),
        (ours(harm_domain=["Cyber Compromise"]), "harm_domain", "expected a text, found a list"),
        (without(OURS, "harm_domain"), "harm_domain", "missing; expected a text"),
        (without(OURS, "underlying_task"), "underlying_task", "missing; expected a text"),
        (
            without(OURS, "prompts"),
            "prompts",
            "prompts (our format), generated_prompts (the authors' nested format)",
        ),
        (
            without(OURS, "prompts", "malicious"),
            "prompts, field malicious",
            "missing; expected a text",
        ),
        (
            without(NESTED, "generated_prompts", "benign_prompt"),
            "generated_prompts, field benign_prompt",
            "missing",
        ),
        (
            without(NESTED, "generation_metadata"),
            "generation_metadata",
            "missing; expected an object",
        ),
        (
            without(NESTED, "generation_metadata", "topic_summary"),
            "generation_metadata, field topic_summary",
            "missing",
        ),
        (without(FLAT, "prompt_dual_use"), "prompt_dual_use", "missing; expected a text"),
        (FLAT | {"prompt_dual_use_3": ""}, "prompt_dual_use_3", "is empty; expected a text"),
        (
            ours(prompts=PROMPTS | {"malicious": None}),
            "prompts, field malicious",
            "missing; expected a text",
        ),
        (
            ours(prompts=PROMPTS | {"benign": ""}),
            "prompts, field benign",
            "is empty; expected a text",
        ),
        (
            ours(prompts=PROMPTS | {"benign": " \n\t\u00a0"}),
            "prompts, field benign",
            "is empty; expected a text",
        ),
        (
            ours(prompts=PROMPTS | {"benign": 7}),
            "prompts, field benign",
            "expected a text, found a number",
        ),
        (
            ours(prompts=PROMPTS | {"benign": True}),
            "prompts, field benign",
            "expected a text, found true or false",
        ),
        (
            ours(prompts=PROMPTS | {"maliciuos": "x"}),
            "prompts, field maliciuos",
            "did you mean 'malicious'?",
        ),
        (ours(prompts=list(PROMPTS.values())), "prompts", "expected a JSON object, found a list"),
        (ours(prompts="x"), "prompts", "expected a JSON object, found a text"),
        (
            ours(dual_use_paraphrases="x"),
            "dual_use_paraphrases",
            "expected a list of texts, found a text",
        ),
        (
            ours(dual_use_paraphrases={"1": "x"}),
            "dual_use_paraphrases",
            "expected a list of texts, found an object",
        ),
        (
            ours(dual_use_paraphrases=["x", None]),
            "dual_use_paraphrases[1]",
            "expected a text, found null",
        ),
        (
            ours(dual_use_paraphrases=["x", ""]),
            "dual_use_paraphrases[1]",
            "is empty; expected a text",
        ),
        (ours(id=7), "id", "expected a text, found a number"),
        (ours(language=["en"]), "language", "expected a text, found a list"),
        (ours(underlying_task="\ud800"), "underlying_task", "surrogate"),
        (ours(id="a\udfffb"), "id", "surrogate"),
        (ours(harm_domain="Hate\ud800"), "harm_domain", "surrogate"),
        (
            ours(dual_use_paraphrases=[*PARAPHRASES, "\ude00\ud83d"]),
            "dual_use_paraphrases[2]",
            "surrogate",
        ),
        (
            ours(prompts=PROMPTS | {"benign": "a" * 10_000_000}),
            "prompts, field benign",
            "has 10,000,000 characters; at most",
        ),
        (ours(harm_domain="a " * 5_000_000), "harm_domain", "has 10,000,000 characters; at most"),
        (ours(harm_domain="a " * 90_000), "harm_domain", "unknown harm domain"),
        (ours(prompts=PROMPTS | {"m" * 10_000: "x"}), "prompts, field m", "unknown variant"),
    ],
)
def test_a_bad_field_is_named_with_its_line(
    tmp_path: Path, bad: dict[str, Any], field: str, complaint: str
) -> None:
    message = complaint_about(tmp_path / "d.jsonl", lines(ours(1), bad))
    assert message.startswith(f":2, field {field}")
    assert complaint in message


@pytest.mark.parametrize(
    ("value", "kind"), [([OURS], "a list"), ("x", "a text"), (3, "a number"), (None, "null")]
)
def test_anything_but_an_object_is_no_prompt_set(tmp_path: Path, value: object, kind: str) -> None:
    expected = f"expected a JSON object, found {kind}"
    assert complaint_about(tmp_path / "d.jsonl", lines(ours(1), value)) == f":2: {expected}"
    assert complaint_about(tmp_path / "d.jsonl", lines(value, ours(1))).startswith(
        f":1: {expected}"
    )
    assert (
        complaint_about(tmp_path / "d.json", json.dumps([ours(1), value]).encode())
        == f", item 2: {expected}"
    )


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        ("d.jsonl", lines(ours(1)) + b'{"id": "a",}\n', ":2: not valid JSON ("),
        ("d.jsonl", lines(ours(1)) + b"{'id': 'a'}\n", ":2: not valid JSON ("),
        ("d.jsonl", lines(ours(1)).rstrip() + lines(ours(2)), ":1: not valid JSON (Extra data"),
        ("d.jsonl", lines(ours(1)) + lines(ours(2))[:-40], "; it looks cut off"),
        ("d.jsonl", lines(ours(1)) + b'{"id": NaN}\n', ":2: not valid JSON (NaN is not JSON)"),
        ("d.jsonl", lines(ours(1)) + b'{"id": ' + b"1" * 5000 + b"}\n", ":2: not valid JSON ("),
        ("d.jsonl", lines(ours(1)) + b"[" * 100_000 + b"\n", ":2: not valid JSON ("),
        ("d.json", b"[" * 100_000, ": not valid JSON ("),
        ("d.json", b'[{"a": 1}, ', "; it looks cut off"),
        ("d.json", b"[1, 2}", ": not valid JSON (Expecting ',' delimiter, column 6)"),
        ("d.json", b'[\n{"a": "\n"}]', "line 2, column 8"),
        (
            "d.jsonl",
            lines(ours(1)) + b'{"id": "\xe9"}\n',
            ":2: not UTF-8 (byte 0xe9); save the file as UTF-8",
        ),
        (
            "d.jsonl",
            lines(ours(1)) + b'{"id": "\xed\xa0\x80"}\n',
            ":2: not UTF-8 (byte 0xed); save the file as UTF-8",
        ),
        (
            "d.jsonl",
            lines(ours(1)).decode().encode("utf-16"),
            ":1: not UTF-8 (byte 0xff); save the file as UTF-8",
        ),
        ("d.jsonl", b"", ": no prompt-sets in it; expected at least one"),
        ("d.jsonl", b"\xef\xbb\xbf\r\n \r\n", ": no prompt-sets in it; expected at least one"),
        ("d.json", b"", ": no prompt-sets in it; expected at least one"),
        ("d.json", b"[]", ": no prompt-sets in it; expected at least one"),
        ("d.json", b"{}", ", field prompts: missing; a prompt-set has prompts (our format)"),
        ("d.parquet", b"PAR1 and no more PAR1", ": cannot read as Parquet"),
        ("d.parquet", b"", ": cannot read as Parquet"),
    ],
)
def test_a_file_that_cannot_be_read_says_where(
    tmp_path: Path, name: str, content: bytes, complaint: str
) -> None:
    if name.endswith(".parquet"):
        pytest.importorskip("pyarrow")
    assert complaint in complaint_about(tmp_path / name, content)


@given(st.integers(1, len(lines(OURS)) - 2))
def test_a_record_cut_anywhere_is_not_json(
    tmp_path_factory: pytest.TempPathFactory, cut: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "cut.jsonl"
    assert complaint_about(path, lines(ours(1)) + lines(OURS)[:cut]).startswith(
        ":2: not valid JSON ("
    )


@pytest.mark.parametrize(
    ("records", "complaint"),
    [
        (
            [ours(1, id="a"), ours(2, id="b"), ours(3, id="a")],
            ":3, field id: duplicate id 'a', first at {path}:1; ids",
        ),
        ([NESTED, FLAT], ":2, field id: duplicate id"),  # no id of their own, and the same content
        ([ours(1, id="x" * 100_000), ours(2, id="x" * 100_000)], ":2, field id: duplicate id"),
    ],
    ids=["given", "from content", "long"],
)
def test_an_id_that_is_there_twice_is_refused(
    tmp_path: Path, records: list[dict[str, Any]], complaint: str
) -> None:
    path = tmp_path / "d.jsonl"
    assert complaint.format(path=path) in complaint_about(path, lines(*records))


def test_loading_names_the_first_problem_and_validating_names_all(tmp_path: Path) -> None:
    path = tmp_path / "d.jsonl"
    content = lines(
        ours(1), ours(task_type=TYPE), ours(harm_domain=DOMAIN), without(OURS, "underlying_task")
    )
    message = complaint_about(path, content)
    assert message.startswith(":2, field task_type: unknown task type")
    assert message.endswith("(and 2 more; `dataset validate` lists all)")
    with pytest.raises(OpenSafeIntentError) as caught:
        validate_dataset(str(path))
    places = [line.removeprefix(str(path)).split(": ")[0] for line in str(caught.value).split("\n")]
    assert places == [":2, field task_type", ":3, field harm_domain", ":4, field underlying_task"]


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        (
            "startr",
            (
                "no such dataset; valid: 'starter', 'opensafeintent-115', 'opensafeintent-700', the"
                " path of a .jsonl, .json, "
            ),
        ),
        ("n" * 300 + ".jsonl", "too long"),
        (
            ".",
            (
                "is a folder without a dataset card (README.md) that names its data; name the"
                " .jsonl, .json, .parquet or .csv"
            ),
        ),
    ],
)
def test_a_name_that_is_no_dataset_is_refused(name: str, complaint: str) -> None:
    with pytest.raises(OpenSafeIntentError) as caught:
        load_dataset(name)
    assert complaint in str(caught.value)


def test_parquet_with_bytes_for_text_is_not_called_null(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    pq.write_table(
        pa.Table.from_pylist([FLAT | {"id": "a"}, FLAT | {"id": "b"}]), tmp_path / "text.parquet"
    )
    pq.write_table(
        pa.Table.from_pylist([FLAT | {"prompt_benign": b"x"}]), tmp_path / "bytes.parquet"
    )
    assert len(load_dataset(str(tmp_path / "text.parquet"))) == 2
    with pytest.raises(
        OpenSafeIntentError,
        match=r"bytes\.parquet, row 1, field prompt_benign: expected a text, found (?!null)",
    ):
        load_dataset(str(tmp_path / "bytes.parquet"))


def test_parquet_without_rows_is_refused(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"prompt_benign": pa.array([], pa.string())}), tmp_path / "d.parquet")
    with pytest.raises(OpenSafeIntentError, match="no prompt-sets in it; expected at least one"):
        load_dataset(str(tmp_path / "d.parquet"))


def test_without_the_extra_parquet_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("pyarrow", "pyarrow.parquet"):
        monkeypatch.setitem(sys.modules, module, None)
    (tmp_path / "d.parquet").write_bytes(b"PAR1")
    with pytest.raises(OpenSafeIntentError, match=r'pip install "opensafeintent\[parquet\]"'):
        load_dataset(str(tmp_path / "d.parquet"))
    with pytest.raises(OpenSafeIntentError, match=r'pip install "opensafeintent\[parquet\]"'):
        write_dataset(load_dataset("starter"), tmp_path / "o.parquet")
