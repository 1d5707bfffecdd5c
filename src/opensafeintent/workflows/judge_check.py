"""Check judges on the gold cases before they are relied on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from opensafeintent.calls.client import Client
from opensafeintent.calls.headers import Headers, headers_by_model, parse_header
from opensafeintent.calls.http import HttpSession
from opensafeintent.calls.ledger import Ledger
from opensafeintent.calls.ledger_folder import check_not_held
from opensafeintent.calls.progress import Display, display_for
from opensafeintent.calls.service_tiers import FlexPlan
from opensafeintent.errors import JudgeFailed
from opensafeintent.evaluation.forecast import forecast
from opensafeintent.evaluation.judge_check import (
    GRADE_NAMES,
    Examination,
    JudgeCheck,
    check_work,
    load_gold_cases,
    verdict,
    with_checks,
    with_served,
)
from opensafeintent.evaluation.manifest import Manifest, RunFolder
from opensafeintent.evaluation.spent import asked_in
from opensafeintent.files import near, write_private
from opensafeintent.interop import model_identity, open_models, unset_lines
from opensafeintent.replacing import locked_folder, replaced_together
from opensafeintent.report.costs import cost_json
from opensafeintent.workflows.batching import begin_batches, fill_in_batches, need_batches
from opensafeintent.workflows.call_limits import Limits, flex_plan, wait_or_refuse
from opensafeintent.workflows.judge_calls import calls_and_costs, costs_if_stopped, graded_work
from opensafeintent.workflows.judge_files import write_judge_files
from opensafeintent.workflows.label_check import compare_with_people
from opensafeintent.workflows.outcome import Outcome
from opensafeintent.workflows.reproduce import command_line
from opensafeintent.workflows.runtime import run_async
from opensafeintent.workflows.settings import EvaluateSettings, JudgeCheckSettings
from opensafeintent.workflows.settings.base import CHECKS, settings_of
from opensafeintent.workflows.settings.calling import Judges

if TYPE_CHECKING:
    from opensafeintent.extensions.batches.rounds import Batching


def check_judges(settings: JudgeCheckSettings, *, quiet: bool = False) -> Outcome:
    """Send the gold cases to judges, and compare their grades with those that the rubrics allow;
    with `labelled` send responses that people labelled, and compare the grades with the labels.

    Running again is resuming: calls in the ledger are not made again.

    Raises:
        InputError: a setting is not usable, or the folder holds a run or a build.
        Stopped: a provider ended the check; answers so far are kept.
    """
    check_not_held(settings.out)
    if settings.labelled is not None:
        return compare_with_people(settings, quiet=quiet)
    examination = Examination(
        gold=load_gold_cases(),
        duties=dict.fromkeys(settings.judges, GRADE_NAMES),
        templates=settings.judge_templates(),
        parse=settings.grade_parse,
        sampling=settings.judge_sampling,
        samplings=settings.judge_samplings,
        min_accuracy=settings.min_accuracy,
    )
    need_batches(settings, examination.duties)
    identities = {name: model_identity(name, settings.functions) for name in examination.duties}
    flex = flex_plan(settings, identities)
    headers = headers_by_model(settings.header, (), identities, identities)
    with closing(display_for(quiet=quiet)) as screen:
        limits = Limits.of(settings)
        limits.check_prices(identities)
        if settings.dry_run:
            with Ledger(settings.ledger_path, readonly=True, missing_ok=True) as ledger:
                expected = forecast(ledger, identities, check_work(examination))
            return Outcome.forecasting(
                expected, settings, unset_lines(identities, headers), names=examination.duties
            )
        with locked_folder(settings.out, "checking a judge into", wait_or_refuse(settings, screen)):
            check = partial(_check, settings, examination, identities, screen, limits)
            return run_async(lambda: check(flex, headers))


async def _check(
    settings: JudgeCheckSettings,
    examination: Examination,
    identities: Mapping[str, str],
    display: Display,
    limits: Limits,
    flex: FlexPlan,
    headers: Headers,
) -> Outcome:
    work = check_work(examination)
    stopped = costs_if_stopped(settings, identities, work)
    async with HttpSession(settings.max_connections, settings.timeout) as http:
        opened = open_models(identities, http, settings.functions, flex=flex, headers=headers)
        waiting = wait_or_refuse(settings, display)
        with stopped, Ledger(settings.ledger_path, waiting=waiting) as ledger:
            client = Client(ledger, opened, limits)
            batching = await begin_batches(settings, client, opened, http, display)
            checks = await _examine(client, examination, identities, display, limits, batching)
    asked, costs = calls_and_costs(settings, identities, work)
    checks = with_served(checks, asked.served)
    with replaced_together(settings.out) as new:
        write_private(new / "cost.json", cost_json(costs))
        files = write_judge_files(settings.out, new, checks=checks, left_out=client.left_out)
    return Outcome(
        exit_code=0 if all(check.passed for check in checks) else JudgeFailed.exit_code,
        out=settings.out,
        checks=checks,
        judge_files=files,
        following=_evaluation_command(settings),
        costs=costs,
    ).with_calls(client)


async def _examine(
    client: Client,
    examination: Examination,
    identities: Mapping[str, str],
    display: Display,
    limits: Limits,
    batching: Batching | None,
) -> tuple[JudgeCheck, ...]:
    """Make the calls of a check and judge the judges.

    Raises:
        Stopped: a judge does not answer any more, or a budget is used up.
    """
    work = check_work(examination)
    if batching is not None:
        await fill_in_batches(batching, work, identities)
    graded = await graded_work(client, work, display, limits)
    return verdict(examination, identities, graded)


async def checked(
    client: Client,
    folder: RunFolder,
    manifest: Manifest,
    examination: Examination,
    settings: Judges,
    display: Display,
    limits: Limits,
    batching: Batching | None = None,
) -> tuple[JudgeCheck, ...]:
    """Check the judges of a run before anything else is asked, and return their checks, all of them
    passed.

    Raises:
        JudgeFailed: a judge failed. A run that is there already keeps the check, and nothing else
            of the new evaluation.
        Stopped: a judge does not answer any more, or a budget is used up.
    """
    identities = manifest.identities()
    checks = await _examine(client, examination, identities, display, limits, batching)
    asked = asked_in(client.ledger, identities, check_work(examination))
    checks = with_served(checks, asked.served)
    failed = [check for check in checks if not check.passed]
    if not failed:
        return checks
    if folder.exists():
        before = folder.load()[0]
        folder.save(
            msgspec.structs.replace(before, judge_checks=with_checks(before.judge_checks, checks))
        )
    ledger = folder.ledger_path(manifest)
    raise JudgeFailed(
        *(
            f"{check.judge}: failed its check, {_count(check)}: {'; '.join(check.reasons)}; no"
            f" model was asked; the cases: {_cases_command(check.judge, settings, ledger)}"
            for check in failed
        )
    )


def _cases_command(judge: str, settings: Judges, ledger: Path) -> str:
    """Return the command that shows the cases of a check, from calls that are stored."""
    arguments = {
        name: value
        for name, value in settings.judge_args.items()
        if name.rpartition(":")[0] in ("", judge)
    }
    headers = tuple(text for text in settings.header if parse_header(text).model == judge)
    own = {"judges": (judge,), "judge_args": arguments, "ledger": near(ledger), "header": headers}
    return command_line("judge-check", JudgeCheckSettings, _how_asked(settings) | own)


def _evaluation_command(settings: JudgeCheckSettings) -> str:
    """Return the command that asks the judges in an evaluation as they were asked in a check."""
    values = {"models": ["MODEL"], "dry_run": True} | _how_asked(settings)
    return command_line("evaluate", EvaluateSettings, values)


def _how_asked(settings: Judges) -> dict[str, Any]:
    """Return the settings of judges by which a check and an evaluation send the same calls."""
    values = {
        setting.name: getattr(settings, setting.name)
        for setting in settings_of(Judges)
        if setting.name.startswith("judge") or setting.name in ("rubrics", "grade_parse", "header")
    }
    return values | {"rubrics": settings.rubrics and near(settings.rubrics)}


def passed_line(check: JudgeCheck) -> str:
    """Say that a judge passed."""
    return f"{check.judge}: passed its check, {_count(check)}"


def passed_before_line(check: JudgeCheck) -> str:
    """Say that a judge passed in a check that is stored, and is not asked again."""
    return f"{check.judge}: passed its check before ({CHECKS}), {_count(check)}"


def raise_if_failed_before(checks: Iterable[JudgeCheck]) -> None:
    """Refuse judges that failed in a check that is stored; they are not asked again.

    Raises:
        JudgeFailed: see above.
    """
    failed = [check for check in checks if not check.passed]
    if failed:
        raise JudgeFailed(
            *(
                f"{check.judge}: failed its check before, {_count(check)}:"
                f" {'; '.join(check.reasons)}; no model was asked; the cases are in {CHECKS}"
                for check in failed
            )
        )


def _count(check: JudgeCheck) -> str:
    return f"{check.accepted} of {check.cases} cases accepted"
