"""Batches as the commands use them; what makes them is loaded if they are asked for."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from opensafeintent.batch.endpoints import batch_models
from opensafeintent.batch.rounds import Batching
from opensafeintent.batch.runs import BatchLine, Gathering, fill_ledger, fill_regrades, list_batches
from opensafeintent.batch.store import BatchStore, store_path
from opensafeintent.calls.headers import headers_by_model
from opensafeintent.calls.ledger import LEDGER
from opensafeintent.calls.service_tiers import BATCH
from opensafeintent.commands.session import Session, run_async
from opensafeintent.commands.settings import BatchesSettings
from opensafeintent.errors import InputError
from opensafeintent.evaluation.manifest import Manifest, RunFolder
from opensafeintent.evaluation.pipeline import ModelWork
from opensafeintent.promptsets import Dataset

B = TypeVar("B", bound=Batching)


async def begin_batches(session: Session) -> None:
    """Give a session its batches if it has models that are asked in them, those that an earlier
    command has left taken up.

    Raises:
        InputError: batches of another model are under way; or see `Batching.begin`.
        Stopped: see `Batching.make`.
    """
    if _takes_batches(session):
        session.batching = batching = _open_batches(session, Batching)
        async with batching.show_progress():
            await batching.begin()


def open_gathering(session: Session) -> Gathering | None:
    """Return the object that makes the calls of a build in batches; None if none are wanted.

    Raises:
        InputError: batches of another model are under way.
    """
    if not _takes_batches(session):
        return None
    return _open_batches(session, Gathering)


def _takes_batches(session: Session) -> bool:
    """Tell whether a model of a command is asked in batches.

    Raises:
        InputError: batches of another model are under way.
    """
    plain = {name for name in session.opened if session.settings.find_tier(name) != BATCH}
    _refuse_if_under_way(session.client.ledger.path, plain)
    return session.settings.in_batches


def _open_batches(session: Session, kind: type[B]) -> B:
    """Return the object that makes rounds of the calls of a command."""
    settings, client, http = session.settings, session.client, session.http
    store = http.enter_context(BatchStore(store_path(client.ledger.path)))
    asked = {
        name: model for name, model in session.opened.items() if settings.find_tier(name) == BATCH
    }
    models = batch_models(asked, http)
    return kind(client, models, store, session.display, settings.wait_seconds)


async def fill_ledger_in_batches(
    session: Session,
    work: Sequence[ModelWork],
    identities: Mapping[str, str],
    run: tuple[Manifest, Dataset] | None = None,
) -> None:
    """Make the calls of some work in batches, if the session has them, until the ledger lacks none
    that can be made.

    Args:
        session: has begun its batches.
        work: the tasks, by target.
        identities: of every target and judge, by name.
        run: whose judges are asked again after that, if its manifest plans it.

    Raises:
        Stopped, InputError: see `Batching.make`.
    """
    batching = session.batching
    if batching is None:
        return
    async with batching.show_progress():
        await fill_ledger(batching, work, identities)
        if run is not None:
            await fill_regrades(batching, *run)


def _refuse_if_under_way(ledger: Path, models: Collection[str]) -> None:
    """Refuse to make plain calls while a batch may still answer them: they would be paid for twice.

    Raises:
        InputError: batches of these models are under way.
    """
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


def batches(settings: BatchesSettings) -> list[BatchLine]:
    """Return the batches of a run, a build or a judge check, the oldest first; or ask their
    providers to end those under way.

    Raises:
        InputError: the folder holds none of these.
    """
    ledger, tested = _ledger_in(settings.run, settings.ledger)
    path = store_path(ledger)
    if not path.exists():
        return []
    with BatchStore(path, readonly=True) as store:
        asked = dict.fromkeys(batch.model for batch in store.batches())
        judges = [model for model in asked if model not in tested]
        headers = headers_by_model(settings.header, tested, judges, asked)
        return run_async(
            lambda: list_batches(store, cancel=settings.cancel, ids=settings.id, headers=headers)
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
