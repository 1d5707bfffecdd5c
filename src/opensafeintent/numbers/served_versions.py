"""The versions of models that wrote responses and grades, as their servers name them.

A name such as `judge-latest` is an alias: its provider may put another model behind it from one day
to the next, and say so in each reply.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple

from opensafeintent.calls.providers import are_unlike, name_and_version
from opensafeintent.calls.records import Purpose
from opensafeintent.hostile import clean_for_display, clean_name
from opensafeintent.responses import GradedResponse, ServedVersion
from opensafeintent.taxonomy import GRADE_OF, QUESTIONS, Graded

Work = Literal["grade", "verdict", "reply"]
"""The work of a judge, modes included, of a guard model, and of a model under test."""

_WORK: dict[Purpose, Work] = {
    **dict.fromkeys(GRADE_OF, "grade"),
    "mode": "grade",
    "checklist": "grade",
    "guard": "verdict",
    "generate": "reply",
    "probe": "reply",
}

_GRADES: dict[Purpose, Graded] = {question.role: question.grade for question in QUESTIONS}
"""The grade that a question of a purpose asks for."""

Versions = Mapping[tuple[str, Work], Counter[str]]
"""How many pieces of work are by each version, by the name that was asked and the kind of work."""

_MOST_SHOWN = 3

_LEAST_SHARE_INVERSE = 20
"""A version that gave one in so many of a judge's grades in one run has to be in the other."""


def count_versions(rows: Iterable[GradedResponse]) -> Versions:
    """Count the versions behind responses and their grades. A model under test is named as the
    rows name it; replies that name no model, and missing grades, are not counted.
    """
    versions: defaultdict[tuple[str, Work], Counter[str]] = defaultdict(Counter)
    for row in rows:
        for item in row.served:
            work = _WORK[item.purpose]
            if work == "reply":
                versions[row.model, work][item.named] += 1
            elif _is_counted(row, item):
                versions[item.asked, work][item.named] += 1
    return versions


def _is_counted(row: GradedResponse, item: ServedVersion) -> bool:
    """Tell whether a reply of a judge, or of a guard model, could be read."""
    if item.purpose == "mode":
        return row.mode is not None
    if item.purpose == "checklist":
        return bool(row.answers_by_judge.get(item.asked))
    if item.purpose == "guard":
        return not row.guard_reason
    grade = _GRADES.get(item.purpose)
    return grade is not None and row.grade(grade, item.asked) is not None


def are_several(named: Iterable[str]) -> bool:
    """Tell whether names are of more than one version: a dated name is another than a plain one."""
    return len({name_and_version(name) for name in named}) > 1


def describe_versions(counts: Mapping[str, int]) -> str:
    """Return versions, the most frequent first, with counts if they are several: `a (300) and b
    (288)`; empty if there is none.
    """
    if len(counts) <= 1:
        return "".join(map(clean_name, counts))
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    named = [f"{clean_name(name)} ({count:,})" for name, count in ordered[:_MOST_SHOWN]]
    if len(ordered) > _MOST_SHOWN:
        named.append(f"{len(ordered) - _MOST_SHOWN:,} more")
    return f"{', '.join(named[:-1])} and {named[-1]}"


class VersionChange(NamedTuple):
    """A name that is of other versions in a later run than in an earlier one."""

    name: str
    before: Counter[str]
    after: Counter[str]

    @property
    def text(self) -> str:
        """The change in a clause."""
        return (
            f"{clean_for_display(self.name)} answered as {describe_versions(self.before)}, now as"
            f" {describe_versions(self.after)}"
        )

    @property
    def is_another(self) -> bool:
        """Whether a version that did one in 20 of the work in one run did none in the other. A name
        without a version may be any version of it.
        """
        return any(
            _LEAST_SHARE_INVERSE * count >= one.total()
            and all(are_unlike(name, other) for other in another)
            for one, another in ((self.before, self.after), (self.after, self.before))
            for name, count in one.items()
        )
