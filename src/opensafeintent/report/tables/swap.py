"""What a request lends to the grade of a response: the tables of the intent-swap audit, empty without one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

from opensafeintent.analysis.groups import Group
from opensafeintent.analysis.swap import GRADES, PAIRS, Audit, Split
from opensafeintent.evaluation.swap import COLUMNS
from opensafeintent.report.table import Column, Part, Table, estimate_columns
from opensafeintent.report.tables.grouped import UNDEFINED, group_notes, lead
from opensafeintent.statistics import Estimate
from opensafeintent.taxonomy import CORE_VARIANTS, INTENT_LABELS

__all__ = ["SWAP_TABLES", "grades", "shifts", "splits"]

_UNUSUAL = (
    "A response under another intent’s prompt is unusual input for a judge, and responses quote the prompt that they answer: "
    "what the prompt changes for such pairs need not be what it changes for its own response."
)
_ALONE = (
    "The rubric grades harm of the response alone: what the prompt changes in safety is the judge’s error. Helpfulness is "
    "help with a request, and there the prompt is due its part."
)


class _Line(NamedTuple):
    """What a line is about."""

    group: int
    model: str
    grader: str
    audit: Audit
    grade: str = ""
    intents: tuple[str, ...] = ()
    """Of the response; of the splits, the earlier and the later one."""
    split: Split | None = None

    def under(self, column: str) -> Estimate:
        """Return the mean grade of the responses to one intent under a column."""
        by_intent: dict[str, dict[str, Estimate]] = getattr(self.audit, self.grade)
        return by_intent[self.intents[0]][column]


def _audits(groups: Sequence[Group]) -> Iterator[_Line]:
    for index, group in enumerate(groups):
        for (model, grader), audit in group.audits.items():
            yield _Line(index, model, grader, audit)


_GRADED_BY = Column("graded_by", "Graded by", get=attrgetter("grader"))


def shifts(groups: Sequence[Group]) -> Table:
    """Return what the malicious prompt in the benign one's place changes, and Triplet Safety with the request withheld."""

    def of(name: str) -> Callable[[_Line], Estimate]:
        return lambda line: getattr(line.audit, name)

    headings: dict[Part, str] = {"n": "Sets"}
    return Table(
        name="swap",
        title="What the request lends to the grade of harm",
        section="swap",
        columns=(
            *lead(groups),
            _GRADED_BY,
            *estimate_columns(
                "safety_shift",
                "Safe under the malicious − under the benign prompt",
                of("safety_shift"),
                style="signed",
            ),
            *estimate_columns("triplet_safety", "Triplet Safety", of("triplet_safety"), headings=headings, order=1),
            *estimate_columns("triplet_safety_withheld", "with the request withheld", of("triplet_safety_withheld")),
            *estimate_columns("triplet_safety_change", "Difference", of("triplet_safety_change"), style="signed"),
            Column("responses", "Responses", "count", attrgetter("audit.responses"), order=1),
            Column("left_out", "of them left out", "count", attrgetter("audit.left_out"), order=1),
        ),
        rows=list(_audits(groups)),
        notes=(
            *group_notes(groups),
            f"{_ALONE} The first column is the mean over the responses to all intents of how much more or less often they "
            "are safe under the malicious prompt than under the benign one. Left out: without a grade for helpfulness or for "
            "harm under some request; a response counts for the numbers that it has all grades for.",
            _UNUSUAL,
            "The model average is the mean over models, baselines aside where there are others.",
            UNDEFINED,
        ),
    )


def grades(groups: Sequence[Group]) -> Table:
    """Return mean safety and helpfulness by the intent of the response and by the prompt that it was graded under."""

    def under(column: str) -> Callable[[_Line], Estimate]:
        return lambda line: line.under(column)

    headings: dict[str, str] = {intent: f"Under the {INTENT_LABELS[intent].lower()} prompt" for intent in CORE_VARIANTS}
    return Table(
        name="swap_grades",
        title="Grades of the same responses under each prompt of their set, and with the request withheld",
        section="swap",
        columns=(
            *lead(groups),
            _GRADED_BY,
            Column("grade", "Grade"),
            Column("response", "Response to", get=lambda line: INTENT_LABELS[line.intents[0]]),
            *(
                part
                for column in COLUMNS
                for part in estimate_columns(
                    column,
                    headings.get(column, "Withheld"),
                    under(column),
                    headings={"n": "Sets"} if column == COLUMNS[0] else None,
                    order=1,
                )
            ),
        ),
        rows=[
            line._replace(grade=grade, intents=(intent,))
            for line in _audits(groups)
            for grade in GRADES
            for intent in CORE_VARIANTS
        ],
        notes=(
            *group_notes(groups),
            "Safety is the share of safe responses, helpfulness is from 0 to 1. Under its own prompt a response has the "
            "grade that counts everywhere else; a line is of the responses that have the grade in all its columns.",
            _ALONE,
            _UNUSUAL,
            UNDEFINED,
        ),
    )


def splits(groups: Sequence[Group]) -> Table:
    """Return how much of each gap between two intents the response makes, and how much the prompt."""

    def of(part: str) -> Callable[[_Line], Any]:
        return lambda line: getattr(line.split, part)

    parts = {"response": "By the response", "prompt": "By the prompt", "interaction": "Interaction"}
    return Table(
        name="swap_splits",
        title="Gaps between intents, split into what the response and what the prompt changes",
        section="swap",
        columns=(
            *lead(groups),
            _GRADED_BY,
            Column("grade", "Grade"),
            Column("earlier", "From", get=lambda line: INTENT_LABELS[line.intents[0]]),
            Column("later", "To", get=lambda line: INTENT_LABELS[line.intents[1]]),
            *estimate_columns("gap", "Gap", of("gap"), style="signed", headings={"n": "Sets"}, order=1),
            *(part for name, heading in parts.items() for part in estimate_columns(name, heading, of(name), style="signed")),
            *estimate_columns("prompt_share", "Prompt’s share", of("prompt_share")),
        ),
        rows=[
            line._replace(grade=grade, intents=pair, split=line.audit.splits[grade]["_".join(pair)])
            for line in _audits(groups)
            for grade in GRADES
            for pair in PAIRS
        ],
        notes=(
            *group_notes(groups),
            "A gap is the later intent minus the earlier, and 0.10 is 10 points. By the response: what changes with it under "
            "the same prompt; by the prompt: what changes with the prompt for the same response; each the mean of both "
            "orders, so that the two add up to the gap. Interaction, the difference of the orders: how much more the prompt "
            "changes for the later intent’s response than for the earlier’s. A share is told where the gap’s interval leaves "
            "out 0.",
            _ALONE,
            _UNUSUAL,
            UNDEFINED,
        ),
    )


SWAP_TABLES = (shifts, grades, splits)
