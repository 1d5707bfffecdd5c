"""The authors' scored files: prompt-sets with responses, grades and the failures to grade.

How each oddity is read, and why, is listed in docs/file-formats.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from opensafeintent.calls.recorded import (
    MissingGrade,
    RecordedResponse,
    check_response,
    check_score,
)
from opensafeintent.errors import InputError, nearest
from opensafeintent.hostile import clean_for_display
from opensafeintent.imports.content import FileContent, LocatedRecord
from opensafeintent.promptsets.fields import Record
from opensafeintent.promptsets.record import PromptSet
from opensafeintent.promptsets.shapes import parse_prompt_set
from opensafeintent.taxonomy import (
    CORE_VARIANTS,
    DUAL_USE,
    MODES,
    QUESTIONS,
    SCALES,
    STRATEGIES,
    Graded,
    Mode,
    Strategy,
    Taxonomy,
    paraphrase_variant,
)

_PARAPHRASES = "dual_use_paraphrases"

_ONE_PARAPHRASE = re.compile(r"dual_use_paraphrases\[(\d+)\]")

_SCORES: dict[Graded, str] = {
    question.grade: question.authors_scores for question in QUESTIONS if question.authors_scores
}
"""The field with each grade, as far as their files have it."""
_SCORED = {"model_responses", *_SCORES.values()}


def is_scored(data: Any) -> bool:
    """Tell whether a record holds responses or grades."""
    return isinstance(data, dict) and not _SCORED.isdisjoint(data)


def recognises(records: Sequence[LocatedRecord]) -> bool:
    """Tell whether one of the records holds responses or grades."""
    return any(is_scored(data) for _, data in records)


def read(records: Sequence[LocatedRecord], path: Path, taxonomy: Taxonomy) -> list[FileContent]:
    """Read an authors' file: its prompt-sets with their responses and grades.

    Raises:
        Problem: a record is not one of a prompt-set.
        InputError: a prompt-set is there twice, or there is no response.
    """
    responses: list[RecordedResponse] = []
    prompt_sets: dict[str, PromptSet] = {}
    helpfulness_zeros = 0
    for location, data in records:
        record = Record(data, location)
        prompt_set = parse_prompt_set(record, taxonomy)
        if prompt_set.id in prompt_sets:
            raise InputError(f"{location}: the prompt-set {prompt_set.id} is there twice")
        prompt_sets[prompt_set.id] = prompt_set
        of_record, zeros_of_record = read_authors_record(record, prompt_set)
        responses += of_record
        helpfulness_zeros += zeros_of_record
    if not responses:
        raise InputError(f"{path}: no responses in it")
    sets = tuple(prompt_sets.values())
    return [
        FileContent(
            path=path, responses=responses, prompt_sets=sets, zero_helpfulness=helpfulness_zeros
        )
    ]


def read_authors_record(
    record: Record, prompt_set: PromptSet
) -> tuple[list[RecordedResponse], int]:
    """Read the responses and grades of one record, or raise the record's Problem.

    Returns:
        The responses, and the number of helpfulness grades of 0 that were read as 1, as in the
            authors' script.
    """
    failed = dict(_failures(record, prompt_set))
    texts = _sort_by_variant(record, "model_responses", prompt_set)
    raw = {what: _sort_by_variant(record, field, prompt_set) for what, field in _SCORES.items()}
    graded = any(field in record for field in _SCORES.values())
    mode, mode_missing = _mode(record)
    probe_strategy, strategy_missing = _strategy(record)
    responses: list[RecordedResponse] = []
    helpfulness_zeros = 0
    for variant in prompt_set.wordings():
        text = texts.get(variant)
        if text is not None:
            check_response(record, f"model_responses, {variant}", text)
        missing: list[MissingGrade] = []
        scores: dict[str, Any] = dict.fromkeys(_SCORES)
        if variant in failed:  # one failure takes both grades, as in the authors' script
            missing += [MissingGrade(what, failed[variant]) for what in _SCORES]
        elif graded:
            for what, field in _SCORES.items():
                value = raw[what].get(variant)
                if value is None:
                    missing.append(MissingGrade(what, "not_recorded"))
                else:
                    least, *_, most = SCALES[what]
                    score = check_score(record, f"{field}, {variant}", value, 0, most)
                    helpfulness_zeros += score < least
                    scores[what] = max(score, least)
        elif text is None:
            continue
        dual_use = variant == DUAL_USE
        if dual_use:
            missing += [*mode_missing, *strategy_missing]
        responses.append(
            RecordedResponse(
                set_id=prompt_set.id,
                variant=variant,
                response=text,
                **scores,
                mode=mode if dual_use else None,
                strategy=probe_strategy if dual_use else None,
                missing=tuple(missing),
            )
        )
    return responses, helpfulness_zeros


def _sort_by_variant(record: Record, field: str, prompt_set: PromptSet) -> dict[str, Any]:
    """Return a field's value for each variant: a key each for the triplet, a list for the
    paraphrases.
    """
    if field not in record:
        return {}
    inner = record.record(field)
    valid = [*(f"{intent}_prompt" for intent in CORE_VARIANTS), _PARAPHRASES]
    for key in inner.data:
        if key not in valid:
            inner.fail(key, f"unknown prompt; {nearest(key, valid)}")
    values: dict[str, Any] = {
        intent: inner.data.get(f"{intent}_prompt") for intent in CORE_VARIANTS
    }
    listed = inner.data.get(_PARAPHRASES)
    if listed is None:
        return values
    if not isinstance(listed, list) or len(listed) != len(prompt_set.dual_use_paraphrases):
        actual = f"a list of {len(listed)}" if isinstance(listed, list) else repr(listed)
        inner.fail(
            _PARAPHRASES,
            f"is {actual}; expected a list of {len(prompt_set.dual_use_paraphrases)}, one a"
            " paraphrase",
        )
    return values | {paraphrase_variant(n): value for n, value in enumerate(listed, start=1)}


def _failures(record: Record, prompt_set: PromptSet) -> Iterator[tuple[str, str]]:
    """Yield (variant, reason) for each prompt that a failure names."""
    variants = list(prompt_set.wordings())
    paraphrases = [variant for variant in variants if variant not in CORE_VARIANTS]
    if not record.data.get("response_score_failures"):
        return
    for failure in record.records("response_score_failures"):
        name = failure.text("prompt")
        reason = clean_for_display(str(failure.data.get("error") or "failed"))
        if name == "datapoint":
            named = variants
        elif name == _PARAPHRASES:
            named = paraphrases
        elif (match := _ONE_PARAPHRASE.fullmatch(name)) and int(match[1]) < len(paraphrases):
            named = [paraphrases[int(match[1])]]
        elif name.removesuffix("_prompt") in CORE_VARIANTS:
            named = [name.removesuffix("_prompt")]
        else:
            valid = [f"{intent}_prompt" for intent in CORE_VARIANTS]
            failure.fail(
                "prompt",
                f"unknown prompt {name!r}; {nearest(name, [*valid, _PARAPHRASES, 'datapoint'])}",
            )
        for variant in named:
            yield variant, reason


def _mode(record: Record) -> tuple[Mode | None, list[MissingGrade]]:
    if "dual_use_assistance_level" not in record:
        return None, []
    level = record.record("dual_use_assistance_level")
    if "a_level" not in level:
        return None, [MissingGrade("mode", "failed")]
    return level.choice("a_level", MODES), []


def _strategy(record: Record) -> tuple[Strategy | None, list[MissingGrade]]:
    if "dual_use_intent_classification" not in record:
        return None, []
    probe = record.record("dual_use_intent_classification")
    written = probe.data.get("strategy")
    if written in (None, "ERROR"):
        return None, [MissingGrade("strategy", "unparsed")]
    if not isinstance(written, str) or written.lower() not in STRATEGIES:
        valid = ", ".join(value.upper() for value in STRATEGIES)
        probe.fail("strategy", f"is {written!r}; expected {valid} or ERROR")
    return written.lower(), []  # type: ignore[return-value]
