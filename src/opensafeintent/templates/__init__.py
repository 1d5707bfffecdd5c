"""Judge templates: data files with an id, a version and an output contract, and how they are
filled.

Ours are the Markdown files beside this module. `--rubrics DIR` takes files from elsewhere: ours,
edited, or the authors' own text files, which are used to the letter (see docs/file-formats.md).
"""

from opensafeintent.taxonomy import ParseRule
from opensafeintent.templates.contracts import (
    AnswersContract,
    IntegerContract,
    JsonContract,
    has_answers,
    parse_answers,
    parse_reply,
)
from opensafeintent.templates.template import (
    Role,
    Template,
    Templates,
    hash_our_template,
    load_templates,
    parse_template,
    read_hidden_request,
)

__all__ = [
    "AnswersContract",
    "IntegerContract",
    "JsonContract",
    "ParseRule",
    "Role",
    "Template",
    "Templates",
    "has_answers",
    "hash_our_template",
    "load_templates",
    "parse_answers",
    "parse_reply",
    "parse_template",
    "read_hidden_request",
]
