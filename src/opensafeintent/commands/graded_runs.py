"""Runs read back from their folders, and what has to be equal for several to make one report."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import combinations
from pathlib import Path

import msgspec

from opensafeintent.calls.ledger import Ledger
from opensafeintent.calls.ledger_folder import refuse_folder_of_other_run
from opensafeintent.calls.prices import PriceList
from opensafeintent.calls.progress import Display
from opensafeintent.calls.providers import PYTHON_PREFIX, is_native, split_name
from opensafeintent.calls.recorded import RecordedResponse
from opensafeintent.commands.settings.calling import judge_arguments
from opensafeintent.errors import InputError, pluralize
from opensafeintent.evaluation.manifest import Manifest, RunFolder
from opensafeintent.evaluation.plan import Plan
from opensafeintent.evaluation.regrade import Regrade, Swapped, derive_regrades
from opensafeintent.evaluation.replay import derive
from opensafeintent.files import near
from opensafeintent.grades import sort_rows
from opensafeintent.hostile import clean_for_display, one_line
from opensafeintent.numbers.cohort import GradedRun
from opensafeintent.numbers.gates import find_changed_judges, find_unlike_conditions
from opensafeintent.numbers.served_versions import VersionChange
from opensafeintent.promptsets import Dataset
from opensafeintent.responses import GradedResponse
from opensafeintent.taxonomy import FOLLOW_UPS, is_follow_up

NEW = "NEW"
"""The folder that a printed command writes into."""


def check_join(runs: Sequence[GradedRun], places: Mapping[str, Path]) -> None:
    """Refuse runs that make no report together.

    Dataset, judges with their arguments, templates, reading of grades and modes have to be equal,
    and no judge may be another model in one of them.

    Args:
        runs: the runs, the oldest first.
        places: their folders, by name.

    Raises:
        InputError: see above; the text has the differences, and the commands that grade the
            responses alike.
    """
    for old, new in combinations(runs, 2):
        changes = find_unlike_conditions(old, new) or [
            change.text for change in find_changed_judges(old, new)
        ]
        if changes:
            names = " and ".join(one_line(run.name) for run in (old, new))
            way_out = how_to_grade_alike(old, new, (places[old.name], places[new.name]))
            raise InputError(f"{names} cannot be compared: {'; '.join(changes)}{way_out}")


def how_to_grade_alike(old: GradedRun, new: GradedRun, places: tuple[Path, Path]) -> str:
    """Return the end of an error: the command that grades the responses of an earlier run as those
    of a later one; empty if no command does.

    Args:
        old, new: the runs.
        places: their folders.
    """
    if not _can_be_graded_alike(old.manifest, new.manifest):
        return ""
    first, second = (str(near(place.absolute())) for place in places)
    plan = new.manifest.plan
    if moved := find_changed_judges(old, new):
        plan = _fix_judges(plan, moved)
        one = _render_grading_command(old.manifest.plan, plan, first, second, NEW)
        two = _render_grading_command(new.manifest.plan, plan, second, second, f"{NEW}-2")
        return f"; `{one}` and `{two}` grade the responses of both by one version"
    command = _render_grading_command(old.manifest.plan, plan, first, second, NEW)
    return f"; `{command}` grades the responses of {one_line(old.name)} in the later way"


def _render_grading_command(given: Plan, like: Plan, run: str, other: str, out: str) -> str:
    """Return the command that grades the responses of a run as those of another one.

    Args:
        given, like: the plans of the two.
        run, other: their folders.
        out: the folder of the new run.
    """
    words = ["opensafeintent", "grade", run, "--out", out]
    words += [word for judge in like.judges for word in ("--judge", judge)]
    if like.mode_judge != given.mode_judge:
        words += ["--mode-judge", like.mode_judge]
    if like.modes != given.modes:
        words += ["--modes", like.modes]
    if like.templates != given.templates:
        words += ["--rubrics", other]
    for judge in like.panel:
        sampling = like.judge_samplings[judge]
        if given.judge_samplings.get(judge) != sampling:
            for name, value in judge_arguments(sampling).items():
                text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
                words += ["--judge-arg", f"{judge}:{name}={text}"]
    return shlex.join(words)


def _fix_judges(plan: Plan, moved: Sequence[VersionChange]) -> Plan:
    """Return a plan in which judges that are another model now have that model's own name."""
    names = {change.name: _find_fixed_name(change) for change in moved}

    def fix(judge: str) -> str:
        return names.get(judge, judge)

    return msgspec.structs.replace(
        plan,
        judges=tuple(map(fix, plan.judges)),
        mode_judge=fix(plan.mode_judge),
        judge_samplings={fix(name): own for name, own in plan.judge_samplings.items()},
    )


