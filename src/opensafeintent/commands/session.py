"""What every command that calls models sets up: the loop, its limits, interruption."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import sys
from collections.abc import (
    AsyncIterator,
    Callable,
    Collection,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
)
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from opensafeintent.any_model import open_models
from opensafeintent.batch.endpoints import check_batches
from opensafeintent.batch.rounds import Batching
from opensafeintent.calls.client import Client, Model
from opensafeintent.calls.costs import Budget, forecast_cost
from opensafeintent.calls.draining import Drain, handle_signals, raise_if_interrupted
from opensafeintent.calls.headers import Headers
from opensafeintent.calls.http import HttpSession
from opensafeintent.calls.ledger import Ledger
from opensafeintent.calls.model_names import is_local
from opensafeintent.calls.prices import PriceList, Prices, find_way
from opensafeintent.calls.progress import Display, show_progress
from opensafeintent.calls.providers import ENDPOINTS, find_provider, is_in_process
from opensafeintent.calls.service_tiers import BATCH, FLEX, NO_FLEX, STANDARD, FlexPlan
from opensafeintent.commands.settings import Calling
from opensafeintent.errors import InputError, Interrupted
from opensafeintent.evaluation.forecast import Forecast
from opensafeintent.replacing import Taken
from opensafeintent.report.cost_tables import dollars_text

T = TypeVar("T")

_MOST_FILES_ON_MACOS = 10_240
"""`OPEN_MAX`; its hard limit is infinity, which it refuses as a soft one."""
_LOOK_SECONDS = 0.5
"""A thread that waits for another does not wake for a signal that yet another one was given: it
looks now and then.
"""


def run_async(make: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine on a loop of its own; in a thread if a loop runs already (a notebook).

    Called on the main thread, it handles SIGINT, SIGTERM and SIGHUP for as long as it runs. While
    calls are in flight, the first signal drains: no call is begun, and those in flight are waited
    for and recorded. The second cancels, as does the first if nothing is in flight. A further one
    raises at once, at any point of the program. A signal that is ignored (`nohup`, a job in the
    background), or that the program handles itself, is left alone.

    Raises:
        KeyboardInterrupt: a signal ended the work; its cause is any other error on the way.
    """
    _raise_file_limit()
    ending = _Ending()
    try:
        with handle_signals(ending.ask, "SIGINT", "SIGTERM", "SIGHUP"):
            if _loop_runs():
                result = _run_beside(make, ending)
            else:
                with _open_loop() as runner:
                    result = runner.run(ending.work(make))
    except BaseException as error:  # a signal counts, even if another error ended the work with it
        if not ending.asked:
            raise
        ours = isinstance(error, Interrupted | asyncio.CancelledError | KeyboardInterrupt)
        raise KeyboardInterrupt from None if ours else error
    if ending.asked:  # while the last of it was being done
        raise KeyboardInterrupt
    return result


