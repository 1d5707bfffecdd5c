"""What a file of responses holds, and reading it with progress."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from opensafeintent.calls.progress import Display
from opensafeintent.calls.recorded import RecordedResponse
from opensafeintent.errors import counted
from opensafeintent.hostile import one_line
from opensafeintent.promptsets import PromptSet
from opensafeintent.promptsets.fields import fields_named
from opensafeintent.promptsets.reading import stem_of
from opensafeintent.quoting import WITHHELD_WORDS

if TYPE_CHECKING:
    from opensafeintent.inspect.logs import InspectLog


Located = tuple[str, Any]
"""A record with its location."""


class FileContent(msgspec.Struct, kw_only=True):
    """The content of one file."""

    path: Path
    responses: list[RecordedResponse]
    prompted: list[Located] = []
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
    of_table: bool = False
    """Whether a row without a response is one of a response that is missing."""
    of_incomplete_run: bool = False
    """Whether it is an export that says that planned responses of the model are missing."""
    repeated: int = 0
    """Prompts with several responses."""
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
        notes = [f"{counted(n, 'response')} missing ({reason})" for reason, n in reasons.items()]
        if self.of_incomplete_run:
            notes.append(
                f"the export is of an incomplete run of {one_line(self.named, 80)}: the file says"
                " that planned responses are missing, and not which; complete the run, and export"
                " it again"
            )
        if self.repeated:
            notes.append(
                f"{counted(self.repeated, 'prompt')} with several responses, read as epochs of one"
                " model; if they are of several models, add a field 'model' with their names"
            )
        if self.sent_another:
            notes.append(
                f"{counted(self.sent_another, 'response')} left out: the model got another text"
                " than the prompt, as from a strategy of a red team"
            )
        if marked := self._marked:
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
    def _marked(self) -> int:
        """Responses in which an export put a mark in place of words."""
        return sum(WITHHELD_WORDS in (response.response or "") for response in self.responses)

    @property
    def model(self) -> str:
        """The model name of its responses, unless the user gives another."""
        return self.log.model if self.log else self.named or stem_of(self.path)


T = TypeVar("T")

_STEP = 1000
"""Records from one line of progress to the next."""


def with_progress(records: Iterable[T], screen: Display, stage: str, what: str) -> Iterator[T]:
    """Yield records, and show how many there were."""
    screen.stage(stage)
    for number, record in enumerate(records, start=1):
        if number % _STEP == 0:
            screen.stage(f"{stage}: {number:,} {what}")
        yield record


def prompt_text(text: str) -> str:
    """Return the prompt of a request; of a chat with one message, which both tools keep as JSON,
    its text; of a longer one, its JSON in one form.
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


def named_place(variables: object) -> dict[str, str]:
    """Return set and variant, if a user's own variables name both."""
    match variables:
        case {"id": str(set_id), "variant": str(variant)}:
            return {"id": set_id, "variant": variant}
    return {}


def response_fields(output: object, stop: str, *, reasoned: bool = False) -> dict[str, Any]:
    """Return the fields of a response, or of one that is missing."""
    if isinstance(output, str) and (output.strip() or (stop and not reasoned)):
        return {"response": output, "stop_reason": stop or "stop"}
    return missing_fields("reasoning_only" if reasoned else "no_answer")


def missing_fields(reason: str) -> dict[str, Any]:
    """Return the fields of a response that is missing."""
    return {"missing": [f"response:{reason}"]}
