"""A log of our task: the responses, and the grades that Inspect AI's run of it gave them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from opensafeintent.calls.reasoning_signs import REASONING_ONLY
from opensafeintent.calls.recorded import MissingGrade, RecordedResponse
from opensafeintent.errors import InputError
from opensafeintent.files import MOST_ROWS
from opensafeintent.grades import row_of
from opensafeintent.hostile import one_line, short_name
from opensafeintent.interop.inspect.log_files import read_log
from opensafeintent.interop.inspect.outputs import (
    STOP_REASONS,
    complaint_in,
    first_reply_in,
    only_reasons,
)
from opensafeintent.interop.inspect.providers import from_inspect, require_inspect
from opensafeintent.promptsets.limits import RowLimit
from opensafeintent.taxonomy import CORE_VARIANTS, ParseRule, is_follow_up
from opensafeintent.templates import Role

if TYPE_CHECKING:
    from inspect_ai.log import EvalLog, EvalSample
    from inspect_ai.scorer import Score

_SETS = "opensafeintent_sets"
_SETS_NAME = re.compile(rf"{_SETS}(\d*)")


class _LogHeader(msgspec.Struct, frozen=True, kw_only=True):
    """Our task's part of a log's header."""

    dataset: str
    """The dataset's name, as the task was given it."""
    dataset_hash: str
    templates: dict[Role, str] = {}
    """Hashes of the judge templates."""
    grade_parse: ParseRule = "strict"


class _LoggedPrompt(msgspec.Struct, frozen=True):
    """Our task's part of a sample's metadata."""

    set_id: str
    variant: str
    wordings: int


class InspectLog(_LogHeader, frozen=True, kw_only=True):
    """The content of a log of our task."""

    path: Path
    eval_id: str
    """Of the evaluation: a copy, or one that was graded graded_again, has the same."""
    task_id: str
    """Of the evaluation and its retries."""
    created: str
    """When it was begun, in a form whose order is that of time."""
    model: str
    responses: list[RecordedResponse]
    mode_judge: str
    """The judge of the assistance mode; empty if there was none."""
    notes: list[str]
    """Notes for a reader, a line each."""

    @property
    def graded(self) -> bool:
        """Whether it holds any grade, or the reason for a missing one."""
        return any(response.by_judge or response.missing for response in self.responses)


def read_inspect_log(path: Path, most: int | None = MOST_ROWS) -> InspectLog:
    """Read a log of our task.

    An interrupted log gives its content so far; a sample that ended in an error gives nothing. Both
    are noted. A sample without scores gives a response without grades.

    Args:
        path: the log.
        most: samples that it may have. None sets no limit.

    Raises:
        InputError: the extra is missing; it is no log of our task; it has more samples.
    """
    require_inspect(f"{path}: a log of Inspect AI")
    log = read_log(path, RowLimit(most))
    with _refused(f"{path}: is not a log of our task opensafeintent: its metadata"):
        header = msgspec.convert(log.eval.metadata or {}, _LogHeader)
    content = _content_of(path, log)
    if not content.responses:
        raise InputError(f"{path}: no response in it (status: {log.status})")
    return InspectLog(
        **msgspec.structs.asdict(header),
        path=path,
        eval_id=log.eval.eval_id or str(path),
        task_id=log.eval.task_id or str(path),
        created=datetime.fromisoformat(log.eval.created).astimezone(UTC).isoformat(),
        model=from_inspect(log.eval.model),
        responses=content.responses,
        mode_judge=from_inspect(content.mode_judge),
        notes=[f"{path}: {note}" for note in content.notes],
    )


class _LogContent(NamedTuple):
    """The content of a log's samples."""

    responses: list[RecordedResponse]
    mode_judge: str
    notes: list[str]


