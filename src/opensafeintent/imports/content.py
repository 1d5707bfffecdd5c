"""What a file of responses holds, and the reading that all formats share."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args

import msgspec

from opensafeintent.calls.progress import Display
from opensafeintent.calls.recorded import RecordedResponse, read_recorded_responses
from opensafeintent.calls.records import stop_kind
from opensafeintent.errors import InputError, pluralize
from opensafeintent.evaluation.manifest import MOST_MODELS, check_number
from opensafeintent.hostile import clean_for_display
from opensafeintent.promptsets import Dataset, PromptSet
from opensafeintent.promptsets.fields import Record, fields_named, read_each_record
from opensafeintent.promptsets.reading import get_stem
from opensafeintent.quoting import WITHHELD_WORDS
from opensafeintent.taxonomy import MOST_EPOCHS

if TYPE_CHECKING:
    from opensafeintent.inspect.logs import InspectLog


LocatedRecord = tuple[str, Any]
"""A record with its location."""


class FileContent(msgspec.Struct, kw_only=True):
    """The responses of one model in one file."""

    path: Path
    responses: list[RecordedResponse]
    unplaced_records: list[LocatedRecord] = []
    """Records that are still to be matched with a prompt: they may have its text in place of set
    and variant.
    """
    headings: Mapping[str, str] | None = None
    """For errors, the file's names of our fields; None if it is of our own form."""
    prompt_sets: tuple[PromptSet, ...] = ()
    zero_helpfulness: int = 0
    log: InspectLog | None = None
    """Its log, if it is one of Inspect AI."""
    stated_model: str = ""
    """The model that its lines name, which is also the version that answered; empty if they name
    none.
    """
    unread: tuple[str, ...] = ()
    """What is in the file and not read, such as columns, as a note names it."""
    from_table: bool = False
    """Whether it is a table, in which a row without a response stands for a missing response."""
    is_incomplete_export: bool = False
    """Whether it is our export of a run that lacks planned responses of the model."""
    repeated: int = 0
    """Prompts with several responses, whose epochs the file does not state."""
    sent_another: int = 0
    """Responses that are left out, since the model got another text than the prompt."""

    @property
    def notes(self) -> list[str]:
        """Notes for a reader, a line each."""
        reasons = Counter(
            missing.reason
            for response in self.responses
            for missing in response.missing
            if missing.what == "response"
        )
        notes = [f"{pluralize(n, 'response')} missing ({reason})" for reason, n in reasons.items()]
        if self.is_incomplete_export:
            notes.append(
                f"the export is of an incomplete run of {clean_for_display(self.stated_model)}: the"
                " file says that planned responses are missing, and not which; complete the run,"
                " and export it again"
            )
        if self.repeated:
            advice = "; if they are of several models, add a field 'model' with their names"
            notes.append(
                f"{pluralize(self.repeated, 'prompt')} with several responses, read as epochs of"
                f" one model{advice if self.headings is None else ''}"
            )
        if self.sent_another:
            notes.append(
                f"{pluralize(self.sent_another, 'response')} left out: the model got another text"
                " than the prompt"
            )
        if marked := self._marked:
            notes.append(
                f"{pluralize(marked, 'response')} with a mark in place of words of the malicious"
                " prompt; an export with --include-unsafe has the words of the model"
            )
        if self.unread:
            notes.append(f"not read: {fields_named(self.unread)}")
        return [
            *(self.log.notes if self.log else ()),
            *(f"{self.path}: {note}" for note in notes),
        ]

    @property
    def _marked(self) -> int:
        """Responses in which an export put a mark in place of words."""
        return sum(WITHHELD_WORDS in (response.response or "") for response in self.responses)

    @property
    def model(self) -> str:
        """The model name of its responses, unless the user gives another."""
        return self.log.model if self.log else self.stated_model or get_stem(self.path)


