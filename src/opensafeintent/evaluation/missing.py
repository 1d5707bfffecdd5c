"""Why responses and grades are missing, and what changes it: said on the terminal, on the page and
in docs/missing-grades.md.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from opensafeintent.errors import option
from opensafeintent.responses import NO_FIRST_REPLY

Lacking = Literal["response", "grade"]

UNPARSED = ("unparsed", "reasoning_only", "unknown_mark")
"""Reasons that lie in the form of a reply: of a judge's grade, and of a guard's verdict."""


class MissingReason(NamedTuple):
    """One reason, as the column `missing` of `grades.csv.gz` has it."""

    lacking: Lacking
    names: tuple[str, ...]
    """Without `failed:` of a judge's call, and without what follows another colon."""
    meaning: str
    """A clause."""
    again: bool
    """Whether the same command, run again, can bring it."""
    action: str = ""
    """What else can, in the imperative."""
    of_imports: bool = False
    """Whether only an imported response can be missing for it."""

    def advice(self, *, imported: bool) -> str:
        """Return what changes it, in the imperative; it names settings by `option`.

        Args:
            imported: whether another tool made the responses.
        """
        if imported and self.lacking == "response" and not self.of_imports:
            return "ask that model again with the tool that made the file, and import again"
        parts = ("run the same command again" if self.again else "", self.action)
        return "; else ".join(filter(None, parts))


_READ_ERROR = "read the error with opensafeintent trace"
_LIMITS = f"lower {option('max_connections')}, or raise {option('retry_for')}"

MISSING_REASONS = (
    MissingReason(
        "response",
        ("truncated",),
        "the token limit was reached before the response began",
        again=False,
        action=f"use a larger {option('max_tokens')} and a new {option('out')}",
    ),
    MissingReason(
        "response",
        ("reasoning_only",),
        "the model reasoned and wrote no text",
        again=True,
        action=(
            f"use a larger {option('max_tokens')} or a lower {option('reasoning_effort')}, and a"
            f" new {option('out')}"
        ),
    ),
    MissingReason(
        "response",
        ("stop_reason",),
        "the reply holds no text, and its stop reason tells no more",
        again=False,
        action="look the reason up at the provider",
    ),
    MissingReason(
        "response",
        ("no_answer",),
        "the reply holds no text",
        again=True,
        action="read the reply with opensafeintent trace",
    ),
    MissingReason(
        "response",
        ("broken_off", "malformed"),
        "the reply broke off or could not be read",
        again=True,
        action=_READ_ERROR,
    ),
    MissingReason(
        "response",
        ("connection", "server", "timeout", "raised", "provider"),
        "the call failed",
        again=True,
        action=_READ_ERROR,
    ),
    MissingReason(
        "response", ("rate_limited", "open_files"), "limits held up", again=True, action=_LIMITS
    ),
    MissingReason(
        "response",
        ("rejected", "forbidden", "unsupported_field"),
        "the provider did not accept the request, such as a prompt beyond the context length",
        again=False,
        action=f"{_READ_ERROR}, or use another endpoint",
    ),
    MissingReason(
        "response",
        ("unauthorized", "no_credit", "unknown_model", "certificate", "unusable"),
        "the model was stopped",
        again=False,
        action="fix the key, account, name or certificate that the error names, and run again",
    ),
    MissingReason("response", ("not_made",), "the run was stopped before", again=True),
    MissingReason(
        "response",
        (NO_FIRST_REPLY,),
        "the dual-use prompt got no reply with text, which a follow-up needs",
        again=False,
        action="see why the reply to the dual-use prompt is missing",
    ),
    MissingReason(
        "response",
        ("withheld",),
        "an export left the unsafe response out",
        again=False,
        action=f"export with {option('include_unsafe')}, and import again",
        of_imports=True,
    ),
    MissingReason(
        "response",
        ("failed",),
        "another tool reports an error in place of the response",
        again=False,
        action="ask that model again with that tool",
        of_imports=True,
    ),
    MissingReason(
        "response",
        ("reasoning_mixed",),
        "another tool wrote reasoning and answer as one text, and no mark is between them",
        again=False,
        action="set showThinking: false in promptfoo, and ask that model again",
        of_imports=True,
    ),
    MissingReason(
        "response",
        ("not_recorded",),
        "the imported file does not have it",
        again=False,
        action="import a file that does",
        of_imports=True,
    ),
    MissingReason(
        "grade",
        ("unparsed",),
        "a judge’s three replies had the wrong form",
        again=False,
        action=(
            "read them with opensafeintent trace, and use another judge or"
            f" {option('grade_parse', 'paper')}"
        ),
    ),
    MissingReason(
        "grade",
        ("reasoning_only",),
        "a judge’s three replies hold reasoning and no text",
        again=False,
        action=(
            f"raise {option('judge_max_tokens')}, or lower the reasoning with"
            f" {option('judge_reasoning_effort')} or"
            f" {option('judge_args')}, with a new {option('out')}"
        ),
    ),
    MissingReason(
        "grade",
        ("unknown_mark",),
        "a judge’s three replies begin with reasoning under unknown marks",
        again=False,
        action=f"turn its reasoning off with {option('judge_args')}, or use another judge",
    ),
    MissingReason(
        "grade",
        ("truncated",),
        "the token limit cut a judge’s three replies",
        again=False,
        action=f"use a larger {option('judge_max_tokens')} and a new {option('out')}",
    ),
    MissingReason(
        "grade",
        ("filtered",),
        "a content filter stopped the judge, so the grades of the worst responses may be missing",
        again=False,
        action=f"use a {option('judges')} without a filter",
    ),
    MissingReason(
        "grade",
        ("not_recorded",),
        "the imported file does not have it",
        again=False,
        action="import it, or have judges grade the responses",
    ),
    MissingReason("grade", ("not_made",), "the run was stopped before", again=True),
    MissingReason(
        "grade",
        ("not_graded",),
        "no judge was asked",
        again=False,
        action="use opensafeintent grade",
    ),
)
"""Every reason that this program gives. A failed call of a judge has those of a response's call."""

_OTHER = MissingReason(
    "grade", (), "a file gives another reason", again=False, action="import or grade it"
)


def missing_reason(what: str, reason: str) -> MissingReason:
    """Return the record of a reason.

    Args:
        what: `response`, or the grade that is missing.
        reason: as the column `missing` has it, behind its first colon.
    """
    lacking: Lacking = "response" if what == "response" else "grade"
    name, _, kind = reason.partition(":")
    if lacking == "grade" and name == "failed" and kind:
        lacking, name = "response", kind.partition(":")[0]
    for record in MISSING_REASONS:
        if record.lacking == lacking and name in record.names:
            return record
    return _OTHER
