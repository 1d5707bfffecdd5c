"""Read prompt-sets from wherever they are: our JSONL, the authors' nested and flat files, Parquet, the hub.

Validation happens here, at the edge: what is wrong is named by file, line and field, with what would be valid.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from importlib import resources
from pathlib import Path
from typing import Any, NoReturn

from opensafeintent.errors import InputError, nearest
from opensafeintent.hostile import one_line
from opensafeintent.promptsets.record import Dataset, Prompts, PromptSet, content_id
from opensafeintent.taxonomy import CORE_VARIANTS, Taxonomy, default_taxonomy

__all__ = ["Problem", "Record", "load_dataset", "parse_prompt_set", "read_dataset", "read_records"]

LONGEST_PROMPT = 200_000
"""Characters; beyond every context window in use, and a sign of a broken file."""

_FLAT_PARAPHRASE = re.compile(r"prompt_dual_use_(\d+)")


class Problem(Exception):
    """One thing wrong in one record: its place and what would be valid."""


class Record:
    """A JSON object with its place, whose fields are read with a check."""

    def __init__(self, data: Any, place: str) -> None:
        if not isinstance(data, dict):
            raise Problem(f"{place}: expected a JSON object, found {_kind(data)}")
        self.data: dict[str, Any] = data
        self.place = place

    def __contains__(self, field: str) -> bool:
        return self.data.get(field) is not None

    def fail(self, field: str, complaint: str) -> NoReturn:
        """Raise the problem that `field` has."""
        raise Problem(f"{self.place}, field {one_line(field, 60)}: {complaint}")

    def text(self, field: str) -> str:
        """Return a text that has to be there."""
        if field not in self:
            self.fail(field, "missing; expected a text")
        return self.check_text(field, self.data[field])

    def optional_text(self, field: str) -> str | None:
        """Return a text that may be left out, null or empty."""
        value = self.data.get(field)
        return self.check_text(field, value) if value not in (None, "") else None

    def check_text(self, field: str, value: Any) -> str:
        """Return `value` if it is a usable text."""
        if not isinstance(value, str):
            self.fail(field, f"expected a text, found {_kind(value)}")
        if not value.strip():
            self.fail(field, "is empty; expected a text")
        if len(value) > LONGEST_PROMPT:
            self.fail(field, f"has {len(value):,} characters; at most {LONGEST_PROMPT:,} are accepted")
        return self.check_unicode(field, value)

    def check_unicode(self, field: str, value: str) -> str:
        """Return a text that can be written as UTF-8."""
        try:
            value.encode()
        except UnicodeEncodeError:
            self.fail(field, "holds half of a surrogate pair, which is not valid Unicode text")
        return value

    def texts(self, field: str) -> tuple[str, ...]:
        """Return a list of texts that may be left out."""
        value = self.data.get(field)
        if value is None:
            return ()
        if not isinstance(value, list):
            self.fail(field, f"expected a list of texts, found {_kind(value)}")
        return tuple(self.check_text(f"{field}[{n}]", item) for n, item in enumerate(value))

    def record(self, field: str) -> Record:
        """Return an object that has to be there."""
        if field not in self:
            self.fail(field, "missing; expected an object")
        return Record(self.data[field], f"{self.place}, field {field}")

    def choice(self, field: str, valid: Iterable[str]) -> str:
        """Return a text that is one of `valid`."""
        value, names = self.text(field), tuple(valid)
        if value not in names:
            self.fail(field, f"unknown {field.replace('_', ' ')} {one_line(value, 60)!r}; {nearest(value, names)}")
        return value


def _kind(value: Any) -> str:
    kinds = {
        dict: "an object",
        list: "a list",
        str: "a text",
        bool: "true or false",
        int: "a number",
        float: "a number",
    }
    return "null" if value is None else kinds.get(type(value), type(value).__name__)


# The three shapes of a prompt-set ------------------------------------------------------------------------------------


def parse_prompt_set(record: Record, taxonomy: Taxonomy) -> PromptSet:
    """Turn a record of any of the three formats into a prompt-set, or raise the Problem that it has."""
    if "prompts" in record:
        return _parse_ours(record, taxonomy)
    if "generated_prompts" in record:
        return _parse_nested(record, taxonomy)
    if "prompt_benign" in record or "prompt_dual_use" in record or "prompt_malicious" in record:
        return _parse_flat(record, taxonomy)
    return record.fail(
        "prompts",
        "missing; a prompt-set has prompts (our format), generated_prompts (the authors' nested format) "
        "or prompt_benign, prompt_dual_use, prompt_malicious (their flat format)",
    )


def _parse_ours(record: Record, taxonomy: Taxonomy) -> PromptSet:
    prompts = record.record("prompts")
    unknown = sorted(set(prompts.data) - {"benign", "dual_use", "malicious"})
    if unknown:
        prompts.fail(unknown[0], f"unknown variant; {nearest(unknown[0][:60], CORE_VARIANTS)}")
    return _build(
        record,
        taxonomy,
        labels=record,
        prompts=Prompts(
            benign=prompts.text("benign"), dual_use=prompts.text("dual_use"), malicious=prompts.text("malicious")
        ),
        underlying_task=record.text("underlying_task"),
        paraphrases=record.texts("dual_use_paraphrases"),
        benign_use=record.optional_text("dual_use_benign_use"),
        misuse_risk=record.optional_text("dual_use_misuse_risk"),
        source=record.optional_text("source"),
    )


def _parse_nested(record: Record, taxonomy: Taxonomy) -> PromptSet:
    prompts = record.record("generated_prompts")
    labels = record.record("generation_metadata")
    check = record.record("verification_intent") if "verification_intent" in record else Record({}, record.place)
    origin = record.record("origin_metadata") if "origin_metadata" in record else Record({}, record.place)
    return _build(
        record,
        taxonomy,
        labels=labels,
        prompts=Prompts(
            benign=prompts.text("benign_prompt"),
            dual_use=prompts.text("dual_use_prompt"),
            malicious=prompts.text("malicious_prompt"),
        ),
        underlying_task=labels.text("topic_summary"),
        paraphrases=record.texts("dual_use_paraphrases"),
        benign_use=check.optional_text("dual_use_prompt_plausible_benign_use"),
        misuse_risk=check.optional_text("dual_use_prompt_meaningful_misuse_risk"),
        source=origin.optional_text("source_dataset"),
    )


def _parse_flat(record: Record, taxonomy: Taxonomy) -> PromptSet:
    numbered = sorted(
        (int(match[1]), field) for field in record.data if (match := _FLAT_PARAPHRASE.fullmatch(field)) and field in record
    )
    for expected, (number, field) in enumerate(numbered, start=2):
        if number != expected:
            record.fail(field, f"there is no prompt_dual_use_{expected}; the wordings are numbered from 2 without a gap")
    return _build(
        record,
        taxonomy,
        labels=record,
        prompts=Prompts(
            benign=record.text("prompt_benign"),
            dual_use=record.text("prompt_dual_use"),
            malicious=record.text("prompt_malicious"),
        ),
        underlying_task=record.text("underlying_task"),
        paraphrases=tuple(record.text(field) for _, field in numbered),
        benign_use=record.optional_text("dual_use_prompt_plausible_benign_use"),
        misuse_risk=record.optional_text("dual_use_prompt_meaningful_misuse_risk"),
        source=record.optional_text("source"),
    )


def _build(
    record: Record,
    taxonomy: Taxonomy,
    *,
    labels: Record,
    prompts: Prompts,
    underlying_task: str,
    paraphrases: tuple[str, ...],
    benign_use: str | None,
    misuse_risk: str | None,
    source: str | None,
) -> PromptSet:
    harm_domain = labels.choice("harm_domain", taxonomy.domain_names)
    task_type = labels.choice("task_type", taxonomy.type_names)
    return PromptSet(
        id=record.optional_text("id") or content_id(harm_domain, task_type, prompts, paraphrases),
        harm_domain=harm_domain,
        task_type=task_type,
        underlying_task=underlying_task,
        prompts=prompts,
        dual_use_paraphrases=paraphrases,
        dual_use_benign_use=benign_use,
        dual_use_misuse_risk=misuse_risk,
        source=source,
        language=record.optional_text("language"),
    )


# Files ---------------------------------------------------------------------------------------------------------------


def read_records(path: Path) -> Iterator[tuple[str, Any]]:
    """Yield (place, JSON value) for each record of a `.json` list, a `.jsonl` or a `.parquet` file.

    Raises:
        InputError: the file cannot be read, is not UTF-8, or is not what its suffix says.
        Problem: one line of a JSONL file is not JSON.
    """
    if path.suffix.lower() == ".parquet":
        yield from _parquet_records(path)
        return
    text = _read_text(path)
    if text.strip() and (path.suffix.lower() != ".jsonl" or text.lstrip().startswith("[")):
        try:
            value = _json(text)
        except Problem as problem:
            if not _looks_like_lines(text):
                raise InputError(f"{path}: {problem}") from problem
        else:
            listed = isinstance(value, list)
            yield from (
                ((f"{path}, item {n}", item) for n, item in enumerate(value, start=1)) if listed else [(str(path), value)]
            )
            return
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            try:
                yield f"{path}:{number}", _json(line)
            except Problem as problem:
                raise Problem(f"{path}:{number}: {problem}") from problem


def _looks_like_lines(text: str) -> bool:
    first, *rest = text.strip().split("\n", 1)
    try:
        return bool(rest) and isinstance(_json(first), dict | list)
    except Problem:
        return False


def _json(text: str) -> Any:
    """Read JSON, or raise the Problem that it has."""
    try:
        return json.loads(text, parse_constant=_reject_constant, object_pairs_hook=_each_key_once)
    except ValueError as error:
        raise Problem(_json_complaint(error)) from error
    except RecursionError as error:
        raise Problem("not valid JSON (nested too deeply)") from error


def _each_key_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    if len(record) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the key {one_line(twice, 60)!r} stands twice in one object")
    return record


def _reject_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _json_complaint(error: ValueError) -> str:
    if not isinstance(error, json.JSONDecodeError):
        return f"not valid JSON ({error})"
    where = f"line {error.lineno}, column {error.colno}" if error.lineno > 1 else f"column {error.colno}"
    cut = error.pos >= len(error.doc.rstrip()) or error.msg.startswith("Unterminated")
    return f"not valid JSON ({error.msg}, {where})" + ("; it looks cut off" if cut else "")


def _read_text(path: Path) -> str:
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: cannot read: {error.strerror or error}") from error
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise InputError(f"{path}:{line}: not UTF-8 (byte 0x{raw[error.start]:02x}); save the file as UTF-8") from error


def _parquet_records(path: Path) -> Iterator[tuple[str, Any]]:
    try:
        import pyarrow.parquet as pq
    except ImportError as error:
        raise InputError(f'{path}: Parquet needs an extra: pip install "opensafeintent[parquet]"') from error
    try:
        rows = pq.read_table(path).to_pylist()
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: cannot read as Parquet: {error}") from error
    yield from ((f"{path}, row {n}", row) for n, row in enumerate(rows, start=1))


# Datasets ------------------------------------------------------------------------------------------------------------


def read_dataset(name: str, taxonomy: Taxonomy | None = None) -> tuple[Dataset | None, list[str]]:
    """Read a dataset and list everything that is wrong with it; the dataset is None when anything is.

    Args:
        name: `starter`, a path, or `hf:owner/name[@revision]`.
        taxonomy: the labels that are valid; the paper's by default.

    Raises:
        InputError: there is nothing to read under that name.
    """
    labels = taxonomy or default_taxonomy()
    problems: list[str] = []
    seen: dict[str, str] = {}
    prompt_sets: list[PromptSet] = []

    def take(place: str, data: Any) -> None:
        try:
            prompt_set = parse_prompt_set(Record(data, place), labels)
        except Problem as problem:
            problems.append(str(problem))
            return
        if prompt_set.id in seen:
            first = seen[prompt_set.id]
            problems.append(
                f"{place}, field id: duplicate id {one_line(prompt_set.id, 60)!r}, first at {first}; ids are unique"
            )
            return
        seen[prompt_set.id] = place
        prompt_sets.append(prompt_set)

    for path in _files_of(name):
        _each(read_records(path), take, problems)
    if not prompt_sets and not problems:
        problems.append(f"{name}: no prompt-sets in it; expected at least one")
    if problems:
        return None, problems
    return Dataset(_short_name(name), tuple(prompt_sets), labels), []


def _each(records: Iterator[tuple[str, Any]], take: Callable[[str, Any], None], problems: list[str]) -> None:
    try:
        for place, data in records:
            take(place, data)
    except Problem as problem:  # a line that is not JSON ends the reading: what follows cannot be trusted
        problems.append(str(problem))


def load_dataset(name: str, taxonomy: Taxonomy | None = None) -> Dataset:
    """Read a dataset, or refuse it with the place of the first problem.

    Raises:
        InputError: there is nothing under that name, or something in it is not a valid prompt-set.
    """
    dataset, problems = read_dataset(name, taxonomy)
    if dataset is None:
        more = f" (and {len(problems) - 1} more; `dataset validate` lists all)" if len(problems) > 1 else ""
        raise InputError(problems[0] + more)
    return dataset


def _short_name(name: str) -> str:
    return name if name == "starter" or name.startswith("hf:") else Path(name).stem


def _files_of(name: str) -> list[Path]:
    if name == "starter":
        return [Path(str(resources.files("opensafeintent").joinpath("data/starter.jsonl")))]
    if name.startswith("hf:"):
        from opensafeintent.promptsets.hub import fetch

        return fetch(name)
    path = Path(name)
    try:
        there = path.exists()
    except OSError as error:
        raise InputError(f"{one_line(name)}: cannot read: {error.strerror or error}") from error
    if not there:
        raise InputError(
            f"{one_line(name)}: no such dataset; valid: 'starter', the path of a .jsonl, .json or .parquet file, "
            "or hf:owner/name[@revision]"
        )
    if path.is_dir():
        raise InputError(f"{name}: is a folder; name the .jsonl, .json or .parquet file in it")
    return [path]
