"""Checks of a run's judges that were made elsewhere: by calls in its ledger, or in a folder of
`judge-check`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from opensafeintent.calls.ledger import Ledger
from opensafeintent.calls.records import Sampling
from opensafeintent.commands.checking_judges import JudgeFile
from opensafeintent.evaluation.forecast import asked_in
from opensafeintent.evaluation.gold_cases import (
    AnchorSetting,
    Examination,
    JudgeCheck,
    check_work,
    duties_of,
    load_gold_cases,
    verdict,
    with_checks,
    with_served,
)
from opensafeintent.evaluation.manifest import Manifest
from opensafeintent.evaluation.pipeline import ModelWork
from opensafeintent.evaluation.replay import replay
from opensafeintent.numbers.cohort import GradedRun
from opensafeintent.numbers.label_checks import LabelCheck


def with_known_checks(run: GradedRun, ledger: Ledger, files: Sequence[JudgeFile]) -> GradedRun:
    """Return a run with every check of its judges: its own, those whose calls are in its ledger,
    and those of files.

    Args:
        run: the run.
        ledger: of the run.
        files: results of `judge-check`.
    """
    manifest = run.manifest
    of_files = [check for file in files for check in file.checks if check.judge in manifest.judges]
    known = with_checks(of_files, manifest.judge_checks)
    found = [*_checks_in(ledger, manifest, known)]
    return run._replace(
        manifest=msgspec.structs.replace(manifest, judge_checks=with_checks(known, found))
    )


class KnownChecks(NamedTuple):
    """The part of an examination that was made before."""

    checks: list[JudgeCheck]
    """Of judges that need no further check: they passed or failed."""
    rest: Examination | None
    """Of the other judges; None if there is none."""


def made_before(
    examination: Examination, identities: Mapping[str, str], files: Sequence[JudgeFile]
) -> KnownChecks:
    """Find the checks in results of `judge-check` that an examination would repeat.

    A check that failed counts only if it is of the same grades and misses none: another one might
    pass.

    Args:
        examination: the judges to check.
        identities: of the judges, by name.
        files: results of `judge-check`.
    """
    known: dict[str, JudgeCheck] = {}
    for check in (check for file in files for check in file.checks):
        grades = examination.duties.get(check.judge)
        if (
            grades is not None
            and {*grades} <= {*check.grades}
            and check.identity == identities[check.judge]
            and check.gold_cases == examination.gold.hash
            and check.setting == _asked_for(examination, check)
        ):
            by_this_mark = msgspec.structs.replace(check, min_accuracy=examination.min_accuracy)
            same_grades = {*grades} == {*check.grades}
            if by_this_mark.passed or (same_grades and not check.missing):
                known[check.judge] = by_this_mark
    duties = {judge: of for judge, of in examination.duties.items() if judge not in known}
    rest = msgspec.structs.replace(examination, duties=duties) if duties else None
    return KnownChecks(list(known.values()), rest)


def _asked_for(examination: Examination, check: JudgeCheck) -> AnchorSetting:
    """Return the setting in which an examination would ask for the grades of a check."""
    duties = {check.judge: check.grades}
    return msgspec.structs.replace(examination, duties=duties).setting_of(check.judge)


def labels_of(files: Sequence[JudgeFile]) -> list[LabelCheck]:
    """Return every comparison with people in results of `judge-check`, without its cases."""
    return [msgspec.structs.replace(check, cases=()) for file in files for check in file.labels]


def _checks_in(
    ledger: Ledger, manifest: Manifest, known: Sequence[JudgeCheck]
) -> Iterator[JudgeCheck]:
    """Yield the checks on the gold cases whose calls are all in a ledger, as the judges of a run
    are asked.
    """
    identities = manifest.identities()
    there = {(check.judge, check.identity, _setting(check)) for check in known}
    for examination in _examinations(manifest):
        (work,) = check_work(examination)
        judge = work.model
        if not asked_in(ledger, identities, [_first_case(work)]).whole:
            continue
        asked = asked_in(ledger, identities, [work])
        if not asked.whole:
            continue
        graded = [item.result for item in replay(ledger, identities, work.planned)]
        (check,) = with_served(verdict(examination, identities, graded), asked.served)
        if (judge, check.identity, _setting(check)) not in there:
            yield check


def _setting(check: JudgeCheck) -> bytes:
    return msgspec.json.encode([check.setting, check.grades], order="sorted")


def _first_case(work: ModelWork) -> ModelWork:
    return msgspec.structs.replace(work, tasks=work.tasks[:1])


def _examinations(manifest: Manifest) -> Iterator[Examination]:
    """Yield, for each way in which a judge of the run is asked, the check of it."""
    seen: set[bytes] = set()
    for model, entry in manifest.models.items():
        if not (entry.templates and entry.judges):
            continue  # not graded, or graded elsewhere
        for judge, duties in duties_of([manifest.plan(model)]).items():
            way = msgspec.json.encode([judge, duties, entry.templates, entry.parse], order="sorted")
            if judge in manifest.judges and way not in seen:
                seen.add(way)
                yield Examination(
                    gold=load_gold_cases(),
                    duties={judge: duties},
                    templates=manifest.templates_of(model),
                    parse=entry.parse,
                    sampling=manifest.sampling_of_judge(judge) or Sampling(),
                )
