"""Read a log of our task: the responses, and the grades that Inspect AI's run of it gave them."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import msgspec

from opensafeintent.calls.recorded import MissingGrade, RecordedResponse
from opensafeintent.errors import InputError
from opensafeintent.grades import GradeRow, row_of
from opensafeintent.hostile import one_line
from opensafeintent.interop.inspect.conversion import complaint_in
from opensafeintent.interop.inspect.extra import from_inspect, require_inspect
from opensafeintent.taxonomy import CORE_VARIANTS
from opensafeintent.templates import ParseRule, Role

if TYPE_CHECKING:
    from inspect_ai.log import EvalLog, EvalSample
    from inspect_ai.scorer import Score


_JSON_LOG = re.compile(rb'\s*\{\s*"version":\s*\d+,\s*"status":\s*"')
_SETS = "opensafeintent_sets"
_SETS_NAME = re.compile(rf"{_SETS}(\d*)")
_UNREAD = {"events", "events_data", "attachments", "store", "timelines", "messages"}
"""What a log is large by, and what is not read."""

_MOST_DEPTH = 200
"""Of objects and lists within each other."""
_MOST_MEMBER = 100_000_000
"""Bytes of one sample, unpacked."""
_MOST_FILE = 500_000_000
"""Bytes of a log that is one file of JSON, and characters of all texts that are read of any log."""
_MOST_TEXT = 30_000_000
"""Characters of one text: the time that reading it takes grows with their square."""
_BUFFER = 2**22


class InspectLog(msgspec.Struct, frozen=True, kw_only=True):
    """What a log of our task holds."""

    eval_id: str
    """Of the evaluation: a copy, or one that was graded again, has the same."""
    task_id: str
    """Of the evaluation and its retries."""
    created: str
    """When it was begun, in a form whose order is that of time."""
    model: str
    dataset: str
    """The dataset's name, as the task was given it."""
    dataset_hash: str
    responses: list[RecordedResponse]
    mode_judge: str
    """Who was asked for the assistance mode; empty where nobody was."""
    templates: dict[Role, str]
    """Hashes of the judge templates."""
    parse: ParseRule
    limit: int | None
    """Prompt-sets; None is all of them."""
    notes: list[str]
    """What a reader should know of it, a line each."""

    @property
    def graded(self) -> bool:
        """Whether it holds any grade, or the reason for a missing one."""
        return any(response.by_judge or response.missing for response in self.responses)


class _Task(msgspec.Struct, frozen=True):
    """What our task writes into the header of a log."""

    dataset: str
    dataset_hash: str
    templates: dict[Role, str] = {}
    grade_parse: ParseRule = "strict"
    limit: int | None = None


class _Prompt(msgspec.Struct, frozen=True):
    """What our task writes into the metadata of a sample."""

    set_id: str
    variant: str
    wordings: int


def is_inspect_log(path: Path) -> bool:
    """Tell a log, in either of Inspect AI's formats, from our own files and the authors'."""
    if path.suffix == ".eval":
        return True
    try:
        with path.open("rb") as file:
            return path.suffix == ".json" and _JSON_LOG.match(file.read(200)) is not None
    except OSError:
        return False


def read_inspect_log(path: Path) -> InspectLog:
    """Read a log of our task.

    A log that was interrupted gives what it holds; a sample that ended in an error gives nothing.
    Both are noted. A sample without scores gives a response without grades.

    Raises:
        InputError: the extra is missing, the file is no log, or it is one of another task.
    """
    require_inspect(f"{path}: a log of Inspect AI")
    log = _read(path)
    about = _about(path, log)
    responses: list[RecordedResponse] = []
    broken = absent = 0
    expected: dict[str, int] = {}
    for sample in log.samples or []:
        if sample.error is not None:
            broken += 1
            continue
        prompt = _prompt(path, sample)
        expected[prompt.set_id] = prompt.wordings + len(CORE_VARIANTS) - 1
        response = _response(path, sample, prompt)
        absent += response is None
        responses += [response] if response else []
    if not responses:
        raise InputError(f"{path}: no response in it (status: {log.status})")
    return InspectLog(
        eval_id=log.eval.eval_id,
        task_id=log.eval.task_id,
        created=datetime.fromisoformat(log.eval.created).astimezone(UTC).isoformat(),
        model=from_inspect(log.eval.model),
        dataset=about.dataset,
        dataset_hash=about.dataset_hash,
        responses=responses,
        mode_judge=_mode_judge(log),
        templates=about.templates,
        parse=about.grade_parse,
        limit=about.limit,
        notes=_notes(path, log, responses, expected, broken, absent),
    )