def read_each_model(
    records: Iterable[LocatedRecord],
    path: Path,
    *,
    headings: Mapping[str, str] | None = None,
    from_table: bool = False,
) -> list[FileContent]:
    """Read lines of responses, one content for each model that they name.

    Args:
        records: the lines, each with the place of its prompt and the fields of our own files
            ("Responses" of `docs/file-formats.md`): `model`, `prompt` or `id` and `variant`,
            `epoch`, the grades, and those of `response_fields`; `sent`, if the model got another
            text: unless that is a prompt too, the response is left out and counted. Those without
            `model` are a content of their own, named by its file or by `--model`.
        path: of their file.
        headings: for errors, the file's names of these fields, where they differ, such as
            `arguments`, or `instance, field text` of one within another; None if it is of our own
            form. In any other file, later records of one prompt that state no epoch are later
            epochs, in their order and anew in each file.
        from_table: whether the lines are of a table, where a row without a response stands for a
            missing response.
    """
    by_model: dict[str, list[LocatedRecord]] = {}
    for location, data in records:
        named = data.get("model") if isinstance(data, dict) else None
        by_model.setdefault(named.strip() if isinstance(named, str) else "", []).append(
            (location, data)
        )
    check_number(path, by_model, "model", MOST_MODELS)
    return [
        FileContent(
            path=path,
            responses=[],
            unplaced_records=lines,
            headings=headings,
            stated_model=named,
            from_table=from_table,
        )
        if headings is not None
        or any(lacks_variant(data, from_table=from_table) for _, data in lines)
        else FileContent(
            path=path,
            responses=read_recorded_responses(
                lines, path, headings=headings, from_table=from_table
            ),
            stated_model=named,
        )
        for named, lines in by_model.items()
    ]


def lacks_variant(data: object, *, from_table: bool) -> bool:
    """Tell whether a line has its prompt in place of its variant; in a table, also if the cell is
    empty.
    """
    if not isinstance(data, dict):
        return False
    return "variant" not in data or (from_table and data["variant"] is None)


T = TypeVar("T")

_STEP = 1000
"""Records from one line of progress to the next."""


def show_progress(records: Iterable[T], screen: Display, stage: str, what: str) -> Iterator[T]:
    """Yield records, and show how many there were."""
    screen.stage(stage)
    for number, record in enumerate(records, start=1):
        if number % _STEP == 0:
            screen.stage(f"{stage}: {number:,} {what}")
        yield record


def prompt_text(text: str) -> str:
    """Return the prompt of a request; of a chat with one message, which both tools keep as JSON,
    its text; of a longer one, as with a system message, its JSON in one form, which is no prompt of
    a dataset.
    """
    try:
        chat = json.loads(text)
    except (ValueError, RecursionError):
        return text
    match chat:
        case [{"role": "user", "content": str(content)}]:
            return content
        case [{"role": _}, *_]:
            return json.dumps(chat)
    return text


def read_named_place(variables: object) -> dict[str, str]:
    """Return set and variant, if a user's own variables name both."""
    match variables:
        case {"id": str(set_id), "variant": str(variant)}:
            return {"id": set_id, "variant": variant}
    return {}


StopWord = Literal["", "stop", "length", "content_filter", "error"]
"""Why a response ended: by itself, by a limit of tokens, a filter or an error; "" if the file does
not tell. A format's own words are translated into these.
"""


def response_fields(
    output: object, stop: StopWord = "", *, provider_stop: str = "", reasoned: bool = False
) -> dict[str, Any]:
    """Return the fields of a response, or of one that is missing.

    Args:
        output: its text; anything else is none. If a token limit or a filter ended it, none is an
            empty text here, which grading makes a missing response (`truncated`) or a refusal of.
        stop: why it ended. One that an error ended is missing, as `failed`; if it has a text, that
            stays in the ledger, and grading calls it `broken_off`.
        provider_stop: in place of `stop`, the provider's own word, if the file hands it on; any is
            a reason, also one that no table has. "" if the file's word means that it is not known.
        reasoned: whether the file shows reasoning beside the text; of a provider's own reply,
            `has_reasoning_beside` of `calls.reasoning` tells it, and `text` of its protocol the
            text.

    Raises:
        ValueError: `stop` is another word: its response would count as not cut and not filtered.
    """
    if stop not in get_args(StopWord):
        valid = ", ".join(filter(None, get_args(StopWord)))
        raise ValueError(f"stop {stop!r}: unknown word; valid: {valid}")
    ended = stop or provider_stop
    kind, text = stop_kind(ended), output if isinstance(output, str) else ""
    if not (text.strip() or kind == "refusal"):
        if kind == "break":
            return make_missing_fields("failed")
        if reasoned:
            return make_missing_fields("reasoning_only")
        if not (kind == "cut" or (isinstance(output, str) and ended)):
            return make_missing_fields("no_answer")
    return {"response": text, "stop_reason": ended or "stop"}


