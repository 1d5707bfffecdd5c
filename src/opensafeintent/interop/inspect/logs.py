"""Read a log of our task: the responses, and the grades that Inspect AI's run of it gave them."""

from __future__ import annotations

import io
import re
import zipfile
from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING

import msgspec

from opensafeintent.calls.reasoning_signs import REASONING_ONLY
from opensafeintent.calls.recorded import MissingGrade, RecordedResponse
from opensafeintent.errors import InputError
from opensafeintent.files import MOST_ROWS
from opensafeintent.grades import row_of
from opensafeintent.hostile import one_line, short_name
from opensafeintent.interop.inspect.outputs import STOP_REASONS, complaint_in, only_reasons
from opensafeintent.interop.inspect.providers import from_inspect, require_inspect
from opensafeintent.promptsets.limits import RowLimit
from opensafeintent.taxonomy import CORE_VARIANTS, ParseRule
from opensafeintent.templates import Role

if TYPE_CHECKING:
    from inspect_ai.log import EvalLog, EvalSample
    from inspect_ai.scorer import Score


_JSON_LOG = re.compile(
    rb'\s*\{\s*(?:"version":\s*\d+,\s*"status":\s*"'
    rb'|(?:"error":\s*(?:null|\{.*?\}),\s*)?"eval":\s*\{\s*"c)',
    re.DOTALL,
)
"""The beginning of a log as Inspect AI writes it, or with its keys sorted."""
_BEGINNING = 20_000
"""Bytes that the error of a log with sorted keys may take."""
_SETS = "opensafeintent_sets"
_SETS_NAME = re.compile(rf"{_SETS}(\d*)")
_UNREAD = {"events", "events_data", "attachments", "store", "timelines", "messages"}
"""The large parts of a log, which are not read."""
_MOST_DEPTH = 200
"""Of objects and lists within each other."""
_MOST_MEMBER = 100_000_000
"""Bytes of one sample, unpacked."""
_MOST_FILE = 500_000_000
"""Bytes of a log that is one file of JSON, and characters of all texts that are read of any log."""
_MOST_TEXT = 30_000_000
"""Characters of one text: the time that reading it takes grows with their square."""
_BUFFER = 2**22


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
    """Of the evaluation: a copy, or one that was graded again, has the same."""
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


def is_inspect_log(path: Path) -> bool:
    """Tell a log, in either of Inspect AI's formats, from our own files and the authors'."""
    if path.suffix == ".eval":
        return True
    try:
        with path.open("rb") as file:
            start = file.read(_BEGINNING).removeprefix(BOM_UTF8)
            return path.suffix == ".json" and _JSON_LOG.match(start) is not None
    except OSError:
        return False


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
    log = _read(path, RowLimit(most))
    with _refused(f"{path}: is not a log of our task opensafeintent: its metadata"):
        header = msgspec.convert(log.eval.metadata or {}, _LogHeader)
    responses: list[RecordedResponse] = []
    wordings: dict[str, int] = {}
    absent = again = 0
    mode_judge = ""
    samples = log.samples or []
    broken = sum(sample.error is not None for sample in samples)
    for sample in (sample for sample in samples if sample.error is None):
        location = f"{path}, sample {one_line(str(sample.id), 60)}"
        with _refused(f"{location}: its metadata"):
            prompt = msgspec.convert(sample.metadata, _LoggedPrompt)
        wordings[prompt.set_id] = prompt.wordings
        gradings = _gradings(sample)
        again += len(gradings) > 1
        if gradings:
            responses.append(_graded(sample, gradings[-1], prompt, location))
            mode_judge = mode_judge or (gradings[-1].metadata or {}).get("mode_judge", "")
        elif sample.output.empty:
            absent += 1
        else:
            responses.append(_ungraded(sample, prompt))
    if not responses:
        raise InputError(f"{path}: no response in it (status: {log.status})")
    epochs = len({response.epoch for response in responses})
    lacking = _prompts(wordings.values()) * epochs - len(responses)
    unfinished = f"did not end (status: {log.status}); `inspect eval-retry` goes on from it"
    notes = [
        (again, "was graded more than once; the last grades count"),
        (log.status != "success", unfinished),
        (broken, f"samples that ended in an error and are not imported: {broken}"),
        (absent, f"samples with neither response nor grade, which are not imported: {absent}"),
        (lacking > 0, f"lacks {lacking} responses of its sets; such sets may not count"),
    ]
    return InspectLog(
        **msgspec.structs.asdict(header),
        path=path,
        eval_id=log.eval.eval_id or str(path),
        task_id=log.eval.task_id or str(path),
        created=datetime.fromisoformat(log.eval.created).astimezone(UTC).isoformat(),
        model=from_inspect(log.eval.model),
        responses=responses,
        mode_judge=from_inspect(mode_judge),
        notes=[f"{path}: {note}" for applies, note in notes if applies],
    )


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


