"""Runs and models that were evaluated differently: what makes them alike."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path

from opensafeintent.analysis.cohort import GradedRun, graders
from opensafeintent.calls.providers import PREFIX
from opensafeintent.errors import Note, counted, option
from opensafeintent.evaluation.manifest import Manifest
from opensafeintent.files import near
from opensafeintent.hostile import one_line
from opensafeintent.workflows.reproduce import grading_command


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
    command = grading_command(old.manifest, new.manifest, models, (first, second))
    return f"; `{command}` grades the responses of {one_line(old.name, 200)} in the later way"


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
                lacking = [option("judges", judge) for judge in sorted(other_judges - judges)]
                further = [*(others if judges - other_judges else ()), *lacking]
                yield Note(
                    f"{_few(models)}: graded by {graders(sorted(judges))}; {_few(others)} of this"
                    f" run by {graders(sorted(other_judges))}. Only models with the same judges"
                    " are in one table: the same command with"
                    f" {' '.join(further)} added grades all of them alike"
                )
            if epochs != other_epochs:
                most = max(epochs, other_epochs)
                which = "" if epochs < most else f" for {_few(others)}"
                yield Note(
                    f"{_few(models)}: {counted(epochs, 'response')} to each prompt;"
                    f" {_few(others)} of this run: {other_epochs}."
                    f" {option('epochs', most)}{which} makes them alike"
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