def make_missing_fields(
    reason: Literal["failed", "no_answer", "reasoning_only", "reasoning_mixed"],
) -> dict[str, Any]:
    """Return the fields of a response that is missing: its call failed, its reply held no text, or
    reasoning alone, or nothing shows where that ends. The other reasons are of our own calls.
    """
    return {"missing": [f"response:{reason}"]}


def index_prompts(dataset: Dataset) -> dict[str, list[tuple[str, str]]]:
    """Return set and variant of every prompt by its text, mostly one."""
    of_text: dict[str, list[tuple[str, str]]] = {}
    for prompt_set in dataset.prompt_sets:
        for variant, text in prompt_set.wordings().items():
            of_text.setdefault(_strip_ends(text), []).append((prompt_set.id, variant))
    return of_text


def match_prompts(
    item: FileContent,
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
    repeated: set[tuple[str, str]] = set()

    def place_record(record: Record) -> list[LocatedRecord]:
        if "sent" in record and not _is_prompt(record, of_text):
            item.sent_another += 1
            return []
        place = _find_place(record, of_text, dataset, own_form=item.headings is None)
        epochs[place] += 1
        if epochs[place] > 1 and "epoch" not in record:
            repeated.add(place)
            if epochs[place] > MOST_EPOCHS:
                record.fail("prompt", f"is answered more than {MOST_EPOCHS:,} times")
        fields = {key: value for key, value in record.data.items() if key != "prompt"}
        # an id of theirs is another's
        named = {"id": place[0], "variant": place[1]}
        return [(record.location, {"epoch": epochs[place]} | fields | named)]

    stage = f"reading {clean_for_display(item.path.name)}"
    records = show_progress(item.unplaced_records, screen, stage, "responses")
    placed = [*chain.from_iterable(read_each_record(records, place_record, item.headings))]
    item.repeated = len(repeated)
    if not placed and item.sent_another:
        raise InputError(
            f"{item.path}: the model got another text than each prompt, as by a template or a red"
            f" team; expected responses to the prompts of {dataset.name} as they are"
        )
    return read_recorded_responses(
        placed, item.path, headings=item.headings, from_table=item.from_table
    )


def _strip_ends(text: str) -> str:
    return text.replace("\r\n", "\n").strip()


def _is_prompt(record: Record, of_text: Mapping[str, Sequence[tuple[str, str]]]) -> bool:
    """Tell whether the text that a model got is a prompt, and the one that its record names."""
    places = of_text.get(_strip_ends(record.text("sent")), [])
    named = record.data.get("id"), record.data.get("variant")
    return named in places if "variant" in record else bool(places)


def _find_place(
    record: Record,
    of_text: Mapping[str, Sequence[tuple[str, str]]],
    dataset: Dataset,
    *,
    own_form: bool,
) -> tuple[str, str]:
    """Return the set and variant that a record names, or that its prompt is of."""
    if "variant" in record:
        return record.name("id"), record.name("variant")
    text = record.text("sent" if "sent" in record else "prompt")
    locations = of_text.get(_strip_ends(text), [])
    if not locations:
        record.fail("prompt", f"is no prompt of {dataset.name}, to the letter")
    if len(locations) > 1:
        named = " and ".join(f"{set_id}, {variant}" for set_id, variant in locations[:3])
        remedy = (
            "name id and variant in its place" if own_form else "expected the prompt of one set"
        )
        record.fail("prompt", f"is that of {named}; {remedy}")
    return locations[0]
