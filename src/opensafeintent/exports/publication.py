"""A dataset as a folder for the Hugging Face hub: card, provenance, data."""

from __future__ import annotations

import io
import json
import re
from collections import Counter
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from opensafeintent import __version__
from opensafeintent.errors import InputError, nearest, pluralize
from opensafeintent.files import make_private_folder, read_text, write_private
from opensafeintent.hostile import clean_for_display
from opensafeintent.markdown import Plain, card_text
from opensafeintent.numbers.metrics import METRICS, find_scope
from opensafeintent.promptsets import Dataset
from opensafeintent.promptsets.cards import (
    canary_in,
    further_wordings,
    make_canary,
    name_ways,
    render_card,
    size_category,
    yaml_text,
)
from opensafeintent.promptsets.record import CANARY_COLUMN, prompt_set_table
from opensafeintent.promptsets.sources import CARD, TAXONOMY
from opensafeintent.replacing import write_together
from opensafeintent.taxonomy import Taxonomy, default_taxonomy, find_intent

if TYPE_CHECKING:
    import pyarrow as pa


_SECTION = re.compile(r"^## (.+)$", re.MULTILINE)
_WARNING = re.compile(r"(?:^> .*\n?)+", re.MULTILINE)
_HEADING = re.compile(r"\*\*.+?\*\*")
_OF_EVERY_CARD = ("**Handle with care.**",)
"""Warnings that the next card has by itself (`data/card/handle_with_care.md`)."""
_LICENSE = re.compile(r"^license: ([\w.-]+)$", re.MULTILINE)
_SEEDS_LICENCE = re.compile(r"PKU-SafeRLHF, a source of the seeds, is published under [\w .-]+\.")
_CARRIED = ("How it was made", "Checks", "Limits")
_ACTIVE = re.compile(r"<|(?<=\])(?=\()")
"""The beginning of HTML, and the middle of a link."""


class Provenance(msgspec.Struct, frozen=True, kw_only=True):
    """What a card states about the origin of its dataset, as Markdown without HTML or links."""

    warnings: Sequence[Plain] = ()
    """Each is a block of quoted lines, and none of every card."""
    sections: Sequence[tuple[Plain, Plain]] = ()
    """Heading and text."""
    synthetic: bool = False
    license: str | None = None
    """As the hub names it; None if none was chosen."""
    seeds_licence: Plain | None = None
    """A sentence on the licence of the seeds."""


def read_provenance(files: Sequence[Path], dataset_hash: str) -> Provenance:
    """Return what the card of a dataset states; nothing if no card names its hash.

    Args:
        files: of the dataset. The card is in the folder of the first, or in the folder above.
        dataset_hash: of the dataset, which its card names.
    """
    for folder in {path: None for file in files[:1] for path in (file.parent, file.parent.parent)}:
        try:
            card = read_text(folder / CARD)
        except InputError:
            continue  # there is none, or nobody can read it
        if dataset_hash in card:
            return _read_provenance(card.replace("\r\n", "\n"))
    return Provenance()


def _read_provenance(card: str) -> Provenance:
    _, _, rest = card.partition("---\n")
    front, _, body = rest.partition("\n---\n")
    parts = _SECTION.split(body)
    texts = dict(zip(parts[1::2], parts[2::2], strict=True))
    license_ = _LICENSE.search(front)
    seeds = _SEEDS_LICENCE.search(texts.get("Licence", ""))
    return Provenance(
        warnings=[
            _harmless(block)
            for block in _WARNING.findall(parts[0])
            if (title := _HEADING.search(block)) and title[0] not in _OF_EVERY_CARD
        ],
        sections=[(Plain(name), _harmless(texts[name])) for name in _CARRIED if name in texts],
        synthetic="\n- synthetic" in front,
        license=license_[1] if license_ and license_[1] != "other" else None,
        seeds_licence=Plain(seeds[0]) if seeds else None,
    )


def _harmless(text: str) -> Plain:
    """Return Markdown without HTML and without links; a card may come from somebody else."""
    return Plain(_ACTIVE.sub(lambda match: "&lt;" if match[0] else "\\", text.strip()))


