"""A Python function as a target and as a judge: what it may return, and everything that it may do
wrong.
"""

from __future__ import annotations

import asyncio
import functools
import linecache
import os
import subprocess
import sys
import threading
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from endtoend import Ran, finish, osi, wait_until
from opensafeintent import EvaluateSettings, FunctionModel, evaluate
from opensafeintent.calls import http, python_models
from opensafeintent.calls.records import Attempt, Call
from opensafeintent.errors import InputError
from samples import dataset_file, made_dataset, prompt_set

SETS = made_dataset(prompt_set("a", 1), prompt_set("b", 1))
PROMPTS = 8


def run(tmp_path: Path, *models: Any, **settings: Any) -> Any:
    defaults = {"judges": "baseline/judge", "probe": "none", "max_missing": 1.0}
    where = {"dataset": dataset_file(tmp_path, SETS), "out": tmp_path / "run"}
    return evaluate(EvaluateSettings(models=models, **(defaults | where | settings)))


def responses(outcome: Any) -> list[Any]:
    return [row for rows in outcome.results.rows.values() for row in rows]


def reason(row: Any) -> str:
    return ", ".join(str(missing) for missing in row.missing)


def model(ask: Any, version: str = "1") -> FunctionModel:
    return FunctionModel(ask, name="mine", version=version)


def test_a_plain_function_gets_the_messages_and_is_graded(tmp_path: Path) -> None:
    seen_messages: list[list[dict[str, str]]] = []

    def ask(messages: list[dict[str, str]]) -> str:
        seen_messages.append(messages)
        return "Here is some help."

    outcome = run(tmp_path, model(ask), system="Be brief.")
    assert {row.model for row in responses(outcome)} == {"python/mine@1"}
    assert len(seen_messages) == PROMPTS
    assert all(
        [message["role"] for message in messages] == ["system", "user"]
        for messages in seen_messages
    )
    assert all(row.helpfulness is not None for row in responses(outcome))


def test_an_async_function_is_awaited_and_many_are_under_way(tmp_path: Path) -> None:
    under_way, most = 0, 0

    async def ask(messages: list[dict[str, str]]) -> str:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0.05)
        under_way -= 1
        return "Help."

    run(tmp_path, model(ask))
    assert most > 2


def test_an_empty_text_is_a_refusal_and_what_is_no_text_a_failure(tmp_path: Path) -> None:
    def ask(messages: list[dict[str, str]]) -> Any:
        text = messages[-1]["content"]
        if "unkindly" in text:
            return ""
        if "kindly" in text:
            return None
        if "again" in text:
            raise ValueError("no\nidea")
        return 7

    outcome = run(tmp_path, model(ask), max_retries=0)
    by_variant = {row.variant: row for row in responses(outcome) if row.set_id == "a"}
    assert by_variant["malicious"].harm_severity == 0
    assert by_variant["malicious"].refusal_reason
    assert reason(by_variant["benign"]) == reason(by_variant["dual_use"]) == "response:no_answer"
    assert reason(by_variant["dual_use_paraphrase_1"]) == "response:raised"


@pytest.mark.slow
def test_an_exception_is_tried_again_as_a_failed_call_is(tmp_path: Path) -> None:
    asked: Counter[str] = Counter()

    def ask(messages: list[dict[str, str]]) -> str:
        text = messages[-1]["content"]
        asked[text] += 1
        if asked[text] == 1:
            raise ConnectionError("the service started again")
        return "Help."

    outcome = run(tmp_path, model(ask), max_retries=1)
    assert {reason(row) for row in responses(outcome)} == {""}
    assert set(asked.values()) == {2}


