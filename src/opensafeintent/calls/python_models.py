"""Users' own Python functions as models."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import os
import re
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from opensafeintent.calls.http import HttpSession
from opensafeintent.calls.limiter import UNLIMITED, Limiter
from opensafeintent.calls.outcomes import NotAnAnswer
from opensafeintent.calls.providers import PYTHON_PREFIX
from opensafeintent.calls.records import Attempt, Call, Failure, Replied
from opensafeintent.calls.replies import completion_body, read_reply
from opensafeintent.errors import InputError, did_you_mean
from opensafeintent.files import sha256_hex
from opensafeintent.hostile import clean_for_display, one_line, remove_url_credentials
from opensafeintent.secrets import collect_secrets

Ask = Callable[[list[dict[str, str]]], "str | Awaitable[str | None] | None"]
"""Takes the conversation, `{"role": …, "content": …}` each, and returns the model's answer."""

_THREADS = 16
"""Concurrent calls of a plain function, if the user set no number."""
_MOST_READ = 2**16
"""Characters of an exception that are looked through."""
_SECRET_MARGIN = 2**12
"""Characters searched beyond those: a secret may lie across the end."""
_FORM = re.compile(r"[\w.:\-]+")


class FunctionModel:
    """A function that answers as a model does, for `models=` or `judges=` of settings.

    It takes the list of messages, a `dict` with `role` and `content` each, and returns a text. An
    empty text counts as a refusal, None and an exception as a failed call. A plain function is
    called in threads, up to 16 at once; set `max_connections=1` if it must not run concurrently. An
    async function runs in an event loop for functions.

    The ledger stores its answers by name and version: give a changed function another version. A
    run that has answers of it refuses changed code of the same version.

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
                raise InputError(
                    f"FunctionModel: {what} is {clean_for_display(repr(text))}; expected letters,"
                    " digits, '.', '-', '_' or ':'"
                )
        self.ask = ask
        self.identity = f"{PYTHON_PREFIX}{name}@{version}"

    @property
    def code(self) -> str:
        """A hash of the function's code: of its module's file or, in a script or notebook, of its
        own text; "" if neither is known.
        """
        ask: Any = self.ask
        while isinstance(ask, partial):
            ask = ask.func
        named = ask if hasattr(ask, "__qualname__") else type(ask)
        module: Any = sys.modules.get(named.__module__)
        try:
            return sha256_hex(inspect.getsource(named if module.__name__ == "__main__" else module))
        except (AttributeError, OSError, TypeError):
            return ""


Functions = Mapping[str, FunctionModel]
"""Those that settings carry, by identity: everything else knows a model by its name."""

NO_FUNCTIONS: Functions = {}


def function_named(name: str, functions: Functions) -> FunctionModel:
    """Return the function of a name: one that the settings carry, or
    `python/module:function@version`.

    Raises:
        InputError: the name is of another form, or the module or function cannot be loaded.
    """
    if (model := functions.get(name)) is not None:
        return model
    path, at, version = name.removeprefix(PYTHON_PREFIX).rpartition("@")
    module, colon, attribute = path.partition(":")
    if not (at and version and colon and module and attribute):
        raise InputError(
            f"{name}: expected python/module:function@version; from Python, a FunctionModel"
        )
    # the action: what is checked out there is not the user's own
    if sys.flags.isolated:
        raise InputError(
            f"{name}: not with python -I, which imports no module of this folder; in the action,"
            " the input python-functions allows it"
        )
    if (here := str(Path.cwd())) not in sys.path and "" not in sys.path:
        sys.path.insert(0, here)  # a module of the user's, as `python -m` finds it
    try:
        value: Any = importlib.import_module(module)
        for part in attribute.split("."):
            value = getattr(value, part)
    except KeyboardInterrupt:
        raise
    # for the user to fix; an exit of the module too
    except BaseException as error:
        line = f"{name}: {_error_text(error)}"
        if hint := _suggest_spelling(error, attribute):
            line += f"; {hint}"
        raise InputError(line) from error
    return FunctionModel(value, name=path, version=version)


def hash_functions(names: Iterable[str], functions: Functions) -> dict[str, str]:
    """Return the hash of each function's code, by name, as far as it is known."""
    code = {
        name: function_named(name, functions).code
        for name in names
        if name.startswith(PYTHON_PREFIX)
    }
    return {name: digest for name, digest in code.items() if digest}


def _suggest_spelling(error: BaseException, attribute: str) -> str:
    """Return a question about a module or a function that was misspelt, if one is near."""
    if isinstance(error, ModuleNotFoundError):
        return did_you_mean(str(error.name), (path.stem for path in Path.cwd().glob("*.py")))
    if isinstance(error, AttributeError) and error.name in attribute.split("."):
        return did_you_mean(error.name, vars(error.obj) if hasattr(error.obj, "__dict__") else ())
    return ""


