"""Take in responses and grades that were made elsewhere."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from opensafeintent.calls.ledger import Ledger, ledger_name
from opensafeintent.calls.models import check_model_name
from opensafeintent.calls.progress import Display
from opensafeintent.calls.recorded import (
    ANSWERS,
    READ,
    ImportedResponse,
    ImportedRow,
    RecordedResponse,
    ResponsePlace,
    check_recorded,
    is_withheld,
    recorded_responses,
)
from opensafeintent.errors import InputError, counted, first_exit_code, nearest
from opensafeintent.evaluation.manifest import Manifest, ModelEntry, RunFolder
from opensafeintent.evaluation.run import given_tasks, imported_rows
from opensafeintent.files import sha256_hex
from opensafeintent.grades import COLUMNS, is_scored, read_authors_record
from opensafeintent.hostile import one_line
from opensafeintent.interop import optional
from opensafeintent.interop.tools import records_of_tool
from opensafeintent.promptsets import Dataset, PromptSet, load_dataset
from opensafeintent.promptsets.loading import (
    Record,
    fields_found,
    fields_named,
    parse_prompt_set,
)
from opensafeintent.promptsets.reading import (
    MOST_TOLD,
    Problem,
    RowLimit,
    read_records,
    told_once,
    whole_number,
)
from opensafeintent.quoting import WITHHELD_WORDS
from opensafeintent.taxonomy import MOST_EPOCHS, SCALES, Taxonomy, default_taxonomy, load_taxonomy
from opensafeintent.workflows.outcome import Outcome
from opensafeintent.workflows.reading import read_graded_run
from opensafeintent.workflows.report import write_results
from opensafeintent.workflows.runtime import rare_collections
from opensafeintent.workflows.settings import ImportSettings

if TYPE_CHECKING:
    from opensafeintent.interop.inspect.logs import InspectLog

T = TypeVar("T")

_BLANK = {"", "na", "n/a", "nan", "none", "null"}
"""What programs write in place of a number that is missing, without case."""
_NOT_RECORDED = "response:not_recorded"
_BY_JUDGE = re.compile(rf"(?:{'|'.join(SCALES)})\[.*\]")
"""A column of our own grades."""


class _Read(msgspec.Struct, kw_only=True):
    """The content of one file."""

    path: Path
    responses: list[RecordedResponse]
    prompted: list[tuple[str, object]] = []
    """Records that may have the prompt's text in place of its set and variant, each with its
    location.
    """
    prompt_sets: tuple[PromptSet, ...] = ()
    zero_helpfulness: int = 0
    log: InspectLog | None = None
    """Its log, if it is one of Inspect AI."""
    named: str = ""
    """The model that its lines name; empty if they name none."""
    unread: tuple[str, ...] = ()
    """Its columns that are of no use here."""
    sent_another: int = 0
    """Responses that are left out, since the model got another text than the prompt."""

    @property
    def notes(self) -> list[str]:
        """Notes for a reader, a line each."""
        gone = Counter(
            gone.reason for one in self.responses for gone in one.missing if gone.what == "response"
        )
        notes = [f"{counted(n, 'response')} missing ({why})" for why, n in gone.items()]
        if self.sent_another:
            notes.append(
                f"{counted(self.sent_another, 'response')} left out: the model got another text"
                " than the prompt, as from a strategy of a red team"
            )
        if marked := sum(WITHHELD_WORDS in (one.response or "") for one in self.responses):
            notes.append(
                f"{counted(marked, 'response')} with a mark in place of words of the malicious"
                " prompt; an export with --include-unsafe has the words of the model"
            )
        if self.unread:
            notes.append(f"not read: {fields_named(self.unread)}")
        return [
            *(self.log.notes if self.log else ()),
            *(f"{self.path}: {note}" for note in notes),
        ]

    @property
    def model(self) -> str:
        """The model name of its responses, unless the user gives another."""
        return self.log.model if self.log else self.named or self.path.stem


def import_files(settings: ImportSettings, display: Display | None = None) -> Outcome:
    """Import files of responses, with or without grades, into a run, and report on it.

    The authors' scored and response-only files and those of promptfoo and lm-evaluation-harness are
    recognised by their fields, logs of Inspect AI by their form. Anything else is read as our
    records of responses. Importing the same file twice changes nothing. Of several logs of Inspect
    AI, unusable ones are named, and the others imported.

    Raises:
        InputError: a file, or a record in it, is not usable; nothing is imported then.
    """
    with closing(display or Display()) as screen, rare_collections():
        return _import(settings, screen)


def _import(settings: ImportSettings, screen: Display) -> Outcome:
    taxonomy = load_taxonomy(settings.taxonomy) if settings.taxonomy else None
    folder = RunFolder(settings.out)
    of_run = folder.load()[1] if folder.exists() else None
    labels = taxonomy or (of_run.taxonomy if of_run else default_taxonomy())
    read, failed = _read_all(settings, labels, screen)
    by_model = _by_model(settings, read)
    dataset = _dataset(settings, labels, of_run, read)
    of_text = _texts_of(dataset)
    for item in read:
        if item.prompted:
            item.responses = _by_prompt(item, dataset, of_text, screen)
    with folder.lock():
        begins = not folder.exists()
        manifest = (
            Manifest.new(dataset, ledger=ledger_name(settings.ledger))
            if begins
            else folder.load()[0]
        )
        ledger_path = folder.ledger_to_write(manifest, settings.ledger)
        for model in by_model:
            if model in manifest.models and not manifest.models[model].imported:
                raise InputError(
                    f"{settings.out}: {model} was evaluated in this run; import under another"
                    " --model or --out"
                )
        for item in read:
            _check_prompts(item, dataset)
            check_recorded(item.path, item.responses)
        manifest = _with_models(manifest, by_model)
        if begins:
            folder.begin(dataset)
        with Ledger(ledger_path) as ledger:
            there = imported_rows(ledger, dataset)
            _check_graded(ledger.path, dataset, manifest, by_model, there)
            rows = list(_rows(by_model))
            stored = _counted_off(rows, screen, "storing", "responses")
            ledger.imports.add(dataset.hash, stored)
            halves = _halves((*chain.from_iterable(there.values()), *rows))
        folder.save(manifest)
    run = read_graded_run(folder, settings.out.name, screen)
    screen.stage("estimating")
    outcome = write_results(run, folder, settings.max_missing)
    if failed:
        outcome.exit_code = first_exit_code(outcome.exit_code, 1)
        outcome.stopped += failed
    outcome.notes += [note for item in read for note in item.notes]
    outcome.notes += [
        f"{model}: {counted(number, 'response')} with one of the two grades, which counts for"
        " nothing alone; import the other, or have judges give both: opensafeintent grade RUN"
        for model, number in halves.items()
    ]
    if zeros := sum(item.zero_helpfulness for item in read):
        outcome.notes.append(
            f"{zeros} helpfulness grades of 0 were read as 1, as the authors' script does"
        )
    return outcome


def _halves(rows: Iterable[ImportedResponse | ImportedRow]) -> Counter[str]:
    """Return how many responses came with one of the two grades alone, by model; the two may have
    come from two files.
    """
    known: dict[ResponsePlace, tuple[bool, bool]] = {}
    for row in rows:
        one = row.recorded
        place = (row.model, *_place(one))
        helpful, harm = known.get(place, (False, False))
        known[place] = (
            helpful or one.helpfulness is not None,
            harm or one.harm_severity is not None,
        )
    return Counter(model for (model, *_), (helpful, harm) in known.items() if helpful != harm)


def _check_graded(
    ledger: Path,
    dataset: Dataset,
    manifest: Manifest,
    by_model: Mapping[str, Sequence[_Read]],
    there: Mapping[str, Sequence[ImportedResponse]],
) -> None:
    """Refuse grades that would take the place of a judge's.

    Raises:
        InputError: a judge has graded a response, and a file brings grades of it.
    """
    for model, rows in there.items():
        if model not in by_model or not manifest.models[model].judges:
            continue
        judged = {task.key for task in given_tasks(rows, dataset)}
        known = {(model, *_place(row.recorded)): row.recorded for row in rows}
        brought = (one for item in by_model[model] for one in item.responses)
        for one in brought:
            location = (model, *_place(one))
            if location in judged and any(
                getattr(one, what) is not None and getattr(known[location], what) is None
                for what in SCALES
            ):
                raise InputError(
                    f"{ledger.parent}: a judge has graded {model}, set {one.set_id},"
                    f" {one.variant}; expected responses without judges' grades, or a new --out"
                )


def _place(one: RecordedResponse) -> tuple[str, str, int]:
    return one.set_id, one.variant, one.epoch


def _by_model(settings: ImportSettings, read: Sequence[_Read]) -> dict[str, list[_Read]]:
    by_model: dict[str, list[_Read]] = {}
    named: dict[Path, str] = {}
    for item in read:
        model = settings.model or item.model
        check_model_name(model, "--model" if settings.model else f"{item.path}: model")
        if settings.model and item.named != named.setdefault(item.path, item.named):
            raise InputError(f"--model {model}: {item.path} names several models; leave it out")
        by_model.setdefault(model, []).append(item)
    return by_model


def _with_models(manifest: Manifest, by_model: dict[str, list[_Read]]) -> Manifest:
    models = dict(manifest.models)
    for model, files in by_model.items():
        entry = models.get(model) or ModelEntry(identity=f"imported/{model}", imported=True)
        for item in files:
            if item.log is not None and item.log.graded and not entry.judges:
                entry = _graded_as(entry, item.path, item.log)
        models[model] = entry
    return msgspec.structs.replace(manifest, models=models)


def _graded_as(entry: ModelEntry, path: Path, log: InspectLog) -> ModelEntry:
    """Return an entry with a log's description of how its responses were graded.

    Raises:
        InputError: the entry's others were graded in another way.
    """
    pairs = (
        ("other judge templates", entry.templates, log.templates),
        ("another judge of modes", entry.mode_judge, log.mode_judge),
        ("another way of reading grades", entry.parse if entry.templates else "", log.grade_parse),
    )
    for what, earlier, here in pairs:
        if earlier and here and earlier != here:
            raise InputError(
                f"{path}: was graded with {what} than this model's other responses; import into a"
                " new --out"
            )
    return msgspec.structs.replace(
        entry,
        templates=entry.templates or log.templates,
        mode_judge=entry.mode_judge or log.mode_judge,
        parse=log.grade_parse,
    )


_STEP = 1000
"""Records from one line of progress to the next."""


def _counted_off(records: Iterable[T], screen: Display, stage: str, what: str) -> Iterator[T]:
    """Yield records, and show how many there were."""
    screen.stage(stage)
    for number, record in enumerate(records, start=1):
        if number % _STEP == 0:
            screen.stage(f"{stage}: {number:,} {what}")
        yield record


def _read_all(
    settings: ImportSettings, taxonomy: Taxonomy, screen: Display
) -> tuple[list[_Read], list[str]]:
    """Read every file; returned beside are the complaints about logs that cannot be used.

    Raises:
        InputError: a file cannot be used, or none of the logs.
    """
    inspect = optional("inspect.logs")
    read: list[_Read] = []
    logs: list[InspectLog] = []
    failed: list[InputError] = []
    for path in settings.files:
        if not inspect or not inspect.is_inspect_log(path):
            read += _read(path, taxonomy, settings.max_rows, screen)
            continue
        screen.stage(f"reading {one_line(path.name, 60)}")
        try:
            logs.append(inspect.read_inspect_log(path))
        except InputError as error:
            failed.append(error)
    lines = [line for error in failed for line in error.args]
    if failed and not logs:
        raise InputError(*lines)
    read += [
        _Read(path=log.path, responses=log.responses, log=log)
        for log in (inspect.sorted_out(logs) if inspect and logs else ())
    ]
    return read, [f"not imported: {line}" for line in lines]


def _read(path: Path, taxonomy: Taxonomy, max_rows: int | None, screen: Display) -> list[_Read]:
    stage = f"reading {one_line(path.name, 60)}"
    try:
        rows = read_records(path, limit=RowLimit(max_rows))
        records = list(_counted_off(rows, screen, stage, "rows"))
        if of_tool := records_of_tool(records, path):
            return _of_each_model(of_tool, path, repeats=True)
        if not records:
            raise InputError(f"{path}: no responses in it")
        if not any(is_scored(data) for _, data in records):
            first = records[0][1]
            if not isinstance(first, dict) or "variant" in first or "prompt" in first:
                return _of_lines(records, path)
            raise InputError(
                f"{path}: neither responses of ours (id, variant, response on each line; or prompt,"
                " response) nor an authors' file (model_responses or response_scores_… in each"
                " record), nor one of promptfoo or lm-evaluation-harness" + fields_found(first)
            )
        responses: list[RecordedResponse] = []
        prompt_sets: dict[str, PromptSet] = {}
        zeros = 0
        for location, data in records:
            record = Record(data, location)
            prompt_set = parse_prompt_set(record, taxonomy)
            if prompt_set.id in prompt_sets:
                raise InputError(f"{location}: the prompt-set {prompt_set.id} is there twice")
            prompt_sets[prompt_set.id] = prompt_set
            of_record, zeros_of_record = read_authors_record(record, prompt_set)
            responses += of_record
            zeros += zeros_of_record
    except Problem as problem:
        raise InputError(str(problem)) from problem
    if not responses:
        raise InputError(f"{path}: no responses in it")
    return [
        _Read(
            path=path,
            responses=responses,
            prompt_sets=tuple(prompt_sets.values()),
            zero_helpfulness=zeros,
        )
    ]


def _of_lines(records: Sequence[tuple[str, object]], path: Path) -> list[_Read]:
    fields = {field: None for _, data in records if isinstance(data, dict) for field in data}
    if fields and not fields.keys() & set(ANSWERS):
        raise InputError(
            f"{path}: no response in it; expected a field or column response, both grades, or why"
            f" there is none in missing{fields_found(fields)}"
        )
    if path.suffix.lower() in (".csv", ".parquet"):
        records = [(location, _of_table(row)) for location, row in records]
    read = _of_each_model(records, path)
    known = READ.union(COLUMNS)
    read[0].unread = tuple(
        field for field in fields if field not in known and not _BY_JUDGE.fullmatch(field)
    )
    return read


def _of_each_model(
    records: Iterable[tuple[str, object]], path: Path, *, repeats: bool = False
) -> list[_Read]:
    """Read lines of responses, each model's apart if they name their models.

    Args:
        records: the lines.
        path: of their file.
        repeats: later records of one prompt are later epochs, whether or not set and variant are
            named.
    """
    by_model: dict[str, list[tuple[str, object]]] = {}
    for location, data in records:
        named = data.get("model") if isinstance(data, dict) else None
        by_model.setdefault(named if isinstance(named, str) else "", []).append((location, data))
    return [
        _Read(path=path, responses=[], prompted=some, named=named)
        if repeats or any(isinstance(data, dict) and "variant" not in data for _, data in some)
        else _Read(path=path, responses=recorded_responses(some, path), named=named)
        for named, some in by_model.items()
    ]


def _of_table(row: Any) -> dict[str, object]:
    """Return a row of a table with its numbers; a response is missing if its cell is empty, and
    there is neither grade nor reason.
    """
    cells = {name: cell for name, cell in row.items() if cell is not None}
    for name in cells.keys() & {"epoch", *SCALES}:
        if (number := whole_number(cells[name])) is not None:
            cells[name] = number
        elif str(cells[name]).strip().lower() in _BLANK:
            del cells[name]
    known = {"response", "completion", "missing", *SCALES}
    found = known & cells.keys() or is_withheld(cells)
    return cells if found else cells | {"missing": _NOT_RECORDED}


def _texts_of(dataset: Dataset) -> dict[str, list[tuple[str, str]]]:
    """Return set and variant of every prompt by its text, mostly one."""
    of_text: dict[str, list[tuple[str, str]]] = {}
    for prompt_set in dataset.prompt_sets:
        for variant, text in prompt_set.wordings().items():
            of_text.setdefault(_without_ends(text), []).append((prompt_set.id, variant))
    return of_text


def _by_prompt(
    item: _Read,
    dataset: Dataset,
    of_text: Mapping[str, Sequence[tuple[str, str]]],
    screen: Display,
) -> list[RecordedResponse]:
    """Find set and variant of each record, if it does not name them, by its prompt's text, spaces
    and line breaks at its ends left out; a prompt's later records are later epochs. A record whose
    model got another text is left out, and counted.

    Raises:
        InputError: a text is no prompt of the dataset, or of several sets, or a record is no
            response.
    """
    epochs: Counter[tuple[str, str]] = Counter()
    placed: list[tuple[str, object]] = []
    problems: list[Problem] = []
    stage = f"reading {one_line(item.path.name, 60)}"
    for location, data in _counted_off(item.prompted, screen, stage, "responses"):
        try:
            record = Record(data, location)
            if "sent" in record and not _is_prompt(record, of_text):
                item.sent_another += 1
                continue
            place = _place_of(record, of_text, dataset)
            epochs[place] += 1
            if epochs[place] > MOST_EPOCHS and "epoch" not in record:
                record.fail("prompt", f"is answered more than {MOST_EPOCHS:,} times")
        except Problem as problem:
            problems.append(problem)
            continue
        fields = {
            key: value for key, value in record.data.items() if key not in ("prompt", "completion")
        }
        known = {  # an id of theirs is another's
            "id": place[0],
            "variant": place[1],
            "response": record.data.get("completion", record.data.get("response")),
        }
        placed.append((location, {"epoch": epochs[place]} | fields | known))
    if problems:
        raise InputError(*told_once(problems, MOST_TOLD))
    if not placed and item.sent_another:
        raise InputError(
            f"{item.path}: a strategy of a red team sent another text for every prompt; expected"
            f" responses to the prompts of {dataset.name} as they are"
        )
    return recorded_responses(placed, item.path)


def _without_ends(text: str) -> str:
    return text.replace("\r\n", "\n").strip()


def _is_prompt(record: Record, of_text: Mapping[str, Sequence[tuple[str, str]]]) -> bool:
    """Tell whether the text that a model got is a prompt, and the one that its record names."""
    places = of_text.get(_without_ends(record.text("sent")), [])
    named = record.data.get("id"), record.data.get("variant")
    return named in places if "variant" in record else bool(places)


def _place_of(
    record: Record, of_text: Mapping[str, Sequence[tuple[str, str]]], dataset: Dataset
) -> tuple[str, str]:
    """Return the set and variant that a record names, or that its prompt is of."""
    if "variant" in record:
        return record.text("id"), record.text("variant")
    text = record.text("sent" if "sent" in record else "prompt")
    locations = of_text.get(_without_ends(text), [])
    if not locations:
        record.fail("prompt", f"is no prompt of {dataset.name}, to the letter")
    if len(locations) > 1:
        named = " and ".join(f"{set_id}, {variant}" for set_id, variant in locations[:3])
        record.fail("prompt", f"is that of {named}; name id and variant in its place")
    return locations[0]


def _dataset(
    settings: ImportSettings, taxonomy: Taxonomy, of_run: Dataset | None, read: Sequence[_Read]
) -> Dataset:
    """Find the responses' dataset: `--dataset`, the run's dataset, or the prompt-sets of the
    authors' files.
    """
    named = (
        load_dataset(settings.dataset, taxonomy, settings.max_rows) if settings.dataset else None
    )
    if of_run is not None:
        if named is not None and named.hash != of_run.hash:
            raise InputError(
                f"{settings.out}: the run has dataset {of_run.name} ({of_run.hash[:8]}), this is"
                f" {named.name} ({named.hash[:8]}); import into a new --out"
            )
        return of_run
    if named is not None:
        return named
    logs = [item.log for item in read if item.log]
    if any(
        log.dataset == "starter" for log in logs
    ):  # the one name in a log that cannot lead elsewhere
        return load_dataset("starter", taxonomy)
    bringing = [item for item in read if item.prompt_sets]
    if not bringing:
        of_log = f"the log's task ({one_line(logs[0].dataset, 60)})" if logs else ""
        what = of_log or "the prompts that the responses are to"
        raise InputError(f"--dataset: is not given; expected that of {what}")
    datasets = [Dataset(item.path.stem, item.prompt_sets, taxonomy) for item in bringing]
    for item, dataset in zip(bringing, datasets, strict=True):
        if dataset.hash != datasets[0].hash:
            raise InputError(
                f"{item.path}: has other prompt-sets than {bringing[0].path}; name the whole with"
                " --dataset"
            )
    return datasets[0]


def _check_prompts(item: _Read, dataset: Dataset) -> None:
    if item.log is not None and item.log.dataset_hash != dataset.hash:
        raise InputError(
            f"{item.path}: its responses are to {one_line(item.log.dataset, 60)}"
            f" ({item.log.dataset_hash[:8]}), this is {dataset.name} ({dataset.hash[:8]})"
        )
    lost = [one for one in item.responses if one.variant not in _variants(dataset, one.set_id)]
    if not lost:
        return
    first, *others = lost
    complaint = (
        f"set {first.set_id} has no {first.variant};"
        f" {nearest(first.variant, _variants(dataset, first.set_id))}"
        if first.set_id in dataset.by_id
        else f"{one_line(first.set_id, 60)!r} is not a prompt-set of {dataset.name};"
        f" {nearest(first.set_id, list(dataset.by_id)[:5000], shown=10)}"
    )
    more = f" (and {len(others):,} more responses are to no prompt of it)" if others else ""
    raise InputError(f"{item.path}: {complaint}{more}")


def _variants(dataset: Dataset, set_id: str) -> Collection[str]:
    return dataset.by_id[set_id].wordings() if set_id in dataset.by_id else ()


def _rows(by_model: Mapping[str, Sequence[_Read]]) -> Iterator[ImportedRow]:
    digests: dict[Path, str] = {}  # one file may hold many models
    for model, items in by_model.items():
        for item in items:
            if item.path not in digests:
                digests[item.path] = sha256_hex(item.path.read_bytes())
            for response in item.responses:
                yield ImportedRow(
                    model=model,
                    recorded=response,
                    source=item.path,
                    source_sha256=digests[item.path],
                )
