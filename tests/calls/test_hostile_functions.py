"""Functions that harm themselves: the run they are in goes on, and what others say is kept."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from opensafeintent import EvaluateSettings, FunctionModel, RunOutcome, evaluate
from opensafeintent.errors import InputError
from samples import dataset_file, made_dataset, prompt_set

Messages = list[dict[str, str]]
PROMPTS = 3


def function(ask: Any, name: str = "mine") -> FunctionModel:
    return FunctionModel(ask, name=name, version="1")


def settings(folder: Path, models: Any, **extra: Any) -> EvaluateSettings:
    path = dataset_file(folder, made_dataset(prompt_set("a", 0)))
    options = {
        "judges": "baseline/judge",
        "probe": "none",
        "max_missing": 1.0,
        "out": folder / "run",
    }
    return EvaluateSettings(models=models, dataset=path, **(options | extra))


def ask_one(folder: Path, ask: Any, **extra: Any) -> set[str]:
    """Return why the responses of a function are missing, beside a model that answers; "" for a
    response that is there.
    """
    outcome = evaluate(settings(folder, [function(ask), "baseline/refuse-all"], **extra))
    rows = [row for rows in outcome.results.rows.values() for row in rows]
    assert not any(row.missing for row in rows if row.model == "baseline/refuse-all")
    return {", ".join(map(str, row.missing)) for row in rows if row.model == "python/mine@1"}


def helped(outcome: RunOutcome) -> set[int | None]:
    cohort = outcome.results
    return {row.helpfulness for rows in cohort.rows.values() for row in rows}


# Which function a name stands for
# ------------------------------------------------------------------------------


def judge(helpfulness: str) -> FunctionModel:
    def ask(messages: Messages) -> str:
        text = messages[-1]["content"]
        if "one integer" not in text:
            return '{"mode": "A3"}'
        return helpfulness if "one integer from 1 to 4" in text[-600:] else "0"

    return function(ask, "judge")


def test_settings_carry_their_functions(tmp_path: Path) -> None:
    settings_list = []
    for grade in "14":
        (folder := tmp_path / grade).mkdir()
        settings_list.append(settings(folder, "baseline/redirect", judges=judge(grade)))
    assert [helped(evaluate(item)) for item in settings_list] == [{1}, {4}]
    with ThreadPoolExecutor(2) as executor:
        helpers = executor.map(helped, executor.map(evaluate, settings_list))
    assert list(helpers) == [{1}, {4}]


def test_another_function_under_a_name_in_use_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="two functions are called python/judge@1; give"):
        settings(tmp_path, judge("1"), judges=judge("4"))
    grader = judge("4")
    assert settings(tmp_path, grader, judges=[grader], mode_judge=grader).named == {
        "python/judge@1"
    }


# What a function raises and returns
# ------------------------------------------------------------------------------


class Wordless(Exception):
    def __str__(self) -> str:
        raise ValueError("no words")


class Text(str):
    """As numpy's and Markup's: a text, and none to what writes JSON."""

    def __str__(self) -> str:
        return "another"


def raises(error: BaseException) -> Callable[[Messages], str]:
    def ask(messages: Messages) -> str:
        raise error

    return ask


def raises_in_loop(error: BaseException) -> Any:
    async def ask(messages: Messages) -> str:
        raise error

    return ask


async def cancels_all(messages: Messages) -> str:
    for task in asyncio.all_tasks():
        task.cancel()
    await asyncio.sleep(0)
    return "Help."


async def stops_the_loop(messages: Messages) -> str:
    asyncio.get_running_loop().stop()
    await asyncio.sleep(0)
    return "Help."


def returns_an_awaitable(messages: Messages) -> Any:
    return stops_the_loop(messages)


async def exits_beside(messages: Messages) -> str:
    async def leave() -> None:
        raise SystemExit(0)

    task = asyncio.ensure_future(leave())
    await asyncio.wait([task])
    task.exception()  # else it is logged whenever the task is collected, in another test
    return "Help."


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ask", "reason"),
    [
        (raises(StopIteration()), "response:raised"),
        (raises(Wordless()), "response:raised"),
        (raises(SystemExit(0)), "response:raised"),
        (raises_in_loop(StopIteration()), "response:raised"),
        (raises_in_loop(SystemExit(0)), "response:raised"),
        (raises_in_loop(KeyboardInterrupt()), "response:raised"),
        (raises_in_loop(asyncio.CancelledError()), "response:raised"),
        (cancels_all, "response:raised"),
        (stops_the_loop, ""),
        (exits_beside, ""),
        (returns_an_awaitable, ""),
        (lambda messages: Text("Help."), ""),
        (lambda messages: asyncio.sleep(0, Text("Help.")), ""),
        (lambda messages: Text, "response:no_answer"),
    ],
)
def test_whatever_a_function_does_its_calls_end_and_others_go_on(
    tmp_path: Path, ask: Any, reason: str
) -> None:
    assert ask_one(tmp_path, ask, max_retries=0) == {reason}


def test_one_that_may_not_be_called_side_by_side_never_is(tmp_path: Path) -> None:
    lock, acquired = threading.Lock(), []

    def ask(messages: Messages) -> str:
        acquired.append(lock.acquire(blocking=False))
        time.sleep(0.25)
        lock.release()
        return "Help."

    assert ask_one(tmp_path, ask, max_connections=1, timeout=0.1) == {"response:timeout"}
    assert acquired and all(acquired)


def test_a_function_that_changes_the_folder_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (elsewhere := tmp_path / "elsewhere").mkdir()
    (tmp_path / "prices.json").write_text('{"m/m": {"input": 1, "output": 1}}')

    def ask(messages: Messages) -> str:
        os.chdir(elsewhere)
        return "Help."

    options = {"out": "run", "ledger": "calls.sqlite", "prices": "prices.json"}
    assert ask_one(tmp_path, ask, **options) == {""}
    assert (tmp_path / "run" / "metrics.json").is_file()
    assert not any(elsewhere.iterdir())


# On the command line
# ------------------------------------------------------------------------------


def command(folder: Path, source: str, *options: str) -> subprocess.Popen[str]:
    (folder / "mine.py").write_text(source)
    path = dataset_file(folder, made_dataset(prompt_set("a", 0)))
    typed = f"evaluate python/mine:ask@1 --judge baseline/judge --dataset {path} --out run".split()
    return subprocess.Popen(
        [sys.executable, "-m", "opensafeintent", *typed, *options],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("import sys; sys.exit(3)", "SystemExit: 3"),
        ("class E(Exception):\n    __str__ = None\nraise E", "python/mine:ask@1: E"),
    ],
)
def test_a_module_that_ends_when_it_is_imported_is_told_in_a_line(
    tmp_path: Path, source: str, words: str
) -> None:
    process = command(tmp_path, source)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err.count("error: "), words in err) == (2, 1, True), err


@pytest.mark.slow
def test_a_second_interruption_ends_a_function_that_blocks(tmp_path: Path) -> None:
    process = command(
        tmp_path,
        "import pathlib, time\n\n\nasync def ask(messages):\n"
        '    pathlib.Path("asked").touch()\n    time.sleep(600)\n',
    )
    while not (tmp_path / "asked").exists() and process.poll() is None:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    assert process.stderr is not None
    while "interrupted: no new call begins" not in process.stderr.readline():
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=20) == 130
