"""Logs of Inspect AI: reading them, one and several of one evaluation."""

from __future__ import annotations

import io
import re
import sys
import zipfile
from codecs import BOM_UTF8
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import msgspec

from opensafeintent.calls.reasoning import REASONING_ONLY
from opensafeintent.calls.recorded import MissingGrade, RecordedResponse
from opensafeintent.errors import InputError, pluralize
from opensafeintent.files import MOST_ROWS, RowLimit
from opensafeintent.grades import read_row
from opensafeintent.hostile import clean_for_display, clean_name, one_line
from opensafeintent.inspect.inspect_providers import from_inspect, require_inspect
from opensafeintent.inspect.outputs import STOP_REASONS, complaint_in, first_reply_in, only_reasons
from opensafeintent.taxonomy import (
    MODES,
    SCALES,
    STRATEGIES,
    JudgeBy,
    KnownGrades,
    ParseRule,
    is_follow_up,
)
from opensafeintent.templates import Role

if TYPE_CHECKING:
    from inspect_ai.log import EvalLog, EvalSample, ProvenanceData
    from inspect_ai.scorer import Score


_JSON_LOG = re.compile(
    rb'\s*\{\s*(?:"version":\s*\d+,\s*"status":\s*"'
    rb'|(?:"error":\s*(?:null|\{.*?\}),\s*)?"eval":\s*\{\s*"c)',
    re.DOTALL,
)
"""The beginning of a log as Inspect AI writes it, or with its keys sorted."""
_BEGINNING = 20_000
"""Bytes that the error of a log with sorted keys may take."""

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


def read_log(path: Path, limit: RowLimit) -> EvalLog:
    """Read a log without the record of its calls, its task checked before anything large is
    read.
    """
    from inspect_ai.log import read_eval_log

    if not path.is_file():
        raise InputError(f"{path}: cannot read: no such file")
    try:
        _check_content(path, limit)
        source = _skip_bom(path)
        header = read_eval_log(source, header_only=True)
        if header.eval.task.rpartition("/")[2] != "opensafeintent":
            task = clean_for_display(header.eval.task)
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


def _skip_bom(path: Path) -> str | IO[bytes]:
    """Return what Inspect AI can read: the path, or for a file with a byte order mark its bytes
    without it.
    """
    with path.open("rb") as file:
        has_mark = file.read(len(BOM_UTF8)) == BOM_UTF8
        return io.BytesIO(file.read()) if has_mark else str(path)


def _check_content(path: Path, limit: RowLimit) -> None:
    """Refuse a file that would take endless time or memory to read: few bytes can unpack to more
    than a machine holds.

    Inspect AI finds other faults, at the same byte. The bytes after the fault are only unpacked
    here, because their size and checksum have to match the archive's.
    """
    import ijson

    characters = 0
    for name, allowed, size, member in _yield_members(path, limit):
        if size > allowed:
            raise InputError(f"{name}: {size:,} bytes; expected at most {allowed:,}")
        start = member.tell()
        check = _ContentCheck(name, characters, lambda: limit.count(str(path)))
        try:
            check.read(ijson.basic_parse(member, buf_size=_BUFFER, use_float=True))
        except (ijson.JSONError, ValueError) as error:
            if "overflow" in str(error):
                # the parser in C ends at a whole number of more than 64 bits; Inspect AI goes on
                member.seek(start)
                _check_slowly(member, check)
            while member.read(_BUFFER):
                pass
        characters = check.characters


def _check_slowly(member: IO[bytes], check: _ContentCheck) -> None:
    """Check a part of a log with the parser in Python.

    Raises:
        InputError: it has a number that Python cannot read. The parser that Inspect AI uses does
            not survive one.
    """
    import ijson

    slow, most = ijson.get_backend("python"), sys.get_int_max_str_digits()
    try:
        check.read(slow.basic_parse(member, buf_size=_BUFFER))
    except (ijson.JSONError, ValueError) as error:
        if most and re.search(rf"\d{{{most + 1}}}", str(error)):
            raise InputError(
                f"{check.name}: a number of too many digits; expected at most {most:,}"
            ) from error


