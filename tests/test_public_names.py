"""`help()` shows every public name, and the annotations of every record resolve."""

from __future__ import annotations

import inspect
import pydoc
import re
import typing
from importlib import import_module
from pathlib import Path

import pytest

import opensafeintent
from opensafeintent.commands.settings.base import list_settings

DOCUMENTED = Path(__file__).parents[1] / "docs/python-api.md"
NAMES = [name for name in opensafeintent.__all__ if name != "__version__"]
CLASSES = [name for name in NAMES if inspect.isclass(getattr(opensafeintent, name))]
RECORDS = re.findall(r"autoclass:: (opensafeintent\.\S+)", DOCUMENTED.read_text("utf-8"))


@pytest.mark.parametrize("name", NAMES)
def test_help_shows_a_public_name(name: str) -> None:
    assert name in pydoc.render_doc(getattr(opensafeintent, name))


@pytest.mark.parametrize("name", [*CLASSES, *RECORDS])
def test_the_annotations_of_a_record_resolve(name: str) -> None:
    module, _, record = name.rpartition(".")
    owner = import_module(module or "opensafeintent")
    assert isinstance(typing.get_type_hints(getattr(owner, record)), dict)


@pytest.mark.parametrize("name", [name for name in CLASSES if name.endswith("Settings")])
def test_help_of_settings_has_the_texts_of_the_options(name: str) -> None:
    record = getattr(opensafeintent, name)
    text = " ".join(pydoc.plain(pydoc.render_doc(record)).replace("|", " ").split())
    for setting in list_settings(record):
        if setting.shown:
            assert f" {setting.name}: {' '.join(setting.shown.help.split())}" in text
    assert "Opt(" not in str(inspect.signature(record))
