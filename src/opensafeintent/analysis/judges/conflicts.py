"""Models that were judged, or asked, by a model of their own maker, and the rankings without them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple
from weakref import WeakKeyDictionary

import msgspec

from opensafeintent.analysis.groups import Group
from opensafeintent.analysis.judges.families import authors_of, family_of, same_model
from opensafeintent.analysis.judges.graders import Pair, Ranking, ranking
from opensafeintent.calls.baselines import is_baseline
from opensafeintent.grades import GradeRow, panel_grade

__all__ = ["Conflict", "Without", "conflicts_of", "without_conflicts"]

Part = Literal["judge", "mode_judge", "wrote", "checked"]
"""What the other model did: it judged responses, or only their modes; it wrote the prompts, or checked them."""


class Conflict(msgspec.Struct, frozen=True, kw_only=True):
    """A model under test, and one that had a hand in its results and is of the same maker."""

    model: str
    other: str
    part: Part
    same: bool
    """Whether the two are one model."""


def conflicts_of(group: Group) -> list[Conflict]:
    """Return the conflicts of a group, judges first. Baselines are nobody's, and a name that tells no maker is in none."""
    judges = group.conditions.judges
    others: list[tuple[str, Part]] = [(judge, "judge") for judge in judges]
    if group.conditions.mode_judge not in judges:
        others.append((group.conditions.mode_judge, "mode_judge"))
    did: dict[str, Part] = {"wrote": "wrote", "checked": "checked"}
    others += [(author, did[what]) for author, what in authors_of(group.dataset).items()]
    return [
        Conflict(model=model, other=other, part=part, same=same_model(model, other))
        for other, part in others
        for model in group.models
        if other and not is_baseline(model) and not is_baseline(other) and _akin(model, other)
    ]


def _akin(model: str, other: str) -> bool:
    family = family_of(model)
    return same_model(model, other) or (family is not None and family == family_of(other))


class Without(NamedTuple):
    """The rankings of a group without its conflicts."""

    left: dict[str, tuple[str, ...]]
    """By model in conflict with a judge: the judges that are not."""
    by_left: dict[tuple[str, ...], Ranking]
    """By some of the judges: the ranking where they alone grade, and grade every model, so that ranks are on equal terms.
    A smaller panel may be stricter than the whole one: values of the two are not."""
    free: tuple[int, ...]
    """Places of the models that are in no conflict that touches the two primary metrics."""

    def others(self, model: str) -> Ranking | None:
        """Return the ranking by the judges without a conflict with a model; None where all are, or none is."""
        return self.by_left.get(self.left.get(model, ()))


_KNOWN: WeakKeyDictionary[Group, Without] = WeakKeyDictionary()


def without_conflicts(group: Group) -> Without:
    """Return the rankings without conflicts: by the other judges, and of the other models."""
    if group not in _KNOWN:
        _KNOWN[group] = _without(group, conflicts_of(group))
    return _KNOWN[group]


def _without(group: Group, conflicts: Sequence[Conflict]) -> Without:
    judging = {(conflict.model, conflict.other) for conflict in conflicts if conflict.part == "judge"}
    left = {
        model: tuple(judge for judge in group.conditions.judges if (model, judge) not in judging)
        for model in dict.fromkeys(model for model, _ in judging)
    }
    touched = {conflict.model for conflict in conflicts if conflict.part != "mode_judge"}
    return Without(
        left=left,
        by_left={
            judges: ranking(group, " + ".join(judges), _panel_of(judges), compared=False)
            for judges in sorted(set(left.values()))
            if judges
        },
        free=tuple(place for place, model in enumerate(group.models) if model not in touched),
    )


def _panel_of(judges: Sequence[str]) -> Callable[[GradeRow], Pair]:
    """Return the grades of a panel of some of the judges."""

    def grades(row: GradeRow) -> Pair:
        pairs = [row.by_judge[judge] for judge in judges if judge in row.by_judge]
        helpfulness, harm = ([pair[what] for pair in pairs] for what in (0, 1))
        return panel_grade("helpfulness", helpfulness), panel_grade("harm_severity", harm)

    return grades
