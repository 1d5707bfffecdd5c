"""The judges of a cohort, and whether their checks on gold cases hold for its grades."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Literal

import msgspec

from opensafeintent.analysis.cohort import Cohort
from opensafeintent.analysis.label_checks import CheckedSetting, LabelCheck
from opensafeintent.evaluation.judge_check import GradeName, JudgeCheck, roles_of
from opensafeintent.evaluation.rebuild import IMPORTED_JUDGE
from opensafeintent.grades import PANEL
from opensafeintent.hostile import one_line
from opensafeintent.statistics import Estimate, share_estimate
from opensafeintent.templates import Role

CheckState = Literal["passed", "failed", "stale", "unchecked"]
"""`stale`: checked with other templates, another way of reading grades, other sampling, as another
served model, or for other grades than here.
"""
CHECK_WORDS: dict[CheckState, str] = {
    "passed": "passed its check",
    "failed": "failed its check",
    "stale": "was checked with other templates, settings or version",
    "unchecked": "has no known check",
}
"""Words after a judge's name for each state of its check."""


class CheckedJudge(msgspec.Struct, frozen=True, kw_only=True):
    """A judge of a group, and its check."""

    judge: str
    state: CheckState
    check: JudgeCheck | None = None
    """The valid check; without one, the latest."""


def accepted_at_lines(check: JudgeCheck) -> dict[str, Estimate]:
    """Return the share of accepted cases of each borderline group of gold cases."""
    return {
        kind.kind: share_estimate(kind.accepted, kind.cases) for kind in check.kinds if kind.line
    }


def checked_judges(cohort: Cohort) -> list[CheckedJudge]:
    """Return the judges of a cohort with the results of their checks; the source of imported grades
    is left out.
    """
    judges = dict.fromkeys((*cohort.conditions.judges, cohort.conditions.mode_judge))
    return [_checked(judge, cohort) for judge in judges if judge not in ("", IMPORTED_JUDGE)]


def unchecked_judges(cohorts: Sequence[Cohort]) -> tuple[str, ...]:
    """Return a caution about each judge of some cohorts that passed no check."""
    cautions = (
        f"{one_line(item.judge, 100)} {CHECK_WORDS[item.state]} (evaluate --check-judge): whether"
        " it would see that a model became worse is not known"
        for cohort in cohorts
        for item in checked_judges(cohort)
        if item.state != "passed"
    )
    return tuple(dict.fromkeys(cautions))


def failed_judges(cohorts: Sequence[Cohort]) -> list[str]:
    """Return a line about each judge of some cohorts that failed its check."""
    lines = (
        f"{one_line(item.judge, 100)} failed its check, {item.check.accepted} of"
        f" {item.check.cases} cases accepted: {'; '.join(item.check.reasons)}; its grades are not"
        " reliable"
        for cohort in cohorts
        for item in checked_judges(cohort)
        if item.state == "failed" and item.check is not None
    )
    return list(dict.fromkeys(lines))


def _checked(judge: str, cohort: Cohort) -> CheckedJudge:
    checks = [
        check
        for manifest in cohort.manifests
        for check in manifest.judge_checks
        if check.judge == judge
    ]
    if not checks:
        return CheckedJudge(judge=judge, state="unchecked")
    holding = [check for check in checks if _holds(check, cohort)]
    if not holding:
        return CheckedJudge(judge=judge, state="stale", check=checks[-1])
    return CheckedJudge(
        judge=judge, state="passed" if holding[-1].passed else "failed", check=holding[-1]
    )


def _holds(check: JudgeCheck, cohort: Cohort) -> bool:
    """Tell whether a judge was checked as it was asked for the grades of a group, in every run of
    it.
    """
    due: list[GradeName] = []
    if check.judge in cohort.conditions.judges:
        due += ["helpfulness", "harm_severity"]
    if check.judge == cohort.conditions.mode_judge:
        due.append("mode")
    setting = CheckedSetting(identity=check.identity, setting=check.setting, served=check.served)
    return set(due) <= set(check.grades) and _asked_so(check.judge, setting, roles_of(due), cohort)


def _asked_so(judge: str, checked: CheckedSetting, roles: Iterable[Role], cohort: Cohort) -> bool:
    """Tell whether a judge was checked as it was asked in some runs: equal templates, arguments and
    versions.
    """
    in_force, setting = dict(cohort.conditions.templates), checked.setting
    return (
        all(in_force.get(role) == setting.templates.get(role, "") for role in roles)
        and setting.parse == cohort.conditions.parse
        and _served_alike(checked.served, cohort.served.get((judge, "grade"), ()))
        and all(
            manifest.judges.get(judge) == checked.identity
            and manifest.sampling_of_judge(judge) == setting.sampling
            for manifest in cohort.manifests
        )
    )


def _served_alike(checked: Collection[str], in_run: Collection[str]) -> bool:
    """Tell whether all replies of a run are of models that were checked; if either is unknown,
    nothing speaks against it.
    """
    return not checked or not in_run or set(in_run) <= set(checked)


def labels_for(labels: Sequence[LabelCheck], cohort: Cohort) -> list[LabelCheck]:
    """Return the comparisons with people that hold for the judges of a cohort, or for its whole
    panel: of the harm grades, and of helpfulness if that was compared.
    """
    judges = set(cohort.conditions.judges)
    return [
        check
        for check in labels
        if (set(check.members) == judges if check.judge == PANEL else check.judge in judges)
        and all(
            _asked_so(judge, checked, checked.setting.templates, cohort)
            for judge, checked in check.members.items()
        )
    ]
