"""Counting the calls of a run: those that were made, and those to come."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec

from opensafeintent.calls.client import Asked
from opensafeintent.calls.costs import ForecastLine, Spent, by_experience, experience_in, spent_of
from opensafeintent.calls.ledger import Ledger
from opensafeintent.calls.recorded import Lacked
from opensafeintent.calls.records import Answered, Failed
from opensafeintent.evaluation.manifest import Manifest
from opensafeintent.evaluation.pipeline import ModelWork, Planned, Task
from opensafeintent.evaluation.regrade import expected_regrades, planned_regrades
from opensafeintent.evaluation.replay import Replayed, imported_rows, judged_tasks, replay, replayed
from opensafeintent.evaluation.run import has_text, was_judged
from opensafeintent.promptsets import Dataset
from opensafeintent.responses import (
    NO_FIRST_REPLY,
    GradedResponse,
    JudgeGrades,
    Missing,
    ResponseKey,
)
from opensafeintent.taxonomy import DUAL_USE, Graded
from opensafeintent.templates import IntegerContract, Template


def calls_of(manifest: Manifest, dataset: Dataset, ledger: Ledger) -> Iterator[bytes]:
    """Yield the key of every call behind a run's results, as far as its ledger holds the calls
    before it.
    """
    judged: set[ResponseKey] = set()
    for _, response, calls in replayed_responses(manifest, dataset, ledger):
        if was_judged(response):
            judged.add(response.key)
        yield from (call.key for call in calls if call.call.counted)
    for regrading, planned in planned_regrades(manifest, dataset, ledger, judged):
        for _, _, calls in replayed(ledger, manifest.identities(), planned, regrading.ask):
            yield from (call.key for call in calls if call.call.counted)


def replayed_responses(
    manifest: Manifest, dataset: Dataset, ledger: Ledger
) -> Iterator[Replayed[GradedResponse]]:
    """Yield the replay of every response of a run that judges are asked about."""
    imported = imported_rows(ledger, dataset)
    for model in manifest.models:
        tasks = judged_tasks(manifest, dataset, model, imported.get(model, ()))
        yield from replay(ledger, manifest.identities(), manifest.planned(model, tasks))


def spent_of_run(manifest: Manifest, dataset: Dataset, ledger: Ledger) -> Spent:
    """Add up the calls of a run: every attempt in a ledger of its own, else the calls that its
    results use.
    """
    shared = Path(manifest.ledger).is_absolute()
    return spent_of(ledger, calls_of(manifest, dataset, ledger) if shared else None)


class AskedInLedger(NamedTuple):
    """The calls of a check that a ledger holds."""

    keys: list[bytes]
    served: dict[str, tuple[str, ...]]
    """By model, the models that its replies name."""
    whole: bool
    """Whether every call has an outcome."""


def asked_in(
    ledger: Ledger, identities: Mapping[str, str], work: Iterable[ModelWork]
) -> AskedInLedger:
    """Find the calls of a check in a ledger.

    Args:
        ledger: holds the outcomes.
        identities: of the judges, by name.
        work: the calls.
    """
    keys: list[bytes] = []
    served: dict[str, set[str]] = {}
    whole = True
    for item in work:
        for replayed_task in replay(ledger, identities, item.planned):
            whole = whole and replayed_task.whole
            for call, key, outcome in replayed_task.asked:
                keys.append(key)
                if not isinstance(outcome, Failed) and outcome.served_model:
                    served.setdefault(call.model, set()).add(outcome.served_model)
    return AskedInLedger(
        keys, {model: tuple(sorted(names)) for model, names in served.items()}, whole
    )


RESPONSE_TOKENS = 600
"""Assumed length of a response; a guess, stated with every forecast."""

ASSUMED = f"responses assumed to have {RESPONSE_TOKENS} tokens"

_GRADE_TOKENS = 8

_REASON_TOKENS = 60

_CHARACTERS_A_TOKEN = 4

_SETTLED = ("", "truncated", NO_FIRST_REPLY)
"""Reasons of a missing response, or none, that leave no call to make."""


class Forecast(msgspec.Struct, frozen=True):
    """Calls and tokens by model and purpose, those aside that the ledger already holds."""

    lines: tuple[ForecastLine, ...]
    assumed: str = ""
    """Assumptions about unknown lengths; empty if all are known."""
    connections: int | None = None
    """Concurrent requests to a provider, if the user set them."""
    chosen: Mapping[str, str] = {}
    """By model, the service tier or `batch` in which the command asks; of the others, the standard
    tier.
    """
    batches: bool = False
    """Whether the command can ask all its models in batches."""

    def scaled(self, factor: float) -> Forecast:
        """Return the calls and tokens of another number of prompt-sets, which is greater by this
        factor.
        """
        lines = (
            msgspec.structs.replace(
                line,
                calls=round(line.calls * factor),
                input_tokens=round(line.input_tokens * factor),
                output_tokens=round(line.output_tokens * factor),
            )
            for line in self.lines
        )
        return msgspec.structs.replace(self, lines=tuple(lines))


def expected_calls(work: Sequence[ModelWork]) -> int:
    """Return the number of calls that a plan makes or reuses at least: probes and re-asks come on
    top.
    """
    return sum(
        (task.given is None)
        + len(item.plan.questions) * len(item.plan.judges)
        + item.plan.asks_mode(task.variant)
        + (item.plan.guard_for(task) is not None)
        for item in work
        for task in item.tasks
    )


def forecast(ledger: Ledger, identities: Mapping[str, str], work: Sequence[ModelWork]) -> Forecast:
    """Count the calls that are not in the ledger.

    Args:
        ledger: holds the outcomes.
        identities: of every target and judge, by name.
        work: the plan.
    """
    counter = CallCounter()
    for item in work:
        for task, graded, asked in replay(ledger, identities, item.planned):
            length = _length(task, asked)
            if length is not None and task.variant == DUAL_USE:
                counter.first_replies[task.key] = length
            counter.add(task, graded, item, length)
    return Forecast(counter.lines(ledger), assumed=ASSUMED if counter.assumed else "")


def _length(task: Task, asked: Iterable[Asked]) -> int | None:
    """Return the characters of a response; None if there is none yet."""
    if task.given is not None:
        return len(task.given.text)
    texts = (
        outcome.text
        for call, _, outcome in asked
        if call.purpose == "generate" and call.counted and isinstance(outcome, Answered)
    )
    return next(map(len, texts), None)


def forecast_regrades(
    ledger: Ledger, manifest: Manifest, dataset: Dataset, graded: Collection[str]
) -> Forecast:
    """Count the remaining calls for asking the judges again.

    Args:
        ledger: holds the outcomes.
        manifest: of the planned run.
        dataset: its prompt-sets.
        graded: the models whose responses are to be graded before.
    """
    if not expected_regrades(manifest, dataset):
        return Forecast(())
    judged: dict[ResponseKey, bool] = {}
    lengths: dict[ResponseKey, int | None] = {}
    for task, response, asked in replayed_responses(manifest, dataset, ledger):
        lengths[task.key] = _length(task, asked)
        # a response without words takes no judge
        unknown = response.reason("response") not in _SETTLED
        before = response.model in graded and (has_text(response) or (unknown and not task.given))
        if before or was_judged(response):
            judged[response.key] = not unknown
    lines: tuple[ForecastLine, ...] = ()
    assumed = ""
    for regrading, planned in planned_regrades(manifest, dataset, ledger, judged.keys()):
        counter = CallCounter()
        counter.first_replies |= {key: size for key, size in lengths.items() if size is not None}
        answered = [item for item in planned if judged[item.task.key]]
        replies = {
            task.key: reply
            for task, reply, _ in replayed(ledger, manifest.identities(), answered, regrading.ask)
        }
        for task, plan, templates in planned:
            for column, shown in regrading.shown(task).items():
                grades = replies.get(task.key, {}).get(column, {})
                item = Planned(shown, plan, templates)
                due = partial(_due_again, grades)
                counter.judges(item, due, lengths[task.key], f", {regrading.why}")
        lines += counter.lines(ledger)
        assumed = assumed or (ASSUMED if counter.assumed else "")
    return Forecast(lines, assumed)


class CallCounter:
    """Adds up calls and tokens by model and purpose."""

    def __init__(self) -> None:
        self.calls: Counter[tuple[str, str, bool]] = Counter()
        self.input: Counter[tuple[str, str, bool]] = Counter()
        self.output: Counter[tuple[str, str, bool]] = Counter()
        self.beginning: dict[tuple[str, str, bool], int] = {}
        """Characters that all of these calls begin with."""
        self.further: Counter[tuple[str, str, bool]] = Counter()
        """Characters of first turns in the input."""
        self.first_replies: dict[ResponseKey, int] = {}
        """Characters of the responses to dual-use prompts, as far as there are any."""
        self.assumed = False
        """Whether the length of a response was assumed."""

    def add(
        self, task: Task, graded: GradedResponse, work: ModelWork, response: int | None
    ) -> None:
        """Count the remaining calls of a prompt, from its replay; `response` is the characters of
        the response, None if there is none yet.
        """
        plan, templates = work.plan, work.templates
        unknown = graded.reason("response") not in _SETTLED
        if unknown:
            self.assumed = True
            length = min(RESPONSE_TOKENS, plan.target_sampling.max_tokens or RESPONSE_TOKENS)
            further = self._first_turn(task)
            size = len(plan.system or "") + len(task.prompt) + further
            self._count(task.model, f"generate{_why(task)}", size, length, further=further)

        def due(what: Lacked, judge: str = "") -> bool:
            return unknown or _not_made(graded.reason(what, judge))

        if unknown or graded.by_judge:
            self.judges(Planned(task, plan, templates), due, response, _why(task))
        if plan.asks_mode(task.variant) and due("mode"):
            self._judge(plan.mode_judge, "mode", templates.mode, task, response)
        guard = plan.guard_for(task)
        if guard is not None and (unknown or _not_made(graded.guard_reason)):
            further = self._first_turn(task)
            size = len(guard.template.body) + len(task.prompt) + further
            size += self._response_size(response)
            self._count(guard.model, "guard", size, _GRADE_TOKENS, further=further)
        possible = plan.probes(task.variant, unsafe=True)
        harm_due = unknown or any(due("harm_severity", judge) for judge in graded.by_judge)
        if possible and task.given is None and (harm_due or due("strategy")):
            size = len(templates.strategy.source) + len(task.prompt)
            self._count(task.model, "probe", size, _GRADE_TOKENS, at_most=plan.probe == "unsafe")

    def judges(
        self,
        planned: Planned,
        due: Callable[[Graded, str], bool],
        response: int | None,
        why: str = "",
    ) -> None:
        """Count the calls to each judge about the response to a prompt that are not made.

        Args:
            planned: the prompt, and how its response is graded.
            due: whether a grade still takes a call, by scale and judge.
            response: its characters; None if there is none yet.
            why: the name of these calls behind their purpose.
        """
        task, plan, templates = planned
        for judge in plan.judges:
            for question in plan.questions:
                if due(question.grade, judge):
                    template = templates.of(question.role)
                    self._judge(judge, f"{question.role}{why}", template, task, response)

    def _judge(
        self, judge: str, purpose: str, template: Template, task: Task, response: int | None
    ) -> None:
        further = self._first_turn(task, template.role)
        size = len(template.source) + len(task.prompt) + further + self._response_size(response)
        reasons = isinstance(template.contract, IntegerContract) and template.contract.reason
        output = _REASON_TOKENS if reasons else _GRADE_TOKENS
        self._count(judge, purpose, size, output, further=further)
        self.beginning[judge, purpose, False] = len(template.beginning)

    def _response_size(self, response: int | None) -> int:
        """Return the characters of a response, assumed or known."""
        self.assumed |= response is None
        return RESPONSE_TOKENS * _CHARACTERS_A_TOKEN if response is None else response

    def _first_turn(self, task: Task, role: str | None = None) -> int:
        """Return the characters of a first turn, its reply assumed or known, with what a judge in
        this role is told about a conversation; 0 without a first turn.
        """
        if task.earlier is None:
            return 0
        reply = task.earlier.reply
        stored = self.first_replies.get(task.key._replace(variant=DUAL_USE))
        told = 0 if role is None else len(task.earlier.texts.note(role))
        size = self._response_size(stored if reply is None else len(reply))
        return len(task.earlier.prompt) + size + told

    def _count(
        self,
        model: str,
        purpose: str,
        characters: int,
        output: int,
        *,
        further: int = 0,
        at_most: bool = False,
    ) -> None:
        key = (model, purpose, at_most)
        self.calls[key] += 1
        self.input[key] += characters // _CHARACTERS_A_TOKEN
        self.output[key] += output
        self.further[key] += further // _CHARACTERS_A_TOKEN

    def lines(self, ledger: Ledger) -> tuple[ForecastLine, ...]:
        """Return the counts: the models under test in turn, then the judges.

        If a ledger has such calls, tokens are their means; otherwise they are estimated from the
        lengths.
        """
        experience = experience_in(ledger) if self.calls else {}
        first = {model: index for index, (model, *_) in reversed(list(enumerate(self.calls)))}
        in_turn = sorted(
            self.calls.items(),
            key=lambda item: (not item[0][1].startswith(("generate", "probe")), first[item[0][0]]),
        )
        return tuple(
            by_experience(
                ForecastLine(
                    model=model,
                    purpose=purpose,
                    calls=calls,
                    input_tokens=self.input[model, purpose, at_most],
                    output_tokens=self.output[model, purpose, at_most],
                    beginning_tokens=self.beginning.get((model, purpose, at_most), 0)
                    // _CHARACTERS_A_TOKEN,
                    further_tokens=self.further[model, purpose, at_most],
                    at_most=at_most,
                ),
                experience,
            )
            for (model, purpose, at_most), calls in in_turn
        )


def _why(task: Task) -> str:
    """Return what the calls of a task are for behind their purpose."""
    return ", second turn" if task.earlier else ""


def _due_again(grades: Mapping[str, JudgeGrades], what: Graded, judge: str) -> bool:
    """Tell whether a grade of a second asking still takes a call."""
    grade = grades[judge][what] if judge in grades else Missing("not_made")
    return isinstance(grade, Missing) and _not_made(grade.reason)


def _not_made(reason: str) -> bool:
    """Tell of a call that was never made, or that failed and is tried again."""
    return reason.startswith(("not_made", "failed"))
