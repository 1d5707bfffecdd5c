"""Write the folder: two Parquet files, `croissant.json`, the card, and the taxonomy where it is not the paper's."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from importlib import resources
from pathlib import Path

from opensafeintent import __version__
from opensafeintent.errors import InputError
from opensafeintent.files import make_private_folder, write_private
from opensafeintent.interop.huggingface.metadata import (
    CANARY,
    LICENSES,
    TABLES,
    HubTable,
    Publication,
    croissant_json,
    parquet_of,
)
from opensafeintent.promptsets import Dataset
from opensafeintent.promptsets.sources import CARD, TAXONOMY
from opensafeintent.promptsets.writing import (
    Plain,
    canary_in,
    canary_of,
    markdown_text,
    render_card,
    size_category,
    yaml_text,
)
from opensafeintent.taxonomy import Taxonomy, default_taxonomy

__all__ = ["write_hub_folder"]

_MARK = "Written by `opensafeintent dataset export`."
_CROISSANT = "croissant.json"
_MOST_SOURCES = 5


def write_hub_folder(dataset: Dataset, out: Path, publication: Publication) -> list[Path]:
    """Write a dataset as the hub takes it, and return the files; the same dataset gives the same bytes.

    Raises:
        InputError: the extra `[parquet]` is missing, something said of the dataset is not of its form, or the folder holds
            files of these names that were not written here, or cannot be written.
    """
    publication.check()
    make_private_folder(out)
    canary = canary_in(dataset) or canary_of(dataset.hash)
    title = publication.title or dataset.name.removeprefix("hf:")
    tables = {table.path: parquet_of(table, dataset, canary) for table in TABLES}
    files: dict[str, bytes | str] = {**tables}
    if dataset.taxonomy != default_taxonomy():
        files[TAXONOMY] = _toml(dataset.taxonomy)
    files[_CROISSANT] = croissant_json(dataset, publication, tables, title=title, canary=canary)
    files[CARD] = _card(dataset, publication, title=title, canary=canary)
    _make_way(out, files)
    for path, content in files.items():
        make_private_folder((out / path).parent)
        write_private(out / path, content)
    return [out / path for path in files]


def _make_way(out: Path, files: Iterable[str]) -> None:
    """Refuse to write over what was not written here; take away what another dataset, exported here before, left."""
    card = out / CARD
    try:
        ours = card.exists() and _MARK in card.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{card}: cannot read the card that is there: {error}") from error
    if ours:
        (out / TAXONOMY).unlink(missing_ok=True)
        return
    in_the_way = next((out / path for path in (CARD, *files) if (out / path).exists()), None)
    if in_the_way:
        raise InputError(f"{in_the_way}: was not written by `dataset export`, or was edited since; name another folder")


def _toml(taxonomy: Taxonomy) -> str:
    """Return a taxonomy as the TOML that `--taxonomy` takes."""

    def text(value: str) -> str:
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")

    lines = [f"name = {text(taxonomy.name)}"]
    for field, categories in (("harm_domains", taxonomy.harm_domains), ("task_types", taxonomy.task_types)):
        for item in categories:
            lines += ["", f"[[{field}]]", f"name = {text(item.name)}", f"definition = {text(item.definition)}"]
            lines += [
                f"includes = [{', '.join(map(text, item.includes))}]",
                f"excludes = [{', '.join(map(text, item.excludes))}]",
                *(["takes_material = true"] if item.takes_material else []),
            ]
    return "\n".join(lines) + "\n"


# The card ------------------------------------------------------------------------------------------------------------


def _card(dataset: Dataset, publication: Publication, *, title: str, canary: str) -> str:
    filled = len({item.cell for item in dataset.prompt_sets})
    languages = sorted({item.language for item in dataset.prompt_sets if item.language})
    return render_card(
        resources.files("opensafeintent").joinpath("data/card/hub.md").read_text("utf-8"),
        {
            "mark": Plain(_MARK),
            "program": Plain(__version__),
            "title": title,
            "pretty_name": yaml_text(title),
            "license": publication.license and Plain(publication.license),
            "spdx": publication.license and Plain(LICENSES[publication.license]),
            "languages": [yaml_text(language, 20) for language in languages],
            "size": size_category(len(dataset)),
            "configs": [(Plain(table.name), Plain(table.path)) for table in TABLES],
            "prompts": Plain(_counted(sum(len(item.wordings()) for item in dataset.prompt_sets), "prompt")),
            "sets": Plain(_counted(len(dataset), "prompt-set")),
            "filled": Plain(f"{filled:,} of {_counted(len(dataset.taxonomy.cells), 'cell')}"),
            "hash": Plain(dataset.hash),
            "repo": Plain(publication.repo or "OWNER/NAME"),
            "own_taxonomy": dataset.taxonomy.name if dataset.taxonomy != default_taxonomy() else "",
            "cells": Plain(_cells(dataset)),
            "sources": _sources(dataset, canary),
            "tables": [(Plain(table.name), Plain(table.about), _columns(table)) for table in TABLES],
            "canary": Plain(canary),
            "canary_field": Plain(CANARY),
        },
    )


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def _columns(table: HubTable) -> list[tuple[Plain, Plain]]:
    return [(Plain(column), Plain(about)) for column, about in table.columns.items()]


def _cells(dataset: Dataset) -> str:
    """Return the numbers of sets by cell as a Markdown table; a dash stands for none."""
    counts = Counter(item.cell for item in dataset.prompt_sets)
    types, domains = dataset.taxonomy.type_names, dataset.taxonomy.domain_names
    rows = [["", *map(markdown_text, types), "all"], [":---", *("---:" for _ in types), "---:"]]
    for domain in domains:
        row = [counts[domain, task] for task in types]
        rows.append([markdown_text(domain), *(f"{count:,}" if count else "–" for count in row), f"{sum(row):,}"])
    columns = [sum(counts[domain, task] for domain in domains) for task in types]
    rows.append(["all", *(f"{count:,}" for count in columns), f"{sum(columns):,}"])
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def _sources(dataset: Dataset, canary: str) -> list[tuple[str, Plain]]:
    """Return where the sets say that they come from, the most frequent first, with the number of sets."""
    plain = (item.source.partition("; benchmark data")[0] for item in dataset.prompt_sets if item.source)
    counts = Counter(source.replace(canary, "").strip() for source in plain)
    return [(source[:200], Plain(_counted(count, "set"))) for source, count in counts.most_common(_MOST_SOURCES) if source]
