"""Write prompt-sets: our JSONL, Parquet, and the text of dataset cards."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import IO, TYPE_CHECKING
from uuid import NAMESPACE_URL, uuid5

from opensafeintent.errors import InputError
from opensafeintent.files import os_errors, written_beside
from opensafeintent.hostile import one_line
from opensafeintent.promptsets.record import Dataset

if TYPE_CHECKING:
    import pyarrow as pa


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
    with written_beside(path) as file:
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
        raise InputError('Parquet needs an extra: pip install "opensafeintent[parquet]"') from error
    text = pa.string()
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
        }
    )
    return pa.Table.from_pylist([item.to_json() for item in dataset.prompt_sets], schema=schema)


# Cards: what every card says, and how text from outside stands in one
# ------------------------------------------------

_SIZES = (
    (1_000, "n<1K"),
    (10_000, "1K<n<10K"),
    (100_000, "10K<n<100K"),
    (1_000_000, "100K<n<1M"),
    (10_000_000, "1M<n<10M"),
)
"""The hub's names for numbers of rows."""
_MARKUP = re.compile(r"([\\`*_{}\[\]<>|#~&!$@])|(?<=:)(?=//)|(?<=www)(?=\.)")
"""What Markdown reads as markup within a line, addresses included."""
_NOT_IN_YAML = re.compile("[\ufffe\uffff]")
_CANARY = re.compile(r"\bcanary (?P<guid>[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12})\b")
_LONGEST = 2_000


class Plain(str):
    """A text that goes into a card as it is: ours, or escaped already."""

    __slots__ = ()


def canary_of(dataset_hash: str) -> str:
    """Return the GUID by which a dataset is found in a training corpus; it is made from the
    dataset's hash.
    """
    return str(uuid5(NAMESPACE_URL, f"opensafeintent:dataset:{dataset_hash}"))


def canary_in(dataset: Dataset) -> str | None:
    """Return the canary that every record carries in its `source`; None where there is none, or
    more than one.
    """
    canaries = {
        match["guid"] if (match := _CANARY.search(item.source or "")) else None
        for item in dataset.prompt_sets
    }
    return canaries.pop() if len(canaries) == 1 else None


def markdown_text(text: str, most: int = _LONGEST) -> Plain:
    """Return a text as Markdown shows it: on one line and without markup."""
    return Plain(_MARKUP.sub(lambda match: "\\" + match.group(), one_line(text, most)))


def yaml_text(text: str, most: int = _LONGEST) -> Plain:
    """Return a text as a quoted YAML scalar on one line."""
    quoted = json.dumps(one_line(text, most), ensure_ascii=False)
    return Plain(_NOT_IN_YAML.sub(lambda match: f"\\u{ord(match.group()):04x}", quoted))


def size_category(rows: int) -> Plain:
    """Return the hub's name for a number of rows."""
    return Plain(next((name for most, name in _SIZES if rows < most), "n>10M"))


def render_card(template: str, values: Mapping[str, object]) -> str:
    """Fill a card's template, which may include the parts that all cards share (`purpose.md`, …).

    Values that are not `Plain` are escaped: text from outside is no markup in a card.
    """
    from jinja2 import Environment, FunctionLoader, StrictUndefined

    environment = Environment(
        loader=FunctionLoader(lambda name: template if name == "card" else _part(name)),
        autoescape=False,  # it is Markdown; `finalize` escapes whatever is not ours
        undefined=StrictUndefined,
        keep_trailing_newline=True,
        finalize=lambda value: value if isinstance(value, Plain) else markdown_text(str(value)),
    )
    return environment.get_template("card").render(**values)


def _part(name: str) -> str:
    return resources.files("opensafeintent").joinpath(f"data/card/{name}").read_text("utf-8")
