"""Several logs at once: copies of one evaluation, those that were graded again among them, and retries of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from opensafeintent.calls.recorded import RecordedResponse
from opensafeintent.errors import InputError
from opensafeintent.interop.inspect.logs_in import InspectLog

__all__ = ["sorted_out"]

Named = tuple[Path, InspectLog]
"""A log and the file that it is from."""


def sorted_out(logs: Sequence[Named]) -> list[InspectLog]:
    """Return logs, in the order given, of which every response comes from one alone; what is left out is noted.

    Of copies of one evaluation the graded one counts. A retry carries over what was done, and asks anew for what was not: of
    a response that both have, the later one counts.

    Raises:
        InputError: copies of one evaluation are graded differently.
    """
    return _without_retried([path for path, _ in logs], _without_copies(logs))


def _without_copies(logs: Sequence[Named]) -> list[InspectLog]:
    first: dict[str, int] = {}
    for number, (path, log) in enumerate(logs):
        there, other = logs[first.setdefault(log.eval_id or f"file {number}", number)]
        if log.graded and other.graded and log.responses != other.responses:
            raise InputError(f"{there} and {path} are one evaluation, graded differently; name the one that is to count")
        if log.graded and not other.graded:
            first[log.eval_id] = number
    found = []
    for number, (path, log) in enumerate(logs):
        chosen = first[log.eval_id or f"file {number}"]
        told = f"{path}: is the same evaluation as {logs[chosen][0]}, which has its grades; nothing is taken from here"
        notes = [told] if logs[chosen][1].responses != log.responses else []
        found.append(log if number == chosen else _with(log, [], notes))
    return found


def _without_retried(paths: Sequence[Path], logs: Sequence[InspectLog]) -> list[InspectLog]:
    latest: dict[tuple[str, str, str, int], int] = {}
    found = list(logs)
    for number in sorted(range(len(logs)), key=lambda number: (logs[number].created, number), reverse=True):
        log = logs[number]
        task = log.task_id or f"file {number}"
        places = [(task, response.set_id, response.variant, response.epoch) for response in log.responses]
        if retries := {latest[place] for place in places if place in latest}:
            kept = [response for response, place in zip(log.responses, places, strict=True) if place not in latest]
            dropped = len(log.responses) - len(kept)
            told = f"{paths[number]}: {dropped} of its responses are taken from its retry, {paths[max(retries)]}"
            found[number] = _with(log, kept, [told])
        latest = dict.fromkeys(places, number) | latest
    return found


def _with(log: InspectLog, responses: list[RecordedResponse], notes: list[str]) -> InspectLog:
    return msgspec.structs.replace(log, responses=responses, notes=notes)