def _read(path: Path) -> EvalLog:
    """Read a log without the record of its calls, its task checked before anything large is
    read.
    """
    from inspect_ai.log import read_eval_log

    if not path.is_file():
        raise InputError(f"{path}: cannot read: no such file")
    try:
        _check(path)
        header = read_eval_log(str(path), header_only=True)
        if header.eval.task.rpartition("/")[2] != "opensafeintent":
            task = one_line(header.eval.task, 80)
            raise InputError(
                f"{path}: is a log of the task {task!r}; expected one of"
                " opensafeintent/opensafeintent"
            )
        return read_eval_log(str(path), exclude_fields=_UNREAD if path.suffix == ".eval" else None)
    except InputError:
        raise
    except (
        Exception
    ) as error:  # whatever Inspect AI finds wrong with a file that is none of its logs
        raise InputError(
            f"{path}: is not a log of Inspect AI: {one_line(str(error) or type(error).__name__)}"
        ) from error


def _check(path: Path) -> None:
    """Refuse what would take endless time or memory to read: few bytes can unpack to more than a
    machine holds.

    Whatever else is wrong Inspect AI finds, at the same byte; what follows that byte is only
    unpacked here, for its size and checksum have to be what the archive says.
    """
    import ijson

    characters = 0
    for name, allowed, size, member in _members(path):
        if size > allowed:
            raise InputError(f"{name}: {size:,} bytes; expected at most {allowed:,}")
        depth, key = 0, ""
        try:
            for event, value in ijson.basic_parse(member, buf_size=_BUFFER, use_float=True):
                if event in ("start_map", "start_array"):
                    depth += 1
                elif event in ("end_map", "end_array"):
                    depth -= 1
                elif event == "map_key" and depth == 1:
                    key = value
                elif event == "string":
                    characters += len(value) if key not in _UNREAD else 0
                    if len(value) > _MOST_TEXT or characters > _MOST_FILE:
                        most = f"{_MOST_TEXT:,} characters, and of {_MOST_FILE:,} in a log"
                        raise InputError(f"{name}: too much text; expected texts of at most {most}")
                if depth > _MOST_DEPTH:
                    raise InputError(
                        f"{name}: nested too deeply; expected at most {_MOST_DEPTH} levels"
                    )
        except (ijson.JSONError, ValueError):
            while member.read(_BUFFER):
                pass


def _members(path: Path) -> Iterator[tuple[str, int, int, IO[bytes]]]:
    """Yield what a log consists of, the members of an archive or one file of JSON: name, bytes
    allowed, bytes, content.
    """
    if path.suffix != ".eval":
        with path.open("rb") as file:
            yield str(path), _MOST_FILE, path.stat().st_size, file
        return
    with zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            with archive.open(member) as file:
                yield (
                    f"{path}, {one_line(member.filename, 80)}",
                    _MOST_MEMBER,
                    member.file_size,
                    file,
                )


def _about(path: Path, log: EvalLog) -> _Task:
    try:
        return msgspec.convert(log.eval.metadata or {}, _Task)
    except msgspec.ValidationError as error:
        raise InputError(
            f"{path}: is not a log of our task opensafeintent: its metadata: {error}"
        ) from error


def _prompt(path: Path, sample: EvalSample) -> _Prompt:
    try:
        return msgspec.convert(sample.metadata, _Prompt)
    except msgspec.ValidationError as error:
        raise InputError(
            f"{path}, sample {one_line(str(sample.id), 60)}: its metadata: {error}"
        ) from error


def _score(sample: EvalSample) -> Score | None:
    """Return what holds the grades: `inspect score --action append` numbers each further one, and
    the last one counts.
    """
    found = {name: _SETS_NAME.fullmatch(name) for name in sample.scores or {}}
    numbers = {int(match[1] or 0): name for name, match in found.items() if match}
    return (sample.scores or {})[numbers[max(numbers)]] if numbers else None


def _response(path: Path, sample: EvalSample, prompt: _Prompt) -> RecordedResponse | None:
    """Return a response with its grades; None where there is neither."""
    score = _score(sample)
    text = None if sample.output.empty else sample.output.completion
    if score is None:
        if text is None:
            return None
        stop = {"max_tokens": "length"}.get(sample.output.stop_reason, sample.output.stop_reason)
        failed = complaint_in(sample.output) is not None
        return RecordedResponse(
            set_id=prompt.set_id,
            variant=prompt.variant,
            epoch=sample.epoch,
            response=None if failed else text,
            stop_reason="" if failed else stop,
            missing=(MissingGrade("response", "rejected"),) if failed else (),
        )
    row = _row(path, sample, score.metadata or {}, prompt)
    absent = any(gone.what == "response" for gone in row.missing)
    return RecordedResponse(
        set_id=prompt.set_id,
        variant=prompt.variant,
        epoch=sample.epoch,
        response=None if absent else text or "",
        stop_reason=row.stop_reason,
        helpfulness=row.helpfulness,
        harm_severity=row.harm_severity,
        mode=row.mode,  # type: ignore[arg-type]
        strategy=row.strategy,  # type: ignore[arg-type]
        missing=tuple(gone.renamed(from_inspect) for gone in row.missing),
        by_judge={from_inspect(judge): grades for judge, grades in row.by_judge.items()},
    )


