"""From a model's name to its answering object: Python functions, endpoints, recorded responses;
lists of models.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import importlib.resources
import inspect
import os
import re
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, NamedTuple, Protocol

import msgspec

from opensafeintent.calls.baselines import BASELINES, ScriptedModel
from opensafeintent.calls.client import Model
from opensafeintent.calls.http import ATTEMPT_SECONDS, ChatModel, HttpSession
from opensafeintent.calls.limiter import UNLIMITED, Limiter
from opensafeintent.calls.providers import (
    ENDPOINTS,
    LOCAL_WEIGHTS,
    PREFIX,
    is_native,
    provider_of,
    resolve_endpoint,
    variables,
)
from opensafeintent.calls.recorded import read_recorded
from opensafeintent.calls.records import Attempt, Call, Failure, Replied
from opensafeintent.calls.replies import NotAnAnswer, completion_body, read_reply
from opensafeintent.errors import InputError, did_you_mean, nearest
from opensafeintent.files import parse_toml, read_text, sha256_hex
from opensafeintent.hostile import one_line, unprintable, without_user_info
from opensafeintent.secrets import known_secrets

Ask = Callable[[list[dict[str, str]]], "str | Awaitable[str | None] | None"]
"""Takes the conversation, `{"role": …, "content": …}` each, and returns the model's answer."""

_THREADS = 16
"""Concurrent calls of a plain function, if the user set no number."""
_MOST_READ = 2**16
"""Characters of an exception that are looked through."""
_FORM = re.compile(r"[\w.:\-]+")


class FunctionModel:
    """A function that answers as a model does, for `models=` or `judges=` of settings.

    It takes the list of messages, a `dict` with `role` and `content` each, and returns a text. An
    empty text counts as a refusal, None and an exception as a failed call. A plain function is
    called in threads, up to 16 at once; set `max_connections=1` if it must not run concurrently. An
    async function runs in an event loop for functions.

    The ledger stores its answers by name and version: give a changed function another version, or
    the ledger returns the earlier answers.

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
                    f"FunctionModel: {what} is {one_line(repr(text), 60)}; expected letters,"
                    " digits, '.', '-', '_' or ':'"
                )
        self.ask = ask
        self.identity = f"{PREFIX}{name}@{version}"


Functions = Mapping[str, FunctionModel]
"""Those that settings carry, by identity: everything else knows a model by its name."""

NO_FUNCTIONS: Functions = {}


def function_named(name: str, functions: Functions) -> FunctionModel:
    """Return the function of a name: one that the settings carry, or
    `python/module:function@version`.

    Raises:
        InputError: the name is of another form, or the module or function cannot be loaded.
    """
    if (known := functions.get(name)) is not None:
        return known
    path, at, version = name.removeprefix(PREFIX).rpartition("@")
    module, colon, attribute = path.partition(":")
    if not (at and version and colon and module and attribute):
        raise InputError(
            f"{name}: expected python/module:function@version; from Python, a FunctionModel"
        )
    if sys.flags.isolated:  # the action: what is checked out there is not the user's own
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
    except BaseException as error:  # for the user to fix; an exit of the module too
        guess = _meant(error, attribute)
        raise InputError(f"{name}: {_words(error)}{guess and '; ' + guess}") from error
    return FunctionModel(value, name=path, version=version)


def _meant(error: BaseException, attribute: str) -> str:
    """Return a question about a module or a function that was misspelt, if one is near."""
    if isinstance(error, ModuleNotFoundError):
        return did_you_mean(str(error.name), (path.stem for path in Path.cwd().glob("*.py")))
    if isinstance(error, AttributeError) and error.name in attribute.split("."):
        return did_you_mean(error.name, vars(error.obj) if hasattr(error.obj, "__dict__") else ())
    return ""


def _words(error: BaseException) -> str:
    """Return the text of a function's exception, on one line and without secrets. Making that text
    may raise too.
    """
    try:
        text = f"{type(error).__name__}: {error}"
    except BaseException:  # `__str__` is the user's code as well, and may raise anything
        text = type(error).__name__
    return one_line(without_user_info(known_secrets().scrub(text[:_MOST_READ])), 300)


class _Came(NamedTuple):
    """Result of a call: the function's return value, or its exception."""

    value: Any = None
    raised: str = ""

    @classmethod
    def of(cls, answer: Callable[[], Any]) -> _Came:
        try:
            return cls(answer())
        except BaseException as error:  # an exit of the function is no exit of ours
            return cls(raised=_words(error))


