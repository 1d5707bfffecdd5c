"""Recorded responses as a model, named lists of models, and what tokens cost."""

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
from opensafeintent.calls.providers import ENDPOINTS, INSPECT_PROVIDERS
from opensafeintent.calls.records import Answered, Call, Failed, Outcome, Refused, Subject
from opensafeintent.errors import InputError

LINES = [
    {"id": "s1", "variant": "benign", "response": "First."},
    {"id": "s1", "variant": "benign", "epoch": 2, "response": "Second."},
    {
        "id": "s1",
        "variant": "dual_use",
        "response": "<think>plan</think>Cut",
        "stop_reason": "length",
    },
    {"id": "s1", "variant": "malicious", "response": "", "stop_reason": "content_filter"},
    {"id": "s2", "variant": "benign", "response": ""},
    {"id": "s3", "variant": "benign", "helpfulness": 3, "harm_severity": 0},
]


def write(folder: Path, lines: list[dict[str, Any]], name: str = "mine.jsonl") -> str:
    file = folder / name
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return f"replay/{file}"


def about(name: str, set_id: str, variant: str = "benign", epoch: int = 1, **fields: Any) -> Call:
    given = {"model": name, "epoch": epoch, "subject": Subject(set_id, variant, epoch)}
    return user_call(f"The prompt of {set_id}, {variant}", **(given | fields))


def ask_in_turn(folder: Path, name: str, calls: list[Call]) -> list[Outcome]:
    async def run(client: Client) -> list[Outcome]:
        return [await client.ask(call) for call in calls]

    with Ledger(folder / "ledger.sqlite") as ledger:
        return asyncio.run(run(Client(ledger, {name: ReplayModel(name)})))


def test_a_response_is_found_by_set_variant_and_epoch(tmp_path: Path) -> None:
    name = write(tmp_path, LINES)
    identity = ReplayModel(name).identity
    calls = [
        about(name, "s1"),
        about(name, "s1", epoch=2),
        about(name, "s1", "dual_use"),
        about(name, "s1", "malicious"),
        about(name, "s2"),
    ]
    assert ask_in_turn(tmp_path, name, calls) == [
        Answered(text="First.", stop_reason="stop", served_model=identity),
        Answered(text="Second.", stop_reason="stop", served_model=identity),
        Answered(text="Cut", stop_reason="length", served_model=identity),
        Refused(reason="content_filter", served_model=identity),
        Answered(text="", stop_reason="stop", served_model=identity),
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
    name = write(tmp_path, LINES)
    # twenty failures in a row stop an endpoint that is dead; a file with a gap is alive
    calls = [about(name, **(fields | {"attempt": number})) for number in range(30)]
    *gap, last = ask_in_turn(tmp_path, name, [*calls, about(name, "s1")])
    for outcome in gap:
        assert isinstance(outcome, Failed)
        assert outcome.kind == "not_recorded"
        assert complaint in outcome.error
    assert isinstance(last, Answered)


def test_the_identity_is_the_content_not_the_place(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    here, there = (
        ReplayModel(write(tmp_path, LINES)),
        ReplayModel(write(tmp_path / "elsewhere", LINES)),
    )
    other = ReplayModel(write(tmp_path, LINES[:-1]))
    assert here.identity == there.identity
    assert here.identity != other.identity
    assert here.identity.startswith("replay/mine@")


def test_a_file_that_is_not_there_or_not_right_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "nowhere.jsonl", tmp_path):
        with pytest.raises(InputError, match="no such file of responses"):
            ReplayModel(f"replay/{path}")
    with pytest.raises(InputError, match=r"bad\.jsonl:1, field variant"):
        ReplayModel(write(tmp_path, [{"id": "s1", "variant": "x", "response": "y"}], "bad.jsonl"))


def test_the_suite_of_the_paper_has_its_twenty_models() -> None:
    suite = load_suite("paper")
    assert len(suite.names) == len({item.paper for item in suite.models}) == 20
    providers = {name.partition("/")[0] for name in suite.names}
    assert providers <= {*ENDPOINTS, *INSPECT_PROVIDERS}


def test_a_suite_of_ones_own_is_a_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        'name = "mine"\n[[models]]\nmodel = "baseline/redirect"\n[[models]]\nmodel ='
        ' "baseline/refuse-all"\n'
    )
    assert load_suite(str(path)).names == ("baseline/redirect", "baseline/refuse-all")
    settings = EvaluateSettings(
        models=("baseline/refuse-all",), suite=str(path), judges=("baseline/judge",)
    )
    assert settings.targets == (
        "baseline/refuse-all",
        "baseline/redirect",
    )  # each once, those that are named first


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (None, "cannot read"),
        ('name = "x"\nmodels = []', "length >= 1"),
        ('name = "x"\n[[models]]\nmodle = "a/b"', "not a suite .* field `modle`"),
        ('name = "x"\n[[models]]\nmodel = "a/b"\n[[models]]\nmodel = "a/b"', "a/b is there twice"),
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
    ran = osi(
        "evaluate", "--suite", "paper", "--judge", "baseline/judge", "--out", tmp_path / "run"
    )
    assert ran.code == 2
    told = [line for line in ran.errors if line.startswith("error: openrouter/")]
    assert len(told) == 9  # the open weights that the suite has from one service
    assert all(line.endswith("no key; set OPENROUTER_API_KEY") for line in told)
    assert not (tmp_path / "run" / "run.json").exists()
