"""Jinja environments: the one place that sets them up, with the escaping of each format."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from opensafeintent.markdown import Plain, card_text

if TYPE_CHECKING:
    from jinja2 import BaseLoader, Environment


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
