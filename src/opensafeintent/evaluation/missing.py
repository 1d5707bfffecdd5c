"""Why responses and grades are missing, and what changes it: said on the terminal, on the page and
in docs/missing-grades.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple, get_args

from opensafeintent.responses import NO_FIRST_REPLY, TIE, GradedResponse
from opensafeintent.taxonomy import (
    CORE_VARIANTS,
    METRIC_GRADES,
    QUESTIONS,
    SCALES,
    Graded,
    is_follow_up,
)

AnswerKind = Literal["response", "grade", "mode", "strategy", "checklist", "guard"]

# fmt: off
Kind = Literal[
    "core", "paraphrase", "panel", "mode", "strategy", "checklist", "guard", "follow_ups",
    "retest", "swap", "turn", Graded,
]
# fmt: on
KINDS: dict[Kind, str] = {
    "core": "core grades",
    "paraphrase": "paraphrase grades",
    "panel": "grades of single judges",
    "mode": "modes",
    "strategy": "strategies",
    "checklist": "checklists",
    "guard": "guard verdicts",
    "follow_ups": "second-turn grades",
    "retest": "retests",
    "swap": "request swaps",
    "turn": "turn audits",
    **{
        question.grade: f"{question.label} grades"
        for question in QUESTIONS
        if not question.in_metrics
    },
}
"""What is asked about a response, in words. Missing answers are counted by kind, as responses: one
that lacks both grades counts once. A grade that no metric is computed from is a kind of its own.
"""

LEFT_OUT = "left_out"
"""The reason of an answer that a judge left out of its replies, in which others are."""

UNPARSED = ("unparsed", "declined", "reasoning_only", "unknown_mark", LEFT_OUT)
"""Reasons that lie in the form of a reply: of a judge's grade, and of a guard's verdict."""

Assumption = Literal["random", "odds", "any"]
"""What a missing value is assumed to be.

- `random`: like the values of comparable responses. The cause knows nothing of the response.
- `odds`: unsafe at up to `--missing-odds` times the odds of comparable responses. Long answers meet
  the cause more often, and harmful help is long.
- `any`: every value is possible. The cause reads the response, or may.
"""
ASSUMPTIONS: tuple[Assumption, ...] = get_args(Assumption)
"""The most lenient first."""


class MissingReason(NamedTuple):
    """One reason, as the column `missing` of `grades.csv.gz` has it."""

    lacking: AnswerKind
    """A mode, strategy or verdict of the guard without a record of its own has that of a grade."""
    names: tuple[str, ...]
    """Without `failed:` of a judge's call, and without what follows another colon."""
    meaning: str
    """A clause."""
    assumed: Assumption
    """The strictest that its cause allows."""
    again: bool
    """Whether the same command, run again, can bring it."""
    action: str = ""
    """What else can, in the imperative."""
    of_imports: bool = False
    """Whether only an imported response can be missing for it."""

    def advice(self, *, imported: bool) -> str:
        """Return what changes it, in the imperative.

        Args:
            imported: whether another tool made the responses.
        """
        if imported and self.lacking == "response" and not self.of_imports:
            return "ask that model again with the tool that made the file, and import again"
        again = "opensafeintent grade RUN" if imported else "run the same command again"
        parts = (again if self.again else "", self.action)
        return "; else ".join(filter(None, parts))


_READ_ERROR = "read the error"
_LIMITS = "lower --max-connections, or raise --retry-for"

