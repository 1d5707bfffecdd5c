"""Files of responses that were made elsewhere."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from opensafeintent.calls.recorded import RecordedResponse, read_recorded
from opensafeintent.errors import InputError

LINE = {"id": "s1", "variant": "benign", "response": "Hello."}


def write(path: Path, *lines: dict[str, Any] | str) -> Path:
    file = path / "responses.jsonl"
    file.write_text(
        "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines), "utf-8"
    )
    return file


def test_every_field_is_read(tmp_path: Path) -> None:
    grades = {"helpfulness": 4, "harm_severity": 0, "mode": "A3", "strategy": "constrained"}
    full = {"variant": "dual_use_paraphrase_12", "epoch": 3, "response": "", **grades}
    graded_only = {"variant": "malicious", "helpfulness": 1, "harm_severity": 3, "response": None}
    lines = [{**full, "id": "s2", "stop_reason": "length"}, {**graded_only, "id": "s3"}]
    assert read_recorded(write(tmp_path, LINE, "", *lines)) == [
        RecordedResponse(set_id="s1", variant="benign", response="Hello."),
        RecordedResponse(set_id="s2", stop_reason="length", **full),
        RecordedResponse(set_id="s3", **graded_only),
    ]


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"id": None}, "field id: missing"),
        ({"id": " "}, "field id: is empty"),
        ({"variant": "bening"}, "field variant: unknown variant 'bening'; did you mean 'benign'"),
        ({"variant": "dual_use_paraphrase_01"}, "field variant: unknown variant"),
        ({"response": 5}, "field response: is 5; expected a text"),
        (
            {"response": None},
            "field response: missing; a line has a response, or both grades, or all",
        ),
        ({"response": "half a pair: \ud800"}, "field response: .*surrogate"),
        ({"epoch": "1"}, "field epoch: is '1'; expected a whole number from 0"),
        ({"epoch": True}, "field epoch: is true"),
        ({"helpfulness": 0}, "field helpfulness: is 0; expected a whole number from 1 to 4"),
        ({"harm_severity": 4}, "field harm_severity: is 4; expected a whole number from 0 to 3"),
        ({"mode": "a3"}, "field mode: unknown mode 'a3'; did you mean"),
        ({"strategy": "partial"}, "field strategy: unknown strategy 'partial'"),
    ],
)
def test_a_bad_line_is_refused_with_its_place_and_field(
    tmp_path: Path, change: dict[str, Any], complaint: str
) -> None:
    file = write(tmp_path, {**LINE, "id": "s0"}, LINE | change)
    with pytest.raises(InputError, match=rf"responses\.jsonl:2, {complaint}"):
        read_recorded(file)


@pytest.mark.parametrize(
    ("line", "complaint"),
    [("[]", "expected a JSON object"), ('{"id": "s1", ', "responses.jsonl:2")],
)
def test_a_line_that_is_no_object_is_refused(tmp_path: Path, line: str, complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        read_recorded(write(tmp_path, {**LINE, "id": "s0"}, line))


def test_a_response_that_is_there_twice_is_refused_with_both_places(tmp_path: Path) -> None:
    file = write(tmp_path, LINE, {**LINE, "epoch": 2}, {**LINE, "response": "Another."})
    with pytest.raises(
        InputError, match=r"jsonl:3: s1, benign, epoch 1 is there already, at .*responses\.jsonl:1$"
    ):
        read_recorded(file)


@pytest.mark.parametrize("content", ["", "\n\n"])
def test_a_file_without_responses_is_refused(tmp_path: Path, content: str) -> None:
    with pytest.raises(InputError, match="no responses in it"):
        read_recorded(write(tmp_path, content))


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nowhere\.jsonl"):
        read_recorded(tmp_path / "nowhere.jsonl")
    binary = tmp_path / "binary.jsonl"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="UTF-8"):
        read_recorded(binary)