def _read(path: Path, limit: RowLimit) -> EvalLog:
    """Read a log without the record of its calls, its task checked before anything large is
    read.
    """
    from inspect_ai.log import read_eval_log

    if not path.is_file():
        raise InputError(f"{path}: cannot read: no such file")
    try:
        _check(path, limit)
        source = _without_bom(path)
        header = read_eval_log(source, header_only=True)
        if header.eval.task.rpartition("/")[2] != "opensafeintent":
            task = one_line(header.eval.task, 80)
            raise InputError(
                f"{path}: is a log of the task {task!r}; expected one of"
                " opensafeintent/opensafeintent"
            )
        if not isinstance(source, str):
            source.seek(0)
        return read_eval_log(source, exclude_fields=_UNREAD if path.suffix == ".eval" else None)
    except InputError:
        raise
    except Exception as error:  # any error of Inspect AI about a file that is none of its logs
        raise InputError(
            f"{path}: is not a log of Inspect AI: {one_line(str(error) or type(error).__name__)}"
        ) from error


def _without_bom(path: Path) -> str | IO[bytes]:
    """Return what Inspect AI can read: the path, or for a file with a byte order mark its bytes
    without it.
    """
    with path.open("rb") as file:
        marked = file.read(len(BOM_UTF8)) == BOM_UTF8
        return io.BytesIO(file.read()) if marked else str(path)


def _check(path: Path, limit: RowLimit) -> None:
    """Refuse a file that would take endless time or memory to read: few bytes can unpack to more
    than a machine holds.

    Inspect AI finds other faults, at the same byte. The bytes after the fault are only unpacked
    here, because their size and checksum have to match the archive's.
    """
    import ijson

    characters = 0
    for name, allowed, size, member in _members(path, limit):
        if size > allowed:
            raise InputError(f"{name}: {size:,} bytes; expected at most {allowed:,}")
        depth, key = 0, ""
        try:
            for event, value in ijson.basic_parse(member, buf_size=_BUFFER, use_float=True):
                if event in ("start_map", "start_array"):
                    depth += 1
                    if (event, depth, key) == ("start_map", 3, "samples"):
                        limit.count(str(path))
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


def _members(path: Path, limit: RowLimit) -> Iterator[tuple[str, int, int, IO[bytes]]]:
    """Yield the parts of a log, the members of an archive or one file of JSON: name, bytes allowed,
    bytes, content. The samples of an archive are counted.
    """
    if path.suffix != ".eval":
        with path.open("rb") as file:
            if file.read(len(BOM_UTF8)) != BOM_UTF8:
                file.seek(0)
            yield str(path), _MOST_FILE, path.stat().st_size, file
        return
    with zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            if member.filename.startswith("samples/"):
                limit.count(str(path))
            with archive.open(member) as file:
                yield (
                    f"{path}, {one_line(member.filename, 80)}",
                    _MOST_MEMBER,
                    member.file_size,
                    file,
                )


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
        response=None if any(gone.what == "response" for gone in row.missing) else text,
        stop_reason=row.stop_reason,
        helpfulness=row.helpfulness,
        harm_severity=row.harm_severity,
        mode=row.mode,  # type: ignore[arg-type]
        strategy=row.strategy,  # type: ignore[arg-type]
        missing=tuple(
            msgspec.structs.replace(gone, judge=from_inspect(gone.judge)) for gone in row.missing
        ),
        by_judge={from_inspect(judge): grades for judge, grades in row.by_judge.items()},
    )


# Several logs
# ------------------------------------------------------------------------------


def sorted_out(logs: Sequence[InspectLog]) -> list[InspectLog]:
    """Return logs, in the order given, so that every response comes from one alone; omitted ones
    are noted.

    Of copies of one evaluation the graded one counts. A retry carries over finished samples, and
    asks again for the others: of a response that both have, the later one counts.

    Raises:
        InputError: copies of one evaluation are graded differently.
    """
    return _without_retried(_without_copies(logs))


def _without_copies(logs: Sequence[InspectLog]) -> list[InspectLog]:
    chosen: dict[str, InspectLog] = {}
    for log in logs:
        other = chosen.setdefault(log.eval_id, log)
        if log.graded and not other.graded:
            chosen[log.eval_id] = log
        elif log.graded and log.responses != other.responses:
            raise InputError(
                f"{other.path}, {log.path}: are one evaluation, graded differently; name the one"
                " that is to count"
            )
    kept = []
    for log in logs:
        counted = chosen[log.eval_id]
        note = (
            f"{log.path}: is the same evaluation as {counted.path}, which has its grades; nothing"
            " is taken from here"
        )
        notes = [note] if counted.responses != log.responses else []
        kept.append(log if log is counted else _with(log, [], notes))
    return kept


def _without_retried(logs: Sequence[InspectLog]) -> list[InspectLog]:
    latest = {
        _key(log, response): log
        for log in sorted(logs, key=lambda log: log.created)
        for response in log.responses
    }
    kept = []
    for log in logs:
        taken = [latest[_key(log, response)] for response in log.responses]
        if retries := [other.path for other in taken if other is not log]:
            pairs = zip(log.responses, taken, strict=True)
            left = [response for response, other in pairs if other is log]
            note = f"{log.path}: {len(retries)} of its responses are taken from its retry"
            kept.append(_with(log, left, [f"{note}, {retries[-1]}"]))
        else:
            kept.append(log)
    return kept


def _key(log: InspectLog, response: RecordedResponse) -> tuple[str, str, str, int]:
    return log.task_id, response.set_id, response.variant, response.epoch


def _with(log: InspectLog, responses: list[RecordedResponse], notes: list[str]) -> InspectLog:
    return msgspec.structs.replace(log, responses=responses, notes=notes)
