"""The formats that a prompt-set can be in: ours, the authors' nested and flat ones, a table."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from opensafeintent.errors import nearest
from opensafeintent.promptsets.fields import Record, fields_found
from opensafeintent.promptsets.reading import Problem
from opensafeintent.promptsets.record import CANARY_COLUMN, Prompts, PromptSet, content_id
from opensafeintent.taxonomy import (
    CONTENT_SHIFTS,
    CORE_VARIANTS,
    Taxonomy,
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


def shape_of(data: Any) -> str | None:
    """Name the format that a record is in, or None if it is in none."""
    fields = data if isinstance(data, dict) else {}
    filled: set[str] = {field for field, value in fields.items() if value is not None}
    # by its empty fields only if no other one tells it: an error then names them
    for present in (filled, set(fields)):
        for shape, by_fields in _SHAPES.items():
            if by_fields & present:
                return shape
    return None


_SHAPES: dict[str, set[str]] = {
    "ours": {"prompts"},
    "the authors' nested format": {"generated_prompts"},
    "the authors' flat format": {f"prompt_{intent}" for intent in CORE_VARIANTS},
    "a table of variants": set(CORE_VARIANTS),
}
"""The fields by one of which a format is recognised, the first one that is."""


_LABELS = ("underlying_task", "harm_domain", "task_type")
_REQUIRED = (*CORE_VARIANTS, *_LABELS)
"""Fields of every row of a table."""
_PREFIX = "dual_use_"
"""Beginning of names that people leave out: a heading `paraphrase_1`."""
_OUR_SHAPES = ("ours", "a table of variants")
"""Formats whose every field is read; the authors' files hold more."""


def parse_prompt_set(record: Record, taxonomy: Taxonomy) -> PromptSet:
    """Turn a record of any of the formats into a prompt-set, or raise the Problem that it
    has.
    """
    shape = shape_of(record.data)
    record.check_names(
        _valid_fields(shape, len(record.data)),
        required=_REQUIRED if shape == "a table of variants" else (),
        prefix=_PREFIX if shape in _OUR_SHAPES else "",
    )
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
        " prompt_dual_use, prompt_malicious (theirs, flat) or benign, dual_use, malicious (a"
        " table); flat records also need underlying_task, harm_domain, task_type"
        + fields_found(record.data),
    )


def unread_fields(data: Mapping[str, Any]) -> list[str]:
    """Return the fields of a row that are no part of a prompt-set; none of the authors' formats,
    which hold more, and none that our own export adds.
    """
    shape = shape_of(data)
    if shape not in _OUR_SHAPES:
        return []
    valid = _valid_fields(shape, len(data))
    return [field for field in data if field not in valid and field != CANARY_COLUMN]


def _valid_fields(shape: str | None, fields: int) -> set[str]:
    valid = set(PromptSet.__struct_fields__)
    if shape == "a table of variants":
        valid -= {"dual_use_paraphrases", "prompts"}
        valid |= {*CORE_VARIANTS, *(paraphrase_variant(n) for n in range(1, 5 + fields))}
    return valid


def _parse_ours(record: Record, taxonomy: Taxonomy) -> PromptSet:
    prompts = record.record("prompts")
    unknown = sorted(set(prompts.data) - {"benign", "dual_use", "malicious"})
    if unknown:
        prompts.fail(unknown[0], f"unknown variant; {nearest(unknown[0][:60], CORE_VARIANTS)}")
    return _build(
        record,
        taxonomy,
        labels=record,
        prompts=_prompts(prompts, "{}"),
        underlying_task=record.text("underlying_task"),
        dual_use_paraphrases=record.texts("dual_use_paraphrases"),
        dual_use_benign_use=record.optional_text("dual_use_benign_use"),
        dual_use_misuse_risk=record.optional_text("dual_use_misuse_risk"),
        source=record.optional_text("source"),
    )


def _parse_nested(record: Record, taxonomy: Taxonomy) -> PromptSet:
    prompts = record.record("generated_prompts")
    labels = record.record("generation_metadata")
    nothing = Record({}, record.location)
    check = record.record("verification_intent") if "verification_intent" in record else nothing
    origin = record.record("origin_metadata") if "origin_metadata" in record else nothing
    return _build(
        record,
        taxonomy,
        labels=labels,
        prompts=_prompts(prompts, "{}_prompt"),
        underlying_task=labels.text("topic_summary"),
        dual_use_paraphrases=record.texts("dual_use_paraphrases"),
        dual_use_benign_use=check.optional_text("dual_use_prompt_plausible_benign_use"),
        dual_use_misuse_risk=check.optional_text("dual_use_prompt_meaningful_misuse_risk"),
        source=origin.optional_text("source_dataset"),
    )


def _parse_flat(record: Record, taxonomy: Taxonomy, names: _Flat) -> PromptSet:
    prompts = map(names.prompt.format, CORE_VARIANTS)
    required = (*prompts, *_LABELS)
    if len(lacking := [field for field in required if field not in record]) > 1:
        absent = [field for field in lacking if field not in record.data]
        empty = [field for field in lacking if field in record.data]
        faults = [f"lacks {', '.join(absent)}{fields_found(record.data)}"] if absent else []
        faults += [f"without a text: {', '.join(empty)}"] if empty else []
        complaint = "; ".join(faults)
        raise Problem(f"{record.location}: {complaint}", record.location)
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
    return _build(
        record,
        taxonomy,
        labels=record,
        prompts=_prompts(record, names.prompt),
        underlying_task=record.text("underlying_task"),
        dual_use_paraphrases=tuple(record.text(field) for _, field in numbered),
        dual_use_benign_use=record.optional_text(names.benign_use),
        dual_use_misuse_risk=record.optional_text(names.misuse_risk),
        source=record.optional_text("source"),
    )


def _prompts(record: Record, named: str) -> Prompts:
    """Return the triplet of a record whose fields are named like this."""
    texts = {intent: record.text(named.format(intent)) for intent in CORE_VARIANTS}
    if len(set(texts.values())) == 1:
        record.fail(
            named.format("benign"),
            "is also the dual_use and the malicious prompt; expected three texts",
        )
    return Prompts(**texts)


def _build(
    record: Record, taxonomy: Taxonomy, *, labels: Record, prompts: Prompts, **fields: Any
) -> PromptSet:
    """Return a prompt-set.

    Fields that have one name in all formats are read here. `fields` are those whose names differ.
    """
    set_id = record.optional_text("id")
    if set_id and set_id.splitlines() != [set_id]:
        record.fail("id", "has several lines; expected one")
    harm_domain = labels.choice("harm_domain", taxonomy.domain_names)
    task_type = labels.choice("task_type", taxonomy.type_names)
    return PromptSet(
        id=set_id or content_id(harm_domain, task_type, prompts, fields["dual_use_paraphrases"]),
        harm_domain=harm_domain,
        task_type=task_type,
        prompts=prompts,
        **fields,
        content_shift=(
            record.choice("content_shift", CONTENT_SHIFTS) if "content_shift" in record else None
        ),
        language=record.optional_text("language"),
    )
