"""The record of a prompt-set: one task worded benignly and maliciously, mostly also ambiguously,
with paraphrases; and a dataset of them, with its files.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import msgspec

from opensafeintent.errors import InputError, install_extra, pluralize
from opensafeintent.files import canonical_json, os_errors, sha256_hex, write_beside
from opensafeintent.hostile import clean_for_display
from opensafeintent.promptsets.own_questions import IntentQuestions, OwnQuestions
from opensafeintent.taxonomy import (
    CORE_VARIANTS,
    QUESTION_KINDS,
    ContentShift,
    Intent,
    Taxonomy,
    paraphrase_variant,
)

if TYPE_CHECKING:
    import pyarrow as pa


CANARY_COLUMN = "canary"
"""The column of an export that has the same unique text in every row; no field of a prompt-set."""


class Prompts(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One prompt for each intent: a triplet, or without the dual-use prompt a pair."""

    benign: str
    dual_use: str | None = None
    malicious: str

    def of(self, intent: Intent) -> str:
        """Return the prompt worded for `intent`.

        Raises:
            KeyError: it is the dual-use prompt of a pair.
        """
        return self.by_intent()[intent]

    def by_intent(self) -> dict[Intent, str]:
        """Return the prompts that there are, by intent."""
        return {
            intent: text for intent in CORE_VARIANTS if (text := getattr(self, intent)) is not None
        }