class CalledFunction:
    """A function as the client calls it: in a thread, or in a loop that is not ours. Our loop goes
    on in any case.

    Args:
        model: the function.
        http: holds the number of concurrent calls; without it the function has an identity, and is
            not called.
    """

    notices: Sequence[str] = ()
    left_out: Sequence[str] = ()

    def __init__(self, model: FunctionModel, http: HttpSession | None = None) -> None:
        self.identity = model.identity
        self._ask = model.ask
        self._waits = inspect.iscoroutinefunction(model.ask) or inspect.iscoroutinefunction(
            type(model.ask).__call__
        )
        self._http = http
        self._secrets = known_secrets()
        fixed = None if self._waits else _THREADS
        self.limiter = http.limiter(model.identity, fixed) if http else Limiter(UNLIMITED)
        self._running: set[asyncio.Future[_Came]] = set()
        """Calls that have not ended, those that were given up among them."""

    async def attempt(self, call: Call) -> Attempt:
        """Call the function and return the result; nothing is raised but cancellation."""
        messages = [{"role": message.role, "content": message.content} for message in call.messages]
        started = time.monotonic()
        try:
            async with asyncio.timeout(ATTEMPT_SECONDS):
                while len(self._running) >= self.limiter.limit:  # one that was given up runs on
                    await asyncio.wait(self._running, return_when=asyncio.FIRST_COMPLETED)
                came = await self._called(messages)
        except TimeoutError:
            line = f"{self.identity}: no answer in {ATTEMPT_SECONDS:.0f} seconds"
            return Failure(kind="timeout", error=line, seconds=time.monotonic() - started)
        seconds = time.monotonic() - started
        if came.raised:
            line = f"{self.identity}: raised {came.raised}"
            return Failure(kind="raised", error=line, seconds=seconds)
        return self._read(came.value, seconds)

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
        except ValueError as error:  # half of a surrogate pair
            kind = "malformed"
            line = f"returned a text that is not valid Unicode: {one_line(str(error), 200)}"
        return Failure(kind=kind, error=f"{self.identity}: {line}", replied=True, seconds=seconds)

    async def _called(self, messages: list[dict[str, str]]) -> _Came:
        """Call the function. If the caller stops waiting, an async one is cancelled; a plain one
        runs on in its thread, without delaying the end.
        """
        assert self._http is not None
        ours, aside, process = asyncio.get_running_loop(), self._http.aside, os.getpid()
        ended: asyncio.Future[_Came] = ours.create_future()
        self._running.add(ended)
        ended.add_done_callback(self._running.discard)
        tasks: list[asyncio.Task[Any]] = []

        def tell(came: _Came) -> None:
            if os.getpid() != process:  # it forked, and this is the child
                os._exit(1)
            with suppress(RuntimeError):  # our loop is closed: the run is over
                ours.call_soon_threadsafe(ended.set_result, came)

        def follow(make: Callable[[], Any]) -> None:
            async def awaited() -> Any:
                return await make()

            tasks.append(task := aside.create_task(awaited()))
            task.add_done_callback(lambda task: tell(_Came.of(task.result)))

        def work() -> None:
            came = _Came.of(lambda: self._ask(messages))
            if inspect.isawaitable(came.value):
                aside.call_soon_threadsafe(follow, lambda: came.value)
            else:
                tell(came)

        if self._waits:
            aside.call_soon_threadsafe(follow, lambda: self._ask(messages))
        else:
            threading.Thread(target=work, name=self.identity, daemon=True).start()
        try:
            return await asyncio.shield(ended)
        finally:
            if not ended.done():
                aside.call_soon_threadsafe(lambda: [task.cancel() for task in tasks])