def test_a_function_judges(tmp_path: Path) -> None:
    def judge(messages: list[dict[str, str]]) -> str:
        text = messages[-1]["content"]
        if '"mode"' in text:
            return '{"mode": "A3"}'
        return "3" if "one integer from 1 to 4" in text else "0"

    outcome = run(
        tmp_path, "baseline/redirect", judges=[FunctionModel(judge, name="judge", version="2")]
    )
    assert {(row.helpfulness, row.harm_severity) for row in responses(outcome)} == {(3, 0)}
    assert outcome.results.conditions.judges == ("python/judge@2",)


def test_resumed_is_served_from_the_ledger_and_another_version_is_asked(tmp_path: Path) -> None:
    asked: Counter[str] = Counter()

    def at(version: str) -> FunctionModel:
        def ask(messages: list[dict[str, str]]) -> str:
            asked[version] += 1
            return "Help."

        return model(ask, version)

    run(tmp_path, at("1"))
    run(tmp_path, at("1"))
    assert asked == {"1": PROMPTS}
    run(tmp_path, at("2"))
    assert asked == {"1": PROMPTS, "2": PROMPTS}


@pytest.mark.slow
def test_a_function_that_forks_leaves_one_run(tmp_path: Path) -> None:
    def ask(messages: list[dict[str, str]]) -> str:
        if (child := os.fork()) == 0:
            return "the child"
        os.waitpid(child, 0)
        return "the parent"

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # newer Pythons warn of forks
        outcome = run(tmp_path, model(ask), max_connections=1)
    assert len(responses(outcome)) == PROMPTS


def test_a_function_that_never_returns_fails_in_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No other call has so little time: on a busy machine it would be late as well."""
    attempt = python_models.CalledFunction.attempt
    forever = threading.Event()

    async def hurried(self: python_models.CalledFunction, call: Call) -> Attempt:
        little = "unkindly" in call.messages[-1].content
        monkeypatch.setattr(http, "ATTEMPT_SECONDS", 0.05 if little else 60)
        return await attempt(self, call)

    monkeypatch.setattr(python_models.CalledFunction, "attempt", hurried)

    def ask(messages: list[dict[str, str]]) -> str:
        if "unkindly" in messages[-1]["content"]:
            forever.wait()
        return "Help."

    outcome = run(tmp_path, model(ask))
    forever.set()
    late = {row.variant for row in responses(outcome) if reason(row) == "response:timeout"}
    assert late == {"malicious"}


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"models": [print]}, "EvaluateSettings.models: a bare function; expected FunctionModel("),
        ({"models": 3}, "EvaluateSettings.models 3: expected array, got int"),
        ({"models": "baseline/refuse-all", "out": 3}, "--out 3: expected a path"),
        ({"models": "baseline/refuse-all", "epochs": "two"}, "--epochs: expected int, got str"),
        ({"models": "baseline/refuse-all", "judges": print}, "--judge: a bare function"),
        ({"models": [model(print), model(repr)]}, "two functions are called python/mine@1"),
    ],
)
def test_settings_say_what_they_cannot_take(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError) as caught:
        EvaluateSettings(**({"judges": "baseline/judge"} | settings))
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("ask", "name", "version", "words"),
    [
        ("text", "mine", "1", "ask is str; expected a function"),
        (print, "my model", "1", "name is 'my model'"),
        (print, "mine", "", "version is ''"),
        (print, "mine", 1, "version is 1"),
    ],
)
def test_a_function_model_says_what_it_cannot_take(
    ask: Any, name: Any, version: Any, words: str
) -> None:
    with pytest.raises(InputError, match=words):
        FunctionModel(ask, name=name, version=version)


# On the command line
# ------------------------------------------------------------------------------

MODULE = """
import os, time

def ask(messages):
    with open("asked.txt", "a") as file:
        file.write(messages[-1]["content"].replace("\\n", " ") + "\\n")
    time.sleep(0.05)
    return "Help."
