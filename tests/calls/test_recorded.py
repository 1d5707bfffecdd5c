"""Files of recorded responses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from opensafeintent.calls.recorded import RecordedResponse
from opensafeintent.errors import InputError
from samples import read_recorded

LINE = {"id": "s1", "variant": "benign", "response": "Hello."}
CUT = {"response": "<think>plan</think>Cut", "stop_reason": "length"}
LINES = (
    LINE,
    LINE | {"epoch": 2, "response": "Second."},
    LINE | {"variant": "dual_use"} | CUT,
    LINE | {"variant": "malicious", "response": "", "stop_reason": "content_filter"},
    LINE | {"id": "s2", "response": ""},
    {"id": "s3", "variant": "benign", "helpfulness": 3, "harm_severity": 0},
)


def write(folder: Path, *lines: dict[str, Any] | str) -> Path:
    file = folder / "mine.jsonl"
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    file.write_text("\n".join(texts), "utf-8")
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
        ({"id": None}, "field id: is empty"),
        ({"id": " "}, "field id: is empty"),
        ({"variant": "bening"}, "field variant: unknown variant 'bening'; did you mean 'benign'"),
        ({"variant": "dual_use_paraphrase_01"}, "field variant: unknown variant"),
        ({"response": 5}, "field response: is 5; expected a text"),
        ({"response": None}, "field response: is empty; expected a response, or both grades"),
        ({"response": "half a pair: \ud800"}, "field response: .*surrogate"),
        ({"epoch": "1"}, "field epoch: is '1'; expected a whole number from 1"),
        ({"epoch": 0}, "field epoch: is 0; expected a whole number from 1"),
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
    file = write(tmp_path, LINE | {"id": "s0"}, LINE | change)
    with pytest.raises(InputError, match=rf"mine\.jsonl:2, {complaint}"):
        read_recorded(file)


@pytest.mark.parametrize(
    "id_", ["s1", "é-1_x", " s1 ", "a b", "s.1", "1" * 120, "\u200b", "\ud800"]
)
@pytest.mark.parametrize("variant", ["dual_use_paraphrase_2", "follow_up_no_goal", "Benign"])
@pytest.mark.parametrize(
    "change",
    [
        {},
        {"response": " "},
        {"response": "\ud800"},
        {"epoch": 2, "helpfulness": 4, "harm_severity": 0, "model": 5},
        {"epoch": 2**63, "harm_severity": None},
        {"helpfulness": 4.0},
    ],
)
def test_a_line_is_read_alike_with_a_field_that_is_not_read(
    tmp_path: Path, id_: str, variant: str, change: dict[str, Any]
) -> None:
    """One with the usual fields alone is read all at once."""

    def read(line: dict[str, Any]) -> object:
        try:
            return read_recorded(write(tmp_path, line))
        except InputError as error:
            return str(error)

    line = LINE | {"id": id_, "variant": variant} | change
    assert read(line) == read(line | {"comment": "Good."})


TWICE = (LINE, LINE | {"epoch": 2}, LINE | {"response": "Another."})


@pytest.mark.parametrize(
    ("lines", "complaint"),
    [
        ((LINE, "[]"), "expected a JSON object"),
        ((LINE, '{"id": "s1", '), r"mine\.jsonl:2"),
        (
            TWICE,
            r"jsonl:3: s1, benign, epoch 1 is there already, at .*mine\.jsonl:1; expected a number",
        ),
        *(((content,), "no responses in it") for content in ("", "\n\n")),
    ],
)
def test_a_file_that_is_not_right_is_refused(
    tmp_path: Path, lines: tuple[Any, ...], complaint: str
) -> None:
    with pytest.raises(InputError, match=complaint):
        read_recorded(write(tmp_path, *lines))


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nowhere\.jsonl"):
        read_recorded(tmp_path / "nowhere.jsonl")
    binary = tmp_path / "binary.jsonl"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="UTF-8"):
        read_recorded(binary)