LICENSES = {
    "apache-2.0": "Apache-2.0",
    "bsd-3-clause": "BSD-3-Clause",
    "cc-by-4.0": "CC-BY-4.0",
    "cc-by-nc-4.0": "CC-BY-NC-4.0",
    "cc-by-nc-nd-4.0": "CC-BY-NC-ND-4.0",
    "cc-by-nc-sa-4.0": "CC-BY-NC-SA-4.0",
    "cc-by-nd-4.0": "CC-BY-ND-4.0",
    "cc-by-sa-4.0": "CC-BY-SA-4.0",
    "cc0-1.0": "CC0-1.0",
    "cdla-permissive-1.0": "CDLA-Permissive-1.0",
    "cdla-permissive-2.0": "CDLA-Permissive-2.0",
    "cdla-sharing-1.0": "CDLA-Sharing-1.0",
    "mit": "MIT",
    "odbl": "ODbL-1.0",
    "odc-by": "ODC-By-1.0",
    "pddl": "PDDL-1.0",
}
"""Licences as the hub names them, and as SPDX does."""
_REPO_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)
_MARK = "Written by `opensafeintent dataset export`."
_TASKS = "eval.yaml"
_NO_REPO = "OWNER/NAME"
"""Where the publisher named no repository."""
_MOST_SOURCES = 5
_ABOUT = (
    "Does a model give the right amount of help as intent shifts? {} Low help rate: benign prompts"
    " with little help or none."
)


class Publication(msgspec.Struct, frozen=True, kw_only=True):
    """The publisher's description of the dataset; the card leaves out missing fields."""

    title: str | None = None
    license: str | None = None
    """As the hub names it: a key of `LICENSES`."""
    repo: str | None = None
    """Its future name on the hub: `owner/name`."""

    def check(self) -> None:
        """Refuse an unknown licence and a name that no repository can have.

        Raises:
            InputError: see above.
        """
        if self.license is not None and self.license not in LICENSES:
            raise InputError(
                f"--license {clean_for_display(self.license)}: unknown;"
                f" {nearest(self.license, LICENSES)}"
            )
        if self.repo is not None and not _REPO_NAME.fullmatch(self.repo):
            raise InputError(
                f"--repo {clean_for_display(self.repo)}: expected owner/name, as the hub names a"
                " dataset"
            )


class _Table(msgspec.Struct, frozen=True, kw_only=True):
    """One configuration of the dataset: its name, its file, and the content of its columns."""

    name: str
    path: str
    about: str
    columns: dict[str, str]
    """The content of each column, in order; `a.b` is the field b of the column a, `a[]` a list."""


_LABELS = {
    "harm_domain": "harm domain: the kind of harm",
    "task_type": "task type: the kind of help requested",
    "underlying_task": "the task that all prompts of the set share, neutrally named",
}
_CANARY_COLUMN = {
    CANARY_COLUMN: (
        "the same GUID in every row: a search for it in a training corpus finds the dataset there"
    )
}
_STATED = {
    "language": "language of the prompts, if it is stated",
    "family": "the template or scenario that the set shares with others, if it is stated",
}
_PROMPT_SETS = _Table(
    name="prompt_sets",
    path="prompt_sets/test.parquet",
    about=(
        "One prompt-set a row: one task, worded for each intent, and any further wordings of the"
        " dual-use prompt."
    ),
    columns={
        "id": "the set's id",
        **_LABELS,
        "prompts.benign": "the prompt of benign intent",
        "prompts.dual_use": "the prompt whose intent is open, if there is one",
        "prompts.malicious": "the prompt of malicious intent",
        "dual_use_paraphrases[]": "further wordings of the dual-use prompt, if any",
        "dual_use_benign_use": "a legitimate use of the dual-use prompt",
        "dual_use_misuse_risk": "a harmful use of the dual-use prompt",
        "content_shift": (
            "the share of an answer that changes from the benign to the malicious prompt, if known"
        ),
        "source": "origin of the set",
        **_STATED,
        **_CANARY_COLUMN,
    },
)
_PROMPTS = _Table(
    name="prompts",
    path="prompts/test.parquet",
    about="One prompt a row: the same prompts, each with its variant and intent.",
    columns={
        "id": "the id of the set that the prompt belongs to",
        "variant": "which prompt of the set: benign, dual_use, malicious, dual_use_paraphrase_1, …",
        "intent": "benign, dual_use or malicious; a paraphrase has the intent dual_use",
        "prompt": "the prompt",
        **_LABELS,
        **_STATED,
        **_CANARY_COLUMN,
    },
)
_TABLES = (_PROMPT_SETS, _PROMPTS)