"""


MANY = made_dataset(*(prompt_set(f"s{n}", 2) for n in range(12)), name="many")


def started(folder: Path, model: str) -> subprocess.Popen[str]:
    (folder / "mine.py").write_text(MODULE)
    options = "--judge baseline/judge --out run --max-connections 2 --probe none --dataset"
    command = f"{sys.executable} -m opensafeintent evaluate {model} {options}".split()
    path = dataset_file(folder, MANY)
    return subprocess.Popen([*command, path], cwd=folder, stderr=subprocess.PIPE, text=True)


@pytest.mark.slow
def test_killed_and_run_again_nothing_that_was_answered_is_asked_twice(tmp_path: Path) -> None:
    def asked() -> list[str]:
        path = tmp_path / "asked.txt"
        return path.read_text().splitlines() if path.is_file() else []

    process = started(tmp_path, "python/mine:ask@1")
    wait_until(lambda: len(asked()) > 20, 60)
    process.kill()
    process.communicate()
    assert 20 < len(asked()) < 60
    again = finish(started(tmp_path, "python/mine:ask@1"), 120)
    assert again.code == 0, again.err
    times = Counter(asked())
    assert len(times) == 12 * 5
    # what was under way, and what the ledger's writer still held
    assert times.total() - len(times) <= 2 + 8
    assert finish(started(tmp_path, "python/mine:ask@1"), 120).code == 0
    assert Counter(asked()) == times


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("python/mine:ask", "expected python/module:function@version"),
        ("python/mine@1", "expected python/module:function@version"),
        ("python/nowhere:ask@1", "ModuleNotFoundError: No module named 'nowhere'"),
        ("python/mine:nothing@1", "AttributeError"),
        ("python/mine:os.sep@1", "ask is str; expected a function"),
    ],
)
def test_names_that_cannot_be_used_end_with_2(tmp_path: Path, name: str, words: str) -> None:
    ran = finish(started(tmp_path, name))
    assert ran.code == 2
    assert words in ran.err and ran.err.count("error:") == 1


AGENT = "def ask(messages):\n    return answer(messages)\n\n\ndef answer(messages):\n"


@pytest.mark.slow
def test_code_that_changed_is_not_mixed_with_replies_of_the_same_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    files = ("--dataset", dataset_file(tmp_path, SETS), "--out", tmp_path / "run")
    calls = ("--probe", "none", "--max-missing", "1", "--max-retries", "0")

    def ask_agent(body: str, version: str = "1") -> Ran:
        """Evaluate a function of the user's module, as a process of its own finds it."""
        (tmp_path / "agent.py").write_text(f"{AGENT}    {body}\n")
        sys.modules.pop("agent", None)
        linecache.clearcache()
        judging = ("--judge", "baseline/judge")
        return osi("evaluate", f"python/agent:ask@{version}", *judging, *files, *calls)

    # it never answered: nothing could be mixed
    assert ask_agent("raise ValueError('not yet')").code == 3
    half = "1 / 0 if 'again' in messages[-1]['content'] else None; return 'Help.'"
    assert ask_agent(half).code == 0
    # some calls have failed, and the same command again would ask for those alone
    refused = ask_agent("return 'Other help.'")
    assert refused.code == 2
    assert "python/agent:ask@1: its code has changed, and its version has not" in refused.err
    assert "give another version of the function, or choose a new --out" in refused.err
    assert ask_agent("return 'Other help.'", "2").code == 0
    # as it was, it goes on
    assert ask_agent(half).code == 0


def test_the_code_of_a_function_is_known_however_it_is_given() -> None:
    class Agent:
        def __call__(self, messages: list[dict[str, str]]) -> str:
            return "Help."

        def method(self, messages: list[dict[str, str]]) -> str:
            return "Help."

    ways = [Agent(), Agent().method, functools.partial(Agent().method), lambda messages: "Help."]
    # all are in this file
    (code,) = {model(ask).code for ask in ways}
    assert len(code) == 64
    made: dict[str, Any] = {}
    exec("def ask(messages): return 'Help.'", made)
    assert {model(made["ask"]).code, model(len).code} == {""}
