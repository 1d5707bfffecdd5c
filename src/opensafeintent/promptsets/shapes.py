"""The formats that a prompt-set can be in: ours, the authors' nested and flat ones, a table, and
those of other benchmarks.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from opensafeintent.promptsets.fields import Record
from opensafeintent.promptsets.foreign import recognize_foreign
from opensafeintent.promptsets.own_questions import (
    COLUMNS,
    OwnQuestions,
    is_question_column,
    read_question_columns,
    read_questions,
)
from opensafeintent.promptsets.reading import Problem, read_each
from opensafeintent.promptsets.record import CANARY_COLUMN, Prompts, PromptSet, content_id
from opensafeintent.taxonomy import (
    CONTENT_SHIFTS,
    CORE_VARIANTS,
    Intent,
    Taxonomy,
    default_taxonomy,
    paraphrase_variant,
)


class _Flat(NamedTuple):
    """How the fields of a record are named that has one for each prompt."""

    prompt: str
    """Of an intent."""
    paraphrase: str
    """Of a number."""
    first: int
    """Number of the first paraphrase."""
    benign_use: str
    misuse_risk: str


_AUTHORS_FLAT = _Flat(
    "prompt_{}",
    "prompt_dual_use_{}",
    2,
    "dual_use_prompt_plausible_benign_use",
    "dual_use_prompt_meaningful_misuse_risk",
)
_TABLE = _Flat("{}", "dual_use_paraphrase_{}", 1, "dual_use_benign_use", "dual_use_misuse_risk")


def recognize_shape(data: Any) -> str | None:
    """Name the format that a record is in, or None if it is in none."""
    fields = data if isinstance(data, dict) else {}
    filled: set[str] = {field for field, value in fields.items() if value is not None}
    # by its empty fields only if no other one tells it: an error then names them
    for present in (filled, set(fields)):
        for shape, by_fields in _SHAPES.items():
            if by_fields & present:
                return shape
    return recognize_foreign(fields)


_SHAPES: dict[str, set[str]] = {
    "ours": {"prompts"},
    "the authors' nested format": {"generated_prompts"},
    "the authors' flat format": {f"prompt_{intent}" for intent in CORE_VARIANTS},
    "a table of variants": set(CORE_VARIANTS),
}
"""The fields by one of which a format is recognised, the first one that is."""


_REQUIRED: tuple[Intent, ...] = ("benign", "malicious")
"""The intents that every prompt-set has a prompt of."""
_PREFIX = "dual_use_"
"""Beginning of names that people leave out: a heading `paraphrase_1`."""
_OUR_SHAPES = ("ours", "a table of variants")
"""Formats whose every field is read; the authors' files hold more."""


def parse_prompt_set(record: Record, taxonomy: Taxonomy | None) -> PromptSet:
    """Turn a record of any of our formats into a prompt-set. Without a taxonomy any labels are
    valid.

    Raises:
        Problem: with all problems of the record.
    """
    shape = recognize_shape(record.data)
    valid = _list_valid_fields(shape, record.data)
    required = _REQUIRED if shape == "a table of variants" else ()
    prefix = _PREFIX if shape in _OUR_SHAPES else ""
    try:
        record.check_names(valid, required=required, prefix=prefix)
    except Problem as names:
        renamed = record.with_names_corrected(valid, prefix)
        if renamed.data.keys() >= {*required}:  # else it is told already which are missing
            read_each({"record": lambda: parse_prompt_set(renamed, taxonomy)}, [names])
        raise
    match shape:
        case "ours":
            return _parse_ours(record, taxonomy)
        case "the authors' nested format":
            return _parse_nested(record, taxonomy)
        case "the authors' flat format":
            return _parse_flat(record, taxonomy, _AUTHORS_FLAT)
        case "a table of variants":
            return _parse_flat(record, taxonomy, _TABLE)
    return record.fail(
        "prompts",
        "missing; expected prompts (ours), generated_prompts (the authors'), prompt_benign,"
        " prompt_malicious (theirs, flat) or benign, malicious (a table)" + record.fields_found(),
    )


