"""Equations as MathML, which browsers draw themselves: no script, and nothing fetched from a
network.
"""

from __future__ import annotations

from typing import Any

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.util.logging import getLogger
from sphinx.writers.html5 import HTML5Translator

_log = getLogger(__name__)


def setup(app: Sphinx) -> dict[str, Any]:
    """Make `mathml` a renderer that `html_math_renderer` can name."""
    app.add_html_math_renderer("mathml", (_visit_inline, None), (_visit_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _visit_inline(self: HTML5Translator, node: nodes.math) -> None:
    self.body.append(_drawn(node, as_block=False))
    raise nodes.SkipNode


def _visit_block(self: HTML5Translator, node: nodes.math_block) -> None:
    self.body.append(f'<div class="equation">{_drawn(node, as_block=True)}</div>\n')
    raise nodes.SkipNode


def _drawn(node: nodes.math | nodes.math_block, *, as_block: bool) -> str:
    try:
        return tex2mathml(node.astext(), as_block=as_block)
    except MathError as error:
        _log.warning("%s in %r", error, node.astext(), location=node)
        return ""
