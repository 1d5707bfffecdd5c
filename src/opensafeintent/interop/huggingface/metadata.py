"""What is said of a published dataset: by its publisher, of its tables, and for machines (Croissant)."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Mapping
from datetime import date
from typing import TYPE_CHECKING, Any

import msgspec

from opensafeintent.canonical import sha256_hex
from opensafeintent.errors import InputError, nearest
from opensafeintent.hostile import one_line
from opensafeintent.promptsets import Dataset
from opensafeintent.promptsets.writing import prompt_set_table
from opensafeintent.taxonomy import Category, intent_of

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "CANARY",
    "LICENSES",
    "PROMPTS",
    "PROMPT_SETS",
    "TABLES",
    "HubTable",
    "Publication",
    "croissant_json",
    "parquet_of",
]

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
_REPO = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)
_VERSION = re.compile(r"(0|[1-9]\d*)(\.(0|[1-9]\d*)){2}", re.ASCII)


class Publication(msgspec.Struct, frozen=True, kw_only=True):
    """What stands in card and metadata beside the data themselves; what is not said is left out there."""

    title: str | None = None
    license: str | None = None
    """As the hub names it: a key of `LICENSES`."""
    creator: str | None = None
    repo: str | None = None
    """Where it will be on the hub: `owner/name`."""
    published: str | None = None
    """The day, as in 2026-11-21."""
    version: str = "1.0.0"

    def check(self) -> None:
        """Refuse what is not of its form.

        Raises:
            InputError: the licence is not known, or another value is not of the form that it should have.
        """
        if self.license is not None and self.license not in LICENSES:
            raise InputError(f"--license {one_line(self.license, 60)}: unknown; {nearest(self.license, LICENSES)}")
        if self.repo is not None and not _REPO.fullmatch(self.repo):
            raise InputError(f"--repo {one_line(self.repo, 60)}: expected owner/name, as the hub names a dataset")
        if not _VERSION.fullmatch(self.version):
            raise InputError(f"--version {one_line(self.version, 60)}: expected three numbers, as in 1.0.0")
        if self.published is not None:
            try:
                canonical = date.fromisoformat(self.published).isoformat()
            except ValueError:
                canonical = ""
            if canonical != self.published:
                raise InputError(f"--published {one_line(self.published, 60)}: expected a day, as in 2026-11-21")

    @property
    def unsaid(self) -> tuple[str, ...]:
        """The options whose values Croissant requires, and that were not given."""
        required = {"--license": self.license, "--creator": self.creator, "--repo": self.repo, "--published": self.published}
        return tuple(option for option, value in required.items() if not value)


# Tables --------------------------------------------------------------------------------------------------------------


CANARY = "canary"


class HubTable(msgspec.Struct, frozen=True, kw_only=True):
    """One configuration of the dataset: its name, its file, and what its columns hold."""

    name: str
    path: str
    about: str
    key: tuple[str, ...]
    columns: dict[str, str]
    """What each column holds, in order; `a.b` is the field b of the column a, `a[]` a list."""


_LABELS = {
    "harm_domain": "harm domain: what could be harmed",
    "task_type": "task type: what kind of help is asked for",
    "underlying_task": "the task that all prompts of the set share, neutrally named",
}
_CANARY_COLUMN = {CANARY: "the same GUID in every row: a search for it in a training corpus finds the dataset there"}
_LANGUAGE = {"language": "language of the prompts, where it is stated"}
PROMPT_SETS = HubTable(
    name="prompt_sets",
    path="prompt_sets/test.parquet",
    about="One prompt-set a row: one task, worded for three intents, and further wordings of the dual-use prompt.",
    key=("id",),
    columns={
        "id": "the set's id",
        **_LABELS,
        "prompts.benign": "the prompt of benign intent",
        "prompts.dual_use": "the prompt whose intent is open",
        "prompts.malicious": "the prompt of malicious intent",
        "dual_use_paraphrases[]": "further wordings of the dual-use prompt",
        "dual_use_benign_use": "what an honest person could want with the dual-use prompt",
        "dual_use_misuse_risk": "what a dishonest person could want with it",
        "content_shift": "how much of an answer changes from the benign prompt to the malicious one, where it is known",
        "source": "where the set comes from",
        **_LANGUAGE,
        **_CANARY_COLUMN,
    },
)
PROMPTS = HubTable(
    name="prompts",
    path="prompts/test.parquet",
    about="One prompt a row: the same prompts, each with its variant and intent.",
    key=("id", "variant"),
    columns={
        "id": "the id of the set that the prompt belongs to",
        "variant": "which prompt of the set: benign, dual_use, malicious, dual_use_paraphrase_1, …",
        "intent": "benign, dual_use or malicious; a paraphrase has the intent dual_use",
        "prompt": "the prompt",
        **_LABELS,
        **_LANGUAGE,
        **_CANARY_COLUMN,
    },
)
TABLES = (PROMPT_SETS, PROMPTS)


def parquet_of(table: HubTable, dataset: Dataset, canary: str) -> bytes:
    """Return a table of a dataset as Parquet; the same dataset gives the same bytes.

    Raises:
        InputError: the extra `[parquet]` is missing.
    """
    data = _prompt_sets(dataset, canary) if table is PROMPT_SETS else _prompts(dataset, canary)
    import pyarrow.parquet as pq

    file = io.BytesIO()
    pq.write_table(data, file)
    return file.getvalue()


def _prompt_sets(dataset: Dataset, canary: str) -> pa.Table:
    table = prompt_set_table(dataset)
    import pyarrow as pa

    return table.append_column(CANARY, pa.array([canary] * len(dataset), pa.string()))


def _prompts(dataset: Dataset, canary: str) -> pa.Table:
    import pyarrow as pa

    rows: list[dict[str, Any]] = [
        {
            "id": item.id,
            "variant": variant,
            "intent": intent_of(variant),
            "prompt": prompt,
            "harm_domain": item.harm_domain,
            "task_type": item.task_type,
            "underlying_task": item.underlying_task,
            "language": item.language,
            CANARY: canary,
        }
        for item in dataset.prompt_sets
        for variant, prompt in item.wordings().items()
    ]
    return pa.Table.from_pylist(rows, schema=pa.schema({column: pa.string() for column in PROMPTS.columns}))


# Croissant -----------------------------------------------------------------------------------------------------------


_CONFORMS_TO = ["http://mlcommons.org/croissant/1.1", "http://mlcommons.org/croissant/RAI/1.0"]
_LONGEST = 2_000
_OF_CROISSANT = (
    *("annotation", "arrayShape", "citeAs", "column", "containedIn", "equivalentProperty", "excludes", "extract", "field"),
    *("fileObject", "fileProperty", "fileSet", "format", "includes", "isArray", "isLiveDataset", "jsonPath", "key", "md5"),
    *("parentField", "path", "readLines", "recordSet", "references", "regex", "repeated", "replace", "samplingRate"),
    *("sdVersion", "separator", "source", "subField", "transform", "unArchive", "value"),
)
"""Terms of the format's own vocabulary (specification, appendix 1)."""
_CONTEXT: dict[str, Any] = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "sc": "https://schema.org/",
    "cr": "http://mlcommons.org/croissant/",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "dct": "http://purl.org/dc/terms/",
    "conformsTo": "dct:conformsTo",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "examples": {"@id": "cr:examples", "@type": "@json"},
    **{term: f"cr:{term}" for term in _OF_CROISSANT},
}
_CATEGORIES = {"harm_domain": "harm_domains/name", "task_type": "task_types/name"}
"""The columns whose values are listed: of a prompt's `id` in `prompt_sets` the format's own library makes no join."""
_ABOUT = (
    "Each set words one task for benign, dual-use and malicious intent: does a model give the right amount of help as intent "
    "shifts? Prompts of malicious intent ask for harm. Benchmark data, not for training corpora;"
)
_USE = "Measuring how helpfulness and harm of a model's answers change with the intent that a prompt shows, on the same task."
_LIMITS = (
    "Invented prompts, short and of one turn. Not for training, and not for judging what people write; "
    "a good result is no claim that a model is safe."
)


