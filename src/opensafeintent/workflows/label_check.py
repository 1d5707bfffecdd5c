"""Compare judges with people, on responses that were labelled elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing

import msgspec

from opensafeintent.analysis.label_checks import CheckedSetting, LabelCheck
from opensafeintent.analysis.label_comparison import draw_evenly, label_checks
from opensafeintent.calls.client import Client
from opensafeintent.calls.headers import Headers, headers_by_model
from opensafeintent.calls.http import HttpSession
from opensafeintent.calls.ledger import Ledger
from opensafeintent.calls.progress import Display, display_for
from opensafeintent.calls.service_tiers import FlexPlan
from opensafeintent.errors import JudgeFailed, counted
from opensafeintent.evaluation.forecast import forecast
from opensafeintent.evaluation.judge_check import AnchorSetting, roles_of
from opensafeintent.evaluation.labelled_responses import (
    LabelledFile,
    LabelledResponse,
    label_work,
)
from opensafeintent.evaluation.pipeline import ModelWork
from opensafeintent.evaluation.spent import AskedInLedger
from opensafeintent.files import write_private
from opensafeintent.imports.labelled_responses import read_labelled
from opensafeintent.interop import model_identity, open_models, unset_lines
from opensafeintent.promptsets.fields import fields_named
from opensafeintent.replacing import locked_folder, replaced_together
from opensafeintent.report.costs import cost_json
from opensafeintent.responses import GradedResponse
from opensafeintent.taxonomy import Graded
from opensafeintent.templates import Templates
from opensafeintent.workflows.batching import begin_batches, fill_in_batches, need_batches
from opensafeintent.workflows.call_limits import Limits, flex_plan, wait_or_refuse
from opensafeintent.workflows.judge_calls import calls_and_costs, costs_if_stopped, graded_work
from opensafeintent.workflows.judge_files import write_judge_files
from opensafeintent.workflows.outcome import Outcome
from opensafeintent.workflows.runtime import run_async
from opensafeintent.workflows.settings import JudgeCheckSettings


class _LabelComparison(msgspec.Struct, frozen=True, kw_only=True):
    """The judges, the labelled responses that they grade, and the calls."""

    settings: JudgeCheckSettings
    file: LabelledFile
    drawn: list[int]
    """Indices of the responses to ask about."""
    identities: dict[str, str]
    templates: Templates
    work: list[ModelWork]

    @classmethod
    def of(cls, settings: JudgeCheckSettings) -> _LabelComparison:
        """Read the file of the settings, and plan the calls.

        Raises:
            InputError: the file, a judge or a template cannot be used.
        """
        assert settings.labelled is not None
        file = read_labelled(settings.labelled, settings.columns, settings.max_rows)
        number = settings.sample or len(file.responses)
        drawn = draw_evenly(file.responses, number)
        templates = settings.judge_templates()
        return cls(
            settings=settings,
            file=file,
            drawn=drawn,
            identities={name: model_identity(name, settings.functions) for name in settings.panel},
            templates=templates,
            work=label_work(
                [file.responses[index] for index in drawn],
                settings.samplings_of_panel,
                templates,
                file.grades,
                settings.grade_parse,
            ),
        )

    def notes(self) -> list[str]:
        """Return notes on the file, a line each."""
        file, sample = self.file, self.settings.sample
        notes = []
        if file.unlabelled:
            notes.append(f"{counted(file.unlabelled, 'row')} without a label of harm left out")
        if not any(item.prompt for item in file.responses):
            notes.append("no prompts: judges grade the responses with the request hidden")
        if sample is not None and sample > len(file.responses):
            notes.append(
                f"--sample {sample:,}: there are"
                f" {counted(len(file.responses), 'labelled response')}; all are taken"
            )
        if repeated := len(file.responses) - len({_text_of(item) for item in file.responses}):
            notes.append(
                f"{counted(repeated, 'response')} with the text of an earlier row; if each person"
                " has a row, name the field of people: --map rater=FIELD"
            )
        if file.unread:
            notes.append(f"not read: {fields_named(file.unread)}")
        return [f"{file.name}: {note}" for note in notes]

    def labels(self) -> str:
        """Return how many labels say safe and unsafe: a file that is read the wrong way round
        shows it.
        """
        calls = [rating.is_unsafe for item in self.file.responses for rating in item.ratings]
        return (
            f"{self.file.name}: labels: {calls.count(False):,} safe, {calls.count(True):,} unsafe"
        )

    def members(self, asked: AskedInLedger) -> dict[str, CheckedSetting]:
        """Return how each judge was asked."""
        roles = roles_of(self.file.grades)
        hashes = {
            template.role: template.hash
            for template in self.templates.all()
            if template.role in roles
        }
        return {
            judge: CheckedSetting(
                identity=self.identities[judge],
                setting=AnchorSetting(
                    templates=hashes, parse=self.settings.grade_parse, sampling=sampling
                ),
                served=asked.served.get(judge, ()),
            )
            for judge, sampling in self.settings.samplings_of_panel.items()
        }

    def compared(
        self, graded: list[GradedResponse], asked: AskedInLedger
    ) -> tuple[LabelCheck, ...]:
        """Compare the grades with the labels."""
        by_judge = {
            judge: {item.set_id: item for item in graded if item.model == judge}
            for judge in self.identities
        }
        grades: dict[str, Mapping[Graded, list[int | None]]] = {
            judge: {
                scale: [
                    of_judge[str(index)].grade(scale, judge) for index in range(len(self.drawn))
                ]
                for scale in self.file.grades
            }
            for judge, of_judge in by_judge.items()
        }
        return label_checks(
            self.file,
            self.drawn,
            grades,
            self.members(asked),
            include_unsafe=self.settings.include_unsafe,
        )


def _text_of(item: LabelledResponse) -> tuple[str, str, str]:
    return item.prompt, item.response, item.group


def compare_with_people(settings: JudgeCheckSettings, *, quiet: bool = False) -> Outcome:
    """Let judges grade responses that people labelled, and compare the grades with the labels.

    Running again is resuming: calls in the ledger are not made again.

    Raises:
        InputError: a setting, or the file, is not usable.
        Stopped: a provider ended the check; answers so far are kept.
    """
    comparison = _LabelComparison.of(settings)
    need_batches(settings, comparison.identities)
    names = comparison.identities
    flex = flex_plan(settings, names)
    headers = headers_by_model(settings.header, (), names, names)
    with closing(display_for(quiet=quiet)) as screen:
        Limits.of(settings).check_prices(comparison.identities)
        if settings.dry_run:
            with Ledger(settings.ledger_path, readonly=True, missing_ok=True) as ledger:
                expected = forecast(ledger, comparison.identities, comparison.work)
            notes = [*comparison.notes(), comparison.labels(), *unset_lines(names, headers)]
            return Outcome.forecasting(expected, settings, notes, names=comparison.identities)
        with locked_folder(settings.out, "checking a judge into", wait_or_refuse(settings, screen)):
            return run_async(lambda: _compare(comparison, screen, flex, headers))


async def _compare(
    comparison: _LabelComparison, display: Display, flex: FlexPlan, headers: Headers
) -> Outcome:
    settings, identities = comparison.settings, comparison.identities
    limits = Limits.of(settings)
    stopped = costs_if_stopped(settings, identities, comparison.work)
    async with HttpSession(settings.max_connections, settings.timeout) as http:
        opened = open_models(identities, http, settings.functions, flex=flex, headers=headers)
        waiting = wait_or_refuse(settings, display)
        with stopped, Ledger(settings.ledger_path, waiting=waiting) as ledger:
            client = Client(ledger, opened, limits)
            batching = await begin_batches(settings, client, opened, http, display)
            if batching is not None:
                await fill_in_batches(batching, comparison.work, identities)
            graded = await graded_work(client, comparison.work, display, limits)
    display.stage("comparing")
    asked, costs = calls_and_costs(settings, identities, comparison.work)
    labels = comparison.compared(graded, asked)
    with replaced_together(settings.out) as new:
        write_private(new / "cost.json", cost_json(costs))
        files = write_judge_files(settings.out, new, labels=labels, left_out=client.left_out)
    return Outcome(
        exit_code=JudgeFailed.exit_code if any(check.ungraded for check in labels) else 0,
        out=settings.out,
        labels=labels,
        judge_files=files,
        notes=[*comparison.notes(), *_texts_stored(labels)],
        costs=costs,
    ).with_calls(client)


def _texts_stored(labels: Sequence[LabelCheck]) -> list[str]:
    """Say how many texts the files hold because somebody asked for them."""
    texts = {
        (case.prompt, case.response)
        for check in labels
        for case in check.cases
        if case.response is not None
    }
    stored = f"{counted(len(texts), 'labelled response')} with their prompts"
    note = f"--include-unsafe: the files hold {stored}; do not send them on"
    return [note] if texts else []