def _content_of(path: Path, log: EvalLog) -> _LogContent:
    """Return the responses in the samples of a log, and note samples that give none."""
    responses: list[RecordedResponse] = []
    wordings: dict[str, int] = {}
    without_content = graded_again = 0
    mode_judge = ""
    samples = log.samples or []
    broken = sum(sample.error is not None for sample in samples)
    for sample in (sample for sample in samples if sample.error is None):
        location = f"{path}, sample {one_line(str(sample.id), 60)}"
        with _refused(f"{location}: its metadata"):
            prompt = msgspec.convert(sample.metadata, _LoggedPrompt)
        wordings[prompt.set_id] = prompt.wordings
        gradings = _gradings(sample)
        graded_again += len(gradings) > 1
        if gradings:
            responses.append(_graded(sample, gradings[-1], prompt, location))
            mode_judge = mode_judge or (gradings[-1].metadata or {}).get("mode_judge", "")
        elif sample.output.empty:
            without_content += 1
        else:
            responses.append(_ungraded(sample, prompt))
    epochs = len({response.epoch for response in responses})
    direct = sum(not is_follow_up(response.variant) for response in responses)
    lacking = _prompts(wordings.values()) * epochs - direct
    unfinished = f"did not end (status: {log.status}); `inspect eval-retry` goes on from it"
    empty = f"samples with neither response nor grade, which are not imported: {without_content}"
    notes = [
        (graded_again, "was graded more than once; the last grades count"),
        (log.status != "success", unfinished),
        (broken, f"samples that ended in an error and are not imported: {broken}"),
        (without_content, empty),
        (lacking > 0, f"lacks {lacking} responses of its sets; such sets may not count"),
    ]
    return _LogContent(responses, mode_judge, [note for applies, note in notes if applies])


def _prompts(wordings: Iterable[int]) -> int:
    """Return how many prompts sets have, by the numbers of their dual-use wordings."""
    return sum(number + len(CORE_VARIANTS) - 1 for number in wordings)


@contextmanager
def _refused(what: str) -> Iterator[None]:
    """Turn an invalid record that the body reads into an InputError that begins with `what`."""
    try:
        yield
    except msgspec.ValidationError as error:
        raise InputError(f"{what}: {error}") from error


def _gradings(sample: EvalSample) -> list[Score]:
    """Return the scores that hold grades, in order: `inspect score --action append` numbers each
    further one.
    """
    scores = sample.scores or {}
    numbers = {int(match[1] or 0): name for name in scores if (match := _SETS_NAME.fullmatch(name))}
    return [scores[numbers[number]] for number in sorted(numbers)]


def _ungraded(sample: EvalSample, prompt: _LoggedPrompt) -> RecordedResponse:
    output = sample.output
    reason = "rejected" if complaint_in(output) else REASONING_ONLY if only_reasons(output) else ""
    return RecordedResponse(
        set_id=prompt.set_id,
        variant=prompt.variant,
        epoch=sample.epoch,
        reply_to=first_reply_in(sample.messages),
        response=None if reason else output.completion,
        stop_reason=""
        if reason
        else STOP_REASONS.get(output.stop_reason, short_name(output.stop_reason, 60)),
        missing=(MissingGrade("response", reason),) if reason else (),
    )


def _graded(
    sample: EvalSample, score: Score, prompt: _LoggedPrompt, location: str
) -> RecordedResponse:
    labels = {"model": "", "set_id": prompt.set_id, "variant": prompt.variant}
    with _refused(f"{location}: the score {_SETS}"):
        row = row_of((score.metadata or {}) | labels)
    text = "" if sample.output.empty else sample.output.completion
    return RecordedResponse(
        set_id=prompt.set_id,
        variant=prompt.variant,
        epoch=sample.epoch,
        reply_to=first_reply_in(sample.messages),
        response=None
        if any(missing_grade.what == "response" for missing_grade in row.missing)
        else text,
        stop_reason=row.stop_reason,
        helpfulness=row.helpfulness,
        harm_severity=row.harm_severity,
        mode=row.mode,
        strategy=row.strategy,
        missing=tuple(
            msgspec.structs.replace(missing_grade, judge=from_inspect(missing_grade.judge))
            for missing_grade in row.missing
        ),
        by_judge={from_inspect(judge): grades for judge, grades in row.by_judge.items()},
    )