class _Ending:
    """How a piece of work hears that it is to end."""

    def __init__(self) -> None:
        self._drain = Drain()
        self._draining = self._cancelled = False
        self._target: tuple[asyncio.AbstractEventLoop, asyncio.Task[Any]] | None = None

    @property
    def asked(self) -> bool:
        """Whether the work was asked to end."""
        return self._drain.asked

    def ask(self, *_: object) -> None:
        """Ask the work to end; each time more urgently.

        Runs at any point of the main thread, on a signal.
        """
        self._drain.asked = True
        if self._target is None:  # about to begin
            return
        if not self._draining and not self._cancelled and self._drain.busy:
            self._draining = True
            self._soon(self._drain.begin)
        elif not self._cancelled:
            self._cancelled = True
            self._soon(self._cancel)
        else:
            raise KeyboardInterrupt

    def _cancel(self) -> None:
        """Cancel; or wait for the calls that were begun between the first signal and now, when the
        loop hears of it.
        """
        if self._drain.busy and not self._draining:
            self._draining, self._cancelled = True, False
            self._drain.begin()
        else:
            assert self._target is not None
            self._target[1].cancel()

    def _soon(self, do: Callable[[], object]) -> None:
        assert self._target is not None
        with contextlib.suppress(RuntimeError):  # the loop is closed: the work has ended
            self._target[0].call_soon_threadsafe(do)

    async def work(self, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Do the work, with its drain in force."""
        task = asyncio.current_task()
        assert task is not None
        self._target = (asyncio.get_running_loop(), task)
        if self.asked:
            raise Interrupted
        with self._drain.in_force():
            return await make()


def _loop_runs() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _run_beside(make: Callable[[], Coroutine[Any, Any, T]], ending: _Ending) -> T:
    def run() -> T:
        with _open_loop() as runner:
            return runner.run(ending.work(make))

    with ThreadPoolExecutor(max_workers=1) as executor:
        result = executor.submit(run)
        while not result.done():
            try:
                wait([result], _LOOK_SECONDS)
            except KeyboardInterrupt:  # another handler has raised it here, while we wait
                ending.ask()
        return result.result()


@contextlib.contextmanager
def _open_loop() -> Iterator[asyncio.Runner]:
    factory: Callable[[], asyncio.AbstractEventLoop] | None = None
    if sys.platform != "win32":
        import uvloop

        factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner, delay_garbage_collection():
        yield runner


@contextlib.contextmanager
def delay_garbage_collection() -> Iterator[None]:
    """Collect garbage rarely: each time, all tasks or grades of a run are walked, for up to half of
    all CPU (benchmarks).
    """
    thresholds = gc.get_threshold()
    gc.set_threshold(100_000, 50, 100)
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)


def _raise_file_limit() -> None:
    """A connection is an open file: a thousand of them need more than the usual limit."""
    try:
        import resource
    except ImportError:  # not on Windows
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for wanted in (hard, max(soft, _MOST_FILES_ON_MACOS)):
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            break


def make_budget(settings: Calling, prices: Path | PriceList | None = None) -> Budget:
    """Return the limits that settings name, with their prices, or others.

    Raises:
        InputError: the file of prices cannot be read.
    """
    return Budget(
        calls=settings.budget_calls,
        dollars=settings.budget_dollars,
        prices=Prices(prices or settings.prices),
        max_retries=settings.max_retries,
        retry_seconds=settings.retry_for * 60,
    )


def wait_or_refuse(settings: Calling, display: Display) -> Callable[[str], None]:
    """Return a function to call with the name of a ledger's or folder's holder
    (`replacing.lock_held`); it shows the name, or raises `Taken`.
    """

    def wait(line: str) -> None:
        if not settings.wait:
            raise Taken(f"{line}; wait for it, or add --wait")
        show_waiting(display, line)

    return wait


def show_waiting(display: Display, line: str) -> None:
    """Show who holds a ledger or a folder that is waited for.

    Raises:
        Interrupted: this process was asked to end.
    """
    raise_if_interrupted()
    display.stage(f"waiting: {line}")


def plan_flex_tier(settings: Calling, models: Iterable[str]) -> FlexPlan:
    """Return which models are asked at the flex tier, by the settings.

    Models that run in this process or on the user's own machines have no tiers and cost nothing:
    they are asked as usual.

    Args:
        settings: of the command.
        models: every model that the command may call.

    Raises:
        InputError: a model's provider has no flex tier, or a setting names another model.
    """
    paid = [name for name in models if not is_in_process(name) and not is_local(name)]
    if not (asked := settings.models_at(FLEX, paid)):
        return NO_FLEX
    if lacking := [name for name in asked if not ((row := find_provider(name)) and row.flex)]:
        having = ", ".join(name for name, row in ENDPOINTS.items() if row.flex)
        raise InputError(
            f"--tier {FLEX}: the provider of {', '.join(lacking)} has no flex tier;"
            f" expected models of {having}, or --tier MODEL:{FLEX} for some of the models"
        )
    return FlexPlan(frozenset(asked), settings.wait_seconds)


def check_batch_models(settings: Calling, names: Iterable[str]) -> None:
    """See that every model that is to be asked in batches can be.

    Args:
        settings: of the command.
        names: the models that it may call.

    Raises:
        InputError: some cannot.
    """
    asked = settings.models_at(BATCH, [name for name in names if not is_in_process(name)])
    if asked:
        check_batches(asked)


def takes_batches(settings: Calling, names: Iterable[str]) -> bool:
    """Tell whether a command could ask all of these models in batches."""
    try:
        check_batch_models(msgspec.structs.replace(settings, tier=(BATCH,), wait_for=None), names)
    except InputError:
        return False
    return True


def check_calls(settings: Calling, names: Collection[str]) -> None:
    """See that each model that may be called has the tier that is stated for it, and a price if
    there is a budget in dollars.

    Raises:
        InputError: one lacks it, or the file of prices cannot be read.
    """
    check_batch_models(settings, names)
    plan_flex_tier(settings, names)
    make_budget(settings).check_prices(names)


def choose_ways(settings: Calling, models: Iterable[str]) -> dict[str, str]:
    """Return the tier at which each model is asked that is not asked at the standard tier, by
    settings that `plan_flex_tier` or `check_batch_models` have accepted.
    """
    stated = {model: settings.find_tier(model) for model in models}
    return {model: tier for model, tier in stated.items() if find_way(model, tier)}


def note_beyond_budget(
    expected: Forecast, settings: Calling, kept: Path | PriceList | None = None
) -> Iterator[str]:
    """Yield a note for each budget that the calls to come exceed, by the prices of the settings, or
    others.
    """
    prices = Prices(kept or settings.prices)
    dollars = sum(
        forecast_cost(line, prices, tier=expected.chosen.get(line.model, STANDARD)) or 0.0
        for line in expected.lines
    )
    for flag, most, amount, shown in (
        ("--budget-calls", settings.budget_calls, expected.calls, f"{expected.calls:,} calls"),
        ("--budget-dollars", settings.budget_dollars, dollars, f"{dollars_text(dollars)} dollars"),
    ):
        if most is not None and amount > most:
            yield (
                f"{flag} {most:.10g}: {shown} are expected; at the limit the command"
                " stops with exit code 3, and goes on if it is run again"
            )


class Session(msgspec.Struct, kw_only=True):
    """What a command makes its calls with."""

    settings: Calling
    client: Client
    opened: dict[str, Model]
    http: HttpSession
    budget: Budget
    display: Display
    batching: Batching | None = None
    """None if no model is asked in batches; see `begin_batches`."""

    @property
    def dollars(self) -> float | None:
        """Those spent so far; None if no model that was called has a price."""
        tally = self.client.tally
        paid = (model for model, *_ in tally.usage if not is_in_process(model))
        if not any(map(self.budget.prices.of, paid)):
            return None
        return self.budget.prices.cost(tally.usage)

    def show_progress(self, expected: int) -> contextlib.AbstractAsyncContextManager[None]:
        """Keep the display up to date with the calls, of which so many are expected, while the body
        runs.
        """
        return show_progress(self.display, self.client, expected, lambda: self.dollars)


@contextlib.asynccontextmanager
async def open_session(
    settings: Calling,
    names: Collection[str],
    ledger: Path,
    display: Display,
    *,
    headers: Headers,
    left_out: Mapping[str, Collection[str]] = {},
    identities: Mapping[str, str] = {},
    prices: Path | PriceList | None = None,
    spare: Callable[[], Collection[str]] = tuple,
) -> AsyncIterator[Session]:
    """Open connections, models, prices and the ledger, and close them at the end; nothing is sent.

    Args:
        settings: of the command.
        names: the models that it may call.
        ledger: its path.
        display: shows who holds the ledger.
        headers: of the requests to each model.
        left_out: fields that a model is known not to take.
        identities: of further models, whose stored calls are read.
        prices: in place of those of the settings.
        spare: returns the models to which no call is due; one of them may fail to open.

    Raises:
        InputError: a model, or the ledger, cannot be used.
    """
    budget = make_budget(settings, prices)
    async with HttpSession(settings.max_connections, settings.timeout) as http:
        flex = plan_flex_tier(settings, names)
        options = (http, settings.functions, left_out, flex, headers)
        try:
            opened = open_models(names, *options)
        except InputError:
            if not (unneeded := {*spare()}):
                raise
            opened = open_models([name for name in names if name not in unneeded], *options)
        budget.check_prices(opened)
        with Ledger(ledger, waiting=wait_or_refuse(settings, display)) as kept:
            client = Client(kept, {**identities, **opened}, budget)
            try:
                yield Session(
                    settings=settings,
                    client=client,
                    opened=opened,
                    http=http,
                    budget=budget,
                    display=display,
                )
            except BaseException:  # a command that ends tells it with its results
                if client.tally.new_calls:
                    display.note(client.tally.describe())
                raise
