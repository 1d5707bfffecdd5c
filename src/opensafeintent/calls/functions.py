"""A Python function as a model: a target or a judge of one's own, in this process."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import os
import re
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from opensafeintent.calls.http import ATTEMPT_SECONDS, HttpSession
from opensafeintent.calls.limiter import UNLIMITED, Limiter
from opensafeintent.calls.providers import PREFIX
from opensafeintent.calls.records import Attempt, Call, Failure, Replied
from opensafeintent.calls.replies import NotAnAnswer, completion_body, read_reply
from opensafeintent.errors import InputError
from opensafeintent.hostile import one_line

Ask = Callable[[list[dict[str, str]]], "str | Awaitable[str | None] | None"]
"""Takes the conversation, `{"role": …, "content": …}` each, and returns what the model says to it.
"""

_THREADS = 16
"""Calls of a plain function at once, where the user set no number."""
_FORM = re.compile(r"[\w.:\-]+")

_NAMED: dict[str, FunctionModel] = {}
"""Those that settings named, by identity: everything else knows a model by its name."""


class FunctionModel:
    """A function that answers as a model does, for `models=` or `judges=` of settings.

    It takes the list of messages, a `dict` with `role` and `content` each, and returns a text; an
    empty one counts as a refusal, None and an exception as a failed call. A plain function is
    called in threads, up to 16 at once (`max_connections` says otherwise; 1 for one that may not be
    called side by side); an async one in the event loop, and must not block it.

    The ledger knows its answers by name and version: a function that was changed needs another
    version, or what the earlier one said is taken from the ledger.

    Args:
        ask: the function.
        name: in results: letters, digits, `.`, `-`, `_` and `:`.
        version: of the function, of the same characters.

    Raises:
        InputError: `ask` cannot be called, or the name or version holds other characters.
    """

    def __init__(self, ask: Ask, *, name: str, version: str) -> None:
        if not callable(ask):
            raise InputError(f"FunctionModel: ask is {type(ask).__name__}; expected a function")
        for what, text in (("name", name), ("version", version)):
            if not (isinstance(text, str) and _FORM.fullmatch(text)):
                shown = one_line(repr(text), 60)
                raise InputError(
                    f"FunctionModel: {what} is {shown}; expected letters, digits, '.', '-', '_'"
                    " or ':'"
                )
        self.ask = ask
        self.identity = f"{PREFIX}{name}@{version}"

    def named(self) -> str:
        """Have the function answer for its identity from now on, and return that."""
        _NAMED[self.identity] = self
        return self.identity


def function_named(name: str) -> FunctionModel:
    """Return the function that a name stands for: one that settings held, or
    `python/module:function@version`.

    Raises:
        InputError: the name is of another form, or the module or function cannot be had.
    """
    if (known := _NAMED.get(name)) is not None:
        return known
    path, at, version = name.removeprefix(PREFIX).rpartition("@")
    module, colon, attribute = path.partition(":")
    if not (at and version and colon and module and attribute):
        raise InputError(
            f"{name}: expected python/module:function@version; from Python, a FunctionModel"
        )
    if (here := str(Path.cwd())) not in sys.path and "" not in sys.path:
        sys.path.insert(0, here)  # a module of the user's, as `python -m` finds it
    try:
        found: Any = importlib.import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
    except Exception as error:  # the module is the user's: whatever it raises is theirs to mend
        raise InputError(f"{name}: {type(error).__name__}: {one_line(str(error), 300)}") from error
    return FunctionModel(found, name=path, version=version)


class CalledFunction:
    """A function as the client calls it.

    Args:
        model: the function.
        http: where the number of calls at once is kept; without it the function is known, and not
            called.
    """

    notices: Sequence[str] = ()

    def __init__(self, model: FunctionModel, http: HttpSession | None = None) -> None:
        self.identity = model.identity
        self._ask = model.ask
        self._waits = inspect.iscoroutinefunction(model.ask) or inspect.iscoroutinefunction(
            type(model.ask).__call__
        )
        fixed = None if self._waits else _THREADS
        self.limiter = http.limiter(model.identity, fixed) if http else Limiter(UNLIMITED)

    async def attempt(self, call: Call) -> Attempt:
        """Call the function and say what came of it; nothing is raised but cancellation."""
        messages = [{"role": message.role, "content": message.content} for message in call.messages]
        started = time.monotonic()
        task = asyncio.ensure_future(
            self._awaited(messages) if self._waits else self._in_thread(messages)
        )
        try:
            done, _ = await asyncio.wait([task], timeout=ATTEMPT_SECONDS)
        finally:
            task.cancel()  # where it or we have to stop
        seconds = time.monotonic() - started
        if not done:
            line = f"{self.identity}: no answer in {ATTEMPT_SECONDS:.0f} seconds"
            return Failure(kind="timeout", error=line, seconds=seconds)
        if task.cancelled() or (error := task.exception()) is not None:
            what = "CancelledError" if task.cancelled() else f"{type(error).__name__}: {error}"
            line = one_line(f"{self.identity}: raised {what}", 500)
            return Failure(kind="raised", error=line, seconds=seconds)
        return self._read(task.result(), seconds)

    def _read(self, text: Any, seconds: float) -> Attempt:
        try:
            if not isinstance(text, str):
                what = "None" if text is None else f"a {type(text).__name__}"
                line = f"returned {what}; expected a text, empty for a refusal"
                raise NotAnAnswer("no_answer", line)
            body = completion_body(text, self.identity)
            return Replied(read_reply(body), body, seconds)
        except NotAnAnswer as wrong:
            kind, line = wrong.kind, str(wrong)
        except ValueError as error:  # half of a surrogate pair
            kind = "malformed"
            line = f"returned a text that is not valid Unicode: {one_line(str(error), 200)}"
        return Failure(kind=kind, error=f"{self.identity}: {line}", replied=True, seconds=seconds)

    async def _awaited(self, messages: list[dict[str, str]]) -> Any:
        answer: Any = self._ask(messages)
        return await answer

    async def _in_thread(self, messages: list[dict[str, str]]) -> Any:
        """Call a plain function in a thread that nobody waits for at the end: it may never
        return.
        """
        answer = Future[Any]()
        answer.set_running_or_notify_cancel()
        process = os.getpid()

        def work() -> None:
            try:
                answer.set_result(self._ask(messages))
            except Exception as error:
                answer.set_exception(error)
            except BaseException as error:  # an exit of the function's thread is no exit of ours
                answer.set_exception(RuntimeError(f"{type(error).__name__}: {error}"))
            if os.getpid() != process:  # it forked, and this is the child
                os._exit(1)

        threading.Thread(target=work, name=self.identity, daemon=True).start()
        given = await asyncio.wrap_future(answer)
        return await given if inspect.isawaitable(given) else given