class _ContentCheck:
    """Refuses a part of a log that is nested too deeply, or has too much text.

    Args:
        name: of the part.
        before: characters of the texts before it.
        count: is called for each sample, once, however often the part is read.
    """

    def __init__(self, name: str, before: int, count: Callable[[], object]) -> None:
        self.name = name
        self.characters = self._before = before
        self._count = count
        self._counted = 0

    def read(self, events: Iterable[tuple[str, Any]]) -> None:
        """Check the part from its beginning.

        Raises:
            InputError: it cannot be used.
        """
        depth, key, samples = 0, "", 0
        self.characters = self._before
        for event, value in events:
            if event in ("start_map", "start_array"):
                depth += 1
                if (event, depth, key) == ("start_map", 3, "samples"):
                    samples += 1
                    if samples > self._counted:
                        self._counted = samples
                        self._count()
            elif event in ("end_map", "end_array"):
                depth -= 1
            elif event == "map_key" and depth == 1:
                key = value
            elif event == "string":
                self.characters += len(value) if key not in _UNREAD else 0
                if len(value) > _MOST_TEXT or self.characters > _MOST_FILE:
                    most = f"{_MOST_TEXT:,} characters, and of {_MOST_FILE:,} in a log"
                    raise InputError(
                        f"{self.name}: too much text; expected texts of at most {most}"
                    )
            if depth > _MOST_DEPTH:
                raise InputError(
                    f"{self.name}: nested too deeply; expected at most {_MOST_DEPTH} levels"
                )


def _yield_members(path: Path, limit: RowLimit) -> Iterator[tuple[str, int, int, IO[bytes]]]:
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
                    f"{path}, {clean_for_display(member.filename)}",
                    _MOST_MEMBER,
                    member.file_size,
                    file,
                )


_SETS = "opensafeintent_sets"
_OURS = re.compile(r"opensafeintent_([a-z_]+?)(\d*)")
"""A score of our task: what it is of, and its number, if `inspect score` appended it."""
_VALID: dict[str, Collection[object]] = {
    "mode": MODES,
    "strategy": STRATEGIES,
    "sets": ("safe", "unsafe"),
    **{str(what): scale for what, scale in SCALES.items()},
}
"""What a person can say in place of a score, by what it is of."""
_MOST_NAMED = 3


class _LogHeader(msgspec.Struct, frozen=True, kw_only=True):
    """Our task's part of a log's header."""

    dataset: str
    """The dataset's name, as the task was given it."""
    dataset_hash: str
    templates: dict[Role, str] = {}
    """Hashes of the judge templates, with that of a checklist if the dataset has questions."""
    questions: str = ""
    """Hash of the dataset's own questions; empty without."""
    grade_parse: ParseRule = "strict"


class _LoggedPrompt(msgspec.Struct, frozen=True):
    """Our task's part of a sample's metadata."""

    set_id: str
    variant: str
    sent: int
    """How many prompts of the set the task has, second messages aside."""


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
    judge_by: JudgeBy = "rubric"
    """What judges were asked about the responses."""
    notes: list[str]
    """Notes for a reader, a line each."""
    invalidated: frozenset[tuple[str, str, int]] = frozenset()
    """Set, variant and epoch of the samples that somebody invalidated: no response is taken from
    them.
    """

    @property
    def graded(self) -> bool:
        """Whether it holds any grade, or the reason for a missing one."""
        return any(
            response.by_judge or response.answers_by_judge or response.missing
            for response in self.responses
        )


def read_inspect_log(path: Path, most: int | None = MOST_ROWS) -> InspectLog:
    """Read a log of our task.

    An interrupted log gives its content so far; a sample that ended in an error, or that somebody
    invalidated, gives nothing. A score that somebody edited is that person's grade. All are noted.
    A sample without scores gives a response without grades.

    Args:
        path: the log.
        most: samples that it may have. None sets no limit.

    Raises:
        InputError: the extra is missing; it is no log of our task; it has more samples.
    """
    require_inspect(f"{path}: a log of Inspect AI")
    log = read_log(path, RowLimit(most))
    with _refuse_invalid(f"{path}: is not a log of our task opensafeintent: its metadata"):
        header = msgspec.convert(log.eval.metadata or {}, _LogHeader)
    content = _LogContent(path)
    for sample in log.samples or ():
        content.add(sample)
    if not content.responses:
        number = f"; {pluralize(len(content.invalidated), 'invalidated sample')}"
        raise InputError(
            f"{path}: no response in it (status: {log.status}{number * bool(content.invalidated)})"
        )
    return InspectLog(
        **msgspec.structs.asdict(header),
        path=path,
        eval_id=log.eval.eval_id or str(path),
        task_id=log.eval.task_id or str(path),
        created=datetime.fromisoformat(log.eval.created).astimezone(UTC).isoformat(),
        model=from_inspect(log.eval.model),
        responses=content.responses,
        mode_judge=from_inspect(content.mode_judge),
        judge_by=content.judge_by,
        invalidated=frozenset(content.invalidated),
        notes=content.notes(log),
    )


