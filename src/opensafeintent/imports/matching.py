"""Set and variant of a response by the text of its prompt."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from opensafeintent.calls.progress import Display
from opensafeintent.calls.recorded import RecordedResponse, recorded_responses
from opensafeintent.errors import InputError
from opensafeintent.hostile import one_line
from opensafeintent.imports.content import FileContent, with_progress
from opensafeintent.promptsets import Dataset
from opensafeintent.promptsets.fields import Record
from opensafeintent.promptsets.reading import MOST_LISTED, Problem, distinct_problems
from opensafeintent.taxonomy import MOST_EPOCHS


def texts_of(dataset: Dataset) -> dict[str, list[tuple[str, str]]]:
    """Return set and variant of every prompt by its text, mostly one."""
    of_text: dict[str, list[tuple[str, str]]] = {}
    for prompt_set in dataset.prompt_sets:
        for variant, text in prompt_set.wordings().items():
            of_text.setdefault(_without_ends(text), []).append((prompt_set.id, variant))
    return of_text


def by_prompt(
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
    placed: list[tuple[str, object]] = []
    problems: list[Problem] = []
    stage = f"reading {one_line(item.path.name, 60)}"
    for location, data in with_progress(item.prompted, screen, stage, "responses"):
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
        fields = {key: value for key, value in record.data.items() if key != "prompt"}
        # an id of theirs is another's
        named = {"id": place[0], "variant": place[1]}
        placed.append((location, {"epoch": epochs[place]} | fields | named))
    if problems:
        raise InputError(*distinct_problems(problems, MOST_LISTED))
    item.repeated = sum(count > 1 for count in epochs.values())
    if not placed and item.sent_another:
        raise InputError(
            f"{item.path}: a strategy of a red team sent another text for every prompt; expected"
            f" responses to the prompts of {dataset.name} as they are"
        )
    return recorded_responses(placed, item.path, of_table=item.of_table)


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
        return record.name("id"), record.name("variant")
    text = record.text("sent" if "sent" in record else "prompt")
    locations = of_text.get(_without_ends(text), [])
    if not locations:
        record.fail("prompt", f"is no prompt of {dataset.name}, to the letter")
    if len(locations) > 1:
        named = " and ".join(f"{set_id}, {variant}" for set_id, variant in locations[:3])
        record.fail("prompt", f"is that of {named}; name id and variant in its place")
    return locations[0]
