"""The layout of judges' requests: each rubric by itself, or all three in one block.

All requests begin with the block. Providers charge less for a beginning that they have read before,
from some 1,024 tokens on, and only one of our rubrics is that long by itself. The wording of the
rubrics is the same in both layouts.
"""

from __future__ import annotations

from functools import lru_cache
from importlib import resources
from typing import Literal

import msgspec

from opensafeintent.templates.template import (
    FRONT_MATTER,
    PLACEHOLDER,
    Role,
    Template,
    Templates,
    load_templates,
    parse_template,
    split_header,
)

Layout = Literal[1, 2]
"""1: each rubric by itself. 2: one block of three rubrics, then the question."""

LAYOUT: Layout = 1
"""The layout of new runs. A run that exists keeps its own, and with it the keys of its calls."""

_LAYOUTS: tuple[Layout, ...] = (1, 2)

SHARING: tuple[Role, ...] = ("helpfulness", "harm", "mode")
"""The templates whose rubrics are in the block: those that `shared_block.md` names."""


class _BlockHeader(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    id: str
    version: int


def laid_out(templates: Templates, layout: Layout | None = None) -> Templates:
    """Return templates in a layout.

    Templates that have a block already, and the authors' files, which are used to the letter, stay
    as they are.

    Args:
        templates: as files have them.
        layout: the layout; None is that of new runs.
    """
    sharing = [templates.of(role) for role in SHARING]
    single = all(template.layout == 1 and not template.foreign for template in sharing)
    if (layout or LAYOUT) == 1 or not single:
        return templates
    return _with_block(templates)


@lru_cache(maxsize=8)
def _with_block(templates: Templates) -> Templates:
    """Return templates whose three rubrics are one block, each with a header that says so."""
    source = resources.files("opensafeintent.templates").joinpath("shared_block.md")
    _, block = split_header("shared_block.md", source.read_text("utf-8"), _BlockHeader)
    parts = {role: _parted(templates.of(role)) for role in SHARING}
    for role, (rubric, _) in parts.items():
        block = block.replace(f"{{{{{role}}}}}", rubric)
    shared: dict[Role, Template] = {}
    for role, (_, question) in parts.items():
        template = templates.of(role)
        header = FRONT_MATTER.match(template.source)
        assert header is not None  # only the authors' files have none
        text = f"+++\nlayout = 2\n{header[1]}\n+++\n{block}\n{question}"
        shared[role] = parse_template(role, template.file, text)
    return Templates.from_roles(templates.by_role | shared)


def _parted(template: Template) -> tuple[str, str]:
    """Cut a template's text before the paragraph with its first placeholder: the rubric, and what
    a response is put into.
    """
    first = PLACEHOLDER.search(template.body)
    assert first is not None  # a request and a response have their places: see `parse_template`
    cut = template.body.rfind("\n\n", 0, first.start()) + 1
    return template.body[:cut].strip("\n"), template.body[cut:].lstrip("\n")


def our_templates(*, reasons: bool = False) -> Templates:
    """Return our templates as new runs use them.

    Args:
        reasons: as of `load_templates`.
    """
    return laid_out(load_templates(reasons=reasons))


@lru_cache(maxsize=8)
def our_hashes(role: Role, *, reasons: bool = False) -> frozenset[str]:
    """Return the hash of our template for a role, in each layout.

    Args:
        role: the role.
        reasons: as of `load_templates`.
    """
    templates = load_templates(reasons=reasons)
    layouts = (laid_out(templates, layout) for layout in _LAYOUTS)
    return frozenset(laid.of(role).hash for laid in layouts)
