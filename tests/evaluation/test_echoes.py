"""Providers and models that repeat the malicious prompt: it stays in the ledger."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from itertools import chain
from pathlib import Path

import pytest

from endtoend import Lab, Ran, osi, prompts_of
from loopback import GENERATE, Fault, Match

WORDS = 8


def _stretches(text: str) -> set[str]:
    words = text.split()
    return {" ".join(words[at : at + WORDS]) for at in range(len(words) - WORDS + 1)}


def _quotes(text: str, stretches: set[str]) -> bool:
    flat = " ".join(text.split())
    return any(stretch in flat for stretch in stretches)


def _completion(prompt: str, **fields: str) -> bytes:
    choice = {"message": {"role": "assistant", "content": "No."}, "finish_reason": "stop"}
    choice |= {name: value for name, value in fields.items() if name in choice}
    body = {"choices": [choice], "usage": {"prompt_tokens": 9, "completion_tokens": 2}}
    return json.dumps(body | {"model": fields.get("model", "target")}).encode()


ECHOES = {
    "an error": lambda prompt: {"status": 400, "message": f"rejected: {prompt}"},
    "an error that ends the run": lambda prompt: {"status": 401, "message": f"no: {prompt}"},
    "a refusal": lambda prompt: {"status": 400, "message": prompt, "code": "content_filter"},
    "a stop reason": lambda prompt: {
        "status": 200,
        "body": _completion(prompt, finish_reason=prompt),
    },
    "a served name": lambda prompt: {"status": 200, "body": _completion(prompt, model=prompt)},
    "a safe response": lambda prompt: {
        "status": 200,
        "body": json.dumps(
            {
                "choices": [
                    {
                        "message": {"role": "assistant", "content": f"You asked: {prompt} No."},
                        "finish_reason": "stop",
                    }
                ],
                "model": "target",
            }
        ).encode(),
    },
}


def _printed_text(ran: Ran) -> str:
    return ran.out + ran.err


def _files(folder: Path) -> Iterator[tuple[str, str]]:
    for path in sorted(folder.rglob("*")):
        if path.is_file() and ".sqlite" not in path.name and path.name != "prompt_sets.jsonl":
            yield path.name, path.read_bytes().decode("utf-8", "replace")


@pytest.mark.slow
@pytest.mark.parametrize("echo", ECHOES)
def test_an_echo_of_a_malicious_prompt_leaves_by_no_door(
    lab: Lab, echo: str, tmp_path: Path
) -> None:
    prompts = prompts_of(lab.dataset)
    secrets = prompts.pop("malicious")
    shown = set().union(*(map(_stretches, chain(*prompts.values()))))
    hidden = set().union(*map(_stretches, secrets)) - shown
    assert len(hidden) > len(secrets)
    lab.server.set_faults(
        *(
            Fault(
                action="status",
                match=Match(purpose=GENERATE, contains=prompt),
                **ECHOES[echo](prompt),
            )
            for prompt in secrets
        )
    )
    printed = {"the terminal": _printed_text(lab.evaluate("--probe", "none"))}
    for command in (
        ("report", lab.run),
        ("trace", lab.run, "--worst", 3),
        *(
            ("export", lab.run, "--format", name, "--out", tmp_path / f"out.{name}")
            for name in ("csv", "jsonl")
        ),
    ):
        printed[command[0]] = _printed_text(osi(*command))
    printed |= _files(lab.run)
    printed |= ((path.name, path.read_text()) for path in tmp_path.glob("out.*"))
    assert len(printed) > 10
    for place, text in printed.items():
        assert not _quotes(text, hidden), place
    with closing(sqlite3.connect(lab.run / "ledger.sqlite")) as database:
        raw = [row[0] for row in database.execute("SELECT error FROM calls WHERE error <> ''")]
    if "error" in echo:
        assert any(_quotes(text, hidden) for text in raw)
