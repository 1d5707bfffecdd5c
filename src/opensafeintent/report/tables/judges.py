"""How the judges did on the anchor cases."""

from __future__ import annotations

from collections.abc import Sequence

from opensafeintent.analysis.groups import Group
from opensafeintent.analysis.judge_checks import CheckedJudge, checked_judges
from opensafeintent.hostile import one_line
from opensafeintent.report.tables.lead import shown_group
from opensafeintent.report.tables.record import Cell, Column, Table
from opensafeintent.statistics import wilson

__all__ = ["judge_checks"]

_COLUMNS = ("group", "judge", "state", "kind", "accepted", "cases", "share", "share_low", "share_high", "not_accepted")


def judge_checks(groups: Sequence[Group]) -> Table:
    """Return the accepted anchor cases of every judge that was checked, by kind of case and over all."""
    checked = [(number, item) for number, group in enumerate(groups, start=1) for item in checked_judges(group)]
    judges = {item.judge for _, item in checked if item.check is not None}
    return Table(
        name="judge_check",
        title="Judge check: accepted anchor cases by kind",
        columns=_COLUMNS,
        rows=tuple(row for number, item in checked for row in _rows(number, item)),
        shown=(
            *shown_group(groups),
            *([Column("judge", "Judge", "name")] if len(judges) > 1 else []),
            Column("kind", "Kind of case", "name"),
            Column("accepted", "Accepted", "count"),
            Column("cases", "Cases", "count"),
            Column("not_accepted", "Not accepted"),
        ),
        notes=(
            *dict.fromkeys(line for _, item in checked if (line := _line(item))),
            "Anchor cases are prompts and responses whose acceptable grades are known; a case is accepted when every grade "
            "of the judge is. Brackets hold Wilson’s 95 % interval.",
        ),
    )


def _rows(number: int, item: CheckedJudge) -> list[tuple[Cell, ...]]:
    if item.check is None:
        return []
    failed = {
        kind.kind: "; ".join(f"{case.id}: {case.told}" for case in item.check.failed if case.kind == kind.kind)
        for kind in item.check.kinds
    }
    counts = [(kind.kind, kind.accepted, kind.cases, failed[kind.kind]) for kind in item.check.kinds]
    return [
        (number, item.judge, item.state, kind, accepted, cases, accepted / cases, *wilson(accepted / cases, cases), wrong)
        for kind, accepted, cases, wrong in [*counts, ("all", item.check.accepted, item.check.cases, "")]
    ]


def _line(item: CheckedJudge) -> str:
    if item.check is None:
        return ""
    low, high = item.interval
    count = f"{item.check.accepted} of {item.check.cases} cases accepted [{100 * low:.0f}, {100 * high:.0f} %]"
    how = {
        "passed": f"passed, {count}.",
        "failed": f"failed, {count}: {'; '.join(item.check.reasons)}.",
        "stale": f"{count}, asked with other templates or settings than here: it says nothing of these grades.",
    }
    return f"{one_line(item.judge, 80)}: {how[item.state]}"
