"""Dataset cards: their common parts, and text from outside in them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from importlib import resources
from uuid import NAMESPACE_URL, uuid5

from opensafeintent.hostile import one_line
from opensafeintent.markdown import Plain
from opensafeintent.promptsets.record import Dataset
from opensafeintent.rendering import card_environment

_SIZES = (
    (1_000, "n<1K"),
    (10_000, "1K<n<10K"),
    (100_000, "10K<n<100K"),
    (1_000_000, "100K<n<1M"),
    (10_000_000, "1M<n<10M"),
)
"""The hub's names for numbers of rows."""
_NOT_IN_YAML = re.compile("[\ufffe\uffff]")
_CANARY = re.compile(r"\bcanary (?P<guid>[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12})\b")
_LONGEST = 2_000


def canary_of(dataset_hash: str) -> str:
    """Return the GUID by which a dataset is found in a training corpus; it is made from the
    dataset's hash.
    """
    return str(uuid5(NAMESPACE_URL, f"opensafeintent:dataset:{dataset_hash}"))


def canary_in(dataset: Dataset) -> str | None:
    """Return the canary that every record carries in its `source`; None if there is none, or more
    than one.
    """
    canaries = {
        match["guid"] if (match := _CANARY.search(item.source or "")) else None
        for item in dataset.prompt_sets
    }
    return canaries.pop() if len(canaries) == 1 else None


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
    environment = card_environment(lambda name: template if name == "card" else _part(name))
    return environment.get_template("card").render(**values)


def _part(name: str) -> str:
    return resources.files("opensafeintent").joinpath(f"data/card/{name}").read_text("utf-8")