def croissant_json(dataset: Dataset, publication: Publication, files: Mapping[str, bytes], *, title: str, canary: str) -> str:
    """Return `croissant.json`.

    Args:
        dataset: what is exported.
        publication: what its publisher says of it; what is not said is left out.
        files: the content of each table's file, by path.
        title: the dataset's name.
        canary: the GUID that stands in every row.
    """
    prompts = sum(len(item.wordings()) for item in dataset.prompt_sets)
    languages = sorted({item.language for item in dataset.prompt_sets if item.language})
    about: dict[str, Any] = {
        "@context": _CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": _CONFORMS_TO,
        "name": one_line(title, _LONGEST),
        "description": f"{len(dataset):,} prompt-sets of {prompts:,} prompts. {_ABOUT} canary {canary}.",
        "identifier": f"sha256:{dataset.hash}",
        "version": publication.version,
        "keywords": ["safety", "evaluation", "benchmark", "dual-use", "intent"],
        "inLanguage": [one_line(language, 40) for language in languages],
        "license": f"https://spdx.org/licenses/{LICENSES[publication.license]}" if publication.license else None,
        "creator": {"@type": "sc:Organization", "name": one_line(publication.creator, _LONGEST)}
        if publication.creator
        else None,
        "url": f"https://huggingface.co/datasets/{publication.repo}" if publication.repo else None,
        "datePublished": publication.published,
        "isLiveDataset": False,
        "rai:dataUseCases": _USE,
        "rai:dataLimitations": _LIMITS,
        "distribution": [_file(table, files[table.path], publication.repo) for table in TABLES],
        "recordSet": [
            _categories("harm_domains", "The harm domains.", dataset.taxonomy.harm_domains),
            _categories("task_types", "The task types.", dataset.taxonomy.task_types),
            *map(_records, TABLES),
        ],
    }
    return (
        json.dumps({name: value for name, value in about.items() if value not in (None, [])}, indent=2, ensure_ascii=False)
        + "\n"
    )