def unread_fields(data: Mapping[str, Any]) -> list[str]:
    """Return the fields of a row that are no part of a prompt-set; none of the authors' formats,
    which hold more, and none that our own export adds.
    """
    shape = recognize_shape(data)
    if shape not in _OUR_SHAPES:
        return []
    valid = _list_valid_fields(shape, data)
    return [field for field in data if field not in valid and field != CANARY_COLUMN]


def _list_valid_fields(shape: str | None, fields: Collection[str]) -> set[str]:
    valid = set(PromptSet.__struct_fields__)
    if shape == "a table of variants":
        valid -= {"dual_use_paraphrases", "prompts"}
        valid |= {*CORE_VARIANTS, *(paraphrase_variant(n) for n in range(1, 5 + len(fields)))}
        valid |= COLUMNS | {*filter(is_question_column, fields)}
    return valid


def _parse_ours(record: Record, taxonomy: Taxonomy | None) -> PromptSet:
    return _build_set(
        record,
        taxonomy,
        labels=record,
        prompts=lambda: _read_own_prompts(record.record("prompts")),
        underlying_task=lambda: record.optional_text("underlying_task"),
        dual_use_paraphrases=lambda: record.texts("dual_use_paraphrases"),
        dual_use_benign_use=lambda: record.optional_text("dual_use_benign_use"),
        dual_use_misuse_risk=lambda: record.optional_text("dual_use_misuse_risk"),
        source=lambda: record.optional_name("source"),
        questions=lambda: read_questions(record),
    )


def _read_own_prompts(prompts: Record) -> Prompts:
    prompts.check_known(CORE_VARIANTS, "variant")
    return _read_prompts(prompts, "{}")


def _parse_nested(record: Record, taxonomy: Taxonomy | None) -> PromptSet:
    labels = record.record("generation_metadata")
    nothing = Record({}, record.location)
    check = record.record("verification_intent") if "verification_intent" in record else nothing
    origin = record.record("origin_metadata") if "origin_metadata" in record else nothing
    return _build_set(
        record,
        taxonomy,
        labels=labels,
        prompts=lambda: _read_prompts(record.record("generated_prompts"), "{}_prompt"),
        underlying_task=lambda: labels.optional_text("topic_summary"),
        dual_use_paraphrases=lambda: record.texts("dual_use_paraphrases"),
        dual_use_benign_use=lambda: check.optional_text("dual_use_prompt_plausible_benign_use"),
        dual_use_misuse_risk=lambda: check.optional_text("dual_use_prompt_meaningful_misuse_risk"),
        source=lambda: origin.optional_name("source_dataset"),
    )


def _parse_flat(record: Record, taxonomy: Taxonomy | None, names: _Flat) -> PromptSet:
    required = map(names.prompt.format, _REQUIRED)
    lacking = [field for field in required if field not in record]
    told = lacking if len(lacking) > 1 else []
    return _build_set(
        record,
        taxonomy,
        labels=record,
        problems=[_describe_lacking(record, told)] if told else [],
        told=told,
        prompts=lambda: _read_prompts(record, names.prompt, told),
        underlying_task=lambda: record.optional_text("underlying_task"),
        dual_use_paraphrases=lambda: _take_numbered(record, names),
        dual_use_benign_use=lambda: record.optional_text(names.benign_use),
        dual_use_misuse_risk=lambda: record.optional_text(names.misuse_risk),
        source=lambda: record.optional_name("source"),
        questions=lambda: read_question_columns(record),
    )


def _describe_lacking(record: Record, lacking: Sequence[str]) -> Problem:
    """Return the problem of a flat record without several of its fields."""
    absent = [field for field in lacking if field not in record.data]
    empty = [record.find_heading(field) for field in lacking if field in record.data]
    faults = [f"lacks {', '.join(absent)}{record.fields_found()}"] if absent else []
    faults += [f"without a text: {', '.join(empty)}"] if empty else []
    return Problem(f"{record.location}: {'; '.join(faults)}", record.location)