# From a model's name to its object
# ------------------------------------------------------------------------------


class OtherProviders(Protocol):
    """Opens models whose names the native client does not serve. It is passed in, since it belongs
    to a higher layer.
    """

    def check(self, name: str) -> None:
        """Raise the InputError that a name has, without asking for a key."""

    def open(self, name: str, http: HttpSession, left_out: Collection[str] = ()) -> Model:
        """Return the model of a name, without the fields that it does not take."""


def open_models(
    names: Iterable[str],
    http: HttpSession,
    others: OtherProviders | None = None,
    functions: Functions = NO_FUNCTIONS,
    left_out: Mapping[str, Collection[str]] = {},
) -> dict[str, Model]:
    """Return the model of each name; nothing is sent yet.

    Args:
        names: the models.
        http: the connections.
        others: opens the names that the native client does not serve.
        functions: those that settings carry.
        left_out: by model, fields that an earlier run found out that it does not take.

    Raises:
        InputError: names, files or variables are not usable; a line each.
    """
    opened: dict[str, Model] = {}
    problems: list[str] = []
    for name in names:
        try:
            if (model := _in_process(name, functions, http)) is not None:
                opened[name] = model
            elif others is not None and _is_foreign(name):
                opened[name] = others.open(name, http, left_out.get(name, ()))
            else:
                opened[name] = ChatModel(name, resolve_endpoint(name), http, left_out.get(name, ()))
        except InputError as error:
            problems.append(str(error))
    if problems:
        raise InputError(*problems)
    return opened


def _in_process(name: str, functions: Functions, http: HttpSession | None = None) -> Model | None:
    """Return the model of a name without a provider; without `http` for its identity alone."""
    check_model_name(name)
    if name.startswith("baseline/"):
        return ScriptedModel(name)
    if name.startswith(PREFIX):
        return CalledFunction(function_named(name, functions), http)
    return ReplayModel(name) if name.startswith("replay/") else None


def check_model_name(name: str, where: str = "model") -> None:
    """Refuse a name that could not be written into files, figures and pages.

    Raises:
        InputError: it holds such a character; the text begins with `where`, the option or file.
    """
    if held := unprintable(name):
        raise InputError(f"{where} {one_line(name, 60)!r}: holds {held}; expected a printable name")


def _is_foreign(name: str) -> bool:
    provider, _, model = name.partition("/")
    return bool(provider and model) and not is_native(name)


def model_identity(
    name: str, others: OtherProviders | None = None, functions: Functions = NO_FUNCTIONS
) -> str:
    """Return a model's identity in call keys, without asking for an API key or a server.

    Raises:
        InputError: the name or its file is not usable.
    """
    if (model := _in_process(name, functions)) is not None:
        return model.identity
    if others is not None and _is_foreign(name):
        others.check(name)
    else:
        resolve_endpoint(name, for_calls=False)
    return name


def is_local(name: str) -> bool:
    """Tell whether a model runs on the user's own machines, by its provider's name."""
    provider = provider_of(name)
    return provider in LOCAL_WEIGHTS or (provider in ENDPOINTS and ENDPOINTS[provider].local)


class Served(msgspec.Struct, frozen=True):
    """One line of the `models` command."""

    name: str
    about: str
    needs: tuple[str, ...] = ()
    """Variables without which it cannot be used."""
    packages: tuple[str, ...] = ()
    """Those that have to be installed, as pip names them."""

    @property
    def unset(self) -> tuple[str, ...]:
        """The variables that are not set."""
        return tuple(name for name in self.needs if not os.environ.get(name, "").strip())

    @property
    def lacking(self) -> tuple[str, ...]:
        """Variables to set and packages to install before it can be used, a line each."""
        there = {name for name in self.packages if _is_installed(name)}
        absent = " ".join(name for name in self.packages if name not in there)
        return (*self.unset, *([f"pip install {absent}"] if absent else []))


