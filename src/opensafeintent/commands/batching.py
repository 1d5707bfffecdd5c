"""Batches as the commands use them; what makes them is loaded if they are asked for."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from opensafeintent.calls.client import Model
from opensafeintent.calls.headers import headers_by_model
from opensafeintent.calls.ledger import LEDGER
from opensafeintent.calls.providers import is_in_process
from opensafeintent.calls.service_tiers import BATCH
from opensafeintent.commands.session import Session, run_async
from opensafeintent.commands.settings import BatchesSettings, Calling
from opensafeintent.errors import InputError
from opensafeintent.evaluation.manifest import Manifest, RunFolder
from opensafeintent.evaluation.pipeline import ModelWork
from opensafeintent.promptsets import Dataset

if TYPE_CHECKING:
    from opensafeintent.batch.rounds import Batching
    from opensafeintent.batch.runs import BatchLine, Gathering


def need_batches(settings: Calling, names: Iterable[str]) -> None:
    """See that every model that is to be asked in batches can be.

    Args:
        settings: of the command.
        names: the models that it may call.

    Raises:
        InputError: some cannot.
    """
    asked = settings.models_at(BATCH, [name for name in names if not is_in_process(name)])
    if asked:
        from opensafeintent.batch.endpoints import check_batches

        check_batches(asked)


def takes_batches(settings: Calling, names: Iterable[str]) -> bool:
    """Tell whether a command could ask all of these models in batches."""
    try:
        need_batches(msgspec.structs.replace(settings, tier=(BATCH,), wait_for=None), names)
    except InputError:
        return False
    return True


async def begin_batches(session: Session) -> Batching | None:
    """Return the batches of a run, those that an earlier command has left taken up; None if no
    batches are wanted.

    Raises:
        InputError: batches are under way, and none are wanted; or see `Batching.begin`.
        Stopped: see `Batching.make`.
    """
    if (in_batches := _models_in_batches(session)) is None:
        return None
    from opensafeintent.batch.endpoints import batch_models
    from opensafeintent.batch.rounds import Batching
    from opensafeintent.batch.store import BatchStore, store_path

    client, http = session.client, session.http
    store = http.enter_context(BatchStore(store_path(client.ledger.path)))
    seconds = session.settings.wait_seconds
    models = batch_models(in_batches, http)
    batching = Batching(client, models, store, session.display, seconds=seconds)
    async with batching.show_progress():
        return await batching.begin()


async def fill_in_batches(
    batching: Batching,
    work: Sequence[ModelWork],
    identities: Mapping[str, str],
    run: tuple[Manifest, Dataset] | None = None,
) -> None:
    """Make the calls of some work in batches, until the ledger lacks none that can be made.

    Args:
        batching: makes the rounds.
        work: the tasks, by target.
        identities: of every target and judge, by name.
        run: whose judges are asked again after that, if its manifest plans it.

    Raises:
        Stopped, InputError: see `Batching.make`.
    """
    from opensafeintent.batch.runs import fill_ledger, fill_regrades

    async with batching.show_progress():
        await fill_ledger(batching, work, identities)
        if run is not None:
            await fill_regrades(batching, *run)


def _models_in_batches(session: Session) -> dict[str, Model] | None:
    """Return the opened models that are to be asked in batches; None if the settings name none.

    Raises:
        InputError: batches of another model are under way.
    """
    settings, models = session.settings, session.opened
    asked = {name: model for name, model in models.items() if settings.find_tier(name) == BATCH}
    _refuse_if_under_way(session.client.ledger.path, models.keys() - asked.keys())
    return asked if settings.in_batches else None


def _refuse_if_under_way(ledger: Path, models: Collection[str]) -> None:
    """Refuse to make plain calls while a batch may still answer them: they would be paid for twice.

    Raises:
        InputError: batches of these models are under way.
    """
    with contextlib.suppress(ModuleNotFoundError):
        from opensafeintent.batch.store import BatchStore, store_path

        path = store_path(ledger)
        if not path.exists():
            return
        with BatchStore(path, readonly=True) as store:
            left = store.batches("uploaded", "submitting", "open")
        if count := sum(batch.model in models for batch in left):
            raise InputError(
                f"{path}: batches that are under way: {count}; expected --tier {BATCH}, which takes"
                " their results"
            )


def open_gathering(session: Session) -> Gathering | None:
    """Return the object that makes the calls of a build in batches; None if none are wanted."""
    if (in_batches := _models_in_batches(session)) is None:
        return None
    from opensafeintent.batch.endpoints import batch_models
    from opensafeintent.batch.runs import Gathering
    from opensafeintent.batch.store import BatchStore, store_path

    client, http = session.client, session.http
    store = http.enter_context(BatchStore(store_path(client.ledger.path)))
    seconds = session.settings.wait_seconds
    return Gathering(client, batch_models(in_batches, http), store, session.display, seconds)


def batches(settings: BatchesSettings) -> list[BatchLine]:
    """Return the batches of a run, a build or a judge check, the oldest first; or ask their
    providers to end those under way.

    Raises:
        InputError: the folder holds none of these, or this installation has no batches.
    """
    from opensafeintent.batch.runs import overview
    from opensafeintent.batch.store import BatchStore, store_path

    ledger, tested = _ledger_in(settings.run, settings.ledger)
    path = store_path(ledger)
    if not path.exists():
        return []
    with BatchStore(path, readonly=True) as store:
        asked = dict.fromkeys(batch.model for batch in store.batches())
        judges = [model for model in asked if model not in tested]
        headers = headers_by_model(settings.header, tested, judges, asked)
        return run_async(
            lambda: overview(store, cancel=settings.cancel, ids=settings.id, headers=headers)
        )


def _ledger_in(folder: Path, ledgers: Collection[Path]) -> tuple[Path, list[str]]:
    """Return the path of the ledger that a folder names, or has, and the models under test.

    Raises:
        InputError: it has none.
    """
    from opensafeintent.construction.folder import BuildFolder

    run, build = RunFolder(folder, ledgers), BuildFolder(folder, ledgers)
    if run.exists():
        evaluated = run.manifest()
        return run.ledger_path(evaluated), list(evaluated.models)
    if (built := build.load()) is not None:
        return build.ledger_path(built), [built.generator]
    if (folder / LEDGER).exists():
        return folder / LEDGER, []
    raise InputError(f"{folder}: expected the folder of a run, a build or a judge check")