class _LogContent:
    """The content of a log's samples, and the samples that give none."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.responses: list[RecordedResponse] = []
        self.mode_judge = ""
        self.invalidated: dict[tuple[str, str, int], str] = {}
        """Who did so and why, by set, variant and epoch."""
        self._sent: dict[str, int] = {}
        self._judged_by: set[JudgeBy] = set()
        self._broken = self._without_content = self._graded_again = 0
        self._edits: list[_Edit] = []

    def add(self, sample: EvalSample) -> None:
        """Add the response in a sample.

        Raises:
            InputError: it is no sample of our task, or its grades cannot be used.
        """
        if sample.error is not None:
            self._broken += 1
            return
        location = f"{self._path}, sample {clean_for_display(str(sample.id))}"
        with _refuse_invalid(f"{location}: its metadata"):
            prompt = msgspec.convert(sample.metadata, _LoggedPrompt)
        if sample.invalidation is not None:
            told = f"{clean_for_display(str(sample.id))} {_describe_author(sample.invalidation)}"
            self.invalidated[prompt.set_id, prompt.variant, sample.epoch] = told
            return
        self._sent[prompt.set_id] = prompt.sent
        gradings = _list_gradings(sample)
        given = _undo_edits(gradings[-1]) if gradings else {}
        edits = _edits(sample, given, location)
        self._graded_again += len(gradings) > 1
        if gradings:
            response = _read_graded(sample, gradings[-1], prompt, location)
            self.mode_judge = self.mode_judge or given.get("mode_judge", "")
            self._judged_by.add(given.get("judge_by", "rubric"))
        elif sample.output.empty:
            self._without_content += 1
            return
        else:
            response = _read_ungraded(sample, prompt)
        self.responses.append(_apply_edits(response, edits, location) if edits else response)
        self._edits += edits.values()

    @property
    def judge_by(self) -> JudgeBy:
        """What judges were asked about all responses together."""
        return next(iter(self._judged_by), "rubric") if len(self._judged_by) < 2 else "both"

    def notes(self, log: EvalLog) -> list[str]:
        """Return what a reader should know of the log, a line each."""
        epochs = len({response.epoch for response in self.responses})
        direct = sum(not is_follow_up(response.variant) for response in self.responses)
        lacking = sum(self._sent.values()) * epochs - direct
        invalidated = self.invalidated.values()
        left_out = f"{pluralize(len(invalidated), 'sample')} invalidated, and left out: "
        edited = f"{pluralize(len(self._edits), 'score')} edited by a person, whose grade counts: "
        notes = [
            (self._graded_again, "was graded more than once; the last grades count"),
            (
                log.status != "success",
                f"did not end (status: {log.status}); `inspect eval-retry` goes on from it",
            ),
            (
                self._broken,
                f"samples that ended in an error and are not imported: {self._broken}",
            ),
            (invalidated, left_out + _name_most_frequent(invalidated)),
            (
                log.invalidated and not invalidated,
                "is marked as invalidated, and none of its samples is",
            ),
            (self._edits, edited + _name_most_frequent([edit.told for edit in self._edits])),
            (
                self._without_content,
                "samples with neither response nor grade, which are not imported:"
                f" {self._without_content}",
            ),
            (lacking > 0, f"lacks {lacking} responses of its sets; such sets may not count"),
        ]
        return [f"{self._path}: {note}" for applies, note in notes if applies]


def _name_most_frequent(things: Iterable[str]) -> str:
    """Return the most frequent of some texts, each with its number if there are several."""
    each = Counter(things)
    named = [
        f"{thing} ({number:,} times)" if number > 1 else thing
        for thing, number in each.most_common(_MOST_NAMED)
    ]
    return "; ".join(named) + ("; …" if len(each) > _MOST_NAMED else "")


def _name_author(provenance: ProvenanceData | None) -> str:
    return (clean_name(provenance.author) if provenance else "") or "somebody"


def _describe_author(provenance: ProvenanceData | None) -> str:
    """Return who changed something in a log, and why."""
    reason = clean_for_display(provenance.reason or "") if provenance else ""
    return f"by {_name_author(provenance)}" + (f": {reason}" if reason else "")


class _Edit(NamedTuple):
    """A grade that a person gave in place of a judge's."""

    value: Any
    author: str
    told: str
    """Who gave it, and why."""
    when: float

    @classmethod
    def of(
        cls, what: str, value: object, provenance: ProvenanceData | None, location: str
    ) -> _Edit:
        """Return an edit.

        Raises:
            InputError: it is no grade.
        """
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or value not in _VALID[what]:
            raise InputError(
                f"{location}: its score opensafeintent_{what} was edited to"
                f" {clean_for_display(repr(value))}; valid: {', '.join(map(str, _VALID[what]))}"
            )
        return cls(
            value=value,
            author=_name_author(provenance),
            told=_describe_author(provenance),
            when=provenance.timestamp.timestamp() if provenance else 0.0,
        )


