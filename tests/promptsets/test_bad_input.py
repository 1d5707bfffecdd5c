"""Bad input is refused with its file, line and field, and with what would be valid."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from opensafeintent import OpenSafeIntentError, check_dataset, load_dataset
from promptsets.samples import FLAT, NESTED, OURS, lines, ours, without

NO_BENIGN = ("generated_prompts", "benign_prompt")
DOMAIN, TYPE = "Hate and Harrassment", "Explaination"


def prompts(**changed: Any) -> dict[str, Any]:
    """Our record with some of its prompts changed."""
    return ours(prompts=OURS["prompts"] | changed)


def complaint_about(path: Path, content: bytes) -> str:
    """Write a file, load it, and return the one line that it is refused with."""
    path.write_bytes(content)
    with pytest.raises(OpenSafeIntentError) as caught:
        load_dataset(str(path))
    assert caught.value.exit_code == 2
    message = str(caught.value)
    assert message.startswith(str(path)) and "\n" not in message
    assert len(message) < len(str(path)) + 600
    return message.removeprefix(str(path))


@pytest.mark.parametrize(
    ("bad", "field", "fact"),
    [
        (ours(harm_domain=DOMAIN), "harm_domain", "did you mean 'Hate and Harassment'"),
        (ours(task_type=TYPE), "task_type", "did you mean 'Explanation'"),
        (ours(harm_domain=["Cyber Compromise"]), "harm_domain", "a list"),
        (without(OURS, "prompts", "benign"), "prompts, field benign", "missing"),
        (without(OURS, "prompts"), "prompts", "generated_prompts"),
        (without(OURS, "prompts", "malicious"), "prompts, field malicious", "missing"),
        (without(NESTED, *NO_BENIGN), "generated_prompts, field benign_prompt", "missing"),
        (without(NESTED, "generation_metadata"), "generation_metadata", "missing"),
        (without(FLAT, "prompt_malicious"), "prompt_malicious", "missing"),
        (without(OURS, "prompts", "dual_use"), "dual_use_paraphrases", "without a dual-use prompt"),
        (without(FLAT, "prompt_dual_use"), "dual_use_paraphrases", "without a dual-use prompt"),
        (prompts(dual_use=""), "prompts, field dual_use", "empty"),
        (FLAT | {"prompt_dual_use_3": ""}, "prompt_dual_use_3", "empty"),
        (prompts(benign=""), "prompts, field benign", "empty"),
        (prompts(benign=" \n\t\u00a0"), "prompts, field benign", "empty"),
        (prompts(benign=True), "prompts, field benign", "true or false"),
        (prompts(maliciuos="x"), "prompts, field maliciuos", "did you mean 'malicious'?"),
        (ours(prompts=["x"]), "prompts", "expected a JSON object, found a list"),
        (ours(dual_use_paraphrases="x"), "dual_use_paraphrases", "found a text"),
        (ours(dual_use_paraphrases=["x", None]), "dual_use_paraphrases[1]", "found null"),
        (ours(dual_use_paraphrases=["x", ""]), "dual_use_paraphrases[1]", "empty"),
        (ours(language=["en"]), "language", "a list"),
        (ours(underlying_task="\ud800"), "underlying_task", "surrogate"),
        (ours(dual_use_paraphrases=["\ude00\ud83d"]), "dual_use_paraphrases[0]", "surrogate"),
        (prompts(benign="a" * 10_000_000), "prompts, field benign", "10,000,000 characters"),
        (ours(harm_domain="a " * 90_000), "harm_domain", "unknown harm domain"),
        (prompts(**{"m" * 10_000: "x"}), "prompts, field m", "unknown variant"),
    ],
)
def test_a_bad_field_has_its_line(
    tmp_path: Path, bad: dict[str, Any], field: str, fact: str
) -> None:
    message = complaint_about(tmp_path / "d.jsonl", lines(ours(1), bad))
    assert message.startswith(f":2, field {field}")
    assert fact in message


def test_anything_but_an_object_is_no_prompt_set(tmp_path: Path) -> None:
    for value, kind in ([OURS], "a list"), ("x", "a text"), (3, "a number"), (None, "null"):
        fact = f": expected a JSON object, found {kind}"
        assert complaint_about(tmp_path / "d.jsonl", lines(ours(1), value)) == f":2{fact}"
        as_list = json.dumps([ours(1), value]).encode()
        assert complaint_about(tmp_path / "d.json", as_list) == f", item 2{fact}"


@pytest.mark.parametrize(
    ("name", "content", "fact"),
    [
        ("d.jsonl", lines(ours(1)) + b'{"id": "a",}\n', ":2: not valid JSON: "),
        ("d.jsonl", lines(ours(1)).rstrip() + lines(ours(2)), ":1: not valid JSON: Extra data"),
        ("d.jsonl", lines(ours(1)) + lines(ours(2))[:-40], "cut off"),
        ("d.jsonl", lines(ours(1)) + b'{"id": Infinity}\n', ":2: not valid JSON: Infinity"),
        ("d.jsonl", lines(ours(1)) + b'{"id": ' + b"1" * 5000 + b"}\n", ":2: not valid JSON: "),
        ("d.jsonl", lines(ours(1)) + b"[" * 100_000 + b"\n", ":2: not valid JSON: "),
        ("d.json", b'[{"a": 1}, ', "cut off"),
        ("d.json", b"[1, 2}", "column 6"),
        ("d.json", b'[\n{"a": "\n"}]', "line 2, column 8"),
        ("d.jsonl", lines(ours(1)) + b'{"id": "\xe9"}\n', ":2: not UTF-8 (byte 0xe9)"),
        ("d.jsonl", lines(ours(1)) + b'{"id": "\xed\xa0\x80"}\n', ":2: not UTF-8 (byte 0xed)"),
        ("d.jsonl", lines(ours(1)).decode().encode("utf-16"), ": is UTF-16; expected UTF-8"),
        ("d.jsonl", b"\xef\xbb\xbf\r\n \r\n", ": no prompt-sets in it"),
        ("d.json", b"", ": no prompt-sets in it"),
        ("d.json", b"{}", ", field prompts: missing"),
    ],
)
def test_an_unreadable_file_says_where(
    tmp_path: Path, name: str, content: bytes, fact: str
) -> None:
    assert fact in complaint_about(tmp_path / name, content)


@given(cut=st.integers(1, len(lines(OURS)) - 2))
def test_a_record_cut_anywhere_is_not_json(tmp_path_factory: Any, cut: int) -> None:
    path = tmp_path_factory.getbasetemp() / "cut.jsonl"
    message = complaint_about(path, lines(ours(1)) + lines(OURS)[:cut])
    assert message.startswith(":2: not valid JSON: ")


def test_an_id_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "d.jsonl"
    for records in (
        [ours(1, id="a"), ours(2, id="a")],
        [ours(1, id="x" * 100_000), ours(2, id="x" * 100_000)],
    ):
        message = complaint_about(path, lines(*records))
        assert message.startswith(":2, field id: duplicate id")
        assert f"first at {path}:1" in message


def test_a_repeated_record_without_an_id_is_called_identical(tmp_path: Path) -> None:
    path = tmp_path / "d.jsonl"
    for records in ([OURS, OURS], [NESTED, FLAT]):
        message = complaint_about(path, lines(*records))
        assert message == f":2: is identical to {path}:1; expected each prompt-set once"
    message = complaint_about(path, lines(OURS, OURS | {"language": "de"}))
    assert message.startswith(f":2: has the labels and prompts of {path}:1")


def test_loading_names_the_first_problem_and_validating_names_all(tmp_path: Path) -> None:
    path = tmp_path / "d.jsonl"
    bad = ours(task_type=TYPE), ours(harm_domain=DOMAIN), without(OURS, "prompts", "benign")
    message = complaint_about(path, lines(ours(1), *bad))
    assert message.startswith(":2, field task_type")
    assert "2 more; `dataset check`" in message
    with pytest.raises(OpenSafeIntentError) as caught:
        check_dataset(str(path))
    places = [line.removeprefix(str(path)).split(": ")[0] for line in str(caught.value).split("\n")]
    assert places == [
        ":2, field task_type",
        ":3, field harm_domain",
        ":4, field prompts, field benign",
    ]


@pytest.mark.parametrize(
    ("name", "facts"),
    [
        ("startr", ("'starter'", "'opensafeintent-115'", "'opensafeintent-700'", ".jsonl")),
        ("n" * 300 + ".jsonl", ("too long",)),
        (".", ("README.md", ".jsonl")),
    ],
)
def test_a_name_that_is_no_dataset_is_refused(name: str, facts: tuple[str, ...]) -> None:
    with pytest.raises(OpenSafeIntentError) as caught:
        load_dataset(name)
    assert all(fact in str(caught.value) for fact in facts)


def test_complaints_that_differ_in_a_value_alone_are_counted_after_five(tmp_path: Path) -> None:
    path = tmp_path / "sets.jsonl"
    path.write_bytes(lines(*(ours(id=f"s{n}", harm_domain=f"Unknown {n}") for n in range(336))))
    with pytest.raises(OpenSafeIntentError) as caught:
        check_dataset(str(path))
    *named, last = caught.value.args
    assert len(named) == 5 and "'Unknown 4'" in named[-1]
    assert last == "and 331 more records with a fault of this kind"