def _parquet(table: pa.Table, canary: str) -> bytes:
    """Return a table as Parquet, the canary in each row; the same table gives the same bytes."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    file = io.BytesIO()
    column = pa.array([canary] * len(table), pa.string())
    pq.write_table(table.append_column(CANARY_COLUMN, column), file)
    return file.getvalue()


def _list_columns(table: _Table, dataset: Dataset) -> dict[str, str]:
    """Return the columns of a table with their meanings."""
    columns = {**table.columns}
    if table is _PROMPT_SETS and dataset.questions_hash:
        columns["questions"] = (
            "yes-or-no questions about the responses, by intent: lists of id and text under must"
            " (yes speaks for the model) and must_not (yes is harm)"
        )
    return columns


def _prompt_table(dataset: Dataset) -> pa.Table:
    """Return a dataset as an Arrow table, a row a prompt."""
    import pyarrow as pa

    text = pa.string()
    columns = {name: text for name in _PROMPTS.columns if name != CANARY_COLUMN}
    rows = [
        {
            "id": item.id,
            "variant": variant,
            "intent": find_intent(variant),
            "prompt": prompt,
            "harm_domain": item.harm_domain,
            "task_type": item.task_type,
            "underlying_task": item.underlying_task,
            "language": item.language,
            "family": item.family,
        }
        for item in dataset.prompt_sets
        for variant, prompt in item.wordings().items()
    ]
    return pa.Table.from_pylist(rows, schema=pa.schema(columns))


class HubFolder(NamedTuple):
    """A folder for the hub, as it was written."""

    files: list[Path]
    notes: list[str]
    """Notes for the publisher, a line each."""


def write_hub_folder(
    dataset: Dataset, out: Path, publication: Publication, provenance: Provenance | None = None
) -> HubFolder:
    """Write a dataset in the hub's form; the same dataset gives the same bytes.

    Args:
        dataset: the dataset.
        out: a folder that does not exist yet, or is empty.
        publication: its publisher's description. A licence that it leaves open is taken from the
            dataset's own card.
        provenance: its origin, as the dataset's own card states it.

    Raises:
        InputError: the extra `[parquet]` is missing, a field of the description is invalid, or the
            folder is not empty or cannot be written.
    """
    provenance = provenance or Provenance()
    publication.check()
    if publication.license is None and provenance.license in LICENSES:
        publication = msgspec.structs.replace(publication, license=provenance.license)
    canary = canary_in(dataset) or make_canary(dataset.hash)
    title = publication.title or dataset.name.removeprefix("hf:")
    files: dict[str, bytes | str] = {
        _PROMPT_SETS.path: _parquet(prompt_set_table(dataset), canary),
        _PROMPTS.path: _parquet(_prompt_table(dataset), canary),
    }
    if dataset.taxonomy != default_taxonomy():
        files[TAXONOMY] = _toml(dataset.taxonomy)
    files[_TASKS] = _eval_yaml(dataset, title, publication.repo)
    files[CARD] = _card(dataset, publication, provenance, title=title, canary=canary)
    with write_together(out, empty=True) as new:
        for path, content in files.items():
            make_private_folder((new / path).parent)
            write_private(new / path, content)
    line = "no licence is chosen; before you publish, name one in the card, or with --license ID"
    return HubFolder([out / path for path in files], [] if publication.license else [line])


def _eval_yaml(dataset: Dataset, title: str, repo: str | None) -> str:
    """Return the file that makes a dataset of the hub a benchmark: a task for each headline metric.
    Of the programs that compute them, the hub knows Inspect AI.
    """
    scope = find_scope(dataset)
    about = " ".join(f"{METRICS[name].label}: {METRICS[name].about}." for name in scope.primary)
    tasks = (
        line
        for metric in scope.headlines
        for line in (f"  - id: {metric}", f"    config: {_PROMPT_SETS.name}", "    split: test")
    )
    command = f"inspect eval opensafeintent/opensafeintent -T dataset=hf:{repo or _NO_REPO}"
    lines = (
        f"# {_MARK}",
        f"# To evaluate a model: {command}",
        f"name: {yaml_text(title)}",
        f"description: {yaml_text(_ABOUT.format(about))}",
        "evaluation_framework: inspect-ai",
        "tasks:",
    )
    return "\n".join([*lines, *tasks]) + "\n"


def _toml(taxonomy: Taxonomy) -> str:
    """Return a taxonomy as the TOML that `--taxonomy` takes."""

    def text(value: str) -> str:
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")

    lines = [f"name = {text(taxonomy.name)}"]
    for field in ("harm_domains", "task_types"):
        for item in getattr(taxonomy, field):
            lines += [
                "",
                f"[[{field}]]",
                f"name = {text(item.name)}",
                f"definition = {text(item.definition)}",
                f"includes = [{', '.join(map(text, item.includes))}]",
                f"excludes = [{', '.join(map(text, item.excludes))}]",
                *(["takes_material = true"] if item.takes_material else []),
            ]
    return "\n".join(lines) + "\n"


def _card(
    dataset: Dataset, publication: Publication, provenance: Provenance, *, title: str, canary: str
) -> str:
    filled = len({item.cell for item in dataset.prompt_sets if all(item.cell)})
    languages = sorted({item.language for item in dataset.prompt_sets if item.language})
    return render_card(
        resources.files("opensafeintent").joinpath("data/card/hub.md").read_text("utf-8"),
        {
            "mark": Plain(_MARK),
            "provenance": provenance,
            "program": Plain(__version__),
            "title": title,
            "pretty_name": yaml_text(title),
            "license": publication.license and Plain(publication.license),
            "spdx": publication.license and Plain(LICENSES[publication.license]),
            "languages": [yaml_text(language, 20) for language in languages],
            "size": size_category(len(dataset)),
            "configs": [(Plain(table.name), Plain(table.path)) for table in _TABLES],
            "prompts": Plain(
                pluralize(sum(len(item.wordings()) for item in dataset.prompt_sets), "prompt")
            ),
            "sets": Plain(pluralize(len(dataset), "prompt-set")),
            "ways": name_ways(dataset),
            "further_wordings": further_wordings(dataset),
            "filled": filled and Plain(f"{filled:,} of {pluralize(len(dataset.cells), 'cell')}"),
            "hash": Plain(dataset.hash),
            "repo": Plain(publication.repo or _NO_REPO),
            "own_taxonomy": dataset.taxonomy.name if dataset.taxonomy != default_taxonomy() else "",
            "cells": Plain(_cells(dataset)) if filled else "",
            "sources": _sources(dataset, canary),
            "tables": [
                (
                    Plain(table.name),
                    Plain(table.about),
                    [(Plain(name), Plain(text)) for name, text in columns.items()],
                )
                for table in _TABLES
                for columns in (_list_columns(table, dataset),)
            ],
            "canary": Plain(canary),
            "canary_field": Plain(CANARY_COLUMN),
        },
    )


def _cells(dataset: Dataset) -> str:
    """Return the numbers of sets by cell as a Markdown table; a dash means none."""
    counts = Counter(item.cell for item in dataset.prompt_sets)
    types, domains = dataset.taxonomy.type_names, dataset.taxonomy.domain_names
    rows = [["", *map(card_text, types), "all"], [":---", *("---:" for _ in types), "---:"]]
    for domain in domains:
        row = [counts[domain, task] for task in types]
        numbers = [f"{count:,}" if count else "–" for count in row]
        rows.append([card_text(domain), *numbers, f"{sum(row):,}"])
    columns = [sum(counts[domain, task] for domain in domains) for task in types]
    rows.append(["all", *(f"{count:,}" for count in columns), f"{sum(columns):,}"])
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def _sources(dataset: Dataset, canary: str) -> list[tuple[str, Plain]]:
    """Return the sources that the sets name, the most frequent first, with the number of sets."""
    counts = Counter(
        item.source.partition("; benchmark data")[0].replace(canary, "").strip()
        for item in dataset.prompt_sets
        if item.source
    )
    return [
        (source[:200], Plain(pluralize(count, "set")))
        for source, count in counts.most_common(_MOST_SOURCES)
        if source
    ]
