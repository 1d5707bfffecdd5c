"""Runs that were judged differently: the command that has one graded as the other was."""

from __future__ import annotations

from pathlib import Path

from opensafeintent.analysis.cohort import GradedRun
from opensafeintent.calls.providers import PREFIX
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
