"""What the site needs beyond Sphinx: links to the evidence, one place for each public name, and
fields' docstrings as sentences.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
from typing import Any

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

from opensafeintent import commands as workflows

_PACKAGE = "opensafeintent"
_COLON = "\ue000"


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect the handlers; napoleon's own has priority 500."""
    app.connect("builder-inited", _import_types)
    app.connect("source-read", _change_source)
    app.connect("missing-reference", _resolve)
    app.connect("autodoc-process-signature", _plain_defaults)
    app.connect("autodoc-process-docstring", _hide_colons, priority=400)
    app.connect("autodoc-process-docstring", _show_colons, priority=600)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _change_source(app: Sphinx, name: str, source: list[str]) -> None:
    source[0] = lead_to_the_evidence(source[0])


def lead_to_the_evidence(text: str) -> str:
    """Lead links to the evidence, which is outside `docs`, to its copy on the site."""
    return text.replace("](../benchmarks/README.md", "](evidence.md")


def _import_types(app: Sphinx) -> None:
    """Import what the functions' modules import only while types are checked: signatures name
    it.
    """
    for found in pkgutil.iter_modules(workflows.__path__, f"{workflows.__name__}."):
        module = importlib.import_module(found.name)
        for statement in ast.parse(inspect.getsource(module)).body:
            if isinstance(statement, ast.If) and ast.unparse(statement.test) == "TYPE_CHECKING":
                exec(compile(ast.Module(statement.body, []), found.name, "exec"), vars(module))


def _resolve(
    app: Sphinx, env: BuildEnvironment, node: pending_xref, child: nodes.TextElement
) -> nodes.Element | None:
    """Lead a type to where it is documented: under its public name, not in the module that happens
    to define it.
    """
    if node.get("refdomain") != "py":
        return None
    name = str(node["reftarget"]).rpartition(".")[2]
    documented = env.domains.python_domain.objects
    for full in (f"{_PACKAGE}.{name}", f"{_PACKAGE}.errors.{name}", node["reftarget"]):
        if full in documented:
            node["reftarget"] = full
            return env.domains.python_domain.resolve_xref(
                env, node["refdoc"], app.builder, "obj", full, node, child
            )
    return None


def _plain_defaults(
    app: Sphinx,
    what: str,
    name: str,
    obj: object,
    options: object,
    arguments: str | None,
    returned: str | None,
) -> tuple[str | None, str | None]:
    """Write a default that is made new each time as an ellipsis: what msgspec writes is no
    Python.
    """
    return (arguments.replace("<factory>", "...") if arguments else arguments), returned


def _hide_colons(
    app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]
) -> None:
    """Keep napoleon from reading "What this is: and more" as the type and the text of a field."""
    if what in ("attribute", "data", "property") and lines:
        lines[0] = lines[0].replace(":", _COLON)


def _show_colons(
    app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]
) -> None:
    lines[:] = [line.replace(_COLON, ":") for line in lines]
