"""Check judges on gold cases and on labelled responses."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import msgspec

from opensafeintent.any_model import describe_unset_variables, model_identity
from opensafeintent.calls.client import choose_concurrency
from opensafeintent.calls.costs import sum_spent
from opensafeintent.calls.headers import Headers, headers_by_model, parse_header
from opensafeintent.calls.ledger import Ledger
from opensafeintent.calls.ledger_folder import refuse_folder_of_other_run
from opensafeintent.calls.progress import Display, display_for
from opensafeintent.commands.batching import begin_batches, fill_ledger_in_batches
from opensafeintent.commands.outcome import RunOutcome
from opensafeintent.commands.reproduce import command_line
from opensafeintent.commands.session import (
    Session,
    check_calls,
    open_session,
    run_async,
    wait_or_refuse,
)
from opensafeintent.commands.settings import EvaluateSettings, JudgeCheckSettings
from opensafeintent.commands.settings.base import CHECKS, list_settings
from opensafeintent.commands.settings.calling import REASONS, Judges
from opensafeintent.errors import InputError, JudgeFailed, Stopped, pluralize
from opensafeintent.evaluation.forecast import AskedInLedger, find_asked, forecast
from opensafeintent.evaluation.gold_cases import (
    GRADE_NAMES,
    GoldCheckPlan,
    JudgeCheck,
    JudgeSetting,
    add_served,
    compare_with_gold,
    list_roles,
    load_gold_cases,
    make_gold_check_work,
    merge_checks,
)
from opensafeintent.evaluation.labelled_responses import (
    LabelledFile,
    make_label_check_work,
)
from opensafeintent.evaluation.manifest import Manifest, RunFolder
from opensafeintent.evaluation.pipeline import ModelWork
from opensafeintent.evaluation.run import run_work
from opensafeintent.files import near, read_json, sha256_hex, to_json, write_private
from opensafeintent.hostile import name_safe
from opensafeintent.imports.label_files import read_labelled
from opensafeintent.numbers.cohort import GradedRun, compute_borderline_acceptance
from opensafeintent.numbers.label_checks import (
    CheckedSetting,
    LabelCheck,
    compare_labels,
    draw_balanced,
)
from opensafeintent.people.agreement import gather_grades
from opensafeintent.promptsets.fields import fields_named
from opensafeintent.replacing import lock_folder, replace_together
from opensafeintent.report.cost_tables import Costs, encode_costs
from opensafeintent.responses import GradedResponse
from opensafeintent.taxonomy import KnownGrades
from opensafeintent.templates import Templates

_SCHEMA = 2
_DERIVED = ("accepted", "cases", "missing", "passed", "reasons")
_COSTS = "cost.json"
"""The file in the folder that holds no results of a judge."""


class JudgeFile(msgspec.Struct, frozen=True, kw_only=True):
    """Every result of one judge, or of a panel."""

    schema: int = _SCHEMA
    judge: str
    checks: tuple[JudgeCheck, ...] = ()
    """On the gold cases, of each setting the latest."""
    labels: tuple[LabelCheck, ...] = ()
    """On labelled responses, of each file and setting the latest."""
    left_out: tuple[str, ...] = ()
    """Fields of a request that the judge turned out not to take."""


def read_judge_files(folder: Path) -> list[JudgeFile]:
    """Return the results in a folder, in the order of their files; none if the folder of the
    default is not there.

    Raises:
        InputError: the folder is not there, or a file holds something else.
    """
    if not folder.is_dir():
        if folder in (CHECKS, CHECKS.absolute()):
            return []
        raise InputError(f"--checks {folder}: no such folder; expected one of judge-check")
    return list(_files_in(folder).values())


def default_judge_files() -> tuple[list[JudgeFile], list[str]]:
    """Return the results of `judge-check` in the folder of the default, and a note if they cannot
    be read: calls that were paid for are not lost by that.
    """
    try:
        return read_judge_files(CHECKS), []
    except InputError as error:
        return [], [str(error)]


def _files_in(folder: Path) -> dict[Path, JudgeFile]:
    return {
        path: read_json(path, JudgeFile, "the results of a judge", schema=_SCHEMA)
        for path in sorted(folder.glob("*.json"))
        if path.name != _COSTS and path.is_file()
    }


def write_judge_files(
    folder: Path,
    staged: Path,
    *,
    checks: Sequence[JudgeCheck],
    labels: Sequence[LabelCheck],
    left_out: Mapping[str, Iterable[str]],
) -> dict[str, Path]:
    """Write the results of judges, with the earlier ones in a folder.

    Args:
        folder: has the earlier results.
        staged: is where the new files are written.
        checks, labels: the new results.
        left_out: by judge, fields of a request that it turned out not to take.

    Returns:
        By judge, its file in `folder`.

    Raises:
        InputError: an earlier file cannot be read, or a new one not written.
    """
    earlier = {file.judge: (path, file) for path, file in _files_in(folder).items()}
    taken = {path.name.casefold() for path, _ in earlier.values()}
    written: dict[str, Path] = {}
    named: list[JudgeCheck | LabelCheck] = [*checks, *labels]
    for judge in dict.fromkeys(item.judge for item in named):
        nothing = JudgeFile(judge=judge)
        path, before = earlier.get(judge) or (_new_path(folder, judge, taken), nothing)
        taken.add(path.name.casefold())
        file = JudgeFile(
            judge=judge,
            checks=merge_checks(before.checks, [item for item in checks if item.judge == judge]),
            labels=merge_label_checks(
                before.labels, [item for item in labels if item.judge == judge]
            ),
            left_out=tuple(sorted({*before.left_out, *left_out.get(judge, ())})),
        )
        write_private(staged / path.name, _encode_judge_file(file))
        written[judge] = path
    return written


def _new_path(folder: Path, judge: str, taken: Iterable[str]) -> Path:
    """Return a path for a judge: two names that are equal as file names get two files."""
    name = name_safe(judge)
    unlike = f"{name}-{sha256_hex(judge)[:8]}"
    is_taken = f"{name}.json".casefold() in {*taken, _COSTS}
    return folder / f"{unlike if is_taken else name}.json"


def merge_label_checks(
    old: Sequence[LabelCheck], new: Sequence[LabelCheck]
) -> tuple[LabelCheck, ...]:
    """Return all comparisons with people, a newer one in the place of an older one of the same
    judges, settings, labels and number of responses.
    """
    newer = {_identify_label_check(check) for check in new}
    return (*(check for check in old if _identify_label_check(check) not in newer), *new)


def _identify_label_check(check: LabelCheck) -> bytes:
    source = check.source
    return msgspec.json.encode(
        [check.judge, check.members, source.sha256, source.responses], order="sorted"
    )


def _encode_judge_file(file: JudgeFile) -> bytes:
    content: dict[str, Any] = msgspec.to_builtins(file)
    for record, check in zip(content["checks"], file.checks, strict=True):
        record |= {name: getattr(check, name) for name in _DERIVED}
        record["groups"] = msgspec.to_builtins(compute_borderline_acceptance(check))
    return to_json(content)


async def grade_work(
    calling: Session, work: Sequence[ModelWork], identities: Mapping[str, str]
) -> list[GradedResponse]:
    """Make the calls of a check, and return the graded responses in no particular order.

    Raises:
        Stopped: a judge does not answer any more, or a budget is used up.
    """
    expected = forecast(calling.client.ledger, identities, work).calls
    await fill_ledger_in_batches(calling, work, identities)
    graded: list[GradedResponse] = []
    at_once = choose_concurrency(calling.settings.max_connections)
    async with calling.show_progress(expected):
        await run_work(calling.client, work, at_once=at_once, done=graded.append)
    return graded


def calls_and_costs(
    settings: JudgeCheckSettings, identities: Mapping[str, str], work: Sequence[ModelWork]
) -> tuple[AskedInLedger, Costs]:
    """Return the calls of a check, and the costs: in a ledger of its own those of every check in
    the folder, in a shared one those of this check.
    """
    with Ledger(settings.ledger_path, readonly=True) as ledger:
        asked = find_asked(ledger, identities, work)
        keys = None if settings.ledger is None else asked.keys
        return asked, Costs({"judge-check": sum_spent(ledger, keys)}, settings.prices)


@contextmanager
def costs_if_stopped(
    settings: JudgeCheckSettings, identities: Mapping[str, str], work: Sequence[ModelWork]
) -> Iterator[None]:
    """Write `cost.json` if a check is stopped: calls that were paid for are accounted for."""
    try:
        yield
    except Stopped:
        _, costs = calls_and_costs(settings, identities, work)
        with replace_together(settings.out) as new:
            write_private(new / _COSTS, encode_costs(costs))
        raise


class _LabelComparison(msgspec.Struct, frozen=True, kw_only=True):
    """The judges, the labelled responses that they grade, and the calls."""

    settings: JudgeCheckSettings
    file: LabelledFile
    drawn: list[int]
    """Indices of the responses to ask about."""
    templates: Templates
    work: list[ModelWork]

    @classmethod
    def of(cls, settings: JudgeCheckSettings, labelled: Path) -> _LabelComparison:
        """Read the file of the settings, and plan the calls.

        Raises:
            InputError: the file or a template cannot be used.
        """
        file = read_labelled(labelled, settings.columns, settings.max_rows)
        drawn = draw_balanced(file, settings.sample or len(file.responses))
        templates = settings.judge_templates()
        work = make_label_check_work(
            [file.responses[index] for index in drawn],
            settings.samplings(settings.judges),
            templates,
            file.grades,
            templates.parse,
        )
        return cls(settings=settings, file=file, drawn=drawn, templates=templates, work=work)

    def notes(self) -> list[str]:
        """Return notes on the file, a line each."""
        file, sample = self.file, self.settings.sample
        notes = []
        if file.unlabelled:
            what = "harm" if file.called == "unsafe" else "refusal"
            notes.append(f"{pluralize(file.unlabelled, 'row')} without a label of {what} left out")
        if not any(item.prompt for item in file.responses):
            notes.append("no prompts: judges grade the responses with the request hidden")
        if sample is not None and sample > len(file.responses):
            notes.append(
                f"--sample {sample:,}: there are"
                f" {pluralize(len(file.responses), 'labelled response')}; all are taken"
            )
        unlike = {(item.prompt, item.response, item.group) for item in file.responses}
        if repeated := len(file.responses) - len(unlike):
            notes.append(
                f"{pluralize(repeated, 'response')} with the text of an earlier row; if each person"
                " has a row, name the field of people: --map rater=FIELD"
            )
        if file.unread:
            notes.append(f"not read: {fields_named(file.unread)}")
        return [f"{file.name}: {note}" for note in notes]

    def count_labels(self) -> str:
        """Say how many labels say safe and unsafe, or answered and refused: a file that is read
        the wrong way round shows it.
        """
        kind = self.file.kind
        labels = self.file.ratings.select_scale(kind.called)
        counts = {kind.no: 0, kind.yes: 1, kind.tie: 0.5}
        numbers = {word: int((labels == label).sum()) for word, label in counts.items()}
        if not numbers[kind.tie]:
            del numbers[kind.tie]
        return f"{self.file.name}: labels: " + ", ".join(
            f"{number:,} {word}" for word, number in numbers.items()
        )

    def judge(
        self, graded: Sequence[GradedResponse], asked: AskedInLedger, identities: Mapping[str, str]
    ) -> RunOutcome:
        """Compare the grades with the labels."""
        by_index: list[dict[str, KnownGrades]] = [{} for _ in self.drawn]
        for item in graded:
            by_index[int(item.set_id)] |= item.by_judge
        labels = compare_labels(
            self.file,
            self.drawn,
            gather_grades(by_index, list(identities)),
            self._list_members(asked, identities),
            include_unsafe=self.settings.include_unsafe,
        )
        return RunOutcome(
            exit_code=JudgeFailed.exit_code if any(check.ungraded for check in labels) else 0,
            labels=labels,
            notes=[*self.notes(), *_texts_stored(labels)],
        )

    def _list_members(
        self, asked: AskedInLedger, identities: Mapping[str, str]
    ) -> dict[str, CheckedSetting]:
        """Return how each judge was asked."""
        roles = list_roles(self.file.grades)
        hashes = {
            template.role: template.hash
            for template in self.templates.all()
            if template.role in roles
        }
        return {
            judge: CheckedSetting(
                identity=identities[judge],
                setting=JudgeSetting(
                    templates=hashes, parse=self.templates.parse, sampling=sampling
                ),
                served=asked.served.get(judge, ()),
            )
            for judge, sampling in self.settings.samplings(self.settings.judges).items()
        }


def _texts_stored(labels: Sequence[LabelCheck]) -> list[str]:
    """Say how many texts the files hold because somebody asked for them."""
    texts = {
        (case.prompt, case.response)
        for check in labels
        for case in check.cases
        if case.response is not None
    }
    stored = f"{pluralize(len(texts), 'labelled response')} with their prompts"
    note = f"--include-unsafe: the files hold {stored}; do not send them on"
    return [note] if texts else []


class _GoldCheck(msgspec.Struct, frozen=True, kw_only=True):
    """The judges, the gold cases that they grade, and the calls."""

    settings: JudgeCheckSettings
    gold_check: GoldCheckPlan
    work: list[ModelWork]

    @classmethod
    def of(cls, settings: JudgeCheckSettings) -> _GoldCheck:
        """Plan the calls.

        Raises:
            InputError: a template cannot be used.
        """
        templates = settings.judge_templates()
        gold_check = GoldCheckPlan(
            gold=load_gold_cases(),
            grades_by_judge=dict.fromkeys(settings.judges, GRADE_NAMES),
            templates=templates,
            parse=templates.parse,
            samplings=settings.samplings(settings.judges),
            min_accuracy=settings.min_accuracy,
        )
        return cls(settings=settings, gold_check=gold_check, work=make_gold_check_work(gold_check))

    def judge(
        self, graded: Sequence[GradedResponse], asked: AskedInLedger, identities: Mapping[str, str]
    ) -> RunOutcome:
        """Compare the grades with those that the rubrics allow."""
        checks = add_served(compare_with_gold(self.gold_check, identities, graded), asked.served)
        return RunOutcome(
            exit_code=0 if all(check.passed for check in checks) else JudgeFailed.exit_code,
            checks=checks,
            following=_evaluation_command(self.settings),
        )


def check_judges(settings: JudgeCheckSettings, *, quiet: bool = False) -> RunOutcome:
    """Send the gold cases to judges, and compare their grades with those that the rubrics allow;
    with `labelled` send responses that people labelled, and compare the grades with the labels.

    Running again is resuming: calls in the ledger are not made again.

    Raises:
        InputError: a setting or the file is not usable, or the folder holds a run or a build.
        Stopped: a provider ended the check; answers so far are kept.
    """
    refuse_folder_of_other_run(settings.out)
    notes: list[str] = []
    check: _GoldCheck | _LabelComparison
    if settings.labelled is None:
        check = _GoldCheck.of(settings)
    else:
        check = _LabelComparison.of(settings, settings.labelled)
        notes = [*check.notes(), check.count_labels()]
    identities = {name: model_identity(name, settings.functions) for name in settings.judges}
    check_calls(settings, identities)
    headers = headers_by_model(settings.header, (), identities, identities)
    with closing(display_for(quiet=quiet)) as screen:
        if settings.dry_run:
            with Ledger(settings.ledger_path, readonly=True, missing_ok=True) as ledger:
                expected = forecast(ledger, identities, check.work)
            notes += describe_unset_variables(identities, headers)
            return RunOutcome.from_forecast(expected, settings, notes, names=identities)
        with lock_folder(settings.out, "checking a judge into", wait_or_refuse(settings, screen)):
            return run_async(lambda: _run_check(check, identities, screen, headers))


async def _run_check(
    check: _GoldCheck | _LabelComparison,
    identities: Mapping[str, str],
    display: Display,
    headers: Headers,
) -> RunOutcome:
    """Make the calls of a check, and write what they show."""
    settings = check.settings
    with costs_if_stopped(settings, identities, check.work):
        async with open_session(
            settings, identities, settings.ledger_path, display, headers=headers
        ) as calling:
            await begin_batches(calling)
            graded = await grade_work(calling, check.work, identities)
    if settings.labelled is not None:
        display.stage("comparing")
    asked, costs = calls_and_costs(settings, identities, check.work)
    outcome = check.judge(graded, asked, identities)
    with replace_together(settings.out) as new:
        write_private(new / _COSTS, encode_costs(costs))
        outcome.judge_files = write_judge_files(
            settings.out,
            new,
            checks=outcome.checks,
            labels=outcome.labels,
            left_out=calling.client.left_out,
        )
    outcome.out, outcome.costs = settings.out, costs
    return outcome.add_call_notes(calling.client)


async def check_before_run(
    calling: Session,
    folder: RunFolder,
    manifest: Manifest,
    gold_check: GoldCheckPlan,
    settings: Judges,
) -> tuple[JudgeCheck, ...]:
    """Check the judges of a run before anything else is asked, and return their checks, all of them
    passed.

    Raises:
        JudgeFailed: a judge failed. A run that is there already keeps the check, and nothing else
            of the new evaluation.
        Stopped: a judge does not answer any more, or a budget is used up.
    """
    identities = manifest.identities()
    work = make_gold_check_work(gold_check)
    graded = await grade_work(calling, work, identities)
    asked = find_asked(calling.client.ledger, identities, work)
    checks = add_served(compare_with_gold(gold_check, identities, graded), asked.served)
    failed = [check for check in checks if not check.passed]
    if not failed:
        return checks
    if folder.exists():
        before = folder.load()[0]
        folder.save(
            msgspec.structs.replace(before, judge_checks=merge_checks(before.judge_checks, checks))
        )
    ledger = folder.ledger_path(manifest)
    raise JudgeFailed(
        *(
            _describe_failed(check, f": {_cases_command(check.judge, settings, ledger)}")
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
        for setting in list_settings(Judges)
        if setting.name.startswith("judge") or setting.name in ("rubrics", "header")
    }
    return values | {"rubrics": _near(settings.rubrics)}


def _near(rubrics: str | None) -> str | None:
    return rubrics if rubrics in (None, REASONS) else str(near(Path(rubrics or "")))


def describe_passed(check: JudgeCheck) -> str:
    """Say that a judge passed."""
    return f"{check.judge}: passed its check, {_describe_count(check)}"


def describe_passed_before(check: JudgeCheck) -> str:
    """Say that a judge passed in a check that is stored, and is not asked again."""
    return f"{check.judge}: passed its check before ({CHECKS}), {_describe_count(check)}"


def raise_if_failed_before(checks: Iterable[JudgeCheck]) -> None:
    """Refuse judges that failed in a check that is stored; they are not asked again.

    Raises:
        JudgeFailed: see above.
    """
    if failed := [check for check in checks if not check.passed]:
        where = f" are in {CHECKS}"
        raise JudgeFailed(*(_describe_failed(check, where, before=" before") for check in failed))


def _describe_failed(check: JudgeCheck, where: str, before: str = "") -> str:
    return (
        f"{check.judge}: failed its check{before}, {_describe_count(check)}:"
        f" {'; '.join(check.reasons)}; no model was asked; the cases{where}"
    )


def _describe_count(check: JudgeCheck) -> str:
    return f"{check.accepted} of {check.cases} cases accepted"


def add_known_checks(run: GradedRun, files: Sequence[JudgeFile]) -> GradedRun:
    """Return a run with every check of its judges: its own, and those of `judge-check`."""
    manifest = run.manifest
    of_files = [check for file in files for check in file.checks if check.judge in manifest.judges]
    known = merge_checks(of_files, manifest.judge_checks)
    return run._replace(manifest=msgspec.structs.replace(manifest, judge_checks=known))


def find_earlier_checks(
    gold_check: GoldCheckPlan, identities: Mapping[str, str], files: Sequence[JudgeFile]
) -> tuple[list[JudgeCheck], GoldCheckPlan | None]:
    """Find the checks in results of `judge-check` that the plan would repeat.

    A check that failed counts only if it is of the same grades and misses none: another one might
    pass.

    Args:
        gold_check: the judges to check.
        identities: of the judges, by name.
        files: results of `judge-check`.

    Returns:
        The checks of judges that need no further one: they passed or failed; and the plan for the
        other judges, None if there is none.
    """
    known: dict[str, JudgeCheck] = {}
    for check in (check for file in files for check in file.checks):
        grades = gold_check.grades_by_judge.get(check.judge)
        if (
            grades is not None
            and {*grades} <= {*check.grades}
            and check.identity == identities[check.judge]
            and check.gold_cases == gold_check.gold.hash
            and check.setting == _find_setting(gold_check, check)
        ):
            by_this_mark = msgspec.structs.replace(check, min_accuracy=gold_check.min_accuracy)
            same_grades = {*grades} == {*check.grades}
            if by_this_mark.passed or (same_grades and not check.missing):
                known[check.judge] = by_this_mark
    grades_by_judge = {
        judge: of for judge, of in gold_check.grades_by_judge.items() if judge not in known
    }
    rest = (
        msgspec.structs.replace(gold_check, grades_by_judge=grades_by_judge)
        if grades_by_judge
        else None
    )
    return list(known.values()), rest


def _find_setting(gold_check: GoldCheckPlan, check: JudgeCheck) -> JudgeSetting:
    """Return the setting in which the plan would ask a judge for the grades of a check."""
    grades_by_judge = {check.judge: check.grades}
    return msgspec.structs.replace(gold_check, grades_by_judge=grades_by_judge).find_setting(
        check.judge
    )


def list_label_checks(files: Sequence[JudgeFile]) -> list[LabelCheck]:
    """Return every comparison with people in results of `judge-check`, without its cases."""
    return [msgspec.structs.replace(check, cases=()) for file in files for check in file.labels]