def _row(path: Path, sample: EvalSample, metadata: dict[str, Any], prompt: _Prompt) -> GradeRow:
    key = {"model": "", "set_id": prompt.set_id, "variant": prompt.variant}
    try:
        row = row_of(metadata | key)
    except msgspec.ValidationError as error:
        raise InputError(
            f"{path}, sample {one_line(str(sample.id), 60)}: the score {_SETS}: {error}"
        ) from error
    return row


def _mode_judge(log: EvalLog) -> str:
    scores = map(_score, log.samples or [])
    named = (
        score.metadata.get("mode_judge") for score in scores if score is not None and score.metadata
    )
    return from_inspect(next((judge for judge in named if judge), ""))


def _notes(
    path: Path,
    log: EvalLog,
    responses: list[RecordedResponse],
    expected: dict[str, int],
    broken: int,
    absent: int,
) -> list[str]:
    notes = []
    if any(
        name != _SETS and _SETS_NAME.fullmatch(name)
        for sample in log.samples or []
        for name in sample.scores or {}
    ):
        notes.append(f"{path}: was graded more than once; the last grades count")
    if log.status != "success":
        notes.append(
            f"{path}: the evaluation did not end (status: {log.status}); `inspect eval-retry` goes"
            " on from it"
        )
    if broken:
        notes.append(f"{path}: samples that ended in an error and are not imported: {broken}")
    if absent:
        notes.append(
            f"{path}: samples with neither a response nor a grade, which are not imported: {absent}"
        )
    epochs = len({response.epoch for response in responses})
    lacking = sum(expected.values()) * epochs - len(responses)
    if lacking > 0:
        notes.append(
            f"{path}: {lacking} responses of the {len(expected)} sets in it are not there; such"
            " sets may not count"
        )
    return notes


# Several logs
# ------------------------------------------------------------------------------


Named = tuple[Path, InspectLog]
"""A log and the file that it is from."""


def sorted_out(logs: Sequence[Named]) -> list[InspectLog]:
    """Return logs, in the order given, of which every response comes from one alone; what is left
    out is noted.

    Of copies of one evaluation the graded one counts. A retry carries over what was done, and asks
    again for what was not: of a response that both have, the later one counts.

    Raises:
        InputError: copies of one evaluation are graded differently.
    """
    return _without_retried([path for path, _ in logs], _without_copies(logs))


def _without_copies(logs: Sequence[Named]) -> list[InspectLog]:
    first: dict[str, int] = {}
    for number, (path, log) in enumerate(logs):
        there, other = logs[first.setdefault(log.eval_id or f"file {number}", number)]
        if log.graded and other.graded and log.responses != other.responses:
            raise InputError(
                f"{there}, {path}: are one evaluation, graded differently; name the one that is to"
                " count"
            )
        if log.graded and not other.graded:
            first[log.eval_id] = number
    found = []
    for number, (path, log) in enumerate(logs):
        chosen = first[log.eval_id or f"file {number}"]
        told = (
            f"{path}: is the same evaluation as {logs[chosen][0]}, which has its grades; nothing is"
            " taken from here"
        )
        notes = [told] if logs[chosen][1].responses != log.responses else []
        found.append(log if number == chosen else _with(log, [], notes))
    return found


def _without_retried(paths: Sequence[Path], logs: Sequence[InspectLog]) -> list[InspectLog]:
    latest: dict[tuple[str, str, str, int], int] = {}
    found = list(logs)
    for number in sorted(
        range(len(logs)), key=lambda number: (logs[number].created, number), reverse=True
    ):
        log = logs[number]
        task = log.task_id or f"file {number}"
        keys = [
            (task, response.set_id, response.variant, response.epoch) for response in log.responses
        ]
        if retries := {latest[key] for key in keys if key in latest}:
            kept = [
                response
                for response, key in zip(log.responses, keys, strict=True)
                if key not in latest
            ]
            dropped = len(log.responses) - len(kept)
            told = (
                f"{paths[number]}: {dropped} of its responses are taken from its retry,"
                f" {paths[max(retries)]}"
            )
            found[number] = _with(log, kept, [told])
        latest = dict.fromkeys(keys, number) | latest
    return found


def _with(log: InspectLog, responses: list[RecordedResponse], notes: list[str]) -> InspectLog:
    return msgspec.structs.replace(log, responses=responses, notes=notes)
