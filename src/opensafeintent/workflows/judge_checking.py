"""Check judges on the anchor cases before they are relied on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from opensafeintent.calls.client import Client, Tally
from opensafeintent.calls.http import HttpSession
from opensafeintent.calls.ledger import open_for_run
from opensafeintent.calls.models import Price, cost_of
from opensafeintent.calls.progress import Display, Quiet, shown
from opensafeintent.calls.records import Sampling
from opensafeintent.errors import InputError, JudgeFailed
from opensafeintent.evaluation.anchors import GRADE_NAMES, load_anchors
from opensafeintent.evaluation.forecast import expected_calls
from opensafeintent.evaluation.judge_check import (
    PASS_MARK,
    Examination,
    JudgeCheck,
    check_work,
    verdict,
    with_checks,
)
from opensafeintent.evaluation.manifest import Manifest, RunFolder
from opensafeintent.evaluation.records import GradedResponse
from opensafeintent.evaluation.run import run_work
from opensafeintent.files import locked_folder, write_private
from opensafeintent.interop.models import open_models
from opensafeintent.templates import ParseRule, load_templates
from opensafeintent.workflows.loop import run_async

__all__ = ["JudgeCheckSettings", "JudgeChecks", "check_judges", "checked", "passed_line"]

_COUNTS = ("judge_max_tokens", "max_connections")
_SCHEMA = 1


class JudgeCheckSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Which judges to check, how they are asked, and where the result goes."""

    judges: tuple[str, ...]
    rubrics: Path | None = None
    grade_parse: ParseRule = "strict"
    judge_max_tokens: int = 2048
    max_connections: int | None = None
    out: Path = Path("runs/judge-check")
    ledger: Path | None = None
    """A ledger that is shared with runs; one in the folder of results by default."""
    pass_mark: float = PASS_MARK
    """Least share of accepted cases."""

    def __post_init__(self) -> None:
        for name in _COUNTS:
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InputError(f"--{name.replace('_', '-')} is {value}; expected at least 1")
        if not 0 <= self.pass_mark <= 1:
            raise InputError(f"--pass is {self.pass_mark}; expected a share from 0 to 1")
        if not self.judges:
            raise InputError("no judge: name at least one with --judge")


class JudgeChecks(msgspec.Struct, kw_only=True):
    """What a check found, and how it ended."""

    exit_code: int
    """0 every judge passed; 4 one did not."""
    out: Path
    """The file with every result."""
    checks: tuple[JudgeCheck, ...]
    notes: list[str]
    """What a reader should know, a line each."""
    tally: Tally


def check_judges(settings: JudgeCheckSettings, display: Display | None = None) -> JudgeChecks:
    """Put the anchor cases to judges, and hold what they say against what the rubrics allow.

    Running again is resuming: what the ledger holds is not asked for again.

    Raises:
        InputError: something in the settings is not usable.
        Stopped: a provider ended the check; what was answered is kept.
    """
    examination = Examination(
        anchors=load_anchors(),
        duties=dict.fromkeys(settings.judges, GRADE_NAMES),
        templates=load_templates(settings.rubrics),
        parse=settings.grade_parse,
        sampling=Sampling(max_tokens=settings.judge_max_tokens, temperature=0.0),
        pass_mark=settings.pass_mark,
    )
    with locked_folder(settings.out, "checking a judge into"):
        return run_async(lambda: _check(settings, examination, display or Quiet()))


async def _check(settings: JudgeCheckSettings, examination: Examination, display: Display) -> JudgeChecks:
    async with HttpSession(settings.max_connections) as http:
        opened = open_models(examination.duties, http)
        identities = {name: model.identity for name, model in opened.items()}
        with open_for_run(settings.ledger or settings.out / "ledger.sqlite", own=settings.ledger is None) as ledger:
            client = Client(ledger, opened)
            checks = await _examine(client, examination, identities, display, max_connections=settings.max_connections)
    path = settings.out / "judge-check.json"
    write_private(path, _file(checks))
    return JudgeChecks(
        exit_code=0 if all(check.passed for check in checks) else JudgeFailed.exit_code,
        out=path,
        checks=checks,
        notes=[*client.notices, *(f"{name}: a call that failed said: {error}" for name, error in client.last_errors.items())],
        tally=client.tally,
    )


async def _examine(
    client: Client,
    examination: Examination,
    identities: Mapping[str, str],
    display: Display,
    *,
    max_connections: int | None = None,
    prices: Mapping[str, Price] | None = None,
) -> tuple[JudgeCheck, ...]:
    """Make the calls of a check and judge the judges.

    Raises:
        Stopped: a judge does not answer any more, or a budget is used up.
    """
    work = check_work(examination)
    graded: list[GradedResponse] = []
    total = expected_calls(work)
    at_once = 2 * max_connections if max_connections else len(examination.anchors.cases)
    cost = (lambda: cost_of(client.tally.tokens, prices)) if prices else (lambda: None)
    async with shown(display, client, lambda: total, cost):
        await run_work(client, work, at_once=at_once, done=graded.append)
    return verdict(examination, identities, graded)


async def checked(
    client: Client,
    folder: RunFolder,
    manifest: Manifest,
    examination: Examination,
    display: Display,
    *,
    max_connections: int | None,
    prices: Mapping[str, Price],
) -> tuple[JudgeCheck, ...]:
    """Check the judges of a run before anything else is asked, and return their checks, all of them passed.

    Raises:
        JudgeFailed: a judge failed. A run that is there already keeps the check, and nothing else of the new evaluation.
        Stopped: a judge does not answer any more, or a budget is used up.
    """
    checks = await _examine(
        client, examination, manifest.identities(), display, max_connections=max_connections, prices=prices
    )
    failed = [check for check in checks if not check.passed]
    if failed and folder.exists():
        before = folder.load()[0]
        folder.save(msgspec.structs.replace(before, judge_checks=with_checks(before.judge_checks, checks)))
    if failed:
        lines = [f"{check.judge}: failed its check, {_count(check)}: {'; '.join(check.reasons)}" for check in failed]
        ledger = folder.ledger_path(manifest)
        show = f"no model was asked; judge-check with the same judge options and --ledger {ledger} shows the cases"
        raise JudgeFailed(*lines, show)
    return checks


def passed_line(check: JudgeCheck) -> str:
    """Say that a judge passed."""
    return f"{check.judge}: passed its check, {_count(check)}"


def _count(check: JudgeCheck) -> str:
    return f"{check.accepted} of {check.cases} cases accepted"


def _file(checks: Sequence[JudgeCheck]) -> bytes:
    shown: list[dict[str, Any]] = [
        {
            **msgspec.to_builtins(check),
            **{name: getattr(check, name) for name in ("accepted", "cases", "missing", "passed", "reasons")},
        }
        for check in checks
    ]
    content = msgspec.json.encode({"schema": _SCHEMA, "checks": shown}, order="sorted")
    return msgspec.json.format(content, indent=1) + b"\n"