def _file_id(table: HubTable) -> str:
    return f"{table.name}.parquet"


def _file(table: HubTable, content: bytes, repo: str | None) -> dict[str, Any]:
    address = f"https://huggingface.co/datasets/{repo}/resolve/main/{table.path}" if repo else table.path
    return {
        "@type": "cr:FileObject",
        "@id": _file_id(table),
        "name": _file_id(table),
        "description": table.about,
        "contentUrl": address,
        "contentSize": f"{len(content)} B",
        "encodingFormat": "application/x-parquet",
        "sha256": sha256_hex(content),
    }


def _categories(name: str, about: str, categories: tuple[Category, ...]) -> dict[str, Any]:
    fields = {"name": "its name", "definition": "what it is"}
    return {
        "@type": "cr:RecordSet",
        "@id": name,
        "name": name,
        "description": about,
        "dataType": "sc:Enumeration",
        "key": {"@id": f"{name}/name"},
        "field": [
            {"@type": "cr:Field", "@id": f"{name}/{field}", "name": field, "description": told, "dataType": "sc:Text"}
            for field, told in fields.items()
        ],
        "data": [{f"{name}/name": item.name, f"{name}/definition": item.definition} for item in categories],
    }


def _records(table: HubTable) -> dict[str, Any]:
    fields: dict[str, dict[str, Any]] = {}
    for column, about in table.columns.items():
        outer, _, inner = column.partition(".")
        if inner:
            group = fields.setdefault(outer, {**_field(table, outer, "the prompt of each intent"), "subField": []})
            group["subField"].append(_text_field(table, f"{outer}/{inner}", about, outer, inner))
        else:
            fields[outer] = _text_field(table, outer.removesuffix("[]"), about, outer.removesuffix("[]"))
            if outer.endswith("[]"):
                fields[outer] |= {"isArray": True, "arrayShape": "-1"}
    for field, target in _CATEGORIES.items():
        fields[field]["references"] = {"field": {"@id": target}}
    return {
        "@type": "cr:RecordSet",
        "@id": table.name,
        "name": table.name,
        "description": table.about,
        "key": [{"@id": f"{table.name}/{column}"} for column in table.key],
        "field": list(fields.values()),
    }


def _field(table: HubTable, name: str, about: str) -> dict[str, Any]:
    return {"@type": "cr:Field", "@id": f"{table.name}/{name}", "name": name, "description": about}


def _text_field(table: HubTable, name: str, about: str, column: str, inner: str | None = None) -> dict[str, Any]:
    source: dict[str, Any] = {"fileObject": {"@id": _file_id(table)}, "extract": {"column": column}}
    if inner:
        source["transform"] = {"jsonPath": inner}
    return {**_field(table, name, about), "dataType": "sc:Text", "source": source}