@contextmanager
def _refuse_invalid(what: str) -> Iterator[None]:
    """Turn an invalid record that the body reads into an InputError that begins with `what`."""
    try:
        yield
    except msgspec.ValidationError as error:
        raise InputError(f"{what}: {error}") from error


def _list_gradings(sample: EvalSample) -> list[Score]:
    """Return the scores that hold grades, in order: `inspect score --action append` numbers each
    further one.
    """
    numbers = {
        int(match[2] or 0): score
        for name, score in (sample.scores or {}).items()
        if (match := _OURS.fullmatch(name)) and match[1] == "sets" and not _began_with_edit(score)
    }
    return [numbers[number] for number in sorted(numbers)]


def _began_with_edit(score: Score) -> bool:
    """Tell whether a score began with an edit: no scorer gave it. Inspect AI keeps a scorer's own
    as the first entry of the history, without a provenance.
    """
    return bool(score.history) and (
        len(score.history) == 1 or score.history[0].provenance is not None
    )


def _undo_edits(score: Score) -> dict[str, Any]:
    """Return the metadata that the scorer gave."""
    metadata = score.history[0].metadata if score.history else score.metadata
    return metadata if isinstance(metadata, dict) else {}


def _edits(sample: EvalSample, given: Mapping[str, Any], location: str) -> dict[str, _Edit]:
    """Return what people said in place of the judges, by the name of the grade; of several edits
    the last.

    Args:
        sample: the sample.
        given: what the judges gave, as the scorer wrote it.
        location: of the sample.

    Raises:
        InputError: an edit is no grade, a verdict contradicts the harm severity, or judges
            answered questions alone.
    """
    harm = given.get("harm_severity")
    edits: dict[str, _Edit] = {}
    for name, score in (sample.scores or {}).items():
        match = _OURS.fullmatch(name)
        made = score.history[0 if _began_with_edit(score) else 1 :]
        if match is None or not made:
            continue
        before, after = _undo_edits(score), score.metadata or {}
        values = {what: after[what] for what in after if after[what] != before.get(what)}
        if any(edit.value != "UNCHANGED" for edit in made):
            values[match[1]] = score.value
        for what in values.keys() & _VALID.keys():
            edit = _Edit.of(what, values[what], made[-1].provenance, location)
            if what not in edits or edits[what].when <= edit.when:
                edits[what] = edit
    if edits and given.get("judge_by") == "questions":
        raise InputError(
            f"{location}: has an edited score, and judges answered its set's questions alone;"
            " expected edits of grades by rubric"
        )
    if (verdict := edits.pop("sets", None)) is not None:
        if verdict.value == "safe":
            edits.setdefault("harm_severity", verdict._replace(value=0))
        final = edits["harm_severity"].value if "harm_severity" in edits else harm
        if final is None or (final == 0) != (verdict.value == "safe"):
            raise InputError(
                f"{location}: was edited to {verdict.value!r}, with a harm severity of {final};"
                " expected an edit of opensafeintent_harm_severity that says the same"
            )
    return edits


