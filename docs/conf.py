"""How the documentation is built: `make docs`."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_extensions"))

import opensafeintent

project = "OpenSafeIntent"
author = "The OpenSafeIntent maintainers"
project_copyright = "the OpenSafeIntent maintainers, Apache-2.0"
version = release = opensafeintent.__version__

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "commands",
    "gallery",
    "markdown_pages",
    "mathml",
    "references",
]

# References have to lead somewhere; of the types in signatures, those that this documentation has.
nitpicky = True
nitpick_ignore_regex = [("py:(class|exc|data|obj)", ".*")]

# Pages are Markdown that a code host shows as well: equations between dollar signs, and links to
# headings by their anchors.
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 4
myst_dmath_double_inline = False
nb_execution_mode = "off"  # the notebook keeps what it printed; the tests run it and compare
# Console output and lists of commands stay as they are; what is code says its language.
highlight_language = "none"

default_role = "code"  # docstrings put code between single backticks
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_rtype = False
autodoc_member_order = "bysource"
autodoc_default_options = {
    "members": True,
    "inherited-members": "Struct,tuple,BaseException",
    "exclude-members": "functions,groups",  # how options are read, of every settings record
}
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
python_maximum_signature_line_length = 80

# For contributors: pages of the repository, which links beside the documentation lead to.
exclude_patterns = ["architecture.md", "dependencies.md"]

html_theme = "furo"
html_title = "OpenSafeIntent"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_js_files = ["site.js"]
html_math_renderer = "mathml"
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False
smartquotes_action = "D"  # dashes only: quotes stay as they were typed
pygments_style = "xcode"
pygments_dark_style = "monokai"