MISSING_REASONS = (
    MissingReason(
        "response",
        ("truncated",),
        "the token limit was reached before the response began",
        assumed="odds",
        again=False,
        action="use a larger --max-tokens and a new --out",
    ),
    MissingReason(
        "response",
        ("reasoning_only",),
        "the model reasoned and wrote no text",
        assumed="odds",
        again=True,
        action=("use a larger --max-tokens or a lower --reasoning-effort, and a new --out"),
    ),
    MissingReason(
        "response",
        ("stop_reason",),
        "the reply holds no text, and its stop reason tells no more",
        assumed="any",
        again=False,
        action="look the reason up at the provider",
    ),
    MissingReason(
        "response",
        ("no_answer",),
        "the reply holds no text",
        assumed="odds",
        again=True,
        action="read the reply",
    ),
    MissingReason(
        "response",
        ("broken_off", "malformed"),
        "the reply broke off or could not be read",
        assumed="odds",
        again=True,
        action=_READ_ERROR,
    ),
    MissingReason(
        "response",
        ("connection",),
        "no connection was made, or it was lost",
        assumed="random",
        again=True,
        action=_READ_ERROR,
    ),
    MissingReason(
        "response",
        ("server", "timeout"),
        "the server failed, or took too long",
        assumed="odds",
        again=True,
        action=_READ_ERROR,
    ),
    MissingReason(
        "response",
        ("expired",),
        "its batch expired with no answer to any call",
        assumed="random",
        again=True,
    ),
    MissingReason(
        "response",
        ("raised", "provider"),
        "the call failed with an error that no table has",
        assumed="any",
        again=True,
        action=_READ_ERROR,
    ),
    MissingReason(
        "response",
        ("rate_limited", "open_files"),
        "limits held up",
        assumed="random",
        again=True,
        action=_LIMITS,
    ),
    MissingReason(
        "response",
        ("rejected", "forbidden"),
        "the provider did not accept the request",
        assumed="any",
        again=False,
        action=f"{_READ_ERROR}, or use another endpoint",
    ),
    MissingReason(
        "response",
        ("unsupported_field",),
        "the provider did not accept a field of the request",
        assumed="random",
        again=False,
        action=f"{_READ_ERROR}, or use another endpoint",
    ),
    MissingReason(
        "response",
        ("unauthorized", "no_credit", "unknown_model", "certificate", "unusable"),
        "the model was stopped",
        assumed="random",
        again=False,
        action="fix the key, account, name or certificate that the error names, and run again",
    ),
    MissingReason(
        "response", ("not_made",), "the run was stopped before", assumed="random", again=True
    ),
    MissingReason(
        "response",
        (NO_FIRST_REPLY,),
        "the dual-use prompt got no reply with text",
        assumed="any",
        again=False,
        action="see why the reply to the dual-use prompt is missing",
    ),
    MissingReason(
        "response",
        ("withheld",),
        "an export left the unsafe response out",
        assumed="any",
        again=False,
        action="export with --include-unsafe, and import again",
        of_imports=True,
    ),
    MissingReason(
        "response",
        ("failed",),
        "another tool reports an error in place of the response",
        assumed="any",
        again=False,
        action="ask that model again with that tool",
        of_imports=True,
    ),
    MissingReason(
        "response",
        ("reasoning_mixed",),
        "another tool wrote reasoning and answer as one text",
        assumed="odds",
        again=False,
        action="set showThinking: false in promptfoo, and ask that model again",
        of_imports=True,
    ),
    MissingReason(
        "response",
        ("not_recorded",),
        "the imported file does not have it",
        assumed="any",
        again=False,
        action="import a file that does",
        of_imports=True,
    ),
    MissingReason(
        "grade",
        ("unparsed",),
        "a judge’s three replies had the wrong form",
        assumed="odds",
        again=False,
        action="read some, then replace the judge or take three",
    ),
    MissingReason(
        "grade",
        ("declined",),
        "a judge’s last reply has neither a number nor JSON, and may be a refusal to grade",
        assumed="any",
        again=False,
        action="read some, then replace the judge or take three",
    ),
    MissingReason(
        "mode",
        ("declined",),
        "the mode judge’s last reply has neither a number nor JSON, and may be a refusal",
        assumed="any",
        again=False,
        action="read them, and use another --mode-judge",
    ),
    MissingReason(
        "mode",
        ("unparsed",),
        "the mode judge’s three replies had the wrong form",
        assumed="odds",
        again=False,
        action="read them, and use another --mode-judge",
    ),
    MissingReason(
        "strategy",
        ("unparsed", "unknown_mark"),
        "the model’s three replies to the probe had the wrong form",
        assumed="odds",
        again=False,
        action="read them",
    ),
    MissingReason(
        "strategy",
        ("truncated", "reasoning_only"),
        "the token limit cut the model’s three replies to the probe, or they hold no text",
        assumed="odds",
        again=False,
        action="use a larger --max-tokens and a new --out",
    ),
    MissingReason(
        "strategy",
        ("declined",),
        "the model’s last reply to the probe has neither a number nor JSON, and may be a refusal",
        assumed="any",
        again=False,
        action="read them",
    ),
    MissingReason(
        "strategy",
        ("filtered",),
        "a content filter stopped the model’s reply to the probe",
        assumed="any",
        again=False,
        action="use an endpoint without a filter",
    ),
    MissingReason(
        "checklist",
        (LEFT_OUT,),
        "a judge’s three replies leave a question of the set without yes or no",
        assumed="any",
        again=False,
        action="read them, and word the question more clearly or use another judge",
    ),
    MissingReason(
        "checklist",
        (TIE,),
        "as many judges of the panel say yes as say no",
        assumed="odds",
        again=False,
        action="use an odd number of judges",
    ),
    MissingReason(
        "guard",
        ("unparsed", "reasoning_only", "unknown_mark"),
        "the guard’s reply had the wrong form",
        assumed="odds",
        again=False,
        action="ask the guard in a new run with the --guard-form that it has",
    ),
    MissingReason(
        "guard",
        ("truncated", "filtered"),
        "the guard’s reply was cut or filtered",
        assumed="any",
        again=False,
        action="read one",
    ),
    MissingReason(
        "grade",
        ("reasoning_only",),
        "a judge’s three replies hold reasoning and no text",
        assumed="odds",
        again=False,
        action=(
            "raise --judge-arg max_tokens=N, or state --judge-arg reasoning_effort=low, with a new"
            " --out"
        ),
    ),
    MissingReason(
        "grade",
        ("unknown_mark",),
        "a judge’s three replies begin with reasoning under unknown marks",
        assumed="odds",
        again=False,
        action="turn its reasoning off with --judge-arg, or use another judge",
    ),
    MissingReason(
        "grade",
        ("truncated",),
        "the token limit cut a judge’s three replies",
        assumed="odds",
        again=False,
        action="use a larger --judge-arg max_tokens=N and a new --out",
    ),
    MissingReason(
        "grade",
        ("filtered",),
        "a content filter stopped the judge",
        assumed="any",
        again=False,
        action="use a --judge without a filter",
    ),
    MissingReason(
        "grade",
        ("not_recorded",),
        "the imported file does not have it",
        assumed="any",
        again=False,
        action="import it, or have judges grade the responses",
    ),
    MissingReason(
        "grade", ("not_made",), "the run was stopped before", assumed="random", again=True
    ),
    MissingReason(
        "grade",
        ("not_graded",),
        "no judge was asked",
        assumed="any",
        again=False,
        action="use opensafeintent grade",
    ),
)
"""Every reason that this program gives. A failed call of a judge has those of a response's call."""

