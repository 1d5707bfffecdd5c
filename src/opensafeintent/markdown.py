"""Text that is made harmless for Markdown and HTML, and the Jinja environments."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import TYPE_CHECKING

from opensafeintent.files import read_shipped
from opensafeintent.hostile import TEXT, one_line

if TYPE_CHECKING:
    from jinja2 import BaseLoader, Environment


_MARKUP = re.compile(r"([\\`*_{}\[\]<>|#~&!$])|(?<=:)(?=//)|(?<=www)(?=\.)")
"""Markup within a line, addresses included."""

_REFERENCE = re.compile(
    r"(?<!\w)@(?=\w)|(?<=[\w.+-])@(?=[\w-]+\.)|#(?=\d)|\bGH-(?=\d)|\b(?:xmpp|mailto):",
    re.IGNORECASE,
)
"""Mentions, references to issues, bare addresses: hosts make links of them and notify people."""

_JOINER = "\u2060"
"""Word joiner: has no width, and no line breaks at it."""


class Plain(str):
    """A text that needs no escaping in a card: ours, or escaped already."""

    __slots__ = ()


@lru_cache(maxsize=4096)
def markdown_text(text: str) -> str:
    """Escape Markdown's markup, addresses included; `_REFERENCE` gets an invisible character."""
    apart = _REFERENCE.sub(lambda match: match.group() + _JOINER, text)
    return _MARKUP.sub(lambda match: "\\" + match.group(), apart)


def card_text(text: str, most: int = TEXT) -> Plain:
    """Return a text as a card shows it: escaped, on one line, in at most `most` characters."""
    # the backslash before an @ shows nothing; cards have always had it, and stay as they are
    return Plain(markdown_text(one_line(text, most)).replace("@", "\\@"))


def page_environment(package: str, folder: str) -> Environment:
    """Return the environment of the templates in a package's folder, which may include the head of
    every page, `head.html`.

    Values are escaped in templates named `*.html`; every other template is plain text.
    """
    from jinja2 import ChoiceLoader, PackageLoader

    shared = PackageLoader("opensafeintent", "data/page")
    return _environment(
        ChoiceLoader([PackageLoader(package, folder), shared]),
        autoescape=lambda name: name is not None and name.endswith(".html"),
    )


def page_script(scripts: Iterable[str]) -> str:
    """Return scripts as the one script of a page, after the one that all pages share
    (`data/elements.js`).
    """
    return '"use strict";\n' + "\n".join((read_shipped("data/elements.js"), *scripts))


def card_environment(load: Callable[[str], str | None]) -> Environment:
    """Return an environment of Markdown templates, in which `card_text` escapes every value that
    is not `Plain`.

    Args:
        load: returns a template's text by its name, None if there is no such template.
    """
    from jinja2 import FunctionLoader

    return _environment(
        FunctionLoader(load),
        finalize=lambda value: value if isinstance(value, Plain) else card_text(str(value)),
    )


def _environment(
    loader: BaseLoader,
    *,
    autoescape: bool | Callable[[str | None], bool] = False,
    finalize: Callable[[object], str] | None = None,
) -> Environment:
    """Return an environment in which a value that is not given is an error."""
    from jinja2 import Environment, StrictUndefined

    return Environment(
        loader=loader,
        autoescape=autoescape,
        finalize=finalize,
        undefined=StrictUndefined,
        keep_trailing_newline=True,
    )