class PromptSet(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """One underlying task, one harm domain, one task type: the unit of evaluation (paper, section
    2). A set of other people may lack each of the three, and the dual-use prompt.
    """

    id: str
    harm_domain: str | None = None
    task_type: str | None = None
    underlying_task: str | None = None
    prompts: Prompts
    dual_use_paraphrases: tuple[str, ...] = ()
    dual_use_benign_use: str | None = None
    dual_use_misuse_risk: str | None = None
    content_shift: ContentShift | None = None
    source: str | None = None
    language: str | None = None
    family: str | None = None
    """The template or scenario that it shares with other sets. It is in no hash."""
    questions: OwnQuestions | None = None
    """About the responses to its prompts. They have a hash of their own."""

    @property
    def cell(self) -> tuple[str, str]:
        """The set's (harm domain, task type); one that it lacks is empty."""
        return self.harm_domain or "", self.task_type or ""

    @property
    def is_pair(self) -> bool:
        """Whether it has no dual-use prompt."""
        return self.prompts.dual_use is None

    def questions_about(self, variant: str) -> IntentQuestions | None:
        """Return the questions about the response to one of the triplet's prompts; None if there
        are none, as about paraphrases.
        """
        if self.questions is None or variant not in CORE_VARIANTS:
            return None
        return self.questions.of(variant)

    def wordings(self) -> Mapping[str, str]:
        """Return every prompt by its variant name: those of the intents first, then the
        paraphrases.
        """
        return self._wordings

    @cached_property
    def _wordings(self) -> Mapping[str, str]:
        texts = dict[str, str](self.prompts.by_intent().items())
        for n, text in enumerate(self.dual_use_paraphrases, start=1):
            texts[paraphrase_variant(n)] = text
        return texts

    def to_json(self) -> dict[str, Any]:
        """Return the record in the form of our JSONL; missing fields are left out."""
        record: dict[str, Any] = msgspec.to_builtins(self)
        return {field: value for field, value in record.items() if value is not None}


def content_id(
    harm_domain: str | None,
    task_type: str | None,
    prompts: Prompts,
    paraphrases: tuple[str, ...],
) -> str:
    """Return a stable id from a set's labels and prompts: 12 hexadecimal digits of a SHA-256."""
    return sha256_hex(
        canonical_json([harm_domain, task_type, msgspec.to_builtins(prompts), list(paraphrases)])
    )[:12]


FEWEST_UNITS = 8
"""Families, a set without one counting as one, from which on they are units: of fewer, an interval
would say next to nothing.
"""


def find_units(prompt_sets: Iterable[PromptSet]) -> dict[str, str]:
    """Return the unit of each prompt-set, by id: of a family the least id in it, so that its sets
    have the same; else the set's own id. With fewer units than `FEWEST_UNITS` every set is one.
    """
    least: dict[str, str] = {}
    families = {item.id: item.family for item in prompt_sets}
    for set_id, family in sorted(families.items()):
        if family is not None:
            least.setdefault(family, set_id)
    units = {
        set_id: set_id if family is None else least[family] for set_id, family in families.items()
    }
    if len(set(units.values())) < FEWEST_UNITS:
        return {set_id: set_id for set_id in units}
    return units


def count_units(prompt_sets: Iterable[PromptSet]) -> int:
    """Return how many units prompt-sets are (`find_units`)."""
    return len(set(find_units(prompt_sets).values()))


_IN_NO_HASH = ("family", "questions")
"""Fields of a prompt-set that are no part of a dataset's identity."""


@dataclass(eq=False, repr=False)
class Dataset:
    """Prompt-sets with the taxonomy that they are labelled in.

    Its identity is the SHA-256 of its canonical prompt-sets sorted by id, not of a file's bytes:
    the same sets in another order, format or file are the same dataset. So are the same sets in
    other families, and with other questions, which are a condition of metrics of their answers
    alone (`questions_hash`).
    """

    name: str
    prompt_sets: tuple[PromptSet, ...]
    taxonomy: Taxonomy
    unread: tuple[str, ...] = ()
    """Fields of its file that are no part of a prompt-set."""
    left_out: tuple[str, ...] = ()
    """Which rows of its file are in no prompt-set, a line each."""

    def __len__(self) -> int:
        return len(self.prompt_sets)

    @cached_property
    def shown(self) -> str:
        """Its name within a sentence."""
        return clean_for_display(self.name)

    @cached_property
    def hash(self) -> str:
        """SHA-256 of the canonical prompt-sets sorted by id, in hexadecimal."""
        digest = sha256()
        before = b"["
        # one by one: there may be many
        for prompt_set in self.sorted.prompt_sets:
            record = prompt_set.to_json()
            for field in _IN_NO_HASH:
                record.pop(field, None)
            digest.update(before + canonical_json(record))
            before = b","
        digest.update(b"]" if self.prompt_sets else b"[]")
        return digest.hexdigest()

    @cached_property
    def questions_hash(self) -> str:
        """SHA-256 of the questions of each prompt-set, sorted by its id, in hexadecimal; "" if no
        set has any.
        """
        asked = [
            [item.id, msgspec.to_builtins(item.questions)]
            for item in self.sorted.prompt_sets
            if item.questions is not None
        ]
        return sha256_hex(canonical_json(asked)) if asked else ""

    @cached_property
    def sorted(self) -> Dataset:
        """The dataset with its prompt-sets sorted by id: numbers are computed in this order, not in
        the file's.
        """
        return Dataset(
            self.name,
            tuple(sorted(self.prompt_sets, key=lambda prompt_set: prompt_set.id)),
            self.taxonomy,
        )

    @cached_property
    def units(self) -> dict[str, str]:
        """The unit of each prompt-set, by id (`find_units`)."""
        return find_units(self.prompt_sets)

    @cached_property
    def by_id(self) -> dict[str, PromptSet]:
        """The prompt-sets by id."""
        return {prompt_set.id: prompt_set for prompt_set in self.prompt_sets}

    @cached_property
    def variants(self) -> tuple[str, ...]:
        """Every variant that at least one set has: of the intents, then the paraphrases in
        order.
        """
        return max((tuple(item.wordings()) for item in self.prompt_sets), key=len)

    @cached_property
    def cells(self) -> tuple[tuple[str, str], ...]:
        """The cells that can have prompt-sets: of a taxonomy whose task types are each of one harm
        domain, and more than the domains, those that have any.
        """
        used = {item.cell for item in self.prompt_sets if all(item.cell)}
        domains_of = Counter(task for _, task in used)
        nested = len(self.taxonomy.task_types) > len(self.taxonomy.harm_domains) > 1 and all(
            domains_of[task] == 1 for task in self.taxonomy.type_names
        )
        return tuple(cell for cell in self.taxonomy.cells if cell in used or not nested)

    @cached_property
    def pairs(self) -> int:
        """How many of the prompt-sets have no dual-use prompt."""
        return sum(prompt_set.is_pair for prompt_set in self.prompt_sets)

    @property
    def has_pairs_alone(self) -> bool:
        """Whether no prompt-set has a dual-use prompt."""
        return self.pairs == len(self)


def write_dataset(dataset: Dataset, path: Path) -> None:
    """Write a dataset to `path`, whole or not at all; its suffix names the format: `.jsonl` or
    `.parquet`.

    Raises:
        InputError: another suffix, a missing extra, or a path that cannot be written.
    """
    writers = {".jsonl": _write_jsonl, ".parquet": _write_parquet}
    if path.suffix not in writers:
        raise InputError(f"{path}: cannot tell the format; valid suffixes: {', '.join(writers)}")
    with os_errors(f"{path}: cannot write"):
        path.parent.mkdir(parents=True, exist_ok=True)
    with write_beside(path) as file:
        writers[path.suffix](dataset, file)


def _write_jsonl(dataset: Dataset, file: IO[bytes]) -> None:
    for prompt_set in dataset.prompt_sets:
        file.write(json.dumps(prompt_set.to_json(), ensure_ascii=False).encode() + b"\n")


def _write_parquet(dataset: Dataset, file: IO[bytes]) -> None:
    table = prompt_set_table(dataset)
    import pyarrow.parquet as pq

    pq.write_table(table, file)


def prompt_set_table(dataset: Dataset) -> pa.Table:
    """Return a dataset as an Arrow table in our format, a row a prompt-set.

    Raises:
        InputError: the extra `[parquet]` is missing.
    """
    try:
        import pyarrow as pa
    except ImportError as error:
        raise InputError(f"Parquet needs an extra: {install_extra('parquet')}") from error
    text = pa.string()
    asked = pa.list_(pa.struct({"id": text, "text": text}))
    of_intent = pa.struct(dict.fromkeys(QUESTION_KINDS, asked))
    questions = {"questions": pa.struct(dict.fromkeys(CORE_VARIANTS, of_intent))}
    schema = pa.schema(
        {
            "id": text,
            "harm_domain": text,
            "task_type": text,
            "underlying_task": text,
            "prompts": pa.struct({"benign": text, "dual_use": text, "malicious": text}),
            "dual_use_paraphrases": pa.list_(text),
            "dual_use_benign_use": text,
            "dual_use_misuse_risk": text,
            "content_shift": text,
            "source": text,
            "language": text,
            "family": text,
            **(questions if dataset.questions_hash else {}),
        }
    )
    return pa.Table.from_pylist([item.to_json() for item in dataset.prompt_sets], schema=schema)


def describe_questions(dataset: Dataset) -> str:
    """Say how many questions of its own a dataset has."""
    asked = [
        of_intent
        for item in dataset.prompt_sets
        for variant in CORE_VARIANTS
        if (of_intent := item.questions_about(variant))
    ]
    number = sum(len(of_intent.all) for of_intent in asked)
    return (
        f"{dataset.shown} has {pluralize(number, 'question')} of its own on"
        f" {pluralize(len(asked), 'prompt')}"
    )
