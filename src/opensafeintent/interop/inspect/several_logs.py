"""Several logs of our task, of which each response is taken once."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from opensafeintent.calls.recorded import RecordedResponse
from opensafeintent.errors import InputError
from opensafeintent.interop.inspect.logs import InspectLog


def sorted_out(logs: Sequence[InspectLog]) -> list[InspectLog]:
    """Return logs, in the order given, so that every response comes from one alone; omitted ones
    are noted.

    Of copies of one evaluation the graded one counts. A retry carries over finished samples, and
    asks again for the others: of a response that both have, the later one counts, and if somebody
    invalidated that one, neither.

    Raises:
        InputError: copies of one evaluation are graded differently.
    """
    return _without_retried(_without_copies(logs))


def _without_copies(logs: Sequence[InspectLog]) -> list[InspectLog]:
    counted_logs: dict[str, InspectLog] = {}
    for log in logs:
        earlier = counted_logs.setdefault(log.eval_id, log)
        if log.graded and not earlier.graded:
            counted_logs[log.eval_id] = log
        elif log.graded and log.responses != earlier.responses:
            raise InputError(
                f"{earlier.path}, {log.path}: are one evaluation, graded differently; name the one"
                " that is to count"
            )
    logs_to_import = []
    for log in logs:
        counted = counted_logs[log.eval_id]
        note = (
            f"{log.path}: is the same evaluation as {counted.path}, which has its grades; nothing"
            " is taken from here"
        )
        notes = [note] if counted.responses != log.responses else []
        logs_to_import.append(log if log is counted else _with(log, [], notes))
    return logs_to_import


def _without_retried(logs: Sequence[InspectLog]) -> list[InspectLog]:
    latest: dict[tuple[object, ...], InspectLog] = {}
    for log in sorted(logs, key=lambda log: log.created):
        latest |= dict.fromkeys(((log.task_id, *place) for place in log.invalidated), log)
        latest |= dict.fromkeys((_key(log, response) for response in log.responses), log)
    logs_to_import = []
    for log in logs:
        sources = [latest[_key(log, response)] for response in log.responses]
        if retries := [source.path for source in sources if source is not log]:
            pairs = zip(log.responses, sources, strict=True)
            responses = [response for response, source in pairs if source is log]
            note = f"{log.path}: {len(retries)} of its responses are left to its retry"
            logs_to_import.append(_with(log, responses, [f"{note}, {retries[-1]}"]))
        else:
            logs_to_import.append(log)
    return logs_to_import


def _key(log: InspectLog, response: RecordedResponse) -> tuple[object, ...]:
    return log.task_id, response.set_id, response.variant, response.epoch


def _with(log: InspectLog, responses: list[RecordedResponse], notes: list[str]) -> InspectLog:
    return msgspec.structs.replace(log, responses=responses, notes=notes)