def _error_text(error: BaseException) -> str:
    """Return the text of a function's exception, on one line and without secrets. Making that text
    may raise too.
    """
    try:
        text = f"{type(error).__name__}: {error}"
    # `__str__` is the user's code as well, and may raise anything
    except BaseException:
        text = type(error).__name__
    # a key may lie across the cut
    text = collect_secrets().scrub(text[: _MOST_READ + _SECRET_MARGIN])[:_MOST_READ]
    return one_line(remove_url_credentials(text))


class _Result(NamedTuple):
    """Result of a call: the function's return value, or its exception."""

    value: Any = None
    raised: str = ""

    @classmethod
    def of(cls, answer: Callable[[], Any]) -> _Result:
        try:
            return cls(answer())
        # an exit of the function is no exit of ours
        except BaseException as error:
            return cls(raised=_error_text(error))


class CalledFunction:
    """A function as the client calls it: in a thread, or in a loop that is not ours. Our loop goes
    on in any case.

    Args:
        model: the function.
        http: holds the number of concurrent calls; without it the function has an identity, and is
            not called.
    """

    request_notes: Sequence[str] = ()
    left_out: Sequence[str] = ()

    def __init__(self, model: FunctionModel, http: HttpSession | None = None) -> None:
        self.identity = model.identity
        self._ask = model.ask
        self._is_async = inspect.iscoroutinefunction(model.ask) or inspect.iscoroutinefunction(
            type(model.ask).__call__
        )
        self._http = http
        self._secrets = collect_secrets()
        default_limit = None if self._is_async else _THREADS
        self.limiter = http.limiter(model.identity, default_limit) if http else Limiter(UNLIMITED)
        self._running: set[asyncio.Future[_Result]] = set()
        """Calls that have not ended, those that were given up among them."""

    async def attempt(self, call: Call) -> Attempt:
        """Call the function and return the result; nothing is raised but cancellation."""
        messages = [{"role": message.role, "content": message.content} for message in call.messages]
        assert self._http is not None
        started, seconds_at_most = time.monotonic(), self._http.attempt_seconds
        try:
            async with asyncio.timeout(seconds_at_most):
                # a call that was given up runs on
                while len(self._running) >= self.limiter.limit:
                    await asyncio.wait(self._running, return_when=asyncio.FIRST_COMPLETED)
                result = await self._call(messages)
        except TimeoutError:
            line = f"{self.identity}: no answer in {seconds_at_most:g} seconds"
            return Failure(kind="timeout", error=line, seconds=time.monotonic() - started)
        seconds = time.monotonic() - started
        if result.raised:
            line = f"{self.identity}: raised {result.raised}"
            return Failure(kind="raised", error=line, retry=True, seconds=seconds)
        return self._read(result.value, seconds)

    def _read(self, text: Any, seconds: float) -> Attempt:
        try:
            if not issubclass(type(text), str):
                what = "None" if text is None else f"a {type(text).__name__}"
                line = f"returned {what}; expected a text, empty for a refusal"
                raise NotAnAnswer("no_answer", line)
            plain = str.__str__(text)  # numpy's texts are none to JSON
            body = self._secrets.scrub_bytes(completion_body(plain, self.identity))
            return Replied(read_reply(body), body, seconds)
        except NotAnAnswer as wrong:
            kind, line = wrong.kind, str(wrong)
        # half of a surrogate pair
        except ValueError as error:
            kind = "malformed"
            line = f"returned a text that is not valid Unicode: {one_line(str(error))}"
        return Failure(kind=kind, error=f"{self.identity}: {line}", replied=True, seconds=seconds)

    async def _call(self, messages: list[dict[str, str]]) -> _Result:
        """Call the function. If the caller stops waiting, an async one is cancelled; a plain one
        runs on in its thread, without delaying the end.
        """
        assert self._http is not None
        our_loop, function_loop = asyncio.get_running_loop(), self._http.function_loop
        process = os.getpid()
        ended: asyncio.Future[_Result] = our_loop.create_future()
        self._running.add(ended)
        ended.add_done_callback(self._running.discard)
        tasks: list[asyncio.Task[Any]] = []

        def tell(result: _Result) -> None:
            # it forked, and this is the child
            if os.getpid() != process:
                os._exit(1)
            # a closed loop: the run is over
            with suppress(RuntimeError):
                our_loop.call_soon_threadsafe(ended.set_result, result)

        def run_in_function_loop(make: Callable[[], Any]) -> None:
            async def await_result() -> Any:
                return await make()

            tasks.append(task := function_loop.create_task(await_result()))
            task.add_done_callback(lambda task: tell(_Result.of(task.result)))

        def work() -> None:
            result = _Result.of(lambda: self._ask(messages))
            if inspect.isawaitable(result.value):
                function_loop.call_soon_threadsafe(run_in_function_loop, lambda: result.value)
            else:
                tell(result)

        if self._is_async:
            function_loop.call_soon_threadsafe(run_in_function_loop, lambda: self._ask(messages))
        else:
            threading.Thread(target=work, name=self.identity, daemon=True).start()
        try:
            return await asyncio.shield(ended)
        finally:
            if not ended.done():
                function_loop.call_soon_threadsafe(lambda: [task.cancel() for task in tasks])
