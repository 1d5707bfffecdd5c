"""Recorded responses, as files and as a model, and named lists of models."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from calls.support import user_call
from endtoend import osi
from opensafeintent import EvaluateSettings
from opensafeintent.calls.client import Client
from opensafeintent.calls.ledger import Ledger
from opensafeintent.calls.models import ReplayModel, load_suite
from opensafeintent.calls.recorded import RecordedResponse, read_recorded
from opensafeintent.calls.records import Answered, Call, Failed, Outcome, Refused, Subject
from opensafeintent.errors import InputError

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


# Files of responses
# ------------------------------------------------------------------------------


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
        ({"response": None}, "field response: missing; a line has a response, or both grades"),
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
    file = write(tmp_path, LINE | {"id": "s0"}, LINE | change)
    with pytest.raises(InputError, match=rf"mine\.jsonl:2, {complaint}"):
        read_recorded(file)


TWICE = (LINE, LINE | {"epoch": 2}, LINE | {"response": "Another."})


@pytest.mark.parametrize(
    ("lines", "complaint"),
    [
        ((LINE, "[]"), "expected a JSON object"),
        ((LINE, '{"id": "s1", '), r"mine\.jsonl:2"),
        (TWICE, r"jsonl:3: s1, benign, epoch 1 is there already, at .*mine\.jsonl:1$"),
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
    for path in (tmp_path / "nowhere.jsonl", tmp_path):
        with pytest.raises(InputError, match="no such file of responses"):
            ReplayModel(f"replay/{path}")


# As a model
# ------------------------------------------------------------------------------


def about(name: str, set_id: str, variant: str = "benign", epoch: int = 1, **fields: Any) -> Call:
    given = {"model": name, "epoch": epoch, "subject": Subject(set_id, variant, epoch)}
    return user_call(f"The prompt of {set_id}, {variant}", **(given | fields))


def ask_in_turn(folder: Path, name: str, calls: list[Call]) -> list[Outcome]:
    async def run(client: Client) -> list[Outcome]:
        return [await client.ask(call) for call in calls]

    with Ledger(folder / "ledger.sqlite") as ledger:
        return asyncio.run(run(Client(ledger, {name: ReplayModel(name)})))


def test_a_response_is_found_by_set_variant_and_epoch(tmp_path: Path) -> None:
    name = f"replay/{write(tmp_path, *LINES)}"
    places = (("s1",), ("s1", "benign", 2), ("s1", "dual_use"), ("s1", "malicious"), ("s2",))
    served = {"served_model": ReplayModel(name).identity}
    assert ask_in_turn(tmp_path, name, [about(name, *place) for place in places]) == [
        Answered(text="Hello.", stop_reason="stop", **served),
        Answered(text="Second.", stop_reason="stop", **served),
        Answered(text="Cut", stop_reason="length", reasoned=True, **served),
        Refused(reason="content_filter", **served),
        Answered(text="", stop_reason="stop", **served),
    ]


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"set_id": "s9"}, "holds no response for s9, benign, epoch 1"),
        ({"set_id": "s1", "epoch": 3}, "holds no response for s1, benign, epoch 3"),
        ({"set_id": "s3"}, "holds no response for s3"),
        ({"set_id": "s1", "purpose": "probe"}, "holds responses only"),
    ],
)
def test_nothing_else_can_be_asked(tmp_path: Path, fields: dict[str, Any], complaint: str) -> None:
    name = f"replay/{write(tmp_path, *LINES)}"
    # twenty failures in a row stop an endpoint that is dead; a file with a gap is alive
    calls = [about(name, **(fields | {"attempt": number})) for number in range(30)]
    *gap, last = ask_in_turn(tmp_path, name, [*calls, about(name, "s1")])
    for outcome in gap:
        assert isinstance(outcome, Failed)
        assert outcome.kind == "not_recorded" and complaint in outcome.error
    assert isinstance(last, Answered)


def test_the_identity_is_the_content_not_the_place(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    files = ((tmp_path, LINES), (tmp_path / "elsewhere", LINES), (tmp_path, LINES[:-1]))
    here, there, other = (
        ReplayModel(f"replay/{write(folder, *lines)}").identity for folder, lines in files
    )
    assert here == there != other
    assert here.startswith("replay/mine@")


# Suites
# ------------------------------------------------------------------------------


def test_a_suite_of_ones_own_is_a_file(tmp_path: Path) -> None:
    path, names = tmp_path / "mine.toml", ("baseline/redirect", "baseline/refuse-all")
    path.write_text('name = "mine"\n' + "".join(f'[[models]]\nmodel = "{n}"\n' for n in names))
    assert load_suite(str(path)).names == names
    settings = EvaluateSettings(models=names[1:], suite=str(path), judges=("baseline/judge",))
    assert settings.targets == names[::-1]  # each once, those that are named first


ONE = 'name = "x"\n[[models]]\nmodel = "a/b"\n'


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (None, "cannot read"),
        ('name = "x"\nmodels = []', "length >= 1"),
        (ONE.replace("model =", "modle ="), "not a suite .* field `modle`"),
        (ONE + '[[models]]\nmodel = "a/b"', "a/b is there twice"),
        ("name =", "not a suite"),
    ],
)
def test_a_file_that_is_no_suite_is_told(tmp_path: Path, content: str | None, line: str) -> None:
    path = tmp_path / "mine.toml"
    if content is not None:
        path.write_text(content)
    with pytest.raises(InputError, match=line):
        load_suite(str(path))
    with pytest.raises(InputError, match=r"--suite papr: no such suite.*did you mean 'paper'"):
        load_suite("papr")


@pytest.mark.optional
def test_everything_that_a_suite_lacks_is_told_at_once(tmp_path: Path) -> None:
    pytest.importorskip("inspect_ai")  # else the first line names the extra
    run = tmp_path / "run"
    ran = osi("evaluate", "--suite", "paper", "--judge", "baseline/judge", "--out", run)
    assert ran.code == 2
    told = [line for line in ran.errors if line.startswith("error: openrouter/")]
    assert len(told) == 9  # the open weights that the suite has from one service
    assert all(line.endswith("no key; set OPENROUTER_API_KEY") for line in told)
    assert not (run / "run.json").exists()
