"""The texts of a run: its responses, and the calls behind each."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from functools import cache
from itertools import groupby, islice
from pathlib import Path
from typing import Any

import msgspec

from opensafeintent.calls.ledger import Ledger
from opensafeintent.calls.ledger_rows import TextBudget, TooLong
from opensafeintent.calls.reasoning import cut_reasoning, find_thought
from opensafeintent.calls.records import Answered, Call, call_key
from opensafeintent.evaluation.manifest import Manifest
from opensafeintent.evaluation.pipeline import Asking, Task, first_call, generation_call
from opensafeintent.evaluation.regrade import AUDITED, RETEST, plan_conversation_audit, plan_swaps
from opensafeintent.evaluation.replay import (
    TEXT_BYTES_AT_ONCE,
    list_given_tasks,
    opens_none,
    replay_each,
)
from opensafeintent.promptsets import Dataset
from opensafeintent.responses import ResponseKey
from opensafeintent.taxonomy import CORE_VARIANTS, GRADE_OF
from opensafeintent.templates.template import Message

_AT_ONCE = 100
"""Texts of called models that are read together."""


class ResponseText(msgspec.Struct, frozen=True):
    """A target's response to one prompt, its reasoning taken off."""

    text: str
    row: int
    """Id of its row in the ledger: of the table `imported` for responses from files, of `calls` for
    all others.
    """


