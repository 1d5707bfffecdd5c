"""Runs read back from their folders."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from opensafeintent.calls.ledger import Ledger
from opensafeintent.calls.ledger_folder import check_not_held
from opensafeintent.calls.prices import PriceList
from opensafeintent.calls.progress import Display
from opensafeintent.errors import InputError, counted
from opensafeintent.evaluation.manifest import Manifest, RunFolder
from opensafeintent.evaluation.rebuild import derive
from opensafeintent.evaluation.regrade import Regrade, Swapped, derive_regrades
from opensafeintent.grades import sort_rows
from opensafeintent.hostile import one_line
from opensafeintent.numbers.cohort import GradedRun
from opensafeintent.promptsets import Dataset
from opensafeintent.responses import GradedResponse
from opensafeintent.taxonomy import FOLLOW_UPS, is_follow_up


def read_graded_runs(runs: Sequence[Path], *, ledgers: Collection[Path] = ()) -> list[GradedRun]:
    """Rebuild runs from their ledgers, some outside their folders; one that is named twice is read
    once.
    """
    return [
        read_graded_run(RunFolder(path, ledgers), name) for path, name in named_runs(runs).items()
    ]


def check_place(out: Path, runs: Sequence[Path]) -> None:
    """See that results of these runs may be written into a folder: one that holds no run and no
    build, or the only run's own.

    Raises:
        InputError: it holds another run, or a build.
    """
    is_own = {run.resolve() for run in runs} == {out.resolve()}
    check_not_held(out, own=RunFolder.manifest_name if is_own else "")


def _amounts(kept: PriceList | None) -> object:
    """Return the prices of a list, whatever its file is called."""
    return kept and kept.prices


def prices_of(
    named: Path | None, manifests: Sequence[Manifest]
) -> tuple[Path | PriceList | None, list[str]]:
    """Return the prices of a report: the file that the user names, or those that its runs keep if
    all of them keep the same; and a note if they keep different ones.
    """
    first, *others = (manifest.prices or None for manifest in manifests)
    if named or all(_amounts(prices) == _amounts(first) for prices in others):
        return named or first, []
    line = (
        "the runs do not keep the same prices, and none of them is used; --prices FILE gives"
        " those of all models"
    )
    return None, [line]


def named_runs(runs: Sequence[Path]) -> dict[Path, str]:
    """Return the name of each run, each of them once."""
    paths = list(dict.fromkeys(path.resolve() for path in runs))
    names = [path.name for path in paths]
    return {path: path.name if names.count(path.name) == 1 else str(path) for path in paths}


def read_graded_run(folder: RunFolder, name: str, display: Display | None = None) -> GradedRun:
    """Rebuild one run from its manifest and ledger."""
    with open_run(folder, name, display or Display()) as (run, _):
        return run


@contextmanager
def open_run(folder: RunFolder, name: str, display: Display) -> Iterator[tuple[GradedRun, Ledger]]:
    """Rebuild one run; the ledger stays as it was read, for the texts."""
    stage = f"reading {one_line(name, 60)}"
    display.stage(stage)
    manifest, dataset = folder.load()
    manifest = manifest.counted()
    path = folder.ledger_path(manifest)
    if not path.is_file():
        raise InputError(f"{path}: the run's ledger is not there")

    def read(done: int, of: int) -> None:
        models = counted(len(manifest.models), "model")
        display.stage(f"{stage}: {done:,} of {of:,} responses of {models}")

    with Ledger(path, readonly=True) as ledger, ledger.snapshot():
        graded = derive(manifest, dataset, ledger, read=read)
        second = derive_regrades(manifest, dataset, ledger, graded)
        run = graded_run_of(name, manifest, dataset, graded, *second)
        yield run, ledger


def graded_run_of(
    name: str,
    manifest: Manifest,
    dataset: Dataset,
    graded: Sequence[GradedResponse],
    regrades: Sequence[Regrade] = (),
    swaps: Sequence[Swapped] = (),
    in_conversation: Sequence[Regrade] = (),
) -> GradedRun:
    """Put graded responses in order, the second replies apart from the others."""
    rows = sort_rows(graded, dataset, sorted(manifest.models), (*dataset.variants, *FOLLOW_UPS))
    return GradedRun(
        name,
        manifest,
        dataset,
        [row for row in rows if not is_follow_up(row.variant)],
        regrades,
        swaps=swaps,
        follow_ups=[row for row in rows if is_follow_up(row.variant)],
        in_conversation=in_conversation,
    )
