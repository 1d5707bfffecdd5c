"""What is known of a group's judges from the anchor cases, and whether it holds for the grades at hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from opensafeintent.analysis.groups import Conditions, Group
from opensafeintent.evaluation.derive import IMPORTED_JUDGE
from opensafeintent.evaluation.judge_check import GradeName, JudgeCheck, roles_of
from opensafeintent.evaluation.manifest import Manifest
from opensafeintent.statistics import wilson
from opensafeintent.templates import Role

__all__ = ["CheckState", "CheckedJudge", "checked_judges", "checks_json"]

CheckState = Literal["passed", "failed", "stale", "unchecked"]
"""`stale`: checked with other templates, another way of reading grades, other sampling, or for other grades than here."""


class CheckedJudge(msgspec.Struct, frozen=True, kw_only=True):
    """A judge of a group, and its check."""

    judge: str
    state: CheckState
    check: JudgeCheck | None = None
    """The one that holds; where none holds, the latest."""

    @property
    def interval(self) -> tuple[float, float]:
        """Wilson's 95 % interval of the share of accepted cases."""
        assert self.check is not None
        return wilson(self.check.share, self.check.cases)


def checked_judges(group: Group) -> list[CheckedJudge]:
    """Return the judges of a group with what their checks say; whoever gave imported grades is left out."""
    judges = dict.fromkeys((*group.conditions.judges, group.conditions.mode_judge))
    return [_checked(judge, group) for judge in judges if judge not in ("", IMPORTED_JUDGE)]


def _checked(judge: str, group: Group) -> CheckedJudge:
    checks = [check for manifest in group.manifests for check in manifest.judge_checks if check.judge == judge]
    holding = [check for check in checks if _holds(check, group.conditions, group.manifests)]
    if holding:
        return CheckedJudge(judge=judge, state="passed" if holding[-1].passed else "failed", check=holding[-1])
    return (
        CheckedJudge(judge=judge, state="stale", check=checks[-1]) if checks else CheckedJudge(judge=judge, state="unchecked")
    )


def _holds(check: JudgeCheck, conditions: Conditions, manifests: Sequence[Manifest]) -> bool:
    """Tell whether a judge was checked as it was asked for the grades of a group, in every run of it."""
    due = _due(check.judge, conditions)
    in_force = dict(conditions.templates)
    asked: dict[Role, str] = {role: check.setting.templates.get(role, "") for role in roles_of(due)}
    return (
        set(due) <= set(check.grades)
        and all(in_force.get(role) == digest for role, digest in asked.items())
        and check.setting.parse == conditions.parse
        and all(manifest.judges.get(check.judge) == check.identity for manifest in manifests)
        and all(manifest.judge_sampling == check.setting.sampling for manifest in manifests)
    )


def _due(judge: str, conditions: Conditions) -> tuple[GradeName, ...]:
    grades: tuple[GradeName, ...] = ("helpfulness", "harm_severity") if judge in conditions.judges else ()
    return (*grades, "mode") if judge == conditions.mode_judge else grades


def checks_json(group: Group) -> dict[str, dict[str, object]]:
    """Return what `metrics.json` says of the judges' checks, by judge."""
    found: dict[str, dict[str, object]] = {}
    for item in checked_judges(group):
        found[item.judge] = {"state": item.state}
        if item.check is not None:
            low, high = item.interval
            found[item.judge] |= {
                "accepted": item.check.accepted,
                "cases": item.check.cases,
                "ci": [round(low, 6), round(high, 6)],
                "missing": item.check.missing,
                "pass_mark": item.check.pass_mark,
                "reasons": item.check.reasons,
                "kinds": {kind.kind: [kind.accepted, kind.cases] for kind in item.check.kinds},
                "failed": [case.id for case in item.check.failed],
            }
    return found