def _is_installed(package: str) -> bool:
    try:
        importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def served_models() -> list[Served]:
    """List the names of models, and the variables that each needs."""
    in_process = {
        **{f"baseline/{name}": script.summary for name, script in BASELINES.items()},
        "replay/FILE": "recorded responses: JSONL with id, variant, response",
        "python/MODULE:FUNCTION@VERSION": "your function: messages in, text out",
    }
    lines = [Served(name, about) for name, about in in_process.items()]
    for name, provider in ENDPOINTS.items():
        url, key = variables(name)
        server = "server at " if provider.local else ""
        about = f"{server}{provider.base_url} (or {url})"
        lines.append(Served(f"{name}/MODEL", about, () if provider.local else (key,)))
    about = "any chat-completions server, under a name P of your choice"
    lines.append(Served("openai-api/P/MODEL", about, ("P_BASE_URL", "P_API_KEY")))
    return lines


# Recorded responses as a model
# ------------------------------------------------------------------------------


class ReplayModel:
    """Answers with the response that a file holds for a prompt-set, variant and epoch; it cannot be
    asked anything else.
    """

    notices: Sequence[str] = ()
    left_out: Sequence[str] = ()

    def __init__(self, name: str) -> None:
        self.limiter = Limiter(UNLIMITED)
        path = Path(name.removeprefix("replay/"))
        if not path.is_file():
            raise InputError(f"{name}: no such file of responses: {path}")
        self.identity = f"replay/{path.stem}@{sha256_hex(path.read_bytes())[:12]}"
        self._path = path
        self._responses = {
            (recorded.set_id, recorded.variant, recorded.epoch): recorded
            for recorded in read_recorded(path)
            if recorded.response is not None
        }

    async def attempt(self, call: Call) -> Attempt:
        """Return the recorded response, as if the model had just written it."""
        subject = call.subject
        if call.purpose != "generate" or subject is None:
            return Failure(kind="not_recorded", error=f"{self._path} holds responses only")
        recorded = self._responses.get((subject.set_id, subject.variant, subject.epoch))
        if recorded is None:
            line = (
                f"{self._path} holds no response for {subject.set_id}, {subject.variant},"
                f" epoch {subject.epoch}"
            )
            return Failure(kind="not_recorded", error=line)
        body = completion_body(recorded.response or "", self.identity, recorded.stop_reason)
        try:
            return Replied(read_reply(body), body)
        except NotAnAnswer as wrong:
            line = f"{self._path}: {subject.set_id}, {subject.variant}: {wrong}"
            return Failure(kind=wrong.kind, error=line, replied=True, body=body)


# Named lists of models, as data files that a user can copy and edit
# --------------------------------------------------


class SuiteModel(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One model of a suite."""

    model: str
    """The name that it is called by."""
    paper: str = ""
    """Its name in a publication."""


class Suite(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Models that are evaluated together."""

    name: str
    models: Annotated[tuple[SuiteModel, ...], msgspec.Meta(min_length=1)]
    about: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """The models' names, in the suite's order."""
        return tuple(item.model for item in self.models)


def load_suite(name: str) -> Suite:
    """Read a suite: one of ours by its name (`paper`), or a TOML file of the same form.

    Raises:
        InputError: there is no such suite, or the file is none.
    """
    folder = importlib.resources.files("opensafeintent").joinpath("data/suites")
    shipped = sorted(
        Path(str(entry)).stem for entry in folder.iterdir() if entry.name.endswith(".toml")
    )
    if name in shipped:
        return _parse(folder.joinpath(f"{name}.toml").read_text("utf-8"), f"{name}.toml")
    path = Path(name)
    if path.suffix != ".toml":
        raise InputError(
            f"--suite {one_line(name, 100)}: no such suite, and not the name of a .toml file;"
            f" {nearest(name, shipped)}"
        )
    return _parse(read_text(path), str(path))


def _parse(text: str, location: str) -> Suite:
    suite = parse_toml(
        text, Suite, location, 'a suite (name = "…" and [[models]] with model = "…")'
    )
    twice = sorted({name for name in suite.names if suite.names.count(name) > 1})
    if twice:
        raise InputError(f"{location}: {twice[0]} is there twice")
    return suite