class TracedRow(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the ledger behind a prompt-set's grades."""

    table: str
    """`calls` or `imported`."""
    row: int
    target: str
    """The target whose response it is about."""
    model: str
    """The model called: the target, or a judge."""
    purpose: str
    question: str = ""
    """Of a judge's grade: what it was asked for, as `helpfulness` or `harm`. Its purpose tells it
    too, but of a swapped request or with the first turn shown.
    """
    variant: str
    epoch: int
    attempt: int
    """0 for the first asking, then one more for each re-ask; from 100 on for a judge's repeated
    grade.
    """
    status: str
    stop_reason: str = ""
    template: str = ""
    created: str = ""
    served_model: str = ""
    """The version that the reply names; "" if it names none."""
    input_tokens: int = 0
    """0 if the reply reports no tokens."""
    output_tokens: int = 0
    reply: str | None = None
    """The reply of a judge or a probe, reasoning taken off; None of other rows and of failed
    attempts.
    """
    reasoning: str = ""
    """The reasoning that the stored reply, or the imported response, shows; "" if it shows none."""
    request: tuple[Message, ...] = ()
    """The messages that were sent, if they were asked for; not of a target's responses."""


class RunTexts(AbstractContextManager["RunTexts"]):
    """The texts of one run, read one by one when they are asked for: a large run is never held in
    memory.

    `with RunTexts(manifest, dataset, path) as texts:` opens the ledger for reading only; a ledger
    in place of a path is open already, and is left open.

    Raises:
        InputError: the ledger cannot be read.
    """

    def __init__(self, manifest: Manifest, dataset: Dataset, ledger: Path | Ledger) -> None:
        self._manifest = manifest
        self._plan = cache(manifest.judge_plan)
        self._dataset = dataset
        self._ours = isinstance(ledger, Path)
        self._opens_none: dict[str, bool] = {}
        """By model with imported responses: see `opens_none`."""
        self._ledger = Ledger(ledger, readonly=True) if isinstance(ledger, Path) else ledger

    def __exit__(self, *_: object) -> None:
        if self._ours:
            self._ledger.close()

    def find(self, model: str, set_id: str, variant: str, epoch: int = 1) -> ResponseText | None:
        """Return a response's text; None if there is none: filtered by the provider, failed, or
        never requested.
        """
        return self.find_of_set(model, set_id, [variant], epoch)[0]

    def find_of_set(
        self, model: str, set_id: str, variants: Iterable[str], epoch: int
    ) -> list[ResponseText | None]:
        """Return the texts of a model's responses to some prompts of a set, as `find` does."""
        keys = [ResponseKey(model, set_id, variant, epoch) for variant in variants]
        if self._manifest.models[model].imported:
            texts = self._ledger.imports.find_texts(self._dataset.hash, model, set_id)
            return [_make_text(texts.get(key[1:])) for key in keys]
        return list(self._find_called(keys))

    def find_in_turn(self, keys: Iterable[ResponseKey]) -> Iterator[ResponseText | None]:
        """Yield the texts of responses as `find` returns them; those of a model are read
        together, called ones some at a time.
        """
        for model, of_model in groupby(keys, key=lambda key: key.model):
            if self._manifest.models[model].imported:
                texts = self._ledger.imports.find_texts(self._dataset.hash, model)
                yield from (_make_text(texts.get(key[1:])) for key in of_model)
            else:
                while some := list(islice(of_model, _AT_ONCE)):
                    yield from self._find_called(some)

    def _find_called(self, keys: Sequence[ResponseKey]) -> Iterator[ResponseText | None]:
        calls = [self._call_for(key) for key in keys]
        answers = self._answers([call for call in calls if call])
        yield from (next(answers) if call else None for call in calls)

    def _call_for(self, key: ResponseKey) -> Call | None:
        """Return the call that a response answers; None if a follow-up has no first reply."""
        task = self._manifest.make_task(key, self._dataset)
        if task.earlier is not None:
            first = self.first_reply(task)
            if not first:
                return None
            earlier = msgspec.structs.replace(task.earlier, reply=first)
            task = msgspec.structs.replace(task, earlier=earlier)
        return generation_call(task, self._plan(key.model))

    def count_replies(self, model: str, since: datetime) -> tuple[int, int]:
        """Return how many replies of a model, answers and refusals, were received since a time, and
        before.
        """
        manifest, stored = self._manifest, list[str]()
        start = since.astimezone(UTC).isoformat(timespec="microseconds")
        plan, identity = manifest.judge_plan(model), manifest.models[model].identity
        for task in manifest.list_tasks(model, self._dataset):
            if task.earlier is None:  # a second reply goes on from one of these
                rows = self._ledger.list_attempts(call_key(generation_call(task, plan), identity))
                stored += [row.created for row in rows if row.status != "failed"]
        new = sum(created >= start for created in stored)
        return new, len(stored) - new

    def first_reply(self, task: Task) -> str | None:
        """Return the text of the reply that a follow-up goes on from; None if there is none."""
        if self._manifest.models[task.model].imported:
            imported = self._ledger.imports.find(self._dataset.hash, task.key)
            reply = imported and imported.reply_to
            return cut_reasoning(reply).text.strip() if reply else None
        first = next(self._answers([first_call(task, self._plan(task.model))]))
        return first.text if first else None

    def _answers(self, calls: Sequence[Call]) -> Iterator[ResponseText | None]:
        """Yield the answers to some calls, None for a call without one; half of them are read
        together, and so on, if their texts are long.
        """
        keys = [call_key(call, self._manifest.models[call.model].identity) for call in calls]
        budget = TextBudget(self._ledger.path, "", TEXT_BYTES_AT_ONCE) if len(keys) > 1 else None
        try:
            located = self._ledger.find_all(keys, budget)
        except TooLong:
            located = None  # the error holds what was read: it has to be gone first
        if located is None:
            middle = len(calls) // 2
            yield from self._answers(calls[:middle])
            yield from self._answers(calls[middle:])
            return
        for found in map(located.get, keys):
            yield (
                ResponseText(found.outcome.text, found.row)
                if found and isinstance(found.outcome, Answered)
                else None
            )

    def trace(self, set_id: str, *, requests: bool = False) -> Iterator[TracedRow]:
        """Yield every ledger row behind the responses and grades of one prompt-set, failed attempts
        included.

        The rows come target by target, wording by wording, in the order in which the calls depend
        on one another.

        Args:
            set_id: the prompt-set.
            requests: whether the rows of judges and probes have the messages that were sent.
        """
        for model, entry in self._manifest.models.items():
            if entry.imported:
                yield from self._trace_imports(model, set_id, requests=requests)
            else:
                for task in self._manifest.list_tasks(model, self._dataset):
                    if task.set_id == set_id:
                        yield from self._trace_calls(task, requests=requests)

    def _trace_imports(self, model: str, set_id: str, *, requests: bool) -> Iterator[TracedRow]:
        """Yield the rows of imported responses, and the calls of those that a judge had to
        grade.
        """
        imports, dataset = self._ledger.imports, self._dataset.hash
        if model not in self._opens_none:  # once for each model: it takes all of its responses
            self._opens_none[model] = opens_none(imports.rows(dataset, model))
        of_set = list(imports.rows(dataset, model, set_id))
        tasks = {
            (task.variant, task.epoch): task
            for task in list_given_tasks(
                of_set,
                self._manifest,
                self._dataset,
                opens_no_thought=self._opens_none[model],
            )
        }
        for row in of_set:
            yield from (
                TracedRow(
                    table="imported",
                    row=number,
                    target=row.model,
                    model=row.model,
                    purpose="imported",
                    variant=row.variant,
                    epoch=row.epoch,
                    attempt=0,
                    status="imported",
                    reasoning=find_thought(row.response or "") if number == row.rows[0] else "",
                )
                for number in sorted(row.rows)
            )
            wording = (row.variant, row.epoch)
            if wording in tasks:
                yield from self._trace_calls(tasks[wording], requests=requests)

    def _trace_calls(self, task: Task, *, requests: bool) -> list[TracedRow]:
        """Go through the plan of calls again, answered by the ledger alone, and note the calls."""
        manifest, identities = self._manifest, self._manifest.identities()
        ways: list[Callable[[Asking], Coroutine[Any, Any, object]]] = [Asking.run]
        if manifest.plan.retest:
            ways.append(RETEST.ask)
        if manifest.plan.swap and task.variant in CORE_VARIANTS and task.epoch == 1:
            ways.append(plan_swaps(manifest, self._dataset).ask)
        is_pair = self._dataset.by_id[task.set_id].is_pair
        if manifest.plan.turn and task.variant in AUDITED and not is_pair:
            ways.append(plan_conversation_audit(manifest, self._dataset).ask)
        planned = manifest.plan_tasks(task.model, [task])
        templates = manifest.plan.templates
        questions = {digest: role for role, digest in templates.items() if role in GRADE_OF}
        calls = {
            call.key: call
            for way in ways
            for response in replay_each(self._ledger, identities, planned, way)
            for call in response.asked
        }
        return [
            TracedRow(
                table="calls",
                row=row.id,
                target=task.model,
                model=asked.call.model,
                purpose=asked.call.purpose,
                question=questions.get(asked.call.template_hash, ""),
                variant=task.variant,
                epoch=task.epoch,
                attempt=asked.call.attempt,
                status=row.status,
                stop_reason=row.stop_reason,
                template=asked.call.template,
                created=row.created,
                served_model=row.served_model,
                input_tokens=row.input_tokens,
                output_tokens=row.output_tokens,
                reply=(
                    asked.outcome.text
                    if row.status == "answered"
                    and isinstance(asked.outcome, Answered)
                    and asked.call.purpose != "generate"
                    else None
                ),
                reasoning=self._ledger.read_reasoning(row.id),
                request=(
                    self._ledger.request(row.id)[0]
                    if requests and asked.call.purpose != "generate"
                    else ()
                ),
            )
            for key, asked in calls.items()
            for row in self._ledger.list_attempts(key)
        ]


def _make_text(imported: tuple[int, str] | None) -> ResponseText | None:
    if imported is None:
        return None
    row, text = imported
    return ResponseText(cut_reasoning(text).text.strip(), row)
