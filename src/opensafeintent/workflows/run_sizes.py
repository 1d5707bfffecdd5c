"""How much of a run a command asks for, and how much the run has: a run only grows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from opensafeintent.errors import counted
from opensafeintent.evaluation.manifest import Manifest
from opensafeintent.evaluation.pipeline import Task
from opensafeintent.evaluation.run import AUDITED
from opensafeintent.workflows.settings import EvaluateSettings, GradeSettings


class _RunSize(NamedTuple):
    """A setting that says how much of something a run has."""

    flag: str
    asked: int | None
    before: int
    """The run has so many before the command."""
    noun: str
    most: int | None = None
    """It can have so many; None is not said here."""
    of: str = ""
    """What these are called."""

    def lines(self) -> Iterator[str]:
        """Yield a line if the run does not get the number that was asked for."""
        if self.asked is None:
            return
        named = f"{self.flag} {self.asked:,}"
        before = self.before if self.most is None else min(self.before, self.most)
        if self.asked < before:
            has = counted(before, self.noun)
            yield f"{named}: the run has {has} already; none is removed"
        elif self.most is not None and self.asked > self.most:
            yield f"{named}: the run has {counted(self.most, self.of)}; all are taken"


def size_lines(
    settings: EvaluateSettings | GradeSettings,
    old: Manifest | None,
    tasks: Mapping[str, Sequence[Task]],
) -> list[str]:
    """Say which numbers of a command the run does not have afterwards: a line each.

    Args:
        settings: of the command.
        old: of the run as it is; None for a new one.
        tasks: by model of the command, all that the run has afterwards; there may be none if no
            sample of them is asked for.
    """
    before = [old.models[model] for model in tasks if old and model in old.models]
    swaps = old.request_swap.sets if old and old.request_swap else 0
    replies = [task for of_model in tasks.values() for task in of_model if task.earlier is None]
    sizes = [
        _RunSize(
            "--judge-retest",
            settings.judge_retest,
            sum(entry.judge_retest for entry in before),
            "retested response",
            len(replies),
            "response",
        ),
        _RunSize(
            "--request-swap",
            settings.request_swap,
            swaps,
            "audited prompt-set",
            len({task.set_id for task in replies}),
            "prompt-set",
        ),
    ]
    if isinstance(settings, EvaluateSettings):
        all_sets = old.dataset.sets if old else 0
        sizes += [
            _RunSize(
                "--limit",
                settings.limit,
                max((entry.limit or all_sets for entry in before), default=0),
                "prompt-set",
            ),
            _RunSize(
                "--epochs",
                None if settings.epochs == 1 else settings.epochs,  # it may not be given
                max((entry.epochs for entry in before), default=0),
                "epoch",
            ),
            _RunSize(
                "--follow-up-audit",
                settings.follow_up_audit,
                sum(entry.follow_up_audit for entry in before),
                "audited response",
                sum(task.variant in AUDITED for task in replies),
                "direct response",
            ),
        ]
    return [line for size in sizes for line in size.lines()]