_OTHER = MissingReason(
    "grade",
    (),
    "a file gives another reason",
    assumed="any",
    again=False,
    action="import or grade it",
)


def make_missing_reason(what: str, reason: str) -> MissingReason:
    """Return the record of a reason.

    Args:
        what: `response`, `guard`, or the grade that is missing.
        reason: as the column `missing` has it, behind its first colon.
    """
    name, _, kind = reason.partition(":")
    if what != "response" and name == "failed" and kind:
        what, name = "response", kind.partition(":")[0]
    for lacking in (what,) if what == "response" else (what, "grade"):
        for record in MISSING_REASONS:
            if record.lacking == lacking and name in record.names:
                return record
    return _OTHER


class OpenQuestion(NamedTuple):
    """A question about a response that got no answer."""

    kind: Kind
    what: str
    """As the column `missing` has it, or `guard`."""
    reason: str
    judge: str
    """The judge that was asked; empty if it is the only one, or the model was."""

    @property
    def record(self) -> MissingReason:
        """The record of the reason."""
        return make_missing_reason(self.what, self.reason)


def yield_missing(row: GradedResponse) -> Iterator[OpenQuestion]:
    """Yield every question about a response that got no answer. One that was not asked is none of
    them, such as the probe of a safe response, or a second message without a first reply.
    """
    for item in row.missing:
        match item.what:
            case "grades":
                continue
            case "mode":
                yield OpenQuestion("mode", "mode", item.reason, row.mode_judge)
            case "strategy":
                yield OpenQuestion("strategy", "strategy", item.reason, "")
            case "checklist":
                yield OpenQuestion("checklist", "checklist", item.reason, item.judge)
            case "response":
                if item.reason != NO_FIRST_REPLY:
                    of_answers = row.judge_by == "questions"
                    kind: Kind = "checklist" if of_answers else _name_kind(row)
                    yield OpenQuestion(kind, "response", item.reason, "")
            case what:
                yield OpenQuestion(_name_grade_kind(row, what), what, item.reason, item.judge)
    if row.guard_reason:
        yield OpenQuestion("guard", "guard", row.guard_reason, "")


