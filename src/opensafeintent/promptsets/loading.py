"""Read prompt-sets from any source: our JSONL, the authors' nested and flat files, CSV, Parquet,
the hub.

Validation happens here, at the edge: an error names file, line and field, and the valid values.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from difflib import get_close_matches
from functools import lru_cache
from importlib import resources
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, NoReturn
from unicodedata import category

from opensafeintent.errors import InputError, did_you_mean, nearest
from opensafeintent.files import MOST_ROWS, os_errors
from opensafeintent.hostile import one_line
from opensafeintent.promptsets.reading import Problem, RowLimit, read_records, told_once
from opensafeintent.promptsets.record import Dataset, Prompts, PromptSet, content_id
from opensafeintent.promptsets.sources import (
    PUBLISHED,
    DataFile,
    Origin,
    fetch,
    files_by_card,
    published_dataset,
)
from opensafeintent.taxonomy import (
    CONTENT_SHIFTS,
    CORE_VARIANTS,
    Taxonomy,
    default_taxonomy,
    load_taxonomy,
    paraphrase_variant,
)

LONGEST_PROMPT = 200_000
"""Characters; beyond every context window in use, and a sign of a broken file."""

_NEAR = 0.93
"""Similarity of two field names (`difflib`'s ratio) above which one is treated as a misspelling."""
_MOST_FIELDS = 8
"""Fields that an error names."""


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


class Record:
    """A JSON object with its location, whose fields are read with a check."""

    def __init__(self, data: Any, location: str) -> None:
        if not isinstance(data, dict):
            raise Problem(f"{location}: expected a JSON object, found {_kind(data)}", location)
        self.data: dict[str, Any] = data
        self.location = location

    def __contains__(self, field: str) -> bool:
        return self.data.get(field) is not None

    def fail(self, field: str, complaint: str) -> NoReturn:
        """Raise the problem that `field` has."""
        raise Problem(f"{self.location}, field {one_line(field, 60)}: {complaint}", self.location)

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
        if all(char.isspace() or category(char) == "Cf" for char in value):
            self.fail(field, "is empty; expected a text")
        if len(value) > LONGEST_PROMPT:
            self.fail(
                field, f"has {len(value):,} characters; at most {LONGEST_PROMPT:,} are accepted"
            )
        return self.check_unicode(field, value)

    def check_unicode(self, field: str, value: str) -> str:
        """Return a text that can be written as UTF-8."""
        try:
            value.encode()
        except UnicodeEncodeError:
            self.fail(field, "holds half of a surrogate pair, which is not valid Unicode text")
        return value

    def check_names(self, known: Collection[str]) -> None:
        """Refuse a field whose name is nearly a known one that the record lacks."""
        if misspelt := _misspelt(frozenset(self.data), frozenset(known)):
            self.fail(misspelt[0], f"is not known; did you mean {misspelt[1]!r}?")

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
        return Record(self.data[field], f"{self.location}, field {field}")

    def choice(self, field: str, valid: Iterable[str]) -> str:
        """Return a text that is one of `valid`."""
        value, names = self.text(field), tuple(valid)
        if value not in names:
            self.fail(
                field,
                f"unknown {field.replace('_', ' ')} {one_line(value, 60)!r};"
                f" {nearest(value, names)}",
            )
        return value


@lru_cache(maxsize=64)
def _misspelt(fields: frozenset[str], known: frozenset[str]) -> tuple[str, str] | None:
    """Return a field whose name is nearly a known one that is not there, and that one. A file's
    records mostly have the same fields.
    """
    lacking = {_folded(name): name for name in known - fields}
    for field in sorted(fields - known):
        if near := get_close_matches(_folded(field), lacking, n=1, cutoff=_NEAR):
            return field, lacking[near[0]]
    return None


def _folded(name: str) -> str:
    return name[:60].casefold().replace("_", "")


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


# The shapes of a prompt-set
# ------------------------------------------------------------------------------


def shape_of(data: Any) -> str | None:
    """Name the format that a record is in, or None if it is in none."""
    fields = data if isinstance(data, dict) else {}
    if fields.get("prompts") is not None:
        return "ours"
    if fields.get("generated_prompts") is not None:
        return "the authors' nested format"
    if any(fields.get(f"prompt_{intent}") is not None for intent in CORE_VARIANTS):
        return "the authors' flat format"
    if any(fields.get(intent) is not None for intent in CORE_VARIANTS):
        return "a table of variants"
    return None


_OUR_SHAPES = ("ours", "a table of variants")
"""Formats whose every field is read; the authors' files hold more."""


def parse_prompt_set(record: Record, taxonomy: Taxonomy) -> PromptSet:
    """Turn a record of any of the formats into a prompt-set, or raise the Problem that it
    has.
    """
    shape = shape_of(record.data)
    record.check_names(_known_fields(shape, len(record.data)))
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


def _known_fields(shape: str | None, fields: int) -> set[str]:
    known = set(PromptSet.__struct_fields__)
    if shape == "a table of variants":
        known -= {"dual_use_paraphrases", "prompts"}
        known |= {*CORE_VARIANTS, *(paraphrase_variant(n) for n in range(1, 5 + fields))}
    return known


def fields_found(fields: Collection[str]) -> str:
    """Return which fields a record has, for a message."""
    return f"; its fields: {fields_named(fields)}" if fields else "; it has no fields"


def fields_named(fields: Collection[str]) -> str:
    """Return the first few names of fields."""
    named = [one_line(str(field), 40) for field in islice(fields, _MOST_FIELDS)]
    return ", ".join(named) + (", …" if len(fields) > _MOST_FIELDS else "")


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
        content_shift=(
            record.choice("content_shift", CONTENT_SHIFTS) if "content_shift" in record else None
        ),
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
    required = (*prompts, "underlying_task", "harm_domain", "task_type")
    if len(lacking := [field for field in required if field not in record]) > 1:
        complaint = f"lacks {', '.join(lacking)}{fields_found(record.data)}"
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
    """Return a prompt-set; `fields` are the others of its record."""
    given = record.optional_text("id")
    if given and given.splitlines() != [given]:
        record.fail("id", "has several lines; expected one")
    harm_domain = labels.choice("harm_domain", taxonomy.domain_names)
    task_type = labels.choice("task_type", taxonomy.type_names)
    return PromptSet(
        id=given or content_id(harm_domain, task_type, prompts, fields["dual_use_paraphrases"]),
        harm_domain=harm_domain,
        task_type=task_type,
        prompts=prompts,
        **fields,
        language=record.optional_text("language"),
    )


# Datasets
# ------------------------------------------------------------------------------


def read_dataset(
    name: str, taxonomy: Taxonomy | Path | None = None, max_rows: int | None = MOST_ROWS
) -> tuple[Dataset | None, list[str]]:
    """Read a dataset and list all its problems; the dataset is None if there are any.

    Args:
        name: `starter`, the path of a file or of a folder with a dataset card, or
            `hf:owner/name[@revision][#path]`.
        taxonomy: the labels that are valid, or the TOML file that has them; by default those of a
            `taxonomy.toml` beside the card, or the paper's.
        max_rows: prompt-sets that it may have; see `reading.RowLimit`. None sets no limit.

    Raises:
        InputError: there is nothing to read under that name, or more than `max_rows`.
    """
    given = load_taxonomy(taxonomy) if isinstance(taxonomy, Path) else taxonomy
    origin = _origin_of(name)
    labels = given or (load_taxonomy(origin.taxonomy) if origin.taxonomy else default_taxonomy())
    problems: list[Problem] = []
    seen: dict[str, str] = {}
    prompt_sets: list[PromptSet] = []
    shapes: dict[str, str] = {}
    unread: dict[str, None] = {}

    def take(location: str, data: Any) -> None:
        try:
            record = Record(data, location)
            prompt_set = parse_prompt_set(record, labels)
            if first := seen.get(prompt_set.id):
                shown = one_line(prompt_set.id, 60)
                record.fail("id", f"duplicate id {shown!r}, first at {first}; ids are unique")
        except Problem as problem:
            problems.append(problem)
        else:
            seen[prompt_set.id] = location
            prompt_sets.append(prompt_set)
            if (shape := shape_of(data)) in _OUR_SHAPES:
                known = _known_fields(shape, len(data))
                unread.update(dict.fromkeys(field for field in data if field not in known))

    limit = RowLimit(max_rows)
    for file in origin.files:
        records = enumerate(read_records(file.path, file.shown, limit))
        try:
            for number, (location, data) in records:
                if not number and (shape := shape_of(data)):
                    shapes.setdefault(shape, file.shown)
                take(location, data)
        except Problem as problem:  # a line that is not JSON: later lines cannot be trusted
            problems.append(problem)
    if len(shapes) > 1:
        named = "; ".join(f"{shape} in {shown}" for shape, shown in shapes.items())
        raise InputError(
            f"{name}: its files are in different formats, so more than one dataset ({named}); name"
            " one of them"
        )
    if not prompt_sets and not problems:
        problems.append(Problem(f"{name}: no prompt-sets in it; expected at least one"))
    if problems:
        return None, told_once(problems)
    return Dataset(dataset_name(name), tuple(prompt_sets), labels, tuple(unread)), []


def load_dataset(
    name: str, taxonomy: Taxonomy | Path | None = None, max_rows: int | None = MOST_ROWS
) -> Dataset:
    """Read a dataset, or refuse it with the location of the first problem. The arguments are those
    of `read_dataset`.

    Raises:
        InputError: there is nothing under that name, something in it is not a valid prompt-set, or
            it has too many rows.
    """
    dataset, problems = read_dataset(name, taxonomy, max_rows)
    if dataset is None:
        first, *others = problems
        more = f" (and {len(others)} more; `dataset validate` lists all)" if others else ""
        raise InputError(first + more)
    return dataset


def dataset_name(name: str) -> str:
    """Return the name of a dataset: that of its file or folder; for a `dataset.jsonl`, as builds
    write it, that of its folder.
    """
    if name == "starter" or name in PUBLISHED or name.startswith("hf:"):
        return name
    path = Path(name)
    if path.is_dir():
        return path.resolve().name
    return path.resolve().parent.name if path.stem == "dataset" else path.stem


def _origin_of(name: str) -> Origin:
    if name == "starter":
        path = Path(str(resources.files("opensafeintent").joinpath("data/starter.jsonl")))
        return Origin((DataFile(path, str(path)),))
    if name in PUBLISHED:
        return Origin((DataFile(published_dataset(name), name),))
    if name.startswith("hf:"):
        return fetch(name)
    path = Path(name)
    with os_errors(f"{one_line(name)}: cannot read"):
        exists = path.exists()
    if not exists:
        listed = ", ".join(f"'{published}'" for published in PUBLISHED)
        guess = did_you_mean(name, ["starter", *PUBLISHED])
        raise InputError(
            f"{one_line(name)}: no such dataset; {guess and guess + ' '}valid: 'starter',"
            f" {listed}, the path of a .jsonl, .json, .parquet or .csv file or of a folder with a"
            " dataset card, or hf:owner/name[@revision][#path]"
        )
    if not path.is_dir():
        return Origin((DataFile(path, str(path)),))
    origin = files_by_card(path, lambda file: str(path / file))
    if origin is None:
        raise InputError(
            f"{name}: is a folder without a dataset card (README.md) that names its data; name the"
            " .jsonl, .json, .parquet or .csv file in it"
        )
    return origin