def _take_numbered(record: Record, names: _Flat) -> tuple[str, ...]:
    """Return the paraphrases of a flat record."""
    paraphrase = re.compile(names.paraphrase.format(r"(\d+)"))
    numbered = sorted(
        (int(match[1]), field)
        for field in record.data
        if (match := paraphrase.fullmatch(field)) and field in record
    )
    for expected, (number, field) in enumerate(numbered, start=names.first):
        if number != expected:
            record.fail(
                field,
                f"there is no {names.paraphrase.format(expected)}; the wordings are numbered from"
                f" {names.first} without a gap",
            )
    readers = {field: partial(record.text, field) for _, field in numbered}
    return tuple(read_each(readers).values())


def _read_prompts(record: Record, named: str, told: Collection[str] = ()) -> Prompts:
    """Return the prompts of a record whose fields are named like this; the absence of some is told
    already.
    """
    fields = {
        intent: name
        for intent in CORE_VARIANTS
        if (name := named.format(intent)) in record or intent in _REQUIRED
    }
    texts = read_each(
        {intent: partial(record.text, name) for intent, name in fields.items() if name not in told}
    )
    if len(texts) == len(fields) and len(set(texts.values())) == 1:
        others = " and the ".join(intent for intent in fields if intent != "benign")
        record.fail(fields["benign"], f"is also the {others} prompt; expected different texts")
    return Prompts(**dict.fromkeys(_REQUIRED, "") | texts)


_OTHER_LABELS = "; for labels of your own give --taxonomy FILE"


def _build_set(
    record: Record,
    taxonomy: Taxonomy | None,
    *,
    labels: Record,
    problems: Sequence[Problem] = (),
    told: Collection[str] = (),
    **fields: Callable[[], Any],
) -> PromptSet:
    """Return a prompt-set.

    Fields that have one name in all formats are read here. `fields` read those whose names differ.

    Raises:
        Problem: with all problems of the record; `problems` are known, and `told` has the fields
            that they are about.
    """
    hint = _OTHER_LABELS if taxonomy == default_taxonomy() else ""
    readers = {
        "id": lambda: _read_line(record, "id"),
        "harm_domain": lambda: _read_label(
            labels, "harm_domain", taxonomy.domain_names if taxonomy else None, hint
        ),
        "task_type": lambda: _read_label(
            labels, "task_type", taxonomy.type_names if taxonomy else None, hint
        ),
        **fields,
        "content_shift": lambda: record.optional_choice("content_shift", CONTENT_SHIFTS),
        "language": lambda: record.optional_name("language"),
        "family": lambda: _read_line(record, "family"),
    }
    values = read_each({name: read for name, read in readers.items() if name not in told}, problems)
    _refuse_uses(record, values)
    own: OwnQuestions | None = values.get("questions")
    if own and own.dual_use and values["prompts"].dual_use is None:
        record.fail("questions", "has some about dual_use, and there is no such prompt")
    values["id"] = values["id"] or content_id(
        values["harm_domain"],
        values["task_type"],
        values["prompts"],
        values["dual_use_paraphrases"],
    )
    return PromptSet(**values)


def _refuse_uses(record: Record, values: Mapping[str, Any]) -> None:
    """Refuse a pair that says something about a dual-use prompt."""
    if values["prompts"].dual_use is None:
        for field in _OF_DUAL_USE:
            if values[field]:
                record.fail(field, "is there without a dual-use prompt; expected both or neither")


_OF_DUAL_USE = ("dual_use_paraphrases", "dual_use_benign_use", "dual_use_misuse_risk")


def _read_label(labels: Record, field: str, valid: tuple[str, ...] | None, hint: str) -> str | None:
    """Return a label that may be left out; any name if none are given as valid."""
    if valid is None:
        return labels.optional_name(field)
    return labels.optional_choice(field, valid, hint)


def _read_line(record: Record, field: str) -> str | None:
    name = record.optional_name(field)
    if name and name.splitlines() != [name]:
        record.fail(field, "has several lines; expected one")
    return name
