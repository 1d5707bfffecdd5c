"""Runs and models that were evaluated differently: what makes them alike."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path

import msgspec

from opensafeintent.calls.providers import PREFIX, is_native, split_name
from opensafeintent.commands.reproduce import NEW, grading_command
from opensafeintent.errors import InputError, counted
from opensafeintent.evaluation.manifest import Manifest
from opensafeintent.files import near
from opensafeintent.hostile import one_line
from opensafeintent.numbers.cohort import Cohort, GradedRun, graders
from opensafeintent.numbers.gates import moved_judges
from opensafeintent.numbers.served_versions import VersionChange


def how_to_grade_alike(
    old: GradedRun, new: GradedRun, models: tuple[str, str], places: tuple[Path, Path]
) -> str:
    """Return the end of an error: the command that grades the responses of an earlier run as those
    of a later one; empty if no command does.

    Args:
        old, new: the runs.
        models: a model of each.
        places: their folders.
    """
    if not _can_be_graded_alike(old.manifest, new.manifest, *models):
        return ""
    first, second = (str(near(place.absolute())) for place in places)
    if moved := moved_judges(old, new):
        like = _with_fixed_judges(new.manifest, moved)
        commands = (
            grading_command(old.manifest, like, models, (first, second)),
            grading_command(new.manifest, like, (models[1],) * 2, (second,) * 2, f"{NEW}-2"),
        )
        return f"; `{commands[0]}` and `{commands[1]}` grade the responses of both by one version"
    command = grading_command(old.manifest, new.manifest, models, (first, second))
    return f"; `{command}` grades the responses of {one_line(old.name, 200)} in the later way"


def _with_fixed_judges(manifest: Manifest, moved: Sequence[VersionChange]) -> Manifest:
    """Return a manifest in which judges that are another model now have that model's own name."""
    names = {change.name: _fixed_name(change) for change in moved}

    def fixed(judge: str) -> str:
        return names.get(judge, judge)

    return msgspec.structs.replace(
        manifest,
        models={
            model: msgspec.structs.replace(
                entry,
                judges=tuple(map(fixed, entry.judges)),
                mode_judge=fixed(entry.mode_judge),
            )
            for model, entry in manifest.models.items()
        },
        judge_samplings={fixed(name): own for name, own in manifest.judge_samplings.items()},
    )


def _fixed_name(change: VersionChange) -> str:
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


def check_served_alike(
    runs: Sequence[GradedRun], cohorts: Sequence[Cohort], places: Mapping[str, Path]
) -> None:
    """Refuse runs whose models would be compared although a judge of both is another model in one
    of them.

    Args:
        runs: the runs, the oldest first.
        cohorts: of all of them.
        places: their folders, by name.

    Raises:
        InputError: see above; the text names the versions, and the commands that grade the
            responses of both runs by one of them.
    """
    by_name = {run.name: run for run in runs}
    for cohort in cohorts:
        models = {origin.run: origin.model for origin in cohort.origins.values()}
        for old, new in combinations([by_name[name] for name in models], 2):
            if moved := moved_judges(old, new):
                pair, folders = (old.name, new.name), (places[old.name], places[new.name])
                way_out = how_to_grade_alike(old, new, (models[pair[0]], models[pair[1]]), folders)
                raise InputError(
                    f"{' and '.join(one_line(name, 200) for name in pair)} cannot be compared:"
                    f" {'; '.join(change.text for change in moved)}{way_out}"
                )


def unlike_models(manifest: Manifest, named: Collection[str]) -> Iterator[str]:
    """Yield a note for each way in which models of a command differ from the other models of the
    run: their judges, and how often they are sent a prompt.

    Args:
        manifest: of the run with the command's models.
        named: those models.
    """
    of_command: dict[tuple[frozenset[str], int], list[str]] = {}
    of_others: dict[tuple[frozenset[str], int], list[str]] = {}
    for model, entry in manifest.models.items():
        if entry.judges and not entry.imported:
            groups = of_command if model in named else of_others
            groups.setdefault((frozenset(entry.judges), entry.epochs), []).append(model)
    for (judges, epochs), models in of_command.items():
        for (other_judges, other_epochs), others in of_others.items():
            if judges != other_judges:
                lacking = [f"--judge {judge}" for judge in sorted(other_judges - judges)]
                further = [*(others if judges - other_judges else ()), *lacking]
                yield (
                    f"{_few(models)}: graded by {graders(sorted(judges))}; {_few(others)} of this"
                    f" run by {graders(sorted(other_judges))}. Only models with the same judges"
                    " are in one table: the same command with"
                    f" {' '.join(further)} added grades all of them alike"
                )
            if epochs != other_epochs:
                most = max(epochs, other_epochs)
                which = "" if epochs < most else f" for {_few(others)}"
                yield (
                    f"{_few(models)}: {counted(epochs, 'response')} to each prompt; {_few(others)}"
                    f" of this run: {other_epochs}. --epochs {most}{which} makes them alike"
                )


def _few(models: Collection[str]) -> str:
    """Name the first of some models, and how many more there are."""
    first, *others = models
    return one_line(first, 200) + (f" and {len(others)} more" if others else "")


def _can_be_graded_alike(old: Manifest, new: Manifest, earlier: str, later: str) -> bool:
    """Tell whether a command can grade the responses of an earlier run as those of a later one: its
    prompts are the same, and no judge of both would be asked in another way.
    """
    before, after = old.models[earlier], new.models[later]
    if old.dataset.hash != new.dataset.hash or not (before.judges and after.judges):
        return False
    judges = {*after.judges, after.mode_judge}
    if any(judge.startswith(PREFIX) and ":" not in judge for judge in judges):
        return False  # a function of Python, which the command line cannot name
    asked_alike = all(
        old.sampling_of_judge(judge) == new.sampling_of_judge(judge)
        and old.judges[judge] == new.judges[judge]
        for judge in judges & old.judges.keys()
    )
    return asked_alike and (before.parse, after.parse) != ("paper", "strict")