def _find_fixed_name(change: VersionChange) -> str:
    """Return the name of the version that a judge is now, by its provider; of several, of the one
    that gave most grades. If the judge goes by its alias now, it is the version that it was.
    """
    name = change.name
    parent = name.removesuffix(split_name(name)[1]) if is_native(name) else ""
    names = [
        (parent if "/" in version and parent else f"{name.rpartition('/')[0]}/") + version
        for versions in (change.after, change.before)
        for version, _ in versions.most_common()
    ]
    return next(fixed for fixed in names if fixed != name)


def _can_be_graded_alike(old: Manifest, new: Manifest) -> bool:
    """Tell whether a command can grade the responses of an earlier run as those of a later one: its
    prompts are the same, and no judge of both would be asked in another way.
    """
    before, after = old.plan, new.plan
    if old.dataset.hash != new.dataset.hash or not (before.judges and after.judges):
        return False
    if any(judge.startswith(PYTHON_PREFIX) and ":" not in judge for judge in after.panel):
        return False  # a function of Python, which the command line cannot name
    return all(
        before.judge_samplings[judge] == after.judge_samplings[judge]
        and old.judges[judge] == new.judges[judge]
        for judge in {*after.panel} & {*before.panel}
    )


def read_joined_runs(
    paths: Sequence[Path], ledgers: Collection[Path], display: Display | None = None
) -> list[GradedRun]:
    """Rebuild runs from their ledgers, some outside their folders; one that is named twice is read
    once.

    Raises:
        InputError: one cannot be read, or they make no report together: see `check_join`.
    """
    folders = name_runs(paths)
    runs = [
        read_graded_run(RunFolder(path, ledgers), name, display) for name, path in folders.items()
    ]
    check_join(runs, folders)
    return runs


def check_results_folder(out: Path, runs: Sequence[Path]) -> None:
    """See that results of these runs may be written into a folder: one that holds no run and no
    build, or the only run's own.

    Raises:
        InputError: it holds another run, or a build.
    """
    is_own = {run.resolve() for run in runs} == {out.resolve()}
    refuse_folder_of_other_run(out, own=RunFolder.manifest_name if is_own else "")


def choose_prices(
    named: Path | None, manifests: Sequence[Manifest]
) -> tuple[Path | PriceList | None, list[str]]:
    """Return the prices of a report: the file that the user names, or those that its runs keep if
    all of them keep the same; and a note if they keep different ones.
    """
    kept = [manifest.prices for manifest in manifests]
    amounts = [prices and prices.prices for prices in kept]  # whatever their file is called
    if named or all(prices == amounts[0] for prices in amounts):
        return named or kept[0], []
    line = (
        "the runs do not keep the same prices, and none of them is used; --prices FILE gives"
        " those of all models"
    )
    return None, [line]


def name_runs(runs: Sequence[Path]) -> dict[str, Path]:
    """Return the folder of each run by its name, each of them once."""
    paths = list(dict.fromkeys(path.resolve() for path in runs))
    names = [path.name for path in paths]
    return {path.name if names.count(path.name) == 1 else str(path): path for path in paths}


def read_graded_run(
    folder: RunFolder,
    name: str,
    display: Display | None = None,
    imported: Mapping[str, Sequence[RecordedResponse]] | None = None,
) -> GradedRun:
    """Rebuild one run from its manifest and ledger; see `derive` for its imported responses."""
    with open_run(folder, name, display or Display(), imported) as (run, _):
        return run


@contextmanager
def open_run(
    folder: RunFolder,
    name: str,
    display: Display,
    imported: Mapping[str, Sequence[RecordedResponse]] | None = None,
) -> Iterator[tuple[GradedRun, Ledger]]:
    """Rebuild one run; the ledger stays as it was read, for the texts."""
    stage = f"reading {clean_for_display(name)}"
    display.stage(stage)
    manifest, dataset = folder.load()
    manifest = manifest.keep_counted()
    path = folder.ledger_path(manifest)
    if not path.is_file():
        raise InputError(f"{path}: the run's ledger is not there")

    def read(done: int, of: int) -> None:
        models = pluralize(len(manifest.models), "model")
        display.stage(f"{stage}: {done:,} of {of:,} responses of {models}")

    with Ledger(path, readonly=True) as ledger, ledger.snapshot():
        graded = derive(manifest, dataset, ledger, imported=imported, read=read)
        second = derive_regrades(manifest, dataset, ledger, graded)
        run = make_graded_run(name, manifest, dataset, graded, *second)
        yield run, ledger


def make_graded_run(
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