def kinds_asked(row: GradedResponse) -> set[Kind]:
    """Return the kinds of questions that were asked about a response. Grades are one of them even
    if no judge was asked yet: their share is of all responses.
    """
    by_rubric = row.judge_by != "questions"
    others: dict[Kind, bool] = {
        _name_kind(row): by_rubric and row.reason("response") != NO_FIRST_REPLY,
        "panel": by_rubric and len(row.by_judge) > 1,
        "checklist": row.answers is not None or not by_rubric,
        "mode": row.mode is not None,
        "strategy": row.strategy is not None,
        "guard": bool(row.guard),
        **{
            grade: row.panel(grade) is not None and not is_follow_up(row.variant)
            for grade in SCALES
            if grade not in METRIC_GRADES
        },
    }
    missing = {part.kind for part in yield_missing(row)}
    return missing | {kind for kind, was_asked in others.items() if was_asked}


def _name_grade_kind(row: GradedResponse, what: Graded) -> Kind:
    """Return the kind of a grade that a judge did not give: the panel may have it all the same."""
    needed = what in METRIC_GRADES
    if row.panel(what) is not None and (row.has_all_grades or not needed):
        return "panel"
    return _name_kind(row) if needed or is_follow_up(row.variant) else what


def _name_kind(row: GradedResponse) -> Kind:
    if is_follow_up(row.variant):
        return "follow_ups"
    return "core" if row.variant in CORE_VARIANTS else "paraphrase"


def find_most_frequent(
    rows: Iterable[GradedResponse], kind: Kind
) -> tuple[MissingReason, GradedResponse] | None:
    """Return why answers of a kind are missing most often, with the first response that lacks one;
    None if none is missing of these responses.
    """
    causes: dict[MissingReason, list[GradedResponse]] = {}
    for row in rows:
        for part in yield_missing(row):
            if part.kind == kind:
                causes.setdefault(part.record, []).append(row)
    if not causes:
        return None
    most = max(causes, key=lambda record: len(causes[record]))
    return most, causes[most][0]


def assume_value(row: GradedResponse, *parts: str) -> int:
    """Return what is assumed of missing parts of a response, counted from 1 in ASSUMPTIONS: the
    strictest of their reasons; 0 if none is missing.

    Args:
        row: the response.
        parts: as the column `missing` has them.
    """
    if not row.missing:  # as most
        return 0
    return max(
        (
            1 + ASSUMPTIONS.index(make_missing_reason(item.what, item.reason).assumed)
            for item in row.missing
            if item.what in parts
        ),
        default=0,
    )
