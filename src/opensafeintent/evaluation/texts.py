"""What a run's ledger holds beside the grades: the texts of the responses, and the rows behind them. No call is made."""

from __future__ import annotations

from pathlib import Path
from typing import Self

import msgspec

from opensafeintent.calls.client import Client
from opensafeintent.calls.ledger import Ledger
from opensafeintent.calls.recorded import ImportedRow
from opensafeintent.calls.records import Answered, Call, Outcome, call_key
from opensafeintent.calls.replies import without_thinking
from opensafeintent.evaluation.derive import given_tasks
from opensafeintent.evaluation.manifest import Manifest
from opensafeintent.evaluation.pipeline import Task, generation_call, grade_again, run_task
from opensafeintent.evaluation.records import JudgePlan
from opensafeintent.evaluation.regrading import FIRST_ATTEMPT
from opensafeintent.evaluation.run import tasks_of
from opensafeintent.promptsets import Dataset, PromptSet

__all__ = ["ResponseText", "RunTexts", "TracedRow"]


class ResponseText(msgspec.Struct, frozen=True):
    """What a target wrote for one prompt, its reasoning taken off."""

    text: str
    row: int
    """Id of its row in the ledger: of the table `imported` for responses from files, of `calls` for all others."""


class TracedRow(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the ledger that stands behind a prompt-set's grades."""

    table: str
    """`calls` or `imported`."""
    row: int
    subject: str
    """The target whose response it is about."""
    model: str
    """Who was asked: the target, or a judge."""
    purpose: str
    variant: str
    epoch: int
    attempt: int
    """0 for the first asking, then one more for each re-ask; from 100 on where a judge was asked for its grade anew."""
    status: str
    stop_reason: str
    template: str
    created: str


class RunTexts:
    """The texts of one run, read one by one when they are asked for: a large run is never held in memory.

    `with RunTexts(manifest, dataset, path) as texts:` opens the ledger for reading only; a ledger in place of a path is open
    already, and is left open.

    Raises:
        InputError: the ledger cannot be read.
    """

    def __init__(self, manifest: Manifest, dataset: Dataset, ledger: Path | Ledger) -> None:
        self._manifest = manifest
        self._dataset = dataset
        self._ours = isinstance(ledger, Path)
        self._ledger = Ledger(ledger, readonly=True) if isinstance(ledger, Path) else ledger
        self._plans: dict[str, JudgePlan] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._ours:
            self._ledger.close()

    def find(self, model: str, set_id: str, variant: str, epoch: int = 1) -> ResponseText | None:
        """Return a response's text; None where there is none: filtered by the provider, failed, or never asked for."""
        if self._manifest.models[model].imported:
            place = (model, set_id, variant, epoch)
            row, text = self._ledger.imports.at(self._dataset.hash, place)
            return None if text is None else ResponseText(without_thinking(text).strip(), row)
        call = self._generation(model, self._dataset.by_id[set_id], variant, epoch)
        key = call_key(call, self._manifest.models[model].identity)
        found = self._ledger.find_all([key]).get(key)
        return ResponseText(found.outcome.text, found.row) if found and isinstance(found.outcome, Answered) else None

    def _generation(self, model: str, prompt_set: PromptSet, variant: str, epoch: int) -> Call:
        """Return the call that the response answers."""
        plan = self._plans.setdefault(model, self._manifest.plan(model))
        prompt = prompt_set.wordings()[variant]
        return generation_call(Task(model=model, set_id=prompt_set.id, variant=variant, epoch=epoch, prompt=prompt), plan)

    async def trace(self, set_id: str) -> list[TracedRow]:
        """Return every ledger row behind the responses and grades of one prompt-set, failed attempts included.

        The rows come target by target, wording by wording, in the order in which the calls depend on one another.
        """
        prompt_set = self._dataset.by_id[set_id]
        found: list[TracedRow] = []
        for model, entry in self._manifest.models.items():
            if entry.imported:
                found += await self._traced_imports(model, set_id)
            elif prompt_set in self._manifest.sets_of(model, self._dataset):
                for task in tasks_of(model, [prompt_set], entry.epochs):
                    found += await self._traced_calls(task)
        return found

    async def _traced_imports(self, model: str, set_id: str) -> list[TracedRow]:
        """Return the rows of imported responses, and the calls of those that a judge had to grade."""
        rows = [row for row in self._ledger.imports.rows(self._dataset.hash) if (row.model, row.set_id) == (model, set_id)]
        tasks = {(task.variant, task.epoch): task for task in given_tasks(rows, self._dataset)}
        found: list[TracedRow] = []
        for row in rows:
            place = (row.model, row.set_id, row.variant, row.epoch)
            for number in self._ledger.imports.rows_at(self._dataset.hash, place):
                found.append(_imported_row(number, row))
            if (row.variant, row.epoch) in tasks:
                found += await self._traced_calls(tasks[row.variant, row.epoch])
        return found

    async def _traced_calls(self, task: Task) -> list[TracedRow]:
        """Go through the plan of calls again, with nobody to answer but the ledger, and note what was asked for."""
        entry = self._manifest.models[task.model]
        if not entry.judges:
            return []
        client = _Watching(self._ledger, self._manifest.identities())
        how = (self._manifest.plan(task.model), self._manifest.templates_of(task.model))
        await run_task(client, task, *how)
        if entry.judge_samples:
            await grade_again(client, task, *how, first_attempt=FIRST_ATTEMPT)
        return [
            TracedRow(
                table="calls",
                row=row,
                subject=task.model,
                model=call.model,
                purpose=call.purpose,
                variant=task.variant,
                epoch=task.epoch,
                attempt=call.attempt,
                status=status,
                stop_reason=stop_reason,
                template=call.template,
                created=created,
            )
            for key, call in client.asked.items()
            for row, status, stop_reason, created in self._ledger.rows_of(key)
        ]


def _imported_row(number: int, row: ImportedRow) -> TracedRow:
    return TracedRow(
        table="imported",
        row=number,
        subject=row.model,
        model=row.model,
        purpose="imported",
        variant=row.variant,
        epoch=row.epoch,
        attempt=0,
        status="imported",
        stop_reason="",
        template="",
        created="",
    )


class _Watching(Client):
    """A client that remembers what it was asked, in order, by key."""

    def __init__(self, ledger: Ledger, identities: dict[str, str]) -> None:
        super().__init__(ledger, identities)
        self._identities = identities
        self.asked: dict[bytes, Call] = {}

    async def ask(self, call: Call) -> Outcome:
        self.asked[call_key(call, self._identities[call.model])] = call
        return await super().ask(call)