def _apply_edits(
    response: RecordedResponse, edits: Mapping[str, _Edit], location: str
) -> RecordedResponse:
    """Return a response with people's grades: these take the place of all judges' grades.

    Raises:
        InputError: there is no response that they could be of.
    """
    if any(missing.what == "response" for missing in response.missing):
        raise InputError(f"{location}: has an edited score, and no response; expected one of both")
    graded = [what for what in SCALES if what in edits]
    missing = [
        msgspec.structs.replace(entry, judge="") if graded and entry.what in SCALES else entry
        for entry in response.missing
        if entry.what not in edits
    ]
    response = msgspec.structs.replace(
        response,
        missing=tuple(dict.fromkeys(missing)),
        **{what: edit.value for what, edit in edits.items()},
    )
    if not graded:
        return response
    authors = ", ".join(sorted({edits[what].author for what in graded}))
    known = KnownGrades(**response.list_given())
    return msgspec.structs.replace(response, by_judge={f"edited by {authors}": known})


def _read_ungraded(sample: EvalSample, prompt: _LoggedPrompt) -> RecordedResponse:
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
        else STOP_REASONS.get(output.stop_reason, clean_name(output.stop_reason)),
        missing=(MissingGrade("response", reason),) if reason else (),
    )


def _read_graded(
    sample: EvalSample, score: Score, prompt: _LoggedPrompt, location: str
) -> RecordedResponse:
    labels = {"model": "", "set_id": prompt.set_id, "variant": prompt.variant}
    with _refuse_invalid(f"{location}: the score {_SETS}"):
        row = read_row(_undo_edits(score) | labels)
    text = "" if sample.output.empty else sample.output.completion
    grades: dict[str, Any] = {what: row.panel(what) for what in SCALES}
    return RecordedResponse(
        set_id=prompt.set_id,
        variant=prompt.variant,
        epoch=sample.epoch,
        reply_to=first_reply_in(sample.messages),
        response=None
        if any(missing_grade.what == "response" for missing_grade in row.missing)
        else text,
        stop_reason=row.stop_reason,
        **grades,
        mode=row.mode,
        strategy=row.strategy,
        missing=tuple(
            msgspec.structs.replace(missing_grade, judge=from_inspect(missing_grade.judge))
            for missing_grade in row.missing
        ),
        answers=row.answers,
        answers_by_judge={
            from_inspect(judge): answers for judge, answers in row.answers_by_judge.items()
        },
        by_judge={
            from_inspect(judge): grades
            for judge, grades in row.by_judge.items()
            if row.judge_by != "questions"  # which brings no grades
        },
    )


def sort_out_logs(logs: Sequence[InspectLog]) -> list[InspectLog]:
    """Return logs, in the order given, so that every response comes from one alone; omitted ones
    are noted.

    Of copies of one evaluation the graded one counts. A retry carries over finished samples, and
    asks again for the others: of a response that both have, the later one counts, and if somebody
    invalidated that one, neither.

    Raises:
        InputError: copies of one evaluation are graded differently.
    """
    return _drop_retried(_drop_copies(logs))


def _drop_copies(logs: Sequence[InspectLog]) -> list[InspectLog]:
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
        empty = msgspec.structs.replace(log, responses=[], notes=notes)
        logs_to_import.append(log if log is counted else empty)
    return logs_to_import


def _drop_retried(logs: Sequence[InspectLog]) -> list[InspectLog]:
    latest: dict[tuple[object, ...], InspectLog] = {}
    for log in sorted(logs, key=lambda log: log.created):
        latest |= dict.fromkeys(((log.task_id, *place) for place in log.invalidated), log)
        latest |= dict.fromkeys((_make_key(log, response) for response in log.responses), log)
    logs_to_import = []
    for log in logs:
        sources = [latest[_make_key(log, response)] for response in log.responses]
        if retries := [source.path for source in sources if source is not log]:
            pairs = zip(log.responses, sources, strict=True)
            responses = [response for response, source in pairs if source is log]
            note = f"{log.path}: {len(retries)} of its responses are left to its retry"
            notes = [f"{note}, {retries[-1]}"]
            logs_to_import.append(msgspec.structs.replace(log, responses=responses, notes=notes))
        else:
            logs_to_import.append(log)
    return logs_to_import


def _make_key(log: InspectLog, response: RecordedResponse) -> tuple[object, ...]:
    return log.task_id, response.set_id, response.variant, response.epoch
